"""TensorBoard's log on a full disk: one error in the thread that trains, none in the thread that writes."""

import errno
import os
import threading

import pytest

from rankstruct.training.board import Board, _lasting


def test_a_full_disk_is_an_error_of_the_next_call_and_not_of_a_thread(tmp_path, monkeypatch):
    raised = []
    monkeypatch.setattr(threading, "excepthook", raised.append)
    board = Board(tmp_path / "run", "AP", "hinge")
    board.log_metrics({"train/AP": 0.5}, 0)
    board.save()

    def full(*_):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    records = board._writers["train"]._get_file_writer().event_writer._async_writer._writer
    monkeypatch.setattr(records._writer._file, "write", full)
    board.log_metrics({"train/AP": 0.6}, 1)
    with pytest.raises(OSError, match="No space left on device"):
        board.save()
    with pytest.raises(OSError, match="No space left on device"):
        board.log_metrics({"train/AP": 0.7}, 2)
    board.finalize("failed")
    assert _lasting(board.experiment) is board.experiment  # of another file
    assert raised == []
