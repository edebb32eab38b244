"""Build a world for the bulk simulation: cities, regions, receivers in two layers, sources and subscribers.

- The cities are measured (`levelcast.network.regions.delays`) or synthetic: points on a sphere, delay by distance.
- Receivers are only in cities within `reach_ms` of each other, because the longest delay in the core determines the
  hold time of all (rule 6). Subscribers are in every city, in proportion to its weight.
- `levelcast.network.regions.plan` plans the regions. Each has primaries in proportion to its subscribers, at least one.
  Every primary has the same number of secondaries: 100 groups of 100 are the paper's 10,000 receivers in two layers
  (MS §4.1). In three layers each of them has the same number of secondaries of its own. The receivers of a group are at
  the two sites of their region in turn.
- A subscriber receives from one receiver at each site of its region. Subscribers are assigned to receivers in turn.
  Sources are in the largest cities.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

import numpy as np

from levelcast.network.regions.delays import LOCAL_MS, Delays, Matrix
from levelcast.network.regions.plan import Regions, line_costs, plan_regions, share_out, within_reach
from levelcast.sim.bulk.edge import BulkSubscribers
from levelcast.sim.bulk.paths import Core, Indexes
from levelcast.timing.derive import Derived, Path, Shape, derive

EARTH_KM = 6_371.0
KM_PER_MS = 200.0
"""Speed in glass; real routes are longer by the factor `DETOUR`."""
DETOUR = 1.6
MS = 1_000_000


@dataclass(frozen=True, slots=True)
class Size:
    """Size and timing of a world."""

    primaries: int = 100
    receivers: int = 10_000
    customers: int = 1_000_000
    sources: int = 20
    regions: int = 60
    layers: int = 2
    reach_ms: float = 250.0
    bound: float = 6.0
    """Maximum ratio of a region's subscribers to the mean."""
    slot_ms: float = 50.0
    clock_error_ms: float = 1.0
    grades: tuple[float, float, float] = (0.5, 0.25, 0.25)
    """Fractions of subscribers with the grades guaranteed, latest only and best effort."""

    def __post_init__(self) -> None:
        if self.primaries < 3 or self.receivers % self.primaries or self.receivers < 2 * self.primaries:
            raise ValueError(
                f"{self.receivers} receivers and {self.primaries} primaries do not form equal groups of two or more"
            )
        if not 2 <= self.layers <= 3 or self.receivers < self.layers * self.primaries:
            raise ValueError(
                f"{self.layers} layers of {self.receivers} receivers, {self.primaries} of them primaries; use 2, or 3 "
                "with three receivers or more per primary"
            )
        if not 1 <= self.regions <= self.primaries:
            raise ValueError(f"{self.regions} regions for {self.primaries} primaries; use 1 to {self.primaries}")
        if self.customers < self.primaries or self.sources < 1:
            raise ValueError("too few subscribers or sources; use at least one subscriber per primary, and one source")
        if self.slot_ms <= 0 or self.reach_ms <= 0:
            raise ValueError("slot and reach must be longer than 0")

    @property
    def groups(self) -> tuple[int, int]:
        """Secondaries of a primary, and of each of those; the second is 0 in two layers.

        >>> Size().groups, Size(receivers=100_000, layers=3).groups
        ((99, 0), (27, 36))
        """
        below = self.receivers // self.primaries - 1
        if self.layers == 2:
            return below, 0
        upper = max(each for each in range(1, isqrt(below) + 1) if below % each == 0)
        return upper, below // upper - 1


@dataclass(frozen=True, slots=True)
class Globe:
    """World that can run with any loss."""

    size: Size
    delays: Delays
    regions: Regions
    city: Indexes
    home: Indexes
    sources: Indexes
    customers: BulkSubscribers
    longest_ms: float
    """Longest one-way delay between two receivers' cities; only late packets exceed it."""
    seed: int

    def derived(self, loss: float) -> Derived:
        """Derive the timing of this core with this loss (rule 6)."""
        size = self.size
        reach = self.delays.quantile_ms[np.ix_(self.sources, np.unique(self.city))].max()
        path = Path(
            delay_ns=int(self.longest_ms * MS),
            loss_ratio=loss,
            clock_error_ns=int(size.clock_error_ms * MS),
            transmit_ns=1 * MS,
            process_ns=5 * MS,
            reach_ns=int(reach * MS),
        )
        needed, layers = size.primaries // 2 + 1, size.layers - 1
        shape = Shape("pipelined", int(size.slot_ms * MS), needed, size.primaries, servers=2, layers=layers)
        return derive(path, shape)

    def core(self, loss: float, *, branch_loss: float = 0.0) -> Core:
        error = self.size.clock_error_ms
        clocks = np.random.default_rng(self.seed).uniform(-error, error, len(self.city))
        delays, timing, needed = self.delays.with_loss(loss), self.derived(loss).timing, self.size.primaries // 2 + 1
        return Core(delays, self.city, self.home, self.sources, timing, needed, clocks, error, branch_loss)


def made_up_cities(count: int, seed: int = 1) -> tuple[Delays, Matrix]:
    """Return synthetic cities: points on a sphere, some close together, with delay by distance and skewed weights."""
    rng = np.random.default_rng(seed)
    hubs = _unit(rng.normal(size=(max(count // 12, 1), 3)))
    places = _unit(hubs[rng.integers(len(hubs), size=count)] + 0.25 * rng.normal(size=(count, 3)))
    angle = np.arccos(np.clip(places @ places.T, -1.0, 1.0))
    delay = LOCAL_MS + DETOUR * EARTH_KM * angle / KM_PER_MS
    np.fill_diagonal(delay, LOCAL_MS)
    jitter = np.full((count, count), LOCAL_MS) + 0.05 * delay
    names = tuple(f"city {number + 1}" for number in range(count))
    weights: Matrix = 1.0 / (1.0 + rng.permutation(count).astype(np.float64))
    return Delays(names, delay, jitter, np.zeros((count, count))), weights


def _unit(points: Matrix) -> Matrix:
    scaled: Matrix = points / np.linalg.norm(points, axis=1, keepdims=True)
    return scaled


def build_globe(delays: Delays, weights: Matrix, size: Size, seed: int = 1) -> Globe:
    """Plan the regions and locate all nodes. Raises ValueError with a message if a plan is not possible."""
    quantile = delays.quantile_ms
    sites = within_reach(quantile, size.reach_ms)
    costs = line_costs(quantile, np.full_like(quantile, 0.01))
    plan = plan_regions(costs[sites], weights, size.regions, bound=min(size.bound, size.regions))
    regions = Regions(sites[plan.sites], plan.customer, plan.region, plan.weight, costs)
    groups = share_out(regions.load(), size.primaries, 1)
    # Ring neighbours are in different regions if possible: an outage of one region then hits no consecutive slots.
    turns = np.concatenate([np.flatnonzero(groups > turn) for turn in range(int(groups.max()))])
    home, primary, member = _layers(size)
    region_of = turns[primary]
    city = regions.sites[region_of, member % 2]
    members = [
        [np.flatnonzero((region_of == region) & (member % 2 == site)) for site in (0, 1)]
        for region in range(size.regions)
    ]
    receivers = np.unique(city)
    longest_ms = float(quantile[np.ix_(receivers, receivers)].max())
    sources = sites[np.argsort(-weights[sites], kind="stable")][: size.sources]
    customers = _customers(regions, members, size, seed)
    return Globe(size, delays, regions, city, home, sources, customers, longest_ms, seed)


def _layers(size: Size) -> tuple[Indexes, Indexes, Indexes]:
    """Return the home, the primary and the number in its group of each receiver, layer by layer."""
    home = primary = np.arange(size.primaries)
    homes, primaries, members = [home], [primary], [np.zeros(size.primaries, np.intp)]
    layer = home
    for group in filter(None, size.groups):
        homes.append(np.repeat(layer, group))
        members.append(np.tile(np.arange(1, group + 1), len(layer)))
        primary = np.repeat(primary, group)
        primaries.append(primary)
        layer = np.arange(len(primary)) + int(layer[-1]) + 1
    return np.concatenate(homes), np.concatenate(primaries), np.concatenate(members)


def _customers(regions: Regions, members: list[list[Indexes]], size: Size, seed: int) -> BulkSubscribers:
    order = np.argsort(regions.region, kind="stable")
    shares = share_out(regions.weight[order], size.customers)
    place = np.repeat(regions.customer[order], shares)
    region = np.repeat(regions.region[order], shares)
    first_site, _ = regions.lines()
    swapped = np.repeat((first_site != regions.sites[regions.region, 0])[order], shares)
    starts = np.searchsorted(region, np.arange(len(members) + 1))
    lines = np.empty((2, size.customers), np.int32)
    for number, both in enumerate(members):
        mine = slice(int(starts[number]), int(starts[number + 1]))
        for line, group in enumerate(both):
            lines[line, mine] = np.resize(group, mine.stop - mine.start)
    first, second = np.where(swapped, lines[1], lines[0]), np.where(swapped, lines[0], lines[1])
    rng = np.random.default_rng(seed)
    grade = rng.choice(3, size.customers, p=np.array(size.grades) / sum(size.grades)).astype(np.int8)
    return BulkSubscribers(place.astype(np.int32), first, second, grade, starts)
