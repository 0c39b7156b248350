"""One run: what a backend's training loop asks for, and the folder that it writes.

``config.json`` and ``versions.json`` are written at the start, ``metrics.jsonl`` and (seconds)
``times.jsonl`` get a line an epoch, ``checkpoint-N`` is the state after N epochs, ``sparse.npz``
holds the sparse-encoding measurements and ``result.json`` ends the run. A run that was killed goes
on from its checkpoint.
"""

from __future__ import annotations

import fcntl
import importlib
import importlib.metadata
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from math import exp, nan, sqrt
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

import quantal
from examples.data import Batch, Data, batches, load, steps
from examples.data.batches import evaluation
from examples.progress import Watch
from examples.settings import Settings, write_whole
from quantal.checks import wrong_value
from quantal.keys import Key

__all__ = ["Run", "train", "train_together"]

LAST = 3  # a run's score is the mean of so many last evaluations
_PACKAGES = ("numpy", "scipy", "torch", "tensorflow", "tensorflow-cpu", "keras", "jax", "flax")


def train(settings: Settings, out: Path, **options: Any) -> dict[str, Any]:
    """Run to the end, from where it stands, and return the result; arguments as of `Run`."""
    # torchrun numbers the processes that it starts.
    run = Run(settings, out, rank=int(os.environ.get("RANK", 0)), **options)
    if run.result is None:
        with run:
            importlib.import_module(f"examples.with_{settings.backend}.train").train(run)
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
    if going and watch is not None:
        going[0].watch = watch
    with ExitStack() as stack:
        for run in going:
            stack.enter_context(run)
        if going:
            importlib.import_module("examples.with_jax.seeds").train_seeds(going)
    return [run.result or {} for run in runs]


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
        self._patience = patience
        self._lock: IO[str] | None = None
        self._since = time.monotonic()
        if rank == 0:
            self._refuse_other_settings()

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
        found = sorted(self.folder.glob("checkpoint-*"), key=lambda path: _number(path))
        return found[-1] if found else None

    @property
    def first_epoch(self) -> int:
        """The epoch to go on with."""
        return 0 if self.checkpoint is None else _number(self.checkpoint)

    @property
    def result(self) -> dict[str, Any] | None:
        """The end of the run, None if it has not come."""
        path = self.folder / "result.json"
        return json.loads(path.read_text()) if path.exists() else None

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One dictionary for each recorded epoch."""
        path = self.folder / "metrics.jsonl"
        if not path.exists():
            return []
        # A process killed while it wrote leaves a last line without an end.
        return [json.loads(line) for line in path.read_text().split("\n")[:-1]]

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
        with (self.folder / "metrics.jsonl").open("a") as file:
            file.write(json.dumps(line) + "\n")
            file.flush()
            os.fsync(file.fileno())
        now = time.monotonic()
        with (self.folder / "times.jsonl").open("a") as file:
            file.write(json.dumps({"epoch": epoch, "seconds": round(now - self._since, 3)}) + "\n")
        self._since = now
        new = self.folder / f"checkpoint-{epoch + 1}"
        half = self.folder / "half-written"
        _remove(half)
        save(half)
        half.rename(new)
        for path in self.folder.glob("checkpoint-*"):
            if path != new:
                _remove(path)
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
        np.savez(self.folder / "sparse.npz", **arrays)
        lines = self.metrics
        scores = {
            name: float(np.mean([line[name] for line in lines[-LAST:]]))
            for name in lines[-1]
            if name not in ("epoch", "learning_rate")
        }
        result = json.dumps({"epochs": len(lines), "score": scores}, indent=2)
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
        self.folder.mkdir(parents=True, exist_ok=True)
        self._lock = (self.folder / "lock").open("w")
        until = time.monotonic() + self._patience
        while True:
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= until:
                    self._lock.close()
                    raise RuntimeError(f"another process is at work in {self.folder}") from None
                time.sleep(0.5)
        try:
            self._begin()
        except BaseException:  # `with` does not leave what was not entered
            self._lock.close()
            raise
        return self

    def _begin(self) -> None:
        self.settings.write(self.folder / "config.json")
        versions = json.dumps(_versions(), indent=2)
        write_whole(self.folder / "versions.json", versions + "\n")
        # An epoch whose state was not saved is run again.
        kept = [json.dumps(line) for line in self.metrics if line["epoch"] < self.first_epoch]
        write_whole(self.folder / "metrics.jsonl", "".join(line + "\n" for line in kept))
        self._since = time.monotonic()
        self.watch.start(self)

    def __exit__(self, *_: object) -> None:
        if self._lock is not None:
            self._lock.close()

    def _refuse_other_settings(self) -> None:
        path = self.folder / "config.json"
        if not path.exists():
            return
        old, new = Settings.read(path), self.settings
        # Rate and alpha are in the folder's name, but rounded.
        for name in ("rate", "alpha", "epochs", "limit", "precision", "stream"):
            if getattr(old, name) != getattr(new, name):
                raise ValueError(
                    f"{self.folder} holds a run with {name}={getattr(old, name)!r}, not "
                    f"{getattr(new, name)!r}: give another --out, or remove that folder"
                )


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.removeprefix("checkpoint-"))


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _versions() -> dict[str, str]:
    found = {"python": sys.version.split()[0], "platform": platform.platform()}
    found["quantal"] = quantal.__version__
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found
