"""A run keeps the names of its features, users and items: data files are matched by name, whatever became of the training data.

Each case trains a tiny model, changes or deletes the training data, and asks the run again about a file that did not change: the
answer is the same bit for bit, or a one-line error; and training on other data than before is refused.
"""

import contextlib
import csv
import functools
import io
import json
import shutil

import numpy as np
import pytest
import torch
import yaml
from programs import run_in
from small_text import write_collection

import rankstruct as rs
from rankstruct.cli import main
from rankstruct.training import RankingDataModule

pytestmark = [
    pytest.mark.usefixtures("no_pictures_here"),
    pytest.mark.filterwarnings(
        "ignore:in .* validation lists of ratings.csv all labels are equal"
    ),  # few ratings of a user
]

QUIET = ["--trainer.enable_progress_bar", "false"]
NAMES = ["bm25", "clicks", "age", "length"]
CLASSES = ["new", "old", "used"]


def told(args):
    """The exit status, stdout and stderr of a command."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        status = main([*map(str, args)])
    return status, out.getvalue(), err.getvalue()


class Run:
    """A run, its data, and the answers it gave when both were new."""

    def __init__(self, folder, config, answers):
        self.data, self.spare, self.answers = folder / "data", folder / "spare", answers
        config = {"trainer": {"max_epochs": 2, "enable_progress_bar": False}, "output": str(folder / "runs"), **config}
        (folder / "config.yaml").write_text(yaml.safe_dump(config))
        assert told(["fit", "--config", folder / "config.yaml"])[0] == 0
        self.folder = self.trained = run_in(folder / "runs")
        shutil.copytree(self.data, self.spare)
        self.first = {name: self.answer(name) for name in answers}
        self.asked = dict(answers)

    def restore(self):
        """Undo what a test did to the data and to this object."""
        shutil.rmtree(self.data, ignore_errors=True)
        shutil.copytree(self.spare, self.data)
        self.folder, self.answers = self.trained, dict(self.asked)

    def answer(self, name):
        """What a command says of the lists, or None and its error: tables for `test`, files for `predict`."""
        args = self.answers[name]
        for file in ("scores.txt", "run.txt", "recommendations.csv"):
            (self.folder / file).unlink(missing_ok=True)
        status, out, err = told([args[0], "--run", self.folder, *args[1:], *QUIET])
        if status:
            assert len(err.splitlines()) == 1
            assert err.startswith(f"rankstruct {args[0]}: ")
            return None, err
        files = ("scores.txt", "run.txt", "recommendations.csv") if args[0] == "predict" else ()
        return [(self.folder / file).read_bytes() for file in files if (self.folder / file).is_file()] or out, err


def rewritten(path, change):
    """Change the rows of a CSV file, header first."""
    rows = list(csv.reader(path.read_text().splitlines()))
    path.write_text("".join(",".join(map(str, row)) + "\n" for row in change(rows)))


def by_columns(order):
    return lambda rows: [[row[at] for at in order] for row in rows]


# Tables and SVMlight files


def documents(seed, lists=12):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(lists * 6, len(NAMES))).round(3)
    grades = (X[:, 0] - 0.5 * X[:, 1] + 0.1 * X[:, 2] > 0.4).astype(int)
    return X, grades, np.repeat(np.arange(lists), 6), rng.integers(0, 3, len(X))


def write_lists(path, seed, kind):
    X, grades, lists, classes = documents(seed)
    if kind == "svmlight":
        rows = zip(grades, lists, X, strict=True)
        lines = [f"{y} qid:{q} " + " ".join(f"{at}:{v}" for at, v in enumerate(x, 1)) for y, q, x in rows]
        path.with_suffix(".txt").write_text("\n".join(lines) + "\n")
        return
    header = ["qid", "label", *NAMES, *(["state"] if kind == "categories" else [])]
    rows = [
        [q, y, *x, *([CLASSES[c]] if kind == "categories" else [])]
        for q, y, x, c in zip(lists, grades, X.tolist(), classes, strict=True)
    ]
    if kind == "parquet":
        arrow = pytest.importorskip("pyarrow")
        import pyarrow.parquet as parquet

        columns = {name: [row[at] for row in rows] for at, name in enumerate(header)}
        parquet.write_table(arrow.table(columns), path.with_suffix(".parquet"))
        return
    with open(path.with_suffix(".csv"), "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])


SUFFIXES = {"svmlight": "txt", "csv": "csv", "categories": "csv", "parquet": "parquet"}


def trained_lists(kind, folder):
    (folder / "data").mkdir()
    for seed, part in enumerate(("train", "vali", "test", "more")):
        write_lists(folder / "data" / part, seed, kind)
    suffix = SUFFIXES[kind]
    more = shutil.move(folder / "data" / f"more.{suffix}", folder)
    config = {
        "model": {"scorer": "rankstruct.LinearScorer", "measures": ["AP"]},
        "data": {"path": str(folder / "data"), "prepare": ["standardize"], "cache": False},
    }
    answers = {
        "a file": ["predict", "--data.predict_path", more],
        "the test lists": ["predict"],
        "the measures": ["test"],
    }
    run = Run(folder, config, answers)
    run.kind, run.suffix, run.more = kind, suffix, more
    return run


@pytest.fixture(scope="module")
def runs_of_lists(tmp_path_factory):
    """The run of each kind, trained once: a fixture with parameters would be made anew for each change of the data."""
    return functools.cache(lambda kind: trained_lists(kind, tmp_path_factory.mktemp(kind)))


@pytest.fixture(params=list(SUFFIXES))
def lists_run(request, runs_of_lists):
    run = runs_of_lists(request.param)
    yield run
    run.restore()


def changed_table(path, change, kind):
    if kind != "parquet":
        rewritten(path, change)
        return
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    table = parquet.read_table(path)
    header, *rows = change([table.column_names, *map(list, zip(*table.to_pydict().values(), strict=True))])
    parquet.write_table(arrow.table({name: [row[at] for row in rows] for at, name in enumerate(header)}), path)


def reverse_columns(rows):
    return [row[:2] + row[2:][::-1] for row in rows]


def reverse_lists(rows):
    return [rows[0], *rows[:0:-1]]


def rename(rows):
    return [["aaa" if name == "clicks" else name for name in rows[0]], *rows[1:]]


def add(rows):
    return [[*row[:2], 0.5 if at else "extra", *row[2:]] for at, row in enumerate(rows)]


def leave_out(rows):
    return [row[:3] + row[4:] for row in rows]


def new_category(rows):
    at = rows[0].index("state")
    return [[*row[:at], "a new one" if row[at] == "new" else row[at], *row[at + 1 :]] for row in rows]


def change_lists(run, change):
    """Change the training file, whose feature ids are the names in an SVMlight file."""
    path = run.data / f"train.{run.suffix}"
    if run.kind != "svmlight":
        changed_table(path, change, run.kind)
        return
    lines = path.read_text().splitlines()
    if change is reverse_lists:
        lines = lines[::-1]
    elif change is add:
        lines = [f"{line} 9:0.5" for line in lines]
    elif change is leave_out:
        lines = [line.rpartition(" ")[0] for line in lines]
    path.write_text("\n".join(lines) + "\n")


def assert_no_resuming(run, file):
    before = (run.folder / "checkpoints" / "last.ckpt").read_bytes()
    status, _, err = told(["fit", "--run", run.folder, "--trainer.max_epochs", "3", *QUIET])
    assert status == 1
    assert file in err
    assert "since the run was trained" in err
    assert "rankstruct fit --config" in err
    assert len(err.splitlines()) == 1
    assert (run.folder / "checkpoints" / "last.ckpt").read_bytes() == before


#: By kind: a change is tried where it could matter.
CHANGES = {
    "svmlight": [reverse_lists, add, leave_out],
    "csv": [reverse_columns, reverse_lists, rename, add, leave_out],
    "categories": [reverse_columns, new_category],
    "parquet": [reverse_columns],
}


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("lists_run", "change"),
    [pytest.param(kind, each, id=f"{kind}-{each.__name__}") for kind, of in CHANGES.items() for each in of],
    indirect=["lists_run"],
)
def test_lists_get_the_same_scores_whatever_became_of_the_training_file(lists_run, change):
    change_lists(lists_run, change)
    assert {name: lists_run.answer(name)[0] for name in lists_run.answers} == {
        name: first[0] for name, first in lists_run.first.items()
    }
    if change in (reverse_lists, reverse_columns, new_category):  # files that changed are known by their digests
        assert_no_resuming(lists_run, f"train.{lists_run.suffix}")
        status, _, err = told(["certify", "--run", lists_run.folder])
        assert status == 1
        assert "since the run was trained; a certificate is about the data of training" in err


@pytest.mark.sampled(2)
@pytest.mark.parametrize("gone", ["train and vali", "all"])
def test_lists_are_scored_with_the_training_file_gone(lists_run, gone):
    for part in ("train", "vali", "test")[: {"train and vali": 2, "all": 3}[gone]]:
        (lists_run.data / f"{part}.{lists_run.suffix}").unlink()
    if gone == "all":
        lists_run.data.rmdir()
    assert lists_run.answer("a file")[0] == lists_run.first["a file"][0]
    for name in ("the test lists", "the measures"):
        found, err = lists_run.answer(name)
        if gone == "all":
            assert found is None
            assert str(lists_run.data) in err
        else:
            assert found == lists_run.first[name][0]
    assert_no_resuming(lists_run, f"train.{lists_run.suffix}")


@pytest.mark.parametrize("lists_run", ["csv", "parquet"], indirect=True)
@pytest.mark.parametrize("change", [reverse_columns, add], ids=lambda each: each.__name__)
def test_a_file_to_predict_is_read_by_name(lists_run, change, tmp_path):
    path = tmp_path / f"more.{lists_run.suffix}"
    shutil.copy(lists_run.more, path)
    changed_table(path, change, lists_run.kind)
    lists_run.answers["changed"] = ["predict", "--data.predict_path", str(path)]
    found, err = lists_run.answer("changed")
    assert found == lists_run.first["a file"][0] or (change is add and "'extra'" in err)
    changed_table(path, leave_out, lists_run.kind)
    found, err = lists_run.answer("changed")
    assert found is None
    assert str(path) in err


def test_a_run_says_in_words_what_it_was_trained_on(lists_run):
    """As `request.json` of `rankstruct rank`: what the checkpoint keeps of the data, for people."""
    found = json.loads((lists_run.folder / "data.json").read_text())
    names = [*NAMES, *(["state"] if lists_run.kind == "categories" else [])]
    assert found["feature_names"] == (None if lists_run.kind == "svmlight" else names)
    assert found["path"] == str(lists_run.data)
    assert set(found["files"]) == {f"{part}.{lists_run.suffix}" for part in ("train", "vali", "test")}
    assert found["options"]["prepare"] == ["standardize"]


def test_a_scorer_knows_the_names_of_its_features(lists_run, tmp_path):
    scorer = rs.load_scorer(lists_run.folder)
    names = [*NAMES, *(["state"] if lists_run.kind == "categories" else [])]
    assert scorer.feature_names == (None if lists_run.kind == "svmlight" else tuple(names))
    rs.save_scorer(scorer, tmp_path / "scorer.pt")
    assert rs.load_scorer(tmp_path / "scorer.pt").feature_names == scorer.feature_names


@pytest.mark.parametrize("lists_run", ["svmlight", "categories"], indirect=True)
def test_the_run_goes_on_with_the_same_data_elsewhere(lists_run, tmp_path):
    """Files are recognised by their content, not by their place; touched, they are unchanged."""
    shutil.copytree(lists_run.data, tmp_path / "moved")
    moved = ["fit", "--run", lists_run.folder, "--data.path", tmp_path / "moved", *QUIET]
    status, _, err = told([*moved, "--data.prepare", "[log]", "--trainer.max_epochs", "3"])
    assert status == 1
    assert "data.prepare is ['log'] and was ['standardize'] when the run was trained" in err
    kept = lists_run.folder.with_name("kept")
    shutil.copytree(lists_run.folder, kept)
    try:
        assert told([*moved, "--trainer.max_epochs", "3"])[0] == 0
    finally:
        shutil.rmtree(lists_run.folder)
        kept.rename(lists_run.folder)


@pytest.mark.parametrize("lists_run", ["svmlight", "csv"], indirect=True)
def test_a_run_of_an_earlier_version_says_that_names_are_unknown(lists_run, tmp_path, caplog):
    shutil.copytree(lists_run.folder, tmp_path / "run")
    for name in ("best", "last"):
        path = tmp_path / "run" / "checkpoints" / f"{name}.ckpt"
        content = torch.load(path, weights_only=True)
        del content["rankstruct_data"]
        content["rankstruct_scorer"].pop("feature_names", None)
        torch.save(content, path)
    lists_run.folder = tmp_path / "run"
    change_lists(lists_run, reverse_lists)  # no longer read
    assert lists_run.answer("a file")[0] == lists_run.first["a file"][0]
    warned = [each.message for each in caplog.records if "features are matched by order" in each.message]
    assert len(warned) == (lists_run.kind == "csv")  # the features of SVMlight files are numbers
    if lists_run.kind == "csv":
        changed_table(lists_run.data / f"test.{lists_run.suffix}", leave_out, lists_run.kind)
        found, err = lists_run.answer("the test lists")
        assert found is None
        assert "expected 4 features, as in training, got 3" in err


@pytest.mark.parametrize("lists_run", ["csv", "categories"], indirect=True)
def test_a_data_module_takes_the_names_of_a_checkpoint(lists_run):
    """From Python too, before training data are read, or after."""
    checkpoint = lists_run.folder / "checkpoints" / "best.ckpt"
    path, options = str(lists_run.data), {"prepare": ["standardize"], "cache": False}
    first = RankingDataModule(path, **options).part("test").features
    change_lists(lists_run, reverse_columns)
    data = RankingDataModule(path, **options, trained_on=str(checkpoint))
    np.testing.assert_array_equal(data.part("test").features, first)
    data = RankingDataModule(path, **options)
    assert data.part("train").num_features
    data.restore(torch.load(checkpoint, weights_only=True))
    np.testing.assert_array_equal(data.part("test").features, first)


def test_parts_of_a_file_that_changed_are_not_test_lists(tmp_path):
    """Another file is split otherwise, so that lists of training would be tested."""
    (tmp_path / "data").mkdir()
    write_lists(tmp_path / "data" / "all", 0, "svmlight")
    file = tmp_path / "data" / "all.txt"
    config = {
        "model": {"scorer": "rankstruct.LinearScorer", "measures": ["AP"]},
        "data": {"path": str(file), "protocol": "cross-validation", "fold": 1, "parts": 4},
    }
    run = Run(tmp_path, config, {"measures": ["test"], "validation": ["validate"], "lists": ["predict"]})
    lines = file.read_text().splitlines()
    copies = {
        "same": lines,
        "rotated": lines[6:] + lines[:6],
        "shorter": lines[6:],
        "shuffled": lines[5::-1] + lines[6:],
    }
    for name, content in copies.items():
        (tmp_path / f"{name}.txt").write_text("\n".join(content) + "\n")
    for name in ("same", "shuffled"):  # as many lists, in the same order, are divided alike
        run.answers[name] = ["test", "--data.path", str(tmp_path / f"{name}.txt")]
        assert run.answer(name)[0] == run.first["measures"][0]
    for name in ("rotated", "shorter"):
        run.answers[name] = ["test", "--data.path", str(tmp_path / f"{name}.txt")]
    run.answers["another trial"] = ["test", "--data.fold", "2"]
    run.answers["another trial of a copy"] = ["test", "--data.fold", "2", "--data.path", str(tmp_path / "same.txt")]
    for name in ("rotated", "shorter", "another trial", "another trial of a copy"):
        found, err = run.answer(name)
        assert found is None, name
        assert "has learned from" in err
    file.write_text("\n".join(copies["rotated"]) + "\n")
    for name in run.answers.keys() - {"same", "shuffled", "another trial of a copy"}:
        found, err = run.answer(name)
        assert found is None
        assert "all.txt" in err or "rotated.txt" in err or "shorter.txt" in err
    assert_no_resuming(run, "all.txt")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sparse", [False, True])
def test_the_test_lists_of_another_fold_are_not_tested_if_they_are_those_of_training(sparse, tmp_path):
    values = np.random.default_rng(0).random((10, 5)).round(3)
    parts = [
        [f"{at % 2} qid:{q} {1 + sparse * at}:{x} 9:1" for at, x in enumerate(row)] for q, row in enumerate(values)
    ]
    for fold in (1, 2):
        at = {"train": range(2, 10), "vali": [1], "test": [0]}
        for part, lists in at.items():
            path = tmp_path / "data" / f"Fold{fold}" / f"{part}.txt"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(f"{line}\n" for number in lists for line in parts[(number + 3 * (fold - 1)) % 10]))
    config = {
        "model": {"scorer": "rankstruct.LinearScorer", "measures": ["AP"]},
        "data": {"path": str(tmp_path / "data"), "fold": 1},
    }
    run = Run(tmp_path, config, {"measures": ["test"], "validation": ["validate"]})
    run.answers |= {f"{command} 2": [command, "--data.fold", "2"] for command in ("test", "validate")}
    for name in ("test 2", "validate 2"):
        found, err = run.answer(name)
        assert found is None
        assert "1 of the 1 lists of" in err
        assert "has learned from" in err
    (run.data / "Fold1" / "test.txt").write_text("".join(f"{line}\n" for line in parts[0][::-1]))
    assert run.answer("measures")[0] == run.first["measures"][0]  # they may change


# Ratings and interactions


def interactions(seed=0, users=24, items=18):
    rng = np.random.default_rng(seed)
    return [[f"u{u}", f"i{i}", 1 + int(rng.integers(5))] for u in range(users) for i in rng.permutation(items)[:12]]


def rename_item(rows):
    return [[row[0], row[1].replace("i3", "a new name"), *row[2:]] for row in rows]


def two_new_items(rows):
    return [*rows, ["u0", "a0", *rows[-1][2:]], ["u1", "a1", *rows[-1][2:]]]


def new_user(rows):
    return [*rows, *(["a", f"i{i}", *rows[-1][2:]] for i in range(12))]


def other_order(rows):
    return [rows[0], *rows[:0:-1]]


def leave_out_an_item(rows):
    return [row for row in rows if row[1] != "i3"]


CATALOGUE_CHANGES = {
    "ratings": [rename_item, two_new_items, other_order, None],
    "new users": [new_user, None],
    "interactions": [rename_item, None],
    "folder": [leave_out_an_item, None],
}


def trained_catalogue(kind, folder):
    (folder / "data").mkdir()
    rated = kind in ("ratings", "new users")
    rows = (
        [["user", "item", "rating"], *interactions()]
        if rated
        else [row[:2] for row in [["user", "item"], *interactions()]]
    )
    scorer = {"class_path": "rankstruct.MatrixFactorization", "init_args": {"rank": 3}}
    config = {"task": "ratings" if rated else "implicit", "model": {"scorer": scorer, "measures": ["nDCG@5"]}}
    if kind == "folder":
        parts = {"train": rows[1::3] + rows[2::3], "valid": rows[3::6], "test": rows[6::6]}
        for name, part in parts.items():
            text = "".join(",".join(row) + "\n" for row in [rows[0], *part])
            (folder / "data" / f"{name}.csv").write_text(text)
        config["data"], file = {"path": str(folder / "data")}, "train.csv"
    else:
        file = "ratings.csv" if rated else "clicks.csv"
        (folder / "data" / file).write_text("".join(",".join(map(str, row)) + "\n" for row in rows))
        config["data"] = {"path": str(folder / "data" / file)}
    if rated:
        config["model"]["regularization"] = 0.1
        config["data"] |= {"scale": "stars", "num_train": 6, "min_test": 3}
    if kind == "new users":
        config["data"] |= {"split": "strong", "new_users": 0.2}
    run = Run(folder, config, {"recommendations": ["predict"], "measures": ["test"], "validation": ["validate"]})
    run.file, run.kind = run.data / file, kind
    return run


@pytest.fixture(scope="module")
def runs_of_catalogues(tmp_path_factory):
    """As `runs_of_lists`."""
    return functools.cache(lambda kind: trained_catalogue(kind, tmp_path_factory.mktemp("catalogue")))


@pytest.fixture(params=list(CATALOGUE_CHANGES))
def catalogue_run(request, runs_of_catalogues):
    run = runs_of_catalogues(request.param)
    yield run
    run.restore()


def recommended(run):
    """`recommendations.csv` of `predict`, which is not empty."""
    status, _, err = told(["predict", "--run", run.folder, *QUIET])
    assert status == 0, err
    found = (run.folder / "recommendations.csv").read_text()
    assert len(found.splitlines()) > 20
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("catalogue_run", "change"),
    [
        pytest.param(kind, each, id=f"{kind}-{getattr(each, '__name__', 'gone')}")
        for kind, of in CATALOGUE_CHANGES.items()
        for each in of
    ],
    indirect=["catalogue_run"],
)
def test_users_get_the_same_items_whatever_became_of_the_data(catalogue_run, change):
    first = recommended(catalogue_run)
    if change is None:
        shutil.rmtree(catalogue_run.data)
    else:
        rewritten(catalogue_run.file, change)
    assert recommended(catalogue_run) == first
    assert not (catalogue_run.folder / "scores.txt").exists()  # of test ratings that are no longer the same
    for name in ("measures", "validation"):
        found, err = catalogue_run.answer(name)
        assert found is None
        assert catalogue_run.file.name in err
    assert_no_resuming(catalogue_run, catalogue_run.file.name)


@pytest.mark.parametrize("catalogue_run", ["ratings"], indirect=True)
@pytest.mark.parametrize("option", [["--seed_everything", "7"], ["--data.num_train", "5"]])
def test_data_divided_otherwise_test_nothing(catalogue_run, option):
    """The parts would have ratings of training: there is no measure of them, which is said."""
    for command in ("test", "validate"):
        status, _, err = told([command, "--run", catalogue_run.folder, *option, *QUIET])
        assert status == 1
        assert "when the run was trained, so that the data would be divided otherwise" in err


@pytest.mark.parametrize("catalogue_run", ["ratings", "folder"], indirect=True)
def test_other_data_are_matched_by_name(catalogue_run, tmp_path):
    """Data given by their path: known users and items count, others are counted, and none known is an error."""
    other = tmp_path / "other"
    shutil.copytree(catalogue_run.data, other)
    path = other if catalogue_run.kind == "folder" else other / catalogue_run.file.name
    files = sorted(other.iterdir())
    catalogue_run.answers["other"] = ["test", "--data.path", str(path)]
    if catalogue_run.kind == "folder":
        for file in files:
            rewritten(file, lambda rows: [row[::-1] for row in rows])  # by the names of columns
    assert catalogue_run.answer("other")[0] == catalogue_run.first["measures"][0]
    if catalogue_run.kind == "ratings":  # as many of each user, so that other ones are tested
        for change in (other_order, lambda rows: [*rows[:3], *rows[4:]]):
            rewritten(path, change)
            found, err = catalogue_run.answer("other")
            assert found is None
            assert "has learned from" in err
            shutil.copy(catalogue_run.file, path)
    for file in files:
        rewritten(file, lambda rows: [["other" if each == "i3" else each for each in row] for row in rows])
    with pytest.warns(UserWarning, match=r"1 of the 18 items of .* \(5\.6%\) are not in the training data"):
        assert catalogue_run.answer("other")[0] is not None
    for file in files:
        rewritten(
            file,
            lambda rows: [rows[0], *([f"x{each}" if each[0] == "i" else each for each in row] for row in rows[1:])],
        )
    found, err = catalogue_run.answer("other")
    assert found is None
    assert "none of the 18 items of" in err


@pytest.mark.parametrize("catalogue_run", ["ratings"], indirect=True)
def test_a_catalogue_run_says_in_words_what_it_was_trained_on(catalogue_run):
    found = json.loads((catalogue_run.folder / "data.json").read_text())
    assert sorted(found["items"]) == sorted(f"i{number}" for number in range(18))
    assert len(found["users"]) == 24
    assert (list(found["files"]), found["options"]["num_train"]) == (["."], 6)


@pytest.mark.filterwarnings("ignore:.* are not in .*nothing is learnt about them")
@pytest.mark.parametrize("catalogue_run", ["folder"], indirect=True)
def test_a_new_test_file_is_matched_by_name(catalogue_run):
    rewritten(catalogue_run.data / "test.csv", lambda rows: [rows[0], *rows[:0:-1], ["u0", "a0"], ["stranger", "i1"]])
    with pytest.warns(UserWarning, match="are not in the training data"):
        assert catalogue_run.answer("measures")[0] == catalogue_run.first["measures"][0]


@pytest.mark.parametrize("catalogue_run", ["ratings", "folder"], indirect=True)
def test_a_catalogue_of_an_earlier_version_says_that_names_are_unknown(catalogue_run, tmp_path):
    shutil.copytree(catalogue_run.folder, tmp_path / "run")
    path = tmp_path / "run" / "checkpoints" / "best.ckpt"
    content = torch.load(path, weights_only=True)
    del content["rankstruct_data"]
    torch.save(content, path)
    catalogue_run.folder = tmp_path / "run"
    with pytest.warns(UserWarning, match="matched by order"):
        assert catalogue_run.answer("recommendations")[0] == catalogue_run.first["recommendations"][0]
    rewritten(catalogue_run.file, two_new_items)
    found, err = catalogue_run.answer("recommendations")
    assert found is None
    assert "earlier version" in err
    assert "18 items" in err
    shutil.rmtree(catalogue_run.data)
    found, err = catalogue_run.answer("recommendations")
    assert found is None


# Text


@pytest.fixture(scope="module")
def text_run(tmp_path_factory):
    for library in ("transformers", "sentence_transformers", "bm25s", "Stemmer"):
        pytest.importorskip(library)
    from rankstruct.text.questions import questions, tiny_encoder

    folder = tmp_path_factory.mktemp("text")
    write_collection(folder / "data")
    tiny_encoder(questions(), folder / "data" / "encoder")
    config = {
        "task": "text",
        "model": {"scorer": "rankstruct.text.CrossEncoderScorer", "measures": ["AP"]},
        "data": {
            "path": str(folder / "data"),
            "encoder": str(folder / "data" / "encoder"),
            "depth": 6,
            "max_length": 32,
        },
    }
    config["trainer"] = {"max_epochs": 1, "limit_train_batches": 2, "enable_progress_bar": False}
    return Run(folder, config, {"lists": ["predict"], "measures": ["test"]})


@pytest.mark.sampled(2)
@pytest.mark.parametrize("change", ["order", "fewer", "gone"])
def test_texts_are_ranked_alike_whatever_became_of_the_training_judgements(text_run, change):
    file = text_run.data / "qrels_train.tsv"
    lines = file.read_text().splitlines()
    if change == "gone":
        file.unlink()
    else:
        file.write_text("\n".join([lines[0], *(lines[:0:-1] if change == "order" else lines[1:9])]) + "\n")
    try:
        assert {name: text_run.answer(name)[0] for name in text_run.answers} == {
            name: first[0] for name, first in text_run.first.items()
        }
        assert_no_resuming(text_run, "qrels_train.tsv")
    finally:
        text_run.restore()


def test_tokens_are_those_of_training(text_run):
    """Another vocabulary of the encoder would give other tokens to the same words."""
    file = text_run.data / "encoder" / "tokenizer.json"
    content = json.loads(file.read_text())
    words = list(content["model"]["vocab"])
    content["model"]["vocab"] = dict(zip(words[:4] + words[:3:-1], range(len(words)), strict=True))
    file.write_text(json.dumps(content))
    try:
        for name in text_run.answers:
            found, err = text_run.answer(name)
            assert found is None
            assert "encoder" in err
    finally:
        text_run.restore()
