/* Packets of the core, and the `Data` that have them as sealed datagrams, back to back: common to the extensions that seal
 * and open packets. */

#include "_datagram.h"
#include "_records.h"

/* The fields of a `Data`, a tuple (source, incarnation, first, last, sealed). */
enum { DATA_SEALED = 4, DATA_FIELDS = 5 };

enum { ROW = 26 }; /* source u16, incarnation u64, number u64, records u32, bytes u32 */

struct packet {
    uint16_t source;
    uint64_t incarnation, number, salt;
    uint32_t records;
    uint16_t epoch; /* salt and epoch are those of its key; 0 without one */
};

/* One stripe of one network; Python has both in one number, network << 16 | stripe. */
struct domain {
    uint16_t stripe;
    uint64_t network;
};

/* A converter for PyArg_ParseTuple. */
static inline int domain_of(PyObject *number, void *to)
{
    struct domain *domain = to;
    PyObject *bits = PyLong_FromLong(16), *network = bits == NULL ? NULL : PyNumber_Rshift(number, bits);
    Py_XDECREF(bits);
    if (network == NULL)
        return 0;
    domain->stripe = (uint16_t)PyLong_AsUnsignedLongLongMask(number);
    domain->network = PyLong_AsUnsignedLongLong(network);
    Py_DECREF(network);
    return !PyErr_Occurred();
}

/* A `type` of this number of packets from this one on; it owns `sealed`. */
static inline PyObject *data_of(PyTypeObject *type, const struct packet *first, uint64_t packets, PyObject *sealed)
{
    PyObject *data = sealed == NULL ? NULL : type->tp_alloc(type, DATA_FIELDS);
    if (data == NULL) {
        Py_XDECREF(sealed);
        return NULL;
    }
    PyTuple_SET_ITEM(data, 0, PyLong_FromUnsignedLong(first->source));
    PyTuple_SET_ITEM(data, 1, PyLong_FromUnsignedLongLong(first->incarnation));
    PyTuple_SET_ITEM(data, 2, PyLong_FromUnsignedLongLong(first->number));
    PyTuple_SET_ITEM(data, 3, PyLong_FromUnsignedLongLong(first->number + packets - 1));
    PyTuple_SET_ITEM(data, 4, sealed);
    for (int i = 0; i < DATA_FIELDS; i++)
        if (PyTuple_GET_ITEM(data, i) == NULL) {
            Py_DECREF(data);
            return NULL;
        }
    return data;
}

/* The size of the datagram at `p`, with `left` bytes available; 0 if it is not one. */
static inline size_t sealed_size(const uint8_t *p, size_t left)
{
    size_t size;
    return left < PAYLOAD_AT || (size = u32_at(p + LENGTH_AT)) > left || size < (size_t)PAYLOAD_AT + p[SEAL_SIZE_AT]
               ? 0
               : size;
}

/* Bytes of records in a sealed packet of `size` bytes, whatever seals it. */
static inline size_t payload_size(const uint8_t *p, size_t size) { return size - PAYLOAD_AT - p[SEAL_SIZE_AT]; }

static inline PyObject *bad_sealed(void)
{
    PyErr_SetString(PyExc_ValueError, "these are no sealed packets");
    return NULL;
}
