"""Tables of factors that may be split by rows over processes, and the losses that can be computed from such rows.

Process p has consecutive rows, and with them their gradients and the state of the optimiser. All processes take the same steps
on the same batches. A row that a batch looks up is sent to all (a sum in which the others have zeros), so what is computed from
it, such as the loss of sampled items, is the same everywhere; its gradient is too, and the owner of the row keeps it.

The scores s_j of all items j of a user are never in one process. With the highest score m over all processes (the first
all-reduce), and S = sum_j exp(s_j - m), H = sum_i w_i (s_i - m) and W = sum_i w_i over the items i that the user knows (sums of
the sums of each process: the second all-reduce), the softmax loss is

    sum_i w_i (log sum_j exp(s_j) - s_i) = W log S - H,

since m cancels: the value of one process, but for the order of the sums. Its derivative by s_j, W exp(s_j - m) / S - w_j, needs
nothing from others. So each process has the whole gradient of its rows, V_j, which is sum over users of d/ds_j u. That of a
user's vector u, sum_j d/ds_j V_j, is a sum over processes (the third all-reduce).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from rankstruct.losses import SoftmaxLoss, TopKSoftmaxLoss
from rankstruct.processes import Team, highest, stacked, summed

__all__: list[str] = []

_DRAWN = 2**16  # rows drawn at once, a multiple of 16


class Table(nn.Embedding):
    """An embedding of which this process has the rows `own`, all of them in a team of one process.

    Args:
        total: the number of rows of the table.
        weight: the own rows, `[own, width]`.
        team: the processes that share it, which call its methods together.
        sparse: whether gradients are sparse; only in a team of one process.
    """

    def __init__(self, total: int, weight: Tensor, team: Team, sparse: bool = False) -> None:
        super().__init__(weight.shape[0], weight.shape[1], sparse=sparse, _weight=weight)
        self.total, self.team, self.own = total, team, team.share(total)

    @property
    def is_split(self) -> bool:
        """Whether other processes have rows."""
        return self.team.world_size > 1

    @property
    def most(self) -> int:
        """The number of rows of the process that has most."""
        return -(-self.total // self.team.world_size)

    def forward(self, index: Tensor) -> Tensor:
        """The rows of the whole table with these indices, `[..., width]`, the same in all processes."""
        return self.rows_of(self.weight, index) if self.is_split else super().forward(index)

    def rows_of(self, values: Tensor, index: Tensor) -> Tensor:
        """As the call, of `values` `[own, width]` that were computed from the own rows."""
        if not self.is_split:
            return nn.functional.embedding(index, values)
        at, here = self.held(index, torch.ones_like(index, dtype=torch.bool))
        found = nn.functional.embedding(at.clamp(0, len(values) - 1), values)
        return _Sum.apply(torch.where(here.unsqueeze(-1), found, 0.0))

    def held(self, index: Tensor, real: Tensor) -> tuple[Tensor, Tensor]:
        """The places among the own rows of indices, and which of the `real` ones are own."""
        if not self.is_split:
            return index, real
        return index - self.own.start, real & (index >= self.own.start) & (index < self.own.stop)

    def summed(self, values: Tensor) -> Tensor:
        """The sum over the processes that have rows."""
        return summed(values) if self.is_split else values


class _Sum(torch.autograd.Function):
    """The sum over processes, from which all compute the same: the gradient of each is that of the sum."""

    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        return summed(values)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        return grads[0]


def drawn_rows(total: int, width: int, team: Team, generator: torch.Generator) -> Tensor:
    """The own rows of a table of standard normal numbers, those that one process would draw at once, without the whole table."""
    if team.world_size == 1:
        return torch.randn(total, width, generator=generator)
    own, starts = team.share(total), [*range(0, total, _DRAWN)]
    if len(starts) > 1 and (total - starts[-1]) * width < 16:  # which torch draws in another way
        starts.pop()
    found = torch.empty(own.stop - own.start, width)
    for start, stop in zip(starts, [*starts[1:], total], strict=True):
        drawn = torch.randn(stop - start, width, generator=generator)
        first, last = max(start, own.start), min(stop, own.stop)
        if first < last:
            found[first - own.start : last - own.start] = drawn[first - start : last - start]
    return found


def check_enough(team: Team, num_users: int, num_items: int) -> None:
    """Raise ValueError if there are fewer users or items than processes."""
    for what, number in (("users", num_users), ("items", num_items)):
        if number < team.world_size:
            raise ValueError(
                f"tables split over processes require as many {what} as processes or more, got {number} {what} and "
                f"{team.world_size} processes; start fewer"
            )


def loss_of_rows(loss: nn.Module) -> Callable[[Tensor, Tensor, Table], Tensor]:
    """A loss over all items, a mean over users, as a function of the scores and labels (0 or 1) `[users, own]` of the own rows.

    Raises:
        ValueError: the loss compares items of different processes otherwise than by sums over them.
    """
    is_softmax = type(loss) is SoftmaxLoss and loss.target != "teacher" and loss.against == "all"
    is_plain = is_softmax and not (loss.epsilon or loss.divergence)
    if (is_plain or type(loss) is TopKSoftmaxLoss) and loss.reduction == "mean":
        return partial(_softmax, loss)
    raise ValueError(
        f"shards='processes' takes SoftmaxLoss and TopKSoftmaxLoss (without further options than their targets, k and "
        f"temperatures), whose sums over items are added up over processes, got {loss!r}, which ranks all items of a user in one "
        "process; pass negatives='uniform' or others that sample, with which any loss does, or omit shards="
    )


def _softmax(loss: Any, scores: Tensor, labels: Tensor, table: Table) -> Tensor:
    """The softmax loss, see the module, with all weights alike, or for SL@K by the distance from the k-th highest score."""
    low = scores - highest(scores.detach().amax(-1, keepdim=True))
    weights = labels
    if isinstance(loss, TopKSoftmaxLoss):
        own = low.detach().topk(min(loss.k, low.shape[1])).values
        own = nn.functional.pad(own, (0, min(loss.k, table.most) - own.shape[1]), value=-torch.inf)
        last = torch.cat([*stacked(own)], 1).topk(min(loss.k, table.total)).values[:, -1:]
        weights = labels * ((low.detach() - last) / loss.weight_temperature).sigmoid()
    low = low / loss.temperature
    sums = torch.stack([low.exp().sum(-1), (weights * low).sum(-1), weights.sum(-1), labels.sum(-1)])
    over_all, hits, total, known = _Sum.apply(sums)
    values = total * over_all.log() - hits
    if isinstance(loss, TopKSoftmaxLoss) or loss.target == "share":
        values = values / known.clamp(min=1)
    return torch.where((known > 0) & (known < table.total), values, 0.0).mean()
