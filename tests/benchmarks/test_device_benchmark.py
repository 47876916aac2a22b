"""The benchmark on a device, tried on the CPU: its rows, what it refuses, what it says where memory does not suffice."""

import json

import pytest
import torch

from benchmark import main as benchmark
from benchmarks import device


@pytest.mark.soak
def test_rows_cover_losses_shapes_and_precisions(tmp_path, capsys):
    out = tmp_path / "device.json"
    options = ["--shapes", "2x7", "3x5", "--rounds", "3", "--losses", "AP", "Squared", "--json", str(out)]
    assert benchmark(["device", "--device", "cpu", *options]) == 0
    assert "losses on cpu" in capsys.readouterr().out
    found = json.loads(out.read_text())
    keys = [(each["loss"], each["shape"], each["precision"]) for each in found["timings"]]
    assert sorted(keys) == sorted(
        (n, s, p) for n in ("AP", "Squared") for s in ("2x7", "3x5") for p in device.PRECISIONS
    )
    assert all(each["median"] > 0 and each["microseconds"] > 0 for each in found["timings"])
    table = found["tables"]["device"]
    assert table["header"] == [
        "loss", "2x7 float32", "2x7 bfloat16", "3x5 float32", "3x5 bfloat16", "peak MB", "waits"
    ]  # fmt: skip
    assert [(row[0], row[-1]) for row in table["rows"]] == [("AP", "-"), ("Squared", "-")]


def test_a_loss_for_which_memory_does_not_suffice_has_no_figures_and_the_others_have(monkeypatch):
    class Large(torch.nn.Module):
        def forward(self, scores, labels):
            raise torch.cuda.OutOfMemoryError("out of memory")

    monkeypatch.setitem(device.CALLS, "large", Large)
    large, ap = device.benchmark_device("cpu", ["large", "AP"], ["2x5"], ["float32"], rounds=2)
    assert (large["median"], large["microseconds"]) == (None, None)
    assert ap["median"] > 0
    assert device.by_shape([large, ap])[1][0] == ["large", "-", "-", "-"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "cuda:77"}, "no device 'cuda:77' here .*--device cpu"),
        ({"names": ["nosuch"]}, "unknown loss 'nosuch'; there are: AP"),
        ({"shapes": ["64"]}, "a shape is LISTSxSIZE, such as 64x100; got '64'"),
        ({"shapes": ["0x9"]}, "got '0x9'"),
        ({"precisions": ["int64"]}, "floating point dtype of torch, such as bfloat16; got 'int64'"),
        ({"precisions": ["nn"]}, "got 'nn'"),
    ],
)
def test_what_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        device.benchmark_device(**{"device": "cpu", **options})
