"""Losses on embeddings are those of the similarity matrix, one query after another."""

import copy

import pytest
import torch

import rankstruct as rs

LOSSES = [rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("nDCG@3"), rs.RankNetLoss(), rs.LambdaLoss()]


def embeddings(*shape, seed=0, dtype=torch.float64):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def by_hand(loss, queries, documents, labels, where=None, temperature=0.2):
    """The mean over queries with a document, each alone."""
    values = []
    for row, query in enumerate(queries):
        similarities = torch.cosine_similarity(query.unsqueeze(0), documents) / temperature
        kept = torch.ones(len(documents), dtype=torch.bool) if where is None else where[row]
        if kept.any():
            values.append(loss(similarities[kept], labels[row][kept]))
    return torch.stack(values).mean()


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("at_once", [None, 1, 2])
def test_a_similarity_loss_is_that_of_each_query(loss, at_once):
    queries, documents = embeddings(5, 4).requires_grad_(), embeddings(9, 4, seed=1).requires_grad_()
    found = rs.SimilarityLoss(loss, temperature=0.2, queries_at_once=at_once)(queries, documents)
    expected = by_hand(loss, queries, documents, torch.eye(9)[:5])
    torch.testing.assert_close(found, expected)
    for mine, wanted in zip(
        torch.autograd.grad(found, (queries, documents)),
        torch.autograd.grad(expected, (queries, documents)),
        strict=True,
    ):
        torch.testing.assert_close(mine, wanted)


def test_the_softmax_loss_is_infonce():
    queries, documents = embeddings(4, 3), embeddings(6, 3, seed=1)
    similarities = torch.cosine_similarity(queries.unsqueeze(1), documents.unsqueeze(0), dim=-1) / 0.1
    expected = torch.nn.functional.cross_entropy(similarities, torch.arange(4))
    torch.testing.assert_close(rs.SimilarityLoss(rs.SoftmaxLoss(), temperature=0.1)(queries, documents), expected)


@pytest.mark.parametrize("at_once", [None, 2])
def test_probabilities_of_the_documents_correct_the_similarities(at_once):
    queries, documents = embeddings(4, 3), embeddings(6, 3, seed=1)
    logs = torch.rand(6, generator=torch.Generator().manual_seed(2), dtype=queries.dtype).log()
    loss = rs.SimilarityLoss(rs.SoftmaxLoss(), temperature=0.1, similarity="dot", queries_at_once=at_once)
    expected = torch.nn.functional.cross_entropy(queries @ documents.T / 0.1 - logs, torch.arange(4))
    torch.testing.assert_close(loss(queries, documents, log_probabilities=logs), expected)
    with pytest.raises(ValueError, match=r"log_probabilities must be one per document, \(6,\); got \(4,\)"):
        loss(queries, documents, log_probabilities=logs[:4])


@pytest.mark.parametrize("at_once", [None, 2])
def test_graded_labels_and_lists_of_their_own(at_once):
    queries, documents = embeddings(4, 3), embeddings(6, 3, seed=1)
    labels = torch.randint(0, 3, (4, 6), generator=torch.Generator().manual_seed(2)) / 2
    where = torch.rand(4, 6, generator=torch.Generator().manual_seed(3)) < 0.6
    where[1] = False
    loss = rs.LambdaLoss()
    found = rs.SimilarityLoss(loss, temperature=0.2, queries_at_once=at_once)(queries, documents, labels, where)
    torch.testing.assert_close(found, by_hand(loss, queries, documents, labels, where))


def test_dot_products_and_a_learned_temperature():
    queries, documents = embeddings(3, 4), embeddings(3, 4, seed=1)
    loss = rs.SimilarityLoss(rs.RankNetLoss(), similarity="dot", temperature=0.5, learn_temperature=True)
    value = loss(queries, documents)
    torch.testing.assert_close(value, rs.RankNetLoss()(queries @ documents.T / 0.5, torch.eye(3)))
    value.backward()
    step = 1e-5
    with torch.no_grad():
        values = [
            rs.RankNetLoss()(queries @ documents.T / t, torch.eye(3)) for t in (0.5 * (1 + step), 0.5 * (1 - step))
        ]
    assert float(loss.log_temperature.grad) == pytest.approx(float(values[0] - values[1]) / (2 * step), rel=1e-3)
    assert not list(filter(lambda p: p.requires_grad, rs.SimilarityLoss().parameters()))


@pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
@pytest.mark.parametrize("at_once", [None, 3])
@pytest.mark.parametrize("with_reference", [False, True])
def test_an_embedding_loss_is_that_of_each_query(loss, at_once, with_reference):
    batch, classes = embeddings(7, 4).requires_grad_(), torch.tensor([0, 0, 0, 1, 1, 2, 3])  # sizes 3, 2, 1, 1
    more, more_classes = embeddings(5, 4, seed=1), torch.tensor([2, 2, 5, 0, 5])
    documents = torch.cat([batch, more]) if with_reference else batch
    every = torch.cat([classes, more_classes]) if with_reference else classes
    others = torch.cat([~torch.eye(7, dtype=torch.bool), torch.ones(7, len(every) - 7, dtype=torch.bool)], dim=1)
    relevant = (classes.unsqueeze(1) == every) & others
    expected = by_hand(loss, batch, documents, relevant.double(), others & relevant.any(1, keepdim=True))
    reference = (more, more_classes) if with_reference else None
    found = rs.EmbeddingLoss(loss, temperature=0.2, queries_at_once=at_once)(batch, classes, reference)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(each, batch)[0] for each in (found, expected)))


def test_a_bank_is_a_reference_that_takes_the_batch_in():
    bank, loss = rs.MemoryBank(6, 4).double(), rs.EmbeddingLoss(rs.RankNetLoss(), temperature=0.2)
    seen = []
    for step in range(4):
        batch, classes = embeddings(4, 4, seed=step), torch.tensor([0, 1, step % 2, 2])
        kept = seen[-6:]
        reference = (torch.stack([each for each, _ in kept]), torch.tensor([c for _, c in kept])) if kept else None
        expected = loss(batch, classes, reference)
        batch.requires_grad_()
        value = loss(batch, classes, bank)
        torch.testing.assert_close(value, expected)
        value.backward()
        (wanted,) = torch.autograd.grad(loss(batch, classes, reference), batch)
        torch.testing.assert_close(batch.grad, wanted)
        seen += list(zip(batch.detach(), classes.tolist(), strict=True))
    assert len(bank) == 6
    assert sorted(bank.labels.tolist()) == sorted(c for _, c in seen[-6:])
    again = rs.MemoryBank(6, 4).double()
    again.load_state_dict(bank.state_dict())
    torch.testing.assert_close(again.embeddings, bank.embeddings)


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_embeddings_of_any_length_may_be_in_a_bank(similarity):
    loss, bank, classes = rs.EmbeddingLoss(similarity=similarity), rs.MemoryBank(10, 4), torch.tensor([0, 0, 1, 1])
    old, new = 5 * embeddings(4, 4, dtype=torch.float32), embeddings(4, 4, seed=1, dtype=torch.float32)
    bank.add(old, classes)
    torch.testing.assert_close(loss(new, classes, bank), loss(new, classes, (old, classes)))


def test_a_bank_smaller_than_a_batch_keeps_its_end():
    bank = rs.MemoryBank(2, 1)
    bank.add(torch.arange(5.0).unsqueeze(1), torch.arange(5))
    assert sorted(bank.labels.tolist()) == [3, 4]


def test_a_loaded_bank_holds_what_was_saved():
    saved, bank = rs.MemoryBank(5, 2), rs.MemoryBank(5, 2)
    saved.add(embeddings(3, 2), torch.tensor([1, 2, 3]))
    bank.add(embeddings(4, 2), torch.tensor([7, 7, 7, 7]))  # not written yet
    bank.load_state_dict(saved.state_dict())
    assert bank.labels.tolist() == [1, 2, 3]
    torch.testing.assert_close(bank.embeddings, saved.embeddings)
    assert repr(bank) == "MemoryBank(size=5, dimension=2)"


@pytest.mark.parametrize("similarity", ["cosine", "dot"])
@pytest.mark.parametrize("at_once", [None, 2])
def test_a_bank_that_was_overwritten_before_backward_is_no_wrong_gradient(at_once, similarity):
    loss, bank = rs.EmbeddingLoss(queries_at_once=at_once, similarity=similarity), rs.MemoryBank(4, 2)
    classes = torch.tensor([0, 0, 1])
    for _ in range(2):
        loss(embeddings(3, 2, dtype=torch.float32).requires_grad_(), classes, bank).backward()
    len(bank)
    batch, kept = embeddings(3, 2, dtype=torch.float32).requires_grad_(), copy.deepcopy(bank)
    first = loss(batch, classes, bank)
    loss(embeddings(3, 2, dtype=torch.float32), classes, bank)
    if similarity == "cosine":  # which copies the embeddings
        (wanted,) = torch.autograd.grad(loss(batch, classes, kept), batch)
        torch.testing.assert_close(torch.autograd.grad(first, batch)[0], wanted)
        return
    with pytest.raises(RuntimeError, match=r"call backward\(\) first|modified by an inplace operation"):
        first.backward()


def test_classes_without_another_member_cost_nothing():
    batch = embeddings(3, 4).requires_grad_()
    value = rs.EmbeddingLoss()(batch, torch.tensor([0, 1, 2]))
    value.backward()
    assert value.item() == 0
    assert not batch.grad.any()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: rs.SimilarityLoss()(embeddings(3, 2), embeddings(2, 2)), ValueError, "3 queries, but 2 documents"),
        (lambda: rs.SimilarityLoss()(embeddings(3, 2), embeddings(3, 5)), ValueError, r"shape \[documents, 2\]"),
        (lambda: rs.SimilarityLoss()(torch.zeros(3, 2).long(), embeddings(3, 2)), TypeError, "must be a floating point tensor"),
        (lambda: rs.SimilarityLoss(similarity="l2"), ValueError, "similarity must be one of 'cosine', 'dot'"),
        (lambda: rs.SimilarityLoss(temperature=0), ValueError, "temperature must be a finite number above 0"),
        (lambda: rs.SimilarityLoss(queries_at_once=0), ValueError, "queries_at_once must be an integer from 1"),
        (lambda: rs.EmbeddingLoss()(embeddings(3, 2), torch.zeros(3)), TypeError, "integer classes"),
        (lambda: rs.EmbeddingLoss()(embeddings(3, 2), torch.zeros(2).long()), ValueError, "one class per embedding"),
        (lambda: rs.EmbeddingLoss("AP"), TypeError, r"loss must be a ranking loss, such as .*; got 'AP'"),
        (
            lambda: rs.EmbeddingLoss()(embeddings(3, 2), torch.zeros(3).long(), embeddings(2, 2)),
            TypeError,
            "reference must be a MemoryBank or a pair of embeddings and their classes; got Tensor",
        ),
        (lambda: rs.MemoryBank(0, 3), ValueError, "size must be an integer from 1"),
        (lambda: rs.MemoryBank(3, 3).add(embeddings(3, 2), torch.zeros(3).long()), ValueError, r"\[documents, 3\]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(call, error, message):
    with pytest.raises(error, match=message):
        call()
