"""The help of the training commands: short, and true."""

import inspect

import pytest
from torch import nn

from rankstruct import columns, losses, models
from rankstruct._lazy import public_names
from rankstruct.cli import main
from rankstruct.commands._options import TASKS, USUAL, cluster_parser, loss_names, parser_of, scorer_names
from rankstruct.commands._parser import with_full_losses
from rankstruct.commands.fit import _Parsed, task_of
from rankstruct.recommenders import factorization

GIVEN = ["fit", "--data.builtin", "synthetic", "--model.scorer", "LinearScorer"]


def told(args, capsys):
    with pytest.raises(SystemExit) as end:
        main(args)
    assert end.value.code == 0
    return capsys.readouterr().out


def classes(package, base, method):
    """The public classes of a package, with the arguments of a method."""
    kinds = {name: getattr(package, name) for name in public_names(package)}
    found = {name: kind for name, kind in kinds.items() if inspect.isclass(kind) and issubclass(kind, base)}
    return {name: set(inspect.signature(getattr(kind, method)).parameters) for name, kind in found.items()}


def test_losses_and_scorers_of_the_help_are_those_that_a_config_can_build():
    assert {role: ", ".join(columns.USUAL[role]) for role in USUAL} == USUAL
    of_labels = {name for name, taken in classes(losses, nn.Module, "forward").items() if "labels" in taken}
    assert set(loss_names()) == of_labels - {"HingeLoss", "RankingLoss", "AssignmentHingeLoss"}
    for task, package in (("ranking", models), ("ratings", factorization), ("implicit", factorization)):
        sizes = set(task_of(task).links.values())
        taken = classes(package, nn.Module, "__init__")
        trained = taken.keys() - {"NeighbourFactorization"}  # which is a start alone
        assert set(scorer_names(task)) == {name for name in trained if sizes <= taken[name]}


@pytest.mark.parametrize("task", [*TASKS])
def test_every_option_of_the_help_is_one_with_the_default_that_it_says(task):
    if task == "text":
        pytest.importorskip("sentence_transformers")
    scorer = {"ranking": "LinearScorer", "text": "CrossEncoderScorer"}.get(task, "MatrixFactorization")
    cli = _Parsed(["fit", "--task", task, "--model.scorer", scorer])
    real = {action.dest: action for action in cli._parser("fit")._actions}
    apart = {"help", "print_config", *(each.dest for each in cluster_parser()._actions)}
    shown = [each for each in parser_of("fit", ["--task", task])._actions if each.dest not in apart]
    assert {each.dest for each in shown} <= {*real}
    assert {name for name in real if name.startswith("model.") and name.count(".") == 1} <= {
        each.dest for each in shown
    }
    for each in shown:
        said = each.help.partition("(default: ")[2].removesuffix(")")
        default = real[each.dest].default
        if isinstance(default, bool | int | float | str) and each.dest not in ("task", "output"):
            assert said.lower() == (f"{default:g}" if isinstance(default, float) else str(default).lower()), each.dest
        elif isinstance(default, tuple | list) and default:
            assert said == ", ".join(default)


@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
def test_help_is_short_and_names_scorers_and_losses(command, capsys):
    for task, scorer in ("ranking", "MLPScorer"), ("ratings", "MatrixFactorization"):
        given = (
            ["--task", task]
            if command != "test"
            else ["--config", {"ranking": "quickstart"}.get(task, "ratings-synthetic")]
        )
        text = told([command, *given, "--help"], capsys)
        assert len(text.splitlines()) <= 150
        words = set(text.replace(",", " ").replace(";", " ").split())
        assert {scorer, *loss_names()} <= words
        assert {"--trainer.max_epochs", "--early_stopping.patience", "--run", "--model.loss.help"} <= words
        assert "torch.nn" not in text
        assert not {"RankingLoss", "HingeLoss", "PreparedScorer", "--checkpoint.mode"} & words


def test_the_help_of_an_unknown_task_is_refused(capsys):
    with pytest.raises(SystemExit, match="2"):
        main(["fit", "--task", "rating", "--help"])
    assert (
        "task must be one of ranking, ratings, implicit, text, got 'rating'; did you mean ratings?"
        in capsys.readouterr().err
    )


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
    for name in loss_names():
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
