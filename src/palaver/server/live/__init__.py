"""Live feeds: frames, channels and the answers being generated."""
