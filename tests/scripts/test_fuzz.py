"""A few thousand damaged files, the same in each run."""

import subprocess
import sys
from pathlib import Path

import plain_parsers as plain
import pytest

pytestmark = pytest.mark.slow

FUZZ = Path(__file__).parents[2] / "scripts" / "fuzz.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="limits processes as Linux does")
def test_damaged_files_are_read_as_plain_parsers_read_them_or_refused():
    done = subprocess.run(
        [sys.executable, str(FUZZ), "--inputs", "1500", "--processes", "2"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert all(int(row.split()[-6]) > 0 for row in done.stdout.splitlines()[2:-1]), done.stdout  # some are read


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
    assert plain.csv_rows('a,"b,""c"\r\n\n1,"2\n3"') == [["a", 'b,"c'], ["1", "2\n3"]]
    assert plain.arff_classes(b"@attribute 'a b' real\n@attribute k {x}\n@data\n% no\n1,'x'\n")["names"] == ["a b"]
    assert plain.ratings(b"item,user,rating\nx,ann,5\n", ",", (3, 4), "stars") == {("ann", "x"): 5.0}
    for content in (
        b"1 qid:a 2:1 1:1",
        b"1 qid:a 1:1_0",
        b"1.5 qid:a 1:1",
        b"1 qid:a 1:1\n1 qid:b 1:1\n1 qid:a 1:1",
        b"",
    ):
        with pytest.raises(plain.Refused):
            plain.svmlight(content)
