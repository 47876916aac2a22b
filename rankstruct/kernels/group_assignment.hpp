// The most valuable assignment of ranks to groups of documents, each rank to a different group.
//
// Ranks take the best remaining groups and exchange them until no assignment is better. If the values of all ranks and groups do
// not fit in memory, or rounding might hide an exchange, shortest augmenting paths are used. About O(ranks groups) plus a sweep
// of O(ranks^2) for every few ranks; paths need O(ranks^2) values of all groups.
#pragma once

#include "base.hpp"

namespace rankstruct {

constexpr double PRECISE = 1 << 20;                 // numbers this many times as large still resolve 1e-10 of a loss
constexpr double ROUNDING = 1.0 / (Index(1) << 48);  // relative to the numbers summed; more than the rounding error

// The value of a document at a rank: decay score - discount gain; or, for rankings that irrelevant documents lead, decay score,
// and the first `lead` ranks show no gain above 0.
struct GroupWorth {
    Span<const int> group;               // of each document, numbered in order of appearance
    Span<const double> score, gain;      // of each document, by descending score
    Span<const double> decay, discount;  // of each rank
    Index groups;                        // at least as many as ranks
    double dearest;                      // the largest cost of a document
    Index led;
    Index lead = 0;

    double of(Index rank, Index j) const {
        if (rank < lead && gain[j] > 0.0) return -INFINITE;
        return decay[rank] * score[j] - discount[rank] * (led ? 0.0 : gain[j]);
    }

    // The values of all groups at a rank; minus infinity if the group has no document for it.
    void fill_row(Index rank, Span<double> value) const {
        value.fill(-INFINITE);
        for (Index j = 0; j < group.size; ++j) value[group[j]] = most(value[group[j]], of(rank, j));
    }

    // The values at all ranks, none of which leads, group by group.
    void fill_columns(Span<double> value) const {
        value.fill(-INFINITE);
        for (Index j = 0; j < group.size; ++j) {
            double* const its = &value[group[j] * decay.size];
            const double *c = decay.data, *a = discount.data, s = score[j], b = led ? 0.0 : gain[j];
            for (Index i = 0; i < decay.size; ++i) its[i] = most(its[i], c[i] * s - a[i] * b);
        }
    }
};

// The maximum of the values of 0 to count - 1. For the usual ten to thirty ranks or groups, these few lanes are faster than those
// of sums.hpp, which take 1.1 times as long for lists of 15 groups.
template <class Value>
inline double highest_of_few(Index count, Value value) {
    double highest[4] = {-INFINITE, -INFINITE, -INFINITE, -INFINITE};
    Index i = 0;
    for (; i + 4 <= count; i += 4)
        for (int lane = 0; lane < 4; ++lane) highest[lane] = most(highest[lane], value(i + lane));
    for (; i < count; ++i) highest[0] = most(highest[0], value(i));
    return most(most(highest[0], highest[1]), most(highest[2], highest[3]));
}

// The first of 0 to count - 1 with a given value, which exists.
template <class Value>
inline int first_with(double wanted, Index count, Value value) {
    int i = 0;
    while (i < count - 1 && value(i) != wanted) ++i;
    return i;
}

// Assigns one list after another, with scratch for a maximum number of ranks and groups.
struct GroupAssignment {
    Room rank, group;
    Index most_numbers = Index(1) << 26;  // of the table: half a gigabyte
    Span<int> free = group, before = group, owner = group, done = group;
    Span<double> own = rank, profit = rank, spare = rank;  // value, value minus the price of its group, best remaining value
    Span<double> price = group, distance = group, row = group;
    Growing<double> numbers{};
    // Of one list.
    GroupWorth worth{};
    Span<int> column{};    // the group of each rank
    Span<int> left{};      // the remaining groups
    Span<double> table{};  // as computed by `fill_columns`; empty if it does not fit

    // Compute the best assignment as `column`. There are prices of groups, nonnegative and 0 for remaining groups, at which no
    // rank prefers another group: profit + price >= value everywhere, with equality where assigned.
    void begin(const GroupWorth& its, Span<int> groups_of_ranks) {
        worth = its;
        column = groups_of_ranks;
        table = {};
        const Index count = worth.groups * ranks();
        if (count <= most_numbers && numbers.reserve(count)) {
            table = numbers.first(count);
            worth.fill_columns(table);
            left = free.first(worth.groups);
            for (Index g = 0; g < left.size; ++g) left[g] = int(g);
            for (Index i = 0; i < ranks(); ++i) take_best_left(i);
        }
        improve();
    }

    // Restore the best assignment in `column`.
    void improve() {
        if (!table.size || !exchange_groups()) assign_by_paths();
    }

    // Let one more rank lead; returns a lower bound of the loss: the decrease of its profit at the latest prices, if these are
    // precise.
    double lead() {
        const Index rank = worth.lead++;
        worth.fill_row(rank, row.first(worth.groups));
        if (table.size) {
            for (Index g = 0; g < worth.groups; ++g) table[g * ranks() + rank] = row[g];
            move_down(rank);
        }
        const double highest = highest_of_few(worth.groups, [&](Index g) { return row[g] - price[g]; });
        const double lowest = worth.decay[0] * worth.score[worth.score.size - 1];
        return lowest < -PRECISE * worth.dearest ? 0.0 : profit[rank] - highest;
    }

  private:
    enum Outcome { BEST, RISING, EXCHANGED, UNSURE };
    static constexpr Index more_sweeps = 32;  // beyond the number of ranks, before paths are used; each exchange takes about two

    Index ranks() const { return column.size; }
    double value(Index group, Index rank) const { return table[group * ranks() + rank]; }

    // The index in `left` of the best group for a rank.
    int best_left(Index rank) const {
        const auto its = [&](Index at) { return value(left[at], rank); };
        return first_with(highest_of_few(left.size, its), left.size, its);
    }

    // Give a rank the best remaining group, and exchange it with that of the previous rank, and so on, while this is better.
    void take_best_left(Index rank) {
        const int place = best_left(rank), its = left[place];
        left[place] = left[left.size - 1];
        --left.size;
        for (; rank > 0; --rank) {
            const int other = column[rank - 1];
            if (!(value(its, rank - 1) + value(other, rank) > value(its, rank) + value(other, rank - 1))) break;
            column[rank] = other;
        }
        column[rank] = its;
    }

    // Give a rank the best group of a later one, moving those between down, or a remaining one in place of the last one's.
    void move_down(Index rank) const {
        const Index behind = ranks() - rank;
        const auto its = [&](Index at) { return value(column[rank + at], rank); };
        Index from = rank + first_with(highest_of_few(behind, its), behind, its);
        const int place = left.size ? best_left(rank) : -1;
        if (place != -1 && value(left[place], rank) > value(column[from], rank)) {
            from = ranks() - 1;
            std::swap(column[from], left[place]);
        }
        for (; from > rank; --from) std::swap(column[from], column[from - 1]);
    }

    // Exchange until no assignment is better; returns false if this is not certain: after many sweeps, or if a price is so far
    // above the largest cost that rounding may hide a better one.
    //
    // This finds the lowest prices: that of rank k's group, own[k] - profit[k], is the gain of the ranks that lead to it by
    // `before` if each takes the next one's group. They do so if the last one loses less with the best remaining group, or if
    // they form a cycle. O(ranks groups + ranks^2) per sweep.
    bool exchange_groups() const {
        Outcome outcome = EXCHANGED;
        for (Index sweeps = 0; sweeps < ranks() + more_sweeps && (outcome == EXCHANGED || outcome == RISING); ++sweeps) {
            if (outcome == EXCHANGED) begin_prices();
            outcome = sweep();
        }
        if (outcome != BEST) return false;
        price.first(worth.groups).fill(0.0);
        for (Index k = 0; k < ranks(); ++k) price[column[k]] = own[k] - profit[k];
        return true;
    }

    void begin_prices() const {
        spare.fill(-INFINITE);
        for (Index k = 0; k < ranks(); ++k) {
            own[k] = profit[k] = value(column[k], k);
            before[k] = -1;
        }
        for (const int g : left)
            for (Index k = 0; k < ranks(); ++k) spare[k] = most(spare[k], value(g, k));
    }

    Outcome sweep() const {
        bool rising = false;
        for (int k = int(ranks()) - 1; k >= 0; --k) {
            const bool leaves = spare[k] > profit[k];
            if (!leaves) {
                const auto offer = [&, its = column[k]](Index i) { return value(its, i) - profit[i]; };
                const double asked = highest_of_few(ranks(), offer);
                const double rise = asked - (own[k] - profit[k]);
                if (!(rise > 0.0)) continue;
                const int by = first_with(asked, ranks(), offer);
                if (rise < ROUNDING * (worth.dearest - own[k] - own[by])) continue;
                if (asked > PRECISE * worth.dearest) return UNSURE;
                before[k] = by;
                profit[k] = own[k] - asked;
                rising = true;
                if (before[k] > k) continue;  // a cycle goes back somewhere
            }
            const int circled = find_circle(k), place = leaves ? best_left(k) : -1;
            if (circled == -1 && !leaves) continue;
            if (circled == -1)
                left[place] = shift(k, -1, left[place]);
            else
                shift(before[circled], circled, column[circled]);
            return EXCHANGED;
        }
        return rising ? RISING : BEST;
    }

    // A rank of the cycle that the path from a rank along `before` runs into; -1 if it ends.
    int find_circle(int rank) const {
        for (Index step = 0; step < ranks() && rank != -1; ++step) rank = before[rank];
        return rank;
    }

    // Give a group to a rank, that rank's group to the one before it, and so on to `last` or the end; returns the last one's
    // group.
    int shift(int rank, int last, int group) const {
        for (Index step = 0; step < ranks() && rank != -1; ++step) {  // no path is longer, so this terminates
            std::swap(column[rank], group);
            rank = rank == last ? -1 : before[rank];
        }
        return group;
    }

    // By shortest augmenting paths, one per rank.
    void assign_by_paths() {
        owner.fill(-1);
        price.fill(0.0);
        for (int rank = 0; rank < ranks(); ++rank) add(rank);
        left = free.first(worth.groups - ranks());
        Index count = 0;
        for (int g = 0; g < worth.groups; ++g) (owner[g] == -1 ? left[count++] : column[owner[g]]) = g;
    }

    void add(int rank) const {
        distance.fill(INFINITE);
        done.fill(0);
        profit[rank] = 0.0;
        double length = 0.0;
        int at = -1;
        for (int current = rank; current != -1; current = owner[at]) {
            worth.fill_row(current, row.first(worth.groups));
            int nearest = -1;
            for (int g = 0; g < worth.groups; ++g) {
                if (done[g]) continue;
                const double reach = length + profit[current] + price[g] - row[g];
                if (reach < distance[g]) before[g] = at;
                distance[g] = least(distance[g], reach);
                if (nearest == -1 || distance[g] < distance[nearest]) nearest = g;
            }
            at = nearest;
            length = distance[at];
            done[at] = 1;
        }
        profit[rank] = -length;
        for (Index g = 0; g < worth.groups; ++g) {
            if (!done[g] || owner[g] == -1) continue;
            price[g] += length - distance[g];
            profit[owner[g]] -= length - distance[g];
        }
        for (; before[at] != -1; at = before[at]) owner[at] = owner[before[at]];
        owner[at] = rank;
    }
};

}  // namespace rankstruct
