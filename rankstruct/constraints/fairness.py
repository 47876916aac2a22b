"""Measures of group fairness of rankings. Each takes ranks and the groups of documents, and returns a number per list.

A list of which a measure is not defined, such as one without protected documents, has NaN: take `nanmean`.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from rankstruct.arrays import as_numbers
from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.constraints.documents import Layout, whole_ranks
from rankstruct.constraints.exposure import Discounts
from rankstruct.constraints.rules import NO_GROUP, Groups, fair_quotas, group_ids
from rankstruct.messages import did_you_mean, warn_caller

__all__ = ["attention_fairness", "exposure_ratio", "passes_fair_test", "rKL", "rND"]


def rND(ranks: Any, groups: Any, protected: Any, *, step: int = 10, **lists: Any) -> Tensor:
    """Normalised discounted difference: how far the share of protected documents in each prefix is from that of the list.

    |share in the first i - share of the list| / log2 i, summed over the prefixes i = step, 2 step, ..., relative to the largest
    value that a ranking can have. 0 is fair, 1 the most unfair ranking, such as one with all protected documents last. It is
    unfair to either side.

    Args:
        ranks: whole numbers, 1 for the first position, 0 for a document that is not shown; `[..., list_size]`, or flat.
        groups: the groups of the documents in the shape of the ranks: names or whole numbers.
        protected: the protected group; all others, also documents without a group, are not protected.
        step: the distance between prefixes; shorter lists have the value NaN.
        lists: `where`, `offsets`, `qid` or `group`, as of `rankstruct.evaluate`.

    Returns:
        `[lists]` float64; NaN where no ranking is unfair.

    Raises:
        TypeError, ValueError: wrong shapes or types; ranks that are not 1, 2, ... for the documents shown.

    Warns:
        UserWarning: no document has the protected group.

    Source: Yang, Stoyanovich, "Measuring Fairness in Ranked Outputs", SSDBM 2017. Its largest value is found by dynamic
    programming over the numbers of protected documents.

    >>> sex = ["f", "m", "m", "f", "m", "f"]
    >>> rND([6, 1, 2, 5, 3, 4], sex, "f", step=2)
    tensor([1.], dtype=torch.float64)
    >>> rND([1, 2, 3, 4, 5, 6], sex, "f", step=2)
    tensor([0.], dtype=torch.float64)
    """
    return _of_prefixes("rND", ranks, groups, protected, step, lists)


def rKL(ranks: Any, groups: Any, protected: Any, *, step: int = 10, **lists: Any) -> Tensor:
    """Normalised discounted Kullback-Leibler divergence: as `rND`, with the divergence of each prefix's shares from the list's.

    Args:
        ranks, groups, protected, step, lists: as of `rND`.

    Returns:
        `[lists]` float64, from 0, fair, to 1; NaN where no ranking is unfair.

    Source: as `rND`.

    >>> rKL([6, 1, 2, 5, 3, 4], ["f", "m", "m", "f", "m", "f"], "f", step=2)
    tensor([1.], dtype=torch.float64)
    """
    return _of_prefixes("rKL", ranks, groups, protected, step, lists)


def attention_fairness(
    ranks: Any,
    groups: Any,
    *,
    target: Mapping[Any, float] | None = None,
    k: int | None = None,
    discount: Any = "log2",
    **lists: Any,
) -> Tensor:
    """AWRF, attention-weighted rank fairness: how similar the groups' shares of attention are to a target, 1 if equal.

    The attention of a document is the discount of its position. The value is 1 - the Jensen-Shannon divergence of the two
    distributions, with logarithms to base 2; 0 if they have no group in common. Documents without a group are left out.

    Args:
        ranks, groups, lists: as of `rND`.
        target: for each group its share, >= 0, in any unit; by default the groups' shares of the list's documents.
        k: the number of positions that are seen; all if None.
        discount: `"log2"`, `"letor"` or a function of ranks.

    Returns:
        `[lists]` float64; NaN for lists that show no document of a group.

    Raises:
        TypeError, ValueError: as `rND`; a group that is not in the target.

    Source: Sapiezynski, Zeng, Robertson, Mislove, Wilson, "Quantifying the Impact of User Attention on Fair Group Representation
    in Ranked Lists", WWW 2019 companion; with this divergence: Raj, Ekstrand, "Measuring Fairness in Ranked Results: An
    Analytical and Empirical Comparison", SIGIR 2022, and the TREC Fair Ranking Track 2022.

    >>> attention_fairness([1, 2, 3, 4], ["a", "a", "b", "b"])
    tensor([0.9862], dtype=torch.float64)
    >>> attention_fairness([1, 2, 3, 4], ["a", "a", "b", "b"], target={"a": 0.64, "b": 0.36})
    tensor([1.0000], dtype=torch.float64)
    """
    layout, worth = _ranked(ranks, lists, k, discount)
    read = group_ids("groups", groups)
    ids = layout.given(read.ids, "groups")
    known = ids != NO_GROUP
    numbers, which = np.unique(ids[known], return_inverse=True)
    shape = (layout.lists, len(numbers))
    attention, wanted = np.zeros(shape), np.zeros(shape)
    np.add.at(attention, (layout.of_list[known], which), worth[known])
    if target is None:
        np.add.at(wanted, (layout.of_list[known], which), 1.0)
    else:
        wanted = np.concatenate(
            [wanted + _target_shares(target, _names(read, numbers)), np.zeros((layout.lists, 1))], 1
        )
        wanted[:, -1] = sum(map(float, target.values())) - wanted.sum(1)  # of groups that no document has
        attention = np.concatenate([attention, np.zeros((layout.lists, 1))], 1)
    with np.errstate(invalid="ignore"):
        p, q = (each / each.sum(1, keepdims=True) for each in (attention, wanted))
    middle = (p + q) / 2
    divergence = (_divergence(p, middle) + _divergence(q, middle)) / 2
    found = 1 - divergence.sum(1) / np.log(2)
    return torch.from_numpy(np.where(attention.sum(1) > 0, found, np.nan))


def exposure_ratio(
    ranks: Any,
    groups: Any,
    protected: Any,
    *,
    merits: Any = None,
    kind: Literal["exposure", "treatment", "impact"] | None = None,
    k: int | None = None,
    discount: Any = "log2",
    **lists: Any,
) -> Tensor:
    """The protected group's mean exposure over that of all other documents: 1 is fair, less is to its disadvantage.

    - `"exposure"`, the default without merits: of the discounts of the positions, 0 for documents not shown (demographic parity);
    - `"treatment"`, the default with merits: each side's exposure is divided by its mean merit (disparate treatment, DTR);
    - `"impact"`: the exposures are multiplied by the merits, as clicks are, before they are averaged and divided by the mean
      merit (disparate impact, DIR).

    Args:
        ranks, groups, protected, lists: as of `rND`.
        merits: >= 0, in the shape of the ranks, such as the documents' relevance.
        k: the number of positions that are seen; all if None.
        discount: `"log2"`, `"letor"` or a function of ranks.

    Returns:
        `[lists]` float64, inf if only the protected are exposed; NaN where a side has no documents, or no merit.

    Raises:
        TypeError, ValueError: as `rND`; merits that are negative, not finite, or missing.

    Source: Singh, Joachims, "Fairness of Exposure in Rankings", KDD 2018, sections 4.1 to 4.3.

    >>> ranks, groups = [1, 2, 3, 4], ["m", "m", "f", "f"]
    >>> exposure_ratio(ranks, groups, "f")
    tensor([0.5706], dtype=torch.float64)
    >>> exposure_ratio(ranks, groups, "f", merits=[0.8, 0.8, 0.7, 0.7])
    tensor([0.6522], dtype=torch.float64)
    """
    chosen = kind or ("exposure" if merits is None else "treatment")
    check_choice("kind", chosen, ("exposure", "treatment", "impact"))
    if (merits is None) != (chosen == "exposure"):
        raise ValueError(f"kind {chosen!r} {'requires' if merits is None else 'takes no'} merits=")
    layout, worth = _ranked(ranks, lists, k, discount)
    side = _protected(layout, groups, protected)
    worthy = np.ones(len(worth)) if merits is None else _merits(layout, merits)
    value = worth * worthy if chosen == "impact" else worth
    sums = [
        [np.bincount(layout.of_list[here], each[here], layout.lists) for each in (value, worthy)]
        for here in (side, ~side)
    ]
    with np.errstate(invalid="ignore", divide="ignore"):
        own, others = (exposed / due for exposed, due in sums)
        return torch.from_numpy(own / others)


def passes_fair_test(
    ranks: Any,
    groups: Any,
    protected: Any,
    share: float,
    *,
    k: int | None = None,
    alpha: float = 0.1,
    adjusted: bool = False,
    **lists: Any,
) -> Tensor:
    """FA*IR's test of ranked group fairness: whether each prefix has at least the protected documents of `fair_quotas`.

    Args:
        ranks, groups, protected, lists: as of `rND`.
        share, alpha, adjusted: as of `fair_quotas`.
        k: the number of positions that are tested; all if None. A shorter ranking is tested as far as it goes.

    Returns:
        `[lists]` bool; True for a list that shows nothing.

    Raises:
        TypeError, ValueError: as `rND` and `fair_quotas`.

    Source: as `fair_quotas`.

    >>> groups = ["m", "m", "m", "f", "m", "f", "m", "f"]
    >>> passes_fair_test([1, 2, 3, 4, 5, 6, 7, 8], groups, "f", 0.5), passes_fair_test([1, 2, 3, 5, 4, 6, 7, 8], groups, "f", 0.5)
    (tensor([True]), tensor([False]))
    """
    layout, _ = _ranked(ranks, lists, k, "log2")
    last = int(layout.scores.max(initial=0))
    quotas = np.array(fair_quotas(k or max(last, 1), share, alpha=alpha, adjusted=adjusted))[:last]
    counted = _counts(layout, _protected(layout, groups, protected), len(quotas))
    tested = np.arange(len(quotas)) < layout.lengths()[:, None]
    return torch.from_numpy(((counted >= quotas) | ~tested).all(1))


def _ranked(ranks: Any, lists: Mapping[str, Any], k: int | None, discount: Any) -> tuple[Layout, np.ndarray]:
    """The documents, whose scores are their ranks, and the discounts of these, 0 for those not shown."""
    discounts = Discounts.read(k, discount)
    layout = Layout.read(whole_ranks(ranks), lists, "ranks")
    layout.check_ranks()
    position = layout.scores.astype(np.int64)
    weights = discounts.of(int(position.max(initial=0)))
    return layout, np.concatenate([[0.0], weights])[position]


def _merits(layout: Layout, merits: Any) -> np.ndarray:
    """Merits as the documents are, checked."""
    found = layout.given(as_numbers("merits", merits), "merits").astype(np.float64)
    if (wrong := found[~((found >= 0) & (found < np.inf))]).size:
        raise ValueError(f"merits must be finite and >= 0, got {wrong[0]:g}")
    return found


def _protected(layout: Layout, groups: Any, protected: Any) -> np.ndarray:
    """Which documents are protected."""
    read = group_ids("groups", groups)
    ids = layout.given(read.ids, "groups")
    if read.names is not None:
        found = ids == (read.names.index(str(protected)) if str(protected) in read.names else -1)
    else:
        number = _whole(protected)
        if number is None:
            raise ValueError(
                f"the groups are whole numbers or booleans, so that protected must be one, got {protected!r}"
            )
        found = ids == number
    if len(ids) and not found.any():
        known = _names(read, np.unique(ids[ids != NO_GROUP]))
        warn_caller(f"no document has the protected group {protected!r}{did_you_mean(str(protected), known)}")
    return found


def _whole(group: Any) -> int | None:
    """A group as a whole number, exactly, `"true"` and `"false"` as 1 and 0; None if it is none."""
    if isinstance(group, str):
        group = {"true": "1", "false": "0"}.get(group.lower(), group)
    with suppress(TypeError, ValueError, OverflowError):
        exact = Fraction(group.item() if hasattr(group, "item") else group)
        return int(exact) if exact.denominator == 1 else None
    return None


def _names(read: Groups, numbers: np.ndarray) -> list[str]:
    """What these groups are called."""
    return [str(number) if read.names is None else read.names[number] for number in numbers.tolist()]


def _counts(layout: Layout, side: np.ndarray, last: int) -> np.ndarray:
    """The number of documents of a side in each prefix, `[lists, last]`."""
    position = layout.scores.astype(np.int64)
    here = (position > 0) & (position <= last) & side
    found = np.zeros((layout.lists, last), np.int64)
    found[layout.of_list[here], position[here] - 1] = 1
    return found.cumsum(1)


def _target_shares(target: Mapping[Any, float], names: list[str]) -> np.ndarray:
    """The shares of these groups."""
    if not isinstance(target, Mapping) or not target:
        raise TypeError(f'target must be shares by group, such as {{"f": 0.5, "m": 0.5}}, got {target!r}')
    for name, share in target.items():
        check_numbers(">= 0", **{f"target[{name!r}]": share})
    wholes = {name: None if isinstance(name, str) else _whole(name) for name in target}
    by_text = {str(name if wholes[name] is None else wholes[name]): float(share) for name, share in target.items()}
    if not sum(by_text.values()) > 0:
        raise ValueError("the shares of target must not all be 0")
    if missing := [name for name in names if name not in by_text]:
        raise ValueError(
            f"target has no share of the group {missing[0]!r}{did_you_mean(missing[0], by_text)}; give 0 if it should get no "
            "attention"
        )
    return np.array([by_text[name] for name in names])


def _divergence(p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """The terms p log(p / q), 0 where p is 0; NaN stays."""
    return p * np.log(np.divide(p, q, out=np.ones_like(p), where=(p > 0) & (q > 0)))


def _of_prefixes(name: str, ranks: Any, groups: Any, protected: Any, step: int, lists: Mapping[str, Any]) -> Tensor:
    check_integers(1, step=step)
    layout, _ = _ranked(ranks, lists, None, "log2")
    side = _protected(layout, groups, protected)
    lengths, sizes = layout.lengths(), np.diff(layout.offsets)
    totals = np.bincount(layout.of_list[side], minlength=layout.lists)
    counted, found = _counts(layout, side, int(lengths.max(initial=0))), np.full(layout.lists, np.nan)
    for index, (shown, size, total) in enumerate(zip(lengths.tolist(), sizes.tolist(), totals.tolist(), strict=True)):
        prefixes = np.arange(step, shown + 1, step)
        largest = _largest(name, shown, size, total, int(step))
        if largest > 0:
            found[index] = _terms(name, prefixes, counted[index, prefixes - 1], total / size).sum() / largest
    return torch.from_numpy(found)


def _terms(name: str, prefixes: np.ndarray, counts: np.ndarray, share: float) -> np.ndarray:
    """The discounted difference of each prefix."""
    here = counts / prefixes
    if name == "rND":
        apart = np.abs(here - share)
    else:
        p, q = np.stack([here, 1 - here]), np.array([share, 1 - share]).reshape(2, *[1] * here.ndim)
        apart = _divergence(p, np.broadcast_to(q, p.shape)).sum(0)
    return apart / np.log2(np.maximum(prefixes, 2))


@lru_cache(maxsize=4096)
def _largest(name: str, shown: int, size: int, total: int, step: int) -> float:
    """The largest sum that a ranking of so many of the documents, of which `total` are protected, can have."""
    if not 0 < total < size:
        return 0.0
    best = np.full(total + 1, -np.inf)  # by the number of protected documents so far
    best[0] = 0.0
    for prefix in range(step, shown + 1, step):
        windows = np.lib.stride_tricks.sliding_window_view(np.concatenate([np.full(step, -np.inf), best]), step + 1)
        counts = np.arange(total + 1)
        possible = (counts <= prefix) & (prefix - counts <= size - total)
        best = windows.max(1) + _terms(name, np.full(total + 1, prefix), np.minimum(counts, prefix), total / size)
        best[~possible] = -np.inf
    return float(best.max()) if shown >= step else 0.0
