"""Scorers in files: what is needed to build one again, and its weights; readable without Lightning."""

from __future__ import annotations

import importlib
import inspect
import sys
import warnings
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rankstruct.files import whole_file
from rankstruct.models.scorers import split_preparation, with_preparation
from rankstruct.preparation import Preparation

__all__ = ["load_scorer", "save_scorer"]


_KEY = "rankstruct_scorer"
_PICKLED = b"\x80"  # what a pickle begins with
_PREFIX = "scorer."  # where a training checkpoint keeps the scorer's weights


class _RefusedError(ValueError):
    """A class that is not to be built; the message goes on behind the name of the file."""


def describe_scorer(scorer: nn.Module, preparation: Preparation | None = None) -> dict[str, Any]:
    """Class and arguments of a scorer as plain data, under the one key that `load_scorer` looks for, and its preparation.

    The arguments are read from the attributes that have the names of the constructor's parameters; modules among them are
    described in turn. The weights are no part of it, but what the preparation was fitted to is.

    Raises:
        ValueError: a parameter of the constructor has no attribute of its name.
    """
    preparation = Preparation() if preparation is None else preparation
    return {_KEY: describe_module(scorer)[_KEY] | {"preparation": describe_module(preparation)}}


def described_preparation(content: dict[str, Any]) -> Preparation | None:
    """The preparation in what `describe_scorer` gave; None where an earlier version wrote it, which kept none."""
    preparation: Preparation | None = build_module(content.get(_KEY, {}).get("preparation"))
    return preparation


def describe_module(module: nn.Module) -> dict[str, Any]:
    """Class and arguments, as in `describe_scorer`."""
    kind = type(module)
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    missing = [p.name for p in parameters if p.default is p.empty and not hasattr(module, p.name)]
    if missing:
        raise ValueError(
            f"{kind.__name__} cannot be saved: its constructor takes {', '.join(missing)}, but it has no attribute of "
            "that name; store the argument as self.<name>; a network of torch's own parts goes into a class of yours, or is "
            "kept by torch.save(scorer.state_dict(), path)"
        )
    arguments = {p.name: getattr(module, p.name) for p in parameters if hasattr(module, p.name)}
    for name, value in arguments.items():
        if isinstance(value, nn.ModuleList):
            arguments[name] = [describe_module(each) for each in value]
        elif isinstance(value, nn.Module):
            arguments[name] = describe_module(value)
    return {_KEY: {"class": _public_name(kind), "arguments": arguments}}


def build_module(described: Any, trusted: Sequence[str | type] = ()) -> Any:
    """What `describe_module` describes, its modules without their weights; other data as they are."""
    if isinstance(described, list | tuple):
        return type(described)(build_module(each, trusted) for each in described)
    if not isinstance(described, dict) or _KEY not in described:
        return described
    name, arguments = described[_KEY]["class"], described[_KEY]["arguments"]
    kind = _find_class(name, trusted)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise _RefusedError(f"holds a {name}, which is not a torch module")
    return kind(**{key: build_module(value, trusted) for key, value in arguments.items()})


def _public_name(kind: type) -> str:
    """What a file calls a class: by the outermost package that has it, so that the class may move inside."""
    names = kind.__module__.split(".")
    for depth in range(1, len(names)):
        package = ".".join(names[:depth])
        if getattr(sys.modules.get(package), kind.__qualname__, None) is kind:
            return f"{package}.{kind.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def _find_class(path: str, trusted: Sequence[str | type]) -> Any:
    """The class that a file names, which may have moved inside rankstruct since; a _RefusedError says why there is none.

    Nothing is imported but what is rankstruct's, torch's own modules and what the caller names.
    """
    for each in trusted:
        if isinstance(each, type) and path in (f"{each.__module__}.{each.__qualname__}", _public_name(each)):
            return each
    named = ("rankstruct", "torch.nn", *(each for each in trusted if isinstance(each, str)))
    if not any(path == name or path.startswith(f"{name}.") for name in named):
        raise _RefusedError(
            f"holds a {path}, which is not a torch module of rankstruct or torch.nn, and cannot be imported unless you trust "
            f"its code: load_scorer(..., trusted=[{path!r}])"
        )
    module, _, name = path.rpartition(".")
    try:
        return getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        places = ("rankstruct.models", "rankstruct.recommenders") if module.startswith("rankstruct.") else ()
        for place in places:
            if found := getattr(importlib.import_module(place), name, None):
                return found
        raise _RefusedError(f"holds a {path}, which cannot be imported here: {error}") from error


def save_scorer(scorer: nn.Module, path: str | Path) -> None:
    """Write a scorer to a file, which is whole or not there at all.

    The scorer keeps its constructor's arguments as attributes of the same names; one that does not raises ValueError. What a
    `PreparedScorer`'s preparation was fitted to is in the file. A ranker goes in by its `to_scorer()`.

    >>> import tempfile
    >>> from rankstruct.models import LinearScorer
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_scorer(LinearScorer(3), f"{folder}/scorer.pt")
    ...     load_scorer(f"{folder}/scorer.pt")
    LinearScorer(
      (linear): Linear(in_features=3, out_features=1, bias=False)
    )
    """
    if not isinstance(scorer, nn.Module):
        way_out = ": write ranker.to_scorer(), or pickle the ranker" if hasattr(scorer, "to_scorer") else ""
        raise TypeError(f"scorer must be a torch module, got {type(scorer).__name__}{way_out}")
    scorer, preparation = split_preparation(scorer)
    state = {f"{_PREFIX}{name}": value for name, value in scorer.state_dict().items()}
    with whole_file(path, "wb") as file:
        torch.save({**describe_scorer(scorer, preparation), "state_dict": state}, file)


def load_scorer(path: str | Path, *, trusted: Sequence[str | type] = ()) -> nn.Module:
    """A trained scorer from a file of `save_scorer` or from a training checkpoint, in evaluation mode, on the CPU.

    It takes raw features: one that was trained behind preparation is a `PreparedScorer`. (Files of earlier versions hold no
    preparation; theirs takes prepared ones.) The folder of a run is taken to mean its `scorer.pt` or
    its best checkpoint. A file cannot run code of
    its own, but it names a class, whose module has to be imported: one of rankstruct or of `torch.nn`, and no other unless it is
    trusted.

    Args:
        path: of the file or folder.
        trusted: further classes, or names of classes or of packages, that the file may hold.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or holds no scorer; its class is not trusted, or cannot be imported or built.
    """
    path = Path(path)
    if path.is_dir():
        inside = (path / "scorer.pt", path / "checkpoints" / "best.ckpt")
        path = next((each for each in inside if each.is_file()), path)
    if not path.is_file():
        raise FileNotFoundError(f"no scorer at {path}; expected a file of save_scorer, a checkpoint or a run's folder")
    content = read_checkpoint(path)
    described = content.get(_KEY)
    if not isinstance(described, dict) or not isinstance(described.get("class"), str):
        raise ValueError(f"{path} holds no scorer; expected a file of save_scorer or a checkpoint of rankstruct")
    try:
        state = {k.removeprefix(_PREFIX): v for k, v in content["state_dict"].items() if k.startswith(_PREFIX)}
        scorer = build_module({_KEY: described}, trusted)
        scorer.load_state_dict(state)
        scorer = with_preparation(scorer, described_preparation(content) or Preparation())
    except _RefusedError as error:
        raise ValueError(f"{path} {error}") from error
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} holds a {described['class']} that cannot be built: {reason}") from error
    return scorer.eval()


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """What `torch.save` wrote to a file, as plain data and tensors on the CPU, once its checksums have been compared.

    Raises:
        ValueError: the file is cut short, damaged, or another kind of file.
    """
    try:
        # The archive has a checksum of each tensor; torch.load does not look at them.
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"the checksum of {broken} is another")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what a damaged file looks like
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        if error.errno is not None and error.filename is not None:  # cannot be opened, which says so itself
            raise
        raise _unreadable(path, error) from error
    except Exception as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} holds no scorer; expected a file of save_scorer or a checkpoint of rankstruct")
    return content


def _unreadable(path: str | Path, error: Exception) -> ValueError:
    reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
    with open(path, "rb") as file:
        if file.read(1) == _PICKLED:
            reason += (
                "; it may be a pickled ranker: pickle.load(open(path, 'rb')) reads one, and can run code, so load your own "
                "alone"
            )
    return ValueError(f"{path} is not a checkpoint that can be read; it is damaged, or another kind of file: {reason}")
