"""The virtual environment of the evaluator process: its installation and location.

``desktop-env`` requires 68 packages (7 GB, including torch), most of which no metric uses; its pins conflict with ours.
So the environment has only the packages that its metrics and getters import, at the required versions where these
matter.

OSWorld's tasks and evaluators change together, so tasks from a checkout of its repository need the evaluators of the
same checkout. These are copied; nothing in the checkout is run. Their version names its commit, and is stored with
every score.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

from dartsim.core.errors import ConfigError

PACKAGE = "desktop-env==1.0.2"
"""Its wheel also holds agents and providers, which nothing here imports."""

PACKAGES = (
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

PARTS = ("getters", "metrics")
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


def installed_version(home: Path) -> str | None:
    """Return the version of ``desktop-env`` in the environment; None if there is none, or it is incomplete."""
    about = sorted(home.glob("lib/python*/site-packages/desktop_env-*.dist-info"))  # installed last
    if not about or not (home / "bin" / "python").is_file():  # a link: the interpreter may be gone
        return None
    return about[-1].name.removeprefix("desktop_env-").removesuffix(".dist-info")


def python_of(home: Path) -> Path:
    """Return the environment's interpreter.

    Raises:
        ConfigError: If there is none, or its installation did not end.
    """
    if installed_version(home) is None:
        found = "an incomplete" if (home / "pyvenv.cfg").is_file() else "no"
        raise ConfigError(f"found {found} evaluator environment in {home}; `dartsim desktop evaluator` makes it anew")
    return home / "bin" / "python"


def commands(home: Path, *, ocr: bool = False, python: str = sys.executable, copied: bool = False) -> list[list[str]]:
    """Return the commands that make the environment, in order; see ``install``. ``copied``: without PyPI's package."""
    inside = str(home / "bin" / "python")
    pip = [inside, "-m", "pip", "install", "--disable-pip-version-check", "--quiet"]
    found = [[python, "-m", "venv", "--clear", str(home)], [*pip, *PACKAGES]]
    if ocr:
        found += [[*pip, *TORCH], [*pip, *OCR]]
    if not copied:
        found.append([*pip, "--no-deps", PACKAGE])
    return [*found, [inside, "-c", FETCH_WEIGHTS]] if ocr else found


def install(home: Path, *, ocr: bool = False, python: str = sys.executable, source: Path | None = None) -> None:
    """Make the environment afresh.

    Args:
        home: Where.
        ocr: With easyocr and its weights, which the metric ``compare_image_text`` reads screenshots with.
        python: The interpreter.
        source: A checkout of OSWorld's repository, whose evaluators are installed in place of PyPI's.

    Raises:
        ConfigError: If ``home`` or ``source`` is something else, or a command failed or cannot be run; its output goes
            to standard error.
    """
    if home.exists() and any(home.iterdir()) and not (home / "pyvenv.cfg").is_file():
        raise ConfigError(f"{home} is no virtual environment; name a folder that is empty or not there")
    if source is not None and not _has_evaluators(source):
        raise ConfigError(f"{source} has no desktop_env/evaluators; name a checkout of OSWorld's repository")
    for command in commands(home, ocr=ocr, python=python, copied=source is not None):
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
    if source is not None:
        copy_evaluators(source, next((home / "lib").glob("python3.*/site-packages")))


def copy_evaluators(source: Path, site: Path) -> None:
    """Put the evaluators of a checkout into a folder of packages, in place of others there."""
    for old in (*site.glob("desktop_env"), *site.glob("desktop_env-*.dist-info")):
        shutil.rmtree(old)
    for file in _evaluator_files(source):
        target = site / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, target)
    setup = source / "setup.py"
    found = re.search(r"version\s*=\s*[\"']([\w.]+)[\"']", setup.read_text("utf-8")) if setup.is_file() else None
    version = f"{found[1] if found else '0'}+{checkout_version(source)}"
    about = site / f"desktop_env-{version}.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: desktop-env\nVersion: {version}\n")


def checkout_version(source: Path) -> str:
    """Return the commit of a checkout, ``.modified`` if its evaluators are not those of the commit, or their hash."""
    commit = _git(source, "rev-parse", "--short=12", "HEAD") if (source / ".git").exists() else None
    if commit:
        modified = _git(source, "status", "--porcelain", "--", "desktop_env")
        return f"g{commit}{'.modified' if modified else ''}"
    digest = hashlib.sha256()
    for file in _evaluator_files(source):
        digest.update(f"{file.relative_to(source)}\0{file.stat().st_size}\0".encode() + file.read_bytes())
    return f"sha256.{digest.hexdigest()[:12]}"


def other_version(tasks: Path, scorer: str) -> str:
    """Say how an evaluator differs from the checkout that task files lie in; nothing if it does not, or there is none.

    Args:
        tasks: The folder of the task files.
        scorer: Name and version of the evaluator.
    """
    source = next((folder for folder in (tasks.resolve(), *tasks.resolve().parents) if _has_evaluators(folder)), None)
    if source is None or not scorer.startswith("desktop-env "):
        return ""
    version = checkout_version(source)
    if scorer.endswith(f"+{version}"):
        return ""
    return (
        f"the tasks are of the checkout {source} ({version}), the evaluator is {scorer}: scores may differ from those "
        f"that the tasks were written for; `dartsim desktop evaluator --from {source}` installs theirs"
    )


def _has_evaluators(source: Path) -> bool:
    return all((source / "desktop_env" / "evaluators" / part / "__init__.py").is_file() for part in PARTS)


def _evaluator_files(source: Path) -> list[Path]:
    """Return the files of the package that metrics and getters may import, without links."""
    package = source / "desktop_env"
    found = [
        *package.glob("*.py"),
        *(file for part in ("controllers", "evaluators") for file in (package / part).rglob("*")),
    ]
    return sorted(
        file for file in found if file.is_file() and not file.is_symlink() and "__pycache__" not in file.parts
    )


def _git(folder: Path, *command: str) -> str | None:
    """Return what git says of a checkout; nothing of the checkout is run."""
    words = ["git", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null", "-C", str(folder), *command]
    try:
        done = subprocess.run(words, check=False, capture_output=True, text=True)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None
