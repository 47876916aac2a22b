"""Names of a package that are imported when they are asked for (PEP 562)."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

from rankstruct.messages import did_you_mean, nearest

_HERE = Path(__file__).parent
#: Modules with names that are not at the top.
_MODULES = (
    *("measures", "losses", "models", "oracles", "feature_maps", "estimators", "data", "statistics", "solvers", "hub"),
    *("clicks", "recommenders", "recommenders.training", "training", "calibration", "constraints", "text"),
)
#: Names of other libraries of recommenders, such as implicit, and what is here.
_OTHERS = {
    **dict.fromkeys(("AlternatingLeastSquares", "BayesianPersonalizedRanking", "ALS", "BPR"), "Recommender"),
    **dict.fromkeys(("train_test_split", "leave_k_out_split", "leave_last_k_out_split"), "recommenders.hold_out"),
    **dict.fromkeys(("ranking_metrics_at_k", "precision_at_k", "ndcg_at_k"), "recommenders.evaluate_catalogue"),
}


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
            found = getattr(_hinting(package, import_module(module)), own)
            for each in _MODULES:  # which it has imported
                if other := sys.modules.get(f"{package}.{each}"):
                    _hinting(package, other)
            return vars(sys.modules[package]).setdefault(name, found)
        if not name.startswith("_") and find_spec(f"{package}.{name}") is not None:
            return _hinting(package, import_module(f"{package}.{name}"))
        raise _unknown(package, package, name, tuple(homes))

    return find, lambda: list(homes)


def _hinting(package: str, module: ModuleType) -> ModuleType:
    """A module of the package, whose error for an unknown name has a hint from now on."""

    def find(name: str) -> object:
        known = () if name.startswith("_") else tuple(public_names(module))
        raise _unknown(package, module.__name__, name, known)

    vars(module).setdefault("__getattr__", find)
    return module


def _unknown(package: str, module: str, name: str, known: tuple[str, ...]) -> AttributeError:
    hint = "" if name.startswith("_") else _hint(package, name, known)
    return AttributeError(f"module {module!r} has no attribute {name!r}{hint}")


def _imports(stub: Path, package: str) -> dict[str, tuple[str, str]]:
    """The names that a stub file imports from the modules of a package, with their modules and their names there, in order."""
    nodes = (node for node in ast.parse(stub.read_text(encoding="utf-8")).body if isinstance(node, ast.ImportFrom))
    aliases = ((str(node.module), alias) for node in nodes if node.module != package for alias in node.names)
    return {alias.asname or alias.name: (module, alias.name) for module, alias in aliases}


@cache  # jsonargparse tries names of other packages, again and again
def _hint(package: str, name: str, known: tuple[str, ...]) -> str:
    """What may be meant by an unknown name; nothing is imported to find it."""
    if name in _OTHERS:
        return f"; did you mean {package}.{_OTHERS[name]}?"
    if near := did_you_mean(f"{name}Loss", known, least=0.95) or did_you_mean(name, known, least=0.9):
        return near
    for module in _MODULES:
        if name in listed(module):
            return f", but {package}.{module} has"
    if name in _imports(_HERE / "__init__.pyi", package):
        return f", but {package} has"
    if measure := _measure(name):
        return f"; measures go by name, such as {measure!r}"
    if near := did_you_mean(name, known, least=0.75):
        return near
    elsewhere = {each: f"{package}.{module}.{each}" for module in _MODULES for each in listed(module)}
    return "".join(f"; did you mean {elsewhere[near]}?" for near in nearest(name, elsewhere, least=0.8))


def _measure(name: str) -> str:
    """The measure that other libraries call so, as it is written here: `nDCG@10` for `ndcg_cut_10`; empty if there is none."""
    stem, *cutoff = re.split("(?:_cut|_at)?_(?=[0-9]+$)", name.lower())
    aliases = _assigned(_HERE / "measures" / "base.py", "_ALIASES")
    measures = {each.lower(): each for each in listed("measures")}
    found = measures.get(aliases.get(stem.replace("_", ""), stem))
    return "@".join([found, *cutoff]) if found else ""


@cache
def listed(module: str) -> list[str]:
    """The names in `__all__` of a module of the package, or of the files of a room."""
    place = _HERE / module.replace(".", "/")
    if not place.is_dir():
        return list(_assigned(place.with_suffix(".py"), "__all__"))
    gathered = re.findall(
        r"^from \S+\.(\w+) import \*$", (place / "__init__.py").read_text(encoding="utf-8"), re.MULTILINE
    )
    return [name for file in gathered for name in _assigned(place / f"{file}.py", "__all__")]


def _assigned(file: Path, name: str) -> Any:
    """The list or dictionary that a file assigns to a name; an empty one if it assigns none."""
    found = re.search(rf"^{name} = ([\[{{].*?[\]}}])$", file.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    return ast.literal_eval(found[1]) if found else []
