"""Nodes: their crashes, and the seeded perturbation between them."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.errors import LimitReached, Stalled
from dartsim.sim import run_virtual, wait
from dartsim.sim.perturb import Perturbation
from dartsim.sim.tasks import Node

ORDER_ONLY = Perturbation(latency_share=0.0)
BOTH_LOOPS = pytest.mark.parametrize("perturb", [None, ORDER_ONLY], ids=["plain", "perturbed"])


async def ring_of_nodes(num_nodes=4, num_rounds=3):
    """Let every node note each of its rounds, all nodes at the same instants."""
    log = []

    async def work(name):
        for round_ in range(num_rounds):
            log.append((name, round_, "a"))
            await asyncio.sleep(0)
            log.append((name, round_, "b"))
            await asyncio.sleep(1)

    async with asyncio.TaskGroup() as group:
        for name in range(num_nodes):
            with Node(str(name)):
                group.create_task(work(name))
    return log


def of_node(log, name):
    return [entry for entry in log if entry[0] == name]


def test_the_order_between_nodes_varies_with_the_seed_and_repeats_with_it():
    logs = [tuple(run_virtual(ring_of_nodes(), seed=seed, perturb=ORDER_ONLY)) for seed in range(8)]
    assert len(set(logs)) > 4
    assert logs == [tuple(run_virtual(ring_of_nodes(), seed=seed, perturb=ORDER_ONLY)) for seed in range(8)]


def test_the_order_on_one_node_never_varies():
    plain = run_virtual(ring_of_nodes())
    for seed in range(5):
        log = run_virtual(ring_of_nodes(), seed=seed, perturb=ORDER_ONLY)
        assert sorted(log) == sorted(plain)
        for name in range(4):
            assert of_node(log, name) == of_node(plain, name)


async def _soon_and_timers(steps):
    log, loop = [], asyncio.get_running_loop()

    def run(index):
        log.append(index)
        kind, count = steps[index % len(steps)]
        for child in range(count):
            if len(log) + child < 60:
                if kind == "soon":
                    loop.call_soon(run, index * 3 + child + 1)
                else:
                    loop.call_later(0 if kind == "zero" else 1, run, index * 3 + child + 1)

    with Node("only"):
        loop.call_soon(run, 0)
        loop.call_later(1, run, 1)
        loop.call_later(1, run, 2)
    await asyncio.sleep(20)
    return log


@given(st.lists(st.tuples(st.sampled_from(["soon", "zero", "later"]), st.integers(0, 2)), min_size=1, max_size=5))
def test_callbacks_and_timers_of_one_node_keep_asyncios_order(steps):
    """Generations are kept too: a timer that is due joins after the callbacks of the generation before."""
    assert run_virtual(_soon_and_timers(steps), perturb=ORDER_ONLY) == run_virtual(_soon_and_timers(steps))


def test_latencies_are_stretched_in_the_stated_share_and_range():
    perturb = Perturbation(latency_share=0.25, latency_seconds=(10.0, 20.0))

    async def main():
        env = asyncio.get_running_loop().env
        return [env.delay(1.0) for _ in range(4000)]

    delays = run_virtual(main(), seed=1, perturb=perturb)
    stretched = [delay for delay in delays if delay != 1.0]
    assert 0.22 < len(stretched) / len(delays) < 0.28
    assert 11.0 <= min(stretched) < 11.1
    assert 20.9 < max(stretched) <= 21.0
    assert set(run_virtual(main())) == {1.0}


def test_sleeps_are_stretched_on_nodes_and_nowhere_else():
    perturb = Perturbation(latency_share=1.0, latency_seconds=(5.0, 5.0))

    async def main():
        loop = asyncio.get_running_loop()
        await asyncio.sleep(1)
        assert loop.time() == 1.0
        with Node("slow"):
            await asyncio.sleep(1)
            assert loop.time() == 7.0
            with pytest.raises(TimeoutError):  # deadlines stay exact
                async with asyncio.timeout(2):
                    await asyncio.sleep(1)
        return loop.time()

    assert run_virtual(main(), perturb=perturb) == 9.0


@BOTH_LOOPS
def test_the_loops_rules_hold_when_perturbed(perturb):
    async def stuck():
        await asyncio.Event().wait()

    async def poll():
        while True:  # noqa: ASYNC110
            await asyncio.sleep(0)

    async def endless():
        while True:  # noqa: ASYNC110
            await asyncio.sleep(1)

    async def fail():
        asyncio.get_running_loop().call_soon(lambda: 1 // 0)
        await asyncio.sleep(1)

    async def world_polls():
        env = asyncio.get_running_loop().env

        def process():
            while True:
                yield env.timeout(0)

        await wait(env.process(process()))

    with pytest.raises(Stalled, match="stuck"):
        run_virtual(stuck(), perturb=perturb)
    with pytest.raises(LimitReached, match="max_events"):
        run_virtual(poll(), perturb=perturb, max_events=100)
    with pytest.raises(LimitReached, match="until"):
        run_virtual(endless(), perturb=perturb, until=100)
    with pytest.raises(Stalled, match="no progress"):
        run_virtual(endless(), perturb=perturb, stall_seconds=100)
    with pytest.raises(ZeroDivisionError):
        run_virtual(fail(), perturb=perturb)
    with pytest.raises(LimitReached, match="max_events"):
        run_virtual(world_polls(), perturb=perturb, max_events=100)


def test_a_cancelled_timer_of_the_world_hides_nothing_and_moves_no_clock():
    """Whatever comes after it, a timer of asyncio or of the world, happens at its own time."""
    seen = []

    async def main():
        loop = asyncio.get_running_loop()
        env = loop.env

        def note(name):
            seen.append((name, loop.time()))

        for at, cancels in ((5.0, 3), (8.0, 1)):
            dead = [env.call_at(at, note, "dead") for _ in range(cancels)]
            env.call_at(at - 1.0, lambda timers=dead: [timer.cancel() for timer in timers])
        loop.call_at(5.0, note, "asyncio")
        env.call_at(9.0, note, "world")
        env.call_at(5.0, lambda: env.call_at(5.0, note, "never").cancel())
        await asyncio.sleep(20.0)

    run_virtual(main(), perturb=Perturbation())
    assert seen == [("asyncio", 5.0), ("world", 9.0)]


def test_calm_ends_the_stretching():
    async def main():
        loop = asyncio.get_running_loop()
        before = loop.env.delay(1.0)
        loop.calm()
        return before, [loop.env.delay(1.0) for _ in range(50)]

    before, after = run_virtual(main(), perturb=Perturbation(latency_share=1.0, latency_seconds=(5.0, 5.0)))
    assert before == 6.0
    assert set(after) == {1.0}
