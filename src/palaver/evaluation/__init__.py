"""Measuring recall on one's own conversations: questions, and the turns that answer them."""
