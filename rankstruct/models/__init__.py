"""Scorers, from features to scores, and their files."""

from rankstruct.models.averaging import *
from rankstruct.models.context import *
from rankstruct.models.engines import *
from rankstruct.models.explain import *
from rankstruct.models.saving import *
from rankstruct.models.scorers import *
