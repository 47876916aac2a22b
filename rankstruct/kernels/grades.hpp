// The grades of one list: its distinct values, numbered from the highest.
#pragma once

#include "sort.hpp"

namespace rankstruct {

struct Grades {
    Span<int> number;    // the grade of each value, 0 for the highest
    Span<double> value;  // of each grade, descending
    Span<int> starts;    // [grades + 1]: the sorted values of grade g are in [starts[g], starts[g + 1])

    int count() const { return int(value.size); }
};

constexpr int FEW_GRADES = 64;                 // found by a hash table; more are sorted
constexpr int SLOT_BITS = 8, GRADE_SLOTS = 1 << SLOT_BITS;  // of the hash table

// Scratch for `Grades`. Its sort can be reused.
struct GradeSpace {
    Room each;
    SortSpace<double> sort{each};
    Span<int> number = each(each.count + 1), starts = each(each.count + 1), slot = each(GRADE_SLOTS);
    Span<double> value = each(each.count + 1), slot_value = each(GRADE_SLOTS);
};

// Multiplicative hashing by an odd constant from the golden ratio.
inline int grade_slot(double value) {
    return int((__builtin_bit_cast(Bits64, value) * 0x9E3779B97F4A7C15ull) >> (64 - SLOT_BITS));
}

// `number_grades` by a hash table, except starts[0]; returns the number of grades, or -1 for more than FEW_GRADES. O(n).
inline int number_few_grades(Span<const double> values, const GradeSpace& space) {
    space.slot.fill(0);
    int grades = 0;
    for (Index i = 0; i < values.size; ++i) {
        const double value = values[i] + 0.0;  // -0.0 is 0.0
        int slot = grade_slot(value);
        while (space.slot[slot] && space.slot_value[slot] != value) slot = (slot + 1) & (GRADE_SLOTS - 1);
        if (!space.slot[slot]) {
            if (grades == FEW_GRADES) return -1;
            space.slot[slot] = 1;
            space.slot_value[slot] = value;
            int at = grades++;
            for (; at > 0 && space.value[at - 1] < value; --at) {
                space.value[at] = space.value[at - 1];
                space.starts[at + 1] = space.starts[at];
            }
            space.value[at] = value;
            space.starts[at + 1] = slot;  // temporarily
        }
        space.number[i] = slot;  // temporarily
    }
    for (int g = 0; g < grades; ++g) space.slot[space.starts[g + 1]] = g;
    for (Index i = 0; i < values.size; ++i) space.number[i] = space.slot[space.number[i]];
    // Separate lanes, because reading back a count that was just written is slow.
    constexpr int lanes = GRADE_SLOTS / FEW_GRADES;
    const Span<int> count = space.slot;
    count.fill(0);
    for (Index i = 0; i < values.size; ++i) ++count[lanes * space.number[i] + i % lanes];
    for (int g = 0; g < grades; ++g) {
        space.starts[g + 1] = space.starts[g];
        for (int lane = 0; lane < lanes; ++lane) space.starts[g + 1] += count[lanes * g + lane];
    }
    return grades;
}

// The grades of finite values. O(n) for few grades, otherwise a sort.
inline Grades number_grades(Span<const double> values, GradeSpace& space) {
    const Index n = values.size;
    space.starts[0] = 0;
    int grades = number_few_grades(values, space);
    if (grades < 0) {
        grades = 0;
        const Span<int> order = sort_descending(values, space.sort);
        for (Index i = 0; i < n; ++i) {
            const double value = values[order[i]];
            if (i == 0 || value != space.value[grades - 1]) space.value[grades++] = value;
            space.number[order[i]] = grades - 1;
            space.starts[grades] = int(i + 1);
        }
    }
    return {space.number.first(n), space.value.first(grades), space.starts.first(grades + 1)};
}

// The sum of the products of the weights of two documents, over all pairs of different grades; `of_grade` is scratch.
template <class Weight>
inline double weight_of_pairs(const Grades& grades, Span<double> of_grade, Weight weight) {
    of_grade.first(grades.count()).fill(0.0);
    for (Index i = 0; i < grades.number.size; ++i) of_grade[grades.number[i]] += weight(i);
    double pairs = 0.0, higher = 0.0;
    for (int g = 0; g < grades.count(); ++g) {
        pairs += of_grade[g] * higher;
        higher += of_grade[g];
    }
    return pairs;
}

// A stable counting sort: fill `order` with the positions of the numbers 0, 1, ..., where those of g go to [starts[g], starts[g +
// 1]). `pointer` [numbers] is scratch. O(n).
inline void partition(Span<const int> number, Span<const int> starts, Span<int> order, Span<int> pointer) {
    for (Index g = 0; g + 1 < starts.size; ++g) pointer[g] = starts[g];
    for (Index i = 0; i < number.size; ++i) order[pointer[number[i]]++] = int(i);
}

// The same for documents in any order.
inline void partition(const Grades& grades, Span<const int> documents, Span<int> order, Span<int> pointer) {
    for (Index g = 0; g < grades.count(); ++g) pointer[g] = grades.starts[g];
    for (const int document : documents) order[pointer[grades.number[document]]++] = document;
}

}  // namespace rankstruct
