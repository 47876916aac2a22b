"""The measures of any LightningModule: those of `evaluate`, by whatever names its lists, with several loaders and processes."""

import sys

import pytest
import pytorch_lightning as pl
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch.utils.data import DataLoader

import rankstruct as rs
from rankstruct.training import RankingMeasures

QUIET = {
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "accelerator": "cpu",
    "enable_checkpointing": False,
}
SCORES = torch.tensor([[2.0, 2.0, 1.0], [0.0, 1.0, 1.0], [3.0, 2.0, 9.0], [1.0, 1.0, 1.0], [0.0, 0.0, 5.0]])
LABELS = torch.tensor([[0, 2, 1], [1, 0, 2], [0, 1, 7], [0, 0, 1], [1, 0, 0]])
WHERE = torch.tensor([[True] * 3, [True] * 3, [True, True, False], [True] * 3, [True] * 3])


class Module(pl.LightningModule):
    """Returns lists that are padded or flat, at the given offset of the scores."""

    def __init__(self, form="where"):
        super().__init__()
        self.form, self.weight = form, torch.nn.Parameter(torch.zeros(()))

    def training_step(self, batch, index):
        return self.weight**2

    def validation_step(self, batch, index, dataloader_idx=0):
        scores, labels, where = SCORES[batch] * (-1) ** dataloader_idx, LABELS[batch], WHERE[batch]
        sizes = where.sum(1)
        flat = {"scores": scores[where] + self.weight, "labels": labels[where]}
        return {
            "where": {"scores": scores, "labels": labels, "where": where, "loss": self.weight},
            "offsets": {**flat, "offsets": torch.cat([sizes.new_zeros(1), sizes.cumsum(0)])},
            "qid": {**flat, "qid": batch.repeat_interleave(sizes)},
            "scores": scores,
            "labels": {"labels": labels},
        }[self.form]

    test_step = validation_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def lists(batch_size=2):
    return DataLoader(torch.arange(len(SCORES)), batch_size=batch_size)


def expected(scores=SCORES, **options):
    values = rs.evaluate(scores, LABELS, ["nDCG@10", "RR@1"], where=WHERE, **options)
    return {name: each.mean().item() for name, each in values.items()}


def trainer(tmp_path, ties="expected", **options):
    board = pl.loggers.TensorBoardLogger(tmp_path, name="", version="run")
    callback = RankingMeasures(["nDCG@10", "RR@1"], ties=ties)
    return pl.Trainer(**QUIET, callbacks=[callback], logger=board, **options)


@pytest.mark.parametrize("form", ["where", "offsets", "qid"])
@pytest.mark.parametrize("ties", ["expected", "worst"])
@pytest.mark.filterwarnings("ignore:The .* does not have many workers", "ignore:.*exists and is not empty")
def test_a_module_shows_the_charts_of_ours(form, ties, tmp_path):
    fit = trainer(tmp_path, ties, max_epochs=2, log_every_n_steps=1)
    fit.fit(Module(form), lists(), lists())
    for name, value in expected(ties=ties).items():
        points = EventAccumulator(str(tmp_path / "run")).Reload().Scalars(f"val/{name}")
        assert [point.value for point in points] == pytest.approx([value] * 2, abs=1e-6)
    (tested,) = fit.test(Module(form), lists(), verbose=False)
    assert tested == pytest.approx({f"test/{name}": value for name, value in expected(ties=ties).items()}, abs=1e-6)


@pytest.mark.filterwarnings("ignore:The .* does not have many workers")
def test_each_loader_has_its_own(tmp_path):
    validated = trainer(tmp_path).validate(Module(), [lists(), lists(3)], verbose=False)
    wanted = {f"val/{name}/dataloader_0": value for name, value in expected().items()}
    wanted |= {f"val/{name}/dataloader_1": value for name, value in expected(-SCORES).items()}
    assert {name: value for each in validated for name, value in each.items()} == pytest.approx(wanted, abs=1e-6)


class Returns(Module):
    def __init__(self, **outputs):
        super().__init__()
        self.outputs = outputs

    def validation_step(self, batch, index):
        return {"scores": SCORES[batch], "labels": LABELS[batch].clamp(max=1)} | {
            name: each[batch] for name, each in self.outputs.items()
        }


@pytest.mark.filterwarnings("ignore:The .* does not have many workers")
def test_a_step_may_return_what_a_metric_takes():
    given = {
        "judged": torch.tensor([[True, True, False]] * 5),
        "item_weights": torch.tensor([[0.0, 1.0, 2.0]] * 5),
        "diversity_groups": torch.tensor([[0, 1, 1]] * 5),
        "where": WHERE,
    }
    measures = {"judged": "Bpref", "item_weights": "P@1", "diversity_groups": "diverse_nDCG@2", "where": "P@3"}
    for name, each in given.items():
        callback = RankingMeasures(measures[name])
        run = pl.Trainer(**QUIET, callbacks=[callback], logger=False)
        (found,) = run.validate(Returns(**{name: each}), lists(), verbose=False)
        wanted = rs.evaluate(SCORES, LABELS.clamp(max=1), measures[name], **{name: each})
        assert found == pytest.approx({f"val/{n}": value.mean().item() for n, value in wanted.items()}, abs=1e-6)
    with pytest.raises(TypeError, match="there is no mask=; pass where="):
        pl.Trainer(**QUIET, callbacks=[RankingMeasures("AP")], logger=False).validate(Returns(mask=WHERE), lists())


@pytest.mark.parametrize(("form", "given"), [("scores", "Tensor"), ("labels", r"\['labels'\]")])
@pytest.mark.filterwarnings("ignore:The .* does not have many workers")
def test_what_a_step_must_return(form, given, tmp_path):
    with pytest.raises(
        ValueError, match=rf"validation_step must return a dictionary with scores and labels .* {given}"
    ):
        trainer(tmp_path).validate(Module(form), lists())


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="processes are forked")
@pytest.mark.filterwarnings("ignore")  # of the forked processes and of Lightning
def test_two_processes_have_the_values_of_one(tmp_path):
    """Four lists, of which each process has two, so that Lightning's sampler repeats none."""
    two = trainer(tmp_path, strategy="ddp_fork", devices=2)
    two.validate(Module(), DataLoader(torch.arange(4), batch_size=1), verbose=False)
    (point,) = EventAccumulator(str(tmp_path / "run")).Reload().Scalars("val/nDCG@10")
    values = rs.evaluate(SCORES[:4], LABELS[:4], ["nDCG@10"], where=WHERE[:4])["nDCG@10"]
    assert point.value == pytest.approx(values.mean().item(), abs=1e-6)
