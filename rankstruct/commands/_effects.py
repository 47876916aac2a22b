"""Options that have no effect with the others of a command are refused: one table, and its check.

Only what was typed counts: a config may hold options for several commands.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple


class Need(NamedTuple):
    """Options, by name or pattern, and what they have no effect without."""

    options: str
    lacking: str
    is_met: Callable[[Any], object]


def _has_ids(*paths: Any) -> bool:
    """Whether one of the files, or of the files of lists in a folder, has feature ids, as SVMlight files have."""
    from rankstruct.data.formats import reader_of, suffix_of
    from rankstruct.data.svmlight import read_svmlight

    chosen = [Path(path) for path in paths if path is not None]
    files = [file for path in chosen for file in (path.rglob("t*.*") if path.is_dir() else [path])]
    return any(reader_of(suffix_of(file)) is read_svmlight for file in files)


def _source(values: Any) -> Any:
    return None if values.data.builtin is not None else values.data.path


_IDS = "without a file that has feature ids, as SVMlight files have"
_COLUMNS = "label qid categorical"
_TRAINING = Need(
    "output average_weights save_every_steps checkpoint.* early_stopping.* model.loss* model.optimizer* model.regulariz* "
    "model.schedule model.t0 model.start trainer.max_* trainer.min_* trainer.limit_train_batches trainer.val_check_interval "
    "trainer.check_val_every_n_epoch trainer.accumulate_grad_batches trainer.gradient_clip* trainer.log_every_n_steps "
    "data.lists_per_batch data.documents_per_batch data.max_list_size data.keep_relevant data.drop_empty data.users_per_batch "
    "data.pairs_per_batch data.max_items",
    "without training, by `rankstruct fit`",
    lambda values: False,
)
_PREDICTION = Need("data.predict_path data.recommend", "without `rankstruct predict`", lambda values: False)
#: Of the data of each task; `values` is the config.
_DATA = {
    "ranking": (
        Need("data.parts", "without --data.protocol cross-validation", lambda v: v.data.protocol == "cross-validation"),
        Need(
            "data.fold data.labels data.label data.qid data.categorical data.zero_based data.cache",
            "without files, with --data.builtin",
            _source,
        ),
        Need("data.zero_based", _IDS, lambda v: _has_ids(_source(v))),
        Need("data.keep_relevant", "without --data.max_list_size", lambda v: v.data.max_list_size is not None),
    ),
    "ratings": (
        Need("data.format data.scale", "without files, with --data.builtin", _source),
        Need("data.num_train data.min_test", "with --data.split fold", lambda v: v.data.split != "fold"),
        Need("data.new_users", "without --data.split strong", lambda v: v.data.split == "strong"),
        Need("data.validation", "with --data.split strong", lambda v: v.data.split != "strong"),
    ),
    "implicit": (
        Need("data.times data.min_rating", "without files, with --data.builtin", _source),
        Need("data.test_share", "with --data.split leave-one-out", lambda v: v.data.split != "leave-one-out"),
    ),
    "text": (Need("data.keep_relevant", "without --data.max_list_size", lambda v: v.data.max_list_size is not None),),
}

#: By command; `values` are its parsed options.
NEEDS: dict[str, tuple[Need, ...]] = {
    "configs": (Need("output", "without NAME", lambda v: v.name),),
    "convert": (
        Need("folds", "without a folder as SOURCE", lambda v: v.source.is_dir()),
        Need("zero_based group_file", _IDS, lambda v: _has_ids(v.source)),
    ),
    "evaluate": (
        Need(f"real_labels zero_based {_COLUMNS}", "without --labels FILE", lambda v: v.lists),
        Need("zero_based", _IDS, lambda v: _has_ids(v.lists)),
        Need("test", "without a second FILE", lambda v: len(v.files) > 1),
        Need("ties empty", "with --convention letor, which sets both", lambda v: v.convention is None),
    ),
    "rank": (
        Need("fold", "without FOLDER", lambda v: v.folder),
        Need("propensities clip drop_missing", "without --clicks LOG", lambda v: v.clicks),
        Need("drop_missing", "without --train FILE: a log with features has all documents", lambda v: v.train),
        Need(_COLUMNS, "without --train or --test", lambda v: v.folder or v.train or v.test or v.clicks is None),
        Need("zero_based", _IDS, lambda v: _has_ids(v.folder, v.train, v.vali, v.test)),
    ),
    "fit": (_PREDICTION,),
    "validate": (_TRAINING, _PREDICTION),
    "test": (_TRAINING, _PREDICTION),
    "predict": (_TRAINING, Need("model.measures", "without `rankstruct test` or `validate`", lambda values: False)),
}


def without_effect(typed: Iterable[str], needs: Iterable[Need], values: Any) -> str:
    """What is said of the first option without effect, or "".

    Args:
        typed: the names of the options on the command line, without dashes.
        needs: of the command.
        values: the parsed options.
    """
    for need in needs:
        patterns = need.options.split()
        for name in typed:
            option = name.replace("-", "_")
            if any(fnmatchcase(option, pattern) for pattern in patterns) and not need.is_met(values):
                return f"--{name} has no effect {need.lacking}; remove it"
    return ""


def data_needs(config: Any) -> tuple[Need, ...]:
    """The needs of the data section of a config; none of a data module of its own."""
    return () if "class_path" in config.data else _DATA[config.task]
