"""Alarms: a cluster that suffers exactly one thing raises that alarm and no other; one that does not raises none."""

import asyncio
from dataclasses import replace
from itertools import count

import pytest

from dartsim.config import from_tree, merge, preset
from dartsim.core.errors import BatchUntrainable, EnvStartFailed, WorkerFault
from dartsim.core.types import Attempt, Drop, Ending, Task, Trajectory, UpdateResult
from dartsim.observe import Recorder
from dartsim.observe.alarm import KINDS
from dartsim.observe.alarm_rules import Alarms
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import build_here
from dartsim.sim import run_virtual
from dartsim.sim.task_difficulties import TaskDifficulty
from dartsim.store.memory import MemoryStore

SMALL = {
    "tasks": {"count": 7},
    "rollout": {"num_envs": 6, "num_workers": 2, "max_turns": 6},
    "curation": {
        "attempts": {"group_size": 4},
        "groups": {"min_size": 2},
        "batch": {"min_groups": 2, "max_groups": 4},
        "store": "memory",
    },
    "cluster": {
        "engine": {"reload_seconds": 30.0},
        "learner": {"fixed_seconds": 120.0},
        "hosts": {"count": 2, "cores": 8.0, "memory_gib": 64.0, "concurrent_starts": 2},
    },
    "run": {"hours": 2.0},
}
EVERY_SECONDS = 30.0


@pytest.fixture
def short(monkeypatch):
    """Bounds for runs of two hours."""
    monkeypatch.setattr("dartsim.observe.alarm_rules.STARVED_SECONDS", 1200.0)
    monkeypatch.setattr("dartsim.observe.alarm_rules.ENGINE_DOWN_SECONDS", 900.0)


def suffer(spoil=None, *, disk=None, success_rate=0.5, preset_name="dart", base=SMALL, hours=None, **tables):
    """Run a cluster that ``spoil`` may break, looking at it all along; return its alarms."""
    config = from_tree(merge(merge(preset(preset_name), base), tables))
    hours = hours or config.run.hours
    prepared = prepare(config)
    if success_rate is not None and prepared.difficulties:
        prepared = replace(prepared, difficulties={task.id: TaskDifficulty(success_rate) for task in prepared.tasks})
    watching = []
    recorders = []

    async def main():
        system = await build_here(prepared, MemoryStore())
        if spoil is not None:
            spoil(system)
        recorders.append(system.recorder)
        watching.append(
            Alarms(
                system.recorder,
                batch_attempts=config.curation.batch.min_groups * config.curation.attempts.group_size,
                free_bytes=disk,
            )
        )
        await system.run(hours * 3600.0)

    def look(now):
        for alarms in watching:
            alarms.look(now)

    run_virtual(main(), seed=config.run.seed, on_advance=look, every_seconds=EVERY_SECONDS, max_events=6_000_000)
    return recorders[0].alarms


def names(alarms):
    return [alarm.name for alarm in alarms]


class Instead:
    """A component some of whose calls are other ones."""

    def __init__(self, inner, **calls):
        self._inner, self._calls = inner, calls

    def __getattr__(self, name):
        return self._calls.get(name) or getattr(self._inner, name)


async def forever(*_):
    await asyncio.get_running_loop().create_future()


def test_a_healthy_small_cluster_raises_none():
    assert suffer(disk=lambda: 2**40) == []


@pytest.mark.parametrize("name", ["dart", "coupled"])
def test_presets_raise_no_false_alarm(name):
    assert suffer(preset_name=name, base={}, success_rate=None, hours=3.0) == []


@pytest.mark.parametrize("name", ["dart", "coupled", "dart-released", "dart-measured"])
@pytest.mark.soak
def test_presets_raise_no_false_alarm_in_a_day(name):
    assert suffer(preset_name=name, base={}, success_rate=None, hours=24.0) == []


@pytest.mark.soak
def test_the_main_job_raises_no_false_alarm(tmp_path):
    pytest.importorskip("torch")
    from dartsim.config import load
    from dartsim.run.execute import execute

    run, _ = execute(load("tiny", overrides=["run.hours=3.0"]), tmp_path)
    assert run.summary["alarms"] == []


def test_hung_desktops_starve_the_trainer_and_the_alarm_says_what_they_do(short):
    def spoil(system):
        provider = system.cluster.provider

        async def start(slot):
            env = await provider.start(slot)
            return env if system.recorder.clock() < 1800.0 else Instead(env, step=forever)

        system.cluster.provider = Instead(provider, start=start)

    limits = {"step_seconds": 14400.0, "lease_seconds": 14400.0}
    found = suffer(spoil, rollout={"limits": limits})
    assert names(found) == ["trainer_starved"]
    assert "desktops: 6 acting" in found[0].found
    assert found[0].since < found[0].raised


class TornWeights(WorkerFault):
    """Weights that are not the published ones, whenever they are loaded."""

    cause = "weights_torn"


def test_weights_that_are_torn_for_good_say_so_where_nothing_older_may_be_trained_on(short):
    """With a staleness bound of 0 nothing that the pool could make of old weights is of use: it is no silent stop."""

    async def refuse(weights, mode):
        await asyncio.sleep(30.0)
        raise TornWeights("the checksums differ")

    def spoil(system):
        for worker in system.pool.workers:
            worker.engine = Instead(worker.engine, load=refuse)

    found = suffer(spoil, hours=1.0, curation={"staleness": {"max_staleness": 0}})
    assert names(found)[:2] == ["engine_down", "trainer_starved"]
    assert all("weights_torn" in alarm.found for alarm in found[:2])


def test_an_engine_that_ends_raises_engine_down_and_the_others_serve_on(short):
    def spoil(system):
        worker = system.pool.workers[0]
        engine = worker.engine

        async def generate(request):
            if system.recorder.clock() < 1200.0:
                return await engine.generate(request)
            fault = WorkerFault("the engine ended")
            fault.back = forever
            raise fault

        worker.engine = Instead(engine, generate=generate)

    found = suffer(spoil)
    assert names(found) == ["engine_down"]
    assert "worker 0" in found[0].found
    assert found[0].since == pytest.approx(1200.0, abs=300.0)


def test_loads_that_fail_forever_raise_engine_down_although_each_try_is_short(short):
    async def fail(weights, mode):
        raise WorkerFault("torn weights")

    def spoil(system):
        worker = system.pool.workers[1]
        worker.engine = Instead(worker.engine, load=fail)

    found = suffer(spoil, rollout={"num_workers": 3})  # with two, the other takes no weights that are not proven
    assert names(found) == ["engine_down"]


@pytest.mark.parametrize("lent", [0, 1])
def test_tasks_that_nobody_can_do_starve_the_trainer_also_while_its_gpu_is_lent(short, lent):
    found = suffer(success_rate=0.0, rollout={"lending": {"engines": lent}})
    assert names(found) == ["trainer_starved"]
    assert "all_failed" in found[0].found


def finished(number, *, reward, ending=Ending.DONE):
    attempt = Attempt(number, Task("t", "Do it."), number // 4, number % 4, 0, 6, 0)
    return Trajectory(attempt, (), ending, reward, None if reward is not None else "ended", 0.0, 1.0)


def test_attempts_masked_counts_faults_and_nothing_that_was_canceled():
    recorder = Recorder(lambda: 0.0, num_envs=1, num_engines=1)
    recorder.start(())
    alarms = Alarms(recorder, batch_attempts=2)

    def end(numbers, ending):
        for number in numbers:
            masked = finished(number, reward=None, ending=ending)
            recorder.attempt_finished(masked)
            recorder.dropped((masked,), Drop.MASKED)

    end(range(8), Ending.BROKEN)
    recorder.counts["admitted_turns"] += 1
    assert alarms.look() == [], "there was a batch since"
    end(range(8, 40), Ending.CANCELLED)
    end(range(40, 47), Ending.BROKEN)
    assert alarms.look() == []
    end([47], Ending.BROKEN)
    (alarm,) = alarms.look()
    assert alarm.name == "attempts_masked"
    recorder.attempt_finished(finished(48, reward=1.0))
    alarms.look()
    assert alarm.cleared is not None


def test_worker_and_learner_that_disagree_raise_mismatch():
    def spoil(system):
        learner = system.trainer.learner

        async def update(batch):
            result = await learner.update(batch)
            return UpdateResult(
                result.weights, {**result.metrics, "importance/mismatch_mean": 0.3, "learner/mismatch_alarm": 1.0}
            )

        system.trainer.learner = Instead(learner, update=update)

    found = suffer(spoil)
    assert set(names(found)) == {"mismatch"}
    assert "0.3 nats" in found[0].found


def test_batches_that_cannot_be_trained_raise_untrainable():
    def spoil(system):
        learner, batches = system.trainer.learner, count()

        async def update(batch):
            if next(batches) % 2:
                raise BatchUntrainable("no log-probabilities")
            return await learner.update(batch)

        system.trainer.learner = Instead(learner, update=update)

    found = suffer(spoil)
    assert "untrainable" in names(found)
    assert {alarm.kind.code for alarm in found if alarm.name == "untrainable"} == {20}


def test_a_disk_that_fills_raises_disk_near_full_once():
    free = iter(range(2**33, 0, -(2**26)))
    found = suffer(disk=lambda: next(free, 0))
    assert names(found) == ["disk_near_full"]


def test_starts_that_fail_starve_the_trainer_and_their_cause_is_named(short):
    async def start(slot):
        raise EnvStartFailed("no room on the host")

    def spoil(system):
        system.cluster.provider = Instead(system.cluster.provider, start=start)

    found = suffer(spoil)
    assert names(found)[-1] in ("trainer_starved", "attempts_masked")
    assert "EnvStartFailed: no room on the host" in found[0].found


def test_an_alarm_is_over_when_its_cause_is():
    use = []

    def disk():
        use.append(0)
        return 0 if 20 < len(use) < 40 else 2**40

    (alarm,) = suffer(disk=disk)
    assert alarm.cleared is not None
    assert alarm.cleared > alarm.raised


def test_every_alarm_has_its_own_exit_code():
    codes = [kind.code for kind in KINDS.values()]
    assert len(set(codes)) == len(codes)
    assert set(codes) <= set(range(10, 30))


def test_what_was_counted_before_a_resume_is_no_alarm():
    recorder = Recorder(lambda: 50_000.0, num_envs=1, num_engines=1)
    recorder.started = 0.0  # as of a run that goes on after 14 hours
    for name in ("dropped/masked", "dropped/too_small", "learner/mismatch_alarm", "learner/untrainable"):
        recorder.counts[name] = 100_000
    recorder.counts["trajectories"] = 200_000
    assert Alarms(recorder, batch_attempts=8, free_bytes=lambda: 2**40).look() == []
