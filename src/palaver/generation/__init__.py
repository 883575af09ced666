"""Answers: the question, the prompt, the calls of a model and its tools, and the record of each call."""
