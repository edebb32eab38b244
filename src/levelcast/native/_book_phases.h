/* Phases of instruments (M9). See pure_book.py. */

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
