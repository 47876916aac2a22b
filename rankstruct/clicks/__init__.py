"""Learning from clicks: logs, estimates of propensities and of the value of rankers, and labels that correct for them."""

from rankstruct.clicks.context import *
from rankstruct.clicks.evaluation import *
from rankstruct.clicks.log import *
from rankstruct.clicks.propensities import *
from rankstruct.clicks.relevance import *
