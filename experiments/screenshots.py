"""The picture of the README: the page of a run, its schedule above the player, taken in Chromium.

python -m experiments.screenshots          two hours of simulated desktops, and a policy that learns: two minutes
"""

from __future__ import annotations

import argparse
import io
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path
from typing import Any

from PIL import Image

from dartsim.cli.live import site_of
from dartsim.observe.page.server import PageServer

PICTURE = Path(__file__).resolve().parent.parent / "docs" / "figures" / "page.png"
WIDTH, SCHEDULE_HEIGHT, PLAYER_HEIGHT = 800, 480, 700
"""As wide as a README is shown, so that its text can be read."""
RUNS = {"schedule": ("dart-measured", "run.hours=2"), "player": ("errands", "run.updates=12")}
"""The run that each view shows: its preset, and what is set."""
SHOWN_SECONDS = (5400.0, 5700.0)


def main() -> None:
    """Make both runs, and write the picture."""
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        for view, (preset, setting) in RUNS.items():
            command = [sys.executable, "-m", "dartsim", "run", preset, "--set", setting, "--out", f"{scratch}/{view}"]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        site = site_of([Path(scratch, view) for view in RUNS], Path(scratch))
        attempt = telling_attempt(site.get(["player", "attempts"]))
        server = PageServer(site)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            views = (
                (f"runs=schedule&view=schedule&from={SHOWN_SECONDS[0]}&to={SHOWN_SECONDS[1]}", SCHEDULE_HEIGHT),
                (f"runs=player&view=player&attempt={attempt}", PLAYER_HEIGHT),
            )
            parts = [Image.open(io.BytesIO(taken)) for taken in screenshots(server.url, views)]
        finally:
            server.shutdown()
            server.close()
    whole = Image.new("RGB", (WIDTH, sum(part.height for part in parts)))
    whole.paste(parts[0], (0, 0))
    whole.paste(parts[1], (0, parts[0].height))
    whole.quantize(128, method=Image.Quantize.FASTOCTREE, dither=Image.Dither.NONE).save(PICTURE, optimize=True)
    print(f"{PICTURE} {PICTURE.stat().st_size / 1024:.0f} KiB")


def telling_attempt(columns: dict[str, Any]) -> int:
    """Return the success with most turns among attempts that were trained on and whose turns are kept, the newest.

    Raises:
        ValueError: If there is none.
    """
    names = ("attempt", "num_turns", "reward", "state", "has_turns")
    rows = zip(*(columns[name] for name in names), strict=True)
    fit = (
        (turns, number) for number, turns, reward, state, kept in rows if kept and reward == 1.0 and state == "trained"
    )
    return int(max(fit)[1])


def screenshots(address: str, views: tuple[tuple[str, int], ...]) -> list[bytes]:
    """Return a PNG of each view, given its part of the address and its height in pixels."""
    from playwright.sync_api import sync_playwright

    taken = []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for view, height in views:
            page = browser.new_page(viewport={"width": WIDTH, "height": height}, color_scheme="light")
            page.goto(f"{address}#{view}")
            page.wait_for_selector("main[data-drawn]")
            page.wait_for_timeout(1500.0)  # stays and screenshots have come
            taken.append(page.screenshot())
        browser.close()
    return taken


if __name__ == "__main__":
    main()
