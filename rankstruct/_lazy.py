"""Lazy imports of a package's public names (PEP 562)."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType

from rankstruct.messages import did_you_mean


def public_names(module: ModuleType) -> list[str]:
    """The names that `from module import *` imports: `__all__`, or those that a subpackage's `__init__` collects."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    ]


def attach(package: str, *rooms: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package that exports the public names of its submodules `rooms`, in this order.

    Submodules are found too, so that `import rankstruct as rs` is enough for `rs.data`. The error for an unknown name
    suggests the submodule that has it, a measure, or the closest name.
    """

    def find(name: str) -> object:
        if name == "__all__":
            return every()
        if not name.startswith("_"):
            if find_spec(f"{package}.{name}") is not None:
                return import_module(f"{package}.{name}")
            for room in rooms:
                module = import_module(f"{package}.{room}")
                if name in public_names(module):
                    # Cached, and visible to tracers.
                    return vars(sys.modules[package]).setdefault(name, getattr(module, name))
        hint = "" if name.startswith("_") else _hint(package, name, every())
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    def every() -> list[str]:
        found = {name for room in rooms for name in public_names(import_module(f"{package}.{room}"))}
        return sorted(found | {"__version__"})

    return find, every


def _hint(package: str, name: str, known: list[str]) -> str:
    """A suggestion for an unknown name."""
    if name == "DiverseHingeLoss":
        return "; diverse measures are measures of StructuredHingeLoss, such as StructuredHingeLoss('diverse_nDCG@5')"
    with suppress(ValueError):
        return f"; measures go by name, such as {import_module(f'{package}.measures').parse_measure(name).name!r}"
    for room in ("data", "statistics", "solvers", "recommenders", "training"):  # Lightning is imported last
        if name in public_names(import_module(f"{package}.{room}")):
            return f", but {package}.{room} has"
    return did_you_mean(f"{name}Loss", known, least=0.95) or did_you_mean(name, known, least=0.75)
