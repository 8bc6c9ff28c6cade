"""The files of the pictures of docs/claims.md: what is in each, what tells which figures it shows, and its link."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from hashlib import sha256
from pathlib import Path

from experiments.claims_figures import ALTS, PICTURES
from experiments.common import Figures, recorded
from experiments.markdown import from_record

FOLDER = Path(__file__).resolve().parents[1] / "docs" / "figures"


def pictures() -> dict[Path, str]:
    """Return every picture, by its file; none where nothing is recorded. The last line says of which figures."""
    try:
        figures = recorded("claims")
    except FileNotFoundError:
        return {}
    last = f"<!-- {drawn_of(figures)} -->\n"
    return {FOLDER / f"{name}.svg": made(figures) + last for name, made in PICTURES.items()}


def drawn_of(figures: Figures) -> str:
    """Return what tells recorded figures apart."""
    return f"claims.json {sha256(json.dumps(figures, sort_keys=True).encode()).hexdigest()[:16]}"


def _link(name: str) -> Callable[[], str]:
    """Return what links to a picture, once there is one."""
    return from_record("claims", lambda _: f"![{ALTS[name]}](figures/{name}.svg)\n")


LINKS: Mapping[str, Callable[[], str]] = {f"{name}-picture": _link(name) for name in PICTURES}
"""The links, by their names on the page."""
