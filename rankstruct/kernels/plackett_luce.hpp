// Rankings drawn from a Plackett-Luce policy and the derivatives that they estimate; `losses.policy` has the mathematics.
//
// A few ranks are drawn one after another, O(n + k log n) a ranking. Of all ranks, exponential noise over exp(s) has the policy's
// order, ascending: a sort. Derivatives cost O(n). All take exp of differences of scores, and refuse a list whose scores are too
// far apart.
#pragma once

#include "elementary.hpp"
#include "grades.hpp"
#include "lists.hpp"
#include "sums.hpp"

namespace rankstruct {

constexpr double WIDEST_POLICY = 600.0;         // a double holds exp of it, one over that, and a little more
constexpr double WIDEST_CURVED_POLICY = 200.0;  // the same, of the cube of exp of it

// Scratch of lists of at most `longest` documents.
struct PolicySpace {
    SortSpace<float> sort;
    Span<double> there, power, key, rest;                           // by place; 1 for a real document, and 0
    Span<double> own, reward, inverse, to_come, of_worth, of_rest;  // by rank

    KERNEL PolicySpace(Arena& arena, Index longest)
        : sort(arena, longest),
          there(arena.take<double>(longest)),
          power(arena.take<double>(longest)),
          key(arena.take<double>(longest)),
          rest(arena.take<double>(longest)),
          own(arena.take<double>(longest)),
          reward(arena.take<double>(longest)),
          inverse(arena.take<double>(longest)),
          to_come(arena.take<double>(longest)),
          of_worth(arena.take<double>(longest)),
          of_rest(arena.take<double>(longest)) {}
};

// One list: what exp of the scores is over that of the highest, by place, 0 in the padding.
struct Policy {
    Span<double> power;
    Index real = 0;         // documents
    bool is_wide = false;  // whether scores are too far apart
};

// The policy of documents, of which those are real that `space.there` says.
template <class T>
KERNEL inline Policy begin_policy(Span<const T> scores, double widest, const PolicySpace& space) {
    const Index n = scores.size;
    const T* score = scores.data;
    const double* there = space.there.data;
    double *power = space.power.data, *below = space.rest.data;
    // A score is read whether or not it counts: vector instructions have no branch.
    const auto among_real = [=](Index d, double own, double other) { return there[d] > 0.0 ? own : other; };
    const double top = highest_of(n, [=](Index d) { return among_real(d, double(score[d]), -INFINITE); });
    for (Index d = 0; d < n; ++d) below[d] = among_real(d, top - double(score[d]), 0.0);
    for (Index d = 0; d < n; ++d) power[d] = near_exp(-below[d]) * there[d];
    const double wide = sum_of(n, [=](Index d) { return below[d] <= widest ? 0.0 : 1.0; });
    return {space.power.first(n), Index(sum(space.there.first(n))), wide > 0.0};
}

// The order of the keys, which are at most 0, descending; equal ones keep theirs. They are sorted by the first half of their
// bits, as numbers, and the few that these do not tell apart are put right.
KERNEL inline Span<int> sort_keys(Span<const double> keys, SortSpace<float>& space) {
    const Index n = keys.size;
    const double* key = keys.data;
    float* rough = space.value.data;
    for (Index i = 0; i < n; ++i) rough[i] = __builtin_bit_cast(float, Bits32(__builtin_bit_cast(Bits64, key[i]) >> 32));
    const Span<int> order = sort_descending<float>(space.value.first(n), space);
    for (Index r = 1; r < n; ++r) {
        const int moved = order[r];
        Index to = r;
        for (; to > 0 && key[order[to - 1]] < key[moved]; --to) order[to] = order[to - 1];
        order[to] = moved;
    }
    return order;
}

// Draw all ranks: the places in their order, padding last. `noise(d)` is exponential, of place d, with its sign changed.
template <class Noise>
KERNEL inline Span<int> draw_all(const Policy& policy, Noise noise, PolicySpace& space) {
    constexpr double last = -1e300;  // below all others, and half of its bits still are a number
    constexpr double small = 0x1p-20;  // keeps most keys under 1, where they have more of their first bits in common
    const double* power = policy.power.data;
    double* key = space.key.data;
    const Index n = policy.power.size;
    for (Index d = 0; d < n; ++d) key[d] = small * noise(d) / power[d];
    for (Index d = 0; d < n; ++d) key[d] = power[d] > 0.0 ? key[d] : last;
    return sort_keys(space.key.first(n), space.sort);
}

// Draws rank by rank. A document is found by descending a binary tree of sums, the root 1, the leaves behind one another from
// `leaves` on; what is drawn is taken out and the sums above it are added anew, so that no rounding is left of it.
struct SumTree {
    Index leaves;
    Span<double> whole, left;

    KERNEL SumTree(Arena& arena, Index n) : leaves(1) {
        while (leaves < n) leaves *= 2;
        whole = arena.take<double>(2 * leaves);
        left = arena.take<double>(2 * leaves);
    }

    KERNEL void fill(const Policy& policy) const {
        for (Index d = 0; d < leaves; ++d) whole[leaves + d] = d < policy.power.size ? policy.power[d] : 0.0;
        for (Index node = leaves - 1; node; --node) whole[node] = whole[2 * node] + whole[2 * node + 1];
    }
    KERNEL void begin() const {
        for (Index node = 1; node < 2 * leaves; ++node) left[node] = whole[node];
    }
    // The place of the document that a number in [0, 1) draws.
    KERNEL Index draw(double uniform) const {
        double rest = uniform * left[1];
        Index node = 1;
        while (node < leaves) {
            node *= 2;
            if (rest >= left[node] && left[node + 1] > 0.0) rest -= left[node++];
        }
        const Index drawn = node - leaves;
        left[node] = 0.0;
        while (node /= 2) left[node] = left[2 * node] + left[2 * node + 1];
        return drawn;
    }
};

// What the derivatives need of each rank of a drawn ranking: the power and the reward of its document, one over the powers that
// are left, and what is gained from there on; and of each place what it has of the powers that are not placed. Returns what is
// gained.
template <class Place>
KERNEL inline double look_ahead(const Policy& policy, Span<const Place> ranking, const double* worth, const double* rewards,
                              const PolicySpace& space) {
    const Index ranks = ranking.size, n = policy.power.size;
    double left = 0.0, gained = 0.0;
    if (ranks < policy.real) {
        for (Index d = 0; d < n; ++d) space.rest[d] = policy.power[d];
        for (const Place place : ranking) space.rest[place] = 0.0;
        left = sum(space.rest.first(n));
    }
    for (Index r = ranks - 1; r >= 0; --r) {
        const Place place = ranking[r];
        left += space.own[r] = policy.power[place];
        gained += worth[r] * (space.reward[r] = rewards[place]);
        space.inverse[r] = left;
        space.to_come[r] = gained;
    }
    for (double& inverse : space.inverse.first(ranks)) inverse = 1.0 / inverse;
    return gained;
}

// Add what a drawn ranking estimates the gradient by, one number a place; the module has the three terms. Returns what is gained.
template <class Place>
KERNEL inline double add_gradient(const Policy& policy, Span<const Place> ranking, const double* worth, const double* rewards,
                                  const PolicySpace& space, double* found) {
    const double gained = look_ahead(policy, ranking, worth, rewards, space);
    const Index ranks = ranking.size;
    const double *own = space.own.data, *reward = space.reward.data, *inverse = space.inverse.data, *to_come = space.to_come.data;
    double *sum_worth = space.of_worth.data, *sum_rest = space.of_rest.data;
    double of_worth = 0.0, of_rest = 0.0;
    for (Index r = 0; r < ranks; ++r) {
        sum_worth[r] = of_worth += worth[r] * inverse[r];
        sum_rest[r] = of_rest += to_come[r] * inverse[r];
    }
    for (Index r = 0; r < ranks; ++r)
        sum_rest[r] = to_come[r] - worth[r] * reward[r] + own[r] * (reward[r] * sum_worth[r] - sum_rest[r]);
    for (Index r = 0; r < ranks; ++r) found[ranking[r]] += sum_rest[r];
    const double* rest = space.rest.data;
    for (Index d = 0; ranks < policy.real && d < policy.power.size; ++d) found[d] += rest[d] * (rewards[d] * of_worth - of_rest);
    return gained;
}

// `add_gradient` of the second derivatives, each document's by its own score; the module has A_r, B_r and the terms.
template <class Place>
KERNEL inline double add_curvature(const Policy& policy, Span<const Place> ranking, const double* worth, const double* rewards,
                                   const PolicySpace& space, double* found) {
    const double gained = look_ahead(policy, ranking, worth, rewards, space);
    double once = 0.0, twice = 0.0;  // A_r and B_r
    double others = 0.0, others_squared = 0.0, of_own = 0.0, of_own_squared = 0.0, of_own_cubed = 0.0;
    const auto estimate = [&](double p, double reward) {
        return p * (p * others_squared - others + reward * (of_own - 3.0 * p * of_own_squared + p * p * of_own_cubed));
    };
    for (Index r = 0; r < ranking.size; ++r) {
        const double p = space.own[r], inverse = space.inverse[r], own = worth[r] * space.reward[r];
        once += inverse;
        twice += inverse * inverse;
        const double squares = once * once + twice, weight = worth[r] * inverse;
        of_own += weight;
        of_own_squared += weight * once;
        of_own_cubed += weight * squares;
        const double if_placed = 1.0 - 3.0 * p * once + p * p * squares;
        found[ranking[r]] += (space.to_come[r] - own) * if_placed + estimate(p, space.reward[r]);
        others += own * once;
        others_squared += own * squares;
    }
    for (Index d = 0; ranking.size < policy.real && d < policy.power.size; ++d) found[d] += estimate(space.rest[d], rewards[d]);
    return gained;
}

// 1 - the expected discounted gain of rankings drawn from the policy over that of the best one, and its gradient: PL-Rank in one
// go. What is drawn is in no tensor, and nothing goes through float64 tensors of one number a document but the chances that it is
// drawn from.
//
// Labels are gains, which are multiplied by the weights; documents of weight 0 do not count.
struct PolicyLoss {
    const double* uniform;  // in [0, 1): [samples, documents], or [samples, lists, ranks] if `few`
    Index samples;
    Span<const double> discounts;  // [longest list]
    Index cutoff;                  // ranks behind it are worth nothing
    bool few;                      // whether to draw rank by rank

    struct Space {
        PolicySpace policy;
        GradeSpace grades;
        SumTree tree;
        Span<int> place, drawn;
        Span<double> gain, found;

        KERNEL Space(Arena& arena, const PolicyLoss& loss, Index longest)
            : policy(arena, longest),
              grades(arena, longest),
              tree(arena, loss.few ? longest : 1),
              place(arena.take<int>(longest)),
              drawn(arena.take<int>(longest)),
              gain(arena.take<double>(longest)),
              found(arena.take<double>(longest)) {}
    };

    // Returns -1, or the place in the batch of a document that cannot be.
    template <class T>
    KERNEL Index solve(Batch& batch, Index index, Space& space) const {
        const Index start = batch.begin(index), n = batch.begin(index + 1) - start;
        const T* scores = static_cast<const T*>(batch.scores) + start;
        const Span<double> there = space.policy.there.first(n), gain = space.gain.first(n), found = space.found.first(n);
        for (Index d = 0; d < n; ++d) space.place[d] = int(d);
        read_labels(batch, start, space.place.first(n), gain);
        for (Index d = 0; d < n; ++d) there[d] = batch.where ? double(batch.where[start + d]) : 1.0;
        for (Index d = 0; batch.item_weights && d < n; ++d) {
            there[d] = batch.item_weights[start + d] > 0.0 ? there[d] : 0.0;
            gain[d] = there[d] > 0.0 ? gain[d] * batch.item_weights[start + d] : gain[d];
        }
        int broken = 0;
        for (Index d = 0; d < n; ++d) {
            gain[d] = there[d] > 0.0 ? gain[d] : 0.0;
            broken |= !(is_finite(gain[d]) && gain[d] >= batch.least_label);
        }
        if (broken) return start + first_broken(gain, batch.least_label);
        const Policy policy = begin_policy<T>({scores, n}, WIDEST_POLICY, space.policy);
        if (policy.is_wide) return start + farthest(scores, there);
        found.fill(0.0);
        double value = 0.0, scale = 0.0;
        if (const double best = can_err(policy, gain, space); best > 0.0) {
            for (Index sample = 0; sample < samples; ++sample) {
                const Span<const int> ranking = draw(batch, index, sample, policy, space);
                value += add_gradient(policy, ranking, discounts.data, gain.data, space.policy, found.data);
            }
            scale = 1.0 / (double(samples) * best);
            value = 1.0 - value * scale;
        }
        T* direction = static_cast<T*>(batch.direction) + start;
        for (Index d = 0; d < n; ++d) direction[d] = T(0.0 - scale * found[d]);
        static_cast<T*>(batch.task_loss)[index] = T(0);
        static_cast<T*>(batch.value)[index] = T(value);
        batch.sum += double(T(value));
        batch.real_lists += policy.real > 0;
        return -1;
    }

  private:
    KERNEL Index ranks(Index n) const { return least(cutoff, n); }

    KERNEL Span<const int> draw(const Batch& batch, Index index, Index sample, const Policy& policy, Space& space) const {
        const Index count = ranks(policy.real);
        if (!few) {
            const double* its = uniform + sample * batch.begin(batch.lists) + batch.begin(index);
            return draw_all(policy, [=](Index d) { return near_log(1.0 - its[d]); }, space.policy).first(count);
        }
        space.tree.fill(policy);
        space.tree.begin();
        const double* its = uniform + (sample * batch.lists + index) * ranks(discounts.size);
        for (Index r = 0; r < count; ++r) space.drawn[r] = int(space.tree.draw(its[r]));
        return space.drawn.first(count);
    }

    // The gain of the best ranking, or 0 where all have that.
    KERNEL double can_err(const Policy& policy, Span<const double> gain, Space& space) const {
        if (!policy.real || !(discounts[policy.real - 1] < discounts[0])) return 0.0;
        const double *its = gain.data, *there = space.policy.there.data;
        const double highest = highest_of(gain.size, [=](Index d) { return there[d] > 0.0 ? its[d] : -INFINITE; });
        const double lowest = -highest_of(gain.size, [=](Index d) { return there[d] > 0.0 ? -its[d] : -INFINITE; });
        if (!(highest > lowest)) return 0.0;
        const Grades grades = number_grades(gain, space.grades);
        double best = 0.0;
        for (int g = 0; g < grades.count(); ++g) {
            const Index first = ranks(grades.starts[g]), last = ranks(grades.starts[g + 1]);
            best += grades.value[g] * sum(discounts.slice(first, last));
        }
        return best;
    }

    KERNEL static Index first_broken(Span<const double> gain, double least_gain) {
        Index d = 0;
        while (is_finite(gain[d]) && gain[d] >= least_gain) ++d;
        return d;
    }

    template <class T>
    KERNEL static Index farthest(const T* scores, Span<const double> there) {
        Index lowest = -1;
        for (Index d = 0; d < there.size; ++d) {
            if (there[d] == 0.0) continue;
            if (!is_finite(scores[d])) return d;
            if (lowest < 0 || scores[d] < scores[lowest]) lowest = d;
        }
        return lowest;
    }
};

#ifndef __CUDACC__
template <class T>
Index run_policy_loss(Batch& batch, const PolicyLoss& loss, Index first, Index last) {
    batch.sum = 0.0;
    batch.real_lists = 0;
    const Index longest = longest_list(batch, first, last);
    Arena count;
    PolicyLoss::Space(count, loss, longest);
    Arena arena{static_cast<char*>(std::malloc(size_t(count.used)))};
    if (!arena.memory) return OUT_OF_MEMORY;
    PolicyLoss::Space space(arena, loss, longest);
    Index wrong = -1;
    for (Index index = first; index < last && wrong == -1; ++index) wrong = loss.solve<T>(batch, index, space);
    std::free(arena.memory);
    return wrong;
}

// Rankings of padded lists, as Python hands them over.
template <class T>
struct Rankings {
    const T* scores;             // [lists, n]
    const unsigned char* where;  // [lists, n]; null if every document is real
    Index lists, n, samples, k;

    // Do `each(index, policy, space)` for the lists [first, last); returns -1, the number of a list that is too wide, or
    // OUT_OF_MEMORY.
    template <class Space, class Each>
    Index run(Index first, Index last, double widest, Each each) const {
        Arena count;
        PolicySpace(count, n);
        Space(count, n);
        Arena arena{static_cast<char*>(std::malloc(size_t(count.used)))};
        if (!arena.memory) return OUT_OF_MEMORY;
        PolicySpace policies(arena, n);
        const Space space(arena, n);
        Index wrong = -1;
        for (Index index = first; index < last && wrong == -1; ++index) {
            for (Index d = 0; d < n; ++d) policies.there[d] = where ? double(where[index * n + d]) : 1.0;
            const Policy policy = begin_policy<T>({scores + index * n, n}, widest, policies);
            if (policy.is_wide)
                wrong = index;
            else
                each(index, policy, policies, space);
        }
        std::free(arena.memory);
        return wrong;
    }

    // From as many numbers in [0, 1), [samples, lists, k]; fills `placed`, of the same shape, padding last.
    Index draw_few(const double* uniform, Index first, Index last, Index* placed) const {
        return run<SumTree>(first, last, WIDEST_POLICY, [&](Index index, const Policy& policy, auto&, const auto& tree) {
            tree.fill(policy);
            for (Index sample = 0; sample < samples; ++sample) {
                const Index at = (sample * lists + index) * k;
                tree.begin();
                Index r = 0;
                for (; r < least(policy.real, k); ++r) placed[at + r] = tree.draw(uniform[at + r]);
                for (Index d = 0; r < k; ++d)
                    if (policy.power[d] == 0.0) placed[at + r++] = d;
            }
        });
    }

    // From exponential noise, [samples, lists, n].
    Index draw(const double* noise, Index first, Index last, Index* placed) const {
        return run<Nothing>(first, last, WIDEST_POLICY, [&](Index index, const Policy& policy, PolicySpace& space, Nothing) {
            for (Index sample = 0; sample < samples; ++sample) {
                const Index row = sample * lists + index;
                const double* its = noise + row * n;
                const Span<int> order = draw_all(policy, [=](Index d) { return -its[d]; }, space);
                for (Index r = 0; r < k; ++r) placed[row * k + r] = order[r];
            }
        });
    }

    // The mean over drawn rankings of their estimates, [lists, n], of the gradient or of second derivatives; `worth` is [lists,
    // k].
    Index derive(bool twice, const Index* placed, const double* worth, const double* rewards, Index first, Index last,
                 double* found) const {
        const double widest = twice ? WIDEST_CURVED_POLICY : WIDEST_POLICY;
        return run<Nothing>(first, last, widest, [&](Index index, const Policy& policy, PolicySpace& space, Nothing) {
            double* mine = found + index * n;
            for (Index d = 0; d < n; ++d) mine[d] = 0.0;
            for (Index sample = 0; sample < samples; ++sample) {
                const Span<const Index> ranking{placed + (sample * lists + index) * k, least(policy.real, k)};
                const auto add = twice ? add_curvature<Index> : add_gradient<Index>;
                add(policy, ranking, worth + index * k, rewards + index * n, space, mine);
            }
            for (Index d = 0; d < n; ++d) mine[d] /= double(samples);
        });
    }

  private:
    struct Nothing {
        Nothing(Arena&, Index) {}
    };
};
#endif

}  // namespace rankstruct
