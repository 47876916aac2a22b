"""Groups of documents: from names, comments and columns, through selection, batches and joins."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from rankstruct.constraints.rules import NO_GROUP
from rankstruct.data import Batch, BatchLoader, DataError, RankingData, collate, concatenate, read_svmlight
from rankstruct.data.batches import ListDataset, make_batch
from rankstruct.data.pipeline import fit_preparation


def make(**options):
    return RankingData.from_arrays([[5.0], [2.0], [5.0], [1.0]], [1, 0, 2, 1], ["a", "a", "a", "b"], **options)


def test_from_names_numbers_and_a_column():
    data = make()
    assert data.diversity_groups is None
    assert data.with_groups(["y", "x", "y", "y"]).diversity_groups.tolist() == [1, 0, 1, 1]
    assert data.with_groups(torch.tensor([7, -1, 7, 7])).diversity_groups.tolist() == [1, 0, 1, 1]
    assert data.with_groups(column=0).diversity_groups.tolist() == [2, 1, 2, 0]
    sparse = RankingData.from_arrays(sp.csr_array(data.features), data.labels, ["a", "a", "a", "b"])
    assert sparse.with_groups(column=0).diversity_groups.tolist() == [2, 1, 2, 0]
    assert data.with_groups(column=0).diversity_groups.dtype == np.int64
    assert data.grouped_by(0).diversity_groups.tolist() == [2, 1, 2, 0]
    assert data.grouped_by(None) is data


def test_from_comments(tmp_path):
    file = tmp_path / "lines.txt"
    file.write_text(
        "1.33 qid:1 1:0.5 #url = http://b.org/x host = b.org query = who\n"
        "0 qid:1 1:0.5 #url = http://a.org/ host = a.org query = who\n"
        "2 qid:2 1:0.5 #url = http://b.org/y host = b.org query = what\n"
    )
    data = read_svmlight(file, labels="real", cache=False)
    assert data.with_groups(comment=r"host = (\S+)").diversity_groups.tolist() == [1, 0, 1]
    assert data.grouped_by(r"host = (\S+)").diversity_groups.tolist() == [1, 0, 1]
    assert data.with_groups(data.comment_values("host")).diversity_groups.tolist() == [1, 0, 1]
    for expression, message in (
        (r"url = \S+/(x|y)", r"does not match the comment of document 1 \(list '1'\).*1 comments do not match"),
        ("host", "one capture group"),
        ("(", "must be a regular expression"),
    ):
        with pytest.raises(DataError, match=message):
            data.with_groups(comment=expression)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give exactly one of diversity_groups, comment= and column="),
        ({"diversity_groups": [1, 2, 3, 4], "column": 0}, "exactly one of"),
        ({"diversity_groups": [1, 2]}, r"diversity_groups must have shape \[documents\] = \(4,\), got \(2,\)"),
        ({"column": 1}, "column must be a feature index from 0 to 0; got 1"),
        ({"comment": "(x)"}, "no document has a comment"),
    ],
)
def test_refusals(options, message):
    with pytest.raises(DataError, match=message):
        make().with_groups(**options)


def test_groups_that_float32_merges_are_refused():
    data = RankingData.from_arrays([[1000000001.0], [1000000002.0]], [1, 0], ["q", "q"])
    with pytest.raises(DataError, match="feature 0 has groups such as 1000000000: features are float32"):
        data.with_groups(column=0)
    with pytest.raises(DataError, match="pass the groups as an array, or names"):
        data.with_columns({"seller": 0})
    ids = data.with_columns({"seller": [1000000001, 1000000002]}).group_columns["seller"].ids
    assert ids.tolist() == [1000000001, 1000000002]
    assert RankingData.from_arrays([[2.0**24 - 1], [2.0]], [1, 0], ["q", "q"]).with_groups(column=0).num_lists == 1


def test_groups_that_are_no_integers_are_refused():
    data = make()
    with pytest.raises(DataError, match="diversity_groups must be an int64 array, got an array of float64"):
        RankingData(data.features, data.labels, data.offsets, data.qids, diversity_groups=np.zeros(4))


def test_they_go_along():
    data = make().with_groups([3, 1, 3, 2])
    assert data.select([1, 0]).diversity_groups.tolist() == [1, 2, 0, 2]
    assert fit_preparation(["query-minmax"], data)[1].diversity_groups.tolist() == data.diversity_groups.tolist()
    first, second = data.select([0]), data.select([1])
    assert concatenate([first, second]).diversity_groups.tolist() == [2, 0, 2, 1]
    assert concatenate([make().select([0]), second]).diversity_groups is None


def test_batches_have_them_or_none():
    data = make().with_groups([3, 1, 3, 2])
    batch = make_batch(data, [1, 0])
    assert batch.diversity_groups.tolist() == [[1, NO_GROUP, NO_GROUP], [2, 0, 2]]
    assert batch.columns["diversity_groups"].ids.tolist() == batch.diversity_groups.tolist()
    assert batch.diversity_groups.dtype == torch.int64
    assert torch.equal(batch.to("cpu").diversity_groups, batch.diversity_groups)
    joined = collate([ListDataset(data)[0], ListDataset(data)[1]])
    assert joined.diversity_groups.tolist() == [[2, 0, 2], [1, NO_GROUP, NO_GROUP]]
    sampled = make_batch(data, [0], max_list_size=2)
    assert torch.equal(sampled.diversity_groups[0], torch.tensor(data.diversity_groups)[sampled.positions[0]])
    assert all(batch.diversity_groups is not None for batch in BatchLoader(data, lists_per_batch=1))
    plain = make_batch(make(), [0])
    assert plain.diversity_groups is None
    assert plain.to("cpu").diversity_groups is None
    assert collate([ListDataset(make())[0]]).diversity_groups is None
    assert isinstance(collate([batch, plain]), Batch)
    assert collate([batch, plain]).diversity_groups is None
