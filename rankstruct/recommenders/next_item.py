"""Any ranking loss in RecTools' transformers of sequences, over all items or sampled ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rankstruct.embeddings import loss_of_lists
from rankstruct.losses import RankingLoss
from rankstruct.messages import import_extra
from rankstruct.recommenders.catalogue import Encoded, Kind, Negatives, TargetLists

__all__ = ["next_item_module"]

_PARTS = 8  # of a batch, by length
_Module: Any = object  # in the place of RecTools' module, which is imported when it is asked for


def next_item_module(loss: RankingLoss | None = None, *, negatives: Negatives | Kind = "all") -> Any:
    """RecTools' Lightning module as a class with a ranking loss, for `lightning_module_type=` of `SASRecModel` and others.

    Each position of a session that has a next item is a list: the next item is relevant, the others are not, whether the user
    knows them or not. The loss is the mean over the positions of a batch. The scores of a block of positions are in memory
    at once; on a CPU with `use_key_padding_mask=True` sessions are encoded without most of their padding, in parts by length.
    With `RankingMeasures` in the trainer's callbacks, the validation items are ranked among those that are not in the session.
    A checkpoint is loaded by `load_from_checkpoint(path, model_params_update={"lightning_module_type": next_item_module(loss)})`.
    `save`, `pickle` and `copy` of a model find the class by its name: give it one, `class Ranked(next_item_module(loss)): pass`.

    Args:
        loss: a ranking loss; the softmax loss if None.
        negatives: the items ranked with the next one, `Negatives` or their kind: all, or sampled ones.

    Raises:
        ImportError: RecTools is not installed: `pip install 'rankstruct[sequences]'`.
        TypeError: a loss that is not a module.
        ValueError: a loss that has a value for each list, or parameters to learn; (of the class) a `loss=` of RecTools' own that
            samples, interactions with weights, or another similarity.

    >>> module = next_item_module(rs.SoftmaxLoss())  # doctest: +SKIP
    >>> model = SASRecModel(lightning_module_type=module, use_key_padding_mask=True)  # doctest: +SKIP
    >>> model.fit(dataset).recommend(users, dataset, k=10, filter_viewed=True)  # doctest: +SKIP
    """
    base = import_extra("rectools.models.nn.transformers.lightning", "sequences").TransformerLightningModule
    options = {"_options": (loss_of_lists(loss, fixed=True), Negatives.of(negatives))}
    return type("NextItemModule", (_NextItems, base), options)


def __getattr__(name: str) -> Any:
    """What RecTools asks for when it loads a model whose class has no name of its own."""
    if name == "NextItemModule":
        name += (
            ", a class that next_item_module(loss) makes: pass it to load_from_checkpoint(path, "
            'model_params_update={"lightning_module_type": next_item_module(loss)}), or, for save and pickle, train with a class '
            "that has a name, class Ranked(next_item_module(loss)): pass"
        )
    raise AttributeError(f"module {__name__!r} has no {name}")


class _NextItems(_Module):
    _options: tuple[RankingLoss, Negatives]

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        if self._requires_negatives:
            raise ValueError(
                f"a ranking loss replaces RecTools' loss, so leave loss= at the default; got {self.loss!r}"
            )
        if not hasattr(self.torch_model.similarity_module, "distance"):
            raise ValueError("a ranking loss requires RecTools' DistanceSimilarityModule, whose scores are products")
        with torch.random.fork_rng([]):  # RecTools draws weights after the sanity check, which would see empty ones
            self._xavier_normal_init()
        self.ranking_loss, self.loss_calculator = self._options[0], None

    @cached_property
    def _lists(self) -> TargetLists:
        data = self.data_preparator
        known = data.train_dataset.interactions.df
        if (known["weight"] != 1).any():
            raise ValueError("a ranking loss takes no weights of interactions; set the column 'weight' to 1")
        counts = np.bincount(known["item_id"], minlength=data.item_id_map.size)
        return TargetLists(counts[data.n_item_extra_tokens :], self._options[1])

    def _parts(self, batch: Mapping[str, Tensor]) -> Iterator[tuple[Tensor, Mapping[str, Tensor]]]:
        """Sessions by their place in the batch, in parts: on a CPU of similar length, if their padding has no effect."""
        model, size = self.torch_model, batch["x"].shape[1]
        lengths = size - (batch["x"] != 0).byte().argmax(1)
        rows, is_plain = lengths.argsort(), {*batch} <= {"x", "y", "yw"} and batch["x"].is_cpu
        inverse = type(model.pos_encoding_layer).__name__ == "LearnableInversePositionalEncoding"
        if not (model.use_key_padding_mask and is_plain and inverse):
            yield torch.arange(len(rows), device=rows.device), batch
            return
        for part in rows.chunk(_PARTS):
            yield part, {name: each[part, -int(lengths[part[-1]]) :] for name, each in batch.items()}

    def encoded(self, batch: Mapping[str, Tensor]) -> tuple[Encoded, Tensor, Tensor]:
        """The vectors of the positions that have a next item and of all items; the next items; the sessions of the positions."""
        items, found = self.torch_model.item_model.get_all_embeddings(), []
        for rows, part in self._parts(batch):
            y = part["y"]
            vectors, real = self.torch_model.encode_sessions(part, items)[:, -y.shape[1] :], y != 0
            found.append((vectors[real], y[real], rows[real.nonzero()[:, 0]]))
        vectors, targets, sessions = map(torch.cat, zip(*found, strict=True))
        similarity, first = self.torch_model.similarity_module, self.data_preparator.n_item_extra_tokens
        if similarity.distance.value == "cosine":
            vectors, items = similarity._get_embeddings_norm(vectors), similarity._get_embeddings_norm(items)
        return Encoded(vectors / self.logits_t, items[first:]), targets - first, sessions

    def _calc_custom_loss(self, batch: Mapping[str, Tensor], batch_idx: int) -> Tensor:
        encoded, targets, _ = self.encoded(batch)
        return self._lists.mean(encoded, targets, self.ranking_loss)

    def _calc_custom_loss_outputs(self, batch: Mapping[str, Tensor], batch_idx: int) -> dict[str, Tensor]:
        encoded, targets, sessions = self.encoded(batch)
        scores, first = encoded.lists @ encoded.items.T, self.data_preparator.n_item_extra_tokens
        labels = torch.zeros_like(scores).scatter_(1, targets[:, None], 1.0)
        known = torch.nn.functional.pad(labels, (first, 0)).scatter_(1, batch["x"][sessions], 1.0)[:, first:]
        loss = self._lists.mean(encoded, targets, self.ranking_loss)
        return {"loss": loss, "scores": scores, "labels": labels, "where": (known == 0) | (labels > 0)}
