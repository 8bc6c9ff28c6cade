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
    "librosa",
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
"""What the evaluators of ``desktop-env`` import, without easyocr (a metric) and pydrive (a getter)."""

TORCH = ("--index-url", "https://download.pytorch.org/whl/cpu", "torch", "torchvision")
"""What easyocr computes with; the ordinary index has the CUDA build, of several GB."""
OCR = ("easyocr", "numpy>=1.26,<2", "opencv-python-headless>=4.5,<4.12")
FETCH_WEIGHTS = """import os, sys
os.environ["EASYOCR_MODULE_PATH"] = os.path.join(sys.prefix, "easyocr")
import easyocr
easyocr.Reader(["en"], gpu=False, verbose=False)
"""
"""Makes easyocr download its weights to where the sandboxed metric looks for them."""


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
        raise ConfigError(f"found no evaluator environment in {home}, wanted one made by `dartsim osworld install`")
    return python


def commands(home: Path, *, light: bool, ocr: bool = False, python: str = sys.executable) -> list[list[str]]:
    """Return the commands that make the environment, in order; see ``install``."""
    pip = [str(home / "bin" / "python"), "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    make = [python, "-m", "venv", "--clear", str(home)]
    reading = [[*pip, *TORCH], [*pip, *OCR]] if ocr and light else []
    weights = [[str(home / "bin" / "python"), "-c", FETCH_WEIGHTS]] if ocr else []
    if not light:
        return [make, [*pip, PACKAGE], *weights]
    return [make, [*pip, *LIGHT], *reading, [*pip, "--no-deps", PACKAGE], *weights]


def install(home: Path, *, light: bool, ocr: bool = False, python: str = sys.executable) -> None:
    """Make the environment afresh.

    Args:
        home: Where.
        light: Only what metrics and getters import, in a minute; otherwise all of ``desktop-env``, 7 GB.
        ocr: With easyocr and its weights, which the metric ``compare_image_text`` reads screenshots with.
        python: The interpreter.

    Raises:
        ConfigError: If ``home`` is something else, or a command failed or cannot be run; its output goes to standard
            error.
    """
    if home.exists() and any(home.iterdir()) and not (home / "pyvenv.cfg").is_file():
        raise ConfigError(f"{home} is no virtual environment; name a folder that is empty or not there")
    for command in commands(home, light=light, ocr=ocr, python=python):
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
