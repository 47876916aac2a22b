"""Lists for training over a catalogue: all items of each user in a batch, or the known items and sampled others.

A batch of users has scores `[users, list_size]` and labels, 1 for the items that the user knows from training and 0 for others,
as any loss takes them. The losses of lists with all items are computed for blocks of users, on a GPU too.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import torch
from torch import Tensor, nn

from rankstruct.checks import check_choice, check_flags, check_integers
from rankstruct.lists import is_under_autocast
from rankstruct.losses import RankingLoss
from rankstruct.losses.reduction import HALVES
from rankstruct.models.scorers import evaluating
from rankstruct.processes import Team
from rankstruct.recommenders.factorization import MatrixFactorization
from rankstruct.recommenders.ratings import interactions
from rankstruct.recommenders.tables import Table, loss_of_rows

__all__ = ["Negatives", "TrainingLists", "fold_in"]

Kind = Literal["all", "uniform", "popularity", "in-batch"]

_BLOCK = 2**21  # scores at once on a CPU, which stay in the caches between the loss and its products
_DEVICE_BLOCK = 2**25  # on other devices, which are not busy with fewer: 128 MiB, and a few times that in the loss


@dataclass(frozen=True)
class Negatives:
    """The items of a training list that its user does not know.

    Args:
        kind: `"all"` others; `"uniform"` or `"popularity"`, `number` items drawn for each list with equal probabilities or in
            proportion to their interactions, those that the user knows masked; or `"in-batch"`, the known items of the other
            lists of the batch.
        number: number of items drawn for each list.
        correct: subtract the logarithm of the expected number of draws from the scores of sampled items (logQ correction), so
            that a softmax estimates that over all items; of `"in-batch"` also from that of the known item.
        pairs: whether a list has a single known item, as pairwise training has it, and a user as many lists as known items.

    Raises:
        ValueError: an unknown kind, a number below 1, or an option that the kind does not have.

    Source: Bengio and Senecal, "Adaptive Importance Sampling to Accelerate Training of a Neural Probabilistic Language Model",
    IEEE Transactions on Neural Networks 2008; Yi et al., "Sampling-Bias-Corrected Neural Modeling for Large Corpus Item
    Recommendations", RecSys 2019 (in-batch).

    >>> Negatives("uniform", number=512, correct=True)
    Negatives(kind='uniform', number=512, correct=True, pairs=False)
    """

    kind: Kind = "all"
    number: int = 1
    correct: bool = False
    pairs: bool = False

    def __post_init__(self) -> None:
        check_choice("negatives", self.kind, get_args(Kind))
        check_integers(1, number=self.number)
        check_flags(correct=self.correct, pairs=self.pairs)
        if self.kind in ("all", "in-batch") and self.number != 1:
            raise ValueError(
                f"number is for negatives 'uniform' and 'popularity'; got {self.number} with {self.kind!r}"
            )
        if self.kind == "all" and self.correct:
            raise ValueError("correct is for sampled negatives; with negatives 'all' nothing is sampled")
        if self.kind == "all" and self.pairs:
            raise ValueError("pairs requires sampled negatives, such as 'uniform'; with 'all' a list has all items")

    @classmethod
    def of(cls, given: Negatives | Kind) -> Negatives:
        """Negatives as they are, or those of a kind."""
        return given if isinstance(given, Negatives) else cls(given)


class TrainingLists:
    """Scores, labels and mask of the training lists of a batch of users.

    Args:
        train: the training interactions.
        negatives: the items ranked with those that a user knows, `Negatives` or their kind.

    >>> from rankstruct.recommenders import interactions
    >>> lists = TrainingLists(interactions([0, 1], [1, 2]))
    >>> scores, labels, where = lists(MatrixFactorization(2, 3), torch.tensor([0, 1]), torch.tensor([[1], [2]]))
    >>> labels
    tensor([[0., 1., 0.],
            [0., 0., 1.]])
    """

    def __init__(self, train: Any, negatives: Negatives | Kind = "all") -> None:
        self.negatives, train = Negatives.of(negatives), interactions(train)
        self.keys = torch.from_numpy(train.keys())
        self._draw_by(torch.from_numpy(np.bincount(train.item, minlength=train.num_items)))

    def _draw_by(self, counts: Tensor) -> None:
        """Set the probabilities of the items, from the numbers of their interactions."""
        self.num_items, counts = len(counts), counts.double()
        uniform = self.negatives.kind == "uniform"
        self.probability = torch.full_like(counts, 1 / len(counts)) if uniform else counts / counts.sum()
        self.cumulative = self.probability.cumsum(0)

    def __call__(
        self, scorer: MatrixFactorization, users: Tensor, items: Tensor, real: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        """The lists of users `[users]` with their known items `[users, known]`, real where `real`: scores, labels and mask."""
        real = torch.ones_like(items, dtype=torch.bool) if real is None else real
        if self.negatives.kind == "all":
            of_users, of_items = scorer.vectors(users)
            scores = of_users @ of_items.T
            return scores, _labels(scores, items, real), None
        if self.negatives.kind == "in-batch":
            return self._in_batch(scorer, users, items[real], real)
        drawn = torch.rand(len(users), self.negatives.number, dtype=torch.float64, device=users.device)
        others = torch.searchsorted(self.cumulative.to(users.device), drawn).clamp(max=self.num_items - 1)
        scores = _pair_scores(scorer, users, torch.cat([items, others], 1))
        if self.negatives.correct:
            offset = self._log_probability(others, scores) + np.log(self.negatives.number)
            scores = torch.cat([scores[:, : items.shape[1]], scores[:, items.shape[1] :] - offset], 1)
        labels = torch.cat([real.to(scores), torch.zeros_like(others, dtype=scores.dtype)], 1)
        return scores, labels, torch.cat([real, ~self._known(users[:, None], others)], 1)

    def mean_loss(
        self,
        scorer: MatrixFactorization,
        loss: nn.Module,
        users: Tensor,
        items: Tensor,
        real: Tensor | None = None,
    ) -> Tensor:
        """The loss of the lists, a mean over them; arguments as in the call.

        With all items, the scores and gradients of a block of users are in memory at once; those of half precision are computed
        in float32. If items are split over processes, the loss is the same in all, see `rankstruct.recommenders.tables`.

        >>> import rankstruct as rs
        >>> from rankstruct.recommenders import interactions
        >>> lists = TrainingLists(interactions([0, 1], [1, 2]))
        >>> scorer = MatrixFactorization(2, 3, scale=0.0)
        >>> lists.mean_loss(scorer, rs.SoftmaxLoss(), torch.tensor([0, 1]), torch.tensor([[1], [2]])).item()  # log 3
        1.0986123085021973
        """
        table = scorer.item_factors
        if not (self.negatives.kind == "all" and (table.is_split or _separable(loss))):
            scores, labels, where = self(scorer, users, items, real)
            return loss(scores, labels, where=where)
        real = torch.ones_like(items, dtype=torch.bool) if real is None else real
        of_rows = loss_of_rows(loss) if table.is_split else None

        def block_loss(rows: slice, scores: Tensor) -> Tensor:
            labels = _labels(scores, *table.held(items[rows], real[rows]))
            return loss(scores, labels) if of_rows is None else of_rows(scores, labels, table)

        vectors = [each.float() if each.dtype in HALVES else each for each in scorer.vectors(users)]  # sums over blocks
        under = is_under_autocast(vectors[0])
        with torch.autocast(vectors[0].device.type, enabled=False) if under else nullcontext():
            return _MeanOfBlocks.apply(*vectors, block_loss, table)

    def _in_batch(
        self, scorer: MatrixFactorization, users: Tensor, items: Tensor, real: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        owner = torch.arange(len(users), device=users.device).repeat_interleave(real.sum(1))
        own = owner == torch.arange(len(users), device=users.device)[:, None]
        of_users, of_items = scorer.vectors(users)
        scores = of_users @ scorer.item_factors.rows_of(of_items, items).T
        if self.negatives.correct:
            scores = scores - self._log_probability(items, scores)
        return scores, own.to(scores), own | ~self._known(users[:, None], items.expand_as(own))

    def _log_probability(self, items: Tensor, like: Tensor) -> Tensor:
        return self.probability.to(items.device)[items].log().to(like)

    def _known(self, users: Tensor, items: Tensor) -> Tensor:
        """Whether pairs are training interactions."""
        pairs, keys = users * self.num_items + items, self.keys.to(items.device)
        return keys[torch.searchsorted(keys, pairs).clamp(max=len(keys) - 1)] == pairs


class Encoded:
    """The vectors of lists `[lists, width]` and of all items `[items, width]` that some model computed, as a scorer of lists."""

    def __init__(self, lists: Tensor, items: Tensor) -> None:
        self.lists, self.items, self.num_items = lists, items, len(items)
        self.item_factors = Table(len(items), items.detach(), Team())

    def vectors(self, lists: Tensor) -> tuple[Tensor, Tensor]:
        """Those of all lists, which are in order, and of all items."""
        return self.lists, self.items

    def pair_scores(self, lists: Tensor, items: Tensor) -> Tensor:
        """The scores of pairs."""
        return (self.lists[lists] * self.items[items]).sum(-1)


class TargetLists(TrainingLists):
    """Training lists with one known item each, their target.

    Args:
        counts: the numbers of interactions of the items, `[items]`.
        negatives: the items ranked with the target.

    >>> import rankstruct as rs
    >>> encoded = Encoded(torch.eye(2), torch.zeros(3, 2))
    >>> TargetLists(np.array([2, 1, 1]), Negatives()).mean(encoded, torch.tensor([0, 2]), rs.SoftmaxLoss()).item()  # log 3
    1.0986123085021973
    """

    def __init__(self, counts: np.ndarray, negatives: Negatives) -> None:
        self.negatives = negatives
        self._draw_by(torch.from_numpy(counts))

    def mean(self, encoded: Encoded, targets: Tensor, loss: RankingLoss) -> Tensor:
        """The mean loss of lists with these targets `[lists]`."""
        lists = torch.arange(len(targets), device=targets.device)
        self.keys = lists * self.num_items + targets
        return self.mean_loss(cast(Any, encoded), loss, lists, targets[:, None])


def _labels(scores: Tensor, items: Tensor, real: Tensor) -> Tensor:
    """The labels of all items, 1 for the known ones of each row, `items` where `real`."""
    return torch.zeros_like(scores).scatter_reduce_(1, torch.where(real, items, 0), real.to(scores), "amax")


def _separable(loss: nn.Module) -> bool:
    """Whether the loss of a batch is known to be the mean of those of its users, with no weights or scaling of its own."""
    trained = any(weight.requires_grad for weight in loss.parameters())
    mean = isinstance(loss, RankingLoss) and loss.reduction == "mean" and not hasattr(loss, "slacks")
    return mean and not trained


class _MeanOfBlocks(torch.autograd.Function):
    """The mean loss of users as a function of their vectors and those of all items, whose gradients are computed with it.

    No gradient of the scores outlives its block. Higher-order derivatives are those of all scores at once. If the rows of the
    table are split, `of_items` are those of this process, and the gradients of users are summed over processes.
    """

    @staticmethod
    def forward(
        ctx: Any, of_users: Tensor, of_items: Tensor, block_loss: Callable[[slice, Tensor], Tensor], table: Table
    ) -> Tensor:
        at_once = _BLOCK if of_users.is_cpu else _DEVICE_BLOCK
        size, total = max(at_once // max(table.most, 1), 1), of_users.new_zeros(())
        user_grads, item_grads = torch.zeros_like(of_users), torch.zeros_like(of_items)
        memory = of_users.new_empty(min(size, len(of_users)), len(of_items))
        for start in range(0, len(of_users), size):
            rows = slice(start, start + size)
            vectors = of_users[rows]
            scores = torch.mm(vectors, of_items.T, out=memory[: len(vectors)].detach())
            share = len(vectors) / len(of_users)
            if not any(ctx.needs_input_grad):
                total += share * block_loss(rows, scores)
                continue
            with torch.enable_grad():
                value = block_loss(rows, scores.requires_grad_())
            (grads,) = torch.autograd.grad(value, scores)
            torch.addmm(user_grads[rows], grads, of_items, beta=0, alpha=share, out=user_grads[rows])
            item_grads.addmm_(grads.T, vectors, alpha=share)
            total += share * value.detach()
        user_grads = table.summed(user_grads)
        ctx.save_for_backward(of_users, of_items, user_grads, item_grads)
        ctx.block_loss = block_loss
        return total

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, Tensor | None, None, None]:
        of_users, of_items, user_grads, item_grads = ctx.saved_tensors
        if torch.is_grad_enabled():  # create_graph=True
            value = ctx.block_loss(slice(0, None), of_users @ of_items.T)
            wanted = [each for each in (of_users, of_items) if each.requires_grad]
            found = iter(torch.autograd.grad(value, wanted, grads[0], create_graph=True))
            for_users = next(found) if of_users.requires_grad else None
            return for_users, next(found) if of_items.requires_grad else None, None, None
        if not grads[0].is_cpu or float(grads[0]) != 1:  # a look at a number of a GPU would wait for it
            user_grads, item_grads = grads[0] * user_grads, grads[0] * item_grads
        return user_grads, item_grads, None, None


def _pair_scores(scorer: MatrixFactorization, users: Tensor, items: Tensor) -> Tensor:
    """The scores of items `[users, list_size]`; of many, from the vectors of all items, which are then computed once each."""
    if items.numel() < scorer.num_items:
        return scorer.pair_scores(users[:, None], items)
    of_users, of_items = scorer.vectors(users)
    return torch.bmm(scorer.item_factors.rows_of(of_items, items), of_users.unsqueeze(-1)).squeeze(-1)


def fold_in(
    scorer: MatrixFactorization,
    known: Any,
    loss: nn.Module,
    *,
    steps: int = 50,
    learning_rate: float = 0.05,
    users_per_batch: int = 256,
) -> Tensor:
    """Fit the factors `[users, rank]` of new users to their interactions, with the items fixed, by steps of Adam.

    The scores of all items are `scorer.factor_scores(factors)`. Each starts from the mean factor of the user's items, 0 for a
    user with none; the other items of the catalogue are the negatives.

    Args:
        scorer: the factorisation, unchanged.
        known: the interactions of the new users, with the items of the scorer.
        loss: the loss used in training.
        steps: number of steps.
        learning_rate: of Adam.
        users_per_batch: users fitted at once; memory is users times items.

    Raises:
        ValueError: the items are not those of the scorer.

    >>> import rankstruct as rs
    >>> from rankstruct.recommenders import interactions
    >>> scorer = MatrixFactorization(2, 6, rank=4, temperature=0.2)
    >>> new = interactions([0, 0], [1, 2], item_names=range(6))
    >>> scores = scorer.factor_scores(fold_in(scorer, new, rs.SoftmaxLoss()))
    >>> sorted(scores[0].topk(2).indices.tolist())
    [1, 2]
    """
    known = interactions(known)
    if known.num_items != scorer.num_items:
        raise ValueError(f"known must have the {scorer.num_items} items of the scorer, got {known.num_items}")
    matrix = known.to_csr().astype(np.float32)
    with evaluating(scorer), torch.enable_grad():
        table = scorer._tables(None)[1].detach()
        found = table.new_zeros(known.num_users, scorer.rank)
        for start in range(0, known.num_users, users_per_batch):
            labels = torch.from_numpy(matrix[start : start + users_per_batch].toarray()).to(table)
            sizes = labels.sum(1, keepdim=True)
            factors = (labels @ table / sizes.clamp(min=1)).requires_grad_()
            optimizer = torch.optim.Adam([factors], lr=learning_rate)
            for _ in range(steps):
                value = loss(scorer.scores_of(factors, table), labels)
                (factors.grad,) = torch.autograd.grad(value, factors)
                optimizer.step()
            found[start : start + users_per_batch] = torch.where(sizes == 0, 0.0, factors.detach())
    return found
