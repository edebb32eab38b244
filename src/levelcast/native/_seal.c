/* Packets sealed with AES-256-GCM, by the train, with the EVP interface of libcrypto. levelcast/native/pure_seal.py specifies
 * each function, and the tests compare the two. A machine without libcrypto's headers uses pure_seal.py. */

#define PY_SSIZE_T_CLEAN
#define _GNU_SOURCE
#include <Python.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <structmember.h>
#include "_packets.h"
#include "_drain.h"

enum { KEY_SIZE = 32, NONCE_SIZE = 12, OVERHEAD = PAYLOAD_AT + AES_GCM_SIZE, BUCKETS = 1024 };

static const EVP_CIPHER *cipher;
static uint8_t scratch[MAX_DATAGRAM]; /* clear text while a packet is checked; wiped before the function returns */

/* The nonce of a packet: four zero bytes and its number, as it is in the packet. */
static inline void nonce_of(const uint8_t *datagram, uint8_t *nonce)
{
    memset(nonce, 0, NONCE_SIZE - 8);
    memcpy(nonce + NONCE_SIZE - 8, datagram + HEADER_SIZE + 8, 8);
}

static EVP_CIPHER_CTX *new_context(const uint8_t *key, int seals)
{
    EVP_CIPHER_CTX *context = EVP_CIPHER_CTX_new();
    if (context != NULL && EVP_CipherInit_ex(context, cipher, NULL, key, NULL, seals) == 1)
        return context;
    EVP_CIPHER_CTX_free(context);
    PyErr_SetString(PyExc_RuntimeError, "libcrypto cannot use AES-256-GCM");
    return NULL;
}

/* Seal the datagram of `n` bytes at `p`, whose records are at `from`, which may be their place in the datagram. */
static int seal_datagram(EVP_CIPHER_CTX *context, uint8_t *p, size_t n, const uint8_t *from)
{
    uint8_t nonce[NONCE_SIZE];
    int done;
    nonce_of(p, nonce);
    return EVP_EncryptInit_ex(context, NULL, NULL, NULL, nonce) == 1 &&
           EVP_EncryptUpdate(context, NULL, &done, p, PAYLOAD_AT) == 1 &&
           EVP_EncryptUpdate(context, p + PAYLOAD_AT, &done, from, (int)(n - OVERHEAD)) == 1 &&
           EVP_EncryptFinal_ex(context, p + n - AES_GCM_SIZE, &done) == 1 &&
           EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_GET_TAG, AES_GCM_SIZE, p + n - AES_GCM_SIZE) == 1;
}

/* Write the records of the sealed datagram of `n` bytes at `p`; false if its tag is wrong. */
static int open_datagram(EVP_CIPHER_CTX *context, const uint8_t *p, size_t n, uint8_t *to)
{
    uint8_t nonce[NONCE_SIZE], tag[AES_GCM_SIZE], rest[16];
    int done;
    nonce_of(p, nonce);
    memcpy(tag, p + n - AES_GCM_SIZE, AES_GCM_SIZE);
    return EVP_DecryptInit_ex(context, NULL, NULL, NULL, nonce) == 1 &&
           EVP_DecryptUpdate(context, NULL, &done, p, PAYLOAD_AT) == 1 &&
           EVP_DecryptUpdate(context, to, &done, p + PAYLOAD_AT, (int)(n - OVERHEAD)) == 1 &&
           EVP_CIPHER_CTX_ctrl(context, EVP_CTRL_AEAD_SET_TAG, AES_GCM_SIZE, tag) == 1 &&
           EVP_DecryptFinal_ex(context, rest, &done) == 1;
}

static int key_bytes(PyObject *key, const uint8_t **bytes)
{
    if (!PyBytes_Check(key) || PyBytes_GET_SIZE(key) != KEY_SIZE) {
        PyErr_SetString(PyExc_ValueError, "a key has 32 bytes");
        return -1;
    }
    *bytes = (const uint8_t *)PyBytes_AS_STRING(key);
    return 0;
}

/* ---- sealing ----------------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    EVP_CIPHER_CTX *context;
    struct domain domain;
    uint16_t source, epoch;
    uint64_t incarnation, salt, last;
} Sealer;

static int sealer_init(Sealer *self, PyObject *args, PyObject *named)
{
    PyObject *key;
    const uint8_t *bytes;
    unsigned long long incarnation, salt;
    if (named != NULL && PyDict_GET_SIZE(named) != 0) {
        PyErr_SetString(PyExc_TypeError, "Sealer has no keyword arguments");
        return -1;
    }
    if (!PyArg_ParseTuple(args, "OO&HKHK", &key, domain_of, &self->domain, &self->source, &incarnation, &self->epoch,
                          &salt) ||
        key_bytes(key, &bytes) < 0)
        return -1;
    self->incarnation = incarnation;
    self->salt = salt;
    EVP_CIPHER_CTX_free(self->context);
    self->last = 0;
    return (self->context = new_context(bytes, 1)) == NULL ? -1 : 0;
}

static void sealer_free(Sealer *self)
{
    PyTypeObject *type = Py_TYPE(self);
    EVP_CIPHER_CTX_free(self->context); /* wipes the key */
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

/* A number is sealed once (K5), so that no nonce is used twice with this key. */
static int check_number(Sealer *self, uint64_t number)
{
    if (self->context != NULL && number > self->last)
        return 0;
    PyErr_SetString(PyExc_ValueError, "a packet of this number was sealed before");
    return -1;
}

static void put_head(Sealer *self, uint8_t *to, size_t n, uint64_t number, uint32_t records)
{
    uint32_t words[2] = {DATA_MAGIC, self->domain.stripe | (uint32_t)self->source << 16};
    uint32_t tail[2] = {(uint32_t)n, AES_GCM_SEAL | (uint32_t)self->epoch << 16};
    memcpy(to, words, 8);
    memcpy(to + SALT_AT, &self->salt, 8);
    memcpy(to + LENGTH_AT, tail, 8);
    memcpy(to + NETWORK_AT, &self->domain.network, 8);
    memcpy(to + HEADER_SIZE, &self->incarnation, 8);
    memcpy(to + HEADER_SIZE + 8, &number, 8);
    memcpy(to + HEADER_SIZE + 16, &records, 4);
}

static PyObject *sealer_seal(Sealer *self, PyObject *args)
{
    Py_buffer payload;
    unsigned long long number;
    unsigned int records;
    if (!PyArg_ParseTuple(args, "KIy*", &number, &records, &payload))
        return NULL;
    size_t n = (size_t)payload.len + OVERHEAD;
    PyObject *sealed = NULL;
    if (n > MAX_DATAGRAM)
        PyErr_SetString(PyExc_ValueError, "the records do not fit a datagram");
    else if (check_number(self, number) == 0 && (sealed = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)n)) != NULL) {
        uint8_t *to = (uint8_t *)PyBytes_AS_STRING(sealed);
        put_head(self, to, n, number, records);
        self->last = number;
        if (!seal_datagram(self->context, to, n, payload.buf)) {
            PyErr_SetString(PyExc_RuntimeError, "libcrypto cannot seal");
            Py_CLEAR(sealed);
        }
    }
    PyBuffer_Release(&payload);
    return sealed;
}

static PyObject *sealer_seal_packets(Sealer *self, PyObject *args)
{
    Py_buffer payload;
    Py_ssize_t packet_bytes, most;
    unsigned long long number;
    if (!PyArg_ParseTuple(args, "y*nnK", &payload, &packet_bytes, &most, &number))
        return NULL;
    if (check_number(self, number) < 0) {
        PyBuffer_Release(&payload);
        return NULL;
    }
    size_t room = packet_bytes > OVERHEAD ? (size_t)packet_bytes - OVERHEAD : 0;
    if (packet_bytes > MAX_DATAGRAM)
        room = MAX_DATAGRAM - OVERHEAD;
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
            size_t n = (size_t)(p - from) + OVERHEAD;
            if (fill) {
                put_head(self, to, n, number + packets, here);
                self->last = number + packets;
                if (!seal_datagram(self->context, to, n, from)) {
                    PyErr_SetString(PyExc_RuntimeError, "libcrypto cannot seal");
                    Py_CLEAR(sealed);
                    break;
                }
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

static PyMethodDef sealer_methods[] = {
    {"seal", (PyCFunction)(void (*)(void))sealer_seal, METH_VARARGS, NULL},
    {"seal_packets", (PyCFunction)(void (*)(void))sealer_seal_packets, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot sealer_slots[] = {
    {Py_tp_init, sealer_init},
    {Py_tp_dealloc, sealer_free},
    {Py_tp_methods, sealer_methods},
    {0, NULL},
};

static PyType_Spec sealer_spec = {"levelcast.native._seal.Sealer", sizeof(Sealer), 0, Py_TPFLAGS_DEFAULT, sealer_slots};

/* ---- opening ----------------------------------------------------------------------------------------------------- */

struct key_id {
    uint16_t source, epoch;
    uint64_t incarnation, salt;
};

struct known_key {
    struct key_id id;
    EVP_CIPHER_CTX *context;
    struct known_key *next;
};

typedef struct {
    PyObject_HEAD
    struct known_key *buckets[BUCKETS], *last; /* the last key that was found: packets arrive in trains */
    uint64_t refused; /* datagrams that a drain has dropped since `take_refused` */
} Opener;

static inline int is_same(const struct key_id *a, const struct key_id *b)
{
    return a->source == b->source && a->epoch == b->epoch && a->incarnation == b->incarnation && a->salt == b->salt;
}

static struct known_key **bucket_of(Opener *self, const struct key_id *id)
{
    uint64_t mixed = (id->salt ^ id->incarnation * 0x9E3779B97F4A7C15u ^ id->source * 0xBF58476D1CE4E5B9u ^ id->epoch);
    return &self->buckets[(mixed ^ mixed >> 32) % BUCKETS];
}

static struct known_key *find_key(Opener *self, const struct key_id *id)
{
    if (self->last != NULL && is_same(&self->last->id, id))
        return self->last;
    struct known_key *key = *bucket_of(self, id);
    while (key != NULL && !is_same(&key->id, id))
        key = key->next;
    return key == NULL ? NULL : (self->last = key);
}

static void drop_key(Opener *self, const struct key_id *id)
{
    for (struct known_key **at = bucket_of(self, id), *key; (key = *at) != NULL; at = &key->next)
        if (is_same(&key->id, id)) {
            *at = key->next;
            if (self->last == key)
                self->last = NULL;
            EVP_CIPHER_CTX_free(key->context);
            PyMem_Free(key);
            return;
        }
}

static inline struct key_id id_of(const uint8_t *p)
{
    return (struct key_id){u16_at(p + SENDER_AT), u16_at(p + EPOCH_AT), u64_at(p + HEADER_SIZE), u64_at(p + SALT_AT)};
}

static PyObject *missing_key(const struct key_id *id)
{
    PyObject *found = Py_BuildValue("HHKK", id->source, id->epoch, (unsigned long long)id->incarnation,
                                    (unsigned long long)id->salt);
    if (found != NULL) {
        PyErr_SetObject(PyExc_KeyError, found);
        Py_DECREF(found);
    }
    return NULL;
}

static void opener_free(Opener *self)
{
    PyTypeObject *type = Py_TYPE(self);
    for (int i = 0; i < BUCKETS; i++)
        while (self->buckets[i] != NULL) {
            struct known_key *key = self->buckets[i];
            self->buckets[i] = key->next;
            EVP_CIPHER_CTX_free(key->context);
            PyMem_Free(key);
        }
    type->tp_free((PyObject *)self);
    Py_DECREF(type);
}

static PyObject *opener_add(Opener *self, PyObject *args)
{
    struct key_id id;
    unsigned long long incarnation, salt;
    PyObject *key;
    const uint8_t *bytes;
    if (!PyArg_ParseTuple(args, "HHKKO", &id.source, &id.epoch, &incarnation, &salt, &key) || key_bytes(key, &bytes) < 0)
        return NULL;
    id.incarnation = incarnation;
    id.salt = salt;
    struct known_key *made = PyMem_Malloc(sizeof *made);
    if (made == NULL)
        return PyErr_NoMemory();
    if ((made->context = new_context(bytes, 0)) == NULL) {
        PyMem_Free(made);
        return NULL;
    }
    drop_key(self, &id);
    struct known_key **bucket = bucket_of(self, &id);
    made->id = id;
    made->next = *bucket;
    *bucket = made;
    Py_RETURN_NONE;
}

static PyObject *opener_remove(Opener *self, PyObject *args)
{
    struct key_id id;
    unsigned long long incarnation, salt;
    if (!PyArg_ParseTuple(args, "HHKK", &id.source, &id.epoch, &incarnation, &salt))
        return NULL;
    id.incarnation = incarnation;
    id.salt = salt;
    drop_key(self, &id);
    Py_RETURN_NONE;
}

/* True if `n` bytes at `p` have the form of a sealed packet of the domain. */
static int is_sealed_packet(const uint8_t *p, size_t n, struct domain domain)
{
    return n > OVERHEAD && n <= MAX_DATAGRAM && u32_at(p) == DATA_MAGIC && u16_at(p + STRIPE_AT) == domain.stripe &&
           u32_at(p + LENGTH_AT) == n && u16_at(p + SEAL_KIND_AT) == AES_GCM_SEAL &&
           u64_at(p + NETWORK_AT) == domain.network && u64_at(p + HEADER_SIZE + 8) != 0;
}

static PyObject *opener_open(Opener *self, PyObject *args)
{
    PyObject *sealed;
    struct domain domain;
    PyTypeObject *type;
    if (!PyArg_ParseTuple(args, "SO&O!", &sealed, domain_of, &domain, &PyType_Type, &type))
        return NULL;
    const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(sealed), *end = p + PyBytes_GET_SIZE(sealed);
    struct packet first = {0};
    struct key_id id = {0}, absent = {0};
    uint64_t packets = 0;
    size_t wiped = 0;
    int good = p < end, lacks_key = 0;
    for (size_t n; good && p < end; p += n, packets++) {
        n = sealed_size(p, (size_t)(end - p));
        if (!(good = is_sealed_packet(p, n, domain)))
            break;
        struct key_id own = id_of(p);
        uint64_t number = u64_at(p + HEADER_SIZE + 8);
        if (packets == 0) {
            first = (struct packet){own.source, own.incarnation, number, 0};
            id = own;
        } else if (!(good = is_same(&own, &id) && number == first.number + packets)) {
            break;
        }
        struct known_key *key = find_key(self, &own);
        if (key == NULL) {
            absent = own;
            lacks_key = 1;
            break;
        }
        wiped = n - OVERHEAD > wiped ? n - OVERHEAD : wiped;
        good = open_datagram(key->context, p, n, scratch) &&
               count_in(scratch, n - OVERHEAD, 1) == (Py_ssize_t)u32_at(p + HEADER_SIZE + 16);
    }
    OPENSSL_cleanse(scratch, wiped);
    if (lacks_key)
        return missing_key(&absent);
    if (!good)
        Py_RETURN_NONE;
    return data_of(type, &first, packets, Py_NewRef(sealed));
}

/* Open one datagram of a drain. One without a known key is left to Python, which may derive it; one that does not open under
 * its key is counted and dropped here (K38). */
static int open_with_key(void *keys, const uint8_t *p, size_t n, struct domain domain, struct packet *packet)
{
    Opener *self = keys;
    if (!is_sealed_packet(p, n, domain))
        return NOT_A_PACKET;
    struct key_id id = id_of(p);
    struct known_key *key = find_key(self, &id);
    if (key == NULL)
        return NOT_A_PACKET;
    *packet = (struct packet){.source = id.source,
                              .incarnation = id.incarnation,
                              .number = u64_at(p + HEADER_SIZE + 8),
                              .salt = id.salt,
                              .records = u32_at(p + HEADER_SIZE + 16),
                              .epoch = id.epoch};
    if (open_datagram(key->context, p, n, scratch) &&
        count_in(scratch, n - OVERHEAD, 1) == (Py_ssize_t)packet->records)
        return VALID_PACKET;
    self->refused++;
    return REFUSED_PACKET;
}

static PyObject *opener_drain_packets(Opener *self, PyObject *args)
{
    PyObject *found = drain_packets(args, open_with_key, self);
    OPENSSL_cleanse(scratch, sizeof scratch);
    return found;
}

static PyObject *opener_take_refused(Opener *self, PyObject *unused)
{
    uint64_t refused = self->refused;
    self->refused = 0;
    return PyLong_FromUnsignedLongLong(refused);
}

/* Sizes of all packets; -1 if these are no sealed packets. */
static int measure(PyObject *listed, size_t *packets, size_t *bytes)
{
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(listed); i++) {
        PyObject *value = PySequence_Fast_GET_ITEM(listed, i);
        if (!PyTuple_Check(value) || PyTuple_GET_SIZE(value) != DATA_FIELDS ||
            !PyBytes_Check(PyTuple_GET_ITEM(value, DATA_SEALED))) {
            PyErr_SetString(PyExc_TypeError, "a value is (source, incarnation, first, last, sealed)");
            return -1;
        }
        PyObject *sealed = PyTuple_GET_ITEM(value, DATA_SEALED);
        const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(sealed), *end = p + PyBytes_GET_SIZE(sealed);
        for (size_t size; p < end; p += size, (*packets)++) {
            if ((size = sealed_size(p, (size_t)(end - p))) == 0) {
                bad_sealed();
                return -1;
            }
            *bytes += payload_size(p, size);
        }
    }
    return 0;
}

enum { ASSEMBLED, NO_KEY, NOT_OPENED };

static int open_all(Opener *self, PyObject *listed, uint8_t *row, uint8_t *to, size_t *records, struct key_id *absent)
{
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(listed); i++) {
        PyObject *sealed = PyTuple_GET_ITEM(PySequence_Fast_GET_ITEM(listed, i), DATA_SEALED);
        const uint8_t *p = (const uint8_t *)PyBytes_AS_STRING(sealed), *end = p + PyBytes_GET_SIZE(sealed);
        for (size_t size; p < end; p += size, row += ROW) {
            size = u32_at(p + LENGTH_AT);
            uint32_t length = (uint32_t)payload_size(p, size);
            memcpy(row, p + SENDER_AT, 2);
            memcpy(row + 2, p + HEADER_SIZE, DATA_BODY_SIZE);
            memcpy(row + 22, &length, 4);
            *records += u32_at(row + 18);
            if (u16_at(p + SEAL_KIND_AT) == AES_GCM_SEAL) {
                struct key_id id = id_of(p);
                struct known_key *key = find_key(self, &id);
                if (key == NULL) {
                    *absent = id;
                    return NO_KEY;
                }
                if (!open_datagram(key->context, p, size, to))
                    return NOT_OPENED;
            } else {
                memcpy(to, p + PAYLOAD_AT, length);
            }
            to += length;
        }
    }
    return ASSEMBLED;
}

static PyObject *opener_assemble(Opener *self, PyObject *values)
{
    PyObject *listed = PySequence_Fast(values, "a sequence of packets is wanted"), *table = NULL, *content = NULL;
    size_t packets = 0, bytes = 0, records = 0;
    struct key_id absent;
    int how = NOT_OPENED;
    if (listed == NULL)
        return NULL;
    if (measure(listed, &packets, &bytes) == 0) {
        table = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)(packets * ROW));
        content = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)bytes);
    }
    if (table != NULL && content != NULL) {
        uint8_t *to = (uint8_t *)PyBytes_AS_STRING(content);
        how = open_all(self, listed, (uint8_t *)PyBytes_AS_STRING(table), to, &records, &absent);
        if (how != ASSEMBLED)
            OPENSSL_cleanse(to, bytes);
    }
    Py_DECREF(listed);
    if (how == ASSEMBLED)
        return Py_BuildValue("NNK", table, content, (unsigned long long)records);
    Py_XDECREF(table);
    Py_XDECREF(content);
    if (PyErr_Occurred())
        return NULL;
    if (how == NO_KEY)
        return missing_key(&absent);
    PyErr_SetString(PyExc_ValueError, "a held packet does not open");
    return NULL;
}

static PyMethodDef opener_methods[] = {
    {"add", (PyCFunction)(void (*)(void))opener_add, METH_VARARGS, NULL},
    {"remove", (PyCFunction)(void (*)(void))opener_remove, METH_VARARGS, NULL},
    {"open", (PyCFunction)(void (*)(void))opener_open, METH_VARARGS, NULL},
    {"assemble", (PyCFunction)(void (*)(void))opener_assemble, METH_O, NULL},
    {"drain_packets", (PyCFunction)(void (*)(void))opener_drain_packets, METH_VARARGS, NULL},
    {"take_refused", (PyCFunction)(void (*)(void))opener_take_refused, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot opener_slots[] = {
    {Py_tp_dealloc, opener_free},
    {Py_tp_methods, opener_methods},
    {0, NULL},
};

static PyType_Spec opener_spec = {"levelcast.native._seal.Opener", sizeof(Opener), 0, Py_TPFLAGS_DEFAULT, opener_slots};

/* ---- module ------------------------------------------------------------------------------------------------------ */

static PyObject *version_py(PyObject *self, PyObject *unused)
{
    return PyUnicode_FromString(OpenSSL_version(OPENSSL_VERSION));
}

static PyMethodDef methods[] = {
    {"teach", teach_py, METH_O, NULL},
    {"version", version_py, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_seal", "The compiled side of levelcast.native.seal.", -1, methods, NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__seal(void)
{
    cipher = EVP_aes_256_gcm();
    PyObject *made = PyModule_Create(&module), *sealer = PyType_FromSpec(&sealer_spec);
    PyObject *opener = PyType_FromSpec(&opener_spec);
    if (made == NULL || sealer == NULL || opener == NULL || PyModule_AddObjectRef(made, "Sealer", sealer) < 0 ||
        PyModule_AddObjectRef(made, "Opener", opener) < 0)
        Py_CLEAR(made);
    Py_XDECREF(sealer);
    Py_XDECREF(opener);
    return made;
}
