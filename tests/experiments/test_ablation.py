"""The arms of the ablation, its runs and its tables."""

import pytest

from dartsim.envs.mock.suites import SUITES as TASK_SUITES
from experiments.ablation import ARMS, PARTS, STUDY, config, jobs
from experiments.learning_suites import SUITES


@pytest.mark.parametrize("suite", SUITES)
def test_every_arm_is_a_configuration_and_differs_from_every_other(suite):
    assert suite in TASK_SUITES
    made = {arm: config(arm, 0, suite=suite).model_dump_json() for arm in ARMS}
    assert len(set(made.values())) == len(ARMS)
    assert {config("dart", 3, bound, suite=suite).curation.staleness.max_staleness for bound in (0, 8)} == {0, 8}


def test_dart_has_every_part_and_decoupled_none():
    assert set(ARMS["dart"]["parts"]) == set(PARTS)
    without = config("decoupled", 0).curation
    assert (without.attempts.rule, without.turn_limit.rule, without.selection.rule) == ("fixed", "fixed", "all")
    assert not without.pool.enabled
    assert config("decoupled", 0).trainer.objective.importance == "off"
    assert config("+ pool", 0).curation.pool.collected_per_task == 1


def test_no_run_is_made_twice_and_arms_that_matter_get_all_seeds():
    for suite, seeds_of_others in (("locks", 5), ("long", 2)):
        made = jobs(suite, list(ARMS), 5)
        assert len(set(made)) == len(made) <= 130
        for arm, own in ARMS.items():
            plain = [job for job in made if job[0] == arm and job[2] == (0 if own.get("coupled") else 1)]
            assert len(plain) == (5 if suite in own.get("chosen", ()) else seeds_of_others)
    assert {arm for arm, _, _ in jobs("long", ["dart"], 2)} == {"dart"}


def test_an_unknown_arm_is_refused_before_anything_runs():
    with pytest.raises(SystemExit):
        STUDY.run(["--arms", "dart, stored kept", "hart"])
