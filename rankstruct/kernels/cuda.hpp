// The loops on a CUDA device: one block per list, with one thread. `kernels/cuda.py` compiles them at run time; nothing is copied
// back.
#pragma once

#include "loops.hpp"

namespace rankstruct {

// Solve the lists of one block; NaN marks a list with an invalid number, or a document that the kernel refuses.
template <class T, class Loop>
KERNEL inline void solve_block(Batch batch, const Loop& loop, const Scratch& scratch, Index block, Index blocks) {
    const auto kernel = loop.kernel(batch);
    using Kernel = decltype(loop.kernel(batch));
    for (Index index = block; index < batch.lists; index += blocks) {
        const Index start = batch.begin(index), stop = batch.begin(index + 1), longest = most(stop - start, Index(1));
        // Lists of one size share scratch in turn; otherwise each list has its own.
        const Index begin = batch.offsets ? scratch.begin(index, start) : scratch.begin(block, 0);
        const Index end = batch.offsets ? scratch.begin(index + 1, stop) : scratch.begin(block + 1, 0);
        Index wrong = OUT_OF_MEMORY;
        if (count_bytes<T>(batch, kernel, longest, true) <= end - begin) {
            Arena arena{scratch.memory + begin, true};
            ListSpace<T> layout(arena, batch, longest);
            typename Kernel::Space space(arena, kernel, batch, longest);
            wrong = solve_list<T>(batch, kernel, index, layout, space);
        }
        if (wrong != -1) static_cast<T*>(batch.task_loss)[index] = static_cast<T*>(batch.value)[index] = T(INFINITE - INFINITE);
    }
}

}  // namespace rankstruct
