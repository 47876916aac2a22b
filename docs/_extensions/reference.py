"""What Sphinx needs beyond its own extensions: the reference from the docstrings, and formulas without a script from the network.

`.. module-reference:: rankstruct.losses` lists the public names of a module; each has a page of its own. `.. table-of:: losses`,
or `formats`, and `.. command-reference::`, the help of every command, are made of what there is too.
"""

from __future__ import annotations

import importlib
import inspect
import io
import os
import re
from contextlib import redirect_stdout, suppress
from functools import cache
from pathlib import Path

from docutils import nodes
from docutils.statemachine import StringList
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.util.docutils import SphinxDirective

import rankstruct
from rankstruct._lazy import public_names
from rankstruct.cli import COMMANDS, main
from rankstruct.data.dataset import FORMATS
from rankstruct.losses import HingeLoss, RankingLoss

#: The modules in the reference; names that `rankstruct` exports too are documented as its own.
MODULES = (
    *(
        f"rankstruct.{module}"
        for module in (
            *("measures", "feature_maps", "oracles", "losses", "clicks", "models", "preparation", "estimators"),
            *(
                "metric",
                "calibration",
                "constraints",
                "cut_off",
                "fusion",
                "recommenders",
                "data",
                "solvers",
                "training",
            ),
            *("recommenders.training", "diagnostics"),
            *("statistics", "kernels", "scoring", "embeddings", "hub", "text", "text.loading"),
            *("columns", "commands.cells", "commands.cluster"),
        )
    ),
    *("papers.plan", "papers.sources", "papers.classes", "papers.run"),  # of the folder scripts
    *("papers.click_models", "papers.interleaving", "papers.exposure", "papers.significance"),
    *("papers.gaussian", "papers.perceptron", "papers.alternating", "papers.genres"),
)
_SECTION = re.compile(r"(Args|Arguments|Attributes|Returns|Raises|Yields|Warns):\s*$")


@cache
def documented() -> dict[str, str]:
    """Where each public name is documented, such as `AP` at `rankstruct.AP`; the first module wins if several have the name."""
    found: dict[str, str] = {}
    for module in MODULES:
        for name in public_names(importlib.import_module(module)):
            found.setdefault(name, _home(name, module))
    return found


class ModuleReference(SphinxDirective):
    """A table of the names that a module exports, each with a link to its page."""

    required_arguments = 1

    def run(self):
        """The nodes of the table."""
        lines = [
            ".. autosummary::",
            "   :nosignatures:",
            "",
            *(f"   ~{place}" for place in places(self.arguments[0])),
            "",
        ]
        return self.parse_text_to_nodes(
            StringList(lines, source=self.get_source_info()[0]), allow_section_headings=False
        )


class TableOf(SphinxDirective):
    """A table of the losses, or of the formats of lists."""

    required_arguments = 1

    def run(self):
        """The nodes of the table, whose cells are Markdown."""
        if self.arguments[0] == "losses":
            rows = [("loss", "what it is", "source"), *((f"`{name}`", *its) for name, *its in losses())]
        else:
            rows = [("suffix", "reader"), *((f"`{suffix}`", f"`{its.__name__}`") for suffix, its in FORMATS.items())]
        lines = [".. list-table::", "   :header-rows: 1", ""]
        for row in rows:
            lines += [f"   {' ' if at else '*'} - {_escaped(cell)}" for at, cell in enumerate(row)]
        return self.parse_text_to_nodes(StringList(lines, source=self.get_source_info()[0]))


def losses() -> list[tuple[str, str, str]]:
    """Name, first sentence and source, without titles, of each loss that `rankstruct.losses` exports, by their docstrings."""
    found = []
    for name in public_names(rankstruct.losses):
        kind = getattr(rankstruct.losses, name)
        if inspect.isclass(kind) and issubclass(kind, RankingLoss) and kind not in (RankingLoss, HingeLoss):
            paragraphs = [" ".join(each.split()) for each in inspect.getdoc(kind).split("\n\n")]
            source = next((each.removeprefix("Source: ") for each in paragraphs if each.startswith("Source: ")), "")
            summary = paragraphs[0].partition(". ")[0].rstrip(".:,")
            found.append((name, summary, re.sub(r',? "[^"]+",', ",", source).rstrip(".")))
    return found


class CommandReference(SphinxDirective):
    """A section for each command, with its help."""

    def run(self):
        """The sections."""
        found = []
        for name in COMMANDS:
            out = io.StringIO()
            with redirect_stdout(out), suppress(SystemExit):
                main([name, "--help"])
            command = f"rankstruct {name}"
            section = nodes.section(ids=[nodes.make_id(command)], names=[command])
            section += [nodes.title("", command), nodes.literal_block(text=out.getvalue(), language="none")]
            found.append(section)
        return found


def places(module: str) -> list[str]:
    """The names that a module exports and that are documented as its own or as those of `rankstruct`."""
    names = public_names(importlib.import_module(module))
    return [place for name in names if (place := documented()[name]).startswith(_home(name, module))]


def write_pages(reference: Path) -> None:
    """A page for every name, in the folder `names`, from the docstrings."""
    folder, written = reference / "names", set()
    folder.mkdir(exist_ok=True)
    for page in reference.glob("*.md"):
        text = page.read_text(encoding="utf-8")
        title = text.partition("\n")[0].removeprefix("# ")
        for module in re.findall(r"module-reference:: (\S+)", text):
            for place in places(module):
                owner, _, name = place.rpartition(".")
                thing = getattr(importlib.import_module(owner), name)
                kind, options = "function" if inspect.isroutine(thing) else "data", []
                if inspect.isclass(thing):
                    kind, options = "class", ["   :members:", *_bases_option(thing)]
                lines = [":orphan:", "", name, "=" * len(name), "", f":doc:`{title} </reference/{page.stem}>`", ""]
                lines += [f".. auto{kind}:: {place}", *options, ""]
                written.add(file := folder / f"{place}.rst")
                if not file.is_file() or file.read_text(encoding="utf-8") != "\n".join(lines):
                    file.write_text("\n".join(lines), encoding="utf-8")
    for file in set(folder.glob("*.rst")) - written:
        file.unlink()


def _bases_option(thing: type) -> list[str]:
    """The option that shows the bases, if each is documented, here or elsewhere."""
    elsewhere = ("torch", "sklearn", "pytorch_lightning", "rankstruct.estimators.base")
    pages = (base.__name__ in documented() or base.__module__.startswith(elsewhere) for base in thing.__bases__)
    return ["   :show-inheritance:"] if all(pages) else []


def _home(name: str, module: str) -> str:
    return f"rankstruct.{name}" if name in rankstruct.__all__ else f"{module}.{name}"


def as_rst(lines: list[str]) -> list[str]:
    """A docstring in Markdown, with the sections that napoleon knows, as reStructuredText."""
    found: list[str] = []
    prose: list[str] = []
    state, base = "prose", 0

    def end_prose() -> None:
        found.extend(_escaped("\n".join(prose)).split("\n") if prose else [])
        prose.clear()

    in_section = False
    for line in lines:
        blank, indent = not line.strip(), len(line) - len(line.lstrip())
        if state == "doctest" and not blank:
            found.append(line)
            continue
        if state == "literal" and (blank or indent > base):
            found.append(line)
            continue
        state = "prose"
        if line.lstrip().startswith(">>>"):
            end_prose()
            if found and found[-1].strip():
                found.append("")
            state = "doctest"
            found.append(line)
            continue
        if not blank and indent == 0:
            in_section = bool(_SECTION.match(line))
        after_blank = bool(prose and not prose[-1].strip()) or bool(not prose and found and not found[-1].strip())
        if not blank and indent > 0 and after_blank and not in_section:
            end_prose()
            state, base = "literal", 0
            found += ["::", "", line]
            continue
        prose.append(line)
    end_prose()
    return found


def _escaped(text: str) -> str:
    parts = re.split(r"(`+[^`]+`+)", text)
    for at, part in enumerate(parts):
        if at % 2:
            parts[at] = _code(part.strip("`"), parts[at + 1][:1])
        else:
            part = part.replace("\\", r"\\").replace("|", r"\|")
            part = re.sub(r"(?<!\*)\*(?!\*)", r"\\*", part)
            parts[at] = re.sub(r"_(?!\w)", r"\\_", part)
    return "".join(parts)


def _code(code: str, following: str) -> str:
    name = code.removeprefix("rs.").removesuffix("()")
    name = name.rpartition(".")[2] if name.startswith("rankstruct.") else name
    end = r"\ " if following.isalnum() else ""
    if name in documented():
        return f":py:obj:`{code} <{documented()[name]}>`{end}"
    return f"``{' '.join(code.split())}``{end}"


def _inline(writer, node: nodes.math) -> None:
    writer.body.append(str(tex2mathml(node.astext())))
    raise nodes.SkipNode


def _block(writer, node: nodes.math_block) -> None:
    writer.body.append(str(tex2mathml(node.astext(), as_block=True)))
    raise nodes.SkipNode


def setup(app):
    """Register the directives, the docstrings' conversion and MathML for formulas."""
    os.environ["COLUMNS"] = "88"  # of the commands' help
    app.add_directive("module-reference", ModuleReference)
    app.add_directive("table-of", TableOf)
    app.add_directive("command-reference", CommandReference)
    app.add_html_math_renderer("mathml", (_inline, None), (_block, None))

    def process(app, what, name, obj, options, lines):
        borrowed = what == "data" and type(obj).__module__ in ("builtins", "numpy")  # the type's docstring
        lines[:] = [] if borrowed else as_rst(lines)

    app.connect("autodoc-process-docstring", process, priority=100)  # before napoleon
    app.connect("builder-inited", lambda app: write_pages(Path(app.srcdir) / "reference"))
    return {"parallel_read_safe": True}
