"""The server: REST, live events, keys. Each request is translated to one method call, and its result back."""
