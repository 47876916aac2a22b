"""The build asks for a compiler where there is none, and an editable install is a path.

scikit-build-core, which is there for builds alone, is replaced by something that remembers what it was asked for.
"""

import os
import sys
from types import ModuleType

import pytest
from scripts_by_path import script


@pytest.fixture
def calls(monkeypatch):
    """What scikit-build-core is asked to do, with the environment of each call."""
    made = []
    build = ModuleType("scikit_build_core.build")
    for name in (
        *("get_requires_for_build_wheel", "get_requires_for_build_sdist", "prepare_metadata_for_build_wheel"),
        *("build_wheel", "build_sdist"),
    ):

        def call(*given, name=name):
            made.append((name, given, dict(os.environ)))
            return ["ninja"]

        setattr(build, name, call)
    package = ModuleType("scikit_build_core")
    package.build = build
    zig = ModuleType("ziglang")
    zig.__file__ = "/packages/ziglang/__init__.py"
    for module in (package, build, zig):
        monkeypatch.setitem(sys.modules, module.__name__, module)
    return made


def test_where_there_is_no_compiler_one_is_asked_for_and_used(calls, monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = script("build_backend")
    before = dict(os.environ)
    for needed in (backend.get_requires_for_build_wheel(), backend.get_requires_for_build_editable()):
        assert [name.split(">")[0] for name in needed] == ["ninja", "ziglang"]
    backend.build_wheel("here")
    assert dict(os.environ) == before
    *asked, (_, _, environment) = calls
    assert all(given["CMAKE_GENERATOR"] == "Ninja" for _, _, given in asked)
    assert environment["CXX"].startswith('"/packages/ziglang/zig')
    assert not os.path.exists(environment["ZIG_LOCAL_CACHE_DIR"])


def test_a_compiler_that_is_named_is_left_to_cmake(calls, monkeypatch):
    backend = script("build_backend")
    monkeypatch.setenv("CXX", "zig")
    assert "ziglang>=0.14" in backend.get_requires_for_build_wheel()
    monkeypatch.setenv("CXX", "/opt/bin/c++")
    assert backend.get_requires_for_build_wheel() == ["ninja"]
    backend.build_wheel("here")
    assert calls[-1][2]["CXX"] == "/opt/bin/c++"


@pytest.mark.skipif(sys.platform == "win32", reason="takes Zig's whatever there is")
def test_an_old_compiler_is_none(calls, monkeypatch, tmp_path):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    backend = script("build_backend")
    for code, needed in ((0, ["ninja"]), (1, ["ninja", "ziglang>=0.14"])):
        for name in ("c++", "xcode-select"):
            (tmp_path / name).write_text(f"#!/bin/sh\nexit {code}\n")
            (tmp_path / name).chmod(0o755)
        assert backend.get_requires_for_build_wheel() == needed


def test_an_editable_wheel_holds_no_package(calls, monkeypatch, tmp_path):
    (tmp_path / "rankstruct" / "kernels").mkdir(parents=True)
    (tmp_path / "rankstruct" / "kernels" / "_core.so").write_bytes(b"one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "c++")
    script("build_backend").build_editable("here", {"cmake.build-type": "Debug"}, "metadata")
    (name, (directory, settings, metadata), _) = calls[-1]
    assert (name, directory, metadata) == ("build_wheel", "here", "metadata")
    assert settings["wheel.packages"] == []
    assert settings["cmake.define.RANKSTRUCT_EDITABLE"] == "ON"
    assert settings["cmake.build-type"] == "Debug"


def test_the_core_is_compiled_again_only_if_something_changed(calls, monkeypatch, tmp_path):
    kernels = tmp_path / "rankstruct" / "kernels"
    kernels.mkdir(parents=True)
    (kernels / "kernels.cpp").write_text("int a;")
    library = kernels / "_core.so"
    library.write_bytes(b"one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "c++")
    backend = script("build_backend")

    def compiles(**settings):
        backend.build_editable("here", settings or None)
        return "cmake.define.RANKSTRUCT_BUILT" not in calls[-1][1][1]

    assert [compiles(), compiles()] == [True, False]
    for change in (
        lambda: (kernels / "kernels.cpp").write_text("int b;"),
        lambda: (kernels / "new.hpp").write_text(""),
        lambda: library.write_bytes(b"two"),
        lambda: monkeypatch.setenv("CXXFLAGS", "-O0"),
        lambda: (tmp_path / "build" / "editable.txt").write_text(""),
        lambda: (tmp_path / "build" / "editable.txt").unlink(),
    ):
        change()
        assert [compiles(), compiles()] == [True, False]
    assert compiles(**{"cmake.build-type": "Debug"})
    library.unlink()
    with pytest.raises(FileNotFoundError, match="no compiled core"):
        compiles()


def test_a_build_that_fails_is_tried_again(calls, monkeypatch, tmp_path):
    (tmp_path / "rankstruct" / "kernels").mkdir(parents=True)
    (tmp_path / "rankstruct" / "kernels" / "_core.so").write_bytes(b"one")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CXX", "c++")
    backend = script("build_backend")
    backend.build_editable("here")
    (tmp_path / "rankstruct" / "kernels" / "new.hpp").write_text("")
    with monkeypatch.context() as patch:
        patch.setattr(backend.skbuild, "build_wheel", lambda *_: (_ for _ in ()).throw(OSError("the disk is full")))
        with pytest.raises(OSError, match="full"):
            backend.build_editable("here")
    backend.build_editable("here")
    assert "cmake.define.RANKSTRUCT_BUILT" not in calls[-1][1][1]
