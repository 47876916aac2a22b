"""Convex surrogates of measures of the top of a list: the average and the max surrogate of precision at k.

A measure with discounts a_1 >= a_2 >= ..., 0 after rank k, is best with relevant documents at the first q = min(k, p) ranks, for
p relevant documents out of n. In a ranking r, j of these ranks have irrelevant documents, the intruders, and p - q + j relevant
documents are missed. A perfect ranking r* that is otherwise like r swaps each intruder, at rank i, with a missed document, at
rank i'. With F(r) = sum_i a_i s_r(i) and the regret Delta, both in units of the gain of a relevant document,

    Delta(r) + F(r) - F(r*) = sum over swaps of (a_i - a_i') (1 + s_intruder - s_missed)

The max surrogate is the maximum of that over r and r*. The average surrogate uses the mean score of the missed documents in
place of s_missed. Each is a maximum of linear functions of the scores, hence convex; and at least the regret, since in the
ranking by score no intruder scores less than a missed document. The ramp surrogate of the same paper uses the r* of highest
score, and is not convex: it is the structured hinge with `Positional("discount")` and the reference `"ideal-tied"`, for P@k no
larger than these.

**The exact maximum.** Let u_1 >= u_2 >= ... be the irrelevant scores, v_1 <= v_2 <= ... the relevant ones, mu_j the mean of the
p - q + j lowest of these, and w_l = a_l - a_(n+1-l). The l largest of the differences a_i - a_i' of a ranking sum to at most
w_1 + ... + w_l, which is attained by swapping the first ranks with the last ones. So the highest irrelevant documents intrude,
highest first, and the lowest relevant ones are missed: a hit cancels. A swap that adds less than 0 is better left out, which
lowers mu too. This leaves the maximum over the number j of swaps of

    max        sum_{l <= j} w_l (1 + u_l - v_l)
    average    sum_{l <= j} w_l (1 + u_l - mu_j)

by prefix sums over the k highest and lowest. For P@k and p >= k these are the paper's surrogates, divided by k.

**Other measures.** The argument needs two gains and any discount: it holds for nDCG@k with binary relevance, DCG, ERU and WTA,
and for recall at k, which is P@k in other units, as a custom discounted gain. It does not help for RR@k: any relevant document at
rank 1 makes r* perfect, so there is one swap, and the result is the surrogate of P@1, whose regret is at least that of RR.
Several gains above 0 raise an error, since a swap no longer fixes a rank for good; the regret of DCG is a sum over the thresholds
of the grades (`min_relevant`), and the sum of the surrogates bounds it.

**Slack rescaling**, Delta(r) (1 + F(r) - F(r*)), requires the same margin of every wrong ranking. It is exact if all ranks up to
the cut-off have equal discounts (P@k, WTA, recall): Delta is then a number of swaps, and each number has its own best margin, as
above. For nDCG@k and AP the best Delta and the best margin belong to different rankings with the same number of swaps. A search
over multipliers of margin-rescaled maxima finds only rankings on the convex hull of the pairs (Delta, margin), so it is not
exact; nor are the prefix sums above, and we know no algorithm near the cost of a sort. These measures raise an error.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor

from rankstruct.kernels.top_surrogate import swap_surrogate
from rankstruct.lists import Lists, refuse
from rankstruct.losses.autograd import with_gradient
from rankstruct.losses.base import LayoutOptions
from rankstruct.losses.gains import GainLoss, document_gains
from rankstruct.measures import DiscountedGain, Measure

__all__ = ["TopSurrogateLoss"]

_RANKS = 1000  # ranks to check if a measure has no cut-off


class TopSurrogateLoss(GainLoss):
    """Average or max surrogate of precision at k or another measure of the top: a convex upper bound of its regret, per list.

    The highest irrelevant documents that can be among the first k are compared with the mean of the relevant ones that they
    displace (`average`, which is tighter), or with the lowest of them (`max`). If most lists have irrelevant documents above
    these, as in OHSUMED, both are minimal where all documents tie, like every convex bound of these measures, and learn
    nothing. `StructuredHingeLoss` does learn there. O(n log n).

    Args:
        measure: P@k, nDCG@k or another discounted gain, or its name; relevant documents must have equal gains.
        kind: `"average"` or `"max"`.
        rescaling: `"margin"`, the maximum of regret + margin; or `"slack"`, the maximum of regret x (1 + margin), which requires
            equal discounts up to the cut-off, such as P@k.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: an unsupported measure; slack rescaling with unequal discounts; on the CPU, relevant documents with different
            gains (elsewhere the loss of their list is NaN).

    Source: Kar, Narasimhan, Jain, "Surrogate Functions for Maximizing Precision at the Top", ICML 2015; the other measures and
    lists with fewer than k relevant documents are derived in the module. Slack rescaling: Tsochantaridis, Joachims,
    Hofmann, Altun, JMLR 2005.

    >>> import torch
    >>> TopSurrogateLoss("P@10")
    TopSurrogateLoss(P@10, kind=average, rescaling=margin, reduction=mean)
    >>> scores, labels = torch.tensor([2.0, 1.0, 0.0, -1.0]), torch.tensor([1, 0, 1, 0])
    >>> TopSurrogateLoss("P@1")(scores, labels), TopSurrogateLoss("P@1", "max")(scores, labels)
    (tensor(1.), tensor(2.))
    """

    measure: str | Measure
    kind: Literal["average", "max"] = "average"
    rescaling: Literal["margin", "slack"] = "margin"
    call_options = LayoutOptions
    convex = True

    def checked(self, measure: Measure) -> DiscountedGain:
        """A discounted gain; with slack rescaling one with equal discounts up to the cut-off."""
        if not isinstance(measure, DiscountedGain):
            raise ValueError(
                f"TopSurrogateLoss takes P@k, nDCG@k and other discounted gains, got {measure.name}; for RR use P@1, whose "
                "regret bounds that of RR"
            )
        if self.rescaling == "slack":
            weights = measure.position_weights(measure.cutoff or _RANKS)
            if bool(((weights != 0) & (weights != weights[0])).any()):
                raise ValueError(
                    "slack rescaling requires equal discounts up to the cut-off, as in P@k and WTA, got "
                    f"{measure.name}; use rescaling='margin'"
                )
        return measure

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        """One value per list."""
        gains = document_gains(self.gain, labels, where)
        gains = refuse(
            gains,
            (gains > 0) & (gains != gains.amax(-1, keepdim=True)),
            f"relevant documents must have one gain under {self.gain.name}: set min_relevant=, as in nDCG(min_relevant=1)",
        )
        a = self.gain.unchecked_weights(scores.shape[-1])
        given = scores.detach(), Lists(gains, where), 0.0
        average, slack = self.kind == "average", self.rescaling == "slack"
        _, value, direction = swap_surrogate(*given, a, self.gain.normalized, average, slack)
        return with_gradient(scores, value, direction)
