"""The official fold layout, and the parts of cross-validation."""

import numpy as np
import pytest

from rankstruct.data import DataError, read_folds
from rankstruct.data.folds import cross_validation_parts, read_alike

LINE = "1 qid:1 1:1 2:1\n"


def make(folder, names=("train", "vali", "test")):
    folder.mkdir(parents=True)
    for name in names:
        (folder / f"{name}.txt").write_text(LINE)


def test_both_layouts(tmp_path):
    make(tmp_path / "Fold2")
    (tmp_path / "Fold2" / "vali.txt").write_text("0 qid:9 1:1\n")
    (tmp_path / "Fold2" / "test.txt").write_text("0 qid:5 1:1 3:2\n")
    for splits in (read_folds(tmp_path, 2, cache=False), read_folds(tmp_path / "Fold2", cache=False)):
        assert [part.qids.tolist() for part in splits] == [["1"], ["9"], ["5"]]
        assert [part.num_features for part in splits] == [3, 3, 3]
    assert read_folds(str(tmp_path), 2, cache=False, num_features=5).test.num_features == 5


def test_missing_parts_say_what_is_there(tmp_path):
    make(tmp_path / "Fold1", ("train", "test"))
    with pytest.raises(
        DataError, match=r"Fold1: expected train.txt, vali.txt, test.txt, got no vali.txt; .*has test.txt, tr"
    ):
        read_folds(tmp_path, 1)
    with pytest.raises(DataError, match=r"Fold3: expected a folder .* has Fold1"):
        read_folds(tmp_path, 3)
    with pytest.raises(DataError, match=r"got no train.txt; .* has Fold1; give fold"):
        read_folds(tmp_path)
    with pytest.raises(DataError, match="does not exist either"):
        read_folds(tmp_path / "nowhere", 1)


def test_real_folds(data_root):
    splits = read_folds(data_root / "letor" / "MQ2008", 1, cache=False)
    assert sum(part.num_lists for part in splits) == 784
    assert sum(part.num_documents for part in splits) == 15211
    assert sum(part.summary().nothing_relevant for part in splits) == 220


def test_names_of_features_are_those_of_tables_alone_whatever_their_other_columns_are_called(tmp_path):
    (tmp_path / "a.train").write_text("1 qid:1 1:1\n")  # no suffix that is known: lines of SVMlight
    (tmp_path / "b.train").write_text("1 qid:1 2:1\n")
    first, second = read_alike([tmp_path / "a.train", tmp_path / "b.train"], cache=False)
    assert first.num_features == second.num_features == 2
    (tmp_path / "a.csv").write_text("qid,grade,x,y\n1,0,2,3\n")
    (tmp_path / "b.csv").write_text("qid,y,grade,x\n1,3,1,2\n")
    parts = read_alike([tmp_path / "a.csv", tmp_path / "b.csv"], label="grade", cache=False)
    assert [part.features.tolist() for part in parts] == [[[2.0, 3.0]]] * 2
    assert [part.labels.tolist() for part in parts] == [[0.0], [1.0]]


def test_cross_validation_tests_everything_once():
    folds = [cross_validation_parts(23, fold, 5) for fold in range(1, 6)]
    for at in (1, 2):
        assert sorted(np.concatenate([parts[at] for parts in folds])) == list(range(23))
    for parts in folds:
        assert sorted(np.concatenate(parts)) == list(range(23))
    with pytest.raises(ValueError, match="from 1 to 5"):
        cross_validation_parts(10, 6, 5)
