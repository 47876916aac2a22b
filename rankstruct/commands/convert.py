"""`rankstruct convert`: files of lists as files that are mapped, once, in bounded memory."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rankstruct.commands._arguments import CommandParser
from rankstruct.data import convert_folder, convert_lists
from rankstruct.files import naming
from rankstruct.tables import format_table


def _parser() -> argparse.ArgumentParser:
    parser = CommandParser(
        prog="rankstruct convert",
        description="Write SVMlight, LETOR, Parquet, Arrow or CSV files as files that are mapped into memory and read "
        "without a copy. Of a folder, train, vali and test are converted, or those of its Fold<n>; data.path of a config then "
        "names the new folder.",
    )
    parser.add_argument("source", type=Path, help="a file or a folder")
    parser.add_argument(
        "--output", type=Path, help="file to write (default: SOURCE with .rankdata), or folder for a folder"
    )
    parser.add_argument("--folds", nargs="+", type=int, help="numbers of the folds (default: all)")
    half = "float16: half the room, three digits, numbers up to 65504 (default: %(default)s)"
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float32", help=half)
    parser.add_argument("--num-features", type=int, help="how many features there are; the greatest id if left out")
    parser.add_argument("--real-labels", action="store_true", help="labels may be any number, not only grades")
    parser.add_argument("--zero-based", action="store_true", help="feature ids of SVMlight lines start at 0")
    parser.add_argument("--group-file", help="sizes of the lists, for SVMlight lines without qid")
    for name in ("label", "qid", "docid"):
        parser.add_argument(f"--{name}", help=f"name of the column, in Parquet, Arrow and CSV files (default: {name})")
    return parser


def main(args: Sequence[str]) -> None:
    """Convert, and print what was made."""
    parser = _parser()
    given = parser.parse_args(args[1:])
    options: dict[str, Any] = {
        name: getattr(given, name) for name in ("num_features", "group_file", "label", "qid", "docid")
    }
    options = {name: value for name, value in options.items() if value is not None}
    options |= {"zero_based": True} if given.zero_based else {}
    options |= {"dtype": given.dtype, "labels": "real" if given.real_labels else "grades"}
    start = time.perf_counter()
    if given.num_features is not None and not 0 < given.num_features < 2**31:
        parser.error(f"--num-features must be from 1 to {2**31 - 1}, got {given.num_features}")
    if given.source.is_dir() and given.output is None:
        parser.error("a folder needs --output, the folder to write to")
    with naming(given.output or given.source.parent):  # on a full disk
        if given.source.is_dir():
            made = convert_folder(given.source, given.output, given.folds, progress=True, **options)
        else:
            made = [convert_lists(given.source, given.output, progress=True, **options)]
    seconds = time.perf_counter() - start
    rows = [[str(each.path), *each[1:], f"{each.path.stat().st_size / 1e6:.1f}"] for each in made]
    print(format_table(["file", "lists", "documents", "features", "MB"], rows))
    print(f"took {seconds:.1f} s")
