"""The compiled core: loops over lists in C++, from a shared library in this folder.

Nothing is checked here, and arrays are passed by address; `dispatch` handles tensors. The page "Writing a kernel" of the
documentation explains how to write, build and debug a loop.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_char_p, c_double, c_int, c_longlong, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import torch

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")


def _load() -> ctypes.CDLL:
    """The library for this processor, or the one that `RANKSTRUCT_CORE` names."""
    named = os.environ.get("RANKSTRUCT_CORE")
    if named:
        return ctypes.CDLL(named)
    folder = Path(__file__).parent
    path = folder / f"_core{_SUFFIX}"
    if not path.is_file():
        raise ImportError(
            f"rankstruct's compiled core, {path.name}, is not in {folder}. A wheel brings it; from a checkout it is built by "
            "pip install -e ."
        )
    faster = folder / f"_core_v3{_SUFFIX}"  # the same for x86-64 processors with AVX2
    vectors = torch.backends.cpu.get_cpu_capability().startswith("AVX")
    return ctypes.CDLL(str(faster if vectors and faster.is_file() else path))


library = _load()


_ARRAYS = (
    *("scores", "labels", "where", "offsets", "chosen", "groups", "gains", "thresholds"),
    *("threshold_weights", "item_weights", "task_loss", "value", "direction"),
)


class CoreBatch(ctypes.Structure):
    """The fields of `Batch` in lists.hpp."""

    _fields_ = [
        *((name, c_void_p) for name in _ARRAYS),
        *((name, c_longlong) for name in ("lists", "size", "grades", "threshold_count")),
        *((name, c_double) for name in ("min_relevant", "least_label")),
        *((name, c_int) for name in ("score_type", "label_type")),
        ("sum", c_double),
        ("real_lists", c_longlong),
    ]


_OTHER = "rankstruct's compiled core is of another version than its Python files; install rankstruct again"


def _function(name: str) -> Any:
    """The exported function of this name, after `rankstruct_`."""
    try:
        return library[f"rankstruct_{name}"]
    except AttributeError:
        raise ImportError(_OTHER) from None


def _check_fields(name: str, structure: type[ctypes.Structure]) -> None:
    """Refuse a core in which the structure of this name has other fields; see `FIELDS` in kernels.cpp."""
    members: dict[str, Any] = dict(structure._fields_)  # type: ignore[arg-type]
    fields = [field for field in members if not field.endswith("_size")]
    kinds = [2 if f"{field}_size" in members else int(members[field] is c_double) for field in fields]
    layout = [4 * getattr(structure, field).offset + kind for field, kind in zip(fields, kinds, strict=True)]
    describe, found = _function(f"{name}_fields"), (c_longlong * 64)()
    describe.restype = c_char_p
    names = describe(found).decode().replace(",", "").split()
    if names != fields or found[: len(fields) + 1] != [*layout, 4 * ctypes.sizeof(structure)]:
        raise ImportError(f"{_OTHER}: {name} has the fields {', '.join(names)} there and {', '.join(fields)} here")


_check_fields("batch", CoreBatch)

OUT_OF_MEMORY = -2
#: The types of options as torch's schemas call them; an array, of float64 or another dtype, is its address and its size.
_TABLE, _COUNT, _FLAG, _REAL = "Tensor", "SymInt", "bool", "float"
_INT32, _INT64, _BOOL = (np.dtype(each) for each in ("int32", "int64", "bool"))


class CoreOptions:
    """Makes a structure of C++ whose fields have 8 bytes each, or are arrays.

    Args:
        name: its name.
        fields: the name and the type of each field, one of those above or the dtype of an array.
    """

    def __init__(self, name: str, **fields: Any) -> None:
        self.name, self.fields = name, fields
        members: list[tuple[str, Any]] = []
        self._dtypes: dict[str, np.dtype] = {}
        for field, kind in fields.items():
            if kind == _TABLE or isinstance(kind, np.dtype):
                members += [(field, c_void_p), (f"{field}_size", c_longlong)]
                self._dtypes[field] = np.dtype("float64") if kind == _TABLE else kind
            else:
                members.append((field, c_double if kind == _REAL else c_longlong))
        self.structure = type(name, (ctypes.Structure,), {"_fields_": members})
        _check_fields(name, self.structure)

    def options(self, *values: Any) -> Any:
        """The structure; NumPy arrays are passed by address and kept alive, None is an array of nothing.

        Raises TypeError for an array of another dtype, or one that is not contiguous.
        """
        made = self.structure()
        made._arrays = []
        for name, value in zip(self.fields, values, strict=True):
            if isinstance(value, np.ndarray):
                if value.dtype != self._dtypes.get(name) or not value.flags.c_contiguous:
                    kind = value.dtype if value.flags.c_contiguous else f"{value.dtype} with strides {value.strides}"
                    raise TypeError(
                        f"{name} of {self.name} must be a contiguous array of {self._dtypes.get(name, 'nothing')}, got {kind}"
                    )
                made._arrays.append(value)
                setattr(made, f"{name}_size", len(value))
                value = value.ctypes.data
            setattr(made, name, value)
        return made


class Loop(CoreOptions):
    """A loop over the lists `[first, last)` of a batch: -1, the position of a refused document, or `OUT_OF_MEMORY`.

    The options are the fields of the kernel in C++; the exported name has `rankstruct_` before.
    """

    def __init__(self, name: str, **fields: Any) -> None:
        super().__init__(name, **fields)
        self.function = _function(name)
        self.function.argtypes = [c_void_p, c_longlong, c_longlong, c_void_p]
        self.function.restype = c_longlong

    def __call__(self, batch: CoreBatch, first: int, last: int, options: ctypes.Structure) -> int:
        """Solve the lists `[first, last)`."""
        return int(self.function(ctypes.byref(batch), first, last, ctypes.byref(options)))


pairwise_auc = Loop("pairwise_auc", predicted=_FLAG)
pairwise_average_precision = Loop("pairwise_average_precision", predicted=_FLAG)
pairwise_precision_at_cutoff = Loop("pairwise_precision_at_cutoff", cutoff=_COUNT, predicted=_FLAG)
_DISCOUNTED = {"discounts": _TABLE, "cutoff": _COUNT, "normalized": _FLAG, "predicted": _FLAG}
pairwise_convex_discount = Loop("pairwise_convex_discount", **_DISCOUNTED)
pairwise_discount_at_cutoff = Loop("pairwise_discount_at_cutoff", **_DISCOUNTED)
pairwise_reciprocal_rank = Loop("pairwise_reciprocal_rank", cutoff=_COUNT, predicted=_FLAG)
_WINDOW = {"low": _REAL, "high": _REAL, "min_tpr": _REAL, "predicted": _FLAG}
partial_area = Loop("partial_area", **_WINDOW)
partial_area_of_window = Loop("partial_area_of_window", **_WINDOW, below=_FLAG)
first_relevant = Loop("first_relevant", cutoff=_COUNT, predicted=_FLAG)
contingency = Loop("contingency", measure=_COUNT, cutoff=_COUNT, beta=_REAL, reference=_COUNT)
_SWAPS = {"discounts": _TABLE, "cutoff": _COUNT, "normalized": _FLAG, "average": _FLAG, "slack": _FLAG}
top_surrogate = Loop("top_surrogate", **_SWAPS)
pairwise_hinge = Loop("pairwise_hinge", margin=_REAL)
_MEASURE = {
    "decay": _TABLE,
    "discounts": _TABLE,
    "cutoff": _COUNT,
    "least_cutoff": _COUNT,
    "normalized": _FLAG,
    "reciprocal": _FLAG,
    "reference": _COUNT,
}
positional = Loop("positional", **_MEASURE)
_RULES = {
    **dict.fromkeys(("attribute", "which", "each_group", "prefix", "lower", "upper"), _INT64),
    **dict.fromkeys(("attributes", "length"), _COUNT),
}
page_hinge = Loop("page_hinge", **_MEASURE, **_RULES, **dict.fromkeys(("shift", "mask", "none"), _INT64))
constrained = Loop("constrained", **_RULES, group=_INT64, position=_INT64)
_STEPS = {"discounts": _TABLE, "steps": _TABLE, "kept": _COUNT, "scheme": _COUNT, "sigma": _REAL, "mu": _REAL}
logistic_pairs, logistic_curvatures, hinge_pairs, zero_one_pairs, fidelity_pairs = (
    Loop(name, **_STEPS, named=_TABLE, named_pairs=_TABLE)
    for name in ("logistic_pairs", "logistic_curvatures", "hinge_pairs", "zero_one_pairs", "fidelity_pairs")
)
smoothed_ranks = Loop("smoothed_ranks", temperature=_REAL, hinge=_FLAG, backward=_FLAG)
circle = Loop("circle", gamma=_REAL, margin=_REAL)
_GAINS = {"discounts": _TABLE, "kept": _COUNT}
smooth_grad = Loop("smooth_grad", **_GAINS, normalized=_FLAG, sigma=_REAL)
neural_gain = Loop("neural_gain", **_GAINS, temperature=_REAL)
neural_entropy = Loop("neural_entropy", temperature=_REAL)
_NODES = {"nodes": _TABLE, "shares": _TABLE, "steepness": _REAL, "normal": _FLAG}
soft_rank = Loop("soft_rank", **_GAINS, normalized=_FLAG, sigma=_REAL, **_NODES)
policy_loss = Loop("policy_loss", uniform=_TABLE, discounts=_TABLE, samples=_COUNT, k=_COUNT, few=_FLAG)

choose_method = _function("choose_method")
choose_method.argtypes, choose_method.restype = [c_longlong] * 4, c_longlong


ROWS = ("scores", "where", "random", "placed", "worth", "rewards", "found")
_ROWS = {**dict.fromkeys(ROWS, _TABLE), "where": _BOOL, "placed": _INT64}
rankings = CoreOptions("rankings", **_ROWS, lists=_COUNT, n=_COUNT, samples=_COUNT, k=_COUNT)
# Of rankings and the range of lists.
draw_few, draw_rankings, policy_gradient, policy_curvature = (
    _function(name) for name in ("draw_few", "draw_rankings", "policy_gradient", "policy_curvature")
)
for _loop in (draw_few, draw_rankings, policy_gradient, policy_curvature):
    _loop.argtypes, _loop.restype = [c_void_p, c_longlong, c_longlong], c_longlong

_FOREST = {
    "threshold": _TABLE,
    "branch": _INT32,
    "root": _INT64,
    "feature": _INT64,
    "at_missing": _TABLE,
    "at_zero": _TABLE,
}
forest = CoreOptions("forest", **_FOREST, bounds=_INT64, member=_BOOL, zero=_REAL, single=_FLAG)
score_trees = _function("score_trees")
score_trees.argtypes = [c_void_p, c_void_p, *[c_longlong] * 4, c_void_p]
score_trees.restype = c_longlong
