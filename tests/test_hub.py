"""Scorers in folders and, with the network replaced, on the Hugging Face Hub."""

import json
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

import rankstruct as rs

hub = pytest.mark.needs("huggingface_hub")
X = torch.tensor(np.random.default_rng(0).normal(size=(40, 3)))


@pytest.fixture(scope="module")
def scorer():
    y, qid = (X[:, 0] > 0.5).int().numpy(), np.repeat(np.arange(4), 10)
    return rs.LinearRanker("AP", prepare=["append-log", "standardize"]).fit(X.numpy(), y, qid).to_scorer()


class Own(torch.nn.Module):
    def __init__(self, size):
        super().__init__()
        self.size, self.weight = size, torch.nn.Parameter(torch.ones(size))

    def forward(self, features):
        return features @ self.weight


def test_a_folder_gives_back_the_scorer(scorer, tmp_path):
    rs.hub.save_pretrained(scorer, tmp_path / "new" / "folder")
    found = rs.hub.from_pretrained(tmp_path / "new" / "folder")
    assert torch.equal(found(X.float()), scorer(X.float()))
    config = json.loads((tmp_path / "new" / "folder" / "config.json").read_text())
    assert config["num_features"] == 3
    assert config["scorer"] == "LinearScorer"
    assert config["preparation"] == ["append-log:0.001", "standardize"]


def test_the_code_of_the_card_runs_and_an_edited_card_is_kept(scorer, tmp_path):
    rs.hub.save_pretrained(scorer, tmp_path)
    card = (tmp_path / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0].replace("NAME", str(tmp_path))
    found = {}
    exec(code, found)
    assert found["scores"].shape == (10,)
    (tmp_path / "README.md").write_text("mine")
    rs.hub.save_pretrained(rs.LinearScorer(2), tmp_path)
    assert (tmp_path / "README.md").read_text() == "mine"
    assert rs.hub.from_pretrained(str(tmp_path)).num_features == 2


def test_a_class_of_ones_own_is_trusted_by_name(tmp_path):
    rs.hub.save_pretrained(Own(2), tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["num_features"] is None
    with pytest.raises(ValueError, match="trusted="):
        rs.hub.from_pretrained(tmp_path)
    assert isinstance(rs.hub.from_pretrained(tmp_path, trusted=[Own]), Own)
    with pytest.raises(TypeError, match="to_scorer"):
        rs.hub.save_pretrained(rs.LinearRanker(), tmp_path)


@pytest.fixture
def remote(monkeypatch, tmp_path):
    """Repositories in a folder."""
    import huggingface_hub

    class Api:
        def __init__(self, token=None, **library):
            assert library["library_name"] == "rankstruct"
            self.token = token

        def create_repo(self, repo_id, *, private, exist_ok):
            (tmp_path / repo_id).mkdir(parents=True, exist_ok=exist_ok)

        def file_exists(self, repo_id, filename, *, revision):
            return (tmp_path / repo_id / filename).exists()

        def upload_folder(self, *, repo_id, folder_path, revision, commit_message, ignore_patterns):
            for path in Path(folder_path).iterdir():
                if path.name not in (ignore_patterns or ()):
                    shutil.copy(path, tmp_path / repo_id)
            return SimpleNamespace(commit_url=f"https://hub/{repo_id}/commit/{self.token}")

    def download(repo_id, filename, *, revision, library_name, library_version, **options):
        assert options == {"local_files_only": True}
        return str(tmp_path / repo_id / filename)

    monkeypatch.setattr(huggingface_hub, "HfApi", Api)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", download)
    return tmp_path


@hub
def test_what_is_pushed_is_what_is_loaded(scorer, remote):
    assert rs.hub.push_to_hub(scorer, "user/ranker", token="secret") == "https://hub/user/ranker/commit/secret"
    assert {path.name for path in (remote / "user/ranker").iterdir()} == {"scorer.pt", "config.json", "README.md"}
    found = rs.hub.from_pretrained("user/ranker", local_files_only=True)
    assert torch.equal(found(X.float()), scorer(X.float()))


@hub
def test_the_card_of_a_repository_is_kept_and_nothing_that_cannot_be_saved_is_pushed(scorer, remote):
    rs.hub.push_to_hub(scorer, "user/ranker")
    (remote / "user/ranker/README.md").write_text("mine")
    rs.hub.push_to_hub(rs.LinearScorer(2), "user/ranker")
    assert (remote / "user/ranker/README.md").read_text() == "mine"
    assert rs.hub.from_pretrained("user/ranker", local_files_only=True).num_features == 2
    with pytest.raises(TypeError, match="to_scorer"):
        rs.hub.push_to_hub(rs.LinearRanker(), "user/other")
    assert not (remote / "user/other").exists()


@hub
def test_the_library_takes_these_arguments():
    """The fakes above have its signatures."""
    import inspect

    import huggingface_hub

    known = {
        huggingface_hub.HfApi.__init__: {"token", "library_name", "library_version"},
        huggingface_hub.HfApi.create_repo: {"private", "exist_ok"},
        huggingface_hub.HfApi.file_exists: {"filename", "revision"},
        huggingface_hub.HfApi.upload_folder: {"folder_path", "revision", "commit_message", "ignore_patterns"},
        huggingface_hub.hf_hub_download: {"filename", "revision", "library_name", "library_version"},
    }
    for function, names in known.items():
        assert names <= set(inspect.signature(function).parameters)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for call in (lambda: rs.hub.push_to_hub(rs.LinearScorer(2), "a/b"), lambda: rs.hub.from_pretrained("a/b")):
        with pytest.raises(ImportError, match=r"pip install 'rankstruct\[hub\]'"):
            call()
