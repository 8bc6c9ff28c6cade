"""OSWorld's tasks on our image ``apps``: which run, what doing nothing scores, and what scripted solutions score.

python -m experiments.osworld_apps --tasks OSWorld/evaluation_examples

A task of OSWorld runs here if its files are not downloaded and it needs neither a proxy nor an application that Debian
lacks; beside these are office tasks on files that we make. Each task is set up twice on a fresh desktop: nothing is
done, then its solution is played, or FAIL if it cannot be solved; office tasks a third time, with a wrong answer. The
scores are those of ``desktop-env``'s functions in the sandbox. One desktop runs at a time. With ``--results FILE`` an
interrupted run goes on after the last task that it finished.
"""

from __future__ import annotations

import argparse
import asyncio
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dartsim.core.errors import ConfigError
from experiments.study import Experiment, Figures, Options, Rows, rows_of, short_commit

Row = dict[str, Any]


def measure(options: Options) -> Figures:
    """Play the tasks, then measure the desktop itself."""
    from dartsim.real.desktop.images import image_name
    from experiments.osworld_apps_work import costs, played

    if options.own.tasks is None:
        raise ConfigError("--tasks names the folder of OSWorld's task files, evaluation_examples of its repository")
    figures = asyncio.run(played(options))
    load = os.getloadavg()[0]
    desktop = asyncio.run(costs(boots=3 if options.quick else 10, together=8))
    return {**figures, **desktop, "load_average": load, "config": {"image": image_name("apps")}}


def apps_found(figures: Figures) -> str:
    """Say in a few sentences what ran."""
    boot, together = figures["boot_seconds"], figures["boot_seconds_together"]
    return (
        f"Of OSWorld's {figures['listed']} tasks without downloads and proxies, {figures['run']} run on `apps`. "
        f"Scripts solve {figures['solved']} through the screen; {figures['infeasible']} cannot be solved, and score 1 "
        f"for FAIL. Of {figures['office']} office tasks on documents of our own {figures['office_right']} score 1 with "
        f"the right answer, {figures['office_wrong']} score 0 with a wrong one.\n\n"
        f"On two shared cores (load {figures['load_average']:.0f}) a desktop starts in {boot['p50']:.1f} s "
        f"(p95 {boot['p95']:.1f} s), {together['desktops']} at once in {together['p95']:.0f} s. "
        f"Idle it takes {figures['memory_mib']:,} MiB and {figures['idle_cores']:.1%} of a core, with "
        f"eight applications open {figures['memory_all_open_mib']:,} MiB, shared files not counted; "
        f"its image has {figures['image_mib']:,} MiB. 24 GiB hold {figures['desktops_in_24_gib']} desktops with an "
        "application each; two cores are the limit before. "
        f"Scored by {figures['scorer']}; recorded at commit {short_commit(figures)}.\n"
    )


def apps_table(figures: Figures) -> Rows:
    """Return the tasks by application."""
    return rows_of(
        {
            "application": "{app}",
            "tasks": "{tasks}",
            "run": "{run}",
            "solved by a script": "{solved}",
            "infeasible, FAIL scores 1": "{infeasible}",
            "score above 0 if nothing is done": "{untouched}",
            "why others do not run": "{reasons}",
        },
        [by_application(app, figures["tasks"]) for app in sorted({row["app"] for row in figures["tasks"]})],
    )


def by_application(app: str, tasks: Sequence[Mapping[str, Any]]) -> Row:
    """Return the counts of one application's tasks."""
    rows = [row for row in tasks if row["app"] == app]
    reasons = Counter(row["reason"].partition(":")[0] for row in rows if not row["runs"])
    return {
        "app": app,
        "tasks": len(rows),
        "run": sum(row["runs"] for row in rows),
        "solved": sum(row.get("solution_score") == 1.0 and not row.get("infeasible") for row in rows),
        "infeasible": sum(bool(row.get("infeasible")) for row in rows),
        "untouched": sum((row.get("nothing_score") or 0.0) > 0.0 for row in rows),
        "reasons": ", ".join(f"{count}: {reason}" for reason, count in reasons.most_common()),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the study's own options."""
    parser.add_argument("--tasks", type=Path, metavar="FOLDER", help="OSWorld's evaluation_examples")


STUDY = Experiment(
    name="osworld_apps",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"osworld-apps-found": apps_found, "osworld-apps-table": apps_table},
    add_arguments=add_arguments,
)

if __name__ == "__main__":
    STUDY.run()
