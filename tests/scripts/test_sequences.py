"""The comparison of counters on a file of sequences."""

import json

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
    rows = {row[1]: row for row in found["tables"]["sequences"]["rows"]}
    assert rows["transitions"][0] == "Cycle"
    assert float(rows["transitions"][2].split()[0]) > 0.9 > float(rows["popularity"][2].split()[0])
    assert "decay=" in rows["transitions"][5]
    assert str(tmp_path) not in found["command"]
