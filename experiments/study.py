"""A study is data: what it measures and the tables of its figures. All share one command line and one renderer.

A table is a function of a study's figures that returns rows or Markdown. It is printed after a run and written between
the marks ``<!-- figures: NAME -->`` of a page, under its name in ``Experiment.tables``. ``rows_of`` makes rows from one
format string per column. A picture of ``Experiment.pictures`` is docs/figures/NAME.svg; its mark is ``NAME-picture``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from string import Formatter
from typing import Any, NamedTuple, TypeVar

from rich.console import Console
from rich.markdown import Markdown

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.lab.comparison import half_width
from dartsim.lab.sweep import ArmRun, sweep
from dartsim.real.machine import describe_machine

RECORDED = Path(__file__).resolve().parent / "recorded"
"""Where ``--record`` writes; docs quote these files."""

EXTRAS = {
    "aiohttp": "real",
    "docker": "real",
    "httpx": "real",
    "lxml": "real",
    "matplotlib": "dev",
    "peft": "train",
    "ray": "ray",
    "safetensors": "train",
    "tokenizers": "train",
    "torch": "train",
    "transformers": "train",
    "trl": "peers",
}
"""The extra that installs each optional package."""

Figures = dict[str, Any]

Rows = tuple[Sequence[str], Sequence[Sequence[str]]]
"""The head and the rows of a table."""

R = TypeVar("R")


class StudyPicture(NamedTuple):
    """A picture of a study's figures: what it shows, in words, and the function that draws it as SVG.

    ``beside`` names other recorded files, whose figures the function gets too.
    """

    shows: str
    draw: Callable[..., str]
    beside: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asked for.

    Attributes:
        quick: Finish within a minute: the same keys, coarser figures.
        seeds: Number of seeds (or of repeats, where nothing is random), counted from 0.
        console: Where tables and progress go.
        results: File of finished runs, from which an interrupted sweep resumes; None: none is kept.
        record: Whether the figures will be recorded.
        own: Options that the study itself adds.
    """

    quick: bool
    seeds: int
    console: Console
    results: Path | None = None
    record: bool = False
    own: argparse.Namespace = field(default_factory=argparse.Namespace)

    def sweep(self, function: Callable[[Any], R], runs: Sequence[ArmRun], name: str = "runs") -> list[R]:
        return sweep(function, runs, console=self.console, name=name, results=self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """A study.

    Attributes:
        name: Name of its module.
        about: First line of ``--help``.
        measure: Returns the figures, with what was run under ``config``.
        tables: Tables of the figures, by the names of the marks on pages.
        pictures: Pictures of the figures, by the names of their files.
        seeds: Seeds of a full run.
        quick_seeds: Seeds of a ``--quick`` run.
        recorded_as: Name of the recorded file; the study's name by default.
        add_arguments: Adds options of the study's own, which are then ``Options.own``.
        record_as: Returns another name for the recorded file if the study's own options ask for one.
    """

    name: str
    about: str
    measure: Callable[[Options], Figures]
    tables: Mapping[str, Callable[[Figures], Rows | str]] = field(default_factory=dict)
    pictures: Mapping[str, StudyPicture] = field(default_factory=dict)
    seeds: int = 3
    quick_seeds: int = 1
    recorded_as: str = ""
    add_arguments: Callable[[argparse.ArgumentParser], Any] | None = None
    record_as: Callable[[argparse.Namespace], str] | None = None

    def run(self, argv: Sequence[str] | None = None) -> Figures:
        """Run the study from a command line, the process's by default, and return what is written."""
        arguments = self.parser().parse_args(argv)
        if arguments.record and arguments.quick:
            raise SystemExit("--record keeps a full run; leave --quick out")
        options = Options(
            quick=arguments.quick,
            seeds=arguments.seeds or (self.quick_seeds if arguments.quick else self.seeds),
            # Standard output belongs to the JSON if that was asked for.
            console=Console(stderr=arguments.json == "-"),
            results=arguments.results,
            record=arguments.record,
            own=arguments,
        )
        with exit_on_refusal():
            figures = self.measure(options)
        written = {**figures, "seeds": list(range(options.seeds)), **provenance()}
        self.show(written, options.console)
        if arguments.json is not None:
            write_json(arguments.json, written)
        if arguments.record:
            name = self.recorded_as or self.name if self.record_as is None else self.record_as(arguments)
            write_json(RECORDED / f"{name}.json", written)
        return written

    def parser(self) -> argparse.ArgumentParser:
        about = self.about.splitlines()[0]
        parser = argparse.ArgumentParser(prog=f"python -m experiments.{self.name}", description=about)
        add = parser.add_argument
        add("--quick", action="store_true", help="finish within a minute; coarser figures")
        add("--seeds", type=_positive, metavar="N", help="number of seeds (or repeats)")
        add("--json", metavar="FILE", help="write the figures to FILE; - is standard output")
        add("--results", type=Path, metavar="FILE", help="keep finished runs in FILE and resume from it")
        add("--record", action="store_true", help="keep the figures in experiments/recorded")
        if self.add_arguments is not None:
            self.add_arguments(parser)
        return parser

    def show(self, figures: Figures, console: Console) -> None:
        for table in self.tables.values():
            console.print(Markdown(markdown(table(figures))))

    @property
    def marks(self) -> set[str]:
        """The names of its marks on pages."""
        return {*self.tables, *(f"{name}-picture" for name in self.pictures)}

    def page_text(self, mark: str, folder: str = "figures") -> str:
        """Return what belongs between a mark of a page and its end: a table, or the link to a picture in ``folder``.

        Raises:
            FileNotFoundError: If no figures were recorded.
        """
        figures = recorded(self.recorded_as or self.name)
        if mark in self.tables:
            return markdown(self.tables[mark](figures))
        name = mark.removesuffix("-picture")
        if not self.is_recorded(name):
            raise FileNotFoundError(f"what {name} shows is not recorded")
        return f"![{self.pictures[name].shows}]({folder}/{name}.svg)\n"

    def drawn(self, name: str) -> str:
        """Return a picture of the recorded figures as SVG; its last line says what drew it.

        Raises:
            FileNotFoundError: If none were recorded.
        """
        # Imported here: pages without a picture need no matplotlib.
        import matplotlib

        svg = self.pictures[name].draw(*map(recorded, self.sources(name)))
        return f"{svg}<!-- matplotlib {matplotlib.__version__} -->\n"

    def sources(self, name: str) -> tuple[str, ...]:
        """Return the names of the recorded files that a picture shows."""
        return (self.recorded_as or self.name, *self.pictures[name].beside)

    def is_recorded(self, name: str) -> bool:
        """Return whether all figures that a picture shows are recorded."""
        return all((RECORDED / f"{source}.json").is_file() for source in self.sources(name))


def markdown(content: Rows | str) -> str:
    """Return rows as a table in Markdown; text is Markdown already."""
    return content if isinstance(content, str) else table(*content)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [head, ["---"] + ["---:"] * (len(head) - 1), *rows]
    return "".join("| " + " | ".join(line) + " |\n" for line in lines)


class _Missing(Exception):
    """A figure is missing or None."""


class _Cells(Formatter):
    def get_field(self, field_name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        try:
            return super().get_field(field_name, args, kwargs)
        except (KeyError, TypeError):  # TypeError: an item of None
            raise _Missing from None

    def format_field(self, value: Any, form: str) -> str:
        if isinstance(value, Mapping):
            text, width = self.format_field(value["mean"], form), value["half_width"]
            return text if width is None else f"{text} ±{self.format_field(width, form)}"
        if value is None:
            raise _Missing
        return f"{100.0 * value:{form[:-1]}f}" if form.endswith("p") else format(value, form)


def cell(pattern: str, figures: Mapping[str, Any]) -> str:
    """Return ``pattern.format(**figures)``, or a dash if one of its figures is missing or None.

    ``{name:.1p}`` shows a share in percent without the sign. A figure that is ``{"mean", "half_width"}`` shows the
    mean with half its 95 % confidence interval, if there is one.
    """
    try:
        return _Cells().vformat(pattern, (), figures)
    except _Missing:
        return "–"


def rows_of(columns: Mapping[str, str], entries: Iterable[Mapping[str, Any]]) -> Rows:
    """Return a table with one row per entry, from the pattern of each column (see ``cell``)."""
    return list(columns), [[cell(pattern, entry) for pattern in columns.values()] for entry in entries]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and the half-width of its 95 % confidence interval; 0 of a single value."""
    return fmean(values), half_width(values) or 0.0


def short_commit(figures: Mapping[str, Any]) -> str:
    """Return the commit at which figures were recorded, as Markdown; ``none`` if unknown."""
    return f"`{(figures['commit']['id'] or 'none')[:12]}`"


def recorded_line(figures: Figures, *details: str) -> str:
    """Return where figures were recorded, and details of it, as a line of Markdown."""
    seeds, changes = ", ".join(map(str, figures["seeds"])), " with changes" if figures["commit"]["dirty"] else ""
    return f"{'; '.join([f'Recorded with seeds {seeds} at commit {short_commit(figures)}{changes}', *details])}.\n"


HALF_INTERVAL = "± is half the 95 % confidence interval over seeds"


@contextmanager
def exit_on_refusal() -> Iterator[None]:
    """Exit with status 2 on a refusal, such as a missing package; print its reason and how to install it."""
    try:
        yield
    except ConfigError as refused:
        sys.stderr.write(f"error: {refused}\n")
        raise SystemExit(2) from None
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        if package not in EXTRAS:
            raise  # a bug of ours
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


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"wanted at least 1, got {value}")
    return value


DIGITS = 6
"""Significant digits of floats, more than any measurement here has."""

MAX_LINE = 120
"""An object of objects longer than this gets one line per key, unless it is an element of a list."""


def json_text(value: Any) -> str:
    """Return a JSON document in which top-level keys and elements of lists of objects each begin a line.

    Floats keep six significant digits; integers (seeds, counts) and strings (hashes) stay exact.

    Raises:
        ValueError: If a float is not finite.
    """
    return "".join(_lines(rounded(value), "", top=True)) + "\n"


def rounded(value: Any) -> Any:
    """Return a value with its floats rounded to six significant digits."""
    if isinstance(value, float):
        return float(f"{value:.{DIGITS}g}")
    if isinstance(value, dict):
        return {key: rounded(part) for key, part in value.items()}
    return [rounded(part) for part in value] if isinstance(value, (list, tuple)) else value


def _lines(value: Any, indent: str, *, top: bool = False) -> Iterator[str]:
    inner = indent + " "
    text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    nested = isinstance(value, dict) and any(isinstance(part, (dict, list)) for part in value.values())
    if nested and (top or len(text) > MAX_LINE):
        yield "{"
        for number, (key, part) in enumerate(value.items()):
            yield f"{',' if number else ''}\n{inner}{json.dumps(key, ensure_ascii=False)}: "
            yield from _lines(part, inner)
        yield f"\n{indent}}}"
    elif isinstance(value, list) and any(isinstance(part, dict) for part in value):
        records = (json.dumps(part, ensure_ascii=False, allow_nan=False) for part in value)
        yield "[" + ",".join(f"\n{inner}{record}" for record in records) + f"\n{indent}]"
    else:
        yield text
