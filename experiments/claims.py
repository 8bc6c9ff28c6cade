"""The published claims of asynchronous training, each run on one simulator, and whether what comes out agrees.

python -m experiments.claims            three seeds: about eight minutes on two cores
python -m experiments.claims --quick    the same keys, fewer arms, in less than one
"""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from dartsim.run.models import models
from experiments.claims_arms import ARMS
from experiments.claims_knee import knee
from experiments.claims_runs import Figures, of_arm, run_arms
from experiments.claims_tables import ROWS
from experiments.claims_verdicts import gpu_definitions, verdicts
from experiments.common import Options, run_experiment


def measure(options: Options) -> Figures:
    """Run the arms of every claim, and judge the claims by them."""
    arms = [arm for of_claim in ARMS.values() for arm in of_claim(quick=options.quick)]
    runs = run_arms(arms, range(options.seeds), options.console)
    found: Figures = {claim: [of_arm(arm, runs[arm]) for arm in arms if arm.claim == claim] for claim in ARMS}
    found["knee"] = knee(models(next(arm for arm in arms if arm.claim == "desktops").config(0)))
    return {
        "claims": found,
        "gpu_definitions": gpu_definitions(found["table"]),
        "verdicts": verdicts(found),
        "config": {"quick": options.quick},
    }


def show(figures: dict[str, Any], console: Console) -> None:
    """Print one table a claim, and the verdicts."""
    for name, rows_of in ROWS.items():
        head, rows = rows_of(figures)
        table = Table(*head, title=name, show_edge=False)
        for row in rows:
            table.add_row(*row)
        console.print(table)


if __name__ == "__main__":
    run_experiment("claims", measure, show, about=str(__doc__).splitlines()[0])
