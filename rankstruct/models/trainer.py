"""Training by steps: the one loop that is not Lightning's, for networks and factorisations, alone or many at once.

A step takes the gradient of the sum of the losses of all models that are still trained, and moves their weights by AdamW. What is
kept of a model are not its last weights, but their average over the steps, at the epoch with the best validation value.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw

from rankstruct.files import whole_file
from rankstruct.models.saving import read_checkpoint
from rankstruct.processes import Team
from rankstruct.progress import Progress, announce

__all__: list[str] = []


_STATE = ("steps", "active", "history", "best", "best_epochs")


def random_state(device: torch.device) -> list[Tensor]:
    """The states of torch's generators: that of the CPU and, if it is used, of the GPU."""
    return [torch.get_rng_state(), *([torch.cuda.get_rng_state(device)] if device.type == "cuda" else [])]


def set_random_state(state: Sequence[Tensor], device: torch.device) -> None:
    """Set the generators to a result of `random_state`."""
    torch.set_rng_state(state[0])
    for each in state[1:]:
        torch.cuda.set_rng_state(each, device)


def checkpoint_folder(path: str | os.PathLike[str]) -> Path:
    """The folder of an argument `checkpoint`, created if needed; raises ValueError unless states can be written to it."""
    folder = Path(path)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ValueError(
            f"checkpoint must be a folder, got {folder}, which cannot be created: {error.strerror}"
        ) from None
    if not os.access(folder, os.W_OK):
        raise ValueError(f"checkpoint must be a folder that can be written to, got {folder}")
    return folder


class Checkpoints:
    """States of a training in a folder, a file for each process, of the last epoch that all have finished.

    Args:
        folder: the folder, see `checkpoint_folder`.
        request: what the result depends on, as text.
        team: the processes that train together.
        name: that of the training, by which files begin.
    """

    def __init__(self, folder: Path, request: str, team: Team, name: str) -> None:
        self.folder, self.request, self.team, self.name = folder, request, team, name

    def _file(self, epoch: int) -> Path:
        return self.folder / f"{self.name}-{epoch}-{self.team.rank + 1}-of-{self.team.world_size}.pt"

    def last(self) -> dict[str, Any] | None:
        """The last state, None if there is none; raises ValueError if it is that of another training."""
        named = re.compile(rf"{self.name}-(\d+)-\d+-of-\d+\.pt")
        files = {each: int(found[1]) for each in self.folder.iterdir() if (found := named.fullmatch(each.name))}
        own = {epoch for each, epoch in files.items() if each == self._file(epoch)}
        whole = set.intersection(*self.team.gathered(own))
        state = read_checkpoint(self._file(max(whole))) if whole else None
        others = [each for each in files if not each.stem.endswith(f"-of-{self.team.world_size}")]
        if others or (state is not None and state.get("request") != self.request):
            raise ValueError(
                f"checkpoint: {self.folder} has states of another fit, with other interactions, options, seed or number of "
                "processes; pass another folder, or remove it to start again"
            )
        return state

    def write(self, epoch: int, state: dict[str, Any]) -> None:
        """Save the state after an epoch; each file is written at once, and earlier ones removed when all are there."""
        with whole_file(self._file(epoch), "wb") as file:
            torch.save({**state, "request": self.request}, file)
        self.team.gathered(None)
        for old in self.folder.glob(f"{self.name}-*-{self.team.rank + 1}-of-*.pt*"):  # also what a killed fit left half
            if old != self._file(epoch):
                old.unlink()


class Trainer:
    """Models in training; a subclass says what a batch, a step and an average of theirs are.

    The models of a group are validated together and keep the same epoch, such as those of one seed on the folds of
    cross-validation. Training of a group ends `patience` epochs after its best one, and of all after `max_epochs`.

    Args:
        weights: all parameters that are trained, including those of losses.
        groups: the numbers of the models, from 0, by group.
        learning_rate, weight_decay: of AdamW.
        max_epochs: the maximum number of epochs.
        patience: epochs without improvement before a group stops.
        validate_every: epochs between two validations; the last epoch is validated.
        is_validated: whether there is anything to validate; otherwise the last epoch is kept.

    Attributes:
        active: the numbers of the models that are still trained, ascending.
        history: of each model, `{"epoch", "loss", "validation"}` of each epoch; validation is None where there was none.
        best: of each model, the best value; None without validation.
        best_epochs: of each model, the epoch that is kept, from 1.
        steps: number of steps so far.
    """

    def __init__(
        self,
        weights: Iterable[nn.Parameter],
        groups: Sequence[Sequence[int]],
        *,
        learning_rate: float,
        weight_decay: float,
        max_epochs: int,
        patience: int,
        validate_every: int = 1,
        is_validated: bool = True,
    ) -> None:
        self.optimizer = _AdamW(weights, learning_rate, weight_decay)
        self.groups, self.max_epochs, self.patience = groups, max_epochs, patience
        self.validate_every, self.is_validated, self.steps = validate_every, is_validated, 0
        self.active = sorted(number for group in groups for number in group)
        self.history: list[list[dict[str, float | None]]] = [[] for _ in self.active]
        self.best: list[float | None] = [None for _ in self.active]
        self.best_epochs = [0 for _ in self.active]

    def batches(self) -> Iterator[Any]:
        """The batches of an epoch of all active models."""
        raise NotImplementedError

    def losses(self, batch: Any) -> Tensor:
        """The loss of each model for a batch, `[models]`, 0 for those that are not active."""
        raise NotImplementedError

    def average(self) -> None:
        """Take the weights after a step into the averages, of which there are `steps`."""
        raise NotImplementedError

    def validation(self, group: Sequence[int]) -> float:
        """The value of the averages of some models on their validation data, higher is better."""
        raise NotImplementedError

    def keep(self, number: int) -> None:
        """Keep the average of a model as it is now."""
        raise NotImplementedError

    def state_dict(self) -> dict[str, Any]:
        """What training goes on from after an epoch: plain data and tensors."""
        return {name: getattr(self, name) for name in _STATE} | {"optimizer": self.optimizer.state}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state."""
        for name in _STATE:
            setattr(self, name, state[name])
        with torch.no_grad():
            for own, values in zip(self.optimizer.state, state["optimizer"], strict=True):
                for each, value in zip(own, values, strict=True):
                    each.copy_(value)

    def run(self, measure: str, checkpoints: Checkpoints | None = None, **shown: Any) -> None:
        """Train, with a progress bar that has the best values of the measure; `shown` are options of the bar.

        With checkpoints, the state is saved after each epoch, and training goes on from the one that is there.
        """
        if checkpoints is not None and (state := checkpoints.last()) is not None:
            self.load_state_dict(state)
        epochs = range(1 + max(map(len, self.history)), self.max_epochs + 1) if self.active else ()
        with Progress(epochs, unit=" epochs", leave=False, **shown) as bar:
            for epoch in bar:
                announce(f"epoch {epoch}")
                losses = self._learn()
                for group in self.groups:
                    if group[0] in self.active:
                        self._validate(group, epoch, losses)
                if checkpoints is not None:
                    checkpoints.write(epoch, self.state_dict())
                if not self.active:
                    break
                best = [value for value in self.best if value is not None]
                bar.set_postfix_str(f"{measure} {sum(best) / len(best):.4f}" if best else "")

    def _learn(self) -> list[float]:
        """Take the steps of an epoch; returns the mean loss of each model."""
        first, total = self.steps, torch.zeros(())  # a list of small tensors would scatter the heap
        for batch in self.batches():
            losses = self.losses(batch)
            self.optimizer.step(losses.sum())
            self.average()
            total = total.to(losses) + losses.detach()
            self.steps += 1
        return [loss / (self.steps - first) for loss in total.tolist()]

    def _validate(self, group: Sequence[int], epoch: int, losses: Sequence[float]) -> None:
        """Record an epoch of a group, keep its averages if they are the best so far, and end its training if it is time."""
        is_due = self.is_validated and (epoch % self.validate_every == 0 or epoch == self.max_epochs)
        value, before = self.validation(group) if is_due else None, self.best[group[0]]
        is_best = not self.is_validated or (value is not None and (before is None or value > before))
        for number in group:
            self.history[number].append({"epoch": epoch, "loss": losses[number], "validation": value})
            if is_best:
                self.best[number], self.best_epochs[number] = value, epoch
                self.keep(number)
            if is_due and epoch - self.best_epochs[number] >= self.patience:
                self.active.remove(number)


class _AdamW:
    """`torch.optim.AdamW(weights, lr=learning_rate, weight_decay=weight_decay, fused=True)`, number for number.

    That class imports torch's compiler when it is made, which takes longer than to train on a small set.
    """

    def __init__(self, weights: Iterable[nn.Parameter], learning_rate: float, weight_decay: float) -> None:
        self.weights, self.learning_rate, self.weight_decay = [*weights], learning_rate, weight_decay
        self.means, self.squares = ([torch.zeros_like(each) for each in self.weights] for _ in range(2))
        self.steps = [torch.zeros((), device=each.device) for each in self.weights]

    @property
    def state(self) -> list[list[Tensor]]:
        """The weights and all that the next step depends on."""
        return [[*self.weights], self.means, self.squares, self.steps]

    def step(self, loss: Tensor) -> None:
        """Take a step of all weights on which the loss depends."""
        for each in self.weights:
            each.grad = None
        loss.backward()
        gradients = {number: each.grad for number, each in enumerate(self.weights) if each.grad is not None}
        weights, means, squares, steps = (
            [of[number] for number in gradients] for of in (self.weights, self.means, self.squares, self.steps)
        )
        with torch.no_grad():
            adamw(
                weights,
                [*gradients.values()],
                means,
                squares,
                [],
                steps,
                foreach=False,
                fused=True,
                amsgrad=False,
                beta1=0.9,
                beta2=0.999,
                lr=self.learning_rate,
                weight_decay=self.weight_decay,
                eps=1e-8,
                maximize=False,
            )
