"""How the documentation is built: `sphinx-build -W --keep-going -b html docs docs/_build/html`, offline."""

import json
import re
import shutil
import sys
from base64 import b64decode
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE / "_extensions"), str(HERE.parent)]
sys.path.append(str(HERE.parent / "scripts"))

from rankstruct._version import __version__  # noqa: E402

project = "rankstruct"
author = "the authors of rankstruct"
version = release = __version__
html_title = f"rankstruct {version}"

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "reference",
]
exclude_patterns = ["_build", "_extensions"]
nitpicky = True
nitpick_ignore = [
    ("py:class", name)
    for name in (
        *(
            "rankstruct.measures.base.Kind",
            "rankstruct.feature_maps.Kind",
            "rankstruct.data.dataset.Reader",
        ),  # type variables
        *(
            "rankstruct.kernels.core.Loop",
            "core.Loop",
            "rankstruct.solvers.shared.Peers",
            "rankstruct.messages.Way",
            "rankstruct.table_scorer.ScoresTables",
            "rankstruct.data.runs.JoinedRun",
            "rankstruct.lists.Columns",
        ),  # private
        *("TypeAliasForwardRef", "pytorch_lightning.callbacks.weight_averaging.WeightAveraging"),
        "numpy.random.mtrand.RandomState",  # in NumPy's documentation without "mtrand"
    )
]
intersphinx_mapping = {  # the names that our signatures use, by hand: nothing is fetched
    name: (url, f"inventories/{name}.inv")
    for name, url in {
        "python": "https://docs.python.org/3",
        "numpy": "https://numpy.org/doc/stable",
        "scipy": "https://docs.scipy.org/doc/scipy",
        "torch": "https://docs.pytorch.org/docs/stable",
        "scikit-learn": "https://scikit-learn.org/stable/modules/generated",
        "lightning": "https://lightning.ai/docs/pytorch/2.5.0",
        "torchmetrics": "https://lightning.ai/docs/torchmetrics/stable",
    }.items()
}

smartquotes = False  # -- is a mark in tables
html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["rankstruct.css"]
html_copy_source = False
html_show_copyright = False
html_theme_options = {"navigation_with_keys": True}
pygments_style = "default"

myst_heading_anchors = 3
myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
html_math_renderer = "mathml"  # by docutils: MathJax would be loaded from the network
nb_execution_mode = "off"  # the notebooks hold their outputs, and the tests run them
nb_ipywidgets_js = {}  # nothing is loaded from elsewhere
nb_merge_streams = True

autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_type_aliases = {"ArrayLike": "numpy.typing.ArrayLike"}
autodoc_member_order = "bysource"
autosummary_generate = False
python_maximum_signature_line_length = 88
napoleon_use_param = False
napoleon_use_ivar = True
napoleon_use_rtype = False
copybutton_prompt_text = r">>> |\.\.\. "
copybutton_prompt_is_regexp = True


def _as_page(app, page, text):
    """A page of the checkout as one of the site, with links to the copied notebooks and no blank line at a snippet's end."""
    there = re.sub(r"\]\(((\.\./)*)\.\./notebooks/", r"](\1notebooks/", text.pop())
    text.append(there.replace("\n\n```\n", "\n```\n"))  # doctest needs an empty line after output


def _figures(notebook):
    """The figures of a notebook, as files for the gallery."""
    outputs = (output for cell in json.loads(notebook.read_text())["cells"] for output in cell.get("outputs", []))
    figures = [output["data"]["image/png"] for output in outputs if "image/png" in output.get("data", {})]
    for number, figure in enumerate(figures, 1):
        (HERE / "notebooks" / f"{notebook.stem}-{number}.png").write_bytes(b64decode(figure))


def setup(app):
    """Copy the notebooks among the pages, and their figures."""
    app.connect("source-read", _as_page)
    pages = HERE / "notebooks"
    for notebook in (HERE.parent / "notebooks").glob("*.ipynb"):
        page = pages / notebook.name
        if not page.is_file() or page.read_bytes() != notebook.read_bytes():
            pages.mkdir(exist_ok=True)
            shutil.copy2(notebook, page)
        _figures(notebook)
