"""Fixtures of the tests of parts of the compiled core."""

from collections.abc import Callable
from functools import cache

import pytest
from kernel_parts import COMPILER, SOURCES, Parts, build


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Parts]:
    """The exports of a C++ file in this folder, compiled once."""
    if COMPILER is None:
        pytest.skip("parts of the core by themselves need a C++ compiler")
    folder = tmp_path_factory.mktemp("parts")
    return cache(lambda name: Parts(build(SOURCES / name, folder / f"{name}.so", "-O1", "-Wall", "-Wextra", "-Werror")))
