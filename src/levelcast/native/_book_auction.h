/* Auctions: the call auction (M10), the sealed round (M11) and the Dutch clock (M12). See pure_book_auction.py. */

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

/* Take lots at the price of the clock at the order's stamp, those with the lowest reserve first (M12). */
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
