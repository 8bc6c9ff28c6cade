"""What all experiments share: their command line, and the facts that are written beside their figures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from dartsim.core.errors import ConfigError
from dartsim.core.install import install_command
from dartsim.observe.json_text import json_text
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What the command line asked for.

    Attributes:
        quick: Be done in a minute; the same keys, coarser figures.
        seeds: Number of seeds (or of repeats, where nothing is drawn), counted from 0.
        console: Where tables and progress go.
    """

    quick: bool
    seeds: int
    console: Console


def run_experiment(
    name: str,
    measure: Callable[[Options], Figures],
    show: Callable[[Figures, Console], None],
    *,
    about: str,
    seeds: int = 3,
    quick_seeds: int = 1,
    argv: Sequence[str] | None = None,
) -> Figures:
    """Run an experiment from the command line and return what is written.

    Args:
        name: Of the module, and of the recorded file.
        measure: Does the work. What it returns should say under ``config`` what was run.
        show: Prints the figures for people.
        about: First line of ``--help``.
        seeds: Seeds of a full run.
        quick_seeds: Seeds of a ``--quick`` one.
        argv: The command line; that of the process by default.
    """
    arguments = _parser(name, about).parse_args(argv)
    if arguments.record and arguments.quick:
        raise SystemExit("--record keeps a full run; leave --quick out")
    options = Options(
        quick=arguments.quick,
        seeds=arguments.seeds or (quick_seeds if arguments.quick else seeds),
        # Standard output belongs to the JSON where that was asked for.
        console=Console(stderr=arguments.json == "-"),
    )
    with refusals_told():
        found = measure(options)
    written = {**found, "seeds": list(range(options.seeds)), **provenance()}
    show(written, options.console)
    if arguments.json is not None:
        write_json(arguments.json, written)
    if arguments.record:
        write_json(RECORDED / f"{name}.json", written)
    return written


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
    parser.add_argument("--record", action="store_true", help=f"keep them as experiments/recorded/{name}.json")
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError(f"wanted at least 1, got {value}")
    return value
