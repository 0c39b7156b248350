"""A sweep on this machine: one process a job; a run that fails goes on from its checkpoint."""

from __future__ import annotations

import os
import subprocess
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from examples import lifeline
from examples.files import open_to_append, refuse_links
from examples.sweep import ROOT, Job, Outcome

__all__ = ["on_this_machine"]


def on_this_machine(
    work: Sequence[Job],
    out: Path,
    data: Path | None,
    *,
    at_once: int,
    threads: int | None = None,
    gpus: int = 0,
    retries: int = 1,
) -> Iterator[Outcome]:
    """Do the jobs in processes of their own, and yield each as it ends.

    On Linux, each has cores of its own, where there are enough for all. Each writes what it says to
    a file ``.log`` beside its folder, and ends with this process. ``threads`` are those of one
    process; None shares out the cores. With ``gpus``, each process sees one of them.
    """
    free: SimpleQueue[int] = SimpleQueue()
    for number in range(at_once):
        free.put(number)
    threads = threads or max(1, (os.cpu_count() or 1) // at_once)
    cores = [] if gpus else _cores(at_once, threads)
    going = _Going()

    def do(job: Job) -> Outcome:
        place = free.get()
        try:
            if cores:
                # Of this thread, and so of the process that it starts. JAX asks no variable how
                # many threads it may have: it takes one for each core that it sees.
                os.sched_setaffinity(0, cores[place])
            environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
            if gpus:
                environment["CUDA_VISIBLE_DEVICES"] = str(place % gpus)
            return job, _attempt(job, out, data, environment, retries, going)
        finally:
            free.put(place)

    pool = ThreadPoolExecutor(at_once)
    try:
        for ended in as_completed([pool.submit(do, job) for job in work]):
            yield ended.result()
    finally:  # also of Ctrl-C: nothing goes on, and nothing begins
        pool.shutdown(wait=False, cancel_futures=True)
        going.end()
        pool.shutdown()


def _cores(processes: int, threads: int) -> list[set[int]]:
    """Return the cores of each process; nothing where they do not suffice, or cannot be given."""
    if not hasattr(os, "sched_setaffinity"):
        return []
    found = sorted(os.sched_getaffinity(0))
    if len(found) < processes * threads:
        return []
    return [set(found[n * threads : (n + 1) * threads]) for n in range(processes)]


class _Going:
    """The processes that are at work; after the end there are none, and no new ones."""

    def __init__(self) -> None:
        self._processes: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self.ended = False

    def do(self, *arguments: Any) -> int:
        """Start a process, arguments as of `lifeline.start`, and return its exit status."""
        with self._lock:
            if self.ended:
                return 1
            process = lifeline.start(*arguments)
            self._processes.add(process)
        with process:  # its pipe is closed when it has ended
            status = process.wait()
        self._processes.discard(process)
        return status

    def end(self) -> None:
        with self._lock:
            self.ended = True
        for process in tuple(self._processes):
            lifeline.stop(process)


def _attempt(
    job: Job,
    out: Path,
    data: Path | None,
    environment: dict[str, str],
    retries: int,
    going: _Going,
) -> str:
    """Do a job, again if it fails, each time from its last checkpoint; return the last error."""
    folder = out / job.runs[0].name
    path = folder.with_name(folder.name + ".log")  # beside it: a failed start leaves no folder
    refuse_links(path, out)
    path.parent.mkdir(parents=True, exist_ok=True)
    error = ""
    for _ in range(retries + 1):
        if going.ended:
            return "stopped"
        with open_to_append(path) as log:
            status = going.do(job.command(out, data), ROOT, environment, log)
        if status == 0:
            return ""
        tail = path.read_text(errors="replace").strip().splitlines()[-1:]
        error = f"exit {status}: {' '.join(tail)} ({path})"
    return error
