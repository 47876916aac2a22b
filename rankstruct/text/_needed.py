"""Packages of the extra, imported where they are used, so that the rest of the package needs none of them."""

from __future__ import annotations

from importlib import import_module
from types import ModuleType

from rankstruct.data import DataError


def needed(package: str, used_for: str) -> ModuleType:
    """Import a package of the extra `text`; raises DataError, with what it is used for, if it is not installed."""
    try:
        return import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package.partition(".")[0]:  # one that the package itself lacks
            raise
        raise DataError(
            f"{used_for} needs {error.name}, which is not installed; pip install 'rankstruct[text]'"
        ) from None
