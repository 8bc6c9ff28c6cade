"""The modules in C, which an editable install does not have."""

import os
import shutil
import sysconfig
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest

import dartsim.sim

FOLDER = Path(dartsim.sim.__file__).parent


@pytest.fixture(scope="session")
def compiled_source(tmp_path_factory):
    """Return a function that compiles a C source of ``dartsim.sim`` and returns the path of the extension."""

    def compile_source(name):
        setuptools = pytest.importorskip("setuptools")
        compiler = (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]
        if not shutil.which(compiler) or not Path(sysconfig.get_path("include"), "Python.h").exists():
            pytest.skip("no C compiler, or no headers of Python")
        folder = tmp_path_factory.mktemp(name)
        options = ["-O1", "-Wall", "-Werror=implicit-function-declaration"]
        extension = setuptools.Extension(name, [str(FOLDER / f"{name}.c")], extra_compile_args=options)
        build = setuptools.Distribution({"ext_modules": [extension]}).get_command_obj("build_ext")
        build.build_lib = build.build_temp = str(folder)
        build.ensure_finalized()
        build.run()
        return next(path for suffix in EXTENSION_SUFFIXES for path in folder.glob(f"{name}*{suffix}"))

    return compile_source
