"""Small records: damaged runs are named and left out, and a report of the records is the runs' own."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from synthetic import grid, write

from examples import figures, sparse, summaries
from examples.__main__ import main
from examples.comparison import conditions
from examples.export import export
from examples.records import collect, under_way
from examples.report import report, write_page
from examples.settings import Settings

BASE = Settings("mnist-mlp", "jax", epochs=3)


def cut(path: Path, share: float = 0.5) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: int(share * len(content))])


def drop_line(path: Path) -> None:
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join([lines[0], *lines[2:]]))


def garble(path: Path) -> None:
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    for place in range(middle, middle + 300):  # more than a header, which may hide one byte
        content[place] ^= 0xFF
    path.write_bytes(content)


DAMAGES = {
    "config.json": cut,
    "metrics.jsonl": drop_line,
    "result.json": cut,
    "sparse.npz": garble,
}


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Runs of which each kind of file is damaged in one, and one that is whole."""
    runs = tmp_path_factory.mktemp("damaged")
    for seed, (name, damage) in enumerate(DAMAGES.items()):
        damage(write(BASE.but(seed=seed), runs).folder / name)
    write(BASE.but(seed=9), runs)
    return runs


def test_damaged_runs_are_left_out_and_named(damaged):
    found = collect(damaged)
    assert [run.settings.seed for run in found] == [9]
    assert [path.name for path in found.damaged] == ["seed-0", "seed-1", "seed-2", "seed-3"]
    for name, reason in zip(DAMAGES, found.damaged.values(), strict=True):
        assert re.match(rf".*/{re.escape(name)} is damaged: expected .+\. Found: ", reason)


def test_damaged_runs_are_counted_in_the_report_and_do_not_stop_it(damaged, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda records, out: ([], {}))
    text = report(damaged, tmp_path / "report").read_text()
    assert "1 runs: 1 finished, 0 of them diverged; 0 not finished and not counted" in text
    assert "4 damaged and left out" in text
    for seed in range(4):
        assert f"- damaged: `mnist-mlp/jax/qsd-0.2-0.2/seed-{seed}`: " in text
    assert "| jax | QSD α 0.2 | 0.2 | 1 |" in text


def test_nothing_but_damaged_runs_is_a_report_too(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda records, out: ([], {}))
    cut(write(BASE, tmp_path / "runs").folder / "config.json")
    assert "1 damaged" in report(tmp_path / "runs", tmp_path / "report").read_text()


def test_a_page_is_not_made_of_damaged_records(damaged, tmp_path):
    with pytest.raises(ValueError, match=r"config\.json is damaged"):
        write_page(damaged, tmp_path / "page.md")


def test_the_time_of_a_run_is_its_share_and_may_be_unknown(tmp_path):
    run = write(BASE, tmp_path)
    times = run.folder / "times.jsonl"
    lines = [f'{{"epoch": {epoch}, "seconds": 10.0, "together": 4}}\n' for epoch in range(3)]
    times.write_text("".join([*lines, lines[2]]))  # the last epoch was run twice
    assert collect(tmp_path)[0].seconds == 10.0
    times.write_text("".join(f'{{"epoch": {epoch}, "seconds": 10.0}}\n' for epoch in range(3)))
    assert collect(tmp_path)[0].seconds == 30.0
    times.write_text(lines[0])
    assert collect(tmp_path)[0].seconds is None
    times.unlink()
    assert collect(tmp_path)[0].seconds is None


@pytest.mark.parametrize(
    "line",
    ["[]", "{}", '{"epoch": []}', '{"epoch": 0, "seconds": null}', '{"epoch": 0, "seconds": NaN}',
     '{"epoch": 0, "seconds": 1, "together": 0}', '{"epoch": 0, "seconds": -1}', "[" * 100_000,
     '{"epoch": 0, "seconds": 1' + "0" * 400 + "}"],
)  # fmt: skip
def test_damaged_times_are_unknown_and_stop_no_report(line, tmp_path):
    (write(BASE, tmp_path).folder / "times.jsonl").write_text(f"{line}\n" * 3)
    assert collect(tmp_path)[0].seconds is None


def one_array(array):
    def replaced(path):
        np.savez(path, **{"masks-on/1/units": array})

    return replaced


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        *((name, lambda path: path.write_bytes(b"[" * 100_000 + b"\n")) for name in DAMAGES),
        *((name, lambda path: (path.unlink(), path.mkdir())) for name in DAMAGES),
        ("versions.json", lambda path: path.write_text("[]")),
        ("sparse.npz", lambda path: path.write_bytes(b"")),
        *(("sparse.npz", one_array(a)) for a in (np.ones(()), np.ones((2, 2)), np.array(["x"]))),
    ],
)
def test_damage_of_any_kind_stops_no_report(name, damage, tmp_path):
    write(BASE.but(seed=1), tmp_path)
    damage(write(BASE, tmp_path).folder / name)
    found = collect(tmp_path)
    assert [run.settings.seed for run in found] == [1]
    assert all(name in reason for reason in found.damaged.values())
    assert len(found.damaged) == 1


def test_a_byte_of_packed_measurements_that_is_wrong_stops_no_report(tmp_path):
    folder = write(BASE, tmp_path).folder
    summaries.write(summaries.load(folder), folder)
    (folder / "sparse.npz").unlink()
    whole = (folder / "summary.npz").read_bytes()
    for place in range(30, len(whole), len(whole) // 100):
        spoilt = bytearray(whole)
        spoilt[place] ^= 0xFF
        (folder / "summary.npz").write_bytes(spoilt)
        summaries._load.cache_clear()
        found = collect(tmp_path)
        assert len(found) + len(found.damaged) == 1


def test_unfinished_runs_are_compared_after_equally_many_epochs(tmp_path):
    long = Settings("ptb-medium", "jax")
    for layer, epochs in (("dropout", 5), ("qsd", 7)):
        write(long.but(layer=layer), tmp_path, epochs=epochs)
    write(Settings("reviews-gru", "jax", epochs=2), tmp_path)
    write(Settings("reviews-gru", "jax", "dropout", epochs=2), tmp_path, epochs=1)
    found = under_way(collect(tmp_path))
    assert [(run.settings.layer, run.settings.epochs) for run in found] == [
        ("dropout", 5),
        ("qsd", 5),
    ]
    for run in found:
        last = [line["test_perplexity"] for line in run.metrics[-3:]]
        assert len(run.metrics) == 5
        assert run.score["test_perplexity"] == pytest.approx(np.mean(last))
    assert len(conditions(found)) == 2


# --- export --------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Runs of several conditions, one of them under way."""
    runs = tmp_path_factory.mktemp("whole") / "runs"
    layers = [("none", None, None), ("dropout", 0.2, None), ("qsd", 0.2, 0.2), ("dist-p", 0.2, 0.2)]
    grid("mnist-mlp", layers, runs, backend="jax", epochs=20)
    write(BASE.but(epochs=20, shared_p=True), runs)
    for layer in ("dropout", "qsd"):
        write(Settings("ptb-medium", "torch", layer), runs, epochs=6)
    return runs


@pytest.fixture(scope="module")
def small(whole):
    out = whole.parent / "docs" / "results"
    assert main(["export", str(whole), str(out)]) == 0
    return out


def test_records_are_small_and_unchanged(whole, small):
    runs = {path.parent.relative_to(whole) for path in whole.rglob("config.json")}
    records = {path.parent.relative_to(small) for path in small.rglob("config.json")}
    assert runs == records
    copied = {"config.json", "versions.json", "metrics.jsonl", "times.jsonl", "result.json"}
    for name in runs:
        there = {path.name for path in (small / name).iterdir()}
        assert there <= copied | {"summary.npz"}
        assert ("result.json" in there) == ("summary.npz" in there) == ("ptb" not in str(name))
        for file in there - {"summary.npz"}:
            assert (small / name / file).read_bytes() == (whole / name / file).read_bytes()


def test_a_summary_has_quantiles_and_exact_spreads():
    rng = np.random.default_rng(0)
    measured = {
        "masks-on/1/samples": rng.normal(3, 2, 10_000).astype(np.float32),
        "masks-on/1/units": rng.normal(3, 2, 100).astype(np.float32),
        "masks-on/1/totals": np.array([1.0, 2.0, 3.0]),
    }
    found = summaries.reduce(measured)
    np.testing.assert_array_equal(found["masks-on/1/totals"], [1, 2, 3])
    np.testing.assert_allclose(found["masks-on/1/units"], measured["masks-on/1/units"], rtol=1e-3)
    samples = measured["masks-on/1/samples"].astype(float)
    np.testing.assert_allclose(
        found["masks-on/1/samples/spread"], [samples.mean(), samples.std()], rtol=1e-6
    )
    kept = found["masks-on/1/samples"]
    assert len(kept) == 256
    for share in (0.05, 0.25, 0.5, 0.75, 0.95):
        assert np.quantile(kept, share) == pytest.approx(np.quantile(samples, share), abs=0.05)


def test_the_summary_of_a_run_and_of_its_record_are_the_same(whole, small):
    name = BASE.name
    full, kept = summaries.load(whole / name), summaries.load(small / name)
    assert full.keys() == kept.keys()
    for key, values in full.items():
        np.testing.assert_array_equal(kept[key], values)
    assert sparse.load(whole / name).keys() < full.keys()


def test_a_report_of_the_records_is_that_of_the_runs(whole, small, tmp_path):
    """Tables and figures, to the byte."""
    for name, runs in (("runs", whole), ("records", small)):
        assert main(["report", str(runs), "--out", str(tmp_path / name)]) == 0
    made = sorted(path.relative_to(tmp_path / "runs") for path in (tmp_path / "runs").rglob("*.*"))
    assert {"report.md", "results.csv", "sparse.csv"} <= {path.name for path in made}
    assert any(path.name == "figure-3-jax-20-epochs.svg" for path in made)
    for path in made:
        assert (tmp_path / "records" / path).read_bytes() == (tmp_path / "runs" / path).read_bytes()


def test_damaged_runs_are_not_exported(damaged, tmp_path, capsys):
    assert main(["export", str(damaged), str(tmp_path / "out")]) == 1
    assert [path.parent.name for path in (tmp_path / "out").rglob("config.json")] == ["seed-9"]
    said = capsys.readouterr().out
    assert said.startswith("1 records; ")
    assert said.count("left out: ") == 4


def test_records_are_not_written_among_the_runs_nor_through_links(whole, tmp_path):
    with pytest.raises(ValueError, match="out: expected a folder that is not among the runs"):
        export(whole, whole / "small")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mnist-mlp").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(ValueError, match="mnist-mlp is a symbolic link"):
        export(whole, tmp_path / "out")
    assert not list((tmp_path / "elsewhere").iterdir())


# --- the page ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def page(small):
    path = small.parent / "results.md"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", lambda records, out, only: ([], {}))
        write_page(small, path)
    return path.read_text()


def test_the_page_has_a_section_for_every_experiment_and_a_row_for_every_claim(page):
    from examples.claims import CLAIMS
    from examples.experiments import EXPERIMENTS

    for name, plan in EXPERIMENTS.items():
        assert (f"## {plan.title} (`{name}`)" in page) == bool(plan.findings)
    for claim in CLAIMS:
        assert f"| {claim.text}" in page
    assert page.count("Not run.") == 5  # LeNet-5, the wide network, a language model, the reviews
    assert page.index("## What does not agree") < page.index("## Multilayer perceptron")


def test_the_page_says_what_was_run_and_how_long_it_took(page):
    assert "1. `python -m examples sweep mnist-mlp --backend jax --layer" in page
    assert "--rate 0.2 --alpha 0.2 --epochs 20 --seeds 3`" in page
    assert "20 of 100 epochs" in page
    assert "6 of 39 epochs" in page
    assert re.search(r"\| QSD α 0\.2, shared p \| test cost \(nats\) \| 1 \|", page)
    assert re.search(
        r"QSD α 0\.2, shared p: its test cost (is (below|above)|does not differ)", page
    )
    assert "nan" not in page
    assert "![figure-2-jax-20-epochs](results/figures/figure-2-jax-20-epochs.png)" in page


def test_a_page_is_made_the_same_way_twice(small, page, tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda records, out, only: ([], {}))
    path = small.parent / "results.md"
    path.unlink()
    assert write_page(small, path).read_text() == page
