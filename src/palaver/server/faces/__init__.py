"""Other people's protocols: what their clients send, and what they want to hear. Pure; the routes are in `routes/`."""
