"""Conversion to files that are mapped: the same lists, in bounded memory, whole or not at all."""

import gzip
import os
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import rankstruct.data.assembly as assembly
import rankstruct.data.cache as cache
import rankstruct.data.svmlight as svmlight
import rankstruct.data.text as text
from benchmarks.large import write_web_lists
from rankstruct.data import DataError, RankingData, convert_lists, read_folds, read_lists, read_svmlight, write_shards
from rankstruct.data.convert import convert_folder
from rankstruct.data.dataset import FORMATS


def assert_same(one, other):
    assert one.is_sparse == other.is_sparse
    np.testing.assert_array_equal(
        *(data.features.toarray() if data.is_sparse else data.features for data in (one, other))
    )
    for name in ("labels", "offsets", "qids", "docids", "comments", "missing"):
        left, right = getattr(one, name), getattr(other, name)
        assert (left is None) == (right is None)
        np.testing.assert_array_equal(left, right)


def lines(kind, number=400, seed=0):
    """Lines of one shape of file: what decides about the arrays differs between them."""
    rng = np.random.default_rng(seed)
    written = []
    for i in range(number):
        qid = f"qid:q{i // 7} " if kind != "sizes" else ""
        ids = {"sparse": rng.choice(200, 5, replace=False) + 1, "gaps": rng.choice(6, 4, replace=False) + 1}.get(kind)
        ids = [1, 2, 3] if ids is None else np.sort(ids).tolist()
        if kind == "late" and i == number - 1:
            ids = [1, 3, 4]
        pairs = " ".join(f"{at}:{rng.integers(1, 9)}.5" for at in ids)
        if kind == "null" and i == number - 3:
            pairs = "1:NULL 2:1 3:2"
        remark = f" # docid = d{i} host = h{i % 3}" if kind in ("names", "null") and i > number // 2 else ""
        written.append(f"{i % 3} {qid}{pairs}{remark}\n")
    return "".join(written)


@pytest.fixture
def pieces(monkeypatch):
    """Small pieces, which cut lists, and small blocks of columns; two threads."""
    whole = text.whole_lines
    monkeypatch.setattr(svmlight, "whole_lines", lambda path: whole(path, 1000))
    monkeypatch.setattr(assembly, "_STEP", 64)
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


KINDS = ["dense", "sparse", "gaps", "late", "names", "null", "sizes"]


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_pieces_make_what_one_reading_makes(tmp_path, monkeypatch, pieces, kind, packed):
    path = tmp_path / ("train.txt.gz" if packed else "train.txt")
    content = lines(kind).encode()
    path.write_bytes(gzip.compress(content) if packed else content)
    if kind == "sizes":
        (tmp_path / f"{path.name}.query").write_text("100\n0\n 300")
    options = {"num_features": 9} if kind == "late" else {}
    in_pieces = read_svmlight(path, cache=False, **options)
    made = convert_lists(path, tmp_path / "out" / "train.rankdata", **options)
    mapped = read_lists(made.path)
    assert made[1:] == (mapped.num_lists, mapped.num_documents, mapped.num_features)
    monkeypatch.setattr(cache, "_STREAMED_FROM", 0)
    cached = [read_svmlight(path, cache=tmp_path / "cache", **options) for _ in range(2)]
    monkeypatch.undo()
    whole = read_svmlight(path, cache=False, **options)
    for found in (in_pieces, mapped, *cached):
        assert_same(found, whole)
        assert found.features.dtype == np.float32
    values = mapped.features.data if mapped.is_sparse else mapped.features
    assert not values.flags.writeable
    assert not values.flags.owndata
    assert whole.is_sparse == (kind == "sparse")
    assert not list(tmp_path.glob("**/*.part"))


BROKEN = {
    "1 qid:q9 1:1 2:x 3:1": r":301: expected .*value of feature 2, got 'x'",
    "1 1:1 2:1 3:1": r":301: expected qid:<query> after the label, as on the lines before, got '1:1'",
    "1 qid:q0 1:1 2:1 3:1": r":301: expected contiguous documents of each query, got qid:q0 again, which started on line 1;",
    "1 qid:z 1:1 2:0": r":301: expected features 1 to 3, as on most lines of this file, .*got 2 features, the last with id 2",
    "0.5 qid:z 1:1 2:0 3:1": r":301: expected a grade",
    "1 qid:z 1:1 2:0 3:1 # docid = \udcff": r":301: expected a docid in UTF-8",
}


@pytest.mark.parametrize("line", BROKEN)
def test_errors_have_the_line_whatever_piece_they_are_in(tmp_path, pieces, line):
    path, target = tmp_path / "train.txt", tmp_path / "train.rankdata"
    good = lines("dense", 600).splitlines(keepends=True)
    content = "".join([*good[:300], line + "\n", *(good[300:] if "qid:z" in line else good[301:])])
    path.write_bytes(content.encode("utf-8", "surrogateescape"))
    target.write_text("what was there")
    for read in (lambda: read_svmlight(path, cache=False), lambda: convert_lists(path, target)):
        with pytest.raises(DataError, match=f"train.txt{BROKEN[line]}"):
            read()
    assert target.read_text() == "what was there"
    assert sorted(file.name for file in tmp_path.iterdir()) == ["train.rankdata", "train.txt"]


def test_lines_without_qid_after_pieces_with_one(tmp_path, pieces):
    path = tmp_path / "train.txt"
    path.write_text("1 qid:a 1:1\n" * 200 + "\n" * 1000 + "0 1:1\n")
    with pytest.raises(DataError, match=r"train.txt:1201: expected qid:<query> after the label"):
        read_svmlight(path, cache=False)


def test_folders_formats_and_refusals(tmp_path):
    for fold in (1, 2):
        folder = tmp_path / "set" / f"Fold{fold}"
        folder.mkdir(parents=True)
        for part in ("train", "vali", "test"):
            (folder / f"{part}.txt").write_text(lines("sparse", seed=fold))
    made = [each.path for each in convert_folder(tmp_path / "set", tmp_path / "out")]
    assert [str(path.relative_to(tmp_path / "out")) for path in made][:2] == [
        "Fold1/train.rankdata",
        "Fold1/vali.rankdata",
    ]
    assert len(made) == 6
    for mine, other in zip(read_folds(tmp_path / "out", 2), read_folds(tmp_path / "set", 2, cache=False), strict=True):
        assert_same(mine, other)
    assert len(convert_folder(tmp_path / "set", tmp_path / "one", [2], num_features=300)) == 3
    assert read_lists(made[0], num_features=300).num_features == 300

    source = tmp_path / "set" / "Fold1" / "train.txt"
    for options, message in (
        ({"dtype": "float64"}, "dtype must be one of 'float32', 'float16'"),
        ({"target": tmp_path / "train.bin"}, "target must have the suffix .rankdata"),
        ({"target": made[0], "source": made[0]}, "different files"),
        ({"dtype": "float16"}, "float16 requires dense features"),
        ({"source": tmp_path / "absent.txt"}, "absent.txt: expected a file that can be read"),
    ):
        with pytest.raises(ValueError, match=message):
            convert_lists(**{"source": source, **options})
    dense = tmp_path / "dense.txt"
    dense.write_text("1 qid:a 1:1\n0 qid:a 1:2\n")
    converted = tmp_path / "dense.rankdata"
    convert_lists(dense)
    with pytest.raises(DataError, match="expected 3 features, got 1"):
        read_lists(converted, num_features=3)
    dense.write_text("0.5 qid:a 1:1\n0 qid:a 1:70000\n")
    with pytest.raises(DataError, match="float16 holds numbers up to 65504, got 70000"):
        convert_lists(dense, labels="real", dtype="float16")
    convert_lists(dense, labels="real")
    with pytest.raises(DataError, match="expected grades"):
        read_lists(converted, labels="grades")


def test_a_format_of_ones_own_is_converted(tmp_path, monkeypatch):
    path = tmp_path / "a.own"
    path.write_text("1 2 3")

    def read(path, **_):
        return RankingData.from_arrays([[float(x)] for x in path.read_text().split()], [0, 1, 2], list("aab"))

    monkeypatch.setitem(FORMATS, ".own", read)
    assert read_lists(convert_lists(path, dtype="float16").path).features.tolist() == [[1], [2], [3]]


def test_half_precision_is_widened_where_it_is_used(tmp_path):
    from rankstruct.data import Source
    from rankstruct.data.batches import make_batch
    from rankstruct.estimators import LinearRanker

    (tmp_path / "set").mkdir()
    for part in ("train", "vali", "test"):
        write_web_lists(tmp_path / "set" / f"{part}.txt", 0.001)
    convert_folder(tmp_path / "set", tmp_path / "half", dtype="float16")
    single, half = (Source(str(tmp_path / name), cache=False).read().train for name in ("set", "half"))
    assert half.features.dtype == np.float16
    assert (half.features == single.features.astype(np.float16)).all()
    batch = make_batch(half, [1, 0])
    assert batch.features.dtype == torch.float32
    fits = [LinearRanker("AP", C=1.0).fit(d.features, d.labels, d.list_numbers) for d in (single, half)]
    assert fits[1].solution_.status == "converged"
    assert abs(fits[0].solution_.objective - fits[1].solution_.objective) < 1e-3 * fits[0].solution_.objective
    prepared = Source(str(tmp_path / "half"), prepare=["append-query-zscore", "standardize", "log"]).read()
    assert prepared.train.features.dtype == np.float32


CONVERT = """
import resource, sys
import rankstruct.data as d
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
d.convert_lists(*sys.argv[1:])
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """120 MB of text, 27 MB of features: the reader held more than all of both."""
    write_web_lists(tmp_path / "small.txt", 0.01)
    content = (tmp_path / "small.txt").read_bytes()
    with open(tmp_path / "large.txt", "wb") as file:
        for number in range(12):
            file.write(content.replace(b"qid:", b"qid:%d-" % number))
    command = [sys.executable, "-c", CONVERT, tmp_path / "large.txt", tmp_path / "large.rankdata"]
    used = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert int(used.stdout) < 100
    assert read_lists(tmp_path / "large.rankdata").num_documents == 12 * 7200


@pytest.mark.slow
def test_a_killed_conversion_leaves_what_was_there(tmp_path):
    write_web_lists(tmp_path / "train.txt", 0.03)
    target = tmp_path / "train.rankdata"
    target.write_bytes(b"before")
    command = [sys.executable, "-c", CONVERT, tmp_path / "train.txt", target]
    start = time.monotonic()
    process = subprocess.Popen(command)
    while not list(tmp_path.glob("*.part")) and process.poll() is None and time.monotonic() < start + 120:
        time.sleep(0.0005)
    process.send_signal(signal.SIGKILL)
    if process.wait() == -signal.SIGKILL:
        assert target.read_bytes() == b"before"
    convert_lists(tmp_path / "train.txt", target)
    assert read_lists(target).num_documents == 21_600
    assert not list(tmp_path.glob("*.part"))


def test_missing_values_are_told_where_a_file_is_converted(tmp_path, caplog):
    path = tmp_path / "a.txt"
    path.write_text("1 qid:1 1:NULL 2:1\n0 qid:1 1:2 2:null\n")
    made = convert_lists(path, fill=-1.0).path
    assert read_lists(made).features.tolist() == [[-1, 1], [2, -1]]
    assert [each.message for each in caplog.records] == [f"{made}: 2 missing values (NULL) were read as -1 (fill=)"] * 2


def test_shards_have_the_rows_of_each_query_together_in_their_order(tmp_path):
    rng = np.random.default_rng(0)
    qid, x = rng.integers(0, 40, 500), np.arange(500.0)
    whole = pa.table({"qid": qid, "label": rng.integers(0, 3, 500), "x": x, "kind": np.array(["a", "b"])[qid % 2]})
    whole = whole.set_column(3, "kind", whole["kind"].dictionary_encode())  # as pandas writes categories
    (tmp_path / "rows").mkdir()
    for part in range(3):  # lists are all over the files
        pq.write_table(whole.slice(part * 200, 200), tmp_path / "rows" / f"{part}.parquet")
    with pytest.raises(DataError, match="again, which started in"):
        read_lists(tmp_path / "rows", cache=False)
    written = {n: write_shards(tmp_path / "rows", tmp_path / f"by{n}", n, dtype="float16") for n in (1, 7)}
    assert (written[7].lists, written[7].documents, written[7].features) == (len(set(qid)), 500, 2)
    for number, made in written.items():
        assert len(list(made.path.iterdir())) == number
        data = read_lists(made.path, cache=False)
        for at, name in enumerate(data.qids.tolist()):
            rows = slice(data.offsets[at], data.offsets[at + 1])
            np.testing.assert_array_equal(data.features[rows][:, 0], x[qid == int(name)])
    assert pq.read_schema(tmp_path / "by1" / "part-0.parquet").field("x").type == "halffloat"
    with pytest.raises(ValueError, match="new or an empty folder"):
        write_shards(tmp_path / "rows", tmp_path / "by7", 7)
    pq.write_table(whole.set_column(2, "x", [x * 1e6]), tmp_path / "rows" / "1.parquet")
    with pytest.raises(DataError, match=r"1.parquet, row 1 and on, column 'x': float16 holds numbers up to 65504"):
        write_shards(tmp_path / "rows", tmp_path / "none", 2, dtype="float16")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["by1", "by7", "rows"]


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("docids", [" # docid = d{}", ""])
def test_shards_of_a_file_without_columns_are_its_lists(tmp_path, monkeypatch, dtype, docids):
    monkeypatch.setattr("rankstruct.data.convert._NUMBERS", 2**-15)  # a few documents at once
    rng = np.random.default_rng(0)
    X = np.where(rng.random((90, 3)) < 0.1, np.nan, rng.integers(1, 9, (90, 3)) / 4)
    lines = [
        f"{rng.integers(3)} qid:{name} "
        + " ".join(f"{at}:{'NULL' if np.isnan(x) else x}" for at, x in enumerate(row, 1))
        + docids.format(number)
        for number, (name, row) in enumerate(zip(np.repeat([f"q{n}" for n in range(30)], 3), X, strict=True))
    ]
    path = tmp_path / "train.txt"
    path.write_text("\n".join(lines))
    whole = read_lists(path, cache=False)
    made = write_shards(path, tmp_path / "shards", 4, dtype=dtype)
    assert made[1:] == (30, 90, 3)
    shards = read_lists(made.path, cache=False)
    order = [whole.qids.tolist().index(name) for name in shards.qids.tolist()]
    expected = whole.select(order)
    assert sorted(order) == list(range(30))
    np.testing.assert_array_equal(np.asarray(shards.features), expected.features)
    np.testing.assert_array_equal(shards.labels, expected.labels)
    assert shards.columns is None
    for names in (shards.docids, expected.docids):
        assert (names is None) == (not docids)
    assert not docids or shards.docids.tolist() == expected.docids.tolist()
    again = write_shards(made.path, tmp_path / "again", 2, dtype="float16")
    assert again[1:] == (30, 90, 3)
    assert read_lists(again.path, cache=False).features[:].dtype == np.float32
    kind = pq.read_schema(next(again.path.iterdir())).field("features").type
    assert kind.value_type == pa.float16()
    shutil.rmtree(again.path)
    path.write_text("-1 qid:1 1:1\n")
    with pytest.raises(DataError, match=r"train.txt:1: expected a grade"):
        write_shards(path, tmp_path / "none", 2)
    path.write_text("1 qid:1 1:1 90:1\n0 qid:1 5:1\n")
    with pytest.raises(DataError, match="expected dense features, got sparse ones"):
        write_shards(path, tmp_path / "none", 2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["shards", "train.txt"]


def test_shards_are_refused_before_anything_is_written(tmp_path):
    source, stale = tmp_path / "train.csv", tmp_path / f".shards.{2**29}-0123abcd.part"
    for rows, message in (
        ("1,0,1\n2,1,inf\n", r"train\.csv, row 2: expected finite numbers .* in 'x'"),
        ("1,0,1\n2,1,1e39\n", r"train\.csv, row 2: expected finite numbers .* in 'x'"),
        ("1,0,1\n2,inf,1\n", r"train\.csv, row 2: expected finite numbers .* in 'label'"),
    ):
        source.write_text(f"qid,label,x\n{rows}")
        (stale / "rows").mkdir(parents=True)  # of a process that was killed
        with pytest.raises(ValueError, match=message):
            write_shards(source, tmp_path / "shards", 2)
        assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]
    source.write_text("qid,label,x\n1,0,1\n2,1,2\n1,1,3\n")
    written = write_shards(source, tmp_path / "shards", 10**5)
    assert len(list(written.path.iterdir())) == written.lists == 2  # no file without lists
