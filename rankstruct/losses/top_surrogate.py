"""Convex surrogates of measures that look at the top of a list: the average and the max surrogate of precision at k.

A measure with the discounts a_1 >= a_2 >= ..., 0 behind rank k, wants relevant documents at the first q = min(k, p) ranks, for
p relevant documents of n. In a ranking r, j of these ranks have irrelevant ones, the intruders, and p - q + j relevant
documents are missed. A perfect ranking r* that is else like r swaps each intruder, of rank i, with a missed one, of rank i'. By
the scores F(r) = sum_i a_i s_r(i) and the regret Delta, both in units of what a relevant document gains,

    Delta(r) + F(r) - F(r*) = sum over swaps of (a_i - a_i') (1 + s_intruder - s_missed)

The max surrogate is the maximum of that over r and r*. The average surrogate has the mean score of the missed documents in
place of s_missed. Each is a maximum of linear functions of the scores, hence convex; and at least the regret, since in the
ranking by score no intruder scores less than a missed document. The ramp surrogate of the same paper takes the r* that the
scores like best, and is not convex: it is the structured hinge with `Positional("discount")` and the reference `"ideal-tied"`,
for P@k no larger than these.

**The maximum, exactly.** Let u_1 >= u_2 >= ... be the irrelevant scores, v_1 <= v_2 <= ... the relevant ones, mu_j the mean of
the p - q + j lowest of these, and w_l = a_l - a_(n+1-l). The l largest of the differences a_i - a_i' of a ranking add up to at
most w_1 + ... + w_l, which swaps of the first ranks with the last ones reach. So the highest irrelevant documents intrude,
highest first, and the lowest relevant ones are missed: a hit cancels. A swap that adds less than 0 is better left out, which
lowers mu too. What is left is the maximum over the number j of swaps of

    max        sum_{l <= j} w_l (1 + u_l - v_l)
    average    sum_{l <= j} w_l (1 + u_l - mu_j)

by prefix sums over the k highest and lowest. For P@k and p >= k these are the paper's surrogates, divided by k.

**Where it carries over.** The argument needs two gains and any discount: nDCG@k of binary relevance, DCG, ERU and WTA have it,
and so has recall at k, which is P@k in other units, as a discounted gain of one's own. RR@k gains nothing by it: any relevant
document at rank 1 makes r* perfect, so one swap is compared and what is left is the surrogate of P@1, whose regret is at least
that of RR. Several gains above 0 are refused, since a swap no longer mends a rank for good; the regret of DCG is a sum over the
thresholds of the grades (`min_relevant`), and the sum of the surrogates bounds it.

**Slack rescaling**, Delta(r) (1 + F(r) - F(r*)), asks the same margin of every wrong ranking. It is exact where all ranks that
count count the same (P@k, WTA, recall): Delta is then a number of swaps, and each number has its own best margin, as above. For
nDCG@k and AP the best Delta and the best margin are different rankings' at the same number of swaps. A search over multipliers
of margin-rescaled maxima finds only rankings on the convex hull of the pairs (Delta, margin): it is not exact, nor are the
prefix sums above, and we know no algorithm near the cost of a sort. They are refused.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor
from typing_extensions import Unpack

from rankstruct.kernels import swap_surrogate
from rankstruct.lists import refuse
from rankstruct.losses.autograd import with_gradient
from rankstruct.losses.base import LayoutOptions
from rankstruct.losses.gains import GainLoss, document_gains
from rankstruct.measures import DiscountedGain, Measure

__all__ = ["TopSurrogateLoss"]

_RANKS = 1000  # that are looked at where a measure has no cut-off


class TopSurrogateLoss(GainLoss):
    """Average or max surrogate of precision at k, or of another measure of the top: a convex upper bound of its regret, per list.

    Each of the highest irrelevant documents that can stand among the first k is compared with the mean of the relevant ones that
    it displaces, or with the lowest of them: `average` is the tighter one. Where most lists have irrelevant documents above
    that, as OHSUMED's do, both are lowest with all documents tied, as every convex bound of these measures is, and learn nothing;
    `StructuredHingeLoss` does. O(n log n).

    Args:
        measure: P@k, nDCG@k or another discounted gain, or its name; of relevant documents with one gain.
        kind: `"average"` or `"max"`.
        rescaling: `"margin"`, the most of regret + margin; or `"slack"`, the most of regret x (1 + margin), which takes measures
            whose ranks all count the same, such as P@k.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Raises:
        ValueError: another measure; slack rescaling of one that it does not take; on the CPU, relevant documents of
            several gains (elsewhere their list costs NaN).

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
        """A discounted gain, with slack rescaling one whose ranks all count the same."""
        if not isinstance(measure, DiscountedGain):
            raise ValueError(
                f"TopSurrogateLoss takes P@k, nDCG@k and other discounted gains, got {measure.name}; for RR take P@1, which it "
                "bounds"
            )
        if self.rescaling == "slack":
            weights = measure.position_weights(measure.cutoff or _RANKS)
            if bool(((weights != 0) & (weights != weights[0])).any()):
                raise ValueError(
                    "slack rescaling is exact where all ranks that count count the same, as in P@k and WTA, not for "
                    f"{measure.name}; take rescaling='margin'"
                )
        return measure

    def forward(self, scores: Tensor, labels: Tensor, **lists: Unpack[LayoutOptions]) -> Tensor:
        """The loss: a scalar, or one value a list with reduction `"none"`."""
        return self.evaluate(scores, labels, {**lists})

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
        """One value a list."""
        gains = document_gains(self.gain, labels, where)
        gains = refuse(
            gains,
            (gains > 0) & (gains != gains.amax(-1, keepdim=True)),
            f"relevant documents must have one gain under {self.gain.name}: give it min_relevant=, as in nDCG(min_relevant=1)",
        )
        a = self.gain.unchecked_weights(scores.shape[-1])
        lists = scores.detach(), gains, where, None, None, None, 0.0
        average, slack = self.kind == "average", self.rescaling == "slack"
        _, value, direction = swap_surrogate(*lists, a, self.gain.normalized, average, slack)
        return with_gradient(scores, value, direction)
