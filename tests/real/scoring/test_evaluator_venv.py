"""The evaluator's virtual environment: where it lies and how it is made."""

import importlib.metadata
import subprocess

import pytest

from dartsim.core.errors import ConfigError
from dartsim.real.scoring.evaluator_venv import (
    PACKAGE,
    commands,
    copy_evaluators,
    install,
    other_version,
    python_of,
)


def test_there_must_be_an_environment(tmp_path):
    with pytest.raises(ConfigError, match="dartsim desktop evaluator"):
        python_of(tmp_path)


def test_an_environment_is_made_where_nothing_else_is(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full/thesis.txt").touch()
    with pytest.raises(ConfigError, match="is no virtual environment"):
        install(tmp_path / "full")
    python = tmp_path / "python"
    makes = 'mkdir -p "$4/bin"\ntouch "$4/pyvenv.cfg"\ncp "$0" "$4/bin/python"\n'
    python.write_text(f'#!/bin/sh\n{makes}test "$2" = venv || exit 7\n')
    python.chmod(0o755)
    with pytest.raises(ConfigError, match="failed with 7"):
        install(tmp_path / "new", python=str(python))
    with pytest.raises(ConfigError, match="an incomplete evaluator environment"):
        python_of(tmp_path / "new")
    (tmp_path / "new/lib/python3.11/site-packages/desktop_env-1.0.2.dist-info").mkdir(parents=True)
    interpreter = python_of(tmp_path / "new")
    assert interpreter.is_file()
    interpreter.unlink()  # as if it was a link to one that an upgrade has removed
    with pytest.raises(ConfigError, match="an incomplete evaluator environment"):
        python_of(tmp_path / "new")


@pytest.fixture
def checkout(tmp_path):
    """A checkout of OSWorld's repository, with tasks, links, and code that may not run."""
    source = tmp_path / "OSWorld"
    for name in ("__init__.py", "evaluators/metrics/__init__.py", "evaluators/getters/__init__.py", "server/main.py"):
        file = source / "desktop_env" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n")
    (source / "desktop_env/evaluators/secret").symlink_to("/etc/hostname")
    (source / "setup.py").write_text('setup(\n    version="1.0.1",\n)\nraise SystemExit("run")\n')
    (source / "evaluation_examples").mkdir()
    return source


def git(folder, *command):
    words = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false", *command]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def installed(checkout, site):
    copy_evaluators(checkout, site)
    (about,) = site.glob("desktop_env-*.dist-info")
    return importlib.metadata.Distribution.at(about).version


def test_evaluators_of_a_checkout_are_named_by_its_commit_and_compared_with_that_of_the_tasks(checkout, tmp_path):
    site, tasks = tmp_path / "site", checkout / "evaluation_examples"
    (site / "desktop_env/old").mkdir(parents=True)
    (site / "desktop_env-1.0.2.dist-info").mkdir()
    by_content = installed(checkout, site)
    assert by_content.startswith("1.0.1+sha256.")
    found = {str(file.relative_to(site / "desktop_env")) for file in (site / "desktop_env").rglob("*.*")}
    assert found == {"__init__.py", "evaluators/metrics/__init__.py", "evaluators/getters/__init__.py"}
    git(checkout, "init", "--quiet")
    hook = checkout / ".git/watch"
    hook.write_text(f"#!/bin/sh\ntouch {tmp_path}/ran\n")
    hook.chmod(0o755)
    git(checkout, "add", "desktop_env")
    git(checkout, "commit", "--quiet", "-m", "one")
    git(checkout, "config", "core.fsmonitor", str(hook))
    commit = git(checkout, "rev-parse", "--short=12", "HEAD")
    version = installed(checkout, site)
    assert version == f"1.0.1+g{commit}"
    assert other_version(tasks, f"desktop-env {version}") == other_version(tmp_path, "desktop-env 1.0.2") == ""
    for other in ("1.0.2", by_content):
        found = other_version(tasks, f"desktop-env {other}")
        assert commit in found
        assert other in found
    (checkout / "desktop_env/evaluators/metrics/__init__.py").write_text("# changed\n")
    assert installed(checkout, site) == f"1.0.1+g{commit}.modified"
    assert not (tmp_path / "ran").exists(), "the checkout's own program was run"


def test_only_a_checkout_with_evaluators_is_installed_from(checkout, tmp_path):
    python = tmp_path / "python"
    python.write_text(
        '#!/bin/sh\ntest "$2" = pip || mkdir -p "$4/bin" "$4/lib/python3.11/site-packages"\n'
        'test "$2" = pip || cp "$0" "$4/bin/python"\n'
    )
    python.chmod(0o755)
    install(tmp_path / "home", python=str(python), source=checkout)
    assert (tmp_path / "home/lib/python3.11/site-packages/desktop_env/evaluators/metrics/__init__.py").is_file()
    with pytest.raises(ConfigError, match="desktop_env/evaluators"):
        install(tmp_path / "new", source=tmp_path)
    assert not (tmp_path / "new").exists()
    assert PACKAGE not in [word for command in commands(tmp_path, copied=True) for word in command]
