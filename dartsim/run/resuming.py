"""A finished run's model, taken up again: to be evaluated, watched, or to collect successes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dartsim.config import load
from dartsim.core.errors import ConfigError
from dartsim.observe.rundir import CONFIG, read_run
from dartsim.run.execute import BEST
from dartsim.run.models import Models, models

if TYPE_CHECKING:
    from dartsim.run.learning import Learning


def resumed(folder: Path, changes: Sequence[str] = (), *, best: bool = False) -> tuple[Models, Learning]:
    """Return a finished run's configuration and its model.

    Args:
        folder: The run's folder.
        changes: To its configuration, as ``--set`` takes them.
        best: Take the promoted weights, not the last ones.

    Raises:
        ConfigError: If the folder is no finished run's, or the run had no model, or promoted none.
    """
    read_run(folder)
    # Nothing is judged any more, on however many held-out tasks.
    changes = [*changes, "trainer.promotion.enabled=false"]
    config = load(folder / CONFIG, overrides=changes)
    if config.backend.learner == "fsdp":  # nothing is trained: no ranks are needed
        config = load(folder / CONFIG, overrides=[*changes, "backend.learner=local"])
    if config.policy.kind != "vlm":
        raise ConfigError(f"{folder} was run with a surrogate policy: it has no model to evaluate")
    state = folder / BEST if best else folder
    if not state.is_dir():
        raise ConfigError(
            f"{folder} has no {BEST}/: it promoted no weights (trainer.promotion); leave --best out for its last ones"
        )
    # Imported here: it brings torch, and names the extra that is missing.
    from dartsim.run.learning import learning

    found = models(config)
    return found, learning(found, resume=state)
