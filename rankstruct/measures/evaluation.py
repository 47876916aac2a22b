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

from torch import Tensor
from typing_extensions import Unpack

from rankstruct.argument_names import TELL_APART, knows_qid, refuse_groups_of_lists
from rankstruct.lists import ListColumns, lists_of
from rankstruct.measures.base import ByMeasure, Measure, measure_lists, parse_measures, resolve_policies
from rankstruct.measures.ranked import Convention, Empty, Ties

__all__ = ["evaluate"]


@knows_qid
def evaluate(
    scores: Any,
    labels: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    ties: Ties = "expected",
    empty: Empty = 0,
    convention: Convention | None = None,
    **columns: Unpack[ListColumns],
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
    ties = resolve_policies(ties, empty, convention)
    tensors, lists = lists_of(scores, labels, columns, by_docid=ties == "docid")
    if not any(measure.takes_groups for measure in parsed):
        refuse_groups_of_lists(lists.diversity_groups, lists.shape(), TELL_APART)
    values = measure_lists(parsed, tensors, lists, ties, empty, letor=convention == "letor")
    return ByMeasure({measure.name: value for measure, value in zip(parsed, values, strict=True)})
