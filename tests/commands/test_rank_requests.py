"""A finished folder of `rank` answers its own request only: for every option, what a fresh folder gives, or an error.

A new option of the parser fails here until it has a case.
"""

import argparse
import json
import shutil

import numpy as np
import pytest

from rankstruct.cli import main as rankstruct
from rankstruct.commands import rank
from rankstruct.commands._options import parser_of

pytest.importorskip("pyarrow")

LISTS, SIZE = 12, 5
QUICK = ["--time-budget", "0"]
#: They say where the folder is, and nothing about what is in it.
PLACES = {"help", "output"}


def write_table(path, seed):
    """A table with ids, two columns of labels, two of lists and one of small integers, which may be categories."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(LISTS * SIZE, 2)).round(3)
    label, grade = (X[:, 0] > 0.3).astype(int), (X[:, 1] > 0.3).astype(int)
    rows = ["docid,label,grade,qid,site,shop,f1,f2"]
    for at, (first, second) in enumerate(X.tolist()):
        rows.append(f"d{at},{label[at]},{grade[at]},{at // SIZE},{at // (2 * SIZE)},{at % 3},{first},{second}")
    path.write_text("\n".join(rows) + "\n")


def write_lists(path, seed):
    """The same as lines of SVMlight."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(LISTS * SIZE, 2)).round(3).tolist()
    path.write_text("".join(f"{int(a > 0.3)} qid:{at // SIZE} 1:{a} 2:{b}\n" for at, (a, b) in enumerate(X)))


def write_log(path, seed):
    """A click log with features, in which every document is shown at two ranks."""
    rng = np.random.default_rng(seed)
    rows = ["session,query,document,position,click,f1,f2"]
    X = rng.normal(size=(LISTS, SIZE, 2)).round(3)
    for session in range(20 * LISTS):
        query = session % LISTS
        for position, document in enumerate(rng.permutation(SIZE), 1):
            a, b = X[query, document].tolist()
            click = int(rng.random() < (0.9 if a > 0 else 0.1) / position)
            rows.append(f"{session},{query},d{document},{position},{click},{a},{b}")
    path.write_text("\n".join(rows) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    folder = tmp_path_factory.mktemp("requests")
    for seed, name in enumerate(("train", "other", "test", "more")):
        write_table(folder / f"{name}.csv", seed)
    for number in (1, 2):
        (folder / "folds" / f"Fold{number}").mkdir(parents=True)
        write_lists(folder / "folds" / f"Fold{number}" / "train.txt", number)
    for name in ("log", "later"):
        write_log(folder / f"{name}.csv", len(name))
    for name, sellers in (("two", 2), ("three", 3)):
        rows = [f"d{at},{at % sellers}" for at in range(LISTS * SIZE)]
        (folder / f"{name}.csv").write_text("\n".join(["docid,seller", *rows]) + "\n")
    for name, power in (("half", 0.5), ("one", 1.0)):
        (folder / f"{name}.txt").write_text(" ".join(str(rank**-power) for rank in range(1, SIZE + 1)))
    return folder


TABLES = ["--train", "{data}/train.csv", "--test", "{data}/test.csv"]
FOLD = ["--train", "{data}/folds/Fold1/train.txt"]
RULES = [*TABLES, "--constraints", "seller <= 1 @ 2", "--columns", "{data}/two.csv"]
LOG = ["--clicks", "{data}/log.csv"]
#: By option, command lines that differ in it; all ordered pairs are tried. Some are errors in a fresh folder too.
CASES = {
    "folder": [["{data}/folds/Fold1"], ["{data}/folds/Fold2"], FOLD],
    "fold": [["{data}/folds"], ["{data}/folds", "--fold", "1"], ["{data}/folds", "--fold", "2"]],
    "train": [TABLES, ["--train", "{data}/other.csv", *TABLES[2:]]],
    "vali": [TABLES, [*TABLES, "--vali", "{data}/other.csv"], [*TABLES, "--vali", "{data}/more.csv"]],
    "test": [TABLES[:2], TABLES, [*TABLES[:2], "--test", "{data}/other.csv"]],
    "clicks": [TABLES[:2], LOG, ["--clicks", "{data}/later.csv"]],
    "propensities": [
        LOG,
        [*LOG, "--propensities", "swaps"],
        [*LOG, "--propensities", "{data}/half.txt"],
        [*LOG, "--propensities", "{data}/one.txt"],
        [*LOG, "--propensities", "nosuch"],
    ],
    "clip": [LOG, [*LOG, "--clip", "0.5"], [*LOG, "--clip", "0.9"], [*LOG, "--clip", "7"]],
    "drop_missing": [LOG, [*LOG, "--drop-missing"]],
    "zero_based": [FOLD, [*FOLD, "--zero-based"]],
    "label": [TABLES, [*TABLES, "--label", "grade"], [*TABLES, "--label", "label"], [*TABLES, "--label", "nosuch"]],
    "qid": [TABLES, [*TABLES, "--qid", "site"], [*TABLES, "--qid", "qid"], [*TABLES, "--qid", "nosuch"]],
    "categorical": [
        TABLES,
        [*TABLES, "--categorical", "shop"],
        [*TABLES, "--categorical", "shop", "site"],
        [*TABLES, "--categorical", "nosuch"],
    ],
    "measures": [TABLES, [*TABLES, "--measures", "AP"], [*TABLES, "--measures", "RR", "AP"]],
    "mode": [TABLES, [*TABLES, "--mode", "fast"], [*TABLES, "--mode", "full"]],
    "time_budget": [TABLES, [*TABLES, "--time-budget", "1e-9"]],
    "calibrate": [TABLES, [*TABLES, "--calibrate", "sigmoid"], [*TABLES, "--calibrate", "temperature"]],
    "cut_off": [
        TABLES,
        [*TABLES, "--cut-off", "recall=.4"],
        [*TABLES, "--cut-off", "recall=.4,rule=rank"],
        [*TABLES, "--cut-off", "recall=.9"],  # for which there are too few lists
    ],
    "constraints": [
        TABLES,
        RULES,
        [*RULES[:5], "seller <= 2 @ 3", *RULES[6:]],
        [*RULES[:5], "shop <= 1 @ 3", *RULES[6:]],
    ],
    "columns": [TABLES, RULES, [*RULES[:-1], "{data}/three.csv"], [*RULES[:-1], "{data}/nosuch.csv"]],
    "seed": [TABLES, [*TABLES, "--seed", "0"], [*TABLES, "--seed", "1"]],
}


def without_times(value):
    """What a result says, but for the time that it took."""
    if isinstance(value, dict):
        return {key: without_times(each) for key, each in value.items() if key != "seconds"}
    return [without_times(each) for each in value] if isinstance(value, list) else value


def outcome(folder):
    """The result of a folder and its record; None without a result."""
    if not (folder / "result.json").is_file():
        return None
    record = json.loads((folder / "request.json").read_text())
    result = without_times(json.loads((folder / "result.json").read_text()))
    return result, record.get("request", record)


def run(line, folder, data):
    words = [word.format(data=data) for word in line]
    budget = [] if "--time-budget" in words else QUICK
    return rankstruct(["rank", *words, *budget, "--output", str(folder)])


@pytest.fixture(scope="module")
def fresh(data, tmp_path_factory):
    """By command line, its exit code and folder."""
    made = {}

    def make(line):
        if tuple(line) not in made:
            folder = tmp_path_factory.mktemp("fresh") / "out"
            made[tuple(line)] = run(line, folder, data), folder
        return made[tuple(line)]

    return make


def test_every_option_has_a_case():
    actions = [action.dest for action in parser_of("rank")._actions if not isinstance(action, argparse._HelpAction)]
    assert sorted(actions) == sorted({*CASES, *PLACES} - {"help"})


@pytest.mark.sampled(3)
@pytest.mark.parametrize("option", CASES)
def test_a_finished_folder_answers_its_own_request_only(option, data, fresh, tmp_path, capsys):
    lines = CASES[option]
    pairs = [(one, other) for one in lines for other in lines if one is not other]
    for number, (one, other) in enumerate(pairs):
        status, source = fresh(one)
        expected, wanted = fresh(other)
        folder = tmp_path / str(number)
        if source.is_dir():
            shutil.copytree(source, folder)
        before = outcome(folder)
        assert (before is None) == (status != 0)
        capsys.readouterr()
        if run(other, folder, data) == 0:
            assert expected == 0
            assert outcome(folder) == outcome(wanted), (one, other)
        else:  # what was finished is left as it was
            (said,) = capsys.readouterr().err.splitlines()
            assert said.startswith("rankstruct rank: "), said
            assert outcome(folder) == before
            assert status == 0 or expected != 0, (one, other, said)  # what failed is not in the way


def test_the_same_request_is_answered_without_training(data, fresh, tmp_path, monkeypatch, capsys):
    made = {tuple(line): fresh(line) for lines in CASES.values() for line in lines}
    monkeypatch.setattr(rank.AutoRanker, "fit", None)
    for number, (line, (status, source)) in enumerate(made.items()):
        if status == 0:
            shutil.copytree(source, tmp_path / str(number))
            assert run(line, tmp_path / str(number), data) == 0
            assert "nothing was trained" in capsys.readouterr().out


def test_every_file_that_is_named_at_the_end_is_there(data, fresh, tmp_path, capsys):
    _, source = fresh(TABLES)
    folder = shutil.copytree(source, tmp_path / "out")
    card = (folder / "README.md").read_text()
    (folder / "README.md").unlink()
    assert run(TABLES, folder, data) == 0
    assert (folder / "README.md").read_text() == card
    (folder / "README.md").write_text("# Edited\n")  # which a user may do
    assert run(TABLES, folder, data) == 0
    assert (folder / "README.md").read_text() == "# Edited\n"


@pytest.mark.parametrize("name", ["request.json", "result.json", "scorer.pt", "ranker.pkl"])
@pytest.mark.parametrize("content", ["", "x", "{}", "[]", "null", None])
def test_a_damaged_folder_is_not_finished(name, content, data, fresh, tmp_path, capsys):
    _, source = fresh(TABLES)
    folder = shutil.copytree(source, tmp_path / "out")
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_text(content)
    capsys.readouterr()
    assert run(TABLES, folder, data) == 1
    (said,) = capsys.readouterr().err.splitlines()
    assert str(folder) in said
    assert "--output" in said or "delete" in said


def test_a_folder_of_an_earlier_version_is_refused(data, fresh, tmp_path, capsys):
    _, source = fresh(TABLES)
    folder = shutil.copytree(source, tmp_path / "out")
    record = json.loads((folder / "request.json").read_text())
    flat = {key: value for key, value in record.get("request", record).items() if key not in ("label", "qid")}
    (folder / "request.json").write_text(json.dumps(flat))
    assert run(TABLES, folder, data) == 1
    assert "of an earlier version, which did not record all that a result depends on" in capsys.readouterr().err
    # It is still one to predict with.
    path = str(data / "test.csv")
    assert rankstruct(["predict", "--run", str(folder), "--data.predict_path", path]) == 0


@pytest.mark.parametrize("name", ["result.json", "scorer.pt"])
def test_predict_refuses_the_files_of_another_folder(name, data, fresh, tmp_path, capsys):
    _, source = fresh(TABLES)
    _, other = fresh([*TABLES, "--label", "grade"])
    folder = shutil.copytree(source, tmp_path / "out")
    shutil.copy(other / name, folder / name)
    capsys.readouterr()
    assert rankstruct(["predict", "--run", str(folder), "--data.predict_path", str(data / "test.csv")]) == 1
    assert f"{folder / name} is damaged (it has changed since it was written)" in capsys.readouterr().err
