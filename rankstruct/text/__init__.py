"""Neural re-rankers and retrievers of text: the losses in other trainers, collections of text, and a model for `rankstruct fit`.

An extra: `pip install 'rankstruct[text]'`. Nothing is fetched from a hub unless it is asked for.
"""

from rankstruct.text import _needed as _needed  # before what needs it
from rankstruct.text.adapters import *
from rankstruct.text.candidates import *
from rankstruct.text.collection import *
from rankstruct.text.encoder import *
from rankstruct.text.questions import *
from rankstruct.text.terms import *
