"""Training factorisations with Lightning."""

import logging

import numpy as np
import pytest
import pytorch_lightning as pl
import torch

import rankstruct as rs
from rankstruct.recommenders import Ratings, hold_out, item_means, popularity, synthetic_ratings
from rankstruct.recommenders.training import FactorizationModule, RatingsDataModule
from rankstruct.training import RankingDataModule

logging.getLogger("pytorch_lightning").setLevel(logging.ERROR)


def trainer(epochs=10, **options):
    return pl.Trainer(
        max_epochs=epochs,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        limit_val_batches=0,
        **options,
    )


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.03)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1.0)


@pytest.mark.parametrize(
    "loss", [rs.StructuredHingeLoss("AUC"), rs.LambdaLoss(), rs.SquaredLoss()], ids=["AUC", "lambda", "squared"]
)
def test_any_loss_trains_and_lowers_the_objective(loss):
    train, vali = hold_out(synthetic_ratings(users=100, items=40, rank=2, rated=30), 0.3)
    data = RatingsDataModule(train, vali, vali, users_per_batch=20)
    scorer = rs.MatrixFactorization(100, 40, rank=2, user_bias=True)
    module = FactorizationModule(scorer, loss, regularization=0.1, optimizer=adam)
    before = module.objective(data.objective_batches())
    run = trainer(15)
    run.fit(module, data)
    assert module.objective(data.objective_batches()) < 0.9 * before
    (found,) = run.test(module, data, verbose=False)
    (base,) = run.test(FactorizationModule(popularity(train), loss), data, verbose=False)
    assert found["test/nDCG@10"] > base["test/nDCG@10"] + 0.03


def test_maximum_margin_factorisation_beats_item_means_where_users_have_thresholds_of_their_own():
    ratings = synthetic_ratings(users=100, items=40, rank=2, rated=30, noise=0.2)
    train, test = hold_out(ratings, 0.3)
    train = train.select((train.user != 0) | (np.arange(train.num_ratings) == 0))  # a user with one rating
    train = train.select((train.item != 3) & (train.user != 1))  # an item never rated, a user without ratings
    data = RatingsDataModule(train, test, test, users_per_batch=20)
    loss = rs.ListOrdinalLoss(grades=5)
    run = trainer(40)
    module = FactorizationModule(rs.MatrixFactorization(100, 40, rank=2), loss, regularization=0.1, optimizer=adam)
    run.fit(module, data)
    (found,) = run.test(module, data, verbose=False)
    (base,) = run.test(FactorizationModule(item_means(train), loss), data, verbose=False)
    assert found["test/nDCG@10"] > base["test/nDCG@10"] + 0.03


@pytest.mark.parametrize("sparse", [False, True])
def test_the_steps_of_an_epoch_add_up_to_the_objective(sparse):
    """Without steps that move anything, the mean over users of the batches' values is the objective."""
    ratings = synthetic_ratings(users=60, items=25, rank=2, rated=10)
    data = RatingsDataModule(ratings, users_per_batch=20)
    scorer = rs.MatrixFactorization(60, 25, rank=3, user_bias=True, sparse=sparse, scale=0.5)
    module = FactorizationModule(scorer, rs.StructuredHingeLoss("AUC"), regularization=0.3, item_regularization=0.7)
    values = []

    class Keep(pl.Callback):
        def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
            values.append(float(outputs["loss"]))

    module._optimizer = lambda parameters: torch.optim.SGD(parameters, lr=0.0)
    trainer(1, callbacks=[Keep()]).fit(module, data)
    assert len(values) == 3
    rated = torch.zeros(25).index_fill(0, torch.from_numpy(ratings.item), 1.0)
    assert rated.all()  # else the norms of the others would be missing
    assert sum(values) / 3 == pytest.approx(module.objective(data.objective_batches()), rel=1e-5)


def test_sparse_factors_train():
    train, _ = hold_out(synthetic_ratings(users=100, items=40, rank=2, rated=30), 0.3)
    data = RatingsDataModule(train, users_per_batch=20)
    found = []
    for sparse in (False, True):
        scorer = rs.MatrixFactorization(100, 40, rank=2, sparse=sparse)
        module = FactorizationModule(scorer, rs.StructuredHingeLoss("AUC"), optimizer=sgd)
        trainer(5).fit(module, data)
        found.append([p.detach() for p in scorer.parameters()])
    for dense, sparse in zip(*found, strict=True):
        torch.testing.assert_close(dense, sparse)


def test_errors():
    with pytest.raises(ValueError, match="regularization must be a finite number of at least 0"):
        FactorizationModule(rs.MatrixFactorization(2, 2), regularization=-1.0)
    with pytest.raises(ValueError, match="requires a RatingsDataModule"):
        trainer(1).fit(FactorizationModule(rs.MatrixFactorization(2, 2)), RankingDataModule(builtin="synthetic"))
    ratings = synthetic_ratings(users=5, rated=4)
    with pytest.raises(
        ValueError, match=r"given must have the keys 'vali' and 'test' only, got 'val'; did you mean vali\?"
    ):
        RatingsDataModule(ratings, given={"val": ratings})


def test_item_means_start_the_biases():
    train, _ = hold_out(synthetic_ratings(users=60, items=25, rank=2, rated=10), 0.3)
    scorer = rs.MatrixFactorization(60, 25, rank=2, scale=0.0)
    module = FactorizationModule(scorer, item_means=True, optimizer=lambda p: torch.optim.SGD(p, lr=0.0))
    trainer(1).fit(module, RatingsDataModule(train))
    means = item_means(train, prior=5.0).scores - float(train.rating.mean())
    torch.testing.assert_close(scorer.item_offsets.weight[:, 0].detach(), means)
    with pytest.raises(ValueError, match="item_means requires a scorer with item_bias"):
        FactorizationModule(rs.MatrixFactorization(2, 2, item_bias=False), item_means=True)


def test_the_objective_does_not_count_users_that_are_not_trained():
    ratings = synthetic_ratings(users=60, items=25, rank=2, rated=10)
    scorer = rs.MatrixFactorization(60, 25, rank=2)
    module = FactorizationModule(scorer, rs.RankNetLoss(), regularization=0.5)
    batches = list(RatingsDataModule(ratings.select(ratings.user < 40)).objective_batches())
    before = module.objective(batches)
    with torch.no_grad():
        scorer.user_factors.weight[40:] *= 100
    assert module.objective(batches) == pytest.approx(before)


def test_training_starts_from_the_factors_of_the_same_users_and_items(tmp_path):
    ratings = synthetic_ratings(users=12, items=9, rank=2, rated=6)
    first = FactorizationModule(rs.MatrixFactorization(12, 9, rank=2, seed=1), rs.ListNetLoss())
    run = trainer(1)
    run.fit(first, RatingsDataModule(ratings))
    run.save_checkpoint(tmp_path / "first.ckpt")
    users, items = ([f"{n}" for n in range(size)][::-1] for size in (12, 9))
    names = {"user_names": ["other", *users[1:]], "item_names": items}
    other = Ratings.from_arrays(names["user_names"], items[:1] * 12, [3] * 12, scale="stars", **names)
    module = FactorizationModule(
        rs.MatrixFactorization(12, 9, rank=2, seed=2), rs.ListNetLoss(), start_from=str(tmp_path / "first.ckpt")
    )
    before = module.scorer.user_factors.weight[0].clone()
    with pytest.warns(
        UserWarning, match=r"1 of the 12 users of the data \(8\.3%\) are not in .*first\.ckpt, such as 'other'"
    ):
        trainer(0).fit(module, RatingsDataModule(other))
    torch.testing.assert_close(module.scorer.item_factors.weight, first.scorer.item_factors.weight.flip(0))
    torch.testing.assert_close(module.scorer.user_factors.weight[1:], first.scorer.user_factors.weight.flip(0)[1:])
    torch.testing.assert_close(module.scorer.user_factors.weight[0], before)
    unknown = Ratings.from_arrays(["a"] * 2, ["x", "y"], [1, 2], scale="stars")
    module = FactorizationModule(
        rs.MatrixFactorization(1, 2, rank=2), rs.ListNetLoss(), start_from=str(tmp_path / "first.ckpt")
    )
    with pytest.raises(ValueError, match=r"none of the 1 users of the data is in .*first\.ckpt"):
        trainer(0).fit(module, RatingsDataModule(unknown))
