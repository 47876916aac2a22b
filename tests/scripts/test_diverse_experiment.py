"""The experiment on diverse rankings, on synthetic lists and a small file."""

import json

import numpy as np
import pytest
from cell_works import replace_result
from scripts_by_path import script

import rankstruct as rs
from rankstruct.data import DataError, synthetic_groups

diverse = script("diverse_experiment")
build_losses, compare_losses, main = diverse.build_losses, diverse.compare_losses, diverse.main
make_ranker, read_hosts, report_rows = diverse.make_ranker, diverse.read_hosts, diverse.report_rows


@pytest.mark.soak
def test_every_list_is_tested_once_by_weights_of_the_others(tmp_path):
    data, _ = synthetic_groups(lists=12, documents=(6, 10), groups=(2, 4), features=4, seed=1)
    losses = build_losses(2, "ideal")
    measures = [rs.measures.diverse_nDCG(2), rs.measures.StRecall(2)]
    given = {"costs": [1.0], "folds": 3}
    found = compare_losses(data, losses, measures, output=tmp_path / "all", **given)
    assert list(found) == ["diverse", "without groups", "without groups, decay not cut"]
    for values in found.values():
        assert list(values) == ["diverse_nDCG@2", "StRecall@2"]
        assert all(each.shape == (12,) and ((each >= 0) & (each <= 1)).all() for each in values.values())
    again = compare_losses(data, {"diverse": losses["diverse"]}, measures, output=tmp_path / "one", **given)
    assert (again["diverse"]["StRecall@2"] == found["diverse"]["StRecall@2"]).all()
    result = tmp_path / "all" / "diverse" / "fold0_seed0" / "result.json"
    kept = json.loads(result.read_text())
    first = kept["lists"][0]
    kept["values"]["StRecall@2"][0] = -1.0
    replace_result(result.parent, kept)  # a finished cell is taken as it is
    reused = compare_losses(data, losses, measures, output=tmp_path / "all", **given)
    assert reused["diverse"]["StRecall@2"][first] == -1
    assert (np.delete(reused["diverse"]["StRecall@2"] == found["diverse"]["StRecall@2"], first)).all()
    with pytest.raises(ValueError, match="holds a run that differs in costs"):
        compare_losses(data, losses, measures, output=tmp_path / "all", costs=[2.0], folds=3)
    rows = report_rows(found, "diverse_nDCG@2")
    assert [row[0] for row in rows] == list(found)
    assert rows[0][1] == found["diverse"]["diverse_nDCG@2"].mean()
    with pytest.raises(ValueError, match="folds must be from 3 to the number of lists, 12; got 2"):
        compare_losses(data, losses, measures, output=tmp_path / "two", folds=2)


@pytest.mark.parametrize("reference", ["ideal", "predicted"])
def test_more_cost_means_less_loss(reference):
    data, _ = synthetic_groups(lists=20, seed=2)
    lists = data.features, data.labels, data.list_numbers
    for loss in build_losses(5, reference).values():
        fits = [
            make_ranker(loss, rs.measures.diverse_nDCG(5), [C]).fit(*lists, diversity_groups=data.diversity_groups)
            for C in (0.1, 10.0)
        ]
        values = [ranker.mean_loss(ranker.coef_, *lists, diversity_groups=data.diversity_groups) for ranker in fits]
        assert values[1] < values[0]
        assert (fits[0].w0_ == 0).all() == (reference == "ideal")


def lines(path):
    rng = np.random.default_rng(0)
    text = [
        f"{rng.integers(0, 7) / 3:.2f} qid:{q} 1:{rng.random():.3f} 2:{rng.random():.3f} #url = x host = h{rng.integers(3)}.org\n"
        for q in range(9)
        for _ in range(6)
    ]
    path.write_text("".join(text))


@pytest.mark.filterwarnings("ignore:.*no better than w = 0")  # the convex bound
def test_the_script_prints_a_table_and_writes_values(tmp_path, capsys):
    lines(tmp_path / "some_train.txt")
    target = tmp_path / "values.json"
    options = ["--references", "ideal", "--C", "1", "--folds", "3", "--k", "2", "--json", str(target)]
    options += ["--output", str(tmp_path / "out"), "--processes", "0"]
    assert main(["--data", str(tmp_path), *options]) == 0
    out = capsys.readouterr().out
    assert "reference ideal; 9 queries, 3 folds x 1" in out
    assert "without groups, decay not cut" in out
    found = json.loads(target.read_text())
    values = found["values"]["ideal"]["diverse"]["diverse_nDCG@2"]
    assert len(values) == 9
    assert found["tables"]["ideal"]["rows"][0][1] == pytest.approx(np.mean(values))
    assert main(["--data", str(tmp_path / "nowhere.txt"), *options]) == 1
    assert "expected a file, or a folder" in capsys.readouterr().err


def test_hosts_of_a_file_are_groups(tmp_path):
    lines(tmp_path / "a.txt")
    data = read_hosts(tmp_path / "a.txt")
    assert data.diversity_groups.max() == 2
    assert data.labels.max() == 2.0
    with pytest.raises(DataError, match="does not match the comment"):
        read_hosts(tmp_path / "a.txt", "site = (.*)")


def test_the_host_data_can_be_read(data_root):
    data = read_hosts(data_root / "web_hosts")
    assert (data.num_lists, data.num_documents, data.num_features) == (295, 2938, 33)
    hosts = [len(np.unique(data.diversity_groups[a:b])) for a, b in zip(data.offsets, data.offsets[1:], strict=False)]
    assert 4 < np.mean(hosts) < 6
