"""The REST API: one file of routes per noun."""
