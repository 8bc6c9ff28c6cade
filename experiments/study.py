"""A study is data: what it measures, and the tables that show its figures; one command line and one renderer for all.

A table is a function of a study's figures that returns its rows, or a whole text as Markdown. It is printed after a run
and written between the marks ``<!-- figures: NAME -->`` of a page, under the name that it has in ``Experiment.tables``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markdown import Markdown

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.lab.sweep import ArmRun, sweep
from dartsim.observe.rundir import json_text
from dartsim.real.machine import describe_machine

RECORDED = Path(__file__).resolve().parent / "recorded"
"""Where ``--record`` writes; docs quote these files."""

EXTRAS = {
    "aiohttp": "real",
    "docker": "real",
    "httpx": "real",
    "lxml": "real",
    "matplotlib": "dev",
    "optuna": "lab",
    "peft": "train",
    "ray": "ray",
    "safetensors": "train",
    "tokenizers": "train",
    "torch": "train",
    "transformers": "train",
    "trl": "peers",
}
"""Packages that experiments import, and the extra that brings each."""

Figures = dict[str, Any]

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]
"""Head and rows of a table."""

R = TypeVar("R")


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asked for.

    Attributes:
        quick: Be done in a minute; the same keys, coarser figures.
        seeds: Number of seeds (or of repeats, where nothing is drawn), counted from 0.
        console: Where tables and progress go.
        results: File with the results of finished runs, so that an interrupted sweep resumes; None: none is kept.
        ray: Address of a Ray cluster for sweeps; None: all cores of this machine.
    """

    quick: bool
    seeds: int
    console: Console
    results: Path | None = None
    ray: str | None = None

    def sweep(self, function: Callable[[Any], R], runs: Sequence[ArmRun], name: str = "runs") -> list[R]:
        """Make runs and return their results in order."""
        return sweep(function, runs, console=self.console, name=name, results=self.results, ray=self.ray)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A study.

    Attributes:
        name: Of its module.
        about: First line of ``--help``.
        measure: Does the work. What it returns should say under ``config`` what was run.
        tables: What shows its figures, by the names of the marks on pages.
        seeds: Seeds of a full run.
        quick_seeds: Seeds of a ``--quick`` one.
        recorded_as: Name of the recorded file; that of the study by default.
    """

    name: str
    about: str
    measure: Callable[[Options], Figures]
    tables: Mapping[str, Callable[[Figures], Rows | str]] = field(default_factory=dict)
    seeds: int = 3
    quick_seeds: int = 1
    recorded_as: str = ""

    def run(self, argv: Sequence[str] | None = None) -> Figures:
        """Run the study from the command line, that of the process by default, and return what is written."""
        recorded_as = self.recorded_as or self.name
        arguments = _parser(self.name, self.about.splitlines()[0]).parse_args(argv)
        if arguments.record and arguments.quick:
            raise SystemExit("--record keeps a full run; leave --quick out")
        options = Options(
            quick=arguments.quick,
            seeds=arguments.seeds or (self.quick_seeds if arguments.quick else self.seeds),
            # Standard output belongs to the JSON where that was asked for.
            console=Console(stderr=arguments.json == "-"),
            results=arguments.results,
            ray=arguments.ray,
        )
        with refusals_told():
            figures = self.measure(options)
        written = {**figures, "seeds": list(range(options.seeds)), **provenance()}
        self.show(written, options.console)
        if arguments.json is not None:
            write_json(arguments.json, written)
        if arguments.record:
            write_json(RECORDED / f"{recorded_as}.json", written)
        return written

    def show(self, figures: Figures, console: Console) -> None:
        """Print all tables."""
        for table in self.tables.values():
            console.print(Markdown(markdown(table(figures))))

    def page_text(self, table: str) -> str:
        """Return a table of the recorded figures as Markdown.

        Raises:
            FileNotFoundError: If none were recorded.
        """
        return markdown(self.tables[table](recorded(self.recorded_as or self.name)))


def markdown(content: Rows | str) -> str:
    """Return rows as a table in Markdown; a text is Markdown already."""
    return content if isinstance(content, str) else table(*content)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


def mean_cell(found: Mapping[str, Any] | None, scale: float, form: str) -> str:
    """Return a mean with half its 95 % confidence interval, if there is one; a dash where there is no mean."""
    if found is None or found["mean"] is None:
        return "–"
    text, width = format(scale * found["mean"], form), found["half_width"]
    return text if width is None else f"{text} ±{format(scale * width, form)}"


def optional(value: float | None, form: str) -> str:
    """Return a number as text; a dash where there is none."""
    return "–" if value is None else format(value, form)


def short_commit(figures: Mapping[str, Any]) -> str:
    """Return the commit that figures were recorded at, as Markdown; ``none`` where none is known."""
    return f"`{(figures['commit']['id'] or 'none')[:12]}`"


@contextmanager
def refusals_told() -> Iterator[None]:
    """Say what is wrong with a request, and end with status 2: above all, what to install if it is not there."""
    try:
        yield
    except ConfigError as refused:
        sys.stderr.write(f"error: {refused}\n")
        raise SystemExit(2) from None
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise  # a mistake of ours
        sys.stderr.write(f"error: {package} is not installed, and this needs it: {install_command(EXTRAS[package])}\n")
        raise SystemExit(2) from None


def provenance() -> Figures:
    """Return the commit, the versions and the machine of this process."""
    machine = describe_machine()
    return {
        "commit": {"id": machine.pop("commit"), "dirty": machine.pop("dirty")},
        "versions": machine.pop("packages"),
        "machine": machine,
    }


def write_json(target: str | Path, value: Figures) -> None:
    """Write a JSON object to a file, or to standard output for ``-``."""
    text = json_text(value)
    if target == "-":
        sys.stdout.write(text)
        return
    Path(target).parent.mkdir(parents=True, exist_ok=True)
    Path(target).write_text(text, encoding="utf-8")


def recorded(name: str) -> Figures:
    """Return the last recorded full run of an experiment.

    Raises:
        FileNotFoundError: If none was recorded.
    """
    figures: Figures = json.loads((RECORDED / f"{name}.json").read_text(encoding="utf-8"))
    return figures


def _parser(name: str, about: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m experiments.{name}", description=about)
    parser.add_argument("--quick", action="store_true", help="be done in a minute; coarser figures")
    parser.add_argument("--seeds", type=_positive, metavar="N", help="number of seeds (or repeats)")
    parser.add_argument("--json", metavar="FILE", help="write the figures to FILE; - is standard output")
    parser.add_argument("--results", type=Path, metavar="FILE", help="keep finished runs in FILE, and resume from it")
    parser.add_argument("--ray", metavar="ADDRESS", help="make the runs on this Ray cluster")
    parser.add_argument("--record", action="store_true", help=f"keep them as experiments/recorded/{name}.json")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"wanted at least 1, got {value}")
    return value
