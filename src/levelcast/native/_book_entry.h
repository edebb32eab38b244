/* Admission of orders, replacements and mass cancels (M3, M5, M6, M8). See pure_book_entry.py. */

static u8 check_id(Engine *e, Account *account, u64 client)
{
    u64 gateway = client >> GATEWAY_BITS, count = client & (((u64)1 << GATEWAY_BITS) - 1);
    u32 at = account->seen_at;
    if (at == NONE || account->seen_gateway != gateway) {
        at = table_get(e, &e->seen_table, seen_is, account->number, gateway);
        if (at != NONE) {
            account->seen_at = at;
            account->seen_gateway = gateway;
        }
    }
    if (count <= (at == NONE ? 0 : e->seen.at[at].count))
        return DUPLICATE_ID;
    if (at == NONE) {
        at = (u32)e->seen.n;
        PUSH(e, e->seen, ((Seen){account->number, gateway, 0}));
        table_put(e, &e->seen_table, account->number, gateway, at);
    }
    e->seen.at[at].count = count;
    return OK;
}

static u8 check_account(Account *account, u64 stamp)
{
    if (account->locked)
        return ACCOUNT_LOCKED;
    if (account->orders_per_second) {
        u64 second = stamp / 1000000000u;
        if (second != account->second) {
            account->second = second;
            account->used = 0;
        }
        if (++account->used > (u64)account->orders_per_second)
            return RATE;
    }
    return OK;
}

static inline int takes_orders(const Listing *l)
{
    return (l->phase == TRADING && rule_of(l) != SEALED) || in_call(l);
}

static u8 check_kind(const Listing *l, const Command *c)
{
    int continuous = rule_of(l) == CONTINUOUS, stops = c->type == STOP || c->type == STOP_LIMIT;
    int rests = c->tif == TIF_DAY || c->tif == TILL_CANCEL;
    if (c->reserved || (c->instruction && c->instruction != POST_ONLY_CODE))
        return INSTRUCTION;
    if (c->side != BUY && c->side != SELL)
        return SIDE;
    if (c->type != MARKET && c->type != LIMIT && !stops)
        return ORDER_TYPE;
    if (!continuous && (stops || (c->type == MARKET && rule_of(l) != BATCH)))
        return ORDER_TYPE;
    if (!rests && c->tif != AT_OPEN && c->tif != TIF_IMMEDIATE && c->tif != TIF_FILL_OR_KILL && c->tif != AT_CLOSE)
        return TIME_IN_FORCE;
    if (stops && (c->tif == AT_OPEN || c->tif == AT_CLOSE))
        return TIME_IN_FORCE;
    if (!continuous && !rests)
        return TIME_IN_FORCE;
    if (c->instruction && (c->type != LIMIT || !rests))
        return INSTRUCTION;
    u8 p = c->policy;
    return p == ALLOW || p == NEWEST || p == OLDEST || p == BOTH || p == DECREMENT ? OK : SELF_TRADE_POLICY;
}

static u8 check_phase(const Listing *l, const Command *c)
{
    if (!takes_orders(l))
        return PHASE;
    if (c->tif == AT_OPEN && l->phase != PRE_OPEN && l->phase != PRE_CROSS)
        return PHASE;
    if ((c->tif == TIF_IMMEDIATE || c->tif == TIF_FILL_OR_KILL) && (c->type == MARKET || c->type == LIMIT) && in_call(l))
        return PHASE;
    return OK;
}

static inline int is_off(i64 number, i64 grid)
{
    if (LIKELY(grid == 1))
        return 0;
    if (LIKELY(number >> 32 == 0 && grid >> 32 == 0))
        return (u32)number % (u32)grid != 0;
    return (u64)number % (u64)grid != 0; /* neither is negative */
}

static u8 check_price(const Listing *l, i64 price)
{
    if (price == UNDEFINED)
        return NO_PRICE;
    if (price <= 0 || price > MAX_PRICE || price > l->high || price < l->low)
        return PRICE_LIMITS;
    return is_off(price, l->tick) ? TICK : OK;
}

static u8 check_stop_price(const Listing *l, i64 price)
{
    if (price == UNDEFINED)
        return NO_PRICE;
    if (price <= 0 || price > MAX_PRICE)
        return PRICE_LIMITS;
    return is_off(price, l->tick) ? TICK : OK;
}

static u8 check_size(const Listing *l, u32 size)
{
    if (size == 0 || size == NO_SIZE)
        return SIZE;
    if (is_off(size, l->lot))
        return LOT;
    return size < l->smallest || size > l->largest ? SIZE_LIMITS : OK;
}

static i64 collar_bound(const Listing *l, u8 side, i64 near)
{
    if (side == BUY) {
        wide bound = l->high;
        if (l->collar >= 0) {
            wide most = near ? (wide)near + l->collar : 0;
            bound = most < bound || !near ? most : bound;
        }
        return bound <= MAX_PRICE ? (i64)bound / l->tick * l->tick : 0;
    }
    wide bound = l->low;
    if (l->collar >= 0) {
        wide least = (wide)near - l->collar;
        bound = !near ? 0 : least > bound ? least : bound;
        if (near && bound < 1)
            bound = 1;
    }
    return (i64)((bound + l->tick - 1) / l->tick * l->tick);
}

static i64 near_price(const Listing *l, u8 side)
{
    if (reference_of(l))
        return reference_of(l);
    const Side *other = side == BUY ? &l->side[1] : &l->side[0];
    return other->n ? other->levels[other->n - 1].price : 0;
}

static i64 bound_of(const Listing *l, u8 side, u8 type, i64 price, i64 stop, u8 *reason)
{
    *reason = OK;
    if ((type == STOP || type == STOP_LIMIT) && (*reason = check_stop_price(l, stop)))
        return 0;
    if (LIKELY(type == LIMIT || type == STOP_LIMIT)) {
        *reason = check_price(l, price);
        return price;
    }
    i64 bound = collar_bound(l, side, type == STOP ? stop : near_price(l, side));
    if (bound <= 0)
        *reason = NO_COLLAR;
    return bound;
}

static u8 check_limits(Engine *e, const Listing *l, Account *account, u32 shares_at, u32 size, wide opened, wide cash,
                       i64 shares)
{
    if (account->restricted && (shares_at == NONE || !e->balances.at[shares_at].allowed))
        return NOT_ALLOWED;
    if (account->largest_order && size > account->largest_order)
        return ORDER_LIMIT;
    if (account->largest_open && opened > 0 && account->open_value + opened > account->largest_open)
        return OPEN_LIMIT;
    return lacks(e, cash_of(e, account, l), shares_at, cash, shares);
}

static u8 check_post_only(const Listing *l, u8 side, i64 bound)
{
    if (!is_continuous(l))
        return OK;
    const Side *other = side == BUY ? &l->side[1] : &l->side[0];
    if (!other->n)
        return OK;
    i64 best = other->levels[other->n - 1].price;
    return (side == BUY ? bound >= best : bound <= best) ? POST_ONLY : OK;
}

static void new_order(Engine *e, const Command *c, u32 account_at)
{
    u32 listing = listing_get(e, c->instrument);
    if (listing == NONE) {
        refuse(e, c, UNKNOWN_INSTRUMENT);
        return;
    }
    Listing *l = &e->listings.at[listing];
    Account *account = account_at == NONE ? NULL : &e->accounts.at[account_at];
    u32 shares_at = NONE;
    i64 bound = 0;
    u8 reason = check_kind(l, c);
    if (!reason)
        reason = check_phase(l, c);
    if (!reason)
        bound = bound_of(l, c->side, c->type, c->price, c->stop, &reason);
    if (!reason)
        reason = check_size(l, c->size);
    if (!reason && (wide)bound * c->size > MAX_NOTIONAL)
        reason = NOTIONAL;
    if (!reason && account != NULL) {
        shares_at = balance_get(e, account->number, l->id);
        reason = check_limits(e, l, account, shares_at, c->size, (wide)bound * c->size,
                              cash_needed(l, c->side, bound, c->size), c->side == BUY ? 0 : c->size);
    }
    if (!reason && account == NULL && order_get(e, c->account, c->client) != NONE)
        reason = DUPLICATE_ID;
    if (!reason && c->instruction)
        reason = check_post_only(l, c->side, bound);
    if (reason) {
        refuse(e, c, reason);
        return;
    }
    u32 at = order_make(e);
    Order *o = &e->orders.at[at];
    int stops = c->type == STOP || c->type == STOP_LIMIT, waits = stops || (c->tif == AT_CLOSE && l->phase != PRE_CLOSE);
    *o = (Order){.bound = bound, .left = c->size, .filled = 0, .next = NONE, .prev = NONE,
                 .owner = account ? account->owner : c->account, .account = account_at, .cash = NONE, .shares = NONE,
                 .listing = listing, .client = c->client, .number = c->account, .id = e->order_count + 1,
                 .stop = stops ? c->stop : 0, .side = c->side, .type = c->type, .tif = c->tif, .policy = c->policy,
                 .post_only = c->instruction != 0, .waits = (u8)waits, .where = NOWHERE, .unused = 0};
    if (c->tif == TIF_FILL_OR_KILL && !waits && !can_fill(e, o)) {
        order_free(e, at);
        refuse(e, c, FILL_OR_KILL);
        return;
    }
    e->order_count++;
    if (account != NULL) {
        u32 cash_at = cash_of(e, account, l);
        o->cash = cash_at == NONE ? balance_of(e, account->number, l->cash) : cash_at;
        o->shares = shares_at == NONE ? balance_of(e, account->number, l->asset) : shares_at;
        hold(e, o, c->size);
    }
    tell(e, waits ? WAITING : ACCEPTED, o, bound, c->size, 0, 0, OK);
    place(e, at);
    run_stops(e, listing);
}

static u8 check_replace(Engine *e, const Order *o, const Command *c, i64 *bound, i64 *stop)
{
    const Listing *l = &e->listings.at[o->listing];
    u8 reason = OK;
    *stop = c->stop == UNDEFINED ? o->stop : c->stop;
    *bound = o->bound;
    if (!takes_orders(l))
        reason = PHASE;
    else if (o->type != MARKET)
        *bound = bound_of(l, o->side, o->waits ? o->type : LIMIT, c->price, *stop, &reason);
    if (!reason)
        reason = check_size(l, c->size);
    if (!reason && (wide)*bound * c->size > MAX_NOTIONAL)
        reason = NOTIONAL;
    u32 left = c->size - o->filled;
    if (!reason && o->account != NONE) {
        wide opened = (wide)*bound * left - (wide)o->bound * o->left;
        wide cash = cash_needed(l, o->side, *bound, left) - cash_needed(l, o->side, o->bound, o->left);
        i64 shares = o->side == BUY ? 0 : (i64)left - (i64)o->left;
        reason = check_limits(e, l, &e->accounts.at[o->account], o->shares, c->size, opened, cash, shares);
    }
    if (!reason && o->post_only)
        reason = check_post_only(l, o->side, *bound);
    return reason;
}

static void replace(Engine *e, const Command *c)
{
    u32 at = order_get(e, c->account, c->original);
    if (at == NONE) {
        refuse(e, c, UNKNOWN_ORDER);
        return;
    }
    Order *o = &e->orders.at[at];
    u32 listing = o->listing;
    if (c->instrument && c->instrument != e->listings.at[listing].id) {
        refuse(e, c, UNKNOWN_INSTRUMENT);
        return;
    }
    u64 client = c->client ? c->client : o->client;
    if (!e->has_accounts && client != o->client && order_get(e, c->account, client) != NONE) {
        refuse(e, c, DUPLICATE_ID);
        return;
    }
    if (c->size <= o->filled) {
        reduce(e, at, o->left, REDUCED, CANCELLED);
        return;
    }
    i64 bound, stop;
    u8 reason = check_replace(e, o, c, &bound, &stop);
    if (reason) {
        refuse(e, c, reason);
        return;
    }
    u32 left = c->size - o->filled;
    int keeps = bound == o->bound && stop == o->stop && left <= o->left;
    if (!keeps)
        book_remove(e, at);
    hold(e, o, -(i64)o->left);
    o->bound = bound;
    o->stop = stop;
    o->left = left;
    hold(e, o, left);
    if (keeps && client != o->client) {
        order_take(e, at);
        o->client = client;
        order_put(e, at);
    }
    if (keeps)
        touch(e, &e->listings.at[listing]);
    o->client = client;
    tell(e, REPLACED, o, bound, left, (u8)keeps, 0, OK);
    if (!keeps) {
        place(e, at);
        run_stops(e, listing);
    }
}

static void mass_cancel(Engine *e, const Command *c, u32 account_at)
{
    u32 only = c->instrument ? listing_get(e, c->instrument) : NONE;
    if (c->instrument && only == NONE) {
        refuse(e, c, UNKNOWN_INSTRUMENT);
        return;
    }
    u32 gone = 0;
    for (u32 i = 0; i < e->listings.n; i++) {
        if ((only != NONE && i != only) || !e->listings.at[i].live)
            continue;
        if (account_at != NONE && !e->accounts.at[account_at].live)
            break;
        collect(e, &e->listings.at[i], 1);
        for (u64 k = 0; k < e->some.n; k++) {
            const Order *o = &e->orders.at[e->some.at[k]];
            if (o->number != c->account)
                continue;
            reduce(e, e->some.at[k], o->left, BY_MASS_CANCEL, CANCELLED);
            gone++;
        }
    }
    tell_command(e, MASS_CANCELLED, c, gone, OK);
}
