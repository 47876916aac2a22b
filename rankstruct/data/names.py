"""Names of documents, lists, users and items, in one buffer, so that a long name only costs its own length.

NumPy's string arrays pad every entry to the longest, and drop null characters at the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.lib.mixins import NDArrayOperatorsMixin

from rankstruct.data._parse import copy_spans
from rankstruct.data.errors import DataError
from rankstruct.messages import shortened

__all__ = ["Names"]

_SLACK = 2**26  # bytes that a fixed-width array may waste


class Names(NDArrayOperatorsMixin):
    """An immutable array `[n]` of strings (or bytes) that is indexed, compared and converted like a NumPy array.

    `names[3]` is a string; a slice, a mask or indices return `Names`. NumPy functions accept it, as a fixed-width array, or as an
    object array if fixed width would waste memory or lose null characters at the end of a name.

    Args:
        text: `[bytes]` uint8, the concatenated names; strings in UTF-8.
        offsets: `[n + 1]` int64: name i is `text[offsets[i] : offsets[i + 1]]`.
        kind: `str` or `bytes`.

    Raises:
        DataError: offsets do not increase from 0 to the length of the text.

    >>> names = Names.of(["d7", "", "d9"])
    >>> names[0], names[[2, 1]].tolist(), names == "d9"
    ('d7', ['d9', ''], array([False, False,  True]))
    """

    __slots__ = ("kind", "offsets", "text")

    def __init__(self, text: np.ndarray, offsets: np.ndarray, kind: type = str) -> None:
        check_offsets("offsets of names", offsets, len(text), "bytes")
        self.text, self.offsets, self.kind = text, offsets, kind

    def __getstate__(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    def __setstate__(self, state: Any) -> None:
        for name, value in (state if isinstance(state, dict) else state[1]).items():  # a pair in older pickles
            setattr(self, name, value)

    @classmethod
    def of(cls, values: Any) -> Names:
        """Convert an array or sequence `[n]` of strings, bytes or numbers (to strings); `Names` are returned as they are."""
        if isinstance(values, Names):
            return values
        given = values if _all_of(str, values) or _all_of(bytes, values) else np.asarray(values)
        if isinstance(given, np.ndarray):
            if given.dtype.kind not in "USOT":
                given = given.astype(np.str_)
            given = given.tolist()
            if not (_all_of(str, given) or _all_of(bytes, given)):  # objects; NumPy would pad their strings
                given = list(map(str, given))
        kind = bytes if _all_of(bytes, given) and len(given) else str
        text = b"".join(given) if kind is bytes else "".join(given).encode("utf-8", "surrogatepass")
        if kind is str and not text.isascii():
            given = (name.encode("utf-8", "surrogatepass") for name in given)
        offsets = np.cumsum(np.fromiter(chain([0], map(len, given)), np.int64))
        return cls(np.frombuffer(text, np.uint8), offsets, kind)

    @classmethod
    def joined(cls, parts: Sequence[Names]) -> Names:
        """Concatenate names.

        >>> Names.joined([Names.of(["a"]), Names.of(["b", "c"])]).tolist()
        ['a', 'b', 'c']
        """
        lengths = np.concatenate([np.diff(part.offsets) for part in parts])
        text = np.concatenate([part.text for part in parts])
        return cls(text, np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64), parts[0].kind)

    @property
    def shape(self) -> tuple[int]:
        """`(n,)`."""
        return (len(self),)

    @property
    def size(self) -> int:
        """Number of names."""
        return len(self)

    @property
    def ndim(self) -> int:
        """1."""
        return 1

    @property
    def dtype(self) -> np.dtype:
        """The dtype of converted arrays, without its width, which is unknown before conversion."""
        return np.dtype(self.kind)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, chosen: Any) -> Any:
        if isinstance(chosen, int | np.integer):
            at = range(len(self))[chosen]
            return self._made(self.text[self.offsets[at] : self.offsets[at + 1]].tobytes())
        if not isinstance(chosen, slice):
            chosen = np.asarray(chosen, None if np.size(chosen) else np.int64)
        rows = np.arange(len(self))[chosen]
        return self.at_spans(self.text, np.stack([self.offsets[rows], self.offsets[rows + 1]], axis=1), self.kind)

    @classmethod
    def at_spans(cls, text: np.ndarray, spans: np.ndarray, kind: type = str) -> Names:
        """Copy the bytes of `text` in `spans` `[n, 2]` int64; UTF-8 is not validated."""
        offsets = np.zeros(len(spans) + 1, np.int64)
        np.cumsum(spans[:, 1] - spans[:, 0], out=offsets[1:])
        copied = np.empty(offsets[-1], np.uint8)
        copy_spans(text, spans, copied)
        return cls(copied, offsets, kind)

    def __iter__(self) -> Iterator[Any]:
        return iter(self.tolist())

    def __contains__(self, name: object) -> bool:
        return name in self.tolist()

    def tolist(self) -> list[Any]:
        """A list of strings, or of bytes."""
        text, bounds = self.text.tobytes(), self.offsets.tolist()
        return [self._made(text[first:last]) for first, last in pairwise(bounds)]

    def astype(self, dtype: Any) -> np.ndarray:
        """An array of another type, such as numbers."""
        return np.asarray(self).astype(dtype)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if dtype is None:
            lengths = np.diff(self.offsets)
            filled = self.offsets[1:][lengths > 0]
            wide = 4 * (len(self) * int(lengths.max(initial=0)) - 8 * len(self.text)) > _SLACK
            dtype = np.object_ if wide or (self.text[filled - 1] == 0).any() else self.kind
        return np.array(self.tolist(), dtype)

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **options: Any) -> Any:
        arrays = [np.asarray(each) if isinstance(each, Names) else each for each in inputs]
        return getattr(ufunc, method)(*arrays, **options)

    def __repr__(self) -> str:
        shown = [shortened(name) for name in self[:6]]
        return f"Names([{', '.join(shown)}{', ...' if len(self) > 6 else ''}])"

    def repeated(self) -> tuple[int, int] | None:
        """`(again, before)`: the index of the first repeated name, and of its first occurrence; None if names are unique.

        >>> Names.of(["a", "b", "a"]).repeated()
        (2, 0)
        """
        hashes = np.fromiter(map(hash, self), np.int64, len(self))
        order = np.argsort(hashes, kind="stable")
        equal = np.flatnonzero(hashes[order[1:]] == hashes[order[:-1]])
        seen: dict[Any, int] = {}
        for place in np.unique(order[np.concatenate([equal, equal + 1])]).tolist():
            before = seen.setdefault(self[place], place)
            if before != place:
                return place, before
        return None

    def _made(self, piece: bytes) -> Any:
        return piece if self.kind is bytes else piece.decode("utf-8", "surrogatepass")


def check_offsets(name: str, offsets: np.ndarray, end: int, of_what: str) -> None:
    """Raise DataError unless `offsets` are int64 `[n + 1]` and increase from 0 to `end`."""
    if not isinstance(offsets, np.ndarray) or offsets.dtype != np.int64 or offsets.ndim != 1 or not len(offsets):
        raise DataError(f"{name} must be an int64 array [n + 1], got {type(offsets).__name__}")
    # Compared, not subtracted, since an int64 difference may overflow and hide a decrease.
    if offsets[0] != 0 or offsets[-1] != end or (offsets[1:] < offsets[:-1]).any():
        shown = np.array2string(offsets, threshold=8, edgeitems=3)
        raise DataError(f"{name} must increase from 0 to the number of {of_what}, {end}; got {shown}")


def _all_of(kind: type, values: Any) -> bool:
    return isinstance(values, list | tuple) and all(isinstance(value, kind) for value in values)
