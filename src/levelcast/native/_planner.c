/* The loops of the channel planner (TH). levelcast/native/pure_planner.py specifies each function, and the tests
 * compare the two, bit for bit: both round floats in the same way (no contraction) and use splitmix64 for random
 * numbers, and the weight of a heat-bath choice is a power by squaring. This file is only faster, and keeps no state.
 *
 * The number of an item's users that are already in a cluster is needed for all clusters together. Interest is sparse,
 * so each user has a row of bytes, one byte per cluster, and the rows of the item's users are summed. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "the compiled planner is for little-endian machines; pure_planner.py does its work elsewhere"
#endif

/* One binary for all machines of an architecture: the loader selects the clone for the processor. */
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && defined(__GLIBC__)
#define CLONES __attribute__((target_clones("default", "avx2", "arch=x86-64-v4"), noinline))
#else
#define CLONES
#endif

#define BLOCK 64
typedef uint8_t Row __attribute__((vector_size(BLOCK)));

#define NEVER 1e30f /* the cost of a target that is not allowed */
#define MANY 65535u /* a user with this number of items in one cluster counts as a permanent user of it */
#define REACH 16.0  /* targets that cost this many temperatures more than the cheapest are skipped */

static Py_ssize_t padded(Py_ssize_t n) { return (n + BLOCK - 1) / BLOCK * BLOCK; }

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = (*state += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/* ---- Buffers ----------------------------------------------------------------------------------------------------- */

typedef struct {
    Py_buffer view;
    Py_ssize_t n;
} Array;

static int take(PyObject *object, Array *array, Py_ssize_t width, int writable, const char *name)
{
    if (PyObject_GetBuffer(object, &array->view, writable ? PyBUF_WRITABLE : PyBUF_SIMPLE) < 0)
        return -1;
    array->n = array->view.len / width;
    if (array->view.len % width) {
        PyErr_Format(PyExc_ValueError, "%s is not made of numbers of %zd bytes", name, width);
        return -1;
    }
    return 0;
}

static void let_go(Array *arrays, int n)
{
    for (int i = 0; i < n; i++)
        if (arrays[i].view.obj)
            PyBuffer_Release(&arrays[i].view);
}

/* The interest of the items: the users of item k are users[start[k]..start[k + 1]). Only those in `items` are checked,
 * or all of them if it is NULL. */
static const char *interest_fault(const Array *start, const Array *users, Py_ssize_t n_items, int64_t n_users,
                                  const int32_t *items, Py_ssize_t n)
{
    const int64_t *at = start->view.buf;
    const int32_t *user = users->view.buf;
    if (start->n != n_items + 1 || at[0] != 0 || at[n_items] != users->n)
        return "start does not fit the items and the users";
    for (Py_ssize_t k = 0; k < n_items; k++)
        if (at[k] > at[k + 1])
            return "start goes down";
    for (Py_ssize_t i = 0; i < n; i++) {
        Py_ssize_t k = items ? items[i] : i;
        for (int64_t j = at[k]; j < at[k + 1]; j++)
            if (user[j] < 0 || user[j] >= n_users)
                return "a user is out of range";
    }
    return NULL;
}

static const char *label_fault(const int32_t *label, Py_ssize_t n, Py_ssize_t lowest, Py_ssize_t clusters)
{
    for (Py_ssize_t i = 0; i < n; i++)
        if (label[i] < lowest || label[i] >= clusters)
            return "a label is out of range";
    return NULL;
}

/* ---- One level of clusters: users, counts, rates ------------------------------------------------------------------ */

typedef struct {
    Py_ssize_t n;     /* a multiple of BLOCK */
    uint8_t *present; /* users x n */
    uint16_t *count;  /* users x n: number of the cluster's items that the user wants; MANY is permanent */
    float *size;      /* users of the cluster */
    float *rate_f;
    double *rate;
    int64_t *members;
} Level;

static int level_make(Level *level, Py_ssize_t n, Py_ssize_t n_users)
{
    level->n = n;
    level->present = aligned_alloc(BLOCK, (size_t)(n_users + 1) * n);
    level->count = calloc((size_t)n_users * n + 1, sizeof(uint16_t));
    level->size = aligned_alloc(BLOCK, n * sizeof(float));
    level->rate_f = aligned_alloc(BLOCK, n * sizeof(float));
    level->rate = calloc(n, sizeof(double));
    level->members = calloc(n, sizeof(int64_t));
    if (!level->present || !level->count || !level->size || !level->rate_f || !level->rate || !level->members)
        return -1;
    memset(level->present, 0, (size_t)(n_users + 1) * n);
    memset(level->size, 0, n * sizeof(float));
    memset(level->rate_f, 0, n * sizeof(float));
    return 0;
}

static void level_free(Level *level)
{
    free(level->present);
    free(level->count);
    free(level->size);
    free(level->rate_f);
    free(level->rate);
    free(level->members);
}

static void level_add(Level *level, Py_ssize_t to, const int32_t *users, Py_ssize_t degree, double rate)
{
    for (Py_ssize_t i = 0; i < degree; i++) {
        uint16_t *count = &level->count[(size_t)users[i] * level->n + to];
        if (*count == 0) {
            level->present[(size_t)users[i] * level->n + to] = 1;
            level->size[to] += 1.0f;
        }
        *count += *count < MANY;
    }
    level->rate[to] += rate;
    level->rate_f[to] = (float)level->rate[to];
    level->members[to]++;
}

static void level_remove(Level *level, Py_ssize_t from, const int32_t *users, Py_ssize_t degree, double rate)
{
    for (Py_ssize_t i = 0; i < degree; i++) {
        uint16_t *count = &level->count[(size_t)users[i] * level->n + from];
        *count -= *count < MANY;
        if (*count == 0) {
            level->present[(size_t)users[i] * level->n + from] = 0;
            level->size[from] -= 1.0f;
        }
    }
    level->members[from]--;
    level->rate[from] = level->members[from] ? level->rate[from] - rate : 0.0;
    level->rate_f[from] = (float)level->rate[from];
}

/* Distance (8), weighted, to the cluster that the item is in: as if it had left. */
static float own_distance(const Level *level, Py_ssize_t at, const int32_t *users, Py_ssize_t degree, double rate,
                          float weight)
{
    float alone = 0.0f; /* users that are here only because of this item */
    if (level->members[at] == 1)
        return 0.0f;
    for (Py_ssize_t i = 0; i < degree; i++)
        alone += level->count[(size_t)users[i] * level->n + at] == 1;
    float size = level->size[at] - alone, common = (float)degree - alone;
    return weight * ((float)rate * (size - common) + (float)(level->rate[at] - rate) * alone);
}

/* Distance (8), weighted, to `width` clusters from `first` on, a multiple of BLOCK: the excess that the item
 * would add to them. */
CLONES static void distances(const uint8_t *restrict present, Py_ssize_t n, Py_ssize_t width,
                             const float *restrict size, const float *restrict rate_f, const int32_t *restrict users,
                             Py_ssize_t degree, float rate, float weight, float *restrict cost)
{
    for (Py_ssize_t tile = 0; tile < width; tile += BLOCK) {
        float *restrict common = cost + tile;
        for (int b = 0; b < BLOCK; b++)
            common[b] = 0.0f;
        for (Py_ssize_t begin = 0; begin < degree; begin += 255) {
            Py_ssize_t end = begin + 255 < degree ? begin + 255 : degree;
            Row sum = {0};
            for (Py_ssize_t i = begin; i < end; i++)
                sum += *(const Row *)(present + (size_t)users[i] * n + tile);
            for (int b = 0; b < BLOCK; b++)
                common[b] += (float)sum[b];
        }
    }
    float many = (float)degree;
    for (Py_ssize_t b = 0; b < width; b++)
        cost[b] = weight * (rate * (size[b] - cost[b]) + rate_f[b] * (many - cost[b]));
}

/* cost += bar + base; returns the minimum. */
CLONES static float finish(float *restrict cost, const float *restrict bar, float base, Py_ssize_t width)
{
    float low[16], least;
    for (int j = 0; j < 16; j++)
        low[j] = 2 * NEVER;
    for (Py_ssize_t at = 0; at < width; at += 16)
        for (int j = 0; j < 16; j++) {
            float c = (cost[at + j] + base) + bar[at + j];
            cost[at + j] = c;
            low[j] = c < low[j] ? c : low[j];
        }
    least = low[0];
    for (int j = 1; j < 16; j++)
        least = low[j] < least ? low[j] : least;
    return least;
}

CLONES static float least_of(const float *cost, Py_ssize_t width)
{
    float low[16], least;
    for (int j = 0; j < 16; j++)
        low[j] = cost[j];
    for (Py_ssize_t at = 16; at < width; at += 16)
        for (int j = 0; j < 16; j++)
            low[j] = cost[at + j] < low[j] ? cost[at + j] : low[j];
    least = low[0];
    for (int j = 1; j < 16; j++)
        least = low[j] < least ? low[j] : least;
    return least;
}

/* ---- anneal ------------------------------------------------------------------------------------------------------ */

typedef struct {
    const int64_t *start;
    const int32_t *users;
    const double *rate;
    int32_t *label; /* item to slot: slots of a group are contiguous, padded; -1: not assigned yet */
    Py_ssize_t n_groups, slots, width;
    Level sessions, groups;
    float alpha, beta;
    double session_cap, group_cap;
    const int64_t *apart_start; /* or NULL: the items that must not be in a session with item k */
    const int32_t *apart;
    const int32_t *home; /* or NULL: the previous slot of the item */
    const int32_t *weight;
    float penalty;
    int64_t budget;         /* weight that may still leave `home` */
    int64_t used, most;     /* sessions in use, and their maximum */
    Py_ssize_t *first_free; /* the lowest empty slot of each group, or `slots` */
    float *cost, *group_cost, *bar, *least;
    double *chance;
    int32_t *candidate;
} Run;

static Py_ssize_t group_at(const Run *run, int32_t slot) { return slot / run->width; }

static const int32_t *users_of(const Run *run, int32_t k, Py_ssize_t *degree)
{
    *degree = (Py_ssize_t)(run->start[k + 1] - run->start[k]);
    return run->users + run->start[k];
}

static int away(const Run *run, int32_t k, int32_t slot)
{
    return run->home && run->home[k] >= 0 && run->home[k] != slot;
}

static void place(Run *run, int32_t k, int32_t slot)
{
    Py_ssize_t degree, g = group_at(run, slot);
    const int32_t *users = users_of(run, k, &degree);
    if (run->sessions.members[slot] == 0) {
        run->used++;
        run->bar[slot] = 0.0f;
        Py_ssize_t *first = &run->first_free[g];
        if (slot == g * run->width + *first)
            do
                ++*first;
            while (*first < run->slots && run->bar[g * run->width + *first] == 0.0f);
    }
    level_add(&run->sessions, slot, users, degree, run->rate[k]);
    if (run->n_groups > 1)
        level_add(&run->groups, g, users, degree, run->rate[k]);
    run->label[k] = slot;
    if (away(run, k, slot))
        run->budget -= run->weight[k];
}

static void lift(Run *run, int32_t k)
{
    int32_t slot = run->label[k];
    Py_ssize_t degree, g = group_at(run, slot);
    const int32_t *users = users_of(run, k, &degree);
    level_remove(&run->sessions, slot, users, degree, run->rate[k]);
    if (run->n_groups > 1)
        level_remove(&run->groups, g, users, degree, run->rate[k]);
    if (run->sessions.members[slot] == 0) {
        run->used--;
        run->bar[slot] = NEVER;
        if (slot - g * run->width < run->first_free[g])
            run->first_free[g] = slot - g * run->width;
    }
    if (away(run, k, slot))
        run->budget += run->weight[k];
}

/* The cost of each group for the item, without its sessions. */
static void weigh_groups(Run *run, int32_t k, int32_t from)
{
    Py_ssize_t degree, m = run->n_groups, own = from >= 0 ? group_at(run, from) : -1;
    const int32_t *users = users_of(run, k, &degree);
    Level *groups = &run->groups;
    if (m == 1) {
        run->group_cost[0] = 0.0f;
        return;
    }
    distances(groups->present, groups->n, groups->n, groups->size, groups->rate_f, users, degree, (float)run->rate[k],
              run->alpha, run->group_cost);
    if (own >= 0)
        run->group_cost[own] = own_distance(groups, own, users, degree, run->rate[k], run->alpha);
    if (run->group_cap < NEVER)
        for (Py_ssize_t g = 0; g < m; g++)
            if (g != own && groups->rate[g] + run->rate[k] > run->group_cap)
                run->group_cost[g] = NEVER;
    for (Py_ssize_t g = m; g < groups->n; g++)
        run->group_cost[g] = NEVER;
}

/* The cost of each session of group g for the item, including a new one; returns the minimum. */
static float weigh_sessions(Run *run, int32_t k, int32_t from, Py_ssize_t g)
{
    Py_ssize_t degree, first = g * run->width;
    const int32_t *users = users_of(run, k, &degree);
    Level *sessions = &run->sessions;
    float *cost = run->cost + first, base = run->group_cost[g];
    int here = from >= 0 && group_at(run, from) == g, alone = from >= 0 && sessions->members[from] == 1;

    distances(sessions->present + first, sessions->n, run->width, sessions->size + first, sessions->rate_f + first,
              users, degree, (float)run->rate[k], run->beta, cost);
    if (here)
        run->cost[from] = own_distance(sessions, from, users, degree, run->rate[k], run->beta);
    float least = finish(cost, run->bar + first, base, run->width);
    int special = run->session_cap < NEVER || run->home;
    if (run->first_free[g] < run->slots && run->used - alone < run->most && !(here && alone)) {
        cost[run->first_free[g]] = base;
        least = base < least ? base : least;
    }
    if (run->session_cap < NEVER)
        for (Py_ssize_t b = first; b < first + run->slots; b++)
            if (b != from && sessions->rate[b] + run->rate[k] > run->session_cap)
                run->cost[b] = NEVER;
    if (run->home && run->home[k] >= 0) {
        int64_t left = run->budget + (from >= 0 && away(run, k, from) ? run->weight[k] : 0);
        float extra = left < run->weight[k] ? NEVER : run->penalty * (float)run->weight[k];
        for (Py_ssize_t b = first; b < first + run->slots; b++)
            if (b != run->home[k])
                run->cost[b] += extra;
    }
    return special ? least_of(cost, run->width) : least;
}

/* The first of the cheapest targets, or one by the heat bath; -1 if all are barred. A session costs at least as much as
 * its group, so the sessions of many groups are skipped. */
static int32_t choose(Run *run, int32_t k, int32_t from, double temperature, uint64_t *random)
{
    Py_ssize_t m = run->n_groups, n = 0, nearest = 0, own = from >= 0 ? group_at(run, from) : -1;
    double reach = temperature > 0 ? REACH * temperature : 0.0, total = 0;
    weigh_groups(run, k, from);
    for (Py_ssize_t g = 1; g < m; g++)
        if (run->group_cost[g] < run->group_cost[nearest])
            nearest = g;
    float least = run->least[nearest] = weigh_sessions(run, k, from, nearest);
    for (Py_ssize_t g = 0; g < m; g++)
        if (g != nearest) {
            run->least[g] = 2 * NEVER;
            if ((double)run->group_cost[g] <= (double)least + reach || (!(temperature > 0) && g == own)) {
                run->least[g] = weigh_sessions(run, k, from, g);
                least = run->least[g] < least ? run->least[g] : least;
            }
        }
    if (least >= NEVER)
        return -1;
    double limit = (double)least + reach;
    for (Py_ssize_t g = 0; g < m; g++) {
        if ((double)run->least[g] > limit)
            continue;
        for (Py_ssize_t b = g * run->width; b < g * run->width + run->slots; b++) {
            if ((double)run->cost[b] > limit)
                continue;
            if (!(temperature > 0))
                return (int32_t)b;
            double w = 1.0 - ((double)run->cost[b] - (double)least) / temperature / 1024.0;
            for (int j = 0; j < 10; j++)
                w *= w;
            total += w;
            run->candidate[n] = (int32_t)b;
            run->chance[n++] = total;
        }
    }
    if (n == 1)
        return run->candidate[0];
    double drawn = (double)(next_random(random) >> 11) * 0x1p-53 * total;
    for (Py_ssize_t i = 0; i < n - 1; i++)
        if (run->chance[i] > drawn)
            return run->candidate[i];
    return run->candidate[n - 1];
}

static int visit(Run *run, int32_t k, double temperature, uint64_t *random)
{
    int32_t from = run->label[k], to;
    for (int64_t i = run->apart_start ? run->apart_start[k] : 0; run->apart_start && i < run->apart_start[k + 1]; i++)
        if (run->label[run->apart[i]] >= 0 && run->label[run->apart[i]] != from)
            run->bar[run->label[run->apart[i]]] = NEVER;
    to = choose(run, k, from, temperature, random);
    for (int64_t i = run->apart_start ? run->apart_start[k] : 0; run->apart_start && i < run->apart_start[k + 1]; i++)
        if (run->label[run->apart[i]] >= 0 && run->sessions.members[run->label[run->apart[i]]])
            run->bar[run->label[run->apart[i]]] = 0.0f;
    if (to < 0 || to == from)
        return 0;
    if (from >= 0 && !(temperature > 0) && run->cost[to] >= run->cost[from])
        return 0; /* TH §4.2: not in case of a tie */
    if (from >= 0)
        lift(run, k);
    place(run, k, to);
    return 1;
}

static void shuffle(int32_t *order, Py_ssize_t n, uint64_t *random)
{
    for (Py_ssize_t i = n - 1; i > 0; i--) {
        Py_ssize_t j = (Py_ssize_t)(((next_random(random) >> 32) * (uint64_t)(i + 1)) >> 32);
        int32_t t = order[i];
        order[i] = order[j];
        order[j] = t;
    }
}

static int run_make(Run *run, Py_ssize_t n_users)
{
    Py_ssize_t m = run->n_groups, n = m * run->width;
    if (level_make(&run->sessions, n, n_users) < 0 || level_make(&run->groups, padded(m), m > 1 ? n_users : 0) < 0)
        return -1;
    run->first_free = calloc(m, sizeof(Py_ssize_t));
    run->cost = aligned_alloc(BLOCK, n * sizeof(float));
    run->bar = aligned_alloc(BLOCK, n * sizeof(float));
    run->group_cost = aligned_alloc(BLOCK, padded(m) * sizeof(float));
    run->least = malloc(m * sizeof(float));
    run->chance = malloc(n * sizeof(double));
    run->candidate = malloc(n * sizeof(int32_t));
    if (!run->first_free || !run->cost || !run->bar || !run->group_cost || !run->least || !run->chance ||
        !run->candidate)
        return -1;
    for (Py_ssize_t b = 0; b < n; b++)
        run->bar[b] = NEVER;
    return 0;
}

static void run_free(Run *run)
{
    level_free(&run->sessions);
    level_free(&run->groups);
    free(run->first_free);
    free(run->cost);
    free(run->bar);
    free(run->group_cost);
    free(run->least);
    free(run->chance);
    free(run->candidate);
}

static int64_t sweeps(Run *run, int32_t *order, Py_ssize_t n, const double *temperature, Py_ssize_t n_sweeps,
                      uint64_t seed)
{
    uint64_t random = seed;
    int64_t moves = 0;
    for (Py_ssize_t i = 0; i < n; i++)
        if (run->label[order[i]] >= 0)
            place(run, order[i], run->label[order[i]]);
    for (Py_ssize_t s = 0; s < n_sweeps; s++) {
        moves = 0;
        shuffle(order, n, &random);
        for (Py_ssize_t i = 0; i < n; i++)
            moves += visit(run, order[i], temperature[s], &random);
        if (moves == 0 && !(temperature[s] > 0))
            break;
    }
    return moves;
}

/* A copy of the labels with the slots of a group padded. */
static int32_t *spread(const int32_t *label, Py_ssize_t n, Py_ssize_t slots, Py_ssize_t width)
{
    int32_t *wide = malloc((n + 1) * sizeof(int32_t));
    for (Py_ssize_t i = 0; wide && i < n; i++)
        wide[i] = label[i] < 0 ? -1 : (int32_t)(label[i] / slots * width + label[i] % slots);
    return wide;
}

static PyObject *anneal(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o[10];
    long long n_users, n_groups, slots, most, budget;
    double alpha, beta, session_cap, group_cap, penalty;
    unsigned long long seed;
    if (!PyArg_ParseTuple(args, "OOOOOLLLLddOKddOOOOdL", &o[0], &o[1], &o[2], &o[3], &o[4], &n_users, &n_groups, &slots,
                          &most, &alpha, &beta, &o[5], &seed, &session_cap, &group_cap, &o[6], &o[7], &o[8], &o[9],
                          &penalty, &budget))
        return NULL;
    static const char *const names[] = {"start", "users", "rate", "items", "label",
                                        "temperatures", "apart_start", "apart", "home", "weight"};
    static const Py_ssize_t widths[] = {8, 4, 8, 4, 4, 8, 8, 4, 4, 4};
    Array a[10];
    Run run;
    memset(a, 0, sizeof a);
    memset(&run, 0, sizeof run);
    int32_t *order = NULL, *home = NULL;
    PyObject *result = NULL;
    const char *fault = NULL;
    for (int i = 0; i < 10; i++)
        if (take(o[i], &a[i], widths[i], i == 4, names[i]) < 0)
            goto done;
    Py_ssize_t n_items = a[2].n;
    int32_t *label = a[4].view.buf;
    if (n_users < 0 || n_groups < 1 || slots < 1 || n_groups > INT32_MAX / padded(slots))
        fault = "the numbers of users, groups and slots make no sense";
    else if (a[4].n != n_items || (a[6].n && a[6].n != n_items + 1) ||
             (a[8].n && (a[8].n != n_items || a[9].n != n_items)))
        fault = "arrays of items differ in length";
    else if (!(fault = label_fault(a[3].view.buf, a[3].n, 0, n_items)) &&
             !(fault = interest_fault(&a[0], &a[1], n_items, n_users, a[3].view.buf, a[3].n)) &&
             !(fault = label_fault(a[8].view.buf, a[8].n, -1, n_groups * slots)))
        for (Py_ssize_t i = 0; i < a[3].n && !fault; i++)
            fault = label_fault(label + ((const int32_t *)a[3].view.buf)[i], 1, -1, n_groups * slots);
    if (!fault && a[6].n)
        fault = ((const int64_t *)a[6].view.buf)[n_items] != a[7].n ? "apart_start does not fit" :
                                                                      label_fault(a[7].view.buf, a[7].n, 0, n_items);
    if (fault) {
        PyErr_SetString(PyExc_ValueError, fault);
        goto done;
    }
    run.start = a[0].view.buf;
    run.users = a[1].view.buf;
    run.rate = a[2].view.buf;
    run.n_groups = n_groups;
    run.slots = slots;
    run.width = padded(slots);
    run.most = most;
    run.alpha = (float)alpha;
    run.beta = (float)beta;
    run.session_cap = session_cap;
    run.group_cap = group_cap;
    run.penalty = (float)penalty;
    run.budget = budget;
    run.apart_start = a[6].n ? a[6].view.buf : NULL;
    run.apart = a[7].view.buf;
    run.label = spread(label, n_items, slots, run.width);
    home = spread(a[8].view.buf, a[8].n, slots, run.width);
    order = malloc((a[3].n + 1) * sizeof(int32_t));
    if (!order || !home || !run.label || run_make(&run, n_users) < 0) {
        PyErr_NoMemory();
        goto done;
    }
    run.home = a[8].n ? home : NULL;
    run.weight = a[9].view.buf;
    memcpy(order, a[3].view.buf, a[3].n * sizeof(int32_t));
    int64_t moves;
    Py_BEGIN_ALLOW_THREADS
    moves = sweeps(&run, order, a[3].n, a[5].view.buf, a[5].n, seed);
    for (Py_ssize_t k = 0; k < n_items; k++)
        label[k] = run.label[k] < 0 ? -1 : (int32_t)(run.label[k] / run.width * slots + run.label[k] % run.width);
    Py_END_ALLOW_THREADS
    result = PyLong_FromLongLong(moves);
done:
    free(order);
    free(home);
    free(run.label);
    run_free(&run);
    let_go(a, 10);
    return result;
}

/* ---- members and merge ------------------------------------------------------------------------------------------- */

static PyObject *members(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o[4];
    long long n_users;
    if (!PyArg_ParseTuple(args, "OOOLO", &o[0], &o[1], &o[2], &n_users, &o[3]))
        return NULL;
    static const char *const names[] = {"start", "users", "label", "bits"};
    static const Py_ssize_t widths[] = {8, 4, 4, 8};
    Array a[4];
    memset(a, 0, sizeof a);
    PyObject *result = NULL;
    for (int i = 0; i < 4; i++)
        if (take(o[i], &a[i], widths[i], i == 3, names[i]) < 0)
            goto done;
    Py_ssize_t words = (Py_ssize_t)((n_users + 63) / 64), n = a[2].n;
    const int64_t *start = a[0].view.buf;
    const int32_t *users = a[1].view.buf, *label = a[2].view.buf;
    uint64_t *bits = a[3].view.buf;
    const char *fault = n_users < 0 || (words && a[3].n % words) ? "bits do not fit the users" :
                                                                  interest_fault(&a[0], &a[1], n, n_users, NULL, n);
    if (!fault)
        fault = label_fault(label, n, -1, words ? a[3].n / words : INT32_MAX);
    if (fault) {
        PyErr_SetString(PyExc_ValueError, fault);
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    for (Py_ssize_t k = 0; k < n; k++)
        for (int64_t i = start[k]; label[k] >= 0 && i < start[k + 1]; i++)
            bits[(size_t)label[k] * words + users[i] / 64] |= (uint64_t)1 << (users[i] % 64);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    let_go(a, 4);
    return result;
}

#define IN_COMMON(name)                                                                                          \
    static int64_t name(const uint64_t *restrict a, const uint64_t *restrict b, Py_ssize_t words)               \
    {                                                                                                            \
        int64_t n = 0;                                                                                           \
        for (Py_ssize_t i = 0; i < words; i++)                                                                   \
            n += __builtin_popcountll(a[i] & b[i]);                                                              \
        return n;                                                                                                \
    }

IN_COMMON(in_common_plain)
static int64_t (*in_common)(const uint64_t *, const uint64_t *, Py_ssize_t) = in_common_plain;

#if defined(__x86_64__) && defined(__GNUC__)
__attribute__((target("popcnt"))) IN_COMMON(in_common_popcnt)
__attribute__((target("avx512f,avx512vpopcntdq"))) IN_COMMON(in_common_vector)

static void choose_in_common(void)
{
    __builtin_cpu_init();
    if (__builtin_cpu_supports("avx512vpopcntdq"))
        in_common = in_common_vector;
    else if (__builtin_cpu_supports("popcnt"))
        in_common = in_common_popcnt;
}
#else
static void choose_in_common(void) {}
#endif

typedef struct {
    uint64_t *bits;
    Py_ssize_t n, words;
    double *rate;
    int64_t *size;
    const int32_t *group;
    int32_t *into, *partner, *next; /* next: the clusters of a group, in a list */
    int32_t *first, *best;          /* of each group: the head of its list, and the cluster with the cheapest partner */
    int64_t *row;                   /* offset in `pair` of the row of a cluster */
    int32_t *rank;                  /* a cluster's index among those of its group */
    float *pair;                    /* the cost of each pair, group by group */
} Merge;

static float *pair_of(const Merge *merge, Py_ssize_t a, Py_ssize_t b)
{
    return merge->pair + merge->row[a] + merge->rank[b];
}

static float cost_of(const Merge *merge, int32_t a) { return *pair_of(merge, a, merge->partner[a]); }

/* The cost of merging a with another session: θ_a·|C_b∖C_a| + θ_b·|C_a∖C_b|. */
static void weigh_pairs(Merge *merge, Py_ssize_t a, int32_t from)
{
    for (int32_t b = from; b >= 0; b = merge->next[b]) {
        if (b == a)
            continue;
        Py_ssize_t low = a < b ? a : b, high = a < b ? b : a;
        int64_t common = in_common(merge->bits + a * merge->words, merge->bits + b * merge->words, merge->words);
        double cost = merge->rate[low] * (double)(merge->size[high] - common) +
                      merge->rate[high] * (double)(merge->size[low] - common);
        *pair_of(merge, a, b) = *pair_of(merge, b, a) = (float)cost;
    }
}

static void find_partner(Merge *merge, int32_t a)
{
    merge->partner[a] = -1;
    for (int32_t b = merge->first[merge->group[a]]; b >= 0; b = merge->next[b])
        if (b != a && (merge->partner[a] < 0 || *pair_of(merge, a, b) < cost_of(merge, a)))
            merge->partner[a] = b;
}

static void find_best(Merge *merge, Py_ssize_t g)
{
    merge->best[g] = -1;
    for (int32_t c = merge->first[g]; c >= 0; c = merge->next[c])
        if (merge->partner[c] >= 0 && (merge->best[g] < 0 || cost_of(merge, c) < cost_of(merge, merge->best[g])))
            merge->best[g] = c;
}

static void unite(Merge *merge, int32_t a, int32_t b)
{
    Py_ssize_t g = merge->group[a];
    for (Py_ssize_t i = 0; i < merge->words; i++)
        merge->bits[a * merge->words + i] |= merge->bits[b * merge->words + i];
    merge->size[a] = in_common(merge->bits + a * merge->words, merge->bits + a * merge->words, merge->words);
    merge->rate[a] += merge->rate[b];
    merge->into[b] = a;
    int32_t *link = &merge->first[g];
    while (*link != b)
        link = &merge->next[*link];
    *link = merge->next[b];
    weigh_pairs(merge, a, merge->first[g]);
    for (int32_t c = merge->first[g]; c >= 0; c = merge->next[c])
        if (c == a || merge->partner[c] == a || merge->partner[c] == b)
            find_partner(merge, c);
        else if (*pair_of(merge, c, a) < cost_of(merge, c))
            merge->partner[c] = a;
    find_best(merge, g);
}

/* Merge the cheapest pair of all groups, repeatedly, until `left` are left. */
static void merge_all(Merge *merge, Py_ssize_t n_groups, long long left)
{
    for (Py_ssize_t i = 0; i < merge->n; i++)
        weigh_pairs(merge, i, merge->next[i]);
    for (Py_ssize_t i = 0; i < merge->n; i++)
        find_partner(merge, (int32_t)i);
    for (Py_ssize_t g = 0; g < n_groups; g++)
        find_best(merge, g);
    for (long long count = merge->n; count > left; count--) {
        int32_t best = -1;
        for (Py_ssize_t g = 0; g < n_groups; g++) {
            int32_t c = merge->best[g];
            if (c >= 0 && (best < 0 || cost_of(merge, c) < cost_of(merge, best) ||
                           (cost_of(merge, c) == cost_of(merge, best) && c < best)))
                best = c;
        }
        if (best < 0)
            break;
        int32_t other = merge->partner[best];
        unite(merge, best < other ? best : other, best < other ? other : best);
    }
    for (Py_ssize_t i = 0; i < merge->n; i++) {
        int32_t root = merge->into[i];
        while (merge->into[root] != root)
            root = merge->into[root];
        merge->into[i] = root;
    }
}

/* Initialise lists, ranks and sizes, and allocate the pairs; -1 without memory. */
static int merge_make(Merge *merge, Py_ssize_t n_groups, const void *bits, const void *rate)
{
    Py_ssize_t n = merge->n, words = merge->words;
    int64_t pairs = 0, *in_group = calloc(n_groups + 1, sizeof(int64_t));
    merge->bits = malloc((size_t)n * words * 8 + 8);
    merge->rate = malloc((n + 1) * sizeof(double));
    merge->size = malloc((n + 1) * sizeof(int64_t));
    merge->row = malloc((n + 1) * sizeof(int64_t));
    merge->partner = malloc((n + 1) * sizeof(int32_t));
    merge->next = malloc((n + 1) * sizeof(int32_t));
    merge->rank = malloc((n + 1) * sizeof(int32_t));
    merge->first = malloc((n_groups + 1) * sizeof(int32_t));
    merge->best = malloc((n_groups + 1) * sizeof(int32_t));
    if (!in_group || !merge->bits || !merge->rate || !merge->size || !merge->row || !merge->partner || !merge->next ||
        !merge->rank || !merge->first || !merge->best) {
        free(in_group);
        return -1;
    }
    memcpy(merge->bits, bits, (size_t)n * words * 8);
    memcpy(merge->rate, rate, n * sizeof(double));
    for (Py_ssize_t g = 0; g < n_groups; g++)
        merge->first[g] = -1;
    for (Py_ssize_t i = 0; i < n; i++)
        merge->rank[i] = (int32_t)in_group[merge->group[i]]++;
    for (Py_ssize_t i = n - 1; i >= 0; i--) {
        merge->size[i] = in_common(merge->bits + i * words, merge->bits + i * words, words);
        merge->next[i] = merge->first[merge->group[i]];
        merge->first[merge->group[i]] = (int32_t)i;
        merge->into[i] = (int32_t)i;
        merge->row[i] = pairs;
        pairs += in_group[merge->group[i]];
    }
    free(in_group);
    merge->pair = malloc((pairs + 1) * sizeof(float));
    return merge->pair ? 0 : -1;
}

static void merge_free(Merge *merge)
{
    free(merge->bits);
    free(merge->rate);
    free(merge->size);
    free(merge->row);
    free(merge->partner);
    free(merge->next);
    free(merge->rank);
    free(merge->first);
    free(merge->best);
    free(merge->pair);
}

static PyObject *merge_down(PyObject *self, PyObject *args)
{
    (void)self;
    PyObject *o[4];
    long long n_users, n_groups, left;
    if (!PyArg_ParseTuple(args, "OOOLLLO", &o[0], &o[1], &o[2], &n_users, &n_groups, &left, &o[3]))
        return NULL;
    static const char *const names[] = {"bits", "rate", "group", "into"};
    static const Py_ssize_t widths[] = {8, 8, 4, 4};
    Array a[4];
    Merge merge;
    PyObject *result = NULL;
    memset(a, 0, sizeof a);
    memset(&merge, 0, sizeof merge);
    for (int i = 0; i < 4; i++)
        if (take(o[i], &a[i], widths[i], i == 3, names[i]) < 0)
            goto done;
    merge.n = a[1].n;
    merge.words = (Py_ssize_t)((n_users + 63) / 64);
    merge.group = a[2].view.buf;
    merge.into = a[3].view.buf;
    if (n_users < 0 || n_groups < 0 || a[0].n != merge.n * merge.words || a[2].n != merge.n || a[3].n != merge.n ||
        label_fault(merge.group, merge.n, 0, n_groups)) {
        PyErr_SetString(PyExc_ValueError, "the arrays of clusters do not fit each other");
        goto done;
    }
    if (merge_make(&merge, n_groups, a[0].view.buf, a[1].view.buf) < 0) {
        PyErr_NoMemory();
        goto done;
    }
    Py_BEGIN_ALLOW_THREADS
    merge_all(&merge, n_groups, left);
    Py_END_ALLOW_THREADS
    result = Py_NewRef(Py_None);
done:
    merge_free(&merge);
    let_go(a, 4);
    return result;
}

static PyMethodDef methods[] = {
    {"anneal", anneal, METH_VARARGS, "See levelcast.native.pure_planner."},
    {"members", members, METH_VARARGS, "See levelcast.native.pure_planner."},
    {"merge_down", merge_down, METH_VARARGS, "See levelcast.native.pure_planner."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef module = {
    PyModuleDef_HEAD_INIT, "_planner", "The planner's loops, compiled: see levelcast.native.pure_planner.", -1, methods,
    NULL, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__planner(void)
{
    choose_in_common();
    return PyModule_Create(&module);
}
