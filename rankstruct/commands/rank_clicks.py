"""`rankstruct rank --clicks`: training lists from a click log."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from rankstruct.clicks import ClickLog, Propensities, harvest_propensities, propensities_by_em, propensities_by_swaps
from rankstruct.commands.files import Files
from rankstruct.data import DataError, RankingData, read_lists
from rankstruct.data.formats import feature_names
from rankstruct.estimators.training_data import dense
from rankstruct.messages import ArgumentError
from rankstruct.text_tables import format_table

ESTIMATORS = {"harvest": harvest_propensities, "swaps": propensities_by_swaps, "em": propensities_by_em}
_SAID = {
    "harvest": "estimated from all pairs of ranks at which the log shows the same documents (`harvest_propensities`)",
    "swaps": "estimated from the documents shown both at rank 1 and at another (`propensities_by_swaps`)",
    "em": "estimated by regression EM with the features (`propensities_by_em`), which counts as position bias what the features "
    "do not explain",
    "file": "given as a file",
}
_RANKS = 20  # in the card


@dataclass(frozen=True)
class ClickFiles(Files):
    """A click log, with features or with `train`, lists that have them; labels of `train` are ignored.

    Args:
        clicks: the log.
        propensities: the estimator, a key of `ESTIMATORS`, or a file of one number per rank.
        clip: the lowest propensity.
        drop_missing: whether documents of the log that `train` lacks are left out, instead of an error.
    """

    train: Path | None = None  # type: ignore[assignment]
    clicks: Path = Path()
    propensities: str = "harvest"
    clip: float | None = None
    drop_missing: bool = False

    def given(self) -> dict[str, Path]:
        """The files given, by part."""
        found = {"clicks": self.clicks, **super().given()}
        return found if self.propensities in ESTIMATORS else {**found, "propensities": Path(self.propensities)}

    @property
    def options(self) -> dict[str, Any]:
        """What else the result depends on."""
        by = self.propensities if self.propensities in ESTIMATORS else "a file"
        return {"propensities": by, "clip": self.clip, "drop_missing": self.drop_missing}

    def read(self) -> dict[str, RankingData]:
        """Read the documents of the log, and the test lists."""
        if self.train is not None:
            return Files(self.train, test=self.test, reading=self.reading).read()
        log = self._log
        names, features = self._logged_features
        query = log.query_of_document
        clicked = np.bincount(log.document, log.click, minlength=len(log.documents)) > 0
        found = RankingData.from_arrays(features, clicked, log.queries[query], docids=log.documents)
        if self.test is None:
            return {"train": found}
        named = {} if feature_names(self.test, **self.reading) is None else {"features": names}
        test = read_lists(self.test, **{**self.reading, **named})
        if test.num_features != len(names):
            raise DataError(
                f"{self.test} has {test.num_features} features, the log has {len(names)}: {', '.join(names)[:200]}"
            )
        return {"train": found, "test": test}

    def feature_names(self) -> list[str] | None:
        """The names of the features."""
        return self._logged_features[0] if self.train is None else super().feature_names()

    def arguments(self, lists: dict[str, RankingData]) -> dict[str, Any]:
        """The arguments of `fit`."""
        train = lists["train"]
        log = self._of_documents(train)
        return {"X": train.table, "y": log, "propensity": self._propensities(log, train), "clip": self.clip}

    def described(self, given: dict[str, Any]) -> dict[str, Any]:
        """What the model card says about the clicks, of the arguments of `fit`."""
        log, found = given["y"], given["propensity"]
        by = self.propensities if self.propensities in ESTIMATORS else "file"
        return {
            "sessions": log.sessions,
            "rows": len(log),
            "clicks": int(log.click.sum()),
            "queries": len(log.queries),
            "documents": len(np.unique(log.document)),
            "dropped": {"rows": len(self._log) - len(log), "clicks": int(self._log.click.sum() - log.click.sum())},
            "propensities": {
                "by": by,
                **{name: getattr(found, name).tolist() for name in ("values", "low", "high")},
                "confidence": found.confidence,
            },
            "clip": self.clip,
        }

    @cached_property
    def _log(self) -> ClickLog:
        return ClickLog.read(self.clicks)

    @cached_property
    def _logged_features(self) -> tuple[list[str], np.ndarray]:
        return self._log.read_features(self.clicks)

    def _of_documents(self, train: RankingData) -> ClickLog:
        """The log with documents numbered as in the training lists."""
        if self.train is None:
            return self._log.with_documents()
        if train.docids is None:
            raise DataError(
                f"{self.train}: documents have no names, by which those of the log are found; add a column docid"
            )
        names, missing = np.asarray(train.qids)[train.list_numbers], "drop" if self.drop_missing else "error"
        try:
            return self._log.with_documents(names, np.asarray(train.docids), missing=missing)  # type: ignore[arg-type]
        except ArgumentError as error:
            told, *ways = error.args
            drop = f"--drop-missing leaves out their clicks, or add the documents of {self.clicks}"
            raise DataError(f"{self.train}: {told}", *([drop] if ways else [])) from None
        except ValueError as error:
            raise DataError(f"{self.train}: {error}") from None

    def _propensities(self, log: ClickLog, train: RankingData) -> Propensities:
        if self.propensities not in ESTIMATORS:
            values = _read_propensities(Path(self.propensities))
            return Propensities(values, values, values, 1.0)
        return self._estimated(log, train)

    def _estimated(self, log: ClickLog, train: RankingData) -> Propensities:
        try:
            if self.propensities == "em":
                return propensities_by_em(log, dense(train.features))
            return ESTIMATORS[self.propensities](self._log)
        except ValueError as error:
            raise DataError(
                f"{self.clicks}: propensities cannot be estimated with --propensities {self.propensities}: {error}"
            ) from None


def _read_propensities(path: Path) -> np.ndarray:
    """One number per rank, from a file of numbers or a JSON list."""
    try:
        text = path.read_text(encoding="utf-8")
        values = np.array(json.loads(text) if text.lstrip().startswith("[") else text.split(), float)
    except (OSError, ValueError) as error:
        raise DataError(
            f"{path}: expected one propensity per rank, numbers or a JSON list; --propensities is such a file or one of "
            f"{', '.join(ESTIMATORS)} ({error})"
        ) from None
    if not len(values) or not ((values > 0) & (values <= 1)).all():
        raise DataError(f"{path}: propensities must be above 0 and at most 1, one per rank; got {values.tolist()[:10]}")
    return values


def click_section(clicks: dict[str, Any]) -> str:
    """The section of a model card: what was assumed about users."""
    known, clip = clicks["propensities"], clicks["clip"]
    is_given = known["by"] == "file"
    rows = []
    for rank, (value, low, high) in enumerate(zip(known["values"], known["low"], known["high"], strict=True), 1):
        interval = [] if is_given else [f"{low:.3g} to {high:.3g}"]
        rows.append([rank, f"{value:.3g}", *interval, f"{max(min(value, 1), clip or 0):.3g}"])
    header = ["rank", "propensity", *([] if is_given else [f"{100 * known['confidence']:g} % interval"]), "used"]
    more = f"\n\n{len(rows) - _RANKS} more ranks are in `result.json`." if len(rows) > _RANKS else ""
    dropped, gone = "", clicks.get("dropped", {})  # not stored by earlier versions
    if gone.get("rows"):
        dropped = (
            f" So were {gone['rows']} rows of the log, with {gone['clicks']} clicks, on documents without features."
        )
    clipped = "They were not clipped."
    if clip is not None:
        clipped = f"Those below {clip:g} were replaced by it, which favours what was shown first."
    return f"""## Clicks

{clicks["clicks"]} clicks in {clicks["sessions"]} sessions on {clicks["queries"]} queries and {clicks["documents"]} documents, \
{clicks["rows"]} rows.

**Assumed**: the position-based model. Users click a document if they examine its rank, with a probability by the rank alone, \
the propensity, and if it attracts them, wherever it is. The weight of a document is the number of its clicks, divided by that \
of the sessions in which users examined it by these propensities. Documents that were never shown were left out.{dropped} Trust \
in the first ranks, and users who stop at a good result, are not modelled.

The propensities, relative to rank 1, were {_SAID[known["by"]]}. {clipped}

{format_table(header, rows[:_RANKS], "github")}{more}

Selection scores below are estimates from clicks, with the same weights: if the propensities are wrong, so are they. Only \
judged test lists, or an online comparison, tell how well the ranker ranks.

"""
