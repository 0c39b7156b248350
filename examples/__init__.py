"""The paper's experiments in PyTorch, Keras and JAX: ``python -m examples list``."""
