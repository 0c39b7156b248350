"""Every check of the project; ``nox`` alone runs the default ones. ``nox -l`` lists them."""

from __future__ import annotations

import nox

nox.needs_version = ">=2024.4.15"
nox.options.default_venv_backend = "venv"
nox.options.sessions = ["lint", "types", "tests", "together", "conformance"]

CONSTRAINTS = ("-c", "constraints.txt")
TEST = ("pytest", "pytest-xdist", "hypothesis")
TORCH = ("torch",)
TENSORFLOW = ("tensorflow-cpu",)
JAX = ("jax", "flax", "equinox", "dm-haiku", "optax")
ALL = (*TORCH, *TENSORFLOW, "keras", *JAX)

# What each backend installs, which folder it tests, and what it asks of pytest and Keras.
BACKENDS = {
    "core": (("mpmath", "matplotlib"), "tests/core", None, None),
    "torch": ((*TORCH, "onnx", "onnxscript"), "tests/with_torch", "torch", None),
    "keras-tensorflow": (("keras", *TENSORFLOW), "tests/with_keras", "keras", "tensorflow"),
    "keras-jax": (("keras", "jax"), "tests/with_keras", "keras", "jax"),
    "keras-torch": (("keras", *TORCH), "tests/with_keras", "keras", "torch"),
    "jax": (JAX, "tests/with_jax", "jax", None),
}


def install(session: nox.Session, *packages: str) -> None:
    # Compiling every module of a framework takes longer than the tests that need a few of them.
    session.install(*CONSTRAINTS, "--no-compile", "-e", ".", *packages)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.install(*CONSTRAINTS, "ruff")
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy, strictly."""
    install(session, "mypy", "matplotlib")
    session.run("mypy")


@nox.session
@nox.parametrize("backend", list(BACKENDS), ids=list(BACKENDS))
def tests(session: nox.Session, backend: str) -> None:
    """Test one backend in an environment that has no other."""
    packages, folder, wanted, keras_backend = BACKENDS[backend]
    install(session, *TEST, *packages)
    environment = {"KERAS_BACKEND": keras_backend} if keras_backend else {}
    asked = ("--backend", wanted) if wanted else ()
    where = session.posargs or ("src", folder)
    session.run("pytest", "-n", "2", *asked, *where, env=environment)


@nox.session
def together(session: nox.Session) -> None:
    """Test that all frameworks, side by side, draw the same bits from the same key."""
    install(session, *TEST, *ALL, "matplotlib")
    where = session.posargs or ("tests/together", "tests/core/test_package.py")
    session.run("pytest", "--backend", "together", *where)
