"""Assemble lists from consecutive blocks of documents, in memory or on disk.

A reader parses a file into blocks of a few megabytes of text and adds them in order. On disk, only one entry per list stays in
memory, so that files may exceed memory: blocks are kept in an unnamed temporary file, which is removed when the process ends in
any way, and then written as one file of arrays.
"""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Literal

import numpy as np

from rankstruct.data.errors import DataError
from rankstruct.data.names import Names

__all__: list[str] = []

_SPARSE_BELOW = 0.25
_STEP = 2**20  # dense entries in memory at once
_HALF = float(np.finfo(np.float16).max)


@dataclass(frozen=True)
class Stream:
    """An array that need not be in memory: `blocks()` returns its entries, flat and in order."""

    dtype: np.dtype
    shape: tuple[int, ...]
    blocks: Callable[[], Iterable[np.ndarray]]

    @classmethod
    def of(cls, array: np.ndarray) -> Stream:
        """The stream of an array."""
        return cls(array.dtype, array.shape, lambda: [np.ascontiguousarray(array).reshape(-1)])

    @property
    def nbytes(self) -> int:
        """Size of the array in bytes."""
        return int(np.prod(self.shape, dtype=object)) * self.dtype.itemsize

    def array(self) -> np.ndarray:
        """The array, without a copy if it is a single block."""
        size, at = math.prod(self.shape), 0
        whole: np.ndarray | None = None
        for block in self.blocks():
            if whole is None:
                if len(block) == size and block.dtype == self.dtype:
                    return block.reshape(self.shape)
                whole = np.empty(size, self.dtype)
            whole[at : at + len(block)] = block
            at += len(block)
        return (np.empty(size, self.dtype) if whole is None else whole).reshape(self.shape)


@dataclass(frozen=True)
class DocumentBlock:
    """Consecutive documents of a file, as a reader adds them to an `Assembly`.

    Args:
        labels: `[n]` float32.
        values: `[entries]` float32, the stored features, document by document.
        indices: `[entries]` int32, their indices, increasing within a document; None if each document has 0 to `width - 1`.
        counts: `[n]` int32, the number of stored features per document; None if `indices` is.
        width: the number of features per document if `indices` is None.
        starts: `[lists]`, the first row of each list, starting with 0; empty if the lists are defined elsewhere.
        qids: `[lists]`, the names of the lists, or None.
        places: `[lists]` int64, the line (or row) of the start of each list, for messages.
        docids: `[n]` or None.
        comments: `[n]` or None.
        missing: `[n]` int32 or None.
    """

    labels: np.ndarray
    values: np.ndarray
    indices: np.ndarray | None
    counts: np.ndarray | None
    width: int
    starts: np.ndarray
    qids: Names | None
    places: np.ndarray
    docids: Names | None = None
    comments: Names | None = None
    missing: np.ndarray | None = None


@dataclass(frozen=True)
class _Kept:
    """The arrays of a block, or their places in the temporary file; `width` is None if features are omitted."""

    rows: int
    width: int | None
    arrays: dict[str, Any]


class Assembly:
    """Assemble blocks to lists; a context manager that removes its temporary file.

    Args:
        folder: the folder of the temporary file; None for memory.
        half: whether to store features as float16.
        features: whether to store features.
    """

    def __init__(self, folder: Path | None = None, *, half: bool = False, features: bool = True) -> None:
        self.half, self.features = half, features
        self.rows = self.entries = self.width = 0
        self._file: IO[bytes] | None = None
        if folder is not None:
            folder.mkdir(parents=True, exist_ok=True)
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
        self._blocks: list[_Kept] = []
        self._sizes: Counter[str] = Counter()
        self._starts: list[np.ndarray] = []
        self._qids: list[Names] = []
        self._places: list[np.ndarray] = []

    def __enter__(self) -> Assembly:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if self._file is not None:
            self._file.close()

    @property
    def qids(self) -> Names:
        """The names of the lists."""
        return Names.joined(self._qids)

    def add(self, block: DocumentBlock) -> None:
        """Add the next documents."""
        if block.qids is not None and len(block.qids):
            skip = int(bool(self._qids) and block.qids[0] == self._qids[-1][-1])  # the last list continues
            if skip < len(block.qids):
                self._starts.append(block.starts[skip:] + self.rows)
                self._qids.append(block.qids[skip:] if skip else block.qids)
                self._places.append(block.places[skip:])
        width, indices = block.width, block.indices
        values = halved(block.values, f"documents from number {self.rows + 1} on") if self.half else block.values
        arrays = {"labels": block.labels, "values": values if self.features else None, "missing": block.missing}
        if indices is not None:
            width = int(indices.max(initial=-1)) + 1
            arrays |= {"indices": indices, "counts": block.counts}
        for name, names in (("docids", block.docids), ("comments", block.comments)):
            if names is not None:
                arrays |= {f"{name}.text": names.text, f"{name}.lengths": np.diff(names.offsets)}
        kept = {name: self._keep(array) for name, array in arrays.items() if array is not None}
        self._blocks.append(_Kept(len(block.labels), width if indices is None else None, kept))
        self._sizes.update({name: len(array) for name, array in arrays.items() if array is not None})
        self.rows += len(block.labels)
        self.entries += len(values)
        self.width = max(self.width, width)

    def _keep(self, array: np.ndarray) -> Any:
        if self._file is None:
            return array
        place = self._file.seek(0, 2)
        self._file.write(np.ascontiguousarray(array).view(np.uint8).data)
        return place, array.dtype, array.nbytes

    def _part(self, block: _Kept, name: str) -> np.ndarray:
        """An array of a block; from memory it is taken once, so that blocks and lists need not both fit."""
        if name in block.arrays:
            if self._file is None:
                array, block.arrays[name] = block.arrays[name], None
                return array
            place, dtype, size = block.arrays[name]
            self._file.seek(place)
            return np.frombuffer(self._file.read(size), dtype)
        if name == "indices":
            return np.tile(np.arange(block.width or 0, dtype=np.int32), block.rows)
        if name.endswith(".text"):
            return np.zeros(0, np.uint8)
        return np.full(block.rows, block.width if name == "counts" else 0, np.int32)

    def _stream(self, name: str, dtype: Any, *shape: int) -> Stream:
        kind = np.dtype(dtype)
        return Stream(kind, shape, lambda: (self._part(block, name).astype(kind, copy=False) for block in self._blocks))

    def _ends(self, name: str, dtype: Any) -> Stream:
        """0, and the sums of the first entries of a column with one per document."""

        def blocks() -> Iterator[np.ndarray]:
            before = 0
            yield np.zeros(1, dtype)
            for block in self._blocks:
                ends = before + np.cumsum(self._part(block, name), dtype=np.int64)
                before = int(ends[-1])
                yield ends.astype(dtype)

        return Stream(np.dtype(dtype), (self.rows + 1,), blocks)

    def finish(
        self,
        path: Path,
        unit: Literal["line", "row"],
        *,
        lengths: np.ndarray | None = None,
        num_features: int | None = None,
        sparse: bool | str = "auto",
        place: Callable[[int], str] | None = None,
    ) -> dict[str, Stream]:
        """The arrays of lists, after the last block; those in memory can be read once.

        Args:
            path: the file, for messages.
            unit: what `places` count.
            lengths: `[lists]`, the sizes of lists that the blocks do not define.
            num_features: the number of features; the greatest found if None.
            sparse: whether features are sparse; "auto" if less than a quarter of the values is stored.
            place: the place of a row, from 0, for messages about several files.

        Raises:
            DataError: the documents of a list are not contiguous; or features are sparse, and float16.
        """
        if lengths is None:
            qids, starts = self.qids, np.concatenate(self._starts)
            self._check_contiguous(path, unit, qids, place)
        else:
            qids = Names.of(list(map(str, range(1, len(lengths) + 1))))
            starts = np.cumsum([0, *lengths[:-1]])[: len(lengths)]
        width = num_features or self.width
        features = (
            self._features(width, sparse) if self.features else {"shape": Stream.of(np.array([self.rows, width]))}
        )
        arrays = features | {
            "labels": self._stream("labels", np.float32, self.rows),
            "offsets": Stream.of(np.append(starts, self.rows).astype(np.int64)),
            "qids.text": Stream.of(qids.text),
            "qids.offsets": Stream.of(qids.offsets),
        }
        for name in ("docids", "comments"):
            if f"{name}.lengths" in self._sizes:
                text = f"{name}.text"
                arrays[text] = self._stream(text, np.uint8, self._sizes[text])
                arrays[f"{name}.offsets"] = self._ends(f"{name}.lengths", np.int64)
        if "missing" in self._sizes:
            arrays["missing"] = self._stream("missing", np.int32, self.rows)
        return arrays

    def _check_contiguous(self, path: Path, unit: str, qids: Names, of_row: Callable[[int], str] | None) -> None:
        if (found := qids.repeated()) is not None:
            again, before = (int(np.concatenate(self._places)[at]) for at in found)
            place = f"{path}:{again}" if unit == "line" else f"{path}, {unit} {again}"
            start, advice = f"on {unit} {before}", "sort the file by qid"
            if of_row is not None:
                place, start = of_row(again - 1), f"in {of_row(before - 1)}"
                advice = "`rankstruct convert --shards` puts the rows of each query together"
            name = qids[found[0]]
            name = name if len(name) <= 60 else f"{name[:60]}..."
            raise DataError(
                f"{place}: expected contiguous documents of each query, got qid:{name} again, which started {start}; "
                f"{advice}"
            )

    def _features(self, width: int, sparse: bool | str) -> dict[str, Stream]:
        kind = np.dtype(np.float16 if self.half else np.float32)
        if sparse is True or (sparse == "auto" and self.entries < _SPARSE_BELOW * self.rows * width):
            check_half(self.half, sparse=True)
            # SciPy copies unless both index arrays have the same dtype
            index = np.int32 if self.entries < 2**31 else np.int64
            return {
                "values": self._stream("values", kind, self.entries),
                "indices": self._stream("indices", index, self.entries),
                "indptr": self._ends("counts", index),
                "shape": Stream.of(np.array([self.rows, width])),
            }
        if all(block.width == width for block in self._blocks):
            return {"features": self._stream("values", kind, self.rows, width)}
        return {"features": Stream(kind, (self.rows, width), lambda: self._dense(width))}

    def _dense(self, width: int) -> Iterator[np.ndarray]:
        step = max(1, _STEP // width)
        for block in self._blocks:
            values, indices, counts = (self._part(block, name) for name in ("values", "indices", "counts"))
            at = 0
            for first in range(0, block.rows, step):
                some = counts[first : first + step]
                entries = slice(at, at + int(some.sum()))
                rows = np.zeros((len(some), width), values.dtype)
                rows[np.repeat(np.arange(len(some)), some), indices[entries]] = values[entries]
                yield rows.reshape(-1)
                at = entries.stop


def halved(values: np.ndarray, place: object) -> np.ndarray:
    """Convert to float16; raises DataError if a number is too large."""
    largest = float(np.fmax.reduce(np.abs(values), axis=None, initial=0))  # not NaN, which is a missing value
    if largest > _HALF:
        raise DataError(
            f"{place}: float16 holds numbers up to {_HALF:g}, got {largest:g}; convert to float32, or scale them"
        )
    return values.astype(np.float16)


def check_half(half: bool, *, sparse: bool) -> None:
    """Raise DataError for sparse features as float16, which SciPy's matrices do not support."""
    if half and sparse:
        raise DataError("float16 requires dense features, and these are sparse; convert to float32")
