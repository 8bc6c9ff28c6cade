"""The mock desktop's speed: steps a second with a screenshot each, against MiniGrid, and a thousand in one process.

``python -m experiments.mock_speed``. Both go through gymnasium's ``make`` and ``step`` and return pixels: MiniGrid
by its ``FullyObsWrapper`` and ``RGBImgObsWrapper``, an 8 × 8 room drawn at 14 pixels a tile (112 × 112) and a
16 × 16 room at 15 (240 × 240). The environments take turns in one process; medians of CPU time.
MiniGrid is optional (``pip install minigrid``); without it its figures are null.
"""

from __future__ import annotations

import importlib
import time
import tracemalloc
from collections.abc import Callable
from statistics import median
from typing import Any

import gymnasium
import numpy as np

import dartsim.envs.mock  # noqa: F401 - registers the environment
from dartsim.envs.mock.env import MockDesktop
from dartsim.envs.mock.oracle import play_oracle
from dartsim.envs.mock.suites import mock_suite, mock_tasks
from experiments.charts import drawing
from experiments.study import Experiment, Figures, Options, StudyPicture

Player = Callable[[int], int]
"""Takes at least that many steps and returns how many."""

SIZES = ((112, 112), (240, 240), (320, 240), (640, 480), (1920, 1080))
ROOMS = {(112, 112): ("MiniGrid-Empty-8x8-v0", 14), (240, 240): ("MiniGrid-Empty-16x16-v0", 15)}
"""Size of a picture -> MiniGrid's room and the pixels of its tiles."""
DESKTOPS = 1_000
SUITE = "mixed"
NUM_TASKS = 60


def oracle_player(width: int, height: int) -> Player:
    """Play the oracle's actions on the mixed suite, through gymnasium."""
    plain = MockDesktop(width=width, height=height, grammar="compact")
    episodes = [(task, play_oracle(plain, task)[1]) for task in mock_suite(SUITE, NUM_TASKS)]
    env = gymnasium.make("dartsim/MockDesktop-v0", width=width, height=height, grammar="compact")

    def play(num_steps: int) -> int:
        steps = 0
        while steps < num_steps:
            for task, actions in episodes:
                env.reset(options={"task": task})
                for action in actions:
                    env.step(action)
                steps += len(actions)
        return steps

    return play


def click_player(width: int, height: int) -> Player:
    """Play the click family: an episode a click."""
    plain = MockDesktop(width=width, height=height, grammar="compact")
    (task,) = mock_tasks("click_button", 1)
    (action,) = play_oracle(plain, task)[1]
    env = gymnasium.make("dartsim/MockDesktop-v0", width=width, height=height, grammar="compact")

    def play(num_steps: int) -> int:
        for _ in range(num_steps):
            env.reset(options={"task": task})
            env.step(action)
        return num_steps

    return play


def minigrid_player(width: int, height: int) -> Player | None:
    """Walk randomly in MiniGrid; None if it is not installed, or has no room of that size here."""
    try:
        wrappers: Any = importlib.import_module("minigrid.wrappers")
    except ModuleNotFoundError:
        return None
    if (width, height) not in ROOMS:
        return None
    room, tile = ROOMS[width, height]
    env = wrappers.RGBImgObsWrapper(wrappers.FullyObsWrapper(gymnasium.make(room)), tile_size=tile)
    assert env.reset(seed=0)[0]["image"].shape == (height, width, 3)
    rng = np.random.default_rng(0)

    def play(num_steps: int) -> int:
        for action in rng.integers(3, size=num_steps).tolist():
            _, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                env.reset()
        return num_steps

    return play


PLAYERS: dict[str, Callable[[int, int], Player | None]] = {
    "mock_desktop": oracle_player,
    "mock_desktop_click": click_player,
    "minigrid": minigrid_player,
}
"""By the names of the recorded figures."""


def steps_per_second(width: int, height: int, *, num_steps: int, repeats: int) -> dict[str, float | None]:
    """Return the median rate of every player at one size; the players alternate."""
    players = {name: make(width, height) for name, make in PLAYERS.items()}
    rates: dict[str, list[float]] = {name: [] for name in players}
    for _ in range(repeats):
        for name, play in players.items():
            if play is not None:
                started = time.process_time()
                steps = play(num_steps)
                rates[name].append(steps / (time.process_time() - started))
    return {name: round(median(found), 1) if found else None for name, found in rates.items()}


def memory_per_desktop_kb(num_desktops: int) -> float:
    """Return the memory of a desktop of 112 × 112 with a task and a frame, kB."""
    tasks = mock_suite(SUITE, NUM_TASKS)
    tracemalloc.start()
    try:
        desktops = [MockDesktop(width=112, height=112) for _ in range(num_desktops)]
        for i, env in enumerate(desktops):
            env.begin(tasks[i % len(tasks)])
            env.observe()
        return tracemalloc.get_traced_memory()[0] / num_desktops / 1000
    finally:
        tracemalloc.stop()


def measure(options: Options) -> Figures:
    """Measure everything."""
    num_steps, repeats = (500, 1) if options.quick else (5_000, options.seeds)
    sizes: list[Figures] = []
    for width, height in SIZES:
        options.console.print(f"{width} × {height} …")
        count = max(100, num_steps // 10) if width == 1920 else num_steps
        rates = steps_per_second(width, height, num_steps=count, repeats=repeats)
        sizes.append({"width": width, "height": height, "steps_per_second": rates})
    return {
        "sizes": sizes,
        "memory": {"num_desktops": DESKTOPS, "kb_per_desktop": round(memory_per_desktop_kb(DESKTOPS), 1)},
        "config": {
            "suite": SUITE,
            "num_tasks": NUM_TASKS,
            "num_steps": num_steps,
            "repeats": repeats,
            "rooms": {f"{width}x{height}": list(room) for (width, height), room in ROOMS.items()},
        },
    }


def summary(figures: Figures) -> str:
    """Steps per CPU second of the mock desktop by size of the picture, and its memory, in words."""
    sizes = "; ".join(
        f"{row['width']} × {row['height']}: {row['steps_per_second']['mock_desktop']:,.0f}" for row in figures["sizes"]
    )
    memory = figures["memory"]
    return (
        f"Steps per CPU second, with a screenshot each, by its pixels: {sizes}. {memory['num_desktops']:,} desktops in "
        f"one process take {memory['kb_per_desktop']:.0f} kB each.\n"
    )


@drawing(2.7)
def long_task(figure: Any, _recorded: Figures) -> None:
    """The screens of a task of the suite ``long``, and the oracle's actions on them."""
    env = MockDesktop(width=96, height=96, grammar="compact", grammar_options={"columns": 3, "rows": 3})
    frames: list[Any] = []
    _, actions = play_oracle(env, mock_tasks("recall_jobs", 1, 4, 6)[0], frames=frames)
    for place, axes in enumerate(figure.subplots(2, (len(actions) + 1) // 2).flat):
        axes.axis("off")
        if place < len(actions):
            axes.imshow(frames[place], interpolation="nearest")
            axes.set_title(actions[place])


STUDY = Experiment(
    name="mock_speed",
    about=str(__doc__),
    measure=measure,
    tables={"mock-speed": summary},
    pictures={
        "long-task": StudyPicture("Screens of a long task: notes to remember, dialogs, three applications", long_task)
    },
)

if __name__ == "__main__":
    STUDY.run()
