// Vectorised sums and maxima.
#pragma once

#include "base.hpp"

namespace rankstruct {

constexpr int LANES = 8;

// Fold `term(i)` for i from 0 to count - 1, starting with `empty`; lane l has the terms i = l, l + lanes, ...
//
// A term must read the same numbers whatever they are: of terms such as `a[i] > 0 ? b[i] : 0`, GCC 12 with AVX2 leaves out every
// other four. A product, b[i] * double(a[i] > 0), is right.
template <int lanes = LANES, class Fold, class Term>
inline double fold(Index count, double empty, Fold fold, Term term) {
    double lane[lanes];
    for (double& each : lane) each = empty;
    Index i = 0;
    for (; i + lanes <= count; i += lanes)
        for (int l = 0; l < lanes; ++l) lane[l] = fold(lane[l], term(i + l));
    for (int width = lanes / 2; width; width /= 2)
        for (int l = 0; l < width; ++l) lane[l] = fold(lane[l], lane[l + width]);
    for (; i < count; ++i) lane[0] = fold(lane[0], term(i));
    return lane[0];
}

template <class Term>
inline double sum_of(Index count, Term term) {
    return fold(count, 0.0, [](double a, double b) { return a + b; }, term);
}

template <class Term>
inline double highest_of(Index count, Term term) {
    return fold(count, -INFINITE, [](double a, double b) { return a < b ? b : a; }, term);
}

inline double sum(Span<const double> values) {
    const double* its = values.data;
    return sum_of(values.size, [=](Index i) { return its[i]; });
}

inline double dot(Span<const double> a, Span<const double> b) {
    const double *of_a = a.data, *of_b = b.data;
    return sum_of(a.size, [=](Index i) { return of_a[i] * of_b[i]; });
}

// The sums of the first 0, 1, ... values.
inline void sum_up(Span<const double> values, Span<double> sums) {
    sums[0] = 0.0;
    for (Index i = 0; i < values.size; ++i) sums[i + 1] = sums[i] + values[i];
}

}  // namespace rankstruct
