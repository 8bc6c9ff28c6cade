"""The metric of accessibility trees; needs ``lxml``, and ``cssselect`` for CSS selectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dartsim.real.osworld.metrics.match import likeness

_PREFIXES = {
    "st": "state",
    "attr": "attributes",
    "cp": "component",
    "doc": "document",
    "docattr": "document/attributes",
    "txt": "text",
    "val": "value",
    "act": "action",
}
_SYSTEM_PREFIXES = {"ubuntu": {}, "windows": {"class": "class"}, "macos": {"role": "role"}}


def check_accessibility_tree(
    result: str | None, rules: Sequence[Mapping[str, Any]], *, osname: str = "ubuntu"
) -> float:
    """Return the product over the rules of how well the best element that a rule selects fits it.

    A rule has an ``xpath``, or CSS ``selectors``, and perhaps a ``text``, which an element has (``exact``) or
    resembles. An element that is not there counts 0.
    """
    import lxml.etree

    if not result:
        return 0.0
    spaces = {
        prefix: f"https://accessibility.{osname}.example.org/ns/{path}"
        for prefix, path in (_PREFIXES | _SYSTEM_PREFIXES[osname]).items()
    }
    # The tree comes from the desktop: no entities, no network.
    tree = lxml.etree.fromstring(result.encode(), lxml.etree.XMLParser(resolve_entities=False, no_network=True))
    score = 1.0
    for rule in rules:
        score *= max((_fit(element.text or "", rule) for element in _select(tree, rule, spaces)), default=0.0)
    return score


def _select(tree: Any, rule: Mapping[str, Any], spaces: Mapping[str, str]) -> list[Any]:
    if "xpath" in rule:
        return list(tree.xpath(rule["xpath"], namespaces=dict(spaces)))
    from lxml.cssselect import CSSSelector

    return list(CSSSelector(", ".join(rule["selectors"]), namespaces=dict(spaces))(tree))


def _fit(text: str, rule: Mapping[str, Any]) -> float:
    if "text" not in rule:
        return 1.0
    return float(text == rule["text"]) if rule.get("exact", True) else likeness(text, rule["text"])
