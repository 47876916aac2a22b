"""The comparison of networks that see the list: every cell once, on validation lists; differences and their intervals."""

import json
from functools import partial

import numpy as np
import pytest
from scripts_by_path import script

import rankstruct as rs
from rankstruct.models import DeepSetScorer
from rankstruct.statistics import bootstrap_interval

context = script("default_context")


def write(path, seed):
    """Relevant is what is near the mean of its list, which is different in each."""
    rng = np.random.default_rng(seed)
    text = ""
    for query in range(1, 61):
        z, shift = rng.normal(size=10), 5 * rng.normal()
        labels = np.abs(z - z.mean()) < 0.4
        text += "".join(
            f"{int(label)} qid:{query} 1:{each + shift:.4f}\n" for label, each in zip(labels, z, strict=True)
        )
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.soak
def test_networks_are_compared_on_validation_lists_alone(tmp_path, capsys, monkeypatch):
    for seed, part in enumerate(("train", "vali")):
        write(tmp_path / "SET" / "Fold1" / f"{part}.txt", seed)
    (tmp_path / "SET" / "Fold1" / "test.txt").write_text("0 qid:1 1:0\n1 qid:1 1:1\n")
    networks = {"MLP": {"max_epochs": 8}, "mean": {"context": "mean", "max_epochs": 8, "learning_rate": 0.01}}
    maximum = {**networks["mean"], "context": partial(DeepSetScorer, pool=("max",))}
    monkeypatch.setattr(context, "KINDS", networks)
    monkeypatch.setattr(context, "OPTIONS", {("mean", "maximum"): maximum})
    given = ["--path", str(tmp_path / "SET"), "--folds", "1", "--seeds", "1", "2"]
    given += ["--output", str(tmp_path / "out"), "--processes", "0"]
    assert context.main(given) == 0
    printed = capsys.readouterr().out
    found = json.loads((tmp_path / "out" / "context.json").read_text())
    assert found["lists"] == {"SET": 60}
    table = found["tables"]["AP"]
    assert table["header"] == ["network", "SET", "SET, difference", "all lists", "CPU s"]

    cells = [
        [json.loads((tmp_path / "out" / f"SET/{row}/1-{seed}/result.json").read_text())["AP"] for seed in (1, 2)]
        for row in (0, 1)
    ]
    alone, mean = (np.mean(each, axis=0) for each in cells)
    low, high = bootstrap_interval(mean - alone)
    interval = f"{(mean - alone).mean():+.4f} ({low:+.4f} to {high:+.4f})"
    rows = {row[0]: row[1:] for row in table["rows"]}
    assert rows["MLP"][:3] == [f"{alone.mean():.4f}", "", ""]
    assert rows["mean"][:3] == [f"{mean.mean():.4f}", interval, interval]
    assert mean.mean() > alone.mean() + 0.02
    assert found["tables"]["summary"]["header"] == ["network", "SET, difference", "all lists", "CPU s"]
    assert [row[0] for row in found["tables"]["summary"]["rows"]] == list(networks)
    (row,) = found["tables"]["AP, options"]["rows"]
    maximum = np.array(json.loads((tmp_path / "out/SET/2/1-1/result.json").read_text())["AP"])
    assert row[:2] == ["maximum", f"{maximum.mean():.4f}"]
    assert row[2].startswith(f"{(maximum - cells[1][0]).mean():+.4f} (")

    parts = context.Source(path=str(tmp_path / "SET"), fold=1).read()
    train = context.arrays_of(context.shuffle_documents(parts.train, seed=1))
    ranker = rs.MLPRanker("nDCG@10", device="cpu", random_state=1, **networks["MLP"]).fit(**train)
    scores = ranker.predict(parts.vali.features)
    expected = rs.evaluate(scores, parts.vali.labels, ["AP"], offsets=parts.vali.offsets)["AP"]
    assert np.mean(cells[0][0]) == pytest.approx(float(expected.mean()), abs=1e-5)

    monkeypatch.setattr(context, "run_cell", None)  # nothing is run again
    assert context.main(given) == 0
    assert capsys.readouterr().out == printed
