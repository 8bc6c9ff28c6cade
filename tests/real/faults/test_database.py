"""A database that is stopped, for good or for a while, under a run: said at once, waited for, and nothing is lost."""

import signal
import threading
from pathlib import Path

import pytest

from dartsim.config import from_tree, merge, preset
from dartsim.core.errors import StoreFault
from dartsim.observe import ticker
from dartsim.run.execute import execute
from dartsim.run.resume import resume
from dartsim.run.watch import STATUS
from dartsim.store.database import open_url, schema_name
from dartsim.store.tables import BATCH_MEMBERS, BATCHES, TRAJECTORIES
from experiments.crashes import SMALL

pytestmark = pytest.mark.soak


STORE_TESTS = Path(__file__).resolve().parents[2] / "curation" / "sql" / "conftest.py"


@pytest.fixture(scope="module")
def server(module_of):
    """A server of these tests' own, started as those of the store's tests, which share theirs."""
    made = module_of(STORE_TESTS)
    binaries = made.postgres_binaries()
    if binaries is None:
        pytest.skip("no initdb on this machine: install the distribution's package postgresql")
    pytest.importorskip("psycopg", reason="needs the extra `postgres`")
    server = made.Server(binaries)
    yield server
    server.stop()


def small(server):
    tables = {"curation": {"store": server.url}, "run": {"hours": 0.5}, "storage": {"durability": "each"}}
    return from_tree(merge(merge(preset("dart"), SMALL), tables))


def rows(server, folder, *tables):
    engine = open_url(server.url, schema=schema_name(folder.name))
    with engine.connect() as connection:
        found = [connection.execute(table.select()).all() for table in tables]
    engine.dispose()
    return found


def once(after, act):
    """Act when the run has come so far, once."""
    acted = []

    def advance(now):
        if now > after and not acted:
            acted.append(now)
            act()

    return advance


def test_a_database_that_is_stopped_ends_the_run_which_goes_on_from_its_last_transaction(server, tmp_path):
    folder, ended = tmp_path / "stopped", []

    def stop():
        server.crash()
        ended.append(True)

    with pytest.raises(StoreFault, match="did not take a transaction"):
        execute(small(server), folder, [ticker(once(600.0, stop), 1.0)])
    assert ended
    assert '"state":"failed"' in (folder / STATUS).read_text()
    with pytest.raises(StoreFault):
        resume(folder)  # it is still away
    server.start()
    (before,) = rows(server, folder, TRAJECTORIES)
    assert before, "something was stored"
    run, _ = resume(folder)
    after, batches, members = rows(server, folder, TRAJECTORIES, BATCHES, BATCH_MEMBERS)
    assert {row.attempt for row in before} <= {row.attempt for row in after}
    assert {row.state for row in after} == {"trained", "dropped"}
    assert len(after) == run.summary["attempts"]
    trained = {batch.batch for batch in batches if batch.state == "trained"}
    uses = [member.attempt for member in members if member.batch in trained]
    assert len(uses) == len(set(uses)) == sum(row.state == "trained" for row in after)
    assert 0.15 < run.summary["lives"][0]["from_hours"] < 0.18


def test_everything_waits_for_a_database_that_is_paused_and_then_goes_on(server, tmp_path):
    """In virtual time nothing of it is seen: the run is the same to the last event."""
    paused, timers = [], []

    def pause():
        paused.append(server.signal_all(signal.SIGSTOP))
        timers.append(threading.Timer(1.5, server.signal_all, [signal.SIGCONT]))
        timers[0].start()

    _, plain = execute(small(server), tmp_path / "plain", [ticker(once(600.0, list), 1.0)])
    run, result = execute(small(server), tmp_path / "paused", [ticker(once(600.0, pause), 1.0)])
    timers[0].join()
    assert paused[0] > 1, "those who serve the run were stopped"
    assert run.summary["total_updates"] > 0
    assert result.event_hash == plain.event_hash
