"""Tables of docs/speed.md and docs/lab.md: how fast the simulator, the learner and the mock desktop are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from experiments.common import Figures
from experiments.markdown import from_record, table


def timers(figures: Figures) -> str:
    """Timers per second of each loop."""
    rates = figures["timers_per_second"]
    base = rates["simpy"]
    return table(
        ["loop", "timers a CPU second", "of raw SimPy"],
        [[name, f"{rate:,.0f}", f"{rate / base:.2f}"] for name, rate in rates.items()],
    )


def turns(figures: Figures) -> str:
    """CPU time per simulated turn by cluster size."""
    rows = []
    for entry in figures["turns"]:
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


def lab_speed(figures: Figures) -> str:
    """Speed of the laboratory by size, and of a study."""
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


def learner_speed(figures: Figures) -> str:
    """The learner and the worker beside their rivals."""
    rows = [
        [row["what"], row["peer_name"], f"{row['ours']:,.1f}", f"{row['peer']:,.1f}", f"{row['ratio']:.2f}x"]
        for row in figures["rows"]
    ]
    return table(["", "beside", "ours", "theirs", "better by"], rows)


def mock_speed(figures: Figures) -> str:
    """Steps a CPU second of the mock desktop by size of the picture, and of MiniGrid."""
    rows = []
    for row in figures["sizes"]:
        speeds = row["steps_per_second"]
        theirs = "–" if speeds["minigrid"] is None else f"{speeds['minigrid']:,.0f}"
        cells = [f"{speeds[name]:,.0f}" for name in ("mock_desktop", "mock_desktop_click")]
        rows.append([f"{row['width']} × {row['height']}", *cells, theirs])
    memory = figures["memory"]
    about = f"{memory['num_desktops']:,} desktops in one process take {memory['kb_per_desktop']:.0f} kB each.\n"
    return table(["pixels", "mixed tasks", "clicks", "MiniGrid"], rows) + "\n" + about


TABLES: Mapping[str, Callable[[], str]] = {
    "timers": from_record("speed", timers),
    "turns": from_record("speed", turns),
    "lab-speed": from_record("lab_speed", lab_speed),
    "learner-speed": from_record("learner_speed", learner_speed),
    "mock-speed": from_record("mock_speed", mock_speed),
}
"""The tables, by their names on the pages."""
