"""Errors that would occur after training are raised before it, and a trained model is written before anything else can fail."""

import functools

import numpy as np
import pytest
import pytorch_lightning as pl
from programs import main, run_in

import rankstruct as rs
from rankstruct.cli import main as rankstruct
from rankstruct.commands import fit_exact
from rankstruct.estimators import LinearRanker

CONFIGS = {
    "fit.yaml": "model: {scorer: rankstruct.LinearScorer, measures: [MEASURE]}\ntrainer: {max_epochs: 1}\n",
    "exact.yaml": "ranker: {class_path: rankstruct.LinearRanker, init_args: {C: [1.0, 2.0]}}\nmeasures: [MEASURE]\n",
    "experiment.yaml": (
        "data: {protocol: folds, folds: [1]}\nmeasures: [MEASURE]\ntrainers: {mine: {trainer: hinge, measure: AP}}\n"
    ),
}


@pytest.fixture
def folder(tmp_path):
    """Three files, of which the test file has a label whose gain is no number; and configs that measure it."""
    (tmp_path / "Fold1").mkdir()
    for part in ("train", "vali", "test"):
        rng = np.random.default_rng(0)
        lines = [f"{at % 3} qid:{at // 6} 1:{rng.random():.3f} 2:{at % 5}" for at in range(60)]
        if part == "test":
            lines[7] = f"2000{lines[7][1:]}"
        (tmp_path / "Fold1" / f"{part}.txt").write_text("\n".join(lines) + "\n")
    for name, text in CONFIGS.items():
        (tmp_path / name).write_text(text)
    return tmp_path


def with_measure(folder, measure):
    for name, text in CONFIGS.items():
        (folder / name).write_text(text.replace("MEASURE", measure))


DATA = ["--data.path", "{folder}/Fold1"]
FOLDS = ["--data.path", "{folder}", "--folds", "1", "--processes", "0"]
COMMANDS = {
    "fit": ["--config", "{folder}/fit.yaml", *DATA],
    "fit-exact": ["--config", "{folder}/exact.yaml", *FOLDS],
    "experiment": ["--config", "{folder}/experiment.yaml", "--data.path", "{folder}", "--processes", "0"],
    "cross-validate": ["--config", "{folder}/fit.yaml", *FOLDS],
    "compare": ["--configs", "{folder}/fit.yaml", *FOLDS],
    "tune": ["--config", "{folder}/fit.yaml", "--space", "model.regularization=log:0.1,1", "--trials", "1", *FOLDS],
}


@pytest.mark.sampled(3)
@pytest.mark.usefixtures("no_pictures_here")
@pytest.mark.parametrize(
    "command",
    [pytest.param(name, marks=[] if number < 3 else [pytest.mark.slow]) for number, name in enumerate(COMMANDS)],
)
def test_labels_that_a_measure_does_not_take_are_found_before_training(command, folder, monkeypatch, capsys):
    def refusing(fit):
        @functools.wraps(fit)  # whose signature the parser looks at
        def train(*_, **__):
            raise AssertionError("it trains")

        return train

    args = [command, *(each.format(folder=folder) for each in COMMANDS[command]), "--output", str(folder / "out")]
    with_measure(folder, "nDCG@10")
    with monkeypatch.context() as patch:
        patch.setattr(pl.Trainer, "fit", refusing(pl.Trainer.fit))
        patch.setattr(LinearRanker, "fit", refusing(LinearRanker.fit))
        assert main(args) == 1
    message = capsys.readouterr().err
    assert "query '1', document 2 has label 2000 with gain inf" in message
    assert "or use nDCG(gain='linear')@10" in message
    with_measure(folder, "'nDCG(gain=''linear'')@10'")  # which is what it says
    assert main([*args[:-1], str(folder / "other")]) == 0


@pytest.mark.usefixtures("no_pictures_here")
def test_a_checkpoint_is_named_where_the_test_fails(folder, monkeypatch, capsys):
    with_measure(folder, "AP")

    @functools.wraps(pl.Trainer.test)
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(pl.Trainer, "test", full)
    args = [each.format(folder=folder) for each in COMMANDS["fit"]]
    assert rankstruct(["fit", *args, "--output", str(folder / "out")]) == 1
    path = run_in(folder / "out") / "checkpoints" / "best.ckpt"
    assert f"No space left on device; the model is trained and saved in {path}" in capsys.readouterr().err
    assert rs.load_scorer(path)


def test_a_ranker_is_written_before_the_log_of_its_training(folder, monkeypatch, capsys):
    with_measure(folder, "AP")

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(fit_exact, "_write_board", full)
    args = [each.format(folder=folder) for each in COMMANDS["fit-exact"]]
    assert rankstruct(["fit-exact", *args, "--output", str(folder / "out")]) == 1
    assert "No space left on device" in capsys.readouterr().err
    assert rs.load_scorer(folder / "out" / "exact" / "fold1")
    assert (folder / "out" / "exact" / "fold1" / "ranker.pkl").is_file()
