"""The benchmark of shards: the same rows in any number of files, and the table."""

import numpy as np
import pytest

from benchmarks import shards
from rankstruct.data import read_lists


def test_the_rows_do_not_depend_on_the_number_of_shards(tmp_path):
    for number in (1, 3):
        shards.write_drawn(tmp_path / str(number), 60_000, number)
    one, three = (read_lists(tmp_path / name, cache=False) for name in ("1", "3"))
    np.testing.assert_array_equal(np.asarray(one.features), np.asarray(three.features))
    np.testing.assert_array_equal(one.labels, three.labels)


@pytest.mark.soak
def test_epochs_are_timed_in_turn(tmp_path):
    header, rows = shards.as_rows(shards.benchmark_shards(tmp_path, 5000, 2, rounds=1))
    assert [row[:2] for row in rows] == [["shards", 5000], ["file", 5000]]
    assert len(header) == len(rows[0])


@pytest.mark.soak
def test_an_epoch_is_timed_by_several_processes(tmp_path):
    header, rows = shards.as_workers(shards.benchmark_workers(tmp_path, 5000, 2, rounds=1, workers=[1, 2]))
    assert [row[:2] for row in rows] == [[1, 5000], [2, 5000]]
    assert len(header) == len(rows[0])
