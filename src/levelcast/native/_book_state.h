/* State of the matching engine: codes, tables, orders, instruments, accounts, balances. See pure_book_state.py. */

#include <setjmp.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#ifdef __linux__
#include <sys/mman.h> /* huge pages */
#endif

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled modules are for little-endian machines; their twins in Python do the work elsewhere"
#endif

typedef __int128 wide;
typedef int64_t i64;
typedef uint64_t u64;
typedef uint32_t u32;
typedef uint8_t u8;

#define UNDEFINED INT64_MAX
#define NONE UINT32_MAX
#define NO_SIZE UINT32_MAX
#define MAX_PRICE ((i64)1 << 62)
#define MAX_NOTIONAL INT64_MAX
#define CURRENCY ((u64)1 << 32)
#define LIKELY(x) __builtin_expect(!!(x), 1)

enum { COMMAND_SIZE = 96, EVENT_SIZE = 64, GATEWAY_BITS = 48, KEPT_TRADES = 1 << 20, SETTINGS = 11 };
enum { FIRST_RULES = 1, OLDEST_RULES = 1, RULES_VERSION = 1 };
enum { BUY = 'B', SELL = 'A', POST_ONLY_CODE = '6' };
enum { MARKET = '1', LIMIT = '2', STOP = '3', STOP_LIMIT = '4' };
enum { TIF_DAY = '0', TILL_CANCEL = '1', AT_OPEN = '2', TIF_IMMEDIATE = '3', TIF_FILL_OR_KILL = '4', AT_CLOSE = '7' };
enum { ALLOW = 'A', NEWEST = 'N', OLDEST = 'O', BOTH = 'B', DECREMENT = 'D' };
enum { PRE_OPEN = 1, PRE_CROSS = 2, CROSS = 4, TRADING = 7, HALT = 8, PAUSED = 9, PRE_CLOSE = 11, CLOSE = 12, UNAVAILABLE = 15 };
enum { CONTINUOUS, BATCH, SEALED, DUTCH };
enum { RESTING, BUYER, SELLER, MIDPOINT };
enum { SET_RULES, SET_PRICE_RULE, SET_MATCH_RULE, SET_INTERVAL, SET_MAKER_FEE, SET_TAKER_FEE, SET_BAND, SET_PAUSE,
       SET_DUTCH_START, SET_DUTCH_STEP, SET_REFERENCE };
enum { OWNER = 1, LARGEST_ORDER, LARGEST_OPEN, ORDERS_PER_SECOND, RESTRICTED, ALLOWED, SHORT_LIMIT, LOCKED };
enum { ACCEPTED = 'A', BUSTED = 'B', CANCELLED = 'C', DEPOSITED = 'D', EXPIRED = 'E', FILL = 'F', INDICATIVE = 'I',
       LIMIT_SET = 'L', REPLACED = 'M', CROSSED = 'O', PHASE_CHANGED = 'P', MASS_CANCELLED = 'Q', REJECTED = 'R',
       TRIGGERED = 'S', TRADED = 'T', WAS_SET = 'U', WAITING = 'W', WITHDRAWN = 'Y' };
enum { OK, UNKNOWN_INSTRUMENT, UNKNOWN_ACCOUNT, UNKNOWN_ORDER, DUPLICATE_ID, ACCOUNT_LOCKED, RATE, NOT_ALLOWED, PHASE,
       ACTION, SIDE, ORDER_TYPE, TIME_IN_FORCE, SELF_TRADE_POLICY, INSTRUCTION, NO_PRICE, PRICE_LIMITS, TICK, SIZE, LOT,
       SIZE_LIMITS, NOTIONAL, NO_COLLAR, FUNDS, SHARES, ORDER_LIMIT, OPEN_LIMIT, POST_ONLY, FILL_OR_KILL, NOT_TREASURY,
       AMOUNT, UNKNOWN_TRADE, ALREADY_BUSTED, BUST_LACKS, SETTING, VERSION_OF_RULES, BY_OWNER = 40, BY_MASS_CANCEL,
       IMMEDIATE, SELF_TRADE, REDUCED, AFTER_CROSS, PRICE_BAND, END_OF_DAY, INSTRUMENT_ENDED };
enum { NOWHERE, IN_BOOK, IN_WAITING };

typedef struct { /* the order record; see levelcast.records.layout */
    u8 length, rtype;
    uint16_t publisher;
    u32 instrument;
    u64 stamp, order_id;
    i64 price;
    u32 size;
    u8 flags, channel, action, side;
    u64 ts_recv;
    int32_t ts_in_delta;
    u32 sequence;
    i64 stop;
    u64 client, original, account;
    uint16_t destination;
    u8 type, tif, policy, command, instruction, reserved;
} Command;
_Static_assert(sizeof(Command) == COMMAND_SIZE, "the order record has 96 bytes");

typedef struct {
    u8 kind, reason, flags, side;
    u32 instrument;
    u64 number, account, client, order, trade;
    i64 price;
    u32 size, left;
} Event;
_Static_assert(sizeof(Event) == EVENT_SIZE, "an event has 64 bytes");

typedef struct {
    i64 bound;
    u32 left, filled, next, prev;
    u64 owner;
    u32 account, cash, shares, listing; /* indices; NONE without accounts */
    u64 client, number, id;
    i64 stop;
    u8 side, type, tif, policy, post_only, waits, where, unused;
} Order;

typedef struct { u32 head, tail; } Queue;
typedef struct { i64 price; Queue queue; } Level;
typedef struct { Level *levels; u32 n, room; Queue market; } Side; /* the best level is last */

typedef struct {
    Side side[2]; /* bids, asks */
    i64 tick, high, low, collar, last;
    i64 settings[SETTINGS];
    u32 phase, id, asset, cash;
    i64 lot, smallest, largest, band_reference, currency;
    u64 wake, start;
    i64 shown_price, shown_surplus;
    u64 shown_volume;
    Queue waiting;
    i64 lowest_buy_stop, highest_sell_stop; /* at least as wide as the waiting stops */
    u32 touched, live;
} Listing;

typedef struct {
    u64 number, owner;
    i64 largest_order, largest_open, orders_per_second;
    wide open_value;
    u64 second, used, live;
    u8 restricted, locked;
    u32 seen_at, cash_at; /* the last ones that were looked up, or NONE */
    u64 seen_gateway;
} Account;

typedef struct { u64 account, gateway, count; } Seen;
typedef struct { wide free, reserved; u64 account, key; i64 short_limit; u32 asset; u8 allowed; } Balance; /* key of the asset */
typedef struct { u64 key; wide held, due; } Asset;
typedef struct { i64 price, buyer_fee, seller_fee; u64 buyer, seller; u32 listing, size, busted; } PastTrade;

typedef struct { u64 *slots, mask, n; } Table; /* pairs of numbers to indices of a vector, which has the pairs */

#define VECTOR(type) struct { type *at; u64 n, room; }

typedef struct {
    int has_accounts;
    u32 treasury, rules;
    u64 now, count, order_count, trade_count, stamp;
    u64 next_wake; /* not after the first listing that wakes */
    VECTOR(Order) orders;
    u32 unused; /* chain of unused orders */
    VECTOR(Listing) listings;
    VECTOR(Account) accounts;
    VECTOR(Seen) seen;
    VECTOR(Balance) balances;
    VECTOR(Asset) assets;
    VECTOR(PastTrade) trades; /* a ring of KEPT_TRADES */
    Table order_table, listing_table, account_table, seen_table, balance_table, asset_table;
    VECTOR(Event) events; /* in the bytes object that the method will return */
    PyObject *bytes;
    VECTOR(u32) due, some, lefts;
    VECTOR(i64) prices;
    u64 touched;
    int lacks_memory;
    jmp_buf no_memory;
} Engine;

static _Noreturn void no_memory(Engine *e)
{
    e->lacks_memory = 1;
    longjmp(e->no_memory, 1);
}

/* Allocate memory; large arrays get huge pages, because commands touch them at random. */
static void *allocated(Engine *e, size_t size)
{
    enum { HUGE = 1 << 21 };
    void *got = size < HUGE ? malloc(size) : aligned_alloc(HUGE, (size + HUGE - 1) / HUGE * HUGE);
    if (got == NULL)
        no_memory(e);
#ifdef MADV_HUGEPAGE
    if (size >= HUGE)
        madvise(got, size, MADV_HUGEPAGE);
#endif
    return got;
}

/* Return a larger array with the first `n` elements of another, which is freed. */
static void *grown(Engine *e, void *at, u64 n, u64 *room, u64 needed, size_t size)
{
    u64 more = *room ? *room : 16;
    while (more < needed)
        more *= 2;
    void *got = allocated(e, more * size);
    if (n)
        memcpy(got, at, n * size);
    free(at);
    *room = more;
    return got;
}

#define ROOM(e, vector, more)                                                                                          \
    do {                                                                                                               \
        if ((vector).n + (more) > (vector).room)                                                                       \
            (vector).at = grown(e, (vector).at, (vector).n, &(vector).room, (vector).n + (more), sizeof *(vector).at);\
    } while (0)
#define PUSH(e, vector, value)                                                                                         \
    do {                                                                                                               \
        ROOM(e, vector, 1);                                                                                            \
        (vector).at[(vector).n++] = (value);                                                                           \
    } while (0)

static inline u64 hashed(u64 a, u64 b)
{
    u64 h = (a + 0x9E3779B97F4A7C15u) * 0xBF58476D1CE4E5B9u ^ b * 0x94D049BB133111EBu;
    h ^= h >> 29;
    h *= 0xD6E8FEB86659FD93u;
    return h ^ h >> 32;
}

/* Tables: a slot is 0, or tag << 32 | index + 1; the vector at the index decides whether the pair is the one. */

typedef int Same(const Engine *, u32 at, u64 a, u64 b);

static int order_is(const Engine *e, u32 at, u64 number, u64 client)
{
    return e->orders.at[at].client == client && e->orders.at[at].number == number;
}

static int listing_is(const Engine *e, u32 at, u64 id, u64 zero) { return e->listings.at[at].id == id + zero; }
static int account_is(const Engine *e, u32 at, u64 number, u64 zero) { return e->accounts.at[at].number == number + zero; }
static int asset_is(const Engine *e, u32 at, u64 key, u64 zero) { return e->assets.at[at].key == key + zero; }

static int seen_is(const Engine *e, u32 at, u64 account, u64 gateway)
{
    return e->seen.at[at].account == account && e->seen.at[at].gateway == gateway;
}

static int balance_is(const Engine *e, u32 at, u64 account, u64 key)
{
    return e->balances.at[at].account == account && e->balances.at[at].key == key;
}

static inline u64 tag_of(u64 a, u64 b) { return hashed(a, b) >> 32; }

static inline u32 table_get(const Engine *e, const Table *table, Same *same, u64 a, u64 b)
{
    u64 tag = tag_of(a, b);
    for (u64 i = tag & table->mask;; i = (i + 1) & table->mask) {
        u64 slot = table->slots[i];
        if (slot == 0)
            return NONE;
        if (slot >> 32 == tag && same(e, (u32)slot - 1, a, b))
            return (u32)slot - 1;
    }
}

static void table_make(Engine *e, Table *table, u64 count)
{
    u64 *slots = allocated(e, count * sizeof *slots), mask = count - 1;
    memset(slots, 0, count * sizeof *slots);
    for (u64 i = 0; table->slots != NULL && i <= table->mask; i++) {
        if (table->slots[i] == 0)
            continue;
        u64 at = (table->slots[i] >> 32) & mask;
        while (slots[at])
            at = (at + 1) & mask;
        slots[at] = table->slots[i];
    }
    free(table->slots);
    table->slots = slots;
    table->mask = mask;
}

static void table_put(Engine *e, Table *table, u64 a, u64 b, u32 at)
{
    if (2 * ++table->n > table->mask)
        table_make(e, table, 2 * (table->mask + 1));
    u64 tag = tag_of(a, b), i = tag & table->mask;
    while (table->slots[i])
        i = (i + 1) & table->mask;
    table->slots[i] = tag << 32 | (at + 1);
}

/* Remove an entry, and move those behind it that would not be found any more. */
static void table_take(Table *table, u64 a, u64 b, u32 at)
{
    u64 tag = tag_of(a, b), i = tag & table->mask;
    while (table->slots[i] != (tag << 32 | (at + 1)))
        i = (i + 1) & table->mask;
    table->n--;
    for (u64 j = i;;) {
        j = (j + 1) & table->mask;
        if (table->slots[j] == 0)
            break;
        u64 home = (table->slots[j] >> 32) & table->mask;
        if (((j - home) & table->mask) >= ((j - i) & table->mask)) {
            table->slots[i] = table->slots[j];
            i = j;
        }
    }
    table->slots[i] = 0;
}

static inline u32 order_get(const Engine *e, u64 number, u64 client)
{
    return table_get(e, &e->order_table, order_is, number, client);
}

static inline u32 listing_get(const Engine *e, u64 id) { return table_get(e, &e->listing_table, listing_is, id, 0); }
static inline u32 account_get(const Engine *e, u64 number) { return table_get(e, &e->account_table, account_is, number, 0); }

static void order_put(Engine *e, u32 at)
{
    table_put(e, &e->order_table, e->orders.at[at].number, e->orders.at[at].client, at);
}

static void order_take(Engine *e, u32 at)
{
    table_take(&e->order_table, e->orders.at[at].number, e->orders.at[at].client, at);
}

static u32 order_make(Engine *e)
{
    u32 at = e->unused;
    if (at != NONE) {
        e->unused = e->orders.at[at].next;
        return at;
    }
    ROOM(e, e->orders, 1);
    return (u32)e->orders.n++;
}

static void order_free(Engine *e, u32 at)
{
    e->orders.at[at].next = e->unused;
    e->unused = at;
}

/* Events */

/* Make room for events in a bytes object, so that they are returned without a copy. */
static void event_room(Engine *e, u64 more)
{
    u64 room = 2 * e->events.room > e->events.n + more ? 2 * e->events.room : e->events.n + more;
    if (e->bytes == NULL)
        e->bytes = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(room * sizeof(Event)));
    else
        _PyBytes_Resize(&e->bytes, (Py_ssize_t)(room * sizeof(Event)));
    if (e->bytes == NULL)
        no_memory(e);
    e->events.at = (Event *)PyBytes_AS_STRING(e->bytes);
    e->events.room = room;
}

static inline Event *tell_blank(Engine *e, u8 kind)
{
    if (e->events.n == e->events.room)
        event_room(e, 16);
    Event *event = &e->events.at[e->events.n++];
    event->kind = kind;
    event->number = e->count;
    return event;
}

static void tell(Engine *e, u8 kind, const Order *o, i64 price, u32 size, u8 flags, u64 trade, u8 reason)
{
    Event *event = tell_blank(e, kind);
    event->reason = reason;
    event->flags = flags;
    event->side = o->side;
    event->instrument = e->listings.at[o->listing].id;
    event->account = o->number;
    event->client = o->client;
    event->order = o->id;
    event->trade = trade;
    event->price = price;
    event->size = size;
    event->left = o->left;
}

static void tell_command(Engine *e, u8 kind, const Command *c, u32 size, u8 reason)
{
    Event *event = tell_blank(e, kind);
    *event = (Event){kind, reason, 0, c->side, c->instrument, e->count, c->account, c->client, c->order_id, c->original,
                     c->price, size, 0};
}

static void refuse(Engine *e, const Command *c, u8 reason) { tell_command(e, REJECTED, c, c->size, reason); }

static void tell_market(Engine *e, u8 kind, const Listing *l, i64 price, u64 volume, i64 surplus)
{
    Event *event = tell_blank(e, kind);
    u8 side = surplus > 0 ? BUY : surplus < 0 ? SELL : 'N';
    *event = (Event){kind, 0, 0, side, l->id, e->count, 0, 0, volume, (u64)(surplus < 0 ? -surplus : surplus), price, 0, 0};
}

/* Phases */

static inline int in_call(const Listing *l) { return l->phase == PRE_OPEN || l->phase == PRE_CROSS || l->phase == PRE_CLOSE; }
static inline i64 rule_of(const Listing *l) { return l->settings[SET_MATCH_RULE]; }
static inline int is_continuous(const Listing *l) { return l->phase == TRADING && rule_of(l) == CONTINUOUS; }
static inline int gathers(const Listing *l) { return in_call(l) || (l->phase == TRADING && rule_of(l) == BATCH); }

static inline void touch(Engine *e, Listing *l)
{
    if (LIKELY(is_continuous(l)) || !gathers(l) || rule_of(l) == SEALED || l->touched)
        return;
    l->touched = 1;
    e->touched++;
}

static inline void wake_at(Engine *e, Listing *l, u64 time)
{
    l->wake = time;
    if (time && time < e->next_wake)
        e->next_wake = time;
}

/* Queues */

static inline void queue_append(Engine *e, Queue *queue, u32 at)
{
    Order *o = &e->orders.at[at];
    o->next = NONE;
    o->prev = queue->tail;
    if (queue->tail == NONE)
        queue->head = at;
    else
        e->orders.at[queue->tail].next = at;
    queue->tail = at;
}

static inline void queue_remove(Engine *e, Queue *queue, u32 at)
{
    Order *o = &e->orders.at[at];
    if (o->prev == NONE)
        queue->head = o->next;
    else
        e->orders.at[o->prev].next = o->next;
    if (o->next == NONE)
        queue->tail = o->prev;
    else
        e->orders.at[o->next].prev = o->prev;
}

/* Return the place of the first level that is not worse than the price. */
static inline u32 level_place(const Side *side, int buys, i64 price)
{
    i64 flip = buys ? 0 : -1; /* reverses the order of the offers' prices */
    const Level *from = side->levels;
    u32 n = side->n;
    price ^= flip;
    for (u32 near = 0; near < 3 && n > 0; near++, n--) /* most orders are near the best price */
        if ((from[n - 1].price ^ flip) < price)
            return n;
    for (u32 half; n > 1; n -= half) {
        half = n / 2;
        const Level *middle = from + half;
        from = (middle[-1].price ^ flip) < price ? middle : from;
    }
    return n ? (u32)(from - side->levels) + ((from->price ^ flip) < price) : 0;
}

static inline Side *side_of(Listing *l, u8 side) { return &l->side[side != BUY]; }
static inline Side *other_side(Listing *l, u8 side) { return &l->side[side == BUY]; }

static Queue *queue_for(Engine *e, Listing *l, const Order *o)
{
    Side *side = side_of(l, o->side);
    if (o->type == MARKET)
        return &side->market;
    u32 at = level_place(side, o->side == BUY, o->bound);
    if (at < side->n && side->levels[at].price == o->bound)
        return &side->levels[at].queue;
    if (side->n == side->room) {
        u64 room = side->room;
        side->levels = grown(e, side->levels, side->n, &room, side->n + 1, sizeof *side->levels);
        side->room = (u32)room;
    }
    memmove(side->levels + at + 1, side->levels + at, (side->n - at) * sizeof *side->levels);
    side->n++;
    side->levels[at] = (Level){o->bound, {NONE, NONE}};
    return &side->levels[at].queue;
}

static inline void registered(Engine *e, u32 at, u8 where)
{
    Order *o = &e->orders.at[at];
    Listing *l = &e->listings.at[o->listing];
    o->where = where;
    order_put(e, at);
    l->live++;
    if (o->account != NONE)
        e->accounts.at[o->account].live++;
    touch(e, l);
}

static void book_add(Engine *e, u32 at)
{
    Order *o = &e->orders.at[at];
    queue_append(e, queue_for(e, &e->listings.at[o->listing], o), at);
    registered(e, at, IN_BOOK);
}

static void waiting_add(Engine *e, u32 at)
{
    Order *o = &e->orders.at[at];
    Listing *l = &e->listings.at[o->listing];
    queue_append(e, &l->waiting, at);
    if (o->type == STOP || o->type == STOP_LIMIT) {
        if (o->side == BUY && o->stop < l->lowest_buy_stop)
            l->lowest_buy_stop = o->stop;
        if (o->side != BUY && o->stop > l->highest_sell_stop)
            l->highest_sell_stop = o->stop;
    }
    registered(e, at, IN_WAITING);
}

static void book_remove(Engine *e, u32 at)
{
    Order *o = &e->orders.at[at];
    Listing *l = &e->listings.at[o->listing];
    if (o->where == IN_WAITING)
        queue_remove(e, &l->waiting, at);
    else if (o->type == MARKET)
        queue_remove(e, &side_of(l, o->side)->market, at);
    else {
        Side *side = side_of(l, o->side);
        u32 place = level_place(side, o->side == BUY, o->bound);
        Level *level = &side->levels[place];
        queue_remove(e, &level->queue, at);
        if (level->queue.head == NONE) {
            side->n--;
            memmove(level, level + 1, (side->n - place) * sizeof *level);
        }
    }
    o->where = NOWHERE;
    order_take(e, at);
    l->live--;
    if (o->account != NONE)
        e->accounts.at[o->account].live--;
    touch(e, l);
}

/* Take an order out of its queue, if it is in one, and free it. An incoming order is freed by whoever placed it. */
static void book_drop(Engine *e, u32 at)
{
    if (e->orders.at[at].where == NOWHERE)
        return;
    book_remove(e, at);
    order_free(e, at);
}

static inline u32 best_order(const Side *side) { return side->n ? side->levels[side->n - 1].queue.head : NONE; }

/* The next order of a side in book order: first market orders, then by price and place. `level` starts as side->n. */
static inline u32 first_ranked(const Side *side, u32 *level)
{
    *level = side->n;
    return best_order(side);
}

static inline u32 next_ranked(const Engine *e, const Side *side, u32 *level, u32 at)
{
    u32 next = e->orders.at[at].next;
    if (next != NONE)
        return next;
    return --*level ? side->levels[*level - 1].queue.head : NONE;
}

/* Append the orders of a side in book order to `some`. */
static void collect_side(Engine *e, const Side *side)
{
    u32 level;
    for (u32 at = side->market.head; at != NONE; at = e->orders.at[at].next)
        PUSH(e, e->some, at);
    for (u32 at = first_ranked(side, &level); at != NONE; at = next_ranked(e, side, &level, at))
        PUSH(e, e->some, at);
}

static void collect(Engine *e, const Listing *l, int waiting)
{
    e->some.n = 0;
    collect_side(e, &l->side[0]);
    collect_side(e, &l->side[1]);
    for (u32 at = waiting ? l->waiting.head : NONE; at != NONE; at = e->orders.at[at].next)
        PUSH(e, e->some, at);
}
