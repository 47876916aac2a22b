// Most violated rankings for a partial ROC area (SVMpAUC).
//
// Position j among the irrelevant documents, from 0, is the cell [j, j + 1), and the window of false positives is [low m, high
// m). W(b) is the part of the window in the first b cells, v_i the part of the cell of relevant i above `min_tpr` p, and V the
// sum of the v_i. A ranking with b_i irrelevant documents above relevant i has the regret sum_i v_i W(b_i) / (V W(m)), and the
// gain of relevant i is, up to a factor,
//
//     v_i lift W(b) + sum over the first b cells of c_j (s_j - s_i)
//
// with c_j = 1 under the pairwise map, and the part of cell j below high m under the restricted one. The differences decrease
// with b except where the window begins, so b_i is the best value before the first cell of the window, or the best from there on.
// Neither decreases with i, and two pointers find both: O(n) after the sort.
#pragma once

#include "pairwise.hpp"
#include "sums.hpp"

namespace rankstruct {

// The window of one list.
struct Window {
    double low, high;  // in cells
    double skipped;    // in relevant documents
    double rest;       // V

    double width() const { return high - low; }
    double inside(Index b) const { return least(most(double(b), low), high) - low; }
    double weight(Index i) const { return least(1.0, most(0.0, double(i + 1) - skipped)); }
};

template <bool restricted>
struct PlacePartialArea {
    static constexpr bool one_gain = false;

    double low, high, min_tpr;  // rates

    struct Space : Scratch<PlacePartialArea> {
        Span<double> irrelevant_sum = this->each(this->each.count + 1);
    };

    Window window(const BinaryList& split) const {
        const double p = double(split.p()), m = double(split.m()), skipped = min_tpr * p;
        return {low * m, high * m, skipped, p - skipped};
    }

    bool place(List& list, const BinaryList& split, Span<int> above, Space& space) const {
        const Window window = this->window(split);
        const Span<const double> score = split.irrelevant_score;
        const double end = restricted ? window.high : double(split.m());
        const Index last = Index(ceil(end)), start = window.low > 0.0 ? Index(window.low) + 1 : 0;
        const double lift = 0.5 * (restricted ? window.high : split.pairs() / window.rest) / window.width();
        sum_up(score.first(start ? split.m() : 0), space.irrelevant_sum);
        Index before = 0, inside = start, placed = 0;
        double missed = 0.0;
        for (Index i = 0; i < split.p(); ++i) {
            const double weight = window.weight(i), own = split.relevant_score[i];
            above[i] = 0;
            if (restricted && weight == 0.0) continue;
            const double raised = restricted ? lift : weight * lift;
            while (before < start - 1 && score[before] > own) ++before;
            for (; inside < last; ++inside) {
                const double part = most(0.0, least(double(inside + 1), window.high) - double(inside));
                const double share = restricted && part > 0.0 ? 1.0 : part;  // of the part of the cell that counts
                if (score[inside] + share * raised <= own) break;
            }
            Index best = inside;
            if (start) {
                const Cells near = first_cells(before, end, score, space.irrelevant_sum);
                const Cells far = first_cells(inside, end, score, space.irrelevant_sum);
                const double gain = far.score - near.score - (far.count - near.count) * own + raised * window.inside(inside);
                if (gain <= 0.0) best = before;
            }
            placed = most(placed, best);  // rounding might decrease it
            above[i] = int(placed);
            missed += weight * window.inside(placed);
        }
        list.task_loss = missed / (window.rest * window.width());
        return true;
    }

  private:
    struct Cells {
        double score, count;  // sums over the first b cells of c_j s_j and c_j
    };

    static Cells first_cells(Index b, double end, Span<const double> score, Span<const double> sum) {
        const Index whole = Index(end);
        if (b <= whole) return {sum[b], double(b)};
        return {sum[whole] + (end - double(whole)) * score[whole], end};
    }
};

// The restricted map, which uses only the pairs of the window.
//
// With the reference below the window, the result is (R(0, high) high - R(0, low) low) / (high - low) for the hinge R. In windows
// that begin at 0 the lift is 1/2, so both rankings are those by score with irrelevant scores raised by 1/2.
struct RestrictedPartialArea : PlacePartialArea<true> {
    Index predicted;  // whether the reference is the ranking by chosen scores, not the ideal one
    Index below;      // whether it is the most violated ranking of the area below `low`

    struct Space : Scratch<RestrictedPartialArea> {
        Span<int> above = each;
        PlacePartialArea<true>::Space area{each, kernel, batch};
    };

    void solve(List& list, const BinaryList& split, Relevance relevance, ChosenSpace& chosen, Space& space) const {
        if (!split.p() || !split.m()) return;
        const Window window = this->window(split);
        const Span<int> above = space.above.first(split.p());
        const double whole = below ? window.width() : window.high;
        if (below)
            list.task_loss = place_from_start(split, window, window.high, above) / (whole * window.rest);
        else
            place(list, split, above, space.area);
        add(list, split, window, above, window.high, whole);
        if (predicted || below) {
            const BinaryList preferred = chosen.split(list, split, relevance);
            if (below)
                list.task_loss -= place_from_start(preferred, window, window.low, above) / (whole * window.rest);
            else
                count_above(preferred.p(), preferred.m(),
                            [&](Index i, Index j) { return preferred.relevant_score[i] < preferred.irrelevant_score[j]; },
                            [&](int i, int j) { above[i] = j; });
            add(list, preferred, window, above, below ? window.low : window.high, -whole);
        }
        list.value = most(list.task_loss + dot(list.coefficient, list.score), 0.0);
        share_among_tied(list, split);
    }

  private:
    // `PlacePartialArea` in the window of the first `end` cells; returns the sum of v_i W(b_i).
    static double place_from_start(const BinaryList& split, const Window& window, double end, Span<int> above) {
        double missed = 0.0;
        count_above(split.p(), Index(ceil(end)),
                    [&](Index i, Index j) { return split.irrelevant_score[j] + 0.5 > split.relevant_score[i]; },
                    [&](int i, int j) {
                        above[i] = j;
                        missed += window.weight(i) * least(double(j), end);
                    });
        return missed;
    }

    // Add psi of a ranking over the first `end` of `whole` cells; that of an ideal ranking is 0.
    static void add(List& list, const BinaryList& split, const Window& window, Span<const int> above, double end,
                    double whole) {
        const double scale = 2.0 / (whole * window.rest);
        const Index p = split.p();
        count_above(Index(ceil(end)), p, [&](Index j, Index i) { return above[i] <= j; },
                    [&](Index j, Index i) {
                        const double cell = least(double(j + 1), end) - double(j);
                        list.coefficient[split.irrelevant[j]] += scale * (cell * (double(p) - most(window.skipped, double(i))));
                    });
        for (Index i = 0; i < p; ++i)
            list.coefficient[split.relevant[i]] -= scale * (window.weight(i) * least(double(above[i]), end));
    }
};

}  // namespace rankstruct
