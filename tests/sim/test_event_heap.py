"""The heap and the ready queue in C do what those in Python do."""

import asyncio
import gc
import importlib.util
import sys
import weakref
from importlib.machinery import ExtensionFileLoader, SourceFileLoader
from pathlib import Path

import pytest
import simpy
from hypothesis import given, settings
from hypothesis import strategies as st

import dartsim.sim

FOLDER = Path(dartsim.sim.__file__).parent
HEAP = "dartsim.sim.event_heap"
IMPORTERS = ("environment", "loop")
"""Modules whose classes inherit from the heap's; each form gets modules of its own."""


def loaded(loader):
    """Return the heap that a loader loads, and the environment and loop made of it."""
    names = [HEAP, *(f"dartsim.sim.{name}" for name in IMPORTERS)]
    before = {name: sys.modules.pop(name) for name in names}
    try:
        sys.modules[HEAP] = heap = importlib.util.module_from_spec(importlib.util.spec_from_loader(HEAP, loader))
        loader.exec_module(heap)
        return heap, *(importlib.import_module(name) for name in names[1:])
    finally:
        sys.modules.update(before)
        for name, module in before.items():
            setattr(dartsim.sim, name.rpartition(".")[2], module)


@pytest.fixture(scope="module")
def forms(compiled_source):
    path = compiled_source("event_heap")
    return (
        loaded(SourceFileLoader(HEAP, str(FOLDER / "event_heap.py"))),
        loaded(ExtensionFileLoader(HEAP, str(path))),
    )


times = st.sampled_from([0.0, 0.5, 1.0, 1, 7.25, 1e9])
steps = st.one_of(
    st.tuples(st.sampled_from(["call_at", "call_in", "later"]), times),
    st.tuples(st.just("priority"), st.sampled_from([-1, 0, 1]), times),
    st.tuples(st.just("cancel"), st.integers(0, 400)),
    st.tuples(st.just("cancel many"), st.integers(2, 9)),
    st.tuples(st.sampled_from(["pop", "fill", "bad"])),
)


def drive(form, program):
    """Do the steps on a heap; return what could be seen of it."""
    _, _, loops = form
    loop = loops.SimLoop()
    env, items, seen = loop.env, [], []

    def number(item):
        return None if item is None else next(i for i, each in enumerate(items) if each is item)

    for kind, *arguments in program:
        if kind in ("call_at", "call_in"):
            base = env.now if kind == "call_at" else 0.0
            items.append(getattr(env, kind)(base + arguments[0], print, len(items)))
        elif kind == "later":
            items.append(loop.call_later(arguments[0], print, len(items)))
        elif kind == "priority":
            items.append(env.call_with_priority(env.now + arguments[1], arguments[0], print))
        elif kind == "fill":
            items += [env.call_in(i % 13, print) for i in range(100)]
        elif kind == "cancel many":
            for item in items[:: arguments[0]]:
                item.cancel()
        elif kind == "cancel" and items:
            item = items[arguments[0] % len(items)]
            item.cancel()
            seen.append((item.cancelled(), item.when()))
        elif kind == "pop" and env.head() is not None:
            env._now = max(env._now, env.peek())
            seen.append(number(env.pop()))
        elif kind == "bad":
            for call in (lambda: env.call_at(env.now - 1.0, print), lambda: env.call_in(-1, print)):
                with pytest.raises(ValueError, match="call_") as error:
                    call()
                seen.append(str(error.value))
        seen.append((env.now, env.peek(), env.num_entries, number(env.head()), len(env.timers())))
    loop.close()
    return seen


@settings(max_examples=100)
@given(program=st.lists(steps, max_size=40))
def test_both_forms_keep_the_same_order(forms, program):
    assert drive(forms[0], program) == drive(forms[1], program)


@pytest.fixture(scope="module")
def differential(module_of):
    return module_of(Path(__file__).with_name("test_loop_differential.py"))


@settings(max_examples=60)
@given(data=st.data())
def test_random_programs_run_alike_to_the_event_hash(forms, differential, data):
    program = data.draw(differential.programs)
    seen = []
    for _, _, loops in forms:
        made = []

        def make_loop(loops=loops, made=made):
            made.append(loops.SimLoop())
            return made[-1]

        seen.append((differential.run_on(make_loop, program), made[0].event_hash, made[0].num_events))
    assert seen[0] == seen[1]


def queueing(env, log):
    """SimPy's own classes: a resource, interrupts, conditions, a failure that is caught."""
    desk = simpy.Resource(env, capacity=2)

    def customer(number):
        try:
            with desk.request() as turn:
                yield turn | env.timeout(number % 4 + 0.25)
                yield env.timeout(1.5)
                log.append((env.now, number, turn.triggered))
        except simpy.Interrupt as interrupt:
            log.append((env.now, number, interrupt.cause))

    def closing(customers):
        yield env.timeout(3)
        for each in customers:
            if each.is_alive:
                each.interrupt("closed")
        failed = env.event()
        env.call_in(1.0, failed.fail, ValueError("late"))
        try:
            yield failed
        except ValueError as error:
            log.append((env.now, str(error)))
        return "done"

    return env.process(closing([env.process(customer(number)) for number in range(8)]))


def test_simpy_processes_run_alike(forms):
    logs = []
    for _, environments, _ in forms:
        log = []
        env = environments.SimEnvironment()
        end = queueing(env, log)
        env.run(until=2.5)
        log += [env.now, env.run(until=end), env.now, env.peek()]
        env.event().fail(ValueError("nobody waits"))
        with pytest.raises(ValueError, match="nobody waits"):
            env.run()
        logs.append(log)
    assert logs[0] == logs[1]
    assert "done" in logs[0]


def test_a_loop_in_c_leaves_no_reference_behind(forms):
    """A loop with timers that point back at it is freed with all it holds."""
    for _, _, loops in forms:

        class Marker:
            pass

        async def main():
            loop, marker = asyncio.get_running_loop(), Marker()
            loop.call_later(1e6, lambda: (loop, marker))
            loop.env.call_in(1e6, lambda: (loop, marker))
            loop.call_soon(lambda: (loop, marker))
            return weakref.ref(marker)

        loop = loops.SimLoop()
        marker = loop.run_until_complete(main())
        assert marker() is not None
        del loop
        gc.collect()
        assert marker() is None
