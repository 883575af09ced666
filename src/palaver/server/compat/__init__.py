"""Other protocols (OpenAI, Anthropic, AI SDK) translated to and from conversations."""
