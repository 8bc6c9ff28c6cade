"""What a whole process goes through: its own end by SIGKILL, and that of the engine."""

import asyncio
import contextlib
import json
import os
import shutil
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

    def __init__(self, *arguments, before=()):
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        command = [*before, sys.executable, LIFE, *arguments]
        self.errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed by `guarded`
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, env=environment
        )
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

    def end(self):
        """Let it end in order; return its last words."""
        self.process.stdin.close()
        self.until(lambda told: "counts" in told[-1])
        assert self.process.wait(60) == 0
        return self.told[-1]["counts"]

    @contextlib.contextmanager
    def guard(self):
        # It would live for ten minutes.
        timer = threading.Timer(400, self.process.kill)
        timer.start()
        try:
            yield self
        finally:
            timer.cancel()
            self.process.kill()
            self.process.wait()
            for pipe in (self.process.stdin, self.process.stdout, self.errors):
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

    with Life(desktop_image, "--folder", str(tmp_path)).guard() as life:
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


class PrivateEngine:
    """An engine to be stopped and started again, in a network of its own: its bridge must not meet another's."""

    def __init__(self, folder):
        self.folder = folder
        self.url = f"unix://{folder}/docker.sock"
        # A network lives as long as a process in it.
        self.holder = subprocess.Popen(
            ["unshare", "--net", "sh", "-c", "ip link set lo up; echo up; exec sleep 3600"], stdout=subprocess.PIPE
        )
        assert self.holder.stdout.readline() == b"up\n"
        self.inside = ("nsenter", f"--net=/proc/{self.holder.pid}/ns/net")
        self.process = None

    def start(self):
        places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
        quiet = ("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false", "--ip=127.0.0.1")
        options = (*quiet, *(f"--{name}={self.folder / place}" for name, place in places.items()))
        # It leaves its data folder mounted.
        command = [*self.inside, "unshare", "--mount", "dockerd", "-H", self.url, *options]
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)

    def stop(self):
        if self.process is not None:
            self.process.terminate()
            self.process.wait(60)
            self.process = None

    def close(self):
        self.stop()
        self.holder.kill()
        self.holder.wait()
        self.holder.stdout.close()


@pytest.fixture
def private_engine(docker_engine):
    if any(shutil.which(name) is None for name in ("dockerd", "unshare", "nsenter", "ip")) or os.geteuid() != 0:
        pytest.skip("no dockerd, unshare, nsenter and ip to start one with, or not root")
    # A short path: that of a Unix socket has 107 characters at most.
    with (
        tempfile.TemporaryDirectory(prefix="dockerd-") as folder,
        contextlib.closing(PrivateEngine(Path(folder))) as engine,
    ):
        engine.start()
        yield engine


async def answers(url):
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.containers import DockerHost
    from dartsim.real.containers.errors import ContainerStartFailed

    async with asyncio.timeout(60):
        while True:
            async with DockerHost(DockerHostConfig(url=url)) as host:
                with contextlib.suppress(ContainerStartFailed):
                    return (await host.info()).containers
            await asyncio.sleep(0.1)


@pytest.mark.soak
def test_an_engine_that_restarts_costs_the_attempts_under_way(private_engine, rig):
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.desktop import build

    asyncio.run(answers(private_engine.url))
    image = asyncio.run(build("skeleton", DockerHostConfig(url=private_engine.url)))
    with Life(image, "--url", private_engine.url, before=private_engine.inside).guard() as life:
        life.until(lambda told: {line["slot"] for line in scored(told)} == {0, 1})
        private_engine.stop()
        life.until(lambda told: told[-1]["reward"] is None)
        private_engine.start()
        before = len(life.told)
        life.until(lambda told: {line["slot"] for line in scored(told[before:])} == {0, 1})
        counts = life.end()
    causes = {line["cause"] for line in life.told if "cause" in line and line["reward"] is None}
    assert causes <= {
        "vm_refused",
        "vm_lost",
        "vm_hung",
        "action_uncertain",
        "EnvStartFailed",
        "run ended",
        "action_failed",
    }
    assert causes - {"run ended"}
    assert counts.get("start_cause/engine_missing", 0) >= 1
    assert asyncio.run(answers(private_engine.url)) == 0
