"""Stand-ins for the length of a run, behind the clients that real desktops and engines have."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

from dartsim.config import Config
from dartsim.core.ports import EnvProvider
from dartsim.core.types import Task, Version
from dartsim.real.engines.backend import vllm_workers
from dartsim.real.engines.worker import VllmWorker
from dartsim.real.osworld.backend import desktop_options, open_scorer_pool
from dartsim.real.osworld.connect import DesktopOptions, connect
from dartsim.real.osworld.desktop import OsworldDesktop
from dartsim.real.osworld.fetch import cache_folder
from dartsim.real.osworld.scorer import Scorer
from dartsim.real.scratch import scratch_folder
from dartsim.real.stand_ins.desktops import SCORE
from dartsim.real.stand_ins.model import replies
from dartsim.real.stand_ins.serving import stand_in
from dartsim.real.vlm import Vlm
from dartsim.real.vlm.export import export

TASK: dict[str, Any] = {
    "config": [{"type": "execute", "parameters": {"command": ["true"]}}],
    "evaluator": {
        "func": "exact_match",
        "result": {"type": "vm_command_line", "command": [SCORE]},
        "expected": {"type": "rule", "rules": {"expected": "1"}},
    },
}
"""What a stand-in can set up and be scored by; the sandbox that scores is real."""


class StandInDesktops:
    """Desktops whose servers run already; implements ``dartsim.core.ports.EnvProvider``."""

    def __init__(self, addresses: Sequence[str], options: DesktopOptions) -> None:
        self._free = list(addresses)
        self._options = options

    async def start(self, slot: int) -> OsworldDesktop:
        options, address = self._options, self._free.pop()
        on_call = None if options.on_call is None else partial(options.on_call, slot)

        async def let_go() -> None:
            self._free.append(address)

        desktop = connect(address, options, close=let_go, on_call=on_call)
        try:
            await desktop.boot()
        except BaseException:
            await desktop.close()
            raise
        return desktop


@asynccontextmanager
async def open_stand_ins(
    config: Config, tasks: Sequence[Task], on_call: Callable[[int, str, float], None] | None = None
) -> AsyncIterator[EnvProvider]:
    """Provide as many stand-in desktops as the configuration has, scored in its sandboxes."""
    size = ("--width", str(config.desktop.width), "--height", str(config.desktop.height))
    async with (
        stand_in("desktops", *size, "--ports", *["0"] * config.rollout.num_desktops) as addresses,
        open_scorer_pool(config, tasks) as pool,
    ):
        yield StandInDesktops(addresses, desktop_options(config, cache_folder(), Scorer(pool), on_call))


@asynccontextmanager
async def stand_in_workers(
    config: Config, vlm: Vlm, *, version: Version, on_step: Callable[[str, int, int], None] | None = None
) -> AsyncIterator[list[VllmWorker]]:
    """Provide the workers of stand-in engines, all in one process."""
    with scratch_folder("stand-ins") as folder:
        model, file = export(vlm, folder / "model"), folder / "replies.json"
        file.write_text(json.dumps(replies(vlm, config)), encoding="utf-8")
        ports = ["0"] * config.rollout.num_workers
        async with stand_in("engine", "--model", str(model), "--replies", str(file), "--ports", *ports) as addresses:
            attached = config.replace(vllm={"addresses": addresses, "gpus": []})
            async with vllm_workers(attached, vlm, version=version, on_step=on_step) as workers:
                yield workers
