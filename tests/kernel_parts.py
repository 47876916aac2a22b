"""Parts of kernels, called from Python."""

import numba


def called_from_python(part):
    """A part, which only other kernels can call, as a function that Python can; it must return numbers."""

    @numba.njit
    def call(*given):
        return part(*given)

    return call
