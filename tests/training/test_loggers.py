"""Names of what is logged, for loggers that do not accept all."""

import re

import pytest
import pytorch_lightning as pl
from pytorch_lightning.callbacks import EarlyStopping
from pytorch_lightning.loggers.logger import Logger

import rankstruct as rs
from rankstruct.training import RankingDataModule, RankingModule


class Strict(Logger):
    """Accepts MLflow's names only, and keeps the last values."""

    name, version = "strict", 0

    def __init__(self):
        super().__init__()
        self.kept = {}

    def log_hyperparams(self, *args, **options):
        pass

    def log_metrics(self, metrics, step=None):
        for name in metrics:
            if not re.fullmatch(r"[\w./: -]+", name):
                raise ValueError(f"invalid name {name!r}")
        self.kept |= metrics


def fit(logger, plain, monitor):
    loss = rs.CombinedLoss([rs.StructuredHingeLoss("nDCG@10"), rs.StructuredHingeLoss("AP")])
    data = RankingDataModule(builtin="digits", lists_per_batch=16)
    module = RankingModule(rs.LinearScorer(64), loss, measures=["nDCG@10", "nDCG(gain='linear')@5"])
    module.plain_names = plain
    quiet = {"enable_progress_bar": False, "enable_model_summary": False, "enable_checkpointing": False}
    stopping = EarlyStopping(monitor, mode="max")
    trainer = pl.Trainer(max_epochs=1, logger=logger, callbacks=[stopping], log_every_n_steps=1, **quiet)
    trainer.fit(module, data)
    return {name for name in trainer.callback_metrics if name.startswith("val/")}


def test_plain_names_are_accepted_and_can_be_monitored():
    logger = Strict()
    found = fit(logger, True, "val/nDCG_10")
    assert found == {"val/nDCG_10", "val/nDCG_gain_linear_5"}
    assert found < set(logger.kept)


def test_other_names_are_those_of_the_measures():
    with pytest.raises(ValueError, match=r"invalid name .*nDCG@10"):
        fit(Strict(), False, "val/nDCG@10")
    assert fit(False, False, "val/nDCG@10") >= {"val/nDCG@10"}
