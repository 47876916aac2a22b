"""Padded batches of lists of similar length, in an order that depends only on seed and epoch."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor
from torch.utils.data import Dataset

from rankstruct.checks import check_integers
from rankstruct.constraints.rules import Groups
from rankstruct.data.dataset import RankingData, columns_for_rules
from rankstruct.data.shards import ShardedFeatures
from rankstruct.lists import Lists

__all__ = ["Batch", "BatchLoader", "collate"]


class Batch:
    """A batch of lists, padded to the longest one; padding has features 0, label 0, `where` False, position -1 and no group.

    Shapes: features `[lists, list_size, d]` float32, labels `[lists, list_size]` float32, where `[lists, list_size]` bool,
    index `[lists]` int64 (index of the list in the data), positions `[lists, list_size]` int64 (row of the document in
    the data), diversity_groups `[lists, list_size]` int64, or None if the data have none; columns: by name, the groups
    `[lists, list_size]` that rules are about, these among them, which stay on the CPU, where the rules are read.

    >>> from rankstruct.data import RankingData
    >>> data = RankingData.from_arrays([[1.0], [2.0], [3.0]], [0, 1, 1], ["a", "a", "b"])
    >>> batch = next(iter(BatchLoader(data, lists_per_batch=2)))
    >>> batch.features.shape, batch.where
    (torch.Size([2, 2, 1]), tensor([[ True,  True], [ True, False]]))
    """

    # Not a dataclass or tuple: Lightning traverses those, and `--trainer.precision bf16-true` would round the labels too.
    def __init__(
        self,
        features: Tensor,
        lists: Lists,
        index: Tensor,
        positions: Tensor,
        columns: Mapping[str, Any] | None = None,
    ) -> None:
        self.features, self.lists, self.index, self.positions = features, lists, index, positions
        self.columns = {} if columns is None else columns

    @property
    def labels(self) -> Tensor:
        """Labels, `[lists, list_size]`."""
        return self.lists.labels

    @property
    def where(self) -> Tensor:
        """True for a real document, `[lists, list_size]`."""
        assert self.lists.where is not None
        return self.lists.where

    @property
    def diversity_groups(self) -> Tensor | None:
        """Groups, `[lists, list_size]`, if the data have any."""
        return self.lists.diversity_groups

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Move the batch to a device."""
        return self._each(lambda value: value.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Copy the batch to page-locked memory, for fast copies to a GPU."""
        return self._each(lambda value: value.pin_memory())

    def _each(self, change: Callable[[Tensor], Tensor]) -> Batch:
        index, positions = change(self.index), change(self.positions)
        return Batch(change(self.features), self.lists.documents(change), index, positions, self.columns)


def _padded(
    features: np.ndarray,
    labels: np.ndarray,
    rows: np.ndarray,
    where: np.ndarray,
    index: Any,
    columns: Mapping[str, Groups],
) -> Batch:
    """The batch of flat lists, `[documents, ...]` in the order of `where` `[lists, list_size]`."""

    def wide(flat: np.ndarray, fill: int = 0) -> Tensor:
        shape = (*where.shape, *flat.shape[1:])
        padded = np.full(shape, fill, flat.dtype) if fill else np.zeros(shape, flat.dtype)
        padded[where] = flat
        return torch.from_numpy(padded)

    columns = {name: each.padded(where) for name, each in columns.items()}
    groups = torch.from_numpy(columns["diversity_groups"].ids) if "diversity_groups" in columns else None
    lists = Lists(wide(labels), torch.from_numpy(where), diversity_groups=groups)
    return Batch(wide(features), lists, torch.as_tensor(index), wide(rows, -1), columns)


def make_batch(
    data: RankingData,
    lists: ArrayLike,
    max_list_size: int | None = None,
    seed: Sequence[int] = (0,),
    *,
    keep_relevant: bool = False,
) -> Batch:
    """Pad the lists with indices `lists` `[n]` to a batch; lists longer than `max_list_size` are subsampled.

    Sampling is without replacement, and keeps both relevant (label > 0) and irrelevant documents if the list has both. With
    `keep_relevant` the sample has all relevant documents or, if they are too many, all but one are relevant. It depends only on
    the list and `seed`, integers from 0, not on the other lists of the batch. A `max_list_size` below 2 raises ValueError.

    >>> data = RankingData.from_arrays([[1.0], [2.0], [3.0]], [1, 0, 2], ["a", "a", "b"])
    >>> make_batch(data, [1, 0]).positions
    tensor([[ 2, -1],
            [ 0,  1]])
    """
    check_integers(2, optional=True, max_list_size=max_list_size)
    chosen = np.asarray(lists, dtype=np.int64)
    lengths = data.lengths[chosen]
    sizes = lengths if max_list_size is None else np.minimum(lengths, max_list_size)
    ranks = np.arange(sizes.max(initial=0))
    where = ranks < sizes[:, None]
    places = data.offsets[chosen][:, None] + ranks
    for row in np.flatnonzero(sizes < lengths).tolist():
        first, last = data.offsets[chosen[row]], data.offsets[chosen[row] + 1]
        rng = np.random.default_rng([*seed, int(chosen[row])])
        places[row, : sizes[row]] = first + _sample(data.labels[first:last] > 0, int(sizes[row]), rng, keep_relevant)
    rows = places[where]
    features = data.features[rows].toarray() if data.is_sparse else data.features[rows]
    labels = data.labels[rows].astype(np.float32, copy=False)
    columns = {name: each.at(rows) for name, each in columns_for_rules(data).items()}
    return _padded(features.astype(np.float32, copy=False), labels, rows, where, chosen, columns)


def _sample(relevant: np.ndarray, size: int, rng: np.random.Generator, keep: bool) -> np.ndarray:
    """`size` >= 2 documents, in ascending order, of both kinds if the list has both; if `keep`, as many relevant as possible."""
    if keep:
        good, bad = (rng.permutation(np.flatnonzero(relevant == kind)) for kind in (True, False))
        number = min(len(good), size - 1) if len(bad) else size
        return np.sort(np.concatenate([good[:number], bad[: size - number]]))
    taken = rng.permutation(len(relevant))[:size]
    for kind in (True, False):
        if not (relevant[taken] == kind).any() and (relevant == kind).any():
            # all sampled are of the other kind, so none is left out
            taken[0] = rng.choice(np.flatnonzero(relevant == kind))
    return np.sort(taken)


class BatchLoader:
    """A loader of padded batches: each list once per epoch, lists of similar length together, so that padding is small.

    Lengths are rounded up to three significant binary digits (at most a quarter more) and batches are cut in that order, so that
    every epoch has the same number of batches, and lists of similar length are combined at random. With `lists_per_batch=1` there
    is no padding and the order is a plain shuffle.

    Lists of shards are divided into windows of 64 MB of features, which are read one after the other: those of row groups that
    the seed puts together, in an order that it changes in each epoch. Lists are combined at random within a window. Each of
    several processes reads windows of its own.

    It has all that Lightning needs: `len()`, `set_epoch` (through `sampler`), and the position within the epoch in
    `state_dict()`, so that a resumed run continues with the next batch. Batches depend only on `seed` and epoch.

    Args:
        data: the lists.
        lists_per_batch: number of lists per batch (the last may have fewer); or set `documents_per_batch`.
        documents_per_batch: bound on lists times list size, including padding; a longer list is a batch by itself.
        max_list_size: longer lists are subsampled, differently in each epoch; see `make_batch`. `sampled` counts them.
        keep_relevant: whether samples have all relevant documents.
        shuffle: whether to shuffle in each epoch; otherwise lists are in order of rounded length, or as in the data if batches
            are single lists. Iterating again after the last batch, without `set_epoch`, starts the next epoch.
        seed: seed of shuffling and sampling.
        rank: the rank of this process, from 0.
        world_size: number of processes that share the lists. All have the same number of batches, for which some are split in
            two. If all are single lists, up to `world_size - 1` of them are dropped per epoch if `shuffle`; otherwise no list is
            dropped or repeated, and batches of padding only are added.
        drop_empty: whether to drop lists whose labels are all equal, so that no ranking is wrong; `left_out` counts them.

    Raises:
        ValueError: both or neither of `lists_per_batch` and `documents_per_batch`, a size below 1, or an invalid rank.

    >>> data = RankingData.from_arrays([[1.0]] * 6, [1, 0, 1, 0, 0, 1], ["a", "a", "b", "b", "b", "c"])
    >>> loader = BatchLoader(data, lists_per_batch=2, drop_empty=True)
    >>> len(loader), loader.left_out, [batch.index.tolist() for batch in loader]
    (1, 1, [[1, 0]])
    """

    def __init__(
        self,
        data: RankingData,
        *,
        lists_per_batch: int | None = None,
        documents_per_batch: int | None = None,
        max_list_size: int | None = None,
        shuffle: bool = False,
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        drop_empty: bool = False,
        keep_relevant: bool = False,
    ) -> None:
        if (lists_per_batch is None) == (documents_per_batch is None):
            raise ValueError(
                "give either lists_per_batch or documents_per_batch; "
                f"got lists_per_batch={lists_per_batch} and documents_per_batch={documents_per_batch}"
            )
        check_integers(1, optional=True, lists_per_batch=lists_per_batch, documents_per_batch=documents_per_batch)
        check_integers(2, optional=True, max_list_size=max_list_size)
        self.data, self.max_list_size, self.keep_relevant = data, max_list_size, keep_relevant
        self.lists_per_batch, self.documents_per_batch = lists_per_batch, documents_per_batch
        self.shuffle, self.seed = shuffle, seed
        self.epoch = 0
        self._lists = np.flatnonzero(~data.same_labels()) if drop_empty else np.arange(data.num_lists)
        self.left_out = data.num_lists - len(self._lists)
        self.sampled = 0 if max_list_size is None else int((data.lengths[self._lists] > max_list_size).sum())
        self._start = self._delivered = 0
        self._ended = False
        self._windows: list[np.ndarray] = []  # of lists of shards
        self._window_of = np.zeros(0, np.int64)  # the number of each list's
        self._take_place(rank, world_size)

    @property
    def sampler(self) -> BatchLoader:
        """The loader itself; Lightning sets the epoch on the attribute of this name."""
        return self

    #: Lightning also checks this attribute.
    batch_sampler = None
    #: Whether lists of similar length are combined.
    by_length = True

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Batch]:
        # Lightning creates the iterator before it sets the epoch, so nothing is fixed before the first batch.
        if self._ended:
            self.epoch, self._start, self._ended = self.epoch + 1, 0, False
        self._delivered, self._start = self._start, 0
        for lists in self._batches()[self._delivered :]:
            self._delivered += 1
            seed, keep = (self.seed, self.epoch), self.keep_relevant
            if self._windows and len(lists):
                self.data.features.hold(self._windows[self._window_of[lists[0]]])
            given = self.data, lists, self.max_list_size, seed
            yield make_batch(*given, keep_relevant=keep) if len(lists) else self._nothing()
        self._ended = self.shuffle  # without set_epoch, the next iteration is the next epoch

    def share(self, rank: int, world_size: int) -> BatchLoader:
        """The batches of one of several processes, see `rank` and `world_size`.

        >>> data = RankingData.from_arrays([[1.0]] * 3, [1, 0, 1], ["a", "b", "c"])
        >>> shares = [BatchLoader(data, lists_per_batch=5).share(rank, 2) for rank in range(2)]
        >>> [[batch.index.tolist() for batch in share] for share in shares]
        [[[0]], [[1, 2]]]
        """
        shared = copy.copy(self)
        shared._take_place(rank, world_size)
        return shared

    def _take_place(self, rank: int, world_size: int) -> None:
        if not 0 <= rank < world_size:
            raise ValueError(f"rank must be from 0 to world_size - 1 = {world_size - 1}, got {rank}")
        self.rank, self.world_size = rank, world_size
        if not isinstance(self.data.features, ShardedFeatures):
            self._length = len(self._batches())
            return
        sizes = []
        for number, share in enumerate(self._shares(self.data.features)):
            # The same in every epoch, as the number of batches is.
            windows = self.data.features.windows(share, self._lists)
            sizes.append((sum(len(self._cut(window)) for window in windows), len(share)))
            self._windows = windows if number == rank else self._windows
        self._window_of = np.zeros(self.data.num_lists, np.int64)
        for number, window in enumerate(self._windows):
            self._window_of[window] = number
        batches, lists = zip(*sizes, strict=True)
        self._length = min(max(batches), min(lists)) if self.shuffle else max(batches)

    def _shares(self, features: ShardedFeatures) -> list[np.ndarray]:
        """The lists of each process, those of a row group together."""
        lists = features.shuffled(self._lists, self.seed) if self.shuffle else self._lists
        return np.array_split(lists, self.world_size)

    def _nothing(self) -> Batch:
        """One list of padding, which no measure counts."""
        features, none = np.zeros((0, self.data.num_features), np.float32), np.zeros(0, np.int64)
        columns = {name: each.at(none) for name, each in columns_for_rules(self.data).items()}
        return _padded(features, np.zeros(0, np.float32), none, np.zeros((1, 1), bool), [-1], columns)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch; unless it is the current one, start from its first batch."""
        self._ended = False
        if epoch != self.epoch:
            self.epoch, self._start, self._delivered = epoch, 0, 0

    def state_dict(self) -> dict[str, int]:
        """The epoch and the number of batches delivered."""
        return {"epoch": self.epoch, "delivered": self._delivered}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the position, from which the next iteration (only) continues."""
        self.epoch = state["epoch"]
        self._start = self._delivered = state["delivered"]
        self._ended = self.shuffle and self._start >= len(self)

    def _batches(self) -> list[np.ndarray]:
        rng = np.random.default_rng([self.seed, self.epoch])
        if isinstance(self.data.features, ShardedFeatures):
            order = rng.permutation(len(self._windows)) if self.shuffle else range(len(self._windows))
            cut = (self._in_order(self._cut(self._windows[number], rng), rng) for number in order)
            return _levelled(list(chain.from_iterable(cut)), self._length)
        batches = _made_divisible(self._cut(self._lists, rng), self.world_size, drop=self.shuffle)
        return self._in_order(batches, rng)[self.rank :: self.world_size]

    def _in_order(self, batches: list[np.ndarray], rng: np.random.Generator) -> list[np.ndarray]:
        return [batches[i] for i in rng.permutation(len(batches))] if self.shuffle else batches

    def _cut(self, lists: np.ndarray, rng: np.random.Generator | None = None) -> list[np.ndarray]:
        """Batches of lists of similar length, in this order."""
        lists = rng.permutation(lists) if self.shuffle and rng is not None else lists
        lengths = _rounded_up(self.data.lengths[lists])
        if self.max_list_size is not None:
            lengths = np.minimum(lengths, self.max_list_size)
        if self.lists_per_batch != 1 and self.by_length:
            order = np.argsort(-lengths, kind="stable")  # longest first, so that memory runs out at once or never
            lists, lengths = lists[order], lengths[order]
        batches = []
        first = 0
        while first < len(lists):
            size = self.lists_per_batch or max(self.documents_per_batch // max(lengths[first], 1), 1)
            batches.append(lists[first : first + size])
            first += size
        return batches


def _rounded_up(lengths: np.ndarray) -> np.ndarray:
    """Round lengths up to three significant binary digits: 1 to 8, 10, 12, 14, 16, 20, 24, ..."""
    step = np.exp2(np.maximum(np.frexp(lengths - 0.5)[1] - 3, 0)).astype(np.int64)
    return -(-lengths // step) * step


def _made_divisible(batches: list[np.ndarray], parts: int, *, drop: bool) -> list[np.ndarray]:
    """Split batches in two until their number is a multiple of `parts`; if none can be split, drop the last or add empty ones."""
    number, lists = len(batches) + -len(batches) % parts, sum(map(len, batches))
    if drop and number > lists:
        return _levelled(batches, lists)[: lists - lists % parts]
    return _levelled(batches, number)


def _levelled(batches: list[np.ndarray], number: int) -> list[np.ndarray]:
    """As many batches as that: the last are dropped, the largest split in two, or empty ones added."""
    batches = batches[:number]
    while len(batches) < number:
        largest = max(range(len(batches)), key=lambda i: len(batches[i]), default=0)
        half = len(batches[largest]) // 2 if batches else 0
        if not half:
            return batches + [np.zeros(0, np.int64)] * (number - len(batches))
        batches[largest : largest + 1] = [batches[largest][:half], batches[largest][half:]]
    return batches


class ListDataset(Dataset[Batch]):
    """A dataset of lists, each a batch of one, for `torch.utils.data.DataLoader(ListDataset(data), collate_fn=collate)`.

    >>> data = RankingData.from_arrays([[1.0], [2.0], [3.0]], [1, 0, 2], ["a", "a", "b"])
    >>> loader = torch.utils.data.DataLoader(ListDataset(data), batch_size=2, collate_fn=collate)
    >>> next(iter(loader)).labels
    tensor([[1., 0.],
            [2., 0.]])
    """

    def __init__(self, data: RankingData) -> None:
        self.data = data

    def __len__(self) -> int:
        return self.data.num_lists

    def __getitem__(self, index: int) -> Batch:
        return make_batch(self.data, [range(len(self))[index]])


def collate(lists: Sequence[Batch]) -> Batch:
    """Join batches to one, padded to the longest list."""

    def flat(name: str) -> np.ndarray:
        return torch.cat([getattr(batch, name)[batch.where] for batch in lists]).numpy()

    lengths = torch.cat([batch.where.sum(-1, keepdim=True) for batch in lists]).numpy()
    where = np.arange(lengths.max(initial=0)) < lengths
    index = torch.cat([batch.index for batch in lists])
    real = [(batch.columns, batch.where.numpy()) for batch in lists]
    columns = {
        name: Groups.joined(name, [given[name].at(where) for given, where in real])
        for name in real[0][0]
        if all(name in given for given, _ in real)
    }
    return _padded(flat("features"), flat("labels"), flat("positions"), where, index, columns)
