"""Servers that stand in for others: each is a process, and prints its addresses as soon as it serves."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

from aiohttp import web

import dartsim.core
from dartsim.core.errors import ConfigError
from dartsim.real.processes import end_with

_ROOT = Path(dartsim.core.__file__).resolve().parents[2]
START_SECONDS = 300.0
ENGINE = ("-m", "dartsim.real.stand_ins.engine")
"""Arguments of an interpreter that runs a stand-in engine, followed by those of a vLLM server."""
PATH = {"PYTHONPATH": str(_ROOT)}
"""Lets an interpreter find this package."""


async def runner_of(app: web.Application, host: str, port: int) -> tuple[web.AppRunner, int]:
    """Serve an application until its runner is cleaned up; return the runner and the port, any if 0 was asked for."""
    # A client may leave, and the server does not wait for those that stay.
    runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=0.0)
    await runner.setup()
    await web.TCPSite(runner, host, port, backlog=1024).start()
    return runner, int(runner.addresses[0][1])


async def serve(apps: Sequence[web.Application], host: str, ports: Sequence[int]) -> None:
    """Serve applications, print their addresses as a JSON list, and return only when canceled; port 0 is any."""
    served = [await runner_of(app, host, port) for app, port in zip(apps, ports, strict=True)]
    addresses = [f"http://{host}:{port}" for _, port in served]
    print(json.dumps(addresses), flush=True)  # noqa: T201 - how the parent learns them
    await asyncio.get_running_loop().create_future()


@asynccontextmanager
async def stand_in(module: str, *arguments: str) -> AsyncIterator[list[str]]:
    """Run a stand-in of this package as a process and yield its addresses; it ends with the block or this process.

    Raises:
        ConfigError: If it does not come up.
    """
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        f"{__package__}.{module}",
        *arguments,
        env={**os.environ, "PYTHONPATH": path},
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        preexec_fn=partial(end_with, os.getpid(), signal.SIGTERM),
    )
    assert process.stdout is not None
    try:
        try:
            line = await asyncio.wait_for(process.stdout.readline(), START_SECONDS)
        except TimeoutError:
            line = b""
        if not line:
            raise ConfigError(f"the stand-in {module!r} did not start; what it wrote is above")
        yield json.loads(line)
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
