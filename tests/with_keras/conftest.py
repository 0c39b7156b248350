"""One Keras backend a run, chosen by KERAS_BACKEND; TensorFlow's own messages are off."""

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # the models that stand beside the tests

# Before anything imports TensorFlow: its C++ side writes to stderr while it is loaded.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import pytest

# No tests: collected, it would be imported under a second name.
collect_ignore = ["zoo.py", "gpu_placement.py"]


def pytest_report_header() -> str:
    # Without importing Keras, which the process that hands out the tests has no need of.
    return f"Keras on {os.environ.get('KERAS_BACKEND', 'the backend of keras.json')}"


@pytest.fixture
def on_tensorflow() -> None:
    import keras

    if keras.backend.backend() != "tensorflow":
        pytest.skip("about TensorFlow's own graphs: needs KERAS_BACKEND=tensorflow")
