"""Which backends are tested: those asked for with ``--backend``, or else those installed."""

from __future__ import annotations

import importlib.util
from fnmatch import fnmatch
from pathlib import Path

import pytest

# What a folder or file needs, by path from the project's root; * stands for a part of a name.
NEEDS = {
    "src/quantal/torch": ("torch",),
    "src/quantal/tensorflow": ("tensorflow",),
    "src/quantal/keras": ("keras",),
    "src/quantal/keras/_on_tensorflow.py": ("keras", "tensorflow"),
    "src/quantal/keras/_on_jax.py": ("keras", "jax"),
    "src/quantal/keras/_on_torch.py": ("keras", "torch"),
    "src/quantal/jax/nnx": ("jax", "flax"),
    "src/quantal/jax/linen": ("jax", "flax"),
    "src/quantal/jax/equinox": ("jax", "equinox"),
    "src/quantal/jax/haiku": ("jax", "haiku"),
    "src/quantal/jax": ("jax",),
    "src/quantal/conformance/_on_device.py": ("torch",),
    "src/quantal/conformance/adapters/torch.py": ("torch",),
    "src/quantal/conformance/adapters/tensorflow.py": ("tensorflow",),
    "src/quantal/conformance/adapters/jax.py": ("jax",),
    "src/quantal/conformance/adapters/nnx.py": ("jax", "flax"),
    "src/quantal/conformance/adapters/linen.py": ("jax", "flax"),
    "src/quantal/conformance/adapters/equinox.py": ("jax", "equinox"),
    "tests/with_torch": ("torch",),
    "tests/docs": ("selenium",),
    "tests/gpu": ("torch", "triton"),
    "tests/with_keras": ("keras",),
    "tests/with_jax": ("jax", "flax", "equinox"),
    "examples": ("sklearn", "pooch", "rich", "matplotlib"),
    "examples/with_torch": ("torch",),
    "examples/with_keras": ("keras", "tensorflow"),
    "examples/with_jax": ("jax", "flax", "optax"),
    "examples/digits_torch.py": ("torch",),
    "examples/digits_keras.py": ("keras", "tensorflow"),
    "examples/digits_jax.py": ("jax", "flax", "optax"),
    "tests/examples": ("sklearn", "pooch", "rich", "matplotlib"),
    "tests/examples/test_torch*": ("torch",),
    "tests/examples/test_keras*": ("keras", "tensorflow"),
    "tests/examples/test_jax*": ("jax", "flax", "optax"),
    "tests/examples/test_agreement*": ("torch", "keras", "tensorflow", "jax", "flax", "optax"),
    "tests/examples/test_cli.py": ("torch", "jax", "flax", "optax"),
    "tests/examples/test_sweep.py": ("torch", "ray"),
    "benchmarks": ("matplotlib", "torch", "tensorflow", "keras", "jax", "flax", "equinox", "optax"),
    "tests/benchmarks": ("matplotlib",),
    "tests/benchmarks/test_suites.py": (
        "torch", "tensorflow", "keras", "jax", "flax", "equinox", "optax", "transformers",
    ),
    "tests/together": ("torch", "tensorflow", "keras", "jax", "flax", "equinox"),
    "tests/models": ("torch", "transformers", "timm", "keras", "jax", "flax", "equinox"),
}  # fmt: skip
# What --backend may ask for: the folders of tests.
BACKENDS = {
    path.removeprefix("tests/").removeprefix("with_"): path
    for path in NEEDS
    if path.startswith("tests/") and "." not in path and "*" not in path
}
ROOT = Path(__file__).parent
# It has no examples, and whoever imports it has chosen between a GPU and Triton's interpreter.
collect_ignore = ["src/quantal/torch/_triton_kernels.py"]


def missing(path: str) -> list[str]:
    """Return the packages that a path needs and that are not installed."""
    return [name for name in NEEDS[path] if importlib.util.find_spec(name) is None]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --backend."""
    parser.addoption(
        "--backend",
        action="append",
        default=[],
        choices=list(BACKENDS),
        help="fail if this backend cannot be tested (may be given more than once)",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse to pass for a backend that was asked for and is not there."""
    for backend in config.getoption("--backend"):
        if absent := missing(BACKENDS[backend]):
            raise pytest.UsageError(f"--backend {backend}: not installed: {', '.join(absent)}")


def pytest_report_header(config: pytest.Config) -> list[str]:
    """List what is left out."""
    return [f"left out: {p} (needs {', '.join(m)})" for p in NEEDS if (m := missing(p))]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what cannot be imported here."""
    if not collection_path.is_relative_to(ROOT):
        return None
    relative = collection_path.relative_to(ROOT)
    # Also by its folders: pytest does not ask about one that is named on its command line.
    names = [each.as_posix() for each in (relative, *relative.parents)]
    wanting = any(fnmatch(name, path) and missing(path) for name in names for path in NEEDS)
    return True if wanting else None
