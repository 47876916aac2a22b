"""The most violated labelling of a measure that is a function of the contingency table, as an operator over lists.

A labelling says which documents are positive: the a highest relevant and the k - a highest irrelevant ones, whatever the most
violated a and k are. The measures of one k are linear in a:

    measure(a, k) = slope(k) a + level(k),   slope(k) never rising with k

but for success, which is 1 from a = 1 on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rankstruct.kernels.binary import Method
from rankstruct.kernels.dispatch import Answer, FlatLists, PaddedLists, define_kernel, load_kernel
from rankstruct.measures.ranked import is_relevant

PRECISION, RECALL, SUCCESS, F, ACCURACY, BREAK_EVEN = range(6)
"""The measures, by number."""

METHOD = Method(
    "for each number of positive documents the best number of relevant ones, which never falls: a walk",
    "O(n log n)",
    "contingency_cpu.contingency_lists",
    "contingency_device.contingency_padded",
)


class Table(NamedTuple):
    """What the kernel knows beside the lists.

    Attributes:
        kind: the measure's number.
        cutoff: how many documents are positive; 0 for any number. A list's relevant ones for `BREAK_EVEN`.
        beta: of F.
        reference: 0, the ideal one by input order; 1, the ideal one that the scores like best; 2, the one that they prefer.
        chosen, chosen_bits: as those of `binary.Parameters`.
    """

    kind: int
    cutoff: int
    beta: float
    reference: int
    chosen: Any = None
    chosen_bits: Any = None


def _flat(lists: FlatLists, results: tuple[np.ndarray, ...], min_relevant: float | None, *table: Any) -> int:
    relevant = is_relevant(lists.labels, min_relevant)
    chosen: dict[str, Any] = {"chosen": lists.chosen, "chosen_bits": lists.chosen.view(lists.bits.dtype)}
    parameters = Table(*table, **chosen)
    inputs = (lists.scores, lists.bits, relevant.view(np.uint8), lists.where, lists.bounds)
    loop = load_kernel(METHOD.compiled)
    return lists.run(lambda first, last: loop(*inputs, first, last, parameters, *results))


def _padded(lists: PaddedLists, min_relevant: float | None, *table: Any) -> Answer:
    return load_kernel(METHOD.padded)(lists, is_relevant(lists.labels, min_relevant), Table(*table))


contingency = define_kernel(
    "contingency",
    "float? min_relevant, int kind, int cutoff, float beta, int reference",
    _flat,
    _padded,
)
