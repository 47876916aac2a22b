// Each method of the positional map's assignment problem, whichever would be chosen; `Solved` as from, or -1 - from where the places are known.
#include "positional.hpp"
#include "space.hpp"

using namespace rankstruct;

static Index told(Solved solved) { return solved.known ? -1 - solved.from : solved.from; }

EXPORT Index lattice(Span<const double> class_score, Span<const Index> starts, Span<const Index> group, Span<const double> score,
                     Span<const double> gain, Span<const double> c, Span<const double> a, Index k, Span<Index> classes,
                     Span<double> margin, Span<Index> places) {
    return with_space<LatticeSpace>(
        [&](LatticeSpace& space) {
            return told(by_lattice(class_score, starts, group, score, gain, c, a, k, classes, margin, places, space));
        },
        group.size);
}

// With room for the sweep of as many positions as a list without a cut-off has; `looks` as by_sweep takes it.
EXPORT Index sweep(Span<const double> class_score, Span<const Index> starts, Span<const Index> group, Span<const double> gain,
                   Span<const double> c, Span<const double> a, Index k, Index looks, Span<Index> classes, Span<Index> places) {
    return with_space<SweepSpace>(
        [&](SweepSpace& space) { return told(by_sweep(class_score, starts, group, gain, c, a, k, looks, classes, places, space)); },
        group.size, gain.size, k);
}

EXPORT Index prices(Span<const double> score, Span<const Index> group, Span<const double> gain, Span<const double> c,
                    Span<const double> a, Span<Index> classes) {
    return with_space<PriceSpace>(
        [&](PriceSpace& space) {
            by_prices(score, group, gain, c, a, classes, space);
            return group.size;
        },
        group.size);
}

// Whether the greedy ranking of k positions is nested; `margin` [k] and `places` [n] are filled.
EXPORT Index greedily(Span<const double> class_score, Span<const Index> starts, Span<const double> gain, Span<const double> c,
                      Span<const double> a, Index k, Span<Index> classes, Span<double> margin, Span<Index> places,
                      Span<Index> pointer, Span<double> edges) {
    return greedy(classes, k, class_score, starts, gain, c, a, pointer, margin, places, edges);
}

EXPORT Index by_score_from(Span<const double> class_score, Span<const Index> starts, Span<const Index> group,
                           Span<const double> gain, Span<const double> c, Span<const double> a, Span<Index> pointer) {
    return first_by_score(class_score, starts, group, gain, c, a, pointer);
}

EXPORT Index chosen_method(Index n, Index classes, Index k, Index proportional) {
    return choose_method(n, classes, k, proportional != 0);
}
