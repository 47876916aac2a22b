"""The help of the training commands: short, and true."""

import inspect

import pytest

from rankstruct import losses
from rankstruct.cli import main
from rankstruct.commands._help import library_losses, with_full_losses
from rankstruct.commands.fit import _Parsed

GIVEN = ["fit", "--data.builtin", "synthetic", "--model.scorer", "LinearScorer"]


def told(args, capsys):
    with pytest.raises(SystemExit) as end:
        main(args)
    assert end.value.code == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
def test_help_is_short_and_names_scorers_and_losses(command, capsys):
    for task, scorer in ("ranking", "MLPScorer"), ("ratings", "MatrixFactorization"):
        text = told([command, "--task", task, "--help"], capsys)
        assert len(text.splitlines()) <= 150
        words = set(text.replace(",", " ").replace(";", " ").split())
        assert {scorer, *library_losses()} <= words
        assert {"--trainer.max_epochs", "--early_stopping.patience", "--run", "--model.loss.help"} <= words
        assert "torch.nn" not in text
        assert not {"RankingLoss", "HingeLoss", "PreparedScorer", "--checkpoint.mode"} & words


def test_all_options_of_a_group_are_told_by_its_own_help(capsys):
    text = told(["fit", "--trainer.help"], capsys)
    assert "--trainer.gradient_clip_algorithm" in text
    assert "--model.loss" not in text
    assert "--checkpoint.every_n_epochs" in told(["fit", "--checkpoint.help"], capsys)
    text = told(["fit", "--model.loss.help", "StructuredHingeLoss"], capsys)
    assert "--model.loss.feature_map" in text
    assert "how a ranking scores" in text


def test_every_loss_that_the_help_names_can_be_given_by_its_name():
    cli = _Parsed(GIVEN)
    parser = cli._parser("fit")
    needed = {
        "CombinedLoss": ["--model.loss.losses+=SquaredLoss"],
        "PerturbedLoss": ["--model.loss.loss=SquaredLoss"],
        "OrdinalLoss": ["--model.loss.grades=3"],
    }
    for name in library_losses():
        kind = getattr(losses, name)
        measure = inspect.signature(kind).parameters.get("measure")
        more = ["--model.loss.measure=AP"] if measure is not None and measure.default is measure.empty else []
        named = with_full_losses([*GIVEN[1:], f"--model.loss={name}", *more, *needed.get(name, [])])
        config = parser.parse_args(named)
        assert config.model.loss.class_path.rpartition(".")[2] == name
        assert config.model.scorer.class_path == "rankstruct.LinearScorer"


@pytest.mark.parametrize("wrong", ["trainer.max_epoch", "trainer.max_epoches", "model.regularisation", "modle.sparse"])
def test_an_option_that_is_nearly_right(wrong, tmp_path, capsys):
    """On the command line, where names cannot be abbreviated, and in a file."""
    group, _, name = wrong.partition(".")
    (tmp_path / "mine.yaml").write_text(f"{group}:\n  {name}: 3\n")
    for given in ([*GIVEN, f"--{wrong}", "3"], ["fit", "--config", str(tmp_path / "mine.yaml")]):
        with pytest.raises(SystemExit, match="2"):
            main(given)
        (line,) = capsys.readouterr().err.splitlines()
        assert wrong in line or group in line
        if group != "modle":
            right = {"trainer.": "trainer.max_epochs", "model.re": "model.regularization"}[wrong[:8]]
            assert line.endswith(f"; did you mean {right}?")


@pytest.mark.parametrize(
    ("option", "wrong", "right"),
    [("loss", "StructuredHingLoss", "StructuredHingeLoss"), ("scorer", "rankstruct.LinearScore", "LinearScorer")],
)
def test_a_name_that_is_nearly_right(option, wrong, right, capsys):
    with pytest.raises(SystemExit, match="2"):
        main([*GIVEN, f"--model.{option}", wrong])
    (line,) = capsys.readouterr().err.splitlines()
    assert wrong in line
    assert f"did you mean {right}?" in line
    assert f"--model.{option}.help NAME" in line


def test_defaults_are_told_once_and_only_where_there_are_some(capsys):
    text = " ".join(told(["tune", "--help"], capsys).split())
    assert "total number of trials (default: 30)" in text
    assert "folds of each trial (default: the config's) --" in text
    assert "may be repeated --" in text
    assert text.endswith("train every trial to its end")
    assert "(default: runs/exact)" in " ".join(told(["fit-exact", "--help"], capsys).split())
