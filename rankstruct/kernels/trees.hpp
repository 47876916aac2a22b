// Scores of documents by a sum of binary trees, as boosting grows them.
//
// A document goes left where its value in a column is not above the threshold of a node. Columns are features as nodes compare
// them: a feature that is missing becomes what sends it to the side the node has for it, -infinity or NaN, and so do categories, with
// a column for each set of them. So a step is one comparison, whatever the node. The right child comes behind the left one,
// and a leaf is its own left child, with a column that is always -infinity: a step at a leaf stays there. Children come behind
// their parents, so every descent ends.
//
// LANES documents descend a tree side by side until none of them moves. Their steps do not depend on one another, and nothing
// branches on a comparison, which no processor could foresee. Cost: for LANES documents and a tree, LANES times the longest of
// their paths. The trees are added in their order, so that the sum has the rounding of the library that grew them.
#pragma once

#include "base.hpp"

namespace rankstruct {

// A leaf has the column behind all others, and is its own left child.
struct Branch {
    int column, left;
};

struct Forest {
    static constexpr Index LANES = 16, GROUPS = 4, BLOCK = LANES * GROUPS;  // documents
    using Values = double[LANES];                                          // a column of some documents

    Span<const double> threshold;  // of a leaf its score
    Span<const Branch> branch;
    Span<const Index> root;
    // Per column.
    Span<const Index> feature;
    Span<const double> at_missing, at_zero;  // what takes the place of a missing feature, and of one that counts as zero
    Span<const Index> bounds;                // one more: the first category of each column, none if it is numeric
    Span<const unsigned char> member;        // whether categories 0, 1, ... go left; others go right
    double zero;                             // features of this size or less count as zero; below 0: none does
    Index single;                            // whether features are rounded to float32 first

    // Scores of `count` documents with features [count, width]; returns -1 or OUT_OF_MEMORY.
    template <class T>
    Index score(const T* features, Index width, Index count, double* scores) const {
        Growing<Values> scratch;
        const Index columns = feature.size + 1;
        if (!scratch.reserve(GROUPS * columns)) return OUT_OF_MEMORY;
        for (Index first = 0; first < count; first += BLOCK) {
            const Index documents = least(BLOCK, count - first), groups = (documents + LANES - 1) / LANES;
            const Span<Values> values = scratch.first(groups * columns);
            double sum[BLOCK] = {};
            for (Index g = 0; g < groups; ++g) {
                const Index start = g * LANES;
                const Span<const T> rows{features + (first + start) * width, least(LANES, documents - start) * width};
                fill(rows, width, values.slice(g * columns, (g + 1) * columns));
            }
            // A tree stays in the first cache for all groups.
            for (const Index top : root)
                for (Index g = 0; g < groups; ++g) descend(top, values.slice(g * columns, (g + 1) * columns), sum + g * LANES);
            for (Index i = 0; i < documents; ++i) scores[first + i] = sum[i];
        }
        return -1;
    }

  private:
    // Columns of at most LANES documents; the last document takes the lanes that are left.
    template <class T>
    void fill(Span<const T> rows, Index width, Span<Values> values) const {
        const Index documents = rows.size / width;
        for (Index c = 0; c < feature.size; ++c) {
            for (Index i = 0; i < LANES; ++i) {
                const T given = rows[least(i, documents - 1) * width + feature[c]];
                double value = single ? double(float(given)) : double(given);
                value = std::fabs(value) <= zero ? at_zero[c] : value;
                values[c][i] = value != value ? at_missing[c] : value;
            }
            const Span<const unsigned char> members = member.slice(bounds[c], bounds[c + 1]);
            if (!members.size) continue;
            for (double& value : values[c]) {
                const bool known = value > -1.0 && value < double(members.size);
                value = known && members[Index(value)] ? -INFINITE : INFINITE;
            }
        }
        for (double& value : values[feature.size]) value = -INFINITE;
    }

    void descend(Index top, Span<Values> values, double* sum) const {
        Index at[LANES];
        for (Index& node : at) node = top;
        for (Index moved = 1; moved;) {
            moved = 0;
            for (int step = 0; step < 2; ++step)
                for (Index i = 0; i < LANES; ++i) {
                    const Branch here = branch[at[i]];
                    const Index next = here.left + !(values[here.column][i] <= threshold[at[i]]);
                    moved |= next ^ at[i];
                    at[i] = next;
                }
        }
        for (Index i = 0; i < LANES; ++i) sum[i] += threshold[at[i]];
    }
};

}  // namespace rankstruct
