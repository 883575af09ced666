"""Values, checks and small tools that every other package uses. Imports nothing above it."""
