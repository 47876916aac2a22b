"""The loop of training by steps, on models of one number each."""

import pytest
import torch
from torch import nn

from rankstruct.models.trainer import Trainer
from rankstruct.progress import listening


class Numbers(Trainer):
    """Models whose weight is a number that grows; the value of a group after its n-th validation is given."""

    def __init__(self, values, steps=2, groups=None, **options):
        self.values, self.number_of_steps, self.kept = [iter(each) for each in values], steps, {}
        groups = [[number] for number in range(len(values))] if groups is None else groups
        self.weights = nn.Parameter(torch.zeros(sum(map(len, groups))))
        super().__init__([self.weights], groups, learning_rate=0.1, weight_decay=0.0, **options)

    def batches(self):
        return iter(range(self.number_of_steps))

    def losses(self, batch):
        active = torch.zeros(len(self.weights))
        active[self.active] = 1.0
        return -self.weights * active

    def average(self):
        self.averages = (self.steps, self.weights.detach().clone())

    def validation(self, group):
        return next(self.values[self.groups.index(group)])

    def keep(self, number):
        self.kept[number] = float(self.averages[1][number])


def test_the_best_epoch_is_kept_and_patience_ends_a_group():
    training = Numbers([[1, 3, 2, 3, 9], [1, 2, 3, 4, 5]], max_epochs=5, patience=2)
    training.run("AP", disable=True)
    assert training.best_epochs == [2, 5]
    assert training.best == [3, 5]
    assert [[each["validation"] for each in history] for history in training.history] == [[1, 3, 2, 3], [1, 2, 3, 4, 5]]
    assert training.steps == 10
    assert training.kept == pytest.approx({0: 0.4, 1: 1.0}, rel=1e-4)  # AdamW's steps here are the learning rate
    assert training.active == [1]
    losses = [each["loss"] for each in training.history[0]]
    assert losses == pytest.approx([-0.05, -0.25, -0.45, -0.65], rel=1e-4)  # mean over the two steps of an epoch


def test_validation_is_due_at_times_and_at_the_end():
    training = Numbers([[1, 2, 3]], max_epochs=5, patience=9, validate_every=2)
    training.run("AP", disable=True)
    assert [each["validation"] for each in training.history[0]] == [None, 1, None, 2, 3]
    assert training.best_epochs == [5]


def test_without_validation_the_last_epoch_is_kept():
    training = Numbers([[], []], max_epochs=3, patience=1, is_validated=False)
    training.run("AP", disable=True)
    assert training.best_epochs == [3, 3]
    assert training.best == [None, None]
    assert training.kept == pytest.approx({0: 0.6, 1: 0.6}, rel=1e-4)


def test_models_of_a_group_keep_the_same_epoch():
    said = []
    training = Numbers([[2, 1], [4, 6]], groups=[[0, 2], [1, 3]], max_epochs=2, patience=5)
    with listening(said.append):
        training.run("AP", disable=False)
    assert training.best_epochs == [1, 2, 1, 2]
    assert said == ["epoch 1", "epoch 2"]
    assert training.best == [2, 6, 2, 6]
