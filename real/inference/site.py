"""The folder that the engine's interpreter gets on its path: our plugin with its entry points, and the CPU shim.

The engine lives in an environment of its own, whose pins differ from ours; nothing has to be installed into it.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from dartsim.real.inference import plugin

MODULE = "dartsim_vllm_plugin"
"""Name of the plugin's copy. It must not be ours: the engine's environment may hold another version of this package."""


def write_site(folder: Path) -> Path:
    """Write the folder, and return it; writing it again changes nothing, also for an engine that just reads it."""
    here = Path(__file__).parent
    facts = folder / f"{MODULE}-1.dist-info"
    facts.mkdir(parents=True, exist_ok=True)
    _write(folder / f"{MODULE}.py", (here / "plugin.py").read_bytes())
    _write(folder / "sitecustomize.py", (here / "torchvision_cpu.py").read_bytes())
    _write(facts / "METADATA", f"Metadata-Version: 2.1\nName: {MODULE}\nVersion: 1\n".encode())
    _write(facts / "entry_points.txt", plugin.ENTRY_POINTS.format(module=MODULE).encode())
    return folder


def _write(file: Path, content: bytes) -> None:
    """Put a file there as a whole: engines are started beside one another, and share the folder."""
    if file.is_file() and file.read_bytes() == content:
        return
    handle, name = tempfile.mkstemp(dir=file.parent)
    with os.fdopen(handle, "wb") as partial:
        partial.write(content)
    Path(name).replace(file)
