/* Functions on records and packets of the edge for which Python is too slow. levelcast/native/pure_mold.py specifies
 * each function, and the tests compare the two; this file is only faster. The only state of functions is the table of
 * record types; LastRecords stores records. Little-endian machines only (others use pure_mold.py). */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include "_records.h"
#include "_udp.h"

static void put_u32(uint8_t *at, uint32_t x) { memcpy(at, &x, 4); }

/* Copy a record, usually 16 bytes or more: without a call, which costs more than the copy. */
static inline void copy_record(uint8_t *to, const uint8_t *from, size_t size)
{
    if (size < 16) {
        memcpy(to, from, size);
        return;
    }
    size_t at = 0;
    for (; at + 16 <= size; at += 16)
        memcpy(to + at, from + at, 16);
    memcpy(to + size - 16, from + size - 16, 16);
}

/* The size of the record at `p`. Neighbours usually have one size: it is guessed to be `before` and only compared, so
 * that the processor continues without waiting for it. The compiler must not turn that into a plain read. */
static inline size_t size_at(const uint8_t *p, size_t before)
{
    size_t size = (size_t)p[0] * 4;
    if (__builtin_expect(size != before, 0)) {
        __asm__ volatile("" : "+r"(size));
        return size;
    }
    return before;
}

/* ---- records --------------------------------------------------------------------------------------------------- */

static inline int is_allowed(const uint8_t *record, size_t size)
{
    return types[record[1]].base != 0 && size >= types[record[1]].base;
}

/* ---- the last records ------------------------------------------------------------------------------------------ */

enum { MAX_KINDS = 16, FIRST_BITS = 8 };

struct kind { /* one type of records that are kept, in rows of one size */
    uint16_t base, size;
    int16_t where; /* offset of the byte that must be `what`; -1: none */
    uint8_t what;
    uint8_t blank[MAX_RECORD];
    uint8_t *rows;
    size_t used, room;
};

struct place { /* of an open-addressing table */
    uint64_t key; /* kind, instrument and floor; EMPTY */
    uint32_t row;
    uint32_t at; /* offset of the last record of this key in the payload of update number `update` */
    uint64_t update;
};
#define EMPTY UINT64_MAX

typedef struct {
    PyObject_HEAD
    int n_kinds;
    int16_t kind_of[256]; /* by rtype; -1: not kept */
    struct kind *kinds;
    struct place *places;
    uint32_t *touched; /* as many as entries */
    unsigned bits;
    size_t used;
    uint64_t update;
} LastRecords;

static inline size_t first_place(uint64_t key, unsigned bits) { return (key * 0x9E3779B97F4A7C15u) >> (64 - bits); }

/* Double the entries, or allocate the first ones; -1 without memory, and nothing has changed. */
static int grow(LastRecords *self)
{
    unsigned bits = self->places == NULL ? FIRST_BITS : self->bits + 1;
    size_t count = (size_t)1 << bits;
    struct place *places = bits > 31 ? NULL : malloc(count * sizeof *places);
    uint32_t *touched = bits > 31 ? NULL : malloc(count * sizeof *touched);
    if (places == NULL || touched == NULL) {
        free(places);
        free(touched);
        PyErr_NoMemory();
        return -1;
    }
    for (size_t i = 0; i < count; i++)
        places[i].key = EMPTY;
    for (size_t i = 0; self->places != NULL && i < (size_t)1 << self->bits; i++) {
        if (self->places[i].key == EMPTY)
            continue;
        size_t to = first_place(self->places[i].key, bits);
        while (places[to].key != EMPTY)
            to = (to + 1) & (count - 1);
        places[to] = self->places[i];
    }
    free(self->places);
    free(self->touched);
    self->places = places;
    self->touched = touched;
    self->bits = bits;
    return 0;
}

static void last_dealloc(LastRecords *self)
{
    for (int i = 0; i < self->n_kinds; i++)
        free(self->kinds[i].rows);
    free(self->kinds);
    free(self->places);
    free(self->touched);
    Py_TYPE(self)->tp_free(self);
}

static PyObject *last_new(PyTypeObject *type, PyObject *args, PyObject *named)
{
    PyObject *rows;
    if (!PyArg_ParseTuple(args, "O!", &PyTuple_Type, &rows))
        return NULL;
    Py_ssize_t count = PyTuple_GET_SIZE(rows);
    LastRecords *self = (LastRecords *)type->tp_alloc(type, 0);
    if (self == NULL)
        return NULL;
    memset(self->kind_of, -1, sizeof self->kind_of);
    if (count > MAX_KINDS || (self->kinds = calloc((size_t)count + 1, sizeof *self->kinds)) == NULL)
        goto bad;
    for (; self->n_kinds < count; self->n_kinds++) {
        struct kind *kind = &self->kinds[self->n_kinds];
        PyObject *row = PyTuple_GET_ITEM(rows, self->n_kinds), *blank;
        int rtype, base, where, what;
        if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "iiSii", &rtype, &base, &blank, &where, &what))
            goto bad;
        Py_ssize_t size = PyBytes_GET_SIZE(blank);
        if (rtype < 0 || rtype > 255 || self->kind_of[rtype] != -1 || base < 8 || base > size || size > MAX_RECORD ||
            size % 4 || where < -1 || where >= base || what < 0 || what > 255)
            goto bad;
        self->kind_of[rtype] = (int16_t)self->n_kinds;
        kind->base = (uint16_t)base;
        kind->size = (uint16_t)size;
        kind->where = (int16_t)where;
        kind->what = (uint8_t)what;
        memcpy(kind->blank, PyBytes_AS_STRING(blank), (size_t)size);
    }
    if (grow(self) < 0)
        goto bad;
    return (PyObject *)self;
bad:
    if (!PyErr_Occurred())
        PyErr_SetString(PyExc_ValueError, "no such kinds of records can be kept");
    Py_DECREF(self);
    return NULL;
}

/* Put the record at `from` into the row; -1 without memory. */
static int keep_record(struct kind *kind, uint32_t row, const uint8_t *from)
{
    if (row >= kind->room) {
        size_t room = kind->room ? 2 * kind->room : 64;
        uint8_t *rows = realloc(kind->rows, room * kind->size);
        if (rows == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        kind->rows = rows;
        kind->room = room;
    }
    uint8_t *to = kind->rows + (size_t)row * kind->size;
    size_t size = (size_t)from[0] * 4;
    if (size >= kind->size) {
        copy_record(to, from, kind->size);
    } else {
        memcpy(to, kind->blank, kind->size);
        memcpy(to, from, kind->base);
    }
    to[0] = (uint8_t)(kind->size / 4);
    return 0;
}

static PyObject *last_update(LastRecords *self, PyObject *payload)
{
    Py_buffer data;
    if (PyObject_GetBuffer(payload, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *begin = data.buf, *end = begin + data.len, *p = begin;
    PyObject *found = NULL;
    size_t touched = 0;
    int good = (size_t)data.len <= UINT32_MAX;
    for (size_t size = 0; good && p < end; p += size) {
        size = size_at(p, size);
        good = size != 0 && size <= (size_t)(end - p) && is_allowed(p, size);
        int kind = good ? self->kind_of[p[1]] : -1;
        good = good && (kind < 0 || size >= self->kinds[kind].base);
    }
    if (!good) {
        found = Py_NewRef(Py_False);
        goto done;
    }
    self->update++;
    p = begin;
    for (size_t size = 0; p < end; p += size) {
        size = size_at(p, size);
        int which = self->kind_of[p[1]];
        if (which < 0)
            continue;
        const struct kind *kind = &self->kinds[which];
        if (kind->where >= 0 && p[kind->where] != kind->what)
            continue;
        uint64_t key = (uint64_t)which << 48 | (uint64_t)u32_at(p + 4) << 16 | u16_at(p + 2);
        size_t mask = ((size_t)1 << self->bits) - 1, at = first_place(key, self->bits);
        while (self->places[at].key != key && self->places[at].key != EMPTY)
            at = (at + 1) & mask;
        struct place *place = &self->places[at];
        if (place->key == EMPTY) {
            /* It is written immediately, so that the table is consistent whatever happens later. */
            struct kind *mine = &self->kinds[which];
            if (keep_record(mine, (uint32_t)mine->used, p) < 0)
                goto done;
            *place = (struct place){.key = key, .row = (uint32_t)mine->used, .update = 0};
            mine->used++;
            self->used++;
            if (self->used * 2 > mask) {
                /* The entries are about to move: those touched so far are written first. */
                for (size_t i = 0; i < touched; i++) {
                    struct place *one = &self->places[self->touched[i]];
                    if (keep_record(&self->kinds[one->key >> 48], one->row, begin + one->at) < 0)
                        goto done;
                }
                touched = 0;
                self->update++;
                if (grow(self) < 0)
                    goto done;
            }
            continue;
        }
        if (place->update != self->update) {
            place->update = self->update;
            self->touched[touched++] = (uint32_t)at;
        }
        place->at = (uint32_t)(p - begin);
    }
    for (size_t i = 0; i < touched; i++) {
        struct place *one = &self->places[self->touched[i]];
        if (keep_record(&self->kinds[one->key >> 48], one->row, begin + one->at) < 0)
            goto done;
    }
    found = Py_NewRef(Py_True);
done:
    PyBuffer_Release(&data);
    return found;
}

static int by_key(const void *a, const void *b)
{
    uint64_t one = ((const struct place *)a)->key, other = ((const struct place *)b)->key;
    return (one > other) - (one < other);
}

static PyObject *last_payload(LastRecords *self, PyObject *nothing)
{
    size_t total = 0, used = 0;
    struct place *sorted = malloc((self->used + 1) * sizeof *sorted);
    if (sorted == NULL)
        return PyErr_NoMemory();
    for (size_t i = 0; i < (size_t)1 << self->bits; i++)
        if (self->places[i].key != EMPTY) {
            sorted[used++] = self->places[i];
            total += self->kinds[self->places[i].key >> 48].size;
        }
    qsort(sorted, used, sizeof *sorted, by_key);
    PyObject *payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total);
    uint8_t *to = payload == NULL ? NULL : (uint8_t *)PyBytes_AS_STRING(payload);
    for (size_t i = 0; to != NULL && i < used; i++) {
        const struct kind *kind = &self->kinds[sorted[i].key >> 48];
        memcpy(to, kind->rows + (size_t)sorted[i].row * kind->size, kind->size);
        to += kind->size;
    }
    free(sorted);
    return payload;
}

static Py_ssize_t last_length(LastRecords *self) { return (Py_ssize_t)self->used; }

static PyMethodDef last_methods[] = {
    {"update", (PyCFunction)last_update, METH_O, NULL},
    {"payload", (PyCFunction)last_payload, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PySequenceMethods last_sequence = {.sq_length = (lenfunc)last_length};

static PyTypeObject last_type = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "levelcast.native._mold.LastRecords",
    .tp_basicsize = sizeof(LastRecords),
    .tp_flags = Py_TPFLAGS_DEFAULT,
    .tp_new = last_new,
    .tp_dealloc = (destructor)last_dealloc,
    .tp_methods = last_methods,
    .tp_as_sequence = &last_sequence,
};

/* ---- MoldUDP64 ------------------------------------------------------------------------------------------------- */

enum { MOLD_HEADER = 20, MOLD_SESSION = 10, MOLD_LENGTH = 2, MOLD_MAX_COUNT = 0xFFFE };

static uint64_t big_u64(const uint8_t *p) { return __builtin_bswap64(u64_at(p)); }
static uint16_t big_u16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

struct packet { /* of data, its records all of one size */
    const uint8_t *bytes;
    uint64_t sequence;
    size_t count, size;
};

/* True if `p` is a packet of data with records of one size and, with `checked`, of allowed types. */
static int is_even(const uint8_t *p, size_t n, int checked, struct packet *found)
{
    if (n < MOLD_HEADER + 6 || n > MAX_DATAGRAM || p[0] == ' ')
        return 0;
    for (int i = 0; i < MOLD_SESSION; i++)
        if (p[i] < 0x20 || p[i] > 0x7E)
            return 0;
    uint64_t sequence = big_u64(p + 10);
    size_t count = big_u16(p + 18), size = big_u16(p + MOLD_HEADER);
    if (sequence == 0 || count == 0 || count > MOLD_MAX_COUNT || sequence + count - 1 < sequence || size == 0 ||
        size % 4 || size > MAX_RECORD || n != MOLD_HEADER + count * (size + MOLD_LENGTH))
        return 0;
    const uint8_t *at = p + MOLD_HEADER;
    uint8_t head[3] = {at[0], at[1], (uint8_t)(size / 4)};
    for (size_t i = 0; i < count; i++, at += size + MOLD_LENGTH)
        if (at[0] != head[0] || at[1] != head[1] || at[2] != head[2] || (checked && !is_allowed(at + MOLD_LENGTH, size)))
            return 0;
    *found = (struct packet){p, sequence, count, size};
    return 1;
}

/* Copy the records of a packet without their lengths; return their end. */
static uint8_t *copy_out(uint8_t *to, const struct packet *packet)
{
    const uint8_t *from = packet->bytes + MOLD_HEADER + MOLD_LENGTH;
    size_t size = packet->size;
    if (size == 64) /* a trade: compiled to four moves */
        for (size_t i = 0; i < packet->count; i++, from += 64 + MOLD_LENGTH, to += 64)
            memcpy(to, from, 64);
    else
        for (size_t i = 0; i < packet->count; i++, from += size + MOLD_LENGTH, to += size)
            copy_record(to, from, size);
    return to;
}

/* Consecutive packets with nothing between them as one `type` of session, sequence, records, size and payload, and
 * of their number if it has a field for that. */
static PyObject *join_packets(const struct packet *packets, size_t number, PyTypeObject *type, int fields)
{
    size_t count = 0;
    for (size_t i = 0; i < number; i++)
        count += packets[i].count;
    PyObject *payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * packets->size));
    PyObject *joined = payload == NULL ? NULL : type->tp_alloc(type, fields);
    if (joined == NULL) {
        Py_XDECREF(payload);
        return NULL;
    }
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(payload);
    for (size_t i = 0; i < number; i++)
        to = copy_out(to, &packets[i]);
    PyTuple_SET_ITEM(joined, 0, PyBytes_FromStringAndSize((const char *)packets->bytes, MOLD_SESSION));
    PyTuple_SET_ITEM(joined, 1, PyLong_FromUnsignedLongLong(packets->sequence));
    PyTuple_SET_ITEM(joined, 2, PyLong_FromSize_t(count));
    PyTuple_SET_ITEM(joined, 3, PyLong_FromSize_t(packets->size));
    PyTuple_SET_ITEM(joined, 4, payload);
    if (fields == 6)
        PyTuple_SET_ITEM(joined, 5, PyLong_FromSize_t(number));
    for (int i = 0; i < fields; i++)
        if (PyTuple_GET_ITEM(joined, i) == NULL) {
            Py_DECREF(joined);
            return NULL;
        }
    return joined;
}

static int is_tuple_type(PyObject *type)
{
    return PyType_Check(type) && PyType_IsSubtype((PyTypeObject *)type, &PyTuple_Type);
}

static PyObject *open_mold_py(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    struct packet packet;
    if (nargs != 2 || !PyBytes_Check(args[0]) || !is_tuple_type(args[1])) {
        PyErr_SetString(PyExc_TypeError, "open_mold(datagram, type)");
        return NULL;
    }
    if (!is_even((const uint8_t *)PyBytes_AS_STRING(args[0]), (size_t)PyBytes_GET_SIZE(args[0]), 0, &packet))
        Py_RETURN_NONE;
    return join_packets(&packet, 1, (PyTypeObject *)args[1], 5);
}

/* The packets for the records of a payload, with at most `room` bytes of blocks each. */
struct train {
    size_t records, packets, bytes;
};

/* Measure it; 0 unless records fill the payload, each of an instrument or `every`. */
static int measure_train(const uint8_t *p, size_t n, size_t room, int every, struct train *train)
{
    const uint8_t *end = p + n;
    size_t used = room, count = MOLD_MAX_COUNT; /* as if a packet were full */
    *train = (struct train){0, 0, 0};
    for (size_t size = 0; p < end; p += size) {
        size = size_at(p, size);
        if (size == 0 || size > (size_t)(end - p) || (!every && (size < 8 || u32_at(p + 4) == 0)))
            return 0;
        if (used + size + MOLD_LENGTH > room || count == MOLD_MAX_COUNT) {
            train->packets++;
            used = count = 0;
        }
        used += size + MOLD_LENGTH;
        count++;
        train->records++;
    }
    train->bytes = n + MOLD_LENGTH * train->records + MOLD_HEADER * train->packets;
    return 1;
}

static void put_header(uint8_t *to, const char *session, uint64_t sequence)
{
    uint64_t big = __builtin_bswap64(sequence);
    memcpy(to, session, MOLD_SESSION);
    memcpy(to + 10, &big, 8);
}

static void put_count(uint8_t *packet, size_t count)
{
    packet[18] = (uint8_t)(count >> 8);
    packet[19] = (uint8_t)count;
}

/* Write the measured packets. */
static void make_train(const uint8_t *p, size_t n, size_t room, const char *session, uint64_t sequence, uint8_t *to,
                       uint8_t *ends)
{
    const uint8_t *end = p + n, *begin = to;
    uint8_t *packet = NULL;
    size_t used = room, count = MOLD_MAX_COUNT;
    for (size_t size = 0; p < end; p += size) {
        size = size_at(p, size);
        if (used + size + MOLD_LENGTH > room || count == MOLD_MAX_COUNT) {
            if (packet != NULL) {
                put_count(packet, count);
                put_u32(ends, (uint32_t)(to - begin));
                ends += 4;
                sequence += count;
            }
            packet = to;
            put_header(packet, session, sequence);
            to += MOLD_HEADER;
            used = count = 0;
        }
        to[0] = (uint8_t)(size >> 8);
        to[1] = (uint8_t)size;
        if (size == 64)
            memcpy(to + MOLD_LENGTH, p, 64);
        else
            copy_record(to + MOLD_LENGTH, p, size);
        to += size + MOLD_LENGTH;
        used += size + MOLD_LENGTH;
        count++;
    }
    if (packet != NULL) {
        put_count(packet, count);
        put_u32(ends, (uint32_t)(to - begin));
    }
}

static PyObject *mold_train_py(PyObject *self, PyObject *args)
{
    Py_buffer data;
    PyObject *session, *found = NULL, *buffer = NULL, *ends = NULL;
    unsigned long long sequence;
    Py_ssize_t room;
    int every;
    struct train train;
    if (!PyArg_ParseTuple(args, "y*SKnp", &data, &session, &sequence, &room, &every))
        return NULL;
    room -= MOLD_HEADER;
    if (PyBytes_GET_SIZE(session) != MOLD_SESSION || room < MOLD_LENGTH + MAX_RECORD ||
        room > MAX_DATAGRAM - MOLD_HEADER) {
        PyErr_SetString(PyExc_ValueError, "a session has 10 bytes, and a packet room for the largest record");
        goto done;
    }
    if (!measure_train(data.buf, (size_t)data.len, (size_t)room, every, &train) || train.bytes > UINT32_MAX) {
        found = Py_NewRef(Py_None);
        goto done;
    }
    buffer = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)train.bytes);
    ends = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(4 * train.packets));
    if (buffer == NULL || ends == NULL)
        goto done;
    make_train(data.buf, (size_t)data.len, (size_t)room, PyBytes_AS_STRING(session), sequence,
               (uint8_t *)PyBytes_AS_STRING(buffer), (uint8_t *)PyBytes_AS_STRING(ends));
    found = Py_BuildValue("nOO", (Py_ssize_t)train.records, buffer, ends);
done:
    Py_XDECREF(buffer);
    Py_XDECREF(ends);
    PyBuffer_Release(&data);
    return found;
}

/* ---- blocks: neighbouring packets as one ----------------------------------------------------------------------- */

enum { BLOCK_PACKETS = 256, BLOCK_BYTES = 1 << 20 };

struct run { /* consecutive packets of one session, source and record size */
    struct packet packets[BLOCK_PACKETS];
    size_t number, bytes;
    uint64_t next;
    PyObject *list, *source;
    PyTypeObject *type;
};

/* Append the item, as a pair with the source if one is given. */
static int append_item(const struct run *run, PyObject *item)
{
    if (item != NULL && run->source != NULL)
        Py_SETREF(item, PyTuple_Pack(2, item, run->source));
    int failed = item == NULL || PyList_Append(run->list, item) < 0;
    Py_XDECREF(item);
    return failed ? -1 : 0;
}

static int end_run(struct run *run)
{
    size_t number = run->number;
    run->number = 0;
    return number == 0 ? 0 : append_item(run, join_packets(run->packets, number, run->type, 6));
}

/* Add the next datagram from the run's source; its bytes must remain valid until the run has ended. */
static int add_to_run(struct run *run, const uint8_t *p, size_t n)
{
    struct packet packet;
    if (!is_even(p, n, 1, &packet)) {
        if (end_run(run) < 0)
            return -1;
        return append_item(run, PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)n));
    }
    size_t bytes = packet.count * packet.size;
    if (run->number &&
        (packet.sequence != run->next || packet.size != run->packets->size || run->number == BLOCK_PACKETS ||
         run->bytes + bytes > BLOCK_BYTES || memcmp(packet.bytes, run->packets->bytes, MOLD_SESSION) != 0) &&
        end_run(run) < 0)
        return -1;
    if (run->number == 0)
        run->bytes = 0;
    run->packets[run->number++] = packet;
    run->bytes += bytes;
    run->next = packet.sequence + packet.count; /* 0 after the highest possible one */
    return 0;
}

static PyObject *join_molds_py(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyList_Check(args[0]) || !is_tuple_type(args[1])) {
        PyErr_SetString(PyExc_TypeError, "join_molds(datagrams, type)");
        return NULL;
    }
    struct run run = {.number = 0, .list = PyList_New(0), .type = (PyTypeObject *)args[1]};
    for (Py_ssize_t i = 0; run.list != NULL && i < PyList_GET_SIZE(args[0]); i++) {
        PyObject *datagram = PyList_GET_ITEM(args[0], i);
        if (!PyBytes_Check(datagram))
            PyErr_SetString(PyExc_TypeError, "datagrams are bytes");
        if (!PyBytes_Check(datagram) ||
            add_to_run(&run, (const uint8_t *)PyBytes_AS_STRING(datagram), (size_t)PyBytes_GET_SIZE(datagram)) < 0)
            Py_CLEAR(run.list);
    }
    if (run.list != NULL && end_run(&run) < 0)
        Py_CLEAR(run.list);
    return run.list;
}

/* ---- sockets --------------------------------------------------------------------------------------------------- */

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
enum { TRAIN_CARS = 64, TRAIN_BYTES = 65000, BATCH = 64 };

static int is_no_room(int error)
{
    return error == EAGAIN || error == EWOULDBLOCK || error == ENOBUFS || error == ENOMEM || error == ECONNREFUSED;
}

static int is_no_train(int error)
{
    return error == EINVAL || error == EIO || error == ENOPROTOOPT || error == EOPNOTSUPP || error == EMSGSIZE;
}

/* Datagrams back to back: datagram i ends at end_of(i) and begins at the end of the previous one. */
struct outbox {
    uint8_t *bytes;
    const uint8_t *ends;
};

static size_t end_of(const struct outbox *box, Py_ssize_t i) { return i < 0 ? 0 : u32_at(box->ends + 4 * i); }
static size_t size_of(const struct outbox *box, Py_ssize_t i) { return end_of(box, i) - end_of(box, i - 1); }

/* One past the last car of the train that begins with `first`: all of one size, but the last may be shorter. */
static Py_ssize_t train_end(const struct outbox *box, Py_ssize_t first, Py_ssize_t count)
{
    size_t size = size_of(box, first), begin = end_of(box, first - 1);
    Py_ssize_t place = first + 1;
    while (place < count && size_of(box, place - 1) == size && size_of(box, place) <= size && size_of(box, place) &&
           place - first < TRAIN_CARS && end_of(box, place) - begin <= TRAIN_BYTES)
        place++;
    return place;
}

static int send_train(int fd, struct sockaddr_in *to, const struct outbox *box, Py_ssize_t first, Py_ssize_t last)
{
    uint16_t size = (uint16_t)size_of(box, first);
    struct iovec vector = {box->bytes + end_of(box, first - 1), end_of(box, last - 1) - end_of(box, first - 1)};
    union { char bytes[CMSG_SPACE(sizeof(uint16_t))]; struct cmsghdr align; } control = {{0}};
    struct msghdr message = {.msg_name = to, .msg_namelen = sizeof *to, .msg_iov = &vector, .msg_iovlen = 1};
    if (last - first > 1) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = IPPROTO_UDP;
        head->cmsg_type = UDP_SEGMENT;
        head->cmsg_len = CMSG_LEN(sizeof size);
        memcpy(CMSG_DATA(head), &size, sizeof size);
    }
    ssize_t sent;
    Py_BEGIN_ALLOW_THREADS
    sent = sendmsg(fd, &message, 0);
    Py_END_ALLOW_THREADS
    return sent < 0 ? -1 : 0;
}

/* The number of datagrams from `first` on that the kernel accepted; -1 if it refused the first. */
static int send_batch(int fd, struct sockaddr_in *to, const struct outbox *box, Py_ssize_t first, Py_ssize_t last)
{
    struct mmsghdr messages[BATCH];
    struct iovec vectors[BATCH];
    int number = last - first < BATCH ? (int)(last - first) : BATCH, sent;
    for (int i = 0; i < number; i++) {
        vectors[i] = (struct iovec){box->bytes + end_of(box, first + i - 1), size_of(box, first + i)};
        messages[i].msg_hdr = (struct msghdr){
            .msg_name = to, .msg_namelen = sizeof *to, .msg_iov = &vectors[i], .msg_iovlen = 1};
    }
    Py_BEGIN_ALLOW_THREADS
    sent = sendmmsg(fd, messages, (unsigned)number, 0);
    Py_END_ALLOW_THREADS
    return sent;
}

static PyObject *send_many_py(PyObject *self, PyObject *args)
{
    int fd, port, able;
    const char *host;
    Py_buffer data, ends;
    if (!PyArg_ParseTuple(args, "isiy*y*p", &fd, &host, &port, &data, &ends, &able))
        return NULL;
    struct outbox box = {data.buf, ends.buf};
    Py_ssize_t count = ends.len / 4, at = 0, trains = 0, sent = 0, refused = 0;
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    PyObject *found = NULL;
    int error = 0;
    int good = ends.len % 4 == 0 && port >= 0 && port <= 65535 && inet_aton(host, &to.sin_addr) != 0;
    for (Py_ssize_t i = 0; good && i < count; i++)
        good = end_of(&box, i) >= end_of(&box, i - 1) && end_of(&box, i) <= (size_t)data.len;
    if (!good) {
        PyErr_SetString(PyExc_ValueError, "an IPv4 address, and ends in order within the buffer, are wanted");
        goto done;
    }
    while (at < count) {
        Py_ssize_t last = able ? train_end(&box, at, count) : count;
        Py_ssize_t number = able ? last - at : 1; /* the datagrams that an error affects */
        int taken = able ? send_train(fd, &to, &box, at, last) : send_batch(fd, &to, &box, at, last);
        if (taken >= 0) {
            number = able ? number : taken;
            trains += able && number > 1;
            sent += number;
            at += number;
            continue;
        }
        int why = errno;
        if (why == EINTR) {
            if (PyErr_CheckSignals() < 0)
                goto done;
            continue;
        }
        if (able && number > 1 && is_no_train(why)) {
            able = 0;
            continue;
        }
        error = why;
        if (!is_no_room(why))
            break;
        refused += number;
        at += number;
    }
    found = Py_BuildValue("nninO", sent, refused, error, trains, able ? Py_True : Py_False);
done:
    PyBuffer_Release(&data);
    PyBuffer_Release(&ends);
    return found;
}

static PyObject *drain_molds_py(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyLong_Check(args[0]) || !PyLong_Check(args[1]) || !is_tuple_type(args[2])) {
        PyErr_SetString(PyExc_TypeError, "drain_molds(fileno, limit, type)");
        return NULL;
    }
    long fd = PyLong_AsLong(args[0]), limit = PyLong_AsLong(args[1]);
    if (PyErr_Occurred())
        return NULL;
    struct run run = {.number = 0, .list = PyList_New(0), .type = (PyTypeObject *)args[2]};
    struct sockaddr_in known = {0};
    struct arrivals in;
    static long cars = 1; /* datagrams in the last arrival: few trains are read at a time, so that a drain is bounded */
    while (run.list != NULL && limit > 0) {
        int wanted = limit / cars < 1 ? 1 : limit / cars > AT_ONCE ? AT_ONCE : (int)(limit / cars);
        int got = take_arrivals((int)fd, wanted, &in);
        if (got < 0)
            goto failed;
        for (int i = 0; i < got; i++) {
            if (run.source == NULL || !is_from(&in.from[i], &known)) {
                if (end_run(&run) < 0)
                    goto failed;
                Py_XSETREF(run.source, address_of(&in.from[i]));
                if (run.source == NULL)
                    goto failed;
                known = in.from[i];
            }
            const uint8_t *p = in.vectors[i].iov_base;
            size_t left = in.messages[i].msg_len, segment = segment_of(&in, i);
            long number = 0;
            do {
                size_t size = left < segment ? left : segment;
                if (add_to_run(&run, p, size) < 0)
                    goto failed;
                p += size;
                left -= size;
                number++;
            } while (left);
            limit -= number;
            cars = number;
        }
        if (end_run(&run) < 0) /* its bytes are overwritten next */
            goto failed;
        if (got < wanted)
            break;
    }
    Py_XDECREF(run.source);
    return run.list;
failed:
    Py_XDECREF(run.source);
    Py_DECREF(run.list);
    return NULL;
}

static PyMethodDef methods[] = {
    {"open_mold", (PyCFunction)(void (*)(void))open_mold_py, METH_FASTCALL, NULL},
    {"mold_train", mold_train_py, METH_VARARGS, NULL},
    {"join_molds", (PyCFunction)(void (*)(void))join_molds_py, METH_FASTCALL, NULL},
    {"drain_molds", (PyCFunction)(void (*)(void))drain_molds_py, METH_FASTCALL, NULL},
    {"teach", teach_py, METH_O, NULL},
    {"send_many", send_many_py, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_mold", "The compiled side of levelcast.native for the edge.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__mold(void)
{
    if (PyType_Ready(&last_type) < 0)
        return NULL;
    PyObject *made = PyModule_Create(&module);
    if (made != NULL && PyModule_AddObjectRef(made, "LastRecords", (PyObject *)&last_type) < 0)
        Py_CLEAR(made);
    return made;
}
