"""Names of a package that are imported when they are asked for (PEP 562)."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType

from rankstruct.messages import did_you_mean


def public_names(module: ModuleType) -> list[str]:
    """The names of `from module import *`: `__all__`, or what a package's `__init__` imports from its files."""
    if hasattr(module, "__all__"):
        return list(module.__all__)
    return [
        name for name, value in vars(module).items() if not name.startswith("_") and not isinstance(value, ModuleType)
    ]


def attach(package: str, file: str) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """The `__getattr__` and `__dir__` of a package whose public names are those that its stub file, `__init__.pyi`, imports.

    Submodules are found too, so that `import rankstruct as rs` is enough for `rs.data`. The error for an unknown name says where
    a name of another module is, or suggests similar ones.
    """
    homes = _imports(Path(file).with_suffix(".pyi"), package)

    def find(name: str) -> object:
        if name == "__all__":
            return list(homes)
        if name in homes:
            # Not asked for again, and known to who traces the code.
            module, own = homes[name]
            return vars(sys.modules[package]).setdefault(name, getattr(import_module(module), own))
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return import_module(f"{package}.{name}")
        hint = "" if name.startswith("_") else _hint(package, name, homes)
        raise AttributeError(f"module {package!r} has no attribute {name!r}{hint}")

    return find, lambda: list(homes)


def _imports(stub: Path, package: str) -> dict[str, tuple[str, str]]:
    """The names that a stub file imports from the modules of a package, with their modules and their names there, in order."""
    nodes = (node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom))
    aliases = ((str(node.module), alias) for node in nodes if node.module != package for alias in node.names)
    return {alias.asname or alias.name: (module, alias.name) for module, alias in aliases}


def _hint(package: str, name: str, known: Iterable[str]) -> str:
    """What may be meant by an unknown name."""
    if name == "DiverseHingeLoss":
        return "; diverse measures are measures of StructuredHingeLoss, such as StructuredHingeLoss('diverse_nDCG@5')"
    if near := did_you_mean(f"{name}Loss", known, least=0.95) or did_you_mean(name, known, least=0.9):
        return near  # before anything is imported
    modules = ("measures", "losses", "models", "oracles", "feature_maps", "boosting", "data", "statistics", "solvers")
    for module in modules:
        if name in public_names(import_module(f"{package}.{module}")):
            return f", but {package}.{module} has"
    if near := did_you_mean(name, known, least=0.75):
        return near
    with suppress(ValueError):
        return f"; measures go by name, such as {import_module(f'{package}.measures').parse_measure(name).name!r}"
    for module in ("recommenders", "training"):  # Lightning is imported last
        if name in public_names(import_module(f"{package}.{module}")):
            return f", but {package}.{module} has"
    return ""
