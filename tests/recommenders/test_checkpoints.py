"""Fits that are killed go on from their checkpoints, to the same weights."""

import subprocess
import sys
import time
from signal import SIGKILL

import numpy as np
import pytest
import scipy.sparse as sp
import torch

from rankstruct.models import trainer
from rankstruct.recommenders import Negatives, Recommender

CASES: dict = {
    "linear": {"learning_rate": 0.01, "patience": 5},
    "sampled": {"start": "random", "negatives": Negatives("uniform"), "dropout": 0.3, "validation_share": 0},
    "graph": {"layers": 1, "loss": "RankNetLoss", "patience": 5},
}
FIT = """
import sys
sys.path.insert(0, sys.argv[1])
from test_checkpoints import drawn, fitted
fitted("linear", sys.argv[2], patience=200, max_epochs=200, learning_rate=1e-4)
"""


def drawn(seed=0):
    return sp.csr_array((np.random.default_rng(seed).random((40, 31)) < 0.2).astype(np.float32))


def fitted(case, folder=None, X=None, **options):
    options = {"rank": 8, "max_epochs": 5} | CASES[case] | options
    return Recommender(**options).fit(drawn() if X is None else X, checkpoint=folder)


def assert_same(ours, theirs):
    assert ours.history_ == theirs.history_
    assert ours.best_epoch_ == theirs.best_epoch_
    for name, weights in theirs.scorer_.state_dict().items():
        np.testing.assert_array_equal(ours.scorer_.state_dict()[name], weights)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("after", [1, 3])
def test_an_interrupted_fit_ends_with_the_same_weights(tmp_path, monkeypatch, case, after):
    whole, write = fitted(case), trainer.Checkpoints.write
    epochs = []

    def interrupted(self, epoch, state):
        write(self, epoch, state)
        epochs.append((self.name, epoch))
        if len(epochs) == after:
            raise InterruptedError

    monkeypatch.setattr(trainer.Checkpoints, "write", interrupted)
    with pytest.raises(InterruptedError):
        fitted(case, tmp_path)
    assert_same(fitted(case, tmp_path), whole)
    assert len(epochs) == len({*epochs}) > after  # no epoch was trained twice
    assert_same(fitted(case, tmp_path), whole)  # of one that has ended
    assert len(epochs) == len({*epochs})
    assert len([*tmp_path.iterdir()]) == len({name for name, _ in epochs})


def test_checkpoints_of_another_fit_are_refused(tmp_path):
    fitted("sampled", tmp_path)
    for options in ({"rank": 7}, {"X": drawn(1)}, {"random_state": 1}):
        with pytest.raises(ValueError, match=r"has states of another fit.*pass another folder, or remove it"):
            fitted("sampled", tmp_path, **options)
    assert fitted("sampled", tmp_path, verbose=True).best_epoch_ == 5
    (file,) = tmp_path.iterdir()
    state = file.read_bytes()
    (tmp_path / "selection-a-b-of-c.pt").write_bytes(b"of somebody else")
    (tmp_path / "selection-4-1-of-1.pt.1-2.part").write_bytes(b"left by a killed fit")
    torch.save({"another": "file"}, file)
    with pytest.raises(ValueError, match="has states of another fit"):
        fitted("sampled", tmp_path)
    for damaged in (state[:-999], b""):
        file.write_bytes(damaged)
        with pytest.raises(ValueError, match=r"selection-5-1-of-1.pt is not a readable checkpoint; it is damaged"):
            fitted("sampled", tmp_path)
    file.unlink()
    fitted("sampled", tmp_path)
    assert {each.name for each in tmp_path.iterdir()} == {file.name, "selection-a-b-of-c.pt"}
    with pytest.raises(ValueError, match=r"checkpoint must be a folder, got .*File exists"):
        fitted("sampled", file)
    file.rename(tmp_path / "selection-5-1-of-2.pt")
    with pytest.raises(ValueError, match="number of processes"):
        fitted("sampled", tmp_path)


@pytest.mark.slow
def test_a_killed_fit_goes_on(tmp_path):
    command = [sys.executable, "-c", FIT, __file__.rpartition("/")[0], str(tmp_path / "killed")]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 120
    while not [*tmp_path.glob("killed/selection-*.pt")]:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(np.random.default_rng().random() / 4)
    process.send_signal(SIGKILL)
    assert process.wait() == -SIGKILL
    options = {"patience": 200, "max_epochs": 200, "learning_rate": 1e-4}
    assert_same(fitted("linear", tmp_path / "killed", **options), fitted("linear", **options))
