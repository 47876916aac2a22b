"""TREC runs, judgements, score files."""

import numpy as np
import pytest

from rankstruct.data import (
    DataError,
    RankingData,
    join_run,
    read_qrels,
    read_run,
    read_scores,
    write_run,
    write_scores,
)


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "file.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_reading(file):
    assert read_qrels(file("# note\n7 0 a 1\n7 0 b#1 -2 junk\n\n8\t0\ta\t0\n")) == {
        "7": {"a": 1, "b#1": -2},
        "8": {"a": 0},
    }
    assert read_run(file("7 Q0 a 1 2.5 tag and more\r\n7 Q0 b 9 -1e3 tag\r\n")) == {"7": {"a": 2.5, "b": -1000}}
    assert read_scores(file("1.5\n7 a = -2\n")).tolist() == [1.5, -2]


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (read_qrels, "7 0 a 1\n7 0 b\n", "file.txt:2: expected 4 columns, query iteration docid label; got 3, '7 0 b'"),
        (read_qrels, "7 0 a 0.5\n", "file.txt:1: expected an integer as label, got '0.5'"),
        (
            read_qrels,
            "7 0 a 1\n8 0 a 1\n7 0 a 1\n",
            "file.txt:3: .*each document once in a query, got a again in query 7",
        ),
        (read_qrels, "# nothing\n", "file.txt: expected lines of query iteration docid label, got none"),
        (read_qrels, b"7 0 \xff 1\n", "file.txt: expected text in UTF-8, got the byte 0xff"),
        (read_run, "7 Q0 a 1 2.5\n", "file.txt:1: expected 6 columns.* got 5"),
        (read_run, "7 Q0 a 1 nan t\n", "file.txt:1: expected a finite number as score, got 'nan'"),
        (read_run, "7 Q0 a 1 1 t\n7 Q0 a 2 0 t\n", "file.txt:2: .*once in a query"),
        (read_scores, "1\n\n2\n", "file.txt:2: expected a finite number as score, got ''"),
        (read_scores, "1\nx\n", "file.txt:2: expected a finite number as score, got 'x'"),
        (read_scores, "", "got an empty file"),
    ],
)
def test_refused(file, reader, text, message):
    with pytest.raises(DataError, match=message):
        reader(file(text))


def test_absent_file(tmp_path):
    for reader in (read_qrels, read_run, read_scores):
        with pytest.raises(DataError, match="absent: expected a file that can be read"):
            reader(tmp_path / "absent")


def test_join(caplog):
    run = {"2": {"x": 0.5}, "1": {"c": 3.0, "a": 1.0, "z": 2.0}, "9": {"a": 1.0}}
    qrels = {"1": {"a": 2, "b": 1, "c": 0, "z": -1}, "2": {"y": 1}, "3": {"a": 1}}
    joined = join_run(run, qrels)
    assert joined.qids.tolist() == ["2", "1"]
    assert joined.offsets.tolist() == [0, 1, 4]
    assert joined.docids.tolist() == ["x", "c", "a", "z"]
    assert joined.scores.tolist() == [0.5, 3, 1, 2]
    assert joined.labels.tolist() == [0, 0, 2, 0]
    assert joined.num_relevant.tolist() == [1, 2]
    np.testing.assert_array_equal(joined.ideal_labels, [[1, np.nan, np.nan], [2, 1, 0]])
    assert joined.not_judged == 2  # x and z
    assert joined.judged.tolist() == [False, True, True, False]
    assert joined.pooled.tolist() == [False, True, True, True]
    assert (joined.only_in_run, joined.only_in_qrels) == (("9",), ("3",))
    assert "1 queries that only the run has are left out: 9" in caplog.text
    assert "1 queries that only the qrels has are left out: 3" in caplog.text
    with pytest.raises(DataError, match="queries in common; got run queries 9 and qrels queries 1, 2, 3"):
        join_run({"9": {"a": 1.0}}, qrels)


def test_a_query_without_judgements_above_minus_one():
    joined = join_run({"1": {"a": 1.0}}, {"1": {"a": -1}})
    assert joined.num_relevant.tolist() == [0]
    assert joined.labels.tolist() == [0]


def test_written_run_is_read(tmp_path):
    rng = np.random.default_rng(0)
    data = RankingData.from_arrays(np.zeros((9, 1)), np.zeros(9), list("aaabbbbcc"), docids=[f"d{i}" for i in range(9)])
    for dtype in (np.float32, np.float64):
        scores = rng.standard_normal(9).astype(dtype)
        write_run(tmp_path / "run.txt", data, scores, tag="t")
        run = read_run(tmp_path / "run.txt")
        assert list(run) == ["a", "b", "c"]
        found = {docid: score for documents in run.values() for docid, score in documents.items()}
        assert [dtype(found[f"d{i}"]) for i in range(9)] == scores.tolist()
        for documents in run.values():
            assert list(documents.values()) == sorted(documents.values(), reverse=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run.txt"]


def test_documents_without_names_and_ties_in_order(tmp_path):
    data = RankingData.from_arrays(np.zeros((3, 1)), np.zeros(3), [5, 5, 5], docids=["", "x", ""])
    write_run(tmp_path / "run.txt", data, [1, 1, 1])
    assert (tmp_path / "run.txt").read_text() == "".join(
        f"5 Q0 {name} {rank} 1 rankstruct\n" for rank, name in enumerate(["5-1", "x", "5-3"], 1)
    )


def test_writing_refuses_and_leaves_the_old_file(tmp_path):
    data = RankingData.from_arrays(np.zeros((2, 1)), np.zeros(2), [5, 5], docids=["a", "b c"])
    path = tmp_path / "run.txt"
    path.write_text("old")
    with pytest.raises(ValueError, match="one word each"):
        write_run(path, data, [2, 1])
    with pytest.raises(ValueError, match=r"scores must have shape \[documents\] = \(2,\), got \(3,\)"):
        write_run(path, data, [1, 2, 3])
    with pytest.raises(ValueError, match=r"scores must be finite, got nan at scores\[1\]"):
        write_run(path, data, [1, np.nan])
    with pytest.raises(ValueError, match="scores must be flat"):
        write_scores(path, [[1.0]])
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.txt"]


def test_written_scores_are_read(tmp_path):
    scores = np.random.default_rng(1).standard_normal(50)
    write_scores(tmp_path / "scores.txt", scores)
    assert (read_scores(tmp_path / "scores.txt") == scores).all()


def test_trec_eval_files(data_root):
    folder = data_root / "trec_eval"
    qrels, run = read_qrels(folder / "qrels.test"), read_run(folder / "results.test")
    commented = read_qrels(folder / "qrels.test.with-comments")
    assert "CR#93E-1860" in commented["301"]
    assert sum(map(len, commented.values())) == sum(map(len, qrels.values()))
    lines = (folder / "results.trunc").read_text().splitlines()
    assert sum(map(len, read_run(folder / "results.trunc").values())) == len(lines)
    joined = join_run(run, qrels)
    expected = {}
    for line in (folder / "out.test.aq").read_text().splitlines():
        name, query, value = line.split(maxsplit=2)
        expected[name, query] = value
    assert len(joined.qids) == int(expected["num_q", "all"])
    for number, query in enumerate(joined.qids):
        first, last = joined.offsets[number : number + 2]
        assert last - first == int(expected["num_ret", query])
        assert joined.num_relevant[number] == int(expected["num_rel", query])
        assert (joined.labels[first:last] > 0).sum() == int(expected["num_rel_ret", query])
        # trec_eval's order: by score, ties by docid, both descending
        order = sorted(
            zip(joined.scores[first:last], joined.docids[first:last], joined.labels[first:last], strict=True)
        )[::-1]
        relevant = np.array([label > 0 for *_, label in order])
        precision = np.cumsum(relevant) / np.arange(1, len(order) + 1)
        assert f"{precision[relevant].sum() / joined.num_relevant[number]:.4f}" == expected["map", query]


def test_baseline_scores_fit_their_fold(data_root):
    scores = read_scores(data_root / "letor/baseline_scores/OHSUMED/svm_rank/Fold1/test_score")
    with (data_root / "letor/OHSUMED/Fold1/test.txt").open() as file:
        assert len(scores) == sum(1 for _ in file)
