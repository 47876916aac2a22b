// Groups with caps and quotas, nested or disjoint: the tree that they are, and which documents it can still take.
//
// A group needs the larger of its quota and what its documents and the groups in it need. Sets of documents for which no group
// needs more than its cap, and all together no more than there are positions, are the independent sets of a matroid: those that
// can be completed to a page. So going down any order and taking each document that can be taken gives the best page for it.
#pragma once

#include "numbering.hpp"

namespace rankstruct {

struct Rules {
    static constexpr Index NONE = std::numeric_limits<Index>::min();  // the group of a document without one

    // [rules]: the attribute, its group, whether it is about each group of the attribute instead, the prefix, and the bounds
    Span<const Index> attribute, which, each_group, prefix, lower, upper;
    Index attributes, length;  // the number of attributes, and of positions
};

struct RuleSpace {
    Room each;
    const Rules& rules;
    Room all = each(rules.attributes * each.count);
    Span<Index> name = each;
    Span<int> heads = each(4 * each.count), number = each;  // of a hash table, and what it numbered
    Span<int> node = all;            // [documents, attributes], those with rules first, the smallest first; -1: none
    Span<int> size = all, parent = all, low = all, cap = all, sum = all;  // of the nodes
    Span<int> node_of = each(rules.attribute.size), start = each(rules.attributes + 1);
};

struct RuleTree {
    const Rules& rules;
    const RuleSpace& space;
    Index n;  // the number of documents
    Index nodes = 0;
    bool several = false;  // whether groups of several attributes have rules

    Span<int> nodes_of(Index r) const { return space.node.slice(r * rules.attributes, (r + 1) * rules.attributes); }

    // Number the groups with a rule, `name(a, r)` that of a document, with `everyone` also if it is NONE; false if two overlap
    // without one being in the other. A document's groups come in the order of their sizes; the next larger one must be the same
    // for all documents of a group.
    template <class Name>
    bool grow(Name name, bool everyone = false) {
        for (Index a = 0; a < rules.attributes; ++a) {
            for (Index r = 0; r < n; ++r) space.name[r] = name(a, r);
            const Span<int> first = space.size.slice(nodes, nodes + n);
            const Span<int> number = rules.attributes == 1 ? space.node : space.number;
            const int count = number_groups(space.name.first(n), space.heads, first, number);
            const Span<int> used = space.cap.first(count);  // the node of each number; -1: without a rule
            used.fill(-1);
            const Index begin = nodes;
            for (Index i = 0; i < rules.attribute.size; ++i) {
                if (rules.attribute[i] != a) continue;
                space.node_of[i] = -1;
                for (int g = 0; g < count; ++g) {
                    const Index its = space.name[first[g]];
                    if ((its == Rules::NONE && !everyone) || !(rules.each_group[i] || its == rules.which[i])) continue;
                    used[g] = 0;
                    if (!rules.each_group[i]) space.node_of[i] = g;
                }
            }
            for (int& its : used)
                if (its == 0) its = int(nodes++);
            for (Index i = 0; i < rules.attribute.size; ++i)
                if (rules.attribute[i] == a && space.node_of[i] >= 0) space.node_of[i] = used[space.node_of[i]];
            space.start[a] = int(begin);
            space.start[a + 1] = int(nodes);
            for (Index r = 0; r < n; ++r) nodes_of(r)[a] = used[number[r]];
            several |= begin > 0 && nodes > begin;
        }
        return nest();
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

    // A group needs `more` documents, where `sum` is what is in the groups; returns whether it, and those that it is in, may. With
    // `dry`, nothing is changed.
    bool need(Span<int> sum, int node, int more, Index& total, Index room, bool dry) const {
        for (; node >= 0 && more > 0; node = space.parent[node]) {
            const int before = most(space.low[node], sum[node]), after = most(space.low[node], sum[node] + more);
            if (after > space.cap[node]) return false;
            if (!dry) sum[node] += more;
            more = after - before;
        }
        if (total + more > room) return false;
        if (!dry) total += more;
        return true;
    }

    // Take a document if it can be taken.
    bool take(Span<int> sum, Index r, Index& total, Index room) const {
        const int node = nodes_of(r)[0];
        if (node >= 0 && sum[node] >= space.cap[node]) return false;
        return need(sum, node, 1, total, room, true) && need(sum, node, 1, total, room, false);
    }

    // What the groups need for quotas `quota(rule, node)`, in the space's `low` and `sum`; false if that is too much.
    template <class Quota>
    bool reserve(Quota quota, Index& total, Index room) const {
        bool can = true;
        space.low.first(nodes).fill(0);
        space.sum.first(nodes).fill(0);
        for (Index i = 0; i < rules.attribute.size; ++i) {
            if (rules.lower[i] <= 0) continue;
            if (!rules.each_group[i] && space.node_of[i] < 0) return false;
            for_nodes(i, [&](int node) {
                const int its = quota(i, node), needed = most(space.low[node], space.sum[node]);
                space.low[node] = most(space.low[node], its);
                can &= space.low[node] <= space.cap[node];
                if (its > needed) can &= need(space.sum, space.parent[node], its - needed, total, room, false);
            });
        }
        return can;
    }

    bool meets_quotas(Span<const int> sum) const {
        for (int node = 0; node < nodes; ++node)
            if (sum[node] < space.low[node]) return false;
        return true;
    }

  private:
    bool nest() const {
        const Span<int> parent = space.parent.first(nodes), size = space.size.first(nodes);
        if (!several && rules.attributes == 1) return parent.fill(-1), true;
        constexpr int unseen = -2;
        parent.fill(unseen);
        size.fill(0);
        for (const int node : space.node.first(n * rules.attributes))
            if (node >= 0) ++size[node];
        for (Index r = 0; r < n; ++r) {
            const Span<int> own = nodes_of(r);
            for (Index a = 1; a < own.size; ++a)  // a sort by size; of equal ones, the earlier attribute
                for (Index b = a; b > 0 && own[b] >= 0 && (own[b - 1] < 0 || size[own[b]] < size[own[b - 1]]); --b)
                    std::swap(own[b], own[b - 1]);
            for (Index a = 0; a < own.size && own[a] >= 0; ++a) {
                const int above = a + 1 < own.size ? own[a + 1] : -1;
                if (parent[own[a]] == unseen) parent[own[a]] = above;
                if (parent[own[a]] != above) return false;
            }
        }
        return true;
    }
};

}  // namespace rankstruct
