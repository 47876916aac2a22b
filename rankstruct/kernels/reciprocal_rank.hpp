// Most violated rankings under the first-relevant feature map: reciprocal rank (SVMmrr).
#pragma once

#include "binary.hpp"
#include "sums.hpp"

namespace rankstruct {

// For each r, the candidate is the r highest irrelevant documents, then the lowest relevant one. O(n) after the sort. From the
// cut-off on it earns nothing, and the best candidate has all irrelevant documents that score above the relevant one, but at
// least k.
struct FirstRelevant {
    static constexpr bool one_gain = false;
    using Space = NoSpace;

    Index cutoff;
    Index predicted;  // whether the reference is the ranking by chosen scores, not the ideal one

    void solve(List& list, const BinaryList& split, Relevance relevance, ChosenSpace& chosen, Space&) const {
        const Index p = split.p(), m = split.m();
        if (!p || !m) return;
        const double lowest = split.relevant_score[p - 1];
        double best = 0.0, lead = 0.0;  // total lead of the r highest irrelevant documents over the relevant one
        Index best_r = 0;
        for (Index r = 1; r <= m; ++r) {
            lead += split.irrelevant_score[r - 1] - lowest;
            const double loss = r < cutoff ? 1.0 - 1.0 / double(1 + r) : 1.0;
            if (loss + lead > best) {
                best = loss + lead;
                best_r = r;
                list.task_loss = loss;
            }
        }
        list.value = best;
        add(list, split, best_r, 1.0);
        if (predicted) {
            // The predicted ranking has the irrelevant documents that score above the lowest relevant one, then that one.
            const BinaryList preferred = chosen.split(list, split, relevance);
            Index r = 0;
            while (r < m && preferred.irrelevant_score[r] > preferred.relevant_score[p - 1]) ++r;
            add(list, preferred, r, -1.0);
            list.value = most(list.task_loss + dot(list.coefficient, list.score), 0.0);
        }
        share_among_tied(list, split);
    }

  private:
    static void add(List& list, const BinaryList& split, Index r, double sign) {
        for (const int rank : split.irrelevant.first(r)) list.coefficient[rank] += sign;
        list.coefficient[split.relevant[split.p() - 1]] -= sign * double(r);
    }
};

}  // namespace rankstruct
