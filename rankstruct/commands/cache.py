"""`rankstruct cache`: show or clear the cache of parsed files, or fill that of kernels."""

from __future__ import annotations

import time
from argparse import ArgumentError
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import torch
from jsonargparse import ArgumentParser

from rankstruct import embeddings, losses
from rankstruct.commands._arguments import shipped_configs
from rankstruct.commands._options import loss_names, parser_of
from rankstruct.configs import load_yaml
from rankstruct.data.cache import cache_folder, cache_limit, cached_files, evict, parse_size
from rankstruct.kernels import dispatch
from rankstruct.losses import RankingLoss
from rankstruct.messages import did_you_mean
from rankstruct.text_tables import format_table


def main(args: Sequence[str]) -> None:
    """Print the cached files, or remove some."""
    given = parser_of("cache").parse_args(args[1:])
    if given.warm:
        warm([_loss_of(name) for name in given.warm], given.sizes, _device())
        return
    folder = cache_folder(True)
    assert isinstance(folder, Path)
    limit = 0 if given.clear else cache_limit() if given.limit is None else parse_size(given.limit)
    if given.clear or given.limit is not None:
        gone = evict(folder, limit)
        print(f"removed {len(gone)} files, {_megabytes(sum(each.size for each in gone))} MB")
    files = cached_files(folder)
    if files and not given.clear:
        now = time.time()
        rows = [[each.path.name, _megabytes(each.size), f"{(now - each.used) / 86400:.1f}"] for each in files]
        print(format_table(["file", "MB", "days unused"], rows))
    total = _megabytes(sum(each.size for each in files))
    print(f"{folder}: {len(files)} files, {total} MB of at most {_megabytes(cache_limit())}")


def warm(losses: Sequence[RankingLoss], sizes: Sequence[int], device: torch.device) -> None:
    """Call each loss forward and backward with lists of these sizes, padded and flat, of grades and of real labels."""
    for loss in losses:
        loss, start = loss.to(device), time.perf_counter()
        for size, dtype in product(sizes, (torch.int64, torch.float32)):
            scores = torch.randn(2, size, device=device)
            labels = (torch.arange(2 * size, device=device).view(2, size) % 2).to(dtype)
            more = {"diversity_groups": labels.long()} if loss.takes_groups else {}
            flat = {name: each.flatten() for name, each in more.items()}
            offsets = torch.tensor([0, size, 2 * size])
            for its, scored, labelled in (
                (more, scores, labels),
                (more | {"where": torch.ones_like(labels, dtype=torch.bool)}, scores, labels),
                (flat | {"offsets": offsets}, scores.flatten(), labels.flatten()),
            ):
                loss(scored.requires_grad_(), labelled, **its).backward()
        print(f"{loss}: {time.perf_counter() - start:.1f} s")


def _loss_of(name: str) -> RankingLoss:
    """The loss of this name, the structured hinge of a measure, or the loss of a config."""
    if name in loss_names():
        try:
            return getattr(losses, name)()
        except TypeError:
            raise ValueError(f"{name} needs options; name a config that has them") from None
    if name in (configs := shipped_configs()) or Path(name).is_file():
        parser = ArgumentParser(exit_on_error=False)
        parser.add_subclass_arguments(losses.RankingLoss, "loss")
        config = load_yaml(Path(configs.get(name, name)).read_text(encoding="utf-8"), name)
        model = config.get("model") if isinstance(config, dict) else None
        known = model.get("loss") if isinstance(model, dict) else None
        if known is None:
            raise ValueError(f"{name} has no model: loss:")
        try:
            return parser.instantiate_classes(parser.parse_object({"loss": known})).loss
        except ArgumentError as error:
            raise ValueError(f"{name}: {error}") from None
    if name in embeddings.__all__:
        raise ValueError(f"{name} has no kernels of its own: name the loss that it is given, by default SoftmaxLoss")
    try:
        return losses.StructuredHingeLoss(name)
    except ValueError as error:
        known = [*loss_names(), *configs]
        raise ValueError(f"{name} is no loss, measure or config{did_you_mean(name, known)}: {error}") from None


def _device() -> torch.device:
    """The device to compile for; raises ValueError if none has kernels."""
    device = torch.device("cuda")
    if not torch.cuda.is_available():
        raise ValueError("--warm compiles kernels on the GPU that will run them, and torch finds none here")
    if dispatch.kernels_of(device) is None:
        raise ValueError("--warm needs Triton, and RANKSTRUCT_TRITON must not be 0")
    return device


def _megabytes(size: int) -> str:
    return f"{size / 1e6:.1f}"
