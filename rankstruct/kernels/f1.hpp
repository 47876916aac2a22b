// Most violated labellings for measures of a contingency table: the feature map adds up the scores of the positive documents.
//
// A labelling with k positive documents contains the a highest relevant and the k - a highest irrelevant ones. For fixed k the
// measures are linear in a,
//
//     measure(a, k) = slope(k) a + level(k),   slope(k) never increasing with k
//
// except success, which is 1 for a >= 1. Replacing an irrelevant document by one more relevant one adds relevant[a] - slope(k) -
// irrelevant[k - a - 1], which decreases with a and never decreases with k. So the best a never decreases with k, and one pass
// finds all of them: O(n) after the sort.
#pragma once

#include "binary.hpp"
#include "sums.hpp"

namespace rankstruct {

struct Contingency {
    static constexpr bool one_gain = false;
    enum Measure : Index { PRECISION, RECALL, SUCCESS, F, ACCURACY, BREAK_EVEN };

    Measure measure;
    Index cutoff;  // number of positive documents; 0: any number, or the number of relevant ones for BREAK_EVEN
    double beta;   // of F
    Reference reference;

    struct Space : Scratch<Contingency> {
        Span<int> rank_at = each.when(kernel.reference == IDEAL);  // by position
        // Input of `walk`: scores between sentinels, and the measure's slope by k.
        Span<double> relevant = each(each.count + 2), irrelevant = each(each.count + 2), slope = each(each.count + 2);
    };

    void solve(List& list, const BinaryList& split, Relevance relevance, ChosenSpace& chosen, Space& space) const {
        const Index p = split.p(), m = split.m();
        const bool any_number = !cutoff && measure != BREAK_EVEN;
        const Counts k = any_number ? Counts{0, p + m} : fixed(cutoff ? least(cutoff, p + m) : p);
        if (!p && measure != ACCURACY) return;
        if (!any_number && (!m || k.last == p + m || (measure == SUCCESS && m < k.last))) return;
        // For fixed k only differences matter, so scores are relative to the highest.
        const double zero = any_number ? -list.highest : 0.0;
        const Labelling found = most_violated(split, k, zero, space);
        add(list, split, found, 1.0);
        const Labelling best = any_number ? Labelling{p, p} : Labelling{least(p, k.last), k.last};
        if (reference == IDEAL) {
            take_off_first(list, split.relevant, best.relevant, space.rank_at);
            take_off_first(list, split.irrelevant, best.irrelevant(), space.rank_at);
        } else {
            const BinaryList preferred = chosen.split(list, split, relevance);
            const bool given = reference == IDEAL_TIED && measure != SUCCESS;
            add(list, preferred,
                given ? best : walk<false>(preferred, k, list.chosen.size ? 0.0 : zero, reference == IDEAL_TIED ? 1 : 0, space),
                -1.0);
        }
        const double *coefficient = list.coefficient.data, *score = list.score.data;
        const double difference = sum_of(list.size, [=](Index r) { return coefficient[r] * (score[r] - zero); });
        list.task_loss = value_of(best, p, m) - value_of(found, p, m);
        list.value = most(list.task_loss + difference, 0.0);
        if (reference != IDEAL) share_among_tied(list, split);
    }

  private:
    struct Counts {
        Index first, last;
    };
    struct Labelling {
        Index relevant, positive;

        Index irrelevant() const { return positive - relevant; }
    };

    static Counts fixed(Index k) { return {k, k}; }

    // The increase of the measure per relevant document among k positive ones.
    double slope(Index k, Index p, Index m) const {
        switch (measure) {
            case PRECISION: return 1.0 / double(cutoff);
            case SUCCESS: return 0.0;
            case F: return (1.0 + beta * beta) / (double(k) + beta * beta * double(p));
            case ACCURACY: return 2.0 / double(p + m);
            default: return 1.0 / double(p);
        }
    }

    double level(Index k, Index p, Index m) const { return measure == ACCURACY ? double(m - k) / double(p + m) : 0.0; }

    double value_of(Labelling found, Index p, Index m) const {
        if (measure == SUCCESS) return found.relevant > 0 ? 1.0 : 0.0;
        return slope(found.positive, p, m) * double(found.relevant) + level(found.positive, p, m);
    }

    // The best labelling of scores minus `zero` with at least `least_relevant` relevant documents, including the measure if
    // `weighed`; otherwise relevant documents come first among ties.
    //
    // From k to k + 1, usually either the next irrelevant or the next relevant document is added; this is branchless, since the
    // branch would be mispredicted half of the time.
    template <bool weighed>
    Labelling walk(const BinaryList& split, Counts ks, double zero, Index least_relevant, const Space& space) const {
        const Index p = split.p(), m = split.m();
        const double* relevant = between_sentinels(split.relevant_score, ks.last + 1, space.relevant);
        const double* irrelevant = between_sentinels(split.irrelevant_score, ks.last + 1, space.irrelevant);
        for (Index k = ks.first; weighed && k <= ks.last; ++k) space.slope[k] = slope(k, p, m);
        Index a = most(ks.first - m, least_relevant);
        double total = 0.0;
        for (Index i = 0; i < a; ++i) total += relevant[i] - zero;
        for (Index j = 0; j < ks.first - a; ++j) total += irrelevant[j] - zero;
        double best = -INFINITE;
        Labelling found{a, ks.first};
        for (Index k = ks.first; k <= ks.last; ++k) {
            const double cost = weighed ? space.slope[k] : 0.0;
            // Whether one more relevant document is better than the last irrelevant one.
            const auto rises = [&] {
                const double gain = relevant[a] - cost, lost = irrelevant[k - a - 1];
                return weighed ? gain > lost : gain >= lost;
            };
            if (k > ks.first) {
                const bool is_relevant = rises();
                total += (is_relevant ? relevant[a] : irrelevant[k - a - 1]) - zero;
                a += is_relevant;
            }
            for (; rises(); ++a) total += relevant[a] - irrelevant[k - a - 1];
            const double worth = weighed ? total - (cost * double(a) + level(k, p, m)) : total;
            if (worth > best) {
                best = worth;
                found = {a, k};
            }
        }
        return found;
    }

    // The first scores between sentinels, +infinity before and -infinity after them.
    static const double* between_sentinels(Span<const double> score, Index count, Span<double> into) {
        const Index size = least(score.size, count);
        into[0] = INFINITE;
        for (Index i = 0; i < size; ++i) into[i + 1] = score[i];
        into[size + 1] = -INFINITE;
        return into.data + 1;
    }

    Labelling most_violated(const BinaryList& split, Counts k, double zero, const Space& space) const {
        if (measure != SUCCESS) return walk<true>(split, k, zero, 0, space);
        // The best labelling with a relevant document, or the best without, whose task loss is 1.
        const Labelling found = walk<false>(split, k, zero, 1, space);
        double lead = 1.0;
        for (Index i = 0; i < found.relevant; ++i)
            lead += split.irrelevant_score[found.irrelevant() + i] - split.relevant_score[i];
        return lead > 0.0 ? Labelling{0, found.positive} : found;
    }

    static void add(List& list, const BinaryList& split, Labelling labelling, double sign) {
        for (const int rank : split.relevant.first(labelling.relevant)) list.coefficient[rank] += sign;
        for (const int rank : split.irrelevant.first(labelling.irrelevant())) list.coefficient[rank] += sign;
    }

    // Subtract 1 from the coefficients of the first `count` of these documents in input order.
    static void take_off_first(List& list, Span<const int> ranks, Index count, Span<int> rank_at) {
        if (count == ranks.size) {
            for (const int rank : ranks) list.coefficient[rank] -= 1.0;
            return;
        }
        const Span<int> theirs = rank_at.first(list.places);
        theirs.fill(-1);
        for (const int rank : ranks) theirs[list.place[rank]] = rank;
        for (Index place = 0; count; ++place) {
            if (theirs[place] < 0) continue;
            list.coefficient[theirs[place]] -= 1.0;
            --count;
        }
    }
};

}  // namespace rankstruct
