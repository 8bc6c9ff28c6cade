"""What a run's driver costs at full size: turns a minute that it can feed, its CPU, memory, disk.

    python -m experiments.driver                 38 and 180 desktops, 4 minutes each; needs Docker
    python -m experiments.driver --quick         the same keys in two minutes
    python -m experiments.driver --minutes 60    180 desktops for an hour, with updates: does anything grow?

The driver is the real one: control plane, clients of OSWorld's server, prompts of UI-TARS-1.5 with five screenshots,
clients of vLLM, the scorers' sandboxes, SQLite with screenshots. Desktops and engines are the stand-ins of
``dartsim check``, in their own processes: they speak the real protocols, and share the machine's cores with it.
Desktops answer immediately, and engines in a time that would allow twice the target. Every screen is another PNG file
of 1920 x 1080 and 300 KB or more; an attempt has 30 turns.

*CPU* is that of the driver's process, threads included, a turn. *Loop* is what its event loop computes, which is one
thread: the twin's ``cluster.engine.control_seconds``. *Growth* is the slope of the process's memory, sampled twice a
minute over the last two thirds of a run whose updates, as those of any long run, delete the turns that were trained on.
The allocator keeps what it frees: growth in a few steps is that of the most that was ever needed at once.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import psutil
from typing_extensions import override

from dartsim.config import Config, load
from dartsim.core.errors import ConfigError
from dartsim.lab.virtual import with_settings
from dartsim.observe import Instrument, Recorder
from experiments.isolated import isolated, peak_rss_mb
from experiments.study import Experiment, Figures, Options, short_commit

DESKTOPS = {38: 2, 180: 8}
"""Desktops, and engines for so many."""
TURNS = 30
SECONDS, QUICK_SECONDS = (60.0, 180.0), (15.0, 20.0)
"""Before the measurement, until most prompts have five screenshots; and of it."""
TARGET = 1_000.0
"""Turns a minute on two cores."""
SAMPLE_SECONDS = 30.0
MIN_MINUTES = 5.0

ENDED = "cause/run ended"
"""Counts attempts that the end of the run cut off."""


@dataclass(frozen=True, slots=True)
class DriverCase:
    """What is measured in a process of its own."""

    desktops: int
    engines: int
    seconds: tuple[float, float]
    seed: int = 0
    trains: bool = False
    """Whether batches are trained on, and their turns deleted."""

    @property
    def reply_seconds(self) -> float:
        """Time of a reply, such that the desktops ask for twice the target if nothing else takes time."""
        return 60.0 * self.desktops / (2.0 * TARGET)


def configuration(case: DriverCase, folder: Path) -> Config:
    """Return the preset for real OSWorld with the case's sizes; engines are to be attached."""
    from dartsim.real.stand_ins.model import write_stand_in

    preset = load("osworld-8gpu")
    changes: dict[str, Any] = {"backend.desktops": "stand_in", "backend.learner": "stand_in"}
    changes |= {"tasks.source": "generated", "tasks.folder": None, "tasks.do_nothing": "ignore"}
    changes |= {"rollout.num_envs": case.desktops, "rollout.num_workers": case.engines, "rollout.max_turns": TURNS}
    changes |= {"vllm.gpus": []}
    changes |= {"run.hours": sum(case.seconds) / 3_600.0 + 1.0, "run.seed": case.seed, "run.max_segments": 0}
    if not case.trains:
        changes |= {"curation.batch.min_groups": 1_000, "curation.batch.max_groups": 1_000}
    changes |= {"desktop.hosts.vm-1.max_desktops": case.desktops, "cluster.hosts.memory_gib": 4.0 * case.desktops}
    return with_settings(preset, {**changes, "policy.model": str(write_stand_in(preset, folder / "model"))})


@contextmanager
def with_engines(config: Config, folder: Path, reply_seconds: float) -> Iterator[Config]:
    """Run stand-in engines, whose replies end no attempt; yield the configuration that attaches to them."""
    from dartsim.real.stand_ins.model import replies
    from dartsim.real.vlm import build
    from dartsim.real.vlm.plan import vlm_config

    vlm, file = build(vlm_config(config)), folder / "replies.json"
    going_on = [tokens for tokens in replies(vlm, config) if "finished(" not in vlm.vocabulary.decode(tokens)]
    file.write_text(json.dumps(going_on), encoding="utf-8")
    command = [sys.executable, "-m", "dartsim.real.stand_ins.engine", "--model", str(config.policy.model)]
    command += ["--replies", str(file), "--seconds", str(reply_seconds), "--ports"]
    command += ["0"] * config.rollout.num_workers
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield with_settings(
                config, {"backend.workers": "vllm", "vllm.addresses": json.loads(process.stdout.readline())}
            )
        finally:
            process.kill()


@dataclass(frozen=True, slots=True)
class Sample:
    """The driver's process at a time of its run: memory, open files, tasks of the loop, and what it did so far."""

    minutes: float
    mib: int
    files: int
    tasks: int
    turns: int
    updates: int


class DriverWindow(Instrument):
    """Reads clocks and counters at the beginning and the end of the measurement, and then ends the run."""

    def __init__(self, folder: Path, seconds: tuple[float, float], *, shown: bool) -> None:
        self.reads: list[Figures] = []
        self.samples: list[Sample] = []
        self._process = psutil.Process()
        self._folder = folder
        self._after = [seconds[0], sum(seconds)]
        self._shown = shown

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._task = asyncio.current_task()

    @override
    def time_advanced(self, now: float) -> None:
        passed, done = now - self._recorder.started, len(self.reads)
        if passed >= SAMPLE_SECONDS * (len(self.samples) + 1):
            self.samples.append(self._sample(passed))
        if done == len(self._after) or passed < self._after[done]:
            return
        self.reads.append(
            {
                "turns": self._recorder.hot.generated_turns,
                "seconds": time.perf_counter(),
                "cpu": time.process_time(),
                "loop": time.thread_time(),
                "disk": sum(file.stat().st_size for file in self._folder.rglob("*") if file.is_file()),
            }
        )
        if len(self.reads) == len(self._after) and self._task is not None:
            self._task.cancel()

    def _sample(self, passed: float) -> Sample:
        recorder, process = self._recorder, self._process
        sample = Sample(
            minutes=round(passed / 60.0, 2),
            mib=round(process.memory_info().rss / 2**20),
            files=process.num_fds(),
            tasks=len(asyncio.all_tasks()),
            turns=recorder.hot.generated_turns,
            updates=recorder.counts["updates"],
        )
        if self._shown:
            line = ", ".join(f"{value:,} {name}" for name, value in asdict(sample).items())
            print(line, file=sys.stderr, flush=True)
        return sample


def run_case(case: DriverCase) -> Figures:
    """Return the figures of a case."""
    from dartsim.run.execute import execute

    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        with with_engines(configuration(case, folder), folder, case.reply_seconds) as config:
            window, before = DriverWindow(folder / "run", case.seconds, shown=case.trains), peak_rss_mb()
            recorder = execute(config, folder / "run", [window])[1].recorder
    first, last = window.reads
    found = {name: last[name] - first[name] for name in first}
    turns = found["turns"]
    if not turns:
        raise ConfigError(f"no turn was answered within {case.seconds[1]:g} s; the machine is too busy to measure it")
    return {
        "num_envs": case.desktops,
        "engines": case.engines,
        "turns": turns,
        "turns_per_minute": round(60.0 * turns / found["seconds"], 1),
        **{f"{name}_ms": round(1e3 * found[name] / turns, 2) for name in ("cpu", "loop")},
        "peak_mib": round(peak_rss_mb() * 1e6 / 2**20),
        "before_mib": round(before * 1e6 / 2**20),
        "store_kb_per_turn": round(last["disk"] / last["turns"] / 1e3, 1),
        "masked": {name: n for name, n in recorder.counts.items() if name.startswith("cause/") and name != ENDED},
        **({**grown(window.samples, case), "alarms": [alarm.name for alarm in recorder.alarms]} if case.trains else {}),
    }


def grown(samples: Sequence[Sample], case: DriverCase) -> Figures:
    """Return what a long run had, and how fast its memory grew in the measured time, MiB/h."""
    measured = [sample for sample in samples if 60.0 * sample.minutes >= case.seconds[0]]
    minutes, mib = ([getattr(sample, name) for sample in measured] for name in ("minutes", "mib"))
    slope = float(np.polyfit(minutes, mib, 1)[0])
    return {
        "updates": samples[-1].updates,
        "growth_mib_per_hour": round(60.0 * slope),
        "samples": [asdict(sample) for sample in samples],
    }


def measure(options: Options) -> Figures:
    """Measure each number of desktops in a process of its own, so that its peak of memory is its own."""
    from dartsim.real.stand_ins.screens import Screens

    seconds, minutes = QUICK_SECONDS if options.quick else SECONDS, options.own.minutes
    rows: list[Figures] = []
    load_average = os.getloadavg()[0]
    cases = [DriverCase(desktops, engines, seconds) for desktops, engines in DESKTOPS.items()]
    if minutes is not None:
        if minutes < MIN_MINUTES:
            raise ConfigError(f"--minutes {minutes:g} is too short to see growth; give {MIN_MINUTES:g} or more")
        cases = [replace(cases[-1], seconds=(20.0 * minutes, 40.0 * minutes), trains=True)]
    for case in cases:
        found = [isolated(run_case, replace(case, seed=seed)) for seed in range(options.seeds)]
        rows.append(sorted(found, key=lambda row: row["turns_per_minute"])[len(found) // 2])
        options.console.print(f"{case.desktops} desktops: {rows[-1]['turns_per_minute']:,.0f} turns a minute")
    sizes = [len(Screens().png(number)) for number in range(20)]
    return {
        "rows": rows,
        "screen_kb": round(min(sizes) / 1e3),
        "load_average": load_average,
        "config": {"turns": TURNS, "seconds": list(cases[0].seconds), "cores": os.cpu_count(), "quick": options.quick},
    }


def driver_found(figures: Figures) -> str:
    """Say in a sentence or two what one process drives."""
    if "updates" in figures["rows"][-1]:
        return _hour_found(figures)
    rates = ", ".join(
        f"{row['turns_per_minute']:,.0f} turns a minute with {row['num_envs']} desktops" for row in figures["rows"]
    )
    last = figures["rows"][-1]
    return (
        f"One process drives {rates} ({figures['config']['cores']} cores, shared with the "
        f"stand-ins). A turn takes {last['cpu_ms']:.0f} ms of CPU, mostly HTTP and decoding, and "
        f"{last['store_kb_per_turn']:,.0f} KB on disk; memory peaks at {last['peak_mib'] / 1024:.1f} GiB. "
        f"Recorded at commit {short_commit(figures)}.\n"
    )


def _hour_found(figures: Figures) -> str:
    """Say in one sentence what a long run had."""
    (row,) = figures["rows"]
    return (
        f"{sum(figures['config']['seconds']) / 60.0:.0f} minutes of {row['num_envs']} desktops with {row['updates']} "
        f"updates: {row['turns_per_minute']:,.0f} turns a minute at {row['cpu_ms']:.0f} ms of CPU, memory at most "
        f"{row['peak_mib'] / 1024:.1f} GiB and growing by {row['growth_mib_per_hour']} MiB an hour; "
        f"{sum(row['masked'].values())} attempts masked, {len(row['alarms'])} alarms. "
        f"Recorded at commit {short_commit(figures)}.\n"
    )


def _own_options(parser: argparse.ArgumentParser) -> None:
    about = "in place of both cases: 180 desktops for so long, with updates; says whether memory grew"
    parser.add_argument("--minutes", type=float, metavar="N", help=about)


STUDY = Experiment(
    name="driver",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"driver-found": driver_found},
    add_arguments=_own_options,
    record_as=lambda own: "driver" if own.minutes is None else "driver_long",
)
HOUR = replace(STUDY, tables={"driver-hour": driver_found}, recorded_as="driver_long")
"""The recorded hour."""

if __name__ == "__main__":
    STUDY.run()
