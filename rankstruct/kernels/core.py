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


class CoreBatch(ctypes.Structure):
    """The fields of `Batch` in lists.hpp."""

    _fields_ = [
        *(
            (name, c_void_p)
            for name in (
                *("scores", "labels", "where", "offsets", "chosen", "groups", "gains", "thresholds"),
                *("threshold_weights", "item_weights", "task_loss", "value", "direction"),
            )
        ),
        *((name, c_longlong) for name in ("lists", "size", "grades", "threshold_count")),
        *((name, c_double) for name in ("min_relevant", "least_label")),
        *((name, c_int) for name in ("score_type", "label_type")),
        ("sum", c_double),
        ("real_lists", c_longlong),
    ]


if library.rankstruct_batch_bytes() != ctypes.sizeof(CoreBatch):
    raise ImportError(
        "rankstruct's compiled core is of another version than its Python files; install rankstruct again"
    )

OUT_OF_MEMORY = -2


class Loop:
    """A loop over the lists `[first, last)` of a batch: -1, the position of a refused document, or `OUT_OF_MEMORY`.

    Args:
        name: the exported name, without `rankstruct_`.
        kind: the class of its options in loops.hpp.
        options: name and C type of each option.
    """

    def __init__(self, name: str, kind: str, **options: Any) -> None:
        self.name, self.kind = name, kind
        self.fields = options
        self._options = type(name, (ctypes.Structure,), {"_fields_": list(options.items())})
        self.function = getattr(library, f"rankstruct_{name}")
        self.function.argtypes = [c_void_p, c_longlong, c_longlong, c_void_p]
        self.function.restype = c_longlong

    def options(self, *values: Any) -> ctypes.Structure:
        """The options for `__call__`; NumPy arrays are passed by address and kept alive."""
        made = self._options()
        made._arrays = []
        for name, value in zip(self.fields, values, strict=True):
            if isinstance(value, np.ndarray):
                made._arrays.append(value)
                value = value.ctypes.data
            setattr(made, name, value)
        return made

    def __call__(self, batch: CoreBatch, first: int, last: int, options: ctypes.Structure) -> int:
        """Solve the lists `[first, last)`."""
        return int(self.function(ctypes.byref(batch), first, last, ctypes.byref(options)))


_TABLE, _COUNT, _FLAG, _REAL = c_void_p, c_longlong, c_longlong, c_double

pairwise_auc = Loop("pairwise_auc", "PairwiseAuc", predicted=_FLAG)
pairwise_average_precision = Loop("pairwise_average_precision", "PairwiseAveragePrecision", predicted=_FLAG)
pairwise_precision_at_cutoff = Loop(
    "pairwise_precision_at_cutoff", "PairwisePrecisionAtCutoff", cutoff=_COUNT, predicted=_FLAG
)
_DISCOUNTED = {"discounts": _TABLE, "longest": _COUNT, "cutoff": _COUNT, "normalized": _FLAG, "predicted": _FLAG}
pairwise_convex_discount = Loop("pairwise_convex_discount", "PairwiseConvexDiscount", **_DISCOUNTED)
pairwise_discount_at_cutoff = Loop("pairwise_discount_at_cutoff", "PairwiseDiscountAtCutoff", **_DISCOUNTED)
pairwise_reciprocal_rank = Loop("pairwise_reciprocal_rank", "PairwiseReciprocalRank", cutoff=_COUNT, predicted=_FLAG)
_WINDOW = {"low": _REAL, "high": _REAL, "min_tpr": _REAL, "predicted": _FLAG}
partial_area = Loop("partial_area", "PartialArea", **_WINDOW)
partial_area_of_window = Loop("partial_area_of_window", "PartialAreaOfWindow", **_WINDOW, below=_FLAG)
first_relevant = Loop("first_relevant", "FirstRelevantDocument", cutoff=_COUNT, predicted=_FLAG)
contingency = Loop("contingency", "ContingencyTable", measure=_COUNT, cutoff=_COUNT, beta=_REAL, reference=_COUNT)
_SWAPS = {"cutoff": _COUNT, "normalized": _FLAG, "average": _FLAG, "slack": _FLAG}
top_surrogate = Loop("top_surrogate", "Surrogate", discounts=_TABLE, longest=_COUNT, **_SWAPS)
pairwise_hinge = Loop("pairwise_hinge", "RankSVM", margin=_REAL)
_BY_RANK = {
    "decay": _TABLE,
    "discounts": _TABLE,
    "longest": _COUNT,
    "cutoff": _COUNT,
    "least_cutoff": _COUNT,
    "normalized": _FLAG,
    "reciprocal": _FLAG,
    "reference": _COUNT,
}
positional = Loop("positional", "PositionalRanks", **_BY_RANK)
diverse = Loop("diverse", "DiverseRanks", **_BY_RANK)
_PAIRS = {
    "discounts": _TABLE,
    "steps": _TABLE,
    "longest": _COUNT,
    "kept": _COUNT,
    "scheme": _COUNT,
    "sigma": _REAL,
    "mu": _REAL,
    "named": _TABLE,
    "named_pairs": _TABLE,
    "names": _COUNT,
}
logistic_pairs = Loop("logistic_pairs", "LogisticPairs", **_PAIRS)
logistic_curvatures = Loop("logistic_curvatures", "LogisticCurvatures", **_PAIRS)
hinge_pairs = Loop("hinge_pairs", "HingePairs", **_PAIRS)
zero_one_pairs = Loop("zero_one_pairs", "ZeroOnePairs", **_PAIRS)
fidelity_pairs = Loop("fidelity_pairs", "FidelityPairs", **_PAIRS)
smoothed_ranks = Loop("smoothed_ranks", "RankSums", temperature=_REAL, hinge=_FLAG, backward=_FLAG)
circle = Loop("circle", "CirclePairs", gamma=_REAL, margin=_REAL)
_GAINS = {"discounts": _TABLE, "longest": _COUNT, "kept": _COUNT}
smooth_grad = Loop("smooth_grad", "SmoothGains", **_GAINS, normalized=_FLAG, sigma=_REAL)
neural_gain = Loop("neural_gain", "NeuralGains", **_GAINS, temperature=_REAL)
neural_entropy = Loop("neural_entropy", "NeuralLabels", temperature=_REAL)
_NODES = {"nodes": _TABLE, "shares": _TABLE, "count": _COUNT, "steepness": _REAL, "normal": _FLAG}
soft_rank = Loop("soft_rank", "SoftGains", **_GAINS, normalized=_FLAG, sigma=_REAL, **_NODES)

choose_method = library.rankstruct_choose_method
choose_method.argtypes, choose_method.restype = [c_longlong] * 4, c_longlong


def _function(name: str, addresses: int, counts: int, results: int) -> Any:
    """A function of input arrays, integers and output arrays; arrays are passed by address."""
    found = library[f"rankstruct_{name}"]
    found.argtypes = [c_void_p] * addresses + [c_longlong] * counts + [c_void_p] * results
    found.restype = c_longlong
    return found


# The last two integers are the range of lists, rows or documents to process.
draw_few = _function("draw_few", 3, 7, 1)
draw_rankings = _function("draw_rankings", 3, 7, 1)
policy_derivative = _function("policy_derivative", 5, 8, 1)
policy_loss = _function("policy_loss", 3, 6, 0)
score_trees = _function("score_trees", 9, 9, 1)
