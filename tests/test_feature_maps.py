"""Feature maps by name: what a map prints reads back, and one from outside goes wherever a name does."""

from dataclasses import dataclass
from itertools import permutations
from types import SimpleNamespace

import jsonargparse
import pytest
import torch

import rankstruct as rs
from rankstruct import feature_maps
from rankstruct.feature_maps import parse_feature_map, register_feature_map
from rankstruct.oracles import Oracle

DECAYS = ("i^-1/3", "i^-2", "1/sqrt(i)", "1/log2(i+1)", "1/log2(log2(i+1)+1)", "k+1-i", "discount", (3.0, 1.0, 0.5))


@pytest.mark.parametrize("cutoff", [None, 5])
@pytest.mark.parametrize("decay", DECAYS, ids=str)
def test_the_name_of_a_positional_map_reads_back(decay, cutoff):
    feature_map = rs.Positional(decay, cutoff=cutoff)
    assert parse_feature_map(feature_map.name) == feature_map
    assert rs.StructuredHingeLoss("nDCG@10", feature_map=feature_map.name).feature_map == feature_map


def test_options_are_read_by_name_in_any_case():
    assert parse_feature_map(" Positional(decay='i^-1', cutoff=3) ") == rs.Positional("i^-1", cutoff=3)
    assert parse_feature_map("First-Relevant") == rs.FirstRelevant()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "tower",
            "unknown feature map 'tower'; available: first-relevant, pairwise, partial-pairwise, positional, predicted-positive",
        ),
        ("", "unknown feature map ''"),
        ("positional(i^2)", "unknown decay 'i\\^2'"),
        ("positional(power=2)", "'positional' has no option 'power'; available: decay, cutoff"),
        ("positional(i^-1)@0", "the cut-off of a decay must be an integer from 1"),
        ("pairwise(2)", "'pairwise' has no option '2'; it has none"),
        ("pairwise@3", "'pairwise' has no option 'cutoff'; it has none"),
    ],
)
def test_what_does_not_exist_is_named(name, message):
    with pytest.raises(ValueError, match=message):
        parse_feature_map(name)


@dataclass(frozen=True)
class FromBelow(rs.FeatureMap):
    """A document's coefficient is a slope times the number of documents below it."""

    slope: float = 1.0

    @property
    def name(self):
        return f"from-below(slope={self.slope:g})"


def try_all(scores, lists, measure, feature_map, reference):
    """AP over all rankings of each list; flat and masked lists are beyond this oracle."""
    rows = []
    for s, y in zip(scores, lists.labels, strict=True):
        n = len(s)
        slopes = feature_map.slope * torch.arange(n - 1, -1, -1, dtype=s.dtype)
        ideal = y.argsort(descending=True, stable=True)
        found = []
        for order in map(list, permutations(range(n))):
            direction = torch.zeros(n, dtype=s.dtype).index_add(0, torch.tensor(order), slopes)
            direction = direction.index_add(0, ideal, -slopes)
            by_rank = torch.arange(n, 0, -1.0)
            loss = 1 - measure(by_rank, y[order]).to(s.dtype)
            found.append((loss + direction @ s, loss, direction))
        value, loss, direction = max(found, key=lambda each: each[0].item())
        rows.append((loss, value, direction))
    return tuple(torch.stack(column) for column in zip(*rows, strict=True))


@pytest.fixture
def from_below(monkeypatch):
    """The map and its oracle, registered as a user would, and forgotten after the test."""
    from rankstruct.oracles import registry

    monkeypatch.setattr(feature_maps, "_REGISTRY", dict(feature_maps._REGISTRY))
    monkeypatch.setattr(registry, "_ORACLES", dict(registry._ORACLES))
    register_feature_map(FromBelow)
    rs.register_oracle(rs.AP, FromBelow, Oracle(try_all, lambda *_: SimpleNamespace(name="all rankings", cost="O(n!)")))


def test_a_map_from_outside_goes_by_its_name(from_below):
    scores = torch.tensor([[0.1, 0.7, 0.2, -0.3]], dtype=torch.float64, requires_grad=True)
    labels = torch.tensor([[0, 0, 1, 1]])
    loss = rs.StructuredHingeLoss("AP", feature_map="from-below(slope=0.5)")
    assert loss.feature_map == FromBelow(0.5)
    assert parse_feature_map(loss.feature_map.name) == loss.feature_map
    assert "from-below(slope=0.5)" in repr(loss)
    value = loss(scores, labels)
    value.backward()
    # Worst AP first among equals: both irrelevant documents in front, AP = (1/3 + 2/4) / 2.
    assert value.item() == pytest.approx(1 - 5 / 12 + 0.5 * (3 * 0.7 + 2 * 0.1 + 0.2) - 0.5 * (3 * 0.2 - 2 * 0.3 + 0.1))
    assert scores.grad.tolist() == [[0.5, 1.5, -1.0, -1.0]]
    assert rs.explain_oracle("AP", "from-below").method == "all rankings"
    assert rs.most_violated(scores, labels, "AP", feature_map="from-below").value > value
    with pytest.raises(ValueError, match="reference must be one of 'ideal' for AP with the from-below"):
        rs.StructuredHingeLoss("AP", feature_map="from-below", reference="predicted")
    with pytest.raises(ValueError, match=r"nDCG with the from-below.* has no oracle"):
        rs.StructuredHingeLoss("nDCG", feature_map="from-below")


def test_a_configuration_names_a_map_from_outside(from_below):
    parser = jsonargparse.ArgumentParser()
    parser.add_argument("--loss", type=torch.nn.Module)
    config = {
        "loss": {
            "class_path": "rankstruct.StructuredHingeLoss",
            "init_args": {"measure": "AP", "feature_map": "from-below(slope=2)"},
        }
    }
    loss = parser.instantiate(parser.parse_object(config)).loss
    assert loss.feature_map == FromBelow(2)


def test_what_cannot_be_registered(from_below):
    with pytest.raises(TypeError, match="a feature map must be a subclass of FeatureMap"):
        register_feature_map(dict)

    class Pairwise(rs.FeatureMap):
        """Named as one that exists."""

        name = "pairwise"

    with pytest.raises(ValueError, match="a feature map named 'pairwise' is already registered"):
        register_feature_map(Pairwise)
    Pairwise.name = "two words"
    with pytest.raises(ValueError, match="a feature map's name must be a word"):
        register_feature_map(Pairwise)
    assert register_feature_map(FromBelow) is FromBelow
