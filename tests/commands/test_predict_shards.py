"""Scores of shards, as shards: those of `predict` for a file, in order, resumed, and nothing wrong in silence."""

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rankstruct as rs
from rankstruct import cli
from rankstruct.commands import predict_shards
from rankstruct.models import save_scorer
from rankstruct.table_scorer import TableScorer


def draw(seed, lists=30, brands=("ant", "bee")):
    rng = np.random.default_rng(seed)
    qid = np.repeat([f"q{at}" for at in range(lists)], rng.integers(2, 9, lists))
    frame = pd.DataFrame({"qid": qid, "docid": [f"d{at}" for at in range(len(qid))]})
    frame["price"] = np.where(rng.random(len(qid)) < 0.2, np.nan, rng.normal(size=len(qid)))
    return frame.assign(brand=rng.choice([*brands, None], len(qid)), label=rng.integers(0, 3, len(qid)))


def write(frame, folder, files=3):
    """Shards with small row groups, which lists cross; files hold whole lists."""
    for number, lists in enumerate(np.array_split(frame.qid.unique(), files)):
        part = folder / f"day={number}" / "part.parquet"
        part.parent.mkdir(parents=True)
        pq.write_table(pa.Table.from_pandas(frame[frame.qid.isin(lists)], preserve_index=False), part, row_group_size=7)


@pytest.fixture(params=["documents", "lists"])
def run(request, tmp_path):
    """Shards, a folder with a scorer, and what `predict` writes for one file."""
    steps = ["encode"] if request.param == "documents" else ["encode", "query-zscore"]
    train, new = draw(0), draw(1, brands=("ant", "bee", "wasp")).drop(columns="label")
    ranker = rs.LinearRanker("AP", prepare=steps).fit(train.drop(columns="docid").assign(label=train.label > 1))
    save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    write(new, tmp_path / "new")
    return tmp_path, new, ranker.predict(new.drop(columns="docid"))


def predict(folder, *args):
    return cli.main(
        [
            "predict",
            "--run",
            str(folder),
            "--data.predict_path",
            str(folder / "new"),
            "--output",
            str(folder / "out"),
            *args,
        ]
    )


def test_shards_have_the_scores_and_the_order_of_their_rows(run, capsys):
    folder, new, scores = run
    assert predict(folder) == 0
    files = sorted((folder / "out").rglob("*"))
    assert [str(file.relative_to(folder / "out")) for file in files if file.is_file()] == [
        f"day={number}/part.parquet" for number in range(3)
    ]
    found = pd.concat([pd.read_parquet(file, partitioning=None) for file in files if file.is_file()])
    assert found.columns.tolist() == ["qid", "docid", "score"]
    assert found.docid.tolist() == new.docid.tolist()
    assert found.score.to_numpy() == pytest.approx(scores, abs=1e-6)
    assert f"scores of {len(new)} documents in 3 files: {folder / 'out'}" in capsys.readouterr().out


def test_only_files_that_are_not_there_are_scored(run, capsys, monkeypatch):
    folder, *_ = run
    tables, whole = predict_shards._tables, []

    def killed(model, shards, number, names):
        for table in tables(model, shards, number, names):
            yield table
            if number == 1:
                raise KeyboardInterrupt

    monkeypatch.setattr(predict_shards, "_tables", killed)
    assert predict(folder) == 130
    assert [file.parent.name for file in (folder / "out").rglob("*.p*")] == ["day=0"]
    monkeypatch.setattr(predict_shards, "_tables", lambda *given: whole.append(given[2]) or tables(*given))
    first = folder / "out" / "day=0" / "part.parquet"
    before = first.stat().st_mtime_ns
    assert predict(folder) == 0
    assert whole == [1, 2]
    assert first.stat().st_mtime_ns == before
    assert "; 1 were there before" in capsys.readouterr().out
    (folder / "new" / "day=0" / "part.parquet").write_bytes((folder / "new" / "day=1" / "part.parquet").read_bytes())
    assert predict(folder) == 1
    assert f"{first}: expected no file, or the scores of this model and of the same input" in capsys.readouterr().err


def test_wrong_shards_are_refused_in_one_line(tmp_path, capsys):
    ranker = rs.LinearRanker("AP", prepare=["query-zscore"]).fit(
        draw(0).drop(columns=["docid", "brand"]).fillna({"price": 0.0})
    )
    save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    write(draw(1).drop(columns="price"), tmp_path / "new")
    for args, said in (
        ([], "missing: 'price'; there are 'qid', 'docid', 'brand', 'label'"),
        (["--data.qid", "list"], "expected a column 'list', got 'qid, docid, brand, label'"),
    ):
        assert predict(tmp_path, *args) == 1
        assert said in capsys.readouterr().err
    assert cli.main(["predict", "--data.predict_path", "new", "--output", "out"]) == 1
    assert "by the model of --run FOLDER; add --run, or remove --output" in capsys.readouterr().err
    write(draw(1).fillna({"price": 0.0}).sort_values("docid"), tmp_path / "mixed" / "new")
    assert cli.main(
        [
            "predict",
            "--run",
            str(tmp_path),
            "--data.predict_path",
            str(tmp_path / "mixed"),
            "--output",
            str(tmp_path / "out"),
        ]
    )
    assert "expected the rows of each query together, since scores depend on the whole list" in capsys.readouterr().err
    assert not [*(tmp_path / "out").rglob("*.p*")]


@pytest.mark.parametrize("last", [1, 2])
def test_a_list_in_two_files_is_refused_with_both(tmp_path, last):
    for number, lists in {0: ["q1", "q2"], 1: ["q4", "q5"], last: ["q2", "q3"]}.items():
        pq.write_table(pa.table({"qid": lists, "x": [0.0, 1.0]}), tmp_path / f"{number}.parquet")
    scorer = TableScorer(lambda table, qid: np.zeros(len(table)), ("x",), True, "qid")
    shards = predict_shards.Shards(tmp_path)
    with pytest.raises(rs.data.DataError, match=rf"{last}\.parquet, row 1: .* query 'q2' .*0\.parquet, row 2"):
        predict_shards.score_shards(predict_shards._TableModel(scorer, None, None), shards, tmp_path / "out", "model")


def test_probabilities_and_what_is_shown_are_those_of_the_file(tmp_path, capsys):
    """Of a model that scores documents alone: its cut-off needs whole lists."""
    train, new = (draw(seed).drop(columns="brand") for seed in (0, 1))
    ranker = rs.LinearRanker("AP", prepare=["encode"], calibrate="sigmoid")
    ranker.fit(train.drop(columns="docid").assign(label=train.label > 1))
    save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    given = new.drop(columns=["docid", "label"])
    scores = ranker.predict(given).astype(np.float32)
    cut_off = rs.CutOff(recall=0.8).fit(scores, new.label, qid=new.qid)
    known = {"cut_off": {"options": cut_off.options}, "feature_names": ["price"], "features": 1}
    (tmp_path / "result.json").write_text(json.dumps(known))
    write(new.drop(columns="label"), tmp_path / "new")
    assert predict(tmp_path) == 0
    parts = [pd.read_parquet(tmp_path / "out" / f"day={day}" / "part.parquet", partitioning=None) for day in range(3)]
    found = pd.concat(parts)
    assert found.columns.tolist() == ["qid", "docid", "score", "probability", "shown"]
    np.testing.assert_allclose(found.probability, ranker.predict_proba(given)[:, 1], atol=1e-6)
    assert found.shown.tolist() == cut_off.predict(scores, qid=new.qid).tolist()
    assert 0 < found.shown.sum() < len(found)
    with_nothing_shown = {name: value for name, value in known.items() if name != "cut_off"}
    (tmp_path / "result.json").write_text(json.dumps(with_nothing_shown))
    assert predict(tmp_path) == 1  # files of another model
    assert "expected no file, or the scores of this model" in capsys.readouterr().err
