"""The cache of compiled loops belongs to one state of the sources, and survives any damage."""

import os
import random
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rankstruct
from rankstruct.kernels import compilation

pytestmark = pytest.mark.slow

CODE = "from rankstruct.kernels import compilation; print(compilation._FOLDER)"


def folder_of(root):
    done = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_change_of_any_kernel_source_is_another_cache(tmp_path):
    shutil.copytree(Path(rankstruct.__file__).parent, tmp_path / "rankstruct")
    before = folder_of(tmp_path)
    assert folder_of(tmp_path) == before
    sorting = tmp_path / "rankstruct" / "kernels" / "sorting.py"
    sorting.write_text(sorting.read_text() + "\n")
    assert folder_of(tmp_path) != before


def twice(value):
    return 2 * value


def half(content):
    return content[: len(content) // 2]


def flipped(content):
    at = random.Random(0).randrange(len(content))
    return content[:at] + bytes([content[at] ^ 16]) + content[at + 1 :]


def noise(content):
    return random.Random(0).randbytes(len(content))


DAMAGES = [lambda content: b"", lambda content: content[:-1], half, flipped, noise]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """An empty folder that kernels are cached in."""
    monkeypatch.setattr(compilation, "_FOLDER", str(tmp_path / "kernels"))
    return tmp_path / "kernels"


def call():
    """How many of two versions of the loop were found in the cache."""
    loop = compilation.compile_kernel(twice)  # as another process would
    assert loop(1.5) == 3.0
    assert loop(np.int64(4)) == 8
    return sum(loop.stats.cache_hits.values())


def files_of(folder):
    return sorted(path for path in folder.rglob("*") if path.is_file())


def test_a_damaged_file_of_the_cache_is_written_again(folder):
    assert call() == 0
    assert call() == 2
    files = files_of(folder)
    assert len(files) == 3  # an index, two versions
    whole = {path: path.read_bytes() for path in files}
    for number, path in enumerate(files):
        path.write_bytes(half(whole[path]))
        assert call() == (0 if number == len(files) - 1 else 1)
        assert call() == 2
    for damage in DAMAGES:
        for path in files:
            path.write_bytes(damage(whole[path]))
        assert call() == 0
        assert call() == 2
    first, second = (path for path in files if path.suffix == ".nbc")
    content = first.read_bytes()
    first.write_bytes(second.read_bytes())  # whole, but not what the index takes it for
    second.write_bytes(content)
    assert call() == 0
    assert call() == 2
    assert files_of(folder) == files


def test_where_nothing_can_be_read_or_written_loops_are_kept_in_memory(folder, monkeypatch):
    call()
    for path in files_of(folder):
        path.unlink()
        path.mkdir()
    assert call() == 0

    def full(*given, **options):
        raise OSError(28, "No space left on device")

    shutil.rmtree(folder)
    with monkeypatch.context() as patch:
        patch.setattr(compilation._SoundFiles, "_open_for_write", full)
        assert call() == 0
    assert call() == 0
    assert call() == 2
    with monkeypatch.context() as patch:
        patch.setattr(os, "makedirs", full)
        assert call() == 0


LOOPS = """
import importlib.util, sys
spec = importlib.util.spec_from_file_location("compilation", sys.argv[1])
compilation = importlib.util.module_from_spec(spec)  # alone: this needs no torch
spec.loader.exec_module(compilation)

@compilation.compile_part
def square(value):
    return value * value

@compilation.compile_kernel
def add(count):
    total = 0
    for value in range(count):
        total += square(value)
    return total

print(add(5), sum(add.stats.cache_hits.values()))
"""


def test_processes_that_share_a_damaged_cache(tmp_path):
    (tmp_path / "loops.py").write_text(LOOPS)
    command = [sys.executable, str(tmp_path / "loops.py"), compilation.__file__]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}

    def run(count):
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": environment}
        started = [subprocess.Popen(command, **pipes) for _ in range(count)]
        ended = [(*process.communicate(timeout=300), process.returncode) for process in started]
        assert all(end[1:] == ("", 0) for end in ended), ended
        return [end[0] for end in ended]

    run(1)
    for damage in (noise, half):
        files = files_of(tmp_path / "cache")
        assert len(files) == 4
        for path in files:
            path.write_bytes(damage(path.read_bytes()))
        assert {printed.split()[0] for printed in run(3)} == {"30"}
        assert run(1) == ["30 1\n"]
        assert files_of(tmp_path / "cache") == files


def test_a_terminal_is_told_once_of_what_it_waits_for(folder, monkeypatch, capsys):
    monkeypatch.setattr(compilation, "_told", False)
    call()
    assert capsys.readouterr().err == ""  # no terminal
    shutil.rmtree(folder)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    assert call() == 0
    assert capsys.readouterr().err.splitlines() == [compilation.NOTICE]
    monkeypatch.setattr(compilation, "_told", False)
    assert call() == 2
    assert capsys.readouterr().err == ""
