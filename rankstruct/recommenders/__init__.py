"""Recommenders: ratings, their files and splits, matrix factorisation, alternating exact training, top items of users.

`rankstruct.recommenders.training` trains factorisations with Lightning; it must be imported explicitly.
"""

from rankstruct.recommenders.alternating import *
from rankstruct.recommenders.catalogue import *
from rankstruct.recommenders.factorization import *
from rankstruct.recommenders.ratings import *
from rankstruct.recommenders.reading import *
from rankstruct.recommenders.recommendation import *
from rankstruct.recommenders.splits import *
