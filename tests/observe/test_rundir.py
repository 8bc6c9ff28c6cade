"""A run's directory."""

from __future__ import annotations

import math

import pytest

from dartsim.core.errors import ConfigError
from dartsim.observe.rundir import read_run, write_run, write_text


def test_a_run_is_read_back_as_it_was_written(make_run, tmp_path):
    written = make_run(tmp_path / "run", seed=5, hours=1.0)
    run = read_run(tmp_path / "run")
    assert (run.name, run.summary) == (written.name, written.summary)
    assert run.summary["seed"] == 5


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"\xa0\xff", "is not JSON"), (b"{}", "holds no "), (b"[", "is not JSON"), (b"[]", "holds no ")],
)
def test_a_damaged_file_is_named(make_run, tmp_path, content, said):
    make_run(tmp_path, hours=0.2)
    (tmp_path / "summary.json").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"summary.json {said}"):
        read_run(tmp_path)


def test_a_folder_that_is_no_run_is_refused(make_run, tmp_path):
    for folder in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(ConfigError, match=folder.name):
            read_run(folder)
    make_run(tmp_path, hours=0.2)
    (tmp_path / "config.toml").unlink()
    with pytest.raises(ConfigError, match=r"config\.toml"):
        read_run(tmp_path)


def test_a_failed_write_leaves_the_old_file(tmp_path):
    path = tmp_path / "file"
    write_text(path, "old")
    with pytest.raises(UnicodeEncodeError):
        write_text(path, "new \ud800")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_figure_that_is_not_a_number_is_refused(tmp_path):
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_run(tmp_path, config_toml="", summary={"env_utilization": math.nan}, meta={})
    assert not (tmp_path / "summary.json").exists()


def test_a_run_whose_writing_broke_off_has_not_finished(tmp_path):
    """A run with a summary is refused by ``resume``: everything else must be there."""
    (tmp_path / "config.toml").mkdir()  # nothing can be renamed onto a folder
    with pytest.raises(OSError, match="directory"):
        write_run(tmp_path, config_toml="", summary={}, meta={})
    assert not (tmp_path / "summary.json").exists()
