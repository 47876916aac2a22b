"""Every ready config can be read, built and trained."""

import json
from pathlib import Path

import pytest
import torch
from programs import run_in

import rankstruct as rs
from rankstruct.commands.fit import main

FOLDER = Path(__file__).parents[2] / "configs"
CONFIGS = [
    path for path in sorted(FOLDER.glob("*.yaml")) if not path.name.startswith(("exact-", "experiment-"))
]  # those are not for Lightning
#: The losses after which configs are named: `letor-ranknet-linear` trains `RankNetLoss`.
LOSSES = {
    name.removesuffix("Loss").lower(): getattr(rs.losses, name) for name in dir(rs.losses) if name.endswith("Loss")
}
LOSSES |= {"lambdaloss": rs.LambdaLoss, "precision-average": rs.TopSurrogateLoss}


def train(config, folder, *options):
    if config.stem.startswith(("ratings-", "implicit-")):
        return main(
            [
                *("fit", "--config", str(config), "--output", str(folder), "--data.builtin", "synthetic"),
                *("--trainer.enable_progress_bar", "false", *options),
            ]
        )
    if config.stem.startswith("text-"):
        small = (
            "--data.builtin",
            "questions",
            "--data.encoder",
            "null",
            "--data.depth",
            "12",
            "--data.max_length",
            "48",
        )
        small = (*small, "--trainer.limit_val_batches", "1", "--trainer.enable_progress_bar", "false")
        return main(["fit", "--config", str(config), "--output", str(folder), *small, *options])
    if "ordinal" in config.stem:  # the synthetic data have five grades, LETOR's three
        options = (*options, "--model.loss.init_args.grades", "5")
    builtin = "synthetic-groups" if {"diverse", "rules"} & {*config.stem.split("-")} else "synthetic"
    return main(
        [
            "fit",
            *("--config", str(config), "--output", str(folder), "--data.fold", "null"),
            *("--data.builtin", builtin, "--trainer.enable_progress_bar", "false", *options),
        ]
    )


#: Of kinds of task, data and scorer, the others being drawn alike.
PICTURED = {"quickstart", "letor-svmmap-mlp", "letor-smoothgrad-linear", "ratings-synthetic", "text-rerank-tiny"}


needs_text = pytest.mark.needs("sentence_transformers", "bm25s", "Stemmer")


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "config",
    [pytest.param(path, id=path.stem, marks=needs_text if path.stem.startswith("text-") else ()) for path in CONFIGS],
)
@pytest.mark.needs("pytorch_lightning>=2.6")
def test_a_config_names_itself_and_trains_a_step(config, tmp_path, request):
    if config.stem not in PICTURED and "diverse" not in config.stem:
        request.getfixturevalue("no_pictures")
    assert f"runs/{config.stem}\n" in config.read_text()
    cli = train(config, tmp_path, "--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1")
    report = json.loads((run_in(tmp_path) / "metrics.json").read_text())
    assert report["parameters"]["loss"] == repr(cli.model.loss)
    assert all(parameter.isfinite().all() for parameter in cli.model.parameters())
    name = config.stem.removeprefix("letor-").removesuffix("-linear")
    if name in LOSSES:
        assert type(cli.model.loss) is LOSSES[name]


def test_losses_of_other_papers_have_configs():
    wanted = "ranksvm ranknet fidelity listnet listmle approxndcg softmax neuralndcg plrank lambdaloss"
    configured = {path.stem.removeprefix("letor-").removesuffix("-linear") for path in CONFIGS} & LOSSES.keys()
    assert configured >= {*wanted.split(), "squared", "classification", "ordinal", "precision-average"}


@pytest.mark.needs("pytorch_lightning>=2.6")
def test_thresholds_of_the_ordinal_loss_are_trained_and_kept(tmp_path):
    config = next(path for path in CONFIGS if path.stem == "letor-ordinal-linear")
    cli = train(config, tmp_path, "--trainer.max_epochs", "5")
    thresholds = cli.model.loss.thresholds().detach()
    assert not torch.allclose(thresholds, rs.OrdinalLoss(5).thresholds().detach(), atol=1e-3)
    kept = torch.load(run_in(tmp_path) / "checkpoints" / "best.ckpt", weights_only=True)["state_dict"]
    assert {"loss.first", "loss.steps"} <= set(kept)
    rs.load_scorer(run_in(tmp_path))
