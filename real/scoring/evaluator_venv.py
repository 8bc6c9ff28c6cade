"""The virtual environment of the evaluator process: how it is made and where it lies.

``desktop-env`` asks for 68 packages (7 GB, torch among them), most of which no metric uses; its pins conflict with
ours. The light form has what its metrics and getters import, at the versions it asks for where they differ by more
than a name.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from dartsim.core.errors import ConfigError

PACKAGE = "desktop-env==1.0.2"
"""Its wheel also holds agents and providers, which nothing here imports."""

LIGHT = (
    "beautifulsoup4",
    "cssselect",
    "fastdtw",
    "formulas",
    "ImageHash",
    "lxml",
    "mutagen",
    "numpy>=1.26,<2",
    "odfpy",
    "opencv-python-headless>=4.5,<4.12",  # newer ones want numpy 2
    "openpyxl",
    "pandas>=2.2,<2.3",
    "pdfplumber",
    "pillow~=11.0.0",
    "playwright",
    "pyacoustid",
    "pymupdf>=1.24,<1.26",  # newer ones bring an inference engine
    "pypdf",
    "PyPDF2",
    "python-docx",
    "python-pptx",
    "pytz",
    "PyYAML",
    "rapidfuzz",
    "requests",
    "scikit-image",
    "tldextract",
    "xmltodict",
)
"""What the evaluators of ``desktop-env`` import, without easyocr and librosa (a metric each) and pydrive (a getter)."""


def default_home() -> Path:
    """Return where the environment lies unless another place is configured: in the user's cache."""
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "dartsim" / "evaluator"


def python_of(home: Path) -> Path:
    """Return the environment's interpreter.

    Raises:
        ConfigError: If there is none.
    """
    python = home / "bin" / "python"
    if not python.is_file():
        raise ConfigError(f"found no evaluator environment in {home}, wanted one made by `dartsim evaluator install`")
    return python


def commands(home: Path, *, light: bool, python: str = sys.executable) -> list[list[str]]:
    """Return the commands that make the environment, in order."""
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    make = [python, "-m", "venv", "--clear", str(home)]
    if not light:
        return [make, [*pip, PACKAGE]]
    return [make, [*pip, *LIGHT], [*pip, "--no-deps", PACKAGE]]


def install(home: Path, *, light: bool, python: str = sys.executable) -> None:
    """Make the environment afresh. The light form takes a minute and 0.8 GB, the full one minutes and 7 GB.

    Raises:
        ConfigError: If ``home`` is something else, or a command failed or cannot be run; its output goes to standard
            error.
    """
    if home.exists() and any(home.iterdir()) and not (home / "pyvenv.cfg").is_file():
        raise ConfigError(f"{home} is no virtual environment; name a folder that is empty or not there")
    for command in commands(home, light=light, python=python):
        try:
            done = subprocess.run(command, check=False, stdout=sys.stderr)
        except OSError as error:
            raise ConfigError(
                f"{command[0]} cannot be run ({error.strerror}); desktop-env wants Python 3.10 to 3.12, name one with "
                "--python"
            ) from None
        if done.returncode:
            raise ConfigError(
                f"`{' '.join(command[:6])} …` failed with {done.returncode}; desktop-env wants Python 3.10 to 3.12, "
                "name one with --python"
            )
