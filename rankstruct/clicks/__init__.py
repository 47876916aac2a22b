"""Learning from clicks: logs, click models to simulate them, estimates of propensities, and labels that correct for them."""

from rankstruct.clicks.context import *
from rankstruct.clicks.evaluation import *
from rankstruct.clicks.interleaving import *
from rankstruct.clicks.log import *
from rankstruct.clicks.models import *
from rankstruct.clicks.propensities import *
from rankstruct.clicks.relevance import *
