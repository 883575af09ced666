"""OpenAI chat completions."""
