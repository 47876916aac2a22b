"""Utility by unfairness of exposure: the exact front, and what random rankings by temperature reach.

Lists of documents with merits drawn uniformly; the target is exposure by merit. Unfairness and utility are relative to those of
the ranking by merit. A Plackett-Luce policy of the merits' logarithms is made more random by its temperature; its utility is the
highest of those with at most so much unfairness, and missing where no temperature is that fair on some list. Prints the table,
and writes it as `exposure.json`:

    python scripts/exposure_front.py --output runs/exposure
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

import rankstruct as rs
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_result
from rankstruct.text_tables import markdown_table

LISTS, DOCUMENTS, SAMPLES = 50, 20, 8192
LEVELS = (0, 2, 5, 10, 20, 30, 40, 50, 60, 70, 80, 90, 100)  # per cent of the unfairness of the ranking by merit
TEMPERATURES = np.geomspace(0.01, 3, 60)


def of_front(merits: np.ndarray) -> list[float]:
    """The utility at each level, relative to the ranking by merit."""
    front = rs.constraints.exposure_front(merits)
    unfairness, utility = front.unfairness[-1].item(), front.utility[-1].item()
    return [front.policy(unfairness=level / 100 * unfairness).utility / utility for level in LEVELS]


def of_temperatures(merits: np.ndarray) -> list[float]:
    """The same of the Plackett-Luce policies; NaN at levels that none reaches."""
    front = rs.constraints.exposure_front(merits)
    scores = torch.from_numpy(np.log(merits) / TEMPERATURES[:, None])
    exposure = rs.losses.expected_exposure(scores, samples=SAMPLES)
    unfairness = ((exposure - front.target) ** 2).sum(1) / front.unfairness[-1]
    utility = exposure @ torch.from_numpy(merits) / front.utility[-1]
    fair = [utility[unfairness <= level / 100] for level in LEVELS]
    return [each.max().item() if len(each) else np.nan for each in fair]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("exposure_front", work, args, program="exposure_front.py")


def work(args: Sequence[str]) -> None:
    """Draw lists, print and write the table."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--output", default="runs/exposure", help="folder of exposure.json")
    given = parser.parse_args(args)
    torch.manual_seed(0)
    merits = np.random.default_rng(0).uniform(0.5, 0.9, (LISTS, DOCUMENTS))
    found = {"best mixtures": of_front, "Plackett-Luce by temperature": of_temperatures}
    rows = []
    for name, values in found.items():
        means = np.mean([values(each) for each in merits], axis=0)
        rows.append([name, *("" if np.isnan(mean) else f"{mean:.4f}" for mean in means)])
    header = ["rankings", *map(str, LEVELS)]
    print(markdown_table(header, rows))
    Path(given.output).mkdir(parents=True, exist_ok=True)
    write_result(
        Path(given.output) / "exposure.json",
        ["python", "scripts/exposure_front.py", *args],
        {"utility by unfairness": (header, rows)},
    )


if __name__ == "__main__":
    sys.exit(main())
