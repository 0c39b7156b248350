"""Real models of other libraries: what these need in order to be imported."""

import importlib.util
import os
import sys
from pathlib import Path

import torch

os.environ["HF_HUB_OFFLINE"] = "1"  # models are built from configurations, never downloaded


def torchvision_loads():
    """Whether the operators of torchvision are there, or torchvision is not."""
    found = importlib.util.find_spec("torchvision")
    try:
        for library in Path(found.origin).parent.glob("_C*") if found else ():
            torch.ops.load_library(str(library))
    except OSError:
        return False
    return True


# torchvision 0.28 on PyPI is built for CUDA: beside torch for CPUs its operators do not load, and
# its import fails where it describes these two to torch. timm and transformers only need its
# Python code, so let it describe them. An install that works is left alone.
if not torchvision_loads():
    for operator in ("nms", "qnms"):
        torch.library.define(f"torchvision::{operator}", "(Tensor d, Tensor s, float t) -> Tensor")

sys.path.insert(0, str(Path(__file__).parent))  # for what the tests share
# Not tests, nor examples: collected, they would be imported under a second name.
collect_ignore = ["torch_porting.py"]
