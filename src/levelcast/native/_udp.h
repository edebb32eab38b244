/* Read waiting datagrams of a socket in batches without blocking. A train that the kernel has kept together (UDP_GRO)
 * is one arrival of several datagrams. The kernel's receive time is known for sockets with SO_TIMESTAMPNS. */

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <time.h>

#ifndef UDP_GRO
#define UDP_GRO 104
#endif
#ifndef SCM_TIMESTAMPNS
#define SCM_TIMESTAMPNS 35
#endif

enum { AT_ONCE = 32, LARGEST = 65536 };

struct arrivals {
    struct mmsghdr messages[AT_ONCE];
    struct iovec vectors[AT_ONCE];
    struct sockaddr_in from[AT_ONCE];
    union {
        char bytes[CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(struct timespec))];
        struct cmsghdr align;
    } control[AT_ONCE];
};

static uint8_t *inbox; /* AT_ONCE buffers of LARGEST bytes: one thread drains at a time, under the interpreter's lock */

/* Return the number of arrivals, at most `wanted`; their bytes stay until the next call. -1 with an exception. */
static int take_arrivals(int fd, int wanted, struct arrivals *in)
{
    if (inbox == NULL && (inbox = malloc((size_t)AT_ONCE * LARGEST)) == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (int i = 0; i < wanted; i++) {
        in->vectors[i] = (struct iovec){inbox + (size_t)i * LARGEST, LARGEST};
        in->messages[i].msg_hdr = (struct msghdr){.msg_name = &in->from[i],
                                                  .msg_namelen = sizeof in->from[i],
                                                  .msg_iov = &in->vectors[i],
                                                  .msg_iovlen = 1,
                                                  .msg_control = in->control[i].bytes,
                                                  .msg_controllen = sizeof in->control[i].bytes};
    }
    for (;;) {
        int got = recvmmsg(fd, in->messages, (unsigned)wanted, MSG_DONTWAIT, NULL);
        if (got >= 0)
            return got;
        if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ECONNREFUSED)
            return 0;
        if (errno != EINTR) {
            PyErr_SetFromErrno(PyExc_OSError);
            return -1;
        }
    }
}

/* The size of the datagrams of an arrival; the last may be shorter. */
static size_t segment_of(struct arrivals *in, int i)
{
    struct msghdr *message = &in->messages[i].msg_hdr;
    for (struct cmsghdr *c = CMSG_FIRSTHDR(message); c != NULL; c = CMSG_NXTHDR(message, c))
        if (c->cmsg_level == IPPROTO_UDP && c->cmsg_type == UDP_GRO) {
            int size;
            memcpy(&size, CMSG_DATA(c), sizeof size);
            if (size > 0)
                return (size_t)size;
        }
    return LARGEST;
}

static inline int is_from(const struct sockaddr_in *from, const struct sockaddr_in *known)
{
    return from->sin_addr.s_addr == known->sin_addr.s_addr && from->sin_port == known->sin_port;
}

static PyObject *address_of(const struct sockaddr_in *from)
{
    char text[INET_ADDRSTRLEN];
    inet_ntop(AF_INET, &from->sin_addr, text, sizeof text);
    return Py_BuildValue("si", text, (int)ntohs(from->sin_port));
}
