"""Count what a reader of the library has to learn: lines, public objects, containers of lists, repeated names, parameters.

python scripts/concepts.py            # the counts
python scripts/concepts.py --names    # and the public objects, by module

Everything is read from the source with `ast`; nothing is imported. A public object is a name in the `__all__` of a module. A
container of lists is a class that declares at least three of the fields that a list of documents has.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from argparse import ArgumentParser
from collections import Counter, defaultdict
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[1]
#: The fields of a list of documents, each with the names that it has in the tree.
FIELDS = (
    {"scores", "features", "values", "X"},
    {"labels", "gains", "y"},
    {"where", "offsets", "mask", "lengths"},
    {"weights", "item_weights", "sample_weight"},
    {"groups", "diversity_groups"},
)
LEAST_FIELDS = 3  # of these, to be a container


class Lines(NamedTuple):
    """Lines of a Python file: all, blank, of comments alone, and of docstrings."""

    total: int
    blank: int
    comments: int
    docstrings: int

    @property
    def code(self) -> int:
        """The remaining lines."""
        return self.total - self.blank - self.comments - self.docstrings


def lines_of(source: str) -> Lines:
    r"""Count the lines of a file.

    >>> lines_of('"Doc."\n\n# why\nx = 1  # what\n').code
    1
    """
    docstrings: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    rows = source.splitlines()
    blank = {at for at, row in enumerate(rows, 1) if not row.strip()} - docstrings
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    comments = {token.start[0] for token in tokens if token.type == tokenize.COMMENT and token.line.lstrip()[0] == "#"}
    return Lines(len(rows), len(blank), len(comments), len(docstrings))


def exported(tree: ast.Module) -> set[str]:
    """The names in `__all__` of a module."""
    for node in tree.body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == "__all__" and isinstance(node, ast.Assign | ast.AnnAssign):
            return set(ast.literal_eval(node.value)) if isinstance(node.value, ast.List | ast.Tuple) else set()
    return set()


def fields_of(node: ast.ClassDef) -> set[str]:
    """The fields of a class: annotated in its body, or assigned to `self` in `__init__`."""
    names = {
        each.target.id for each in node.body if isinstance(each, ast.AnnAssign) and isinstance(each.target, ast.Name)
    }
    for method in node.body:
        if isinstance(method, ast.FunctionDef) and method.name == "__init__":
            names |= {
                each.attr
                for each in ast.walk(method)
                if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "self"
            }
    return {name.lstrip("_") for name in names}


def parameters_of(node: ast.FunctionDef) -> int:
    """The number of parameters of a function, without `self` and `cls`."""
    every = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return sum(each.arg not in ("self", "cls") for each in every)


def main(arguments: list[str] | None = None) -> int:
    """Read the library and print the counts."""
    parser = ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--names", action="store_true", help="list the public objects")
    parser.add_argument("--root", type=Path, default=ROOT, help="checkout (default: this one)")
    given = parser.parse_args(arguments)
    package = given.root / "rankstruct"
    stub = ast.parse((package / "__init__.pyi").read_text(encoding="utf-8"))
    named = [node for node in stub.body if isinstance(node, ast.ImportFrom) and node.module != "rankstruct"]
    top = {each.asname for node in named for each in node.names if each.asname}
    counts: list[Lines] = []
    public: dict[str, list[str]] = {}
    classes: defaultdict[str, list[str]] = defaultdict(list)
    containers: list[str] = []
    parameters: Counter[str] = Counter()
    for path in sorted(package.rglob("*.py")):
        source, name = path.read_text(encoding="utf-8"), str(path.relative_to(package))
        tree = ast.parse(source)
        counts.append(lines_of(source))
        public[name] = sorted(exported(tree) - top)
        for node in ast.walk(tree):
            if isinstance(node, ast.ClassDef):
                classes[node.name].append(name)
                if sum(bool(fields_of(node) & same) for same in FIELDS) >= LEAST_FIELDS:
                    containers.append(f"{node.name} ({name})")
            elif isinstance(node, ast.FunctionDef):
                parameters[f"{node.name} ({name}:{node.lineno})"] = parameters_of(node)
    native = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in package.rglob("*.[hc]pp"))
    total, blank, comments, docstrings = (sum(column) for column in zip(*counts, strict=True))
    print(f"lines of rankstruct/: {total + native:,} ({total:,} of Python, {native:,} of C++)")
    print(
        f"lines of Python: {total - blank - comments - docstrings:,} code, {docstrings:,} docstrings, {comments:,} comments"
    )
    print(f"public objects: {len(top)} of the package, {len(set().union(*public.values()))} more in its modules")
    print(f"containers of lists: {len(containers)}: {', '.join(containers)}")
    again = {name: places for name, places in classes.items() if len(places) > 1}
    print(
        f"names of several classes: {', '.join(f'{name} ({len(places)})' for name, places in again.items()) or 'none'}"
    )
    mean = sum(parameters.values()) / len(parameters)
    print(
        f"parameters: {mean:.2f} a function, the most: {', '.join(f'{name} {n}' for name, n in parameters.most_common(10))}"
    )
    if given.names:
        print("".join(f"  {module}: {', '.join(names)}\n" for module, names in public.items() if names), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
