"""The benchmark of recommenders: equal values by all ways, every stage on few users, and the tables."""

import json

import numpy as np
import pytest

from benchmark import main as benchmark
from benchmarks import catalogue
from rankstruct.recommenders import InteractionsSource

pytestmark = pytest.mark.filterwarnings("ignore:.* are not in .*nothing is learnt about them")


@pytest.fixture
def folder(tmp_path):
    rng = np.random.default_rng(0)
    for name, number in (("train", 8), ("valid", 1), ("test", 4)):
        lines = [f"{user} {' '.join(map(str, rng.choice(70, number, replace=False)))}" for user in range(40)]
        (tmp_path / f"{name}.txt").write_text("\n".join(lines))
    return tmp_path


@pytest.mark.parametrize("by", [catalogue.by_rankstruct, catalogue.by_ranx, catalogue.by_rectools])
def test_values_are_those_of_a_loop_in_numpy(folder, by):
    if by is not catalogue.by_rankstruct:
        pytest.importorskip(by.__name__.removeprefix("by_"))
    parts, rng = InteractionsSource(path=str(folder)).read(), np.random.default_rng(1)
    factors = rng.normal(size=(parts.train.num_users, 3)), rng.normal(size=(parts.train.num_items, 3))
    expected, found = (each(parts.train, parts.test, *factors) for each in (catalogue.by_numpy, by))
    assert found == pytest.approx(expected, abs=1e-12)
    assert 0 < expected["nDCG@10"] < expected["R@20"] < 1


def test_stages_and_tables(folder, monkeypatch):
    monkeypatch.setattr(catalogue, "RANK", 3)
    parts, rng = InteractionsSource(path=str(folder)).read(), np.random.default_rng(1)
    sizes = {"users": parts.train.num_users, "items": parts.train.num_items}
    factors = {name: rng.normal(size=(number, 3)) for name, number in sizes.items()}
    stages = [stage for stage in catalogue.installed_stages() if "implicit" not in stage]
    rows = [
        {"stage": stage, "round": number, **catalogue.STAGES[stage](parts, factors, 1)}
        for number in range(2)
        for stage in stages
    ]
    tables = catalogue.as_tables(rows, catalogue.products(parts, 1, 2))
    assert [row[0] for row in tables["epochs"][1] + tables["evaluation"][1]] == stages
    assert tables["epochs"][1][0][3] == tables["evaluation"][1][0][3] == "1.00"
    assert float(tables["evaluation"][1][1][-1]) < 1e-12
    assert [row[0] for row in tables["products"][1]] == ["products", "softmax", "AP hinge", "AP ramp"]
    assert all(len(row) == len(header) for header, its in tables.values() for row in its)
    with pytest.raises(ValueError, match="unknown stage 'sort'; there are: BPR, plain PyTorch"):
        catalogue.benchmark_catalogue(str(folder), ["sort"])


@pytest.mark.soak
def test_a_stage_has_a_process_of_its_own(folder, capsys, tmp_path):
    given = ["--data", str(folder), "--rounds", "1", "--stages", "evaluate_catalogue"]
    assert benchmark(["catalogue", *given, "--json", str(tmp_path / "out.json")]) == 0
    (row,) = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert (row["stage"], row["users"]) == ("evaluate_catalogue", 40)
    assert "users a second" in capsys.readouterr().out
