"""Operations: health, metrics, logs, shutdown, administration."""
