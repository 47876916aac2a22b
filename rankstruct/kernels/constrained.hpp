// The best ranking by score under caps and quotas of groups within prefixes, and documents at given positions.
//
//     maximise   sum_i c_i s_r(i),   c decreasing,   l <= number of documents of g in the first p positions <= u
//
// for rules (g, p, l, u). Three cases are solved by going down a sorted list and taking each document that can be taken:
//
// - One prefix, and groups that are nested or disjoint. The sets that can be completed to a page are the independent sets of a
//   matroid, so the greedy set of every size has the highest sum, for all c at once.
// - Several prefixes, disjoint groups, caps only. The t-th document of a group may come from some position on. If the best ranking
//   has another document where the greedy one has d, the two can change places: that of the later position may come there too, or
//   the next of its group does.
// - Several prefixes, disjoint groups, quotas only. From the last position up these are caps, and the lowest document comes first.
//
// All else is left to the caller: with caps and quotas of several prefixes the best ranking depends on c, and overlapping groups
// are hard in general. A ranking ends where the caps leave no document, so it may be shorter than the list.
#pragma once

#include "lists.hpp"
#include "rule_tree.hpp"

namespace rankstruct {

struct Constrained : Rules {
    static constexpr double widest = INFINITE;  // scores are only compared
    // What `List::task_loss` says. `List::value` is the number of documents shown, coefficients are ranks or 0.
    enum Outcome : int { SOLVED, INFEASIBLE, LEFT };

    Span<const Index> group;     // [attributes * documents], NONE for a document without one
    Span<const Index> position;  // [documents], from 1; 0: any

    struct Space : Scratch<Constrained> {
        RuleSpace rules{each, kernel};
        Span<int> pinned = rules.all;             // documents at given positions, of the nodes
        Span<int> ends = each(kernel.attribute.size);
        Span<int> at = each, rank = each;         // the document at each position, and its position; -1: none
    };

    void solve(List& list, Space& space) const { Page{*this, list, space}.solve(); }

  private:
    struct Page {
        const Constrained& rules;
        List& list;
        Space& space;
        Index n = list.size, horizon = least(list.size, rules.length), prefixes = 0;
        bool caps = false, quotas = false;
        RuleTree tree{rules, space.rules, n};
        Span<int> low = space.rules.low, sum = space.rules.sum, cap = space.rules.cap;

        void solve() {
            space.rank.first(n).fill(-1);
            space.at.first(n).fill(-1);
            if (!pin()) return;
            const Index documents = rules.group.size / rules.attributes;
            const auto name = [&](Index a, Index r) { return rules.group[a * documents + list.start + list.place[r]]; };
            if (!tree.grow(name)) return void(list.task_loss = LEFT);
            find_bounds();
            if (prefixes > 1 && (tree.several || (caps && quotas))) return void(list.task_loss = LEFT);
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

        // Count the documents at given positions within a prefix, by group.
        void count_pinned(Index end) const {
            space.pinned.first(tree.nodes).fill(0);
            for (Index i = 0; rules.position.size && i < end; ++i)
                if (space.at[i] >= 0 && position(space.at[i]) > 0)
                    for (const int node : tree.nodes_of(space.at[i]))
                        if (node >= 0) ++space.pinned[node];
        }

        // How many more documents than those at given positions each group may have within the first `end`, by rules from there on.
        bool find_caps(Index end) const {
            cap.first(tree.nodes).fill(int(n));
            bool can = true;
            for (Index i = 0; i < rules.prefix.size; ++i) {
                if (prefix(i) < end || rules.upper[i] >= prefix(i)) continue;
                count_pinned(prefix(i));
                tree.for_nodes(i, [&](int node) {
                    cap[node] = least(cap[node], int(rules.upper[i]) - space.pinned[node]);
                    can &= cap[node] >= 0;
                });
            }
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
                if (segment == 0) {
                    if (quotas) count_pinned(space.ends[0]);
                    const auto quota = [&](Index i, int node) { return int(rules.lower[i]) - space.pinned[node]; };
                    if (!tree.reserve(quota, total, room)) return false;
                }
                if (is_last || !quotas) total = -n;
                if (is_last) low.first(tree.nodes).fill(0);
                while (head < n && space.rank[head] >= 0) ++head;
                for (Index r = head; r < n && slot < end; ++r) {
                    while (slot < end && space.at[slot] >= 0) ++slot;
                    if (slot == end) break;
                    if (space.rank[r] >= 0 || !tree.take(sum, r, total, room)) continue;
                    space.at[slot] = int(r);
                    space.rank[r] = int(slot++);
                }
                while (slot < end && space.at[slot] >= 0) ++slot;
                if (segment == 0 && quotas && !tree.meets_quotas(sum)) return false;
                if (slot < end) break;  // no document may come here
            }
            for (Index i = slot; i < horizon; ++i)
                if (space.at[i] >= 0) return false;  // a given position that the ranking does not reach
            return true;
        }

        // Fill the positions from the last; before position i + 1, each group must have as many documents as the quotas demand.
        bool from_below() {
            Index slot = n - 1, head = n - 1;
            sum.first(tree.nodes).fill(0);  // documents not yet placed
            for (Index r = 0; r < n; ++r)
                if (space.rank[r] < 0 && tree.nodes_of(r)[0] >= 0) ++sum[tree.nodes_of(r)[0]];
            for (Index segment = prefixes; segment >= 0; --segment) {
                const Index begin = segment ? Index(space.ends[segment - 1]) : 0;
                if (!find_quotas(begin)) return false;
                while (head >= 0 && space.rank[head] >= 0) --head;
                for (Index r = head; r >= 0; --r) {
                    while (slot >= begin && space.at[slot] >= 0) --slot;
                    if (slot < begin) break;
                    if (space.rank[r] >= 0) continue;
                    const int node = tree.nodes_of(r)[0];
                    if (node >= 0 && sum[node] <= low[node]) continue;
                    if (node >= 0) --sum[node];
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
            low.first(tree.nodes).fill(0);
            bool can = true;
            for (Index i = 0; i < rules.prefix.size; ++i) {
                if (prefix(i) > end || rules.lower[i] <= 0) continue;
                if (!rules.each_group[i] && space.rules.node_of[i] < 0) return false;
                count_pinned(prefix(i));
                tree.for_nodes(i, [&](int node) {
                    low[node] = most(low[node], int(rules.lower[i]) - space.pinned[node]);
                    can &= low[node] <= sum[node];
                });
            }
            return can;
        }
    };
};

}  // namespace rankstruct
