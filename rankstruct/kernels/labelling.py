"""The most violated labelling of a measure that is a function of the contingency table, as an operator over lists.

A labelling says which documents are positive: the a highest relevant and the k - a highest irrelevant ones, whatever the most
violated a and k are. The measures of one k are linear in a:

    measure(a, k) = slope(k) a + level(k),   slope(k) never rising with k

but for success, which is 1 from a = 1 on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from rankstruct.kernels.binary import Method, fixed_kernel

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


contingency = fixed_kernel("contingency", "int kind, int cutoff, float beta, int reference", METHOD, Table)
