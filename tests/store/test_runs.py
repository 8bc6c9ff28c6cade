"""Whole runs in each of the databases: crashed, resumed, and nothing of a password is written."""

import pytest

from dartsim.config import from_tree, merge, preset
from dartsim.core.errors import ConfigError
from dartsim.observe import ticker
from dartsim.run.execute import execute
from dartsim.run.resume import resume
from dartsim.store.sql import SqlStore
from dartsim.store.tables import TRAJECTORIES
from experiments.crashes import SMALL


@pytest.fixture(params=["sqlite", "postgres"])
def where(request):
    return "sqlite" if request.param == "sqlite" else request.getfixturevalue("postgres").url


def test_a_run_goes_on_in_each_database(where, tmp_path, monkeypatch):
    tables = {"curation": {"store": where}, "run": {"hours": 0.5}, "storage": {"durability": "each"}}
    config = from_tree(merge(merge(preset("dart"), SMALL), tables))
    folder = tmp_path / f"run-{abs(hash(where)) % 10**8}"
    seen = []

    def crash(now):
        if now > 600.0 and not seen:
            seen.append(now)
            raise RuntimeError("crashed here")

    with pytest.raises(RuntimeError, match="crashed here"):
        execute(config, folder, [ticker(crash, 1.0)])
    with pytest.raises(ConfigError, match="did not come to its end"):
        execute(config, folder)
    if where != "sqlite":  # a run of the same name elsewhere would get the same schema
        with pytest.raises(ConfigError, match="already keeps a run of the name"):
            execute(config, tmp_path / "elsewhere" / folder.name)
    stores = []
    opened = SqlStore.recover
    monkeypatch.setattr(SqlStore, "recover", lambda store: stores.append(store) or opened(store))
    run, _ = resume(folder)
    assert run.summary["total_updates"] > 0
    assert 0.15 < run.summary["lives"][0]["from_hours"] < 0.18
    with stores[0].engine.connect() as connection:
        rows = connection.execute(TRAJECTORIES.select()).all()
    stores[0].engine.dispose()
    assert {row.state for row in rows} == {"trained", "dropped"}
    assert len(rows) == run.summary["attempts"]
    assert sorted(row.attempt for row in rows) == list(range(len(rows)))


def test_a_run_whose_schema_has_another_name_is_refused(postgres, tmp_path):
    tables = {"curation": {"store": postgres.url}, "run": {"hours": 0.1}}
    execute(from_tree(merge(merge(preset("dart"), SMALL), tables)), tmp_path / "named-before")
    moved = (tmp_path / "named-before").rename(tmp_path / "named-after")
    before = {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()}
    with pytest.raises(ConfigError, match=r"its schema in the database holds nothing of it: .*nothing was changed"):
        resume(moved, ["run.hours=0.2"])
    assert {path: path.read_bytes() for path in moved.rglob("*") if path.is_file()} == before
    again = moved.rename(tmp_path / "named-before")
    assert resume(again, ["run.hours=0.2"])[0].summary["simulated_hours"] >= 0.2
