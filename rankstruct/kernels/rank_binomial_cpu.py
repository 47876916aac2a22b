"""The expected discount of a rank that is a sum of independent coins, and its slopes, on the CPU: O(n k) a row.

    q_0 = 1        q_i = (1 - pi_i + pi_i z) q_(i-1)        value = sum_r a_r [z^r] q_n

Backward in i, e_r is what a rank of r so far will be worth: e_r <- (1 - pi_i) e_r + pi_i e_(r+1).
"""

from __future__ import annotations

import numpy as np

from rankstruct.kernels.compilation import compile_kernel


@compile_kernel
def expected_discounts(above, below, discounts, first, last, value, by_above, by_below):
    """Fill `value`, `[rows]`, and its slopes, `[rows, n]`, for the rows `[first, last)`; returns -1.

    Coins that cannot fall on `above` are left out, and have slopes of 0.
    """
    n, k = above.shape[1], len(discounts)
    so_far = np.empty((n + 1, k))
    worth = np.empty(k + 1)
    for row in range(first, last):
        so_far[0, 0] = 1.0
        so_far[0, 1:] = 0.0
        coins = 0
        for i in range(n):
            up, down = np.float64(above[row, i]), np.float64(below[row, i])
            if up == 0.0:
                continue
            so_far[coins + 1, 0] = down * so_far[coins, 0]
            for r in range(1, k):
                so_far[coins + 1, r] = down * so_far[coins, r] + up * so_far[coins, r - 1]
            coins += 1
        total = 0.0
        for r in range(k):
            total += discounts[r] * so_far[coins, r]
            worth[r] = discounts[r]
        value[row] = total
        worth[k] = 0.0
        for i in range(n - 1, -1, -1):
            up, down = np.float64(above[row, i]), np.float64(below[row, i])
            by_above[row, i] = by_below[row, i] = 0.0
            if up == 0.0:
                continue
            coins -= 1
            raised, kept = 0.0, 0.0
            for r in range(k):
                raised += so_far[coins, r] * worth[r + 1]
                kept += so_far[coins, r] * worth[r]
                worth[r] = down * worth[r] + up * worth[r + 1]
            by_above[row, i] = raised
            by_below[row, i] = kept
    return -1
