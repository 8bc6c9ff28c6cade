"""Databases for the tests of the SQL store: a SQLite file, and a PostgreSQL server that the tests start themselves."""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import pytest

from dartsim.core.types import Attempt, Batch, Ending, Group, Observation, Reply, Task, Trajectory, Turn
from dartsim.store.database import open_sqlite, open_url
from dartsim.store.sql import SqlStore

TASK = Task("check", "Save the document.", "libreoffice", {"id": "check", "config": [{"type": "launch", "n": 1.5}]})


@pytest.fixture(scope="session")
def made():
    return sys.modules[__name__]


def attempt(number, *, group=None, task=TASK):
    return Attempt(
        number, task, number if group is None else group, 2, seed=2**63 - 1 - number, turn_limit=30, version=3
    )


def screen(number, height=6, width=8):
    return np.random.default_rng(number).integers(0, 256, (height, width, 3), dtype=np.uint8)


def full_turn(number, *, task=TASK):
    """A turn in which everything is there."""
    rng = np.random.default_rng(number)
    length = int(rng.integers(0, 5))
    tokens = rng.integers(0, 150_000, length)
    logprobs, entropies = (rng.normal(size=length).astype(np.float32) for _ in range(2))
    reply = Reply(f"click {number} – ж", 5, 4, 2, 900 + number, length, tokens, logprobs, entropies)
    return Turn(Observation(screen(number), task.instruction, f"<tree n='{number}'/>"), reply)


def ended(number, *, turns=None, reward=1.0, group=None, task=TASK, finished=None):
    """What an attempt left behind; without a reward it is masked."""
    if turns is None:
        turns = tuple(full_turn(number * 100 + place, task=task) for place in range(3))
    ending, cause = (Ending.BROKEN, "EnvBroken: gone") if reward is None else (Ending.DONE, None)
    at = 60.0 + number if finished is None else finished
    return Trajectory(attempt(number, group=group, task=task), tuple(turns), ending, reward, cause, at - 59.5, at)


def plain(number, **more):
    """What an attempt of a simulated model left behind: turns without tokens and pictures."""
    turn = Turn(Observation(None, TASK.instruction), Reply("WAIT", 3, 3, 0, 100, 10))
    return ended(number, turns=(turn,) * 2, **more)


def batch(trajectories, update=1):
    trajectories = tuple(trajectories)
    return Batch(update, update - 1, (Group(trajectories[0].attempt.group, TASK, trajectories, ready=99.0),))


def same(found, wanted):
    """Whether two trajectories are equal in everything, arrays included."""

    def flat(trajectory):
        turns = [
            (*turn.reply[:6], turn.observation.instruction, turn.observation.accessibility_tree)
            for turn in trajectory.turns
        ]
        rest = (trajectory.ending, trajectory.reward, trajectory.cause, trajectory.started, trajectory.finished)
        return trajectory.attempt, trajectory.attempt.task.spec, turns, rest

    def arrays(trajectory):
        for turn in trajectory.turns:
            yield from (turn.observation.screenshot, *turn.reply[6:])

    return flat(found) == flat(wanted) and all(
        (a is None) == (b is None) and (a is None or np.array_equal(a, b))
        for a, b in zip(arrays(found), arrays(wanted), strict=True)
    )


# ---- databases


class Server:
    """A PostgreSQL server of our own, on a loopback port, under a temporary folder."""

    def __init__(self, binaries: Path) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dartsim-postgres-"))
        self._user: str | None = None
        if os.geteuid() == 0:  # PostgreSQL refuses to run as root
            self._user = "postgres"
            record = pwd.getpwnam(self._user)
            os.chown(self.folder, record.pw_uid, record.pw_gid)
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        data, self._binaries = self.folder / "data", binaries
        self._run("initdb", "-D", data, "-U", "dartsim", "-A", "trust", "-E", "UTF8", "--no-sync", "--no-instructions")
        settings = {"listen_addresses": "127.0.0.1", "port": self.port, "unix_socket_directories": "", "fsync": "off"}
        self._command = [binaries / "postgres", "-D", data, *(f"--{name}={value}" for name, value in settings.items())]
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            self._command, user=self._user, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._wait()

    def crash(self) -> None:
        """End all of its processes at once, without a last word."""
        self._process.send_signal(signal.SIGQUIT)
        self._process.wait(30)

    def signal_all(self, number: int) -> int:
        """Send a signal to the server and to those of its processes that serve somebody; return how many there are."""
        pid = self._process.pid
        served = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
        for one in (pid, *map(int, served)):
            os.kill(one, number)
        return 1 + len(served)

    @property
    def url(self) -> str:
        return f"postgresql://dartsim@127.0.0.1:{self.port}/postgres"

    def stop(self) -> None:
        self._process.terminate()
        self._process.wait(30)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, program, *arguments):
        command = [self._binaries / program, *map(str, arguments)]
        subprocess.run(command, user=self._user, cwd=self.folder, check=True, capture_output=True)

    def _wait(self):
        import psycopg

        for _ in range(300):
            try:
                psycopg.connect(self.url, connect_timeout=2).close()
            except psycopg.OperationalError:
                assert self._process.poll() is None, "the server ended"
                time.sleep(0.1)
            else:
                return
        raise AssertionError("the server did not answer")


def postgres_binaries() -> Path | None:
    found = shutil.which("initdb")
    places = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((place for place in reversed(places) if (place / "initdb").exists()), None)


@pytest.fixture(scope="session")
def postgres():
    binaries = postgres_binaries()
    if binaries is None:
        pytest.skip("no initdb on this machine: install the distribution's package postgresql")
    pytest.importorskip("psycopg", reason="needs the extra `postgres`")
    server = Server(binaries)
    yield server
    server.stop()


class Place:
    """A database that can be opened again and again; every opening may be the successor of one that was killed."""

    def __init__(self, url: str | None, folder: Path, schema: str) -> None:
        self.url, self.folder, self.schema = url, folder, schema
        self._opened: list[object] = []

    def engine(self):
        engine = open_sqlite(self.folder / "run.db") if self.url is None else open_url(self.url, schema=self.schema)
        self._opened.append(engine)
        return engine

    def store(self, **options):
        return SqlStore(self.engine(), **options)

    def dispose(self):
        for engine in self._opened:
            engine.dispose()


@pytest.fixture(params=["sqlite", "postgres"])
def place(request, tmp_path):
    """A place for a store, in each of the databases."""
    url = None
    if request.param == "postgres":
        url = request.getfixturevalue("postgres").url
    place = Place(url, tmp_path, f"t{abs(hash(request.node.nodeid))}")
    yield place
    place.dispose()
