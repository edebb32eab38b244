/* Fetch into the caches what a command some places ahead will need, in three steps: slots of the tables, what they
 * lead to, and what that leads to. Nothing is checked: a wrong guess fetches in vain. */
enum { NEAR = 8, CLOSE_BY = 16, NOW = 24, RING = 32 };

typedef struct { u64 order_tag, shares_tag; u32 order, listing; } Ahead;

/* GCC takes a function that only fetches for one without an effect, and drops its calls unless they are inlined. */
#define INLINE static inline __attribute__((always_inline))

INLINE void fetch(const void *at, size_t size)
{
    __builtin_prefetch(at);
    if (size > 64)
        __builtin_prefetch((const char *)at + 64);
}

/* Return the index that a pair probably has, by its tag alone, or NONE. */
static inline u32 guessed(const Table *table, u64 tag)
{
    for (u64 i = tag & table->mask;; i = (i + 1) & table->mask)
        if (table->slots[i] == 0 || table->slots[i] >> 32 == tag)
            return (u32)table->slots[i] - 1;
}

INLINE void fetch_slots(const Engine *e, const Command *c, Ahead *ahead)
{
    int adds = c->action == 'A';
    ahead->order_tag = tag_of(c->account, adds ? c->client : c->original);
    fetch(&e->order_table.slots[ahead->order_tag & e->order_table.mask], 0);
    if (adds && e->has_accounts) {
        ahead->shares_tag = tag_of(c->account, c->instrument);
        fetch(&e->balance_table.slots[ahead->shares_tag & e->balance_table.mask], 0);
    }
}

INLINE void fetch_near(const Engine *e, const Command *c, Ahead *ahead)
{
    if (c->action != 'A') {
        if ((ahead->order = guessed(&e->order_table, ahead->order_tag)) != NONE)
            fetch(&e->orders.at[ahead->order], sizeof(Order));
        return;
    }
    if ((ahead->listing = guessed(&e->listing_table, tag_of(c->instrument, 0))) != NONE)
        fetch(e->listings.at[ahead->listing].side, 2 * sizeof(Side));
    u32 shares = e->has_accounts ? guessed(&e->balance_table, ahead->shares_tag) : NONE;
    if (shares != NONE)
        fetch(&e->balances.at[shares], sizeof(Balance));
}

INLINE void fetch_close(const Engine *e, const Command *c, const Ahead *ahead)
{
    if (c->action == 'A') {
        for (int side = 0; ahead->listing != NONE && side < 2; side++) {
            const Side *each = &e->listings.at[ahead->listing].side[side];
            if (each->n)
                fetch(&each->levels[each->n - 1], 0);
        }
    } else if (ahead->order != NONE) {
        const Order *o = &e->orders.at[ahead->order];
        if (o->shares != NONE && o->side != BUY)
            fetch(&e->balances.at[o->shares], sizeof(Balance));
        if (o->next != NONE)
            fetch(&e->orders.at[o->next], 0);
        if (o->prev != NONE)
            fetch(&e->orders.at[o->prev], 0);
    }
}
