"""The experiment on real desktops that boot or fork: what it counts, what it says, and its runs on real machines."""

from __future__ import annotations

from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("docker")
pytest.importorskip("httpx")

from dartsim.core.errors import EnvBroken
from dartsim.core.types import Attempt, Ending, Observation, Reply, StepResult, Trajectory, Turn
from dartsim.observe import Listener
from dartsim.real.desktop.tasks.panel import COLUMNS, panel_tasks
from dartsim.run.execute import execute
from experiments import fork
from experiments import fork_work as work
from experiments.fork import MODES, Mode
from experiments.fork_work import DesktopRun, ForkAttempts, forks_under_kills, shows_its_task, tallied

TASKS = panel_tasks(9)


def screen(task):
    """Draw a panel of one button, with the pointer in the middle."""
    pixels = np.full((112, 112, 3), 200, np.uint8)
    x, y = task.spec["targets"][0]
    side = 112 // COLUMNS
    pixels[y * side + 3 : (y + 1) * side - 3, x * side + 3 : (x + 1) * side - 3] = (220, 50, 50)
    pixels[56:66, 56:62] = 0
    return pixels


def trajectory(task, action, reward, shown):
    attempt = Attempt(0, task, group=0, index=0, seed=0, version=0, turn_limit=1)
    turn = Turn(Observation(screen(shown), task.instruction), Reply(action, 0, 0, 0, 1, 1))
    return Trajectory(attempt, (turn,), Ending.DONE, reward, None, 0.0, 1.0)


def test_a_screenshot_shows_one_task():
    for task in TASKS:
        assert [shows_its_task(task, screen(other)) for other in TASKS] == [
            other.spec["targets"] == task.spec["targets"] for other in TASKS
        ]


def test_wrong_scores_and_mixed_up_states_are_counted():
    task = TASKS[0]
    other = next(one for one in TASKS if one.spec["targets"] != task.spec["targets"])
    x, y = task.spec["targets"][0]
    right, beside = f"click {x} {y}", f"click {(x + 1) % COLUMNS} {y}"
    attempts = ForkAttempts()
    for action, reward, shown in ((right, 1.0, task), (beside, 0.0, task), (right, 0.0, task), (right, 1.0, other)):
        attempts.ended(trajectory(task, action, reward, shown))
    assert (attempts.number, attempts.wrong_scores, attempts.mixed_up) == (4, 1, 1)


@pytest.mark.parametrize("mode", MODES)
def test_runs_differ_in_their_mode_alone(mode):
    boot, own = (DesktopRun("vm", each, 4, 10.0).config for each in ("boot", mode))
    assert own.desktop.revert == mode
    assert own.replace(desktop={"revert": "boot"}) == boot


def test_containers_are_set_up_ahead():
    assert DesktopRun("container", "fork", 2, 1.0).config.rollout.warm_envs == 2


class Panels:
    """Desktops that draw their task and save their states; every third attempt loses its desktop."""

    host = "host"

    def __init__(self):
        self.snapshots, self.kept, self.task, self.clicked, self.attempts = self, {}, None, None, 0

    @asynccontextmanager
    async def opened(self, config, tasks):
        yield self

    async def start(self, slot):
        return self

    async def save(self, key):
        self.kept[key] = self.task
        return 1

    async def restore(self, key):
        self.task = self.kept[key]

    async def delete(self, key):
        self.kept.pop(key, None)

    async def reset(self, task, *, seed):
        self.task, self.clicked = self.task or task, None
        return Observation(screen(self.task), task.instruction)

    async def step(self, action):
        self.clicked = action
        return StepResult(Observation(None, ""), True)

    async def evaluate(self):
        self.attempts += 1
        if self.attempts % 3 == 0:
            raise EnvBroken("killed")
        x, y = self.task.spec["targets"][0]
        return float(self.clicked == f"click {x} {y}")

    async def close(self):
        self.task = None


def test_forks_are_played_until_there_are_enough(monkeypatch):
    monkeypatch.setattr(work, "open_desktops", lambda *given: Panels().opened(*given))
    monkeypatch.setattr(work, "engine", lambda: nullcontext())
    for name in ("own_containers", "own_volumes"):
        monkeypatch.setattr(work, name, lambda client: [])
    monkeypatch.setattr(work, "NUM_MACHINES", 1)
    found = forks_under_kills(12, lambda share: None)
    assert found["counts"]["forked"] == 12
    assert found["masked"]["EnvBroken"] > 0
    assert (found["attempts"] > 0, found["wrong_scores"], found["mixed_up"]) == (True, 0, 0)


def figures():
    def row(desktop, mode, number):
        gap = {"boot": 70.0, "snapshot": 12.0, "fork": 1.5}[mode]
        return {
            "desktop": desktop, "mode": mode, "num_desktops": number, "attempts": 9, "updates": 2,
            "gap_seconds": {"p50": gap, "p95": 2 * gap}, "steps_per_minute": 60.0 / gap, "snapshot_mb": None,
            "predicted": {"generated_turns_per_minute": 61.0 / gap}, "counts": {"forked": 5},
            "relative_error": dict.fromkeys(fork.PREDICTED, 0.02 if mode == "fork" else -0.04),
            "leaked": 0, "mixed_up": 0, "wrong_scores": 0, "seconds": {"desktop/boot": gap},
        }  # fmt: skip

    runs = [row("vm", mode, number) for mode in MODES for number in (1, 2, 4)]
    runs += [row("container", mode, number) for mode in ("boot", "fork") for number in (1, 2, 4)]
    runs[0]["snapshot_mb"] = 340
    killed = {"counts": {"forked": 500}, "kills": 21, "leaked": 0, "mixed_up": 0, "wrong_scores": 0}
    total = {"forks": 575, "leaked": 0, "mixed_up": 0, "wrong_scores": 0}
    return {"modes": runs, "killed": killed, **total, "machine": {"logical_cores": 2}, "commit": {"id": None}}


def test_the_sentence_says_what_was_found():
    said = fork.found(figures())
    assert "70 with `boot`, 12 with `snapshot`, 1.5 with `fork`" in said
    assert "predictions 4%" in said
    assert "575 forks, 500 of them while 21 containers were killed" in said
    assert fork.found({"modes": []}) == "Parts are missing.\n"


def test_operations_are_told_by_mode():
    columns, rows = fork.operation_rows(figures())
    assert columns == ["median seconds", *(f"`{mode}`, {number}" for mode in MODES for number in (1, 4))]
    assert ["boot, or answer again", "70.00", "70.00", "12.00", "12.00", "1.50", "1.50"] in rows


def test_the_median_of_a_call_leaves_out_those_that_failed():
    calls = [("env/save", 1.0), ("env/save", 2.0), ("env/save", 4.0), ("learner/update", 9.0)]
    entries = [{"what": what, "seconds": seconds} for what, seconds in calls]
    assert work.median_seconds([*entries, {"what": "env/save", "seconds": 99.0, "failed": "X"}]) == {"env/save": 2.0}


def test_the_picture_is_drawn():
    pytest.importorskip("matplotlib")
    assert "seconds between attempts" in fork.picture(figures())


@pytest.fixture
def machines(docker_engine):
    """An engine with the image of a virtual machine."""
    from dartsim.real.containers.engine import connect
    from dartsim.real.desktop.images import image_name

    client = connect(docker_engine)
    try:
        if not client.api.images(name=image_name("vm")):
            pytest.skip("no image of a virtual machine: `dartsim desktop build --variant vm`")
    finally:
        client.close()


@pytest.mark.docker
@pytest.mark.soak
@pytest.mark.parametrize("mode", ["boot", "fork"])
def test_a_run_on_machines_trains_and_leaves_nothing(machines: None, tmp_path: Path, mode: Mode) -> None:
    pytest.importorskip("torch", reason="needs the extra `train`")
    config = DesktopRun("vm", mode, 2, 60.0).config.replace(run={"updates": 1})
    attempts = ForkAttempts()
    done, _ = execute(config, tmp_path / "run", [Listener(attempt_ended=attempts.ended)])
    assert done.summary["total_updates"] == 1
    assert (attempts.wrong_scores, attempts.mixed_up) == (0, 0)
    assert (done.summary["reverts"].get("forked", 0) > 0) == (mode == "fork")
    assert tallied(attempts)["leaked"] == 0


@pytest.mark.docker
@pytest.mark.soak
def test_forks_under_kills_leave_nothing_and_mix_nothing_up(machines: None) -> None:
    found = forks_under_kills(20, lambda share: None)
    assert found["counts"]["forked"] >= 20
    assert (found["leaked"], found["mixed_up"], found["wrong_scores"]) == (0, 0, 0)
