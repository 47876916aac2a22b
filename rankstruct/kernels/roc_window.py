"""The most violated ranking of a partial ROC area, as an operator over lists."""

from __future__ import annotations

from typing import Any, NamedTuple

from rankstruct.kernels.binary import Method, fixed_kernel

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
        below: whether the reference is the most violated ranking of the area below `low`, under the restricted map.
    """

    low: float
    high: float
    min_tpr: float
    restricted: bool
    predicted: bool
    below: bool
    chosen: Any = None
    chosen_bits: Any = None


partial_area = fixed_kernel(
    "partial_area",
    "float low, float high, float min_tpr, bool restricted, bool predicted, bool below",
    METHOD,
    Window,
)
