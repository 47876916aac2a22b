"""Evaluation measures of rankings.

`measure(scores, labels, where)` returns one value per list, higher is better; the last dimension is the list, all others
are batch dimensions. A measure can always be passed by name, in the syntax of ir-measures, such as `"nDCG@10"`.
"""

from rankstruct.measures.auc import *
from rankstruct.measures.average_precision import *
from rankstruct.measures.base import *
from rankstruct.measures.cascade import *
from rankstruct.measures.discounted_gain import *
from rankstruct.measures.diverse import *
from rankstruct.measures.evaluation import *
from rankstruct.measures.f1 import *
from rankstruct.measures.incomplete import *
from rankstruct.measures.partial_auc import *
from rankstruct.measures.ranked import *
from rankstruct.measures.reciprocal_rank import *
