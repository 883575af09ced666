"""Speed and size, each as a ratio to a baseline measured in the same run. `python -m bench --help`."""
