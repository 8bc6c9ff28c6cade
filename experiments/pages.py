"""Writes the tables and pictures of the pages from the recorded figures: what docs quote is what was recorded.

    python -m experiments.pages

A page holds a pair of comments ``<!-- figures: NAME -->`` and ``<!-- end -->`` around each such table; pictures are
files of their own in docs/figures.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

from experiments.ablation_tables import arms_table, base_table, curve_table, cut_table, paper_table, staleness_table
from experiments.claims_figures import ALTS, PICTURES
from experiments.claims_tables import TABLES as CLAIMS
from experiments.claims_tables import provenance as claims_provenance
from experiments.common import recorded
from experiments.fault_tables import cost_rows, kinds_rows
from experiments.fault_tables import provenance as faults_provenance
from experiments.fuzz_tables import bug_rows, preset_rows
from experiments.fuzz_tables import provenance as fuzz_provenance
from experiments.history_images import HEAD as HISTORY_HEAD
from experiments.history_images import rows as history_rows
from experiments.scheduler_tables import (
    best_rows,
    bound_rows,
    idea_rows,
    trained_rows,
    verl_provenance,
    verl_rows,
    workload_rows,
)

ROOT = Path(__file__).resolve().parent.parent
PAGES = (
    "README.md",
    "docs/experiments.md",
    "docs/inference.md",
    "docs/desktops.md",
    "docs/learning.md",
    "docs/speed.md",
    "docs/storage.md",
    "docs/ablation.md",
    "docs/lab.md",
    "docs/cluster.md",
    "docs/schedulers.md",
    "docs/faults.md",
    "docs/fuzzing.md",
    "docs/claims.md",
)
MARKED = re.compile(r"(<!-- figures: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)

LABELS = {
    "trained_turns_per_minute": ("trained turns/min", 1.0, ".1f"),
    "generated_turns_per_minute": ("generated turns/min", 1.0, ".1f"),
    "env_utilization": ("environment utilization, %", 100.0, ".1f"),
    "gpu_utilization": ("GPU utilization (rollout), %", 100.0, ".1f"),
    "trajectories_per_minute": ("trajectories/min", 1.0, ".2f"),
    "minutes_per_version": ("minutes per version", 1.0, ".1f"),
}

DESKTOP_TIMES = {
    "start_to_screenshot_seconds": "start to a good screenshot",
    "revert_gap_seconds": "gap between two attempts, with spares",
    "revert_gap_without_warm_pool_seconds": "gap, without spares",
    "screenshot_seconds": "screenshot",
    "step_seconds": "step: an action and a look",
    "raw_calls_seconds": "its bare HTTP calls",
}


RAY_CALLS = {
    "step_112px": "step of the mock desktop, 112 px (38 KB)",
    "step_448px": "the same, 448 px (0.6 MB)",
    "generate_112px": "request to the tiny model",
}


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def efficiency() -> str:
    """The paper's three figures, coupled against DART, published and simulated."""
    figures = recorded("headline")
    rows = []
    for name in ("trained_turns_per_minute", "env_utilization", "gpu_utilization"):
        label, scale, form = LABELS[name]
        row = [label]
        for source in (figures["published"], figures):
            coupled, dart = source["coupled"][name], source["dart"][name]
            row += [f"{coupled * scale:{form}}", f"{dart * scale:{form}}", f"{dart / coupled:.2f}x"]
        rows.append(row)
    head = ["", "coupled, published", "DART, published", "ratio", "coupled, here", "DART, here", "ratio"]
    return table(head, rows)


def headline() -> str:
    """Every published figure beside ours."""
    figures = recorded("headline")
    rows = []
    for name, (label, scale, form) in LABELS.items():
        row = [label]
        for preset in ("dart", "coupled"):
            known, ours = figures["published"][preset].get(name), figures[preset][name]
            if known is None:
                row += ["–", f"{ours * scale:{form}}", "–"]
            else:
                row += [f"{known * scale:{form}}", f"{ours * scale:{form}}", f"{ours / known - 1:+.1%}"]
        rows.append(row)
    return table(["", "DART, published", "here", "error", "coupled, published", "here", "error"], rows)


def gpu_definitions() -> str:
    """The baseline's GPU utilization under each possible definition."""
    words = {
        "all_time": "dedicated rollout GPUs, all the time",
        "rollout_phase": "dedicated rollout GPUs, while attempts run",
        "share_of_peak_token_rate": "dedicated rollout GPUs, share of the peak token rate",
        "hybrid_training_counts_full": "hybrid GPUs, an update counted as busy throughout",
        "training_share_that_meets_published": "share of an update that would have to count for 29.6 %, on hybrid GPUs",
    }
    definitions = recorded("headline")["gpu_definitions"]
    return table(["definition", "value"], [[text, f"{definitions[name]:.1%}"] for name, text in words.items()])


def presets() -> str:
    """The three presets of DART, with a surrogate policy."""
    figures = recorded("presets")["presets"]
    more = {"turns_per_trajectory": ("turns of a trajectory", 1.0, ".1f")}
    rows = [
        [label, *(f"{found[name] * scale:{form}}" for found in figures.values())]
        for name, (label, scale, form) in (LABELS | more).items()
        if name in next(iter(figures.values()))
    ]
    return table(["", *(f"`{preset}`" for preset in figures)], rows)


def _other_runs(kind: str) -> str:
    entries = [entry for entry in recorded("headline")["other_runs"] if entry["kind"] == kind]
    rows = [
        [
            entry["name"],
            entry["figure"].replace("_", " "),
            f"{entry['measured']:.3g}",
            f"{entry['predicted']:.3g}",
            f"{entry['error']:+.0%}",
        ]
        for entry in entries
    ]
    return table(["run", "figure", kind, "predicted", "error"], rows)


def measured_runs() -> str:
    """Other measured runs, predicted by the same parameters."""
    return _other_runs("measured")


def fitted_runs() -> str:
    """Figures of the runs that the parameters were chosen by."""
    return _other_runs("fitted")


def prototype_runs() -> str:
    """Figures of an independent earlier model, predicted by the same parameters."""
    return _other_runs("prototype")


def provenance() -> str:
    """What the recorded headline was run with."""
    figures = recorded("headline")
    commit, versions = figures["commit"], figures["versions"]
    seeds = ", ".join(str(seed) for seed in figures["seeds"])
    packages = ", ".join(f"{name} {versions[name]}" for name in ("simpy", "numpy") if name in versions)
    return (
        f"Recorded with seeds {seeds}, {figures['config']['dart']['run']['hours']:g} simulated hours each, at commit "
        f"`{(commit['id'] or 'none')[:12]}`{' with changes' if commit['dirty'] else ''}, "
        f"{figures['machine']['python']}, {packages}.\n"
    )


def schedulers_provenance() -> str:
    """Where the figures of the schedulers were recorded."""
    figures = recorded("schedulers")
    hours = ", ".join(f"`{name}` {value:g}" for name, value in figures["config"]["hours"].items())
    return (
        f"Recorded with seeds {', '.join(map(str, figures['seeds']))} at commit `{figures['commit']['id'][:12]}`; "
        f"simulated hours: {hours}. ± is half the 95 % confidence interval over seeds.\n"
    )


def main_job() -> str:
    """The main job by seed."""
    figures = recorded("main_job")
    rows = [
        [
            str(run["seed"]),
            f"{run['success_rate_initial']:.1%}",
            f"{run['success_rate_final']:.1%}",
            str(run["total_updates"]),
            f"{run['simulated_hours']:.1f}",
            f"{run['cpu_seconds']:.0f}",
        ]
        for run in figures["runs"]
    ]
    head = ["seed", "success at first", "at last", "updates", "simulated hours", "CPU seconds"]
    reached = f"{figures['learned']} of {len(rows)} seeds end at {figures['wanted_success_rate']:.0%} or more"
    return table(head, rows) + f"\n{reached}, on held-out tasks; the run ends itself at 92 %.\n"


def timers() -> str:
    """Timers per second of each loop."""
    rates = recorded("speed")["timers_per_second"]
    base = rates["simpy"]
    return table(
        ["loop", "timers a CPU second", "of raw SimPy"],
        [[name, f"{rate:,.0f}", f"{rate / base:.2f}"] for name, rate in rates.items()],
    )


def turns() -> str:
    """CPU time per simulated turn by cluster size."""
    rows = []
    for entry in recorded("speed")["turns"]:
        ours, bare = entry["cpu_us_per_turn"], entry["bare_simpy_cpu_us_per_turn"]
        rows.append(
            [
                f"{entry['num_envs']:,}",
                f"{ours:.1f}",
                f"{bare:.1f}",
                f"{ours / bare:.2f}",
                f"{entry['speedup']:,.0f}",
                f"{entry['peak_rss_mb']:.0f}",
            ]
        )
    return table(["desktops", "dartsim, µs a turn", "bare SimPy, µs a turn", "ratio", "x real time", "peak MB"], rows)


def lab_speed() -> str:
    """Speed of the laboratory by size, and of a study."""
    figures = recorded("lab_speed")
    rows = [
        [
            f"{row['num_envs']:,}",
            f"{row['simulated_hours_per_second']:.3g}",
            f"{row['cpu_us_per_turn']:.1f}",
            f"{row['peak_rss_mb']:.0f}",
        ]
        for row in figures["sizes"]
    ]
    study = figures["study"]
    about = (
        f"A study: {study['trials_per_minute']:g} trials a minute on {study['cores']} cores, of "
        f"{study['simulated_hours']:g} simulated hours each at most.\n"
    )
    return table(["desktops", "simulated hours a CPU second", "CPU µs a turn", "peak MB"], rows) + "\n" + about


def ablation_arms() -> str:
    """Each arm of the ablation."""
    return table(*arms_table(recorded("ablation")))


def ablation_base() -> str:
    """What the base models of the ablation can do."""
    return table(*base_table(recorded("ablation")))


def ablation_cuts() -> str:
    """What high-entropy selection left out."""
    return table(*cut_table(recorded("ablation")))


def ablation_hours() -> str:
    """Success of each arm over simulated hours."""
    return table(*curve_table(recorded("ablation"), "simulated_hours", (0.1, 0.2, 0.3, 0.4)))


def ablation_turns() -> str:
    """Success of each arm over generated turns."""
    return table(*curve_table(recorded("ablation"), "turns", (2_000, 4_000, 6_000, 8_000)))


def ablation_paper() -> str:
    """The paper's ablation beside ours."""
    return table(*paper_table(recorded("ablation")))


def ablation_staleness() -> str:
    """The price of staleness."""
    return table(*staleness_table(recorded("ablation")))


def history_images() -> str:
    """Learning by how history screenshots are dropped."""
    figures = recorded("history_images")
    less = figures["block_less_slide"]
    last = f"Block less slide, seed by seed: {less['mean']:+.1%} ± {less['ci95']:.1%}"
    return table(HISTORY_HEAD, history_rows(figures)) + f"\n{last}, {len(figures['seeds'])} seeds.\n"


def ablation_provenance() -> str:
    """What the recorded ablation was run with."""
    figures = recorded("ablation")
    seeds = ", ".join(str(seed) for seed in figures["seeds"])
    hours, commit = figures["config"]["dart"]["run"]["hours"], figures["commit"]
    return (
        f"Recorded with seeds {seeds}, {hours:g} simulated hours a run, "
        f"{figures['cpu_seconds'] / 60:.0f} CPU minutes in all,\nat commit `{(commit['id'] or 'none')[:12]}`"
        f"{' with changes' if commit['dirty'] else ''}, torch {figures['versions'].get('torch', 'unknown')}.\n"
    )


def desktop_times() -> str:
    """What one real desktop takes."""
    figures = recorded("desktop")
    rows = [
        [label, *(f"{figures[name][point]:.3f}" for point in ("p50", "p95")), str(figures[name]["number"])]
        for name, label in DESKTOP_TIMES.items()
    ]
    overhead = f"A step takes {figures['step_overhead_ratio']:+.1%} over its bare calls.\n"
    return table(["seconds", "median", "95th percentile", "of"], rows) + "\n" + overhead


def desktop_density() -> str:
    """Real desktops on one machine, by their number."""
    figures = recorded("desktop")
    rows = [
        [
            str(entry["num_desktops"]),
            f"{entry['steps_per_minute']:.0f}",
            f"{entry['utilization']:.0%}",
            str(sum(number for name, number in entry["faults"].items() if name != "cause/run ended")),
        ]
        for entry in figures["density"]
    ]
    config, machine, load = figures["config"], figures["machine"], figures["load_average"]
    about = (
        f"Attempts of {config['density_turns']} turns, {config['think_seconds']:g} s to think; "
        f"{machine['logical_cores']} cores ({machine['cpu_model']}), {machine['memory_gib']:g} GiB, load average "
        f"{load['before'][0]:g} when it began (commit `{(figures['commit']['id'] or 'none')[:12]}`).\n"
    )
    return table(["desktops", "steps/min", "utilization", "faults"], rows) + "\n" + about


def desktop_kills() -> str:
    """What random kills left behind."""
    figures = recorded("desktop")
    more = figures["kills_more"]
    killed = ", ".join(f"{number} × {name}" for name, number in more["killed"].items())
    rows = [
        ["killed", f"{figures['kills']:,}"],
        ["attempts stored", f"{more['attempts']:,}"],
        ["of these with a score", f"{more['scored']:,}"],
        ["scores that differ from what was done", str(more["wrong_scores"])],
        ["leaked containers", str(figures["leaked_containers"])],
        ["lost records", str(figures["lost_records"])],
    ]
    return table(["", "number"], rows) + f"\nKilled: {killed}; {more['lives']} processes one after the other.\n"


def learner_speed() -> str:
    """The learner and the worker beside their rivals."""
    rows = [
        [row["what"], row["peer_name"], f"{row['ours']:,.1f}", f"{row['peer']:,.1f}", f"{row['ratio']:.2f}x"]
        for row in recorded("learner_speed")["rows"]
    ]
    return table(["", "beside", "ours", "theirs", "better by"], rows)


def mock_speed() -> str:
    """Steps a CPU second of the mock desktop by size of the picture, and of MiniGrid."""
    figures = recorded("mock_speed")
    rows = []
    for row in figures["sizes"]:
        speeds = row["steps_per_second"]
        theirs = "–" if speeds["minigrid"] is None else f"{speeds['minigrid']:,.0f}"
        cells = [f"{speeds[name]:,.0f}" for name in ("mock_desktop", "mock_desktop_click")]
        rows.append([f"{row['width']} × {row['height']}", *cells, theirs])
    memory = figures["memory"]
    about = f"{memory['num_desktops']:,} desktops in one process take {memory['kb_per_desktop']:.0f} kB each.\n"
    return table(["pixels", "mixed tasks", "clicks", "MiniGrid"], rows) + "\n" + about


def ray_overhead() -> str:
    """Milliseconds a call in one process and through Ray."""
    figures = recorded("ray_overhead")
    rows = []
    for call, name in RAY_CALLS.items():
        for at_once, row in figures[call].items():
            cells = (row["inline_ms"], row["ray_ms"], row["added_ms"])
            rows.append([name, at_once, *(f"{cell:.2f}" for cell in cells), f"{row['ratio']:.1f}"])
    return table(["", "at once", "in process, ms", "on Ray, ms", "added, ms", "ratio"], rows)


def router(figures: dict[str, Any]) -> str:
    """The way of a turn by client and turns at once, and where it misses what is aimed at."""
    names = {"ours": "ours", "httpx": "`httpx`", "pooled": "64 `httpx`", "openai": "openai"}
    there = [name for name in names if f"{name}_cpu_ms" in figures["rows"][0]]
    seconds = figures["reply_seconds"]
    rows = [
        [
            f"{row['live']:,}",
            *("–" if row[f"{name}_cpu_ms"] is None else f"{row[f'{name}_cpu_ms']:.2f}" for name in there),
            f"{row['overhead_ms']:+.2f}",
            f"{row['kept_at_once']:.2f}x",
            f"{row['kept']:.2f}x",
            f"{row['ours_throughput_share']:.0%}",
        ]
        for row in figures["rows"]
    ]
    clients = [f"{names[name]}, CPU ms" for name in there]
    head = ["turns", *clients, "over a bare loop, ms", "kept at once", f"kept, {seconds:g} s", "share"]
    missed = [f"{one['figure']} = {one['value']:g} at {one['live']:,} turns" for one in figures["not_met"]]
    about = (
        f"Not met: {', '.join(missed) or 'nowhere'}. Recorded at commit `{(figures['commit']['id'] or 'none')[:12]}`, "
        f"{len(figures['seeds'])} rounds, load {figures['load_average']:.1f}.\n"
    )
    return table(head, rows) + "\n" + about


def sync_cost(figures: dict[str, Any]) -> str:
    """What a change of weights costs by engine and mode."""
    engines = {"standin": "stand-in", "vllm": "vLLM"}
    modes = {
        "rolling_keep": "one at a time, `keep`",
        "global_pause": "all at once, `keep`",
        "restart": "`restart`, as DART released it",
    }
    seconds = ("away_seconds_per_change", "stopped_seconds_per_publication", "turn_seconds_longest")
    rows = [
        [
            f"{engines[engine]}, {modes[mode]}",
            *(f"{row[name]:.2f}" for name in seconds),
            str(row["killed_requests"]),
            str(row["failed_requests"]),
            str(row["lost_requests"]),
            f"{row['turns']:,}",
        ]
        for engine, found in figures["engines"].items()
        for mode, row in found.items()
    ]
    config = figures["config"]
    head = ["", "an engine is away, s a change", "no engine serves, s a publication", "longest turn, s"]
    head += ["killed", "failed", "lost", "turns"]
    about = (
        f"{config['num_engines']} engines, {config['num_desktops']} desktops; the stand-in starts in "
        f"{config['standin_start_seconds']:g} s. {'vLLM was not measured. ' if figures['missing'] else ''}"
        f"Recorded at commit `{(figures['commit']['id'] or 'none')[:12]}`, load {figures['load_average']:.1f}.\n"
    )
    return table(head, rows) + "\n" + about


def twin_table(figures: dict[str, Any]) -> str:
    """A real run, measured and predicted."""
    rows = []
    for name, measured in figures["measured"].items():
        predicted, error = figures["predicted"][name], figures["relative_error"][name]
        cells = ["–" if value is None else f"{value:.4g}" for value in (measured, predicted)]
        rows.append([name.replace("_", " "), *cells, "–" if error is None else f"{error:+.1%}"])
    return table(["figure", "measured", "predicted", "error"], rows) + "\n"


def real_profile(figures: dict[str, Any]) -> str:
    """A run on real desktops, measured and predicted."""
    settings = figures["config"]
    about = (
        f"{settings['rollout']['num_envs']} desktops, {60.0 * settings['run']['hours']:g} minutes, "
        f"{figures['runs'][0]['num_updates']} updates. "
        f"Recorded at commit `{(figures['commit']['id'] or 'none')[:12]}`, "
        f"load {figures['load_average']:.1f} at its begin.\n"
    )
    return twin_table(figures) + about


def real_loop(figures: dict[str, Any]) -> str:
    """The whole loop for real, measured and predicted, and what it learned and lost."""
    about = (
        f"Engines: {figures['engines']}; {60.0 * figures['config']['run']['hours']:g} minutes, seeds "
        f"{', '.join(map(str, figures['seeds']))}: success on held-out tasks {figures['success_rate_first']:.1%} → "
        f"{figures['success_rate_last']:.1%}; {figures['failed_requests']} requests failed and were asked again, "
        f"{figures['lost_requests']} were lost; a change of weights took {figures['sync_seconds_p50']:.2f} s (median). "
        f"Recorded at commit `{(figures['commit']['id'] or 'none')[:12]}`, load {figures['load_average']:.1f}.\n"
    )
    return twin_table(figures) + about


def crashes() -> str:
    """Crashes by way: how many, what was under way, what was wrong."""
    figures = recorded("crashes")
    rows = [
        [row["way"], *(f"{row[name]:,}" for name in ("crashes", "attempts", "interrupted", "updates")), _wrong(row)]
        for row in figures["simulated"]
    ]
    real = figures["real"]
    rows.append(["`kill -9` of a process (dart)", f"{real['kills']:,}", "", "", "", _wrong(real)])
    head = ["runs", "crashes", "attempts", "interrupted", "updates", "violations"]
    return table(head, rows) + f"\nLost: {figures['lost']}. Trained twice: {figures['doubled']}.\n"


def _wrong(row: dict[str, Any]) -> str:
    return ", ".join(f"{name}: {number}" for name, number in row["violations"].items()) or "none"


def _claims(name: str) -> Callable[[], str]:
    return lambda: table(*CLAIMS[name](recorded("claims")))


def _picture(name: str) -> Callable[[], str]:
    """Return what links to a picture, once there is one."""

    def linked() -> str:
        recorded("claims")
        return f"![{ALTS[name]}](figures/{name}.svg)\n"

    return linked


TABLES: dict[str, Callable[[], str]] = {
    "efficiency": efficiency,
    "headline": headline,
    "gpu-definitions": gpu_definitions,
    "measured-runs": measured_runs,
    "fitted-runs": fitted_runs,
    "prototype-runs": prototype_runs,
    "presets": presets,
    "schedulers-best": lambda: table(*best_rows(recorded("schedulers"))),
    "schedulers-bounds": lambda: table(*bound_rows(recorded("schedulers"))),
    "schedulers-trained": lambda: table(*trained_rows(recorded("schedulers"))),
    "schedulers-dart": lambda: table(*workload_rows(recorded("schedulers"), "dart")),
    "schedulers-osworld": lambda: table(*workload_rows(recorded("schedulers"), "osworld")),
    "schedulers-ideas": lambda: table(*idea_rows(recorded("schedulers"))),
    "schedulers-provenance": schedulers_provenance,
    "verl-table": lambda: table(*verl_rows(recorded("verl_table"))) + "\n" + verl_provenance(recorded("verl_table")),
    "provenance": provenance,
    "main-job": main_job,
    "lab-speed": lab_speed,
    "ablation-arms": ablation_arms,
    "ablation-base": ablation_base,
    "ablation-cuts": ablation_cuts,
    "ablation-hours": ablation_hours,
    "ablation-turns": ablation_turns,
    "ablation-paper": ablation_paper,
    "ablation-staleness": ablation_staleness,
    "ablation-provenance": ablation_provenance,
    "history-images": history_images,
    "desktop-times": desktop_times,
    "desktop-twin": lambda: real_profile(recorded("real_profile_desktop")),
    "desktop-density": desktop_density,
    "desktop-kills": desktop_kills,
    "fault-kinds-osworld": lambda: table(*kinds_rows(osworld=True)),
    "fault-kinds-cluster": lambda: table(*kinds_rows(osworld=False)),
    "fault-costs": lambda: table(*cost_rows(recorded("faults"))),
    "fault-provenance": lambda: faults_provenance(recorded("faults")),
    "fuzz-bugs": lambda: table(*bug_rows(recorded("fuzz_power"))),
    "fuzz-presets": lambda: table(*preset_rows(recorded("fuzz_power"))),
    "fuzz-provenance": lambda: fuzz_provenance(recorded("fuzz_power")),
    "ray-overhead": ray_overhead,
    "router": lambda: router(recorded("router")),
    "sync-cost": lambda: sync_cost(recorded("sync_cost")),
    "real-loop": lambda: real_loop(recorded("real_loop")),
    "learner-speed": learner_speed,
    "mock-speed": mock_speed,
    "crashes": crashes,
    "timers": timers,
    "turns": turns,
    "claims-provenance": lambda: claims_provenance(recorded("claims")),
    **{name: _claims(name) for name in CLAIMS},
    **{f"{name}-picture": _picture(name) for name in PICTURES},
}


def render(text: str) -> str:
    """Return a page with all its marked tables written anew."""

    def replace(match: re.Match[str]) -> str:
        try:
            made: Any = TABLES[match["name"]]()
        except FileNotFoundError:
            made = "Not recorded yet.\n"
        return f"{match[1]}{made}{match[3]}"

    return MARKED.sub(replace, text)


def pictures() -> dict[Path, str]:
    """Return every picture, by its file; none where nothing is recorded. The last line says of which figures."""
    try:
        figures = recorded("claims")
    except FileNotFoundError:
        return {}
    last = f"<!-- {drawn_of(figures)} -->\n"
    return {ROOT / "docs" / "figures" / f"{name}.svg": made(figures) + last for name, made in PICTURES.items()}


def drawn_of(figures: dict[str, Any]) -> str:
    """Return what tells recorded figures apart."""
    return f"claims.json {sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:16]}"


def main() -> None:
    """Write all pages, and all pictures."""
    for path, drawn in pictures().items():
        path.parent.mkdir(exist_ok=True)
        path.write_text(drawn, encoding="utf-8")
    for name in PAGES:
        page = ROOT / name
        page.write_text(render(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
