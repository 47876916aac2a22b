// The surrogates of measures of the top; the mathematics is in `losses.top_surrogate`. Labels are gains; those above 0 are
// relevant.
#pragma once

#include "binary.hpp"
#include "sums.hpp"

namespace rankstruct {

// Swap l puts irrelevant l in the place of the l-th relevant document from the end; all numbers of swaps are tried. O(n) after
// the sort.
struct TopSurrogate {
    static constexpr bool one_gain = true;
    using Space = NoSpace;

    Span<const double> discounts;  // [longest list]
    Index cutoff;                 // the number of discounts above 0
    Index normalized;              // whether the measure is divided by the value of the best ranking
    Index average;                 // whether the margin is to the mean of the missed relevant documents, not to the lowest
    Index slack;                   // whether to maximise regret x (1 + margin), not regret + margin

    void solve(List& list, const BinaryList& split, Relevance, ChosenSpace&, Space&) const {
        const Index p = split.p(), m = split.m();
        if (!p || !m) return;
        const Span<const double> relevant = split.relevant_score;
        const double gain = list.label[split.relevant[0]];
        const double unit = normalized ? 1.0 / sum(discounts.first(least(p, cutoff))) : gain;
        const auto loses = [&](Index l) { return unit * (discounts[l] - discounts[p + m - 1 - l]); };
        Index hits = least(p, cutoff), swaps = 0, its_hits = hits;  // relevant documents that are not missed
        double missed = average ? sum(relevant.slice(hits, p)) : 0.0;
        double regret = 0.0, margin = 0.0;
        for (Index l = 0; l < least(least(p, m), cutoff); ++l) {
            const double lost = loses(l);
            regret += lost;
            double total = margin += lost * (split.irrelevant_score[l] - (average ? 0.0 : relevant[p - 1 - l]));
            if (average) {
                if (hits > 0) missed += relevant[--hits];
                total -= regret * missed / double(p - hits);
            }
            const double found = slack ? regret * (1.0 + total) : regret + total;
            if (found > list.value) {
                list.value = found;
                list.task_loss = regret;
                swaps = l + 1;
                its_hits = hits;
            }
        }
        const double factor = slack ? list.task_loss : 1.0;
        for (Index l = 0; l < swaps; ++l) {
            const double coefficient = factor * loses(l);
            list.coefficient[split.irrelevant[l]] = coefficient;
            if (!average) list.coefficient[split.relevant[p - 1 - l]] = -coefficient;
        }
        for (Index i = average && swaps ? its_hits : p; i < p; ++i)
            list.coefficient[split.relevant[i]] = -factor * list.task_loss / double(p - its_hits);
        share_among_tied(list, split);  // each order of tied documents has a subgradient, and so has their mean
    }
};

}  // namespace rankstruct
