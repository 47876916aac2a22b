"""Starts, anchors, rounds of DC programming, annealing: what they compute, log, and how they resume."""

import json

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from programs import run_in
from pytorch_lightning.callbacks import EarlyStopping
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rankstruct as rs
from rankstruct.commands.fit import main
from rankstruct.data import BatchLoader, RankingData
from rankstruct.training import AnnealSigma, DCRounds, RankingDataModule, RankingModule, fit_regression

RAMP = {"measure": "nDCG@10", "feature_map": "positional", "reference": "predicted"}


def small_data(lists=12, size=10, d=5, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(lists * size, d))
    labels = np.clip(np.round(features @ rng.normal(size=d) + rng.normal(size=lists * size)), 0, 3)
    return RankingData.from_arrays(features, labels, np.repeat(np.arange(lists), size))


def fit(module, data, callbacks=(), epochs=10, lists_per_batch=4, **options):
    trainer = pl.Trainer(
        max_epochs=epochs, accelerator="cpu", logger=False, enable_checkpointing=False, enable_progress_bar=False,
        enable_model_summary=False, num_sanity_val_steps=0, callbacks=list(callbacks), **options,
    )  # fmt: skip
    batches = BatchLoader(data, lists_per_batch=lists_per_batch, shuffle=True, seed=0)
    trainer.fit(module, batches, BatchLoader(data, lists_per_batch=lists_per_batch))
    return trainer


def test_regression_is_least_squares_within_lists():
    data = small_data()
    scorer = rs.LinearScorer(5)
    fit_regression(scorer, BatchLoader(data, lists_per_batch=5), rs.nDCG().document_gains)
    x = data.features.reshape(12, 10, 5).astype(float)
    y = (2.0**data.labels - 1).reshape(12, 10)
    x, y = x - x.mean(1, keepdims=True), y - y.mean(1, keepdims=True)
    expected = np.linalg.lstsq(x.reshape(-1, 5), y.ravel(), rcond=None)[0]
    np.testing.assert_allclose(scorer.linear.weight.detach().numpy()[0], expected, rtol=1e-4)
    with pytest.raises(ValueError, match="no list to fit"):
        fit_regression(scorer, [], rs.nDCG().document_gains)


def test_regression_of_another_scorer_lowers_its_error():
    torch.manual_seed(0)
    data, scorer = small_data(), rs.MLPScorer(5, hidden=(16,))
    batches = list(BatchLoader(data, lists_per_batch=4))

    def error():
        s = torch.cat([scorer(b.features) - scorer(b.features).mean(-1, keepdim=True) for b in batches])
        y = torch.cat([2**b.labels - 1 - (2**b.labels - 1).mean(-1, keepdim=True) for b in batches])
        return (s - y).square().mean().item()

    before = error()
    fit_regression(scorer, batches, rs.nDCG().document_gains)
    assert error() < 0.7 * before
    assert all(w.grad is None or (w.grad == 0).all() for w in scorer.parameters())


def test_start_and_anchor():
    data = small_data()
    module = RankingModule(
        rs.LinearScorer(5), rs.StructuredHingeLoss(**RAMP), start="regression", regularize_towards="start",
        regularization=2.0,
    )  # fmt: skip
    fit(module, data, epochs=1)
    expected = rs.LinearScorer(5)
    fit_regression(expected, BatchLoader(data, lists_per_batch=12), rs.nDCG().document_gains)
    torch.testing.assert_close(module.anchor[0].detach(), expected.linear.weight.detach(), atol=1e-5, rtol=1e-4)
    distance = (module.scorer.linear.weight - module.anchor[0]).square().sum()
    torch.testing.assert_close(module.squared_norm(), distance)
    assert distance > 0
    assert not module.anchor[0].requires_grad
    batches = list(BatchLoader(data, lists_per_batch=12))
    assert module.objective(batches) == pytest.approx(module.mean_loss(batches) + distance.item(), rel=1e-6)


@pytest.mark.parametrize("scorer", [lambda: rs.LinearScorer(5), lambda: rs.MLPScorer(5, hidden=(8,), dropout=0.2)])
def test_rounds_never_increase_the_objective_and_stop(scorer):
    torch.manual_seed(0)
    data, rounds = small_data(), DCRounds(epochs=3, tolerance=1e-2)
    module = RankingModule(scorer(), rs.StructuredHingeLoss(**RAMP), start="regression", regularization=0.01)
    trainer = fit(module, data, [rounds], epochs=90)
    history = rounds.history
    assert len(history) >= 2
    assert all(row["after"] <= row["before"] for row in history)
    assert [row["after"] for row in history[:-1]] == [row["before"] for row in history[1:]]
    gains = [(row["before"] - row["after"]) / row["before"] for row in history]
    assert all(gain > 1e-2 for gain in gains[:-1])
    assert trainer.current_epoch == 3 * len(history)
    if trainer.current_epoch < 90:
        assert gains[-1] <= 1e-2
    module.eval()
    assert module.objective(module.training_lists()) == pytest.approx(history[-1]["after"], rel=1e-5)


def test_the_reference_is_that_of_the_rounds_start(monkeypatch):
    """Within a round the copy's scores choose the reference, whatever the scorer has become."""
    seen = []
    data, rounds = small_data(), DCRounds(epochs=2, tolerance=0.0)
    loss = rs.StructuredHingeLoss(**RAMP)
    original = type(loss).forward

    def forward(self, scores, labels, *, reference_scores=None, **options):
        if reference_scores is not None:
            seen.append((scores.detach().clone(), reference_scores.clone()))
        return original(self, scores, labels, reference_scores=reference_scores, **options)

    monkeypatch.setattr(type(loss), "forward", forward)
    module = RankingModule(rs.LinearScorer(5), loss, start="regression")
    fit(module, data, [rounds], epochs=4, lists_per_batch=12)
    assert len(seen) == 4
    for first in (0, 2):
        torch.testing.assert_close(*seen[first])  # a round starts where its reference is
        torch.testing.assert_close(
            *(seen[i][1].flatten().sort().values for i in (first, first + 1))
        )  # lists are shuffled
    assert not torch.allclose(*seen[1])


def test_callbacks_refuse_losses_they_cannot_serve():
    data = small_data()
    with pytest.raises(ValueError, match="DCRounds needs a loss whose reference depends on the scores"):
        fit(RankingModule(rs.LinearScorer(5)), data, [DCRounds()])
    with pytest.raises(ValueError, match="AnnealSigma needs a SmoothLoss, got StructuredHingeLoss"):
        fit(RankingModule(rs.LinearScorer(5)), data, [AnnealSigma()])
    with pytest.raises(ValueError, match="epochs must be an integer from 1"):
        DCRounds(epochs=0)
    with pytest.raises(ValueError, match="0 < factor < 1"):
        AnnealSigma(factor=2.0)
    with pytest.raises(ValueError, match="start must be 'given' or 'regression', got 'zero'"):
        RankingModule(rs.LinearScorer(5), start="zero")


def test_sigma_halves_when_training_has_converged_and_then_stops():
    data = small_data()
    module = RankingModule(rs.LinearScorer(5), rs.SmoothLoss("nDCG@5", sigma=1.0), start="regression")
    trainer = fit(module, data, [AnnealSigma(patience=1, tolerance=0.5, lowest=0.2)], epochs=50)
    # No epoch makes half as much progress: one epoch to see a loss, one to wait, for 1, 1/2 and 1/4.
    assert module.loss.sigma == 0.25
    assert trainer.current_epoch == 6


def test_sigma_halves_after_its_epochs_and_early_stopping_waits_for_all_of_them():
    data = small_data()
    module = RankingModule(rs.LinearScorer(5), rs.SmoothLoss("nDCG@5", sigma=1.0), start="regression", measures=["AP"])
    # Nothing counts as better, so that alone it would stop after the fourth epoch.
    stopping = EarlyStopping("val/AP", mode="max", patience=3, min_delta=1.0)
    trainer = fit(module, data, [AnnealSigma(tolerance=0.0, patience=99, lowest=0.2, epochs=2), stopping], epochs=50)
    assert module.loss.sigma == 0.25
    assert trainer.current_epoch == 6  # two epochs each for 1, 1/2 and 1/4


def test_slacks_of_a_combined_loss_are_logged():
    module = RankingModule(
        rs.LinearScorer(5), rs.CombinedLoss({"map": rs.StructuredHingeLoss("AP"), "mrr": rs.StructuredHingeLoss("RR")})
    )
    trainer = fit(module, small_data(), epochs=1)
    assert {"train/slack/map", "train/slack/mrr"} <= set(trainer.callback_metrics)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("kind", ["dc", "smooth"])
def test_a_stopped_run_goes_on_to_the_same_bits(kind, tmp_path):
    """From the checkpoint after epoch 3, in the middle of a round: same weights and report as a run left alone."""
    model = {
        "start": "regression",
        "regularize_towards": "start",
        "regularization": "0.01",
        "scorer": "rankstruct.LinearScorer",
    }
    if kind == "dc":
        options = {"loss": "rankstruct.StructuredHingeLoss", **{f"loss.init_args.{k}": v for k, v in RAMP.items()}}
        callback = {"": "rankstruct.training.DCRounds", ".epochs": "2", ".tolerance": "0"}
    else:
        options = {"loss": "rankstruct.SmoothLoss", "loss.init_args.measure": "nDCG@10"}
        callback = {"": "rankstruct.training.AnnealSigma", ".patience": "1", ".tolerance": "0.3"}
    values = {f"--model.{name}": value for name, value in {**model, **options}.items()}
    values |= {f"--trainer.callbacks{name}": value for name, value in callback.items()}
    values |= {
        "--data.builtin": "synthetic",
        "--trainer.enable_progress_bar": "false",
        "--early_stopping.patience": "99",
    }
    arguments = [part for pair in values.items() for part in pair]
    main(["fit", *arguments, "--output", str(tmp_path / "whole"), "--trainer.max_epochs", "7"])
    main(["fit", *arguments, "--output", str(tmp_path / "parts"), "--trainer.max_epochs", "3"])
    main(["fit", "--run", str(run_in(tmp_path / "parts")), "--trainer.max_epochs", "7"])
    states = []
    for name in ("whole", "parts"):
        folder = run_in(tmp_path / name)
        state = torch.load(folder / "checkpoints" / "last.ckpt", weights_only=True)
        states.append((state["state_dict"], json.loads((folder / "metrics.json").read_text())["test"]))
    assert states[0][0].keys() == states[1][0].keys()
    for name, value in states[0][0].items():
        assert torch.equal(value, states[1][0][name]), name
    assert states[0][1] == states[1][1]
    tags = EventAccumulator(str(run_in(tmp_path / "parts"))).Reload().Tags()["scalars"]
    assert ({"dc/objective", "dc/before", "dc/after"} if kind == "dc" else {"optimisation/sigma"}) <= set(tags)
    assert RankingDataModule(builtin="synthetic").num_features == states[0][0]["scorer.linear.weight"].shape[1]


def test_the_reference_is_free_again_after_training_and_a_callback_serves_another_module():
    data, rounds = small_data(), DCRounds(epochs=1, tolerance=0.0)
    first = RankingModule(rs.LinearScorer(5), rs.StructuredHingeLoss(**RAMP), start="regression")
    fit(first, data, [rounds], epochs=2)
    assert not first._reference
    second = RankingModule(rs.MLPScorer(5, hidden=(4,)), rs.StructuredHingeLoss(**RAMP))
    fit(second, data, [rounds], epochs=1)
    assert len(rounds.history) == 1
