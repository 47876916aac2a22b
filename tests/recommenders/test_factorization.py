"""Factorisations: scores, gradients, files."""

import numpy as np
import pytest
import scipy.sparse as sp
import torch
from torch.nn.functional import normalize

import rankstruct as rs
from rankstruct.recommenders import ItemScorer, LinearFactors, NeighbourFactorization, ease, interactions


@pytest.mark.parametrize("biases", [(False, False), (True, False), (False, True), (True, True)])
def test_scores_are_products_and_biases(biases):
    scorer = rs.MatrixFactorization(4, 6, rank=3, user_bias=biases[0], item_bias=biases[1])
    for parameter in scorer.parameters():
        torch.nn.init.normal_(parameter)
    every = scorer.user_factors.weight @ scorer.item_factors.weight.T
    every = every + (scorer.user_offsets.weight if biases[0] else 0)
    every = every + (scorer.item_offsets.weight.T if biases[1] else 0)
    torch.testing.assert_close(scorer.item_scores(torch.arange(4)), every)
    torch.testing.assert_close(scorer.item_scores(torch.tensor(2)), every[2])
    features = torch.tensor([[[0, 5], [0, 2]], [[3, 1], [0, 0]]]).float()
    torch.testing.assert_close(scorer(features), torch.stack([every[[0, 0], [5, 2]], every[[3, 0], [1, 0]]]))
    assert scorer(torch.zeros(0, 2)).shape == (0,)


def test_sparse_and_dense_factors_have_the_same_gradient():
    features = torch.tensor([[1.0, 2], [1, 4], [0, 2]])
    dense, sparse = (rs.MatrixFactorization(3, 5, rank=2, sparse=flag) for flag in (False, True))
    for scorer in (dense, sparse):
        scorer(features).square().sum().backward()
    for one, other in zip(dense.parameters(), sparse.parameters(), strict=True):
        assert other.grad.is_sparse
        torch.testing.assert_close(one.grad, other.grad.to_dense())


def test_the_start_depends_on_the_seed_alone():
    first, again, other = (rs.MatrixFactorization(3, 5, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(first.user_factors.weight, again.user_factors.weight)
    assert not torch.equal(first.user_factors.weight, other.user_factors.weight)


@pytest.mark.parametrize("rank", [1, 3, 9])
def test_a_spectral_start_is_that_of_the_normalised_matrix(rank):
    rng = np.random.default_rng(0)
    matrix = (rng.random((8, 7)) < 0.5).astype(float)
    matrix[2], matrix[:, 3] = 0, 0  # a user and an item that nothing is known of
    known = interactions(sp.csr_array(matrix))
    scorer = rs.MatrixFactorization(8, 7, rank, seed=4)
    alone = [
        torch.zeros(rank),
        scorer.item_factors.weight[3].clone(),
    ]  # popularity for the user, the drawn factors for the item
    scorer.start_from_interactions(known)
    degrees = [matrix.sum(axis, keepdims=True).clip(1) for axis in (1, 0)]
    left, values, right = np.linalg.svd(matrix / np.sqrt(degrees[0] * degrees[1]))
    vectors = [(each[:, :rank] * np.sqrt(values[:rank])) for each in (left[:, :7], right.T)]
    for table, wanted, kept, lone in zip(
        (scorer.user_factors.weight, scorer.item_factors.weight), vectors, alone, (2, 3), strict=True
    ):
        assert torch.equal(table[lone], kept)
        some = [row for row in range(len(table)) if row != lone]
        directions = normalize(torch.from_numpy(wanted[some]), dim=-1)
        torch.testing.assert_close(
            normalize(table[some].double(), dim=-1) @ normalize(table[some].double(), dim=-1).T,
            directions @ directions.T,
            atol=1e-5,
            rtol=1e-5,
        )
    popularity = np.log(matrix.sum(0).clip(0.5))
    np.testing.assert_allclose(scorer.item_offsets.weight[:, 0].detach(), popularity - popularity.mean(), atol=1e-6)
    again = rs.MatrixFactorization(8, 7, rank, seed=4)
    again.start_from_interactions(known)
    assert torch.equal(again.user_factors.weight, scorer.user_factors.weight)


@pytest.mark.parametrize(
    "scorer", [rs.MatrixFactorization(4, 6, 3, user_bias=True, sparse=True), rs.MatrixFactorization(4, 6)]
)
def test_saved_factors_score_the_same(tmp_path, scorer):
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    again = rs.load_scorer(tmp_path / "scorer.pt")
    assert torch.equal(again.item_scores(torch.arange(4)), scorer.item_scores(torch.arange(4)))
    assert again.sparse == scorer.sparse


def test_saved_item_scores(tmp_path):
    scorer = ItemScorer(3)
    scorer.scores += torch.tensor([1.0, 3.0, 2.0])
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    again = rs.load_scorer(tmp_path / "scorer.pt")
    assert again(torch.tensor([[[0.0, 1.0], [7.0, 2.0]]])).tolist() == [[3, 2]]
    assert again.item_scores(torch.tensor([0, 9])).tolist() == [[1, 3, 2]] * 2


def test_errors():
    with pytest.raises(ValueError, match="rank must be an integer from 1, got 0"):
        rs.MatrixFactorization(2, 2, rank=0)
    with pytest.raises(ValueError, match=r"\[..., list_size, 2\], user and item, got \(4, 3\)"):
        rs.MatrixFactorization(2, 2)(torch.zeros(4, 3))


@pytest.mark.parametrize(
    ("scorer", "module"),
    [
        (rs.MatrixFactorization(2, 3, 2, seed=5), "rankstruct.models.factorization"),
        (rs.MatrixFactorization(2, 3, 2, seed=5), "rankstruct.models"),
        (ItemScorer(3), "rankstruct.models.factorization"),
    ],
)
def test_files_from_before_the_move_are_read(scorer, module, tmp_path):
    rs.save_scorer(scorer, tmp_path / "new.pt")
    content = torch.load(tmp_path / "new.pt", weights_only=True)
    name = content["rankstruct_scorer"]["class"]
    assert name in ("rankstruct.MatrixFactorization", "rankstruct.recommenders.ItemScorer")  # names that are kept
    content["rankstruct_scorer"]["class"] = f"{module}.{type(scorer).__name__}"
    torch.save(content, tmp_path / "old.pt")
    pairs = torch.tensor([[1.0, 2.0], [0.0, 1.0]])
    for file in ("old.pt", "new.pt"):
        found = rs.load_scorer(tmp_path / file)
        assert type(found) is type(scorer)
        assert torch.equal(found(pairs), scorer(pairs))


def test_cosine_scores_have_the_gradients_of_normalized_factors():
    scorer = rs.MatrixFactorization(3, 4, rank=5, temperature=0.5, item_bias=False, seed=1).double()
    users, items = (
        table.weight.detach().clone().requires_grad_() for table in (scorer.user_factors, scorer.item_factors)
    )

    def found(users, items):
        tables = {"user_factors.weight": users, "item_factors.weight": items}
        return torch.func.functional_call(scorer, tables, torch.cartesian_prod(torch.arange(3), torch.arange(4)))

    def expected(users, items):
        return (normalize(users, dim=-1) @ normalize(items, dim=-1).T / 0.5).flatten()

    torch.testing.assert_close(found(users, items), expected(users, items))
    assert torch.autograd.gradcheck(found, (users, items))
    assert torch.autograd.gradgradcheck(found, (users, items))
    both = [torch.func.jacrev(each, argnums=1)(users, items) for each in (found, expected)]
    torch.testing.assert_close(*both)
    with torch.no_grad():
        items[0] = 0.0
    assert found(users, items).reshape(3, 4)[:, 0].tolist() == [0, 0, 0]
    for each in (found, expected):
        (each(users, items).sum()).backward()
    assert users.grad.isfinite().all()


def test_neighbours_are_what_the_leading_directions_of_ease_leave_out(tmp_path):
    rng = np.random.default_rng(0)
    matrix = sp.csr_array((rng.random((30, 20)) < 0.15).astype(np.float32))
    known = interactions(matrix)
    expected = ease(known, regularization=20.0).item_scores(torch.arange(30))
    distances = {}
    for rank in (1, 5, 20):
        scorer = NeighbourFactorization(30, 20, rank)
        scorer.start_from_interactions(known, regularization=20.0)
        distances[rank] = float((scorer.item_scores(torch.arange(30)) / 30 - expected).abs().max())
        users, items = (torch.from_numpy(each) for each in LinearFactors(known, rank).factors(regularization=20.0))
        without = float((users @ items.T - expected).abs()[matrix.toarray() == 0].max())
        assert distances[rank] < max(without, 1e-4)
    assert distances[20] < 1e-4 < distances[5] < 0.05 < distances[1]
    pairs = scorer(torch.tensor([[[3.0, 4.0], [3.0, 5.0]], [[0.0, 1.0], [9.0, 0.0]]]))
    torch.testing.assert_close(pairs[1, 1], scorer.item_scores(torch.tensor(9))[0])
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    again = rs.load_scorer(tmp_path / "scorer.pt")
    assert torch.equal(again.item_scores(torch.arange(30)), scorer.item_scores(torch.arange(30)))
    for refused in (scorer.vectors, lambda: scorer.factor_scores(torch.zeros(1, 20))):
        with pytest.raises(ValueError, match="scores with neighbours"):
            refused()
    with pytest.raises(ValueError, match="start must be 'linear' with neighbours, got 'spectral'"):
        scorer.start_from_interactions(known, "spectral")
