"""`rankstruct convert`: convert lists of any size to memory-mapped files, or to shards, in bounded memory."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankstruct.commands._options import column_options, parser_of
from rankstruct.data import convert_lists, write_shards
from rankstruct.data.convert import convert_folder
from rankstruct.data.folds import has_parts
from rankstruct.data.shards import holds_shards, url_of
from rankstruct.files import naming
from rankstruct.text_tables import format_table


def main(args: Sequence[str]) -> None:
    """Convert, and print a table of the files."""
    parser = parser_of("convert")
    given = parser.parse_args(args[1:])
    options: dict[str, Any] = {"dtype": given.dtype, "labels": given.labels} | column_options(given)
    chosen = {name: getattr(given, name) for name in ("num_features", "group_file", "zero_based")}
    options |= {name: value for name, value in chosen.items() if value not in (None, False)}
    start = time.perf_counter()
    if given.num_features is not None and not 0 < given.num_features < 2**31:
        parser.error(f"--num-features must be from 1 to {2**31 - 1}, got {given.num_features}")
    is_folder = given.source.is_dir() and (has_parts(given.source) or not holds_shards(given.source))
    if (is_folder or given.shards or url_of(given.source)) and given.output is None:
        parser.error("a folder, a URL and --shards need --output, the output folder")
    with naming(given.output or given.source.parent):  # on a full disk
        if is_folder:
            more = {} if given.shards is None else {"shards": given.shards}
            made = convert_folder(given.source, given.output, given.folds, progress=True, **options, **more)
        elif given.shards is not None:
            made = [write_shards(given.source, given.output, given.shards, progress=True, **options)]
        else:
            made = [convert_lists(given.source, given.output, progress=True, **options)]
    seconds = time.perf_counter() - start
    rows = [[str(each.path), *each[1:], f"{_size(each.path) / 1e6:.1f}"] for each in made]
    print(format_table(["file", "lists", "documents", "features", "MB"], rows))
    print(f"took {seconds:.1f} s")


def _size(path: Path) -> int:
    return sum(file.stat().st_size for file in (path.iterdir() if path.is_dir() else [path]))
