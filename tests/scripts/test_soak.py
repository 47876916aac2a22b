"""Kills of commands, each gone on with to the same results."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

SOAK = Path(__file__).parents[2] / "scripts" / "soak.py"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc")
def test_killed_commands_go_on_to_the_same_results(tmp_path):
    commands = ["fit", "predict", "fit-exact", "cross-validate", "convert", "experiment"]
    options = ["--kills", "6", "--fork", "--jobs", "2", "--processes", "0", "--folder", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, str(SOAK), *options, "--commands", *commands], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    last = done.stdout.splitlines()[-1].split()
    assert 3 <= sum(map(int, last[2:5])) <= 6, done.stdout  # now and then a command is faster than its kill
