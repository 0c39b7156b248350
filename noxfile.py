"""Every check of the project; ``nox`` alone runs the default ones. ``nox -l`` lists them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

import nox
import nox.command

nox.needs_version = ">=2026.10.20"  # which can run sessions side by side
nox.options.default_venv_backend = "venv"
nox.options.sessions = ["tests", "gpu", "lint", "types"]
# While one installs, which keeps a single core busy, another tests.
nox.options.parallel = 2
nox.options.allow_parallel = True

# Some machines say that no bytecode is to be written. Each of the many processes that test would
# then compile all modules of its frameworks anew: 16 s instead of 6 s for TensorFlow and Keras.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

PROJECT = nox.project.load_toml("pyproject.toml")
HIDE = str(Path(__file__).parent / "tests" / "hide")
FRAMEWORKS = {"torch", "tensorflow", "keras", "jax", "flax", "equinox", "haiku"}


class Part(NamedTuple):
    """A part of the tests: where they are, and which frameworks they can see."""

    paths: tuple[str, ...]
    sees: set[str] = FRAMEWORKS
    environment: dict[str, str] = {}  # noqa: RUF012 - read only
    backend: str | None = None  # what pytest must not leave out


# In tests compiling takes longer than what is compiled then runs, so JAX optimises little.
COMPILE_LESS = {"JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}


def _keras(backend: str) -> Part:
    environment = {"KERAS_BACKEND": backend}
    paths = ("src/quantal/keras", "src/quantal/tensorflow", "tests/with_keras")
    return Part(paths, {"keras", backend}, environment, "keras")


# The longest first. What a part does not see might as well not be installed (tests/hide), so one
# installation proves what seven would.
PARTS = {
    "examples": Part(
        ("examples", "tests/examples", "benchmarks", "tests/benchmarks"), backend="examples"
    ),
    "models": Part(("tests/models",), backend="models"),
    "jax": Part(
        ("src/quantal/jax", "tests/with_jax"), {"jax", "flax", "equinox", "haiku"}, {}, "jax"
    ),
    "torch": Part(("src/quantal/torch", "tests/with_torch"), {"torch"}, {}, "torch"),
    "keras-tensorflow": _keras("tensorflow"),
    "keras-jax": _keras("jax"),
    "keras-torch": _keras("torch"),
    "core": Part(("src", "tests/core", "tests/conformance"), set()),
    "together": Part(("tests/together", "tests/core/test_package.py"), backend="together"),
}

CONFORM = (
    "drop-probability", "kept-values", "determinism", "broadcast-dims", "p-granularity",
    "backward-same-draw", "dtype-kept", "eval-identity", "calls-differ", "seeds-independent",
)  # fmt: skip

# Several processes test at once: each works with one thread, rather than wait for a core.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "TF_NUM_INTRAOP_THREADS": "1",
    "TF_NUM_INTEROP_THREADS": "1",
    "TORCHINDUCTOR_COMPILE_THREADS": "1",  # more would start processes that import torch again
    # Some virtual machines announce AMX and stop at its first instruction (bfloat16 in torch).
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
}


def install(session: nox.Session, *groups: str, files: tuple[str, ...] = ()) -> None:
    """Install the project with some dependency groups, in the versions that are tested."""
    packages = [*nox.project.dependency_groups(PROJECT, *groups)]
    packages += [word for file in files for word in ("-r", file)]
    # Compiling every module of a framework takes longer than the tests that need a few of them.
    session.install("-c", "constraints.txt", "--no-compile", "-e", ".", *packages)


@nox.session
def lint(session: nox.Session) -> None:
    """Check style and format with ruff."""
    session.install("-c", "constraints.txt", *nox.project.dependency_groups(PROJECT, "lint"))
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")


@nox.session
def types(session: nox.Session) -> None:
    """Check types with mypy, strictly, against the frameworks' own types."""
    install(session, "types")
    session.run("mypy")


@nox.session
def tests(session: nox.Session) -> None:
    """Test everything, or some parts: nox -s tests -- torch jax, or nox -s tests -- FILE."""
    examples = ("examples/requirements.txt",)
    install(session, "test", "frameworks", "ray", "models", files=examples)
    # Their own requirements would bring another torch, and much else.
    apart = nox.project.dependency_groups(PROJECT, "models-apart")
    session.install("-c", "constraints.txt", "--no-deps", "--no-compile", *apart)
    if session.posargs and not set(session.posargs) <= {*PARTS, "conform"}:
        session.run("pytest", *session.posargs, env=ONE_THREAD)
        return
    failed = []  # known only at the end, so that one run tells of all
    for name in session.posargs or [*PARTS, "conform"]:
        try:
            if name == "conform":
                _conform(session)
            else:
                _run_part(session, PARTS[name])
        except nox.command.CommandFailed:
            failed.append(name)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def _conform(session: nox.Session) -> None:
    # All checks take minutes where a framework compiles each shape; a release runs them all.
    only = [word for check in CONFORM for word in ("--only", check)]
    session.run("quantal", "conform", "--installed", "--jobs", "2", "--quick", *only)


@nox.session(default=False)
def oldest(session: nox.Session) -> None:
    """Test the lowest versions that pyproject.toml declares: nox -s oldest, or -- torch.

    PyTorch's old wheels bring gigabytes for GPUs, so its part is done only if it is asked for.
    """
    for name in session.posargs or ("core", "jax", "keras-tensorflow"):
        part = PARTS[name]
        optional = PROJECT["project"]["optional-dependencies"]
        # A framework's own lowest versions may ask for a newer NumPy than the core does.
        declared = [line for extra in sorted(part.sees) for line in optional[extra]]
        declared = declared or PROJECT["project"]["dependencies"] + optional["plot"]
        lowest = [line.replace(">=", "==") for line in declared if not line.startswith("quantal[")]
        # The same TensorFlow, without what it needs for GPUs.
        lowest = [line.replace("tensorflow==", "tensorflow-cpu==") for line in lowest]
        tools = nox.project.dependency_groups(PROJECT, "test")
        # JAX needs flatbuffers to write what it exports, and does not ask for it.
        session.install("--no-compile", "-e", ".", *lowest, *tools, "flatbuffers")
        # What old versions find deprecated in each other is not ours to mend.
        _run_part(session, part, "-W", "ignore::DeprecationWarning")


def _run_part(session: nox.Session, part: Part, *options: str) -> None:
    hide = {"HIDE_PACKAGES": " ".join(FRAMEWORKS - part.sees), "PYTHONPATH": HIDE}
    asked = ("--backend", part.backend) if part.backend else ()
    session.run(
        "pytest", "-n", "2", "--dist", "worksteal", *options, *asked, *part.paths,
        env=ONE_THREAD | COMPILE_LESS | hide | part.environment,
    )  # fmt: skip


@nox.session
def gpu(session: nox.Session) -> None:
    """Test the kernels for GPUs without one: interpreted, and as machine code."""
    install(session, "test", "gpu")
    paths = session.posargs or ("src/quantal/torch", "tests/gpu")
    # A file stays with one process, so that kernels are compiled once.
    session.run(
        "pytest", "-n", "2", "--dist", "loadscope", "--backend", "gpu", *paths, env=ONE_THREAD
    )


@nox.session(default=False)
def docs(session: nox.Session) -> None:
    """Build the site, and test it in a real browser (Debian: chromium and chromium-driver)."""
    install(session, "test", "docs")
    # Warnings are errors. The tutorials are run, and shown with what they print and draw.
    build = ("-W", "--keep-going", "-d", "docs/_build/trees", "docs", "docs/_build/site")
    session.run("python", "-m", "sphinx", *build, env=ONE_THREAD)
    session.run("pytest", "--backend", "docs", *(session.posargs or ("tests/docs",)))


@nox.session(default=False)
def soak(session: nox.Session) -> None:
    """Judge right implementations again and again with fresh seeds: nox -s soak -- --runs 300."""
    install(session)
    arguments = session.posargs or ("numpy", "numpy-key", "--runs", "300")
    session.run("python", "-m", "benchmarks.soak", *arguments)


@nox.session(default=False, allow_parallel=False)
def bench(session: nox.Session) -> None:
    """Measure, alone on the machine, and make the page: nox -s bench, or nox -s bench -- torch."""
    install(session, "frameworks", "bench")
    session.run("python", "-m", "benchmarks", "run", *session.posargs)
    if "--out" not in session.posargs:
        where = ("--from", "docs/benchmarks-gpu") if "gpu" in session.posargs else ()
        session.run("python", "-m", "benchmarks", "page", *where)
