import json

import pytest

from dartsim.sim.faults import KINDS, PROFILES
from experiments.faults import ALL, HEALED, cost_rows, faulty, injections, kinds_rows, provenance, run_one, summary


@pytest.fixture(scope="module")
def made():
    return {("coupled", faults): [run_one(faulty("coupled", faults, 1.5))] for faults in (*ALL, HEALED)}


def test_a_small_run_has_every_figure_and_the_worse_the_profile_the_more_is_masked(made):
    found = summary({faults: runs for (_, faults), runs in made.items()})
    assert found["none"]["throughput_kept"] == 1.0
    masked = [found[name]["masked_share"] for name in ALL]
    assert masked == sorted(masked)
    assert masked[0] == 0.0 < masked[-1]
    injected = injections(made)
    assert sum(injected["calm"].values()) < sum(injected["osworld"].values()) < sum(injected["hostile"].values())


def test_the_tables_are_those_of_the_code_and_of_the_figures(made):
    one = summary({faults: runs for (_, faults), runs in made.items()})
    told = {
        "presets": {"coupled": one},
        "injections": injections(made),
        "hours": 1.5,
        "seeds": [0],
        "commit": {"id": "0123456789abcdef", "dirty": False},
    }
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    head, rows = cost_rows(told)
    assert [len(row) for row in rows] == [len(head)]
    assert "1 presets" in provenance(told)
    assert "Commit 0123456789." in provenance(told)
    first, second = kinds_rows(osworld=True), kinds_rows(osworld=False)
    assert len(first[1]) == 30
    assert len(first[1]) + len(second[1]) == len(KINDS)
    assert all(len(row) == len(head) for head, rows in (first, second) for row in rows)
    assert all(f"{profile}, ‰" in second[0] for profile in PROFILES)
