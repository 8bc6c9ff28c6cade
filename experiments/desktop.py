"""Real desktops on this machine: how long they take, how many there may be, and what random kills leave behind.

``python -m experiments.desktop``. The engine is the one of DOCKER_HOST, or this machine's; the image is made if it is
not there. Without an engine, or without the packages of the image, it says so and ends with status 77.
"""

from __future__ import annotations

import asyncio

from rich.console import Console
from rich.table import Table

from dartsim.core.errors import ConfigError
from experiments.common import Figures, Options, run_experiment

SKIPPED = 77
"""Exit status where nothing can be measured; test harnesses take it for `skipped`."""


def measure(options: Options) -> Figures:
    """Make the image, and measure everything on desktops of it."""
    # Imported here: the command line can be asked for help without the extra `real`.
    from dartsim.real.containers.errors import EngineMissing
    from dartsim.real.desktop import build
    from experiments.desktop_work import measured

    say = options.console.print
    try:
        image = asyncio.run(build("skeleton", on_line=lambda line: say(line, style="dim")))
    except (EngineMissing, ConfigError) as missing:
        say(f"skipped: {missing}")
        raise SystemExit(SKIPPED) from None
    return measured(image, options)


def show(found: Figures, console: Console) -> None:
    """Print the figures."""
    table = Table("seconds", "p50", "p95", title="One desktop")
    for name, label in LABELS.items():
        table.add_row(label, f"{found[name]['p50']:.3f}", f"{found[name]['p95']:.3f}")
    console.print(table)
    console.print(f"a step takes {found['step_overhead_ratio']:+.1%} more than the HTTP calls it makes")
    table = Table("desktops", "steps/min", "utilization", title="Together")
    for entry in found["density"]:
        table.add_row(str(entry["num_desktops"]), f"{entry['steps_per_minute']:.0f}", f"{entry['utilization']:.0%}")
    console.print(table)
    console.print(
        f"{found['kills']} kills: {found['leaked_containers']} containers leaked, {found['lost_records']} records lost"
    )


LABELS = {
    "start_to_screenshot_seconds": "start to a good screenshot",
    "revert_gap_seconds": "between two attempts, spares booted ahead",
    "revert_gap_without_warm_pool_seconds": "between two attempts, without",
    "screenshot_seconds": "screenshot, 1920 × 1080",
    "step_seconds": "step (an action and a look)",
    "raw_calls_seconds": "its bare HTTP calls",
}


def main() -> None:
    """Run from the command line."""
    run_experiment("desktop", measure, show, about="Real desktops: times, density, random kills.", seeds=1)


if __name__ == "__main__":
    main()
