"""Times of interactions, numbers or dates, as numbers of seconds."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import numpy as np

from rankstruct.arrays import as_array, as_numbers
from rankstruct.columns import as_arrow, is_text, numbers, plain
from rankstruct.data.errors import DataError

__all__: list[str] = []


def seconds(name: str, values: Any) -> np.ndarray:
    """Times in memory, numbers or dates as in files, NaN if missing.

    Integers are kept exactly, other numbers are float64. Dates are in seconds from 1970, integers if all are whole; or datetime64
    if float64 would merge different ones, such as those of nanoseconds.

    Raises:
        DataError: other values, or years whose seconds are no 64-bit integers.
    """
    try:
        found = as_array(name, values)
        if found.dtype.kind == "M":
            return _seconds_of_dates(name, found)
        if found.dtype.kind not in "OUS":
            return _of_numbers(name, found)
    except (TypeError, ValueError) as error:
        raise DataError(str(error)) from None
    with suppress(TypeError, ValueError):
        return _of_numbers(name, found)
    import pyarrow as pa

    try:
        column = as_times(as_arrow(name, found.astype(object)))
        if is_date(column.type):
            return _seconds_of_dates(name, column.to_numpy(zero_copy_only=False))
        return numbers("", name, column)
    except (pa.ArrowException, TypeError, ValueError):
        raise DataError(f"{name} must be numbers or dates, such as '2024-01-31', got {str(values)[:60]}") from None


def are_epochs(values: np.ndarray) -> np.ndarray:
    """Which values look like seconds or milliseconds from 1970, of the years 1990 to 2100; none of those that are no numbers.

    >>> are_epochs(np.array([978_300_760, 978_300_760_000, 42]))
    array([ True,  True, False])
    """
    if values.dtype.kind not in "iuf":
        return np.zeros(values.shape, bool)
    first, last = 631_152_000, 4_102_444_800
    in_seconds, in_milliseconds = ((values >= first * unit) & (values < last * unit) for unit in (1, 1000))
    return in_seconds | in_milliseconds


def _of_numbers(name: str, values: np.ndarray) -> np.ndarray:
    found = as_numbers(name, values, exact=False)
    return found if found.dtype.kind in "iu" else found.astype(np.float64)


def _seconds_of_dates(name: str, dates: np.ndarray) -> np.ndarray:
    """Dates as `seconds` has them; datetime64 of any unit."""
    missing = np.isnat(dates)
    known = np.where(missing, np.zeros(1, dates.dtype), dates)
    whole = known.astype("datetime64[s]")
    beyond = np.abs(known.astype("datetime64[Y]").astype(np.float64)) > 2.9e11  # years, of which seconds would wrap
    if beyond.any():
        raise DataError(
            f"{name} must be dates whose seconds from 1970 are 64-bit integers, got {known[beyond][0]}, as of entry "
            f"{int(beyond.argmax())}"
        )
    found = whole.astype(np.int64)
    fraction = (known - whole) / np.timedelta64(1, "s") if (whole != known).any() else None
    if fraction is not None:
        exact, found = dates, found + fraction
        if len(np.unique(found)) < len(np.unique(known)):
            return exact
    return np.where(missing, np.nan, found) if missing.any() else found


def as_times(column: Any) -> Any:
    """An Arrow array of dates, without the time zone, or of numbers; text is parsed if all of it is one of the two."""
    import pyarrow as pa

    column = plain(column)
    dates = [pa.timestamp(unit, zone) for zone in (None, "UTC") for unit in ("us", "ns")]
    for kind in (*dates, pa.int64(), pa.float64()):
        if is_text(column.type):
            with suppress(pa.ArrowInvalid):
                column = column.cast(kind)
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.timestamp(column.type.unit))
    return column


def is_date(kind: Any) -> bool:
    return str(kind).startswith(("timestamp", "date"))
