"""Resumable cells: what is kept, skipped, refused and named; locks; Ctrl-C and the death of the parent."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from cell_works import answer_ctrl_c, begin_slowly, best_so_far, deaf, die, square, train

from papers.run import CellLines
from rankstruct.commands import cells as module
from rankstruct.commands import cluster
from rankstruct.commands.cells import (
    Cell,
    CellFolders,
    CellsFailed,
    _ignoring_ctrl_c,
    different_names,
    locked,
)


def parse(record):
    return record["cell"][0], record["request"], record


def folders(path):
    return CellFolders(path)


def lines(path):
    return CellLines(path, parse)


def cells(tmp_path, *numbers, request="r"):
    wanted = {"r": request} if request != "r" else "r"
    return [Cell(str(n), wanted, (n, str(tmp_path))) for n in numbers]


def asked(tmp_path):
    return sorted(int(path.name.split("-")[1]) for path in tmp_path.glob("asked-*"))


@pytest.mark.parametrize("processes", [0, 1])
def test_lines_are_kept_skipped_and_go_on_past_failures(tmp_path, processes):
    out = tmp_path / "out"
    with lines(out) as store, pytest.raises(CellsFailed, match=r"1 of 4 cells failed; .*13: ValueError: thirteen"):
        store.run(square, cells(tmp_path, 1, 13, 2, 3), processes=processes)
    assert asked(tmp_path) == [1, 2, 3, 13]
    with (out / "results.jsonl").open("ab") as file:  # as if it had been killed inside a write
        file.write(b'{"cell": ["4')
    with lines(out) as store:
        found = store.run(square, cells(tmp_path, 1, 2, 3, 4), processes=processes)
    assert {key: result["square"] for key, result in found.results.items()} == {
        (str(n), None, None): n**2 for n in range(1, 5)
    }
    assert found.reused == 3
    assert asked(tmp_path) == [1, 2, 3, 4, 13]
    assert len((out / "results.jsonl").read_text().splitlines()) == 4


def test_workers_stay_for_the_next_run_and_end_with_the_folder(tmp_path):
    with lines(tmp_path / "out") as store:
        for number in (1, 2):
            store.run(square, cells(tmp_path, number))
    (pid,) = {int(path.name.split("-")[2]) for path in tmp_path.glob("asked-*")}
    assert asked(tmp_path) == [1, 2]
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_a_worker_that_leaves_is_a_failed_cell(tmp_path):
    with lines(tmp_path) as store, pytest.raises(CellsFailed, match="14: SystemExit: fourteen"):
        store.run(square, cells(tmp_path, 14, 1))
    assert '"square": 1' in (tmp_path / "results.jsonl").read_text()


@pytest.mark.skipif(not hasattr(signal, "SIGKILL"), reason="no SIGKILL")
def test_a_cell_whose_process_dies_is_run_once_more(tmp_path):
    wanted = [Cell(str(n), {}, (n, times, str(tmp_path))) for n, times in enumerate((0, 1, 9, 0))]
    said = r"1 of 4 cells failed; .*2: its process died twice, SIGKILL\(-9\), such as for want of memory"
    with folders(tmp_path / "out") as store, pytest.raises(CellsFailed, match=said):
        store.run(die, wanted, processes=2)
    assert [path.parent.name for path in sorted(tmp_path.glob("out/*/result.json"))] == ["0", "1", "3"]
    assert len(list(tmp_path.glob("died-2-*"))) == 2
    with folders(tmp_path / "out") as store, pytest.raises(CellsFailed):
        store.run(die, wanted, processes=2)  # once more, and the others are not run again
    assert len(list(tmp_path.glob("died-*"))) == 5


@pytest.mark.parametrize("processes", [0, 1])
def test_progress_names_the_cell_and_what_it_announces(processes, tmp_path, monkeypatch):
    said = []
    monkeypatch.setattr(module.Progress, "set_postfix_str", lambda bar, text="", refresh=True: said.append(text))
    with folders(tmp_path) as store:
        store.run(train, [Cell("fold1_C=2", {"r": 1}, (3,))], processes=processes)
    assert said[-2:] == ["fold1_C=2, epoch 2", ""]  # nothing stays when all is done
    if processes == 0:
        assert said[:2] == ["fold1_C=2, epoch 0", "fold1_C=2, epoch 1"]


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ({"config": "a"}, {"config": "a", "content": "1234"}, "content"),
        ({"config": "a", "content": "1234"}, {"config": "a"}, "content"),
        ({"config": "a", "content": "1234"}, {"config": "a", "content": "5678"}, "content"),
        ({"options": {"seed": 1}}, {"options": {"seed": 1, "label": None}}, r"options\.label"),
        ({"options": {"seed": 1}}, {"options": None}, "options"),
        ({"options": ["a", "b"]}, {"options": ["b", "a"]}, "options"),
    ],
)
def test_folders_belong_to_a_request(old, new, named, tmp_path):
    with folders(tmp_path) as store:
        assert store.run(lambda: 1, [Cell("x", old, ())], processes=0).results == {("x", None, None): 1}
        assert store.run(lambda: 2, [Cell("x", old, ())], processes=0).results == {("x", None, None): 1}
        with pytest.raises(ValueError, match=f"x holds a run that differs in {named}; use another --output"):
            store.run(lambda: 3, [Cell("x", new, ())], processes=0)
        store.run(lambda: 3, [Cell("y", new, ())], processes=0)


def test_folders_of_earlier_versions_are_refused(tmp_path, monkeypatch):
    wanted = [Cell("x", {"config": "a"}, ())]
    with folders(tmp_path) as store:
        store.run(dict, wanted, processes=0)
        with monkeypatch.context() as patch:
            patch.setattr(module, "__version__", "0.0.1")
            with pytest.raises(ValueError, match="x holds a run that differs in version; use another --output"):
                store.run(dict, wanted, processes=0)
        (tmp_path / "x" / "request.json").write_text('{"config": "a"}')  # as these wrote it
        with pytest.raises(ValueError, match=r"x holds a run of an earlier version, which .* use another --output"):
            store.run(dict, wanted, processes=0)
        (tmp_path / "x" / "result.json").unlink()  # it never finished
        assert store.run(lambda: 2, wanted, processes=0).results == {("x", None, None): 2}


def test_what_failed_leaves_no_record(tmp_path):
    def fail(path):
        (path / "half").touch()
        raise ValueError("full")

    wanted = [Cell(name, {"a": 1}, (tmp_path / name,)) for name in "xy"]
    with folders(tmp_path) as store:
        with pytest.raises(CellsFailed):
            store.run(lambda path: 1 / 0, wanted[:1], processes=0)
        assert not any((tmp_path / "x").iterdir())
        with pytest.raises(CellsFailed):
            store.run(fail, wanted[1:], processes=0)
        with pytest.raises(ValueError, match="y holds a run that differs in a"):  # whose files are there
            store.run(len, [Cell("y", {"a": 2}, ("",))], processes=0)


@pytest.mark.parametrize("change", [lambda path: path.write_text("x"), Path.unlink])
@pytest.mark.parametrize("name", ["result.json", "model"])
def test_outputs_are_as_they_were_written(name, change, tmp_path):
    def work(path):
        (path / "model").write_text("w")
        return 1

    wanted = [Cell("x", {}, (tmp_path / "x",), outputs=("model",))]
    with folders(tmp_path) as store:
        store.run(work, wanted, processes=0)
        assert store.run(None, wanted, processes=0).reused == 1
        change(tmp_path / "x" / name)
        with pytest.raises(ValueError, match=f"x/{name} is damaged .*; delete its folder to run the cell again"):
            store.run(work, wanted, processes=0)


def test_a_request_that_came_to_nothing_is_replaced_and_what_differs_is_named(tmp_path):
    def fail(value):
        raise ValueError("no such file")

    wanted = [Cell("x", {"options": {"seed": value, "budget": 1}}, (value,)) for value in (1, 2, 3)]
    with folders(tmp_path) as store:
        with pytest.raises(CellsFailed):
            store.run(fail, wanted[:1], processes=0)
        assert store.run(lambda value: value, wanted[1:2], processes=0).results == {("x", None, None): 2}
        with pytest.raises(ValueError, match=r"x holds a run that differs in options\.seed; use another --output"):
            store.run(lambda value: value, wanted[2:], processes=0)


@pytest.mark.parametrize("name", ["request.json", "result.json"])
@pytest.mark.parametrize("content", [b"", b'{"a": ', b"\xff\xfe", b"[" * 100_000])
def test_a_damaged_cell_is_named(name, content, tmp_path):
    with folders(tmp_path) as store:
        store.run(dict, [Cell("x", {"config": "a"}, ())], processes=0)
        (tmp_path / "x" / name).write_bytes(content)
        with pytest.raises(ValueError, match=rf"x/{name} is damaged \(.*\); delete its folder"):
            store.run(dict, [Cell("x", {"config": "a"}, ())], processes=0)


def test_what_is_no_longer_true_is_not_kept(tmp_path):
    data = ["old"]

    def work(number):
        data[0] = "new" if number == 2 else data[0]
        return number

    wanted = [Cell(str(number), {"data": "old"}, (number,)) for number in (1, 2, 3)]
    with (
        folders(tmp_path) as store,
        pytest.raises(CellsFailed, match=r"2 of 3 .* 2: its data changed while it ran; 3:"),
    ):
        store.run(work, wanted, processes=0, unchanged=lambda cell: cell.request["data"] == data[0])
    assert [path.parent.name for path in tmp_path.glob("*/result.json")] == ["1"]


def test_a_table_by_config_fold_and_seed(tmp_path):
    wanted = [Cell(f"{c}{f}{s}", {}, (c, f, s), c, f, s) for c in "ab" for f in (1, 2) for s in (0, 1)]
    with folders(tmp_path) as store:
        found = store.run(lambda *key: list(key), wanted, processes=0)
    assert found.results == {(c, f, s): [c, f, s] for c in "ab" for f in (1, 2) for s in (0, 1)}


def test_the_best_setting_of_each_config_and_fold_gets_all_seeds(tmp_path):
    values = {("a", 1): [3, 1], ("a", 2): [1, 2], ("b", 1): [5, 5], ("b", 2): [0, 4]}
    ran = []

    def work(config, setting, fold, seed):
        ran.append((config, setting, fold, seed))
        return [config, setting, fold, seed]

    def make(*key):
        config, setting, fold, seed = key
        return Cell("-".join(map(str, key)), {}, key, (config, setting), fold, seed)

    with folders(tmp_path) as store:
        given = {"folds": (1, 2), "seeds": (0, 7, 8), "validation": lambda r: values[r[0], r[2]][r[1]], "processes": 0}
        store.select(work, make, {"a": [0, 1]}, **given)
        del ran[:]
        found = store.select(work, make, {"a": [0, 1], "b": [0, 1]}, **given)
    best = {("a", 1): 0, ("a", 2): 1, ("b", 1): 0, ("b", 2): 1}  # of equals the first
    assert found.settings == best
    assert found.results == {(c, f, s): [c, best[c, f], f, s] for c, f in best for s in (0, 7, 8)}
    assert (len(found.every), found.reused, len(ran)) == (4 * 2 + 4 * 2, 8, 8)
    assert {(c, s) for c, _, _, s in ran if s} == {("b", 7), ("b", 8)}
    with folders(tmp_path) as store, pytest.raises(ValueError, match="seeds: give at least one"):
        store.select(work, make, {"a": [0]}, **{**given, "seeds": ()})


def test_a_folder_is_held_by_one_process(tmp_path):
    pytest.importorskip("fcntl")
    code = f"from rankstruct.commands.cells import locked\nwith locked({str(tmp_path)!r}): print('held')"
    with locked(tmp_path):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
        assert "another process is writing to it" in done.stderr
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "held\n"


def test_messages_count_what_the_user_asked_for_in_all(tmp_path, capsys):
    wanted = [Cell(str(number), {}, (str(tmp_path),)) for number in (1, 2)]
    trials = {"what": "trials", "note": ", best 0.5", "before": 4, "total": 30, "processes": 0}
    with folders(tmp_path / "out") as store:
        with pytest.raises(KeyboardInterrupt, match="stopped; 4 of 30 trials are finished and saved"):
            store.run(best_so_far, wanted, **trials)
        assert "trials, best 0.5: 4 of 30" in capsys.readouterr().err
        with pytest.raises(CellsFailed, match="1 of 30 trials failed; those that finished are saved"):
            store.run(square, [Cell("13", {}, (13, str(tmp_path)))], **trials)


def test_selection_counts_the_further_seeds_from_the_start(tmp_path, monkeypatch):
    counted = []
    run = CellFolders.run

    def counting(self, work, cells, *, before=0, total=None, **options):
        counted.append((before, len(cells), total))
        return run(self, work, cells, before=before, total=total, **options)

    monkeypatch.setattr(CellFolders, "run", counting)
    with folders(tmp_path / "out") as store:
        store.select(
            square,
            lambda config, n, fold, seed: Cell(
                f"{config}-{n}-{fold}-{seed}", {}, (n, str(tmp_path)), config, fold, seed
            ),
            {"a": [1, 2], "b": [3]},
            folds=[1, 2],
            seeds=[None, 5, 6],
            validation=lambda result: result["square"],
            processes=0,
        )
    assert counted == [(0, 6, 14), (6, 8, 14)]


def test_the_best_so_far_of_work_that_was_stopped_is_no_result(tmp_path):
    usual = signal.getsignal(signal.SIGINT)
    wanted = [Cell(str(number), {}, (str(tmp_path),)) for number in (1, 2)]
    with folders(tmp_path / "out") as store, pytest.raises(KeyboardInterrupt, match="0 of 2 cells are finished"):
        store.run(best_so_far, wanted, processes=0)
    assert (tmp_path / "stopped").exists()  # it had answered
    assert not list(tmp_path.rglob("result.json"))
    assert signal.getsignal(signal.SIGINT) is usual


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="no signal masks")
def test_workers_are_deaf_from_their_start_and_their_parent_is_not(tmp_path):
    with folders(tmp_path) as store:
        assert store.run(deaf, [Cell("one", {}, (0,))]).results == {("one", None, None): {"deaf": True}}
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_ctrl_c_waits_until_workers_are_started():
    started = []

    def start():
        with _ignoring_ctrl_c():
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)
            started.append(True)

    with pytest.raises(KeyboardInterrupt):
        start()
    assert started == [True]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def sleepers(tmp_path):
    code = (
        "import sys\n"
        f"sys.path.insert(0, {str(Path(__file__).parents[1])!r})\n"
        "from cell_works import sleep\n"
        "from rankstruct.commands.cells import Cell, CellFolders\n"
        "if __name__ == '__main__':\n"
        f"    folder = {str(tmp_path)!r}\n"
        "    with CellFolders(folder) as store:\n"
        "        try:\n"
        "            store.run(sleep, [Cell(str(s), {}, (s, folder)) for s in (0, 600, 601)], processes=2)\n"
        "        except KeyboardInterrupt as stop:\n"
        "            sys.exit(str(stop))\n"
    )
    script = tmp_path / "sleepers.py"
    script.write_text(code)
    process = subprocess.Popen([sys.executable, str(script)], stderr=subprocess.PIPE, text=True)
    end = time.monotonic() + 120
    while time.monotonic() < end and not (tmp_path / "0" / "result.json").is_file():
        time.sleep(0.05)
    while time.monotonic() < end and len(list(tmp_path.glob("pid-*"))) < 2:
        time.sleep(0.05)
    return process, [int(path.name.removeprefix("pid-")) for path in tmp_path.glob("pid-*")]


def alive(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
@pytest.mark.parametrize(
    "by",
    [
        signal.SIGINT,
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
        pytest.param(signal.SIGTERM, marks=pytest.mark.slow),
    ],
)
def test_workers_end_with_their_parent_and_what_is_finished_is_kept(tmp_path, by):
    process, workers = sleepers(tmp_path)
    assert len(workers) >= 2
    process.send_signal(by)
    _, err = process.communicate(timeout=30)
    end = time.monotonic() + 10
    while any(map(alive, workers)) and time.monotonic() < end:
        time.sleep(0.05)
    assert not any(map(alive, workers))
    assert json.loads((tmp_path / "0" / "result.json").read_text()) == {"slept": 0}
    assert not (tmp_path / "600" / "result.json").exists()
    if by == signal.SIGINT:
        last = err.splitlines()[-1]
        assert last == f"stopped; 1 of 3 cells are finished and saved in {tmp_path}, the same command resumes"
        assert "Traceback" not in err
    with locked(tmp_path):  # the system let go of it
        pass
    assert os.listdir(tmp_path / "600") == ["request.json"]


def test_configs_are_told_apart_by_their_names(tmp_path):
    (tmp_path / "a.yaml").touch()
    assert different_names([tmp_path / "a.yaml"]) == ["a"]
    with pytest.raises(ValueError, match=r"config .* does not exist"):
        different_names([tmp_path / "b.yaml"])
    with pytest.raises(ValueError, match="several are named a"):
        different_names([tmp_path / "a.yaml"] * 2)


def test_a_cell_does_not_leave_the_folder(tmp_path):
    with CellFolders(tmp_path / "out") as store:
        for name in ("../up", "fold1_path=../../../up", "/tmp/up"):
            with pytest.raises(ValueError, match=r"is not a valid folder name in .*out; values of --grid"):
                store.run(square, [Cell(name, {}, (1, str(tmp_path)))], processes=0)
        assert store.run(square, [Cell("fold1_path=a/b", {}, (1, str(tmp_path)))], processes=0).reused == 0
    assert [path.name for path in tmp_path.iterdir() if path.is_dir()] == ["out"]


def test_ctrl_c_does_not_wait_for_workers_that_still_import(tmp_path, monkeypatch):
    monkeypatch.setattr(cluster, "end_with", begin_slowly)
    threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT)).start()
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt, match="0 of 1 cells are finished"), CellFolders(tmp_path) as store:
        store.run(answer_ctrl_c, [Cell("a", {}, ())], processes=1)
    assert time.monotonic() - begun < 30


def test_a_cell_that_ctrl_c_ends_by_exit_says_what_is_kept(tmp_path):
    with pytest.raises(KeyboardInterrupt, match="0 of 1 cells are finished"), CellFolders(tmp_path) as store:
        store.run(answer_ctrl_c, [Cell("a", {}, ())], processes=0)
