"""For operators: health, metrics, logs, shutdown, administration."""
