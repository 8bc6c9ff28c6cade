"""``dartsim plan``: the best use of given machines, its throughput and cost, and the gain from adding one of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table

from dartsim.cli.console import errors, out, plain_table, write_json
from dartsim.cli.options import (
    Json,
    OnOption,
    Out,
    Overrides,
    ProfileOption,
    SchedulerArgument,
    UntilSteady,
    folder_target,
    new_folder,
    settings,
)
from dartsim.cli.signals import report_interrupt
from dartsim.cli.tune import GpuPrice, HostPrice, Processes, RayAddress

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.lab.analytic_model import BoundCheck
    from dartsim.lab.machines import MachineSplit
    from dartsim.lab.planning import MachinePlan

FILE = "plan.toml"
SHOWN = 5
"""Other splits that are shown; all are in the JSON."""


def plan(
    scheduler: SchedulerArgument = None,
    on: OnOption = None,
    gpus: Annotated[
        int | None,
        typer.Option(help="GPUs, for workers and trainer together, 2 or more; default: those of the configuration."),
    ] = None,
    hosts: Annotated[
        str | None,
        typer.Option(help="Machines for desktops: 4x64GiB, or 4x64GiBx32cores; default: those of the configuration."),
    ] = None,
    profile: ProfileOption = None,
    preset: Annotated[str | None, typer.Option(help="Whose rules are kept; default: dartsim.")] = None,
    price_gpu_hour: GpuPrice = 1.0,
    price_host_hour: HostPrice = 0.0,
    hours: Annotated[
        float | None,
        typer.Option(min=0.5, help="Simulated hours of each run; default: 3 to 10, and more where updates take long."),
    ] = None,
    until_steady: UntilSteady = None,
    seeds: Annotated[
        int, typer.Option(min=1, help="Simulations of each in the search; of the plan itself others, 3 or more.")
    ] = 2,
    overrides: Overrides = None,
    processes: Processes = None,
    ray: RayAddress = None,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    r"""Find the best number of desktops, split of GPUs and weight sync for given machines.

    Every figure is simulated, with seeds that the search did not use, and compared with its closed form; an alarm
    reports where they disagree.

    Examples:
        dartsim plan --on cluster.toml
        dartsim plan --gpus 8 --hosts 4x64GiB --profile osworld
        dartsim plan --gpus 16 --hosts 8x128GiBx32cores --profile runs/real \
          --price-gpu-hour 2.5 --price-host-hour 0.8
    """
    from dartsim.cli.options import load_config
    from dartsim.lab.analytic_model import checks
    from dartsim.lab.jobs import Prices
    from dartsim.lab.machines import Machines, read_hosts
    from dartsim.lab.planning import Planner, expected_runs
    from dartsim.lab.sweep import WithProgress, executor_for, progress_bar
    from dartsim.lab.virtual import as_virtual
    from dartsim.run.prepare import prepare

    base = load_config(
        scheduler,
        preset_name=preset,
        default="dartsim",
        on=on,
        profile=profile,
        overrides=settings(overrides, None, None, until_steady=until_steady),
    )
    own = base.cluster.hosts
    count, memory_gib, cores = (own.count, own.memory_gib, own.cores) if hosts is None else read_hosts(hosts)
    gpus = base.rollout.num_workers + base.cluster.learner.gpus if gpus is None else gpus
    machines = Machines(gpus, count, memory_gib, cores)
    virtual, prices = as_virtual(base), Prices(price_gpu_hour, price_host_hour)
    folder_target(out_folder or new_folder("plan"))  # fail before the work, not after it
    interrupted = report_interrupt("interrupted: nothing was written; the same command starts again")
    with interrupted, executor_for(processes, ray) as executor, progress_bar(errors) as progress:
        early = virtual.run.until_steady is not None
        counted = WithProgress(executor, progress, "runs", expected=expected_runs(seeds), at_most=early)
        planner = Planner(virtual, machines, prices=prices, hours=hours, seeds=tuple(range(seeds)), executor=counted)
        result = planner.plan()
        counted.done()
    if not result.rate:
        errors.print(f"no plan: {result.figures['failure']}", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(1)
    bound_checks = checks(prepare(result.config), result.figures)
    machines_text = f"{gpus} GPUs, {count}x{memory_gib:g}GiB"
    path = _write(result, base, machines_text=machines_text, folder=out_folder or new_folder("plan"))
    if json_file != "-":
        _show(result, bound_checks, path)
    if json_file is not None:
        write_json(_as_json(result, bound_checks, path), json_file)


def _write(result: MachinePlan, base: Config, *, machines_text: str, folder: Path) -> Path:
    from dartsim.config import to_toml
    from dartsim.lab.planning import planned
    from dartsim.observe.rundir import write_text

    folder.mkdir(parents=True, exist_ok=True)
    comment = (
        f"# Made by `dartsim plan` for {machines_text}: {result.split}.\n"
        f"# Simulated: {_simulated(result)}; cost per hour {result.figures['cost_per_hour']:.2f}.\n"
    )
    write_text(folder / FILE, comment + "\n" + to_toml(planned(base, result)))
    return folder / FILE


def _simulated(result: MachinePlan) -> str:
    """Return the plan's trained turns, and how they were simulated."""
    hours, first, last = result.config.run.hours, result.seeds[0], result.seeds[-1]
    length = f"at most {hours:g} h" if result.config.run.until_steady is not None else f"{hours:g} h"
    return f"{result.rate:.1f} trained turns/min{_spread(result)} (seeds {first} to {last}, {length} each)"


def _spread(result: MachinePlan) -> str:
    from dartsim.lab.comparison import half_width
    from dartsim.lab.planning import trained_rate

    width = half_width([trained_rate(figures) for figures in result.by_seed])
    return "" if width is None else f" ± {width:.1f}"


def _as_json(result: MachinePlan, bound_checks: Sequence[BoundCheck], path: Path) -> dict[str, Any]:
    """Return a plan as plain values."""
    return {
        "plan": {**asdict(result.split), "desktops_per_rollout_gpu": result.split.num_envs / result.split.workers},
        "binding": result.binding,
        "seeds": list(result.seeds),
        "hours": result.config.run.hours,
        "figures": result.figures,
        "search_trained_turns_per_minute": result.searched,
        "closed_form": asdict(result.predicted),
        "checks": [
            {**asdict(check), "high": None if check.high == float("inf") else check.high} for check in bound_checks
        ],
        "alarms": [f"{check.figure}: {check.alarm}" for check in bound_checks if check.alarm],
        "syncs": [asdict(sync) for sync in result.syncs],
        "sync_reason": result.reason,
        "extras": [
            {"what": extra.what, "gain": extra.gain, "half_width": extra.half_width, **_short(extra.figures)}
            for extra in result.extras
        ],
        "others": [{**asdict(split), "trained_turns_per_minute": rate} for split, rate in result.others],
        "config": str(path),
    }


def _short(figures: Mapping[str, Any]) -> dict[str, Any]:
    names = ("trained_turns_per_minute", "steady_turns_per_minute", "cost_per_hour", "cost_per_1000_turns")
    return {name: figures[name] for name in names}


def _show(result: MachinePlan, bound_checks: Sequence[BoundCheck], path: Path) -> None:
    split, figures = result.split, result.figures
    table = plain_table("", "", show_header=False)
    table.columns[1].style = "bold"
    spares = f", and {split.spares} booted ahead" if split.spares else ""
    for name, value in (
        ("desktops", f"{split.num_envs} ({split.num_envs / split.workers:.1f} a rollout GPU){spares}"),
        ("GPUs", f"{split.workers} to roll out, {split.trainer} to train"),
        ("weight sync", f"{split.sync}: {result.reason}"),
        ("trained turns/min", f"{result.rate:.1f}{_spread(result)}"),
        ("environment utilization", f"{figures['env_utilization']:.1%}"),
        ("GPU utilization (rollout)", f"{figures['gpu_utilization']:.1%}"),
        ("minutes per version", _number(figures["minutes_per_version"])),
        ("staleness, mean (largest)", f"{figures['staleness_mean']:.2f} ({figures['staleness_max']})"),
        ("cost per hour", f"{figures['cost_per_hour']:.2f}"),
        ("cost per 1,000 trained turns", _number(figures["cost_per_1000_turns"])),
        ("limited by", result.binding),
    ):
        table.add_row(name, value)
    out.print(table)
    out.print()
    out.print(_check_table(bound_checks))
    out.print()
    out.print(_extra_table(result))
    out.print()
    out.print(_search_table(result))
    out.print(f"figures: {_simulated(result)}", soft_wrap=True, highlight=False)
    out.print(f"configuration: {path}", soft_wrap=True, highlight=False)
    for check in bound_checks:
        if check.alarm:
            out.print(f"alarm: {check.figure}: {check.alarm} ({check.law})", style="bold red")


def _check_table(bound_checks: Sequence[BoundCheck]) -> Table:
    table = plain_table("", numbers=("simulated", "closed form"), after=("law",))
    for check in bound_checks:
        closed = f"<= {_number(check.high)}" if not check.low else f"{_number(check.low)} to {_number(check.high)}"
        table.add_row(check.figure, _number(check.simulated), closed, check.law)
    return table


def _extra_table(result: MachinePlan) -> Table:
    from dartsim.lab.planning import trained_rate

    table = plain_table("simulated with", numbers=("trained/min", "change", "cost per hour", "cost per 1,000 turns"))
    for extra in result.extras:
        costs = (_number(extra.figures[name]) for name in ("cost_per_hour", "cost_per_1000_turns"))
        width = "" if extra.half_width is None else f" ± {100.0 * extra.half_width:.1f}"
        table.add_row(extra.what, f"{trained_rate(extra.figures):.1f}", f"{100.0 * extra.gain:+.1f}{width} %", *costs)
    return table


def _search_table(result: MachinePlan) -> Table:
    """Return the alternatives of the search: other weight syncs with the same split, and other splits."""
    table = plain_table("in the search", numbers=("desktops", "GPUs", "trained/min", "against the plan"))

    def add(split: MachineSplit, rate: float) -> None:
        against = "" if split == result.split else f"{rate / result.searched - 1.0:+.1%}" if result.searched else "–"
        gpus = f"{split.workers} + {split.trainer}"
        table.add_row(
            split.sync, f"{split.num_envs} + {split.spares}", gpus, f"{rate:.1f}" if rate else "failed", against
        )

    add(result.split, result.searched)
    for sync in result.syncs[1:]:
        add(replace(result.split, sync=sync.sync), sync.rate)
    rest = [(split, rate) for split, rate in result.others if replace(split, sync=result.split.sync) != result.split]
    for split, rate in rest[:SHOWN]:
        add(split, rate)
    return table


def _number(value: float | None) -> str:
    return "–" if value is None else "∞" if value == float("inf") else f"{value:,.4g}"
