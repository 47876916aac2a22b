"""Any ranking loss in RecTools' transformers of sequences, over all items or sampled ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from rankstruct.embeddings import loss_of_lists
from rankstruct.losses import RankingLoss
from rankstruct.messages import import_extra
from rankstruct.processes import Team
from rankstruct.recommenders.catalogue import Kind, Negatives, TrainingLists
from rankstruct.recommenders.tables import Table

__all__ = ["next_item_module"]

_PARTS = 8  # of a batch, by length


def next_item_module(loss: RankingLoss | None = None, *, negatives: Negatives | Kind = "all") -> Any:
    """RecTools' Lightning module as a class with a ranking loss, for `lightning_module_type=` of `SASRecModel` and others.

    Each position of a session that has a next item is a list: the next item is relevant, the others are not, whether the user
    knows them or not. The loss is the mean over the positions of a batch. On a CPU the scores of a block of positions are in
    memory at once; with `use_key_padding_mask=True` sessions are encoded without most of their padding, in parts by length.
    With `RankingMeasures` in the trainer's callbacks, the validation items are ranked among those that are not in the session.
    A checkpoint is loaded by `load_from_checkpoint(path, model_params_update={"lightning_module_type": next_item_module(loss)})`.
    `save`, `pickle` and `copy` of a model find the class by its name: give it one, `class Ranked(next_item_module(loss)): pass`.

    Args:
        loss: a ranking loss; the softmax loss if None.
        negatives: the items ranked with the next one, `Negatives` or their kind: all, or sampled ones.

    Raises:
        ImportError: RecTools is not installed: `pip install 'rankstruct[sequences]'`.
        TypeError: a loss that is not a module.
        ValueError: (of the class) a `loss=` of RecTools' own that samples, interactions with weights, or another similarity.

    >>> module = next_item_module(rs.SoftmaxLoss())  # doctest: +SKIP
    >>> model = SASRecModel(lightning_module_type=module, use_key_padding_mask=True)  # doctest: +SKIP
    >>> model.fit(dataset).recommend(users, dataset, k=10, filter_viewed=True)  # doctest: +SKIP
    """
    base = import_extra("rectools.models.nn.transformers.lightning", "sequences").TransformerLightningModule
    options = {"_options": (loss_of_lists(loss), Negatives.of(negatives))}
    return type("NextItemModule", (_NextItems, base), options)


def __getattr__(name: str) -> Any:
    """What RecTools asks for when it loads a model whose class has no name of its own."""
    if name == "NextItemModule":
        name += (
            ", a class with a ranking loss, which is not known by name: call load_from_checkpoint(path, "
            'model_params_update={"lightning_module_type": next_item_module(loss)}), or train with a class of your own, '
            "class Ranked(next_item_module(loss)), which save and pickle find"
        )
    raise AttributeError(f"module {__name__!r} has no {name}")


class _NextItems:
    _options: tuple[RankingLoss, Negatives]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        mine = cast(Any, self)
        if mine._requires_negatives:
            raise ValueError(
                f"a ranking loss replaces RecTools' loss, so leave loss= at the default; got {mine.loss!r}"
            )
        if not hasattr(mine.torch_model.similarity_module, "distance"):
            raise ValueError("a ranking loss requires RecTools' DistanceSimilarityModule, whose scores are products")
        mine.ranking_loss, mine.loss_calculator = self._options[0], None

    def on_validation_start(self) -> None:
        """Initialise the weights that Lightning's sanity check would see empty: RecTools initialises when training starts."""
        mine = cast(Any, self)
        if mine.trainer.sanity_checking and not mine.is_fitted:
            with torch.random.fork_rng([]):  # so that training starts from the same weights without the check
                mine._xavier_normal_init()
        cast(Any, super()).on_validation_start()

    @cached_property
    def _lists(self) -> _NextLists:
        data = cast(Any, self).data_preparator
        known, first = data.train_dataset.interactions.df, data.n_item_extra_tokens
        if (known["weight"] != 1).any():
            raise ValueError("a ranking loss takes no weights of interactions; set the column 'weight' to 1")
        counts = np.bincount(known["item_id"], minlength=data.item_id_map.size)[first:]
        return _NextLists(counts, self._options[1])

    def _parts(self, batch: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        """Sessions by their place in the batch, in parts: on a CPU of similar length, if their padding has no effect."""
        model, size = cast(Any, self).torch_model, batch["x"].shape[1]
        lengths = size - (batch["x"] != 0).byte().argmax(1)
        rows, is_plain = lengths.argsort(), {*batch} <= {"x", "y", "yw"} and batch["x"].is_cpu
        inverse = type(model.pos_encoding_layer).__name__ == "LearnableInversePositionalEncoding"
        if not (model.use_key_padding_mask and is_plain and inverse):
            yield torch.arange(len(rows), device=rows.device), batch
            return
        for part in rows.chunk(_PARTS):
            yield part, {name: each[part, -int(lengths[part[-1]]) :] for name, each in batch.items()}

    def encoded(self, batch: Mapping[str, Tensor]) -> tuple[_Encoded, Tensor, Tensor]:
        """The vectors of the positions that have a next item and of all items; the next items; the sessions of the positions."""
        mine, found = cast(Any, self), []
        items = mine.torch_model.item_model.get_all_embeddings()
        for rows, part in self._parts(batch):
            y = part["y"]
            vectors, real = mine.torch_model.encode_sessions(part, items)[:, -y.shape[1] :], y != 0
            found.append((vectors[real], y[real], rows[real.nonzero()[:, 0]]))
        vectors, targets, sessions = map(torch.cat, zip(*found, strict=True))
        similarity, first = mine.torch_model.similarity_module, mine.data_preparator.n_item_extra_tokens
        if similarity.distance.value == "cosine":
            vectors, items = similarity._get_embeddings_norm(vectors), similarity._get_embeddings_norm(items)
        return _Encoded(vectors / mine.logits_t, items[first:]), targets - first, sessions

    def _calc_custom_loss(self, batch: Mapping[str, Tensor], batch_idx: int) -> Tensor:
        return self._lists.mean(cast(Any, self).ranking_loss, *self.encoded(batch)[:2])

    def _calc_custom_loss_outputs(self, batch: Mapping[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        encoded, targets, sessions = self.encoded(batch)
        scores, x = encoded.positions @ encoded.items.T, batch["x"][sessions]
        labels = torch.zeros_like(scores).scatter_(1, targets[:, None], 1.0)
        first = cast(Any, self).data_preparator.n_item_extra_tokens
        known = torch.zeros(len(x), scores.shape[1] + first, dtype=torch.bool, device=x.device).scatter_(1, x, True)
        loss = self._lists.mean(cast(Any, self).ranking_loss, encoded, targets)
        return {"loss": loss, "scores": scores, "labels": labels, "where": ~known[:, first:] | (labels > 0)}


class _Encoded:
    """What `TrainingLists` asks of a scorer, with the positions of a batch as users."""

    def __init__(self, positions: Tensor, items: Tensor) -> None:
        self.positions, self.items, self.num_items = positions, items, len(items)
        self.item_factors = Table(len(items), items.detach(), Team())

    def vectors(self, users: Tensor) -> tuple[Tensor, Tensor]:
        return self.positions, self.items

    def pair_scores(self, users: Tensor, items: Tensor) -> Tensor:
        return (self.positions[users] * self.items[items]).sum(-1)


class _NextLists(TrainingLists):
    """Lists whose only known item is the next one."""

    def __init__(self, counts: np.ndarray, negatives: Negatives) -> None:
        self.negatives = negatives
        self._draw_by(torch.from_numpy(counts))

    def mean(self, loss: RankingLoss, encoded: _Encoded, targets: Tensor) -> Tensor:
        """The mean loss of the positions of a batch, whose next items are `targets`."""
        self._targets, positions = targets, torch.arange(len(targets), device=targets.device)
        return self.mean_loss(cast(Any, encoded), loss, positions, targets[:, None])

    def _known(self, users: Tensor, items: Tensor) -> Tensor:
        return self._targets[users] == items
