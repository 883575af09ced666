"""OpenAI-compatible services: chat completions, responses, embeddings."""
