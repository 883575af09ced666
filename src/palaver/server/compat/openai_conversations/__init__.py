"""OpenAI conversations and their items."""
