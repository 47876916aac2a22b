"""Training with Lightning: module, data module, callbacks."""

from rankstruct.training.board import *
from rankstruct.training.callbacks import *
from rankstruct.training.datamodule import *
from rankstruct.training.module import *
from rankstruct.training.rounds import *
from rankstruct.training.start import *
