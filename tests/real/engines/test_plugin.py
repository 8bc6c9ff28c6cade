from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dartsim.real.engines import plugin
from dartsim.real.engines.launcher import MODULE, write_site
from dartsim.real.vlm.export import GRAMMAR_FILE


def test_the_site_folder_offers_the_plugin_to_the_engines_interpreter(tmp_path: Path) -> None:
    site = write_site(write_site(tmp_path / "site"))
    program = (
        "from importlib.metadata import entry_points\n"
        "import sys\n"
        "for group in ('vllm.general_plugins', 'vllm.logits_processors'):\n"
        "    for point in entry_points(group=group):\n"
        "        print(point.value)\n"
        "print('sitecustomize' in sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={"PYTHONPATH": str(site)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert f"{MODULE}:register" in done.stdout
    assert f"{MODULE}:GrammarProcessor" in done.stdout
    assert done.stdout.endswith("True\n")


def test_the_plugin_needs_nothing_of_this_package() -> None:
    text = Path(plugin.__file__).read_text(encoding="utf-8")
    assert "import dartsim" not in text
    assert "from dartsim" not in text
    assert metadata.version("numpy")
    with pytest.raises(AttributeError):
        plugin.__getattr__("Nothing")


def test_the_grammar_is_walked_like_the_learner_walks_it(models: Any) -> None:
    follows = np.load(models.folders[0] / GRAMMAR_FILE)["follows"]
    grammar = models.vlms[0].grammar
    assert (follows == grammar.follows).all()
    said = grammar.tokens("drag 1 2 3 4")
    tokens: list[int] = []
    reply = plugin._Reply(tokens)
    for token, state in zip(said, grammar.states(said), strict=True):
        assert reply.walk(follows) == state
        tokens.append(token)
    assert reply.walk(follows) == -1
    tokens.append(0)  # whatever comes after the end
    assert reply.walk(follows) == -1
    del tokens[2:]  # preempted: the reply is begun anew
    assert reply.walk(follows) == grammar.states(said)[2]
    tokens.append(-1)
    with pytest.raises(RuntimeError, match="no-async-scheduling"):
        reply.walk(follows)


def test_names_of_files_agree() -> None:
    assert plugin.GRAMMAR_FILE == GRAMMAR_FILE
