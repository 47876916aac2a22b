"""Steps that remove and relabel documents."""

import logging
from dataclasses import fields, replace

import numpy as np
import pytest
import scipy.sparse as sp

from rankstruct.columns import Columns
from rankstruct.constraints.rules import group_ids
from rankstruct.data import DataError, RankingData, concatenate
from rankstruct.data.clean import RemoveNearDuplicates, RemoveZeroRows, keep_documents


def draw(lists=6, d=4, seed=0):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(lists), rng.integers(1, 9, lists))
    X = rng.integers(0, 3, (len(qid), d)).astype(np.float32)
    return RankingData.from_arrays(X, rng.integers(0, 3, len(qid)), qid, docids=np.arange(len(qid)))


@pytest.mark.parametrize("sparse", [False, True])
def test_zero_rows_go_and_lists_without_documents_with_them(sparse, caplog):
    X = np.array([[0, 0], [1, 0], [0, 0], [0, 2]], np.float32)
    data = RankingData.from_arrays(sp.csr_array(X) if sparse else X, [1, 0, 2, 1], ["a", "a", "b", "c"])
    with caplog.at_level(logging.INFO):
        found = RemoveZeroRows()(data)
    assert found.labels.tolist() == [0, 1]
    assert found.qids.tolist() == ["a", "c"]
    assert "removed 2 of 4 documents" in caplog.text


def every_field():
    """Data in which each field that has one entry a document tells which document it is of."""
    number = np.arange(1, 9)
    values = {
        "features": np.stack([number, number % 3], axis=1).astype(np.float32),
        "labels": number.astype(np.float32),
        "docids": number.astype(str),
        "comments": number.astype(str).astype(np.bytes_),
        "missing": number.astype(np.int32),
        "diversity_groups": number.astype(np.int64),
        "group_columns": {"seller": group_ids("seller", number)},
    }
    known = {*values, "offsets", "qids", "columns"}
    assert {f.name for f in fields(RankingData)} == known, "say here what a new field holds"
    columns = Columns({"x": None, "y": ["a", "b", "c"]})
    return RankingData(**values, offsets=np.array([0, 3, 3, 8]), qids=np.array(["a", "empty", "b"]), columns=columns)


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda data: data.select([2, 0]), [4, 5, 6, 7, 8, 1, 2, 3]),
        (lambda data: data.select_documents([3, 7], [0, 1, 2], np.array(["c", "d"])), [4, 8]),
        (lambda data: keep_documents(data, data.labels != 5), [1, 2, 3, 4, 6, 7, 8]),
        (
            lambda data: RemoveZeroRows()(replace(data, features=data.features * (data.labels[:, None] != 2))),
            [1, 3, 4, 5, 6, 7, 8],
        ),
        (lambda data: RemoveNearDuplicates(0.999999, min_relevant=7)(data), [1, 2, 3, 5, 6, 7]),
        (lambda data: concatenate([data.select([2]), data.select([0])]), [4, 5, 6, 7, 8, 1, 2, 3]),
    ],
    ids=["select", "select_documents", "keep", "zero-rows", "near-duplicates", "concatenate"],
)
def test_rows_keep_everything_that_is_known_of_a_document(change, expected):
    found = change(every_field())
    assert found.labels.tolist() == expected
    for name, values in vars(found).items():
        if name == "columns":
            assert values.categories == {"x": None, "y": ("a", "b", "c")}
        elif name not in ("offsets", "qids"):
            values = values["seller"].ids if name == "group_columns" else values
            told = values[:, 0] if name == "features" else values
            assert told.astype(np.float32).tolist() == found.labels.tolist(), name


@pytest.mark.parametrize("threshold", [0.9, 0.99])
def test_near_duplicates_are_those_of_the_definition(threshold, caplog):
    data = draw(seed=3)
    gone = set()
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        for i in range(start, stop):
            for j in range(start, stop):
                a, b = data.features[i].astype(float), data.features[j].astype(float)
                norm = np.linalg.norm(a) * np.linalg.norm(b)
                if data.labels[i] > 0 == data.labels[j] and norm > 0 and a @ b / norm > threshold:
                    gone |= {i, j}
    with caplog.at_level(logging.INFO):
        found = RemoveNearDuplicates(threshold)(data)
    assert gone
    assert {int(docid) for docid in found.docids} == set(range(data.num_documents)) - gone
    assert f"removed {len(gone)} of {data.num_documents} documents" in caplog.text


def test_kept_documents_have_a_mask():
    with pytest.raises(DataError, match="shape"):
        keep_documents(draw(), [True])
