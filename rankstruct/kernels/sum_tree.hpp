// Numbers of which one after another is drawn by chance and taken out.
#pragma once

#include "base.hpp"

namespace rankstruct {

// A binary tree of sums, the root 1, the leaves behind one another from `leaves` on. A number is drawn by its share, from the
// root down, and the sums above it are added anew, so that no rounding is left of it: O(log n).
struct SumTree {
    Index leaves = 1;
    Span<double> whole, left;

    KERNEL SumTree(Arena& arena, Index n) {
        while (leaves < n) leaves *= 2;
        whole = arena.take<double>(2 * leaves);
        left = arena.take<double>(2 * leaves);
    }

    KERNEL void fill(Span<const double> power) const {
        for (Index d = 0; d < leaves; ++d) whole[leaves + d] = d < power.size ? power[d] : 0.0;
        for (Index node = leaves - 1; node; --node) whole[node] = whole[2 * node] + whole[2 * node + 1];
    }

    // The places of the first that are drawn, by as many numbers in [0, 1).
    template <class Place>
    KERNEL void draw(const double* uniform, Span<Place> drawn) const {
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
