// Most violated pages under rules: caps and quotas of nested or disjoint groups among the first ranks, as many as a page has.
//
// maximise over pages   sum_{i <= k} ( c_i s_{r(i)} - a_i b_{r(i)} ),   with c and a as of the positional map, 0 after k
//
// A page shows as many documents as the rules allow, `length` at most. A document is needed only if those with no lower score and
// no higher gain leave room for it: otherwise one of them could be shown in its place (an exchange of bases). So few documents
// compete, and `PageFlow` assigns the ranks to them. If each group may have one document (diverse rankings), `GroupAssignment`
// assigns them to the groups. Reciprocal rank is not a sum over ranks: it has an assignment for each number of leading irrelevant
// documents.
#pragma once

#include "binary.hpp"
#include "grades.hpp"
#include "group_assignment.hpp"
#include "page_flow.hpp"
#include "rule_tree.hpp"

namespace rankstruct {

// The kernel. Labels are gains, 1 or 0 for reciprocal rank; c is the decay, a the discount.
struct PageHinge : ByRank, Rules {
    static constexpr double widest = 1e301;  // no sum of scores over all ranks overflows
    static constexpr int BUCKETS = 16;       // of gains

    // [attributes]: where the group of each is among the bits of a document's group, and the bits of one that is none.
    Span<const Index> shift, mask, none;

    struct Space : Scratch<PageHinge> {
        RuleSpace rules{each, kernel};
        GradeSpace grades{each};
        Room rank = each(least(most(kernel.length, Index(1)), each.count));
        Room of_node = each(rules.all.count + 1);
        Span<int> reserved = of_node, taken = of_node, slot = of_node;
        Growing<int> in_bucket{};
        Span<int> preferred = each, by_gain = each, spare = each, of_grade = each(each.count + 1);
        Span<int> competing = each;  // documents
        Span<int> ideal = rank, chosen = rank, shown = rank, tried = rank;
        Span<double> highest = rank;
        Span<double> score = each, gain = each;  // of the competing documents
        Span<int> leaf = each;                   // their groups
        bool single = kernel.is_single();
        PageFlow flow{rank, each.when(!single), of_node.when(!single), score, gain, leaf};
        GroupAssignment assignment{rank, each.when(single)};
    };

    // About O(n) after the sort, plus a flow of few documents, or several for reciprocal rank. Refuses a list without a page.
    void solve(List& list, Space& space) const { Search{*this, list, space}.solve(); }

    // Whether each group may have one document, and nothing else is asked.
    bool is_single() const {
        bool single = attributes == 1;
        for (Index i = 0; i < attribute.size; ++i) single &= upper[i] == 1 && lower[i] <= 0;
        return single;
    }

    // The measure of a page.
    double measure(const List& list, Span<const int> page) const {
        double sum = 0.0;
        for (Index i = 0; i < page.size; ++i) {
            if (reciprocal && list.label[page[i]] > 0.0) return discounts[i];
            sum += discounts[i] * list.label[page[i]];
        }
        return sum;
    }

    static Span<const double> chosen_score(const List& list) { return list.chosen.size ? list.chosen : list.score; }

    // The documents in the order that the reference uses within a gain: input order, or by chosen score, then gain, then input
    // order.
    Span<int> prefer(const List& list, const Grades& grades, Space& space) const {
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
    static void sort_by_chosen(const List& list, Span<int> documents, Space& space) {
        const Span<int> sorted = sort_places(documents, chosen_score(list).data, space.grades.sort);
        for (Index i = 0; i < documents.size; ++i) documents[i] = sorted[i];
    }

    // Sort the documents shown at ranks of equal discount by chosen score.
    void sort_blocks(const List& list, Space& space, Span<int> shown) const {
        for (Index begin = 0, end; begin < shown.size; begin = end) {
            for (end = begin + 1; end < shown.size && discounts[end] == discounts[begin];) ++end;
            if (end > begin + 1) sort_by_chosen(list, shown.slice(begin, end), space);
        }
    }

    struct Search {
        const PageHinge& kernel;
        List& list;
        Space& space;
        Index n = list.size, room = least(n, kernel.length), m = 0;  // positions, and ranks that are measured
        Index length = room, reserved = 0;                           // of all pages
        bool single = space.single;
        RuleTree tree{kernel, space.rules, n};
        Grades grades{};
        Span<const double> decay = kernel.decay, discounts = kernel.discounts;

        void solve() {
            const double lowest = -widest / most(decay[0], 1.0);  // of scores times the decay too
            if (list.score[n - 1] < lowest) return void(list.refused = first_below(list.score, list.place, lowest));
            grades = number_grades(list.label, space.grades);
            if (!plant()) return void(list.refused = list.place[0]);
            if (grades.count() == 1 && reserved == 0) return;
            const Span<int> preferred = kernel.prefer(list, grades, space);
            const Span<int> by_gain = space.by_gain.first(n);
            partition(grades, preferred, by_gain, space.of_grade);
            length = show(by_gain, space.ideal);
            if (!tree.meets_quotas(space.taken)) return void(list.refused = list.place[0]);
            m = count_measured();
            if (single) length = m;  // any such documents can be completed to a page
            const double best = measure(space.ideal), unit = kernel.normalized ? best : 1.0;
            if (m == 0 || best <= 0.0 || all_alike(by_gain)) return;
            show_reference(preferred);
            if (!space.in_bucket.reserve(BUCKETS * tree.nodes)) return void(list.lacks_room = true);
            find_competing(unit);
            assign(0, space.shown);
            if (kernel.reciprocal) lead_with_irrelevant();
            double difference = 0.0;
            for (Index i = 0; i < m; ++i) {
                const Index its = space.shown[i], other = space.chosen[i];
                difference += decay[i] * (list.score[its] - list.score[other]);
                list.coefficient[its] += decay[i];
                list.coefficient[other] -= decay[i];
            }
            list.task_loss = most(best - measure(space.shown), 0.0) / unit;
            list.value = most(list.task_loss + difference, 0.0);
        }

        // Grow the tree of groups; false if they overlap, or no page can keep the rules.
        bool plant() {
            const auto name = [&](Index a, Index r) {
                const Index its = (list.group[r] >> kernel.shift[a]) & kernel.mask[a];
                return its == kernel.none[a] ? NONE : its;
            };
            if (!tree.grow(name, kernel.none[0] == NONE)) return false;
            const Span<int> cap = space.rules.cap.first(tree.nodes);
            cap.fill(int(n));
            for (Index i = 0; i < kernel.attribute.size; ++i)
                tree.for_nodes(i, [&](int node) { cap[node] = int(least(Index(cap[node]), kernel.upper[i])); });
            if (!tree.reserve([&](Index i, int) { return int(kernel.lower[i]); }, reserved, room)) return false;
            for (int node = 0; node < tree.nodes; ++node) space.reserved[node] = space.rules.sum[node];
            if (single) length = least(length, kernel.cutoff);
            return true;
        }

        // The cut-off of the measure, or the length; for mWTA, the first rank at which the best page gains less than at rank 1.
        Index count_measured() const {
            const Index most_ranks = least(kernel.cutoff, length);
            if (!kernel.least_cutoff) return most_ranks;
            Index count = 0;
            while (count < most_ranks && grades.number[space.ideal[count]] == 0) ++count;
            return least(most_ranks, most(count + 1, kernel.least_cutoff));
        }

        Index begin(Span<int> taken) const {
            for (int node = 0; node < tree.nodes; ++node) taken[node] = space.reserved[node];
            return reserved;
        }

        // Fill `page` with the documents that come first in an order; returns their number, at most `length`.
        Index show(Span<const int> order, Span<int> page) const {
            Index total = begin(space.taken), count = 0;
            for (Index i = 0; i < order.size && count < length; ++i) {
                page[count] = order[i];
                count += tree.take(space.taken, order[i], total, room);
            }
            return count;
        }

        double measure(Span<const int> page) const { return kernel.measure(list, page.first(m)); }

        // Whether the worst page has the same gains at ranks of equal discount as the best one, or as high a reciprocal rank.
        bool all_alike(Span<const int> by_gain) const {
            Index total = begin(space.taken), count = 0, block = 0;
            for (Index i = n - 1; i >= 0 && count < m; --i)
                if (tree.take(space.taken, by_gain[i], total, room)) space.tried[count++] = by_gain[i];
            if (kernel.reciprocal) return list.label[space.tried[0]] > 0.0;
            for (Index i = 0; i < m; ++i) {
                if (discounts[i] != discounts[block]) block = i;
                if (i + 1 < m && discounts[i + 1] == discounts[i]) continue;
                for (Index j = block; j <= i; ++j)
                    if (list.label[space.ideal[j]] != list.label[space.tried[i - (j - block)]]) return false;
            }
            return true;
        }

        // Fill `chosen` with the reference.
        void show_reference(Span<const int> preferred) const {
            const Span<int> chosen = space.chosen;
            if (kernel.reference == PREDICTED) return void(show(preferred, chosen));
            if (kernel.reference == IDEAL_TIED && kernel.reciprocal) return lead_with_relevant(preferred);
            for (Index i = 0; i < length; ++i) chosen[i] = space.ideal[i];
            if (kernel.reference == IDEAL_TIED) kernel.sort_blocks(list, space, chosen.first(m));
        }

        // Fill `chosen` with the highest-scored page that begins with a relevant document. Which one leads determines the others:
        // those of the page by score that it leaves room for. It is one of a page of relevant documents alone, since any other can
        // change places with one of these.
        void lead_with_relevant(Span<const int> preferred) const {
            const Span<int> by_score = space.shown, leader = space.tried;
            const Index count = show(preferred, by_score);
            Index leaders = 0, total = begin(space.taken);
            for (Index i = 0; i < n && leaders < length; ++i)
                if (grades.number[preferred[i]] == 0 && tree.take(space.taken, preferred[i], total, room)) leader[leaders++] = preferred[i];
            double best = -INFINITE, moved = 0.0;  // by moving all after the first rank up, the most that a leader can gain there
            const Span<int> page = space.competing;
            const Span<const double> score = kernel.chosen_score(list);
            for (Index i = 1; i < m; ++i) moved += decay[i] * (score[by_score[i - 1]] - score[by_score[i]]);
            for (Index l = 0; l < leaders; ++l) {
                if (decay[0] * (score[leader[l]] - score[by_score[0]]) + moved <= best) break;
                Index shown = 1;
                total = begin(space.taken);
                tree.take(space.taken, page[0] = leader[l], total, room);
                for (Index i = 0; i < count && shown < length; ++i)
                    if (by_score[i] != leader[l] && tree.take(space.taken, by_score[i], total, room)) page[shown++] = by_score[i];
                double value = 0.0;
                for (Index i = 0; i < m; ++i) value += decay[i] * (score[page[i]] - score[by_score[i]]);
                if (l > 0 && !(value > best)) continue;
                best = value;
                for (Index i = 0; i < length; ++i) space.chosen[i] = page[i];
            }
        }

        // Give the flow the documents that compete, with scaled gains. For each gain, or for many gains a range of them, the
        // documents with no higher gain so far have a page or a part of one; a document competes if the page of its own gain, or of
        // the range below, leaves room for it. Once a page is full, no other document with this gain or a higher one competes.
        void find_competing(double unit) const {
            const int buckets = least(grades.count(), BUCKETS);
            const bool own = grades.count() <= BUCKETS;
            Index total[BUCKETS], count[BUCKETS];
            const Span<int> in_bucket = space.in_bucket.first(buckets * tree.nodes);
            const auto taken = [&](int b) { return in_bucket.slice(b * tree.nodes, (b + 1) * tree.nodes); };
            for (int b = 0; b < buckets; ++b) {
                total[b] = begin(taken(b));
                count[b] = 0;
            }
            const Index last = grades.count() - 1;
            PageFlow& flow = space.flow;
            flow.documents = 0;
            int full = -1;
            for (Index r = 0; r < n && full < buckets - 1; ++r) {
                const Index grade = grades.number[r];
                const int bucket = own || grade == last ? int(own ? grade : buckets - 1) : int(grade * (buckets - 1) / last);
                const int below = own || grade == last ? bucket : bucket + 1, node = tree.nodes_of(r)[0];
                if (below <= full || !tree.need(taken(below), node, 1, total[below], room, true)) continue;
                for (int b = bucket; b > full && tree.take(taken(b), r, total[b], room); --b) ++count[b];
                while (full < buckets - 1 && count[full + 1] == length) ++full;
                space.competing[flow.documents] = int(r);
                flow.score[flow.documents] = list.score[r];
                flow.gain[flow.documents++] = list.label[r] / unit;
            }
            if (single) return assign_groups(unit);
            connect();
            for (Index i = 0; i < length; ++i) {
                flow.c[i] = i < m ? decay[i] : 0.0;
                flow.a[i] = i < m && !kernel.reciprocal ? discounts[i] : 0.0;
            }
            double stake = kernel.reciprocal ? discounts[0] : 0.0;
            for (Index i = 0; i < m && !kernel.reciprocal; ++i) stake += discounts[i] * (grades.value[0] / unit);
            flow.scale(length, stake);
        }

        // The groups of these documents as nodes of the flow.
        void connect() const {
            PageFlow& flow = space.flow;
            const RuleSpace& its = space.rules;
            space.slot.first(tree.nodes).fill(0);
            flow.nodes = 1;
            flow.parent[0] = -1;
            flow.places[0] = int(room - reserved);
            flow.passes[0] = 0;
            for (Index d = 0; d < flow.documents; ++d) {
                int node = tree.nodes_of(space.competing[d])[0];
                int* link = &flow.leaf[d];
                for (; node >= 0; node = its.parent[node]) {
                    const bool known = space.slot[node] > 0;
                    if (!known) space.slot[node] = int(flow.nodes++);
                    *link = space.slot[node];
                    if (known) break;
                    const int needed = most(its.low[node], space.reserved[node]);
                    flow.places[*link] = needed - space.reserved[node];
                    flow.passes[*link] = its.cap[node] - needed;
                    link = &flow.parent[*link];
                }
                if (node < 0) *link = 0;
            }
        }

        // Assign ranks to the groups of these documents, numbered in order of appearance.
        void assign_groups(double unit) const {
            PageFlow& flow = space.flow;
            const Span<int> number = space.slot.first(tree.nodes);
            number.fill(-1);
            int groups = 0;
            for (Index d = 0; d < flow.documents; ++d) {
                const int node = tree.nodes_of(space.competing[d])[0];
                flow.leaf[d] = node >= 0 && number[node] >= 0 ? number[node] : groups++;
                if (node >= 0) number[node] = flow.leaf[d];
            }
            const auto of = [&](auto values) { return values.first(flow.documents); };
            space.assignment.begin({of(flow.leaf), of(flow.score), of(flow.gain), decay.first(m), discounts.first(m), groups,
                                    discounts[0] * grades.value[0] / unit, kernel.reciprocal},
                                   flow.column.first(m));
        }

        // Fill `page` with the most valuable one that irrelevant documents lead; false if there is none.
        bool assign(Index lead, Span<int> page) const {
            if (single) {
                if (lead > 0) space.assignment.improve();
                return show_best_of_groups(page), true;
            }
            space.flow.leads = lead;
            const bool found = space.flow.solve(length);
            for (Index i = 0; found && i < length; ++i) page[i] = space.competing[space.flow.column[i]];
            return found;
        }

        // Fill `page` with the best document of each rank's group, ties by lowest gain.
        void show_best_of_groups(Span<int> page) const {
            const GroupWorth& worth = space.assignment.worth;
            const Span<int> rank_of = space.of_grade.first(worth.groups);
            const Span<double> of_rank = space.flow.profit;
            rank_of.fill(-1);
            of_rank.fill(-INFINITE);
            for (Index i = 0; i < m; ++i) rank_of[space.assignment.column[i]] = int(i);
            for (Index j = 0; j < worth.group.size; ++j) {
                const int i = rank_of[worth.group[j]];
                if (i == -1 || worth.of(i, j) < of_rank[i]) continue;
                of_rank[i] = worth.of(i, j);
                page[i] = space.competing[j];
            }
        }

        // Fill `shown` with the most violated page for reciprocal rank: the best over the number of leading irrelevant documents.
        //
        // After the leaders, the next rank is charged as if it showed a relevant document, and may show any; if it is irrelevant,
        // the charge is too high, and lower with one more leader. More leaders are worth less apart from the charge. If all ranks
        // can lead, there is no charge, and this is tried first.
        void lead_with_irrelevant() const {
            const PageFlow& flow = space.flow;
            for (Index i = 0; i < m; ++i) space.highest[i] = list.score[space.shown[i]];
            Index irrelevant = 0;
            for (Index d = 0; d < flow.documents && irrelevant < m; ++d)
                if (flow.gain[d] <= 0.0) space.tried[irrelevant++] = space.competing[d];
            double largest = -discounts[0], bound = 0.0;
            if (irrelevant == m) keep_if_better(0.0, largest);
            for (Index lead = 1; lead <= least(irrelevant, m - 1); ++lead) {
                if (single) bound -= space.assignment.lead();
                if (bound - discounts[m - 1] <= largest) break;
                if (bound - discounts[lead] <= largest) continue;
                if (!assign(lead, space.tried)) break;
                bound = keep_if_better(discounts[lead], largest);
            }
        }

        // Show the tried page if it is worth more than `largest`; returns its sum. Sums are relative to the page without leaders,
        // rank by rank, so that much lower scores in all pages cancel.
        double keep_if_better(double charge, double& largest) const {
            double total = 0.0;
            for (Index i = 0; i < m; ++i) total += decay[i] * (list.score[space.tried[i]] - space.highest[i]);
            if (total - charge <= largest) return total;
            largest = total - charge;
            for (Index i = 0; i < m; ++i) space.shown[i] = space.tried[i];
            return total;
        }
    };
};

}  // namespace rankstruct
