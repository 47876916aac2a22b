"""The cache: the same data, faster; never wrong data."""

import multiprocessing
import os

import numpy as np
import pytest

import rankstruct.data.svmlight as svmlight
from rankstruct.data import read_svmlight

TEXT = "2 qid:a 1:0.5 2:0 # docid = d7 x = 1\n0 qid:a 1:NULL 2:2\n1 qid:b 1:1 2:1 # docid = d9\n"


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "train.txt"
    path.write_text(TEXT)
    return path


@pytest.fixture
def parsed(monkeypatch):
    """How often a file was parsed."""
    count = []
    original = svmlight.parse_lines
    monkeypatch.setattr(svmlight, "parse_lines", lambda *args: count.append(1) or original(*args))
    return count


def assert_same(one, other):
    assert one.is_sparse == other.is_sparse
    dense = [data.features.toarray() if data.is_sparse else data.features for data in (one, other)]
    np.testing.assert_array_equal(*dense)
    for name in ("labels", "offsets", "qids", "docids", "comments", "missing"):
        left, right = getattr(one, name), getattr(other, name)
        np.testing.assert_array_equal(left, right)
        assert (left is None) == (right is None)


@pytest.mark.parametrize("sparse", [True, False])
def test_cached_equals_parsed(file, tmp_path, parsed, sparse):
    first, again = (read_svmlight(file, sparse=sparse, cache=tmp_path / "cache") for _ in range(2))
    assert len(parsed) == 1
    assert_same(first, again)
    assert_same(first, read_svmlight(file, sparse=sparse, cache=False))
    assert first.features.dtype == again.features.dtype == np.float32
    values = again.features.data if sparse else again.features
    assert not np.asarray(values).flags.writeable


def test_cached_missing_values_are_reported_again(file, tmp_path, caplog):
    for _ in range(2):
        caplog.clear()
        read_svmlight(file, cache=tmp_path / "cache")
        assert "1 missing values" in caplog.text


def test_changed_content_is_read_anew_though_size_and_time_stay(file, tmp_path, parsed):
    before = os.stat(file)
    read_svmlight(file, cache=tmp_path / "cache")
    file.write_text(TEXT.replace("0.5", "0.7"))
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert read_svmlight(file, cache=tmp_path / "cache").features[0, 0] == np.float32(0.7)
    assert len(parsed) == 2


def test_options_and_group_file_count(file, tmp_path, parsed):
    cache = tmp_path / "cache"
    assert read_svmlight(file, cache=cache).num_features == 2
    assert read_svmlight(file, cache=cache, num_features=3).num_features == 3
    assert read_svmlight(file, cache=cache, fill=1).features[1, 0] == 1
    assert len(parsed) == 3
    file.write_text("0 1:1\n1 1:2\n2 1:3\n")
    side = tmp_path / "train.txt.query"
    for sizes in ("1 2", "2 1"):
        side.write_text(sizes)
        assert read_svmlight(file, cache=cache).lengths.tolist() == [int(size) for size in sizes.split()]


def damages(content: bytes):
    yield b""
    yield content[:5]
    yield content[: len(content) // 2]
    yield content[:-1]
    for place in (0, 9, 13, 30, 200, len(content) - 1):
        yield content[:place] + bytes([content[place] ^ 0x10]) + content[place + 1 :]


def test_damaged_cache_is_made_anew(file, tmp_path, parsed, caplog):
    fresh = read_svmlight(file, cache=tmp_path / "cache")
    (kept,) = (tmp_path / "cache").iterdir()
    content = kept.read_bytes()
    for number, damaged in enumerate(damages(content), 2):
        kept.unlink()  # the mapped file lives on
        kept.write_bytes(damaged)
        caplog.clear()
        assert_same(fresh, read_svmlight(file, cache=tmp_path / "cache"))
        assert len(parsed) == number
        assert "is damaged" in caplog.text
        assert kept.read_bytes() == content


def test_cache_that_cannot_be_written(file, tmp_path):
    (tmp_path / "taken").write_text("a file, not a folder")
    for folder in (tmp_path / "taken", tmp_path / "taken" / "below"):
        assert read_svmlight(file, cache=folder).num_documents == 3


def test_default_folder(file, tmp_path, monkeypatch, parsed):
    monkeypatch.setenv("RANKSTRUCT_CACHE", str(tmp_path / "chosen"))
    read_svmlight(file)
    assert [path.suffix for path in (tmp_path / "chosen").iterdir()] == [".rankdata"]
    monkeypatch.delenv("RANKSTRUCT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    read_svmlight(file)
    assert len(list((tmp_path / "home" / "rankstruct").iterdir())) == 1
    assert len(parsed) == 2


def _read_often(file, cache):
    for _ in range(20):
        for path in cache.glob("*"):
            path.unlink(missing_ok=True)
        if read_svmlight(file, cache=cache).labels.tolist() != [2, 0, 1]:
            raise AssertionError("wrong data")


def test_concurrent_writers_and_readers(file, tmp_path):
    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=_read_often, args=(file, tmp_path / "cache")) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(60)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert not list((tmp_path / "cache").glob("*.part"))
