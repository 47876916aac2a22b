"""Every command in the README, on the pages and for the papers' tables: options and configs exist, and quick ones run."""

import argparse
import re
import runpy
import shlex
import sys
from itertools import dropwhile
from pathlib import Path

import numpy as np
import pytest
from programs import SCRIPTS, run_in
from programs import main as program
from scripts_by_path import script

from papers.click_models import PositionModel, simulate_clicks
from papers.plan import read_plan
from rankstruct.cli import COMMANDS, main
from rankstruct.commands import cluster, fit_exact
from rankstruct.commands._arguments import find_configs
from rankstruct.commands._options import cluster_parser
from rankstruct.commands.fit import complete_config
from rankstruct.data import digits

pytestmark = pytest.mark.usefixtures("no_pictures_here")

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), *sorted((ROOT / "docs").glob("*/*.md"))]
RESULTS = ROOT / "docs" / "results"
OTHERS = {
    "pip",
    "pytest",
    "tensorboard",
    "sphinx-build",
    "g++",
    "gdb",
    "uvicorn",
    "docker",
    "dask",
    "ray",
    "curl",
    "vespa",
}
TRAINING = ("fit", "validate", "test", "predict")


def commands(path):
    """The command lines of a page's bash blocks, as words."""
    for block in re.findall(r"^```bash\n(.*?)^```", path.read_text(), flags=re.DOTALL | re.MULTILINE):
        for line in block.replace("\\\n", " ").splitlines():
            words = shlex.split(line, comments=True)
            while words:
                end = words.index("&&") if "&&" in words else len(words)
                yield words[:end]
                words = words[end + 1 :]


WRITTEN = [(f"{path.relative_to(ROOT)}: {shlex.join(words)}", words) for path in PAGES for words in commands(path)]
PAPERS = [each for entries in script("write_results").exhibits(RESULTS).values() for each in entries]
BEHIND = sorted({command for each in PAPERS for command in each.commands(RESULTS)})


class Parsed(Exception):
    """What a command was about to do."""


def options_of(command):
    """What the parser of a command makes of its arguments, the command being stopped when it has."""
    depth = 0

    def stopping(method):
        def parse(self, *args, **kwargs):
            nonlocal depth
            depth += 1
            try:
                found = method(self, *args, **kwargs)
            finally:
                depth -= 1
            if depth == 0:  # the outermost parser: that of a kind of benchmark is asked by its command's
                raise Parsed(*(found if isinstance(found, tuple) else (found, [])))
            return found

        return parse

    with pytest.MonkeyPatch.context() as patched:
        for name in ("parse_args", "parse_known_args"):
            patched.setattr(argparse.ArgumentParser, name, stopping(getattr(argparse.ArgumentParser, name)))
        with pytest.raises(Parsed) as stop:
            command()
    return stop.value.args


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run of two steps."""
    folder = tmp_path_factory.mktemp("runs")
    short = [
        "--trainer.max_epochs",
        "1",
        "--trainer.limit_train_batches",
        "1",
        "--trainer.enable_progress_bar",
        "false",
    ]
    assert main(["fit", "--config", "quickstart", "--output", str(folder), *short]) == 0
    return run_in(folder)


def check_training(args, run):
    """Parse a training command; `--run` is the run that there is."""
    if args[0] == "fit":
        args = ["fit", *cluster_parser().parse_known_args(args[1:])[1]]
    if "--run" in args:
        at = args.index("--run")
        args = [*args[:at], "--config", str(run / "config.yaml"), *args[at + 2 :]]
        args += ["--ckpt_path", str(run / "checkpoints" / "best.ckpt")]
    complete_config(find_configs(args))


def check_rest(name, options, rest):
    """What a command hands on to the runs that it starts."""
    configs = [options.config] if isinstance(getattr(options, "config", None), str) else []
    if name == "fit-exact":
        for config in options.config:
            fit_exact._parse(config, rest)
    elif name == "experiment":
        read_plan(options.config, rest)
    elif name in ("cross-validate", "compare", "tune"):
        tried = [f"--{key}={values[0]}" for key, values in getattr(options, "grid", [])]
        for entry in getattr(options, "space", []):
            key, _, values = entry.partition("=")
            tried.append(f"--{key}={re.split(r',(?![^[]*])', values.partition(':')[2])[0]}")
        for config in (configs or options.configs)[:2]:
            complete_config(["fit", "--config", config, *rest, *tried])
    else:
        assert not rest


NAMED = [*WRITTEN, *((f"papers.yaml: {command}", shlex.split(command)) for command in BEHIND)]
needs_text = pytest.mark.needs("sentence_transformers", "bm25s", "Stemmer")


@pytest.mark.parametrize(
    "words",
    [pytest.param(words, id=name, marks=needs_text if "--config text-" in name else ()) for name, words in NAMED],
)
def test_a_command_on_a_page_is_understood(words, run, monkeypatch):
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(cluster, "check_address", lambda on, address: None)
    words = list(dropwhile(lambda word: re.fullmatch(r"[A-Z_]+=.*", word), words))  # of the environment
    if words[0] == "torchrun":
        words = ["rankstruct", *words[words.index("rankstruct") + 1 :]]
    if words[0] == "python" and (name := Path(words[1]).stem) in SCRIPTS:
        assert words[1] == f"scripts/{name}.py"
        check_rest(name, *options_of(lambda: program([name, *words[2:]])))
        return
    if words[0] == "python":
        assert (ROOT / words[1]).is_file()
        monkeypatch.setattr(sys, "argv", words[1:])
        options_of(lambda: runpy.run_path(words[1], run_name="__main__"))
        return
    if words[0] != "rankstruct":
        assert words[0] in OTHERS
        return
    name, args = words[1], words[1:]
    if name == "--version":
        return
    assert name in COMMANDS
    if name in TRAINING and not (name == "predict" and "--output" in args):  # of shards, which has a parser of its own
        check_training(args, run)
    else:
        check_rest(name, *options_of(lambda: main(args)))


def test_pages_have_commands_of_all_kinds():
    assert len({words[1] for _, words in WRITTEN if words[0] == "rankstruct"} & COMMANDS.keys()) > 10
    assert {words[1] for _, words in WRITTEN if words[0] == "python"} >= {f"scripts/{name}.py" for name in SCRIPTS}


def write_log(folder):
    """A click log with features, the lists of its documents, and judged lists."""
    pd, rng = pytest.importorskip("pandas"), np.random.default_rng(0)
    features = rng.normal(size=(100, 2))
    labels = (features[:, 0] > 0.5).astype(int)
    table = pd.DataFrame(features, columns=["a", "b"])
    ids = {"qid": np.arange(100) // 5, "docid": np.arange(100), "label": labels}
    for name in ("lists", "judged"):
        table.assign(**ids).to_csv(folder / f"{name}.csv", index=False)
    rankers = rng.normal(size=(2, 100))
    log = simulate_clicks(PositionModel(), rankers, labels, np.arange(0, 101, 5), sessions=500)
    rows = {name: getattr(log, name) * 1 for name in ("query", "document", "position", "click", "session")}
    table.iloc[log.document].reset_index(drop=True).assign(**rows).to_csv(folder / "log.csv", index=False)


@pytest.fixture
def reader(tmp_path, monkeypatch, run):
    """A folder with the files that the pages' commands use."""
    monkeypatch.chdir(tmp_path)
    lists = digits().train.select(range(12))
    lines = [
        f"{int(label)} qid:{number} " + " ".join(f"{at}:{value:g}" for at, value in enumerate(row, start=1))
        for number, (first, last) in enumerate(zip(lists.offsets[:-1], lists.offsets[1:], strict=True))
        for label, row in zip(lists.labels[first:last][:20], lists.features[first:last][:20], strict=True)
    ]
    parts = {"train": lines[:120], "vali": lines[120:180], "test": lines[180:], "new": lines[180:]}
    for folder in (tmp_path / "FOLDER", tmp_path):
        folder.mkdir(exist_ok=True)
        for part, its in parts.items():
            (folder / f"{part}.txt").write_text("\n".join(its) + "\n")
    short = [f"{at % 2} qid:{at // 4} 1:{at % 2} {line.split(' ', 3)[3]}" for at, line in enumerate(lines)]  # 60 lists
    (tmp_path / "queries.txt").write_text("\n".join(short) + "\n")
    table = (
        pytest.importorskip("pandas")
        .DataFrame(
            {
                "relevance": [*range(4)] * 15,
                "clicks": [1, 0] * 30,
                "query": [i // 6 for i in range(60)],
                "shop_number": [7, 9, 8] * 20,
            }
        )
        .assign(session=lambda each: each["query"], brand=["acme", "bee", None, "cat", "dog"] * 12)
    )
    for name in ("train", "new"):
        table.to_csv(tmp_path / f"{name}.csv", index=False)
    table.to_parquet(tmp_path / "test.parquet")
    write_log(tmp_path)
    for at, name in enumerate(("scores", "mine", "theirs")):
        (tmp_path / f"{name}.txt").write_text("".join(f"{(7 + at) * i % 13}\n" for i in range(len(parts["test"]))))
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\nq1 0 d2 0\nq2 0 d1 2\n")
    (tmp_path / "documents.csv").write_text("docid,seller\nd1,a\nd2,b\n")
    (tmp_path / "run.txt").write_text("q1 Q0 d2 1 0.9 a\nq1 Q0 d1 2 0.3 a\nq2 Q0 d1 1 0.5 a\n")
    (tmp_path / "runs").mkdir()
    for name in ("quickstart", "letor-svmmap-linear"):
        (tmp_path / "runs" / name).mkdir()
        (tmp_path / "runs" / name / run.name).symlink_to(run)


QUICK = {
    "rankstruct --version": [],
    "rankstruct evaluate": [],
    "rankstruct cache": [],
    "rankstruct rank": ["--time-budget", "0"],
    "rankstruct predict": [],
    "rankstruct fit --config quickstart": [
        *("--trainer.max_epochs", "1", "--trainer.limit_train_batches", "1", "--trainer.enable_progress_bar", "false")
    ],
}


@pytest.mark.parametrize("beginning", QUICK)
def test_the_quick_ones_run(beginning, reader, capsys):
    said = [words for _, words in WRITTEN if shlex.join(words).startswith(beginning)]
    assert said
    for words in {tuple(words): None for words in said}:
        elsewhere = "--on" in words or any(word.startswith("s3://") for word in words)
        if "ddp" in words or elsewhere or ("predict" in words and re.search("ratings|implicit", " ".join(words))):
            continue
        cut_off = ["--train", "queries.txt", "--cut-off", "recall=.9"]
        trained = {"runs/rank": ["FOLDER"], "runs/table": ["--train", "train.csv"], "runs/shown": cut_off}
        if words[:3] == ("rankstruct", "predict", "--run") and words[3] in trained:
            assert main(["rank", *trained[words[3]], "--output", words[3], "--time-budget", "0"]) == 0
        assert main([*words[1:], *QUICK[beginning]]) == 0, capsys.readouterr().err
        assert capsys.readouterr().out
