"""The next item of users' sequences: counters, which train nothing, compared with `Recommender()` and transformers, and blends.

A file has a line `user item item ...` per user, in order of time. The last item is the test, the one before validation; all items
are ranked that the user does not know. Settings are chosen by the validation items alone, then everything before the test is
counted or fitted. `Recommender()` holds out items of its own. The blend is of the transitions and `Recommender()`. Brackets have
95 % bootstrap intervals over users. Prints the tables, and writes them as `sequences.json`:

    python scripts/sequences.py --path BEAUTY/sequences.txt TOYS/sequences.txt --output runs/sequences

With `--runs FOLDER`, SASRec of RecTools too, with its own losses and others, if these runs are there. `--train` makes one, unless
it is there, from the first file, such as `--train "AP ramp" 0`, loss and seed. The first run with a loss first learns from what
is before the validation items, which choose the number of epochs, and the similarity of two, after a few epochs, unless `--like`
names a set that has chosen it. Each run then learns from everything before the test for that number of epochs.

With `--times`, files have lines `user item rating time`, or `user item time`, and all users are divided at one moment: the test
is the first item of each user after nine tenths of all interactions, the validation the first one after eight tenths, of users
who have earlier ones. Counters are compared, and the table is written as `sequences-times.json`:

    python scripts/sequences.py --times --path MOVIELENS100K/u.data --output runs/sequences
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rankstruct as rs
from rankstruct.cli import run
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import whole_file, write_result
from rankstruct.recommenders import (
    BlendRecommender,
    Ratings,
    Recommender,
    SessionKNN,
    TransitionRecommender,
    evaluate_catalogue,
    hold_out,
    interactions,
    next_item_module,
    popularity,
    read_interactions,
)
from rankstruct.recommenders.sequences import _Blend
from rankstruct.statistics import bootstrap_interval, with_interval
from rankstruct.text_tables import markdown_table

MEASURES = {"nDCG@10": "nDCG@10", "Success@10": "HR@10"}
COUNTER, TRAINED = "transitions", "Recommender()"
RESAMPLES = 999
EPOCHS, TRIED, PATIENCE, JUDGED = 40, 4, 3, 6000  # at most; for each similarity; epochs without a better one; users
#: Settings of SASRec's similarity: products of vectors, and cosines divided by a temperature.
DOT = ("dot", 1.0)
COSINE = ("cosine", 0.07)
#: Of each loss, two pairs of a similarity and a loss; those of RecTools are names.
LOSSES: Mapping[str, Callable[[], list[tuple[tuple[str, float], Any]]]] = {
    "softmax": lambda: [(each, rs.SoftmaxLoss()) for each in (DOT, COSINE)],
    "AP ramp": lambda: [(each, rs.StructuredHingeLoss("AP", reference="predicted")) for each in (DOT, COSINE)],
    "RecTools' softmax": lambda: [(each, "softmax") for each in (DOT, COSINE)],
    "RecTools' gBCE": lambda: [(each, "gBCE") for each in (DOT, COSINE)],
    "SL@20": lambda: [(each, rs.losses.TopKSoftmaxLoss(k=20)) for each in (DOT, COSINE)],
    "PSL": lambda: [
        (("cosine", 1.0), rs.losses.PairwiseSoftmaxLoss(temperature=each, scale=2)) for each in (0.035, 0.07)
    ],
}
LEAST = 12  # epochs, since the first ones may be level
NEGATIVES = 256  # of gBCE
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the counter in a blend
SEEDS = (0, 1, 2)
MOMENTS = (0.8, 0.9)  # of validation and test: the share of all interactions that are known


def compared(ratings: Ratings) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, str], dict[str, float]]:
    """The measures of each user, the settings and the seconds of a fit, by model that is not a transformer."""
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


def at_moments(path: Path) -> list[tuple[Ratings, Ratings]]:
    """What is known at the moments of validation and test, and the next item of each user who is known."""
    user, item, *_, time = np.loadtxt(path, dtype=np.int64).T
    ratings, parts = interactions(user, item, times=time), []
    for share in MOMENTS:
        moment = np.quantile(ratings.time, share, method="lower")
        known, later = ratings.select(ratings.time <= moment), ratings.select(ratings.time > moment)
        order = np.lexsort((later.item, later.time, later.user))
        _, first = np.unique(later.user[order], return_index=True)
        chosen = np.zeros(later.num_ratings, bool)
        chosen[order[first]] = True
        parts.append((known, later.select(chosen & np.isin(later.user, known.user))))
    return parts


def compared_at_moments(path: Path) -> list[list[Any]]:
    """The rows of a table: models with the settings that are best at the moment of validation."""
    (before, held), (known, test) = at_moments(path)
    items, rows, values = np.unique(known.item), [], {}
    counted = TransitionRecommender().fit(before, validation=held).settings_
    near = SessionKNN().fit(before, validation=held).settings_
    blend = BlendRecommender(TransitionRecommender(**counted), Recommender())
    weight = blend.fit(before, validation=held).settings_
    models = {
        "popularity": (None, {}),
        COUNTER: (TransitionRecommender(**counted), counted),
        "session kNN": (SessionKNN(**near), near),
        TRAINED: (Recommender(), {}),
        f"{COUNTER} + {TRAINED}": (blend.set_params(**weight), weight),
    }
    for name, (model, _) in models.items():
        found = popularity(known) if model is None else model.fit(known).catalogue_model()
        each = evaluate_catalogue(found, test, list(MEASURES), exclude=known, items=items)
        values[name] = {MEASURES[measure]: of_users.numpy() for measure, of_users in each.items()}
    for name, (_, settings) in models.items():
        less = "" if name == COUNTER else with_interval(values[name]["nDCG@10"] - values[COUNTER]["nDCG@10"], RESAMPLES)
        shown = ", ".join(f"{key}={value}" for key, value in settings.items())
        bounds = [_with_bounds(values[name][measure]) for measure in MEASURES.values()]
        rows.append([path.parent.name.capitalize(), test.num_ratings, name, *bounds, less, shown])
    return rows


def transformers(
    ratings: Ratings, files: Mapping[str, tuple[Path, Sequence[Path]]], counter: Mapping[str, Any]
) -> tuple[dict[str, dict[str, np.ndarray]], list[list[Any]]]:
    """The means over seeds of the measures of each user, by model, and of each loss the log of its runs."""
    known, test = hold_out(ratings, 1, latest=True)
    before, held = hold_out(known, 1, latest=True)
    some = held.select_users(np.random.default_rng(0).permutation(np.unique(held.user))[:JUDGED])
    counted = {
        part: TransitionRecommender(**counter).fit(part_known).catalogue_model()
        for part, part_known in (("validation", before), ("test", known))
    }
    values, logs, weights = {}, [], {}

    def measured(model: Any, part: str, measures: Sequence[str]) -> dict[str, np.ndarray]:
        judged, exclude = (test, known) if part == "test" else (some, before)
        found = evaluate_catalogue(model, judged, list(measures), exclude=exclude, items=np.unique(exclude.item))
        return {measure: each.numpy() for measure, each in found.items()}

    def of_run(path: Path, settings: Path) -> dict[str, np.ndarray]:
        """The measures of SASRec and its blend, which are kept beside the run."""
        kept = path.with_suffix(".measures.npz")
        if not kept.exists():
            own = {"validation": Vectors.load(settings.with_suffix(".npz")), "test": Vectors.load(path)}
            weight = weights.get(settings)
            if weight is None:
                blends = {
                    weight: measured(blend(counted, own, "validation", weight), "validation", ["nDCG@10"])
                    for weight in WEIGHTS
                }
                weight = weights[settings] = max(WEIGHTS, key=lambda each: blends[each]["nDCG@10"].mean())
            found = {f"own {name}": each for name, each in measured(own["test"], "test", list(MEASURES)).items()}
            blended = measured(blend(counted, own, "test", weight), "test", list(MEASURES))
            found |= {f"blend {name}": each for name, each in blended.items()} | {"weight": np.array(weight)}
            with whole_file(kept, "wb") as file:
                np.savez(file, **found)
        with np.load(kept) as file:
            return dict(file)

    for loss, (settings, paths) in files.items():
        runs, log = [of_run(path, settings) for path in paths], json.loads(settings.read_text())
        for name, key in ((f"SASRec, {loss}", "own"), (f"{COUNTER} + SASRec, {loss}", "blend")):
            values[name] = {
                title: np.mean([run[f"{key} {measure}"] for run in runs], 0) for measure, title in MEASURES.items()
            }
        similarity, trained = LOSSES[loss]()[log["setting"]]
        shown = "dot product" if similarity == DOT else f"cosine / {similarity[1]:g}"
        shown += f", temperature={trained.temperature:g}" if loss == "PSL" else ""
        single = [f"{run['own nDCG@10'].mean():.4f}" for run in runs]
        epoch, validation = 1 + int(np.argmax(log["validation"])), f"{max(log['validation']):.4f}"
        took, weight = f"{np.median(log['seconds']):.0f}", f"{float(runs[0]['weight']):g}"
        logs.append([loss, shown, epoch, validation, ", ".join(single), weight, took, f"{log['MB']:.0f}"])
    return values, logs


def blend(counted: Mapping[str, Any], own: Mapping[str, Any], part: str, weight: float) -> Any:
    """The weighted mean of the scaled scores of the counter and SASRec."""
    return _Blend([counted[part], own[part]], weight)


class Vectors:
    """The scores of users by their vectors and those of items; items without a vector are last."""

    def __init__(self, users: np.ndarray, items: np.ndarray, at: np.ndarray, num_items: int) -> None:
        self.users, self.items, self.at, self.num_items = (
            torch.from_numpy(users),
            torch.from_numpy(items),
            at,
            num_items,
        )

    def item_scores(self, users: Tensor) -> Tensor:
        """`[users, items]`."""
        found = self.users[users] @ self.items.T
        scores = found.amin(1, keepdim=True).repeat(1, self.num_items)
        scores[:, self.at] = found
        return scores

    def save(self, path: Path) -> None:
        """Write the arrays."""
        arrays = {"users": self.users.numpy(), "items": self.items.numpy(), "at": self.at, "num_items": self.num_items}
        with whole_file(path, "wb") as file:
            np.savez(file, **arrays)

    @classmethod
    def load(cls, path: Path) -> Vectors:
        """Read the arrays."""
        with np.load(path) as file:
            return cls(file["users"], file["items"], file["at"], int(file["num_items"]))


def sasrec(loss: Any, similarity: tuple[str, float]) -> Any:
    """SASRec with a loss; those of RecTools too are computed for the positions that are no padding, and so have their values."""
    from rectools.models import SASRecModel

    module = next_item_module(None if isinstance(loss, str) else loss)
    if isinstance(loss, str):
        module = type(
            "Own", (module,), {"_calc_custom_loss": softmax_of_rectools if loss == "softmax" else gbce_of_rectools}
        )
    (distance, temperature), sizes = similarity, {"n_blocks": 2, "n_heads": 2, "n_factors": 64, "session_max_len": 50}
    return SASRecModel(
        **sizes,
        dropout_rate=0.5,
        use_key_padding_mask=True,
        lr=0.003,
        batch_size=128,
        n_negatives=NEGATIVES,
        gbce_t=0.75,
        lightning_module_type=module,
        lightning_module_kwargs={"logits_t": temperature},
        similarity_module_kwargs={"distance": distance},
    )


def softmax_of_rectools(module: Any, batch: Any, batch_idx: int) -> Tensor:
    """RecTools' softmax, which counts padding as an item, here with the score 0, there with that of a vector never trained."""
    encoded, targets, _ = module.encoded(batch)
    scores = torch.nn.functional.pad(encoded.lists @ encoded.items.T, (1, 0))
    return module._calc_softmax_loss(scores[None], targets[None] + 1, torch.ones(1, len(targets)))


def gbce_of_rectools(module: Any, batch: Any, batch_idx: int) -> Tensor:
    """RecTools' gBCE with uniform negatives."""
    encoded, targets, _ = module.encoded(batch)
    module.data_preparator.n_negatives = NEGATIVES
    items = torch.cat([targets[:, None], torch.randint(encoded.num_items, (len(targets), NEGATIVES))], 1)
    vectors = torch.nn.functional.embedding(items, encoded.items)
    scores = (vectors @ encoded.lists.unsqueeze(-1)).squeeze(-1)
    return module._calc_gbce_loss(scores[None], targets[None] + 1, torch.ones(1, len(targets)))


def as_vectors(model: Any, known: Ratings) -> Vectors:
    """The vectors of the users, from what they know, and of the items that the model has learned from."""
    module, length = model.lightning_model, model.session_max_len
    mapped = np.zeros(known.num_items, np.int64)
    at = np.asarray(model.data_preparator.get_known_item_ids(), np.int64)
    mapped[at] = np.arange(1, len(at) + 1)
    order = np.lexsort((known.time, known.user))
    users, items = known.user[order], mapped[known.item[order]]
    users, items = users[items > 0], items[items > 0]
    ends = np.searchsorted(users, np.arange(known.num_users), "right")
    back = ends[users] - np.arange(len(users))
    sessions = np.zeros((known.num_users, length), np.int64)
    sessions[users[back <= length], length - back[back <= length]] = items[back <= length]
    module.torch_model.eval()
    with torch.no_grad():
        parts = []
        for rows in torch.from_numpy(sessions).split(512):
            batch = {"x": rows, "y": torch.ones(len(rows), 1, dtype=torch.long)}
            encoded, _, at_rows = module.encoded(batch)
            parts.append(encoded.lists[at_rows.argsort()])
    module.torch_model.train()
    return Vectors(torch.cat(parts).numpy(), encoded.items.numpy(), at, known.num_items)


def train(ratings: Ratings, folder: str, name: str, loss: str, seed: int, like: Path | None) -> None:
    """Choose the settings, unless they are there, then fit SASRec on everything before the test and write the vectors."""
    known, _ = hold_out(ratings, 1, latest=True)
    settings = run_path(folder, name, loss)
    if not settings.exists():
        choose(*hold_out(known, 1, latest=True), loss, like, settings)
    chosen, data = json.loads(settings.read_text()), dataset(known)
    torch.manual_seed(seed)
    similarity, fitted = LOSSES[loss]()[chosen["setting"]]
    model = sasrec(fitted, similarity)
    for epoch in range(1 + int(np.argmax(chosen["validation"]))):
        print("epoch", epoch + 1, f"{one_epoch(model, data):.0f} s", flush=True)
    as_vectors(model, known).save(run_path(folder, name, loss, seed))


def choose(before: Ratings, held: Ratings, name: str, like: Path | None, path: Path) -> None:
    """Train SASRec with early stopping, and write the vectors for validation and the log of the run."""
    judged = held.select_users(np.random.default_rng(0).permutation(np.unique(held.user))[:JUDGED])
    data, options = dataset(before), {"exclude": before, "items": np.unique(before.item)}
    chosen = None if like is None else json.loads(like.read_text())["setting"]
    log: dict[str, Any] = {"loss": name, "tried": {}}

    def one_more(model: Any, values: list[float], seconds: list[float]) -> Vectors | None:
        """Train an epoch more; the vectors if they are the best so far."""
        seconds.append(one_epoch(model, data))
        vectors = as_vectors(model, before)
        (each,) = evaluate_catalogue(vectors, judged, ["nDCG@10"], **options).values()
        values.append(float(each.mean()))
        print(len(values), f"{values[-1]:.4f}", f"{seconds[-1]:.0f} s", flush=True)
        return vectors if values[-1] == max(values) else None

    states = []
    for setting, (similarity, loss) in enumerate(LOSSES[name]()):
        if chosen is not None and setting != chosen:
            continue
        torch.manual_seed(0)
        model, values, seconds, best = sasrec(loss, similarity), [], [], None
        for _ in range(TRIED):
            best = one_more(model, values, seconds) or best
        states.append((max(values), setting, model, values, seconds, best))
        log["tried"][str(setting)] = values
    _, log["setting"], model, values, seconds, best = max(states, key=lambda each: each[0])
    while len(values) < LEAST or (len(values) < EPOCHS and len(values) - 1 - np.argmax(values) < PATIENCE):
        best = one_more(model, values, seconds) or best
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    best.save(path.with_suffix(".npz"))
    with whole_file(path) as file:
        json.dump(log | {"validation": values, "seconds": seconds, "MB": memory}, file)


def dataset(known: Ratings) -> Any:
    """RecTools' dataset of interactions."""
    import pandas as pd
    from rectools.dataset import Dataset

    time = pd.to_datetime(known.time, unit="s")
    columns = {"user_id": known.user, "item_id": known.item, "weight": 1.0, "datetime": time}
    return Dataset.construct(pd.DataFrame(columns))


def one_epoch(model: Any, data: Any) -> float:
    """Train an epoch more; the seconds that it took."""
    start = time.perf_counter()
    model.fit_partial(data, min_epochs=1, max_epochs=1)
    return time.perf_counter() - start


def main(args: Sequence[str] | None = None) -> int:
    """Run the command; returns the exit status."""
    return run("sequences", work, args, program="sequences.py")


def work(args: Sequence[str]) -> None:
    """Fit, evaluate, print and write the tables."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--path", nargs="+", required=True, help="files of lines user item item ..., in order of time")
    parser.add_argument("--output", default="runs/sequences", help="folder of sequences.json")
    parser.add_argument("--runs", default="", help="folder of the runs of SASRec")
    parser.add_argument("--train", nargs=2, metavar=("LOSS", "SEED"), help=f"train and keep a run; {', '.join(LOSSES)}")
    parser.add_argument(
        "--times", action="store_true", help="files of lines user item [rating] time, divided at one moment"
    )
    parser.add_argument("--like", help="the set whose runs have chosen the similarity, such as Beauty")
    given = parser.parse_args(args)
    torch.set_num_threads(1)
    if given.train:
        (loss, seed), path = given.train, Path(given.path[0])
        name = path.parent.name.capitalize()
        like = run_path(given.runs, given.like, loss) if given.like else None
        if not run_path(given.runs, name, loss, int(seed)).exists():
            train(read_quietly(path), given.runs, name, loss, int(seed), like)
        return
    start, rows, differences, logs, blends = time.perf_counter(), [], [], [], []
    titles = list(MEASURES.values())
    if given.times:
        warnings.simplefilter("ignore")
        header = ["set", "users", "model", *titles, f"nDCG@10 less {COUNTER}", "settings"]
        rows = [row for path in given.path for row in compared_at_moments(Path(path))]
        written(args, given.output, "sequences-times", {"sequences at one moment": (header, rows)}, start)
        return
    for path in map(Path, given.path):
        ratings, name = read_quietly(path), path.parent.name.capitalize()
        values, settings, seconds = compared(ratings)
        paths = {loss: [run_path(given.runs, name, loss, seed) for seed in SEEDS] for loss in LOSSES if given.runs}
        done = {loss: [each for each in found if each.exists()] for loss, found in paths.items()}
        counter = dict(word.split("=") for word in settings[COUNTER].split(", "))
        found, log = transformers(
            ratings,
            {loss: (run_path(given.runs, name, loss), each) for loss, each in done.items() if each},
            {"decay": float(counter["decay"]), "normalise": counter["normalise"]},
        )
        logs += [[name, *row] for row in log]
        for model, each in (values | found).items():
            row = [_with_bounds(each[measure]) for measure in titles]
            rows.append(
                [name, model, *row, f"{seconds[model]:.1f}" if model in seconds else "", settings.get(model, "")]
            )
            if model != COUNTER:
                less = [with_interval(each[m] - values[COUNTER][m], RESAMPLES) for m in titles]
                differences.append([name, model, *less])
            if model.startswith(f"{COUNTER} + SASRec"):
                less = [
                    with_interval(each[m] - found[model.removeprefix(f"{COUNTER} + ")][m], RESAMPLES) for m in titles
                ]
                blends.append([name, model, *less])
    log_header = [
        "set",
        "loss",
        "similarity",
        "epochs",
        "validation nDCG@10",
        "nDCG@10",
        "weight",
        "s/epoch",
        "MB",
    ]
    tables = {
        "sequences": (["set", "model", *titles, "seconds", "settings"], rows),
        "sequences differences": (["set", "model", *(f"{m} less {COUNTER}" for m in titles)], differences),
        "sequences blends": (["set", "model", *(f"{m} less SASRec" for m in titles)], blends),
        "sequences runs": (log_header, logs),
    }
    written(args, given.output, "sequences", tables, start)


def written(args: Sequence[str], output: str, name: str, tables: Mapping[str, Any], start: float) -> None:
    """Print tables and write them as the result `name`."""
    for title, (header, found) in tables.items():
        print(f"\n{title}\n\n{markdown_table(header, found)}")
    typed = [str(Path(*Path(word).parts[-2:])) if "/" in word else word for word in args]
    Path(output).mkdir(parents=True, exist_ok=True)
    took = round(time.perf_counter() - start, 1)
    write_result(Path(output) / f"{name}.json", ["python", "scripts/sequences.py", *typed], tables, seconds=took)


def run_path(folder: str, name: str, loss: str, seed: int | None = None) -> Path:
    """The file of the vectors of a run; without a seed that of the settings of all, beside which are vectors for validation."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    file = f"{name} {loss} " + ("settings.json" if seed is None else f"{seed}.npz")
    return Path(folder) / file.replace(" ", "-").replace("'", "").replace("@", "-at-")


def read_quietly(path: Path) -> Ratings:
    """The interactions of a file, without warnings of held-out items that no other user has: they count as misses."""
    warnings.simplefilter("ignore")
    return read_interactions(path, times="order")


def _with_bounds(values: np.ndarray) -> str:
    """The mean and its interval."""
    low, high = bootstrap_interval(values, resamples=RESAMPLES)
    return f"{values.mean():.4f} ({low:.4f} to {high:.4f})"


if __name__ == "__main__":
    sys.exit(main())
