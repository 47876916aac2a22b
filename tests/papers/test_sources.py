"""How the papers' sets are divided: balanced use of lists, queries of classes, shuffled documents."""

import numpy as np
import pytest

from papers.sources import PaperSource, shuffle_documents, trial_parts
from rankstruct.data import RankingData, concatenate


def test_trials_use_every_query_alike():
    counts = np.zeros(50)
    for trial in range(1, 14):
        parts = trial_parts(50, trial, (10, 5, 35))
        assert sorted(np.concatenate(parts)) == list(range(50))
        counts[parts[0]] += 1
        assert np.ptp(counts) <= 1


def test_reads_lists_and_classes(tmp_path):
    (tmp_path / "Fold1").mkdir()
    for at, name in enumerate(("train", "vali", "test")):
        lines = [f"{d % 2} qid:{10 * at + q} 1:{10 * at + q} 2:{d}\n" for q in range(1, 8) for d in range(3)]
        (tmp_path / "Fold1" / f"{name}.txt").write_text("".join(lines))
    for protocol, folds in (("cross-validation", 7), ("trials", 7)):
        parts = PaperSource(str(tmp_path), 2, protocol=protocol, parts=folds, sizes=(4, 3, 14), cache=False).read()
        pool = concatenate(parts)
        assert isinstance(pool, RankingData)
        assert pool.num_lists == 21
    rng = np.random.default_rng(0)
    rows = "".join(f"{rng.random():.9f},{'a' if i % 5 else 'b'}\n" for i in range(60))
    (tmp_path / "x.arff").write_text(f"@relation x\n@attribute v real\n@attribute k {{a,b}}\n@data\n{rows}")
    parts = PaperSource(str(tmp_path / "x.arff"), 1, protocol="cross-validation", queries=4, documents=8).read()
    assert [part.lengths.tolist() for part in parts] == [[8] * 4] * 3
    assert 0 < concatenate([parts.train]).labels.mean() < 0.5  # the rarest class
    seen = [set(part.docids) for part in parts]
    assert len(seen[0] | seen[1] | seen[2]) == sum(map(len, seen))
    assert parts.train.features.min() >= 0
    assert parts.train.features.max() <= 1


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: trial_parts(10, 1, (5, 5, 5)), "at most 10"),
        (lambda: PaperSource("x", 1, protocol="split").read(), "protocol must be one of"),
        (lambda: PaperSource("x.arff", 1).read(), "cross-validation"),
    ],
)
def test_wrong_requests_are_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_shuffling_keeps_lists_and_rows_together():
    rng = np.random.default_rng(0)
    qid = np.repeat(np.arange(40), rng.integers(1, 9, 40))
    data = RankingData.from_arrays(
        rng.random((len(qid), 4)), rng.integers(0, 3, len(qid)), qid, docids=np.arange(len(qid))
    )
    found = shuffle_documents(data, seed=1)
    np.testing.assert_array_equal(found.offsets, data.offsets)
    rows = found.docids.astype(int)
    assert (rows != np.arange(data.num_documents)).any()
    for start, stop in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        assert sorted(rows[start:stop]) == list(range(start, stop))
    np.testing.assert_array_equal(found.features, data.features[rows])
    np.testing.assert_array_equal(found.labels, data.labels[rows])
