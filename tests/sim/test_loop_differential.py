"""Random asyncio programs do the same, in the same order, on SimLoop and on CPython's own event loop.

The reference is the standard selector loop, whose clock jumps to its next timer instead of waiting for it:
all of its logic is CPython's. Every delay of a program is a different square root of a prime, so that no two
timers of different origin fall due at once (the standard loop leaves the order of equal timers open).
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import math
import selectors

from hypothesis import given, settings
from hypothesis import strategies as st

from dartsim.sim.loop import SimLoop
from dartsim.sim.tasks import pending_tasks, sim_task_factory

PRIMES = [n for n in range(2, 2000) if all(n % d for d in range(2, math.isqrt(n) + 1))]


class JumpingSelector(selectors.DefaultSelector):
    """Sleeps by moving the clock of its loop."""

    loop = None

    def select(self, timeout=None):
        assert timeout is not None, "the reference loop would wait forever"
        if timeout > 0:
            self.loop.clock = self.loop._scheduled[0]._when
        return super().select(0)


class ReferenceLoop(asyncio.SelectorEventLoop):
    """CPython's loop on a clock that jumps."""

    def __init__(self):
        self.clock = 0.0
        selector = JumpingSelector()
        super().__init__(selector)
        selector.loop = self
        # The order in which a set of tasks is iterated is no behavior of either loop.
        self._serials = itertools.count()
        self.set_task_factory(sim_task_factory)

    def time(self):
        return self.clock


leaves = st.one_of(
    st.tuples(st.sampled_from(["sleep", "sleep", "sleep", "yield", "raise", "log", "context", "later", "soon"])),
    st.tuples(st.sampled_from(["put", "get", "join", "set", "clear", "wait", "notify", "notify_all", "cond"])),
)


def nodes(inner):
    body = st.lists(inner, min_size=1, max_size=4)
    bodies = st.lists(body, min_size=1, max_size=3)
    one = ["timeout", "wait_for", "shield", "cancel", "agen", "sem", "lock", "spawn", "uncancel", "repeat"]
    many = ["group", "gather", "gather_exc", "wait_first", "as_completed"]
    return st.one_of(st.tuples(st.sampled_from(one), body), st.tuples(st.sampled_from(many), bodies))


programs = st.lists(st.recursive(leaves, nodes, max_leaves=12), min_size=1, max_size=6)


class Interpreter:
    """Runs one program and logs what happens when."""

    def __init__(self):
        self.log = []
        self.delays = itertools.cycle([math.sqrt(p) for p in PRIMES])
        self.labels = itertools.count()
        self.var = contextvars.ContextVar("var", default=0)
        self.queue, self.event = asyncio.Queue(maxsize=1), asyncio.Event()
        self.semaphore, self.lock, self.condition = asyncio.Semaphore(2), asyncio.Lock(), asyncio.Condition()
        self.spawned = []

    def say(self, *facts):
        self.log.append((asyncio.get_running_loop().time(), *facts))

    async def top(self, program):
        try:
            async with asyncio.timeout(500):
                await self.run(program)
        except BaseException as exc:
            self.say("top", type(exc).__name__)
        for task in self.spawned:
            task.cancel()
        for result in await asyncio.gather(*self.spawned, return_exceptions=True):
            self.say("spawned", type(result).__name__)

    async def run(self, body):
        label = next(self.labels)
        self.say("begin", label)
        try:
            for kind, *arguments in body:
                result = await getattr(self, f"do_{kind}")(*arguments)
                self.say(kind, label, result)
        except BaseException as exc:
            self.say("except", label, type(exc).__name__)
            raise
        finally:
            self.say("end", label, self.var.get())
        return label

    async def do_sleep(self):
        return await asyncio.sleep(next(self.delays), "slept")

    async def do_yield(self):
        await asyncio.sleep(0)

    async def do_raise(self):
        raise LookupError

    async def do_log(self):
        return asyncio.current_task().cancelling()

    async def do_context(self):
        self.var.set(next(self.labels))

    async def do_later(self):
        asyncio.get_running_loop().call_later(next(self.delays), lambda: self.say("later", self.var.get()))

    async def do_soon(self):
        asyncio.get_running_loop().call_soon(lambda: self.say("soon", self.var.get()))

    async def do_put(self):
        await self.queue.put(next(self.labels))

    async def do_get(self):
        item = await self.queue.get()
        self.queue.task_done()
        return item

    async def do_join(self):
        await self.queue.join()

    async def do_set(self):
        self.event.set()

    async def do_clear(self):
        self.event.clear()

    async def do_wait(self):
        await self.event.wait()

    async def do_cond(self):
        async with self.condition:
            await self.condition.wait()

    async def do_notify(self):
        async with self.condition:
            self.condition.notify()

    async def do_notify_all(self):
        async with self.condition:
            self.condition.notify_all()

    async def do_sem(self, body):
        async with self.semaphore:
            await self.run(body)

    async def do_lock(self, body):
        async with self.lock:
            await asyncio.sleep(next(self.delays))
        return await self.run(body)

    async def do_timeout(self, body):
        try:
            async with asyncio.timeout(next(self.delays)) as deadline:
                await self.run(body)
                deadline.reschedule(deadline.when() + next(self.delays))
                await asyncio.sleep(next(self.delays))
        except TimeoutError:
            return "timed out"

    async def do_wait_for(self, body):
        try:
            return await asyncio.wait_for(self.run(body), next(self.delays))
        except TimeoutError:
            return "timed out"

    async def do_shield(self, body):
        inner = asyncio.ensure_future(self.run(body))
        self.spawned.append(inner)
        try:
            return await asyncio.wait_for(asyncio.shield(inner), next(self.delays))
        except TimeoutError:
            return inner.done()

    async def do_cancel(self, body):
        task = asyncio.create_task(self.run(body))
        await asyncio.sleep(next(self.delays))
        task.cancel()
        try:
            return await task
        except (asyncio.CancelledError, LookupError) as exc:
            return type(exc).__name__

    async def do_uncancel(self, body):
        asyncio.get_running_loop().call_later(next(self.delays), asyncio.current_task().cancel)
        try:
            await self.run(body)
            await asyncio.sleep(next(self.delays))
        except asyncio.CancelledError:
            return asyncio.current_task().uncancel()

    async def do_spawn(self, body):
        self.spawned.append(asyncio.create_task(self.run(body), context=contextvars.copy_context()))

    async def do_agen(self, body):
        async def generate():
            try:
                for item in range(3):
                    yield item
                    await self.run(body)
            finally:
                await asyncio.sleep(next(self.delays))
                self.say("generator closed")

        agen = generate()
        async for item in agen:
            if item == 1:
                break
        await agen.aclose()

    async def do_repeat(self, body):
        for _ in range(2):
            await self.run(body)

    async def do_group(self, bodies):
        try:
            async with asyncio.TaskGroup() as group:
                for body in bodies:
                    group.create_task(self.run(body))
                await asyncio.sleep(next(self.delays))
        except* LookupError as errors:
            self.say("group", len(errors.exceptions))

    async def do_gather(self, bodies):
        return await asyncio.gather(*map(self.run, bodies))

    async def do_gather_exc(self, bodies):
        return [repr(r) for r in await asyncio.gather(*map(self.run, bodies), return_exceptions=True)]

    async def do_wait_first(self, bodies):
        tasks = [asyncio.create_task(self.run(body)) for body in bodies]
        self.spawned += tasks
        done, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return len(done), len(pending)

    async def do_as_completed(self, bodies):
        tasks = [asyncio.create_task(self.run(body)) for body in bodies]
        self.spawned += tasks
        return [await task for task in asyncio.as_completed(tasks, timeout=next(self.delays))]


def run_on(make_loop, program):
    loop, log = make_loop(), []

    def note_failure(loop, context):
        if "never retrieved" not in context["message"]:  # said when the garbage collector comes by
            log.append((loop.time(), context["message"]))

    loop.set_exception_handler(note_failure)

    async def main():
        interpreter = Interpreter()
        interpreter.log = log
        await interpreter.top(program)

    try:
        try:
            loop.run_until_complete(main())
        except asyncio.CancelledError:  # a program may cancel a task that its last gather waits for
            log.append((loop.time(), "cancelled"))
        while tasks := pending_tasks(loop):
            for task in tasks:
                task.cancel()
            loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())
    finally:
        loop.close()
    return log


@settings(max_examples=150)
@given(programs)
def test_random_programs_run_as_on_the_standard_loop(program):
    assert run_on(SimLoop, program) == run_on(ReferenceLoop, program)


def test_the_reference_is_able_to_disagree():
    """A loop that fires one timer, drains its consequences, and then fires the next one, is told apart."""

    async def main():
        log, loop = [], asyncio.get_running_loop()
        loop.call_at(1.0, lambda: loop.call_soon(log.append, "consequence"))
        loop.call_at(1.0, log.append, "second timer")
        await asyncio.sleep(2)
        return log

    class NaiveLoop(SimLoop):
        def _spin(self):
            while not self._stopping:
                if not self._ready:
                    self.env._now = self.env.peek()
                    self._ready.append(self.env.pop())
                handle = self._ready.popleft()
                if handle._call:
                    handle._context.run(*handle._call)

    logs = {}
    for make_loop in (SimLoop, ReferenceLoop, NaiveLoop):
        loop = make_loop()
        logs[make_loop] = loop.run_until_complete(main())
        loop.close()
    assert logs[SimLoop] == logs[ReferenceLoop] == ["second timer", "consequence"]
    assert logs[NaiveLoop] == ["consequence", "second timer"]
