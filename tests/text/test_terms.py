"""Features of the words that queries and documents share, against their formulas written out."""

import math

import numpy as np
import pytest

from rankstruct.text import TERM_FEATURES, Collection, TermFeatures, TextSource, bm25_run

TEXTS = {"a": "green apple apple", "b": "green pear", "c": "red leaf tree apple", "empty": ""}
QUERIES = {"two": "apple leaf", "again": "apple apple", "unknown": "zebra", "stop": "the of"}


@pytest.fixture
def features():
    return TermFeatures(Collection(TEXTS, QUERIES, {}))


def explicit(query, document):
    """The formulas, word by word."""
    words = {name: text.split() for name, text in TEXTS.items()}
    every = [word for text in words.values() for word in text]
    known = [word for word in QUERIES[query].split() if word in every]
    mine, length = words[document], len(words[document])
    rows = dict.fromkeys(TERM_FEATURES, 0.0)
    rows["length"] = math.log1p(length)
    for word in known:
        count, share = mine.count(word), every.count(word) / len(every)
        holders = sum(word in text for text in words.values())
        rows["matched words"] += count > 0
        rows["term frequency"] += math.log1p(count)
        rows["tf-idf"] += math.log1p(count) * math.log(len(TEXTS) / holders)
        discounted = (max(count - 0.7, 0) + 0.7 * len(set(mine)) * share) / length if length else share
        mixed = 0.9 * count / length + 0.1 * share if length else share
        rows["language model, absolute discount"] += math.log(discounted)
        rows["language model, Dirichlet"] += math.log((count + 2000 * share) / (length + 2000))
        rows["language model, Jelinek-Mercer"] += math.log(mixed)
    return rows


def test_every_pair_has_the_values_of_the_formulas(features):
    pairs = [(query, document) for document in TEXTS for query in QUERIES]
    found = features([query for query, _ in pairs], [document for _, document in pairs])
    assert found.dtype == np.float32
    for pair, row in zip(pairs, found, strict=True):
        for name, value in explicit(*pair).items():
            if name != "BM25":
                assert row[TERM_FEATURES.index(name)] == pytest.approx(value, abs=1e-6), (pair, name)


def test_bm25_is_that_of_the_first_stage(features):
    run = bm25_run(features.collection, ["two", "again"], depth=4)
    column = TERM_FEATURES.index("BM25")
    for query, scores in run.items():
        found = features([query] * 4, list(TEXTS))[:, column]
        assert found == pytest.approx([scores.get(name, 0.0) for name in TEXTS], abs=1e-6)


def test_what_is_refused(features):
    with pytest.raises(ValueError, match="no document 'z'"):
        features(["two"], ["z"])
    with pytest.raises(ValueError, match="no query 'z'"):
        features(["z"], ["a"])
    with pytest.raises(ValueError, match="got 2 and 1"):
        features(["two", "two"], ["a"])


def test_lists_are_what_the_first_stage_found():
    source = TextSource(builtin="questions", depth=12)
    train, vali, test = source.read_terms()
    tokens = source.read().splits
    assert np.array_equal(test.labels, tokens.test.labels)
    assert np.array_equal(vali.offsets, tokens.vali.offsets)
    assert int(np.diff(train.offsets).max()) <= 12
    assert train.features.shape[1] == len(TERM_FEATURES)
    assert np.isfinite(train.features).all()
