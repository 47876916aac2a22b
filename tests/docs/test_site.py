"""The documentation: it builds without a warning, no link is dead, every public name is in it, figures are from result files."""

import importlib
import os
import pkgutil
import re
import shutil
import subprocess
import sys
from fnmatch import filter as filter_names
from fnmatch import fnmatch
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit
from xml.etree import ElementTree

import pytest
import yaml
from scripts_by_path import script

import rankstruct
from rankstruct._lazy import public_names
from rankstruct.cli import COMMANDS
from rankstruct.commands._options import loss_names

ROOT = Path(__file__).parents[2]
RESULTS = ROOT / "docs" / "results"
write_results = script("write_results")
needs_sphinx = pytest.mark.needs("sphinx", "furo", "myst_nb", "sphinx_copybutton")


class Page(HTMLParser):
    """The anchors of a page, its links, and what a browser loads for it."""

    def __init__(self, path):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), set(), set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        given = dict(attrs)
        self.anchors |= {given[name] for name in ("id", "name") if given.get(name)}
        if tag == "a" and "href" in given:
            self.links.add(given["href"])
        elif tag in ("img", "script", "iframe", "source") and "src" in given:
            self.loaded.add(given["src"])
        elif tag == "link" and given.get("rel") in ("stylesheet", "preload", "icon", "shortcut icon"):
            self.loaded.add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The pages by their path in the site; it is built unless RANKSTRUCT_SITE says where it was, as `.ci/run` does."""
    if built := os.environ.get("RANKSTRUCT_SITE"):
        return ROOT / built, {path: Page(path) for path in sorted((ROOT / built).rglob("*.html"))}
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", "-d", str(out / "doctrees")]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(out / "html")], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return out / "html", {path: Page(path) for path in sorted((out / "html").rglob("*.html"))}


def is_elsewhere(link):
    return bool(re.match(r"[a-z]+:|//", link))


@needs_sphinx
@pytest.mark.slow
def test_no_link_within_the_site_is_dead(site):
    _, pages = site
    dead = []
    for path, page in pages.items():
        for link in sorted(page.links | page.loaded):
            place, anchor = urlsplit(link).path, urlsplit(link).fragment
            if is_elsewhere(link) or link.startswith("data:"):
                continue
            target = (path.parent / unquote(place)).resolve() if place else path
            target = target / "index.html" if target.is_dir() else target
            known = pages.get(target)
            if not target.is_file() or (anchor and known is not None and unquote(anchor) not in known.anchors):
                dead.append(f"{path.name}: {link}")
    assert not dead


@needs_sphinx
@pytest.mark.slow
def test_the_site_loads_nothing_from_elsewhere(site):
    html, pages = site
    outside = {
        link for page in pages.values() for link in page.loaded if is_elsewhere(link) and not link.startswith("data:")
    }
    styles = [
        path for path in html.rglob("*.css") if re.search(r"(@import|url\()[\"' ]*(https?:)?//", path.read_text())
    ]
    assert not outside
    assert not styles


@needs_sphinx
@pytest.mark.slow
def test_formulas_are_mathml(site):
    text = (site[0] / "mathematics.html").read_text(encoding="utf-8")
    assert text.count("<math") > 100
    assert not re.search(r"\\frac|\\sum|\$", text)


@pytest.mark.slow
def test_every_public_name_is_in_the_reference(site):
    html, pages = site
    anchors = {anchor for path, page in pages.items() if html / "reference" in path.parents for anchor in page.anchors}
    missing = {f"rankstruct.{name}" for name in rankstruct.__all__ if name != "__version__"} - anchors
    for found in pkgutil.iter_modules(rankstruct.__path__):
        module = importlib.import_module(f"rankstruct.{found.name}")
        if found.name.startswith("_") or not (found.ispkg or hasattr(module, "__all__")):
            continue
        names = [name for name in public_names(module) if name not in rankstruct.__all__]
        missing |= {f"{module.__name__}.{name}" for name in names} - anchors
    assert not missing


@needs_sphinx
@pytest.mark.slow
def test_the_help_of_every_command_is_in_the_reference(site):
    text = (site[0] / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [name for name in COMMANDS if f"usage: rankstruct {name} " not in text] == []


@needs_sphinx
def test_every_class_that_users_meet_has_an_example(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_extensions"))
    reference = importlib.import_module("reference")
    within = ("rankstruct.kernels.", "rankstruct.commands.", "papers.")  # for contributors
    places = {place for place in reference.documented().values() if not place.startswith(within)}
    without, looked = [], 0
    for place in sorted(places):
        owner, _, name = place.rpartition(".")
        thing = getattr(importlib.import_module(owner), name)
        if isinstance(thing, type):
            looked += 1
            docs = [thing.__doc__, *(getattr(member, "__doc__", None) for member in vars(thing).values())]
            without += [] if any(">>> " in (doc or "") for doc in docs) else [place]
    assert looked > 100
    assert without == []


@needs_sphinx
def test_the_table_of_losses_gives_their_sources(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_extensions"))
    table = importlib.import_module("reference").losses()
    assert {name for name, summary, _ in table if summary} >= set(loss_names())
    assert [name for name, _, source in table if not source] == ["GradedLoss"]  # which is the library's own


@needs_sphinx
@pytest.mark.slow
def test_every_page_is_reached_from_the_contents(site):
    html, pages = site
    contents = {urldefrag((html / link).resolve().as_posix())[0] for link in pages[html / "index.html"].links}
    mine = {
        path
        for path in pages
        if html / "reference" not in path.parents and path.stem not in ("search", "genindex", "py-modindex")
    }
    assert {path.as_posix() for path in mine if path.name != "index.html"} <= contents


def test_the_readme_is_short_and_its_links_lead_somewhere():
    text = (ROOT / "README.md").read_text()
    assert len(text.splitlines()) <= 150
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 10
    assert [link for link in links if not is_elsewhere(link) and not (ROOT / urldefrag(link)[0]).exists()] == []


def test_links_between_pages_lead_to_headings_that_are_there():
    """What the build says too, but in a minute."""
    pages = [path for path in sorted((ROOT / "docs").rglob("*.md")) if "_build" not in path.parts]
    texts = {path.resolve(): path.read_text(encoding="utf-8") for path in [*pages, *sorted(ROOT.glob("*.md"))]}
    headings = {path: re.findall(r"^#+ (.*)$", text, re.MULTILINE) for path, text in texts.items()}
    dead, looked = [], 0
    for path, text in texts.items():
        for link in re.findall(r"\]\(([^)\s]+\.md)?#([^)\s]+)\)", text):
            there = (path.parent / link[0]).resolve() if link[0] else path
            looked += 1
            if link[1] not in map(write_results.anchor, headings.get(there, [])):
                dead.append((path.name, *link))
    assert looked > 20
    assert dead == []


def test_lines_of_code_fit_the_column():
    pages = [ROOT / "README.md", *(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "guides").glob("*.md")]
    blocks = {
        page: re.findall(r"^```(?:python|bash)\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)
        for page in pages
    }
    lines = [(page.name, line) for page, found in blocks.items() for block in found for line in block.splitlines()]
    assert len(lines) > 500
    assert [each for each in lines if len(each[1]) > 88] == []


def test_the_citation_is_of_this_version():
    citation, page = yaml.safe_load((ROOT / "CITATION.cff").read_text()), (ROOT / "docs" / "citing.md").read_text()
    assert citation["version"] == rankstruct.__version__
    assert f"version = {{{citation['version']}}}," in page


def test_names_in_the_list_of_configs_are_those_of_the_configs():
    text = (ROOT / "configs" / "README.md").read_text()
    listed = [name for row in re.findall(r"^\| (`.*?) \|", text, re.MULTILINE) for name in re.findall(r"`(.*?)`", row)]
    configs = [path.stem for path in (ROOT / "configs").glob("*.yaml")]
    assert [name for name in configs if not any(fnmatch(name, pattern) for pattern in listed)] == []
    assert [pattern for pattern in listed if not filter_names(configs, pattern)] == []


def test_figures_are_those_of_the_result_files(capsys):
    assert write_results.main(["--check"]) == 0, capsys.readouterr().out


def test_no_line_begins_with_a_figure():
    """Its markup would not be rendered: a comment at the start of a line begins a block of HTML."""
    texts = {page.name: page.read_text() for page in write_results.pages(ROOT)}
    assert [name for name, text in texts.items() if re.search(r"^ *<!-- figure", text, re.MULTILINE)] == []


def test_every_result_file_says_how_it_came_about_and_is_shown():
    shown = "".join(page.read_text() for page in write_results.pages(ROOT))
    for path in (ROOT / "docs" / "results").glob("*.json"):
        result = write_results.read(path)
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", result["date"])
        assert result["command"]
        assert not re.search(r"(^|[\s=])/", result["command"]), "a path of the machine"
        assert [name for name in result["tables"] if f" {path.stem}: {name}" in shown]
        assert f"<!-- source {path.stem} -->" in shown


RESULT = """{"date": "2026-01-02", "versions": {"torch": "2"}, "command": "rankstruct x", "tables":
{"a b": {"header": ["loss", "AP"], "rows": [["x, y", 0.5], ["z|", "-"]]},
"c": {"header": ["trainer", "AP"], "rows": [["A, k=1", "0.1"], ["A, k=2", "0.2"]]}}}"""


def test_places_of_a_page_are_filled_and_what_is_not_there_is_said(tmp_path, capsys):
    (tmp_path / "docs" / "results").mkdir(parents=True)
    (tmp_path / "docs" / "results" / "r.json").write_text(RESULT)
    page = tmp_path / "README.md"
    page.write_text("It is <!-- figure r: a b; x, y; AP -->9<!-- end -->.\n\n<!-- table r: a b -->\n<!-- end -->\n\n")
    given = ["--root", str(tmp_path)]
    assert write_results.main([*given, "--check"]) == 1
    assert "9<!-- end" in page.read_text()
    assert write_results.main(given) == 0
    assert "-->0.5000<!-- end" in page.read_text()
    assert "| z\\|" in page.read_text()
    assert write_results.main([*given, "--check"]) == 0
    page.write_text(
        "<!-- table r: c; across AP -->\n<!-- end -->\n<!-- table r: a b; loss=x, y; AP -->\n<!-- end -->\n"
    )
    assert write_results.main(given) == 0
    shown = [line.replace(" ", "") for line in page.read_text().splitlines()]
    assert "|A|0.1|0.2|" in shown
    assert [line for line in shown if "0.5" in line] == ["|0.5000|"]
    wrongs = ["figure r: a b; w; AP", "figure r: a b; x, y; RR", "table r: d", "table s: a b"]
    for wrong in [*wrongs, "table r: c; across RR", "table r: c; RR"]:
        page.write_text(f"<!-- {wrong} --><!-- end -->")
        assert write_results.main(given) == 2
        assert f"README.md: <!-- {wrong} -->" in capsys.readouterr().err


CHART = """
a:
- {table: "r: a b", column: AP, ours: ["x, y"], title: "AP & more"}
- {table: "r: c", row: "A, k=1", kind: bars}
"""


def test_charts_are_drawn_and_what_is_not_there_is_said(tmp_path, capsys):
    results = tmp_path / "docs" / "results"
    results.mkdir(parents=True)
    (tmp_path / "README.md").write_text("")
    (results / "r.json").write_text(RESULT)
    (results / "charts.yaml").write_text(CHART)
    given = ["--root", str(tmp_path)]
    chart = tmp_path / "docs" / "_static" / "charts" / "a.svg"
    assert write_results.main([*given, "--check"]) == 1
    assert not chart.exists()
    assert write_results.main(given) == 0
    assert write_results.main([*given, "--check"]) == 0
    texts = [each.text for each in ElementTree.fromstring(chart.read_text()).iter() if each.tag.endswith("text")]
    assert {"AP & more", "x, y", "0.5000", "AP", "0.1"} <= set(texts)
    assert "z|" not in texts  # its cell is not a number
    (results / "r.json").write_text(RESULT.replace("0.5]", "0.6]"))
    assert write_results.main([*given, "--check"]) == 1
    for key, wrong in (("column", "RR"), ("ours", ["w"]), ("kind", "pie"), ("colour", "red"), ("table", "r: d")):
        panel = {"table": "r: a b", "column": "AP"} | {key: wrong}
        (results / "charts.yaml").write_text(yaml.safe_dump({"a": [panel]}))
        assert write_results.main(given) == 2
        assert "charts.yaml, a: " in capsys.readouterr().err


def test_a_line_per_row_or_per_column_and_intervals_of_cells():
    charts = script("charts")
    assert charts.number("0.45 (0.40 to 0.49)") == (0.45, 0.40, 0.49)
    assert charts.number("0.5 ± 0.1 --") == (0.5, 0.4, 0.6)
    assert charts.number("refused") is None
    header, rows = ["set", "trainer", "1", "10"], [["s", "A", "0.1", "0.3"], ["s", "B", "0.2", "-"]]
    panel = charts.Panel(table="r: t", kind="lines", log=True)
    drawn = charts.draw([(panel, header, rows)])
    assert drawn.count("<path ") == 2
    assert ">A<" in drawn
    header, rows = ["n", "kind", "AP", "P"], [["2 x 10", "5%", "1", "2"], ["2 x 100", "5%", "3", "4"]]
    across = charts.Panel(table="r: t", kind="lines", across="5%", only=["P"])
    assert charts.draw([(across, header, rows)]).count("<path ") == 1


def paper_page(root, **changes):
    """A checkout with one page of one paper, one entry of it, and the config and the result that the entry names."""
    results = root / "docs" / "results"
    results.mkdir(parents=True)
    (root / "configs").mkdir()
    (root / "configs" / "x.yaml").write_text("C: 1\n")
    (results / "r.json").write_text(RESULT.replace("rankstruct x", "rankstruct fit-exact --config x --data.path LETOR"))
    entry = {
        "number": "Table 1",
        "shows": "AP",
        "results": {"r": ["a b"]},
        "found": "it is {r: a b; x, y; AP}",
    } | changes
    (results / "papers.yaml").write_text(yaml.safe_dump({"p": [entry]}))
    (results / "papers.md").write_text(
        "<!-- papers p -->\n<!-- end -->\n\n## At, home\n\n<!-- table r: a b -->\n<!-- end -->\n"
    )
    (root / "README.md").write_text("")
    return ["--root", str(root)]


def test_papers_are_written_and_what_is_not_there_is_said(tmp_path, capsys):
    given = paper_page(tmp_path)
    assert write_results.main([*given, "--check"]) == 1
    assert write_results.main(given) == 0
    page = (tmp_path / "docs" / "results" / "papers.md").read_text()
    assert "2026-01-02, [a b](papers.md#at-home)" in page
    assert "`rankstruct fit-exact --config x --data.path LETOR`" in page
    assert "it is 0.5000" in page
    assert write_results.main([*given, "--check"]) == 0
    wrongs = [
        ({"results": {"s": ["a b"]}}, "there is no s.json"),
        ({"results": {"r": ["d"]}}, "the tables of r.json are a b, c"),
        ({"results": {"r": ["c"]}}, "no page shows the table r: c"),
        ({"found": "{r: a b; x, y; RR}"}, "the columns are loss, AP"),
        ({"command": "rankstruct guess --config x"}, "no such command or script: rankstruct guess"),
        ({"command": "rankstruct experiment --config x"}, "no such command or script: rankstruct experiment"),
        ({"command": "python scripts/nothing.py"}, "no such command or script: python"),
        ({"command": "rankstruct fit --config y"}, "no config y"),
        ({"state": "not run"}, "expected results, or a state"),
        ({"results": {}, "state": "done"}, "expected results, or a state"),
    ]
    for number, (wrong, said) in enumerate(wrongs):
        assert write_results.main([*paper_page(tmp_path / str(number), **wrong), "--check"]) == 2
        error = capsys.readouterr().err
        assert "p, Table 1" in error
        assert said in error
    assert write_results.main([*paper_page(tmp_path / "key", measured="AP"), "--check"]) == 2
    assert "unexpected keyword argument 'measured'" in capsys.readouterr().err


def test_what_makes_a_result_is_its_script_with_its_package_and_its_config():
    named = ["scripts/experiment.py", "scripts/papers", "configs/experiment-wins.yaml"]
    assert write_results.makers("python scripts/experiment.py --config experiment-wins", ROOT) == named
    assert write_results.makers("python scripts/benchmark.py oracles", ROOT) == [
        "scripts/benchmark.py",
        "scripts/benchmarks",
    ]
    assert all((ROOT / each).exists() for each in write_results.PACKAGES.values())
    with pytest.raises(ValueError, match="no config experiment-win:"):
        write_results.makers("python scripts/experiment.py --config experiment-win", ROOT)


def test_a_result_older_than_its_config_is_stale(tmp_path, capsys, monkeypatch):
    given, note = paper_page(tmp_path / "here"), tmp_path / "here" / "docs" / "results" / "stale.yaml"
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path))
    monkeypatch.delenv("GIT_DIR", raising=False)
    assert write_results.main([*given, "--stale"]) == 2
    assert "git history is missing" in capsys.readouterr().err
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "someone")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "someone@example.org")
    subprocess.run(["git", "init", "-q"], cwd=tmp_path / "here", check=True)
    for day, stale in (("2026-01-02", False), ("2026-01-03", True)):
        (tmp_path / "here" / "configs" / "x.yaml").write_text(f"C: {day}\n")
        monkeypatch.setenv("GIT_COMMITTER_DATE", f"{day}T12:00:00Z")
        subprocess.run(["git", "add", "."], cwd=tmp_path / "here", check=True)
        subprocess.run(["git", "commit", "-q", "--no-gpg-sign", "-m", day], cwd=tmp_path / "here", check=True)
        assert write_results.main([*given, "--stale"]) == 0
        assert ("stale: r.json, configs/x.yaml changed on 2026-01-03" in capsys.readouterr().out) == stale
        assert ("**stale**" in (note.parent / "papers.md").read_text()) == stale == note.is_file()
    (tmp_path / "here" / ".git").rename(tmp_path / "git")
    assert write_results.main([*given, "--check"]) == 0  # the note is read, git is not asked
    note.unlink()
    assert write_results.main([*given, "--check"]) == 1


def test_the_papers_tables_and_figures_are_all_listed():
    numbers = {paper: [each.number for each in entries] for paper, entries in write_results.exhibits(RESULTS).items()}
    assert {paper: len(set(found)) for paper, found in numbers.items()} == {
        "kdd-2008": 10,
        "sigir-2007": 13,
        "dorm-2007": 11,
        "orm": 5,
    }
    page = (RESULTS / "papers.md").read_text()
    assert [paper for paper in numbers if f"<!-- papers {paper} -->" not in page] == []
