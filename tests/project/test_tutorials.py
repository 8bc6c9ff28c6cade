"""The tutorials of the docs run as they are written, and print what their pages show."""

from __future__ import annotations

from pathlib import Path

import pytest

from experiments import tutorials

PAGES = {name: tutorials.page_of(name).read_text(encoding="utf-8") for name in tutorials.TUTORIALS}


@pytest.mark.slow
@pytest.mark.parametrize("name", PAGES)
def test_a_tutorial_prints_what_its_page_shows(name: str, tmp_path: Path) -> None:
    ran = list(tutorials.outputs(PAGES[name], tmp_path))
    assert ran
    for block, printed in ran:
        if block.shown is not None and not block.varies:
            found, shown = map(tutorials.without_durations, (printed, block.shown))
            assert found == shown, f"docs/{name}.md is out of date; run `python -m experiments.tutorials {name}`"


@pytest.mark.slow
def test_the_environment_and_the_policy_of_the_api_page_run_as_printed(tmp_path: Path) -> None:
    ((_, printed),) = tutorials.outputs(tutorials.page_of("api").read_text(encoding="utf-8"), tmp_path)
    assert printed.count("policy guesses acted, and nothing was learned") == 2


def test_a_command_that_fails_is_told(tmp_path: Path) -> None:
    with pytest.raises(tutorials.CommandFailed, match="exit code 3"):
        list(tutorials.outputs("```console\necho before\nexit 3\n```\n", tmp_path))


def test_the_real_output_replaces_what_the_page_shows(tmp_path: Path) -> None:
    page = "```toml a/b.toml\nx = 1\n```\n\n```console\ncat a/b.toml\npwd\n```\n\n```text\nold\n```\n"
    written = tmp_path / "page.md"
    written.write_text(page)
    tutorials.rewrite(written, tmp_path)
    assert written.read_text() == page.replace("old", "x = 1\n/home/me/tutorial")
