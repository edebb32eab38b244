/* Continuous trading (M4 to M7): price, then place; own orders; fill or kill; stops; the price band. See pure_book_match.py. */

static void set_phase(Engine *e, u32 listing, u32 action);
static void accept_clock(Engine *e, u32 at);

static inline int reaches(const Order *o, i64 price) { return o->side == BUY ? o->bound >= price : o->bound <= price; }

static inline int may_rest(const Order *o)
{
    return o->type != MARKET && o->type != STOP && o->tif != TIF_IMMEDIATE && o->tif != TIF_FILL_OR_KILL;
}

static inline i64 trade_price(const Listing *l, const Order *taker, const Order *maker)
{
    i64 rule = l->settings[SET_PRICE_RULE];
    if (LIKELY(rule == RESTING) || taker->type == MARKET || taker->type == STOP)
        return maker->bound;
    if (rule != MIDPOINT)
        return (taker->side == BUY) == (rule == BUYER) ? taker->bound : maker->bound;
    wide total = (wide)taker->bound + maker->bound, twice = (wide)2 * l->tick;
    if (maker->side == BUY) {
        i64 price = (i64)((total + twice - 1) / twice * l->tick);
        return price < maker->bound ? price : maker->bound;
    }
    i64 price = (i64)(total / twice * l->tick);
    return price > maker->bound ? price : maker->bound;
}

static inline int outside_band(const Listing *l, i64 price)
{
    i64 band = l->settings[SET_BAND], away = price - l->band_reference;
    return band > 0 && l->band_reference > 0 && (away > band || -away > band);
}

static inline int kept_apart(const Order *newer, const Order *older)
{
    return newer->owner == older->owner && newer->policy != ALLOW;
}

/* Cancel a part of an order, or all of it, and free it if it was in a queue and nothing is left. */
static void reduce(Engine *e, u32 at, u32 size, u8 reason, u8 kind)
{
    Order *o = &e->orders.at[at];
    hold(e, o, -(i64)size);
    o->left -= size;
    tell(e, kind, o, o->bound, size, 0, 0, reason);
    if (o->left)
        touch(e, &e->listings.at[o->listing]);
    else
        book_drop(e, at);
}

/* What the policy of the newer of two orders of one owner cancels of each (M7). */
static inline void own_amounts(u8 policy, u32 *newer_left, u32 *older_left)
{
    if (policy == DECREMENT) {
        *newer_left = *older_left = *newer_left < *older_left ? *newer_left : *older_left;
        return;
    }
    *older_left = policy == OLDEST || policy == BOTH ? *older_left : 0;
    *newer_left = policy == NEWEST || policy == BOTH ? *newer_left : 0;
}

static void cancel_own(Engine *e, u32 newer, u32 older, u32 of_newer, u32 of_older)
{
    if (of_older)
        reduce(e, older, of_older, SELF_TRADE, CANCELLED);
    if (of_newer)
        reduce(e, newer, of_newer, SELF_TRADE, CANCELLED);
}

static void own_orders_meet(Engine *e, u32 newer, u32 older)
{
    u32 of_newer = e->orders.at[newer].left, of_older = e->orders.at[older].left;
    own_amounts(e->orders.at[newer].policy, &of_newer, &of_older);
    cancel_own(e, newer, older, of_newer, of_older);
}

/* Trade two orders; in an auction the buyer is named first, and no side is the taker. */
static void trade(Engine *e, u32 taker_at, u32 maker_at, i64 price, u32 size, int auctioned)
{
    Order *taker = &e->orders.at[taker_at], *maker = &e->orders.at[maker_at];
    Listing *l = &e->listings.at[taker->listing];
    int taker_buys = taker->side == BUY;
    e->trade_count++;
    settle(e, l, price, size, taker_buys ? taker : maker, taker_buys ? maker : taker, auctioned ? 0 : taker->side);
    u8 flags = auctioned ? 2 : 0;
    taker->left -= size;
    taker->filled += size;
    tell(e, TRADED, taker, price, size, flags, e->trade_count, OK);
    maker->left -= size;
    maker->filled += size;
    tell(e, FILL, maker, price, size, flags, e->trade_count, OK);
    l->last = price;
    if (!l->band_reference)
        l->band_reference = price;
    int maker_done = maker->left == 0;
    if (taker->left == 0)
        book_drop(e, taker_at);
    if (maker_done)
        book_drop(e, maker_at);
}

static u8 match(Engine *e, u32 at)
{
    Order *taker = &e->orders.at[at];
    Listing *l = &e->listings.at[taker->listing];
    Side *other = other_side(l, taker->side);
    while (taker->left) {
        u32 maker_at = best_order(other);
        if (maker_at == NONE)
            break;
        Order *maker = &e->orders.at[maker_at];
        if (!reaches(taker, maker->bound))
            break;
        if (kept_apart(taker, maker)) {
            own_orders_meet(e, at, maker_at);
            continue;
        }
        i64 price = trade_price(l, taker, maker);
        if (outside_band(l, price)) {
            set_phase(e, taker->listing, PRE_CROSS);
            wake_at(e, l, e->now + (u64)l->settings[SET_PAUSE]);
            return PRICE_BAND;
        }
        trade(e, at, maker_at, price, taker->left < maker->left ? taker->left : maker->left, 0);
    }
    return OK;
}

static int can_fill(const Engine *e, const Order *taker)
{
    Listing *l = &e->listings.at[taker->listing];
    const Side *other = other_side(l, taker->side);
    u64 wanted = taker->left;
    u32 level;
    for (u32 at = first_ranked(other, &level); at != NONE; at = next_ranked(e, other, &level, at)) {
        const Order *maker = &e->orders.at[at];
        if (!reaches(taker, maker->bound))
            return 0;
        if (kept_apart(taker, maker)) {
            if (taker->policy == OLDEST)
                continue;
            return 0;
        }
        if (outside_band(l, trade_price(l, taker, maker)))
            return 0;
        if (wanted <= maker->left)
            return 1;
        wanted -= maker->left;
    }
    return 0;
}

static void finish(Engine *e, u32 at, u8 reason)
{
    Order *o = &e->orders.at[at];
    if (!o->left)
        return;
    if (may_rest(o))
        book_add(e, at);
    else
        reduce(e, at, o->left, reason ? reason : IMMEDIATE, CANCELLED);
}

/* Let an order wait, trade or rest, as its instrument's phase and rule require. Free it if it is in no queue then. */
static void place(Engine *e, u32 at)
{
    Order *o = &e->orders.at[at];
    Listing *l = &e->listings.at[o->listing];
    if (o->waits)
        waiting_add(e, at);
    else if (LIKELY(is_continuous(l)))
        finish(e, at, match(e, at));
    else if (l->phase == TRADING && rule_of(l) == DUTCH && o->side == BUY) {
        accept_clock(e, at);
        if (o->left)
            reduce(e, at, o->left, IMMEDIATE, CANCELLED);
    } else
        book_add(e, at);
    if (o->where == NOWHERE)
        order_free(e, at);
}

/* Stops */

static inline int is_triggered(const Listing *l, const Order *o)
{
    if ((o->type != STOP && o->type != STOP_LIMIT) || !l->last)
        return 0;
    return o->side == BUY ? l->last >= o->stop : l->last <= o->stop;
}

static void trigger(Engine *e, u32 at)
{
    Order *o = &e->orders.at[at];
    o->waits = 0;
    tell(e, TRIGGERED, o, o->bound, o->left, 0, 0, OK);
    if (!is_continuous(&e->listings.at[o->listing])) {
        finish(e, at, PRICE_BAND);
        if (o->where == NOWHERE)
            order_free(e, at);
    } else if (o->tif == TIF_FILL_OR_KILL && !can_fill(e, o)) {
        reduce(e, at, o->left, FILL_OR_KILL, CANCELLED);
        order_free(e, at);
    } else
        place(e, at);
}

static void take_triggered(Engine *e, Listing *l)
{
    l->lowest_buy_stop = INT64_MAX;
    l->highest_sell_stop = INT64_MIN;
    for (u32 at = l->waiting.head, next; at != NONE; at = next) {
        Order *o = &e->orders.at[at];
        next = o->next;
        if (is_triggered(l, o)) {
            book_remove(e, at);
            PUSH(e, e->due, at);
        } else if (o->type == STOP || o->type == STOP_LIMIT) {
            if (o->side == BUY && o->stop < l->lowest_buy_stop)
                l->lowest_buy_stop = o->stop;
            if (o->side != BUY && o->stop > l->highest_sell_stop)
                l->highest_sell_stop = o->stop;
        }
    }
}

static inline void run_stops(Engine *e, u32 listing)
{
    Listing *l = &e->listings.at[listing];
    if (LIKELY(l->waiting.head == NONE))
        return;
    e->due.n = 0;
    for (u64 next = 0;;) {
        if (is_continuous(l) && l->last && (l->last >= l->lowest_buy_stop || l->last <= l->highest_sell_stop))
            take_triggered(e, l);
        if (next == e->due.n)
            return;
        trigger(e, e->due.at[next++]);
    }
}

static void join_close(Engine *e, Listing *l)
{
    for (u32 at = l->waiting.head, next; at != NONE; at = next) {
        Order *o = &e->orders.at[at];
        next = o->next;
        if (o->tif != AT_CLOSE)
            continue;
        book_remove(e, at);
        o->waits = 0;
        tell(e, TRIGGERED, o, o->bound, o->left, 0, 0, OK);
        book_add(e, at);
    }
}
