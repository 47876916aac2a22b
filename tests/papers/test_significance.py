"""Corrections for multiple tests reject what their procedures reject."""

import numpy as np
import pytest

from papers.significance import holm, stars


def test_holm_rejects_what_the_step_down_procedure_rejects():
    rng = np.random.default_rng(0)
    for _ in range(50):
        p = rng.uniform(size=8) ** 3
        corrected = holm(p)
        for level in (0.01, 0.05, 0.2):
            rejected, order = np.zeros(8, bool), np.argsort(p)
            for step, at in enumerate(order):
                if p[at] > level / (8 - step):
                    break
                rejected[at] = True
            assert ((corrected <= level) == rejected).all()
    assert holm([[0.01, 0.5], [0.04, 0.03]]) == pytest.approx(np.array([[0.04, 0.5], [0.09, 0.09]]))
    assert holm([]).shape == (0,)


@pytest.mark.parametrize("wrong", [1.5, np.nan])
def test_what_is_no_p_value_is_refused(wrong):
    with pytest.raises(ValueError, match=f"between 0 and 1, got {wrong}; leave out what was not compared"):
        holm([0.01, wrong])


def test_stars():
    assert [stars(p) for p in (0.0099, 0.01, 0.049, 0.05)] == ["**", "*", "*", ""]
