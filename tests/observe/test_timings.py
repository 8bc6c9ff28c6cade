"""Timings of a run: what was done, for how long, beside what, and how it ended; in virtual time, so exactly."""

from __future__ import annotations

import asyncio
import io
import json
from contextlib import closing

import pytest

from dartsim.core.errors import EnvBroken
from dartsim.core.types import Content, Observation, Reply, Request, StepResult, UpdateResult, Weights
from dartsim.observe.timings import RotatingFile, TimedDesktops, TimedLearner, TimedWorker, Timings, read_timings
from dartsim.real.local import LocalWorker
from dartsim.real.loop import RunLoop
from dartsim.testing.ports import (
    TASK,
    check_env_provider,
    check_policy_worker,
    check_snapshots,
    sample_batch,
    sample_trajectory,
)


class Desktop:
    """A desktop of constant times, which breaks on an action."""

    async def reset(self, task, *, seed):
        await asyncio.sleep(3.0)
        return Observation(None, task.instruction)

    async def step(self, action):
        await asyncio.sleep(1.0)
        if action == "BREAK":
            raise EnvBroken("broken")
        return StepResult(Observation(None, ""), action == "DONE")

    async def evaluate(self):
        await asyncio.sleep(0.5)
        return 1.0

    async def close(self):
        await asyncio.sleep(0.25)


class Provider:
    async def start(self, slot):
        await asyncio.sleep(4.0 + slot)
        return Desktop()


def test_a_run_that_goes_on_keeps_the_timings_of_its_earlier_lives(tmp_path):
    async def live(resumed):
        with Timings.open(tmp_path, resumed=resumed) as timings, timings.doing("learner/update"):
            pass

    path = tmp_path / "timings.jsonl"
    asyncio.run(live(resumed=False))
    path.write_text(path.read_text() + '{"at": 1.0, "wh')  # and killed
    for resumed, wanted in ((True, 2), (True, 3), (False, 1)):
        asyncio.run(live(resumed))
        assert len(read_timings(tmp_path)) == wanted


def stretch(path, numbers, most):
    """Write a line a second into a file that keeps the newest."""
    with closing(RotatingFile(path, part_bytes=most)) as file:
        for number in numbers:
            file.write(json.dumps({"at": float(number), "what": "learner/update", "seconds": 0.5}) + "\n")


def test_the_newest_lines_are_kept_whole_and_what_is_gone_is_said(tmp_path):
    path, most = tmp_path / "timings.jsonl", 1_000
    stretch(path, range(15), most)
    assert [entry["at"] for entry in read_timings(tmp_path)] == list(range(15))
    assert not (tmp_path / "timings.old.jsonl").exists()
    stretch(path, range(15, 30), most)  # a life that goes on
    assert [entry["at"] for entry in read_timings(tmp_path)] == list(range(30)), "in two files, and nothing is gone"
    stretch(path, range(30, 400), most)
    entries = read_timings(tmp_path)
    (cut,) = [entry for entry in entries if entry["what"] == "cut" and entry["since"] == entries[0]["at"]]
    times = [entry["at"] for entry in entries if entry["what"] != "cut"]
    assert times == list(range(int(cut["since"]), 400))
    size = sum(file.stat().st_size for file in tmp_path.iterdir())
    assert most < size <= 2 * most


def test_a_run_that_begins_anew_keeps_no_older_timings(tmp_path):
    stretch(tmp_path / "timings.jsonl", range(100), 1_000)
    with Timings.open(tmp_path):
        pass
    assert read_timings(tmp_path) == []


def noted(file):
    return [json.loads(line) for line in file.getvalue().splitlines()]


async def test_calls_of_desktops_are_noted_with_their_slot_and_what_went_on_beside():
    file = io.StringIO()
    provider = TimedDesktops(Provider(), Timings(file))
    first, _ = await asyncio.gather(provider.start(0), provider.start(1))
    task = sample_trajectory(0).attempt.task
    await first.reset(task, seed=0)
    await first.step("WAIT")
    with pytest.raises(EnvBroken):
        await first.step("BREAK")
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.75):
            await first.step("WAIT")
    await first.evaluate()
    await first.close()
    lines = noted(file)
    assert [(line["what"], line["seconds"], line["slot"], line["busy"]["env"]) for line in lines] == [
        ("env/start", 4.0, 0, 2),
        ("env/start", 5.0, 1, 1),
        ("env/reset", 3.0, 0, 1),
        ("env/step", 1.0, 0, 1),
        ("env/step", 1.0, 0, 1),
        ("env/step", 0.75, 0, 1),
        ("env/evaluate", 0.5, 0, 1),
        ("env/close", 0.25, 0, 1),
    ]
    assert [set(line) & {"failed", "cancelled"} for line in lines[4:6]] == [{"failed"}, {"cancelled"}]
    assert [line["at"] for line in lines[:3]] == [4.0, 5.0, 8.0]


async def test_requests_are_noted_with_how_many_were_live_and_updates_with_their_turns():
    class Worker:
        async def generate(self, request):
            await asyncio.sleep(2.0)
            return Reply("WAIT", 0, 0, 0, 1, 1)

        async def load(self, weights, mode):
            await asyncio.sleep(1.0)

    class Learner:
        async def update(self, batch):
            await asyncio.sleep(6.0)
            return UpdateResult(Weights(batch.update))

    file = io.StringIO()
    timings = Timings(file)
    worker, learner = TimedWorker(3, Worker(), timings), TimedLearner(Learner(), timings, lambda batch: 5_000)
    asked = Request(sample_trajectory(0).attempt, 7, Observation(None, ""), [])
    await asyncio.gather(worker.generate(asked), worker.generate(asked), learner.update(sample_batch([])))
    lines = noted(file)
    assert [(line["worker"], line["live"], line["turn"]) for line in lines[:2]] == [(3, 1, 7), (3, 2, 7)]
    assert lines[0]["busy"] == {"worker": 2, "learner": 1}
    assert (lines[2]["what"], lines[2]["seconds"]) == ("learner/update", 6.0)
    assert (lines[2]["turns"], lines[2]["tokens"]) == (0, 5_000)


async def test_the_loop_s_work_is_what_it_was_not_idle():
    file = io.StringIO()
    idle = iter([10.0, 12.0, 12.0, 12.5])
    watching = asyncio.ensure_future(Timings(file).watch(lambda: next(idle), every_seconds=4.0))
    await asyncio.sleep(9.0)
    watching.cancel()
    assert [(line["seconds"], line["of"]) for line in noted(file)] == [(2.0, 4.0), (3.5, 4.0)]


async def test_timed_parts_conform():
    from dartsim.envs.direct import DirectProvider
    from dartsim.envs.simulated import SimDesktop

    await check_env_provider(TimedDesktops(DirectProvider(SimDesktop), Timings(io.StringIO())), cancel_after=())


async def test_a_reset_in_a_saved_state_of_a_task_is_told_from_a_set_up():
    from dartsim.envs.direct import DirectProvider
    from dartsim.envs.simulated import SimDesktop

    file = io.StringIO()
    desktops = TimedDesktops(DirectProvider(SimDesktop, forks=True), Timings(file))
    await check_snapshots(desktops)
    first, other = [await desktops.start(slot) for slot in (0, 1)]
    await first.snapshots.save("booted")
    await first.reset(TASK, seed=1)
    await first.snapshots.save("task")
    for key in ("task", "booted"):
        await other.snapshots.restore(key)
        await other.reset(TASK, seed=2)
    assert [line["what"] for line in noted(file)][-4:] == ["env/restore", "env/resume", "env/restore", "env/reset"]


class Policy:
    def add(self, weights):
        pass

    def compute(self, requests, version):
        return [Content("WAIT", [1], [0.0], [0.0]) for _ in requests]

    def prompt_tokens(self, request):
        return 1


def test_a_local_worker_tells_of_its_batches_and_loads():
    told = []

    async def main():
        worker = LocalWorker(5, Policy())
        worker.on_call = lambda *what: told.append(what)
        await check_policy_worker(worker)

    asyncio.run(main())
    assert {what for _, what, *_ in told} == {"batch", "put"}
    for index, what, seconds, waited, size in told:
        assert (index, size == 0) == (5, what == "put")
        assert seconds >= 0.0
        assert waited >= 0.0


def test_a_loop_that_only_waits_is_idle_and_one_that_is_woken_is_not():
    async def main():
        loop = asyncio.get_running_loop()
        begun, idle = loop.time(), loop.idle_seconds()
        await asyncio.sleep(0.05)
        waited = loop.idle_seconds() - idle
        await asyncio.to_thread(sum, range(1000))
        return waited, loop.time() - begun, loop.idle_seconds() - idle

    with asyncio.Runner(loop_factory=RunLoop) as runner:
        waited, passed, idle = runner.run(main())
    assert 0.0 < waited <= idle <= passed
