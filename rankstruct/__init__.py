"""rankstruct: learning to rank in PyTorch.

Losses, exact solvers, evaluation and serving for search, recommendation and re-ranking. The last dimension of `scores` and
`labels` is the list, all others are batch; `where` marks real documents; flat lists come with `offsets` instead.

The public names are listed in `__init__.pyi`. A module is imported when one of its names is first used, so that
`import rankstruct` costs nothing. What each file contains: "Where things are" in docs/reference/index.md.
"""

from rankstruct._lazy import attach
from rankstruct._version import __version__ as __version__

__getattr__, __dir__ = attach(__name__, __file__)
