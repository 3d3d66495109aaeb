/* A pipeline with many microbatches soon does the same over and over, period by period: after each the state differs
 * from the one before by whole microbatches and a time, and nothing that is still to come depends on either. Then any
 * number of periods may be taken at once, as long as every list stays in its loop; what was counted grows by what one
 * period adds. A saved state that becomes older and older finds periods of any length (Brent). */
#include "passes/pipe/sim_state.h"

#include <string.h>

/* The state as seen from one moment and microbatch: what two states have in common if they go on alike. Flags and small
 * numbers are whole numbers as well; times are differences. */
typedef struct view {
    int64_t *number;
    double *speed; /* two per wire: left, speed */
} view;

typedef struct ap_sim_steady {
    uint32_t numbers;
    view saved, here;
    ap_sim_share *share; /* when the view was saved */
    int64_t *busy_ps;    /* of wires, then */
    int64_t ps;
    int32_t microbatch;
    bool any;
    uint32_t age, limit; /* runs since then; how many until a younger one is saved */
} ap_sim_steady;

enum { STAGE_NUMBERS = 8, WIRE_NUMBERS = 9 };

static ap_sim_steady *steady_create(const ap_sim_state *s)
{
    const ap_wiring *w = s->in->w;
    ap_sim_steady *d = AP_NEW(s->arena, ap_sim_steady);
    d->numbers = STAGE_NUMBERS * w->nstages + WIRE_NUMBERS * w->nwires;
    for (int i = 0; i < 2; i++) {
        view *v = i ? &d->here : &d->saved;
        v->number = AP_NEW_ARRAY(s->arena, int64_t, d->numbers);
        v->speed = AP_NEW_ARRAY(s->arena, double, 2 * (size_t)w->nwires);
    }
    d->share = AP_NEW_ARRAY(s->arena, ap_sim_share, w->nstages);
    d->busy_ps = AP_NEW_ARRAY(s->arena, int64_t, w->nwires);
    d->limit = 1;
    return d;
}

static int64_t busy_until_now(const ap_sim_state *s, uint32_t w)
{
    const ap_sim_wire_state *x = &s->wire[w];
    return x->busy_ps + (x->phase == AP_SIM_REST ? 0 : s->now - x->begun_ps);
}

/* How long until the actor's event; -1: it has none. */
static int64_t until_event(const ap_sim_state *s, uint32_t actor)
{
    return s->heap.place[actor] ? s->heap.ps[actor] - s->now : -1;
}

static void look(const ap_sim_state *s, int32_t k, view *v)
{
    const ap_wiring *w = s->in->w;
    int64_t *n = v->number;
    for (uint32_t i = 0; i < w->nstages; i++) {
        const ap_sim_stage_state *x = &s->stage[i];
        *n++ = x->walk.next;
        *n++ = x->walk.loop;
        *n++ = x->walk.turn - k;
        *n++ = x->running;
        *n++ = x->waiting;
        *n++ = x->running || x->waiting ? s->now - x->since : 0;
        *n++ = x->waiting ? busy_until_now(s, x->walk.act->wire) - x->busy : 0;
        *n++ = until_event(s, i);
    }
    for (uint32_t i = 0; i < w->nwires; i++) {
        const ap_sim_wire_state *x = &s->wire[i];
        bool moves = x->phase == AP_SIM_MOVING;
        *n++ = x->claimed - k;
        *n++ = x->sent - k;
        *n++ = x->begun - k;
        *n++ = x->arrived - k;
        *n++ = x->freed - k;
        *n++ = x->phase;
        *n++ = x->phase == AP_SIM_REST ? 0 : s->now - x->begun_ps;
        *n++ = moves ? s->now - x->since : 0;
        *n++ = until_event(s, w->nstages + i);
        v->speed[2 * i] = moves ? x->left : 0;
        v->speed[2 * i + 1] = moves ? s->speed[i] : 0;
    }
}

static bool is_same(const ap_sim_state *s, const ap_sim_steady *d)
{
    if (memcmp(d->saved.number, d->here.number, d->numbers * sizeof *d->here.number) != 0)
        return false;
    for (uint32_t i = 0; i < 2 * s->in->w->nwires; i++)
        if (d->saved.speed[i] != d->here.speed[i])
            return false;
    return true;
}

static void save(const ap_sim_state *s, ap_sim_steady *d, int32_t k)
{
    const ap_wiring *w = s->in->w;
    view swap = d->saved;
    d->saved = d->here;
    d->here = swap;
    memcpy(d->share, s->out->stage, w->nstages * sizeof *d->share);
    for (uint32_t i = 0; i < w->nwires; i++)
        d->busy_ps[i] = busy_until_now(s, i);
    d->ps = s->now;
    d->microbatch = k;
    d->any = true;
    d->age = 0;
}

/* Whole periods of `turns` until the first list would leave its loop, or come to a microbatch that is shorter. */
static int32_t periods_left(const ap_sim_state *s, int32_t turns)
{
    int32_t n = INT32_MAX;
    for (uint32_t i = 0; i < s->in->w->nstages; i++) {
        const ap_list_walk *walk = &s->stage[i].walk;
        if (!walk->loop)
            return 0;
        int32_t left = walk->list->acts.at[walk->loop - 1].turns - 1 - walk->turn - s->in->stage[i].nshort;
        n = left / turns < n ? left / turns : n;
    }
    return n;
}

static int64_t grown(int64_t now, int64_t before, int32_t times)
{
    return ap_sat_add(now, ap_sat_mul(now - before, times));
}

/* `n` periods of `turns` microbatches and `ps` each. */
static void move_on(ap_sim_state *s, const ap_sim_steady *d, int32_t n, int32_t turns, int64_t ps)
{
    const ap_wiring *w = s->in->w;
    int32_t microbatches = n * turns;
    int64_t time = ap_sat_mul(ps, n);
    for (uint32_t i = 0; i < w->nstages; i++) {
        ap_sim_stage_state *x = &s->stage[i];
        ap_sim_share *a = &s->out->stage[i];
        const ap_sim_share *b = &d->share[i];
        if (x->waiting) {
            uint32_t wire = x->walk.act->wire;
            x->busy = ap_sat_add(x->busy, ap_sat_mul(busy_until_now(s, wire) - d->busy_ps[wire], n));
        }
        x->walk.turn += microbatches;
        x->walk.microbatch += microbatches;
        x->since = ap_sat_add(x->since, time);
        a->compute_ps = grown(a->compute_ps, b->compute_ps, n);
        a->exchange_ps = grown(a->exchange_ps, b->exchange_ps, n);
        a->transfer_ps = grown(a->transfer_ps, b->transfer_ps, n);
        a->bubble_ps = grown(a->bubble_ps, b->bubble_ps, n);
    }
    for (uint32_t i = 0; i < w->nwires; i++) {
        ap_sim_wire_state *x = &s->wire[i];
        x->busy_ps = ap_sat_add(x->busy_ps, ap_sat_mul(busy_until_now(s, i) - d->busy_ps[i], n));
        x->claimed += microbatches;
        x->sent += microbatches;
        x->begun += microbatches;
        x->arrived += microbatches;
        x->freed += microbatches;
        x->begun_ps = ap_sat_add(x->begun_ps, time);
        x->since = ap_sat_add(x->since, time);
    }
    for (uint32_t i = 0; i < s->heap.n; i++)
        s->heap.ps[s->heap.actor[i]] = ap_sat_add(s->heap.ps[s->heap.actor[i]], time);
    s->now = ap_sat_add(s->now, time);
}

void ap_sim_skip_ahead(ap_sim_state *s)
{
    if (!s->steady)
        s->steady = steady_create(s);
    ap_sim_steady *d = s->steady;
    int32_t k = s->stage[s->in->w->nstages - 1].walk.microbatch;
    look(s, k, &d->here);
    if (d->any && k > d->microbatch && is_same(s, d)) {
        int32_t n = periods_left(s, k - d->microbatch);
        if (n > 0)
            move_on(s, d, n, k - d->microbatch, s->now - d->ps);
        d->any = false;
        return;
    }
    if (!d->any || ++d->age == d->limit) {
        d->limit = d->any ? 2 * d->limit : d->limit;
        save(s, d, k);
    }
}
