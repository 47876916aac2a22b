"""Bad arguments, full disks and Ctrl-C: one line that names what is wrong, no traceback, nothing lost."""

import argparse
import json
import math
import re
import resource
import sys
from pathlib import Path

import pytest
import torch
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from programs import main, run_in, shown
from pytorch_lightning import Callback

import rankstruct as rs
from rankstruct import cli
from rankstruct.cli import main as rankstruct
from rankstruct.commands import _arguments as arguments
from rankstruct.commands._arguments import CommandParser, find_configs, shipped_configs
from rankstruct.configs import HelpfulParser, check_config, load_json, load_yaml, meant_option, read_config
from rankstruct.files import naming, whole_file
from rankstruct.training.datamodule import ListsDataModule

pytestmark = pytest.mark.usefixtures("no_pictures_here")

QUIET = ["--trainer.enable_progress_bar", "false"]
FIT = [
    "fit",
    "--data.builtin",
    "synthetic",
    "--model.scorer",
    "rankstruct.LinearScorer",
    "--trainer.max_epochs",
    "1",
    *QUIET,
]
SGD = ["--model.optimizer", "torch.optim.SGD", "--model.optimizer.lr"]


def outcome(args, capsys):
    """The exit status and the lines on stderr, without what Lightning prints in every run."""
    capsys.readouterr()
    try:
        status = main(args)
    except SystemExit as end:
        status = end.code
    lines = capsys.readouterr().err.splitlines()
    return status, [
        line for line in lines if not line.startswith(("Seed set", "GPU available", "TPU available", "epoch "))
    ]


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("option", "values", "said"),
    [
        ("data.lists_per_batch", ["0", "-3", "9e99", str(2**70)], "lists_per_batch"),
        ("data.documents_per_batch", ["0", "-1", str(2**63)], "documents_per_batch"),
        ("data.max_list_size", ["0", "-1", str(2**63)], "max_list_size"),
        ("model.measures", ["[]"], "measures"),
        ("model.measures", ["[nope]"], "unknown measure 'nope'"),
        ("seed_everything", ["-1", str(2**40), "x"], "seed_everything"),
        ("trainer.max_epochs", ["-5"], "max_epochs"),
        ("trainer.max_steps", ["-7"], "max_steps"),
        ("trainer.accelerator", ["gpus"], "gpus"),
        ("trainer.check_val_every_n_epoch", ["0"], "check_val_every_n_epoch"),
        ("trainer.accumulate_grad_batches", ["0", str(10**20)], "accumulate_grad_batches"),
        ("trainer.limit_train_batches", ["0", "1e-9"], "limit_train_batches"),
        ("trainer.limit_val_batches", ["0", "0.0", "1e-9"], "limit_val_batches"),
        ("trainer.limit_test_batches", ["1e-9"], "limit_test_batches"),
        ("trainer.max_epochs", ["0"], "max_epochs"),
        ("trainer.max_steps", ["0", "3"], "trainer.max_steps"),
        ("trainer.max_time", ["00:00:00:00"], "trainer.max_time"),
        ("trainer.check_val_every_n_epoch", ["2"], "before the first validation after 26 steps"),
        ("trainer.val_check_interval", ["0"], "val_check_interval"),
        ("trainer.gradient_clip_val", ["-1", ".nan"], "gradient_clip_val"),
        ("trainer.enable_checkpointing", ["false"], "enable_checkpointing"),
        ("trainer.logger", ["false", "rankstruct.nope"], "trainer.logger"),
        ("trainer.barebones", ["true"], "trainer.barebones"),
        ("trainer.devices", ["x"], "devices"),
        ("trainer.accelerator", ["tpu"], "torch_xla|tpu"),
        ("trainer.precision", ["8", "transformer-engine"], "precision|transformer_engine"),
        ("checkpoint.mode", ["min"], "checkpoint.mode must be max"),
        ("early_stopping.mode", ["min"], "early_stopping.mode must be max"),
        ("early_stopping.patience", ["-1"], "early_stopping.patience"),
        ("checkpoint.monitor", ["val/loss"], "checkpoint.monitor is set by model.measures"),
        ("model.optimizer", ["torch.optim.SparseAdam"], "SparseAdam with learning rate 0.001 cannot take a step: "),
        ("model.measures", ["[P@99999999999999999999]"], "the cut-off of P must be an integer from 1 to 2147483647"),
        ("save_every_steps", ["-1"], "save_every_steps must be an integer from 0"),
        ("calibrate", ["platt"], "calibrate: expected one of isotonic, sigmoid, beta, temperature or null, got platt"),
        ("model.regularization", ["nan", ".nan", ".inf", "-1"], "regularization"),
        (
            "checkpoint.filename",
            ["../best", "/tmp/best", "a/../../best"],
            "checkpoint.filename must stay in the run's folder",
        ),
        ("task", ["[1]", "cook"], "task must be one of ranking, ratings"),
        ("model.scorer", ["nowhere.Scorer"], "model.scorer"),
        ("model.loss", ["subprocess.Popen"], "model.loss"),
        ("model.optimizer", ["os.system"], "model.optimizer"),
        ("trainer.callbacks", ["subprocess.Popen"], "trainer.callbacks"),
        ("no.such", ["1"], "no.such"),
    ],
)
def test_an_option_that_is_wrong_is_named_in_one_line(option, values, said, tmp_path, capsys):
    for value in values:
        status, lines = outcome([*FIT, "--output", str(tmp_path), f"--{option}={value}"], capsys)
        assert status in (1, 2)
        assert len(lines) == 1, lines
        assert re.search(said, lines[0]) or said in lines[0]
        assert len(lines[0]) < 700
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_learning_rate_below_0_and_one_that_explodes(tmp_path, capsys):
    explode = [
        *FIT,
        *SGD,
        "1e30",
        "--model.loss",
        "rankstruct.SquaredLoss",
        "--output",
        str(tmp_path),
        "--trainer.max_epochs",
        "3",
    ]
    for args, said in (
        ([*FIT, *SGD, "-1", "--output", str(tmp_path)], "learning rate"),
        (explode, "Is the learning rate too high?"),
        (
            [*FIT, "--model.optimizer", "torch.optim.Adam", "--model.optimizer.lr", "1e38", "--output", str(tmp_path)],
            "Adam with learning rate 1e+38 cannot take a step: ",
        ),
    ):
        status, lines = outcome(args, capsys)
        assert status == 1
        assert len(lines) == 1, lines
        assert said in lines[0]


def told(args, capsys):
    """What a command that goes well prints."""
    capsys.readouterr()
    assert cli.main(args) == 0
    return capsys.readouterr().out


def test_runs_without_a_test_or_a_best_checkpoint_say_so_and_keep_what_was_trained(tmp_path, capsys):
    text = told([*FIT, "--output", str(tmp_path), "--trainer.limit_test_batches", "0"], capsys)
    run = run_in(tmp_path)
    assert "no test: trainer.limit_test_batches is 0" in text
    assert "means over" not in text
    assert json.loads((run / "metrics.json").read_text())["test"] == {}
    assert "means over 100 test lists" in told(
        ["test", "--run", str(run), *QUIET, "--trainer.limit_test_batches", "1.0"], capsys
    )

    text = told([*FIT, "--output", str(tmp_path), "--checkpoint.save_top_k", "0"], capsys)
    last = run_in(tmp_path, 1) / "checkpoints" / "last.ckpt"
    assert f"there is no best one to test; the last weights are in {last}" in text
    assert torch.load(last, weights_only=False)["global_step"] == 13

    text = told([*FIT, "--output", str(tmp_path), "--trainer.fast_dev_run", "true"], capsys)
    assert "nothing is saved" in text
    assert len(list(tmp_path.iterdir())) == 2  # not even a folder


def test_the_last_checkpoint_is_of_the_last_step_for_any_validation_interval(tmp_path, capsys):
    """Two epochs of 13 steps to a validation, and three in all; then by steps; then an end within an epoch."""
    for number, (best, last, more) in enumerate(
        [
            (26, 39, ["--trainer.check_val_every_n_epoch", "2", "--trainer.max_epochs", "3"]),
            (20, 26, ["--trainer.check_val_every_n_epoch", "null", "--trainer.val_check_interval", "20"]),
            (13, 17, ["--trainer.max_steps", "17", "--trainer.max_epochs", "9"]),
        ]
    ):
        epochs = [] if "--trainer.max_epochs" in more else ["--trainer.max_epochs", "2"]
        told([*FIT[:-4], *QUIET, *epochs, *more, "--output", str(tmp_path)], capsys)
        folder = run_in(tmp_path, number) / "checkpoints"
        steps = [torch.load(folder / f"{name}.ckpt", weights_only=False)["global_step"] for name in ("best", "last")]
        assert steps == [best, last]


def test_the_count_that_is_printed_is_that_of_the_lists_that_were_tested(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ListsDataModule, "evaluation_documents", 100)
    text = told([*FIT, "--output", str(tmp_path), "--trainer.limit_test_batches", "1"], capsys)
    few = int(re.search(r"means over (\d+) test lists", text)[1])
    assert 0 < few < 100
    run = run_in(tmp_path)
    for command, part in (("test", "test"), ("validate", "validation")):
        for limit, count in (("1", few), ("1.0", 100)):
            more = [f"--trainer.limit_{'val' if command == 'validate' else 'test'}_batches", limit]
            found = re.search(
                rf"means over (\d+) {part} lists", told([command, "--run", str(run), *QUIET, *more], capsys)
            )
            assert (int(found[1]) == count) if command == "test" or limit == "1.0" else 0 < int(found[1]) < 100


class Limited:
    """Takes a number of batches or a share of them."""

    def __init__(self, limit: float | int | None = None):
        self.limit = limit


def test_a_whole_number_stays_one_whatever_the_order_of_the_types():
    parser = HelpfulParser()
    parser.add_class_arguments(Limited, "data")
    for said, value in (("1", 1), ("1.0", 1.0), ("0.5", 0.5), ("null", None)):
        found = parser.parse_args(["--data.limit", said]).data.limit
        assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("grade", [0, 1])
def test_validation_lists_that_no_ranking_changes_are_an_error_before_training(grade, tmp_path, capsys):
    for part in ("train", "vali", "test"):
        labels = [grade] * 4 if part == "vali" else [1, 0, 0, 1]
        lines = [f"{label} qid:{q} 1:{q * label + 1}" for q in range(4) for label in labels]
        (tmp_path / f"{part}.txt").write_text("\n".join(lines))
    given = ["fit", "--data.path", str(tmp_path), *FIT[3:], "--output", str(tmp_path / "out")]
    status, lines = outcome(given, capsys)
    assert (status, len(lines)) == (1, 1)
    assert "expected validation lists whose AP depends on the ranking" in lines[0]
    assert "got 4 lists" in lines[0]
    assert not list((tmp_path / "out").iterdir())  # no folder of a run that never began


class Late(rs.losses.SquaredLoss):
    """NaN from the twentieth step on."""

    def forward(self, scores, labels, **lists):
        """The loss."""
        self.steps = getattr(self, "steps", 0) + scores.requires_grad
        return super().forward(scores, labels, **lists) * (math.nan if self.steps > 20 else 1.0)


def test_a_loss_that_becomes_nan_leaves_the_checkpoints_of_the_epoch_before(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "anything", sys.modules[__name__])
    status, lines = outcome(
        [*FIT[:-4], *QUIET, "--trainer.max_epochs", "3", "--model.loss", "anything.Late", "--output", str(tmp_path)],
        capsys,
    )
    assert (status, len(lines)) == (1, 1), lines
    assert "scores must be finite" in lines[0]
    for name in ("best", "last"):
        state = torch.load(run_in(tmp_path) / "checkpoints" / f"{name}.ckpt", weights_only=False)
        assert state["global_step"] == 13
        assert all(bool(value.isfinite().all()) for value in state["state_dict"].values())


class Anything(Callback):
    """Takes what a config says, of whatever class."""

    def __init__(self, thing: object = None, **more: object) -> None:
        self.thing = thing


def test_a_config_names_no_class_of_another_kind(tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "anything", sys.modules[__name__])
    made = tmp_path / "made"
    for path in ("subprocess.Popen", "pathlib.Path", "os.mkdir"):
        thing = f"{{class_path: {path}, init_args: {{args: [mkdir, {made}]}}}}"
        callback = f"[{{class_path: anything.Anything, init_args: {{thing: {thing}}}}}]"
        status, lines = outcome([*FIT, "--output", str(tmp_path / "runs"), f"--trainer.callbacks={callback}"], capsys)
        assert status in (1, 2)
        assert len(lines) == 1, lines
        assert path in lines[0]
        assert not made.exists()


def test_configs_that_explode_when_they_are_read(tmp_path, capsys):
    levels = [
        f"{after}: &{after} [{', '.join([f'*{name}'] * 9)}]" for name, after in zip("abcdefgh", "bcdefghi", strict=True)
    ]
    bad = {
        "bomb": "\n".join(["a: &a [1, 1, 1]", *levels]),
        "itself": "a: &a [1, *a]",
        "deep": "model: " + "[" * 20_000,
        "binary": b"model: \xff\xfe",
        "large": "# " + "x" * 2**20,
        "broken": "a: [1\nb: }",
    }
    for name, text in bad.items():
        path = tmp_path / f"{name}.yaml"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        run = tmp_path / name
        run.mkdir()
        (run / "config.yaml").write_bytes(path.read_bytes())
        for args in (
            ["fit", "--config", str(path)],
            ["predict", f"--run={run}"],
            ["compare", "--configs", str(tmp_path / "none.yaml"), str(path), "--output", str(tmp_path / "out")],
            ["fit-exact", "--config", str(path), "--output", str(tmp_path / "out")],
            ["experiment", "--config", str(path), "--output", str(tmp_path / "out")],
            ["cross-validate", "--config", str(path), "--output", str(tmp_path / "out")],
            ["certify", "--run", str(run)],
        )[: 2 if name in ("deep", "large", "broken") else None]:
            status, lines = outcome(args, capsys)
            assert status == 1
            assert len(lines) == 1
            assert re.search(rf"{name}(/config)?\.yaml is not a config: ", lines[0])
    assert not (tmp_path / "out").exists()
    fine = tmp_path / "fine.yaml"
    fine.write_text("a: &a [1, 2]\nb: [*a, *a]\n<<: {c: 1}\n")
    check_config(fine)
    status, lines = outcome(["fit", "--config", str(tmp_path / "broken.yaml")], capsys)
    assert re.search(r"broken.yaml is not a config: not valid YAML \(.*, line 2, column \d+\)$", lines[0])


@st.composite
def mappings(draw):
    """A mapping of mappings, lists and numbers, no key twice."""
    leaves = st.one_of(st.integers(), st.text(st.characters(codec="ascii", categories=["L"]), min_size=1, max_size=5))
    return draw(
        st.recursive(
            st.dictionaries(NAMES, leaves, min_size=1, max_size=4),
            lambda inner: st.dictionaries(
                NAMES, st.one_of(leaves, inner, st.lists(inner, max_size=2)), min_size=1, max_size=4
            ),
            max_leaves=12,
        )
    )


NAMES = st.text("abcdefg_", min_size=1, max_size=4).filter(lambda name: name not in ("_", "__"))


@settings(max_examples=30, deadline=None)
@given(mappings(), st.data())
def test_a_duplicate_key_is_named_with_both_lines(content, data):
    text = yaml.safe_dump(content, sort_keys=False, default_flow_style=False)
    assert load_yaml(text) == yaml.safe_load(text)
    lines = text.splitlines()
    at = data.draw(st.sampled_from([n for n, line in enumerate(lines) if re.match(r"[ -]*\w+:", line)]))
    before, name = re.match(r"([ -]*)(\w+):", lines[at]).groups()
    deeper = [
        n
        for n in range(at + 1, len(lines))
        if not lines[n].startswith(" " * (len(before) + 1))
        and not (lines[n].startswith(" " * len(before) + "- ") and lines[at].endswith(":"))
    ]
    again = deeper[0] if deeper else len(lines)
    lines.insert(again, f"{' ' * len(before)}{name}: 1")
    with pytest.raises(ValueError, match=rf"duplicate key (\S+\.)?{name} on lines {at + 1} and {again + 1}: "):
        load_yaml("\n".join(lines))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("{a: 1, 'a': 2}", "duplicate key a on line 1"),
        ('{"a": {"b": 1, "c": 2, "b": 3}}', "duplicate key a.b on line 1"),
        ("1: x\n0x1: y", "duplicate key 1 on lines 1 and 2"),
        ("a:\n  b: 1\na.b: 2", "duplicate key a.b on lines 2 and 3"),
        ("a.b: 1\na: {b: 2}", "duplicate key a.b on lines 1 and 2"),
        ("x: [{k: 1}, {k: 1,\n k: 2}]", "duplicate key x.1.k on lines 1 and 2"),
        ("a: &a {b: 1}\nc: {<<: *a, b: 1,\n b: 2}", "duplicate key c.b on lines 2 and 3"),
    ],
)
def test_keys_that_say_the_same_are_twice(text, name):
    with pytest.raises(ValueError, match=name):
        load_yaml(text)


def test_a_merged_key_may_be_replaced_and_occur_in_other_mappings():
    text = "a: &a {b: 1, c: {b: 1}}\nd: {<<: *a, b: 2}\ne: [*a, *a]\nf.b: 1\nf.c: 2"
    assert load_yaml(text) == yaml.safe_load(text)


def test_an_object_of_json_says_nothing_twice():
    assert load_json('{"a": [{"b": 1}, {"b": 2}]}') == {"a": [{"b": 1}, {"b": 2}]}
    with pytest.raises(ValueError, match="duplicate key 'b'"):
        load_json('{"a": [{"b": 1, "c": 0, "b": 2}]}')


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "Unexpected config"),
        ("- 1\n- 2\n", "Unexpected config"),
        (
            "model:\n  scorer: LinearScorer\n  regularization: 1e-3x\n",
            "c/x.yaml:3: model.regularization: expected float, got 1e-3x",
        ),
    ],
)
def test_what_is_wrong_in_a_config_in_another_folder_is_said(text, said, tmp_path, capsys, monkeypatch):
    """jsonargparse reads a config in its folder, from which the path on the command line leads elsewhere."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / "x.yaml").write_text(text)
    status, lines = outcome(["fit", "--config", "c/x.yaml", "--data.builtin", "digits", "--output", "out"], capsys)
    assert status != 0
    assert said in lines[0]


def test_a_config_that_says_something_twice_is_refused_by_every_command(tmp_path, capsys):
    path = tmp_path / "config.yaml"
    path.write_text("output: x\ntrainer: {max_epochs: 40}\ndata: {builtin: digits}\n\ntrainer:\n  max_epochs: 100\n")
    part = tmp_path / "part.yaml"
    part.write_text("max_epochs: 40\nmax_epochs: 100\n")
    out = ["--output", str(tmp_path / "out")]
    for args in (
        ["fit", "--config", str(path)],
        ["fit", f"--config={path}"],
        ["predict", "--run", str(tmp_path)],
        ["certify", "--run", str(tmp_path)],
        ["compare", "--configs", str(path), *out],
        ["cross-validate", "--config", str(path), *out],
        ["tune", "--config", str(path), "--space", "data.fold=int:1,2", *out],
        ["fit-exact", "--config", str(path), *out],
        ["experiment", "--config", str(path), *out],
    ):
        status, lines = outcome(args, capsys)
        assert (status, len(lines)) == (1, 1)
        assert f"{path}: duplicate key trainer on lines 2 and 5" in lines[0]
    for value, where in ((str(part), "on lines 1 and 2"), ("{max_epochs: 1, max_epochs: 2}", "on line 1")):
        status, lines = outcome([*FIT, "--trainer", value, *out], capsys)
        assert (status, len(lines)) == (1, 1)
        assert f"max_epochs {where}" in lines[0]
    assert not (tmp_path / "out").exists()


def test_shipped_configs_say_nothing_twice_and_read_as_they_did():
    for path in shipped_configs().values():
        assert read_config(path).keys() == yaml.safe_load(path.read_text()).keys()


@pytest.mark.parametrize(
    ("wrong", "right"),
    [
        ("modle", "model"),
        ("modle.loss", "model.loss"),
        ("optimizer.lr", "model.optimizer.lr"),
        ("optimizer", "model.optimizer"),
        ("max_epochs", "trainer.max_epochs"),
        ("max_epoch", "trainer.max_epochs"),
        ("trainer.max_epoch", "trainer.max_epochs"),
        ("traniner.max_epochs", "trainer.max_epochs"),
        ("lr", "model.optimizer.lr"),
        ("batch_size", "data.lists_per_batch"),
        ("seed", "seed_everything"),
        ("modle.loss.init_args.measure", "model.loss"),
        ("trianer.of.one.sort", "trainer"),
        ("zzz.qqq", ""),
        ("zzz.qqq.rrr", ""),
        ("model.zzz.init_args.measure", ""),
        ("zzz", ""),
    ],
)
def test_the_option_that_is_meant(wrong, right):
    names = ["config", "seed_everything", "model", "model.loss", "model.optimizer", "trainer", "trainer.max_epochs"]
    assert meant_option(wrong, [*names, "trainer.max_steps", "data.lists_per_batch", "data.path"]) == right


@pytest.mark.parametrize(
    ("command", "text", "said"),
    [
        (
            "fit",
            "data: {builtin: digits}\nmodle: {regularization: 1}",
            "2: there is no option 'modle.*; did you mean model.re",
        ),
        (
            "fit",
            "model:\n  regularisation: 1",
            "2: there is no option 'model.regularisation'; did you mean model.regulariz",
        ),
        (
            "fit",
            "model:\n  loss:\n    class_path: SmoothLoss\n    init_args: {mesure: AP}",
            "4: model.loss: SmoothLoss has no option 'mesure'; did you mean measure",
        ),
        (
            "fit",
            "model:\n  optimizer:\n    class_path: torch.optim.SGD\n    init_args:\n      momentun: 1",
            "5: model.optimizer: SGD has no option 'momentun'; did you mean momentum",
        ),
        (
            "fit",
            "trainer: {callbacks: [\n  {class_path: rankstruct.training.AnnealSigma, init_args: {sigm: 3}}]}",
            "2: trainer.callbacks: AnnealSigma has no option 'sigm'; AnnealSigma has epochs",
        ),
        ("fit", "model: {loss: SmothLoss}", "1: model.loss: there is no SmothLoss; did you mean SmoothLoss"),
        ("fit", "trainer:\n  precision: 16-mix", "2: trainer.precision: expected .*got 16-mix; did you mean 16-mixed"),
        ("fit", "trainer: {callbacks: [rankstruct.training.DCRound]}", "1: trainer.callbacks: .*did you mean DCRounds"),
        (
            "fit-exact",
            "ranker: LinearRanker\ndat: {builtin: digits}",
            "2: there is no option 'dat.builtin'; did you mean data.b",
        ),
        (
            "fit-exact",
            "ranker:\n  class_path: LinearRanker\n  init_args: {tolerence: 1}",
            "3: ranker: LinearRanker has no option 'tolerence'; did you mean tolerance",
        ),
        (
            "fit-exact",
            "ranker: {class_path: rankstruct.LinearRanker, init_args: {loss: {class_path: rankstruct.CombinedLoss, init_args: {\n"
            "  losss: [{class_path: rankstruct.StructuredHingeLoss, init_args: {measure: AP, reference: ideal}}]}}}}",
            "2: ranker.loss: CombinedLoss has no option 'losss'; did you mean losses",
        ),
        ("fit-exact", "rannker:\n  init_args: {measure: AP}", "2: there is no option 'rannker.*; did you mean ranker"),
        (
            "fit-exact",
            "ranker: {clas_path: rankstruct.LinearRanker}",
            "1: ranker: there is no key 'clas_path'; did you mean class_path",
        ),
        (
            "fit",
            "model:\n  loss: {class_path: ListNetLoss, intit_args: {}}",
            "2: model.loss: there is no key 'intit_args'; did you mean init_args",
        ),
        (
            "experiment",
            "trainrs: {a b: {trainer: hinge}}",
            "1: there is no option 'trainrs.a b.trainer'; did you mean trainers",
        ),
        (
            "fit-exact",
            "ranker: {class_path: rankstruct.LinearRnker}",
            "1: ranker: there is no .*did you mean LinearRanker",
        ),
        ("experiment", "trainer: {a: {trainer: hinge}}", "1: there is no option 'trainer.*; did you mean trainers"),
        ("experiment", "trainers: {a: {trainer: hing}}", " unknown trainer 'hing'; .*; did you mean hinge"),
        (
            "experiment",
            "trainers: {a: {trainer: hinge, mesure: AP}}",
            " trainers.a: trainer 'hinge' has no option 'mesure'; .*; did you mean measure",
        ),
        (
            "experiment",
            "trainers: {a: {trainer: hinge}}\ntest: wilcoxn",
            "2: test: expected one of .*; did you mean wilcoxon",
        ),
        (
            "experiment",
            "trainers: {a: {trainer: hinge}}\nbaselines: [b]\n",
            " baselines and reference: 'b' is none of the trainers a",
        ),
    ],
)
def test_an_unknown_key_is_named_with_its_line_and_the_nearest(command, text, said, tmp_path, capsys):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    status, (line,) = outcome([command, "--config", str(path), "--output", str(tmp_path / "out")], capsys)
    assert status in (1, 2)
    assert re.search(rf"{re.escape(str(path))}:{said}", line)


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["fit", "--conifg", "quickstart"], "did you mean --config?"),
        (["fit", "--config", "quickstart", "--lr", "1"], "there is no option 'lr'; did you mean model.optimizer.lr?"),
        (["fit", "--config", "quickstart", "--optimizer.lr", "1"], "did you mean model.optimizer.lr?"),
        (["fit", "--config", "quickstart", "--model.lr", "1"], "did you mean model.optimizer.lr?"),
        (["fit", "--config", "quickstart", "--data.batch_size", "1"], "did you mean data.lists_per_batch?"),
        (["fit", "--config", "quickstart", "--model.zzz", "1"], "'model.zzz'; model has loss, measures, optimizer, "),
        (
            ["fit", "--config", "quickstart", "--model.scorer", "torch.nn.Module"],
            "torch.nn.Module has no argument num_features, which the data set; scorers of this task: ContextScorer, ",
        ),
        (["fit", "--config", "quickstart", "--task", "rating"], "did you mean ratings?"),
        (["fit", "--config", "quickstart", "--model.schedule", "onlin"], "got onlin; did you mean online?"),
        (
            ["fit", "--config", "quickstart", "--model.loss", "LamdaLoss"],
            ": there is no LamdaLoss; did you mean LambdaLoss?",
        ),
        (
            ["fit", "--config", "quickstart", "--model.scorer", "LinearScore"],
            ": there is no LinearScore; did you mean LinearScorer?",
        ),
        (["fit", "--config", "quickstart", "--model.optimizer", "AdmW"], ": there is no AdmW; did you mean AdamW?"),
        (["fit", "--config", "quickstar"], "did you mean quickstart"),
        (["configs", "quikstart"], "did you mean quickstart"),
        (["cache", "--clea"], "did you mean --clear?"),
        (["certify", "--rn", "x"], "did you mean --run?"),
        (["convert", "x", "--outptu", "y"], "did you mean --output?"),
        (["benchmark", "oracls"], "did you mean oracles?"),
        (["benchmark", "losses", "--losses", "RankSMV"], "did you mean RankSVM?"),
        (["cross-validate", "--config", "quickstart", "--output", "x", "--fold", "1"], "did you mean --folds?"),
        (["cross-validate", "--config", "quickstart", "--output", "x", "--seed", "1"], "did you mean --seeds?"),
        (
            ["cross-validate", "--config", "quickstart", "--output", "x", "--trainer.max_epoch", "1"],
            "did you mean trainer.",
        ),
        (
            ["cross-validate", "--config", "quickstart", "--output", "x", "--grid", "modl.t0=1,2"],
            "there is no option 'modl.t0'; did you mean model.t0?",
        ),
        (["evaluate", "x", "--labels", "y", "--measures", "nDGC"], "did you mean nDCG?"),
    ],
)
def test_what_is_nearly_right_on_the_command_line(args, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    if args[0] == "evaluate":
        Path("x").write_text("1\n2\n")
        Path("y").write_text("1 qid:1 1:1\n0 qid:1 1:1\n")
    status, lines = outcome(args, capsys)
    assert status in (1, 2)
    assert said in lines[-1]
    assert not Path("out").exists()


def test_what_is_given_twice_is_refused(tmp_path, capsys):
    out = ["--output", str(tmp_path)]
    for args, said in (
        (["compare", "--configs", "quickstart", "--configs", "letor-mlp", *out], "--configs is given twice"),
        (["fit-exact", "--config", "exact-svmmap", "--config=exact-orm-ndcg-ideal", *out], "--config is given twice"),
        (
            ["cross-validate", "--config", "quickstart", *out, "--grid", "a=1", "--grid", "a=2"],
            "--grid: a is given twice",
        ),
        (["cross-validate", "--config", "quickstart", *out, "--folds", "1", "1"], "folds: 1 is given twice"),
        (
            ["cross-validate", "--config", "quickstart", *out, "--grid", "model.t0=1,1"],
            "t0: 1 is given twice",
        ),
        (["fit-exact", "--config", "exact-svmmap", *out, "--folds", "2", "3", "2"], "folds: 2 is given twice"),
    ):
        status, lines = outcome(args, capsys)
        assert status in (1, 2)
        assert said in lines[-1]
    parser = CommandParser()
    parser.add_argument("--many", action="append")
    parser.add_argument("--one", type=int)
    given = ["--many", "1", "--many", "2", "--one=3", "--theirs", "4", "--theirs", "5"]
    found, rest = parser.parse_known_args(given)
    assert (found, rest) == (argparse.Namespace(many=["1", "2"], one=3), ["--theirs", "4", "--theirs", "5"])


def test_a_pattern_of_configs_matches_all_of_them_in_either_form():
    expected = [str(path) for name, path in shipped_configs().items() if name.startswith("exact-orm")]
    assert len(expected) > 3
    for words in (["--configs", "exact-orm*"], ["--configs=exact-orm*"]):
        assert find_configs(["compare", *words, "--folds", "1"]) == ["compare", "--configs", *expected, "--folds", "1"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("run")
    assert cli.main([*FIT, "--output", str(folder)]) == 0
    return run_in(folder)


@pytest.mark.parametrize(
    "text",
    [
        "3",
        "[1]",
        "model: 3",
        "model: {}\ndata: {}\nseed_everything: x",
        "model: {scorer: 1}\ndata: 2\nseed_everything: 1",
    ],
)
def test_certify_of_a_config_that_is_no_run_s(text, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text(text)
    status, lines = outcome(["certify", "--run", str(tmp_path)], capsys)
    assert (status, len(lines)) == (1, 1)
    assert "config.yaml is not the config of a run" in lines[0]


def test_a_damaged_checkpoint_is_named_by_every_command(run, tmp_path, capsys):
    whole = {path: path.read_bytes() for path in (run / "checkpoints").iterdir()}
    at = max(content.rfind(b"\x00" * 64) for content in whole.values())
    weights = next(iter(rs.load_scorer(run).parameters())).detach().numpy().tobytes()
    for path, content in whole.items():
        at = content.index(weights)
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    try:
        for command, name in (
            ("fit", "last"),
            ("test", "best"),
            ("validate", "best"),
            ("predict", "best"),
            ("certify", "best"),
        ):
            status, lines = outcome([command, "--run", str(run), *([] if command == "certify" else QUIET)], capsys)
            assert (status, len(lines)) == (1, 1)
            assert f"{name}.ckpt is not a readable checkpoint" in lines[0]
            assert "checksum" in lines[0]
    finally:
        for path, content in whole.items():
            path.write_bytes(content)


def test_a_full_disk_is_one_line_and_keeps_what_is_there(run, tmp_path, capsys):
    before = {path: path.read_bytes() for path in run.rglob("*.*") if "tfevents" not in path.name and path.is_file()}
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    more = ["--run", str(run), *QUIET, "--trainer.max_epochs", "2", "--trainer.log_every_n_steps", "1000"]
    for args in (["fit", *more], ["predict", "--run", str(run), *QUIET]):
        resource.setrlimit(resource.RLIMIT_FSIZE, (100, hard))  # no file may become larger
        try:
            status, lines = outcome(args, capsys)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert (status, len(lines)) == (1, 1), lines
        assert "File too large" in lines[0]
        assert str(run) in lines[0]
    assert {path: path.read_bytes() for path in before} == before
    assert not list(run.rglob("*.part"))


@pytest.mark.parametrize("space", [0, 100, 5_000, 16_000])
def test_every_writer_names_the_file_if_the_disk_is_full(space, tmp_path):
    """Also by torch.save, which answers an error of its file with one of its own, and in text and bytes."""
    scorer, path = rs.MLPScorer(20, hidden=(100,)), tmp_path / "folder" / "scorer.pt"
    rs.save_scorer(scorer, path)
    before, (soft, hard) = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)

    def write(mode, text):
        with whole_file(path, mode) as file:
            file.write(text)

    for attempt in (
        lambda: rs.save_scorer(rs.MLPScorer(20, hidden=(200,)), path),
        lambda: write("w", "x" * 100_000),
        lambda: write("wb", b"x" * 100_000),
    ):
        resource.setrlimit(resource.RLIMIT_FSIZE, (space, hard))  # no file may become larger
        try:
            with pytest.raises(OSError, match=re.escape(f"File too large: '{path}'")):
                attempt()
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert path.read_bytes() == before
        assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_errors_that_are_no_errors_of_files_stay_what_they_are(tmp_path):
    for error in (RuntimeError("mine"), ValueError("mine"), OSError("mine"), KeyboardInterrupt()):
        with pytest.raises(type(error)) as found, naming(tmp_path):
            raise error
        assert found.value is error
    with pytest.raises(FileNotFoundError, match="'other'"), naming(tmp_path):
        raise FileNotFoundError(2, "No such file", "other")


@pytest.mark.parametrize(
    "message", ["CUDA out of memory. Tried", "[enforce fail] can't allocate memory: you tried", ""]
)
def test_no_memory_is_one_line_and_another_error_of_torch_is_not_hidden(message, monkeypatch, capsys):
    def fail(args):
        raise RuntimeError(message)

    monkeypatch.setattr("rankstruct.commands.configs.main", fail)
    if message:
        status, (line,) = outcome(["configs"], capsys)
        assert (status, line) == (1, f"rankstruct configs: out of memory: {message}")
    else:
        with pytest.raises(RuntimeError):
            cli.main(["configs"])


def test_averages_that_this_lightning_lacks_are_one_line_and_no_folder(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("rankstruct.training.callbacks.WeightAveraging", None)
    status, lines = outcome([*FIT, "--average_weights", "true", "--output", str(tmp_path / "runs")], capsys)
    assert status == 1
    assert lines[-1].startswith("rankstruct fit: averages of weights need pytorch-lightning 2.6 or later, this is 2.")
    assert lines[-1].endswith("or train without them, --average_weights false")
    assert not [*tmp_path.glob("runs/*")]


#: Where commands are interrupted in their work; any other while it reads its arguments.
INTERRUPTED = [
    (FIT, "rankstruct.training.module.RankingModule.training_step"),
    (["test"], "rankstruct.training.module.RankingModule.test_step"),
    (["validate"], "rankstruct.training.module.RankingModule.validation_step"),
    (["predict"], "rankstruct.training.module.RankingModule.predict_step"),
    (["certify"], "rankstruct.commands.certify.certify"),
    (["cross-validate", "--config", "./x", "--output", "x"], "rankstruct.commands.cross_validate.different_names"),
    (["compare", "--configs", "./x", "--output", "x"], "rankstruct.commands.compare.different_names"),
    (["rank", "x"], "rankstruct.commands.rank.find_files"),
    pytest.param(
        ["tune", "--config", "./x", "--output", "x", "--space", "x=int:1,2"],
        "rankstruct.commands.tune.different_names",
        marks=pytest.mark.needs("optuna"),
    ),
    (["fit-exact", "--config", "./x"], "rankstruct.commands.fit_exact.different_names"),
    (["experiment", "--config", "./x"], "papers.plan.read_plan"),
    (["evaluate", "x", "--labels", "x"], "rankstruct.commands.evaluate.evaluate_scores"),
    (["convert", "x"], "rankstruct.commands.convert.convert_lists"),
    (["configs", "quickstart"], "rankstruct.commands.configs.shipped_configs"),
    (["cache", "--clear"], "rankstruct.commands.cache.evict"),
    (["benchmark", "oracles"], "benchmark._oracles"),
]
_interrupted = {args[0] for args, _ in (getattr(each, "values", each) for each in INTERRUPTED)}
INTERRUPTED += [
    ([name], "argparse.ArgumentParser.parse_known_args") for name in cli.COMMANDS if name not in _interrupted
]


@pytest.mark.parametrize(("args", "where"), INTERRUPTED, ids=lambda value: value[0] if isinstance(value, list) else "")
def test_ctrl_c_is_one_line_in_every_command(args, where, run, tmp_path, capsys, monkeypatch):
    def interrupt(*given, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(where, interrupt)
    if len(args) == 1:
        args = [*args, "--run", str(run), *([] if args == ["certify"] else QUIET)]
    elif args is FIT:
        args = [*args, "--output", str(tmp_path)]
    status, lines = outcome(args, capsys)
    assert status == 130
    assert [line for line in lines if line.strip() and "Detected KeyboardInterrupt" not in line] == [
        f"{shown(args[0])}: stopped"
    ]


@pytest.mark.parametrize(
    ("command", "option", "least"),
    [
        ("convert", "--folds", 1),
        ("convert", "--num-features", 1),
        ("cross-validate", "--folds", 0),
        ("cross-validate", "--processes", 0),
        ("cross-validate", "--seeds", 1),
        ("compare", "--folds", 0),
        ("compare", "--processes", 0),
        ("compare", "--seeds", 1),
        ("fit-exact", "--folds", 1),
        ("fit-exact", "--processes", 0),
        ("rank", "--fold", 1),
        ("rank", "--seed", 0),
        ("tune", "--folds", 1),
        ("tune", "--processes", 0),
        ("tune", "--seed", 0),
        ("tune", "--seeds", 1),
        ("tune", "--trials", 1),
    ],
)
@pytest.mark.parametrize("value", ["least", "1.5", "two", "", "1_000"])
def test_an_integer_option_names_the_least_that_it_takes(command, option, least, value, capsys):
    value = str(least - 1) if value == "least" else value
    with pytest.raises(SystemExit, match="2"):
        rankstruct([command, f"{option}={value}"])
    assert capsys.readouterr().err.splitlines()[-1] == (
        f"rankstruct {command}: error: argument {option}: expected an integer from {least}, got '{value}'"
    )


def test_every_integer_option_has_a_least_value():
    plain = [
        path.name
        for path in Path(arguments.__file__).parent.glob("*.py")
        if re.search(r"^ +(parser|\w+)\.add_argument\(.*type=int[,)]", path.read_text(), re.MULTILINE)
    ]
    assert plain == ["fit.py"]  # of LightningCLI, whose own types check
