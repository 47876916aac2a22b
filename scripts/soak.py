"""Kill every long command at random moments, again and again: `python scripts/soak.py --kills 100 --seed 0`.

A round starts a command, ends it by SIGKILL, SIGTERM or Ctrl-C at a random moment, one to three times, each time going on as its
documentation says, and then lets it finish. After each kill: no process of it is alive five seconds later, and every file it
keeps can be read. At the end its results equal, to the bit, those of a run that was left alone; seconds do not count.
Rounds of `fit-at-once` start a command four times at once where there is no cache, those of `fit-board` delete what TensorBoard
reads in mid-run: the results are the same too.

Data are generated. A long-running command is a line of `COMMANDS`. This runs on Linux.
"""

import argparse
import hashlib
import importlib
import json
import multiprocessing
import os
import pickle
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
import yaml

from rankstruct.commands._arguments import CommandParser
from rankstruct.data import RankingData, read_lists, synthetic
from rankstruct.progress import Progress
from rankstruct.text_tables import format_table

PATIENCE, LIMIT = 5, 600  # seconds until all is gone after a kill; and of a whole run
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)

FIT = """
seed_everything: 1
average_weights: true
save_every_steps: 7
model: {scorer: {class_path: rankstruct.MLPScorer, init_args: {dropout: 0.3}}, measures: [AP, RR@10], regularization: 0.001}
data: {lists_per_batch: 3, max_list_size: 20, cache: false}
early_stopping: {patience: 1000}
trainer: {max_epochs: 8, accelerator: cpu, enable_progress_bar: false}
"""
EXACT = """
ranker: {class_path: rankstruct.LinearRanker, init_args: {measure: AP, C: [0.1, 1.0, 10.0], tolerance: 1.0e-4}}
data: {cache: false}
"""
EXPERIMENT = """
data: {builtin: synthetic, folds: [1, 2, 3]}
seeds: 2
C: [1.0, 10.0]
baselines: [regression, chance]
trainers:
  SVMmap: {trainer: hinge, measure: AP}
  regression: {trainer: regression, alpha: 1.0}
  chance: {trainer: random}
"""
SPACE = ("--folds", "1", "--space", "model.regularization=log:0.001,1", "--trials", "4", "--trainer.max_epochs", "3")
GRID = ("--folds", "1", "2", "--grid", "model.regularization=0.001,0.1", "--trainer.max_epochs", "3")


def go_on_fit(arguments: Sequence[str], out: Path) -> Sequence[str]:
    """The newest run, from its last checkpoint; a new one where there is none yet."""
    runs = sorted(out.glob("[0-9]*_*/checkpoints/last.ckpt"))
    return ["fit", "--run", str(runs[-1].parents[1])] if runs else arguments


class Command(NamedTuple):
    """Arguments, in which {data}, {out} and {processes} are replaced, and those to go on with after a kill.

    The first is a command of rankstruct, or a script in this folder.

    What starts itself again, for more processes, is never forked. `weights` are those of `SIGNALS`.
    """

    arguments: str
    go_on: Callable[[Sequence[str], Path], Sequence[str]] = lambda arguments, out: arguments
    options: Sequence[str] = ()
    fresh: bool = False
    weights: Sequence[int] = (2, 1, 2)


COMMANDS = {
    "fit": Command("fit --config {data}/fit.yaml --data.path {data}/Fold1 --output {out}", go_on_fit),
    "fit-shards": Command("fit --config {data}/fit.yaml --data.path {data}/Shards --output {out}", go_on_fit),
    "fit-ddp": Command(
        "fit --config {data}/fit.yaml --data.path {data}/Fold1 --trainer.strategy ddp --trainer.devices 2 --output {out}",
        go_on_fit,
        fresh=True,
    ),
    "predict": Command("predict --run {out} --trainer.enable_progress_bar false"),
    "fit-exact": Command(
        "fit-exact --config {data}/exact.yaml --data.path {data} --folds 1 2 --processes {processes} --output {out}"
    ),
    "cross-validate": Command(
        "cross-validate --config {data}/fit.yaml --data.path {data} --processes {processes} --output {out}",
        options=GRID,
    ),
    "compare": Command(
        "compare --configs {data}/fit.yaml --data.path {data} --processes {processes} --output {out}", options=GRID
    ),
    "tune": Command(
        "tune --config {data}/fit.yaml --data.path {data} --processes {processes} --output {out}",
        options=SPACE,
        weights=(1, 1, 4),
    ),
    "rank": Command("rank {data}/Fold1 --output {out}", weights=(4, 1, 1)),
    "fit-at-once": Command(
        "fit --config {data}/fit.yaml --data.path {data}/Fold1 --data.cache true --output {out}", fresh=True
    ),
    "fit-board": Command("fit --config {data}/fit.yaml --data.path {data}/Fold1 --output {out}"),
    "convert": Command("convert {data} --output {out}"),
    "experiment": Command("experiment.py --config {data}/experiment.yaml --processes {processes} --output {out}"),
}


def write_lists_as_shards(folder: Path, data: RankingData) -> None:
    """Three files of whole lists, whose row groups end within lists."""
    folder.mkdir(parents=True)
    for number, lists in enumerate(np.array_split(np.arange(data.num_lists), 3)):
        some = data.select(lists)
        features = {f"f{at}": some.features[:, at] for at in range(some.num_features)}
        rows = {"qid": some.list_numbers + lists[0], "label": some.labels, **features}
        pq.write_table(pa.table(rows), folder / f"{number}.parquet", row_group_size=37)


def write_data(folder: Path) -> None:
    """Two folds of small lists, and the configs."""
    for fold in (1, 2):
        (folder / f"Fold{fold}").mkdir(parents=True)
        _, weights = synthetic(features=4, seed=0)
        for number, part in enumerate(("train", "vali", "test")):
            data, _ = synthetic(lists=15, features=4, seed=10 * fold + number, weights=weights)
            rows = []
            for query, (first, last) in enumerate(pairwise(data.offsets.tolist())):
                for label, row in zip(
                    data.labels[first:last].tolist(), data.features[first:last].tolist(), strict=True
                ):
                    values = " ".join(f"{i}:{x:.5f}" for i, x in enumerate(row, start=1))
                    rows.append(f"{label:g} qid:{query} {values}\n")
            (folder / f"Fold{fold}" / f"{part}.txt").write_text("".join(rows))
            if fold == 1:
                write_lists_as_shards(folder / "Shards" / part, data)
    for name, text in (("fit", FIT), ("exact", EXACT), ("experiment", EXPERIMENT)):
        (folder / f"{name}.yaml").write_text(text)


# ----------------------------------------------------------------------------------------------------------------------
# Processes


class Started:
    """A command in a session of its own, from a fresh interpreter or (`fork`) from this one, which has imported everything."""

    def __init__(
        self, arguments: Sequence[str], log: Path, *, fork: bool, environment: Mapping[str, str] | None = None
    ) -> None:
        self.log, self._code = log, None
        with log.open("wb") as file:
            if not fork:
                script = arguments[0].endswith(".py")
                program = (
                    [str(Path(__file__).with_name(arguments[0]))] if script else ["-m", "rankstruct", arguments[0]]
                )
                command = [sys.executable, *program, *arguments[1:]]
                given = os.environ | (environment or {})
                self._popen = subprocess.Popen(command, stdout=file, stderr=file, start_new_session=True, env=given)
                self.pid = self._popen.pid
                return
            self._popen = None
            self.pid = os.fork()
            if self.pid == 0:
                _be(arguments, file.fileno())

    def ended(self) -> int | None:
        """The exit code, as `subprocess` has it; None while it runs."""
        if self._popen is not None:
            return self._popen.poll()
        if self._code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if pid else None
        return self._code

    def __enter__(self) -> "Started":
        return self

    def __exit__(self, *error: object) -> None:
        for pid in self.others():
            os.kill(pid, signal.SIGKILL)
        self.wait(PATIENCE)

    def wait(self, seconds: float, until: Callable[[], bool] = lambda: False) -> bool:
        """Wait for the end, or for `until`; whether it came."""
        end = time.monotonic() + seconds
        while self.ended() is None and not until():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True

    def others(self) -> list[int]:
        """Processes of its session that are alive."""
        return [pid for pid, session in _sessions() if session == self.pid]


def _be(arguments: Sequence[str], log: int) -> None:
    """Become the command; never returns."""
    code = 1
    try:
        os.setsid()
        os.dup2(log, 1)
        os.dup2(log, 2)
        sys.stdout = sys.stderr = open(1, "w", closefd=False)  # noqa: SIM115
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if arguments[0].endswith(".py"):
            code = importlib.import_module(arguments[0].removesuffix(".py")).main(arguments[1:])
        else:
            code = importlib.import_module("rankstruct.cli").main(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        sys.stdout.flush()
        os._exit(code)


def _sessions() -> list[tuple[int, int]]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            if fields[0] != "Z":
                found.append((int(entry.name), int(fields[3])))
    return found


# ----------------------------------------------------------------------------------------------------------------------
# Files


def unreadable(folder: Path) -> list[str]:
    """Files that are not whole, with what is wrong; those that say they are partial do not count."""
    said = {path.name: damage(path) for path in sorted(folder.rglob("*"))}
    return [f"{name}: {what}" for name, what in said.items() if what]


def damage(path: Path) -> str:
    """What is wrong with a file."""
    try:
        if path.suffix == ".json":
            json.loads(path.read_text())
        elif path.suffix == ".jsonl":
            [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
        elif path.suffix in (".ckpt", ".pt"):
            torch.load(path, weights_only=True, map_location="cpu")
        elif path.suffix == ".rankdata":
            read_lists(path)
        elif path.suffix == ".pkl":
            pickle.loads(path.read_bytes())
        elif path.suffix == ".yaml":
            return "" if isinstance(yaml.safe_load(path.read_text()), dict) else "empty"
        elif path.suffix in (".png", ".csv", ".md", ".txt", ".html"):
            return "" if path.stat().st_size else "empty"
    except Exception as error:
        return f"{type(error).__name__} {str(error)[:80]}"
    return ""


def results(folder: Path) -> dict[str, Any]:
    """What a command is run for, file by file."""
    runs = sorted(folder.glob("[0-9]*_*"))
    root = runs[-1] if runs else folder
    found: dict[str, Any] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.suffix == ".json" and path.name != "request.json":
            found[name] = _timeless(json.loads(path.read_text()))
        elif path.suffix == ".jsonl":
            lines = [_timeless(json.loads(line)) for line in path.read_text().splitlines()]
            found[name] = sorted(json.dumps(line, sort_keys=True) for line in lines)
        elif path.suffix == ".ckpt":
            content = torch.load(path, weights_only=True, map_location="cpu")
            kept = hashlib.sha256(b"".join(v.numpy().tobytes() for v in content["state_dict"].values())).hexdigest()
            found[name] = [kept, content.get("epoch"), content.get("global_step")]
        elif path.suffix in (".rankdata", ".pt"):
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
        elif path.suffix in (".csv", ".txt") and path.stem not in ("times", "split"):
            found[name] = path.read_text()
    return found


def _timeless(value: Any) -> Any:
    """Without what depends on the clock and on kills."""
    if isinstance(value, dict):
        dropped = ("seconds", "reused", "date", "command")
        if set(value) == {"header", "rows"}:
            of_time = ("seconds", "in argmax", "in QP")
            kept = [i for i, name in enumerate(value["header"]) if not any(word in name for word in of_time)]
            return [[str(row[i]) for i in kept] for row in (value["header"], *value["rows"])]
        return {key: _timeless(each) for key, each in value.items() if not any(word in key for word in dropped)}
    return [_timeless(each) for each in value] if isinstance(value, list) else value


# ----------------------------------------------------------------------------------------------------------------------
# Rounds


class Whole(NamedTuple):
    """A run that was left alone: its results, the seconds to its first file, and those to its end."""

    results: dict[str, Any]
    begun: float
    ended: float


class Bench(NamedTuple):
    """Where rounds are run, and how."""

    folder: Path
    processes: int
    fork: bool

    def start(
        self, name: str, arguments: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> Started:
        """Start a command."""
        return Started(arguments, log, fork=self.fork and not COMMANDS[name].fresh, environment=environment)

    def arguments(self, name: str, out: Path) -> list[str]:
        """Of a command's first start, for which `out` is made ready."""
        command = COMMANDS[name]
        if name == "predict":
            shutil.copytree(sorted((self.folder / "fit-whole").glob("[0-9]*_*"))[-1], out)
        given = {"data": str(self.folder / "data"), "out": str(out), "processes": str(self.processes)}
        return [*command.arguments.format(**given).split(), *command.options]


def newest(folder: Path) -> float:
    """When a file in a folder was last changed."""
    return max(map(_changed, folder.rglob("*")), default=0.0)


def _changed(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:  # renamed meanwhile
        return 0.0


def run_whole(bench: Bench, name: str) -> Whole:
    """Run a command once, without a kill."""
    out = bench.folder / f"{name}-whole"
    arguments = bench.arguments(name, out)
    before, start = newest(out), time.monotonic()
    with bench.start(name, arguments, bench.folder / f"{name}-whole.log") as process:
        process.wait(LIMIT, lambda: newest(out) > before)
        begun = time.monotonic() - start
        process.wait(LIMIT)
        if process.ended() != 0:
            raise SystemExit(f"{name} ended with {process.ended()}: {process.log.read_text()[-2000:]}")
    return Whole(results(out), begun, time.monotonic() - start)


def kill(
    process: Started, length: Whole, out: Path, rng: Random, weights: Sequence[int]
) -> tuple[signal.Signals | None, list[str]]:
    """Let a process run for a random while and end it; how (None if it was faster), and what was wrong after that."""
    moment = rng.random()
    if rng.random() < 0.15:
        process.wait(moment * length.begun)
    else:
        before = newest(out)
        process.wait(LIMIT, lambda: newest(out) > before)
        process.wait(moment * (length.ended - length.begun))
    if process.ended() is not None:
        return None, []
    how = rng.choices(SIGNALS, weights)[0]
    if how == signal.SIGINT and rng.random() < 0.5:
        os.killpg(process.pid, how)  # as a terminal does
    else:
        os.kill(process.pid, how)
    wrong = [] if process.wait(2 * PATIENCE) else [f"ignores {how.name}"]
    end = time.monotonic() + PATIENCE
    while (left := process.others()) and time.monotonic() < end:
        time.sleep(0.05)
    if left:
        wrong.append(f"{len(left)} processes alive after {how.name}")
    if how != signal.SIGKILL and "Traceback" in process.log.read_text():
        wrong.append(f"a traceback after {how.name}: {process.log.read_text().strip()[-200:]}")
    return how, wrong + [f"after {how.name} {each}" for each in unreadable(out)]


def one_round(
    bench: Bench, name: str, number: int, seed: int, whole: Whole, kills: int
) -> tuple[Counter[str], list[str]]:
    """Counts of kills by signal, and what was wrong."""
    rng = Random(f"{seed} {name} {number}")
    out, log = bench.folder / f"{name}-{number}", bench.folder / f"{name}-{number}.log"
    arguments = bench.arguments(name, out)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    given, length, missed = arguments, whole, 0
    while kills and missed < 5:
        with bench.start(name, given, log) as process:
            how, found = kill(process, length, out, rng, COMMANDS[name].weights)
        wrong += found
        given = COMMANDS[name].go_on(arguments, out)
        if how is None:  # it was faster
            length = Whole({}, length.begun / 2, length.ended / 2)
            missed += 1
        else:
            counts[how.name] += 1
            kills -= 1
    with bench.start(name, given, log) as process:
        process.wait(LIMIT)
        code = process.ended()
    wrong += [f"went on to {code}: {log.read_text()[-500:]}"] if code else differing(whole, out)
    return ended(counts, wrong, out)


def differing(whole: Whole, folder: Path) -> list[str]:
    """What is wrong with the results in a folder."""
    found = results(folder)
    differs = sorted(key for key in whole.results.keys() | found.keys() if whole.results.get(key) != found.get(key))
    return [f"other results: {', '.join(differs)}"] if differs else []


def ended(counts: Counter[str], wrong: list[str], out: Path) -> tuple[Counter[str], list[str]]:
    """What a round gives; its folder stays if something was wrong."""
    counts["partial files"] += len(list(out.rglob("*.part")))
    if not wrong:
        shutil.rmtree(out)
    return counts, [f"{out.name}: {each}" for each in wrong]


def start_at_once(
    bench: Bench, name: str, number: int, seed: int, whole: Whole, kills: int
) -> tuple[Counter[str], list[str]]:
    """Four processes that write into one folder and find no cache of this library, of Matplotlib or of Python."""
    out = bench.folder / f"{name}-{number}"
    cold = {key: str(out / "cold" / key) for key in ("RANKSTRUCT_CACHE", "XDG_CACHE_HOME", "MPLCONFIGDIR")}
    cold["PYTHONPYCACHEPREFIX"] = str(out / "cold" / "code")
    arguments, wrong = bench.arguments(name, out), []
    logs = [bench.folder / f"{name}-{number}-{at}.log" for at in range(4)]
    with ExitStack() as stack:
        processes = [stack.enter_context(bench.start(name, arguments, log, cold)) for log in logs]
        for process in processes:
            process.wait(LIMIT)
            if process.ended() != 0 or "Traceback" in process.log.read_text():
                wrong.append(f"ended with {process.ended()}: {process.log.read_text()[-500:]}")
    runs = sorted(out.glob("[0-9]*_*"))
    wrong += [] if len(runs) == 4 else [f"{len(runs)} folders of runs"]
    wrong += [each for run in runs for each in differing(whole, run)]
    return ended(Counter({"at once": 4}), wrong, out)


def delete_board(
    bench: Bench, name: str, number: int, seed: int, whole: Whole, kills: int
) -> tuple[Counter[str], list[str]]:
    """Delete TensorBoard's folders and files at random moments, as often as there would be kills."""
    rng = Random(f"{seed} {name} {number}")
    out, log = bench.folder / f"{name}-{number}", bench.folder / f"{name}-{number}.log"
    counts: Counter[str] = Counter()
    with bench.start(name, bench.arguments(name, out), log) as process:
        for _ in range(kills):
            process.wait(LIMIT, lambda: any(out.rglob("events.*")))
            process.wait(rng.random() * (whole.ended - whole.begun) / kills)
            for path in [path for path in out.rglob("events.*") if process.ended() is None]:
                if path.parent.parent == out:
                    path.unlink(missing_ok=True)
                else:
                    shutil.rmtree(path.parent, ignore_errors=True)
                counts["deleted"] += 1
        process.wait(LIMIT)
        said, code = log.read_text(), process.ended()
    wrong = [f"ended with {code}: {said[-500:]}"] if code or "Traceback" in said else differing(whole, out)
    return ended(counts, wrong, out)


#: Rounds that are none of kills.
ROUNDS = {"fit-at-once": start_at_once, "fit-board": delete_board}


def main() -> int:
    """Kill commands, go on with them, compare the results."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="in all")
    parser.add_argument("--commands", nargs="+", choices=list(COMMANDS), default=list(COMMANDS), help="(default: all)")
    parser.add_argument("--seed", type=int, default=0, help="of the kills")
    parser.add_argument("--jobs", type=int, default=1, help="rounds at once")
    parser.add_argument("--processes", type=int, default=2, help="of a command that takes it")
    parser.add_argument("--fork", action="store_true", help="fork commands from this process, which spares their start")
    parser.add_argument("--folder", help="keep everything there; else a temporary one, gone at the end")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, _stop)
    if options.fork:
        import rankstruct.commands.compare
        import rankstruct.commands.fit_exact  # noqa: F401
    with tempfile.TemporaryDirectory() as temporary:
        bench = Bench(Path(options.folder or temporary), options.processes, options.fork)
        os.environ["RANKSTRUCT_CACHE"] = str(bench.folder / "cache")
        write_data(bench.folder / "data")
        return soak(bench, options)


def _stop(*_: object) -> None:
    """End, and what this process has started too."""
    for child in multiprocessing.active_children():
        child.terminate()
    sys.exit(143)


def soak(bench: Bench, options: argparse.Namespace) -> int:
    """Run all rounds and print the table."""
    needed = dict.fromkeys((*(["fit"] if "predict" in options.commands else []), *options.commands))
    counts: dict[str, Counter[str]] = {name: Counter() for name in options.commands}
    wrong: list[str] = []
    with ProcessPoolExecutor(options.jobs, mp_context=multiprocessing.get_context("fork")) as pool:
        whole = {}
        if "fit" in needed:
            whole["fit"] = pool.submit(run_whole, bench, "fit").result()
        rest = {name: pool.submit(run_whole, bench, name) for name in needed if name not in whole}
        whole |= {name: job.result() for name, job in rest.items()}
        rng, left, jobs = Random(options.seed), options.kills, {}
        while left:
            name = options.commands[len(jobs) % len(options.commands)]
            kills = min(left, rng.randint(1, 3))
            jobs[pool.submit(ROUNDS.get(name, one_round), bench, name, len(jobs), options.seed, whole[name], kills)] = (
                name,
                kills,
            )
            left -= kills
        with Progress(total=options.kills, unit="kill") as bar:
            for job in as_completed(jobs):
                name, kills = jobs[job]
                found, said = job.result()
                counts[name] += found
                counts[name]["rounds"] += 1
                counts[name]["wrong"] += len(said)
                wrong += said
                for each in said:
                    bar.write(each)
                bar.update(kills)
    columns = ["rounds", *(each.name for each in SIGNALS), "at once", "deleted", "partial files", "wrong"]
    rows = [[name, f"{whole[name].ended:.1f}", *(each[column] for column in columns)] for name, each in counts.items()]
    rows.append(["all", "", *(sum(each[column] for each in counts.values()) for column in columns)])
    print(format_table(["command", "seconds alone", *columns], rows))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
