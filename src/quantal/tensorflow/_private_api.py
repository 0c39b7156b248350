"""Every private name of TensorFlow that the package uses, in one place.

For each: the versions in which it was seen, and what happens when it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import tensorflow as tf

__all__ = ["each_operation"]


@contextmanager
def each_operation(seen: Callable[[str, Any, Any], None]) -> Iterator[None]:
    """Call a function for each operation that is run or put into a graph: type, inputs, outputs.

    ``tensorflow.python.framework.op_callbacks``, on which TensorFlow's debugger is built, seen in
    2.16.1 to 2.21. Gone: ``example=`` of `convert` and `sites` is refused in words.
    """
    try:
        from tensorflow.python.framework import op_callbacks
    except ImportError:
        raise NotImplementedError(
            f"example: TensorFlow {tf.__version__} does not tell which operations it runs, in a "
            "way that quantal knows. Leave example= out."
        ) from None

    def callback(kind: Any, inputs: Any, attrs: Any, outputs: Any, *_: Any, **__: Any) -> None:
        seen(kind.decode() if isinstance(kind, bytes) else kind, inputs, outputs)

    op_callbacks.add_op_callback(callback)
    try:
        yield
    finally:
        op_callbacks.remove_op_callback(callback)
