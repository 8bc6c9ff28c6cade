"""Messages go astray, and every one of them is carried out once, whatever happens to it."""

import asyncio
from collections import Counter
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.config.schema import FaultsConfig
from dartsim.core.rng import Streams
from dartsim.sim import run_virtual
from dartsim.sim.faults import ClusterSize, FaultInjector, active_faults
from dartsim.sim.faults.faulty_network import RECOGNIZED, FaultyNetwork, Unanswered, pairs
from dartsim.sim.faults.injector import CONTROL, LEARNER, STORE

MESSAGES = ("message_delay", "message_loss", "message_duplicate", "message_reorder")


def now():
    return asyncio.get_running_loop().time()


class Part:
    """Notes what it is asked for, and takes 2 s for it."""

    def __init__(self):
        self.asked = []
        self.done = []

    async def work(self, what="x"):
        self.asked.append((what, now()))
        await asyncio.sleep(2.0)
        self.done.append(what)
        return what


async def test_a_quiet_network_passes_everything_on_at_once(make):
    network, part = FaultyNetwork(make()), Part()
    assert network.quiet
    assert await network.call(CONTROL, "host-0", part.work) == "x"
    assert now() == 2.0


async def test_a_delayed_message_arrives_later_and_is_carried_out_once(make, at):
    faults = make(**at(("message_delay", 0.0, 30.0)))
    network, part = FaultyNetwork(faults), Part()
    assert await network.call(CONTROL, "host-0", part.work) == "x"
    assert (part.asked, now()) == ([("x", 30.0)], 32.0)
    assert (faults.counts["fault/message_delay"], faults.counts["fault_seconds/message_delay"]) == (1, 30.0)


async def test_a_delayed_answer_arrives_later(make, at):
    network, part = FaultyNetwork(make(**at(("message_delay", 1.0, 30.0)))), Part()
    assert await network.call(CONTROL, "host-0", part.work) == "x"
    assert (part.asked, now()) == ([("x", 0.0)], 32.0)


async def test_a_second_copy_is_recognized(make, at):
    faults = make(**at(("message_duplicate", 0.0, 1.0)))
    network, part = FaultyNetwork(faults), Part()
    await network.call(CONTROL, "host-0", part.work)
    await asyncio.sleep(10.0)
    assert part.asked == [("x", 0.0)]
    assert (faults.counts["fault/message_duplicate"], faults.counts[RECOGNIZED]) == (1, 1)


async def test_the_copy_that_arrives_first_is_the_one_that_counts(make, at):
    network, part = FaultyNetwork(make(**at(("message_delay", 0.0, 30.0), ("message_duplicate", 0.0, 4.0)))), Part()
    await network.call(CONTROL, "host-0", part.work)
    assert (part.asked, now()) == ([("x", 4.0)], 6.0)
    await asyncio.sleep(60.0)
    assert part.done == ["x"]


async def test_a_held_back_message_is_overtaken(make, at):
    network, part = FaultyNetwork(make(**at(("message_reorder", 0.0, 3.0)))), Part()
    calls = [asyncio.ensure_future(network.call(CONTROL, "host-0", lambda w=w: part.work(w))) for w in ("a", "b")]
    await asyncio.gather(*calls)
    assert part.asked == [("b", 0.0), ("a", 3.0)]


async def test_between_parts_that_are_cut_off_messages_wait_and_others_pass(make, at):
    faults = make(**at(("network_partition", 0.0, 62.0, 0)))
    network, part = FaultyNetwork(faults), Part()
    assert pairs(faults)[0] == (CONTROL, "host-0")
    await network.call(CONTROL, "host-1", part.work)
    assert now() == 2.0
    await network.call(CONTROL, "host-0", part.work)
    assert part.asked[1][1] == 62.0  # a message that was sent every 5 s since second 2
    assert faults.counts["fault/network_partition"] == 1


async def test_a_caller_waits_only_so_long_and_does_not_learn_whether_it_was_done(make, at):
    network, part = FaultyNetwork(make(**at(("network_partition", 1.0, 300.0, 0)))), Part()
    with pytest.raises(Unanswered):
        await network.call(CONTROL, "host-0", part.work, patience=90.0)
    assert (part.done, now()) == (["x"], 92.0)
    with pytest.raises(Unanswered):
        await network.call(CONTROL, "host-0", part.work, patience=90.0)
    assert (part.done, now()) == (["x"], 182.0)


async def test_a_store_behind_a_cut_or_that_stalls_makes_the_control_plane_wait(make, at):
    faults = make(**at(("store_stall", 10.0, 20.0), ("network_partition", 30.0, 15.0)))
    network = FaultyNetwork(faults)
    faults.window_fault("network_partition", by_target=True)
    store = pairs(faults).index((CONTROL, STORE))
    faults = make(**at(("store_stall", 10.0, 20.0), ("network_partition", 30.0, 15.0, store)))
    network = FaultyNetwork(faults)
    await network.wait_for_store()
    assert now() == 0.0
    await asyncio.sleep(12.0)
    await network.wait_for_store()
    assert now() == 45.0
    assert faults.counts["fault_seconds/store_stall"] == 18.0


async def test_a_caller_that_gives_up_stops_what_it_asked_for(make, at):
    network, part = FaultyNetwork(make(**at(("message_delay", 0.0, 1.0)))), Part()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0):
            await network.call(CONTROL, "host-0", part.work)
    await asyncio.sleep(10.0)
    assert (part.asked, part.done) == ([("x", 1.0)], [])
    network, part = FaultyNetwork(make(**at(("message_delay", 0.0, 50.0)))), Part()
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(2.0):
            await network.call(CONTROL, "host-0", part.work)
    await asyncio.sleep(100.0)
    assert part.asked == []


async def test_an_error_of_the_part_reaches_the_caller(make, at):
    async def fails():
        raise LookupError("no")

    network = FaultyNetwork(make(**at(("message_delay", 0.0, 1.0))))
    with pytest.raises(LookupError, match="no"):
        await network.call(CONTROL, LEARNER, fails)


@settings(max_examples=30)
@given(st.integers(0, 1000), st.lists(st.sampled_from(MESSAGES), min_size=1, unique=True), st.floats(0.05, 0.6))
def test_whatever_happens_to_messages_each_is_carried_out_once(seed, kinds, share):
    part, counts = Part(), Counter()

    async def main():
        faults = FaultInjector(
            active_faults(FaultsConfig.model_validate({"kinds": {kind: {"share": share} for kind in kinds}})),
            env=asyncio.get_running_loop().env,
            streams=Streams(seed),
            counts=counts,
            size=ClusterSize(desktops=1, hosts=1, workers=1),
        )
        network = FaultyNetwork(faults)

        async def caller(number):
            for turn in range(5):
                what = (number, turn)
                assert await network.call(CONTROL, "host-0", partial(part.work, what)) == what

        await asyncio.gather(*(caller(number) for number in range(4)))
        await asyncio.sleep(100.0)

    run_virtual(main(), seed=seed)
    assert sorted(part.done) == [(number, turn) for number in range(4) for turn in range(5)]
