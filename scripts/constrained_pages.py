"""What do rules for a page cost, and does training for them pay? Films under caps and quotas, and documents one of a group.

Films: `Recommender()` of the first fold of MovieLens 100K; ratings of 4 and more are interactions, and those of the test part
are relevant. A film has several genres, so the groups of genres overlap; `genre` is the first of them, and `old` are films from
before 1980. All films that a user does not know are ranked.

Documents: linear scorers trained with the diverse hinge loss of nDCG@10, which knows that at most one document of a group is
shown in the first ten, against the hinge loss of nDCG@10, both ranked under that rule. C is selected on the validation part of
each fold by the diverse nDCG@10, from the same values. Groups are the hosts of pages, or, for LETOR folders, which have none,
clusters of the documents of each query by their features (k-means). Prints the tables, and writes `constrained-pages.json`:

    python scripts/constrained_pages.py --movielens ml-100k --lists web_hosts OHSUMED --output runs/pages
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse as sp
from sklearn.cluster import KMeans

import rankstruct as rs
from diverse_experiment import read_hosts
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser, whole_number
from rankstruct.data import RankingData, read_folds
from rankstruct.data.pipeline import fit_preparation
from rankstruct.diagnostics import arrays_of
from rankstruct.files import write_result
from rankstruct.recommenders import Recommender, read_movielens_fold
from rankstruct.statistics import compare_paired, differences, with_interval
from rankstruct.text_tables import markdown_table

MEASURE, COSTS, FOLDS, CLUSTERS = "nDCG@10", (1.0, 10.0, 100.0, 1000.0), 5, 8
GENRES = ("action", "comedy", "drama", "romance", "thriller")
RULES = {
    "genre <= 3": ["genre <= 3 @ 10"],
    "genre <= 2": ["genre <= 2 @ 10"],
    "genre <= 1 @ 3, <= 3 @ 10": ["genre <= 1 @ 3", "genre <= 3 @ 10"],
    "old >= 3": ["old=1 >= 3 @ 10"],
    "old >= 1 @ 3 and <= 5 @ 10": ["old=1 >= 1 @ 3", "old=1 <= 5 @ 10"],
    "five genres <= 4, old >= 2": [*(f"{name}=1 <= 4 @ 10" for name in GENRES), "old=1 >= 2 @ 10"],
}
LIMIT = 1.0  # seconds a list


def read_films(folder: Path) -> dict[str, np.ndarray]:
    """The groups of MovieLens 100K's films, `[films]` by column: the first genre, whether it is from before 1980, and of each of
    `GENRES` whether it is one.
    """
    names = [line.partition("|")[0].lower() for line in (folder / "u.genre").read_text().splitlines() if "|" in line]
    rows = [line.split("|") for line in (folder / "u.item").read_text("latin-1").splitlines() if line]
    flags = np.array([row[5:] for row in rows]).astype(int)
    years = np.array([int(row[2][-4:] or 9999) if row[2] else 9999 for row in rows])
    found: dict[str, np.ndarray] = {"genre": flags.argmax(1), "old": (years < 1980).astype(int)}
    return found | {name: flags[:, names.index(name)] for name in GENRES}


def film_lists(folder: Path, users: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Films, scores and labels `[users, films]` of the first users with something relevant, best first; -1 for no film."""
    base, test = read_movielens_fold(folder, 1)
    shape = len(base.user_names), 1 + max(map(int, base.item_names))
    liked = [
        sp.csr_array((np.ones(good.sum()), (each.user[good], numbers[each.item[good]])), shape=shape)
        for each in (base, test)
        for good, numbers in [(each.rating >= 4, np.array(each.item_names).astype(int))]
    ]
    model = Recommender(device="cpu").fit(liked[0])
    chosen = np.flatnonzero(liked[1].sum(1) > 0)[:users]
    films, scores = model.recommend(chosen, k=shape[1])
    labels = np.take_along_axis(liked[1][chosen].toarray(), np.maximum(films, 0), 1) * (films >= 0)
    keep = (labels > 0).any(1)  # of films that someone liked in the base
    return films[keep], scores[keep], labels[keep]


def film_rows(folder: Path, users: int) -> list[list[Any]]:
    """A row for each set of rules: lists whose ranking by score breaks the rule that most do, nDCG@10 of the pages and its
    difference to that by score, and relative to the best pages that keep the rules.
    """
    films, scores, labels = film_lists(folder, users)
    groups, where, rows = read_films(folder), films >= 0, []
    before = rs.evaluate(scores, labels, MEASURE, where=where)[MEASURE].numpy()
    for name, texts in RULES.items():
        rules = rs.Constraints(texts)
        columns = {column: groups[column][np.maximum(films - 1, 0)] for column in rules.columns}
        start = time.perf_counter()
        ranks, gaps = rs.constraints.rank_certified(scores, rules, columns, where=where, time_limit=LIMIT)
        seconds = time.perf_counter() - start
        by_score = np.where(where, np.arange(1, films.shape[1] + 1), 0)
        broken = rs.constraints.violations(by_score, rules, columns, where=where)
        page = rs.evaluate(np.where(ranks > 0, -ranks, -1e9), labels, MEASURE, where=where)[MEASURE].numpy()
        under = rs.constraints.evaluate_under(scores, labels, MEASURE, rules, columns, where=where)[MEASURE]
        rows.append(
            [
                name,
                f"{max(broken.values()) / len(films):.0%}",
                f"{page.mean():.4f}",
                with_interval(differences(page, before)),
                f"{under.mean():.4f}",
                f"{1000 * seconds / len(films):.1f}",
                f"{gaps.max():.2%}",
            ]
        )
        print(*rows[-1], flush=True)
    return [["none", "", f"{before.mean():.4f}", "", f"{before.mean():.4f}", "", ""], *rows]


def clustered(data: RankingData, clusters: int) -> RankingData:
    """The same lists with groups: clusters of the documents of each list by their features."""
    found = []
    for first, last in pairwise(data.offsets.tolist()):
        many = min(clusters, last - first)
        found.append(KMeans(many, n_init=1, random_state=0).fit_predict(data.features[first:last]))
    return replace(data, diversity_groups=np.concatenate(found).astype(np.int64))


def parts_of(path: Path, fold: int) -> tuple[RankingData, ...]:
    """Training, validation and test lists of a fold, with groups: of a LETOR folder, or of pages with hosts."""
    if (path / "Fold1").is_dir():
        return tuple(clustered(part, CLUSTERS) for part in read_folds(path, fold + 1))
    data = fit_preparation(["query-minmax"], read_hosts(path))[1]
    drawn = np.array_split(np.random.default_rng(0).permutation(data.num_lists), FOLDS)
    test, vali = drawn[fold], drawn[(fold + 1) % FOLDS]
    train = np.setdiff1d(np.arange(data.num_lists), np.concatenate([test, vali]))
    return data.select(train), data.select(vali), data.select(test)


def trained_rows(path: Path, costs: Sequence[float]) -> list[list[Any]]:
    """A row for each loss: its means over all test lists, and the difference of training under the rule."""
    judge = rs.measures.Diverse(rs.nDCG(10))
    found: dict[str, list[np.ndarray]] = {}
    for fold in range(FOLDS):
        train, vali, test = parts_of(path, fold)
        for loss in (f"diverse_{MEASURE}", MEASURE):
            ranker = rs.LinearRanker(
                judge, C=costs, loss=rs.StructuredHingeLoss(loss, feature_map="positional"), prepare=()
            )
            scores = ranker.fit(**arrays_of(train), **arrays_of(vali, "_valid")).predict(test.features)
            given = {"offsets": test.offsets, "diversity_groups": test.diversity_groups}
            values = rs.evaluate(scores, test.labels, [judge, MEASURE], **given)
            found.setdefault(loss, []).append(np.stack([each.numpy() for each in values.values()]))
    values_of = {loss: np.concatenate(parts, axis=1) for loss, parts in found.items()}
    under, plain = values_of[f"diverse_{MEASURE}"], values_of[MEASURE]
    against = compare_paired(under[0], plain[0], "randomization")
    shown = {loss: [f"{mean:.4f}" for mean in values.mean(1)] for loss, values in values_of.items()}
    return [
        [
            path.name,
            "under the rule",
            *shown[f"diverse_{MEASURE}"],
            with_interval(differences(under[0], plain[0])),
            against.p,
        ],
        [path.name, "plain", *shown[MEASURE], "", ""],
    ]


def main(args: Sequence[str]) -> None:
    """Print the tables and write them."""
    parser = CommandParser(description="Rules for a page: what they cost, and whether training for them pays.")
    parser.add_argument("--movielens", type=Path, required=True, help="folder of MovieLens 100K")
    parser.add_argument(
        "--lists", type=Path, nargs="+", required=True, help="LETOR folders, or folders of pages with hosts"
    )
    parser.add_argument("--users", type=whole_number(1), default=500, help="at most")
    parser.add_argument("--C", type=float, nargs="+", default=list(COSTS), help="grid")
    parser.add_argument("--output", type=Path, default=Path("runs/constrained-pages"), help="folder of the file")
    options = parser.parse_args(args)
    films = [
        "rules within the first ten",
        "broken by score",
        MEASURE,
        "difference",
        "under rules",
        "ms a list",
        "largest gap",
    ]
    typed = [Path(word).name if "/" in word else word for word in args]
    tables = {
        "films": (films, film_rows(options.movielens, options.users)),
        "documents": (
            ["lists", "training", f"{MEASURE} under the rule", f"{MEASURE} by score", "difference under the rule", "p"],
            [row for path in options.lists for row in trained_rows(path, options.C)],
        ),
    }
    for header, rows in tables.values():
        print(markdown_table(header, rows), end="\n\n")
    options.output.mkdir(parents=True, exist_ok=True)
    write_result(options.output / "constrained-pages.json", ["python", "scripts/constrained_pages.py", *typed], tables)


if __name__ == "__main__":
    sys.exit(run("constrained_pages", main, sys.argv[1:]))
