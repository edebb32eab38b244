/* Functions per record and per datagram for which Python is too slow. levelcast/native/pure_core.py specifies each
 * function, and the tests compare the two; this file is only faster. The only state is the table of record types, and
 * no function blocks. Little-endian machines only (others use pure_core.py). */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include "_packets.h"
#include "_drain.h"

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
static int has_clmul, has_wide_clmul;

#define FOLD(x, k) _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11))

/* Carry-less multiplication: a block is folded onto a later one, because x^k mod P is known for each distance k.
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

#define WIDE_FOLD(x, k, next) \
    _mm512_ternarylogic_epi64(_mm512_clmulepi64_epi128(x, k, 0x00), _mm512_clmulepi64_epi128(x, k, 0x11), next, 0x96)

/* The same, sixteen blocks at a time, for long runs of bytes; the last 64 bytes of it are folded as above. At least 512
 * bytes. */
__attribute__((target("avx512f,avx512vl,vpclmulqdq,pclmul,sse4.1"))) static uint32_t crc_by_wide_clmul(uint32_t c,
                                                                                             const uint8_t *p, size_t n)
{
    const __m512i by_256 = _mm512_set_epi64(0x01322d1430, 0x011542778a, 0x01322d1430, 0x011542778a, 0x01322d1430,
                                            0x011542778a, 0x01322d1430, 0x011542778a);
    const __m512i by_64 = _mm512_set_epi64(0x01c6e41596, 0x0154442bd4, 0x01c6e41596, 0x0154442bd4, 0x01c6e41596,
                                           0x0154442bd4, 0x01c6e41596, 0x0154442bd4);
    __m512i x[4];
    uint8_t last[64];
    for (int i = 0; i < 4; i++)
        x[i] = _mm512_loadu_si512(p + 64 * i);
    x[0] = _mm512_xor_si512(x[0], _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)c)));
    for (p += 256, n -= 256; n >= 256; p += 256, n -= 256)
        for (int i = 0; i < 4; i++)
            x[i] = WIDE_FOLD(x[i], by_256, _mm512_loadu_si512(p + 64 * i));
    __m512i y = x[0];
    for (int i = 1; i < 4; i++)
        y = WIDE_FOLD(y, by_64, x[i]);
    for (; n >= 64; p += 64, n -= 64)
        y = WIDE_FOLD(y, by_64, _mm512_loadu_si512(p));
    _mm512_storeu_si512(last, y);
    /* The checksum of the 64 folded bytes, computed from scratch: as an inverted one it starts from zero. */
    return crc_by_table(crc_by_clmul(0, last, 64), p, n);
}
#endif

static uint32_t crc_of(uint32_t value, const uint8_t *p, size_t n)
{
#ifdef HAS_CLMUL_CODE
    if (has_wide_clmul && n >= 512)
        return ~crc_by_wide_clmul(~value, p, n);
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

/* The end of each record, as int64, whatever its type is; it stops before one that is empty or incomplete. */
static PyObject *record_ends_py(PyObject *self, PyObject *payload)
{
    Py_buffer data;
    if (PyObject_GetBuffer(payload, &data, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *p = data.buf;
    size_t n = (size_t)data.len, at = 0, size;
    Py_ssize_t count = 0;
    for (; at < n && (size = (size_t)p[at] * 4) != 0 && size <= n - at; at += size)
        count++;
    PyObject *ends = PyBytes_FromStringAndSize(NULL, 8 * count);
    if (ends != NULL) {
        char *to = PyBytes_AS_STRING(ends);
        int64_t end = 0;
        for (Py_ssize_t i = 0; i < count; i++, to += 8) {
            end += (int64_t)p[end] * 4;
            memcpy(to, &end, 8);
        }
    }
    PyBuffer_Release(&data);
    return ends;
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

/* ---- core datagrams: Data -------------------------------------------------------------------------------------- */

/* The overhead of a packet that is sealed with a CRC-32. */
enum { CRC32_OVERHEAD = PAYLOAD_AT + CRC32_SIZE };

/* True if the bytes are one valid packet of the domain with only fresh records. */
static int open_packet(const uint8_t *p, size_t n, struct domain domain, struct packet *packet)
{
    if (n <= CRC32_OVERHEAD || n > MAX_DATAGRAM || u32_at(p) != DATA_MAGIC || u16_at(p + STRIPE_AT) != domain.stripe ||
        u64_at(p + GENERATION_AT) != 0 || u32_at(p + LENGTH_AT) != n || u32_at(p + SEAL_KIND_AT) != CRC32_SEAL ||
        u64_at(p + NETWORK_AT) != domain.network)
        return 0;
    packet->source = u16_at(p + SENDER_AT);
    packet->incarnation = u64_at(p + HEADER_SIZE);
    packet->number = u64_at(p + HEADER_SIZE + 8);
    packet->records = u32_at(p + HEADER_SIZE + 16);
    return packet->number != 0 && crc_of(0, p, n - CRC32_SIZE) == u32_at(p + n - CRC32_SIZE) &&
           count_in(p + PAYLOAD_AT, n - CRC32_OVERHEAD, 1) == (Py_ssize_t)packet->records;
}

static PyObject *open_data_py(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs != 3 || !PyBytes_Check(args[0]) || !PyType_Check(args[2])) {
        PyErr_SetString(PyExc_TypeError, "open_data(datagram, domain, type)");
        return NULL;
    }
    struct domain domain;
    if (!domain_of(args[1], &domain))
        return NULL;
    struct packet packet;
    if (!open_packet((const uint8_t *)PyBytes_AS_STRING(args[0]), (size_t)PyBytes_GET_SIZE(args[0]), domain, &packet))
        Py_RETURN_NONE;
    return data_of((PyTypeObject *)args[2], &packet, 1, Py_NewRef(args[0]));
}

static PyObject *cut_py(PyObject *self, PyObject *args)
{
    PyObject *sealed;
    Py_ssize_t skip, take;
    if (!PyArg_ParseTuple(args, "Snn", &sealed, &skip, &take))
        return NULL;
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(sealed), *end = p + PyBytes_GET_SIZE(sealed), *from = p;
    for (Py_ssize_t i = 0; i < skip + take; i++) {
        size_t size = sealed_size(p, (size_t)(end - p));
        if (size == 0)
            return bad_sealed();
        if (i == skip)
            from = p;
        p += size;
    }
    if (skip < 0 || take < 1)
        return bad_sealed();
    return PyBytes_FromStringAndSize((const char *)from, p - from);
}

static PyObject *xor_padded_py(PyObject *self, PyObject *parts)
{
    PyObject *fast = PySequence_Fast(parts, "xor_padded needs a sequence of bytes");
    if (fast == NULL)
        return NULL;
    Py_ssize_t count = PySequence_Fast_GET_SIZE(fast), longest = 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *part = PySequence_Fast_GET_ITEM(fast, i);
        if (!PyBytes_Check(part)) {
            Py_DECREF(fast);
            PyErr_SetString(PyExc_TypeError, "xor_padded needs a sequence of bytes");
            return NULL;
        }
        if (PyBytes_GET_SIZE(part) > longest)
            longest = PyBytes_GET_SIZE(part);
    }
    PyObject *made = PyBytes_FromStringAndSize(NULL, longest);
    if (made != NULL) {
        uint8_t *to = (uint8_t *)PyBytes_AS_STRING(made);
        memset(to, 0, (size_t)longest);
        for (Py_ssize_t i = 0; i < count; i++) {
            PyObject *part = PySequence_Fast_GET_ITEM(fast, i);
            const uint8_t *from = (const uint8_t *)PyBytes_AS_STRING(part);
            for (Py_ssize_t at = 0; at < PyBytes_GET_SIZE(part); at++)
                to[at] ^= from[at];
        }
    }
    Py_DECREF(fast);
    return made;
}

static PyObject *ends_py(PyObject *self, PyObject *sealed)
{
    if (!PyBytes_Check(sealed)) {
        PyErr_SetString(PyExc_TypeError, "bytes are wanted");
        return NULL;
    }
    const uint8_t *begin = (const uint8_t *)PyBytes_AS_STRING(sealed), *p = begin;
    const uint8_t *end = p + PyBytes_GET_SIZE(sealed);
    size_t count = 0;
    for (size_t size; p < end; p += size, count++)
        if ((size = sealed_size(p, (size_t)(end - p))) == 0)
            return bad_sealed();
    PyObject *ends = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(4 * count));
    if (ends == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyBytes_AS_STRING(ends);
    for (p = begin; p < end; to += 4) {
        p += u32_at(p + LENGTH_AT);
        uint32_t at = (uint32_t)(p - begin);
        memcpy(to, &at, 4);
    }
    return ends;
}

static PyObject *assemble_py(PyObject *self, PyObject *values)
{
    PyObject *table = NULL, *content = NULL, *listed = PySequence_Fast(values, "a sequence of Data is wanted");
    if (listed == NULL)
        return NULL;
    size_t packets = 0, bytes = 0;
    uint64_t records = 0;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(listed); i++) {
        PyObject *data = PySequence_Fast_GET_ITEM(listed, i);
        if (!PyTuple_Check(data) || PyTuple_GET_SIZE(data) != DATA_FIELDS ||
            !PyBytes_Check(PyTuple_GET_ITEM(data, DATA_SEALED))) {
            PyErr_SetString(PyExc_TypeError, "Data are wanted");
            goto done;
        }
        PyObject *sealed = PyTuple_GET_ITEM(data, DATA_SEALED);
        const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(sealed), *end = p + PyBytes_GET_SIZE(sealed);
        for (size_t size; p < end; p += size, packets++) {
            if ((size = sealed_size(p, (size_t)(end - p))) == 0) {
                bad_sealed();
                goto done;
            }
            bytes += payload_size(p, size);
        }
    }
    table = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(packets * ROW));
    content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    if (table == NULL || content == NULL) {
        Py_CLEAR(table);
        Py_CLEAR(content);
        goto done;
    }
    uint8_t *row = (uint8_t *)PyBytes_AS_STRING(table), *to = (uint8_t *)PyBytes_AS_STRING(content);
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(listed); i++) {
        PyObject *sealed = PyTuple_GET_ITEM(PySequence_Fast_GET_ITEM(listed, i), DATA_SEALED);
        const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(sealed), *end = p + PyBytes_GET_SIZE(sealed);
        for (size_t size; p < end; p += size, row += ROW) {
            size = u32_at(p + LENGTH_AT);
            uint32_t length = (uint32_t)payload_size(p, size);
            memcpy(row, p + SENDER_AT, 2);
            memcpy(row + 2, p + HEADER_SIZE, DATA_BODY_SIZE);
            memcpy(row + 22, &length, 4);
            records += u32_at(row + 18);
            memcpy(to, p + PAYLOAD_AT, length);
            to += length;
        }
    }
done:
    Py_DECREF(listed);
    return table == NULL ? NULL : Py_BuildValue("NNK", table, content, (unsigned long long)records);
}

static PyObject *stamped_py(PyObject *self, PyObject *args)
{
    Py_buffer table, content;
    PyObject *found = NULL;
    unsigned long long sequence, ts_recv;
    if (!PyArg_ParseTuple(args, "y*y*KK", &table, &content, &sequence, &ts_recv))
        return NULL;
    if ((found = PyByteArray_FromStringAndSize(content.buf, content.len)) == NULL)
        goto done;
    uint8_t *p = (uint8_t *)PyByteArray_AS_STRING(found), *end = p + content.len;
    const uint8_t *row = table.buf;
    int good = table.len % ROW == 0;
    for (Py_ssize_t i = 0; good && i < table.len / ROW; i++, row += ROW) {
        uint32_t records = u32_at(row + 18), left = u32_at(row + 22);
        good = left <= (size_t)(end - p);
        for (; good && left; records--) {
            size_t size = record_size(p, left);
            if ((good = size != 0 && records != 0 && is_fresh(p))) {
                put_stamp(p, (uint32_t)sequence++, ts_recv);
                p += size;
                left -= (uint32_t)size;
            }
        }
        good = good && records == 0;
    }
    if (!good || p != end)
        Py_SETREF(found, Py_NewRef(Py_None));
done:
    PyBuffer_Release(&table);
    PyBuffer_Release(&content);
    return found;
}

static PyObject *seal_packets_py(PyObject *self, PyObject *args)
{
    Py_buffer payload;
    Py_ssize_t packet_bytes, most;
    struct domain domain;
    unsigned short source;
    unsigned long long incarnation, number;
    if (!PyArg_ParseTuple(args, "y*nnO&HKK", &payload, &packet_bytes, &most, domain_of, &domain, &source, &incarnation,
                          &number))
        return NULL;
    size_t room = packet_bytes > CRC32_OVERHEAD ? (size_t)packet_bytes - CRC32_OVERHEAD : 0;
    if (packet_bytes > MAX_DATAGRAM)
        room = MAX_DATAGRAM - CRC32_OVERHEAD;
    const uint8_t *first = payload.buf, *p = first, *end = p + payload.len;
    size_t packets = 0, records = 0, total = 0;
    PyObject *sealed = NULL;
    /* Two passes over the records: the total size, and then the packets. */
    for (int fill = 0; fill < 2; fill++) {
        uint8_t *to = fill ? (uint8_t *)PyBytes_AS_STRING(sealed) : NULL;
        packets = records = 0;
        for (p = first; p < end && packets < (size_t)(most > 0 ? most : 0);) {
            const uint8_t *from = p;
            uint32_t here = 0;
            for (size_t size; (size = record_size(p, (size_t)(end - p))) && (size_t)(p - from) + size <= room; p += size)
                here++;
            if (here == 0)
                break;
            size_t n = (size_t)(p - from) + CRC32_OVERHEAD;
            if (fill) {
                uint32_t words[2] = {DATA_MAGIC, domain.stripe | (uint32_t)source << 16};
                uint32_t tail[2] = {(uint32_t)n, CRC32_SEAL};
                uint64_t its_number = number + packets;
                memset(to, 0, HEADER_SIZE);
                memcpy(to, words, 8);
                memcpy(to + LENGTH_AT, tail, 8);
                memcpy(to + NETWORK_AT, &domain.network, 8);
                memcpy(to + HEADER_SIZE, &incarnation, 8);
                memcpy(to + HEADER_SIZE + 8, &its_number, 8);
                memcpy(to + HEADER_SIZE + 16, &here, 4);
                memcpy(to + PAYLOAD_AT, from, (size_t)(p - from));
                uint32_t seal = crc_of(0, to, n - CRC32_SIZE);
                memcpy(to + n - CRC32_SIZE, &seal, CRC32_SIZE);
                to += n;
            } else {
                total += n;
            }
            packets++;
            records += here;
        }
        if (!fill && (sealed = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)total)) == NULL)
            break;
    }
    Py_ssize_t taken = p - first;
    PyBuffer_Release(&payload);
    return sealed == NULL ? NULL : Py_BuildValue("Nnnn", sealed, (Py_ssize_t)packets, (Py_ssize_t)records, taken);
}

/* ---- sockets --------------------------------------------------------------------------------------------------- */

static PyObject *drain_py(PyObject *self, PyObject *args)
{
    int fd, limit, own_port;
    const char *own_host;
    struct sockaddr_in own, known = {0};
    if (!PyArg_ParseTuple(args, "iisi", &fd, &limit, &own_host, &own_port) || own_address(own_host, own_port, &own) < 0)
        return NULL;
    PyObject *list = PyList_New(0), *source = NULL;
    struct arrivals in;
    static int trains; /* read one at a time, so that a drain stays bounded */
    while (list != NULL && limit > 0) {
        int wanted = trains ? 1 : limit < AT_ONCE ? limit : AT_ONCE, got = take_arrivals(fd, wanted, &in);
        if (got < 0)
            goto failed;
        for (int i = 0; i < got; i++) {
            if (is_from(&in.from[i], &own)) {
                limit--;
                continue;
            }
            if (source == NULL || !is_from(&in.from[i], &known)) {
                Py_XSETREF(source, address_of(&in.from[i]));
                if (source == NULL)
                    goto failed;
                known = in.from[i];
            }
            const uint8_t *p = in.vectors[i].iov_base;
            size_t left = in.messages[i].msg_len, segment = segment_of(&in, i);
            int64_t at = received_ns(&in, i);
            trains = left > segment;
            do {
                size_t n = left < segment ? left : segment;
                if (append_arrival(list, PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)n), source, at) < 0)
                    goto failed;
                p += n;
                left -= n;
                limit--;
            } while (left);
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

static int open_with_crc(void *keys, const uint8_t *p, size_t n, struct domain domain, struct packet *packet)
{
    return open_packet(p, n, domain, packet) ? VALID_PACKET : NOT_A_PACKET;
}

static PyObject *drain_packets_py(PyObject *self, PyObject *args) { return drain_packets(args, open_with_crc, NULL); }

static PyMethodDef methods[] = {
    {"crc32", (PyCFunction)(void (*)(void))crc32_py, METH_FASTCALL, NULL},
    {"teach", teach_py, METH_O, NULL},
    {"count", count_py, METH_O, NULL},
    {"record_ends", record_ends_py, METH_O, NULL},
    {"count_fresh", count_fresh_py, METH_O, NULL},
    {"stamp", stamp_py, METH_VARARGS, NULL},
    {"unstamp", unstamp_py, METH_O, NULL},
    {"assemble", assemble_py, METH_O, NULL},
    {"stamped", stamped_py, METH_VARARGS, NULL},
    {"cut", cut_py, METH_VARARGS, NULL},
    {"ends", ends_py, METH_O, NULL},
    {"xor_padded", xor_padded_py, METH_O, NULL},
    {"seal_packets", seal_packets_py, METH_VARARGS, NULL},
    {"drain_packets", drain_packets_py, METH_VARARGS, NULL},
    {"open_data", (PyCFunction)(void (*)(void))open_data_py, METH_FASTCALL, NULL},
    {"drain", drain_py, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_core", "The compiled side of levelcast.native.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__core(void)
{
    make_crc_table();
#ifdef HAS_CLMUL_CODE
    __builtin_cpu_init();
    has_clmul = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
    has_wide_clmul = has_clmul && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                     __builtin_cpu_supports("vpclmulqdq");
#endif
    PyObject *made = PyModule_Create(&module);
    if (made == NULL || PyModule_AddIntConstant(made, "VERSION", VERSION) < 0 ||
        PyModule_AddIntConstant(made, "HEADER_SIZE", HEADER_SIZE) < 0 ||
        PyModule_AddIntConstant(made, "DATA_BODY_SIZE", DATA_BODY_SIZE) < 0 ||
        PyModule_AddIntConstant(made, "SENDER_AT", SENDER_AT) < 0 ||
        PyModule_AddIntConstant(made, "LENGTH_AT", LENGTH_AT) < 0 ||
        PyModule_AddIntConstant(made, "SEAL_KIND_AT", SEAL_KIND_AT) < 0 ||
        PyModule_AddIntConstant(made, "SEAL_SIZE_AT", SEAL_SIZE_AT) < 0) {
        Py_XDECREF(made);
        return NULL;
    }
    return made;
}
