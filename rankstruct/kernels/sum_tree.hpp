// Sampling without replacement, with probabilities proportional to weights.
#pragma once

#include <bit>

#include "base.hpp"

namespace rankstruct {

// A binary tree of sums, with the root at 1 and the leaves from `leaves` on. A leaf is drawn from the root down; then the sums
// above it are recomputed, not decreased, so that no rounding error remains: O(log n).
struct SumTree {
    Room each;
    Index leaves = Index(std::bit_ceil(Bits64(each.count)));
    Span<double> whole = each(2 * leaves), left = each(2 * leaves);

    void fill(Span<const double> power) const {
        for (Index d = 0; d < leaves; ++d) whole[leaves + d] = d < power.size ? power[d] : 0.0;
        for (Index node = leaves - 1; node; --node) whole[node] = whole[2 * node] + whole[2 * node + 1];
    }

    // The positions of the first draws, given numbers in [0, 1).
    template <class Place>
    void draw(const double* uniform, Span<Place> drawn) const {
        for (Index node = 1; node < 2 * leaves; ++node) left[node] = whole[node];
        for (Place& place : drawn) {
            double rest = *uniform++ * left[1];
            Index node = 1;
            while (node < leaves) {
                node *= 2;
                if (rest >= left[node] && left[node + 1] > 0.0) rest -= left[node++];
            }
            place = Place(node - leaves);
            left[node] = 0.0;
            while (node /= 2) left[node] = left[2 * node] + left[2 * node + 1];
        }
    }
};

}  // namespace rankstruct
