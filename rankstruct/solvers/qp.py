"""The quadratic program of the cutting-plane methods, solved by an exact active-set method.

Planes are in groups g, each with a mass m_g > 0. Primal and dual, with C = 1/lambda:

    minimise  1/(2 C) ||w - w0||^2 + sum_g m_g max_{i in g} ( b_i + <g_i, w> )
    maximise  sum_i a_i (b_i + <g_i, w0>) - C/2 ||sum_i a_i g_i||^2     a >= 0, sum_{i in g} a_i = m_g
    w = w0 - C sum_i a_i g_i

One group is the bundle method's program over the simplex, one group per term that of the n-slack method. With v_i =
b_i + <g_i, w> the values of the planes at w, the duality gap is `sum_g m_g max_{i in g} v_i - sum_i a_i v_i`: the dual value of
any feasible `a` is a lower bound, even before convergence.

The support has one reference plane per group; D has a column g_i - g_ref for each other plane in it. The columns are kept
linearly independent, so there are at most d of them, and factorised, D = Q R, which does not square their condition number as
the matrix of inner products would. A step is one of

- the optimum over the support: R^T R p = (v_i - v_ref)/C, cut where a multiplier reaches 0, whose plane leaves the support;
- a plane enters, the one most violated by the model;
- if its column depends on the others, multipliers are exchanged with w fixed, as in the simplex method, until one is 0.

With many features, gradients are stored as coordinates in an orthonormal basis of those seen, so that the cost of a step
depends on the number of planes instead of d; the memory is one d-vector per plane.

Source of the method: Wolfe, "Finding the nearest point in a polytope", Mathematical Programming 11, 1976, with a linear term.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
from scipy.linalg.lapack import dtrtrs

__all__ = ["PlaneQP", "QPResult"]

_SUM_ERROR = 16 * np.finfo(np.float64).eps  # error of a sum, relative to the sum of absolute values
_DEPENDENT = 1e-9  # a column this close to the span of the others, relative to its length, counts as dependent
_SPANNED = 1e-14  # a gradient this close to the span of the basis, relative to its length, is in it
_ROUNDING = 1e-15  # of the dual, relative to the planes' values
_PATIENCE = 20  # steps without progress, beyond two per group
_WIDE = 128  # number of features from which gradients are stored in an orthonormal basis
_ARRAYS = ("_gradients", "_intercepts", "_groups", "_multipliers", "_used")  # of PlaneQP, one entry per plane


def certain_dual(levels: np.ndarray, gradients: np.ndarray, combined: np.ndarray, C: float) -> float:
    """`sum of levels - C/2 ||sum of gradients||^2`, minus a bound on the rounding error; terms include their multipliers.

    Levels are `[planes]`, gradients `[planes, d]`, and `combined` `[d]` is the sum of the latter, computed in any way.
    """
    error = _SUM_ERROR * float(np.linalg.norm(gradients, axis=1).sum())
    length = float(np.linalg.norm(combined))
    quadratic = C / 2 * length * length
    slack = _SUM_ERROR * (float(np.abs(levels).sum()) + quadratic) + C * error * (length + error)
    return float(levels.sum() - quadratic - slack)


@dataclass(frozen=True)
class QPResult:
    """The result of `PlaneQP.solve`.

    Attributes:
        w: `[d]`, the minimiser.
        value: the primal value at `w`.
        lower_bound: the dual value, minus a bound on the rounding error.
        steps: number of steps of the active-set method.

    >>> qp = PlaneQP(1, [1.0])
    >>> qp.add([[1.0], [-1.0]], [0.0, 2.0])  # max(w, 2 - w)
    >>> result = qp.solve(C=10.0)
    >>> bool(result.lower_bound <= result.value), result.steps > 0
    (True, True)
    """

    w: np.ndarray
    value: float
    lower_bound: float
    steps: int


def certain_levels(values: np.ndarray, gradients: np.ndarray, point: np.ndarray, origin: Any = 0.0) -> np.ndarray:
    """Values at `origin` of planes with `values` and `gradients` at `point`, minus a bound on the rounding error.

    The error of a difference of large numbers can exceed the risk; a plane that is too low is still a lower bound.

    >>> certain_levels(np.array([3.0]), np.array([[1.0, 2.0]]), np.array([1.0, 1.0])).round(9) + 0.0
    array([0.])
    """
    away = point - origin
    error = np.abs(values) + np.abs(gradients) @ (np.abs(point) + np.abs(away))
    return values - gradients @ away - _SUM_ERROR * error


class PlaneQP:
    """A quadratic program over planes, with multipliers and support kept between solves for warm starts.

    Args:
        dimension: d.
        masses: `[groups]`, the positive mass of each group.

    >>> qp = PlaneQP(1, [1.0])
    >>> qp.add([[1.0], [-1.0]], [0.0, 2.0])             # max(w, 2 - w)
    >>> result = qp.solve(C=10.0)
    >>> print(result.w, round(result.value, 6), qp.multipliers)
    [1.] 1.05 [0.45 0.55]
    """

    def __init__(self, dimension: int, masses: np.ndarray | list[float]) -> None:
        self.masses = np.asarray(masses, float)
        if dimension < 0 or self.masses.ndim != 1 or not (self.masses > 0).all():
            raise ValueError(f"a PlaneQP needs masses [groups] above 0, got dimension {dimension}, masses {masses}")
        self._dimension = dimension
        # With a basis, gradients are coordinates in its first _rank columns, followed by zeros.
        self._basis = np.zeros((dimension, 16), order="F") if dimension > _WIDE else None
        self._rank = 0
        width = dimension if self._basis is None else 16
        self._gradients = np.zeros((16, width))
        self._intercepts = np.empty(16)
        self._groups = np.empty(16, np.intp)
        self._multipliers = np.empty(16)
        # The last solve after which a plane was in the support, or the last one before it was added.
        self._used = np.empty(16, np.intp)
        self._solves = 0
        self.size = 0  # number of planes
        self._reference = np.full(len(self.masses), -1)  # the reference plane of each group
        self._columns: list[int] = []  # the other planes of the support, in the order of Q R
        self._q = np.empty((width, 0), order="F")
        self._r = np.empty((0, 0), order="F")

    @property
    def gradients(self) -> np.ndarray:
        """`[planes, d]`; read-only."""
        if self._basis is None:
            return self._gradients[: self.size]
        return self._gradients[: self.size] @ self._basis.T

    @property
    def intercepts(self) -> np.ndarray:
        """`[planes]`, each plane's value at w = 0; a read-only view."""
        return self._intercepts[: self.size]

    @property
    def groups(self) -> np.ndarray:
        """`[planes]`, the group of each plane; a read-only view."""
        return self._groups[: self.size]

    @property
    def multipliers(self) -> np.ndarray:
        """`[planes]`, >= 0, with sum m_g over each group; a read-only view."""
        return self._multipliers[: self.size]

    def values(self, w: np.ndarray) -> np.ndarray:
        """Return the planes' values `[planes]` at w `[d]`."""
        return self.intercepts + self._gradients[: self.size] @ (w if self._basis is None else self._basis.T @ w)

    def add(self, gradients: np.ndarray, intercepts: np.ndarray, groups: np.ndarray | int = 0) -> None:
        """Append planes `intercepts[i] + <gradients[i], w>`; the first plane of a group gets the group's mass.

        Gradients are `[k, d]`, intercepts `[k]`, and groups `[k]` or one group for all.
        """
        gradients = np.atleast_2d(np.asarray(gradients, float))
        first, last = self.size, self.size + len(gradients)
        if last > len(self._intercepts):
            capacity = max(last, 2 * first)
            for name in _ARRAYS:
                old = getattr(self, name)
                new = np.zeros((capacity, *old.shape[1:]), old.dtype)
                new[:first] = old[:first]
                setattr(self, name, new)
        if self._basis is None:
            self._gradients[first:last] = gradients
        else:
            self._gradients[first:last] = 0
            for i, gradient in enumerate(gradients, first):
                coordinates = self._coordinates(gradient)
                self._gradients[i, : len(coordinates)] = coordinates
        self._intercepts[first:last], self._groups[first:last] = intercepts, groups
        self._multipliers[first:last], self._used[first:last], self.size = 0, self._solves, last
        for i in range(first, last):
            group = self._groups[i]
            if self._reference[group] < 0:
                self._reference[group] = i
                self._multipliers[i] = self.masses[group]

    def add_at(
        self, point: np.ndarray, values: np.ndarray, gradients: np.ndarray, groups: np.ndarray | int, most: int
    ) -> None:
        """`add` planes with these values at a point `[d]`, minus a bound on the rounding error, then `forget(most)`."""
        self.add(gradients, certain_levels(values, gradients, point), groups)
        self.forget(most)

    def _coordinates(self, gradient: np.ndarray) -> np.ndarray:
        """Coordinates `[rank]` in the basis, which is extended if necessary."""
        assert self._basis is not None
        rank = self._rank
        coordinates, rest = _project(self._basis[:, :rank], gradient)
        length = float(np.linalg.norm(rest))
        if length <= _SPANNED * np.linalg.norm(gradient):
            return coordinates
        if rank == self._basis.shape[1]:
            more = ((0, 0), (0, min(rank, self._dimension - rank)))
            self._basis = np.asfortranarray(np.pad(self._basis, more))
            self._gradients = np.pad(self._gradients, more)
            self._q = np.asfortranarray(np.pad(self._q, more[::-1]))
        self._basis[:, rank] = rest / length
        self._rank += 1
        return np.append(coordinates, length)

    def _shrink_basis(self) -> None:
        """Recompute the basis from the remaining planes, if that is smaller."""
        if self._basis is None or self.size >= self._rank:
            return
        turn, coordinates = np.linalg.qr(self._gradients[: self.size].T)
        self._basis = np.asfortranarray(self._basis @ turn)
        self._rank = self.size
        self._gradients = np.zeros((len(self._intercepts), self.size))
        self._gradients[: self.size] = coordinates.T
        self._q = np.asfortranarray(turn.T @ self._q)

    def restore(self, multipliers: np.ndarray) -> None:
        """Start from the multipliers `[planes]` of an earlier solve with the same planes, in any program.

        If their support is not valid here, each group starts from its plane with the largest multiplier.
        """
        alpha = np.maximum(multipliers, 0)
        order = np.argsort(-alpha, kind="stable")
        groups, first = np.unique(self.groups[order], return_index=True)
        self._reference[groups] = order[first]
        inner = alpha > 0
        inner[self._reference[groups]] = False
        self._columns = np.flatnonzero(inner).tolist()
        size = 2 * np.linalg.norm(self._gradients[: self.size], axis=1).max(initial=0)
        if len(self._columns) <= self._gradients.shape[1]:
            self._factorise()
            if np.abs(np.diag(self._r)).min(initial=np.inf) > _DEPENDENT * size:
                total = self._by_group(self.groups, alpha)
                if (total[groups] > 0).all():
                    self.multipliers[:] = alpha * (self.masses / np.where(total > 0, total, 1))[self.groups]
                    return
        self._columns = []
        self._factorise()
        self.multipliers[:] = 0
        self.multipliers[self._reference[groups]] = self.masses[groups]

    def keep(self, wanted: np.ndarray) -> None:
        """Remove the planes outside the bool mask `wanted` `[planes]`; planes of the support always stay."""
        wanted = wanted.copy()
        wanted[self._columns] = True
        wanted[self._reference[self._reference >= 0]] = True
        new = np.cumsum(wanted) - 1
        count = int(wanted.sum())
        for values in (getattr(self, name) for name in _ARRAYS):
            values[:count] = values[: self.size][wanted]
        self.size = count
        self._columns = [int(new[i]) for i in self._columns]
        known = self._reference >= 0
        self._reference[known] = new[self._reference[known]]
        self._shrink_basis()

    def forget(self, limit: int) -> None:
        """Above `limit` planes and twice the support, keep the support and the `limit // 2` most recently used planes."""
        limit = max(limit, 2 * (len(self._columns) + len(self.masses)))
        if self.size > limit:
            wanted = np.zeros(self.size, bool)
            wanted[np.argsort(self._used[: self.size], kind="stable")[self.size - limit // 2 :]] = True
            self.keep(wanted)

    def solve(
        self, C: float, w0: np.ndarray | None = None, *, tolerance: float = 1e-10, max_steps: int | None = None
    ) -> QPResult:
        """Minimise `1/(2 C) ||w - w0||^2 + sum_g m_g max_{i in g} plane_i(w)`.

        Args:
            C: positive.
            w0: `[d]`; 0 if None.
            tolerance: of the duality gap, relative to the size of the planes' values at w0 and at w.
            max_steps: of the active-set method; 50 (planes + groups) if None. The point reached by then is returned.

        Raises:
            ValueError: a group has no plane.
        """
        if (self._reference < 0).any():
            raise ValueError(f"group {int(np.argmin(self._reference))} has no plane; add one per group before solving")
        gradients, alpha = self._gradients[: self.size], self.multipliers
        shift = self.values(w0) if w0 is not None else self.intercepts
        limit = 50 * (self.size + len(self.masses)) if max_steps is None else max_steps
        steps, stalled = 0, 0
        best_gap, best_dual = np.inf, -np.inf
        while True:
            steps += self._optimise_support(C, shift, limit - steps)
            move = self._move(C, shift)
            values = shift + gradients @ move
            mean = self._mean(values)
            missed = values - mean[self.groups]
            worst = np.zeros(len(self.masses))
            np.maximum.at(worst, self.groups, missed)
            gap = float(self.masses @ worst)
            size = float(np.abs(shift[self._support()]).max() + np.abs(mean).max()) * float(self.masses.sum())
            dual = float(move @ move) / (2 * C) + float(self.masses @ mean)
            # Every step raises the dual, up to rounding at the end; exchanges between degenerate supports do not.
            stalled = 0 if gap < best_gap or dual > best_dual + _ROUNDING * size else stalled + 1
            best_gap, best_dual = min(gap, best_gap), max(dual, best_dual)
            if gap <= tolerance * size or steps >= limit or stalled > 2 * len(self.masses) + _PATIENCE:
                break
            entering = int(np.argmax(missed * self.masses[self.groups]))
            steps += 1
            if not self._enter(entering, values) or not missed[entering] > 0:
                break
        # The multipliers of a group add up to its mass up to rounding, which would accumulate over solves.
        alpha *= (self.masses / self._by_group(self.groups, alpha))[self.groups]
        self._solves += 1
        self._used[self._support()] = self._solves
        highest = np.full(len(self.masses), -np.inf)
        np.maximum.at(highest, self.groups, shift + gradients @ move)
        value = float(move @ move) / (2 * C) + float(self.masses @ highest)
        lower_bound = certain_dual(alpha * shift, alpha[:, None] * gradients, self._combined(), C)
        if self._basis is not None:
            move = self._basis @ move
        return QPResult(move if w0 is None else w0 + move, value, lower_bound, steps)

    def _support(self) -> np.ndarray:
        return np.concatenate([self._reference, np.array(self._columns, np.intp)])

    def _combined(self) -> np.ndarray:
        support = self._support()
        return self._multipliers[support] @ self._gradients[support]

    def _move(self, C: float, shift: np.ndarray) -> np.ndarray:
        """The move w - w0 `[d]` to the optimum over the support.

        Not as -C sum_i a_i g_i, whose terms cancel: its error would be C |g| eps. In the span of D it follows from the equality
        of the planes of the support; orthogonal to it, all planes of a group have the same gradient.
        """
        columns = np.array(self._columns, np.intp)
        references = self._reference[self._groups[columns]]
        within = self._q @ dtrtrs(self._r, shift[references] - shift[columns], trans=1)[0] if len(columns) else 0.0
        if len(columns) >= self._gradients.shape[1]:
            return within + np.zeros(self._gradients.shape[1])
        return within - C * _project(self._q, self.masses @ self._gradients[self._reference])[1]

    def _mean(self, values: np.ndarray) -> np.ndarray:
        """The mean of the planes' values under the multipliers `[groups]`."""
        support = self._support()
        return self._by_group(self._groups[support], self._multipliers[support] * values[support]) / self.masses

    def _by_group(self, groups: np.ndarray, values: np.ndarray) -> np.ndarray:
        """The sum per group, `[groups]`, of values `[k]` of planes in `groups` `[k]`."""
        return np.bincount(groups, values, len(self.masses))

    def _optimise_support(self, C: float, shift: np.ndarray, limit: int) -> int:
        """Move to the optimum over the support, dropping planes whose multiplier reaches 0; returns the number of steps."""
        steps = 0
        while self._columns and steps < limit:
            steps += 1
            columns = np.array(self._columns)
            groups = self._groups[columns]
            references = self._reference[groups]
            combined = self._combined()
            values = shift[columns] - C * (self._gradients[columns] @ combined)
            of_references = shift[references] - C * (self._gradients[references] @ combined)
            # Dual ascent: the multiplier of a column grows where its plane lies above the reference.
            step = dtrtrs(self._r, dtrtrs(self._r, (values - of_references) / C, trans=1)[0])[0]
            moved, change = self._support(), np.concatenate([-self._by_group(groups, step), step])
            alpha = self._multipliers[moved]
            if not np.isfinite(change).all():
                self._factorise()
                continue
            with np.errstate(divide="ignore", invalid="ignore"):
                reach = np.where(change < 0, alpha / -change, np.inf)
            blocking = int(np.argmin(reach))
            if reach[blocking] >= 1:
                self._multipliers[moved] = alpha + change
                break
            self._multipliers[moved] = np.maximum(alpha + reach[blocking] * change, 0)
            self._leave(int(moved[blocking]))
        return steps

    def _enter(self, plane: int, values: np.ndarray) -> bool:
        """Add a plane to the support; returns False if nothing can be gained."""
        group = self._groups[plane]
        if plane == self._reference[group] or plane in self._columns:
            return False
        coefficients = self._append(plane)
        if coefficients is None:
            return True
        # The column is D u: exchanging u of the others (and their references) for a unit of this plane leaves w unchanged.
        columns = np.array(self._columns, np.intp)
        exchange = -dtrtrs(self._r, coefficients)[0] if len(columns) else np.empty(0)
        against = -self._by_group(self._groups[columns], exchange)
        against[group] -= 1
        moved, change = self._support(), np.concatenate([against, exchange])
        if not change @ values[moved] + values[plane] > 0:
            return False
        alpha = self._multipliers[moved]
        with np.errstate(divide="ignore", invalid="ignore"):
            reach = np.where(change < 0, alpha / -change, np.inf)
        blocking = int(np.argmin(reach))
        self._multipliers[moved] = np.maximum(alpha + reach[blocking] * change, 0)
        self._multipliers[plane] = reach[blocking]
        leaving = int(moved[blocking])
        if leaving == self._reference[group]:
            self._multipliers[leaving] = 0
            others = [i for i in self._columns if self._groups[i] == group]
            self._reference[group] = plane
            if others:
                self._factorise()
            return True
        self._leave(leaving)
        if self._append(plane) is not None:
            self._columns.append(plane)
            self._factorise()
        return True

    def _append(self, plane: int) -> np.ndarray | None:
        """Append a plane's column to Q R; if it depends on the others, return its coefficients in Q instead."""
        gradient, reference = self._gradients[plane], self._gradients[self._reference[self._groups[plane]]]
        coefficients, rest = _project(self._q, gradient - reference)
        length = float(np.linalg.norm(rest))
        if not length > _DEPENDENT * float(np.linalg.norm(gradient) + np.linalg.norm(reference)):
            return coefficients
        m = len(self._columns)
        r, q = np.zeros((m + 1, m + 1), order="F"), np.empty((self._q.shape[0], m + 1), order="F")
        r[:m, :m], r[:m, m], r[m, m] = self._r, coefficients, length
        q[:, :m], q[:, m] = self._q, rest / length
        self._q, self._r = q, r
        self._columns.append(plane)
        return None

    def _leave(self, plane: int) -> None:
        self._multipliers[plane] = 0
        group = self._groups[plane]
        if plane == self._reference[group]:
            others = [i for i in self._columns if self._groups[i] == group]
            # A reference leaves only if another plane of its group replaces it.
            self._reference[group] = max(others, key=lambda i: self._multipliers[i])
            self._columns.remove(self._reference[group])
            self._factorise()
            return
        at = self._columns.index(plane)
        del self._columns[at]
        if at == len(self._columns):
            self._q, self._r = self._q[:, :at], self._r[:at, :at]
        else:
            q, r = scipy.linalg.qr_delete(self._q, self._r, at, 1, "col", check_finite=False)
            self._q, self._r = q[:, : len(self._columns)], r[: len(self._columns)]  # a square Q stays square

    def _factorise(self) -> None:
        """Recompute Q R; a column that depends on others is dropped, with its mass exchanged."""
        columns = np.array(self._columns, np.intp)
        d = self._gradients[columns] - self._gradients[self._reference[self._groups[columns]]]
        self._q, self._r = np.linalg.qr(d.T) if len(columns) else (np.empty((d.shape[1], 0)), np.empty((0, 0)))


def _project(q: np.ndarray, column: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Coefficients in the basis q and the remainder, by Gram-Schmidt with reorthogonalisation."""
    coefficients = column @ q
    rest = column - q @ coefficients
    again = rest @ q
    return coefficients + again, rest - q @ again
