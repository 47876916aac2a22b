"""Configs by name: found, listed, copied; files of one's own come first."""

import importlib
from pathlib import Path

import pytest
import yaml

import experiment
from rankstruct import cli
from rankstruct.commands._arguments import as_typed, find_configs, shipped_configs, with_names
from rankstruct.commands.fit import complete_config

FOLDER = Path(__file__).parents[2] / "configs"


def test_names_patterns_and_files(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quickstart = str(FOLDER / "quickstart.yaml")
    assert find_configs(["fit", "--config", "quickstart"]) == ["fit", "--config", quickstart]
    assert find_configs(["fit", "--config=quickstart.yaml", "-c", "quickstart"]) == [
        "fit",
        "--config",
        str(quickstart),
        "-c",
        quickstart,
    ]
    assert find_configs(["compare", "--configs", "exact-orm-ndcg-1*", "quickstart", "--output", "quickstart"]) == [
        "compare",
        "--configs",
        *(str(FOLDER / f"exact-orm-ndcg-10-{name}.yaml") for name in ("ideal", "ideal-tied", "predicted")),
        quickstart,
        "--output",
        "quickstart",
    ]
    (tmp_path / "quickstart").write_text("task: ranking")
    for unchanged in ("quickstart", "configs/quickstart.yaml", "{trainer: {max_epochs: 1}}", ""):
        assert find_configs(["fit", "--config", unchanged]) == ["fit", "--config", unchanged]


def test_a_config_is_code_as_the_page_on_trust_says(tmp_path, monkeypatch, no_pictures):
    page = (FOLDER.parent / "docs" / "guides" / "trust.md").read_text()
    assert "**arbitrary code**: a config is code" in page
    (tmp_path / "anyones.py").write_text("called = []\ndef note(*args, **options):\n    called.append(args)\n")
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "mine.yaml").write_text(
        "model: {scorer: rankstruct.LinearScorer}\ndata: {builtin: synthetic}\n"
        "trainer: {max_epochs: 1, enable_progress_bar: false, callbacks: [{class_path: LambdaCallback, "
        "init_args: {setup: anyones.note}}]}\n"
    )
    assert cli.main(["fit", "--config", str(tmp_path / "mine.yaml"), "--output", str(tmp_path / "out")]) == 0
    assert importlib.import_module("anyones").called


def test_an_experiment_is_found_by_the_script_alone(monkeypatch, capsys):
    with pytest.raises(ValueError, match="neither a file nor a config listed by `rankstruct configs`"):
        find_configs(["fit", "--config", "experiment-wins"])
    got = []
    monkeypatch.setattr(
        "papers.plan.read_plan", lambda config, rest: got.append(config) or (_ for _ in ()).throw(ValueError)
    )
    assert experiment.main(["--config", "experiment-wins"]) == 1
    assert got == [str(FOLDER / "experiment-wins.yaml")]
    assert experiment.main(["--config", "experimnt-wins"]) == 1
    assert "experimnt-wins is neither a file nor one of this command's configs; did you mean experiment-wins" in (
        capsys.readouterr().err
    )
    typed = ["--config", "experiment-wins", "--output", "runs/a"]
    assert with_names(find_configs(typed, experiment.CONFIGS), experiment.CONFIGS) == typed


def test_an_unknown_name_is_refused_with_the_nearest(capsys):
    with pytest.raises(ValueError, match=r"neither a file nor a config .* did you mean quickstart"):
        find_configs(["fit", "--config", "quikstart"])
    assert cli.main(["cross-validate", "--config", "zzzzzz"]) == 1
    assert (
        capsys.readouterr().err
        == "rankstruct cross-validate: zzzzzz is neither a file nor a config listed by `rankstruct configs`\n"
    )


def test_the_list_has_every_config_and_what_it_does(capsys):
    assert cli.main(["configs"]) == 0
    rows = capsys.readouterr().out.splitlines()[2:]
    assert (
        [row.split()[0] for row in rows]
        == list(shipped_configs())
        == sorted(path.stem for path in FOLDER.glob("*.yaml") if not path.stem.startswith("experiment-"))
    )
    assert all(len(row.split(maxsplit=1)) == 2 and "rankstruct" not in row and "#" not in row for row in rows)


def test_one_is_printed_or_copied_but_never_over_a_file(tmp_path, capsys):
    assert cli.main(["configs", "quickstart"]) == 0
    text = (FOLDER / "quickstart.yaml").read_text()
    assert capsys.readouterr().out == text
    target = tmp_path / "mine.yaml"
    assert cli.main(["configs", "quickstart.yaml", "--output", str(target)]) == 0
    assert target.read_text() == text
    target.write_text("mine")
    assert cli.main(["configs", "quickstart", "--output", str(target)]) == 1
    assert target.read_text() == "mine"
    assert cli.main(["configs", "nothing"]) == 1
    assert "unknown config 'nothing'" in capsys.readouterr().err


def test_a_result_file_has_the_command_as_it_was_typed():
    typed = ["fit", "--config", "quickstart", "--output", "runs/a"]
    assert as_typed(find_configs(typed)) == ["rankstruct", *typed]


def test_options_that_only_the_papers_have_now_are_ignored_in_the_configs_of_earlier_runs(tmp_path, capsys):
    former = {"sizes": [10, 5, 35], "queries": 50, "documents": 100, "relevant": None}
    data = {"builtin": "synthetic", "prepare_train": [], "prepare_test": [], **former}
    config = {"model": {"scorer": "rankstruct.LinearScorer", "measures": ["AP"]}}
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump({**config, "data": data}))
    assert not {*former} & {*yaml.safe_load(complete_config(["fit", "--config", str(path)]))["data"]}
    path.write_text(yaml.safe_dump({**config, "data": {**data, "sizes": [4, 4, 4]}}))
    with pytest.raises(SystemExit):  # it had an effect
        complete_config(["fit", "--config", str(path)])
    assert "there is no option 'data.sizes'" in capsys.readouterr().err
