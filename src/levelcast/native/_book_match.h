/* Continuous trading (M4 to M7) and auctions (M10 to M12). See pure_book_match.py and pure_book_auction.py. */

static void set_phase(Engine *e, u32 listing, u32 action);

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

static void accept_clock(Engine *e, u32 at)
{
    Order *taker = &e->orders.at[at];
    Listing *l = &e->listings.at[taker->listing];
    i64 interval = l->settings[SET_INTERVAL];
    u64 passed = interval && e->stamp > l->start ? (e->stamp - l->start) / (u64)interval : 0;
    wide price = l->settings[SET_DUTCH_START] - (wide)l->settings[SET_DUTCH_STEP] * passed;
    if (price <= 0 || price > taker->bound)
        return;
    while (taker->left) {
        u32 lot_at = best_order(&l->side[1]);
        if (lot_at == NONE || e->orders.at[lot_at].bound > price)
            return;
        Order *lot = &e->orders.at[lot_at];
        if (kept_apart(taker, lot))
            own_orders_meet(e, at, lot_at);
        else
            trade(e, at, lot_at, (i64)price, taker->left < lot->left ? taker->left : lot->left, 0);
    }
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

/* Auctions */

typedef struct { i64 price; u64 volume; i64 surplus; } Clearing;

static int by_price(const void *a, const void *b)
{
    i64 x = *(const i64 *)a, y = *(const i64 *)b;
    return (x > y) - (x < y);
}

static inline i64 reference_of(const Listing *l) { return l->last ? l->last : l->settings[SET_REFERENCE]; }

/* Write the bounds of the orders of `some` as candidates, with the ticks beside them and the reference. */
static void make_candidates(Engine *e, const Listing *l)
{
    i64 least = INT64_MAX, most = 0;
    e->prices.n = 0;
    ROOM(e, e->prices, 3 * e->some.n + 1);
    for (u64 i = 0; i < e->some.n; i++) {
        i64 price = e->orders.at[e->some.at[i]].bound;
        least = price < least ? price : least;
        most = price > most ? price : most;
        if (e->prices.n > 2 && e->prices.at[e->prices.n - 1] == price)
            continue;
        e->prices.at[e->prices.n++] = price - l->tick;
        e->prices.at[e->prices.n++] = price + l->tick;
        e->prices.at[e->prices.n++] = price;
    }
    e->prices.at[e->prices.n++] = reference_of(l) / l->tick * l->tick;
    qsort(e->prices.at, e->prices.n, sizeof(i64), by_price);
    u64 kept = 0;
    for (u64 i = 0; i < e->prices.n; i++) {
        i64 price = e->prices.at[i];
        if (price >= least && price <= most && (kept == 0 || e->prices.at[kept - 1] != price))
            e->prices.at[kept++] = price;
    }
    e->prices.n = kept;
}

typedef struct { i64 bound; u64 size; } Depth;

static int by_bound(const void *a, const void *b)
{
    i64 x = ((const Depth *)a)->bound, y = ((const Depth *)b)->bound;
    return (x > y) - (x < y);
}

/* Whether candidate a is a better clearing price than b, by volume and surplus only. */
static inline int better(const Clearing *a, const Clearing *b)
{
    if (a->volume != b->volume)
        return a->volume > b->volume;
    return llabs(a->surplus) < llabs(b->surplus);
}

/* Choose by M10 among the candidates, which are sorted by price. */
static Clearing choose(const Listing *l, const Clearing *found, u64 n)
{
    const Clearing *best = NULL, *last = NULL;
    int all_buy = 1, all_sell = 1;
    i64 reference = reference_of(l);
    for (u64 i = 0; i < n; i++)
        if (best == NULL || better(&found[i], best))
            best = &found[i];
    if (best == NULL || best->volume == 0)
        return (Clearing){0, 0, 0};
    Clearing top = *best, nearest = *best;
    for (u64 i = 0; i < n; i++) {
        const Clearing *each = &found[i];
        if (better(&top, each) || better(each, &top))
            continue;
        all_buy &= each->surplus > 0;
        all_sell &= each->surplus < 0;
        last = each;
        if (llabs(each->price - reference) <= llabs(nearest.price - reference))
            nearest = *each;
    }
    if (all_sell)
        return *best;
    return all_buy || !reference ? *last : nearest;
}

/* Return price, volume and surplus of an auction of the book now; volume 0: none. */
static Clearing clearing(Engine *e, const Listing *l)
{
    e->some.n = 0;
    collect_side(e, &l->side[0]);
    u64 buys = e->some.n;
    collect_side(e, &l->side[1]);
    u64 sells = e->some.n - buys;
    if (!buys || !sells)
        return (Clearing){0, 0, 0};
    make_candidates(e, l);
    Depth *depth = malloc((buys + sells) * sizeof *depth);
    Clearing *found = malloc(e->prices.n * sizeof *found);
    if (depth == NULL || found == NULL) {
        free(depth);
        free(found);
        e->lacks_memory = 1;
        longjmp(e->no_memory, 1);
    }
    u64 demand = 0, supply = 0;
    for (u64 i = 0; i < buys + sells; i++) {
        const Order *o = &e->orders.at[e->some.at[i]];
        depth[i] = (Depth){o->bound, o->left};
        demand += i < buys ? o->left : 0;
    }
    qsort(depth, buys, sizeof *depth, by_bound);
    qsort(depth + buys, sells, sizeof *depth, by_bound);
    u64 buy = 0, sell = buys;
    for (u64 i = 0; i < e->prices.n; i++) {
        i64 price = e->prices.at[i];
        for (; buy < buys && depth[buy].bound < price; buy++)
            demand -= depth[buy].size;
        for (; sell < buys + sells && depth[sell].bound <= price; sell++)
            supply += depth[sell].size;
        found[i] = (Clearing){price, demand < supply ? demand : supply, (i64)(demand - supply)};
    }
    Clearing chosen = choose(l, found, e->prices.n);
    free(depth);
    free(found);
    return chosen;
}

/* The orders that may trade at the price: market orders first, then by price, then by place. */
static u64 eligible(Engine *e, const Listing *l, i64 price, u64 *sells)
{
    u64 buys = 0;
    e->some.n = e->lefts.n = 0;
    for (int side = 0; side < 2; side++) {
        u64 first = e->some.n, kept = first;
        collect_side(e, &l->side[side]);
        ROOM(e, e->lefts, e->some.n - first);
        for (u64 i = first; i < e->some.n; i++) {
            u32 at = e->some.at[i];
            if (!reaches(&e->orders.at[at], price))
                continue;
            e->lefts.at[kept] = e->orders.at[at].left;
            e->some.at[kept++] = at;
        }
        e->some.n = e->lefts.n = kept;
        if (side == 0)
            buys = kept;
    }
    *sells = e->some.n - buys;
    return buys;
}

/* Cancel what would meet an order of its own owner at this price; return whether anything was. */
static int keep_owners_apart(Engine *e, const Listing *l, i64 price)
{
    u64 sells, buys = eligible(e, l, price, &sells), buy = 0, sell = buys;
    int found = 0;
    while (buy < buys && sell < buys + sells) {
        u32 *at = e->some.at, *left = e->lefts.at;
        u64 newer = e->orders.at[at[buy]].id > e->orders.at[at[sell]].id ? buy : sell, older = buy + sell - newer;
        if (kept_apart(&e->orders.at[at[newer]], &e->orders.at[at[older]])) {
            u32 of_newer = left[newer], of_older = left[older];
            own_amounts(e->orders.at[at[newer]].policy, &of_newer, &of_older);
            cancel_own(e, at[newer], at[older], of_newer, of_older);
            left[newer] -= of_newer;
            left[older] -= of_older;
            found = 1;
        } else {
            u32 size = left[buy] < left[sell] ? left[buy] : left[sell];
            left[buy] -= size;
            left[sell] -= size;
        }
        buy += left[buy] == 0;
        sell += left[sell] == 0;
    }
    return found;
}

static void allocate(Engine *e, const Listing *l, i64 price)
{
    u64 sells, buys = eligible(e, l, price, &sells), buy = 0, sell = buys;
    while (buy < buys && sell < buys + sells) {
        u32 *left = e->lefts.at, size = left[buy] < left[sell] ? left[buy] : left[sell];
        trade(e, e->some.at[buy], e->some.at[sell], price, size, 1);
        left[buy] -= size;
        left[sell] -= size;
        buy += left[buy] == 0;
        sell += left[sell] == 0;
    }
}

static int is_bid_for(const Order *bid, const Order *lot)
{
    const Order *newer = bid->id > lot->id ? bid : lot, *older = bid->id > lot->id ? lot : bid;
    return bid->bound >= lot->bound && bid->left >= lot->left && !kept_apart(newer, older);
}

/* Sell a lot to its highest bidder, at the price of the second highest bidder or the reserve (M11). */
static void sell_lot(Engine *e, Listing *l, u32 lot_at)
{
    const Order *lot = &e->orders.at[lot_at];
    u32 winner = NONE, level;
    i64 price = lot->bound;
    for (u32 at = first_ranked(&l->side[0], &level); at != NONE; at = next_ranked(e, &l->side[0], &level, at)) {
        if (!is_bid_for(&e->orders.at[at], lot))
            continue;
        if (winner == NONE)
            winner = at;
        else if (e->orders.at[at].owner != e->orders.at[winner].owner) {
            price = e->orders.at[at].bound;
            break;
        }
    }
    if (winner == NONE)
        return;
    tell_market(e, CROSSED, l, price, lot->left, 0);
    trade(e, winner, lot_at, price, lot->left, 1);
}

static void sealed_round(Engine *e, Listing *l)
{
    e->some.n = 0;
    collect_side(e, &l->side[1]);
    for (u64 i = 0; i < e->some.n; i++)
        sell_lot(e, l, e->some.at[i]);
    collect(e, l, 0);
    for (u64 i = 0; i < e->some.n; i++)
        reduce(e, e->some.at[i], e->orders.at[e->some.at[i]].left, AFTER_CROSS, CANCELLED);
}

static void cross(Engine *e, Listing *l)
{
    if (rule_of(l) == SEALED) {
        sealed_round(e, l);
        return;
    }
    Clearing found = clearing(e, l);
    while (found.volume && keep_owners_apart(e, l, found.price))
        found = clearing(e, l);
    if (found.volume) {
        tell_market(e, CROSSED, l, found.price, found.volume, found.surplus);
        allocate(e, l, found.price);
        l->last = l->band_reference = found.price;
    }
    collect(e, l, 0);
    for (u64 i = 0; i < e->some.n; i++) {
        const Order *o = &e->orders.at[e->some.at[i]];
        if (o->tif == AT_OPEN || o->tif == AT_CLOSE || o->type == MARKET)
            reduce(e, e->some.at[i], o->left, AFTER_CROSS, CANCELLED);
    }
}

/* Phases (M9) */

static void set_wake(Engine *e, Listing *l)
{
    u64 interval = (u64)l->settings[SET_INTERVAL];
    wake_at(e, l, rule_of(l) == BATCH && interval ? (e->now / interval + 1) * interval : 0);
}

static void expire(Engine *e, Listing *l, u8 reason)
{
    collect(e, l, 1);
    for (u64 i = 0; i < e->some.n; i++) {
        const Order *o = &e->orders.at[e->some.at[i]];
        if (reason == INSTRUMENT_ENDED || o->tif != TILL_CANCEL)
            reduce(e, e->some.at[i], o->left, reason, EXPIRED);
    }
}

static void set_phase(Engine *e, u32 listing, u32 action)
{
    if (action == 0 || action == 14)
        return;
    Listing *l = &e->listings.at[listing];
    u32 was = l->phase;
    l->phase = action;
    l->wake = 0;
    l->shown_price = l->shown_surplus = 0;
    l->shown_volume = 0;
    Event *event = tell_blank(e, PHASE_CHANGED);
    *event = (Event){PHASE_CHANGED, 0, (u8)action, 'N', l->id, e->count, 0, 0, 0, 0, 0, 0, 0};
    if (action == PRE_CLOSE)
        join_close(e, l);
    else if (action == CROSS)
        cross(e, l);
    else if (action == TRADING) {
        if (rule_of(l) == CONTINUOUS || rule_of(l) == BATCH) {
            cross(e, l);
            set_wake(e, l);
            run_stops(e, listing);
        }
        l->start = e->now;
    } else if (action == CLOSE)
        expire(e, l, END_OF_DAY);
    else if (action == UNAVAILABLE && was != UNAVAILABLE)
        expire(e, l, INSTRUMENT_ENDED);
    touch(e, l);
}
