/* The matching engine, compiled: see levelcast.native.pure_book for what each method does and why.
 *
 * The headers have one subject each, most of them that of the module pure_book_NAME.py: _book_state.h (tables, queues),
 * _book_ledger.h, _book_match.h, _book_auction.h, _book_phases.h, _book_entry.h, _book_settings.h, _book_snapshot.h, and
 * _book_fetch.h, which loads the caches ahead. An allocation that fails jumps to the method that was called, which
 * raises MemoryError; the book refuses every later call.
 */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include "_book_state.h"

#include "_book_ledger.h"

#include "_book_match.h"

#include "_book_auction.h"

#include "_book_phases.h"

#include "_book_entry.h"

#include "_book_settings.h"

#include "_book_snapshot.h"

#include "_book_fetch.h"

typedef struct {
    PyObject_HEAD
    Engine engine;
} Book;

static inline void apply(Engine *e, const Command *c)
{
    e->stamp = c->stamp;
    if (c->action == 'N') {
        treasury(e, c);
        return;
    }
    if (c->action != 'A' && c->action != 'C' && c->action != 'M' && c->action != 'R') {
        refuse(e, c, ACTION);
        return;
    }
    u32 account_at = NONE;
    if (e->has_accounts) {
        account_at = account_get(e, c->account);
        if (account_at == NONE || c->account == 0) {
            refuse(e, c, UNKNOWN_ACCOUNT);
            return;
        }
        if (c->client || c->action == 'A' || c->action == 'M') {
            u8 reason = check_id(e, &e->accounts.at[account_at], c->client);
            if (reason) {
                refuse(e, c, reason);
                return;
            }
        }
    }
    if (c->action == 'R') {
        mass_cancel(e, c, account_at);
        return;
    }
    if (c->action == 'C') {
        u32 at = order_get(e, c->account, c->original);
        if (at == NONE)
            refuse(e, c, UNKNOWN_ORDER);
        else
            reduce(e, at, e->orders.at[at].left, BY_OWNER, CANCELLED);
        return;
    }
    u8 reason = account_at == NONE ? OK : check_account(&e->accounts.at[account_at], c->stamp);
    if (reason)
        refuse(e, c, reason);
    else if (c->action == 'A')
        new_order(e, c, account_at);
    else
        replace(e, c);
}

static void run_all(Engine *e, const Command *commands, u64 n)
{
    Ahead ring[RING];
    if (e->events.n + n > e->events.room)
        event_room(e, n + n / 2);
    for (u64 i = 0; i < n + NOW; i++) {
        if (i < n)
            fetch_slots(e, &commands[i], &ring[i % RING]);
        if (i >= NEAR && i - NEAR < n)
            fetch_near(e, &commands[i - NEAR], &ring[(i - NEAR) % RING]);
        if (i >= CLOSE_BY && i - CLOSE_BY < n)
            fetch_close(e, &commands[i - CLOSE_BY], &ring[(i - CLOSE_BY) % RING]);
        if (i >= NOW) {
            e->count++;
            apply(e, &commands[i - NOW]);
        }
    }
}

static void advance(Engine *e, u64 now)
{
    if (now > e->now)
        e->now = now;
    if (e->next_wake > e->now)
        return;
    e->next_wake = UINT64_MAX;
    for (u32 i = 0; i < e->listings.n; i++) {
        Listing *l = &e->listings.at[i];
        if (!l->wake || l->wake > e->now)
            wake_at(e, l, l->wake);
        else if (l->phase == TRADING) {
            cross(e, l);
            set_wake(e, l);
        } else
            set_phase(e, i, TRADING);
    }
}

static void indicate(Engine *e)
{
    for (u64 i = 0; e->touched && i < e->listings.n; i++) {
        Listing *l = &e->listings.at[i];
        if (!l->touched)
            continue;
        l->touched = 0;
        e->touched--;
        if (!gathers(l))
            continue;
        Clearing found = clearing(e, l);
        if (found.price == l->shown_price && found.volume == l->shown_volume && found.surplus == l->shown_surplus)
            continue;
        l->shown_price = found.price;
        l->shown_volume = found.volume;
        l->shown_surplus = found.surplus;
        tell_market(e, INDICATIVE, l, found.price, found.volume, found.surplus);
    }
}

typedef struct { i64 price; u64 size; } Top;

static void put_top(Engine *e, Bytes *out, u32 listing, i64 levels)
{
    for (i64 level = 0; level < levels; level++)
        for (int side = 1; side >= 0; side--) {
            const Side *s = listing == NONE ? NULL : &e->listings.at[listing].side[side];
            Top top = {UNDEFINED, 0};
            if (s != NULL && level < s->n) {
                const Level *at = &s->levels[s->n - 1 - level];
                top.price = at->price;
                for (u32 o = at->queue.head; o != NONE; o = e->orders.at[o].next)
                    top.size += e->orders.at[o].left;
            }
            PUT(e, out, top);
        }
}

/* Methods */

static int ready(Engine *e)
{
    if (!e->lacks_memory)
        return 0;
    PyErr_SetString(PyExc_MemoryError, "a call before this one lacked memory; restore a snapshot");
    return -1;
}

/* Run `body`; raise MemoryError and return NULL if it lacks memory. */
#define GUARDED(e, body)                                                                                               \
    do {                                                                                                               \
        if (ready(e) < 0)                                                                                              \
            return NULL;                                                                                               \
        if (setjmp((e)->no_memory))                                                                                    \
            return PyErr_NoMemory();                                                                                   \
        body;                                                                                                          \
    } while (0)

static PyObject *taken(Engine *e)
{
    PyObject *events = e->bytes;
    u64 n = e->events.n;
    e->bytes = NULL;
    e->events.at = NULL;
    e->events.n = e->events.room = 0;
    if (n == 0) {
        Py_XDECREF(events);
        return PyBytes_FromStringAndSize(NULL, 0);
    }
    _PyBytes_Resize(&events, (Py_ssize_t)(n * sizeof(Event)));
    return events;
}

static PyObject *taken_bytes(Bytes *bytes)
{
    PyObject *made = PyBytes_FromStringAndSize((const char *)bytes->at, (Py_ssize_t)bytes->n);
    free(bytes->at);
    return made;
}

static void engine_free(Engine *e)
{
    for (u64 i = 0; i < e->listings.n; i++) {
        free(e->listings.at[i].side[0].levels);
        free(e->listings.at[i].side[1].levels);
    }
    void *all[] = {e->orders.at, e->listings.at, e->accounts.at, e->seen.at, e->balances.at, e->assets.at, e->trades.at,
                   e->due.at, e->some.at, e->lefts.at, e->prices.at, e->order_table.slots,
                   e->listing_table.slots, e->account_table.slots, e->seen_table.slots, e->balance_table.slots,
                   e->asset_table.slots};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    Py_XDECREF(e->bytes);
}

static int engine_begin(Engine *e, int accounts, u32 treasury_id)
{
    memset(e, 0, sizeof *e);
    e->has_accounts = accounts;
    e->treasury = treasury_id;
    e->rules = FIRST_RULES;
    e->unused = NONE;
    e->next_wake = UINT64_MAX;
    if (setjmp(e->no_memory)) {
        PyErr_NoMemory();
        return -1;
    }
    Table *tables[] = {&e->order_table, &e->listing_table, &e->account_table, &e->seen_table, &e->balance_table,
                       &e->asset_table};
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        table_make(e, tables[i], 16);
    return 0;
}

static PyObject *book_new(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    static char *names[] = {"accounts", "treasury", NULL};
    int accounts = 1;
    unsigned int treasury_id = 0;
    if (!PyArg_ParseTupleAndKeywords(args, kwargs, "|pI", names, &accounts, &treasury_id))
        return NULL;
    Book *self = (Book *)type->tp_alloc(type, 0);
    if (self != NULL && engine_begin(&self->engine, accounts, treasury_id) < 0)
        Py_CLEAR(self);
    return (PyObject *)self;
}

static void book_dealloc(Book *self)
{
    PyTypeObject *type = Py_TYPE(self);
    engine_free(&self->engine);
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyObject *book_define(Book *self, PyObject *args)
{
    long long instrument, tick, lot, smallest, largest, high, low, collar, currency;
    Engine *e = &self->engine;
    if (!PyArg_ParseTuple(args, "LLLLLLLLL", &instrument, &tick, &lot, &smallest, &largest, &high, &low, &collar, &currency))
        return NULL;
    if (instrument < 1 || instrument > UINT32_MAX || tick < 1 || lot < 1 || smallest < 0 || largest < 0 || high < 0 ||
        low < 0 || currency < 0 || currency > UINT32_MAX || collar < -1) {
        PyErr_SetString(PyExc_ValueError, "a definition needs a positive id, tick and lot, and no negative limit");
        return NULL;
    }
    u32 at = listing_get(e, (u64)instrument);
    GUARDED(e, at = at == NONE ? listing_make(e, (u32)instrument, currency) : at);
    Listing *l = &e->listings.at[at];
    l->tick = tick, l->lot = lot, l->smallest = smallest, l->largest = largest;
    l->high = high, l->low = low, l->collar = collar;
    Py_RETURN_NONE;
}

static void status_all(Engine *e, u32 instrument, u32 action)
{
    for (u32 i = 0; i < e->listings.n; i++)
        if (!instrument || e->listings.at[i].id == instrument)
            set_phase(e, i, action);
}

static PyObject *book_status(Book *self, PyObject *args)
{
    unsigned int instrument, action;
    if (!PyArg_ParseTuple(args, "II", &instrument, &action))
        return NULL;
    GUARDED(&self->engine, status_all(&self->engine, instrument, action));
    return taken(&self->engine);
}

static PyObject *book_advance(Book *self, PyObject *args)
{
    unsigned long long now;
    if (!PyArg_ParseTuple(args, "K", &now))
        return NULL;
    GUARDED(&self->engine, advance(&self->engine, now));
    return taken(&self->engine);
}

/* Take a buffer of commands; -1 with an exception if it is none. */
static int take_commands(PyObject *given, Py_buffer *view)
{
    if (PyObject_GetBuffer(given, view, PyBUF_C_CONTIGUOUS) < 0)
        return -1;
    if (view->len % COMMAND_SIZE == 0)
        return 0;
    PyBuffer_Release(view);
    PyErr_Format(PyExc_ValueError, "commands have %d bytes each", COMMAND_SIZE);
    return -1;
}

/* Commands at any address; the records of a tape are not aligned. */
static void run_buffer(Engine *e, const u8 *octets, u64 n)
{
    enum { AT_ONCE = 4096 };
    if (((uintptr_t)octets & 7) == 0) {
        run_all(e, (const Command *)octets, n);
        return;
    }
    Command *copy = allocated(e, AT_ONCE * sizeof *copy);
    for (u64 i = 0; i < n; i += AT_ONCE) {
        u64 count = n - i < AT_ONCE ? n - i : AT_ONCE;
        memcpy(copy, octets + i * COMMAND_SIZE, count * COMMAND_SIZE);
        run_all(e, copy, count);
    }
    free(copy);
}

static PyObject *book_run(Book *self, PyObject *given)
{
    Py_buffer view;
    Engine *e = &self->engine;
    if (ready(e) < 0 || take_commands(given, &view) < 0)
        return NULL;
    if (setjmp(e->no_memory)) {
        PyBuffer_Release(&view);
        return PyErr_NoMemory();
    }
    run_buffer(e, view.buf, (u64)view.len / COMMAND_SIZE);
    PyBuffer_Release(&view);
    return taken(e);
}

static PyObject *book_trace(Book *self, PyObject *args)
{
    PyObject *given;
    long long levels;
    Py_buffer view;
    Engine *e = &self->engine;
    Bytes ends = {0}, tops = {0};
    if (!PyArg_ParseTuple(args, "OL", &given, &levels))
        return NULL;
    if (ready(e) < 0 || take_commands(given, &view) < 0)
        return NULL;
    if (setjmp(e->no_memory)) {
        PyBuffer_Release(&view);
        return PyErr_NoMemory();
    }
    for (Py_ssize_t at = 0; at < view.len; at += COMMAND_SIZE) {
        Command command;
        memcpy(&command, (const u8 *)view.buf + at, COMMAND_SIZE);
        run_all(e, &command, 1);
        PUT(e, &ends, e->events.n);
        put_top(e, &tops, listing_get(e, command.instrument), levels);
    }
    PyBuffer_Release(&view);
    return Py_BuildValue("NNN", taken(e), taken_bytes(&ends), taken_bytes(&tops));
}

static PyObject *book_finish(Book *self, PyObject *unused)
{
    (void)unused;
    GUARDED(&self->engine, indicate(&self->engine));
    if (!conserved(&self->engine)) {
        PyErr_SetString(PyExc_RuntimeError, "the ledger does not conserve an asset");
        return NULL;
    }
    return taken(&self->engine);
}

static PyObject *book_top(Book *self, PyObject *args)
{
    unsigned int instrument;
    long long levels;
    Bytes out = {0};
    if (!PyArg_ParseTuple(args, "IL", &instrument, &levels))
        return NULL;
    GUARDED(&self->engine, put_top(&self->engine, &out, listing_get(&self->engine, instrument), levels));
    return taken_bytes(&out);
}

static void put_orders(Engine *e, Bytes *out, u32 listing)
{
    if (listing == NONE)
        return;
    collect(e, &e->listings.at[listing], 1);
    for (u64 i = 0; i < e->some.n; i++)
        save_order(e, out, &e->orders.at[e->some.at[i]]);
}

static void put_instruments(Engine *e, Bytes *out)
{
    for (u64 i = 0; i < e->listings.n; i++)
        PUT(e, out, e->listings.at[i].id);
}

static PyObject *book_instruments(Book *self, PyObject *unused)
{
    (void)unused;
    Bytes out = {0};
    GUARDED(&self->engine, put_instruments(&self->engine, &out));
    return taken_bytes(&out);
}

static PyObject *book_orders(Book *self, PyObject *given)
{
    unsigned long instrument = PyLong_AsUnsignedLong(given);
    Bytes out = {0};
    if (instrument == (unsigned long)-1 && PyErr_Occurred())
        return NULL;
    GUARDED(&self->engine, put_orders(&self->engine, &out, listing_get(&self->engine, instrument)));
    return taken_bytes(&out);
}

static void put_front(Engine *e, Bytes *out, u32 listing, u8 side, i64 count)
{
    if (listing == NONE)
        return;
    const Side *from = side_of(&e->listings.at[listing], side);
    u32 level;
    for (u32 at = first_ranked(from, &level); at != NONE && count-- > 0; at = next_ranked(e, from, &level, at))
        save_order(e, out, &e->orders.at[at]);
}

static PyObject *book_front(Book *self, PyObject *args)
{
    unsigned int instrument, side;
    long long count;
    Bytes out = {0};
    Engine *e = &self->engine;
    if (!PyArg_ParseTuple(args, "IIL", &instrument, &side, &count))
        return NULL;
    GUARDED(e, put_front(e, &out, listing_get(e, instrument), (u8)side, count));
    return taken_bytes(&out);
}

static void put_balances(Engine *e, Bytes *out)
{
    for (u64 i = 0; i < e->balances.n; i++)
        save_balance(e, out, &e->balances.at[i]);
}

static PyObject *book_balances(Book *self, PyObject *unused)
{
    (void)unused;
    Bytes out = {0};
    GUARDED(&self->engine, put_balances(&self->engine, &out));
    return taken_bytes(&out);
}

static PyObject *book_snapshot(Book *self, PyObject *unused)
{
    (void)unused;
    Bytes out = {0};
    GUARDED(&self->engine, save(&self->engine, &out));
    return taken_bytes(&out);
}

static PyObject *book_restore(PyObject *type, PyObject *given)
{
    Py_buffer view;
    if (PyObject_GetBuffer(given, &view, PyBUF_C_CONTIGUOUS) < 0)
        return NULL;
    Book *self = (Book *)PyObject_CallNoArgs(type);
    if (self == NULL) {
        PyBuffer_Release(&view);
        return NULL;
    }
    if (setjmp(self->engine.no_memory)) {
        PyBuffer_Release(&view);
        Py_DECREF(self);
        return PyErr_NoMemory();
    }
    Source from = {view.buf, (size_t)view.len};
    int fault = load(&self->engine, &from);
    PyBuffer_Release(&view);
    if (fault == 0)
        return (PyObject *)self;
    PyErr_SetString(PyExc_ValueError, fault == -2 ? "not a snapshot of this version" : "the snapshot is damaged");
    Py_DECREF(self);
    return NULL;
}

static PyMethodDef book_methods[] = {
    {"define", (PyCFunction)book_define, METH_VARARGS, "See levelcast.native.pure_book."},
    {"status", (PyCFunction)book_status, METH_VARARGS, "See levelcast.native.pure_book."},
    {"advance", (PyCFunction)book_advance, METH_VARARGS, "See levelcast.native.pure_book."},
    {"run", (PyCFunction)book_run, METH_O, "See levelcast.native.pure_book."},
    {"trace", (PyCFunction)book_trace, METH_VARARGS, "See levelcast.native.pure_book."},
    {"finish", (PyCFunction)book_finish, METH_NOARGS, "See levelcast.native.pure_book."},
    {"top", (PyCFunction)book_top, METH_VARARGS, "See levelcast.native.pure_book."},
    {"instruments", (PyCFunction)book_instruments, METH_NOARGS, "See levelcast.native.pure_book."},
    {"orders", (PyCFunction)book_orders, METH_O, "See levelcast.native.pure_book."},
    {"front", (PyCFunction)book_front, METH_VARARGS, "See levelcast.native.pure_book."},
    {"balances", (PyCFunction)book_balances, METH_NOARGS, "See levelcast.native.pure_book."},
    {"snapshot", (PyCFunction)book_snapshot, METH_NOARGS, "See levelcast.native.pure_book."},
    {"restore", (PyCFunction)book_restore, METH_O | METH_CLASS, "See levelcast.native.pure_book."},
    {NULL, NULL, 0, NULL},
};

#define COUNTER(name, field)                                                                                           \
    static PyObject *name(Book *self, void *unused) { (void)unused; return PyLong_FromUnsignedLongLong(self->engine.field); }
COUNTER(get_now, now)
COUNTER(get_count, count)
COUNTER(get_orders, order_count)
COUNTER(get_trades, trade_count)
COUNTER(get_live, order_table.n)
COUNTER(get_rules, rules)

static PyGetSetDef book_fields[] = {
    {"now_ns", (getter)get_now, NULL, "Time of the frame.", NULL},
    {"count", (getter)get_count, NULL, "Commands so far.", NULL},
    {"order_count", (getter)get_orders, NULL, "Orders accepted so far.", NULL},
    {"trade_count", (getter)get_trades, NULL, "Trades so far.", NULL},
    {"live", (getter)get_live, NULL, "Orders that are live or waiting.", NULL},
    {"rules", (getter)get_rules, NULL, "Version of the rules.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot book_slots[] = {
    {Py_tp_new, book_new},
    {Py_tp_dealloc, book_dealloc},
    {Py_tp_methods, book_methods},
    {Py_tp_getset, book_fields},
    {0, NULL},
};

static PyType_Spec book_spec = {"levelcast.native._book.BookKernel", sizeof(Book), 0, Py_TPFLAGS_DEFAULT, book_slots};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_book", "The matching engine, compiled: see levelcast.native.pure_book.", -1, NULL, NULL,
    NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__book(void)
{
    PyObject *made = PyModule_Create(&module);
    PyObject *type = PyType_FromSpec(&book_spec);
    if (made == NULL || type == NULL || PyModule_AddObject(made, "BookKernel", type) < 0) {
        Py_XDECREF(made);
        Py_XDECREF(type);
        return NULL;
    }
    return made;
}
