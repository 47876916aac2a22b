// Scores by trees.
#include "space.hpp"
#include "trees.hpp"

using namespace rankstruct;

template <class T>
static Index scored(Span<const T> rows, Index width, Span<const double> threshold, Span<const int> branch, Span<const Index> root,
                    Span<const Index> feature, Span<const double> at_missing, Span<const double> at_zero, Span<const Index> bounds,
                    Span<const unsigned char> member, double zero, Index single, Span<double> scores) {
    const Span<const Branch> branches{reinterpret_cast<const Branch*>(branch.data), branch.size / 2};
    const Forest forest{threshold, branches, root, feature, at_missing, at_zero, bounds, member, zero, single != 0};
    return forest.score(rows.data, width, scores.size, scores.data);
}

EXPORT Index score_floats(Span<const float> rows, Index width, Span<const double> threshold, Span<const int> branch,
                          Span<const Index> root, Span<const Index> feature, Span<const double> at_missing, Span<const double> at_zero,
                          Span<const Index> bounds, Span<const unsigned char> member, double zero, Index single, Span<double> scores) {
    return scored(rows, width, threshold, branch, root, feature, at_missing, at_zero, bounds, member, zero, single, scores);
}

EXPORT Index score_doubles(Span<const double> rows, Index width, Span<const double> threshold, Span<const int> branch,
                           Span<const Index> root, Span<const Index> feature, Span<const double> at_missing, Span<const double> at_zero,
                           Span<const Index> bounds, Span<const unsigned char> member, double zero, Index single, Span<double> scores) {
    return scored(rows, width, threshold, branch, root, feature, at_missing, at_zero, bounds, member, zero, single, scores);
}
