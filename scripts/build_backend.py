"""What `pip` builds the package with: scikit-build-core, which runs rankstruct/kernels/CMakeLists.txt, and two things of our own.

Where there is no C++ compiler or an old one, and on Windows, Zig's is taken, a package like any other that is there for the build
alone; the environment variable CXX names another, and CXX=zig asks for this one. And an editable install is a line with the path
of the checkout, which type checkers can follow; the compiled core is in the folder of its sources.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from scikit_build_core import build as skbuild
from scikit_build_core.build import build_sdist, get_requires_for_build_sdist, prepare_metadata_for_build_wheel

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

Settings = dict[str, Any] | None


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What is missing: CMake, Ninja, a compiler."""
    if _has_compiler():
        return skbuild.get_requires_for_build_wheel(config_settings)
    with _environment(CMAKE_GENERATOR="Ninja"):
        return [*skbuild.get_requires_for_build_wheel(config_settings), "ziglang>=0.14"]


def build_wheel(directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build a wheel for this platform and every version of Python."""
    if _has_compiler():
        return skbuild.build_wheel(directory, config_settings, metadata_directory)
    with tempfile.TemporaryDirectory() as cache, _environment(**_zig(cache)):
        return skbuild.build_wheel(directory, config_settings, metadata_directory)


def build_editable(directory: str, config_settings: Settings = None, metadata_directory: str | None = None) -> str:
    """Build the core in its place, and a wheel with nothing but the path to the checkout."""
    editable = {"wheel.packages": [], "cmake.define.RANKSTRUCT_EDITABLE": "ON"}
    return build_wheel(directory, {**(config_settings or {}), **editable}, metadata_directory)


get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


def _has_compiler() -> bool:
    """Whether CMake will find a compiler that is new enough (GCC 11, Clang 12)."""
    if "CXX" in os.environ:
        return os.environ["CXX"] != "zig"
    if sys.platform == "win32":  # Visual Studio's is another dialect
        return False
    if sys.platform == "darwin" and not _succeeds("xcode-select", "--print-path"):
        return False  # c++ is there, but only asks for Apple's tools
    compiler = next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)
    flags = ["-std=c++20", *(["-march=x86-64-v3"] if platform.machine() == "x86_64" else [])]
    return compiler is not None and _succeeds(compiler, *flags, "-fsyntax-only", "-x", "c++", os.devnull)


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _zig(cache: str) -> dict[str, str]:
    """The environment in which CMake compiles with Zig."""
    import ziglang

    zig = Path(ziglang.__file__).with_name("zig.exe" if sys.platform == "win32" else "zig")
    # Said beforehand: CMake finds it out by linking small programs, for which Zig compiles a whole C++ runtime.
    known = {"CMAKE_CXX_COMPILER_ID": "Clang", "CMAKE_CXX_COMPILER_ID_RUN": "ON", "CMAKE_CXX_COMPILER_FORCED": "ON"}
    defines = " ".join(f"-D{name}={value}" for name, value in {**known, "RANKSTRUCT_V3": "-mcpu=x86_64_v3"}.items())
    return {
        "CXX": f'"{zig.as_posix()}" c++',
        # Neither for the machine that builds, nor with checks while it runs.
        "CXXFLAGS": f"-mcpu=baseline -fno-sanitize=undefined {os.environ.get('CXXFLAGS', '')}",
        "LDFLAGS": f"-s {os.environ.get('LDFLAGS', '')}",
        "CMAKE_ARGS": f"{defines} {os.environ.get('CMAKE_ARGS', '')}",
        "CMAKE_GENERATOR": "Ninja",
        "ZIG_GLOBAL_CACHE_DIR": cache,
        "ZIG_LOCAL_CACHE_DIR": cache,
    }


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
