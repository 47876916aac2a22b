// Numbers for the groups of a list's documents.
#pragma once

#include "base.hpp"

namespace rankstruct {

// Number the groups of documents in the order of their first documents; returns their number. `heads` is a hash table at most half
// full, with multiplicative hashing by an odd constant from the golden ratio. About O(n).
inline int number_groups(Span<const Index> name, Span<int> heads, Span<int> first, Span<int> number) {
    int bits = 1, groups = 0;
    while (Index(1) << bits < 2 * name.size) ++bits;
    heads = heads.first(Index(1) << bits);
    heads.fill(-1);
    for (Index r = 0; r < name.size; ++r) {
        Index slot = Index((Bits64(name[r]) * 0x9E3779B97F4A7C15ull) >> (64 - bits));
        while (heads[slot] != -1 && name[first[heads[slot]]] != name[r]) slot = (slot + 1) & (heads.size - 1);
        if (heads[slot] == -1) {
            first[groups] = int(r);
            heads[slot] = groups++;
        }
        number[r] = heads[slot];
    }
    return groups;
}

}  // namespace rankstruct
