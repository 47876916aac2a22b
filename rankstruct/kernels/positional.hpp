// Most violated rankings under the positional map (DORM, ORM),
//
//     maximise over rankings   sum_i ( c_i s_{r(i)} - a_i b_{r(i)} )
//
// with the decay c of the map, the discount a and the gains b of the measure, c and a never increasing. Labels are the gains
// here, and documents of one gain, a class, stay in score order. Numbers of documents are ranks of the list as it comes, by
// descending score; positions are ranks of the most violated ranking, or of the reference.
#pragma once

#include "assignment.hpp"
#include "binary.hpp"
#include "grades.hpp"
#include "sums.hpp"

namespace rankstruct {

enum Reference : int { IDEAL, IDEAL_TIED, PREDICTED };
enum RankMethod : int { NOTHING, PROPORTIONAL, LATTICE, SWEEP, PRICES, RECIPROCAL };

// Nanoseconds, of one thread of a 2-core x86 virtual machine, lists of 10 to 3000 documents, decay i^-0.5, cut-offs 1, 10, 50 and
// none. The sweep of L gains, 3 to 64, took 4 a document and 40 + 1.4 L^2 a rank before the cut-off; beyond 32 it may need its
// other start, which takes 10 times as long. The prices took 1.4 a pair of documents, 4 to 17 with a cut-off; and of some ten
// documents, which are the front of most lists with a cut-off of 10, 1000 less than the sweep. Of two gains, eight discounts and
// scores drawn or learnt, the lattice took 0.3 to 1.2 of the sweep's time for 100 and 1000 documents, and for 10,000 0.1 to 0.4
// with cut-offs to 50, 0.6 to 4.6 without.
constexpr Index LATTICE_RANKS = 1000;
constexpr double SWEEP_LIST = 800.0, SWEEP_DOCUMENT = 4.0, SWEEP_RANK = 40.0, SWEEP_EXCHANGE = 1.4, PRICED_PAIR = 4.2;
constexpr Index SWEPT_CLASSES = 32, SWEPT_NUMBERS = 1 << 21;  // at most L, and with a cut-off k L^2, which the sweep keeps
constexpr Index MOST_SWEPT = 1448;                            // classes, whose square is SWEPT_NUMBERS
constexpr Index FEW_CLASSES = 16;                             // no fewer are looked for

// The cheapest exact method: for a front of n documents of so many distinct gains, discount 0 behind rank k, decay proportional
// to the discount or not.
KERNEL inline RankMethod choose_method(Index n, Index classes, Index k, bool proportional) {
    if (proportional) return PROPORTIONAL;
    if (classes == 2 && k <= LATTICE_RANKS) return LATTICE;
    if (k >= n) return classes <= SWEPT_CLASSES ? SWEEP : PRICES;
    const double squared = double(classes) * double(classes);
    const double sweep = SWEEP_LIST + SWEEP_DOCUMENT * double(n) + (SWEEP_RANK + SWEEP_EXCHANGE * squared) * double(k);
    return squared * double(k) <= double(SWEPT_NUMBERS) && sweep <= PRICED_PAIR * double(n) * double(n) ? SWEEP : PRICES;
}

// The assignment problem of the first documents by score, the front, which alone compete for the positions before the cut-off;
// all behind keep their ranks.
struct Front {
    Span<Index> group;  // the class of each document
    Span<double> gain;  // of each class
    Index cut;

    KERNEL Index size() const { return group.size; }
    KERNEL Index classes() const { return gain.size; }
};

// The kernel. Against the reference ranking (DORM, equations 20 to 22) it fills in c at the position of each document in the most
// violated ranking, less c at that in the reference.
struct Positional {
    static constexpr double widest = 1e301;  // no sum of as many scores as there are ranks overflows

    Span<const double> decay, weights;  // [longest list], c and a
    Index cutoff;                       // the number of ranks with a discount above 0
    Index least_cutoff;  // 0; or the cut-off of each list is the first rank at which the ideal ranking gains less than at its
                         // first, but this number at least (mWTA)
    bool normalized;     // whether a list's measure is divided by its best value
    bool reciprocal;     // whether the measure is reciprocal rank: the discount of the first rank with a gain above 0, not a sum
    int reference;

    struct Space {
        GradeSpace grades;
        Span<int> position, reference;  // of each document
        Span<int> order, block, pointer, given;
        Span<double> gained;  // at each position
        Span<double> chosen;
        // Of the front.
        Span<Index> group, starts, members, next, classes, places;
        Span<double> gain, class_score, discount, margin, edges;
        LatticeSpace lattice;
        SweepSpace sweep;
        PriceSpace prices;
        // Of reciprocal rank.
        BinarySpace binary;
        Span<double> before;

        KERNEL Space(Arena& arena, const Positional& kernel, const Batch& batch, Index longest)
            : Space(arena, batch, longest, kernel.reciprocal ? 0 : longest, kernel.reciprocal ? longest : 0, kernel.cutoff) {}

      private:
        KERNEL Space(Arena& arena, const Batch& batch, Index longest, Index assigned, Index reciprocal, Index cutoff)
            : grades(arena, longest),
              position(arena.take<int>(longest)),
              reference(arena.take<int>(longest)),
              order(arena.take<int>(longest)),
              block(arena.take<int>(longest)),
              pointer(arena.take<int>(longest)),
              given(arena.take<int>(longest)),
              gained(arena.take<double>(longest)),
              chosen(arena.take<double>(batch.chosen ? longest : 0)),
              group(arena.take<Index>(assigned)),
              starts(arena.take<Index>(assigned + 1)),
              members(arena.take<Index>(assigned)),
              next(arena.take<Index>(assigned)),
              classes(arena.take<Index>(assigned)),
              places(arena.take<Index>(assigned)),
              gain(arena.take<double>(assigned)),
              class_score(arena.take<double>(assigned)),
              discount(arena.take<double>(assigned)),
              margin(arena.take<double>(assigned)),
              edges(arena.take<double>(2 * assigned)),
              lattice(arena, assigned),
              sweep(arena, assigned, least(assigned, MOST_SWEPT), least(assigned, cutoff)),
              prices(arena, assigned),
              binary(arena, reciprocal),
              before(arena.take<double>(reciprocal + 1)) {}
    };

    KERNEL Index solve(List& list, Space& space) const {
        const Grades grades = number_grades(list.label, space.grades);
        if (grades.value[grades.count() - 1] < 0.0) return last_negative(list);
        if (grades.count() == 1) return -1;
        const Index n = list.size;
        const Index its_own = least_cutoff ? most(Index(grades.starts[1]) + 1, least_cutoff) : n;
        const Index cut = least(least(cutoff, n), its_own);
        for (Index g = 0; g < grades.count() && grades.starts[g] < cut; ++g)
            space.gained.slice(grades.starts[g], least(Index(grades.starts[g + 1]), cut)).fill(grades.value[g]);
        const double best = discounted(space, cut);
        // No ranking can be wrong.
        if (best <= 0.0 || weights[0] == (cut == n ? weights[n - 1] : 0.0)) return -1;

        if (reciprocal) {
            const Index nearest = rank_reciprocal(list, space);
            list.task_loss = 1.0 - (nearest < cut ? weights[nearest] : 0.0);
        } else {
            const Index front = rank(list, grades, cut, normalized ? best : 1.0, space);
            for (Index q = 0; q < front; ++q) space.gained[space.position[q]] = list.label[q];
            const double found = discounted(space, cut);
            list.task_loss = most(normalized ? 1.0 - found / best : best - found, 0.0);
        }
        rank_reference(list, grades, cut, space);
        for (Index q = 0; q < n; ++q) list.coefficient[q] = decay[space.position[q]] - decay[space.reference[q]];
        list.value = most(list.task_loss + dot(list.coefficient, list.score), 0.0);
        if (reference != IDEAL && any_tied(list.score)) {
            partition(grades.number, grades.starts, space.order.first(n), space.pointer);
            for (Index g = 0; g < grades.count(); ++g)
                share_among_tied(list, space.order.slice(grades.starts[g], grades.starts[g + 1]));
        }
        return -1;
    }

  private:
    // As the lists were given.
    KERNEL static Index last_negative(const List& list) {
        Index found = -1;
        for (Index q = 0; q < list.size; ++q)
            if (list.label[q] < 0.0 && (found < 0 || list.place[q] > list.place[found])) found = q;
        return found;
    }

    // The gains at each position, discounted.
    KERNEL double discounted(const Space& space, Index cut) const {
        return dot(weights.first(cut), space.gained.first(cut));
    }

    // Fill in the positions of the most violated ranking; returns how many first documents by score have the first positions, all
    // others their own.
    KERNEL Index rank(const List& list, const Grades& grades, Index cut, double scale, Space& space) const {
        const Index n = list.size;
        if (is_proportional(n, cut)) {
            rank_proportional(list, scale, space);
            return n;
        }
        const Front front = begin_front(grades, cut, scale, space);
        assign(list, grades, front, space);
        for (Index q = front.size(); q < n; ++q) space.position[q] = int(q);
        return front.size();
    }

    KERNEL bool is_proportional(Index n, Index cut) const {
        if (!(decay[0] > 0.0 && (cut == n || decay[n - 1] == 0.0))) return false;
        for (Index i = 0; i < n; ++i)
            if (decay[i] * weights[0] != (i < cut ? weights[i] * decay[0] : 0.0)) return false;
        return true;
    }

    // Decay proportional to the discount: sort by s - b a / c.
    KERNEL void rank_proportional(const List& list, double scale, Space& space) const {
        const Index n = list.size;
        const Span<double> value = space.class_score.first(n);
        const double ratio = weights[0] / decay[0];
        for (Index q = 0; q < n; ++q) value[q] = list.score[q] - list.label[q] / scale * ratio;
        const Span<int> order = sort_descending<double>(value, space.grades.sort);
        for (Index i = 0; i < n; ++i) space.position[order[i]] = int(i);
    }

    // The documents that are chosen from for the first `cut` positions, and their classes.
    //
    // A document is not wanted before the cut-off that has as many documents as there are positions with no lower score and no
    // higher gain: one of them is behind, where gains count nothing, and could change places with it.
    KERNEL static Front begin_front(const Grades& grades, Index cut, double scale, Space& space) {
        const Index n = grades.number.size;
        Index size = n, classes = grades.count();
        const bool merged = cut < n && classes > FEW_CLASSES;
        if (cut < n && !merged) {
            Index lowest = 0;  // documents of the lowest gain
            for (size = 0; size < n && lowest < cut; ++size) lowest += grades.number[size] == classes - 1;
        }
        for (Index q = 0; q < size; ++q) space.group[q] = grades.number[q];
        for (Index g = 0; g < classes; ++g) space.gain[g] = grades.value[g] / scale;
        if (merged) size = merge_classes(cut, space.group.first(n), space.gain.first(classes), classes, space);
        return {space.group.first(size), space.gain.first(classes), cut};
    }

    // Give those documents that are not wanted, but stand among others that are, the highest gain: with a higher one they are not
    // wanted either. Changes all that is given; returns how many documents are the front.
    KERNEL static Index merge_classes(Index cut, Span<Index> group, Span<double> gain, Index& classes, Space& space) {
        const Span<Index> number = space.next.first(classes), largest = space.members.first(cut);  // the latter descending
        number.fill(-1);
        number[0] = 0;
        Index count = 0, size = 0;  // of the largest classes so far, and of the front
        for (Index q = 0; q < group.size; ++q) {
            const Index its = group[q];
            if (count == cut && its <= largest[cut - 1]) {
                group[q] = 0;
                continue;
            }
            number[its] = 0;
            size = q + 1;
            count = least(count + 1, cut);
            Index at = count - 1;
            for (; at > 0 && largest[at - 1] < its; --at) largest[at] = largest[at - 1];
            largest[at] = its;
        }
        Index left = 0;
        for (Index g = 0; g < classes; ++g) {
            if (number[g] < 0) continue;
            number[g] = left;
            gain[left++] = gain[g];
        }
        classes = left;
        for (Index q = 0; q < size; ++q) group[q] = number[group[q]];
        return size;
    }

    // Fill in the positions of the front.
    KERNEL void assign(const List& list, const Grades& grades, const Front& front, Space& space) const {
        const Index n = front.size(), count = front.classes(), cut = front.cut;
        const Span<Index> starts = space.starts.first(count + 1), next = space.next.first(count);
        const Span<Index> members = space.members.first(n), classes = space.classes.first(n), places = space.places.first(n);
        if (cut == grades.number.size) {
            for (Index g = 0; g <= count; ++g) starts[g] = grades.starts[g];
        } else {
            starts.fill(0);
            for (const Index its : front.group) ++starts[its + 1];
            for (Index g = 0; g < count; ++g) starts[g + 1] += starts[g];
        }
        for (Index g = 0; g < count; ++g) next[g] = starts[g];
        for (Index q = 0; q < n; ++q) members[next[front.group[q]]++] = q;
        const Span<double> class_score = space.class_score.first(n), discount = space.discount.first(n);
        for (Index i = 0; i < n; ++i) class_score[i] = list.score[members[i]];
        for (Index i = 0; i < n; ++i) discount[i] = i < cut ? weights[i] : 0.0;
        const Span<const double> c = decay.first(n), score = list.score.first(n);

        const RankMethod method = choose_method(n, count, cut, false);
        Solved solved = NO_MEMORY;
        if (method == LATTICE) {
            solved = by_lattice(class_score, starts, front.group, score, front.gain, c, discount, cut, classes, space.margin,
                                places, space.lattice);
        } else if (method == SWEEP) {
            solved = by_sweep(class_score, starts, front.group, front.gain, c, discount, cut, 3 * n, classes, places,
                              space.sweep);
        } else if (cut == n) {
            if (greedy(classes, n, class_score, starts, front.gain, c, discount, next, space.margin, places, space.edges))
                solved = {n, true};
        }
        if (!solved.done()) {
            by_prices(score, front.group, front.gain, c, discount, classes, space.prices);
            solved = {n, false};
        }
        if (solved.known) {
            for (Index i = 0; i < n; ++i) space.position[members[i]] = int(places[i]);
        } else {
            rank_classes(classes.first(solved.from), starts, members, next, space.position.first(n));
        }
    }

    // Fill in positions from the class at each of the first ones, documents of a class in score order; others follow by score.
    KERNEL static void rank_classes(Span<const Index> classes, Span<const Index> starts, Span<const Index> members,
                                    Span<Index> next, Span<int> position) {
        position.fill(-1);
        for (Index g = 0; g < next.size; ++g) next[g] = starts[g];
        for (Index i = 0; i < classes.size; ++i) position[members[next[classes[i]]++]] = int(i);
        fill_open(position, int(classes.size));
    }

    // Give the documents without a position, -1, those from `behind` on.
    KERNEL static void fill_open(Span<int> position, int behind) {
        for (int& its : position) {
            const bool open = its < 0;
            its = open ? behind : its;
            behind += open;
        }
    }

    // Reciprocal rank, one relevant document or several: r irrelevant ones, the highest relevant one, then the rest by score.
    //
    // Tried for every r < k from the irrelevant ones above that relevant one on (with fewer, it would stand higher than its score
    // says, and earn more), and, if there are k of them, the k highest first and then all others by score, which earns nothing.
    // But for what the relevant one earns, more of them are worth less: where even without it nothing better is left, that is
    // all. At worst O(n + min(k, m) (relevant ones above the r-th irrelevant one)). Fills in positions; returns the first of a
    // relevant document, which in any most violated ranking is that of the highest by score.
    KERNEL Index rank_reciprocal(const List& list, Space& space) const {
        const Index n = list.size, k = cutoff;
        const Span<const double> label = list.label;
        const BinaryList split = space.binary.split(list.score, [&](int q) { return label[q] > 0.0; }, [](Index i) { return i; });
        const Span<double> before = space.before;  // what the documents above each add, all at their ranks by score
        before[0] = 0.0;
        for (Index q = 0; q < n; ++q) before[q + 1] = before[q] + decay[q] * list.score[q];
        const Index lead = split.relevant[0], first = least(lead, k);
        double best = -INFINITE, above = before[first];  // the latter: the r highest irrelevant ones at the first positions
        Index best_r = first, v = 0;                     // v relevant ones score above irrelevant r - 1
        for (Index r = first; r <= least(split.m(), k); ++r) {
            if (r > first) above += decay[r - 1] * split.irrelevant_score[r - 1];
            while (r && v < split.p() && split.relevant[v] < split.irrelevant[r - 1]) ++v;
            const Index last = r > lead || r == k ? split.irrelevant[r - 1] : lead;
            const Index moved = r < k ? most(v, Index(1)) : v;  // relevant ones behind those
            double found = above + before[n] - before[last + 1];
            found += dot(decay.slice(r, r + moved), split.relevant_score.first(moved));
            if (found <= best) break;
            found -= r < k ? 1.0 / double(1 + r) : 0.0;
            if (found > best) {
                best = found;
                best_r = r;
            }
        }
        const Span<int> position = space.position.first(n);
        position.fill(-1);
        for (Index i = 0; i < best_r; ++i) position[split.irrelevant[i]] = int(i);
        int behind = int(best_r);
        if (best_r < k) position[lead] = behind++;
        fill_open(position, behind);
        return position[lead];
    }

    // Fill in where each document stands in the reference ranking.
    KERNEL void rank_reference(const List& list, const Grades& grades, Index cut, Space& space) const {
        const Span<int> rank = space.reference.first(list.size);
        if (reference == IDEAL) {
            rank_by_gain(grades, in_given_order(list, space), space, rank);
            return;
        }
        const Span<int> order = space.order.first(list.size);
        fill_chosen(list, space, order);
        if (reference == PREDICTED) {
            rank_predicted(list, grades, order, space, rank);
        } else if (reciprocal) {
            // The highest-scored relevant document, then all others by score.
            Index lead = 0;
            while (grades.number[order[lead]] > 0) ++lead;
            for (Index i = 0; i < order.size; ++i) rank[order[i]] = int(i + (i < lead));
            rank[order[lead]] = 0;
        } else if (cut == list.size && always_falls(weights.first(cut))) {
            rank_by_gain(grades, order, space, rank);
        } else {
            rank_tied(grades, cut, order, space, rank);
        }
    }

    KERNEL static bool always_falls(Span<const double> discount) {
        bool falls = true;
        for (Index i = 1; i < discount.size; ++i) falls &= discount[i] < discount[i - 1];
        return falls;
    }

    // By gain, documents of one gain as in `order`.
    KERNEL static void rank_by_gain(const Grades& grades, Span<const int> order, Space& space, Span<int> rank) {
        const Span<int> next = space.pointer;
        for (Index g = 0; g < grades.count(); ++g) next[g] = grades.starts[g];
        for (const int q : order) rank[q] = next[grades.number[q]]++;
    }

    // The documents as they were given.
    KERNEL static Span<int> in_given_order(const List& list, Space& space) {
        int size = 0;
        for (const int place : list.place) size = most(size, place + 1);
        const Span<int> order = space.given.first(size);
        if (size > list.size) order.fill(-1);  // padding
        for (Index q = 0; q < list.size; ++q) order[list.place[q]] = int(q);
        if (size == list.size) return order;
        Index count = 0;
        for (const int q : order) {
            order[count] = q;
            count += q >= 0;
        }
        return order.first(count);
    }

    // Fill in the documents by the scores that choose, those of equal ones as they were given.
    KERNEL static void fill_chosen(const List& list, Space& space, Span<int> order) {
        if (list.chosen.size) {
            const Span<int> given = in_given_order(list, space);
            const Span<double> chosen = space.chosen.first(list.size);
            for (Index i = 0; i < chosen.size; ++i) chosen[i] = list.chosen[given[i]];
            const Span<int> sorted = sort_descending<double>(chosen, space.grades.sort);
            for (Index i = 0; i < order.size; ++i) order[i] = given[sorted[i]];
        } else {
            for (Index i = 0; i < order.size; ++i) order[i] = int(i);
        }
    }

    // As in `order`, and where the scores that choose are equal by gain.
    KERNEL static void rank_predicted(const List& list, const Grades& grades, Span<const int> order, Space& space,
                                      Span<int> rank) {
        rank_by_gain(grades, in_given_order(list, space), space, rank);
        const Span<int> by_gain = space.given.first(order.size), begin = space.block, next = space.pointer;
        for (Index q = 0; q < order.size; ++q) by_gain[rank[q]] = int(q);
        const Span<const double> key = list.chosen.size ? list.chosen : list.score;
        int its_begin = 0;
        for (Index i = 0; i < order.size; ++i) {
            if (i && key[order[i]] != key[order[i - 1]]) its_begin = int(i);
            begin[order[i]] = its_begin;
            next[i] = int(i);
        }
        for (const int q : by_gain) rank[q] = next[begin[q]]++;
    }

    // By gain, documents of one gain as in `order`, and those at positions of equal discount as in `order` alone. O(n).
    KERNEL void rank_tied(const Grades& grades, Index cut, Span<const int> order, Space& space, Span<int> rank) const {
        const Span<int> next = space.pointer, block = space.block, free = space.given;
        for (Index g = 0; g < grades.count(); ++g) next[g] = grades.starts[g];
        for (Index i = 0; i < cut; ++i) block[i] = i && weights[i] == weights[i - 1] ? block[i - 1] : int(i);
        for (Index i = 0; i < cut; ++i) free[i] = int(i);
        int behind = int(cut);
        for (const int q : order) {
            const int by_gain = next[grades.number[q]]++;
            rank[q] = by_gain < cut ? free[block[by_gain]]++ : behind++;
        }
    }
};

}  // namespace rankstruct
