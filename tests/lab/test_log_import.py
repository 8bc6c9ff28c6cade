"""Logs of other trainers as tables: what the simulator writes comes back, and contradictions are refused."""

import json
import math
from dataclasses import dataclass
from pprint import pformat

import numpy as np
import pytest
import tomli_w
from tensorboardX import SummaryWriter

from dartsim.core.errors import ConfigError
from dartsim.lab.log_import import NAMES, import_logs, lognormal, spread_of
from dartsim.lab.prediction import PRIORS
from dartsim.lab.published import check_table, read_table, setup
from dartsim.lab.published_runs import run_config
from dartsim.lab.virtual import with_settings
from dartsim.observe import Instrument
from dartsim.observe.states import TrainerState
from dartsim.run.prepare import prepare
from dartsim.run.run_prepared import run_prepared

TRUE = {name: 0.8 * prior.median for name, prior in PRIORS["run"].items()}
MACHINES = {"gpu": "H100", "trainer": 2, "rollout": 2}
WORKLOAD = {"groups": 8, "group_size": 8, "prompt_tokens": 300, "reply_tokens": 600.0, "reply_spread": 0.6}
TREE = {
    "id": "t",
    "title": "a table",
    "source": "a test",
    "machines": MACHINES,
    "model": {"name": "Qwen3-4B"},
    "workload": {**WORKLOAD, "longest": 8192},
    "scheduler": {"preset": "coupled"},
    "rows": [{"name": "a"}],
}
GIVEN = {"machines": MACHINES, "model": {"name": "Qwen3-4B"}, "workload": {"groups": 8, "group_size": 8}}


@dataclass
class Step:
    """What a trainer knows of one step, seconds and tokens."""

    number: int
    seconds: float
    update: float
    wait: float
    sync: float
    replies: list[int]
    prompts: list[int]

    @property
    def tokens(self):
        return sum(self.replies) + sum(self.prompts)


class Watch(Instrument):
    """Collects the steps of a simulated run."""

    def run_started(self, recorder):
        self.recorder, self.steps, self.before = recorder, [], (0.0, (0.0,) * len(TrainerState))

    def groups_trained(self, update, groups):
        turns = [turn for group in groups for each in group.trajectories for turn in each.turns]
        self.replies = [turn.reply.response_tokens for turn in turns]
        self.prompts = [turn.reply.prompt_tokens for turn in turns]

    def update_finished(self, record):
        trainer = self.recorder.measure().trainer
        passed = [after - before for after, before in zip(trainer, self.before[1], strict=True)]
        waited = passed[TrainerState.WAIT_DATA] + passed[TrainerState.WAIT_PUBLISH]
        self.steps.append(
            Step(
                record.update,
                record.time - self.before[0],
                passed[TrainerState.TRAINING],
                waited,
                passed[TrainerState.WAIT_SYNC],
                self.replies,
                self.prompts,
            )
        )
        self.before = record.time, trainer


def simulated(scheduler, seed, tree=TREE):
    table = check_table({**tree, "scheduler": scheduler}, "t")
    row = setup(table, table.rows[0])
    watch = Watch()
    config = with_settings(run_config(row, TRUE, seed), {"run.updates": 40})
    run_prepared(prepare(config), instruments=[watch])
    return watch.steps


@pytest.fixture(scope="module")
def coupled():
    return simulated({"preset": "coupled"}, 1)


@pytest.fixture(scope="module")
def decoupled():
    return simulated({"preset": "verl-partial", "ahead": 2.0}, 1)


def verl(step):
    return {
        "training/global_step": step.number,
        "perf/time_per_step": step.seconds,
        "perf/total_num_tokens": step.tokens,
        "timing_s/gen": step.wait,
        "timing_s/update_actor": 0.9 * step.update,
        "timing_s/old_log_prob": 0.1 * step.update,
        "timing_s/update_weights": step.sync,
        "timing_per_token_ms/gen": 0.1,
        "response_length/mean": np.mean(step.replies),
        "response_length/max": max(step.replies),
        "response_length/clip_ratio": 0.0,
        "prompt_length/mean": np.mean(step.prompts),
        "critic/score/mean": 0.5,
    }


def areal(step):
    lengths = np.add(step.replies, step.prompts)
    return {
        "timeperf/rollout": step.seconds - step.update - step.sync,
        "timeperf/train_step": step.update,
        "timeperf/update_weights": step.sync,
        "ppo_actor/n_seqs": len(step.replies),
        "ppo_actor/seq_len/avg": lengths.mean(),
        "ppo_actor/prompt_len/avg": np.mean(step.prompts),
    }


def prime_rl(step):
    return {
        "time/step": step.seconds,
        "time/wait_for_batch": step.wait,
        "time/forward_backward": step.update,
        "time/broadcast_weights": step.sync,
    }


def prime_rl_orchestrator(step):
    return {
        "progress/input_tokens": sum(step.prompts),
        "progress/output_tokens": sum(step.replies),
        "progress/tokens": step.tokens,
        "time/step": 3.0,
        "train/agg/effective/num_input_tokens/mean": np.mean(step.prompts),
        "train/agg/effective/num_output_tokens/mean": np.mean(step.replies),
        "train/agg/effective/num_output_tokens/max": max(step.replies),
        "train/agg/effective/num_turns/mean": 1.0,
    }


def skyrl(step):
    return {
        "timing/step": step.seconds,
        "timing/generate": step.wait,
        "timing/train_critic_and_policy": step.update,
        "timing/sync_weights": step.sync,
        "generate/avg_num_tokens": np.mean(step.replies),
        "generate/std_num_tokens": np.std(step.replies),
        "generate/max_num_tokens": max(step.replies),
    }


def slime(step):
    return {
        "perf/step_time": step.seconds,
        "perf/train_time": step.update,
        "perf/train_wait_time": step.seconds - step.update,
        "perf/update_weights_time": step.sync,
        "rollout/response_len/mean": np.mean(step.replies),
        "rollout/response_len/max": max(step.replies),
        "rollout/total_lengths": np.mean(step.prompts) + np.mean(step.replies),
    }


def trl(step):
    return {
        "perf/step_s": step.seconds,
        "perf/rollout_wait_s": step.wait,
        "perf/fwd_bwd_s": step.update,
        "perf/weight_sync_s": step.sync,
        "completions/mean_length": np.mean(step.replies),
        "completions/max_length": max(step.replies),
        "batch/samples_per_step": len(step.replies),
    }


def plain(values):
    return {name: float(value) for name, value in values.items()}


def as_jsonl(file, steps, *metrics):
    lines = [json.dumps({"step": step.number, **plain(of(step))}) for step in steps for of in metrics]
    file.write_text("\n".join(lines) + "\n")


def as_console(file, steps, metrics):
    """Write what verl's ``LocalLogger``, AReaL's table, and the loggers of SkyRL and slime print."""
    texts = {
        verl: lambda n, v: f"step:{n} - " + " - ".join(f"{k}:np.float64({x!r})" for k, x in v.items()),
        areal: lambda n, v: f"Epoch 1/1 Step {n}/40 Train step {n}/40 done.\n" + _table(v),
        skyrl: lambda n, v: f"2026-01-01 INFO Step {n}: \n{pformat({k: f'{x:.6f}' for k, x in v.items()})}",
        slime: lambda n, v: f"[2026-01-01] x.py:1 - perf {n}: {v}",
    }
    lines = [f"(Runner pid=7) {texts[metrics](step.number, plain(metrics(step)))}\nother lines" for step in steps]
    file.write_text("\n".join(lines) + "\n")


def _table(values):
    cells = [f"│ {name} │ {value:.4e} " for name, value in values.items()]
    return "\n".join("".join(cells[place : place + 4]) + "│" for place in range(0, len(cells), 4))


def as_tensorboard(folder, steps, metrics):
    with SummaryWriter(str(folder)) as writer:
        time = 1.8e9
        for step in steps:
            time += step.seconds
            for name, value in plain(metrics(step)).items():
                writer.add_scalar(name, value, step.number, walltime=time)


def as_trainer_state(file, steps, metrics):
    file.write_text(json.dumps({"log_history": [{"step": s.number, **plain(metrics(s))} for s in steps]}))


def write(folder, framework, form, steps):
    """Write a log in one form, and return its files."""
    metrics = {"verl": verl, "areal": areal, "skyrl": skyrl, "slime": slime, "trl": trl, "prime-rl": prime_rl}[
        framework
    ]
    file = folder / "log"
    if framework == "prime-rl":
        as_jsonl(file, steps, metrics)
        as_jsonl(folder / "orchestrator.jsonl", steps, prime_rl_orchestrator)
        return [file, folder / "orchestrator.jsonl"]
    {"console": as_console, "jsonl": as_jsonl, "tensorboard": as_tensorboard, "state": as_trainer_state}[form](
        file, steps, metrics
    )
    return [file]


CASES = [
    ("verl", "console"),
    ("verl", "jsonl"),
    ("verl", "tensorboard"),
    ("areal", "console"),
    ("areal", "tensorboard"),
    ("prime-rl", "jsonl"),
    ("skyrl", "console"),
    ("skyrl", "tensorboard"),
    ("slime", "console"),
    ("trl", "state"),
    ("trl", "tensorboard"),
]


@pytest.mark.parametrize(("framework", "form"), CASES)
def test_what_the_simulator_writes_gives_its_parameters_back(tmp_path, coupled, decoupled, framework, form):
    is_async = framework in ("areal", "prime-rl", "trl")
    steps = decoupled if is_async else coupled
    given = {**GIVEN, "workload": GIVEN["workload"] | ({"prompt_tokens": 300} if framework in ("skyrl", "trl") else {})}
    table, _ = import_logs(write(tmp_path, framework, form, steps), framework, given)
    found = table["workload"]
    for name in ("groups", "group_size", "prompt_tokens", "reply_tokens"):
        assert found[name] == pytest.approx(WORKLOAD[name], rel=0.05), name
    if framework != "areal":  # has no longest reply; where only that is known, 39 maxima have an error of 4 %
        error = 0.05 if framework == "skyrl" else 0.12
        assert found["reply_spread"] == pytest.approx(WORKLOAD["reply_spread"], rel=error)
    measured = {each["figure"]: each["value"] for each in table["rows"][0]["figures"]}
    for name in ("seconds", "update", "wait", "sync"):
        mean = np.mean([getattr(step, name) for step in steps[1:]])
        if mean > 1.0 and (framework, name) != ("areal", "wait"):
            assert measured[f"{name.removesuffix('seconds') or 'step'}_seconds"] == pytest.approx(mean, rel=0.02), name


@pytest.mark.parametrize(("framework", "form", "seed"), [("verl", "console", 1), ("trl", "state", 1)])
def test_an_imported_file_repeats_the_run(tmp_path, coupled, decoupled, framework, form, seed):
    steps = decoupled if framework == "trl" else coupled
    given = {**GIVEN, "workload": {"groups": 8, "group_size": 8, "prompt_tokens": 300}}
    table, _ = import_logs(write(tmp_path, framework, form, steps), framework, given)
    again = simulated(table["scheduler"], seed, table)
    for name, error in (("seconds", 0.1), ("update", 0.05)):  # a step waits for its longest reply: 4 % for a mean of 39
        means = [np.mean([getattr(step, name) for step in each[1:]]) for each in (again, steps)]
        assert means[0] == pytest.approx(means[1], rel=error), name


def test_updates_between_two_syncs_are_counted(tmp_path, coupled):
    steps = coupled
    lines = [{"step": s.number, "data": plain(verl(s)) | {"training/global_step": 4 * s.number}} for s in steps]
    for line in lines:
        line["data"]["fully_async/count/current_param_version"] = 1
    (file := tmp_path / "log").write_text("\n".join(map(json.dumps, lines)))
    table, _ = import_logs([file], "verl", {**GIVEN, "workload": {"groups": 2, "group_size": 8}})
    assert table["scheduler"] == {"preset": "verl-partial", "ahead": 2.0, "publish_every": 4, "updates_per_step": 4}


PROMETHEUS = "# HELP vllm:x\n# TYPE vllm:request_generation_tokens histogram\n"
BOUNDS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000)


def test_spreads_of_replies_come_from_histograms_maxima_and_cuts(tmp_path, coupled):
    draws = np.random.default_rng(0).lognormal(6.0, 0.7, 20_000)
    text = "".join(
        f'vllm:request_generation_tokens_bucket{{engine="{engine}",le="{bound}"}} {(draws <= float(bound)).sum()}\n'
        for engine in (0, 1)
        for bound in (*BOUNDS, "+Inf")
    )
    (tmp_path / "metrics.prom").write_text(PROMETHEUS + text)
    table, measured = import_logs(
        [*write(tmp_path, "verl", "jsonl", coupled), tmp_path / "metrics.prom"], "verl", GIVEN
    )
    assert table["workload"]["reply_spread"] == pytest.approx(draws.std() / draws.mean(), rel=0.05)
    assert any("vLLM" in sentence for sentence in measured)
    assert "reply_spread" not in table["assumed"]
    cap = np.quantile(draws, 0.97)
    assert spread_of(np.minimum(draws, cap).mean() / cap, 0.03) == pytest.approx(draws.std() / draws.mean(), rel=0.05)
    counts = {bound: float((draws <= bound).sum()) for bound in (*BOUNDS, math.inf)}
    assert lognormal(counts)[0] == pytest.approx(draws.mean(), rel=0.05)
    with pytest.raises(ConfigError, match="too few requests"):
        lognormal({100.0: 5.0, math.inf: 5.0})


def damaged(lines, kind):
    """Return a log's lines with a contradiction."""
    records = [json.loads(line) for line in lines]
    if kind == "two runs":
        return lines + lines[3:8]
    if kind == "resumed":
        return [*lines, json.dumps({**records[12], "perf/time_per_step": 1.0}), *lines[13:]]
    if kind == "cut line":
        return [*lines[:-1], lines[-1][: len(lines[-1]) // 2]]
    if kind == "gap":
        return lines[:10] + lines[20:]
    if kind == "parts in ms":
        return [json.dumps({**each, "timing_s/update_actor": 1000 * each["timing_s/update_actor"]}) for each in records]
    if kind == "all in ms":
        times = [name for name in records[0] if name.startswith(("timing_s/", "perf/time"))]
        return [json.dumps({**each, **{name: 1000 * each[name] for name in times}}) for each in records]
    if kind == "too fast":
        times = [name for name in records[0] if name.startswith(("timing_s/", "perf/time"))]
        return [json.dumps({**each, **{name: each[name] / 1000 for name in times}}) for each in records]
    if kind == "clock":
        return [json.dumps({**each, "time": 1.8e9 + 2.0 * number}) for number, each in enumerate(records)]
    if kind == "longer than the longest":
        return [json.dumps({**each, "response_length/max": 10.0}) for each in records]
    if kind == "grows":
        many = [{**records[n % 38], "step": n, "training/global_step": n} for n in range(1, 400)]
        return [json.dumps({**each, "response_length/mean": 400.0 + each["step"]}) for each in many]
    assert kind == "no step"
    return [json.dumps({name: value for name, value in each.items() if name != "step"}) for each in records]


@pytest.mark.parametrize(
    ("kind", "said"),
    [
        ("two runs", "steps go back from 40 to 4"),
        ("resumed", "steps go back from 40 to 13"),
        ("cut line", "line 40 is no JSON: the file is cut"),
        ("gap", "step 10 is followed by 21: the log is cut"),
        ("parts in ms", "milliseconds for seconds"),
        ("all in ms", "milliseconds for seconds"),
        ("too fast", "of the GPUs' peak"),
        ("clock", "was logged every 2 s: milliseconds"),
        ("longer than the longest", "tokens in the mean, 10 at most"),
        ("grows", "replies grow.*--steps 200:399"),
        ("no step", "line 1 has no number of a step"),
    ],
)
def test_a_log_that_contradicts_itself_is_refused_in_one_sentence(tmp_path, coupled, kind, said):
    as_jsonl(file := tmp_path / "log", coupled, verl)
    file.write_text("\n".join(damaged(file.read_text().splitlines(), kind)))
    with pytest.raises(ConfigError, match=said):
        import_logs([file], "verl", GIVEN)


def test_other_files_that_contradict_themselves_are_refused(tmp_path, coupled):
    steps = coupled
    as_console(file := tmp_path / "log", steps, verl)
    file.write_text(file.read_text()[:-300])
    with pytest.raises(ConfigError, match="the file is cut"):
        import_logs([file], "verl", GIVEN)
    as_tensorboard(tmp_path / "board", steps, verl)
    (events,) = (tmp_path / "board").iterdir()
    events.write_bytes(events.read_bytes()[:-20])
    with pytest.raises(ConfigError, match=r"record .* is incomplete: the file is cut"):
        import_logs([tmp_path / "board"], "verl", GIVEN)
    for name, factor in (("a", 1.0), ("b", 1.1)):
        as_jsonl(tmp_path / name, steps, lambda step, factor=factor: {**verl(step), "timing_s/gen": factor * step.wait})
    with pytest.raises(ConfigError, match=r"timing_s/gen of step 1 is .*two runs"):
        import_logs([tmp_path / "a", tmp_path / "b"], "verl", GIVEN)
    with pytest.raises(ConfigError, match="64 attempts in 1 updates"):
        import_logs([tmp_path / "a"], "verl", {**GIVEN, "workload": {"groups": 64, "group_size": 8}})


def test_what_a_log_does_not_say_must_be_given(tmp_path, coupled):
    files = write(tmp_path, "skyrl", "console", coupled)
    with pytest.raises(ConfigError, match=r"--set workload\.prompt_tokens"):
        import_logs(files, "skyrl", GIVEN)
    with pytest.raises(ConfigError, match=r"--set workload\.groups"):
        import_logs(files, "skyrl", {**GIVEN, "workload": {"prompt_tokens": 300}})
    with pytest.raises(ConfigError, match=r"\[machines\]"):
        import_logs(files, "skyrl", {"workload": {"prompt_tokens": 300, "groups": 8}})
    with pytest.raises(ConfigError, match="0 steps have perf"):
        import_logs(files, "verl", GIVEN)


def test_every_framework_names_its_source_and_what_a_step_needs():
    for name, names in NAMES.items():
        assert " " in names["source"], name
        assert names["step_seconds"], name
        assert names["update_seconds"], name
    tomli_w.dumps(dict(NAMES))


def test_the_command_writes_a_table_that_predict_reads(dartsim, capsys, tmp_path, monkeypatch, coupled):
    monkeypatch.chdir(tmp_path)
    as_console(tmp_path / "verl.log", coupled, verl)
    settings = [f"--set={each}" for each in ("machines.gpu=H100", "machines.trainer=2", "machines.rollout=2")]
    arguments = ("cluster", "import", "verl.log", "--from", "verl", *settings, "--set=model.name=Qwen3-4B")
    assert dartsim(*arguments) == 0
    said = capsys.readouterr().out
    assert "measured: step_seconds" in said
    assert "assumed: Groups have 8 attempts" in said
    (tmp_path / "run.toml").write_text(
        (tmp_path / "run.toml").read_text() + '\n[[rows]]\nname = "more engines"\nmachines = { rollout = 4 }\n'
    )
    table = read_table(tmp_path / "run.toml")
    assert [setup(table, row).machines.rollout for row in table.rows] == [2, 4]
    assert table.fit == ["measured"]
    assert dartsim(*arguments, "--steps", "1-9") == 2
    assert dartsim("cluster", "import", "verl.log", "--from", "csv", "--steps", "1:9") == 2
    for option in (("--column", "step"), ("--unit", "ms")):
        assert dartsim("cluster", "import", "verl.log", "--from", "verl", *option) == 2
