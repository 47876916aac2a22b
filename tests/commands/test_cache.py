"""`rankstruct cache --warm`: which losses are compiled, and what is refused; test_convert.py has the cache of files."""

import lanes
import pytest
import torch

from rankstruct.cli import main
from rankstruct.commands import cache


def test_without_a_device_it_is_an_error(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert main(["cache", "--warm", "AP"]) == 1
    assert capsys.readouterr().err.endswith("and torch finds none here\n")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("RANKSTRUCT_TRITON", "0")
    assert main(["cache", "--warm", "AP"]) == 1
    assert "RANKSTRUCT_TRITON must not be 0" in capsys.readouterr().err


def test_losses_measures_and_configs_are_compiled(monkeypatch, capsys):
    lanes.use(monkeypatch)
    monkeypatch.setattr(cache, "_device", lambda: torch.device("cpu"))
    used = []
    monkeypatch.setattr(
        lanes.Kernel, "__getitem__", lambda kernel, grid: lambda *given, **fixed: used.append(kernel.__name__)
    )
    assert main(["cache", "--warm", "AP@3", "SoftRankLoss", "quickstart", "--sizes", "7"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.partition("(")[0] for line in out] == ["StructuredHingeLoss", "SoftRankLoss", "StructuredHingeLoss"]
    assert {"solve_binary", "soften"} <= {*used}
    assert len(used) >= 18


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["--warm", "SoftRankLos"], "did you mean SoftRankLoss?"),
        (["--warm", "SimilarityLoss"], "SimilarityLoss has no kernels of its own: name the loss that it is given"),
        (["--warm", "OrdinalLoss"], "OrdinalLoss needs options; name a config that has them"),
        (["--warm", "broken.yaml"], "broken.yaml: "),
        (["--warm", "empty.yaml"], "empty.yaml has no model: loss:"),
    ],
)
def test_what_is_refused_in_one_line(args, told, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "broken.yaml").write_text(
        "model: {loss: {class_path: rankstruct.StructuredHingeLoss, init_args: {a: 1}}}"
    )
    (tmp_path / "empty.yaml").write_text("")
    assert main(["cache", *args]) == 1
    told_in = capsys.readouterr().err
    assert told in told_in
    assert told_in.count("\n") == 1
