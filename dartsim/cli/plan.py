"""``dartsim plan``: the best use of given machines, what it trains, and what it costs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import out, plain_table, write_json
from dartsim.cli.options import (
    Hours,
    Json,
    OnOption,
    Out,
    Overrides,
    ProfileOption,
    SchedulerArgument,
    folder_target,
    new_folder,
    settings,
)
from dartsim.cli.signals import report_interrupt
from dartsim.cli.tune import FreshSeeds, GpuPrice, HostPrice, Processes, RayAddress, no_result, run_study, trial_table

if TYPE_CHECKING:
    from dartsim.lab.gate import Comparison, SchedulerRank
    from dartsim.lab.planning import PlanSpec
    from dartsim.lab.study import Study

FILE = "plan.toml"
FINALISTS = 3
"""Splits that are simulated with fresh seeds."""
SHOWN = 12
"""Trials of the search that are shown."""
COSTS = {"cost per hour": "cost_per_hour", "per 1,000 turns": "cost_per_1000_turns"}


def plan(
    scheduler: SchedulerArgument = None,
    on: OnOption = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="GPUs, for engines and trainer together, 2 or more; default: those of the configuration."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(help="Machines for desktops: 4x64GiB, or 4x64GiBx32cores; default: those of the configuration."),
    ] = None,
    profile: ProfileOption = None,
    budget: Annotated[int, typer.Option(min=1, help="Splits to simulate.")] = 40,
    price_gpu_hour: GpuPrice = 1.0,
    price_host_hour: HostPrice = 0.0,
    hours: Hours = None,
    fresh_seeds: FreshSeeds = 3,
    overrides: Overrides = None,
    processes: Processes = None,
    ray: RayAddress = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    r"""Find the best number of desktops, split of GPUs and weight sync for given machines.

    It simulates splits as `dartsim tune` does, simulates the best ones again with fresh seeds, and writes the best as a
    TOML file.

    Examples:
        dartsim plan --on cluster.toml
        dartsim plan --gpus 8 --hosts 4x64GiB --profile osworld
        dartsim plan --gpus 16 --hosts 8x128GiBx32cores --profile runs/real \
          --price-gpu-hour 2.5 --price-host-hour 0.8
    """
    from dartsim.cli.options import load_config
    from dartsim.lab.jobs import Prices
    from dartsim.lab.machines import Machines, read_hosts
    from dartsim.lab.planning import plan_spec
    from dartsim.lab.study import Study

    base = load_config(scheduler, default="dartsim", on=on, profile=profile, overrides=settings(overrides, hours, None))
    own = base.cluster.hosts
    count, memory_gib, cores = (own.count, own.memory_gib, own.cores) if hosts is None else read_hosts(hosts)
    gpus = base.rollout.num_workers + base.cluster.learner.gpus if gpus is None else gpus
    machines = Machines(gpus, count, memory_gib, cores)
    spec = plan_spec(base, machines, Prices(price_gpu_hour, price_host_hour))
    folder = out_folder or new_folder("plan")
    folder_target(folder)  # fail before the work, not after it
    study = Study(spec)

    def finalists() -> dict[str, Mapping[str, Any]]:
        ranked = sorted((trial for trial in study.trials() if trial.feasible), key=lambda trial: -trial.values[0])
        return {f"split {trial.number}": trial.settings for trial in ranked[:FINALISTS]}

    with report_interrupt("interrupted: nothing was written; the same command starts again"):
        fresh = run_study(study, budget, finalists, fresh_seeds, processes, ray)
    if fresh is None:
        no_result(study)
        return
    ranking = fresh.ranking(spec.objectives[0].figure)
    best = finalists()[ranking[0].scheduler]
    row = fresh.figures[ranking[0].scheduler][0]
    path = _write(spec, best, ranking[0], fresh.seeds, folder)
    if json_file != "-":
        _show(study, ranking, fresh)
        out.print(f"{ranking[0].scheduler}: {row['verdict']}", soft_wrap=True, highlight=False, markup=False)
        out.print(f"configuration: {path}", soft_wrap=True, highlight=False)
    if json_file is not None:
        write_json(
            {
                "plan": best,
                "settings": spec.settings(best),
                "seeds": list(fresh.seeds),
                "ranking": [rank._asdict() for rank in ranking],
                "figures": dict(fresh.figures),
                "verdict": row["verdict"],
                "trials": [asdict(trial) for trial in study.trials()],
                "config": str(path),
            },
            json_file,
        )


def _write(spec: PlanSpec, best: Mapping[str, Any], rank: SchedulerRank, seeds: Sequence[int], folder: Path) -> Path:
    """Write the planned configuration, with its simulated training rate as a comment."""
    from dartsim.config import to_toml
    from dartsim.lab.virtual import with_settings
    from dartsim.observe.rundir import write_text

    folder.mkdir(parents=True, exist_ok=True)
    split = ", ".join(f"{key} = {value}" for key, value in best.items())
    comment = (
        f"# Made by `dartsim plan` for {spec.machines}: {split}.\n"
        f"# Simulated: {rank.mean_text} trained turns/min (seeds {', '.join(map(str, seeds))}).\n\n"
    )
    write_text(
        folder / FILE, comment + to_toml(with_settings(spec.base, {**spec.settings(best), "run.until_steady": None}))
    )
    return folder / FILE


def _show(study: Study, ranking: Sequence[SchedulerRank], fresh: Comparison) -> None:
    """Print the search, and the best splits with fresh seeds."""
    from dartsim.lab.comparison import over_seeds
    from dartsim.lab.gate import cell_text

    ranked = sorted(study.trials(), key=lambda trial: -trial.values[0] if trial.values else 0.0)
    out.print(trial_table(study.spec, ranked[:SHOWN], COSTS))
    out.print()
    table = plain_table("with fresh seeds", numbers=("steady turns/min", "to the best", *COSTS), after=("verdict",))
    for rank in ranking:
        figures = over_seeds(fresh.figures[rank.scheduler], COSTS.values())
        costs = (cell_text(figures.get(name)) for name in COSTS.values())
        table.add_row(rank.scheduler, rank.mean_text, rank.to_best, *costs, rank.verdict)
    out.print(table)
