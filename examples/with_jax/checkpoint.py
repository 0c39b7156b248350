"""States in files."""

from __future__ import annotations

from pathlib import Path
from typing import Any, TypeVar

import jax
import numpy as np

__all__ = ["restore", "save"]

Tree = TypeVar("Tree")


def save(path: Path, tree: object) -> None:
    """Write the arrays of a tree, each under its place in it, as an npz file."""
    leaves, _ = jax.tree_util.tree_flatten_with_path(tree)
    with path.open("wb") as file:
        arrays: Any = {jax.tree_util.keystr(place): np.asarray(leaf) for place, leaf in leaves}
        np.savez(file, **arrays)


def restore(path: Path, like: Tree) -> Tree:
    """Return a tree like another, with the arrays of a file."""
    with np.load(path, allow_pickle=False) as arrays:
        return jax.tree_util.tree_map_with_path(
            lambda place, _: arrays[jax.tree_util.keystr(place)], like
        )
