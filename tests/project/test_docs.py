"""The pages link to what exists and quote what was recorded."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import typer

from dartsim.cli.app import app
from dartsim.config import Config
from dartsim.config.settings import describe, valid_keys

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [*sorted(page.name for page in ROOT.glob("*.md")), *sorted(f"docs/{page.name}" for page in DOCS.glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]+)(?:#[^)\s]*)?\)")


def links(page: Path) -> list[str]:
    """Return the local targets a Markdown page links to."""
    found = LINK.findall(page.read_text(encoding="utf-8"))
    return [target for target in found if not re.match(r"[a-z]+:", target)]


@pytest.mark.parametrize("page", PAGES)
def test_every_local_link_leads_somewhere(page: str):
    path = ROOT / page
    missing = [target for target in links(path) if not (path.parent / target).exists()]
    assert missing == []


FILE_NAMES = (".py", ".png", ".db", ".lock", ".toml", ".json")
SETTING = re.compile(rf"`((?:{'|'.join(Config.model_fields)})\.[a-z0-9_.]+)(?: ?=[^`]*)?`")


@pytest.mark.parametrize("page", PAGES)
def test_every_setting_that_a_page_names_exists(page: str):
    known, settings = set(valid_keys()), {setting.key for setting in describe()}
    named = {key for key in SETTING.findall((ROOT / page).read_text(encoding="utf-8")) if not key.endswith(FILE_NAMES)}
    # The keys below a setting are those of a distribution.
    assert [key for key in sorted(named - known) if key.rpartition(".")[0] not in settings] == []


COMMANDS = re.compile(r"^ *```(?:console|bash|sh)\n(.*?)^ *```", re.DOTALL | re.MULTILINE)


def commands_of(line: str) -> list[list[str]]:
    """Return the words of each command of a line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="&|>;")
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    for word in lexer:
        if set(word) <= set("&|>;"):
            found.append([])
        else:
            found[-1].append(word)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_every_command_of_a_page_exists_with_its_options(page: str):
    blocks = COMMANDS.findall((ROOT / page).read_text(encoding="utf-8"))
    lines = "".join(blocks).replace("\\\n", " ").splitlines()
    parts = [part for line in lines for part in commands_of(line)]
    for words in (words for words in parts if words[:1] == ["dartsim"]):
        command, rest = typer.main.get_command(app), words[1:]
        while hasattr(command, "get_command"):
            command, rest = command.get_command(typer.Context(command), rest[0]), rest[1:]
            assert command is not None, words
        command.make_parser(typer.Context(command)).parse_args(args=rest)


EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """Return every Python example of the pages with a name for it."""
    found = []
    for page in [ROOT / "README.md", *sorted(DOCS.glob("*.md"))]:
        blocks = EXAMPLE.findall(page.read_text(encoding="utf-8"))
        found += [(f"{page.name}-{number}", code) for number, code in enumerate(blocks)]
    return found


@pytest.mark.parametrize("code", [code for _, code in examples()], ids=[name for name, _ in examples()])
def test_every_example_runs(code: str):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_pages_quote_the_recorded_figures():
    from experiments.pages import pages, rendered

    for page in pages():
        assert page.read_text(encoding="utf-8") == rendered(page), (
            f"{page.name} is out of date; run `python -m experiments.pages`"
        )


def test_pictures_are_those_that_pages_quote_and_small():
    from experiments.pages import quoted_pictures

    assert set(DOCS.glob("figures/*.svg")) == set(quoted_pictures())
    assert [path.name for path in DOCS.glob("figures/*.svg") if path.stat().st_size > 61_440] == []
