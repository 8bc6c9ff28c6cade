"""From timings to a profile, and back into a configuration that runs; on timings whose answers are known."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.core.types import Attempt, Task
from dartsim.lab.measure import LATENCIES, mean_live, measure, profile_toml
from dartsim.lab.virtual import twin
from dartsim.observe.timings import TIMINGS, read_timings
from dartsim.run.backends.containers import ContainerDesktops
from dartsim.run.prepare import prepare, recorded_outcomes
from dartsim.run.run_prepared import run_prepared
from dartsim.sim.latency import from_spec
from dartsim.sim.surrogate import RecordedAttempt

PARTS = ('backend.desktops="desktop"', 'backend.workers="local"', 'backend.learner="local"')


def real(preset="desktop", *more):
    return load(preset, overrides=more)


def line(what, seconds, at=100.0, **context):
    return {"at": at, "what": what, "seconds": seconds, "busy": {what.partition("/")[0]: 2}, **context}


def timings(scale=1.0, num=40):
    """Return the timings of a run whose desktops, batches and updates follow known laws."""
    found = []
    for number in range(num):
        at = 100.0 + number
        for rank, what in enumerate(sorted(LATENCIES.values()), start=1):
            found.append(line(what, scale * rank * (1.0 + number % 5), at, slot=0))
        size = 1 + number % 8
        found.append(line("worker/batch", scale * (0.1 + 0.05 * size), at, worker=0, size=size, waited=scale * 0.1))
        # A tenth of a second from its batch to the control plane, and a tenth to it.
        replied = {"worker": 0, "live": 1, "turn": 0}
        found.append(line("worker/generate", scale * (0.3 + 0.05 * size), at + 0.1 * scale, **replied))
        found.append(line("worker/put", 0.2, at - 0.75, worker=0, size=0, waited=0.05))
        found.append(line("attempt", 9.0, at, group=number // 8, index=number % 8, turns=2, reward=number % 4 // 3))
        found.append(line("loop/busy", 0.1, at, of=0.5))
        turns = 8 * (1 + number % 3)
        sizes = {"turns": turns, "trajectories": turns, "tokens": 3_000 * turns}
        found.append(line("learner/update", scale * (2.0 + 0.5 * turns), at, **sizes))
    return found


SUMMARY = {"simulated_hours": 0.5, "mean_reward": 0.25, "engine_shares": {"loading": 0.1}}


def test_what_was_put_in_is_found_again():
    cluster = measure(real(), timings()).settings["cluster"]
    assert cluster["engine"]["model"] == "batch"
    # The batch's 0.1 s, what it waited for the loop, and the way from the loop and to it.
    assert cluster["engine"]["batch_seconds"] == pytest.approx(0.3)
    assert cluster["engine"]["request_seconds"] == pytest.approx(0.05)
    assert cluster["engine"]["reload_seconds"] == 0.25
    assert cluster["engine"]["control_seconds"] == 0.0
    assert cluster["learner"]["fixed_seconds"] == pytest.approx(2.0)
    assert cluster["learner"]["kilotoken_seconds"] == pytest.approx(0.5 / 3.0)
    for name, what in LATENCIES.items():
        rank = 1 + sorted(LATENCIES.values()).index(what)
        assert from_spec(cluster["env"]["latency"][name]).mean == pytest.approx(3.0 * rank)
    assert from_spec(cluster["engine"]["batch_spread"]).mean == pytest.approx(1.0)


def test_returns_to_saved_states_are_measured(monkeypatch):
    monkeypatch.setattr(ContainerDesktops, "saves_states", lambda self, config: True)
    changed = {"env/save": 2.0, "env/restore": 1.0, "env/resume": 0.5}
    kept = [entry for entry in timings() if entry["what"] != "env/close"]  # desktops outlive the attempts
    calls = [line(what, seconds, 100.0 + number, slot=0) for what, seconds in changed.items() for number in range(40)]
    latency = measure(real("desktop", "desktop.revert=fork", "rollout.warm_envs=0"), [*kept, *calls]).settings[
        "cluster"
    ]["env"]["latency"]
    assert from_spec(latency["save"]).mean == pytest.approx(2.0)
    assert from_spec(latency["restore"]).mean == pytest.approx(1.5)
    assert latency["teardown"] == 0.0


@given(st.floats(1e-3, 1e3))
def test_a_profile_is_read_back_as_it_was_measured(scale):
    measured = measure(real(), timings(scale))
    text = profile_toml(measured, {"title": "a", "counts": measured.counts})
    assert {key: value for key, value in tomllib.loads(text).items() if key != "about"} == measured.settings


def test_a_profile_can_be_run_alone_or_laid_over_another_configuration(tmp_path):
    profile = tmp_path / "profile.toml"
    profile.write_text(profile_toml(measure(real(), timings()), {"title": "a"}))
    own = tmp_path / "own.toml"
    own.write_text(
        'preset = "dart"\n[rollout]\nnum_envs = 3\n'
        "[cluster.env.latency]\nboot = {kind = 'gamma', mean_seconds = 3.0, k = 2.0}\n"
    )
    alone, over = load(profile), load(own, on=str(profile))
    assert alone.cluster == over.cluster
    assert (alone.rollout.num_envs, over.rollout.num_envs) == (38, 3)
    assert prepare(over).timing.boot.mean == pytest.approx(3.0 * (1 + sorted(LATENCIES.values()).index("env/start")))
    assert load(own, on=str(profile), overrides=["rollout.num_envs=9"]).rollout.num_envs == 9


def test_mock_desktops_are_the_event_loop_s_own_work():
    config = real("tiny", 'backend.desktops="mock"', *PARTS[1:])
    cluster = measure(config, timings(num=41)).settings["cluster"]
    # A fifth of 40 s of the loop, for 41 requests; what a batch waited for the loop is in there.
    assert cluster["engine"]["batch_seconds"] == pytest.approx(0.1)
    assert cluster["engine"]["control_seconds"] == pytest.approx(0.2 * 40.0 / 41)
    assert from_spec(cluster["env"]["latency"]["step"]).mean == 0.0
    # A set-up ends with the score of the attempt before it here; the loop's work with one request is less.
    assert 0.0 < cluster["env"]["latency"]["evaluate"] <= cluster["engine"]["control_seconds"]


def served(alone, beside, groups):
    """Return the replies of a server: in each group so many at once, one group a minute."""
    return [
        line("worker/generate", alone + beside * (size - 1), at=100.0 + 60.0 * number, worker=0, live=size, turn=0)
        for number, size in enumerate(groups)
        for _ in range(size)
    ]


def test_a_server_s_replies_are_fitted_by_how_many_were_live():
    config = real("desktop", PARTS[0], 'backend.workers="vllm"', PARTS[2])
    others = [entry for entry in timings() if not entry["what"].startswith("worker")]
    replies = served(2.0, 0.25, [1, 2, 3, 4, 8] * 4)
    # One that a change of weights held up, and the change itself.
    held = [line("worker/generate", 10.0, at=5000.0, worker=0, live=1, turn=0)]
    load = [line("worker/load", 25.0, at=4999.0, worker=0, live=1)]
    # It answered for five seconds more, while the weights were written.
    held += [line("worker/generate", 2.0, at=4979.0, worker=0, live=1, turn=0)]
    entries = [*others, *replies, *held, *load]
    engine = measure(config, entries).settings["cluster"]["engine"]
    assert engine["model"] == "shared"
    assert engine["batch_seconds"] == pytest.approx(1.75)
    assert engine["request_seconds"] == pytest.approx(0.25)
    assert (engine["prepare_seconds"], engine["reload_seconds"]) == (5.0, 20.0)
    assert engine["control_seconds"] == 0.0
    assert twin(config, measure(config, entries), SUMMARY, Path("timings.jsonl")).cluster.engine.model == "shared"


def test_live_requests_are_averaged_over_a_reply_s_time():
    long = line("worker/generate", 10.0, at=10.0, worker=0)
    short = line("worker/generate", 4.0, at=6.0, worker=0)
    elsewhere = line("worker/generate", 10.0, at=10.0, worker=1)
    found = mean_live([long, short, elsewhere])
    assert [found[id(entry)] for entry in (long, short, elsewhere)] == pytest.approx([1.4, 2.0, 1.0])


def test_warm_up_failures_and_what_was_cancelled_stay_out_of_the_times():
    lines = [
        line("env/start", 500.0, at=1.0),
        line("env/start", 500.0, at=100.0, failed=True),
        line("env/start", 500.0, at=100.0, cancelled=True),
    ]
    measured = measure(real(), [*lines, *timings(num=9)])
    assert max(value for _, value in measured.settings["cluster"]["env"]["latency"]["boot"]["points"]) < 100.0
    assert measured.settings["cluster"]["faults"]["kinds"]["start_failed"]["share"] == pytest.approx(0.1)
    assert measured.counts["env/start"] == 9


@pytest.mark.parametrize("missing", ["env/evaluate", "worker/batch", "worker/put", "learner/update"])
def test_a_run_that_was_too_short_is_refused(missing):
    with pytest.raises(ConfigError, match=f"no {missing} was measured"):
        measure(real(), [entry for entry in timings() if entry["what"] != missing])


def test_modeled_parts_of_a_run_stay_as_they_are_configured():
    config = real("tiny", *PARTS[1:], "cluster.learner.fixed_seconds=77.0")
    assert set(measure(config, timings()).settings["cluster"]) == {"engine", "learner", "faults"}
    assert twin(config, measure(config, timings()), SUMMARY, Path("timings.jsonl")).cluster.env == config.cluster.env


def test_timings_are_read_up_to_where_a_killed_run_stopped(tmp_path):
    path = tmp_path / TIMINGS
    path.write_text(json.dumps(line("env/step", 1.0)) + '\n{"at": 5, "wh')
    assert [entry["what"] for entry in read_timings(tmp_path)] == ["env/step"]
    path.write_text('{"at": 5}\n' + json.dumps(line("env/step", 1.0)) + "\n")
    with pytest.raises(ConfigError, match=r"line 1 of .* is not a timing"):
        read_timings(tmp_path)


# ---- twins


def test_outcomes_are_those_of_the_attempts_that_were_scored(tmp_path):
    lost = [line("attempt", 1.0, group=0, index=9, turns=1, reward=None)]
    found = recorded_outcomes([*timings(), *lost])
    played = {
        (group, index): found.of(Attempt(0, Task("t", ""), group, index, 0, 5, 0)) for group, index in [(0, 3), (0, 9)]
    }
    assert played[0, 3] == RecordedAttempt(0, 3, 2, success=True)
    assert played[0, 9] in [found.of(Attempt(0, Task("t", ""), 0, index, 0, 5, 0)) for index in range(8)]
    with pytest.raises(ConfigError, match="no attempt was recorded as scored"):
        recorded_outcomes(lost)


def test_a_twin_runs_and_meets_its_arithmetic(tmp_path):
    """Two desktops, constant times: a turn takes 0.4 s of batch and 1.6 s of step, an attempt 10 s more."""
    small = ["rollout.max_turns=5", "rollout.num_envs=2", "rollout.warm_envs=0", 'curation.turn_limit.rule="fixed"']
    config = real("desktop", *small)
    seconds = {"env/start": 4.0, "env/reset": 3.0, "env/step": 1.6, "env/evaluate": 2.0, "env/close": 1.0}
    entries = [line(what, value, at=100.0 + n) for what, value in seconds.items() for n in range(5)]
    entries += [line("worker/batch", 0.4, at=100.0 + n, worker=0, size=1 + n % 2, waited=0.0) for n in range(5)]
    entries += [
        line("worker/put", 0.1, at=50.0, worker=0, waited=0.0),
        line("learner/update", 8.0, turns=8, tokens=8_000),
    ]
    entries += [line("attempt", 20.0, group=0, index=n, turns=5, reward=n % 2) for n in range(4)]
    path = tmp_path / TIMINGS
    path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    found = twin(config, measure(config, entries), SUMMARY, path)
    assert (found.cluster.engine.batch_seconds, found.cluster.engine.request_seconds) == (0.4, 0.0)
    figures = run_prepared(prepare(found)).figures
    assert figures["turns_per_trajectory"] == pytest.approx(5.0, rel=0.02)
    # At most: a batch that another attempt's request finds under way makes it wait.
    wanted = 2 * 5 * 60.0 / 20.0
    assert 0.9 * wanted < figures["generated_turns_per_minute"] <= 1.01 * wanted
