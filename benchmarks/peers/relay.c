/* A bare relay: what the same processes cost when nothing but datagrams moves. No protocol and, unless asked, no disk.
 *
 *   source --> group of the source --> 3 receivers --> a group each --> 3 customers
 *      ^                                                                     |
 *      +--------------- acknowledgement of the highest number ---------------+
 *
 * A receiver writes its own name into the head of every datagram and sends it on; a customer reads every head and
 * counts. The source never has more than a window of bytes beyond what the slowest customer has acknowledged, which
 * is less than a socket's receive buffer holds, so nothing is lost; what is lost nevertheless is counted. Where the
 * kernel grants small buffers, the window shrinks with them.
 *
 *   relay MODE PACKET_BYTES TRAIN WINDOW_BYTES SECONDS BYTES [DIRECTORY]
 *
 * With a DIRECTORY it is a relay that keeps: every receiver writes what comes to one file before it sends it on, reads
 * every byte once, as a hash would, and writes what it sent to a second file. Both are written over from the start when
 * they have KEEP_BYTES, so that the disk stays bounded and memory that was used before is used again.
 *
 *   plain   sendmmsg and recvmmsg of single datagrams (TRAIN is 1)
 *   large   the same code with datagrams as large as loopback carries
 *   trains  UDP_SEGMENT on sending and UDP_GRO on receiving: a train is one buffer from socket to socket
 *
 * It ends after SECONDS or BYTES (0: no such limit), whichever comes first, and prints one line of JSON. The sockets
 * exist before the processes do, so nobody has to wait for anybody. Exit code 2: a wrong call; 3: the kernel lacks
 * what the mode needs; 1: anything else, with one sentence on standard error.
 *
 * The head of a datagram: name 10s, kind u16, number u64 of the packet, both in the machine's byte order.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#ifndef UDP_SEGMENT
#define UDP_SEGMENT 103
#endif
#ifndef UDP_GRO
#define UDP_GRO 104
#endif

enum { SITES = 3, PROCESSES = 1 + 2 * SITES };
enum { NAME_BYTES = 10, KIND_AT = 10, NUMBER_AT = 12, HEAD_BYTES = 20 };
enum { KIND_DATA = 1, KIND_END = 2 };
enum { MAX_VECTOR = 64, SEND_BYTES = 128 << 10, LARGEST = 65507, RECEIVE_BUFFER = 8 << 20 };
enum { KEEP_BYTES = 200 << 20 };
enum { END_TRIES = 20, END_WAIT_MS = 500, STALL_MS = 5000 };

struct plan {
    int trains;
    size_t packet;      /* bytes of one datagram on the wire */
    unsigned train;     /* datagrams in one buffer */
    uint64_t window;    /* datagrams beyond the last acknowledged one */
    uint64_t ack_every; /* datagrams between two acknowledgements of a customer */
    double seconds;
    uint64_t bytes;
    const char *directory; /* where receivers keep what they relay; NULL: nowhere */
};

struct report {
    int32_t process; /* 0 the source, then receivers, then customers */
    int32_t stalls;  /* source: how often it had to give up waiting */
    uint64_t packets, bytes, calls, gaps;
    double wall_s, user_s, system_s;
};

struct ack {
    uint32_t customer, end;
    uint64_t upto; /* every number below has been seen or is lost */
};

static struct plan plan;
static struct sockaddr_in source_group, customer_group[SITES], source_address;
static int source_socket, receiver_in[SITES], customer_in[SITES], result_pipe[2];
static int smallest_buffer = RECEIVE_BUFFER;

/* Buffers of one process, as sendmmsg and recvmmsg want them. */
static struct mmsghdr vector[MAX_VECTOR];
static struct iovec parts[MAX_VECTOR];
static char control[MAX_VECTOR][CMSG_SPACE(sizeof(int))];
static char *slots;
static size_t slot_bytes;
static unsigned slot_count;

static void fail(const char *what) {
    fprintf(stderr, "relay: %s: %s\n", what, strerror(errno));
    exit(errno == ENOPROTOOPT ? 3 : 1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static double seconds_of(struct timeval t) { return (double)t.tv_sec + (double)t.tv_usec / 1e6; }

static void tell(struct report *report) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    report->user_s = seconds_of(used.ru_utime);
    report->system_s = seconds_of(used.ru_stime);
    if (write(result_pipe[1], report, sizeof *report) != sizeof *report) fail("handing over a result");
}

/* How much may be in flight, how much is sent at once, and how often that is acknowledged. */
static void make_plan(uint64_t window_bytes) {
    size_t unit = plan.packet * plan.train;
    uint64_t held = (uint64_t)smallest_buffer / (unit + unit / 4 + 1024); /* what the kernel reckons for a buffer */
    uint64_t units = window_bytes / unit < held ? window_bytes / unit : held;
    if (units < 2) units = 2;
    plan.window = units * plan.train;
    plan.ack_every = plan.window / 4 ? plan.window / 4 : 1;
    slot_bytes = (unit + 63) & ~(size_t)63;
    slot_count = (unsigned)(SEND_BYTES / slot_bytes);
    if (slot_count > units / 4) slot_count = (unsigned)(units / 4);
    if (slot_count < 1) slot_count = 1;
    if (slot_count > MAX_VECTOR) slot_count = MAX_VECTOR;
}

static void make_slots(void) {
    slots = aligned_alloc(64, slot_bytes * slot_count);
    if (!slots) fail("memory");
    memset(slots, 0x5a, slot_bytes * slot_count);
    for (unsigned i = 0; i < slot_count; i++) {
        parts[i].iov_base = slots + i * slot_bytes;
        vector[i].msg_hdr.msg_iov = &parts[i];
        vector[i].msg_hdr.msg_iovlen = 1;
    }
}

static void send_slots(int to, unsigned count) {
    for (unsigned done = 0; done < count;) {
        int sent = sendmmsg(to, vector + done, count - done, 0);
        if (sent > 0) done += (unsigned)sent;
        else if (errno == ENOBUFS || errno == EAGAIN) poll(NULL, 0, 1);
        else if (errno != EINTR) fail("sending");
    }
}

/* Wait for at least one datagram or train; the bytes of slot i are parts[i].iov_len. */
static unsigned receive_slots(int from) {
    int got;
    for (unsigned i = 0; i < slot_count; i++) {
        parts[i].iov_len = slot_bytes;
        vector[i].msg_hdr.msg_control = plan.trains ? control[i] : NULL;
        vector[i].msg_hdr.msg_controllen = plan.trains ? sizeof control[i] : 0;
    }
    do got = recvmmsg(from, vector, slot_count, MSG_WAITFORONE, NULL);
    while (got < 0 && errno == EINTR);
    if (got <= 0) fail("receiving");
    for (int i = 0; i < got; i++) {
        struct msghdr *head = &vector[i].msg_hdr;
        parts[i].iov_len = vector[i].msg_len;
        if (head->msg_flags & MSG_TRUNC) errno = EMSGSIZE, fail("receiving");
        if (!plan.trains) continue;
        for (struct cmsghdr *each = CMSG_FIRSTHDR(head); each; each = CMSG_NXTHDR(head, each)) {
            int size;
            if (each->cmsg_level != IPPROTO_UDP || each->cmsg_type != UDP_GRO) continue;
            memcpy(&size, CMSG_DATA(each), sizeof size);
            if ((size_t)size != plan.packet && vector[i].msg_len > (unsigned)size)
                errno = EPROTO, fail("a train was put together anew");
        }
        head->msg_control = NULL; /* the same header goes out again; the socket knows the size of a segment */
        head->msg_controllen = 0;
    }
    return (unsigned)got;
}

/* -- the three parts -------------------------------------------------------------------------------------- */

struct progress {
    uint64_t upto[SITES];
    int ended[SITES];
};

/* Take in acknowledgements, the first within the time; 0 if none came. */
static int take_acks(struct progress *progress, int wait_ms) {
    struct pollfd ready = {.fd = source_socket, .events = POLLIN};
    struct ack ack;
    if (poll(&ready, 1, wait_ms) <= 0) return 0;
    while (recv(source_socket, &ack, sizeof ack, MSG_DONTWAIT) == sizeof ack) {
        if (ack.customer >= SITES) continue;
        if (ack.upto > progress->upto[ack.customer]) progress->upto[ack.customer] = ack.upto;
        if (ack.end) progress->ended[ack.customer] = 1;
    }
    return 1;
}

static uint64_t slowest(const struct progress *progress) {
    uint64_t least = UINT64_MAX;
    for (int i = 0; i < SITES; i++)
        if (progress->upto[i] < least) least = progress->upto[i];
    return least;
}

static int all_ended(const struct progress *progress) {
    for (int i = 0; i < SITES; i++)
        if (!progress->ended[i]) return 0;
    return 1;
}

static void run_source(void) {
    struct report report = {.process = 0};
    struct progress progress = {{0}, {0}};
    unsigned batch = slot_count * plan.train;
    double begun = now_s();
    for (unsigned i = 0; i < slot_count; i++) {
        parts[i].iov_len = plan.packet * plan.train;
        vector[i].msg_hdr.msg_name = &source_group;
        vector[i].msg_hdr.msg_namelen = sizeof source_group;
        for (unsigned k = 0; k < plan.train; k++) {
            uint16_t kind = KIND_DATA;
            memcpy(slots + i * slot_bytes + k * plan.packet + KIND_AT, &kind, sizeof kind);
        }
    }
    while (now_s() - begun < plan.seconds && (!plan.bytes || report.bytes < plan.bytes)) {
        /* Once the window is full, wait until half of it is free: fewer and longer sleeps. */
        if (report.packets + batch > slowest(&progress) + plan.window)
            while (report.packets + batch > slowest(&progress) + plan.window / 2)
                if (!take_acks(&progress, STALL_MS)) {
                    report.stalls++;
                    for (int i = 0; i < SITES; i++) progress.upto[i] = report.packets;
                }
        for (unsigned i = 0; i < slot_count; i++)
            for (unsigned k = 0; k < plan.train; k++, report.packets++)
                memcpy(slots + i * slot_bytes + k * plan.packet + NUMBER_AT, &report.packets, sizeof report.packets);
        send_slots(source_socket, slot_count);
        report.bytes += (uint64_t)batch * plan.packet;
        report.calls++;
    }
    for (int tries = 0; tries < END_TRIES && !all_ended(&progress); tries++) {
        uint16_t kind = KIND_END;
        memcpy(slots + KIND_AT, &kind, sizeof kind);
        memcpy(slots + NUMBER_AT, &report.packets, sizeof report.packets);
        parts[0].iov_len = HEAD_BYTES;
        send_slots(source_socket, 1);
        while (!all_ended(&progress) && take_acks(&progress, END_WAIT_MS)) {}
    }
    report.wall_s = now_s() - begun;
    tell(&report);
}

/* What a datagram says. */
static uint16_t kind_of(const char *packet) {
    uint16_t kind;
    memcpy(&kind, packet + KIND_AT, sizeof kind);
    return kind;
}

/* A file of a receiver, and where it is written next. */
struct kept {
    int file;
    off_t at;
};

static struct kept keep_in(const char *what, int site) {
    char path[4096];
    struct kept kept = {0, 0};
    snprintf(path, sizeof path, "%s/%s-%d", plan.directory, what, site);
    kept.file = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (kept.file < 0) fail(path);
    return kept;
}

static void keep(struct kept *kept, unsigned count) {
    ssize_t length = 0;
    for (unsigned i = 0; i < count; i++) length += (ssize_t)parts[i].iov_len;
    if (kept->at + length > KEEP_BYTES) kept->at = 0;
    if (pwritev(kept->file, parts, (int)count, kept->at) != length) fail("writing");
    kept->at += length;
}

/* Read every byte once. The sum is kept, so that the compiler reads them, too. */
static uint64_t read_bytes(unsigned count, uint64_t sum) {
    for (unsigned i = 0; i < count; i++)
        for (size_t at = 0; at + 8 <= parts[i].iov_len; at += 8) {
            uint64_t word;
            memcpy(&word, (const char *)parts[i].iov_base + at, sizeof word);
            sum = (sum ^ word) * 0x9E3779B97F4A7C15u;
        }
    return sum;
}

static void run_receiver(int site) {
    struct report report = {.process = 1 + site};
    char name[NAME_BYTES + 1];
    int told = 0, out = socket(AF_INET, SOCK_DGRAM, 0);
    struct in_addr loopback = {htonl(INADDR_LOOPBACK)};
    int segment = (int)plan.packet;
    if (out < 0 || setsockopt(out, IPPROTO_IP, IP_MULTICAST_IF, &loopback, sizeof loopback)) fail("a socket");
    if (plan.trains && setsockopt(out, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment)) fail("UDP_SEGMENT");
    if (connect(out, (struct sockaddr *)&customer_group[site], sizeof customer_group[site])) fail("a socket");
    snprintf(name, sizeof name, "RELAY-%-4d", site);
    struct kept journal = {0, 0}, tape = {0, 0};
    volatile uint64_t sum = 0;
    if (plan.directory) journal = keep_in("journal", site), tape = keep_in("tape", site);
    for (;;) {
        unsigned got = receive_slots(receiver_in[site]);
        int ended = 0;
        if (plan.directory) keep(&journal, got);
        for (unsigned i = 0; i < got; i++) {
            char *packet = parts[i].iov_base, *end = packet + parts[i].iov_len;
            ended |= kind_of(packet) == KIND_END;
            if (kind_of(packet) == KIND_END) report.packets--, report.bytes -= parts[i].iov_len;
            for (; packet < end; packet += plan.packet, report.packets++) memcpy(packet, name, NAME_BYTES);
            report.bytes += parts[i].iov_len;
        }
        send_slots(out, got);
        if (plan.directory) sum = read_bytes(got, sum), keep(&tape, got);
        report.calls++;
        if (ended && !told) told = 1, tell(&report);
    }
}

static void run_customer(int site) {
    struct report report = {.process = 1 + SITES + site};
    struct ack ack = {.customer = (uint32_t)site};
    uint64_t number, expected = 0, acked = 0;
    int told = 0, out = socket(AF_INET, SOCK_DGRAM, 0);
    if (out < 0 || connect(out, (struct sockaddr *)&source_address, sizeof source_address)) fail("a socket");
    for (;;) {
        unsigned got = receive_slots(customer_in[site]);
        report.calls++;
        for (unsigned i = 0; i < got; i++) {
            char *packet = parts[i].iov_base, *end = packet + parts[i].iov_len;
            if (kind_of(packet) == KIND_END) {
                ack.end = 1;
                continue;
            }
            for (; packet < end; packet += plan.packet, report.packets++) {
                memcpy(&number, packet + NUMBER_AT, sizeof number);
                report.gaps += number != expected;
                expected = number + 1;
            }
            report.bytes += parts[i].iov_len;
        }
        if (expected - acked >= plan.ack_every || ack.end) {
            ack.upto = acked = expected;
            if (send(out, &ack, sizeof ack, 0) < 0 && errno != ECONNREFUSED) fail("acknowledging");
        }
        if (ack.end && !told) told = 1, tell(&report);
        ack.end = 0;
    }
}

/* -- setting up ------------------------------------------------------------------------------------------- */

/* A socket that hears the group; the first of a group chooses the port. */
static int listener(struct sockaddr_in *group) {
    int made = socket(AF_INET, SOCK_DGRAM, 0), yes = 1, granted, half = RECEIVE_BUFFER / 2; /* the kernel doubles it */
    struct ip_mreq join = {group->sin_addr, {htonl(INADDR_LOOPBACK)}};
    socklen_t length = sizeof *group;
    if (made < 0) fail("a socket");
    /* Not reusable while it looks for a free port, reusable for those that share it afterwards. */
    if (group->sin_port && setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) fail("a socket");
    if (bind(made, (struct sockaddr *)group, sizeof *group)) fail("binding to a multicast group");
    if (setsockopt(made, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes)) fail("a socket");
    if (getsockname(made, (struct sockaddr *)group, &length)) fail("a socket");
    if (setsockopt(made, IPPROTO_IP, IP_ADD_MEMBERSHIP, &join, sizeof join)) fail("joining a group on loopback");
    if (setsockopt(made, SOL_SOCKET, SO_RCVBUFFORCE, &half, sizeof half))
        setsockopt(made, SOL_SOCKET, SO_RCVBUF, &half, sizeof half);
    length = sizeof granted;
    if (getsockopt(made, SOL_SOCKET, SO_RCVBUF, &granted, &length)) fail("a socket");
    if (granted < smallest_buffer) smallest_buffer = granted;
    if (plan.trains && setsockopt(made, IPPROTO_UDP, UDP_GRO, &yes, sizeof yes)) fail("UDP_GRO");
    return made;
}

static void open_sockets(void) {
    struct in_addr loopback = {htonl(INADDR_LOOPBACK)};
    int segment = (int)plan.packet;
    socklen_t length = sizeof source_address;
    unsigned net = 0xEFFF0000u | ((unsigned)getpid() & 0x3FFFu) << 2; /* 239.255.x.y: of this machine only */
    source_group.sin_family = AF_INET;
    source_group.sin_addr.s_addr = htonl(net);
    for (int i = 0; i < SITES; i++) {
        customer_group[i].sin_family = AF_INET;
        customer_group[i].sin_addr.s_addr = htonl(net + 1 + (unsigned)i);
        receiver_in[i] = listener(&source_group);
        customer_in[i] = listener(&customer_group[i]);
    }
    source_socket = socket(AF_INET, SOCK_DGRAM, 0);
    source_address.sin_family = AF_INET;
    source_address.sin_addr = loopback;
    if (source_socket < 0 || bind(source_socket, (struct sockaddr *)&source_address, length)) fail("a socket");
    if (getsockname(source_socket, (struct sockaddr *)&source_address, &length)) fail("a socket");
    if (setsockopt(source_socket, IPPROTO_IP, IP_MULTICAST_IF, &loopback, sizeof loopback)) fail("a socket");
    if (plan.trains && setsockopt(source_socket, IPPROTO_UDP, UDP_SEGMENT, &segment, sizeof segment))
        fail("UDP_SEGMENT");
}

static void print_report(const struct report *all) {
    printf("{\"seconds\": %.6f, \"stalls\": %d, \"window\": %llu, \"processes\": [", all[0].wall_s, all[0].stalls,
           (unsigned long long)plan.window);
    for (int i = 0; i < PROCESSES; i++)
        printf("%s{\"packets\": %llu, \"bytes\": %llu, \"calls\": %llu, \"gaps\": %llu, \"user_s\": %.6f, "
               "\"system_s\": %.6f}", i ? ", " : "", (unsigned long long)all[i].packets,
               (unsigned long long)all[i].bytes, (unsigned long long)all[i].calls, (unsigned long long)all[i].gaps,
               all[i].user_s, all[i].system_s);
    printf("]}\n");
}

static void die_with(pid_t parent) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) || getppid() != parent) _exit(1);
}

int main(int count, char **arguments) {
    struct report report, all[PROCESSES];
    pid_t children[PROCESSES], self = getpid();
    int done = 0;
    unsigned limit;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count != 7 && count != 8)
        return fprintf(stderr, "relay MODE PACKET_BYTES TRAIN WINDOW_BYTES SECONDS BYTES [DIRECTORY]\n"), 2;
    plan.directory = count == 8 ? arguments[7] : NULL;
    plan.trains = !strcmp(arguments[1], "trains");
    plan.packet = strtoul(arguments[2], NULL, 10);
    plan.train = (unsigned)strtoul(arguments[3], NULL, 10);
    plan.seconds = strtod(arguments[5], NULL);
    plan.bytes = strtoull(arguments[6], NULL, 10);
    if (plan.packet < HEAD_BYTES || !plan.train || plan.train > LARGEST || plan.packet * plan.train > LARGEST ||
        (!plan.trains && plan.train != 1) || !(plan.seconds > 0 && plan.seconds <= 3600))
        return fprintf(stderr, "relay: sizes that no datagram can have, or no time to run\n"), 2;
    limit = (unsigned)plan.seconds + 30; /* nobody outlives a run that went wrong */
    open_sockets();
    make_plan(strtoull(arguments[4], NULL, 10));
    make_slots();
    if (pipe(result_pipe)) fail("a pipe");
    memset(all, 0, sizeof all);
    for (int i = PROCESSES - 1; i >= 0; i--) { /* the source last */
        if ((children[i] = fork()) < 0) fail("a process");
        if (children[i]) continue;
        die_with(self);
        alarm(limit);
        close(result_pipe[0]);
        if (i == 0) run_source();
        else if (i <= SITES) run_receiver(i - 1);
        else run_customer(i - 1 - SITES);
        _exit(0);
    }
    close(result_pipe[1]);
    while (done < PROCESSES && read(result_pipe[0], &report, sizeof report) == sizeof report) {
        all[report.process] = report;
        done++;
    }
    for (int i = 0; i < PROCESSES; i++) kill(children[i], SIGKILL);
    while (wait(NULL) > 0) {}
    if (done < PROCESSES)
        return fprintf(stderr, "relay: %d of %d processes did not end\n", PROCESSES - done, PROCESSES), 1;
    print_report(all);
    return 0;
}
