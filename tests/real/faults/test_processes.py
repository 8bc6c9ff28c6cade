"""What a whole process goes through: its own end by SIGKILL."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

pytestmark = pytest.mark.docker

LIFE = Path(__file__).with_name("life.py")
ROOT = Path(__file__).resolve().parents[3]


class Life:
    """A process that runs a cluster, and what it tells."""

    def __init__(self, *arguments):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [sys.executable, LIFE, *arguments]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `guarded`
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=self.errors, env=environment)
        self.told = []

    def until(self, enough):
        """Listen until ``enough`` of what was told."""
        while not enough(self.told):
            line = self.process.stdout.readline()
            if not line:
                self.process.wait(60)
                self.errors.seek(0)
                pytest.fail(self.errors.read().decode()[-4000:])
            self.told.append(json.loads(line))

    @contextlib.contextmanager
    def guarded(self):
        # It would live for ten minutes.
        timer = threading.Timer(400, self.process.kill)
        timer.start()
        try:
            yield self
        finally:
            timer.cancel()
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdout, self.errors):
                pipe.close()


def scored(told):
    return [line for line in told if line.get("reward") is not None]


def test_a_process_killed_in_the_middle_leaves_its_records_and_its_containers_are_reaped(
    desktop_image, rig, left, tmp_path
):
    from dartsim.real.containers import DesktopFleet, DockerHost
    from dartsim.store.blobs import BlobStore
    from dartsim.store.database import reading
    from dartsim.store.load import load_trajectories

    with Life(desktop_image, str(tmp_path)).guarded() as life:
        life.until(lambda told: len(scored(told)) >= 2)
        life.process.kill()
    owner = life.told[0]["owner"]
    assert left(owner) >= 1

    async def next_start():
        async with DesktopFleet([DockerHost(run="next")]) as fleet:
            return fleet.num_held

    assert asyncio.run(next_start()) == 0
    assert left(owner) == 0

    with reading(tmp_path / "run.db") as database:
        stored = {n: row for n, *row in database.execute("SELECT attempt, reward, cause FROM trajectories")}
        screens = BlobStore(tmp_path / "screens")
        kept = list(load_trajectories(database, blobs=screens, on_torn=lambda torn: None))
    for line in life.told:
        reward, cause = stored[line["attempt"]]
        assert (reward, cause and json.loads(cause)) == (line["reward"], line["cause"])
    assert kept
    for trajectory in kept:
        if not trajectory.masked:
            assert trajectory.reward == rig.worth(trajectory.attempt)
            assert trajectory.turns[-1].observation.screenshot.shape == (rig.SIDE, rig.SIDE, 3)
