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
template <class Loop>
static Index solve(Batch* batch, Index first, Index last, const Loop* loop) {
    return run(*batch, loop->kernel(*batch), first, last);
}

EXPORT Index rankstruct_pairwise_auc(Batch* b, Index first, Index last, const PairwiseAuc* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_pairwise_average_precision(Batch* b, Index first, Index last, const PairwiseAveragePrecision* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_pairwise_precision_at_cutoff(Batch* b, Index first, Index last, const PairwisePrecisionAtCutoff* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_pairwise_convex_discount(Batch* b, Index first, Index last, const PairwiseConvexDiscount* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_pairwise_discount_at_cutoff(Batch* b, Index first, Index last, const PairwiseDiscountAtCutoff* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_pairwise_reciprocal_rank(Batch* b, Index first, Index last, const PairwiseReciprocalRank* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_partial_area(Batch* b, Index first, Index last, const PartialArea* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_partial_area_of_window(Batch* b, Index first, Index last, const PartialAreaOfWindow* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_first_relevant(Batch* b, Index first, Index last, const FirstRelevantDocument* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_contingency(Batch* b, Index first, Index last, const ContingencyTable* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_top_surrogate(Batch* b, Index first, Index last, const Surrogate* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_pairwise_hinge(Batch* b, Index first, Index last, const RankSVM* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_positional(Batch* b, Index first, Index last, const PositionalRanks* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_diverse(Batch* b, Index first, Index last, const DiverseRanks* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_logistic_pairs(Batch* b, Index first, Index last, const LogisticPairs* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_logistic_curvatures(Batch* b, Index first, Index last, const LogisticCurvatures* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_hinge_pairs(Batch* b, Index first, Index last, const HingePairs* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_zero_one_pairs(Batch* b, Index first, Index last, const ZeroOnePairs* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_fidelity_pairs(Batch* b, Index first, Index last, const FidelityPairs* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_smoothed_ranks(Batch* b, Index first, Index last, const RankSums* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_circle(Batch* b, Index first, Index last, const CirclePairs* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_smooth_grad(Batch* b, Index first, Index last, const SmoothGains* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_neural_gain(Batch* b, Index first, Index last, const NeuralGains* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_neural_entropy(Batch* b, Index first, Index last, const NeuralLabels* loop) {
    return solve(b, first, last, loop);
}
EXPORT Index rankstruct_soft_rank(Batch* b, Index first, Index last, const SoftGains* loop) {
    return solve(b, first, last, loop);
}

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
