"""Conformance checks of the ports, the same for simulated and real implementations.

Each uses an implementation of a port as the control plane does, and raises ``InvariantViolated`` at the first result
that the port does not allow. They need a running loop, real or virtual, and no test framework.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from typing_extensions import override

from dartsim.core.errors import EnvFault, InvariantViolated, WorkerRestarted
from dartsim.core.ports import AsyncEnv, EnvProvider, Learner, PolicyWorker, Resumable, Store
from dartsim.core.snapshots import snapshots_of
from dartsim.core.sync_modes import SyncMode
from dartsim.core.types import (
    Attempt,
    Batch,
    Drop,
    Ending,
    Group,
    Observation,
    Reply,
    Request,
    StoredSuccess,
    Task,
    Trajectory,
    TrajectoryState,
    Turn,
    Turns,
    UpdateResult,
    Version,
    Weights,
)

TASK = Task("check", "Save the document.")
"""The task of the checks, unless the caller names one."""

OTHER_TASK = Task("other-check", "Open the document.")

NONSENSE = "this is no action"
"""A malformed action, which is not a fault of the desktop."""


def sample_attempt(number: int = 0, task: Task = TASK) -> Attempt:
    """Return an attempt for checks."""
    return Attempt(number, task, group=number, index=0, seed=number, turn_limit=30, version=0)


def sample_trajectory(number: int, *, reward: float | None = 1.0, num_turns: int = 2) -> Trajectory:
    """Return a finished attempt for checks; one without a reward is masked."""
    reply = Reply("WAIT", version=0, oldest_version=0, worker=0, prompt_tokens=100, response_tokens=10)
    turns = Turns([Turn(Observation(None, TASK.instruction), reply)] * num_turns)
    ending = Ending.BROKEN if reward is None else Ending.DONE
    cause = "EnvBroken" if reward is None else None
    return Trajectory(sample_attempt(number), turns, ending, reward, cause, started=0.0, finished=60.0)


def sample_batch(trajectories: Sequence[Trajectory], update: int = 1) -> Batch:
    """Return a batch of one group for checks."""
    return Batch(update, update - 1, (Group(0, TASK, tuple(trajectories), ready=60.0),))


class SampleState(Resumable):
    """The state of a scheduler, for checks of stores."""

    def __init__(self, documents: Mapping[str, Any]) -> None:
        self._documents = documents

    @override
    def documents(self) -> Mapping[str, Any]:
        return self._documents

    @override
    def successes(self) -> Iterable[StoredSuccess]:
        return ()


def check_store(make_store: Callable[[], Store]) -> None:
    """Check that a store follows the states of a trajectory, refuses every other transition, and resumes.

    Args:
        make_store: Opens the store: empty at the first call; later, if it is resumable, with its contents.
    """
    store = make_store()
    first, second, third, masked = (sample_trajectory(n, reward=None if n == 3 else 1.0) for n in range(4))
    batch = sample_batch((first, second))
    _refuses("lease a trajectory that was never recorded", lambda: store.lease(batch))
    for trajectory in (first, second, third, masked):
        store.record(trajectory)
    _require_states(store, dict.fromkeys(range(4), TrajectoryState.RECORDED))
    _refuses("record a trajectory twice", lambda: store.record(first))
    _refuses("train an unleased batch", lambda: store.trained(batch, 1))
    _refuses("release an unleased batch", lambda: store.release(batch))
    store.drop((), Drop.STALE)
    store.drop((masked,), Drop.MASKED)
    _refuses("drop a trajectory twice", lambda: store.drop((masked,), Drop.STALE))
    _refuses("lease a dropped trajectory", lambda: store.lease(sample_batch((third, masked))))
    store.eligible(Group(2, TASK, (third,), ready=60.0))
    _refuses("mark a trajectory as eligible twice", lambda: store.eligible(Group(2, TASK, (third,), ready=60.0)))
    store.lease(batch)
    _refuses("lease a batch twice", lambda: store.lease(batch))
    _refuses("drop a leased trajectory", lambda: store.drop((first,), Drop.STALE))
    store.release(batch)
    store.give_up([1], Drop.LOST)
    retried = sample_batch((first, third))
    store.lease(retried)
    store.release(retried)
    _require_states(store, {0: TrajectoryState.RECORDED, 2: TrajectoryState.ELIGIBLE})
    store.lease(retried)
    store.trained(retried, 1)
    _refuses("train a batch twice", lambda: store.trained(retried, 1))
    _refuses("release a trained batch", lambda: store.release(retried))
    _refuses("lease a trained trajectory", lambda: store.lease(sample_batch((first,), update=2)))
    _refuses("drop a trained trajectory", lambda: store.drop((first,), Drop.UNUSED))
    _require_states(store, {}, trained=2, dropped=2)
    _check_resuming(make_store, store)


def _check_resuming(make_store: Callable[[], Store], store: Store) -> None:
    """Check that a store that has finished update 1 keeps its documents, and releases leased trajectories."""
    store.save({"kept": [1, 2.5, None], "replaced": "old"})
    store.save({"replaced": "new"})
    _require(
        store.documents() == {"kept": [1, 2.5, None], "replaced": "new"}, "a store's documents are not those saved"
    )
    left = sample_trajectory(4)
    store.record(left)
    store.lease(sample_batch((left,), update=2))
    store.settle(SampleState({"replaced": "settled"}), now=True)
    store.suspend()
    if store.resumable:
        store.record(sample_trajectory(5))
        store.close()
        store = make_store()
        _require(store.documents()["replaced"] == "settled", "a store does not have the documents of the last settling")
    recovered = store.recover()
    state = (recovered.update, recovered.version, recovered.returned)
    _require(state == (1, 1, (4,)), f"a store recovered update, version, returned attempts {state}, wanted 1, 1, (4,)")
    _require_states(store, {4: TrajectoryState.RECORDED})
    restored = store.restore(recovered, known=())
    _require(restored.live == {4}, f"a store restored the live attempts {set(restored.live)}, wanted {{4}}")
    store.clear()
    _require_states(store, {})
    _require(not store.documents(), "a store that was cleared still has documents")
    store.close()
    store.close()


def _require_states(
    store: Store, live: Mapping[int, TrajectoryState], *, trained: int | None = None, dropped: int | None = None
) -> None:
    _require(dict(store.live) == live, f"the live trajectories are {dict(store.live)}, wanted {live}")
    for state, wanted in ((TrajectoryState.TRAINED, trained), (TrajectoryState.DROPPED, dropped)):
        count = store.counts.get(state, 0)
        _require(wanted is None or count == wanted, f"{count} trajectories are {state}, wanted {wanted}")


async def check_env(env: AsyncEnv, task: Task = TASK) -> None:
    """Check that a fresh desktop is set up, acts, ends on DONE, is scored, and can be closed twice."""
    _check_observation(await env.reset(task, seed=1), task)
    for action in ("WAIT", NONSENSE):
        observation, over = await env.step(action)
        _check_observation(observation, task)
        _require(over is False, f"the desktop says the episode is over after {action!r}, which ends none")
    observation, over = await env.step("DONE")
    _check_observation(observation, task)
    _require(over is True, "the desktop does not say that the episode is over after DONE")
    score = await env.evaluate()
    _require(0.0 <= score <= 1.0, f"the desktop was scored {score}, wanted a number in [0, 1]")
    await env.close()
    await env.close()


async def check_env_provider(
    provider: EnvProvider, *, slots: Sequence[int] = (0, 1), cancel_after: Sequence[float] = (0.0, 1.0)
) -> None:
    """Check that desktops start concurrently, again one after another, and after canceled starts.

    Args:
        provider: Starts them.
        slots: Slots to start them for, all at once.
        cancel_after: Seconds after which a start of the first slot is canceled; each is tried.
    """
    for _ in range(2):
        desktops = await asyncio.gather(*(provider.start(slot) for slot in slots))
        _require(len(set(map(id, desktops))) == len(slots), "two slots were given the same desktop")
        await asyncio.gather(*(check_env(desktop) for desktop in desktops))
    for seconds in cancel_after:
        starting = asyncio.ensure_future(provider.start(slots[0]))
        await asyncio.sleep(seconds)
        starting.cancel()
        await asyncio.wait([starting])
        if not starting.cancelled():
            await starting.result().close()
    await check_env(await provider.start(slots[0]))


async def check_snapshots(
    provider: EnvProvider,
    task: Task = TASK,
    other: Task = OTHER_TASK,
    *,
    act: str = "WAIT",
    slots: tuple[int, int] = (0, 1),
    same: Callable[[Any, Any], bool] = np.array_equal,
) -> None:
    """Check that desktops return to saved states, their own and each other's, with nothing else left over.

    Args:
        provider: Starts desktops that save their states.
        task: A task with a set-up.
        other: Another one.
        act: An action that changes the state of ``task``.
        slots: Two slots on one host.
        same: Whether two screenshots count as equal.
    """
    first, second = [await provider.start(slot) for slot in slots]
    saved, shared = snapshots_of(first), snapshots_of(second)
    if saved is None or shared is None:
        raise InvariantViolated("a desktop has no snapshots")
    _require(await saved.save("booted") >= 0, "a saved state has a negative size")
    shown = await first.reset(task, seed=1)
    _require(await saved.save("task") >= 0, "a saved state has a negative size")
    at_first = await first.evaluate()
    for desktop, snapshots, seed in ((first, saved, 2), (second, shared, 3)):
        if snapshots.host != saved.host:
            continue
        await first.step(act)
        await snapshots.restore("task")
        again = await desktop.reset(task, seed=seed)
        _check_observation(again, task)
        _require(same(shown.screenshot, again.screenshot), "a restored desktop shows another screen than when saved")
        score = await desktop.evaluate()
        _require(score == at_first, f"a restored desktop is scored {score}, and {at_first} when it was saved")
    await first.step(act)
    await first.step("DONE")
    if shared.host == saved.host:
        score = await second.evaluate()
        _require(score == at_first, f"actions on one desktop changed another's score from {at_first} to {score}")
    await saved.restore("booted")
    _check_observation(await first.reset(other, seed=4), other)
    await saved.delete("task")
    await saved.delete("task")
    for key in ("task", "never saved"):
        try:
            await saved.restore(key)
        except EnvFault:
            await first.close()
            first = await provider.start(slots[0])
            saved = snapshots_of(first) or saved
        else:
            raise InvariantViolated(f"a desktop returned to a state {key!r} that was not there")
    await first.close()
    await second.close()


async def check_policy_worker(
    worker: PolicyWorker,
    observation: Observation | None = None,
    *,
    source: object = None,
) -> None:
    """Check that a worker answers, forgets canceled requests, and loads weights in each of its sync modes.

    Args:
        worker: A worker that is up, has no request, and serves version 0.
        observation: The observation of its requests.
        source: Source of the weights of every version.
    """
    seen = observation or Observation(None, TASK.instruction)

    def ask(number: int) -> asyncio.Future[Reply]:
        return asyncio.ensure_future(worker.generate(Request(sample_attempt(number), 0, seen, [])))

    version = 0
    _check_reply(await ask(0), version, version)
    cancelled = ask(1)
    await asyncio.sleep(0)
    cancelled.cancel()
    await asyncio.wait([cancelled])
    for mode in SyncMode:
        live = [] if mode.drains else [ask(2), ask(3)]
        await asyncio.sleep(0)
        await worker.load(Weights(version + 1, source), mode)
        for request in live:
            try:
                _check_reply(await request, version, version + 1)
            except WorkerRestarted:
                _require(mode.kills_requests, f"a weight sync in mode {mode} killed a request")
        version += 1
        _check_reply(await ask(4), version, version)


async def check_learner(learner: Learner, batch: Batch | None = None) -> None:
    """Check that an update returns the version of its number, with metrics that are numbers."""
    batch = batch or sample_batch((sample_trajectory(0), sample_trajectory(1, reward=0.0)))
    result = await learner.update(batch)
    _require(isinstance(result, UpdateResult), f"the learner returned {result!r}, wanted an UpdateResult")
    version = result.weights.version
    _require(version == batch.update, f"update {batch.update} made version {version}, wanted the same number")
    for name, value in result.metrics.items():
        _require(isinstance(value, (int, float)), f"the metric {name} is {value!r}, wanted a number")


def _check_observation(observation: Observation, task: Task) -> None:
    screen = observation.screenshot
    shape, dtype = getattr(screen, "shape", None), str(getattr(screen, "dtype", None))
    fits = shape is not None and len(shape) == 3 and shape[2] == 3 and dtype == "uint8"
    _require(fits, f"a screenshot is {dtype} {shape}, wanted uint8 [height, width, 3]")
    shown, wanted = observation.instruction, task.instruction
    _require(shown == wanted, f"the desktop shows the instruction {shown!r}, wanted {wanted!r}")


def _check_reply(reply: Reply, oldest: Version, newest: Version) -> None:
    _require(isinstance(reply.action, str), f"an action is {reply.action!r}, wanted a string")
    _require(
        oldest <= reply.oldest_version <= reply.version <= newest,
        f"a reply says it was generated by versions {reply.oldest_version} to {reply.version}, while versions "
        f"{oldest} to {newest} were served",
    )
    tokens = (reply.prompt_tokens, reply.response_tokens)
    _require(min(tokens) >= 1, f"a reply counts {tokens} prompt and response tokens, wanted at least 1")
    cached, most = reply.cached_tokens, reply.prompt_tokens
    _require(
        cached is None or 0 <= cached <= most,
        f"a reply counts {cached} tokens found in the prefix cache, wanted 0 to {most}, those of the prompt, or None",
    )


def _refuses(what: str, call: Callable[[], None]) -> None:
    try:
        call()
    except InvariantViolated:
        return
    raise InvariantViolated(f"the store let the caller {what}")


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise InvariantViolated(message)
