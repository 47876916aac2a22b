"""The search over a config's values: chosen by validation, resumable, pruned, and only the best is tested."""

import json
import subprocess
import sys
import time

import optuna
import pytest
import yaml
from cell_works import unfinished
from programs import run_in

from rankstruct.cli import main as rankstruct
from rankstruct.commands.cross_validate import SELECTION
from rankstruct.commands.tune import _try, parse_space, tune

pytestmark = pytest.mark.usefixtures("no_pictures_here")

CONFIG = """
seed_everything: 0
model:
  scorer: rankstruct.LinearScorer
  measures: [AP, nDCG@10]
  optimizer: {class_path: torch.optim.Adam, init_args: {lr: 0.1}}
data: {builtin: synthetic, lists_per_batch: 50}
trainer: {max_epochs: 2}
"""
TRIALS = 4
SPACE = ["model.optimizer.init_args.lr=log:1e-5,1", "model.scorer=choice:rankstruct.LinearScorer,rankstruct.MLPScorer"]


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("tune") / "config.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def searched(config):
    return config.parent / "out", tune(config, SPACE, output=config.parent / "out", trials=TRIALS, processes=0)


def _trials(found):
    return [{key: each[key] for key in ("trial", "point", "state", "curves")} for each in found["trials"]]


def test_the_best_by_validation_is_tested_and_nothing_else(searched, capsys):
    folder, found = searched
    assert [each["trial"] for each in found["trials"]] == [f"trial-{number:04}" for number in range(TRIALS)]
    assert {each["point"]["model.scorer"] for each in found["trials"]} == {
        "rankstruct.LinearScorer",
        "rankstruct.MLPScorer",
    }
    assert len({each["point"]["model.optimizer.init_args.lr"] for each in found["trials"]}) == TRIALS
    best = max(found["trials"], key=lambda each: each["validation"])
    assert found["best"] == {key: best[key] for key in ("trial", "point", "validation")}
    assert best["validation"] == max(best["curves"][0]) > min(each["validation"] for each in found["trials"])
    assert set(found["test"]["mean"]) == {"AP", "nDCG@10"}
    assert [path.relative_to(folder).parts[:2] for path in folder.rglob("metrics.json")] == [(best["trial"], "best")]
    assert not list(folder.glob("*/run/checkpoints"))
    assert json.loads((folder / "tune.json").read_text())["trials"] == found["trials"]

    # The config is complete, and trains to the very measure that it was chosen by.
    content = yaml.safe_load((folder / "best.yaml").read_text())
    assert content["model"]["optimizer"]["init_args"]["lr"] == best["point"]["model.optimizer.init_args.lr"]
    assert rankstruct(["fit", "--config", str(folder / "best.yaml"), "--output", str(folder.parent / "fitted")]) == 0
    report = json.loads((run_in(folder.parent / "fitted") / "metrics.json").read_text())
    assert report["best"]["validation"] == best["validation"]
    assert report["test"] == pytest.approx(found["test"]["mean"])


def test_tensorboard_has_a_table_of_values_and_measures(searched):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder, found = searched
    for each in found["trials"]:
        events = EventAccumulator(str(folder / each["trial"] / "run")).Reload()
        assert "_hparams_/session_start_info" in events.PluginTagToContent("hparams")
        best = EventAccumulator(str(folder / each["trial"] / "run" / "best")).Reload()
        assert best.Scalars("curves/AP")[-1].value == pytest.approx(each["validation"])


@pytest.mark.slow
def test_a_search_that_was_stopped_goes_on_to_the_same_trials(searched, config, tmp_path, capsys):
    given = {"output": tmp_path / "out"}
    tune(config, SPACE, trials=2, **given)  # in processes of their own
    unfinished(tmp_path / "out" / "trial-0001")
    before = (tmp_path / "out" / "trial-0000" / "result.json").stat().st_mtime_ns
    assert _trials(tune(config, SPACE, trials=TRIALS, processes=0, **given)) == _trials(searched[1])
    assert (tmp_path / "out" / "trial-0000" / "result.json").stat().st_mtime_ns == before

    arguments = [
        "tune",
        "--config",
        str(config),
        "--output",
        str(tmp_path / "out"),
        "--trials",
        str(TRIALS),
        "--processes",
        "0",
    ]
    spaces = [part for entry in SPACE for part in ("--space", entry)]
    assert rankstruct([*arguments, *spaces]) == 0
    out = capsys.readouterr().out
    assert f"\n{SELECTION}\n" in out
    assert f"{TRIALS} trials: {TRIALS} complete, 0 pruned, 0 failed" in out
    assert f"best: {searched[1]['best']['trial']}" in out
    assert rankstruct([*arguments, *spaces, "--seed", "1"]) == 1
    assert "holds a run that differs in seed" in capsys.readouterr().err


@pytest.mark.soak
@pytest.mark.parametrize("storage", ["sqlite:///{}/study.db", "{}/study.log"])
def test_searches_that_share_a_storage_do_each_trial_once(storage, config, tmp_path):
    storage = storage.format(tmp_path)
    given = [str(config), "--trials", str(TRIALS), "--storage", storage]
    spaces = [part for entry in SPACE for part in ("--space", entry)]
    command = ["tune", "--config", *given, "--output", str(tmp_path / "theirs"), "--processes", "0", *spaces]
    with subprocess.Popen([sys.executable, "-m", "rankstruct", *command]) as other:
        given = {"trials": TRIALS, "storage": storage, "processes": 0}
        ours = tune(config, SPACE, output=tmp_path / "ours", **given)
        assert other.wait(300) == 0
    theirs = json.loads((tmp_path / "theirs" / "tune.json").read_text())
    names = [path.parent.name for path in tmp_path.glob("*/trial-*/result.json")]
    assert len(names) == len(set(names)) == TRIALS
    if "sqlite" not in storage:  # a journal does not tell who is still alive, so none waits for the others
        return
    assert theirs["best"] == ours["best"]
    assert theirs["test"]["mean"] == ours["test"]["mean"]
    assert len({str(each["point"]) for each in theirs["trials"]}) == TRIALS
    assert sorted(names) == [each["trial"] for each in theirs["trials"]]


@pytest.mark.slow
def test_a_shared_search_does_the_trial_of_one_that_died(config, tmp_path, monkeypatch):
    monkeypatch.setattr("rankstruct.commands.tune._BEAT", 1)
    given = {"storage": f"sqlite:///{tmp_path}/study.db", "processes": 0, "output": tmp_path / "out"}
    tune(config, SPACE, trials=1, **given)
    study = optuna.load_study(study_name=config.stem, storage=given["storage"])
    left = study.ask(parse_space(SPACE))
    study._storage._backend.record_heartbeat(left._trial_id)  # once, and never again
    time.sleep(2.5)
    found = tune(config, SPACE, trials=3, **given)
    assert [each["trial"] for each in found["trials"]] == ["trial-0000", "trial-0002", "trial-0003"]
    assert left.params in [each["point"] for each in found["trials"]]
    with pytest.raises(ValueError, match="its study config differs in prune; use another storage, or rename"):
        tune(config, SPACE, trials=3, prune=False, **{**given, "output": tmp_path / "other"})
    with pytest.raises(ValueError, match="storage nosuch://x: "):
        tune(config, SPACE, trials=3, **{**given, "storage": "nosuch://x"})


@pytest.mark.slow
def test_hopeless_trials_are_pruned_by_the_mean_over_folds(config, tmp_path):
    fit = ["fit", "--config", str(config), "--trainer.enable_progress_bar", "false", "--trainer.max_epochs", "7"]
    point = {"model.optimizer.init_args.lr": 1e-5}

    def state(name, folds, others):
        found = _try(fit, str(tmp_path / name), point, folds, others)
        return found["state"], found["epochs"]

    assert state("none", [None], None) == ("complete", 7)
    assert state("worse", [None], [[[0.1] * 7]] * 5) == ("complete", 7)
    assert state("few", [None], [[[1.0] * 7]] * 4) == ("complete", 7)
    assert state("better", [None], [[[1.0] * 7]] * 5) == ("pruned", 6)
    assert state("folds", [None, None], [[[0.1] * 7, [1.0] * 7]] * 5) == ("pruned", 13)
    found = _try(fit, str(tmp_path / "mean"), point, [None, None], None)
    first, second = found["curves"]
    assert second == pytest.approx([(max(first) + value) / 2 for value in first])  # the same fold twice
    assert found["validation"] == pytest.approx(max(first))


@pytest.mark.slow
def test_trials_that_cannot_be_trained_do_not_end_the_search(config, tmp_path, capsys):
    space = [
        "model.scorer=choice:rankstruct.MLPScorer",
        "model.scorer.init_args.hidden=choice:[4],[8]",
    ]  # needs the first
    space += ["model.regularization=choice:-1,0.1"]
    found = tune(config, space, output=tmp_path / "some", trials=3, processes=0)
    states = {(each["point"]["model.regularization"], each["state"]) for each in found["trials"]}
    assert states == {("-1", "failed"), ("0.1", "complete")}
    with pytest.raises(
        ValueError, match="all of the first 2 trials failed: regularization must be a finite number of at least 0"
    ):
        tune(config, ["model.regularization=uniform:-2,-1"], output=tmp_path / "none", trials=2, processes=0)


@pytest.mark.parametrize("key", ["a", ""])
@pytest.mark.parametrize(
    "rest",
    ["", "log:1", "log:1,2,3", "int:1,x", "lg:1,2", "choice:", "choice:[1", "choice:1,1", "choice:{a: 1, a: 2}"],
)
def test_malformed_spaces_are_refused(key, rest):
    with pytest.raises(ValueError, match="--space takes KEY=log:LOW,HIGH"):
        parse_space([f"{key}={rest}"])


@pytest.mark.parametrize("space", ["a", "a=log:0,1", "a=uniform:1,1", "a=log:1,.inf", "a=uniform:.nan,1", "=log:1,2"])
def test_empty_ranges_are_refused(space):
    with pytest.raises(ValueError, match="--space takes KEY=log:LOW,HIGH"):
        parse_space([space])


def test_spaces_are_optunas_distributions():
    found = parse_space(["a=log:1e-4,1", "b=uniform:-1,1", "c=int:1,8", "d=choice:[64],[128, 64],null,relu,1e-4"])
    assert found["a"] == optuna.distributions.FloatDistribution(1e-4, 1, log=True)
    assert found["b"] == optuna.distributions.FloatDistribution(-1, 1)
    assert found["c"] == optuna.distributions.IntDistribution(1, 8)
    assert found["d"].choices == ("[64]", "[128, 64]", "null", "relu", "1e-4")


def test_wrong_usage_is_said_in_one_line(config, tmp_path, capsys, monkeypatch):
    def message(*more, code=1):
        arguments = ["tune", "--config", str(config), "--output", str(tmp_path / "out"), *more]
        if code == 2:
            with pytest.raises(SystemExit):
                rankstruct(arguments)
        else:
            assert rankstruct(arguments) == code
        (line,) = capsys.readouterr().err.splitlines()
        return line

    assert "there is no option 'model.regularisation'" in message("--space", "model.regularisation=log:1,2", code=2)
    assert "trainer.max_epochs: expected int or null, got many" in message(
        "--space", "trainer.max_epochs=choice:1,many", code=2
    )
    assert "empty search space" in message()
    good = ["--space", "model.regularization=log:1,2"]
    with pytest.raises(ValueError, match="trials must be an integer from 1, got 0"):
        tune(config, ["model.regularization=log:1,2"], output=tmp_path / "out", trials=0)
    assert "no such file or folder" in message(*good, "--data.builtin", "null", "--data.path", str(tmp_path / "none"))
    assert "expected a new key with values" in message(*good, *good)
    assert not (tmp_path / "out").exists()
    monkeypatch.setitem(sys.modules, "optuna", None)
    assert "pip install 'rankstruct[tune]'" in message(*good)
