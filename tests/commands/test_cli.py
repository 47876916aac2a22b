"""The table of commands, and what all of them do with errors, wrong usage and Ctrl-C."""

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest

from rankstruct import cli

CONFIGS = Path(__file__).parents[2] / "configs"


def test_every_command_is_a_module_with_a_line_of_help(capsys):
    assert cli.main(["--help"]) == 0
    printed = capsys.readouterr().out
    for name, (module, what) in cli.COMMANDS.items():
        assert f"{name} " in printed
        assert what in printed
        assert callable(importlib.import_module(f"rankstruct.commands.{module}").main)
    assert cli.main([]) == 2


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (None, 0, ""),
        (ValueError("wrong value"), 1, "rankstruct throw: wrong value\n"),
        (FileNotFoundError(2, "No such file", "x.txt"), 1, "rankstruct throw: [Errno 2] No such file: 'x.txt'\n"),
        (KeyboardInterrupt("stopped; 2 kept"), 130, "rankstruct throw: stopped; 2 kept\n"),
        (KeyboardInterrupt(), 130, "rankstruct throw: stopped\n"),
    ],
)
def test_a_new_command_is_a_file_and_a_line(error, status, said, monkeypatch, capsys):
    got = []

    def main(args):
        got.append(args)
        if error is not None:
            raise error

    module = types.ModuleType("rankstruct.commands.throw")
    module.main = main
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(cli.COMMANDS, "throw", ("throw", "raise an error"))
    assert cli.main(["throw", "--far"]) == status
    assert got == [["throw", "--far"]]
    assert capsys.readouterr().err == said


@pytest.mark.parametrize("name", [name for name in cli.COMMANDS if name != "validate"])
def test_wrong_usage_ends_with_2(name, capsys):
    with pytest.raises(SystemExit) as end:
        cli.main([name, *{"cache": ["--limit"], "configs": ["--output"]}.get(name, [])])  # which need nothing
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_the_table_itself_needs_no_torch():
    code = (
        "import sys, types\n"
        "sys.modules['rankstruct'] = package = types.ModuleType('rankstruct')\n"
        f"package.__path__ = [{str(Path(cli.__file__).parent)!r}]\n"
        "from rankstruct.cli import main\n"
        "assert main(['--version']) == main(['--help']) == 0\n"
        "assert 'torch' not in sys.modules and 'numpy' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)


@pytest.mark.parametrize(
    "command",
    [
        ["experiment", "--config", str(CONFIGS / "experiment-ranksvm.yaml")],
        ["fit-exact", "--config", str(CONFIGS / "exact-svmmap.yaml"), "--folds", "1"],
        ["cross-validate", "--config", str(CONFIGS / "letor-svmmap-linear.yaml"), "--folds", "1"],
        ["compare", "--configs", str(CONFIGS / "letor-svmmap-linear.yaml"), "--folds", "1"],
    ],
)
def test_data_that_are_not_there_are_said_before_anything_runs(command, tmp_path, capsys):
    output = tmp_path / "out"
    for path in ("/nowhere/letor", str(tmp_path)):
        assert cli.main([*command, "--output", str(output), "--data.path", path]) == 1
        errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("[1/1]")]
        assert len(errors) == 1
        assert errors[0].startswith(f"rankstruct {command[0]}: ")
        assert path in errors[0]
    assert not list(output.rglob("request.json"))
    assert not list(output.rglob("re*"))


def test_predict_of_a_bad_or_missing_file_is_one_line(tmp_path, capsys):
    run = ["--data.builtin", "synthetic", "--model.scorer", "rankstruct.LinearScorer", "--trainer.max_epochs", "1"]
    quiet = ["--trainer.enable_progress_bar", "false"]
    assert cli.main(["fit", *run, *quiet, "--output", str(tmp_path)]) == 0
    (tmp_path / "bad.txt").write_text("1 qid:1 1:abc\n")
    capsys.readouterr()
    for name in ("bad.txt", "missing.txt"):
        given = ["predict", "--run", str(tmp_path / "version_0"), *quiet, "--data.predict_path", str(tmp_path / name)]
        assert cli.main(given) == 1
        last = capsys.readouterr().err.splitlines()[-1]
        assert last.startswith("rankstruct predict: ")
        assert name in last
    assert cli.main(["test", "--run", str(tmp_path / "nothing")]) == 1
    assert "rankstruct test: " in capsys.readouterr().err


def test_ctrl_c_while_a_module_is_loaded(monkeypatch, capsys):
    def load(name):
        raise ImportError("initialization failed") from KeyboardInterrupt()

    monkeypatch.setattr("rankstruct.cli.importlib.import_module", load)
    assert cli.main(["fit"]) == 130
    assert capsys.readouterr().err == "rankstruct fit: stopped\n"
