"""Desktops that faults strike: where, how long, with which cause, and nothing is left of them."""

import asyncio

import pytest

from dartsim.core.errors import EnvBroken, EnvStartFailed, ScoreUnavailable, cause_of
from dartsim.core.types import StepResult
from dartsim.sim.faults.faulty_env import GIVE_UP_SECONDS, FaultyProvider
from dartsim.sim.faults.faulty_network import FaultyNetwork
from dartsim.sim.faults.injector import CONTROL


def now():
    return asyncio.get_running_loop().time()


class Desktop:
    def __init__(self, teardown_seconds=0.0):
        self.closed_at = None
        self._teardown_seconds = teardown_seconds

    async def reset(self, task, *, seed):
        await asyncio.sleep(1.0)
        return ("reset", task, seed)

    async def step(self, action):
        await asyncio.sleep(2.0)
        return StepResult(action, False)

    async def evaluate(self):
        await asyncio.sleep(3.0)
        return 1.0

    async def close(self):
        if self._teardown_seconds:
            await asyncio.sleep(self._teardown_seconds)
        self.closed_at = now()


class Provider:
    def __init__(self):
        self.desktops = []
        self.teardown_seconds = 0.0

    async def start(self, slot):
        await asyncio.sleep(10.0)
        self.desktops.append(Desktop(self.teardown_seconds))
        return self.desktops[-1]


@pytest.fixture
def provider(make, at):
    def made(*strikes, **fields):
        faults = make(**at(*strikes), **fields)
        inner = Provider()
        return FaultyProvider(inner, faults, FaultyNetwork(faults), host_of=lambda slot: slot % 2), inner, faults

    return made


async def test_a_desktop_that_nothing_strikes_takes_its_own_time(provider):
    struck, inner, _ = provider(("worker_crash", 0.0))
    desktop = await struck.start(0)
    assert await desktop.reset("task", seed=7) == ("reset", "task", 7)
    assert await desktop.step("act") == StepResult("act", False)
    assert await desktop.evaluate() == 1.0
    await desktop.close()
    assert now() == inner.desktops[0].closed_at == 16.0


@pytest.mark.parametrize(
    ("kind", "seconds", "cause"),
    [
        ("vm_never_ready", 300.0, "not_ready"),
        ("port_clash", 1.0, "port_clash"),
        ("port_lock_timeout", 10.0, "engine_timeout"),
    ],
)
async def test_a_start_fails_after_its_time(provider, kind, seconds, cause):
    struck, inner, faults = provider((kind, 0.0))
    with pytest.raises(EnvStartFailed) as failed:
        await struck.start(0)
    assert (cause_of(failed.value), now(), inner.desktops) == (cause, seconds, [])
    assert (faults.counts[f"fault/{kind}"], faults.counts[f"fault_seconds/{kind}"]) == (1, seconds)
    await struck.start(0)


async def test_what_only_takes_longer_fails_nothing(provider):
    struck, _, faults = provider(("app_not_painted", 0.0, 12.0), ("host_overload", 0.0, 100.0, 0))
    desktop = await struck.start(0)
    started = now()
    assert started > 10.0, "a slow host boots slowly"
    assert await desktop.reset("task", seed=7)
    slower = faults.window_fault("host_overload", 0).value
    assert now() - started == pytest.approx(12.0 + slower * 1.0)


async def test_a_host_that_is_lost_takes_its_desktops_along_and_starts_none_until_it_is_back(provider):
    struck, _, faults = provider(("host_lost", 11.0, 100.0, 0))
    lost, other = await asyncio.gather(struck.start(0), struck.start(1))
    assert await other.step("act")
    with pytest.raises(EnvBroken) as failed:
        await lost.step("act")
    assert cause_of(failed.value) == "vm_refused"
    with pytest.raises(EnvStartFailed) as failed:
        await struck.start(0)
    assert cause_of(failed.value) == "engine_missing"
    await asyncio.sleep(100.0)
    with pytest.raises(EnvBroken):
        await lost.step("act")  # the host is back, what ran on it is not
    assert await (await struck.start(0)).step("act")
    assert faults.counts["fault/host_lost"] == 1


async def test_a_start_that_a_lost_host_interrupts_leaves_nothing(provider):
    struck, inner, _ = provider(("host_lost", 5.0, 100.0, 0))
    with pytest.raises(EnvStartFailed):
        await struck.start(0)
    assert inner.desktops[0].closed_at == now() == 10.0


@pytest.mark.parametrize("seed", range(12))
async def test_a_clock_that_is_off_by_more_than_a_lease_costs_the_desktops(provider, seed):
    struck, _, faults = provider(("clock_skew", 5.0, 1000.0, 0), seed=seed)
    desktop = await struck.start(0)
    if faults.window_fault("clock_skew", 0).value <= 870.0:
        assert await desktop.step("act")
        assert faults.counts["fault/clock_skew"] == 0
        return
    with pytest.raises(EnvBroken) as failed:
        await desktop.step("act")
    assert cause_of(failed.value) == "container_gone"
    assert faults.counts["fault/clock_skew"] == 1


async def test_a_leaked_desktop_is_reaped_later(provider):
    struck, inner, _ = provider(("container_leaked", 0.0, 900.0))
    desktop = await struck.start(0)
    await desktop.close()
    assert inner.desktops[0].closed_at is None
    await asyncio.sleep(1000.0)
    assert inner.desktops[0].closed_at == 910.0


async def test_a_start_whose_answer_never_comes_leaves_nothing(provider):
    struck, inner, faults = provider(("network_partition", 5.0, 500.0, 0))
    assert struck._network.cut_until(CONTROL, "host-0", 0.0) == (None, 0.0)
    with pytest.raises(EnvStartFailed) as failed:
        await struck.start(0)
    assert cause_of(failed.value) == "engine_missing"
    assert inner.desktops[0].closed_at == now() == 100.0
    assert faults.counts["fault/network_partition"] == 1


@pytest.mark.parametrize("after", [1.0, 11.0, 25.0])
async def test_a_start_that_is_cancelled_leaves_nothing(provider, after):
    struck, inner, _ = provider(("kvm_missing", 0.0, 100.0, 0), ("message_delay", 5.0, 30.0))
    starting = asyncio.ensure_future(struck.start(0))
    await asyncio.sleep(after)
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert all(desktop.closed_at is not None for desktop in inner.desktops)


@pytest.mark.parametrize("strike", [("kvm_missing", 0.0, 100.0, 0), ("message_delay", 5.0, 60.0)])
async def test_a_start_that_is_cancelled_waits_for_a_hung_tear_down_only_so_long(provider, strike):
    """A deadline of a start bounds what its slot waits, whether the desktop still boots or its answer is on its way."""
    struck, inner, _ = provider(strike)
    after = 11.0
    inner.teardown_seconds = 70.0
    starting = asyncio.ensure_future(struck.start(0))
    await asyncio.sleep(after)
    assert inner.desktops, "there is something to tear down"
    starting.cancel()
    await asyncio.wait([starting])
    assert starting.cancelled()
    assert now() == after + GIVE_UP_SECONDS
    await asyncio.sleep(100.0)
    assert inner.desktops[0].closed_at == after + 70.0


async def test_a_start_that_fails_at_its_end_takes_the_time_of_a_good_one_and_leaves_nothing(provider):
    faulty, inner, faults = provider(("start_failed", 0.0, 0.0))
    with pytest.raises(EnvStartFailed) as failed:
        await faulty.start(0)
    assert (cause_of(failed.value), inner.desktops[0].closed_at, now()) == ("EnvStartFailed", 10.0, 10.0)
    assert faults.counts["fault/start_failed"] == 1


@pytest.mark.parametrize(("kind", "error"), [("step_failed", EnvBroken), ("score_failed", ScoreUnavailable)])
async def test_a_call_that_fails_at_its_end_was_carried_out(provider, kind, error):
    faulty, _, _ = provider((kind, 0.0, 0.0))
    desktop = await faulty.start(0)
    call = {"step_failed": lambda: desktop.step("act"), "score_failed": desktop.evaluate}[kind]
    with pytest.raises(error):
        await call()
    assert now() == {"step_failed": 12.0, "score_failed": 13.0}[kind]
    await call()


async def test_a_tear_down_that_hangs_is_done_and_says_so_later(provider):
    faulty, inner, _ = provider(("teardown_hung", 0.0, 60.0))
    desktop = await faulty.start(0)
    await desktop.close()
    assert (inner.desktops[0].closed_at, now()) == (10.0, 70.0)


async def test_in_a_window_without_a_number_of_calls_all_of_them_fail_until_it_closes(make):
    window = {"kind": "action_timeout", "at_seconds": 10.0, "lasts_seconds": 30.0, "target": None, "times": None}
    injector = make(schedule=[window])
    faulty = FaultyProvider(Provider(), injector, FaultyNetwork(injector), host_of=lambda slot: slot % 2)
    desktops = await asyncio.gather(faulty.start(0), faulty.start(1))
    failures = await asyncio.gather(*(desktop.step("act") for desktop in desktops), return_exceptions=True)
    assert ([type(failure) for failure in failures], now()) == ([EnvBroken, EnvBroken], 40.0)
    assert await asyncio.gather(*(desktop.step("act") for desktop in desktops)) == [StepResult("act", False)] * 2


async def test_healing_ends_what_hangs(make, at):
    injector = make(**at(("vm_never_ready", 0.0)), heal_at=100.0)
    faulty = FaultyProvider(Provider(), injector, FaultyNetwork(injector), host_of=lambda slot: slot % 2)
    with pytest.raises(EnvStartFailed):
        await faulty.start(0)
    assert now() == 100.0
