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

    Span<int> passed = group, left = group, open = group, exits = group;  // whether a unit at a node can end there or above
    Span<double> profit = rank, row = document;  // the potentials of ranks; those of documents plus what they are worth at a rank
    Room any = group(group.count + document.count);  // nodes, then documents
    Span<double> potential = any, distance = any;
    Span<int> from = any, settled = any, waiting = any, owner = document;  // the node or document before, or the rank of a document

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
        for (Index i = 0; i < ranks; ++i)
            if (!Path{*this, int(i)}.find()) return false;
        return true;
    }

  private:
    static constexpr double ROUNDED = 0x1p51;  // whole numbers up to here are rounded by adding and subtracting SHIFT
    static constexpr double SHIFT = 0x1.8p52;

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

    // Fill `row`; returns its maximum.
    double fill_row(Index rank) const {
        const double its_c = c[rank], its_a = a[rank];
        const double *its_score = score.data, *its_gain = gain.data, *its_potential = potential.data + nodes;
        double* const found = row.data;
        for (Index d = 0; d < documents; ++d) {
            const double worth = ((its_c * its_score[d] + SHIFT) - SHIFT) - ((its_a * its_gain[d] + SHIFT) - SHIFT);
            found[d] = worth + its_potential[d];
        }
        for (Index d = 0; rank < leads && d < documents; ++d)
            if (its_gain[d] > 0.0) found[d] = -INFINITE;
        return highest_of(documents, [=](Index d) { return found[d]; });
    }

    // A shortest augmenting path from a rank, those before it being assigned. Where a unit can end without another one moving, all
    // potentials on its way are 0, and so nothing behind has to be looked at.
    struct Path {
        const PageFlow& flow;
        const int rank;
        double end = INFINITE;
        Index last = -1, count = 0, queued = 0;  // where a unit ends; nodes and documents that are settled, and that wait

        bool find() {
            flow.distance.first(flow.nodes + flow.documents).fill(INFINITE);
            for (Index v = 0; v < flow.nodes; ++v) flow.exits[v] = can_end(v);
            flow.profit[rank] = flow.fill_row(rank);
            reach_documents(rank, 0.0);
            for (int at = next(); at >= 0; at = next()) settle(at, flow.distance[at]);
            if (last < 0) return false;
            for (const int x : flow.settled.first(count)) {
                const double fall = flow.distance[x] - end;
                flow.potential[x] += fall;
                if (x >= flow.nodes && flow.owner[x - flow.nodes] >= 0) flow.profit[flow.owner[x - flow.nodes]] += fall;
            }
            flow.profit[rank] -= end;
            augment();
            return true;
        }

      private:
        bool can_end(Index v) const {
            for (; flow.left[v] == 0; v = flow.parent[v])
                if (v == 0 || flow.open[v] == 0) return false;
            return true;
        }

        // The nearest one that waits, if it is nearer than the end.
        int next() {
            Index at = 0;
            for (Index w = 1; w < queued; ++w)
                if (flow.distance[flow.waiting[w]] < flow.distance[flow.waiting[at]]) at = w;
            if (!queued || !(flow.distance[flow.waiting[at]] < end)) return -1;
            const int found = flow.waiting[at];
            flow.waiting[at] = flow.waiting[--queued];
            return flow.settled[count++] = found;
        }

        void offer(Index to, double reach, Index by, bool ends) {
            if (!(reach < end) || !(reach < flow.distance[to])) return;
            if (ends) {
                end = reach;
                last = to;
            } else if (flow.distance[to] == INFINITE) {
                flow.waiting[queued++] = int(to);
            }
            flow.distance[to] = reach;
            flow.from[to] = int(by);
        }

        // By what `fill_row` found.
        void reach_documents(int from, double away) {
            const double base = away + flow.profit[from];
            for (Index d = 0; d < flow.documents; ++d) {
                const double reach = base - flow.row[d];
                if (reach < end) offer(flow.nodes + d, reach, from, flow.owner[d] < 0 && flow.exits[flow.leaf[d]]);
            }
        }

        void reach_node(Index v, double base, Index by) { offer(v, base - flow.potential[v], by, flow.exits[v]); }

        void settle(Index at, double away) {
            const double base = away + flow.potential[at];
            if (at >= flow.nodes) {
                const Index d = at - flow.nodes;
                if (flow.owner[d] < 0) return reach_node(flow.leaf[d], base, at);
                flow.fill_row(flow.owner[d]);
                return reach_documents(flow.owner[d], away);
            }
            if (at > 0 && flow.open[at] > 0) reach_node(flow.parent[at], base, at);
            for (Index v = 1; v < flow.nodes; ++v)
                if (flow.parent[v] == at && flow.passed[v] > 0) reach_node(v, base, at);
            for (Index i = 0; i < rank; ++i) {
                const Index d = flow.column[i], x = flow.nodes + d;
                if (flow.leaf[d] == at) offer(x, base - flow.potential[x], -1, false);
            }
        }

        // Move the units along the path.
        void augment() const {
            Index v = last < flow.nodes ? last : flow.leaf[last - flow.nodes];
            for (; flow.left[v] == 0; v = flow.parent[v]) pass(v, 1);
            --flow.left[v];
            Index at = last;
            for (;;) {
                for (; at < flow.nodes; at = flow.from[at]) {
                    const Index by = flow.from[at];
                    if (by < flow.nodes) by > 0 && flow.parent[by] == at ? pass(by, 1) : pass(at, -1);
                }
                for (Index d = at - flow.nodes;;) {
                    const int its = flow.from[flow.nodes + d];
                    if (its < 0) {  // its rank has another one
                        flow.owner[d] = -1;
                        at = flow.leaf[d];
                        break;
                    }
                    const int before = flow.column[its];
                    flow.column[its] = int(d);
                    flow.owner[d] = its;
                    if (its == rank) return;
                    d = before;
                }
            }
        }

        void pass(Index v, int units) const {
            flow.passed[v] += units;
            flow.open[v] -= units;
        }
    };
};

}  // namespace rankstruct
