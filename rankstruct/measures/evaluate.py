"""`evaluate`: any number of measures of any lists, with one sort."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor

from rankstruct.measures.base import Measure, measure_lists, parse_measures


def evaluate(
    scores: Any,
    labels: Any,
    measures: str | Measure | Iterable[str | Measure],
    *,
    where: Any = None,
    offsets: Any = None,
    ties: str = "expected",
    empty: int | str = 0,
    convention: str | None = None,
    num_relevant: Any = None,
    ideal_labels: Any = None,
    docids: Any = None,
    groups: Any = None,
) -> dict[str, Tensor]:
    """Measures of each list: `{canonical name: [...] float64 on the device of scores}`.

    Scores, labels and the other per-document arguments may be tensors, arrays or nested sequences. Values are float64
    whatever the dtype of the scores, for reports are compared in the fourth decimal; documents tie if their scores are
    equal as given. Nothing is differentiated, nothing of the caller's is changed.

    Args:
        scores: `[..., list_size]`, any leading dimensions, or `[documents]` with `offsets`; any real numbers.
        labels: graded relevance, the shape of `scores`.
        measures: names or objects, one or several: `["AP", "nDCG@10", rs.RR(10)]`.
        where: bool, the shape of `scores`, True for a real document; padding may hold anything, even NaN.
        offsets: int64 `[lists + 1]`, for flat input: list i is `[offsets[i], offsets[i + 1])`.
        ties: documents of equal score: `"expected"`, the mean over all their orders, in closed form; `"input"`, the
            order given; `"worst"`, lowest labels first; `"docid"`, by descending id as trec_eval does, with `docids`.
        empty: the value of a list with nothing relevant (for AUC: or everything): 0, 1, `"skip"` (NaN, for means to
            leave out) or `"error"`. A list that is all padding has that value too, but is no error.
        convention: `"letor"` for the LETOR tool's choices: ties keep the input order, nDCG's discount is 1 at ranks 1
            and 2 and 1/log2(rank) after, nDCG@k is 0 for lists shorter than k, and empty lists count 0.
        num_relevant: `[...]`, one a list: the number of its relevant documents, whether retrieved or not, where AP and
            the like cannot count them. Measures that are divided by the best ranking's value need `ideal_labels`
            instead.
        ideal_labels: `[..., judged]` (with offsets `[lists, judged]`), the labels of all judged documents of each list,
            retrieved or not, NaN as padding; the best ranking and the number of relevant documents come from these.
        docids: the shape of `scores`, ids to break ties by: strings, compared by code point, or integers.
        groups: the shape of `scores`, the group (host, topic) of each document, numbers or strings, for the measures of
            diversity; the others do not look at it.

    Raises:
        TypeError, ValueError: unknown measures or options; types, shapes or values that do not fit, such as a NaN,
        named by
            list and document (leading dimensions counted as one); an empty list under `empty="error"`.

    Source for ties: McSherry and Najork, "Computing Information Retrieval Performance Measures Efficiently in the
    Presence of Tied Scores", ECIR 2008.

    >>> evaluate([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0]], [[0, 1, 1], [0, 1, 0]], ["AP", "RR", "nDCG@10"])
    {'AP': tensor([0.5833, 0.7500], dtype=torch.float64),
     'RR': tensor([0.5000, 0.7500], dtype=torch.float64),
     'nDCG@10': tensor([0.6934, 0.8155], dtype=torch.float64)}
    """
    parsed = parse_measures(measures)
    values = measure_lists(
        parsed,
        scores,
        labels,
        where,
        offsets=offsets,
        ties=ties,
        empty=empty,
        convention=convention,
        num_relevant=num_relevant,
        ideal_labels=ideal_labels,
        docids=docids,
        groups=groups,
    )
    return {measure.name: value for measure, value in zip(parsed, values, strict=True)}
