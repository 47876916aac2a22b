"""What `rank` takes, `predict`, `evaluate` and the saved scorer take too, with the same scores; or the first command refuses it.

Every kind of file goes through all of them: trained on, tested on, predicted, measured, scored in Python.
"""

import json
import pickle
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import rankstruct as rs
from rankstruct.cli import main as rankstruct
from rankstruct.data import RankingData, convert_lists, read_lists, read_run, read_scores
from rankstruct.data.predictions import read_for_model, write_predictions
from rankstruct.estimators import LinearRanker, auto

LISTS, SIZE, WIDTH = 8, 5, 4
PARTS = ("train", "test", "new")


def documents(part, width=WIDTH):
    """Features, labels and the number of the list of each document."""
    rng = np.random.default_rng(PARTS.index(part))
    X = np.round(rng.normal(size=(LISTS * SIZE, width)), 3)
    y = np.clip(np.floor(X[:, 0] + 0.5 * rng.normal(size=len(X)) + 0.5), 0, 2).astype(int)
    return X, y, np.repeat(np.arange(LISTS), SIZE)


def svmlight(
    path, part, *, qid=str, docid=None, label=str, between=" ", end="\n", side=False, change=lambda X, part: X
):
    X, y, lists = documents(part)
    X, lines = change(X, part), []
    for at in range(len(y)):
        features = [f"{k}:{v!r}" for k, v in enumerate(X[at].tolist(), 1) if v]
        head = [label(int(y[at])), *([] if side else [f"qid:{qid(lists[at])}"])]
        lines.append(between.join([*head, *features]) + ("" if docid is None else f" # docid = {docid(at)}"))
    path = path.with_suffix(".txt")
    path.write_text(end.join(lines) + end, encoding="utf-8", newline="")
    if side:
        Path(f"{path}.query").write_text(f"{SIZE}\n" * LISTS)
    return path


def table(path, part, *, suffix=".parquet", qid=str, docid=None, names=None, change=lambda X, part: X, columns=None):
    pa = pytest.importorskip("pyarrow")
    X, y, lists = documents(part)
    X = change(X, part)
    found = {"qid": [qid(each) for each in lists], "label": y.tolist()}
    found |= {} if docid is None else {"docid": [docid(at) for at in range(len(y))]}
    found |= dict(zip(names or [f"f{k}" for k in range(X.shape[1])], X.T, strict=True))
    made = pa.table(columns(found, part) if columns else found)
    return stored(made, path.with_suffix(suffix))


def stored(made, path):
    import pyarrow.csv
    import pyarrow.feather
    import pyarrow.parquet

    if path.suffix == ".csv":
        pyarrow.csv.write_csv(made, path)
    else:
        (pyarrow.parquet.write_table if path.suffix == ".parquet" else pyarrow.feather.write_feather)(made, str(path))
    return path


def vectors(path, part, **options):
    """A table with one column of lists of numbers."""
    pa = pytest.importorskip("pyarrow")
    X, y, lists = documents(part)
    X = options.get("change", lambda X, part: X)(X, part)
    made = {"qid": lists, "label": y, "embedding": pa.array(X.tolist(), pa.list_(pa.float32()))}
    return stored(pa.table(made), path.with_suffix(".parquet"))


def converted(path, part, dtype="float32", **options):
    target = path.with_suffix(".rankdata")
    convert_lists(svmlight(path, part, **options), target, dtype=dtype)
    return target


def wide(width, which="new"):
    """Another number of features in one of the files."""
    return lambda X, part: np.resize(X, (len(X), width)) if part == which else X


def sparse(X, part):
    found = np.zeros((len(X), 40))
    found[:, :4], found[:, 39] = np.where(abs(X) > 1, X, 0), X[:, 0] * (part == "train")
    return found


def in_other_order(found, part):
    return {name: found[name] for name in (reversed(found) if part == "new" else found)}


def with_gaps(found, part):
    return found | {"f1": [None if at % 7 == 0 else v for at, v in enumerate(found["f1"])]}


def kinds():
    """Files by name: how each part is written; and what the first command that refuses one says, `{command: words}`."""
    csv = {"suffix": ".csv"}
    yield "svmlight", svmlight, {}, {}
    yield "names of documents", svmlight, {"docid": "d{}".format}, {}
    yield "the same name twice", svmlight, {"docid": lambda at: "same"}, {"run": "got same again in query 0"}
    yield "Unicode queries", svmlight, {"qid": "日本-Ä-{}".format}, {}
    yield "tabs and CR LF", svmlight, {"between": "\t", "end": "\r\n"}, {}
    yield "a side file", svmlight, {"side": True}, {}
    yield "sparse", svmlight, {"change": sparse}, {}
    yield "fewer features later", svmlight, {"change": wide(2)}, {}
    yield "more features in the test", svmlight, {"change": wide(6, "test")}, {}
    yield "more features later", svmlight, {"change": wide(6)}, {"predict": "expected feature ids up to 4, got '5:"}
    yield "large numbers", svmlight, {"change": lambda X, part: X * 1e37}, {}
    scale = {"change": lambda X, part: X * (7e37 if part == "new" else 1e-3)}
    yield (
        "numbers far outside",
        svmlight,
        scale,
        {"predict": "expected features that the model can score, got a score of"},
    )
    yield "labels of any kind later", svmlight, {"label": lambda y: f"{y}.0"}, {}
    yield "float64", table, {}, {}
    yield "float16", table, {"change": lambda X, part: X.astype(np.float16)}, {}
    yield "integers", table, {"change": lambda X, part: (10 * X).astype(int)}, {}
    yield "nulls", table, {"columns": with_gaps}, {}
    yield "queries with blanks", table, {"qid": "New York {}".format, "docid": "Area {}".format}, {}
    yield "queries with tabs", table, {"qid": "a\t{}".format}, {"run": "cannot represent the query 'a\\t0'"}
    yield "queries with line ends", table, {"qid": "a\n{}".format}, {"run": "cannot represent the query 'a\\n0'"}
    yield "numbers as names", table, {"qid": int, "docid": int}, {}
    yield "columns in another order", table, {"columns": in_other_order}, {}
    more = {"columns": lambda found, part: found | ({"more": found["f0"]} if part == "new" else {})}
    yield "a column more", table, more, {}
    less = {"columns": lambda found, part: {k: v for k, v in found.items() if part != "new" or k != "f2"}}
    yield "a column less", table, less, {"predict": "missing: 'f2'"}
    yield "CSV", table, csv, {}
    yield "CSV, queries with commas", table, csv | {"qid": 'a, "b" {}'.format}, {}
    yield "CSV, Unicode names", table, csv | {"names": ["ä b", "日", "c,d", 'e"f']}, {}
    yield "CSV, another order", table, csv | {"columns": in_other_order}, {}
    yield "CSV, empty cells", table, csv | {"columns": with_gaps}, {}
    yield "Feather", table, {"suffix": ".feather"}, {}
    yield "vectors", vectors, {}, {}
    yield (
        "longer vectors later",
        vectors,
        {"change": wide(5)},
        {"predict": "expected 4 features, as in training, got 5"},
    )
    yield (
        "shorter vectors later",
        vectors,
        {"change": wide(3)},
        {"predict": "expected 4 features, as in training, got 3"},
    )
    yield (
        "shorter test vectors",
        vectors,
        {"change": wide(3, "test")},
        {"rank": "expected 4 features, as in the other files, got 3"},
    )
    yield "mapped", converted, {}, {}
    yield "mapped float16", converted, {"dtype": "float16"}, {}
    yield "mapped, sparse", converted, {"change": lambda X, part: sparse(X, "train")}, {}
    for first, then in (
        (svmlight, table), (table, svmlight), (svmlight, vectors), (vectors, svmlight), (converted, table), (table, converted)
    ):  # fmt: skip
        yield f"{first.__name__}, then {then.__name__}", mixed(first, then, "new"), {}, {}
    short = mixed(
        svmlight, lambda path, part: table(path, part, suffix=".csv", change=lambda X, part: X[:, :3]), "test"
    )
    yield (
        "a test table with fewer columns",
        short,
        {},
        {"rank": "expected 4 features, as in the other files, got 3"},
    )
    long = mixed(table, lambda path, part: svmlight(path, part, change=wide(8, part)), "test")
    yield (
        "a test file with more features than columns",
        long,
        {},
        {"rank": "test.txt: expected 4 features, as in "},
    )


def mixed(first, then, which):
    return lambda path, part: (then if part == which else first)(path, part)


#: Those that differ in what runs; the others are slow.
QUICK = {
    *("the same name twice", "Unicode queries", "a side file", "sparse", "more features later", "numbers far outside"),
    *(
        "queries with blanks",
        "queries with tabs",
        "columns in another order",
        "CSV, queries with commas",
        "mapped float16",
    ),
    *("longer vectors later", "shorter test vectors", "table, then svmlight", "a test table with fewer columns"),
    "a test file with more features than columns",
}
KINDS = [pytest.param(*kind[1:], id=kind[0], marks=[] if kind[0] in QUICK else [pytest.mark.slow]) for kind in kinds()]


@pytest.fixture
def quick(monkeypatch):
    """One model, one value of C."""
    linear = {"linear": lambda options, lists: LinearRanker(options.measure, loss="GradedLoss('AUC')", C=[0.01])}
    monkeypatch.setattr(auto, "MEMBERS", linear)


def said(capsys, *args):
    """Status and what a command says, both streams."""
    status = rankstruct([*map(str, args)])
    captured = capsys.readouterr()
    assert "Traceback" not in captured.err
    return status, captured.out + captured.err


def test_quick_kinds_are_there():
    assert {kind[0] for kind in kinds()} > QUICK


@pytest.mark.sampled(3)
@pytest.mark.parametrize(("write", "options", "refused"), KINDS)
def test_what_rank_takes_the_others_take(write, options, refused, tmp_path, quick, capsys):
    paths = {part: write(tmp_path / part, part, **options) for part in PARTS}
    output = tmp_path / "out"
    status, told = said(capsys, "rank", "--train", paths["train"], "--test", paths["test"], "--output", output)
    assert status == (1 if "rank" in refused else 0), told
    if "rank" in refused:
        assert refused["rank"] in told
        assert not (output / "scorer.pt").exists()
        return
    result = json.loads((output / "result.json").read_text())
    scorer, ranker = rs.load_scorer(output), pickle.loads((output / "ranker.pkl").read_bytes())
    for part in ("test", "new"):
        status, predicted = said(capsys, "predict", "--run", output, "--data.predict_path", paths[part])
        if part == "new" and "predict" in refused:
            assert status == 1
            assert refused["predict"] in predicted
            assert str(paths[part]) in predicted
            return
        assert status == 0, predicted
        data = read_for_model(paths[part], result["feature_names"], result["features"])
        features = torch.tensor(data.features.toarray() if data.is_sparse else data.features).float()
        with torch.inference_mode():
            expected = scorer(features, offsets=torch.tensor(data.offsets)).numpy()
        scores = read_scores(output / "scores.txt")
        assert np.array_equal(scores.astype(np.float32), expected)  # to the last bit
        X = features.numpy()
        if hasattr(ranker, "feature_names_in_"):
            X = pytest.importorskip("pandas").DataFrame(X, columns=ranker.feature_names_in_)
        np.testing.assert_allclose(ranker.predict(X, data.list_numbers), scores, atol=1e-4)
        measures = ["--measures", *result["test"], "--json", tmp_path / "measured.json"]
        status, told = said(capsys, "evaluate", output / "scores.txt", "--labels", paths[part], *measures)
        assert status == 0, told
        (means,) = json.loads((tmp_path / "measured.json").read_text())["means"].values()
        if part == "test":
            assert means == {name: each["mean"] for name, each in result["test"].items()}
        if "run" in refused:
            assert "no TREC run: " in predicted
            assert refused["run"] in predicted
            assert not (output / "run.txt").exists()
        else:
            check_run(output, data, means, tmp_path, capsys)


def check_run(output, data, means, folder, capsys):
    """The run has all documents, and `evaluate` finds in it what it finds in the scores."""
    run = read_run(output / "run.txt")
    assert list(run) == data.qids.tolist()
    qrels, at = [], 0
    for qid, first, last in zip(run, data.offsets[:-1], data.offsets[1:], strict=True):
        names = [None] * (last - first) if data.docids is None else data.docids[first:last].tolist()
        names = [name or f"{qid}-{place}" for place, name in enumerate(names, 1)]
        assert sorted(names) == sorted(run[qid])
        qrels += ["\t".join([qid, "0", name, f"{data.labels[at + k]:.0f}"]) for k, name in enumerate(names)]
        at += last - first
    (folder / "qrels.txt").write_text("\n".join(qrels) + "\n", encoding="utf-8")
    given = ["--measures", *means, "--json", folder / "run.json"]
    status, told = said(capsys, "evaluate", output / "run.txt", "--qrels", folder / "qrels.txt", *given)
    assert status == 0, told
    (found,) = json.loads((folder / "run.json").read_text())["means"].values()
    assert found == pytest.approx(means, abs=1e-12)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@settings(deadline=None, max_examples=60)
@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), st.lists(NAMES, min_size=8, max_size=8), st.booleans())
def test_predictions_of_any_names_are_read_back_or_no_run_is_left(tmp_path_factory, qids, docids, named):
    folder = tmp_path_factory.mktemp("predictions")
    rows = 2 * len(qids)
    data = RankingData(
        np.zeros((rows, 1), np.float32),
        np.zeros(rows, np.float32),
        np.arange(0, rows + 1, 2),
        qids,
        docids[:rows] if named else None,
    )
    scores = np.linspace(0, 1, rows, dtype=np.float32)
    (folder / "run.txt").write_text("of other lists")
    told = write_predictions(folder, data, scores)
    assert np.array_equal(read_scores(folder / "scores.txt").astype(np.float32), scores)
    if not (folder / "run.txt").exists():
        assert told[-1].startswith("no TREC run: ")
        return
    run = read_run(folder / "run.txt")
    assert list(run) == qids
    assert [score for each in run.values() for score in sorted(each.values())] == pytest.approx(scores.tolist())


def test_files_without_labels_to_speak_of_are_predicted(tmp_path, quick, capsys):
    train = svmlight(tmp_path / "train", "train")
    assert said(capsys, "rank", "--train", train, "--output", tmp_path / "out")[0] == 0
    found = []
    for label in ("0", "-1", "0.5"):
        path = svmlight(tmp_path / f"new{label}", "new", label=lambda y, label=label: label)
        assert said(capsys, "predict", "--run", tmp_path / "out", "--data.predict_path", path)[0] == 0
        found.append((tmp_path / "out" / "scores.txt").read_bytes())
    assert found[0] == found[1] == found[2]
    text = svmlight(tmp_path / "none", "new").read_text()
    (tmp_path / "none.txt").write_text("\n".join(line.partition(" ")[2] for line in text.splitlines()))
    status, told = said(capsys, "predict", "--run", tmp_path / "out", "--data.predict_path", tmp_path / "none.txt")
    assert status == 1
    assert "none.txt:1: expected a finite number (of float32's range) as label, got 'qid:0'; add one in front" in told


@pytest.mark.parametrize(
    ("write", "then", "said_of"),
    [
        (
            table,
            converted,
            "new.rankdata: features are matched by order; they have names in training, and the file has none: f0, f1, f2, f3",
        ),
        (
            svmlight,
            table,
            "new.parquet: features are matched by order; they have names in the file, and the model has none: f0",
        ),
        (svmlight, vectors, None),
        (table, table, None),
    ],
)
def test_an_order_that_no_names_confirm_is_told(write, then, said_of, tmp_path, quick, capsys, caplog):
    train = write(tmp_path / "train", "train")
    assert said(capsys, "rank", "--train", train, "--output", tmp_path / "out")[0] == 0
    new = then(tmp_path / "new", "new")
    assert said(capsys, "predict", "--run", tmp_path / "out", "--data.predict_path", new)[0] == 0
    messages = [each.getMessage() for each in caplog.records if "matched by order" in each.getMessage()]
    assert len(messages) == (said_of is not None)
    assert said_of is None or said_of in messages[0]


def test_feature_ids_from_0_are_kept_in_mind(tmp_path, quick, capsys):
    found = []
    for first in (0, 1):
        folder = tmp_path / str(first)
        folder.mkdir()
        for part in ("train", "new"):
            path = svmlight(folder / part, part)
            path.write_text(
                re.sub(r" (\d):", lambda each, first=first: f" {int(each[1]) - 1 + first}:", path.read_text())
            )
        given = ["--train", folder / "train.txt", "--output", folder / "out", *([] if first else ["--zero-based"])]
        status, told = said(capsys, "rank", *given)
        assert status == 0, told
        status, told = said(capsys, "predict", "--run", folder / "out", "--data.predict_path", folder / "new.txt")
        assert status == 0, told
        found.append(read_scores(folder / "out" / "scores.txt"))
    assert np.array_equal(*found)
    status, told = said(capsys, "rank", "--zero-based", *given)  # of the ones from 1
    assert status == 1
    assert "differs in reading.zero_based; use another --output" in told
    status, told = said(capsys, "predict", "--run", folder / "out", "--data.predict_path", tmp_path / "0" / "new.txt")
    assert status == 1
    assert "new.txt:1: expected feature ids from 1, got '0:" in told


def test_a_ranker_of_named_columns_knows_them(tmp_path, quick, capsys):
    pandas = pytest.importorskip("pandas")
    train = table(tmp_path / "train", "train")
    assert said(capsys, "rank", "--train", train, "--output", tmp_path / "out")[0] == 0
    ranker = pickle.loads((tmp_path / "out" / "ranker.pkl").read_bytes())
    X, _, lists = documents("new")
    frame = pandas.DataFrame(X, columns=["f0", "f1", "f2", "f3"])
    assert len(ranker.predict(frame, lists)) == len(X)
    reordered = ranker.predict(frame[["f1", "f0", "f2", "f3"]], lists)
    assert (reordered == ranker.predict(frame, lists)).all()
    card = (tmp_path / "out" / "README.md").read_text()
    assert "read_lists(FILE, features=feature_names)" in card
    assert read_lists(train, features=["f3", "f2", "f1", "f0"]).features[0].tolist() == pytest.approx(
        documents("train")[0][0, ::-1].tolist()
    )
