"""The counts of lines and concepts, on a package of two files."""

from scripts_by_path import script

LISTS = """"Lists."

__all__ = ["Lists", "pad"]


class Lists:
    "A container."

    scores: list
    labels: list
    where: list


# why
def pad(lists, size, *, value=0):
    return lists  # as they are


class Table:
    "Not exported."
"""


def test_counts_of_a_small_package(tmp_path, capsys):
    package = tmp_path / "rankstruct"
    package.mkdir()
    (package / "__init__.pyi").write_text("from rankstruct.lists import (\n    Lists as Lists,\n)\n")
    (package / "lists.py").write_text(LISTS)
    (package / "tables.py").write_text("class Table:\n    def __init__(self, scores):\n        self.scores = scores\n")
    (package / "core.hpp").write_text("// one\n// two\n")
    assert script("concepts").main(["--root", str(tmp_path), "--names"]) == 0
    printed = capsys.readouterr().out
    assert "lines of rankstruct/: 25 (23 of Python, 2 of C++)" in printed
    assert "public objects: 1 of the package, 1 more in its modules" in printed
    assert "containers of lists: 1: Lists (lists.py)" in printed
    assert "names of several classes: Table (2)" in printed
    assert "2.00 a function, the most: pad (lists.py:15) 3" in printed
    assert "  lists.py: pad" in printed


def test_lines_of_a_file_by_kind():
    lines = script("concepts").lines_of(LISTS)
    assert (lines.total, lines.comments, lines.docstrings) == (20, 1, 3)
    assert lines.code == 8
