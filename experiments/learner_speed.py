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

from experiments.study import Experiment, Figures, Options, Rows, rows_of

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


def speeds(figures: Figures, variant: str) -> Iterator[tuple[Figures, float, float | None]]:
    """Yield the cases in which a variant was measured, with packed turns' times its speed and, if known, its memory."""
    keys = ("model", "images", "turns", "max_tokens", "selected")
    rows = figures["multi_turn"]
    packed = {tuple(row[key] for key in keys): row for row in rows if row["variant"] == "packed"}
    for row in rows:
        if row["variant"] == variant:
            ours = packed[tuple(row[key] for key in keys)]
            memory = ours["peak_mib"] / row["peak_mib"] if row["peak_mib"] else None
            yield row, ours["turns_per_second"] / row["turns_per_second"], memory


def multi_turn_table(figures: Figures) -> Rows:
    """Return how much faster packed turns are than each variant, and what memory their update takes beside its own."""
    columns = {
        **{"packed turns beside": "{against}", "images": "{images}", "model": "{model}", "selected": "{selected:.0%}"},
        **{"turns per CPU second": "{speed:.1f} ×", "wanted": "{wanted:.1f} ×", "memory": "{memory:.2f} ×"},
        "fewer operations": "{operations:.1f} ×",
    }
    keys = ("images", "model", "max_tokens", "selected")
    counted = {(row["against"], *(row[key] for key in keys)): row["operations"] for row in figures["operation_ratios"]}
    entries = [
        {
            **row,
            "against": words,
            "speed": speed,
            "wanted": TARGETS.get((variant, row["images"])),
            "memory": memory,
            "operations": counted.get((variant, *(row[key] for key in keys))),
        }
        for variant, words in AGAINST.items()
        for row, speed, memory in speeds(figures, variant)
        if row["max_tokens"] != SHARING
    ]
    return rows_of(columns, entries)


STUDY = Experiment(
    name="learner_speed",
    about=str(__doc__),
    measure=measure,
    seeds=1,
    tables={"learner-speed": summary, "learner-turns": multi_turn_table},
)

if __name__ == "__main__":
    STUDY.run()
