"""Bars in a terminal, plain lines in a log."""

import gc
import io
import re
from contextlib import suppress

import numpy as np
import pytest

import rankstruct as rs
from rankstruct.progress import Progress, announce, listening, shows_bars, stage


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.fixture
def clock(monkeypatch):
    """Seconds that pass when the test says so."""
    now = [1000.0]
    monkeypatch.setattr("tqdm.std.time", lambda: now[0])
    return now


def shown(file, clock, monkeypatch, steps=100, **options):
    monkeypatch.setattr("sys.stderr", file)
    with Progress(total=steps, desc="cells", **options) as bar:
        for number in range(steps):
            clock[0] += 1.0
            bar.set_postfix_str(f"best {number}")
            bar.update()
    return file.getvalue()


def test_a_log_has_a_line_every_ten_seconds_and_one_at_the_end(clock, monkeypatch):
    text = shown(io.StringIO(), clock, monkeypatch)
    assert "\r" not in text
    lines = text.splitlines()
    assert 9 <= len(lines) <= 12
    assert lines[0] == "cells: 9 of 100, 00:10, about 01:41 left, best 9"
    assert lines[-1] == "cells: 100 of 100, 01:40, best 99"


def test_a_terminal_has_a_bar(clock, monkeypatch):
    assert "\rcells: 100%|" in shown(Screen(), clock, monkeypatch)


def test_what_is_short_and_not_to_stay_leaves_no_line(clock, monkeypatch):
    assert shown(io.StringIO(), clock, monkeypatch, steps=5, leave=False) == ""
    assert shown(io.StringIO(), clock, monkeypatch, steps=5) == "cells: 5 of 5, 00:05, best 4\n"
    assert shown(io.StringIO(), clock, monkeypatch, disable=True) == ""
    assert (
        shown(io.StringIO(), clock, monkeypatch, steps=30, leave=False).splitlines()[-1].startswith("cells: 30 of 30")
    )


def test_sizes_without_a_total_and_iteration(clock, monkeypatch):
    file = io.StringIO()
    monkeypatch.setattr("sys.stderr", file)
    with Progress(unit=" rows", unit_scale=True) as bar:
        bar.update(12_345)
    assert file.getvalue() == "12.3k rows, 00:00\n"
    assert list(Progress(range(3), leave=False)) == [0, 1, 2]


def test_one_file_that_is_no_terminal_is_enough_for_lines():
    assert shows_bars(Screen(), Screen())
    assert not shows_bars(Screen(), io.StringIO())


@pytest.mark.filterwarnings("error::pytest.PytestUnraisableExceptionWarning")
def test_an_interrupt_while_it_is_made_is_all_that_is_said(monkeypatch):
    def interrupted(*given):
        raise KeyboardInterrupt

    monkeypatch.setattr("tqdm.std.tqdm._get_free_pos", interrupted)
    with pytest.raises(KeyboardInterrupt):
        Progress(range(3))
    gc.collect()
    Progress.__new__(Progress).close()  # before its first line


def test_a_line_begins_with_the_stages_in_which_its_work_began(clock, monkeypatch):
    with stage("MLP"), stage("fold 2 of 3"):
        text = shown(io.StringIO(), clock, monkeypatch, steps=5)
        file = io.StringIO()
        monkeypatch.setattr("sys.stderr", file)
        list(Progress(range(3)))
    assert text == "MLP, fold 2 of 3, cells: 5 of 5, 00:05, best 4\n"
    assert file.getvalue() == "MLP, fold 2 of 3: 3 of 3, 00:00\n"
    assert shown(io.StringIO(), clock, monkeypatch, steps=5).startswith("cells: ")


def test_what_is_announced_reaches_the_innermost_listener_until_it_ends():
    outer, inner = [], []
    announce("nobody hears")
    with listening(outer.append):
        with suppress(KeyError), stage("A"), listening(inner.append), stage("B"):
            announce("1")
            raise KeyError
        announce("2")
    announce("nobody hears")
    assert (outer, inner) == (["2"], ["A, B, 1"])


def test_rankers_announce_model_fold_and_epoch():
    X, qid = np.random.default_rng(0).normal(size=(60, 2)), np.repeat(np.arange(6), 10)
    y, said = (X[:, 0] > 0).astype(int), []
    members = [rs.MLPRanker(max_epochs=2, device="cpu"), rs.LinearRanker("AP")]
    with listening(said.append), stage("mine"):
        rs.EnsembleRanker(members, folds=2).fit(X, y, qid)
    for text in ("mine, fold 1 of 2, epoch 1", "mine, fold 2 of 2, epoch 2"):
        assert text in said
    assert any(re.fullmatch(r"mine, fold 2 of 2, C = 10, iteration 1", text) for text in said)
