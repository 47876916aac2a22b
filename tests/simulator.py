"""The kernels of CUDA devices on a CPU: in numba's simulator, as plain Python."""

from __future__ import annotations

import os
import sys

from rankstruct.kernels import dispatch

SETTINGS = {"NUMBA_ENABLE_CUDASIM": "1", "NUMBA_DISABLE_JIT": "1"}


def simulate_device() -> None:
    """Send tensors of the CPU where those of CUDA devices go, for the rest of this process, which has not loaded numba."""
    assert "numba" not in sys.modules
    os.environ |= SETTINGS
    dispatch.has_loops = lambda device: False
