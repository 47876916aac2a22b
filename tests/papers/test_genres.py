"""Genres of films."""

import numpy as np
import pytest

from papers.genres import read_genres
from rankstruct.data import DataError


def test_genres_are_those_of_the_items_asked_for(tmp_path):
    path = tmp_path / "u.item"
    flags = {"1": [3, 4], "2": [0]}
    lines = [
        "|".join([item, "A Film", "", "", "", *("1" if i in on else "0" for i in range(19))])
        for item, on in flags.items()
    ]
    path.write_bytes("\n".join(lines).replace("A Film", "Caf\xe9").encode("latin-1"))
    with pytest.warns(UserWarning, match=r"1 of the 3 items .* not in .*u\.item, such as '9': they have no genres"):
        found = read_genres(path, ["2", "9", "1"])
    assert found.shape == (3, 19)
    assert [np.flatnonzero(row).tolist() for row in found] == [[0], [], [3, 4]]
    assert read_genres(path, []).shape == (0, 19)
    path.write_text(lines[0] + "\n" + lines[1][:-2])
    with pytest.raises(DataError, match="line 2: expected 24 fields, the last 19 of them 0 or 1"):
        read_genres(path, ["1"])
    path.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"none of the 2 items is in .*u\.item, such as 'a'"):
        read_genres(path, ["a", "b"])
