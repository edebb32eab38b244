"""The tables of a lake: columns with their descriptions, partitions and keys.

`docs/tables.md` has the same lists; a test compares the two. Types are Spark's names. The tape's columns are those of
`levelcast.pipeline.lake.schema`; `trades`, `quotes` and `orders` have those of them that their records have.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import TYPE_CHECKING

import pyarrow as pa

from levelcast.pipeline.lake import schema
from levelcast.pipeline.lake.schema import ARROW, PRICE_UNIT, Column

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

LAKE_VERSION = 1
"""Version of all tables together. It increases when a column changes its meaning; later versions are refused."""


def day_of(at_ns: int) -> date:
    """Return the UTC day of a time."""
    return datetime.fromtimestamp(at_ns // 1_000_000_000, UTC).date()


@dataclass(frozen=True, slots=True)
class Table:
    """One table. `key` lists the columns that identify a row; files are sorted by `order`."""

    name: str
    says: str
    columns: tuple[Column, ...]
    partition: tuple[str, ...]
    key: tuple[str, ...]
    order: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(column.name for column in self.columns)

    @property
    def ddl(self) -> str:
        """Return the columns as a Spark schema."""
        return ", ".join(f"`{column.name}` {column.type}" for column in self.columns)

    def arrow_schema(self) -> pa.Schema:
        return pa.schema([(column.name, ARROW[column.type]) for column in self.columns])

    def shape(self, rows: DataFrame) -> DataFrame:
        """Return the rows with these columns in this order and of these types; a missing one is null."""
        from pyspark.sql import functions as f

        have = set(rows.columns)
        found = [(f.col(name) if name in have else f.lit(None)).cast(type) for name, type, *_ in self.columns]
        return rows.select(*(column.alias(name) for column, name in zip(found, self.names, strict=True)))


_WHERE = ("stripe", "sequence", "slot", "ts_recv", "ts_event", "publisher_id", "venue", "instrument_id", "symbol")
_TRADE = ("action", "side", "price", "size", "flags", "condition", "trade_id", "venue_sequence")
_QUOTE = ("side", "flags", "condition", "venue_sequence", "bid_px", "ask_px", "bid_sz", "ask_sz", "bid_ct", "ask_ct")
_ORDER = (
    "action", "side", "price", "size", "flags", "order_id", "stop_price", "client_order_id",
    "original_client_order_id", "account", "destination", "order_type", "time_in_force", "self_trade_policy",
)  # fmt: skip


def _tape_columns(*names: str) -> tuple[Column, ...]:
    return tuple(schema.BY_NAME[name] for name in names)


def _table(
    name: str,
    says: str,
    *columns: Column,
    key: tuple[str, ...],
    order: tuple[str, ...] | None = None,
    partition: tuple[str, ...] = ("day",),
) -> Table:
    """Return a table with files sorted by its key without the day, unless specified."""
    return Table(
        name, says, columns, partition, key, tuple(part for part in key if part != "day") if order is None else order
    )


def _recorded(name: str, says: str, *columns: str) -> Table:
    return Table(name, says, _tape_columns(*columns, "day"), ("day", "stripe"), ("stripe", "sequence"), ("sequence",))


_DAY = Column("day", "date", "The UTC day.")
_SYMBOL = Column("symbol", "string", "The instrument's symbol.")
_VENUE = Column("venue", "string", "A MIC, or ALL.")
_RECEIVER = Column("receiver", "string", "The node's name.")

TAPE = _recorded("tape", "Every record of the tape, of all kinds, in the flat schema.", *schema.NAMES[:-1])
TRADES = _recorded("trades", "Trades, busts (C) and corrections (M), as they were sent.", *_WHERE, *_TRADE)
QUOTES = _recorded("quotes", "Best quotes of the floors.", *_WHERE, *_QUOTE)
ORDERS = _recorded("orders", "Order commands, and order events of captures.", *_WHERE, *_ORDER)

QUARANTINE = _table(
    "quarantine",
    "Input rows that could not be loaded, with the reason: counted, never dropped without a record.",
    Column("source", "string", "The file or directory of the row."),
    Column("position", "long", "Position in the source: the sequence or the row."),
    Column("stripe", "int", "The stripe."),
    Column("reason", "string", "The reason for refusal, in one line."),
    Column("raw", "string", "The row as JSON."),
    Column("day", "date", "The UTC day of ts_recv, if the row has one."),
    key=("source", "position", "reason"),
    order=("source", "position"),
    partition=(),
)
INPUTS = _table(
    "inputs",
    "Files that were loaded, other than tapes, one per row. A file counts as loaded when `tape` has its mark.",
    Column("stripe", "int", "The stripe of its rows."),
    Column("first_sequence", "long", "Start of its block of sequences; the position of a row is added to it."),
    Column("rows_hash", "string", "A hash of its rows; `file/` and this hash is its mark."),
    Column("content_hash", "string", "A hash of its bytes."),
    Column("file", "string", "Its path when it was loaded."),
    Column("format", "string", "Its format."),
    Column("read_as", "string", "What its rows depend on besides its bytes: date, venue, the symbol of a LEAN file."),
    Column("rows", "long", "Its rows in `tape`."),
    Column("refused", "long", "Its rows in `quarantine` that could not be read."),
    Column("removed", "long", "Rows that `levelcast pipeline check --repair` has removed from `tape`."),
    key=("stripe", "first_sequence"),
    partition=(),
)
RELEASES = _table(
    "releases",
    "Release times of frames: late ones individually, the others as histograms by receiver and minute.",
    _RECEIVER,
    Column(
        "kind",
        "string",
        "late: one release; delay: a bin of released - scheduled; spread: a bin of the last "
        "minus the first receiver's release of a slot (receiver ALL, on time everywhere).",
    ),
    Column("start_ns", "long", "Start of the minute, by the scheduled release time."),
    Column("low_ns", "long", "The lower bound of the bin; of a late release its delay."),
    Column("high_ns", "long", "The upper bound of the bin; of a late release its delay."),
    Column("releases", "long", "Frames in the bin."),
    Column("records", "long", "Records in those frames."),
    Column("slot", "long", "The slot of a late release."),
    Column("generation", "long", "The ring generation of a late release."),
    Column("scheduled_ns", "long", "When a late release was due, ns UTC."),
    Column("released_ns", "long", "When a late release happened, by the receiver's clock."),
    Column("day", "date", "The UTC day of the scheduled release time."),
    key=("receiver", "kind", "start_ns", "low_ns", "slot"),
    order=("receiver", "kind", "start_ns", "low_ns"),
)
REQUESTS = _table(
    "requests",
    "Number of retransmission requests of each node and of its subscribers, by status snapshot.",
    _RECEIVER,
    Column("at_ns", "long", "Time of the status snapshot, ns UTC."),
    Column("requests", "long", "Requests that it has sent since its start."),
    Column("open", "long", "Open repairs."),
    Column("frames", "long", "Frames released."),
    Column("late", "long", "Frames released late."),
    Column("customer_requests", "long", "Requests of subscribers to its edge."),
    Column("day", "date", "The UTC day of at_ns."),
    key=("receiver", "at_ns"),
)
DELIVERIES = _table(
    "deliveries",
    "Spread between the subscribers of an edge that deliver together, by status snapshot.",
    _RECEIVER,
    Column("at_ns", "long", "Time of the status snapshot, ns UTC."),
    Column("subscribers", "long", "Subscribers that reported in the last 15 s."),
    Column("bound_ns", "long", "Their smallest bound after the release."),
    Column("needed_ns", "long", "Their largest p99 delay after the release."),
    Column("spread_on_arrival_ns", "long", "From their smallest median delay to their largest p99 delay."),
    Column("spread_ns", "long", "p99 of their delivery after the bound."),
    Column("records", "long", "Records that they delivered together in their last reports."),
    Column("late", "long", "Records that reached them after the bound."),
    Column("missing", "long", "Subscribers whose p99 delay exceeds their bound."),
    Column("worst", "string", "Address of the subscriber with the largest p99 delay; none if all keep the bound."),
    Column("day", "date", "The UTC day of at_ns."),
    key=("receiver", "at_ns"),
)
PROBES = _table(
    "probes",
    "Measured delay and loss between two sites.",
    Column("from_site", "string", "The sender of the probe."),
    Column("to_site", "string", "The site that answered it."),
    Column("at_ns", "long", "Time of the probe, ns UTC."),
    Column("round_trip_ns", "long", "The round-trip time."),
    Column("loss_ratio", "double", "The fraction of lost probes; for one probe 0 or 1, then without times."),
    Column("one_way_ns", "long", "The one-way delay, by both clocks; none if only the round trip is known."),
    Column("day", "date", "The UTC day of at_ns."),
    key=("from_site", "to_site", "at_ns"),
)
PATHS = _table(
    "paths",
    "Delay and loss of a path in a minute, from the beats and probes that a node has received.",
    Column("from_site", "string", "The site of the sender."),
    Column("to_site", "string", "The site of the node that measured."),
    Column("from_node", "string", "The sender."),
    Column("to_node", "string", "The node that measured."),
    Column("start_ns", "long", "Start of the minute, ns UTC."),
    Column("since_ns", "long", "Start of the measurement, which a restart of the node begins again."),
    Column("heard", "long", "Messages that arrived."),
    Column("lost", "long", "Messages that were lost, by their numbers."),
    Column("bursts", "long", "Groups of losses without an arrival between them."),
    Column("outages", "long", "Gaps of more than 3 s, which are not counted as loss."),
    Column("least_ns", "long", "The minimum one-way delay, by both clocks."),
    Column("delays", "string", "Arrivals by delay, `bucket:count` separated by spaces; a bucket is 0.1 ms."),
    Column("day", "date", "The UTC day of start_ns."),
    key=("from_node", "to_node", "start_ns", "since_ns"),
)
SUBSCRIPTIONS = _table(
    "subscriptions",
    "Flows that each subscriber wants.",
    Column("user", "string", "The subscriber."),
    Column("flow", "string", "The symbol, or another name of a flow."),
    Column("from_ns", "long", "Start of the subscription, ns UTC; none if not known."),
    key=("user", "flow"),
    order=("flow", "user"),
    partition=(),
)
INSTRUMENTS = _table(
    "instruments",
    "Every instrument that the tape has named, with its last definition.",
    Column("instrument_id", "long", "The directory's number; none for files."),
    *_tape_columns("symbol", "currency", "instrument_class", "security_type", "min_price_increment", "expiration"),
    Column("first_ns", "long", "ts_recv of the first record that names it."),
    Column("last_ns", "long", "ts_recv of the last one."),
    Column("records", "long", "Records about it."),
    key=("instrument_id", "symbol"),
    order=("symbol",),
    partition=(),
)
VENUES = _table(
    "venues",
    "Every floor that the tape has named.",
    *_tape_columns("publisher_id", "venue"),
    Column("first_ns", "long", "ts_recv of its first record."),
    Column("last_ns", "long", "ts_recv of its last one."),
    Column("records", "long", "Its records."),
    key=("publisher_id", "venue"),
    order=("venue",),
    partition=(),
)

BARS = _table(
    "bars",
    "Open, high, low, close of every symbol and venue; busts and corrections applied.",
    _SYMBOL,
    _VENUE,
    Column("interval", "string", "1s, 1m or 1d."),
    Column("start_ns", "long", "Start of the bar, ns UTC."),
    Column("open", "long", f"The price of the first trade by sequence, {PRICE_UNIT}."),
    Column("high", "long", f"The highest price {PRICE_UNIT}."),
    Column("low", "long", f"The lowest price {PRICE_UNIT}."),
    Column("close", "long", f"The price of the last trade by sequence, {PRICE_UNIT}."),
    Column("volume", "long", "The quantity traded."),
    Column("vwap", "long", f"notional divided by volume, rounded down, {PRICE_UNIT}; none if volume is 0."),
    Column("trades", "long", "The number of trades."),
    Column("notional", "decimal(38,0)", f"The sum of price times size {PRICE_UNIT}: a day of SPY overflows 64 bits."),
    Column("variant", "string", "all: every trade; priced: without sale conditions that do not set the price."),
    _DAY,
    key=("variant", "interval", "symbol", "venue", "start_ns"),
)
BBO = _table(
    "bbo",
    "The best bid and offer of each venue and of the complete market, after every quote.",
    *_tape_columns("symbol", "stripe", "sequence", "ts_recv", "ts_event"),
    Column("venue", "string", "The venue of the quote."),
    Column("venue_bid", "long", f"That venue's bid {PRICE_UNIT}; none if empty."),
    Column("venue_bid_size", "long", "The quantity of it."),
    Column("venue_ask", "long", f"That venue's offer {PRICE_UNIT}; none if empty."),
    Column("venue_ask_size", "long", "The quantity of it."),
    Column("best_bid", "long", f"The highest bid of all venues {PRICE_UNIT}."),
    Column("best_bid_size", "long", "The quantity at it, of all venues."),
    Column("best_ask", "long", f"The lowest offer of all venues {PRICE_UNIT}."),
    Column("best_ask_size", "long", "The quantity at it, of all venues."),
    Column("state", "string", "normal, locked (bid = offer), crossed (bid > offer), one-sided or empty."),
    _DAY,
    key=("symbol", "stripe", "sequence"),
)
TRADE_THROUGHS = _table(
    "trade_throughs",
    "Trades at a worse price than another venue's quote at that time.",
    *_tape_columns("symbol", "stripe", "sequence", "ts_recv", "ts_event", "venue", "price", "size", "condition"),
    Column(
        "side",
        "string",
        "B: below another venue's bid; A: above another venue's offer (a trade that is both has B).",
    ),
    Column("better_venue", "string", "The venue with the best price on that side (the first by name if several)."),
    Column("better_price", "long", f"Its price {PRICE_UNIT}."),
    Column("by", "long", f"By how much it was better, {PRICE_UNIT}."),
    Column("exempt", "boolean", "The sale condition exempts it from the rule."),
    _DAY,
    key=("symbol", "stripe", "sequence"),
)
LAST_PRICES = _table(
    "last_prices",
    "The last trade of every symbol and venue of a day.",
    _SYMBOL,
    _VENUE,
    *_tape_columns("price", "size", "ts_recv", "stripe", "sequence"),
    _DAY,
    key=("symbol", "venue", "day"),
)
VENUE_SHARE = _table(
    "venue_share",
    "The fraction of each venue in a symbol's day.",
    Column("symbol", "string", "The symbol, or ALL."),
    Column("venue", "string", "The MIC."),
    Column("trades", "long", "Its trades."),
    Column("volume", "long", "Its quantity."),
    Column("notional", "decimal(38,0)", f"Its price times size {PRICE_UNIT}."),
    Column("trade_share", "double", "Its fraction of the trades."),
    Column("volume_share", "double", "Its fraction of the quantity."),
    _DAY,
    key=("symbol", "venue", "day"),
)
RATES = _table(
    "rates",
    "Messages of every symbol by time of day: λ of the channel planner.",
    _SYMBOL,
    Column("start_s", "int", "Start of the interval, seconds after 00:00 UTC."),
    Column("seconds", "int", "Length of the interval in seconds."),
    Column("messages", "long", "Records of the symbol in it."),
    Column("rate", "double", "Messages/s."),
    _DAY,
    key=("symbol", "start_s", "day"),
)
RATE_FIT = _table(
    "rate_fit",
    "Inequality of the symbols' rates (TH §5.1): an exponential by rank, and the fraction of the busiest 10 %.",
    Column("symbols", "long", "Symbols with a message."),
    Column("messages", "long", "Messages of all of them."),
    Column("scale", "double", "A of rate = A exp(-rank / decay), messages/s; rank from 0."),
    Column("decay", "double", "The decay in ranks; none with fewer than two ranks, or with equal rates."),
    Column("r2", "double", "R² of the linear fit of the logarithms."),
    Column("top_symbols", "long", "A tenth of the symbols, rounded up."),
    Column("top_share", "double", "Their fraction of the messages (TH: 55 %)."),
    _DAY,
    key=("day",),
)
INTEREST = _table(
    "interest",
    "Pairs of user and flow with messages, with the flow's rate: the planner's input.",
    Column("user", "string", "The subscriber."),
    Column("flow", "string", "The symbol."),
    Column("rate", "double", "Messages/s of the flow, over the day."),
    _DAY,
    key=("user", "flow", "day"),
    order=("flow", "user"),
)

PLANS = _table(
    "plans",
    "Every channel plan computed from the lake, with its costs and those of the previous plan.",
    Column("made_ns", "long", "Time of its computation, ns UTC."),
    Column("plan", "string", "A hash of the map of flows to sessions and groups."),
    Column("first_day", "date", "The first day of the rates that it was computed for."),
    Column("last_day", "date", "The last day of the rates."),
    Column("rates", "string", "mean: over those days; busiest: of their busiest interval."),
    Column("engine", "string", "local or spark."),
    Column("flows", "long", "Flows that are sent."),
    Column("users", "long", "Customers."),
    Column("pairs", "long", "Pairs of subscriber and flow."),
    Column("sessions", "long", "Sessions of the plan."),
    Column("groups", "long", "Groups of the plan."),
    Column("alpha", "double", "The cost of dropping a message by its session (TH §3.2)."),
    Column("beta", "double", "The cost of dropping a message by its flow."),
    Column("asked", "double", "Messages/s that all subscribers together request."),
    Column("accepted", "double", "Messages/s in the sessions that they accept."),
    Column("received", "double", "Messages/s in the groups that they join."),
    Column("cost", "double", "C_w."),
    Column("before", "string", "The previous plan: one session for all, or the plan's hash."),
    Column("accepted_before", "double", "accepted, with the previous plan."),
    Column("received_before", "double", "received, with the previous plan."),
    Column("cost_before", "double", "C_w of the previous plan."),
    Column("seconds", "double", "Computation time in seconds."),
    key=("made_ns", "plan"),
    order=("made_ns",),
    partition=(),
)
AUDIT_RUNS = _table(
    "audits",
    "Every audit that was run, with its verdict.",
    Column("run", "string", "The run, one for all audits of one command."),
    Column("audit", "string", "order, fairness, timeliness, entry, or one that was added."),
    Column("at_ns", "long", "Time of the run, ns UTC."),
    Column("verdict", "string", "passed or found."),
    Column("findings", "long", "Number of faults."),
    Column("sentence", "string", "The verdict in one line."),
    Column("looked_at", "string", "The amounts checked, as JSON."),
    Column("remarks", "string", "Notes that are not faults, as JSON."),
    Column("figures", "string", "The measured values, as JSON."),
    Column("receivers", "string", "The receivers of the tapes, as JSON."),
    Column("day", "date", "The UTC day on which it was run."),
    key=("run", "audit"),
    order=("at_ns",),
)
AUDIT_FINDINGS = _table(
    "audit_findings",
    "The faults that audits have found, each located as exactly as the files allow.",
    Column("run", "string", "The run, as in audits."),
    Column("audit", "string", "The audit that found it."),
    Column("number", "int", "The number of the finding in its audit, from 1."),
    Column("kind", "string", "The kind of fault."),
    Column("subject", "string", "The receiver, region, source or floor at fault."),
    Column("says", "string", "The description of the fault."),
    Column("stripe", "int", "The stripe."),
    Column("file", "string", "The file, if the fault is in one."),
    Column("segment", "long", "The first sequence of its segment."),
    Column("slot", "long", "The slot of the frame."),
    Column("sequence", "long", "The sequence of the frame's first record."),
    Column("record", "long", "The sequence of the first record concerned."),
    Column("offset", "long", "The offset of the first byte concerned."),
    Column("value", "double", "The effect size: nanoseconds, or a fraction."),
    Column("low", "double", "The lower end of its confidence interval."),
    Column("high", "double", "The upper end of its confidence interval."),
    Column("p", "double", "Its p value after Holm's correction."),
    Column("day", "date", "The UTC day on which the audit was run."),
    key=("run", "audit", "number"),
    order=("audit", "number"),
)

_HOUR = Column("start_ns", "long", "Start of the hour, ns UTC.")

NETWORK_MATRIX = _table(
    "network_matrix",
    "One-way delays and loss from one site to another in an hour, from `paths`, else from `probes`.",
    Column("from_site", "string", "The sender of the messages."),
    Column("to_site", "string", "The site that received or answered them."),
    _HOUR,
    Column("probes", "long", "Messages that were sent, or rows of `probes`."),
    Column("answered", "long", "Those of them with a time."),
    Column("tried", "long", "Those with a loss value."),
    Column("lost", "double", "Number of those that were lost; summaries count by their fraction."),
    Column(
        "loss_ratio",
        "double",
        "One-way loss: lost / tried, from `probes` 1 - sqrt(1 - lost / tried); none if not measured.",
    ),
    Column("loss_upper", "double", "The upper 95 % confidence bound of the one-way loss, used for timing."),
    Column("min_ns", "long", "The minimum one-way delay: measured by both clocks, or half of the round trip."),
    Column("p50_ns", "long", "The median delay."),
    Column("p90_ns", "long", "The 90th percentile."),
    Column("p99_ns", "long", "The 99th percentile."),
    Column("p999_ns", "long", "The 99.9th percentile."),
    Column("max_ns", "long", "The maximum."),
    Column("round_trip_ns", "long", "The mean round trip: the duration of a repair."),
    Column("both_clocks", "boolean", "Every delay was measured one way, by both clocks."),
    Column("enough", "boolean", "At least 100 were answered, so that p99 is not simply the maximum."),
    _DAY,
    key=("from_site", "to_site", "start_ns"),
)
NETWORK_TIMING = _table(
    "network_timing",
    "The timing of a ring from an hour's matrix (rules 5 and 6), as last computed by `levelcast matrix`.",
    _HOUR,
    Column("network", "string", "The network it is for; none: computed for one receiver at every site."),
    Column("stripe", "string", "The stripe."),
    Column("quantile", "double", "The quantile of the delays above which a token is late."),
    Column("sites", "int", "Sites that the ring has."),
    Column("unmeasured", "int", "Pairs of them without a probe in the hour; they count by the network file."),
    Column("delay_between", "string", "The two sites with the longest delay."),
    Column("delay_ns", "long", "That delay."),
    Column("loss_between", "string", "The two sites with the highest loss."),
    Column("loss_ratio", "double", "That loss, one way, its upper bound."),
    Column("slot_ns", "long", "Slot length."),
    Column("witnesses", "int", "Witnesses that a release waits for."),
    Column("late_ns", "long", "Delay after which a token counts as missing."),
    Column("request_ns", "long", "Interval between two requests."),
    Column("attempts", "int", "Requests before a fault; none if the loss is above one half."),
    Column("recovery_ns", "long", "Recovery time R."),
    Column("hold_ns", "long", "Hold time."),
    _DAY,
    key=("start_ns", "network", "stripe"),
    order=("start_ns",),
)
NETWORK_HELPERS = _table(
    "network_helpers",
    "The best sites to request missing data from, by an hour's matrix: the three best, and the nearest.",
    Column("site", "string", "The site that misses data."),
    _HOUR,
    Column("rank", "int", "1 is the best."),
    Column("helper", "string", "The site that receives the request."),
    Column("round_trip_ns", "long", "The mean round trip between the two, the slower direction."),
    Column("loss_ratio", "double", "One-way loss between the two, the worse direction."),
    Column("missed", "double", "Probability that the helper misses the same data."),
    Column("shared", "long", "Probes lost to the site that went to the helper as well: the basis of `missed`."),
    Column("answers", "double", "Probability that a request is answered, (1 - missed)(1 - loss)^2."),
    Column("expected_ns", "long", "Expected time to the repair if it gets the first request and the others follow."),
    Column("nearest", "boolean", "No other helper has a shorter round trip."),
    _DAY,
    key=("site", "start_ns", "rank"),
)
SWEEPS = _table(
    "sweeps",
    "Histories of the simulator that `levelcast sweep` has run, one per row.",
    Column("code", "string", "A digest of the source code that computed it."),
    Column("scenario", "string", "ring, receivers, nack, steady or world."),
    Column("parameters", "string", "The parameters of the scenario, as JSON, complete and sorted."),
    Column("seed", "long", "The seed."),
    Column("verdict", "string", "held; broken: a guarantee did not hold; crashed: the history itself failed."),
    Column("broken", "string", "The violation or failure; none if every guarantee held."),
    Column("simulated_s", "double", "Seconds of virtual time."),
    Column("events", "long", "Simulated events."),
    Column("datagrams", "long", "Datagrams sent."),
    Column("packets", "long", "Packets submitted."),
    Column("releases", "long", "Frames released, in total over all receivers."),
    Column("late_releases", "long", "Frames released late."),
    Column("reformations", "long", "Rings formed."),
    Column("latency_p50_ms", "double", "Median time from submit to release, of packets at receivers."),
    Column("latency_p99_ms", "double", "99th percentile of that time."),
    Column("liveness_ratio", "double", "The recovery time, as a fraction of its bound."),
    Column("cpu_s", "double", "CPU seconds used; none if its process failed."),
    Column("figures", "string", "All metrics of the history by name, as JSON."),
    key=("code", "scenario", "parameters", "seed"),
    order=("scenario", "parameters", "seed"),
    partition=(),
)

TABLES: dict[str, Table] = {
    table.name: table
    for table in (
        TAPE, TRADES, QUOTES, ORDERS, RELEASES, REQUESTS, DELIVERIES, PROBES, PATHS, SUBSCRIPTIONS, INSTRUMENTS, VENUES,
        QUARANTINE, INPUTS, BARS, BBO, TRADE_THROUGHS, LAST_PRICES, VENUE_SHARE, RATES, RATE_FIT, INTEREST, PLANS,
        AUDIT_RUNS, AUDIT_FINDINGS, NETWORK_MATRIX, NETWORK_TIMING, NETWORK_HELPERS, SWEEPS,
    )
}  # fmt: skip
