"""The data sets, read from files in the real formats, and what is said of bad ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from examples.data import load


@pytest.mark.parametrize("name", ["digits", "mnist", "cifar10", "ptb", "reviews"])
def test_every_set_is_read_from_a_folder_of_all(name: str, data_folder: Path) -> None:
    data = load(name, data_folder, seed=0)
    assert len(data.train.x) > len(data.test.x) > 0
