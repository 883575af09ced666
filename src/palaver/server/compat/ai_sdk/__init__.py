"""The Vercel AI SDK's chat transport."""
