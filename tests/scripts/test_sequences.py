"""The comparison of counters on a file of sequences."""

import json

import numpy as np
from scripts_by_path import script

sequences = script("sequences")


def test_counters_find_a_cycle_that_popularity_does_not(tmp_path, monkeypatch):
    monkeypatch.setattr(sequences, "RESAMPLES", 9)
    monkeypatch.setattr(sequences, "Recommender", lambda: sequences.SessionKNN(decay=1.0, neighbours=5))  # cheap
    path = tmp_path / "cycle" / "sequences.txt"
    path.parent.mkdir()
    lines = (f"u{user} {' '.join(str((user + step) % 25) for step in range(5 + user % 3))}\n" for user in range(30))
    path.write_text("".join(lines))
    assert sequences.main(["--path", str(path), "--output", str(tmp_path / "out")]) == 0
    found = json.loads((tmp_path / "out" / "sequences.json").read_text())
    rows = {row[2]: row for row in found["tables"]["sequences"]["rows"]}
    assert rows["transitions"][0] == "Cycle"
    assert float(rows["transitions"][3].split()[0]) > 0.9 > float(rows["popularity"][3].split()[0])
    assert "decay=" in rows["transitions"][6]
    assert str(tmp_path) not in found["command"]


def test_at_one_moment_the_test_is_the_first_later_item_of_a_known_user(tmp_path):
    rows = [
        (0, 7, 3, 1),
        (0, 8, 3, 2),
        (1, 7, 5, 3),
        (1, 9, 1, 4),
        (2, 7, 4, 5),
        (0, 9, 2, 6),
        (2, 9, 3, 7),
        (2, 8, 1, 8),
    ]
    rows += [(3, 7, 5, 9), (0, 6, 4, 10), (1, 8, 4, 9)]
    path = tmp_path / "u.data"
    np.savetxt(path, np.random.default_rng(0).permutation(rows), "%d", delimiter="\t")
    parts = sequences.divided(path, at_moments=True)
    for share, (known, held) in zip(sequences.MOMENTS, (parts[:2], parts[2:]), strict=True):
        times = sorted(row[3] for row in rows)
        moment = times[int(np.floor(share * (len(times) - 1)))]
        assert known.num_ratings == sum(row[3] <= moment for row in rows)
        wanted = {}
        for user, item, _, time in sorted(rows, key=lambda row: row[3]):
            if time > moment and any(row[0] == user and row[3] <= moment for row in rows):
                wanted.setdefault(user, item)
        names = {int(held.user_names[u]): int(held.item_names[i]) for u, i in zip(held.user, held.item, strict=True)}
        assert names == wanted != {}
