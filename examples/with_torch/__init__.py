"""The experiments in PyTorch."""
