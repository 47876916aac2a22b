"""Every option of every command has an effect where it is accepted; elsewhere it is refused in one line.

A new option fails here until it is said in which modes of its command it has an effect.
"""

import pytest
from jsonargparse import Namespace

from rankstruct import cli
from rankstruct.commands._options import DATA_NEEDS, check_effects, cluster_parser, parser_of
from rankstruct.commands.fit import check_data, has_folds

#: By command: how its options are typed, its modes, and the options with an effect in each; "*" are those of every mode.
MODES = {
    "cache": {
        "": "--clear --limit=5G --warm=AP --sizes=100",
        "modes": {"": ""},
    },
    "certify": {"": "--tolerance=0.1", "modes": {"--run r": "--tolerance"}},
    "configs": {"": "--output=o", "modes": {"": "", "quickstart": "--output"}},
    "convert": {
        "": "--output=o --folds=1 --dtype=float16 --num-features=3 --real-labels --zero-based --group-file=g "
        "--label=y --qid=q --docid=d --categorical=c --shards=2",
        "modes": {
            "a.txt": "* --num-features --real-labels --zero-based --group-file",
            "a.csv": "* --num-features --real-labels",
            "folder": "* --num-features --real-labels --folds --zero-based --group-file",
            "tables": "* --num-features --real-labels --folds",
            "a.csv --shards 2": "*",
            "a.txt --shards 2": "* --num-features --real-labels --zero-based --group-file",
        },
        "*": "--shards --output --dtype --label --qid --docid --categorical",
    },
    "evaluate": {
        "": "--measures=AP --ties=input --empty=1 --convention=letor --real-labels --zero-based --label=y --qid=q "
        "--categorical=c --test=t --csv=c --json=j --constraints=a<=1 --columns=c",
        "modes": {
            "s --labels a.txt": "* --real-labels --zero-based --label --qid --categorical",
            "s --labels a.csv": "* --real-labels --label --qid --categorical",
            "s --labels a.parquet": "* --real-labels --label --qid --categorical",
            "r --qrels q": "*",
            "s s --labels a.csv": "* --real-labels --label --qid --categorical --test",
            "r r --qrels q": "* --test",
            "r --qrels q --constraints a<=1": "* --columns",
            "r --qrels q --convention letor": "--measures --csv --json --constraints",
        },
        "*": "--measures --ties --empty --convention --csv --json --constraints",
    },
    "fuse": {
        "": "--output=o --method=combsum --normalisation=sum --k=5 --qrels=q --measures=AP --loss=RankSVMLoss",
        "modes": {
            "a b": "--output --qrels --k --method",
            "a b --method combsum": "--output --qrels --normalisation",
            "a b --method combmnz --qrels q": "--output --measures --normalisation",
            "a b --qrels q": "--output --measures --k --method",
            "a b --method learned --qrels q": "--output --measures --loss",
            "a b --method fused.pt": "--output --qrels",
        },
    },
    "explain": {
        "": "--query=1 --documents=a&b --plot=a.png --label=y --qid=q --docid=d --categorical=c",
        "modes": {"r a.txt": "*", "r a.csv": "* --label --qid --docid --categorical"},
        "*": "--query --documents --plot",
    },
    "export": {
        "": "--check=a.txt --feature-names=a,b",
        "modes": {"r --engine solr --output m.json": "*", "r --engine onnx --output m.onnx": "*"},
        "*": "--check --feature-names",
    },
    "rank": {
        "": "--fold=1 --vali=v --test=t.csv --propensities=em --clip=0.1 --drop-missing --zero-based --label=y --qid=q "
        "--categorical=c --measures=AP --mode=fast --time-budget=1 --seed=1 --output=o --calibrate=sigmoid "
        "--cut-off=recall=.9 --constraints=a<=1 --columns=c",
        "modes": {
            "folder": "* --fold --zero-based --label --qid --categorical --vali --calibrate --cut-off",
            "tables": "* --fold --label --qid --categorical --vali --calibrate --cut-off",
            "--train a.txt": "* --zero-based --label --qid --categorical --vali --calibrate --cut-off",
            "--train a.csv": "* --label --qid --categorical --vali --calibrate --cut-off",
            "--clicks l.csv": "* --propensities --clip --vali",
            "--clicks l.csv --test a.csv": "* --propensities --clip --label --qid --categorical --vali",
            "--clicks l.csv --train a.csv": "* --propensities --clip --drop-missing --label --qid --categorical --vali",
            "--train a.csv --constraints a<=1": "* --label --qid --categorical --vali --calibrate --cut-off --columns",
            "--clicks l.csv --train a.txt": "* --zero-based --propensities --clip --drop-missing --label --qid "
            "--categorical --vali",
        },
        "*": "--test --measures --mode --time-budget --seed --output --constraints",
    },
    "tune": {
        "": "--space=a=int:1,2 --folds=1 --trials=3 --processes=1 --seed=1 --seeds=2 --no-prune --address=a:1 "
        "--storage=s",
        "modes": {
            "--config c --output o": "* --seed --storage",
            "--config c --output o --on ray": "* --seed --address",
            "--config c --output o --storage s": "*",
        },
        "*": "--space --folds --trials --processes --seeds --no-prune",
    },
    "cross-validate": {
        "": "--folds=1 --grid=a=1 --processes=1 --seeds=2 --address=a:1",
        "modes": {"--config c --output o": "*", "--config c --output o --on ray": "* --address"},
        "*": "--folds --grid --processes --seeds",
    },
    "compare": {
        "": "--folds=1 --grid=a=1 --processes=1 --seeds=2 --address=a:1",
        "modes": {"--configs c --output o": "*", "--configs c --output o --on ray": "* --address"},
        "*": "--folds --grid --processes --seeds",
    },
    "fit-exact": {
        "": "--folds=1 --processes=1 --output=o --on=dask --address=a:1",
        "modes": {
            "--config c --processes 0": "--folds --output",
            "--config c": "* --on",
            "--config c --on ray": "* --address",
        },
        "*": "--folds --processes --output",
    },
}


@pytest.fixture
def parse(monkeypatch, tmp_path):
    """Parse a command line in a folder with files; returns what is said, or "" if it is accepted, and the parser."""
    monkeypatch.chdir(tmp_path)
    for name, suffix in (("folder", "txt"), ("tables", "csv")):
        (tmp_path / name / "Fold1").mkdir(parents=True)
        (tmp_path / name / "Fold1" / f"train.{suffix}").write_text("")

    def parse(command, args):
        parser = parser_of(command)
        try:
            parser.parse_args(args)
        except ValueError as error:
            return str(error), parser
        return "", parser

    return parse


def test_every_command_has_its_modes():
    assert {*MODES, "fit", "validate", "test", "predict"} == set(cli.COMMANDS)


@pytest.mark.parametrize(
    ("command", "mode"),
    [pytest.param(name, mode, id=f"{name} {mode}") for name in MODES for mode in MODES[name]["modes"]],
)
def test_an_option_has_an_effect_or_is_refused(command, mode, parse):
    case = MODES[command]
    effective = case["modes"][mode].replace("*", case.get("*", "")).split()
    said, parser = parse(command, mode.split())
    assert said == ""
    options = {string for action in parser._actions for string in action.option_strings} - {"-h", "--help"}
    typed = {option.partition("=")[0]: option for option in case[""].split()}
    assert options <= {*typed, *(word for each in case["modes"] for word in each.split())}
    if command == "cache":  # exclude each other, as argparse says
        return
    for name, option in typed.items():
        if name in mode.split():
            continue
        option = option.replace("--test=t", "--test=wilcoxon") if command == "evaluate" else option
        said, _ = parse(command, [*mode.split(), *(word for part in option.split("=", 1) for word in part.split("&"))])
        if name in effective:
            assert said == "", option
        else:
            assert said.startswith(f"{name} has no effect with"), said
            assert said.endswith("; remove it")


@pytest.mark.parametrize("option", ["--workers=2", "--gpu", "--address=a:1"])
def test_an_option_of_a_cluster_has_an_effect_on_one(option):
    """Those of `fit`; the others are those of its config."""
    parser, config = cluster_parser(), ["--config", "quickstart", "--trainer.max_epochs=3"]
    options, rest = parser.parse_known_args([*config, "--on", "ray", option])
    name = option.partition("=")[0]
    assert (rest, str(vars(options)[name.strip("-")])) == (config, option.partition("=")[2] or "True")
    with pytest.raises(ValueError, match=f"^{name} has no effect without --on; remove it$"):
        parser.parse_known_args([*config, option])


#: Sections of data with which each of the options has an effect, and such with which it has none.
DATA = {
    "ranking": [
        ("parts", {"protocol": "cross-validation"}, {"protocol": "folds"}),
        *(
            (name, {"path": "folder"}, {"builtin": "digits"})
            for name in ("fold", "labels", "label", "qid", "categorical")
        ),
        ("cache", {"path": "folder"}, {"builtin": "digits"}),
        ("zero_based", {"path": "folder"}, {"path": "tables"}),
        ("keep_relevant", {"builtin": "digits", "max_list_size": 5}, {"builtin": "digits"}),
    ],
    "ratings": [
        ("format", {"path": "a.csv"}, {"builtin": "synthetic"}),
        ("scale", {"path": "a.csv"}, {"builtin": "synthetic"}),
        ("num_train", {"split": "weak"}, {"split": "fold"}),
        ("min_test", {"split": "strong"}, {"split": "fold"}),
        ("new_users", {"split": "strong"}, {"split": "weak"}),
        ("validation", {"split": "fold"}, {"split": "strong"}),
    ],
    "implicit": [
        ("times", {"path": "a.csv"}, {"builtin": "synthetic"}),
        ("min_rating", {"path": "a.csv"}, {"builtin": "synthetic"}),
        ("test_share", {"split": "time"}, {"split": "leave-one-out"}),
    ],
    "text": [("keep_relevant", {"max_list_size": 8}, {"max_list_size": None})],
}


@pytest.mark.parametrize("task", DATA)
def test_an_option_of_the_data_has_an_effect_or_is_refused(task, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.txt").write_text("")
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "train.csv").write_text("")
    names = {option.removeprefix("data.") for options in DATA_NEEDS[task] for option in options.split()}
    assert names == {name for name, _, _ in DATA[task]}
    for name, *sections in DATA[task]:
        known = {
            "path": None,
            "builtin": None,
            "protocol": "folds",
            "split": "weak",
            "max_list_size": None,
            "qid": None,
        }
        effects = []
        for section in sections:
            values = Namespace(task=task, data=Namespace(**known | section))
            effects.append(said_of(f"data.{name}", values))
        assert effects[0] == ""
        assert effects[1].startswith(f"--data.{name} has no effect with")
    if task == "ranking":  # groups may be numbers of features of any data
        for path, builtin in (("folder", None), ("tables", None), (None, "digits")):
            values = Namespace(
                task=task, data=Namespace(path=path, builtin=builtin, protocol="folds", max_list_size=None)
            )
            assert said_of("data.columns", values) == said_of("data.diversity_groups", values) == ""
    own = Namespace(task=task, data=Namespace(class_path="my.Module", init_args=Namespace()))
    assert said_of("data.parts", own) == said_of("data.scale", own) == ""


def said_of(option, config, command="fit"):
    """Why an option has no effect, or ""."""
    try:
        check_effects(command, [option], config)
    except ValueError as error:
        return str(error)
    return ""


def test_every_command_that_trains_nothing_refuses_options_of_training(tmp_path, capsys):
    config = Namespace(data=Namespace(class_path="my.Module"))
    for command in ("validate", "test", "predict"):
        for option in (
            "output",
            "checkpoint.filename",
            "early_stopping.patience",
            "trainer.max_epochs",
            "model.loss.measure",
        ):
            assert (
                said_of(option, config, command)
                == f"--{option} has no effect without training, by `rankstruct fit`; remove it"
            )
        for option in ("data.path", "data.fold", "model.scorer", "trainer.devices", "run", "ckpt_path"):
            assert said_of(option, config, command) == ""
    args = ["fit", "--model.scorer", "LinearScorer", "--data.builtin", "digits", "--output", str(tmp_path)]
    assert cli.main([*args, "--data.predict_path", "x.txt"]) == 1
    said = "--data.predict_path has no effect without `rankstruct predict`; remove it"
    assert capsys.readouterr().err == f"rankstruct fit: {said}\n"
    assert not [*tmp_path.iterdir()]


def test_a_built_in_set_has_no_folds():
    """Each would be the same data, and their mean and interval that of copies."""
    args = ["fit", "--model.scorer", "LinearScorer", "--data.builtin", "digits"]
    assert not has_folds(args)
    with pytest.raises(ValueError, match=r"data of digits have no folds, got fold 2; leave out the folds"):
        check_data(args, [2])
