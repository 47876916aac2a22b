"""One description of a source of lists: what it reads, what it refuses before reading, and formats from outside."""

import gzip
import json
import pickle
from dataclasses import asdict, replace

import numpy as np
import pytest

from rankstruct.data import DataError, RankingData, Source, concatenate, read_lists, register_format
from rankstruct.data.dataset import FORMATS
from rankstruct.data.pipeline import parse_steps


def write_folds(root, folds=(1, 2)):
    for fold in folds:
        folder = root / f"Fold{fold}"
        folder.mkdir(parents=True)
        for at, name in enumerate(("train", "vali", "test")):
            lines = [
                f"{d % 2} qid:{10 * at + q} 1:{d} 2:{fold} # host = h{d % 2}\n" for q in range(1, 5) for d in range(3)
            ]
            (folder / f"{name}.txt").write_text("".join(lines))
    return str(root)


def test_reads_groups_and_preparation_under_every_protocol(tmp_path):
    path = write_folds(tmp_path)
    whole = concatenate(Source(path, 1, cache=False).read())
    for protocol, fold in (("folds", 2), ("cross-validation", 3)):
        source = Source(
            path,
            fold,
            protocol=protocol,
            parts=4,
            diversity_groups=r"host = (\S+)",
            prepare=["query-minmax"],
        )
        raw, parts = source.read_raw(), source.read()
        assert sorted(concatenate(parts).qids) == sorted(whole.qids)
        for part in parts:
            assert np.array_equal(part.diversity_groups, np.tile([0, 1, 0], part.num_lists))
            assert part.features.max() <= 1
        assert raw.train.features.max() == 2
        again, _ = source.prepare_splits(raw, ["remove-zero-rows"])
        assert again.test.num_documents < parts.test.num_documents
    file = str(tmp_path / "Fold1" / "train.txt")
    assert sum(p.num_lists for p in Source(file, 1, protocol="cross-validation", parts=3, cache=False).read()) == 4


def test_describes_itself(tmp_path):
    source = Source(write_folds(tmp_path), 1, prepare=["log"], cache=False)
    assert hash(source) == hash(Source(str(tmp_path), 1, prepare=("log",), cache=False))
    assert pickle.loads(pickle.dumps(source)) == source
    assert Source(**json.loads(json.dumps(asdict(source)))) == source
    assert source.with_fold(2).read_raw().train.features[0, 1] == 2
    assert Source(builtin="synthetic").with_fold(3) == Source(builtin="synthetic", seed=3)
    train = Source(builtin="synthetic", seed=3).read().train
    assert np.array_equal(Source(builtin="synthetic", seed=3).read().train.features, train.features)


def test_digest_is_of_the_content(tmp_path):
    first, second = (Source(write_folds(tmp_path / name), 1, cache=False) for name in "ab")
    assert first.digest() == second.digest() != ""
    assert first.with_fold(2).digest() == first.digest()
    assert Source(builtin="digits").digest() == ""
    other = tmp_path / "c"
    write_folds(other)
    (other / "Fold2" / "vali.txt").write_text("1 qid:1 1:1\n")
    assert Source(str(other), 1).digest() != first.digest()


def test_digest_of_now_sees_what_changed_meanwhile_and_side_files(tmp_path):
    lists = tmp_path / "lists.txt"
    lists.write_text("1 1:1\n0 1:2\n")
    source, seen = Source(str(lists), 1, protocol="cross-validation"), set()
    for side in ("1 1\n", "2\n"):
        (tmp_path / "lists.txt.query").write_text(side)
        seen.add(source.digest(now=True))
    lists.write_text("0 1:1\n1 1:2\n")
    assert len({*seen, source.digest(now=True)}) == 3
    assert source.digest() == source.digest(now=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": None}, "give either data.path"),
        ({"builtin": "digits"}, "give either data.path"),
        ({"path": None, "builtin": "letters"}, "data.builtin must be one of 'digits"),
        ({"path": None, "builtin": "digits", "protocol": "cross-validation"}, "requires data.path"),
        ({"fold": 3}, "Fold3: expected a folder"),
        ({"fold": None}, "give fold"),
        ({"path": "/nowhere"}, "/nowhere: no such file or folder"),
        ({"protocol": "split"}, "protocol must be one of 'folds'"),
        ({"protocol": "cross-validation", "fold": None}, "requires data.fold"),
        ({"protocol": "cross-validation", "fold": 6}, "from 1 to data.parts = 5"),
        ({"labels": "stars"}, "labels must be one of"),
        ({"diversity_groups": "(host"}, "regular expression"),
        ({"prepare": ["logs"]}, "unknown preparation step 'logs'"),
    ],
)
def test_says_at_once_what_cannot_be_read(options, message, tmp_path):
    source = replace(Source(write_folds(tmp_path), 1, cache=False), **options)
    for method in (source.check, source.read):
        with pytest.raises(ValueError, match=message) as caught:
            method()
        assert "\n" not in str(caught.value)


@pytest.fixture
def comma_format(monkeypatch):
    """A format of one's own: `label;query;feature feature ...` a line."""
    monkeypatch.setitem(FORMATS, ".semi", None)
    del FORMATS[".semi"]  # and again after the test

    @register_format(".semi")
    def read(path, num_features=None, **_):
        rows = [line.split(";") for line in path.read_text().splitlines()]
        features = np.array([row[2].split() for row in rows], float)
        features = np.pad(features, ((0, 0), (0, max(0, (num_features or 0) - features.shape[1]))))
        return RankingData.from_arrays(features, [float(row[0]) for row in rows], [row[1] for row in rows])


def test_a_new_format_serves_every_command(tmp_path, comma_format):
    from rankstruct.commands.evaluate import evaluate_scores
    from rankstruct.training import RankingDataModule

    lines = [f"{d % 2};q{q};{d} {q}\n" for q in range(4) for d in range(3)]
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.semi").write_text("".join(lines))
    (tmp_path / "new.semi").write_text("0;a;1\n1;a;2\n")
    data = RankingDataModule(str(tmp_path), predict_path=str(tmp_path / "new.semi"))
    assert sum(len(batch.labels) for batch in data.train_dataloader()) == 4
    assert data.predict_data.features.tolist() == [[1, 0], [2, 0]]
    (tmp_path / "scores").write_text("1\n2\n")
    assert evaluate_scores(tmp_path / "scores", tmp_path / "new.semi", ["RR"]).means() == {"RR": 1.0}
    with pytest.raises(ValueError, match=r"differ from .*\.semi"):
        register_format(".semi")


def test_suffixes_choose_the_reader(tmp_path):
    (tmp_path / "a.train").write_text("1 qid:1 1:1\n")  # no suffix that is known: lines of SVMlight
    assert read_lists(tmp_path / "a.train", cache=False).num_lists == 1
    for name in ("train", "vali", "test"):
        (tmp_path / f"{name}.svm.gz").write_bytes(gzip.compress(b"1 qid:1 1:1\n"))
    assert Source(str(tmp_path), cache=False).read().test.num_documents == 1


def test_what_earlier_runs_wrote_is_read():
    assert Source(builtin="synthetic-hosts") == Source(builtin="synthetic-groups")
    assert parse_steps(["unlabelled-as-bad"]).steps == parse_steps(["unlabelled-as-irrelevant"]).steps


def test_feature_ids_from_zero_in_all_parts_or_none(tmp_path):
    for part, text in (
        ("train", "1 qid:1 0:5 1:6\n0 qid:1 1:7\n"),
        ("vali", "1 qid:2 1:8\n"),
        ("test", "1 qid:3 2:9\n"),
    ):
        (tmp_path / f"{part}.txt").write_text(text)
    with pytest.raises(DataError, match=r"train.txt:1: expected feature ids from 1, got '0:5'; zero_based=True"):
        Source(str(tmp_path)).read()
    parts = Source(str(tmp_path), zero_based=True).read()
    dense = [part.features.toarray() if part.is_sparse else part.features for part in parts]
    assert [each.tolist() for each in dense] == [[[5, 6, 0], [0, 7, 0]], [[0, 8, 0]], [[0, 0, 9]]]
    assert Source(str(tmp_path), zero_based=True, cache=False).read().vali.num_features == 3
