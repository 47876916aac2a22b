"""Measures: what a ranking is judged by.

`measure(scores, labels, where)` gives one value a list, higher is better; the last dimension is the list, all others
are batch. Wherever a measure is taken, so is its name in ir-measures' syntax, such as `"nDCG@10"`.
"""

from rankstruct.measures.average_precision import *
from rankstruct.measures.base import *
from rankstruct.measures.cascade import *
from rankstruct.measures.diversity import *
from rankstruct.measures.evaluation import *
from rankstruct.measures.incomplete import *
from rankstruct.measures.partial_roc_area import *
from rankstruct.measures.position import *
from rankstruct.measures.ranked import *
from rankstruct.measures.reciprocal_rank import *
from rankstruct.measures.roc_area import *
from rankstruct.measures.sets import *
