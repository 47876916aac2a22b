// The expected discount of a rank that is a sum of independent coins (SoftRank), and its slopes: O(n k) a row.
//
//     q_0 = 1        q_i = (1 - pi_i + pi_i z) q_(i-1)        value = sum_r a_r [z^r] q_n
//
// Backward in i, e_r is what a rank of r so far will be worth: e_r <- (1 - pi_i) e_r + pi_i e_(r+1). After i coins no rank is
// above i, so that both recursions take the first ranks alone.
#pragma once

#include "sums.hpp"

namespace rankstruct {

// One row of n coins. Ranks are taken LANES at a time, none left over: behind k worth is 0 and chances do not matter. `chance`
// holds the ranks after each number of coins, behind a 0 for the rank -1; ranks that cannot be yet stay 0. Coins that cannot fall
// on `above` are left out, and have slopes of 0.
template <class T>
struct CoinRow {
    Index blocks = 0, stride = 0, coins = 0;
    Span<double> worth, chances;
    const T *above = nullptr, *below = nullptr;
    T *by_above = nullptr, *by_below = nullptr;

    CoinRow() = default;
    KERNEL CoinRow(Arena& arena, Index n, Index k)
        : blocks((k + LANES - 1) / LANES),
          stride((blocks + 1) * LANES),
          worth(arena.take<double>(stride)),
          chances(arena.take<double>((n + 1) * stride)) {}

    KERNEL void clear() const {
        chances.fill(0.0);
        after(0)[0] = 1.0;
    }

    KERNEL void throw_coin(Index i) {
        const double up = above[i], down = below[i];
        if (up == 0.0) return;
        const double* before = after(coins++);
        double* now = after(coins);
        const Index ranks = possible_ranks();
        for (Index r = 0; r < ranks; ++r) now[r] = down * before[r] + up * before[r - 1];
    }

    // What the ranks are worth, all in all.
    KERNEL double turn_back(Span<const double> discounts) {
        const double *its = worth.data, *chance = after(coins);
        worth.fill(0.0);
        for (Index r = 0; r < discounts.size; ++r) worth[r] = discounts[r];
        return sum_of(possible_ranks(), [=](Index r) { return its[r] * chance[r]; });
    }

    KERNEL void take_back(Index i) {
        const double up = above[i], down = below[i];
        by_above[i] = by_below[i] = T(0);
        if (up == 0.0) return;
        const double* before = after(--coins);
        double* its = worth.data;
        const Index ranks = possible_ranks();
        by_above[i] = T(sum_of(ranks, [=](Index r) { return before[r] * its[r + 1]; }));
        by_below[i] = T(sum_of(ranks, [=](Index r) { return before[r] * its[r]; }));
        for (Index r = 0; r < ranks; ++r) its[r] = down * its[r] + up * its[r + 1];
    }

  private:
    KERNEL double* after(Index coins) const { return chances.data + coins * stride + LANES; }
    KERNEL Index possible_ranks() const { return least(coins / LANES + 1, blocks) * LANES; }
};

#ifndef __CUDACC__
// Do the rows [first, last) of `above` and `below`, [rows, n]; returns false without memory.
//
// Short rows are taken some at a time: a coin reads what the one before has just written, which takes a processor longer than the
// rest.
template <class T>
bool expected_discounts(const T* above, const T* below, Span<const double> discounts, Index n, Index first, Index last, T* value,
                        T* by_above, T* by_below) {
    constexpr Index most_together = 8, short_row = 64;
    const Index together = discounts.size <= short_row ? most_together : 1;
    Arena count;
    for (Index g = 0; g < together; ++g) CoinRow<T>(count, n, discounts.size);
    Arena arena{static_cast<char*>(std::malloc(size_t(count.used)))};
    if (!arena.memory) return false;
    CoinRow<T> rows[most_together];
    for (Index g = 0; g < together; ++g) {
        rows[g] = CoinRow<T>(arena, n, discounts.size);
        rows[g].clear();
    }
    for (Index row = first; row < last; row += together) {
        const Span<CoinRow<T>> group{rows, least(together, last - row)};
        for (Index g = 0; g < group.size; ++g) {
            const Index at = (row + g) * n;
            group[g].above = above + at;
            group[g].below = below + at;
            group[g].by_above = by_above + at;
            group[g].by_below = by_below + at;
            group[g].coins = 0;
        }
        for (Index i = 0; i < n; ++i)
            for (CoinRow<T>& each : group) each.throw_coin(i);
        for (Index g = 0; g < group.size; ++g) value[row + g] = T(group[g].turn_back(discounts));
        for (Index i = n - 1; i >= 0; --i)
            for (CoinRow<T>& each : group) each.take_back(i);
    }
    std::free(arena.memory);
    return true;
}
#endif

}  // namespace rankstruct
