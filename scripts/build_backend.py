"""What `pip` builds the package with: scikit-build-core, which runs rankstruct/kernels/CMakeLists.txt, and two things of our own.

Where there is no C++ compiler or an old one, and on Windows, Zig's is taken, a package like any other that is there for the build
alone; the environment variable CXX names another, and CXX=zig asks for this one. And an editable install is a line with the path
of the checkout, which type checkers can follow; the compiled core is put next to its sources, and compiled again only when these,
the compiler or its flags have changed.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
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
    """Build the core in its place, unless it is there, and a wheel with nothing but the path to the checkout."""
    settings = {**(config_settings or {}), "wheel.packages": [], "cmake.define.RANKSTRUCT_EDITABLE": "ON"}
    asked = _digest_of_request(config_settings)
    try:
        built = _RECORD.read_text(encoding="ascii") == f"{asked} {_digest_of_core()}"
    except OSError:
        built = False
    if built:
        return skbuild.build_wheel(directory, {**settings, "cmake.define.RANKSTRUCT_BUILT": "ON"}, metadata_directory)
    _RECORD.unlink(missing_ok=True)
    wheel = build_wheel(directory, settings, metadata_directory)
    _RECORD.parent.mkdir(exist_ok=True)
    _RECORD.write_text(f"{asked} {_digest_of_core()}", encoding="ascii")
    return wheel


get_requires_for_build_editable = get_requires_for_build_wheel
prepare_metadata_for_build_editable = prepare_metadata_for_build_wheel


#: Of the last editable build: digests of what was asked for and of the libraries. pip runs the build in the root of the checkout.
_RECORD = Path("build", "editable.txt")
_KERNELS = Path("rankstruct", "kernels")


def _digest_of_request(config_settings: Settings) -> str:
    """Of all that decides what the compiled core is: its sources, the compiler, flags and settings."""
    variables = ("CXX", "CXXFLAGS", "LDFLAGS", "CMAKE_ARGS", "MACOSX_DEPLOYMENT_TARGET")
    words = [platform.platform(), config_settings, *map(os.environ.get, variables)]
    if _has_compiler():
        with suppress(OSError):
            command = [os.environ.get("CXX") or _find_compiler() or "", "--version"]
            words.append(subprocess.run(command, capture_output=True, check=False).stdout)
    sources = [path for pattern in ("*.hpp", "*.cpp", "CMakeLists.txt") for path in sorted(_KERNELS.glob(pattern))]
    return _digest_of([Path(__file__), *sources], repr(words))


def _digest_of_core() -> str:
    """Of the compiled libraries.

    Raises:
        FileNotFoundError: there is none.
    """
    libraries = sorted(_KERNELS.glob("_core*.*"))
    if not libraries:
        raise FileNotFoundError("no compiled core")
    return _digest_of(libraries)


def _digest_of(paths: list[Path], text: str = "") -> str:
    digest = hashlib.sha256(text.encode())
    for path in paths:
        digest.update(f"{path.name} {path.stat().st_size} ".encode() + path.read_bytes())
    return digest.hexdigest()


def _has_compiler() -> bool:
    """Whether CMake will find a compiler that is new enough (GCC 11, Clang 12)."""
    if "CXX" in os.environ:
        return os.environ["CXX"] != "zig"
    if sys.platform == "win32":  # Visual Studio's is another dialect
        return False
    if sys.platform == "darwin" and not _succeeds("xcode-select", "--print-path"):
        return False  # c++ is there, but only asks for Apple's tools
    compiler = _find_compiler()
    flags = ["-std=c++20", *(["-march=x86-64-v3"] if platform.machine() == "x86_64" else [])]
    return compiler is not None and _succeeds(compiler, *flags, "-fsyntax-only", "-x", "c++", os.devnull)


def _find_compiler() -> str | None:
    return next(filter(None, map(shutil.which, ("c++", "g++", "clang++"))), None)


def _succeeds(*command: str) -> bool:
    return subprocess.run(command, capture_output=True, check=False).returncode == 0


def _zig(cache: str) -> dict[str, str]:
    """The environment in which CMake compiles with Zig."""
    import ziglang

    zig = Path(ziglang.__file__).with_name("zig.exe" if sys.platform == "win32" else "zig")
    # Set explicitly: CMake would test it by linking small programs, for which Zig compiles a whole C++ runtime.
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
