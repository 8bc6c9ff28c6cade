"""``rehearse``: a configuration at full shapes for a few minutes here; does each part deliver what its twin needs?

The control plane is a run's own. Stand-ins take the place of what is not up, and answer at once: what a part delivers
beside them is what it can do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import psutil
from typing_extensions import override

from dartsim.config import Config
from dartsim.core.errors import ConfigError
from dartsim.lab.estimate import Estimate, estimate
from dartsim.lab.host_needs import by_disk, largest_update, published_bytes, trained_parameters
from dartsim.lab.memory import GIB, MASTER_BYTES
from dartsim.lab.virtual import as_virtual, changed, planned
from dartsim.observe import Instrument, Recorder
from dartsim.observe.timings import read_timings
from dartsim.real.containers.plan import desktops_by_host
from dartsim.real.engines.options import engine_places, weights_dtype
from dartsim.real.scratch import scratch_folder
from dartsim.run.execute import execute
from dartsim.run.prepare import prepare, prepare_run
from dartsim.run.results import RunResult
from dartsim.run.simulation import run_simulation
from dartsim.store.sql import SCREENS_FOLDER

StandIn = Literal["desktops", "engines", "learner"]
STAND_INS: tuple[StandIn, ...] = ("desktops", "engines", "learner")
KEYS: Mapping[StandIn, str] = {
    "desktops": "backend.desktops",
    "engines": "backend.workers",
    "learner": "backend.learner",
}
TWIN_HOURS = 12.0
"""Most simulated hours of the twin."""
SCREENSHOTS_PER_TURN = 2.4
"""On a screen that keeps moving: 145 for 60 steps."""
PROBE_SHARE, MOST_PROBE_SECONDS = 0.1, 3.0
"""Share of the run's time, and most of it, that network and scorers are each measured for."""
LEAST_TURNS = 50
"""Turns in memory below which their memory cannot be told from everything else."""
MEBI = 2**20

OnStep = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RehearsedPart:
    """A part of the system: what it needs and what it delivered, in the same unit; more is better.

    Attributes:
        name: The part.
        unit: Of both figures.
        needed: By the twin or by the estimate.
        delivered: Here; None: it was not measured.
        note: How either was found.
    """

    name: str
    unit: str
    needed: float
    delivered: float | None
    note: str = ""

    @property
    def verdict(self) -> Literal["ok", "short", "not measured"]:
        if self.delivered is None:
            return "not measured"
        return "ok" if self.delivered >= self.needed else "short"


@dataclass(frozen=True, slots=True, kw_only=True)
class Rehearsal:
    """What was found."""

    parts: Sequence[RehearsedPart]
    stand_ins: Sequence[StandIn]
    minutes: float
    twin: Mapping[str, Any]
    figures: Mapping[str, Any]

    @property
    def short(self) -> list[str]:
        return [part.name for part in self.parts if part.verdict == "short"]


class TurnMemory(Instrument):
    """Memory of this process, by the number of turns that it holds."""

    period_seconds = 1.0

    def __init__(self) -> None:
        self.before = self._resident()
        self.samples: list[tuple[float, int]] = []
        self._recorder: Recorder | None = None

    @staticmethod
    def _resident() -> int:
        return int(psutil.Process().memory_info().rss)

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder

    @override
    def time_advanced(self, now: float) -> None:
        if self._recorder is None:
            return
        counts = self._recorder.measure().counts
        gone = sum(number for name, number in counts.items() if name.startswith("dropped_turns/"))
        self.samples.append((counts["generated_turns"] - counts.get("trained_turns", 0) - gone, self._resident()))

    def bytes_for(self, turns: int) -> float | None:
        """Return the memory of so many turns and all desktops, along a line; None if too few turns were held."""
        held = np.array([sample for sample in self.samples if sample[0] > 0.0]).reshape(-1, 2)
        if len(held) < 3 or np.ptp(held[:, 0]) < LEAST_TURNS:
            return None
        line = np.polynomial.Polynomial.fit(held[:, 0], held[:, 1] - self.before, 1)
        return float(line(turns))


def refuse_modeled(config: Config) -> Estimate:
    """Return the estimate of a configuration that can be rehearsed.

    Raises:
        ConfigError: If it cannot: something of it is modeled, its model is the tiny one, or it does not fit.
    """
    needed = None if any(part.modeled for part in config.backend.parts) else estimate(config)
    if needed is None:
        raise ConfigError(
            f'backend.desktops = "{config.backend.desktops}", workers = "{config.backend.workers}", learner = '
            f'"{config.backend.learner}" with policy.model = {config.policy.model!r}: a rehearsal wants real desktops, '
            "engines and a learner, and a model of its own (presets osworld-1gpu, osworld-8gpu, osworld-16gpu)"
        )
    return needed


def num_steps(config: Config) -> int:
    """Return how many steps a rehearsal reports: twin, run, each network part, three of a checkpoint, and scorers."""
    return 6 + len(_network_shares(config))


def rehearse(
    config: Config,
    stand_ins: Collection[StandIn],
    folder: Path,
    *,
    minutes: float,
    sample_bytes: int,
    servers: Mapping[str, str],
    instruments: Sequence[Instrument],
    on_step: OnStep,
) -> Rehearsal:
    """Run a configuration with stand-ins, and measure its parts.

    Raises:
        ConfigError: If the configuration cannot be rehearsed.
    """
    needed = refuse_modeled(config)
    _refuse_unknown(config, servers)
    on_step("twin")
    twin = run_simulation(prepare(_twin(config))).figures
    memory = TurnMemory()
    with scratch_folder("rehearsal") as place:
        on_step("run")
        rehearsed = _rehearsed(config, stand_ins, place, minutes)
        _, result = execute(rehearsed, folder, [memory, *instruments])
        if result.interrupted:
            raise KeyboardInterrupt
        parts = [_driver_part(twin, result, folder), _update_part(twin, folder)]
        seconds = min(MOST_PROBE_SECONDS, PROBE_SHARE * 60.0 * minutes)
        shots = [file.stat().st_size for file in (folder / SCREENS_FOLDER).rglob("*.png")]
        if shots:
            parts += _network_parts(config, twin, sum(shots) / len(shots), servers, seconds, on_step)
        parts += _disk_parts(config, needed, twin, sum(shots) / max(1, len(shots)), sample_bytes, on_step)
        parts += _score_parts(rehearsed, twin, place, seconds, on_step)
        parts += _memory_parts(config, needed, memory)
    names = [name for name in STAND_INS if name in stand_ins]
    return Rehearsal(parts=parts, stand_ins=names, minutes=minutes, twin=twin, figures=result.figures)


def _twin(config: Config) -> Config:
    hours = min(config.run.hours, TWIN_HOURS)
    # What desktops and engines ask for, however slow the driver is.
    changes = {"run.hours": hours, "run.updates": None, "cluster.engine.control_seconds": 0.0}
    return changed(as_virtual(planned(config)), changes)


def _rehearsed(config: Config, stand_ins: Collection[StandIn], place: Path, minutes: float) -> Config:
    """Return the configuration that is run: with stand-ins, for these minutes, and the model if something needs it."""
    changes: dict[str, Any] = {"run.hours": minutes / 60.0, "run.updates": None, "run.target_success": None}
    changes |= {KEYS[name]: "stand_in" for name in stand_ins}
    if stand_ins:
        changes["ray.address"] = None  # they run on this machine
    if "desktops" in stand_ins:
        changes |= {
            "tasks.source": "generated",
            "tasks.folder": None,
            "tasks.do_nothing": "ignore",
            "tasks.exclude": [],
        }
    if {"engines", "learner"} <= set(stand_ins):
        from dartsim.real.stand_ins.model import write_stand_in

        changes |= {"policy.model": str(write_stand_in(config, place / "model")), "curation.pool.file": None}
    return changed(config, changes)


def _driver_part(twin: Mapping[str, Any], result: RunResult, folder: Path) -> RehearsedPart:
    loops = [(entry["seconds"], entry["of"]) for entry in read_timings(folder) if entry["what"] == "loop/busy"]
    busy, of = (sum(seconds) for seconds in zip(*loops, strict=True)) if loops else (0.0, 1.0)
    return RehearsedPart(
        name="driver",
        unit="turns/min",
        needed=twin["generated_turns_per_minute"],
        delivered=result.figures["generated_turns_per_minute"],
        note=f"its event loop was busy for {busy / of:.0%} of the time",
    )


def _update_part(twin: Mapping[str, Any], folder: Path) -> RehearsedPart:
    updates = [entry for entry in read_timings(folder) if entry["what"] == "learner/update" and "failed" not in entry]
    seconds = sum(entry["seconds"] for entry in updates)
    return RehearsedPart(
        name="updates",
        unit="turns/min",
        needed=twin["trained_turns_per_minute"],
        delivered=60.0 * sum(entry["turns"] for entry in updates) / seconds if updates else None,
        note=f"{len(updates)} updates: turns read, written and trained" if updates else "none was reached: --minutes",
    )


def _network_shares(config: Config) -> dict[str, float]:
    """Return the share of all screenshots, or of all prompts, that goes to each desktop host or engine, by name."""
    hosts, engines = desktops_by_host(config), engine_places(config)
    shares = {f"desktops of {name}": count / sum(hosts.values()) for name, count in hosts.items()}
    return shares | {f"engine {number}": 1.0 / len(engines) for number in range(len(engines))}


def _refuse_unknown(config: Config, servers: Mapping[str, str]) -> None:
    known = _network_shares(config)
    if unknown := [name for name in servers if name not in known]:
        raise ConfigError(f"--server {unknown[0]!r} names no part; wanted one of {', '.join(known)}")


def _network_parts(
    config: Config, twin: Mapping[str, Any], shot: float, servers: Mapping[str, str], seconds: float, on_step: OnStep
) -> Iterator[RehearsedPart]:
    """Yield a part for each desktop host and each engine, measured with a stand-in there, or else over the loopback."""
    from dartsim.real.stand_ins.probes import received_rate, sent_rate
    from dartsim.real.stand_ins.serving import stand_in

    shares = _network_shares(config)
    screen = ("--width", str(config.desktop.width), "--height", str(config.desktop.height))

    async def measure() -> dict[str, float]:
        found = {}
        async with stand_in("desktops", *screen, "--ports", "0") as addresses:
            for name in shares:
                on_step(f"network, {name}")
                rate = received_rate if name.startswith("desktops") else sent_rate
                found[name] = await rate(servers.get(name, addresses[0]), seconds)
        return found

    turns = twin["generated_turns_per_minute"] / 60.0
    prompt = shot * 4 / 3  # in base64; an engine is sent each screenshot once
    for name, delivered in asyncio.run(measure()).items():
        size = SCREENSHOTS_PER_TURN * shot if name.startswith("desktops") else prompt
        yield RehearsedPart(
            name=f"network, {name}",
            unit="MiB/s",
            needed=turns * size * shares[name] / MEBI,
            delivered=delivered / MEBI,
            note=f"with {servers[name]}" if name in servers else "over the loopback",
        )


def _disk_parts(
    config: Config, needed: Estimate, twin: Mapping[str, Any], shot: float, sample_bytes: int, on_step: OnStep
) -> Iterator[RehearsedPart]:
    """Yield parts for space on each disk, and for what is written, hashed and loaded there."""
    from dartsim.real.stand_ins.probes import checkpoint_rates, meta_tensors

    turns = 2 * largest_update(config) + config.rollout.num_envs * config.rollout.max_turns
    stored = turns * shot
    disks = by_disk(config, replace(needed.disk, run=needed.disk.run + round(stored)))
    for folder, size, free in disks:
        note = f"weights, checkpoints and {stored / GIB:.1f} GiB of turns" if len(disks) == 1 else ""
        yield RehearsedPart(
            name=f"disk space of {folder}", unit="GiB", needed=size / GIB, delivered=free / GIB, note=note
        )
    shape, fsdp = needed.shape, config.trainer.fsdp
    served = published_bytes(config, shape)
    state = 3 * trained_parameters(config, shape) * MASTER_BYTES
    every = config.storage.checkpoint_every_updates
    written = served + state * ((1 / fsdp.checkpoint_every_updates) + (1 / every if every else 0))
    interval = 60.0 * (twin["minutes_per_version"] or config.run.hours * 60.0)
    folder, _, free = disks[-1]
    sample = min(sample_bytes, served, free // 4, psutil.virtual_memory().available // 4)
    model = Path(str(config.policy.model))
    rates = checkpoint_rates(
        meta_tensors(config.policy.model_family, asdict(shape.text), asdict(shape.vision), model),
        folder,
        dtype=weights_dtype(config) or config.policy.dtype,
        max_bytes=sample,
        on_step=lambda step: on_step(f"checkpoint: {step}"),
    )
    share = f"measured with {rates['bytes'] / GIB:.1f} of {served / GIB:.1f} GiB"
    turns_rate = twin["generated_turns_per_minute"] / 60.0 * shot
    loads = f"{served / rates['load']:.0f} s a load, from the disk; {share}"
    for name, rate, step, note in (
        ("stored turns", turns_rate, "write", ""),
        ("checkpoints, written", written / interval, "write", f"{written / rates['write']:.0f} s an update; {share}"),
        ("weights, hashed", served / interval, "hash", f"{served / rates['hash']:.0f} s a version; {share}"),
        ("weights, loaded", served / config.cluster.engine.reload_seconds, "load", loads),
    ):
        yield RehearsedPart(name=name, unit="MiB/s", needed=rate / MEBI, delivered=rates[step] / MEBI, note=note)


def _score_parts(
    config: Config, twin: Mapping[str, Any], place: Path, seconds: float, on_step: OnStep
) -> Iterator[RehearsedPart]:
    from dartsim.real.stand_ins.probes import score_rate

    on_step("scorers")
    rate = asyncio.run(score_rate(config, prepare_run(config).tasks, place, seconds))
    needed = twin["trajectories_per_minute"] / 60.0
    yield RehearsedPart(name="scorers", unit="scores/s", needed=needed, delivered=rate, note="all desktops at once")


def _memory_parts(config: Config, needed: Estimate, memory: TurnMemory) -> Iterator[RehearsedPart]:
    total = psutil.virtual_memory().total
    most = max(needed.host.start, needed.host.update)
    yield RehearsedPart(
        name="memory of this machine",
        unit="GiB",
        needed=most / GIB,
        delivered=total / GIB,
        note="at the start" if most == needed.host.start else "in the largest update",
    )
    turns = largest_update(config) + config.rollout.num_envs * config.rollout.max_turns
    taken = memory.bytes_for(turns)
    yield RehearsedPart(
        name="memory of turns",
        unit="GiB",
        needed=(taken or 0.0) / GIB,
        delivered=needed.host.turns / GIB if taken is not None else None,
        note=f"of {turns} turns, along a line through those held here; delivered is the estimate",
    )
