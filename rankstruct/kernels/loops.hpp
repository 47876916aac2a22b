// The loops called from Python: the options of each, with the fields declared in `kernels.core`, and the kernel built from them.
// The host exports them all (kernels.cpp); CUDA compiles those that are called.
#pragma once

#include "f1.hpp"
#include "diverse.hpp"
#include "reciprocal_rank.hpp"
#include "graded_auc.hpp"
#include "pair_sums.hpp"
#include "pairwise.hpp"
#include "pairwise_hinge.hpp"
#include "pair_loss.hpp"
#include "partial_auc.hpp"
#include "positional.hpp"
#include "soft_rank.hpp"
#include "top_surrogate.hpp"

namespace rankstruct {

template <class Placement>
auto pairwise(const Batch& batch, const Placement& placement, Index predicted) {
    return Binary<Pairwise<Placement>>(batch, {placement, predicted != 0});
}

// All thresholds of graded labels at once, unless other scores determine the reference.
struct AUC {
    static constexpr double widest = GradedAUC::widest;
    using OneByOne = Binary<Pairwise<PlaceAUC>>;

    OneByOne one_by_one;
    GradedAUC at_once;
    bool graded;

    struct Space {
        OneByOne::Space one_by_one;
        GradedAUC::Space at_once;

        Space(Arena& arena, const AUC& kernel, const Batch& batch, Index longest)
            : one_by_one(arena, kernel.one_by_one, batch, kernel.graded ? 0 : longest),
              at_once(arena, kernel.at_once, batch, kernel.graded ? longest : 0) {}
    };

    Index solve(List& list, Space& space) const {
        return graded ? at_once.solve(list, space.at_once) : one_by_one.solve(list, space.one_by_one);
    }
};

struct PairwiseAuc {
    Index predicted;
    auto kernel(const Batch& batch) const {
        const auto one_by_one = pairwise(batch, PlaceAUC{}, predicted);
        return AUC{one_by_one, GradedAUC(batch, predicted != 0), batch.thresholds && !batch.chosen};
    }
};

struct PairwiseAveragePrecision {
    Index predicted;
    auto kernel(const Batch& batch) const { return pairwise(batch, PlaceConvex<false>{}, predicted); }
};

struct PairwisePrecisionAtCutoff {
    Index cutoff, predicted;
    auto kernel(const Batch& batch) const { return pairwise(batch, PlaceWithCutoff<false>{{}, cutoff}, predicted); }
};

struct Discounted {
    const double* discounts;
    Index longest, cutoff, normalized, predicted;
    Worth worth() const { return {{discounts, longest}, normalized != 0}; }
};

struct PairwiseConvexDiscount : Discounted {
    auto kernel(const Batch& batch) const { return pairwise(batch, PlaceConvex<true>{worth()}, predicted); }
};

struct PairwiseDiscountAtCutoff : Discounted {
    auto kernel(const Batch& batch) const { return pairwise(batch, PlaceWithCutoff<true>{worth(), cutoff}, predicted); }
};

struct PairwiseReciprocalRank {
    Index cutoff, predicted;
    auto kernel(const Batch& batch) const { return pairwise(batch, PlaceFirst{cutoff}, predicted); }
};

struct PartialArea {
    double low, high, min_tpr;
    Index predicted;
    auto kernel(const Batch& batch) const {
        return pairwise(batch, PlacePartialArea{low, high, min_tpr, false}, predicted);
    }
};

struct PartialAreaOfWindow {
    double low, high, min_tpr;
    Index predicted, below;
    auto kernel(const Batch& batch) const {
        const PlacePartialArea area{low, high, min_tpr, true};
        return Binary<RestrictedPartialArea>(batch, {area, predicted != 0, below != 0});
    }
};

struct FirstRelevantDocument {
    Index cutoff, predicted;
    auto kernel(const Batch& batch) const { return Binary<FirstRelevant>(batch, {cutoff, predicted != 0}); }
};

struct ContingencyTable {
    Index measure, cutoff;
    double beta;
    Index reference;
    auto kernel(const Batch& batch) const {
        return Binary<Contingency>(batch, {Contingency::Measure(measure), cutoff, beta, Contingency::Reference(reference)});
    }
};

struct Surrogate {
    const double* discounts;
    Index longest, cutoff, normalized, average, slack;
    auto kernel(const Batch& batch) const {
        return Binary<TopSurrogate>(batch, {{discounts, longest}, cutoff, normalized != 0, average != 0, slack != 0});
    }
};

struct RankSVM {
    double margin;
    auto kernel(const Batch&) const { return PairwiseHinge{margin}; }
};

// A measure and a decay, by rank: discount times gain, or reciprocal rank.
struct ByRank {
    const double *decay, *discounts;
    Index longest, cutoff, least_cutoff, normalized, reciprocal, reference;
};

struct PositionalRanks : ByRank {
    auto kernel(const Batch&) const {
        return Positional{{decay, longest}, {discounts, longest}, cutoff, least_cutoff, normalized != 0, reciprocal != 0, int(reference)};
    }
};

struct DiverseRanks : ByRank {
    auto kernel(const Batch&) const {
        return Diverse{{decay, longest}, {discounts, longest}, cutoff, least_cutoff, normalized != 0, reciprocal != 0,
                       Diverse::Reference(reference)};
    }
};

// The cost of each pair as a function of its score difference, weighted by a scheme.
template <class Cost>
struct Pairs {
    const double *discounts, *steps;
    Index longest, kept, scheme;
    double sigma, mu;
    const double *named, *named_pairs;
    Index names;
    auto kernel(const Batch& batch) const {
        const PairWeights weights{int(scheme), {discounts, longest}, {steps, longest + 1}, kept, mu, {named, names}, {named_pairs, names * names}};
        return PairLoss<Cost>(batch, weights, sigma);
    }
};

using LogisticPairs = Pairs<LogisticCost>;
using LogisticCurvatures = Pairs<LogisticCurvature>;
using HingePairs = Pairs<HingeCost>;
using ZeroOnePairs = Pairs<SigmoidCost>;
using FidelityPairs = Pairs<FidelityCost>;

struct RankSums {
    double temperature;
    Index hinge, backward;
    auto kernel(const Batch&) const { return SmoothedRanks{temperature, hinge != 0, backward != 0}; }
};

struct CirclePairs {
    double gamma, margin;
    auto kernel(const Batch&) const { return Circle{gamma, margin}; }
};

struct SmoothGains {
    const double* discounts;
    Index longest, kept, normalized;
    double sigma;
    auto kernel(const Batch&) const { return SmoothGrad{{{discounts, longest}, kept, normalized != 0}, sigma}; }
};

struct NeuralGains {
    const double* discounts;
    Index longest, kept;
    double temperature;
    auto kernel(const Batch&) const { return NeuralGain{{{discounts, longest}, kept, true}, temperature}; }
};

struct NeuralLabels {
    double temperature;
    auto kernel(const Batch&) const { return NeuralEntropy{temperature}; }
};

struct SoftGains {
    const double* discounts;
    Index longest, kept, normalized;
    double sigma;
    const double *nodes, *shares;
    Index count;
    double steepness;
    Index normal;
    auto kernel(const Batch&) const {
        const Gains gains{{discounts, longest}, kept, normalized != 0};
        return SoftRanks{gains, sigma, {nodes, count}, {shares, count}, steepness, normal != 0};
    }
};

}  // namespace rankstruct
