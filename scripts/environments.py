"""Fresh environments with PyTorch, in which the package is installed as a user does it."""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options that say where PyTorch comes from."""
    parser.add_argument("--torch", default="torch", help="requirement that is installed first (default: torch)")
    parser.add_argument("--packages", type=Path, help="folder of packages that has PyTorch: it is found, not installed")


def environment(folder: Path, torch: str, packages: Path | None = None) -> Path:
    """Make a virtual environment that has pip and PyTorch.

    Args:
        folder: it is made there.
        torch: the requirement that is installed.
        packages: a folder that has PyTorch, which is found there instead; what it needs comes with the next installation. What is
            installed in the environment goes before what is in this folder.

    Returns:
        The folder of its programs.
    """
    venv.create(folder, with_pip=True)
    programs = folder / ("Scripts" if sys.platform == "win32" else "bin")
    if packages is None:
        subprocess.run([programs / "python", "-m", "pip", "install", "--quiet", torch], check=True)
    else:
        place = sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)})
        Path(place, "packages.pth").write_text(f"{packages.resolve()}\n", encoding="utf-8")
    return programs
