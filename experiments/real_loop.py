"""The whole loop for real: vLLM engines, the mock desktop by the clock, a learner beside them; then its virtual twin.

python -m experiments.real_loop                two engines on CPU, 5 minutes; needs DARTSIM_VLLM_PYTHON
python -m experiments.real_loop --engines 1    one engine
python -m experiments.real_loop --out FOLDER   keep the folders of the run and of its twin
python -m experiments.real_loop --quick        one engine, a few updates: the same keys in a minute

Weights are pushed to one engine at a time while it serves (mode ``keep``), the learner works in a thread of its own,
and every trajectory is kept in SQLite. The twin is the same configuration in virtual time, on the profile that the
timings of that very run give.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from dartsim.config import Config, load
from dartsim.config.sections.vllm import VARIABLE
from dartsim.core.errors import ConfigError
from dartsim.lab.measure import measure as measured_by
from dartsim.lab.virtual import as_json, compare, twin
from dartsim.observe.timings import TIMINGS, read_timings
from dartsim.run.execute import execute
from experiments.real_profile import mean_checks, twin_table
from experiments.study import Experiment, Figures, Options, short_commit

MINUTES = 5.0
QUICK_MINUTES = 0.2
ENGINES = 2
AVERAGED = ("success_rate_first", "success_rate_last", "sync_seconds_p50")
SUMMED = ("failed_requests", "lost_requests")


def config(engines: int, minutes: float, seed: int, quick: bool) -> Config:
    """Return the real run's configuration; it ends by time alone, so that the twin can last as long."""
    changes = [
        "backend.desktops=mock",
        "backend.workers=vllm",
        "backend.learner=local",
        f"rollout.num_workers={engines}",
        "rollout.sync.mode=keep",
        "rollout.sync.workers_at_a_time=1",
        "curation.store=sqlite",
        "vllm.max_model_len=512",
        f"run.hours={minutes / 60.0}",
        f"run.seed={seed}",
        "run.updates=none",
        "run.target_success=none",
        "recorder.max_segments=0",
    ]
    if quick:  # batches that fill in time, and short evaluations before and after
        batch = "curation.batch"
        changes += [f"{batch}.min_groups=4", f"{batch}.max_groups=4", "tasks.held_out=16"]
    return load(preset_name="tiny", overrides=changes)


def run_seed(real: Config, out: Path | None = None) -> Figures:
    """Run for real, measure, run the twin; return both runs' figures and what was measured.

    Args:
        real: The configuration.
        out: Where the folders of both runs stay; None: nowhere.
    """
    with TemporaryDirectory() as temporary:
        folder = out or Path(temporary)
        path = folder / "real"
        done, result = execute(real, path)
        if result.interrupted:  # half a run says nothing
            raise KeyboardInterrupt
        entries = read_timings(path)
        measured = measured_by(real, entries)
        predicted, _ = execute(twin(real, measured, done.summary, path / TIMINGS), folder / "twin")
        loads = [row for row in measured.rows if row.what == "worker/load"]
        return {
            "seed": real.run.seed,
            **as_json(compare(done.summary, predicted.summary)),
            "success_rate_first": done.summary["success_rate_initial"],
            "success_rate_last": done.summary["success_rate_final"],
            **requests(done.summary),
            "sync_seconds_p50": loads[0].median,
            "num_updates": done.summary["total_updates"],
            "generated_turns": sum(entry["what"] == "worker/generate" for entry in entries),
            "faults": done.summary["faults"],
            "timings": [asdict(row) for row in measured.rows],
            "settings": measured.settings,
            "notes": list(measured.notes),
        }


def requests(summary: Mapping[str, Any]) -> dict[str, int]:
    """Return how many requests an engine failed, asked again elsewhere, and how many were never answered."""
    faults = summary["faults"]
    return {
        "failed_requests": faults.get("request_worker", 0) + faults.get("request_restarted", 0),
        "lost_requests": summary["endings"].get("worker_fault", 0),
    }


def measure(options: Options, *, engines: int, minutes: float, out: Path | None) -> Figures:
    """Run all seeds, one after the other: a real run needs the machine for itself."""
    runs: list[Figures] = []
    for seed in range(options.seeds):
        kept = None if out is None else out / f"seed-{seed}"
        runs.append(run_seed(config(engines, minutes, seed, options.quick), kept))
        options.console.print(f"seed {seed}: {runs[-1]['num_updates']} updates")
    return {
        **{name: mean(run[name] for run in runs) for name in AVERAGED},
        **{name: sum(run[name] for run in runs) for name in SUMMED},
        **as_json(mean_checks(runs)),
        "engines": engines,
        "runs": runs,
        "load_average": os.getloadavg()[0],
        "config": config(engines, minutes, 0, options.quick).model_dump(mode="json"),
    }


def refuse_without_vllm() -> None:
    """End with status 2 and a message if there is no environment with vLLM."""
    try:
        import dartsim.real.engines.backend  # noqa: F401 - says which extra is missing
    except ConfigError as error:
        print(f"error: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if not os.environ.get(VARIABLE):
        text = f"real engines need the interpreter of an environment with vLLM: set {VARIABLE} (see docs/inference.md)"
        print(f"error: {text}", file=sys.stderr)
        raise SystemExit(2)


def loop_table(figures: Figures) -> str:
    """The whole loop for real, measured and predicted, and what it learned and lost."""
    about = (
        f"Engines: {figures['engines']}; {60.0 * figures['config']['run']['hours']:.3g} minutes, seeds "
        f"{', '.join(map(str, figures['seeds']))}: success on held-out tasks {figures['success_rate_first']:.1%} → "
        f"{figures['success_rate_last']:.1%}; {figures['failed_requests']} requests failed and were asked again, "
        f"{figures['lost_requests']} were lost; a change of weights took {figures['sync_seconds_p50']:.2f} s (median). "
        f"Recorded at commit {short_commit(figures)}, load {figures['load_average']:.1f}.\n"
    )
    return twin_table(figures) + about


STUDY = Experiment(
    name="real_loop",
    about=str(__doc__),
    measure=partial(measure, engines=ENGINES, minutes=MINUTES, out=None),
    seeds=1,
    tables={"real-loop": loop_table},
)


def main(argv: Sequence[str] | None = None) -> Figures:
    """Run it from the command line."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("--engines", type=int, choices=range(1, 9), metavar="N")
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--out", type=Path, metavar="FOLDER")
    own, rest = parser.parse_known_args(argv)
    quick = "--quick" in rest
    if not {"-h", "--help"} & set(rest):
        refuse_without_vllm()
    engines = own.engines or (1 if quick else ENGINES)
    minutes = own.minutes or (QUICK_MINUTES if quick else MINUTES)
    return replace(STUDY, measure=partial(measure, engines=engines, minutes=minutes, out=own.out)).run(rest)


if __name__ == "__main__":
    main()
