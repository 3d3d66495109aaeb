/* SPDX-License-Identifier: MIT
 *
 * Ranks as threads of one process: opening, failing, and the watchdog.
 *
 * The watchdog sits in those who wait. A rank that has gone to sleep says for what and looks at the others now and
 * then: when every rank is asleep or has nothing to do, and nobody has moved for the bound, nobody ever will. So a rank
 * that computes, however long, never trips it, and a stall is noticed within the bound and a tick. */
#include "local.h"

#include "instance.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- waiting ---- */

double local_tick_seconds(const local_comm *c)
{
    return c->setup.watchdog < 4 ? c->setup.watchdog / 4 : 1;
}

/* Has everybody been asleep or at home, and nobody moved, since the last look? */
static bool all_asleep(const local_comm *c, uint32_t *turns)
{
    bool all = true;
    uint32_t sum = 0;
    for (int32_t r = 0; r < c->base.nranks; r++) {
        const aprt_sleeper *s = &c->rank[r].sleeper;
        uint32_t turn = atomic_load(&s->turn);
        all = all && (turn % 2 == 1 || atomic_load(&s->home));
        sum += turn;
    }
    bool same = sum == *turns;
    *turns = sum;
    return all && same;
}

static size_t describe(const local_comm *c, int32_t rank, char *out, size_t size)
{
    const aprt_sleeper *s = &c->rank[rank].sleeper;
    const aprt_waiting w = {atomic_load(&s->kind), atomic_load(&s->what), atomic_load(&s->peer), atomic_load(&s->at),
                            atomic_load(&s->mb)};
    return aprt_waiting_text(c->layout, rank, &w, out, size);
}

/* Who waits for whom, as much as has room. */
static void tell_stall(const local_wait *w)
{
    const local_comm *c = w->c;
    char *out = aprt_device_why(w->d)->text;
    size_t size = sizeof aprt_device_why(w->d)->text;
    size_t n = (size_t)snprintf(out, size, "nothing has moved for %g seconds: ", c->setup.watchdog);
    n += describe(c, w->d->rank, out + n, size - n);
    for (int32_t r = 0; r < c->base.nranks && n + 3 < size; r++) {
        if (r == w->d->rank || atomic_load(&c->rank[r].sleeper.turn) % 2 == 0)
            continue;
        n += (size_t)snprintf(out + n, size - n, "; ");
        n += describe(c, r, out + n, size - n);
    }
}

bool local_tick(void *user)
{
    local_wait *w = user;
    aprt_sleeper *s = &w->c->rank[w->d->rank].sleeper;
    if (atomic_load(&w->c->aborted))
        return false;
    if (!w->asleep) {
        w->asleep = true;
        atomic_store(&s->kind, w->kind);
        atomic_store(&s->what, w->what);
        atomic_store(&s->peer, w->peer);
        atomic_store(&s->mb, w->d->mb);
        atomic_store(&s->at, w->d->at);
        atomic_fetch_add(&s->turn, 1);
        w->since = now();
        return true;
    }
    double t = now();
    if (!all_asleep(w->c, &w->turns))
        w->since = t;
    if (t - w->since < w->c->setup.watchdog)
        return true;
    tell_stall(w);
    w->stalled = true;
    return false;
}

void local_wake(local_wait *w)
{
    if (w->asleep)
        atomic_fetch_add(&w->c->rank[w->d->rank].sleeper.turn, 1);
    w->asleep = false;
}

int local_wait_status(const local_wait *w)
{
    return w->stalled ? APRT_ERR_ENV : APRT_ABANDONED;
}

int local_counter_wait(local_wait *w, aprt_counter *counter, int64_t least)
{
    while (atomic_load(&counter->count) < least) {
        uint32_t word = atomic_load(&counter->gate.word);
        if (atomic_load(&w->c->aborted))
            return APRT_ABANDONED;
        if (atomic_load(&counter->count) >= least)
            break;
        bool goes_on = aprt_gate_wait(&counter->gate, word, w->c->setup.spins, local_tick, local_tick_seconds(w->c), w);
        local_wake(w);
        if (!goes_on)
            return local_wait_status(w);
    }
    return APRT_OK;
}

/* ---- open, close ---- */

static bool make_barriers(local_comm *c)
{
    const aprt_program *p = c->layout->program;
    c->first_barrier = calloc(p->nstages, sizeof *c->first_barrier);
    for (uint32_t s = 0; c->first_barrier && s < p->nstages; s++) {
        const aprt_stage *stage = &p->stage[s];
        c->first_barrier[s] = calloc(stage->ngroups + 1u, sizeof **c->first_barrier);
        if (!c->first_barrier[s])
            return false;
        for (uint32_t g = 0; g < stage->ngroups; g++) {
            c->first_barrier[s][g] = c->nbarriers;
            c->nbarriers += (uint32_t)stage->group[g].count;
        }
    }
    c->barrier = aligned_alloc(64, (c->nbarriers + 1) * sizeof *c->barrier);
    if (!c->first_barrier || !c->barrier)
        return false;
    memset(c->barrier, 0, (c->nbarriers + 1) * sizeof *c->barrier);
    uint32_t at = 0;
    for (uint32_t s = 0; s < p->nstages; s++)
        for (uint32_t g = 0; g < p->stage[s].ngroups; g++)
            for (int32_t i = 0; i < p->stage[s].group[g].count; i++)
                c->barrier[at++].size = (uint32_t)p->stage[s].group[g].size;
    return true;
}

static void *zeroed(size_t n, size_t size)
{
    void *p = aligned_alloc(64, (n * size + 64) / 64 * 64);
    if (p)
        memset(p, 0, (n * size + 64) / 64 * 64);
    return p;
}

static void local_close(aprt_comm *base)
{
    local_comm *c = (local_comm *)base;
    for (uint32_t s = 0; c->first_barrier && s < c->layout->program->nstages; s++)
        free(c->first_barrier[s]);
    free(c->first_barrier);
    free(c->barrier);
    free(c->rank);
    free(c->sent);
    free(c->taken);
    free(c);
}

static int local_open(const aprt_comm_setup *setup, aprt_comm **out, aprt_failure *why)
{
    const aprt_program *p = setup->layout->program;
    local_comm *c = zeroed(1, sizeof *c);
    if (!c)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    c->base = (aprt_comm){&aprt_comm_local, 0, p->nranks};
    c->setup = *setup;
    c->layout = setup->layout;
    c->nsent = p->nchannels * (uint32_t)p->nranks;
    c->rank = zeroed((size_t)p->nranks, sizeof *c->rank);
    c->sent = zeroed(c->nsent, sizeof *c->sent);
    c->taken = zeroed(c->layout->nroutes, sizeof *c->taken);
    if (!make_barriers(c) || !c->rank || !c->sent || !c->taken) {
        local_close(&c->base);
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    }
    *out = &c->base;
    return APRT_OK;
}

static int local_attach(aprt_comm *base, aprt_device *d, aprt_failure *why)
{
    (void)why;
    ((local_comm *)base)->rank[d->rank].device = d;
    return APRT_OK;
}

/* ---- jobs ---- */

static void local_start(aprt_comm *base)
{
    local_comm *c = (local_comm *)base;
    for (uint32_t i = 0; i < c->nbarriers && atomic_load(&c->aborted); i++)
        aprt_barrier_reset(&c->barrier[i]);
    for (uint32_t i = 0; i < c->nsent; i++)
        atomic_store(&c->sent[i].count, 0);
    for (uint32_t i = 0; i < c->layout->nroutes; i++)
        atomic_store(&c->taken[i].count, 0);
    for (int32_t r = 0; r < c->base.nranks; r++)
        atomic_store(&c->rank[r].sleeper.home, 0);
    atomic_store(&c->aborted, 0);
}

static void local_home(aprt_comm *base, aprt_device *d)
{
    atomic_store(&((local_comm *)base)->rank[d->rank].sleeper.home, 1);
}

static void local_abort(aprt_comm *base, int32_t rank, int status, const char *text)
{
    local_comm *c = (local_comm *)base;
    (void)rank;
    (void)status;
    (void)text; /* is that of the device */
    atomic_store(&c->aborted, 1);
    for (uint32_t i = 0; i < c->nbarriers; i++)
        aprt_barrier_release(&c->barrier[i]);
    for (uint32_t i = 0; i < c->nsent; i++)
        aprt_gate_open(&c->sent[i].gate);
    for (uint32_t i = 0; i < c->layout->nroutes; i++)
        aprt_gate_open(&c->taken[i].gate);
}

static bool local_aborted(aprt_comm *base)
{
    return atomic_load(&((local_comm *)base)->aborted);
}

/* ---- what costs nothing where memory is shared and one thread calls ---- */

static int local_barrier(aprt_comm *base, aprt_failure *why)
{
    (void)base;
    (void)why;
    return APRT_OK;
}

static int local_merge(aprt_comm *base, char *bytes, size_t size, aprt_failure *why)
{
    (void)base;
    (void)bytes;
    (void)size;
    (void)why;
    return APRT_OK;
}

static int local_collect(aprt_comm *base, void *const outputs[], aprt_failure *why)
{
    (void)base;
    (void)outputs;
    (void)why;
    return APRT_OK;
}

static int local_gather(aprt_comm *base, const void *bytes, size_t size, void **out, size_t *total, double **later,
                        aprt_failure *why)
{
    (void)base;
    *out = malloc(size + 1);
    *later = calloc(1, sizeof **later);
    if (!*out || !*later) {
        free(*out);
        free(*later);
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    }
    memcpy(*out, bytes, size);
    *total = size;
    return APRT_OK;
}

const aprt_comm_ops aprt_comm_local = {
    .abi = APRT_ABI,
    .name = "local",
    .open = local_open,
    .close = local_close,
    .attach = local_attach,
    .start = local_start,
    .home = local_home,
    .barrier = local_barrier,
    .merge = local_merge,
    .exchange = local_exchange,
    .recv = local_recv,
    .claim = local_claim,
    .free = local_free,
    .send = local_send,
    .abort = local_abort,
    .aborted = local_aborted,
    .collect = local_collect,
    .gather = local_gather,
};
