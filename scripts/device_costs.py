"""Count what the kernels of devices do for a list, without a device: `python scripts/device_costs.py`.

The kernels run in NumPy (tests/lanes.py), which counts the bytes and the instructions of all loads and stores, most of which a
cache answers, and the barriers of a program. Triton compiles them for sm_90: `--instructions` counts those of the PTX by kind,
and how many there are in loops for each access of global memory, by which the accesses of a list become its instructions. A
radix sort of float32 scores with int64 positions has four passes that read and write 12 bytes a document; on paper a pass takes
25 instructions for the documents of a warp. These are counts, no times: a device must tell those.
"""

import logging
import re
import sys
from collections import Counter
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
SORT_INSTRUCTIONS = 4 * 25 / 32  # of a warp, a document
KINDS = {
    "global memory": r"(ld|st|atom)\.global",
    "shared memory": r"(ld|st)\.shared|shfl",
    "barriers": r"bar\.|barrier",
    "floating": r".*\.f(32|64)",
    "branches": r"bra|ret",
    "integer": "",  # the rest
}
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


def kinds_of(lines: list[str]) -> Counter[str]:
    """The instructions of PTX by kind."""
    found: Counter[str] = Counter()
    for line in lines:
        if instruction := re.match(r"\s+(?:@!?%p\d+\s+)?([a-z][\w.]*)\s[^;]*;|\s+(ret);", line):
            name = instruction[1] or instruction[2]
            found[next(kind for kind, pattern in KINDS.items() if re.match(pattern, name))] += 1
    return found


def loops_of(lines: list[str]) -> list[tuple[int, int]]:
    """The first and the last line of each loop: from a label to the last branch back to it."""
    places = {line.split(":")[0]: at for at, line in enumerate(lines) if line.startswith("$L")}
    found = {}
    for at, line in enumerate(lines):
        target = re.search(r"bra(?:\.uni)?\s+(\$L\w+);", line)
        if target and places[target[1]] <= at:
            found[places[target[1]]] = at
    return sorted(found.items())


def instructions(measure: str, scores: torch.Tensor, labels: torch.Tensor) -> tuple[Counter[str], Counter[str], int]:
    """The instructions of a thread for sm_90 by kind: all, those in loops, and the number of loops."""
    programs: list[str] = []
    with (
        pytest.MonkeyPatch.context() as patch,
        lanes.compiled_for(lanes.SM_90, patch, lambda binary: programs.append(binary.asm["ptx"])),
    ):
        rs.most_violated(scores, labels, measure)
    (lines,) = (program.splitlines() for program in programs)
    loops = loops_of(lines)
    inside = sorted({at for first, last in loops for at in range(first, last + 1)})
    return kinds_of(lines), kinds_of([lines[at] for at in inside]), len(loops)


def programs(size: int) -> Iterator[list[str]]:
    """A row for the program of each measure, for lists of this size."""
    scores, labels = torch.randn(2, size), torch.arange(2 * size).view(2, size) % 2 > 0
    for measure in MEASURES:
        every, inside, loops = instructions(measure, scores, labels)
        each = inside.total() / inside["global memory"]
        yield [measure, f"{every.total():,}", *(f"{every[kind]:,}" for kind in KINDS), str(loops), f"{each:.1f}"]


def rows(lists: int, sizes: list[int], seed: int, ratios: dict[str, float]) -> Iterator[list[str]]:
    """A row for each measure, size and kind of labels; `ratios` are the instructions for each access."""
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
                moved, accesses, barriers = count(measure, scores, labels)
                documents = lists * size
                share = f"{moved / documents / SORT:.1f}"
                each = f"{moved / documents:.0f}", share, f"{accesses / lists:,.0f}", f"{barriers / lists:.0f}"
                own = accesses * ratios[measure] if measure in ratios else 0.0
                shares = (f"{own / lists:,.0f}", f"{own / documents / SORT_INSTRUCTIONS:.1f}") if own else ()
                yield [measure, f"{size:,}", grades, *each, *shares]


def main() -> None:
    """Print the table."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--lists", type=int, default=3, help="random lists of each row")
    parser.add_argument("--sizes", type=int, nargs="+", default=[1000], help="documents of a list")
    parser.add_argument("--instructions", action="store_true", help="count those of the PTX too; needs Triton")
    parser.add_argument("--seed", type=int, default=0, help="of the lists")
    options = parser.parse_args()
    logging.getLogger("rankstruct.kernels.gpu").setLevel(logging.ERROR)  # NumPy takes long, as if it compiled
    header = [
        "measure",
        "documents",
        "relevant",
        "bytes a document",
        "over the sort's",
        "accesses of a warp",
        "barriers",
    ]
    ratios = {}
    if options.instructions:
        found = list(programs(max(options.sizes)))
        ratios = {row[0]: float(row[-1]) for row in found}
        print(format_table(["measure", "instructions", *KINDS, "loops", "in loops, an access"], found), end="\n\n")
        header += ["instructions of a warp", "over the sort's"]
    print(format_table(header, list(rows(options.lists, options.sizes, options.seed, ratios))))


if __name__ == "__main__":
    main()
