"""Count what one use of the library walks through: files entered, Python functions called, and changes of file from call to call.

    python scripts/call_paths.py            # about 20 seconds

A reader follows the same path. Each use is called once before it is counted, so that imports and caches do not count.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch

import rankstruct as rs

_PACKAGE = str(Path(rs.__file__).parent)


def walked(use: Callable[[], Any]) -> list[tuple[str, str]]:
    """File and qualified name of each function of the package that `use` calls, in order.

    >>> [name for _, name in walked(lambda: rs.RankNetLoss)]
    []
    """
    calls: list[tuple[str, str]] = []

    def watch(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(_PACKAGE):
            name = frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name
            calls.append((frame.f_code.co_filename.removeprefix(_PACKAGE), name))

    sys.setprofile(watch)
    try:
        use()
    finally:
        sys.setprofile(None)
    return calls


def uses(folder: Path) -> dict[str, Callable[[], Any]]:
    """Everyday uses by name."""
    draw = np.random.default_rng(0)
    scores, labels = torch.randn(8, 30, requires_grad=True), torch.randint(2, (8, 30))
    flat = scores.detach().flatten().requires_grad_()
    offsets, weights, item_weights = torch.arange(0, 241, 30), torch.rand(8) + 0.5, torch.rand(8, 30) + 0.5
    ap, ndcg, pairs = rs.StructuredHingeLoss("AP"), rs.StructuredHingeLoss("nDCG@10"), rs.LambdaLoss()
    features, relevance, qid = draw.normal(size=(200, 5)), draw.integers(0, 3, 200), np.repeat(np.arange(20), 10)
    users, items = draw.integers(0, 40, 600), draw.integers(0, 30, 600)
    table = folder / "table.csv"
    rows = [
        f"{q},{y},{','.join(f'{value:.3f}' for value in x)}" for q, y, x in zip(qid, relevance, features, strict=True)
    ]
    table.write_text("\n".join(["qid,label,a,b,c,d,e", *rows]) + "\n")

    def from_table() -> torch.Tensor:
        data = rs.data.read_lists(table)
        model = torch.nn.Linear(5, 1)
        return ap(
            model(torch.as_tensor(data.features, dtype=torch.float32)).squeeze(-1),
            torch.as_tensor(data.labels),
            offsets=data.offsets,
        )

    return {
        "AP loss, padded": lambda: ap(scores, labels).backward(),
        "AP loss, flat": lambda: ap(flat, labels.flatten(), offsets=offsets).backward(),
        "AP loss, weighted": lambda: ap(scores, labels, weights=weights).backward(),
        "nDCG@10 loss, item weights": lambda: ndcg(scores, labels, item_weights=item_weights).backward(),
        "LambdaLoss": lambda: pairs(scores, labels).backward(),
        "rs.evaluate": lambda: rs.evaluate(scores, labels, "nDCG@10"),
        'LinearRanker("AP").fit': lambda: rs.LinearRanker("AP").fit(features, relevance > 0, qid=qid),
        "Recommender.fit": lambda: rs.Recommender(max_epochs=1).fit(users, items),
        "a CSV table to a loss": from_table,
    }


def main() -> None:
    """Print one line a use, or with the name of one, its path."""
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        everyday = uses(Path(folder))
        if sys.argv[1:]:
            everyday[sys.argv[1]]()
            print("\n".join(f"{file}  {name}" for file, name in walked(everyday[sys.argv[1]])))
            return
        print(f"{'':28}{'files':>8}{'functions':>11}{'calls':>9}{'changes':>9}")
        for name, use in everyday.items():
            use()
            calls = walked(use)
            files = [file for file, _ in calls]
            changes = sum(a != b for a, b in pairwise(files))
            print(f"{name:28}{len(set(files)):8}{len(set(calls)):11}{len(calls):9}{changes:9}", flush=True)


if __name__ == "__main__":
    main()
