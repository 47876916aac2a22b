"""The table of commands, and what all of them do with errors, wrong usage and Ctrl-C."""

import importlib
import subprocess
import sys
import types
from pathlib import Path

import pytest
from programs import SCRIPTS, main, run_in, shown

from rankstruct import cli
from rankstruct.commands.fit import _check_processes

CONFIGS = Path(__file__).parents[2] / "configs"


def test_every_module_with_a_main_is_a_command_with_a_line_of_help(capsys):
    modules = Path(cli.__file__).with_name("commands").glob("*.py")
    assert {path.stem for path in modules if "\ndef main(" in path.read_text()} == {m for m, _ in cli.COMMANDS.values()}
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
def test_a_command_follows_the_policy_for_errors(error, status, said, monkeypatch, capsys):
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


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("train", "fit"),
        ("evalute", "evaluate"),
        ("crossvalidate", "cross-validate"),
        ("config", "configs"),
        ("xyz", ""),
    ],
)
def test_an_unknown_command_says_what_was_meant(name, meant, capsys):
    assert cli.main([name, "--config", "quickstart"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"rankstruct: unknown command '{name}'" + (
        f"; did you mean {meant}?" if meant else "; see rankstruct --help"
    )


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_of_the_repository_is_named(name, capsys):
    assert cli.main([name, "--help"]) == 2
    said = f"rankstruct: unknown command '{name}'; it is a script of the repository: python scripts/{name}.py\n"
    assert capsys.readouterr().err == said
    assert Path(SCRIPTS[name].__file__) == CONFIGS.parent / "scripts" / f"{name}.py"


def test_more_processes_than_cores_are_refused_unless_asked_for(tmp_path, capsys):
    given = ["fit", "--config", "quickstart", "--output", str(tmp_path), "--trainer.accelerator", "cpu"]
    assert cli.main([*given, "--trainer.devices", "9999"]) == 1
    said = capsys.readouterr().err.splitlines()[-1]
    assert "trainer.devices 9999 would start 9999 processes on" in said
    assert "--trainer.strategy ddp" in said
    for config in ({"devices": "auto"}, {"devices": 1}, {"devices": 9999, "strategy": "ddp"}, {"devices": [0]}):
        _check_processes({"strategy": "auto", "accelerator": "cpu", **config})


@pytest.mark.parametrize("name", [name for name in (*cli.COMMANDS, *SCRIPTS) if name != "validate"])
def test_wrong_usage_ends_with_2(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, *{"cache": ["--limit"], "configs": ["--output"]}.get(name, [])])  # which need nothing
    assert end.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


def test_help_and_version_start_without_torch():
    code = """
import sys
from rankstruct.cli import COMMANDS, main
assert main(['--version']) == main(['--help']) == 0
print('loaded', *sys.modules)
for name in COMMANDS:
    try:
        main([name, '--help'])
    except SystemExit as end:
        assert end.code == 0
print('loaded', *sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    first, all_of_them = (set(line.split()) for line in done.stdout.splitlines() if line.startswith("loaded "))
    assert "rankstruct.cli" in first
    assert not {"torch", "numpy", "pytorch_lightning", "yaml"} & first
    assert not {"torch", "scipy", "sklearn", "pytorch_lightning", "yaml"} & all_of_them


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
        assert main([*command, "--output", str(output), "--data.path", path]) == 1
        errors = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("[1/1]")]
        assert len(errors) == 1
        assert errors[0].startswith(f"{shown(command[0])}: ")
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
        given = ["predict", "--run", str(run_in(tmp_path)), *quiet, "--data.predict_path", str(tmp_path / name)]
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


def test_a_warning_is_one_line_too(tmp_path):
    (tmp_path / "run").write_text("".join(f"{q} Q0 d 1 0.5 mine\n" for q in (1, 2)))
    (tmp_path / "qrels").write_text("1 0 d 1\n")
    command = [
        sys.executable,
        "-m",
        "rankstruct",
        "evaluate",
        str(tmp_path / "run"),
        "--qrels",
        str(tmp_path / "qrels"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stderr == (
        "rankstruct evaluate: warning: 1 of the 2 queries of the run (50.0%) are not in the qrels, such as '2': "
        "they are left out\n"
    )
