"""What QSD costs and how well it draws, measured: ``python -m benchmarks``."""
