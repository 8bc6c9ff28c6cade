"""The arms of the ablation, its runs and its tables."""

import pytest

from dartsim.envs.mock.suites import SUITES as TASK_SUITES
from experiments.ablation import (
    ADDED,
    ARMS,
    CHOSEN,
    LONG_STUDY,
    PARTS,
    PUBLISHED,
    STUDY,
    arms_table,
    base_table,
    config,
    cuts_table,
    jobs,
    overrides,
)
from experiments.learning_suites import SUITES


@pytest.mark.parametrize("suite", SUITES)
def test_every_arm_is_a_configuration_and_differs_from_every_other(suite):
    assert suite in TASK_SUITES
    made = {arm: config(arm, 0, suite=suite).model_dump_json() for arm in ARMS}
    assert len(set(made.values())) == len(ARMS)
    assert {config("dart", 3, bound, suite=suite).curation.staleness.max_staleness for bound in (0, 8)} == {0, 8}


def test_dart_has_every_part_and_decoupled_none():
    assert set(ARMS["dart"].parts) == set(PARTS)
    without = config("decoupled", 0).curation
    assert (without.attempts.rule, without.turn_limit.rule, without.selection.rule) == ("fixed", "fixed", "all")
    assert not without.pool.enabled
    assert config("decoupled", 0).trainer.objective.importance == "off"
    assert "curation.pool.collected_per_task=1" in overrides("+ pool", 1, 64)


def test_parts_are_added_one_after_another_and_each_is_left_out_once():
    sizes = [len(ARMS[arm].parts) for arm in ADDED]
    assert sizes == [1, 2, 3, 4, 5]
    assert all(set(ARMS[a].parts) < set(ARMS[b].parts) for a, b in zip(list(ADDED), list(ADDED)[1:], strict=False))
    assert all(set(ARMS[f"dart - {part}"].parts) == set(PARTS) - {part} for part in PARTS)


@pytest.mark.parametrize("arm", ["coupled", "coupled, all parts"])
def test_coupled_waits_and_has_one_batch_ahead(arm):
    settings = config(arm, 0)
    assert settings.rollout.lockstep
    assert settings.trainer.wait_for_sync
    assert settings.curation.max_ahead == settings.curation.batch.max_groups * settings.curation.attempts.group_size


def test_no_run_is_made_twice_and_arms_that_matter_get_all_seeds():
    for suite, seeds_of_others in (("locks", 5), ("long", 2)):
        made = jobs(suite, list(ARMS), 5)
        assert len(set(made)) == len(made) <= 130
        plain = [(arm, seed) for arm, seed, bound in made if bound == 1]
        for arm in ARMS:
            assert sum(one == arm for one, _ in plain) == (5 if arm in CHOSEN[suite] else seeds_of_others)
    assert {arm for arm, _, _ in jobs("long", ["dart"], 2)} == {"dart"}


def test_an_unknown_arm_is_refused_before_anything_runs(capsys):
    with pytest.raises(SystemExit):
        STUDY.run(["--arms", "dart, stored kept", "hart"])
    assert "invalid choice: 'hart'" in capsys.readouterr().err


def test_the_base_models_are_shown_of_whatever_arms_were_run():
    some = {"arms": [run("dart", 0), run("dart, one step", 1)]}
    assert base_table(some)[1][0] == ["easy", "20", "60 ± 0 %"]


def run(arm, seed):
    return {
        "arm": arm,
        "seed": seed,
        "bound": 0 if ARMS[arm].coupled else 1,
        "success_rate_final": 0.5,
        "by_kind_initial": {"easy": 0.6, "hard": 0.2, "never": 0.0},
        "by_kind_final": {"easy": 1.0, "hard": 0.5, "never": 0.0},
        "kinds": {"easy": 20, "hard": 10, "never": 30},
        "cut_turns": {"own": 10, "own_cut": 2, "stored": 4, "stored_cut": 3, "positive": 14, "positive_cut": 5},
        "curve": {"turns": [0, 100, 200], "simulated_hours": [0.0, 0.1, 0.2], "success_rate": [0.3, 0.5, 0.7]},
        "attempts": [{"easy": {"attempts": 8, "turns": 16}, "hard": {}, "never": {"attempts": 8, "turns": 40}}] * 4,
        "num_updates": 3,
        "importance": {},
    }


def recorded(suite):
    runs = [run(arm, seed) for seed in range(2) for arm in ARMS]
    return {
        "suite": suite,
        "published": PUBLISHED,
        "arms": runs,
        "staleness": [{**run("dart", 0), "bound": bound} for bound in (0, 1, 8)],
        "staleness_without_alignment": [{**run("dart - alignment", 0), "bound": 8}],
        "config": {"dart": {"run": {"hours": 0.4}}},
    }


def test_tables_have_a_row_for_every_arm():
    head, rows = arms_table(recorded("long"))
    assert [row[0] for row in rows] == list(dict.fromkeys(ARMS))
    assert all(len(row) == len(head) for row in rows)
    dart = next(row for row in rows if row[0] == "dart")
    assert (dart[1], dart[5], dart[6], dart[-1]) == ("50 ± 0 %", "+0 ± 0", "–", "2")
    assert base_table(recorded("long"))[1][2] == ["never", "30", "0 ± 0 %"]
    assert cuts_table(recorded("long"))[1][0][1:] == ["20 %", "75 %", "36 %", "–"]


def test_pictures_name_their_arms_and_parts():
    pytest.importorskip("matplotlib")
    pictures = {**STUDY.pictures, **LONG_STUDY.pictures}
    drawn = {name: picture.draw(*[recorded("long")] * (1 + len(picture.beside))) for name, picture in pictures.items()}
    assert all(f">{arm}<" in drawn["ablation-long-success"] for arm in ARMS)
    assert all(f">{part}<" in drawn["ablation-long-parts"] for part in PARTS)
    assert "dart, stored kept" in drawn["ablation-long-curves"]
