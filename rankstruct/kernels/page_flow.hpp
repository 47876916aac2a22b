// The most valuable assignment of ranks to documents whose groups have caps and quotas: a flow of one unit from each rank.
//
// A unit goes from its rank to a document, to the group of the document, and up the tree of groups to where it ends. Each group has
// a place for every document that it needs for its quota beyond what the groups in it need; all other units pass to the group
// above, as many as its cap exceeds what it needs; and after the last group there are the positions that no quota needs. A page
// keeps the rules if and only if such a flow fills it: no group passes on more than its cap allows, and as all places together are
// the positions of a page, a full page leaves none of those for quotas empty. If the caps allow no full page, all pages of the
// largest number of documents are alike in this (`RuleTree`). So no arc needs a lower bound, and ranks can be added one by one
// along shortest augmenting paths (Hungarian method), which keep the flow optimal.
//
// Values are whole numbers in doubles, so that sums are exact and the potentials stay feasible. A gap of scores that decides by
// itself which documents come first is narrowed before, since it would else take all digits.
//
// About O(documents + nodes) for each document that a path passes.
#pragma once

#include "sums.hpp"

namespace rankstruct {

struct PageFlow {
    Room rank, document, group;  // their largest numbers
    // Of the documents, by descending score.
    Span<double> score = document, gain = document;
    Span<int> leaf = document;  // the node of each one's group
    // Of the nodes: 0 is what is above all groups.
    Span<int> parent = group, places = group, passes = group;  // free places, and how many more may pass
    // Of the ranks: the value of a document is c score - a gain.
    Span<double> c = rank, a = rank;
    Span<int> column = rank;  // the document of each rank
    Index documents = 0, nodes = 0, leads = 0;  // the first ranks take no gain above 0

    Span<int> passed = group, left = group, open = group;
    Span<double> profit = rank;  // the potentials of ranks
    Room any = group(group.count + document.count);  // nodes, then documents
    Span<double> potential = any, distance = any, key = any;
    Span<int> from = any, settled = any, owner = document;  // the node or document before, or the rank before a document

    // Scale values to whole numbers, for as many ranks. `stake` is the most that gains can be worth.
    void scale(Index ranks, double stake) {
        narrow(ranks, stake);
        double dearest = 0.0;
        for (const double its : gain.first(documents)) dearest = most(dearest, its);
        const double bound = c[0] * (score[0] - score[documents - 1]) + a[0] * dearest;
        const double unit = bound > 1e-280 && bound < INFINITE ? ROUNDED / (2.0 * double(ranks) + 4.0) / bound : 0.0;
        for (Index i = 0; i < ranks; ++i) {
            c[i] *= unit;
            a[i] *= unit;
        }
    }

    // Fill `column` for as many ranks; false if there are not as many documents that ranks which lead may show.
    bool solve(Index ranks) {
        potential.first(nodes + documents).fill(0.0);
        owner.first(documents).fill(-1);
        passed.first(nodes).fill(0);
        for (Index v = 0; v < nodes; ++v) {
            left[v] = places[v];
            open[v] = passes[v];
        }
        column.first(ranks).fill(-1);
        for (Index i = 0; i < ranks; ++i)
            if (!add(int(i), int(i))) return false;
        return true;
    }

  private:
    static constexpr double ROUNDED = 0x1p51;  // whole numbers up to here are rounded by adding and subtracting SHIFT
    static constexpr double SHIFT = 0x1.8p52;

    double worth(Index i, Index d) const {
        return ((c[i] * score[d] + SHIFT) - SHIFT) - ((a[i] * gain[d] + SHIFT) - SHIFT);
    }

    // Narrow wide gaps between scores. In the page by score, the number of documents below the gap among the first i ranks is the
    // lowest for all i. A page that has more at some rank loses at least the gap times the least decrease of c: if this is more
    // than the stake it cannot be better, and that remains so if the gap is narrower.
    void narrow(Index ranks, double stake) const {
        double fall = INFINITE;
        for (Index i = 0; i < ranks; ++i) {
            const double its = c[i] - (i + 1 < ranks ? c[i + 1] : 0.0);
            if (its > 0.0) fall = least(fall, its);
        }
        const double enough = 2.0 * stake / fall;
        double above = score[0];
        for (Index d = 1; d < documents; ++d) {
            const double gap = least(above - score[d], enough);
            above = score[d];
            score[d] = score[d - 1] - gap;
        }
    }

    bool may(Index i, Index d) const { return i >= leads || gain[d] <= 0.0; }

    void offer(Index to, double reach, int by) const {
        if (!(reach < distance[to])) return;
        distance[to] = key[to] = reach;
        from[to] = by;
    }

    void reach_documents(Index i, double away) const {
        const double base = away + profit[i];
        for (Index d = 0; d < documents; ++d)
            if (may(i, d)) offer(nodes + d, base - worth(i, d) - potential[nodes + d], int(i));
    }

    // Add a rank by a shortest augmenting path, with `assigned` ranks before it.
    bool add(int rank, Index assigned) const {
        const Index all = nodes + documents;
        distance.first(all).fill(INFINITE);
        key.first(all).fill(INFINITE);
        profit[rank] = -INFINITE;
        for (Index d = 0; d < documents; ++d)
            if (may(rank, d)) profit[rank] = most(profit[rank], worth(rank, d) + potential[nodes + d]);
        reach_documents(rank, 0.0);
        double end = INFINITE;
        int last = -1;
        Index count = 0;
        for (;;) {
            Index at = 0;
            for (Index x = 1; x < all; ++x) at = key[x] < key[at] ? x : at;
            const double away = key[at];
            if (away >= end) break;  // both infinite if there is no path
            key[at] = INFINITE;
            settled[count++] = int(at);
            if (at >= nodes) {
                const Index d = at - nodes;
                if (owner[d] >= 0)
                    reach_documents(owner[d], away);
                else
                    offer(leaf[d], away + potential[at] - potential[leaf[d]], int(at));
                continue;
            }
            if (left[at] > 0 && away + potential[at] < end) {
                end = away + potential[at];
                last = int(at);
                if (end <= away) break;
            }
            const double base = away + potential[at];
            if (at > 0 && open[at] > 0) offer(parent[at], base - potential[parent[at]], int(at));
            for (Index v = 1; v < nodes; ++v)
                if (parent[v] == at && passed[v] > 0) offer(v, base - potential[v], int(at));
            for (Index i = 0; i < assigned; ++i)
                if (leaf[column[i]] == at) offer(nodes + column[i], base - potential[nodes + column[i]], -1);
        }
        if (last == -1) return false;
        for (Index s = 0; s < count; ++s) {
            const Index x = settled[s];
            potential[x] += distance[x] - end;
            if (x >= nodes && owner[x - nodes] >= 0) profit[owner[x - nodes]] += distance[x] - end;
        }
        profit[rank] -= end;
        augment(rank, last);
        return true;
    }

    void augment(int rank, Index at) const {
        --left[at];
        for (;;) {
            const Index by = from[at];  // of a node
            if (by < nodes) {
                const bool up = by > 0 && parent[by] == at;
                const Index lower = up ? by : at;
                passed[lower] += up ? 1 : -1;
                open[lower] -= up ? 1 : -1;
                at = by;
                continue;
            }
            for (Index d = by - nodes;;) {
                const int its = from[nodes + d];
                if (its < 0) {  // its rank has another one
                    owner[d] = -1;
                    at = leaf[d];
                    break;
                }
                const int before = column[its];
                column[its] = int(d);
                owner[d] = its;
                if (its == rank) return;
                d = before;
            }
        }
    }
};

}  // namespace rankstruct
