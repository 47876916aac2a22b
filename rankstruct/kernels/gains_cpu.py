"""Gains of grades, by a table: whole numbers from 0 on are most labels, and what they gain is known after the first call."""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel, unsigned


@compile_kernel
def look_up(labels, where, table, gains):
    """Fill `gains` [documents] with the entries of the labels, 0 in the padding; returns whether all are known.

    `where` is uint8, or empty if every document is real; an entry of `table` that is not known is NaN.
    """
    for i in range(labels.shape[0]):
        gains[i] = 0.0
        if where.size and not where[i]:
            continue
        label = labels[i]
        if not 0 <= label < table.shape[0]:
            return False
        place = unsigned(label)
        if place != label or table[place] != table[place]:
            return False
        gains[i] = table[place]
    return True


@compile_kernel
def keep(labels, where, gains, table):
    """Write into `table` what labels gain that may stand there."""
    for i in range(labels.shape[0]):
        label = labels[i]
        if (not where.size or where[i]) and 0 <= label < table.shape[0]:
            place = unsigned(label)
            if place == label and np.isfinite(gains[i]):
                table[place] = gains[i]
