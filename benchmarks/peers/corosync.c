/* A client of Corosync's closed process groups (CPG), which deliver in the same order at every node.
 *
 *   corosync send|receive GROUP NODES MESSAGE_BYTES SECONDS RATE
 *
 * It joins the group and prints "ready" when NODES clients are in it. The sender then waits for a line on standard
 * input and sends messages of MESSAGE_BYTES for SECONDS, as many as the daemon takes (RATE 0) or RATE a second, and
 * at last the one that says how many there were. Whoever has delivered that prints one line of JSON and ends:
 *
 *   messages  delivered           total  sent, as the last message says     gaps  numbers out of order
 *   begun_ns  of the first send   ended_ns  of the last delivery            cpu_s since "ready"
 *   refused   how often the daemon said "try again"                         delays_us  one per message, if RATE > 0
 *
 * The daemon sets the pace by CS_ERR_TRY_AGAIN. Deliveries have a thread of their own, as the library allows.
 * A message: kind u64, number u64, time of sending u64 (CLOCK_REALTIME, ns), then padding.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include <corosync/corotypes.h>
#include <corosync/cpg.h>

enum { KIND_DATA = 1, KIND_END = 2, MAX_MESSAGE = 900000, MAX_DELAYS = 1 << 16 };
enum { JOIN_TRIES = 300, JOIN_WAIT_MS = 100, FULL_WAIT_NS = 500000, PATIENCE_S = 30 };

struct head {
    uint64_t kind, number, sent_ns;
};

static size_t nodes;
static int want_delays;
static atomic_int all_here, finished;
static uint64_t messages, total, gaps, expected, ended_ns, begun_ns, refused;
static uint32_t delays_us[MAX_DELAYS];
static size_t delay_count;
static double cpu_at_start;

static void give_up(const char *what, int error) {
    fprintf(stderr, "corosync client: %s: error %d\n", what, error);
    exit(1);
}

static uint64_t clock_ns(clockid_t clock) {
    struct timespec t;
    clock_gettime(clock, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static double cpu_s(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return (double)(used.ru_utime.tv_sec + used.ru_stime.tv_sec) +
           (double)(used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

static void sleep_ns(uint64_t ns) {
    struct timespec t = {(time_t)(ns / 1000000000u), (long)(ns % 1000000000u)};
    nanosleep(&t, NULL);
}

static void deliver(cpg_handle_t handle, const struct cpg_name *group, uint32_t node, uint32_t pid, void *message,
                    size_t length) {
    struct head head;
    (void)handle, (void)group, (void)node, (void)pid;
    if (length < sizeof head) return;
    memcpy(&head, message, sizeof head);
    if (head.kind == KIND_END) {
        total = head.number;
        begun_ns = head.sent_ns;
        ended_ns = clock_ns(CLOCK_REALTIME);
        atomic_store(&finished, 1);
        return;
    }
    gaps += head.number != expected;
    expected = head.number + 1;
    messages++;
    if (want_delays && delay_count < MAX_DELAYS)
        delays_us[delay_count++] = (uint32_t)((clock_ns(CLOCK_REALTIME) - head.sent_ns) / 1000);
}

static void changed(cpg_handle_t handle, const struct cpg_name *group, const struct cpg_address *members, size_t count,
                    const struct cpg_address *left, size_t left_count, const struct cpg_address *joined,
                    size_t joined_count) {
    (void)handle, (void)group, (void)members, (void)left, (void)joined, (void)joined_count;
    if (left_count && !atomic_load(&finished) && atomic_load(&all_here)) give_up("a member left", (int)left_count);
    if (count == nodes) atomic_store(&all_here, 1);
}

static void *dispatch(void *argument) {
    cpg_handle_t handle = *(cpg_handle_t *)argument;
    while (!atomic_load(&finished)) {
        cs_error_t error = cpg_dispatch(handle, CS_DISPATCH_ONE);
        if (error == CS_ERR_TRY_AGAIN) sleep_ns(FULL_WAIT_NS);
        else if (error != CS_OK) give_up("cpg_dispatch", (int)error);
    }
    return NULL;
}

static void mcast(cpg_handle_t handle, struct iovec *part) {
    for (;;) {
        cs_error_t error = cpg_mcast_joined(handle, CPG_TYPE_AGREED, part, 1);
        if (error == CS_OK) return;
        if (error != CS_ERR_TRY_AGAIN) give_up("cpg_mcast_joined", (int)error);
        refused++;
        sleep_ns(FULL_WAIT_NS);
    }
}

static void send_all(cpg_handle_t handle, char *message, size_t length, double seconds, double rate) {
    struct iovec part = {message, length};
    struct head head = {.kind = KIND_DATA};
    uint64_t begun = clock_ns(CLOCK_REALTIME), until = clock_ns(CLOCK_MONOTONIC) + (uint64_t)(seconds * 1e9);
    uint64_t step_ns = rate > 0 ? (uint64_t)(1e9 / rate) : 0, due = clock_ns(CLOCK_MONOTONIC);
    while (clock_ns(CLOCK_MONOTONIC) < until) {
        if (step_ns) {
            struct timespec t = {(time_t)(due / 1000000000u), (long)(due % 1000000000u)};
            clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
            due += step_ns;
        }
        head.sent_ns = clock_ns(CLOCK_REALTIME);
        memcpy(message, &head, sizeof head);
        mcast(handle, &part);
        head.number++;
    }
    head.kind = KIND_END;
    head.sent_ns = begun;
    memcpy(message, &head, sizeof head);
    mcast(handle, &part);
}

static void print_report(void) {
    printf("{\"messages\": %llu, \"total\": %llu, \"gaps\": %llu, \"begun_ns\": %llu, \"ended_ns\": %llu, "
           "\"cpu_s\": %.6f, \"refused\": %llu, \"delays_us\": [", (unsigned long long)messages,
           (unsigned long long)total, (unsigned long long)gaps, (unsigned long long)begun_ns,
           (unsigned long long)ended_ns, cpu_s() - cpu_at_start, (unsigned long long)refused);
    for (size_t i = 0; i < delay_count; i++) printf("%s%u", i ? ", " : "", delays_us[i]);
    printf("]}\n");
    fflush(stdout);
}

int main(int count, char **arguments) {
    cpg_callbacks_t callbacks = {.cpg_deliver_fn = deliver, .cpg_confchg_fn = changed};
    struct cpg_name group = {0};
    cpg_handle_t handle;
    pthread_t dispatcher;
    cs_error_t error = CS_ERR_LIBRARY;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (count != 7)
        return fprintf(stderr, "corosync send|receive GROUP NODES MESSAGE_BYTES SECONDS RATE\n"), 2;
    int sends = !strcmp(arguments[1], "send");
    group.length = (uint32_t)snprintf(group.value, sizeof group.value, "%.99s", arguments[2]);
    nodes = strtoul(arguments[3], NULL, 10);
    size_t length = strtoul(arguments[4], NULL, 10);
    double seconds = strtod(arguments[5], NULL), rate = strtod(arguments[6], NULL);
    if (!nodes || length < sizeof(struct head) || length > MAX_MESSAGE || !(seconds > 0 && seconds <= 3600))
        return fprintf(stderr, "corosync client: a size or a time that cannot be\n"), 2;
    want_delays = rate > 0;
    alarm((unsigned)seconds + 2 * PATIENCE_S);
    char *message = calloc(1, length);
    if (!message) give_up("memory", errno);
    for (int i = 0; i < JOIN_TRIES; i++, poll(NULL, 0, JOIN_WAIT_MS))
        if ((error = cpg_initialize(&handle, &callbacks)) == CS_OK) break;
    if (error != CS_OK) give_up("cpg_initialize", (int)error);
    for (int i = 0; i < JOIN_TRIES; i++, poll(NULL, 0, JOIN_WAIT_MS))
        if ((error = cpg_join(handle, &group)) != CS_ERR_TRY_AGAIN) break;
    if (error != CS_OK) give_up("cpg_join", (int)error);
    if (pthread_create(&dispatcher, NULL, dispatch, &handle)) give_up("a thread", errno);
    while (!atomic_load(&all_here)) poll(NULL, 0, 10);
    cpu_at_start = cpu_s();
    puts("ready");
    fflush(stdout);
    if (sends && getchar() != EOF) send_all(handle, message, length, seconds, rate);
    pthread_join(dispatcher, NULL);
    print_report();
    return 0;
}
