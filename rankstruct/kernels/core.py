"""The compiled core: loops over lists in C++, from a shared library in this folder.

Nothing is checked here, and arrays are passed by address; `dispatch` handles tensors. The page "Writing a kernel" of the
documentation explains how to write, build and debug a loop.
"""

from __future__ import annotations

import ctypes
import os
import sys
from ctypes import c_double, c_int, c_longlong, c_void_p
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
if library.rankstruct_batch_bytes() != ctypes.sizeof(CoreBatch):
    raise ImportError(_OTHER)


def _function(name: str) -> Any:
    """The exported function of this name, after `rankstruct_`."""
    try:
        return library[f"rankstruct_{name}"]
    except AttributeError:
        raise ImportError(_OTHER) from None


OUT_OF_MEMORY = -2
#: The types of options as torch's schemas call them; an array is its address and its size.
_TABLE, _COUNT, _FLAG, _REAL = "Tensor", "SymInt", "bool", "float"


class CoreOptions:
    """Makes a structure of C++ whose fields have 8 bytes each, or are arrays.

    Args:
        name: its name.
        fields: the name and the type of each field.
    """

    def __init__(self, name: str, **fields: str) -> None:
        self.fields = fields
        members: list[tuple[str, Any]] = []
        for field, kind in fields.items():
            members += [(field, c_void_p), (f"{field}_size", c_longlong)] if kind == _TABLE else []
            members += [] if kind == _TABLE else [(field, c_double if kind == _REAL else c_longlong)]
        self.structure = type(name, (ctypes.Structure,), {"_fields_": members})

    def options(self, *values: Any) -> Any:
        """The structure; NumPy arrays are passed by address and kept alive, None is an array of nothing."""
        made = self.structure()
        made._arrays = []
        for name, value in zip(self.fields, values, strict=True):
            if isinstance(value, np.ndarray):
                made._arrays.append(value)
                setattr(made, f"{name}_size", len(value))
                value = value.ctypes.data
            setattr(made, name, value)
        return made


class Loop(CoreOptions):
    """A loop over the lists `[first, last)` of a batch: -1, the position of a refused document, or `OUT_OF_MEMORY`.

    The options are the fields of the kernel in C++; the exported name has `rankstruct_` before.
    """

    def __init__(self, name: str, **fields: str) -> None:
        super().__init__(name, **fields)
        self.name = name
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
_MEASURE = {"decay": _TABLE, "discounts": _TABLE, "cutoff": _COUNT, "least_cutoff": _COUNT, "normalized": _FLAG}
positional, diverse = (Loop(name, **_MEASURE, reciprocal=_FLAG, reference=_COUNT) for name in ("positional", "diverse"))
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
rankings = CoreOptions("Rankings", **dict.fromkeys(ROWS, _TABLE), lists=_COUNT, n=_COUNT, samples=_COUNT, k=_COUNT)
# Of rankings and the range of lists.
draw_few, draw_rankings, policy_gradient, policy_curvature = (
    _function(name) for name in ("draw_few", "draw_rankings", "policy_gradient", "policy_curvature")
)
for _loop in (draw_few, draw_rankings, policy_gradient, policy_curvature):
    _loop.argtypes, _loop.restype = [c_void_p, c_longlong, c_longlong], c_longlong

_FOREST = ("threshold", "branch", "root", "feature", "at_missing", "at_zero", "bounds", "member")
forest = CoreOptions("Forest", **dict.fromkeys(_FOREST, _TABLE), zero=_REAL, single=_FLAG)
score_trees = _function("score_trees")
score_trees.argtypes = [c_void_p, c_void_p, *[c_longlong] * 4, c_void_p]
score_trees.restype = c_longlong
