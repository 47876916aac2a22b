"""`evaluate`: any number of measures of any lists, with one sort.

Scores, labels and the other per-document arguments may be tensors, arrays or nested sequences, all of one shape:
`[..., list_size]` with any leading dimensions, or flat `[documents]` with `offsets`. Values are float64 whatever the dtype
of the scores, for reports are compared in the fourth decimal. Nothing is differentiated, nothing of the caller's is changed.

Source for ties: McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in the Presence of
Tied Scores", ECIR 2008.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankstruct.arrays import as_array, as_numbers
from rankstruct.lists import (
    TELL_APART,
    group_documents,
    known_ids,
    knows_qid,
    list_ids,
    numbered_ids,
    refuse_groups_of_lists,
)
from rankstruct.measures.base import ByMeasure, Measure, measure_lists, parse_measures
from rankstruct.measures.ranked import Convention, Empty, Ties

__all__ = ["evaluate"]


@knows_qid
def evaluate(
    scores: Any,
    labels: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    where: Any = None,
    offsets: Any = None,
    qid: Any = None,
    group: Any = None,
    ties: Ties = "expected",
    empty: Empty = 0,
    convention: Convention | None = None,
    num_relevant: Any = None,
    ideal_labels: Any = None,
    ideal_offsets: Any = None,
    docids: Any = None,
    groups: Any = None,
    judged: Any = None,
    pooled: Any = None,
    item_weights: Any = None,
) -> dict[str, Tensor]:
    """Measures of each list: `{name: [...] float64 on the device of scores}`; `["MAP"]` finds `AP` there. Layouts: this module.

    Args:
        scores: any real numbers, integers of any size too; documents tie if their scores are equal as given.
        labels: graded relevance; whole numbers up to 2^53.
        measures: names or objects, one or several: `["AP", "nDCG@10", rs.RR(10)]`.
        where: bool, True for a real document; padding may hold anything, even NaN.
        offsets: int64 `[lists + 1]`, for flat input: list i is `[offsets[i], offsets[i + 1])`.
        qid, group: in place of offsets `[documents]` ids of lists, in any order, lists by first appearance; or `[lists]` sizes.
        ties: `"expected"`, the mean over all orders of tied documents (see `Measure.under_ties`); `"input"`, the order given;
            `"worst"`, lowest labels first; `"docid"`, by descending id and with scores in single precision, as in trec_eval.
        empty: the value of a list with nothing relevant (for AUC: or everything): 0, 1, `"skip"` (NaN) or `"error"`. A list that
            is all padding has that value too, but is no error.
        convention: `"letor"` for the LETOR tool's choices of ties, nDCG's discount, lists shorter than k and empty ones.
        num_relevant: `[...]`, one a list: the number of its relevant documents, retrieved or not, for AP and the like.
        ideal_labels: `[..., judged]`, labels of all judged documents, NaN as padding, for the best ranking; or flat `[judged]`.
        ideal_offsets: int64 `[lists + 1]`, for flat `ideal_labels`, as `offsets` for labels.
        docids: ids to break ties by: strings, compared by code point, or integers.
        groups: the group (host, topic) of each document, numbers or strings, for the measures of diversity.
        judged: bool, which documents were judged; all if None. Labels of others count as 0; `Bpref` and `infAP` leave them out.
        pooled: bool, which documents were in the pool whose judgements are a sample, for `infAP`; those that were judged if None.
        item_weights: what each document counts, 0 or more, in gains, pairs and means; measures that add up none refuse them.

    Raises:
        TypeError, ValueError: unknown measures or options; types, shapes or values that do not fit, such as a NaN, named by list
            and document (leading dimensions counted as one); an empty list under `empty="error"`.

    >>> evaluate([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0]], [[0, 1, 1], [0, 1, 0]], ["AP", "nDCG@10"])
    {'AP': tensor([0.5833, 0.7500], dtype=torch.float64), 'nDCG@10': tensor([0.6934, 0.8155], dtype=torch.float64)}
    """
    parsed = parse_measures(measures)
    given = {"scores": scores, "labels": labels, "where": where, "offsets": offsets, "docids": docids, "groups": groups}
    given = brought_together(given | {"judged": judged, "pooled": pooled, "item_weights": item_weights}, qid, group)
    best = {"num_relevant": num_relevant, "ideal_labels": ideal_labels, "ideal_offsets": ideal_offsets}
    values = measure_lists(parsed, ties=ties, empty=empty, convention=convention, **given, **best)
    unseen = None if any(measure.takes_groups for measure in parsed) else groups
    refuse_groups_of_lists(unseen, values[0].shape if values else [0], TELL_APART)
    return ByMeasure({measure.name: value for measure, value in zip(parsed, values, strict=True)})


def brought_together(given: dict[str, Any], qid: Any, group: Any) -> dict[str, Any]:
    """With `qid` or `group` the documents of each list side by side, in all that there is one of each, and offsets."""
    if qid is None and group is None:
        return given
    if given["where"] is not None or given["offsets"] is not None:
        raise ValueError("give qid or group, where, or offsets; one of them tells the lists")
    shape = tuple(np.shape(given["scores"]))
    ids = numbered_ids("qid", list_ids(shape[0] if shape else 0, qid, group))
    if len(shape) != 1 or ids.shape != shape:
        raise ValueError(f"qid must have one entry a document, with scores [documents]; got {ids.shape} and {shape}")
    if group is not None:  # sizes of 0 are lists too
        return given | {"offsets": np.concatenate([[0], np.cumsum(as_numbers("group", group), dtype=np.int64)])}
    order, offsets = group_documents(ids)
    if order is not None:
        given = {name: _in_order(name, each, order) for name, each in given.items()}
    return given | {"offsets": offsets}


def _in_order(name: str, values: Any, order: np.ndarray) -> Any:
    if values is None:
        return None
    values = known_ids(name, values) if name in ("docids", "groups") else values
    if tuple(np.shape(values)) != order.shape:
        raise ValueError(f"{name} must be one a document, shape {order.shape}; got {tuple(np.shape(values))}")
    return (
        values[torch.from_numpy(order).to(values.device)]
        if isinstance(values, Tensor)
        else as_array(name, values)[order]
    )
