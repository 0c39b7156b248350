"""The command line, in process and as installed."""

import subprocess
import sys

import pytest

import quantal
from quantal import Dilution
from quantal._cli import main


def test_describe_prints_the_law(capsys):
    assert main(["describe", "--rate", "0.2", "--alpha", "0.2"]) == 0
    printed = capsys.readouterr().out
    law = Dilution(0.2, 0.2)
    assert printed.startswith("Dilution(rate=0.2, alpha=0.2)\n")
    for number in (law.beta, law.rate, law.mean, law.std, law.ceiling, float(law.ppf(0.25))):
        assert f"{number:.6g}" in printed


@pytest.mark.parametrize("alpha", ["0.2", "1", "inf"])
@pytest.mark.parametrize("extra", [[], ["--vary", "q"], ["--vary", "p"], ["--unit-mean"]])
@pytest.mark.parametrize("rate", ["0", "0.2", "1"])
def test_describe_draws_a_picture_of_every_law(capsys, tmp_path, rate, alpha, extra):
    pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
    picture = tmp_path / "law.png"
    command = ["describe", "--rate", rate, "--alpha", alpha, "--plot", str(picture), *extra]
    assert main(command) == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert "written" in capsys.readouterr().out


def test_a_picture_without_a_kind_is_a_png(capsys, tmp_path):
    pytest.importorskip("matplotlib", reason="drawing needs matplotlib")
    assert main(["describe", "--rate", "0.5", "--alpha", "1", "--plot", str(tmp_path / "law")]) == 0
    assert capsys.readouterr().out.endswith(f"written: {tmp_path / 'law.png'}\n")
    assert (tmp_path / "law.png").is_file()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--rate", "1.2", "--alpha", "1"],
            "rate: expected a number in [0, 1]. Received: rate=1.2",
        ),
        (["--rate", "0.2", "--alpha", "-1"], "alpha: expected a number above 0"),
        (
            ["--rate", "0.2"],
            "alpha: expected a number above 0, or inf for standard dropout; it has",
        ),
        (["--rate", "0.2", "--alpha", "1", "--vary", "z"], "vary: expected"),
        (["--rate", "0.2", "--alpha", "1", "--plot", "no/such/folder/a.png"], "no/such/folder"),
    ],
)
def test_bad_arguments_give_one_line_and_exit_code_2(capsys, arguments, words):
    assert main(["describe", *arguments]) == 2
    error = capsys.readouterr().err
    assert error.startswith("quantal describe: ")
    assert words in error
    assert error.count("\n") == 1


def test_it_runs_as_a_module():
    command = [sys.executable, "-m", "quantal", "describe", "--rate", "0.5", "--alpha", "1"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "mean of c             1.33333" in done.stdout


def test_the_version(capsys):
    with pytest.raises(SystemExit, match="0"):
        main(["--version"])
    assert capsys.readouterr().out == f"quantal {quantal.__version__}\n"
