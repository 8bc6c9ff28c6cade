"""Output of the command line: results and tables on standard output, everything else on standard error."""

from __future__ import annotations

import errno
import json
import logging
import os
import re
import sys
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

from rich.console import Console, ConsoleDimensions
from rich.table import Table
from rich.text import Text

from dartsim.core.errors import ConfigError
from dartsim.core.words import significant
from dartsim.observe.figures import FIGURES, figure_text

WIDE = 10_000
"""Columns if output is not a terminal: nothing is wrapped, so the output can be searched."""

LONG_WORD = re.compile(r"([^\s']{80})[^\s']{220,}")
"""A word too long to print in full."""

OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of writing to standard output, other than a closed pipe."""


class TextConsole(Console):
    """A console that wraps lines for terminals only, and drops its output when the reader has gone.

    Text is printed literally, without markup or control characters, because names and errors quote untrusted input.
    """

    def __init__(self, *, stderr: bool = False, file: IO[str] | None = None) -> None:
        super().__init__(stderr=stderr, file=file, markup=False, highlight=False)

    def render_str(self, text: str, **options: Any) -> Text:
        return super().render_str(printable(text), **options)

    def say(self, text: str, style: str | None = None) -> None:
        """Print a text whose lines are not wrapped, so that paths and commands can be copied."""
        self.print(text, style=style, soft_wrap=True)

    @property
    def size(self) -> ConsoleDimensions:
        """The terminal's size, or COLUMNS; elsewhere wide enough for any line."""
        size = super().size
        unbound = self._width is None and not self.file.isatty() and not self._environ.get("COLUMNS")
        return ConsoleDimensions(WIDE, size.height) if unbound else size

    @size.setter
    def size(self, new: tuple[int, int]) -> None:
        self._width, self._height = new

    def on_broken_pipe(self) -> None:
        """Drop further output: the command may still have files to write."""
        self.quiet = True
        drop_output(self.file)


out = TextConsole()
errors = TextConsole(stderr=True)
silent = TextConsole()
silent.quiet = True


class CommandState:
    """State of the current command.

    Attributes:
        debug: Whether errors are shown with their whole traceback.
        working: Whether its work has begun; any earlier failure is an error in the request.
    """

    debug = False
    working = False


state = CommandState()


def print_error(kind: str, text: str, **options: Any) -> None:
    """Print an error without secrets and control characters, its long words shortened."""
    from dartsim.core.secrets import redact

    shown = LONG_WORD.sub(r"\1…", printable(redact(text)))
    errors.print(Text.assemble((f"{kind}:", "bold red"), " ", shown), **options)


def drop_output(file: IO[str] | None = None) -> None:
    """Redirect a stream, by default standard output, to the null device."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, (file or sys.stdout).fileno())
    os.close(null)


def flush_output(code: int) -> int:
    """Flush standard output, and return the exit code.

    A closed pipe (``| head``) is not an error; a full disk is.
    """
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        drop_output()
    except OSError as error:
        drop_output()
        return output_failed(error)
    return code


def output_failed(error: OSError) -> int:
    """Report that standard output could not be written, and return the exit code."""
    print_error("error", f"the output could not be written: {error.strerror}")
    return 1


def is_output_error(error: OSError) -> bool:
    """Whether writing to standard output failed: such an error names no file."""
    return error.errno in OUTPUT_ERRORS and error.filename is None


class _LogFormatter(logging.Formatter):
    """Formats log records as plain text, without the secrets that they may quote."""

    def format(self, record: logging.LogRecord) -> str:
        from dartsim.core.secrets import redact

        return printable(redact(super().format(record)))


def hide_secrets_in_logs() -> None:
    """Write warnings to standard error, as Python does by default, but without secrets."""
    assert logging.lastResort is not None, "Python writes warnings without it"
    logging.lastResort.setFormatter(_LogFormatter("%(message)s"))


def printable(text: str) -> str:
    """Return a text without terminal control characters, since task names are untrusted."""
    return "".join(char if _is_harmless(char) else "\ufffd" for char in text)


def _is_harmless(char: str) -> bool:
    return char.isprintable() or char in "\n\t" or unicodedata.category(char) == "Zs"  # such as the space before a unit


def write_json(value: Any, target: str) -> None:
    """Write a result as JSON to a file, or to standard output for ``-``.

    Raises:
        ConfigError: If the file cannot be written.
    """
    text = json.dumps(value, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
        return
    try:
        Path(target).write_text(text, encoding="utf-8")
    except OSError as error:
        why = error.strerror
        raise ConfigError(f"--json {target} cannot be written: {why}; name another file, or -") from None


def result(value: Any, json_file: str | None) -> TextConsole:
    """Write a result as JSON if asked; return the console for its text, silent if JSON takes standard output."""
    if json_file is not None:
        write_json(value, json_file)
    return silent if json_file == "-" else out


SHOWN = (
    "trained_turns_per_minute",
    "generated_turns_per_minute",
    "env_utilization",
    "gpu_utilization",
    "gpu_utilization_rollout_phase",
    "trainer_utilization",
    "prefix_hit_share",
    "trajectories_per_minute",
    "minutes_per_version",
    "staleness_mean",
    "staleness_max",
    "wasted_share",
    "mean_reward",
)


FIGURES_NOTE = "rates and shares leave out the first part of the run; docs/reference.md#figures defines each figure"
"""Line under a table of figures."""


def table(heads: Sequence[str], rows: Iterable[Sequence[Any]], title: str | None = None) -> Table:
    """Return a table without a frame. A column whose head begins with # has numbers; the first one is not wrapped."""
    made = Table(title=title, show_edge=False, pad_edge=False, header_style="bold", title_justify="left")
    for place, head in enumerate(heads):
        name = Text(printable(head.removeprefix("#")))
        made.add_column(name, justify="right" if head.startswith("#") else "left", overflow="fold", no_wrap=place == 0)
    for row in rows:
        made.add_row(*map(_cell, row))
    return made


def _cell(value: Any) -> str | Text:
    if value is None:
        return "–"
    return value if isinstance(value, Text) else significant(value, 4) if isinstance(value, float) else str(value)


def figure_table(name: str, summary: Mapping[str, Any]) -> Table:
    """Return a table of a run's figures."""
    return table(["", f"#{name}"], [(FIGURES[one].label, figure_text(one, summary.get(one))) for one in SHOWN])
