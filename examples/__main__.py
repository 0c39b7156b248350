"""The command line: ``python -m examples list | run | sweep | report | export | demo``."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields
from math import prod
from pathlib import Path
from typing import Any

from examples import lifeline
from examples.experiments import EXPERIMENTS, LAYERS, experiment
from examples.settings import BACKENDS, Settings
from quantal._errors import wrong_value


def main(arguments: Sequence[str] | None = None) -> int:
    """Do what the command line says; return the exit status."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        return int(given.do(given) or 0)
    except BrokenPipeError:  # the reader has seen enough: head, less
        sys.stderr.close()
        return 0
    except (ValueError, TypeError, RuntimeError, ImportError, OSError) as error:
        # A user's mistake is told in one line; what lies deeper shows where it happened.
        if given.debug:
            raise
        # Frameworks are looked for before they are imported: this is one of the examples' own.
        absent = isinstance(error, ModuleNotFoundError)
        line = ". Type: pip install -r examples/requirements.txt" if absent else ""
        print(f"error: {error}{line}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("stopped; the same command goes on from here", file=sys.stderr)
        return 130


def _list(given: argparse.Namespace) -> None:
    from examples.initial import shapes

    for one in EXPERIMENTS.values():
        count = sum(map(prod, shapes(one).values()))
        print(f"{one.name:<13} {one.title}")
        print(f"{'':<13} {count:,} parameters, {one.epochs} epochs of batches of {one.batch}")
        print(f"{'':<13} rate {one.rate:g}, alpha {one.alpha:g}; sites: {', '.join(one.sites)}")
        for name in one.variants:
            other = experiment(one.name, name)
            what = f"sites: {', '.join(other.sites)}; decay {other.optimiser.weight_decay:g}"
            print(f"{'':<13}   variant {name}: {what}")
        for found in one.findings:
            alpha = "" if found.alpha is None else f", alpha {found.alpha:g}"
            condition = f"{found.layer} at rate {found.rate:g}{alpha}"
            print(f"{'':<13}   paper: {condition}: test {found.measure} {found.value:g}")


def _run(given: argparse.Namespace) -> None:
    from examples.progress import watch
    from examples.run import train, train_together

    _at_least(0, given, "patience")
    many = [_settings(given, seed=seed) for seed in given.seed]
    options: dict[str, Any] = {"data": given.data, "patience": given.patience}
    if given.vmap_seeds:
        print(f"{len(many)} seeds at once; shown is the first", flush=True)
        train_together(many, given.out, watch=watch(), **options)
    else:
        for one in many:
            train(one, given.out, watch=watch(), **options)


def _sweep(given: argparse.Namespace) -> int:
    from examples import sweep

    _at_least(1, given, "seeds", "jobs", "threads")
    _at_least(0, given, "retries", "gpus", "cpus")
    if given.engine == "processes" and given.gpus % 1:
        raise wrong_value("gpus", "a whole number, of this machine", given.gpus)
    if given.vmap_seeds and given.backends != ["jax"]:
        raise wrong_value("vmap_seeds", "backend jax alone", " ".join(given.backends))
    seeds = range(given.seeds)
    runs: list[Settings] = []
    for name in given.experiments:
        for backend in given.backends:
            under = given.keras_backend if backend == "keras" else None
            start = _settings(given, experiment=name, backend=backend, keras_backend=under)
            if given.paper:
                runs += sweep.paper(start, seeds)
            else:
                runs += sweep.grid(
                    start, layers=given.layers, rates=given.rates, alphas=given.alphas, seeds=seeds
                )
    found = sweep.standing(runs, given.out)
    work = sweep.jobs(found.left, vmap_seeds=given.vmap_seeds)
    print(f"{len(runs)} runs, {len(found.done)} of them done; {len(work)} jobs", flush=True)
    for name, reason in found.refused.items():
        print(f"{name}\n  not begun: {reason}", flush=True)
    out = given.out.absolute()
    data = None if given.data is None else given.data.absolute()
    if given.engine == "ray":
        from examples.on_ray import on_a_cluster

        ended = on_a_cluster(
            work, out, data,
            address=given.address, cpus=given.cpus, gpus=given.gpus, retries=given.retries,
        )  # fmt: skip
    else:
        from examples.processes import on_this_machine

        ended = on_this_machine(
            work, out, data,
            at_once=given.jobs, threads=given.threads, gpus=int(given.gpus), retries=given.retries,
        )  # fmt: skip
    failed = len(found.refused)
    for number, (job, error) in enumerate(ended, 1):
        failed += bool(error)
        print(f"[{number}/{len(work)}] {job.name}", flush=True)
        if error:
            print(f"  failed: {error}", flush=True)
    return int(failed > 0)


def _report(given: argparse.Namespace) -> None:
    from examples.report import report, write_page

    print(report(given.runs, given.out))
    if given.page is not None:
        print(write_page(given.runs, given.page))


def _export(given: argparse.Namespace) -> int:
    from examples.export import export

    records = export(given.runs, given.out)
    size = sum(path.stat().st_size for path in given.out.rglob("*") if path.is_file())
    print(f"{len(records)} records; {given.out} has {size / 1e6:.1f} MB")
    for folder, reason in records.damaged.items():
        print(f"{folder}\n  left out: {reason}")
    return int(bool(records.damaged))


def _demo(given: argparse.Namespace) -> None:
    from examples.demo import demo

    _at_least(1, given, "seeds")
    demo(given.backend, given.out, seeds=given.seeds, epochs=given.epochs)


def _at_least(least: int, given: argparse.Namespace, *names: str) -> None:
    for name in names:
        value = getattr(given, name)
        if value is not None and not value >= least:
            raise wrong_value(name, f"at least {least}", value)


def _settings(given: argparse.Namespace, **changes: Any) -> Settings:
    names = [field.name for field in fields(Settings)]
    values = {name: getattr(given, name) for name in names if hasattr(given, name)}
    return Settings(**values | changes)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m examples", description=__doc__)
    parser.add_argument("--debug", action="store_true", help="show where an error came from")
    commands = parser.add_subparsers(required=True)

    def command(name: str, do: Any, text: str, *parents: Any) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=text, description=text, parents=parents)
        made.set_defaults(do=do)
        return made

    command("list", _list, "the experiments, and what the paper found")

    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--epochs", type=int, help="default: the paper's")
    common.add_argument("--limit", type=int, help="use only so many samples, or words of a text")
    common.add_argument("--precision", default="float32", help="float32, bfloat16 or float64")
    common.add_argument("--device", default="auto", help="auto, cpu or gpu")
    common.add_argument("--stream", default="native", help="native, or portable between backends")
    common.add_argument("--devices", type=int, default=1, help="how many share each batch")
    common.add_argument("--unit-mean", action="store_true", help="QSD with a mean of 1")
    shared = "one retain probability of a unit for all samples of a batch"
    common.add_argument("--shared-p", action="store_true", help=shared)
    common.add_argument("--variant", help="another reading of the experiment; see list")
    under = "tensorflow, jax or torch; default: KERAS_BACKEND, or tensorflow"
    common.add_argument("--keras-backend", help=under)
    common.add_argument("--data", type=Path, help="the folder of the data; default: download")
    common.add_argument("--out", type=Path, default=Path("runs"), help="the folder of all runs")
    together = "train all seeds of a condition at once (jax)"
    common.add_argument("--vmap-seeds", action="store_true", help=together)

    run = command("run", _run, "train a model, or go on with it", common)
    run.add_argument("experiment", help=", ".join(EXPERIMENTS))
    run.add_argument("--backend", default="torch", help=", ".join(BACKENDS))
    run.add_argument("--layer", default="qsd", help=", ".join(LAYERS))
    run.add_argument("--rate", type=float, help="default: the paper's")
    run.add_argument("--alpha", type=float, help="default: the paper's")
    run.add_argument("--seed", type=int, nargs="+", default=[0])
    patience = "seconds to wait for another process that is at work in the folder"
    run.add_argument("--patience", type=float, default=0, help=patience)

    grid = command("sweep", _sweep, "train a grid of conditions and seeds", common)
    grid.add_argument("experiments", nargs="+", help=", ".join(EXPERIMENTS))
    grid.add_argument("--backend", dest="backends", nargs="+", default=["torch"])
    grid.add_argument("--layer", dest="layers", nargs="+", default=["dropout", "qsd"])
    grid.add_argument("--rate", dest="rates", type=float, nargs="+", default=[None])
    grid.add_argument("--alpha", dest="alphas", type=float, nargs="+", default=[None])
    grid.add_argument("--seeds", type=int, default=8, help="how many, from 0 (default: 8)")
    grid.add_argument("--paper", action="store_true", help="all conditions of the paper's figures")
    grid.add_argument("--engine", default="processes", choices=["processes", "ray"])
    grid.add_argument("--jobs", type=int, default=1, help="processes at once")
    grid.add_argument("--threads", type=int, help="of each process; default: the cores, shared")
    grid.add_argument("--address", help="of the Ray cluster; default: one on this machine")
    grid.add_argument("--cpus", type=float, default=1, help="for each Ray task")
    help_gpus = "of this machine (processes), or for each task (ray)"
    grid.add_argument("--gpus", type=float, default=0, help=help_gpus)
    grid.add_argument("--retries", type=int, default=2, help="of a run that fails or is lost")

    made = command("report", _report, "tables and figures from a folder of runs")
    made.add_argument("runs", type=Path, nargs="?", default=Path("runs"))
    made.add_argument("--out", type=Path, default=Path("report"))
    made.add_argument("--page", type=Path, help="also write the page of results here")

    small = command("export", _export, "small records of runs, for the project")
    small.add_argument("runs", type=Path)
    small.add_argument("out", type=Path)

    show = command("demo", _demo, "dropout and QSD on scikit-learn's digits, in a minute")
    show.add_argument("--backend", help="default: the first of jax, torch, keras that is there")
    show.add_argument("--out", type=Path, default=Path("demo"))
    show.add_argument("--seeds", type=int, default=16)
    show.add_argument("--epochs", type=int)
    return parser


if __name__ == "__main__":
    lifeline.hold()
    sys.exit(main())
