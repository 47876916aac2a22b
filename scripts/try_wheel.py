"""Build sdist and wheel, and try the wheel alone: a fresh environment, an empty folder, the quickstart by one command.

python scripts/try_wheel.py --torch torch              # the newest versions that pyproject.toml allows
python scripts/try_wheel.py --torch torch --lowest     # the lowest ones
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from zipfile import ZipFile

from environments import add_options, environment

ROOT = Path(__file__).parents[1]

#: What a user does in the first minutes, each in the empty folder.
TRIALS = (
    ["-m", "rankstruct", "configs"],
    ["-m", "rankstruct", "fit", "--config", "quickstart", "--trainer.max_epochs", "3"],
    ["-m", "rankstruct", "predict", "--run", "runs/quickstart"],
    [
        "-c",
        "import numpy as np, rankstruct as rs, torch\n"
        "X, qid = np.random.default_rng(0).normal(size=(400, 5)), np.repeat(np.arange(20), 20)\n"
        "y = (X[:, 0] > 1).astype(int)\n"
        "assert rs.LinearRanker('nDCG@10').fit(X, y, qid).score(X, y, qid) > 0.9\n"
        "scores = torch.randn(4, 9, requires_grad=True)\n"
        "for name in ('AP', 'AUC', 'nDCG@10', 'RR', 'P@5'):\n"
        "    rs.StructuredHingeLoss(name)(scores, (torch.rand(4, 9) > 0.5).long()).backward()\n"
        "assert rs.load_scorer('runs/quickstart') is not None\n",
    ],
)


def main() -> int:
    """Build, install, try."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_options(parser)
    parser.add_argument("--lowest", action="store_true", help="the lowest version of each requirement")
    parser.add_argument("--tests", nargs="*", default=[], metavar="PATH", help="tests to run with what was installed")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder, "empty")
        empty.mkdir()
        python = str(environment(Path(folder, "environment"), given.torch, given.packages) / "python")

        def run(*command: str, cwd: Path = empty) -> None:
            print("$", *(word if "\n" not in word else "..." for word in command), flush=True)
            subprocess.run([python, *command], cwd=cwd, check=True)

        def install(*requirements: str) -> None:
            run("-m", "pip", "install", "--quiet", *requirements)

        install("build")
        run("-m", "build", "--outdir", folder, str(ROOT))  # the wheel is made from the sdist
        (wheel,) = Path(folder).glob("*.whl")
        if names := foreign_files(wheel):
            raise SystemExit(f"{wheel.name} holds what is not of the package: {', '.join(names)}")
        extra = "[test]" if given.tests else ""
        pins = Path(folder, "lowest.txt")
        pins.write_text("\n".join(lowest_versions(wheel, "test" if given.tests else None)) if given.lowest else "")
        install("--constraint", str(pins), f"{wheel}{extra}")
        for trial in TRIALS:
            without = given.lowest and "fit" in trial  # averages of weights, which need a later Lightning
            run(*trial, *(["--average_weights", "false"] if without else []))
        if given.tests:
            run("-m", "pytest", "-q", "-n", "auto", "--dist", "worksteal", *given.tests, cwd=ROOT)
        size = wheel.stat().st_size / 1e6
    print(f"{wheel.name}, {size:.1f} MB: works")
    return 0


def foreign_files(wheel: Path) -> list[str]:
    """The files of a wheel that are none of the package: the scripts of the repository, and the configs that they run."""
    with ZipFile(wheel) as file:
        names = file.namelist()
    package = re.compile(r"rankstruct/(?!configs/experiment-)|[^/]+\.dist-info/")
    return [name for name in names if not package.match(name)]


def lowest_versions(wheel: Path, extra: str | None = None) -> list[str]:
    """Each `name>=version` of a wheel's requirements, and of one extra's with those that it names, as `name==version`."""
    with ZipFile(wheel) as file:
        (name,) = (each for each in file.namelist() if each.endswith(".dist-info/METADATA"))
        text = file.read(name).decode()
    line = r"""^Requires-Dist: ([\w.-]+)(?:\[(\w+)\])?([^;\n]*)(?:; extra == ['"](\w+)['"])?$"""
    requirements = re.findall(line, text, re.MULTILINE)
    wanted = {"", extra}
    wanted |= {part for name, part, _, of in requirements if name == wheel.name.split("-")[0] and of in wanted}
    found = []
    for name, _, versions, of in requirements:
        match = re.search(r">=([\w.]+)", versions)
        if match and of in wanted:
            found.append(f"{name}=={match[1]}")
    return found


if __name__ == "__main__":
    sys.exit(main())
