"""Time the two commands of the README's section "Set up", as it has them: a fresh environment, a fresh clone, PyTorch installed.

python scripts/time_setup.py                                # writes docs/results/setup.json
python scripts/write_results.py                             # writes its times into the README

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
import venv
from pathlib import Path

from benchmarks.timing import machine
from rankstruct.commands._arguments import CommandParser
from rankstruct.files import write_result

ROOT = Path(__file__).parents[1]
NAMES = ("train", "test")
_VERSIONS = "import json; from rankstruct.files import versions; print(json.dumps(versions()))"


def commands(readme: str) -> dict[str, str]:
    """The commands of the section "Set up", by name.

    Raises:
        ValueError: there are not two.
    """
    section = readme.split("\n## Set up\n", 1)[-1].split("\n## ", 1)[0]
    found = re.findall(r"^```bash\n(.*?)\n```$", section, re.DOTALL | re.MULTILINE)
    if len(found) != len(NAMES):
        raise ValueError(f"the section Set up must have {len(NAMES)} commands, got {len(found)}")
    return dict(zip(NAMES, found, strict=True))


def in_words(seconds: float) -> str:
    """A time for a sentence.

    >>> in_words(64.4), in_words(241.0)
    ('64 seconds', '4 minutes')
    """
    return f"{seconds:.0f} seconds" if seconds < 100 else f"{seconds / 60:.0f} minutes"


def main(arguments: list[str] | None = None) -> int:
    """Install, time, write."""
    parser = CommandParser(description=__doc__)
    parser.add_argument("--torch", default="torch", help="requirement that is installed first, untimed")
    parser.add_argument("--only", choices=NAMES, nargs="+", default=list(NAMES), help="commands")
    parser.add_argument("--json", type=Path, default=ROOT / "docs" / "results" / "setup.json", help="result file")
    given = parser.parse_args(arguments)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        made, clone = Path(folder, "environment"), Path(folder, "clone")
        venv.create(made, with_pip=True)
        programs = made / ("Scripts" if sys.platform == "win32" else "bin")
        kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "OMP_NUM_THREADS")}
        kept |= {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "VIRTUAL_ENV": str(made)}
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(clone)], check=True)
        subprocess.run([programs / "pip", "install", "--quiet", given.torch], env=kept, check=True)
        for name, command in commands((clone / "README.md").read_text(encoding="utf-8")).items():
            if name not in given.only:
                continue
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
    typed = sys.argv[1:] if arguments is None else arguments
    write_result(given.json, ["python", "scripts/time_setup.py", *typed], {"commands": (header, rows)}, **told)
    return 0


if __name__ == "__main__":
    sys.exit(main())
