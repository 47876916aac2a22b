"""The bookkeeping of the benchmark of losses; speed and memory themselves are never asserted."""

import json
import sys

import pytest
import torch

from benchmark import main as benchmark
from benchmarks.losses import LOSSES, benchmark_losses, both_ways, draw, peak_megabytes
from rankstruct.commands._options import loss_names


@pytest.mark.soak
def test_every_loss_is_timed_and_threads_are_restored():
    before = torch.get_num_threads()
    timings = benchmark_losses(shape=(4, 30), shares=[0.1, 0.5], rounds=2, memory=False)
    names = ["torch.sort", *LOSSES]
    assert [(t["loss"], t["relevant"]) for t in timings] == [(name, share) for share in (0.1, 0.5) for name in names]
    assert all(
        t["microseconds"] > 0 and t["lower_quartile"] <= t["median"] and t["peak_megabytes"] is None for t in timings
    )
    assert timings[0]["median"] == 1.0
    assert all((t["over_squared"] == 1.0) == (t["loss"] == "Squared") and t["over_squared"] > 0 for t in timings)
    assert torch.get_num_threads() == before


def test_every_loss_of_lists_has_a_row():
    timed = {type(make()).__name__ for make in LOSSES.values()}
    assert set(loss_names()) - timed == {"PerturbedLoss"}  # whose cost is that of another


def test_every_loss_takes_grades():
    assert draw(20, 50, 0.5, 0, grades=5)[1].unique().tolist() == [0, 1, 2, 3, 4]
    timings = benchmark_losses(shape=(2, 20), shares=[0.5], rounds=1, grades=5, memory=False)
    assert len(timings) == len(LOSSES) + 1
    with pytest.raises(ValueError, match="grades must be 2 to 5, got 6"):
        benchmark_losses(["ListMLE"], shape=(2, 20), grades=6)


@pytest.mark.soak
@pytest.mark.skipif(sys.platform == "win32", reason="there is no resource module")
def test_memory_is_that_of_the_loss():
    # One float32 matrix of all pairs would be 38 MB here, and is not made; one number a document of the other batch is 38 MB too.
    assert peak_megabytes("Squared", 1000, 10_000, 0.3) > 38
    for loss in ("ApproxNDCG", "RankNet"):
        assert peak_megabytes(loss, 10, 1000, 0.3) < 20


def test_command_prints_a_table_and_writes_json(tmp_path, capsys):
    target = tmp_path / "losses.json"
    brief = ["--shape", "2", "20", "--relevant", "0.3", "--rounds", "2", "--no-memory", "--json", str(target)]
    assert benchmark(["losses", "--losses", "RankSVM", "ListMLE", *brief]) == 0
    assert "ListMLE" in capsys.readouterr().out
    report = json.loads(target.read_text())
    assert report["machine"]["torch"] == torch.__version__
    assert [t["loss"] for t in report["timings"]] == ["torch.sort", "RankSVM", "ListMLE"]
    table = report["tables"]["losses"]
    assert table["header"] == ["loss", "over sort, 30% relevant", "over squared, 30% relevant", "peak MB"]
    assert [row[0] for row in table["rows"]] == ["torch.sort", "RankSVM", "ListMLE"]
    assert table["rows"][1][1] == f"{report['timings'][1]['median']:.2f}"
    assert benchmark(["losses", "--losses", "nothing"]) == 1
    assert "unknown loss 'nothing'; there are: AP" in capsys.readouterr().err
    assert [t["over_squared"] for t in report["timings"]] == [None] * 3


@pytest.mark.parametrize("name", LOSSES)
def test_both_ways_leaves_the_scores_alone(name):
    scores, labels = draw(2, 10, 0.5, 0)
    both_ways(LOSSES[name](), scores, labels)
    assert not scores.requires_grad
    assert scores.grad is None
