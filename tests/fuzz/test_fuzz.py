"""The search for failing schedules: what it plays, that it is the same every time, that it finds what is planted."""

import itertools
import json
import subprocess
import sys
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
import pytest
from pydantic import Field

from dartsim.config.sections.faults import FaultWindow
from dartsim.core.errors import ConfigError
from dartsim.core.section import Fuzzed, Section
from dartsim.fuzz import Case, Chunk, case_of_json, draw_case, fault_window, run_case, search, shrink
from dartsim.fuzz.case_directory import read_case, write_case_directory
from dartsim.fuzz.space import STORED, config_of, drawn_kinds, long_case, of_field, space
from dartsim.observe.perfetto import perfetto
from experiments.planted_bugs import MUTATIONS

TRIED = {"rollout.request_tries": 3, "curation.attempts.max_replacements": 2}

# Found by the search, and mended since: what was wrong, and the case as it was made simple.
FOUND = {
    "a score at the very end of its time limit was taken for a lost one": Case(
        preset="drawn",
        seed=1753225820,
        choices={
            **TRIED,
            "cluster.engine.control_seconds": 0.5,
            "delay_share": 0.02,
            "cluster.engine.model": "batch",
            "rollout.num_envs": 6,
            "curation.groups.drop_all_failed": True,
            "curation.groups.drop_solved": True,
            "curation.groups.drop_equal": True,
            "curation.batch.min_groups": 2,
            "cluster.engine.overhead_seconds": 1.0,
            "cluster.hosts.count": 2,
            "limits": "short lease",
            "curation.staleness.measured_by": "newest",
            "curation.pool.enabled": True,
            "cluster.engine.reload_seconds": 30.0,
            "rollout.request_tries": 10,
            "rollout.sync.mode": "restart",
            "curation.turn_limit.rule": "by_success",
        },
        faults=(
            FaultWindow(kind="request_failed", at_seconds=3.0, lasts_seconds=5.0, target=None, times=None),
            FaultWindow(kind="request_failed", at_seconds=11.0, lasts_seconds=49.0, target=2, times=None),
            FaultWindow(kind="request_hung", at_seconds=16.0, lasts_seconds=20.0, target=1, times=None),
            FaultWindow(kind="request_hung", at_seconds=45.0, lasts_seconds=5.0, target=3, times=None),
            FaultWindow(kind="request_failed", at_seconds=48.0, lasts_seconds=12.0, target=3, times=None),
            FaultWindow(kind="request_failed", at_seconds=48.0, lasts_seconds=1.0, target=2, times=None),
        ),
        profile="none",
    ),
    "a run came to its end while a slot gave its desktop back, and that the store had failed was forgotten": Case(
        "verl-buffer-wait",
        2,
        {
            **TRIED,
            "rollout.num_envs": 2,
            "latencies": "dart",
            "cluster.engine.model": "fluid",
            "cluster.engine.overhead_seconds": 1.0,
            "healed": False,
            "durability": "each",
        },
        (fault_window("store_error", 55, 1),),
    ),
    "an engine served new weights before the answer to their load had arrived": Case(
        "drawn",
        2126766680,
        {
            **TRIED,
            "curation.staleness.max_staleness": 0,
            "rollout.num_envs": 6,
            "latencies": "desktop-small",
            "rollout.sync.mode": "keep",
            "cluster.learner.fixed_seconds": 5.0,
        },
        (fault_window("load_slow", 55, 5, 0),),
    ),
    "the process was killed while the run ended after the store had refused an update": Case(
        "drawn",
        1,
        {
            **TRIED,
            "curation.attempts.group_size": 3,
            "curation.staleness.max_staleness": 0,
            "rollout.num_envs": 3,
            "cluster.engine.overhead_seconds": 1.0,
            "latencies": "desktop-small",
            "cluster.engine.reload_seconds": 30.0,
            "rollout.max_turns": 1,
            "rollout.warm_envs": 1,
            "rollout.sync.mode": "keep",
        },
        (fault_window("killed", 40, 1), fault_window("store_error", 108, 5), fault_window("killed", 113, 1)),
    ),
}

# A planted bug may keep a run's tasks from ending; what they say when they are thrown away matters to nobody.
LEFT_BEHIND = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")

KILLED = Case(
    "drawn",
    1,
    {"rollout.num_envs": 3, "curation.attempts.group_size": 3, "durability": "each"},
    tuple(fault_window("killed", at, 1) for at in (23, 37, 51)),
)
"""A process that dies three times, and is resumed each time."""

REFUSED = Case(
    "drawn",
    2,
    {"rollout.num_envs": 3},
    (fault_window("killed_before_commit", 10, 50), fault_window("store_error", 30, 30)),
)
"""One that dies in the middle of a transaction; then the database refuses one."""

WRITTEN = Case(
    "drawn", 1, {"rollout.num_envs": 3, "durability": "each"}, (fault_window("killed_after_commit", 20, 20),)
)
"""One that dies as soon as a transaction is written, before anything comes after it."""

LEARNED = replace(
    KILLED,
    choices={
        **KILLED.choices,
        "curation.pool.enabled": True,
        "curation.attempts.rule": "by_success",
        "curation.turn_limit.rule": "by_success",
    },
)
"""One whose rules learn, and must not forget."""

MORTAL = {
    "trained before commit": KILLED,
    "late state": WRITTEN,
    "lost batch": KILLED,
    "forgotten attempts": KILLED,
    "forgotten transaction": REFUSED,
    "rows before state": WRITTEN,
    "same seeds again": KILLED,
    "pool forgotten": LEARNED,
    "rates forgotten": LEARNED,
}

QUICK = (
    "lost wake-up",
    "double lease",
    "version skew",
    "marked as trained first",
    "reload overlap",
    "unbounded queue",
    "state left behind",
    "one pass",
    "settled by one",
    "stored twice",
    "seed of the group",
    "place lost",
    "unit opens early",
)


GONE = ("AttributeError", "NameError", "TypeError")
"""What a planted bug ends with if the code that it changes is not what it was: then it is none."""


def drawn(seed, **options):
    return draw_case(np.random.default_rng(seed), **options)


def test_a_short_search_finds_nothing():
    found = search(Chunk(0, 0, runs=50))
    assert found.failure is None, f"{found.failure.text}\n{found.failure.case}"
    assert found.tally.runs == 50
    assert found.tally.hours > 2.0
    assert len(found.tally.injected) > 10
    assert len(found.tally.schedulers) > 8


@pytest.mark.parametrize("preset", ["dart", "coupled", "dart-released"])
def test_the_schedulers_of_presets_hold_too(preset):
    found = search(Chunk(1, 0, preset=preset, runs=8))
    assert found.failure is None, f"{found.failure.text}\n{found.failure.case}"


@pytest.mark.parametrize("preset", ["areal-eta4", "coupled"])
def test_hours_of_hostile_operation_hold_too(preset):
    result = run_case(long_case(preset, 1, hours=6))
    assert not result.failed, result.text
    assert result.seconds > 6 * 3600.0


@pytest.mark.parametrize("what", FOUND)
def test_what_was_found_stays_mended(what):
    result = run_case(FOUND[what])
    assert not result.failed, result.text


@LEFT_BEHIND
@pytest.mark.parametrize("name", QUICK)
def test_planted_bugs_are_found(name):
    failure = search(Chunk(0, 0, mutation=MUTATIONS[name].apply, runs=60)).failure
    assert failure is not None
    assert failure.rule not in GONE, failure.text


def test_a_process_that_dies_goes_on_where_it_was():
    result = run_case(KILLED, keep=True)
    assert not result.failed, result.text
    assert (result.lives, result.injected) == (4, {"killed": 3})
    assert [event for _, event, _ in result.log].count("killed") == 3
    assert result.recorder.counts["cause/interrupted"] > 0
    assert result.event_hash == run_case(KILLED).event_hash


def test_a_database_that_refuses_a_transaction_ends_a_life():
    result = run_case(REFUSED)
    assert not result.failed, result.text
    assert (result.lives, result.injected) == (3, {"killed_before_commit": 1, "store_error": 1})


@LEFT_BEHIND
@pytest.mark.parametrize("name", MORTAL)
def test_what_is_wrong_with_the_state_is_found_where_the_process_dies(name):
    alive = replace(MORTAL[name], faults=())
    assert run_case(MORTAL[name], mutation=MUTATIONS[name].apply).failed
    assert not run_case(MORTAL[name]).failed
    assert not run_case(alive, mutation=MUTATIONS[name].apply).failed, "not to be found without a crash"


def test_every_dimension_is_drawn_and_every_case_is_possible():
    cases = [drawn(seed) for seed in range(300)]
    for case in cases:
        config_of(case)  # none of them is a scheduler that could not work
    assert {name for case in cases for name in case.choices} >= space().keys() - {"hours"}
    preset = {name for seed in range(100) for name in drawn(seed, preset="dart").choices}
    assert "rollout.num_envs" in preset
    assert "rollout.sync.mode" not in preset


class Added(Section):
    """Settings as somebody might add them."""

    flag: bool = False
    way: Literal["a", "b"] = "a"
    number: int = Field(7, ge=0)
    bound: Annotated[int, Field(ge=1)] | None = None
    seconds: float = 3.0
    named: Annotated[float, Fuzzed((3.0, 1.0))] = 3.0
    unfuzzed: Annotated[bool, Fuzzed()] = False


def test_the_values_of_a_setting_follow_from_its_type_unless_it_names_them():
    assert {name: of_field(field) for name, field in Added.model_fields.items()} == {
        "flag": (False, True),
        "way": ("a", "b"),
        "number": (0, 1, 2),
        "bound": (None, 2, 1, 3),
        "seconds": (),
        "named": (3.0, 1.0),
        "unfuzzed": (),
    }


def test_a_share_of_the_hostile_cases_has_a_process_that_dies():
    mortal = [seed for seed in range(400) if any(fault.kind in STORED for fault in drawn(seed).faults)]
    assert 20 <= len(mortal) <= 60
    for faults in ("none", "calm", "osworld"):
        assert not any(fault.kind in STORED for seed in range(100) for fault in drawn(seed, faults=faults).faults)


@LEFT_BEHIND
def test_a_planted_bug_is_gone_after_its_block():
    assert search(Chunk(0, 0, mutation=MUTATIONS["double lease"].apply, runs=5)).failure is not None
    assert search(Chunk(0, 0, runs=5)).failure is None


@LEFT_BEHIND
@pytest.mark.soak
@pytest.mark.parametrize("name", MUTATIONS)
def test_every_planted_bug_is_found(name):
    """Under each of three seeds."""
    for seed in range(3):
        failure = search(Chunk(seed, 0, mutation=MUTATIONS[name].apply, runs=1_000)).failure
        assert failure is not None
        assert failure.rule not in GONE, failure.text


def test_the_same_case_is_the_same_run():
    case = next(case for case in map(drawn, range(100)) if len(case.faults) > 3)
    first, second = run_case(case), run_case(case_of_json(json.loads(json.dumps(case.as_json()))), keep=True)
    assert (first.event_hash, first.num_events, first.seconds) == (second.event_hash, second.num_events, second.seconds)


def test_another_process_plays_the_same_run():
    case = replace(drawn(5), profile="none")
    code = "import json, sys; from dartsim.fuzz import *; case = case_of_json(json.loads(sys.argv[1]))"
    code += "; print(run_case(case).event_hash)"
    done = subprocess.run(
        [sys.executable, "-c", code, json.dumps(case.as_json())],
        env={"PYTHONHASHSEED": "1", "PYTHONPATH": ":".join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == run_case(case).event_hash


def test_every_case_survives_json():
    for seed in range(20):
        case = drawn(seed, preset="coupled" if seed % 2 else "drawn")
        assert case_of_json(json.loads(json.dumps(case.as_json()))) == case


def test_a_case_of_what_does_not_exist_is_refused():
    with pytest.raises(ConfigError, match="no-such-fault"):
        run_case(Case("drawn", 0, {}, (fault_window("no-such-fault", 0, 1),)))
    with pytest.raises(ConfigError, match="no-such"):
        run_case(Case("no-such", 0))
    with pytest.raises(ConfigError, match=r"rollout\.num_envs = 0"):
        run_case(Case("drawn", 0, {"rollout.num_envs": 0}))
    with pytest.raises(ConfigError, match="fault_seconds = 7"):
        run_case(Case("drawn", 0, {"fault_seconds": 7}))
    with pytest.raises(ConfigError, match="the case has nonsense"):
        run_case(Case("drawn", 0, {"nonsense": 7}))


def test_faults_are_over_before_the_healed_part_begins():
    for seed in range(200):
        case = drawn(seed)
        horizon = case.choices.get("fault_seconds", space()["fault_seconds"][0])
        assert all(0 <= fault.at_seconds < fault.end_seconds <= horizon for fault in case.faults)


def test_without_faults_nothing_is_struck():
    cases = [drawn(seed, faults="none") for seed in range(30)]
    assert not any(case.faults or case.profile != "none" or "delay_share" in case.choices for case in cases)
    assert run_case(cases[0]).injected == {}


@pytest.mark.parametrize("kind", sorted({*itertools.chain(*drawn_kinds("hostile").values()), *STORED}))
def test_every_kind_of_fault_is_injected_and_heals(kind):
    choices = {
        "rollout.num_envs": 2,
        "curation.attempts.group_size": 1,
        "cluster.engine.reload_seconds": 30.0,
        "cluster.learner.fixed_seconds": 5.0,
    }
    faults = tuple(fault_window(kind, start, 28) for start in (0, 30, 60, 90))
    for seed in range(8):  # a clock may be off by too little to matter
        result = run_case(Case("drawn", seed, choices, faults))
        assert not result.failed, result.text
        if kind in result.injected:
            return
    pytest.fail(f"{kind} was never injected")


@LEFT_BEHIND
def test_a_failure_is_made_simple():
    """A group waits forever for an attempt that a fault spoilt: one fault is enough, on the simplest cluster."""
    bug = MUTATIONS["missing requeue"].apply
    failure = search(Chunk(12, 0, mutation=bug, runs=100)).failure
    assert failure is not None
    simple = shrink(failure, mutation=bug, max_runs=60)
    assert simple.rule == failure.rule
    assert len(simple.case.faults) + bool(simple.case.profile != "none") == 1
    assert len(simple.case.choices) <= 3
    assert run_case(simple.case, mutation=bug).event_hash == simple.event_hash
    assert not run_case(simple.case).failed


@LEFT_BEHIND
def test_the_folder_of_a_failure_is_the_same_to_the_byte(tmp_path):
    bug = MUTATIONS["lost wake-up"].apply
    case = Case("drawn", 3, {"rollout.num_envs": 2})
    files = []
    for name in ("a", "b"):
        result = run_case(case, mutation=bug, keep=True)
        assert result.rule == "I8"
        folder = write_case_directory(tmp_path / name, result)
        files.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert files[0] == files[1]
    assert set(files[0]) == {
        "config.toml",
        "events.jsonl",
        "segments.bin",
        "status.json",
        "summary.json",
    }
    facts = json.loads(files[0]["summary.json"])
    assert (read_case(tmp_path / "a"), facts["rule"]) == (case, "I8")
    last = json.loads(files[0]["events.jsonl"].splitlines()[-1])
    assert any(event["ph"] == "X" for event in perfetto(tmp_path / "a")["traceEvents"])
    assert last["time"] <= facts["virtual_seconds"]
