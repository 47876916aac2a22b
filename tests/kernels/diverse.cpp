// Parts of the oracle of diverse rankings: the assignment of ranks to groups, the bounds for reciprocal rank, sorting what is shown.
#include "diverse.hpp"
#include "space.hpp"

using namespace rankstruct;

static void copy(Span<const int> from, Span<int> to) {
    for (Index i = 0; i < from.size; ++i) to[i] = from[i];
}

// A group for each rank of `column`, with room for so many numbers of the table.
template <class Worth>
static Index assign(const Worth& worth, Span<int> column, Index most_kept) {
    return with_space<GroupSpace>(
        [&](GroupSpace& space) {
            space.most_kept = most_kept;
            assign_groups(worth, column, space);
            return Index(0);
        },
        column.size, worth.groups);
}

static Competitors competitors(Arena& arena, Span<const int> group, Span<const double> score, Span<const double> gain, Index groups) {
    Competitors found(arena, group.size);
    for (Index j = found.count = 0; j < group.size; ++j, ++found.count) {
        found.document[j] = int(j);
        found.group[j] = group[j];
        found.score[j] = score[j];
        found.gain[j] = gain[j];
    }
    found.groups = groups;
    return found;
}

template <class Use>
static Index with_competitors(Span<const int> group, Span<const double> score, Span<const double> gain, Index groups, Use use) {
    Arena count;
    Competitors(count, group.size);
    Arena arena{static_cast<char*>(std::malloc(size_t(count.used + 1)))};
    const Index found = use(competitors(arena, group, score, gain, groups));
    std::free(arena.memory);
    return found;
}

// Competitors in any order, those of group 0 first of all and so on as they appear.
EXPORT Index assign_discounted(Span<const int> group, Span<const double> score, Span<const double> gain, Span<const double> c,
                               Span<const double> a, Index groups, double dearest, Index most_kept, Span<int> column) {
    return with_competitors(group, score, gain, groups, [&](const Competitors& competing) {
        return assign(DiscountedWorth{competing, c, a, groups, dearest}, column, most_kept);
    });
}

EXPORT Index assign_leading(Span<const double> top, Span<const double> irrelevant, Span<const double> c, Index lead, double dearest,
                            Index most_kept, Span<int> column) {
    return assign(LeadingWorth{top, irrelevant, c, top.size, lead, dearest}, column, most_kept);
}

// How many irrelevant documents lead in the best ranking, for competitors by descending score; fills the group of each rank, the
// bounds and, as `told`, the leaders, who joins them and the value of the best ranking that `bound_leads` knows, and that ranking.
EXPORT Index lead(Span<const int> group, Span<const double> score, Span<const double> gain, Index groups, Span<const double> c,
                  Span<const double> a, Span<int> column, Span<double> bound, Span<double> told, Span<int> merged) {
    return with_competitors(group, score, gain, groups, [&](const Competitors& competing) {
        return with_space<Leads>(
            [&](Leads& leads) {
                leads.c = c;
                leads.a = a;
                leads.split(competing);
                const Leads::Best best = leads.bound_leads();
                for (Index n = 0; n <= leads.last; ++n) bound[n] = leads.bound[n];
                told[0] = double(best.lead);
                told[1] = double(best.joined);
                told[2] = best.value;
                leads.merge(best.lead, best.joined, merged);
                return with_space<GroupSpace>(
                    [&](GroupSpace& space) { return leads.solve(competing, c, a, column, space); }, c.size, groups);
            },
            c.size, groups);
    });
}

// Sort documents shown at ranks of equal weight by score; `order` is all of them, a list by descending score.
EXPORT Index sort_shown(Span<const double> chosen, Span<const double> weights, Span<int> shown) {
    List list{};
    list.size = chosen.size;
    list.chosen = chosen;
    Diverse kernel{weights, weights, weights.size, 0, false, false, Diverse::IDEAL_TIED};
    return with_space<Diverse::Space>(
        [&](Diverse::Space& space) {
            kernel.sort_blocks(list, space, shown);
            return Index(0);
        },
        kernel, Batch{}, chosen.size);
}

// Fill `order` with the documents as the reference PREDICTED prefers them: by chosen score, then gain, then as they were given.
EXPORT Index prefer(Span<const double> chosen, Span<const double> gains, Span<const int> place, Span<int> order) {
    List list{};
    list.size = chosen.size;
    list.chosen = chosen;
    list.place = place;
    Diverse kernel{chosen, chosen, chosen.size, 0, false, false, Diverse::PREDICTED};
    return with_space<Diverse::Space>(
        [&](Diverse::Space& space) {
            copy(kernel.prefer(list, number_grades(gains, space.grades), space), order);
            return Index(0);
        },
        kernel, Batch{}, chosen.size);
}
