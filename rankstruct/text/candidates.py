"""Candidate lists of text: a collection, a first-stage ranker and an encoder's tokens."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.checks import check_integers
from rankstruct.data import DataError, RankingData, Splits, read_run
from rankstruct.data.errors import check_matched
from rankstruct.data.folds import cross_validation_parts
from rankstruct.data.names import Names
from rankstruct.data.runs import check_retrieved
from rankstruct.text.collection import TEXTS, Collection, Run, bm25_run, judgement_files, read_collection
from rankstruct.text.encoder import encode_pairs, load_tokenizer
from rankstruct.text.questions import questions, tiny_encoder
from rankstruct.text.terms import TermFeatures

__all__ = ["TextSource", "candidate_lists"]

_PARTS = 5


@dataclass(frozen=True)
class TextSource:
    """The first-stage results for the queries of a collection, as lists of tokenized query-document pairs.

    Training lists also have the relevant documents that the first stage missed; validation and test lists have only those it
    found, so their measures evaluate re-ranking (`rankstruct evaluate run.txt --qrels FILE` counts the missed documents too).

    Args:
        path: a folder in BEIR's format, see `rankstruct.text.read_collection`; or set `builtin`. The queries of a single
            `qrels.tsv` are split into five folds. Without `qrels_vali.tsv`, a fifth of the training queries is for validation.
        builtin: `"questions"`, a small synthetic collection.
        encoder: the encoder whose tokenizer is used, a local folder or a name in a hub; None is a tiny untrained one, for
            `builtin`.
        run: a TREC run of all queries, instead of BM25.
        depth: number of first-stage documents in a list.
        max_length: maximum number of tokens of a pair; the document is truncated.
        fold: the test fold of a single `qrels.tsv`, from 1 to 5.
        fetch: whether to download an encoder that is not available locally.
        seed: of the splits.
    """

    path: str | None = None
    builtin: str | None = None
    encoder: str | None = None
    run: str | None = None
    depth: int = 100
    max_length: int = 128
    fold: int | None = None
    fetch: bool = False
    seed: int = 0

    def check(self) -> None:
        """Check the options without reading any file.

        Raises:
            ValueError: inconsistent options, or a path that does not exist; one line.
        """
        self._check_lists()
        if self.encoder is None and self.builtin is None:
            raise ValueError("data.encoder is missing: set it to a local folder or the name of a model in a hub")

    def _check_lists(self) -> None:
        if (self.path is None) == (self.builtin is None):
            raise ValueError(f"give data.path or data.builtin; got path {self.path!r} and builtin {self.builtin!r}")
        if self.builtin not in (None, "questions"):
            raise ValueError(f"data.builtin must be 'questions', got {self.builtin!r}")
        for name, given in (("path", self.path), ("run", self.run)):
            if given is not None and not Path(given).exists():
                raise DataError(f"{given}: no such file or folder (data.{name})")
        check_integers(1, depth=self.depth)
        check_integers(8, max_length=self.max_length)
        if self.fold is not None and not 1 <= self.fold <= _PARTS:
            raise ValueError(f"data.fold must be from 1 to {_PARTS}, got {self.fold}")

    def files(self) -> list[Path]:
        """The files that are read, none of the built-in collection; raises DataError if there are no judgements."""
        if self.path is None:
            return []
        folder = Path(self.path)
        judged = judgement_files(folder)
        if "all" not in judged and not {"train", "test"} <= set(judged):
            raise DataError(f"{folder}: expected judgements")
        texts = [file for name in TEXTS if (file := folder / name).is_file()]
        return [*texts, *judged.values(), *([] if self.run is None else [Path(self.run)])]

    def read(self, *, trained: bool = False) -> TextLists:
        """Return the data, which are read lazily; without the training lists if `trained`. Raises ValueError as `check` does."""
        self.check()
        return TextLists(self, trained=trained)

    def read_terms(self, models: Sequence[Any] = ()) -> Splits:
        """Return the lists with the features of `rankstruct.text.TermFeatures`, for feature-based rankers.

        Args:
            models: as in `TermFeatures`: a `SentenceTransformer`, whose cosine is one more feature, a `CrossEncoder`, `"lsa"`.

        Raises:
            ValueError: as `check`, but no encoder is needed.
            TypeError, ValueError: `models`, as in `TermFeatures`.

        >>> train, vali, test = TextSource(builtin="questions", depth=12).read_terms()
        >>> test.features.shape
        (576, 8)
        """
        self._check_lists()
        return TextLists(self).term_splits(models)


class TextLists:
    """The data of a `TextSource`, read lazily; raises DataError for files that are missing or invalid.

    >>> lists = TextLists(TextSource(builtin="questions", depth=12, max_length=48))
    >>> lists.splits.test.num_lists, lists.found
    (48, 1.0)
    """

    def __init__(self, source: TextSource, *, trained: bool = False) -> None:
        self.source, self.trained = source, trained
        self._parts: dict[str, RankingData] = {}

    @cached_property
    def collection(self) -> Collection:
        """The documents, queries and judgements."""
        return questions() if self.source.path is None else read_collection(self.source.path, trained=self.trained)

    @cached_property
    def encoder(self) -> str:
        """The encoder's folder or name; a tiny one is created on first use and deleted with this object."""
        if self.source.encoder is not None:
            return self.source.encoder
        scratch = tempfile.mkdtemp(prefix="rankstruct-")
        weakref.finalize(self, shutil.rmtree, scratch, ignore_errors=True)
        return str(tiny_encoder(self.collection, scratch))

    @cached_property
    def tokenizer(self) -> Any:
        """The encoder's tokenizer."""
        return load_tokenizer(self.encoder, fetch=self.source.fetch)

    @cached_property
    def judged(self) -> tuple[Run, Run, Run]:
        """Judgements of the training, validation and test queries."""
        return _divided(self.collection.judgements, self.source.fold or 1, self.source.seed)

    @cached_property
    def run(self) -> Run:
        """The first-stage results for all of them."""
        queries = [query for part in self.judged for query in part]
        if self.source.run is None:
            return bm25_run(self.collection, queries, self.source.depth)
        run = read_run(self.source.run)
        if missing := [query for query in queries if query not in run]:
            raise DataError(
                f"{self.source.run}: the run has no results for the judged query {missing[0]!r} ({len(missing)} of "
                f"{len(queries)} are missing)"
            )
        for query in queries:
            if unknown := next((name for name in run[query] if name not in self.collection.documents), None):
                raise DataError(
                    f"{self.source.run}: the corpus has no document {unknown!r}, retrieved for query {query!r}"
                )
        retrieved = [(name in judged[query], name) for judged in self.judged for query in judged for name in run[query]]
        check_retrieved(np.array([known for known, _ in retrieved], bool), [name for _, name in retrieved])
        return run

    @property
    def splits(self) -> Splits:
        """Training, validation and test lists, whose features are tokens."""
        return Splits(*map(self.part, Splits._fields))

    def part(self, name: str) -> RankingData:
        """The lists of `"train"`, `"vali"` or `"test"`, whose features are tokens, read on first use."""
        if name not in self._parts:
            judged = self.judged[Splits._fields.index(name)]
            self._parts[name] = self._lists(judged, self._tokens, add_relevant=name == "train")
        return self._parts[name]

    def tokenizer_digest(self) -> str:
        """A digest of the tokenizer, without the state of its last call."""
        if (inner := getattr(self.tokenizer, "backend_tokenizer", None)) is not None:
            content = {**json.loads(inner.to_str()), "truncation": None, "padding": None}
        else:
            content = self.tokenizer.get_vocab()
        return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:16]

    def term_splits(self, models: Sequence[Any] = ()) -> Splits:
        """The same lists with the features of `TermFeatures(collection, models)`."""
        features = TermFeatures(self.collection, models)
        train, vali, test = (self._lists(qrels, features) for qrels in self.judged)
        return Splits(train, vali, test)

    @property
    def found(self) -> float:
        """The first stage's recall of relevant documents on the test queries."""
        wanted = {(query, name) for query, judged in self.judged[2].items() for name in judged if judged[name] > 0}
        lists = candidate_lists(self.judged[2], self.run, self.source.depth)
        listed = {(query, name) for query, names in zip(lists[0], lists[1], strict=True) for name in names}
        return len(wanted & listed) / max(len(wanted), 1)

    def _tokens(self, queries: list[str], documents: list[str]) -> np.ndarray:
        asked = [self.collection.queries[query] for query in queries]
        texts = [self.collection.documents[name] for name in documents]
        return encode_pairs(self.tokenizer, asked, texts, self.source.max_length)

    def _lists(
        self, qrels: Run, features: Callable[[list[str], list[str]], np.ndarray], *, add_relevant: bool = False
    ) -> RankingData:
        queries, documents, labels = candidate_lists(qrels, self.run, self.source.depth, add_relevant=add_relevant)
        lengths = [len(each) for each in documents]
        asked = [query for query, length in zip(queries, lengths, strict=True) for _ in range(length)]
        names = [name for each in documents for name in each]
        return RankingData(
            features(asked, names),
            np.array([grade for each in labels for grade in each], np.float32),
            np.cumsum([0, *lengths], dtype=np.int64),
            Names.of(queries),
            Names.of(names),
        )


def candidate_lists(
    qrels: Run, run: Run, depth: int = 100, *, add_relevant: bool = False
) -> tuple[list[str], list[list[str]], list[list[float]]]:
    """Return queries, their documents and grades: the top `depth` of a run, without documents of a grade below 0.

    Queries without results are skipped, which is reported as a warning with their share.

    Args:
        qrels: `{query: {document: grade}}`; unjudged documents have grade 0.
        run: `{query: {document: score}}`; ties stay in the order of the run.
        depth: number of documents of the run in a list.
        add_relevant: whether to add the relevant documents that are missing.

    Raises:
        DataError: none of the queries has results.

    >>> candidate_lists({"q": {"a": 1, "b": -1, "z": 2}}, {"q": {"c": 2.0, "a": 3.0, "b": 1.0}}, 3, add_relevant=True)
    (['q'], [['a', 'c', 'z']], [[1.0, 0.0, 2.0]])
    """
    matched = [query in run for query in qrels]
    check_matched(matched, list(qrels), what="queries of the qrels", source="the run", advice="they are skipped")
    queries, documents, labels = [], [], []
    for query, judged in qrels.items():
        found = sorted(run.get(query, {}), key=lambda name: -run[query][name])[:depth]
        names = [name for name in found if judged.get(name, 0) >= 0]
        if add_relevant:
            names += [name for name, grade in judged.items() if grade > 0 and name not in set(found)]
        if names:
            queries.append(query)
            documents.append(names)
            labels.append([float(judged.get(name, 0)) for name in names])
    return queries, documents, labels


def _divided(judgements: dict[str, Run], fold: int, seed: int) -> tuple[Run, Run, Run]:
    """Judgements of the training, validation and test queries."""
    if "all" in judgements:
        every = judgements["all"]
        names = list(every)
        chosen = cross_validation_parts(len(names), fold, _PARTS, seed)
        train, vali, test = ({names[at]: every[names[at]] for at in part} for part in chosen)
        return train, vali, test
    train, test = judgements.get("train", {}), judgements["test"]  # none for a trained model
    if "vali" in judgements or not train:
        return train, judgements.get("vali", {}), test
    names = list(train)
    _, held, _ = cross_validation_parts(len(names), 1, _PARTS, seed)
    vali = {names[at]: train[names[at]] for at in held}
    return {name: each for name, each in train.items() if name not in vali}, vali, test
