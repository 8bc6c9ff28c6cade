"""What was read of a file is read again once another one is there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dartsim.real.engines.errors import WeightsTorn
from dartsim.real.engines.ledger import file_state, read_folder
from dartsim.real.engines.weights import file_transfer


def test_a_file_is_another_one_once_it_is_written_to_or_replaced(tmp_path: Path) -> None:
    file = tmp_path / "a"
    file.write_bytes(b"1")
    first = file_state(file)
    assert file_state(file) == first
    os.utime(file, ns=(0, first.changed_ns + 1))
    assert file_state(file) != first
    other = tmp_path / "b"
    other.write_bytes(b"1")
    os.utime(other, ns=(0, first.changed_ns))
    other.replace(file)
    assert file_state(file) != first, "as old and as long, and another one"
    with pytest.raises(FileNotFoundError):
        file_state(tmp_path / "nothing")


def test_checksums_sent_to_engines_are_of_the_file_that_is_there(tmp_path: Path) -> None:
    file, info = tmp_path / "a.safetensors", file_transfer(tmp_path).update_info
    file.write_bytes(b"1")
    first = info(tmp_path)["sha256"]
    (tmp_path / "b").write_bytes(b"2")
    (tmp_path / "b").replace(file)
    assert info(tmp_path)["sha256"] != first


def test_a_folder_whose_file_goes_away_is_torn(tmp_path: Path) -> None:
    (tmp_path / "a.safetensors").symlink_to(tmp_path / "nothing")
    with pytest.raises(WeightsTorn, match="not a whole safetensors file"):
        read_folder(tmp_path)
