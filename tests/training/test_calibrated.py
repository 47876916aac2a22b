"""`calibrate` in a config: the best checkpoint has the step of its validation scores, and everything reports it."""

import json

import numpy as np
import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rankstruct as rs
from rankstruct import cli
from rankstruct.data import Source, read_scores

FIT = [
    *("fit", "--model.scorer", "LinearScorer", "--data.builtin", "digits", "--model.measures", "[AP]"),
    *("--trainer.max_epochs", "1", "--trainer.enable_progress_bar", "false", "--trainer.accelerator", "cpu"),
]


@pytest.mark.slow
def test_the_best_checkpoint_keeps_the_step_of_the_validation_lists(tmp_path, capsys):
    config = tmp_path / "calibrated.yaml"
    config.write_text("calibrate: sigmoid\n")
    assert cli.main([*FIT, "--config", str(config), "--output", str(tmp_path / "runs")]) == 0
    (run,) = (tmp_path / "runs").iterdir()
    scorer, parts = rs.load_scorer(run), Source(builtin="digits").read()
    scores = {}
    for name in ("vali", "test"):
        with torch.inference_mode():
            scores[name] = scorer(torch.tensor(getattr(parts, name).features))
    by_hand = rs.Calibration("sigmoid").fit(scores["vali"], parts.vali.labels, offsets=parts.vali.offsets)
    p = by_hand.predict(scores["test"])
    torch.testing.assert_close(scorer.calibration(scores["test"]), p, atol=1e-5, rtol=0)
    judged = json.loads((run / "metrics.json").read_text())["probabilities"]
    known = rs.calibration.evaluate_probabilities(p, parts.test.labels, offsets=parts.test.offsets)
    assert judged["values"]["log loss"] == pytest.approx(known["log loss"], abs=1e-4)
    assert EventAccumulator(str(run)).Reload().Images("test/reliability")
    assert cli.main(["predict", "--run", str(run)]) == 0
    np.testing.assert_allclose(read_scores(run / "probabilities.txt"), p, atol=1e-5)
    assert f"probabilities of relevance of these documents: {run / 'probabilities.txt'}\n" in capsys.readouterr().out


def test_what_has_no_lists_of_documents_is_refused_before_training(tmp_path, capsys):
    args = ["fit", "--config", "ratings-synthetic", "--calibrate", "sigmoid", "--output", str(tmp_path / "runs")]
    assert cli.main(args) == 1
    assert "calibrate needs validation lists of documents in memory" in capsys.readouterr().err
    assert not list((tmp_path / "runs").glob("*/checkpoints"))
