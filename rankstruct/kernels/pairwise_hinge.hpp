// The mean hinge over all pairs of different grades (RankSVM), and its gradient.
//
// A pair of documents i, j with y_i > y_j costs s_j - s_i + margin if positive. Both ends of that condition are monotone in i
// along the list, so one pass over the documents by score meets each change, and counts the documents of lower (or higher) grade
// met so far. With item weights the mean is weighted by the product of a pair's two weights, and weights are added up in place of
// counts. O(n log n + n sqrt(g)) with g grades.
#pragma once

#include "grades.hpp"
#include "lists.hpp"
#include "sums.hpp"

namespace rankstruct {

// The number of grades below a given one among those added so far: whole blocks plus the rest within a block. About sqrt(g)
// numbers are updated by vector instructions without branches, where the number of steps of a tree would be mispredicted.
template <class Number>
class GradeCounter {
  public:
    explicit GradeCounter(Room grade) : counts(grade(2 * grade.count + 64)) {}

    void clear(Index grades) {
        for (bits = 3; (Index(1) << 2 * bits) < grades;) ++bits;
        blocks = ((grades - 1) >> bits) + 1;
        counts.first(blocks + (blocks << bits)).fill(0);
    }
    void meet(int grade, Number by) const {
        Number *before_block = counts.data, *within = counts.data + blocks + (grade >> bits << bits);
        const int block = grade >> bits, place = grade & ((1 << bits) - 1), size = 1 << bits;
        for (int b = 0; b < int(blocks); ++b) before_block[b] += b > block ? by : Number(0);
        for (int g = 0; g < size; ++g) within[g] += g > place ? by : Number(0);
    }
    Number below(int grade) const { return counts[grade >> bits] + counts[blocks + grade]; }

  private:
    int bits = 3;  // of the grades in a block
    Index blocks = 0;
    Span<Number> counts;
};

// The same for at most 8 grades, added up in registers: adding to a number in memory that was just written takes longer, which
// matters for sums of weights, though not for counts.
class FewGradesCounter {
  public:
    static constexpr int most_grades = 8;

    explicit FewGradesCounter(Span<double> copy) : copy(copy) {}

    void clear(Index) {
        for (double& sum : sums) sum = 0.0;
    }
    void meet(int grade, double by) {
        for (int g = 0; g < most_grades; ++g) sums[g] += g > grade ? by : 0.0;
    }
    double below(int grade) const {
        for (int g = 0; g < most_grades; ++g) copy[g] = sums[g];
        return copy[grade];
    }

  private:
    double sums[most_grades];
    Span<double> copy;
};

struct PairwiseHinge {
    static constexpr double widest = LARGEST;

    double margin;

    struct Space : Scratch<PairwiseHinge> {
        GradeSpace grades{each};
        GradeCounter<int> met{each};
        GradeCounter<double> weight_met{each.when(batch.item_weights)};
        Span<double> by_grade = each(each.count + FewGradesCounter::most_grades);
    };

    void solve(List& list, Space& space) const {
        const Grades grades = number_grades(list.label, space.grades);
        if (grades.count() < 2) return;
        double active = 0.0, pairs = 0.0;
        if (list.weight.size) {
            const double* weight = list.weight.data;
            const auto weight_of = [=](Index i) { return weight[i]; };
            active = grades.count() <= FewGradesCounter::most_grades ? count(list, grades, FewGradesCounter(space.by_grade), weight_of)
                                                                     : count(list, grades, space.weight_met, weight_of);
            pairs = weight_of_pairs(grades, space.by_grade, weight_of);
        } else {
            active = count(list, grades, space.met, [](Index) { return 1; });
            // starts[g] documents are of a higher grade than g.
            for (int g = 0; g < grades.count(); ++g) pairs += double(grades.starts[g + 1] - grades.starts[g]) * grades.starts[g];
        }
        if (pairs == 0.0) pairs = INFINITE;  // weights underflow
        list.value = most(dot(list.coefficient, list.score) + margin * active, 0.0) / pairs;
        for (double& coefficient : list.coefficient) coefficient /= pairs;
    }

  private:
    // Compute the coefficients of the sum over the pairs; returns the number of those that cost something, or their weight.
    template <class Counter, class Weight>
    double count(List& list, const Grades& grades, Counter met, Weight weight) const {
        const Index n = list.size;
        const int last = grades.count() - 1;
        const Span<const double> score = list.score;
        // As the higher grade: going down the list, all j with s_j > s_i - margin have been added.
        double active = 0.0;
        met.clear(last + 1);
        for (Index i = 0, j = 0; i < n; ++i) {
            for (; j < n && score[j] > score[i] - margin; ++j) met.meet(last - grades.number[j], weight(j));
            const double lower = weight(i) * met.below(last - grades.number[i]);
            active += lower;
            list.coefficient[i] = -lower;
        }
        // As the lower grade: going up the list, all i with s_i - margin < s_j have been added.
        met.clear(last + 1);
        for (Index j = n - 1, i = n - 1; j >= 0; --j) {
            for (; i >= 0 && score[i] - margin < score[j]; --i) met.meet(grades.number[i], weight(i));
            list.coefficient[j] += weight(j) * met.below(grades.number[j]);
        }
        return active;
    }
};

}  // namespace rankstruct
