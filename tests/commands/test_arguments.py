"""Bad arguments, full disks and Ctrl-C: one line that names what is wrong, no traceback, nothing lost."""

import re
import resource
import sys

import pytest
from pytorch_lightning import Callback

import rankstruct as rs
from rankstruct import cli
from rankstruct.commands._arguments import check_config

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
    """The exit status and the lines on stderr, but for what Lightning says of every run."""
    capsys.readouterr()
    try:
        status = cli.main(args)
    except SystemExit as end:
        status = end.code
    lines = capsys.readouterr().err.splitlines()
    return status, [
        line for line in lines if not line.startswith(("Seed set", "GPU available", "TPU available", "epoch "))
    ]


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
        ("trainer.accumulate_grad_batches", ["0"], "accumulate_grad_batches"),
        ("save_every_steps", ["-1"], "every_n_train_steps"),
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
        assert said in lines[0]
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
    ):
        status, lines = outcome(args, capsys)
        assert status == 1
        assert len(lines) == 1, lines
        assert said in lines[0]


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
            assert re.search(rf"{name}(/config)?\.yaml is no config: ", lines[0])
    assert not (tmp_path / "out").exists()
    fine = tmp_path / "fine.yaml"
    fine.write_text("a: &a [1, 2]\nb: [*a, *a]\n<<: {c: 1}\n")
    check_config(fine)
    status, lines = outcome(["fit", "--config", str(tmp_path / "broken.yaml")], capsys)
    assert re.search(r"broken.yaml is no config: not YAML \(.*, line 2, column \d+\)$", lines[0])


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("run")
    assert cli.main([*FIT, "--output", str(folder)]) == 0
    return folder / "version_0"


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
            assert f"{name}.ckpt is not a checkpoint that can be read" in lines[0]
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
    assert {path: path.read_bytes() for path in before} == before
    assert not list(run.rglob("*.part"))


@pytest.mark.parametrize(
    ("args", "where"),
    [
        (FIT, "rankstruct.training.module.RankingModule.training_step"),
        (["test"], "rankstruct.training.module.RankingModule.test_step"),
        (["validate"], "rankstruct.training.module.RankingModule.validation_step"),
        (["predict"], "rankstruct.training.module.RankingModule.predict_step"),
        (["certify"], "rankstruct.commands.certify.certify"),
        (["cross-validate", "--config", "./x", "--output", "x"], "rankstruct.commands.cross_validate.different_names"),
        (["compare", "--configs", "./x", "--output", "x"], "rankstruct.commands.compare.different_names"),
        (["rank", "x"], "rankstruct.commands.rank.find_files"),
        (
            ["tune", "--config", "./x", "--output", "x", "--space", "x=int:1,2"],
            "rankstruct.commands.tune.different_names",
        ),
        (["fit-exact", "--config", "./x"], "rankstruct.commands.fit_exact.different_names"),
        (["experiment", "--config", "./x"], "rankstruct.commands.experiment.read_plan"),
        (["evaluate", "x", "--labels", "x"], "rankstruct.commands.evaluate.evaluate_scores"),
        (["convert", "x"], "rankstruct.commands.conversion.convert_lists"),
        (["configs", "quickstart"], "rankstruct.commands.shipped.shipped_configs"),
        (["cache", "--clear"], "rankstruct.commands.kept.evict"),
        (["benchmark", "oracles"], "rankstruct.commands.benchmark._oracles"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
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
        f"rankstruct {args[0]}: stopped"
    ]


def test_every_command_is_interrupted_above():
    marks = test_ctrl_c_is_one_line_in_every_command.pytestmark[0].args[1]
    assert {args[0] for args, _ in marks} == set(cli.COMMANDS)
