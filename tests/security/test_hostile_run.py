"""A run on real desktops with a hostile agent on every slot: correct scores, no changed host, nothing left behind.

In each group one attempt is honest. The others run an attack in their desktop, as code of the agent's.
"""

from __future__ import annotations

import asyncio
import gc
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from dartsim.core.errors import DartsimError
from dartsim.core.rng import Streams
from dartsim.core.types import Reply, Request, Task, Trajectory
from dartsim.observe import Listener, Recorder
from dartsim.sim.learner import VersionCounter
from dartsim.store.memory import MemoryStore

pytestmark = pytest.mark.docker

MARK = Path("/tmp/dartsim-red-team-was-here")
START = "import os, pathlib, signal, subprocess, sys; home = pathlib.Path.home(); answer = home / 'answer.txt'; "
HONEST = "answer.write_text('solved\\n'); (home / 'answers').mkdir(exist_ok=True); (home / 'answers/a.jpg').touch()"
HOSTILE = {
    "nothing": "pass",
    "a pattern's food": "answer.write_text('a' * 50 + '!')",
    "a pickle": f"answer.write_bytes(b\"cos\\nsystem\\n(S'touch {MARK}'\\ntR.\")",
    "a pipe": "os.mkfifo(answer)",
    "a link": "answer.symlink_to('/etc/passwd'); (home / 'answers').symlink_to('/etc')",
    "names": (
        "(home / 'answers').mkdir(); "
        "[(home / 'answers' / name).touch() for name in ('a\\n.jpg', '..a', '\\u202egpj', 'x' * 200, 'a.jpg')]"
    ),
    "many levels": "os.chdir(home); [(os.mkdir(n), os.chdir(n)) for n in ['answers'] + ['d'] * 600]",
    "a file that changes": (
        "subprocess.Popen([sys.executable, '-c', \"import pathlib\\np = pathlib.Path.home() / 'answer.txt'\\n"
        "while True: p.write_bytes(b'solve' * 2**16); p.write_bytes(b'')\"], start_new_session=True)"
    ),
    "no text": "answer.write_bytes(b'\\xff\\x00' * 1000)",
    "a large file": "answer.write_bytes(b'solve' * 2**25)",
    "no server": "os.kill(os.getppid(), signal.SIGKILL)",
}
EVALUATORS: list[dict[str, Any]] = [
    {
        "func": "check_list",
        "result": {"type": "vm_file", "path": "/home/user/answer.txt", "dest": "answer.txt"},
        "expected": {"type": "rule", "rules": {"expect": ["^solved|^(a+)+b$"]}},
    },
    {
        "func": "check_include_exclude",
        "result": {"type": "vm_command_line", "command": "cat ~/answer.txt", "shell": True},
        "expected": {"type": "rule", "rules": {"include": ["solved"], "exclude": []}},
    },
    {
        "func": "check_moved_jpgs",
        "result": {"type": "list_directory", "path": "/home/user/answers"},
        "expected": {"type": "rule", "rules": {"expected": ["a.jpg"]}},
    },
]


class Agent:
    """The first attempt of a group solves the task, each other one tries the next attack."""

    def __init__(self) -> None:
        self.attacks: dict[int, str] = {}
        """By the attempt's id."""

    async def generate(self, request: Request) -> Reply:
        attempt = request.attempt
        if attempt.index == 0:
            return Reply(START + HONEST, 0, 0, 0, 0, 0)
        attack = list(HOSTILE)[len(self.attacks) % len(HOSTILE)]
        self.attacks[attempt.id] = attack
        return Reply(START + HOSTILE[attack], 0, 0, 0, 0, 0)

    async def load(self, *arguments: Any) -> None:
        """Stay the same."""


def tasks() -> list[Task]:
    found = []
    for number, evaluator in enumerate(EVALUATORS):
        spec = {"id": f"hostile-{number}", "instruction": "Solve it.", "config": [], "evaluator": evaluator}
        found.append(Task(spec["id"], "Solve it.", "security", spec))
    return found


def run_as_written(episode: Any, code: str) -> list[str]:
    """Stand in for ``Episode.note``: run the agent's code itself, as if the desktop's grammar were harmful."""
    episode.turns += 1
    guarded = f"try: exec({code!r})\nexcept BaseException: pass"
    return [f"exec({guarded!r})"]


def host_files() -> dict[str, float]:
    """Return the times of files that an escape could have changed."""
    folders = (Path(__file__).parents[2] / "real", Path.home(), Path("/etc"))
    found = {str(path): path.lstat().st_mtime for folder in folders for path in folder.glob("*") if path.is_file()}
    return {**found, "core_pattern": hash(Path("/proc/sys/kernel/core_pattern").read_text())}


async def run(num_envs: int, num_attempts: int, image: str, folder: Path) -> tuple[list[Trajectory], Agent]:
    from dartsim.config import load
    from dartsim.config.schema import DesktopConfig, DockerHostConfig
    from dartsim.real.containers import DesktopFleet, DockerHost
    from dartsim.real.desktop import desktop_spec
    from dartsim.real.osworld.connect import DesktopOptions
    from dartsim.real.osworld.fetch import Downloads
    from dartsim.real.osworld.provider import DesktopProvider
    from dartsim.real.osworld.ready import Readiness
    from dartsim.real.osworld.scorer import Scorer
    from dartsim.real.osworld.settings import DesktopSettings
    from dartsim.real.osworld.transport import OWN_SERVER, Timeouts
    from dartsim.real.scoring.container import open_pool
    from dartsim.real.scoring.sandbox import ScoreLimits
    from dartsim.run.system import System

    overrides = (
        *('backend.workers="sim"', 'backend.learner="sim"', f"rollout.num_envs={num_envs}", "rollout.warm_envs=0"),
        *("rollout.max_turns=1", 'curation.turn_limit.rule="fixed"', 'curation.attempts.rule="fixed"'),
        *("curation.attempts.group_size=4", "curation.batch.min_groups=1", "curation.pool.enabled=false"),
        "curation.staleness.max_staleness=1000",
    )
    config = load("desktop", overrides=overrides)
    screen = (320, 240)
    ended: list[Trajectory] = []
    enough = asyncio.Event()

    def attempt_ended(trajectory: Trajectory) -> None:
        ended.append(trajectory)
        if len(ended) >= num_attempts:
            enough.set()

    agent = Agent()
    limits = ScoreLimits(metric_seconds=20.0, cpu_seconds=1, scratch_mib=256)
    recorder = Recorder(asyncio.get_running_loop().time, num_envs=num_envs, num_engines=config.rollout.num_workers)
    recorder.instruments.append(Listener(attempt_ended=attempt_ended))
    host = DockerHost(DockerHostConfig(max_desktops=num_envs))
    async with DesktopFleet([host]) as fleet, open_pool(None, size=2, limits=limits) as pool:
        options = DesktopOptions(
            settings=DesktopSettings(
                grammar="pyautogui", screen=screen, booted=Readiness(quiet_seconds=0.0), settle=0.0
            ),
            server=OWN_SERVER,
            downloads=Downloads(folder),
            scorer=Scorer(pool),
            timeouts=Timeouts(file=5.0, execute=30.0),
        )
        spec = desktop_spec(DesktopConfig(width=screen[0], height=screen[1], image=image))
        system = System(
            config,
            tasks=tasks(),
            provider=DesktopProvider(fleet, spec, options),
            engines=[agent] * config.rollout.num_workers,
            learner=VersionCounter(),
            store=MemoryStore(),
            recorder=recorder,
            streams=Streams(0),
            transport=lambda pool: pool,
        )
        running = asyncio.create_task(system.run(3600.0))
        waiting = asyncio.create_task(enough.wait())
        await asyncio.wait({running, waiting}, return_when=asyncio.FIRST_COMPLETED)
        for task in (running, waiting):
            task.cancel()
        await asyncio.wait({running, waiting})
        if not running.cancelled():
            await running
    return ended, agent


@pytest.mark.slow
def test_a_hostile_agent_on_every_slot_changes_no_score_and_no_file(tmp_path, monkeypatch):
    pytest.importorskip("docker")
    from dartsim.config.schema import DockerHostConfig
    from dartsim.real.containers.engine import connect
    from dartsim.real.desktop import build, missing_packages

    try:
        client = connect(DockerHostConfig())
    except DartsimError as error:
        pytest.skip(f"no Docker engine: {error}")
    if missing := missing_packages():
        pytest.skip(f"packages of a skeleton desktop are missing: {', '.join(missing)}")
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr("dartsim.real.osworld.pyautogui_code.Episode.note", run_as_written)
    (tmp_path / "downloads").mkdir()
    before, children, containers = host_files(), set(_children()), _containers(client)
    image = asyncio.run(build("skeleton"))
    ended, agent = asyncio.run(run(2, 18, image, tmp_path / "downloads"))

    gc.collect()
    rewards = Counter((agent.attacks.get(each.attempt.id, "honest"), each.reward) for each in ended)
    assert {reward for attack, reward in rewards if attack != "honest"} <= {0.0, None}, rewards
    # An honest attempt may meet a desktop that another one broke: it is masked then, never scored 0.
    assert {reward for attack, reward in rewards if attack == "honest"} <= {1.0, None}, rewards
    assert rewards["honest", 1.0], rewards
    honest = [each for each in ended if each.attempt.id not in agent.attacks]
    assert not [each.cause for each in honest if each.cause and "evaluate" in each.cause], "a score waited too long"
    assert rewards["nothing", 0.0]
    assert host_files() == before
    assert not MARK.exists()
    assert [path.name for path in tmp_path.iterdir()] == ["downloads"]
    assert _containers(client) <= containers
    assert set(_children()) <= children


def _containers(client: Any) -> set[str]:
    """Return the containers of this process; a fixture of other tests may hold some."""
    from dartsim.real.containers.owner import OWNER

    listed = client.containers.list(all=True, ignore_removed=True)
    return {container.id for container in listed if f":{os.getpid()}:" in container.labels.get(OWNER, "")}


def _children() -> list[str]:
    return Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
