"""Background work: claims jobs and runs them."""
