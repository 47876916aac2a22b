"""Bad input is refused where it comes in, with the place, the rule and the way out."""

import math

import numpy as np
import pytest
import scipy.sparse
import torch

from rankstruct import RankingMetric
from rankstruct.measures import AP, Measure, evaluate, nDCG, parse_measure

SCORES = torch.tensor([[1.0, 2.0, 3.0], [1.0, 2.0, 3.0]])
LABELS = torch.tensor([[0.0, 1.0, 2.0], [0.0, 1.0, 2.0]])


def with_value(tensor, place, value):
    changed = tensor.clone()
    changed[place] = value
    return changed


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_not_finite(value):
    with pytest.raises(ValueError, match=f"scores must be finite; list 1, document 2 has {value}"):
        evaluate(with_value(SCORES, (1, 2), value), LABELS, "AP")
    with pytest.raises(ValueError, match=f"labels must be finite; list 0, document 1 has {value}"):
        evaluate(SCORES, with_value(LABELS, (0, 1), value), "AP")
    # Flat lists of different lengths are told by their own numbers.
    flat = torch.arange(12.0)
    with pytest.raises(ValueError, match="scores must be finite; list 2, document 1 has"):
        evaluate(with_value(flat, 11, value), torch.ones(12), "AP", offsets=[0, 9, 10, 12])
    with pytest.raises(ValueError, match="labels must be finite; list 1, document 0 has"):
        AP().best_value(with_value(LABELS, (1, 0), value))


def test_negative_labels_where_grades_are_needed():
    labels = with_value(LABELS, (1, 0), -1.0)
    way_out = r"labels must be 0 or more \(.* where=labels >= 0; .*\); list 1, document 0 has -1$"
    for name in (
        "nDCG",
        "DCG@2",
        "nDCG(gain='linear')",
        "MeanNDCG",
        "AP",
        "AUC",
        "RR@2",
        "P@2",
        "nDCG(min_relevant=1)",
    ):
        with pytest.raises(ValueError, match=way_out):
            evaluate(SCORES, labels, name)
        with pytest.raises(ValueError, match=way_out):
            parse_measure(name).best_value(labels)
        with pytest.raises(ValueError, match=way_out):
            RankingMetric(name).update(SCORES, labels.long())
        evaluate(SCORES, labels, name, where=labels >= 0)
    with pytest.raises(ValueError, match=way_out):  # all of them have to know what it means
        evaluate(SCORES, labels, ["AP(min_relevant=-1)", "AP"])
    with pytest.raises(ValueError, match=r"list 1, document 0 has label -1 with gain -0.5.*pass min_relevant="):
        evaluate(SCORES, labels, nDCG(gain=lambda y: torch.exp2(y) - 1))
    where = torch.ones_like(labels, dtype=torch.bool)
    where[1, 0] = False
    assert nDCG()(SCORES, labels, where).tolist() == [1, 1]
    with pytest.raises(
        ValueError, match=r"ideal_labels must have finite gains >= 0 .* list 0, position 1 has label -2"
    ):
        evaluate(SCORES[0], LABELS[0], "nDCG", ideal_labels=[1, -2, math.nan])


def test_labels_too_large_for_the_exponential_gain():
    labels = with_value(LABELS, (0, 2), 5000.0)
    with pytest.raises(ValueError, match="list 0, document 2 has label 5000 with gain inf"):
        nDCG()(SCORES, labels)
    with pytest.raises(ValueError, match="label 5000 with gain inf"):
        nDCG().best_value(labels)
    assert nDCG(gain="linear")(SCORES, labels).tolist() == pytest.approx([1, 1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ties": "average"}, "ties must be one of 'expected', 'input', 'worst', 'docid', got 'average'"),
        ({"ties": "docid"}, "pass docids"),
        ({"ties": "docid", "docids": ["a", "b", "c"]}, r"docids must have the shape of scores.*\(3,\)"),
        ({"empty": "drop"}, "empty must be one of 0, 1, 'skip', 'error', got 'drop'"),
        ({"empty": 2}, "empty must be one of"),
        ({"convention": "trec"}, "convention must be one of None, 'letor', got 'trec'"),
        ({"convention": "letor", "ties": "worst"}, "convention='letor' keeps the input order"),
        ({"convention": "letor", "empty": "skip"}, "counts an empty list as 0"),
        ({"where": torch.ones(3, dtype=torch.bool)}, "where must have the shape of scores"),
        ({"where": torch.ones(2, 3, dtype=torch.bool), "offsets": torch.tensor([0, 6])}, "not both"),
        ({"offsets": [0, 3, 6]}, "with offsets, scores must be flat"),
        ({"num_relevant": [3]}, r"num_relevant must be one per list, shape \(2,\); got \(1,\)"),
        ({"num_relevant": [3, -1]}, "num_relevant must be counts, whole numbers >= 0; list 1 has -1"),
        ({"num_relevant": [3, 1.5]}, "num_relevant must be counts, whole numbers >= 0; list 1 has 1.5"),
        ({"num_relevant": [3, math.inf]}, "num_relevant must be counts, whole numbers >= 0; list 1 has inf"),
        ({"num_relevant": [3, math.nan]}, "num_relevant must be counts, whole numbers >= 0; list 1 has nan"),
        ({"num_relevant": [2, 1]}, "it is 1 for list 1, which has 2; count with the same min_relevant"),
        ({"ideal_labels": [1, 2]}, r"ideal_labels must be .* got \(2,\)"),
        ({"ideal_labels": [[1.0], [math.inf]]}, "those of list 1 contain an infinity"),
        ({"ideal_offsets": [0, 1, 2]}, "ideal_offsets require flat ideal_labels; pass these too"),
        (
            {"ideal_labels": [1.0, 1.0], "ideal_offsets": [0, 1, 2]},
            "ideal_offsets require flat lists, with offsets, qid or",
        ),
    ],
)
def test_options(options, message):
    with pytest.raises(ValueError, match=message):
        evaluate(SCORES, LABELS, "AP", **options)


def test_what_is_no_array_or_no_measure():
    run, sparse = {"q": {"a": 0.5}}, scipy.sparse.csr_matrix(LABELS)
    for given, message in (
        ((run, LABELS, "AP"), r"scores must be an array, got a dict; pass runs and qrels as .*join_run\(run, qrels\)"),
        ((SCORES, run, "AP"), "labels must be an array, got a dict; pass runs"),
        ((sparse, LABELS, "AP"), r"scores must be dense, got a sparse csr_matrix; pass scores.toarray\(\)"),
        ((SCORES, sparse, "AP"), "labels must be dense"),
        ((torch.as_tensor(SCORES).to_sparse(), LABELS, "AP"), r"scores must be dense, .*to_dense\(\)"),
        ((SCORES, LABELS, None), "a measure must be a name such as 'AP' or an object such as AP.., got None"),
        ((SCORES, LABELS, 3), "a measure must be a name .* got 3"),
    ):
        with pytest.raises(TypeError, match=message):
            evaluate(*given)
    with pytest.raises(TypeError, match=r"diversity_groups must be an array, got a dict$"):
        evaluate(SCORES, LABELS, "diverse_nDCG@2", diversity_groups={})


def test_a_gain_or_discount_that_is_no_tensor():
    for wrong, got in (
        (lambda labels: [0, 1], "list"),
        (lambda labels: None, "NoneType"),
        (lambda x: x[:1], r"\(1,\)"),
    ):
        for option in ("gain", "discount"):
            with pytest.raises(TypeError, match=f"must return a tensor of the shape of its argument, .* got {got}"):
                evaluate(SCORES, LABELS, nDCG(**{option: wrong}))


def test_flat_input():
    for offsets, message in (
        ([0, 2], "end at the number of documents, 3; got 0 to 2"),
        ([0, 4, 3], "must not decrease"),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(SCORES[0], LABELS[0], "AP", offsets=offsets)


@pytest.mark.parametrize(
    ("ideal", "offsets", "message"),
    [
        ([1.0, 1.0], [0, 2], r"ideal_offsets must be int64 \[3\], one more than the number of lists, .* got \(2,\)"),
        (
            [[1.0], [1.0]],
            [0, 1, 2],
            r"ideal_offsets must be int64 \[3\], .* and ideal_labels flat; got \(3,\) torch.int64 and \(2, 1\)",
        ),
        ([1.0, 1.0], [0, 1, 3], "ideal_offsets must start at 0 and end at the number of ideal_labels, 2; got 0 to 3"),
        ([1.0, 1.0], [0, 3, 2], r"ideal_offsets must not decrease; ideal_offsets\[1\] = 3 > ideal_offsets\[2\] = 2"),
        ([1.0, math.nan], [0, 1, 2], "flat ideal_labels must be finite; those of list 1 contain nan"),
    ],
)
def test_flat_ideal_labels(ideal, offsets, message):
    with pytest.raises(ValueError, match=message):
        evaluate([2.0, 1.0, 0.0], [1, 0, 1], "nDCG", offsets=[0, 2, 3], ideal_labels=ideal, ideal_offsets=offsets)


def test_types_and_shapes():
    with pytest.raises(TypeError, match="where must be boolean"):
        evaluate(SCORES, LABELS, "AP", where=torch.ones(2, 3))
    with pytest.raises(TypeError, match="scores must be floating point"):
        evaluate(SCORES + 1j, LABELS, "AP")
    with pytest.raises(ValueError, match="labels must have the shape of scores"):
        evaluate(SCORES, LABELS[0], "AP")
    with pytest.raises(ValueError, match="at least one dimension"):
        evaluate(1.0, 1.0, "AP")
    with pytest.raises(TypeError, match="labels must be real"):
        evaluate(SCORES.numpy(), LABELS.numpy().astype(np.complex128), "AP")


def test_the_best_ranking_needs_labels_not_a_number():
    with pytest.raises(ValueError, match=r"nDCG@10 is divided .* pass ideal_labels"):
        evaluate(SCORES, LABELS, "nDCG@10", num_relevant=[3, 3])
    assert evaluate(SCORES, LABELS, "nDCG@10", num_relevant=[3, 3], ideal_labels=LABELS)["nDCG@10"].tolist() == [1, 1]


def test_the_callers_tensors_stay():
    scores, labels = SCORES.clone(), LABELS.clone()
    where = torch.tensor([[True, False, True], [True, True, True]])
    evaluate(scores, labels, ["AP", "nDCG", "RR", "AUC"], where=where)
    nDCG().best_value(labels, where)
    assert torch.equal(scores, SCORES)
    assert torch.equal(labels, LABELS)


def test_a_cut_off_that_compute_does_not_look_at_is_refused():
    class Deaf(Measure):
        under_ties = "closed form"

        def compute(self, lists):
            return lists.labels[:, 0], lists.labels[:, 0] >= 0

    class Heeding(Deaf):
        def compute(self, lists):
            return max(lists.labels[:, i] for i in range(self.cutoff or 1)), lists.labels[:, 0] >= 0

    class Heir(Heeding):
        pass

    assert Deaf().cutoff is None
    assert Heeding(2).cutoff == Heir(2).cutoff == 2
    with pytest.raises(
        ValueError, match=r"Deaf does not support a cut-off, since its compute does not use self\.cutoff; got 2"
    ):
        Deaf(2)


@pytest.mark.parametrize(
    ("result", "got"),
    [
        (lambda lists: lists.labels[:, 0].double(), "[(2,)]"),
        (lambda lists: (lists.labels[:, 0].double(), True), "[(2,), 'bool']"),
        (lambda lists: (lists.labels.double(), lists.labels > 0), "[(2, 3), (2, 3)]"),
        (lambda lists: None, "['NoneType']"),
    ],
)
def test_a_compute_that_returns_something_else_is_told_what_it_must_return(result, got):
    class Mine(Measure):
        def compute(self, lists):
            return result(lists)

    with pytest.raises(TypeError, match="compute of Mine must return values") as raised:
        evaluate(SCORES, LABELS, Mine())
    assert str(raised.value).endswith(f"got {got}")


@pytest.mark.parametrize("measure", ["nDCG", "nDCG@2", "AP", "R@2", "Rprec"])
def test_ideal_labels_without_documents_of_the_list_are_refused(measure):
    scores, labels = torch.tensor([4.0, 3.0, 2.0, 1.0]), torch.tensor([1, 1, 1, 0])
    with pytest.raises(ValueError, match="ideal_labels must have all documents of a list"):
        evaluate(scores, labels, [measure], ideal_labels=torch.tensor([1]))
    (value,) = evaluate(scores, labels, [measure], ideal_labels=torch.tensor([0, 1, 1, 1, 1])).values()
    assert 0 < value <= 1
