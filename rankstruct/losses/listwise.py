"""Listwise losses: cross entropies, probabilities of rankings, and smoothed ranks.

A list whose rankings are all equally good (one document, equal labels or gains, all padding) has loss exactly 0 and zero
gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.autograd import forward_ad

from rankstruct.checks import check_numbers
from rankstruct.kernels.pair_sums import smoothed_ranks
from rankstruct.kernels.plackett_luce import log_sums
from rankstruct.lists import Lists, is_concrete, is_plain, refuse_inexact
from rankstruct.losses.base import RankingLoss, padded, takes_kernels, takes_loops
from rankstruct.losses.checks import check_values
from rankstruct.losses.gains import GainLoss, Target, differs, normalized_gains, target_of
from rankstruct.losses.reduction import mean_of_runs
from rankstruct.measures import RR, DiscountedGain, Measure
from rankstruct.measures.ranked import is_relevant

__all__ = ["ApproxNDCGLoss", "ListMLELoss", "ListNetLoss", "SmoothAPLoss", "SoftmaxLoss", "approximate_ranks"]

Ranks = Literal["sigmoid", "hinge"]
_NOTHING = -1e4  # the logarithm of 0


class ListNetLoss(RankingLoss):
    """Top-one cross entropy (ListNet): - sum_i p_i log softmax(s)_i with p the softmax of the labels or of the gains.

    The minimum is the entropy of p, not 0. The loss of a list whose labels are all equal is set to 0. O(n).

    Args:
        target: p is the softmax of `"grade"`, y, or of `"gain"`, 2^y - 1.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Cao, Qin, Liu, Tsai, Li, "Learning to Rank: From Pairwise Approach to Listwise Approach", ICML 2007.

    >>> loss = ListNetLoss()
    >>> loss
    ListNetLoss(target=grade, reduction=mean)
    >>> loss(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(1.7937)
    """

    target: Target = "grade"
    convex = True
    takes_item_weights = True

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        p = _normalized(_softmax(target_of(labels, self.target), where).to(scores.dtype), weights)
        log_q = torch.where(where, scores, torch.finfo(scores.dtype).min).log_softmax(-1)
        return torch.where(differs(labels, where), -torch.where(where, p * log_q, 0.0).sum(-1), 0.0)

    def curvature(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """The softmax q of the scores times 1 - q."""
        q = _softmax(scores, where)
        return torch.where(differs(labels, where).unsqueeze(-1), q * (1 - q), 0.0)


def _softmax(values: Tensor, where: Tensor | None) -> Tensor:
    """Softmax over the real documents, 0 elsewhere; finite even if a list is all padding."""
    if where is None:
        return values.softmax(-1)
    return torch.where(where, torch.where(where, values, torch.finfo(values.dtype).min).softmax(-1), 0.0)


def _normalized(shares: Tensor, weights: Tensor | None) -> Tensor:
    """Shares times item weights, divided by their sum."""
    if weights is None:
        return shares
    shares = shares * weights
    total = shares.sum(-1, keepdim=True)
    return shares / torch.where(total > 0, total, 1.0)


class SoftmaxLoss(RankingLoss):
    """Softmax cross entropy of a list: - sum_i t_i log q_i, where q is the softmax of the scores divided by the temperature.

    Options give the losses known by other names:

    - the softmax loss on raw labels: the defaults; on labels that sum to 1: target `"share"`;
    - unique softmax: target `"gain"`, against `"lower"`;
    - poly-1 softmax: `epsilon=1`;
    - InfoNCE, with one positive or soft targets: target `"share"` and a small temperature;
    - sampled softmax with logQ correction (Yi et al., RecSys 2019): target `"share"`, on lists in which document j is with
      probability q_j, called with `scores - temperature * q.log()`; `SimilarityLoss` has `log_probabilities=`;
    - distillation by Kullback-Leibler divergence: target `"teacher"`, `divergence=True`. (Hinton et al. multiply it by the
      square of the temperature.)

    A list whose labels are all equal has loss 0, except with `"teacher"`, where the student should tie too. Item weights multiply
    t, which `"share"` and `"teacher"` then normalise again. O(n), with `"lower"` O(n log n).

    Args:
        target: t is `"label"`, y; `"share"`, y divided by the sum of the labels; `"gain"`, 2^y - 1; or `"teacher"`, the softmax
            of y divided by the temperature; the labels are then another model's scores, any numbers.
        temperature: above 0, in units of the scores.
        against: the softmax is over `"all"` documents, or over i and the documents with `"lower"` labels.
        epsilon: adds epsilon (1 - sum_i t_i q_i / sum_i t_i), >= 0; if above 0, the loss is not convex.
        divergence: whether to subtract the entropy - sum_i t_i log t_i, so that the minimum against `"all"` is 0 for t that
            sum to 1.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Bruch, Wang, Bendersky, Najork, "An Analysis of the Softmax Cross Entropy Loss for Learning-to-Rank with Binary
    Relevance", ICTIR 2019; Zhu and Klabjan, "Listwise Learning to Rank by Exploring Unique Ratings", WSDM 2020 (lower);
    Leng et al., "PolyLoss", ICLR 2022 (epsilon); van den Oord, Li, Vinyals, 2018 (InfoNCE); Hinton, Vinyals, Dean, 2015.

    >>> SoftmaxLoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(5.9191)
    >>> SoftmaxLoss("share", temperature=0.05)
    SoftmaxLoss(target=share, temperature=0.05, against=all, epsilon=0.0, divergence=False, reduction=mean)
    """

    target: Literal["label", "share", "gain", "teacher"] = "label"
    temperature: float = 1.0
    against: Literal["all", "lower"] = "all"
    epsilon: float = 0.0
    divergence: bool = False
    takes_item_weights = True

    def setup(self) -> None:
        """Check the numbers."""
        check_numbers("> 0", temperature=self.temperature)
        if self.epsilon != 0:
            check_numbers("> 0", epsilon=self.epsilon)

    @property
    def convex(self) -> bool:  # type: ignore[override]
        """Whether the loss is a convex function of the scores, which it is without epsilon."""
        return self.epsilon == 0

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether labels are a teacher's scores."""
        return self.target == "teacher"

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        wanted = self._target(labels, where, weights).to(scores.dtype)
        scores = _below_highest(scores, where) / self.temperature
        scores = scores.clamp(min=torch.finfo(scores.dtype).min)
        if self.against == "all":
            log_q = torch.where(where, scores, torch.finfo(scores.dtype).min).log_softmax(-1)
        else:
            log_q = _against_lower(scores, labels, where)
        value = -torch.where(where, wanted * log_q, 0.0).sum(-1)
        if self.divergence:
            value = value + torch.special.xlogy(wanted, wanted).sum(-1)
        if self.epsilon:
            hit = torch.where(where, wanted * log_q.exp(), 0.0).sum(-1)
            total = wanted.sum(-1)
            value = value + self.epsilon * (1 - hit / torch.where(total > 0, total, 1.0))
        counts = where.any(-1) if self.target == "teacher" else differs(labels, where)
        return torch.where(counts, value, 0.0)

    @property
    def solve(self) -> Callable[..., tuple[Tensor, Tensor]] | None:  # type: ignore[override]
        """Value and gradient together; None with epsilon, or against lower labels."""
        return self._at_once if self.against == "all" and not self.epsilon else None

    def _at_once(self, scores: Tensor, lists: Lists) -> tuple[Tensor, Tensor]:
        """As `per_list` and its gradient, sum(t) q - t over the temperature, in a third of the time."""
        real = check_values(scores, lists, self.takes_negative_labels)
        if not self.takes_negative_labels:
            refuse_inexact(lists.labels, lists.where, scores.dtype)
        labels, weights, flat = lists.labels.to(scores.dtype), lists.item_weights, scores
        if lists.offsets is not None:
            inside, (scores, labels, weights, real) = padded(lists.offsets, scores, labels, weights, real)
            real = inside & real.bool()
        if not scores.shape[-1]:
            return scores.sum(-1), flat.new_zeros(flat.shape)
        masked = lists.where is not None or lists.offsets is not None
        lowest = torch.finfo(scores.dtype).min
        if masked:
            scores = scores.masked_fill(~real, lowest)
            weights = None if weights is None else torch.where(real, weights, 0.0)
        wanted = self._target(labels, real if masked else None, weights).to(scores.dtype)
        # Relative to the highest first, and within the dtype's range: inf - inf and 0 x inf are NaN.
        scaled = (scores - scores.amax(-1, keepdim=True)).div_(self.temperature).clamp_(min=lowest)
        if masked:
            scaled.masked_fill_(~real, _NOTHING)
        value = -(wanted * scaled).sum(-1)
        if self.divergence:
            value += torch.special.xlogy(wanted, wanted).sum(-1)
        q = scaled.exp_()
        total, normalizer = wanted.sum(-1, keepdim=True), q.sum(-1, keepdim=True)
        value += (total * normalizer.log()).squeeze(-1)
        counts = real.any(-1) if self.target == "teacher" else differs(labels, real if masked else None)
        factor = counts.unsqueeze(-1) / self.temperature
        direction = q.mul_(factor * total / normalizer).addcmul_(wanted, factor, value=-1)
        if masked:
            direction.masked_fill_(~real, 0.0)
        return torch.where(counts, value, 0.0), direction if lists.offsets is None else direction[inside]

    def curvature(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """sum(t) q (1 - q), divided by the square of the temperature."""
        q = _softmax(scores / self.temperature, where)
        wanted = self._target(labels, where, weights).to(scores.dtype)
        counts = where if self.target == "teacher" else differs(labels, where).unsqueeze(-1)
        total = wanted.sum(-1, keepdim=True) / self.temperature**2
        return torch.where(counts, total * q * (1 - q), 0.0)

    def second_derivatives(
        self, scores: Tensor, labels: Tensor, offsets: Tensor, item_weights: Tensor | None = None
    ) -> Tensor | None:
        """The diagonal of the Hessian of each list's loss, `[documents]`; None with epsilon, or against lower labels."""
        known = self.against == "all" and not self.epsilon
        return super().second_derivatives(scores, labels, offsets, item_weights) if known else None

    def _target(self, labels: Tensor, where: Tensor | None, weights: Tensor | None) -> Tensor:
        """t, `[..., list_size]`, 0 in the padding; `where` None if there is none."""
        if self.target == "teacher":
            return _normalized(_softmax(labels / self.temperature, where), weights)
        wanted = target_of(labels, self.target)
        wanted = wanted if where is None else torch.where(where, wanted, 0.0)
        if self.target == "share":
            return _normalized(wanted, torch.ones_like(wanted) if weights is None else weights)
        return wanted if weights is None else wanted * weights


def _below_highest(scores: Tensor, where: Tensor) -> Tensor:
    """Scores minus the list's highest, which keeps the precision of those close to it; within the dtype's range."""
    lowest = torch.finfo(scores.dtype).min
    if not scores.shape[-1]:
        return scores
    return (scores - torch.where(where, scores.detach(), lowest).amax(-1, keepdim=True)).clamp(min=lowest)


def _against_lower(scores: Tensor, labels: Tensor, where: Tensor) -> Tensor:
    """Log softmax of each document over itself and those with lower labels, `[..., list_size]`; 0 in the padding.

    Scores are relative to the highest.
    """
    scores = torch.where(where, scores, torch.finfo(scores.dtype).min)
    ascending, order = torch.where(where, labels, torch.inf).sort(dim=-1)
    lower = torch.searchsorted(ascending.contiguous(), labels.contiguous())
    lead = scores - cumulative_logsumexp(scores.gather(-1, order)).gather(-1, (lower - 1).clamp(min=0))
    return torch.nn.functional.logsigmoid(torch.where(where & (lower > 0), lead, torch.inf))


def cumulative_logsumexp(values: Tensor) -> Tensor:
    """`values.logcumsumexp(-1)` of finite values, with finite second derivatives. O(n log n), about the cost of a sort.

    torch's second derivatives are NaN if a slope is 0, such as for a document far below the others.

    >>> cumulative_logsumexp(torch.tensor([0.0, 0.0, -1e4])).exp()
    tensor([1., 2., 2.])
    """
    if torch.compiler.is_compiling():  # which may not know the size, and needs no second derivatives
        return values.logcumsumexp(-1)
    by_kernels = takes_kernels(values) and forward_ad.unpack_dual(values).tangent is None
    return _LogSums.apply(values) if by_kernels else _log_sums(values)


def _log_sums(values: Tensor) -> Tensor:
    step = 1
    while step < values.shape[-1]:
        more = torch.stack([values[..., step:], values[..., :-step]]).logsumexp(0)
        values, step = torch.cat([values[..., :step], more], -1), 2 * step
    return values


class _LogSums(torch.autograd.Function):
    """`cumulative_logsumexp` by kernels of a device; higher-order and forward-mode derivatives are those of `_log_sums`."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        sums = log_sums(values)
        ctx.save_for_backward(values, sums)
        return sums

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        (values, sums), (grad,), again = ctx.saved_tensors, grads, torch.is_grad_enabled()  # create_graph=True
        if not again and takes_kernels(grad) and not torch._C._functorch.is_legacy_batchedtensor(grad):
            return log_sums(values, sums, grad)
        with torch.enable_grad():
            (slope,) = torch.autograd.grad(_log_sums(values), values, grad, create_graph=again)
        return slope


class ListMLELoss(RankingLoss):
    """Negative log likelihood of the ranking by label (ListMLE): the sum over ranks r of log(sum over q >= r of exp(s_q)) - s_r.

    Documents with equal labels are ordered by their current scores, which is the most likely of all rankings consistent with
    the labels. If their scores are also equal, they are ordered by item weight, heaviest first. For the remaining ties, the
    gradient is the mean over all orders. So the loss does not depend on the input order. The item weight of the document at
    rank r multiplies its term. O(n log n).

    Args:
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Xia, Liu, Wang, Zhang, Li, "Listwise Approach to Learning to Rank: Theory and Algorithm", ICML 2008.

    >>> ListMLELoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(3.9333)
    """

    takes_item_weights = True

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        order, ranked, real, _ = ranked_by_label(scores, labels, where, weights)
        each = cumulative_logsumexp(ranked.flip(-1)).flip(-1) - ranked
        each = each if weights is None else each * weights.gather(-1, order)
        return torch.where(differs(labels, where), torch.where(real, each, 0.0).sum(-1), 0.0)

    def curvature(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """The sum of q (1 - q) over the ranks up to the document's own."""
        order, ranked, real, begins = ranked_by_label(scores, labels, where, weights)
        ranked = ranked.double().clamp(min=torch.finfo(torch.float64).min / 4)  # which is doubled below
        rest = ranked.flip(-1).logcumsumexp(-1).flip(-1)
        logs = 0.0 if weights is None else weights.gather(-1, order).log()
        # of q and of q^2
        sums = [torch.exp(power * ranked + (logs - power * rest).logcumsumexp(-1)) for power in (1, 2)]
        each = torch.where(real & differs(labels, where).unsqueeze(-1), (sums[0] - sums[1]).clamp(min=0.0), 0.0)
        return torch.zeros_like(each).scatter(-1, order, mean_of_runs(each, begins)).to(scores.dtype)


def ranked_by_label(
    scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Documents by label, then by score and item weight, all descending.

    Returns:
        The order; the scores in that order minus the highest; the mask of real documents; and where runs of documents that agree
        in all of these begin. The gradient of a run is the mean of its documents'.
    """
    order = None
    for key in (weights, scores.detach(), labels):
        if key is not None:
            key = torch.where(where, key, -torch.inf)
            key = key if order is None else key.gather(-1, order)
            following = key.argsort(dim=-1, descending=True, stable=True)
            order = following if order is None else order.gather(-1, following)
    assert order is not None
    ranked, real = scores.gather(-1, order), where.gather(-1, order)
    begins = ~real
    for key in (scores.detach(), labels, weights):
        if key is not None:
            key = key.gather(-1, order)
            begins = begins | torch.cat([torch.ones_like(begins[..., :1]), key[..., 1:] != key[..., :-1]], -1)
    ranked = torch.where(real, _below_highest(ranked, real), torch.finfo(scores.dtype).min)
    return order, ranked.detach() + mean_of_runs(ranked - ranked.detach(), begins), real, begins


def approximate_ranks(
    scores: Tensor, where: Tensor, temperature: float, asked: Tensor | None = None, *, ranks: Ranks = "sigmoid"
) -> Tensor:
    """Smoothed ranks `[..., list_size]`, 1 + sum over j != i of sigmoid((s_j - s_i) / temperature), of padded lists.

    With ranks `"hinge"` they are upper bounds, 1 + sum over j != i of max(0, 1 + (s_j - s_i) / temperature). Values in the
    padding are arbitrary. Time is O(n) per document in `asked`, for the hinge on the CPU O(n log n) in total, and memory O(n); on
    devices without a kernel, under torch.func and for higher-order derivatives both are O(n^2).

    Args:
        scores, where: `[..., list_size]`.
        temperature: above 0.
        asked: bool, the documents whose ranks are needed; values elsewhere are arbitrary. All if None.
        ranks: `"sigmoid"` or `"hinge"`.

    Source: Qin, Liu, Li, Information Retrieval 2010.

    >>> approximate_ranks(torch.tensor([0.5, 0.0, 2.0]), torch.ones(3, dtype=torch.bool), 0.1)
    tensor([2.0067, 2.9933, 1.0000])
    """
    if takes_loops(scores, on_devices=True):
        return _SmoothedRanks.apply(
            scores, where, where if asked is None else asked, float(temperature), ranks == "hinge"
        )
    return _ranks_of_pairs(scores, where, temperature, ranks == "hinge")


def _ranks_of_pairs(scores: Tensor, where: Tensor, temperature: float, hinge: bool) -> Tensor:
    ahead = (scores.unsqueeze(-2) - scores.unsqueeze(-1)) / temperature
    ahead = (1 + ahead).relu() if hinge else ahead.sigmoid()
    # A document counts as 1 (hinge) or 1/2 (sigmoid) ahead of itself.
    return (0.0 if hinge else 0.5) + torch.where(where.unsqueeze(-2), ahead, 0.0).sum(-1)


class _SmoothedRanks(torch.autograd.Function):
    """Smoothed ranks by a compiled loop or a kernel; higher-order derivatives use all pairs."""

    @staticmethod
    def forward(ctx: Any, scores: Tensor, where: Tensor, asked: Tensor, temperature: float, hinge: bool) -> Tensor:
        ctx.save_for_backward(scores, where)
        ctx.options = temperature, hinge
        return 1 + smoothed_ranks(scores.detach(), Lists(asked, where), 0.0, temperature, hinge, False)[2]

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        (scores, where), (grad,), again = ctx.saved_tensors, grads, torch.is_grad_enabled()  # create_graph=True
        if again or not is_concrete(grad) or torch._C._functorch.is_legacy_batchedtensor(grad):  # is_grads_batched=True
            with torch.enable_grad():
                ranks = _ranks_of_pairs(scores, where, *ctx.options)
            (slope,) = torch.autograd.grad(ranks, scores, torch.where(where, grad, 0.0), create_graph=again)
        elif is_plain(grad) and not bool(grad.isfinite().all()):
            slope = torch.where(where, torch.nan, torch.zeros_like(scores))
        else:
            slope = smoothed_ranks(scores.detach(), Lists(where, where, None, grad), 0.0, *ctx.options, True)[2]
            if not is_plain(grad):  # is not looked at
                slope = torch.where(where & ~grad.isfinite().all(), torch.nan, slope)
        return slope, None, None, None, None


class ApproxNDCGLoss(GainLoss):
    """1 - nDCG at smoothed ranks (ApproxNDCG): r_i = 1 + sum over j != i of sigmoid((s_j - s_i) / temperature).

    A cut-off k multiplies each document's discount by sigmoid((k + 1/2 - r_i) / temperature). As the temperature goes to 0,
    the loss tends to 1 - nDCG if no scores are equal. The gradient vanishes if all differences are large compared with the
    temperature. On the CPU and on CUDA and ROCm devices, the time is O(n) per document with a gain and the memory O(n); elsewhere
    both are O(n^2).

    With measure `RR` the loss is ApproxMRR, 1 - the mean of 1 / r_i over the relevant documents. (Only one document can be
    first, so with several relevant ones the minimum is above 0.)

    With ranks `"hinge"`, r_i = 1 + sum over j != i of max(0, 1 - (s_i - s_j) / temperature), the loss is the hinge bound of
    DCG. It is never less than 1 - nDCG, and its gradient vanishes only if documents are well separated in the right order; O(n
    log n) on the CPU.

    Args:
        measure: nDCG with any options and cut-off, or another normalised discounted gain, whose discount is evaluated at
            fractional ranks and must be smooth; or `RR`.
        temperature: above 0, in units of the scores.
        ranks: `"sigmoid"`, or `"hinge"` for a measure without a cut-off.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Qin, Liu, Li, "A General Approximation Framework for Direct Optimization of Information Retrieval Measures",
    Information Retrieval 2010. The hinge: Agarwal, Takatsu, Zaitsev, Joachims, "A General Framework for Counterfactual
    Learning-to-Rank", SIGIR 2019.

    >>> ApproxNDCGLoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([2, 1, 0]))
    tensor(0.3419)
    >>> ApproxNDCGLoss("nDCG@10")
    ApproxNDCGLoss(nDCG@10, temperature=0.1, ranks=sigmoid, reduction=mean)
    """

    temperature: float = 0.1
    ranks: Ranks = "sigmoid"
    takes_item_weights = True

    def setup(self) -> None:
        """Parse the measure, and check the numbers."""
        check_numbers("> 0", temperature=self.temperature)
        super().setup()
        if self.ranks == "hinge" and self.gain.cutoff is not None:
            raise ValueError(f"ranks='hinge' requires a measure without a cut-off, got {self.gain.name}")

    def checked(self, measure: Measure) -> Any:
        """A normalised discounted gain, or RR."""
        return measure if isinstance(measure, RR) else super().checked(measure)

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        measure: DiscountedGain | RR = self.gain
        if isinstance(measure, RR):
            relevant = torch.where(where, is_relevant(labels, measure.min_relevant), False)
            gains = _normalized(relevant.double(), torch.ones_like(scores) if weights is None else weights)
            can_err = differs(relevant.to(scores.dtype), where)
        else:
            gains, can_err = normalized_gains(measure, labels, where, weights)
        found = approximate_ranks(scores, where, self.temperature, gains > 0, ranks=self.ranks)
        smooth = found.double().clamp(min=1)
        discounts = 1 / smooth if isinstance(measure, RR) else measure.discounts(smooth)
        if measure.cutoff is not None:
            discounts = discounts * ((measure.cutoff + 0.5 - found) / self.temperature).sigmoid()
        value = 1 - torch.where(where, gains * discounts, 0.0).sum(-1)
        return torch.where(can_err, value, 0.0).to(scores.dtype)


class SmoothAPLoss(RankingLoss):
    """1 - AP at smoothed ranks (Smooth-AP): 1 - the mean over relevant documents i of r+_i / r_i.

    r_i = 1 + sum over j != i of sigmoid((s_j - s_i) / temperature), and r+_i is the same over relevant j only. As the temperature
    goes to 0, the loss tends to 1 - AP if no scores are equal; its gradient vanishes if all differences are large compared with
    the temperature. Item weights apply to the mean, not to the ranks. With p relevant documents O(p n) time and O(n) memory on
    the CPU and on CUDA and ROCm devices, O(n^2) of both elsewhere.

    Args:
        temperature: above 0, in units of the scores; the paper uses 0.01 for cosine similarities.
        min_relevant: the lowest grade that counts as relevant; None for every label above 0.
        reduction: `"mean"`, `"sum"` or `"none"`.

    Source: Brown, Xie, Kalogeiton, Zisserman, "Smooth-AP: Smoothing the Path Towards Large-Scale Image Retrieval", ECCV 2020.

    >>> SmoothAPLoss()(torch.tensor([0.5, 0.0, 2.0]), torch.tensor([1, 1, 0]))
    tensor(0.4162)
    """

    temperature: float = 0.1
    min_relevant: float | None = None
    takes_item_weights = True

    def setup(self) -> None:
        """Check the temperature."""
        check_numbers("> 0", temperature=self.temperature)

    @property
    def takes_negative_labels(self) -> bool:  # type: ignore[override]
        """Whether `min_relevant` is 0 or less, so that labels may be negative."""
        return self.min_relevant is not None and self.min_relevant <= 0

    def per_list(self, scores: Tensor, labels: Tensor, where: Tensor, weights: Tensor | None = None) -> Tensor:
        """One value per list."""
        relevant = where & is_relevant(labels, self.min_relevant)
        wanted = relevant.to(scores.dtype)
        shares = _normalized(wanted, torch.ones_like(scores) if weights is None else weights)
        first, every = (approximate_ranks(scores, kind, self.temperature, relevant) for kind in (relevant, where))
        return torch.where(differs(wanted, where), 1 - (shares * first / every).sum(-1), 0.0)
