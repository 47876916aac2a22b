"""Scorers and their files."""

import pytest
import torch

import rankstruct as rs


class Shifted(torch.nn.Module):
    """A user's own scorer, which forgets one of its arguments."""

    def __init__(self, num_features, shift):
        super().__init__()
        self.num_features = num_features
        self.bias = torch.nn.Parameter(torch.tensor(float(shift)))

    def forward(self, features):
        return features.sum(-1) + self.bias


@pytest.mark.parametrize(
    "scorer", [rs.LinearScorer(3), rs.MLPScorer(3, hidden=(4,)), rs.MLPScorer(3, (5, 4), dropout=0.5, normalize=True)]
)
@pytest.mark.parametrize("shape", [(3,), (5, 3), (2, 5, 3), (2, 0, 3), (0, 5, 3)])
def test_scores_each_document_by_itself(scorer, shape):
    scorer.eval()
    features = torch.randn(shape)
    scores = scorer(features)
    assert scores.shape == shape[:-1]
    if scores.numel():
        torch.testing.assert_close(scores.flatten()[0], scorer(features.reshape(-1, 3)[0]))


def test_wrong_number_of_features_is_named():
    with pytest.raises(ValueError, match=r"\[..., list_size, 3\].*got \(2, 4\)"):
        rs.LinearScorer(3)(torch.zeros(2, 4))


def test_linear_starts_where_everything_ties():
    assert torch.equal(rs.LinearScorer(3)(torch.randn(2, 5, 3)), torch.zeros(2, 5))


def test_saved_scorer_scores_the_same(tmp_path):
    scorer = rs.MLPScorer(4, hidden=(6, 5), dropout=0.3, normalize=True)
    rs.save_scorer(scorer, tmp_path / "deep" / "scorer.pt")
    again = rs.load_scorer(tmp_path / "deep" / "scorer.pt")
    assert not again.training
    features = torch.randn(3, 7, 4)
    assert torch.equal(again(features), scorer.eval()(features))
    assert [p.name for p in (tmp_path / "deep").iterdir()] == ["scorer.pt"]


def test_files_that_hold_no_scorer(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no scorer at .*nothing\.pt"):
        rs.load_scorer(tmp_path / "nothing.pt")
    torch.save({"weights": 1}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="holds no scorer"):
        rs.load_scorer(tmp_path / "other.pt")
    for kind, message in (("nowhere.Scorer", "cannot be imported"), ("os.getcwd", "not a torch module")):
        described = {"rankstruct_scorer": {"class": kind, "arguments": {}}, "state_dict": {}}
        torch.save(described, tmp_path / "bad.pt")
        with pytest.raises(ValueError, match=message):
            rs.load_scorer(tmp_path / "bad.pt")


def test_a_scorer_that_forgets_its_arguments_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match=r"Shifted cannot be saved.*shift.*self\.<name>"):
        rs.save_scorer(Shifted(3, 1.0), tmp_path / "scorer.pt")
    assert not list(tmp_path.iterdir())
