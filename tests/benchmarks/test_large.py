"""The benchmark of growing data: every stage on few lists, the table and the figure."""

import pytest

from benchmarks import large
from benchmarks.large import write_web_lists
from rankstruct.data import read_svmlight


def test_the_shape_is_as_it_says(tmp_path):
    assert write_web_lists(tmp_path / "one.txt", 0.01, seed=3) == (60, 7200)
    write_web_lists(tmp_path / "two.txt", 0.01, seed=3)
    assert (tmp_path / "one.txt").read_bytes() == (tmp_path / "two.txt").read_bytes()
    data = read_svmlight(tmp_path / "one.txt", cache=False)
    assert (data.num_lists, data.num_documents, data.num_features) == (60, 7200, 136)
    assert data.lengths.max() > 2 * data.lengths.min()
    shares = [(data.labels == grade).mean() for grade in range(5)]
    assert shares == pytest.approx([0.52, 0.32, 0.13, 0.02, 0.01], abs=0.04)
    with pytest.raises(ValueError, match="scale must be a finite number of at least"):
        write_web_lists(tmp_path / "none.txt", 0)


@pytest.mark.soak
def test_rankers_are_compared_on_lists_that_they_were_not_trained_on(tmp_path):
    pytest.importorskip("lightgbm")
    rows = large.benchmark_large(tmp_path, [0.002], ["convert", *large.RANKERS], threads=1)
    header, table = large.as_rankers(rows)
    assert [row[0] for row in table] == ["AutoRanker", "AutoRanker, fast", "LambdaMART, mean of 3"]
    assert all(row[1] == 1440 and 0.4 < float(row[2]) < 1 for row in table)  # 0.19 by chance
    assert all(float(row[header.index("peak MB")]) > float(row[header.index("MB before")]) > 0 for row in table)


@pytest.mark.soak
def test_stages_table_and_figure(tmp_path):
    pytest.importorskip("lightgbm")
    text = tmp_path / "web.txt"
    write_web_lists(text, 0.002)
    rows = []
    for stage, run in large.STAGES.items():
        found = run(text, {"C": 1.0, "tolerance": 0.05})
        assert found["documents"] == 1440
        assert 50 < found["base_mb"] <= found["peak_mb"] < 50_000  # a process that has imported torch
        one = {"stage": stage, "load": 0.0, **found}
        rows += [{**one, "scale": scale, "documents": round(720_000 * scale)} for scale in (0.002, 0.004)]
    header, table = large.as_rows(rows)
    assert len(table) == 10
    assert all(len(row) == len(header) for row in table)
    with open(tmp_path / "growth.png", "wb") as file:
        large.draw_growth(rows).savefig(file, format="png")
    with pytest.raises(ValueError, match="unknown stage 'sort'; there are: convert"):
        large.benchmark_large(tmp_path, stages=["sort"])
