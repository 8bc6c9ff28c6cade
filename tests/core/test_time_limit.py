"""``TimeLimit`` does as ``asyncio.timeout``."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.core.time_limit import TimeLimit
from dartsim.sim import run_virtual

MOMENTS = st.sampled_from([0.0, 1.0, 2.0, 3.0])
MAYBE = st.none() | MOMENTS


class Reference:
    """``asyncio.timeout`` with the methods of a ``TimeLimit``."""

    def __init__(self, seconds):
        self._timeout = asyncio.timeout(seconds)

    @property
    def expired(self):
        return self._timeout.expired()

    async def __aenter__(self):
        await self._timeout.__aenter__()
        return self

    async def __aexit__(self, *exc):
        return await self._timeout.__aexit__(*exc)

    def end_now(self):
        if not self.expired:
            self._timeout.reschedule(asyncio.get_running_loop().time())

    def lift(self):
        if not self.expired:
            self._timeout.reschedule(None)


class Awaited:
    """A ``TimeLimit`` for ``async with``, so that one test has both."""

    def __init__(self, seconds):
        self._limit = TimeLimit(seconds)

    async def __aenter__(self):
        return self._limit.__enter__()

    async def __aexit__(self, *exc):
        return self._limit.__exit__(*exc)


async def history(kind, seconds, outer, work, ended, lifted, canceled):
    """Return what happens to a block, with another limit around it, that is ended, lifted and canceled meanwhile."""
    loop = asyncio.get_running_loop()
    seen = []
    scopes = []

    async def block():
        try:
            async with kind(outer) as around:
                scopes.append(around)
                try:
                    async with kind(seconds) as scope:
                        scopes.append(scope)
                        for at, act in ((ended, scope.end_now), (lifted, scope.lift)):
                            if at is not None:
                                loop.call_at(at, lambda act=act: loop.time() < left[0] and act())
                        await asyncio.sleep(work)
                        seen.append("worked")
                finally:
                    left[0] = loop.time()
                seen.append("went on")
        except TimeoutError:
            seen.append(("timed out", loop.time()))

    left = [10.0]
    task = asyncio.ensure_future(block())
    if canceled is not None:
        loop.call_at(canceled, task.cancel)
    await asyncio.wait([task])
    return (*seen, task.cancelled(), task.cancelling(), loop.time(), [scope.expired for scope in scopes])


@given(MAYBE, MAYBE, MOMENTS, MAYBE, MAYBE, MAYBE)
def test_it_does_as_asyncio_timeout(seconds, outer, work, ended, lifted, canceled):
    does, wanted = (
        run_virtual(history(kind, seconds, outer, work, ended, lifted, canceled)) for kind in (Awaited, Reference)
    )
    assert does == wanted


async def test_the_cancellation_is_the_cause():
    with pytest.raises(TimeoutError) as caught, TimeLimit(1.0):
        await asyncio.sleep(5.0)
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)


async def test_what_the_block_raises_itself_is_kept():
    with pytest.raises(TimeoutError, match="of its own"), TimeLimit(5.0) as limit:
        raise TimeoutError("of its own")
    assert not limit.expired


async def test_after_the_block_nothing_is_canceled():
    with TimeLimit(1.0) as limit:
        pass
    limit.end_now()
    await asyncio.sleep(5.0)
    assert not limit.expired


def test_it_needs_a_task():
    async def outside():
        asyncio.get_running_loop().call_soon(enter)
        await asyncio.sleep(1.0)

    errors = []

    def enter():
        try:
            TimeLimit(1.0).__enter__()
        except RuntimeError as error:
            errors.append(str(error))

    run_virtual(outside())
    assert errors == ["a time limit needs a task, which it can cancel"]
