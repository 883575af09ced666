"""The methods of a store and of a conversation: check, call a port, return values."""
