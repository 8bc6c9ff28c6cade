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
from dartsim.observe.figures import FIGURES, figure_text, figures, summary
from dartsim.observe.report import (
    differences,
    render_comparison,
    render_report,
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


def test_the_page_stands_alone(make_run, tmp_path):
    page = make_run(tmp_path, hours=0.5).report.read_text()
    parser = Addresses()
    parser.feed(own_text(page))
    assert parser.found == ["data:,"]
    assert "default-src 'none'" in page
    found = re.search(PLOTLY, page)
    assert found is not None
    assert "* plotly.js v" in gzip.decompress(base64.b64decode(found[1])).decode()


def test_the_page_says_what_ran(make_run, tmp_path):
    run = make_run(tmp_path, seed=7, hours=0.5)
    page = own_text(run.report.read_text())
    assert run.summary["event_hash"] in page
    for name in ("env_utilization", "gpu_utilization", "trained_turns_per_minute"):
        assert figure_text(name, run.summary[name], unit=False) in page


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


def test_a_comparison_has_a_column_a_run_and_the_ratio(make_run, tmp_path):
    runs = [make_run(tmp_path / name, preset=name, hours=1.0) for name in ("coupled", "dart")]
    published = {"dart": {"trained_turns_per_minute": 43.6, "env_utilization": 0.677}}
    page = render_comparison(runs, tmp_path / "page.html", published=published).read_text()
    assert re.findall(r"<th>([^<]*)</th>", own_text(page))[:4] == ["", "coupled", "dart", "ratio"]
    values = [run.summary["env_utilization"] for run in runs]
    assert f"{values[1] / values[0]:.2f} ×" in own_text(page)
    plots = embedded(page, "plots")
    assert plots["efficiency0"]["data"][1]["y"] == [43.6]
    assert plots["efficiency1"]["data"][1]["y"] == [67.7]
    assert [run["name"] for run in embedded(page, "timelines")["runs"]] == ["coupled", "dart"]


@pytest.mark.parametrize("number", [1, 3])
def test_any_number_of_runs_can_be_compared(make_run, tmp_path, number):
    runs = [make_run(tmp_path / str(seed), seed=seed, hours=0.3) for seed in range(number)]
    text = own_text(render_comparison(runs, tmp_path / "page.html").read_text())
    assert "<th>ratio</th>" not in text
    assert "Diamonds" not in text


def test_bias_compares_shares_not_counts():
    chart = charts.bias({"x": {"offered": 30, "trained": 1}, "y": {"offered": 10, "trained": 1}})
    assert [bars["y"] for bars in chart["data"]] == [[75.0, 25.0], [50.0, 50.0]]


def test_failed_starts_are_shown_with_their_reason(make_recorder, tmp_path):
    recorder = make_recorder()
    recorder.start_failed("wrong_screen_size", "http://vm has a screen of 800 × 600")
    recorder.snapshot()
    figures = summary(recorder, warmup_share=0.1) | {"config": {}}
    assert figures["fault_reasons"] == {"wrong_screen_size": "http://vm has a screen of 800 × 600"}
    page = render_report(write_run(tmp_path, recorder, config_toml="", summary=figures, meta={"preset": "a"}))
    assert "http://vm has a screen of 800 × 600" in own_text(page.read_text(encoding="utf-8"))
