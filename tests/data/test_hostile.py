"""Damaged and malicious files: a one-line error that says what is wrong and where, in little memory and time."""

import bz2
import csv
import gzip
import lzma
import os
import struct
import zlib

import numpy as np
import pyarrow
import pytest

import rankstruct.data.text as text_module
from papers.classes import read_arff, read_csv
from rankstruct.data import (
    DataError,
    RankingData,
    convert_lists,
    join_run,
    read_folds,
    read_lists,
    read_qrels,
    read_run,
    read_scores,
    read_svmlight,
)
from rankstruct.data.cache import from_arrays, load_arrays, map_arrays, to_arrays, write_arrays
from rankstruct.data.dataset import FORMATS
from rankstruct.recommenders import read_ratings


def read_csv_ratings(path):
    return read_ratings(path, "csv", scale="stars")


READERS = (read_svmlight, read_csv, read_arff, read_run, read_qrels, read_scores, read_lists)


def refused(reader, path, message, **options):
    with pytest.raises(DataError, match=message) as found:
        reader(path, **options)
    assert "\n" not in str(found.value)
    assert len(str(found.value)) < 600
    assert str(path.name) in str(found.value)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


@pytest.mark.parametrize("number", ["1_000", "１２", "٣", "1e1_0", "0x10", "9" * 5000 + "x"])
def test_numbers_are_in_ascii_digits(tmp_path, number):
    shown = number[:40]
    refused(read_scores, write(tmp_path / "scores", f"1.5\n{number}\n"), f"scores:2: expected a finite number.*{shown}")
    refused(read_run, write(tmp_path / "run", f"q Q0 d 1 {number} t\n"), "run:1: expected a finite number as score")
    refused(read_qrels, write(tmp_path / "qrels", f"q 0 d {number}\n"), "qrels:1: expected an integer as label")
    refused(read_csv, write(tmp_path / "a.csv", f"x,kind\n1,a\n{number},b\n"), "a.csv, line 3: expected numbers")
    arff = f"@attribute x real\n@attribute k {{a,b}}\n@data\n{number},a\n"
    refused(read_arff, write(tmp_path / "a.arff", arff), "a.arff, line 4: expected numbers")
    refused(
        read_svmlight, write(tmp_path / "a.txt", f"1 qid:1 1:{number}\n"), "a.txt:1: expected a finite", cache=False
    )


def test_labels_of_too_many_digits_for_an_integer(tmp_path):
    refused(read_qrels, write(tmp_path / "qrels", f"q 0 d {'9' * 5000}\n"), "qrels:1: expected an integer as label")


def test_text_that_is_not_utf_8(tmp_path):
    for reader, start in ((read_csv, b"x,kind\n1,a\n"), (read_run, b"q Q0 d 1 2 t\n"), (read_scores, b"1\n")):
        refused(
            reader,
            write(tmp_path / "file", start + b"\xff\xfe,1\n"),
            "expected text in UTF-8, got the byte 0xff on line",
        )


def test_fields_beyond_the_limit_of_csv(tmp_path):
    path = write(tmp_path / "wide.csv", "x,kind\n1," + "a" * (csv.field_size_limit() + 1) + "\n")
    refused(read_csv, path, "wide.csv, line 2: expected comma-separated values, got: field larger than field limit")


def test_messages_are_cut(tmp_path):
    long = "z" * 100_000
    for reader, content in (
        (read_svmlight, f"1 qid:1 1:{long}\n"),
        (read_svmlight, f"1 qid:1 {long}\n"),
        (read_svmlight, f"1 qid:{long} 1:1\n0 qid:b 1:1\n1 qid:{long} 1:1\n"),
        (read_svmlight, f"{long} qid:1 1:1\n"),
        (read_svmlight, f"0.5{'0' * 90_000} qid:1 1:1\n"),
        (read_svmlight, b"1 qid:1 1:1 # docid = " + b"\xff" * 100_000 + b"\n"),
        (read_run, f"{long} {long}\n"),
        (read_run, f"{long} Q0 {long} 1 2 t\n" * 2),
        (read_scores, long),
        (read_csv, f"x,kind\n{long},a\n"),
        (read_arff, f"@attribute '{long}"),
    ):
        refused(
            reader,
            write(tmp_path / "file", content),
            "expected",
            **({"cache": False} if reader is read_svmlight else {}),
        )
    with pytest.raises(DataError, match=r"none of the 1 queries of the run is in the qrels, such as 'zzz") as found:
        join_run({long: {"d": 1}}, {"q": {"d": 1}})
    assert len(str(found.value)) < 300


@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "broken link"])
def test_only_regular_files_are_read(tmp_path, kind):
    path = tmp_path / "odd"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    elif kind == "folder":
        path.mkdir()
    else:
        path.symlink_to(tmp_path / "nothing")
    for reader in READERS:
        refused(reader, path, f"expected a file that can be read, got: (a {kind};|No such file)")
    refused(map_arrays, path, "expected a file that can be read")
    assert load_arrays(path) is None


@pytest.mark.needs("pyarrow")  # by some of them
@pytest.mark.parametrize("suffix", FORMATS)
def test_every_format_refuses_files_that_are_not_of_it(suffix, tmp_path):
    for content in ("", "nothing of the kind\n", b"\x00\xff{[(" * 100):
        refused(read_lists, write(tmp_path / f"a{suffix}", content), "a", cache=False)
    refused(read_lists, tmp_path / f"b{suffix}", "no such file|No such file", cache=False)


def test_an_empty_file_of_group_sizes_is_ignored_if_there_are_qids(tmp_path):
    path = write(tmp_path / "train.txt", "1 qid:a 1:1\n0 qid:b 1:2\n")
    write(tmp_path / "train.txt.query", "")
    assert read_svmlight(path, cache=False).num_lists == 2
    refused(read_svmlight, write(path, "1 1:1\n"), "expected sizes that sum to the 1 documents", cache=False)


@pytest.mark.parametrize("digits", [10, 11, 12, 19, 20, 500])
def test_feature_ids_of_many_digits(tmp_path, digits):
    path = write(tmp_path / "ids.txt", f"1 qid:1 1:1\n1 qid:1 {'9' * digits}:1\n")
    refused(
        read_svmlight,
        path,
        "ids.txt:2: expected a feature as id:value with ids up to 2147483646, got '999",
        cache=False,
    )
    write(path, f"1 qid:1 {'0' * digits}1:5 {'0' * digits}2:7\n")
    assert read_svmlight(path, cache=False).features.tolist() == [[5, 7]]


HUGE = [
    "9223372036854775807 9223372036854775807 5",  # sums to 3 in int64
    "9223372036854775808 3",
    "18446744073709551616 3",
    "9" * 5000,
    "-1 4",
    "٣",
]


@pytest.mark.parametrize("sizes", HUGE, ids=lambda sizes: sizes[:20])
def test_group_files_that_overflow(tmp_path, sizes):
    path = write(tmp_path / "rank.train", "0 1:1\n1 1:2\n2 1:3\n")
    side = write(tmp_path / "rank.train.query", sizes)
    with pytest.raises(DataError, match=f"{side.name}:1: expected the number of documents of a list, got") as found:
        read_svmlight(path, cache=False)
    assert len(str(found.value)) < 600
    write(side, "0003\n0")
    assert read_svmlight(path, cache=False).lengths.tolist() == [3, 0]


def test_offsets_that_overflow_are_refused():
    offsets = np.array([0, 2**63 - 1, -(2**63), -2, 3])  # whose differences rise
    with pytest.raises(DataError, match="offsets must increase from 0 to the number of documents, 3"):
        RankingData(np.zeros((3, 1), np.float32), np.zeros(3, np.float32), offsets, np.array(["a", "b", "c", "d"]))


def test_gzip_bombs(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "_UNPACKED", 10**5)
    for content in (b"\n" * 10**7, b"0 qid:1 1:1\n" * 10**6, bytes(10**7)):
        path = write(tmp_path / "bomb.txt.gz", gzip.compress(content))
        for reader in (read_svmlight, read_run, read_scores):
            refused(reader, path, "expected", **({"cache": False} if reader is read_svmlight else {}))
        refused(
            read_svmlight,
            path,
            "bomb.txt.gz: expected a gzip file of lines, got one of .* decompresses to more",
            cache=False,
        )
    write(path, gzip.compress(b"1 qid:a 1:1\n0 qid:a 1:2\n"))
    assert read_lists(path, cache=False).num_documents == 2
    write(path, gzip.compress(b"0.5\n2\n"))
    assert read_scores(path).tolist() == [0.5, 2]


def test_a_line_without_end(tmp_path, monkeypatch):
    monkeypatch.setattr(text_module, "_LONGEST_LINE", 10**6)
    path = write(tmp_path / "endless.txt", b"1 qid:1 1:1\n" + b" " * (2**22 + 2 * 10**6))
    refused(read_svmlight, path, "endless.txt:2: expected lines of at most 1000000 bytes", cache=False)


def crafted(path, header, body=bytes(64)):
    """A file of arrays with a header of one's own and the right checksum."""
    content = struct.pack("<Q", len(header)) + header
    content += bytes(-(12 + len(content)) % 64) + body
    path.write_bytes(struct.pack("<8sI", b"rankdat2", zlib.crc32(content)) + content)
    return path


HEADERS = [
    b'{"a": ["|O", [1], 0, 8]}',
    b'{"a": ["<f4", [16], 0, 128]}',
    b'{"a": ["<f4", [16], 64, 64]}',
    b'{"a": ["<f4", [16], -64, 64]}',
    b'{"a": ["<f4", [-1, -16], 0, 64]}',
    b'{"a": ["<f4", [4611686018427387904, 4], 0, 0]}',
    b'{"a": ["<f4", [0, 99999999999999999999999], 0, 0]}',
    b'{"a": ["<f4", 16, 0, 64]}',
    b'{"a": ["<f4", [1.5], 0, 6]}',
    b'{"a": ["<f4", [true], 0, 4]}',
    b'{"a": [["<f4"], [1], 0, 4]}',
    b'{"a": ["nonsense", [1], 0, 4]}',
    b'{"a": [",f4", [1], 0, 4]}',
    b'{"a": ["(1000000000000,)f4", [1], 0, 4]}',
    b'{"a": []}',
    b'{"a": null}',
    b"[1, 2]",
    b"7",
    b"\xff",
    b"[" * 100_000,
    b"",
]


@pytest.mark.parametrize("header", HEADERS, ids=lambda header: header[:30].decode("latin-1"))
def test_crafted_headers(tmp_path, caplog, header):
    path = crafted(tmp_path / "crafted.rankdata", header)
    assert load_arrays(path) is None
    assert "crafted.rankdata is damaged" in caplog.text
    assert "\n" not in caplog.records[0].getMessage()
    refused(read_lists, path, "crafted.rankdata is damaged or not from this version")
    path.write_bytes(struct.pack("<8sIQ", b"rankdat2", zlib.crc32(struct.pack("<Q", 2**63)), 2**63))
    refused(read_lists, path, "crafted.rankdata is damaged")


def test_crafted_arrays_that_do_not_fit_together(tmp_path):
    data = read_svmlight(write(tmp_path / "a.txt", "1 qid:a 7:1 # docid = d\n0 qid:b 9:2\n"), cache=False)
    assert data.is_sparse
    good = to_arrays(data)
    path = tmp_path / "a.rankdata"
    write_arrays(path, good)
    assert read_lists(path).docids.tolist() == ["d", ""]
    for name, value in (
        ("indices", np.array([7, 10**6], np.int32)),
        ("indices", np.array([-1, 3], np.int32)),
        ("indptr", np.array([0, 5, 2], np.int32)),
        ("indptr", np.array([0, 2, 1], np.int32)),
        ("indptr", np.array([0], np.int32)),
        ("shape", np.array([2])),
        ("shape", np.array([10**12, 9])),
        ("offsets", np.array([0, 3, 2])),
        ("offsets", np.array([0.0, 1.0, 2.0])),
        ("labels", np.array([np.nan, 0], np.float32)),
        ("labels", np.zeros((2, 1), np.float32)),
        ("qids.offsets", np.array([0, 2**62, 2])),
        ("docids.text", np.zeros(9, np.uint8)),
        ("missing", np.zeros(3, np.int32)),
        ("values", np.zeros(9, np.float32)),
        ("surplus", np.zeros(1)),
    ):
        write_arrays(path, good | {name: value})
        with pytest.raises(DataError) as found:
            read_lists(path)
        assert len(str(found.value)) < 600
    cached = tmp_path / "cache"  # what the cache holds is made anew
    source = write(tmp_path / "b.txt", "1 qid:a 1:1\n0 qid:b 1:2\n")
    read_svmlight(source, cache=cached)
    (kept,) = cached.iterdir()
    write_arrays(kept, map_arrays(kept) | {"offsets": np.array([0, 2**63 - 1, 2])})
    assert read_svmlight(source, cache=cached).lengths.tolist() == [1, 1]
    del good["labels"]
    with pytest.raises(DataError, match="expected the arrays of lists, got"):
        from_arrays(good)


def test_a_dense_array_that_no_memory_holds(tmp_path, monkeypatch):
    def no_memory(*given):
        raise MemoryError

    path = write(tmp_path / "train.txt", "1 qid:1 1:1 2147483646:1\n0 qid:1 1:0.5\n")
    monkeypatch.setattr("rankstruct.data.assembly.Stream.array", no_memory)
    refused(
        read_svmlight,
        path,
        "not enough memory for features 2 x 2147483646; use sparse=True",
        sparse=False,
        cache=False,
    )


def zstd(content):
    packed = pyarrow.BufferOutputStream()
    with pyarrow.CompressedOutputStream(packed, "zstd") as stream:
        stream.write(content)
    return packed.getvalue().to_pybytes()


PACKERS = {".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress, ".zst": zstd}
LINES = {
    read_svmlight: "1 qid:a 1:1 2:0.5\n0 qid:a 1:2 2:3\n0 qid:b 1:2 2:1\n",
    read_run: "q Q0 d 1 2.5 t\nq Q0 e 2 1.5 t\n",
    read_qrels: "q 0 d 1\nq 0 e 0\n",
    read_scores: "1.5\n2.5\n",
    read_csv: "x,kind\n1,a\n2,b\n",
    read_arff: "@attribute x real\n@attribute k {a,b}\n@data\n1,a\n2,b\n",
    read_csv_ratings: "ann,x,5\nbob,x,4\n",
}


def told(reader, path):
    """The result of reading a file, in plain lists."""
    found = reader(path, cache=False) if reader is read_svmlight else reader(path)
    if reader is read_svmlight:
        return [found.features.tolist(), found.labels.tolist(), found.qids.tolist()]
    if reader is read_csv_ratings:
        return [found.user_names.tolist(), found.item_names.tolist(), found.rating.tolist()]
    return (
        [each.tolist() if isinstance(each, np.ndarray) else each for each in found]
        if reader in (read_csv, read_arff)
        else found
    )


@pytest.mark.parametrize("reader", LINES, ids=lambda reader: reader.__name__)
def test_one_file_with_any_line_ends_and_marks(reader, tmp_path):
    text = LINES[reader]
    expected = told(reader, write(tmp_path / "plain.csv", text))
    for name, other in {
        "crlf": text.replace("\n", "\r\n"),
        "cr": text.replace("\n", "\r"),
        "mark": "\ufeff" + text,
        "no end": text.rstrip("\n"),
        "mark, cr": "\ufeff" + text.replace("\n", "\r"),
    }.items():
        found = told(reader, write(tmp_path / f"{name}.csv", other))
        assert np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected, name
    for code in () if reader in (read_csv, read_csv_ratings) else ("utf-16", "utf-16-le", "utf-16-be", "utf-32"):
        path = write(tmp_path / f"{code}.csv", text.encode(code))
        refused(reader, path, r"expected text in UTF-8, got UTF-16 or UTF-32, by its first bytes \(.*\); save the file")
    if reader is not read_arff:
        said = "two.csv:?.*(byte order mark|as label, got|more than once)"
        refused(reader, write(tmp_path / "two.csv", f"{text}\ufeff{text}"), said)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize("reader", LINES, ids=lambda reader: reader.__name__)
def test_packed_files_are_read_or_their_damage_is_named(reader, suffix, tmp_path, monkeypatch):
    pack, text = PACKERS[suffix], LINES[reader].encode()
    expected = told(reader, write(tmp_path / "plain", text))
    half = len(text) // 2
    for content in (pack(text), pack(text[:half]) + pack(text[half:]), pack(b"") + pack(text)):
        found = told(reader, write(tmp_path / f"packed{suffix}", content))
        assert np.array_equal(found, expected) if isinstance(found, np.ndarray) else found == expected
    path, packed = tmp_path / f"packed{suffix}", pack(text)
    middle = len(packed) // 2
    kind = {".gz": "gzip", ".bz2": "bzip2", ".xz": "xz", ".zst": "Zstandard"}[suffix]
    damaged = [
        packed[:-4],
        pack(text[:half]) + pack(text[half:])[:-4],
        packed[:middle] + b"\xff\xff\xff\xff" + packed[middle + 4 :],
    ]
    for content in damaged[:2] if suffix == ".zst" else damaged:  # which has no checksum here
        refused(
            reader,
            write(path, content),
            f"packed{suffix}: expected a complete {kind} file, as its first bytes indicate, got: ",
        )
    monkeypatch.setattr(text_module, "_UNPACKED", 10**5)
    refused(
        reader,
        write(path, pack(text + b"\n" * 10**7)),
        f"expected a {kind} file of lines, got one of .* decompresses to more",
    )


def test_packed_files_go_by_the_suffix_before_theirs(tmp_path):
    for suffix in (".gz", ".bz2", ".xz"):
        folder = tmp_path / suffix[1:]
        folder.mkdir()
        for part in ("train", "vali", "test"):
            write(folder / f"{part}.txt{suffix}", PACKERS[suffix](b"1 qid:a 1:1\n0 qid:a 1:2\n"))
        assert [part.num_documents for part in read_folds(folder, cache=False)] == [2, 2, 2]
        assert convert_lists(folder / f"train.txt{suffix}").path == folder / "train.rankdata"
