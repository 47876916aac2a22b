"""Names in one buffer: what an array of strings does, at the cost of their own length."""

import pickle
import tracemalloc

import numpy as np
import pytest

from rankstruct.data import DataError, Names, RankingData, concatenate, read_svmlight

WORDS = ["d7", "", "é☃", "d7", "x" * 300, "a\0", "\ud800"]


def test_as_an_array_of_strings_would():
    names = Names.of(WORDS)
    array = np.array(WORDS, dtype=object)
    assert len(names) == names.size == 7
    assert (names.shape, names.ndim, names.dtype.kind) == ((7,), 1, "U")
    assert names.tolist() == list(names) == WORDS
    assert [names[i] for i in (0, -1, np.int64(2))] == ["d7", "\ud800", "é☃"]
    for chosen in (slice(1, 5, 2), [3, 0], np.array([], int), [], array == "d7", np.array([-1, 2])):
        assert names[chosen].tolist() == array[chosen if np.size(chosen) else slice(0)].tolist()
    for compared in (names == "d7", "d7" == names, names == names, names != array, names < "e"):  # noqa: SIM300
        assert compared.dtype == bool
    assert (names == "d7").tolist() == [True, False, False, True, False, False, False]
    assert np.unique(names[:4]).tolist() == ["", "d7", "é☃"]
    assert np.isin(names, ["d7"]).sum() == 2
    assert Names.of(["1", "20"]).astype(np.int64).tolist() == [1, 20]
    assert "d7" in names
    assert "d8" not in names
    with pytest.raises(IndexError):
        names[7]
    assert pickle.loads(pickle.dumps(names)).tolist() == WORDS
    assert Names.of([b"a\0", b""]).tolist() == [b"a\0", b""]
    assert Names.of(np.array([3, 10])).tolist() == ["3", "10"]
    assert Names.of(names) is names
    assert len(repr(Names.of(["y" * 10_000]))) < 100


def test_trailing_zero_characters_tell_names_apart(tmp_path):
    path = tmp_path / "zeros.txt"
    path.write_bytes(b"1 qid:a 1:1 # docid = d\0\n0 qid:a\0 1:1 # docid = d\0\0\n0 qid:a\0\0 1:2 #docid = d\n")
    for _ in range(2):
        data = read_svmlight(path, cache=tmp_path / "cache")
        assert data.qids.tolist() == ["a", "a\0", "a\0\0"]
        assert data.docids.tolist() == ["d\0", "d\0\0", "d"]
        assert np.asarray(data.qids).tolist() == data.qids.tolist()
    assert RankingData.from_arrays([[1.0]] * 2, [0, 1], ["q", "q\0"]).num_lists == 2


def test_repeated_names_whatever_their_hashes(monkeypatch):
    names = Names.of([str(i) for i in range(500)] + ["7", "3"])
    assert names.repeated() == (500, 7)
    assert names[:500].repeated() is None
    monkeypatch.setattr("builtins.hash", lambda _: 1)
    assert names.repeated() == (500, 7)
    assert names[:500].repeated() is None


@pytest.mark.parametrize(
    "offsets", [[0, 3, 2, 4], [1, 4], [0, 3], [0, 2**63 - 1, -(2**63), -2, 4], [], [[0, 4]]], ids=str
)
def test_offsets_are_checked(offsets):
    with pytest.raises(DataError, match="offsets of names must"):
        Names(np.zeros(4, np.uint8), np.array(offsets, np.int64))
    with pytest.raises(DataError, match="offsets must"):
        RankingData(np.zeros((4, 1), np.float32), np.zeros(4, np.float32), np.array(offsets, np.int64), np.array(["q"]))


def peak(work):
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_one_long_name_costs_its_length_alone(tmp_path):
    """5,000 documents with one comment, docid, qid or value of 200 kB took 1 to 4 GB as arrays of one width."""
    lines = [f"{i % 2} qid:{i // 10} 1:{i} # docid = d{i} host = h{i % 7}\n" for i in range(5_000)]
    path = tmp_path / "long.txt"
    for long in ("docid = {} host = a", "docid = d host = {}", "{}"):
        lines[7] = f"1 qid:0 1:7 # {long.format('x' * 200_000)}\n"
        path.write_text("".join(lines))
        assert peak(lambda: read_svmlight(path, cache=tmp_path / "cache")) < 60e6
        data = read_svmlight(path, cache=tmp_path / "cache")
        assert max(len(data.comments[7]), len(data.docids[7])) >= 200_000
        assert data.docids[8] == "d8"

        def work(data=data):
            data.comment_values("host")
            data.with_groups(comment=r"^(\S*)")
            data.select(np.arange(100))
            concatenate([data.select([0]), data.select([1])])
            (data.docids == "d8").sum()

        assert peak(work) < 100e6
    lines[0] = f"1 qid:{'q' * 200_000} 1:7\n"
    path.write_text("".join(lines))
    assert peak(lambda: read_svmlight(path, cache=False)) < 60e6
    names = ["a"] * 5_000 + ["b" * 50_000]
    assert peak(lambda: RankingData.from_arrays(np.zeros((5_001, 1)), np.zeros(5_001), names, docids=names)) < 60e6
