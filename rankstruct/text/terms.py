"""Term-matching features of query-document pairs, for feature-based rankers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rankstruct.messages import did_you_mean
from rankstruct.text.collection import Collection, bm25_index, split_words

__all__ = ["TERM_FEATURES", "TermFeatures"]

#: The first columns of `TermFeatures`, in order; those of its models follow.
TERM_FEATURES = (
    *("matched words", "term frequency", "tf-idf", "length", "BM25"),
    *("language model, absolute discount", "language model, Dirichlet", "language model, Jelinek-Mercer"),
)
_DISCOUNT, _MU, _LAMBDA = 0.7, 2000.0, 0.1
_TOPICS, _GRAM, _BLOCK = 200, 4, 2048  # dimensions; characters; pairs at once
_FITTED = ("lsa", "char-ngrams")  # models by name


class TermFeatures:
    """Term-matching features of query-document pairs of a collection, for linear and other feature-based rankers.

    For the words w of a query, with c(w) occurrences in a document of |d| words, u of them distinct, and frequency p(w) in the
    collection: the number of words in the document; sum log(1 + c); sum log(1 + c) log(N / documents with w); log(1 + |d|);
    BM25 (k1 = 1.5, b = 0.75, by bm25s); and the log likelihood of the query under three smoothed language models of the document,

        absolute discount   (max(c - 0.7, 0) + 0.7 u p) / |d|
        Dirichlet           (c + 2000 p) / (|d| + 2000)
        Jelinek-Mercer      0.9 c / |d| + 0.1 p

    Words that occur in no document are ignored. The score of each of `models` is one more column.

    Args:
        collection: the collection, whose words are counted once, on the first call.
        models: a list of models of text. Of one with `encode_query` and `encode_document`, as sentence-transformers'
            `SentenceTransformer`, the score is the cosine of the two embeddings; texts are embedded once, so after training such
            a model further, make new features. Of one with `predict`, as its `CrossEncoder`, it is `predict` of the
            (query, document) pairs. Anything else is called as `model(queries, documents)`, with one text of each per pair,
            and returns a score per pair. Two names stand for models that are fitted to the documents of the collection and need
            no download: `"lsa"`, the cosine in 200 dimensions of latent semantic analysis, and `"char-ngrams"`, the cosine of
            the TF-IDF of 4 characters in a row. Models are pickled with the features.

    Raises:
        TypeError: `models` is not a list, or one of them is none of these.
        ValueError: an unknown name of a model.

    Source: Zhai and Lafferty, "A Study of Smoothing Methods for Language Models", SIGIR 2001 (the models); Qin, Liu, Xu, Li,
    "LETOR", Information Retrieval 2010 (as features); Deerwester et al., "Indexing by Latent Semantic Analysis", JASIS 1990.

    >>> from rankstruct.text import Collection
    >>> collection = Collection({"a": "red apple", "b": "green pear, green leaf"}, {"q": "green pears"}, {})
    >>> TermFeatures(collection)(["q", "q"], ["a", "b"])[:, :4].round(2)
    array([[0.  , 0.  , 0.  , 1.1 ],
           [2.  , 1.79, 1.24, 1.61]], dtype=float32)

    A function of the texts as a ninth column:

    >>> def shorter(queries, documents):
    ...     return [len(query) < len(document) for query, document in zip(queries, documents)]
    >>> TermFeatures(collection, [shorter])(["q", "q"], ["a", "b"])[:, 8]
    array([0., 1.], dtype=float32)
    """

    def __init__(self, collection: Collection, models: Sequence[Any] = ()) -> None:
        if not isinstance(models, list | tuple):  # a SentenceTransformer is a sequence too, of its layers
            raise TypeError(f"models must be a list of models, got {type(models).__name__}")
        for model in models:
            if isinstance(model, str):
                if model not in _FITTED:
                    raise ValueError(
                        f"models by name are {' and '.join(map(repr, _FITTED))}, got {model!r}"
                        f"{did_you_mean(model, _FITTED)}; an encoder is passed as SentenceTransformer(...)"
                    )
            elif not (callable(model) or hasattr(model, "encode_query") or hasattr(model, "predict")):
                raise TypeError(
                    "models must be of type SentenceTransformer or CrossEncoder, or functions of queries and documents; "
                    f"got {type(model).__name__}"
                )
        self.collection = collection
        self.models: tuple[Any, ...] = tuple(
            _Cosine(each, collection) if isinstance(each, str) else each for each in models
        )
        self._embedded: list[tuple[dict[str, np.ndarray], ...]] = [({}, {}) for _ in models]

    def __call__(self, queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
        """Return the features, float32 `[pairs, 8 + models]`, see `TERM_FEATURES`, of pairs of names.

        Raises:
            ValueError: an unknown query or document, different numbers of queries and documents, or a model that does not return
                one finite score per pair.
        """
        if len(queries) != len(documents):
            raise ValueError(f"pairs need as many queries as documents; got {len(queries)} and {len(documents)}")
        for what, names, known in (
            ("query", queries, self.collection.queries),
            ("document", documents, self.collection.documents),
        ):
            if missing := [name for name in names if name not in known]:
                raise ValueError(f"the collection has no {what} {missing[0]!r}")
        of_query: dict[str, list[int]] = {}
        for place, query in enumerate(queries):
            of_query.setdefault(query, []).append(place)
        rows = np.array([self._places[name] for name in documents], np.int64)
        terms = len(TERM_FEATURES)
        found = np.zeros((len(queries), terms + len(self.models)), np.float32)
        for query, places in of_query.items():
            found[places, :terms] = self._of_query(query, rows[places])
        for number, model in enumerate(self.models if len(queries) else ()):
            scores = np.asarray(self._of_model(number, queries, documents), np.float32)
            if scores.size != len(queries) or not np.isfinite(scores).all():
                told = f"shape {scores.shape}" if scores.size != len(queries) else "NaN or infinity"
                raise ValueError(
                    f"models[{number}], a {type(model).__name__}, must return one finite score for each of {len(queries)} "
                    f"pairs; got {told}"
                )
            found[:, terms + number] = scores.reshape(-1)
        return found

    def _of_model(self, number: int, queries: Sequence[str], documents: Sequence[str]) -> Any:
        model, collection = self.models[number], self.collection
        if hasattr(model, "encode_query"):
            of_queries, of_documents = self._embedded[number]
            _embed(of_queries, model.encode_query, collection.queries, queries)
            _embed(of_documents, model.encode_document, collection.documents, documents)
            return [of_queries[query] @ of_documents[name] for query, name in zip(queries, documents, strict=True)]
        asked = [collection.queries[query] for query in queries]
        texts = [collection.documents[name] for name in documents]
        return model.predict(list(zip(asked, texts, strict=True))) if hasattr(model, "predict") else model(asked, texts)

    def _of_query(self, query: str, rows: np.ndarray) -> np.ndarray:
        words = [word for word in split_words([self.collection.queries[query]])[0] if word in self._words]
        columns = [self._words[word] for word in words]
        counts = self._counts[rows][:, columns].toarray().astype(float)
        length, different = self._lengths[rows, None], self._different[rows, None]
        p, there = self._shares[columns], np.maximum(length, 1)
        models = (
            (np.maximum(counts - _DISCOUNT, 0) + _DISCOUNT * different * p) / there,
            (counts + _MU * p) / (length + _MU),
            (1 - _LAMBDA) * counts / there + _LAMBDA * p,
        )
        # A document without words discounts nothing: words are as likely as in the collection.
        likelihoods = [np.log(np.where(length > 0, model, p)).sum(1) for model in models]
        seen = np.log1p(counts)
        bm25 = self._bm25.get_scores(words)[rows] if words else np.zeros(len(rows))
        named = (counts > 0).sum(1), seen.sum(1), seen @ self._rarity[columns], np.log1p(length[:, 0]), bm25
        return np.stack([*named, *likelihoods], axis=1)

    @cached_property
    def _tokens(self) -> list[list[str]]:
        return split_words(self.collection.documents.values())

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: at for at, name in enumerate(self.collection.documents)}

    @cached_property
    def _words(self) -> dict[str, int]:
        return {word: at for at, word in enumerate(dict.fromkeys(word for words in self._tokens for word in words))}

    @cached_property
    def _counts(self) -> Any:
        """How often each document has each word, CSR `[documents, words]`."""
        from scipy import sparse

        columns = [self._words[word] for words in self._tokens for word in words]
        bounds = np.cumsum([0, *map(len, self._tokens)])
        counts = sparse.csr_matrix((np.ones(len(columns)), columns, bounds), (len(self._tokens), len(self._words)))
        counts.sum_duplicates()
        return counts

    @cached_property
    def _lengths(self) -> np.ndarray:
        return np.asarray(self._counts.sum(1)).ravel()

    @cached_property
    def _different(self) -> np.ndarray:
        return np.diff(self._counts.indptr)

    @cached_property
    def _shares(self) -> np.ndarray:
        of_words = np.asarray(self._counts.sum(0)).ravel()
        return of_words / of_words.sum()

    @cached_property
    def _rarity(self) -> np.ndarray:
        """log(N / documents with the word)."""
        return np.log(len(self._tokens) / np.bincount(self._counts.indices, minlength=len(self._words)))

    @cached_property
    def _bm25(self) -> Any:
        return bm25_index(self._tokens)


class _Cosine:
    """The cosine of the TF-IDF vectors of two texts, of words and reduced by a truncated SVD, or of character n-grams; fitted to
    the documents of a collection on the first call.
    """

    def __init__(self, name: str, collection: Collection) -> None:
        self.of_words, self.collection = name == "lsa", collection

    def __call__(self, queries: Sequence[str], documents: Sequence[str]) -> np.ndarray:
        """One cosine per pair; 0 if no document has a word."""
        if self._fitted is None:
            return np.zeros(len(queries))
        (asked, of_queries), (found, of_documents) = (self._distinct(texts) for texts in (queries, documents))
        blocks = [slice(at, at + _BLOCK) for at in range(0, len(of_queries), _BLOCK)]
        products = [asked[of_queries[each]] * found[of_documents[each]] for each in blocks]
        return np.concatenate([np.asarray(each.sum(axis=1)).ravel() for each in products])

    def _distinct(self, texts: Sequence[str]) -> tuple[Any, np.ndarray]:
        """The vectors of the distinct texts, and which of them each text has."""
        places = {text: at for at, text in enumerate(dict.fromkeys(texts))}
        return self._vectors(list(places)), np.array([places[text] for text in texts])

    def _vectors(self, texts: Sequence[str]) -> Any:
        from scipy import sparse
        from sklearn.preprocessing import normalize

        assert self._fitted is not None  # asked before
        vectorizer, reduction = self._fitted
        found = sparse.csr_array(vectorizer.transform(self._parts(texts)))
        return found if reduction is None else normalize(reduction.transform(found))

    def _parts(self, texts: Sequence[str]) -> Sequence[Any]:
        return split_words(texts) if self.of_words else texts

    @cached_property
    def _fitted(self) -> tuple[Any, Any] | None:
        from sklearn.decomposition import TruncatedSVD
        from sklearn.feature_extraction.text import TfidfVectorizer

        grams = {"analyzer": _as_given} if self.of_words else {"analyzer": "char_wb", "ngram_range": (_GRAM, _GRAM)}
        vectorizer = TfidfVectorizer(sublinear_tf=True, **grams)
        parts = self._parts([*self.collection.documents.values()])
        if not any(part if self.of_words else part.strip() for part in parts):
            return None
        found = vectorizer.fit_transform(parts)
        most = min(_TOPICS, *(each - 1 for each in found.shape))
        reduction = TruncatedSVD(most, random_state=0).fit(found) if self.of_words and most > 0 else None
        return vectorizer, reduction


def _as_given(words: list[str]) -> list[str]:
    """The words of a text, which was split before."""
    return words


def _embed(
    known: dict[str, np.ndarray], encode: Callable[[list[str]], Any], texts: Mapping[str, str], names: Sequence[str]
) -> None:
    """Add the unit embeddings of the texts that are not known yet."""
    if new := [name for name in dict.fromkeys(names) if name not in known]:
        rows = np.asarray(encode([texts[name] for name in new]), np.float32)
        known.update(zip(new, rows / np.maximum(np.linalg.norm(rows, axis=1, keepdims=True), 1e-12), strict=True))
