"""The speed of learner and engine: turns trained and tokens sampled per CPU second, beside TRL and plain transformers.

    python -m experiments.learner_speed [--quick] [--record]

Models of a transformers class with random weights (0.4 and 4.3 M parameters), the same batch, one thread,
alternately in one run. Times are process time, so that other work on the machine does not count. Memory is what an
update adds to the peak of its own process.

Turns between two cuts of the screenshots are trained in one sequence (*packed*), beside one sequence per turn of the
same prompts, and one per turn of DART's prompts, whose screenshots slide. These savings are also predicted, from
operations that are counted as for a 7B model.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from experiments.charts import (
    BLUE,
    GRAY,
    GREEN,
    MARKERS,
    ORANGE,
    PURPLE,
    RED,
    drawing,
    label_axes,
    legend_below,
    rows_axis,
)
from experiments.study import Experiment, Figures, Options, StudyPicture

SHARING = 4_096
"""Tokens of a micro-batch that holds about ten prompts, which show the same screenshots."""

TARGETS = {("per turn", 5): 2.2, ("per turn", 10): 4.0, ("sliding", 5): 3.0, ("sliding", 10): 5.0}
"""Wanted speed of packed turns over a variant, by the images of a prompt."""
AGAINST = {
    "per turn": "one sequence per turn",
    "sliding": "DART's sliding window",
    "transformers": "plain loop",
    "trl": "TRL",
}


def measure(options: Options) -> Figures:
    """Measure updates of several turns in one sequence and sampling, beside what they are compared with."""
    # Imported here: `--help` works without torch.
    from experiments.learner_speed_work import measured

    return measured(options)


def summary(figures: Figures) -> str:
    """The rates of learner and engine, in words."""
    rates = {row["what"]: row["ours"] for row in figures["rows"] if "/s," in row["what"]}
    words = (f"{rate:,.0f} {what.replace('/s, ', ' (', 1)})" for what, rate in rates.items())
    return f"Per CPU second: {'; '.join(words)}.\n"


def speeds(figures: Figures, variant: str, **wanted: Any) -> Iterator[tuple[Figures, float, float | None]]:
    """Yield the cases in which a variant was measured, with packed turns' times its speed and, if known, its memory."""
    keys = ("model", "images", "turns", "max_tokens", "selected")
    rows = [row for row in figures["multi_turn"] if row.items() >= wanted.items()]
    packed = {tuple(row[key] for key in keys): row for row in rows if row["variant"] == "packed"}
    for row in rows:
        if row["variant"] == variant:
            ours = packed[tuple(row[key] for key in keys)]
            memory = ours["peak_mib"] / row["peak_mib"] if row["peak_mib"] else None
            yield row, ours["turns_per_second"] / row["turns_per_second"], memory


@drawing(2.9)
def multi_turn_picture(figure: Any, learner: Figures) -> None:
    """Speed and memory of packed turns over each variant with the targets; operations beside CPU time."""
    speed, memory, counted = figure.subplots(1, 3, width_ratios=(1.5, 1.2, 1.1))
    names = list(AGAINST)
    cases = [
        (f"{images} images, {words}", {"images": images, **wanted})
        for images in (5, 10)
        for words, wanted in (
            ("tiny model", {"selected": 1.0, "model": "tiny"}),
            ("80 % selected", {"selected": 0.8, "model": "tiny"}),
            ("wider model", {"selected": 1.0, "model": "wider"}),
        )
    ]
    for number, (label, wanted) in enumerate(cases):
        style = {"color": (BLUE, ORANGE)[number // 3], "marker": MARKERS[number % 3], "ls": "", "label": label}
        for axes, place in ((speed, 1), (memory, 2)):
            found = [
                (names.index(variant) + 0.12 * (number - 2.5), each[place])
                for variant in names
                for each in speeds(learner, variant, **wanted)
                if each[0]["max_tokens"] != SHARING and each[place] is not None
            ]
            axes.plot([x for _, x in found], [y for y, _ in found], **style)
    for (variant, images), target in TARGETS.items():
        at = names.index(variant) + (0.18 if images == 10 else -0.18)
        speed.plot([target, target], [at - 0.2, at + 0.2], color=RED, label="target")
    for axes in (speed, memory):
        rows_axis(axes, list(AGAINST.values()) if axes is speed else [""] * len(names))
        axes.axvline(1.0, color=GRAY, linestyle=":")
        axes.set_xlim(left=0.0)
    label_axes(speed, "Trained turns per CPU second", "times the variant's", zero=False)
    label_axes(memory, "Memory of an update", "times the variant's", zero=False)
    ratios = learner["operation_ratios"]
    for place, model in enumerate(("tiny", "wider")):
        own = [row for row in ratios if row["model"] == model]
        counted.plot(
            [row["operations"] for row in own],
            [row["cpu_seconds"] for row in own],
            color=(GREEN, PURPLE)[place],
            marker="sD"[place],
            ls="",
            label=f"{model} model",
        )
    most = max(row["operations"] for row in ratios) + 0.5
    counted.plot([1.0, most], [1.0, most], color=GRAY, linestyle=":")
    label_axes(counted, "Saving, counted", "operations, times", "CPU time, times")
    legend_below(figure, 3)


STUDY = Experiment(
    name="learner_speed",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={
        "learner-speed": summary,
    },
    pictures={
        "learner-turns": StudyPicture(
            "Several turns in one sequence against one sequence per turn, DART's sliding window, TRL and a plain "
            "loop: speed and memory; counted operations predict the saving",
            multi_turn_picture,
        )
    },
)

if __name__ == "__main__":
    STUDY.run()
