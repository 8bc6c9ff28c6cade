"""The published claims in small: each re-run, its rules, tables and pictures, and what is recorded of them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from dartsim.lab.bounds import least_seconds, turn_load
from dartsim.observe.rundir import json_text
from dartsim.run.prepare import prepare
from experiments import claims
from experiments.claims import ARMS, LADDER, ClaimArm, derived, knee, mean_turns, over, run_arm
from experiments.claims_tables import PICTURES, TABLES, provenance
from experiments.claims_verdicts import gpu_definitions, pick, verdicts
from experiments.study import Options, recorded


def arm(claim: str, series: str, name: str | None = None, value: float | None = None) -> ClaimArm:
    """Return one arm of the full run."""
    return next(
        one
        for one in ARMS[claim](quick=False)
        if one.series == series and name in (None, one.name) and value in (None, one.value)
    )


def run(one: ClaimArm, hours: float) -> dict:
    return run_arm((replace(one, hours=hours), 0))


# Each claim, small.


def test_decoupling_makes_the_throughput_and_the_utilization_of_darts_table():
    coupled, dart = run(arm("table", "ladder", "coupled"), 4.0), run(arm("table", "left out", "DART"), 2.0)
    assert dart["trained_turns_per_minute"] > 1.3 * coupled["trained_turns_per_minute"]
    assert dart["env_utilization"] > 4.0 * coupled["env_utilization"]
    assert dart["gpu_utilization"] > 5.0 * coupled["gpu_utilization"], "not the published 1.6x"


def test_interrupted_replies_are_more_and_kept_ones_most():
    modes = ("waited for", "interrupted, cache lost", "paused, cache kept")
    runs = [run(arm("interrupt", "replies of 8,000 tokens", mode, 90.0), 0.6) for mode in modes]
    waited, interrupted, kept = (one["gpu_peak_share"] for one in runs)
    assert waited < interrupted < kept
    assert runs[0]["num_updates"] < runs[1]["num_updates"]


def test_admission_keeps_the_bound_and_drops_nothing():
    runs = {bound: run(arm("staleness", "dart, by admission", str(bound)), 3.0) for bound in (0, 1)}
    assert all(one["staleness_max"] <= bound and not one["stale_share"] for bound, one in runs.items())
    assert runs[1]["trained_turns_per_minute"] > 1.3 * runs[0]["trained_turns_per_minute"]
    assert run(arm("staleness", "dart, by dropping", "0"), 1.5)["stale_share"] > 0.05


def test_only_a_global_sync_stops_the_pool():
    rolling, at_once = (run(arm("sync", f"dart, {scope} restart", "300 s"), 1.0) for scope in ("rolling", "global"))
    assert rolling["stopped_share"] == 0.0
    assert at_once["stopped_share"] > 0.1
    assert rolling["generated_turns_per_minute"] > at_once["generated_turns_per_minute"]


def test_desktops_far_below_the_knee_are_answered_at_once():
    few, more = (run(arm("desktops", "trainer and sync free", value=number), 1.0) for number in (2, 5))
    assert more["generated_turns_per_minute"] > 2.0 * few["generated_turns_per_minute"]
    assert few["generated_turns_per_minute"] <= 1.05 * few["bound_desktops"]


# What is run.


def test_the_ladder_ends_at_the_measured_preset():
    top = arm("table", "ladder", list(LADDER)[-1]).config(0).model_dump()
    dart = arm("table", "left out", "DART").config(0).model_dump()
    assert {key for key in dart if dart[key] != top[key]} <= {"preset", "about"}


def test_every_configuration_can_work_and_is_another():
    for quick in (True, False):
        for claim, arms_of in ARMS.items():
            arms = list(arms_of(quick=quick))
            assert len({(one.series, one.name, one.value) for one in arms}) == len(arms)
            for one in arms:
                assert one.claim == claim
                one.config(0)


def test_derived_figures():
    figures = {
        "gpu_utilization": 0.5,
        "trainer_shares": {"training": 0.8},
        "desktop_shares": {"sync_wait": 0.1},
        "dropped": {"stale": 3},
        "attempts": 12,
        "faults": {"request_restarted": 8},
        "simulated_hours": 2.0,
    }
    found = derived(figures, arm("table", "left out", "DART").config(0))
    assert found["all_gpus_utilization"] == pytest.approx((4 * 0.5 + 8 * 0.8) / 12)
    assert found["hybrid_gpus_utilization"] == pytest.approx(1.3)
    assert (found["stale_share"], found["killed_per_hour"]) == (0.25, 4.0)


def test_means_have_intervals_and_what_is_missing_has_none():
    assert over("a", [{"a": 1.0}, {"a": 3.0}])["mean"] == 2.0
    assert over("a", [{"a": 1.0}, {"a": 3.0}])["half_width"] == pytest.approx(12.706)
    assert over("a", [{"a": 1.0}, {"a": None}]) == {"mean": None, "half_width": None}


def test_the_knee_is_the_first_number_of_desktops_that_asks_for_too_much():
    prepared = prepare(arm("desktops", "DART", value=10).config(0))
    at = knee(prepared)
    load = turn_load(prepared, mean_turns(prepared), warm=False)
    each, number = at["turns_per_minute_of_a_desktop"], at["no_prefix_cached"]
    assert number * each >= 60.0 / least_seconds(prepared.gpu, load, number)
    assert (number - 1) * each < 60.0 / least_seconds(prepared.gpu, load, number - 1)
    assert at["no_prefix_cached"] <= at["all_prefixes_cached"]
    assert mean_turns(prepared) == pytest.approx(0.594 * 11.6 + 0.406 * 19.6)


# What is said about it, on figures that are made up.


def made_up(job: tuple[ClaimArm, int]) -> dict:
    """Figures that grow with what is varied; the bound saturates at 1."""
    one, seed = job
    coupled = one.preset == "coupled" and "curation.max_ahead=none" not in one.changes
    size = min(one.value if one.value is not None else 1.0, 1.0)
    return {
        "trained_turns_per_minute": 22.6 if coupled else 20.0 + 23.6 * size + seed,
        "generated_turns_per_minute": 180.0,
        "env_utilization": 0.122 if coupled else 0.677,
        "gpu_utilization": 0.05 if coupled else 0.467,
        "gpu_utilization_rollout_phase": 0.16,
        "gpu_peak_share": 0.10 if one.name == "waited for" else 0.117,
        "all_gpus_utilization": 0.4,
        "hybrid_gpus_utilization": 0.6,
        "training_share": 0.5,
        "stopped_share": 0.2 if "global" in one.series else 0.0,
        "staleness_mean": 0.5,
        "staleness_max": 0 if coupled else 1,
        "staleness_histogram": {"0": 50, "1": 50},
        "wasted_share": 0.7,
        "stale_share": 0.2,
        "minutes_per_version": 20.0,
        "killed_per_hour": 5.0,
        "bound_trained_turns_per_minute": 44.0,
        "bound_desktops": 212.0,
        "bound_engines": None,
        "bound_by": "trainer",
        "event_hash": f"{seed}",
    }


@pytest.fixture
def figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The command on made-up runs."""

    monkeypatch.setattr(Options, "sweep", lambda self, function, runs: [made_up(run.spec) for run in runs])
    target = tmp_path / "f.json"
    claims.STUDY.run(["--quick", "--seeds", "2", "--json", str(target)])
    return json.loads(target.read_text())


def test_every_table_and_picture_can_be_made(figures):
    for name in ("claims-verdicts", "claims-gpus"):
        head, rows = TABLES[name](figures)
        assert rows
        assert all(len(row) == len(head) for row in rows)
    for picture in PICTURES.values():
        text = picture.draw(figures)
        assert text == picture.draw(figures)
        assert ElementTree.fromstring(text).tag.endswith("svg")
    assert "table 3" in provenance(figures)


def test_verdicts_follow_the_rules(figures):
    judged = {one["statement"]: one["agrees"] for one in figures["verdicts"]}
    assert judged["DART over coupled: trained turns"] is True
    assert judged["DART over coupled: utilization of rollout GPUs, all the time"] is False
    assert judged["what each part is worth in trained turns"] is None
    assert judged["`dart`: bound 4 over bound 0, trained turns"] is True
    assert judged["`dart`: every larger bound trains faster, turns a minute"] is False, "it is flat from 1 on"
    assert judged["`dart`: admission alone holds the bound"] is False, "half of all turns are 1 old at a bound of 0"
    assert judged["`dart`: rollout goes on during a rolling sync, and stops during a global one (300 s)"] is True
    gains = next(one for one in figures["verdicts"] if one["published"] == "+17%")
    assert (gains["ours"].startswith("+17%"), gains["agrees"]) == (True, True)


def test_a_claim_about_an_arm_that_was_not_run_is_an_error(figures):
    with pytest.raises(LookupError, match="no arm 'nowhere'"):
        pick(figures["claims"]["table"], "nowhere")
    with pytest.raises(LookupError):
        verdicts({**figures["claims"], "table": []})


def test_the_fitted_definition_meets_the_baseline_by_construction(figures):
    found = {one["definition"]: one for one in gpu_definitions(figures["claims"]["table"])}
    fitted = next(one for words, one in found.items() if "fitted" in words)
    assert fitted["coupled"] == pytest.approx(0.296)
    assert found["rollout GPUs, all the time"]["ratio"] == pytest.approx(0.467 / 0.05)


# What is recorded.


@pytest.fixture
def known():
    try:
        return recorded("claims")
    except FileNotFoundError:
        pytest.skip("experiments/recorded/claims.json is not recorded")


def test_the_recorded_runs_are_those_of_the_code(known):
    for claim, arms_of in ARMS.items():
        wanted = [(one.series, one.name, one.preset, one.hours, list(one.changes)) for one in arms_of(quick=False)]
        found = [
            (row["series"], row["name"], row["run"]["preset"], row["run"]["hours"], row["run"]["changes"])
            for row in known["claims"][claim]
        ]
        assert found == wanted, claim


def test_the_recorded_verdicts_are_those_of_the_rules(known):
    assert known["verdicts"] == json.loads(json_text(verdicts(known["claims"])))
    definitions = json.loads(json_text(gpu_definitions(known["claims"]["table"])))
    assert [one["definition"] for one in definitions] == [one["definition"] for one in known["gpu_definitions"]]
    for ours, recorded_one in zip(definitions, known["gpu_definitions"], strict=True):
        for name in ("coupled", "dart", "ratio"):
            assert ours[name] == pytest.approx(recorded_one[name], rel=1e-4)  # of rounded figures
