"""Ranking data: reading, checking, preparation, splits and batches; flat arrays plus list offsets."""

from rankstruct.data.batches import *
from rankstruct.data.builtin import *
from rankstruct.data.cache import *
from rankstruct.data.clean import *
from rankstruct.data.columnar import *
from rankstruct.data.convert import *
from rankstruct.data.dataset import *
from rankstruct.data.errors import *
from rankstruct.data.folds import *
from rankstruct.data.formats import *
from rankstruct.data.names import *
from rankstruct.data.pipeline import *
from rankstruct.data.runs import *
from rankstruct.data.source import *
from rankstruct.data.svmlight import *
