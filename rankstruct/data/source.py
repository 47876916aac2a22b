"""Training, validation and test lists from the data section of a config."""

from __future__ import annotations

import functools
import glob
import hashlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
from typing_extensions import Self

from rankstruct.checks import check_choice
from rankstruct.data.builtin import digits, synthetic, synthetic_groups
from rankstruct.data.dataset import RankingData, Splits, concatenate
from rankstruct.data.errors import DataError
from rankstruct.data.folds import PARTS, cross_validation_parts, fold_files, read_folds
from rankstruct.data.formats import feature_names, read_lists
from rankstruct.data.pipeline import Pipeline, check_preparation, prepare_splits
from rankstruct.data.shards import Shards, holds_shards, is_shards, local_files, url_of
from rankstruct.data.text import add_to_digest
from rankstruct.messages import Way

__all__ = ["Source"]


def _three(make: Callable[..., tuple[RankingData, object]], seed: int) -> Splits:
    """Three parts from the same scorer."""
    train, weights = make(seed=seed)
    return Splits(train, *(make(seed=seed + part, weights=weights)[0] for part in (1, 2)))


BUILTIN: dict[str, Callable[[int], Splits]] = {
    "digits": digits,
    "synthetic": functools.partial(_three, synthetic),
    "synthetic-groups": functools.partial(_three, synthetic_groups),
}


def _check_expression(name: str, source: Any) -> None:
    said = f"data.{name} must be a column index or a regular expression, got {source!r}"
    if isinstance(source, bool) or not isinstance(source, int | str):
        raise ValueError(said)
    try:
        re.compile(str(source))
    except re.error as error:
        raise ValueError(f"{said}: {error}") from None


class _Pairs(dict[str, Any]):
    """A mapping of an option, which has a hash since no one changes it."""

    def __hash__(self) -> int:  # type: ignore[override]
        return hash(tuple(self.items()))


@dataclass(frozen=True)
class Source:
    r"""The data of a command: where lists come from, and how they are split, grouped and prepared.

    Args:
        path: a folder with `train.txt`, `vali.txt` and `test.txt`, or with `Fold1`, `Fold2`, ...; a file of lists, which is
            split; or set `builtin`. Parts may be folders of Parquet files, and `path` then a URL.
        fold: the `Fold<n>` of the folder, if it has folds; with cross-validation, the number of the fold, from 1.
        builtin: `"digits"` (real), `"synthetic"` or `"synthetic-groups"` (with groups), which need no files.
        prepare: names of preparation steps, for all parts; see `fit_preparation`.
        labels: `"grades"` for non-negative integers, `"real"` for any number.
        diversity_groups: the source of document groups: a regular expression with one capture group for the comments, such as
            `"host = (\S+)"`, or a column index, from 0, before any preparation. None for those of the data.
        columns: by name, the sources of the groups of documents that rules are about, such as `{"seller": r"seller = (\S+)"}`:
            a regular expression likewise, the name of a column of a table, or an index.
        seed: seed of the built-in sets and of splits.
        cache: whether to cache parsed files.
        protocol: `"folds"` (the official ones) or `"cross-validation"`, which splits all lists of the first fold (or of the
            file).
        parts: number of cross-validation folds, at least 3.
        zero_based: whether feature ids of SVMlight files start at 0.
        label: the column of labels of a table; None for the usual names, `label`, `relevance`, `rel`, `y` or `target`.
        qid: the column of queries of a table; None for `qid`, `query_id`, `query` or `group`.
        categorical: columns of a table whose values are categories, in addition to those of strings.

    >>> Source(builtin="synthetic", prepare=["query-minmax"]).read().train.num_lists
    100
    """

    path: str | None = None
    fold: int | None = None
    builtin: str | None = None
    prepare: tuple[str, ...] = ()
    labels: str = "grades"
    diversity_groups: int | str | None = None
    columns: dict[str, int | str] | None = None
    seed: int = 0
    cache: bool = True
    protocol: Literal["folds", "cross-validation"] = "folds"
    parts: int = 5
    zero_based: bool = False
    label: str | None = None
    qid: str | None = None
    categorical: tuple[str, ...] = ()
    protocols: ClassVar[tuple[str, ...]] = ("folds", "cross-validation")

    def __post_init__(self) -> None:
        for entry in fields(self):  # frozen dataclasses are hashable
            if isinstance(value := getattr(self, entry.name), list):
                object.__setattr__(self, entry.name, tuple(value))
            elif isinstance(value, Mapping):
                object.__setattr__(self, entry.name, _Pairs(value))
        if isinstance(self.path, Path):
            object.__setattr__(self, "path", str(self.path))
        if self.builtin == "synthetic-hosts":  # the name in earlier runs
            object.__setattr__(self, "builtin", "synthetic-groups")

    def with_fold(self, number: int) -> Self:
        """The same source with another fold; for a built-in set, with another seed."""
        return replace(self, fold=number) if self.builtin is None else replace(self, seed=number)

    def read(self) -> Splits:
        """Read the three parts, grouped and prepared; raises ValueError as `check` does, and for malformed files."""
        return self.prepare_splits(self.read_raw())[0]

    def read_raw(self, read: Callable[[Path], RankingData] | None = None) -> Splits:
        """Read the three parts, grouped but not prepared; raises as `read` does.

        Args:
            read: the reader of a file of lists; None reads those of all files alike, with the features of the first.
        """
        self.check()
        return Splits(*map(self.grouped, self._divided(read)))

    def grouped(self, data: RankingData) -> RankingData:
        """Lists with the groups and the columns that the options say."""
        data = data.grouped_by(self.diversity_groups)
        return data.with_columns(self.columns) if self.columns else data

    @property
    def reading(self) -> dict[str, Any]:
        """Options of `read_lists` that all files are read with, other than those of their labels."""
        named = {"label": self.label, "qid": self.qid, "categorical": self.categorical or None}
        return {"cache": self.cache, "zero_based": self.zero_based} | {k: v for k, v in named.items() if v is not None}

    def prepare_splits(self, raw: Splits, extra: Sequence[str] = ()) -> tuple[Splits, Pipeline]:
        """Prepare the result of `read_raw`, with `extra` steps; returns the splits and the fitted steps of all parts."""
        return prepare_splits([*self.prepare, *extra], raw)

    def check(self, *, files: bool = True) -> None:
        """Validate the options and, if `files`, the paths, without reading data.

        Raises:
            ValueError: inconsistent options, an unknown name, or a missing path or fold; the message is one line.
        """
        for name, value, known in (
            ("protocol", self.protocol, self.protocols),
            ("labels", self.labels, ("grades", "real")),
        ):
            check_choice(f"data.{name}", value, known)
        check_preparation(self.prepare)
        found: dict[str, Any] = {} if self.diversity_groups is None else {"diversity_groups": self.diversity_groups}
        if not isinstance(self.columns or {}, Mapping):
            raise ValueError(f"data.columns must be a mapping, such as {{seller: 3}}, got {self.columns!r}")
        found |= {f"columns[{name!r}]": where for name, where in (self.columns or {}).items()}
        for name, where in found.items():
            _check_expression(name, where)
        if (self.path is None) == (self.builtin is None):
            raise ValueError(
                f"give either data.path (a folder of LETOR files) or data.builtin ({', '.join(BUILTIN)}); "
                f"got path {self.path!r} and builtin {self.builtin!r}"
            )
        if self.path is not None:
            if files:
                self._check_path(self.path)
            return
        check_choice("data.builtin", self.builtin, BUILTIN)
        if self.protocol != "folds":
            raise ValueError(f"data.protocol {self.protocol!r} requires data.path; folds of a built-in set are seeds")

    def _check_path(self, path: str) -> None:
        if self.protocol != "folds" and self.fold is None:
            raise ValueError(f"data.protocol {self.protocol!r} requires data.fold, the number of the fold, from 1")
        if self.protocol == "cross-validation" and not 1 <= (self.fold or 0) <= self.parts:
            raise ValueError(f"data.fold must be from 1 to data.parts = {self.parts}, got {self.fold}")
        if not Path(path).exists() and url_of(path) is None:
            raise DataError(f"{path}: no such file or folder", Way("path", None, "set {} to that of the data"))
        if not Path(path).is_file():
            fold_files(path, self._folder)
        elif self.protocol == "folds":
            raise ValueError(
                f"{path} is a file, and protocol 'folds' requires a folder with train.txt, vali.txt and test.txt; "
                "'cross-validation' splits a file"
            )

    @property
    def _folder(self) -> int | None:
        """The fold whose folder is read: with protocols that split, the first, which has all lists."""
        if self.protocol == "folds":
            return self.fold
        return 1 if (Path(str(self.path)) / "Fold1").is_dir() else None

    def _divided(self, read: Callable[[Path], RankingData] | None) -> Splits:
        if self.builtin is not None:
            return BUILTIN[self.builtin](self.seed)
        path = Path(str(self.path))
        options = {"labels": self.labels, **self.reading}
        if self.protocol == "folds":
            return read_folds(path, self.fold, **options) if read is None else Splits(*map(read, self._fold_files()))
        if path.is_file():
            pool = read_lists(path, **options) if read is None else read(path)
        else:
            parts = read_folds(path, self._folder, **options) if read is None else map(read, self._fold_files())
            pool = concatenate(list(parts))
        return Splits(*(pool.select(part) for part in self._parts_of(pool.num_lists)))

    def _parts_of(self, lists: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """The training, validation and test lists of so many."""
        return cross_validation_parts(lists, self.fold or 1, self.parts, self.seed)

    def _fold_files(self) -> list[Path]:
        return fold_files(str(self.path), self._folder)

    def files(self) -> list[Path]:
        """The files that are read, and those beside them, such as group sizes; none of a built-in set.

        Raises:
            DataError: the folder or one of its parts is missing.
        """
        if self.path is None:
            return []
        root = Path(self.path)
        if root.is_file():
            return [root, *_beside(root)]
        folder = self._fold_files()[0].parent
        shards = [file for file in self._fold_files() if is_shards(file)]
        return sorted([*shards, *(file for part in PARTS for file in folder.glob(f"{part}.*") if file.is_file())])

    def feature_names(self) -> list[str] | None:
        """The names of the features, in order; None if they have only numbers."""
        if self.path is None:
            return None
        path = Path(self.path)
        file = path if path.is_file() else self._fold_files()[0]
        return feature_names(file, **self.reading)

    def digest(self, *, now: bool = False) -> str:
        """A digest of the content of the files, sixteen characters; "" for a built-in set, or if there are no files.

        It is cached in this process, unless `now` requires that of the current files.
        """
        if self.path is None:
            return ""
        return digest_of(self.path) if now else content_digest(self.path)


def digest_of(path: str) -> str:
    """A digest of the files of a set, including all folds and side files; they are reread if size or time has changed."""
    root = Path(path)
    if root.is_file():
        files = [(".", root), *((side.name, side) for side in _beside(root))]
    else:
        found = sorted(file for part in PARTS for at in ("", "Fold*/") for file in root.glob(f"{at}{part}.*"))
        found += [root / part for part in PARTS if holds_shards(root / part)]
        found = found or [root] * holds_shards(root)
        files = [(str(file.relative_to(root)), file) for file in found]
    return _current_digest(files)


def file_digest(file: Path) -> str:
    """A digest of the content of one file, sixteen characters; it is reread if size or time has changed.

    That of shards at a URL is of what Parquet stores about each file, such as the sizes, the least and the greatest values of its
    columns.
    """
    return _current_digest([("", file)])


def _beside(file: Path) -> list[Path]:
    """The files that belong to a file, such as that of its group sizes."""
    return sorted(side for side in file.parent.glob(f"{glob.escape(file.name)}.*") if side.is_file())


def _current_digest(files: Sequence[tuple[str, Path]]) -> str:
    return _read_digest(tuple(state for name, file in files for state in _states(name, file)))


def _states(name: str, file: Path) -> Iterator[tuple[Any, ...]]:
    """Of a file or each of its shards, the name, the place and what changes when it is written."""
    if url_of(file) is not None:
        yield name, file, Shards(file).content
        return
    shards = local_files(file) if is_shards(file) else {"": file}
    for within, one in shards.items():
        s = one.stat()
        yield f"{name}{within}", one, s.st_size, s.st_mtime_ns, s.st_ctime_ns, s.st_ino


content_digest = functools.cache(digest_of)  # for repeated calls in a process


@functools.cache
def _read_digest(files: tuple[tuple[Any, ...], ...]) -> str:
    digest = hashlib.sha256()
    for name, file, *state in files:
        digest.update(name.encode())
        if len(state) == 1:
            digest.update(state[0].encode())
        else:
            add_to_digest(digest, file)
    return digest.hexdigest()[:16] if files else ""
