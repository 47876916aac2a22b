"""Count what the kernels of devices do for a list, without a device: `python scripts/device_costs.py`.

The kernels run in NumPy (tests/lanes.py), which counts the bytes and the instructions of all loads and stores, most of which a
cache answers, and the barriers of a program. A radix sort of float32 scores with int64 positions has four passes that read and
write 12 bytes a document. These are counts, no times: a device must tell those.
"""

import logging
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import rankstruct as rs
from rankstruct.commands._arguments import CommandParser
from rankstruct.text_tables import format_table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))
import lanes

SORT = 4 * 2 * (4 + 8)  # bytes a document
MEASURES = ("AP", "AP@10", "AUC", "pAUC(high=0.1)", "F1", "R@10", "P@10", "nDCG@10", "nDCG", "RR@10")


def count(measure: str, scores: torch.Tensor, labels: torch.Tensor) -> tuple[int, int, int]:
    """Bytes, instructions of all warps of 32 lanes, and barriers of all lists together."""
    found, language = np.zeros(2, int), lanes.kernels().binary.tl
    load, store = language.load, language.store

    def add(pointer: lanes.Pointer, mask: object, width: int) -> None:
        lanes_of = np.broadcast_to(True if mask is None else mask, np.broadcast(pointer.offset, mask).shape)
        found[:] += (lanes_of.sum() * width, -(-lanes_of.size // 32))

    def counted_load(pointer: lanes.Pointer, mask: object = None, other: object = None) -> object:
        add(pointer, mask, pointer.memory.numbers.itemsize)
        return load(pointer, mask, other)

    def counted_store(pointer: lanes.Pointer, value: object, mask: object = None) -> None:
        add(pointer, mask, pointer.memory.numbers.itemsize)
        store(pointer, value, mask)

    lanes.Lanes.checks, before = False, lanes.Lanes.epoch
    with pytest.MonkeyPatch.context() as patch:
        lanes.use(patch)
        patch.setattr(language, "load", counted_load)
        patch.setattr(language, "store", counted_store)
        rs.most_violated(scores, labels, measure)
    return int(found[0]), int(found[1]), lanes.Lanes.epoch - before


def rows(lists: int, sizes: list[int], seed: int) -> Iterator[list[str]]:
    """A row for each measure, size and kind of labels."""
    for measure in MEASURES:
        for size in sizes:
            for grades in ("5 %", "30 %", "five grades")[: 3 if "DCG" in measure else 2]:
                generator = torch.Generator().manual_seed(seed)
                scores = torch.randn(lists, size, generator=generator)
                labels = torch.rand(lists, size, generator=generator)
                if grades == "five grades":
                    labels = torch.bucketize(labels, torch.tensor([0.5, 0.7, 0.85, 0.95]))
                else:
                    labels = labels < float(grades.split()[0]) / 100
                moved, instructions, barriers = count(measure, scores, labels)
                documents = lists * size
                share = f"{moved / documents / SORT:.1f}"
                each = f"{moved / documents:.0f}", f"{instructions / lists:,.0f}", f"{barriers / lists:.0f}"
                yield [measure, f"{size:,}", grades, *each, share]


def main() -> None:
    """Print the table."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--lists", type=int, default=3, help="random lists of each row")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000], help="documents of a list")
    parser.add_argument("--seed", type=int, default=0, help="of the lists")
    options = parser.parse_args()
    logging.getLogger("rankstruct.kernels.gpu").setLevel(logging.ERROR)  # NumPy takes long, as if it compiled
    header = [
        "measure",
        "documents",
        "relevant",
        "bytes a document",
        "warp accesses a list",
        "barriers a list",
        "of the sort's bytes",
    ]
    print(format_table(header, list(rows(options.lists, options.sizes, options.seed))))


if __name__ == "__main__":
    main()
