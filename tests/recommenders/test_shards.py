"""Tables split over processes, their files, and indexes of items."""

import subprocess
import sys

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import rankstruct as rs
from rankstruct.data import DataError
from rankstruct.processes import Team
from rankstruct.recommenders import (
    Negatives,
    Recommender,
    item_index,
    load_shards,
    save_shards,
)
from rankstruct.recommenders import tables as tables_module
from rankstruct.recommenders.tables import drawn_rows, loss_of_rows

CASES: dict = {
    "linear": {},
    "softmax": {"loss": rs.SoftmaxLoss("share"), "temperature": 0.2, "dropout": 0.2, "lists_per_batch": 7},
    "top k": {"loss": rs.losses.TopKSoftmaxLoss(5, 0.5), "start": "random"},
    "BPR": {"loss": rs.RankNetLoss(), "negatives": Negatives("uniform", pairs=True)},
    "in-batch": {"negatives": Negatives("in-batch", correct=True)},
}
for each in CASES.values():
    each |= {"rank": 8, "max_epochs": 2}

RANK = """
import contextlib, sys, torch
from unittest import mock
from rankstruct.models.trainer import Checkpoints
sys.path.insert(0, sys.argv[3])
from test_shards import CASES, Recommender, drawn, load_shards, save_shards
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
found, write = {}, Checkpoints.write

def interrupted(*given):
    write(*given)
    raise InterruptedError

for name, options in CASES.items():
    model, states = Recommender(shards="processes", **options), f"{folder}/{name} states"
    with contextlib.suppress(InterruptedError), mock.patch.object(Checkpoints, "write", interrupted):
        model.fit(drawn(), checkpoint=states)
    model.fit(drawn(), checkpoint=states)  # goes on after the first epoch
    save_shards(model, f"{folder}/{name}")
    again = load_shards(f"{folder}/{name}")
    found[name] = [each.recommend(range(40), k=9) for each in (model, again)], model.evaluate(drawn(3)), model.history_
refused = {}
for name, call in {
    "similar": lambda: model.similar_items(0),
    "new": lambda: model.recommend_new([[1, 2]]),
    "pickle": lambda: model.__getstate__(),
    "loss": lambda: Recommender("RankSVMLoss", shards="processes").fit(drawn()),
    "few": lambda: Recommender(shards="processes").fit(drawn()[:, :1]),
    "other": lambda: Recommender(shards="processes").fit(drawn(rank)),
}.items():
    try:
        call()
    except ValueError as error:
        refused[name] = str(error)
torch.save((found, refused, len(model.scorer_.item_factors.weight)), f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


def drawn(seed=0):
    rng = np.random.default_rng(seed)
    matrix = (rng.random((40, 31)) < 0.2).astype(np.float32)
    matrix[3] = 0  # a user who gets the most popular items
    return sp.csr_array(matrix)


def assert_best(answer, model, **options):
    """Items and scores are the best of a model; items may differ where its scores are equal up to rounding."""
    items, scores = answer
    wanted, best = model.recommend(range(40), **options)
    np.testing.assert_allclose(scores, best, atol=1e-4)
    everything = model.recommend(range(40), **options | {"k": 31})
    for row in range(40):
        of_item = dict(zip(everything[0][row], everything[1][row], strict=True))
        assert len({*items[row]}) == len({*wanted[row]})  # no item twice
        np.testing.assert_allclose([of_item[item] for item in items[row]], scores[row], atol=1e-4)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*are in fit too")
def test_two_processes_train_and_rank_as_one(tmp_path):
    """All of one process: weights, losses, recommendations, measures, files."""
    flags = ["-W", "ignore", "-c", RANK]
    ranks = [
        subprocess.Popen([sys.executable, *flags, str(rank), str(tmp_path), str(__file__).rsplit("/", 1)[0]])
        for rank in range(2)
    ]
    wanted = {name: Recommender(neighbours=False, **options).fit(drawn()) for name, options in CASES.items()}
    assert [process.wait(timeout=240) for process in ranks] == [0, 0]
    found, refused, rows = zip(
        *(torch.load(tmp_path / f"{rank}.pt", weights_only=False) for rank in range(2)), strict=True
    )
    assert rows == (16, 15)
    for name, model in wanted.items():
        again = load_shards(tmp_path / name)
        for key, values in model.scorer_.state_dict().items():
            torch.testing.assert_close(again.scorer_.state_dict()[key], values, atol=1e-5, rtol=0, msg=f"{name} {key}")
        for answers, values, history in (each[name] for each in found):
            assert [epoch["loss"] for epoch in history] == pytest.approx([e["loss"] for e in model.history_], rel=1e-6)
            assert values == pytest.approx(model.evaluate(drawn(3)))
            for answer in (*answers, again.recommend(range(40), k=9)):
                assert_best(answer, model, k=9)
    sorted((tmp_path / "linear").glob("rows-*"))[1].unlink()
    with pytest.raises(DataError, match="expected 2 files of rows, got none of the name rows-"):
        load_shards(tmp_path / "linear")
    for errors in refused:
        assert set(errors) == {"similar", "new", "pickle", "loss", "few", "other"}
        assert "similar_items requires the factors of all items, but this one is split" in errors["similar"]
        assert "got RankSVMLoss" in errors["loss"]
        assert "as many items as processes or more, got 1 items and 2 processes" in errors["few"]
        assert "the same interactions and options, got 2 different ones" in errors["other"]


def test_shards_require_processes():
    with pytest.raises(
        ValueError, match=r"requires the processes of torch.distributed, which is not initialised: start"
    ):
        Recommender(shards="processes").fit(drawn())
    with pytest.raises(ValueError, match="shards must be one of 'processes'"):
        Recommender(shards="threads").fit(drawn())


@pytest.mark.parametrize(
    "loss", [rs.StructuredHingeLoss("AP"), rs.SoftmaxLoss(epsilon=1.0), rs.SoftmaxLoss(against="lower")]
)
def test_losses_that_need_all_items_in_one_process_say_so(loss):
    with pytest.raises(ValueError, match="which ranks all items of a user in one process; pass negatives="):
        loss_of_rows(loss)


@pytest.mark.parametrize("total", [3, 64, 65, 200])
def test_initial_rows_are_those_of_one_process(monkeypatch, total):
    monkeypatch.setattr(tables_module, "_DRAWN", 16)
    whole = drawn_rows(total, 5, Team(), torch.Generator().manual_seed(3))
    parts = [drawn_rows(total, 5, Team(rank, 3), torch.Generator().manual_seed(3)) for rank in range(3)]
    assert torch.equal(torch.cat(parts), whole)


@pytest.mark.needs("safetensors")
def test_files_of_one_process(tmp_path):
    model = Recommender(rank=4, max_epochs=1, start="random").fit(drawn())
    for _ in range(2):  # the second replaces the first
        save_shards(model, tmp_path)
    assert len(list(tmp_path.iterdir())) == 3
    np.testing.assert_array_equal(load_shards(tmp_path).recommend(range(40))[1], model.recommend(range(40))[1])
    with pytest.raises(DataError, match=r"expected a recommender of save_shards, got no recommender.json"):
        load_shards(tmp_path / "none")
    with pytest.raises(ValueError, match="takes tables of factors alone, got a NeighbourFactorization"):
        save_shards(Recommender(neighbours=True).fit(drawn()), tmp_path)


class Exact:
    """What `recommend` needs of an index, exact."""

    def __init__(self, items, vectors):
        self.items, self.vectors, self.d, self.ntotal = items, vectors, vectors.shape[1], len(items)

    def search(self, queries, k):
        scores = queries @ self.vectors.T
        order = np.argsort(-scores, axis=1, kind="stable")[:, :k]
        return np.take_along_axis(scores, order, 1), self.items[order]


def test_an_exact_index_recommends_as_all_scores_do():
    model = Recommender(rank=4, max_epochs=2, start="random").fit(drawn())
    index = Exact(*model.vectors_to_index())
    for options in ({}, {"exclude": [0, 5]}, {"items": range(12)}, {"exclude_known": False}, {"k": 40}):
        assert_best(model.recommend(range(40), **options, index=index), model, **options)
    with pytest.raises(ValueError, match=r"index must have the \d+ items of this model, as vectors of 5 numbers, got"):
        model.recommend(0, index=Exact(index.items[1:], index.vectors[1:]))


def test_faiss_that_is_missing_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "faiss", None)
    with pytest.raises(ImportError, match=r"faiss is not installed: pip install 'rankstruct\[faiss\]'"):
        item_index(Recommender(rank=4, max_epochs=1).fit(drawn()))


@pytest.mark.needs("faiss")
def test_indexes_of_faiss():
    model = Recommender(rank=4, max_epochs=2, start="random").fit(drawn())
    for kind in ("flat", "hnsw"):
        assert_best(model.recommend(range(40), k=5, index=item_index(model, kind)), model, k=5)
