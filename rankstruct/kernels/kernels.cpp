// The compiled core: the C interface called from Python. `kernels.core` declares it again.
#include "constrained.hpp"
#include "f1.hpp"
#include "graded_auc.hpp"
#include "page_hinge.hpp"
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

// What a field is: 0 for a number that is whole, or an address, 1 for another, 2 for an array.
template <class T>
constexpr Index KIND = std::is_floating_point_v<T>;
template <class T>
constexpr Index KIND<Span<T>> = 2;

// Write 4 times the offset of each field plus its kind, and 4 times the size of the structure.
template <class Structure, class... Fields>
void lay_out_fields(Index* found, const Structure& all, const Fields&... field) {
    const auto offset = [&](const void* at) { return Index(static_cast<const char*>(at) - reinterpret_cast<const char*>(&all)); };
    ((*found++ = 4 * offset(&field) + KIND<Fields>), ...);
    *found = 4 * Index(sizeof(Structure));
}

// The names of a structure's fields, and how they are laid out: Python compares them with its own.
#define FIELDS(name, Structure, ...)                                                              \
    EXPORT const char* rankstruct_##name##_fields(Index* found) {                                 \
        struct Named : Structure {                                                                \
            void write(Index* to) const { lay_out_fields(to, *this, __VA_ARGS__); }               \
        };                                                                                        \
        Named{}.write(found);                                                                     \
        return #__VA_ARGS__;                                                                      \
    }

FIELDS(batch, Batch, scores, labels, where, offsets, chosen, groups, gains, thresholds, threshold_weights, item_weights, task_loss,
       value, direction, lists, size, grades, threshold_count, min_relevant, least_label, score_type, label_type, sum, real_lists)

// A loop over the lists [first, last) of a batch: -1, the position in the batch of a refused document, or OUT_OF_MEMORY.
#define LOOP(name, Kernel, ...)                                                                           \
    EXPORT Index rankstruct_##name(Batch* batch, Index first, Index last, const Kernel* kernel) {         \
        return run(*batch, Kernel(*kernel), first, last);                                                 \
    }                                                                                                     \
    FIELDS(name, Kernel, __VA_ARGS__)

LOOP(pairwise_auc, AUC, predicted)
LOOP(pairwise_average_precision, Binary<Pairwise<PlaceConvex<Precision>>>, predicted)
LOOP(pairwise_precision_at_cutoff, Binary<Pairwise<PlaceWithCutoff<PrecisionAtCutoff>>>, cutoff, predicted)
LOOP(pairwise_convex_discount, Binary<Pairwise<PlaceConvex<Discounts>>>, discounts, cutoff, normalized, predicted)
LOOP(pairwise_discount_at_cutoff, Binary<Pairwise<PlaceWithCutoff<Discounts>>>, discounts, cutoff, normalized, predicted)
LOOP(pairwise_reciprocal_rank, Binary<Pairwise<PlaceFirst>>, cutoff, predicted)
LOOP(partial_area, Binary<Pairwise<PlacePartialArea<false>>>, low, high, min_tpr, predicted)
LOOP(partial_area_of_window, Binary<RestrictedPartialArea>, low, high, min_tpr, predicted, below)
LOOP(first_relevant, Binary<FirstRelevant>, cutoff, predicted)
LOOP(contingency, Binary<Contingency>, measure, cutoff, beta, reference)
LOOP(top_surrogate, Binary<TopSurrogate>, discounts, cutoff, normalized, average, slack)
LOOP(pairwise_hinge, PairwiseHinge, margin)
LOOP(positional, Positional, decay, discounts, cutoff, least_cutoff, normalized, reciprocal, reference)
LOOP(constrained, Constrained, attribute, which, each_group, prefix, lower, upper, attributes, length, group, position)
LOOP(page_hinge, PageHinge, decay, discounts, cutoff, least_cutoff, normalized, reciprocal, reference, attribute, which, each_group,
     prefix, lower, upper, attributes, length, shift, mask, none)
LOOP(logistic_pairs, LogisticPairs, discounts, steps, kept, scheme, sigma, mu, named, named_pairs)
LOOP(logistic_curvatures, LogisticCurvatures, discounts, steps, kept, scheme, sigma, mu, named, named_pairs)
LOOP(hinge_pairs, HingePairs, discounts, steps, kept, scheme, sigma, mu, named, named_pairs)
LOOP(zero_one_pairs, ZeroOnePairs, discounts, steps, kept, scheme, sigma, mu, named, named_pairs)
LOOP(fidelity_pairs, FidelityPairs, discounts, steps, kept, scheme, sigma, mu, named, named_pairs)
LOOP(smoothed_ranks, SmoothedRanks, temperature, hinge, backward)
LOOP(circle, Circle, gamma, margin)
LOOP(smooth_grad, SmoothGrad, discounts, kept, normalized, sigma)
LOOP(neural_gain, NeuralGain, discounts, kept, temperature)
LOOP(neural_entropy, NeuralEntropy, temperature)
LOOP(soft_rank, SoftRanks, discounts, kept, normalized, sigma, nodes, shares, steepness, normal)
LOOP(policy_loss, PolicyLoss, uniform, discounts, samples, k, few)

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

FIELDS(rankings, Rankings, scores, where, random, placed, worth, rewards, found, lists, n, samples, k)
FIELDS(forest, Forest, threshold, branch, root, feature, at_missing, at_zero, bounds, member, zero, single)

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
