"""Ctrl-C while a model is trained: what is written stays whole, what is closed is closed, a second one is answered at once."""

import json
import signal
import threading

import pytest
import torch
from programs import run_in
from pytorch_lightning import Callback
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from rankstruct.cli import main as command
from rankstruct.commands.fit import main
from rankstruct.training import Board, TrainingBoard, callbacks

pytestmark = pytest.mark.usefixtures("no_pictures_here")

FIT = [
    "fit", "--model.scorer", "LinearScorer", "--data.builtin", "synthetic", "--trainer.enable_progress_bar", "false",
    "--trainer.max_epochs", "3",
]  # fmt: skip


def _press(times=1):
    for _ in range(times):
        signal.raise_signal(signal.SIGINT)


@pytest.fixture(autouse=True)
def answer(monkeypatch):
    """What answers Ctrl-C outside a run."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield signal.default_int_handler
    signal.signal(signal.SIGINT, before)


def _interrupted_in(monkeypatch, owner, name, times=1, at=1):
    """Let Ctrl-C come within the `at`-th call of a function."""
    usual, calls = getattr(owner, name), []

    def call(*given, **options):
        calls.append(name)
        if len(calls) == at:
            _press(times)
        return usual(*given, **options)

    monkeypatch.setattr(owner, name, call)


def test_a_checkpoint_that_is_being_written_is_finished(tmp_path, monkeypatch, capfd, answer):
    main([*FIT, "--output", str(tmp_path / "whole")])
    with monkeypatch.context() as patch:
        _interrupted_in(patch, callbacks.torch, "save")
        with pytest.raises(KeyboardInterrupt):
            main([*FIT, "--output", str(tmp_path / "stopped")])
    said = capfd.readouterr()
    assert "stopping before the next batch; press Ctrl-C again to stop immediately" in said.err
    run, whole = run_in(tmp_path / "stopped"), run_in(tmp_path / "whole")
    assert f"to resume: rankstruct fit --run {run}" in said.out
    last = torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)
    assert last["epoch"] == 0
    assert not list(run.glob("checkpoints/*tmp*"))
    assert signal.getsignal(signal.SIGINT) is answer
    main(["fit", "--run", str(run)])
    assert json.loads((run / "metrics.json").read_text()) == json.loads((whole / "metrics.json").read_text())


class _Interrupted(threading.Condition):
    """Ctrl-C comes when the lock was just taken, once."""

    pressed = False

    def __enter__(self):
        entered = super().__enter__()
        if not self.pressed:
            self.pressed = True
            _press()
        return entered


def test_tensorboard_is_closed_with_all_that_was_logged(tmp_path, monkeypatch):
    usual = Board.log_metrics

    def log(self, metrics, step=None):
        if "optimisation/objective" in metrics:
            queue = self.experiment._get_file_writer().event_writer._async_writer._byte_queue
            queue.not_full = _Interrupted(queue.mutex)
        usual(self, metrics, step)

    monkeypatch.setattr(Board, "log_metrics", log)
    with pytest.raises(KeyboardInterrupt):
        main([*FIT, "--output", str(tmp_path)])
    log = EventAccumulator(str(run_in(tmp_path))).Reload()
    assert len(log.Scalars("optimisation/objective")) == 1
    assert len(log.Scalars("optimisation/objective_over_zero")) == 1


def test_the_second_one_does_not_wait_for_a_batch(tmp_path, monkeypatch):
    _interrupted_in(monkeypatch, TrainingBoard, "on_validation_epoch_end", times=2)
    _interrupted_in(monkeypatch, callbacks.torch, "save", times=0)
    with pytest.raises(KeyboardInterrupt):
        main([*FIT, "--output", str(tmp_path)])
    assert not (run_in(tmp_path) / "checkpoints" / "last.ckpt").exists()


@pytest.mark.parametrize("hook", ["on_train_epoch_end", "on_fit_end"])
def test_after_the_last_batch_nothing_more_is_done(tmp_path, monkeypatch, hook):
    _interrupted_in(monkeypatch, callbacks.ResumeHint, hook, at=3 if hook == "on_train_epoch_end" else 1)
    assert command([*FIT, "--output", str(tmp_path)]) == 130
    assert torch.load(run_in(tmp_path) / "checkpoints" / "last.ckpt", weights_only=True)["epoch"] == 2
    assert not (run_in(tmp_path) / "metrics.json").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("stage", ["test", "predict"])
def test_other_stages_stop_too(tmp_path, monkeypatch, stage, answer):
    main([*FIT, "--output", str(tmp_path)])
    assert signal.getsignal(signal.SIGINT) is answer
    _interrupted_in(monkeypatch, Callback, f"on_{stage}_epoch_start")
    with pytest.raises(KeyboardInterrupt):
        main([stage, "--run", str(run_in(tmp_path))])


def test_after_an_error_ctrl_c_is_answered_as_before(tmp_path, monkeypatch, answer):
    def fail(*given):
        raise ValueError("no such thing")

    monkeypatch.setattr(TrainingBoard, "on_validation_epoch_end", fail)
    with pytest.raises(ValueError, match="no such thing"):
        main([*FIT, "--output", str(tmp_path)])
    assert signal.getsignal(signal.SIGINT) is answer


def test_where_ctrl_c_is_not_heard_it_stays_unheard(tmp_path):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    main([*FIT, "--output", str(tmp_path)])
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN


def test_a_thread_that_may_not_answer_ctrl_c_trains(tmp_path, answer):
    failed = []

    def run():
        try:
            main([*FIT, "--output", str(tmp_path)])
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert not failed
    assert (run_in(tmp_path) / "metrics.json").is_file()
    assert signal.getsignal(signal.SIGINT) is answer


@pytest.mark.parametrize(("processes", "status"), [(2, 130), (1, None)])
def test_one_of_several_processes_that_lost_another_was_stopped_too(tmp_path, monkeypatch, processes, status):
    """What waits for another process gets a RuntimeError when Ctrl-C ended that one first."""

    def lose(self, trainer, *given):
        monkeypatch.setattr(type(trainer), "world_size", processes)
        _press()
        raise RuntimeError("connection closed by peer")

    monkeypatch.setattr(TrainingBoard, "on_validation_epoch_end", lose)
    if status is None:
        with pytest.raises(RuntimeError, match="connection closed"):
            command([*FIT, "--output", str(tmp_path)])
    else:
        assert command([*FIT, "--output", str(tmp_path)]) == status


def test_torch_that_was_interrupted_as_it_wrote_is_no_error_of_its_own(monkeypatch, capsys):
    def work(args):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt:
            raise RuntimeError("unexpected pos 64 vs 0")  # noqa: B904

    monkeypatch.setattr("rankstruct.commands.fit.main", work)
    assert command(["fit", "--config", "quickstart"]) == 130
    assert "stopped" in capsys.readouterr().err
