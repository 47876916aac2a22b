"""Neural text re-rankers and retrievers: ranking losses for other trainers, text collections, and a model for `rankstruct fit`.

Needs `pip install 'rankstruct[text]'`. Nothing is downloaded from a hub unless requested.
"""

from rankstruct.text import _needed as _needed  # before what needs it
from rankstruct.text.adapters import *
from rankstruct.text.candidates import *
from rankstruct.text.collection import *
from rankstruct.text.encoder import *
from rankstruct.text.questions import *
from rankstruct.text.terms import *
