"""The recommender experiment: tuned, restartable, one table."""

import json

import numpy as np
import pytest

from rankstruct.data import synthetic_ratings, weak_split
from rankstruct.experiments import recommenders
from rankstruct.experiments.recommenders import Recipe, main, measure_users, read_parts, recommender_experiment
from rankstruct.losses import ListNetLoss, SquaredLoss
from rankstruct.recommenders import popularity


@pytest.fixture
def quick(monkeypatch):
    recipes = {
        "squared": Recipe(lambda _: SquaredLoss(), "standardised", False, (0.3,), learning_rate=0.03, epochs=4),
        "ListNet": Recipe(lambda _: ListNetLoss(), regularizations=(0.3,), epochs=2),
    }
    monkeypatch.setattr(recommenders, "RECIPES", recipes)
    return tuple(recipes)


def part():
    split = weak_split(synthetic_ratings(users=60, items=50, rank=2, rated=40), 25)
    return split.train, split.test


def test_results_are_kept_and_not_computed_again(quick, tmp_path, monkeypatch):
    header, rows = recommender_experiment({"a": part, "b": part}, tmp_path, methods=quick, rank=2)
    assert [row[0] for row in rows] == ["popularity", "item means", "squared", "ListNet"]
    assert header[1] == "test nDCG@10"
    assert rows[0][1] == pytest.approx(measure_users(popularity(part()[0]), part()[1])["nDCG@10"].mean())
    lines = (tmp_path / "results.jsonl").read_text().splitlines()
    assert len(lines) == 2 * 4 * 2
    found = json.loads(lines[-1])
    assert (found["method"], found["regularization"]) == ("ListNet", 0.3)
    assert np.load(tmp_path / "values" / "a-ListNet-nDCG-10.npy").shape == (60,)

    with open(tmp_path / "results.jsonl", "w") as file:  # the last one was being written
        file.write("\n".join(lines[:-1]) + "\n" + lines[-1][:20] + "\n")
    trained = []
    train = recommenders.train
    monkeypatch.setattr(recommenders, "train", lambda *args, **options: trained.append(1) or train(*args, **options))
    assert recommender_experiment({"a": part, "b": part}, tmp_path, methods=quick, rank=2) == (header, rows)
    assert len(trained) == 2  # tuning and training of one method for one measure
    trained.clear()
    recommender_experiment({"a": part, "b": part}, tmp_path, methods=quick, rank=2)
    assert not trained
    with pytest.raises(ValueError, match="results of another rank"):
        recommender_experiment({"a": part}, tmp_path, methods=quick, rank=2)


def test_command(quick, tmp_path, capsys):
    train, test = part()
    for name, ratings in (("base", train), ("test", test)):
        lines = zip(ratings.user, ratings.item, ratings.rating.astype(int), strict=True)
        (tmp_path / f"u1.{name}").write_text("".join(f"{u}\t{i}\t{r}\t0\n" for u, i, r in lines))
    options = ["--folds", "1", "--rank", "2", "--methods", "squared", "--output", str(tmp_path / "out")]
    assert main(["--data", str(tmp_path), *options]) == 0
    assert "item means" in capsys.readouterr().out
    assert main(["--data", str(tmp_path / "absent")]) == 1
    assert "neither u1.base" in capsys.readouterr().err
    with pytest.raises(ValueError, match="methods must be of squared, ListNet; got DCRank"):
        recommender_experiment({}, tmp_path, methods=["DCRank"])


def test_jester_is_split_weakly(data_root):
    folder = data_root / "ratings" / "jester5k"
    if not folder.is_dir():
        pytest.skip(f"no ratings at {folder}")
    ((name, read),) = read_parts(folder, num_train=20).items()
    train, _ = read()
    assert name == "weak20"
    assert set(np.diff(train.offsets).tolist()) == {20} | ({0} if (np.diff(train.offsets) == 0).any() else set())
