"""`rankstruct rank`: from files to a folder with a scorer, a ranker and a card; kills, reruns, what is refused."""

import json
import os
import pickle
import re
import shutil
import subprocess
import sys
import time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse as sp
import torch

import rankstruct as rs
from rankstruct.cli import main as rankstruct
from rankstruct.commands import rank
from rankstruct.data import RankingData, read_folds, read_scores
from rankstruct.estimators.auto import SELECTION
from rankstruct.statistics import bootstrap_interval

QUICK = ["--time-budget", "0"]


def write(folder, lists=30, size=6):
    """The three files of a fold, sparse: the last feature is 0 in the test file."""
    folder.mkdir(parents=True)
    for seed, part in enumerate(("train", "vali", "test")):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(lists * size, 5))
        y = np.clip(np.floor(X[:, 0] + 0.5 * rng.normal(size=len(X)) + 0.5), 0, 2).astype(int)
        X[:, 3], X[:, 4] = 0.1, X[:, 4] * (part != "test")
        lines = [
            f"{y[i]} qid:{i // size} " + " ".join(f"{k + 1}:{v:.4f}" for k, v in enumerate(X[i]) if v)
            for i in range(len(y))
        ]
        (folder / f"{part}.txt").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    return write(tmp_path_factory.mktemp("data") / "Fold1").parent


@pytest.fixture(scope="module")
def finished(data):
    output = data.parent / f"{data.name}-out"
    assert rankstruct(["rank", str(data), "--fold", "1", *QUICK, "--output", str(output)]) == 0
    return output


def contents(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_the_folder_has_a_tested_ranker_of_raw_features(finished, data):
    assert set(contents(finished)) == {".lock", "README.md", "ranker.pkl", "request.json", "result.json", "scorer.pt"}
    result = json.loads((finished / "result.json").read_text())
    test = read_folds(data, 1).test
    ranker = pickle.loads((finished / "ranker.pkl").read_bytes())
    expected = ranker.predict(test.features, test.list_numbers)
    scorer = rs.load_scorer(finished)
    offsets = torch.tensor(test.offsets)
    scores = scorer(torch.tensor(test.features), offsets=offsets).detach()
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    for name, each in rs.evaluate(scores, test.labels, ["AP", "nDCG@10", "RR@10"], offsets=offsets).items():
        assert result["test"][name]["mean"] == pytest.approx(each.mean().item(), abs=1e-12)
        assert result["test"][name]["interval"] == pytest.approx(bootstrap_interval(each.numpy()))
    assert result["test"]["AP"]["mean"] > 0.7
    assert result["model"] == ranker.selected_ == "linear, graded AUC"
    assert result["measure"] == ranker.measure_ == "nDCG@10"
    assert "its selection nDCG@10 is" in result["reason"]
    first = (finished / "README.md").read_text().splitlines()[2]
    assert first == result["reason"] + "."
    assert first.startswith("left out by the time budget of 0 s: 'MLP, LambdaLoss nDCG' (estimated 0.")


def test_what_makes_a_test_say_less_than_it_seems_to_is_remarked(data, finished, tmp_path, capsys):
    assert json.loads((finished / "result.json").read_text())["remarks"] == []
    fold = data / "Fold1"
    lines = (fold / "train.txt").read_text().splitlines()
    wider = [
        f"0 {line.split(' ', 1)[1]} 6:1 8:2" for line in lines[12:24]
    ]  # two of the lists, and features of their own
    (tmp_path / "test.txt").write_text("\n".join(lines[:12] + wider) + "\n")
    given = [
        "--train",
        str(fold / "vali.txt"),
        "--vali",
        str(fold / "train.txt"),
        "--test",
        str(tmp_path / "test.txt"),
    ]
    assert rankstruct(["rank", *given, *QUICK, "--output", str(tmp_path / "out")]) == 0
    printed, card = capsys.readouterr().out, (tmp_path / "out" / "README.md").read_text()
    assert f"\n{SELECTION}\n" in printed
    for remark in (
        "2 of 4 test lists are also training lists",
        "features 6, 8 are constant in the training data",
    ):
        assert f"warning: {remark}" in printed
        assert f"**Warning**: {remark}" in card
    (tmp_path / "test.txt").write_text("\n".join(wider).replace(" 8:2", "") + "\n")
    assert rankstruct(["rank", *given, *QUICK, "--output", str(tmp_path / "none")]) == 0
    printed = capsys.readouterr().out
    assert "warning: feature 6 is constant in the training data" in printed
    assert "warning: no test document is relevant" in printed
    assert "test lists are" not in printed


def test_remarks_are_the_same_of_sparse_features():
    rng = np.random.default_rng(0)
    X = np.where(rng.random((40, 9)) < 0.2, rng.normal(size=(40, 9)), -0.0).astype(np.float32)
    X[:, 3] = 0
    given = rng.integers(0, 2, 40), np.repeat(np.arange(8), 5)
    dense, sparse = RankingData.from_arrays(X, *given), RankingData.from_arrays(sp.csr_array(X), *given)
    X = X.copy()
    X[:5], X[0, 3] = rng.normal(size=(5, 9)), 1
    other = RankingData.from_arrays(sp.csr_array(X), *given)
    for train in (dense, sparse):
        first, second = rank._remarks({"train": train, "test": other})
        assert first.startswith("7 of 8 test lists")
        assert second.startswith("feature 4 is constant")
    # documents in another order, and numbers of half the size
    order, given = np.tile([4, 2, 0, 1, 3], 8) + np.repeat(np.arange(8) * 5, 5), (given[0], given[1])
    halves = RankingData.from_arrays(np.round(X, 2).astype(np.float16), *given)
    same = RankingData.from_arrays(halves.features.astype(np.float32)[order], *given)
    assert rank._remarks({"train": halves, "test": same})[0].startswith("8 of 8 test lists")


def test_the_folder_is_taken_by_predict(finished, data, tmp_path, capsys):
    folder = shutil.copytree(finished, tmp_path / "ranked")
    (tmp_path / "new.txt").write_text((data / "Fold1" / "test.txt").read_text())
    assert rankstruct(["predict", "--run", str(folder), "--data.predict_path", str(tmp_path / "new.txt")]) == 0
    assert f"scores of 180 documents: {folder / 'scores.txt'}" in capsys.readouterr().out
    test = read_folds(data, 1).test
    ranker = pickle.loads((finished / "ranker.pkl").read_bytes())
    expected = ranker.predict(test.features, test.list_numbers)
    np.testing.assert_allclose(read_scores(folder / "scores.txt"), expected, atol=1e-6)
    assert len((folder / "run.txt").read_text().splitlines()) == 180
    assert rankstruct(["rank", str(data), "--fold", "1", *QUICK, "--output", str(folder)]) == 0  # still finished
    assert "nothing was trained" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="2"):
        rankstruct(["predict", "--run", str(folder)])
    assert "required: --data.predict_path" in capsys.readouterr().err
    assert rankstruct(["test", "--run", str(folder)]) == 1
    assert f"use it with rankstruct predict or rs.load_scorer('{folder}')" in capsys.readouterr().err


def test_lists_are_scored_in_parts(finished, data, tmp_path, monkeypatch):
    found = []
    for number in (7, 1000):
        monkeypatch.setattr(rank, "_LISTS", number)
        folder = shutil.copytree(finished, tmp_path / str(number))
        assert rankstruct(["predict", f"--run={folder}", f"--data.predict_path={data / 'Fold1' / 'vali.txt'}"]) == 0
        found.append(read_scores(folder / "scores.txt"))
    np.testing.assert_allclose(*found, atol=1e-6)


def test_the_card_says_what_it_is(finished):
    card, result = (finished / "README.md").read_text(), json.loads((finished / "result.json").read_text())
    digests = json.loads((finished / "request.json").read_text())["request"]["data"].values()
    assert len(set(digests)) == 3
    means = [f"{value:.4f}" for each in result["test"].values() for value in (each["mean"], *each["interval"])]
    chosen = [f"{value:.4f}" for value in result["models"][0]["validation"].values()]
    versions = (rs.__version__, version("torch"), np.__version__)
    for text in (*digests, *means, *chosen, *versions, result["model"], result["reason"], "30 |         180 |"):
        assert text in card
    code = card.partition("```python\n")[2].partition("```")[0]
    before = Path.cwd()
    try:
        os.chdir(finished)
        exec(code, names := {})
    finally:
        os.chdir(before)
    assert names["scores"].shape == (30,)


def test_a_finished_one_is_read_and_another_is_refused(finished, data, capsys, monkeypatch):
    before = contents(finished)
    given = ["rank", str(data), "--fold", "1", *QUICK, "--output", str(finished)]
    with monkeypatch.context() as patch:
        patch.setattr(rank.AutoRanker, "fit", None)
        assert rankstruct(given) == 0
    shown = capsys.readouterr().out
    assert "linear, graded AUC" in shown
    assert (
        "selected by nDCG@10, the default for graded labels; --measures sets others, of which the first selects"
        in shown
    )
    assert "measure nDCG@10, " in (finished / "README.md").read_text()
    assert "nothing was trained, the same request was finished before: " in shown
    assert rankstruct([*given, "--seed", "1"]) == 1
    assert "differs in options.random_state; use another --output" in capsys.readouterr().err
    assert contents(finished) == before


def test_one_list_is_no_estimate_for_others(data, tmp_path, capsys):
    lines = (data / "Fold1" / "train.txt").read_text()
    (tmp_path / "train.txt").write_text(re.sub(r"qid:\d+", "qid:1", lines))
    with pytest.warns(UserWarning, match="pass more lists"):
        assert rankstruct(["rank", "--train", f"{tmp_path}/train.txt", *QUICK, "--output", f"{tmp_path}/a"]) == 0
    said = "the only list was split by its documents, so this does not estimate performance on new lists"
    assert said in capsys.readouterr().out
    card = (tmp_path / "a" / "README.md").read_text()
    assert said in card
    assert "The documents of the one list were split into folds; hyperparameters" in card


def test_tables_of_lists_give_the_same(data, finished, tmp_path):
    pytest.importorskip("pyarrow")
    for name, part in zip(("train", "vali", "test"), read_folds(data, 1), strict=True):
        columns = np.column_stack([part.labels, part.list_numbers, part.features])
        head = "label,qid," + ",".join(f"f{i}" for i in range(5))
        np.savetxt(tmp_path / f"{name}.csv", columns, "%.9g", ",", header=head, comments="")
    assert rankstruct(["rank", str(tmp_path), *QUICK, "--output", str(tmp_path / "out")]) == 0
    tests = [json.loads((folder / "result.json").read_text())["test"] for folder in (tmp_path / "out", finished)]
    assert tests[0]["AP"]["mean"] == pytest.approx(tests[1]["AP"]["mean"], abs=1e-6)


def test_ap_chooses_where_labels_are_not_graded_and_who_says_so_chooses(data, tmp_path, capsys):
    lines = (data / "Fold1" / "train.txt").read_text().splitlines()
    (tmp_path / "train.txt").write_text("\n".join(re.sub("^[12]", "1", line) for line in lines))
    given = ["rank", "--train", str(tmp_path / "train.txt"), *QUICK, "--output"]
    assert rankstruct([*given, str(tmp_path / "a")]) == 0
    assert "selected by AP, the default for binary labels" in capsys.readouterr().out
    assert rankstruct([*given, str(tmp_path / "b"), "--measures", "RR", "AP"]) == 0
    assert "--measures sets" not in capsys.readouterr().out
    results = [json.loads((tmp_path / name / "result.json").read_text()) for name in "ab"]
    assert [each["measure"] for each in results] == ["AP", "RR"]
    assert [list(json.loads((tmp_path / n / "request.json").read_text())["request"]["measures"]) for n in "ab"] == [
        ["AP", "nDCG@10", "RR@10"],
        ["RR", "AP"],
    ]


def test_a_folder_with_other_things_is_left_alone(data, capsys):
    before = contents(data / "Fold1")
    assert rankstruct(["rank", str(data), "--fold", "1", *QUICK, "--output", str(data / "Fold1")]) == 1
    assert "files that this command did not write" in capsys.readouterr().err
    assert contents(data / "Fold1") == before


@pytest.mark.slow
def test_a_killed_one_begins_again(data, tmp_path, finished):
    given = ["rank", str(data), "--fold", "1", "--output", str(tmp_path / "out"), "--time-budget"]
    process = subprocess.Popen([sys.executable, "-m", "rankstruct", *given, "1000"], stderr=subprocess.DEVNULL)
    while not (tmp_path / "out" / "request.json").is_file():
        assert process.poll() is None
        time.sleep(0.01)
    process.kill()
    process.wait()
    assert not (tmp_path / "out" / "result.json").exists()
    (tmp_path / "out" / "scorer.pt.17.part").touch()
    assert rankstruct([*given, "0"]) == 1  # which is another request, of which more is left than the request
    record = json.loads((finished / "request.json").read_text()) | {"outputs": {}}
    (tmp_path / "out" / "request.json").write_text(json.dumps(record))
    assert rankstruct([*given, "0"]) == 0
    assert (
        json.loads((tmp_path / "out" / "result.json").read_text())["test"]
        == json.loads((finished / "result.json").read_text())["test"]
    )


def with_labels(path, target, change):
    """A copy of a file with other labels, by their number in the file."""
    lines = path.read_text().splitlines()
    lines = [f"{change(at, line.split()[0])} {line.partition(' ')[2]}" for at, line in enumerate(lines)]
    target.write_text("\n".join(lines) + "\n")
    return str(target)


LARGE = "query '1', document 2 has label 2000 with gain inf; shift the labels, or use nDCG(gain='linear')@10"
IN_TRAINING = "got 2000 in query '1': use grades, such as 0 to 4"


@pytest.mark.parametrize(
    ("part", "options", "said"),
    [
        ("train", [], IN_TRAINING),
        ("vali", [], IN_TRAINING),
        ("train", ["--measures", "AP"], IN_TRAINING),
        ("train", ["--measures", "nDCG(gain='linear')@10", "AP"], IN_TRAINING),
        ("test", [], LARGE),
        ("test", ["--measures", "AP", "DCG"], "under DCG; query '1', document 2 has label 2000"),
        ("", ["--measures", "ERR(max_grade=1)"], "labels must be at most max_grade, 1, for ERR(max_grade=1); query '"),
        ("", ["--measures", "AP", "ERR(max_grade=1)"], "at most max_grade, 1, for ERR(max_grade=1); query '"),
        (
            "",
            ["--measures", "AP", "alpha_nDCG@5"],
            "alpha_nDCG@5 needs groups, which this command does not support (--measures",
        ),
    ],
)
def test_labels_of_every_file_are_tried_by_every_measure_before_training(
    part, options, said, data, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr(rank.AutoRanker, "fit", None)  # a call of it would be another error
    files = {name: str(data / "Fold1" / f"{name}.txt") for name in ("train", "vali", "test")}
    if part:
        path = data / "Fold1" / f"{part}.txt"
        files[part] = with_labels(path, tmp_path / path.name, lambda at, label: 2000 if at == 7 else label)
    given = ["--train", files["train"], "--vali", files["vali"], "--test", files["test"], *options]
    assert rankstruct(["rank", *given, *QUICK, "--output", str(tmp_path / "out")]) == 1
    message = capsys.readouterr().err
    assert said in message
    assert (files[part] if part else "Fold1/") in message
    assert set(contents(tmp_path / "out")) == {".lock"}


def test_a_measure_that_takes_large_labels_is_taken(data, tmp_path):
    train = str(data / "Fold1" / "train.txt")
    path = data / "Fold1" / "test.txt"
    test = with_labels(path, tmp_path / "test.txt", lambda at, label: 2000 if at == 7 else label)
    given = ["--train", train, "--test", test, "--measures", "nDCG(gain='linear')@10", "nDCG(min_relevant=1)@10"]
    assert rankstruct(["rank", *given, *QUICK, "--output", str(tmp_path / "out")]) == 0
    assert len(json.loads((tmp_path / "out" / "result.json").read_text())["test"]) == 2


@pytest.mark.sampled(2)
@pytest.mark.parametrize("error", [ValueError("no"), OSError(28, "No space left on device"), MemoryError()])
@pytest.mark.parametrize("broken", ["_summed", "_remarks", "model_card", "load_scorer"])
def test_what_was_trained_is_kept_where_the_end_fails(error, broken, data, finished, tmp_path, monkeypatch, capsys):
    given = ["rank", str(data), "--fold", "1", *QUICK, "--output", str(tmp_path)]

    def fail(*_):
        raise error

    with monkeypatch.context() as patch:
        patch.setattr(rank, broken, fail)
        assert rankstruct(given) == 1
    message = capsys.readouterr().err
    assert (
        f"the scorer is trained and saved in {tmp_path}/scorer.pt; the same command resumes from there, and" in message
    )
    assert set(contents(tmp_path)) == {".lock", "request.json", "scorer.pt", "ranker.pkl", "trained.json"}
    test = str(data / "Fold1" / "test.txt")
    if broken == "_summed":  # it is one to predict with
        assert rankstruct(["predict", "--run", str(tmp_path), "--data.predict_path", test]) == 0
        assert len(read_scores(tmp_path / "scores.txt")) == 180
    with monkeypatch.context() as patch:
        patch.setattr(rank.AutoRanker, "fit", None)
        assert rankstruct([*given, "--seed", "1"]) == 1
        assert "differs in options.random_state" in capsys.readouterr().err
        assert rankstruct(given) == 0
    ends = [json.loads((folder / "result.json").read_text()) for folder in (tmp_path, finished)]
    assert ends[0]["test"] == ends[1]["test"]
    assert set(contents(tmp_path)) - {"scores.txt", "run.txt"} == set(contents(finished))


def test_a_scorer_without_the_pickle_of_its_ranker_is_one_to_predict_with(data, tmp_path, monkeypatch, capsys):
    given = ["rank", "--train", str(data / "Fold1" / "train.txt"), *QUICK, "--output", str(tmp_path)]

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(rank.pickle, "dump", fail)
        assert rankstruct(given) == 1
    message = capsys.readouterr().err
    assert (
        f"'{tmp_path}/ranker.pkl'; the scorer is trained and saved in {tmp_path}/scorer.pt; the same command trains"
        in message
    )
    test = str(data / "Fold1" / "test.txt")
    assert rankstruct(["predict", "--run", str(tmp_path), "--data.predict_path", test]) == 0
    assert rankstruct(given) == 0
    assert (tmp_path / "ranker.pkl").is_file()


def test_a_full_disk_is_detected_before_training(data, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(rank.AutoRanker, "fit", None)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(10**9, 10**9, 1000))
    assert rankstruct(["rank", str(data), "--fold", "1", *QUICK, "--output", str(tmp_path / "out")]) == 1
    assert "out: expected 1.4 MB of free disk space, got 0.0 MB" in capsys.readouterr().err


@pytest.mark.parametrize("output", ["{data}/Fold1/test.txt", "{data}/Fold1/test.txt/deeper"])
def test_a_folder_that_cannot_be_made_is_found_before_training(output, data, monkeypatch, capsys):
    monkeypatch.setattr(rank.AutoRanker, "fit", None)
    output = output.format(data=data)
    assert rankstruct(["rank", str(data), "--fold", "1", *QUICK, "--output", output]) == 1
    assert output in capsys.readouterr().err


def test_ctrl_c_says_that_nothing_is_finished(data, tmp_path, monkeypatch, capsys):
    given = ["rank", str(data), "--fold", "1", *QUICK, "--output", str(tmp_path)]

    def stop(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(rank, "save_scorer", stop)
        assert rankstruct(given) == 130
    assert "is incomplete, the same command starts again" in capsys.readouterr().err
    assert set(contents(tmp_path)) == {".lock"}
    with monkeypatch.context() as patch:
        patch.setattr(rank, "_summed", stop)
        assert rankstruct(given) == 130
    assert "is incomplete, the same command tests the trained model" in capsys.readouterr().err
    assert rankstruct(given) == 0


def test_files_without_validation_and_test(data, tmp_path):
    train = str(data / "Fold1" / "train.txt")
    assert rankstruct(["rank", "--train", train, *QUICK, "--output", str(tmp_path / "a")]) == 0
    result = json.loads((tmp_path / "a" / "result.json").read_text())
    assert (result["test"], result["validation_lists"], result["lists"]) == ({}, 30, {"train": [30, 180]})
    card = (tmp_path / "a" / "README.md").read_text()
    assert "The 30 lists were split into folds; hyperparameters and model were selected by cross-validation." in card
    assert f"{SELECTION[1:]}." in card
    assert "There were no test lists." in card
    test = ["--test", str(data / "Fold1" / "test.txt")]
    assert (
        rankstruct(["rank", "--train", train, *test, *QUICK, "--output", str(tmp_path / "b"), "--measures", "P@3"]) == 0
    )
    assert list(json.loads((tmp_path / "b" / "result.json").read_text())["test"]) == ["P@3"]


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["{data}"], "has Fold1: select one, such as --fold 1"),
        (["{data}", "--fold", "7"], "Fold7: expected a folder with train.txt, vali.txt, test.txt, got none"),
        (["{data}/Fold1", "--fold", "1"], "Fold1 has train, vali and test files instead of folds: remove --fold"),
        (
            ["{data}/nowhere"],
            "nowhere: no such folder; give --train FILE, or a folder with train.txt, vali.txt and test.txt",
        ),
        (["{data}/Fold1/train.txt"], "train.txt: not a folder but a file; give --train "),
        (["{data}", "--train", "x.txt"], "give either FOLDER"),
        (["--train", "{data}/none.txt"], "none.txt: no such file"),
        (["{data}", "--fold", "1", "--measures", "quality"], "quality"),
        (["{data}", "--fold", "1", "--measures", "AP", "quality"], "quality"),
        (["{data}", "--fold", "1", "--time-budget", "-3"], "--time-budget must be a number of at least 0"),
        (["{data}", "--fold", "1", "--clip", "0.1"], "--clip has no effect without --clicks LOG"),
        (["{data}", "--fold", "1", "--propensities", "harvest"], "--propensities has no effect without --clicks LOG"),
    ],
)
def test_what_is_refused_is_one_line_and_leaves_nothing(given, said, data, tmp_path, capsys):
    args = [each.format(data=data) for each in given]
    assert rankstruct(["rank", *args, "--output", str(tmp_path / "out")]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("rankstruct rank: ")
    assert said in line
    assert not (tmp_path / "out").exists()


@pytest.fixture(scope="module")
def calibrated(data):
    """A folder with probabilities and a cut-off."""
    output = data.parent / f"{data.name}-calibrated"
    given = ["--calibrate", "sigmoid", "--cut-off", "recall=.8", "--seed", "3"]
    assert rankstruct(["rank", str(data), "--fold", "1", *QUICK, *given, "--output", str(output)]) == 0
    return output


def test_lists_of_the_cut_off_and_of_probabilities_train_nothing_and_are_not_the_same(calibrated, data):
    train, vali, test = read_folds(data, 1)
    held = np.isin(np.arange(30), np.random.default_rng(3).permutation(30)[:6])
    rest, held = train.select(~held), train.select(held)
    valid = {"X_valid": vali.features, "y_valid": vali.labels, "qid_valid": vali.list_numbers}
    by_hand = rs.AutoRanker(time_budget=0, random_state=3, calibrate="sigmoid")
    by_hand.fit(rest.features, rest.labels, rest.list_numbers, **valid)
    ranker = pickle.loads((calibrated / "ranker.pkl").read_bytes())
    for name in ("predict", "predict_proba"):
        expected = getattr(by_hand, name)(test.features, test.list_numbers)
        np.testing.assert_array_equal(getattr(ranker, name)(test.features, test.list_numbers), expected)
    result, scorer = json.loads((calibrated / "result.json").read_text()), rs.load_scorer(calibrated)
    assert result["validation_lists"] == by_hand.validation_lists_ == 24 - 5 + 30
    with torch.inference_mode():
        scores = scorer(torch.tensor(held.features), offsets=torch.tensor(held.offsets))
    cut_off = rs.CutOff(recall=0.8).fit(scores, held.labels, offsets=held.offsets)
    shown = cut_off.predict(scores, offsets=held.offsets)
    assert result["cut_off"] == {
        "options": cut_off.options,
        "held_out": cut_off.held_out_,
        "lists": cut_off.num_lists_,
        "left_out": cut_off.num_empty_,
        "shown": int(shown.sum()) / 6,
        "documents": 6.0,
        "remarks": [],
    }
    assert cut_off.held_out_ >= 0.8 + 0.2 / 6  # by which few lists are on the safe side
    with torch.inference_mode():
        p = scorer.calibration(scorer(torch.tensor(test.features), offsets=torch.tensor(test.offsets)))
    values = rs.calibration.evaluate_probabilities(p, test.labels, offsets=test.offsets)
    assert result["probabilities"]["values"] == {name: list(each) for name, each in values.items()}


def test_the_card_and_predict_tell_probabilities_and_what_is_shown(calibrated, data, tmp_path, capsys, monkeypatch):
    card, result = (calibrated / "README.md").read_text(), json.loads((calibrated / "result.json").read_text())
    known = result["cut_off"]
    said = (
        "he mean recall of new lists is to be at least 0.8, in expectation over held-out and new lists; learned from "
        f"{known['lists']} held-out training lists"
    )
    judged = [f"{value:.4f}" for each in result["probabilities"]["values"].values() for value in each]
    bars = [f"| {each[1]:.3f} " for each in result["probabilities"]["reliability"]]
    shares = f"where it is {known['held_out']:.4f} and {known['shown']:.1f} of 6.0 documents of a list are shown"
    for text in (f"## Cut-off\n\nT{said}", shares, str(known["options"]["threshold"]), *judged, *bars):
        assert text in card
    assert "calibrate sigmoid, " in card
    monkeypatch.chdir(calibrated)
    exec(card.partition("```python\n")[2].partition("```")[0], names := {})
    assert (names["shown"].shape, names["shown"].dtype) == ((30,), torch.bool)
    folder = shutil.copytree(calibrated, tmp_path / "out")
    test = data / "Fold1" / "test.txt"
    capsys.readouterr()
    assert rankstruct(["predict", "--run", str(folder), "--data.predict_path", str(test)]) == 0
    lists, scores = read_folds(data, 1).test, read_scores(folder / "scores.txt").astype(np.float32)
    shown = rs.CutOff(**known["options"]).predict(scores, offsets=lists.offsets).numpy()
    assert np.array_equal(np.loadtxt(folder / "shown.txt"), shown)
    p = rs.load_scorer(folder).calibration.predict(scores)
    np.testing.assert_allclose(read_scores(folder / "probabilities.txt"), p, atol=1e-6)
    printed = capsys.readouterr().out
    assert f"probabilities of relevance of these documents: {folder / 'probabilities.txt'}\n" in printed
    assert f"shown of these documents: {shown.sum()}, those with 1 in {folder / 'shown.txt'}\n" in printed
    given = [
        "--calibrate",
        "sigmoid",
        "--cut-off",
        "recall=0.80,rule=softmax",
        "--seed",
        "3",
    ]  # the same in other words
    assert rankstruct(["rank", str(data), "--fold", "1", *QUICK, *given, "--output", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert f"cut-off: t{said}" in printed
    assert "nothing was trained" in printed


def test_a_cut_off_that_the_scores_do_not_reach_or_that_saw_its_lists_is_remarked(data, tmp_path, capsys):
    train = read_folds(data, 1).train
    lines = (data / "Fold1" / "train.txt").read_text()
    (tmp_path / "twice.txt").write_text(lines + re.sub(r"qid:(\d+)", r"qid:77\1", lines))
    given = ["rank", "--train", str(tmp_path / "twice.txt"), *QUICK, "--cut-off"]
    twice = np.random.default_rng(0).permutation(60)[:12] % 30
    again = int((np.bincount(twice, minlength=30) == 1).sum())
    assert rankstruct([*given, "precision=.75,confidence=.9,rule=rank", "--output", str(tmp_path / "out")]) == 0
    printed, card = capsys.readouterr().out, (tmp_path / "out" / "README.md").read_text()
    for remark in (
        f"{again} of 12 lists that learned the cut-off are also training lists: it may show too little",
        "no cut-off was learned: the first documents have precision ",
    ):
        assert f"warning: {remark}" in printed
        assert f"**Warning**: {remark}" in card
    (tmp_path / "out" / "shown.txt").write_text("1\n")
    (tmp_path / "new.txt").write_text(lines)
    assert (
        rankstruct(["predict", "--run", str(tmp_path / "out"), "--data.predict_path", str(tmp_path / "new.txt")]) == 0
    )
    assert "no cut-off was learned" in capsys.readouterr().out
    assert not (tmp_path / "out" / "shown.txt").exists()
    assert len(read_scores(tmp_path / "out" / "scores.txt")) == train.num_documents


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (".9", "such as recall=.9; got '.9'"),
        ("recal=.9", "got 'recal=.9'; did you mean recall?"),
        ("recall=.9,recall=.8", "at most once, such as recall=.9; got 'recall=.8'"),
        ("recall=x", "expected a number for recall, got 'x'"),
        ("recall=90", "recall must be a finite number above 0 and below 1, or None, got 90.0"),
        ("precision=.5", "give confidence=, such as 0.9"),
        (
            "recall=.9",
            "train.txt: --cut-off holds out 6 of 30 training lists, and those with relevant documents count: 4 held-out "
            "lists are too few for recall=0.9: even complete lists need at least 9",
        ),
    ],
)
def test_a_cut_off_that_cannot_be_is_refused_before_training(text, said, data, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(rank.AutoRanker, "fit", None)
    given = ["rank", str(data), "--fold", "1", "--cut-off", text, "--output", str(tmp_path / "out")]
    with suppress(SystemExit):  # of the parser
        assert rankstruct(given) == 1
    assert said in capsys.readouterr().err.splitlines()[-1]
    assert not (tmp_path / "out" / "request.json").exists()


def test_rules_for_a_page_are_tested_and_kept_by_predict(data, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    for part in ("train", "test"):
        lines = (data / "Fold1" / f"{part}.txt").read_text().splitlines()
        named = [f"{line.partition('#')[0]} #docid = d{at}" for at, line in enumerate(lines)]
        (tmp_path / f"{part}.txt").write_text("\n".join(named) + "\n")
    rows = [f"d{at},{'abc'[at % 3]}" for at in range(len(lines))]
    (tmp_path / "docs.csv").write_text("\n".join(["docid,seller", *rows]) + "\n")
    output, test = tmp_path / "out", tmp_path / "test.txt"
    given = ["rank", "--train", str(tmp_path / "train.txt"), "--test", str(test), *QUICK, "--output", str(output)]
    rules = ["--constraints", "seller <= 1 @ 3", "--columns", str(tmp_path / "docs.csv")]
    assert rankstruct([*given, *rules[:2]]) == 1
    assert "--constraints needs --columns FILE" in capsys.readouterr().err
    assert rankstruct([*given, "--constraints", "seller=a >= 3 @ 3", *rules[2:]]) == 1  # before training
    assert "test.txt: no ranking of query " in capsys.readouterr().err
    assert not output.exists() or not (output / "scorer.pt").exists()
    assert rankstruct([*given, *rules]) == 0
    printed, known = capsys.readouterr().out, json.loads((output / "result.json").read_text())["constraints"]
    assert rankstruct(["predict", "--run", str(output), "--data.predict_path", str(test), *rules[2:]]) == 0
    lists, scores = rs.data.read_lists(test), read_scores(output / "scores.txt").astype(np.float32)
    columns, constraints = {"seller": np.arange(lists.num_documents) % 3}, rs.Constraints(rules[1])
    expected = rs.rank_under(scores, constraints, columns, offsets=lists.offsets)
    assert np.array_equal(np.loadtxt(output / "ranks.txt"), expected)
    report = rs.constraints.report_under(scores, lists.labels, "nDCG@10", constraints, columns, offsets=lists.offsets)
    assert known["before"] == report.before
    assert known["after"] == {rules[1]: 0}
    mean = float(report.values["nDCG@10"].mean())
    assert known["values"]["nDCG@10"]["mean"] == pytest.approx(mean, abs=1e-6)
    card = (output / "README.md").read_text()
    assert "- `seller <= 1 @ 3`" in card
    for text in (f"{mean:.4f}", f"{report.before[rules[1]]}"):
        assert text in card.partition("## Rules")[2]
        assert text in printed
    assert rankstruct(["predict", "--run", str(output), "--data.predict_path", str(test)]) == 0
    assert "ranked by score; --columns FILE" in capsys.readouterr().out
    assert not (output / "ranks.txt").exists()
    (output / "scores.txt").unlink()
    (tmp_path / "others.csv").write_text("docid,seller\nx,a\n")
    given = ["predict", "--run", str(output), "--data.predict_path", str(test), "--columns"]
    assert rankstruct([*given, str(tmp_path / "others.csv")]) == 1
    assert "is in " in capsys.readouterr().err
    assert not (output / "scores.txt").exists()


def table_of(data, names):
    lines = [",".join(["qid", "label", *names])]
    for qid, label, row in zip(np.repeat(data.qids, np.diff(data.offsets)), data.labels, data.features, strict=True):
        cells = {name: f"{value:.9g}" for name, value in zip(sorted(names), row, strict=True)}
        lines.append(",".join([str(qid), f"{label:g}", *(cells[name] for name in names)]))
    return "\n".join(lines) + "\n"


def test_columns_are_found_by_their_names(data, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    parts = read_folds(data, 1)
    names = [f"f{number:02}" for number in range(parts.train.num_features)]
    folder = tmp_path / "tables"
    folder.mkdir()
    (folder / "train.csv").write_text(table_of(parts.train, names))
    (folder / "test.csv").write_text(table_of(parts.test, names[::-1]))  # and no validation lists
    output = tmp_path / "out"
    assert rankstruct(["rank", str(folder), "--time-budget", "0", "--output", str(output)]) == 0
    assert json.loads((output / "result.json").read_text())["feature_names"] == names
    (tmp_path / "same.csv").write_text(table_of(parts.test, names))
    found = []
    for path in (folder / "test.csv", tmp_path / "same.csv"):
        assert rankstruct(["predict", "--run", str(output), "--data.predict_path", str(path)]) == 0
        found.append(read_scores(output / "scores.txt"))
    assert np.array_equal(*found)
    mean = json.loads((output / "result.json").read_text())["test"]["nDCG@10"]["mean"]
    values = rs.evaluate(found[0], parts.test.labels, ["nDCG@10"], offsets=torch.tensor(parts.test.offsets))
    assert float(values["nDCG@10"].mean()) == pytest.approx(mean, abs=1e-5)
    capsys.readouterr()
    text = (tmp_path / "same.csv").read_text()
    (tmp_path / "wrong.csv").write_text(text.replace("f00", "new"))
    assert rankstruct(["predict", "--run", str(output), "--data.predict_path", str(tmp_path / "wrong.csv")]) == 1
    assert "missing: 'f00'; unknown: 'new'" in capsys.readouterr().err
    unlabelled = [line.split(",") for line in text.splitlines()]
    (tmp_path / "new.csv").write_text("".join(",".join([qid, *rest]) + "\n" for qid, _, *rest in unlabelled))
    assert rankstruct(["predict", "--run", str(output), "--data.predict_path", str(tmp_path / "new.csv")]) == 0
    assert np.array_equal(read_scores(output / "scores.txt"), found[0])
    assert rankstruct(["predict", "--run", str(output), "--data.predict_path", "nosuch.csv"]) == 1
    assert "nosuch.csv: no such file" in capsys.readouterr().err


def test_a_table_with_another_number_of_features_is_refused(finished, data, tmp_path, capsys):
    pytest.importorskip("pyarrow")
    parts = read_folds(data, 1)
    few = RankingData.from_arrays(parts.test.features[:, :2], parts.test.labels, parts.test.list_numbers)
    (tmp_path / "few.csv").write_text(table_of(few, ["a", "b"]))
    folder = tmp_path / "model"
    shutil.copytree(finished, folder)
    assert rankstruct(["predict", "--run", str(folder), "--data.predict_path", str(tmp_path / "few.csv")]) == 1
    assert "as in training, got 2: 'a, b'" in capsys.readouterr().err
