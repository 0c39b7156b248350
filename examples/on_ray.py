"""A sweep on a Ray cluster: one task a job; a lost worker's job goes on elsewhere."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from examples.run import train, train_together
from examples.sweep import PATIENCE, ROOT, Job, Outcome
from quantal._errors import require

__all__ = ["on_a_cluster"]

# What need not go to the other machines.
_AT_HOME = ["/.[a-z]*", "/runs", "/tests", "/docs", "/benchmarks", "__pycache__"]


def on_a_cluster(
    work: Sequence[Job],
    out: Path,
    data: Path | None,
    *,
    address: str | None,
    cpus: float = 1,
    gpus: float = 0,
    retries: int = 1,
) -> Iterator[Outcome]:
    """Do the jobs as tasks of Ray, and yield each as it ends.

    Parameters
    ----------
    work : sequence of Job
        What to do.
    out, data : path
        On storage that all machines share: a task that is retried on another machine goes on from
        the checkpoint that it finds there.
    address : str or None
        The cluster's; None starts one on this machine, which no other can reach.
    cpus, gpus : float
        What each task is given.
    retries : int
        How often a task is started again, after an error or the loss of its worker.
    """
    if address is None:
        # All of its servers listen on the loopback address then, as on Windows and macOS; on Linux
        # there is no argument for it (Ray 2.60). Since 2.59 a local cluster asks for a token, too.
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    require("ray", command="pip install 'ray>=2.59'")
    import ray

    code = {"working_dir": str(ROOT), "excludes": _AT_HOME, "env_vars": {"PYTHONPATH": "src"}}
    ray.init(address=address or "local", runtime_env=code, log_to_driver=False)
    # A worker does one task only: what it holds of a GPU is free again when it ends.
    task = ray.remote(
        num_cpus=cpus, num_gpus=gpus, max_retries=retries, retry_exceptions=True, max_calls=1
    )(_do)
    try:
        waiting = {task.remote(job, out, data): job for job in work}
        while waiting:
            [ended], _ = ray.wait(list(waiting))
            job = waiting.pop(ended)
            try:
                ray.get(ended)
                yield job, ""
            except ray.exceptions.RayError as error:
                yield job, f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
    finally:
        ray.shutdown()


def _do(job: Job, out: Path, data: Path | None) -> None:
    if len(job.runs) > 1:
        train_together(job.runs, out, data=data, patience=PATIENCE)
    else:
        train(job.runs[0], out, data=data, patience=PATIENCE)
