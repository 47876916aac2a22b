// The best ranking by score under caps and quotas of groups within prefixes, and documents at given positions.
//
//     maximise   sum_i c_i s_r(i),   c decreasing,   l <= number of documents of g in the first p positions <= u
//
// for rules (g, p, l, u). Three cases are solved by going down a sorted list and taking each document that can be taken:
//
// - One prefix, and groups that are nested or disjoint. The sets that can be completed to a page are the independent sets of a
//   matroid, so the greedy set of every size has the highest sum, for all c at once. A group needs the larger of its quota and
//   what its documents and the groups in it need; a document is taken unless some group would need more than its cap.
// - Several prefixes, disjoint groups, caps only. The t-th document of a group may come from some position on. If the best ranking
//   has another document where the greedy one has d, the two can change places: that of the later position may come there too, or
//   the next of its group does.
// - Several prefixes, disjoint groups, quotas only. From the last position up these are caps, and the lowest document comes first.
//
// All else is left to the caller: with caps and quotas of several prefixes the best ranking depends on c, and overlapping groups
// are hard in general. A ranking ends where the caps leave no document, so it may be shorter than the list.
#pragma once

#include "lists.hpp"
#include "numbering.hpp"

namespace rankstruct {

struct Constrained {
    static constexpr double widest = INFINITE;  // scores are only compared
    static constexpr Index NONE = std::numeric_limits<Index>::min();
    // What `List::task_loss` says. `List::value` is the number of documents shown, coefficients are ranks or 0.
    enum Outcome : int { SOLVED, INFEASIBLE, LEFT };

    Span<const Index> group;     // [attributes * documents], NONE for a document without one
    Span<const Index> position;  // [documents], from 1; 0: any
    // [rules]: the attribute, its group, whether it is about each group of the attribute instead, the prefix, and the bounds
    Span<const Index> attribute, which, each_group, prefix, lower, upper;
    Index attributes, length;    // the number of attributes, and of positions

    struct Space : Scratch<Constrained> {
        Room all = each(kernel.attributes * each.count);
        Room rules = each(kernel.prefix.size);
        Span<Index> name = each;
        Span<int> heads = each(4 * each.count), number = each;  // of a hash table, and what it numbered
        Span<int> node = all;                     // [documents, attributes], those with rules first, the smallest first; -1: none
        Span<int> size = all, parent = all;       // of the nodes
        Span<int> low = all, sum = all, cap = all, pinned = all;
        Span<int> ends = rules, node_of = rules;
        Span<int> at = each, rank = each;         // the document at each position, and its position; -1: none
        Span<int> start = each(kernel.attributes + 1);
    };

    void solve(List& list, Space& space) const { Page{*this, list, space}.solve(); }

  private:
    struct Page {
        const Constrained& rules;
        List& list;
        Space& space;
        Index n = list.size, horizon = least(list.size, rules.length), nodes = 0, prefixes = 0;
        bool caps = false, quotas = false, several = false;

        void solve() {
            space.rank.first(n).fill(-1);
            space.at.first(n).fill(-1);
            if (!pin() || !number_nodes()) return;
            find_bounds();
            if (prefixes > 1 && (several || (caps && quotas))) return void(list.task_loss = LEFT);
            const bool done = prefixes > 1 && quotas ? from_below() : from_above();
            if (!done) return void(list.task_loss = INFEASIBLE);
            for (Index r = 0; r < n; ++r) {
                const bool is_shown = space.rank[r] >= 0 && space.rank[r] < horizon;
                list.coefficient[r] = is_shown ? double(space.rank[r] + 1) : 0.0;
                list.value += is_shown;
            }
        }

        Index position(Index r) const { return rules.position.size ? rules.position[list.start + list.place[r]] : 0; }
        Index prefix(Index rule) const { return least(rules.prefix[rule], horizon); }
        Span<int> nodes_of(Index r) const { return space.node.slice(r * rules.attributes, (r + 1) * rules.attributes); }

        // Put the documents with a position there; INFEASIBLE if two have the same, or the list is too short.
        bool pin() {
            for (Index r = 0; r < n; ++r) {
                const Index at = position(r);
                if (at <= 0) continue;
                if (at > horizon || space.at[at - 1] >= 0) return list.task_loss = INFEASIBLE, false;
                space.at[at - 1] = int(r);
                space.rank[r] = int(at - 1);
            }
            return true;
        }

        // Number the groups with a rule; LEFT if two overlap without one being in the other. A document's groups come in the order
        // of their sizes; the next larger one must be the same for all documents of a group.
        bool number_nodes() {
            const Index width = rules.attributes;
            space.node.first(n * width).fill(-1);
            for (Index a = 0; a < width; ++a) {
                const Index documents = rules.group.size / width;
                for (Index r = 0; r < n; ++r) space.name[r] = rules.group[a * documents + list.start + list.place[r]];
                const Span<const Index> name = space.name.first(n);
                const int count = number_groups(name, space.heads, space.size.slice(nodes, nodes + n), space.number);
                const Span<int> used = space.cap.first(count);  // the node of each number; -1: without a rule
                used.fill(-1);
                const Index begin = nodes;
                for (Index i = 0; i < rules.prefix.size; ++i) {
                    if (rules.attribute[i] != a) continue;
                    space.node_of[i] = -1;
                    for (int g = 0; g < count; ++g) {
                        const Index its = space.name[space.size[begin + g]];
                        if (its == NONE || !(rules.each_group[i] || its == rules.which[i])) continue;
                        used[g] = 0;
                        if (!rules.each_group[i]) space.node_of[i] = g;
                    }
                }
                for (int g = 0; g < count; ++g)
                    if (used[g] == 0) used[g] = int(nodes++);
                for (Index i = 0; i < rules.prefix.size; ++i)
                    if (rules.attribute[i] == a && space.node_of[i] >= 0) space.node_of[i] = used[space.node_of[i]];
                space.size.slice(begin, nodes).fill(0);
                space.start[a] = int(begin);
                space.start[a + 1] = int(nodes);
                for (Index r = 0; r < n; ++r) {
                    const int its = used[space.number[r]];
                    nodes_of(r)[a] = its;
                    if (its >= 0) ++space.size[its];
                }
                several |= begin > 0 && nodes > begin;
            }
            return nest();
        }

        bool nest() {
            const Span<int> parent = space.parent.first(nodes);
            constexpr int unseen = -2;
            parent.fill(unseen);
            for (Index r = 0; r < n; ++r) {
                const Span<int> own = nodes_of(r);
                for (Index a = 1; a < own.size; ++a)  // a sort by size; of equal ones, the earlier attribute
                    for (Index b = a; b > 0 && own[b] >= 0 && (own[b - 1] < 0 || space.size[own[b]] < space.size[own[b - 1]]); --b)
                        std::swap(own[b], own[b - 1]);
                for (Index a = 0; a < own.size && own[a] >= 0; ++a) {
                    const int above = a + 1 < own.size ? own[a + 1] : -1;
                    if (parent[own[a]] == unseen) parent[own[a]] = above;
                    if (parent[own[a]] != above) return list.task_loss = LEFT, false;
                }
            }
            return true;
        }

        // Which kinds of bounds there are, and the prefixes, ascending and without repeats.
        void find_bounds() {
            for (Index i = 0; i < rules.prefix.size; ++i) {
                caps |= rules.upper[i] < prefix(i);
                quotas |= rules.lower[i] > 0;
                if (rules.upper[i] >= prefix(i) && rules.lower[i] <= 0) continue;
                Index at = prefixes;
                while (at > 0 && space.ends[at - 1] > prefix(i)) --at;
                if (at > 0 && space.ends[at - 1] == prefix(i)) continue;
                for (Index j = prefixes++; j > at; --j) space.ends[j] = space.ends[j - 1];
                space.ends[at] = int(prefix(i));
            }
        }

        // Call `use(node)` for the groups of a rule.
        template <class Use>
        void for_nodes(Index rule, Use use) const {
            if (!rules.each_group[rule]) {
                if (space.node_of[rule] >= 0) use(space.node_of[rule]);
                return;
            }
            const Index a = rules.attribute[rule];
            for (int node = space.start[a]; node < space.start[a + 1]; ++node) use(node);
        }

        // Count the documents at given positions within a prefix, by group.
        void count_pinned(Index end) const {
            space.pinned.first(nodes).fill(0);
            for (Index i = 0; rules.position.size && i < end; ++i)
                if (space.at[i] >= 0 && position(space.at[i]) > 0)
                    for (const int node : nodes_of(space.at[i]))
                        if (node >= 0) ++space.pinned[node];
        }

        // How many more documents than those at given positions each group may have within the first `end`, by rules from there on.
        bool find_caps(Index end) const {
            space.cap.first(nodes).fill(int(n));
            bool can = true;
            for (Index i = 0; i < rules.prefix.size; ++i) {
                if (prefix(i) < end || rules.upper[i] >= prefix(i)) continue;
                count_pinned(prefix(i));
                for_nodes(i, [&](int node) {
                    space.cap[node] = least(space.cap[node], int(rules.upper[i]) - space.pinned[node]);
                    can &= space.cap[node] >= 0;
                });
            }
            return can;
        }

        // A group needs `more` documents; returns whether it, and those that it is in, may. With `dry`, nothing is changed.
        bool need(int node, int more, Index& total, Index room, bool dry) const {
            for (; node >= 0 && more > 0; node = space.parent[node]) {
                const int before = most(space.low[node], space.sum[node]), after = most(space.low[node], space.sum[node] + more);
                if (after > space.cap[node]) return false;
                if (!dry) space.sum[node] += more;
                more = after - before;
            }
            if (total + more > room) return false;
            if (!dry) total += more;
            return true;
        }

        // With quotas there is one prefix: what the groups need for them. False if that is too much.
        bool reserve(Index& total, Index room) const {
            space.low.first(nodes).fill(0);
            space.sum.first(nodes).fill(0);
            if (!quotas) return true;
            count_pinned(space.ends[0]);
            bool can = true;
            for (Index i = 0; i < rules.prefix.size; ++i)
                if (rules.lower[i] > 0 && !rules.each_group[i] && space.node_of[i] < 0) return false;
            for (Index i = 0; i < rules.prefix.size; ++i)
                for_nodes(i, [&](int node) {
                    const int quota = int(rules.lower[i]) - space.pinned[node], needed = most(space.low[node], space.sum[node]);
                    space.low[node] = most(space.low[node], quota);
                    can &= space.low[node] <= space.cap[node];
                    if (quota > needed) can &= need(space.parent[node], quota - needed, total, room, false);
                });
            return can;
        }

        bool from_above() {
            Index slot = 0, head = 0;
            for (Index segment = 0; segment <= prefixes; ++segment) {
                const Index end = segment < prefixes ? Index(space.ends[segment]) : horizon;
                const bool is_last = segment == prefixes;
                if (!find_caps(is_last ? horizon + 1 : end)) return false;
                Index total = 0, room = 0;
                for (Index i = slot; i < end; ++i) room += space.at[i] < 0;
                if (segment == 0 && !reserve(total, room)) return false;
                if (is_last || !quotas) total = -n;
                if (is_last) space.low.first(nodes).fill(0);
                while (head < n && space.rank[head] >= 0) ++head;
                for (Index r = head; r < n && slot < end; ++r) {
                    while (slot < end && space.at[slot] >= 0) ++slot;
                    if (slot == end) break;
                    if (space.rank[r] >= 0 || !need(nodes_of(r)[0], 1, total, room, true)) continue;
                    need(nodes_of(r)[0], 1, total, room, false);
                    space.at[slot] = int(r);
                    space.rank[r] = int(slot++);
                }
                while (slot < end && space.at[slot] >= 0) ++slot;
                if (segment == 0 && quotas && !meets_quotas()) return false;
                if (slot < end) break;  // no document may come here
            }
            for (Index i = slot; i < horizon; ++i)
                if (space.at[i] >= 0) return false;  // a given position that the ranking does not reach
            return true;
        }

        bool meets_quotas() const {
            for (int node = 0; node < nodes; ++node)
                if (space.sum[node] < space.low[node]) return false;
            return true;
        }

        // Fill the positions from the last; before position i + 1, each group must have as many documents as the quotas demand.
        bool from_below() {
            Index slot = n - 1, head = n - 1;
            space.sum.first(nodes).fill(0);  // documents not yet placed
            for (Index r = 0; r < n; ++r)
                if (space.rank[r] < 0 && nodes_of(r)[0] >= 0) ++space.sum[nodes_of(r)[0]];
            for (Index segment = prefixes; segment >= 0; --segment) {
                const Index begin = segment ? Index(space.ends[segment - 1]) : 0;
                if (!find_quotas(begin)) return false;
                while (head >= 0 && space.rank[head] >= 0) --head;
                for (Index r = head; r >= 0; --r) {
                    while (slot >= begin && space.at[slot] >= 0) --slot;
                    if (slot < begin) break;
                    if (space.rank[r] >= 0) continue;
                    const int node = nodes_of(r)[0];
                    if (node >= 0 && space.sum[node] <= space.low[node]) continue;
                    if (node >= 0) --space.sum[node];
                    space.at[slot] = int(r);
                    space.rank[r] = int(slot--);
                }
                while (slot >= begin && space.at[slot] >= 0) --slot;
                if (slot >= begin) return false;
            }
            return true;
        }

        // The documents that each group must have within the first `end`, besides those at given positions; false if there are not
        // as many documents.
        bool find_quotas(Index end) const {
            space.low.first(nodes).fill(0);
            bool can = true;
            for (Index i = 0; i < rules.prefix.size; ++i) {
                if (prefix(i) > end || rules.lower[i] <= 0) continue;
                if (!rules.each_group[i] && space.node_of[i] < 0) return false;
                count_pinned(prefix(i));
                for_nodes(i, [&](int node) {
                    space.low[node] = most(space.low[node], int(rules.lower[i]) - space.pinned[node]);
                    can &= space.low[node] <= space.sum[node];
                });
            }
            return can;
        }
    };
};

}  // namespace rankstruct
