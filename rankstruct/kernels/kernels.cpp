// The compiled core: the C interface called from Python. `kernels.core` declares it again.
#include "diverse.hpp"
#include "f1.hpp"
#include "graded_auc.hpp"
#include "pair_loss.hpp"
#include "pair_sums.hpp"
#include "pairwise_hinge.hpp"
#include "partial_auc.hpp"
#include "plackett_luce.hpp"
#include "positional.hpp"
#include "reciprocal_rank.hpp"
#include "soft_rank.hpp"
#include "svmlight.hpp"
#include "top_surrogate.hpp"
#include "trees.hpp"

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

using namespace rankstruct;

EXPORT int rankstruct_batch_bytes() { return int(sizeof(Batch)); }

// A loop over the lists [first, last) of a batch: -1, the position in the batch of a refused document, or OUT_OF_MEMORY.
#define LOOP(name, Kernel)                                                                                        \
    EXPORT Index rankstruct_##name(Batch* batch, Index first, Index last, const Kernel* kernel) {         \
        return run(*batch, Kernel(*kernel), first, last);                                                 \
    }

LOOP(pairwise_auc, AUC)
LOOP(pairwise_average_precision, Binary<Pairwise<PlaceConvex<Precision>>>)
LOOP(pairwise_precision_at_cutoff, Binary<Pairwise<PlaceWithCutoff<PrecisionAtCutoff>>>)
LOOP(pairwise_convex_discount, Binary<Pairwise<PlaceConvex<Discounts>>>)
LOOP(pairwise_discount_at_cutoff, Binary<Pairwise<PlaceWithCutoff<Discounts>>>)
LOOP(pairwise_reciprocal_rank, Binary<Pairwise<PlaceFirst>>)
LOOP(partial_area, Binary<Pairwise<PlacePartialArea<false>>>)
LOOP(partial_area_of_window, Binary<RestrictedPartialArea>)
LOOP(first_relevant, Binary<FirstRelevant>)
LOOP(contingency, Binary<Contingency>)
LOOP(top_surrogate, Binary<TopSurrogate>)
LOOP(pairwise_hinge, PairwiseHinge)
LOOP(positional, Positional)
LOOP(diverse, Diverse)
LOOP(logistic_pairs, LogisticPairs)
LOOP(logistic_curvatures, LogisticCurvatures)
LOOP(hinge_pairs, HingePairs)
LOOP(zero_one_pairs, ZeroOnePairs)
LOOP(fidelity_pairs, FidelityPairs)
LOOP(smoothed_ranks, SmoothedRanks)
LOOP(circle, Circle)
LOOP(smooth_grad, SmoothGrad)
LOOP(neural_gain, NeuralGain)
LOOP(neural_entropy, NeuralEntropy)
LOOP(soft_rank, SoftRanks)
LOOP(policy_loss, PolicyLoss)

EXPORT Index rankstruct_choose_method(Index n, Index classes, Index k, Index proportional) {
    return choose_method(n, classes, k, proportional != 0);
}

EXPORT void rankstruct_read_svmlight(svmlight::Lines* lines) { *lines = svmlight::Reader(*lines).read(); }

EXPORT void rankstruct_svmlight_room(const svmlight::Byte* text, Index size, svmlight::Room* room) {
    *room = svmlight::room_for(text, size);
}

EXPORT void rankstruct_copy_ranges(const svmlight::Byte* text, const svmlight::Range* ranges, Index count, svmlight::Byte* out) {
    svmlight::copy_ranges(text, ranges, count, out);
}

// Lists [first, last) of rankings.
#define RANKINGS(name, ...)                                                                       \
    EXPORT Index rankstruct_##name(const Rankings* rankings, Index first, Index last) {           \
        return rankings->__VA_ARGS__;                                                             \
    }

RANKINGS(draw_few, draw_few(first, last))
RANKINGS(draw_rankings, draw(first, last))
RANKINGS(policy_gradient, derive(&Policy::add_gradient<const Index>, WIDEST_POLICY, first, last))
RANKINGS(policy_curvature, derive(&Policy::add_curvature<const Index>, WIDEST_CURVED_POLICY, first, last))

// Scores of the documents [first, last): -1 or OUT_OF_MEMORY.
EXPORT Index rankstruct_score_trees(const Forest* forest, const void* features, Index width, Index is_double, Index first, Index last,
                                    double* scores) {
    const auto score = [&]<class T>(const T* rows) { return forest->score(rows + first * width, width, last - first, scores + first); };
    return is_double ? score(static_cast<const double*>(features)) : score(static_cast<const float*>(features));
}
