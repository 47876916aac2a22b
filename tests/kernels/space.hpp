// Scratch for the parts that the tests call.
#pragma once

#include "base.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace rankstruct {

// The result of `use` with a space for these sizes, in memory filled with NaN, or with 0, 1, 2, ..., in turn.
template <class Space, class Use, class... Sizes>
auto with_space(Use use, Sizes... sizes) {
    Arena count;
    { Space(count, sizes...); }
    Arena arena{static_cast<char*>(std::malloc(size_t(count.used)))};
    static bool counts = false;
    counts = !counts;
    const Span<int> words{reinterpret_cast<int*>(arena.memory), count.used / Index(sizeof(int))};
    for (Index i = 0; i < words.size; ++i) words[i] = counts ? int(i % 16) : -1;  // an array begins at a multiple of 16 words
    const auto found = [&] {
        Space space(arena, sizes...);
        return use(space);
    }();
    std::free(arena.memory);
    return found;
}

}  // namespace rankstruct
