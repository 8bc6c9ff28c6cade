"""The pages, without a browser."""

from __future__ import annotations

import base64
import gzip
import json
import re
from dataclasses import dataclass
from html.parser import HTMLParser

import pytest

from dartsim.observe import DesktopState, EngineState, TrainerState, charts
from dartsim.observe.charts import efficiency
from dartsim.observe.figures import FIGURES, figure_text, figures, summary
from dartsim.observe.report import (
    differences,
    render_comparison,
    render_report,
    rolling_window,
    surrogates,
    unique_names,
)
from dartsim.observe.rundir import write_run
from dartsim.observe.states import POPULATIONS


def embedded(page: str, name: str):
    found = re.search(rf'<script type="application/json" id="{name}">(.*?)</script>', page, re.DOTALL)
    assert found is not None
    return json.loads(found[1])


PLOTLY = r'<script type="text/plain" id="plotlyjs">([^<]*)</script>'


def own_text(page: str) -> str:
    """Return the page without plotly.js."""
    return re.sub(PLOTLY, "", page)


class Addresses(HTMLParser):
    """Collects every address an element would load."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.found += [value for name, value in attrs if name in ("src", "href", "data", "srcset") and value]


def test_no_two_states_of_a_population_share_a_color():
    for population in POPULATIONS.values():
        colors = [state.info.color for state in population.states]
        assert len(set(colors)) == len(colors)
        assert not set(colors) & set(charts.RUN_COLORS)


def test_useful_states_are_those_of_the_definitions():
    useful = {name: {state for state in info.states if state.info.useful} for name, info in POPULATIONS.items()}
    assert useful == {
        "desktops": {DesktopState.GENERATING, DesktopState.TURN_WAIT, DesktopState.ACTING},
        "engines": {EngineState.BUSY, EngineState.DRAINING},
        "trainer": {TrainerState.TRAINING},
    }


def test_every_shown_figure_is_measured(make_recorder):
    recorder = make_recorder(hours=0.5)
    measured = set(figures(recorder.snapshots[0], recorder.snapshots[-1])) | {"staleness_mean", "staleness_max"}
    assert set(FIGURES) <= measured


def test_figures_are_read_as_people_read_them():
    assert figure_text("env_utilization", 0.6774) == "67.7\u202f%"
    assert figure_text("trained_turns_per_minute", 43.62, unit=False) == "43.6"
    assert figure_text("minutes_per_version", None) == "–"
    assert figure_text("minutes_per_version", 1.26) == "1.3\u202fmin"
    assert figure_text("minutes_per_version", 0.0123) == "0.738\u202fs", "of a fast run an update takes no minute"
    assert figure_text("mean_reward", 0.5943) == "0.594"
    assert "inute" not in FIGURES["minutes_per_version"].label, "it may be shown in seconds"


def test_the_page_stands_alone(make_run, tmp_path):
    page = make_run(tmp_path, hours=0.5).report.read_text()
    parser = Addresses()
    parser.feed(own_text(page))
    assert parser.found == ["data:,"]
    assert "default-src 'none'" in page
    found = re.search(PLOTLY, page)
    assert found is not None
    assert "* plotly.js v" in gzip.decompress(base64.b64decode(found[1])).decode()


def test_no_two_runs_of_a_comparison_share_a_color():
    colors = charts.run_colors(32)
    assert len(set(colors)) == 32
    assert colors[:9] == charts.run_colors(9)


def test_the_page_says_what_ran(make_run, tmp_path):
    run = make_run(tmp_path, seed=7, hours=0.5)
    page = own_text(run.report.read_text())
    assert "<h1>dart</h1>" in page
    assert run.summary["event_hash"] in page
    assert "surrogate policy: outcomes are drawn, nothing was learned" in page
    for name in ("env_utilization", "gpu_utilization", "trained_turns_per_minute"):
        assert figure_text(name, run.summary[name], unit=False) in page
        assert FIGURES[name].definition in page.replace("&#39;", "'")
    assert "# &lt;b&gt;" in page


def test_only_a_surrogate_is_called_one(make_run, tmp_path):
    run = make_run(tmp_path, surrogate=False, hours=0.2)
    assert "surrogate policy" not in own_text(run.report.read_text())


def test_bars_of_time_add_up_to_100_percent(make_run, tmp_path):
    plots = embedded(make_run(tmp_path, hours=1.0).report.read_text(), "plots")
    total = dict.fromkeys((info.title for info in POPULATIONS.values()), 0.0)
    for bar in plots["states"]["data"]:
        total[bar["y"][0]] += bar["x"][0]
    assert list(total.values()) == pytest.approx([100.0] * 3, abs=0.01)


def test_each_plot_has_its_chart(make_run, tmp_path):
    page = make_run(tmp_path, hours=0.5).report.read_text()
    assert set(re.findall(r'data-plot="([\w]+)"', page)) == set(embedded(page, "plots"))


def test_a_run_in_which_nothing_happened_has_a_page(make_run, tmp_path):
    run = make_run(tmp_path, hours=0.001, max_segments=0)
    assert run.summary["total_updates"] == 0
    page = own_text(render_report(run).read_text())
    assert "Not recorded: the run kept no segments." in page


def test_names_cannot_break_out_of_the_page(make_run, tmp_path):
    evil = "</script><script>alert(1)</script>"
    page = make_run(tmp_path, preset=evil, hours=0.2).report.read_text()
    assert "<script>alert" not in page
    assert embedded(page, "timelines")["runs"][0]["name"] == evil


@dataclass
class Named:
    name: str
    summary: dict[str, int]


def test_runs_are_told_apart_by_seed_and_then_by_number():
    runs = [Named("dart", {"seed": 1}), Named("coupled", {"seed": 1}), Named("dart", {"seed": 2})]
    assert unique_names(runs) == ["dart, seed 1", "coupled", "dart, seed 2"]
    assert unique_names([runs[0], runs[0]]) == ["dart, seed 1 (1)", "dart, seed 1 (2)"]


def test_only_what_differs_is_told():
    one = {"a": {"b": 1, "c": [1, 2]}, "d": "x"}
    two = {"a": {"b": 2, "c": [1, 2]}, "d": "x", "e": {}}
    assert differences([one, two]) == [("a.b", ["1", "2"]), ("e", ["–", "{}"])]
    assert differences([one, one]) == []


def test_rates_are_averaged_over_two_updates_but_not_over_the_whole_run():
    assert rolling_window({"simulated_hours": 24.0, "minutes_per_version": 36.0}) == 1.2
    assert rolling_window({"simulated_hours": 24.0, "minutes_per_version": 1.0}) == 0.8
    assert rolling_window({"simulated_hours": 4.0, "minutes_per_version": 500.0}) == 1.0
    assert rolling_window({"simulated_hours": 30.0, "minutes_per_version": None}) == 1.0


def test_a_comparison_has_a_column_a_run_and_the_ratio(make_run, tmp_path):
    runs = [make_run(tmp_path / name, preset=name, hours=1.0) for name in ("coupled", "dart")]
    published = {"dart": {"trained_turns_per_minute": 43.6, "env_utilization": 0.677}}
    page = render_comparison(runs, tmp_path / "page.html", published=published).read_text()
    text = own_text(page)
    assert "<h1>coupled against dart</h1>" in text
    assert re.findall(r"<th>([^<]*)</th>", text)[:4] == ["", "coupled", "dart", "ratio"]
    values = [run.summary["env_utilization"] for run in runs]
    assert f"{values[1] / values[0]:.2f} ×" in text
    assert "published 67.7\u202f% (" in text
    assert "<td><code>rollout.sampling</code></td><td>batch</td><td>rollout</td>" in text
    plots = embedded(page, "plots")
    assert plots["efficiency0"]["data"][1]["y"] == [43.6]
    assert plots["efficiency1"]["data"][1]["y"] == [67.7]
    assert [trace.get("mode") for trace in plots["efficiency2"]["data"]] == [None, "text"]  # no diamonds
    assert [run["name"] for run in embedded(page, "timelines")["runs"]] == ["coupled", "dart"]


def test_a_comparison_over_seeds_draws_means_with_their_intervals(make_run, tmp_path):
    runs = [make_run(tmp_path / name, preset=name, hours=0.3) for name in ("coupled", "dart")]
    means = [{"env_utilization": {"mean": 0.5, "half_width": 0.1}}, {}]
    table = [("staleness, most", ["0", "1"])]
    page = render_comparison(runs, tmp_path / "page.html", means=means, table=table, num_seeds=3).read_text()
    bars = embedded(page, "plots")["efficiency1"]["data"][0]
    assert bars["y"] == [50.0, pytest.approx(100.0 * runs[1].summary["env_utilization"], abs=0.01)]
    assert bars["error_y"]["array"] == [10.0, 0.0]
    assert bars["error_y"]["visible"] is True
    above = embedded(page, "plots")["efficiency1"]["data"][-1]
    assert (above["y"][0], above["text"][0]) == (60.0, "50.0")
    text = own_text(page)
    assert "<td>staleness, most</td><td>0</td><td>1</td>" in text
    assert "means over 3 seeds" in text


def test_many_runs_are_bars_below_each_other_with_all_their_names():
    summaries = [(f"run {index}", {"env_utilization": index / 10.0}) for index in range(8)]
    drawn = efficiency("env_utilization", summaries, [0.5] + [None] * 7)
    bars, diamonds, ends = drawn["data"]
    assert bars["orientation"] == "h"
    assert bars["x"] == [0.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0]
    assert (diamonds["x"], ends["text"][7]) == ([50.0], " 70.0")
    names = drawn["layout"]["yaxis"]
    assert names["ticktext"] == [name for name, _ in summaries]
    assert names["range"][0] > 7 > 0 > names["range"][1]  # the first one on top, and room for all


def test_lines_of_more_runs_than_colours_differ():
    series = {"from_hours": [0.0], "to_hours": [1.0], "rates": {"trained_turns_per_minute": [1.0]}}
    lines = charts.rates_of_runs([(str(index), series) for index in range(20)], "trained_turns_per_minute", 1.0)["data"]
    assert len({(line["line"]["color"], line["line"]["dash"]) for line in lines}) == 20


@pytest.mark.parametrize("number", [1, 3])
def test_any_number_of_runs_can_be_compared(make_run, tmp_path, number):
    runs = [make_run(tmp_path / str(seed), seed=seed, hours=0.3) for seed in range(number)]
    text = own_text(render_comparison(runs, tmp_path / "page.html").read_text())
    assert "<th>ratio</th>" not in text
    assert "Diamonds" not in text


def test_a_comparison_of_nothing_is_refused(tmp_path):
    with pytest.raises(ValueError, match="at least one run, got none"):
        render_comparison([], tmp_path / "page.html")


def test_counts_are_drawn_with_the_largest_first():
    chart = charts.count_bars({"a_b": 1, "c": 3}, "#000000", "attempts")
    assert chart["data"][0]["y"] == ["c", "a b"]
    assert chart["data"][0]["text"] == ["3  (75.0 %)", "1  (25.0 %)"]


def test_bias_compares_shares_not_counts():
    chart = charts.bias({"x": {"offered": 30, "trained": 1}, "y": {"offered": 10, "trained": 1}})
    assert [bars["y"] for bars in chart["data"]] == [[75.0, 25.0], [50.0, 50.0]]


def test_a_state_has_one_colour_and_work_is_called_by_its_state():
    shares = {name: {"at work": [1.0], "weight sync": [0.0]} for name in POPULATIONS}
    found = {"hours": [0.0, 1.0], "populations": {name: {"shares": share} for name, share in shares.items()}}
    drawn = {name: charts.idle_over_time(found, name) for name in POPULATIONS}
    for name, info in POPULATIONS.items():
        work = info.at_work.info
        assert (drawn[name]["data"][0]["name"], drawn[name]["data"][0]["fillcolor"]) == (work.label, work.color)
        assert drawn[name]["layout"]["showlegend"] is True


def test_surrogates_are_named_if_not_all_are():
    drawn, learned = {"surrogate": True}, {"surrogate": False}
    assert surrogates([("tiny", learned)]) == ""
    assert surrogates([("dart", drawn)]).startswith("surrogate policy: ")
    assert surrogates([("tiny", learned), ("dart", drawn)]).startswith("surrogate policy (dart): ")


def test_lengths_have_their_order_and_other_labels_keep_theirs():
    counts = {"offered": 1, "trained": 1}
    assert charts.bias(dict.fromkeys(("long", "short"), counts))["data"][0]["x"] == ["short", "long"]
    assert charts.bias(dict.fromkeys(("gimp", "chrome"), counts))["data"][0]["x"] == ["gimp", "chrome"]


def test_failed_starts_are_shown_with_their_reason(make_recorder, tmp_path):
    recorder = make_recorder()
    recorder.start_failed("wrong_screen_size", "http://vm has a screen of 800 × 600")
    recorder.snapshot()
    figures = summary(recorder, warmup_share=0.1) | {"config": {}}
    assert figures["fault_reasons"] == {"wrong_screen_size": "http://vm has a screen of 800 × 600"}
    page = render_report(write_run(tmp_path, recorder, config_toml="", summary=figures, meta={"preset": "a"}))
    assert "http://vm has a screen of 800 × 600" in own_text(page.read_text(encoding="utf-8"))
