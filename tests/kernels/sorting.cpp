// Sorting of scores, numbering of grades, and sharing among ties.
#include "binary.hpp"
#include "grades.hpp"
#include "space.hpp"

using namespace rankstruct;

// Fill `order` with the positions of the values by descending value, `times` times with the same scratch.
template <class T>
static Index sorted(Span<const T> value, Span<Index> order, Index times) {
    return with_filled_space<SortSpace<T>>(
        [&](SortSpace<T>& space) {
            for (Index turn = 0; turn < times; ++turn) {
                const Span<int> found = sort_descending<T>(value, space);
                for (Index i = 0; i < found.size; ++i) order[i] = found[i];
            }
            return Index(0);
        },
        value.size);
}

EXPORT Index sort_floats(Span<const float> value, Span<Index> order, Index times) { return sorted(value, order, times); }
EXPORT Index sort_doubles(Span<const double> value, Span<Index> order, Index times) { return sorted(value, order, times); }

// Returns the number of grades; fills the fields of `Grades`, and the order of `partition`, for which `pointer` is scratch.
EXPORT Index grades_of(Span<const double> values, Span<int> number, Span<double> value, Span<int> starts, Span<int> order,
                       Span<int> pointer) {
    return with_filled_space<GradeSpace>(
        [&](GradeSpace& space) {
            const Grades found = number_grades(values, space);
            for (Index i = 0; i < values.size; ++i) number[i] = found.number[i];
            for (Index g = 0; g < found.count(); ++g) value[g] = found.value[g];
            for (Index g = 0; g <= found.count(); ++g) starts[g] = found.starts[g];
            partition(found.number, found.starts, order, pointer);
            return Index(found.count());
        },
        values.size);
}

EXPORT Index share(Span<const double> score, Span<const double> chosen, Span<const int> ranks, Span<double> coefficient) {
    List list{};
    list.score = score;
    list.chosen = chosen;
    list.coefficient = coefficient;
    share_among_tied(list, ranks);
    return any_tied(score);
}
