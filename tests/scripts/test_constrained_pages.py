"""What rules for a page cost: the table of the script, on small data, from the definition of its columns."""

import numpy as np
import pytest
from scripts_by_path import script

import rankstruct as rs
from rankstruct.data import synthetic

pages = script("constrained_pages")


def test_films_have_their_groups(tmp_path):
    genres = ["unknown", "Action", "Comedy", "Drama", "Romance", "Thriller"]
    (tmp_path / "u.genre").write_text("".join(f"{name}|{at}\n" for at, name in enumerate(genres)) + "\n")
    films = [("1", "01-Jan-1975", "0|0|1|1|0|0"), ("2", "", "1|0|0|0|0|0"), ("3", "01-Jan-1995", "0|1|0|0|0|1")]
    rows = [f"{film}|A film é|{date}||url|{flags}" for film, date, flags in films]
    (tmp_path / "u.item").write_text("\n".join(rows) + "\n", encoding="latin-1")
    found = {name: values.tolist() for name, values in pages.read_films(tmp_path).items()}
    assert found["genre"] == [2, 0, 1]
    assert found["old"] == [1, 0, 0]
    assert (found["comedy"], found["drama"], found["thriller"]) == ([1, 0, 0], [1, 0, 0], [0, 0, 1])


def test_a_row_has_the_cost_of_its_rules(monkeypatch):
    rng = np.random.default_rng(0)
    films = rng.permuted(np.tile(np.arange(1, 31), (8, 1)), axis=1)
    films[0, -5:] = -1
    scores, labels = -np.sort(rng.normal(size=(8, 30))), (rng.random((8, 30)) < 0.3) * (films > 0)
    groups = rng.integers(0, 2, 30)
    monkeypatch.setattr(pages, "film_lists", lambda *given: (films, scores, labels.astype(float)))
    monkeypatch.setattr(pages, "read_films", lambda folder: {"genre": groups})
    monkeypatch.setattr(pages, "RULES", {"genre <= 5": ["genre <= 5 @ 10"]})
    none, row = pages.film_rows("", 8)
    first = groups[films[:, :10] - 1]
    broken = ((first == 0).sum(1) > 5) | ((first == 1).sum(1) > 5)
    assert row[1] == f"{broken.mean():.0%}"
    assert broken.sum() > 0
    values = []
    for user in range(8):
        taken = {0: 0, 1: 0}
        page = []
        for place in np.flatnonzero(films[user] > 0):
            group = groups[films[user, place] - 1]
            if taken[group] < 5 and len(page) < 10:
                page.append(place)
                taken[group] += 1
        ideal = np.sort(labels[user])[::-1][:10] @ (1 / np.log2(2 + np.arange(10)))
        values.append(labels[user][page] @ (1 / np.log2(2 + np.arange(len(page)))) / ideal)
    assert row[2] == f"{np.mean(values):.4f}"
    assert float(row[3].split()[0]) == pytest.approx(np.mean(values) - float(none[2]), abs=2e-4)


def test_clusters_of_each_list():
    data, _ = synthetic(lists=3, documents=(4, 9), features=3, seed=0)
    grouped = pages.clustered(data, 4)
    assert len(grouped.diversity_groups) == data.num_documents
    for first, last in zip(data.offsets[:-1], data.offsets[1:], strict=True):
        assert len(np.unique(grouped.diversity_groups[first:last])) == 4
    assert isinstance(grouped, rs.data.RankingData)
