"""Fixtures shared by all tests."""

import gc
import io
import os
import signal
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zlib import crc32

import pytest
from packaging.requirements import Requirement

# Tests side by side (pytest -n): each has one thread, or they take each other's. It counts when torch is loaded.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
# Threads that wait for others leave their core to the other tests.
os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch

# What a shell starts in the background is deaf to Ctrl-C, and so would be the processes that tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


TEXT = ("transformers", "sentence_transformers", "bm25s", "Stemmer", "accelerate", "datasets")
ONNX = ("onnx", "onnxruntime", "onnxscript")
#: Files and folders whose every test needs modules that the `test` extra does not bring; single tests are marked.
NEEDS = {
    "tests/text": TEXT,
    "rankstruct/text": TEXT,
    "rankstruct/kernels/gpu": ("triton",),
    "rankstruct/commands/on_ray.py": ("ray",),
    "rankstruct/recommenders/shards.py": ("safetensors",),
    "docs/guides/text.md": TEXT,
    "tests/commands/test_tune.py": ("optuna",),
    "tests/scripts/test_serving_app.py": ("fastapi", "httpx"),
    "docs/guides/serving.md": (*ONNX, "safetensors"),
    "docs/guides/tables.md": ONNX,
}


def is_installed(module: Requirement) -> bool:
    """Whether a module is there, such as `polars`, in a version such as `pytorch_lightning>=2.6` if one is named."""
    return find_spec(module.name) is not None and (not module.specifier or version(module.name) in module.specifier)


class Needs:
    """Marks what needs modules of other extras, so that `-m needs` selects it, and skips it where they are missing."""

    @staticmethod
    @cache
    def of(path: Path, root: Path) -> list[str]:
        """The modules that a folder or a file needs."""
        path = path.relative_to(root)
        return [name for place, names in NEEDS.items() if path.is_relative_to(place) for name in names]

    @staticmethod
    def missing(names: list[str]) -> str:
        """Why a node is skipped; empty where nothing is missing."""
        absent = [name for name in names if not is_installed(Requirement(name))]
        return f"needs {', '.join(absent)}: pip install -e '.[dev]'" if absent else ""

    @pytest.hookimpl(tryfirst=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> pytest.CollectReport | None:
        path, root = collector.path, collector.config.rootpath
        if path.is_relative_to(root) and (why := self.missing(self.of(path, root))):
            return pytest.CollectReport(collector.nodeid, "skipped", (str(path), 0, why), [])
        return None

    def pytest_itemcollected(self, item: pytest.Item) -> None:
        if names := self.of(item.path, item.config.rootpath):
            item.add_marker(pytest.mark.needs(*names))

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        names = [name for marker in item.iter_markers("needs") for name in marker.args]
        if why := self.missing(names):
            pytest.skip(why)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(
        Needs()
    )  # hooks of this file are not called for the examples of the package and the pages


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep those cases of a `sampled(n)` whose places, added over the arguments, have one remainder by n; the rest is `soak`.

    So each value of an argument is there if another has n. The remainder is the test's own: what one leaves out, others have.
    """
    tests: dict[tuple[Path, str, int], list[pytest.Function]] = {}
    for item in items:
        mark = item.get_closest_marker("sampled")
        if mark and isinstance(item, pytest.Function) and not item.get_closest_marker("soak"):
            tests.setdefault((item.path, item.originalname, *mark.args), []).append(item)
    for (_, name, number), cases in tests.items():
        places: dict[str, dict[int, int]] = defaultdict(
            dict
        )  # by argument and value, in the order of their first cases
        remainders = [sum(_places(case, places)) % number for case in cases]
        there = sorted(set(remainders))
        kept = there[crc32(name.encode()) % len(there)]
        for case, remainder in zip(cases, remainders, strict=True):
            if remainder != kept:
                case.add_marker(pytest.mark.soak)


def _places(case: pytest.Function, places: dict[str, dict[int, int]]) -> Iterator[int]:
    """The place of the value of each argument of a case; of arguments that are given together, of the first."""
    names = [mark.args[0] for mark in case.iter_markers("parametrize")]
    together = [each if isinstance(each, (list, tuple)) else each.replace(" ", "").split(",") for each in names]
    left_out = {name for each in together for name in each[1:]}
    for name, value in case.callspec.params.items():
        if name not in left_out:
            yield places[name].setdefault(id(value), len(places[name]))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Collect without the garbage collector, which would walk thousands of tests again and again: a third of the time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()  # what was collected stays until the end, so that no later pass walks it either
        gc.enable()


SEED = torch.manual_seed if torch.accelerator.is_available() else torch.default_generator.manual_seed


@pytest.fixture(autouse=True)
def same_numbers_in_any_order() -> None:
    """Seed every test alike, so that none depends on which others ran before it in the same process.

    That of the CPU alone where there is no other device: `torch.manual_seed` looks for every kind of device each time.
    """
    SEED(0)


@pytest.fixture(scope="session")
def data_root() -> Path:
    """The folder of real data; tests that need it are skipped where it is absent."""
    root = Path(os.environ.get("RANKSTRUCT_DATA", Path(__file__).parents[2] / "shared" / "data"))
    if not root.is_dir():
        pytest.skip(f"real data not found at {root}; set RANKSTRUCT_DATA to its folder")
    return root


@contextmanager
def _without_pictures() -> Iterator[None]:
    def written(figure: Any, out: Any, **options: Any) -> None:
        out.write("<svg />" if isinstance(out, io.TextIOBase) else b"<svg />")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("torch.utils.tensorboard.SummaryWriter.add_figure", lambda *given, **options: None)
        patch.setattr("matplotlib.figure.Figure.savefig", written)
        yield


@pytest.fixture
def no_pictures() -> Iterator[None]:
    """What is drawn is not rendered, which takes long; for tests that do not look at it."""
    with _without_pictures():
        yield


@pytest.fixture(scope="module")
def no_pictures_here() -> Iterator[None]:
    """`no_pictures` for a whole module and its fixtures."""
    with _without_pictures():
        yield
