/* The state of the matching engine as canonical bytes (M14). See pure_book_snapshot.py. */

typedef struct { char magic[4]; u32 version, accounts, treasury, rules, zero; u64 now, count, orders, trades; } SavedHeader;
typedef struct { u64 key; u8 due[16]; } SavedAsset;
typedef struct {
    i64 id, currency, phase, tick, lot, smallest, largest, high, low, collar;
    u64 wake, start;
    i64 last, band_reference, settings[SETTINGS], shown_price;
    u64 shown_volume;
    i64 shown_surplus;
    u32 touched, zero;
} SavedListing;
typedef struct { u32 bids, asks, waiting, zero; } SavedCounts;
typedef struct {
    u64 id, number, client;
    i64 bound, stop;
    u64 owner;
    u32 left, filled;
    u8 side, type, tif, policy, post_only, waits, zero[2];
} SavedOrder;
typedef struct {
    u64 number, owner;
    i64 largest_order, largest_open, orders_per_second;
    u8 open_value[16];
    u64 second, used;
    u8 restricted, locked, zero[6];
} SavedAccount;
typedef struct { u64 account, asset; i64 short_limit, allowed; u8 free[16], reserved[16]; } SavedBalance;
typedef struct { u64 number; i64 price; u64 buyer, seller; i64 buyer_fee, seller_fee; u32 listing, size; u64 busted; } SavedTrade;

static const char MAGIC[4] = {'L', 'V', 'B', 'K'};
enum { SNAPSHOT_VERSION = 1 };

typedef struct { u8 *at; u64 n, room; } Bytes;

static void put(Engine *e, Bytes *out, const void *from, size_t size)
{
    if (out->n + size > out->room)
        out->at = grown(e, out->at, out->n, &out->room, out->n + size, 1);
    memcpy(out->at + out->n, from, size);
    out->n += size;
}

#define PUT(e, out, value) put(e, out, &(value), sizeof(value))

static void save_order(Engine *e, Bytes *out, const Order *o)
{
    SavedOrder saved = {o->id, o->number, o->client, o->bound, o->stop, o->owner, o->left, o->filled,
                        o->side, o->type, o->tif, o->policy, o->post_only, o->waits, {0}};
    PUT(e, out, saved);
}

static void save_balance(Engine *e, Bytes *out, const Balance *b)
{
    SavedBalance saved = {b->account, b->asset, b->short_limit, b->allowed, {0}, {0}};
    memcpy(saved.free, &b->free, 16);
    memcpy(saved.reserved, &b->reserved, 16);
    PUT(e, out, saved);
}

static void save_listing(Engine *e, Bytes *out, const Listing *l)
{
    SavedListing saved = {l->id, l->currency, l->phase, l->tick, l->lot, l->smallest, l->largest, l->high, l->low,
                          l->collar, l->wake, l->start, l->last, l->band_reference, {0}, l->shown_price,
                          l->shown_volume, l->shown_surplus, l->touched, 0};
    memcpy(saved.settings, l->settings, sizeof saved.settings);
    PUT(e, out, saved);
    e->some.n = 0;
    collect_side(e, &l->side[0]);
    u64 bids = e->some.n;
    collect(e, l, 0);
    u64 booked = e->some.n;
    collect(e, l, 1);
    SavedCounts counts = {(u32)bids, (u32)(booked - bids), (u32)(e->some.n - booked), 0};
    PUT(e, out, counts);
    for (u64 i = 0; i < e->some.n; i++)
        save_order(e, out, &e->orders.at[e->some.at[i]]);
}

static void save_ledger(Engine *e, Bytes *out)
{
    PUT(e, out, e->assets.n);
    for (u64 i = 0; i < e->assets.n; i++) {
        SavedAsset saved = {e->assets.at[i].key, {0}};
        memcpy(saved.due, &e->assets.at[i].due, 16);
        PUT(e, out, saved);
    }
    PUT(e, out, e->accounts.n);
    for (u64 i = 0; i < e->accounts.n; i++) {
        const Account *a = &e->accounts.at[i];
        SavedAccount saved = {a->number, a->owner, a->largest_order, a->largest_open, a->orders_per_second, {0},
                              a->second, a->used, a->restricted, a->locked, {0}};
        memcpy(saved.open_value, &a->open_value, 16);
        PUT(e, out, saved);
    }
    PUT(e, out, e->seen.n);
    if (e->seen.n)
        put(e, out, e->seen.at, e->seen.n * sizeof(Seen));
    PUT(e, out, e->balances.n);
    for (u64 i = 0; i < e->balances.n; i++)
        save_balance(e, out, &e->balances.at[i]);
    PUT(e, out, e->trades.n);
    for (u64 i = 0; i < e->trades.n; i++) {
        u64 number = e->trade_count - e->trades.n + i + 1;
        const PastTrade *t = &e->trades.at[(number - 1) % KEPT_TRADES];
        SavedTrade saved = {number, t->price, t->buyer, t->seller, t->buyer_fee, t->seller_fee, t->listing, t->size,
                            t->busted};
        PUT(e, out, saved);
    }
}

static void save(Engine *e, Bytes *out)
{
    SavedHeader header = {{0}, SNAPSHOT_VERSION, (u32)e->has_accounts, e->treasury, e->rules, 0, e->now, e->count,
                          e->order_count, e->trade_count};
    memcpy(header.magic, MAGIC, 4);
    PUT(e, out, header);
    save_ledger(e, out);
    PUT(e, out, e->listings.n);
    for (u64 i = 0; i < e->listings.n; i++)
        save_listing(e, out, &e->listings.at[i]);
}

/* Reading: each function returns 0, or -1 for bytes that are not a snapshot. */

typedef struct { const u8 *at; size_t left; } Source;

static int get(Source *from, void *to, size_t size)
{
    if (from->left < size)
        return -1;
    memcpy(to, from->at, size);
    from->at += size;
    from->left -= size;
    return 0;
}

#define GET(from, value) get(from, &(value), sizeof(value))

static int load_balances(Engine *e, Source *from)
{
    u64 n;
    SavedBalance b;
    if (GET(from, n) < 0)
        return -1;
    while (n--) {
        if (GET(from, b) < 0 || b.asset >= e->assets.n || balance_get(e, b.account, e->assets.at[b.asset].key) != NONE)
            return -1;
        u32 at = balance_of(e, b.account, (u32)b.asset);
        wide free_, reserved, sum;
        memcpy(&free_, b.free, 16);
        memcpy(&reserved, b.reserved, 16);
        if (__builtin_add_overflow(free_, reserved, &sum) || __builtin_add_overflow(e->assets.at[b.asset].held, sum, &sum))
            return -1; /* a forged snapshot */
        e->balances.at[at].short_limit = b.short_limit;
        e->balances.at[at].allowed = b.allowed != 0;
        move(e, at, free_, reserved);
    }
    return 0;
}

static int load_accounts(Engine *e, Source *from)
{
    u64 n;
    SavedAccount a;
    Seen seen;
    if (GET(from, n) < 0)
        return -1;
    while (n--) {
        if (GET(from, a) < 0 || account_get(e, a.number) != NONE)
            return -1;
        u32 at = account_of(e, a.number); /* may move the accounts */
        Account *account = &e->accounts.at[at];
        account->owner = a.owner;
        account->largest_order = a.largest_order;
        account->largest_open = a.largest_open;
        account->orders_per_second = a.orders_per_second;
        memcpy(&account->open_value, a.open_value, 16);
        account->second = a.second;
        account->used = a.used;
        account->restricted = a.restricted;
        account->locked = a.locked;
    }
    if (GET(from, n) < 0)
        return -1;
    while (n--) {
        if (GET(from, seen) < 0 || table_get(e, &e->seen_table, seen_is, seen.account, seen.gateway) != NONE)
            return -1;
        table_put(e, &e->seen_table, seen.account, seen.gateway, (u32)e->seen.n);
        PUSH(e, e->seen, seen);
    }
    return 0;
}

static int load_ledger(Engine *e, Source *from)
{
    u64 n;
    SavedAsset asset;
    SavedTrade t;
    if (GET(from, n) < 0)
        return -1;
    while (n--) {
        if (GET(from, asset) < 0 || table_get(e, &e->asset_table, asset_is, asset.key, 0) != NONE)
            return -1;
        u32 at = asset_of(e, asset.key);
        memcpy(&e->assets.at[at].due, asset.due, 16);
    }
    if (load_accounts(e, from) < 0 || load_balances(e, from) < 0 || GET(from, n) < 0)
        return -1;
    if (n != (!e->has_accounts ? 0 : e->trade_count < KEPT_TRADES ? e->trade_count : KEPT_TRADES) || n > from->left / sizeof t)
        return -1;
    ROOM(e, e->trades, n);
    e->trades.n = n;
    for (u64 i = 0; i < n; i++) {
        if (GET(from, t) < 0 || t.number != e->trade_count - n + i + 1)
            return -1;
        e->trades.at[(t.number - 1) % KEPT_TRADES] =
            (PastTrade){t.price, t.buyer_fee, t.seller_fee, t.buyer, t.seller, t.listing, t.size, t.busted != 0};
    }
    return 0;
}

static int load_order(Engine *e, Source *from, u32 listing, int waiting, int buys)
{
    SavedOrder s;
    if (GET(from, s) < 0 || s.left == 0 || order_get(e, s.number, s.client) != NONE)
        return -1;
    if (!waiting && (s.side == BUY) != buys)
        return -1;
    const Listing *l = &e->listings.at[listing];
    u32 account = e->has_accounts ? account_get(e, s.number) : NONE;
    if (e->has_accounts && account == NONE)
        return -1;
    u32 at = order_make(e);
    e->orders.at[at] = (Order){.bound = s.bound, .left = s.left, .filled = s.filled, .owner = s.owner,
        .account = account, .cash = NONE, .shares = NONE, .listing = listing, .client = s.client, .number = s.number,
        .id = s.id, .stop = s.stop, .side = s.side, .type = s.type, .tif = s.tif, .policy = s.policy,
        .post_only = s.post_only, .waits = s.waits};
    if (account != NONE) {
        e->orders.at[at].cash = balance_of(e, s.number, l->cash);
        e->orders.at[at].shares = balance_of(e, s.number, l->asset);
    }
    if (waiting)
        waiting_add(e, at);
    else
        book_add(e, at);
    return 0;
}

static u32 listing_make(Engine *e, u32 id, i64 currency)
{
    u32 at = (u32)e->listings.n;
    Queue empty = {NONE, NONE};
    Listing made = {.id = id, .currency = currency, .phase = UNAVAILABLE, .waiting = empty,
                    .lowest_buy_stop = INT64_MAX, .highest_sell_stop = INT64_MIN};
    made.side[0].market = made.side[1].market = empty;
    made.asset = asset_of(e, id);
    made.cash = asset_of(e, CURRENCY | (u64)currency);
    PUSH(e, e->listings, made);
    table_put(e, &e->listing_table, id, 0, at);
    return at;
}

static int load_listing(Engine *e, Source *from)
{
    SavedListing s;
    SavedCounts counts;
    if (GET(from, s) < 0 || GET(from, counts) < 0 || s.id < 1 || s.id > UINT32_MAX || s.tick < 1 || s.lot < 1 ||
        s.currency < 0 || s.currency > UINT32_MAX || listing_get(e, (u64)s.id) != NONE)
        return -1;
    u32 at = listing_make(e, (u32)s.id, s.currency);
    Listing *l = &e->listings.at[at];
    l->phase = (u32)s.phase;
    l->tick = s.tick, l->lot = s.lot, l->smallest = s.smallest, l->largest = s.largest;
    l->high = s.high, l->low = s.low, l->collar = s.collar, l->start = s.start;
    wake_at(e, l, s.wake);
    l->last = s.last, l->band_reference = s.band_reference;
    memcpy(l->settings, s.settings, sizeof s.settings);
    l->shown_price = s.shown_price, l->shown_volume = s.shown_volume, l->shown_surplus = s.shown_surplus;
    u64 booked = (u64)counts.bids + counts.asks;
    for (u64 i = 0; i < booked + counts.waiting; i++)
        if (load_order(e, from, at, i >= booked, i < counts.bids) < 0)
            return -1;
    l->touched = s.touched != 0;
    return 0;
}

static int conserved(const Engine *e)
{
    for (u64 i = 0; i < e->assets.n; i++)
        if (e->assets.at[i].held != e->assets.at[i].due)
            return 0;
    return 1;
}

static int load(Engine *e, Source *from)
{
    SavedHeader header;
    u64 n;
    if (GET(from, header) < 0 || memcmp(header.magic, MAGIC, 4) != 0 || header.version != SNAPSHOT_VERSION ||
        header.accounts > 1 || header.treasury > 0xFFFF || header.rules < 1 || header.rules > RULES_VERSION)
        return -2;
    e->has_accounts = (int)header.accounts;
    e->treasury = header.treasury;
    e->rules = header.rules;
    e->now = header.now;
    e->count = header.count;
    e->order_count = header.orders;
    e->trade_count = header.trades;
    if (load_ledger(e, from) < 0 || GET(from, n) < 0)
        return -1;
    while (n--)
        if (load_listing(e, from) < 0)
            return -1;
    e->touched = 0;
    for (u64 i = 0; i < e->listings.n; i++)
        e->touched += e->listings.at[i].touched;
    return from->left == 0 && conserved(e) ? 0 : -1;
}
