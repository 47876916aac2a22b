"""The recommender experiment: tuned on users of its own, restartable, a table for each split."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scripts_by_path import script

from rankstruct.losses import ListNetLoss, SquaredLoss, StructuredHingeLoss
from rankstruct.recommenders import item_means, popularity, synthetic_ratings, weak_split

pytestmark = pytest.mark.soak

recommenders = script("recommender_experiment")
START, Settings, main = recommenders.START, recommenders.Settings, recommenders.main
measure_users, read_groups, tuning_users = (
    recommenders.measure_users,
    recommenders.read_groups,
    recommenders.tuning_users,
)
recommender_experiment = recommenders.recommender_experiment
strong_parts, weak_parts = recommenders.strong_parts, recommenders.weak_parts

METHODS = ["popularity", "item means", START, "squared", "ListNet", "alternating", "CGPR", "JRank"]


@pytest.fixture
def quick(monkeypatch):
    def alternating(_):
        return StructuredHingeLoss("nDCG@5", reference="ideal")

    factorizations = {
        START: Settings(lambda _: SquaredLoss(), "standardised", (0.1, 0.3), learning_rate=0.03, steps=40),
        "squared": Settings(lambda _: SquaredLoss(), "standardised", (0.3,), steps=4, keep_start=True),
        "ListNet": Settings(lambda _: ListNetLoss(), regularizations=(0.1, 0.3), steps=4),
        "alternating": Settings(
            alternating, regularizations=(0.3,), steps=1, alternating=True, new_user_method="bundle"
        ),
    }
    monkeypatch.setattr(recommenders, "FACTORIZATIONS", factorizations)
    kept = ("CGPR", "JRank", "GPR")
    comparators = {name: recommenders.COMPARATORS[name] for name in kept}
    monkeypatch.setattr(recommenders, "COMPARATORS", comparators)


def ratings():
    return synthetic_ratings(users=60, items=50, rank=2, rated=40)


def groups():
    return {
        "weak": [lambda seed=seed: weak_parts(ratings(), 20, seed) for seed in range(2)],
        "strong": [lambda seed=seed: strong_parts(ratings(), 20, seed) for seed in range(2)],
    }


def test_results_are_kept_and_not_computed_again(quick, tmp_path, monkeypatch):
    tables = recommender_experiment(groups(), tmp_path, rank=2)
    assert list(tables) == ["weak", "strong"]
    header, rows = tables["weak"]
    assert [row[0] for row in rows] == METHODS
    assert header[:5] == ["method", "nDCG@10", "vs squared", "p", "parts won"]
    parts = [weak_parts(ratings(), 20, seed) for seed in range(2)]
    means = [measure_users(popularity(part.train), part.test)["nDCG@10"].mean() for part in parts]
    assert rows[0][1] == f"{np.mean(means):.4f} ± {np.std(means, ddof=1) / math.sqrt(2):.4f}"
    results = sorted(tmp_path.glob("*/*/result.json"))
    assert len(results) == 2 * 2 * len(METHODS)
    found = json.loads((tmp_path / "weak-0" / "ListNet" / "result.json").read_text())
    assert found["users"] == sorted(set(range(60)) - set(tuning_users(60).tolist()))
    assert {name: len(each["values"]) for name, each in found["measures"].items()} == {"nDCG@10": 45, "ERU": 45}

    (tmp_path / "strong-1" / "JRank" / "result.json").unlink()  # as after a kill
    trained, fitted = [], []
    fit = recommenders._fit_comparator
    monkeypatch.setattr(
        recommenders, "_fit_comparator", lambda each, *options: fitted.append(each) or fit(each, *options)
    )
    run = recommenders._Training.run
    monkeypatch.setattr(
        recommenders._Training, "run", lambda self, *options: trained.append(self.settings) or run(self, *options)
    )
    assert recommender_experiment(groups(), tmp_path, rank=2) == tables
    assert fitted == [recommenders.COMPARATORS["JRank"]]
    recommender_experiment(groups(), tmp_path, rank=2)
    assert len(fitted) == 1
    assert not trained
    with pytest.raises(ValueError, match="holds a run that differs in rank"):
        recommender_experiment(groups(), tmp_path, rank=3)


@pytest.mark.parametrize("changed", ["a rating", "a name", "the features"])
def test_results_of_other_data_are_not_those_of_these(monkeypatch, tmp_path, changed):
    monkeypatch.setattr(recommenders, "FACTORIZATIONS", {"squared": None, START: None})
    monkeypatch.setattr(recommenders, "COMPARATORS", {})
    measured = {name: {"setting": {}, "values": [0.5, 0.6], "validation": 0.5} for name in recommenders.MEASURES}
    monkeypatch.setattr(recommenders, "_run_method", lambda *_: {"users": [0, 1], "seconds": 0, "measures": measured})
    before = ratings()

    def run(given, features):
        parts = {"weak": [lambda seed=seed: weak_parts(given, 20, seed) for seed in range(2)]}
        recommender_experiment(parts, tmp_path, rank=2, features=features)

    features = np.zeros((50, 2))
    run(before, features)
    run(before, features)
    if changed == "a rating":
        after = replace(before, rating=np.where(np.arange(before.num_ratings) == 7, 6 - before.rating, before.rating))
    else:
        names = before.user_names.tolist()
        after = replace(before, user_names=["other", *names[1:]]) if changed == "a name" else before
    with pytest.raises(ValueError, match="holds a run that differs in data"):
        run(after, features + (changed == "the features"))


def test_later_seeds_keep_what_the_first_one_chose(quick, tmp_path):
    recommender_experiment(groups(), tmp_path, methods=["ListNet", "CGPR"], rank=2)
    chosen = {
        (path.parts[-3], path.parts[-2], measure): each["setting"]
        for path in tmp_path.glob("*/*/result.json")
        for measure, each in json.loads(path.read_text())["measures"].items()
    }
    names = {method.replace(" ", "-").replace(",", "-") for method in set(METHODS) - {"alternating", "JRank"}}
    assert {method for _, method, _ in chosen} == names
    for (part, method, measure), setting in chosen.items():
        first = chosen[part[:-1] + "0", method, measure]
        assert {**setting, "steps": None} == {**first, "steps": None}
        if method in ("popularity", "item-means"):
            assert setting == {}
        elif method == "CGPR":
            assert setting in recommenders.COMPARATORS["CGPR"].settings
        else:
            assert (setting["given_regularization"] is not None) == part.startswith("strong")


def test_factorisation_beats_item_means_for_known_and_new_users(quick, tmp_path):
    tables = recommender_experiment(groups(), tmp_path, methods=["squared", "CGPR"], rank=2)
    for _, rows in tables.values():
        values = {row[0]: float(row[1].split()[0]) for row in rows}
        assert values["squared"] > values["item means"] + 0.02
        assert values["CGPR"] > values["item means"] + 0.02


def test_a_comparator_gets_its_setting_on_validation_and_its_features(monkeypatch, tmp_path):
    class Known(torch.nn.Module):
        def __init__(self, known, good, sign):
            super().__init__()
            table = torch.zeros(known.num_users, known.num_items)
            table[known.user, known.item] = torch.from_numpy(known.rating)
            self.table, self.sign = table, sign if good else -sign

        def forward(self, features):
            user, item = features.long().unbind(-1)
            return self.sign * self.table[user, item]

    whole = ratings()

    def fit(train, known, features, sign):
        assert features is items
        assert set(known.user.tolist()) == set(range(60))  # new users are known by what they gave
        return Known(whole, True, sign)

    items = np.eye(50)
    monkeypatch.setattr(
        recommenders, "COMPARATORS", {"ours": recommenders.Comparator(fit, ({"sign": -1.0}, {"sign": 1.0}), True)}
    )
    parts = strong_parts(whole, 20, 0)
    found = recommenders._fit_comparator(recommenders.COMPARATORS["ours"], parts, items, {})
    for name, (validation, tested, setting) in found.items():
        assert setting == {"sign": 1.0}
        best = measure_users(Known(whole, True, 1.0), parts.vali)[name].mean()
        assert validation == pytest.approx(best)
        assert len(tested) == len(np.unique(parts.test.user))
    assert recommenders._names(None, True)[-1] == "ours"
    assert "ours" not in recommenders._names(["ours"], False)


def test_a_page_shows_means_with_marks():
    header = ["method", "nDCG@10", "vs squared", "p", "parts won", "ERU", "vs squared", "p", "parts won"]
    rows = [
        ["GPR", "0.5000 ± 0.0100", "-0.1000", "0.001", "0/2", "5.0000 ± 0.1000", "+0.2000", "0.04", "2/2"],
        ["squared", "0.6000 ± 0.0100", "", "", "", "4.8000 ± 0.1000", "", "", ""],
    ]
    tables = {"weak10": (header, rows), "folds": (header, rows)}
    assert recommenders.page_table(tables, ["weak10", "folds"]) == (
        ["method", "N = 10 nDCG@10", "N = 10 ERU", "folds nDCG@10", "folds ERU"],
        [
            ["GPR", *["0.5000 ± 0.0100 --", "5.0000 ± 0.1000 +"] * 2],
            ["squared", *["0.6000 ± 0.0100", "4.8000 ± 0.1000"] * 2],
        ],
    )


def test_tuning_users_are_never_tested_and_new_users_never_trained_on():
    data = ratings()
    tuning = set(tuning_users(60).tolist())
    assert len(tuning) == 15
    tested = []
    for seed in range(3):
        weak, strong = weak_parts(data, 20, seed), strong_parts(data, 20, seed)
        for part in (weak, strong):
            assert set(part.vali.user.tolist()) == tuning
            assert not set(part.test.user.tolist()) & tuning
        assert set(strong.vali_given.user.tolist()) == tuning
        assert set(strong.test_given.user.tolist()) == set(strong.test.user.tolist())
        assert not set(strong.train.user.tolist()) & (tuning | set(strong.test.user.tolist()))
        assert set(np.diff(strong.test_given.offsets).tolist()) == {0, 20}
        assert sum(part.num_ratings for part in strong[:5]) == data.num_ratings
        tested.append(set(strong.test.user.tolist()))
    assert tested[0] != tested[1]
    assert not item_means(strong.train).scores.isnan().any()


def test_command(quick, tmp_path, capsys):
    data = ratings()
    split = weak_split(data, 25)
    for name, part in (("u.data", data), *((f"u{n}.base", split.train) for n in range(1, 6))):
        rows = zip(part.user, part.item, part.rating.astype(int), strict=True)
        (tmp_path / name).write_text("".join(f"{u}\t{i}\t{r}\t0\n" for u, i, r in rows))
    for number in range(1, 6):
        rows = zip(split.test.user, split.test.item, split.test.rating.astype(int), strict=True)
        (tmp_path / f"u{number}.test").write_text("".join(f"{u}\t{i}\t{r}\t0\n" for u, i, r in rows))
    options = ["--train-ratings", "20", "--seeds", "1", "--rank", "2", "--methods", "squared"]
    options += ["--json", str(tmp_path / "found.json")]
    out = str(tmp_path / "out")
    assert main(["--data", str(tmp_path), "--splits", "weak", "folds", *options, "--output", out]) == 0
    printed = capsys.readouterr().out
    assert "weak20: 1 parts" in printed
    assert "folds: 5 parts" in printed
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["tables"]["folds"]["header"] == ["method", "folds nDCG@10", "folds ERU"]
    assert str(tmp_path) not in found["command"]
    assert "--data FOLDER" in found["command"]
    assert main(["--data", str(tmp_path / "absent")]) == 1
    assert "neither u.data" in capsys.readouterr().err
    with pytest.raises(
        ValueError, match="methods must be of squared, first stage, squared, ListNet, alternating, CGPR"
    ):
        recommender_experiment({}, tmp_path, methods=["DCRank"])
    with pytest.raises(ValueError, match="seeds must be at least 1"):
        read_groups(tmp_path, seeds=0)


def test_jester_has_known_ratings_of_every_judged_user(data_root):
    folder = data_root / "ratings" / "jester5k"
    if not folder.is_dir():
        pytest.skip(f"no ratings at {folder}")
    groups = read_groups(folder, splits=["weak"], num_train=[20], seeds=1)
    (read,) = groups["weak20"]
    assert set(np.diff(read().train.offsets).tolist()) <= {0, 20}
