"""A self-contained HTML page with findings, contents, tables and SVG figures."""

from __future__ import annotations

import html
import io
import re
from collections.abc import Sequence
from dataclasses import dataclass

import matplotlib
from matplotlib.figure import Figure

__all__ = ["Section", "figure", "page"]

_STYLE = """
:root { --line: #d0d4da; --soft: #f4f6f8; --ink: #1b1f24; --dim: #4c5561 }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); margin: 0 auto; max-width: 72rem; padding: 1rem }
h1 { margin: 0.5rem 0 } h3 { margin: 2rem 0 0.5rem }
h2 { margin: 2.5rem 0 0.5rem; border-top: 2px solid var(--line); padding-top: 1rem }
.found { font-size: 1.15rem } .dim, figcaption, .note { color: var(--dim); font-size: 0.9rem; max-width: 60rem }
nav { background: var(--soft); padding: 0.5rem 1rem; margin: 1rem 0 }
nav p { margin: 0.2rem 0 } nav a { margin-right: 0.8rem }
.wide { overflow-x: auto } figure { margin: 1rem 0 } figure svg { display: block; width: 100%; height: auto }
table { border-collapse: collapse; font-size: 0.9rem; font-variant-numeric: tabular-nums }
td, th { border-bottom: 1px solid var(--line); padding: 0.2rem 0.7rem 0.2rem 0; text-align: left }
td { white-space: nowrap }
pre { background: var(--soft); padding: 1rem; overflow: auto; font-size: 0.85rem }
"""
_NARROWEST = 600  # minimum width of a figure in pixels; narrower windows scroll


@dataclass(frozen=True)
class Section:
    """A part of the page.

    Attributes:
        name: its unique anchor.
        group: the group it belongs to, such as a data set; "" for none.
        title: the heading.
        body: HTML.
    """

    name: str
    group: str
    title: str
    body: str


def page(title: str, found: Sequence[str], sections: Sequence[Section], about: str) -> str:
    """The page as HTML.

    Args:
        title: the title.
        found: the main results, one sentence each, shown first.
        sections: the sections, with those of a group together.
        about: a line with date and versions.
    """
    contents, body = [], []
    for group in dict.fromkeys(section.group for section in sections):
        members = [section for section in sections if section.group == group]
        links = " ".join(f'<a href="#{each.name}">{html.escape(each.title)}</a>' for each in members)
        contents.append(f"<p>{f'<b>{html.escape(group)}</b>: ' if group else ''}{links}</p>")
        if group:
            body.append(f"<h2>{html.escape(group)}</h2>")
        heading = "h3" if group else "h2"
        body += [f'<{heading} id="{m.name}">{html.escape(m.title)}</{heading}>\n{m.body}' for m in members]
    return "\n".join(
        [
            '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(title)}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{html.escape(title)}</h1>",
            *(f'<p class="found">{html.escape(sentence)}</p>' for sentence in found),
            f'<p class="dim">{html.escape(about)}</p>',
            f'<nav aria-label="contents">{"".join(contents)}</nav>',
            *body,
            "</body></html>\n",
        ]
    )


def figure(drawing: Figure, caption: str, name: str) -> str:
    """A figure as SVG with a caption; `name` makes the ids of its parts unique on the page."""
    svg = _inline_svg(drawing, name, caption)
    return f'<figure><div class="wide">{svg}</div>\n<figcaption>{html.escape(caption)}</figcaption></figure>'


def _inline_svg(drawing: Figure, name: str, label: str) -> str:
    """SVG to embed in HTML, with text as text, and ids that begin with `name`."""
    out = io.StringIO()
    with matplotlib.rc_context({"svg.fonttype": "none", "svg.hashsalt": name}):
        drawing.savefig(out, format="svg", metadata={"Date": None})
    text = out.getvalue()
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    text = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{name}-", text)
    width = 96 * drawing.get_figwidth()  # pixels
    size = f"max-width: {width:.0f}px; min-width: {min(width, _NARROWEST):.0f}px"
    return text.replace("<svg ", f'<svg role="img" aria-label="{html.escape(label)}" style="{size}" ', 1)
