"""`rankstruct certify`: bound how far an SGD run is from the optimum of its objective."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import jsonargparse
import torch
from torch import nn

from rankstruct.commands._options import parser_of
from rankstruct.configs import HelpfulParser, read_config
from rankstruct.data import Source
from rankstruct.data.record import KEY, check_unchanged
from rankstruct.diagnostics import Certificate, certify
from rankstruct.files import newest_run, write_text
from rankstruct.models import load_scorer
from rankstruct.models.saving import read_checkpoint
from rankstruct.models.scorers import split_preparation
from rankstruct.text_tables import format_table


def certify_run(run: str | Path, *, tolerance: float = 1e-3) -> Certificate:
    """Apply `certify` to the best checkpoint of a training run.

    Raises:
        ValueError: the folder is not a run, or its objective has no certified optimum.
    """
    folder = newest_run(run)
    if not (folder / "config.yaml").is_file():
        raise ValueError(f"{folder} is not the folder of a run: config.yaml is missing")
    try:
        config = read_config(folder / "config.yaml")
        model, data, seed = config["model"], config["data"], int(config["seed_everything"])
        trusted = [model["scorer"]["class_path"]]  # the run's own config names it
        data, loss, regularization = dict(data), model["loss"], float(model["regularization"])
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{folder / 'config.yaml'} is not the config of a run: {error}") from error
    if "class_path" in data:
        raise ValueError(
            f"certify reads the data of the library's own data module, the run's is a {data['class_path']}"
        )
    if data.get("max_list_size") is not None:
        raise ValueError("the run sampled its training lists (data.max_list_size), which changes its objective")
    if model.get("regularize_towards", "zero") != "zero":
        raise ValueError("the run is regularised towards its starting point; certificates are for w0 = 0 only")
    given = {each.name: data[each.name] for each in fields(Source) if each.name in data}
    source = Source(**{**given, "seed": seed})  # the data module's seed is the run's
    scorer, _ = split_preparation(load_scorer(folder, trusted=trusted))  # the lists are prepared already
    record = read_checkpoint(folder / "checkpoints" / "best.ckpt").get(KEY, {})
    check_unchanged(source, record, "a certificate is about the data of training: restore them")
    train = source.read().train
    return certify(scorer, _build_loss(loss), train, regularization, tolerance=tolerance)[0]


def _build_loss(spec: dict[str, Any] | None) -> nn.Module:
    from rankstruct.losses import StructuredHingeLoss

    if spec is None:
        return StructuredHingeLoss("AP")
    parser = HelpfulParser(exit_on_error=False)
    parser.add_subclass_arguments(nn.Module, "loss")
    try:
        loss: nn.Module = parser.instantiate_classes(parser.parse_object({"loss": spec})).loss
    except (jsonargparse.ArgumentError, TypeError) as error:
        raise ValueError(f"the loss of the run's config cannot be built: {error}") from error
    return loss


def main(args: Sequence[str]) -> None:
    """Print the table and write `certificate.json` to the run's folder."""
    options = parser_of("certify").parse_args(args[1:])
    torch.set_num_threads(1)
    found = certify_run(options.run, tolerance=options.tolerance)
    rows: list[list[object]] = [
        ["objective of the run", found.objective],
        ["lowest objective found", found.optimum],
        ["certified lower bound", found.lower_bound],
        ["gap of the run", f"{found.gap:.2%}"],
        ["||w - w*|| / ||w*||", found.distance],
    ]
    print(format_table(["", "value"], rows))
    target = Path(options.run) / "certificate.json"
    write_text(target, json.dumps(asdict(found), indent=2))
    print(f"written: {target}")
