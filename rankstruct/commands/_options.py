"""The options of every command, each declared once with its scope; nothing heavy is imported, so that `--help` is quick.

`fit`, `validate`, `test` and `predict` take the options of a config, which are those of the classes that it names: LightningCLI
parses them. Here are the common ones, for the help, and which have no effect in a command or for a kind of data.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from rankstruct._lazy import listed
from rankstruct.commands._arguments import (
    CommandParser,
    Need,
    add_address,
    add_cell_options,
    add_cluster_options,
    configs_in,
    options_in,
    whole_number,
)
from rankstruct.messages import did_you_mean

#: Of commands that start training runs.
_PASSED_ON = "Options that are not listed here are passed to every training run, such as --data.path FOLDER."
EVALUATED = ("AP", "nDCG@10", "RR@10", "P@10")
RANKED = ("AP", "nDCG@10", "RR@10")
#: The usual names of columns, as in `rankstruct.columns`.
USUAL = {
    "label": "label, relevance, rel, y, target",
    "qid": "qid, query_id, query, group",
    "docid": "docid, doc_id, document_id",
}


def _has_ids(*paths: Any) -> bool:
    """Whether one of the files, or of the files of lists in a folder, has feature ids, as SVMlight files have."""
    from rankstruct.data.formats import reader_of, suffix_of
    from rankstruct.data.shards import url_of
    from rankstruct.data.svmlight import read_svmlight

    chosen = [Path(path) for path in paths if path is not None and url_of(path) is None]  # a URL is of Parquet files
    files = [file for path in chosen for file in (path.rglob("t*.*") if path.is_dir() else [path])]
    return any(reader_of(suffix_of(file)) is read_svmlight for file in files)


def _with_ids(files: Callable[[Any], tuple[Any, ...]]) -> Need:
    return Need("without a file that has feature ids, as SVMlight files have", lambda v: _has_ids(*files(v)))


def _add_column_options(
    parser: CommandParser, roles: Sequence[str] = ("label", "qid"), needs: Sequence[Need] = ()
) -> None:
    """Add the options that name columns of tables; see `column_options`."""
    for role in roles:
        told = f"column of CSV, Parquet and Arrow files (default: {USUAL[role]})"
        parser.add_argument(f"--{role}", metavar="COLUMN", help=told, needs=needs)
    numbers = "columns of numbers that are categories, in such files"
    parser.add_argument("--categorical", nargs="+", metavar="COLUMN", default=[], help=numbers, needs=needs)


def column_options(options: argparse.Namespace) -> dict[str, Any]:
    """The options of `read_lists` by which columns were named."""
    named = {name: getattr(options, name, None) for name in ("label", "qid", "docid", "categorical")}
    return {name: value for name, value in named.items() if value}


def _add_real_labels(parser: CommandParser, needs: Sequence[Need] = ()) -> None:
    """Add `--real-labels`, whose value is that of the argument `labels` of `read_lists`."""
    told = "allow any number as label, not only grades"
    value: dict[str, Any] = {"dest": "labels", "action": "store_const", "const": "real", "default": "grades"}
    parser.add_argument("--real-labels", **value, help=told, needs=needs)


def _add_rules(parser: CommandParser) -> None:
    """Add rules for a page, and the table of the groups that they are about."""
    parser.add_argument(
        "--constraints",
        nargs="+",
        metavar="RULE",
        help='rules for a page, such as "seller <= 2 @ 10" "new=1 >= 1 @ 5": also say what the measures are under these, and how '
        "often rankings break them",
    )
    parser.add_argument(
        "--columns",
        metavar="FILE",
        help="table (CSV, Parquet) with the groups of documents that the rules are about: a row for each docid",
        needs=[Need("without --constraints", lambda v: v.constraints)],
    )


def _cache() -> CommandParser:
    parser = CommandParser.of(
        "cache",
        "They are in $RANKSTRUCT_CACHE, or rankstruct in the user's cache folder, and shown most recently used first. Above "
        "$RANKSTRUCT_CACHE_SIZE (20G), the least recently used are removed. With --warm, the kernels of losses are compiled for "
        "the GPU that is there, so that training need not wait for them; Triton caches them in ~/.triton.",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--clear", action="store_true", help="remove all files")
    what.add_argument(
        "--limit", help="remove the least recently used files until at most this size is left, such as 5G"
    )
    losses = "compile the kernels of these: a loss (SoftRankLoss), a measure for its hinge (nDCG@10), or a config"
    what.add_argument("--warm", nargs="+", metavar="LOSS", help=losses)
    warms = Need("without --warm", lambda values: values.warm)
    sizes: dict[str, Any] = {"type": whole_number(1), "nargs": "+", "default": [100, 1000], "needs": [warms]}
    parser.add_argument("--sizes", **sizes, help="documents of a list, of the lists to compile for")
    return parser


def _certify() -> CommandParser:
    parser = CommandParser.of(
        "certify", "Its linear scorer is compared with that optimum, computed to a certified gap."
    )
    parser.add_argument("--run", required=True, help="folder of a training run")
    parser.add_argument("--tolerance", type=float, default=1e-3, help="relative gap of the optimum")
    return parser


def _configs() -> CommandParser:
    parser = CommandParser.of(
        "configs",
        "Commands accept them by name: `rankstruct fit --config NAME`. With NAME, print it, as a template for your own.",
    )
    parser.add_argument("name", nargs="?", metavar="NAME", help="print this config")
    copy, named = "copy it to this file, which must not exist", Need("without NAME", lambda v: v.name)
    parser.add_argument("--output", type=Path, metavar="FILE", help=copy, needs=[named])
    return parser


def _convert() -> CommandParser:
    parser = CommandParser.of(
        "convert",
        "The files are SVMlight, LETOR, Parquet, Arrow or CSV. For a folder, train, vali and test are converted, or those of its "
        "Fold<n>; set data.path of a config to the new folder.",
    )
    folder, ids = Need("without a folder as SOURCE", lambda v: v.source.is_dir()), _with_ids(lambda v: (v.source,))
    parser.add_argument("source", type=Path, help="a file, a folder, or a URL of Parquet files")
    parser.add_argument(
        "--output", type=Path, help="output file (default: SOURCE with suffix .rankdata), or output folder for a folder"
    )
    parser.add_argument("--folds", nargs="+", type=whole_number(1), help="fold numbers (default: all)", needs=[folder])
    parts = "write N Parquet files instead, with the rows of a query in one file"
    parser.add_argument("--shards", type=whole_number(1), metavar="N", help=parts)
    half = "float16: half the size, three digits, numbers up to 65504"
    parser.add_argument("--dtype", choices=["float32", "float16"], default="float32", help=half)
    features = "number of features (default: the greatest id)"
    whole = Need("with --shards, for a table", lambda v: v.shards is None or _has_ids(v.source))
    parser.add_argument("--num-features", type=whole_number(1), help=features, needs=[whole])
    _add_real_labels(parser, needs=[whole])
    zero_based = "feature ids of SVMlight files start at 0"
    parser.add_argument("--zero-based", action="store_true", help=zero_based, needs=[ids])
    sizes = "file with the sizes of the lists, for SVMlight files without qid"
    parser.add_argument("--group-file", help=sizes, needs=[ids])
    _add_column_options(parser, ("label", "qid", "docid"))
    return parser


def _evaluate() -> CommandParser:
    parser = CommandParser.of(
        "evaluate",
        "Files of scores need the labels of a file of lists (--labels), TREC runs need qrels (--qrels). Two files are compared "
        "query by query.",
    )
    labels = Need("without --labels FILE", lambda v: v.lists)
    second = Need("without a second FILE", lambda v: len(v.files) > 1)
    free = Need("with --convention letor, which sets both", lambda v: v.convention is None)
    parser.add_argument("files", nargs="+", metavar="FILE", help="one or two files of scores, or runs")
    truth = parser.add_mutually_exclusive_group(required=True)
    truth.add_argument(
        "--labels",
        dest="lists",
        help="file of lists (SVMlight, LETOR, CSV, Parquet), documents in the order of the scores",
    )
    truth.add_argument("--qrels", help="TREC relevance judgements")
    parser.add_argument("--measures", nargs="+", default=list(EVALUATED), help="measures")
    ties = ["expected", "input", "worst", "docid"]
    parser.add_argument("--ties", choices=ties, help="rule for tied scores", needs=[free])
    empty = "value of lists without relevant documents"
    parser.add_argument("--empty", choices=["0", "1", "skip", "error"], default="0", help=empty, needs=[free])
    parser.add_argument("--convention", choices=["letor"], help="compute as the LETOR tool does")
    _add_real_labels(parser, [labels])
    zero_based = "feature ids in the file of --labels start at 0"
    ids = [labels, _with_ids(lambda v: (v.lists,))]
    parser.add_argument("--zero-based", action="store_true", help=zero_based, needs=ids)
    _add_column_options(parser, needs=[labels])
    _add_rules(parser)
    tests = ["randomization", "wilcoxon", "t"]
    parser.add_argument("--test", choices=tests, default=tests[0], help="paired test for two files", needs=[second])
    parser.add_argument("--csv", type=Path, help="write the values of each query to this file")
    parser.add_argument("--json", type=Path, help="write the means and the comparison to this file")
    return parser


def _fuse() -> CommandParser:
    parser = CommandParser.of(
        "fuse",
        "Runs are TREC run files. A document that a run lacks gets nothing from it. With --qrels, the runs and the fused one are "
        "evaluated.",
    )
    by_rank = Need("without --method rrf", lambda v: v.method == "rrf")
    by_score = Need("without --method combsum or combmnz", lambda v: v.method in ("combsum", "combmnz"))
    learned = Need("without --method learned", lambda v: v.method == "learned")
    parser.add_argument("runs", nargs="+", metavar="RUN", help="two or more run files")
    parser.add_argument("--output", type=Path, default=Path("fused.run"), metavar="FILE", help="the fused run")
    parser.add_argument(
        "--method",
        default="rrf",
        help="rrf, reciprocal rank fusion; combsum, a sum of scores; combmnz, that times the number of runs with the document; "
        "learned, by a linear ranker fitted to the queries in --qrels, which are scored by rankers fitted without them, and "
        "saved beside the fused run as a scorer (.pt); or such a file, for runs of the same systems in the same order "
        "(default: rrf)",
    )
    scales, scaled = ["min-max", "z-score", "max", "sum", "rank", "none"], "of the scores of a query (default: min-max)"
    parser.add_argument("--normalisation", choices=scales, help=scaled, needs=[by_score])
    first = "the larger, the less the first ranks count (default: 60)"
    parser.add_argument("--k", type=float, help=first, needs=[by_rank])
    told = "loss to learn by, such as \"GradedLoss('AUC')\" (default: that of `LinearRanker`)"
    parser.add_argument("--loss", help=told, needs=[learned])
    parser.add_argument("--qrels", type=Path, metavar="FILE", help="TREC relevance judgements")
    shown = f"measures (default: {' '.join(EVALUATED)})"
    parser.add_argument("--measures", nargs="+", help=shown, needs=[Need("without --qrels", lambda v: v.qrels)])
    return parser


def _add_click_options(parser: CommandParser) -> None:
    """Add `--clicks LOG`, and the options of a log."""
    clicks = Need("without --clicks LOG", lambda v: v.clicks)
    train = Need("without --train FILE: a log with features has all documents", lambda v: v.train)
    parser.add_argument(
        "--clicks",
        metavar="LOG",
        help="click log, instead of labels: CSV, Parquet or Arrow with columns query, document, position (from 1), click (0 or "
        "1), or usual names of these, session if queries were shown several times, and features; or without features, and "
        "--train with the lists of these queries and documents (docid), whose labels are ignored. --test has labels",
    )
    parser.add_argument(
        "--propensities",
        metavar="HOW",
        help="how to estimate the probabilities that users examine the ranks of a click log, harvest, swaps, em, or a file with "
        "one number per rank (default: harvest, for which the log must show documents at several ranks)",
        needs=[clicks],
    )
    clip = "replace lower propensities by this one (default: none)"
    parser.add_argument("--clip", type=float, help=clip, needs=[clicks])
    parser.add_argument(
        "--drop-missing",
        action="store_true",
        help="leave out, and count, the clicks on documents that --train lacks (default: an error)",
        needs=[clicks, train],
    )


def _add_last_steps(parser: CommandParser) -> None:
    """Add what is learned about the scores of a ranker: probabilities, and how many documents to show."""
    calibrate = (
        "also learn probabilities of relevance, on a fifth of the lists, which train nothing; predict writes them"
    )
    methods = ["isotonic", "sigmoid", "beta", "temperature"]
    labelled = Need("with --clicks", lambda v: v.clicks is None)
    parser.add_argument("--calibrate", choices=methods, help=calibrate, needs=[labelled])
    parser.add_argument(
        "--cut-off",
        type=_cut_off,
        metavar="TARGET=SHARE",
        help="also learn which documents to show, so that new lists have on average this recall=, ndcg= or precision=, such as "
        "recall=.9 or precision=.5,confidence=.9; further arguments of rs.CutOff are confidence=, rule= and min_relevant=. "
        "Learned on a fifth of the training lists, drawn with the seed, which train, select and calibrate nothing; predict "
        "writes which documents are shown",
        needs=[labelled],
    )


def _rank() -> CommandParser:
    parser = CommandParser.of("rank", "The ranker is selected from a few candidate models by cross-validation.")
    lists = Need("without --train or --test", lambda v: v.folder or v.train or v.test or v.clicks is None)
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="FOLDER",
        help="folder with train.txt and optionally vali.txt and test.txt, or with folds of these",
    )
    fold = "fold number, if FOLDER has Fold1, Fold2, ..."
    parser.add_argument("--fold", type=whole_number(1), help=fold, needs=[Need("without FOLDER", lambda v: v.folder)])
    parser.add_argument("--train", metavar="FILE", help="training lists, instead of FOLDER")
    _add_click_options(parser)
    parser.add_argument(
        "--vali", metavar="FILE", help="validation lists, added to the training lists for cross-validation"
    )
    parser.add_argument("--test", metavar="FILE", help="test lists (default: none)")
    zero_based = "feature ids of SVMlight files start at 0"
    ids = _with_ids(lambda v: (v.folder, v.train, v.vali, v.test))
    parser.add_argument("--zero-based", action="store_true", help=zero_based, needs=[ids])
    _add_column_options(parser, needs=[lists])
    parser.add_argument(
        "--measures",
        nargs="+",
        metavar="MEASURE",
        help=f"measures of the test, of which the first selects the model (default: {' '.join(RANKED)}, of which nDCG@10 "
        "selects if labels are graded, AP if they are binary)",
    )
    parser.add_argument(
        "--mode",
        choices=("full", "fast"),
        default="full",
        help="'fast' trains only the linear ranker and one MLP, in less than half of the time (default: full)",
    )
    parser.add_argument(
        "--time-budget",
        type=float,
        metavar="SECONDS",
        help="leave out models that would take longer, estimated for one CPU core from the size of the data",
    )
    _add_last_steps(parser)
    _add_rules(parser)
    parser.add_argument("--seed", type=whole_number(0), default=0, help="random seed")
    parser.add_argument("--output", default="runs/rank", help="output folder")
    return parser


def _cut_off(text: str) -> Any:
    """The cut-off of arguments such as `recall=.9,confidence=.9`."""
    from rankstruct.cut_off import CutOff  # imports torch, which `--help` does not need

    names, options = ("recall", "ndcg", "precision", "confidence", "rule", "min_relevant"), dict[str, Any]()
    for entry in text.split(","):
        name, equals, value = entry.partition("=")
        if not equals or name not in names or name in options:
            hint = "" if name in names else did_you_mean(name, names)
            raise argparse.ArgumentTypeError(
                f"expected NAME=VALUE,..., each of {', '.join(names)} at most once, such as recall=.9; got {entry!r}{hint}"
            )
        try:
            options[name] = value if name == "rule" else float(value)
        except ValueError:
            raise argparse.ArgumentTypeError(f"expected a number for {name}, got {value!r}") from None
    try:
        return CutOff(**options)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _add_grid_options(parser: CommandParser) -> None:
    """Add the options of commands that train over folds and a grid."""
    folds = "folds (default: 1 to 5, if the data have folds)"
    parser.add_argument("--folds", nargs="+", type=whole_number(0), help=folds)
    parser.add_argument(
        "--grid",
        action="append",
        default=[],
        type=_grid_entry,
        metavar="KEY=VALUE,VALUE",
        help="a config key and the values to try, such as model.regularization=0.1,0.01; may be repeated",
    )
    add_cell_options(parser, "runs")
    add_cluster_options(parser)
    seeds = "train the selected model with N seeds; report mean and standard deviation"
    parser.add_argument("--seeds", type=whole_number(1), default=1, metavar="N", help=seeds)


def _grid_entry(entry: str) -> tuple[str, list[str]]:
    key, equals, values = entry.partition("=")
    if not equals or not values:
        raise argparse.ArgumentTypeError(f"--grid takes KEY=VALUE,VALUE, got {entry!r}")
    return key, values.split(",")


def _cross_validate() -> CommandParser:
    parser = CommandParser.of("cross-validate", _PASSED_ON)
    parser.add_argument("--config", required=True, help="training config")
    _add_grid_options(parser)
    return parser


def _compare() -> CommandParser:
    parser = CommandParser.of(
        "compare",
        "A second table has the differences from the first config, with intervals over test lists and p-values of a paired test. "
        f"The first of --model.measures is used for selection. {_PASSED_ON}",
    )
    parser.add_argument("--configs", nargs="+", required=True, help="training configs")
    _add_grid_options(parser)
    return parser


def _tune() -> CommandParser:
    parser = CommandParser.of("tune", f"Trials are compared on validation data. {_PASSED_ON}")
    parser.add_argument("--config", required=True, help="training config")
    what = "search space: KEY=log:LOW,HIGH, uniform:LOW,HIGH, int:LOW,HIGH or choice:VALUE,VALUE; may be repeated"
    parser.add_argument("--space", action="append", default=[], metavar="KEY=KIND:VALUES", help=what)
    parser.add_argument("--trials", type=whole_number(1), default=30, help="total number of trials")
    parser.add_argument(
        "--folds", nargs="+", type=whole_number(1), default=[None], help="folds of each trial (default: the config's)"
    )
    add_cell_options(parser, "trials")
    add_cluster_options(parser)
    several = "with --processes or --on: start the command several times, with one --output each"
    alone = Need(several, lambda v: v.on is None and (v.processes or 1) == 1)
    shared = "share the search with other such commands by Optuna's storage: URL of a database, or a journal file"
    parser.add_argument("--storage", metavar="URL", help=shared, needs=[alone])
    repeated = Need("with --storage, whose commands propose in no fixed order", lambda values: not values.storage)
    parser.add_argument("--seed", type=whole_number(0), default=0, help="seed of the proposals", needs=[repeated])
    parser.add_argument("--seeds", type=whole_number(1), default=1, metavar="N", help="seeds of the test")
    parser.add_argument("--no-prune", dest="prune", action="store_false", help="train every trial to its end")
    return parser


def _add_scorer(parser: CommandParser) -> None:
    told = "folder of a run or of `rankstruct rank`, or a file of a scorer"
    parser.add_argument("run", type=Path, metavar="RUN", help=told)


def _explain() -> CommandParser:
    parser = CommandParser.of(
        "explain",
        "Contributions are exact for linear models and trees, and integrated gradients for MLPs; they sum to the difference.",
    )
    _add_scorer(parser)
    parser.add_argument("data", type=Path, metavar="DATA", help="file of lists")
    parser.add_argument("--query", metavar="QID", help="the list (default: the one that there is)")
    named = "their names, or QID-1 for the first without a name and so on (default: the two with the highest scores)"
    parser.add_argument("--documents", nargs=2, metavar=("A", "B"), help=named)
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw the contributions to a .png, .svg or .pdf")
    tables = Need("without a table, such as a CSV or Parquet file", lambda v: not _has_ids(v.data))
    _add_column_options(parser, ("label", "qid", "docid"), needs=[tables])
    return parser


def _export() -> CommandParser:
    parser = CommandParser.of(
        "export",
        "The engine and the suffix of the file choose the format; NAME.features.json or NAME.profile has the features beside it.",
    )
    _add_scorer(parser)
    engines = ["elasticsearch", "opensearch", "solr", "vespa", "onnx"]
    parser.add_argument(
        "--engine", required=True, choices=engines, help="the search engine, or a program that runs ONNX"
    )
    suffix = "the file: .json, for Elasticsearch and OpenSearch also .xml and .txt of RankLib, for Vespa also .onnx"
    parser.add_argument("--output", type=Path, required=True, metavar="FILE", help=suffix)
    names = "names of the features in the engine, in order, separated by commas (default: those of training)"
    parser.add_argument("--feature-names", metavar="NAMES", help=names)
    check = "file of lists, of which the scores of the written file are compared with those of the scorer"
    parser.add_argument("--check", type=Path, metavar="DATA", help=check)
    return parser


def _fit_exact() -> CommandParser:
    parser = CommandParser.of(
        "fit-exact",
        "C is selected on each fold's validation data. Options that are not listed here override values of the configs, such as "
        "--data.path FOLDER or --ranker.C '[1, 10]'. Under torchrun, all processes share the training lists of one fit.",
    )
    compared = "one or more configs, compared in one table and figure"
    parser.add_argument("--config", nargs="+", required=True, help=compared)
    parser.add_argument("--folds", nargs="+", type=whole_number(1), help="fold numbers; omit for data without folds")
    add_cell_options(parser, "fits", "runs/exact")
    add_cluster_options(parser)
    return parser


#: The common options of configs by their group, one a line: name, value, help.
_OF_THE_RUN = """
config CONFIG a YAML file, or a name from `rankstruct configs`
run FOLDER folder of an earlier run, or of several, of which the newest is resumed (fit) or used
task TASK ranking (default) or text: rank documents by features, or by text; ratings or implicit: train a factorisation
output FOLDER where the run's folder, named by the time, is created (default: runs/ and the config's name); of predict \
with --run, for the scores of shards, as shards
seed_everything N seed of all random numbers (default: 0)
average_weights BOOL validate, test and save an average of the weights (default: false)
calibrate NAME also learn probabilities of relevance from the validation lists, with the best checkpoint: isotonic, sigmoid, \
beta or temperature (default: none)
save_every_steps N also save last.ckpt every N steps, for long epochs (default: 0)
ckpt_path FILE a checkpoint to start from, instead of --run
print_config - print the complete config and exit"""
_OF_LIGHTNING = """
trainer.max_epochs N number of epochs at most (default: 100)
trainer.max_time TIME stop after DD:HH:MM:SS
trainer.accelerator NAME cpu, gpu, mps or auto (default: auto)
trainer.devices N number of devices, or auto (default: auto)
trainer.precision NAME such as 32-true, bf16-mixed or 16-mixed
trainer.check_val_every_n_epoch N epochs between two validations (default: 1)
trainer.gradient_clip_val X clip gradients at this norm
trainer.deterministic BOOL whether nondeterministic operations are errors
trainer.callbacks NAME such as rankstruct.training.AnnealSigma; --trainer.callbacks+ adds to those of the config
trainer.enable_progress_bar BOOL false for one line per epoch instead of a bar, as in a log
checkpoint.dirpath FOLDER folder of the checkpoints (default: checkpoints in the run's folder)
checkpoint.save_weights_only BOOL save the model's weights alone (default: false)
early_stopping.patience N validations without improvement after which training stops (default: 20)
early_stopping.min_delta X the smallest increase of the first measure that counts (default: 0)"""
_OF_LISTS = """
model.measures NAMES measures of validation and test; the first controls training (default: AP, nDCG@10, RR@10)
model.regularization X lambda of the objective, for all weights of the scorer (default: 0)
model.schedule NAME constant, or online: learning rate 1 / (lambda (t + t0)) at step t, for SGD (default: constant)
model.t0 X the offset of that schedule, which bounds its first steps (default: 100)
model.start NAME given, or regression: least squares on the gains (default: given)
model.regularize_towards NAME zero, or start, which suits nonconvex losses (default: zero)"""
_OF_FACTORS = """
model.regularization X lambda of the users' factors (default: 0)
model.item_regularization X lambda of the items' factors (default: that of the users)
model.start_from PATH a run, or a file of save_scorer, with the initial factorisation
data.users_per_batch N number of users per training batch (default: 64)
data.recommend N number of items that predict recommends to each user (default: 10)"""
#: The tasks: the scorers of each, and the options of its model and its data.
TASKS = {
    "ranking": (
        "ContextScorer, DeepSetScorer, KernelScorer, LinearScorer, MLPScorer, TreeScorer",
        _OF_LISTS
        + """
data.path FOLDER folder with train.txt, vali.txt and test.txt, of any format, or with Fold1 and so on
data.fold N the number n of the folder Fold<n>, if there are any
data.builtin NAME digits (real), synthetic or synthetic-groups, which need no files
data.lists_per_batch N lists per training batch (default: 8)
data.documents_per_batch N or the documents per training batch at most, including padding
data.max_list_size N longer training lists are subsampled to this size in each epoch
data.prepare NAMES steps that prepare the features, such as query-zscore
data.labels KIND grades, or real for any number (default: grades)
data.label COLUMN the column of labels of a table (default: label, relevance, rel, y or target)
data.qid COLUMN the column of queries of a table (default: qid, query_id, query or group)
data.categorical COLUMNS columns of numbers of a table that are categories
data.diversity_groups HOW groups of documents: a regular expression for the comments, or a column index
data.columns NAMES where groups for rules are: {NAME: a regular expression, the name of a column, or a column index}
data.predict_path FILE lists to predict (default: the test lists)""",
    ),
    "ratings": (
        "LightGCN, MatrixFactorization",
        _OF_FACTORS
        + """
model.measures NAMES measures of validation and test; the first controls training (default: nDCG@10)
model.item_means BOOL start the biases of items from their mean labels (default: false)
data.path PATH file of ratings, or folder with u.data or ratings.dat, of MovieLens
data.builtin NAME synthetic, ratings from a known factorisation, which needs no file
data.split NAME weak, strong or fold (default: weak)
data.num_train N known ratings of each user (default: 20)
data.fold N the fold number, for the split fold
data.labels KIND grade, rating or standardised (default: grade)
data.max_items N ratings sampled in each epoch from users with more""",
    ),
    "implicit": (
        "LightGCN, MatrixFactorization",
        _OF_FACTORS
        + """
model.measures NAMES measures of validation and test; the first controls training (default: nDCG@10, R@10)
model.start NAME spectral, linear or random factors (default: spectral)
model.negatives NAME all other items, or sampled ones: uniform, popularity or in-batch (default: all)
model.number N number of sampled items per list (default: 1)
model.correct BOOL whether scores of sampled items are corrected (default: false)
data.path PATH folder with train.txt, valid.txt and test.txt, or a file to split
data.builtin NAME synthetic, which needs no file
data.split NAME how one file is split: ratio, leave-one-out or time (default: ratio)""",
    ),
    "text": (
        "CrossEncoderScorer",
        _OF_LISTS
        + """
data.path FOLDER folder with corpus.jsonl, queries.jsonl and qrels*.tsv, BEIR's format
data.builtin NAME questions, a small synthetic collection, which needs no files
data.lists_per_batch N lists per training batch (default: 4)
data.max_list_size N longer training lists are subsampled to this size in each epoch (default: 16)
data.fold N the test fold of a single qrels.tsv, from 1 to 5""",
    ),
}


def cluster_parser() -> CommandParser:
    """The options of `fit` that are not of its config, since a run may go on elsewhere: on which cluster it is trained."""
    parser = CommandParser(prog="rankstruct fit", add_help=False)
    _add_training_cluster(parser)
    return parser


def _add_training_cluster(parser: CommandParser) -> None:
    engine = "train on a cluster, whose machines share the data and the output folder (default: on this machine)"
    on, workers = Need("without --on", lambda values: values.on), "number of processes, each with a CPU"
    parser.add_argument("--on", choices=["ray"], help=engine)
    parser.add_argument("--workers", type=whole_number(1), metavar="N", default=1, help=workers, needs=[on])
    parser.add_argument("--gpu", action="store_true", help="give each worker a GPU", needs=[on])
    add_address(parser)


def _of_a_config(command: str, task: str) -> CommandParser:
    """The help of `fit` and its relatives: the common options, and where to find the others."""
    parser = CommandParser.of(command, "Every value of a config can be set by an option.")
    parser.usage = f"rankstruct {command} --config CONFIG [OPTIONS]\n       rankstruct {command} --run FOLDER [OPTIONS]"
    parser.epilog = (
        "more help: --model.loss.help NAME lists the options of a loss, --model.scorer.help and --model.optimizer.help likewise; "
        "--trainer.help lists all options of the trainer, --model.help, --data.help, --checkpoint.help and --early_stopping.help "
        "likewise"
    )
    scorers, options = TASKS.get(task, TASKS["ranking"])
    classes = f"""
model.scorer NAME the scorer: {scorers}; or a custom class by its path, such as my.module.MyScorer
model.loss NAME the loss: {", ".join(loss_names())}; or a custom class by its path (default: StructuredHingeLoss of AP)
model.optimizer NAME such as torch.optim.SGD (default: AdamW with learning rate 0.01 and no weight decay)"""
    groups = {
        "": "the run",
        "model": "the model",
        "data": f"the data of the task {task}",
        "trainer": "the trainer (Lightning's)",
    }
    groups |= {"checkpoint": "checkpoints (Lightning's)", "early_stopping": "early stopping (Lightning's)"}
    made = {prefix: parser.add_argument_group(title) for prefix, title in groups.items()}
    for line in (_OF_THE_RUN + classes + options + _OF_LIGHTNING).strip().splitlines():
        name, value, told = line.split(" ", 2)
        names = ["-c", "--config"] if name == "config" else [f"--{name}"]
        shown: dict[str, Any] = {"action": "store_true"} if value == "-" else {"metavar": value}
        made[name.rpartition(".")[0]].add_argument(*names, help=told, **shown)
    if command == "fit":
        _add_training_cluster(parser)
    return parser


def loss_names() -> list[str]:
    """The names of the losses that a config can use: those called with the labels of lists."""
    other = ("AssignmentHingeLoss", "HingeLoss", "RankingLoss")  # of assignments, and bases
    return sorted(name for name in listed("losses") if name.endswith("Loss") and name not in other)


def scorer_names(task: str) -> list[str]:
    """The names of the scorers of a task."""
    return TASKS[task][0].split(", ")


_PARSERS = {
    "cache": _cache,
    "certify": _certify,
    "compare": _compare,
    "configs": _configs,
    "convert": _convert,
    "cross-validate": _cross_validate,
    "evaluate": _evaluate,
    "explain": _explain,
    "export": _export,
    "fit-exact": _fit_exact,
    "fuse": _fuse,
    "rank": _rank,
    "tune": _tune,
}


def parser_of(command: str, args: Sequence[str] = ()) -> CommandParser:
    """The parser of a command; of `fit` and its relatives, one for the help alone, for the task that the arguments name."""
    if command in _PARSERS:
        return _PARSERS[command]()
    lines = [line for file in configs_in(args) for line in Path(file).read_text(encoding="utf-8").splitlines()]
    # of the top level
    tasks = [line.removeprefix("task:").partition("#")[0].strip() for line in lines if line.startswith("task:")]
    task = dict(options_in(args)).get("--task") or (tasks or ["ranking"])[-1].strip("\"'")
    parser = _of_a_config(command, task)
    if task not in TASKS:
        parser.error(f"task must be one of {', '.join(TASKS)}, got {task!r}{did_you_mean(task, TASKS)}")
    return parser


_TRAINING = Need("without training, by `rankstruct fit`", lambda v: False)
_PREDICTION = Need("without `rankstruct predict`", lambda v: False)
_OF_TRAINING = (
    "output average_weights calibrate save_every_steps checkpoint.* early_stopping.* model.loss* model.optimizer* "
    "model.regulariz* model.schedule model.t0 model.start trainer.max_* trainer.min_* trainer.limit_train_batches "
    "trainer.val_check_interval trainer.check_val_every_n_epoch trainer.accumulate_grad_batches trainer.gradient_clip* "
    "trainer.log_every_n_steps data.lists_per_batch data.documents_per_batch data.max_list_size data.keep_relevant "
    "data.drop_empty data.users_per_batch data.pairs_per_batch data.max_items"
)
_OF_PREDICTION = "data.predict_path data.recommend"
#: Names or patterns of options of a config by command, and what they have no effect without.
NEEDS: dict[str, dict[str, Need]] = {
    "fit": {_OF_PREDICTION: _PREDICTION},
    "validate": {_OF_TRAINING: _TRAINING, _OF_PREDICTION: _PREDICTION},
    "test": {_OF_TRAINING: _TRAINING, _OF_PREDICTION: _PREDICTION},
    "predict": {_OF_TRAINING: _TRAINING, "model.measures": Need("without `rankstruct test` or `validate`", lambda v: False)},
}  # fmt: skip


def _source(config: Any) -> Any:
    return None if config.data.builtin is not None else config.data.path


_FILES = Need("without files, with --data.builtin", _source)
_LONG = Need("without --data.max_list_size", lambda v: v.data.max_list_size is not None)
#: Those of the data of each task.
DATA_NEEDS: dict[str, dict[str, Need]] = {
    "ranking": {
        "data.parts": Need("without --data.protocol cross-validation", lambda v: v.data.protocol == "cross-validation"),
        "data.fold data.labels data.label data.qid data.categorical data.zero_based data.cache": _FILES,
        "data.zero_based": _with_ids(lambda v: (_source(v),)),
        "data.keep_relevant": _LONG,
    },
    "ratings": {
        "data.format data.scale": _FILES,
        "data.num_train data.min_test": Need("with --data.split fold", lambda v: v.data.split != "fold"),
        "data.new_users": Need("without --data.split strong", lambda v: v.data.split == "strong"),
        "data.validation": Need("with --data.split strong", lambda v: v.data.split != "strong"),
    },
    "implicit": {
        "data.times data.min_rating": _FILES,
        "data.test_share": Need("with --data.split leave-one-out", lambda v: v.data.split != "leave-one-out"),
    },
    "text": {"data.keep_relevant": _LONG},
}


def check_effects(command: str, typed: Sequence[str], config: Any) -> None:
    """Raise ValueError for an option of a config that was typed, such as `data.fold`, but has no effect.

    The options of a data module of one's own are its own.
    """
    own = "class_path" in config.data
    for names, need in [*NEEDS[command].items(), *({} if own else DATA_NEEDS[config.task]).items()]:
        for option in typed:
            if any(fnmatchcase(option, name) for name in names.split()) and (
                said := need.refused(f"--{option}", config)
            ):
                raise ValueError(said)


#: Commands with the options of a config, and their options of folds.
_OF_CONFIGS = {
    **dict.fromkeys(("fit", "validate", "test"), ""),
    **dict.fromkeys(("cross-validate", "compare", "tune", "fit-exact"), "--folds"),
    "experiment": "--data.folds",
}


def as_option(command: str, argument: str, value: Any) -> str | None:
    """An argument of the library as the option of a command that sets it; None if there is none.

    >>> as_option("fit", "zero_based", True), as_option("rank", "zero_based", True), as_option("evaluate", "labels", "real")
    ('--data.zero_based true', '--zero-based', '--real-labels')
    >>> as_option("rank", "labels", "real") is None
    True
    """
    values = value if isinstance(value, list) else [] if value is None else [value]
    shown = [str(each).lower() if isinstance(each, bool) else shlex.quote(str(each)) for each in values]
    if command in _OF_CONFIGS:
        from rankstruct.data import Source
        from rankstruct.recommenders.reading import InteractionsSource, RatingsSource

        known = {name for kind in (Source, RatingsSource, InteractionsSource) for name in kind.__dataclass_fields__}
        if argument == "fold" and _OF_CONFIGS[command]:
            return _OF_CONFIGS[command]
        return " ".join([f"--data.{argument}", *shown]) if argument in known else None
    for action in parser_of(command)._actions if command in _PARSERS else ():
        if action.option_strings and action.dest in (argument, {"fold": "folds"}.get(argument)):
            return " ".join([action.option_strings[-1], *(shown if action.nargs != 0 else [])])
    return None
