"""Cut-offs with a guarantee: how many documents of a list to show, learned from lists that trained nothing.

Each document gets a value that orders its list as the scores do, and the documents with at least a threshold are shown. `CutOff`
finds the threshold for which a target holds on new lists, whatever the scorer, if these are drawn as the held-out lists were
(exchangeable). It is useless, and wrong in silence, if queries, documents or the scorer have changed: fit it again then.

Sources: conformal risk control, Angelopoulos, Bates, Fisch, Lei and Schuster, ICLR 2024, theorem 1 (in expectation);
risk-controlling prediction sets, Bates et al., JACM 2021 (with probability, monotone losses), with the Hoeffding-Bentkus p-value;
Learn then Test, Angelopoulos, Bates, Candès, Jordan and Lei, 2021, with fixed-sequence testing (precision).
"""

from __future__ import annotations

import math
import warnings
from typing import Any, Literal, get_args

import numpy as np
import torch

from rankstruct.checks import check_choice, check_numbers
from rankstruct.lists import finite_values, lists_of, real_documents
from rankstruct.measures import nDCG

__all__ = ["CutOff"]

Rule = Literal["softmax", "score", "rank"]
_STEPS = 400  # of the thresholds that are tested for precision
_LEAST = 1e-6  # of these, for the rule softmax


class CutOff:
    """Show as few documents as a guarantee allows.

    Exactly one of the targets is given, a number between 0 and 1:

    Args:
        recall: the mean share of the relevant documents of a list that is shown.
        ndcg: the mean share of the DCG of the complete list, in the order of the scores, that is shown.
        precision: the mean share of relevant documents among those shown, 1 if none is; then as many documents as possible are
            shown. It is not monotone in their number, so that it needs `confidence`.
        confidence: the probability, over held-out lists, that the target holds for new ones. If None, the target holds in
            expectation over held-out and new lists, with fewer documents.
        rule: what is compared with the threshold. `"softmax"`, the softmax of the scores in units of their standard deviation in
            the list: its share of the list's relevance, if the scores were right, so that lists with a clear winner become
            short; `"score"`, the score itself, for scores that mean the same in all lists; `"rank"`, a fixed number of documents.
        min_relevant: the least label of a relevant document, for recall and precision; if None, every label above 0.
        threshold: the threshold that `fit` finds, as saved; None before.

    Lists without relevant documents have no recall and no DCG, and are left out; for precision only those without documents are.
    Tied documents are shown together or not at all; the rank of tied documents is that of the last of them.

    Attributes:
        threshold_: the least value of a document that is shown; of the rule rank, minus the number of documents.
        held_out_: the mean of the target's measure over the held-out lists at this threshold.
        num_lists_: the number of held-out lists that counted.
        num_empty_: the number of those that were left out.

    Raises:
        ValueError: not exactly one target, one that is not between 0 and 1, or options that do not go with it.

    >>> rng = np.random.default_rng(0)
    >>> labels = rng.random((500, 20)) < 0.2
    >>> scores = labels + rng.normal(size=labels.shape)
    >>> cut_off = CutOff(recall=0.9).fit(scores[:300], labels[:300])
    >>> shown = cut_off.predict(scores[300:])
    >>> shown.shape, round(float(shown.float().mean()), 2)
    (torch.Size([200, 20]), 0.66)
    >>> found = (shown.numpy() & labels[300:]).sum(1)[labels[300:].any(1)] / labels[300:].sum(1)[labels[300:].any(1)]
    >>> round(float(found.mean()), 2)
    0.9
    """

    threshold_: float
    held_out_: float
    num_lists_: int
    num_empty_: int

    def __init__(
        self,
        *,
        recall: float | None = None,
        ndcg: float | None = None,
        precision: float | None = None,
        confidence: float | None = None,
        rule: Rule = "softmax",
        min_relevant: float | None = None,
        threshold: float | None = None,
    ) -> None:
        targets = {"recall": recall, "ndcg": ndcg, "precision": precision}
        given = [name for name, value in targets.items() if value is not None]
        if len(given) != 1:
            raise ValueError(
                f"give exactly one target, recall=, ndcg= or precision=, such as CutOff(recall=0.9); got {given}"
            )
        check_choice("rule", rule, get_args(Rule))
        check_numbers("> 0 and < 1", optional=True, **{given[0]: targets[given[0]], "confidence": confidence})
        check_numbers(optional=True, min_relevant=min_relevant, threshold=threshold)
        if min_relevant is not None and ndcg is not None:
            raise ValueError("min_relevant is of recall and precision; remove it, ndcg has gains of all labels")
        if precision is not None and confidence is None:
            raise ValueError(
                "precision is not monotone in the number of documents, so that no cut-off controls it in expectation; give "
                "confidence=, such as 0.9"
            )
        if precision is not None and rule == "score":
            raise ValueError(
                "precision tests thresholds that are known before the lists, which scores have not; use rule='softmax' or 'rank'"
            )
        self.recall, self.ndcg, self.precision = recall, ndcg, precision
        self.confidence, self.rule, self.min_relevant = confidence, rule, min_relevant
        if threshold is not None:
            self.threshold_ = float(threshold)

    @property
    def target(self) -> tuple[str, float]:
        """The name of the target and its value."""
        name = next(name for name in ("recall", "ndcg", "precision") if getattr(self, name) is not None)
        return name, float(getattr(self, name))

    @property
    def options(self) -> dict[str, Any]:
        """The arguments of an equal cut-off, with the threshold if there is one; they can be written as JSON.

        >>> CutOff(recall=0.9, threshold=0.02).options
        {'recall': 0.9, 'confidence': None, 'rule': 'softmax', 'threshold': 0.02}
        """
        found = {**dict([self.target]), "confidence": self.confidence, "rule": self.rule}
        more = {"min_relevant": self.min_relevant, "threshold": getattr(self, "threshold_", None)}
        return found | {name: value for name, value in more.items() if value is not None}

    def __repr__(self) -> str:
        return f"CutOff({', '.join(f'{name}={value!r}' for name, value in self.options.items())})"

    def fit(self, scores: Any, labels: Any, **lists: Any) -> CutOff:
        """Learn the threshold from held-out lists: lists that trained and selected nothing of the scorer.

        Args:
            scores: `[..., list_size]`, or flat, finite.
            labels: the same shape.
            lists: `where`, `offsets`, `qid` or `group`, as of `rankstruct.evaluate`; and `num_relevant`, the relevant documents
                of each list if some were not retrieved.

        Returns:
            This object.

        Raises:
            ValueError: wrong lists; too few of them for the target; or one that even complete lists, or for precision the
                first documents, do not reach. What an earlier call has learned then stays.

        Warns if precision is reached by showing nothing of most lists.
        """
        unknown = set(lists) - {"where", "offsets", "qid", "group", "num_relevant"}
        if unknown:
            raise TypeError(f"fit takes where, offsets, qid, group and num_relevant; got {sorted(unknown)}")
        flat, given = lists_of(scores, labels, lists)
        rows, ends = real_documents(flat, given)
        values, labels = finite_values("scores", flat, rows), finite_values("labels", given.labels, rows)
        name, wanted = self.target
        every = len(ends) - 1
        if name == "precision":
            ends = np.unique(ends)  # without lists that have no document
        least = np.nextafter(0, 1) if self.min_relevant is None else self.min_relevant
        relevant = labels >= least
        of_list = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        worth = relevant.astype(np.float64)
        if name == "ndcg":
            if (labels < 0).any():
                raise ValueError(f"labels must be at least 0 for the target ndcg, got {labels.min()}")
            worth = nDCG().document_gains(torch.from_numpy(labels)).numpy() * _discounts(values, of_list, ends)
        whole = np.bincount(of_list, worth, len(ends) - 1)
        if given.num_relevant is not None:
            whole = self._with_missed(whole, given.num_relevant.cpu().numpy())
        counted = np.ones(len(whole), bool) if name == "precision" else whole > 0
        n = int(counted.sum())
        if not n:
            raise ValueError(f"the target {name} needs lists with relevant documents, got none in {every} lists")
        shown = _shown_first(values, of_list, ends, self.rule)
        if name == "precision":
            self.threshold_, self.held_out_ = self._precise(shown, relevant, of_list, ends)
        else:
            keep = counted[of_list] & (worth > 0)
            shares = worth[keep] / whole[of_list[keep]]
            self.threshold_, self.held_out_ = self._complete(shown[keep], shares, n, wanted)
        self.num_lists_, self.num_empty_ = n, every - n
        return self

    def _complete(self, shown: np.ndarray, shares: np.ndarray, n: int, wanted: float) -> tuple[float, float]:
        """The threshold for recall or nDCG, and the mean that it reaches on the n held-out lists.

        Args:
            shown: when documents that count are shown, the first at the highest number.
            shares: what each adds to the measure of its list.
        """
        order = np.argsort(-shown, kind="stable")
        thresholds, reached = shown[order], np.cumsum(shares[order]) / n
        last = np.append(thresholds[1:] != thresholds[:-1], True)  # of equal values: they are shown together
        thresholds, reached = thresholds[last], np.minimum(reached[last], 1.0)
        holds = self._holds(1 - reached, n, 1 - wanted)
        if not holds.any():
            # Without a threshold, no list has a relevant document among those retrieved.
            raise ValueError(self._unreached(float(reached[-1]) if len(reached) else 0.0, n))
        at = int(np.argmax(holds))  # both bounds are monotone, so that all later thresholds hold too
        return float(thresholds[at]), float(reached[at])

    def _with_missed(self, found: np.ndarray, num_relevant: np.ndarray) -> np.ndarray:
        """The relevant documents of each list with those that were not retrieved; raises ValueError if they do not fit."""
        if self.target[0] != "recall":
            raise ValueError(f"num_relevant is of the target recall; remove it, got the target {self.target[0]}")
        if not (num_relevant >= found).all():
            at = int(np.argmin(num_relevant >= found))
            raise ValueError(
                f"num_relevant must count the relevant documents in the list too, got {num_relevant[at]:g} for list {at}, which "
                f"has {found[at]:g}"
            )
        return num_relevant

    def _holds(self, risk: np.ndarray, n: int, allowed: float) -> np.ndarray:
        """Whether mean losses `[thresholds]` over n held-out lists guarantee that the expected loss is at most `allowed`."""
        if self.confidence is None:
            return (n * risk + 1) / (n + 1) <= allowed + 1e-12
        return hoeffding_bentkus(risk, n, allowed) <= 1 - self.confidence

    def _unreached(self, complete: float, n: int) -> str:
        name, wanted = self.target
        if complete >= 1 - 1e-9:
            allowed = 1 - wanted
            needed = (
                1 / allowed - 1 if self.confidence is None else math.log(1 - self.confidence) / math.log(1 - allowed)
            )
            return (
                f"{n} held-out lists are too few for {name}={wanted}: even complete lists need at least "
                f"{math.ceil(needed - 1e-9)}; give more lists or a lower target"
            )
        return (
            f"complete lists have {name} {complete:.4f}, which does not guarantee {wanted} from {n} held-out lists; lower the "
            "target, retrieve more documents, or give more lists"
        )

    def _precise(
        self, shown: np.ndarray, relevant: np.ndarray, of_list: np.ndarray, ends: np.ndarray
    ) -> tuple[float, float]:
        """The lowest threshold before the first one that is not certified, from few documents to many."""
        by_rank = self.rule == "rank"
        thresholds = -np.arange(1.0, np.diff(ends).max() + 1) if by_rank else np.geomspace(1.0, _LEAST, _STEPS)
        wanted, lists, found, empty = self.target[1], len(ends) - 1, None, 0.0
        for threshold in thresholds:
            there = shown >= threshold
            many, good = (np.bincount(of_list[rows], minlength=lists) for rows in (there, there & relevant))
            reached = float(np.where(many > 0, good / np.maximum(many, 1), 1.0).mean())
            if not self._holds(np.array([1 - reached]), lists, 1 - wanted)[0]:
                if found is None:
                    raise ValueError(
                        f"the first documents have precision {reached:.4f}, which does not guarantee {wanted} from {lists} "
                        "held-out lists; lower the target or the confidence, or give more lists"
                    )
                break
            found, empty = (float(threshold), reached), float((many == 0).mean())
        assert found is not None  # a list has a document, so that there is a threshold
        if empty > 0.5:
            warnings.warn(
                f"{empty:.0%} of the held-out lists show no document at this threshold, which counts as precision 1; lower the "
                "target, or use rule='rank'",
                stacklevel=3,
            )
        return found

    def predict(self, scores: Any, **lists: Any) -> torch.Tensor:
        """Return which documents are shown, bool in the shape and order of the scores `[..., list_size]`; padding is not.

        `lists` are `where`, `offsets`, `qid` or `group`, as of `fit`.

        Raises:
            ValueError: wrong lists, or `fit` was not called.
        """
        if not hasattr(self, "threshold_"):
            raise ValueError("the cut-off is not fitted; call fit with held-out lists first")
        unknown = set(lists) - {"where", "offsets", "qid", "group"}
        if unknown:
            raise TypeError(f"predict takes where, offsets, qid and group; got {sorted(unknown)}")
        shape = tuple(scores.shape) if hasattr(scores, "shape") else np.shape(scores)
        places = np.arange(math.prod(shape), dtype=np.float64).reshape(shape)
        flat, given = lists_of(scores, np.zeros(shape), {**lists, "item_weights": places})
        rows, ends = real_documents(flat, given)
        values = finite_values("scores", flat, rows)
        of_list = np.repeat(np.arange(len(ends) - 1), np.diff(ends))
        shown = _shown_first(values, of_list, ends, self.rule) >= self.threshold_
        found = torch.zeros(math.prod(shape), dtype=torch.bool)
        assert given.item_weights is not None
        found[given.item_weights.reshape(-1).cpu()[rows].long()] = torch.from_numpy(shown)
        return found.reshape(shape).to(flat.device)


def hoeffding_bentkus(risk: np.ndarray, n: int, allowed: float) -> np.ndarray:
    """P-values of the hypotheses that expected losses, in [0, 1], exceed `allowed`, from means `[any]` of n losses.

    The lesser of Hoeffding's bound and Bentkus's, e P(Bin(n, allowed) <= ceil(n risk)), as in Bates et al., 2021, section 3.1.

    >>> hoeffding_bentkus(np.array([0.0, 0.05, 0.1]), 200, 0.1).round(4)
    array([0.    , 0.0219, 1.    ])
    """
    from scipy.special import rel_entr
    from scipy.stats import binom

    low = np.minimum(risk, allowed)
    hoeffding = np.exp(-n * (rel_entr(low, allowed) + rel_entr(1 - low, 1 - allowed)))
    bentkus = math.e * binom.cdf(np.ceil(n * risk - 1e-9), n, allowed)
    return np.minimum(np.minimum(hoeffding, bentkus), 1.0)


def _shown_first(values: np.ndarray, of_list: np.ndarray, ends: np.ndarray, rule: Rule) -> np.ndarray:
    """What is compared with the threshold, per document; in the order of the scores in each list."""
    if rule == "score":
        return values
    if rule == "rank":
        return -_last_ranks(values, of_list, ends)
    sizes = np.maximum(np.diff(ends), 1)

    def sums(each: np.ndarray) -> np.ndarray:
        return np.bincount(of_list, each, len(sizes))

    below = values / 2 - (_maxima(values, ends) / 2)[of_list]  # halves, so that nothing overflows
    spread = _maxima(-below, ends)[of_list]
    below = below / np.where(spread > 0, spread, 1.0)
    mean = (sums(below) / sizes)[of_list]
    deviation = np.sqrt(sums((below - mean) ** 2) / sizes)[of_list]
    powers = np.exp(below / np.where(deviation > 0, deviation, 1.0))
    return powers / sums(powers)[of_list]


def _maxima(values: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """The maximum of each list, 0 of an empty one."""
    found = np.zeros(len(ends) - 1)
    full = np.diff(ends) > 0
    if full.any():
        found[full] = np.maximum.reduceat(values, ends[:-1][full])
    return found


def _last_ranks(values: np.ndarray, of_list: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """How many documents of the list have at least this score, float64."""
    order, group = _tied(values, of_list)
    last = np.flatnonzero(np.append(np.diff(group) > 0, True)) if len(group) else np.zeros(0, int)
    found = np.empty(len(values))
    found[order] = (last[group] - ends[:-1][of_list[order]] + 1) if len(group) else 0
    return found


def _discounts(values: np.ndarray, of_list: np.ndarray, ends: np.ndarray) -> np.ndarray:
    """1 / log2(1 + rank) of each document, the mean of those of tied documents."""
    order, group = _tied(values, of_list)
    single = 1 / np.log2(2 + np.arange(len(values)) - ends[:-1][of_list[order]])
    found = np.empty(len(values))
    found[order] = (np.bincount(group, single) / np.maximum(np.bincount(group), 1))[group]
    return found


def _tied(values: np.ndarray, of_list: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Documents by list and score, and the number of the group of equal ones of each, in that order."""
    order = np.lexsort((-values, of_list))
    sorted_values, lists = values[order], of_list[order]
    new = (sorted_values[1:] != sorted_values[:-1]) | (lists[1:] != lists[:-1])
    return order, np.concatenate([np.zeros(min(1, len(order)), int), np.cumsum(new)])
