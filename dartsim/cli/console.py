"""Where the command line writes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

from dartsim.errors import ConfigError

out = Console()
errors = Console(stderr=True)


class _Hiding(logging.Formatter):
    """Writes what is logged without the secrets that it may quote."""

    def format(self, record: logging.LogRecord) -> str:
        from dartsim.config.secrets import hidden

        return hidden(super().format(record))


def hide_secrets_in_logs() -> None:
    """Write warnings to standard error, as Python does by default, but without secrets."""
    handler = logging.StreamHandler()
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Hiding("%(message)s"))
    logging.lastResort = handler


def printable(text: str) -> str:
    """Return a text without what a terminal would obey: names of tasks come from elsewhere."""
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
        raise ConfigError(
            f"--json {target} cannot be written: {error.strerror}; name a file in a folder that can be written to, "
            "or - for standard output"
        ) from None
