"""``dartsim eval``: success of a policy on tasks, with a run's own desktops, engines and rollout."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dartsim.cli.console import TextConsole, errors, result, table, write_json
from dartsim.cli.options import EVALUATION, Backend, Json, Out, Overrides, Workers, backend_overrides, new_folder
from dartsim.cli.signals import report_interrupt
from dartsim.core.errors import ConfigError

if TYPE_CHECKING:
    from dartsim.config import Config
    from dartsim.observe.rundir import RunDir


def evaluate(
    target: Annotated[
        Path | None,
        typer.Argument(metavar="RUN|CONFIG", help="A finished run, to evaluate its model; a preset; or a TOML file."),
    ] = None,
    model: Annotated[
        str | None, typer.Option(help="A model's folder; with --endpoint: the model's name there.")
    ] = None,
    endpoint: Annotated[
        str | None,
        typer.Option(metavar="URL", help="An OpenAI-compatible endpoint; its key is in OPENAI_API_KEY."),
    ] = None,
    task_list: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An OSWorld list, beside its folder examples/.")
    ] = None,
    tasks: Annotated[int | None, typer.Option(min=2, help="Number of tasks; default: as configured.")] = None,
    attempts: Annotated[
        int | None,
        typer.Option(min=1, help="Attempts at each task, for pass@k; default: trainer.evaluation.attempts_per_task."),
    ] = None,
    steps: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Step budget, one pass for each; repeatable. Default: rollout.max_turns."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(min=0.0, help="Sampling temperature; 0 is greedy; default: policy.temperature.")
    ] = None,
    backend: Backend = None,
    workers: Workers = None,
    overrides: Overrides = None,
    keep: Annotated[
        Path | None,
        typer.Option(
            "--keep-successes", metavar="POOL", help="Also write the successes as a pool that a run can start with."
        ),
    ] = None,
    results: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="DIR",
            help="Make no attempts: keep other agents' successes from OSWorld's result directory.",
        ),
    ] = None,
    rescore: Annotated[
        bool, typer.Option("--rescore", help="Make no attempts: score RUN's stored attempts again, and compare.")
    ] = False,
    out_folder: Out = None,
    json_file: Json = None,
) -> None:
    r"""Measure the success rate of a model.

    The model is that of a run, of a folder, or behind an endpoint (whose key comes from OPENAI_API_KEY). It attempts
    the held-out tasks or, where there are none or its successes are kept, the training tasks. Attempts run as in
    training, on any backend. Each step budget is a separate pass. Results are in the layout that OSWorld's
    show_result.py reads: its result_dir is OUT/steps-N/attempt-K. A masked attempt is reported with its cause, and
    counts neither as success nor as failure. The same command with the same --out continues an interrupted evaluation,
    and repeats masked attempts.

    A run starts with kept successes if `curation.pool.file = "POOL"`. A model's successes keep its log-probabilities;
    those of other agents get them from the initial weights of the run.

    Exit code 0: every attempt has a score (with --rescore: the same); 1: some are masked (differ); 2: the request was
    wrong; 130: interrupted.

    Examples:
        dartsim eval runs/errands-seed0 --tasks 512 --json -
        dartsim eval osworld-8gpu --model models/UI-TARS-1.5-7B \
          --task-list OSWorld/evaluation_examples/test_nogdrive.json \
          --steps 15 --steps 50 --steps 100 --temperature 0
        dartsim eval osworld-8gpu --endpoint https://api.example.com/v1 \
          --model some-model --attempts 4 --set rollout.num_envs=16
        dartsim eval runs/errands-seed0 --attempts 8 --keep-successes runs/pool
        dartsim eval osworld-8gpu --results results/pyautogui \
          --keep-successes runs/pool
        dartsim eval runs/desktop-seed0 --rescore
    """
    from dartsim.observe.rundir import CONFIG, read_run

    if rescore:
        _rescore(target, json_file)
        return
    if keep is not None and keep.exists() and not results:
        raise ConfigError(f"{keep} already exists; name another folder with --keep-successes")
    run = read_run(target) if target is not None and target.is_dir() else None
    file = target if run is None else run.path / CONFIG
    if results:
        _import(_load(file, overrides or ()), results, keep, json_file)
        return
    # The preset's model is not the endpoint's; --set may name the folder of that one.
    unset = ["policy.model=none"] if endpoint is not None else []
    changes = [*unset, *backend_overrides(backend, workers), *(overrides or ()), *EVALUATION]
    given = {
        "tasks.held_out" if keep is None else "tasks.count": tasks,
        "policy.temperature": None if temperature is None else float(temperature),
        "rollout.max_turns": max(steps) if steps else None,
    }
    changes += [f"{key}={value}" for key, value in given.items() if value is not None]
    changes += _task_list(task_list) if task_list is not None else []
    config = _evaluated_config(file, [*changes, *_selected(run, model, endpoint)])
    figures = _evaluate(config, run, steps, attempts, out_folder, keep)
    write_json(figures, str(Path(figures["out"]) / "summary.json"))
    _show(figures, result(figures, json_file))
    if masked := sum(sum(budget["masked"].values()) for budget in figures["budgets"]):
        errors.say(f"{masked} attempts are masked; the same command with --out {figures['out']} makes them again")
        raise typer.Exit(1)


def _evaluate(
    config: Config,
    run: RunDir | None,
    steps: list[int] | None,
    attempts: int | None,
    out_folder: Path | None,
    keep: Path | None,
) -> dict[str, Any]:
    """Run the attempts that have no score yet, and return the figures of all."""
    from dartsim.run.evaluation_results import EvaluationFolder, EvaluationPlan, file_name
    from dartsim.run.policy_evaluation import evaluate_policy, evaluation_figures
    from dartsim.run.prepare import prepare_run

    name, fingerprint = _identity(config, run)
    version = None if run is None else run.summary["total_updates"]
    prepared = prepare_run(config, trains=False)
    plan = EvaluationPlan(
        tasks=prepared.held_out if keep is None and prepared.held_out else prepared.tasks,
        steps=sorted(set(steps or [config.rollout.max_turns])),
        attempts=attempts or config.trainer.evaluation.attempts_per_task,
    )
    served = None
    if config.backend.engine_backend.loads_weights:
        # Imported here: it needs torch.
        from dartsim.run.model import served_model

        served = served_model(config, version or 0)
    elif keep is not None:
        raise ConfigError(
            "an endpoint's replies have no tokens to train on; evaluate it, and give its --out as --results to "
            "`dartsim eval` with the model to train"
        )
    path = out_folder or new_folder(f"eval-{file_name(name)}")
    meaning = served.token_meaning(config) if served is not None and keep is not None else None
    results = EvaluationFolder(path, name, meaning)
    interrupted = f"interrupted; scored attempts are kept in {path}, and the same command with --out {path} goes on"
    with report_interrupt(interrupted), _bar() as (on_step, on_start):
        ended = evaluate_policy(prepared, plan, results, fingerprint, served=served, on_step=on_step, on_start=on_start)
    figures = {
        "model": name,
        "version": version,
        "out": str(path),
        "split": "training" if plan.tasks is prepared.tasks else "held-out",
        "temperature": config.policy.temperature,
        "interval": "95 %, Wilson, over tasks",
        **evaluation_figures(plan, ended),
    }
    if keep is not None:
        source = {"kind": "model", "name": name, "version": version, "attempts_per_task": plan.attempts}
        figures["kept_successes"] = results.write_pool(keep, plan.planned(), source)
        figures["pool"] = str(keep)
    return figures


def _import(config: Config, results: Sequence[Path], pool: Path | None, json_file: str | None) -> None:
    """Write the successes of other agents as a pool."""
    if pool is None:
        raise ConfigError("--results DIR needs --keep-successes POOL, the folder to write")
    # Imported here: it needs the extra `train`.
    from dartsim.run.imported_successes import import_successes

    with _bar() as (on_step, _):
        figures, counts = import_successes(config, results, pool, lambda done, total: on_step(done, 0, total))
    console = result(figures, json_file)
    console.say(
        f"{figures['successes']} successes in {figures['attempts']} attempts, at {figures['tasks_solved']} of "
        f"{figures['tasks']} tasks"
    )
    for reason, count in counts.refused.most_common():
        console.say(f"left out, {reason}: {count}, such as {counts.examples[reason]}")
    console.say(f'use them in a run with: curation.pool.file = "{pool}"')


def _rescore(folder: Path | None, json_file: str | None) -> None:
    """Score a run's stored attempts again, and exit with 1 if a score differs from the stored one."""
    if folder is None:
        raise ConfigError("--rescore needs the folder of a run")
    from dartsim.observe.rundir import reading
    from dartsim.run.rescore import rescore

    with reading(folder):
        scores = rescore(folder)
    compared = [score for score in scores if score.score is not None]
    differing = [score for score in compared if not score.same]
    value = {"compared": len(compared), "of": len(scores), "differing": list(map(asdict, differing))}
    console = result(value, json_file)
    if differing:
        rows = [(score.attempt, score.task, score.metric, score.stored, score.score) for score in differing]
        console.print(table(["attempt", "task", "metric", "#stored", "#now"], rows))
    console.print(f"{len(compared)} of {len(scores)} metrics scored again, {len(differing)} differ")
    if differing:
        raise typer.Exit(1)


def _show(figures: Mapping[str, Any], console: TextConsole) -> None:
    """Print the figures, a table for each budget."""
    for budget in figures["budgets"]:
        ks = list(budget["pass_at"]) if figures["attempts_per_task"] > 1 else []
        heads = ["domain", "#tasks", "#attempts", "#success", "#95 % interval", *(f"#pass@{k}" for k in ks)]
        rows = [(name, *_cells(row, ks)) for name, row in [*budget["domains"].items(), ("all", budget)]]
        made = f"{figures['model']}, {budget['steps']} steps, temperature {figures['temperature']:g}"
        console.print(table(heads, rows, f"{made}, {figures['split']} tasks"))
        if budget["masked"]:
            causes = ", ".join(f"{cause}: {count}" for cause, count in budget["masked"].items())
            console.say(f"masked, not counted: {sum(budget['masked'].values())} ({causes})")
    console.say(f"results: {figures['out']}")
    if "pool" in figures:
        number, pool = figures["kept_successes"], figures["pool"]
        console.say(f'{number} successes are kept; a run starts with them by curation.pool.file = "{pool}"')


def _cells(row: Mapping[str, Any], ks: Sequence[str]) -> list[str]:
    if row["success_rate"] is None:
        return [str(row["tasks"]), str(row["attempts"]), "–", "–", *("–" for _ in ks)]
    low, high = row["interval"]
    passed = [f"{row['pass_at'][k]['value']:.1%}" if k in row["pass_at"] else "–" for k in ks]
    return [str(row["tasks"]), str(row["attempts"]), f"{row['success_rate']:.1%}", f"{low:.1%} – {high:.1%}", *passed]


def _evaluated_config(file: Path | None, overrides: Sequence[str]) -> Config:
    """Return the configuration, without a learner and its GPUs, and for an endpoint without modeled desktops."""
    overrides = [*overrides, "rollout.lending.engines=0"]
    backend = _load(file, overrides).backend
    # Modeled desktops and engines take virtual time, as in the run, if nothing beside them is real.
    modeled = backend.desktop_backend.modeled and backend.engine_backend.modeled
    changes = [*overrides, f"backend.learner={'sim' if modeled else 'local'}"]
    config = _load(file, changes)
    if config.backend.engine_backend.loads_weights or not config.backend.desktop_backend.modeled:
        return config
    return _load(file, [*changes, "backend.desktops=mock"])  # an endpoint answers in real time


def _load(file: Path | None, overrides: Sequence[str]) -> Config:
    """Return a configuration that has a model.

    Raises:
        ConfigError: If it has none.
    """
    from dartsim.config import load

    config = load(file or "tiny", overrides=overrides)
    if config.policy.kind != "vlm":
        raise ConfigError(f"{file} has a surrogate policy: it has no model")
    return config


def _task_list(file: Path) -> list[str]:
    if not file.is_file():
        raise ConfigError(f"--task-list {file}: there is no such file; name a list such as test_nogdrive.json")
    return ["tasks.source=osworld", f"tasks.folder={file.parent}", f"tasks.list_name={file.name.removesuffix('.json')}"]


def _selected(run: RunDir | None, model: str | None, endpoint: str | None) -> list[str]:
    """Return overrides that select the policy that the command line names; none: the configuration's own."""
    if endpoint is not None:
        if run is not None or model is None:
            raise ConfigError("--endpoint URL needs --model NAME, and no run: its model is not the run's")
        kinds = ("policy.kind=vlm", "policy.grammar=ui_tars", "backend.workers=endpoint", "rollout.num_workers=1")
        return [*kinds, f"endpoint.url={json.dumps(endpoint)}", f"endpoint.model={json.dumps(model)}"]
    if run is not None:
        if model is not None:
            raise ConfigError(f"{run.path} has a model of its own; leave --model out, or name a configuration")
        if "learning" not in run.summary:
            raise ConfigError(f"{run.path} was run with a surrogate policy: it has no model to evaluate")
        model = str(run.path / "model")
    return [] if model is None else [f"policy.model={json.dumps(model)}"]


def _identity(config: Config, run: RunDir | None) -> tuple[str, str]:
    """Return the name of the policy, and an identifier of its weights.

    Names, sizes and times of a model's files identify its weights without reading them.
    """
    if not config.backend.engine_backend.loads_weights:
        return str(config.endpoint.model), f"endpoint {config.endpoint.model}"
    if config.policy.model is None:
        raise ConfigError("there is no model to evaluate: name a run's folder, --model FOLDER, or --endpoint URL")
    from hashlib import sha256

    from dartsim.run.model_folder import model_folder

    folder = model_folder(config.policy.model)
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        raise ConfigError(
            f"{folder} holds no model (config.json, *.safetensors); name a folder as transformers saves it"
        )
    found = [(file.name, file.stat().st_size, file.stat().st_mtime_ns) for file in files]
    return (folder if run is None else run.path).resolve().name, sha256(repr(found).encode()).hexdigest()[:16]


@contextmanager
def _bar() -> Iterator[tuple[Callable[[int, int, int], None], Callable[[str, int, int], None]]]:
    """Show a bar, and yield the functions that update it."""
    from dartsim.lab.progress import progress_bar

    with progress_bar(errors) as progress:
        bar = progress.add_task("attempts", total=None, live="")

        def on_step(scored: int, masked: int, total: int) -> None:
            named = f"attempts, {masked} masked" if masked else "attempts"
            progress.update(bar, completed=scored, total=total, description=named)

        yield on_step, lambda what, done, total: progress.update(bar, description=f"{what}: {done} of {total}")
