"""The bar of a run: whose time it shows, and from when on."""

from __future__ import annotations

import io

import pytest
from rich.console import Console
from rich.progress import TextColumn

from dartsim.lab.progress import PrintedProgress, run_bar
from dartsim.observe import Recorder


@pytest.mark.parametrize(
    ("hours", "now", "started", "simulated", "said"),
    [
        (0.1, 240.0, 60.0, False, "3.0 of 6 min"),
        (48.0, 12 * 3600.0, 0.0, False, "12.0 of 48 h"),
        (4.0, 3600.0, 0.0, True, "1.0 of 4 simulated h"),
    ],
)
def test_a_bar_shows_the_time_of_its_run_from_its_start(hours, now, started, simulated, said):
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    with run_bar(console, "A[/b]", hours, simulated=simulated) as live:
        live.run_started(Recorder(lambda: started, num_envs=1, num_engines=1))
        live.time_advanced(now)
    assert said in console.file.getvalue()
    assert "A[/b]" in console.file.getvalue(), "a name is no markup"


def test_without_a_terminal_a_line_every_half_minute_says_how_far_the_work_is():
    console, now = Console(file=io.StringIO(), width=200), [0.0]
    with PrintedProgress(TextColumn("{task.completed} h"), console=console, get_time=lambda: now[0]) as running:
        task = running.add_task("dart", total=4.0, live="")
        for now[0], completed in ((29.0, 1), (31.0, 2), (40.0, 3), (62.0, 4)):
            running.update(task, completed=completed, live="version 7")
    assert console.file.getvalue() == (
        "dart  2 h  0:00:31 elapsed  0:00:04 left  version 7\ndart  4 h  0:01:02 elapsed  0:00:00 left  version 7\n"
    )
