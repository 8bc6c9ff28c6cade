"""What a weight sync costs a pool that serves: one worker at a time, all at once, and by restarts as in DART.

    python -m experiments.sync_cost            10 publications a mode, on stand-in servers; and on vLLM, if it is there
    python -m experiments.sync_cost --quick    2 publications a mode, stand-in servers only

Two engines answer desktops that ask turn after turn, each turn up to 48 tokens of free text. Modes:

- ``rolling_keep``: one engine at a time, requests frozen over the change (ours);
- ``global_pause``: both at once, requests frozen (prime-rl, SkyRL, TRL);
- ``restart``: one at a time, requests killed and asked again, the process started again (DART's released code).

*Away*: seconds of one change in which one engine took no new requests. *Stopped*: seconds of a publication in which no
engine did. *Killed*: requests that were asked again; *lost*: turns that were never answered. The stand-in is no vLLM:
it starts in a set time and loads kilobytes; with DARTSIM_VLLM_PYTHON set, the full run measures vLLM here too.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from dartsim.config.schema import RolloutConfig, SyncConfig, VllmConfig
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.errors import WorkerFault
from dartsim.core.types import Attempt, Observation, Request, Task, Weights
from dartsim.observe import DesktopState, EngineState, Recorder
from dartsim.rollout.routers.session_affine import SessionAffine
from dartsim.rollout.service import RolloutService
from experiments.study import Experiment, Figures, Options, rows_of, short_commit, table

if TYPE_CHECKING:
    from dartsim.real.engines.options import EngineOptions
    from dartsim.real.vlm import Vlm

ENGINES = 2
DESKTOPS = 8
STANDIN_START_SECONDS = 5.0
"""Of the stand-in; vLLM's own start with a 7B model takes minutes."""
PLANS = {
    "rolling_keep": SyncConfig(mode="keep", workers_at_a_time=1),
    "global_pause": SyncConfig(mode="keep", workers_at_a_time="all"),
    "restart": SyncConfig(mode="restart", workers_at_a_time=1),
}


class Model:
    """A model and two versions of its weights, as folders."""

    def __init__(self, folder: Path) -> None:
        from dartsim.real.vlm import Decoding, VlmConfig, build
        from dartsim.real.vlm.export import export

        self.folder = folder
        self.vlms: list[Vlm] = []
        for seed in (0, 1):
            # Heads and sizes that vLLM's kernels for processors take; free text, so that turns last.
            vlm = build(VlmConfig(decoding=Decoding(grammar="free", max_new_tokens=48)), seed=seed)
            export(vlm, folder / f"version-{seed}")
            self.vlms.append(vlm)

    def weights(self, version: int) -> Weights:
        """Return a version; even ones hold the first weights, odd ones the second."""
        return Weights(version, str(self.folder / f"version-{version % 2}"))


def options_of(engine: str, model: Model) -> EngineOptions:
    """Return how an engine is started: the stand-in, or vLLM."""
    from dartsim.real.engines.options import EngineOptions

    first = str(model.weights(0).source)
    if engine == "vllm":
        return EngineOptions(vllm=VllmConfig(python=os.environ[VARIABLE], max_model_len=512), model=first, max_images=1)
    from dartsim.real.stand_ins.serving import ENGINE, PATH

    flags = ["--start-seconds", str(STANDIN_START_SECONDS)]
    vllm = VllmConfig(python=sys.executable, start_seconds=60.0, flags=flags)
    return EngineOptions(vllm=vllm, model=first, entry=ENGINE, environment=PATH)


async def mode_cost(engine: str, plan: SyncConfig, model: Model, publications: int, between_seconds: float) -> Figures:
    """Serve desktops, publish weights now and then, and return what that cost."""
    from dartsim.real.engines.launcher import LocalEngine
    from dartsim.real.engines.ledger import WeightsLedger
    from dartsim.real.engines.request_codec import RequestCodec
    from dartsim.real.engines.worker import VllmWorker

    loop = asyncio.get_running_loop()
    codec, ledger = RequestCodec(model.vlms[0]), WeightsLedger()
    async with AsyncExitStack() as stack:
        logs = Path(stack.enter_context(TemporaryDirectory(prefix="sync-")))
        workers = [
            VllmWorker(
                index,
                LocalEngine(options_of(engine, model), logs, name=f"engine-{index}"),
                codec,
                weights=model.weights(0),
                ledger=ledger,
            )
            for index in range(ENGINES)
        ]
        async with asyncio.TaskGroup() as group:  # starts take their time, so both at once
            for worker in workers:
                group.create_task(stack.enter_async_context(worker))
        recorder = Recorder(loop.time, num_envs=DESKTOPS, num_engines=ENGINES)
        pool = RolloutService(
            workers,
            weights=model.weights(0),
            router=SessionAffine(),
            config=RolloutConfig(sync=plan),
            recorder=recorder,
        )
        serving = asyncio.create_task(pool.run())
        stop = asyncio.Event()
        asking = [asyncio.create_task(desktop(pool, recorder, number, stop)) for number in range(DESKTOPS)]
        settled: list[float] = []
        for version in range(1, publications + 1):
            await asyncio.sleep(between_seconds)
            began = loop.time()
            pool.publish(model.weights(version))
            await pool.settled(version)
            settled.append(loop.time() - began)
        await asyncio.sleep(between_seconds)
        stop.set()
        turns = await asyncio.gather(*asking)
        serving.cancel()
        await asyncio.wait([serving])
        return figures_of(recorder, turns, settled)


async def desktop(pool: RolloutService, recorder: Recorder, number: int, stop: asyncio.Event) -> list[float | None]:
    """Ask turn after turn; return the seconds of each, None for one without an answer."""
    loop, track = asyncio.get_running_loop(), recorder.desktops.tracks[number]
    rng = np.random.default_rng(number)
    found: list[float | None] = []
    track.enter(DesktopState.GENERATING)
    while not stop.is_set():
        screen = np.full((56, 56, 3), rng.integers(0, 256, 3), dtype=np.uint8)
        attempt = Attempt(number, Task(str(number), "press"), 0, 0, int(rng.integers(2**31)), 1, 0)
        began = loop.time()
        try:
            await pool.session(attempt, track).generate(Request(attempt, 0, Observation(screen, "press"), []))
            found.append(loop.time() - began)
        except WorkerFault:
            found.append(None)
    return found


def figures_of(recorder: Recorder, turns: Sequence[Sequence[float | None]], settled: Sequence[float]) -> Figures:
    """Return a mode's figures."""
    answered = [seconds for one in turns for seconds in one if seconds is not None]
    loads = recorder.counts["loads"] or ENGINES * len(settled)
    workers, desktops = recorder.engines.seconds(), recorder.desktops.seconds()
    return {
        "publications": len(settled),
        "settled_seconds_mean": round(mean(settled), 3),
        "away_seconds_per_change": round(
            (workers[EngineState.LOADING] + workers[EngineState.DRAINING]) / (ENGINES * len(settled)), 3
        ),
        "stopped_seconds_per_publication": round(desktops[DesktopState.SYNC_WAIT] / DESKTOPS / len(settled), 3),
        "changes": loads,
        "turns": len(answered),
        "turns_per_second": round(len(answered) / (recorder.clock() - recorder.started), 2),
        "turn_seconds_mean": round(mean(answered), 3),
        "turn_seconds_longest": round(max(answered), 3),
        "killed_requests": recorder.counts["fault/request_restarted"],
        "failed_requests": recorder.counts["fault/request_worker"],
        "lost_requests": sum(seconds is None for one in turns for seconds in one),
    }


@contextmanager
def model_folder() -> Iterator[Model]:
    """Make the model for as long as it is needed."""
    with TemporaryDirectory(prefix="sync-model-") as folder:
        yield Model(Path(folder))


def measure(options: Options) -> Figures:
    """Measure all modes on each kind of engine."""
    engines = ["standin"] if options.quick or not os.environ.get(VARIABLE) else ["standin", "vllm"]
    publications, between = (2, 1.0) if options.quick else (10, 3.0)
    found: Figures = {}
    with model_folder() as model:
        for engine in engines:
            found[engine] = {}
            for name, plan in PLANS.items():
                many = publications if engine == "standin" or name != "restart" else min(3, publications)
                found[engine][name] = asyncio.run(mode_cost(engine, plan, model, many, between))
                options.console.print(f"{engine}, {name}: done")
    return {
        "engines": found,
        "missing": [] if "vllm" in found else ["vllm"],
        "load_average": os.getloadavg()[0],
        "config": {
            "num_engines": ENGINES,
            "num_desktops": DESKTOPS,
            "standin_start_seconds": STANDIN_START_SECONDS,
            "quick": options.quick,
        },
    }


def modes_table(figures: Figures) -> str:
    """What a weight sync costs by engine and mode."""
    engines = {"standin": "stand-in", "vllm": "vLLM"}
    modes = {
        "rolling_keep": "one at a time, `keep`",
        "global_pause": "all at once, `keep`",
        "restart": "`restart`, as DART released it",
    }
    columns = {
        "": "{engine}, {mode}",
        "one engine unavailable, s per sync": "{away_seconds_per_change:.2f}",
        "all unavailable, s per sync": "{stopped_seconds_per_publication:.2f}",
        "longest turn, s": "{turn_seconds_longest:.2f}",
        "killed": "{killed_requests}",
        "lost": "{lost_requests}",
    }
    entries = [
        {"engine": engines[engine], "mode": modes[mode], **row}
        for engine, own in figures["engines"].items()
        for mode, row in own.items()
    ]
    config = figures["config"]
    return (
        f"{table(*rows_of(columns, entries))}\n"
        f"{config['num_engines']} engines, {config['num_desktops']} desktops; the stand-in starts in "
        f"{config['standin_start_seconds']:g} s. {'vLLM was not measured. ' if figures['missing'] else ''}"
        f"Recorded at commit {short_commit(figures)}, load {figures['load_average']:.1f}.\n"
    )


STUDY = Experiment(name="sync_cost", about=str(__doc__), measure=measure, seeds=1, tables={"sync-cost": modes_table})

if __name__ == "__main__":
    STUDY.run()
