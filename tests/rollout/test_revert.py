"""Desktops that return to saved states: nothing of one attempt is left for another, and bounds hold, whatever fails."""

import asyncio
from collections import Counter
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from dartsim.config.sections.desktop import DesktopConfig
from dartsim.config.sections.rollout import RolloutConfig
from dartsim.core.errors import EnvBroken, EnvStartFailed, EnvStartTimedOut, ScoreUnavailable
from dartsim.core.snapshots import snapshot_key
from dartsim.core.types import Observation, StepResult, Task
from dartsim.rollout.revert import RevertingProvider, changed_share
from dartsim.rollout.snapshot_library import SnapshotLibrary
from dartsim.testing.ports import check_snapshots

TASKS = [Task(f"task-{number}", "Do it.", domain="even" if number % 2 == 0 else "odd") for number in range(5)]
MIB = 2**20


def screen_of(state):
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[0, 0] = len(state)
    pixels[1, 1] = sum(map(ord, "".join(state))) % 251
    return pixels


@dataclass
class Hosts:
    """Desktops of a few hosts, which save their states; ``fault`` says of each call whether it fails."""

    num_hosts: int = 1
    size: int = 10 * MIB
    fault: object = staticmethod(lambda call: False)
    kept: dict = field(default_factory=dict)
    calls: Counter = field(default_factory=Counter)
    live: set = field(default_factory=set)
    clock: bool = False
    close_fault: object = staticmethod(lambda: None)
    scores: bool = True
    start_seconds: float = 10.0
    hang: dict = field(default_factory=dict)

    async def start(self, slot):
        await self.take("start", self.start_seconds, EnvStartFailed)
        return Desktop(self, f"host-{slot % self.num_hosts}")

    async def take(self, call, seconds, error=EnvBroken):
        self.calls[call] += 1
        await asyncio.sleep(self.hang.pop(call, seconds))
        if self.fault(call):
            raise error(f"{call} failed")


class Desktop:
    """A desktop whose state is a list of what was done to it."""

    def __init__(self, hosts, host):
        self.hosts, self.host = hosts, host
        self.state, self.set_up, self.restored, self.broken = [], False, False, False
        self.snapshots = self
        hosts.live.add(self)

    async def save(self, key):
        await self._take("save", 1.2)
        assert len(self.state) == self.set_up, "an attempt's actions would be saved"
        self.hosts.kept[self.host, key] = (list(self.state), self.set_up)
        return self.hosts.size

    async def restore(self, key):
        await self._take("restore", 0.8)
        if (self.host, key) not in self.hosts.kept:
            raise EnvBroken("no such state")
        state, self.set_up = self.hosts.kept[self.host, key]
        self.state, self.restored = list(state), True

    async def delete(self, key):
        await self._take("delete", 0.1)
        self.hosts.kept.pop((self.host, key), None)

    async def reset(self, task, *, seed):
        assert not self.state or self.restored, "a used desktop was given another attempt"
        self.restored = False
        if not self.set_up:
            await self._take("reset", 30.0)
            self.state, self.set_up = [task.id], True
        assert self.state == [task.id], "an attempt begins with something else than its task's set-up"
        shown = screen_of(self.state)
        if self.hosts.clock:
            self.hosts.calls["shown"] += 1
            shown[3, 3] = self.hosts.calls["shown"]
        return Observation(shown, task.instruction)

    async def step(self, action):
        await self._take("step", 1.0)
        if action != "WAIT":
            self.state.append(action)
        return StepResult(Observation(screen_of(self.state), "Do it."), action == "DONE")

    async def evaluate(self):
        await self._take("evaluate", 1.0)
        if not self.hosts.scores:
            raise ScoreUnavailable("the evaluator failed")
        return 1.0

    async def close(self):
        self.hosts.live.discard(self)
        if self.hosts.close_fault():
            await asyncio.sleep(1000.0)

    async def _take(self, call, seconds):
        assert self in self.hosts.live, "a closed desktop was used"
        assert not self.broken, "a broken desktop was used"
        self.broken = True
        await self.hosts.take(call, seconds)
        self.broken = False


def provider(hosts, **config):
    limits = RolloutConfig().limits
    return RevertingProvider(hosts, DesktopConfig(**{"revert": "fork", **config}), Counter(), limits=limits)


async def attempt(made, slot, task, steps=2):
    """Play an attempt; return whether it began with a good desktop, and its score."""
    desktop = await made.start(slot)
    try:
        await desktop.reset(task, seed=slot)
        made.counts["began"] += 1
        for _ in range(steps):
            await desktop.step(f"click {slot}")
        return await desktop.evaluate()
    finally:
        await desktop.close()


def outcomes(made):
    counts = {name.removeprefix("revert/"): number for name, number in made.counts.items()}
    began = counts.pop("began", 0)
    assert began == sum(counts.get(how, 0) for how in ("booted", "restored", "forked"))
    counts.pop("saved_bytes", None)
    return counts


async def test_the_fake_desktops_conform():
    await check_snapshots(Hosts(), TASKS[0], TASKS[1], act="click")


async def test_the_first_attempt_of_a_group_pays_set_up_and_the_others_fork():
    hosts = Hosts()
    made = provider(hosts)
    for _ in range(8):
        await attempt(made, 0, TASKS[0])
    assert outcomes(made) == {"saved": 2, "booted": 1, "forked": 7}
    assert made.counts["revert/saved_bytes"] == 2 * hosts.size
    assert (hosts.calls["start"], hosts.calls["reset"]) == (1, 1)
    await made.close_all()
    assert not hosts.live


async def test_snapshots_skip_the_boot_and_pay_the_set_up():
    hosts = Hosts()
    made = provider(hosts, revert="snapshot")
    for number in range(8):
        await attempt(made, 0, TASKS[number % 2])
    assert outcomes(made) == {"saved": 1, "booted": 1, "restored": 7}
    assert (hosts.calls["start"], hosts.calls["reset"]) == (1, 8)


async def test_one_desktop_prepares_a_task_and_the_others_wait_for_it():
    hosts = Hosts()
    made = provider(hosts)
    await asyncio.gather(*(attempt(made, slot, TASKS[0]) for slot in range(4)))
    assert outcomes(made) == {"saved": 2, "booted": 1, "forked": 3}
    assert hosts.calls["reset"] == 1


async def test_a_set_up_that_hangs_costs_its_own_attempt_alone():
    loop = asyncio.get_running_loop()
    hosts = Hosts(hang={"reset": 1e6})
    made = provider(hosts)
    hung = asyncio.create_task(attempt(made, 0, TASKS[0]))
    await asyncio.sleep(1.0)
    began = loop.time()
    assert await asyncio.gather(*(attempt(made, slot, TASKS[0]) for slot in (1, 2))) == [1.0, 1.0]
    assert 600.0 < loop.time() - began < 700.0, "they wait as long as a set-up may take"
    hung.cancel()
    await asyncio.wait([hung])
    for slot in (1, 2):
        await attempt(made, slot, TASKS[0])
    assert outcomes(made) == {"saved": 2, "booted": 2, "restored": 1, "forked": 1}


async def test_a_screen_that_differs_boots_and_its_state_is_saved_anew():
    hosts = Hosts(clock=True)
    made = provider(hosts)
    for _ in range(4):
        await attempt(made, 0, TASKS[0])
    assert outcomes(made) == {"saved": 3, "booted": 3, "changed": 2, "restored": 1}


async def test_a_state_in_which_a_set_up_fails_is_saved_anew_after_a_boot():
    hosts = Hosts()
    made = provider(hosts, revert="snapshot")
    await attempt(made, 0, TASKS[0])
    last = []
    hosts.fault = lambda call: last.append(call) or (call == "reset" and last[-2:-1] == ["restore"])
    assert [await attempt(made, 0, TASKS[0]) for _ in range(3)] == [1.0] * 3
    assert outcomes(made) == {"saved": 4, "booted": 4, "failed": 3}
    hosts.fault = lambda call: False
    await attempt(made, 0, TASKS[0])
    assert made.counts["revert/restored"] == 1


async def test_a_save_that_fails_evicts_the_least_recently_used_state():
    """The disk may have less room than the configured bound, and nothing would ever be saved again."""
    hosts = Hosts()
    made = provider(hosts)
    hosts.fault = lambda call: call == "save" and len(hosts.kept) >= 3
    for number in range(4):
        await attempt(made, 0, TASKS[number])
        await attempt(made, 0, TASKS[number])
    assert {key[1].rpartition("-")[0] for key in hosts.kept} >= {"booted", snapshot_key(TASKS[3])}
    assert len(hosts.kept) == 3
    assert outcomes(made)["forked"] >= 2


async def test_a_state_that_was_not_deleted_is_deleted_by_the_next_desktop_that_saves():
    hosts = Hosts()
    made = provider(hosts, states_gib=2 * hosts.size / 2**30)
    await attempt(made, 0, TASKS[0])
    hosts.fault = lambda call: call == "delete"
    await attempt(made, 0, TASKS[1])
    hosts.fault = lambda call: False
    await attempt(made, 0, TASKS[2])
    assert len(hosts.kept) == 2


async def test_two_desktops_delete_at_the_same_time():
    hosts = Hosts()
    library = SnapshotLibrary("host-0", DesktopConfig().states_gib, Counter())
    desktops = [await hosts.start(0) for _ in range(2)]
    for number in range(4):
        with library.preparing(f"task-{number}"):
            pass  # nothing is saved, but something may be left of it
    places = [library.preparing(f"new-{number}") for number in range(2)]
    await asyncio.gather(
        *(library.save(place.__enter__(), desktop) for place, desktop in zip(places, desktops, strict=True))
    )
    assert hosts.calls["delete"] == 4


async def test_the_least_recently_used_state_is_evicted():
    hosts = Hosts()
    made = provider(hosts, states_gib=3 * hosts.size / 2**30)
    for number in (0, 1, 0, 2, 0, 1):
        await attempt(made, 0, TASKS[number])
    assert outcomes(made) == {"booted": 1, "restored": 3, "forked": 2, "saved": 5, "evicted": 2}
    assert len(hosts.kept) == 3


async def test_a_desktop_whose_evaluator_fails_is_kept():
    hosts = Hosts(scores=False)
    made = provider(hosts)
    for _ in range(3):
        with pytest.raises(ScoreUnavailable):
            await attempt(made, 0, TASKS[0])
    assert outcomes(made) == {"saved": 2, "booted": 1, "forked": 2}


async def test_a_boot_in_place_of_a_fork_has_the_time_of_a_start():
    loop = asyncio.get_running_loop()
    hosts = Hosts()
    made = provider(hosts)
    boots = replace(TASKS[1], spec={"revert": "boot"})
    await attempt(made, 0, TASKS[0])
    began, hosts.start_seconds = loop.time(), 1e6
    with pytest.raises(EnvStartTimedOut, match="not ready after 600"):
        await attempt(made, 0, boots)
    assert loop.time() - began == 600.0
    hosts.start_seconds = 10.0
    assert await attempt(made, 0, boots) == 1.0


async def test_all_desktops_are_closed_though_one_hangs():
    loop = asyncio.get_running_loop()
    hosts = Hosts()
    made = provider(hosts)
    for slot in range(3):
        await attempt(made, slot, TASKS[slot])
    began, hosts.close_fault = loop.time(), lambda: len(hosts.live) == 1
    await made.close_all()
    assert (made.counts["fault/close"], loop.time() - began) == (1, 120.0)
    assert not hosts.live


def test_the_share_of_changed_pixels():
    before = np.zeros((10, 10, 3), np.uint8)
    after = before.copy()
    after[0, :5] = 9
    assert changed_share(before, after) == 0.05
    assert changed_share(before, after[:5]) == 1.0
    assert changed_share(None, None) == 0.0
