"""Where the command line writes: results to standard output, everything else to standard error."""

from __future__ import annotations

import errno
import json
import logging
import os
import sys
from pathlib import Path
from typing import IO, Any

from rich.console import Console, ConsoleDimensions

from dartsim.core.errors import ConfigError

WIDE = 10_000
"""Columns when output is not a terminal: nothing is wrapped, so that output can be searched."""

OUTPUT_ERRORS = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of writing to standard output, other than a closed pipe."""


class _Console(Console):
    """A console that breaks lines for terminals only, and goes on without output when its reader has gone."""

    @property
    def size(self) -> ConsoleDimensions:
        """How many columns and lines there are: the terminal's, COLUMNS, or as many as it takes."""
        found = super().size
        unbound = self._width is None and not self.file.isatty() and not self._environ.get("COLUMNS")
        return ConsoleDimensions(WIDE, found.height) if unbound else found

    @size.setter
    def size(self, new: tuple[int, int]) -> None:
        self._width, self._height = new

    def on_broken_pipe(self) -> None:
        """Drop what is printed from now on: the command has done its work, and may have files to write."""
        self.quiet = True
        drop_output(self.file)


out = _Console()
errors = _Console(stderr=True)


def drop_output(file: IO[str] | None = None) -> None:
    """Redirect a stream, by default standard output, to the null device."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, (file or sys.stdout).fileno())
    os.close(nowhere)


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
    errors.print(f"[bold red]error:[/bold red] the output could not be written: {error.strerror}", highlight=False)
    return 1


def is_output_error(error: OSError) -> bool:
    """Whether writing to standard output failed: such an error names no file."""
    return error.errno in OUTPUT_ERRORS and error.filename is None


class _SecretHidingFormatter(logging.Formatter):
    """Writes what is logged without the secrets that it may quote."""

    def format(self, record: logging.LogRecord) -> str:
        from dartsim.config.secrets import hidden

        return hidden(super().format(record))


class _StderrHandler(logging.Handler):
    """Writes what is logged where errors go: above a progress bar, if there is one, and not through it."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            errors.print(self.format(record), highlight=False, markup=False, soft_wrap=True)
        except Exception:  # as handlers do: what is logged wrongly stops nothing
            self.handleError(record)


def hide_secrets_in_logs() -> None:
    """Write warnings to standard error, as Python does by default, but without secrets."""
    handler = _StderrHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_SecretHidingFormatter("%(message)s"))
    logging.lastResort = handler


def printable(text: str) -> str:
    """Return a text without terminal control characters: task names come from outside."""
    return "".join(sign if sign.isprintable() or sign in "\n\t" else "\ufffd" for sign in text)


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
        raise cannot_write(target, error) from None


def cannot_write(target: str, error: OSError) -> ConfigError:
    """Return the error for a ``--json`` file that cannot be written."""
    return ConfigError(
        f"--json {target} cannot be written: {error.strerror}; name a file in a folder that can be written to, "
        "or - for standard output"
    )
