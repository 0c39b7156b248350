"""Every check of the project; ``nox`` alone runs the default ones. ``nox -l`` lists them."""

from __future__ import annotations

import nox

nox.needs_version = ">=2026.10.20"  # which can run sessions side by side
nox.options.default_venv_backend = "venv"
# The longest first, so that in the end none is left alone.
nox.options.sessions = ["lint", "types", "together", "tests"]
# While one installs, which keeps a single core busy, another tests.
nox.options.parallel = 2
nox.options.allow_parallel = True

CONSTRAINTS = ("-c", "constraints.txt")
TEST = ("pytest", "pytest-xdist", "hypothesis")
TORCH = ("torch",)
TENSORFLOW = ("tensorflow-cpu",)
JAX = ("jax", "flax", "equinox", "dm-haiku", "optax")
ALL = (*TORCH, *TENSORFLOW, "keras", *JAX)
EXAMPLES = ("filelock", "matplotlib", "pooch", "rich", "scikit-learn", "ray")

# What each backend installs, which folder it tests, and what it asks of pytest and Keras.
BACKENDS = {
    "core": (("mpmath", "matplotlib"), "tests/core", None, None),
    "conformance": ((), "tests/conformance", None, None),
    "torch": ((*TORCH, "onnx", "onnxscript"), "tests/with_torch", "torch", None),
    "keras-tensorflow": (("keras", *TENSORFLOW), "tests/with_keras", "keras", "tensorflow"),
    "keras-jax": (("keras", "jax"), "tests/with_keras", "keras", "jax"),
    "keras-torch": (("keras", *TORCH), "tests/with_keras", "keras", "torch"),
    "jax": (JAX, "tests/with_jax", "jax", None),
}

# What is tested with all of them in one environment, since that takes long to install.
TOGETHER = {
    "examples": ("examples", "tests/examples", "benchmarks", "tests/benchmarks"),
    "models": ("tests/models",),
    "together": ("tests/together", "tests/core/test_package.py"),
}

# Several processes test at once: each works with one thread, rather than wait for a core.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
}
# Compiling takes longer than what is compiled then runs. JAX's own tests do without this, and so
# does the kit.
COMPILE_LESS = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


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
    environment = ONE_THREAD | ({"KERAS_BACKEND": keras_backend} if keras_backend else {})
    environment |= COMPILE_LESS if keras_backend else {}
    asked = ("--backend", wanted) if wanted else ()
    where = session.posargs or ("src", folder)
    session.run("pytest", "-n", "2", *asked, *where, env=environment)


@nox.session
def together(session: nox.Session) -> None:
    """Test all frameworks side by side, in real models, in the examples; write conformance.md."""
    install(session, *TEST, *ALL, *EXAMPLES, "transformers", "pillow")
    # Their own requirements would bring another torch.
    session.install(*CONSTRAINTS, "--no-deps", "--no-compile", "timm", "torchvision")
    if session.posargs:
        session.run("pytest", *session.posargs, env=ONE_THREAD | COMPILE_LESS)
        return
    for part, where in TOGETHER.items():
        environment = ONE_THREAD | (COMPILE_LESS if part != "together" else {})
        session.run("pytest", "-n", "2", "--backend", part, *where, env=environment)
    session.run("quantal", "conform", "--installed", "--report", "conformance.md")


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Judge right implementations again and again with fresh seeds: nox -s soak -- --runs 300."""
    install(session)
    arguments = session.posargs or ("numpy", "numpy-key", "--runs", "300")
    session.run("python", "-m", "quantal.conformance.soak", *arguments)


@nox.session(default=False, allow_parallel=False)
def bench(session: nox.Session) -> None:
    """Measure, alone on the machine, and make the page: nox -s bench, or nox -s bench -- torch."""
    install(session, *ALL, "matplotlib", "transformers")
    session.run("python", "-m", "benchmarks", "run", *session.posargs)
    if "--out" not in session.posargs:
        where = ("--from", "docs/benchmarks-gpu") if "gpu" in session.posargs else ()
        session.run("python", "-m", "benchmarks", "page", *where)
