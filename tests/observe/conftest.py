"""A made-up run: a small cluster is driven through a random schedule with a clock that is set by hand."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator, Sequence
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dartsim.core.types import Attempt, Batch, Drop, Ending, Group, Observation, Reply, Task, Trajectory, Turn
from dartsim.observe import DesktopState, EngineState, Instrument, Recorder, TrainerState
from dartsim.observe.figures import by_label, summary
from dartsim.observe.rundir import RunDir, write_run

DOMAINS = ("chrome", "gimp", "libreoffice_calc", "os", "thunderbird", "vlc", "vs_code")
TASKS = [Task(f"task-{index}", "do it", DOMAINS[index % len(DOMAINS)]) for index in range(40)]


class Clock:
    """A time that is set by hand."""

    def __init__(self, now: float = 0.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


class Cluster:
    """Desktops that boot, set up, ask, act and score; workers; a trainer that takes every twelve attempts."""

    def __init__(
        self,
        *,
        seed: int,
        num_envs: int,
        num_workers: int,
        hours: float,
        coupled: bool,
        instruments: Sequence[Instrument] = (),
        **options: Any,
    ) -> None:
        self.rng = np.random.default_rng(seed)
        self.clock = Clock(1000.0)
        self.recorder = Recorder(self.clock, num_envs=num_envs, num_engines=num_workers, **options)
        self.recorder.start(instruments)
        self.end = self.clock.now + hours * 3600.0
        self.coupled = coupled
        self.version = 0
        self.live = [0] * num_workers
        self.waiting = 0
        self.groups: list[Group] = []
        self.attempts = count()
        self.queue: list[tuple[float, int, Iterator[float]]] = []
        self.order = count()

    def run(self) -> Recorder:
        for worker in self.recorder.engines.tracks:
            worker.enter(EngineState.IDLE)
        for slot in range(len(self.recorder.desktops)):
            self.go(self.clock.now, self.desktop(slot))
        self.go(self.clock.now, self.trainer())
        while self.queue and self.queue[0][0] < self.end:
            self.clock.now, _, part = heapq.heappop(self.queue)
            pause = next(part, None)
            if pause is not None:
                self.go(self.clock.now + pause, part)
        self.clock.now = self.end
        self.recorder.close()
        return self.recorder

    def go(self, when: float, part: Iterator[float]) -> None:
        heapq.heappush(self.queue, (when, next(self.order), part))

    def desktop(self, slot: int) -> Iterator[float]:
        track, rng, recorder = self.recorder.desktops.tracks[slot], self.rng, self.recorder
        while True:
            while self.coupled and len(self.groups) >= 12:
                track.enter(DesktopState.WAIT_ADMISSION)
                yield 5.0
            attempt = self.attempt()
            started = self.clock.now
            recorder.attempt_started()
            track.enter(DesktopState.STARTING)
            yield rng.gamma(8.0, 2.0)
            track.enter(DesktopState.SETUP)
            yield rng.gamma(4.0, 4.0)
            turns: list[Turn] = []
            broken = rng.random() < 0.04
            for _ in range(int(rng.integers(4, 30))):
                track.enter(DesktopState.GENERATING)
                worker = int(np.argmin(self.live))
                yield from self.generate(worker, rng.gamma(3.0, 3.0 if self.coupled else 1.2))
                reply = Reply("click", self.version, self.version, worker, 3000, 104)
                turns.append(Turn(Observation(None, "do it"), reply))
                recorder.hot.generated_turns += 1
                recorder.hot.response_tokens += 104
                if self.coupled:
                    track.enter(DesktopState.TURN_WAIT)
                    yield rng.gamma(4.0, 5.0)
                track.enter(DesktopState.ACTING)
                yield rng.gamma(4.0, 1.2)
                if broken:
                    break
            track.enter(DesktopState.EVALUATING)
            yield rng.gamma(2.0, 4.0)
            self.finish(attempt, tuple(turns), started, broken=broken)
            track.enter(DesktopState.CLOSING)
            yield rng.gamma(9.0, 1.0)

    def generate(self, worker: int, seconds: float) -> Iterator[float]:
        track = self.recorder.engines.tracks[worker]
        self.live[worker] += 1
        if track.state == EngineState.IDLE:
            track.enter(EngineState.BUSY)
        yield seconds
        self.live[worker] -= 1
        if not self.live[worker] and track.state == EngineState.BUSY:
            track.enter(EngineState.IDLE)

    def attempt(self) -> Attempt:
        number = next(self.attempts)
        task = TASKS[int(self.rng.integers(len(TASKS)))]
        return Attempt(number, task, number, 0, number, 30, self.version)

    def finish(self, attempt: Attempt, turns: tuple[Turn, ...], started: float, *, broken: bool) -> None:
        reward = None if broken else float(self.rng.random() < 0.3 + 0.4 * (attempt.task in TASKS[:20]))
        ending = Ending.BROKEN if broken else self.rng.choice([Ending.DONE] * 4 + [Ending.TURN_LIMIT, Ending.FAIL])
        trajectory = Trajectory(
            attempt,
            turns,
            Ending(ending),
            reward,
            "the desktop went away" if broken else None,
            started,
            self.clock.now,
        )
        self.recorder.attempt_finished(trajectory)
        if broken:
            self.recorder.dropped((trajectory,), Drop.MASKED)
        elif self.rng.random() < 0.5:
            self.recorder.dropped((trajectory,), self.rng.choice([Drop.ALL_FAILED, Drop.ALL_SOLVED, Drop.STALE]))
        else:
            self.groups.append(Group(attempt.id, attempt.task, (trajectory,), self.clock.now))

    def trainer(self) -> Iterator[float]:
        track, recorder = self.recorder.trainer.tracks[0], self.recorder
        while True:
            track.enter(TrainerState.WAIT_DATA)
            while len(self.groups) < 12:
                yield 10.0
            batch = Batch(self.version + 1, self.version, tuple(self.groups[:12]))
            recorder.batch_leased(batch)
            track.enter(TrainerState.TRAINING)
            yield self.rng.gamma(20.0, 15.0)
            self.version += 1
            recorder.update_finished(batch, {"loss": float(self.rng.normal()), "optim/grad_norm": 0.5})
            yield from self.sync()
            del self.groups[:12]

    def sync(self) -> Iterator[float]:
        track = self.recorder.trainer.tracks[0]
        track.enter(TrainerState.WAIT_SYNC)
        for index, worker in enumerate(self.recorder.engines.tracks):
            worker.enter(EngineState.LOADING)
            if self.coupled:
                self.recorder.desktops.swap(DesktopState.GENERATING, DesktopState.SYNC_WAIT)
            yield 45.0
            worker.enter(EngineState.BUSY if self.live[index] else EngineState.IDLE)


@pytest.fixture(scope="session")
def make_recorder() -> Callable[..., Recorder]:
    """Return a function that makes the recorder of a made-up run."""

    def make(
        *,
        seed: int = 0,
        num_envs: int = 8,
        num_workers: int = 2,
        hours: float = 6.0,
        coupled: bool = False,
        max_segments: int = 20_000,
        **options: Any,
    ) -> Recorder:
        return Cluster(
            seed=seed,
            num_envs=num_envs,
            num_workers=num_workers,
            hours=hours,
            coupled=coupled,
            max_segments=max_segments,
            **options,
        ).run()

    return make


@pytest.fixture(scope="session")
def make_run(make_recorder: Callable[..., Recorder]) -> Callable[..., RunDir]:
    """Return a function that writes a made-up run into a folder."""

    def make(path: Path, *, preset: str = "dart", seed: int = 0, surrogate: bool = True, **options: Any) -> RunDir:
        recorder = make_recorder(seed=seed, coupled=preset == "coupled", **options)
        num_envs = len(recorder.desktops)
        counts = {"offered": recorder.offered, "trained": recorder.trained}
        figures = summary(recorder, warmup_share=0.1) | {
            "bias": {
                "by domain": by_label(counts, {task.id: task.domain for task in TASKS}),
                "by task success decile": by_label(
                    counts, {task.id: f"{index % 10 / 10:.1f}" for index, task in enumerate(TASKS)}
                ),
            }
        }
        sampling = "batch" if preset == "coupled" else "rollout"
        return write_run(
            path,
            recorder,
            config_toml=f'seed = {seed}\n\n[rollout]\nnum_envs = {num_envs}\nsampling = "{sampling}" # <b>\n',
            summary={**figures, "config": {"rollout": {"num_envs": num_envs, "sampling": sampling}, "seed": seed}},
            meta={
                "name": preset,
                "preset": preset,
                "seed": seed,
                "event_hash": f"{seed:08x}" * 4,
                "surrogate": surrogate,
                "versions": {"dartsim": "0.1.0"},
            },
        )

    return make


HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>"
SCREENS = ("a" * 64, "b" * 64)
"""Pictures that are not shown: a huge one, and a link out of the folder."""


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A short simulated run."""
    changes = ["run.hours=0.4", "rollout.num_envs=16", "rollout.num_workers=2", "curation.batch.min_groups=1"]
    path = tmp_path_factory.mktemp("runs") / "a run"
    execute(load(preset_name="dart", overrides=changes), path)
    return path


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """A copy of it, to be changed."""
    path = tmp_path / "run"
    path.mkdir()
    for file in folder.iterdir():
        if file.is_file():
            (path / file.name).write_bytes(file.read_bytes())
    return path


@pytest.fixture
def hostile(copied: Path, tmp_path: Path) -> Path:
    """A run's folder with script in its texts, lines and turns that no run writes, and ``SCREENS``.

    Attempt 1 has no turns that can be read, attempt 2 has script in its actions, and refers to the pictures.
    """
    status = json.loads((copied / STATUS).read_text())
    (copied / STATUS).write_text(json.dumps(status | {"name": HOSTILE, "error": HOSTILE}))
    with (copied / ATTEMPTS).open("a") as file:
        file.write('{"attempt": [1]}\n[]\n{"dropped": 3, "time": "x"}\n' + "[" * 100_000 + '\n{"update": null}\n')
    turn = [HOSTILE, 0, 0, 0, 1, 1, [None] * 3]
    text = json.dumps([[*turn, f"{screen}.png", None, None] for screen in SCREENS]).encode()
    with closing(sqlite3.connect(copied / "run.db")) as database:
        database.execute("UPDATE tasks SET instruction = ?", (json.dumps(HOSTILE),))
        for attempt, turns in ((1, b"no turns"), (2, struct.pack("<II", zlib.crc32(text), len(text)) + text)):
            database.execute("UPDATE trajectories SET turns = ? WHERE attempt = ?", (turns, attempt))
        database.commit()
    (tmp_path / "secret.png").write_bytes(encode_png(np.zeros((1, 1, 3), dtype=np.uint8)))
    header = chunk(b"IHDR", (10_000).to_bytes(4) + (10_000).to_bytes(4) + bytes((8, 2, 0, 0, 0)))
    paths = [copied / "screens" / screen[:2] / f"{screen}.png" for screen in SCREENS]
    for path in paths:
        path.parent.mkdir(parents=True)
    paths[0].write_bytes(SIGNATURE + header)
    paths[1].symlink_to(tmp_path / "secret.png")
    return copied
