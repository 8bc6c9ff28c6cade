"""Going on with a run: what is refused, what Ctrl-C leaves, and what a model's checkpoints hold."""

import json
import shutil
import signal
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest

from dartsim.config import from_tree, load, merge, to_toml
from dartsim.core.errors import ConfigError
from dartsim.lab.bounds import bounds
from dartsim.lab.virtual import with_settings
from dartsim.observe import ticker
from dartsim.observe.recording import read_segments
from dartsim.observe.rundir import lock_run
from dartsim.run.execute import execute, open_store
from dartsim.run.resume import resumable, resume
from dartsim.run.resume_point import read_resume_point
from tests.crashing import configured, trained_set

TINY = [
    "run.updates=4",
    "run.target_success=none",
    "run.hours=3",
    "tasks.held_out=8",
    "tasks.count=64",
    "trainer.evaluation.every_updates=none",
    "trainer.evaluation.attempts_per_task=1",
    "curation.batch.min_groups=2",
    "curation.batch.max_groups=2",
]


def interrupting(after):
    """Press Ctrl-C at a time of the run."""

    def press(now):
        if now > after:
            signal.raise_signal(signal.SIGINT)

    return press


def small(**tables):
    return configured("dart", 0, **merge({"run": {"hours": 0.4}}, tables))


def twice_told(folder):
    """Return what is told of a resumption, the same whether or not it was killed before it went on."""
    found = []
    for _ in range(2):
        with closing(store := open_store(resumable(folder), folder)):
            found.append(read_resume_point(store, folder).as_json())
    assert found[0] == found[1]
    return found[0]


def test_what_is_no_run_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"config\.toml"):
        resume(tmp_path)


def test_a_finished_run_is_refused_unless_it_shall_be_longer(tmp_path):
    run, _ = execute(small(), tmp_path / "run")
    with pytest.raises(ConfigError, match="--hours"):
        resume(tmp_path / "run")
    assert resumable(tmp_path / "run", ["run.hours=2.0"]).run.hours == 2.0
    file = tmp_path / "run" / "config.toml"
    whole = file.read_text()
    file.write_text(whole.replace("hours = 0.4\n", "hours = 2.0\n", 1))
    assert resumable(tmp_path / "run").run.hours == 2.0, "edited in the file"
    file.write_text(whole)
    done = run.summary["total_updates"]
    with pytest.raises(ConfigError, match=f"at update {done}|and update {done};"):
        resumable(tmp_path / "run", ["run.hours=2.0", f"run.updates={done}"])
    with pytest.raises(ConfigError, match=r"has ended at 0\.4\d* h"):
        resumable(tmp_path / "run", [f"run.updates={done + 100}"])  # it would end at once


def test_a_longer_run_that_was_killed_goes_on_although_its_earlier_life_ended(tmp_path):
    def kill(now):
        if now > 0.5 * 3600.0:
            raise RuntimeError("killed")

    execute(small(), tmp_path / "run")
    with pytest.raises(RuntimeError, match="killed"):
        resume(tmp_path / "run", ["run.hours=0.6"], instruments=[ticker(kill)])
    run, _ = resume(tmp_path / "run")
    assert run.summary["simulated_hours"] == pytest.approx(0.6, rel=0.01)
    with pytest.raises(ConfigError, match=r"--hours 1\.2"):
        resumable(tmp_path / "run")


def test_what_a_refusal_says_lets_the_run_go_on(tmp_path):
    execute(small(run={"hours": 2.0, "updates": 1}), tmp_path / "run")
    with pytest.raises(ConfigError, match=r"--hours 4 --set run\.updates=2") as refused:
        resumable(tmp_path / "run")
    _, hours, _, updates = str(refused.value).partition("in all: ")[2].split()
    assert resumable(tmp_path / "run", [f"run.hours={hours}", updates]).run.updates == 2


def test_a_crashed_run_is_refused_fewer_hours_than_it_has(tmp_path):
    execute(small(), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(ConfigError, match=r"is at 0\.\d+ h"):
        resume(tmp_path / "run", ["run.hours=0.1"])
    run, _ = resume(tmp_path / "run", ["run.hours=0.5"])
    assert run.summary["simulated_hours"] == pytest.approx(0.5, rel=0.01)


def test_a_run_in_memory_leaves_nothing(tmp_path):
    execute(small(curation={"store": "memory"}), tmp_path / "run")
    with pytest.raises(ConfigError, match="nothing is left"):
        resume(tmp_path / "run", ["run.hours=2.0"])


def test_one_process_holds_a_run(tmp_path):
    execute(small(), tmp_path / "run")
    with lock_run(tmp_path / "run"), pytest.raises(ConfigError, match="held by a process that runs it now"):
        resume(tmp_path / "run", ["run.hours=2.0"])


def test_an_unfinished_run_is_not_run_over(tmp_path):
    execute(small(), tmp_path / "run")
    (tmp_path / "run" / "summary.json").unlink()
    with pytest.raises(ConfigError, match="did not come to its end; go on with `dartsim run"):
        execute(small(), tmp_path / "run")


def test_a_run_in_which_nothing_happened_begins(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "config.toml").write_text(to_toml(small()))
    run, _ = resume(tmp_path / "run")
    assert run.summary["total_updates"] > 0
    assert "lives" not in run.summary


@pytest.fixture(scope="module")
def killed_run(tmp_path_factory):
    """The folder of a run as a kill after its third update leaves it."""
    folder = tmp_path_factory.mktemp("killed")

    def kill(now):
        updates = (folder / "alive" / "metrics.jsonl").read_text().count("\n")
        if updates == 3 and not (folder / "run").exists():
            shutil.copytree(folder / "alive", folder / "run")

    execute(small(run={"hours": 1.5}), folder / "alive", [ticker(kill, 1.0)])
    assert (folder / "run" / "run.db-wal").stat().st_size > 0
    return folder / "run"


def contents(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def without(*names):
    def lose(folder):
        for name in names:
            (folder / name).unlink()

    return lose


def older(folder):
    """The file is that of a life long ago."""
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    later = [json.dumps({**last, "update": last["update"] + n}) for n in (1, 2)]
    (folder / "metrics.jsonl").write_text("\n".join([*lines, *later, ""]))


@pytest.mark.parametrize(
    "lose",
    [
        without("run.db", "run.db-wal", "run.db-shm"),
        without("run.db-wal"),
        without("run.db-wal", "run.db-shm"),
        without("run.db"),
        lambda folder: [path.write_bytes(b"") for path in folder.glob("run.db*")],
        lambda folder: (folder / "run.db").write_bytes(b""),
        lambda folder: [path.write_bytes(b"no database " * 999) for path in folder.glob("run.db*")],
        older,
    ],
    ids=["all", "wal", "wal and shm", "db", "empty", "empty db", "garbage", "older"],
)
@pytest.mark.parametrize("ended", [False, True])
def test_a_run_whose_database_is_lost_is_refused_and_stays_as_it_is(killed_run, tmp_path, lose, ended):
    folder = Path(shutil.copytree(killed_run, tmp_path / "run"))
    if ended:
        (folder / "summary.json").write_text(json.dumps({"interrupted": True}))
    lose(folder)
    before = contents(folder)
    with pytest.raises(ConfigError, match="nothing was changed"):
        resume(folder, ["run.hours=2.0"])
    with pytest.raises(ConfigError):
        execute(small(), folder)
    assert contents(folder) == before


def test_where_a_run_begins_nothing_of_another_is_removed(tmp_path):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / "mine").write_text("kept")
    with pytest.raises(ConfigError, match="holds checkpoints, which a run writes itself"):
        execute(small(), tmp_path)
    assert contents(tmp_path) == {"checkpoints/mine": b"kept"}


REFUSED = {
    "run.seed": 7,
    "rollout.num_envs": 3,
    "rollout.routing.rule": "round_robin",
    "cluster.env.profile": "osworld",
}


@pytest.mark.parametrize(("key", "value"), REFUSED.items())
def test_a_setting_that_the_stored_state_does_not_fit_is_refused_at_once(killed_run, tmp_path, key, value):
    folder = Path(shutil.copytree(killed_run, tmp_path / "run"))
    change(folder, {key: value})
    before = contents(folder)
    with pytest.raises(ConfigError, match=rf"{key} = {value!r}, and .* began with .*A resume may change"):
        resume(folder)
    assert contents(folder) == before


def change(folder, settings):
    (folder / "config.toml").write_text(to_toml(with_settings(load(folder / "config.toml"), settings)))


ALLOWED = [
    {"run.hours": 1.4},
    {"run.updates": 4},
    {"run.fail_on_alarm": True},
    {"trainer.checkpoint_every_updates": 2},
]


@pytest.mark.parametrize("settings", ALLOWED, ids=str)
def test_a_setting_that_may_change_takes_effect(killed_run, tmp_path, settings):
    folder = Path(shutil.copytree(killed_run, tmp_path / "run"))
    change(folder, settings)
    wanted = load(folder / "config.toml")
    run, result = resume(folder)
    assert load(folder / "config.toml") == wanted
    assert run.name == wanted.name
    if wanted.run.updates is not None:
        assert run.summary["total_updates"] == wanted.run.updates
    elif result.alarm is None:
        assert run.summary["simulated_hours"] == pytest.approx(wanted.run.hours, rel=0.02)


def test_a_life_that_was_killed_before_it_went_on_is_told_of(tmp_path, monkeypatch):
    execute(small(), tmp_path / "run", [ticker(interrupting(500.0))])

    def killed(*_, **__):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("dartsim.run.resume.configured_model", killed)  # the model is being read
        with pytest.raises(KeyboardInterrupt):
            resume(tmp_path / "run")
    run, _ = resume(tmp_path / "run")
    first, second = run.summary["lives"]
    assert first == second, "the first of them did nothing"


def test_a_run_that_another_process_finished_meanwhile_is_left_alone(tmp_path, monkeypatch):
    def meanwhile(found, path):
        with monkeypatch.context() as patch:
            patch.setattr("dartsim.run.execute.configured_model", lambda *_: None)
            execute(found.config, path)

    monkeypatch.setattr("dartsim.run.execute.configured_model", meanwhile)
    with pytest.raises(ConfigError, match="holds a run already"):
        execute(small(), tmp_path / "run")
    assert trained_set(tmp_path / "run" / "run.db")


def test_ctrl_c_costs_no_more_than_a_crash(tmp_path):
    """What is interrupted goes on as if it had crashed there: the same set is trained."""
    config = configured("coupled", 2, run={"updates": 5, "hours": 24.0})
    _, whole = execute(config, tmp_path / "whole")
    during = whole.recorder.updates[2].time - 30.0  # an update takes a minute
    _, stopped = execute(config, tmp_path / "stopped", [ticker(interrupting(during), 1.0)])
    assert stopped.interrupted
    before = json.loads((tmp_path / "stopped" / "summary.json").read_text())
    told = twice_told(tmp_path / "stopped")
    run, result = resume(tmp_path / "stopped")
    assert run.summary["lives"] == [told]
    assert told["returned"] == 8, "the batch that was being trained"
    assert not result.interrupted
    assert before["total_updates"] < run.summary["total_updates"] == 5
    assert run.summary["simulated_hours"] > before["simulated_hours"]
    assert trained_set(tmp_path / "stopped" / "run.db") == trained_set(tmp_path / "whole" / "run.db")


def stays(run, until):
    """Return what each part did up to a time: (state, start, end), neighbors of the same state as one."""
    found = {}
    for population, segments in enumerate(read_segments(run / "segments.bin", until=until)):
        for part, state, start, end in sorted(segments, key=lambda segment: segment[2]):
            kept = found.setdefault((population, part), [])
            if kept and kept[-1][0] == state:
                start = kept.pop()[1]
            kept.append((state, start, end))
    assert all(before[2] == after[1] for kept in found.values() for before, after in pairwise(kept))
    return found


def test_the_stays_and_the_alarms_of_all_lives_are_shown(tmp_path, monkeypatch):
    monkeypatch.setattr("dartsim.observe.alarm_rules.DISK_FREE_GIB", 1e9)
    config = small(run={"hours": 0.4, "max_segments": 60_000})
    execute(config, tmp_path / "run", [ticker(interrupting(700.0), 1.0)])
    before = stays(tmp_path / "run", 690.0)
    alarm = json.loads((tmp_path / "run" / "summary.json").read_text())["alarms"]
    run, _ = resume(tmp_path / "run")
    assert stays(run.path, 690.0) == before
    assert [found["name"] for found in run.summary["alarms"]] == ["disk_near_full"]
    assert run.summary["alarms"][0]["raised_seconds"] == alarm[0]["raised_seconds"] < 700.0
    assert run.summary["alarms"][0]["cleared_seconds"] is None, "it still holds, and is no second alarm"


@pytest.mark.parametrize("mended", [True, False])
def test_an_alarm_of_an_earlier_life_ends_a_strict_run_only_if_it_still_holds(tmp_path, monkeypatch, mended):
    """Its disk was nearly full; somebody made room, or nobody did."""
    strict = {"run": {"fail_on_alarm": True}}
    monkeypatch.setattr("dartsim.observe.alarm_rules.DISK_FREE_GIB", 1e9)
    run, result = execute(small(**strict), tmp_path / "run")
    assert result.alarm == run.summary["ended_by_alarm"] == "disk_near_full"
    ended = run.summary["simulated_hours"]
    assert ended < 0.1
    if mended:
        monkeypatch.setattr("dartsim.observe.alarm_rules.DISK_FREE_GIB", 0.0)
    run, result = resume(tmp_path / "run")
    assert [alarm["name"] for alarm in run.summary["alarms"]] == ["disk_near_full"], "what was raised stays"
    if mended:
        assert result.alarm is run.summary["ended_by_alarm"] is None
        assert run.summary["simulated_hours"] == pytest.approx(0.4, rel=0.05)
    else:
        assert result.alarm == "disk_near_full"
        assert run.summary["simulated_hours"] < ended + 0.1


@pytest.mark.parametrize(("desktops", "synchronous"), [("sim", 1), ("mock", 1), ("desktop", 2)])
def test_only_what_booted_desktops_did_is_written_through_to_the_disk(tmp_path, desktops, synchronous):
    tasks = "mock" if desktops == "sim" else desktops
    wanted = [f"backend.desktops={desktops}", f"tasks.source={tasks}"]
    config = load("tiny", overrides=[*wanted, "tasks.held_out=0", "run.target_success=none"])
    with closing(store := open_store(config, tmp_path)):
        assert store.database.execute("PRAGMA synchronous").fetchone() == (synchronous,)


# ---- a model


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of the tiny model that was interrupted after some updates."""
    pytest.importorskip("torch", reason="needs the extra `train`")
    folder = tmp_path_factory.mktemp("tiny") / "run"
    config = load("tiny", overrides=[*TINY, "run.updates=2"])
    execute(config, folder)
    text = (folder / "config.toml").read_text()
    (folder / "config.toml").write_text(text.replace("updates = 2\n", "updates = 4\n", 1))
    (folder / "summary.json").unlink()  # as if it had been killed before its end
    return folder


def copied(stopped, tmp_path):
    return Path(shutil.copytree(stopped, tmp_path / "run"))


def tear(folder):
    """Cut the last byte off the newest checkpoint's weights."""
    (weights,) = (folder / "checkpoints" / "update-00000002" / "checkpoint" / "parts").glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1])


def test_a_model_goes_on_from_its_checkpoint(stopped, tmp_path):
    run, result = resume(copied(stopped, tmp_path))
    assert run.summary["total_updates"] == 4
    assert run.summary["lives"][0]["from_update"] == 2
    assert sorted(path.name for path in (run.path / "checkpoints").iterdir()) == ["update-00000003", "update-00000004"]
    learner = json.loads((run.path / "checkpoints" / "update-00000004" / "checkpoint" / "learner.json").read_text())
    assert learner["updates"] == 4
    assert [record.update for record in result.recorder.updates] == [1, 2, 3, 4]


def test_a_run_that_had_reached_its_target_when_it_was_killed_only_writes_its_end(stopped, tmp_path):
    folder = copied(stopped, tmp_path)
    text = (folder / "config.toml").read_text()
    assert 'target_success = "none"' in text
    text = text.replace('target_success = "none"', "target_success = 0.9")
    text = text.replace('every_updates = "none"', "every_updates = 2", 1)
    (folder / "config.toml").write_text(text)
    *before, last = (json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines())
    last["metrics"]["held_out/success_rate"] = 0.95
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (*before, last)))
    run, _ = resume(folder)
    assert run.summary["total_updates"] == 2
    with pytest.raises(ConfigError, match=r"run\.updates"):
        resume(folder)
    assert resumable(folder, ["run.target_success=0.96"]).run.target_success == 0.96
    longer, _ = resume(folder, ["run.updates=3"])
    assert longer.summary["total_updates"] == 3


def test_a_torn_checkpoint_costs_its_update_only(stopped, tmp_path, caplog):
    folder = copied(stopped, tmp_path)
    tear(folder)
    run, _ = resume(folder)
    assert run.summary["lives"][0]["from_update"] == 1
    assert run.summary["lives"][0]["undone_updates"] == 1
    assert len(run.summary["lives"][0]["torn_checkpoints"]) == 1
    assert "the one before it is taken" in caplog.text
    assert run.summary["total_updates"] == 4
    lines = (folder / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["update"] for line in lines] == [1, 2, 3, 4]


def test_a_crash_while_it_goes_on_costs_nothing_more(stopped, tmp_path):
    """Killed between the recovery of the store, which is written at once, and that of the scheduler."""
    folder = copied(stopped, tmp_path)
    tear(folder)
    returned = []
    for _ in range(2):
        store = open_store(resumable(folder), folder)
        resume_point = read_resume_point(store, folder)
        store.close()
        returned.append(resume_point.as_json()["returned"])
        assert resume_point.recovered.undone == (2,)
        unreadable = resume_point.restored.untrained.keys() - resume_point.restored.trajectories.keys()
        assert len(unreadable) < len(resume_point.restored.untrained)
    run, result = resume(folder)
    counts = result.recorder.counts
    assert returned[0] == returned[1] == run.summary["lives"][0]["returned"] > 0
    assert run.summary["lives"][0]["undone_updates"] == counts["undone_updates"] == 1
    assert counts["dropped/lost"] == len(unreadable)
    dropped = sum(number for name, number in counts.items() if name.startswith("dropped/"))
    assert counts["trained_trajectories"] + dropped == counts["attempts"]


def test_a_model_in_real_time_goes_on(tmp_path):
    pytest.importorskip("torch", reason="needs the extra `train`")
    backend = {"desktops": "mock", "workers": "local", "learner": "local"}
    config = from_tree(merge(load("tiny", overrides=[*TINY, "run.updates=1"]).model_dump(), {"backend": backend}))
    first, _ = execute(config, tmp_path / "run")
    assert first.summary["total_updates"] == 1
    run, _ = resume(tmp_path / "run", ["run.updates=2"], more_figures=bounds)
    assert run.summary["total_updates"] == 2
    assert run.summary["simulated_hours"] > first.summary["simulated_hours"]
    assert run.summary["bound_trained_turns_per_minute"] is None, "the modeled cluster binds nobody"
