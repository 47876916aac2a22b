"""Recommenders: ratings, their files and splits, factorisations, exact training in turns, the best items of a user.

`rankstruct.recommenders.training` trains factorisations with Lightning; it is imported by name alone.
"""

from rankstruct.recommenders.alternating import *
from rankstruct.recommenders.factorization import *
from rankstruct.recommenders.gaussian import *
from rankstruct.recommenders.perceptron import *
from rankstruct.recommenders.ratings import *
from rankstruct.recommenders.reading import *
from rankstruct.recommenders.recommendation import *
from rankstruct.recommenders.splits import *
