"""One run: what a backend's training loop asks for, and what it leaves in its folder.

A run that was stopped or killed goes on from its last checkpoint; `folder` has the files.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from io import BytesIO
from math import exp, nan, sqrt
from pathlib import Path
from typing import Any

import numpy as np
from filelock import FileLock, Timeout
from numpy.typing import NDArray

import quantal
from examples import folder as folders
from examples.backends import require_backend
from examples.data import Batch, Data, batches, load, steps
from examples.data.batches import evaluation
from examples.files import append, checksums, refuse_links, remove, write_whole
from examples.memory import keep_freed_memory
from examples.progress import Watch
from examples.settings import Settings
from quantal._errors import wrong_value
from quantal.keys import Key

__all__ = ["Run", "train", "train_together"]

_PACKAGES = ("numpy", "scipy", "torch", "tensorflow", "tensorflow-cpu", "keras", "jax", "flax")


def train(settings: Settings, out: Path, **options: Any) -> dict[str, Any]:
    """Run to the end, from where it stands, and return the result; arguments as of `Run`."""
    run = Run(settings, out, rank=_rank(settings.backend), **options)
    if (result := run.result) is not None:
        run.watch.again(run, result)
        return result
    loop = _loop(settings, "train")
    with run:
        loop.train(run)
    assert run.result is not None
    return run.result


def train_together(
    many: Sequence[Settings], out: Path, watch: Watch | None = None, **options: Any
) -> list[dict[str, Any]]:
    """Train the seeds of one condition at once, by vmap; ``watch`` is told of the first."""
    backend = many[0].backend
    if backend != "jax":
        raise wrong_value("vmap_seeds", "backend jax", backend)
    runs = [Run(settings, out, **options) for settings in many]
    going = [run for run in runs if run.result is None]
    watch = watch or Watch()
    for run in runs:
        if (result := run.result) is not None:
            watch.again(run, result)
    if going:
        going[0].watch = watch
        loop = _loop(many[0], "seeds")
        with ExitStack() as stack:
            for run in going:
                run.together = len(going)
                stack.enter_context(run)
            loop.train_seeds(going)
    return [run.result or {} for run in runs]


def _loop(settings: Settings, name: str) -> Any:
    """Return a module of a backend; what is missing is told of before any data are loaded."""
    require_backend(settings)
    keep_freed_memory()
    if settings.keras_backend is not None:
        os.environ["KERAS_BACKEND"] = settings.keras_backend  # read once, when Keras is loaded
    loop = importlib.import_module(f"examples.with_{settings.backend}.{name}")
    loop.check(settings)
    return loop


def _rank(backend: str) -> int:
    """Return the number that torchrun gave to this process, 0 without it."""
    rank, size = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None:
        return 0
    if backend != "torch":
        raise wrong_value("RANK", f"not to be set, since backend {backend} knows no torchrun", rank)
    if size is None:
        raise wrong_value("RANK", "not to be set without torchrun, which sets WORLD_SIZE too", rank)
    if not (rank.isdecimal() and size.isdecimal() and int(rank) < int(size)):
        raise wrong_value("RANK", f"a number below WORLD_SIZE, which is {size!r}", rank)
    return int(rank)


class Run:
    """A run in its folder.

    A training loop starts at ``first_epoch``, after loading ``checkpoint`` if that is not None;
    in each epoch it seeds the masks (`stream_seed`, or `keys` counted from ``epoch * steps``),
    sets `learning_rate`, takes `batches`, tells `step`, evaluates each of ``parts`` and calls
    `record`; at the end it calls `finish`.

    Parameters
    ----------
    settings : Settings
        What to run.
    out : path
        The folder of all runs; this one is in ``settings.name`` below it.
    data : path, optional
        The folder of the data.
    watch : Watch, optional
        Who is told of the progress.
    patience : float
        Seconds to wait for another process that is at work in the folder, before it is an error.
    rank : int
        The number of this process among several that share the run: only 0 writes and tells; what
        the others call does nothing.

    Attributes
    ----------
    together : int
        How many seeds are trained at once, in the same time.
    """

    def __init__(
        self,
        settings: Settings,
        out: Path,
        *,
        data: Path | None = None,
        watch: Watch | None = None,
        patience: float = 0.0,
        rank: int = 0,
    ) -> None:
        self.rank = rank
        self.settings = settings
        self.experiment = settings.plan
        self.epochs = int(settings.epochs or 0)
        self.watch = Watch() if watch is None or rank else watch
        self.folder = out / settings.name
        self._where = data
        self._data: Data | None = None
        self._out = out
        self._patience = patience
        self._lock: FileLock | None = None
        self._made: list[Path] = []
        self._since = 0.0
        self.together = 1
        if rank == 0:
            folders.refuse_other_settings(self.folder, settings)

    # --- what a loop reads -----------------------------------------------------------------------

    @property
    def data(self) -> Data:
        """The data, loaded when first needed."""
        if self._data is None:
            whole = load(self.experiment.data, self._where, seed=self.settings.seed)
            self._data = whole.limited(self.settings.limit)
        return self._data

    @property
    def steps(self) -> int:
        """Training steps in an epoch."""
        return steps(self.experiment, self.data)

    @property
    def parts(self) -> list[str]:
        """The names of what is evaluated."""
        return list(self.data.parts)

    @property
    def keys(self) -> list[Key]:
        """A portable key for each site; call n of a layer folds in n."""
        key = quantal.key(self.settings.seed)
        return [key.fold_in(site) for site in range(len(self.experiment.sites))]

    def stream_seed(self, epoch: int) -> int:
        """Return the seed of the framework's own stream in an epoch; each rank has its own."""
        words = [self.settings.seed, 3, epoch, self.rank]
        return int(np.random.SeedSequence(words).generate_state(1)[0] >> 1)

    def learning_rate(self, epoch: int) -> float:
        """Return the learning rate of an epoch."""
        return self.experiment.optimiser.rate * self.experiment.schedule(epoch)

    def batches(self, epoch: int) -> Iterator[Batch]:
        """Yield the training batches of an epoch."""
        return batches(self.experiment, self.data, self.settings.seed, epoch)

    def evaluation(self, part: str) -> Iterator[Batch]:
        """Yield the batches of a part of the data."""
        return evaluation(self.experiment, self.data, part)

    @property
    def checkpoint(self) -> Path | None:
        """The latest state, None at the start."""
        return folders.checkpoints(self.folder).get(self.first_epoch)

    @property
    def first_epoch(self) -> int:
        """The epoch to go on with."""
        return max(folders.checkpoints(self.folder), default=0)

    @property
    def result(self) -> dict[str, Any] | None:
        """The end of the run, None if it has not come."""
        return folders.read_result(self.folder, self.epochs)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One dictionary for each recorded epoch."""
        return folders.read_metrics(self.folder)

    # --- what a loop tells -----------------------------------------------------------------------

    def step(self, epoch: int, step: int, cost: Any) -> None:
        """Tell of a training step; ``cost`` stays on its device unless someone looks at it."""
        self.watch.step(epoch, step, cost)

    def record(
        self,
        epoch: int,
        train_cost: float,
        evaluated: dict[str, tuple[float, float]],
        save: Callable[[Path], None],
    ) -> None:
        """End an epoch: its metrics, then the state, each whole or not at all.

        Parameters
        ----------
        epoch : int
            The one that has ended, from 0.
        train_cost : float
            The mean cost of its steps, masks on.
        evaluated : dict
            For each of ``parts`` the mean cost and the share of wrong answers; NaN without classes.
        save : function
            Writes the state of model, optimiser and the like to a path, a file or a folder.
        """
        if self.rank:
            return
        line: dict[str, Any] = {"epoch": epoch, "learning_rate": self.learning_rate(epoch)}
        line |= {f"train_{name}": value for name, value in self._measures(train_cost, nan).items()}
        for part, (cost, wrong) in evaluated.items():
            line |= {f"{part}_{name}": v for name, v in self._measures(cost, wrong).items()}
        now = time.monotonic()
        spent = {"epoch": epoch, "seconds": round(now - self._since, 3), "together": self.together}
        self._since = now
        append(self.folder / "times.jsonl", json.dumps(spent), wait=False)
        append(self.folder / "metrics.jsonl", json.dumps(line))
        new = self.folder / f"checkpoint-{epoch + 1}"
        half = self.folder / "half-written"
        remove(half)
        save(half)
        written = new.with_name(new.name + ".sha256")
        write_whole(written, checksums(half, new.name))
        half.rename(new)
        for path in self.folder.glob("checkpoint-*"):
            if path not in (new, written):
                remove(path)
        self.watch.epoch(line)

    def finish(
        self,
        site_outputs: Callable[[Iterable[NDArray], bool], Iterable[list[NDArray]]],
        weights: dict[str, NDArray],
    ) -> None:
        """End the run: sparse-encoding measurements, and the result.

        Parameters
        ----------
        site_outputs : function
            As `sparse.measure` takes it.
        weights : dict
            The trained weights, named and laid out as in `initial`.
        """
        if self.rank:
            return
        from examples.sparse import measure

        arrays: dict[str, Any] = measure(self, site_outputs, weights)
        packed = BytesIO()
        np.savez(packed, **arrays)
        write_whole(self.folder / "sparse.npz", packed.getvalue())
        lines = self.metrics
        result = json.dumps({"epochs": len(lines), "score": folders.score(lines)}, indent=2)
        write_whole(self.folder / "result.json", result + "\n")
        self.watch.done(self.result or {})

    def _measures(self, cost: float, wrong: float) -> dict[str, float]:
        kind = self.experiment.error
        if kind == "perplexity":
            return {"cost": cost, "perplexity": exp(min(cost, 700))}
        if kind == "rmse":
            return {"cost": cost, "error": sqrt(cost) * self.data.scale}
        return {"cost": cost} if wrong != wrong else {"cost": cost, "error": wrong}

    # --- the folder ------------------------------------------------------------------------------

    def __enter__(self) -> Run:
        if self.rank:
            return self
        _ = self.data  # what is missing is told of before anything is written
        refuse_links(self.folder, self._out)
        parts = (self.folder, *self.folder.parents)
        self._made = [part for part in parts if not part.exists()]
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = FileLock(self.folder / "lock", timeout=self._patience, thread_local=False)
        try:
            self._lock.acquire(poll_interval=0.5)
        except (Timeout, RuntimeError):  # the latter, if it is this very process
            raise RuntimeError(f"another process is at work in {self.folder}") from None
        try:
            self._begin()
        except BaseException:  # `with` does not leave what was not entered
            self._leave(failed=True)
            raise
        return self

    def _begin(self) -> None:
        # Another process may have begun another run here, before it left the lock to this one.
        folders.refuse_other_settings(self.folder, self.settings)
        if self.checkpoint is not None:
            folders.checked_checkpoint(self.checkpoint)
        # An epoch whose state was not saved is run again.
        kept = self.metrics[: self.first_epoch]
        if len(kept) < self.first_epoch:
            path = self.folder / "metrics.jsonl"
            raise folders.DamagedError(path, f"{self.first_epoch} epochs or more", len(kept))
        self.settings.write(self.folder / "config.json")
        write_whole(self.folder / "versions.json", json.dumps(_versions(), indent=2) + "\n")
        # Epochs that are run again take their time again.
        times = folders.read_times(self.folder)
        for name, lines in (("metrics.jsonl", kept), ("times.jsonl", times)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            write_whole(self.folder / name, text)
        self._since = time.monotonic()
        self.watch.start(self)

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self.rank == 0:
            self._leave(failed=kind is not None)

    def _leave(self, *, failed: bool) -> None:
        self.watch.leave()
        assert self._lock is not None
        # A start that failed leaves no folder behind.
        gone = failed and self.folder in self._made and not folders.has_metrics(self.folder)
        if gone:
            for path in self.folder.iterdir():
                if path.name != "lock":
                    remove(path)
        self._lock.release()
        if gone:
            with suppress(OSError):  # something else is in there by now
                (self.folder / "lock").unlink()
                for part in self._made:
                    part.rmdir()


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "platform": platform.platform()}
    found["quantal"] = quantal.__version__
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
