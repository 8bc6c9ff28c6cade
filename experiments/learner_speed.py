"""Turns trained a second and tokens sampled a second, beside TRL's trainer, a plain loop and ``model.generate``.

    python -m experiments.learner_speed [--quick] [--record]

One model (0.4 M parameters, a transformers class, random weights), the same batch, one thread, all in one run and
by turns. Times are process time, so that other work on the machine does not count. Memory is what an update adds
to the peak of a process of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from experiments.common import Figures, Options, run_experiment


def measure(options: Options) -> Figures:
    """Measure learners and workers."""
    # Imported here: the command line can be asked for help without torch.
    from experiments.learner_speed_work import measured

    return measured(options)


def show(figures: Figures, console: Console) -> None:
    """Print the comparisons."""
    table = Table("what", "ours", "peer", "peer is", "ratio")
    for row in figures["rows"]:
        table.add_row(row["what"], f"{row['ours']:,}", f"{row['peer']:,}", row["peer_name"], f"{row['ratio']}")
    console.print(table)


def main(argv: Sequence[str] | None = None) -> Figures:
    """Run from the command line."""
    return run_experiment("learner_speed", measure, show, about=(__doc__ or "").split("\n")[0], seeds=1, argv=argv)


if __name__ == "__main__":
    main()
