"""Several processes: each list once, the measures of one process, the same end for all, resuming; and other precisions."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from programs import run_in
from pytorch_lightning.trainer.states import TrainerState
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

import rankstruct as rs
from rankstruct.commands.fit import RankingCLI, main
from rankstruct.data import BatchLoader
from rankstruct.recommenders.training import FactorizationModule
from rankstruct.training import RankingDataModule, RankingModule

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore", "PYTHONPATH": str(ROOT)}
TWO = ["--trainer.strategy", "ddp", "--trainer.devices", "2", "--trainer.accelerator", "cpu"]
ONE = ["--trainer.strategy", "auto", "--trainer.devices", "1"]
QUIET = ["--trainer.enable_progress_bar", "false"]


def write_lists(path, number, rng, without=()):
    """Lists of 2 to 13 documents; those of `without` have nothing relevant."""
    lines = []
    for query in range(number):
        for _ in range(rng.integers(2, 14)):
            features = rng.normal(size=5)
            label = int(query not in without and features[0] + 0.3 * rng.normal() > 0.5)
            lines.append(f"{label} qid:{query} " + " ".join(f"{i}:{x:.4f}" for i, x in enumerate(features, start=1)))
    path.write_text("\n".join(lines) + "\n")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """An odd number of lists to train on, fewer to validate on than there are processes, an odd number to test on."""
    folder, rng = tmp_path_factory.mktemp("data"), np.random.default_rng(0)
    write_lists(folder / "train.txt", 41, rng)
    write_lists(folder / "vali.txt", 1, rng)
    write_lists(folder / "test.txt", 7, rng, without=(1, 4))
    return folder


def start(*args):
    command = [sys.executable, "-m", "rankstruct", *map(str, args)]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    return subprocess.Popen(command, env=ENVIRONMENT, text=True, start_new_session=True, **pipes)


def fit(data, output, *more):
    scorer = ["--model.scorer", "rankstruct.MLPScorer", "--model.scorer.init_args.dropout", "0.3"]
    options = [*scorer, "--data.path", data, "--data.lists_per_batch", "3", "--average_weights", "true", *QUIET, *TWO]
    return start("fit", "--output", output, *options, "--early_stopping.patience", "1000", *more)


def finish(process):
    printed, _ = process.communicate(timeout=240)
    assert process.returncode == 0, printed
    return printed


def end_of_group(process, seconds):
    """Whether all processes of a session have ended within some seconds."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        process.poll()
        try:
            os.killpg(process.pid, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    return False


def assert_same(one, other):
    assert one.keys() == other.keys()
    for name, value in one.items():
        assert torch.equal(value, other[name]), name


@pytest.mark.skipif(sys.platform == "win32", reason="sessions of processes are POSIX")
@pytest.mark.needs("pytorch_lightning>=2.6")
def test_two_processes_train_and_test(data, tmp_path):
    """As a user types it: the measures of one process."""
    printed = finish(fit(data, tmp_path, "--trainer.max_epochs", "7"))
    run = run_in(tmp_path)
    report = json.loads((run / "metrics.json").read_text())
    (tested,), (validated,) = ([main([name, "--run", str(run), *ONE, *QUIET])] for name in ("test", "validate"))
    one = {name: float(value) for name, value in tested.trainer.callback_metrics.items()}
    assert {f"test/{name}": value for name, value in report["test"].items()} == pytest.approx(one, abs=1e-6)
    assert report["best"]["validation"] == pytest.approx(float(validated.trainer.callback_metrics["val/AP"]), abs=1e-6)
    empty = tested.model.empty_lists["test"]
    assert min(empty.values()) >= 2
    for name, count in empty.items():  # one table, by one process
        assert re.findall(rf"^{re.escape(name)} +{one[f'test/{name}']:.4f} +(\d+)$", printed, re.MULTILINE) == [
            f"{count}"
        ]
    assert "means over 7 test lists" in printed
    logged = EventAccumulator(str(run / "val")).Reload()
    assert len(logged.Scalars("curves/AP")) == len(logged.Scalars("loss/AP StructuredHingeLoss")) == 7
    assert len(EventAccumulator(str(run)).Reload().Images("val/nDCG at 1 to 10")) == 2


@pytest.mark.soak
@pytest.mark.skipif(sys.platform == "win32", reason="sessions of processes are POSIX")
def test_two_processes_predict_stop_and_resume(data, tmp_path):
    """One run is left alone, another ended by SIGTERM after an epoch and resumed: the same bits."""
    length = ["--trainer.max_epochs", "7"]
    whole, ended = (fit(data, tmp_path / name, *length) for name in ("whole", "ended"))
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("ended/*/checkpoints/last.ckpt")):
        assert time.monotonic() < deadline
        assert ended.poll() is None, ended.communicate()
        time.sleep(0.02)
    ended.send_signal(signal.SIGTERM)
    assert end_of_group(ended, 10)
    assert ended.returncode == -signal.SIGTERM
    ended.stdout.close()
    finish(whole)
    resumed = start("fit", "--run", run_in(tmp_path / "ended"))
    run = run_in(tmp_path / "whole")
    predicted = start("predict", "--run", run, *QUIET)
    assert len(list(tmp_path.glob("*/*"))) == 2
    finish(resumed)
    states = [
        torch.load(run_in(tmp_path / name) / "checkpoints" / "last.ckpt", weights_only=True)
        for name in ("ended", "whole")
    ]
    assert states[0]["global_step"] == states[1]["global_step"]
    for key in ("state_dict", "current_model_state", "averaging_state"):
        assert_same(states[0][key], states[1][key])
    finish(predicted)
    np.testing.assert_allclose(
        rs.data.read_scores(run / "scores.txt"),
        rs.load_scorer(run)(torch.tensor(rs.data.read_svmlight(data / "test.txt").features)).detach().numpy(),
        atol=1e-6,
    )


@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
@pytest.mark.parametrize(
    ("scorer", "loss"), [(rs.LinearScorer, rs.StructuredHingeLoss("AP")), (rs.MLPScorer, rs.SoftmaxLoss())]
)
def test_four_processes_give_the_weights_of_one(tmp_path, scorer, loss):
    """A step of four takes four batches, as one with accumulated gradients does."""
    rng = np.random.default_rng(0)
    for name, number in ("train", 48), ("vali", 5), ("test", 5):  # 16 batches, which are not split for four
        write_lists(tmp_path / f"{name}.txt", number, rng)

    def weights(**options):
        torch.manual_seed(0)
        module = RankingModule(scorer(5), loss, measures=["AP"], regularization=0.01)
        quiet = dict.fromkeys(("logger", "enable_checkpointing", "enable_progress_bar", "enable_model_summary"), False)
        trainer = pl.Trainer(accelerator="cpu", max_epochs=3, default_root_dir=tmp_path, **quiet, **options)
        data = RankingDataModule(path=str(tmp_path), lists_per_batch=3, drop_empty=False)
        before = {name: value.clone() for name, value in module.state_dict().items()}
        trainer.fit(module, data)
        after = module.state_dict()
        assert max(float((after[name] - value).abs().max()) for name, value in before.items()) > 0.05
        return after

    one, four = weights(accumulate_grad_batches=4), weights(strategy="ddp_fork", devices=4)
    assert one.keys() == four.keys()
    for name, value in one.items():
        torch.testing.assert_close(four[name], value, rtol=0, atol=1e-5)


RANK = """
import sys, torch
from rankstruct import LinearScorer
from rankstruct.data import BatchLoader
from rankstruct.training import RankingDataModule, RankingModule
rank, folder = int(sys.argv[1]), sys.argv[2]
torch.distributed.init_process_group("gloo", init_method=f"file://{folder}/meeting", rank=rank, world_size=2)
data = RankingDataModule(path=sys.argv[3])
module = RankingModule(torch.load(f"{folder}/scorer.pt", weights_only=False), regularization=0.1)
batches = [data.objective_batches(), BatchLoader(data.part("train"), lists_per_batch=4).share(rank, 2)]
torch.save([module.objective(each) for each in batches], f"{folder}/{rank}.pt")
torch.distributed.destroy_process_group()
"""


@pytest.mark.soak
def test_the_objective_is_that_of_all_lists(data, tmp_path):
    """Shared or not: of a loader of all lists each process takes its part."""
    torch.save(rs.LinearScorer(5), tmp_path / "scorer.pt")
    with torch.no_grad():
        scorer = torch.load(tmp_path / "scorer.pt", weights_only=False)
        scorer.linear.weight.copy_(torch.tensor([[0.5, 0.1, 0.0, -0.2, 0.0]]))
        torch.save(scorer, tmp_path / "scorer.pt")
    ranks = [
        subprocess.Popen([sys.executable, "-c", RANK, str(rank), str(tmp_path), str(data)], env=ENVIRONMENT)
        for rank in range(2)
    ]
    assert [process.wait(timeout=240) for process in ranks] == [0, 0]
    lists, module = RankingDataModule(path=str(data)), RankingModule(scorer, regularization=0.1)
    loaders = [lists.objective_batches(), BatchLoader(lists.part("train"), lists_per_batch=4)]
    wanted = [module.objective(each) for each in loaders]
    for rank in range(2):
        assert torch.load(tmp_path / f"{rank}.pt") == pytest.approx(wanted, rel=1e-6)


def test_fewer_lists_than_processes_are_named(data):
    lists = RankingDataModule(path=str(data), lists_per_batch=1)
    lists.trainer = type("Trainer", (), {"global_rank": 0, "world_size": 50, "state": TrainerState()})()
    with pytest.raises(ValueError, match=r"training lists with different labels, fewer than the 50 processes"):
        lists.train_dataloader()
    assert [len(lists.val_dataloader()), len(lists.test_dataloader())] == [1, 1]


@pytest.mark.filterwarnings("ignore:.*no better than w = 0")  # the second data have one feature, and it is constant
@pytest.mark.filterwarnings("ignore:labels go up to 1000.5")
@pytest.mark.parametrize(
    ("precision", "dtype"), [("64-true", torch.float64), ("bf16-true", torch.bfloat16), ("bf16-mixed", torch.float32)]
)
def test_precisions(tmp_path, precision, dtype):
    """Weights and features take it, labels do not: one of 1000.5 is another in bfloat16."""
    scorer = ["--model.scorer", "rankstruct.MLPScorer", "--model.start", "regression", "--data.builtin", "synthetic"]
    options = ["--trainer.precision", precision, "--trainer.accelerator", "cpu", "--trainer.max_epochs", "1"]
    cli = main(["fit", "--output", str(tmp_path), *scorer, *options, *QUIET])
    assert {weight.dtype for weight in cli.model.scorer.parameters()} == {dtype}
    assert float(cli.trainer.callback_metrics["test/AP"]) > 0.7
    seen = []

    class Watch(pl.Callback):
        def on_train_batch_start(self, trainer, pl_module, batch, batch_idx):
            seen.append((batch.labels.max().item(), pl_module(batch.features).dtype))

    lists = rs.data.RankingData.from_arrays(np.ones((2, 3)), [0.0, 1000.5], ["a", "a"])
    module = RankingModule(rs.LinearScorer(3), rs.SquaredLoss(), optimizer=torch.optim.SGD)
    trainer = pl.Trainer(
        precision=precision, accelerator="cpu", max_steps=1, logger=False, enable_checkpointing=False, callbacks=[Watch()],
        enable_progress_bar=False, enable_model_summary=False, default_root_dir=tmp_path,
    )  # fmt: skip
    trainer.fit(module, *[BatchLoader(lists, lists_per_batch=1)] * 2)
    assert seen == [(1000.5, dtype)]


def test_ids_are_not_rounded(tmp_path):
    """Features of a factorisation are users and items, 257 of which bfloat16 does not tell from 256."""
    module = FactorizationModule(rs.MatrixFactorization(300, 300, rank=2)).to(torch.bfloat16)
    with torch.no_grad():
        module.scorer.user_factors.weight.copy_(torch.arange(300)[:, None] % 2)
        module.scorer.item_factors.weight.fill_(1)
    assert module(torch.tensor([[[256.0, 3.0], [257.0, 3.0]]])).tolist() == [[0.0, 2.0]]


def test_one_of_many_runs_has_one_process(tmp_path):
    """Of cross-validation, say, which starts each in a process that Lightning could not start again."""
    with pytest.raises(ValueError, match=r"trainer\.devices must be 1"):
        RankingCLI(
            ["fit", "--data.builtin", "synthetic", "--model.scorer", "rankstruct.LinearScorer", *TWO],
            tmp_path,
            quiet=True,
        )
