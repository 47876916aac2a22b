"""`rankstruct convert` and `rankstruct cache`: what they write, print and remove, and what they refuse in one line."""

import os

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from rankstruct.cli import main
from rankstruct.data import read_folds, read_lists, read_svmlight


def written(path, lists=3):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{d % 2} qid:{q} 1:{d}.5 2:{q}\n" for q in range(lists) for d in range(4)))
    return path


def test_a_file_and_a_folder(tmp_path, capsys):
    source = written(tmp_path / "set" / "train.txt")
    assert main(["convert", str(source)]) == 0
    assert "train.rankdata" in capsys.readouterr().out
    assert (read_lists(source.with_suffix(".rankdata")).features == read_svmlight(source, cache=False).features).all()
    source.with_suffix(".rankdata").unlink()
    for part in ("vali", "test"):
        written(source.with_name(f"{part}.txt"))
    assert main(["convert", str(source.parent), "--output", str(tmp_path / "out"), "--dtype", "float16"]) == 0
    assert read_folds(tmp_path / "out").test.features.dtype == "float16"
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "test.rankdata",
        "train.rankdata",
        "vali.rankdata",
    ]
    assert main(["evaluate", "--labels", str(tmp_path / "out" / "test.rankdata"), str(scores(tmp_path))]) == 0


def scores(folder):
    path = folder / "scores"
    path.write_text("".join(f"{i}\n" for i in range(12)))
    return path


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (["absent.txt"], "absent.txt: expected a file that can be read"),
        (["bad.txt"], "bad.txt:1: expected a finite number"),
        (["good.txt", "--output", "good.bin"], "target must have the suffix .rankdata"),
        (["good.txt", "--label", "y"], "unknown option 'label' for a .txt file"),
        (["good.txt", "--num-features", "1"], "good.txt:1: expected feature ids up to 1"),
        (["good.txt", "--output", "good.txt/x.rankdata"], "good.txt"),
        ([".", "--output", "out"], "expected train.txt, vali.txt, test.txt"),
    ],
)
def test_refusals_in_one_line(tmp_path, monkeypatch, capsys, given, message):
    monkeypatch.chdir(tmp_path)
    written(tmp_path / "good.txt")
    (tmp_path / "bad.txt").write_text("x qid:1 1:1\n")
    assert main(["convert", *given]) == 1
    said = capsys.readouterr().err.strip()
    assert said.startswith("rankstruct convert: ")
    assert message in said
    assert "\n" not in said
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bad.txt", "good.txt"]


def test_the_cache_is_shown_bounded_and_cleared(tmp_path, monkeypatch, capsys):
    folder = tmp_path / "cache"
    monkeypatch.setenv("RANKSTRUCT_CACHE", str(folder))
    assert main(["cache"]) == 0
    assert "0 files" in capsys.readouterr().out
    for number in range(4):
        read_svmlight(written(tmp_path / f"set{number}.txt", 20 + number))
        for path in folder.glob(f"set{number}-*"):
            os.utime(path, (number, number))
    (folder / "mine.txt").write_text("not of the cache")
    size = sum(next(folder.glob(f"set{number}*")).stat().st_size for number in (0, 3))
    assert main(["cache"]) == 0
    out = capsys.readouterr().out
    assert out.index("set3-") < out.index("set0-")
    assert "4 files" in out
    read_svmlight(tmp_path / "set0.txt")  # used: no longer the oldest
    assert main(["cache", "--limit", str(size)]) == 0
    assert "removed 2 files" in capsys.readouterr().out
    assert sorted(path.name[:4] for path in folder.glob("*.rankdata")) == ["set0", "set3"]
    monkeypatch.setenv("RANKSTRUCT_CACHE_SIZE", "1")
    read_svmlight(tmp_path / "set1.txt")  # the new one stays, whatever the limit
    assert [path.name[:4] for path in folder.glob("*.rankdata")] == ["set1"]
    stale = folder / f"x.rankdata.{os.getpid()}-0123abcd.part"
    stale.write_text("half")
    os.utime(stale, (1, 1))
    assert main(["cache", "--clear"]) == 0
    assert sorted(path.name for path in folder.iterdir()) == ["mine.txt"]
    for limit in ("much", "-1", "9" * 5000):
        assert main(["cache", f"--limit={limit}"]) == 1
        assert "expected a number with K, M, G or T as size" in capsys.readouterr().err
    monkeypatch.setenv("RANKSTRUCT_CACHE_SIZE", "plenty")
    assert main(["cache"]) == 1
    assert "RANKSTRUCT_CACHE_SIZE: expected a number" in capsys.readouterr().err


def test_parts_that_are_parquet_files_are_converted_each_and_shards_as_one(tmp_path):
    source = tmp_path / "set"
    for part in ("train", "vali", "test"):
        read = read_lists(written(tmp_path / f"{part}.txt"), cache=False)
        rows = {"qid": np.repeat(np.arange(3), read.lengths), "label": read.labels, "x": read.features[:, 0]}
        source.mkdir(exist_ok=True)
        pq.write_table(pa.table(rows), source / f"{part}.parquet")
    assert main(["convert", str(source), "--output", str(tmp_path / "out")]) == 0
    assert read_folds(tmp_path / "out").test.num_documents == 12
    assert main(["convert", str(source), "--shards", "2", "--output", str(tmp_path / "shards")]) == 0
    assert main(["convert", str(tmp_path / "shards"), "--output", str(tmp_path / "again")]) == 0
    assert read_folds(tmp_path / "again").test.num_documents == 12
    assert main(["convert", str(tmp_path / "shards" / "test"), "--output", str(tmp_path / "one.rankdata")]) == 0
    assert read_lists(tmp_path / "one.rankdata").num_lists == 3
    url = (tmp_path / "shards" / "test").as_uri()
    assert main(["convert", url, "--shards", "1", "--output", str(tmp_path / "merged")]) == 0
    assert read_lists(url).num_lists == read_lists(tmp_path / "merged").num_lists == 3
