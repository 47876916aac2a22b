"""Steps from data to data by name: features through `Preparation`, which has its own tests, documents and labels between."""

import numpy as np
import pytest

from rankstruct.data import RankingData, Splits
from rankstruct.data.clean import Binarize, RemoveZeroRows
from rankstruct.data.pipeline import (
    Pipeline,
    check_preparation,
    fit_preparation,
    full_names,
    parse_steps,
    prepare_splits,
)
from rankstruct.preparation import Preparation


def draw(seed, lists=12, d=4):
    rng = np.random.default_rng(seed)
    qid = np.sort(rng.integers(0, lists, 60))
    features = (rng.standard_normal((60, d)) * 10.0 ** rng.integers(-3, 4, (60, d))).astype(np.float32)
    features[rng.random(60) < 0.2] = 0
    return RankingData.from_arrays(features, rng.integers(0, 3, 60), qid)


def test_steps_are_fitted_to_training_data_as_those_before_them_left_them():
    train, test = draw(1), draw(2)
    names = ["remove-zero-rows", "append-standardize", "binarize:2", "query-center"]
    (first, vali, last), steps = prepare_splits(names, Splits(train, test, test))
    clean, other = RemoveZeroRows()(train), RemoveZeroRows()(test)
    assert clean.num_documents < train.num_documents
    wanted = Preparation.fit(["append-standardize", "query-center"], clean.features, clean.offsets)
    np.testing.assert_array_equal(first.features, wanted.transform(clean.features, clean.offsets))
    for part in (vali, last, steps(test)):
        np.testing.assert_array_equal(part.features, wanted.transform(other.features, other.offsets))
        assert set(part.labels.tolist()) == {0, 1}
    assert steps.preparation.equals(wanted)
    assert Pipeline()(train) is train
    assert fit_preparation([], train)[1] is train
    assert Pipeline().preparation.names == ()


def test_what_a_model_carries_takes_the_place_of_what_was_fitted():
    names, test = ["append-log", "remove-zero-rows", "standardize"], draw(2)
    fits = [fit_preparation(names, draw(seed))[0] for seed in (1, 3)]
    taken = Pipeline.of(names, fits[1].preparation)
    assert taken.preparation.equals(fits[1].preparation)
    assert not taken.preparation.equals(fits[0].preparation)
    np.testing.assert_array_equal(taken(test).features, fits[1](test).features)
    with pytest.raises(
        ValueError, match=r"trained with preparation \['standardize'\].* data have \['append-log:0.001', 's"
    ):
        Pipeline.of(names, fit_preparation(["standardize"], test)[0].preparation)


def test_names():
    data = parse_steps(["unlabelled-as-irrelevant", "binarize:2"])(
        RankingData.from_arrays([[0.0]] * 4, [-1, 1, 2, 3], [1] * 4)
    )
    assert data.labels.tolist() == [0, 0, 1, 1]
    assert parse_steps(["binarize:2"]).steps == (Binarize(2.0),)
    check_preparation(["bins:50", "append-log", "remove-near-duplicates:0.9", "append-standardize"])
    assert full_names(["binarize:2", "log", "unlabelled-as-bad"]) == ["binarize:2", "log:0.001", "unlabelled-as-bad"]
    for names, message in (
        (["binarize:x"], "expected a number"),
        (["clean"], "unknown preparation step 'clean'; known steps are query-minmax, .*append-log, .*binarize"),
        (["remove-zero-rows:3"], "remove-zero-rows does not accept a number"),
        (["log:0"], "above 0"),
        ("log", r"write \['log'\]"),
    ):
        for ask in (check_preparation, parse_steps):
            with pytest.raises(ValueError, match=message):
                ask(names)
    with pytest.raises(ValueError, match=r"standardize changes features.*data.prepare"):
        parse_steps(["standardize"])
