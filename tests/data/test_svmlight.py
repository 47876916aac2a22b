"""The SVMlight reader: what it accepts, what it refuses, and its errors."""

import gzip
import logging
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import load_svmlight_file

from rankstruct.data import DataError, read_svmlight


@pytest.fixture
def read(tmp_path):
    """Read a text, uncached."""

    def reader(text, **options):
        path = tmp_path / "train.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return read_svmlight(path, cache=False, **options)

    return reader


def test_everything_of_a_line_is_read(read):
    data = read("2 qid:q-7 1:0.5 3:-1e-2 # docid = d7 host = a.org inc = 1\n0 qid:8 2:.25\t#d9\n1 qid:8 3:+4.\n")
    assert data.features.tolist() == [[0.5, 0.0, np.float32(-0.01)], [0.0, 0.25, 0.0], [0.0, 0.0, 4.0]]
    assert data.labels.tolist() == [2, 0, 1]
    assert data.offsets.tolist() == [0, 1, 3]
    assert data.qids.tolist() == ["q-7", "8"]
    assert data.docids.tolist() == ["d7", "d9", ""]
    assert data.comment_values("host").tolist() == ["a.org", "", ""]
    assert data.missing is None


@pytest.mark.parametrize(
    "text",
    [
        b"1 qid:1 1:0.5\r\n0 qid:1 1:2 # x\r\n",
        b"1 qid:1 1:0.5\n0 qid:1 1:2 # x",
        b"# head\n\n  \n1 qid:1 1:0.5\n\r\n   # more\n0 qid:1 1:2#x\n\n",
        b"  1\tqid:1  1:0.5 \t\n0 qid:1 1:2 #x\n",
        gzip.compress(b"1 qid:1 1:0.5\n0 qid:1 1:2 # x\n"),
    ],
    ids=["crlf", "no last newline", "blank and comment lines", "tabs and blanks", "gzip"],
)
def test_forms_of_the_same_file(read, text):
    data = read(text)
    assert data.features.tolist() == [[0.5], [2.0]]
    assert data.labels.tolist() == [1, 0]
    assert data.qids.tolist() == ["1"]
    assert (
        data.docids.tolist() == ["", "x"] if b"x" in text else data.docids is None or data.docids.tolist() == ["", "x"]
    )


def test_lines_end_with_cr_alone_too(read):
    for text in (
        "1 qid:1 1:0.5 # d1\r0 qid:1 1:2 # d2\r",
        "1 qid:1 1:0.5 # d1\r0 qid:1 1:2 # d2\n",
        "1 qid:1 1:0.5 # d1\r\r0 qid:1 1:2 # d2",
    ):
        data = read(text)
        assert (data.features.tolist(), data.docids.tolist()) == ([[0.5], [2.0]], ["d1", "d2"])
    with pytest.raises(DataError, match=r"train.txt:3: expected a finite number .* as label, got 'x'"):
        read("1 qid:1 1:0.5\r0 qid:1 1:2\rx\r")


def test_letters_of_qid_and_names_of_any_letters(read):
    assert read("1 QID:a 1:1\n0 Qid:a 1:2\n0 qid:New\u00a0York 1:2\n").qids.tolist() == ["a", "New\u00a0York"]
    assert read("1 qid:1 1:1 #d\x0b7\n0 qid:1 1:2 # docid = d\u2028\x0c8\n").docids.tolist() == [
        "d\x0b7",
        "d\u2028\x0c8",
    ]


def test_missing_values_are_filled_counted_and_reported(read, caplog):
    with caplog.at_level(logging.WARNING):
        data = read("0 qid:1 1:NULL 2:null\n1 qid:1 1:1 2:2\n1 qid:2 1:Null 2:1\n", fill=-7)
    assert data.features.tolist() == [[-7, -7], [1, 2], [-7, 1]]
    assert data.missing.tolist() == [2, 0, 1]
    assert data.select([1]).missing.tolist() == [1]
    assert data.summary().missing == 3
    assert "3 missing values (NULL) were read as -7" in caplog.text


def test_group_file_by_name_and_by_itself(tmp_path):
    path = tmp_path / "rank.train"
    path.write_text("0 1:1\n1 1:2\n2 1:3\n")
    sizes = tmp_path / "sizes"
    sizes.write_text("1\n2\n")
    assert read_svmlight(path, group_file=sizes, cache=False).offsets.tolist() == [0, 1, 3]
    (tmp_path / "rank.train.query").write_text("2 1")
    data = read_svmlight(path, cache=False)
    assert data.offsets.tolist() == [0, 2, 3]
    assert data.qids.tolist() == ["1", "2"]


def test_a_side_file_is_not_used_for_lines_with_qid(tmp_path):
    path = tmp_path / "rank.train"
    path.write_text("0 qid:a 1:1\n1 qid:b 1:2\n")
    (tmp_path / "rank.train.query").write_text("2")
    assert read_svmlight(path, cache=False).qids.tolist() == ["a", "b"]


def test_zero_based_and_num_features(read):
    assert read("0 qid:1 0:1 2:3\n", zero_based=True, sparse=False).features.tolist() == [[1, 0, 3]]
    assert read("0 qid:1 1:1\n", num_features=3, sparse=False).features.tolist() == [[1, 0, 0]]


def test_sparse_and_dense_agree(read):
    text = "0 qid:1 7:1.5\n1 qid:1 2:3 9:-1\n0 qid:2\n"
    sparse, dense = read(text, sparse=True), read(text, sparse=False)
    assert sparse.is_sparse
    assert not dense.is_sparse
    assert (sparse.features.toarray() == dense.features).all()
    assert read(text).is_sparse  # 3 of 27 values
    assert not read("0 qid:1 1:1 2:1\n").is_sparse


def test_omitted_features_of_a_file_that_writes_zeros(read):
    full = "".join(f"0 qid:1 1:{i} 2:0 3:1\n" for i in range(4))
    for odd in ("1 qid:1 1:1 3:1\n", "1 qid:1 1:1 2:2\n", "1 qid:1 1:1 2:2 3:3 4:4\n", "1 qid:1\n"):
        with pytest.raises(DataError, match=r"train.txt:5: expected features 1 to 3, as on most lines.*omitted='zero'"):
            read(full + odd)
        assert read(full + odd, omitted="zero").num_documents == 5
    # with gaps on most lines, or without written zeros, the file may simply be sparse
    assert read("0 qid:1 1:0 4:1\n0 qid:1 2:1 5:1\n0 qid:1 3:1\n").num_features == 5
    assert read("0 qid:1 1:0 2:1\n0 qid:1\n0 qid:1\n").num_features == 2
    assert read(full.replace("0 3", "5 3").replace("1:0", "1:9") + "1 qid:1 1:1 3:1\n").num_documents == 5


GOOD = "1 qid:1 1:0.5 2:1\n0 qid:1 1:2 2:1\n"
BAD_LINES = {
    "label missing": ("qid:1 1:2\n", "finite number .* as label, got 'qid:1'; add one in front"),
    "label no number": ("x qid:1 1:2\n", "as label, got 'x'"),
    "label NaN": ("nan qid:1 1:2\n", "as label, got 'nan'"),
    "label huge": ("1e39 qid:1 1:2\n", "as label, got '1e39'"),
    "label negative": ("-1 qid:1 1:2\n", r"a grade \(an integer from 0\) as label, got '-1'; labels='real'"),
    "label fractional": ("0.5 qid:1 1:2\n", "a grade .*got '0.5'; labels='real'"),
    "qid missing": ("1 1:2\n", "qid:<query> after the label, as on the lines before, got '1:2'"),
    "qid empty": ("1 qid: 1:2\n", "a name after qid:, got nothing"),
    "qid with #": ("1 qid:a#b 1:2\n", "a query name without #, which starts a comment, got 'qid:a#b'"),
    "qid before NBSP": ("1 qid:1\u00a01:2 2:1\n", r"blanks or tabs around the qid, got U\+00A0 in '1\\xa01:2', which is not"),
    "qid at NBSP": ("1 qid:7\u00a0 1:2\n", r"blanks or tabs around the qid, got U\+00A0 in '7\\xa0', which is not"),
    "qid at vertical tab": ("1 qid:\x0b7 1:2\n", r"blanks or tabs around the qid, got U\+000B"),
    "label before NBSP": ("1\u00a0qid:1 1:2\n", r"as label, got '1\\xa0qid:1'"),
    "value before NBSP": ("1 qid:1 1:2\u00a02:1\n", "value of feature 1, got '2\\\\xa02:1'"),
    "qid bad bytes": (b"1 qid:\xff\xfe 1:2\n", "qid in UTF-8.*save the file as UTF-8"),
    "docid bad bytes": (b"1 qid:1 1:2 2:1 # docid = \xff\n", "docid in UTF-8"),
    "feature no colon": ("1 qid:1 12\n", "a feature as id:value, got '12'"),
    "feature no id": ("1 qid:1 :2\n", "a feature as id:value, got ':2'"),
    "feature word": ("1 qid:1 a:2\n", "a feature as id:value, got 'a:2'"),
    "feature negative": ("1 qid:1 -1:2\n", "a feature as id:value, got '-1:2'"),
    "junk": (b"1 qid:1 \xff\xfe:2\n", "a feature as id:value"),
    "value word": ("1 qid:1 1:abc\n", "value of feature 1, got 'abc'; write NULL"),
    "value none": ("1 qid:1 1: 2:1\n", "value of feature 1, got ''"),
    "value trailing": ("1 qid:1 1:2x\n", "value of feature 1, got '2x'"),
    "value exponent": ("1 qid:1 1:2e\n", "value of feature 1, got '2e'"),
    "value NULLs": ("1 qid:1 1:NULLS\n", "value of feature 1, got 'NULLS'"),
    "value NaN": ("1 qid:1 1:1 2:NaN\n", "value of feature 2, got 'NaN'"),
    "value infinite": ("1 qid:1 1:-inf\n", "value of feature 1, got '-inf'"),
    "value huge": ("1 qid:1 1:1 2:1e39\n", "value of feature 2, got '1e39'"),
    "value enormous": ("1 qid:1 2:-1e9999999999\n", "value of feature 2, got '-1e9999999999'"),
    "id zero": ("1 qid:1 0:1\n", "feature ids from 1, got '0:1'; zero_based=True"),
    "id twice": ("1 qid:1 1:1 1:2\n", "increasing feature ids on the line, got '1:2'"),
    "id falls": ("1 qid:1 2:1 1:2\n", "increasing feature ids on the line, got '1:2'"),
    "id enormous": ("1 qid:1 99999999999999999999:1\n", "a feature as id:value"),
    "id large": ("1 qid:1 2147483648:1\n", "ids up to 2147483646, got '2147483648:1'; renumber"),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD_LINES)
def test_bad_line_is_named(read, case):
    line, message = BAD_LINES[case]
    line = line if isinstance(line, bytes) else line.encode()
    with pytest.raises(DataError, match=rf"train.txt:4: expected .*{message}"):
        read(b"# a comment line\n" + GOOD.encode() + line + GOOD.encode())


def test_bad_files(read, tmp_path):
    with pytest.raises(DataError, match=r"train.txt: expected documents.*empty file"):
        read("")
    with pytest.raises(DataError, match="only blank lines and comments"):
        read("\n# nothing\n")
    with pytest.raises(DataError, match="got none in the file"):
        read("1 qid:1\n0 qid:1\n")
    with pytest.raises(DataError, match=r"absent.txt: expected a file that can be read, got: No such file"):
        read_svmlight(tmp_path / "absent.txt", cache=False)
    with pytest.raises(DataError, match="expected a complete gzip file"):
        read(gzip.compress(GOOD.encode() * 50)[:-12])
    with pytest.raises(DataError, match=r"train.txt:1: expected qid:<query> after the label, got none; .*group_file="):
        read("1 1:2\n")
    with pytest.raises(DataError, match=r"train.txt:1: .*got 'qid:1'; add one in front, such as 0"):
        read("qid:1 1:2\n")
    with pytest.raises(DataError, match=r"train.txt:2: expected no qid:, as on the lines before"):
        read("1 1:2\n1 qid:1 1:2\n")


def test_returning_query_names_both_lines(read):
    with pytest.raises(
        DataError, match=r"train.txt:4: .*got qid:1 again, which started on line 1; sort the file by qid"
    ):
        read("1 qid:1 1:1\n0 qid:2 1:1\n\n1 qid:1 1:1\n")


def test_feature_beyond_num_features(read):
    with pytest.raises(DataError, match=r"train.txt:1: expected feature ids up to 1, got '2:1'; increase num_feat"):
        read(GOOD, num_features=1)
    with pytest.raises(DataError, match="ids up to 1, got '2:1'"):
        read("1 qid:1 0:1 1:1 2:1\n", num_features=2, zero_based=True)


def test_bad_group_files(tmp_path):
    path, sizes = tmp_path / "rank.train", tmp_path / "sizes"
    path.write_text("0 1:1\n1 1:2\n2 1:3\n")
    sizes.write_text("1\n1\n")
    with pytest.raises(
        DataError, match=r"sizes: expected sizes that sum to the 3 documents of .*rank.train, got 2 in 2"
    ):
        read_svmlight(path, group_file=sizes, cache=False)
    for word in ("-1", "1.5", "x", "1\u00a02", "1\u20282", "1\x0b2"):
        sizes.write_text(f"1\n{word}\n")
        shown = re.escape(repr(word))
        with pytest.raises(DataError, match=rf"sizes:2: expected the number of documents of a list, got {shown}"):
            read_svmlight(path, group_file=sizes, cache=False)
    sizes.write_bytes(b"\xef\xbb\xbf1\r\t2\r")
    assert read_svmlight(path, group_file=sizes, cache=False).lengths.tolist() == [1, 2]
    with pytest.raises(DataError, match="nowhere: expected a file that can be read"):
        read_svmlight(path, group_file=tmp_path / "nowhere", cache=False)
    sizes.write_text("3\n")
    path.write_text("0 qid:1 1:1\n")
    with pytest.raises(DataError, match=r"rank.train:1: expected lines without qid:.*remove group_file"):
        read_svmlight(path, group_file=sizes, cache=False)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"labels": "binary"}, "labels must be one of 'grades', 'real', got 'binary'"),
        ({"fill": float("nan")}, "fill must be a finite number"),
        ({"num_features": 0}, "num_features must be an integer from 1"),
        ({"omitted": "fill"}, "omitted must be"),
        ({"sparse": "yes"}, "sparse must be"),
    ],
)
def test_bad_options(read, options, message):
    with pytest.raises(ValueError, match=message):
        read(GOOD, **options)


def test_real_labels(read):
    assert read("-1.5 qid:1 1:1\n0.25 qid:1 1:1\n", labels="real").labels.tolist() == [-1.5, 0.25]


TRICKY = [
    "0", "-0", "0e5", "00012", "1.", ".5", "1e5", "1E-5", "+2e+3", "0.1", "123456789012345678901234567890",
    "0.9986587502889431", "1.2345678901234567e-05", "3.4028234663852886e38", "1e-30", "1e-38", "1.1754943508222875e-38",
    "1e-45", "1e-46", "2.5e-46", "1e-300", "4.35e-30", "0.000000000000000000000000000000000000000000012345",
    "16777217", "16777219", "1.00000005960464477539062500000000000001", "1.000000059604644775390625",
    "1.0000000596046447753906249999999999999", "0.50000000000000000000000000000000", "9007199254740993", "1e22", "1e23",
    "340282346638528859811704183484516925440", "7.0385307e-26", "8.589973e9", "1e00000000000000000005",
    "1" + 600 * "0" + "e-600", "0." + 600 * "0" + "25e601",
]  # fmt: skip


def float32(text: str) -> np.float32:
    return np.float32(float(text))


@pytest.mark.parametrize("number", TRICKY)
def test_tricky_numbers_as_python_reads_them(read, number):
    for sign in ("", "-"):
        token = number if number[0] in "+-" else sign + number
        data = read(f"{token} qid:1 1:{token} 2:1\n", labels="real")
        assert data.features[0, 0].tobytes() == float32(token).tobytes(), token
        assert data.labels[0].tobytes() == float32(token).tobytes(), token


def test_numbers_near_the_midpoint_of_two_float32(read):
    """Where an error of one unit in the last place of a double would tip the balance."""
    rng = np.random.default_rng(0)
    low = (rng.uniform(1, 2, 5000) * 10.0 ** rng.integers(-36, 37, 5000)).astype(np.float32)
    middle = (low.astype(np.float64) + np.nextafter(low, np.float32(np.inf)).astype(np.float64)) / 2
    for neighbour in (middle, np.nextafter(middle, 0), np.nextafter(middle, np.inf)):
        numbers = [f"{value:.{digits}e}" for value in neighbour.tolist() for digits in (15, 17, 20)]
        found = read("".join(f"0 qid:1 1:{number}\n" for number in numbers)).features[:, 0]
        assert found.tolist() == [float32(number) for number in numbers]


NUMBERS = st.one_of(
    st.floats(allow_nan=False, width=32).map(repr),
    st.floats(min_value=-1e38, max_value=1e38).map(repr),
    st.tuples(st.integers(-(10**25), 10**25), st.integers(-35, 10)).map(lambda pair: f"{pair[0]}e{pair[1]}"),
    st.decimals(-1000, 1000, allow_nan=False, places=20).map(str),
    # at and near the midpoint between two float32 numbers
    st.tuples(st.integers(2**24, 2**25 - 1), st.sampled_from(["", ".0000000000000000001", ".9999999999999999999"])).map(
        lambda pair: f"{pair[0]}{pair[1]}"
    ),
).filter(lambda text: "inf" not in text and abs(float(text)) < 3.4e38)


@settings(max_examples=150, deadline=None)
@given(numbers=st.lists(NUMBERS, min_size=1, max_size=40))
def test_any_number_as_python_reads_it(tmp_path_factory, numbers):
    path = tmp_path_factory.mktemp("numbers") / "numbers.txt"
    path.write_text("".join(f"0 qid:1 1:{number} 2:1\n" for number in numbers))
    data = read_svmlight(path, cache=False, sparse=False)
    assert data.features[:, 0].tobytes() == np.array([float32(number) for number in numbers]).tobytes()


@st.composite
def tables(draw):
    width = draw(st.integers(1, 6))
    value = st.floats(width=32, allow_nan=False, allow_infinity=False).filter(lambda x: x != 0) | st.just(0.0)
    lists = draw(
        st.lists(
            st.lists(st.lists(value, min_size=width, max_size=width), min_size=1, max_size=4), min_size=1, max_size=5
        )
    )
    names = draw(
        st.lists(st.text("abc123-_.é", min_size=1, max_size=4), min_size=len(lists), max_size=len(lists), unique=True)
    )
    return names, lists


@settings(max_examples=100, deadline=None)
@given(table=tables(), dense=st.booleans(), eol=st.sampled_from(["\n", "\r\n"]))
def test_what_is_written_is_read(tmp_path_factory, table, dense, eol):
    names, lists = table
    rows = [row for documents in lists for row in documents]
    lines = [
        f"{k % 3} qid:{name} "
        + " ".join(f"{i}:{x!r}" for i, x in enumerate(row, 1) if dense or x or i == len(row))
        + f" # docid = d{k}"
        for k, (name, row) in enumerate((name, row) for name, docs in zip(names, lists, strict=True) for row in docs)
    ]
    path = tmp_path_factory.mktemp("table") / "table.txt"
    path.write_bytes((eol.join(lines) + eol).encode())
    data = read_svmlight(path, cache=False, omitted="check" if dense else "zero")
    features = data.features.toarray() if data.is_sparse else data.features
    np.testing.assert_array_equal(features, np.array(rows, dtype=np.float32))
    assert data.qids.tolist() == names
    assert data.lengths.tolist() == [len(documents) for documents in lists]
    assert data.labels.tolist() == [k % 3 for k in range(len(rows))]
    assert data.docids.tolist() == [f"d{k}" for k in range(len(rows))]


@pytest.mark.parametrize("name", ["letor/OHSUMED/Fold1/train.txt", "letor/MQ2008/Fold2/test.txt"])
def test_equal_to_scikit_learn(data_root, name):
    path = data_root / name
    data = read_svmlight(path, cache=False)
    features, labels, qids = load_svmlight_file(str(path), query_id=True, dtype=np.float32)
    assert (data.features == features.toarray()).all()
    assert (data.labels == labels).all()
    assert (np.repeat(data.qids.astype(np.int64), data.lengths) == qids).all()
    comments = re.findall(r"#docid = (\S+)", path.read_text())
    assert data.docids.tolist() == comments


def test_web_hosts(data_root):
    path = data_root / "web_hosts" / "stanford_train.txt"
    with pytest.raises(DataError, match=r"stanford_train.txt:2: .*got '1.33'; labels='real'"):
        read_svmlight(path, cache=False)
    data = read_svmlight(path, cache=False, labels="real")
    features, labels = load_svmlight_file(str(path), dtype=np.float32)
    assert (data.features == features.toarray()).all()
    assert (data.labels == labels.astype(np.float32)).all()
    assert (data.num_lists, data.num_documents, data.num_features) == (295, 2938, 33)
    hosts = data.comment_values("host")
    assert hosts[:2].tolist() == ["facts.stanford.edu", "www.stanford.edu"]
    assert (hosts != "").all()
    assert data.comment_values("query")[0] == "arrillaga squash reservations"


def test_null_tokens(data_root):
    path = data_root / "letor" / "parser_cases" / "ohsumed_null_tokens.txt"
    data = read_svmlight(path, cache=False, fill=-999)
    assert data.missing.sum() == (data.features == -999).sum() == len(re.findall("NULL", path.read_text()))
    assert data.num_features == 45


def test_lightgbm_group_files(data_root):
    folder = data_root / "letor" / "parser_cases" / "group_file"
    train, test = (read_svmlight(folder / f"rank.{part}", cache=False, num_features=300) for part in ("train", "test"))
    assert (train.num_lists, test.num_lists) == (201, 50)
    assert train.lengths[:5].tolist() == [1, 13, 5, 8, 19]
    features, _ = load_svmlight_file(str(folder / "rank.train"), n_features=300, dtype=np.float32)
    assert abs(train.features - features).max() == 0
