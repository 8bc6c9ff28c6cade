"""Recorded attempts of a run as pictures, and in the layout of OSWorld's own results.

    DIR/attempt-K/pyautogui/screenshot/MODEL/DOMAIN/TASK/{traj.jsonl, result.txt, step_*.png}

``attempt-K`` has the K-th exported attempt of each task; each is what OSWorld's show_result.py takes as its result_dir.
Only attempts whose turns and screenshots the run still keeps can be exported. The run is read and never changed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np

from dartsim.config import Config, load
from dartsim.core.errors import ConfigError
from dartsim.core.files import below, refuse_links
from dartsim.core.types import Trajectory
from dartsim.envs.actions import make_grammar
from dartsim.envs.render import episode_gif
from dartsim.observe.rundir import CONFIG
from dartsim.run.evaluation_results import LAYOUT, file_name, write_attempt
from dartsim.run.policy_evaluation import osworld_code
from dartsim.store.blobs import BlobStore
from dartsim.store.database import DATABASE_FILE, SCREENS_FOLDER, reading
from dartsim.store.load import Torn, load_trajectories

KEPT = "SELECT attempt FROM trajectories WHERE turns IS NOT NULL AND num_turns > 0 ORDER BY attempt"
MOST_NAMED = 8
"""Attempts that an error names, the newest."""


def kept_attempts(run: Path, attempts: Sequence[int] | None = None) -> Iterator[Trajectory]:
    """Yield a run's attempts whose turns and screenshots are kept, in order; ``attempts``: exactly these.

    Raises:
        ConfigError: If one of ``attempts`` is not there or was not kept.
    """
    refuse_links(run)
    database, screens = below(run, DATABASE_FILE), below(run, SCREENS_FOLDER)
    if not database.is_file():
        raise ConfigError(f"{run} has no {DATABASE_FILE}, so no turns of its attempts (curation.store = 'memory')")
    if not screens.is_dir():
        raise ConfigError(f"{run} has no {SCREENS_FOLDER}: no model looked at a screen in it")
    torn: list[Torn] = []
    found = 0
    with reading(database) as opened:
        kept = [number for (number,) in opened.execute(KEPT)]
        blobs = BlobStore(screens)
        for trajectory in load_trajectories(opened, blobs=blobs, attempts=attempts, on_torn=torn.append):
            if trajectory.turns and all(turn.observation.screenshot is not None for turn in trajectory.turns):
                found += 1
                yield trajectory
    if attempts is not None and found < len(attempts):
        why = next((f": {each.why}" for each in torn), "")
        raise ConfigError(
            f"{run} does not have the screenshots of attempt {', '.join(map(str, attempts))}{why}; it keeps those of "
            f"{_some(kept)} (run.keep_attempts, and stored successes)"
        )


def _some(attempts: Sequence[int]) -> str:
    return ", ".join(map(str, attempts[-MOST_NAMED:])) if attempts else "none"


def export_gif(run: Path, attempt: int, target: Path) -> Trajectory:
    """Write an attempt as an animated GIF, each action drawn on its screen."""
    config = load(run / CONFIG)
    (trajectory,) = kept_attempts(run, [attempt])
    frames = [np.asarray(turn.observation.screenshot) for turn in trajectory.turns]
    actions = [turn.reply.action for turn in trajectory.turns]
    name, options = config.policy.action_grammar
    height, width = frames[0].shape[:2]
    episode_gif(frames, actions, target, grammar=make_grammar(name, width, height, **options))
    return trajectory


def export_osworld(run: Path, target: Path, attempts: Sequence[int] | None = None) -> int:
    """Write attempts in OSWorld's layout into a folder, which must be new or empty; return how many.

    Raises:
        ConfigError: If the folder holds something, or no attempt was kept.
    """
    if target.exists() and any(target.iterdir()):
        raise ConfigError(f"{target} is not empty; name a new folder with --osworld")
    config = load(run / CONFIG)
    earlier: Counter[tuple[str, str]] = Counter()
    for trajectory in kept_attempts(run, attempts):
        task = file_name(trajectory.attempt.task.domain), file_name(trajectory.attempt.task.id)
        earlier[task] += 1
        folder = target.joinpath(f"attempt-{earlier[task]}", *LAYOUT, model_name(config), *task)
        folder.mkdir(parents=True)
        screens = [turn.observation.screenshot for turn in trajectory.turns]
        write_attempt(folder, trajectory, screens, lambda text: osworld_code(config, text))
    if not earlier:
        raise ConfigError(f"{run} keeps no attempt with screenshots, so there is nothing to export")
    return earlier.total()


def model_name(config: Config) -> str:
    """Return the model's name as a folder's name."""
    return file_name(Path(config.policy.model or config.policy.kind).name)
