"""The server: REST, live events, keys. Each request is translated, calls one verb, and is translated back."""
