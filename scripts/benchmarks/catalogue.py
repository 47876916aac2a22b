"""One epoch on implicit feedback, and the evaluation over the full catalogue, against plain PyTorch, NumPy and other libraries.

Each stage runs in a process of its own, in turn and several times: seconds are medians, ratios those of the same round to the
base of each table, memory is the peak of the process. Stages whose library is not installed are left out.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
import torch

import rankstruct as rs
from benchmarks.large import timed
from benchmarks.timing import both_ways, check_known, environment, interleaved_ratios
from rankstruct.progress import Progress
from rankstruct.recommenders import (
    InteractionsSource,
    MatrixFactorization,
    Negatives,
    Ratings,
    Recommender,
    evaluate_catalogue,
)

RANK, SAMPLED, TOP = 64, 4096, 20
MEASURES = ("nDCG@10", "R@10", "nDCG@20", "R@20")


def _ours(make: Callable[[], torch.nn.Module], **given: Any) -> Callable[..., dict[str, Any]]:
    def stage(parts: Any, _: Any, threads: int) -> dict[str, Any]:
        model = Recommender(make(), rank=RANK, max_epochs=1, validation_share=0.0, start="random", **given)
        return timed(lambda: model.fit(parts.train))[1]

    return stage


def _start(parts: Any, _: Any, threads: int) -> dict[str, Any]:
    scorer = MatrixFactorization(parts.train.num_users, parts.train.num_items, RANK)
    return timed(lambda: scorer.start_from_interactions(parts.train))[1]


def _plain(parts: Any, _: Any, threads: int) -> dict[str, Any]:
    """BPR as one writes it: embeddings, one uniform item for each interaction, Adam."""
    users, items = (torch.from_numpy(each).long() for each in (parts.train.user, parts.train.item))
    of_users, of_items = (torch.nn.Embedding(n, RANK) for n in (parts.train.num_users, parts.train.num_items))
    optimizer = torch.optim.Adam([of_users.weight, of_items.weight], lr=0.01)

    def epoch() -> None:
        for batch in torch.randperm(len(users)).split(SAMPLED):
            user, item = of_users(users[batch]), of_items(items[batch])
            other = of_items(torch.randint(parts.train.num_items, batch.shape))
            loss = -torch.nn.functional.logsigmoid((user * (item - other)).sum(-1)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return timed(epoch)[1]


def _implicit(kind: str, **given: Any) -> Callable[..., dict[str, Any]]:
    def stage(parts: Any, _: Any, threads: int) -> dict[str, Any]:
        import implicit.cpu.als
        import implicit.cpu.bpr

        make = {"bpr": implicit.cpu.bpr.BayesianPersonalizedRanking, "als": implicit.cpu.als.AlternatingLeastSquares}
        model, matrix = make[kind](factors=RANK, iterations=1, num_threads=threads), sp.csr_matrix(parts.train.to_csr())
        return timed(lambda: model.fit(matrix, show_progress=False))[1]

    return stage


class Factors:
    """A model of given factors.

    Args:
        users, items: `[users, rank]` and `[items, rank]`.
    """

    def __init__(self, users: np.ndarray, items: np.ndarray) -> None:
        self.users, self.items = torch.from_numpy(users), torch.from_numpy(items)

    def vectors(self, users: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """The factors of some users and of all items."""
        return self.users[users], self.items

    def item_scores(self, users: torch.Tensor) -> torch.Tensor:
        """The scores of all items."""
        return self.users[users] @ self.items.T


def by_rankstruct(train: Ratings, test: Ratings, users: np.ndarray, items: np.ndarray) -> dict[str, float]:
    """Means of the measures by `evaluate_catalogue`."""
    found = evaluate_catalogue(Factors(users, items), test, MEASURES, exclude=train)
    return {name: float(values.mean()) for name, values in found.items()}


def by_numpy(train: Ratings, test: Ratings, users: np.ndarray, items: np.ndarray) -> dict[str, float]:
    """The same by a loop over users, with the scores of one at a time."""
    found: dict[str, list[float]] = {name: [] for name in MEASURES}
    discount = 1 / np.log2(np.arange(2, TOP + 2))
    for user in np.flatnonzero(np.diff(test.offsets)):
        scores = items @ users[user]
        scores[train.item[train.offsets[user] : train.offsets[user + 1]]] = -np.inf
        top = np.argpartition(-scores, TOP)[:TOP]
        relevant = test.item[test.offsets[user] : test.offsets[user + 1]]
        hit = np.isin(top[np.argsort(-scores[top])], relevant)
        for k in (10, 20):
            best = discount[: min(k, len(relevant))].sum()
            found[f"nDCG@{k}"].append(float(discount[:k][hit[:k]].sum() / best))
            found[f"R@{k}"].append(float(hit[:k].sum() / len(relevant)))
    return {name: float(np.mean(values)) for name, values in found.items()}


def _tops(train: Ratings, test: Ratings, users: np.ndarray, items: np.ndarray) -> tuple[np.ndarray, ...]:
    """The users with test items, their best items and the scores of these, by products of blocks in NumPy."""
    rows = np.flatnonzero(np.diff(test.offsets))
    found = []
    for block in np.split(rows, range(256, len(rows), 256)):
        scores = users[block] @ items.T
        for row, user in enumerate(block):
            scores[row, train.item[train.offsets[user] : train.offsets[user + 1]]] = -np.inf
        top = np.argpartition(-scores, TOP, axis=1)[:, :TOP]
        own = np.take_along_axis(scores, top, 1)
        order = np.argsort(-own, axis=1)
        found.append([np.take_along_axis(each, order, 1) for each in (top, own)])
    return rows, *(np.concatenate(each) for each in zip(*found, strict=True))


def by_ranx(train: Ratings, test: Ratings, users: np.ndarray, items: np.ndarray) -> dict[str, float]:
    """The same by ranx, from the best items by NumPy."""
    import ranx

    rows, top, scores = _tops(train, test, users, items)
    names = [str(user) for user in rows]
    relevant = [test.item[test.offsets[user] : test.offsets[user + 1]] for user in rows]
    qrels = ranx.Qrels({name: dict.fromkeys(map(str, its), 1) for name, its in zip(names, relevant, strict=True)})
    best = zip(names, top, scores.astype(float), strict=True)
    run = ranx.Run({name: dict(zip(map(str, its), own.tolist(), strict=True)) for name, its, own in best})
    called = {name: f"{'ndcg' if name[0] == 'n' else 'recall'}@{name.split('@')[1]}" for name in MEASURES}
    found = ranx.evaluate(qrels, run, list(called.values()))
    return {name: float(found[its]) for name, its in called.items()}


def by_rectools(train: Ratings, test: Ratings, users: np.ndarray, items: np.ndarray) -> dict[str, float]:
    """The same by RecTools, from the best items by NumPy."""
    import pandas as pd
    from rectools.metrics import NDCG, Recall, calc_metrics

    rows, top, _ = _tops(train, test, users, items)
    columns = {"user_id": rows.repeat(TOP), "item_id": top.ravel(), "rank": np.tile(np.arange(1, TOP + 1), len(rows))}
    relevant = pd.DataFrame({"user_id": test.user, "item_id": test.item})
    measures = {f"nDCG@{k}": NDCG(k, divide_by_achievable=True) for k in (10, 20)} | {
        f"R@{k}": Recall(k) for k in (10, 20)
    }
    found = calc_metrics(measures, pd.DataFrame(columns), relevant)
    return {name: float(found[name]) for name in MEASURES}


def _evaluated(by: Callable[..., dict[str, float]]) -> Callable[..., dict[str, Any]]:
    """Time in single precision; the values are in double precision, in which no two scores are almost equal."""

    def stage(parts: Any, factors: Any, threads: int) -> dict[str, Any]:
        given = [factors[name] for name in ("users", "items")]
        values = by(parts.train, parts.test, *given)
        narrow = [each.astype(np.float32) for each in given]
        seconds = timed(lambda: by(parts.train, parts.test, *narrow))[1]
        return {**seconds, "users": int((np.diff(parts.test.offsets) > 0).sum()), "values": values}

    return stage


EPOCHS: dict[str, Callable[..., dict[str, Any]]] = {
    "BPR, plain PyTorch": _plain,
    "BPR, implicit": _implicit("bpr"),
    "ALS, implicit": _implicit("als"),
    "spectral start": _start,
    "BPR": _ours(rs.RankNetLoss, negatives=Negatives("uniform", pairs=True), lists_per_batch=SAMPLED),
    "softmax, 512 sampled": _ours(rs.SoftmaxLoss, negatives=Negatives("uniform", number=512, correct=True)),
    "softmax, all items": _ours(rs.SoftmaxLoss),
    "AP hinge, all items": _ours(lambda: rs.StructuredHingeLoss("AP")),
    "AP ramp, all items": _ours(lambda: rs.StructuredHingeLoss("AP", reference="predicted")),
}
EVALUATIONS: dict[str, Callable[..., dict[str, Any]]] = {
    "NumPy loop": _evaluated(by_numpy),
    "evaluate_catalogue": _evaluated(by_rankstruct),
    "NumPy and ranx": _evaluated(by_ranx),
    "NumPy and RecTools": _evaluated(by_rectools),
}
STAGES = {**EPOCHS, **EVALUATIONS}
_LIBRARIES = {
    "BPR, implicit": "implicit",
    "ALS, implicit": "implicit",
    "NumPy and ranx": "ranx",
    "NumPy and RecTools": "rectools",
}


def installed_stages() -> list[str]:
    """The stages whose library is installed."""
    return [stage for stage in STAGES if stage not in _LIBRARIES or importlib.util.find_spec(_LIBRARIES[stage])]


def products(parts: Any, threads: int, rounds: int) -> list[dict[str, Any]]:
    """Losses over all items of 32 users, forward and backward, over the three matrix products of their scores and gradients."""
    generator = torch.Generator().manual_seed(0)
    users, items = (torch.randn(n, RANK, generator=generator) for n in (32, parts.train.num_items))
    scores = users @ items.T / RANK**0.5 * 2
    labels = torch.from_numpy(parts.train.to_csr()[: len(users)].toarray())
    losses = {
        "softmax": rs.SoftmaxLoss(),
        "AP hinge": rs.StructuredHingeLoss("AP"),
        "AP ramp": rs.StructuredHingeLoss("AP", reference="predicted"),
    }

    def multiply() -> None:
        found = users @ items.T
        found @ items, found.T @ users

    calls = {"products": multiply} | {
        name: lambda its=its: both_ways(its, scores, labels) for name, its in losses.items()
    }
    torch.set_num_threads(threads)
    timed_calls = interleaved_ratios(calls, "products", rounds)
    return [
        {"loss": name, "ms": float(np.median(seconds)) * 1e3, "ratio": float(np.median(ratio))}
        for name, (seconds, ratio) in timed_calls.items()
    ]


def benchmark_catalogue(
    folder: str, stages: Sequence[str], *, threads: int = 1, rounds: int = 3
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Run every stage `rounds` times, in turn.

    Args:
        folder: of `train.txt`, `valid.txt` and `test.txt`.
        stages: of `STAGES`.
        threads: that each stage may use.
        rounds: number of times.

    Returns:
        A row per run: `stage`, `round`, `seconds`, `cpu_seconds`, `peak_mb`, and for evaluations `users` and `values`; and the
        rows of `products`.

    Raises:
        ValueError: an unknown stage.
        RuntimeError: a stage failed; the message is the last line of what it said.
    """
    check_known("stage", stages, STAGES)
    parts = InteractionsSource(path=folder).read()
    found, variables = [], environment(OMP_NUM_THREADS=str(threads), OPENBLAS_NUM_THREADS=str(threads))
    matrix = parts.train.to_csr().astype(float)
    left, _, right = sp.linalg.svds(matrix, k=min(RANK, min(matrix.shape) - 1), v0=np.ones(min(matrix.shape)))
    with (
        tempfile.TemporaryDirectory() as scratch,
        Progress(total=rounds * len(stages), unit="stage", leave=False) as bar,
    ):
        path = Path(scratch) / "factors.npz"
        np.savez(path, users=left, items=np.ascontiguousarray(right.T))
        for number in range(rounds):
            for stage in stages:
                command = [sys.executable, "-m", "benchmarks.catalogue", stage, folder, str(path), str(threads)]
                run = subprocess.run(command, capture_output=True, text=True, env=variables, check=False)
                if run.returncode:
                    raise RuntimeError(f"{stage}: {(run.stderr.strip().splitlines() or ['killed'])[-1]}")
                found.append({"stage": stage, "round": number, **json.loads(run.stdout.splitlines()[-1])})
                bar.update()
    return found, products(parts, threads, 10 * rounds)


def as_tables(
    rows: Sequence[dict[str, Any]], of_products: Sequence[dict[str, Any]]
) -> dict[str, tuple[list[str], list[Any]]]:
    """Header and rows of the tables `epochs`, `evaluation` and `products`."""
    tables = {"epochs": _table(rows, EPOCHS), "evaluation": _table(rows, EVALUATIONS)}
    cells = [[row["loss"], f"{row['ms']:.1f}", f"{row['ratio']:.2f}"] for row in of_products]
    return tables | {"products": (["loss of 32 users", "ms", "ratio"], cells)}


def _table(rows: Sequence[dict[str, Any]], stages: dict[str, Any]) -> tuple[list[str], list[Any]]:
    there = [stage for stage in stages if any(row["stage"] == stage for row in rows)]
    runs = {stage: [row for row in rows if row["stage"] == stage] for stage in there}
    header, found = ["stage", "seconds", "CPU s", "ratio", "peak MB"], []
    if stages is EVALUATIONS:
        header += ["users a second", "difference"]
    for stage in there:
        seconds, processor = (np.array([run[name] for run in runs[stage]]) for name in ("seconds", "cpu_seconds"))
        ratio = np.median(seconds / [run["seconds"] for run in runs[there[0]]])
        peak = max(run["peak_mb"] for run in runs[stage])
        cells = [stage, f"{np.median(seconds):.1f}", f"{np.median(processor):.1f}", f"{ratio:.2f}", f"{peak:.0f}"]
        if stages is EVALUATIONS:
            own, base = (runs[each][0]["values"] for each in (stage, there[0]))
            cells.append(f"{runs[stage][0]['users'] / np.median(seconds):.0f}")
            cells.append(f"{max(abs(own[name] - base[name]) for name in MEASURES):.0e}")
        found.append(cells)
    return header, found


if __name__ == "__main__":
    torch.set_num_threads(int(sys.argv[4]))
    with np.load(sys.argv[3]) as arrays:
        print(json.dumps(STAGES[sys.argv[1]](InteractionsSource(path=sys.argv[2]).read(), arrays, int(sys.argv[4]))))
