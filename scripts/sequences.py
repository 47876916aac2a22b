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
who have earlier ones. The tables are written as `sequences-times.json`:

    python scripts/sequences.py --times --path MOVIELENS100K/u.data --output runs/sequences
"""

from __future__ import annotations

import json
import resource
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

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
    SequenceRecommender,
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
    "SL@20": lambda: [
        (("cosine", 1.0), rs.losses.TopKSoftmaxLoss(k=20, temperature=0.07, weight_temperature=each))
        for each in (1.0, 0.25)
    ],
    "PSL": lambda: [
        (("cosine", 1.0), rs.losses.PairwiseSoftmaxLoss(temperature=each, scale=2)) for each in (0.035, 0.07)
    ],
}
BATCH, STEPS = 128, 50  # users a step, and steps of an epoch at least
LEAST = 12  # epochs, since the first ones may be level
NEGATIVES = 256  # of gBCE
WEIGHTS = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the counter in a blend
SEEDS = (0, 1, 2)
MOMENTS = (0.8, 0.9)  # of validation and test: the share of all interactions that are known


class Parts(NamedTuple):
    """What is known before the validation items and before the test, and these items."""

    before: Ratings
    held: Ratings
    known: Ratings
    test: Ratings


def divided(path: Path, at_moments: bool) -> Parts:
    """The parts of a file; items held out that no other user has count as misses."""
    warnings.simplefilter("ignore")
    if not at_moments:
        known, test = hold_out(read_interactions(path, times="order"), 1, latest=True)
        return Parts(*hold_out(known, 1, latest=True), known, test)
    user, item, *_, times = np.loadtxt(path, dtype=np.int64).T
    ratings, parts = interactions(user, item, times=times), []
    for share in MOMENTS:
        moment = np.quantile(ratings.time, share, method="lower")
        known, later = ratings.select(ratings.time <= moment), ratings.select(ratings.time > moment)
        order = np.lexsort((later.item, later.time, later.user))
        _, first = np.unique(later.user[order], return_index=True)
        chosen = np.zeros(later.num_ratings, bool)
        chosen[order[first]] = True
        parts += [known, later.select(chosen & np.isin(later.user, known.user))]
    return Parts(*parts)


def tested(model: Any, parts: Parts) -> dict[str, np.ndarray]:
    """The measures of each user of the test."""
    options = {"exclude": parts.known, "items": np.unique(parts.known.item)}
    found = evaluate_catalogue(model, parts.test, list(MEASURES), **options)
    return {MEASURES[measure]: each.numpy() for measure, each in found.items()}


def compared(parts: Parts) -> tuple[dict[str, dict[str, np.ndarray]], dict[str, Mapping[str, Any]], dict[str, float]]:
    """The measures of each user, the settings and the seconds, by model that is not a transformer."""
    values, settings, seconds = {}, {}, {}

    def add(name: str, model: Any) -> None:
        start = time.perf_counter()
        settings[name] = {}
        if isinstance(model, SequenceRecommender):
            settings[name] = model.fit(parts.before, validation=parts.held).settings_
            model.set_params(**settings[name])
        found = popularity(parts.known) if model is None else model.fit(parts.known).catalogue_model()
        seconds[name], values[name] = time.perf_counter() - start, tested(found, parts)
        print(name, *(f"{each.mean():.4f}" for each in values[name].values()), f"{seconds[name]:.0f} s", flush=True)

    counter = TransitionRecommender()
    add("popularity", None)
    add(COUNTER, counter)
    add("session kNN", SessionKNN())
    add(TRAINED, Recommender())
    add(f"{COUNTER} + {TRAINED}", BlendRecommender(counter, Recommender()))
    return values, settings, seconds


def validated(model: Any, parts: Parts) -> float:
    """The mean nDCG@10 of some users at their validation items."""
    some = parts.held.select_users(np.random.default_rng(0).permutation(np.unique(parts.held.user))[:JUDGED])
    options = {"exclude": parts.before, "items": np.unique(parts.before.item)}
    return float(evaluate_catalogue(model, some, ["nDCG@10"], **options)["nDCG@10"].mean())


def transformers(
    parts: Parts, files: Mapping[str, tuple[Path, Sequence[Path]]], counter: Mapping[str, Any]
) -> tuple[dict[str, dict[str, np.ndarray]], list[list[Any]]]:
    """The means over seeds of the measures of each user, by model, and of each loss the log of its runs."""
    counted = [TransitionRecommender(**counter).fit(each).catalogue_model() for each in (parts.before, parts.known)]
    values, logs = {}, []

    @cache
    def weight_of(settings: Path) -> float:
        """The weight of the counter in the blend that is best by the validation items."""
        own = Vectors.load(settings.with_suffix(".npz"))
        return max(WEIGHTS, key=lambda weight: validated(_Blend([counted[0], own], weight), parts))

    def of_run(path: Path, settings: Path) -> dict[str, np.ndarray]:
        """The measures of SASRec and its blend, which are kept beside the run."""
        kept = path.with_suffix(".measures.npz")
        if not kept.exists():
            own, weight = Vectors.load(path), weight_of(settings)
            models = {"own": own, "blend": _Blend([counted[1], own], weight)}
            found = {f"{name} {m}": each for name, model in models.items() for m, each in tested(model, parts).items()}
            with whole_file(kept, "wb") as file:
                np.savez(file, **found, weight=weight)
        with np.load(kept) as file:
            return dict(file)

    for loss, (settings, paths) in files.items():
        runs, log = [of_run(path, settings) for path in paths], json.loads(settings.read_text())
        for name, key in ((f"SASRec, {loss}", "own"), (f"{COUNTER} + SASRec, {loss}", "blend")):
            values[name] = {m: np.mean([run[f"{key} {m}"] for run in runs], 0) for m in MEASURES.values()}
        similarity, trained = LOSSES[loss]()[log["setting"]]
        shown = "dot product" if similarity == DOT else f"cosine / {similarity[1]:g}"
        for option in ("temperature", "weight_temperature") if similarity[1] == 1 and similarity != DOT else ():
            shown += f", {option}={getattr(trained, option):g}" if hasattr(trained, option) else ""
        single = [f"{run['own nDCG@10'].mean():.4f}" for run in runs]
        epoch, validation = 1 + int(np.argmax(log["validation"])), f"{max(log['validation']):.4f}"
        took, weight = f"{np.median(log['seconds']):.0f}", f"{float(runs[0]['weight']):g}"
        logs.append([loss, shown, epoch, validation, ", ".join(single), weight, took, f"{log['MB']:.0f}"])
    return values, logs


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
        batch_size=BATCH,
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


def train(parts: Parts, loss: str, seed: int, like: Path | None, settings: Path, path: Path) -> None:
    """Choose the settings, unless they are there, then fit SASRec on everything before the test and write the vectors."""
    if not settings.exists():
        choose(parts, loss, like, settings)
    chosen, data = json.loads(settings.read_text()), dataset(parts.known)
    torch.manual_seed(seed)
    similarity, fitted = LOSSES[loss]()[chosen["setting"]]
    model = sasrec(fitted, similarity)
    for epoch in range(1 + int(np.argmax(chosen["validation"]))):
        print("epoch", epoch + 1, f"{one_epoch(model, data):.0f} s", flush=True)
    as_vectors(model, parts.known).save(path)


def choose(parts: Parts, name: str, like: Path | None, path: Path) -> None:
    """Train SASRec with early stopping, and write the vectors for validation and the log of the run."""
    data = dataset(parts.before)
    chosen = None if like is None else json.loads(like.read_text())["setting"]
    log: dict[str, Any] = {"loss": name, "tried": {}}

    def one_more(model: Any, values: list[float], seconds: list[float]) -> Vectors | None:
        """Train an epoch more; the vectors if they are the best so far."""
        seconds.append(one_epoch(model, data))
        vectors = as_vectors(model, parts.before)
        values.append(validated(vectors, parts))
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
    """Train an epoch more, of several passes if a set has few users; the seconds that it took."""
    start, passes = time.perf_counter(), -(-STEPS * BATCH // data.user_id_map.size)
    model.fit_partial(data, min_epochs=passes, max_epochs=passes)
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
    sets = {path.parent.name.capitalize(): path for path in map(Path, given.path)}
    if given.train:
        (loss, seed), (name, path) = given.train, next(iter(sets.items()))
        like = run_path(given.runs, given.like, loss) if given.like else None
        settings, run = run_path(given.runs, name, loss), run_path(given.runs, name, loss, int(seed))
        if not run.exists():
            train(divided(path, given.times), loss, int(seed), like, settings, run)
        return
    start, rows, differences, logs, blends = time.perf_counter(), [], [], [], []
    titles = list(MEASURES.values())
    for name, path in sets.items():
        parts = divided(path, given.times)
        values, settings, seconds = compared(parts)
        paths = {loss: [run_path(given.runs, name, loss, seed) for seed in SEEDS] for loss in LOSSES if given.runs}
        done = {loss: [each for each in found if each.exists()] for loss, found in paths.items()}
        files = {loss: (run_path(given.runs, name, loss), each) for loss, each in done.items() if each}
        found, log = transformers(parts, files, settings[COUNTER])
        logs += [[name, *row] for row in log]
        for model, each in (values | found).items():
            row = [_with_bounds(each[measure]) for measure in titles]
            shown = ", ".join(f"{key}={value}" for key, value in settings.get(model, {}).items())
            rows.append(
                [name, parts.test.num_ratings, model, *row, f"{seconds[model]:.1f}" if model in seconds else "", shown]
            )
            if model != COUNTER:
                less = [with_interval(each[m] - values[COUNTER][m], RESAMPLES) for m in titles]
                differences.append([name, model, *less])
            if model.startswith(f"{COUNTER} + SASRec"):
                own = found[model.removeprefix(f"{COUNTER} + ")]
                blends.append([name, model, *(with_interval(each[m] - own[m], RESAMPLES) for m in titles)])
    chosen = ["similarity", "epochs", "validation nDCG@10", "nDCG@10", "weight", "s/epoch", "MB"]
    kind = "sequences-times" if given.times else "sequences"
    tables = {
        "sequences": (["set", "users", "model", *titles, "seconds", "settings"], rows),
        "sequences differences": (["set", "model", *(f"{m} less {COUNTER}" for m in titles)], differences),
        "sequences blends": (["set", "model", *(f"{m} less SASRec" for m in titles)], blends),
        "sequences runs": (["set", "loss", *chosen], logs),
    }
    full = {title.replace("sequences", kind): each for title, each in tables.items() if each[1]}
    written(args, given.output, kind, full, start)


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


def _with_bounds(values: np.ndarray) -> str:
    """The mean and its interval."""
    low, high = bootstrap_interval(values, resamples=RESAMPLES)
    return f"{values.mean():.4f} ({low:.4f} to {high:.4f})"


if __name__ == "__main__":
    sys.exit(main())
