// Most violated labellings: measures of a contingency table, where the positive documents alone vote.
//
// A labelling makes k documents positive, the a highest relevant and the k - a highest irrelevant ones, whatever the most
// violated a and k are. The measures of one k are linear in a,
//
//     measure(a, k) = slope(k) a + level(k),   slope(k) never rising with k
//
// but for success, which is 1 from a = 1 on. One more relevant document in place of an irrelevant one adds relevant[a] - slope(k)
// - irrelevant[k - a - 1], which falls with a and never falls with k. So the best a never falls with k, and one walk finds all of
// them: O(n) after the sort.
#pragma once

#include "binary.hpp"
#include "sums.hpp"

namespace rankstruct {

struct Contingency {
    static constexpr bool one_gain = false;
    enum Measure : int { PRECISION, RECALL, SUCCESS, F, ACCURACY, BREAK_EVEN };
    enum Reference : int { IDEAL, IDEAL_TIED, PREDICTED };  // by input order; that which the scores like best

    Measure measure;
    Index cutoff;  // how many documents are positive; 0: any number, and those relevant for BREAK_EVEN
    double beta;   // of F
    Reference reference;

    struct Space {
        Span<int> rank_at;  // by place

        KERNEL Space(Arena& arena, const Contingency& rule, const Batch&, Index longest)
            : rank_at(arena.take<int>(rule.reference == IDEAL ? longest : 0)) {}
    };

    KERNEL void solve(List& list, const BinaryList& split, Relevance relevance, ChosenSpace& chosen, Space& space) const {
        const Index p = split.p(), m = split.m();
        const bool any_number = !cutoff && measure != BREAK_EVEN;
        const Counts k = any_number ? Counts{0, p + m} : fixed(cutoff ? least(cutoff, p + m) : p);
        if (!p && measure != ACCURACY) return;
        if (!any_number && (!m || k.last == p + m || (measure == SUCCESS && m < k.last))) return;
        // Of as many documents only differences count, and they are taken relative to the highest.
        const double zero = any_number ? -list.highest : 0.0;
        const Labelling found = most_violated(split, k, zero);
        add(list, split, found, 1.0);
        const Labelling best = any_number ? Labelling{p, p} : Labelling{least(p, k.last), k.last};
        if (reference == IDEAL)
            take_off_first(list, relevance, best.relevant, best.irrelevant(), space.rank_at);
        else {
            const BinaryList preferred = chosen.split(list, split, relevance);
            const bool given = reference == IDEAL_TIED && measure != SUCCESS;
            add(list, preferred,
                given ? best : walk<false>(preferred, k, list.chosen.size ? 0.0 : zero, reference == IDEAL_TIED ? 1 : 0), -1.0);
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

        KERNEL Index irrelevant() const { return positive - relevant; }
    };

    KERNEL static Counts fixed(Index k) { return {k, k}; }

    // How much the measure of k positive documents rises with each relevant one among them.
    KERNEL double slope(Index k, Index p, Index m) const {
        switch (measure) {
            case PRECISION: return 1.0 / double(cutoff);
            case SUCCESS: return 0.0;
            case F: return (1.0 + beta * beta) / (double(k) + beta * beta * double(p));
            case ACCURACY: return 2.0 / double(p + m);
            default: return 1.0 / double(p);
        }
    }

    KERNEL double level(Index k, Index p, Index m) const { return measure == ACCURACY ? double(m - k) / double(p + m) : 0.0; }

    KERNEL double value_of(Labelling found, Index p, Index m) const {
        if (measure == SUCCESS) return found.relevant > 0 ? 1.0 : 0.0;
        return slope(found.positive, p, m) * double(found.relevant) + level(found.positive, p, m);
    }

    // The best labelling of scores less `zero`, with so many relevant documents at least; `weighed` by the measure or not. Among
    // equals the relevant document comes first where the measure does not weigh.
    template <bool weighed>
    KERNEL Labelling walk(const BinaryList& split, Counts ks, double zero, Index least_relevant) const {
        const Index p = split.p(), m = split.m();
        const Span<double> relevant = split.relevant_score, irrelevant = split.irrelevant_score;
        Index a = most(ks.first - m, least_relevant), b = ks.first - a;
        double total = 0.0;
        for (Index i = 0; i < a; ++i) total += relevant[i] - zero;
        for (Index j = 0; j < b; ++j) total += irrelevant[j] - zero;
        double best = -INFINITE;
        Labelling found{a, ks.first};
        for (Index k = ks.first; k <= ks.last; ++k) {
            if (k > ks.first) total += (b < m ? irrelevant[b++] : relevant[a++]) - zero;
            const double cost = weighed ? slope(k, p, m) : 0.0;
            for (; a < p && b > 0; ++a, --b) {
                const double gain = relevant[a] - cost - irrelevant[b - 1];
                if (weighed ? gain <= 0.0 : gain < 0.0) break;
                total += relevant[a] - irrelevant[b - 1];
            }
            const double worth = weighed ? total - (cost * double(a) + level(k, p, m)) : total;
            if (worth > best) {
                best = worth;
                found = {a, k};
            }
        }
        return found;
    }

    KERNEL Labelling most_violated(const BinaryList& split, Counts k, double zero) const {
        if (measure != SUCCESS) return walk<true>(split, k, zero, 0);
        // With a relevant document, the best one; or none, and a task loss of 1.
        const Labelling found = walk<false>(split, k, zero, 1);
        double lead = 1.0;
        for (Index i = 0; i < found.relevant; ++i)
            lead += split.irrelevant_score[found.irrelevant() + i] - split.relevant_score[i];
        return lead > 0.0 ? Labelling{0, found.positive} : found;
    }

    KERNEL static void add(List& list, const BinaryList& split, Labelling labelling, double sign) {
        for (const int rank : split.relevant.first(labelling.relevant)) list.coefficient[rank] += sign;
        for (const int rank : split.irrelevant.first(labelling.irrelevant())) list.coefficient[rank] += sign;
    }

    // Take the first documents of each kind, by input order, off the coefficients.
    KERNEL static void take_off_first(List& list, Relevance relevance, Index relevant, Index irrelevant, Span<int> rank_at) {
        Index places = 0;
        for (const int place : list.place) places = most(places, Index(place) + 1);
        const Span<int> ranks = rank_at.first(places);
        ranks.fill(-1);
        for (Index r = 0; r < list.size; ++r) ranks[list.place[r]] = int(r);
        for (const int rank : ranks) {
            if (rank < 0) continue;
            Index& left = relevance(list.label[rank]) ? relevant : irrelevant;
            if (left > 0) {
                list.coefficient[rank] -= 1.0;
                --left;
            }
        }
    }
};

}  // namespace rankstruct
