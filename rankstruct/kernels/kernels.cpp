// The compiled core: the C interface called from Python. `kernels.core` declares it again.
#include "loops.hpp"
#include "plackett_luce.hpp"
#include "svmlight.hpp"
#include "trees.hpp"

#if defined(_WIN32)
#define EXPORT extern "C" __declspec(dllexport)
#else
#define EXPORT extern "C" __attribute__((visibility("default")))
#endif

using namespace rankstruct;

EXPORT int rankstruct_batch_bytes() { return int(sizeof(Batch)); }

// A loop over the lists [first, last) of a batch: -1, the position in the batch of a refused document, or OUT_OF_MEMORY.
#define LOOP(name, Kind)                                                                                 \
    EXPORT Index rankstruct_##name(Batch* batch, Index first, Index last, const Kind* loop) {            \
        return run(*batch, loop->kernel(*batch), first, last);                                           \
    }

LOOP(pairwise_auc, PairwiseAuc)
LOOP(pairwise_average_precision, PairwiseAveragePrecision)
LOOP(pairwise_precision_at_cutoff, PairwisePrecisionAtCutoff)
LOOP(pairwise_convex_discount, PairwiseConvexDiscount)
LOOP(pairwise_discount_at_cutoff, PairwiseDiscountAtCutoff)
LOOP(pairwise_reciprocal_rank, PairwiseReciprocalRank)
LOOP(partial_area, PartialArea)
LOOP(partial_area_of_window, PartialAreaOfWindow)
LOOP(first_relevant, FirstRelevantDocument)
LOOP(contingency, ContingencyTable)
LOOP(top_surrogate, Surrogate)
LOOP(pairwise_hinge, RankSVM)
LOOP(positional, PositionalRanks)
LOOP(diverse, DiverseRanks)
LOOP(logistic_pairs, LogisticPairs)
LOOP(logistic_curvatures, LogisticCurvatures)
LOOP(hinge_pairs, HingePairs)
LOOP(zero_one_pairs, ZeroOnePairs)
LOOP(fidelity_pairs, FidelityPairs)
LOOP(smoothed_ranks, RankSums)
LOOP(circle, CirclePairs)
LOOP(smooth_grad, SmoothGains)
LOOP(neural_gain, NeuralGains)
LOOP(neural_entropy, NeuralLabels)
LOOP(soft_rank, SoftGains)

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

// For scores of either type.
template <class Do>
static Index with_type(Index is_double, Do what) {
    return is_double ? what(double()) : what(float());
}

template <class Do>
static Index with_rankings(const void* scores, const unsigned char* where, Index lists, Index n, Index samples, Index k, Index is_double,
                           Do what) {
    return with_type(is_double, [=]<class T>(T) { return what(Rankings<T>{static_cast<const T*>(scores), where, lists, n, samples, k}); });
}

EXPORT Index rankstruct_draw_few(const void* scores, const unsigned char* where, const double* uniform, Index lists, Index n, Index samples,
                                 Index k, Index is_double, Index first, Index last, Index* placed) {
    return with_rankings(scores, where, lists, n, samples, k, is_double,
                         [=](const auto& rankings) { return rankings.draw_few(uniform, first, last, placed); });
}

EXPORT Index rankstruct_draw_rankings(const void* scores, const unsigned char* where, const double* noise, Index lists, Index n,
                                      Index samples, Index k, Index is_double, Index first, Index last, Index* placed) {
    return with_rankings(scores, where, lists, n, samples, k, is_double,
                         [=](const auto& rankings) { return rankings.draw(noise, first, last, placed); });
}

EXPORT Index rankstruct_policy_derivative(const void* scores, const unsigned char* where, const Index* placed, const double* worth,
                                          const double* rewards, Index lists, Index n, Index samples, Index k, Index is_double,
                                          Index twice, Index first, Index last, double* found) {
    return with_rankings(scores, where, lists, n, samples, k, is_double,
                         [=](const auto& rankings) { return rankings.derive(twice != 0, placed, worth, rewards, first, last, found); });
}

// Lists are not sorted; the options are those of `PolicyLoss`.
EXPORT Index rankstruct_policy_loss(Batch* b, const double* uniform, const double* discounts, Index longest, Index samples, Index k,
                                    Index few, Index first, Index last) {
    const PolicyLoss loss{uniform, {discounts, longest}, samples, k, few != 0};
    return b->score_type == FLOAT32 ? loss.run<float>(*b, first, last) : loss.run<double>(*b, first, last);
}

// Scores of the documents [first, last): -1 or OUT_OF_MEMORY.
EXPORT Index rankstruct_score_trees(const void* features, const double* threshold, const Branch* branch, const Index* root,
                                    const Index* feature, const double* at_missing, const double* at_zero, const Index* bounds,
                                    const unsigned char* member, Index width, Index nodes, Index trees, Index columns, Index categories,
                                    Index is_double, Index single, Index first, Index last, double* scores) {
    constexpr double lightgbm = 1.0000000180025095e-35, none = -1.0;  // 1e-35 in float32
    const Forest forest{{threshold, nodes},    {branch, nodes},      {root, trees},        {feature, columns},        {at_missing, columns},
                        {at_zero, columns}, {bounds, columns + 1}, {member, categories}, single ? none : lightgbm, single != 0};
    return with_type(is_double, [&]<class T>(T) {
        const bool done = forest.score(static_cast<const T*>(features) + first * width, width, last - first, scores + first);
        return done ? -1 : OUT_OF_MEMORY;
    });
}
