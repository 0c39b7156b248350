"""Every name of JAX, Flax, Equinox and Haiku that those libraries do not promise to keep.

Each is looked up here and nowhere else, so a new version can break only this file, and none of
them is needed to import quantal. Seen in JAX 0.8.1 to 0.10.2, Flax 0.12.6 to 0.12.8 and Haiku
0.0.15 to 0.0.17.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import jax
from jax import numpy as jnp

from quantal._watch import StackFrame
from quantal.keys import threefry2x32 as portable_threefry2x32

__all__ = ["BERNOULLI", "RADEMACHER", "RANDINT", "UNIFORM"]
__all__ += ["attention_weights", "callback_of", "frames_of", "haiku_dropout", "threefry2x32"]

Pair = tuple[jax.Array, jax.Array]

# The names that programs have for functions of jax.random. By another name, such a function is read
# operation by operation, like any other code: a mask is still found, but not the rate of one drawn
# by bernoulli, nor a mask of random integers that nothing compares.
BERNOULLI, RANDINT = "_bernoulli", "_randint"
UNIFORM, RADEMACHER = "_uniform", "_rademacher"


def threefry2x32(key: Pair, counter: Pair) -> Pair:
    """Encipher pairs of 32-bit words with JAX's own cipher.

    ``jax.extend.random.threefry2x32_p`` is a primitive that every device has a kernel for. Without
    it, the same cipher is spelled out in twenty rounds of additions and shifts: the same numbers,
    from a larger program.
    """
    try:
        from jax.extend.random import threefry2x32_p
    except ImportError:
        shape = jnp.broadcast_shapes(*(jnp.shape(word) for word in (*key, *counter)))
        words = [jnp.broadcast_to(word, shape) for word in (*key, *counter)]
        word0, word1 = portable_threefry2x32((words[0], words[1]), (words[2], words[3]), _rotate)
    else:
        primitive: Any = threefry2x32_p
        word0, word1 = primitive.bind(*key, *counter)
    return word0, word1


def _rotate(x: jax.Array, places: int) -> jax.Array:
    return (x << jnp.uint32(places)) | (x >> jnp.uint32(32 - places))


def attention_weights() -> Callable[..., Any] | None:
    """Return ``dot_product_attention_weights`` of NNX, which Flax does not export from ``nnx``.

    Without it, attention is reported as out of reach of ``convert``.
    """
    try:
        from flax.nnx.nn.attention import dot_product_attention_weights
    except ImportError:
        return None
    return dot_product_attention_weights


def frames_of(equation: Any) -> list[StackFrame]:
    """Return the lines from which an operation of a program comes, the innermost first.

    ``source_info.traceback`` of the equations of a jaxpr. Without it, native dropout is still
    counted, but not where it is.
    """
    traceback = getattr(getattr(equation, "source_info", None), "traceback", None)
    return [
        StackFrame(frame.file_name, frame.line_num, frame.function_name)
        for frame in getattr(traceback, "frames", ())
    ]


def callback_of(equation: Any) -> Any:
    """Return the Python function that an operation of a program calls on the host.

    Without the ``callback_func`` of the operation's ``callback``, this is the callback itself.
    """
    callback = equation.params.get("callback")
    return getattr(callback, "callback_func", callback)


class _HaikuDropout:
    """The implementation of ``hk.dropout``, to be replaced for a while.

    Haiku has it in a function of its own, ``haiku._src.basic.dropout_impl``, "to support monkey
    patching". Where that is gone, ``haiku.dropout`` itself is replaced; code that has done
    ``from haiku import dropout`` then still calls Haiku's own.
    """

    def __init__(self) -> None:
        self._owner: Any = None
        self._name = ""
        self.native: Any = None

    def replace(self, function: Any) -> None:
        """Put another function in its place."""
        try:
            self._owner, self._name = import_module("haiku._src.basic"), "dropout_impl"
            _ = self._owner.dropout_impl
        except (ImportError, AttributeError):
            self._owner, self._name = import_module("haiku"), "dropout"
        self.native = getattr(self._owner, self._name)
        setattr(self._owner, self._name, function)

    def restore(self) -> None:
        """Undo `replace`."""
        setattr(self._owner, self._name, self.native)


haiku_dropout = _HaikuDropout()
