"""The guide's module for PyLate: its values are those of the loss alone on scores by MaxSim, token by token."""

import re
from pathlib import Path

import pytest
import torch

import rankstruct as rs

pytestmark = [pytest.mark.slow, pytest.mark.needs("pylate")]
QUERIES = ["when was the Arden mill finished ?", "who designed the Bellon tower ?"]
DOCUMENTS = ["the Arden mill was finished in 1801", "Anna Berg drew the plans", "the river Oda", "twelve crowns"]


@pytest.fixture
def model(encoder):
    from pylate.models import ColBERT

    return ColBERT(encoder, device="cpu", embedding_size=16, query_length=16, document_length=32).eval()


@pytest.fixture
def module(model):
    guide = Path(__file__).parents[2] / "docs" / "guides" / "other-models.md"
    (code,) = re.findall(r"```\n(import rankstruct.*?\nfrom pylate.*?)\n\n\nmodel =", guide.read_text(), re.DOTALL)
    names = {}
    exec(code, names)
    return names["LateInteractionLoss"]


def max_sims(model, query, documents):
    """The scores of documents, each alone; words of the skip list do not count."""
    asked = torch.nn.functional.normalize(model(model.tokenize([query], is_query=True))["token_embeddings"][0], dim=-1)
    scores = []
    for text in documents:
        tokens = model.tokenize([text], is_query=False)
        found = torch.nn.functional.normalize(model(dict(tokens))["token_embeddings"][0], dim=-1)
        kept = ~torch.isin(tokens["input_ids"][0], torch.tensor(model.skiplist)) & tokens["attention_mask"][0].bool()
        similarities = torch.where(kept, asked @ found.T, 0.0)  # as in PyLate, where tokens that do not count have 0
        scores.append(similarities.amax(1).sum())
    return torch.stack(scores)


@pytest.mark.parametrize(
    ("loss", "teacher"),
    [
        (rs.SoftmaxLoss(), None),
        (rs.StructuredHingeLoss("AP"), None),
        (rs.MarginMSELoss(), [[3.0, 1.0, 0.5], [0.0, 2.0, 1.0]]),
        (rs.LambdaLoss("nDCG@10"), [[2.0, 1.0, 0.0], [0.0, 2.0, 1.0]]),
    ],
    ids=lambda each: type(each).__name__,
)
def test_values_and_gradients_are_those_of_the_bare_loss(module, model, loss, teacher):
    asked = model.tokenize(QUERIES, is_query=True)
    if teacher is None:  # two columns of documents
        columns = [model.tokenize(DOCUMENTS[first : first + 2], is_query=False, pad=True) for first in (0, 2)]
        lists, labels, given = [DOCUMENTS] * 2, torch.eye(2, 4), ([asked, *columns],)
    else:
        lists, labels = [DOCUMENTS[:3], DOCUMENTS[1:]], torch.tensor(teacher)
        given = ([asked, model.tokenize([*lists[0], *lists[1]], is_query=False)], labels)
    expected = loss(torch.stack([max_sims(model, *each) for each in zip(QUERIES, lists, strict=True)]), labels)
    expected.backward()
    wanted = {name: weight.grad.clone() for name, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    value = module(model, loss)(*given)
    value.backward()
    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-5)
    assert value > 0
    for name, weight in model.named_parameters():
        if name in wanted:
            torch.testing.assert_close(weight.grad, wanted[name], rtol=1e-3, atol=1e-4)
