"""The benchmark's bookkeeping; speed itself is never asserted."""

import json

import pytest
import torch

from benchmark import main as benchmark
from benchmarks.oracles import (
    DENSE,
    as_rows,
    benchmark_assignment,
    benchmark_growth,
    benchmark_one_list,
    benchmark_oracles,
    by_case,
)
from benchmarks.timing import interleaved_ratios
from rankstruct.cli import main


def test_every_case_is_timed_and_threads_are_restored():
    before = torch.get_num_threads()
    timings = benchmark_oracles(["AP"], shapes=[(4, 50)], shares=[0.1, 3], threads=[1], rounds=3)
    assert [(t["what"], t["relevant"]) for t in timings] == [
        (what, share) for share in (0.1, 3) for what in ("torch.sort", "np.argsort", "AP loss", DENSE)
    ]
    assert all(t["microseconds"] > 0 and t["lower_quartile"] <= t["median"] for t in timings)
    assert timings[0]["median"] == 1.0
    assert [row[0:2] for row in by_case(timings)[1]] == [["4 x 50", "10%"], ["4 x 50", "3 grades"]]
    assert torch.get_num_threads() == before


def test_calls_are_interleaved():
    order = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    interleaved_ratios(calls, "a", rounds=3)
    assert order == ["a", "a", "b", "b"] + ["a", "b"] * 3


@pytest.mark.soak
def test_command_prints_a_table_and_writes_json(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("benchmarks.oracles.SHAPES", ((2, 20),))
    target = tmp_path / "b.json"
    assert (
        benchmark(
            [
                "oracles",
                "--rounds",
                "2",
                "--threads",
                "1",
                "--measures",
                "AUC",
                "--brief",
                "--json",
                str(target),
            ]
        )
        == 0
    )
    assert "AUC loss" in capsys.readouterr().out
    report = json.loads(target.read_text())
    assert report["machine"]["torch"] == torch.__version__
    assert {t["what"] for t in report["timings"]} == {"torch.sort", "np.argsort", "AUC loss", DENSE}
    table = report["tables"]["oracles"]
    assert table["header"] == ["lists x documents", "relevant", "AUC", "np.argsort", DENSE]
    assert [row[:2] for row in table["rows"]][:3] == [
        ["256 x 100", "5%"],
        ["256 x 100", "30%"],
        ["256 x 100", "5 grades"],
    ]
    (auc,) = (t for t in report["timings"] if t["what"] == "AUC loss" and (t["lists"], t["relevant"]) == (64, 0.3))
    assert float(table["rows"][4][2]) == pytest.approx(auc["median"], abs=0.5)


def test_what_needs_too_much_memory_is_a_dash(monkeypatch):
    monkeypatch.setattr("benchmarks.oracles.MOST_DENSE_BYTES", 16 * 2 * 20**2)
    timings = benchmark_oracles(["AUC"], shapes=[(2, 20), (2, 21)], shares=[0.5], threads=[1], rounds=1)
    small, large = (t for t in timings if t["what"] == DENSE)
    assert small["median"] is not None
    assert (large["lower_quartile"], large["median"], large["microseconds"]) == (None, None, None)
    assert [row[-3:] for row in as_rows([large])[1]] == [["-", "-", "-"]]
    assert json.loads(json.dumps(large))["median"] is None


def test_one_list_is_compared_with_a_softmax():
    first, second = benchmark_one_list(["AP"], rounds=3)
    assert (first["loss"], first["over softmax"], second["loss"]) == ("softmax . labels", 1.0, "AP")
    assert second["µs"] > 0


def test_growth_and_assignment_tables():
    (row,) = benchmark_growth(["AP"], small=50, large=500, rounds=2)
    assert row["measure"] == "AP"
    assert row["ratio"] > 0
    rows = benchmark_assignment(cases=[("nDCG@5", 40)], alone=[("nDCG", 60)], rounds=1)
    arrangements = ("random", "near-sorted", "anti-sorted", "tied", "real-valued labels")
    assert [(r["n"], r["scores"]) for r in rows[:5]] == [(40, s) for s in arrangements]
    assert all(float(r["difference"]) < 1e-9 for r in rows[:5])
    assert all("SciPy ms" not in r for r in rows[5:])


def test_unknown_command_and_help(capsys):
    assert main(["benhcmark"]) == 2
    assert "unknown command 'benhcmark'" in capsys.readouterr().err
    assert main(["--help"]) == 0
    assert "cross-validate" in capsys.readouterr().out
    assert main(["--version"]) == 0
    with pytest.raises(SystemExit):
        benchmark(["everything"])
