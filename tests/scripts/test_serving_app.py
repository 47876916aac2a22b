"""The example of a service: ranked ids and scores, and an answer that says what is wrong with a request."""

import json

import numpy as np
import pytest
import torch

import rankstruct as rs

NAMES = ["bm25", "clicks", "age"]
URL = "/rank"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    rng = np.random.default_rng(0)
    X, qid = rng.normal(size=(200, 3)), np.repeat(np.arange(20), 10)
    ranker = rs.LinearRanker("AP", prepare=["standardize"]).fit(X, (X[:, 1] > 0.5).astype(int), qid)
    folder = tmp_path_factory.mktemp("ranker")
    rs.save_scorer(ranker.to_scorer(), folder / "scorer.pt")
    (folder / "result.json").write_text(json.dumps({"feature_names": NAMES}))
    return folder


@pytest.fixture(scope="module")
def client(folder):
    from fastapi.testclient import TestClient

    from serving.app import create_app

    return TestClient(create_app(folder))


ROWS = [[0.1, 2.0, 0.0], [3.0, -1.0, 0.5], [0.0, 0.4, 9.0]]


def query(rows, named=False):
    made = [dict(reversed([*zip(NAMES, row, strict=True)])) if named else row for row in rows]
    return {"documents": [{"id": name, "features": each} for name, each in zip("abc", made, strict=True)]}


@pytest.mark.parametrize("named", [False, True])
def test_documents_come_back_ranked_with_the_scores_of_the_scorer(named, client, folder):
    found = client.post(URL, json=query(ROWS, named)).raise_for_status().json()
    scores = dict(zip("abc", rs.load_scorer(folder)(torch.tensor(ROWS)).tolist(), strict=True))
    assert [each["id"] for each in found] == sorted(scores, key=scores.__getitem__, reverse=True)
    assert {each["id"]: each["score"] for each in found} == pytest.approx(scores, rel=1e-6)
    assert found[0]["id"] == "a"


def test_a_ranking_keeps_rules(client):
    body = query(ROWS)
    for document, seller in zip(body["documents"], ["ann", "ann", "bob"], strict=True):
        document["groups"] = {"seller": seller}
    for rules, expected in (
        ([], "acb"),
        (["seller <= 1 @ 2"], "acb"),
        (["seller=bob >= 1 @ 1"], "cab"),
        (["seller <= 1"], "ac"),
    ):
        found = client.post(URL, json=body | {"constraints": rules}).raise_for_status().json()
        assert "".join(each["id"] for each in found) == expected
    for rules, said in (
        (["seller < 1"], "not a rule: 'seller < 1'"),
        (["seller=bob >= 2 @ 2"], "no ranking of list 0 keeps 'seller=bob >= 2 @ 2': the list has 1 such document"),
        (["host <= 1"], "the rules are about 'host', and no document has such a group"),
    ):
        answer = client.post(URL, json=body | {"constraints": rules})
        assert (answer.status_code, answer.json()["detail"][: len(said)]) == (422, said)


def test_a_pair_is_explained(client, folder):
    body = query(ROWS, named=True) | {"ids": ["a", "c"]}
    found = client.post("/explain", json=body).raise_for_status().json()
    scores = rs.load_scorer(folder)(torch.tensor(ROWS)).tolist()
    assert sum(each["contribution"] for each in found) == pytest.approx(scores[0] - scores[2], rel=1e-5)
    assert found[0]["feature"] == "clicks"
    assert found[0]["values"] == pytest.approx([2.0, 0.4])
    answer = client.post("/explain", json=body | {"ids": ["a", "d"]})
    assert answer.status_code == 422
    assert answer.json()["detail"] == "ids must name two of the documents, got 'd' 0 times"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"documents": []}, "at least 1 item"),
        ({}, "Field required"),
        (query([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]]), "3 features, got"),
        (query([[1.0, 2.0, 3.0], [1.0, 2.0], [1.0, 2.0, 3.0]]), "all documents need the same number of features"),
        ({"documents": [{"id": "a", "features": ["x", 1, 2]}]}, "valid number"),
        ({"documents": [{"id": "a", "features": [None, 1, 2]}]}, "valid number"),
        ({"documents": [{"id": "a", "features": {"bm25": 1.0}}]}, "'a' lacks features: age, clicks"),
        ({"documents": [{"id": "a", "features": dict.fromkeys([*NAMES, "more"], 1.0)}]}, "unknown features: more"),
        (query([[1e39, 1e39, -1e39]] * 3), "scores are not finite"),
    ],
)
def test_a_wrong_request_is_answered_with_422_and_the_reason(body, said, client):
    answer = client.post(URL, json=body)
    assert answer.status_code == 422
    assert said in json.dumps(answer.json()["detail"], ensure_ascii=False)
    assert len(json.dumps(answer.json())) < 500


TABLE = {"price": [3.0, None, 1.0], "brand": ["bee", "new", None]}


@pytest.fixture(scope="module")
def of_a_table(tmp_path_factory):
    from fastapi.testclient import TestClient

    from serving.app import create_app

    rng = np.random.default_rng(0)
    table = {"price": rng.normal(size=200), "brand": rng.choice(np.array(["ant", "bee", "cat"], object), 200)}
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(table)
    labels = ((frame["price"] > 0.5) | (frame["brand"] == "bee")).astype(int)
    scorer = tmp_path_factory.mktemp("table") / "scorer.pt"
    rs.save_scorer(rs.LinearRanker("AP").fit(frame, labels, np.repeat(np.arange(20), 10)).to_scorer(), scorer)
    return rs.load_scorer(scorer), TestClient(create_app(scorer))


def rows_of(table):
    return [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]


def ask(client, rows):
    return client.post(URL, json={"documents": [{"id": str(at), "features": row} for at, row in enumerate(rows)]})


@pytest.mark.parametrize("named", [False, True])
def test_words_and_missing_cells_of_a_table_are_encoded_as_in_training(named, of_a_table):
    scorer, client = of_a_table
    rows = rows_of(TABLE)
    found = ask(client, rows if named else [list(row.values()) for row in rows]).raise_for_status().json()
    expected = scorer(torch.tensor(scorer.preparation.columns.encode(TABLE), dtype=torch.float32)).tolist()
    assert {each["id"]: each["score"] for each in found} == pytest.approx(dict(zip("012", expected, strict=True)))
    assert client.get("/health").json()["features"] == ["price", "brand"]


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ([1.0], "expected 2 features, got 1"),
        (["much", "bee"], "column 'price' had numbers"),
        ([1.0, 2.0], "column 'brand' had text"),
        ({"price": 1.0}, "lacks features: brand"),
    ],
)
def test_a_wrong_table_is_answered_with_422_and_the_reason(row, said, of_a_table):
    answer = ask(of_a_table[1], [row])
    assert answer.status_code == 422
    assert said in answer.json()["detail"]


def test_a_numeric_scorer_that_fills_missing_cells_accepts_null(tmp_path):
    from fastapi.testclient import TestClient

    from serving.app import create_app

    X = np.random.default_rng(0).normal(size=(200, 2))
    ranker = rs.LinearRanker("AP", prepare=["encode", "standardize"])
    ranker = ranker.fit(X, (X[:, 0] > 0.5).astype(int), np.repeat(np.arange(20), 10))
    rs.save_scorer(ranker.to_scorer(), tmp_path / "scorer.pt")
    (found,) = ask(TestClient(create_app(tmp_path / "scorer.pt")), [[None, 1.0]]).raise_for_status().json()
    assert found["score"] == pytest.approx(float(ranker.predict(np.array([[np.nan, 1.0]]))[0]), rel=1e-4)


def test_scorer_and_names_from_the_environment(folder, tmp_path, monkeypatch):
    from fastapi.testclient import TestClient

    from serving.app import create_app

    scorer = tmp_path / "scorer.pt"
    scorer.write_bytes((folder / "scorer.pt").read_bytes())
    monkeypatch.setenv("SCORER", str(scorer))
    named = query(ROWS, named=True)
    answer = TestClient(create_app()).post(URL, json=named)
    assert answer.status_code == 422
    assert "no feature names" in answer.json()["detail"]
    monkeypatch.setenv("FEATURES", ",".join(NAMES))
    client = TestClient(create_app())
    assert client.get("/health").json() == {"scorer": "PreparedScorer", "features": NAMES}
    assert client.post(URL, json=named).json() == client.post(URL, json=query(ROWS)).json()
