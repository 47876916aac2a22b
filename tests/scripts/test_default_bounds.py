"""The comparison of bounds, of single C and of loops: every cell once, tables with what each came to."""

import numpy as np
import pytest
from scripts_by_path import script

bounds = script("default_bounds")


@pytest.mark.soak
def test_values_are_kept_and_bounds_that_take_no_grades_are_said(tmp_path, capsys, monkeypatch):
    rng = np.random.default_rng(0)
    for part in ("train", "vali", "test"):
        (tmp_path / "SET" / "Fold1").mkdir(parents=True, exist_ok=True)
        lines = [(q, rng.normal(size=2)) for q in range(1, 9) for _ in range(6)]
        text = "".join(f"{int(np.clip(x[0] + 1, 0, 2))} qid:{q} 1:{x[0]:.3f} 2:{x[1]:.3f}\n" for q, x in lines)
        (tmp_path / "SET" / "Fold1" / f"{part}.txt").write_text(text)
    monkeypatch.setattr(bounds, "MEASURES", ("nDCG@10",))
    monkeypatch.setattr(bounds, "EPOCHS", 10)
    given = ["--path", str(tmp_path / "SET"), "--folds", "1", "--output", str(tmp_path / "out"), "--processes", "0"]
    assert bounds.main(given) == 0
    printed = capsys.readouterr().out
    rows = {line.split("|")[1].strip(): line.split("|")[2].strip() for line in printed.splitlines() if "|" in line}
    assert set(rows) >= {*bounds.BOUNDS, *bounds.SINGLE, *bounds.LOOPS}
    best, last = (
        {line.split("|")[1].strip(): float(line.split("|")[at]) for line in printed.splitlines() if ", lr=" in line}
        for at in (2, 3)
    )
    assert all(0.5 < last[name] <= best[name] <= 1 for name in bounds.LOOPS)
    assert all(float(rows[name]) > 0.8 for name in bounds.SINGLE)
    assert rows["pairwise, ideal (convex)"] == "refused"
    assert float(rows["default"]) > 0.9
    monkeypatch.setattr(bounds, "value", None)  # nothing is run again
    assert bounds.main(given) == 0
    assert capsys.readouterr().out == printed
    given[given.index("--folds") + 1] = "2"
    assert bounds.main(given) == 1
