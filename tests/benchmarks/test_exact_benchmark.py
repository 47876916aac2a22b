"""The benchmark of exact training: its rows, LightGBM's, what it refuses."""

import json

import pytest

import rankstruct as rs
from benchmark import main as benchmark
from benchmarks.exact import LIGHTGBM, RANKERS, benchmark_exact
from rankstruct.data import digits

pytestmark = pytest.mark.soak


def test_rows_hold_what_was_fitted():
    folds = [digits(seed=0)]
    rows = benchmark_exact(folds, ["AP (SVMmap)", "nDCG (ORM, DC)"], Cs=(1.0, 10.0))
    train, vali, test = folds[0]
    for row, measure in zip(rows, (rs.AP(), rs.nDCG()), strict=True):
        assert row["fits"] == row["converged"] == 2
        assert row["passes"] >= 4
        assert 0 < row["argmax"] + row["qp"] <= 1
        assert 0.5 < row["AP"] <= 1
        assert measure.name in row["name"]
    exact = rs.LinearRanker("AP", C=[1.0, 10.0], prepare=())
    held_out = {"X_valid": vali.features, "y_valid": vali.labels, "qid_valid": vali.list_numbers}
    exact.fit(train.features, train.labels, train.list_numbers, **held_out)
    found = exact.score(test.features, test.labels, test.list_numbers)
    assert rows[0]["AP"] == pytest.approx(found, abs=1e-9)


@pytest.mark.filterwarnings("ignore:.*no better than w = 0")  # the papers' convex bounds
@pytest.mark.parametrize("name", RANKERS)
def test_every_ranker_fits(name):
    (row,) = benchmark_exact([digits(seed=0)], [name], Cs=(10.0,))
    assert row["converged"] == 1


def test_command(tmp_path, capsys):
    assert benchmark(["exact", "--data", str(tmp_path)]) == 1
    assert "Fold1" in capsys.readouterr().err
    with pytest.raises(ValueError, match="unknown ranker 'x'; there are: AP"):
        benchmark_exact([], ["x"])


def test_lightgbm_is_timed_too():
    pytest.importorskip("lightgbm", reason="LightGBM is an extra")
    (row,) = benchmark_exact([digits(seed=0)], [LIGHTGBM])
    assert row["AP"] > 0.5
    assert json.loads(json.dumps(row)) == row
