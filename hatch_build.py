"""Compiles the hot modules into the wheel. Where that cannot be done, the wheel is pure Python.

``pyproject.toml`` lists the modules: Python, which mypyc compiles, and C beside the same module in Python.
``DARTSIM_COMPILE=1`` makes a failure an error, and compiles in place for an editable install; ``DARTSIM_COMPILE=0``
compiles nothing.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

HELPER = "dartsim.native"
"""mypyc puts all its code into one extension, ``dartsim/native__mypyc``, and a stub beside each module."""

# Only the listed modules and the types that they need are read, so that a build needs none of our dependencies.
MYPY = """[mypy]
explicit_package_bases = True
follow_imports = skip
ignore_missing_imports = True
disable_error_code = misc
"""


class CompiledModules(BuildHookInterface[Any]):
    """Adds the extensions to a wheel."""

    def dependencies(self) -> list[str]:
        return [] if self._why_not() else self.config["requires"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        required = os.environ.get("DARTSIM_COMPILE") == "1"
        editable = version == "editable"
        if self.target_name != "wheel" or (editable and not required):
            return
        why = self._why_not()
        if not why:
            self.scratch = tempfile.TemporaryDirectory()
            try:
                built = compiled(Path(self.root), Path(self.scratch.name), self.config["modules"], self.config["types"])
            except (Exception, SystemExit) as failure:
                why = f"{type(failure).__name__}: {failure}"
        if why:
            if required:
                raise RuntimeError(f"dartsim could not be compiled: {why}")
            self.app.display_warning(f"dartsim is not compiled and runs as pure Python: {why}")
            return
        if editable:
            for path, place in built.items():
                shutil.copyfile(path, Path(self.root, place))
            return
        build_data["force_include"].update({str(path): place for path, place in built.items()})
        build_data.update(pure_python=False, infer_tag=True)

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "scratch"):
            self.scratch.cleanup()

    @staticmethod
    def _why_not() -> str:
        """Return why nothing can be compiled here; empty if it may succeed."""
        if os.environ.get("DARTSIM_COMPILE") == "0":
            return "DARTSIM_COMPILE is 0"
        compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
        if shutil.which(compiler) is None:
            return f"no C compiler ({compiler})"
        if not Path(sysconfig.get_path("include"), "Python.h").exists():
            return "no headers of Python (python3-dev)"
        return ""


def compiled(root: Path, scratch: Path, modules: list[str], types: list[str]) -> dict[Path, str]:
    """Compile modules; return where each extension is, and its place in the wheel."""
    from mypyc.build import mypycify
    from setuptools import Distribution, Extension

    settings = scratch / "mypy.ini"
    settings.write_text(MYPY + "".join(f"[mypy-{name}]\nfollow_imports = silent\n" for name in types))
    build = scratch / "lib"
    # The same bytes wherever it is built: no debugging symbols, no path of this folder.
    os.environ["CFLAGS"] = f"{os.environ.get('CFLAGS', '')} -ffile-prefix-map={scratch}=. -w"
    with contextlib.chdir(root):
        extensions = mypycify(
            [f"--config-file={settings}", f"--cache-dir={scratch / 'cache'}", *_with_suffix(modules, ".py")],
            opt_level="2",
            debug_level="0",
            target_dir=str(scratch / "c"),
            group_name=HELPER,
        )
        extensions += [
            Extension(source.removesuffix(".c").replace("/", "."), [source], extra_compile_args=["-O2"])
            for source in _with_suffix(modules, ".c")
        ]
        command = Distribution({"name": "dartsim", "ext_modules": extensions}).get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(build), str(scratch / "temp")
        command.ensure_finalized()
        command.run()
    return {path: path.relative_to(build).as_posix() for path in sorted(build.rglob("*")) if path.is_file()}


def _with_suffix(modules: list[str], suffix: str) -> list[str]:
    return [module for module in modules if module.endswith(suffix)]
