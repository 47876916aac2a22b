"""Measures for incomplete judgements: unjudged documents are left out (Bpref), or inferred from a sample of a pool (infAP).

In `evaluate`, `judged=` marks the judged documents, and `pooled=` those in the pool that the judgements sample. Without them all
documents count as judged. `ideal_labels=` are the labels of all judged documents, retrieved or not.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor

from rankstruct.measures.base import Measure, register_measure
from rankstruct.measures.ranked import RankedLists, is_relevant
from rankstruct.measures.rounding import elementwise, row_sums

__all__ = ["Bpref", "infAP"]

_EPSILON = 1e-5  # smoothing of trec_eval, defines the share of relevant documents even if none was judged


@register_measure
@dataclass(frozen=True)
class Bpref(Measure):
    """Binary preference: the mean over relevant documents of 1 - min(i, R) / min(N, R), with i judged irrelevant ones above.

    R and N are the numbers of relevant and of judged irrelevant documents; a relevant document that was not retrieved adds 0.
    Unjudged documents do not count. There is no cut-off.

    Source: Buckley and Voorhees, "Retrieval Evaluation with Incomplete Information", SIGIR 2004, as trec_eval computes it.

    >>> Bpref()([4.0, 3.0, 2.0, 1.0], [0, 1, 0, 1], judged=[True, True, False, True])
    tensor(0., dtype=torch.float64)
    >>> Bpref()([4.0, 3.0, 2.0, 1.0], [0, 1, 0, 1])
    tensor(0.2500, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)

    under_ties: ClassVar[str] = "closed form"

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """A relevant document tied with a irrelevant ones has 0, 1, ... or a of them above it, all equally likely."""
        relevant = lists.relevant(self.min_relevant)
        total = lists.total_relevant(self.min_relevant)
        bad = lists.where.double() - relevant
        bad = bad if lists.judged is None else bad * lists.judged
        known = row_sums(bad)
        if lists.ideal_labels is not None:
            known = (
                (~(is_relevant(lists.ideal_labels, self.min_relevant) | lists.ideal_labels.isnan())).sum(-1).double()
            )
        above, tied = bad.cumsum(-1), torch.zeros_like(bad)
        if lists.first is not None and lists.last is not None:
            before = (above - bad).gather(-1, lists.first)
            above, tied = before, above.gather(-1, lists.last) - before
        bound = total.unsqueeze(-1)
        below = torch.minimum((bound - above).clamp(min=0), tied + 1)  # how many of the counts are below the bound
        mean = (below * above + below * (below - 1) / 2 + (tied + 1 - below) * bound) / (tied + 1)
        wrong = mean / torch.minimum(known, total).clamp(min=1).unsqueeze(-1)
        return row_sums(relevant * (1 - wrong)) / total, total > 0


@register_measure
@dataclass(frozen=True)
class infAP(Measure):
    """Inferred average precision: AP estimated where only a sample of a pool of documents was judged.

    The expected precision at a relevant document counts the documents above it that are in the pool, in the proportion of
    relevant ones among those judged. If all documents are judged it is AP, up to an epsilon of 1e-5. There is no cut-off.

    Source: Yilmaz and Aslam, "Estimating Average Precision with Incomplete and Imperfect Judgments", CIKM 2006, as trec_eval
    computes it.

    >>> infAP()([4.0, 3.0, 2.0, 1.0], [1, 0, 0, 1], judged=[True, False, True, True], pooled=[True] * 4)
    tensor(0.8125, dtype=torch.float64)
    """

    cutoff: int | None = field(default=None, init=False)

    under_ties: ClassVar[str] = "closed form"

    def compute(self, lists: RankedLists) -> tuple[Tensor, Tensor]:
        """At each rank: the probability that its document is relevant, times its mean contribution over the documents above.

        In a group of n tied documents, v0 of them unjudged, the number v of these among the i - 1 above is hypergeometric; given
        v, the other counts are independent, and are replaced by their means.
        """
        relevant = lists.relevant(self.min_relevant)
        total = lists.total_relevant(self.min_relevant)
        real = lists.where.double()
        judged = real if lists.judged is None else real * lists.judged
        pooled = judged if lists.pooled is None else real * lists.pooled
        waiting = pooled * (1 - judged)
        places = torch.arange(real.shape[-1], device=real.device).expand(real.shape)
        first, last = (places, places) if lists.first is None or lists.last is None else (lists.first, lists.last)

        def split(values: Tensor) -> tuple[Tensor, Tensor]:
            """The counts before the group of each rank, and in it."""
            so_far = values.cumsum(-1)
            before = (so_far - values).gather(-1, first)
            return before, so_far.gather(-1, last) - before

        hits, tied_hits = split(relevant)
        known, tied_known = split(judged)
        unknown, tied_waiting = split(waiting)
        size, above = (last - first + 1).double(), (places - first).double()
        missing = size - tied_known
        found = torch.zeros_like(real)
        for v in range(int(missing.max()) + 1 if missing.numel() else 0):
            chance = _hypergeometric(v, missing, size - 1, above)
            earlier = (above - v).clamp(min=0)  # judged ones of the group above
            hits_above = hits + earlier * (tied_hits - 1) / (tied_known - 1).clamp(min=1)
            known_above = known + earlier
            in_pool = known_above + unknown + v * tied_waiting / missing.clamp(min=1)
            share = (hits_above + _EPSILON) / (known_above + 2 * _EPSILON)
            found = found + torch.where(chance > 0, chance * in_pool * share, 0.0)
        credit = tied_hits / size * (1 + found) / lists.ranks
        return row_sums(torch.where(lists.where, credit, 0.0)) / total, total > 0


def _hypergeometric(hits: int, marked: Tensor, size: Tensor, drawn: Tensor) -> Tensor:
    """The probability of `hits` marked items among `drawn` of `size`, elementwise; 0 if impossible."""
    rest = size - marked
    possible = (hits <= marked) & (hits <= drawn) & (drawn - hits <= rest) & (rest >= 0)
    chosen = torch.where(possible, drawn, float(hits))
    marked, rest = torch.where(possible, marked, float(hits)), torch.where(possible, rest, 0.0)
    log = _log_choose(marked, torch.full_like(marked, hits)) + _log_choose(rest, chosen - hits)
    return torch.where(possible, elementwise(torch.exp, log - _log_choose(marked + rest, chosen)), 0.0)


def _log_choose(n: Tensor, k: Tensor) -> Tensor:
    whole, chosen, left = (elementwise(torch.lgamma, each + 1) for each in (n, k, n - k))
    return whole - chosen - left
