/* The per-record and per-datagram work that Python is too slow for. levelcast/kernel/twin.py says what each function
 * does, and the tests compare the two; this file only does it faster. Nothing here keeps state but the table of record
 * types, and nothing blocks. Little-endian machines only (the twin serves the others). */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled module is for little-endian machines; the pure Python twin does its work elsewhere"
#endif

static uint16_t u16_at(const uint8_t *at) { uint16_t x; memcpy(&x, at, 2); return x; }
static uint32_t u32_at(const uint8_t *at) { uint32_t x; memcpy(&x, at, 4); return x; }
static uint64_t u64_at(const uint8_t *at) { uint64_t x; memcpy(&x, at, 8); return x; }

/* ---- CRC-32 (zlib's) ------------------------------------------------------------------------------------------- */

static uint32_t crc_table[8][256];

static void make_crc_table(void)
{
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t c = i;
        for (int bit = 0; bit < 8; bit++)
            c = c & 1 ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        crc_table[0][i] = c;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = (crc_table[k - 1][i] >> 8) ^ crc_table[0][crc_table[k - 1][i] & 0xFF];
}

/* `c` is the inverted checksum here and below. */
static uint32_t crc_by_table(uint32_t c, const uint8_t *p, size_t n)
{
    while (n >= 8) {
        uint32_t low = u32_at(p) ^ c, high = u32_at(p + 4);
        c = crc_table[7][low & 0xFF] ^ crc_table[6][(low >> 8) & 0xFF] ^ crc_table[5][(low >> 16) & 0xFF] ^
            crc_table[4][low >> 24] ^ crc_table[3][high & 0xFF] ^ crc_table[2][(high >> 8) & 0xFF] ^
            crc_table[1][(high >> 16) & 0xFF] ^ crc_table[0][high >> 24];
        p += 8;
        n -= 8;
    }
    while (n--)
        c = (c >> 8) ^ crc_table[0][(c ^ *p++) & 0xFF];
    return c;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
#define HAS_CLMUL_CODE 1
static int has_clmul;

#define FOLD(x, k) _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11))

/* Carry-less multiplication: a block is folded onto one further on, because x^k mod P is known for each distance k.
 * The constants are x^(distance ± 32) mod P, bit-reflected, for the polynomial of CRC-32. At least 64 bytes. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc_by_clmul(uint32_t c, const uint8_t *p, size_t n)
{
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i to_64 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_set_epi32(0, -1, 0, -1);
    __m128i x[4];
    for (int i = 0; i < 4; i++)
        x[i] = _mm_loadu_si128((const __m128i *)(p + 16 * i));
    x[0] = _mm_xor_si128(x[0], _mm_cvtsi32_si128((int)c));
    for (p += 64, n -= 64; n >= 64; p += 64, n -= 64)
        for (int i = 0; i < 4; i++)
            x[i] = _mm_xor_si128(FOLD(x[i], by_64), _mm_loadu_si128((const __m128i *)(p + 16 * i)));
    __m128i y = x[0];
    for (int i = 1; i < 4; i++)
        y = _mm_xor_si128(FOLD(y, by_16), x[i]);
    for (; n >= 16; p += 16, n -= 16)
        y = _mm_xor_si128(FOLD(y, by_16), _mm_loadu_si128((const __m128i *)p));
    y = _mm_xor_si128(_mm_clmulepi64_si128(y, by_16, 0x10), _mm_srli_si128(y, 8));
    __m128i z = _mm_srli_si128(y, 4);
    y = _mm_xor_si128(_mm_clmulepi64_si128(_mm_and_si128(y, low_words), to_64, 0x00), z);
    z = _mm_clmulepi64_si128(_mm_and_si128(y, low_words), barrett, 0x10);
    z = _mm_clmulepi64_si128(_mm_and_si128(z, low_words), barrett, 0x00);
    return crc_by_table((uint32_t)_mm_extract_epi32(_mm_xor_si128(y, z), 1), p, n);
}
#endif

static uint32_t crc_of(uint32_t value, const uint8_t *p, size_t n)
{
#ifdef HAS_CLMUL_CODE
    if (has_clmul && n >= 64)
        return ~crc_by_clmul(~value, p, n);
#endif
    return ~crc_by_table(~value, p, n);
}

static PyObject *crc32_py(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    Py_buffer data;
    unsigned long value = 0;
    if (nargs < 1 || nargs > 2) {
        PyErr_SetString(PyExc_TypeError, "crc32(data, value=0)");
        return NULL;
    }
    if (nargs == 2) {
        value = PyLong_AsUnsignedLongMask(args[1]);
        if (value == (unsigned long)-1 && PyErr_Occurred())
            return NULL;
    }
    if (PyObject_GetBuffer(args[0], &data, PyBUF_SIMPLE) < 0)
        return NULL;
    uint32_t found = crc_of((uint32_t)value, data.buf, (size_t)data.len);
    PyBuffer_Release(&data);
    return PyLong_FromUnsignedLong(found);
}

/* ---- records --------------------------------------------------------------------------------------------------- */

struct record_type {
    uint16_t base; /* 0: there is no such type */
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
        if (!PyArg_ParseTuple(PySequence_Fast_GET_ITEM(listed, i), "iiii", &rtype, &base, &sequence, &ts_recv)) {
            Py_DECREF(listed);
            return NULL;
        }
        if (rtype < 0 || rtype > 255 || base < 4 || base > 1020 || sequence + 4 > base || ts_recv + 8 > base) {
            Py_DECREF(listed);
            PyErr_SetString(PyExc_ValueError, "no such record type can be");
            return NULL;
        }
        types[rtype] = (struct record_type){(uint16_t)base, (int16_t)sequence, (int16_t)ts_recv};
    }
    Py_DECREF(listed);
    Py_RETURN_NONE;
}

/* The size of the record at `p`, of which `left` bytes are there; 0 if it is no allowed record. */
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

/* How many allowed records fill the bytes; -1 if others do, or with `fresh` if one has a stamp. */
static Py_ssize_t count_in(const uint8_t *p, size_t n, int fresh)
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

static inline void put_stamp(uint8_t *p, uint32_t sequence, uint64_t ts_recv)
{
    const struct record_type *type = &types[p[1]];
    if (type->sequence >= 0)
        memcpy(p + type->sequence, &sequence, 4);
    if (type->ts_recv >= 0)
        memcpy(p + type->ts_recv, &ts_recv, 8);
}

static PyObject *count_py(PyObject *self, PyObject *payload)
{
    Py_buffer data;
    if (PyObject_GetBuffer(payload, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t count = count_in(data.buf, (size_t)data.len, 0);
    PyBuffer_Release(&data);
    return PyLong_FromSsize_t(count);
}

static PyObject *count_fresh_py(PyObject *self, PyObject *payload)
{
    Py_buffer data;
    if (PyObject_GetBuffer(payload, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    Py_ssize_t count = count_in(data.buf, (size_t)data.len, 1);
    PyBuffer_Release(&data);
    return PyLong_FromSsize_t(count);
}

static PyObject *stamp_py(PyObject *self, PyObject *args)
{
    Py_buffer data;
    unsigned long long sequence, ts_recv;
    if (!PyArg_ParseTuple(args, "w*KK", &data, &sequence, &ts_recv))
        return NULL;
    uint8_t *p = data.buf;
    Py_ssize_t count = count_in(p, (size_t)data.len, 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        put_stamp(p, (uint32_t)(sequence + (unsigned long long)i), ts_recv);
        p += (size_t)p[0] * 4;
    }
    PyBuffer_Release(&data);
    return PyLong_FromSsize_t(count);
}

static PyObject *unstamp_py(PyObject *self, PyObject *buffer)
{
    Py_buffer data;
    if (PyObject_GetBuffer(buffer, &data, PyBUF_WRITABLE) < 0)
        return NULL;
    uint8_t *p = data.buf;
    Py_ssize_t count = count_in(p, (size_t)data.len, 0);
    for (Py_ssize_t i = 0; i < count; i++) {
        put_stamp(p, 0, 0);
        p += (size_t)p[0] * 4;
    }
    PyBuffer_Release(&data);
    return PyLong_FromSsize_t(count);
}

/* The fields of a packet of the ring, a tuple (source, incarnation, number, records, payload). */
enum { PACKET_RECORDS = 3, PACKET_PAYLOAD = 4, PACKET_FIELDS = 5 };

static PyObject *assemble_py(PyObject *self, PyObject *args)
{
    PyObject *packets;
    unsigned long long sequence, ts_recv;
    if (!PyArg_ParseTuple(args, "O!KK", &PyTuple_Type, &packets, &sequence, &ts_recv))
        return NULL;
    Py_ssize_t total = 0;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(packets); i++) {
        PyObject *packet = PyTuple_GET_ITEM(packets, i);
        if (!PyTuple_Check(packet) || PyTuple_GET_SIZE(packet) != PACKET_FIELDS ||
            !PyBytes_Check(PyTuple_GET_ITEM(packet, PACKET_PAYLOAD))) {
            PyErr_SetString(PyExc_TypeError, "packets with bytes are wanted");
            return NULL;
        }
        total += PyBytes_GET_SIZE(PyTuple_GET_ITEM(packet, PACKET_PAYLOAD));
    }
    PyObject *content = PyByteArray_FromStringAndSize(NULL, total);
    if (content == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyByteArray_AS_STRING(content);
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(packets); i++) {
        PyObject *packet = PyTuple_GET_ITEM(packets, i), *payload = PyTuple_GET_ITEM(packet, PACKET_PAYLOAD);
        size_t left = (size_t)PyBytes_GET_SIZE(payload);
        Py_ssize_t records = PyLong_AsSsize_t(PyTuple_GET_ITEM(packet, PACKET_RECORDS)), found = 0;
        if (records == -1 && PyErr_Occurred()) {
            Py_DECREF(content);
            return NULL;
        }
        memcpy(to, PyBytes_AS_STRING(payload), left);
        while (left) {
            size_t size = record_size(to, left);
            if (size == 0 || !is_fresh(to))
                goto bad;
            put_stamp(to, (uint32_t)sequence, ts_recv);
            sequence++;
            found++;
            to += size;
            left -= size;
        }
        if (found != records)
            goto bad;
    }
    return content;
bad:
    Py_DECREF(content);
    Py_RETURN_NONE;
}

/* ---- core datagrams: Data -------------------------------------------------------------------------------------- */

enum { HEADER = 24, DATA_HEAD = 20, SEAL = 4, MAX_DATAGRAM = 65507, KIND_DATA = 1 };

static PyObject *open_data_py(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyBytes_Check(args[0]) || !PyType_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "open_data(datagram, stripe, type)");
        return NULL;
    }
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    size_t n = (size_t)PyBytes_GET_SIZE(args[0]);
    long stripe = PyLong_AsLong(args[1]);
    if (stripe == -1 && PyErr_Occurred())
        return NULL;
    /* magic, version and kind; stripe; no generation; length; seal; reserved */
    if (n < HEADER + DATA_HEAD + SEAL || n > MAX_DATAGRAM || u32_at(p) != (0x0001434Cu | (uint32_t)KIND_DATA << 24) ||
        u16_at(p + 4) != stripe || u64_at(p + 8) != 0 || u32_at(p + 16) != n || u32_at(p + 20) != 0x0401u)
        Py_RETURN_NONE;
    size_t size = n - HEADER - DATA_HEAD - SEAL;
    const uint8_t *payload = p + HEADER + DATA_HEAD;
    uint64_t number = u64_at(p + HEADER + 8);
    uint32_t records = u32_at(p + HEADER + 16);
    if (size == 0 || number == 0 || crc_of(0, p, n - SEAL) != u32_at(p + n - SEAL) ||
        count_in(payload, size, 1) != (Py_ssize_t)records)
        Py_RETURN_NONE;
    PyTypeObject *type = (PyTypeObject *)args[2];
    PyObject *packet = type->tp_alloc(type, PACKET_FIELDS);
    if (packet == NULL)
        return NULL;
    PyTuple_SET_ITEM(packet, 0, PyLong_FromUnsignedLong(u16_at(p + 6)));
    PyTuple_SET_ITEM(packet, 1, PyLong_FromUnsignedLongLong(u64_at(p + HEADER)));
    PyTuple_SET_ITEM(packet, 2, PyLong_FromUnsignedLongLong(number));
    PyTuple_SET_ITEM(packet, 3, PyLong_FromUnsignedLong(records));
    PyTuple_SET_ITEM(packet, 4, PyBytes_FromStringAndSize((const char *)payload, (Py_ssize_t)size));
    for (int i = 0; i < PACKET_FIELDS; i++)
        if (PyTuple_GET_ITEM(packet, i) == NULL) {
            Py_DECREF(packet);
            return NULL;
        }
    return packet;
}

/* ---- MoldUDP64 ------------------------------------------------------------------------------------------------- */

enum { MOLD_HEADER = 20, MOLD_SESSION = 10, MOLD_MAX_COUNT = 0xFFFE };

static uint64_t big_u64(const uint8_t *p) { return __builtin_bswap64(u64_at(p)); }
static uint16_t big_u16(const uint8_t *p) { return (uint16_t)(p[0] << 8 | p[1]); }

static PyObject *open_mold_py(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 2 || !PyBytes_Check(args[0]) || !PyType_Check(args[1])) {
        PyErr_SetString(PyExc_TypeError, "open_mold(datagram, type)");
        return NULL;
    }
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(args[0]);
    size_t n = (size_t)PyBytes_GET_SIZE(args[0]);
    if (n < MOLD_HEADER + 6 || n > MAX_DATAGRAM || p[0] == ' ')
        Py_RETURN_NONE;
    for (int i = 0; i < MOLD_SESSION; i++)
        if (p[i] < 0x20 || p[i] > 0x7E)
            Py_RETURN_NONE;
    uint64_t sequence = big_u64(p + 10);
    size_t count = big_u16(p + 18), size = big_u16(p + MOLD_HEADER);
    if (sequence == 0 || count == 0 || count > MOLD_MAX_COUNT || sequence + count - 1 < sequence || size == 0 ||
        n != MOLD_HEADER + count * (size + 2))
        Py_RETURN_NONE;
    PyObject *payload = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(count * size));
    if (payload == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(payload);
    const uint8_t *from = p + MOLD_HEADER;
    for (size_t i = 0; i < count; i++, from += size + 2, to += size) {
        if (big_u16(from) != size || (size_t)from[2] * 4 != size) {
            Py_DECREF(payload);
            Py_RETURN_NONE;
        }
        memcpy(to, from + 2, size);
    }
    PyTypeObject *type = (PyTypeObject *)args[1];
    PyObject *packet = type->tp_alloc(type, 5);
    if (packet == NULL) {
        Py_DECREF(payload);
        return NULL;
    }
    PyTuple_SET_ITEM(packet, 0, PyBytes_FromStringAndSize((const char *)p, MOLD_SESSION));
    PyTuple_SET_ITEM(packet, 1, PyLong_FromUnsignedLongLong(sequence));
    PyTuple_SET_ITEM(packet, 2, PyLong_FromSize_t(count));
    PyTuple_SET_ITEM(packet, 3, PyLong_FromSize_t(size));
    PyTuple_SET_ITEM(packet, 4, payload);
    for (int i = 0; i < 4; i++)
        if (PyTuple_GET_ITEM(packet, i) == NULL) {
            Py_DECREF(packet);
            return NULL;
        }
    return packet;
}

/* One packet: a header, then `count` records from `p` on, each behind its length. Returns a `type` of session, sequence,
 * count and datagram. */
static PyObject *mold_packet(PyTypeObject *type, PyObject *session, uint64_t sequence, size_t count, const uint8_t *p,
                             size_t bytes)
{
    PyObject *datagram = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(MOLD_HEADER + bytes + 2 * count));
    PyObject *packet = datagram == NULL ? NULL : type->tp_alloc(type, 4);
    if (packet == NULL) {
        Py_XDECREF(datagram);
        return NULL;
    }
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(datagram);
    uint64_t big = __builtin_bswap64(sequence);
    memcpy(to, PyBytes_AS_STRING(session), MOLD_SESSION);
    memcpy(to + 10, &big, 8);
    to[18] = (uint8_t)(count >> 8);
    to[19] = (uint8_t)count;
    to += MOLD_HEADER;
    for (const uint8_t *end = p + bytes; p < end;) {
        size_t size = (size_t)p[0] * 4;
        to[0] = (uint8_t)(size >> 8);
        to[1] = (uint8_t)size;
        memcpy(to + 2, p, size);
        p += size;
        to += size + 2;
    }
    PyTuple_SET_ITEM(packet, 0, Py_NewRef(session));
    PyTuple_SET_ITEM(packet, 1, PyLong_FromUnsignedLongLong(sequence));
    PyTuple_SET_ITEM(packet, 2, PyLong_FromSize_t(count));
    PyTuple_SET_ITEM(packet, 3, datagram);
    if (PyTuple_GET_ITEM(packet, 1) == NULL || PyTuple_GET_ITEM(packet, 2) == NULL)
        Py_CLEAR(packet);
    return packet;
}

static PyObject *mold_packets_py(PyObject *self, PyObject *args)
{
    Py_buffer data;
    PyObject *session, *list;
    PyTypeObject *type;
    unsigned long long sequence;
    Py_ssize_t room;
    if (!PyArg_ParseTuple(args, "y*SKnO!", &data, &session, &sequence, &room, &PyType_Type, &type))
        return NULL;
    room -= MOLD_HEADER;
    if (PyBytes_GET_SIZE(session) != MOLD_SESSION || room < 2 + 1020 || room > MAX_DATAGRAM - MOLD_HEADER) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "a session has 10 bytes, and a packet room for the largest record");
        return NULL;
    }
    if ((list = PyList_New(0)) == NULL)
        goto done;
    const uint8_t *first = data.buf, *p = first, *end = p + data.len;
    size_t count = 0;
    for (;;) {
        size_t size = p < end ? (size_t)p[0] * 4 : 0;
        if (p < end && (size < 8 || size > (size_t)(end - p) || u32_at(p + 4) == 0)) {
            Py_SETREF(list, Py_NewRef(Py_None));
            goto done;
        }
        size_t with = (size_t)(p - first) + 2 * count + size + 2;
        if (count && (p == end || with > (size_t)room || count == MOLD_MAX_COUNT)) {
            PyObject *packet = mold_packet(type, session, sequence, count, first, (size_t)(p - first));
            if (packet == NULL || PyList_Append(list, packet) < 0) {
                Py_XDECREF(packet);
                Py_CLEAR(list);
                goto done;
            }
            Py_DECREF(packet);
            sequence += count;
            first = p;
            count = 0;
        }
        if (p == end)
            break;
        p += size;
        count++;
    }
done:
    PyBuffer_Release(&data);
    return list;
}

/* ---- sockets --------------------------------------------------------------------------------------------------- */

#ifndef UDP_GRO
#define UDP_GRO 104
#endif
enum { BATCH = 32, LARGEST = 65536 };
static uint8_t *inbox; /* BATCH buffers of LARGEST bytes: one thread drains at a time, under the interpreter's lock */

/* How many were appended; -1 on an error. */
static int append_segments(PyObject *list, const uint8_t *p, size_t n, size_t segment, PyObject *source)
{
    int appended = 0;
    if (segment == 0)
        segment = n ? n : 1;
    do {
        size_t size = n < segment ? n : segment;
        PyObject *datagram = PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)size);
        PyObject *pair = datagram == NULL ? NULL : PyTuple_Pack(2, datagram, source);
        Py_XDECREF(datagram);
        if (pair == NULL || PyList_Append(list, pair) < 0) {
            Py_XDECREF(pair);
            return -1;
        }
        Py_DECREF(pair);
        p += size;
        n -= size;
        appended++;
    } while (n);
    return appended;
}

static size_t segment_of(struct msghdr *message)
{
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(c), sizeof size);
            return size > 0 ? (size_t)size : 0;
        }
    return 0;
}

static PyObject *drain_py(PyObject *self, PyObject *args)
{
    int fd, limit, own_port;
    const char *own_host;
    if (!PyArg_ParseTuple(args, "iisi", &fd, &limit, &own_host, &own_port))
        return NULL;
    struct in_addr own;
    if (inet_aton(own_host, &own) == 0) {
        PyErr_SetString(PyExc_ValueError, "an IPv4 address is wanted");
        return NULL;
    }
    if (inbox == NULL && (inbox = malloc((size_t)BATCH * LARGEST)) == NULL)
        return PyErr_NoMemory();
    PyObject *list = PyList_New(0), *source = NULL;
    struct sockaddr_in known = {0};
    static int trains; /* they come one at a time, so that a drain stays bounded */
    if (list == NULL)
        return NULL;
    while (limit > 0) {
        struct mmsghdr messages[BATCH];
        struct iovec vectors[BATCH];
        struct sockaddr_in from[BATCH];
        union { char bytes[CMSG_SPACE(sizeof(int))]; struct cmsghdr align; } control[BATCH];
        int wanted = trains ? 1 : limit < BATCH ? limit : BATCH;
        for (int i = 0; i < wanted; i++) {
            vectors[i] = (struct iovec){inbox + (size_t)i * LARGEST, LARGEST};
            messages[i].msg_hdr = (struct msghdr){.msg_name = &from[i],
                                                  .msg_namelen = sizeof from[i],
                                                  .msg_iov = &vectors[i],
                                                  .msg_iovlen = 1,
                                                  .msg_control = control[i].bytes,
                                                  .msg_controllen = sizeof control[i].bytes};
        }
        int got = recvmmsg(fd, messages, (unsigned)wanted, MSG_DONTWAIT, NULL);
        if (got < 0) {
            if (errno == EINTR)
                continue;
            if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNREFUSED)
                break;
            PyErr_SetFromErrno(PyExc_OSError);
            goto failed;
        }
        for (int i = 0; i < got; i++) {
            if (from[i].sin_addr.s_addr == own.s_addr && ntohs(from[i].sin_port) == own_port) {
                limit--;
                continue;
            }
            if (source == NULL || from[i].sin_addr.s_addr != known.sin_addr.s_addr || from[i].sin_port != known.sin_port) {
                char text[INET_ADDRSTRLEN];
                inet_ntop(AF_INET, &from[i].sin_addr, text, sizeof text);
                Py_XSETREF(source, Py_BuildValue("si", text, (int)ntohs(from[i].sin_port)));
                if (source == NULL)
                    goto failed;
                known = from[i];
            }
            size_t segment = segment_of(&messages[i].msg_hdr);
            int appended = append_segments(list, vectors[i].iov_base, messages[i].msg_len, segment, source);
            if (appended < 0)
                goto failed;
            limit -= appended;
            trains = appended > 1;
        }
        if (got < wanted)
            break;
    }
    Py_XDECREF(source);
    return list;
failed:
    Py_XDECREF(source);
    Py_DECREF(list);
    return NULL;
}

static PyMethodDef methods[] = {
    {"crc32", (PyCFunction)(void (*)(void))crc32_py, METH_FASTCALL, NULL},
    {"teach", teach_py, METH_O, NULL},
    {"count", count_py, METH_O, NULL},
    {"count_fresh", count_fresh_py, METH_O, NULL},
    {"stamp", stamp_py, METH_VARARGS, NULL},
    {"unstamp", unstamp_py, METH_O, NULL},
    {"assemble", assemble_py, METH_VARARGS, NULL},
    {"open_data", (PyCFunction)(void (*)(void))open_data_py, METH_FASTCALL, NULL},
    {"open_mold", (PyCFunction)(void (*)(void))open_mold_py, METH_FASTCALL, NULL},
    {"mold_packets", mold_packets_py, METH_VARARGS, NULL},
    {"drain", drain_py, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_native", "The compiled side of levelcast.kernel.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__native(void)
{
    make_crc_table();
#ifdef HAS_CLMUL_CODE
    __builtin_cpu_init();
    has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
    return PyModule_Create(&module);
}
