"""Factorisations trained from configs: runs, resuming, new users, recommendations, errors."""

import contextlib
import csv
import io
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from programs import assert_a_killed_fit_resumes_to_the_same_bits, run_in

import rankstruct as rs
from rankstruct.commands.fit import main
from rankstruct.data import read_run
from rankstruct.recommenders import synthetic_ratings
from rankstruct.recommenders.training import SplitRatingsDataModule

pytestmark = pytest.mark.usefixtures("no_pictures_here")

ROOT = Path(__file__).parents[2]
CONFIG = ["--config", str(ROOT / "configs" / "ratings-synthetic.yaml")]
QUIET = ["--trainer.enable_progress_bar", "false"]


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        main(["fit", *CONFIG, "--output", str(folder), *QUIET])
    return run_in(folder), out.getvalue()


@pytest.fixture
def csv_file(tmp_path):
    ratings = synthetic_ratings(users=60, items=50, rank=2, rated=40)
    rows = zip(ratings.user, ratings.item, ratings.rating.astype(int), strict=True)
    path = tmp_path / "ratings.csv"
    path.write_text("user,item,rating\n" + "".join(f"u{u},i{i},{r}\n" for u, i, r in rows))
    return path


def test_a_run_beats_item_means_and_has_the_files_of_a_ranker(finished):
    folder, printed = finished
    report = json.loads((folder / "metrics.json").read_text())
    data = SplitRatingsDataModule(builtin="synthetic", num_train=30)
    lists = data.splits.test
    features, labels, offsets = map(torch.from_numpy, (lists.features, lists.labels, lists.offsets))

    def value(scorer):
        with torch.no_grad():
            return float(rs.evaluate(scorer(features), labels, "nDCG@10", offsets=offsets)["nDCG@10"].mean())

    assert report["test"]["nDCG@10"] > value(rs.recommenders.item_means(data.known)) + 0.03
    assert report["test"]["nDCG@10"] == pytest.approx(value(rs.load_scorer(folder)), abs=1e-6)
    assert re.search(rf"^nDCG@10 +{report['test']['nDCG@10']:.4f}", printed, re.MULTILINE)
    assert report["parameters"]["split"] == "weak"
    for name in ("config.yaml", "checkpoints/best.ckpt", "checkpoints/last.ckpt"):
        assert (folder / name).is_file()
    assert list(folder.glob("events.out.tfevents*"))
    assert "task: ratings" in (folder / "config.yaml").read_text()


def test_test_and_predict_use_a_run(finished, capsys):
    folder, _ = finished
    value = json.loads((folder / "metrics.json").read_text())["test"]["nDCG@10"]
    main(["test", "--run", str(folder), *QUIET])
    assert re.search(rf"^nDCG@10 +{value:.4f}", capsys.readouterr().out, re.MULTILINE)
    main(["predict", "--run", str(folder), "--data.recommend", "3", *QUIET])
    assert "3 items for each of 400 users" in capsys.readouterr().out
    assert len(read_run(folder / "run.txt")) == 400
    with open(folder / "recommendations.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 1200
    assert [row["rank"] for row in rows[:3]] == ["1", "2", "3"]
    data = SplitRatingsDataModule(builtin="synthetic", num_train=30)
    rated = set(zip(data.known.user.tolist(), data.known.item.tolist(), strict=True))
    assert not rated & {(int(row["user"]), int(row["item"])) for row in rows}
    scores = rs.load_scorer(folder).item_scores(torch.tensor([0])).detach()[0].numpy()
    main(["predict", "--run", str(folder), "--data.recommend", "121", *QUIET])  # of 120 that they have not rated
    assert "121 items for each of 0 users, fewer for 400 users, for whom no more are left" in capsys.readouterr().out
    open_items = np.setdiff1d(np.arange(150), data.known.item[data.known.user == 0])
    best = open_items[np.argsort(-scores[open_items])[:3]]
    assert [int(row["item"]) for row in rows[:3]] == best.tolist()


def test_a_csv_file_trains_for_either_split(csv_file, tmp_path, capsys):
    known = ["--data.builtin", "null", "--data.path", str(csv_file), "--data.scale", "stars", "--data.num_train", "20"]
    for split, lists in (("weak", 60), ("strong", 12)):
        new = ["--data.new_users", "0.2"] if split == "strong" else []
        options = ["--data.split", split, *new, "--trainer.max_epochs", "3"]
        main(["fit", *CONFIG, *known, *options, "--output", str(tmp_path / split), *QUIET])
        assert f"means over {lists} test lists" in capsys.readouterr().out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("loss", ["rankstruct.SquaredLoss", "rankstruct.RankNetLoss"])
def test_new_users_get_factors_from_what_is_given(loss, tmp_path):
    bias = ["--model.scorer.init_args.user_bias", "true"] if "Squared" in loss else []
    labels = "standardised" if "Squared" in loss else "rating"  # only a regression takes labels below 0
    options = ["--data.split", "strong", "--data.num_train", "40", "--data.labels", labels]
    options = [*options, "--model.loss", loss, *bias, "--trainer.max_epochs", "12"]
    cli = main(["fit", *CONFIG, *options, "--output", str(tmp_path), *QUIET])
    report = json.loads((run_in(tmp_path) / "metrics.json").read_text())
    lists = cli.datamodule.splits.test
    scores = rs.recommenders.item_means(cli.datamodule.known)(torch.from_numpy(lists.features))
    base = rs.evaluate(scores, torch.from_numpy(lists.labels), "nDCG@10", offsets=torch.from_numpy(lists.offsets))
    assert report["test"]["nDCG@10"] > float(base["nDCG@10"].mean()) + 0.02
    users = torch.from_numpy(np.unique(cli.datamodule.given["test"].features[:, 0])).long()
    assert not torch.isin(users, torch.from_numpy(cli.datamodule.lists.features[:, 0]).long()).any()


def test_training_starts_from_another_run(finished, tmp_path):
    start = ["--model.start_from", str(finished[0]), "--model.optimizer.init_args.lr", "0.0"]
    options = ["--output", str(tmp_path), "--trainer.max_epochs", "1", *QUIET]
    main(["fit", *CONFIG, *start, *options])
    found = [json.loads((run / "metrics.json").read_text()) for run in (run_in(tmp_path), finished[0])]
    assert found[0]["test"] == found[1]["test"]
    with pytest.raises(
        ValueError, match=r"with users, items and rank \(400, 150, 4\); start_from requires \(400, 150, 5\)"
    ):
        main(["fit", *CONFIG, *start, *options, "--model.scorer.init_args.rank", "5"])


@pytest.mark.soak
def test_a_killed_run_with_new_users_resumes_to_the_same_bits(tmp_path):
    command = [
        *(sys.executable, "-m", "rankstruct", "fit", *CONFIG, "--data.split", "strong", "--save_every_steps", "2"),
        *("--data.max_items", "30", "--trainer.max_epochs", "40", "--average_weights", "true", *QUIET),
    ]
    assert_a_killed_fit_resumes_to_the_same_bits(command, tmp_path)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.path", "/nowhere/u.data"], "give either data.path"),
        (["--data.builtin", "null", "--data.path", "/nowhere/u.data"], "/nowhere/u.data: no such file"),
        (["--data.num_train", "100"], "expected users with 100 + 10 ratings"),
        (["--data.lists_per_batch", "8"], "lists_per_batch"),
        (["--data.builtin", "null", "--data.path", "/nowhere", "--data.format", "netflix"], "netflix"),
        (["--model.regularization", "-1"], "regularization must be a finite number of at least 0"),
        (["--task", "films"], "task must be one of ranking, ratings, implicit, text, got 'films'"),
    ],
)
def test_errors_are_named(arguments, message, tmp_path, capsys):
    with pytest.raises((SystemExit, ValueError)) as caught:
        main(["fit", *CONFIG, "--output", str(tmp_path), *arguments])
    assert message in str(caught.value) + capsys.readouterr().err


def test_a_broken_file_is_named_with_its_line(tmp_path):
    (tmp_path / "u.data").write_text("1\t1\t5\t0\n1\t2\t9\t0\n")
    options = ["--data.builtin", "null", "--data.path", str(tmp_path)]
    with pytest.raises(ValueError, match=r"u.data, line 2: expected a rating from 1 to 5"):
        main(["fit", *CONFIG, "--output", str(tmp_path / "out"), *options])


def test_new_users_need_regularization(tmp_path):
    options = ["--data.split", "strong", "--model.regularization", "0", "--trainer.max_epochs", "1", *QUIET]
    with pytest.raises(ValueError, match="factors of new users require regularization above 0"):
        main(["fit", *CONFIG, "--output", str(tmp_path), *options])
