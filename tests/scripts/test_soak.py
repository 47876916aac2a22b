"""Kills of commands, each gone on with to the same results; starts at once; and a board that is deleted."""

import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.soak,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="looks into /proc"),
]

SOAK = Path(__file__).parents[2] / "scripts" / "soak.py"


def soak(folder, kills, commands, *options):
    """The last row of the table: rounds, SIGKILL, SIGTERM, SIGINT, at once, deleted, partial files, wrong."""
    given = ["--kills", str(kills), "--processes", "0", "--folder", str(folder), "--commands", *commands, *options]
    done = subprocess.run([sys.executable, str(SOAK), *given], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return list(map(int, done.stdout.splitlines()[-1].split()[1:]))


def test_killed_commands_go_on_to_the_same_results(tmp_path):
    commands = ["fit", "predict", "fit-exact", "cross-validate", "convert", "experiment", "rank", "tune"]
    _, *kills, at_once, deleted, _, wrong = soak(tmp_path, 8, commands, "--fork", "--jobs", "2")
    assert 3 <= sum(kills) <= 8  # now and then a command is faster than its kill
    assert (at_once, deleted, wrong) == (0, 0, 0)


def test_four_processes_at_once_without_a_cache_and_a_board_deleted_in_mid_run(tmp_path):
    _, *kills, at_once, deleted, _, wrong = soak(tmp_path, 4, ["fit-at-once", "fit-board"])
    assert (sum(kills), wrong) == (0, 0)
    assert at_once % 4 == 0 < at_once
    assert deleted > 0
