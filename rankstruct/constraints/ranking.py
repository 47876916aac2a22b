"""The best ranking under rules: by the compiled core where going down the list is exact, else by `program`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from rankstruct.checks import check_integers, check_numbers
from rankstruct.constraints.documents import Documents, uncompiled
from rankstruct.constraints.program import conflict, solve_program
from rankstruct.constraints.rules import Constraints, Rule, RulesLike
from rankstruct.kernels import core
from rankstruct.kernels.call import Call
from rankstruct.kernels.dispatch import CpuLists
from rankstruct.lists import Lists, as_tensor, column_of
from rankstruct.measures import nDCG
from rankstruct.messages import warn_caller

__all__ = ["CertifiedRanks", "rank_certified", "rank_under", "rerank_diverse"]

LEFT = 2  # of `Outcome` in constrained.hpp


@uncompiled
@torch.no_grad()
def rank_under(
    scores: Any,
    constraints: RulesLike,
    columns: Mapping[str, Any],
    *,
    k: int | None = None,
    positions: Any = None,
    discount: Any = "log2",
    time_limit: float = 10.0,
    **lists: Any,
) -> Tensor:
    """Rank each list by score under rules.

    The first positions, as many as the rules are about, have the largest sum of discounted scores of those that keep the rules;
    the others follow by score, as far as the rules let them. With rules about one prefix and groups that are nested or disjoint,
    or with either caps or quotas of disjoint groups, the ranking is the best as a whole, for every discount that decreases, and
    is found in the time of a sort. Else the first positions are the best for the discount given: with caps and quotas of disjoint
    groups about several prefixes, an assignment problem; with groups that overlap, a relaxation with an upper bound
    (`rank_certified`), and where that is not reached a mixed-integer programme (HiGHS) of the documents that could be on a better
    page; milliseconds to a second for a list. Equal scores keep their input order. Where caps leave no document for a position,
    the ranking ends there.

    Args:
        scores: `[..., list_size]`, or `[documents]`; any real numbers.
        constraints: the rules: `Constraints`, a text, or a list of texts.
        columns: for each column of the rules the groups of the documents, in the shape of the scores: names or whole numbers;
            None, NaN or "" for a document without a group. A mapping, or a data frame of pandas or polars. If no document has a
            group that a cap names, a warning says so, since a list need not have all; that of a quota is an error.
        k: the number of positions; all documents if None.
        positions: whole numbers in the shape of the scores: the position, from 1, at which a document must be, such as a
            sponsored one; 0 for any.
        discount: `"log2"`, `"letor"` or a function of ranks; used where the best ranking depends on it.
        time_limit: seconds for each list whose ranking depends on the discount; 0 for the relaxation alone. If the optimum is
            not found, the best ranking that was is returned, and a warning tells the gap.
        lists: `where`, `offsets`, `qid` or `group`, as of `rankstruct.evaluate`.

    Returns:
        Ranks, int64 in the shape of the scores: 1, 2, ... for the documents shown, 0 for all others.

    Raises:
        TypeError, ValueError: wrong shapes, a column that is missing, NaN scores; or no ranking of a list keeps all rules: the
            message names the list and the rules that are in conflict.

    >>> scores, sellers = [0.9, 0.8, 0.7, 0.1], ["a", "a", "a", "b"]
    >>> rank_under(scores, "seller <= 1 @ 2", {"seller": sellers})
    tensor([1, 3, 4, 2])
    >>> rank_under(scores, "new=1 >= 2 @ 3", {"new": [0, 0, 0, 1]})
    Traceback (most recent call last):
    ...
    ValueError: no ranking of list 0 keeps 'new=1 >= 2 @ 3': the list has 1 such document
    """
    given = {"k": k, "positions": positions, "discount": discount, "time_limit": time_limit}
    ranks, gaps = rank_certified(scores, constraints, columns, **given, **lists)
    warn_of_gaps(gaps.numpy(), time_limit)
    return ranks


@uncompiled
def rerank_diverse(scores: Any, diversity_groups: Any, k: int, where: Any = None, *, offsets: Any = None) -> Tensor:
    """Rank by score, keeping only the first document of each group (names or integers), until there are k >= 1.

    `rank_under` with one rule: of all rankings that show min(k, number of groups) documents, one per group, this one has the
    highest score for every positional feature map with c > 0 up to k and 0 after it. Equal scores keep their input order;
    padding is never shown. Lists are padded, `[..., list_size]` with `where`, or flat, `[documents]` with `offsets`.

    Returns:
        Ranks, int64 in the shape of `scores`: 1, 2, ... for the documents shown, 0 for all others.

    Raises:
        TypeError, ValueError: wrong types or shapes, a score that is NaN, or k below 1.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1.

    >>> rerank_diverse(torch.tensor([0.9, 0.8, 0.7, 0.6]), torch.tensor([1, 1, 2, 3]), k=2)
    tensor([1, 0, 2, 0])
    """
    scores = as_tensor("scores", scores)
    diversity_groups = column_of("diversity_groups", diversity_groups, scores)
    check_integers(1, k=k)
    rule = Rule("diversity_groups", None, 0, 1, k)
    lists = {"where": where, "offsets": offsets}
    documents = Documents.of(scores, Constraints(rule), {rule.column: diversity_groups}, lists)
    return documents.returned(PageRanker(documents, None, k).rank(documents.scores))


def warn_of_gaps(gaps: np.ndarray, time_limit: float) -> None:
    """Warn if rankings `[lists]` may not be the best."""
    if unsure := int((gaps > 0).sum()):
        warn_caller(
            f"{unsure} of {len(gaps)} rankings may not be the best: their discounted scores are within {float(gaps.max()):.2%} "
            f"of the optimum after time_limit={time_limit:g} seconds, those of list {int(gaps.argmax())} the least sure"
        )


class CertifiedRanks(NamedTuple):
    """Rankings under rules, and how far each may be from the best.

    Attributes:
        ranks: as of `rank_under`.
        gaps: `[lists]` float64: the difference of the discounted scores to an upper bound, relative to it, both of the first
            positions, as many as the rules are about, and counted from the lowest score of the list; 0 for rankings that are the
            best there, or within 1e-9 of it.

    >>> rank_certified([3, 2, 1], "seller <= 1 @ 2", {"seller": ["a", "a", "b"]}).ranks
    tensor([1, 3, 2])
    """

    ranks: Tensor
    gaps: Tensor


@uncompiled
@torch.no_grad()
def rank_certified(
    scores: Any,
    constraints: RulesLike,
    columns: Mapping[str, Any],
    *,
    k: int | None = None,
    positions: Any = None,
    discount: Any = "log2",
    time_limit: float = 10.0,
    **lists: Any,
) -> CertifiedRanks:
    """As `rank_under`, with an upper bound on what each ranking may lack, in place of a warning.

    With groups that overlap, each rule gets a price by Lagrangian relaxation, which bounds the discounted scores of every page,
    and pages on the way are repaired. Only pages within these bounds are left to the programme; with `time_limit=0` none are.

    Args:
        scores, constraints, columns, k, positions, discount, time_limit, lists: as of `rank_under`.

    Raises:
        TypeError, ValueError: as `rank_under`.

    Source: Held, Wolfe, Crowder, "Validation of subgradient optimization", Mathematical Programming 6, 1974.

    >>> columns = {"seller": ["a", "a", "b", "b"], "new": [0, 1, 0, 1]}
    >>> rank_certified([4, 3, 2, 1], ["seller <= 1 @ 2", "new=1 >= 1 @ 2"], columns)
    CertifiedRanks(ranks=tensor([1, 3, 4, 2]), gaps=tensor([0.], dtype=torch.float64))
    """
    documents = Documents.of(scores, constraints, columns, lists)
    pinned = None if positions is None else documents.in_order(positions, "positions")
    ranker = PageRanker(documents, pinned, k, time_limit)
    ranks = documents.returned(ranker.rank(documents.scores, nDCG(discount=discount).position_weights))
    return CertifiedRanks(ranks, torch.from_numpy(ranker.gaps))


class PageRanker:
    """Ranks documents under rules, by any scores.

    Args:
        documents: with their groups.
        positions: `[documents]`, 0 for any; None if none is given.
        k: the number of positions; all documents if None.
        time_limit: seconds for each list that a programme ranks.

    Attributes:
        gaps: `[lists]`, of the ranking before, as of `CertifiedRanks`.
    """

    def __init__(
        self, documents: Documents, positions: np.ndarray | None, k: int | None = None, time_limit: float = 10.0
    ) -> None:
        check_numbers(">= 0 and <= inf", time_limit=time_limit)
        self.documents, self.positions, self.time_limit = documents, positions, time_limit
        longest = int(np.diff(documents.offsets).max(initial=0))
        check_integers(1, optional=True, k=k)
        self.length = max(longest if k is None else min(k, longest), 1)

    def rank(
        self, scores: np.ndarray, discounts: Callable[[int], Tensor] | None = None, name: str = "this measure"
    ) -> np.ndarray:
        """Ranks `[documents]`, 0 for those not shown.

        `discounts` are those of so many positions; None if the best ranking must be the same for all, as for the measure of
        this name.
        """
        offsets, self.gaps = self.documents.offsets, np.zeros(self.documents.lists)
        ranks, outcome = self.greedy(scores)
        for index in np.flatnonzero(outcome):
            here = slice(offsets[index], offsets[index + 1])
            pinned = None if self.positions is None else self.positions[here]
            rules, size = self.documents.rules_of(here), min(self.length, here.stop - here.start)
            if outcome[index] == LEFT:
                if discounts is None:
                    raise ValueError(
                        f"the best ranking of list {index} depends on the discount, which {name} has not: caps and quotas are "
                        "about several prefixes, or groups overlap; use a discounted gain such as nDCG@10"
                    )
                weights = discounts(size).numpy()
                found = solve_program(scores[here], rules, pinned, weights, self.time_limit)
                if found is not None:
                    ranks[here], self.gaps[index] = found
                    continue
            raise ValueError(f"no ranking of list {index} keeps {conflict(rules, pinned, size)}")
        return ranks

    def greedy(self, scores: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Ranks `[documents]` and the outcome of each list."""
        documents = self.documents
        most = np.iinfo(np.int32).max  # above the number of documents, as all larger ones are
        columns = documents.constraints.columns
        table = [
            (
                columns.index(rule.column),
                which,
                rule.value is None,
                min(rule.prefix or most, most),
                min(rule.lower, most),
                most if rule.upper is None else min(rule.upper, most),
            )
            for rule, which in zip(documents.constraints.rules, documents.which, strict=True)
        ]
        options = core.constrained.options(
            *np.array(table, np.int64).T.copy(),
            len(columns),
            self.length,
            np.ascontiguousarray(documents.groups.reshape(-1)),
            self.positions,
        )
        flat = torch.from_numpy(_finite(scores))
        batch = CpuLists(flat, Lists(torch.zeros_like(flat), None, torch.from_numpy(documents.offsets)), -np.inf)
        refused = batch.run(Call(core.constrained, options))
        assert refused == -1, "scores are finite"
        return batch.direction.long().numpy(), batch.task_loss.long().numpy()


def _finite(scores: np.ndarray) -> np.ndarray:
    """Infinite scores as ranks among all scores, for kernels that refuse them: only their order counts."""
    return scores if np.isfinite(scores).all() else np.unique(scores, return_inverse=True)[1].astype(np.float64)
