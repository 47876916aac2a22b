import numpy as np
import pytest
import torch

from rankstruct.blocks import Blocks, counted, moments
from rankstruct.columns import Columns
from rankstruct.preparation import Preparation

rng = np.random.default_rng(0)
DOCUMENTS = np.stack(
    [
        rng.normal(5, 1e-3, 4000),
        rng.integers(-3, 4, 4000),
        rng.lognormal(0, 5, 4000),
        np.full(4000, 1 / 3),
        rng.normal(0, 1e-41, 4000),  # subnormal
    ],
    1,
).astype(np.float32)


class Parts(Blocks):
    """An array in parts of lists of ten documents."""

    def __init__(self, X, parts, change=lambda block, offsets: block):
        self.parts, self.change = np.array_split(X.reshape(-1, 10, X.shape[1]), parts), change
        self.shape = (len(X), change(X[:10], np.array([0, 10])).shape[1])

    def blocks(self):
        for part in self.parts:
            offsets = np.arange(0, 10 * len(part) + 1, 10)
            yield self.change(part.reshape(-1, part.shape[-1]), offsets), offsets

    def changed(self, change):
        X = np.concatenate([part.reshape(-1, part.shape[-1]) for part in self.parts])
        return Parts(X, len(self.parts), lambda block, offsets: change(self.change(block, offsets), offsets))


def read_in(parts, X=DOCUMENTS):
    return lambda: iter(np.array_split(X, parts))


def test_moments_do_not_depend_on_the_division_and_are_those_of_exact_arithmetic():
    one, seven = moments(read_in(1), 5), moments(read_in(7), 5)
    shuffled = moments(read_in(100, DOCUMENTS[rng.permutation(4000)]), 5)
    for found, same, again in zip(one, seven, shuffled, strict=True):
        np.testing.assert_array_equal(found, same)
        np.testing.assert_array_equal(found, again)
    exact = DOCUMENTS.astype(np.longdouble)
    np.testing.assert_allclose(one[0], exact.mean(0).astype(float), rtol=1e-15)
    np.testing.assert_allclose(one[1], exact.std(0).astype(float), rtol=1e-12)


def test_counts_are_those_of_sorted_columns():
    shares = np.linspace(0, 1, 11)
    for at, found in enumerate(counted(read_in(7), 5, shares)):
        values, counts = np.unique(DOCUMENTS[:, at], return_counts=True)
        places = np.searchsorted(values, found.values)
        np.testing.assert_array_equal(found.values, values[places])
        np.testing.assert_array_equal(found.counts, counts[places])
        np.testing.assert_array_equal(found.below, (np.cumsum(counts) - counts)[places])
        assert found.is_whole == (len(places) == len(values))
        wanted = values[np.minimum(np.searchsorted(np.cumsum(counts), shares * 4000), len(values) - 1)]
        assert np.isin(wanted, found.values).all()


@pytest.mark.parametrize(
    "names",
    [
        ["standardize"],
        ["quantile"],
        ["bins:5"],
        ["piecewise"],
        ["encode", "append-quantile", "query-minmax"],
        ["log", "standardize"],
    ],
)
def test_a_preparation_in_parts_is_that_of_the_whole(names):
    X = DOCUMENTS.copy()
    columns = Columns({"a": None, "b": tuple("tuvwxyz"), "c": None, "d": None, "e": None})
    after = None
    if "encode" in names:
        X[:, 1] += 3  # codes
        X[::7, 2] = np.nan
        after = Preparation(columns=columns)
    offsets = np.arange(0, 4001, 10)
    whole, prepared = Preparation.fit_transform(names, X, offsets, after)
    prepared = prepared if isinstance(prepared, np.ndarray) else prepared.toarray()
    found = []
    for parts in (1, 7, 100):
        each, features = Preparation.fit_transform(names, Parts(X, parts), offsets, after)
        found.append(each)
        blocks = np.concatenate([block for block, _ in features.blocks()])
        np.testing.assert_allclose(blocks, prepared, rtol=1e-5, atol=1e-5)
        assert features.shape == prepared.shape
    assert found[0].equals(found[1])
    assert found[0].equals(found[2])
    for mine, theirs in zip(found[0].buffers(), whole.buffers(), strict=True):
        if names[-1] == "standardize":  # in memory, sums are rounded
            torch.testing.assert_close(mine, theirs, rtol=1e-12, atol=1e-15)
        else:
            torch.testing.assert_close(mine, theirs, rtol=0, atol=0)
