"""Conversion of files of lists to memory-mapped files, and to shards, in bounded memory."""

from __future__ import annotations

import os
import shutil
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from rankstruct.checks import check_choice, check_integers
from rankstruct.columns import LIST_ROLES
from rankstruct.data.assembly import Assembly, Stream, check_half, halved
from rankstruct.data.cache import SUFFIX, Fill, to_arrays, write_assembled
from rankstruct.data.columnar import ListReader, read_arrow
from rankstruct.data.errors import DataError
from rankstruct.data.folds import fold_files
from rankstruct.data.formats import find_reader, read_lists, suffix_of
from rankstruct.data.svmlight import Lines, Options, read_svmlight
from rankstruct.data.tables import id_text
from rankstruct.data.text import unpacked_name
from rankstruct.files import folder_beside

__all__ = ["Converted", "convert_lists", "write_shards"]

_DTYPES = ("float32", "float16")
_GROUP = 2**17  # least number of rows of a row group
_NUMBERS = 32  # times as many numbers are in memory at once where a file becomes a table
_SHARD, _ROW = "rankstruct shard", "rankstruct row"  # columns of temporary files


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
    check_choice("dtype", dtype, _DTYPES)
    target = _target_of(source, target)
    return Converted(target, *write_assembled(target, _fill_from(source, options, progress), half=dtype == "float16"))


def write_shards(
    source: str | os.PathLike[str],
    target: str | os.PathLike[str],
    shards: int,
    *,
    dtype: str = "float32",
    progress: bool = False,
    **options: Any,
) -> Converted:
    r"""Write lists as shards, Parquet files that `read_lists` does not load, with the rows of a query in one of them.

    The rows of a query need not be together in the source, and stay in order. Queries are divided by a hash of their names, so
    that the same rows give the same shards; a file is sorted by the first row of each query. Row groups end where lists do.
    Memory is that of one shard, and temporary files need the space of the source once more.

    Args:
        source: a CSV, Parquet or Arrow file; or a folder, a pattern or a URL of Parquet files. Those of other formats of dense
            features, such as SVMlight, become tables of `qid`, `label`, `docid` and a column of lists; comments are left out.
        target: the folder, which is new or empty. It is written at once: a killed process leaves nothing in it.
        shards: number of files; fewer are written if a hash leaves some without queries.
        dtype: dtype of features that are wider floats; others stay what they are.
        progress: whether to show a progress bar.
        options: options of the format's reader, such as `qid`.

    Returns:
        The folder and its size.

    Raises:
        DataError: as the format's reader, or a number is out of range for float16.
        ValueError: an invalid option, or the folder has files.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "train.csv").write_text("qid,label,x\n1,0,0.5\n2,1,1\n1,1,2\n")  # query 1 is in two places
    ...     written = write_shards(Path(folder, "train.csv"), Path(folder, "train"), 2)
    ...     print(written.lists, written.documents, read_lists(written.path).lengths.tolist())
    2 3 [2, 1]
    """
    check_integers(1, shards=shards)
    check_choice("dtype", dtype, _DTYPES)
    source, target = Path(source), Path(target)
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        found = "has files" if target.is_dir() else "is a file"
        raise ValueError(f"target must be a new or an empty folder, got {target}, which {found}")
    with folder_beside(target) as made:
        reader = _as_table(source, made, dtype, progress, options)
        qid = str(reader.table.columns["qid"])
        marked = _marked(reader, qid, shards, dtype)
        first = next(marked, None)
        if first is None:
            raise DataError(f"{source}: expected documents, one per row, got none")
        _write_parts(made, shards, first.schema, chain([first], marked))
        lists, documents = _write_sorted(made, shards, reader, qid)
        os.replace(made / "shards", target)
    return Converted(target, lists, documents, reader.width or len(reader.names))


def _as_table(source: Path, made: Path, dtype: str, progress: bool, options: dict[str, Any]) -> ListReader:
    """The reader of a table, written to a folder if the source is of another format."""
    if find_reader(source, options.get("qid")) is read_arrow:
        return _table_reader(source, options, progress)
    table = _write_table(source, made, dtype=dtype, progress=progress, **options)
    return _table_reader(table, {"labels": "real"}, progress)  # labels are checked


def _write_table(source: Path, made: Path, **options: Any) -> Path:
    """Write a file of another format as a table, whose features are a column of lists."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    data = read_lists(convert_lists(source, made / "lists.rankdata", **options).path)
    if data.is_sparse:
        raise DataError(
            f"{source}: expected dense features, got sparse ones, which shards do not hold; convert it to one file"
        )
    table, writer = made / "lists.parquet", None
    parts = data.offsets[:-1] // max(1, _GROUP * _NUMBERS // max(1, data.num_features))
    for some in np.split(np.arange(data.num_lists), np.flatnonzero(np.diff(parts)) + 1):
        rows = slice(data.offsets[some[0]], data.offsets[some[-1] + 1])
        of_list = np.repeat(np.arange(len(some), dtype=np.int32), data.lengths[some])
        columns = {"qid": pa.DictionaryArray.from_arrays(of_list, data.qids[some].tolist()), "label": data.labels[rows]}
        if data.docids is not None:
            columns["docid"] = pa.array(data.docids[rows].tolist())
        numbers = pa.array(np.asarray(data.features[rows]).reshape(-1))
        columns["features"] = pa.FixedSizeListArray.from_arrays(numbers, data.num_features)
        writer = writer or pq.ParquetWriter(table, pa.table(columns).schema)
        writer.write_table(pa.table(columns))
    if writer is not None:
        writer.close()
    return table


def _write_parts(made: Path, shards: int, schema: Any, marked: Iterator[Any]) -> None:
    """Write the rows of each shard to a folder of `rows`, as they come."""
    import pyarrow.dataset

    (made / "rows").mkdir(parents=True)
    pyarrow.dataset.write_dataset(
        marked,
        schema=schema,
        base_dir=made / "rows",
        format="feather",
        partitioning=[_SHARD],
        max_partitions=shards,
        max_open_files=shards + 1,
        use_threads=False,
    )


def _write_sorted(made: Path, shards: int, reader: ListReader, qid: str) -> tuple[int, int]:
    """Write each folder of `rows` as a file of `shards`, and remove it; returns the number of lists and of documents."""
    import pyarrow.dataset

    (made / "shards").mkdir()
    digits, lists, documents = len(str(shards - 1)), 0, 0
    for folder in sorted((made / "rows").iterdir(), key=lambda each: int(each.name)):
        rows = pyarrow.dataset.dataset(folder, format="feather").to_table()
        name = made / "shards" / f"part-{folder.name.rjust(digits, '0')}.parquet"
        lists += _write_shard(name, rows.sort_by(_ROW).drop_columns(_ROW), reader, qid)
        documents += len(rows)
        shutil.rmtree(folder)
    return lists, documents


def _marked(reader: ListReader, qid: str, shards: int, dtype: str) -> Iterator[Any]:
    """The rows of a table with their number, and the shard of their query."""
    import pyarrow as pa

    before = 0
    for batch in reader.batches():
        reader.check(batch, before)
        ids = reader.table.ids(qid, batch.column(qid), before)
        hashes = [zlib.crc32(id_text("qid", name).encode()) % shards for name in ids.dictionary.to_pylist()]
        columns = dict(zip(batch.schema.names, batch.columns, strict=True))
        for name, column in columns.items():  # Arrow files have one dictionary of a column
            columns[name] = column.dictionary_decode() if pa.types.is_dictionary(column.type) else column
        for name in reader.names:
            kind = columns[name].type
            if reader.of_lists(batch):
                columns[name] = _lists(reader, name, columns[name], dtype, before)
            if pa.types.is_floating(kind) and kind.bit_width > np.dtype(dtype).itemsize * 8:
                columns[name] = _narrowed(reader, name, columns[name], dtype, before)
        columns[_SHARD] = pa.array(np.array(hashes, np.int32)[ids.indices.to_numpy()])
        columns[_ROW] = pa.array(np.arange(before, before + len(batch)))
        before += len(batch)
        yield pa.RecordBatch.from_pydict(columns)


def _lists(reader: ListReader, name: str, column: Any, dtype: str, before: int) -> Any:
    """A column of lists of features, all of one length, in a dtype that is no wider."""
    import pyarrow as pa

    numbers, kind = reader.lists(name, column, before), column.type.value_type
    half = dtype == "float16" or pa.types.is_float16(kind)
    numbers = halved(numbers, f"{reader.table.place(before)} and on, column {name!r}") if half else numbers
    return pa.FixedSizeListArray.from_arrays(pa.array(numbers.reshape(-1)), reader.width)


def _narrowed(reader: ListReader, name: str, column: Any, dtype: str, before: int) -> Any:
    """A column of features in a narrower dtype."""
    import pyarrow as pa

    numbers = reader.table.numbers(name, column).astype(np.float32)
    if dtype == "float16":
        numbers = halved(numbers, f"{reader.table.place(before)} and on, column {name!r}")
    return pa.array(numbers, mask=column.is_null().to_numpy(zero_copy_only=False))


def _write_shard(path: Path, rows: Any, reader: ListReader, qid: str) -> int:
    """Write rows as lists, and return their number."""
    import pyarrow.parquet as pq

    ids = reader.table.ids(qid, rows.column(qid).combine_chunks(), 0)
    _, first, places = np.unique(ids.indices.to_numpy(), return_index=True, return_inverse=True)
    rows = rows.take(np.argsort(first[places], kind="stable"))
    ends = np.cumsum(np.bincount(places)[np.argsort(first)])
    with pq.ParquetWriter(path, rows.schema) as writer:
        start = 0
        while start < len(rows):
            end = int(ends[min(int(np.searchsorted(ends, start + _GROUP)), len(ends) - 1)])
            writer.write_table(rows.slice(start, end - start), row_group_size=end - start)
            start = end
    return len(first)


def _table_reader(source: Path, options: dict[str, Any], progress: bool) -> ListReader:
    _check_options(source, options, ["num_features", "labels", "categorical", *LIST_ROLES])
    roles = {role: options.pop(role, None) for role in LIST_ROLES}
    return ListReader(source, roles=roles, **{"num_features": None, "labels": "grades", **options}, progress=progress)


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
        return _table_reader(source, options, progress).fill
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

    Options and errors are those of `convert_lists` and `read_folds`, or with `shards`, those of `write_shards`.
    """
    source, target = Path(source), Path(target)
    shards = options.pop("shards", None)
    if folds is None and not (source / "Fold1").is_dir():
        pairs = [(file, target) for file in fold_files(source)]
    else:
        numbers = folds or sorted(int(f.name[4:]) for f in source.glob("Fold*") if f.name[4:].isdecimal())
        pairs = [(file, target / f"Fold{number}") for number in numbers for file in fold_files(source, number)]
    converted = []
    for file, folder in pairs:
        name = Path(unpacked_name(file.name))
        if shards is None:
            converted.append(convert_lists(file, folder / name.with_suffix(SUFFIX).name, **options))
        else:
            converted.append(write_shards(file, folder / name.stem, shards, **options))
    return converted
