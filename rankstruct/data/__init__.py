"""Data: read, check, prepare, split and batch; flat arrays plus list offsets."""

from rankstruct.data.batches import (
    Batch,
    BatchLoader,
    ListDataset,
    collate,
    make_batch,
)
from rankstruct.data.builtin import (
    digits,
    synthetic,
    synthetic_hosts,
)
from rankstruct.data.clean import (
    Binarize,
    RemoveNearDuplicates,
    RemoveZeroRows,
    UnlabelledAsBad,
    keep_documents,
    shuffle_documents,
)
from rankstruct.data.dataset import (
    RankingData,
    Splits,
    Summary,
    concatenate,
)
from rankstruct.data.errors import (
    DataError,
)
from rankstruct.data.folds import (
    read_folds,
)
from rankstruct.data.ratings import (
    Ratings,
    RatingsSplit,
    align,
    hold_out,
    implicit,
    merge,
    read_movielens_fold,
    read_ratings,
    read_titles,
    standardised,
    strong_split,
    synthetic_ratings,
    weak_split,
    with_negatives,
)
from rankstruct.data.ratings_source import (
    RatingsParts,
    read_ratings_parts,
    split_ratings,
)
from rankstruct.data.runs import (
    JoinedRun,
    join_run,
    read_qrels,
    read_run,
    read_scores,
    write_run,
    write_scores,
)
from rankstruct.data.scale import (
    Append,
    Bins,
    Compose,
    LogMagnitude,
    QueryMinMax,
    QueryPercentile,
    QueryZScore,
    Standardize,
    check_preparation,
    parse_preparation,
    prepare_splits,
)
from rankstruct.data.source import (
    read_splits,
)
from rankstruct.data.svmlight import (
    read_svmlight,
)
from rankstruct.data.tabular import (
    Table,
    read_arff,
    read_csv,
    sample_queries,
)

__all__ = [
    "Append",
    "Batch",
    "BatchLoader",
    "Binarize",
    "Bins",
    "Compose",
    "DataError",
    "JoinedRun",
    "ListDataset",
    "LogMagnitude",
    "QueryMinMax",
    "QueryPercentile",
    "QueryZScore",
    "RankingData",
    "Ratings",
    "RatingsParts",
    "RatingsSplit",
    "RemoveNearDuplicates",
    "RemoveZeroRows",
    "Splits",
    "Standardize",
    "Summary",
    "Table",
    "UnlabelledAsBad",
    "align",
    "check_preparation",
    "collate",
    "concatenate",
    "digits",
    "hold_out",
    "implicit",
    "join_run",
    "keep_documents",
    "make_batch",
    "merge",
    "parse_preparation",
    "prepare_splits",
    "read_arff",
    "read_csv",
    "read_folds",
    "read_movielens_fold",
    "read_qrels",
    "read_ratings",
    "read_ratings_parts",
    "read_run",
    "read_scores",
    "read_splits",
    "read_svmlight",
    "read_titles",
    "sample_queries",
    "shuffle_documents",
    "split_ratings",
    "standardised",
    "strong_split",
    "synthetic",
    "synthetic_hosts",
    "synthetic_ratings",
    "weak_split",
    "with_negatives",
    "write_run",
    "write_scores",
]
