import functools
import http.server
import threading
import time
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import rankstruct as rs
from rankstruct.data import BatchLoader, DataError
from rankstruct.data import shards as module
from rankstruct.data.pipeline import parse_steps
from rankstruct.data.source import digest_of
from rankstruct.training import RankingDataModule

LISTS = 120


def table(lists=range(LISTS), documents=7):
    """Lists of some documents each, of two numbers and a category, some of which are missing."""
    rng = np.random.default_rng(0)
    whole = {
        "qid": np.repeat(np.arange(LISTS), documents),
        "label": rng.integers(0, 3, LISTS * documents),
        "a": rng.normal(size=LISTS * documents).astype(np.float16),
        "b": np.where(rng.random(LISTS * documents) < 0.1, None, rng.integers(0, 9, LISTS * documents)),
        "c": np.array(["x", "y", None, "z"])[rng.integers(0, 4, LISTS * documents)],
    }
    kept = pa.table({name: pa.array(each) for name, each in whole.items()})
    return kept.filter(np.isin(whole["qid"], list(lists)))


def write(folder, number, rows=100, **options):
    """Shards of whole lists, whose row groups end within lists."""
    folder.mkdir(parents=True, exist_ok=True)
    for at, lists in enumerate(np.array_split(np.arange(LISTS), number)):
        pq.write_table(table(lists), folder / f"part-{at:02}.parquet", row_group_size=rows, **options)
    return folder


@pytest.fixture(autouse=True)
def _small(monkeypatch, tmp_path):
    monkeypatch.setattr(module, "_BLOCK", 150)
    monkeypatch.setattr(module, "_HELD", 700)
    monkeypatch.setenv("RANKSTRUCT_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def whole(tmp_path):
    pq.write_table(table(), tmp_path / "whole.parquet")
    return rs.data.read_lists(tmp_path / "whole.parquet")


def assert_same(data, other):
    np.testing.assert_array_equal(np.asarray(data.features), other.features)
    np.testing.assert_array_equal(data.labels, other.labels)
    np.testing.assert_array_equal(data.offsets, other.offsets)
    assert data.qids.tolist() == other.qids.tolist()
    assert data.columns.categories == other.columns.categories


@pytest.mark.parametrize("number", [1, 7])
def test_shards_are_the_lists_of_one_file(tmp_path, whole, number):
    folder = write(tmp_path / "train", number)
    for path in (folder, f"{folder}/part-*.parquet"):
        for _ in range(2):  # the second from the cache
            assert_same(rs.data.read_lists(path), whole)
    memory = fsspec.filesystem("memory")
    memory.put(str(folder), f"/shards{number}", recursive=True)
    data = rs.data.read_lists(f"memory://shards{number}")
    assert_same(data, whole)
    some = np.random.default_rng(0).permutation(LISTS)[:30]
    np.testing.assert_array_equal(data.select(some).features, whole.select(some).features)
    np.testing.assert_array_equal(data.features[-3:], whole.features[-3:])


@pytest.mark.parametrize("size", [{"lists_per_batch": 4}, {"documents_per_batch": 40}])
@pytest.mark.parametrize("world", [1, 3])
@pytest.mark.parametrize("shuffle", [False, True])
def test_processes_share_the_lists_and_have_as_many_batches_in_each_epoch(tmp_path, whole, size, world, shuffle):
    data = rs.data.read_lists(write(tmp_path / "train", 4))
    orders = []
    loaders = [BatchLoader(data, shuffle=shuffle, rank=rank, world_size=world, **size) for rank in range(world)]
    assert len({len(loader) for loader in loaders}) == 1
    for epoch in range(2):
        seen = []
        for loader in loaders:
            loader.set_epoch(epoch)
            batches = list(loader)
            assert len(batches) == len(loader)
            for batch in batches:
                rows = batch.positions[batch.where].numpy()
                np.testing.assert_array_equal(batch.features[batch.where], whole.features[rows])
                np.testing.assert_array_equal(batch.labels[batch.where], whole.labels[rows])
                seen += batch.index[batch.where.any(-1)].tolist()
        assert sorted(seen) == list(range(LISTS))
        orders.append(seen)
    assert (orders[0] != orders[1]) == shuffle


def test_a_loader_goes_on_at_the_next_batch(tmp_path):
    data = rs.data.read_lists(write(tmp_path / "train", 4))
    loader = BatchLoader(data, lists_per_batch=4, shuffle=True, seed=3, max_list_size=5)
    loader.set_epoch(2)
    batches = iter(loader)
    for _ in range(13):
        next(batches)
    again = BatchLoader(
        rs.data.read_lists(tmp_path / "train"), lists_per_batch=4, shuffle=True, seed=3, max_list_size=5
    )
    again.load_state_dict(loader.state_dict())
    for mine, theirs in zip(batches, again, strict=True):
        assert mine.positions.equal(theirs.positions)
        np.testing.assert_array_equal(mine.features, theirs.features)


def test_a_module_reads_and_prepares_parts_of_shards_as_files(tmp_path):
    for number, part in enumerate(("train", "vali", "test")):
        write(tmp_path / "shards" / part, number + 2)
        (tmp_path / "files").mkdir(exist_ok=True)
        pq.write_table(table(), tmp_path / "files" / f"{part}.parquet")
    ours, theirs = (
        RankingDataModule(path=str(tmp_path / kind), prepare=["quantile", "query-minmax"], seed=1)
        for kind in ("shards", "files")
    )
    assert ours.preparation.equals(theirs.preparation)
    assert ours.feature_names == theirs.feature_names
    found = {
        kind: {int(row): each for batch in data.val_dataloader() for row, each in _documents(batch)}
        for kind, data in (("ours", ours), ("theirs", theirs))
    }
    assert found["ours"].keys() == found["theirs"].keys()
    for row, features in found["ours"].items():
        np.testing.assert_array_equal(features, found["theirs"][row])
    assert set(ours.record["files"]) == {"train", "vali", "test"}


def _documents(batch):
    return zip(batch.positions[batch.where].tolist(), batch.features[batch.where].numpy(), strict=True)


def damaged(tmp_path, change):
    folder = write(tmp_path / "train", 3)
    change(folder / "part-01.parquet")
    return folder


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            lambda file: pq.write_table(table(range(39, 80)), file),
            r"part-01.parquet: expected whole lists in each file, but query '39' begins in .*part-00.parquet; .*--shards",
        ),
        (
            lambda file: pq.write_table(table([*range(40, 80), 3]), file),
            r"part-01.parquet, row 1: .* got qid:3 again, which started in .*part-00.parquet, row 22",
        ),
        (
            lambda file: pq.write_table(table(range(40, 80)).drop_columns("a"), file),
            r"part-01.parquet: expected the columns of .*part-00.parquet; it lacks 'a'; write all",
        ),
        (
            lambda file: pq.write_table(table(range(40, 80)).append_column("d", [[1.0] * 280]), file),
            r"part-01.parquet: expected the columns of .*part-00.parquet; it also has 'd'; write all",
        ),
        (
            lambda file: pq.write_table(table(range(40, 80)).set_column(2, "a", [["1"] * 280]), file),
            r"part-01.parquet: expected the columns of .*part-00.parquet; 'a' is string instead of halffloat; write all",
        ),
        (
            lambda file: pq.write_table(table(range(40, 80)).append_column("a", [[1.0] * 280]), file),
            r"part-01.parquet: expected the columns of .*part-00.parquet; it has several 'a'; write all",
        ),
        (
            lambda file: file.write_bytes(file.read_bytes()[:100] + bytes(400) + file.read_bytes()[500:]),
            r"part-01.parquet: expected a Parquet file that can be read, got: ",
        ),
        (
            lambda file: file.write_bytes(b""),
            r"part-01.parquet: expected a Parquet file that can be read, got: ArrowInvalid",
        ),
        (
            lambda file: file.write_bytes(file.read_bytes()[:-9]),
            r"part-01.parquet: expected a Parquet file that can be read",
        ),
        (
            lambda file: pq.write_table(table(range(40, 80)).set_column(1, "label", [[*[1] * 279, -1]]), file),
            r"part-01.parquet, row 280: expected a grade",
        ),
    ],
)
def test_a_shard_that_does_not_fit_is_refused_by_name(tmp_path, change, message):
    with pytest.raises(DataError, match=message):
        rs.data.read_lists(damaged(tmp_path, change))


def test_a_shard_without_rows_is_left_out(tmp_path, whole, caplog):
    folder = write(tmp_path / "train", 3)
    pq.write_table(table([]), folder / "part-00b.parquet")
    assert_same(rs.data.read_lists(folder), whole)
    assert "part-00b.parquet has no rows and is left out" in caplog.text


def test_a_shard_that_was_written_again_is_read_again(tmp_path):
    folder = write(tmp_path / "train", 3)
    data = rs.data.read_lists(folder)
    pq.write_table(table(range(40, 79)), folder / "part-01.parquet")
    with pytest.raises(DataError, match=r"part-01.parquet has changed since its rows were counted; start again"):
        np.asarray(data.features)
    assert rs.data.read_lists(folder).num_lists == LISTS - 1


def test_a_shard_of_other_rows_is_told_from_the_one_whose_labels_were_read(tmp_path):
    """As many rows, of other features: those would go with labels of others."""
    folder = write(tmp_path / "train", 3)
    data = rs.data.read_lists(folder)
    other = table(range(40, 80))
    pq.write_table(
        other.set_column(2, "a", pa.array(-other["a"].to_numpy())), folder / "part-01.parquet", row_group_size=100
    )
    with pytest.raises(DataError, match=r"part-01.parquet has changed since its rows were counted; start again"):
        np.asarray(data.features)


@pytest.mark.parametrize("place", ["{}.parquet", "{}/part.parquet"])
def test_parts_of_a_data_set_are_not_one_table(tmp_path, place):
    for at, part in enumerate(("train", "test")):
        file = tmp_path / "data" / place.format(part)
        file.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(table(range(60 * at, 60 * at + 60)), file)
    with pytest.raises(
        DataError, match="data: expected the files of one table, got the parts train, test; give one of them"
    ):
        rs.data.read_lists(tmp_path / "data")


def test_folders_named_after_columns_are_told_and_hidden_ones_above_are_not_minded(tmp_path, whole, caplog):
    folder = write(tmp_path / ".kept" / "day=1", 3)
    assert_same(rs.data.read_lists(f"{folder}/*.parquet"), whole)
    assert not caplog.text.count("left out")
    assert_same(rs.data.read_lists(folder.parent), whole)
    assert ".kept: day left out, which only the names of folders have" in caplog.text


def test_memory_is_bounded_if_few_lists_can_be_learned_from(tmp_path, monkeypatch):
    folder = tmp_path / "train"
    folder.mkdir()
    ones = table().set_column(1, "label", pa.array(np.where(np.arange(LISTS * 7) % 84 == 0, 1, 0)))  # of each 12th list
    pq.write_table(ones, folder / "part.parquet", row_group_size=100)
    loader = BatchLoader(rs.data.read_lists(folder), lists_per_batch=2, shuffle=True, drop_empty=True)
    features, held = loader.data.features, []
    hold = features.hold
    monkeypatch.setattr(features, "hold", lambda lists: (hold(lists), held.append(features._held[-1].size)))
    assert sorted(at for batch in loader for at in batch.index[batch.where.any(-1)].tolist()) == list(
        range(0, LISTS, 12)
    )
    assert max(held) <= 700 + 150 + 7 * 3


def test_labels_may_change_and_rows_may_not_be_removed(tmp_path, whole):
    data = rs.data.read_lists(write(tmp_path / "train", 3))
    np.testing.assert_array_equal(parse_steps(["binarize:2"])(data).labels, whole.labels >= 2)
    for name in ("remove-zero-rows", "remove-near-duplicates"):
        with pytest.raises(DataError, match=f"{name} cannot remove rows from shards"):
            parse_steps([name])(data)


def test_a_digest_is_that_of_the_content(tmp_path):
    folder = write(tmp_path / "train", 3)
    before = digest_of(str(folder))
    assert before == digest_of(str(write(tmp_path / "copy", 3))) != digest_of(str(write(tmp_path / "other", 2)))
    pq.write_table(table(range(40, 79)), folder / "part-01.parquet")
    assert digest_of(str(folder)) != before
    changed = table(range(40, 80))
    values = changed["a"].to_numpy().copy()
    values[5] = np.nextafter(values[5], np.float16(0))  # the sizes and the statistics stay
    before = digest_of(str(write(folder, 3)))
    pq.write_table(changed.set_column(2, "a", pa.array(values)), folder / "part-01.parquet", row_group_size=100)
    assert digest_of(str(folder)) != before


class _Store(http.server.SimpleHTTPRequestHandler):
    """A server of ranges of files, as stores are; it may fail."""

    status = 0

    def do_GET(self):
        if not (given := self.headers.get("Range")) or self.status:
            return super().do_GET()
        first, last = map(int, given.removeprefix("bytes=").split("-"))
        content = Path(self.translate_path(self.path)).read_bytes()
        self.send_response(206)
        self.send_header("Content-Length", str(len(content[first : last + 1])))
        self.send_header("Content-Range", f"bytes {first}-{min(last, len(content) - 1)}/{len(content)}")
        self.end_headers()
        return self.wfile.write(content[first : last + 1])

    def send_head(self):
        return self.send_error(self.status) if self.status else super().send_head()

    def log_message(self, *args):
        pass


def test_a_store_that_fails_is_told_at_once(tmp_path, whole, monkeypatch):
    write(tmp_path / "train", 3)
    with http.server.ThreadingHTTPServer(
        ("127.0.0.1", 0), functools.partial(_Store, directory=str(tmp_path))
    ) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}"
        data = rs.data.read_lists(f"{url}/train/")
        assert_same(data, whole)
        start = time.monotonic()
        with pytest.raises(DataError, match=r"127.0.0.1:\d+/tran: expected a place with Parquet files, got: .*404"):
            rs.data.read_lists(f"{url}/tran/")
        monkeypatch.setattr(_Store, "status", 503)
        with pytest.raises(DataError, match=r"/train: expected a place with Parquet files, got: .*503"):
            rs.data.read_lists(f"{url}/train/")
        with pytest.raises(
            DataError, match=r"train/part-00.parquet: expected a Parquet file that can be read, got: .*503"
        ):
            np.asarray(data.features)
        assert time.monotonic() - start < 10
        server.shutdown()
    with pytest.raises(DataError, match=r"^file:///nowhere/gone: expected a place with Parquet files, got"):
        rs.data.read_lists("file:///nowhere/gone")
    with pytest.raises(DataError, match=r"memory://gone: expected a place with Parquet files, got: FileNotFoundError"):
        rs.data.read_lists("memory://gone")
    with pytest.raises(DataError, match=r"nowhere://gone: expected a place with Parquet files, got: .*nowhere"):
        rs.data.read_lists("nowhere://gone")


@pytest.mark.skipif(not Path("/proc/self/smaps").exists(), reason="of Linux")
@pytest.mark.parametrize("mode", ["r", "c"])
def test_used_labels_leave_memory_and_a_mapped_copy_keeps_its_changes(tmp_path, mode):
    np.zeros(2**20, np.float32).tofile(tmp_path / "labels")
    labels = np.memmap(tmp_path / "labels", np.float32, mode=mode)
    if mode == "c":
        labels[5] = 1
    data = rs.data.RankingData(np.zeros((2**20, 1), np.float32), labels, np.arange(0, 2**20 + 1, 16), range(2**16))
    assert np.flatnonzero(~data.same_labels()).tolist() == [0] * (mode == "c")
    if mode == "r":
        lines = Path("/proc/self/smaps").read_text().split(str(tmp_path / "labels"))[1].splitlines()
        assert int(next(line for line in lines if line.startswith("Rss:")).split()[1]) < 1024


def test_an_estimator_refuses_shards_larger_than_memory(tmp_path, monkeypatch):
    data = rs.data.read_lists(write(tmp_path / "train", 2))
    monkeypatch.setattr("os.sysconf", {"SC_PHYS_PAGES": 1, "SC_PAGE_SIZE": 8 * 3 * len(data.labels) - 1}.get)
    with pytest.raises(MemoryError, match=r"X has shards of 840 documents.*rankstruct fit.*X\.select\(lists\)"):
        rs.LinearRanker().fit(data)


@pytest.mark.parametrize(
    "options",
    [
        {"prepare": ["quantile"], "seeds": 2},
        {"prepare": ["append-piecewise"], "noise": 0.1, "drop_empty": False},
        {"prepare": ["query-minmax"], "context": "mean", "validation_share": 0},
    ],
)
def test_a_network_learns_from_shards_what_it_learns_in_memory(tmp_path, monkeypatch, whole, options):
    monkeypatch.setattr(module, "_BLOCK", 10**6)
    monkeypatch.setattr(module, "_HELD", 10**6)  # one window, so that lists come in the same order
    data = rs.data.read_lists(write(tmp_path / "train", 4))
    weights = np.random.default_rng(0).random(LISTS)
    ours, theirs = (
        rs.MLPRanker(max_epochs=3, device="cpu", **options).fit(lists, sample_weight=weights) for lists in (data, whole)
    )
    assert ours.history_ == theirs.history_
    assert ours.preparation_.equals(theirs.preparation_)
    np.testing.assert_array_equal(ours.predict(whole), theirs.predict(whole))


def test_a_network_holds_one_window_of_training_and_of_validation_lists(tmp_path, monkeypatch):
    data = rs.data.read_lists(write(tmp_path / "train", 4))
    shuffled = table().select(["qid", "label", "c", "b", "a"])  # other columns first
    pq.write_table(shuffled, tmp_path / "valid.parquet", row_group_size=100)
    (tmp_path / "valid").mkdir()
    (tmp_path / "valid.parquet").rename(tmp_path / "valid/0.parquet")
    held = []

    def hold(features, lists, own=module.ShardedFeatures.hold):
        own(features, lists)
        held.append(features._held[3].shape)

    monkeypatch.setattr(module.ShardedFeatures, "hold", hold)
    monkeypatch.setattr(module.ShardedFeatures, "__array__", None)
    alone, both = (rs.MLPRanker(max_epochs=2, device="cpu", prepare=["quantile"], seeds=seeds) for seeds in (1, 2))
    valid = rs.data.read_lists(tmp_path / "valid")
    alone.fit(data, X_valid=valid)
    assert max(rows * width for rows, width in held) <= 700 + 2 * 150 * held[0][1] / 3
    assert len(held) > 2 * 2 * 5
    np.testing.assert_allclose(alone.predict(data), alone.predict(data.select(np.arange(LISTS))), rtol=1e-12)
    both.fit(data, X_valid=valid)
    np.testing.assert_allclose(alone.history_[0][1]["loss"], both.history_[0][1]["loss"], rtol=1e-5)
    best, value = alone.best_epochs_[0], alone.score(rs.data.read_lists(tmp_path / "valid/0.parquet"))
    np.testing.assert_allclose(alone.history_[0][best - 1]["validation"], value, rtol=1e-5)


def test_a_network_refuses_missing_numbers_that_only_shards_of_validation_have(tmp_path):
    data = rs.data.read_lists(write(tmp_path / "train", 2))
    full = rs.data.RankingData(np.ones((4, 3), np.float32), np.float32([0, 1, 1, 0]), np.array([0, 2, 4]), range(2))
    with pytest.raises(ValueError, match="missing values, in the columns 1, 2"):
        rs.MLPRanker(max_epochs=1, prepare=(), device="cpu").fit(full, X_valid=data.with_features(data.features))
    with pytest.raises(ValueError, match="no list can be learned from: in each of 120"):
        rs.MLPRanker(validation_share=0, device="cpu").fit(data, np.ones(840))
