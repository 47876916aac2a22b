"""Random lists on which the kernels of devices are compared with the CPU, the comparison, and Triton's interpreter."""

import os
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

#: Of tests that run in a process of their own, see `in_the_interpreter`.
interpreted = pytest.mark.skipif(
    os.environ.get("TRITON_INTERPRET") != "1", reason="runs in a process of its own, in Triton's interpreter"
)


#: The `interpreted` tests of a file: in continuous integration a sample, before a release all of them.
some_or_all = pytest.mark.parametrize(
    "marks",
    [pytest.param("not soak", marks=pytest.mark.slow), pytest.param("soak or not soak", marks=pytest.mark.soak)],
    ids=["some", "all"],
)


def in_the_interpreter(file: str, marks: str) -> int:
    """How many `interpreted` tests of a file pass, all that have these marks: Triton decides when it is imported."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", marks, "-k", "answers_in_the_interpreter", file]
    done = subprocess.run(command, env={**os.environ, "TRITON_INTERPRET": "1"}, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    found = re.search(r"(\d+) passed", done.stdout)
    return int(found[1]) if found else 0


def draw(rng, lists, size):
    """Scores, grades, a mask and item weights: ties, far apart, nothing relevant, empty lists and lists of one document."""
    spread = 10.0 ** rng.integers(-2, 3, size=(lists, 1))
    scores = rng.normal(size=(lists, size)) * spread
    scores = np.where(rng.random((lists, 1)) < 0.3, np.round(scores / spread) * spread, scores)
    labels = (
        rng.integers(0, 5, size=(lists, size)) / 2 * (rng.random((lists, size)) < rng.choice([0.2, 1, 0], (lists, 1)))
    )
    where = rng.random((lists, size)) < rng.choice([0.0, 0.2, 0.8, 1.0], (lists, 1), p=[0.05, 0.15, 0.4, 0.4])
    weights = rng.random((lists, size)) + 0.1
    return [
        torch.from_numpy(each)
        for each in (scores, labels, where, np.where(rng.random(weights.shape) < 0.1, 0, weights))
    ]


def arguments(rng, loss, lists, size):
    """Padded, with item weights, flat, and in half precision."""
    scores, labels, where, weights = draw(rng, lists, size)
    weighted = {"item_weights": weights} if loss.takes_item_weights else {}
    yield scores, labels, {"where": where}
    yield scores.mT.contiguous().mT, labels.float(), {"where": where} | weighted
    offsets = {"offsets": torch.cat([torch.zeros(1, dtype=torch.int64), where.sum(-1).cumsum(0)])}
    yield scores[where], labels[where], offsets | {name: each[where] for name, each in weighted.items()}
    yield scores[where].bfloat16(), labels[where].long(), offsets


def both_ways(loss, scores, labels, lists):
    """Values and gradients."""
    scores = scores.clone().requires_grad_()
    value = loss(scores, labels, **lists)
    (slope,) = torch.autograd.grad(value, scores, torch.linspace(0.5, 2.0, len(value), dtype=value.dtype))
    return value.detach(), slope


def assert_same(found, expected, scores):
    """To the last digits; the core computes pairs of half precision in float32."""
    double = scores.dtype == torch.float64
    for each, there in zip(found, expected, strict=True):
        size = 1 + float(there.abs().max()) if there.numel() else 1.0
        torch.testing.assert_close(each, there, rtol=1e-11 if double else 2e-2, atol=(1e-12 if double else 2e-2) * size)
