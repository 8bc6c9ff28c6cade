"""Real desktops on this machine: how long they take, how many there may be, and what random kills leave behind.

``python -m experiments.desktop``. The engine is the one of DOCKER_HOST, or this machine's; the image is made if it is
not there. Without an engine, or without the packages of the image, it says so and ends with status 77.
"""

from __future__ import annotations

import asyncio

from dartsim.core.errors import ConfigError
from experiments.study import Experiment, Figures, Options, short_commit

SKIPPED = 77
"""Exit status where nothing can be measured; test harnesses take it for `skipped`."""


def measure(options: Options) -> Figures:
    """Make the image, and measure everything on desktops of it."""
    # Imported here: `--help` works without the extra `real`.
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


def desktop_found(figures: Figures) -> str:
    """Say in a few sentences how long a desktop takes, and what random kills left behind."""
    more = figures["kills_more"]
    killed = ", ".join(f"{number} × {name}" for name, number in more["killed"].items())
    density = "; ".join(
        f"{row['num_desktops']} complete {row['steps_per_minute']:.0f}, busy {row['utilization']:.0%} of the time"
        for row in figures["density"]
    )
    return (
        f"A desktop takes {figures['start_to_screenshot_seconds']['p50']:.1f} s from the call of Docker to a good "
        f"screenshot of 1920 x 1080, a step {figures['step_seconds']['p50']:.2f} s "
        f"({figures['step_overhead_ratio']:+.0%} over its bare HTTP calls). Between two attempts a slot waits "
        f"{figures['revert_gap_seconds']['p50']:.1f} s with spares and "
        f"{figures['revert_gap_without_warm_pool_seconds']['p50']:.1f} s without. Steps a minute of desktops on "
        f"{figures['machine']['logical_cores']} cores: {density}. {figures['kills']:,} random kills "
        f"({killed}) left {figures['leaked_containers']} containers behind, lost {figures['lost_records']} stored "
        f"attempts and made {more['wrong_scores']} scores wrong. Recorded at commit {short_commit(figures)}.\n"
    )


STUDY = Experiment(
    name="desktop",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"desktop-found": desktop_found},
)

if __name__ == "__main__":
    STUDY.run()
