"""Experiments: trainers, data sets, folds, seeds and measures from one config, and the training of one cell.

A cell is one trainer on one fold with one seed. Documents are first shuffled within their list, because in some files their order
reveals the labels.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import time
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from papers.baselines import (
    CHANGED_DEFAULTS,
    choice_of,
    is_stochastic,
    make_trainer,
    path_of,
    trainer_options,
)
from papers.sources import PaperSource, shuffle_documents
from rankstruct.configs import instantiate
from rankstruct.data import RankingData, Splits
from rankstruct.data.pipeline import check_preparation, full_names
from rankstruct.diagnostics import arrays_of, check_measures
from rankstruct.measures import evaluate, parse_measure
from rankstruct.messages import did_you_mean
from rankstruct.statistics import TESTS, Test

__all__ = ["Plan", "PlanCell", "Sets", "Vary", "read_plan", "run_cell"]

_MOST = 10_000  # seeds, cut-offs
_PAIRS, _JUDGES = ("query", "fold"), ("test", "validation")
_SPECIAL = ("trainer", "prepare")  # keys of a trainer's entry that are not its options
_LATER = {
    "seed": 0,
    "diversity_groups": None,
    "columns": None,
    "zero_based": False,
    "label": None,
    "qid": None,
    "categorical": (),
}  # keys of a source that older requests lack, and their former values
_FORMER: dict[str, Any] = {"prepare_train": (), "prepare_test": ()}  # keys of older requests that a source lacks


@dataclass(frozen=True)
class Sets(PaperSource):
    """The data of an experiment: a `PaperSource` for each data set and fold.

    Args:
        path: a folder of data sets, each with `Fold1` and so on, or files of classes (such as `letter.arff`); or, without `sets`,
            the data set itself.
        sets: names of data sets in that folder, such as `[OHSUMED, MQ2008]`; a file of lists, such as `web_hosts.txt`, is divided
            into folds.
        folds: numbers of the folds, parts or trials; seeds for built-in data. `fold` and `seed` are not used.

    The other keys are those of `PaperSource`.
    """

    sets: tuple[str, ...] = ()
    folds: tuple[int, ...] = (1, 2, 3, 4, 5)

    def of(self, set_name: str, fold: int) -> PaperSource:
        """The source of one data set and fold."""
        given = {each.name: getattr(self, each.name) for each in fields(PaperSource)}
        path = None if self.path is None else str(Path(self.path) / set_name)
        if path is not None and self.protocol == "folds" and Path(path).is_file():
            given["protocol"] = "cross-validation"
        return PaperSource(**{**given, "path": path}).with_fold(fold)


@dataclass
class Vary:
    """Several values of one option, one curve per trainer.

    Args:
        option: an option of the trainers; those without it run once. `lists` is the number of training lists, for all.
        values: its values.
    """

    option: str
    values: list[Any]

    def __post_init__(self) -> None:
        self.values = [_frozen(value) for value in self.values]
        if not self.values or len({json.dumps(value) for value in self.values}) < len(self.values):
            raise ValueError(f"vary.values must be one or more different values, got {self.values}")
        if self.option == "lists" and not all(isinstance(n, int) and n > 0 for n in self.values):
            raise ValueError(f"vary.values: numbers of lists must be whole numbers above 0, got {self.values}")


def _frozen(value: Any) -> Any:
    """Lists as tuples, so that values are hashable."""
    return tuple(map(_frozen, value)) if isinstance(value, list | tuple) else value


@dataclass
class Plan:
    """An experiment.

    Args:
        trainers: by their name in tables: `trainer`, one of `baselines.TRAINERS`; `prepare`, transforms for this trainer; and
            the trainer's options.
        data: the data sets.
        measures: the measures on the test lists.
        cutoffs: nDCG is also measured at 1 to this cut-off, for curves; 0 for none.
        select: the measure that selects settings on validation lists; with None each trainer decides, some by the measure
            that they optimise.
        C: the default of trainers with an option `C`.
        baselines: names of trainers; the others are tested against the best of these, for each measure.
        reference: the trainer of the table of wins and losses; the first if None.
        seeds: number of seeds of random trainers, whose values are averaged by query.
        vary: several values of one option.
        test: the paired test: `wilcoxon`, `t` or `randomization`.
        pairs: `query`, or `fold` (means) if folds are trials that share queries.
        judge: `test`; or `validation`, to make decisions without using test lists: the validation lists are tested on, and
            replaced by a fifth of the training lists.
    """

    trainers: dict[str, dict[str, Any]]
    data: Sets = field(default_factory=Sets)
    measures: list[str] = field(default_factory=lambda: ["AUC", "AP", "nDCG@10", "nDCG", "RR", "P@10"])
    cutoffs: int = 0
    select: str | None = None
    C: list[float] | None = None
    baselines: list[str] = field(default_factory=list)
    reference: str | None = None
    seeds: int = 5
    vary: Vary | None = None
    test: Test = "wilcoxon"
    pairs: str = "query"
    judge: str = "test"

    def __post_init__(self) -> None:
        if not self.trainers:
            raise ValueError("trainers: name at least one")
        for name in [*self.baselines, *filter(None, [self.reference])]:
            if name not in self.trainers:
                known, hint = ", ".join(self.trainers), did_you_mean(name, self.trainers)
                raise ValueError(f"baselines and reference: {name!r} is none of the trainers {known}{hint}")
        closed = ("test", TESTS, self.test), ("pairs", _PAIRS, self.pairs), ("judge", _JUDGES, self.judge)
        for name, choices, value in closed:
            if value not in choices:
                raise ValueError(f"{name} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        if not 1 <= self.seeds <= _MOST or not 0 <= self.cutoffs <= _MOST:
            raise ValueError(
                f"seeds must be at least 1 and cutoffs at least 0, both at most {_MOST}, got {self.seeds} and {self.cutoffs}"
            )
        if self.data.builtin is not None and self.data.sets:
            raise ValueError("data.sets names folders in data.path; a built-in set has none")
        if self.data.fold is not None:
            raise ValueError(f"data.fold: give data.folds, such as [{self.data.fold}]")
        self.measures = [parse_measure(name).name for name in self.measures]
        several = {"data.folds": self.data.folds, "data.sets": self.data.sets, "measures": self.measures}
        for name, entries in several.items():
            if len(set(entries)) < len(entries):
                raise ValueError(f"{name} has an entry twice: {entries}")
        for name in ("data.folds", "measures"):
            if not several[name]:
                raise ValueError(f"{name} must have an entry")
        for name in self.trainers:
            if not isinstance(name, str) or not name.strip() or name.startswith("_") or "$" in name:
                raise ValueError(f"trainers: {name!r} is no name; one is text without $, not beginning with _")
        if self.vary is not None and self.vary.option != "lists":
            kinds = [str(entry.get("trainer")) for entry in self.trainers.values() if isinstance(entry, Mapping)]
            if not any(self.vary.option in trainer_options(kind) for kind in kinds):
                every = [option for kind in kinds for option in trainer_options(kind)]
                hint = did_you_mean(self.vary.option, every)
                raise ValueError(f"vary.option: no trainer has the option {self.vary.option!r}{hint}")
        for cell in self.cells():
            check_preparation(cell.spec.get("prepare", []))
            try:
                make_trainer(cell.spec["trainer"], select=self.select, **cell.options)
            except (ValueError, TypeError) as error:
                raise ValueError(f"trainers.{cell.name}: {error}") from error

    def check_data(self) -> None:
        """Check that the data exist; raises ValueError or OSError with one line if not."""
        for set_name, fold in itertools.product(self.data.sets or ("",), self.data.folds):
            self.data.of(set_name, fold).check()

    def only(self, names: Sequence[str]) -> Plan:
        """The plan with only these trainers, its baselines and its reference; raises ValueError for an unknown name."""
        for name in names:
            if name not in self.trainers:
                hint = did_you_mean(name, self.trainers)
                raise ValueError(f"--trainers: {name!r} is none of {', '.join(self.trainers)}{hint}")
        asked = (*names, *self.baselines, self.reference)
        return replace(self, trainers={name: entry for name, entry in self.trainers.items() if name in asked})

    @property
    def all_measures(self) -> list[str]:
        """The measures, including those of the curves, each once."""
        return list(dict.fromkeys([*self.measures, *self.curve]))

    @property
    def curve(self) -> list[str]:
        """The measures of the curves over cut-offs."""
        return [parse_measure(f"nDCG@{k}").name for k in range(1, self.cutoffs + 1)]

    def cells(self) -> list[PlanCell]:
        """All cells, in the order of the tables."""
        found = []
        for set_name in self.data.sets or [""]:
            for name, entry in self.trainers.items():
                if not isinstance(entry, Mapping) or "trainer" not in entry:
                    raise ValueError(f"trainers.{name}: give `trainer` and its options, got {entry!r}")
                options = trainer_options(str(entry["trainer"]))
                varied = self.vary is not None and self.vary.option in ("lists", *options)
                values = self.vary.values if self.vary is not None and varied else [None]
                for value in values:
                    spec = dict(entry)
                    if self.C is not None and "C" in options:
                        spec.setdefault("C", self.C)
                    if value is not None and self.vary is not None:
                        spec[self.vary.option] = value
                    drawn = is_stochastic(entry["trainer"]) and "random_state" not in entry
                    seeds = range(self.seeds if drawn else 1)
                    runs = itertools.product(self.data.folds, seeds)
                    found += [PlanCell(set_name, name, value, fold, seed, spec) for fold, seed in runs]
        return found

    def request(self, cell: PlanCell) -> str:
        """A short digest of everything that a cell's result depends on."""
        data = {k: v for k, v in asdict(self.data).items() if k not in ("sets", "folds", "cache", "fold", "parts")}
        data = _FORMER | {k: v for k, v in data.items() if k not in _LATER or v != _LATER[k]}
        if self.data.protocol == "cross-validation":
            data["folds"] = self.data.parts
        spec = CHANGED_DEFAULTS.get(cell.spec["trainer"], {}) | cell.spec
        for entry in (spec, data):  # cached results of a name are invalid if its number has changed
            entry |= {"prepare": full_names(entry["prepare"])} if "prepare" in entry else {}
        wanted: dict[str, Any] = {
            "spec": spec,
            "data": data,
            "measures": sorted(self.all_measures),
            "select": self.select,
            "cell": [cell.set_name, cell.fold, cell.seed],
        }
        if self.judge != "test":
            wanted["judge"] = self.judge
        if self.data.path is not None:
            wanted["content"] = self.data.of(cell.set_name, cell.fold).digest()
        return hashlib.sha256(json.dumps(wanted, sort_keys=True).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class PlanCell:
    """One trainer on one fold with one seed.

    Attributes:
        set_name: the folder of the data set; "" for a single one.
        name: the trainer's name in tables.
        value: the value of the varied option, or None.
        fold: the number of the fold.
        seed: the seed, from 0.
        spec: the trainer's entry in the config.
    """

    set_name: str
    name: str
    value: Any
    fold: int
    seed: int
    spec: dict[str, Any]

    @property
    def key(self) -> tuple[str, str, str, int, int]:
        """The unique key of a cell in an experiment."""
        return self.set_name, self.name, json.dumps(self.value), self.fold, self.seed

    @property
    def options(self) -> dict[str, Any]:
        """The trainer's options."""
        taken = trainer_options(self.spec["trainer"])
        return {k: v for k, v in self.spec.items() if k not in _SPECIAL and (k != "lists" or k in taken)}


def read_plan(config: str | Path, overrides: Sequence[str] = ()) -> Plan:
    """A plan from a config file.

    Raises:
        ValueError: an unknown key, trainer, option, measure or transform; the message is one line.
    """
    values = instantiate(config, overrides, lambda parser: parser.add_class_arguments(Plan, None)).as_dict()
    values.pop("config", None)
    try:
        return Plan(**values)
    except (TypeError, ValueError) as error:
        raise ValueError(f"{config}: {error}") from error


def run_cell(plan: Plan, cell: PlanCell) -> dict[str, Any]:
    """Train and test one cell.

    Returns:
        The result as JSON values: `cell` (its key), `request`, `choice`, `path` (`baselines.path_of`), `remarks`
        (warnings of the trainer), `seconds` of training, `cpu_seconds` of all its threads, `documents` and `removed` of the three
        parts, `qids`, and `values`, for each measure a list with one number per test query.
    """
    source = plan.data.of(cell.set_name, cell.fold)
    raw = source.read_raw()
    if plan.judge == "validation":
        raw = _one_earlier(raw, [cell.seed, cell.fold])
    shuffled = Splits(*(shuffle_documents(part, seed=3 * cell.seed + at) for at, part in enumerate(raw)))
    prepared, _ = source.prepare_splits(shuffled, cell.spec.get("prepare", ()))
    train, vali, test = prepared
    if "lists" in cell.spec and "lists" not in cell.options:
        train = _fewer_lists(train, int(cell.spec["lists"]), [cell.seed, cell.fold])
    trainer = make_trainer(cell.spec["trainer"], seed=cell.seed, select=plan.select, **cell.options)
    check_measures({"the test lists": raw.test}, plan.all_measures)
    if plan.select is not None:
        check_measures({"the validation lists": raw.vali}, [plan.select], "select")
    start, start_cpu = time.perf_counter(), time.process_time()
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always", UserWarning)
        trainer.fit(**arrays_of(train), **arrays_of(vali, "_valid"))
    seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - start_cpu
    scores = trainer.predict(test.features, test.list_numbers)
    values = evaluate(
        scores, test.labels, plan.all_measures, offsets=test.offsets, diversity_groups=test.diversity_groups
    )
    return {
        "cell": list(cell.key),
        "request": plan.request(cell),
        "choice": {k: v.item() if isinstance(v, np.generic) else v for k, v in choice_of(trainer).items()},
        "path": path_of(trainer),
        "remarks": sorted({str(each.message) for each in warned}),
        "seconds": seconds,
        "cpu_seconds": cpu_seconds,
        "documents": [train.num_documents, vali.num_documents, test.num_documents],
        "removed": [b.num_documents - a.num_documents for a, b in zip(prepared, raw, strict=True)],
        "qids": test.qids.tolist(),
        "values": {name: value.tolist() for name, value in values.items()},
    }


def _one_earlier(parts: Splits, seed: list[int]) -> Splits:
    """Validation lists as test lists, and a fifth of the training lists as validation lists."""
    train = parts.train
    order = np.random.default_rng(seed).permutation(train.num_lists)
    held = max(train.num_lists // 5, 1)
    return Splits(train.select(np.sort(order[held:])), train.select(np.sort(order[:held])), parts.vali)


def _fewer_lists(data: RankingData, number: int, seed: list[int]) -> RankingData:
    if number > data.num_lists:
        raise ValueError(f"lists: there are {data.num_lists} training lists, not {number}")
    return data.select(np.sort(np.random.default_rng(seed).permutation(data.num_lists)[:number]))
