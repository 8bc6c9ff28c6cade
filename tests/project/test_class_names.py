"""A class name stands for one concept in the whole tree."""

import ast
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_no_two_modules_have_a_class_of_the_same_name():
    places = defaultdict(list)
    for folder in ("dartsim", "envs", "real", "experiments"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            for node in ast.parse(file.read_text("utf-8")).body:
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(file.relative_to(ROOT)))
    assert len(places) > 100
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
