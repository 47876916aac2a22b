"""Batches: padding, order, sampling, resuming, sharing."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from rankstruct.data import BatchLoader, RankingData, collate
from rankstruct.data.batches import ListDataset, make_batch
from rankstruct.measures import evaluate
from rankstruct.metric import RankingMetric


def some_data(lengths, seed=0, sparse=False):
    rng = np.random.default_rng(seed)
    documents = sum(lengths)
    features = rng.standard_normal((documents, 3)).astype(np.float32) + 10
    return RankingData(
        sp.csr_array(features) if sparse else features,
        rng.integers(0, 3, documents).astype(np.float32),
        np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        np.arange(len(lengths)).astype(np.str_),
    )


LENGTHS = [*range(1, 40), 100, 7, 7, 250, 7]


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def data(request):
    return some_data(LENGTHS, sparse=request.param)


def assert_true_to(data, batch):
    """Documents are where positions say, padding is empty."""
    assert batch.features.dtype == batch.labels.dtype == torch.float32
    assert batch.where.dtype == torch.bool
    assert batch.index.dtype == batch.positions.dtype == torch.int64
    features = data.features.toarray() if data.is_sparse else data.features
    rows = batch.positions[batch.where].numpy()
    assert (batch.features[batch.where].numpy() == features[rows]).all()
    assert (batch.labels[batch.where].numpy() == data.labels[rows]).all()
    assert (batch.positions[~batch.where] == -1).all()
    assert (batch.features[~batch.where] == 0).all()
    assert (batch.labels[~batch.where] == 0).all()
    for number, where, positions in zip(batch.index.tolist(), batch.where, batch.positions, strict=True):
        count = int(where.sum())
        assert where[:count].all()
        assert {data.list_of(row) for row in positions[:count].tolist()} <= {number}
        assert len(set(positions[:count].tolist())) == count


def order(loader):
    return [batch.index.tolist() for batch in loader]


def test_make_batch(data):
    batch = make_batch(data, [3, 0, 41])
    assert_true_to(data, batch)
    assert batch.index.tolist() == [3, 0, 41]
    assert batch.where.sum(1).tolist() == [4, 1, 7]
    assert batch.features.shape == (3, 7, 3)


def test_empty_list_and_no_list():
    data = some_data([2, 0])
    assert make_batch(data, [1, 0]).where.tolist() == [[False, False], [True, True]]
    assert make_batch(data, [1]).features.shape == (1, 0, 3)
    assert make_batch(data, []).features.shape == (0, 0, 3)


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("sizes", [{"lists_per_batch": 4}, {"lists_per_batch": 1}, {"documents_per_batch": 128}])
def test_each_list_once_and_whole(data, shuffle, sizes):
    loader = BatchLoader(data, shuffle=shuffle, **sizes)
    batches = list(loader)
    assert len(batches) == len(loader)
    for batch in batches:
        assert_true_to(data, batch)
    assert sorted(number for lists in order(loader) for number in lists) == list(range(data.num_lists))
    assert sum(int(batch.where.sum()) for batch in batches) == data.num_documents


def test_order_depends_on_seed_and_epoch_alone():
    data = some_data(LENGTHS)

    def of(seed, epoch, disturb=False):
        loader = BatchLoader(data, lists_per_batch=4, shuffle=True, seed=seed)
        if disturb:
            np.random.seed(7)  # noqa: NPY002
            torch.manual_seed(7)
            list(loader)
        loader.set_epoch(epoch)
        return order(loader)

    assert of(0, 3) == of(0, 3, disturb=True)
    assert len({str(of(seed, epoch)) for seed in range(3) for epoch in range(3)}) == 9


def test_one_list_a_batch_keeps_the_order_of_the_data():
    loader = BatchLoader(some_data([3, 9, 1, 5]), lists_per_batch=1)
    assert order(loader) == [[0], [1], [2], [3]]


def test_lists_of_one_length_meet_at_random():
    loader = BatchLoader(some_data([5] * 40), lists_per_batch=2, shuffle=True)
    partners = set()
    for epoch in range(20):
        loader.set_epoch(epoch)
        partners |= {frozenset(pair) for pair in order(loader)}
    assert len(partners) > 300  # of 780


@settings(max_examples=60, deadline=None)
@given(
    lengths=st.lists(st.integers(0, 300), min_size=1, max_size=60),
    budget=st.integers(1, 600),
    cap=st.none() | st.integers(2, 100),
    shuffle=st.booleans(),
)
def test_budget_holds_and_every_epoch_has_as_many_batches(lengths, budget, cap, shuffle):
    loader = BatchLoader(some_data(lengths), documents_per_batch=budget, max_list_size=cap, shuffle=shuffle)
    for epoch in range(3):
        loader.set_epoch(epoch)
        batches = list(loader)
        assert len(batches) == len(loader)
        assert all(batch.where.numel() <= budget or len(batch.index) == 1 for batch in batches)
        assert sorted(number for batch in batches for number in batch.index.tolist()) == list(range(len(lengths)))


def test_budget_counts_what_is_left_of_long_lists():
    assert order(BatchLoader(some_data([1000] * 10), documents_per_batch=100, max_list_size=10)) == [list(range(10))]


def test_padding_is_small(data_root):
    from rankstruct.data import read_svmlight

    data = read_svmlight(data_root / "letor/MQ2008/Fold1/train.txt", cache=False)
    for options, bound in (
        ({"documents_per_batch": 500}, 1.1),
        ({"lists_per_batch": 8}, 1.1),
        ({"lists_per_batch": 1}, 1),
    ):
        cells = sum(batch.where.numel() for batch in BatchLoader(data, shuffle=True, **options))
        assert cells <= bound * data.num_documents


def test_long_lists_are_sampled_anew_each_epoch(data):
    loader = BatchLoader(data, lists_per_batch=8, max_list_size=20, shuffle=True, seed=5)
    seen = []
    for epoch in (0, 1, 0):
        loader.set_epoch(epoch)
        batches = list(loader)
        for batch in batches:
            assert_true_to(data, batch)
        rows = {
            n: p[p >= 0].tolist()
            for batch in batches
            for n, p in zip(batch.index.tolist(), batch.positions, strict=True)
        }
        assert [len(rows[n]) for n in range(data.num_lists)] == [min(length, 20) for length in LENGTHS]
        assert all(part == sorted(part) for part in rows.values())
        seen.append(rows)
    assert seen[0] == seen[2]
    assert seen[0][42] != seen[1][42]  # 250 documents
    assert seen[0][0] == seen[1][0]


def test_a_sample_depends_on_its_list_alone():
    data = some_data(LENGTHS)
    alone, together = make_batch(data, [42], 20, (1, 2)), make_batch(data, [39, 42, 3], 20, (1, 2))
    assert alone.positions[0].tolist() == together.positions[1].tolist()


@pytest.mark.parametrize("common", [0.0, 2.0])
@pytest.mark.parametrize("size", [2, 3, 50])
def test_a_sample_keeps_the_only_odd_document(common, size):
    labels = np.full(200, common)
    labels[77] = 2 - common
    data = RankingData.from_arrays(np.zeros((200, 1)), labels, np.zeros(200))
    others = set()
    for seed in range(30):
        rows = make_batch(data, [0], size, (seed,)).positions[0].tolist()
        assert 77 in rows
        assert len(set(rows)) == size
        others |= set(rows)
    assert len(others) > 20


def test_a_sample_is_otherwise_even():
    data = RankingData.from_arrays(np.zeros((10, 1)), [1, 0] * 5, np.zeros(10))
    counts = np.zeros(10)
    for seed in range(2000):
        counts[make_batch(data, [0], 5, (seed,)).positions[0].numpy()] += 1
    assert abs(counts / 2000 - 0.5).max() < 0.05


@pytest.mark.parametrize("size", [2, 5, 50])
@pytest.mark.parametrize("relevant", [0, 1, 30, 199, 200])
def test_a_sample_that_keeps_the_relevant(size, relevant):
    labels = np.zeros(200)
    labels[np.random.default_rng(0).permutation(200)[:relevant]] = 1
    data = RankingData.from_arrays(np.zeros((203, 1)), [*labels, 1, 0, 0], [0] * 200 + [1] * 3)
    loader = BatchLoader(data, lists_per_batch=1, max_list_size=size, keep_relevant=True)
    assert loader.sampled == 1 + (size == 2)
    seen = set()
    for epoch in range(20):
        loader.set_epoch(epoch)
        rows = next(batch for batch in loader if batch.index.tolist() == [0]).positions[0].tolist()
        assert rows == sorted(set(rows))
        assert len(rows) == size
        assert int(data.labels[rows].sum()) == min(relevant, size - (relevant < 200))
        seen.add(tuple(rows))
    assert len(seen) > 10


def test_resuming_goes_on_where_it_stopped():
    data = some_data(LENGTHS)

    def loader():
        return BatchLoader(data, lists_per_batch=4, max_list_size=20, shuffle=True, seed=1)

    whole = loader()
    whole.set_epoch(2)
    expected = [batch.positions.tolist() for batch in whole]
    for delivered in (0, 1, 5, len(expected)):
        first = loader()
        first.set_epoch(2)
        iterator = iter(first)
        for _ in range(delivered):
            next(iterator)
        state = first.state_dict()

        second = loader()
        second.load_state_dict(state)
        assert second.state_dict() == state
        iterator = iter(second)  # Lightning: first the iterator, then the epoch
        second.set_epoch(2)
        assert [batch.positions.tolist() for batch in iterator] == expected[delivered:]
        second.set_epoch(2)
        assert [batch.positions.tolist() for batch in second] == expected  # that iteration alone
        second.set_epoch(3)
        assert second.state_dict() == {"epoch": 3, "delivered": 0}


def test_a_plain_loop_goes_on_with_the_next_epoch():
    def seen(loader):
        return [batch.positions.tolist() for batch in loader]

    data, options = some_data([5, 5, 5, 5, 5, 9]), {"lists_per_batch": 2, "max_list_size": 4, "shuffle": True}
    told, plain = BatchLoader(data, **options), BatchLoader(data, **options)
    expected = []
    for epoch in range(3):
        told.set_epoch(epoch)
        expected.append(seen(told))
    found = [seen(plain)]
    next(iter(plain))  # an epoch that was begun is no epoch
    found += [seen(plain), seen(plain)]
    assert found == [expected[0], expected[1], expected[2]]
    assert len({str(each) for each in found}) == 3
    plain.set_epoch(2)  # the same again
    assert seen(plain) == expected[2]
    state = plain.state_dict()
    plain = BatchLoader(data, **options)
    plain.load_state_dict(state)
    told.set_epoch(3)
    assert seen(plain) == seen(told)
    plain.load_state_dict(state)
    plain.set_epoch(2)  # of which nothing is left
    assert seen(plain) == []
    plain.set_epoch(1)
    assert seen(plain) == expected[1]
    fixed = BatchLoader(data, lists_per_batch=2, max_list_size=4)
    assert seen(fixed) == seen(fixed)  # no new sample either


def test_a_new_epoch_drops_the_position_of_the_old_one():
    loader = BatchLoader(some_data(LENGTHS), lists_per_batch=4, shuffle=True)
    loader.load_state_dict({"epoch": 0, "delivered": 3})
    loader.set_epoch(1)
    assert len(order(loader)) == len(loader)


def test_drop_empty():
    labels = [0, 0, 1, 0, 2, 2, 1]
    data = RankingData.from_arrays(np.zeros((7, 1)), labels, [0, 0, 1, 1, 2, 2, 3])
    loader = BatchLoader(data, lists_per_batch=1, drop_empty=True)
    assert order(loader) == [[1]]
    assert loader.left_out == 3
    assert BatchLoader(data, lists_per_batch=1).left_out == 0


@pytest.mark.parametrize("world", [2, 3, 4])
@pytest.mark.parametrize("sizes", [{"lists_per_batch": 4}, {"documents_per_batch": 300}])
def test_processes_share_all_lists(world, sizes):
    data = some_data([5] * 17 + LENGTHS)
    for epoch in range(2):
        shares = []
        for rank in range(world):
            loader = BatchLoader(data, shuffle=True, rank=rank, world_size=world, **sizes)
            loader.set_epoch(epoch)
            shares.append(order(loader))
            assert len(shares[-1]) == len(loader)
        assert len({len(share) for share in shares}) == 1
        assert sorted(n for share in shares for lists in share for n in lists) == list(range(data.num_lists))


def test_single_lists_that_cannot_be_shared_evenly():
    data = some_data([3] * 7)
    shares = [order(BatchLoader(data, lists_per_batch=1, shuffle=True, rank=r, world_size=3)) for r in range(3)]
    assert [len(share) for share in shares] == [2, 2, 2]
    assert len({n for share in shares for (n,) in share}) == 6


@pytest.mark.parametrize("world", [1, 2, 3, 5])
@pytest.mark.parametrize("sizes", [{"lists_per_batch": 1}, {"documents_per_batch": 20}, {"documents_per_batch": 10**6}])
@pytest.mark.parametrize("lists", [1, 2, 7])
def test_what_is_evaluated_is_there_once(world, sizes, lists):
    """Every process has the same number of batches, though there are fewer lists; what is too many is padding."""
    data = some_data([3, 9, 1, 5, 9, 2, 30][:lists])
    data = data.with_groups(np.arange(data.num_documents))
    whole = BatchLoader(data, **sizes)
    shares = [list(whole.share(rank, world)) for rank in range(world)]
    assert [len(share) for share in shares] == [len(whole.share(rank, world)) for rank in range(world)]
    assert len({len(share) for share in shares}) == 1
    given = [batch for share in shares for batch in share]
    seen = [n for batch in given for n in batch.index[batch.where.any(1)].tolist()]
    assert sorted(seen) == list(range(lists))
    assert sorted(row for batch in given for row in batch.positions[batch.where].tolist()) == list(
        range(data.num_documents)
    )
    metric = RankingMetric(["AP", "AUC"])
    for batch in given:
        assert batch.features.shape == (*batch.labels.shape, data.num_features)
        assert (batch.index[~batch.where.any(1)] == -1).all()
        metric.update(batch.features[..., 0], batch.labels, where=batch.where, diversity_groups=batch.diversity_groups)
    scores, labels, offsets = data.features[:, 0], data.labels, torch.tensor(data.offsets)
    wanted = evaluate(torch.tensor(scores), torch.tensor(labels), ["AP", "AUC"], offsets=offsets)
    means = {name: values.mean().item() for name, values in wanted.items()}
    assert {name: value.item() for name, value in metric.compute().items()} == pytest.approx(means, abs=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "lists_per_batch or documents_per_batch"),
        ({"lists_per_batch": 2, "documents_per_batch": 2}, "give either lists_per_batch"),
        ({"lists_per_batch": 0}, "lists_per_batch must be an integer from 1, or None, got 0"),
        ({"documents_per_batch": -1}, "documents_per_batch must be an integer from 1"),
        ({"lists_per_batch": 1, "max_list_size": 1}, "max_list_size must be an integer from 2, or None, got 1"),
        ({"lists_per_batch": 1, "rank": 1}, "rank must be from 0 to world_size - 1 = 0, got 1"),
    ],
)
def test_refused(options, message):
    with pytest.raises(ValueError, match=message):
        BatchLoader(some_data([2]), **options)
    with pytest.raises(ValueError, match="max_list_size must be an integer from 2"):
        make_batch(some_data([2]), [0], 1)


@pytest.mark.parametrize("workers", [0, 2])
def test_torch_data_loader(workers):
    data = some_data(LENGTHS)
    loader = DataLoader(ListDataset(data), batch_size=8, collate_fn=collate, num_workers=workers)
    batches = list(loader)
    for batch, first in zip(batches, range(0, len(LENGTHS), 8), strict=True):
        assert_true_to(data, batch)
        expected = make_batch(data, range(first, min(first + 8, len(LENGTHS))))
        assert torch.equal(batch.features, expected.features)
        assert torch.equal(batch.positions, expected.positions)
    with pytest.raises(IndexError):
        ListDataset(data)[len(LENGTHS)]


def test_batch_moves():
    batch = make_batch(some_data([2]), [0]).to("meta")
    assert {
        value.device.type for value in (batch.features, batch.labels, batch.where, batch.index, batch.positions)
    } == {"meta"}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_batch_moves_to_a_gpu():
    batch = make_batch(some_data([2]), [0]).pin_memory()
    assert batch.features.is_pinned()
    assert batch.to("cuda", non_blocking=True).positions.is_cuda
