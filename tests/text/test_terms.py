"""Features of the words that queries and documents share, against their formulas written out."""

import math
import pickle

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


class Encoder:
    """Stands for a SentenceTransformer: counts of letters, twice as long for documents; counts the texts it embeds."""

    def __init__(self):
        self.embedded = []

    def encode_query(self, texts):
        self.embedded += texts
        return np.array([[text.count(letter) for letter in "aeglpr"] for text in texts], float)

    def encode_document(self, texts):
        return 2 * self.encode_query(texts)


class Reranker:
    """Stands for a CrossEncoder: the number of letters of the document per letter of the query."""

    def predict(self, pairs):
        return [len(document) / len(query) for query, document in pairs]


def shares_last_letter(queries, documents):
    return [[float(document[-1:] == query[-1])] for query, document in zip(queries, documents, strict=True)]


PAIRS = (["two", "two", "unknown", "again"], ["c", "empty", "a", "a"])


def test_models_add_a_column_each(features):
    more = TermFeatures(features.collection, [Reranker(), Encoder(), shares_last_letter])
    found = more(*PAIRS)
    assert found.dtype == np.float32
    assert np.array_equal(found[:, : len(TERM_FEATURES)], features(*PAIRS))
    reranked, cosine, shared = found[:, len(TERM_FEATURES) :].T
    assert reranked == pytest.approx([19 / 10, 0, 17 / 5, 17 / 11])
    assert shared.tolist() == [0, 0, 0, 1]
    for query, document, value in zip(*PAIRS, cosine, strict=True):
        a, b = ([text.count(letter) for letter in "aeglpr"] for text in (QUERIES[query], TEXTS[document]))
        norms = math.hypot(*a) * math.hypot(*b)
        assert value == pytest.approx(np.dot(a, b) / norms if norms else 0.0, abs=1e-6)


def test_a_text_is_embedded_once(features):
    encoder = Encoder()
    more = TermFeatures(features.collection, [encoder])
    first = more(*PAIRS)
    assert sorted(encoder.embedded) == sorted([QUERIES[q] for q in set(PAIRS[0])] + [TEXTS[d] for d in set(PAIRS[1])])
    assert np.array_equal(more(*PAIRS), first)
    assert len(encoder.embedded) == 6
    more(["two"], ["b"])
    assert encoder.embedded[6:] == [TEXTS["b"]]


def test_models_are_pickled_with_the_features(features):
    more = TermFeatures(features.collection, [Encoder(), Reranker(), shares_last_letter])
    untouched = pickle.loads(pickle.dumps(more))
    expected = more(*PAIRS)
    assert np.array_equal(untouched(*PAIRS), expected)
    again = pickle.loads(pickle.dumps(more))
    assert np.array_equal(again(*PAIRS), expected)
    assert len(again.models[0].embedded) == 6  # none anew


def test_two_models_are_fitted_to_the_collection(monkeypatch):
    monkeypatch.setattr("rankstruct.text.terms._TOPICS", 2)
    texts = {"a": "car road wheel", "b": "automobile road wheel", "c": "moon star night", "d": "automobiles, wheels"}
    collection = Collection(texts, {"q": "automobile"}, {})
    found = TermFeatures(collection, ["lsa", "char-ngrams"])
    topics, grams = found(["q"] * 4, ["a", "b", "c", "d"])[:, len(TERM_FEATURES) :].T
    assert topics[0] > 0.1 > abs(topics[2])  # without a common word, but with words that others have in common
    assert min(grams[1], grams[3]) > 0.5
    assert grams[0] == grams[2] == 0
    again = pickle.loads(pickle.dumps(found))
    np.testing.assert_array_equal(again(["q"] * 2, ["b", "a"])[:, -2:], np.stack([topics, grams], 1)[[1, 0]])
    with pytest.raises(ValueError, match="models by name are 'lsa' and 'char-ngrams', got 'all-MiniLM-L6-v2'"):
        TermFeatures(collection, ["all-MiniLM-L6-v2"])


def test_no_pairs_have_the_columns_of_models(features):
    assert TermFeatures(features.collection, [Encoder(), Reranker()])([], []).shape == (0, len(TERM_FEATURES) + 2)


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        (lambda queries, documents: np.zeros((len(queries), 2)), r"models\[1\].* of 2 pairs; got shape \(2, 2\)"),
        (lambda queries, documents: [0.0], r"got shape \(1,\)"),
        (lambda queries, documents: [0.0, math.nan], "got NaN or infinity"),
    ],
)
def test_a_model_that_does_not_score_every_pair_is_refused(features, scores, message):
    with pytest.raises(ValueError, match=message):
        TermFeatures(features.collection, [Reranker(), scores])(["two", "two"], ["a", "b"])


def test_what_is_no_list_of_models_is_refused(features):
    with pytest.raises(TypeError, match="models must be a list of models, got Encoder"):
        TermFeatures(features.collection, Encoder())
    with pytest.raises(TypeError, match="or functions of queries and documents; got int"):
        TermFeatures(features.collection, [3])


def test_models_of_sentence_transformers(encoder):
    from sentence_transformers import CrossEncoder, SentenceTransformer

    retriever = SentenceTransformer(encoder, device="cpu")
    reranker = CrossEncoder(encoder, num_labels=1, device="cpu")
    source = TextSource(builtin="questions", depth=3)
    plain, more = source.read_terms().test, source.read_terms([retriever, reranker]).test
    assert np.array_equal(more.features[:, : len(TERM_FEATURES)], plain.features)
    collection, length = source.read().collection, int(more.offsets[1])
    texts = [collection.documents[name] for name in list(more.docids)[:length]]
    query = collection.queries[next(iter(more.qids))]
    cosine = retriever.similarity(retriever.encode([query]), retriever.encode(texts))[0]
    assert more.features[:length, -2] == pytest.approx(cosine.numpy(), abs=1e-5)
    assert more.features[:length, -1] == pytest.approx(reranker.predict([(query, text) for text in texts]), abs=1e-5)


@pytest.mark.parametrize("text", ["", "!", "a b"])
def test_documents_without_a_word_have_cosines_of_0(text):
    features = TermFeatures(Collection({"a": text, "b": text}, {"q": "pear"}, {}), ["lsa", "char-ngrams"])
    np.testing.assert_array_equal(features(["q", "q"], ["a", "b"]), np.zeros((2, 10)))
