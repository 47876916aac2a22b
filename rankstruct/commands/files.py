"""The files of lists that `rankstruct rank` trains on and tests with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rankstruct.data import DataError, RankingData
from rankstruct.data.folds import find_parts, read_alike
from rankstruct.data.formats import feature_names
from rankstruct.data.source import digest_of
from rankstruct.diagnostics import arrays_of


@dataclass(frozen=True)
class Files:
    """Files of lists; validation and test are optional. `reading` are options of `read_lists`."""

    train: Path
    vali: Path | None = None
    test: Path | None = None
    reading: Mapping[str, Any] = field(default_factory=lambda: {"zero_based": False})

    def given(self) -> dict[str, Path]:
        """The files given, by part."""
        return {name: path for name, path in vars(self).items() if isinstance(path, Path)}

    def read(self) -> dict[str, RankingData]:
        """Read the lists, with the same features.

        Raises:
            DataError: a file is missing, malformed, or has other features.
        """
        paths = self.given()
        return dict(zip(paths, read_alike(list(paths.values()), **self.reading), strict=True))

    def feature_names(self) -> list[str] | None:
        """The names of the features; None if they are numbered."""
        return feature_names(self.train, **self.reading)

    def arguments(self, lists: dict[str, RankingData]) -> dict[str, Any]:
        """The arguments of `fit`."""
        return {**arrays_of(lists["train"]), **(arrays_of(lists["vali"], "_valid") if "vali" in lists else {})}

    def digests(self) -> dict[str, str]:
        """A digest of the content of each file, sixteen characters."""
        return {name: digest_of(str(path)) for name, path in self.given().items()}


def find_files(folder: str | None, fold: int | None, train: str | None, vali: str | None, test: str | None) -> Files:
    """The files of a folder and fold, or those given by name.

    Raises:
        ValueError: both or neither are given, or files are missing.
    """
    if (folder is None) == (train is None) or (folder and (vali or test)) or (train and fold is not None):
        raise ValueError("give either FOLDER, with --fold if it has folds, or --train FILE, with --vali and --test")
    if folder is not None:
        if not Path(folder).is_dir():
            is_file = Path(folder).is_file()
            wrong = (
                f"not a folder but a file; give --train {folder}" if is_file else "no such folder; give --train FILE"
            )
            raise DataError(
                f"{folder}: {wrong}, or a folder with train.txt, vali.txt and test.txt, or with Fold1 and so on"
            )
        folds = sorted(path.name for path in Path(folder).glob("Fold*"))
        here = any(Path(folder).glob("train.*"))
        if fold is None and folds and not here:
            raise DataError(f"{folder} has {', '.join(folds)}: select one, such as --fold 1")
        if fold is not None and not folds and here:
            raise DataError(f"{folder} has train, vali and test files instead of folds: remove --fold")
        return Files(*find_parts(folder, fold, required=("train",)).values())  # type: ignore[arg-type]
    files = Files(*(None if path is None else Path(path) for path in (train, vali, test)))  # type: ignore[arg-type]
    for path in files.given().values():
        if not path.is_file():
            raise DataError(f"{path}: no such file")
    return files
