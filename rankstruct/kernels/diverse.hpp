// Most violated diverse rankings: at most one document per group among the first k ranks.
//
// With G groups, m = min(k, G) documents are shown, at the ranks 1 to m; all others have no discount and no decay. The most
// violated ranking is an assignment of the m ranks to groups, where rank i gets from a group its document with the largest c_i s
// - a_i b. Reciprocal rank is not a sum over ranks: it has an assignment for each number of leading irrelevant documents.
#pragma once

#include "binary.hpp"
#include "grades.hpp"
#include "group_assignment.hpp"
#include "numbering.hpp"

namespace rankstruct {

// The kernel. Labels are gains, 1 or 0 for reciprocal rank; c is the decay, a the discount.
struct Diverse : ByRank {
    static constexpr double widest = 1e301;  // no sum of scores over all ranks overflows

    struct Space : Scratch<Diverse> {
        GradeSpace grades{each};
        Span<int> group = each, first = each;      // the group of each document, the first document of each group
        Span<int> heads = each(4 * each.count);    // of a hash table
        Span<int> of_group = each, of_grade = each;                     // counts and lookups
        Span<int> preferred = each, by_gain = each, spare = each;      // orders of the documents
        Span<int> competing = each, its_group = each;                  // documents
        Span<double> score = each, gain = each;                        // of the competing documents
        Room rank = each(least(most(kernel.cutoff, Index(1)), each.count));
        Span<int> chosen = rank, shown = rank, tried = rank, column = rank;
        Span<double> of_rank = rank, highest = rank;
        GroupAssignment assignment{rank, each};
    };

    // About O(n) after the sort, plus an assignment of m ranks to at most m groups per grade, or a few for reciprocal rank.
    void solve(List& list, Space& space) const {
        const Grades grades = number_grades(list.label, space.grades);
        const double lowest = -widest / most(decay[0], 1.0);  // of scores times the decay too
        if (list.score[list.size - 1] < lowest) return void(list.refused = first_below(list.score, list.place, lowest));
        if (grades.count() == 1) return;
        const Index groups = number_groups(list.group, space.heads, space.first, space.group);
        const Index m = count_shown(grades, groups, space);
        if (m == 0 || (m == groups && discounts[0] == discounts[m - 1] && is_alike(grades, space))) return;
        const Span<int> chosen = space.chosen.first(m), shown = space.shown.first(m);
        const double best = show_reference(list, grades, groups, space, chosen);
        if (best <= 0.0) return;
        const double unit = normalized ? best : 1.0;
        space.assignment.begin(find_competing(list, grades, groups, m, unit, space), space.column.first(m));
        show_assigned(space, shown);
        if (reciprocal) lead_with_irrelevant(list, space, shown);

        double difference = 0.0;
        for (Index i = 0; i < m; ++i) {
            difference += decay[i] * (list.score[shown[i]] - list.score[chosen[i]]);
            list.coefficient[shown[i]] += decay[i];
            list.coefficient[chosen[i]] -= decay[i];
        }
        list.task_loss = most(best - measure(list, shown), 0.0) / unit;
        list.value = most(list.task_loss + difference, 0.0);
    }

  protected:
    // The measure of the documents shown.
    double measure(const List& list, Span<const int> shown) const {
        double sum = 0.0;
        for (Index i = 0; i < shown.size; ++i) {
            if (reciprocal && list.label[shown[i]] > 0.0) return discounts[i];
            sum += discounts[i] * list.label[shown[i]];
        }
        return sum;
    }

    // The number of documents shown; for mWTA, the number of groups with the highest gain.
    Index count_shown(const Grades& grades, Index groups, Space& space) const {
        const Index m = least(cutoff, groups);
        if (!least_cutoff) return m;
        const Span<int> counted = space.of_group.first(groups);
        counted.fill(0);
        for (Index r = 0; r < grades.number.size; ++r) counted[space.group[r]] |= grades.number[r] == 0;
        Index count = 0;
        for (const int its : counted) count += its;
        return least(m, most(count + 1, least_cutoff));
    }

    // Whether the documents of each group have the same gain.
    static bool is_alike(const Grades& grades, const Space& space) {
        bool alike = true;
        for (Index r = 0; r < grades.number.size; ++r) alike &= grades.number[r] == grades.number[space.first[space.group[r]]];
        return alike;
    }

    static Span<const double> chosen_score(const List& list) { return list.chosen.size ? list.chosen : list.score; }

    // Compute the reference as `chosen`; returns the best value. O(n), plus a sort if other scores determine the reference or
    // some scores tie.
    double show_reference(const List& list, const Grades& grades, Index groups, Space& space, Span<int> chosen) const {
        const Span<int> preferred = prefer(list, grades, space), by_gain = space.by_gain.first(list.size);
        if (reference == IDEAL || !reciprocal) {
            partition(grades, preferred, by_gain, space.of_grade);
            show_first(by_gain, groups, space, chosen);
        }
        const double best = reciprocal ? discounts[0] : measure(list, chosen);
        if (reference == PREDICTED)
            show_first(preferred, groups, space, chosen);
        else if (reference == IDEAL_TIED && reciprocal)
            lead_with_relevant(list, grades, preferred, groups, space, chosen);
        else if (reference == IDEAL_TIED)
            sort_blocks(list, space, chosen);
        return best;
    }

    // The documents in the order that the reference uses within a gain: input order, or by chosen score, then gain, then input
    // order.
    template <class Orders>
    Span<int> prefer(const List& list, const Grades& grades, Orders& space) const {
        const Span<int> preferred = space.preferred.first(list.size);
        if (reference != IDEAL && !list.chosen.size && !any_tied(list.score)) {
            for (Index r = 0; r < list.size; ++r) preferred[r] = int(r);
            return preferred;
        }
        const Span<int> given = in_input_order(list, space.spare);
        if (reference == IDEAL) return given;
        partition(grades, given, preferred, space.of_grade);
        sort_by_chosen(list, preferred, space);
        return preferred;
    }

    // A stable sort of documents by descending chosen score.
    template <class Orders>
    static void sort_by_chosen(const List& list, Span<int> documents, Orders& space) {
        const Span<int> sorted = sort_places(documents, chosen_score(list).data, space.grades.sort);
        for (Index i = 0; i < documents.size; ++i) documents[i] = sorted[i];
    }

    // Fill `shown` with the first document of each group.
    static void show_first(Span<const int> order, Index groups, Space& space, Span<int> shown) {
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

    // Sort the documents shown at ranks of equal discount by chosen score.
    template <class Orders>
    void sort_blocks(const List& list, Orders& space, Span<int> shown) const {
        for (Index begin = 0, end; begin < shown.size; begin = end) {
            for (end = begin + 1; end < shown.size && discounts[end] == discounts[begin];) ++end;
            if (end > begin + 1) sort_by_chosen(list, shown.slice(begin, end), space);
        }
    }

    // Fill `shown` with the highest-scored ranking that begins with a relevant document. Without this condition, the first
    // documents of m groups are shown, the heads. The leader is the highest relevant document of some group, not necessarily the
    // highest of all, since it hides the others of its group. The heads before the one that it hides, or all but the last, move
    // down by a rank. O(n).
    void lead_with_relevant(const List& list, const Grades& grades, Span<const int> preferred, Index groups, Space& space,
                            Span<int> shown) const {
        const Index last = shown.size - 1;
        const Span<const double> score = chosen_score(list);
        const Span<int> rank_of = space.of_group.first(groups);
        const Span<double> moved = space.of_rank;  // the loss of score if the heads before each move down
        show_first(preferred, groups, space, shown);
        rank_of.fill(int(last));
        for (Index i = 0; i <= last; ++i) {
            rank_of[space.group[shown[i]]] = int(i);
            moved[i] = i ? moved[i - 1] + decay[i] * (score[shown[i - 1]] - score[shown[i]]) : 0.0;
        }
        double best = 0.0;
        int lead = -1;
        for (const int r : preferred) {
            if (grades.number[r] != 0) continue;
            const double leading = decay[0] * (score[r] - score[shown[0]]), total = leading + moved[rank_of[space.group[r]]];
            if (lead != -1 && leading + moved[last] <= best) break;
            if (lead != -1 && !(total > best)) continue;
            best = total;
            lead = r;
        }
        for (Index i = rank_of[space.group[lead]]; i > 0; --i) shown[i] = shown[i - 1];
        shown[0] = lead;
    }

    // The documents that compete for m ranks, with scaled gains: a document is not needed if m groups, or its own group, have one
    // with no lower score and no higher gain. Grades are numbered from the highest gain: m groups have a document of grade
    // `useless` or a later one. Groups are renumbered. O(n + grades).
    GroupWorth find_competing(const List& list, const Grades& grades, Index groups, Index m, double unit,
                              Space& space) const {
        const Span<int> latest = space.of_group.first(groups);             // the last competitor of each group
        const Span<int> groups_of = space.of_grade.first(grades.count());  // the number of these by grade
        latest.fill(-1);
        groups_of.fill(0);
        Index count = 0, found = 0, better = 0;  // groups found, and those whose last competitor's grade is after `useless`
        int useless = -1;
        for (Index r = 0; r < list.size && useless < grades.count() - 1; ++r) {
            const int grade = grades.number[r];
            if (grade <= useless) continue;
            int& last = latest[space.group[r]];
            const int its_grade = last == -1 ? -1 : grades.number[space.competing[last]];
            const bool is_tied = last != -1 && list.score[r] == space.score[last];
            if (is_tied ? grade < its_grade : grade <= its_grade) continue;  // of equal documents the last one competes
            const Index at = is_tied ? last : count++;
            space.its_group[at] = last == -1 ? int(found++) : space.its_group[last];
            space.competing[at] = int(r);
            space.score[at] = list.score[r];
            space.gain[at] = list.label[r] / unit;
            last = int(at);
            better += its_grade <= useless;
            if (its_grade != -1) --groups_of[its_grade];
            ++groups_of[grade];
            while (better >= m) better -= groups_of[++useless];
        }
        const double dearest = discounts[0] * grades.value[0] / unit;
        return {space.its_group.first(count), space.score.first(count), space.gain.first(count), decay.first(m), discounts.first(m),
                found, dearest, reciprocal};
    }

    // Fill `shown` with the best document of each rank's group, ties by lowest gain.
    static void show_assigned(Space& space, Span<int> shown) {
        const GroupWorth& worth = space.assignment.worth;
        const Span<int> rank_of = space.of_group.first(worth.groups);
        rank_of.fill(-1);
        space.of_rank.fill(-INFINITE);
        for (Index i = 0; i < shown.size; ++i) rank_of[space.column[i]] = int(i);
        for (Index j = 0; j < worth.group.size; ++j) {
            const int i = rank_of[worth.group[j]];
            if (i == -1 || worth.of(i, j) < space.of_rank[i]) continue;
            space.of_rank[i] = worth.of(i, j);
            shown[i] = space.competing[j];
        }
    }

    // Fill `shown` with the most violated ranking for reciprocal rank: the best over the number of leading irrelevant documents.
    //
    // After the leaders, the next rank is charged as if it showed a relevant document, and may show any; if it is irrelevant, the
    // charge is too high, and lower with one more leader. More leaders are worth less apart from the charge, so few numbers of
    // leaders can be best. If all ranks can lead, there is no charge, and this is tried first.
    void lead_with_irrelevant(const List& list, Space& space, Span<int> shown) const {
        const Index m = shown.size;
        GroupAssignment& assignment = space.assignment;
        const Span<const double> gain = assignment.worth.gain;
        for (Index i = 0; i < m; ++i) space.highest[i] = list.score[shown[i]];
        Index irrelevant = 0;
        for (Index j = 0; j < gain.size && irrelevant < m; ++j)
            if (gain[j] <= 0.0) space.tried[irrelevant++] = space.competing[j];
        double largest = -discounts[0], bound = 0.0;
        if (irrelevant == m) keep_if_better(list, 0.0, space, shown, largest);
        for (Index lead = 1; lead <= least(irrelevant, m - 1); ++lead) {
            bound -= assignment.lead();
            if (bound - discounts[m - 1] <= largest) break;
            if (bound - discounts[lead] <= largest) continue;
            assignment.improve();
            show_assigned(space, space.tried.first(m));
            bound = keep_if_better(list, discounts[lead], space, shown, largest);
        }
    }

    // Show the tried ranking if it is worth more than `largest`; returns its sum. Sums are relative to the ranking without
    // leaders, rank by rank, so that much lower scores in all rankings cancel.
    double keep_if_better(const List& list, double charge, const Space& space, Span<int> shown, double& largest) const {
        double total = 0.0;
        for (Index i = 0; i < shown.size; ++i) total += decay[i] * (list.score[space.tried[i]] - space.highest[i]);
        if (total - charge <= largest) return total;
        largest = total - charge;
        for (Index i = 0; i < shown.size; ++i) shown[i] = space.tried[i];
        return total;
    }
};

}  // namespace rankstruct
