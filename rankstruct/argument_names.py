"""The names that arguments of lists have in other libraries, and what to pass here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rankstruct.messages import explaining

#: How a mask is passed, for messages.
MASK = "a mask as where=, True for a real document and False for padding"
#: How functions that accept `qid` and `group` separate lists.
TELL_APART = "pass qid=, the list of each document"
_OFFSETS = (
    "pass offsets=, the start of each list of contiguous documents and the end of the last one, such as "
    "[0, *itertools.accumulate(sizes)] with sizes = torch.unique_consecutive(qid, return_counts=True)[1].tolist()"
)
_CUTOFFS = {
    name: f"there is no {name}=; append the cut-off to the measure's name, such as 'nDCG@10'"
    for name in ("k", "top_k", "at")
}
OF_LISTS = _CUTOFFS | {
    "mask": "there is no mask=; pass where=, True for a real document and False for padding",
    **{name: f"there is no {name}=, the list of each document; {_OFFSETS}" for name in ("indexes", "qid", "query_ids")},
    **{name: f"there is no {name}=, the size of each list; {_OFFSETS}" for name in ("group", "lengths")},
    "groups": f"there is no groups=; hosts or topics are diversity_groups=; to separate lists, {_OFFSETS}",
    "sample_weight": "there is no sample_weight=; pass weights=, one per list, or item_weights=, one per document",
    **{
        name: f"there is no {name}=; the arguments are scores and labels"
        for name in ("preds", "target", "y_true", "y_pred")
    },
}
#: The message for an argument `groups=` of a function that accepts `qid`, `group` and `diversity_groups`.
NO_GROUPS = (
    "there is no groups=; hosts or topics are diversity_groups=, sizes of lists group=, the list of each document qid="
)
_WEIGHTS_OF_DOCUMENTS = {
    "sample_weight": "there is no sample_weight=; pass item_weights=, one per document; to weight lists, average their "
    "values, such as those of evaluate"
}
_BESIDE_QID = {name: message for name, message in OF_LISTS.items() if name not in ("qid", "group")} | {
    **{name: f"there is no {name}=; {TELL_APART}" for name in ("indexes", "query_ids")},
    "lengths": "there is no lengths=; pass group=, the size of each list",
    "groups": NO_GROUPS,
    **_WEIGHTS_OF_DOCUMENTS,
}

#: A decorator for a function that takes lists as losses do, without their weights: arguments named as in other libraries raise a
#: helpful error.
knows_offsets = explaining(OF_LISTS | _WEIGHTS_OF_DOCUMENTS, instead=MASK)
#: The same for a function that accepts `qid` and `group`.
knows_qid = explaining(_BESIDE_QID, instead=MASK)
#: The same for a function that accepts measures, whose names have the cut-off.
knows_cutoffs = explaining(_CUTOFFS)


def refuse_groups_of_lists(diversity_groups: Any, lists: Sequence[int], instead: str = _OFFSETS) -> None:
    """Raise ValueError for groups that no measure uses if all documents are one list (the shape `lists` is empty): the caller
    meant to separate lists.
    """
    if diversity_groups is not None and not lists:
        raise ValueError(
            "diversity_groups= are hosts or topics, used by diversity measures only; all documents would be one list. "
            f"To separate lists, {instead}"
        )
