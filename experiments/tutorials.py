"""Runs the tutorials of the docs as a reader would, and writes the real output of their commands on the page.

    python -m experiments.tutorials [NAME]...

A page is the script. A fenced block whose language is followed by a file name (```` ```toml cluster.toml ````) is that
file; a block ``console`` is bash, and a block ``text`` right after it shows what it prints to standard output. The
comment ``<!-- varies -->`` before a block says that its output differs between machines; ``<!-- continues: PAGE -->``
starts with the files of that page.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

ROOT = Path(__file__).resolve().parent.parent
TUTORIALS = ("tune-a-scheduler", "test-at-scale")

FENCE = re.compile(
    r"(?P<varies>^<!-- varies -->\n)?"
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
        varies: Whether what they print differs between machines.
    """

    commands: str
    shown: str | None
    varies: bool


class CommandFailed(Exception):
    """A command of a tutorial ended with another exit code than 0, or than it says."""


def page_of(name: str) -> Path:
    """Return the page of a tutorial."""
    return ROOT / "docs" / f"{name}.md"


def write_files(text: str, folder: Path) -> None:
    """Write the files of a page."""
    for match in FENCE.finditer(text):
        if match["file"]:
            (folder / match["file"]).parent.mkdir(parents=True, exist_ok=True)
            (folder / match["file"]).write_text(match["body"], encoding="utf-8")


def outputs(text: str, folder: Path) -> Iterator[tuple[Block, str]]:
    """Write the files of a page and run its blocks.

    Raises:
        CommandFailed: If a block ends with another exit code than 0, or than its last line says: ``# exit code 18``.
    """
    for name in CONTINUES.findall(text):
        write_files(page_of(name).read_text(encoding="utf-8"), folder)
    write_files(text, folder)
    for match in FENCE.finditer(text):
        if match["language"] == "console":
            block = Block(match["body"], match["output"], match["varies"] is not None)
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
        return f"{match['varies'] or ''}{match['code']}\n```text\n{output}```\n"

    return FENCE.sub(replace, text)


def rewrite(page: Path, folder: Path) -> None:
    """Write on a page what its commands print here."""
    for block, output in outputs(page.read_text(encoding="utf-8"), folder):
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
