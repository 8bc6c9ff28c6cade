"""The page as one file: the modules, the style and the documents of runs inlined, allowed by their hashes."""

from __future__ import annotations

import gzip
import json
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from hashlib import sha256
from importlib.resources import files
from string import Template
from typing import Any
from urllib.parse import quote

from dartsim.observe.page.documents import RunDocuments
from dartsim.observe.page.runs import UNREADABLE, Site

WEB = files("dartsim.observe.page") / "web"
"""Package data: ``page.html``, which is a template, its style and modules."""
MAX_CHUNK_BYTES = 220_000
"""Compressed bytes of the newest single stays that a file holds of each run."""
MAX_TURN_BYTES = 80_000
"""Compressed bytes of turns that a file holds of each run, those of the newest attempts."""

MODULES = ("dom", "state", "source", "draw/plot", "draw/moves", "draw/bars", "draw/lines", "draw/lanes")
VIEWS = ("attempts", "now", "schedule", "learning", "player", "runs", "study")
"""Modules in the order of their imports; ``app.js`` comes last. A name may stand at the top level of one only."""
IMPORT_OR_EXPORT = re.compile(r"^(import .*;$|export )", re.MULTILINE)


def site_documents(site: Site, *, turns: bool = True, pictures: bool = False) -> dict[str, Any]:
    """Return the documents that a file holds, by path; single stays and turns of the newest time only.

    Of several runs, one that cannot be read has the error in place of its documents.

    Args:
        site: The runs.
        turns: Whether to hold turns at all.
        pictures: Whether to add the screenshots of these turns, as data URLs.
    """
    held: dict[str, Any] = {"runs": site.get(["runs"])}
    if site.study is not None:
        held["study"] = site.study()
    for row in held["runs"]:
        prefix, run = quote(row["id"], safe=""), site.run(row["id"])
        if row["state"] == UNREADABLE and len(held["runs"]) > 1:
            held |= {f"{prefix}/{path}": {"error": row["error"]} for path in run.names}
        else:
            _add_run(held, prefix, run, turns=turns, pictures=pictures)
    return held


def _add_run(held: dict[str, Any], prefix: str, run: RunDocuments, *, turns: bool, pictures: bool) -> None:
    for path in run.names:
        held[f"{prefix}/{path}"] = run.get(path)
    chunks, attempts = held[f"{prefix}/lanes"]["chunks"], held[f"{prefix}/attempts"]
    with_turns = [n for n, has in zip(attempts["attempt"], attempts["has_turns"], strict=True) if has and turns]
    _add(held, prefix, run, [f"lanes/{chunk['id']}" for chunk in reversed(chunks)], MAX_CHUNK_BYTES)
    for path in _add(held, prefix, run, [f"attempt/{number}" for number in reversed(with_turns)], MAX_TURN_BYTES):
        for screen in {turn["screen"] for turn in held[f"{prefix}/{path}"]["turns"]} if pictures else ():
            if screen is not None:
                picture = b64encode(run.screen(f"{screen}.png")).decode()
                held[f"{prefix}/screen/{screen}.png"] = f"data:image/png;base64,{picture}"


def _add(held: dict[str, Any], prefix: str, run: RunDocuments, paths: Iterable[str], room: int) -> list[str]:
    """Add documents as long as there is room, in compressed bytes; return their paths."""
    added = []
    for path in paths:
        document = run.get(path)
        room -= len(gzip.compress(_json(document).encode(), compresslevel=1))
        if room < 0:
            break
        held[f"{prefix}/{path}"] = document
        added.append(path)
    return added


def page_file(documents: Mapping[str, Any] | None = None) -> str:
    """Return the page as HTML: one that holds documents, or one that asks its server for them."""
    style, script = _style_and_script()
    data = b"" if documents is None else gzip.compress(_json(documents).encode(), mtime=0)
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; img-src 'self' data: blob:; "
        "connect-src 'self'; base-uri 'none'; form-action 'none'"
    )
    page = Template((WEB / "page.html").read_text(encoding="utf-8"))
    return page.substitute(policy=policy, style=style, script=script, documents=b64encode(data).decode())


@cache
def _style_and_script() -> tuple[str, str]:
    modules = (
        (WEB / f"{name}.js").read_text(encoding="utf-8") for name in (*MODULES, *(f"views/{v}" for v in VIEWS), "app")
    )
    script = IMPORT_OR_EXPORT.sub("", "\n".join(modules)).replace("</script", "<\\/script")
    return (WEB / "page.css").read_text(encoding="utf-8"), script


def _json(document: Any) -> str:
    return json.dumps(document, separators=(",", ":"), allow_nan=False)


def _hash(text: str) -> str:
    return f"sha256-{b64encode(sha256(text.encode()).digest()).decode()}"
