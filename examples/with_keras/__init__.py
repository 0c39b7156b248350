"""The experiments in Keras 3, on its TensorFlow, JAX or torch backend (``KERAS_BACKEND``)."""

import os

# Before TensorFlow is loaded: its C++ side would write notices across the progress display.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
