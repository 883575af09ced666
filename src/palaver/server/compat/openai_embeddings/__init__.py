"""OpenAI's Embeddings, with the embedder of the store."""
