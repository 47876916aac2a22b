"""Every option that an error of a command names is one of that command; arguments of functions are no advice for its user."""

import ast
import contextlib
import inspect
import io
import pickle
import re
from functools import cache, partial
from pathlib import Path

import numpy as np
import pytest

import rankstruct
from rankstruct.checks import check_integers
from rankstruct.cli import COMMANDS, main
from rankstruct.commands._options import as_option, parser_of
from rankstruct.data import DataError, convert_lists, read_arrow, read_lists, read_rankdata, read_svmlight
from rankstruct.messages import SPELLING, ArgumentError, Way

READERS = (read_svmlight, read_arrow, read_rankdata, read_lists, convert_lists)
ARGUMENTS = {name for reader in READERS for name in inspect.signature(reader).parameters} - {"path", "source", "target"}
ARGUMENTS |= {"diversity_groups", "docids", "ties", "empty", "convention"}
NAMED = re.compile(rf"(?<![\w.(,'-])({'|'.join(sorted(ARGUMENTS))})=")
OPTION = re.compile(r"(?<![\w-])--[a-z][a-z_.-]*[a-z]")


@cache
def texts(folder):
    """By place the texts of all errors that the modules of a folder raise, what is filled in left out."""
    found = {}
    for path in sorted(Path(rankstruct.__file__).parent.joinpath(folder).rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Raise | ast.Return | ast.Assign | ast.Dict):
                for each in ast.walk(node):
                    if isinstance(each, ast.JoinedStr):
                        parts = [part.value if isinstance(part, ast.Constant) else "X" for part in each.values]
                        found[f"{path.name}:{each.lineno}"] = "".join(map(str, parts))
    return found


def test_errors_of_readers_name_their_arguments_by_the_helper_alone():
    """Otherwise a command would answer with an argument of a function."""
    assert len(texts("data")) > 50
    assert {place: text for place, text in texts("data").items() if NAMED.search(text)} == {}


#: An argument and a value that helps; in Python, as an option of `fit` and of `convert`, if there is one.
WAYS = [
    ("labels", "real", "labels='real'", "--data.labels real", "--real-labels"),
    ("label", "real", "label='real'", "--data.label real", "--label real"),
    ("zero_based", True, "zero_based=True", "--data.zero_based true", "--zero-based"),
    ("categorical", ["a b"], "categorical=['a b']", "--data.categorical 'a b'", "--categorical 'a b'"),
    ("num_features", None, "num_features=", None, "--num-features"),
    ("omitted", "zero", "omitted='zero'", None, None),
    ("fold", None, "fold=", "--data.fold", "--folds"),
    ("times", False, "times=False", "--data.times false", None),
    ("path", None, "path=", "--data.path", None),
]


@pytest.mark.parametrize(("name", "value", "argument", "of_fit", "of_convert"), WAYS)
def test_an_argument_is_named_as_it_is_typed(name, value, argument, of_fit, of_convert):
    way = Way(name, value, "{} takes any number", "correct it")
    error = pickle.loads(pickle.dumps(DataError("a.txt:1: expected a grade", way)))  # as from a worker process
    for command, named in ((None, argument), ("fit", of_fit), ("convert", of_convert), ("cache", None)):
        token = SPELLING.set(SPELLING.get() if command is None else partial(as_option, command))
        try:
            said = "correct it" if named is None else f"{named} takes any number"
            assert str(error) == f"a.txt:1: expected a grade; {said}"
            assert f"{error}; and more" == f"a.txt:1: expected a grade; {said}; and more"
        finally:
            SPELLING.reset(token)


def test_a_wrong_argument_is_named_as_it_is_typed():
    with pytest.raises(ArgumentError) as raised:
        check_integers(1, num_features=0)
    error = pickle.loads(pickle.dumps(raised.value))
    assert (error.argument, error.value) == ("num_features", 0)
    assert str(error) == "num_features must be an integer from 1, got 0"
    token = SPELLING.set(partial(as_option, "convert"))
    try:
        assert str(error) == "--num-features must be an integer from 1, got 0"
    finally:
        SPELLING.reset(token)


@cache
def help_of(command):
    """What a command's help lists, all groups of options."""
    shown = parser_of(command).format_help()
    for group in ("data.", "trainer.", "checkpoint.", "early_stopping.") if COMMANDS[command][0] == "fit" else ():
        out = io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
            main([command, f"--{group}help"])
        shown += out.getvalue()
    return shown


#: Commands that pass what they do not know to every training run, or that override a config with it.
PASS_ON = {"tune": "fit", "cross-validate": "fit", "compare": "fit", "fit-exact": "fit"}


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Files that something is wrong with, by name."""
    folder = tmp_path_factory.mktemp("files")
    rows = [f"{at % 2} qid:{at // 4} 1:{at}.5 2:{7 - at}" for at in range(12)]
    good = "\n".join(rows) + "\n"
    (folder / "good.txt").write_text(good)
    (folder / "docids.txt").write_text("\n".join(f"{row} # docid = d{at}" for at, row in enumerate(rows)) + "\n")
    (folder / "real.txt").write_text(good.replace("1 qid", "0.5 qid"))
    (folder / "zero.txt").write_text(re.sub(r" 1:", " 0:", good))
    (folder / "noqid.txt").write_text(re.sub(r" qid:\d", "", good))
    (folder / "mixed.txt").write_text(good.replace(" qid:2", "", 1))
    (folder / "wide.txt").write_text(good.replace("\n", " 3:1\n"))
    (folder / "damaged.txt").write_text("".join(f"1 qid:1 1:0 2:{at} 3:1\n" for at in range(1, 9)) + "1 qid:1 2:1\n")
    (folder / "large.txt").write_text("2" + "000 qid" + good[5:])
    np.savetxt(folder / "scores.txt", np.arange(12.0))
    (folder / "lists.csv").write_text("label,f0,f1\n1,2,3\n")
    (folder / "folds" / "Fold2").mkdir(parents=True)
    for part in ("train", "vali", "test"):
        (folder / "folds" / "Fold2" / f"{part}.txt").write_text(good)
        (folder / f"{part}.txt").write_text(good)
    (folder / "real").mkdir()
    for part in ("train", "vali", "test"):
        (folder / "real" / f"{part}.txt").write_text((folder / "real.txt").read_text())
    (folder / "one.yaml").write_text("ranker:\n  class_path: rankstruct.LinearRanker\n")
    return folder


FIT = ["--model.scorer", "LinearScorer", "--data.path"]
CASES = [
    *(["rank", "--train", f"{name}.txt"] for name in ("real", "zero", "noqid", "mixed", "damaged", "large")),
    ["rank", "--train", "lists.csv"],
    ["rank", "--train", "good.txt", "--test", "large.txt"],
    ["rank", "--train", "good.txt", "--test", "good.txt", "--measures", "alpha_nDCG"],
    ["rank", "folds"],
    ["rank", "folds", "--fold", "7"],
    ["rank", "good.txt"],
    ["rank", ".", "--fold", "1"],
    *(["evaluate", "scores.txt", "--labels", f"{name}.txt"] for name in ("real", "zero", "noqid", "damaged", "large")),
    ["evaluate", "scores.txt", "--labels", "good.txt", "--ties", "docid"],
    ["evaluate", "scores.txt", "--labels", "good.txt", "--empty", "error", "--measures", "P@1", "AP(min_relevant=9)"],
    ["evaluate", "scores.txt", "--labels", "docids.txt", "--convention", "letor", "--ties", "docid"],
    ["evaluate", "scores.txt", "--labels", "good.txt", "--measures", "alpha_nDCG"],
    *(["convert", f"{name}.txt"] for name in ("real", "zero", "noqid", "mixed", "damaged")),
    ["convert", "wide.txt", "--num-features", "2"],
    ["convert", "folds", "--output", "converted"],
    ["convert", "folds", "--output", "converted", "--folds", "7"],
    ["fit", *FIT, "nowhere"],
    ["fit", *FIT, "real"],
    ["fit", *FIT, "folds"],
    ["fit", *FIT, ".", "--data.fold", "1"],
    ["fit", *FIT, "."],  # and nothing is wrong but the measure
    ["fit-exact", "--config", "one.yaml", "--data.path", "real"],
    ["predict", "--model.scorer", "LinearScorer", "--data.path", "."],
]


#: Those of Lightning's parser are slow; one is enough.
SLOW = [case for case in CASES if case[0] in ("fit", "fit-exact", "predict")][1:]


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=[pytest.mark.slow] if case in SLOW else [], id=" ".join(case)) for case in CASES]
)
def test_an_option_that_an_error_names_is_one_of_the_command(case, files, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(files)
    args = [*case, *(["--output", str(tmp_path / "out")] if case[0] in ("rank", "fit", "fit-exact") else [])]
    args += ["--model.measures", "[alpha_nDCG]"] if case == ["fit", *FIT, "."] else []
    args += ["--processes", "0"] if case[0] == "fit-exact" else []
    assert main(args) == 1
    message = capsys.readouterr().err
    assert "Traceback" not in message
    assert not NAMED.search(message), message
    for option in OPTION.findall(message):
        known = help_of(PASS_ON.get(case[0], case[0])) + (help_of(case[0]) if case[0] in PASS_ON else "")
        known += "".join(help_of(each) for each in re.findall(r"`rankstruct ([a-z-]+) ", message))
        known += help_of("rank") if "to rankstruct rank" in message else ""
        assert re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", known), f"{option} of: {message}"
