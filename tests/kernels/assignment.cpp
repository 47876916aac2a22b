// Each method for the positional map's assignment problem, whichever would be chosen.
#include "positional.hpp"
#include "space.hpp"

using namespace rankstruct;

template <class Use>
static Index with_sweep(const Assignment& problem, Use use) {
    return with_filled_space<SweepSpace>(use, problem.documents(), problem.gain.size);
}

// Returns the number of positions in `classes`, after which documents follow by score.
EXPORT Index usual(Span<const double> score, Span<const int> starts, Span<const int> group, Span<const double> gain,
                   Span<const double> c, Span<const double> a, Index k, Span<int> classes) {
    const Assignment problem{score, starts, group, gain, c, a, k};
    return with_sweep(problem, [&](SweepSpace& space) { return by_sweep(problem, classes, space); });
}

// The same by a sweep of all these positions from the greedy ranking.
EXPORT Index whole(Span<const double> score, Span<const int> starts, Span<const int> group, Span<const double> gain,
                   Span<const double> c, Span<const double> a, Index k, Span<int> classes) {
    const Assignment problem{score, starts, group, gain, c, a, k};
    return with_sweep(problem, [&](SweepSpace& space) {
        const Index ranks = first_by_score(problem, space.next);
        Index looks = Index(1) << 62;
        greedy(problem, ranks, classes, space);
        space.reserve(ranks, problem.classes());
        return Sweep(problem, ranks, classes, space).improve(-1, looks) ? ranks : -1;
    });
}

// By a sweep of the positions where the greedy ranking is wrong; -1 if these do not suffice.
EXPORT Index near(Span<const double> score, Span<const int> starts, Span<const int> group, Span<const double> gain,
                  Span<const double> c, Span<const double> a, Index k, Span<int> classes) {
    const Assignment problem{score, starts, group, gain, c, a, k};
    return with_sweep(problem, [&](SweepSpace& space) {
        const Index from = first_by_score(problem, space.next), ranks = least(from + 1, problem.documents());
        Index looks = Index(1) << 62;
        if (greedy(problem, ranks, classes, space)) return ranks;
        space.reserve(from, problem.classes());
        return Sweep(problem, from, classes, space).improve(from - 1, looks) ? from : Index(-1);
    });
}

// From the solution of a coarser problem.
EXPORT Index levels(Span<const double> score, Span<const int> starts, Span<const int> group, Span<const double> gain,
                    Span<const double> c, Span<const double> a, Index k, Span<int> classes) {
    const Assignment problem{score, starts, group, gain, c, a, k};
    return with_sweep(problem, [&](SweepSpace& space) {
        const Index ranks = first_by_score(problem, space.next);
        return by_levels(problem, ranks, classes, space) ? ranks : -1;
    });
}

EXPORT Index prices(Span<const double> score, Span<const int> starts, Span<const int> group, Span<const double> gain,
                    Span<const double> c, Span<const double> a, Index k, Span<int> classes) {
    const Assignment problem{score, starts, group, gain, c, a, k};
    return with_filled_space<PriceSpace>([&](PriceSpace& space) { return by_prices(problem, classes, space), group.size; }, group.size);
}

// Whether the greedy ranking of all positions is nested; computes `margin`.
EXPORT Index greedily(Span<const double> score, Span<const int> starts, Span<const int> group, Span<const double> gain,
                      Span<const double> c, Span<const double> a, Index k, Span<int> classes, Span<double> margin) {
    const Assignment problem{score, starts, group, gain, c, a, k};
    return with_sweep(problem, [&](SweepSpace& space) {
        const bool nested = greedy(problem, group.size, classes, space);
        for (Index i = 0; i < group.size; ++i) margin[i] = space.margin[i];
        return Index(nested);
    });
}

EXPORT Index by_score_from(Span<const double> score, Span<const int> starts, Span<const int> group, Span<const double> gain,
                           Span<const double> c, Span<const double> a, Index k) {
    const Assignment problem{score, starts, group, gain, c, a, k};
    return with_sweep(problem, [&](SweepSpace& space) { return first_by_score(problem, space.next); });
}

EXPORT Index chosen_method(Index n, Index classes, Index k, Index proportional) {
    return choose_method(n, classes, k, proportional != 0);
}
