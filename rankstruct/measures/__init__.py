"""Measures: what a ranking is judged by.

`measure(scores, labels, where)` gives one value a list, higher is better; the last dimension is the list, all others
are batch. Wherever a measure is taken, so is its name in ir-measures' syntax, such as `"nDCG@10"`.
"""

from rankstruct.measures.average_precision import AP
from rankstruct.measures.base import Measure, parse_measure, parse_measures, register_measure
from rankstruct.measures.diversity import Diverse, StRecall, alpha_nDCG, diverse_nDCG, require_diverse, rerank_diverse
from rankstruct.measures.evaluate import evaluate
from rankstruct.measures.metric import RankingMetric
from rankstruct.measures.position import DCG, ERU, WTA, DiscountedGain, MeanNDCG, P, mWTA, nDCG, nERU
from rankstruct.measures.ranked import RankedLists
from rankstruct.measures.reciprocal_rank import RR
from rankstruct.measures.roc_area import AUC

__all__ = [
    "AP",
    "AUC",
    "DCG",
    "ERU",
    "RR",
    "WTA",
    "DiscountedGain",
    "Diverse",
    "MeanNDCG",
    "Measure",
    "P",
    "RankedLists",
    "RankingMetric",
    "StRecall",
    "alpha_nDCG",
    "diverse_nDCG",
    "evaluate",
    "mWTA",
    "nDCG",
    "nERU",
    "parse_measure",
    "parse_measures",
    "register_measure",
    "require_diverse",
    "rerank_diverse",
]
