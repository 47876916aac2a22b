"""Any ranking loss in TRL's trainers of preferences and of reward models, over any number of responses to a prompt."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import MISSING, fields
from functools import partial
from itertools import groupby
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from rankstruct.embeddings import loss_of_lists
from rankstruct.losses import RankingLoss
from rankstruct.measures import evaluate
from rankstruct.messages import import_extra, shortened
from rankstruct.scoring import preference_scores
from rankstruct.text.adapters import PADDING, TrainerLoss

__all__ = ["listwise_trainer"]

_Trainer: Any = object  # in the place of TRL's trainer, which is imported when it is asked for
COLUMNS = ("prompt", "completions", "labels")
#: Options of TRL's configs that are parts of its own losses.
PARTS = (
    "loss_type", "loss_weights", "ld_alpha", "f_divergence_type", "label_smoothing", "use_weighting", "precompute_ref_log_probs",
    "center_rewards_coefficient",
)  # fmt: skip


def listwise_trainer(loss: RankingLoss | None = None, trainer: str | type = "DPOTrainer") -> Any:
    """TRL's `DPOTrainer` or `RewardTrainer` as a class whose loss is a ranking loss over all responses to a prompt.

    It is called with the arguments of TRL's class. A row of its data sets has `prompt`, `completions`, a list of the responses in
    TRL's standard or conversational format, and `labels`, a grade for each. Equal grades are ties, and prompts may have different
    numbers of responses. `DPOTrainer` ranks responses by `preference_scores`; with two and `RankNetLoss` it is DPO.
    `RewardTrainer` ranks them by the model's rewards. `rewards/accuracies` is logged: the share of a prompt's pairs
    with different grades that are in the right order (`OPA`), a mean over prompts that have such pairs.

    Args:
        loss: a ranking loss; the softmax loss if None.
        trainer: `"DPOTrainer"` or `"RewardTrainer"`, or a subclass of one of these.

    Raises:
        ImportError: TRL is not installed: `pip install 'rankstruct[preferences]'`.
        TypeError: another trainer, or a loss that is not a module.
        ValueError: a loss that has a value for each list, or parameters to learn; (of the class) options of TRL's own losses,
            rows without these columns, or a number of labels that is not that of the completions.

    Source: Rafailov et al., "Direct Preference Optimization", NeurIPS 2023; Liu et al., "LiPO: Listwise Preference Optimization
    through Learning-to-Rank", 2024.

        rows = [{"prompt": "2 + 2 =", "completions": [" 4", " four", " 5"], "labels": [1, 1, 0]}]
        Trainer = rs.text.listwise_trainer(rs.LambdaLoss("nDCG@10"))
        Trainer(model, args=DPOConfig(beta=0.1), train_dataset=Dataset.from_list(rows), processing_class=tokenizer).train()
    """
    trl = import_extra("trl", "preferences")
    base: Any = getattr(trl, trainer, None) if isinstance(trainer, str) else trainer
    for name, scores in (("DPOTrainer", _policy_scores), ("RewardTrainer", _rewards)):
        if isinstance(base, type) and issubclass(base, getattr(trl, name)):
            own = {"ranking_loss": loss_of_lists(loss, fixed=True), "scores": scores}
            return type(f"Listwise{base.__name__}", (_Listwise, base), own)
    raise TypeError(f"trainer must be 'DPOTrainer' or 'RewardTrainer', or a subclass of one of these; got {trainer!r}")


class _Listwise(_Trainer):
    """What both trainers share: rows of TRL, one for each response, are grouped by prompt."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        for each in fields(self.args):
            usual = each.default if each.default_factory is MISSING else each.default_factory()
            if each.name in PARTS and getattr(self.args, each.name) != usual:
                raise ValueError(f"a ranking loss replaces TRL's loss, so leave {each.name} at the default")
        self.data_collator: Any = partial(_collated, self.data_collator)

    def _prepare_dataset(self, dataset: Any, processing_class: Any, args: Any, name: str) -> Any:
        columns = list(next(iter(dataset), COLUMNS))
        if "responses" in columns:
            return dataset
        if missing := set(COLUMNS) - set(columns):
            raise ValueError(f"each row must have {', '.join(COLUMNS)}; {name} has no {', '.join(sorted(missing))}")
        rows = dataset.map(_rows_of_responses, batched=True, with_indices=True, remove_columns=columns)
        rows = super()._prepare_dataset(rows, processing_class, args, name)  # each response by TRL
        return type(rows).from_generator(_lists_of_rows, gen_kwargs={"rows": rows})

    def _set_signature_columns_if_needed(self) -> None:
        self._signature_columns = ["responses", "labels"]

    def compute_loss(self, model: Any, inputs: dict[str, Tensor], return_outputs: bool = False, **options: Any) -> Any:
        inputs = dict(inputs)
        grades = inputs.pop("grades")
        scores, outputs = self.scores(model, inputs)
        self._log_accuracy(scores.detach(), grades)
        loss = TrainerLoss(self.ranking_loss)(scores, grades)
        return (loss, outputs) if return_outputs else loss

    def _log_accuracy(self, scores: Tensor, grades: Tensor) -> None:
        where = grades != PADDING
        padded = torch.zeros_like(grades).masked_scatter(where, scores.to(grades.dtype))
        (shares,) = evaluate(padded, grades.where(where, 0), "OPA", where=where, empty="skip").values()
        found = self.accelerator.gather(torch.stack([shares.nansum(), (shares >= 0).sum()])[None])
        total, prompts = found.sum(0).tolist()
        if prompts:
            self._metrics["train" if self.model.training else "eval"]["rewards/accuracies"].append(total / prompts)


def _policy_scores(trainer: Any, model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Any]:
    tokens = {name: each for name, each in inputs.items() if name != "completion_mask"}
    labels = inputs["input_ids"].masked_fill(inputs["completion_mask"] == 0, -100)
    outputs = model(**tokens, labels=labels, fused_lm_head=True, use_cache=False)
    policy = outputs.log_probs[:, 1 - labels.shape[1] :].sum(1)  # without virtual tokens of learned prompts
    reference = torch.cat(trainer.compute_ref_log_probs(trainer.ref_model or trainer.model, inputs))
    return preference_scores(policy, reference, trainer.beta), outputs


def _rewards(trainer: Any, model: Any, inputs: dict[str, Tensor]) -> tuple[Tensor, Any]:
    outputs = model(**inputs, use_cache=False)
    return outputs.logits.squeeze(-1), outputs


def _collated(collator: Any, examples: Sequence[Mapping[str, Any]]) -> dict[str, Tensor]:
    """The batch of TRL's collator for the responses of all prompts, with `grades` `[prompts, most responses]`."""
    rows = [row for each in examples for row in each["responses"]]
    labels = [torch.tensor(each["labels"], dtype=torch.float32) for each in examples]
    grades = torch.nn.utils.rnn.pad_sequence(labels, batch_first=True, padding_value=PADDING)
    # first, since Trainer takes the number of examples from it; of TRL's rows, the second half repeats the first
    return {"grades": grades, **{name: each[: len(rows)] for name, each in collator(rows).items()}}


def _rows_of_responses(lists: Mapping[str, Sequence[Any]], numbers: Sequence[int]) -> dict[str, list[Any]]:
    """A row in TRL's format for each response."""
    rows = []
    for at, (number, texts, labels) in enumerate(zip(numbers, lists["completions"], lists["labels"], strict=True)):
        if isinstance(texts, str) or not texts or not _are_grades(labels) or len(texts) != len(labels):
            raise ValueError(
                f"a row must have completions with a label each, a finite number and not {PADDING}; row {number} has "
                f"{shortened(texts)} and labels {shortened(labels)}"
            )
        others = {name: lists[name][at] for name in lists if name not in COLUMNS[1:]}
        for text, label in zip(texts, labels, strict=True):
            rows.append({**others, "chosen": text, "rejected": text, "label": float(label), "list": number})
    return {name: [row[name] for row in rows] for name in rows[0]}


def _are_grades(labels: Any) -> bool:
    """Whether they are finite numbers, none of them that of padding."""
    labels = labels.tolist() if hasattr(labels, "tolist") else labels  # of data sets in the format of torch or NumPy
    return isinstance(labels, list | tuple) and all(
        isinstance(each, Real) and math.isfinite(each) and each != PADDING for each in labels
    )


def _lists_of_rows(rows: Any) -> Iterator[dict[str, Any]]:
    """Group consecutive rows by prompt."""
    for _, group in groupby(rows, key=lambda row: row["list"]):
        each = list(group)
        ids = [{name: value for name, value in row.items() if name.endswith("_ids")} for row in each]
        yield {"responses": ids, "labels": [row["label"] for row in each]}
