/* Drain the packets of a socket: consecutive ones of one source become one value. Common to the extensions that open packets
 * with a CRC-32 (`_core.c`) and with keys (`_seal.c`); include `_packets.h` first. */

#include "_udp.h"

static int append_arrival(PyObject *list, PyObject *value, PyObject *source, int64_t received_ns)
{
    PyObject *at = value == NULL ? NULL : PyLong_FromLongLong(received_ns);
    PyObject *arrival = at == NULL ? NULL : PyTuple_Pack(3, value, source, at);
    int failed = arrival == NULL || PyList_Append(list, arrival) < 0;
    Py_XDECREF(value);
    Py_XDECREF(at);
    Py_XDECREF(arrival);
    return failed ? -1 : 0;
}

static int64_t in_ns(struct timespec at)
{
    return (int64_t)at.tv_sec * 1000000000 + at.tv_nsec;
}

/* The kernel's receive time of an arrival by the wall clock; the present time without SO_TIMESTAMPNS. */
static int64_t received_ns(struct arrivals *in, int i)
{
    struct msghdr *message = &in->messages[i].msg_hdr;
    struct timespec at;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_TIMESTAMPNS) {
            memcpy(&at, CMSG_DATA(c), sizeof at);
            return in_ns(at);
        }
    clock_gettime(CLOCK_REALTIME, &at);
    return in_ns(at);
}

/* A socket's own address; its datagrams are left out. */
static int own_address(const char *host, int port, struct sockaddr_in *own)
{
    *own = (struct sockaddr_in){.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_aton(host, &own->sin_addr) != 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "an IPv4 address is wanted");
    return -1;
}

/* Consecutive packets that will become one value: the position of their bytes in the inbox. */
struct together {
    struct packet first;
    uint64_t packets;
    size_t bytes, stretches;
    struct { const uint8_t *at; size_t bytes; } stretch[AT_ONCE];
    PyObject *source;
    int64_t received_ns; /* of the last one */
};

static int append_together(PyObject *list, struct together *held, PyTypeObject *type)
{
    if (held->packets == 0)
        return 0;
    PyObject *sealed = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)held->bytes);
    if (sealed != NULL) {
        char *to = PyBytes_AS_STRING(sealed);
        for (size_t i = 0; i < held->stretches; to += held->stretch[i++].bytes)
            memcpy(to, held->stretch[i].at, held->stretch[i].bytes);
    }
    uint64_t packets = held->packets;
    held->packets = 0;
    return append_arrival(list, data_of(type, &held->first, packets, sealed), held->source, held->received_ns);
}

/* What a seal says of a datagram: an opener returns it. */
enum { NOT_A_PACKET, VALID_PACKET, REFUSED_PACKET };

/* Opens one datagram, and fills in the packet if it is valid. */
typedef int (*packet_opener)(void *keys, const uint8_t *p, size_t n, struct domain domain, struct packet *packet);

struct drain {
    packet_opener open;
    void *keys;
    struct domain domain;
    size_t most;
    PyTypeObject *type;
};

/* Append one datagram to the packets that it follows, or as it is if it is not a valid packet; drop a refused one. */
static int take_datagram(PyObject *list, struct together *held, const uint8_t *p, size_t n, PyObject *source,
                         int64_t at, const struct drain *how)
{
    struct packet packet = {0};
    PyTypeObject *type = how->type;
    int what = how->open(how->keys, p, n, how->domain, &packet);
    if (what == REFUSED_PACKET) /* what is held ends here, so that a batch has no more stretches than arrivals */
        return append_together(list, held, type);
    if (what == NOT_A_PACKET) {
        if (append_together(list, held, type) < 0)
            return -1;
        return append_arrival(list, PyBytes_FromStringAndSize((const char *)p, (Py_ssize_t)n), source, at);
    }
    if (held->packets && (held->source != source || held->first.source != packet.source ||
                          held->first.incarnation != packet.incarnation ||
                          held->first.number + held->packets != packet.number || held->first.salt != packet.salt ||
                          held->first.epoch != packet.epoch || held->bytes + n > how->most))
        if (append_together(list, held, type) < 0)
            return -1;
    if (held->packets == 0) {
        held->first = packet;
        held->bytes = held->stretches = 0;
        held->source = source;
    }
    size_t last = held->stretches - 1;
    if (held->stretches && held->stretch[last].at + held->stretch[last].bytes == p)
        held->stretch[last].bytes += n;
    else {
        held->stretch[held->stretches].at = p;
        held->stretch[held->stretches++].bytes = n;
    }
    held->packets++;
    held->bytes += n;
    held->received_ns = at;
    return 0;
}

static PyObject *drain_packets(PyObject *args, packet_opener open, void *keys)
{
    int fd, own_port;
    Py_ssize_t limit, most;
    const char *own_host;
    struct domain domain;
    PyTypeObject *type;
    if (!PyArg_ParseTuple(args, "insiO&nO!", &fd, &limit, &own_host, &own_port, domain_of, &domain, &most, &PyType_Type,
                          &type))
        return NULL;
    struct drain how = {open, keys, domain, (size_t)(most > 0 ? most : 0), type};
    struct sockaddr_in own, known = {0};
    if (own_address(own_host, own_port, &own) < 0)
        return NULL;
    PyObject *list = PyList_New(0), *source = NULL;
    struct arrivals in;
    struct together held = {.packets = 0};
    while (list != NULL && limit > 0) {
        int got = take_arrivals(fd, AT_ONCE, &in);
        if (got < 0)
            goto failed;
        for (int i = 0; i < got; i++) {
            const uint8_t *p = in.vectors[i].iov_base;
            size_t left = in.messages[i].msg_len, segment = segment_of(&in, i);
            int64_t at = received_ns(&in, i);
            limit -= (Py_ssize_t)left + 1;
            if (is_from(&in.from[i], &own))
                continue;
            if (source == NULL || !is_from(&in.from[i], &known)) {
                if (append_together(list, &held, how.type) < 0)
                    goto failed;
                Py_XSETREF(source, address_of(&in.from[i]));
                if (source == NULL)
                    goto failed;
                known = in.from[i];
            }
            do {
                size_t n = left < segment ? left : segment;
                if (take_datagram(list, &held, p, n, source, at, &how) < 0)
                    goto failed;
                p += n;
                left -= n;
            } while (left);
        }
        if (append_together(list, &held, how.type) < 0) /* the inbox is used again */
            goto failed;
        if (got < AT_ONCE)
            break;
    }
    Py_XDECREF(source);
    return list;
failed:
    Py_XDECREF(source);
    Py_DECREF(list);
    return NULL;
}
