"""Scorers and their files."""

import copy
import errno
import io
import os
import pickle
import random
import sys

import numpy as np
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


def test_one_hidden_layer_may_be_a_number():
    assert rs.MLPScorer(3, hidden=16).hidden == rs.MLPScorer(3, hidden=[16]).hidden == (16,)
    X, y, qid = np.random.default_rng(0).normal(size=(40, 3)), np.tile([0, 1], 20), np.repeat(np.arange(10), 4)
    ranker = rs.MLPRanker("AP", hidden=16, max_epochs=1).fit(X, y, qid)
    assert ranker.predict(X, qid).shape == (40,)


@pytest.mark.parametrize(
    "scorer",
    [
        rs.LinearScorer(3),
        rs.MLPScorer(3),
        rs.models.EnsembleScorer([rs.LinearScorer(3)]),
        rs.models.SumScorer([rs.LinearScorer(3)]),
    ],
)
def test_features_of_another_kind_are_named_with_the_way_out(scorer):
    with pytest.raises(
        TypeError, match=r"torch\.Tensor, got ndarray; use torch\.as_tensor\(features, dtype=torch\.float32"
    ):
        scorer(np.zeros((2, 3)))
    with pytest.raises(
        TypeError, match=r"features are torch.float64 and the scorer's weights torch.float32; use feat.*to"
    ):
        scorer(torch.zeros(2, 3).double())
    for wrong in (torch.zeros(2, 3).long(), torch.zeros(2, 3).half()):
        with pytest.raises(TypeError, match=r"use features.to\(torch.float32\), or scorer.to\("):
            scorer(wrong)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert scorer(torch.zeros(2, 3).bfloat16()).shape == (2,)
    again = copy.deepcopy(scorer).double()
    assert again(torch.zeros(2, 3).double()).dtype == torch.float64


@pytest.mark.parametrize(
    "scorer", [rs.models.KernelScorer(3, 5), rs.models.TreeScorer(3, 2, 10, 4, 2), rs.MatrixFactorization(3, 3)]
)
def test_scorers_that_take_any_dtype_still_want_tensors(scorer):
    width = 2 if isinstance(scorer, rs.MatrixFactorization) else 3
    assert scorer(torch.zeros(4, width).double()).shape == scorer(torch.zeros(4, width)).shape == (4,)
    with pytest.raises(TypeError, match=r"features must be a torch\.Tensor, got ndarray"):
        scorer(np.zeros((4, width)))


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


def test_weights_that_a_file_declares_but_does_not_have_take_no_memory(tmp_path):
    path = tmp_path / "scorer.pt"
    rs.save_scorer(rs.MLPScorer(4, hidden=(6,)), path)
    content = torch.load(path)
    content["rankstruct_scorer"]["arguments"]["hidden"] = (20_000, 20_000)
    torch.save(content, path)
    with pytest.raises(ValueError, match=r"declares 1,601 MB of weights and contains 0\.0 MB"):
        rs.load_scorer(path)
    for name, value in content["state_dict"].items():  # a view of a single number has any shape
        content["state_dict"][name] = value.flatten()[:1].clone().expand(value.shape)
    torch.save(content, path)
    with pytest.raises(ValueError, match="has fewer numbers than that"):
        rs.load_scorer(path)


def test_a_scorer_keeps_the_names_of_its_features(tmp_path):
    scorer = rs.LinearScorer(2)
    assert scorer.feature_names is None
    scorer.feature_names = ("bm25", "clicks")
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    assert rs.load_scorer(tmp_path / "scorer.pt").feature_names == ("bm25", "clicks")


@pytest.mark.parametrize("space", [0, 1000])
def test_a_full_disk_is_an_error_of_the_file_and_leaves_the_one_before(space, tmp_path, monkeypatch):
    path = tmp_path / "scorer.pt"
    rs.save_scorer(rs.LinearScorer(3), path)
    before = path.read_bytes()

    class Full(io.FileIO):
        def write(self, data):
            if self.tell() + len(data) > space:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return super().write(data)

    monkeypatch.setattr("rankstruct.files.open", lambda name, mode, **_: Full(name, mode), raising=False)
    with pytest.raises(OSError, match=r"No space left on device: .*scorer\.pt'"):
        rs.save_scorer(rs.MLPScorer(3), path)
    assert path.read_bytes() == before
    assert [each.name for each in tmp_path.iterdir()] == ["scorer.pt"]


def test_a_ranker_is_no_scorer_and_its_pickle_no_file_of_one(tmp_path):
    with pytest.raises(TypeError, match=r"got AutoRanker: save ranker.to_scorer\(\)"):
        rs.save_scorer(rs.AutoRanker(), tmp_path / "scorer.pt")
    with pytest.raises(TypeError, match=r"must be a torch module, got dict$"):
        rs.save_scorer({}, tmp_path / "scorer.pt")
    (tmp_path / "ranker.pkl").write_bytes(pickle.dumps(rs.LinearRanker()))
    with pytest.raises(ValueError, match=r"ranker.pkl .*pickle.load\(open\(path, 'rb'\)\), which can run code"):
        rs.load_scorer(tmp_path / "ranker.pkl")
    assert [path.name for path in tmp_path.iterdir()] == ["ranker.pkl"]


def test_files_that_hold_no_scorer(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no scorer at .*nothing\.pt"):
        rs.load_scorer(tmp_path / "nothing.pt")
    torch.save({"weights": 1}, tmp_path / "other.pt")
    with pytest.raises(ValueError, match="contains no scorer"):
        rs.load_scorer(tmp_path / "other.pt")
    for kind, message in (("nowhere.Scorer", "is not imported unless"), ("os.getcwd", "not a torch module")):
        described = {"rankstruct_scorer": {"class": kind, "arguments": {}}, "state_dict": {}}
        torch.save(described, tmp_path / "bad.pt")
        with pytest.raises(ValueError, match=message):
            rs.load_scorer(tmp_path / "bad.pt")


def test_whatever_is_damaged_is_said_or_changes_nothing(tmp_path):
    torch.manual_seed(0)
    scorer, path, choose = rs.MLPScorer(5, hidden=(20,)), tmp_path / "scorer.pt", random.Random(0)
    rs.save_scorer(scorer, path)
    whole = path.read_bytes()
    damaged = [whole[:length] for length in (0, 1, 4, 100, len(whole) // 2, len(whole) - 1)]
    damaged += [
        b"\x80" * 50,
        b"PK\x03\x04" + choose.randbytes(500),
        choose.randbytes(len(whole)),
        b"hello\n",
        whole + b"\0" * 9,
    ]
    for _ in range(400):
        at = choose.randrange(8 * len(whole))
        damaged.append(whole[: at // 8] + bytes([whole[at // 8] ^ 1 << at % 8]) + whole[at // 8 + 1 :])
    refused = 0
    for content in damaged:
        path.write_bytes(content)
        try:
            again = rs.load_scorer(path)
        except ValueError as error:
            refused += 1
            assert str(error).startswith(f"{path} is not a readable checkpoint")  # noqa: PT017
            assert "\n" not in str(error)  # noqa: PT017
        else:  # padding, say
            assert all(torch.equal(found, w) for found, w in zip(again.parameters(), scorer.parameters(), strict=True))
    assert refused > 200
    for changed in ({"num_features": 4}, {"num_features": "x"}, {"widths": 3}, {"num_features": 10**18}):
        described = {"class": "rankstruct.MLPScorer", "arguments": changed}
        torch.save({"rankstruct_scorer": described, "state_dict": scorer.state_dict()}, path)
        with pytest.raises(ValueError, match=rf"{path} contains a rankstruct.MLPScorer that cannot be built: .+"):
            rs.load_scorer(path)
    for content in ([1], {"rankstruct_scorer": 3}, {"rankstruct_scorer": {"class": 3}}):
        torch.save(content, path)
        with pytest.raises(ValueError, match=rf"{path} contains no scorer"):
            rs.load_scorer(path)


def test_no_module_that_a_file_names_is_imported_unless_it_is_trusted(tmp_path, monkeypatch):
    (tmp_path / "stranger.py").write_text(
        "import torch\nran = True\nclass Scorer(torch.nn.Linear):\n    def __init__(self): super().__init__(2, 1)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    path = tmp_path / "scorer.pt"

    def write(name, **arguments):
        described = {"class": name, "arguments": arguments}
        state = {f"scorer.{key}": value for key, value in torch.nn.Linear(2, 1).state_dict().items()}
        torch.save({"rankstruct_scorer": described, "state_dict": state}, path)

    write("stranger.Scorer")
    for trusted in ((), ("strange",), ("stranger.Other",), (Shifted,)):
        with pytest.raises(ValueError, match=r"not a torch module of rankstruct.*trusted=\['stranger.Scorer'\]"):
            rs.load_scorer(path, trusted=trusted)
        assert "stranger" not in sys.modules
    for trusted in ("stranger", "stranger.Scorer"):
        assert type(rs.load_scorer(path, trusted=[trusted])).__name__ == "Scorer"
    kind = sys.modules["stranger"].Scorer
    monkeypatch.delitem(sys.modules, "stranger")
    assert type(rs.load_scorer(path, trusted=[kind])) is kind
    assert "stranger" not in sys.modules
    write("torch.nn.Linear", in_features=2, out_features=1)
    assert isinstance(rs.load_scorer(path), torch.nn.Linear)
    for name in ("rankstruct.models.saving.Path", "torch.nn.functional.relu"):
        write(name)
        with pytest.raises(ValueError, match="which is not a torch module"):
            rs.load_scorer(path)
    write("rankstruct.models.Nothing")
    with pytest.raises(ValueError, match=r"contains a rankstruct.models.Nothing, which cannot be imported"):
        rs.load_scorer(path)


def test_a_scorer_that_forgets_its_arguments_cannot_be_saved(tmp_path):
    with pytest.raises(ValueError, match=r"Shifted cannot be saved.*shift.*self\.<name>"):
        rs.save_scorer(Shifted(3, 1.0), tmp_path / "scorer.pt")
    assert not list(tmp_path.iterdir())
