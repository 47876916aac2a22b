"""The cache of compiled loops belongs to one state of the sources."""

import shutil
import subprocess
import sys
from pathlib import Path

import rankstruct

CODE = "from rankstruct.kernels import compilation; print(compilation._FOLDER)"


def folder_of(root):
    done = subprocess.run([sys.executable, "-c", CODE], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_change_of_any_kernel_source_is_another_cache(tmp_path):
    shutil.copytree(Path(rankstruct.__file__).parent, tmp_path / "rankstruct")
    before = folder_of(tmp_path)
    assert folder_of(tmp_path) == before
    sorting = tmp_path / "rankstruct" / "kernels" / "sorting.py"
    sorting.write_text(sorting.read_text() + "\n")
    assert folder_of(tmp_path) != before
