"""Fitting rows of a table, and predicting the others."""

from pathlib import Path

import pytest
import tomli_w

from dartsim.core.errors import ConfigError
from dartsim.lab.prediction import FIT_SEEDS, Predictor, ranking
from dartsim.lab.published import read_table, setup
from dartsim.lab.published_runs import reply_lengths, run_config, simulate
from dartsim.run.prepare import prepare
from dartsim.sim.latency import Capped, from_spec

TRUE = {
    "engine_efficiency": 0.7,
    "update_efficiency": 0.7,
    "step_cost": 1.8,
    "call_cost": 1.5,
    "sync_cost": 2.0,
}
SMALL = {
    "machines": {"gpu": "H100", "trainer": 2, "rollout": 2},
    "model": {"name": "Qwen3-4B"},
    "workload": {"groups": 8, "group_size": 4, "reply_tokens": 600.0, "reply_spread": 0.5, "longest": 2048},
    "scheduler": {"preset": "verl-partial", "ahead": 2.0},
}


def row(name, *figures, **changes):
    return {"name": name, "figures": [dict(zip(("figure", "value"), each, strict=True)) for each in figures], **changes}


def written(folder: Path, rows, **changes):
    tree = {"id": "t", "title": "a table", "source": "a test", **SMALL, **changes, "rows": rows}
    path = folder / "t.toml"
    path.write_text(tomli_w.dumps(tree))
    return path


def with_truth(folder: Path, rows, **changes):
    """Write a table whose figures are simulated with the true parameters."""
    table = read_table(written(folder, rows, **changes), fit=[])
    for each, known in zip(rows, table.rows, strict=True):
        found = simulate(setup(table, known), TRUE, 0)
        each["figures"] = [{**figure, "value": found[figure["figure"]]} for figure in each["figures"]]
    return written(folder, rows, **changes)


def exactly(path: Path, **options):
    """Fit and predict a table whose figures are the model's own, so that it hardly errs."""
    predictor = Predictor(path, **options)
    predictor.discrepancy = 0.1
    return predictor.run()


UPDATES = [
    row("short", ("update_seconds", 1.0), workload={"reply_tokens": 200.0}),
    row("long", ("update_seconds", 1.0), workload={"reply_tokens": 30_000.0}),
    row("other", ("update_seconds", 1.0), workload={"reply_tokens": 9_000.0}, machines={"trainer": 4}),
]


def test_updates_of_known_parameters_give_them_back_and_predict_another(tmp_path):
    found = exactly(with_truth(tmp_path, UPDATES, kind="update", fit=["short", "long"]))
    values = {each["name"]: each for each in found["parameters"]}
    assert values["update_efficiency"]["median"] == pytest.approx(0.7, rel=0.15)
    assert values["step_cost"]["median"] == pytest.approx(1.8, rel=0.15)
    assert [each["determined"] for each in found["parameters"]] == ["yes", "yes"]
    assert found["identified"]
    assert abs(found["rows"][2]["error"]) < 0.1
    assert found["rows"][2]["low"] < found["rows"][2]["published"] < found["rows"][2]["high"]


def test_a_fitted_row_is_left_out_only_where_the_cluster_has_others(tmp_path):
    found = exactly(with_truth(tmp_path, UPDATES, kind="update", fit=["short", "long"]))["left_out"]
    assert [each["row"] for each in found] == ["short", "long"]
    assert all(abs(each["error"]) < 2.0 * each["variance"] ** 0.5 for each in found), "no deviation of the model's own"
    assert exactly(with_truth(tmp_path, UPDATES, kind="update", fit=["long"]))["left_out"] == []


def test_what_the_rows_do_not_determine_is_named(tmp_path):
    found = exactly(with_truth(tmp_path, UPDATES, kind="update", fit=["long"]))
    assert {each["name"]: each["determined"] for each in found["parameters"]} == {
        "update_efficiency": "yes",
        "step_cost": "no",
    }
    assert not found["identified"]


def test_without_a_fitted_row_the_data_sheet_predicts_with_a_wider_interval(tmp_path):
    path = with_truth(tmp_path, UPDATES, kind="update", fit=["short", "long"])
    fitted, alone = (exactly(path, fit=fit)["rows"][2] for fit in (None, []))
    assert alone["high"] / alone["low"] > 1.3 * fitted["high"] / fitted["low"]
    assert not alone["fitted"]


def test_a_run_is_predicted_by_its_scheduler(tmp_path):
    rows = [
        row("sync", ("step_seconds", 1.0), ("update_seconds", 1.0), scheduler={"preset": "coupled"}),
        row("async", ("step_seconds", 1.0)),
    ]
    path = with_truth(tmp_path, rows, fit=["sync"])
    found = exactly(path)
    assert all(abs(each["error"]) < 0.25 for each in found["rows"]), (
        "fitted, and another scheduler on the same machines"
    )
    assert found["rows"][2]["published"] < found["rows"][0]["published"], "rollout and updates overlap"
    points = len(found["fit"])
    slopes = found["simulations"] - points * FIT_SEEDS - 2 * 10
    assert slopes in range(5, 5 * points + 1, 5), "of five parameters, at each point that is better than those before"


@pytest.mark.parametrize(("turns", "second"), [(1, 300), (3, 300 + 600 + 5)])
def test_a_turns_prompt_contains_the_earlier_replies(tmp_path, turns, second):
    workload = {**SMALL["workload"], "prompt_tokens": 300, "turns": turns}
    table = read_table(written(tmp_path, [row("a")], workload=workload))
    prompts = prepare(run_config(setup(table, table.rows[0]), TRUE, 0)).update_tokens.prompts
    assert prompts.prompt(0, warm=False).tokens == 300
    assert prompts.prompt(1, warm=False).tokens == pytest.approx(second, abs=10)


@pytest.mark.parametrize("machines", [{"trainer": 2, "rollout": 2}, {"colocated": 2}])
def test_only_what_shares_its_gpus_has_a_cost_of_switches(tmp_path, machines):
    path = written(tmp_path, [row("a", scheduler={"preset": "coupled"})], machines={"gpu": "H100", **machines})
    names = [each["name"] for each in Predictor(path).run()["parameters"]]
    assert ("switch_cost" in names) == ("colocated" in machines)


def test_a_file_that_continues_another_starts_from_what_that_one_found(tmp_path):
    first = with_truth(tmp_path, UPDATES[:2], kind="update", fit=["short", "long"])
    before = first.rename(tmp_path / "before.toml")
    second = with_truth(tmp_path, UPDATES[2:], kind="update", after=before.name)
    found = Predictor(second).run()
    assert "no" not in [each["determined"] for each in found["parameters"]]
    assert abs(found["rows"][0]["error"]) < 0.15
    with pytest.raises(ConfigError, match="both need the same kind"):
        Predictor(written(tmp_path, UPDATES[2:], kind="run", after=before.name)).run()


def test_means_over_growing_replies_are_refused_unless_their_window_is_short(tmp_path):
    windows = {"first": [0, 100], "long": [0, 400]}
    figures = [{"figure": "step_seconds", "value": 50.0, "steps": steps} for steps in windows.values()]
    path = written(tmp_path, [{"name": "a", "figures": figures}], workload={**SMALL["workload"], "grows": True})
    short, long = Predictor(path).run()["rows"]
    assert short["supported"]
    assert (long["supported"], long["predicted"]) == (False, None)
    assert "replies grow" in long["reason"]


def test_a_trend_of_replies_gives_each_window_its_own_lengths(tmp_path):
    workload = {**SMALL["workload"], "trend": [[0, 1.0], [100, 1.0], [300, 3.0], [400, 3.0]]}
    windows = {"first": [0, 100], "rising": [100, 300], "last": [300, 400]}
    figures = [{"figure": "update_seconds", "value": 50.0, "steps": steps} for steps in windows.values()]
    rows = [{"name": "all", "figures": figures}, row("when?", ("update_seconds", 50.0))]
    changing = Predictor(written(tmp_path, rows, kind="update", workload=workload, fit=["all"])).run()
    lengths = {"first": 600.0, "rising": 1_200.0, "last": 1_800.0}
    rows = [row(name, ("update_seconds", 50.0), workload={"reply_tokens": each}) for name, each in lengths.items()]
    steady = Predictor(written(tmp_path, rows, kind="update", fit=list(lengths))).run()
    predicted = [each["predicted"] for each in changing["rows"][:3]]
    assert predicted == pytest.approx([each["predicted"] for each in steady["rows"]])
    assert predicted == sorted(predicted)
    assert changing["rows"][3]["reason"] == "replies change, and its window of steps is not given"


def test_an_unsupported_table_says_why_and_simulates_nothing(tmp_path):
    found = Predictor(written(tmp_path, [row("a", ("step_seconds", 5.0))], unsupported="no lengths")).run()
    assert (found["rows"][0]["reason"], found["simulations"], found["parameters"]) == ("no lengths", 0, [])


def test_hours_are_of_a_window_of_steps(tmp_path):
    figures = [{"figure": "total_hours", "value": 2.0, "steps": [0, 100]}, {"figure": "step_seconds", "value": 72.0}]
    hours, step = Predictor(written(tmp_path, [{"name": "a", "figures": figures}])).run()["rows"]
    assert hours["predicted"] == pytest.approx(step["predicted"] * 100 / 3600)
    assert hours["error"] == pytest.approx(step["error"])


@pytest.mark.parametrize("mean", [300.0, 1_500.0])
def test_replies_have_the_wanted_mean_after_they_are_cut(tmp_path, mean):
    workload = {**SMALL["workload"], "reply_tokens": mean}
    table = read_table(written(tmp_path, [row("a")], workload=workload))
    assert Capped(from_spec(reply_lengths(setup(table, table.rows[0]))), 2048.0).mean == pytest.approx(mean, rel=0.01)


def test_the_ranking_compares_rows_of_one_figure():
    def entry(name, published, predicted, figure="step_seconds", *, fitted=False):
        numbers = {"published": published, "predicted": predicted, "fitted": fitted}
        return {"row": name, "figure": figure, "supported": True, **numbers}

    rows = [entry("a", 3.0, 4.0), entry("b", 2.0, 3.0), entry("c", 1.0, 3.5), entry("d", 0.1, 0.1, "wait_seconds")]
    assert ranking("step_seconds", rows) == {"tau": pytest.approx(1 / 3), "best": "c", "best_named": False}
    assert ranking("wait_seconds", rows)["tau"] is None
    assert ranking("step_seconds", [entry("a", 1.0, 1.0, fitted=True)] * 2)["best_named"] is None


ONE = [row("a", ("step_seconds", 5.0))]


@pytest.mark.parametrize(
    ("rows", "changes", "words"),
    [
        (ONE, {"fit": ["b"]}, "there is no row .*'b'"),
        (ONE * 2, {}, "two rows are called 'a'"),
        ([row("a", ("speed", 1.0))], {}, "there is no figure"),
        ([row("a", ("total_hours", 1.0))], {}, "needs steps"),
        ([row("a")], {"fit": ["a"]}, "has no figures"),
        (ONE, {"machines": {"gpu": "H1000", "trainer": 1, "rollout": 1}}, "data sheet of a GPU"),
        (ONE, {"machines": {"gpu": "H100", "trainer": 1}}, "machines.colocated"),
        (ONE, {"model": {"name": "mine"}}, "parameters, layers"),
        (ONE, {"workload": {"groups": 2}}, "reply_tokens is missing"),
        (ONE, {"assumed": {"groups": 0.5}}, "may be assumed"),
        (ONE, {"assumed": {"turn_seconds": 0.5}}, "needs a value above 0"),
        ([{**ONE[0], "unsupported": "why"}], {"fit": ["a"]}, "is to be fitted, and unsupported"),
        ([row("a", ("step_seconds", -1.0))], {}, "greater than 0"),
        ([{**ONE[0], "workload": {"grups": 3}}], {}, "row 'a', workload: grups"),
    ],
)
def test_a_bad_file_is_refused_with_the_place(tmp_path, rows, changes, words):
    with pytest.raises(ConfigError, match=words):
        read_table(written(tmp_path, rows, **changes))


def test_a_file_that_is_missing_or_no_toml_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read"):
        read_table(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("id = ")
    with pytest.raises(ConfigError, match="is not TOML"):
        read_table(tmp_path / "bad.toml")


def test_every_published_table_is_a_valid_file():
    files = sorted((Path(__file__).parents[2] / "experiments" / "published").glob("*.toml"))
    tables = [read_table(path) for path in files]
    assert [table.id for table in tables] == [path.stem for path in files]
    assert all(table.unsupported or table.rows for table in tables)
