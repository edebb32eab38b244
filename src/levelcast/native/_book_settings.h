/* Commands of the treasury: payments, limits of accounts, parameters of instruments (S4, S6, M8). See pure_book_settings.py. */

static u32 account_of(Engine *e, u64 number)
{
    u32 at = account_get(e, number);
    if (at == NONE) {
        at = (u32)e->accounts.n;
        PUSH(e, e->accounts, ((Account){.number = number, .owner = number, .seen_at = NONE, .cash_at = NONE}));
        table_put(e, &e->account_table, number, 0, at);
    }
    return at;
}

static u8 payment(Engine *e, const Command *c, int sign)
{
    u64 key = c->instrument;
    if (!e->has_accounts || c->account == 0)
        return UNKNOWN_ACCOUNT;
    if (c->instrument ? listing_get(e, c->instrument) == NONE : c->order_id == 0 || c->order_id >= CURRENCY)
        return UNKNOWN_INSTRUMENT;
    if (!c->instrument)
        key = CURRENCY | c->order_id;
    if (c->price <= 0 || c->price > MAX_PRICE)
        return AMOUNT;
    if (sign < 0) {
        if (account_get(e, c->account) == NONE)
            return UNKNOWN_ACCOUNT;
        u32 at = balance_get(e, c->account, key);
        if (at == NONE || e->balances.at[at].free < c->price)
            return c->instrument ? SHARES : FUNDS;
    }
    account_of(e, c->account);
    u32 asset = asset_of(e, key);
    move(e, balance_of(e, c->account, asset), (wide)sign * c->price, 0);
    e->assets.at[asset].due += (wide)sign * c->price;
    return OK;
}

static u8 limit(Engine *e, const Command *c)
{
    i64 value = c->price;
    if (!e->has_accounts || c->account == 0)
        return UNKNOWN_ACCOUNT;
    if (c->order_id < OWNER || c->order_id > LOCKED || value < 0 || value > MAX_PRICE)
        return SETTING;
    if (c->order_id == ALLOWED || c->order_id == SHORT_LIMIT) {
        u32 listing = listing_get(e, c->instrument);
        if (listing == NONE)
            return UNKNOWN_INSTRUMENT;
        account_of(e, c->account);
        u32 at = balance_of(e, c->account, e->listings.at[listing].asset); /* may move the balances */
        Balance *stock = &e->balances.at[at];
        if (c->order_id == ALLOWED)
            stock->allowed = value > 0;
        else if (stock->free + value < 0)
            return SHARES;
        else
            stock->short_limit = value;
        return OK;
    }
    u32 at = account_of(e, c->account); /* may move the accounts */
    Account *account = &e->accounts.at[at];
    switch (c->order_id) {
    case OWNER: account->owner = (u64)value; break;
    case LARGEST_ORDER: account->largest_order = value; break;
    case LARGEST_OPEN: account->largest_open = value; break;
    case ORDERS_PER_SECOND: account->orders_per_second = value; break;
    case RESTRICTED: account->restricted = value > 0; break;
    default: account->locked = value > 0;
    }
    return OK;
}

static u8 setting(Engine *e, const Command *c)
{
    i64 value = c->price, most = MAX_PRICE;
    u64 which = c->order_id;
    if (which == SET_RULES) {
        if (value < OLDEST_RULES || value > RULES_VERSION)
            return VERSION_OF_RULES;
        e->rules = (u32)value;
        return OK;
    }
    if (which == SET_PRICE_RULE)
        most = MIDPOINT;
    if (which == SET_MATCH_RULE)
        most = DUTCH;
    if (which >= SETTINGS || value < 0 || value > most)
        return SETTING;
    u32 listing = listing_get(e, c->instrument);
    if (listing == NONE)
        return UNKNOWN_INSTRUMENT;
    Listing *l = &e->listings.at[listing];
    if (l->live && which != SET_BAND && which != SET_PAUSE && which != SET_REFERENCE)
        return SETTING;
    l->settings[which] = value;
    if (which == SET_REFERENCE)
        l->band_reference = value;
    return OK;
}

static void treasury(Engine *e, const Command *c)
{
    u8 kind = REJECTED, reason;
    switch (c->command) {
    case 'H': case 'C': case 'U': case 'E':
        return;
    case 'D': case 'W': case 'B': case 'L': case 'P':
        if (c->publisher != e->treasury) {
            reason = NOT_TREASURY;
            break;
        }
        kind = c->command == 'D' ? DEPOSITED : c->command == 'W' ? WITHDRAWN : c->command == 'B' ? BUSTED
             : c->command == 'L' ? LIMIT_SET : WAS_SET;
        reason = kind == BUSTED ? bust(e, c->order_id) : kind == LIMIT_SET ? limit(e, c) : kind == WAS_SET ? setting(e, c)
               : payment(e, c, kind == DEPOSITED ? 1 : -1);
        break;
    default:
        reason = ACTION;
    }
    if (reason)
        refuse(e, c, reason);
    else
        tell_command(e, kind, c, 0, OK);
}
