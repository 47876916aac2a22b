"""Recommenders: ratings and interactions, their files and splits, factorisations, exact training, top items and their evaluation.

`rankstruct.recommenders.training` trains factorisations with Lightning; it must be imported explicitly.
"""

from rankstruct.recommenders.base import *
from rankstruct.recommenders.catalogue import *
from rankstruct.recommenders.estimator import *
from rankstruct.recommenders.factorization import *
from rankstruct.recommenders.next_item import *
from rankstruct.recommenders.ratings import *
from rankstruct.recommenders.reading import *
from rankstruct.recommenders.recommendation import *
from rankstruct.recommenders.sequences import *
from rankstruct.recommenders.shards import *
from rankstruct.recommenders.splits import *
from rankstruct.recommenders.users import *
