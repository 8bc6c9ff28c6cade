"""The folder that the engine's interpreter gets on its path: our plugin with its entry points, and the CPU shim.

The engine lives in an environment of its own, whose pins differ from ours; nothing has to be installed into it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from real.inference import plugin

MODULE = "dartsim_vllm_plugin"
"""Name of the plugin's copy. It must not be ours: the engine's environment may hold another version of this package."""


def write_site(folder: Path) -> Path:
    """Write the folder, and return it; writing it again changes nothing."""
    here = Path(__file__).parent
    facts = folder / f"{MODULE}-1.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(here / "plugin.py", folder / f"{MODULE}.py")
    shutil.copyfile(here / "torchvision_cpu.py", folder / "sitecustomize.py")
    (facts / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1\n", encoding="utf-8")
    (facts / "entry_points.txt").write_text(plugin.ENTRY_POINTS.format(module=MODULE), encoding="utf-8")
    return folder
