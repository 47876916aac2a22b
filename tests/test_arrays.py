"""Every public function takes numbers in every kind of array, and none makes one number of two."""

import dataclasses
import datetime
import re
from decimal import Decimal
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import rankstruct as rs
from rankstruct.arrays import as_numbers, as_scores, as_single
from rankstruct.data import DataError, RankingData, read_scores, write_run, write_scores
from rankstruct.statistics import bootstrap_interval, compare_paired, spread

pa = pytest.importorskip("pyarrow")


def read_only(a):
    a = a.copy()
    a.setflags(write=False)
    return a


def of_objects(kind):
    return lambda a: np.array([kind(each) for each in a.ravel().tolist()] + [None], object)[:-1].reshape(a.shape)


def frame(a, dtype):
    return (pd.Series if a.ndim == 1 else pd.DataFrame)(a).astype(dtype)


# Of whole numbers, from 0 to 9.
KINDS = {
    "other byte order": lambda a: a.astype(">f8"),
    "other byte order, single": lambda a: a.astype(">f4"),
    "other byte order, integers": lambda a: a.astype(">i4"),
    "negative strides": lambda a: a.astype(float)[::-1].copy()[::-1],
    "every other one": lambda a: np.repeat(a.astype(np.float32), 2, axis=0)[::2],
    "column by column": lambda a: np.asfortranarray(a.astype(float)),
    "read-only": lambda a: read_only(a.astype(float)),
    "extended precision": lambda a: a.astype(np.longdouble),
    "half precision": lambda a: a.astype(np.float16),
    **{str(np.dtype(kind)): lambda a, kind=kind: a.astype(kind) for kind in ("i1", "i2", "i8", "u1", "u2", "u4", "u8")},
    "objects, integers": of_objects(int),
    "objects, floats": of_objects(float),
    "objects, decimals": of_objects(lambda each: Decimal(int(each))),
    "objects, fractions": of_objects(lambda each: Fraction(int(each))),
    "objects, of NumPy": of_objects(np.float32),
    "masked, nothing behind it": lambda a: np.ma.masked_array(a.astype(float)),
    "list": lambda a: a.tolist(),
    "tuple": lambda a: tuple(a.tolist()),
    "tensor": lambda a: torch.tensor(a, dtype=torch.float64),
    "tensor, integers": lambda a: torch.tensor(a.astype(np.int64)),
    "tensor, bfloat16": lambda a: torch.tensor(a, dtype=torch.bfloat16),
    "tensor with gradient": lambda a: torch.tensor(a, dtype=torch.float64, requires_grad=True),
    "pandas": lambda a: frame(a, "int64"),
    "pandas, nullable": lambda a: frame(a, "Int64"),
    "pandas, nullable floats": lambda a: frame(a, "Float64"),
    "pandas, Arrow": lambda a: frame(a, "double[pyarrow]"),
    "Arrow": lambda a: pa.array(a.astype(float)) if a.ndim == 1 else a,
}

SCORES = np.array([3, 1, 2, 5, 4, 0, 1, 1])
LABELS = np.array([1, 0, 2, 1, 0, 0, 0, 1])
QID = np.array([1, 1, 1, 2, 2, 2, 2, 2])
SIZES = np.array([3, 5])
X = np.random.default_rng(0).integers(1, 9, (8, 3))


def fitted(ranker, k):
    return ranker.fit(k(X), k(LABELS), k(QID)).predict(k(X)).tolist()


def whole(given):
    """A tensor of offsets or groups has to be of integers."""
    return given.long() if isinstance(given, torch.Tensor) else given


def written(tmp, k):
    data = RankingData.from_arrays(X, LABELS, QID)
    write_run(tmp / "run.txt", data, k(SCORES))
    write_scores(tmp / "scores.txt", k(SCORES))
    rows = [line.split() for line in (tmp / "run.txt").read_text().splitlines()]
    return read_scores(tmp / "scores.txt").tolist(), [(row[2], float(row[4])) for row in rows]


def updated(k):
    metric = rs.RankingMetric(["AP", "nDCG@2"])
    metric.update(k(SCORES), k(LABELS), qid=k(QID), item_weights=None)
    return metric.compute()


def made(k):
    data = RankingData.from_arrays(k(X), k(LABELS), k(QID))
    return (
        data.features.tolist(),
        data.labels.tolist(),
        data.offsets.tolist(),
        data.with_groups(k(QID)).diversity_groups.tolist(),
    )


# From how an array is kept to plain values.
CALLS = {
    "evaluate": lambda k, _: rs.evaluate(k(SCORES), k(LABELS), ["AP", "nDCG"], qid=k(QID)),
    "evaluate, sizes": lambda k, _: rs.evaluate(k(SCORES), k(LABELS), ["RR"], group=k(SIZES)),
    "evaluate, offsets": lambda k, _: rs.evaluate(SCORES, LABELS, ["RR"], offsets=whole(k(np.array([0, 3, 8])))),
    "evaluate, padded": lambda k, _: rs.evaluate(k(SCORES.reshape(2, 4)), k(LABELS.reshape(2, 4)), ["ERR"]),
    "evaluate, counts": lambda k, _: rs.evaluate(SCORES, LABELS, ["AP"], qid=QID, num_relevant=k(np.array([2, 4]))),
    "evaluate, ideal": lambda k, _: rs.evaluate(SCORES[:4], LABELS[:4], ["nDCG"], ideal_labels=k(LABELS)),
    "evaluate, weights": lambda k, _: rs.evaluate(SCORES, LABELS, ["nDCG"], qid=QID, item_weights=k(SCORES)),
    "evaluate, docids": lambda k, _: rs.evaluate(LABELS, LABELS, ["nDCG"], ties="docid", docids=k(SCORES)),
    "evaluate, groups": lambda k, _: rs.evaluate(SCORES, LABELS, ["diverse_nDCG@3"], diversity_groups=whole(k(QID))),
    "measure": lambda k, _: rs.nDCG(3)(k(SCORES), k(LABELS)),
    "best value": lambda k, _: rs.DCG(3).best_value(k(LABELS), offsets=whole(k(np.array([0, 3, 8])))),
    "metric": lambda k, _: updated(k),
    "offsets of a loss": lambda k, _: rs.RankNetLoss()(
        torch.tensor(SCORES * 1.0), torch.tensor(LABELS), offsets=whole(k(np.array([0, 3, 8])))
    ),
    "lists": lambda k, _: made(k),
    "run and scores": lambda k, tmp: written(tmp, k),
    "linear": lambda k, _: fitted(rs.LinearRanker("AP", C=1.0), k),
    "kernel": lambda k, _: fitted(rs.KernelRanker("AP", C=1.0), k),
    "perceptron": lambda k, _: fitted(rs.MLPRanker(max_epochs=1, validation_share=0, hidden=(2,)), k),
    "validation, weights, score": lambda k, _: (
        rs.LinearRanker("AP", C=[0.1, 1.0])
        .fit(X, LABELS, QID, X_valid=k(X), y_valid=k(LABELS), qid_valid=k(QID), sample_weight=k(SIZES))
        .score(k(X), k(LABELS), k(QID), sample_weight=k(SIZES), item_weights=k(LABELS + 1))
    ),
    "objective": lambda k, _: [
        each.tolist() for each in rs.boosting_objective(rs.ListNetLoss())(k(LABELS), k(SCORES), None, k(SIZES))
    ],
    "boosting metric": lambda k, _: rs.boosting_metric("AP")(k(LABELS), k(SCORES), None, k(SIZES)),
    "preparation": lambda k, _: (
        rs.Preparation.fit(["standardize", "query-minmax"], k(X), whole(k(np.array([0, 3, 8]))))
        .transform(k(X), whole(k(np.array([0, 3, 8]))))
        .tolist()
    ),
    "statistics": lambda k, _: (
        compare_paired(k(SCORES), k(LABELS)),
        bootstrap_interval(k(SCORES), resamples=20),
        spread(k(SCORES)),
    ),
}


def numbers(value):
    """All numbers and names of a result, one after another."""
    if isinstance(value, dict):
        value = list(value.values())
    if dataclasses.is_dataclass(value):
        value = dataclasses.astuple(value)
    if isinstance(value, torch.Tensor | np.ndarray):
        value = value.tolist()
    return [each for part in value for each in numbers(part)] if isinstance(value, list | tuple) else [value]


@pytest.mark.sampled(3)
@pytest.mark.filterwarnings("ignore:.*no better than w = 0")
@pytest.mark.parametrize("call", CALLS)
def test_every_function_takes_every_kind_of_array(call, tmp_path):
    expected = numbers(CALLS[call](lambda a: a.astype(np.float64), tmp_path))
    before = [each.copy() for each in (SCORES, LABELS, QID, SIZES, X)]
    for name, kind in KINDS.items():
        found = numbers(CALLS[call](kind, tmp_path))
        assert len(found) == len(expected)
        for one, other in zip(found, expected, strict=True):  # features in half or single precision stay in theirs
            assert one == (other if isinstance(other, str) else pytest.approx(other, rel=1e-3, abs=1e-5)), name
    assert all(np.array_equal(*pair) for pair in zip(before, (SCORES, LABELS, QID, SIZES, X), strict=True))


WRONG = {
    "strings": (np.array(["1", "2", "3"]), "numbers, .*got .*'1'"),
    "objects, strings": (np.array(["1", 2, 3], object), "numbers, .*got .*'1'"),
    "complex": (np.array([1, 2, 3j]), "(real numbers, got complex|Complex data not supported)"),
    "dates": (np.array(["2024-01-01"] * 3, "M8[D]"), "real numbers, got datetime64"),
    "objects, dates": (np.array([datetime.date(2024, 1, 1)] * 3, object), "real numbers, got date"),
    "nothing": (np.array([1, None, 3], object), r"must not be missing; \w+\[1\] is None"),
    "pandas, nothing": (
        pd.Series([1, None, 3], dtype="Int64"),
        r"must not be missing; \w+\[1\] is <NA>|must be finite|contains NaN|has nan",
    ),
    "masked": (np.ma.masked_array([1.0, 2.0, 3.0], [False, True, False]), r"must not be missing; \w+\[1\] is masked"),
    "several sizes": ([[1, 2], [3]], "lists of different lengths flat, concatenated"),
    "too large": (np.array([1, 2, 2**53 + 1]), r"must be at most 2\^53 in size.* \w+\[2\] is 9007199254740993"),
    "too large, objects": ([1, 2, 2**80], r"must be at most 2\^53 in size.* \w+\[2\] is 1208925819614629174706176"),
    "too large, tensor": (
        torch.tensor([1, 2, 2**53 + 1]),
        r"must be at most 2\^53 in size.* \w+\[2\] is 90071992547409",
    ),
}
ONE = np.ones(3, int)
#: Calls by the name of the argument that is given.
ARGUMENTS = {
    "labels": lambda given: rs.evaluate([0.3, 0.2, 0.1], given, "AP"),
    "labels of a metric": lambda given: rs.RankingMetric("AP").update([0.3, 0.2, 0.1], given),
    "labels of the best": lambda given: rs.AP().best_value(given),
    "num_relevant": lambda given: rs.evaluate([[0.3, 0.2]] * 3, [[1, 0]] * 3, "AP", num_relevant=given),
    "item_weights": lambda given: rs.evaluate([0.3, 0.2, 0.1], [1, 0, 1], "AP", item_weights=given),
    "y": lambda given: RankingData.from_arrays(np.eye(3), given, ONE),
    "(y|labels)": lambda given: rs.LinearRanker("AP", C=1.0).fit(np.eye(3), given, ONE),
    "y_valid": lambda given: rs.LinearRanker("AP", C=1.0).fit(
        np.eye(3), [0, 1, 1], ONE, X_valid=np.eye(3), y_valid=given, qid_valid=ONE
    ),
    "sample_weight": lambda given: rs.LinearRanker("AP", C=1.0).fit(np.eye(3), [0, 1, 1], ONE, sample_weight=given),
    "scores": lambda given: write_scores("never written", given),
    "values": lambda given: spread(given),
    "labels of trees": lambda given: rs.boosting_metric("AP")(given, np.zeros(3), None, [3]),
}


@pytest.mark.parametrize("argument", ARGUMENTS)
def test_values_that_are_not_numbers_are_refused_by_name(argument):
    for name, (given_, message) in WRONG.items():
        with pytest.raises((TypeError, ValueError), match=message) as found:
            ARGUMENTS[argument](given_)
        if (
            "scikit" not in str(found.value)
            and "Complex" not in str(found.value)
            and "contains NaN" not in str(found.value)
        ):
            assert re.match(f"labels|{argument.partition(' ')[0]}", str(found.value)), name


LARGE = 2**53
TELLS_APART = {
    "int64": lambda a: np.array(a),
    "uint64": lambda a: np.array(a, np.uint64),
    "objects": lambda a: np.array(a, object),
    "list": lambda a: a,
    "list with a float": lambda a: [*a[:-1], float(a[-1])],
    "extended precision": lambda a: np.array([np.longdouble(each) for each in a]),
    "tensor": lambda a: torch.tensor(a),
    "decimals": lambda a: [Decimal(each) for each in a],
    "fractions of one number": lambda a: [Fraction(each, 3) for each in a],
    "pandas": lambda a: pd.Series(a),
    "Arrow": lambda a: pa.array(a),
}


@pytest.mark.parametrize("kind", TELLS_APART)
def test_integers_above_what_float64_holds_are_compared_as_integers(kind):
    scores, labels = [LARGE + 1, LARGE, LARGE + 3, LARGE + 2, LARGE + 5, LARGE + 4], [1, 1, 0, 0, 1, 0]
    plain = np.array(scores) - LARGE - 2  # some below 0, of which some measures take notice
    given_ = TELLS_APART[kind](scores)
    measures = ["AUC", "nDCG", "RR"]
    found, expected = (rs.evaluate(each, labels, measures) for each in (given_, plain))
    assert [value.item() for value in found.values()] == [value.item() for value in expected.values()]
    assert rs.evaluate(np.array(scores, float), labels, ["AUC"])["AUC"] != expected["AUC"]  # where they tie
    metric = rs.RankingMetric("AUC")
    metric.update(given_, labels, qid=[7] * 6)
    assert metric.compute()["AUC"] == expected["AUC"]
    # As trec_eval, which holds scores in single precision.
    docids = list("abcdef")
    with_ids = rs.evaluate(given_, labels, ["nDCG"], ties="docid", docids=docids)["nDCG"]
    assert with_ids == rs.evaluate(np.zeros(6), labels, ["nDCG"], ties="docid", docids=docids)["nDCG"]


EXACT = st.integers(-(2**70), 2**70) | st.fractions() | st.floats(allow_nan=False, allow_infinity=False)


@given(
    st.lists(EXACT | st.sampled_from([LARGE, LARGE + 1, float(LARGE), -LARGE - 1, -LARGE, 0, 0.0, -0.5]), max_size=12)
)
def test_scores_keep_their_order_and_their_sign(values):
    found = as_scores(np.array([*values, None], object)[:-1])
    assert found.dtype == np.float64
    exact = [Fraction(each) for each in values]
    for one, mine in zip(found, exact, strict=True):
        assert (one > 0, one < 0) == (mine > 0, mine < 0)
        assert [one > other for other in found] == [mine > other for other in exact]


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.sampled_from([LARGE, LARGE + 1, LARGE + 2]), max_size=12))
def test_integers_keep_their_order_or_are_refused(values):
    array = np.array(values, np.int64)
    found = as_scores(array)
    assert np.array_equal(np.argsort(found, kind="stable"), np.argsort(array, kind="stable"))
    assert len(np.unique(found)) == len(np.unique(array))
    if any(abs(each) > LARGE for each in values):
        with pytest.raises(ValueError, match="at most 2\\^53"):
            as_numbers("x", array)
    else:
        assert as_numbers("x", array).tolist() == values
    if any(int(np.float32(each)) != each or abs(each) > LARGE for each in values):
        with pytest.raises(ValueError, match=r"at most 2\^53|float32"):
            as_single("x", array)
    else:
        assert as_single("x", array).tolist() == values


def test_labels_that_a_dtype_makes_one_of_are_refused():
    scores = torch.tensor([0.3, 0.1, 0.2])
    for loss in (rs.RankNetLoss(), rs.RankSVMLoss(), rs.ListNetLoss(), rs.losses.ListMLELoss(), rs.losses.CircleLoss()):
        with pytest.raises(ValueError, match=r"float64 represents exactly.* document 1 is 9007199254740993"):
            loss(scores.double(), torch.tensor([LARGE, LARGE + 1, 0]))
        loss(scores.double(), torch.tensor([LARGE, LARGE - 1, 0]))
        loss(scores.double(), torch.tensor([LARGE, LARGE + 1, 0]), where=torch.tensor([True, False, True]))
    with pytest.raises(ValueError, match=r"float32 represents exactly.* document 1 is 16777217"):
        rs.ListNetLoss()(scores, torch.tensor([2**24, 2**24 + 1, 0]))
    assert rs.RankSVMLoss()(scores, torch.tensor([2**24, 2**24 + 1, 0])) > 0  # computed with in float64
    with pytest.raises(DataError, match=r"float32, .* up to 16777216; y\[1\] is 16777217"):
        RankingData.from_arrays(np.eye(3), [1, 2**24 + 1, 0], [1, 1, 1])
    with pytest.raises(ValueError, match=r"float32, .* up to 16777216; y\[1\] is 16777217"):
        rs.MLPRanker(max_epochs=1, validation_share=0).fit(np.eye(3), [1, 2**24 + 1, 0], [1, 1, 1])


def test_ids_are_told_apart_and_never_missing():
    for ids in ([LARGE, LARGE + 1, 0.5], np.array([LARGE, LARGE + 1, 7], np.uint64), [str(LARGE), str(LARGE + 1), "7"]):
        assert len(rs.evaluate([0.1, 0.2, 0.3], [1, 0, 1], "AP", qid=ids)["AP"]) == 3
        assert RankingData.from_arrays(np.eye(3), ONE, ids).num_lists == 3
    for gone in (None, float("nan"), pd.NA):
        for name, call in (
            ("qid", lambda ids: RankingData.from_arrays(np.eye(2), [1, 0], ids)),
            ("docids", lambda ids: RankingData.from_arrays(np.eye(2), [1, 0], [1, 1], docids=ids)),
            ("diversity_groups", lambda ids: RankingData.from_arrays(np.eye(2), [1, 0], [1, 1]).with_groups(ids)),
            ("docids", lambda ids: rs.evaluate([1, 1], [1, 0], "AP", ties="docid", docids=ids)),
        ):
            with pytest.raises(ValueError, match=f"{name} must not be missing; that of document 1 is"):
                call(["a", gone])


def test_missing_features_of_a_frame_are_named():
    frame_ = pd.DataFrame({"price": [1.0, None, None], "length": [1.0, 2.0, 3.0], "width": [None, 2.0, 3.0]})
    ranker = rs.LinearRanker("AP", C=1.0).fit(frame_.fillna(0.0), [0, 1, 1], [1, 1, 1])
    with pytest.raises(ValueError, match="X has missing values, in the columns 'price', 'width', and the training"):
        ranker.predict(frame_)
