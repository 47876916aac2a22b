"""Neural text re-rankers and retrievers: ranking losses for other trainers, text collections, and a model for `rankstruct fit`.

Encoders need transformers, and words (BM25, `TermFeatures`) bm25s with PyStemmer: `pip install 'rankstruct[text]'` installs all;
each is imported where it is used. Nothing is downloaded from a hub unless requested.
"""

from rankstruct.text.adapters import *
from rankstruct.text.candidates import *
from rankstruct.text.collection import *
from rankstruct.text.encoder import *
from rankstruct.text.preferences import *
from rankstruct.text.questions import *
from rankstruct.text.terms import *
