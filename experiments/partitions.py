"""Runs whose driver, engines and desktops are on three hosts, while the network between them fails.

    python -m experiments.partitions            every fault of the network, with 20 s each: some six minutes
    python -m experiments.partitions --quick    the same keys for two of them, with 8 s each

The hosts are network namespaces of this machine (``experiments.network``; needs root). On one of them stand-ins speak
vLLM's protocol, on another a Docker engine of its own starts our desktops, and the run on the third reaches both over
TCP with the clients, time limits and retries of every run. After each run, what it stored is compared with what it saw.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic, sleep
from typing import Any

from sqlalchemy import create_engine, select
from typing_extensions import override

from dartsim.config import Config, load
from dartsim.config.sections.desktop import DockerHostConfig
from dartsim.core.errors import ConfigError
from dartsim.core.types import Ending, Trajectory
from dartsim.observe import DesktopState, EngineState, Instrument, Recorder, UpdateRecord
from dartsim.run.execute import execute
from dartsim.run.prepare import prepare
from dartsim.store.blobs import BlobStore
from dartsim.store.load import load_trajectories
from dartsim.store.sql import DATABASE_FILE, SCREENS_FOLDER
from dartsim.store.tables import BATCH_MEMBERS
from experiments.network import Network, NoNetwork
from experiments.study import Experiment, Figures, Options, Rows, rows_of

DRIVER, ENGINES, DESKTOPS = "driver", "engines", "desktops"
STANDIN = Path(__file__).resolve().parents[1] / "tests" / "real" / "engines" / "standin.py"
PORTS = (8000, 8001)
DOCKER_PORT = 2375
START_SECONDS = 60.0
LIMIT_HOURS = 0.1
"""Longest time of one run; it ends as soon as it has recovered."""
DELAY_SECONDS, LOSS = 0.05, 0.01
"""Of every packet, each way, in the run over a slow network."""

SETTINGS = (
    "backend.workers=vllm",
    "rollout.num_workers=2",
    "rollout.num_envs=2",
    "rollout.warm_envs=1",
    "run.target_success=none",
    f"run.hours={LIMIT_HOURS}",
    "tasks.count=16",
    "recorder.max_segments=0",
    "storage.keep=all",
    "curation.pool.enabled=false",
    "curation.attempts.rule=fixed",
    "curation.attempts.group_size=2",
    "curation.batch.min_groups=1",
    "curation.batch.max_groups=2",
    # Random clicks solve next to nothing; updates are wanted all the same.
    "curation.groups.drop_all_failed=false",
    "curation.groups.drop_equal=false",
    "curation.groups.drop_solved=false",
)

Trigger = Callable[[Recorder], bool]


def _at_once(_: Recorder) -> bool:
    return True


def _loading(recorder: Recorder) -> bool:
    return any(track.state is EngineState.LOADING for track in recorder.engines.tracks)


def _scoring(recorder: Recorder) -> bool:
    return any(track.state is DesktopState.EVALUATING for track in recorder.desktops.tracks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A fault of the network under one run."""

    name: str
    far: str | None = None
    seconds: float = 20.0
    trigger: Trigger = _at_once
    slow: bool = False
    mock: bool = False


SCENARIOS = (
    Scenario(name="50 ms delay each way, 1 % loss", slow=True),
    Scenario(name="engines lost", far=ENGINES),
    Scenario(name="engines lost for longer than every time limit", far=ENGINES, seconds=75.0),
    Scenario(name="engines lost while they load weights", far=ENGINES, trigger=_loading),
    Scenario(name="desktops lost", far=DESKTOPS),
    Scenario(name="desktops lost for longer than every time limit", far=DESKTOPS, seconds=75.0),
    Scenario(name="desktops lost while one is scored", far=DESKTOPS, trigger=_scoring),
)
QUICK = ("engines lost while they load weights", "desktops lost while one is scored")
QUICK_SECONDS = 8.0


@dataclass(slots=True)
class RunHosts:
    """The hosts of a run, up."""

    network: Network
    engines: list[str] = field(default_factory=list)
    docker: tuple[str, str] | None = None

    def config(self, *changes: str, mock: bool = False) -> Config:
        addresses = json.dumps(self.engines)
        address = self.network.address(DESKTOPS)
        if mock or self.docker is None:
            preset, desktops = "tiny", ["backend.desktops=mock", "backend.learner=local"]
        else:
            preset = "desktop"
            desktops = [f'desktop.hosts.far.url="{self.docker[0]}"', f'desktop.hosts.far.bind="{address}"']
            desktops += ["desktop.evaluate_wait_seconds=0.5"]
        return load(preset_name=preset, overrides=[*SETTINGS, f"vllm.addresses={addresses}", *desktops, *changes])


@contextmanager
def run_hosts(*, desktops: bool) -> Iterator[RunHosts]:
    """Start the hosts, two engines and, if asked for, a Docker engine with our image.

    Raises:
        NoNetwork: If no network namespaces can be made here.
        ConfigError: If there is no Docker engine to start, or its image cannot be built.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="hosts-", dir="/tmp")))
        network = stack.enter_context(Network([DRIVER, ENGINES, DESKTOPS]))
        made = RunHosts(network)
        _start_engines(made, folder)
        if desktops:
            _start_docker(made, folder)
        yield made


def _start_engines(made: RunHosts, folder: Path) -> None:
    from dartsim.real.vlm.export import export
    from dartsim.run.learning import learning

    network, address = made.network, made.network.address(ENGINES)
    made.engines = [f"http://{address}:{port}" for port in PORTS]
    trained = learning(prepare(made.config()))
    assert trained is not None
    model = export(trained.vlm, folder / "model")
    for port in PORTS:
        command = [sys.executable, str(STANDIN), "--model", str(model), "--host", address, "--port", str(port)]
        command += ["--load-seconds", "1", "--token-seconds", "0.02"]
        network.start(ENGINES, command, stdout=subprocess.DEVNULL)
    for url in made.engines:
        _until_answers(partial(network.call, ENGINES, partial(_get, f"{url}/health")))


def _start_docker(made: RunHosts, folder: Path) -> None:
    from dartsim.real.containers.engine import connect
    from dartsim.real.desktop import build

    if shutil.which("dockerd") is None:
        raise ConfigError("no dockerd on this machine: install the distribution's package docker.io")
    network, address = made.network, made.network.address(DESKTOPS)
    local, far = f"unix://{folder}/docker.sock", f"tcp://{address}:{DOCKER_PORT}"
    places = {"data-root": "data", "exec-root": "exec", "pidfile": "pid"}
    quiet = ("--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false")
    command = ["unshare", "--mount", "dockerd", "-H", local, "-H", far, "--tls=false", *quiet]
    command += [f"--{name}={folder / place}" for name, place in places.items()]
    with (folder / "docker.log").open("wb") as log:
        network.start(DESKTOPS, command, stdout=log, stderr=log)
    settings = DockerHostConfig(url=local)
    _until_answers(lambda: connect(settings).close())
    asyncio.run(build("skeleton", settings))
    made.docker = far, local


def _get(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=5) as answer:
        return bytes(answer.read())


def _until_answers(ask: Callable[[], Any]) -> None:
    deadline = monotonic() + START_SECONDS
    while True:
        try:
            ask()
        except Exception:
            if monotonic() > deadline:
                raise
            sleep(0.1)
        else:
            return


class Saboteur(Instrument):
    """Cuts the network under a run, heals it, and ends the run once it has recovered.

    Recovered: each engine has served, as many attempts as there are slots were scored, and an update has finished.
    """

    period_seconds = 0.05
    BEFORE = 4
    """Scored attempts before the fault begins."""

    def __init__(self, network: Network, scenario: Scenario) -> None:
        self.ended: list[Trajectory] = []
        self.seconds: dict[str, float] = {}
        self._network = network
        self._scenario = scenario
        self._scored_at_heal = 0
        self._served: set[int] = set()
        self._recorder: Recorder | None = None
        self._main: asyncio.Task[Any] | None = None

    @override
    def run_started(self, recorder: Recorder) -> None:
        self._recorder, self._main = recorder, asyncio.current_task()

    @override
    def attempt_ended(self, trajectory: Trajectory) -> None:
        self.ended.append(trajectory)
        if not trajectory.masked:
            self._back("first_scored")
            if self._scored - self._scored_at_heal >= len(self._of_run.desktops.tracks) - 1:
                self._back("all_scored")
        elif "cut" in self.seconds:
            self.seconds.setdefault("noticed", self._of_run.clock() - self.seconds["cut"])

    @override
    def update_finished(self, record: UpdateRecord) -> None:
        self._back("updated")

    @override
    def time_advanced(self, now: float) -> None:
        scenario, seconds = self._scenario, self.seconds
        if "cut" not in seconds:
            if self._scored >= self.BEFORE and scenario.trigger(self._of_run):
                seconds["cut"] = now
                if scenario.far is not None:
                    self._network.cut(DRIVER, scenario.far)
        elif "heal" not in seconds:
            if now >= seconds["cut"] + (scenario.seconds if scenario.far is not None else 0.0):
                self._network.heal()
                seconds["heal"] = now
                self._scored_at_heal = self._scored
        else:
            up = (EngineState.IDLE, EngineState.BUSY)
            self._served |= {track.index for track in self._of_run.engines.tracks if track.state in up}
            if len(self._served) == len(self._of_run.engines):
                self._back("engines_up")
            if seconds.keys() >= {"first_scored", "all_scored", "updated", "engines_up"}:
                assert self._main is not None
                self._main.cancel()

    @property
    def _of_run(self) -> Recorder:
        assert self._recorder is not None
        return self._recorder

    @property
    def _scored(self) -> int:
        return sum(not trajectory.masked for trajectory in self.ended)

    def _back(self, what: str) -> None:
        if "heal" in self.seconds:
            self.seconds.setdefault(what, self._of_run.clock() - self.seconds["heal"])


def play(made: RunHosts, scenario: Scenario, folder: Path, *changes: str) -> Figures:
    """Run once under a fault of the network, and return what it cost and what was found wrong afterwards."""
    if scenario.slow:
        made.network.set(delay_seconds=DELAY_SECONDS, loss=LOSS)
    saboteur = Saboteur(made.network, scenario)
    try:
        config = made.config(*changes, mock=scenario.mock)
        _, result = made.network.call(DRIVER, lambda: execute(config, folder, [saboteur]))
    finally:
        made.network.heal()
        made.network.set()
    counts, seconds = result.recorder.counts, saboteur.seconds
    back = {name: seconds.get(name) for name in ("engines_up", "first_scored", "all_scored", "updated")}
    return {
        "fault_seconds": seconds["heal"] - seconds["cut"] if "heal" in seconds else None,
        "scored": sum(not ended.masked for ended in saboteur.ended),
        "causes": {name[6:]: int(n) for name, n in sorted(counts.items()) if name.startswith("cause/")},
        "start_causes": {name[12:]: int(n) for name, n in sorted(counts.items()) if name.startswith("start_cause/")},
        "load_causes": {name[11:]: int(n) for name, n in sorted(counts.items()) if name.startswith("load_cause/")},
        "faults": {name[6:]: int(n) for name, n in sorted(counts.items()) if name.startswith("fault/") and n},
        "reasons": dict(result.recorder.fault_reasons),
        "back_seconds": back,
        "wrong": {**wrong(saboteur.ended, folder, counts), "containers left": left(made)},
    }


def wrong(ended: Sequence[Trajectory], folder: Path, counts: Counter[str]) -> dict[str, int]:
    """Compare what a run saw with what it stored, and return the number of each kind of error."""
    database = create_engine(f"sqlite:///{folder / DATABASE_FILE}")
    torn: list[Any] = []
    blobs = BlobStore(folder / SCREENS_FOLDER)
    stored = {each.attempt.id: each for each in load_trajectories(database, blobs=blobs, on_torn=torn.append)}
    with database.connect() as connection:
        trained = Counter(connection.scalars(select(BATCH_MEMBERS.c.attempt)))
    database.dispose()
    masked = [each for each in ended if each.masked]
    finished = [each for each in ended if each.ending is not Ending.CANCELLED]  # the others start again
    kept = [(each, stored[each.attempt.id]) for each in ended if each.attempt.id in stored]
    return {
        "attempts ended twice": len(ended) - len({each.attempt.id for each in ended}),
        "attempts lost": sum(each.attempt.id not in stored for each in finished),
        "attempts torn": len(torn),
        "turns lost or doubled": sum(_turns(one) != _turns(other) for one, other in kept),
        "scores changed": sum((one.reward, one.cause) != (other.reward, other.cause) for one, other in kept),
        "trained twice": sum(number > 1 for number in trained.values()),
        "masked with a reward or without a cause": sum(e.reward is not None or not e.cause for e in masked),
        "masked and not counted": len(masked) - sum(int(n) for name, n in counts.items() if name.startswith("cause/")),
    }


def _turns(trajectory: Trajectory) -> list[tuple[int, ...]]:
    return [tuple(turn.reply.tokens) for turn in trajectory.turns]


def left(made: RunHosts) -> int:
    """Return the number of containers that a run left."""
    from dartsim.real.containers.engine import connect

    if made.docker is None:
        return 0
    client = connect(DockerHostConfig(url=made.docker[1]))
    try:
        return len(client.api.containers(all=True))
    finally:
        client.close()


def measure(options: Options) -> Figures:
    """Run every scenario."""
    chosen: list[Scenario] = list(SCENARIOS)
    if options.quick:
        chosen = [replace(each, seconds=QUICK_SECONDS) for each in SCENARIOS if each.name in QUICK]
    try:
        with run_hosts(desktops=True) as made, TemporaryDirectory(prefix="partitions-") as folder:
            found = {}
            for number, scenario in enumerate(chosen):
                options.console.print(scenario.name)
                found[scenario.name] = play(made, scenario, Path(folder) / str(number))
            return {"scenarios": found, "config": made.config().model_dump(mode="json")}
    except NoNetwork as refused:
        raise ConfigError(str(refused)) from refused


def rows(figures: Figures) -> Rows:
    """Return a row for each scenario."""
    columns = {
        "network": "{name}",
        "lasts, s": "{fault_seconds:.0f}",
        "attempts scored": "{scored}",
        "masked": "{masked}",
        "engines serve, s": "{back_seconds[engines_up]:.1f}",
        "every slot scored, s": "{back_seconds[all_scored]:.1f}",
        "next update, s": "{back_seconds[updated]:.1f}",
        "lost, doubled or wrong": "{errors}",
    }
    return rows_of(columns, (_row(name, one) for name, one in figures["scenarios"].items()))


def _row(name: str, one: Figures) -> Figures:
    masked = {cause: number for cause, number in one["causes"].items() if cause != "run ended"}
    told = ", ".join(f"{number} `{cause}`" for cause, number in masked.items()) or "none"
    return {**one, "name": name, "masked": told, "errors": sum(one["wrong"].values())}


STUDY = Experiment(name="partitions", about=str(__doc__), measure=measure, seeds=1, tables={"partitions": rows})

if __name__ == "__main__":
    STUDY.run()
