"""Training of scorers that see the whole list: padding of batches never counts, and files give the scores of single lists."""

import contextlib
import io

import numpy as np
import pytest
import torch
from programs import run_in

import rankstruct as rs
from rankstruct.cli import main
from rankstruct.data import BatchLoader, RankingData
from rankstruct.models import DeepSetScorer
from rankstruct.training import RankingModule, fit_regression

LENGTHS = (1, 9, 4, 2, 7, 12, 3)
every_kind = pytest.mark.parametrize("kind", [rs.ContextScorer, DeepSetScorer])


def ragged(seed=0):
    rng = np.random.default_rng(seed)
    qid = np.repeat(np.arange(len(LENGTHS)), LENGTHS)
    X = rng.normal(size=(len(qid), 3)).astype(np.float32)
    return RankingData.from_arrays(X, np.digitize(X[:, 0] + rng.normal(size=len(qid)), [0, 1.5]), qid)


def alone(scorer, data):
    """Scores of one list at a time."""
    with torch.no_grad():
        return torch.cat([scorer(lists) for lists in torch.tensor(data.features).split(LENGTHS)])


@every_kind
def test_batches_are_scored_as_single_lists(kind):
    torch.manual_seed(0)
    data, scorer = ragged(), kind(3)
    loss = rs.StructuredHingeLoss(measure="nDCG@10", feature_map="positional", reference="predicted")
    module, batches = RankingModule(scorer, loss, measures=["AP"]), BatchLoader(data, lists_per_batch=len(LENGTHS))
    (batch,), expected, offsets = list(batches), alone(scorer, data), torch.tensor(data.offsets)
    positions, scores = module.predict_step(batch, 0)
    torch.testing.assert_close(scores, expected[positions])
    torch.testing.assert_close(module.validation_step(batch, 0)[batch.where], scores)
    labels = torch.tensor(data.labels)
    assert module.mean_loss(batches) == pytest.approx(float(loss(expected, labels, offsets=offsets)), rel=1e-5)
    frozen = kind(3)
    module.freeze_reference(frozen)
    module.log = lambda *args, **options: None
    given = {"offsets": offsets, "reference_scores": alone(frozen, data)}
    assert float(module.training_step(batch, 0).detach()) == pytest.approx(
        float(loss(expected, labels, **given)), rel=1e-5
    )


@every_kind
def test_the_start_by_regression_does_not_see_the_padding(kind):
    found = []
    for filling in (0.0, 1e3):
        torch.manual_seed(0)
        scorer, batches = kind(3), list(BatchLoader(ragged(), lists_per_batch=4))
        for batch in batches:
            batch.features[~batch.where] = filling
        fit_regression(scorer, batches, rs.nDCG().document_gains, epochs=2)
        found.append(scorer.state_dict())
    for name, weights in found[0].items():
        torch.testing.assert_close(found[1][name], weights)


def write(data, path):
    qids = np.repeat(np.asarray(data.qids), data.lengths)
    rows = zip(data.labels, qids, data.features.tolist(), strict=True)
    path.write_text(
        "".join(f"{y:g} qid:{q} " + " ".join(f"{i}:{x!r}" for i, x in enumerate(row, 1)) + "\n" for y, q, row in rows)
    )


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_a_run_predicts_lists_as_lists(tmp_path):
    for seed, part in enumerate(("train", "vali", "test", "new")):
        write(ragged(seed), tmp_path / f"{part}.txt")
    quiet = ["--trainer.enable_progress_bar", "false"]
    given = ["fit", "--config", "letor-context", "--data.path", str(tmp_path), "--data.fold", "null", *quiet]
    with contextlib.redirect_stdout(io.StringIO()):
        assert main([*given, "--output", str(tmp_path / "runs"), "--trainer.max_epochs", "2"]) == 0
        run = run_in(tmp_path / "runs")
        assert main(["predict", "--run", str(run), "--data.predict_path", str(tmp_path / "new.txt"), *quiet]) == 0
    scorer = rs.load_scorer(run)
    assert scorer.by_list
    expected = alone(scorer, ragged(3)).numpy()
    np.testing.assert_allclose(np.loadtxt(run / "scores.txt"), expected, rtol=1e-4, atol=1e-5)
    assert np.ptp(expected) > 1e-3
