"""A run on shards, killed and resumed; scores of shards."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import pytorch_lightning as pl
import torch
from programs import assert_a_killed_fit_resumes_to_the_same_bits

import rankstruct as rs
from rankstruct.data import shards
from rankstruct.training import RankingDataModule, RankingModule
from rankstruct.training.callbacks import LastCheckpoint


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for part in ("train", "vali", "test"):
        (tmp_path / "data" / part).mkdir(parents=True)
        for number in range(3):
            X = rng.normal(size=(400, 3))
            rows = {"qid": np.arange(400) // 10 + 40 * number, "label": np.where(X[:, 0] > 1, 1, 0)}
            rows |= {name: X[:, at] for at, name in enumerate("abc")}
            pq.write_table(pa.table(rows), tmp_path / "data" / part / f"{number}.parquet", row_group_size=133)
    return tmp_path / "data"


@pytest.mark.soak
def test_a_killed_run_resumes_to_the_same_bits(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("RANKSTRUCT_CACHE", str(tmp_path / "cache"))
    command = [sys.executable, "-m", "rankstruct", "fit", "--config", "quickstart", "--data.builtin", "null"]
    command += ["--data.path", str(folder), "--data.prepare", "[standardize]", "--save_every_steps", "2"]
    command += ["--trainer.max_epochs", "6", "--data.lists_per_batch", "8"]  # an epoch has 15 steps
    command += ["--average_weights", "true", "--early_stopping.patience", "1000"]
    assert_a_killed_fit_resumes_to_the_same_bits(command, tmp_path)


@pytest.mark.filterwarnings("ignore:Checkpoint directory")
@pytest.mark.needs("pytorch_lightning>=2.6")
def test_a_run_resumed_within_an_epoch_sees_the_same_batches_and_ends_with_the_same_weights(
    folder, tmp_path, monkeypatch
):
    monkeypatch.setenv("RANKSTRUCT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(shards, "_BLOCK", 300)
    monkeypatch.setattr(shards, "_HELD", 1000)  # an epoch has several windows
    quiet = {
        "logger": False,
        "num_sanity_val_steps": 0,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "accelerator": "cpu",
    }

    class Seen(pl.Callback):
        def __init__(self, lists, last):
            self.lists, self.last = lists, last

        def on_train_batch_start(self, trainer, module, batch, number):
            self.lists.append((trainer.current_epoch, batch.index.tolist(), batch.features.sum().item()))
            if len(self.lists) == self.last:
                raise InterruptedError

    def fit(name, lists, last=0, **options):
        torch.manual_seed(0)
        scorer = rs.LinearScorer(3)
        trainer = pl.Trainer(
            max_epochs=2,
            callbacks=[Seen(lists, last), LastCheckpoint(5)],
            default_root_dir=tmp_path / name,
            **quiet,
        )
        data = RankingDataModule(path=str(folder), lists_per_batch=8, prepare=["standardize"], seed=3)
        trainer.fit(RankingModule(scorer, rs.GradedLoss("AUC")), data, **options)
        return scorer.state_dict()

    whole, begun, resumed = [], [], []
    expected = fit("whole", whole)
    with pytest.raises(InterruptedError):
        fit("begun", begun, 13)
    (last,) = (tmp_path / "begun").rglob("last.ckpt")
    found = fit("begun", resumed, ckpt_path=last, weights_only=False)  # which was saved after ten steps
    assert whole[0][0] == whole[12][0]
    assert whole[0][0] != whole[-1][0]
    assert begun == whole[:13]
    assert resumed == whole[10:]
    assert all(torch.equal(found[name], value) for name, value in expected.items())
