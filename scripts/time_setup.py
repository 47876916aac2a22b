"""Run and time the README's set-up commands as it has them, in a fresh environment and clone, with PyTorch installed.

python scripts/time_setup.py                                # writes docs/results/setup.json
python scripts/write_results.py                             # writes its times into the README
python scripts/time_setup.py --only train docs --clone DIR  # two of the commands; DIR keeps the clone, with the site

The clone is of the last commit. The environment's packages come from the network, so times include downloads, and the load of the
machine before each command is written with its time. A command that fails, as with a failed test, is an error.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.timing import machine
from environments import add_options, environment
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_result

ROOT = Path(__file__).parents[1]
#: The commands in the order of the README: those of "Set up", then that of "Documentation". The order in which they run differs:
#: each installs more packages, so that the smaller sets come first.
NAMES = ("train", "test", "docs")
ORDER = ("train", "docs", "test")
_VERSIONS = "import json; from rankstruct.files import versions; print(json.dumps(versions()))"


def commands(readme: str) -> dict[str, str]:
    """The commands of the sections "Set up" and "Documentation", by name.

    Raises:
        ValueError: there are not two and one.
    """
    blocks = []
    for title, number in (("Set up", 2), ("Documentation", 1)):
        section = readme.partition(f"\n## {title}\n")[2].split("\n## ", 1)[0]
        there = re.findall(r"^```bash\n(.*?)\n```$", section, re.DOTALL | re.MULTILINE)
        if len(there) != number:
            raise ValueError(f"the section {title} must have {number} commands, got {len(there)}")
        blocks += there
    return dict(zip(NAMES, blocks, strict=True))


def in_words(seconds: float) -> str:
    """A time for a sentence.

    >>> in_words(64.4), in_words(241.0)
    ('64 seconds', '4 minutes')
    """
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def main(arguments: list[str] | None = None) -> int:
    """Install, time, write."""
    parser = CommandParser(description=__doc__)
    add_options(parser)
    parser.add_argument("--only", choices=NAMES, nargs="+", default=list(NAMES), help="commands")
    parser.add_argument("--clone", type=Path, help="folder for the clone, which is kept (default: a temporary one)")
    parser.add_argument("--json", type=Path, default=ROOT / "docs" / "results" / "setup.json", help="result file")
    given = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        made, clone = Path(folder, "environment"), given.clone or Path(folder, "clone")
        programs = environment(made, given.torch, given.packages)
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
        kept |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(made)}
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        typed = commands((clone / "README.md").read_text(encoding="utf-8"))
        for name in (name for name in ORDER if name in given.only):
            command = typed[name]
            load, start = os.getloadavg()[0], time.perf_counter()
            print(f"$ {command}", flush=True)
            done = subprocess.run(
                command, shell=True, cwd=clone, env=kept, stdout=subprocess.PIPE, text=True, check=False
            )
            seconds = time.perf_counter() - start
            print(done.stdout[-2000:], flush=True)
            if done.returncode:
                raise SystemExit(f"exit code {done.returncode}: {command}")
            last = done.stdout.rstrip().rpartition("\n")[2].strip("= ") if name == "test" else ""
            rows.append([name, in_words(seconds), os.cpu_count(), f"{seconds:.1f}", f"{load:.1f}", command, last])
        python = [str(programs / "python"), "-c", _VERSIONS]
        versions = json.loads(subprocess.run(python, env=kept, cwd=folder, capture_output=True, check=True).stdout)
    header = ["name", "time", "cores", "seconds", "load before", "command", "tests"]
    told = {"versions": versions, "machine": machine()}
    options = sys.argv[1:] if arguments is None else arguments
    write_result(given.json, ["python", "scripts/time_setup.py", *options], {"commands": (header, rows)}, **told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
