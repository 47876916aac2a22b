// Ranks assigned to groups of documents, each rank to a different one, so that the sum of their values is largest.
//
// What a rank gets from a group is said by a `Worth`:
//
//     Index groups      at least as many as there are ranks
//     double dearest    what a document costs at most
//     void fill_row(Index rank, Span<double> value) const
//                       the values of all groups at a rank, minus infinity of one that has no document for it
//     void fill_columns(Index ranks, Span<double> value) const
//                       the values at all ranks of one group after another
//
// Each rank takes the best group that is left, one after another, and moves it up as long as that is better; exchanges make of
// that the best assignment, where it is not yet. Where there is no room for a value of every rank and group, or rounding might
// hide an exchange, by shortest augmenting paths. About O(ranks groups) and a sweep of O(ranks^2) for every few ranks, at worst
// O(ranks^2 groups), or without room ranks^2 / 2 rows of values.
#pragma once

#include "base.hpp"

namespace rankstruct {

constexpr double PRECISE = 1 << 20;  // numbers so many times as large still tell 1e-10 of a loss

// Scratch for at most so many ranks and groups.
struct GroupSpace {
    static constexpr Index most_numbers = Index(1) << 26;  // of the table: half a gigabyte
    static constexpr Index near_rows = 16;

    Index most_kept = most_numbers;
    Span<int> left, before, matched, owner, done, kept;
    Span<double> above, own, spare, taken;
    Span<double> near;  // a table for a few ranks, and for one at least
    Growing<double> far;

    KERNEL GroupSpace(Arena& arena, Index ranks, Index groups)
        : left(arena.take<int>(groups)),
          before(arena.take<int>(ranks)),
          matched(arena.take<int>(ranks)),
          owner(arena.take<int>(ranks)),
          done(arena.take<int>(ranks)),
          kept(arena.take<int>(ranks)),
          above(arena.take<double>(ranks)),
          own(arena.take<double>(ranks)),
          spare(arena.take<double>(ranks)),
          taken(arena.take<double>(groups)),
          near(arena.take<double>(groups * most(least(ranks, near_rows), Index(1)))),
          far(arena, 0) {}

    // Room for the values of all ranks, or, where there is none, of as many as there is room for.
    KERNEL Span<double> table(Index ranks, Index groups) {
        const Index rows = least(ranks, most(most_kept / groups, Index(1)));
        if (rows * groups > near.size && far.reserve(rows * groups)) return far.first(rows * groups);
        return near.first(least(rows, near.size / groups) * groups);
    }
};

// The highest of the values of 0 to count - 1; four at a time, since a comparison waits for the one before it. Of the ten to
// thirty ranks or groups that are usual, the lanes of sums.hpp made the whole assignment take 1.4 to 1.8 times as long.
template <class Value>
KERNEL inline double highest_of_few(Index count, Value value) {
    double highest = -INFINITE, second = highest, third = highest, fourth = highest;
    Index i = 0;
    for (; i + 4 <= count; i += 4) {
        highest = most(highest, value(i));
        second = most(second, value(i + 1));
        third = most(third, value(i + 2));
        fourth = most(fourth, value(i + 3));
    }
    for (; i < count; ++i) highest = most(highest, value(i));
    return most(most(highest, second), most(third, fourth));
}

// The first of 0 to count - 1 that has a value, which one has.
template <class Value>
KERNEL inline int first_with(double wanted, Index count, Value value) {
    int i = 0;
    while (i < count - 1 && value(i) != wanted) ++i;
    return i;
}

// Ranks that exchange their groups.
struct Exchanges {
    static constexpr Index few_sweeps = 2;    // before circles are looked for: mostly there is none, and prices rise no more
    static constexpr Index more_sweeps = 32;  // than ranks, before paths are taken: some two for each exchange

    Span<const double> table;        // as `fill_columns` fills it
    Span<int> column;                // the group of each rank
    Span<int> left;                  // the groups that no rank has
    Span<int> before;                // the rank that wants the group of each, or -1
    Span<double> above, own, spare;  // of each rank: its group's price less what it gets, what it gets, the best that is left

    // The best group that is left for one rank after another.
    KERNEL void begin() {
        for (Index g = 0; g < left.size; ++g) left[g] = int(g);
        for (Index i = 0; i < ranks(); ++i) {
            const int place = best_left(i);
            column[i] = left[place];
            left[place] = left[left.size - 1];
            --left.size;
            move_up(i);
        }
    }

    // Exchange until no assignment is better; returns false where that is not seen: after many sweeps, or if a price is so high
    // above the dearest document that rounding may hide a better one.
    //
    // There is none if there are prices for the groups that ranks have, not below 0, at which no rank would rather have another
    // group, nor one that is left, for nothing. The lowest are looked for: the price of rank k's group, above[k] + own[k], is
    // what the ranks that lead to it by `before` gain if each takes the next one's group. They do so if the last loses less with
    // the best group left, or if they are a circle. O(ranks groups + ranks^2) a sweep.
    KERNEL bool improve(double dearest) const {
        find_spare();
        Index turn = 0;
        for (Index sweeps = 0; sweeps < ranks() + more_sweeps; ++sweeps) {
            if (turn++ == 0) begin_prices();
            const Outcome outcome = sweep(turn > few_sweeps, PRECISE * dearest);
            if (outcome == BEST || outcome == UNSURE) return outcome == BEST;
            if (outcome == EXCHANGED) turn = 0;
        }
        return false;
    }

  private:
    enum Outcome { BEST, RISING, EXCHANGED, UNSURE };

    KERNEL Index ranks() const { return column.size; }
    KERNEL double value(Index group, Index rank) const { return table[group * ranks() + rank]; }
    KERNEL Span<const double> values(Index group) const { return table.slice(group * ranks(), (group + 1) * ranks()); }

    // Where in `left` the best group for a rank is.
    KERNEL int best_left(Index rank) const {
        const auto its = [&](Index at) { return value(left[at], rank); };
        return first_with(highest_of_few(left.size, its), left.size, its);
    }

    // Exchange the group of a rank with that of the rank before it, and so on, as long as that is better.
    KERNEL void move_up(Index rank) const {
        const int its = column[rank];
        double here = value(its, rank);
        for (; rank > 0; --rank) {
            const int other = column[rank - 1];
            const double there = value(its, rank - 1);
            if (!(there + value(other, rank) > here + value(other, rank - 1))) break;
            column[rank] = other;
            here = there;
        }
        column[rank] = its;
    }

    KERNEL void begin_prices() const {
        for (Index k = 0; k < ranks(); ++k) {
            own[k] = value(column[k], k);
            above[k] = -own[k];
            before[k] = -1;
        }
    }

    KERNEL void find_spare() const {
        spare.fill(-INFINITE);
        for (const int g : left) {
            const Span<const double> its = values(g);
            for (Index k = 0; k < ranks(); ++k) spare[k] = most(spare[k], its[k]);
        }
    }

    // A rank of the circle into which the walk from a rank to the one before it, and so on, runs; -1 if it ends.
    KERNEL int find_circle(int rank) const {
        for (Index step = 0; step < ranks() && rank != -1; ++step) rank = before[rank];
        return rank;
    }

    // Give a group to a rank, what that had to the one before it, and so on to `last` or the end; returns what the last one had.
    KERNEL int shift(int rank, int last, int group) const {
        for (Index step = 0; step < ranks() && rank != -1; ++step) {  // no way is longer, and none is walked for ever
            exchange(column[rank], group);
            rank = rank == last ? -1 : before[rank];
        }
        return group;
    }

    KERNEL Outcome sweep(bool circles, double highest_price) const {
        bool rising = false;
        for (int k = int(ranks()) - 1; k >= 0; --k) {
            int circled = -1;
            if (above[k] + spare[k] > 0.0) {
                circled = find_circle(k);
                if (circled == -1) {
                    const int place = best_left(k);
                    left[place] = shift(k, -1, left[place]);
                    find_spare();
                    return EXCHANGED;
                }
            } else {
                const Span<const double> wanted = values(column[k]);
                const auto offer = [&](Index i) { return wanted[i] + above[i]; };
                const double asked = highest_of_few(ranks(), offer);
                // The second is false where rounding alone raises it.
                if (asked > above[k] + own[k] && asked - own[k] > above[k]) {
                    if (asked > highest_price) return UNSURE;
                    before[k] = first_with(asked, ranks(), offer);
                    above[k] = asked - own[k];
                    rising = true;
                    if (circles) circled = find_circle(k);
                }
            }
            if (circled != -1) {
                shift(before[circled], circled, column[circled]);
                return EXCHANGED;
            }
        }
        return rising ? RISING : BEST;
    }
};

// Shortest augmenting paths, one a rank.
//
// Invariant after each rank: the ranks so far are matched, rank_price + price >= value everywhere with equality where matched,
// and the price of a group is >= 0, and 0 where it is free. Groups that are not free are kept in the order in which they were
// first matched: of the free ones only the nearest counts.
template <class Worth>
struct AugmentingPaths {
    const Worth& worth;
    Span<double> table;           // some rows of values
    Span<int> kept;               // the rank of each row, or -1
    Span<int> matched, owner;     // of each group that is matched: its number, its rank
    Span<int> before, done;       // and on the path to it: the one before, whether that is the shortest
    Span<double> distance, price;
    Span<double> rank_price;      // [ranks]
    Span<double> taken;           // [groups], 0 or, matched, minus infinity

    KERNEL void assign(Span<int> column) const {
        kept.fill(-1);
        taken.fill(0.0);
        for (int rank = 0; rank < column.size; ++rank) add(rank);
        for (Index k = 0; k < column.size; ++k) column[owner[k]] = matched[k];
    }

  private:
    KERNEL Span<const double> values(int rank) const {
        const Index place = rank % kept.size;
        const Span<double> row = table.slice(place * worth.groups, (place + 1) * worth.groups);
        if (kept[place] != rank) worth.fill_row(rank, row);
        kept[place] = rank;
        return row;
    }

    KERNEL void add(int rank) const {
        for (int k = 0; k < rank; ++k) {
            distance[k] = INFINITE;
            before[k] = -1;  // so that the walk back ends whatever the values
            done[k] = 0;
        }
        rank_price[rank] = price[rank] = 0.0;
        matched[rank] = 0;
        const double free = find_path(rank);
        rank_price[rank] -= free;
        for (int k = 0; k < rank; ++k)
            if (done[k]) {
                price[k] += free - distance[k];
                rank_price[owner[k]] -= free - distance[k];
            }
        taken[matched[rank]] = -INFINITE;
        int at = rank;
        for (; before[at] != -1; at = before[at]) owner[at] = owner[before[at]];
        owner[at] = rank;
    }

    // The shortest path from a new rank to a free group, which becomes the last that is matched; returns its length.
    KERNEL double find_path(int rank) const {
        int current = rank, at = -1;
        double length = 0.0, free = INFINITE;
        before[rank] = -1;
        while (true) {
            const Span<const double> value = values(current);
            const auto of_free = [&](Index g) { return value[g] + taken[g]; };
            const double base = length + rank_price[current], highest = highest_of_few(value.size, of_free);
            if (base - highest < free) {
                free = base - highest;
                before[rank] = at;
                matched[rank] = first_with(highest, value.size, of_free);
            }
            int nearest = -1;
            for (int k = 0; k < rank; ++k) {
                if (done[k]) continue;
                const double reach = base + price[k] - value[matched[k]];
                if (reach < distance[k]) {
                    distance[k] = reach;
                    before[k] = at;
                }
                if (nearest == -1 || distance[k] < distance[nearest]) nearest = k;
            }
            if (nearest == -1 || free <= distance[nearest]) return free;
            at = nearest;
            length = distance[nearest];
            done[nearest] = 1;
            current = owner[nearest];
        }
    }
};

// Fill `column` with a different group for each rank, of which some choice must be allowed.
template <class Worth>
KERNEL inline void assign_groups(const Worth& worth, Span<int> column, GroupSpace& space) {
    const Index ranks = column.size, groups = worth.groups;
    const Span<double> table = space.table(ranks, groups);
    const Span<int> before = space.before.first(ranks);
    const Span<double> above = space.above.first(ranks), own = space.own.first(ranks), spare = space.spare.first(ranks);
    if (table.size == ranks * groups) {
        worth.fill_columns(ranks, table);
        Exchanges exchanges{table, column, space.left.first(groups), before, above, own, spare};
        exchanges.begin();
        if (exchanges.improve(worth.dearest)) return;
    }
    AugmentingPaths<Worth>{worth, table, space.kept.first(table.size / groups), space.matched, space.owner, before, space.done,
                           above, own, spare, space.taken.first(groups)}
        .assign(column);
}

}  // namespace rankstruct
