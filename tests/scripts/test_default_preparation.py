"""The comparison of preparations: every cell once, on validation lists; what is significantly worse is marked."""

import json

import numpy as np
from scripts_by_path import script

import rankstruct as rs

preparation = script("default_preparation")


def write(path, seed):
    rng = np.random.default_rng(seed)
    lines = [(q, rng.normal(size=2)) for q in range(1, 21) for _ in range(6)]
    text = "".join(f"{int(np.clip(x[0] + 1, 0, 2))} qid:{q} 1:{x[0]:.3f} 2:{1e4 * x[1]:.3f}\n" for q, x in lines)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_candidates_are_compared_on_validation_lists_alone(tmp_path, capsys, monkeypatch):
    for seed, part in enumerate(("train", "vali", "test")):
        write(tmp_path / "SET" / "Fold1" / f"{part}.txt", seed)
    write(tmp_path / "file.txt", 3)
    kept = ("none", "standardize")
    monkeypatch.setattr(preparation, "CANDIDATES", {name: preparation.CANDIDATES[name] for name in kept})
    monkeypatch.setattr(preparation, "RANKERS", {"AP hinge": preparation.RANKERS["AP hinge"]})
    monkeypatch.setattr(preparation, "DRAWN", {"units": preparation.DRAWN["units"]})
    monkeypatch.setattr(preparation, "COSTS", (1.0, 10.0))
    given = ["--path", str(tmp_path / "SET"), str(tmp_path / "file.txt"), "--folds", "1", "--seeds", "1"]
    given += ["--output", str(tmp_path / "out"), "--processes", "0"]
    assert preparation.main(given) == 0
    printed = capsys.readouterr().out
    tables = json.loads((tmp_path / "out" / "preparation.json").read_text())["tables"]
    assert tables["AP hinge"]["header"] == ["preparation", "SET", "file", "digits", "units"]
    rows = {row[0]: row[1:] for row in tables["AP hinge"]["rows"]}
    assert rows["none"][3].endswith(" *")
    assert float(rows["standardize"][3]) > float(rows["none"][3][:6]) + 0.05
    singles = tables["AP hinge, single C"]["rows"]
    assert [row[:2] for row in singles] == [[name, C] for name in kept for C in ("1", "10")]
    assert all(row[2] >= 0 and row[3] >= row[2] for row in singles)

    train, vali = preparation.read("SET", str(tmp_path / "SET"), 1)
    ranker = rs.LinearRanker("AP", C=10.0, prepare=["standardize"]).fit(
        train.features, train.labels, train.list_numbers
    )
    expected = rs.evaluate(ranker.predict(vali.features), vali.labels, ["AP"], offsets=vali.offsets)["AP"]
    cell = json.loads((tmp_path / "out" / "SET" / "0" / "1-1" / "result.json").read_text())
    np.testing.assert_allclose(cell["values"][1], expected, atol=0.02)

    monkeypatch.setattr(preparation, "run_cell", None)  # nothing is run again
    assert preparation.main(given) == 0
    assert capsys.readouterr().out == printed


def test_drawn_sets_have_units_and_grades():
    for kind in preparation.DRAWN:
        train, vali = preparation.draw(kind, 1)
        spread = np.log10(train.features.std(0))
        assert spread.max() - spread.min() > 8
        assert set(np.unique(vali.labels)) == {0.0, 1.0, 2.0}
        again, _ = preparation.draw(kind, 1)
        np.testing.assert_array_equal(again.features, train.features)
