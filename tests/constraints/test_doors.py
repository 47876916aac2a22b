"""Bad input at every door that takes rules: refused with what to do, or defined, and alike."""

import warnings
from functools import cache

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import rankstruct as rs
from rankstruct.constraints import evaluate_under, rank_certified, report_under, violations
from rankstruct.recommenders import Recommender

NAN = float("nan")
LABELS = [1, 0, 1]


def hinge(scores, constraints, columns):
    loss = rs.StructuredHingeLoss("nDCG@2", constraints=constraints)
    scores = torch.tensor(scores, dtype=torch.float32)
    return loss(scores, torch.tensor(LABELS)[: len(scores)], columns=columns)


@cache
def recommender():
    return Recommender(rank=2, max_epochs=1, validation_share=0, random_state=0).fit(sp.csr_array(np.eye(3)))


def recommend(_, constraints, columns):
    """The items of a user, whose scores are not given."""
    return recommender().recommend(0, k=3, exclude_known=False, constraints=constraints, columns=columns)


DOORS = {
    "rank_under": rs.rank_under,
    "rank_certified": rank_certified,
    "evaluate_under": lambda scores, *given: evaluate_under(scores, LABELS[: len(scores)], "nDCG@2", *given),
    "report_under": lambda scores, *given: report_under(scores, LABELS[: len(scores)], "nDCG@2", *given),
    "violations": lambda scores, *given: violations([1, 2, 3][: len(scores)], *given),
    "hinge": hinge,
    "recommend": recommend,
}
SCORES, GROUPS = [3.0, 2.0, 1.0], {"g": ["a", "a", "b"]}
#: Scores, rules and columns; what is told, None if it is defined; and the doors where it is otherwise.
INPUTS = {
    "no such column": (SCORES, ["h <= 1 @ 2"], GROUPS, "the rules are about 'h', which is not in columns", {}),
    "a name misspelt": (SCORES, ["gs <= 1 @ 2"], GROUPS, "did you mean g", {}),
    "too few groups": (
        SCORES,
        ["g <= 1 @ 2"],
        {"g": ["a", "b"]},
        "must have one entry per document",
        {"recommend": "must have a group for each of the 3 items"},
    ),
    "half a group": (SCORES, ["g <= 1 @ 2"], {"g": [1.5, 2, 1]}, "names or whole numbers, got 1.5", {}),
    "a name among numbers": (SCORES, ["g=x <= 1 @ 2"], {"g": [1, 2, 1]}, "whole numbers, and the rule", {}),
    "no groups": (SCORES, ["g <= 1 @ 2"], {"g": [None, None, None]}, None, {}),
    "a quota above the group's size": (
        SCORES,
        ["g=b >= 2 @ 2"],
        GROUPS,
        r"no ranking of list 0 keeps 'g=b >= 2 @ 2': the list has 1 such document",
        {"violations": None, "recommend": "no ranking of user '0' keeps 'g=b >= 2 @ 2': the list has 1 such document"},
    ),
    "a quota of nobody": (
        SCORES,
        ["g=zz >= 1 @ 2"],
        GROUPS,
        "the list has 0 such documents",
        {"violations": None, "recommend": "no item has g=zz"},
    ),
    "a cap of nobody": (SCORES, ["g=zz <= 1 @ 2"], GROUPS, None, {"recommend": "no item has g=zz"}),
    "beyond the list": (SCORES, ["g=b >= 1 @ 50"], GROUPS, None, {}),
    "a quota beyond the list": (
        SCORES,
        ["g=b >= 4 @ 50"],
        GROUPS,
        "the list has 1 such document",
        {"violations": None},
    ),
    "rules in conflict": (
        SCORES,
        ["g=a >= 2 @ 2", "g=b >= 1 @ 2"],
        GROUPS,
        "keeps 'g=a >= 2 @ 2' and 'g=b >= 1 @ 2' together",
        {"violations": None},
    ),
    "NaN": (
        [NAN, 1.0, 2.0],
        ["g <= 1 @ 2"],
        GROUPS,
        "scores must (not be NaN|be finite)",
        dict.fromkeys(("violations", "recommend")),
    ),
    "an empty list": ([], ["g=a >= 1 @ 2"], {"g": []}, None, {"recommend": "each of the 3 items"}),
}


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("given", INPUTS)
def test_bad_input_is_refused_with_what_to_do_or_defined(door, given):
    scores, rules, columns, told, otherwise = INPUTS[given]
    told = otherwise.get(door, told)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "no document has g=zz")
        if told is None:
            DOORS[door](scores, rs.Constraints(rules), columns)
        else:
            with pytest.raises(ValueError, match=told):
                DOORS[door](scores, rs.Constraints(rules), columns)


@pytest.mark.parametrize("door", DOORS)
def test_rules_as_text_are_rules(door):
    text, rules = (DOORS[door](SCORES, given, GROUPS) for given in ("g <= 1 @ 2", rs.Constraints("g <= 1 @ 2")))
    assert str(text) == str(rules)
    with pytest.raises(TypeError, match="constraints must be rules"):
        DOORS[door](SCORES, 3, GROUPS)


def test_lists_of_padding_show_nothing_whatever_the_rules():
    where, rules = torch.tensor([[True] * 3, [False] * 3]), rs.Constraints("g=a >= 1 @ 2")
    columns = {"g": [["a", "a", "b"], [None] * 3]}
    assert rs.rank_under(torch.tensor([SCORES] * 2), rules, columns, where=where).tolist() == [[1, 2, 3], [0, 0, 0]]
    loss = rs.StructuredHingeLoss("nDCG@2", constraints=rules, reduction="none")
    found = loss(torch.zeros(2, 3), torch.tensor([LABELS] * 2), where=where, columns=columns)
    assert found[1] == 0
    for none in (np.zeros((0, 3), int), np.zeros((0, 3)), np.zeros((0, 3), str)):
        assert rs.rank_under(torch.zeros(0, 3), rules, {"g": none}).shape == (0, 3)


@pytest.mark.parametrize(
    ("positions", "told"),
    [
        ([1, 1, 0], "the given positions: 2 documents are to be at position 1"),
        ([9, 0, 0], "the given position 9: the ranking has 3"),
        ([-1, 0, 0], "positions must be whole numbers >= 0"),
    ],
)
def test_positions_that_cannot_be(positions, told):
    with pytest.raises(ValueError, match=told):
        rs.rank_under(SCORES, rs.Constraints("g <= 1 @ 2"), GROUPS, positions=positions)


def test_columns_without_rules_are_refused():
    with pytest.raises(TypeError, match=r"constraints must be rules, .*, got None"):
        recommend(SCORES, None, GROUPS)
