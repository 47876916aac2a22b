// The assignment problem of the positional map, max over rankings of sum_i ( c_i s_{r(i)} - a_i b_{r(i)} ), for one list.
//
// c and a never increase. Documents of one gain b stay in score order, so a ranking is a sequence of classes, one class a distinct
// gain. The methods take the scores class by class, each class by descending score, and fill `classes` [n], the class at each
// position. All are exact.
//
// The lattice, of two gains. A ranking is a path over how many documents of either class stand before each rank. The objective is
// L-natural-concave in the numbers of class 0: where none that differ by one at some ranks are better, none are at all (Murota,
// "Discrete Convex Analysis", 2003). So a narrow band about the greedy path, moved until the best path in it stays inside, has the
// optimum.
//
// The residual sweep. By summation by parts the objective is a constant plus
//
//     sum_{i<n} sum_g ( dc_i F_g(N_g(i)) - da_i b_g N_g(i) )
//
// with N_g(i) the documents of class g in positions 0..i, F_g the prefix sums of their scores, dc and da the falls of c and a: a
// convex-cost flow of one unit a position on parallel chains. One more document of class g inside boundary i (behind position i) is
// worth W. An exchange (h, g) at a boundary puts the last document of class h that is inside behind it, and the first of class g that
// is not in its place. Position by position, from the last one forwards, the sweep knows
//
//     reach[i, h, g]   the best change of what stands behind boundary i, if h and g are exchanged there
//     through[i, h, g] the same with boundary i itself: reach[i, h, g] - W of h + W of g
//     reach[i - 1, h, g] = max( through[i, h, g], max_y through[i, h, y] + through[i, x, g] )     x the class at position i:
//                          it stays, or becomes y
//
// and through[i, x, y] > 0 is an improvement: position i becomes y. Each position needs one at most (successive longest paths), after
// which the positions behind that it touches are looked at again; so the end is a certificate. In 64-bit integers: floating point has
// small positive cycles.
//
// Prices. The first i + 1 documents by dc_i s - da_i b are the best set inside boundary i, were there no other. Where each of these
// sets holds the one before, as nearly always, they are the optimum; and a threshold t_i between the last inside and the first outside
// makes prices, sum over i >= j of t_i for position j, at which every document likes its own position best. Elsewhere some documents
// want the same position: shortest augmenting paths move them, and the prices, to the optimum.
#pragma once

#include "base.hpp"

namespace rankstruct {

// What a method found: `classes` has the positions before `from`, behind which documents follow by score; and whether `places` hold,
// class by class, the position of each document.
struct Solved {
    Index from;
    bool known;

    KERNEL bool done() const { return from >= 0; }  // if not, there was no memory: `by_prices` needs no more than its space
};
constexpr Solved NO_MEMORY = {-1, false};

// A list's documents class by class.
struct Assignment {
    Span<const double> score;   // each class by descending score
    Span<const Index> starts;   // class g has [starts[g], starts[g + 1])
    Span<const double> gain;    // of each class, descending
    Span<const double> c, a;    // of each position

    KERNEL Index documents() const { return score.size; }
    KERNEL Index classes() const { return gain.size; }
    KERNEL Index size_of(Index g) const { return starts[g + 1] - starts[g]; }
    // How far c and a fall behind a position.
    KERNEL double fall_of_c(Index i) const { return i + 1 < documents() ? c[i] - c[i + 1] : 0.0; }
    KERNEL double fall_of_a(Index i) const { return i + 1 < documents() ? a[i] - a[i + 1] : 0.0; }
};

// The first k of `classes` one by one, each what the boundary behind its position would like best; two classes.
KERNEL inline bool greedy_of_two(const Assignment& problem, Index k, Span<Index> classes, Span<double> margin, Span<Index> places) {
    const Index n = problem.documents(), size = problem.starts[1];
    const Span<const double> score = problem.score;
    Index first = 0, second = size;  // the next of each
    bool nested = true;
    for (Index i = 0; i < k; ++i) {
        const double step_c = problem.fall_of_c(i), lead = problem.fall_of_a(i) * (problem.gain[0] - problem.gain[1]);
        double liked = INFINITE;  // the last inside of one class, less the next of the other
        if (first == size || (second < n && step_c * score[second] > step_c * score[first] - lead)) {
            classes[i] = 1;
            places[second++] = i;
            if (first && second < n) liked = (step_c * score[first - 1] - lead) - step_c * score[second];
        } else {
            classes[i] = 0;
            places[first++] = i;
            if (second > size && first < size) liked = step_c * score[second - 1] - (step_c * score[first] - lead);
        }
        margin[i] = liked;
        nested &= liked >= 0.0;
    }
    return nested;
}

// The same for any classes. Comparisons with NaN, of 0 times infinity, are false. O(k L).
KERNEL inline bool greedy_of_any(const Assignment& problem, Index k, Span<Index> classes, Span<double> margin, Span<Index> places,
                                 Span<Index> next, Span<double> outside, Span<double> inside) {
    const Index last = problem.classes() - 1;
    const auto score_at = [&](Index g, Index at) { return at < problem.starts[g + 1] ? problem.score[at] : -INFINITE; };
    for (Index g = 0; g <= last; ++g) {
        next[g] = problem.starts[g];
        outside[g] = score_at(g, next[g]);  // of the first outside
        inside[g] = INFINITE;               // of the last inside
    }
    // The class of the lowest gain, of most positions, is kept out of the arrays: what was just written is read back late.
    Index its_next = next[last];
    double its_outside = outside[last], its_inside = INFINITE;
    bool nested = true;
    for (Index i = 0; i < k; ++i) {
        const double step_c = problem.fall_of_c(i), step_a = problem.fall_of_a(i);
        Index chosen = 0;
        double highest = -INFINITE, second = -INFINITE, lowest = INFINITE;  // of those outside, and of those inside
        for (Index g = 0; g < last; ++g) {
            const double cost = step_a * problem.gain[g];
            const double value = step_c * outside[g] - cost, kept = step_c * inside[g] - cost;
            const bool better = value > highest;
            const double lower = better ? highest : value;
            chosen = better ? g : chosen;
            highest = better ? value : highest;
            second = most(second, lower);
            lowest = least(lowest, kept);
        }
        const double cost = step_a * problem.gain[last], kept = step_c * its_inside - cost;
        double value = step_c * its_outside - cost;
        lowest = least(lowest, kept);
        if (highest == -INFINITE && !(value > -INFINITE))  // all that are left are as bad as numbers can say
            while (chosen < last && outside[chosen] == -INFINITE) ++chosen;
        if (value > highest || chosen == last) {
            classes[i] = last;
            places[its_next++] = i;
            its_inside = its_outside;
            its_outside = score_at(last, its_next);
            value = step_c * its_outside - cost;
            second = highest;
        } else {
            second = most(second, value);
            classes[i] = chosen;
            const Index at = next[chosen]++;
            places[at] = i;
            inside[chosen] = problem.score[at];
            outside[chosen] = score_at(chosen, at + 1);
            value = step_c * outside[chosen] - step_a * problem.gain[chosen];
        }
        second = most(second, value);
        margin[i] = lowest - second;
        nested &= lowest >= second;
    }
    return nested;
}

// Fill the first k of `classes` one by one with what the boundary behind the position would like best.
//
// `margin` [k] becomes by how much each boundary likes every document inside better than every other one, below 0 where it does not;
// `places` [n], class by class, the position of each document that has one. `pointer` [classes] and `edges` [2 classes] are scratch.
// Returns whether no margin is below 0: for k = n that is an optimum.
KERNEL inline bool greedy(Span<Index> classes, Index k, Span<const double> class_score, Span<const Index> starts, Span<const double> gain,
                          Span<const double> c, Span<const double> a, Span<Index> pointer, Span<double> margin, Span<Index> places,
                          Span<double> edges) {
    const Assignment problem{class_score, starts, gain, c, a};
    if (gain.size == 2) return greedy_of_two(problem, k, classes, margin, places);
    return greedy_of_any(problem, k, classes, margin, places, pointer, edges.slice(0, gain.size), edges.slice(gain.size, 2 * gain.size));
}

// A position, not the first, from which on documents best follow by score, whichever stand before: a hardly falls beside c.
//
// `group` [n] is the class of each document by descending score, `pointer` [classes] scratch. What a document is worth at a boundary
// behind that position never rises along the order by score; the sweep's integers, rounded term by term, may by a unit.
KERNEL inline Index first_by_score(Span<const double> class_score, Span<const Index> starts, Span<const Index> group,
                                   Span<const double> gain, Span<const double> c, Span<const double> a, Span<Index> pointer) {
    constexpr double rounding = 0x1p-50;
    const Index n = group.size;
    for (Index g = 0; g < gain.size; ++g) pointer[g] = starts[g];
    double highest = INFINITE, above = 0.0;  // of da / dc; and the score above
    for (Index q = 0; q < n; ++q) {
        const Index g = group[q];
        const double score = class_score[pointer[g]++];
        if (q && group[q - 1] < g) {
            const double better = gain[group[q - 1]];
            highest = least(highest, (above - score - rounding * fabs(score)) / (better - gain[g] + rounding * better));
        }
        above = score;
    }
    Index i = n - 1;
    while (i > 1 && a[i - 1] - a[i] <= highest * (c[i - 1] - c[i])) --i;
    return i;
}

constexpr Index WIDEST_BAND = 31;  // a bit for each place and rank

struct LatticeSpace {
    Span<double> value, next_value;
    Span<Bits64> from_first;
    Span<Index> pointer;

    KERNEL LatticeSpace(Arena& arena, Index documents)
        : value(arena.take<double>(2 * WIDEST_BAND + 3)),
          next_value(arena.take<double>(2 * WIDEST_BAND + 3)),
          from_first(arena.take<Bits64>(documents)),
          pointer(arena.take<Index>(2)) {}
};

// Two classes: the best path over (how many of the first, how many of the second) are in the first k ranks, behind which documents
// follow by score: `group` and `score` are by descending score.
struct Lattice {
    const Assignment& problem;
    Span<const Index> group;
    Span<const double> score;
    Index k;
    Span<Index> classes;
    LatticeSpace& space;

    // What the documents behind the best `first` of class 0 and `second` of class 1 add, beside all at their places by score.
    KERNEL double behind(Index first, Index second) const {
        double total = 0.0;
        Index missing[2] = {first, second}, position = first + second;
        for (Index q = 0; missing[0] || missing[1]; ++q) {
            const Index g = group[q];
            const double here = problem.c[q] * score[q] - problem.a[q] * problem.gain[g];
            if (missing[g]) {
                total -= here;
                --missing[g];
            } else {
                total += problem.c[position] * score[q] - problem.a[position] * problem.gain[g] - here;
                ++position;
            }
        }
        return total;
    }

    // The best number of documents of class 0 before the cut-off, t - half more than the place in the band; and what it is worth with
    // all that stands behind it. That is concave in the number, as the value of any flow is in what has to go through an edge.
    KERNEL double best_split(Index half, Index t, Index& split) const {
        const Span<const double> value = space.value;
        split = half;
        double best = value[half + 1];
        if (k == group.size) return best;
        best += behind(t, k - t);
        for (Index step = 1; step >= -1; step -= 2)
            for (Index d = half + step; value[d + 1] > -INFINITE; d += step) {
                const double found = value[d + 1] + behind(t + d - half, k - t - d + half);
                if (found <= best) break;
                best = found;
                split = d;
            }
        return best;
    }

    // Put the best of the sequences with as many documents of class 0 before each rank as `classes`, more or less `half`, in its
    // place. Returns its value; `stays` becomes whether it stays inside the band.
    KERNEL double improve(Index half, bool& stays) const {
        const Index width = 2 * half + 1, size = problem.starts[1], its_size = problem.documents() - size;
        // Of the place d in the band the value is at d + 1, between two places that cannot be.
        space.value.first(width + 2).fill(-INFINITE);
        space.next_value.first(width + 2).fill(-INFINITE);
        space.value[half + 1] = 0.0;
        Index t = 0;  // of class 0 in `classes` so far
        for (Index i = 0; i < k; ++i) {
            const Index step = 1 - classes[i];
            t += step;
            space.from_first[i] = advance(i, t - half, width, step, most(t - half, most(i + 1 - its_size, Index(0))),
                                          least(t + half, least(i + 1, size)));
            exchange(space.value, space.next_value);
        }
        Index d;
        const double best = best_split(half, t, d);
        stays = true;
        for (Index i = k - 1; i >= 0; --i) {
            stays &= d > 0 && d < width - 1;
            const Index step = 1 - classes[i];
            classes[i] = 1 - Index(space.from_first[i] >> d & 1);
            d += step + classes[i] - 1;
        }
        return best;
    }

  private:
    // From the values before position i to those behind it, where [low, high] can be of class 0, and the band begins at `base`; returns
    // at which places the last of them is of class 0.
    KERNEL Bits64 advance(Index i, Index base, Index width, Index step, Index low, Index high) const {
        const Index size = problem.starts[1];
        const double weight = problem.c[i], credit = problem.a[i] * problem.gain[0], its_credit = problem.a[i] * problem.gain[1];
        const double* before = space.value.data + step;
        double* behind = space.next_value.data;
        for (Index d = 0; d < width + 2; ++d) behind[d] = -INFINITE;
        Bits64 bits = 0;
        for (Index here = low; here <= high; ++here) {
            const Index d = here - base;
            const double down = before[d] + weight * problem.score[most(here - 1, Index(0))] - credit;
            const double along = before[d + 1] + weight * problem.score[size + most(i - here, Index(0))] - its_credit;
            bits |= Bits64(down >= along) << d;
            behind[d + 1] = most(down, along);
        }
        return bits;
    }
};

// Two gains. In practice O(n + k), at worst O(k p) for p documents of the first class. `group` and `score` [n] are by descending score;
// `margin` [k] is scratch.
KERNEL inline Solved by_lattice(Span<const double> class_score, Span<const Index> starts, Span<const Index> group,
                                Span<const double> score, Span<const double> gain, Span<const double> c, Span<const double> a, Index k,
                                Span<Index> classes, Span<double> margin, Span<Index> places, LatticeSpace& space) {
    const Assignment problem{class_score, starts, gain, c, a};
    const Index n = group.size;
    if (greedy_of_two(problem, k, classes, margin, places) && k == n) return {k, true};
    if (k == n) k = first_by_score(class_score, starts, group, gain, c, a, space.pointer);
    const Lattice lattice{problem, group, score, k, classes, space};
    double before = -INFINITE;
    for (Index half = 3;; half = least(2 * half, WIDEST_BAND)) {
        bool stays;
        const double found = lattice.improve(half, stays);
        if (stays || found <= before) return {k, false};
        before = found;
    }
}

struct Exchange {
    Index boundary, h, g;
};

// A class at a boundary behind which documents follow by score: how many of its documents the order by score has so far; how many of
// other classes that are behind stand above its first document behind, and above its last one before; and what these would gain by
// standing at the boundary instead of there, the latter also if one document less were above.
struct ClassBehind {
    Index seen, first, last, first_gains, last_gains, last_gains_less;
};

// Scratch of the sweep. The large tables are reserved for the lists that need them.
struct SweepSpace {
    Span<double> fall_of_c, fall_of_a, margin, edges;
    Span<Index> forth, back, next;
    Span<Index> enter, leave;
    Span<ClassBehind> of_class;
    Growing<Index> table, level_starts;
    Growing<Exchange> exchanges;
    Growing<double> levels;

    static constexpr Index shared = 8;  // classes for which a device has room; with more it takes the prices

    KERNEL SweepSpace(Arena& arena, Index documents, Index classes, Index ranks)
        : fall_of_c(arena.take<double>(documents)),
          fall_of_a(arena.take<double>(documents)),
          margin(arena.take<double>(documents)),
          edges(arena.take<double>(2 * classes)),
          forth(arena.take<Index>(documents + 1)),
          back(arena.take<Index>(documents + 1)),
          next(arena.take<Index>(classes)),
          enter(arena.take<Index>(classes)),
          leave(arena.take<Index>(classes)),
          of_class(arena.take<ClassBehind>(classes)),
          table(arena, (ranks + 1) * shared * (shared + 2)),
          level_starts(arena, 0),
          exchanges(arena, 2 * ranks + 2),
          levels(arena, 0) {}

    // Make room for the sweep of k positions.
    KERNEL bool reserve(Index k, Index classes) {
        return table.reserve((k + 1) * classes * (classes + 2)) && exchanges.reserve(2 * k + 2);
    }
};

// The residual sweep of the first k positions.
class Sweep {
  public:
    KERNEL Sweep(const Assignment& problem, Index k, Span<Index> classes, SweepSpace& space)
        : problem(problem), k(k), count(problem.classes()), classes(classes), space(space) {
        const Index n = problem.documents();
        double largest_score = 0.0, largest_gain = 0.0;
        for (Index g = 0; g < count; ++g) {
            largest_gain = most(largest_gain, fabs(problem.gain[g]));
            if (!problem.size_of(g)) continue;
            const double highest = problem.score[problem.starts[g]], lowest = problem.score[problem.starts[g + 1] - 1];
            largest_score = most(largest_score, most(fabs(highest), fabs(lowest)));
        }
        for (Index i = 0; i < n; ++i) {
            space.fall_of_c[i] = problem.fall_of_c(i);
            space.fall_of_a[i] = problem.fall_of_a(i);
        }
        const double bound =
            (problem.c[0] - problem.c[n - 1]) * largest_score + (problem.a[0] - problem.a[n - 1]) * largest_gain;
        scale = bound > 1e-280 && bound < INFINITE ? 0x1p57 / double(count) / bound : 0.0;
        const Index rows = (k + 1) * count;
        const Span<Index> table = space.table.first(rows * (count + 2));
        inside = table.slice(0, rows);
        best = table.slice(rows, 2 * rows);
        through = table.slice(2 * rows, table.size);
    }

    // Improve the first k of `classes` to an optimum; the others follow by score, `group` the class of each document in that order.
    // Without others `group` may be empty.
    //
    // Returns whether it came to the end; not if it would look at more than so many positions.
    KERNEL bool improve(Span<const Index> group, Index looks) {
        if (scale == 0.0) return true;
        for (Index g = 0; g < count; ++g) {
            Index total = 0;
            for (Index i = 0; i < k; ++i) inside[i * count + g] = total += classes[i] == g;
        }
        settle();
        Index i = k;
        while (i == k && looks >= 0) {
            looks -= group.size / 32;  // about what it takes
            look_behind(group);
            i = go_forwards(k - 1, -1, looks);
        }
        return looks >= 0;
    }

    // Improve a greedy ranking without a cut-off (k = n) to an optimum: the sweep of the positions about those boundaries that would
    // like other documents inside.
    //
    // It begins a few positions behind such a boundary, but not behind where it came to before, as if no exchange cost anything there,
    // and goes on forwards to where none is worth anything: boundaries that like what is inside would not begin one, up to the next
    // that does not. Returns whether it came to the end: not if an exchange is wanted where it began, or if it would look at more than
    // so many positions. Then `classes` are no ranking any more.
    KERNEL bool improve_near(Span<const double> margin, Index looks) {
        // Of 350 lists of five grades (ERU, half-lives 5 and 20) one wants to begin further behind, and with 4 it still does.
        constexpr Index positions_behind = 1;
        if (scale == 0.0) return true;
        const Span<Index> behind = space.next.first(count);  // documents of each class behind position `at`
        behind.fill(0);
        Index at = k - 1, end = k - 1;
        for (Index i = k - 1; i >= 0;) {
            if (margin[i] >= 0.0) {
                --i;
                continue;
            }
            const Index last = least(i + positions_behind, end);
            for (; at > last; --at) ++behind[classes[at]];
            for (Index g = 0; g < count; ++g) inside[last * count + g] = problem.size_of(g) - behind[g];
            begin_behind(last).fill(0);
            i = go_forwards(last, i, looks);
            if (i > last || looks < 0) return false;
            end = i;
        }
        return true;
    }

  private:
    static constexpr Index impossible = -(Index(1) << 60);  // three of these are no overflow; what is possible stays above half of it

    const Assignment& problem;
    const Index k, count;
    const Span<Index> classes;
    SweepSpace& space;
    double scale;  // makes integers of all that is added up; 0 where there is nothing to choose
    // inside[i, g], documents of class g in positions 0..i; best[i, h], the highest of through[i, h] and 0.
    Span<Index> inside, best, through;

    // W, what one more document of class g inside boundary i is worth, if t are. Each product is rounded by itself: no compiler can
    // make one W of two values out of a fused multiply-add here and none there, and with it cycles that gain for ever.
    KERNEL Index worth(Index i, Index g, Index t) const {
        return Index(scale * (space.fall_of_c[i] * problem.score[problem.starts[g] + t])) -
               Index(scale * (space.fall_of_a[i] * problem.gain[g]));
    }

    // Where `reach` of a position goes that is to be the last: to `through` of the one behind, with nothing that becomes another class.
    KERNEL Span<Index> begin_behind(Index last) {
        best.slice((last + 1) * count, (last + 2) * count).fill(impossible);
        return through.slice((last + 1) * count * count, (last + 2) * count * count);
    }

    // Move documents back, from the last position forwards, to where they gain most before the next of their own class: most of what
    // the sweep would find, for less.
    KERNEL void settle() {
        for (Index i = k - 2; i >= 0; --i) {
            const Index x = classes[i];
            Index total = 0, highest = 0, to = i;
            for (Index j = i; j < k - 1 && classes[j + 1] != x; ++j) {
                const Index y = classes[j + 1];
                total += worth(j, y, inside[j * count + y]) - worth(j, x, inside[i * count + x] - 1);
                if (total > highest) {
                    highest = total;
                    to = j + 1;
                }
            }
            for (Index j = i; j < to; ++j) {
                classes[j] = classes[j + 1];
                --inside[j * count + x];
                ++inside[j * count + classes[j]];
            }
            classes[to] = x;
        }
    }

    // Fill `reach` for the boundary behind which documents follow by score: O(n + L^2).
    KERNEL void look_behind(Span<const Index> group) {
        const Span<Index> before = inside.slice((k - 1) * count, k * count);
        // Prefix sums, over the documents behind, of what each gains one position further forward or back.
        const Span<Index> forth = space.forth, back = space.back;
        Index missing = 0;  // classes whose first document behind is still to come
        for (Index g = 0; g < count; ++g) {
            space.of_class[g] = {};
            missing += before[g] < problem.size_of(g);
        }
        forth[0] = back[0] = 0;
        Index t = 0;  // documents behind so far
        for (Index q = 0; q < group.size && (missing || q - t < k); ++q) {
            const Index g = group[q];
            ClassBehind& its = space.of_class[g];
            if (its.seen < before[g]) {
                its.last = t;
            } else {
                if (its.seen == before[g]) {
                    its.first = t;
                    --missing;
                }
                // A document before the boundary may yet come, and go behind this one.
                if (q - t < k) forth[t + 1] = forth[t] + worth(k + t - 1, g, its.seen);
                back[t + 1] = back[t] - worth(k + t, g, its.seen);
                ++t;
            }
            ++its.seen;
        }
        for (Index g = 0; g < count; ++g) {
            ClassBehind& its = space.of_class[g];
            for (Index i = k; before[g] && i < k + its.last; ++i) {
                its.last_gains_less = its.last_gains;
                its.last_gains += worth(i, g, before[g] - 1);
            }
            for (Index i = k; before[g] < problem.size_of(g) && i < k + its.first; ++i) its.first_gains += worth(i, g, before[g]);
        }
        const Span<Index> reach = begin_behind(k - 1);
        for (Index h = 0; h < count; ++h)
            for (Index g = 0; g < count; ++g) {
                const ClassBehind &in = space.of_class[g], &out = space.of_class[h];
                Index& change = reach[h * count + g];
                if (g == h)
                    change = 0;
                else if (!before[h] || before[g] == problem.size_of(g))
                    change = impossible;
                else if (in.first < out.last)
                    change = in.first_gains - out.last_gains_less + forth[out.last] - forth[in.first + 1];
                else
                    change = in.first_gains - out.last_gains + back[in.first] - back[out.last];
            }
    }

    // Fill `through` and `best` of position i from those of the position behind. Returns the most that any exchange is worth.
    KERNEL Index look_at(Index i, Index last) {
        const Index count = problem.classes(), behind = i < last ? classes[i + 1] : 0;
        Index *enter = space.enter.data, *leave = space.leave.data;
        for (Index g = 0; g < count; ++g) {
            const Index t = inside[i * count + g];
            enter[g] = t < problem.size_of(g) ? worth(i, g, t) : impossible;
            leave[g] = t > 0 ? -worth(i, g, t - 1) : impossible;
        }
        const Index square = count * count;
        return fill_rows(&through[i * square], &best[i * count], &through[(i + 1) * square], &best[(i + 1) * count],
                         &through[(i + 1) * square + behind * count], enter, leave, count);
    }

    KERNEL static Index fill_rows(Index* __restrict__ row, Index* __restrict__ best, const Index* __restrict__ stays,
                                  const Index* __restrict__ best_behind, const Index* __restrict__ becomes,
                                  const Index* __restrict__ enter, const Index* __restrict__ leave, Index count) {
        Index highest_of_all = 0;
        for (Index h = 0; h < count; ++h, row += count, stays += count) {
            const Index its_best = best_behind[h], its_leave = leave[h];
            Index highest = 0;
            for (Index g = 0; g < count; ++g) {  // without branches
                const Index far = most(stays[g], its_best + becomes[g]);
                row[g] = most(its_leave + far + enter[g], impossible);
                highest = most(highest, row[g]);
            }
            row[h] = 0;
            best[h] = highest;
            highest_of_all = most(highest_of_all, highest);
        }
        return highest_of_all;
    }

    // Improve the positions from `last` forwards, of which `inside` and `reach` are known: all of them, or until, before `until` and
    // all that changed, no exchange is worth anything.
    //
    // Returns the next position, which is `last` + 1 if an exchange is wanted behind it. `looks` becomes how many are left: below 0 if
    // they were too few.
    KERNEL Index go_forwards(Index last, Index until, Index& looks) {
        Index i = last;
        while (i >= 0 && i <= last && looks >= 0) {
            --looks;
            const Index worth_most = look_at(i, last), x = classes[i];
            if (best[i * count + x] > 0) {
                until = least(until, i);
                i = change(i, best_of(i, x, x), last + 1);
                continue;
            }
            if (i > 0) {
                Index* before = &inside[(i - 1) * count];
                for (Index g = 0, end = count; g < end; ++g) before[g] = before[end + g];
                --before[x];
            }
            --i;
            if (i < until && worth_most <= 0) break;
        }
        return i;
    }

    // The class that it is best to exchange h for at boundary i; y, if none is better.
    KERNEL Index best_of(Index i, Index h, Index y) const {
        const Index* row = &through[(i * count + h) * count];
        for (Index g = 0; g < count; ++g)
            if (row[g] > row[y]) y = g;
        return y;
    }

    // Give position i the class y, and change the positions behind it, before `end`, as `through` says; returns the last one changed:
    // `end` if what stands behind that does.
    KERNEL Index change(Index i, Index y, Index end) {
        const Span<Exchange> waiting = space.exchanges.first(2 * k + 2);
        waiting[0] = {i, classes[i], y};
        classes[i] = y;
        Index top = 1, changed = i;
        while (top) {
            auto [j, h, g] = waiting[--top];
            --inside[j * count + h];
            ++inside[j * count + g];
            ++j;
            changed = most(changed, j);
            if (j == end) continue;
            const Index x = classes[j], y = best_of(j, h, h);
            const auto worth_of = [&](Index from, Index to) { return through[(j * count + from) * count + to]; };
            if (worth_of(h, g) >= worth_of(h, y) + worth_of(x, g)) {
                waiting[top++] = {j, h, g};
                continue;
            }
            classes[j] = y;
            if (y != h) waiting[top++] = {j, h, y};
            if (x != g) waiting[top++] = {j, x, g};
        }
        return changed;
    }
};

constexpr Index TOGETHER = 4, COARSEST = 64, MOST_LEVELS = 16;  // of the multilevel start

// A coarser problem: the means of TOGETHER neighbours within a class, c and a at as many places, evenly spread. Its numbers go to
// `numbers`, of which it takes 3 a document, and its classes to `starts`.
KERNEL inline Assignment coarsen(const Assignment& fine, Span<double> numbers, Span<Index> starts) {
    const Index n = fine.documents(), count = fine.classes();
    starts[0] = 0;
    for (Index g = 0; g < count; ++g) starts[g + 1] = starts[g] + (fine.size_of(g) + TOGETHER - 1) / TOGETHER;
    const Index size = starts[count];
    const Span<double> score = numbers.slice(0, size), c = numbers.slice(size, 2 * size), a = numbers.slice(2 * size, 3 * size);
    for (Index g = 0; g < count; ++g)
        for (Index t = 0; t < starts[g + 1] - starts[g]; ++t) {
            double total = 0.0;
            for (Index v = 0; v < TOGETHER; ++v)
                total += fine.score[least(fine.starts[g] + TOGETHER * t + v, fine.starts[g + 1] - 1)];
            score[starts[g] + t] = total / double(TOGETHER);
        }
    for (Index i = 0; i < size; ++i) {
        const double place = least(most((double(i) + 0.5) * double(n) / double(size) - 0.5, 0.0), double(n - 1));
        const Index low = least(Index(place), n - 2);
        const double part = place - double(low);
        c[i] = fine.c[low] + part * (fine.c[low + 1] - fine.c[low]);
        a[i] = fine.a[low] + part * (fine.a[low + 1] - fine.a[low]);
    }
    return {score, starts, fine.gain, c, a};
}

// Give the solution of a coarser problem to a finer one: each document stands for up to TOGETHER. In place, from the back: the last of
// a class may stand for fewer.
KERNEL inline void refine(const Assignment& coarse, const Assignment& fine, Span<Index> classes, Span<Index> placed) {
    for (Index g = 0; g < coarse.classes(); ++g) placed[g] = coarse.size_of(g);
    Index to = fine.documents();
    for (Index i = coarse.documents() - 1; i >= 0; --i) {
        const Index g = classes[i], its = least(TOGETHER, fine.size_of(g) - TOGETHER * --placed[g]);
        for (Index v = 0; v < its; ++v) classes[--to] = g;
    }
}

// The sweep from a coarser level's solution, which leaves little to improve. Returns whether there was memory.
KERNEL inline bool by_levels(const Assignment& problem, Span<const Index> group, Index k, Span<Index> classes, SweepSpace& space) {
    const Index n = problem.documents(), count = problem.classes();
    if (!space.levels.reserve(3 * (n + 2 * MOST_LEVELS * count)) || !space.level_starts.reserve(MOST_LEVELS * (count + 1))) return false;
    Assignment level[MOST_LEVELS] = {problem};
    Index top = 0, used = 0;
    while (level[top].documents() > COARSEST && top + 1 < MOST_LEVELS) {
        const Span<double> numbers = space.levels.first(3 * (n + 2 * MOST_LEVELS * count));
        const Span<Index> starts = space.level_starts.first(MOST_LEVELS * (count + 1)).slice(top * (count + 1), (top + 1) * (count + 1));
        level[top + 1] = coarsen(level[top], numbers.slice(used, numbers.size), starts);
        if (level[top + 1].documents() == level[top].documents()) break;
        ++top;
        used += 3 * level[top].documents();
    }
    if (!space.reserve(most(k, top ? level[1].documents() : 0), count)) return false;
    for (Index at = top; at >= 0; --at) {
        const Index ranks = at ? level[at].documents() : k;
        const Assignment& its = level[at];
        if (at == top)
            greedy(classes, ranks, its.score, its.starts, its.gain, its.c, its.a, space.next, space.margin, space.forth, space.edges);
        Sweep(its, ranks, classes, space).improve(group.first(at ? 0 : n), Index(1) << 62);
        if (at) refine(level[at], level[at - 1], classes, space.next);
    }
    return true;
}

// Any gains, discount 0 behind rank k (n without a cut-off): the residual sweep of the first k ranks.
//
// `group` [n] is the class of each document by descending score. Without a cut-off the greedy start is often an optimum already, O(n L),
// or the sweep of a few positions makes it one; else k becomes the rank behind which the order by score is the best one anyway, if there
// is one. From a greedy start on, in practice O(n + k L^2). A list that would take more than so many looks at a position gets a
// multilevel start. O(n L^2) in practice, at worst O(n^2 L^2).
KERNEL inline Solved by_sweep(Span<const double> class_score, Span<const Index> starts, Span<const Index> group, Span<const double> gain,
                              Span<const double> c, Span<const double> a, Index k, Index looks, Span<Index> classes, Span<Index> places,
                              SweepSpace& space) {
    const Assignment problem{class_score, starts, gain, c, a};
    const Index n = group.size;
    const auto begin = [&] { return greedy(classes, k, class_score, starts, gain, c, a, space.next, space.margin, places, space.edges); };
    if (begin() && k == n) return {n, true};
    if (!space.reserve(k, gain.size)) return NO_MEMORY;
    if (k == n) {
        if (Sweep(problem, n, classes, space).improve_near(space.margin.first(n), looks)) return {n, false};
        begin();
        k = first_by_score(class_score, starts, group, gain, c, a, space.next);
    }
    if (!Sweep(problem, k, classes, space).improve(group, looks) && !by_levels(problem, group, k, classes, space)) return NO_MEMORY;
    return {k, false};
}

constexpr Index PRICES_TOGETHER = 32;  // as many neighbours are taken together

struct PriceSpace {
    Span<double> c, a, score, gain, price, cost, left, distance, worth;
    Span<Index> place, holder, previous, known;

    KERNEL PriceSpace(Arena& arena, Index documents)
        : c(arena.take<double>(documents)),
          a(arena.take<double>(documents)),
          score(arena.take<double>(documents)),
          gain(arena.take<double>(documents)),
          price(arena.take<double>(documents)),
          cost(arena.take<double>(documents)),
          left(arena.take<double>(documents)),
          distance(arena.take<double>(documents)),
          worth(arena.take<double>(documents)),
          place(arena.take<Index>(documents)),
          holder(arena.take<Index>(documents)),
          previous(arena.take<Index>(documents)),
          known(arena.take<Index>(documents)) {}
};

// Prices of positions, at which each document wants the one that costs it least.
class Prices {
  public:
    KERNEL Prices(Index n, PriceSpace& space) : n(n), space(space) {}

    // Fill the prices from the best set inside each boundary by itself; documents are by descending score.
    KERNEL void begin() {
        // Scores, gains and what they are worth in the order of the last boundary, which is nearly that of the next.
        double *__restrict__ s = space.cost.data, *__restrict__ b = space.distance.data, *__restrict__ worth = space.worth.data;
        for (Index q = 0; q < n; ++q) {
            s[q] = space.score[q];
            b[q] = space.gain[q];
        }
        for (Index i = 0; i < n - 1; ++i) {
            const double step_c = space.c[i] - space.c[i + 1], step_a = space.a[i] - space.a[i + 1];
            for (Index q = 0; q < n; ++q) worth[q] = step_c * s[q] - step_a * b[q];
            Index q = 1;
            for (; q + PRICES_TOGETHER <= n; q += PRICES_TOGETHER) {
                Index rises = 0;
                for (Index l = 0; l < PRICES_TOGETHER; ++l) rises |= Index(worth[q + l] > worth[q + l - 1]);
                for (Index l = 0; rises && l < PRICES_TOGETHER; ++l) insert(q + l, worth, s, b);
            }
            for (; q < n; ++q) insert(q, worth, s, b);
            space.price[i] = 0.5 * (step_c * (s[i] + s[i + 1]) - step_a * (b[i] + b[i + 1]));
        }
        space.price[n - 1] = 0.0;
        for (Index i = n - 2; i >= 0; --i) space.price[i] += space.price[i + 1];
    }

    // Give each document a position that costs it least, if one is free, and then those that have none one by augmenting paths.
    KERNEL void assign() {
        space.place.first(n).fill(-1);
        space.holder.first(n).fill(-1);
        for (Index q = 0; q < n; ++q) {
            const double lowest = set_costs(q);
            Index j = find(lowest, 0);
            while (j < n && space.holder[j] >= 0) j = find(lowest, j + 1);
            if (j >= n) continue;
            space.holder[j] = q;
            space.place[q] = j;
        }
        for (Index q = 0; q < n; ++q)
            if (space.place[q] < 0) augment(q);
    }

  private:
    static constexpr double far = 1e300;  // beside costs of at most n, as good as infinity

    const Index n;
    PriceSpace& space;

    KERNEL static void insert(Index q, double* worth, double* s, double* b) {
        const double its = worth[q], its_s = s[q], its_b = b[q];
        if (!(its > worth[q - 1])) return;
        for (; q > 0 && its > worth[q - 1]; --q) {
            worth[q] = worth[q - 1];
            s[q] = s[q - 1];
            b[q] = b[q - 1];
        }
        worth[q] = its;
        s[q] = its_s;
        b[q] = its_b;
    }

    // The first position from j on that costs just this; n if none does.
    KERNEL Index find(double value, Index j) const {
        const double* cost = space.cost.data;
        for (; j + PRICES_TOGETHER <= n; j += PRICES_TOGETHER) {
            Index found = 0;
            for (Index l = 0; l < PRICES_TOGETHER; ++l) found |= Index(cost[j + l] == value);
            if (found) break;
        }
        while (j < n && cost[j] != value) ++j;
        return j;
    }

    KERNEL double lowest_cost() const {
        const double* cost = space.cost.data;
        double lowest = far;
        Index j = 0;
        if (n >= PRICES_TOGETHER) {
            double lanes[PRICES_TOGETHER];
            for (; j < PRICES_TOGETHER; ++j) lanes[j] = cost[j];
            for (; j + PRICES_TOGETHER <= n; j += PRICES_TOGETHER)
                for (Index l = 0; l < PRICES_TOGETHER; ++l) lanes[l] = least(lanes[l], cost[j + l]);
            for (const double each : lanes) lowest = least(lowest, each);
        }
        for (; j < n; ++j) lowest = least(lowest, cost[j]);
        return lowest;
    }

    // Set what each position costs a document; returns the least.
    KERNEL double set_costs(Index document) const {
        const double s = space.score[document], b = space.gain[document];
        const double *c = space.c.data, *a = space.a.data, *price = space.price.data;
        double* __restrict__ cost = space.cost.data;
        for (Index j = 0; j < n; ++j) cost[j] = b * a[j] - s * c[j] + price[j];
        return lowest_cost();
    }

    // Lower the costs to those of the way by a document that holds a position, where it is the shorter one; returns the least.
    KERNEL double relax(Index by, double shift) const {
        const double s = space.score[by], b = space.gain[by];
        const double *c = space.c.data, *a = space.a.data, *price = space.left.data;
        double* __restrict__ cost = space.cost.data;
        Index* __restrict__ previous = space.previous.data;
        for (Index j = 0, end = n; j < end; ++j) {
            const double way = b * a[j] - s * c[j] + price[j] - shift, known = cost[j];
            previous[j] = way < known ? by : previous[j];
            cost[j] = least(known, way);
        }
        return lowest_cost();
    }

    // Give a document without a position one, along a shortest path of changes, and change the prices accordingly.
    //
    // Source: Jonker and Volgenant, "A shortest augmenting path algorithm for dense and sparse linear assignment problems",
    // Computing, 1987.
    KERNEL void augment(Index document) {
        const Span<Index> previous = space.previous, holder = space.holder;
        for (Index j = 0; j < n; ++j) {
            previous[j] = document;
            space.left[j] = space.price[j];  // far for positions whose shortest way is known
        }
        Index count = 0, j;
        double lowest = set_costs(document);
        while (holder[j = find(lowest, 0)] >= 0) {
            space.known[count] = j;
            space.distance[count++] = lowest;
            space.cost[j] = space.left[j] = far;
            const Index by = holder[j];
            lowest = relax(by, space.gain[by] * space.a[j] - space.score[by] * space.c[j] + space.price[j] - lowest);
        }
        for (Index i = 0; i < count; ++i) space.price[space.known[i]] += lowest - space.distance[i];
        for (Index by = n; by != document;) {
            by = previous[j];
            holder[j] = by;
            exchange(j, space.place[by]);
        }
    }
};

// Any gains: prices from thresholds, then shortest augmenting paths. O(n^2) where the best sets of the boundaries lie in one another, at
// worst O(n^3); O(n) memory. Documents are by descending score, `group` [n] the class of each.
KERNEL inline void by_prices(Span<const double> score, Span<const Index> group, Span<const double> gain, Span<const double> c,
                             Span<const double> a, Span<Index> classes, PriceSpace& space) {
    const Index n = score.size;
    const double fall_c = c[0] - c[n - 1], fall_a = a[0] - a[n - 1];
    const double bound = most(fall_c * most(fabs(score[0]), fabs(score[n - 1])), fall_a * gain[0]);
    if (!(bound > 1e-280 && bound < INFINITE)) {  // nothing to choose between
        for (Index q = 0; q < n; ++q) classes[q] = group[q];
        return;
    }
    // Relative to the last rank and to the largest, so that no sum overflows.
    for (Index q = 0; q < n; ++q) {
        space.c[q] = fall_c > 0.0 ? (c[q] - c[n - 1]) / fall_c : 0.0;
        space.a[q] = fall_a > 0.0 ? (a[q] - a[n - 1]) / fall_a : 0.0;
        space.score[q] = score[q] * (fall_c / bound);
        space.gain[q] = gain[group[q]] * (fall_a / bound);
    }
    Prices prices(n, space);
    prices.begin();
    prices.assign();
    for (Index q = 0; q < n; ++q) classes[space.place[q]] = group[q];
}

}  // namespace rankstruct
