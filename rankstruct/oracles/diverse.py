"""Oracle of diverse rankings: documents carry a group (host, topic), and the first k hold at most one of each.

    maximise over diverse rankings   sum_{i <= m} ( c_i s_{r(i)} - a_i b_{r(i)} ),   m = min(k, number of groups)

with the decay c of the positional map, cut to 0 after k, and the discount a and gains b of a measure with a cut-off k. The
reference, the best value and the argmax all range over diverse rankings. The argmax is an assignment of ranks to groups,
where the value of (rank i, group) is the best over the group's documents of c_i s - a_i b; solved by shortest augmenting
paths, O(n m + m^2 G) after the sorts, for n documents in G groups. Where the measure's discount reaches 0 before its
cut-off, or it is WTA, k is the last rank with a discount; that of mWTA is for each list as `Diverse` says. Reciprocal rank takes
the best of m + 1 assignments, in which 0 to m irrelevant documents lead: O(n + m^3 G).

Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1.
"""

from __future__ import annotations

import numpy as np
from torch import Tensor

from rankstruct.feature_maps import FeatureMap, Positional, parse_feature_map
from rankstruct.lists import check_groups, check_lists
from rankstruct.measures import RR, Measure, parse_measure, require_diverse
from rankstruct.oracles.kernels import positional_cpu as cpu
from rankstruct.oracles.kernels.diverse_cpu import DiverseBatch, diverse_lists
from rankstruct.oracles.kernels.flat import FlatLists, discount_table
from rankstruct.oracles.kernels.threads import run_lists
from rankstruct.oracles.operators import define_operator
from rankstruct.oracles.positional import binary_gains, rank_tables
from rankstruct.oracles.registry import REFERENCES, MostViolated, check_reference_scores

_REFERENCES = {"ideal": cpu.IDEAL, "ideal-tied": cpu.IDEAL_TIED, "predicted": cpu.PREDICTED}


def _answer(
    scores: Tensor,
    gains: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    groups: Tensor,
    reference_scores: Tensor | None,
    decay: Tensor,
    weights: Tensor,
    least_cutoff: int,
    normalized: bool,
    reciprocal: bool,
    reference: str,
) -> tuple[Tensor, Tensor, Tensor]:
    # The assignment does not vectorise: tensors of another device make a round trip, one copy each way for the whole batch.
    where, offsets = (None if mask is None else mask.cpu() for mask in (where, offsets))
    flat = FlatLists.of(scores.double().cpu(), gains.double().cpu(), where, offsets)
    chosen = flat.scores
    if reference_scores is not None:
        chosen = reference_scores.double().cpu().reshape(-1).numpy()
    a = discount_table(weights, flat.longest)
    batch = DiverseBatch(
        scores=flat.scores,
        chosen=chosen,
        chosen_bits=chosen.view(np.uint64),
        gains=flat.labels,
        gain_bits=flat.labels.view(np.uint64),
        groups=groups.long().cpu().reshape(-1).numpy().view(np.uint64),
        where=flat.where,
        offsets=flat.bounds,
        decay=discount_table(decay, flat.longest),
        weights=a,
        cutoff=int(np.count_nonzero(a)),
        least_cutoff=least_cutoff,
        normalized=normalized,
        reciprocal=reciprocal,
    )
    (task_loss, value, direction), results = flat.empty_answer()
    wrong = run_lists(
        lambda first, last: diverse_lists(batch, first, last, _REFERENCES[reference], *results), flat.bounds
    )
    if wrong != -1 and not flat.labels[wrong] >= 0:
        raise ValueError(f"gains must be >= 0; {flat.place(wrong)} has gain {flat.labels[wrong]:g}")
    if wrong != -1 and np.isfinite(flat.scores[wrong]):
        raise ValueError(f"reference_scores must be finite; {flat.place(wrong)} is {chosen[wrong]}")
    if wrong != -1:
        flat.refuse_score(wrong)
    return task_loss.to(scores), value.to(scores), direction.to(scores)


_operator = define_operator("diverse", _answer, per_document=2)


def resolve_diverse(
    measure: str | Measure, feature_map: str | FeatureMap | None, reference: str
) -> tuple[Measure, Positional]:
    """Measure and feature map from what a user wrote.

    Raises:
        ValueError: the measure has no diverse rankings, the map is not positional, or an unknown reference.

    >>> measure, feature_map = resolve_diverse("nDCG@5", None, "ideal")
    >>> measure.name, feature_map.name
    ('nDCG@5', 'positional(i^-0.5)')
    """
    measure = parse_measure(measure)
    require_diverse(measure)
    feature_map = Positional() if feature_map is None else parse_feature_map(feature_map)
    if not isinstance(feature_map, Positional):
        raise ValueError(
            f"diverse rankings have an oracle for the positional feature map alone, got {feature_map.name}; leave "
            "feature_map out, or give a decay as Positional('i^-1')"
        )
    if reference not in REFERENCES:
        raise ValueError(f"reference must be one of {', '.join(map(repr, REFERENCES))}, got {reference!r}")
    return measure, feature_map


def most_violated_diverse(
    scores: Tensor,
    labels: Tensor,
    measure: str | Measure,
    *,
    groups: Tensor,
    feature_map: str | FeatureMap | None = None,
    reference: str = "ideal",
    reference_scores: Tensor | None = None,
    where: Tensor | None = None,
    offsets: Tensor | None = None,
) -> MostViolated:
    """The diverse ranking with the highest task loss plus score, for each list: exact, by assignment of ranks to groups.

    A diverse ranking shows exactly min(k, number of groups) documents, one of a group, k being the measure's cut-off; the rest
    has no rank. With groups of one document this is `most_violated` with the decay cut to 0 after k.

    Args:
        scores: `[..., list_size]`, or `[documents]` with `offsets`; any real numbers.
        labels: graded relevance, the shape of `scores`.
        measure: a discounted gain or `RR` with a cut-off, `WTA` or `mWTA`, or its name, such as `"nDCG@5"`. A normalised one is
            divided by the value of the best diverse ranking; see `Diverse` for the cut-off of mWTA.
        groups: integers, the shape of `scores`: documents of a list with the same number are of one group.
        feature_map: a positional map; `i^-0.5` if None. Its decay counts as 0 after k.
        reference: the diverse ranking r* that `value` and `direction` are relative to: `"ideal"`, by gain and input order;
            `"ideal-tied"`, of the best ones the one that F prefers; `"predicted"`, the one that F prefers of all. The last two
            put the document with the higher gain first where scores tie.
        reference_scores: scores that choose r* instead of `scores`, for the last two references.
        where: bool, the shape of `scores`, True for a real document. Padding may hold anything, in groups too.
        offsets: int64 `[lists + 1]`, for flat input.

    Returns:
        `MostViolated(task_loss, value, direction)` with the dtype and device of `scores`. A list whose measure is the same for
        all diverse rankings has zeros everywhere.

    Raises:
        TypeError, ValueError: types or shapes do not fit, a measure or map without a diverse oracle, or a score or label that
            is not finite.

    Source: Le, Smola, Chapelle, Teo, "Optimization of Ranking Measures", section 7.1.

    >>> import torch
    >>> scores, labels, hosts = torch.tensor([2.0, 1.0, 0.0]), torch.tensor([0, 0, 1]), torch.tensor([7, 7, 8])
    >>> r = most_violated_diverse(scores, labels, "nDCG@2", groups=hosts)
    >>> r.task_loss, r.value, r.direction
    (tensor(0.3691), tensor(0.9549), tensor([ 0.2929,  0.0000, -0.2929]))
    """
    check_lists(scores, labels, where, offsets)
    check_groups(groups, scores)
    measure, feature_map = resolve_diverse(measure, feature_map, reference)
    return solve_diverse(scores, labels, where, offsets, groups, measure, feature_map, reference, reference_scores)


def solve_diverse(
    scores: Tensor,
    labels: Tensor,
    where: Tensor | None,
    offsets: Tensor | None,
    groups: Tensor,
    measure: Measure,
    feature_map: Positional,
    reference: str,
    reference_scores: Tensor | None,
) -> MostViolated:
    """`most_violated_diverse` with what `resolve_diverse` returns, for lists that were checked."""
    scores, labels = scores.detach(), labels.detach()
    if reference_scores is not None:
        check_reference_scores(reference_scores, scores, reference)
        reference_scores = reference_scores.detach()
    weights, decay = rank_tables(measure, feature_map, scores)
    reciprocal = isinstance(measure, RR)
    gains = binary_gains(labels, measure) if reciprocal else measure.document_gains(labels)  # type: ignore[attr-defined]
    kind = (getattr(measure, "least_cutoff", 0), getattr(measure, "normalized", False), reciprocal)
    lists = (scores, gains, where, offsets, groups, reference_scores)
    return MostViolated(*_operator(*lists, decay, weights, *kind, reference))
