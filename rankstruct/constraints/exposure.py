"""Mixtures of rankings whose exposures meet a target: equal, by merit, or any; of documents or of groups."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, overload

import numpy as np
import torch
from torch import Tensor

from rankstruct.arrays import as_numbers
from rankstruct.checks import check_integers
from rankstruct.constraints.documents import Layout
from rankstruct.constraints.expohedron import best_of_groups, decompose, mixed, pareto_path, path_of_groups, project
from rankstruct.constraints.rules import Groups, group_ids
from rankstruct.lists import as_real
from rankstruct.measures import nDCG
from rankstruct.messages import did_you_mean

__all__ = ["ExposureFront", "ExposurePolicies", "ExposurePolicy", "exposure_front", "fair_exposure", "fair_exposures"]

Target = Literal["merit", "equal"]
_ROUNDING = 1e-12  # of exposures, relative to the first discount


@dataclass(frozen=True)
class ExposurePolicy:
    """A list's rankings and how often to show each.

    Attributes:
        exposure: `[documents]` float64, the mean discount of each document's position.
        target: `[documents]` float64, what it should be; with groups, only the sum of each group.
        rankings: `[m, positions]` int64, the document at each position; with k, the first k.
        weights: `[m]` float64, their probabilities.
        utility: the sum of merit times exposure: the expected discounted merit.
        unfairness: the squared distance of the exposure from the nearest that meets the target. Above 0 in the fairest mixture
            if no mixture meets it, as when a document deserves more than the first position has.

    >>> policy = fair_exposure([0.3, 0.3], target="equal")
    >>> policy.rankings, policy.weights
    (tensor([[0, 1],
            [1, 0]]), tensor([0.5000, 0.5000], dtype=torch.float64))
    >>> policy.sample(3, seed=0)
    tensor([[1, 0],
            [0, 1],
            [0, 1]])
    """

    exposure: Tensor
    target: Tensor
    rankings: Tensor
    weights: Tensor
    utility: float
    unfairness: float

    def sample(self, size: int | None = None, seed: int | np.random.Generator | None = None) -> Tensor:
        """Draw rankings to show, `[size, positions]`, or one `[positions]` if size is None.

        `seed` is that of `numpy.random.default_rng`; give a generator to draw on.
        """
        check_integers(0, optional=True, size=size)
        drawn = np.random.default_rng(seed).choice(len(self.weights), size, p=self.weights.numpy())
        return self.rankings[torch.as_tensor(drawn)]

    def __repr__(self) -> str:
        return (
            f"ExposurePolicy({len(self.rankings)} rankings of {len(self.exposure)} documents, utility={self.utility:.6g}, "
            f"unfairness={self.unfairness:.3g})"
        )


class ExposurePolicies(Sequence[ExposurePolicy]):
    """The policies of several lists, in their order; what they have in common is in the layout in which the merits were given.

    Attributes:
        exposure: `[..., list_size]` or `[documents]` float64, 0 in the padding.
        utility: `[lists]` float64.
        unfairness: `[lists]` float64.

    >>> policies = fair_exposures([0.9, 0.2, 0.5, 0.5, 0.5], group=[2, 3])
    >>> policies, policies[1]
    (ExposurePolicies(2 lists), ExposurePolicy(3 rankings of 3 documents, utility=1.06546, unfairness=0))
    >>> policies.exposure, policies.unfairness
    (tensor([1.0000, 0.6309, 0.7103, 0.7103, 0.7103], dtype=torch.float64), tensor([0.2236, 0.0000], dtype=torch.float64))
    """

    def __init__(self, policies: list[ExposurePolicy], layout: Any) -> None:
        self._policies, self._layout = policies, layout  # a `Layout`
        self.exposure = layout.returned(np.concatenate([np.zeros(0), *(each.exposure.numpy() for each in policies)]))
        self.utility = torch.tensor([each.utility for each in policies], dtype=torch.float64)
        self.unfairness = torch.tensor([each.unfairness for each in policies], dtype=torch.float64)

    def sample(self, seed: int | np.random.Generator | None = None) -> Tensor:
        """Draw a ranking of each list: ranks as of `rank_under`, int64 in the layout of the merits, 0 for documents not shown."""
        generator, ranks = np.random.default_rng(seed), np.zeros(len(self._layout.scores), np.int64)
        for policy, begin in zip(self._policies, self._layout.offsets, strict=False):
            drawn = policy.sample(seed=generator).numpy()
            ranks[begin + drawn] = np.arange(1, len(drawn) + 1)
        found: Tensor = self._layout.returned(ranks)
        return found

    @overload
    def __getitem__(self, index: int) -> ExposurePolicy: ...

    @overload
    def __getitem__(self, index: slice) -> list[ExposurePolicy]: ...

    def __getitem__(self, index: int | slice) -> ExposurePolicy | list[ExposurePolicy]:
        return self._policies[index]

    def __len__(self) -> int:
        return len(self._policies)

    def __repr__(self) -> str:
        return f"ExposurePolicies({len(self)} lists)"


@dataclass(frozen=True)
class ExposureFront:
    """The best mixtures of a list: no other has more utility at the same unfairness. From the fairest to the most useful.

    Between two of its points the exposures and the utility change linearly, and the unfairness as a square.

    Attributes:
        exposure: `[points, documents]` float64, where the front bends, first and last included.
        utility: `[points]` float64, increasing.
        unfairness: `[points]` float64, increasing; as in `ExposurePolicy`.
        target: `[documents]` float64.

    >>> front = exposure_front([0.6, 0.5])
    >>> front
    ExposureFront(2 points, utility 0.904425 to 0.915465, unfairness 0 to 0.0243772)
    >>> front.policy(unfairness=0.01).exposure, front.policy(utility=0.91).unfairness
    (tensor([0.9603, 0.6706], dtype=torch.float64), 0.0062...)
    """

    exposure: Tensor
    utility: Tensor
    unfairness: Tensor
    target: Tensor
    _problem: Any  # a `_Problem`

    def policy(self, *, utility: float | None = None, unfairness: float | None = None) -> ExposurePolicy:
        """The policy with at least this utility and the least unfairness, or with at most this unfairness and the most utility.

        Raises:
            ValueError: not exactly one is given, or no mixture has it; the message tells the range.
        """
        if (utility is None) == (unfairness is None):
            raise ValueError(f"give utility= or unfairness=, one of both; got {utility!r} and {unfairness!r}")
        name, value = ("utility", utility) if unfairness is None else ("unfairness", unfairness)
        number = as_numbers(name, value)
        if number.size != 1:
            raise ValueError(f"{name} must be a number, got {value!r}")
        found: ExposurePolicy = self._problem.policy(self._at(name, float(number.item())))
        return found

    def __repr__(self) -> str:
        ends = [f"{each[0]:.6g} to {each[-1]:.6g}" for each in (self.utility, self.unfairness)]
        return f"ExposureFront({len(self.utility)} points, utility {ends[0]}, unfairness {ends[1]})"

    def _at(self, name: str, value: float) -> np.ndarray:
        points, along = self.exposure.numpy(), getattr(self, name).numpy()
        room = 1e-9 * max(1.0, abs(along[-1]))
        if not (value <= along[-1] + room if name == "utility" else value >= along[0] - room):
            bound = f"a utility above {along[-1]:g}" if name == "utility" else f"an unfairness below {along[0]:g}"
            raise ValueError(f"no mixture has {bound}, got {value:g}")
        after = int(np.searchsorted(along, value))
        if after in (0, len(along)):
            return points[min(after, len(along) - 1)]
        start, step = points[after - 1], points[after] - points[after - 1]
        if name == "utility":
            share = (value - along[after - 1]) / (along[after] - along[after - 1])
        else:  # the larger root of a square
            gap, end = self._problem.gaps(points[after - 1 : after + 1])
            square, slope, below = (end - gap) @ (end - gap), gap @ (end - gap), along[after - 1] - value
            share = -below / (slope + np.sqrt(max(slope**2 - square * below, 0.0)))
        return start + min(max(share, 0.0), 1.0) * step


def fair_exposure(
    merits: Any,
    *,
    target: Target | Any = "merit",
    groups: Any = None,
    k: int | None = None,
    discount: Any = "log2",
) -> ExposurePolicy:
    """Find the mixture of rankings of a list whose exposures meet a target, or come closest to it.

    The exposure of a document is the mean discount of its position, its share of the users' attention. A single ranking by merit
    gives documents that are almost equally good very different exposures; a mixture of at most n rankings of n documents can
    give them what they deserve, exactly. Show one of these rankings, drawn by `sample`, to each visitor.

    Args:
        merits: `[documents]`, what each document is worth, such as its probability of being relevant.
        target: `"merit"`, exposures proportional to the merits, which are then >= 0 (equal if all are 0); `"equal"`; or the
            exposures wanted, `[documents]`, in units of the discounts.
        groups: `[documents]`, names or whole numbers. If given, only the exposure of each group is to meet the sum of its
            documents' targets, so that the mean exposures of groups are proportional to their mean merits, or equal; of the
            mixtures that do, this is the one with the highest utility, by a linear programme (SciPy's HiGHS) with at most one
            ranking per group. Documents without a group are together a group.
        k: the number of positions; all documents if None.
        discount: `"log2"`, `"letor"` or a function of ranks, never increasing and >= 0.

    Returns:
        The policy. Exposures are within 1e-9 of the closest possible. O(n^2 log n) without groups.

    Raises:
        TypeError, ValueError: wrong shapes or types; merits or targets that are not finite, negative merits with target
            `"merit"`, or a discount that increases or is negative.

    Source: Kletti, Renders, Loiseau, "Introducing the Expohedron for Efficient Pareto-optimal Fairness-Utility Amortizations in
    Repeated Rankings", WSDM 2022. Targets of groups: Singh, Joachims, "Fairness of Exposure in Rankings", KDD 2018.

    >>> policy = fair_exposure([0.6, 0.58, 0.57])
    >>> policy
    ExposurePolicy(3 rankings of 3 documents, utility=1.24361, unfairness=0)
    >>> policy.exposure
    tensor([0.7306, 0.7063, 0.6941], dtype=torch.float64)
    >>> policy.sample(2, seed=0).shape
    torch.Size([2, 3])
    >>> fair_exposure([0.6, 0.58, 0.57], target="equal", groups=["a", "a", "b"]).exposure
    tensor([0.9206, 0.5000, 0.7103], dtype=torch.float64)
    """
    return _problem(merits, target, groups, k, discount).fairest()


def fair_exposures(
    merits: Any,
    *,
    target: Target | Any = "merit",
    groups: Any = None,
    k: int | None = None,
    discount: Any = "log2",
    **lists: Any,
) -> ExposurePolicies:
    """`fair_exposure` of several lists.

    Args:
        merits: `[..., list_size]`, or flat.
        target, groups: as of `fair_exposure`; exposures wanted and groups are in the shape of the merits.
        k, discount: as of `fair_exposure`.
        lists: `where`, `offsets`, `qid` or `group`, as of `rankstruct.evaluate`.

    Returns:
        A policy per list. Their `sample` draws ranks of all lists in the layout of the merits.

    Raises:
        TypeError, ValueError: as `fair_exposure` and `rank_under`.

    >>> policies = fair_exposures([0.9, 0.2, 0.5, 0.5], qid=["a", "a", "b", "b"], target="equal")
    >>> policies.exposure
    tensor([0.8155, 0.8155, 0.8155, 0.8155], dtype=torch.float64)
    >>> policies.sample(seed=1)
    tensor([2, 1, 2, 1])
    """
    layout, discounts = Layout.read(as_real("merits", merits), lists, "merits"), Discounts.read(k, discount)
    wanted = target if isinstance(target, str) else layout.given(target, "target")
    grouped = None if groups is None else Groups(layout.given(group_ids("groups", groups).ids, "groups"), None)
    found = []
    for begin, end in zip(layout.offsets[:-1], layout.offsets[1:], strict=True):
        here = slice(begin, end)
        own = wanted if isinstance(wanted, str) else wanted[here]
        problem = _Problem.of(layout.scores[here], own, None if grouped is None else grouped.at(here), discounts)
        found.append(problem.fairest())
    return ExposurePolicies(found, layout)


def exposure_front(
    merits: Any,
    *,
    target: Target | Any = "merit",
    groups: Any = None,
    k: int | None = None,
    discount: Any = "log2",
) -> ExposureFront:
    """All best compromises between a target of exposures and utility, from the fairest to the most useful.

    The front is exact: it is given by the points at which it bends, at most as many as there are documents for targets `"merit"`
    and `"equal"`. For other targets, and with groups, the number may grow with the square of the documents: it was
    111 for 50 documents of four random groups, in half a second.

    Args:
        merits, target, groups, k, discount: as of `fair_exposure`.

    Raises:
        TypeError, ValueError: as `fair_exposure`.

    Source: as `fair_exposure`.

    >>> front = exposure_front([0.6, 0.58, 0.57])
    >>> front.utility
    tensor([1.2436, 1.2504, 1.2509], dtype=torch.float64)
    >>> front.unfairness
    tensor([0.0000, 0.0989, 0.1159], dtype=torch.float64)
    >>> front.policy(utility=1.25)
    ExposurePolicy(3 rankings of 3 documents, utility=1.25, unfairness=0.0875)
    """
    problem = _problem(merits, target, groups, k, discount)
    points = problem.front()
    squares = (problem.gaps(points) ** 2).sum(1)
    return ExposureFront(
        torch.from_numpy(points),
        torch.from_numpy(np.maximum.accumulate(points @ problem.merits)),
        torch.from_numpy(np.maximum.accumulate(squares)),
        torch.from_numpy(problem.target),
        problem,
    )


@dataclass(frozen=True)
class _Problem:
    """A list, checked: merits, targets and discounts relative to the first, `[documents]`; the first; groups from 0."""

    merits: np.ndarray
    target: np.ndarray
    worth: np.ndarray
    scale: float
    shown: int
    groups: np.ndarray | None

    @classmethod
    def of(cls, merits: np.ndarray, target: Any, groups: Any, discounts: Discounts) -> _Problem:
        if not np.isfinite(merits).all():
            raise ValueError(f"merits must be finite, got {merits[~np.isfinite(merits)][0]:g}")
        worth = discounts.of(len(merits))
        scale = float(worth[0]) if len(worth) and worth[0] > 0 else 1.0
        numbers = None
        if groups is not None:
            ids = group_ids("groups", groups).ids
            if ids.shape != merits.shape:
                raise ValueError(f"groups must be one per document, shape {merits.shape}, got {ids.shape}")
            numbers = np.unique(ids, return_inverse=True)[1]
        shown = len(merits) if discounts.k is None else min(discounts.k, len(merits))
        return cls(merits, _target(target, merits, float(worth.sum())), worth / scale, scale, shown, numbers)

    def fairest(self) -> ExposurePolicy:
        if self.groups is None or not len(self.merits):
            return self.policy(self.scale * project(self.target / self.scale, self.worth))
        return self._mixture(*self._fairest_of_groups(self.groups))

    def _fairest_of_groups(self, groups: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sizes = np.bincount(groups)
        means = (np.bincount(groups, self.target) / sizes)[groups] / self.scale
        aims = np.bincount(groups, project(means, self.worth))
        return best_of_groups(aims, groups, self.merits, self.worth)

    def policy(self, exposure: np.ndarray) -> ExposurePolicy:
        return self._mixture(*decompose(exposure / self.scale, self.worth))

    def front(self) -> np.ndarray:
        """The exposures at which the front bends, `[b, documents]`."""
        if self.groups is None or not len(self.merits):
            return self.scale * pareto_path(self.target / self.scale, self.merits, self.worth)
        aims, fair = np.bincount(self.groups, self.target) / self.scale, self._fairest_of_groups(self.groups)
        return self.scale * path_of_groups(aims, fair, self.groups, self.merits, self.worth)

    def gaps(self, exposures: np.ndarray) -> np.ndarray:
        """How far exposures `[b, documents]` are from meeting the target, of each document, or of each group relative to the root
        of its size.
        """
        found = exposures - self.target
        if self.groups is not None and len(self.merits):
            sizes = np.bincount(self.groups)
            found = np.stack([np.bincount(self.groups, each) for each in found]) / np.sqrt(sizes)
        found[np.abs(found) <= _ROUNDING * self.scale] = 0
        return found

    def _mixture(self, rankings: np.ndarray, weights: np.ndarray) -> ExposurePolicy:
        exposure = self.scale * mixed(rankings, weights, self.worth)
        gap = self.gaps(exposure[None])[0]
        return ExposurePolicy(
            torch.from_numpy(exposure),
            torch.from_numpy(self.target),
            torch.from_numpy(rankings[:, : self.shown].copy()),
            torch.from_numpy(weights),
            float(exposure @ self.merits),
            float(gap @ gap),
        )


def _target(target: Any, merits: np.ndarray, total: float) -> np.ndarray:
    """The exposures wanted, of so much in total."""
    size = len(merits)
    if isinstance(target, str):
        kinds = get_args(Target)
        if target not in kinds:
            raise ValueError(
                f"target must be {', '.join(map(repr, kinds))} or the exposures wanted, got {target!r}"
                f"{did_you_mean(target, kinds)}"
            )
        if target == "equal" or not merits.any():
            return np.full(size, total / max(size, 1))
        if (merits < 0).any():
            raise ValueError(
                f"merits must be >= 0 for exposures proportional to them, got {merits.min():g}; use gains or probabilities, "
                "or target='equal'"
            )
        shares = merits / merits.max()
        return total * shares / shares.sum()
    wanted = as_numbers("target", target).astype(np.float64)
    if wanted.shape != merits.shape:
        raise ValueError(f"target must have an exposure per document, shape {merits.shape}, got {wanted.shape}")
    if not np.isfinite(wanted).all():
        raise ValueError(f"target must be finite, got {wanted[~np.isfinite(wanted)][0]:g}")
    return wanted


@dataclass(frozen=True)
class Discounts:
    """The discounts of positions, of which the first k are seen, all if None."""

    measure: nDCG
    k: int | None

    @classmethod
    def read(cls, k: Any, discount: Any) -> Discounts:
        """Check the arguments of that name."""
        check_integers(1, optional=True, k=k)
        return cls(nDCG(k, discount=discount), k)

    def of(self, size: int) -> np.ndarray:
        """Of so many positions, 0 after the first k; raises ValueError if they increase or are negative."""
        found = self.measure.position_weights(size).numpy()
        if (found < 0).any():
            raise ValueError(f"discounts must be >= 0, got {found.min():g}")
        return found


def _problem(merits: Any, target: Any, groups: Any, k: Any, discount: Any) -> _Problem:
    """That of one list."""
    if (dimensions := getattr(merits, "ndim", np.ndim(merits))) != 1:
        raise ValueError(
            f"merits must be one list, [documents], got {dimensions} dimensions; fair_exposures takes several lists"
        )
    return _Problem.of(
        Layout.read(as_real("merits", merits), {}, "merits").scores, target, groups, Discounts.read(k, discount)
    )
