// AUC's most violated rankings at all thresholds of graded labels, and their weighted sum, in one sweep.
//
// A pair is swapped if its margin is below 1/2, whatever the threshold, so the thresholds between two grades add up to one weight
// per pair. A document's coefficient consists of the weights of the lower-graded documents that it leads by less than 1/2, the
// first ones by score, and of the higher-graded ones that lead it by less than 1/2, the last ones. A merge counts them, and
// running sums give their weights. O(n log n + n T) with T thresholds. Relative to the predicted ranking, the pairs that it swaps
// itself are subtracted: those of lower grade with a higher score, and of higher grade with a lower one. With item weights a pair
// counts as often as the product of its two weights.
#pragma once

#include "pairwise.hpp"

namespace rankstruct {

struct GradedAUC {
    static constexpr int block = 4;  // thresholds whose running sums are computed together; enough for five grades

    using Sums = double[block];

    Index predicted;

    struct Space {
        Room each;
        const Batch& batch;
        Span<const double> thresholds{batch.thresholds, batch.threshold_count};  // ascending
        Span<const double> weights{batch.threshold_weights, batch.threshold_count};
        Span<int> behind = each, ahead = each;  // i leads the first behind[i] by < 1/2; those from ahead[j] on lead j by < 1/2
        Span<int> first = each, last = each;    // the documents with the same score are [first, last)
        Span<int> grade = each;                 // number of thresholds of the block that each document reaches
        // Sums of the weights of the first documents as the lower ones of pairs with each grade above 0, and of the last
        // documents as the higher ones of pairs with each grade but the highest.
        Span<Sums> lower = each(each.count + 1), higher = each(each.count + 1);
    };

    void solve(List& list, Space& space) const {
        merge(list.score, space.behind, space.ahead);
        if (predicted) find_tied(list.score, space.first, space.last);
        const double* weight = list.weight.data;
        for (Index first = 0; first < space.thresholds.size; first += block) {
            if (list.weight.size) solve_block(list, first, space, [=](Index i) { return weight[i]; });
            else solve_block(list, first, space, [](Index) { return 1.0; });
        }
        list.value = most(list.task_loss + dot(list.coefficient, list.score), 0.0);
    }

  private:
    // The weight of a pair of documents by their grades: the sum of 2 w / (p m) over the thresholds between; with item weights p
    // and m are the total weights of either side.
    struct PairWeights {
        Sums as_lower[block + 1] = {};   // [grade][t]: paired with grade t + 1
        Sums as_higher[block + 1] = {};  // [grade][t]: paired with grade t
    };

    // No branches on scores, which would be mispredicted for every other document.
    static void merge(Span<const double> score, Span<int> behind, Span<int> ahead) {
        const int n = int(score.size);
        int i = 0, j = 0;
        while (j < n) {  // i < n, because a document does not lead itself
            const int takes = score[i] - score[j] < 0.5;
            behind[i] = j;
            ahead[j] = i;
            j += takes;
            i += 1 - takes;
        }
        for (; i < n; ++i) behind[i] = n;
    }

    static void find_tied(Span<const double> score, Span<int> first, Span<int> last) {
        const int n = int(score.size);
        for (int i = 0; i < n; ++i) first[i] = i && score[i] == score[i - 1] ? first[i - 1] : i;
        for (int i = n - 1; i >= 0; --i) last[i] = i + 1 < n && score[i] == score[i + 1] ? last[i + 1] : i + 1;
    }

    template <class Weight>
    void solve_block(List& list, Index first, Space& space, Weight weight) const {
        const Span<const double> thresholds = space.thresholds, weights = space.weights;
        const Index n = list.size, count = least(Index(block), thresholds.size - first);
        const double* label = list.label.data;
        int* grade = space.grade.data;
        double pairs[block] = {};  // that each threshold separates
        for (Index i = 0; i < n; ++i) grade[i] = 0;
        for (Index t = 0; t < count; ++t) {
            const double threshold = thresholds[first + t];
            int reach = 0;
            for (Index i = 0; i < n; ++i) {
                const int does = threshold <= label[i];
                grade[i] += does;
                reach += does;
            }
            pairs[t] = double(reach) * double(n - reach);
            if (list.weight.size && pairs[t] > 0.0) {
                const auto above = [=](Index i) { return weight(i) * double(threshold <= label[i]); };
                const auto below = [=](Index i) { return weight(i) * double(threshold > label[i]); };
                pairs[t] = sum_of(n, above) * sum_of(n, below);
            }
        }
        PairWeights pair;
        bool any = false;
        for (Index t = 0; t < count; ++t) {
            const double worth = pairs[t] == 0.0 ? 0.0 : 2.0 * weights[first + t] / pairs[t];
            any |= worth != 0.0;
            for (Index high = t + 1; high <= block; ++high)
                for (Index low = 0; low <= t; ++low) {
                    pair.as_lower[low][high - 1] += worth;
                    pair.as_higher[high][low] += worth;
                }
        }
        if (!any) return;
        sum_along(space, pair, n, weight);
        double loss = 0.0;
        for (Index i = 0; i < n; ++i) {
            const int g = grade[i];
            const double own = weight(i);
            const double leads = g ? own * space.lower[space.behind[i]][g - 1] : 0.0;
            const double led = g < block ? own * space.higher[space.ahead[i]][g] : 0.0;
            list.coefficient[i] += led - leads;
            loss += leads;
            if (!predicted) continue;
            if (g) list.coefficient[i] += own * space.lower[space.first[i]][g - 1];
            if (g < block) list.coefficient[i] -= own * space.higher[space.last[i]][g];
        }
        list.task_loss += 0.5 * loss;
    }

    template <class Weight>
    static void sum_along(const Space& space, const PairWeights& pair, Index n, Weight weight) {
        Sums sum = {};
        const auto add = [&](Sums& kept, const Sums& own, double by) {
            for (int t = 0; t < block; ++t) kept[t] = sum[t] += by * own[t];
        };
        add(space.lower[0], Sums{}, 1.0);
        for (Index i = 0; i < n; ++i) add(space.lower[i + 1], pair.as_lower[space.grade[i]], weight(i));
        for (double& each : sum) each = 0.0;
        add(space.higher[n], Sums{}, 1.0);
        for (Index i = n - 1; i >= 0; --i) add(space.higher[i], pair.as_higher[space.grade[i]], weight(i));
    }
};

// All thresholds of graded labels at once, unless other scores determine the reference.
struct AUC : Binary<Pairwise<PlaceAUC>> {
    struct Space : Scratch<AUC> {
        bool graded = batch.thresholds && !batch.chosen;
        Binary::Space one_by_one{each.when(!graded), kernel, batch};
        GradedAUC::Space at_once{each.when(graded), batch};
    };

    void solve(List& list, Space& space) const {
        return space.graded ? GradedAUC{predicted}.solve(list, space.at_once) : Binary::solve(list, space.one_by_one);
    }
};

}  // namespace rankstruct
