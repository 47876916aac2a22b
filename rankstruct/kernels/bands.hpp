// Long lists with binary relevance, of which few documents are sorted.
//
// Let K(j, s) be the first relevant document below an irrelevant one, the j-th by descending score s, in the most violated
// ranking. It does not decrease with j and does not increase with s. Documents are put in bands of equal width by score, and those
// in a band whose edges have the same K all have this K, whatever their order: they are only counted. The others, few because K
// has at most p + 1 values, and all relevant documents form the list that is sorted.
#pragma once

#include "binary.hpp"
#include "sums.hpp"

namespace rankstruct {

// A list in bands.
template <class T>
struct BandedList {
    const T* scores;  // by position
    Index size;
    Span<const int> relevant;  // positions, by descending score
    T highest, bands_per_score;

    Index p() const { return relevant.size; }
    Index m() const { return size - p(); }
    // The score relative to the highest one, and that at a number of bands below it.
    double score(Index at) const { return double(scores[at]) - double(highest); }
    double edge(double bands) const { return -bands / double(bands_per_score); }
    int band_of(Index at) const { return int((highest - scores[at]) * bands_per_score); }
};

struct Bands {
    static constexpr double slack = 1.0 / 256;  // in bands: more than the rounding of `band_of` in single precision

    Room document, edge;                     // whose counts are 0 for batches that are sorted
    Span<unsigned short> band = document;    // by position; BANDS for relevant documents
    Span<int> relevant = document;           // positions
    Span<int> place = document;              // positions of the documents to sort
    Span<int> number = document;             // j of each irrelevant one of these
    Span<int> before = edge, first = edge;   // irrelevant documents in earlier bands; K
    Span<unsigned char> sorted = edge;       // whether the documents are sorted
    Span<double> coefficient = edge;         // of each document, 0 if they are sorted

    static Bands of(const Batch& batch, Room each) {
        const bool used = takes(batch) && each.count >= LONG_LIST;
        return {each.when(used), each(BANDS + 1).when(used)};
    }

    static bool takes(const Batch& batch) {
        return !batch.where && !batch.chosen && !batch.gains && !batch.thresholds && !batch.item_weights;
    }

    // Put the documents of a list in bands; false if it has many relevant ones, or numbers that may be refused.
    template <class T>
    bool divide(const Batch& batch, Index index, Relevance relevance, double widest, SortSpace<T>& sort, BandedList<T>& list) const {
        const Index start = batch.begin(index), n = batch.begin(index + 1) - start;
        if (!takes(batch)) return false;
        const T* scores = static_cast<const T*>(batch.scores) + start;
        const Index p = with_labels(batch, start, [&](const auto* labels) {
            return find_relevant(labels, n, relevance, batch.least_label);
        });
        const double highest = highest_of(n, [=](Index i) { return double(scores[i]); });
        const double range = highest + highest_of(n, [=](Index i) { return -double(scores[i]); });
        const bool usual = range >= 1e-30 && range <= least(widest, 1e30) && !any_broken(Span<const T>{scores, n});
        if (p < 1 || p > n / RELEVANT_SHARE || p == n || !usual) return false;
        const Span<int> order = sort_places(place.first(p), scores, sort);
        list = {scores, n, gather<int>(order, [](int at) { return at; }, relevant), T(highest), T(double(BANDS - 1) / range)};
        unsigned short* to = band.data;
        for (Index i = 0; i < n; ++i) to[i] = (unsigned short)list.band_of(i);
        for (const int at : list.relevant) to[at] = BANDS;
        before.fill(0);
        for (Index i = 0; i < n; ++i) ++before[to[i]];
        begin_buckets(before);
        return true;
    }

    // Lay out the documents of the bands that are sorted; false if they are too many.
    template <class T>
    bool lay_out(const BandedList<T>& banded, ListSpace<T>& space, List& list) const {
        Index found = 0;
        for (Index i = 0; i < banded.size; ++i) {
            place[found] = int(i);
            found += sorted[band[i]];
        }
        if (found > banded.size / SORTED_SHARE) return false;
        const Span<int> order = sort_places(place.first(found), banded.scores, space.sort);
        list.size = found;
        list.places = banded.size;
        list.highest = double(banded.highest);
        list.place = order;
        list.score = gather<double>(order, [&](Index at) { return banded.score(at); }, space.score);
        list.coefficient = space.coefficient.first(found);
        return true;
    }

    // Split the list that was laid out, and number its irrelevant documents from 1.
    BinaryList split(const List& list, const BinarySpace& space) const {
        const BinaryList found = space.split(list.score, [&](int rank) { return band[list.place[rank]] == BANDS; },
                                             [](Index i) { return i; });
        int own = -1, earlier = 0;
        for (int t = 0; t < int(found.m()); ++t) {
            const int its = band[list.place[found.irrelevant[t]]];
            if (its != own) own = its, earlier = before[its] - t;
            number[t] = earlier + t + 1;
        }
        return found;
    }

    // Write the direction of the documents that are not sorted, and 0 for the others; returns its product with the scores.
    template <class T>
    double write_rest(const BandedList<T>& list, T* direction) const {
        const double* its = coefficient.data;
        const unsigned short* of = band.data;
        for (Index i = 0; i < list.size; ++i) direction[i] = T(its[of[i]]);
        return sum_of(list.size, [=](Index i) { return its[of[i]] * list.score(i); });
    }

  private:
    // Write the positions of relevant documents to `place`; returns their number, or -1 if a label is refused.
    template <class Label>
    Index find_relevant(const Label* labels, Index size, Relevance relevance, double least_label) const {
        constexpr Index block = 64;  // most have no relevant document
        Index found = 0;
        for (Index begin = 0; begin < size; begin += block) {
            const Index end = least(size, begin + block);
            bool any = false, refused = false;
            for (Index i = begin; i < end; ++i) {
                const double label = double(labels[i]);
                any |= relevance(label);
                refused |= !(is_finite(label) & (label >= least_label));
            }
            if (refused) return -1;
            for (Index i = begin; any && i < end; ++i) {
                place[found] = int(i);
                found += relevance(double(labels[i]));
            }
        }
        return found;
    }
};

}  // namespace rankstruct
