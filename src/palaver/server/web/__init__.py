"""The web app and the documentation page."""
