// The mean hinge over all pairs of different grades (RankSVM), and its gradient.
//
// A pair of documents i, j with y_i > y_j costs s_j - s_i + margin if positive. Both ends of that condition are monotone in i
// along the list, so one pass over the documents by score meets each change, and counts the documents of lower (or higher) grade
// met so far. O(n log n + n sqrt(g)) with g grades.
#pragma once

#include "grades.hpp"
#include "lists.hpp"
#include "sums.hpp"

namespace rankstruct {

// The number of grades below a given one among those added so far: whole blocks plus the rest within a block. About sqrt(g)
// numbers are updated by vector instructions without branches, where the number of steps of a tree would be mispredicted.
class GradeCounter {
  public:
    KERNEL GradeCounter(Arena& arena, Index most_grades) : counts(arena.take<int>(2 * most_grades + 64)) {}

    KERNEL void clear(Index grades) {
        for (bits = 3; (Index(1) << 2 * bits) < grades;) ++bits;
        blocks = ((grades - 1) >> bits) + 1;
        counts.first(blocks + (blocks << bits)).fill(0);
    }
    KERNEL void meet(int grade) const {
        int *before_block = counts.data, *within = counts.data + blocks + (grade >> bits << bits);
        const int block = grade >> bits, place = grade & ((1 << bits) - 1), size = 1 << bits;
        for (int b = 0; b < int(blocks); ++b) before_block[b] += b > block;
        for (int g = 0; g < size; ++g) within[g] += g > place;
    }
    KERNEL int below(int grade) const { return counts[grade >> bits] + counts[blocks + grade]; }

  private:
    int bits = 3;  // of the grades in a block
    Index blocks = 0;
    Span<int> counts;
};

struct PairwiseHinge {
    static constexpr double widest = 1.7976931348623157e308;

    double margin;

    struct Space {
        GradeSpace grades;
        GradeCounter met;

        KERNEL Space(Arena& arena, const PairwiseHinge&, const Batch&, Index longest)
            : grades(arena, longest), met(arena, longest) {}
    };

    KERNEL Index solve(List& list, Space& space) const {
        const Grades grades = number_grades(list.label, space.grades);
        const int count = grades.count();
        if (count < 2) return -1;
        const Index n = list.size;
        const Span<const double> score = list.score;
        GradeCounter met = space.met;
        // As the higher grade: going down the list, all j with s_j > s_i - margin have been added.
        double active = 0.0;
        met.clear(count);
        for (Index i = 0, j = 0; i < n; ++i) {
            for (; j < n && score[j] > score[i] - margin; ++j) met.meet(count - 1 - grades.number[j]);
            const double lower = met.below(count - 1 - grades.number[i]);
            active += lower;
            list.coefficient[i] = -lower;
        }
        // As the lower grade: going up the list, all i with s_i - margin < s_j have been added.
        met.clear(count);
        for (Index j = n - 1, i = n - 1; j >= 0; --j) {
            for (; i >= 0 && score[i] - margin < score[j]; --i) met.meet(grades.number[i]);
            list.coefficient[j] += met.below(grades.number[j]);
        }
        // All pairs minus those of one grade.
        double pairs = double(n) * double(n);
        for (int g = 0; g < count; ++g) {
            const double members = grades.starts[g + 1] - grades.starts[g];
            pairs -= members * members;
        }
        pairs *= 0.5;
        list.value = most(dot(list.coefficient, score) + margin * active, 0.0) / pairs;
        for (double& coefficient : list.coefficient) coefficient /= pairs;
        return -1;
    }
};

}  // namespace rankstruct
