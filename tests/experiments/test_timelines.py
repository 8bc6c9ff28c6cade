import pytest

import dartsim
from dartsim.observe.states import POPULATIONS
from experiments.timelines import working_shares


@pytest.fixture(scope="module")
def run():
    return dartsim.simulate("dart", on="laptop", overrides={"run.hours": 0.5, "run.warmup_share": 0.0})


def test_minutes_add_up_to_the_shares_of_the_run(run):
    for name, shares in working_shares(run.recorder, 0, 30).items():
        states = [state for state in POPULATIONS[name].states if state.info.useful]
        known = sum(run.summary[POPULATIONS[name].shares][state.key] for state in states)
        assert sum(shares) / 30 == pytest.approx(known, abs=1e-3)


def test_minutes_that_were_not_kept_are_an_error(run):
    with pytest.raises(ValueError, match="minutes 0 to 31 were not kept"):
        working_shares(run.recorder, 0, 31)
