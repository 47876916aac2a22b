"""From what a config says to training, validation and test lists."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rankstruct.data.builtin import digits, synthetic, synthetic_hosts
from rankstruct.data.dataset import Splits
from rankstruct.data.folds import read_folds


def _synthetic_splits(seed: int) -> Splits:
    train, weights = synthetic(seed=seed)
    vali, test = (synthetic(seed=seed + part, weights=weights)[0] for part in (1, 2))
    return Splits(train, vali, test)


def _synthetic_host_splits(seed: int) -> Splits:
    train, weights = synthetic_hosts(seed=seed)
    vali, test = (synthetic_hosts(seed=seed + part, weights=weights)[0] for part in (1, 2))
    return Splits(train, vali, test)


BUILTIN: dict[str, Callable[[int], Splits]] = {
    "digits": digits,
    "synthetic": _synthetic_splits,
    "synthetic-hosts": _synthetic_host_splits,
}


def read_splits(
    path: str | Path | None = None,
    fold: int | None = None,
    *,
    builtin: str | None = None,
    labels: str = "grades",
    seed: int = 0,
    cache: bool = True,
) -> Splits:
    """Read or make the three parts, as they are.

    Args:
        path: a folder with `train.txt`, `vali.txt` and `test.txt`, or with `Fold1` and so on; or give `builtin`.
        fold: which `Fold<n>` of the folder, where it has them.
        builtin: `"digits"` (real), `"synthetic"` or `"synthetic-hosts"` (with groups), which need no files.
        labels: `"grades"` takes non-negative integers alone, `"real"` any number.
        seed: of the built-in sets.
        cache: whether parsed files are kept in the cache folder.

    Raises:
        ValueError: both or neither of `path` and `builtin`, an unknown name, or broken files.

    >>> read_splits(builtin="synthetic").train.num_lists
    100
    """
    check_source(path, builtin)
    if builtin is not None:
        return BUILTIN[builtin](seed)
    return read_folds(str(path), fold, labels=labels, cache=cache)


def check_source(path: str | Path | None, builtin: str | None) -> None:
    """Raise ValueError unless one of the two is given, and `builtin` is known."""
    if (path is None) == (builtin is None):
        raise ValueError(
            f"give data.path (a folder of LETOR files) or data.builtin ({', '.join(BUILTIN)}), one of them; "
            f"got path {path!r} and builtin {builtin!r}"
        )
    if builtin is not None and builtin not in BUILTIN:
        raise ValueError(f"data.builtin must be one of {', '.join(BUILTIN)}, got {builtin!r}")
