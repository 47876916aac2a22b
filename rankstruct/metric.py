"""Metrics of torchmetrics: `RankingMetric` averages measures over batches, `CalibrationMetric` judges probabilities."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from rankstruct.argument_names import TELL_APART, knows_cutoffs, knows_qid, refuse_groups_of_lists
from rankstruct.calibration import check_bins, evaluate_probabilities, probabilities_of
from rankstruct.checks import check_numbers
from rankstruct.lists import ListColumns, lists_of
from rankstruct.measures.base import ByMeasure, Measure, parse_measures, resolve_policies
from rankstruct.measures.ranked import TIES, Convention, Empty, Ties, rank_lists

__all__ = ["CalibrationMetric", "RankingMetric"]


class RankingMetric(Metric):
    """Means of measures over lists, accumulated batch by batch; the same for any number of processes.

    Sums and counts are float64, whatever the precision of the surrounding model. Lists that are all padding are left out, and
    with `empty="skip"` also those with nothing relevant.

    Args:
        measures: names or objects.
        ties: as in `evaluate`, except for `"docid"`; `empty` and `convention` are as there.
        prefix: prepended to the names that `compute` returns.

    Raises:
        ValueError: unknown measures or options.

    >>> metric = RankingMetric(["AP", "RR@10"])
    >>> metric
    RankingMetric(AP, RR@10)
    >>> metric.update(torch.tensor([[3.0, 2.0, 1.0], [1.0, 1.0, 0.0]]), torch.tensor([[0, 1, 1], [0, 1, 0]]))
    >>> metric.compute()
    {'AP': tensor(0.6667, dtype=torch.float64), 'RR@10': tensor(0.6250, dtype=torch.float64)}
    """

    is_differentiable = False
    higher_is_better = True
    full_state_update = False

    @knows_cutoffs
    def __init__(
        self,
        measures: str | Measure | Iterable[str | Measure],
        *,
        ties: Ties = "expected",
        empty: Empty = 0,
        convention: Convention | None = None,
        prefix: str = "",
        **metric_options: Any,
    ) -> None:
        super().__init__(**metric_options)
        if ties not in TIES or ties == "docid":
            raise ValueError(f"ties of a RankingMetric must be 'expected', 'input' or 'worst', got {ties!r}")
        self.measures, self.prefix = parse_measures(measures), prefix
        self.ties, self.empty, self.convention = resolve_policies(ties, empty, convention), empty, convention
        # A MetricCollection merges metrics whose states have equal names and, after one batch, equal values; so the
        # name includes all that the state depends on. Rows: sums, lists counted, undefined lists.
        names = [measure.name for measure in self.measures]
        self._state = f"totals of {names}, ties {self.ties}, empty {empty}, convention {convention}"
        self.add_state(self._state, torch.zeros(3, len(self.measures), dtype=torch.float64), dist_reduce_fx="sum")

    @knows_qid  # preserves the signature, by which a MetricCollection selects the arguments of each metric
    @torch.no_grad()
    def update(
        self,
        scores: Tensor,
        labels: Tensor,
        *,
        where: Tensor | None = None,
        offsets: Tensor | None = None,
        qid: Any = None,
        group: Any = None,
        diversity_groups: Tensor | None = None,
        judged: Tensor | None = None,
        pooled: Tensor | None = None,
        item_weights: Tensor | None = None,
    ) -> None:
        """Add a batch, padded `[..., list_size]` or flat `[documents]` with `offsets`, `qid` or `group`, as in `evaluate`.

        All documents of a list must be in the same batch.
        """
        columns: ListColumns = {"where": where, "offsets": offsets, "qid": qid, "group": group}
        columns |= {
            "diversity_groups": diversity_groups,
            "judged": judged,
            "pooled": pooled,
            "item_weights": item_weights,
        }
        scores, lists = lists_of(scores, labels, columns)
        if not any(measure.takes_groups for measure in self.measures):
            refuse_groups_of_lists(lists.diversity_groups, lists.shape(), TELL_APART)
        signed = all(measure.takes_negative_labels for measure in self.measures)
        totals = getattr(self, self._state).clone()
        for ranked in rank_lists(scores, lists, self.ties, letor=self.convention == "letor", signed=signed):
            present = ranked.where.any(-1)
            for column, measure in enumerate(self.measures):
                values, defined = measure.judge(ranked, self.empty)
                counted = defined if self.empty == "skip" else present
                news = torch.stack([values[counted].sum(), counted.sum(), (present & ~defined).sum()])
                totals[:, column] += news.to(totals.device)
        setattr(self, self._state, totals)

    def extra_repr(self) -> str:
        """The measures and the options that are not the defaults."""
        options: dict[str, tuple[Any, Any]] = {"ties": (self.ties, "expected"), "empty": (self.empty, 0)}
        options |= {"convention": (self.convention, None), "prefix": (self.prefix, "")}
        chosen = [f"{name}={value}" for name, (value, default) in options.items() if value != default]
        return ", ".join([*(measure.name for measure in self.measures), *chosen])

    def compute(self) -> dict[str, Tensor]:
        """The means as `{prefix + name: mean}`, float64 scalars; NaN if no list was counted."""
        sums, counts, _ = getattr(self, self._state)
        names = [self.prefix + measure.name for measure in self.measures]
        return ByMeasure(zip(names, sums / counts, strict=True))

    def plot(self, val: Any = None, ax: Any = None) -> Any:
        """Plot results with matplotlib; returns figure and axes.

        Args:
            val: a result of `compute` or `forward`, or a sequence of results, drawn as lines; `compute()` if None.
            ax: axes to draw into; new ones if None.

        >>> metric = RankingMetric("AP")
        >>> metric.update(torch.tensor([2.0, 1.0]), torch.tensor([0, 1]))
        >>> figure, axes = metric.plot()
        """
        return self._plot(val, ax)

    def empty_lists(self) -> dict[str, int]:
        """The number of lists with nothing relevant (for AUC also everything), by measure; summed over processes under DDP."""
        with self.sync_context(dist_sync_fn=self.dist_sync_fn, should_sync=self._to_sync):
            counts = getattr(self, self._state)[2].tolist()
        return {measure.name: int(count) for measure, count in zip(self.measures, counts, strict=True)}

    def _apply(self, fn: Callable[..., Any], exclude_state: Sequence[str] = "") -> RankingMetric:
        """Move with the module to another device, but never to another dtype: half precision cannot count to 3000."""
        totals, default = getattr(self, self._state), self._defaults[self._state]
        super()._apply(fn, exclude_state)
        device = getattr(self, self._state).device
        setattr(self, self._state, totals.to(device))
        self._defaults[self._state] = default.to(device)  # type: ignore[union-attr]
        return self


class CalibrationMetric(Metric):
    """A torchmetrics metric of ECE, log loss and Brier score, as `evaluate_probabilities` computes them over all batches.

    Args:
        bins, min_relevant: as there.

    >>> metric = CalibrationMetric(bins=2)
    >>> metric.update(torch.tensor([[0.9, 0.2], [0.6, 0.3]]), torch.tensor([[1, 0], [0, 1]]))
    >>> {name: round(float(value), 3) for name, value in metric.compute().items()}
    {'ECE': 0.25, 'log loss': 0.612, 'Brier': 0.225}
    """

    is_differentiable = False
    higher_is_better = False
    full_state_update = False
    probabilities: list[Tensor]
    relevant: list[Tensor]

    def __init__(self, *, bins: int = 10, min_relevant: float | None = None, **metric_options: Any) -> None:
        super().__init__(**metric_options)
        check_bins(bins)
        check_numbers(optional=True, min_relevant=min_relevant)
        self.bins, self.min_relevant = bins, min_relevant
        self.add_state("probabilities", [], dist_reduce_fx="cat")
        self.add_state("relevant", [], dist_reduce_fx="cat")

    def update(self, probabilities: Tensor, labels: Tensor, where: Tensor | None = None) -> None:
        """Add a batch, `[..., list_size]`; `where` marks real documents."""
        p, relevant, _ = probabilities_of(probabilities, labels, self.min_relevant, {"where": where})
        self.probabilities.append(torch.from_numpy(p).to(self.device))
        self.relevant.append(torch.from_numpy(relevant).to(self.device))

    def compute(self) -> dict[str, Tensor]:
        """The values by name, float64 scalars; NaN if there was no document."""
        none = torch.zeros(0, dtype=torch.float64, device=self.device)
        p, relevant = (
            torch.cat([none, *each]) if isinstance(each, list) else each for each in (self.probabilities, self.relevant)
        )
        if not len(p):
            return {name: torch.tensor(torch.nan, dtype=torch.float64) for name in ("ECE", "log loss", "Brier")}
        found = evaluate_probabilities(p, relevant.long(), bins=self.bins, level=None, group=[len(p)])
        return {name: torch.tensor(value, dtype=torch.float64) for name, (value,) in found.items()}
