"""TREC runs, judgements, score files."""

import math
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from rankstruct import evaluate
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
from rankstruct.data.names import Names


@pytest.fixture
def file(tmp_path):
    def write(text):
        path = tmp_path / "file.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def test_reading(file):
    assert read_qrels(file("# note\n7 0 a 1\n7 0 b#1 -2\n\n8\t0\ta\t0.0\n")) == {
        "7": {"a": 1, "b#1": -2},
        "8": {"a": 0},
    }
    assert read_run(file("7 Q0 a 1 2.5 tag\r\n7  Q0\tb 9 -1e3 tag \r\n")) == {"7": {"a": 2.5, "b": -1000}}
    assert read_scores(file("7 a = 1.5\n7 b = -2\n")).tolist() == [1.5, -2]


def test_the_first_line_tells_the_separator_of_all(file):
    assert read_run(file("q1\tQ0\tNew York\t1\t9.5\tmy run\nq1\tQ0\tParis \t2\t 8.5\ts\t\n")) == {
        "q1": {"New York": 9.5, "Paris": 8.5}
    }
    assert read_qrels(file("q 1\t0\tArea 51\t1\n")) == {"q 1": {"Area 51": 1}}
    assert read_qrels(file("query-id\tcorpus-id\tscore\nq\tArea 51\t1.0\n")) == {"q": {"Area 51": 1}}
    assert read_qrels(file("Query-ID corpus-id score\nq a 2\n")) == {"q": {"a": 2}}
    for first, second in (("\t", " "), (" ", "\t")):
        lines = [
            first.join(["q", "Q0", "Rome", "1", "9.5", "s"]),
            second.join(["q", "Q0", "New York", "2", "8.5", "s"]),
        ]
        between = "tabs" if first == "\t" else "blanks"
        with pytest.raises(
            DataError, match=f"file.txt:2: expected 6 columns, .* separated by {between}, as on line 1; got"
        ):
            read_run(file("\n".join(lines)))


def test_only_ascii_blanks_separate(file):
    odd = "\u00a0\u2028\x0b\x0c\x1c\x1e\x85\u3000"
    assert read_run(file(f"a{odd}b Q0 d{odd} 1 2.5 t\n")) == {f"a{odd}b": {f"d{odd}": 2.5}}
    for reader, line in ((read_run, "q\u00a0Q0 d 1 2 t"), (read_qrels, "q 0\u2003d 1"), (read_qrels, "q\x0b0 d 1")):
        with pytest.raises(DataError, match=r"file.txt:1: expected . columns"):
            reader(file(line))
    with pytest.raises(DataError, match=r"file.txt:1: expected a finite number as score, got '1\\xa02'"):
        read_scores(file("1\u00a02\n"))


def test_names_that_begin_as_remarks_do(file, caplog):
    text = "# a remark\n##\n#301 0 d 1\n# 302 0 d 2\n# 0 e 2\n"
    assert read_qrels(file(text)) == {"#301": {"d": 1}, "#": {"e": 2}}
    assert "2 lines that start with # are read" in caplog.text
    with pytest.raises(DataError, match=r"file.txt:2: expected 4 columns.*put a blank after the # of a comment"):
        read_qrels(file("1 0 a 1\n#2 a 1\n"))


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        (
            read_qrels,
            "7 0 a 1\n7 0 b\n",
            "file.txt:2: expected 4 columns, query iteration docid label, separated by blanks, as on line 1; got 3, '7 0 b'",
        ),
        (
            read_qrels,
            "7 0 a b 1\n",
            "file.txt:1: expected 4 columns.* tabs or blanks; got 5.* names with blanks require tabs",
        ),
        (read_qrels, "7\t0\ta\t1\n7\t\ta\t1\n", "file.txt:2: expected 4 columns.* got 4, one of which is empty"),
        (read_qrels, "7 0 a 9007199254740993\n", "file.txt:1: expected an integer as label"),
        (read_qrels, "query-id corpus-id score\nq a 0.5\n", "file.txt:2: expected an integer as label, got '0.5'"),
        (
            read_qrels,
            "7 0 a 1\n\ufeff8 0 a 1\n",
            r"file.txt:2: expected a byte order mark \(U\+FEFF\) only at the start",
        ),
        (read_run, "q Q0 New York 1 9.5 s\n", "file.txt:1: expected 6 columns.*; got 7, 'q Q0 New York 1 9.5 s'"),
        (read_scores, "0.5\n0.5 # 3\n", "file.txt:2: expected 1 words, the last one a score, as on line 1, got 3"),
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
        (read_scores, "1\x0c\n", r"file.txt:1: expected a finite number as score, got '1\\x0c'"),
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


def test_join():
    run = {"2": {"x": 0.5}, "1": {"c": 3.0, "a": 1.0, "z": 2.0}, "9": {"a": 1.0}}
    qrels = {"1": {"a": 2, "b": 1, "c": 0, "z": -1}, "2": {"y": 1}, "3": {"a": 1}}
    with pytest.warns(UserWarning, match="queries of the") as told:
        joined = join_run(run, qrels)
    assert [str(each.message) for each in told] == [
        "1 of the 3 queries of the run (33.3%) are not in the qrels, such as '9': they are left out",
        "1 of the 3 queries of the qrels (33.3%) are not in the run, such as '3': they are left out, as trec_eval does by "
        "default",
    ]
    assert joined.qids.tolist() == ["2", "1"]
    assert joined.docids.tolist() == ["x", "c", "a", "z"]
    assert {name: values.tolist() for name, values in joined.arguments.items()} == {
        "scores": [0.5, 3, 1, 2],
        "labels": [0, 0, 2, 0],
        "offsets": [0, 1, 4],
        "ideal_labels": [1, 2, 1, 0],
        "ideal_offsets": [0, 1, 4],
        "judged": [False, True, True, False],
        "pooled": [False, True, True, True],
    }
    with pytest.raises(DataError, match="none of the 1 queries of the run is in the qrels, such as '9'"):
        join_run({"9": {"a": 1.0}}, qrels)
    with pytest.raises(
        DataError, match="none of the 2 retrieved documents is in the qrels of their queries, such as 'u'"
    ):
        join_run({"1": {"u": 1.0, "v": 2.0}}, {"1": {"a": 1}})


def test_names_of_two_types_are_no_names_in_common():
    with pytest.raises(
        DataError, match=r"names of queries must be of the same type in the run and the qrels, got int .* and str in"
    ):
        join_run({1: {"a": 1.0}}, {"1": {"a": 1}})
    with pytest.raises(
        DataError, match="names of documents must be of the same type in the run and the qrels, got int"
    ):
        join_run({"1": {7: 1.0}}, {"1": {"7": 1}})
    with pytest.raises(DataError, match="none of the 1 queries of the run is in the qrels, such as 1: are they"):
        join_run({1: {"a": 1.0}}, {2: {"a": 1}})
    assert join_run({1: {7: 1.0}}, {1: {7: 1}}).docids.tolist() == ["7"]
    assert join_run({np.str_("1"): {np.int64(7): 1.0}}, {"1": {7: 1}}).docids.tolist() == ["7"]


RUN, QRELS = {"q": {"a": 0.3, "b": 0.9}}, {"q": {"a": 1, "c": 2, "b": 0}}


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        (
            QRELS,
            RUN,
            r"whole numbers, got 0.3 of document a in query q of the qrels; the order is join_run\(run, qrels\)$",
        ),
        (RUN, {"q": {"a": 0.5}}, "whole numbers, got 0.5 of document a in query q of the qrels$"),
        (
            "a.run",
            QRELS,
            "run must be {query: {docid: score}}, got 'a.run'; to read a file, use rankstruct.data.read_run",
        ),
        (RUN, Path("q.txt"), "qrels must be {query: {docid: label}}, got 'q.txt'; .*read_qrels"),
        (pd.DataFrame({"q": ["a"]}), QRELS, "run must be .*, got a DataFrame; convert it to dictionaries"),
        (RUN, {"q": ["a"]}, "qrels must be .*, got a list for query q"),
        (
            {"q": {"a": 1, "b": math.nan}},
            QRELS,
            "scores must be finite numbers, got nan of document b in query q of the run",
        ),
        ({"q": {"a": None}}, QRELS, "scores must be finite numbers, got None of document a"),
        (RUN, {"q": {"a": "1"}}, "labels must be finite numbers, got '1' of document a in query q of the qrels"),
        (RUN, {"q": {"a": 10**400}}, "labels must be finite numbers, got an integer of 1329 bits"),
    ],
)
def test_no_run_or_no_qrels(run, qrels, message):
    with pytest.raises(DataError, match=message):
        join_run(run, qrels)


def test_only_a_run_is_written(tmp_path):
    for run, message in (({"q": ["a"]}, "run must be"), ({"q": {"a": "1"}}, "scores must be finite numbers, got '1'")):
        with pytest.raises(DataError, match=message):
            write_run(tmp_path / "run.txt", run)
    assert not list(tmp_path.iterdir())


def test_memory_of_a_join_is_that_of_its_documents():
    """An array of all queries and the most judged of any of them took 8 GB."""
    run = {str(q): {"a": 1.0} for q in range(20_000)}
    qrels = {str(q): {"a": 1} for q in range(20_000)} | {"7": {str(d): 1 for d in range(50_000)}}
    tracemalloc.start()
    try:
        joined = join_run(run, qrels)
        values = evaluate(measures=["AP", "nDCG@10", "MeanNDCG", "mWTA", "Bpref"], **joined.arguments)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 50e6  # of NumPy and Python; torch is not traced
    assert (values["AP"] == 1).sum() == 19_999
    assert np.diff(joined.arguments["ideal_offsets"])[7] == 50_000


def test_a_query_without_judgements_above_minus_one():
    joined = join_run({"1": {"a": 1.0}}, {"1": {"a": -1}})
    assert joined.arguments["ideal_labels"].tolist() == []
    assert joined.arguments["labels"].tolist() == [0]


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
    data = RankingData.from_arrays(np.zeros((2, 1)), np.zeros(2), [5, 5], docids=["a", "b"])
    path = tmp_path / "run.txt"
    path.write_text("old")
    for name in ("b\tc", "b\n", "b\r", " b", "b ", "\ud800"):
        with pytest.raises(ValueError, match=r"a run cannot represent the document .*; rename it"):
            write_run(path, replace(data, docids=Names.of(["a", name])), [2, 1])
        with pytest.raises(ValueError, match=r"a run cannot represent the query .*; rename it"):
            write_run(path, replace(data, qids=Names.of([name])), [2, 1])
    with pytest.raises(ValueError, match=r"a run cannot represent the query '\\ufeffq'"):
        write_run(path, replace(data, qids=Names.of(["\ufeffq"])), [2, 1])
    with pytest.raises(ValueError, match="a run cannot represent the tag ''"):
        write_run(path, data, [2, 1], tag="")
    with pytest.raises(ValueError, match="each document once in a query, got 5-1 again in query 5"):
        write_run(path, replace(data, docids=Names.of(["", "5-1"])), [2, 1])
    with pytest.raises(ValueError, match=r"scores must have shape \[documents\] = \(2,\), got \(3,\)"):
        write_run(path, data, [1, 2, 3])
    with pytest.raises(ValueError, match=r"scores must be finite, got nan at scores\[1\]"):
        write_run(path, data, [1, np.nan])
    with pytest.raises(ValueError, match="a run has its own scores"):
        write_run(path, {"q": {"a": 1.0, "b": 2.0}}, [1, 2])
    with pytest.raises(ValueError, match=r"a run is written as plain text, got .*; remove \.gz"):
        write_run(tmp_path / "run.gz", data, [2, 1])
    with pytest.raises(ValueError, match="scores must have shape"):
        write_scores(path, [[1.0]])
    assert path.read_text() == "old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["run.txt"]


def test_a_name_with_blanks_is_written_between_tabs(tmp_path, caplog):
    data = RankingData.from_arrays(np.zeros((2, 1)), np.zeros(2), ["q", "q 2"], docids=["a", "New York"])
    write_run(tmp_path / "run.txt", data, [2.0, 1.0])
    assert (tmp_path / "run.txt").read_text() == "q\tQ0\ta\t1\t2.0\trankstruct\nq 2\tQ0\tNew York\t1\t1.0\trankstruct\n"
    assert "columns are separated by tabs since names contain blanks; trec_eval cannot read this" in caplog.text
    assert read_run(tmp_path / "run.txt") == {"q": {"a": 2.0}, "q 2": {"New York": 1.0}}


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
    lists = joined.arguments
    for number, query in enumerate(joined.qids):
        first, last = lists["offsets"][number : number + 2]
        assert last - first == int(expected["num_ret", query])
        ideal = lists["ideal_labels"][slice(*lists["ideal_offsets"][number : number + 2])]
        assert (ideal > 0).sum() == int(expected["num_rel", query])
        assert (lists["labels"][first:last] > 0).sum() == int(expected["num_rel_ret", query])
        # trec_eval's order: by score, ties by docid, both descending
        order = sorted(
            zip(lists["scores"][first:last], joined.docids[first:last], lists["labels"][first:last], strict=True)
        )[::-1]
        relevant = np.array([label > 0 for *_, label in order])
        precision = np.cumsum(relevant) / np.arange(1, len(order) + 1)
        assert f"{precision[relevant].sum() / (ideal > 0).sum():.4f}" == expected["map", query]


def test_baseline_scores_fit_their_fold(data_root):
    scores = read_scores(data_root / "letor/baseline_scores/OHSUMED/svm_rank/Fold1/test_score")
    with (data_root / "letor/OHSUMED/Fold1/test.txt").open() as file:
        assert len(scores) == sum(1 for _ in file)
