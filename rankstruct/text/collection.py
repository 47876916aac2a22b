"""Text collections in BEIR's format, with documents, queries and judgements; first-stage retrieval with BM25."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rankstruct.checks import check_integers
from rankstruct.configs import load_json
from rankstruct.data import DataError, read_qrels
from rankstruct.data.errors import check_matched
from rankstruct.data.text import SPACE, text_lines
from rankstruct.messages import import_extra, shortened

__all__ = ["Collection", "bm25_run", "read_collection"]

TEXTS = ("corpus.jsonl", "queries.jsonl")
#: Judgement files by part; the first that exists is read. A single file for all parts is split by the caller.
_QRELS = {
    "train": ("qrels_train.tsv", "qrels/train.tsv"),
    "vali": ("qrels_vali.tsv", "qrels_dev.tsv", "qrels/dev.tsv"),
    "test": ("qrels_test.tsv", "qrels/test.tsv"),
    "all": ("qrels.tsv",),
}

Run = dict[str, dict[str, float]]
_WORDS = "text", "splitting texts into words, for BM25 and TermFeatures,", DataError


@dataclass(frozen=True)
class Collection:
    """Documents, queries and relevance judgements.

    Args:
        documents: text by name; title and text are joined.
        queries: text by name.
        judgements: by part (`"train"`, `"vali"`, `"test"`, or `"all"` without a split), `{query: {document: grade}}`; documents
            with grades below 0 are excluded from evaluation. Those of unknown queries and documents are left out.

    Raises:
        DataError: all judged queries or documents of a part are unknown.

    Warns:
        UserWarning: some are unknown, with their share.

    >>> collection = Collection({"d": "green pears"}, {"q": "pear"}, {"test": {"q": {"d": 1}}})
    >>> collection.judgements["test"]["q"]
    {'d': 1}
    """

    documents: dict[str, str]
    queries: dict[str, str]
    judgements: dict[str, Run]

    def __post_init__(self) -> None:
        known = {}
        for part, qrels in self.judgements.items():
            documents = list(dict.fromkeys(name for judged in qrels.values() for name in judged))
            for what, names, texts, source in (
                ("queries", list(qrels), self.queries, "the queries"),
                ("documents", documents, self.documents, "the corpus"),
            ):
                check_matched(
                    [name in texts for name in names],
                    names,
                    what=f"judged {what} ({part})",
                    source=source,
                    advice="their judgements are left out",
                    stacklevel=5,
                )
            known[part] = {
                query: {name: grade for name, grade in judged.items() if name in self.documents}
                for query, judged in qrels.items()
                if query in self.queries
            }
        object.__setattr__(self, "judgements", known)


def read_collection(folder: str | Path, *, trained: bool = False) -> Collection:
    """Read `corpus.jsonl`, `queries.jsonl` and judgements from a folder in BEIR's format.

    A line of the first two is `{"_id": name, "title": text, "text": text}`, with an optional title. Judgements are read by
    `rankstruct.data.read_qrels` from `qrels_train.tsv`, `qrels_test.tsv` and, if it exists, `qrels_vali.tsv` (or
    `qrels_dev.tsv`; or all of them in a folder `qrels`, as in BEIR), otherwise from one `qrels.tsv`.

    Args:
        folder: the folder.
        trained: whether the judgements of training, which are no longer needed, are not read.

    Raises:
        DataError: a file is missing or invalid, or as `Collection`.
    """
    folder = Path(folder)
    documents, queries = (dict(_texts(folder / name)) for name in TEXTS)
    files = judgement_files(folder)
    if "all" not in files and not {"test", *([] if trained else ["train"])} <= set(files):
        raise DataError(f"{folder}: expected qrels_train.tsv and qrels_test.tsv, or one qrels.tsv; got neither")
    if "test" in files:
        files.pop("all", None)
    if trained:
        files.pop("train", None)
    return Collection(documents, queries, {part: read_qrels(file) for part, file in files.items()})


def judgement_files(folder: Path) -> dict[str, Path]:
    """The files of judgements in a folder, by part."""
    first = {
        part: next((folder / name for name in names if (folder / name).is_file()), None)
        for part, names in _QRELS.items()
    }
    return {part: file for part, file in first.items() if file is not None}


def _texts(file: Path) -> Iterator[tuple[str, str]]:
    known = set()
    for number, line in text_lines(file):
        if not line.strip(SPACE):
            continue
        try:
            entry = load_json(line)
            name, title, text = entry["_id"], entry.get("title") or "", entry["text"]
            if type(name) not in (str, int) or not isinstance(title, str) or not isinstance(text, str):
                raise TypeError
            name = str(name).strip(SPACE)  # as in judgements and runs
            if not name:
                raise ValueError
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise DataError(
                f'{file}:{number}: expected {{"_id": ..., "text": ...}}, strings, each once, got {shortened(line.strip())}'
            ) from None
        if name in known:
            raise DataError(f"{file}:{number}: expected each _id once, got {shortened(name)} again")
        known.add(name)
        yield name, f"{title} {text}".strip()
    if not known:
        raise DataError(f"{file}: expected texts, one per line, got an empty file")


def bm25_run(collection: Collection, queries: list[str], depth: int = 100) -> Run:
    """Return the top `depth` documents by BM25 for queries, given by name: `{query: {document: score}}`, best first.

    English stop words are removed and words stemmed (k1 = 1.5, b = 0.75), with the library bm25s. Documents that share no word
    with the query are not retrieved.

    Raises:
        ValueError: a depth below 1.

    Source: Robertson and Zaragoza, "The Probabilistic Relevance Framework: BM25 and Beyond", 2009.
    """
    check_integers(1, depth=depth)
    names = list(collection.documents)
    index = bm25_index(split_words(collection.documents.values()))
    words = split_words(collection.queries[query] for query in queries)
    found, scores = index.retrieve(words, k=min(depth, len(names)), show_progress=False)
    return {
        query: {names[at]: float(score) for at, score in zip(row, values, strict=True) if score > 0}
        for query, row, values in zip(queries, found.tolist(), scores.tolist(), strict=True)
    }


def split_words(texts: Iterable[str]) -> list[list[str]]:
    """Return the stemmed words of texts, without English stop words, by bm25s."""
    bm25s, stemmer = import_extra("bm25s", *_WORDS), import_extra("Stemmer", *_WORDS).Stemmer("english")
    options = {"stopwords": "en", "stemmer": stemmer, "show_progress": False}
    words: list[list[str]] = bm25s.tokenize(list(texts), return_ids=False, **options)
    return words


def bm25_index(words: list[list[str]]) -> Any:
    """Return a bm25s index over documents split into words, with k1 = 1.5 and b = 0.75."""
    index = import_extra("bm25s", *_WORDS).BM25(k1=1.5, b=0.75)
    index.index(words, show_progress=False)
    return index
