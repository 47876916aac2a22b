"""Inputs of every kind are judged; what is read wrongly is found; and a few thousand damaged files, the same in each run."""

import bz2
import lzma
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path

import plain_parsers as plain
import pytest
from scripts_by_path import script

FUZZ = Path(__file__).parents[2] / "scripts" / "fuzz.py"
linux = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits processes as Linux does")
KINDS = [
    "svmlight",
    "groups",
    "packed",
    "csv lists",
    "arrow",
    "arrays",
    "run",
    "qrels",
    "beir",
    "ratings",
    "cell",
    pytest.param("corpus", marks=pytest.mark.needs("sentence_transformers", "bm25s", "Stemmer")),
    "keys",
]


@pytest.fixture(scope="module")
def fuzz():
    pytest.importorskip("pyarrow")
    return script("fuzz")


def judged(fuzz, kind, folder, numbers):
    """How often each was said of inputs."""
    path = folder / fuzz.KINDS[kind].name
    return Counter(fuzz.judge(kind, *fuzz.make_input(kind, 2, number), path) for number in numbers)


@linux
@pytest.mark.parametrize("kind", KINDS)
def test_some_inputs_of_each_kind_are_read_and_some_refused(fuzz, kind, tmp_path):
    found = judged(fuzz, kind, tmp_path, range(40))
    assert set(found) == {"equal", "refused"}, found


@linux
@pytest.mark.parametrize(
    "kind",
    [pytest.param("misspelt fit key", marks=pytest.mark.soak), "misspelt fit-exact key", "misspelt experiment key"],
)
def test_a_misspelt_key_is_refused_by_a_message_that_reminds_of_it(fuzz, kind, tmp_path, monkeypatch):
    numbers = [at for at in range(2) if (given := fuzz.make_input(kind, 2, at)[1])["key"] != given["wrong"]]
    assert set(judged(fuzz, kind, tmp_path, numbers)) == {"refused"}

    def no_reminder(*arguments):
        raise fuzz.Said("there is no such option")

    monkeypatch.setattr(fuzz, "command", no_reminder)
    assert all("does not remind of" in said for said in judged(fuzz, kind, tmp_path, numbers))


@linux
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_wrong_with_a_reader_is_found(fuzz, kind, tmp_path, monkeypatch):
    def stranger(path, **options):
        raise KeyError("x")

    def refusing(path, **options):
        raise fuzz.KINDS[kind].errors[0]("no")

    found = {}
    for name, read in {"other": lambda path, **options: {"x": 1}, "stranger": stranger, "refusing": refusing}.items():
        with monkeypatch.context() as patched:
            patched.setitem(fuzz.KINDS, kind, fuzz.KINDS[kind]._replace(read=read))
            found[name] = " ".join(judged(fuzz, kind, tmp_path, range(40)))
    assert "taken, where the plain parser says" in found["other"]
    assert "another result" in found["other"]
    assert "KeyError in place of" in found["stranger"]
    assert ("refused what the plain parser reads" in found["refusing"]) == (kind != "keys")


@pytest.mark.soak
@linux
def test_damaged_files_are_read_as_plain_parsers_read_them_or_refused():
    done = subprocess.run(
        [sys.executable, str(FUZZ), "--inputs", "1500", "--processes", "2"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    rows = [row for row in done.stdout.splitlines()[2:-1] if not row.startswith("misspelt")]
    assert all(int(row.split()[-6]) > 0 for row in rows), done.stdout  # some are read


def test_plain_parsers_know_their_formats():
    found = plain.svmlight(b"2 qid:a 1:0.5 3:NULL # docid = d7\n0 qid:a 1:0 # x\n1 qid:b 2:1e0\n", omitted="zero")
    assert found == {
        "rows": [{1: 0.5}, {}, {2: 1.0}],
        "labels": [2.0, 0.0, 1.0],
        "width": 3,
        "missing": [1, 0, 0],
        "qids": ["a", "b"],
        "lengths": [2, 1],
        "comments": [b"docid = d7", b"x", b""],
        "docids": ["d7", "x", ""],
    }
    assert plain.svmlight(b"1 QID:a 0:5 1:2", zero_based=True)["rows"] == [{1: 5.0, 2: 2.0}]
    assert plain.csv_rows('a,"b,""c"\r\n\n1,"2\n3"') == [["a", 'b,"c'], ["1", "2\n3"]]
    assert plain.arff_classes(b"@attribute 'a b' real\n@attribute k {x}\n@data\n% no\n1,'x'\n")["names"] == ["a b"]
    assert plain.ratings(b"item,user,rating\nx,ann,5\n", ",", (3, 4), "stars") == {("ann", "x"): 5.0}
    assert plain.table(b"query-id\tcorpus-id\tscore\nq\tNew York\t1.0\n", 4, 3, whole=True) == {"q": {"New York": 1.0}}
    for content in (
        b"1 qid:a 2:1 1:1",
        b"1 qid:a 1:1_0",
        b"1.5 qid:a 1:1",
        b"1 qid:a 1:1\n1 qid:b 1:1\n1 qid:a 1:1",
        b"",
        b"1 qid:a 0:1",
    ):
        with pytest.raises(plain.Refused):
            plain.svmlight(content)


@pytest.mark.parametrize(
    "pack", [bz2.compress, lzma.compress, *([plain.zstandard.ZstdCompressor().compress] if plain.zstandard else [])]
)
def test_plain_parsers_unpack_all_streams(pack):
    assert plain.unpacked(pack(b"ab") + bytes(4) + pack(b"c")) == b"abc"
    for damaged in (pack(b"ab")[:-1], pack(b"ab") + b"x", pack(b"ab") + pack(b"c")[:-1]):
        with pytest.raises(plain.Refused):
            plain.unpacked(damaged)


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("separator", list(",;\t|"))
def test_plain_parsers_know_tables(separator, encoding):
    text = 'QID,label,x,y\n"q 1",1,0.5,True\nq 1,0,,false\nNA,2,7,\n'
    found = plain.csv_lists(text.replace(",", separator).encode(encoding))
    assert found["rows"] == [{1: 0.5, 2: 1.0}, {1: None}, {1: 7.0, 2: None}]
    assert (found["missing"], found["qids"], found["lengths"]) == ([0, 1, 1], ["q 1", "NA"], [2, 1])
    for old, new in (
        ("label", "grade"),
        ("label", "y"),
        ("0.5", "a"),
        ("NA", ""),
        (",2,", ",0.5,"),
        ("7,", "7"),
        ("NA,2,7,", ""),
    ):
        wrong = text.replace(old, new).replace(",", separator)
        with pytest.raises(plain.Refused):
            plain.csv_lists((wrong if old != "NA,2,7," else wrong[:13]).encode(encoding))


def test_plain_parsers_know_keys():
    assert list(plain.config(b"a: {b: 1}\nc: [{a: 1}, {a: 2}]")) == [
        ("a",),
        ("a", "b"),
        ("c",),
        ("c", 0, "a"),
        ("c", 1, "a"),
    ]
    for content in (b"a: 1\nb: 2\na: 3", b"a: {b: 1}\na.b: 2", b"{1: x, 0x1: y}", b"a: [", b"c: {d: {e: 1, e: 1}}"):
        with pytest.raises(plain.Refused):
            plain.config(content)
    for content in (b'{"a": 1, "a": 1}', b'[{"b": {"a": 1, "a": 2}}]', b"{"):
        with pytest.raises(plain.Refused):
            plain.json_value(content)
    assert plain.corpus(b'{"_id": 7, "text": "x"}\n\n{"_id": "b", "title": "t", "text": ""}') == {"7": "x", "b": "t"}


def test_exact_measures():
    scores, labels = [Fraction(2**53 + 1), Fraction(2**53), Fraction(2**53)], [Fraction(each) for each in (0, 1, 0)]
    assert plain.exact_auc(scores, labels) == Fraction(1, 4)
    assert plain.exact_ap(scores, labels) == (Fraction(1, 2) + Fraction(1, 3)) / 2


def test_the_makefile_names_kinds_that_exist(fuzz):
    makefile = (Path(__file__).parents[2] / "Makefile").read_text()
    named = makefile.split("scripts/fuzz.py", 1)[1].split("--kind ", 1)[1].split("\n", 1)[0].split()
    assert named
    assert set(named) <= set(fuzz.KINDS)
