"""Scores as probabilities: a step that is fitted to held-out lists, and measures of how true its probabilities are.

A `Calibration` maps scores, one by one, to the probability that a document is relevant. It is increasing, so that it changes no
order; scores remain what documents are ranked by. It knows nothing of the query: scores must mean the same in all lists.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

import numpy as np
import torch
from torch import Tensor, nn

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.lists import as_real, finite_values, lists_of, real_documents
from rankstruct.measures.ranked import is_relevant
from rankstruct.preparation import searchsorted
from rankstruct.statistics import bootstrap_interval

__all__ = ["Calibration", "evaluate_probabilities", "reliability"]

Method = Literal["isotonic", "sigmoid", "beta", "temperature"]
METHODS = get_args(Method)
_LISTS = ("where", "offsets", "qid", "group")
_LEAST = 1e-15  # of probabilities in logarithms


class Calibration(nn.Module):
    """An increasing function from scores to the probability that a document is relevant.

    Args:
        method: `"isotonic"`, the best increasing function, interpolated between its steps, of which ties are a part; `"sigmoid"`
            (Platt), sigmoid(a s + c); `"beta"`, sigmoid(c - a log(1 + exp(-z)) + b log(1 + exp(z))) of standardised scores z,
            with one slope for low scores and one for high ones; `"temperature"`, sigmoid(s / T), for scores that are log-odds
            already, as those of `RCRLoss` and `JRCLoss` are. Slopes are at least 0.
        min_relevant: the lowest label of a relevant document; if None, every label above 0.
        share: the share of the lists that a ranker holds out for this step, if it gets no validation lists.
        fitted: the numbers that `fit` finds, as saved; None before.

    With few held-out documents prefer `"sigmoid"`: isotonic regression needs about 1,000. Its probabilities are at least
    1 / (n + 2) and at most (n + 1) / (n + 2) for n documents, since none is certain.

    Source: Zadrozny and Elkan, KDD 2002 (isotonic); Platt, 1999, with his smoothed targets, here of beta too; Kull, Silva Filho,
    Flach, AISTATS 2017 (beta), applied to sigmoid(z); Guo, Pleiss, Sun, Weinberger, ICML 2017 (temperature).

    >>> rng = np.random.default_rng(0)
    >>> scores = rng.normal(size=(300, 10))
    >>> labels = rng.random(scores.shape) < 1 / (1 + np.exp(1 - 2 * scores))
    >>> calibration = Calibration("sigmoid").fit(scores, labels)
    >>> calibration.predict([-1.0, 0.5, 2.0])  # truly 0.05, 0.5 and 0.95
    tensor([0.0508, 0.4840, 0.9426], dtype=torch.float64)
    """

    fitted: Tensor | None

    def __init__(
        self,
        method: Method = "isotonic",
        *,
        min_relevant: float | None = None,
        share: float = 0.2,
        fitted: Tensor | None = None,
    ) -> None:
        super().__init__()
        check_choice("method", method, METHODS)
        check_numbers(optional=True, min_relevant=min_relevant)
        check_numbers("> 0 and < 1", share=share)
        self.method, self.min_relevant, self.share = method, min_relevant, share
        # Not a buffer: it is saved as an argument, and keeps its precision if the scorer changes its own.
        self.fitted = None if fitted is None else torch.as_tensor(fitted).double()

    def fit(self, scores: Any, labels: Any, **lists: Any) -> Calibration:
        """Fit the function to lists that trained and selected nothing of the scorer; returns this object.

        Args:
            scores: `[..., list_size]`, or flat, finite. All documents count alike.
            labels: the same shape.
            lists: `where`, `offsets`, `qid` or `group`, as of `rankstruct.evaluate`, which only tell padding here.

        Raises:
            ValueError: wrong lists, or documents that are all relevant, or all irrelevant.
        """
        s, relevant, _ = _documents("scores", scores, labels, self.min_relevant, lists)
        good, n = int(relevant.sum()), len(s)
        if not 0 < good < n:
            raise ValueError(
                f"calibration needs relevant and other documents, got {good} relevant of {n}; give more lists, or another "
                "min_relevant"
            )
        # Scores are divided by a power of 2, which rounds nothing, so that squares neither overflow nor vanish.
        power = int(np.frexp(np.abs(s).max())[1])
        found = (self._steps if self.method == "isotonic" else self._slopes)(np.ldexp(s, -power), relevant)
        of_scores = slice(1) if self.method == "isotonic" else slice(2)
        found[of_scores] = np.ldexp(found[of_scores], power)
        self.fitted = torch.from_numpy(found)
        return self

    @staticmethod
    def _steps(s: np.ndarray, relevant: np.ndarray) -> np.ndarray:
        """Scores and probabilities `[2, knots]`."""
        from sklearn.isotonic import IsotonicRegression

        n = len(s)
        model = IsotonicRegression(y_min=1 / (n + 2), y_max=(n + 1) / (n + 2)).fit(s, relevant)
        return np.stack([model.X_thresholds_, model.y_thresholds_])

    def _slopes(self, s: np.ndarray, relevant: np.ndarray) -> np.ndarray:
        """Mean, deviation, intercept and slopes, of the highest likelihood; the intercept of temperature is 0."""
        from scipy.optimize import minimize

        shifted, n, good = self.method != "temperature", len(s), relevant.sum()
        mean, deviation = (s.mean(), s.std()) if shifted else (0.0, np.abs(s).mean())
        deviation = deviation if deviation > 0 else 1.0
        wanted = relevant.astype(float)
        if shifted:
            wanted = np.where(relevant, (good + 1) / (good + 2), 1 / (n - good + 2))
        columns = self._columns(torch.from_numpy((s - mean) / deviation)).numpy()
        columns[0] = 1.0 if shifted else 0.0

        def loss(w: np.ndarray) -> tuple[float, np.ndarray]:
            logits = w @ columns
            p = 1 / (1 + np.exp(-np.clip(logits, -500, 500)))
            return float(np.mean(np.logaddexp(0, logits) - wanted * logits)), columns @ (p - wanted) / n

        start = np.array([0.0] + [1.0 / (len(columns) - 1)] * (len(columns) - 1))
        bounds = [(None, None)] + [(0.0, None)] * (len(columns) - 1)
        found = minimize(loss, start, jac=True, bounds=bounds, method="L-BFGS-B", options={"ftol": 1e-15, "gtol": 1e-9})
        return np.array([mean, deviation, *found.x])

    def _columns(self, z: Tensor) -> Tensor:
        """What intercept and slopes are multiplied by, `[1 + slopes, ...]`."""
        if self.method != "beta":
            return torch.stack([torch.ones_like(z), z])
        near = torch.log1p(torch.exp(-z.abs()))  # not softplus, which ONNX Runtime lacks in float64
        return torch.stack([torch.ones_like(z), z.clamp(max=0) - near, z.clamp(min=0) + near])

    def forward(self, scores: Tensor) -> Tensor:
        """The probability of each score `[...]`, in the same dtype; computed in float64, and NaN for NaN.

        Raises:
            ValueError: `fit` was not called.
        """
        if self.fitted is None:
            raise ValueError("the calibration is not fitted; call fit with held-out lists first")
        wide = torch.float32 if scores.device.type == "mps" else torch.float64
        known, s = self.fitted.to(scores.device, wide), scores.to(wide)
        if self.method != "isotonic":
            mean, deviation, *weights = known.unbind()
            columns = self._columns((s - mean) / deviation)
            return torch.tensordot(torch.stack(weights), columns, 1).sigmoid().to(scores.dtype)
        x, y = known.unbind()
        flat = s.reshape(1, -1).clamp(x[0], x[-1])
        above = searchsorted(x.unsqueeze(0), flat).clamp(min=min(1, len(x) - 1), max=len(x) - 1)[0]
        below = (above - 1).clamp(min=0)
        width = x[above] - x[below]
        part = (flat[0] - x[below]) / torch.where(width > 0, width, 1.0)
        return (y[below] + part * (y[above] - y[below])).reshape(s.shape).to(scores.dtype)

    def predict(self, scores: Any) -> Tensor:
        """As `forward`, of any kind of array."""
        return self(as_real("scores", scores))

    def extra_repr(self) -> str:
        """The method and the options that are not the defaults."""
        shown = (
            repr(self.method) if self.min_relevant is None else f"{self.method!r}, min_relevant={self.min_relevant:g}"
        )
        return shown if self.fitted is not None else f"{shown}, not fitted"


def as_calibration(calibrate: str | Calibration | None) -> Calibration:
    """The step that `calibrate=` of an estimator names, not fitted."""
    if isinstance(calibrate, Calibration):
        return Calibration(calibrate.method, min_relevant=calibrate.min_relevant, share=calibrate.share)
    check_choice("calibrate", calibrate, METHODS)
    return Calibration(calibrate)  # type: ignore[arg-type]


def _documents(
    name: str, values: Any, labels: Any, min_relevant: float | None, lists: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values, whether they are relevant, and the list of each real document, flat."""
    if unknown := set(lists) - {*_LISTS}:
        raise TypeError(f"the lists are where, offsets, qid or group; got {sorted(unknown)}")
    flat, given = lists_of(values, labels, lists)
    rows, ends = real_documents(flat, given)
    found, of_documents = finite_values(name, flat, rows), finite_values("labels", given.labels, rows)
    relevant = is_relevant(torch.from_numpy(of_documents), min_relevant).numpy()
    return found, relevant, np.repeat(np.arange(len(ends) - 1), np.diff(ends))


def check_bins(bins: int) -> None:
    """Raise ValueError unless `bins` can be a number of bins."""
    check_integers(1, 2**20 - 1, bins=bins)


def probabilities_of(
    probabilities: Any, labels: Any, min_relevant: float | None, lists: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, relevance and list of each document; there may be none."""
    p, relevant, of_list = _documents("probabilities", probabilities, labels, min_relevant, lists)
    wrong = p[(p < 0) | (p > 1)]
    if len(wrong):
        raise ValueError(
            f"probabilities must be from 0 to 1, got {wrong[0]:g}; pass predict_proba(X, qid)[:, 1], not the scores of predict"
        )
    return p, relevant, of_list


def check_probabilities(
    probabilities: Any, labels: Any, min_relevant: float | None, bins: int, lists: Mapping[str, Any]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, relevance, list and bin of each document."""
    check_bins(bins)
    p, relevant, of_list = probabilities_of(probabilities, labels, min_relevant, lists)
    if not len(p):
        raise ValueError("probabilities must be of at least one document, got none")
    _, number, counts = np.unique(p, return_inverse=True, return_counts=True)
    places = 2 * np.cumsum(counts) - counts  # of 2n, the middle of each value's documents in the order of probabilities
    return p, relevant, of_list, (bins * places // (2 * len(p)))[number]


def reliability(
    probabilities: Any, labels: Any, *, bins: int = 10, min_relevant: float | None = None, **lists: Any
) -> np.ndarray:
    """Predicted and true shares of relevant documents in bins of about equal numbers of documents, for a reliability diagram.

    Arguments are those of `evaluate_probabilities`. Equal probabilities are in one bin, so that there may be fewer.

    Returns:
        A row for each bin, `[bins, 3]`: its number of documents, their mean probability, and the share that is relevant.

    >>> reliability([0.1, 0.1, 0.6, 0.8], [0, 1, 1, 1], bins=2, group=[4]).round(2)
    array([[2. , 0.1, 0.5],
           [2. , 0.7, 1. ]])
    """
    p, relevant, _, of_bin = check_probabilities(probabilities, labels, min_relevant, bins, lists)
    sums = np.stack([np.bincount(of_bin, each, bins) for each in (np.ones(len(p)), p, relevant)], axis=1)
    sums = sums[sums[:, 0] > 0]
    return np.column_stack([sums[:, 0], sums[:, 1:] / sums[:, :1]])


def evaluate_probabilities(
    probabilities: Any,
    labels: Any,
    *,
    bins: int = 10,
    min_relevant: float | None = None,
    level: float | None = 0.95,
    resamples: int = 9999,
    seed: int = 0,
    **lists: Any,
) -> dict[str, tuple[float, ...]]:
    """Expected calibration error, log loss and Brier score of the probabilities of documents, with intervals; lower is better.

        ECE       sum over bins of (documents in it / all documents) |mean probability - share of relevant documents|, in bins of
                  about equal numbers of documents, of which equal probabilities are in one
        log loss  the mean of - t log p - (1 - t) log(1 - p); probabilities within 1e-15 of 0 and 1 count as that
        Brier     the mean of (p - t)^2

    These are means over all documents, not over lists as the measures of rankings are. The intervals are of the percentile
    bootstrap over lists, in fixed bins. ECE is never 0 for a finite number of documents, and larger for fewer.

    Args:
        probabilities: `[..., list_size]`, or flat, from 0 to 1.
        labels: the same shape: grades, or clicks.
        bins: of ECE.
        min_relevant: the lowest label of a relevant document; if None, every label above 0.
        level: of the intervals; None for none.
        resamples, seed: of the bootstrap.
        lists: `where`, `offsets`, `qid` or `group`, as of `rankstruct.evaluate`.

    Returns:
        For each name the value and, with `level`, the ends of its interval; ValueError for wrong lists or numbers.

    >>> found = evaluate_probabilities([[0.9, 0.2], [0.6, 0.3]], [[1, 0], [0, 1]], bins=2)
    >>> {name: round(value[0], 3) for name, value in found.items()}
    {'ECE': 0.25, 'log loss': 0.612, 'Brier': 0.225}
    """
    p, relevant, of_list, of_bin = check_probabilities(probabilities, labels, min_relevant, bins, lists)
    t = relevant.astype(float)
    inside = np.clip(p, _LEAST, 1 - _LEAST)
    number, rows = np.unique(of_list, return_inverse=True)
    sums = np.zeros((len(number), bins + 3))  # of each list: documents, log loss, Brier, excess by bin
    of_documents = np.ones(len(p)), -np.where(relevant, np.log(inside), np.log1p(-inside)), (p - t) ** 2
    for column, each in enumerate(of_documents):
        sums[:, column] = np.bincount(rows, each, len(number))
    np.add.at(sums, (rows, 3 + of_bin), p - t)
    # Each is a function of the means over lists, whose bootstrap is the one of all measures.
    functions = {
        "ECE": lambda means: np.abs(means[..., 3:]).sum(-1) / means[..., 0],
        "log loss": lambda means: means[..., 1] / means[..., 0],
        "Brier": lambda means: means[..., 2] / means[..., 0],
    }
    found: dict[str, tuple[float, ...]] = {}
    for name, of in functions.items():
        ends = () if level is None else bootstrap_interval(sums, level, of_means=of, resamples=resamples, seed=seed)
        found[name] = (float(of(sums.mean(0))), *ends)
    return found
