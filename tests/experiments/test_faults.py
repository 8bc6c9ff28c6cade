import json

import pytest

from experiments.faults import (
    ALL,
    HEALED,
    cost_rows,
    costs_picture,
    faulty,
    injections,
    provenance,
    run_one,
    summary,
)


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
    assert costs_picture(told).startswith("<?xml")
