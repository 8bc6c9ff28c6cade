"""Installations of Debian's packages: what is left of one that is canceled."""

import asyncio
import threading

import psutil
import pytest

from dartsim.core.errors import ConfigError
from dartsim.real.desktop import debian

pytestmark = pytest.mark.anyio

# As mmdebstrap does, its first process waits for the others whatever it is told.
MMDEBSTRAP = """#!/bin/sh
trap : TERM
sh -c 'echo $$; exec sleep 600' &
wait
wait
"""


@pytest.fixture
def mmdebstrap(tmp_path, monkeypatch):
    program = tmp_path / "mmdebstrap"
    program.write_text(MMDEBSTRAP)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setattr(debian, "mirror", lambda: debian.DEFAULT_MIRROR)


async def test_an_installation_that_is_canceled_ends_its_programs(mmdebstrap, tmp_path):
    loop, lines = asyncio.get_running_loop(), asyncio.Queue[str]()

    def on_line(line: str) -> None:
        loop.call_soon_threadsafe(lines.put_nowait, line)

    ended = asyncio.Event()

    def install() -> None:
        try:
            debian.make_debian(tmp_path, ["busybox"], on_line)
        finally:
            loop.call_soon_threadsafe(ended.set)

    installing = asyncio.create_task(debian.in_thread(install))
    sleeping = psutil.Process(int(await lines.get()))
    installing.cancel()
    await ended.wait()
    assert not sleeping.is_running()


async def test_an_installation_that_was_canceled_starts_nothing_more(mmdebstrap, tmp_path):
    loop, begun, waiting = asyncio.get_running_loop(), asyncio.Event(), threading.Event()
    faults = asyncio.Queue[BaseException]()

    def install() -> None:
        loop.call_soon_threadsafe(begun.set)
        waiting.wait()
        try:
            debian.make_debian(tmp_path, ["busybox"], lambda line: None)
        except ConfigError as error:
            loop.call_soon_threadsafe(faults.put_nowait, error)

    installing = asyncio.create_task(debian.in_thread(install))
    await begun.wait()
    installing.cancel()
    await asyncio.wait({installing})
    waiting.set()
    assert "canceled" in str(await faults.get())
