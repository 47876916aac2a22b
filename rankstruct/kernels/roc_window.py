"""The most violated ranking of a partial ROC area, as an operator over lists."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rankstruct.kernels.binary import Method
from rankstruct.kernels.dispatch import Answer, FlatLists, PaddedLists, define_kernel, load_kernel
from rankstruct.measures.ranked import is_relevant

METHOD = Method(
    "each relevant document by itself, counted by a merge before and one inside the window",
    "O(n log n)",
    "partial_area_cpu.partial_area_lists",
    "partial_area_device.partial_area_padded",
)


class Window(NamedTuple):
    """What the kernel knows beside the lists.

    Attributes:
        low, high: the false positive rates.
        min_tpr: the lowest true positive rate.
        restricted: whether the feature map is the partial pairwise one, not the pairwise one.
        predicted, chosen, chosen_bits: as those of `binary.Parameters`.
    """

    low: float
    high: float
    min_tpr: float
    restricted: bool
    predicted: bool
    chosen: Any = None
    chosen_bits: Any = None


def _flat(lists: FlatLists, results: tuple[np.ndarray, ...], min_relevant: float | None, *window: Any) -> int:
    relevant = is_relevant(lists.labels, min_relevant)
    chosen: dict[str, Any] = {"chosen": lists.chosen, "chosen_bits": lists.chosen.view(lists.bits.dtype)}
    parameters = Window(*window, **chosen)
    inputs = (lists.scores, lists.bits, relevant.view(np.uint8), lists.where, lists.bounds)
    loop = load_kernel(METHOD.compiled)
    return lists.run(lambda first, last: loop(*inputs, first, last, parameters, *results))


def _padded(lists: PaddedLists, min_relevant: float | None, *window: Any) -> Answer:
    return load_kernel(METHOD.padded)(lists, is_relevant(lists.labels, min_relevant), Window(*window))


partial_area = define_kernel(
    "partial_area",
    "float? min_relevant, float low, float high, float min_tpr, bool restricted, bool predicted",
    _flat,
    _padded,
)
