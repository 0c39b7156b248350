"""QSD for TensorFlow: `dilute` for tensors; Keras on TensorFlow draws here too."""

from quantal.checks import require

require("tensorflow", "keras")

from quantal.tensorflow.functional import dilute  # noqa: E402 - only once TensorFlow is there

__all__ = ["dilute"]
