"""Values to sort that a shortcut could get wrong, and whether they are sorted."""

from __future__ import annotations

import numpy as np

#: About the lengths at which the way changes; with 0 and 1.
LENGTHS = (0, 1, 2, 3, 7, 31, 32, 33, 34, 79, 80, 81, 120, 255, 256, 257, 511, 512, 513, 700, 2000)
KINDS = (
    "normal",
    "tied",
    "two values",
    "constant",
    "outlier",
    "far apart",
    "signed zeros",
    "tiny",
    "ascending",
    "last bits",
    "magnitudes",
    "shifted",
)


def draw_values(rng: np.random.Generator, kind: str, n: int, dtype: str) -> np.ndarray:
    """`[n]`, finite."""
    normal, largest, least = rng.normal(size=n), float(np.finfo(dtype).max), float(np.finfo(dtype).smallest_subnormal)
    values = {
        "normal": lambda: normal * 10.0 ** rng.integers(-6, 7),
        "tied": lambda: np.round(normal * rng.choice([1, 3, 30])),
        "two values": lambda: rng.integers(0, 2, n) * 0.3,
        "constant": lambda: np.full(n, normal[:1].sum()),
        # All others share a bucket, and their highest bits.
        "outlier": lambda: np.where(
            np.arange(n) == rng.integers(0, max(n, 1)), rng.choice([-1e30, 1e30, 1e6]), 1 + 1e-6 * normal
        ),
        "far apart": lambda: np.clip(normal, -1, 1) * largest,
        "signed zeros": lambda: rng.choice([0.0, -0.0, least, -least, 1.0, -1.0], n),
        "tiny": lambda: np.round(normal * 50) * least,
        "magnitudes": lambda: normal * 10.0 ** rng.integers(-42, 30, size=n),
        "shifted": lambda: normal + 1e4,
        "ascending": lambda: np.sort(np.round(normal, 2)),
        # Different only in bits after those of the first passes.
        "last bits": lambda: rng.choice([1.0, -4.0, 1e9], n) * (1 + np.finfo(dtype).eps * rng.integers(0, 3, n)),
    }[kind]()
    return values.astype(dtype)


def order_of(values: np.ndarray) -> np.ndarray:
    """By descending value, those of equal values as they are."""
    return np.argsort(-values, kind="stable")


def sorts(parts, values: np.ndarray) -> bool:
    """Whether the core has that order."""
    order = np.full(len(values), -1)
    (parts.sort_floats if values.dtype == np.float32 else parts.sort_doubles)(values, order, 1)
    return np.array_equal(order, order_of(values))
