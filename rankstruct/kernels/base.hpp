// Basics of all kernels.
#pragma once

#include <cmath>
#include <cstdlib>
#include <limits>
#include <type_traits>
#include <utility>

namespace rankstruct {

using Index = long long;
using Bits32 = unsigned int;
using Bits64 = unsigned long long;

constexpr double INFINITE = std::numeric_limits<double>::infinity(), LARGEST = std::numeric_limits<double>::max();

template <class T>
constexpr T least(T a, T b) {
    return b < a ? b : a;
}

template <class T>
constexpr T most(T a, T b) {
    return a < b ? b : a;
}

// Whether a number is neither infinite nor NaN; for those, value - value is NaN.
inline bool is_finite(double value) { return value - value == 0.0; }

// A contiguous array. A checked build (`make sanitize`) traps at an index out of range.
template <class T>
struct Span {
    T* data = nullptr;
    Index size = 0;

    T& operator[](Index i) const {
#ifdef RANKSTRUCT_CHECKED
        if (i < 0 || i >= size) __builtin_trap();
#endif
        return data[i];
    }
    Span slice(Index first, Index last) const {
#ifdef RANKSTRUCT_CHECKED
        if (first < 0 || last < first || last > size) __builtin_trap();
#endif
        return {data + first, last - first};
    }
    Span first(Index count) const { return slice(0, count); }
    T* begin() const { return data; }
    T* end() const { return data + size; }
    void fill(T value) const {
        for (Index i = 0; i < size; ++i) data[i] = value;
    }
    operator Span<const T>() const { return {data, size}; }
};

// Hands out scratch from one block of memory. Without memory it only counts bytes.
struct Arena {
    char* memory = nullptr;
    Index used = 0;

    template <class T>
    Span<T> take(Index count) {
        constexpr Index line = 64;
        char* begin = memory ? memory + used : nullptr;
        used += (count * Index(sizeof(T)) + line - 1) / line * line;
        return {reinterpret_cast<T*>(begin), count};
    }
};

// What an array of scratch is initialised with: one number for each of `count` documents, unless another count is given.
struct Room {
    Arena& arena;
    Index count;

    template <class T>
    operator Span<T>() const {
        return arena.take<T>(count);
    }
    Room operator()(Index other) const { return {arena, other}; }
    Room when(bool needed) const { return {arena, needed ? count : 0}; }
};

constexpr Index OUT_OF_MEMORY = -2;

// The result of `use(space)`, for a space made of scratch for `count` documents and of what is given; or OUT_OF_MEMORY. It is made
// twice, to count the bytes and to hand them out. One allocation: the allocator reuses it for the next call, and no state outlives
// the call.
template <class Space, class Use, class... Given>
Index with_space(Index count, Use use, const Given&... given) {
    Arena counted;
    { Space{Room{counted, count}, given...}; }
    Arena arena{static_cast<char*>(std::malloc(size_t(counted.used)))};
    if (!arena.memory) return OUT_OF_MEMORY;
    const Index found = [&] {
        Space space{Room{arena, count}, given...};
        return use(space);
    }();
    std::free(arena.memory);
    return found;
}

// Scratch whose size is not known in advance and that few lists need. It grows, and loses its content.
template <class T>
class Growing {
  public:
    Growing() = default;
    Growing(const Growing&) = delete;
    Growing& operator=(const Growing&) = delete;
    ~Growing() { std::free(memory); }
    bool reserve(Index count) {
        if (count <= size) return true;
        std::free(memory);
        memory = static_cast<T*>(std::malloc(size_t(count) * sizeof(T)));
        size = memory ? count : 0;
        return memory != nullptr;
    }
    Span<T> first(Index count) const { return Span<T>{memory, size}.first(count); }

  private:
    T* memory = nullptr;
    Index size = 0;
};

}  // namespace rankstruct
