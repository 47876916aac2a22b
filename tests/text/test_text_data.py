"""Collections, first stages and lists of tokens."""

import json

import numpy as np
import pytest
import torch

import rankstruct as rs
from rankstruct.data import DataError, read_qrels


@pytest.fixture
def folder(tmp_path):
    """A collection in BEIR's form with one file of judgements."""
    texts = {f"d{n}": f"word{n} common text number {n % 7}" for n in range(40)}
    queries = {f"q{n}": f"word{n} common" for n in range(10)}
    for name, known in (("corpus", texts), ("queries", queries)):
        lines = [json.dumps({"_id": key, "title": "", "text": text}) for key, text in known.items()]
        (tmp_path / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    rows = [f"q{n}\td{n}\t{1 + n % 2}" for n in range(10)] + ["q0\td5\t-1"]
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n" + "\n".join(rows) + "\n")
    return tmp_path


def test_a_folder_is_read(folder):
    collection = rs.text.read_collection(folder)
    assert len(collection.documents) == 40
    assert collection.queries["q3"] == "word3 common"
    assert collection.judgements["all"]["q0"] == {"d0": 1.0, "d5": -1.0}


def test_parts_have_files_of_their_own(folder):
    (folder / "qrels.tsv").unlink()
    (folder / "qrels").mkdir()
    for part, query in (("train", 1), ("dev", 2), ("test", 3)):
        (folder / "qrels" / f"{part}.tsv").write_text(f"query-id\tcorpus-id\tscore\nq{query}\td{query}\t1\n")
    judgements = rs.text.read_collection(folder).judgements
    assert {part: list(each) for part, each in judgements.items()} == {"train": ["q1"], "vali": ["q2"], "test": ["q3"]}


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("corpus.jsonl", "{not json", r"corpus.jsonl:1: expected \{\"_id\""),
        ("corpus.jsonl", '{"_id": "a"}', r"corpus.jsonl:1: expected"),
        ("corpus.jsonl", '["a"]', r"corpus.jsonl:1: expected"),
        ("corpus.jsonl", '{"_id": "a", "text": "b", "text": "c"}', r"corpus.jsonl:1: expected .*each once, got"),
        ("corpus.jsonl", '{"_id": null, "text": "b"}', r"corpus.jsonl:1: expected .* strings"),
        ("corpus.jsonl", '{"_id": "a", "text": null}', r"corpus.jsonl:1: expected .* strings"),
        ("queries.jsonl", '{"_id": "a", "title": 7, "text": "b"}', r"queries.jsonl:1: expected .* strings"),
        ("corpus.jsonl", '{"_id": "a", "text": "b", "text": "c"}', r"corpus.jsonl:1: expected"),
        (
            "queries.jsonl",
            '{"_id": "a", "text": ""}\n{"_id": "a", "text": ""}',
            "queries.jsonl:2: expected each _id once",
        ),
        ("queries.jsonl", "", "got an empty file"),
        (
            "qrels.tsv",
            "query-id\tcorpus-id\tscore\nq1\td99\t1\n",
            "none of the 1 judged documents .all. is in the corpus",
        ),
        (
            "qrels.tsv",
            "query-id\tcorpus-id\tscore\nq99\td1\t1\n",
            "none of the 1 judged queries .all. is in the queries",
        ),
        ("qrels.tsv", "query-id\tcorpus-id\tscore\nq1\td1\n", "qrels.tsv:2: expected 3 columns"),
    ],
)
def test_broken_files_are_refused(folder, name, text, message):
    (folder / name).write_text(text)
    with pytest.raises(DataError, match=message):
        rs.text.read_collection(folder)


def test_ids_are_written_alike_and_unknown_ones_are_counted(folder):
    ids = {"corpus.jsonl": [" d1", "d2\t", 7], "queries.jsonl": ["q1 ", 8]}
    for name, given in ids.items():
        (folder / name).write_text("".join(json.dumps({"_id": each, "text": "a"}) + "\n" for each in given))
    (folder / "qrels.tsv").write_text(
        "query-id\tcorpus-id\tscore\nq1\td1\t1\nq1\t7\t1\nq1\td99\t1\n8\td2\t1\nq99\td1\t1\n"
    )
    with pytest.warns(UserWarning, match="their judgements are left out") as told:
        collection = rs.text.read_collection(folder)
    assert [str(each.message).partition(":")[0] for each in told] == [
        "1 of the 3 judged queries (all) (33.3%) are not in the queries, such as 'q99'",
        "1 of the 4 judged documents (all) (25.0%) are not in the corpus, such as 'd99'",
    ]
    assert list(collection.documents) == ["d1", "d2", "7"]
    assert collection.judgements["all"] == {"q1": {"d1": 1, "7": 1}, "8": {"d2": 1}}
    (folder / "corpus.jsonl").write_text('{"_id": "d1", "text": "a"}\n{"_id": "d1 ", "text": "b"}\n')
    with pytest.raises(DataError, match=r"corpus.jsonl:2: expected each _id once"):
        rs.text.read_collection(folder)
    (folder / "corpus.jsonl").write_text('{"_id": " ", "text": "a"}\n')
    with pytest.raises(DataError, match=r"corpus.jsonl:1: expected"):
        rs.text.read_collection(folder)


def test_judgements_have_to_be_there(folder):
    (folder / "qrels.tsv").unlink()
    with pytest.raises(DataError, match=r"qrels_train.tsv and qrels_test.tsv, or one qrels.tsv"):
        rs.text.read_collection(folder)


def test_both_forms_of_judgements_are_read_alike(folder):
    (folder / "trec.txt").write_text("q1 0 d1 2\nq1 0 d2 0\n")
    (folder / "beir.tsv").write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\td2\t0\n")
    assert read_qrels(folder / "trec.txt") == read_qrels(folder / "beir.tsv") == {"q1": {"d1": 2, "d2": 0}}


def test_bm25_finds_the_rare_word_first(folder):
    collection = rs.text.read_collection(folder)
    run = rs.text.bm25_run(collection, ["q3", "q7"], depth=5)
    assert {query: next(iter(found)) for query, found in run.items()} == {"q3": "d3", "q7": "d7"}
    assert all(len(found) == 5 for found in run.values())
    for found in run.values():
        assert list(found.values()) == sorted(found.values(), reverse=True)


def test_training_lists_alone_have_what_was_not_found():
    qrels = {"a": {"x": 1, "y": 2, "bad": -1}, "b": {"x": 1}}
    run = {"a": {"z": 1.0, "bad": 3.0, "x": 2.0, "w": 0.5}, "b": {}}
    assert rs.text.candidate_lists(qrels, run, 3) == (["a"], [["x", "z"]], [[1.0, 0.0]])
    assert rs.text.candidate_lists(qrels, run, 3, add_relevant=True) == (
        ["a", "b"],
        [["x", "z", "y"], ["x"]],
        [[1.0, 0.0, 2.0], [1.0]],
    )


def test_tokens_survive(encoder):
    tokenizer = rs.text.load_tokenizer(encoder)
    rows = rs.text.encode_pairs(tokenizer, ["when was it", "who"], ["in 1801", "Anna Berg drew the plans"], 32)
    assert rows.dtype == np.float32
    assert rows.shape[1] < 32
    found = tokenizer(["when was it", "who"], ["in 1801", "Anna Berg drew the plans"])
    for row, ids, types in zip(rows, found["input_ids"], found["token_type_ids"], strict=True):
        real = row[row >= 0].astype(np.int64)
        assert (real % 2**22).tolist() == ids
        assert (real // 2**22).tolist() == types
    short = rs.text.encode_pairs(tokenizer, ["when"], ["a " * 50], 8)
    assert short.shape == (1, 8)
    with pytest.raises(ValueError, match="larger max_length"):
        rs.text.encode_pairs(tokenizer, ["when " * 50], ["a"], 8)


def test_a_scorer_is_the_model_on_each_pair_alone(encoder):
    scorer = rs.text.CrossEncoderScorer(encoder, documents_at_once=2).eval()
    tokenizer = rs.text.load_tokenizer(encoder)
    pairs = [("when was it", "in 1801"), ("who", "Anna Berg drew the plans"), ("where", "beside the river")]
    rows = torch.from_numpy(rs.text.encode_pairs(tokenizer, *zip(*pairs, strict=True), 32))
    padded = torch.cat([rows, torch.full_like(rows[:1], -1)]).reshape(2, 2, -1)
    scores = scorer(padded)
    expected = [scorer.model(**tokenizer(*pair, return_tensors="pt")).logits.item() for pair in pairs]
    torch.testing.assert_close(scores.flatten(), torch.tensor([*expected, 0.0]), rtol=1e-4, atol=1e-6)
    assert scorer(torch.full((1, 2, 4), -1.0)).tolist() == [[0.0, 0.0]]


def test_a_saved_scorer_scores_alike(encoder, tmp_path):
    scorer = rs.text.CrossEncoderScorer(encoder, frozen_layers=1).eval()
    rs.models.save_scorer(scorer, tmp_path / "scorer.pt")
    loaded = rs.load_scorer(tmp_path / "scorer.pt")
    rows = torch.randint(4, 30, (2, 3, 9)).float()
    torch.testing.assert_close(loaded(rows), scorer(rows))


def test_frozen_layers_are_not_trained(encoder):
    scorer = rs.text.CrossEncoderScorer(encoder, frozen_layers=1)
    scorer(torch.randint(4, 30, (2, 3, 9)).float()).sum().backward()
    trained = {name for name, weight in scorer.named_parameters() if weight.grad is not None}
    assert any("layer.1." in name for name in trained)
    assert not any("layer.0." in name or "embeddings" in name for name in trained)
    with pytest.raises(ValueError, match="at most 2"):
        rs.text.CrossEncoderScorer(encoder, frozen_layers=3)


def test_nothing_is_fetched_unasked():
    with pytest.raises(ValueError, match=r"cannot load a transformers model; use a local folder, or fetch=True"):
        rs.text.load_tokenizer("nobody/has-this-model")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "give data.path or data.builtin"),
        ({"builtin": "answers"}, "must be 'questions'"),
        ({"path": "."}, "data.encoder is missing: set it"),
        ({"path": "nowhere", "encoder": "x"}, "nowhere: no such file or folder"),
        ({"builtin": "questions", "run": "nowhere"}, r"nowhere: .*data.run"),
        ({"builtin": "questions", "depth": 0}, "depth must be an integer from 1"),
        ({"builtin": "questions", "fold": 6}, "fold must be from 1 to 5"),
    ],
)
def test_options_that_do_not_fit_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        rs.text.TextSource(**options).check()


def test_one_file_of_judgements_is_divided(folder, encoder):
    tests = []
    for fold in range(1, 6):
        lists = rs.text.TextSource(path=str(folder), encoder=encoder, depth=5, max_length=32, fold=fold).read()
        parts = [set(each) for each in lists.judged]
        assert sum(map(len, parts)) == len(set.union(*parts)) == 10
        tests += parts[2]
    assert sorted(tests) == sorted(f"q{n}" for n in range(10))


def test_a_run_takes_the_place_of_bm25(folder, encoder):
    queries = [f"q{n}" for n in range(10)]
    lines = [f"{query} Q0 d{n} {n} {10 - n} mine" for query in queries for n in range(3)]
    (folder / "run.txt").write_text("\n".join(lines) + "\n")
    source = rs.text.TextSource(path=str(folder), encoder=encoder, run=str(folder / "run.txt"), max_length=32)
    test = source.read().splits.test
    assert test.docids.tolist() == ["d0", "d1", "d2"] * test.num_lists
    unjudged = [f"{query} Q0 d19 1 1.0 mine" for query in queries]
    (folder / "run.txt").write_text("\n".join(unjudged) + "\n")
    with pytest.raises(DataError, match="none of the 10 retrieved documents is in the qrels of their queries"):
        _ = source.read().run
    (folder / "run.txt").write_text("\n".join(lines[:6]) + "\n")
    with pytest.raises(DataError, match="the run has no results for the judged query"):
        _ = source.read().run
    (folder / "run.txt").write_text("\n".join([*lines, "q3 Q0 d77 4 1.0 mine"]) + "\n")
    with pytest.raises(DataError, match="the corpus has no document 'd77'"):
        _ = source.read().run
