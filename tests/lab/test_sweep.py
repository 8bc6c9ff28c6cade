"""Sweeps: results in the order of the runs, wherever they run; an interrupted one resumes."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from dartsim.lab.sweep import ArmRun, InProcess, Results, sweep
from dartsim.real.processes import LocalProcesses

QUIET = Console(file=io.StringIO())
RUNS = [ArmRun(arm, seed, (seed, factor)) for factor, arm in enumerate("abc", 1) for seed in range(2)]


def product(spec: tuple[int, int]) -> int:
    seed, factor = spec
    return 10 * seed * factor + factor


WANTED = [1, 11, 2, 22, 3, 33]


def test_results_are_in_the_order_of_the_runs_though_runs_end_in_another():
    class Backwards(InProcess):
        def run(self, function, items, on_progress=None):
            yield from reversed(list(super().run(function, items, on_progress)))

    assert sweep(product, RUNS, console=QUIET, executor=Backwards()) == WANTED


def test_processes_give_what_this_process_gives_and_report_how_far_they_are():
    seen = {}
    with LocalProcesses(2) as executor:
        assert sweep(product, RUNS, console=QUIET, executor=executor) == WANTED
        assert dict(executor.run(slowly, [0.0, 0.5], seen.__setitem__)) == {0: "done", 1: "done"}
    assert seen[1] == 0.5


def slowly(seconds, report):
    import time

    report(0.5)
    time.sleep(seconds)
    return "done"


def test_an_interrupted_sweep_makes_only_the_runs_that_are_missing(tmp_path):
    results, made = tmp_path / "results.jsonl", []

    def counted(spec):
        if len(made) == 4:
            raise KeyboardInterrupt
        made.append(spec)
        return product(spec)

    with pytest.raises(KeyboardInterrupt):
        sweep(counted, RUNS, console=QUIET, executor=InProcess(), results=results)
    assert [Results(results).get(run.key) for run in RUNS] == [*WANTED[:4], None, None]
    # Another program's file, and killed while it wrote its last line.
    results.write_bytes(b'{"key": 3}\n7\n\xff\xfe\n' + results.read_bytes()[:-5])
    made.clear()
    assert sweep(counted, RUNS, console=QUIET, executor=InProcess(), results=results) == WANTED
    assert made == [run.spec for run in RUNS[3:]]
    assert sweep(counted, RUNS, console=QUIET, executor=InProcess(), results=results) == WANTED
    assert [Results(results)[run.key] for run in RUNS] == WANTED


def test_a_run_with_another_spec_is_another_run(tmp_path):
    results = tmp_path / "results.jsonl"
    sweep(product, RUNS[:1], console=QUIET, executor=InProcess(), results=results)
    other = ArmRun("a", 0, (0, 7))
    assert sweep(product, [other], console=QUIET, executor=InProcess(), results=results) == [7]
