// Most violated diverse rankings: at most one document of a group among the first k ranks.
//
// With G groups, m = min(k, G) documents are shown, at the ranks 1 to m; all others have no discount and no decay. The most
// violated ranking is an assignment of the m ranks to groups: rank i gets from a group its document with the largest
// c_i s - a_i b. Reciprocal rank is no sum over ranks: there is an assignment for each number of irrelevant documents that lead.
#pragma once

#include "binary.hpp"
#include "grades.hpp"
#include "group_assignment.hpp"

namespace rankstruct {

// The documents of a list that compete for m ranks, by descending score: another one is of no use, since m groups, or its own
// group, have one of no lower score and no higher gain. The groups that have one are numbered as they appear.
struct Competitors {
    Span<int> document, group;
    Span<double> score, gain;
    Index count, groups;

    KERNEL Competitors(Arena& arena, Index longest)
        : document(arena.take<int>(longest)),
          group(arena.take<int>(longest)),
          score(arena.take<double>(longest)),
          gain(arena.take<double>(longest)),
          count(0),
          groups(0) {}

    // `group_of` are the list's documents' groups, and gains become so many units. Grades are numbered from the highest gain: m
    // groups have a document of grade `useless` or behind it. `latest` [groups], of each its last competitor, and `groups_of`
    // [grades], how many of these are of each, are filled. O(n + grades).
    KERNEL void find(const List& list, const Grades& grades, Span<const int> group_of, Index m, double unit, Span<int> latest,
                     Span<int> groups_of) {
        latest.fill(-1);
        groups_of.fill(0);
        count = groups = 0;
        int useless = -1;
        Index better = 0;  // groups whose last competitor's grade is behind it
        for (Index r = 0; r < list.size && useless < grades.count() - 1; ++r) {
            const int grade = grades.number[r];
            if (grade <= useless) continue;
            const int before = latest[group_of[r]];
            const int its_grade = before == -1 ? -1 : grades.number[document[before]];
            const bool is_tied = before != -1 && list.score[r] == score[before];
            if (is_tied ? grade < its_grade : grade <= its_grade) continue;  // of equal documents the last one competes
            const Index at = is_tied ? before : count++;
            group[at] = before == -1 ? int(groups++) : group[before];
            document[at] = int(r);
            score[at] = list.score[r];
            gain[at] = list.label[r] / unit;
            latest[group_of[r]] = int(at);
            better += its_grade <= useless;
            if (its_grade != -1) --groups_of[its_grade];
            ++groups_of[grade];
            while (better >= m) better -= groups_of[++useless];
        }
    }
};

// What a rank gets from a group where the measure is a sum.
struct DiscountedWorth {
    const Competitors& competing;
    Span<const double> c, a;
    Index groups;
    double dearest;

    KERNEL double of(Index rank, Index j) const { return c[rank] * competing.score[j] - a[rank] * competing.gain[j]; }

    KERNEL void fill_row(Index rank, Span<double> value) const {
        value.fill(-INFINITE);
        for (Index j = 0; j < competing.count; ++j) {
            double& its = value[competing.group[j]];
            its = most(its, of(rank, j));
        }
    }

    KERNEL void fill_columns(Index ranks, Span<double> value) const {
        int known = 0;  // groups
        for (Index j = 0; j < competing.count; ++j) {
            const int g = competing.group[j];
            double* const its = value.slice(g * ranks, (g + 1) * ranks).data;
            const double *decay = c.data, *discount = a.data, score = competing.score[j], gain = competing.gain[j];
            if (g == known) {
                for (Index i = 0; i < ranks; ++i) its[i] = decay[i] * score - discount[i] * gain;
                ++known;
            } else {
                for (Index i = 0; i < ranks; ++i) its[i] = most(its[i], decay[i] * score - discount[i] * gain);
            }
        }
    }
};

// What it gets for reciprocal rank, if so many irrelevant documents lead.
struct LeadingWorth {
    Span<const double> top, irrelevant;  // of each group, the highest score, and that of its irrelevant ones or minus infinity
    Span<const double> c;
    Index groups, lead;
    double dearest;

    KERNEL double score(Index rank, Index g) const { return rank < lead ? irrelevant[g] : top[g]; }
    KERNEL double of(Index rank, Index g) const {
        const double its = score(rank, g);
        return its == -INFINITE ? its : c[rank] * its;  // c may be 0
    }

    KERNEL void fill_row(Index rank, Span<double> value) const {
        for (Index g = 0; g < groups; ++g) value[g] = of(rank, g);
    }

    KERNEL void fill_columns(Index ranks, Span<double> value) const {
        for (Index g = 0; g < groups; ++g)
            for (Index i = 0; i < ranks; ++i) value[g * ranks + i] = of(i, g);
    }
};

// The ranking of reciprocal rank that is most violated: the best over how many irrelevant documents lead.
//
// With `lead` of them, the next rank is charged as if a relevant document stood there, and any may: where it is an irrelevant
// one, the ranking was charged too much, and is charged less when one more of them leads. Some assignment is allowed if `lead`
// groups have an irrelevant document. The more of them lead, the fewer rankings are allowed, so that the sum for fewer bounds
// that for more.
//
// `plain` are the groups whose highest document is irrelevant, `mixed` the others, both by descending score. A plain group is
// worth the same on either side of the last leader, so that these stand by score throughout, and of the rankings in which one
// mixed group at most joins the leaders the best is known (`bound_leads`). Few numbers of leaders promise more.
struct Leads {
    static constexpr double lowest = -1e301;

    Span<double> top, irrelevant;                          // of each group, as in LeadingWorth
    Span<double> mixed_top, mixed_irrelevant, mixed_gain;  // of each of `mixed`; the last is what it gains by leading
    Span<double> base, bound;                              // by rank; by number of leaders
    Span<int> found, order;                                // by rank; the groups, first the plain ones
    // Of one list.
    Span<const double> c, a;  // [m]
    Span<int> plain, mixed;
    Index last = 0;  // as many can lead

    KERNEL Leads(Arena& arena, Index ranks, Index groups)
        : top(arena.take<double>(groups)),
          irrelevant(arena.take<double>(groups)),
          mixed_top(arena.take<double>(groups)),
          mixed_irrelevant(arena.take<double>(groups)),
          mixed_gain(arena.take<double>(groups)),
          base(arena.take<double>(ranks)),
          bound(arena.take<double>(ranks + 1)),
          found(arena.take<int>(ranks)),
          order(arena.take<int>(2 * groups)) {}

    // Fill `column` with the group of each rank; returns how many irrelevant documents lead. Sums are compared with that where
    // none does, rank by rank, in which far lower scores that all rankings show cancel. As many leaders as can be are tried
    // first, where the highest groups are the best.
    KERNEL Index solve(const Competitors& competing, Span<const double> decay, Span<const double> weights, Span<int> column,
                       GroupSpace& space) {
        c = decay;
        a = weights;
        split(competing);
        merge(0, -1, column);
        for (Index i = 0; i < m(); ++i) base[i] = top[column[i]];
        const Best best = bound_leads();
        Index lead = best.lead;
        double largest = best.value, least_led = 0.0;
        merge(lead, best.joined, column);
        for (Index step = 0; step < last; ++step) {
            const Index leaders = step ? step : last;
            const double charge = leaders < m() ? a[leaders] : 0.0;
            if (least(least_led, bound[leaders]) - charge <= largest) continue;
            const LeadingWorth worth{top, irrelevant, c, competing.groups, leaders, a[0]};
            if (leaders == last)
                lead_with_all(competing);
            else
                assign_groups(worth, found.first(m()), space);
            double total = 0.0;
            for (Index i = 0; i < m(); ++i) total += c[i] * (worth.score(i, found[i]) - base[i]);
            if (leaders < last) least_led = total;
            if (total - charge > largest) {
                largest = total - charge;
                lead = leaders;
                for (Index i = 0; i < m(); ++i) column[i] = found[i];
            }
        }
        return lead;
    }

  private:
    struct Best {
        Index lead;
        int joined;  // of the mixed groups, or -1
        double value;
    };

    KERNEL Index m() const { return c.size; }

    // Find what is known of each group. O(competitors).
    KERNEL void split(const Competitors& competing) {
        const Index groups = competing.groups;
        Index known = 0, plains = 0, irrelevants = 0;
        irrelevant.first(groups).fill(-INFINITE);
        for (Index j = 0; j < competing.count; ++j) {
            const int g = competing.group[j];
            const bool is_irrelevant = competing.gain[j] <= 0.0;
            if (is_irrelevant) irrelevant[g] = competing.score[j];
            irrelevants += is_irrelevant;
            if (g < known) continue;
            top[g] = competing.score[j];
            order[is_irrelevant ? plains : groups + known - plains] = g;
            plains += is_irrelevant;
            ++known;
        }
        plain = order.first(plains);
        mixed = order.slice(groups, 2 * groups - plains);
        last = least(m(), irrelevants);
    }

    // The highest irrelevant documents, and if too few groups have one, the highest of the others.
    KERNEL void lead_with_all(const Competitors& competing) const {
        Index rank = 0;
        for (Index j = 0; j < competing.count && rank < last; ++j)
            if (competing.gain[j] <= 0.0) found[rank++] = competing.group[j];
        for (const int g : mixed)
            if (rank < m() && irrelevant[g] == -INFINITE) found[rank++] = g;
    }

    // Fill `column` with the best ranking where so many plain groups lead, or one less and `joined`.
    KERNEL void merge(Index lead, int joined, Span<int> column) const {
        bool to_join = joined != -1;
        Index p = 0, q = 0;
        for (Index i = 0; i < m(); ++i) {
            if (i < lead) {
                const bool joins = to_join && (p == lead - 1 || irrelevant[joined] > top[plain[p]]);
                column[i] = joins ? joined : plain[p++];
                to_join = to_join && !joins;
                continue;
            }
            if (q < mixed.size && mixed[q] == joined) ++q;
            const bool is_mixed = q < mixed.size && (p == plain.size || top[mixed[q]] > top[plain[p]]);
            column[i] = is_mixed ? mixed[q++] : plain[p++];
        }
    }

    struct Joining {
        double best;     // what the mixed group that gains most gains by leading, at least 0
        Index which;     // which that is, or -1
        double room;     // the sum of all gains above 0
        double follows;  // what the first is worth as a follower
    };

    // For so many leaders, of the first `count` mixed groups, those above the last leader's score. `mixed_gain` is what each is
    // worth as a leader: for one leader less up to now, when the last score was `before`.
    KERNEL Joining find_joining(Index lead, Index count, double last_score, double before) const {
        Joining joining{0.0, -1, 0.0, 0.0};
        double below = last_score;
        for (Index j = count - 1; j >= 0; --j) {
            if (lead + j < m()) joining.follows += c[lead + j] * (mixed_top[j] - below);
            below = mixed_top[j];
            const double its = mixed_irrelevant[j];
            mixed_gain[j] = (its > before ? mixed_gain[j] : 0.0) + c[lead - 1] * (least(its, before) - last_score);
            const double more = mixed_gain[j] - joining.follows;
            joining.room += most(more, 0.0);
            if (more > joining.best) {
                joining.best = more;
                joining.which = j;
            }
        }
        return joining;
    }

    // The best of the rankings of `merge`. `bound` is filled with what no ranking of so many leaders exceeds before the charge.
    //
    // Prices show what the best ranking with no mixed group among the leaders lacks. With t the last leader's score, a leader of
    // score s is worth the integral from t to s of the decay of the next leader above, and a follower that of the next follower
    // below; what a group gains by leading is the difference. For one group that is had, and for several no more than the sum;
    // only those above t can gain. Values are those above the best ranking without leaders: one leader more takes its rank from
    // the first of the mixed groups, which all move down. O(leaders mixed).
    KERNEL Best bound_leads() const {
        for (Index j = 0; j < mixed.size; ++j) {
            mixed_top[j] = top[mixed[j]];
            mixed_irrelevant[j] = most(irrelevant[mixed[j]], lowest);
        }
        const Index end = least(plain.size, last - 1);
        Index lead = 0;
        while (lead < end && (!mixed.size || top[plain[lead]] >= mixed_top[0])) bound[++lead] = 0.0;  // these lead anyway
        Best best{lead, -1, -a[lead]};
        double total = 0.0, largest = 0.0, before = INFINITE;
        Index above = 0, n = lead + 1;
        for (; n <= end && largest > best.value; ++n) {
            const double last_score = top[plain[n - 1]];
            if (last_score < -PRECISE * a[0]) break;  // sums that rounding may have changed
            while (above < mixed.size && mixed_top[above] > last_score) ++above;
            const Joining joining = find_joining(n, above, last_score, before);
            total += joining.follows - c[n - 1] * (mixed_top[0] - last_score);
            before = last_score;
            largest = least(largest, total + joining.room);
            bound[n] = largest;
            const double value = total + joining.best - a[n];
            if (value > best.value) best = {n, joining.which == -1 ? -1 : mixed[joining.which], value};
        }
        for (; n <= last; ++n) bound[n] = largest;
        return best;
    }
};

// The kernel. Labels are gains, of reciprocal rank 1 or 0; c is the decay, a the discount.
struct Diverse {
    static constexpr double widest = 1e301;  // no sum of as many scores as there are ranks overflows
    enum Reference : int { IDEAL, IDEAL_TIED, PREDICTED };

    Span<const double> decay, weights;  // [longest list]
    Index cutoff;                       // ranks with a discount above 0
    // 0; or the cut-off of each list is the first rank at which the ideal ranking gains less than at its first, but this at least
    // (mWTA).
    Index least_cutoff;
    bool normalized;  // whether a list's measure is divided by its best value
    bool reciprocal;  // whether the measure is the discount of the first rank with a gain above 0, not a sum
    Reference reference;

    struct Space {
        GradeSpace grades;
        Span<int> group;                      // of each document
        Span<int> heads, first, following;    // of the hash table of groups; the first document of each
        Span<int> preferred, by_gain, spare;  // orders of the documents
        Span<int> of_group, of_grade;         // whatever is counted or looked up
        Span<int> chosen, shown, column;      // of each rank
        Span<int> leaders;
        Span<double> worth;
        Competitors competing;
        Leads leads;
        GroupSpace assignment;

        KERNEL Space(Arena& arena, const Diverse& kernel, const Batch&, Index longest)
            : Space(arena, longest, least(most(kernel.cutoff, Index(1)), longest), kernel.reciprocal) {}

      private:
        KERNEL Space(Arena& arena, Index longest, Index ranks, bool reciprocal)
            : grades(arena, longest),
              group(arena.take<int>(longest)),
              heads(arena.take<int>(4 * longest)),
              first(arena.take<int>(longest)),
              following(arena.take<int>(longest)),
              preferred(arena.take<int>(longest)),
              by_gain(arena.take<int>(longest)),
              spare(arena.take<int>(longest)),
              of_group(arena.take<int>(longest)),
              of_grade(arena.take<int>(longest)),
              chosen(arena.take<int>(ranks)),
              shown(arena.take<int>(ranks)),
              column(arena.take<int>(ranks)),
              leaders(arena.take<int>(2 * (ranks + 1))),
              worth(arena.take<double>(ranks)),
              competing(arena, longest),
              leads(arena, reciprocal ? ranks : 0, reciprocal ? longest : 0),
              assignment(arena, ranks, longest) {}
    };

    // About O(n) after the sort, and an assignment of m ranks to at most m groups a grade; for reciprocal rank O(n + m^2), and
    // such an assignment for each number of leaders that promises more.
    KERNEL Index solve(List& list, Space& space) const {
        const Grades grades = number_grades(list.label, space.grades);
        const double lowest = -widest / most(decay[0], 1.0);  // of scores times the decay too
        if (list.score[list.size - 1] < lowest || grades.value[grades.count() - 1] < 0.0) return first_wrong(list, lowest);
        if (grades.count() == 1) return -1;
        const Index groups = number_groups(list.group, space);
        const Index m = count_shown(grades, groups, space);
        if (m == 0 || (m == groups && weights[0] == weights[m - 1] && is_alike(grades, space))) return -1;
        const Span<int> chosen = space.chosen.first(m), shown = space.shown.first(m);
        const double best = show_reference(list, grades, groups, space, chosen);
        if (best <= 0.0) return -1;
        const double unit = normalized ? best : 1.0;
        show_most_violated(list, grades, groups, unit, space, shown);

        double difference = 0.0;
        for (Index i = 0; i < m; ++i) {
            difference += decay[i] * (list.score[shown[i]] - list.score[chosen[i]]);
            list.coefficient[shown[i]] += decay[i];
            list.coefficient[chosen[i]] -= decay[i];
        }
        list.task_loss = most(best - measure(list, shown), 0.0) / unit;
        list.value = most(list.task_loss + difference, 0.0);
        return -1;
    }

  private:
    // Of the documents with a gain below 0 or a score too low, of which there is one, the first as the list was given.
    KERNEL static Index first_wrong(const List& list, double lowest_score) {
        Index wrong = -1;
        for (Index r = 0; r < list.size; ++r)
            if ((list.label[r] < 0.0 || list.score[r] < lowest_score) && (wrong == -1 || list.place[r] < list.place[wrong]))
                wrong = r;
        return wrong;
    }

    // What the measure makes of documents shown.
    KERNEL double measure(const List& list, Span<const int> shown) const {
        double sum = 0.0;
        for (Index i = 0; i < shown.size; ++i) {
            if (reciprocal && list.label[shown[i]] > 0.0) return weights[i];
            sum += weights[i] * list.label[shown[i]];
        }
        return sum;
    }

    // Number the groups in the order of their first documents; returns how many there are. By a hash table of chains with 2^bits
    // heads, at least 2 n: the halves of a name are multiplied, by numbers from the golden ratio and e, so that its hash has bits
    // of all. About O(n).
    KERNEL static Index number_groups(Span<const Index> name, Space& space) {
        int bits = 0;
        while (Index(1) << bits < 2 * name.size) ++bits;
        const Span<int> heads = space.heads.first(Index(1) << bits);
        heads.fill(-1);
        int groups = 0;
        for (Index r = 0; r < name.size; ++r) {
            const Bits64 own = Bits64(name[r]), mixed = (own & 0xFFFFFFFF) * 0x9E3779B9 ^ (own >> 32) * 0xB7E15163;
            int& head = heads[Index(mixed >> (32 - bits)) & (heads.size - 1)];
            int g = head;
            while (g != -1 && name[space.first[g]] != name[r]) g = space.following[g];
            if (g == -1) {
                g = groups++;
                space.first[g] = int(r);
                space.following[g] = head;
                head = g;
            }
            space.group[r] = g;
        }
        return groups;
    }

    // How many documents are shown; mWTA counts the groups that have the highest gain.
    KERNEL Index count_shown(const Grades& grades, Index groups, Space& space) const {
        const Index m = least(cutoff, groups);
        if (!least_cutoff) return m;
        Index count = 0;
        const Span<int> counted = space.of_group.first(groups);
        counted.fill(0);
        for (Index r = 0; r < grades.number.size; ++r) {
            int& its = counted[space.group[r]];
            const bool counts = !its && grades.number[r] == 0;
            count += counts;
            its |= counts;
        }
        return least(m, most(count + 1, least_cutoff));
    }

    // Whether the documents of each group have one gain.
    KERNEL static bool is_alike(const Grades& grades, const Space& space) {
        bool alike = true;
        for (Index r = 0; r < grades.number.size; ++r) alike &= grades.number[r] == grades.number[space.first[space.group[r]]];
        return alike;
    }

    KERNEL static Span<const double> chosen_score(const List& list) { return list.chosen.size ? list.chosen : list.score; }

    // Fill `chosen` with the reference; returns the best value. O(n), and a sort where other scores choose or some tie.
    KERNEL double show_reference(const List& list, const Grades& grades, Index groups, Space& space, Span<int> chosen) const {
        const Span<int> preferred = prefer(list, grades, space);
        if (!reciprocal || reference == IDEAL) {
            split_by_gain(preferred, grades, space);
            show_first(space.by_gain.first(list.size), groups, space, chosen);
        }
        const double best = reciprocal ? weights[0] : measure(list, chosen);
        if (best <= 0.0 || reference == IDEAL) return best;
        if (reference == PREDICTED)
            show_first(preferred, groups, space, chosen);
        else if (reciprocal)
            lead_with_relevant(list, grades, preferred, groups, space, chosen);
        else
            sort_blocks(list, space, chosen);
        return best;
    }

    // The documents in the order in which the reference prefers those of one gain: as the list was given, or by the scores that
    // choose it and then as given. Where it does not look at gains first, those of one score are ordered by gain.
    KERNEL Span<int> prefer(const List& list, const Grades& grades, Space& space) const {
        const bool by_score = reference != IDEAL, own = !list.chosen.size, gains_first = reference != PREDICTED && !reciprocal;
        if (by_score && own)
            for (Index r = 0; r < list.size; ++r) space.preferred[r] = int(r);
        else
            order_as_given(list, space.preferred);
        const bool breaks_ties = by_score && !gains_first && (!own || any_tied(list.score));
        if (breaks_ties) {
            split_by_gain(space.preferred.first(list.size), grades, space);
            exchange(space.preferred, space.by_gain);
        }
        const Span<int> preferred = space.preferred.first(list.size);
        if (by_score && (!own || breaks_ties)) sort_by(chosen_score(list), preferred, space);
        return preferred;
    }

    // Fill `order` with the documents as the list was given.
    KERNEL static void order_as_given(const List& list, Span<int> order) {
        Index end = 0, count = 0;
        for (const int place : list.place) end = most(end, Index(place) + 1);
        order.first(end).fill(-1);
        for (Index r = 0; r < list.size; ++r) order[list.place[r]] = int(r);
        for (Index i = 0; i < end; ++i) {
            const int rank = order[i];  // or -1, of padding
            order[count] = rank;
            count += rank >= 0;
        }
    }

    // Fill `by_gain` with the documents by descending gain, those of one gain in the order given.
    KERNEL static void split_by_gain(Span<const int> order, const Grades& grades, Space& space) {
        for (Index g = 0; g < grades.count(); ++g) space.of_grade[g] = grades.starts[g];
        for (const int r : order) space.by_gain[space.of_grade[grades.number[r]]++] = r;
    }

    // Sort documents by descending score, those of one score as they are.
    KERNEL static void sort_by(Span<const double> score, Span<int> documents, Space& space) {
        const Span<double> key = space.grades.sort.value.first(documents.size);
        for (Index i = 0; i < documents.size; ++i) {
            key[i] = score[documents[i]];
            space.spare[i] = documents[i];
        }
        const Span<int> order = sort_descending<double>(key, space.grades.sort);
        for (Index i = 0; i < documents.size; ++i) documents[i] = space.spare[order[i]];
    }

    // Fill `shown` with the first document of each group.
    KERNEL static void show_first(Span<const int> order, Index groups, Space& space, Span<int> shown) {
        const Span<int> seen = space.of_group.first(groups);
        seen.fill(0);
        Index count = 0;
        for (Index i = 0; count < shown.size; ++i) {
            int& its = seen[space.group[order[i]]];
            shown[count] = order[i];
            count += !its;
            its = 1;
        }
    }

    // Sort the documents shown at ranks of equal discount by the scores that choose.
    KERNEL void sort_blocks(const List& list, Space& space, Span<int> shown) const {
        for (Index begin = 0, end; begin < shown.size; begin = end) {
            for (end = begin + 1; end < shown.size && weights[end] == weights[begin];) ++end;
            if (end > begin + 1) sort_by(chosen_score(list), shown.slice(begin, end), space);
        }
    }

    // Fill `shown` with the ranking that F prefers of those that begin with a relevant document.
    //
    // Without one in the lead, the first documents of m groups are shown, the heads. The leader is the highest relevant document
    // of some group: the highest of all need not be, since it hides the others of its group. What it adds to F is counted from
    // the heads: those before the one that it hides, if it does, move down by a rank. O(n).
    KERNEL void lead_with_relevant(const List& list, const Grades& grades, Span<const int> preferred, Index groups, Space& space,
                                   Span<int> shown) const {
        const Index m = shown.size;
        const Span<const double> score = chosen_score(list);
        const Span<int> heads = space.shown.first(m), rank_of = space.of_group.first(groups);
        show_first(preferred, groups, space, heads);
        // The first relevant document, and beside it the first irrelevant one, of each head's group and of the others together.
        const Span<int> leaders = space.leaders.first(2 * (m + 1));
        leaders.fill(-1);
        rank_of.fill(int(m));
        for (Index i = 0; i < m; ++i) rank_of[space.group[heads[i]]] = int(i);
        for (Index i = preferred.size - 1; i >= 0; --i) {
            const int r = preferred[i];
            leaders[2 * rank_of[space.group[r]] + (grades.number[r] != 0)] = r;
        }
        double best = 0.0, moved = 0.0;
        int lead = -1;
        for (Index i = 0; i <= m; ++i) {
            const int leader = leaders[2 * i];
            const double total = leader == -1 ? 0.0 : decay[0] * (score[leader] - score[heads[0]]) + moved;
            if (leader != -1 && (lead == -1 || total > best)) {
                best = total;
                lead = leader;
            }
            if (i + 1 < m) moved += decay[i + 1] * (score[heads[i]] - score[heads[i + 1]]);
        }
        shown[0] = lead;
        Index rank = 1;
        for (const int head : heads)
            if (rank < m && space.group[head] != space.group[lead]) shown[rank++] = head;
    }

    // Fill `shown` with the documents of the best assignment of ranks to groups.
    KERNEL void show_most_violated(const List& list, const Grades& grades, Index groups, double unit, Space& space,
                                   Span<int> shown) const {
        const Index m = shown.size;
        const Span<const double> c = decay.first(m), a = weights.first(m);
        const Span<int> column = space.column.first(m);
        Competitors& competing = space.competing;
        competing.find(list, grades, space.group, m, unit, space.of_group.first(groups), space.of_grade.first(grades.count()));
        const DiscountedWorth worth{competing, c, a, competing.groups, a[0] * grades.value[0] / unit};
        Index lead = 0;
        if (reciprocal)
            lead = space.leads.solve(competing, c, a, column, space.assignment);
        else
            assign_groups(worth, column, space.assignment);
        const Span<int> rank_of = space.of_group.first(competing.groups);
        rank_of.fill(-1);
        for (Index i = 0; i < m; ++i) {
            rank_of[column[i]] = int(i);
            space.worth[i] = -INFINITE;
        }
        for (Index j = 0; j < competing.count; ++j) {
            const int i = rank_of[competing.group[j]];
            if (i == -1 || (i < lead && competing.gain[j] > 0.0)) continue;
            const double its = reciprocal ? c[i] * competing.score[j] : worth.of(i, j);
            if (its < space.worth[i]) continue;  // of equal ones the lowest gain
            space.worth[i] = its;
            shown[i] = competing.document[j];
        }
    }
};

}  // namespace rankstruct
