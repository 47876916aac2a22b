// Most violated rankings under the positional map (DORM, ORM),
//
//     maximise over rankings   sum_i ( c_i s_{r(i)} - a_i b_{r(i)} )
//
// with the decay c of the map, the discount a and the gains b of the measure; c and a never increase. Labels are the gains here,
// multiplied by the item discounts, and documents with the same gain, a class, stay in score order. Documents are numbered by rank in the list, by descending
// score; positions are ranks of the most violated ranking, or of the reference.
#pragma once

#include "assignment.hpp"
#include "binary.hpp"
#include "grades.hpp"
#include "sums.hpp"

namespace rankstruct {

enum RankMethod : int { NOTHING, PROPORTIONAL, SWEEP, PRICES, RECIPROCAL };  // in the order of `oracles.positional._METHODS`

// Nanoseconds of one thread of a 2-core x86 virtual machine, for lists of 10 to 3000 documents, decay i^-0.5, and cut-offs 1, 10,
// 50 and none. The sweep with L gains, 2 to 64, takes 4 per document and 30 + L^2 per rank before the cut-off; above 32 it may
// need its other start, which takes 10 times as long. Prices take 1.4 per pair of documents, 4 to 17 with a cut-off.
constexpr double SWEEP_DOCUMENT = 4.0, SWEEP_RANK = 30.0, SWEEP_EXCHANGE = 1.0, PRICED_PAIR = 4.2;
constexpr Index SWEPT_CLASSES = 32, SWEPT_NUMBERS = 1 << 21;  // limits of L, and with a cut-off of k L^2
constexpr Index MOST_SWEPT = 1448;                            // classes; the square root of SWEPT_NUMBERS
constexpr Index FEW_CLASSES = 16;                             // lists with at most this many classes are not reduced

// The cheapest exact method for `n` leading documents with `classes` distinct gains, discount 0 after rank k, and the decay
// proportional to the discount or not.
inline RankMethod choose_method(Index n, Index classes, Index k, bool proportional) {
    if (proportional) return PROPORTIONAL;
    if (k >= n) return classes <= SWEPT_CLASSES ? SWEEP : PRICES;
    const double squared = double(classes) * double(classes);
    const double sweep = SWEEP_DOCUMENT * double(n) + (SWEEP_RANK + SWEEP_EXCHANGE * squared) * double(k);
    return squared * double(k) <= double(SWEPT_NUMBERS) && sweep <= PRICED_PAIR * double(n) * double(n) ? SWEEP : PRICES;
}

// The kernel. The coefficient of a document is c at its position in the most violated ranking, minus c at its position in the
// reference (DORM, equations 20 to 22).
struct Positional : ByRank {
    static constexpr double widest = 1e301;  // no sum of scores over all ranks overflows

    struct Space : Scratch<Positional> {
        // For the assignment problem, and for reciprocal rank.
        Room assigned = each.when(!kernel.reciprocal), found = each.when(kernel.reciprocal);
        GradeSpace grades{each};
        SweepSpace sweep{assigned, each(least(assigned.count, MOST_SWEPT))};
        PriceSpace prices{assigned};
        BinarySpace binary{found};
        Span<int> position = each, reference = each, order = each, block = each, pointer = each, given = each;
        Span<double> gained = each;  // by position
        Room more = each(assigned.count + 1);
        Span<int> group = more, starts = more, next = more, classes = more;
        Span<double> gain = more, class_score = more, before = each(found.count + 1);
        Span<double> weighted = each.when(batch.item_weights);  // the gains times the item weights
    };

    void solve(List& list, Space& space) const {
        if (list.weight.size) {
            for (Index q = 0; q < list.size; ++q) space.weighted[q] = list.label[q] * list.weight[q];
            list.label = space.weighted.first(list.size);
        }
        const Grades grades = number_grades(list.label, space.grades);
        if (grades.count() == 1) return;
        const Index n = list.size;
        const Index its_own = least_cutoff ? most(Index(grades.starts[1]) + 1, least_cutoff) : n;
        const Index cut = least(least(cutoff, n), its_own);
        for (Index g = 0; g < grades.count() && grades.starts[g] < cut; ++g)
            space.gained.slice(grades.starts[g], least(Index(grades.starts[g + 1]), cut)).fill(grades.value[g]);
        const double best = discounted(space, cut);
        // No ranking can be wrong.
        if (best <= 0.0 || discounts[0] == (cut == n ? discounts[n - 1] : 0.0)) return;

        Index moved = n;  // leading documents; all others keep their ranks in both rankings
        if (reciprocal) {
            list.task_loss = 1.0 - discounts[rank_reciprocal(list, space)];
        } else {
            moved = rank(list, grades, cut, normalized ? best : 1.0, space);
            for (Index q = 0; q < moved; ++q) space.gained[space.position[q]] = list.label[q];
            const double found = discounted(space, cut);
            list.task_loss = most(normalized ? 1.0 - found / best : best - found, 0.0);
        }
        moved = most(moved, rank_reference(list, grades, cut, space));
        while (moved < n && list.score[moved] == list.score[moved - 1]) ++moved;
        const Span<double> coefficient = list.coefficient.first(moved);
        for (Index q = 0; q < moved; ++q) coefficient[q] = decay[space.position[q]] - decay[space.reference[q]];
        list.value = most(list.task_loss + dot(coefficient, list.score), 0.0);
        if (reference != IDEAL && any_tied(list.score.first(moved))) {
            partition(grades.number.first(moved), grades.starts, space.order, space.pointer);
            for (Index g = 0; g < grades.count(); ++g) share_among_tied(list, space.order.slice(grades.starts[g], space.pointer[g]));
        }
    }

  private:
    // The discounted gains by position.
    double discounted(const Space& space, Index cut) const {
        return dot(discounts.first(cut), space.gained.first(cut));
    }

    // Compute the positions of the most violated ranking; returns how many leading documents by score take the first positions.
    // All others keep their own.
    Index rank(const List& list, const Grades& grades, Index cut, double scale, Space& space) const {
        const bool proportional = is_proportional(list.size, cut);
        const Index front = proportional ? rank_proportional(list, grades, cut, scale, space) : assign(list, grades, cut, scale, space);
        for (Index q = front; q < list.size; ++q) space.position[q] = int(q);
        return front;
    }

    bool is_proportional(Index n, Index cut) const {
        if (!(decay[0] > 0.0 && (cut == n || decay[n - 1] == 0.0))) return false;
        for (Index i = 0; i < n; ++i)
            if (decay[i] * discounts[0] != (i < cut ? discounts[i] * decay[0] : 0.0)) return false;
        return true;
    }

    // Decay proportional to the discount: sort by s - b a / c, with a cut-off only the documents that compete for the ranks before
    // it.
    Index rank_proportional(const List& list, const Grades& grades, Index cut, double scale, Space& space) const {
        const Index n = cut < list.size ? front_of(grades, cut) : list.size;
        const Span<double> value = space.class_score.first(n);
        const double ratio = discounts[0] / decay[0];
        for (Index q = 0; q < n; ++q) value[q] = list.score[q] - list.label[q] / scale * ratio;
        const Span<int> order = sort_descending<double>(value, space.grades.sort);
        for (Index i = 0; i < n; ++i) space.position[order[i]] = int(i);
        return n;
    }

    // Solve the assignment problem for the front, the leading documents by score that compete for the first `cut` positions;
    // computes their positions and returns their number.
    Index assign(const List& list, const Grades& grades, Index cut, double scale, Space& space) const {
        Index n = list.size, count = grades.count();
        // Discounts too small to change a sum that contains the first one are treated as 0.
        for (Index step = cut; step && discounts[cut - 1] < 1e-25 * discounts[0]; step /= 2)
            while (cut > step && discounts[cut - step - 1] < 1e-25 * discounts[0]) cut -= step;
        Span<int> group = grades.number, starts = grades.starts;
        for (Index g = 0; g < count; ++g) space.gain[g] = grades.value[g] / scale;
        const bool merged = cut < n && count > FEW_CLASSES;
        if (merged) {
            n = merge_classes(grades, cut, count, space);
            group = space.group;
        } else if (cut < n) {
            n = front_of(grades, cut);
        }
        if (merged || n < list.size) {
            group = group.first(n);
            starts = space.starts.first(count + 1);
            starts.fill(0);
            for (const int its : group) ++starts[its + 1];
            for (Index g = 0; g < count; ++g) starts[g + 1] += starts[g];
        }
        const Span<int> members = space.order.first(n), classes = space.classes.first(n), position = space.position.first(n);
        partition(group, starts, members, space.next);
        const Span<const double> score = gather<double>(members, [&](Index q) { return list.score[q]; }, space.class_score);
        const Assignment problem{score, starts, group, space.gain.first(count), decay.first(n), discounts.first(n), cut};
        Index from = -1;
        if (choose_method(n, count, cut, false) == SWEEP) from = by_sweep(problem, classes, space.sweep);
        if (from < 0) {
            by_prices(problem, classes, space.prices);
            from = n;
        }
        // Documents of a class in score order; after the assigned positions, all follow by score.
        if (from < n) position.fill(-1);
        for (Index g = 0; g < count; ++g) space.next[g] = starts[g];
        for (Index i = 0; i < from; ++i) position[members[space.next[classes[i]]++]] = int(i);
        if (from < n) fill_open(position, int(from));
        return n;
    }

    // How many leading documents compete for the first `cut` positions.
    //
    // A document is not needed before the cut-off if there are as many documents as positions with no lower score and no higher
    // gain: one of them is after the cut-off, where gains do not count, and the two could be swapped.
    static Index front_of(const Grades& grades, Index cut) {
        Index size = 0, lowest = 0;  // documents with the lowest gain
        for (; size < grades.number.size && lowest < cut; ++size) lowest += grades.number[size] == grades.count() - 1;
        return size;
    }

    // The same for many classes: unneeded documents among needed ones get the highest gain, with which they are not needed
    // either. Computes group and gain, and changes the number of classes.
    static Index merge_classes(const Grades& grades, Index cut, Index& classes, Space& space) {
        const Span<int> group = space.group, number = space.next.first(classes), largest = space.order.first(cut);  // descending
        number.fill(-1);
        number[0] = 0;
        Index count = 0, size = 0;  // documents of the largest classes so far, and of the front
        for (Index q = 0; q < grades.number.size; ++q) {
            const int its = group[q] = grades.number[q];
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
        int left = 0;
        for (Index g = 0; g < classes; ++g) {
            if (number[g] < 0) continue;
            number[g] = left;
            space.gain[left++] = space.gain[g];
        }
        classes = left;
        for (int& its : group.first(size)) its = number[its];
        return size;
    }

    // Assign the positions from `begin` on to the documents without one, -1.
    static void fill_open(Span<int> position, int behind) {
        for (int& its : position) {
            const bool open = its < 0;
            its = open ? behind : its;
            behind += open;
        }
    }

    // Reciprocal rank, with one or several relevant documents: r irrelevant ones, the highest relevant one, then the rest by
    // score.
    //
    // All r < k are tried, from the number of irrelevant documents above that relevant one on (with fewer, it would be above its
    // rank by score, and earn more); and, if there are at least k irrelevant documents, the k highest first and then all others
    // by score, which earns nothing. Apart from the credit, a larger r is worth less, so the search ends where even without the
    // credit nothing is better. At worst O(n + min(k, m) (relevant documents above the r-th irrelevant one)). Computes positions;
    // returns the first position of a relevant document, which in every most violated ranking is that of the highest by score.
    Index rank_reciprocal(const List& list, Space& space) const {
        const Index n = list.size, k = cutoff;
        const Span<const double> label = list.label;
        const BinaryList split = space.binary.split(list.score, [&](int q) { return label[q] > 0.0; }, [](Index i) { return i; });
        const Span<double> before = space.before;  // prefix sums of the documents' terms at their ranks by score
        before[0] = 0.0;
        for (Index q = 0; q < n; ++q) before[q + 1] = before[q] + decay[q] * list.score[q];
        const Index lead = split.relevant[0], first = least(lead, k);
        double best = -INFINITE, above = before[first];  // the r highest irrelevant documents at the first positions
        Index best_r = first, v = 0;                     // v relevant documents score above irrelevant r - 1
        for (Index r = first; r <= least(split.m(), k); ++r) {
            if (r > first) above += decay[r - 1] * split.irrelevant_score[r - 1];
            while (r && v < split.p() && split.relevant[v] < split.irrelevant[r - 1]) ++v;
            const Index last = r > lead || r == k ? split.irrelevant[r - 1] : lead;
            const Index moved = r < k ? most(v, Index(1)) : v;  // relevant documents after those
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

    // Compute each document's position in the reference ranking; returns as `rank` does.
    Index rank_reference(const List& list, const Grades& grades, Index cut, Space& space) const {
        const Span<int> rank = space.reference.first(list.size), order = space.order.first(list.size);
        if (reference == IDEAL) {
            rank_by_gain(grades, in_input_order(list, space.given), space, rank);
            return list.size;
        }
        fill_chosen(list, space, order);
        if (reference == PREDICTED) {
            rank_predicted(list, grades, order, space, rank);
        } else if (reciprocal) {
            // The highest-scored relevant document, then all others by score.
            Index lead = 0;
            while (grades.number[order[lead]] > 0) ++lead;
            for (Index i = 0; i < order.size; ++i) rank[order[i]] = int(i + (i < lead));
            rank[order[lead]] = 0;
        } else if (cut == list.size && always_falls(discounts.first(cut))) {
            rank_by_gain(grades, order, space, rank);
        } else {
            const Index front = rank_tied(grades, cut, order, space, rank);
            if (!list.chosen.size) return front;
        }
        return list.size;
    }

    static bool always_falls(Span<const double> discount) {
        bool falls = true;
        for (Index i = 1; i < discount.size; ++i) falls &= discount[i] < discount[i - 1];
        return falls;
    }

    // By gain, documents with the same gain as in `order`.
    static void rank_by_gain(const Grades& grades, Span<const int> order, Space& space, Span<int> rank) {
        const Span<int> next = space.pointer;
        for (Index g = 0; g < grades.count(); ++g) next[g] = grades.starts[g];
        for (const int q : order) rank[q] = next[grades.number[q]]++;
    }

    // Compute the order by chosen scores, ties in input order.
    static void fill_chosen(const List& list, Space& space, Span<int> order) {
        for (Index i = 0; i < order.size; ++i) order[i] = int(i);
        if (!list.chosen.size) return;
        const Span<int> sorted = sort_places(in_input_order(list, space.given), list.chosen.data, space.grades.sort);
        for (Index i = 0; i < order.size; ++i) order[i] = sorted[i];
    }

    // As in `order`, with ties of the chosen scores by gain.
    static void rank_predicted(const List& list, const Grades& grades, Span<const int> order, Space& space,
                               Span<int> rank) {
        rank_by_gain(grades, in_input_order(list, space.given), space, rank);
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

    // By gain, documents with the same gain as in `order`, then at positions of equal discount only as in `order`. Returns the
    // number of documents after which the rest is as in `order`. O(n).
    Index rank_tied(const Grades& grades, Index cut, Span<const int> order, Space& space, Span<int> rank) const {
        const Span<int> next = space.pointer, block = space.block, free = space.given;
        for (Index g = 0; g < grades.count(); ++g) next[g] = grades.starts[g];
        for (Index i = 0; i < cut; ++i) {
            block[i] = i && discounts[i] == discounts[i - 1] ? block[i - 1] : int(i);
            free[i] = int(i);
        }
        Index i = 0;
        for (int missing = int(cut), behind = missing; missing; ++i) {
            const int q = order[i], by_gain = next[grades.number[q]]++;
            const bool before = by_gain < cut;
            rank[q] = before ? free[block[by_gain]]++ : behind++;
            missing -= before;
        }
        for (Index rest = i; rest < order.size; ++rest) rank[order[rest]] = int(rest);
        return i;
    }
};

}  // namespace rankstruct
