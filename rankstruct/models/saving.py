"""Scorers in files: what is needed to build one again, and its weights; readable without Lightning."""

from __future__ import annotations

import importlib
import inspect
import sys
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankstruct.files import whole_file

__all__ = ["load_scorer", "save_scorer"]

_KEY = "rankstruct_scorer"
_PREFIX = "scorer."  # where a training checkpoint keeps the scorer's weights


def describe_scorer(scorer: nn.Module) -> dict[str, Any]:
    """Class and arguments of a scorer as plain data, under the one key that `load_scorer` looks for.

    The arguments are read from the attributes that have the names of the constructor's parameters.

    Raises:
        ValueError: a parameter of the constructor has no attribute of its name.
    """
    kind = type(scorer)
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    missing = [p.name for p in parameters if p.default is p.empty and not hasattr(scorer, p.name)]
    if missing:
        raise ValueError(
            f"{kind.__name__} cannot be saved: its constructor takes {', '.join(missing)}, but it has no attribute of "
            "that name; store the argument as self.<name>"
        )
    arguments = {p.name: getattr(scorer, p.name) for p in parameters if hasattr(scorer, p.name)}
    return {_KEY: {"class": _public_name(kind), "arguments": arguments}}


def _public_name(kind: type) -> str:
    """What a file calls a class: by the outermost package that has it, so that the class may move inside."""
    names = kind.__module__.split(".")
    for depth in range(1, len(names)):
        package = ".".join(names[:depth])
        if getattr(sys.modules.get(package), kind.__qualname__, None) is kind:
            return f"{package}.{kind.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def _find_class(path: str) -> Any:
    """The class that a file names, which may have moved inside rankstruct since; ImportError or AttributeError if none is."""
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError):
        places = ("rankstruct.models", "rankstruct.recommenders") if module.startswith("rankstruct.") else ()
        for place in places:
            if found := getattr(importlib.import_module(place), name, None):
                return found
        raise


def save_scorer(scorer: nn.Module, path: str | Path) -> None:
    """Write a scorer to a file, which is whole or not there at all.

    The scorer keeps its constructor's arguments as attributes of the same names; one that does not raises ValueError.

    >>> import tempfile
    >>> from rankstruct.models import LinearScorer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_scorer(LinearScorer(3), f"{folder}/scorer.pt")
    ...     load_scorer(f"{folder}/scorer.pt")
    LinearScorer(
      (linear): Linear(in_features=3, out_features=1, bias=False)
    )
    """
    state = {f"{_PREFIX}{name}": value for name, value in scorer.state_dict().items()}
    with whole_file(path, "wb") as file:
        torch.save({**describe_scorer(scorer), "state_dict": state}, file)


def load_scorer(path: str | Path) -> nn.Module:
    """A trained scorer from a file of `save_scorer` or from a training checkpoint, in evaluation mode, on the CPU.

    The folder of a run is taken to mean its best checkpoint.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds no scorer, or its class cannot be imported.
    """
    path = Path(path)
    if path.is_dir():
        path = path / "checkpoints" / "best.ckpt"
    if not path.is_file():
        raise FileNotFoundError(f"no scorer at {path}; expected a file of save_scorer, a checkpoint or a run's folder")
    content = torch.load(path, map_location="cpu", weights_only=True)
    if not isinstance(content, dict) or _KEY not in content:
        raise ValueError(f"{path} holds no scorer; expected a file of save_scorer or a checkpoint of rankstruct")
    described = content[_KEY]
    try:
        kind = _find_class(described["class"])
    except (ImportError, AttributeError) as error:
        raise ValueError(f"{path} holds a {described['class']}, which cannot be imported here: {error}") from error
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise ValueError(f"{path} holds a {described['class']}, which is not a torch module")
    scorer = kind(**described["arguments"])
    state = content["state_dict"]
    scorer.load_state_dict({k.removeprefix(_PREFIX): v for k, v in state.items() if k.startswith(_PREFIX)})
    return scorer.eval()
