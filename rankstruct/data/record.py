"""What a checkpoint keeps of its training data: their place, digests of their files, and the options that split them.

Training goes on only with the same data; other commands take the names of features, users and items from the checkpoint.
"""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp

from rankstruct.blocks import Blocks
from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import DataError
from rankstruct.data.shards import absolute, is_shards
from rankstruct.data.source import file_digest
from rankstruct.files import write_text

__all__: list[str] = []

KEY = "rankstruct_data"  #: of the record in a checkpoint
EARLIER = "the checkpoint was written by an earlier version"

#: Options that say where files are, or how they are read, but not what is in them.
_NOT_CONTENT = ("path", "cache", "run", "encoder", "fetch")
_TEST_FILE = re.compile(r"^test\.|\.test$")


def describe_source(source: Any) -> dict[str, Any]:
    """Plain data about a source whose files were just read: `path`, `files` (digests by name) and `options`."""
    path = None if source.path is None else absolute(source.path)
    return {"path": path, "files": _digests(source), "options": _options(source)}


def write_record(folder: Path, record: Mapping[str, Any], names: Mapping[str, Any]) -> None:
    """Write what a checkpoint keeps of its data for people, with the names of features, users or items, to `data.json`."""
    if record:
        write_text(folder / "data.json", json.dumps(_plain(record) | dict(names), indent=2))


def _plain(value: Any) -> Any:
    """Without tensors, such as the hashes of lists."""
    if not isinstance(value, Mapping):
        return value
    kept = {name: _plain(each) for name, each in value.items() if not hasattr(each, "shape")}
    return {name: each for name, each in kept.items() if each != {} or value[name] == {}}


def changed_files(source: Any, record: Mapping[str, Any]) -> dict[str, str]:
    """The files that are not what they were when a record was made, and what became of them, such as `{"train.csv": "gone"}`.

    Files are told apart by their names within the path of the source: a folder that was moved has not changed.
    """
    before, now = record["files"], _digests(source, record["files"])
    changed = (name for name in {*before, *now} if before.get(name) != now.get(name))
    names = sorted(changed, key=lambda name: (not name.startswith("train"), name))
    return {name: "new" if name not in before else "gone" if name not in now else "changed" for name in names}


def check_unchanged(
    source: Any,
    record: Mapping[str, Any],
    advice: str = "training goes on only with the same data: restore them, or start anew",
) -> None:
    """Raise DataError, with the first of the changed files or options, unless the data are those of a record.

    Args:
        source: the source of the data.
        record: what `describe_source` returned; empty, of an earlier version, it results in a warning.
        advice: the way out.
    """
    if not record:
        warnings.warn(
            f"{EARLIER}, which kept no digests: whether the data are those of before is not known", stacklevel=3
        )
        return
    if files := changed_files(source, record):
        raise DataError(f"{told_change(source, files)}; {advice}")
    if option := _changed_option(source, record):
        raise DataError(f"{option}; {advice}")


def _changed_option(source: Any, record: Mapping[str, Any]) -> str | None:
    """What is said of the first option of a source that is not as in a record."""
    before, now = record["options"], _options(source)
    for name in sorted(before.keys() & now.keys()):
        if before[name] != now[name]:
            return f"data.{name} is {now[name]!r} and was {before[name]!r} when the run was trained"
    return None


def is_same_place(source: Any, record: Mapping[str, Any]) -> bool:
    """Whether a source reads from the path of a record, or both are built in, or it reads a copy: others are other data."""
    path = None if source.path is None else absolute(source.path)
    return path == record["path"] or (path is not None and not changed_files(source, record))


_ROWS = 2**16  # hashed at once


def list_marks(data: RankingData) -> np.ndarray:
    """Hashes `[lists]` of the features of each list, uint64, in any order of its documents.

    Lists of one document or of zeros, which many data sets have in common, are 0.
    """
    if isinstance(data.features, Blocks):
        parts = [_marks(features, offsets) for features, offsets in data.features.blocks()]
        return np.concatenate(parts) if parts else np.zeros(0, np.uint64)
    return _marks(data.features, data.offsets)


def _marks(X: Any, offsets: np.ndarray) -> np.ndarray:
    factors = np.random.default_rng(0).integers(2**63, size=X.shape[1], dtype=np.uint64) * 2 + 1
    rows = np.zeros(X.shape[0], np.uint64)
    for first in range(0, len(rows), _ROWS):
        block = X[first : first + _ROWS]
        # of zeros, also of -0: 0, so that sparse and dense ones are alike
        values = np.asarray(block.data if sp.issparse(block) else block, np.float32) + np.float32(0)
        bits = values.view(np.uint32).astype(np.uint64)
        if sp.issparse(block):
            at = np.repeat(np.arange(block.shape[0]), np.diff(block.indptr))
            np.add.at(rows[first : first + _ROWS], at, bits * factors[block.indices])
        else:
            rows[first : first + _ROWS] = bits @ factors
    rows ^= rows >> np.uint64(32)  # otherwise documents could exchange features
    rows *= np.uint64(0x9E3779B97F4A7C15)
    sums = np.append(np.uint64(0), np.cumsum(rows ^ rows >> np.uint64(29)))
    return np.where(np.diff(offsets) > 1, sums[offsets[1:]] - sums[offsets[:-1]], np.uint64(0))


def check_not_learned(learned: np.ndarray, what: str, source: Any, record: Mapping[str, Any]) -> None:
    """Raise DataError if a model has learned from lists or ratings that it is evaluated on, `[n]` bool.

    Those that the data of the record have twice are no reason.
    """
    if learned.any() and (changed_files(source, record) or _changed_option(source, record)):
        raise DataError(
            f"{int(learned.sum())} of the {len(learned)} {what} of {source.path or source.builtin} are data that the model has "
            "learned from; give the data, the fold and the split of training, or others"
        )


def check_split(source: Any, record: Mapping[str, Any]) -> None:
    """Raise DataError if what is divided into parts, or how, has changed: the parts would have lists of training.

    Test files of a folder may change, and so may the data: those of another path are other data, unless they are a copy.
    """
    if not record or not is_same_place(source, record):
        return
    files = {name: how for name, how in changed_files(source, record).items() if not _TEST_FILE.search(name)}
    if files:
        raise DataError(
            f"{told_change(source, files)}, and would be divided otherwise, so that the model has learned from what it is tested "
            "on; restore it, or give other data by --data.path"
        )
    if option := _changed_option(source, record):
        raise DataError(
            f"{option}, so that the data would be divided otherwise, and the model has learned from what it is tested on; omit "
            "it, or give other data by --data.path"
        )


def told_change(source: Any, files: Mapping[str, str]) -> str:
    """A message about changed files, the first by its path."""
    name, how = next(iter(files.items()))
    path = _place(Path(str(source.path)), name)
    more = f" (and {len(files) - 1} more of its files)" if len(files) > 1 else ""
    told = {"changed": "has changed", "gone": "is gone", "new": "was added"}[how]
    return f"{path}{more} {told} since the run was trained"


def _options(source: Any) -> dict[str, Any]:
    found = {entry.name: getattr(source, entry.name) for entry in fields(source) if entry.name not in _NOT_CONTENT}
    plain = ((tuple, list), (Mapping, dict))
    return {
        name: next((kind(value) for given, kind in plain if isinstance(value, given)), value)
        for name, value in found.items()
    }


def _digests(source: Any, known: Iterable[str] = ()) -> dict[str, str]:
    """Digests of the files of a source by name, relative to its path, `"."` if it is a file; of those known if some are gone."""
    if source.path is None:
        return {}
    root = Path(source.path)
    try:
        files = {_name(file, root): file for file in source.files()}
    except DataError:
        files = {name: file for name in known if (file := _place(root, name)).is_file() or is_shards(file)}
    return {name: file_digest(file) for name, file in files.items()}


def _name(file: Path, root: Path) -> str:
    if file.parent == root.parent and file.name.startswith(root.name):  # the path is a file, or this one is beside it
        return f".{file.name.removeprefix(root.name)}"
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else file.name


def _place(root: Path, name: str) -> Path:
    return Path(f"{root}{name[1:]}") if name.startswith(".") else root / name
