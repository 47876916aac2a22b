"""Train on a cluster with Ray Train, or here: `pip install "ray[train]"`, then `python scripts/ray_train.py --workers 2`.

Ray starts the workers, on whatever machines it has, and joins them; the rest is the training that `rankstruct fit` does.
"""

import argparse

import pytorch_lightning as pl
from ray.train import RunConfig, ScalingConfig
from ray.train.lightning import RayDDPStrategy, RayLightningEnvironment, RayTrainReportCallback, prepare_trainer
from ray.train.torch import TorchTrainer

import rankstruct as rs
from rankstruct.training import RankingDataModule, RankingModule


def train(options):
    """Train on one worker."""
    data = RankingDataModule(builtin="digits", lists_per_batch=5)
    module = RankingModule(rs.LinearScorer(data.num_features), rs.StructuredHingeLoss("AP"), regularization=1e-3)
    trainer = prepare_trainer(
        pl.Trainer(
            strategy=RayDDPStrategy(),
            plugins=[RayLightningEnvironment()],
            callbacks=[RayTrainReportCallback()],
            max_epochs=options["epochs"],
            enable_checkpointing=False,
            enable_progress_bar=False,
        )
    )
    trainer.fit(module, data)


def main():
    """Start the workers."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, default=2, help="processes (default: %(default)s)")
    parser.add_argument("--gpu", action="store_true", help="one GPU a worker")
    parser.add_argument("--epochs", type=int, default=10, help="(default: %(default)s)")
    parser.add_argument("--output", help="folder that all machines see, for the checkpoints; Ray's own if not given")
    options = parser.parse_args()
    result = TorchTrainer(
        train,
        train_loop_config={"epochs": options.epochs},
        scaling_config=ScalingConfig(num_workers=options.workers, use_gpu=options.gpu),
        run_config=RunConfig(storage_path=options.output),
    ).fit()
    print({name: round(value, 4) for name, value in result.metrics.items() if name.startswith("val/")})
    print(f"checkpoint: {result.checkpoint}")


if __name__ == "__main__":
    main()
