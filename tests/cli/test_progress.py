"""The bar of a run: whose time it shows, and from when on."""

from __future__ import annotations

import io
import subprocess
import sys
from types import SimpleNamespace

import pytest
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from dartsim.cli import progress
from dartsim.cli.progress import RunBar, bars
from dartsim.config import Config
from dartsim.lab.jobs import Job, Outcome, run_job
from dartsim.lab.progress import ExpectedCost, PrintedProgress, memory_bytes
from dartsim.lab.sweep import WithProgress, progress_bar
from dartsim.observe import Recorder


@pytest.fixture
def shown(monkeypatch):
    """Return what draws the bar of a run at a time of its event loop."""

    def draw(hours, now, *, started, simulated):
        console = Console(file=io.StringIO(), force_terminal=True, width=200)
        with bars(console) as running:
            live = RunBar(running, "tiny", hours, simulated=simulated)
            monkeypatch.setattr(progress, "time", SimpleNamespace(monotonic=lambda: 1e9))
            live.run_started(Recorder(lambda: started, num_envs=1, num_engines=1))
            live.time_advanced(now)
        return console.file.getvalue()

    return draw


def test_a_real_run_begins_when_its_engines_are_there(shown):
    assert "3.0 of 6 min" in shown(0.1, 240.0, started=60.0, simulated=False)
    assert "simulated" not in shown(0.1, 240.0, started=60.0, simulated=False)


def test_a_long_real_run_is_told_in_hours(shown):
    assert "12.0 of 48 h" in shown(48.0, 12 * 3600.0, started=0.0, simulated=False)


def test_a_simulated_run_is_told_in_its_own_hours(shown):
    assert "1.0 of 4 simulated h" in shown(4.0, 3600.0, started=0.0, simulated=True)


def test_what_comes_before_a_run_is_shown():
    console = Console(file=io.StringIO(), force_terminal=True, width=200)
    with bars(console) as running:
        RunBar(running, "tiny", 0.1, simulated=False)
    assert "starting" in console.file.getvalue()


def test_a_bar_of_the_laboratory_counts_simulations_and_knows_how_many_come():
    class Instant:
        def run(self, function, items, on_progress=None):
            on_progress(0, 1 / 3)
            assert task.completed == before + 1 / 3
            yield from ((place, Outcome()) for place in range(len(items)))

    jobs = [Job(name=str(number), config=Config()) for number in range(12)]
    with progress_bar(Console(file=io.StringIO())) as running:
        counted = WithProgress(Instant(), running, "runs", expected=20)
        (task,) = running.tasks
        before = 0
        next(counted.run(run_job, jobs))
        assert (task.completed, task.total) == (1, 20)
        before = 1
        list(counted.run(run_job, jobs))
        assert task.total == 24  # more than was thought
        counted.done()
        assert task.total == 24


def test_without_a_terminal_a_line_every_half_minute_says_how_far_the_work_is():
    console, now = Console(file=io.StringIO(), width=200), [0.0]
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.completed} h"),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[live]}"),
    )
    with PrintedProgress(*columns, console=console, get_time=lambda: now[0]) as running:
        task = running.add_task("dart", total=4.0, live="")
        for now[0], completed in ((29.0, 1), (31.0, 2), (40.0, 3), (62.0, 4)):
            running.update(task, completed=completed, live="version 7")
    assert console.file.getvalue() == (
        "dart  2 h  0:00:31 elapsed  0:00:04 left  version 7\ndart  4 h  0:01:02 elapsed  0:00:00 left  version 7\n"
    )


def announced(seconds, *reports, **options):
    """Return the line of work that reports its share, and its turns, every so many seconds."""
    now = [100.0]
    console = Console(file=io.StringIO(), width=200)
    cost = ExpectedCost(Progress(console=console, get_time=lambda: now[0]), memory=lambda: 250_000_000, **options)
    for report in reports:
        cost.progressed(*report)
        now[0] += seconds
    return console.file.getvalue()


def test_long_work_is_announced_once_with_its_time_and_memory():
    assert announced(6.0, (0.0,), (0.01,), (0.9,)) == (
        "expected: about 10 min (measured over 6 s); 250 MB of memory so far\n"
    )
    assert announced(60.0, (0.0, 10), (0.001, 90_010), at_most=True, num_desktops=10_000) == (
        "expected: at most 16.7 h, at 1,500 simulated turns per second (measured over 60 s); 700 MB of memory\n"
    )


def test_work_that_goes_on_is_announced_with_the_time_that_is_left():
    assert announced(6.0, (0.5,), (0.55,)).startswith("expected: about 60 s (")


def test_short_work_is_not_announced_nor_is_work_whose_rate_is_unknown():
    assert announced(6.0, (0.0,), (0.5,)) == ""
    assert announced(6.0, (0.0,), (0.0,)) == ""
    assert announced(1.0, (0.0,), (0.001,)) == ""


def test_the_memory_in_use_includes_processes_that_were_started():
    alone = memory_bytes()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        assert memory_bytes() > alone > 10_000_000
        child.communicate(b"\n")
