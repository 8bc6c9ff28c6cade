"""Turns trained a second and tokens sampled a second, beside TRL's trainer, a plain loop and ``model.generate``.

    python -m experiments.learner_speed [--quick] [--record]

One model (0.4 M parameters, a transformers class, random weights), the same batch, one thread, alternately in one run.
Times are process time, so that other work on the machine does not count. Memory is what an update adds to the peak of
its own process.
"""

from __future__ import annotations

from experiments.study import Experiment, Figures, Options, Rows, rows_of


def measure(options: Options) -> Figures:
    """Measure learners and workers."""
    # Imported here: `--help` works without torch.
    from experiments.learner_speed_work import measured

    return measured(options)


def peers_table(figures: Figures) -> Rows:
    """The learner and the worker beside their peers."""
    columns = {
        "": "{what}",
        "beside": "{peer_name}",
        "ours": "{ours:,.1f}",
        "theirs": "{peer:,.1f}",
        "better by": "{ratio:.2f}x",
    }
    return rows_of(columns, figures["rows"])


STUDY = Experiment(
    name="learner_speed", about=str(__doc__), measure=measure, seeds=1, tables={"learner-speed": peers_table}
)

if __name__ == "__main__":
    STUDY.run()
