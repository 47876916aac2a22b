// Losses whose terms are sums over the pairs of a list, S_i = sum over j of f(s_j - s_i), or softmaxes over it, one a rank:
// smoothed ranks (ApproxNDCG, Smooth-AP, ADR-MSE), SmoothGrad, NeuralSort, SoftRank, and the circle loss, whose sum comes apart.
// O(n) memory, and of SoftRank O(n k); O(n^2) time at most, unless it says something else.
#pragma once

#include "grades.hpp"
#include "lists.hpp"
#include "pairwise_logistic.hpp"
#include "rank_binomial.hpp"
#include "sums.hpp"
#include "vector_math.hpp"

namespace rankstruct {

// Smoothed ranks less 1, S_i = sum over j != i of f((s_j - s_i) / temperature), as the coefficients, of the documents whose label is
// 1; or, with upstream derivatives g_i in `chosen`, the slopes of sum_i g_i S_i. f(x) is 1 / (1 + exp(-x)), or the hinge max(0, 1 +
// x), in O(n) and of every document.
//
// For i before j and z = exp(x_j - x_i) in (0, 1], j is ahead of i by y = z / (1 + z) and i ahead of j by 1 - y; the slope of
// both is y (1 - y). One exponential a document, of which z is a ratio. Documents that are asked for are rows, which meet those
// behind them, and before them those that are none: O(n) each. If they are more than half, all are.
struct SmoothedRanks {
    static constexpr double widest = INFINITE;
    static constexpr double smallest = 1e-150;  // of the exponential that a row is divided by
    static constexpr double widest_x = 1e300;

    double temperature;
    bool hinge, backward;

    struct Space {
        Span<double> x, exponential, inverse, row;
        Span<double> no_row;  // 1 of documents that are none

        KERNEL Space(Arena& arena, const SmoothedRanks&, const Batch&, Index longest) {
            Span<double>* const by_rank[] = {&x, &exponential, &inverse, &row, &no_row};
            for (Span<double>* each : by_rank) *each = arena.take<double>(longest);
        }
    };

    KERNEL Index solve(List& list, Space& space) const {
        const Index n = list.size;
        for (Index i = 0; i < n; ++i) space.x[i] = most(list.score[i] / temperature, -widest_x);
        if (hinge)
            add_hinges(list, space);
        else
            add_sigmoids(list, space);
        if (backward)
            for (double& each : list.coefficient) each /= temperature;
        return -1;
    }

  private:
    KERNEL void add_sigmoids(List& list, Space& space) const {
        const Index n = list.size;
        const double* asked = backward ? list.chosen.data : list.label.data;
        const double rows = sum_of(n, [=](Index i) { return asked[i] != 0.0 ? 1.0 : 0.0; });
        const bool all = 2.0 * rows > double(n);
        for (Index i = 0; i < n; ++i) space.no_row[i] = all || asked[i] != 0.0 ? 0.0 : 1.0;
        fill_exponentials(0.0, space.x.first(n), space);
        for (Index i = 0; i < n; ++i) {
            if (space.no_row[i] != 0.0) continue;
            if (space.exponential[i] < smallest) fill_exponentials(space.x[i], space.x.first(n), space);
            const double own = asked[i], factor = space.exponential[i], inverse = space.inverse[i];
            const auto add = [&](auto add_row, Index first, Index last, double by, const double* ratio) {
                add_row(last - first, by, own, ratio + first, asked + first, space.no_row.data + first,
                        list.coefficient.data + first, space.row.data);
                list.coefficient[i] += (backward ? 1.0 : own) * sum(space.row.first(last - first));
            };
            add(backward ? add_pairs<true, false> : add_pairs<false, false>, i + 1, n, inverse, space.exponential.data);
            if (!all) add(backward ? add_pairs<true, true> : add_pairs<false, true>, 0, i, factor, space.inverse.data);
        }
    }

    KERNEL static void fill_exponentials(double centre, Span<const double> x, Space& space) {
        for (Index j = 0; j < x.size; ++j) {
            space.exponential[j] = exp(x[j] - centre);
            space.inverse[j] = 1.0 / space.exponential[j];
        }
    }

    // The pairs of a row with others behind it, or above it: what they add to the others, and `row` to itself.
    template <bool slopes, bool above>
    KERNEL static void add_pairs(Index count, double factor, double own, const double* __restrict ratio,
                                 const double* __restrict asked, const double* __restrict no_row, double* __restrict total,
                                 double* __restrict row) {
        for (Index j = 0; j < count; ++j) {
            const double z = ratio[j] * factor, y = z / (1.0 + z), counts = above ? no_row[j] : 1.0;
            if constexpr (slopes) {
                const double moved = y * (1.0 - y) * (asked[j] - own) * counts;
                total[j] -= moved;
                row[j] = moved;
            } else {
                if constexpr (!above) total[j] += asked[j] * (1.0 - y);
                row[j] = above ? (1.0 - y) * counts : y;
            }
        }
    }

    // Those ahead of a rank by more than minus 1 are the ranks before `end`, which never falls.
    KERNEL void add_hinges(List& list, Space& space) const {
        const Index n = list.size;
        Index end = 0;
        double total = 0.0;  // of x before `end`
        for (Index i = 0; i < n; ++i) {
            for (; end < n && 1.0 + (space.x[end] - space.x[i]) > 0.0; ++end) {
                total += space.x[end];
                if (backward) space.row[end] = double(i);  // the first that it is ahead of
            }
            list.coefficient[i] = backward ? -double(end - 1) * list.chosen[i] : double(end) * (1.0 - space.x[i]) + total - 1.0;
        }
        if (!backward) return;
        double upstream = 0.0;  // of ranks from `first` on
        Index first = n;
        for (Index j = n - 1; j >= 0; --j) {
            for (; first > Index(space.row[j]); --first) upstream += list.chosen[first - 1];
            list.coefficient[j] += upstream - list.chosen[j];
        }
    }
};

// log(exp(a) + exp(b)), of which either may be minus infinity.
KERNEL inline double log_of_both(double a, double b) {
    const double high = most(a, b), low = least(a, b);
    return high == -INFINITE ? high : high + log1p(exp(low - high));
}

// Circle loss: with up_i = -gamma a_i (s_i - 1 + m) and down_j = gamma b_j (s_j - m), to which item weights add their logarithm,
// log(1 + sum over y_i > y_j of exp(up_i + down_j)), the slope holding a and b fixed. The sum comes apart by grade: O(n) after it
// is known. The scores as they are come as `chosen`, since those of the list have lost a shift.
struct Circle {
    static constexpr double widest = INFINITE;

    double gamma, margin;

    struct Space {
        GradeSpace grades;
        Span<double> up, down;                      // of each document
        Span<double> up_high, down_high, over, under;  // of each grade: the highest; all of higher, and of lower grades

        KERNEL Space(Arena& arena, const Circle&, const Batch&, Index longest)
            : grades(arena, longest),
              up(arena.take<double>(longest)),
              down(arena.take<double>(longest)),
              up_high(arena.take<double>(longest)),
              down_high(arena.take<double>(longest)),
              over(arena.take<double>(longest)),
              under(arena.take<double>(longest)) {}
    };

    KERNEL Index solve(List& list, Space& space) const {
        const Index n = list.size;
        const Grades grades = number_grades(list.label, space.grades);
        const int count = grades.count();
        if (count < 2) return -1;
        for (Index i = 0; i < n; ++i) {
            const double s = list.chosen[i], log_weight = list.weight.size ? log(list.weight[i]) : 0.0;
            space.up[i] = -gamma * most(1.0 + margin - s, 0.0) * (s - 1.0 + margin) + log_weight;
            space.down[i] = gamma * most(s + margin, 0.0) * (s - margin) + log_weight;
        }
        add_up(grades, space.up, space.up_high, space.over);
        add_up(grades, space.down, space.down_high, space.under);
        double total = -INFINITE, under = -INFINITE, over = -INFINITE;
        for (int g = count - 1; g >= 0; --g) {
            const double own = space.under[g];
            space.under[g] = under;
            under = log_of_both(under, own);
        }
        for (int g = 0; g < count; ++g) {
            const double own = space.over[g];
            total = log_of_both(total, own + space.under[g]);
            space.over[g] = over;
            over = log_of_both(over, own);
        }
        list.value = log_of_both(total, 0.0);
        for (Index i = 0; i < n; ++i) {
            const double s = list.chosen[i];
            const int g = grades.number[i];
            list.coefficient[i] = gamma * (most(s + margin, 0.0) * exp(space.down[i] + space.over[g] - list.value) -
                                           most(1.0 + margin - s, 0.0) * exp(space.up[i] + space.under[g] - list.value));
        }
        return -1;
    }

  private:
    // Fill in the logarithm of the sum of the exponentials of each grade.
    KERNEL static void add_up(const Grades& grades, Span<const double> values, Span<double> high, Span<double> total) {
        for (int g = 0; g < grades.count(); ++g) {
            high[g] = -INFINITE;
            total[g] = 0.0;
        }
        for (Index i = 0; i < grades.number.size; ++i) high[grades.number[i]] = most(high[grades.number[i]], values[i]);
        for (Index i = 0; i < grades.number.size; ++i) total[grades.number[i]] += exp(values[i] - high[grades.number[i]]);
        for (int g = 0; g < grades.count(); ++g) total[g] = high[g] + log(total[g]);
    }
};

// Gains of the documents, times their item weights, and their best value, which a normalised measure divides by.
struct Gains {
    Span<const double> discounts;  // by rank
    Index kept;                    // ranks that have one
    bool normalized;

    // Fill in the gains; returns the value of the best ranking, then 1 of a normalised measure; 0 where no ranking can be wrong.
    KERNEL double read(const List& list, Span<double> gain, GradeSpace& space) const {
        const Index n = list.size;
        for (Index i = 0; i < n; ++i) gain[i] = list.label[i] * (list.weight.size ? list.weight[i] : 1.0);
        const double best = best_value(n, number_grades(gain, space), discounts, kept);
        if (!normalized || best <= 0.0) return best;
        for (double& each : gain) each /= best;
        return 1.0;
    }
    KERNEL Index ranks(Index n) const { return least(kept, n); }
};

constexpr double NARROWEST = 1.0 / 1152921504606846976.0;  // 2^-60: the least sigma, over the widest difference of a list
constexpr double ROOT_HALF = 0.70710678118654752440, BELL = 0.39894228040143267794;  // 1 / sqrt(2), 1 / sqrt(2 pi)

// What scores are divided by.
KERNEL inline double width_of(const List& list, double sigma) { return most(sigma, -NARROWEST * list.score[list.size - 1]); }

// SmoothGrad, the best value less sum_j a_j m_j, where m_j is the mean gain around rank j, h_ij = exp(-(s_i - s_j)^2 / (2
// sigma^2)) being the weights. A row of h is worked out once and looks at the neighbours that are not too far to count: O(n k).
// The labels are gains; those that they come of are `chosen`.
struct SmoothGrad {
    static constexpr double widest = 1.7976931348623157e308;
    static constexpr double farthest = 26.4;  // its square is a little less than 700

    Gains gains;
    double sigma;

    struct Space {
        GradeSpace grades;
        Span<double> gain, x, near, moved;

        KERNEL Space(Arena& arena, const SmoothGrad&, const Batch&, Index longest)
            : grades(arena, longest),
              gain(arena.take<double>(longest)),
              x(arena.take<double>(longest)),
              near(arena.take<double>(longest)),
              moved(arena.take<double>(longest)) {}
    };

    KERNEL Index solve(List& list, Space& space) const {
        const Index n = list.size;
        const Span<double> gain = space.gain.first(n), x = space.x.first(n);
        const double best = gains.read(list, gain, space.grades);
        if (list.score[n - 1] == 0.0) add_way_out(list);
        if (best <= 0.0) return -1;
        const double scale = ROOT_HALF / width_of(list, sigma);
        for (Index i = 0; i < n; ++i) x[i] = list.score[i] * scale;
        list.value = best;
        Index first = 0, last = 0;
        for (Index j = 0; j < gains.ranks(n) && gains.discounts[j] > 0.0; ++j) {
            while (x[first] - x[j] > farthest) ++first;
            while (last < n && x[j] - x[last] < farthest) ++last;
            const Index count = last - first;
            fill_near(count, x[j], x.data + first, space.near.data);
            const Span<const double> near = space.near.first(count);
            const double total = sum(near), mean = dot(near, gain.slice(first, last)) / total;
            list.value -= gains.discounts[j] * mean;
            add_slopes(count, x[j], mean, 2.0 * gains.discounts[j] / total, x.data + first, gain.data + first, near.data,
                       list.coefficient.data + first, space.moved.data);
            list.coefficient[j] -= sum(space.moved.first(count));
        }
        if (list.score[n - 1] < 0.0)
            for (double& each : list.coefficient) each *= scale;
        return -1;
    }

  private:
    // Where all scores tie the slope is 0 and the value stays; the slope of the mean score less the mean by label is taken, labels
    // relative to the lowest and the highest.
    KERNEL static void add_way_out(List& list) {
        const Index n = list.size;
        const double* label = list.chosen.data;
        const double low = -highest_of(n, [=](Index i) { return -label[i]; });
        const double high = highest_of(n, [=](Index i) { return label[i]; });
        if (high == low) return;
        const double all = most(sum_of(n, [=](Index i) { return (label[i] - low) / (high - low); }), 1.0);
        for (Index i = 0; i < n; ++i) list.coefficient[i] = 1.0 / double(n) - (label[i] - low) / (high - low) / all;
    }

    KERNEL static void fill_near(Index count, double centre, const double* __restrict x, double* __restrict near) {
        for (Index i = 0; i < count; ++i) near[i] = near_exp(-(x[i] - centre) * (x[i] - centre));
    }

    KERNEL static void add_slopes(Index count, double centre, double mean, double factor, const double* __restrict x,
                                  const double* __restrict gain, const double* __restrict near, double* __restrict slope,
                                  double* __restrict moved) {
        for (Index i = 0; i < count; ++i) {
            const double each = factor * (gain[i] - mean) * (x[i] - centre) * near[i];
            slope[i] += each;
            moved[i] = each;
        }
    }
};

// The rows of NeuralSort: for ranks i = 0, 1, ... and f_i = n - 1 - 2 i, the softmax over j of (f_i s_j - A_j) / temperature with
// A_j = sum_k |s_j - s_k|. A task says of each row how the loss changes with the logits, p_j (own + other g_j); summed up by
// column, and by column times f_i, that gives the slopes in the scores, the signs of A by prefix sums.
struct NeuralSpace {
    Span<double> x, apart;      // s_j and A_j over the temperature
    Span<double> chance;        // of a row, not divided by their sum
    Span<double> slope, sloped;  // by column; times f_i

    KERNEL NeuralSpace(Arena& arena, Index longest)
        : x(arena.take<double>(longest)),
          apart(arena.take<double>(longest)),
          chance(arena.take<double>(longest)),
          slope(arena.take<double>(longest)),
          sloped(arena.take<double>(longest)) {}

    static constexpr double deepest = 60.0;

    // The documents [first, last) that count in a row, the highest logit, and the sum of exponentials relative to it, `chance`.
    struct Row {
        Index first = 0, last = 0;
        double highest = 0.0, total = 0.0;

        KERNEL Index size() const { return last - first; }
    };

    KERNEL void begin(const List& list, double temperature) const {
        const Index n = list.size;
        double total = 0.0;
        for (Index i = 0; i < n; ++i) {
            x[i] = list.score[i] / temperature;
            slope[i] = sloped[i] = 0.0;
            total -= x[i];
        }
        for (Index i = 0; i < n; ++i) {
            apart[i] = total;
            if (i + 1 < n) total += double(2 * i + 2 - n) * (x[i] - x[i + 1]);
        }
    }

    // From one row to the next: the logits are highest at `peak` and fall to both sides of it, by 2 d + 1 times the gap to the
    // next one d ranks away. What is so far below that it adds nothing is left out, and that range never moves up.
    KERNEL static Row next_row(const Row& before, Index count, Index peak, double factor, Span<const double> x,
                               Span<const double> apart, Span<double> chance) {
        const double highest = factor * x[peak] - apart[peak], lowest = highest - deepest;
        Row row{before.first, most(before.last, peak + 1), highest, 0.0};
        while (factor * x[row.first] - apart[row.first] < lowest) ++row.first;
        while (row.last < count && factor * x[row.last] - apart[row.last] >= lowest) ++row.last;
        fill(row.size(), factor, highest, x.data + row.first, apart.data + row.first, chance.data);
        row.total = sum(chance.first(row.size()));
        return row;
    }

    KERNEL static void fill(Index count, double factor, double highest, const double* __restrict x,
                            const double* __restrict apart, double* __restrict chance) {
        for (Index j = 0; j < count; ++j) chance[j] = low_exp(factor * x[j] - apart[j] - highest);
    }

    // Add to the slopes those in the logits of a row, p_j (own + other g_j).
    KERNEL void add_slopes(const Row& row, double factor, double own, double other, Span<const double> gain) const {
        add_slopes(row.size(), factor, own, other, chance.data, gain.data + row.first, slope.data + row.first,
                   sloped.data + row.first);
    }

    KERNEL static void add_slopes(Index count, double factor, double own, double other, const double* __restrict chance,
                                  const double* __restrict gain, double* __restrict slope, double* __restrict sloped) {
        for (Index j = 0; j < count; ++j) {
            const double each = chance[j] * (own + other * gain[j]);
            slope[j] += each;
            sloped[j] += factor * each;
        }
    }

    // From slopes in the logits to those in the scores.
    KERNEL void finish(List& list, double scale) const {
        const Index n = list.size;
        double below = sum(slope.first(n)), above = 0.0;
        for (Index begin = 0; begin < n;) {
            Index end = begin;
            double own = 0.0;
            for (; end < n && list.score[end] == list.score[begin]; ++end) own += slope[end];
            below -= own;
            for (Index i = begin; i < end; ++i)
                list.coefficient[i] = scale * (sloped[i] - slope[i] * double(n - end - begin) - (below - above));
            above += own;
            begin = end;
        }
    }
};

// NeuralNDCG: 1 - sum_i a_i sum_j P_ij g_j.
struct NeuralGain {
    static constexpr double widest = 1e300;

    Gains gains;
    double temperature;

    struct Space {
        GradeSpace grades;
        NeuralSpace rows;
        Span<double> gain;

        KERNEL Space(Arena& arena, const NeuralGain&, const Batch&, Index longest)
            : grades(arena, longest), rows(arena, longest), gain(arena.take<double>(longest)) {}
    };

    KERNEL Index solve(List& list, Space& space) const {
        const Index n = list.size;
        const Span<double> gain = space.gain.first(n);
        const double best = gains.read(list, gain, space.grades);
        if (best <= 0.0) return -1;
        space.rows.begin(list, temperature);
        list.value = best;
        NeuralSpace::Row row;
        for (Index i = 0; i < gains.ranks(n); ++i) {
            const double factor = double(n - 1 - 2 * i), discount = gains.discounts[i];
            row = NeuralSpace::next_row(row, n, i, factor, space.rows.x, space.rows.apart, space.rows.chance);
            const double mean = dot(space.rows.chance.first(row.size()), gain.slice(row.first, row.last)) / row.total;
            list.value -= discount * mean;
            space.rows.add_slopes(row, factor, discount * mean / row.total, -discount / row.total, gain);
        }
        space.rows.finish(list, 1.0 / temperature);
        return -1;
    }
};

// NeuralSort's cross entropy, the mean of - sum_j Q_ij log P_ij, Q being the rows of the labels, times item weights. Documents of
// one grade have one Q: what it multiplies is summed up by grade, O(n) a row for the scores and O(grades) for the labels.
struct NeuralEntropy {
    static constexpr double widest = 1e300;

    double temperature;

    struct Space {
        GradeSpace grades;
        NeuralSpace rows;
        // Of each grade: its label and sum of differences over the temperature, its documents, and of these the weights, the
        // weighted scores and sums; a row of Q; and the slopes of its column.
        Span<double> label, apart, members, weight, x, x_apart, wanted, slope, sloped;

        KERNEL Space(Arena& arena, const NeuralEntropy&, const Batch&, Index longest)
            : grades(arena, longest), rows(arena, longest) {
            Span<double>* const by_grade[] = {&label, &apart, &members, &weight, &x, &x_apart, &wanted, &slope, &sloped};
            for (Span<double>* each : by_grade) *each = arena.take<double>(longest);
        }
    };

    KERNEL Index solve(List& list, Space& space) const {
        const Index n = list.size;
        const Grades grades = number_grades(list.label, space.grades);
        const Index count = grades.count();
        if (count < 2) return -1;
        space.rows.begin(list, temperature);
        begin(list, grades, space);
        double all = 0.0;
        NeuralSpace::Row row, labels;
        Index peak = 0;  // the grade of rank i by label
        for (Index i = 0; i < n; ++i) {
            const double factor = double(n - 1 - 2 * i);
            while (grades.starts[peak + 1] <= i) ++peak;
            labels = NeuralSpace::next_row(labels, count, peak, factor, space.label, space.apart, space.wanted);
            row = NeuralSpace::next_row(row, n, i, factor, space.rows.x, space.rows.apart, space.rows.chance);
            const double scale = 1.0 / dot(space.wanted.first(labels.size()), space.members.slice(labels.first, labels.last));
            double wanted = 0.0, logits = 0.0;
            for (Index g = labels.first; g < labels.last; ++g) {
                const double each = scale * space.wanted[g - labels.first];
                wanted += each * space.weight[g];
                logits += each * (factor * space.x[g] - space.x_apart[g]);
                space.slope[g] -= each;
                space.sloped[g] -= factor * each;
            }
            all += wanted;
            list.value += wanted * (row.highest + log(row.total)) - logits;
            space.rows.add_slopes(row, factor, wanted / row.total, 0.0, space.rows.x);
        }
        for (Index i = 0; i < n; ++i) {
            const double weight = list.weight.size ? list.weight[i] : 1.0;
            space.rows.slope[i] += weight * space.slope[grades.number[i]];
            space.rows.sloped[i] += weight * space.sloped[grades.number[i]];
        }
        const double scale = all > 0.0 ? 1.0 / all : 1.0;
        list.value *= scale;
        space.rows.finish(list, scale / temperature);
        return -1;
    }

  private:
    KERNEL void begin(const List& list, const Grades& grades, Space& space) const {
        const Index n = list.size;
        double total = 0.0;
        for (int g = 0; g < grades.count(); ++g) {
            space.label[g] = (grades.value[g] - grades.value[0]) / temperature;
            space.members[g] = double(grades.starts[g + 1] - grades.starts[g]);
            total -= space.label[g] * space.members[g];
            space.weight[g] = space.x[g] = space.x_apart[g] = space.slope[g] = space.sloped[g] = 0.0;
        }
        for (int g = 0; g < grades.count(); ++g) {
            space.apart[g] = total;
            if (g + 1 < grades.count()) total += double(2 * grades.starts[g + 1] - n) * (space.label[g] - space.label[g + 1]);
        }
        for (Index i = 0; i < n; ++i) {
            const int g = grades.number[i];
            const double weight = list.weight.size ? list.weight[i] : 1.0;
            space.weight[g] += weight;
            space.x[g] += weight * space.rows.x[i];
            space.x_apart[g] += weight * space.rows.apart[i];
        }
    }
};

// How the rank of a document is distributed; see `rankstruct.losses.soft_rank`.
enum RankModel : int { BINOMIAL, NORMAL, JOINT };

// SoftRank: the best value less sum_c g_c (the mean discount of c's rank), where document i stands above c with the chance
// Phi((s_i - s_c) / (sqrt(2) sigma)). Down the scores more and more documents are likely to stand above: from some rank on, the
// chance to be among the first k is below any digit that counts, and the rest of the list is left out. O(n k) a document before.
struct SoftRank {
    static constexpr double widest = 1.7976931348623157e308;
    static constexpr Index most_together = 8, short_row = 64;
    static constexpr double no_chance = 1e-20;  // of a coin, which is then left out
    static constexpr double far_tail = -46.0;   // log(1e-20)
    static constexpr double far_deviations = 9.3;
    static constexpr double least_variance = 1e-4;

    Gains gains;
    double sigma;
    int model;
    Span<const double> points, shares;  // of the quadrature of JOINT; shares add up to 1

    struct Coins {
        CoinRow<double> row;
        Span<double> above, below, density, by_above, by_below, moved;
        Index document = 0;
        double factor = 0.0, mean = 0.0;

        Coins() = default;
        KERNEL Coins(Arena& arena, Index longest, Index ranks) : row(arena, longest, ranks) {
            Span<double>* const by_rank[] = {&above, &below, &density, &by_above, &by_below, &moved};
            for (Span<double>* each : by_rank) *each = arena.take<double>(longest);
            row.above = above.data;
            row.below = below.data;
            row.by_above = by_above.data;
            row.by_below = by_below.data;
        }
    };

    struct Space {
        GradeSpace grades;
        Span<double> gain, x;
        Index together;
        bool cleared = false;
        Coins coins[most_together];

        KERNEL Space(Arena& arena, const SoftRank& kernel, const Batch&, Index longest)
            : grades(arena, longest), gain(arena.take<double>(longest)), x(arena.take<double>(longest)) {
            const Index ranks = kernel.model == NORMAL ? 1 : kernel.gains.ranks(longest);
            together = kernel.model != NORMAL && ranks <= short_row ? most_together : 1;
            for (Index g = 0; g < together; ++g) coins[g] = Coins(arena, longest, ranks);
        }
    };

    KERNEL Index solve(List& list, Space& space) const {
        const Index n = list.size;
        const Span<double> gain = space.gain.first(n), x = space.x.first(n);
        const double best = gains.read(list, gain, space.grades);
        if (best <= 0.0) return -1;
        const double scale = (model == JOINT ? 1.0 : ROOT_HALF) / width_of(list, sigma);
        for (Index i = 0; i < n; ++i) x[i] = list.score[i] * scale;
        for (Index g = 0; g < space.together && !space.cleared; ++g) space.coins[g].row.clear();
        space.cleared = true;
        list.value = best;
        Index waiting = 0;
        bool any = true;
        for (Index c = 0; c < n && any; ++c) {
            if (gain[c] <= 0.0) continue;
            any = false;
            const Index nodes = model == JOINT ? points.size : 1;
            for (Index q = 0; q < nodes; ++q) {
                Coins& coins = space.coins[waiting];
                const double share = model == JOINT ? shares[q] : 1.0;
                coins.document = c;
                coins.factor = gain[c] * share;
                fill(n, x, x[c] + (model == JOINT ? points[q] : 0.0), coins);
                if (is_far(coins.mean, share, n)) continue;
                any = true;
                if (model == NORMAL) {
                    add_normal(list, coins);
                } else if (++waiting == space.together) {
                    add_binomial(list, {space.coins, waiting});
                    waiting = 0;
                }
            }
        }
        if (waiting) add_binomial(list, {space.coins, waiting});
        for (double& each : list.coefficient) each *= scale;
        return -1;
    }

  private:
    // Whether a document, and so all behind it, has no chance to be among the first k. Chernoff: a sum of coins of mean m is at
    // most r < m with a chance of at most exp(r - m) (m / r)^r.
    KERNEL bool is_far(double mean, double share, Index n) const {
        const double last = double(gains.ranks(n)) - 1.0;
        if (log(share) < far_tail) return true;
        if (mean <= last + 1.0 || gains.ranks(n) == n) return false;
        if (model == NORMAL) return (mean - last - 0.5) > far_deviations * square_root(mean);
        return last - mean + (last > 0.0 ? last * log(mean / last) : 0.0) + log(share) < far_tail;
    }

    KERNEL static void fill(Index n, Span<const double> x, double centre, Coins& coins) {
        fill_chances(n, centre, x.data, coins.above.data, coins.below.data, coins.density.data);
        const Index own = coins.document;
        coins.above[own] = coins.density[own] = 0.0;
        coins.below[own] = 1.0;
        coins.mean = sum(coins.above.first(n));
    }

    KERNEL static void fill_chances(Index n, double centre, const double* __restrict x, double* __restrict above,
                                    double* __restrict below, double* __restrict density) {
        for (Index i = 0; i < n; ++i) {
            const double away = x[i] - centre;
            const NormalTail tail = normal_tail(ROOT_HALF * absolute(away));
            const double some = tail.chance < no_chance ? 0.0 : tail.chance;
            above[i] = away > 0.0 ? 1.0 - tail.chance : some;
            below[i] = away > 0.0 ? tail.chance : 1.0 - tail.chance;
            density[i] = BELL * tail.bell;
        }
    }

    // Move slopes, by the chance of each coin, to the scores: `slope(i)` times the factor and the density.
    template <class Slope>
    KERNEL static void add_slopes(List& list, const Coins& coins, Slope slope) {
        const Index n = list.size;
        double *moved = coins.moved.data, *total = list.coefficient.data;
        const double factor = coins.factor, *density = coins.density.data;
        for (Index i = 0; i < n; ++i) {
            moved[i] = factor * slope(i) * density[i];
            total[i] -= moved[i];
        }
        total[coins.document] += sum(coins.moved.first(n));
    }

    KERNEL void add_binomial(List& list, Span<Coins> group) const {
        const Index n = list.size;
        for (Coins& each : group) each.row.coins = 0;
        for (Index i = 0; i < n; ++i)
            for (Coins& each : group) each.row.throw_coin(i);
        for (Coins& each : group) list.value -= each.factor * each.row.turn_back(gains.discounts.first(gains.ranks(n)));
        for (Index i = n - 1; i >= 0; --i)
            for (Coins& each : group) each.row.take_back(i);
        for (const Coins& each : group) {
            const double *above = each.by_above.data, *below = each.by_below.data;
            add_slopes(list, each, [=](Index i) { return above[i] - below[i]; });
        }
    }

    // The normal distribution of the same mean and variance: rank r or less with chance Phi((r + 1/2 - mean) / deviation). Ranks
    // that are many deviations away have chance 0 or 1.
    KERNEL void add_normal(List& list, Coins& coins) const {
        const Index n = list.size, ranks = least(gains.ranks(n), n - 1);
        const double variance = dot(coins.above.first(n), coins.below.first(n)), used = most(variance, least_variance);
        const double deviation = square_root(used), reach = far_deviations * deviation, middle = coins.mean - 0.5;
        const Index first = Index(least(most(middle - reach, 0.0), double(ranks)));
        const Index last = Index(least(most(middle + reach + 1.0, double(first)), double(ranks)));
        const Index count = last - first;
        fill_falls(first, count, middle, 1.0 / deviation, gains.discounts.data, coins.moved.data, coins.by_above.data,
                   coins.by_below.data);
        const double reached = first < gains.ranks(n) ? gains.discounts[first] : 0.0;
        // The last rank's discount falls to 0, but of n documents one is last for sure.
        list.value -= coins.factor * (reached - sum(coins.moved.first(count)));
        const double by_mean = -sum(coins.by_above.first(count)) / deviation;
        const double by_variance = variance < least_variance ? 0.0 : 0.5 * sum(coins.by_below.first(count)) / used;
        const double *above = coins.above.data, *below = coins.below.data;
        add_slopes(list, coins, [=](Index i) { return by_mean + by_variance * (below[i] - above[i]); });
    }

    // Of ranks r from `first`: d(r) - d(r + 1) times the chance to be behind r, times the density, and that times how far r is.
    KERNEL static void fill_falls(Index first, Index count, double middle, double scale, const double* __restrict discounts,
                                  double* __restrict behind, double* __restrict density, double* __restrict sloped) {
        const double from = middle - double(first);
        discounts += first;
        for (int k = 0; k < int(count); ++k) {
            const double falls = discounts[k] - discounts[k + 1], u = (from - double(k)) * scale;
            const NormalTail tail = normal_tail(ROOT_HALF * absolute(u));
            behind[k] = falls * (u > 0.0 ? 1.0 - tail.chance : tail.chance);
            density[k] = falls * BELL * tail.bell;
            sloped[k] = density[k] * u;
        }
    }
};

}  // namespace rankstruct
