"""Files that people hand in: which are taken, how large they unpack, what they say. Nothing in here is trusted."""
