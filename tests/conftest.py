"""Fixtures shared by all tests."""

import os
import signal
from pathlib import Path

import pytest

# Tests side by side (pytest -n): each has one thread, or they take each other's. It counts when torch is loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

# What a shell starts in the background is deaf to Ctrl-C, and so would be the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    """Seed every test alike, so that none depends on which others ran before it in the same process."""
    torch.manual_seed(0)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    root = Path(os.environ.get("RANKSTRUCT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"real data not found at {root}; set RANKSTRUCT_DATA to its folder")
    return root
