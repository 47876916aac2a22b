"""Conversion of files of lists to memory-mapped files, in bounded memory."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from rankstruct.columns import LIST_ROLES
from rankstruct.data.assembly import Assembly, Stream, check_half, halved
from rankstruct.data.cache import SUFFIX, Fill, to_arrays, write_assembled
from rankstruct.data.columnar import ListReader, read_arrow
from rankstruct.data.errors import shortened
from rankstruct.data.folds import fold_files
from rankstruct.data.formats import find_reader, read_lists, suffix_of
from rankstruct.data.svmlight import Lines, Options, read_svmlight
from rankstruct.data.text import unpacked_name

__all__ = ["Converted", "convert_lists"]

_DTYPES = ("float32", "float16")


class Converted(NamedTuple):
    """A converted file, with its number of lists, documents and features.

    >>> Converted(Path("train.rankdata"), lists=2, documents=5, features=3).documents
    5
    """

    path: Path
    lists: int
    documents: int
    features: int


def convert_lists(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "float32",
    progress: bool = False,
    **options: Any,
) -> Converted:
    r"""Convert a file of lists to a memory-mapped file, with suffix `.rankdata`, which is read in its place.

    SVMlight, LETOR, Parquet, Arrow and CSV files of any size are converted in bounded memory (apart from one entry per list), in
    torch's number of threads; other formats are loaded into memory. The file is written atomically: a killed process leaves the
    previous file. Writing takes twice the size of the file in additional disk space.

    Args:
        source: the file, in any format of `read_lists`.
        target: the output file; `source` with the suffix `.rankdata` if None.
        dtype: dtype of the features: `"float32"`, or `"float16"` for half the size, three digits and numbers up to 65504.
        progress: whether to show a progress bar, or lines in a log.
        options: options of the format's reader, such as `labels`, `num_features`, `group_file`.

    Returns:
        The new file and its size; `read_lists` memory-maps it.

    Raises:
        DataError: as the format's reader, or a number is out of range for float16.
        ValueError: an invalid `dtype`, an option that the format does not have, or source and target are the same file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "train.txt").write_text("2 qid:a 1:0.5 2:1\n0 qid:a 1:0.25 2:3\n")
    ...     converted = convert_lists(Path(folder, "train.txt"))
    ...     print(converted.lists, converted.documents, converted.features, read_lists(converted.path).features.tolist())
    1 2 2 [[0.5, 1.0], [0.25, 3.0]]
    """
    source = Path(source)
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {shortened(dtype)}")
    target = _target_of(source, target)
    return Converted(target, *write_assembled(target, _fill_from(source, options, progress), half=dtype == "float16"))


def _target_of(source: Path, target: str | os.PathLike[str] | None) -> Path:
    target = source.with_name(unpacked_name(source.name)).with_suffix(SUFFIX) if target is None else Path(target)
    if target.suffix != SUFFIX:
        raise ValueError(f"target must have the suffix {SUFFIX}, got {target}")
    if target.exists() and source.exists() and target.samefile(source):
        raise ValueError(f"source and target must be different files, got {source} for both")
    return target


def _fill_from(source: Path, options: dict[str, Any], progress: bool) -> Fill:
    """The function that adds the lists of a file, in parts if the format allows it."""
    reader = find_reader(source, options.get("qid"))
    if reader is read_svmlight:
        _check_options(source, options, [*Options.__dataclass_fields__, "group_file"])
        group = options.pop("group_file", None)
        return Lines(source, Options(**options), group, progress=progress).fill
    if reader is read_arrow:
        _check_options(source, options, ["num_features", "labels", "categorical", *LIST_ROLES])
        roles = {role: options.pop(role, None) for role in LIST_ROLES}
        kept = {"num_features": None, "labels": "grades", **options}
        return ListReader(source, roles=roles, **kept, progress=progress).fill
    data = read_lists(source, **options)

    def fill(assembly: Assembly) -> dict[str, Stream]:
        arrays = to_arrays(data)
        if assembly.half:
            check_half(True, sparse=data.is_sparse)
            arrays["features"] = halved(arrays["features"], source)
        return {name: Stream.of(array) for name, array in arrays.items()}

    return fill


def _check_options(source: Path, options: dict[str, Any], known: Sequence[str]) -> None:
    for name in options:
        if name not in known:
            raise ValueError(
                f"{source}: unknown option {name!r} for a {suffix_of(source)} file; its options are {', '.join(known)}"
            )


def convert_folder(
    source: str | os.PathLike[str], target: str | os.PathLike[str], folds: Sequence[int] | None = None, **options: Any
) -> list[Converted]:
    """Convert `train`, `vali` and `test` of a folder, or of each of its `Fold<n>`, to another folder; returns the new files.

    Options and errors are those of `convert_lists` and `read_folds`.
    """
    source, target = Path(source), Path(target)
    if folds is None and not (source / "Fold1").is_dir():
        pairs = [(file, target) for file in fold_files(source)]
    else:
        numbers = folds or sorted(int(f.name[4:]) for f in source.glob("Fold*") if f.name[4:].isdecimal())
        pairs = [(file, target / f"Fold{number}") for number in numbers for file in fold_files(source, number)]
    converted = []
    for file, folder in pairs:
        name = Path(unpacked_name(file.name)).with_suffix(SUFFIX).name
        converted.append(convert_lists(file, folder / name, **options))
    return converted
