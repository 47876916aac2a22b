"""Preparation of features by named steps, fitted to the training documents and saved with the scorer.

A step maps features `[documents, d]`, in float64, to any number of features of the same documents. Steps whose names begin with
"query-" depend on the features of one list each and need no fitting. The same code prepares arrays of training data and tensors
in serving. A constant feature becomes exactly 0 in any step that divides by its spread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np
import scipy.sparse as sp
import torch
from torch import Tensor, nn

from rankstruct.arrays import as_numbers
from rankstruct.blocks import Blocks, Counts, Read, counted, moments, ranges
from rankstruct.columns import Columns
from rankstruct.lists import as_offsets, check_offsets, check_tensor, to_tensor
from rankstruct.messages import did_you_mean

__all__ = ["Preparation"]

_MOST_KNOTS = 1000  # stored per feature for normal quantiles
_CHUNK, _COLUMNS = 2**11, 4  # documents, and features, that are prepared in float64 at a time


class Step(nn.Module):
    """One preparation step; its fitted state is in buffers.

    Args:
        number: the number after the colon in its name; the default of the class if None.
        fitted: the buffers.
    """

    by_list: ClassVar[bool] = False  #: whether it depends on complete lists
    untouched: int = 0  #: the number of last columns of its output that the steps after it leave as they are
    #: Whether it maps 0 to 0 and treats all features alike, so it can be applied to the stored values of sparse features.
    keeps_zeros: ClassVar[bool] = False
    default: ClassVar[float | None] = None  #: the default number; None for a step without one

    def __init__(self, number: float | None = None, **fitted: Any) -> None:
        super().__init__()
        self.number = float((self.default if number is None else number) or 0)
        for name, values in fitted.items():
            # Arrays are copied: those of a file may be memory-mapped and read-only.
            values = values if isinstance(values, Tensor) else torch.tensor(values)
            self.register_buffer(name, values.to(torch.float64))

    def fit(self, features: Tensor) -> dict[str, Tensor]:
        """Return the buffers for training features `[documents, d]` of any real dtype."""
        return {}

    def fit_blocks(self, read: Read, width: int) -> dict[str, Tensor]:
        """As `fit`, for the features `[some, width]` that `read` returns one after the other."""
        return {}

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features `[documents, d]`; `lengths` `[lists]` are the list lengths, if the step is `by_list`."""
        raise NotImplementedError

    def sources(self, before: Tensor) -> Tensor:
        """The raw feature that each output depends on, given that of each input."""
        return before


class Log(Step):
    """sign(x) log(1 + |x| / unit): log(|x| + unit), shifted so that 0 stays 0; the number is the unit."""

    keeps_zeros, default = True, 0.001

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        return features.sign() * (features.abs() / self.number).log1p()


class Standardize(Step):
    """Mean 0 and standard deviation 1 over the training documents."""

    mean: Tensor
    deviation: Tensor

    def fit(self, features: Tensor) -> dict[str, Tensor]:
        """Return mean and standard deviation."""
        if not len(features):
            raise ValueError("standardize needs at least one document to fit, got none")
        found = []
        for columns in features.split(_COLUMNS, 1):
            varies, wide = columns.amin(0) < columns.amax(0), columns.double()
            found.append((wide.mean(0), torch.where(varies, wide.std(0, correction=0), 0.0)))
        mean, deviation = map(torch.cat, zip(*found, strict=True))
        return {"mean": mean, "deviation": deviation}

    def fit_blocks(self, read: Read, width: int) -> dict[str, Tensor]:
        """Return mean and standard deviation, each with one rounding."""
        mean, deviation = moments(read, width)
        return {"mean": torch.from_numpy(mean), "deviation": torch.from_numpy(deviation)}

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        return _divided(features - self.mean, self.deviation)


class Quantile(Step):
    """The normal quantile of the fraction of training documents with a lower value, equal ones counted half.

    Linear between training values and constant beyond them. Knots are the training values, at most 1000 per feature. Shares and
    quantiles are computed in float64.
    """

    values: Tensor
    quantiles: Tensor

    def fit(self, features: Tensor) -> dict[str, Tensor]:
        """Return values and their normal quantiles, `[d, knots]`."""
        if not len(features):
            raise ValueError("quantile needs at least one document to fit, got none")
        knots = []
        for column in features.T:
            values, counts = column.double().unique(return_counts=True)
            knots.append(self._knots(values, counts, counts.cumsum(0) - counts, len(column), whole=True))
        return self._stacked(knots)

    def fit_blocks(self, read: Read, width: int) -> dict[str, Tensor]:
        """Return the same knots as `fit`."""
        knots = []
        for each in counted(read, width, np.linspace(0, 1, _MOST_KNOTS)):
            values, counts, below = map(torch.from_numpy, (each.values, each.counts, each.below))
            knots.append(self._knots(values.double(), counts, below, each.total, each.is_whole))
        return self._stacked(knots)

    @staticmethod
    def _knots(values: Tensor, counts: Tensor, below: Tensor, total: int, whole: bool) -> tuple[Tensor, Tensor]:
        """The knots of a column, of the numbers of documents with each value and below it; `whole` if these are all."""
        shares = (below + counts).double() - 0.5 * counts.double()  # float32 of whole numbers otherwise
        shares = shares / total
        if len(values) > _MOST_KNOTS or not whole:
            wanted = torch.linspace(0, 1, _MOST_KNOTS, dtype=shares.dtype)
            chosen = torch.searchsorted(shares, wanted).clamp(max=len(values) - 1).unique()
            values, shares = values[chosen], shares[chosen]
        return values, torch.special.ndtri(shares)

    @staticmethod
    def _stacked(knots: list[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
        most = max([2, *(len(values) for values, _ in knots)])
        last = [torch.arange(most).clamp(max=len(values) - 1) for values, _ in knots]  # padded to a common length
        names = ("values", "quantiles")
        return {
            name: torch.stack([knot[at][rows] for knot, rows in zip(knots, last, strict=True)])
            if knots
            else torch.zeros(0, most)
            for at, name in enumerate(names)
        }

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        columns = features.T.contiguous()
        right = searchsorted(self.values, columns).clamp(1, self.values.shape[-1] - 1)
        low, high = self.values.gather(-1, right - 1), self.values.gather(-1, right)
        share = torch.where(high > low, ((columns - low) / (high - low)).clamp(0, 1), 1.0)
        below, above = self.quantiles.gather(-1, right - 1), self.quantiles.gather(-1, right)
        return (below + share * (above - below)).T


class Bins(Step):
    """One indicator per threshold, whether the value is at least that; the number is the number of thresholds per feature.

    They are evenly spaced inside its range over the training documents. Linear functions of the indicators are step functions of
    the features. Thresholds that no training value separates are included, so the indicators of feature f are columns f n to
    f n + n - 1. A missing number stays missing.

    Source: Yue, Finley, Radlinski, Joachims, SIGIR 2007, section 4.2 (50 thresholds per feature).
    """

    default = 50
    thresholds: Tensor

    def sources(self, before: Tensor) -> Tensor:
        """As many of each feature as there are thresholds."""
        return before.repeat_interleave(self.thresholds.shape[1])

    def fit(self, features: Tensor) -> dict[str, Tensor]:
        """Return the thresholds, `[d, n]`."""
        if not len(features):
            raise ValueError("bins need at least one document to fit, got none")
        return self._between(features.amin(0), features.amax(0))

    def fit_blocks(self, read: Read, width: int) -> dict[str, Tensor]:
        """Return the thresholds, `[d, n]`."""
        return self._between(*map(torch.from_numpy, ranges(read, width)))

    def _between(self, low: Tensor, high: Tensor) -> dict[str, Tensor]:
        low, high = low.double()[:, None], high.double()[:, None]
        count = int(self.number)
        return {"thresholds": low + (high - low) * torch.arange(1, count + 1) / (count + 1)}

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        above = (features[:, :, None] >= self.thresholds).to(features.dtype)
        return torch.where(features[:, :, None].isnan(), torch.nan, above).flatten(1)


class Piecewise(Step):
    """Piecewise-linear encodings: for each bin of a feature, how far it is filled, `(x - low) / (high - low)` clipped to [0, 1].

    The number is the number of bins per feature; their bounds are quantiles of the training documents, so equal quantiles leave
    fewer, and a constant feature none. So does a feature whose bins hold the same documents as those of an earlier one, such as
    its normal quantile. Linear functions of the encodings are continuous piecewise-linear functions of the feature, constant
    beyond the training values. A missing number stays missing.

    Source: Gorishniy, Rubachev, Babenko, "On Embeddings for Numerical Features in Tabular Deep Learning", NeurIPS 2022, eq. 1,
    where the first and the last bin are not clipped.
    """

    default = 8
    column: Tensor
    low: Tensor
    high: Tensor

    def sources(self, before: Tensor) -> Tensor:
        """The feature of each bin."""
        return before[self.column.long()]

    def fit(self, features: Tensor) -> dict[str, Tensor]:
        """Return the column and the bounds of each bin, `[bins]`."""
        if not len(features):
            raise ValueError("piecewise needs at least one document to fit, got none")
        bounds = []
        for column in features.T:
            values = column[~column.isnan()].sort().values.numpy()
            places = np.ceil(self._shares * len(values)).astype(int) - 1
            bounds.append(np.unique(values[places.clip(0)]) if len(values) else values)
        return self._between(bounds, lambda: iter([features.numpy()]))

    def fit_blocks(self, read: Read, width: int) -> dict[str, Tensor]:
        """Return the same bins as `fit`."""
        bounds = []
        for each in counted(read, width, self._shares):
            places = np.searchsorted(each.below + each.counts, self._shares * each.total)
            bounds.append(np.unique(each.values[places]) if each.total else each.values)
        return self._between(bounds, read)

    @property
    def _shares(self) -> np.ndarray:
        return np.linspace(0, 1, int(self.number) + 1)

    @staticmethod
    def _between(bounds: list[np.ndarray], read: Read) -> dict[str, Tensor]:
        held = [blake2b() for _ in bounds]  # the bin of each document
        for block in read():
            for column, own, found in zip(block.T, bounds, held, strict=True):
                found.update(np.searchsorted(own, column, side="right").astype(np.uint32))
        first: dict[bytes, int] = {}
        kept = [at for at, each in enumerate(held) if first.setdefault(each.digest(), at) == at]
        columns = [np.full(len(bounds[at][1:]), at) for at in kept]
        low, high = ([bounds[at][part] for at in kept] for part in (slice(None, -1), slice(1, None)))
        each_bin = {"column": columns, "low": low, "high": high}
        return {name: torch.from_numpy(np.concatenate([[], *each]).astype(float)) for name, each in each_bin.items()}

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        return ((features[:, self.column.long()] - self.low) / (self.high - self.low)).clamp(0, 1)


class Encode(Step):
    """Numbers without missing values, followed by indicators, 0 or 1, that the steps after it leave as they are.

    A missing number becomes the median of the training documents, 0 if there is none. The indicators are one per category of a
    categorical column in training (all 0 for other categories and for missing ones), and one per column with missing values in
    training. Fitted to features as `Columns.encode` returns them.
    """

    numeric: Tensor
    medians: Tensor
    column: Tensor
    code: Tensor
    incomplete: Tensor

    @classmethod
    def of(cls, features: Tensor, categorical: Sequence[int]) -> dict[str, Tensor]:
        """Return the buffers for training features: numeric columns and their medians, column and code of each indicator."""
        numeric = cls._others(features.shape[1], categorical)
        codes = [features[:, at].unique() for at in categorical]
        return cls._of(numeric, features[:, numeric].nanmedian(0).values, categorical, codes, features.isnan().any(0))

    @classmethod
    def of_blocks(cls, features: Blocks, categorical: Sequence[int]) -> dict[str, Tensor]:
        """As `of`, for features that are read one block after the other."""
        documents, width = features.shape
        numeric, found = cls._others(width, categorical), counted(_parts(features), width, np.array([0.5]))
        medians = [_median(found[at]) for at in numeric]
        codes = [torch.from_numpy(found[at].values.astype(float)) for at in categorical]
        missing = torch.tensor([each.total < documents for each in found])
        return cls._of(numeric, torch.tensor(medians, dtype=torch.float64), categorical, codes, missing)

    @staticmethod
    def _others(width: int, categorical: Sequence[int]) -> list[int]:
        return [at for at in range(width) if at not in set(categorical)]

    @staticmethod
    def _of(
        numeric: list[int], medians: Tensor, categorical: Sequence[int], codes: list[Tensor], missing: Tensor
    ) -> dict[str, Tensor]:
        codes = [each[each >= 0] for each in codes]  # neither NaN nor unseen
        columns = [torch.full_like(each, at) for at, each in zip(categorical, codes, strict=True)]
        none = medians.new_zeros(0)
        return {
            "numeric": torch.tensor(numeric),
            "medians": medians.nan_to_num(),
            "column": torch.cat([none, *columns]),
            "code": torch.cat([none, *codes]),
            "incomplete": missing.nonzero()[:, 0],
        }

    @property
    def untouched(self) -> int:  # type: ignore[override]
        """The number of indicators."""
        return len(self.code) + len(self.incomplete)

    def sources(self, before: Tensor) -> Tensor:
        """The numbers, the indicators of categories, and those of missing values."""
        return torch.cat([before[each.long()] for each in (self.numeric, self.column, self.incomplete)])

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        missing, numbers = features.isnan(), features[:, self.numeric.long()]
        filled = torch.where(numbers.isnan(), self.medians.to(numbers), numbers)
        is_code = (features[:, self.column.long()] == self.code).to(features)
        return torch.cat([filled, is_code, missing[:, self.incomplete.long()].to(features)], -1)


class QueryMinMax(Step):
    """Scale to [0, 1] within each list, `(x - min) / (max - min)`; 0 if the feature is constant in the list.

    LETOR's query-level normalisation (Qin, Liu, Xu, Li, "LETOR: A Benchmark Collection for Research on Learning to Rank
    for Information Retrieval", Information Retrieval, 2010).
    """

    by_list = True

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        low, high = (_of_lists(features, lengths, kind) for kind in ("min", "max"))
        return _divided(features - low, high - low)


class QueryCenter(Step):
    """Mean 0 within each list."""

    by_list = True

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        alike = _of_lists(features, lengths, "min") == _of_lists(features, lengths, "max")
        return torch.where(alike, 0.0, features - _of_lists(features, lengths, "mean"))


class QueryZScore(QueryCenter):
    """Mean 0 and standard deviation 1 within each list; 0 if the feature is constant in the list."""

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        centred = super().forward(features, lengths)
        return _divided(centred, _of_lists(centred.square(), lengths, "mean").sqrt())


class QueryPercentile(Step):
    """The fraction of the list's documents with a lower value, equal ones counted half.

    With it a linear SVM is SVMacc3 of Yue, Finley, Radlinski, Joachims, SIGIR 2007, section 5.2.1 (with query-minmax it is
    SVMacc4).
    """

    by_list = True

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        if is_exporting():
            raise ValueError(
                "query-percentile cannot be exported; serve the scorer in PyTorch, or prepare the features beforehand"
            )
        places = torch.arange(len(features), device=features.device)[:, None].expand_as(features)
        lists = torch.repeat_interleave(lengths)
        order = features.argsort(dim=0, stable=True)
        order = order.gather(0, lists[order].argsort(dim=0, stable=True))  # by list, then by value
        ordered = features.gather(0, order)
        begins = torch.ones_like(ordered, dtype=torch.bool)
        begins[1:] = (ordered[1:] != ordered[:-1]) | (lists[1:] != lists[:-1])[:, None]
        ends = torch.cat([begins[1:], torch.ones_like(begins[:1])])
        first = torch.where(begins, places, 0).cummax(0).values
        last = torch.where(ends, places, len(features)).flip(0).cummin(0).values.flip(0)
        middle = (first + last).to(features.dtype) / 2 + 0.5
        starts = torch.repeat_interleave(lengths.cumsum(0) - lengths, lengths)
        shares = (middle - starts[:, None]) / lengths[lists][:, None]
        return torch.empty_like(features).scatter(0, order, shares)


class Append(Step):
    """The unchanged features, followed by the output of another step."""

    def __init__(self, step: Step) -> None:
        super().__init__()
        self.step, self.by_list = step, step.by_list  # type: ignore[misc]

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        return torch.cat([features, self.step(features, lengths)], -1)

    def sources(self, before: Tensor) -> Tensor:
        """Those of the unchanged features, and of the step."""
        return torch.cat([before, self.step.sources(before)])


class LeaveLast(Step):
    """Another step for all columns but the last `untouched` ones, which follow its output."""

    def __init__(self, step: Step, untouched: int) -> None:
        super().__init__()
        self.step, self.untouched, self.by_list = step, untouched, step.by_list  # type: ignore[misc]

    def forward(self, features: Tensor, lengths: Tensor) -> Tensor:
        """Transform features."""
        first, last = features[:, : -self.untouched], features[:, -self.untouched :]
        return torch.cat([self.step(first, lengths), last], -1)

    def sources(self, before: Tensor) -> Tensor:
        """Those of the step, and of the last columns."""
        return torch.cat([self.step.sources(before[: -self.untouched]), before[-self.untouched :]])


_STEPS: dict[str, type[Step]] = {
    "query-minmax": QueryMinMax,
    "query-zscore": QueryZScore,
    "query-percentile": QueryPercentile,
    "query-center": QueryCenter,
    "log": Log,
    "standardize": Standardize,
    "quantile": Quantile,
    "bins": Bins,
    "piecewise": Piecewise,
    "encode": Encode,
}
KNOWN = (*_STEPS, *(f"append-{name}" for name in _STEPS if name != "encode"))  #: all names, without numbers


def full_name(name: str) -> str:
    """The name of a step with its number, if it has one.

    Raises:
        ValueError: an unknown name, a number that is invalid or not positive, or a number for a step without one.

    >>> full_name("append-log"), full_name("bins:5"), full_name("standardize")
    ('append-log:0.001', 'bins:5', 'standardize')
    """
    kind, number = _parse(name)
    return name.partition(":")[0] + ("" if kind.default is None else f":{number!r}".removesuffix(".0"))


class Preparation(nn.Module):
    """Fitted steps from raw features to the input of a scorer; created by `Preparation.fit`.

    Steps are "query-minmax", "query-zscore", "query-percentile" and "query-center", applied within each list; "log" or
    "log:0.001" (sign(x) log(1 + |x| / 0.001)); "standardize", "quantile" (normal quantiles), "bins" or "bins:50"
    (thresholds per feature) and "piecewise" or "piecewise:8" (piecewise-linear encodings, in that many bins per feature), fitted
    to all documents. The prefix "append-" keeps the input features of a step as well. The
    step "encode", which comes first, replaces missing numbers by the median and appends indicators, 0 or 1, of the categories
    and of the missing values of a column. The other steps do not change these indicators.

    Attributes:
        names: of the steps, with their numbers.
        num_features: d, the number of raw features; None without steps.
        columns: the columns of the raw table; None if all are numeric. `columns.encode(table)` returns raw features.
        by_list: whether a step depends on complete lists, so that the lists must be passed.

    >>> train = np.array([[1.0], [3.0]], np.float32)
    >>> preparation = Preparation.fit(["append-standardize"], train)
    >>> preparation(torch.tensor([[5.0]]))
    tensor([[5., 3.]])
    >>> preparation.names, preparation.num_features
    (('append-standardize',), 1)
    """

    def __init__(
        self,
        names: Sequence[str] = (),
        num_features: int | None = None,
        fitted: Sequence[Mapping[str, Any]] = (),
        columns: Columns | None = None,
    ) -> None:
        super().__init__()
        self.columns = columns
        self.names = tuple(map(full_name, check_names(names)))
        self.num_features = num_features
        self.steps = nn.ModuleList(_make(*each) for each in zip(self.names, fitted, strict=True))
        self.by_list = any(step.by_list for step in self.steps)

    @classmethod
    def fit(
        cls, names: Sequence[str], X: Any, offsets: np.ndarray | None = None, after: Preparation | None = None
    ) -> Preparation:
        """Fit steps to training documents `X` `[documents, d]`, an array or a CSR array, each to the output of the previous one.

        List i is `[offsets[i], offsets[i + 1])`; offsets may be omitted if no step is `by_list`. The documents are the output of
        `after`, if given: a preparation without steps says which columns are categorical.

        Raises:
            ValueError: an unknown name; missing lists, or sparse features, for a step that does not support this; "encode" after
                other steps.
        """
        return cls.fit_transform(names, X, offsets, after)[0]

    @classmethod
    def fit_transform(
        cls, names: Sequence[str], X: Any, offsets: np.ndarray | None = None, after: Preparation | None = None
    ) -> tuple[Preparation, np.ndarray | sp.csr_array]:
        """Fit the steps and return the prepared documents too, as from `transform`."""
        before = cls() if after is None else after
        columns = None if before.names else before.columns
        if not len(check_names(names)):
            return cls(columns=columns), X
        X = _documents(X)
        width, steps, buffers, lengths = X.shape[1], [*before.steps], [], _lengths(offsets)
        for number, name in enumerate(names):
            buffers.append(_fit(name, X, [*before.names, *names[:number]], steps, before.columns))
            steps.append(_make(name, buffers[-1]))
            _check_lists([name], steps[-1].by_list, offsets)
            X = _changed(steps[-1], X, lengths, own=number > 0)
        return cls(names, width, buffers, columns), X

    def then(self, other: Preparation) -> Preparation:
        """Return these steps followed by those of another preparation."""
        d = other.num_features if self.num_features is None else self.num_features
        columns = other.columns if self.columns is None and not self.names else self.columns
        return Preparation([*self.names, *other.names], d, [*self.fitted, *other.fitted], columns)

    @property
    def encodes(self) -> bool:
        """Whether missing values are replaced and categories encoded."""
        return "encode" in self.names

    @property
    def fitted(self) -> list[dict[str, Tensor]]:
        """The buffers of each step; with `names` and `num_features`, the complete state."""
        return [_fitted(each) for each in self.steps]

    @property
    def width(self) -> int:
        """The number of features that the steps return, if there is a step."""
        one = np.zeros((1, self.num_features or 0), np.float32)
        return int(self._transformed(one, np.array([0, 1])).shape[1])

    def sources(self, num_features: int) -> Tensor:
        """The raw feature that each prepared one depends on, of `num_features`."""
        found = torch.arange(num_features)
        step: Any
        for step in self.steps:
            found = step.sources(found)
        return found

    def equals(self, other: Preparation) -> bool:
        """Whether another preparation is bitwise identical."""
        pairs = zip(self.buffers(), other.buffers(), strict=True)
        known = [each and each.categories for each in (self.columns, other.columns)]
        return (
            self.names == other.names
            and known[0] == known[1]
            and all(torch.equal(mine, theirs) for mine, theirs in pairs)
        )

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Prepare raw features `[..., list_size, d]`; returns `[..., list_size, any]` in the same dtype.

        Args:
            features: raw features. The last dimension but one is the list, all earlier ones are batch dimensions.
            where: `[..., list_size]`, False for padding, which may hold any values; its output is arbitrary.
            offsets: `[lists + 1]`; features are then flat, `[documents, d]`.

        Raises:
            ValueError: a different number of features than in `fit`, inconsistent shapes, or missing lists if a step needs them.
        """
        if not self.names:
            return features
        check_tensor("features", features)
        if features.dim() < 1 or features.shape[-1] != self.num_features:
            raise ValueError(
                f"features must be raw, of shape [..., list_size, {self.num_features}]: {', '.join(self.names)} "
                f"{'was' if len(self.names) == 1 else 'were'} fitted to {self.num_features} features, got {tuple(features.shape)}"
            )
        if not self.by_list:
            found = self._prepared(features.reshape(-1, features.shape[-1]), torch.zeros(0, dtype=torch.int64))
            return found.reshape(*features.shape[:-1], found.shape[-1])
        check_exported(where, offsets)
        if offsets is not None:
            if where is not None or features.dim() != 2:
                raise ValueError(
                    f"with offsets, pass features [documents, d] and no where; got {tuple(features.shape)}"
                )
            offsets = as_offsets(offsets)
            check_offsets(offsets, len(features))
            return self._prepared(features, offsets.diff())
        if features.dim() < 2 or (where is not None and where.shape != features.shape[:-1]):
            raise ValueError(
                f"{', '.join(self.names)} needs complete lists: pass features [..., list_size, d] and where= "
                f"[..., list_size], or [documents, d] and offsets=; got {tuple(features.shape)}"
            )
        if where is None:
            lists = features.reshape(-1, *features.shape[-2:])
            return self._prepared(lists.flatten(0, 1), equal_lengths(lists)).reshape(*features.shape[:-1], -1)
        found = self._prepared(features[where], where.sum(-1).flatten())
        return found.new_zeros(*where.shape, found.shape[-1]).masked_scatter(where[..., None], found)

    def _prepared(self, features: Tensor, lengths: Tensor) -> Tensor:
        # Rounded between steps as training data are, so that thresholds are compared with the same numbers.
        wide, kept = _precisions(features)
        for step in self.steps:
            features = step(features.to(wide), lengths).to(kept)
        return features

    @torch.no_grad()
    def transform(self, X: Any, offsets: np.ndarray | None = None) -> np.ndarray | sp.csr_array:
        """Prepare raw documents `[documents, d]`; returns `[documents, any]`, float64 for float64 input and float32 otherwise.

        List i is `[offsets[i], offsets[i + 1])`. Sparse features stay sparse if every step keeps zeros; bins are always sparse.

        Raises:
            ValueError: a different number of features than in `fit`; missing lists, or sparse features, for a step that does not
                support this.
        """
        return self._transformed(X, offsets) if self.names else X

    def _transformed(self, X: Any, offsets: np.ndarray | None) -> np.ndarray | sp.csr_array:
        """As `transform`, of one step or more."""
        X = _documents(X)
        if X.shape[1] != self.num_features:
            raise ValueError(f"{', '.join(self.names)}: fitted to {self.num_features} features, got {X.shape[1]}")
        _check_lists(self.names, self.by_list, offsets)
        lengths = _lengths(offsets)
        for number, step in enumerate(self.steps):
            X = _changed(step, X, lengths, number > 0)
        return X

    def extra_repr(self) -> str:
        """Names and number of features, for `repr`."""
        return f"{list(self.names)}, num_features={self.num_features}"


def check_names(names: Sequence[str]) -> Sequence[str]:
    """Return `names`; raises ValueError for a single string."""
    if isinstance(names, str):
        raise ValueError(f"preparation must be a list of names, got the string {names!r}; write [{names!r}]")
    return names


def takes_sparse(names: Sequence[str]) -> bool:
    """Whether the sequence of steps accepts sparse features.

    >>> takes_sparse(["log", "bins:5"]), takes_sparse(["standardize"])
    (True, False)
    """
    kinds = [_parse(name)[0] for name in check_names(names)]
    return all(kind.keeps_zeros or kind is Bins for kind in kinds)


def _parse(name: str) -> tuple[type[Step], float | None]:
    """The class of a step, without "append-", and its number."""
    plain, colon, number = name.partition(":")
    if plain not in KNOWN:
        raise ValueError(f"unknown preparation step {name!r}; known are {', '.join(KNOWN)}{did_you_mean(plain, KNOWN)}")
    kind = _STEPS[plain.removeprefix("append-")]
    if not colon:
        return kind, kind.default
    if kind.default is None:
        raise ValueError(f"{plain} takes no number, got {name!r}")
    try:
        found = type(kind.default)(number)
    except ValueError:
        raise ValueError(f"expected a number after the colon, got {name!r}") from None
    if not 0 < found < float("inf"):
        raise ValueError(f"expected a number above 0 after the colon, got {name!r}")
    return kind, found


def encoded_first(names: Sequence[str], X: Any, columns: Columns | None) -> list[str]:
    """The steps, with "encode" in front if training features have categories or missing values.

    >>> encoded_first(["log"], np.array([[np.nan]]), None), encoded_first(["log"], np.array([[1.0]]), None)
    (['encode', 'log'], ['log'])
    """
    needed = columns is not None or has_missing(X)
    return ["encode", *names] if needed and "encode" not in names else list(names)


def has_missing(X: Any) -> bool:
    """Whether features have a missing value, NaN.

    >>> has_missing(np.array([[1.0, np.nan]])), has_missing(np.array([[1.0, 2.0]]))
    (True, False)
    """
    if isinstance(X, Blocks):
        return X.incomplete if X.incomplete is not None else any(has_missing(block) for block, _ in X.blocks())
    values = X.data if sp.issparse(X) else X
    with np.errstate(invalid="ignore"):
        return bool(values.size and values.dtype.kind == "f" and np.isnan(values.min()))  # without an array of booleans


def missing_columns(X: Any) -> np.ndarray:
    """The columns of features with a missing value, ascending.

    >>> missing_columns(np.array([[1.0, np.nan]]))
    array([1])
    """
    blocks = (block for block, _ in X.blocks()) if isinstance(X, Blocks) else [X.toarray() if sp.issparse(X) else X[:]]
    return np.flatnonzero(np.logical_or.reduce([np.isnan(block).any(0) for block in blocks]))


def _make(name: str, fitted: Mapping[str, Any]) -> Step:
    kind, number = _parse(name)
    buffers = dict(fitted)
    untouched = int(buffers.pop("untouched", 0))
    step: Step = kind(number, **buffers)
    step = Append(step) if name.startswith("append-") else step
    return LeaveLast(step, untouched) if untouched else step


def _fitted(step: Any) -> dict[str, Tensor]:
    """The arguments of `_make` for a step."""
    if isinstance(step, LeaveLast):
        return _fitted(step.step) | {"untouched": torch.tensor(step.untouched)}
    return dict(step.step.named_buffers() if isinstance(step, Append) else step.named_buffers())


def _documents(X: Any) -> Any:
    """Features `[documents, d]` as an array that torch accepts; sparse ones unchanged."""
    if sp.issparse(X) or isinstance(X, Blocks):
        return X
    found = as_numbers("X", X, exact=False)
    if found.ndim != 2:
        raise ValueError(f"X must have shape [documents, d], got {found.shape}")
    return np.ascontiguousarray(found)


def _lengths(offsets: np.ndarray | None) -> Tensor:
    """The lengths of the lists, none without offsets."""
    return torch.zeros(0, dtype=torch.int64) if offsets is None else as_offsets(offsets).diff()


def _check_lists(names: Sequence[str], by_list: bool, offsets: np.ndarray | None) -> None:
    """Raise ValueError if steps depend on complete lists, and there are none."""
    if by_list and offsets is None:
        raise ValueError(f"{', '.join(names)} needs complete lists, which are missing: pass qid=, one id per document")


def _fit(name: str, X: Any, names: Sequence[str], before: Sequence[Any], columns: Columns | None) -> dict[str, Tensor]:
    """The buffers of a step for documents that the steps `before` it, of these names, have prepared."""
    kind, number = _parse(name)
    if kind is Encode:
        if before:
            raise ValueError(
                f"encode must be the first preparation step, got it after {', '.join(map(full_name, names))}"
            )
        _check_dense(name, X)
        if isinstance(X, Blocks):
            return Encode.of_blocks(X, columns.categorical if columns else [])
        return Encode.of(torch.tensor(X, dtype=torch.float64), columns.categorical if columns else [])
    untouched = before[-1].untouched if before else 0
    found = {"untouched": torch.tensor(untouched)} if untouched else {}
    if kind.fit is Step.fit:
        return found
    if kind is not Bins:
        _check_dense(name, X)
    if isinstance(X, Blocks):
        return found | kind(number).fit_blocks(_parts(X, untouched), X.shape[1] - untouched)
    X = X[:, : X.shape[1] - untouched]
    return found | kind(number).fit(to_tensor(X.toarray() if sp.issparse(X) else X))


def _changed(step: Any, X: Any, lengths: Tensor, own: bool = False) -> Any:
    """Documents after a step; `own` ones may be overwritten."""
    if isinstance(X, Blocks):
        return X.changed(lambda block, offsets: _in_memory(_changed(step, block, _lengths(offsets))))
    inner = step.step if isinstance(step, LeaveLast) else step
    inner = inner.step if isinstance(inner, Append) else inner
    kept = torch.float64 if X.dtype == np.float64 else torch.float32

    def change(values: Any) -> np.ndarray:
        found: np.ndarray = step(torch.tensor(values, dtype=torch.float64), lengths).to(kept).numpy()
        return found

    if not (sp.issparse(X) or step.by_list or isinstance(inner, Bins)):
        return _in_blocks(change, X, own)
    if isinstance(step, Append):
        parts = [X, _changed(step.step, X, lengths)]
    elif isinstance(step, LeaveLast):
        parts = [_changed(step.step, X[:, : -step.untouched], lengths), X[:, -step.untouched :]]
    if isinstance(step, Append | LeaveLast):
        return sp.hstack(parts, format="csr") if any(map(sp.issparse, parts)) else np.hstack(parts)
    rows = (X[at : at + _CHUNK] for at in range(0, max(X.shape[0], 1), _CHUNK))
    if isinstance(step, Bins):
        return sp.vstack([sp.csr_array(change(r.toarray() if sp.issparse(r) else r)) for r in rows], format="csr")
    if sp.issparse(X) and step.keeps_zeros:
        return sp.csr_array((change(X.data), X.indices, X.indptr), shape=X.shape)
    _check_dense(next(name for name, kind in _STEPS.items() if type(step) is kind), X)
    return change(X)


def _in_memory(X: Any) -> np.ndarray:
    return X.toarray() if sp.issparse(X) else np.asarray(X, np.float32)


def _parts(X: Blocks, untouched: int = 0) -> Read:
    """The reader of all columns but the last `untouched` ones."""
    return lambda: (block[:, : X.shape[1] - untouched] for block, _ in X.blocks())


def _median(found: Counts) -> float:
    """The lower median, as torch's; NaN if there is no number."""
    at = np.searchsorted(found.below + found.counts, (found.total - 1) // 2, side="right")
    return float(found.values[at]) if found.total else np.nan


def _in_blocks(change: Callable[[Any], np.ndarray], X: np.ndarray, own: bool) -> np.ndarray:
    """The documents changed some rows at a time, in place if they are `own` and keep their size."""
    first = change(X[:_CHUNK])
    found = X if own and first.shape[1] == X.shape[1] and first.dtype == X.dtype else None
    found = np.empty((len(X), first.shape[1]), first.dtype) if found is None else found
    found[:_CHUNK] = first
    for at in range(_CHUNK, len(X), _CHUNK):
        found[at : at + _CHUNK] = change(X[at : at + _CHUNK])
    return found


def _check_dense(name: str, X: Any) -> None:
    if sp.issparse(X):
        raise ValueError(
            f"{name} needs dense features, since it does not keep zeros; got sparse ones: pass X.toarray(), read them with "
            "sparse=False, or use 'log', which keeps zeros"
        )


def _precisions(features: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """The dtypes of computation and of the output."""
    kept = features.dtype if features.is_floating_point() else torch.get_default_dtype()
    return (torch.float32 if features.device.type == "mps" else torch.float64), kept  # MPS has no float64


def check_exported(where: Tensor | None, offsets: Tensor | None) -> None:
    """Raise ValueError on export with padding or offsets, since list lengths are then unknown."""
    if is_exporting() and (where is not None or offsets is not None):
        raise ValueError(
            "steps and scorers that need complete lists are exported for features [..., list_size, d] without padding; omit "
            "where= and offsets="
        )


def equal_lengths(lists: Tensor) -> Tensor:
    """The lengths `[lists]` of lists without padding, `[lists, list_size, ...]`."""
    return torch.full((lists.shape[0],), lists.shape[1], dtype=torch.int64, device=lists.device)


def searchsorted(values: Tensor, columns: Tensor) -> Tensor:
    """`torch.searchsorted`, which ONNX lacks, for ascending `values` `[d, knots]` and `columns` `[d, documents]`."""
    if not is_exporting():
        return torch.searchsorted(values, columns)
    found, size = torch.zeros_like(columns, dtype=torch.int64), values.shape[-1]
    for power in reversed(range(size.bit_length())):  # `found` values are below so far
        ahead = found + 2**power
        below = (ahead <= size) & (values.gather(-1, ahead.clamp(max=size) - 1) < columns)
        found = torch.where(below, ahead, found)
    return found


# Available from torch 2.7 on.
is_exporting: Callable[[], bool] = getattr(torch.compiler, "is_exporting", lambda: False)


def _of_lists(features: Tensor, lengths: Tensor, kind: str) -> Tensor:
    """A statistic of each list, repeated for each of its documents."""
    if is_exporting():  # all lists have the same length, without padding
        lists = features.unflatten(0, (lengths.shape[0], features.shape[0] // lengths.shape[0]))
        reduce: Any = {"min": torch.amin, "max": torch.amax, "mean": torch.mean}[kind]
        return (reduce(lists, 1, keepdim=True) + torch.zeros_like(lists)).flatten(0, 1)
    if not len(features):  # not supported by segment_reduce
        return features
    found = torch.segment_reduce(features, kind, lengths=lengths, axis=0)
    return torch.repeat_interleave(found, lengths, dim=0)


def _divided(values: Tensor, scale: Tensor) -> Tensor:
    """`values / scale`, 0 where the scale is 0; NaN, for missing values, stays NaN."""
    return torch.where(scale == 0, 0.0, values / scale)
