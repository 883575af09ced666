"""One module per client, run in an environment that has the client and not Palaver: they import nothing of it."""
