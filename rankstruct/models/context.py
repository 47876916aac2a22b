"""Scorers that see the whole list: a document's score depends on the others of its list, but not on their order.

Features are `[..., list_size, d]`, of which `where` marks the real documents, or flat, `[documents, d]`, with `offsets`; without
both, the last dimension but one is the list. Padding may hold any values, does not affect the other scores, and has arbitrary
finite scores. Flat lists are padded in groups of similar length.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import scaled_dot_product_attention

from rankstruct.checks import check_choice, check_integers, check_numbers
from rankstruct.lists import as_offsets, check_offsets, length_buckets
from rankstruct.models.scorers import Noise, Scorer, check_features, hidden_layers, widths
from rankstruct.preparation import is_exporting

__all__ = ["ContextScorer", "DeepSetScorer"]

_TOGETHER = 2**12  # documents, padding included, below which separating lists by length costs more than it saves
_DOCUMENTS = 2**16  # documents, padding included, scored at once


class _ListScorer(Scorer):
    """Base of scorers of whole lists: the two layouts of lists, and noise."""

    by_list = True

    def __init__(self, num_features: int, hidden: int | Sequence[int], dropout: float, noise: float) -> None:
        super().__init__()
        self.num_features, self.hidden, self.dropout, self.noise = num_features, widths(hidden), dropout, noise
        check_numbers(">= 0 and < 1", dropout=dropout)
        self.augment = Noise(noise)

    def forward(self, features: Tensor, *, where: Tensor | None = None, offsets: Tensor | None = None) -> Tensor:
        """Return scores `[..., list_size]` of features `[..., list_size, d]`, or `[documents]` of flat lists.

        Raises:
            ValueError: a different number of features, or inconsistent shapes; on export, offsets.
            TypeError: features that differ in dtype from the weights, or `where` that is not boolean.
        """
        check_features(features, self.num_features, next(self.parameters()))
        if where is not None and where.dtype != torch.bool:
            raise TypeError(f"where must be boolean (True = a real document), got {where.dtype}; use where.bool()")
        wrong = features.dim() < 2 if offsets is None else features.dim() != 2 or where is not None
        if wrong or (where is not None and where.shape != features.shape[:-1]):
            raise ValueError(
                f"{type(self).__name__} compares the documents of a list: pass features [..., list_size, d] and, if there is "
                f"padding, where= [..., list_size]; or features [documents, d] and offsets= alone; got {tuple(features.shape)}"
                + ("" if where is None else f" and where {tuple(where.shape)}")
            )
        if offsets is not None and is_exporting():
            raise ValueError(f"{type(self).__name__} is exported for padded lists; pass where= instead of offsets=")
        if offsets is not None:
            offsets = as_offsets(offsets)
            check_offsets(offsets, len(features))
        if 0 in features.shape:
            return features.new_zeros(features.shape[:-1])
        if offsets is not None:
            return self._flat_scores(features, offsets)
        lists = features[None] if features.dim() == 2 else features.flatten(0, -3)
        real = None if where is None else where.reshape(lists.shape[:-1])
        return self._padded_scores(lists, real).reshape(features.shape[:-1])

    def _flat_scores(self, features: Tensor, offsets: Tensor) -> Tensor:
        """Scores `[documents]` of flat lists; indices are computed on the device of the offsets, which may be the CPU."""
        lengths, device, places, scores = offsets.diff(), features.device, [], []
        for lists in _together(lengths, offsets):
            columns = torch.arange(int(lengths[lists].max()), device=offsets.device)
            real = columns < lengths[lists, None]
            rows = offsets[lists, None] + columns
            places.append(rows[real])
            padded = features[torch.where(real, rows, 0).to(device)]
            found = self._padded_scores(padded, None if bool(real.all()) else real.to(device))
            scores.append(found.flatten()[real.flatten().nonzero()[:, 0].to(device)])
        return torch.cat(scores)[torch.cat(places).argsort().to(device)]

    def _padded_scores(self, lists: Tensor, where: Tensor | None) -> Tensor:
        """Scores of features `[lists, list_size, d]`, whose padding may hold NaN."""
        return self._scores(self.augment(lists if where is None else lists.masked_fill(~where[..., None], 0)), where)

    def _scores(self, lists: Tensor, where: Tensor | None) -> Tensor:
        """Scores `[lists, list_size]` of features `[lists, list_size, d]`, 0 in the padding."""
        raise NotImplementedError


class ContextScorer(_ListScorer):
    """An MLP that compares the documents of a list by self-attention.

    Blocks of attention and feed-forward layers compute a representation a of a document in the context of its list. There is
    no positional encoding, so the order of the input does not matter. The representation scales the last hidden layer h of an
    MLP that sees only the document (a latent cross): the score is linear in (1 + W a) h.

    Args:
        num_features: d, the number of features of a document.
        hidden: the widths of the hidden layers of the MLP; a number for a single one.
        dropout: the dropout probability of hidden units, and of the output of attention.
        width: width of the representation, at least 2.
        blocks: number of blocks.
        heads: number of attention heads.
        combine: `"cross"`, the latent cross; `"gate"`, sigmoid(W a) h; or `"attention"`, the representation alone, without the
            MLP.
        noise: standard deviation of normal noise that training adds to the features.

    Time grows with the square of the length of a list. With torch's fused attention, memory is proportional to the length. For
    features with heavy tails, DASALC uses the preparation step `"log:1"`, sign(x) log(1 + |x|).

    Source: Pobrotyn, Bartczak, Synowiec, Białobrzeski, Bojar, "Context-Aware Learning to Rank with Self-Attention", SIGIR eCom
    2020; Qin, Yan, Zhuang, Tay, Pasumarthi, Wang, Bendersky, Najork, "Are Neural Rankers still Outperformed by Gradient Boosted
    Decision Trees?", ICLR 2021 (DASALC: the latent cross and the noise).

    >>> features, offsets = torch.randn(7, 3), torch.tensor([0, 5, 7])
    >>> scorer = ContextScorer(3).eval()
    >>> scorer(features, offsets=offsets).shape, scorer(features[:5]).shape
    (torch.Size([7]), torch.Size([5]))
    """

    def __init__(
        self,
        num_features: int,
        hidden: int | Sequence[int] = (64, 32),
        dropout: float = 0.0,
        width: int = 32,
        blocks: int = 1,
        heads: int = 2,
        combine: str = "cross",
        noise: float = 0.0,
    ) -> None:
        super().__init__(num_features, hidden, dropout, noise)
        check_choice("combine", combine, ("cross", "gate", "attention"))
        check_integers(2, 2**31 - 1, width=width)
        check_integers(1, 2**31 - 1, blocks=blocks, heads=heads)
        self.width, self.blocks, self.heads, self.combine = width, blocks, heads, combine
        self.describe = nn.Sequential(nn.Linear(num_features, width), nn.Dropout(dropout))
        self.attention = nn.ModuleList(_Block(width, heads, dropout) for _ in range(blocks))
        self.norm = nn.LayerNorm(width)
        layers, last = hidden_layers(num_features, self.hidden, dropout)
        if combine != "attention":
            self.layers, self.cross = nn.Sequential(*layers), nn.Linear(width, last)
        self.score = nn.Linear(width if combine == "attention" else last, 1)

    def _scores(self, lists: Tensor, where: Tensor | None) -> Tensor:
        # A list of padding alone attends to all of it: a softmax over nothing would be NaN.
        mask = None if where is None else (where | ~where.any(-1, keepdim=True))[:, None, None]
        context = self.describe(lists)
        for block in self.attention:
            context = block(context, mask)
        context = self.norm(context)
        if self.combine != "attention":
            factors = self.cross(context)
            context = (1 + factors if self.combine == "cross" else factors.sigmoid()) * self.layers(lists)
        return self.score(context).squeeze(-1)


class _Block(nn.Module):
    """Self-attention and a feed-forward layer, each on normalised input and added to it.

    Args:
        width: of input and output.
        heads: of attention.
        dropout: of the output of either.
    """

    def __init__(self, width: int, heads: int, dropout: float) -> None:
        super().__init__()
        self.heads, inner = heads, heads * -(-width // heads)
        self.project = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 3 * inner))
        self.attended = nn.Sequential(nn.Linear(inner, width), nn.Dropout(dropout))
        layers = [nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.ReLU(), nn.Linear(2 * width, width)]
        self.forwarded = nn.Sequential(*layers, nn.Dropout(dropout))

    def forward(self, values: Tensor, mask: Tensor | None) -> Tensor:
        """Return `[lists, list_size, width]`; `mask` `[lists, 1, 1, list_size]` marks the documents that are attended to."""
        parts = self.project(values).unflatten(-1, (3, self.heads, -1)).permute(2, 0, 3, 1, 4)
        queries, keys, contents = parts.unbind()
        seen = scaled_dot_product_attention(queries, keys, contents, attn_mask=mask)
        values = values + self.attended(seen.transpose(1, 2).flatten(2))
        return values + self.forwarded(values)


class DeepSetScorer(_ListScorer):
    """An MLP whose hidden layers also see the mean of their input over the list.

    Args:
        num_features: d, the number of features of a document.
        hidden: the widths of the hidden layers; a number for a single one.
        dropout: the dropout probability of hidden units.
        pool: statistics over the list that the layers see: `"mean"`, `"max"` or both.
        noise: standard deviation of normal noise that training adds to the features.

    Source: Zaheer, Kottur, Ravanbakhsh, Póczos, Salakhutdinov, Smola, "Deep Sets", NeurIPS 2017, section 3.

    >>> features, offsets = torch.randn(7, 3), torch.tensor([0, 5, 7])
    >>> DeepSetScorer(3)(features, offsets=offsets).shape
    torch.Size([7])
    """

    def __init__(
        self,
        num_features: int,
        hidden: int | Sequence[int] = (64, 32),
        dropout: float = 0.0,
        pool: Sequence[str] = ("mean",),
        noise: float = 0.0,
    ) -> None:
        super().__init__(num_features, hidden, dropout, noise)
        self.pool = tuple(pool)
        if not self.pool or isinstance(pool, str) or not set(self.pool) <= {"mean", "max"}:
            raise ValueError(f"pool must be a list of 'mean' and 'max', got {pool!r}")
        pairs, pools = list(itertools.pairwise((num_features, *self.hidden))), len(self.pool)
        self.own = nn.ModuleList(nn.Linear(before, units) for before, units in pairs)
        self.of_list = nn.ModuleList(nn.Linear(pools * before, units, bias=False) for before, units in pairs)
        self.activate = nn.Sequential(nn.ReLU(), nn.Dropout(dropout))
        self.score = nn.Linear((num_features, *self.hidden)[-1], 1)

    def _scores(self, lists: Tensor, where: Tensor | None) -> Tensor:
        for own, of_list in zip(self.own, self.of_list, strict=True):
            lists = self.activate(own(lists) + of_list(self._pooled(lists, where)))
        return self.score(lists).squeeze(-1)

    def _pooled(self, values: Tensor, where: Tensor | None) -> Tensor:
        """Statistics `[lists, 1, any]` of values `[lists, list_size, width]` over the real documents; 0 if there are none."""
        real = values.new_ones(1, 1, 1, dtype=torch.bool) if where is None else where[..., None]
        number = values.shape[1] if where is None else real.sum(1, keepdim=True).clamp(min=1)
        found = []
        for name in self.pool:
            if name == "mean":
                found.append(torch.where(real, values, 0).sum(1, keepdim=True) / number)
            else:
                largest = values.masked_fill(~real, float("-inf")).amax(1, keepdim=True)
                found.append(torch.where(real.any(1, keepdim=True), largest, 0))
        return torch.cat(found, -1)


def _together(lengths: Tensor, offsets: Tensor) -> Iterator[Tensor]:
    """Indices of the lists with documents, of which there are some, in groups that are padded together."""
    if int(lengths.max()) * len(lengths) <= _TOGETHER:
        yield lengths.nonzero()[:, 0]
        return
    for bucket in length_buckets(offsets):
        if longest := int(lengths[bucket].max()):
            yield from bucket.split(max(1, _DOCUMENTS // longest))
