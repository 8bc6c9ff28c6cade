"""A run over several machines: Ray nodes in network namespaces, one for each part; three are killed and replaced."""

import importlib.util
import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HEAD = "10.77.0.1"
PARTS = {"desktops": "ray::Hosted", "engine": "stand_ins.engine", "rank": "ray::RankActor"}
"""What a node may offer, and what is in the command of a process there that uses it."""
UPDATES_BETWEEN = 4
OVERRIDES = [
    'backend.desktops="mock"',
    'backend.workers="vllm"',
    'backend.learner="fsdp"',
    'trainer.fsdp.device="cpu"',
    "trainer.fsdp.ranks=2",
    f'ray.address="{HEAD}:6379"',
    'ray.engines_listen="node"',
    "ray.desktop_options={num_cpus=0, resources={desktops=1}}",
    "ray.engine_options={num_cpus=0, resources={engine=1}}",
    "ray.learner_options={num_cpus=0, resources={rank=1}}",
    "rollout.num_workers=2",
    "rollout.num_envs=4",
    "run.hours=0.2",
    "tasks.count=64",
    "tasks.held_out=8",
    "curation.batch.min_groups=2",
    "curation.batch.max_groups=2",
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_equal=false",
    "curation.groups.drop_solved=false",
]


def ip(*words, check=True):
    return subprocess.run(["ip", *words], check=check, capture_output=True, text=True).stdout


class Machines:
    """Network namespaces on a bridge; each may hold a Ray node. The first holds the head, and the run."""

    def __init__(self, prefix, temporary):
        self.prefix, self.temporary = prefix, temporary
        self.names = []
        self.bridge = self.add()
        ip("-n", self.bridge, "link", "add", "br0", "type", "bridge")
        ip("-n", self.bridge, "addr", "add", f"{HEAD}/24", "dev", "br0")
        ip("-n", self.bridge, "link", "set", "br0", "up")

    def add(self):
        name = f"{self.prefix}{len(self.names)}"
        ip("netns", "add", name)
        self.names.append(name)
        ip("-n", name, "link", "set", "lo", "up")
        return name

    def start_head(self):
        where = ["--head", "--port=6379", f"--temp-dir={self.temporary}", "--include-dashboard=false"]
        self._ray(self.bridge, HEAD, {}, *where)

    def add_node(self, **resources):
        name, number = self.add(), len(self.names)
        ip("link", "add", "eth0", "netns", name, "type", "veth", "peer", "name", f"v{number}", "netns", self.bridge)
        ip("-n", self.bridge, "link", "set", f"v{number}", "master", "br0", "up")
        ip("-n", name, "addr", "add", f"10.77.0.{number}/24", "dev", "eth0")
        ip("-n", name, "link", "set", "eth0", "up")
        self._ray(name, f"10.77.0.{number}", resources, f"--address={HEAD}:6379")
        return name

    def _ray(self, name, address, resources, *arguments):
        ray = [sys.executable, "-m", "ray.scripts.scripts", "start", f"--node-ip-address={address}", "--num-cpus=2"]
        ray += [f"--resources={json.dumps(resources)}", "--object-store-memory=100000000", *arguments]
        done = subprocess.run(["ip", "netns", "exec", name, *ray], capture_output=True, text=True, timeout=90)
        assert done.returncode == 0, done.stdout[-1500:] + done.stderr[-1500:]

    def kill(self, name):
        """End all processes of a machine at once."""
        while pids := self.pids(name):
            subprocess.run(["kill", "-9", *pids], check=False, capture_output=True)
            time.sleep(0.05)

    def pids(self, name):
        return ip("netns", "pids", name).split()

    def parts(self, *names):
        """Parts of the run that have processes on these machines."""
        found = set()
        for pid in (pid for name in names for pid in self.pids(name)):
            with suppress(OSError):
                command = Path(f"/proc/{pid}/cmdline").read_text()
                found |= {part for part, known in PARTS.items() if known in command}
        return found

    def idle(self, added):
        """Return whether one of these nodes, each added for a part, has no process of it."""
        return any(part not in self.parts(name) for part, name in added.items())

    def close(self):
        for name in self.names:
            self.kill(name)
            ip("netns", "del", name, check=False)


@pytest.fixture
def environment(monkeypatch):
    more = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": uuid.uuid4().hex}
    more |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    for name, value in more.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def machines(environment):
    if importlib.util.find_spec("ray") is None:
        pytest.skip("needs the extra `ray`")
    pytest.importorskip("torch")
    if os.geteuid() != 0 or shutil.which("ip") is None:
        pytest.skip("needs root and `ip` to make network namespaces")
    prefix = f"ds{os.getpid()}-"
    try:
        ip("netns", "add", f"{prefix}try")
        ip("netns", "del", f"{prefix}try")
    except subprocess.CalledProcessError as error:
        pytest.skip(f"no network namespaces: {error.stderr}")
    with tempfile.TemporaryDirectory(prefix="ds", dir="/tmp") as temporary:  # sockets: short paths
        made = Machines(prefix, temporary)
        try:
            yield made
        finally:
            made.close()


@pytest.mark.soak
def test_a_run_goes_on_when_machines_are_killed_and_added(machines, tmp_path):
    script = tmp_path / "python"
    script.write_text(f'#!/bin/sh\nshift 2\nexec {sys.executable} -m dartsim.real.stand_ins.engine "$@"\n')
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    machines.start_head()
    nodes = [(part, machines.add_node(**{part: 1})) for part in ("desktops", "engine", "engine", "rank", "rank")]
    program = f"import runpy; runpy.run_path({__file__!r})['drive']({str(script)!r}, {str(tmp_path)!r})"
    command = ["ip", "netns", "exec", machines.bridge, sys.executable, "-c", program]
    updates = tmp_path / "updates"
    with (tmp_path / "log").open("w") as log:
        run = subprocess.Popen(command, stdout=log, stderr=log)
        at, added = [], {}
        for part, victim in [*dict(nodes).items(), (None, None)]:  # the last node of each part
            wanted = count(updates) + UPDATES_BETWEEN
            while run.poll() is None and (count(updates) < wanted or machines.idle(added)):
                time.sleep(0.2)
            at.append(count(updates))
            if part is not None:
                machines.kill(victim)
                added[part] = machines.add_node(**{part: 1})
        run.send_signal(signal.SIGINT)
        status = run.wait(timeout=60)
    assert status == 0, (tmp_path / "log").read_text()[-3000:]
    found = json.loads((tmp_path / "found").read_text())
    print(json.dumps({"updates at each kill and at the end": at, **found}))
    counts = found["counts"]
    assert at == sorted(set(at))  # updates went on after each
    assert counts["updates"] >= at[-1]
    assert counts.get("ending/broken", 0) + counts.get("fault/start", 0) >= 1
    assert counts.get("ending/worker_fault", 0) == 0  # the other engine took the requests
    assert counts["attempts"] == counts["trajectories"] + found["running"]  # none is lost
    assert found["running"] <= 4
    deadline = time.monotonic() + 30
    while (leaked := machines.parts(*machines.names)) and time.monotonic() < deadline:
        time.sleep(0.2)
    assert not leaked


def count(path):
    return len(path.read_text().split()) if path.exists() else 0


def drive(script, folder):
    """In the namespace of the head: run, note updates, and write what was counted."""
    from dartsim.config import load
    from dartsim.observe import Listener
    from dartsim.real.ray_cluster.backend import session
    from dartsim.run.model import trained_model
    from dartsim.run.prepare import prepare
    from dartsim.run.run_prepared import run_prepared

    def note(record):
        with (Path(folder) / "updates").open("a") as out:
            out.write(f"{record.update}\n")

    overrides = [*OVERRIDES, f'vllm.python="{script}"']
    prepared = prepare(load("tiny", overrides=overrides))
    with session(prepared.config):
        result = run_prepared(prepared, learning=trained_model(prepared), instruments=[Listener(update_finished=note)])
    recorder = result.recorder
    (Path(folder) / "found").write_text(json.dumps({"counts": dict(recorder.counts), "running": recorder.running}))
