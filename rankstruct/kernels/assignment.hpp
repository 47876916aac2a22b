// The assignment problem of the positional map, max over rankings of sum_i ( c_i s_{r(i)} - a_i b_{r(i)} ), for one list.
//
// c and a never increase. Documents with the same gain b stay in score order, so a ranking is a sequence of classes, one class
// per distinct gain. The methods compute `classes`, the class at each position, and are exact.
//
// Boundaries. Summation by parts turns the objective into a constant plus
//
//     sum_{i<n} sum_g ( dc_i F_g(N_g(i)) - da_i b_g N_g(i) )
//
// where N_g(i) is the number of documents of class g in positions 0..i, F_g the prefix sums of their scores, and dc and da the
// decreases of c and a. So the first i + 1 documents by dc_i s - da_i b are the best set inside boundary i, after position i,
// considered alone. If these sets are nested, they are optimal: the greedy ranking, in most cases.
//
// The residual sweep, for few classes. The sum is a flow with convex costs, one unit per position along parallel chains. One more
// document of class g inside boundary i is worth W. An exchange (h, g) at a boundary moves the last document of class h inside it
// out, and the first of class g outside it in. From the last position to the first, the sweep computes
//
//     reach[i, h, g]   the best change of the positions after boundary i if h and g are exchanged there
//     through[i, h, g] the same including boundary i itself: reach[i, h, g] - W of h + W of g
//     reach[i - 1, h, g] = max( through[i, h, g], max_y through[i, h, y] + through[i, x, g] )     x the class at position i:
//                          it stays, or becomes y
//
// and through[i, x, y] > 0 is an improvement: position i becomes y. Each position needs at most one (successive longest paths),
// after which the later positions it changes are revisited, so the result is optimal. Numbers are 64-bit integers: rounding in
// floating point creates small positive cycles.
//
// Prices, for many classes. Thresholds t_i between the last document inside and the first outside each boundary's best set give
// prices, the sum over i >= j of t_i for position j, at which each document prefers its own position if the sets are nested.
// Otherwise some documents want the same position, and shortest augmenting paths move them and the prices to the optimum.
#pragma once

#include "sums.hpp"

namespace rankstruct {

struct Assignment {
    Span<const double> score;  // of each document, by class and descending score
    Span<const int> starts;    // class g is [starts[g], starts[g + 1])
    Span<const int> group;     // the class of each document by descending score
    Span<const double> gain;   // of each class, descending
    Span<const double> c, a;   // of each position
    Index k;                   // the first position with a = 0

    Index documents() const { return score.size; }
    int classes() const { return int(gain.size); }
    int size_of(Index g) const { return starts[g + 1] - starts[g]; }
    double a_at(Index i) const { return i < k ? a[i] : 0.0; }
    // The decrease of c and a after a position.
    double fall_of_c(Index i) const { return i + 1 < documents() ? c[i] - c[i + 1] : 0.0; }
    double fall_of_a(Index i) const { return i + 1 < documents() ? a_at(i) - a_at(i + 1) : 0.0; }
    double range_of_c() const { return c[0] - c[documents() - 1]; }
    double range_of_a() const { return a_at(0) - a_at(documents() - 1); }
};

struct Exchange {
    int boundary, h, g;
};

// Scratch of the sweep. The large tables are only reserved for lists that need them.
struct SweepSpace {
    static constexpr Index lanes = 4;   // classes exchanged together

    Room each, of_class;
    Span<double> fall_of_c = each, fall_of_a = each, margin = each;                // by position
    Span<Index> forth = each(each.count + 1), back = each(each.count + 1);         // by number of documents
    Span<double> outside = of_class, inside = of_class;                            // by class
    Span<int> next = of_class, first = of_class, last = of_class;
    Span<Index> enter = each(width(of_class.count)), leave = each(width(of_class.count));
    Growing<Index> table{};
    Growing<Exchange> exchanges{};
    Growing<int> level_starts{};
    Growing<double> levels{};

    static Index width(Index classes) { return (classes + lanes - 1) / lanes * lanes; }

    // Reserve memory for the sweep of k positions.
    bool reserve(Index k, Index classes) {
        return table.reserve((k + 1) * (classes + width(classes) * (classes + 1))) && exchanges.reserve(2 * k + 2);
    }
};

// Compute the first k of `classes` greedily: each position takes the class that the boundary after it prefers. `margin` [k] is by
// how much each boundary prefers every document inside to every one outside, negative if it does not. Returns whether none is
// negative, which is optimal for all positions. Comparisons with NaN, from 0 times infinity, are false. O(k L).
template <int FEW>
inline bool greedy_of(const Assignment& problem, Index k, Span<int> classes, SweepSpace& space) {
    const Index last = (FEW ? FEW : problem.classes()) - 1;
    const Span<const double> score = problem.score;
    const Span<int> next = space.next;
    double few_outside[FEW ? FEW : 1], few_inside[FEW ? FEW : 1];
    double *outside = FEW ? few_outside : space.outside.data, *inside = FEW ? few_inside : space.inside.data;
    const auto score_at = [&](Index g, Index at) { return at < problem.starts[g + 1] ? score[at] : -INFINITE; };
    for (Index g = 0; g <= last; ++g) {
        next[g] = problem.starts[g];
        outside[g] = score_at(g, next[g]);  // of the first outside
        inside[g] = INFINITE;               // of the last inside
    }
    // The class of the lowest gain, which has most positions, is kept in registers: reading back what was just written is slow.
    int its_next = next[last];
    double its_outside = outside[last], its_inside = INFINITE;
    bool nested = true;
    for (Index i = 0; i < k; ++i) {
        const double step_c = problem.fall_of_c(i), step_a = problem.fall_of_a(i);
        Index chosen = 0;
        double highest = -INFINITE, second = -INFINITE, lowest = INFINITE;  // of the documents outside, and of those inside
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
        if (highest == -INFINITE && !(value > -INFINITE))  // all remaining values are minus infinity
            while (chosen < last && outside[chosen] == -INFINITE) ++chosen;
        if (value > highest || chosen == last) {
            classes[i] = int(last);
            its_inside = its_outside;
            its_outside = score_at(last, ++its_next);
            value = step_c * its_outside - cost;
            second = highest;
        } else {
            second = most(second, value);
            classes[i] = int(chosen);
            const Index at = next[chosen]++;
            inside[chosen] = score[at];
            outside[chosen] = score_at(chosen, at + 1);
            value = step_c * outside[chosen] - step_a * problem.gain[chosen];
        }
        second = most(second, value);
        space.margin[i] = lowest - second;
        nested &= lowest >= second;
    }
    next[last] = its_next;
    return nested;
}

inline bool greedy(const Assignment& problem, Index k, Span<int> classes, SweepSpace& space) {
    return (problem.classes() == 2 ? greedy_of<2> : greedy_of<0>)(problem, k, classes, space);
}

// The first position, after 0, from which on the documents are best ordered by score whatever precedes them, because a hardly
// decreases relative to c. At the boundaries from there on, values never increase along the order by score, except that the
// sweep's integers, rounded term by term, may by a unit.
inline Index first_by_score(const Assignment& problem, Span<int> next) {
    constexpr double rounding = 0x1p-50;
    Index i = least(problem.k, problem.documents() - 1);
    for (Index g = 0; g < problem.classes(); ++g) next[g] = problem.starts[g];
    const double last_c = i ? problem.fall_of_c(i - 1) : 0.0, last_a = i ? problem.fall_of_a(i - 1) : 0.0;
    double highest = INFINITE, above = INFINITE, better = 0.0;  // of da / dc; the score and gain above
    for (const int g : problem.group) {
        const double score = problem.score[next[g]++], gain = problem.gain[g];
        if (better > gain) {
            highest = least(highest, (above - score - rounding * fabs(score)) / (better - gain + rounding * better));
            if (last_a > highest * last_c) return i;
        }
        above = score;
        better = gain;
    }
    while (i > 1 && problem.fall_of_a(i - 1) <= highest * problem.fall_of_c(i - 1)) --i;
    return i;
}

// The residual sweep of the first k positions; the others follow by score.
class Sweep {
  public:
    Sweep(const Assignment& problem, Index k, Span<int> classes, SweepSpace& space)
        : problem(problem), k(k), count(problem.classes()), width(SweepSpace::width(count)), classes(classes), space(space) {
        double largest_score = 0.0, largest_gain = 0.0;
        for (Index g = 0; g < count; ++g) {
            largest_gain = most(largest_gain, fabs(problem.gain[g]));
            if (!problem.size_of(g)) continue;
            const double highest = problem.score[problem.starts[g]], lowest = problem.score[problem.starts[g + 1] - 1];
            largest_score = most(largest_score, most(fabs(highest), fabs(lowest)));
        }
        const double bound = problem.range_of_c() * largest_score + problem.range_of_a() * largest_gain;
        scale = bound > 1e-280 && bound < INFINITE ? 0x1p57 / double(count) / bound : 0.0;
        for (Index i = 0; i < k; ++i) {
            space.fall_of_c[i] = scale * problem.fall_of_c(i);
            space.fall_of_a[i] = scale * problem.fall_of_a(i);
        }
        const Index rows = (k + 1) * width;
        const Span<Index> table = space.table.first(rows * (count + 1) + (k + 1) * count);
        best = table.slice(0, rows);
        through = table.slice(rows, rows * (count + 1));
        inside = table.slice(rows * (count + 1), table.size);
    }

    // Improve the first k of `classes` to the optimum, by a sweep of all positions. Or, from a greedy ranking, of those around
    // the boundaries that prefer other documents inside, and around the last one.
    //
    // Then each sweep begins shortly after such a boundary, but not after the end of the previous one, as if exchanges cost
    // nothing there, and continues to where no exchange is worth anything: satisfied boundaries would not start one, up to the
    // next that is not satisfied. Returns whether it finished: not if an exchange is wanted where it began, or after too many
    // visits. Then `classes` is no longer a ranking.
    bool improve(Index until, Index& looks) {
        if (scale == 0.0) return true;
        if (until < 0) settle();
        Index end = k - 1;
        inside.slice(end * count, k * count).fill(0);
        for (const int g : classes.first(k)) ++inside[end * count + g];
        for (Index i = k - 1; i >= 0;) {
            if (i < k - 1 && space.margin[i] >= 0.0) {
                --i;
                continue;
            }
            const Index last = least(i + 1, end);  // with 4 positions, few lists need to begin later
            for (Index g = 0; g < count; ++g) inside[last * count + g] = inside[end * count + g];
            for (Index at = end; at > last; --at) --inside[last * count + classes[at]];
            end = i = go_forwards(last, least(i, until), looks);
            until = k;
            if (i > last || looks < 0) return false;
        }
        return true;
    }

  private:
    static constexpr Index impossible = -(Index(1) << 60);  // three of these do not overflow; possible values stay above half

    const Assignment& problem;
    const Index k, count, width;
    const Span<int> classes;
    SweepSpace& space;
    double scale;  // from values to integers; 0 if there is no choice
    // inside[i, g], documents of class g in positions 0..i; through[i, g, h], h with gaps; best[i, h], the largest of them and 0.
    Span<Index> inside, best, through;

    double score_of(Index g, Index t) const { return problem.score[problem.starts[g] + t]; }

    // W, the value of one more document of class g inside boundary i with t inside. Products are rounded separately: otherwise
    // the compiler could use fused multiply-adds in some places and not in others, which gives two values of one W and cycles
    // that improve forever.
    Index worth(Index i, Index g, Index t) const {
        return Index(space.fall_of_c[i] * score_of(g, t)) - Index(space.fall_of_a[i] * problem.gain[g]);
    }

    // The same summed over all boundaries from position i on: the value of the document at position i.
    Index worth_at(Index i, Index g, Index t) const {
        const Index last = problem.documents() - 1, at = least(i, last);
        const Index earned = Index(scale * (problem.c[at] - problem.c[last]) * score_of(g, t));
        return at < problem.k ? earned - Index(scale * (problem.a[at] - problem.a_at(last)) * problem.gain[g]) : earned;
    }

    // The output row of `reach` of a last position: `through` of the next one, where no class changes.
    Span<Index> begin_behind(Index last) {
        best.slice((last + 1) * width, (last + 2) * width).fill(impossible);
        return through.slice((last + 1) * count * width, (last + 2) * count * width);
    }

    // Move documents back, from the last position to the first, to where they gain most before the next document of their class:
    // most of the sweep's improvements at a lower cost.
    void settle() {
        for (Index i = 0; i < k; ++i) {
            for (Index g = 0; g < count; ++g) inside[i * count + g] = i ? inside[(i - 1) * count + g] : 0;
            ++inside[i * count + classes[i]];
        }
        for (Index i = k - 2; i >= 0; --i) {
            const int x = classes[i];
            Index total = 0, highest = 0, to = i;
            for (Index j = i; j < k - 1 && classes[j + 1] != x; ++j) {
                const int y = classes[j + 1];
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

    // Compute `reach` at the boundary after which documents follow by score: O(n + L^2).
    void look_behind() {
        const Span<Index> before = inside.slice((k - 1) * count, k * count);
        // Prefix sums of the gain if the remaining documents all move one position forward or back.
        const Span<Index> forth = space.forth, back = space.back;
        // For each class, how many remaining documents are above its first remaining one, and above its last earlier one.
        const Span<int> first = space.first, last = space.last, seen = space.next;
        int missing = 0, t = 0;  // classes whose first remaining document is still to come; remaining documents so far
        for (Index g = 0; g < count; ++g) {
            seen[g] = last[g] = 0;
            missing += before[g] < problem.size_of(g);
        }
        forth[0] = back[0] = 0;
        for (Index q = 0; q < problem.group.size && (missing || q - t < k); ++q) {
            const int g = problem.group[q], s = seen[g]++;
            if (s < before[g]) {
                last[g] = t;
                continue;
            }
            if (s == before[g]) {
                first[g] = t;
                --missing;
            }
            const Index here = worth_at(k + t, g, s);
            forth[t + 1] = forth[t] + worth_at(k + t - 1, g, s) - here;
            back[t + 1] = back[t] + worth_at(k + t + 1, g, s) - here;
            ++t;
        }
        const Span<Index> reach = begin_behind(k - 1), enter = space.enter;
        reach.fill(impossible);
        for (Index g = 0; g < count; ++g)
            if (before[g] < problem.size_of(g)) enter[g] = worth_at(k, g, before[g]) - worth_at(k + first[g], g, before[g]);
        for (Index h = 0; h < count; ++h) {
            const Index from = last[h], s = before[h] - 1;
            if (s < 0) continue;
            const Index its = worth_at(k, h, s), leave = worth_at(k + from, h, s) - its, leave_less = worth_at(k + from - 1, h, s) - its;
            for (Index g = 0; g < count; ++g) {
                if (before[g] == problem.size_of(g)) continue;
                const Index to = first[g];
                reach[g * width + h] = enter[g] + (to < from ? leave_less + forth[from] - forth[to + 1] : leave + back[to] - back[from]);
            }
        }
        for (Index h = 0; h < count; ++h) reach[h * width + h] = 0;
    }

    // Compute `through` and `best` of position i from those of the next one. Returns the largest value of an exchange.
    Index look_at(Index i, Index last) {
        Index *enter = space.enter.data, *leave = space.leave.data;
        for (Index g = 0; g < count; ++g) {
            const Index t = inside[i * count + g];
            enter[g] = t < problem.size_of(g) ? worth(i, g, t) : impossible;
            leave[g] = t > 0 ? -worth(i, g, t - 1) : impossible;
        }
        for (Index g = count; g < width; ++g) leave[g] = impossible;
        const Index square = count * width, x = i < last ? classes[i + 1] : 0;
        return fill_rows(&through[i * square], &best[i * width], &through[(i + 1) * square], &best[(i + 1) * width], x, enter, leave,
                         count, width);
    }

    static Index fill_rows(Index* __restrict__ row, Index* __restrict__ best, const Index* __restrict__ stays,
                           const Index* __restrict__ best_behind, Index x, const Index* __restrict__ enter,
                           const Index* __restrict__ leave, Index count, Index width) {
        constexpr Index lanes = SweepSpace::lanes;
        Index highest_of_all = 0;
        for (Index h = 0; h < width; h += lanes) {
            Index highest[lanes] = {};
            for (Index g = 0; g < count; ++g) {
                const Index becomes = stays[g * width + x], its_enter = enter[g];
                for (Index l = h; l < h + lanes; ++l) {  // branchless
                    const Index far = most(stays[g * width + l], best_behind[l] + becomes);
                    const Index value = most(leave[l] + far + its_enter, impossible);
                    row[g * width + l] = value;
                    highest[l - h] = most(highest[l - h], value);
                }
            }
            for (Index l = 0; l < lanes; ++l) {
                best[h + l] = highest[l];
                highest_of_all = most(highest_of_all, highest[l]);
            }
        }
        for (Index h = 0; h < count; ++h) row[h * width + h] = 0;
        return highest_of_all;
    }

    // Improve the positions from `last` to the first, given `inside`: all of them, or until no exchange is worth anything before
    // `until` and all changes. After `last`, documents follow by score, or exchanges cost nothing.
    //
    // Returns the next position, or `last` + 1 if an exchange after it is wanted. `looks` is decremented, and below 0 if there
    // were too few.
    Index go_forwards(Index last, Index until, Index& looks) {
        Index i = last + 1;
        while (i >= 0 && looks >= 0) {
            if (i > last) {  // at first, and after an exchange with later positions
                if (last == k - 1)
                    look_behind();
                else
                    begin_behind(last).fill(0);
                i = last;
            }
            --looks;
            const Index worth_most = look_at(i, last);
            const int x = classes[i];
            if (best[i * width + x] > 0) {
                until = least(until, i);
                i = change(i, best_of(i, x, x), last + 1);
                if (i > last && last < k - 1) break;
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

    Index through_at(Index i, Index h, Index g) const { return through[(i * count + g) * width + h]; }

    // The best class to exchange h for at boundary i; y if none is better.
    int best_of(Index i, Index h, int y) const {
        for (int g = 0; g < count; ++g)
            if (through_at(i, h, g) > through_at(i, h, y)) y = g;
        return y;
    }

    // Give position i the class y, and change the later positions before `end` as `through` says; returns the last one changed,
    // or `end` if later ones change too.
    Index change(Index i, int y, Index end) {
        const Span<Exchange> waiting = space.exchanges.first(2 * k + 2);
        waiting[0] = {int(i), classes[i], y};
        classes[i] = y;
        Index top = 1, changed = i;
        while (top) {
            const auto [boundary, h, g] = waiting[--top];
            --inside[boundary * count + h];
            ++inside[boundary * count + g];
            const int j = boundary + 1;
            changed = most(changed, Index(j));
            if (j == end) continue;
            const int x = classes[j];
            y = best_of(j, h, h);
            if (through_at(j, h, g) >= through_at(j, h, y) + through_at(j, x, g)) {
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

constexpr int TOGETHER = 4, COARSEST = 64, MOST_LEVELS = 16;  // of the multilevel start

// A coarser problem: means of TOGETHER adjacent documents of a class, with c and a at evenly spaced positions. It takes 3 numbers
// per document from `numbers`, and its classes from `starts`.
inline Assignment coarsen(const Assignment& fine, Span<double> numbers, Span<int> starts) {
    const Index n = fine.documents(), count = fine.classes();
    starts[0] = 0;
    for (Index g = 0; g < count; ++g) starts[g + 1] = starts[g] + (fine.size_of(g) + TOGETHER - 1) / TOGETHER;
    const Index size = starts[count];
    const Span<double> score = numbers.slice(0, size), c = numbers.slice(size, 2 * size), a = numbers.slice(2 * size, 3 * size);
    for (Index g = 0; g < count; ++g)
        for (Index t = starts[g]; t < starts[g + 1]; ++t) {
            const Index from = fine.starts[g] + TOGETHER * (t - starts[g]), last = fine.starts[g + 1] - 1;
            score[t] = 0.0;
            for (Index v = 0; v < TOGETHER; ++v) score[t] += fine.score[least(from + v, last)] / TOGETHER;
        }
    for (Index i = 0; i < size; ++i) {
        const double place = least(most((double(i) + 0.5) * double(n) / double(size) - 0.5, 0.0), double(n - 1));
        const Index low = least(Index(place), n - 2);
        const auto between = [=](double from, double to) { return from + (place - double(low)) * (to - from); };
        c[i] = between(fine.c[low], fine.c[low + 1]);
        a[i] = between(fine.a_at(low), fine.a_at(low + 1));
    }
    return {score, starts, {}, fine.gain, c, a, size};
}

// Expand the solution of a coarser problem to a finer one: each document stands for up to TOGETHER. In place, from the end,
// because the last one of a class may stand for fewer.
inline void refine(const Assignment& coarse, const Assignment& fine, Span<int> classes, Span<int> placed) {
    for (Index g = 0; g < coarse.classes(); ++g) placed[g] = coarse.size_of(g);
    Index to = fine.documents();
    for (Index i = coarse.documents() - 1; i >= 0; --i) {
        const int g = classes[i], its = least(TOGETHER, fine.size_of(g) - TOGETHER * --placed[g]);
        for (int v = 0; v < its; ++v) classes[--to] = g;
    }
}

// The sweep of the first k positions, starting from a coarser level's solution, which leaves little to improve. Returns whether
// there was enough memory.
inline bool by_levels(const Assignment& problem, Index k, Span<int> classes, SweepSpace& space) {
    const Index count = problem.classes(), room = 3 * (problem.documents() + 2 * MOST_LEVELS * count);
    Assignment level[MOST_LEVELS] = {problem};
    Index top = 0, used = 0;
    const bool kept = space.levels.reserve(room) && space.level_starts.reserve(MOST_LEVELS * (count + 1));
    while (kept && level[top].documents() > COARSEST && top + 1 < MOST_LEVELS) {
        const Span<int> starts = space.level_starts.first((top + 1) * (count + 1));
        level[top + 1] = coarsen(level[top], space.levels.first(room).slice(used, room), starts.slice(top * (count + 1), starts.size));
        if (level[top + 1].documents() == level[top].documents()) break;
        used += 3 * level[++top].documents();
    }
    if (!space.reserve(most(k, top ? level[1].documents() : 0), count)) return false;
    greedy(level[top], top ? level[top].documents() : k, classes, space);
    for (Index at = top; at >= 0; --at) {
        Index looks = Index(1) << 62;
        Sweep(level[at], at ? level[at].documents() : k, classes, space).improve(-1, looks);
        if (at) refine(level[at], level[at - 1], classes, space.next);
    }
    return true;
}

// The residual sweep, for any gains. Returns the number of positions in `classes`, after which documents follow by score; -1 if
// out of memory.
//
// This is the cut-off, or the position after which the order by score is optimal anyway. Often the greedy ranking is already
// optimal, O(n L), or becomes so by a sweep of a few positions. If that takes too many visits, as with many ranks before a
// cut-off, it starts from the solution of a coarser problem. In practice O(n + k L^2), at worst O(n^2 L^2).
inline Index by_sweep(const Assignment& problem, Span<int> classes, SweepSpace& space) {
    const Index n = problem.documents(), k = first_by_score(problem, space.next), ranks = least(k + 1, n);
    bool best = greedy(problem, ranks, classes, space);
    if (best && ranks < n) {  // the leading documents by score are inside the last boundary, as all later ones prefer
        for (const int g : problem.group.first(ranks)) --space.next[g];
        for (Index g = 0; g < problem.classes(); ++g) best &= space.next[g] == problem.starts[g];
    }
    if (best) return ranks;
    if (!space.reserve(k, problem.classes())) return -1;
    Sweep sweep(problem, k, classes, space);
    Index looks = n + 4 * k;  // about the cost of the other start
    if (k <= COARSEST || problem.fall_of_a(k - 1) < 0.01 * problem.a[0]) {
        if (sweep.improve(k - 1, looks)) return k;
        greedy(problem, k, classes, space);
    }
    return (k <= 8 * COARSEST && sweep.improve(-1, looks)) || by_levels(problem, k, classes, space) ? k : -1;
}

constexpr Index PRICES_TOGETHER = 32;  // neighbours processed together

struct PriceSpace {
    Room each;
    Span<double> c = each, a = each, score = each, gain = each, price = each, cost = each;
    Span<double> left = each, distance = each, worth = each;
    Span<int> place = each, holder = each, previous = each, known = each;
};

// Prices of positions, for which each document wants the position with the lowest cost.
class Prices {
  public:
    Prices(Index n, PriceSpace& space) : n(n), space(space) {}

    // Compute the prices from each boundary's best set considered alone; documents are by descending score.
    void begin() {
        // Scores, gains and values in the order of the last boundary, which is nearly the order of the next.
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

    // Give each document a position of lowest cost, if one is free, and the rest one by augmenting paths.
    void assign() {
        space.place.first(n).fill(-1);
        space.holder.first(n).fill(-1);
        for (Index q = 0; q < n; ++q) {
            const double lowest = set_costs(q);
            Index j = find(lowest, 0);
            while (j < n && space.holder[j] >= 0) j = find(lowest, j + 1);
            if (j >= n) continue;
            space.holder[j] = int(q);
            space.place[q] = int(j);
        }
        for (Index q = 0; q < n; ++q)
            if (space.place[q] < 0) augment(int(q));
    }

  private:
    static constexpr double far = 1e300;  // effectively infinite compared with costs of at most n

    const Index n;
    PriceSpace& space;

    static void insert(Index q, double* worth, double* s, double* b) {
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

    // The first position from j on with exactly this cost; n if there is none.
    Index find(double value, Index j) const {
        const double* cost = space.cost.data;
        for (; j + PRICES_TOGETHER <= n; j += PRICES_TOGETHER) {
            Index found = 0;
            for (Index l = 0; l < PRICES_TOGETHER; ++l) found |= Index(cost[j + l] == value);
            if (found) break;
        }
        while (j < n && cost[j] != value) ++j;
        return j;
    }

    double lowest_cost() const {
        const auto cost = [its = space.cost.data](Index j) { return its[j]; };
        return fold<PRICES_TOGETHER>(n, far, [](double a, double b) { return least(a, b); }, cost);
    }

    // Compute the cost of each position for a document; returns the lowest.
    double set_costs(Index document) const {
        const double s = space.score[document], b = space.gain[document];
        const double *c = space.c.data, *a = space.a.data, *price = space.price.data;
        double* __restrict__ cost = space.cost.data;
        for (Index j = 0; j < n; ++j) cost[j] = b * a[j] - s * c[j] + price[j];
        return lowest_cost();
    }

    // Lower the costs to those of the path through a document that holds a position, where shorter; returns the lowest.
    double relax(int by, double shift) const {
        const double s = space.score[by], b = space.gain[by];
        const double *c = space.c.data, *a = space.a.data, *price = space.left.data;
        double* __restrict__ cost = space.cost.data;
        int* __restrict__ previous = space.previous.data;
        for (Index j = 0, end = n; j < end; ++j) {
            const double way = b * a[j] - s * c[j] + price[j] - shift, known = cost[j];
            previous[j] = way < known ? by : previous[j];
            cost[j] = least(known, way);
        }
        return lowest_cost();
    }

    // Give a position to a document without one along a shortest augmenting path, and update the prices.
    //
    // Source: Jonker and Volgenant, "A shortest augmenting path algorithm for dense and sparse linear assignment problems",
    // Computing, 1987.
    void augment(int document) {
        const Span<int> previous = space.previous, holder = space.holder;
        for (Index j = 0; j < n; ++j) {
            previous[j] = document;
            space.left[j] = space.price[j];  // `far` for positions whose shortest path is known
        }
        Index count = 0;
        int j;
        double lowest = set_costs(document);
        while (holder[j = int(find(lowest, 0))] >= 0) {
            space.known[count] = j;
            space.distance[count++] = lowest;
            space.cost[j] = space.left[j] = far;
            const int by = holder[j];
            lowest = relax(by, space.gain[by] * space.a[j] - space.score[by] * space.c[j] + space.price[j] - lowest);
        }
        for (Index i = 0; i < count; ++i) space.price[space.known[i]] += lowest - space.distance[i];
        for (int by = int(n); by != document;) {
            by = previous[j];
            holder[j] = by;
            std::swap(j, space.place[by]);
        }
    }
};

// Any gains: prices from thresholds, then shortest augmenting paths. Computes all of `classes`. O(n^2) if the best sets of the
// boundaries are nested, at worst O(n^3); O(n) memory.
inline void by_prices(const Assignment& problem, Span<int> classes, PriceSpace& space) {
    const Index n = problem.documents(), last = n - 1;
    const Span<const int> group = problem.group;
    const Span<int> next = space.known;
    for (Index g = 0; g < problem.classes(); ++g) next[g] = problem.starts[g];
    for (Index q = 0; q < n; ++q) space.score[q] = problem.score[next[group[q]]++];
    const double fall_c = problem.range_of_c(), fall_a = problem.range_of_a();
    const double bound = most(fall_c * most(fabs(space.score[0]), fabs(space.score[last])), fall_a * problem.gain[0]);
    const bool none = !(bound > 1e-280 && bound < INFINITE);  // no choice
    // Relative to the last rank and to the largest, so that no sum overflows.
    for (Index q = 0; q < n; ++q) {
        space.c[q] = fall_c > 0.0 ? (problem.c[q] - problem.c[last]) / fall_c : 0.0;
        space.a[q] = fall_a > 0.0 ? (problem.a_at(q) - problem.a_at(last)) / fall_a : 0.0;
        space.score[q] *= fall_c / bound;
        space.gain[q] = problem.gain[group[q]] * (fall_a / bound);
        space.place[q] = int(q);
    }
    if (!none) {
        Prices prices(n, space);
        prices.begin();
        prices.assign();
    }
    for (Index q = 0; q < n; ++q) classes[space.place[q]] = group[q];
}

}  // namespace rankstruct
