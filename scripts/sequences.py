"""The next item of users' sequences: counters, which train nothing, compared with `Recommender()` and blended with it.

A file has a line `user item item ...` per user, in order of time. The last item is the test, the one before validation; all items
are ranked that the user does not know. Settings are chosen by the validation items alone, then everything before the test is
counted or fitted. `Recommender()` holds out items of its own. The blend is of the transitions and `Recommender()`. Brackets have
95 % bootstrap intervals over users. Prints the tables, and writes them as `sequences.json`:

    python scripts/sequences.py --path BEAUTY/sequences.txt TOYS/sequences.txt --output runs/sequences
"""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_result
from rankstruct.recommenders import (
    BlendRecommender,
    Ratings,
    Recommender,
    SessionKNN,
    TransitionRecommender,
    evaluate_catalogue,
    hold_out,
    popularity,
    read_interactions,
)
from rankstruct.statistics import bootstrap_interval, with_interval
from rankstruct.text_tables import markdown_table

MEASURES = {"nDCG@10": "nDCG@10", "Success@10": "HR@10"}
COUNTER, TRAINED = "transitions", "Recommender()"
RESAMPLES = 999


def compared(ratings: Ratings) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, str], dict[str, float]]:
    """The measures of each user, the settings and the seconds of a fit, by model."""
    known, test = hold_out(ratings, 1, latest=True)
    items = np.unique(known.item)
    values, settings, seconds = {}, {}, {}
    counted = TransitionRecommender()
    models = {
        "popularity": None,
        COUNTER: counted,
        "session kNN": SessionKNN(),
        TRAINED: Recommender(),
        f"{COUNTER} + {TRAINED}": BlendRecommender(counted, Recommender()),
    }
    for name, model in models.items():
        start = time.perf_counter()
        found = popularity(known) if model is None else model.fit(known).catalogue_model()
        seconds[name] = time.perf_counter() - start
        each = evaluate_catalogue(found, test, list(MEASURES), exclude=known, items=items)
        values[name] = {MEASURES[measure]: of_users.numpy() for measure, of_users in each.items()}
        settings[name] = ", ".join(f"{key}={value}" for key, value in getattr(model, "settings_", {}).items())
        print(name, *(f"{each.mean():.4f}" for each in values[name].values()), f"{seconds[name]:.0f} s", flush=True)
    return values, settings, seconds


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("sequences", work, args, program="sequences.py")


def work(args: Sequence[str]) -> None:
    """Fit, evaluate, print and write the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--path", nargs="+", required=True, help="files of lines user item item ..., in order of time")
    parser.add_argument("--output", default="runs/sequences", help="folder of sequences.json")
    given = parser.parse_args(args)
    torch.set_num_threads(1)
    start, rows, differences = time.perf_counter(), [], []
    for path in map(Path, given.path):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of held-out items that no other user has: they count as misses
            values, settings, seconds = compared(read_interactions(path, times="order"))
        name = path.parent.name.capitalize()
        for model, each in values.items():
            row = [_with_bounds(each[measure]) for measure in MEASURES.values()]
            rows.append([name, model, *row, f"{seconds[model]:.1f}", settings[model]])
            if model != COUNTER:
                less = [with_interval(each[m] - values[COUNTER][m], RESAMPLES) for m in MEASURES.values()]
                differences.append([name, model, *less])
    tables = {
        "sequences": (["set", "model", *MEASURES.values(), "seconds", "settings"], rows),
        "sequences differences": (["set", "model", *(f"{m} less {COUNTER}" for m in MEASURES.values())], differences),
    }
    for title, (header, found) in tables.items():
        print(f"\n{title}\n\n{markdown_table(header, found)}")
    typed = [str(Path(*Path(word).parts[-2:])) if "/" in word else word for word in args]
    Path(given.output).mkdir(parents=True, exist_ok=True)
    took = round(time.perf_counter() - start, 1)
    write_result(
        Path(given.output) / "sequences.json", ["python", "scripts/sequences.py", *typed], tables, seconds=took
    )


def _with_bounds(values: np.ndarray) -> str:
    """The mean and its interval."""
    low, high = bootstrap_interval(values, resamples=RESAMPLES)
    return f"{values.mean():.4f} ({low:.4f} to {high:.4f})"


if __name__ == "__main__":
    sys.exit(main())
