"""Training end to end: the quickstart, resuming after a kill, the files of a run, errors."""

import contextlib
import dataclasses
import io
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from programs import assert_a_killed_fit_resumes_to_the_same_bits, assert_the_same_end, awaited_checkpoint, run_in
from pytorch_lightning.demos.boring_classes import BoringModel
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams.plugin_data_pb2 import HParamsPluginData

import rankstruct as rs
from rankstruct.commands.fit import _claim_folder, _options_of, main
from rankstruct.data import RankingData, read_run, read_scores
from rankstruct.training import AverageWeights, Board, RankingDataModule, RankingModule, TrainingBoard
from rankstruct.training.board import log_test_lists
from rankstruct.training.callbacks import LastCheckpoint

pytestmark = pytest.mark.usefixtures("no_pictures")  # those of `quickstart`, a fixture of the module, are rendered

ROOT = Path(__file__).parents[2]
QUICKSTART = ["fit", "--config", str(ROOT / "configs" / "quickstart.yaml")]
LOSS = "loss/AP StructuredHingeLoss"
SMALL = ["--data.builtin", "synthetic", "--trainer.enable_progress_bar", "false"]


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        main([*QUICKSTART, "--output", str(folder)])
    return run_in(folder), out.getvalue()


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_quickstart_prints_its_measures_and_where_things_are(quickstart):
    folder, printed = quickstart
    report = json.loads((folder / "metrics.json").read_text())
    assert report["test"]["AP"] >= 0.75
    assert re.search(rf"^AP +{report['test']['AP']:.4f}$", printed, re.MULTILINE)
    assert f"TensorBoard log: {folder}" in printed
    assert f"best checkpoint: {folder / 'checkpoints' / 'best.ckpt'}" in printed
    assert (folder / "checkpoints" / "best.ckpt").is_file()
    assert (folder / "checkpoints" / "last.ckpt").is_file()


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_a_log_has_a_line_an_epoch(quickstart):
    folder, printed = quickstart
    epochs = torch.load(folder / "checkpoints" / "last.ckpt")["epoch"] + 1
    lines = [line for line in printed.splitlines() if line.startswith("epoch ")]
    assert len(lines) == epochs
    value = r"\d\.\d{4}"
    for number, line in enumerate(lines):
        assert re.fullmatch(rf"epoch {number}: loss {value}, val/AP {value}, val/nDCG@10 {value} \(\d+\.\d s\)", line)
    assert "\r" not in printed
    assert len(printed) < 10_000


@pytest.mark.parametrize(("terminal", "option"), [(True, []), (True, ["--trainer.enable_progress_bar", "false"])])
def test_a_terminal_has_a_bar_unless_it_is_not_wanted(terminal, option, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rankstruct.commands.fit.shows_bars", lambda *files: terminal)
    given = ["fit", "--data.builtin", "synthetic", "--model.scorer", "LinearScorer", "--trainer.max_epochs", "1"]
    main([*given, "--output", str(tmp_path), *option])
    printed = capsys.readouterr()
    assert ("epoch 0: loss" in printed.err) == bool(option)
    assert ("Epoch 0: 100%" in printed.out) == (not option)


def events_of(folder):
    return EventAccumulator(str(folder), {"tensors": 0, "scalars": 0}).Reload()


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_tensorboard_opens_on_the_curves(quickstart):
    folder, _ = quickstart
    report = json.loads((folder / "metrics.json").read_text())
    epochs = torch.load(folder / "checkpoints" / "last.ckpt")["epoch"] + 1
    runs = {name: events_of(folder / name) for name in (".", "train", "val", "best", "test")}
    tags = {name: run.Tags()["scalars"] for name, run in runs.items()}
    assert sorted(tags["train"]) == ["curves/AP", LOSS]
    assert sorted(tags["val"]) == ["curves/AP", LOSS, "measures/AUC", "measures/RR@10", "measures/nDCG@10"]
    for part in ("train", "val"):
        assert {len(runs[part].Scalars(tag)) for tag in tags[part]} == {epochs}
    names = ["AP StructuredHingeLoss", "objective", "objective_over_zero", "squared_norm", "learning_rate"]
    assert sorted(tags["."]) == sorted(f"optimisation/{name}" for name in names)  # no ramp of epochs, nothing final
    assert min(len(runs["."].Scalars(tag)) for tag in tags["."]) >= epochs
    over_zero = [event.value for event in runs["."].Scalars("optimisation/objective_over_zero")]
    assert over_zero[-1] < 0.7
    assert over_zero[-1] < over_zero[0]
    (best,), (test,) = runs["best"].Scalars("curves/AP"), runs["test"].Scalars("curves/AP")
    assert best.step == test.step == report["best"]["step"]
    assert (best.value, test.value) == pytest.approx((report["best"]["validation"], report["test"]["AP"]), abs=1e-6)
    assert any(event.step == best.step + 1 or event.value == best.value for event in runs["val"].Scalars("curves/AP"))


def test_the_table_of_runs_has_what_was_chosen_and_what_came_out(quickstart):
    content = events_of(quickstart[0]).PluginTagToContent("hparams")
    about = HParamsPluginData.FromString(content["_hparams_/experiment"]).experiment
    places = {info.display_name: (info.name.group, info.name.tag) for info in about.metric_infos}
    assert places["best AP"] == ("best", "curves/AP")
    assert places["test RR@10"] == ("test", "measures/RR@10")
    for group, tag in places.values():
        assert tag in events_of(quickstart[0] / group).Tags()["scalars"]
    start = HParamsPluginData.FromString(content["_hparams_/session_start_info"]).session_start_info.hparams
    assert start["loss"].string_value == "AP StructuredHingeLoss"
    assert (start["loss.feature_map"].string_value, start["loss.reference"].string_value) == ("pairwise", "ideal")
    assert start["learning_rate"].number_value == 0.01
    assert start["regularization"].number_value == 1e-3


def test_a_combined_loss_has_its_parts_in_the_table():
    parts = [rs.StructuredHingeLoss("AP"), rs.SquaredLoss()]
    found = _options_of(rs.CombinedLoss(parts, weights=[1.0, 0.5]))
    assert found == {
        "loss": "CombinedLoss",
        "loss.weights": "[1.0, 0.5]",
        "loss.slack": "separate",
        "loss.parts": f"{rs.CombinedLoss(parts).losses[0]}, {rs.CombinedLoss(parts).losses[1]}",
    }
    assert _options_of(torch.nn.MSELoss()) == {"loss": "MSELoss"}


def text_of(events, tag):
    return events.Tensors(f"{tag}/text_summary")[0].tensor_proto.string_val[0].decode()


def test_config_result_and_lists_are_text_and_figures(quickstart):
    folder, _ = quickstart
    events = events_of(folder)
    report = json.loads((folder / "metrics.json").read_text())
    config = text_of(events, "config")
    assert "regularization: 0.001" in config
    assert "early_stopping" not in config  # all of it is as it is without saying
    assert f"{report['test']['AP']:.4f}" in text_of(events, "result")
    assert sorted(events.Tags()["images"]) == ["test/AP by list", "test/score by grade", "val/nDCG at 1 to 10"]
    assert events.Tags()["histograms"] == ["val/scores"]
    test = RankingDataModule(builtin="digits").splits.test
    scores = rs.load_scorer(folder)(torch.tensor(test.features)).detach()
    (values,) = rs.evaluate(scores, test.labels, ["AP"], offsets=test.offsets).values()
    for title, at in ("worst", values.argmin()), ("best", values.argmax()):
        first = text_of(events, f"test/{title} lists").splitlines()[2]
        assert f"{float(values[at]):.4f}" in first
        assert f" {test.lengths[at]} " in first


class Kept:
    """What is written, in place of TensorBoard."""

    def __init__(self):
        self.texts, self.figures = {}, {}

    def add_text(self, tag, text):
        self.texts[tag] = [line.split("|")[1].strip() for line in text.splitlines()[2:]]

    def add_figure(self, tag, figure):
        self.figures[tag] = figure.axes[0]


def test_lists_without_a_measure_are_neither_worst_nor_best():
    qid = np.repeat(["a", "b", "c", "none"], 3)
    labels = [1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0]
    data = RankingData.from_arrays(np.zeros((12, 1)), labels, qid)
    kept = Kept()
    log_test_lists(kept, data, torch.tensor([3.0, 2, 1] * 4), rs.RR())
    assert kept.texts == {"test/worst lists": ["c", "b"], "test/best lists": ["a"]}
    bars = [bar.get_height() for bar in kept.figures["test/RR by list"].patches]
    assert sum(bars) == 3
    ticks = [tick.get_text() for tick in kept.figures["test/score by grade"].get_xticklabels()]
    assert ticks == ["0\n9", "1\n2", "2\n1"]
    kept = Kept()
    log_test_lists(kept, data.select(np.array([3])), torch.zeros(3), rs.RR())
    assert kept.figures == {}


def test_many_labels_are_put_into_ranges():
    labels = np.arange(30)
    data = RankingData.from_arrays(np.zeros((30, 1)), labels, np.repeat(["a", "b"], 15))
    kept = Kept()
    log_test_lists(kept, data, torch.arange(30.0), rs.nDCG())
    ticks = [tick.get_text() for tick in kept.figures["test/score by grade"].get_xticklabels()]
    assert len(ticks) == 10
    assert ticks[0] == "0 to 2.9\n3"
    assert sum(int(tick.split("\n")[1]) for tick in ticks) == 30


def test_best_checkpoint_is_the_scorer_that_was_tested(quickstart):
    folder, _ = quickstart
    scorer = rs.load_scorer(folder)
    test = RankingDataModule(builtin="digits").splits.test
    scores = scorer(torch.tensor(test.features)).detach()
    found = rs.evaluate(scores, torch.tensor(test.labels), ["AP"], offsets=torch.tensor(test.offsets))
    reported = json.loads((folder / "metrics.json").read_text())["test"]["AP"]
    assert found["AP"].mean().item() == pytest.approx(reported, abs=1e-6)


def test_test_and_predict_use_a_run(quickstart, capsys):
    folder, _ = quickstart
    report = json.loads((folder / "metrics.json").read_text())
    main(["test", "--run", str(folder), "--trainer.enable_progress_bar", "false"])
    assert re.search(rf"^AP +{report['test']['AP']:.4f}$", capsys.readouterr().out, re.MULTILINE)
    main(["predict", "--run", str(folder), "--trainer.enable_progress_bar", "false"])
    assert str(folder / "run.txt") in capsys.readouterr().out
    test = RankingDataModule(builtin="digits").splits.test
    scores = read_scores(folder / "scores.txt")
    expected = rs.load_scorer(folder)(torch.tensor(test.features)).detach().numpy()
    np.testing.assert_allclose(scores, expected, atol=1e-6)
    run = read_run(folder / "run.txt")
    assert list(run) == [str(q) for q in test.qids]
    assert json.loads((folder / "metrics.json").read_text()) == report


def _command(*more):
    return [
        sys.executable, "-m", "rankstruct", "fit", *SMALL,
        "--model.scorer", "rankstruct.MLPScorer", "--model.scorer.init_args.dropout", "0.3",
        "--model.optimizer", "torch.optim.AdamW", "--data.lists_per_batch", "3", "--data.max_list_size", "20",
        "--average_weights", "true", "--early_stopping.patience", "1000", *more,
    ]  # fmt: skip


def _environment():
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT)}


@pytest.mark.filterwarnings("ignore:The dirpath has changed")
def test_a_run_that_early_stopping_ended_stays_ended(tmp_path, monkeypatch, capsys):
    main([*QUICKSTART, "--output", str(tmp_path / "early"), "--early_stopping.patience", "1"])
    last = run_in(tmp_path / "early") / "checkpoints" / "last.ckpt"
    before, report = torch.load(last, weights_only=True), (last.parents[1] / "metrics.json").read_text()
    assert before["epoch"] < 39  # of 40
    monkeypatch.chdir(tmp_path)
    for run in (
        str(last.parents[1]),
        f"early/{last.parents[1].name}",
    ):  # by another name Lightning forgets the best value
        capsys.readouterr()
        main(["fit", "--run", run])
        assert f"stopped in epoch {before['epoch']}" in capsys.readouterr().out
        assert torch.load(last, weights_only=True)["global_step"] == before["global_step"]
        assert (last.parents[1] / "metrics.json").read_text() == report


class Ended(BaseException):
    """Raised in place of a kill."""


def test_a_run_that_ended_within_an_epoch_resumes_to_the_same_bits(tmp_path, monkeypatch):
    """In this process, right after a checkpoint; the next test kills another one anywhere."""
    command = _command("--trainer.max_epochs", "3", "--save_every_steps", "5")[3:]  # an epoch has 34 steps
    main([*command, "--output", str(tmp_path / "whole")])
    save = LastCheckpoint._save_topk_checkpoint

    def ends(self, trainer, candidates):
        save(self, trainer, candidates)
        if trainer.global_step == 50:
            raise Ended

    with monkeypatch.context() as patch:
        patch.setattr(LastCheckpoint, "_save_topk_checkpoint", ends)
        with pytest.raises(Ended):
            main([*command, "--output", str(tmp_path / "ended")])
    run = run_in(tmp_path / "ended")
    assert torch.load(run / "checkpoints" / "last.ckpt", weights_only=True)["global_step"] == 50
    main(["fit", "--run", str(run)])
    assert_the_same_end(tmp_path / "ended", tmp_path / "whole", 50)


@pytest.mark.soak
def test_a_killed_run_resumes_to_the_same_bits(tmp_path):
    command = _command("--trainer.max_epochs", "12", "--save_every_steps", "5")  # an epoch has 34 steps
    assert_a_killed_fit_resumes_to_the_same_bits(command, tmp_path)


@pytest.mark.filterwarnings("ignore")  # of Lightning, for a module without data
def test_no_checkpoint_of_a_step_is_within_an_accumulation(tmp_path):
    saved = []

    class Recorded(LastCheckpoint):
        def _save_topk_checkpoint(self, trainer, candidates):
            saved.append(trainer.fit_loop.epoch_loop.total_batch_idx + 1)
            super()._save_topk_checkpoint(trainer, candidates)

    def fit(epochs, **given):
        options = {"accelerator": "cpu", "logger": False, "enable_progress_bar": False, "enable_model_summary": False}
        trainer = pl.Trainer(
            default_root_dir=tmp_path,
            max_epochs=epochs,
            accumulate_grad_batches=4,
            limit_train_batches=16,
            limit_val_batches=0,
            callbacks=[Recorded(2)],
            **options,
        )
        trainer.fit(BoringModel(), **given)
        return [number for number in saved if number % 16]  # without the ends of epochs

    assert fit(1) == [8]
    last = next(tmp_path.rglob("last.ckpt"))
    assert fit(2, ckpt_path=last, weights_only=False) == [8, 24]


def test_what_a_killed_run_logged_and_logs_again_is_shown_once(tmp_path):
    main(["fit", "--output", str(tmp_path), *SMALL, "--model.scorer", "LinearScorer", "--trainer.max_epochs", "2"])
    run = run_in(tmp_path)
    last = run / "checkpoints" / "last.ckpt"
    before = last.read_bytes()
    time.sleep(1)  # the names of the log's files, by which they are read, have the second
    main(["fit", "--run", str(run), "--trainer.max_epochs", "7"])
    once = _steps(run)
    time.sleep(1)
    last.write_bytes(before)  # as after a kill: the log is ahead of the checkpoint
    main(["fit", "--run", str(run), "--trainer.max_epochs", "7"])
    assert _steps(run) == once
    epochs = [13 * epoch + 12 for epoch in range(7)]
    for tag in ("./optimisation/objective", "train/curves/AP", f"val/{LOSS}", "val/measures/nDCG@10"):
        assert once[tag] == epochs
    assert once["./val/scores"] == [epochs[0], epochs[5]]
    assert len(once["best/curves/AP"]) == len(set(once["best/curves/AP"]))


def test_what_was_drawn_before_a_run_went_on_stays(tmp_path):
    main(["fit", "--output", str(tmp_path), *SMALL, "--model.scorer", "LinearScorer", "--trainer.max_epochs", "1"])
    run = run_in(tmp_path)
    before = _steps(run)
    time.sleep(1)  # the names of the log's files, by which they are read, have the second
    main(["fit", "--run", str(run), "--trainer.max_epochs", "2"])
    after = _steps(run)
    assert before["./val/scores"] == after["./val/scores"] == before[f"val/{LOSS}"] == [12]
    assert after[f"val/{LOSS}"] == [12, 25]
    assert before["test/curves/AP"] == [13]
    assert after["test/curves/AP"] == [13, 26]


def test_a_board_that_goes_on_with_nothing_leaves_what_there_is(tmp_path):
    for step in (7, 0):
        board = Board(tmp_path / "run", "AP", "AP StructuredHingeLoss")
        board.log_metrics({"val/loss": 0.5, "optimisation/objective": 1.0}, step)
        board.finalize("success")
    found = _steps(tmp_path / "run")
    assert sorted(found[f"val/{LOSS}"]) == sorted(found["./optimisation/objective"]) == [0, 7]


def test_each_loss_and_each_of_its_parts_has_a_chart(tmp_path):
    board = Board(tmp_path / "run", "AP", "CombinedLoss")
    board.log_metrics({"train/loss": 0.5, "train/slack/0-AP": 0.2, "val/loss": 0.6, "optimisation/loss": 0.4}, 0)
    board.finalize("success")
    parts = {"train/loss/CombinedLoss", "train/loss/CombinedLoss 0-AP", "val/loss/CombinedLoss"}
    assert set(_steps(tmp_path / "run")) == {*parts, "./optimisation/CombinedLoss"}


@pytest.mark.parametrize("deleted", ["train", "."])
def test_a_board_whose_folder_is_deleted_goes_on(tmp_path, deleted):
    board = Board(tmp_path / "run", "AP", "AP StructuredHingeLoss")
    board.log_metrics({"train/loss": 0.5, "other": 1.0}, 0)
    board.save()
    shutil.rmtree(tmp_path / "run" / deleted)
    for step in (1, 2):
        board.log_metrics({"train/loss": 0.25, "other": 2.0}, step)
        board.save()
    board.finalize("success")
    found = _steps(tmp_path / "run")
    assert found[f"train/{LOSS}"] == [1, 2]
    assert found["./other"] == ([1, 2] if deleted == "." else [0, 1, 2])


def _steps(run):
    """The steps of each chart and histogram of a run."""
    found = {}
    for part in (".", *(name for name in ("train", "val", "best", "test") if (run / name).is_dir())):
        log = EventAccumulator(str(run / part), size_guidance={"histograms": 0}).Reload()
        found |= {f"{part}/{tag}": [event.step for event in log.Scalars(tag)] for tag in log.Tags()["scalars"]}
        found |= {f"{part}/{tag}": [event.step for event in log.Histograms(tag)] for tag in log.Tags()["histograms"]}
    return found


@pytest.mark.filterwarnings("ignore:.*no better than w = 0")  # steps of no length
def test_last_checkpoint_is_that_of_the_last_epoch_and_not_of_the_best(tmp_path):
    """A measure that is best at once: the best checkpoint is the first, the last one that of the end."""
    stuck = [
        "--model.optimizer",
        "torch.optim.SGD",
        "--model.optimizer.init_args.lr",
        "0.0",
        "--trainer.max_epochs",
        "4",
    ]
    main(["fit", "--output", str(tmp_path), *SMALL, "--model.scorer", "rankstruct.LinearScorer", *stuck])
    reached = {
        name: torch.load(run_in(tmp_path) / "checkpoints" / f"{name}.ckpt", weights_only=True)["epoch"]
        for name in ("best", "last")
    }
    assert reached == {"best": 0, "last": 3}


def test_runs_that_start_together_have_their_own_folders(tmp_path):
    claimed = [_claim_folder(tmp_path / "runs") for _ in range(30)]
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d(_\d\d)?", folder.name) for folder in claimed)
    assert sorted(set(claimed)) == claimed == sorted((tmp_path / "runs").iterdir())


def test_a_damaged_checkpoint_is_named(quickstart, tmp_path):
    run = shutil.copytree(quickstart[0], tmp_path / "copy")
    whole = (run / "checkpoints" / "best.ckpt").read_bytes()
    (run / "checkpoints" / "best.ckpt").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(ValueError, match=r"best\.ckpt is not a readable checkpoint"):
        main(["test", "--run", str(run)])


def test_lists_that_teach_nothing_are_an_error():
    data = RankingDataModule(builtin="synthetic")
    train = data.splits.train
    data.splits = data.splits._replace(train=dataclasses.replace(train, labels=np.zeros_like(train.labels)))
    with pytest.raises(ValueError, match="can be learned from: 100 of 100"):
        data.train_dataloader()


@pytest.mark.slow
def test_ctrl_c_says_how_to_go_on(tmp_path):
    command = _command("--output", str(tmp_path), "--trainer.max_epochs", "100000")
    run = subprocess.Popen(command, env=_environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    last = awaited_checkpoint(tmp_path)
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=60)
    assert f"to resume: rankstruct fit --run {last.parents[1]}" in out
    assert run.returncode == 130


def test_online_schedule_is_one_over_lambda_t(tmp_path):
    module = RankingModule(
        rs.LinearScorer(20),
        regularization=0.5,
        optimizer=lambda parameters: torch.optim.SGD(parameters, lr=123.0),
        schedule="online",
        t0=10.0,
    )
    seen = []

    class Watch(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            seen.append(trainer.optimizers[0].param_groups[0]["lr"])

    trainer = pl.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False, callbacks=[Watch()],
        enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, RankingDataModule(builtin="synthetic", lists_per_batch=10))
    assert seen == pytest.approx([1 / (0.5 * (t + 10)) for t in range(len(seen))])
    assert len(seen) >= 10


@pytest.mark.parametrize("towards", ["zero", "start"])
def test_board_logs_the_exact_objective(tmp_path, towards):
    data = RankingDataModule(builtin="synthetic", lists_per_batch=10)
    module = RankingModule(rs.LinearScorer(20), regularization=0.2, start="regression", regularize_towards=towards)
    trainer = pl.Trainer(
        max_epochs=2, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[TrainingBoard(data.objective_batches())], enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, data)
    train = data.splits.train
    kept = train.select(np.flatnonzero(~train.same_labels()))
    loss, labels = rs.StructuredHingeLoss("AP"), torch.tensor(kept.labels)
    with torch.no_grad():
        scores = module.scorer(torch.tensor(kept.features))
    offsets = torch.tensor(kept.offsets)
    slack = loss(scores, labels, offsets=offsets)
    at_zero = loss(torch.zeros_like(scores), labels, offsets=offsets)
    w0 = module.anchor[0] if towards == "start" else torch.zeros(20)
    assert (w0 != 0).any() == (towards == "start")
    norm = (module.scorer.linear.weight - w0).square().sum()
    at_zero = at_zero + 0.1 * w0.square().sum()
    logged = trainer.callback_metrics
    assert logged["optimisation/squared_norm"].item() == pytest.approx(norm.item(), rel=1e-5)
    assert logged["optimisation/objective"].item() == pytest.approx((slack + 0.1 * norm).item(), rel=1e-5)
    assert logged["optimisation/objective_over_zero"].item() == pytest.approx(
        ((slack + 0.1 * norm) / at_zero).item(), rel=1e-5
    )
    (values,) = rs.evaluate(scores, kept.labels, ["AP"], offsets=kept.offsets).values()
    assert logged["train/AP"].item() == pytest.approx(values.mean().item(), rel=1e-5)
    vali = data.splits.vali
    with torch.no_grad():
        scores = module.scorer(torch.tensor(vali.features))
    loss = rs.StructuredHingeLoss("AP")(scores, torch.tensor(vali.labels), offsets=torch.tensor(vali.offsets))
    assert logged["val/loss"].item() == pytest.approx(loss.item(), rel=1e-5)
    assert logged["train/loss"] > 0


class Unlike(RankingDataModule):
    same_labels = False


@pytest.mark.filterwarnings("ignore:the validation lists have no loss")
@pytest.mark.parametrize("why", ["labels", "grades"])
def test_what_cannot_be_compared_is_not_logged(tmp_path, why):
    data = (Unlike if why == "labels" else RankingDataModule)(builtin="synthetic", lists_per_batch=10)
    loss = rs.StructuredHingeLoss("AP") if why == "labels" else rs.OrdinalLoss(2)
    if why == "grades":
        train = data.splits.train
        data.splits = data.splits._replace(train=dataclasses.replace(train, labels=np.minimum(train.labels, 1)))
        assert data.splits.vali.labels.max() > 1
    trainer = pl.Trainer(
        max_epochs=1, logger=False, enable_checkpointing=False, enable_progress_bar=False,
        callbacks=[TrainingBoard(data.objective_batches())], enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(RankingModule(rs.LinearScorer(20), loss), data)
    assert "val/loss" not in trainer.callback_metrics
    assert ("train/AP" in trainer.callback_metrics) == (why == "grades")
    assert "optimisation/objective" in trainer.callback_metrics


@pytest.mark.parametrize("count", [int, torch.tensor])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_average_weights_fade_out_early_iterates(count, dtype):
    def average(decay, *iterates):
        means = [torch.tensor(iterates[0], dtype=dtype), torch.tensor([-iterates[0]], dtype=dtype)]
        for number, each in enumerate(iterates[1:], 1):  # torch takes the first iterate as it is
            new = [torch.tensor(each, dtype=dtype), torch.tensor([-each], dtype=dtype)]
            AverageWeights(decay)._kwargs["multi_avg_fn"](means, new, count(number))
        assert means[1].item() == -means[0].item()
        return means[0].item()

    assert average(0.0, 1.0, 2.0, 6.0) == pytest.approx(3.0)
    second = 1.0 + (2.0 - 1.0) * 4 / 5
    assert average(3.0, 1.0, 2.0, 6.0) == pytest.approx(second + (6.0 - second) * 4 / 6)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--data.builtin", "digits", "--model.regularisation", "0.1"], "regularisation"),
        (["--data.builtin", "digits", "--data.path", "somewhere"], "give either data.path"),
        (["--data.builtin", "letters"], "letters"),
        ([], "give either data.path"),
        (["--data.path", "/nowhere"], "nowhere"),
        (["--data.builtin", "digits", "--model.measures", "[APX]"], "APX"),
        (
            ["--data.builtin", "digits", "--model.regularization", "-1"],
            "regularization must be a finite number of at least 0",
        ),
        (["--data.builtin", "digits", "--model.schedule", "online"], "online schedule"),
        (["--data.builtin", "digits", "--data.prepare", "[squares]"], "squares"),
        (["--run", "/nowhere/run"], "is not the folder of a run"),
        (["--run"], "--run needs the folder"),
    ],
)
def test_bad_config_is_named(arguments, message, tmp_path, capsys):
    with pytest.raises((SystemExit, ValueError)) as caught:
        main(["fit", "--output", str(tmp_path), "--model.scorer", "rankstruct.LinearScorer", *arguments])
    assert message in str(caught.value) + capsys.readouterr().err


@pytest.mark.parametrize("command", ["test", "validate", "predict"])
def test_an_untrained_model_is_not_used(command, capsys):
    with pytest.raises(ValueError, match=f"{command} needs a trained model"):
        main([command, *QUICKSTART[1:]])
    with pytest.raises(SystemExit, match="2"):
        main([command])
    assert f"{command} needs --config" in capsys.readouterr().err


def test_the_newest_run_of_a_folder_is_used_and_named(tmp_path, capsys):
    for measure in ("AP", "RR"):
        given = [
            *SMALL,
            "--model.scorer",
            "LinearScorer",
            "--model.measures",
            f"[{measure}]",
            "--trainer.max_epochs",
            "1",
        ]
        main(["fit", "--output", str(tmp_path), *given])
    shutil.copytree(run_in(tmp_path, 0), tmp_path / "2000-01-01_00-00-00")
    (tmp_path / "9999-12-31_00-00-00").mkdir()  # of a run that has not begun
    capsys.readouterr()
    main(["test", "--run", str(tmp_path)])
    newest = run_in(tmp_path, 2)
    printed = capsys.readouterr()
    assert f"newest run in {tmp_path}: {newest.name}" in printed.err
    assert re.search(r"^RR +\d\.", printed.out, re.MULTILINE)
    main(["fit", "--run", str(tmp_path), "--trainer.max_epochs", "2"])
    reached = [torch.load(run_in(tmp_path, at) / "checkpoints" / "last.ckpt")["epoch"] for at in range(3)]
    assert reached == [0, 0, 1]
    weights = [rs.load_scorer(folder).linear.weight for folder in (tmp_path, newest, run_in(tmp_path, 1))]
    assert torch.equal(*weights[:2])


def test_the_folder_of_runs_is_named_by_the_config(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    mine = tmp_path / "mine.yaml"
    mine.write_text("model: {scorer: LinearScorer}\ntrainer: {max_epochs: 1}\n")
    main(["fit", "--config", str(mine), *SMALL])
    assert run_in(tmp_path / "runs" / "mine").is_dir()


def test_a_missing_checkpoint_is_named(tmp_path, capsys):
    with pytest.raises((SystemExit, ValueError, FileNotFoundError)) as caught:
        main(["test", *QUICKSTART[1:], "--ckpt_path", str(tmp_path / "no.ckpt")])
    assert "no.ckpt" in str(caught.value) + capsys.readouterr().err


def test_a_run_that_learned_nothing_says_so(tmp_path, capsys):
    """In a warning, below the table, and as text in TensorBoard."""
    loss = ["--model.loss", "rankstruct.StructuredHingeLoss", "--model.loss.init_args.measure", "AP"]
    still = [
        "--model.scorer",
        "rankstruct.LinearScorer",
        "--model.optimizer",
        "torch.optim.SGD",
        "--model.optimizer.lr",
        "0.0",
    ]
    given = ["--data.builtin", "synthetic", "--output", str(tmp_path), "--trainer.max_epochs", "1"]
    with pytest.warns(UserWarning, match="no better than w = 0, where all documents tie"):
        main(["fit", *given, *loss, *still, "--trainer.enable_progress_bar", "false"])
    assert (
        "the model is no better than w = 0, where all documents tie: use reference='ideal-tied'"
        in capsys.readouterr().out
    )
    events = EventAccumulator(str(run_in(tmp_path)), {"tensors": 0})
    events.Reload()
    assert any("status" in tag for tag in events.Tags()["tensors"])


def test_a_module_takes_one_measure_and_no_name_of_a_loss():
    for measures in ("nDCG@10", ["nDCG@10"], iter(["nDCG@10"])):
        module = rs.training.RankingModule(rs.LinearScorer(2), measures=measures)
        assert [each.name for each in module.test_metric.measures] == ["nDCG@10"]
    with pytest.raises(TypeError, match=r"loss must be a module, such as rs\.StructuredHingeLoss\('AP'\); got 'AP'"):
        rs.training.RankingModule(rs.LinearScorer(2), "AP")
