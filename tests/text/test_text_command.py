"""`task: text` from the command line: trained, used, gone on with, and taken to sentence-transformers."""

import json

import pytest
import torch
from programs import run_in

import rankstruct as rs
from rankstruct.cli import main
from rankstruct.data import read_run


@pytest.mark.slow
def test_a_run_is_trained_used_continued_and_taken_elsewhere(tmp_path, capsys):
    quiet = ("--trainer.enable_progress_bar", "false")
    options = ["--config", "text-rerank-tiny", "--output", str(tmp_path), "--trainer.max_epochs", "2", *quiet]
    assert main(["fit", *options]) == 0
    assert "BM25 retrieved 100.0% of the relevant documents of the test queries" in capsys.readouterr().out
    run = run_in(tmp_path)
    first = json.loads((run / "metrics.json").read_text())["test"]
    assert main(["test", "--run", str(run), *quiet]) == 0
    assert f"{first['AP']:.4f}" in capsys.readouterr().out
    assert main(["predict", "--run", str(run), *quiet]) == 0
    found = read_run(run / "run.txt")

    from sentence_transformers import CrossEncoder

    collection = rs.text.questions()
    model = CrossEncoder(str(run / "model"), device="cpu", max_length=48)
    query, scores = next(iter(found.items()))
    pairs = [(collection.queries[query], collection.documents[name]) for name in scores]
    again = model.predict(pairs, activation_fn=torch.nn.Identity())
    assert list(scores.values()) == pytest.approx(again.tolist(), abs=1e-4)

    assert main(["fit", "--run", str(run), "--trainer.max_epochs", "3", *quiet]) == 0
    said = capsys.readouterr().err
    assert "epoch 2:" in said
    assert "epoch 1:" not in said


def test_what_is_missing_is_said_in_one_line(tmp_path, capsys):
    command = ["fit", "--config", "text-rerank-ap", "--output", str(tmp_path)]
    assert main(command) == 1
    assert capsys.readouterr().err == "rankstruct fit: give data.path or data.builtin; got path None and builtin None\n"
    assert main([*command, "--data.path", str(tmp_path)]) == 1
    assert "data.encoder is missing: set it" in capsys.readouterr().err
