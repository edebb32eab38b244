/* The ledger of the matching engine (S1 to S6). See pure_book_ledger.py. */

static u32 asset_of(Engine *e, u64 key)
{
    u32 at = table_get(e, &e->asset_table, asset_is, key, 0);
    if (at == NONE) {
        at = (u32)e->assets.n;
        PUSH(e, e->assets, ((Asset){key, 0, 0}));
        table_put(e, &e->asset_table, key, 0, at);
    }
    return at;
}

static inline u32 balance_get(const Engine *e, u64 account, u64 key)
{
    return table_get(e, &e->balance_table, balance_is, account, key);
}

static u32 balance_of(Engine *e, u64 account, u32 asset)
{
    u64 key = e->assets.at[asset].key;
    u32 at = balance_get(e, account, key);
    if (at == NONE) {
        at = (u32)e->balances.n;
        PUSH(e, e->balances, ((Balance){.account = account, .key = key, .asset = asset}));
        table_put(e, &e->balance_table, account, key, at);
    }
    return at;
}

static inline void move(Engine *e, u32 at, wide free_, wide reserved)
{
    Balance *balance = &e->balances.at[at];
    balance->free += free_;
    balance->reserved += reserved;
    e->assets.at[balance->asset].held += free_ + reserved;
}

static inline i64 reserved_fee(const Listing *l)
{
    i64 maker = l->settings[SET_MAKER_FEE], taker = l->settings[SET_TAKER_FEE];
    return maker > taker ? maker : taker;
}

static inline wide cash_needed(const Listing *l, u8 side, i64 bound, i64 size)
{
    wide fee = reserved_fee(l);
    return (side == BUY ? bound + fee : fee) * size;
}

/* The account's balance of the listing's currency; the last one is remembered. */
static inline u32 cash_of(Engine *e, Account *account, const Listing *l)
{
    u32 at = account->cash_at;
    if (LIKELY(at != NONE && e->balances.at[at].asset == l->cash))
        return at;
    at = balance_get(e, account->number, CURRENCY | (u64)l->currency);
    if (at != NONE)
        account->cash_at = at;
    return at;
}

static u8 lacks(const Engine *e, u32 cash_at, u32 shares_at, wide cash, i64 shares)
{
    if (cash > (cash_at == NONE ? 0 : e->balances.at[cash_at].free))
        return FUNDS;
    if (shares > 0 && shares > (shares_at == NONE ? 0 : e->balances.at[shares_at].free + e->balances.at[shares_at].short_limit))
        return SHARES;
    return OK;
}

/* Reserve what `size` of an order needs; a negative size releases it. */
static inline void hold(Engine *e, const Order *o, i64 size)
{
    if (o->account == NONE)
        return;
    wide cash = cash_needed(&e->listings.at[o->listing], o->side, o->bound, size);
    if (cash) {
        e->balances.at[o->cash].free -= cash;
        e->balances.at[o->cash].reserved += cash;
    }
    if (o->side != BUY) {
        e->balances.at[o->shares].free -= size;
        e->balances.at[o->shares].reserved += size;
    }
    e->accounts.at[o->account].open_value += (wide)o->bound * size;
}

/* Move both sides of a trade at once (S3). */
static void settle(Engine *e, const Listing *l, i64 price, u32 size, const Order *buy, const Order *sell, u8 taker)
{
    if (buy->account == NONE)
        return;
    i64 maker_fee = l->settings[SET_MAKER_FEE], taker_fee = l->settings[SET_TAKER_FEE];
    i64 buyer_fee = buy->side == taker ? taker_fee : maker_fee, seller_fee = sell->side == taker ? taker_fee : maker_fee;
    wide cash = cash_needed(l, BUY, buy->bound, size);
    move(e, buy->cash, cash - ((wide)price + buyer_fee) * size, -cash);
    move(e, buy->shares, size, 0);
    cash = cash_needed(l, SELL, sell->bound, size);
    move(e, sell->cash, cash + ((wide)price - seller_fee) * size, -cash);
    move(e, sell->shares, 0, -(wide)size);
    if (buyer_fee + seller_fee)
        move(e, balance_of(e, 0, l->cash), ((wide)buyer_fee + seller_fee) * size, 0);
    e->accounts.at[buy->account].open_value -= (wide)buy->bound * size;
    e->accounts.at[sell->account].open_value -= (wide)sell->bound * size;
    PastTrade trade = {price, buyer_fee, seller_fee, buy->number, sell->number, l->id, size, 0};
    if (e->trades.n < KEPT_TRADES)
        PUSH(e, e->trades, trade);
    else
        e->trades.at[(e->trade_count - 1) % KEPT_TRADES] = trade;
}

/* Reverse a trade, or return why not (S6). */
static u8 bust(Engine *e, u64 number)
{
    u64 kept = e->trades.n;
    if (number == 0 || number > e->trade_count || e->trade_count - number >= kept)
        return UNKNOWN_TRADE;
    PastTrade *trade = &e->trades.at[(number - 1) % KEPT_TRADES];
    if (trade->busted)
        return ALREADY_BUSTED;
    const Listing *l = &e->listings.at[listing_get(e, trade->listing)];
    wide fees = ((wide)trade->buyer_fee + trade->seller_fee) * trade->size;
    wide proceeds = ((wide)trade->price - trade->seller_fee) * trade->size;
    u32 floor_at = balance_get(e, 0, CURRENCY | (u64)l->currency);
    u32 seller = balance_of(e, trade->seller, l->cash), buyer = balance_of(e, trade->buyer, l->asset);
    if (e->balances.at[seller].free < proceeds ||
        e->balances.at[buyer].free + e->balances.at[buyer].short_limit < trade->size ||
        (floor_at == NONE ? 0 : e->balances.at[floor_at].free) < fees)
        return BUST_LACKS;
    move(e, seller, -proceeds, 0);
    move(e, buyer, -(wide)trade->size, 0);
    move(e, balance_of(e, trade->buyer, l->cash), ((wide)trade->price + trade->buyer_fee) * trade->size, 0);
    move(e, balance_of(e, trade->seller, l->asset), trade->size, 0);
    if (fees)
        move(e, floor_at, -fees, 0);
    trade->busted = 1;
    return OK;
}
