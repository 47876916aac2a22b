// Scratch for the parts that the tests call.
#pragma once

#include "base.hpp"

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace rankstruct {

// What `use` returns of a space for these sizes; its memory is not zero.
template <class Space, class Use, class... Sizes>
auto with_space(Use use, Sizes... sizes) {
    Arena count;
    { Space(count, sizes...); }
    Arena arena{static_cast<char*>(std::malloc(size_t(count.used)))};
    for (Index i = 0; i < count.used; ++i) arena.memory[i] = char(-1);
    const auto found = [&] {
        Space space(arena, sizes...);
        return use(space);
    }();
    std::free(arena.memory);
    return found;
}

}  // namespace rankstruct
