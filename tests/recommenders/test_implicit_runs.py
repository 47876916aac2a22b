"""Factorisations of implicit feedback trained from a config: runs, resuming, recommendations, errors; the published protocol."""

import contextlib
import csv
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import pytorch_lightning as pl
import torch
from programs import assert_a_killed_fit_resumes_to_the_same_bits, run_in

import rankstruct as rs
from rankstruct.commands import cross_validate
from rankstruct.commands.fit import main
from rankstruct.recommenders import InteractionsSource, evaluate_catalogue, popularity
from rankstruct.recommenders.training import CatalogueModule, InteractionsDataModule, RatingsDataModule

CONFIG = ["--config", str(Path(__file__).parents[2] / "configs" / "implicit-mf.yaml"), "--data.builtin", "synthetic"]
QUIET = ["--trainer.enable_progress_bar", "false"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["fit", *CONFIG, "--output", str(folder), *QUIET, "--trainer.max_epochs", "60"])
    return run_in(folder), out.getvalue()


def test_a_run_reports_measures_over_the_catalogue(finished):
    folder, printed = finished
    parts, scorer = InteractionsSource(builtin="synthetic").read(), rs.load_scorer(folder)
    found = evaluate_catalogue(scorer, parts.test, ["nDCG@10", "R@20"], exclude=parts.train)
    report = json.loads((folder / "metrics.json").read_text())
    for name, values in found.items():
        assert report["test"][name] == pytest.approx(float(values.mean()), abs=1e-6)
    alike = evaluate_catalogue(popularity(parts.train), parts.test, exclude=parts.train)["nDCG@10"]
    assert report["test"]["nDCG@10"] > 0.95 * float(alike.mean())
    assert re.search(r"^nDCG@10 +0\.\d{4}", printed, re.MULTILINE)
    vectors = np.load(folder / "item_vectors.npy")
    users, items = scorer.vectors()
    np.testing.assert_array_equal(vectors, items.detach().numpy())
    names = (folder / "item_names.txt").read_text().split()
    assert names == parts.train.item_names.tolist()
    assert list(folder.glob("events.out.tfevents*"))
    assert len(users) == parts.train.num_users


def test_test_and_predict_use_a_run(finished, capsys):
    folder, _ = finished
    value = json.loads((folder / "metrics.json").read_text())["test"]["nDCG@10"]
    main(["test", "--run", str(folder), *QUIET])
    assert re.search(rf"^nDCG@10 +{value:.4f}", capsys.readouterr().out, re.MULTILINE)
    main(["predict", "--run", str(folder), "--data.recommend", "3", *QUIET])
    with open(folder / "recommendations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    parts = InteractionsSource(builtin="synthetic").read()
    seen = {
        (part.user_names[u], part.item_names[i])
        for part in parts[:3]
        for u, i in zip(part.user, part.item, strict=True)
    }
    assert len(rows) == 3 * parts.train.num_users
    assert not seen & {(row["user"], row["item"]) for row in rows}


@pytest.mark.soak
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    command = [
        *(sys.executable, "-m", "rankstruct", "fit", *CONFIG, "--save_every_steps", "2", "--average_weights", "true"),
        *("--trainer.max_epochs", "6", "--data.pairs_per_batch", "256", "--model.negatives", "popularity"),
        *("--model.scorer.init_args.dropout", "0.2", *QUIET),
    ]
    assert_a_killed_fit_resumes_to_the_same_bits(command, tmp_path)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.path", "/nowhere"], "give either data.path"),
        (["--data.split", "x"], "data.split must be one of 'ratio', 'leave-one-out', 'time'"),
        (["--data.users_per_batch", "8", "--data.pairs_per_batch", "8"], "set data.users_per_batch or data.pairs"),
        (["--data.users_per_batch", "0"], "data.users_per_batch must be an integer from 1, or None, got 0"),
        (["--data.core", "0"], "data.core must be an integer from 1, got 0"),
        (["--data.test_share", "1"], "data.test_share must be a finite number above 0 and below 1, got 1"),
        (["--model.measures", "[AP]"], "measures of a catalogue need a cut-off"),
        (["--model.negatives", "all", "--model.correct", "true"], "correct is for sampled negatives"),
        (
            ["--model.negatives", "all", "--model.number", "5"],
            "number is for negatives 'uniform' and 'popularity'; got 5",
        ),
        (["--data.pairs_per_batch", "256", "--model.negatives", "all"], "pairs_per_batch requires sampled negatives"),
    ],
)
def test_bad_options_are_errors(tmp_path, arguments, message):
    with pytest.raises((ValueError, SystemExit), match=message):
        main(["fit", *CONFIG, "--output", str(tmp_path), *QUIET, *arguments])
    assert not list(tmp_path.iterdir())


def trainer():
    return pl.Trainer(
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
        accelerator="cpu",
        max_epochs=1,
    )


def test_a_catalogue_needs_its_data_module():
    parts = InteractionsSource(builtin="synthetic").read()
    module = CatalogueModule(rs.MatrixFactorization(parts.train.num_users, parts.train.num_items))
    with pytest.raises(ValueError, match="CatalogueModule requires an InteractionsDataModule, got RatingsDataModule"):
        trainer().fit(module, RatingsDataModule(parts.train, parts.vali))


@pytest.mark.parametrize("start", ["linear", "spectral", "random"])
def test_training_starts_from_the_interactions_or_at_random(start):
    data = InteractionsDataModule(builtin="synthetic")
    scorer, expected = (rs.MatrixFactorization(data.num_users, data.num_items, rank=5) for _ in range(2))
    module = CatalogueModule(scorer, start=start, optimizer=lambda weights: torch.optim.SGD(weights, lr=0.0))
    trainer().fit(module, data)
    expected.start_from_interactions(data.train_ratings, start)
    for name, weight in expected.state_dict().items():
        assert torch.equal(scorer.state_dict()[name], weight)
    with pytest.raises(ValueError, match="start must be one of 'linear', 'spectral', 'random', got 'svd'"):
        CatalogueModule(scorer, start="svd")
    with pytest.raises(TypeError, match="scorer must be a MatrixFactorization or a LightGCN, got LinearScorer"):
        CatalogueModule(rs.LinearScorer(2))
    with pytest.raises(
        ValueError, match="negatives must be one of 'all', 'uniform', 'popularity', 'in-batch', got 'some'"
    ):
        CatalogueModule(scorer, negatives="some")


def test_cross_validation_has_the_values_of_users(tmp_path):
    given = ["--trainer.max_epochs", "2", *CONFIG[2:], "--model.scorer.init_args.rank", "4"]
    given += ["--processes", "0"]
    cross_validate.main(["cross-validate", *CONFIG[:2], "--output", str(tmp_path), "--seeds", "2", *given])
    (run,) = tmp_path.glob("run_seed=*")
    result = json.loads((run / "result.json").read_text())
    for name, mean in result["test"].items():
        assert len(result["test_values"][name]) > 300
        assert np.mean(result["test_values"][name]) == pytest.approx(mean, abs=1e-6)
    assert not list(tmp_path.rglob("*scores.txt"))
    with pytest.raises((ValueError, SystemExit), match="data of synthetic have no folds, got fold 1"):
        cross_validate.main(["cross-validate", *CONFIG[:2], "--output", str(tmp_path / "x"), "--folds", "1", *given])


def test_names_of_items_have_a_line_each(tmp_path, capsys):
    table = pd.DataFrame({"user": np.repeat(np.arange(20), 4), "item": [f"it\nem {i}" for i in np.arange(80) % 11]})
    table.to_csv(tmp_path / "data.csv", index=False)
    path = ["--data.path", str(tmp_path / "data.csv")]
    main(["fit", *CONFIG[:2], *path, "--output", str(tmp_path / "my run"), "--trainer.max_epochs", "1", *QUIET])
    printed = capsys.readouterr().out
    assert f"tensorboard --logdir '{tmp_path / 'my run'}'" in printed
    assert f"predict --run '{tmp_path / 'my run'}/" in printed
    (names,) = tmp_path.rglob("item_names.txt")
    assert names.read_text().splitlines() == sorted({f"it em {i}" for i in range(11)})
    assert len(np.load(names.with_name("item_vectors.npy"))) == 11


def test_lightgcn_trains_from_a_config(tmp_path):
    scorer = ["--model.scorer", "rankstruct.recommenders.LightGCN", "--model.scorer.init_args.rank", "8"]
    main(
        [
            "fit",
            *CONFIG[:2],
            *scorer,
            "--data.builtin",
            "synthetic",
            "--output",
            str(tmp_path),
            *QUIET,
            "--trainer.max_epochs",
            "2",
        ]
    )
    scorer = rs.load_scorer(run_in(tmp_path))
    assert scorer.graph.shape[1] == InteractionsSource(builtin="synthetic").read().train.num_ratings
    data = InteractionsDataModule(builtin="synthetic")
    assert scorer.item_scores(torch.tensor([0])).shape == (1, data.num_items)


@pytest.mark.filterwarnings("ignore:.* are not in .*nothing is learnt about them")
def test_the_data_of_published_figures_are_read_whole(data_root):
    parts = InteractionsSource(path=str(data_root / "implicit" / "ml-1m")).read()
    assert (parts.train.num_users, parts.train.num_items) == (6039, 3628)
    assert sum(part.num_ratings for part in (parts.train, parts.vali, parts.test)) == 836_478
