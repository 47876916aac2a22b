// Losses whose terms are sums over the pairs of a list, S_i = sum over j of f(s_j - s_i), or a softmax over it per rank: smoothed
// ranks (ApproxNDCG, Smooth-AP, ADR-MSE), SmoothGrad, NeuralSort, and the circle loss, whose sum factorises. O(n) memory and at
// most O(n^2) time, unless stated otherwise.
#pragma once

#include "grades.hpp"
#include "lists.hpp"
#include "pair_loss.hpp"
#include "sums.hpp"
#include "vector_math.hpp"

namespace rankstruct {

// values[j] = term(j), and values[j] += term(j).
template <class Term>
inline void fill_each(Span<double> values, Term term) {
    double* __restrict its = values.data;
    for (Index j = 0; j < values.size; ++j) its[j] = term(j);
}

template <class Term>
inline void add_each(Span<double> values, Term term) {
    double* __restrict its = values.data;
    for (Index j = 0; j < values.size; ++j) its[j] += term(j);
}

// The terms that a pair adds to each of its two documents.
struct Shares {
    double other, own;
};

// others[j] += term(j).other; returns the sum of term(j).own. Values are buffered in parts, so that the loop is vectorised.
template <class Term>
inline double add_pairs(Span<double> others, Term term) {
    constexpr Index part = 32;
    double other[part], own[part], sum_of_own = 0.0;
    for (Index begin = 0; begin < others.size; begin += part) {
        const Index count = least(part, others.size - begin);
        for (Index j = 0; j < count; ++j) {
            const Shares shares = term(begin + j);
            other[j] = shares.other;
            own[j] = shares.own;
        }
        for (Index j = 0; j < count; ++j) others.data[begin + j] += other[j];
        sum_of_own += sum({own, count});
    }
    return sum_of_own;
}

// Smoothed ranks minus 1, S_i = sum over j != i of f((s_j - s_i) / temperature), written to the coefficients of the documents
// with label 1; or, given upstream derivatives g_i in `chosen`, the slopes of sum_i g_i S_i. f(x) is 1 / (1 + exp(-x)), or the
// hinge max(0, 1 + x), in O(n) for all documents.
//
// For i before j and z = exp(x_j - x_i) in (0, 1], j counts in the rank of i by y = z / (1 + z), and i in that of j by 1 - y; the
// slope of both is y (1 - y). One exponential per document suffices, since z is a ratio. Requested documents are rows, which meet
// all documents after them and the ones before them that are not rows: O(n) each. If they are more than half, all documents are
// rows.
struct SmoothedRanks {
    static constexpr double widest = INFINITE;
    static constexpr double smallest = 1e-150;  // of the exponential that a row is divided by
    static constexpr double widest_x = 1e300;

    double temperature;
    Index hinge, backward;

    struct Space : Scratch<SmoothedRanks> {
        Span<double> x = each, exponential = each, inverse = each;
        Span<double> no_row = each;  // 1 for documents that are not rows
    };

    void solve(List& list, Space& space) const {
        const Index n = list.size;
        for (Index i = 0; i < n; ++i) space.x[i] = most(list.score[i] / temperature, -widest_x);
        if (hinge)
            add_hinges(list, space);
        else
            add_sigmoids(list, space);
        if (backward)
            for (double& each : list.coefficient) each /= temperature;
    }

  private:
    static double share(double z) { return z / (1.0 + z); }

    void add_sigmoids(List& list, Space& space) const {
        const Index n = list.size;
        const double* asked = backward ? list.chosen.data : list.label.data;
        const bool all = 2.0 * sum_of(n, [=](Index i) { return asked[i] != 0.0 ? 1.0 : 0.0; }) > double(n);
        for (Index i = 0; i < n; ++i) space.no_row[i] = all || asked[i] != 0.0 ? 0.0 : 1.0;
        fill_exponentials(0.0, space.x.first(n), space);
        for (Index i = 0; i < n; ++i) {
            if (space.no_row[i] != 0.0) continue;
            if (space.exponential[i] < smallest) fill_exponentials(space.x[i], space.x.first(n), space);
            const double own = asked[i], factor = space.exponential[i], divided = space.inverse[i];
            const double *behind = space.exponential.data + i + 1, *before = space.inverse.data;
            const double *asked_behind = asked + i + 1, *counts = space.no_row.data;
            const Span<double> those_behind = list.coefficient.slice(i + 1, n);
            const Span<double> those_before = list.coefficient.first(all ? 0 : i);
            if (backward) {
                list.coefficient[i] += add_pairs(those_behind, [=](Index j) {
                    const double y = share(behind[j] * divided), moved = y * (1.0 - y) * (asked_behind[j] - own);
                    return Shares{-moved, moved};
                });
                list.coefficient[i] -= add_pairs(those_before, [=](Index j) {
                    const double y = share(before[j] * factor), moved = y * (1.0 - y) * own * counts[j];
                    return Shares{moved, moved};
                });
            } else {
                const double by_behind = add_pairs(those_behind, [=](Index j) {
                    const double y = share(behind[j] * divided);
                    return Shares{asked_behind[j] * (1.0 - y), y};
                });
                const auto term = [=](Index j) { return (1.0 - share(before[j] * factor)) * counts[j]; };
                list.coefficient[i] += own * (by_behind + sum_of(those_before.size, term));
            }
        }
    }

    static void fill_exponentials(double centre, Span<const double> x, Space& space) {
        for (Index j = 0; j < x.size; ++j) {
            space.exponential[j] = exp(x[j] - centre);
            space.inverse[j] = 1.0 / space.exponential[j];
        }
    }

    // Documents with a positive hinge term for a rank are those before `end`, which never decreases.
    void add_hinges(List& list, Space& space) const {
        const Index n = list.size;
        const Span<double> leads = space.inverse;  // the first rank for which each document has a positive term
        Index end = 0;
        double total = 0.0;  // of x before `end`
        for (Index i = 0; i < n; ++i) {
            for (; end < n && 1.0 + (space.x[end] - space.x[i]) > 0.0; ++end) {
                total += space.x[end];
                leads[end] = double(i);
            }
            list.coefficient[i] = backward ? -double(end - 1) * list.chosen[i] : double(end) * (1.0 - space.x[i]) + total - 1.0;
        }
        if (!backward) return;
        double upstream = 0.0;  // of ranks from `first` on
        Index first = n;
        for (Index j = n - 1; j >= 0; --j) {
            for (; first > Index(leads[j]); --first) upstream += list.chosen[first - 1];
            list.coefficient[j] += upstream - list.chosen[j];
        }
    }
};

// log(exp(a) + exp(b)); either may be minus infinity.
inline double log_of_both(double a, double b) {
    const double high = most(a, b), low = least(a, b);
    return high == -INFINITE ? high : high + log1p(exp(low - high));
}

// Circle loss: with up_i = -gamma a_i (s_i - 1 + m) and down_j = gamma b_j (s_j - m), plus the logarithm of item weights, log(1 +
// sum over y_i > y_j of exp(up_i + down_j)), whose slope treats a and b as constants. The sum factorises by grade: O(n) given the
// grades. The original scores are passed as `chosen`, since the list's scores are shifted.
struct Circle {
    static constexpr double widest = INFINITE;
    static constexpr double highest = 1e300;  // of a sum; beyond it the loss is infinite

    double gamma, margin;

    struct Space : Scratch<Circle> {
        GradeSpace grades{each};
        Span<double> up = each, down = each;  // of each document
        // Of each grade, of all higher grades, and of all lower ones.
        Span<double> of_up = each, of_down = each, over = each, under = each;
    };

    void solve(List& list, Space& space) const {
        const Index n = list.size;
        const Grades grades = number_grades(list.label, space.grades);
        if (grades.count() < 2) return;
        for (Index i = 0; i < n; ++i) {
            const double s = list.chosen[i], log_weight = list.weight.size ? log(list.weight[i]) : 0.0;
            space.up[i] = least(-gamma * most(1.0 + margin - s, 0.0) * (s - 1.0 + margin) + log_weight, highest);
            space.down[i] = least(gamma * most(s + margin, 0.0) * (s - margin) + log_weight, highest);
        }
        add_up(grades, space.up, false, space.of_up, space.over);
        add_up(grades, space.down, true, space.of_down, space.under);
        list.value = 0.0;  // log(1)
        for (int g = 0; g < grades.count(); ++g) list.value = log_of_both(list.value, space.of_up[g] + space.under[g]);
        if (list.value >= highest) list.value = INFINITE;
        for (Index i = 0; i < n; ++i) {
            const double s = list.chosen[i], over = space.over[grades.number[i]], under = space.under[grades.number[i]];
            list.coefficient[i] = gamma * (most(s + margin, 0.0) * exp(space.down[i] + over - list.value) -
                                           most(1.0 + margin - s, 0.0) * exp(space.up[i] + under - list.value));
        }
    }

  private:
    // Compute the log-sum-exp of each grade, and of all higher or lower grades.
    static void add_up(const Grades& grades, Span<const double> values, bool lower, Span<double> total,
                       Span<double> beyond) {
        const Span<double> high = beyond;
        high.first(grades.count()).fill(-INFINITE);
        total.first(grades.count()).fill(0.0);
        for (Index i = 0; i < grades.number.size; ++i) high[grades.number[i]] = most(high[grades.number[i]], values[i]);
        for (Index i = 0; i < grades.number.size; ++i) total[grades.number[i]] += exp(values[i] - high[grades.number[i]]);
        double all = -INFINITE;
        for (int k = 0; k < grades.count(); ++k) {
            const int g = lower ? grades.count() - 1 - k : k;
            total[g] = high[g] + log(total[g]);
            beyond[g] = all;
            all = log_of_both(all, total[g]);
        }
    }
};

// The gains of the documents times their item weights, and the best value, by which a normalised measure divides.
struct Gains {
    static constexpr double widest = LARGEST;

    Span<const double> discounts;  // by rank
    Index kept;                    // ranks with a discount

    // Compute the gains; returns the value of the best ranking, which is 1 for a normalised measure; 0 if no ranking can be
    // wrong.
    double read(const List& list, bool normalized, Span<double> gain, GradeSpace& space) const {
        const Index n = list.size;
        for (Index i = 0; i < n; ++i) gain[i] = list.label[i] * list.weight_of(i);
        const double best = best_value(n, number_grades(gain, space), discounts, kept);
        if (!normalized || best <= 0.0) return best;
        for (double& each : gain) each /= best;
        return 1.0;
    }
    Index ranks(Index n) const { return least(kept, n); }
};

constexpr double NARROWEST = 1.0 / 562949953421312.0;  // 2^-49: the smallest sigma over the widest difference in a list
constexpr double ROOT_HALF = 0.70710678118654752440;       // 1 / sqrt(2)

// The divisor of the scores.
inline double width_of(const List& list, double sigma) { return most(sigma, -NARROWEST * list.score[list.size - 1]); }

// SmoothGrad, the best value minus sum_j a_j m_j, where m_j is the mean gain around rank j with the weights h_ij = exp(-(s_i -
// s_j)^2 / (2 sigma^2)). A row of h is computed once, over the documents whose weight is not negligible: O(n k). Labels are the
// gains; the original labels are `chosen`.
struct SmoothGrad : Gains {
    static constexpr double farthest = 26.4;  // its square is slightly below 700

    Index normalized;
    double sigma;

    struct Space : Scratch<SmoothGrad> {
        GradeSpace grades{each};
        Span<double> gain = each, x = each, near = each;
    };

    void solve(List& list, Space& space) const {
        const Index n = list.size;
        const Span<double> gain = space.gain.first(n), x = space.x.first(n);
        if (list.score[n - 1] == 0.0) add_way_out(list);
        const double best = read(list, normalized, gain, space.grades);
        if (best <= 0.0) return;
        const double scale = ROOT_HALF / width_of(list, sigma);
        for (Index i = 0; i < n; ++i) x[i] = list.score[i] * scale;
        list.value = best;
        Index first = 0, last = 0;
        for (Index j = 0; j < ranks(n) && discounts[j] > 0.0; ++j) {
            while (x[first] - x[j] > farthest) ++first;
            while (last < n && x[j] - x[last] < farthest) ++last;
            const Span<double> near = space.near.first(last - first);
            const double *their_x = x.data + first, *their_gain = gain.data + first, *weight = near.data, centre = x[j];
            fill_each(near, [=](Index i) { return near_exp(-(their_x[i] - centre) * (their_x[i] - centre)); });
            const double total = sum(near), mean = dot(near, gain.slice(first, last)) / total;
            const double factor = 2.0 * scale * discounts[j] / total;
            list.value -= discounts[j] * mean;
            list.coefficient[j] += add_pairs(list.coefficient.slice(first, last), [=](Index i) {
                const double slope = factor * (their_gain[i] - mean) * (their_x[i] - centre) * weight[i];
                return Shares{slope, -slope};
            });
        }
    }

  private:
    // If all scores tie, the slope would be 0. It is replaced by that of the mean score minus the mean weighted by label, scaled
    // to [lowest, highest]; the value is kept.
    static void add_way_out(List& list) {
        const Index n = list.size;
        const double* label = list.chosen.data;
        const double low = -highest_of(n, [=](Index i) { return -label[i]; });
        const double range = highest_of(n, [=](Index i) { return label[i] - low; });
        if (range <= 0.0) return;
        const double all = most(sum_of(n, [=](Index i) { return (label[i] - low) / range; }), 1.0);
        for (Index i = 0; i < n; ++i) list.coefficient[i] = 1.0 / double(n) - (label[i] - low) / range / all;
    }
};

// The rows of NeuralSort: for ranks i = 0, 1, ... and f_i = n - 1 - 2 i, the softmax over j of (f_i s_j - A_j) / temperature with
// A_j = sum_k |s_j - s_k|. For each row a task gives the derivative of the loss in the logits, p_j (own + other g_j); its sums by
// column, with and without the factor f_i, give the slopes in the scores, where the signs in A are handled by prefix sums.
struct NeuralSpace {
    static constexpr double deepest = 60.0;

    Room each;
    Span<double> x = each, apart = each;       // s_j and A_j divided by the temperature
    Span<double> chance = each;                // of a row, not normalised
    Span<double> slope = each, sloped = each;  // by column; times f_i

    // The documents [first, last) with a non-negligible weight in a row, the highest logit, and the sum of exponentials relative
    // to it, `chance`.
    struct Row {
        Index first = 0, last = 0;
        double highest = 0.0, total = 0.0;

        Index size() const { return last - first; }
    };

    void begin(const List& list, double temperature) const {
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

    // From one row to the next: the logits are highest at `peak` and decrease on both sides of it, by 2 d + 1 times the gap to
    // the next one at distance d. Negligible weights are left out, and this range never moves up.
    static Row next_row(const Row& before, Index count, Index peak, double factor, Span<const double> x,
                        Span<const double> apart, Span<double> chance) {
        const auto logit = [=](Index j) { return factor * x.data[j] - apart.data[j]; };
        const double highest = logit(peak);
        Row row{before.first, most(before.last, peak + 1), highest, 0.0};
        while (logit(row.first) < highest - deepest) ++row.first;
        while (row.last < count && logit(row.last) >= highest - deepest) ++row.last;
        const Index first = row.first;
        fill_each(chance.first(row.size()), [=](Index j) { return low_exp(logit(first + j) - highest); });
        row.total = sum(chance.first(row.size()));
        return row;
    }

    // Add the slopes in the logits of a row, p_j (own + other g_j).
    void add_slopes(const Row& row, double factor, double own, double other, Span<const double> gain) const {
        const double *its = chance.data, *g = gain.data + row.first;
        const auto each = [=](Index j) { return its[j] * (own + other * g[j]); };
        add_each(slope.slice(row.first, row.last), each);
        add_each(sloped.slice(row.first, row.last), [=](Index j) { return factor * each(j); });
    }

    // From slopes in the logits to slopes in the scores.
    void finish(List& list, double scale) const {
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
struct NeuralGain : Gains {
    static constexpr double widest = 1e300;

    double temperature;

    struct Space : Scratch<NeuralGain> {
        GradeSpace grades{each};
        NeuralSpace rows{each};
        Span<double> gain = each;
    };

    void solve(List& list, Space& space) const {
        const Index n = list.size;
        const Span<double> gain = space.gain.first(n);
        const double best = read(list, true, gain, space.grades);
        if (best <= 0.0) return;
        space.rows.begin(list, temperature);
        list.value = best;
        NeuralSpace::Row row;
        for (Index i = 0; i < ranks(n); ++i) {
            const double factor = double(n - 1 - 2 * i), discount = discounts[i];
            row = NeuralSpace::next_row(row, n, i, factor, space.rows.x, space.rows.apart, space.rows.chance);
            const double mean = dot(space.rows.chance.first(row.size()), gain.slice(row.first, row.last)) / row.total;
            list.value -= discount * mean;
            space.rows.add_slopes(row, factor, discount * mean / row.total, -discount / row.total, gain);
        }
        space.rows.finish(list, 1.0 / temperature);
    }
};

// NeuralSort's cross entropy, the mean of - sum_j Q_ij log P_ij times item weights, where Q are the rows of the labels. Documents
// of one grade have the same Q, so its factors are summed by grade: O(n) per row for the scores and O(grades) for the labels.
struct NeuralEntropy {
    static constexpr double widest = 1e300;

    double temperature;

    struct Space : Scratch<NeuralEntropy> {
        GradeSpace grades{each};
        NeuralSpace rows{each};
        // By grade: label and sum of differences divided by the temperature, number of documents, sums of weights, weighted
        // scores and weighted differences; a row of Q; and the slopes of its column.
        Span<double> label = each, apart = each, members = each, weight = each, x = each, x_apart = each;
        Span<double> wanted = each, slope = each, sloped = each;
    };

    void solve(List& list, Space& space) const {
        const Index n = list.size;
        const Grades grades = number_grades(list.label, space.grades);
        const Index count = grades.count();
        if (count < 2) return;
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
            space.rows.slope[i] += list.weight_of(i) * space.slope[grades.number[i]];
            space.rows.sloped[i] += list.weight_of(i) * space.sloped[grades.number[i]];
        }
        const double scale = all > 0.0 ? 1.0 / all : 1.0;
        list.value *= scale;
        space.rows.finish(list, scale / temperature);
    }

  private:
    void begin(const List& list, const Grades& grades, Space& space) const {
        double total = 0.0;
        for (int g = 0; g < grades.count(); ++g) {
            space.label[g] = (grades.value[g] - grades.value[0]) / temperature;
            space.members[g] = double(grades.starts[g + 1] - grades.starts[g]);
            total -= space.label[g] * space.members[g];
            space.weight[g] = space.x[g] = space.x_apart[g] = space.slope[g] = space.sloped[g] = 0.0;
        }
        for (int g = 0; g < grades.count(); ++g) {
            space.apart[g] = total;
            if (g + 1 < grades.count())
                total += double(2 * grades.starts[g + 1] - list.size) * (space.label[g] - space.label[g + 1]);
        }
        for (Index i = 0; i < list.size; ++i) {
            const int g = grades.number[i];
            space.weight[g] += list.weight_of(i);
            space.x[g] += list.weight_of(i) * space.rows.x[i];
            space.x_apart[g] += list.weight_of(i) * space.rows.apart[i];
        }
    }
};

}  // namespace rankstruct
