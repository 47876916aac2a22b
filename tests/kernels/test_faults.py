"""Deliberate faults in the compiled core: comparison with enumeration notices each."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import comparisons
import pytest
from comparisons import COMPARISONS, build_library
from kernel_parts import COMPILER, HEADERS

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(COMPILER is None, reason="needs a C++ compiler"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this platform"),
]


def changes(name):
    """What a file of changes holds: header, comparison, what is there and what is there instead."""
    for text in (Path(__file__).parent / name).read_text().split("\n\n")[1:]:
        first, *lines = text.rstrip("\n").split("\n")
        header, comparison = first.split(": ")
        there, instead = ("\n".join(line[2:] for line in lines if line[0] == sign) for sign in "-+")
        yield header, comparison, there, instead


FAULTS, WAYS = list(changes("faults.diff")), list(changes("ways.diff"))


class Trials:
    """A process that has the results of brute force."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "ignore", comparisons.__file__]
        self._server = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def agrees(self, name: str, library: Path) -> bool:
        """Whether the core in a library passes all checks of a comparison."""
        self._server.stdin.write(f"{name}\t{library}\n")
        self._server.stdin.flush()
        answer = self._server.stdout.readline().strip()
        assert answer in ("agrees", "differs")
        return answer == "agrees"

    def close(self) -> None:
        self._server.stdin.close()
        assert self._server.wait(60) == 0
        self._server.stdout.close()


@pytest.fixture(scope="module")
def trials():
    its = Trials()
    yield its
    its.close()


def with_change(name, header, there, instead, folder):
    """What a comparison calls, built from headers of which one has a line changed."""
    headers = folder / "headers"
    headers.mkdir()
    for path in HEADERS.glob("*.hpp"):
        shutil.copy(path, headers)
    text = (headers / header).read_text()
    assert text.count(there) == 1, f"{header} does not have {there!r} once any more"
    (headers / header).write_text(text.replace(there, instead))
    return build_library(name, headers, folder)


def numbered(changes):
    return [f"{header}-{number}" for number, (header, *_) in enumerate(changes)]


@pytest.mark.parametrize(("header", "name", "right", "wrong"), FAULTS, ids=numbered(FAULTS))
def test_a_fault_in_the_core_is_noticed(header, name, right, wrong, trials, tmp_path):
    assert not trials.agrees(name, with_change(name, header, right, wrong, tmp_path))


@pytest.mark.parametrize(("header", "name", "one", "other"), WAYS, ids=numbered(WAYS))
def test_another_way_has_the_same_numbers(header, name, one, other, trials, tmp_path):
    assert trials.agrees(name, with_change(name, header, one, other, tmp_path))


@pytest.mark.parametrize("name", COMPARISONS)
def test_the_core_without_a_fault_agrees(name, trials, tmp_path):
    assert trials.agrees(name, build_library(name, HEADERS, tmp_path))
