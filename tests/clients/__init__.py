"""Other people's clients against this server: `make test-clients` runs every scenario, `make test` a short form."""
