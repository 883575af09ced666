"""Checks and measurements of the source itself. Nothing here is part of the package."""
