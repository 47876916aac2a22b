"""Files of lists as files that are mapped: written once, in memory that does not grow with them, and read without a copy."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankstruct.data.arrow import Rows, read_arrow
from rankstruct.data.assembly import Assembly, halved, read_rankdata, to_arrays, write_assembled
from rankstruct.data.cache import SUFFIX, Stream
from rankstruct.data.dataset import RankingData
from rankstruct.data.errors import shortened
from rankstruct.data.folds import fold_files
from rankstruct.data.formats import FORMATS, read_lists, suffix_of
from rankstruct.data.svmlight import Lines, Options, read_svmlight

__all__ = ["convert_folder", "convert_lists"]

_DTYPES = ("float32", "float16")


def convert_lists(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str] | None = None,
    *,
    dtype: str = "float32",
    progress: bool = False,
    **options: Any,
) -> RankingData:
    r"""Write a file of lists as one that is mapped; what other readers take in its place, by its suffix `.rankdata`.

    SVMlight, LETOR, Parquet and Arrow files of any size are converted in memory that does not grow with them (beside one entry
    a list), in as many threads as torch has; other formats go through memory. The file appears whole, and a killed process
    leaves what was there before. Beside it there must be room for twice its size while it is written.

    Args:
        source: the file, in any format that `read_lists` knows.
        target: the file to write; `source` with the suffix `.rankdata` if None.
        dtype: of the features: `"float32"`, or `"float16"` for half the room, three digits and numbers up to 65504.
        progress: show a bar.
        options: those of the format's reader, such as `labels`, `num_features`, `group_file`.

    Returns:
        The lists, mapped.

    Raises:
        DataError: as the format's reader, or a number that float16 does not hold.
        ValueError: another `dtype`, or source and target are one file.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "train.txt").write_text("2 qid:a 1:0.5 2:1\n0 qid:a 1:0.25 2:3\n")
    ...     print(convert_lists(Path(folder, "train.txt")).features.tolist(), read_lists(Path(folder, "train.rankdata")).labels)
    [[0.5, 1.0], [0.25, 3.0]] [2. 0.]
    """
    source = Path(source)
    target = source.with_name(source.name.removesuffix(".gz")).with_suffix(SUFFIX) if target is None else Path(target)
    if dtype not in _DTYPES:
        raise ValueError(f"dtype must be one of {', '.join(_DTYPES)}, got {shortened(dtype)}")
    if target.suffix != SUFFIX:
        raise ValueError(f"target must end in {SUFFIX}, by which it is known, got {target}")
    if target.exists() and source.exists() and target.samefile(source):
        raise ValueError(f"source and target must be two files, got {source} for both")
    reader = FORMATS.get(suffix_of(source), read_svmlight)
    if reader is read_svmlight:
        given = {name: options.pop(name) for name in tuple(options) if name in Options.__dataclass_fields__}
        fill = Lines(source, Options(**given), progress=progress, **options).fill
    elif reader is read_arrow:
        fill = _rows(source, progress, **options).fill
    else:
        data = read_lists(source, **options)

        def fill(assembly: Assembly) -> dict[str, Stream]:
            arrays = to_arrays(data)
            if assembly.half:
                assembly.check_dense(not data.is_sparse)
                arrays["features"] = halved(arrays["features"], source)
            return {name: Stream.of(array) for name, array in arrays.items()}

    write_assembled(target, fill, half=dtype == "float16")
    return read_rankdata(target)


def _rows(
    source: Path,
    progress: bool,
    *,
    num_features: int | None = None,
    labels: str = "grades",
    label: str = "label",
    qid: str = "qid",
    docid: str = "docid",
) -> Rows:
    return Rows(source, num_features, labels, (label, qid, docid), progress)


def convert_folder(
    source: str | os.PathLike[str], target: str | os.PathLike[str], folds: Sequence[int] | None = None, **options: Any
) -> list[Path]:
    """Convert `train`, `vali` and `test` of a folder, or of its `Fold<n>`, to those of another; returns the new files.

    `options` are those of `convert_lists`; raises as it and `read_folds` do.
    """
    source, target = Path(source), Path(target)
    if folds is None and not (source / "Fold1").is_dir():
        pairs = [(file, target) for file in fold_files(source)]
    else:
        numbers = folds or sorted(int(f.name[4:]) for f in source.glob("Fold*") if f.name[4:].isdecimal())
        pairs = [(file, target / f"Fold{number}") for number in numbers for file in fold_files(source, number)]
    made = []
    for file, folder in pairs:
        made.append(folder / Path(file.name.removesuffix(".gz")).with_suffix(SUFFIX).name)
        convert_lists(file, made[-1], **options)
    return made
