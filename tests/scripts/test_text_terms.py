"""The experiment with features of words and a cosine: tables, and nothing run twice."""

import json

import numpy as np
import pytest
from scripts_by_path import script
from small_text import write_collection

pytestmark = pytest.mark.needs("sentence_transformers", "bm25s", "Stemmer")


@pytest.mark.soak
def test_tables_of_features_with_bm25_and_kept_results(tmp_path, capsys, monkeypatch):
    from rankstruct.text import questions, tiny_encoder

    experiment = script("text_terms")
    monkeypatch.setattr(experiment, "DEPTH", 10)
    write_collection(tmp_path / "small")
    encoder = tiny_encoder(questions(), tmp_path / "encoder")
    command = ["--collection", str(tmp_path / "small"), "--encoder", str(encoder), "--output", str(tmp_path / "out")]
    command += ["--processes", "0", "--seeds", "2"]
    assert experiment.main(command) == 0
    printed = capsys.readouterr().out
    tables = json.loads((tmp_path / "out" / "text-terms-small.json").read_text())["tables"]
    means = {row[0]: row[1:] for row in tables["small means"]["rows"]}
    assert [*means] == ["BM25", "cosine of the embeddings", "terms", "terms and cosine"]
    for kind in ("terms", "terms-and-cosine"):
        files = [*(tmp_path / "out" / "terms-small" / kind).glob("*/result.json")]
        values = [json.loads(path.read_text())["test"]["nDCG@10"] for path in files]
        assert [len(each) for each in values] == [8, 8]  # two seeds
        assert means[kind.replace("-", " ")][0].startswith(f"{np.mean(values):.4f} ±")
    assert [row[:3] for row in tables["small tests"]["rows"]][::2] == [
        ["terms", "nDCG@10", "BM25"],
        ["terms and cosine", "nDCG@10", "BM25"],
        ["terms and cosine", "nDCG@10", "terms"],
    ]
    monkeypatch.setattr(experiment, "train", None)  # nothing is run again
    assert experiment.main(command) == 0
    assert capsys.readouterr().out == printed
