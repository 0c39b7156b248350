"""QSD for TensorFlow: `dilute` for tensors; Keras on TensorFlow draws here too."""

from quantal._errors import require

require("tensorflow", "tensorflow")

from quantal.tensorflow._functional import dilute  # noqa: E402 - only once TensorFlow is there

__all__ = ["dilute"]
