"""`rankstruct cache`: show or clear the cache of parsed files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from rankstruct.commands._options import parser_of
from rankstruct.data.cache import cache_folder, cache_limit, cached_files, evict, parse_size
from rankstruct.text_tables import format_table


def main(args: Sequence[str]) -> None:
    """Print the cached files, or remove some."""
    given = parser_of("cache").parse_args(args[1:])
    folder = cache_folder(True)
    assert isinstance(folder, Path)
    limit = 0 if given.clear else cache_limit() if given.limit is None else parse_size(given.limit)
    if given.clear or given.limit is not None:
        gone = evict(folder, limit)
        print(f"removed {len(gone)} files, {_megabytes(sum(each.size for each in gone))} MB")
    files = cached_files(folder)
    if files and not given.clear:
        now = time.time()
        rows = [[each.path.name, _megabytes(each.size), f"{(now - each.used) / 86400:.1f}"] for each in files]
        print(format_table(["file", "MB", "days unused"], rows))
    total = _megabytes(sum(each.size for each in files))
    print(f"{folder}: {len(files)} files, {total} MB of at most {_megabytes(cache_limit())}")


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
