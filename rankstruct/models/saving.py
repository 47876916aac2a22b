"""Saving and loading of scorers, as class, arguments and weights; files are readable without Lightning."""

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
from torch import Tensor, nn

from rankstruct.calibration import Calibration
from rankstruct.files import newest_run, whole_file
from rankstruct.models.scorers import split_preparation, with_preparation
from rankstruct.preparation import Preparation

__all__ = ["load_scorer", "save_scorer"]


_KEY = "rankstruct_scorer"
_PICKLED = b"\x80"  # first byte of a pickle
_PREFIX = "scorer."  # of the scorer's weights in a training checkpoint
_MOST_DECLARED, _SLACK = 4, 2**24  # bytes declared for each that is stored, and for buffers that are not


class _RefusedError(ValueError):
    """A class that may not be built; the message continues after the name of the file."""


def describe_scorer(
    scorer: nn.Module,
    preparation: Preparation | None = None,
    feature_names: Sequence[str] | None = None,
    calibration: Calibration | None = None,
) -> dict[str, Any]:
    """Describe a scorer's class, arguments, preparation, features and calibration, under the key that `load_scorer` expects.

    The result is plain data. Arguments are read from the attributes with the names of the constructor's parameters, recursively
    for modules. Weights are not included, but the fitted state of the preparation is.

    Raises:
        ValueError: a parameter of the constructor has no attribute of its name.
    """
    preparation = Preparation() if preparation is None else preparation
    names = None if feature_names is None else list(feature_names)
    more = {"preparation": describe_module(preparation), "feature_names": names}
    if calibration is not None:
        more["calibration"] = describe_module(calibration)
    return {_KEY: describe_module(scorer)[_KEY] | more}


def described_preparation(content: dict[str, Any]) -> Preparation | None:
    """The preparation in the output of `describe_scorer`; None if written by an earlier version, which stored none."""
    preparation: Preparation | None = build_module(content.get(_KEY, {}).get("preparation"))
    return preparation


def described_calibration(content: dict[str, Any]) -> Calibration | None:
    """The calibration in the output of `describe_scorer`; None if there is none."""
    calibration: Calibration | None = build_module(content.get(_KEY, {}).get("calibration"))
    return calibration


def described_names(content: dict[str, Any]) -> list[str] | None:
    """The names of the raw features in the output of `describe_scorer`; None if there were none, or if it kept none."""
    names: list[str] | None = content.get(_KEY, {}).get("feature_names")
    return names


def described_argument(content: dict[str, Any], name: str) -> Any:
    """An argument of the scorer in the output of `describe_scorer`, such as its size; None if it has none of this name."""
    return content.get(_KEY, {}).get("arguments", {}).get(name)


def describe_module(module: nn.Module) -> dict[str, Any]:
    """Describe a module's class and arguments, as in `describe_scorer`."""
    kind = type(module)
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    missing = [p.name for p in parameters if p.default is p.empty and not hasattr(module, p.name)]
    if missing:
        raise ValueError(
            f"{kind.__name__} cannot be saved: its constructor takes {', '.join(missing)}, but it has no attribute of "
            "that name; store the argument as self.<name>; wrap built-in torch modules in a class of your own, or save the "
            "weights with torch.save(scorer.state_dict(), path)"
        )
    arguments = {p.name: getattr(module, p.name) for p in parameters if hasattr(module, p.name)}
    for name, value in arguments.items():
        if isinstance(value, nn.ModuleList):
            arguments[name] = [describe_module(each) for each in value]
        elif isinstance(value, nn.Module):
            arguments[name] = describe_module(value)
    return {_KEY: {"class": _public_name(kind), "arguments": arguments}}


def build_module(described: Any, trusted: Sequence[str | type] = ()) -> Any:
    """Build the module that `describe_module` describes, without its weights; other data are returned unchanged."""
    if isinstance(described, list | tuple):
        return type(described)(build_module(each, trusted) for each in described)
    if not isinstance(described, dict) or _KEY not in described:
        return described
    name, arguments = described[_KEY]["class"], described[_KEY]["arguments"]
    kind = _find_class(name, trusted)
    if not (isinstance(kind, type) and issubclass(kind, nn.Module)):
        raise _RefusedError(f"contains a {name}, which is not a torch module")
    return kind(**{key: build_module(value, trusted) for key, value in arguments.items()})


def _public_name(kind: type) -> str:
    """The name of a class in files: with the outermost package that exports it, so that the class may move inside."""
    names = kind.__module__.split(".")
    for depth in range(1, len(names)):
        package = ".".join(names[:depth])
        if getattr(sys.modules.get(package), kind.__qualname__, None) is kind:
            return f"{package}.{kind.__qualname__}"
    return f"{kind.__module__}.{kind.__qualname__}"


def _find_class(path: str, trusted: Sequence[str | type]) -> Any:
    """The class that a file names, which may have moved inside rankstruct since; raises _RefusedError if there is none.

    Only rankstruct, `torch.nn` and trusted names are imported.
    """
    for each in trusted:
        if isinstance(each, type) and path in (f"{each.__module__}.{each.__qualname__}", _public_name(each)):
            return each
    named = ("rankstruct", "torch.nn", *(each for each in trusted if isinstance(each, str)))
    if not any(path == name or path.startswith(f"{name}.") for name in named):
        raise _RefusedError(
            f"contains a {path}, which is not a torch module of rankstruct or torch.nn, and is not imported unless you trust "
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
        raise _RefusedError(f"contains a {path}, which cannot be imported: {error}") from error


def save_scorer(scorer: nn.Module, path: str | Path) -> None:
    """Save a scorer to a file atomically.

    The scorer must store its constructor's arguments as attributes of the same names; otherwise ValueError is raised. The
    preparation of a `PreparedScorer` is saved too, and the `feature_names` and the `calibration` of a scorer that has some. For a
    ranker, save `ranker.to_scorer()`.

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
        way_out = ": save ranker.to_scorer(), or pickle the ranker" if hasattr(scorer, "to_scorer") else ""
        raise TypeError(f"scorer must be a torch module, got {type(scorer).__name__}{way_out}")
    names, calibration = (getattr(scorer, name, None) for name in ("feature_names", "calibration"))
    scorer, preparation = split_preparation(scorer)
    state = {f"{_PREFIX}{name}": value for name, value in scorer.state_dict().items()}
    with whole_file(path, "wb") as file:
        torch.save({**describe_scorer(scorer, preparation, names, calibration), "state_dict": state}, file)


def keep_calibration(path: str | Path, calibration: Calibration) -> None:
    """Add a calibration to the scorer in a file of `save_scorer`, or in a checkpoint, which is replaced atomically."""
    content = read_checkpoint(path)
    content[_KEY]["calibration"] = describe_module(calibration)
    with whole_file(path, "wb") as file:
        torch.save(content, file)


def scorer_file(path: str | Path) -> Path:
    """The file that `load_scorer` loads; raises FileNotFoundError if there is none."""
    path = Path(path)
    if path.is_dir():
        inside = (path / "scorer.pt", newest_run(path) / "checkpoints" / "best.ckpt")
        path = next((each for each in inside if each.is_file()), path)
    if not path.is_file():
        raise FileNotFoundError(
            f"no scorer at {path}; expected a file of save_scorer, a checkpoint or the folder of a run"
        )
    return path


def load_scorer(path: str | Path, *, trusted: Sequence[str | type] = ()) -> nn.Module:
    """Load a scorer from a file of `save_scorer`, a training checkpoint or the folder of a run, in evaluation mode, on the CPU.

    The scorer accepts raw features: one that was trained with preparation is a `PreparedScorer`. (Files of earlier versions
    have no preparation; their scorers need prepared features.) If it was trained on named features, `scorer.feature_names` has
    their names in order; if it was calibrated, `scorer.calibration(scores)` are probabilities. For the folder of a run,
    `scorer.pt` or the best checkpoint is loaded; for the folder of several runs, such as `runs/quickstart`, that of the newest.

    A file cannot contain code, but names a class whose module is imported; only rankstruct and `torch.nn` are allowed, unless
    others are trusted.

    Args:
        path: of the file or folder.
        trusted: further classes, or names of classes or packages, that the file may contain.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is damaged or contains no scorer; its class is not trusted, or cannot be imported or built.
    """
    path = scorer_file(path)
    content = read_checkpoint(path)
    described = content.get(_KEY)
    if not isinstance(described, dict) or not isinstance(described.get("class"), str):
        raise ValueError(f"{path} contains no scorer; expected a file of save_scorer or a checkpoint of rankstruct")
    try:
        state = {k.removeprefix(_PREFIX): v for k, v in content["state_dict"].items() if k.startswith(_PREFIX)}
        _check_sizes({_KEY: described}, state, trusted)
        scorer = build_module({_KEY: described}, trusted)
        scorer.load_state_dict(state)
        scorer = with_preparation(scorer, described_preparation(content) or Preparation())
        if (calibration := described_calibration(content)) is not None:
            scorer.calibration = calibration
        if names := described_names(content):
            setattr(scorer, "feature_names", tuple(names))  # noqa: B010 - a module may have attributes of any type
    except _RefusedError as error:
        raise ValueError(f"{path} {error}") from error
    except Exception as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{path} contains a {described['class']} that cannot be built: {reason}") from error
    return scorer.eval()


def _check_sizes(described: Any, state: dict[str, Tensor], trusted: Sequence[str | type]) -> None:
    """Raise _RefusedError for a description whose weights need far more memory than the file has, before they are made."""
    stored = 0
    for name, value in state.items():
        if value.numel() * value.element_size() > value.untyped_storage().nbytes():  # such as one number, expanded
            raise _RefusedError(f"is damaged: {name} of shape {tuple(value.shape)} has fewer numbers than that")
        stored += value.untyped_storage().nbytes()
    try:
        with torch.device("meta"):  # without memory
            module = build_module(described, trusted)
    except _RefusedError:
        raise
    except Exception:
        if trusted:  # classes of the user, which need not support this
            return
        raise
    declared = sum(each.numel() * each.element_size() for each in (*module.parameters(), *module.buffers()))
    if declared > _MOST_DECLARED * stored + _SLACK:
        raise _RefusedError(
            f"is damaged: it declares {declared / 1e6:,.0f} MB of weights and contains {stored / 1e6:,.1f} MB"
        )


def read_checkpoint(path: str | Path) -> dict[str, Any]:
    """Load a file written by `torch.save` as plain data and CPU tensors, after verifying its checksums.

    Raises:
        ValueError: the file is truncated, damaged, or another kind of file.
    """
    try:
        # The archive has a checksum of each tensor, which torch.load does not verify.
        with zipfile.ZipFile(path) as archive:
            broken = archive.testzip()
        if broken is not None:
            raise ValueError(f"the checksum of {broken} does not match")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about damaged files
            content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        if error.errno is not None and error.filename is not None:  # cannot be opened; the error is clear
            raise
        raise _unreadable(path, error) from error
    except Exception as error:
        raise _unreadable(path, error) from error
    if not isinstance(content, dict):
        raise ValueError(f"{path} contains no scorer; expected a file of save_scorer or a checkpoint of rankstruct")
    return content


def _unreadable(path: str | Path, error: Exception) -> ValueError:
    reason = str(error).strip().partition("\n")[0][:200] or type(error).__name__
    with open(path, "rb") as file:
        if file.read(1) == _PICKLED:
            reason += (
                "; if it is a pickled ranker, use pickle.load(open(path, 'rb')), which can run code: load only your own"
            )
    return ValueError(f"{path} is not a readable checkpoint; it is damaged, or another kind of file: {reason}")
