"""Digits by the UCI protocol, synthetic lists from a known scorer."""

import numpy as np
import pytest
from sklearn.datasets import load_digits

from rankstruct.data import digits, synthetic, synthetic_groups


def documents(part):
    return set(part.docids.tolist())


def test_no_document_is_in_two_parts():
    splits = digits(seed=4)
    train, vali, test = map(documents, splits)
    assert not train & vali
    assert not train & test
    assert not vali & test
    # 50 samples of 100 meet nearly all of a part: 60, 20 and 20% of 1797 images
    assert 1000 < len(train) <= 1080
    assert 350 < len(vali) <= 362
    assert 350 < len(test) <= 362


def test_queries_are_samples_of_images():
    images, classes = load_digits(return_X_y=True)
    splits = digits(seed=1, relevant=3, queries=(4, 3, 2), documents=60)
    assert [part.num_lists for part in splits] == [4, 3, 2]
    for part in splits:
        assert set(part.lengths) == {60}
        numbers = part.docids.astype(int)
        assert (part.features == (images[numbers] / 16).astype(np.float32)).all()
        assert (part.labels == (classes[numbers] == 3)).all()
        for first, last in zip(part.offsets[:-1], part.offsets[1:], strict=True):
            assert len(set(numbers[first:last])) == 60
    assert len(set(np.concatenate([part.qids for part in splits]))) == 9


def test_seed_decides():
    one, same, other = digits(seed=1), digits(seed=1), digits(seed=2)
    assert (one.train.docids == same.train.docids).all()
    assert documents(one.test) != documents(other.test)


def test_the_task_is_neither_trivial_nor_hopeless():
    splits = digits()
    train, test = splits.train, splits.test
    design = np.hstack([train.features, np.ones((train.num_documents, 1))]).astype(np.float64)
    weights = np.linalg.solve(design.T @ design + np.eye(65), design.T @ train.labels)[:64]
    values = []
    for first, last in zip(test.offsets[:-1], test.offsets[1:], strict=True):
        relevant = test.labels[first:last][np.argsort(-(test.features[first:last] @ weights))]
        values.append((np.cumsum(relevant) / np.arange(1, 101))[relevant > 0].mean())
    assert 0.75 < np.mean(values) < 0.98
    assert 0.05 < test.labels.mean() < 0.15


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"relevant": 10}, "a digit, 0 to 9; got 10"),
        ({"queries": (1, 0, 1)}, "three positive numbers"),
        ({"documents": 400}, "documents must be from 1 to 3"),
    ],
)
def test_digits_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        digits(**options)


def test_synthetic_labels_follow_the_scorer():
    data, weights = synthetic(lists=200, documents=(3, 30), features=8, grades=4, noise=0.0, seed=2)
    assert data.num_lists == 200
    assert (data.lengths.min(), data.lengths.max()) == (3, 30)
    assert np.linalg.norm(weights) == pytest.approx(1)
    by_score = data.labels[np.argsort(data.features @ weights, kind="stable")]
    assert (np.diff(by_score) >= 0).all()
    shares = [(data.labels >= grade).mean() for grade in range(5)]
    np.testing.assert_allclose(shares, [1, 0.5, 0.25, 0.125, 0], atol=0.001)


def test_synthetic_noise_and_weights():
    clean, weights = synthetic(noise=0.0, seed=5)
    noisy, same = synthetic(noise=2.0, seed=5)
    assert (weights == same).all()
    correlation = [np.corrcoef(data.features @ weights, data.labels)[0, 1] for data in (clean, noisy)]
    assert correlation[0] > 0.8 > 0.6 > correlation[1] > 0.2
    more, given = synthetic(noise=0.0, seed=6, weights=weights)
    np.testing.assert_allclose(given, weights, rtol=1e-6)
    assert more.features[0, 0] != clean.features[0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lists": 0}, "lists must be an integer from 1"),
        ({"grades": 1}, "grades must be an integer from 2"),
        ({"noise": -1}, "noise must be a finite number of at least 0"),
        ({"documents": (5, 4)}, "least <= greatest"),
        ({"weights": np.ones(3)}, r"weights must have shape \[features\] = \(20,\)"),
    ],
)
def test_synthetic_refuses(options, message):
    with pytest.raises(ValueError, match=message):
        synthetic(**options)


def test_synthetic_groups_have_a_main_host_and_a_known_scorer():
    data, weights = synthetic_groups(lists=50, seed=3, noise=0.0)
    same, _ = synthetic_groups(lists=50, seed=3, noise=0.0)
    assert (data.features == same.features).all()
    assert (data.diversity_groups == same.diversity_groups).all()
    assert (data.features[:, 0] == (data.diversity_groups == 0)).all()
    assert 0.65 < (data.diversity_groups == 0).mean() < 0.75
    assert 15 <= data.lengths.min() <= data.lengths.max() <= 40
    assert all(
        2 <= len(np.unique(data.diversity_groups[a:b])) <= 10
        for a, b in zip(data.offsets, data.offsets[1:], strict=False)
    )
    elsewhere = weights * np.array([-1, 1, -1, 1, -1, 1, -1, 1, -1])
    utilities = np.where(
        data.diversity_groups == 0, 0.5 + data.features[:, 1:] @ weights, data.features[:, 1:] @ elsewhere
    )
    assert (np.diff(data.labels[np.argsort(utilities)]) >= 0).all()
    assert set(np.unique(data.labels)) == {0, 1, 2}
    more, again = synthetic_groups(lists=2, seed=4, weights=weights)
    assert np.allclose(again, weights)
    assert more.num_lists == 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"features": 1}, "features must be an integer from 2"),
        ({"groups": (1, 3)}, r"groups must be \(least, greatest\) with 2 <= .*, got \(1, 3\)"),
        ({"weights": np.ones(8)}, r"weights must have shape \[features - 1\] = \(9,\), got \(8,\)"),
    ],
)
def test_synthetic_groups_refuse(options, message):
    with pytest.raises(ValueError, match=message):
        synthetic_groups(**options)
