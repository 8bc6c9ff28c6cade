"""OSWorld's task files: read, checked, and kept whole.

A suite is a folder with list files, ``<list>.json`` = {domain: [task ids]}, and one file per task,
``examples/<domain>/<task id>.json``; the task's id is the file's name, even if the content has another. Only the fields
that OSWorld reads are required and checked. ``Task.spec`` is the complete file, equal to its JSON.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from dartsim.core.answers import check_task
from dartsim.core.errors import ConfigError, TaskFileError
from dartsim.core.types import Task

NonEmpty = Annotated[str, Field(min_length=1)]

_SAFE_NAME = re.compile(r"[A-Za-z0-9_.-]+")
MAX_FILE_BYTES = 4 * 2**20
"""Largest list or task file."""
_SHOWN = 3
"""Errors and missing files named in a message."""


class _Open(BaseModel):
    """A part of a task file: known fields are strictly typed, unknown fields are allowed."""

    model_config = ConfigDict(extra="allow", strict=True, frozen=True)


class Step(_Open):
    """One operation on the desktop before an attempt, or before its evaluation."""

    type: NonEmpty
    parameters: dict[str, Any] = Field(default_factory=dict)


class Getter(_Open):
    """Source of a value for the evaluator: a file on the desktop, a rule, a download."""

    type: NonEmpty


Options = dict[str, Any]
EmptyIsNone = BeforeValidator(lambda value: None if value in ({}, []) else value)
"""OSWorld treats an empty object or list as missing."""


OptionalGetter = Annotated[Getter | None, EmptyIsNone]


class Evaluator(_Open):
    """How an attempt is scored.

    ``func`` names one metric or several; with several, ``result``, ``expected`` and ``options`` are lists of
    the same length. ``conj`` joins several by "and" or "or".
    """

    func: NonEmpty | Annotated[list[NonEmpty], Field(min_length=1)]
    result: Annotated[Getter | list[Getter | None] | None, EmptyIsNone] = None
    expected: Annotated[Getter | list[OptionalGetter] | None, EmptyIsNone] = None
    options: Options | list[Options | None] | None = None
    conj: Literal["and", "or"] = "and"
    postconfig: list[Step] = Field(default_factory=list)

    @model_validator(mode="after")
    def _lengths_agree(self) -> Evaluator:
        num_metrics = len(self.func) if isinstance(self.func, list) else None
        for name in ("result", "expected", "options"):
            value = getattr(self, name)
            length = len(value) if isinstance(value, list) else None
            if value and length != num_metrics:  # OSWorld takes an empty one for none
                raise ValueError(f"{name} is {_many(length)}, but func is {_many(num_metrics)}; they must be alike")
        return self


class TaskFile(_Open):
    """The fields of a task file that OSWorld reads."""

    id: NonEmpty
    instruction: NonEmpty
    evaluator: Evaluator
    config: list[Step] = Field(default_factory=list)


@dataclass(frozen=True, slots=True)
class TaskSuite:
    """The tasks of one list file."""

    name: str
    tasks: tuple[Task, ...]
    missing: tuple[str, ...] = ()
    bad: Mapping[str, str] = field(default_factory=dict)
    excluded: frozenset[str] = frozenset()

    @property
    def problems(self) -> dict[str, str]:
        """Why listed tasks cannot be read, by ``domain/id``."""
        return {**dict.fromkeys(self.missing, "it has no file"), **self.bad}

    @property
    def num_listed(self) -> int:
        """Number of tasks in the list, without excluded ones."""
        return len(self.tasks) + len(self.missing) + len(self.bad)


FORGEABLE_METRICS = frozenset({"check_python_file_by_test_suite"})
"""Metrics of OSWorld that run an agent's file in the process that reports the score."""


def is_forgeable(task: Task) -> bool:
    """Whether the agent's own code can write its score, because a metric runs it."""
    names = task.spec.get("evaluator", {}).get("func", ())
    return not FORGEABLE_METRICS.isdisjoint([names] if isinstance(names, str) else names)


def load_task(path: Path | str, *, domain: str | None = None) -> Task:
    """Read one task file.

    Raises:
        TaskFileError: If the file cannot be read, is not JSON, or breaks the schema; names the fields.
    """
    path = Path(path)
    data = _read_json(path)
    try:
        checked = TaskFile.model_validate(data)
    except ValidationError as exc:
        raise TaskFileError(f"{path}: {_describe(exc)}") from None
    task = Task(path.stem, checked.instruction, domain or path.resolve().parent.name, data)
    try:
        check_task(task)
    except TaskFileError as problem:
        raise TaskFileError(f"{path}: {problem}") from None
    return task


def load_suite(
    folder: Path | str,
    list_name: str = "test_nogdrive",
    *,
    missing: Literal["error", "skip"] = "error",
    bad: Literal["error", "skip"] = "error",
    exclude: Collection[str] = (),
) -> TaskSuite:
    """Read the tasks of a list file.

    Args:
        folder: Folder with ``<list_name>.json`` and ``examples/``.
        list_name: Name of the list, without ``.json``.
        missing: A listed task without a file is an error, or is skipped and reported.
        bad: Unusable files are an error that names all of them, or are skipped and reported.
        exclude: Ids of tasks whose files are not read.

    Raises:
        TaskFileError: If the list or a task file is invalid, the list is empty or names a task twice, a name points
            out of the folder, or a file is missing.
    """
    folder = Path(folder)
    list_path = _list_file(folder, list_name)
    tasks: list[Task] = []
    absent: list[str] = []
    unusable: dict[str, str] = {}
    seen: dict[str, str] = {}
    for domain, task_id in _read_list(list_path):
        if task_id in seen:
            raise TaskFileError(
                f"{list_path}: task {task_id} is listed under {seen[task_id]!r} and again under {domain!r}; "
                f"ids must be unique"
            )
        seen[task_id] = domain
        path = _inside(folder, "examples", _safe(domain, list_path), f"{_safe(task_id, list_path)}.json")
        if task_id in exclude:
            continue
        if not path.is_file():
            absent.append(f"{domain}/{task_id}")
            continue
        try:
            tasks.append(load_task(path, domain=domain))
        except TaskFileError as problem:
            unusable[f"{domain}/{task_id}"] = str(problem)
    if not seen:
        raise TaskFileError(f"{list_path}: names no tasks; wanted an object {{domain: [task ids]}}")
    if absent and missing == "error":
        first = ", ".join(absent[:_SHOWN]) + (", …" if len(absent) > _SHOWN else "")
        raise TaskFileError(
            f"{list_path} lists {len(seen)} tasks and {len(absent)} have no file under "
            f"{folder / 'examples'}: {first}; add the files, choose another list, or load with missing='skip'"
        )
    if unusable and bad == "error":
        raise TaskFileError("; ".join(unusable.values()))
    return TaskSuite(list_name, tuple(tasks), tuple(absent), unusable, frozenset(exclude) & seen.keys())


def _list_file(folder: Path, list_name: str) -> Path:
    """Return the file of a list.

    Raises:
        TaskFileError: If it is missing; names the lists in the folder.
    """
    path = _inside(folder, f"{_safe(list_name, folder)}.json")
    if not path.exists():
        lists = sorted(file.stem for file in folder.glob("*.json"))
        advice = f"it has the lists {', '.join(lists)}: name one (--list; in a run tasks.list_name)"
        if not lists:
            advice = "it has no lists: name the folder evaluation_examples of a checkout of OSWorld"
        raise TaskFileError(f"{path}: cannot be read: No such file in {folder}; {advice}")
    return path


def _read_json(path: Path) -> Any:
    try:
        if not path.is_file():
            raise FileNotFoundError(None, "No such file")
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
        if len(data) > MAX_FILE_BYTES:
            raise TaskFileError(
                f"{path}: has {path.stat().st_size:,} bytes, at most {MAX_FILE_BYTES:,} are read; OSWorld's have some "
                "thousand"
            )
        return json.loads(data.decode("utf-8"))
    except OSError as exc:
        raise TaskFileError(f"{path}: cannot be read: {exc.strerror or exc}") from None
    except (ValueError, RecursionError) as exc:  # not UTF-8, not JSON, or nested too deeply
        raise TaskFileError(f"{path}: is not JSON: {exc}") from None


def _read_list(path: Path) -> Iterator[tuple[str, str]]:
    """Yield (domain, task id) of a list file."""
    data = _read_json(path)
    if not isinstance(data, dict):
        raise TaskFileError(f"{path}: wanted an object {{domain: [task ids]}}, found {_kind(data)}")
    for domain, ids in data.items():
        if not isinstance(ids, list) or not all(isinstance(task_id, str) for task_id in ids):
            raise TaskFileError(f"{path}: {domain}: wanted a list of task ids, found {_kind(ids)}")
        for task_id in ids:
            yield domain, task_id


def _safe(name: str, where: Path) -> str:
    if not _SAFE_NAME.fullmatch(name) or name in (".", ".."):
        raise TaskFileError(f"{where}: {name!r} is no file name; wanted letters, digits, '_', '-', '.' only")
    return name


def _inside(folder: Path, *parts: str) -> Path:
    """Return a path that is below ``folder`` after symbolic links are resolved."""
    path = folder.joinpath(*parts)
    if not path.resolve().is_relative_to(folder.resolve()):
        raise TaskFileError(f"{path}: leads out of {folder}")
    return path


def _describe(error: ValidationError) -> str:
    """Return the field, the value and the expected type of the first errors."""
    errors = error.errors(include_url=False, include_context=False)
    messages = []
    for error_details in errors[:_SHOWN]:
        field = ".".join(str(part) for part in error_details["loc"]) or "the file"
        found = "nothing" if error_details["type"] == "missing" else _kind(error_details["input"])
        wanted = "field required" if error_details["type"] == "missing" else error_details["msg"]
        messages.append(f"{field}: {wanted}; found {found}")
    more = len(errors) - len(messages)
    return " | ".join(messages) + (f" | and {more} more" if more else "")


def _kind(value: Any) -> str:
    """Describe a JSON value, with the value itself if it is short."""
    if isinstance(value, (dict, list)):
        return f"an object with {len(value)} keys" if isinstance(value, dict) else f"a list of {len(value)}"
    shown = repr(value)
    return shown if len(shown) <= 60 else f"{shown[:60]}…"


def _many(length: int | None) -> str:
    return "a single one" if length is None else f"a list of {length}"


_VERBS = ("Open", "Rename", "Sort", "Export", "Share", "Crop", "Archive", "Print")
_OBJECTS = (
    "the report",
    "the budget",
    "the holiday photos",
    "the address book",
    "the slides",
    "the settings",
)


def generated_tasks(num_tasks: int) -> list[Task]:
    """Return distinct tasks of the domain ``generated``, always the same ones.

    Raises:
        ConfigError: If ``num_tasks`` is not positive.
    """
    if num_tasks < 1:
        raise ConfigError(f"num_tasks must be at least 1, got {num_tasks}")
    width = max(4, len(str(num_tasks - 1)))
    words = [f"{verb} {target}" for target in _OBJECTS for verb in _VERBS]
    return [Task(f"generated-{i:0{width}}", f"{words[i % len(words)]} (number {i}).") for i in range(num_tasks)]
