"""Bias and variance of rankers' values estimated from simulated clicks, compared with the truth.

Each seed draws queries, production rankers, a log of clicks on their rankings, and a better ranker, whose value is estimated from
the log. The truth is its mean over very many queries, and for self-normalised estimates the share of the attraction. The first
table has full lists of three production rankers, from which propensities can be estimated, the second random rankings of one with
a cut-off. A third, of `--tables interleaving`, has how often users of interleaved lists tell the better ranker from the first
production ranker, at p < .05, and how often they seem to tell two equal ones apart. Prints the tables, and writes them as
`click-evaluation.json`:

    python scripts/click_evaluation.py --output runs/click-evaluation
    python scripts/click_evaluation.py --tables interleaving --seeds 50
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression
from sklearn.model_selection import GroupKFold, cross_val_predict

import rankstruct as rs
from papers.click_models import PositionModel, simulate_clicks
from papers.interleaving import Preference, compare_interleaved, interleave
from rankstruct.cli import run
from rankstruct.clicks import ClickLog, estimate_relevance, evaluate_from_clicks, harvest_propensities
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_result
from rankstruct.text_tables import markdown_table

MODEL = PositionModel(eta=1, relevant=0.9, irrelevant=0.1)
SIZE, CUTOFF, TEMPERATURE, CLIP, MEASURE = 20, 5, 1.0, 0.1, "DCG(gain='linear')@5"
HEADER = ["estimate", "propensities", "sessions", "bias, %", "deviation, %", "error, %", "covered, %"]


def draw(queries: int, seed: int) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Labels, features, scores of three production rankers, and scores of the ranker to be judged."""
    rng = np.random.default_rng(seed)
    labels = (rng.random(queries * SIZE) < 0.2).astype(float)
    features = np.stack([labels + rng.normal(size=labels.size), labels + rng.normal(size=labels.size)], 1)
    production = features[:, 0] + rng.normal(size=(3, labels.size))
    return labels, features, production, features.sum(1) + 0.5 * rng.normal(size=labels.size)


def truths(queries: int) -> dict[str, float]:
    """The value of the ranker, and its share of all relevance, over many queries."""
    labels, _, _, scores = draw(queries, 10**6)
    attraction = MODEL.attraction(labels)
    (values,) = rs.evaluate(scores, attraction, [MEASURE], group=[SIZE] * queries).values()
    return {"sessions": float(values.mean()), "weights": float(values.mean() / (SIZE * attraction.mean()))}


def predicted(log: ClickLog, features: np.ndarray, propensities: Any, **options: Any) -> np.ndarray:
    """Attraction by least squares, of each document from the clicks of other queries."""
    relevance = estimate_relevance(log, propensities, clip=CLIP, **options)
    query = np.arange(len(features)) // SIZE
    found: np.ndarray = cross_val_predict(LinearRegression(), features, relevance, groups=query, cv=GroupKFold(5))
    return found


def full_lists(queries: int, sessions: int, seed: int) -> dict[tuple[str, str], Any]:
    """Estimates from full lists, by estimate and propensities."""
    labels, features, production, scores = draw(queries, seed)
    log = simulate_clicks(MODEL, production, labels, _offsets(queries), sessions=sessions, seed=seed)
    ids = {"query": np.arange(len(labels)) // SIZE, "document": np.arange(len(labels))}
    found = {("no correction", "all 1"): evaluate_from_clicks(log, scores, MEASURE, np.ones(SIZE), **ids)}
    for name, known in (("true", MODEL.propensities(SIZE)), ("estimated", harvest_propensities(log))):
        prediction = predicted(log, features, known, policy_aware=False)
        for estimate, options in (
            ("IPS", {"policy_aware": False}),
            ("IPS, clipped", {"policy_aware": False, "clip": CLIP}),
            ("SNIPS", {"normalize": "weights"}),
            ("SNIPS, clipped", {"normalize": "weights", "clip": CLIP}),
            ("doubly robust, clipped", {"policy_aware": False, "clip": CLIP, "prediction": prediction}),
        ):
            found[estimate, name] = evaluate_from_clicks(log, scores, MEASURE, known, **ids, **options)
    return found


def behind_cutoff(queries: int, sessions: int, seed: int) -> dict[tuple[str, str], Any]:
    """Estimates from random rankings with a cut-off, by estimate and propensities."""
    labels, features, production, scores = draw(queries, seed)
    options: dict[str, Any] = {"cutoff": CUTOFF, "temperature": TEMPERATURE, "seed": seed}
    log = simulate_clicks(MODEL, production[0], labels, _offsets(queries), sessions=sessions, **options)
    ids = {"query": np.arange(len(labels)) // SIZE, "document": np.arange(len(labels))}
    known = MODEL.propensities(CUTOFF)
    prediction = predicted(log, features, known, policy_aware=True)
    return {
        (estimate, "true"): evaluate_from_clicks(log, scores, MEASURE, known, **ids, **chosen)
        for estimate, chosen in (
            ("IPS", {"policy_aware": False}),
            ("IPS, policy-aware", {"policy_aware": True}),
            ("doubly robust", {"policy_aware": False, "prediction": prediction}),
            ("doubly robust, policy-aware", {"policy_aware": True, "prediction": prediction}),
        )
    }


def interleaved_sessions(queries: int, sessions: int, seed: int, method: Any) -> tuple[Preference, Preference]:
    """What users of interleaved lists prefer: the better ranker to a production ranker, and two that are equal."""
    labels, _, production, scores = draw(queries, seed)
    rng, seen = np.random.default_rng(seed), MODEL.propensities(CUTOFF)
    outcomes = np.empty((2, sessions))
    for session in range(sessions):
        its = SIZE * int(rng.integers(queries)) + np.arange(SIZE)
        by_scores, by_production = (its[np.argsort(-each[its])] for each in (scores, production[0]))
        for at, second in enumerate((by_production, by_scores)):
            shown = interleave(by_scores, second, length=CUTOFF, method=method, seed=rng)
            clicks = rng.random(CUTOFF) < seen * MODEL.attraction(labels[shown.documents])
            outcomes[at, session] = shown.outcome(clicks)
    return compare_interleaved(outcomes[0]), compare_interleaved(outcomes[1])


def table_of_interleaving(given: Any) -> list[list[Any]]:
    """A row for each method and number of sessions."""
    rows = []
    for method in ("team-draft", "probabilistic"):
        for sessions in given.sessions:
            pairs = [interleaved_sessions(given.queries, sessions, seed, method) for seed in range(given.seeds)]
            shares = [np.mean([each.p < 0.05 for each in column]) for column in zip(*pairs, strict=True)]
            rows.append([method, f"{sessions:,}", *(f"{100 * share:.0f}" for share in shares)])
    return rows


def _offsets(queries: int) -> np.ndarray:
    return np.arange(0, SIZE * queries + 1, SIZE)


def table_of(simulate: Any, truth: dict[str, float], given: Any) -> list[list[Any]]:
    """A row for each estimate and number of sessions."""
    rows: dict[tuple[str, str], list[list[Any]]] = {}
    for sessions in given.sessions:
        each = [simulate(given.queries, sessions, seed) for seed in range(given.seeds)]
        for name in each[0]:
            true = truth["weights" if name[0].startswith("SNIPS") else "sessions"]
            errors = np.array([found[name].value / true - 1 for found in each])
            covered = np.mean([found[name].low <= true <= found[name].high for found in each])
            shown = (errors.mean(), errors.std(), np.sqrt((errors**2).mean()))
            row = [*name, f"{sessions:,}", *(f"{100 * value:.1f}" for value in shown), f"{100 * covered:.0f}"]
            rows.setdefault(name, []).append(row)
    return [row for name in rows for row in rows[name]]


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("click_evaluation", compare_estimates, args, program="click_evaluation.py")


def compare_estimates(args: Sequence[str]) -> None:
    """Simulate, and print the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--queries", type=int, default=200, help="queries of each log")
    parser.add_argument("--sessions", type=int, nargs="+", default=[2000, 20_000], help="sessions of each log")
    parser.add_argument("--seeds", type=int, default=200, help="logs")
    parser.add_argument("--many", type=int, default=200_000, help="queries of which the truth is the mean")
    parser.add_argument("--output", default="runs/click-evaluation", help="folder of the result file")
    known = ("full lists", "cut-off", "interleaving")
    parser.add_argument("--tables", nargs="+", choices=known, default=[*known[:2]], help="which tables")
    given = parser.parse_args(args)
    truth = truths(given.many)
    tables = {
        name: (HEADER, table_of(simulate, truth, given))
        for name, simulate in (("full lists", full_lists), ("cut-off", behind_cutoff))
        if name in given.tables
    }
    if "interleaving" in given.tables:
        header = ["method", "sessions", "better found, %", "equal ones told apart, %"]
        tables["interleaving"] = (header, table_of_interleaving(given))
    for name, (header, rows) in tables.items():
        print(f"\n{name}\n\n{markdown_table(header, rows)}")
    command = ["python", "scripts/click_evaluation.py", *args]
    write_result(Path(given.output) / "click-evaluation.json", command, tables, truth=truth, seeds=given.seeds)


if __name__ == "__main__":
    sys.exit(main())
