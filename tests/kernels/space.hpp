// Scratch for the parts that the tests call.
#pragma once

#include "base.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace rankstruct {

// What a space is made of for this count.
inline Room room(Arena& arena, Index count) { return {arena, count}; }
template <class Given>
const Given& room(Arena&, const Given& given) {
    return given;
}

// The result of `use` with a space for these numbers of documents or other things, and with what else is given, in memory filled
// with NaN, or with 0, 1, 2, ..., in turn.
template <class Space, class Use, class... Given>
auto with_filled_space(Use use, const Given&... given) {
    Arena count;
    { Space{room(count, given)...}; }
    Arena arena{static_cast<char*>(std::malloc(size_t(count.used)))};
    static bool counts = false;
    counts = !counts;
    const Span<int> words{reinterpret_cast<int*>(arena.memory), count.used / Index(sizeof(int))};
    for (Index i = 0; i < words.size; ++i) words[i] = counts ? int(i % 16) : -1;  // an array begins at a multiple of 16 words
    const auto found = [&] {
        Space space{room(arena, given)...};
        return use(space);
    }();
    std::free(arena.memory);
    return found;
}

}  // namespace rankstruct
