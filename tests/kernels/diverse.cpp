// Parts of the oracle of diverse rankings: the assignment of ranks to groups, and the orders that references are made of.
#include "page_hinge.hpp"
#include "space.hpp"

using namespace rankstruct;

// Fill `columns` [leads + 1, ranks] with the best assignment, then with that where one rank leads, two, and so on, if `looks`
// [leads] says so. `lost` [leads] is the reported bound of each loss; `column` [ranks] is scratch. The table holds at most
// `most_numbers` numbers.
EXPORT Index assign(Span<const int> group, Span<const double> score, Span<const double> gain, Span<const double> decay,
                    Span<const double> discount, Index groups, double dearest, Index led, Index most_numbers, Span<const int> looks,
                    Span<double> lost, Span<int> column, Span<int> columns) {
    const Index ranks = column.size;
    return with_filled_space<GroupAssignment>(
        [&](GroupAssignment& assignment) {
            assignment.most_numbers = most_numbers;
            assignment.begin(GroupWorth{group, score, gain, decay, discount, groups, dearest, led != 0}, column);
            for (Index lead = 0; lead <= looks.size; ++lead) {
                if (lead) lost[lead - 1] = assignment.lead();
                if (lead && looks[lead - 1]) assignment.improve();
                for (Index i = 0; i < ranks; ++i) columns[lead * ranks + i] = column[i];
            }
            return Index(0);
        },
        ranks, groups);
}

template <class Use>
static Index with_kernel(Reference reference, Span<const double> weights, List list, Use use) {
    list.size = list.places = list.chosen.size;
    PageHinge kernel{};
    kernel.decay = kernel.discounts = weights;
    kernel.cutoff = weights.size;
    kernel.reference = reference;
    const auto call = [&](PageHinge::Space& space) { return use(kernel, list, space), Index(0); };
    return with_filled_space<PageHinge::Space>(call, list.size, kernel, Batch{});
}

// Sort documents shown at ranks of equal weight by score.
EXPORT Index sort_shown(Span<const double> chosen, Span<const double> weights, Span<int> shown) {
    List list{};
    list.chosen = chosen;
    return with_kernel(IDEAL_TIED, weights, list, [&](const PageHinge& kernel, const List& list, PageHinge::Space& space) {
        kernel.sort_blocks(list, space, shown);
    });
}

// Fill `order` with the documents in the order of the predicted reference: by chosen score, then gain, then input order.
EXPORT Index prefer(Span<const double> chosen, Span<const double> gains, Span<const int> place, Span<int> order) {
    List list{};
    list.chosen = chosen;
    list.place = place;
    return with_kernel(PREDICTED, chosen, list, [&](const PageHinge& kernel, const List& list, PageHinge::Space& space) {
        const Span<int> preferred = kernel.prefer(list, number_grades(gains, space.grades), space);
        for (Index i = 0; i < order.size; ++i) order[i] = preferred[i];
    });
}
