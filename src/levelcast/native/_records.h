/* Common definitions of the extensions for bytes and records. Each has a table of its own, and `teach` fills it. */

#include <stdint.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled modules are for little-endian machines; their twins in Python do the work elsewhere"
#endif

enum { MAX_DATAGRAM = 65507, MAX_RECORD = 1020 };

static inline uint16_t u16_at(const uint8_t *at) { uint16_t x; memcpy(&x, at, 2); return x; }
static inline uint32_t u32_at(const uint8_t *at) { uint32_t x; memcpy(&x, at, 4); return x; }
static inline uint64_t u64_at(const uint8_t *at) { uint64_t x; memcpy(&x, at, 8); return x; }

struct record_type {
    uint16_t base; /* the minimum size; 0: the type does not exist */
    int16_t sequence, ts_recv; /* offsets, -1 where the type has no such field */
};
static struct record_type types[256];

static PyObject *teach_py(PyObject *self, PyObject *rows)
{
    PyObject *listed = PySequence_Fast(rows, "a sequence of (rtype, base, sequence, ts_recv) is wanted");
    if (listed == NULL)
        return NULL;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(listed); i++) {
        int rtype, base, sequence, ts_recv;
        PyObject *row = PySequence_Fast_GET_ITEM(listed, i);
        if (!PyTuple_Check(row) || !PyArg_ParseTuple(row, "iiii", &rtype, &base, &sequence, &ts_recv)) {
            if (!PyErr_Occurred())
                PyErr_SetString(PyExc_TypeError, "a row is a tuple");
            Py_DECREF(listed);
            return NULL;
        }
        if (rtype < 0 || rtype > 255 || base < 4 || base > MAX_RECORD || sequence + 4 > base || ts_recv + 8 > base) {
            Py_DECREF(listed);
            PyErr_SetString(PyExc_ValueError, "no such record type can be");
            return NULL;
        }
        types[rtype] = (struct record_type){(uint16_t)base, (int16_t)sequence, (int16_t)ts_recv};
    }
    Py_DECREF(listed);
    Py_RETURN_NONE;
}

/* The size of the record at `p`, with `left` bytes available; 0 if it is not an allowed record. */
static inline size_t record_size(const uint8_t *p, size_t left)
{
    size_t size;
    if (left < 4 || (size = (size_t)p[0] * 4) > left || size < types[p[1]].base || types[p[1]].base == 0)
        return 0;
    return size;
}

static inline int is_fresh(const uint8_t *p)
{
    const struct record_type *type = &types[p[1]];
    return (type->sequence < 0 || u32_at(p + type->sequence) == 0) &&
           (type->ts_recv < 0 || u64_at(p + type->ts_recv) == 0);
}

/* The number of allowed records that fill the bytes; -1 for others, or with `fresh` if one has a stamp. */
static inline Py_ssize_t count_in(const uint8_t *p, size_t n, int fresh)
{
    Py_ssize_t count = 0;
    while (n) {
        size_t size = record_size(p, n);
        if (size == 0 || (fresh && !is_fresh(p)))
            return -1;
        p += size;
        n -= size;
        count++;
    }
    return count;
}
