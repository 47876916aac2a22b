"""`evaluate`: any number of measures with a single sort.

Scores, labels and the other per-document arguments may be tensors, arrays or nested sequences, all of the same shape:
`[..., list_size]` with any leading dimensions, or flat `[documents]` with `offsets`. Values are always float64, since reports are
compared in the fourth decimal. Results are not differentiable, and inputs are not modified.

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
    diversity_groups: Any = None,
    judged: Any = None,
    pooled: Any = None,
    item_weights: Any = None,
) -> dict[str, Tensor]:
    """Evaluate measures list by list: `{name: [...] float64 on the device of scores}`; aliases work too, `["MAP"]` for `AP`.

    Args:
        scores: any real numbers, also integers of any size; documents tie if their scores are exactly equal.
        labels: graded relevance; whole numbers up to 2^53.
        measures: names or objects, one or several: `["AP", "nDCG@10", rs.RR(10)]`.
        where: bool, True for a real document; padding may have any value, even NaN.
        offsets: int64 `[lists + 1]`, for flat input: list i is `[offsets[i], offsets[i + 1])`. See the module for layouts.
        qid, group: instead of offsets, list ids `[documents]` in any order, with lists by first appearance; or sizes `[lists]`.
        ties: `"expected"`, the mean over all orders of tied documents (see `Measure.under_ties`); `"input"`, input order;
            `"worst"`, lowest labels first; `"docid"`, by descending id with scores in single precision, as in trec_eval.
        empty: the value of a list with nothing relevant (for AUC also with everything relevant): 0, 1, `"skip"` (NaN) or
            `"error"`. A list that is all padding has that value too, but never raises an error.
        convention: `"letor"` for the LETOR tool's handling of ties, nDCG's discount, lists shorter than k and empty ones.
        num_relevant: `[...]`, the number of relevant documents of each list, retrieved or not, for AP and similar measures.
        ideal_labels, ideal_offsets: labels of all judged documents, for the best ranking: `[..., judged]`, NaN in the padding.
        docids: ids to break ties by: strings, compared by code point, or integers.
        diversity_groups: the group (host, topic) of each document, numbers or strings, for diversity measures.
        judged: bool, which documents were judged; all if None. Labels of others count as 0; `Bpref` and `infAP` leave them out.
        pooled: bool, which documents were in the pool that the judgements sample, for `infAP`; the judged ones if None.
        item_weights: weights of the documents, 0 or more, in gains, pairs and means; some measures do not support them.

    Raises:
        TypeError, ValueError: unknown measures or options; wrong types, shapes or values, such as NaN, located by list and
            document (leading dimensions flattened); an empty list with `empty="error"`.

    >>> evaluate([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0]], [[0, 1, 1], [0, 1, 0]], ["AP", "nDCG@10"])
    {'AP': tensor([0.5833, 0.7500], dtype=torch.float64), 'nDCG@10': tensor([0.6934, 0.8155], dtype=torch.float64)}
    """
    parsed = parse_measures(measures)
    given = {"scores": scores, "labels": labels, "where": where, "offsets": offsets, "docids": docids}
    given |= {"diversity_groups": diversity_groups, "judged": judged, "pooled": pooled, "item_weights": item_weights}
    best = {"num_relevant": num_relevant, "ideal_labels": ideal_labels, "ideal_offsets": ideal_offsets}
    best |= {"ties": ties, "empty": empty, "convention": convention}
    values = measure_lists(parsed, **brought_together(given, qid, group), **best)
    unseen = None if any(measure.takes_groups for measure in parsed) else diversity_groups
    refuse_groups_of_lists(unseen, values[0].shape if values else [0], TELL_APART)
    return ByMeasure({measure.name: value for measure, value in zip(parsed, values, strict=True)})


def brought_together(given: dict[str, Any], qid: Any, group: Any) -> dict[str, Any]:
    """Group the per-document arguments by `qid` or `group`, and replace these by offsets."""
    if qid is None and group is None:
        return given
    if given["where"] is not None or given["offsets"] is not None:
        raise ValueError("pass only one of qid or group, where, and offsets to define the lists")
    shape = tuple(np.shape(given["scores"]))
    ids = numbered_ids("qid", list_ids(shape[0] if shape else 0, qid, group))
    if len(shape) != 1 or ids.shape != shape:
        raise ValueError(f"qid must have one entry per document, with scores [documents]; got {ids.shape} and {shape}")
    if group is not None:  # sizes of 0 are lists too
        return given | {"offsets": np.concatenate([[0], np.cumsum(as_numbers("group", group), dtype=np.int64)])}
    order, offsets = group_documents(ids)
    if order is not None:
        given = {name: _in_order(name, each, order) for name, each in given.items()}
    return given | {"offsets": offsets}


def _in_order(name: str, values: Any, order: np.ndarray) -> Any:
    if values is None:
        return None
    values = known_ids(name, values) if name in ("docids", "diversity_groups") else values
    if tuple(np.shape(values)) != order.shape:
        raise ValueError(f"{name} must be one per document, shape {order.shape}; got {tuple(np.shape(values))}")
    return (
        values[torch.from_numpy(order).to(values.device)]
        if isinstance(values, Tensor)
        else as_array(name, values)[order]
    )
