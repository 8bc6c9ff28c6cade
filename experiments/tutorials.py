"""Runs the tutorials of the docs as a reader would, and writes the real output of their commands on the page.

    python -m experiments.tutorials [NAME]...

A page is the script. A fenced block whose language is followed by a file name (```` ```toml cluster.toml ````) is that
file; a block ``console`` is bash, and a block ``text`` right after it shows what it prints to standard output. Comments
before a block: ``<!-- varies -->`` says that its output differs between machines, ``<!-- needs: NAME -->`` that it is
run only where NAME is there; its output varies, too. ``<!-- continues: PAGE -->`` starts with the files of that page.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ("tune-a-scheduler", "test-at-scale", "first-steps-to-osworld")

FENCE = re.compile(
    r"(?P<notes>(?:^<!-- (?:varies|needs: \w+) -->\n)*)"
    r"(?P<code>^```(?P<language>\w+)(?: (?P<file>[\w./-]+))?\n(?P<body>.*?)^```\n)"
    r"(?P<shown>\n```text\n(?P<output>.*?)^```\n)?",
    re.DOTALL | re.MULTILINE,
)
CONTINUES = re.compile(r"^<!-- continues: ([\w-]+) -->$", re.MULTILINE)
DURATION = re.compile(r"\b\d+(\.\d+)? ?s\b( \(\d+:\d\d:\d\d\))?")

PRELUDE = 'set -eo pipefail; dartsim() { "$PYTHON" -m dartsim "$@"; }; python() { "$PYTHON" "$@"; }\n'
"""``dartsim`` and ``python`` are those of this interpreter, installed or not."""

HOME = "/home/me/tutorial"
"""Instead of the folder in which the tutorial ran."""


@dataclass(frozen=True, slots=True)
class Block:
    """Commands of a page.

    Attributes:
        commands: Of bash.
        shown: What the page says that they print; None if it does not say.
        needs: What they need.
        varies: Whether what they print differs between machines.
    """

    commands: str
    shown: str | None
    needs: str | None
    varies: bool


class CommandFailed(Exception):
    """A command of a tutorial ended with another exit code than 0, or than it says."""


def missing(need: str) -> str:
    """Return why blocks that need this cannot run here; empty if they can."""
    if need == "torch":
        return "" if importlib.util.find_spec("torch") else "needs the extra `train`"
    if need == "docker":
        done = subprocess.run(
            [sys.executable, "-c", "import docker; docker.from_env(timeout=10).ping()"],
            capture_output=True,
            check=False,
        )
        return "no Docker engine answers" if done.returncode else ""
    raise ValueError(f"wanted torch or docker, got {need!r}")


def page_of(name: str) -> Path:
    """Return the page of a tutorial."""
    return ROOT / "docs" / f"{name}.md"


def _block(match: re.Match[str]) -> Block:
    needs = re.search(r"needs: (\w+)", match["notes"])
    return Block(match["body"], match["output"], needs[1] if needs else None, bool(needs) or "varies" in match["notes"])


def blocks(text: str) -> list[Block]:
    """Return the commands of a page."""
    return [_block(match) for match in FENCE.finditer(text) if match["language"] == "console"]


def write_files(text: str, folder: Path) -> None:
    """Write the files of a page."""
    for match in FENCE.finditer(text):
        if match["file"]:
            (folder / match["file"]).parent.mkdir(parents=True, exist_ok=True)
            (folder / match["file"]).write_text(match["body"], encoding="utf-8")


def outputs(text: str, folder: Path, need: str | None = None) -> Iterator[tuple[Block, str]]:
    """Write the files of a page, and run its blocks that need nothing, or those that need ``need``.

    Raises:
        CommandFailed: If a block ends with another exit code than 0, or than its last line says: ``# exit code 18``.
    """
    for name in CONTINUES.findall(text):
        write_files(page_of(name).read_text(encoding="utf-8"), folder)
    write_files(text, folder)
    for match in FENCE.finditer(text):
        if match["language"] == "console" and (block := _block(match)).needs == need:
            yield block, run(block.commands, folder)


def run(commands: str, folder: Path) -> str:
    """Run commands of bash and return what they print, as a page shows it."""
    paths = os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH"))))
    settings = {"PYTHON": sys.executable, "PYTHONPATH": paths, "COLUMNS": "96", "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        ["bash", "-c", PRELUDE + commands],
        cwd=folder,
        env={**os.environ, **settings},
        capture_output=True,
        text=True,
        check=False,
    )
    said = re.search(r"# exit code (\d+)[^\n]*\n$", commands)
    if done.returncode != (int(said[1]) if said else 0):
        raise CommandFailed(f"exit code {done.returncode}:\n{commands}{done.stdout}{done.stderr}")
    lines = done.stdout.replace(str(folder), HOME).strip("\n").splitlines()
    return "".join(f"{line.rstrip()}\n" for line in lines)


def without_durations(output: str) -> str:
    """Return an output without what the machine's speed decides."""
    return DURATION.sub("… s", output)


def with_output(text: str, commands: str, output: str) -> str:
    """Return a page that shows this output after these commands, if it shows one."""

    def replace(match: re.Match[str]) -> str:
        if match["shown"] is None or match["body"] != commands:
            return match[0]
        return f"{match['notes']}{match['code']}\n```text\n{output}```\n"

    return FENCE.sub(replace, text)


def rewrite(page: Path, folder: Path) -> None:
    """Write on a page what its commands print here; those that need what is missing here keep their output."""
    text = page.read_text(encoding="utf-8")
    for need in [None, *sorted({block.needs for block in blocks(text) if block.needs})]:
        if need is None or not missing(need):
            for block, output in outputs(text, folder, need):
                shown = with_output(page.read_text(encoding="utf-8"), block.commands, output)
                page.write_text(shown, encoding="utf-8")


def main() -> None:
    """Run the tutorials and write their pages."""
    parser = argparse.ArgumentParser(prog="python -m experiments.tutorials", description=str(__doc__).splitlines()[0])
    parser.add_argument("names", nargs="*", choices=[[], *TUTORIALS], metavar="NAME", help="; ".join(TUTORIALS))
    for name in parser.parse_args().names or TUTORIALS:
        with TemporaryDirectory() as folder:
            rewrite(page_of(name), Path(folder).resolve())


if __name__ == "__main__":
    main()
