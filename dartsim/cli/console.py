"""Where the command line writes: results to standard output, everything else to standard error."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from rich.console import Console

out = Console()
errors = Console(stderr=True)


def write_json(value: Any, target: str) -> None:
    """Write a result as JSON to a file, or to standard output for ``-``."""
    text = json.dumps(value, indent=2) + "\n"
    if target == "-":
        sys.stdout.write(text)
    else:
        Path(target).write_text(text, encoding="utf-8")
