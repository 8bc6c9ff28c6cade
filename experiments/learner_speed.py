"""Turns trained a second and tokens sampled a second, beside TRL's trainer, a plain loop and ``model.generate``.

    python -m experiments.learner_speed [--quick] [--record]

One model (0.4 M parameters, a transformers class, random weights), the same batch, one thread, alternately in one run.
Times are process time, so that other work on the machine does not count. Memory is what an update adds to the peak of
its own process.
"""

from __future__ import annotations

from experiments.study import Experiment, Figures, Options


def measure(options: Options) -> Figures:
    """Measure learners and workers."""
    # Imported here: `--help` works without torch.
    from experiments.learner_speed_work import measured

    return measured(options)


def summary(figures: Figures) -> str:
    """The rates of learner and worker, in words."""
    rates = {row["what"]: row["ours"] for row in figures["rows"] if "/s," in row["what"]}
    words = (f"{rate:,.0f} {what.replace('/s, ', ' (', 1)})" for what, rate in rates.items())
    return f"Per CPU second: {'; '.join(words)}.\n"


STUDY = Experiment(
    name="learner_speed", about=str(__doc__), measure=measure, seeds=1, tables={"learner-speed": summary}
)

if __name__ == "__main__":
    STUDY.run()
