"""A table of a published or own run as a TOML file: machines, model, workload, scheduler, rows, what is fitted.

Each row changes some of the file's settings and says what was measured. ``dartsim.lab.prediction`` fits and predicts.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, ValidationError

from dartsim.config import preset
from dartsim.config.settings import merge
from dartsim.core.errors import ConfigError, no_such
from dartsim.core.section import Positive, Seconds, Section
from dartsim.lab.roofline import MODELS, SHEETS, GpuSheet, ModelSize

FIGURES: Mapping[str, str] = {
    "step_seconds": "time of a step",
    "wait_seconds": "the trainer's wait for data, per step",
    "update_seconds": "updates, per step",
    "sync_seconds": "weight sync that the trainer waits for, per step; kind sync: one sync",
    "total_hours": "hours of a number of steps",
    "total_seconds": "seconds of a number of steps",
    "relative_time": "time of a step over that of the row `relative_to`; it cannot be fitted",
}
"""What a row may have measured."""


class Machines(Section):
    """GPUs, either split into ``trainer`` and ``rollout``, or ``colocated``: engines and trainer take turns on them."""

    gpu: str = Field(description="Type of the GPUs, as data sheets name it.")
    trainer: Positive | None = Field(None, description="GPUs of the trainer.")
    rollout: Positive | None = Field(None, description="GPUs of engines.")
    colocated: Positive | None = Field(None, description="GPUs of both.")
    engine_gpus: Positive = Field(1, description="GPUs of one engine.")
    rank_gpus: Positive = Field(1, description="GPUs that compute one sequence of an update together.")
    node_gpus: Positive = Field(8, description="GPUs of a node.")


class Model(Section):
    """A model by name, or by its sizes."""

    name: str = Field(description="Its name.")
    parameters: float | None = Field(None, gt=0.0, description="All weights; none: as known of the name.")
    active: float | None = Field(None, gt=0.0, description="Weights that compute a token; none: all.")
    layers: Positive = Field(32, description="Layers.")
    width: Positive = Field(4096, description="Heads of queries times their size.")
    hidden: Positive | None = Field(None, description="Hidden size; none: the width.")
    kv_bytes: float = Field(131_072.0, gt=0.0, description="Keys and values of a token, bytes.")
    expert_share: float = Field(1.0, gt=0.0, le=1.0, description="Share of the experts that compute one token.")
    routed: int = Field(0, ge=0, description="Routed experts that compute one token.")
    weight_bytes: float = Field(2.0, gt=0.0, description="Bytes of an engine's weight.")

    @property
    def size(self) -> ModelSize:
        if self.parameters is None:
            return MODELS[self.name]
        active = self.active or self.parameters
        hidden = self.hidden or self.width
        experts = (self.expert_share, self.routed)
        return ModelSize(self.parameters, active, self.layers, self.width, self.kv_bytes, hidden, *experts)


class Workload(Section):
    """What a step generates: groups of attempts of some turns, with prompts and replies of these lengths."""

    groups: Positive = Field(8, description="Groups (prompts) of one update's batch.")
    group_size: Positive = Field(1, description="Attempts of a group.")
    prompt_tokens: Positive = Field(300, description="First prompt, tokens.")
    reply_tokens: float | None = Field(None, gt=0.0, description="Mean tokens of a turn's reply; none: unknown.")
    reply_spread: float = Field(0.8, gt=0.0, description="Standard deviation of replies over their mean.")
    longest: Positive = Field(8192, description="Longest reply, tokens.")
    turns: Positive = Field(1, description="Turns of an attempt.")
    turn_seconds: Seconds = Field(0.0, description="A tool's or environment's time per turn.")
    grows: bool = Field(False, description="Whether replies grow, so that means over long windows are not steady.")
    trend: list[Annotated[list[float], Field(min_length=2, max_length=2)]] = Field(
        default_factory=list, description="Steps and factors of the mean reply there, with straight lines between them."
    )

    def growth(self, steps: Sequence[int]) -> float:
        """Return the mean factor of replies over a window of steps; 1 without a trend."""
        if not self.trend:
            return 1.0
        at, factors = zip(*sorted(self.trend), strict=True)
        return float(np.interp(np.arange(*steps) + 0.5, at, factors).mean())


class Training(Section):
    """How an update is computed."""

    minibatches: Positive = Field(1, description="Gradient steps of an update.")
    max_tokens: Positive = Field(32_768, description="Tokens of a micro-batch of one rank.")
    trains: Literal["full", "lora"] = Field("full", description="All weights, or adapters.")
    backend: Literal["fsdp", "megatron"] = Field(
        "fsdp", description="Weights are gathered for each micro-batch (fsdp), or stay on their GPUs (megatron)."
    )
    attention: Literal["fa2", "fa3"] = Field("fa2", description="Kernel of attention: FlashAttention-2 or -3.")
    stages: Positive = Field(1, description="Stages of a pipeline.")
    shard_gpus: Positive | None = Field(None, description="fsdp: GPUs that share one copy of the weights; none: all.")
    expert_gpus: Positive = Field(1, description="GPUs among which experts are shared out.")
    offloads: bool = Field(False, description="Whether weights wait in the host's memory between updates.")
    written: float = Field(0.0, ge=0.0, description="How often a gradient step writes what it trained to files.")
    recomputes: bool = Field(True, description="Whether activations are recomputed.")
    forwards: int = Field(0, ge=0, description="Passes without gradients: old, reference log-probabilities.")
    padded: int | None = Field(
        None, gt=0, description="Tokens to which one process pads each sequence before it hands batches to the ranks."
    )


class Scheduling(Section):
    """A scheduler: a preset and what differs from it."""

    preset: str = Field("verl-partial", description="A preset's name; coupled: rollout and updates take turns.")
    ahead: float | None = Field(None, gt=0.0, description="Batches begun and in no published weights.")
    publish_every: Positive = Field(1, description="Updates between two publications.")
    updates_per_step: Positive = Field(1, description="Updates of what the table calls a step.")
    concurrency: Positive | None = Field(None, description="Most attempts at a time; none: all that are admitted.")
    sync_path: Literal["nccl", "packed", "files", "ipc"] = Field("nccl", description="How weights reach the engines.")
    max_num_seqs: Positive = Field(256, description="Requests that one engine computes at a time.")
    engine_memory: float = Field(0.9, gt=0.0, le=1.0, description="Share of a GPU's memory that engines use.")


class Measured(Section):
    """A published figure."""

    figure: str = Field(description="Its name.")
    value: float = Field(gt=0.0, description="Its value.")
    steps: list[int] = Field(
        default_factory=list, max_length=2, description="First and last step of the window; none: unknown."
    )
    spread: float = Field(0.03, ge=0.0, description="Relative standard deviation of a repetition.")
    unsupported: str | None = Field(None, description="Why it cannot be predicted.")


class Row(Section):
    """A row: what differs, and what was measured."""

    name: str = Field(description="Its name.")
    machines: dict[str, Any] = Field(default_factory=dict, description="Differences.")
    model: dict[str, Any] = Field(default_factory=dict, description="Differences.")
    workload: dict[str, Any] = Field(default_factory=dict, description="Differences.")
    training: dict[str, Any] = Field(default_factory=dict, description="Differences.")
    scheduler: dict[str, Any] = Field(default_factory=dict, description="Differences.")
    figures: list[Measured] = Field(default_factory=list, description="What was measured; none: predict the step.")
    unsupported: str | None = Field(None, description="Why it cannot be predicted.")


class Table(Section):
    """A whole file."""

    id: str = Field(description="Short name.")
    title: str = Field(description="One line.")
    source: str = Field(description="Where the figures are published, or which run they are of.")
    kind: Literal["run", "update", "sync"] = Field(
        "run", description="What is predicted: runs of a scheduler, single updates, or single weight transfers."
    )
    unsupported: str | None = Field(None, description="Why nothing of it can be predicted.")
    fit: list[str] = Field(default_factory=list, description="Rows that are fitted; others are predicted.")
    after: str | None = Field(None, description="File whose fitted rows are fitted too: the same cluster.")
    relative_to: str | None = Field(None, description="Row over whose step `relative_time` is measured.")
    rank_by: str | None = Field(None, description="Figure by which rows are ranked, the smallest best.")
    assumptions: list[str] = Field(default_factory=list, description="What the source does not say, and why so here.")
    assumed: dict[str, float] = Field(
        default_factory=dict,
        description="Settings of the workload that are guesses, and the standard deviation of their logarithm.",
    )
    machines: Machines | None = Field(None, description="Machines.")
    model: Model | None = Field(None, description="Model.")
    workload: Workload = Field(default_factory=Workload, description="Workload.")
    training: Training = Field(default_factory=Training, description="Updates.")
    scheduler: Scheduling = Field(default_factory=Scheduling, description="Scheduler.")
    rows: list[Row] = Field(default_factory=list, description="Rows.")


ASSUMABLE = ("reply_tokens", "reply_spread", "prompt_tokens", "turn_seconds")
"""Settings of the workload that may be guesses."""


@dataclass(frozen=True, slots=True)
class Setup:
    """A row with every setting resolved. Picklable."""

    name: str
    kind: str
    machines: Machines
    model: Model
    workload: Workload
    training: Training
    scheduler: Scheduling
    growth: float = 1.0
    """Factor of the mean reply in the window of a figure."""

    @property
    def reply_tokens(self) -> float:
        """Mean tokens of a reply."""
        assert self.workload.reply_tokens is not None, "checked when the table was read"
        return self.workload.reply_tokens * self.growth

    @property
    def switches(self) -> bool:
        """Whether GPUs go from the trainer to engines and back."""
        lends = "lending" in preset(self.scheduler.preset).get("rollout", {})
        return self.machines.colocated is not None or lends

    @property
    def sheet(self) -> GpuSheet:
        return SHEETS[self.machines.gpu]


def read_table(path: Path, *, fit: Sequence[str] | None = None) -> Table:
    """Read and check a file; ``fit`` names the fitted rows in place of the file's.

    Raises:
        ConfigError: If it cannot be read or contradicts itself; says where.
    """
    try:
        tree = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}; name a TOML file of a table of runs") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    return check_table(tree, str(path), fit=fit)


def check_table(tree: Mapping[str, Any], path: str, *, fit: Sequence[str] | None = None) -> Table:
    """Return a file's tree as a table; ``path`` is for messages.

    Raises:
        ConfigError: If it contradicts itself; says where.
    """
    table: Table = _checked(Table, tree, path)
    if fit is not None:
        table = table.replace(fit=list(fit))
    names = [row.name for row in table.rows]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise ConfigError(f"{path}: two rows are called {min(doubled)!r}; each needs its own name")
    for name in table.fit:
        if name not in names:
            raise no_such(f"row in {path} to fit", name, names)
    if table.relative_to is not None and table.relative_to not in names:
        raise no_such(f"row in {path} that times are relative to", table.relative_to, names)
    for row in table.rows:
        _check_row(path, table, row)
    return table


def _check_row(path: str, table: Table, row: Row) -> None:
    for known in row.figures:
        if known.figure not in FIGURES:
            raise no_such(f"figure of row {row.name!r} in {path}", known.figure, FIGURES)
        if known.figure.startswith("total_") and len(known.steps) != 2:
            raise ConfigError(f"{path}, row {row.name!r}: {known.figure} needs steps = [first, last]")
        if len(known.steps) == 2 and not 0 <= known.steps[0] < known.steps[1]:
            raise ConfigError(f"{path}, row {row.name!r}: steps = {known.steps} is no window; write [first, last]")
    if any(known.figure == "relative_time" for known in row.figures) and (
        table.relative_to in (None, row.name) or row.name in table.fit
    ):
        raise ConfigError(
            f"{path}, row {row.name!r}: relative_time needs relative_to, the name of another row, and cannot be fitted"
        )
    if row.name in table.fit and not row.figures:
        raise ConfigError(f"{path}: row {row.name!r} is to be fitted, and has no figures")
    if reason_against(table, row) is None:
        setup(table, row, path)
    elif row.name in table.fit:
        raise ConfigError(f"{path}: row {row.name!r} is to be fitted, and unsupported: {reason_against(table, row)}")


def setup(table: Table, row: Row, path: str = "") -> Setup:
    """Return a row with every setting resolved.

    Raises:
        ConfigError: If a setting is missing, unknown, or contradicts another.
    """
    if table.machines is None or table.model is None:
        raise ConfigError(f"{path}: a table that is supported needs [machines] and [model]")
    place = f"{path}, row {row.name!r}"
    parts: dict[str, Any] = {}
    for name in ("machines", "model", "workload", "training", "scheduler"):
        section = getattr(table, name)
        parts[name] = _checked(type(section), merge(section.model_dump(), getattr(row, name)), f"{place}, {name}")
    machines, model = parts["machines"], parts["model"]
    if machines.gpu not in SHEETS:
        raise no_such("data sheet of a GPU", machines.gpu, SHEETS)
    if model.parameters is None and model.name not in MODELS:
        raise no_such("model (or give parameters, layers, width, kv_bytes)", model.name, MODELS)
    split = machines.trainer is not None and (table.kind != "run" or machines.rollout is not None)
    if split == (machines.colocated is not None):
        raise ConfigError(f"{place}: give machines.trainer and machines.rollout, or machines.colocated")
    for key in table.assumed:
        if key not in ASSUMABLE:
            raise no_such("setting of the workload that may be assumed", key, ASSUMABLE)
        if not getattr(parts["workload"], key):
            raise ConfigError(f"{place}: workload.{key} is assumed, so it needs a value above 0")
    if table.kind != "sync" and parts["workload"].reply_tokens is None:
        raise ConfigError(
            f"{place}: workload.reply_tokens is missing; guess it, and list it in `assumed` with its width"
        )
    return Setup(name=row.name, kind=table.kind, **parts)


LONGEST_WINDOW = 200
"""Steps over which a mean may be taken as steady where replies grow."""


def reason_against(table: Table, row: Row) -> str | None:
    """Return why a row cannot be predicted; None if it can."""
    return table.unsupported or row.unsupported


def figure_reason(table: Table, row: Row, known: Measured) -> str | None:
    """Return why a figure of a supported row cannot be predicted; None if it can."""
    if known.unsupported:
        return known.unsupported
    workload = {**table.workload.model_dump(), **row.workload}
    if workload["trend"]:
        return None if len(known.steps) == 2 else "replies change, and its window of steps is not given"
    if workload["grows"] and (len(known.steps) != 2 or known.steps[1] > LONGEST_WINDOW):
        return "replies grow, their trend is not published, and its window is longer than 200 steps"
    return None


def _checked(kind: Any, values: Mapping[str, Any], place: str) -> Any:
    try:
        return kind(**values)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ConfigError(f"{place}: {where or 'it'}: {first['msg']}; got {first['input']!r}") from None
