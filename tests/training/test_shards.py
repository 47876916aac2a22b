"""A run on shards, killed and resumed; scores of shards."""

import sys

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from programs import assert_a_killed_fit_resumes_to_the_same_bits


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
