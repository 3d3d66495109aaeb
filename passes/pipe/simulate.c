/* The replay. Stages and wires are actors with one event each at most: the end of a run; the end of a wire's latency,
 * then of its moving. Whatever becomes possible at an event is done at once; among events of one time the actor with
 * the lower number comes first, so the same numbers give the same answer. */
#include "passes/pipe/sim_state.h"

#include <math.h>

/* ---- events ---- */

static bool comes_before(const ap_sim_heap *h, uint32_t a, uint32_t b)
{
    return h->ps[a] != h->ps[b] ? h->ps[a] < h->ps[b] : a < b;
}

static void heap_put(ap_sim_heap *h, uint32_t i, uint32_t actor)
{
    h->actor[i] = actor;
    h->place[actor] = i + 1;
}

/* Moves the actor at place i to where it belongs. */
static void heap_settle(ap_sim_heap *h, uint32_t i)
{
    uint32_t actor = h->actor[i];
    for (uint32_t up; i > 0 && comes_before(h, actor, h->actor[up = (i - 1) / 2]); i = up)
        heap_put(h, i, h->actor[up]);
    for (;;) {
        uint32_t down = 2 * i + 1;
        if (down + 1 < h->n && comes_before(h, h->actor[down + 1], h->actor[down]))
            down++;
        if (down >= h->n || !comes_before(h, h->actor[down], actor))
            break;
        heap_put(h, i, h->actor[down]);
        i = down;
    }
    heap_put(h, i, actor);
}

/* The event of the actor is at this time now. */
static void schedule(ap_sim_state *s, uint32_t actor, int64_t ps)
{
    ap_sim_heap *h = &s->heap;
    h->ps[actor] = ps;
    if (!h->place[actor])
        heap_put(h, h->n++, actor);
    heap_settle(h, h->place[actor] - 1);
}

static uint32_t heap_pop(ap_sim_heap *h)
{
    uint32_t first = h->actor[0], last = h->actor[--h->n];
    h->place[first] = 0;
    if (first != last) {
        heap_put(h, 0, last);
        heap_settle(h, 0);
    }
    return first;
}

static uint32_t actor_of_wire(const ap_sim_state *s, uint32_t w)
{
    return s->in->w->nstages + w;
}

static void record_event(ap_sim_state *s, ap_sim_event e)
{
    if (s->record)
        ap_vec_push(s->arena, &s->out->events, e);
}

/* ---- memory ---- */

static void add_bytes(ap_sim_state *s, uint32_t stage, int64_t bytes)
{
    ap_sim_stage_state *st = &s->stage[stage];
    ap_sim_share *share = &s->out->stage[stage];
    if (!bytes)
        return;
    st->bytes += bytes;
    if (st->bytes > share->peak_bytes) {
        share->peak_bytes = st->bytes;
        share->peak_ps = s->now;
    }
    if (s->record)
        ap_vec_push(s->arena, &s->out->memory, (ap_sim_memory){s->now, stage, st->bytes});
}

/* Slots of a result that hold something: from when all its wires have claimed one until the last has taken it. */
static int32_t slots_in_use(const ap_sim_state *s, uint32_t source)
{
    int32_t claimed = INT32_MAX, arrived = INT32_MAX;
    for (uint32_t w = source; w != AP_NONE; w = s->wire[w].next) {
        const ap_sim_wire_state *x = &s->wire[w];
        claimed = x->claimed < claimed ? x->claimed : claimed;
        arrived = x->arrived < arrived ? x->arrived : arrived;
    }
    return claimed - arrived;
}

/* `count` of the wire grows by one; what that means for the slots it leaves from. */
static void count_at_source(ap_sim_state *s, uint32_t w, int32_t *count)
{
    uint32_t source = s->wire[w].source;
    int32_t before = slots_in_use(s, source);
    ++*count;
    add_bytes(s, s->in->w->wire[w].from, (slots_in_use(s, source) - before) * s->in->wire[w].from_bytes);
}

/* ---- wires ---- */

static int64_t busy_until_now(const ap_sim_state *s, uint32_t w)
{
    const ap_sim_wire_state *x = &s->wire[w];
    return x->busy_ps + (x->phase == AP_SIM_REST ? 0 : s->now - x->begun_ps);
}

/* Does the receiver stand at recv of this wire? */
static bool is_awaited(const ap_sim_state *s, uint32_t w)
{
    const ap_sim_stage_state *st = &s->stage[s->in->w->wire[w].to];
    return st->waiting && st->walk.act->kind == AP_ACT_RECV && st->walk.act->wire == w;
}

/* The next microbatch sets out, if there is one and a slot for it, and somebody who takes it. */
static void start_wire(ap_sim_state *s, uint32_t w)
{
    ap_sim_wire_state *x = &s->wire[w];
    const ap_wire *of = &s->in->w->wire[w];
    if (s->in->wire[w].by_receiver && !is_awaited(s, w))
        return;
    if (x->phase != AP_SIM_REST || x->begun == x->sent || x->begun - x->freed >= of->to_depth)
        return;
    x->begun++;
    x->phase = AP_SIM_LATENT;
    x->begun_ps = s->now;
    add_bytes(s, of->to, s->in->wire[w].to_bytes);
    schedule(s, actor_of_wire(s, w), ap_sat_add(s->now, s->in->wire[w].latency_ps));
}

/* A wire has begun or ended to move: new speeds for all whose speed depends on it. */
static void share_ports(ap_sim_state *s, uint32_t w)
{
    uint32_t n, group = ap_sim_ports_group(s->ports, w);
    const uint32_t *member = ap_sim_ports_members(s->ports, group, &n);
    ap_sim_ports_speeds(s->ports, group, s->moving, s->fair);
    for (uint32_t i = 0; i < n; i++) {
        uint32_t m = member[i];
        ap_sim_wire_state *x = &s->wire[m];
        if (x->phase != AP_SIM_MOVING || s->fair[m] == s->speed[m])
            continue;
        x->left = fmax(0, x->left - s->speed[m] * (double)(s->now - x->since));
        x->since = s->now;
        s->speed[m] = s->fair[m];
        double ps = ceil(x->left / s->speed[m]);
        schedule(s, actor_of_wire(s, m), ps < 9e18 ? ap_sat_add(s->now, (int64_t)ps) : INT64_MAX);
    }
}

/* Latency is over. */
static void move_wire(ap_sim_state *s, uint32_t w)
{
    ap_sim_wire_state *x = &s->wire[w];
    x->phase = AP_SIM_MOVING;
    x->left = (double)(ap_sim_alone(&s->in->wire[w]) - s->in->wire[w].latency_ps);
    x->since = s->now;
    s->moving[w] = true;
    s->speed[w] = 0;
    share_ports(s, w);
}

static void end_wire(ap_sim_state *s, uint32_t w)
{
    ap_sim_wire_state *x = &s->wire[w];
    x->phase = AP_SIM_REST;
    x->busy_ps += s->now - x->begun_ps;
    s->moving[w] = false;
    share_ports(s, w);
    record_event(s, (ap_sim_event){.kind = AP_SIM_TRANSFER,
                                   .wire = w,
                                   .stage = s->in->w->wire[w].to,
                                   .microbatch = x->arrived,
                                   .start_ps = x->begun_ps,
                                   .end_ps = s->now});
    count_at_source(s, w, &x->arrived);
    start_wire(s, w);
}

/* ---- stages ---- */

static bool must_wait(const ap_sim_state *s, const ap_sim_stage_state *st)
{
    const ap_act *a = st->walk.act;
    int32_t k = st->walk.microbatch;
    if (a->kind == AP_ACT_RECV)
        return s->wire[a->wire].arrived <= k ||
               (s->in->wire[a->wire].by_receiver && s->wire[a->wire].phase != AP_SIM_REST);
    return a->kind == AP_ACT_CLAIM && s->wire[a->wire].arrived <= k - s->in->w->wire[a->wire].from_depth;
}

static void begin_wait(ap_sim_state *s, uint32_t stage)
{
    ap_sim_stage_state *st = &s->stage[stage];
    st->waiting = true;
    st->since = s->now;
    st->busy = busy_until_now(s, st->walk.act->wire);
    start_wire(s, st->walk.act->wire);
}

static void end_wait(ap_sim_state *s, uint32_t stage)
{
    ap_sim_stage_state *st = &s->stage[stage];
    uint32_t w = st->walk.act->wire;
    int64_t moved = busy_until_now(s, w) - st->busy, waited = s->now - st->since;
    s->out->stage[stage].transfer_ps += moved;
    s->out->stage[stage].bubble_ps += waited - moved;
    st->waiting = false;
    if (waited)
        record_event(s, (ap_sim_event){.kind = AP_SIM_WAIT,
                                       .stage = stage,
                                       .wire = w,
                                       .microbatch = st->walk.microbatch,
                                       .start_ps = st->since,
                                       .end_ps = s->now});
}

/* Of the microbatch at which the stage is. */
static ap_sim_run run_of(const ap_sim_state *s, uint32_t stage)
{
    const ap_sim_stage *of = &s->in->stage[stage];
    int32_t i = s->stage[stage].walk.microbatch - (s->in->w->microbatches - of->nshort);
    return i >= 0 && of->nshort > 0 ? of->shorter[i] : (ap_sim_run){of->compute_ps, of->exchange_ps};
}

static void begin_run(ap_sim_state *s, uint32_t stage)
{
    const ap_sim_run run = run_of(s, stage);
    const ap_sim_stage *of = &s->in->stage[stage];
    ap_sim_stage_state *st = &s->stage[stage];
    st->running = true;
    st->since = s->now;
    add_bytes(s, stage, of->working_bytes);
    schedule(s, stage, ap_sat_add(s->now, ap_sat_add(run.compute_ps, run.exchange_ps)));
}

static void end_run(ap_sim_state *s, uint32_t stage)
{
    ap_sim_stage_state *st = &s->stage[stage];
    const ap_sim_stage *of = &s->in->stage[stage];
    const ap_sim_run run = run_of(s, stage);
    ap_sim_share *share = &s->out->stage[stage];
    st->running = false;
    share->compute_ps = ap_sat_add(share->compute_ps, run.compute_ps);
    share->exchange_ps = ap_sat_add(share->exchange_ps, run.exchange_ps);
    add_bytes(s, stage, -of->working_bytes);
    record_event(s, (ap_sim_event){.kind = AP_SIM_RUN,
                                   .stage = stage,
                                   .wire = AP_NONE,
                                   .microbatch = st->walk.microbatch,
                                   .start_ps = st->since,
                                   .end_ps = s->now});
}

static void do_act(ap_sim_state *s, uint32_t stage)
{
    const ap_act *a = s->stage[stage].walk.act;
    ap_sim_wire_state *x = a->kind == AP_ACT_RUN ? NULL : &s->wire[a->wire];
    switch (a->kind) {
    case AP_ACT_RUN:
        begin_run(s, stage);
        break;
    case AP_ACT_CLAIM:
        count_at_source(s, a->wire, &x->claimed);
        break;
    case AP_ACT_FREE:
        x->freed++;
        add_bytes(s, stage, -s->in->wire[a->wire].to_bytes);
        start_wire(s, a->wire);
        break;
    case AP_ACT_SEND:
        x->sent++;
        start_wire(s, a->wire);
        break;
    default:
        break;
    }
}

/* The stage goes on until it runs, waits, or has come to its end. */
static void advance(ap_sim_state *s, uint32_t stage)
{
    ap_sim_stage_state *st = &s->stage[stage];
    while (!st->running && !st->done) {
        if (!st->waiting) {
            st->done = !ap_list_next(&st->walk);
            if (st->done)
                break;
        }
        if (must_wait(s, st)) {
            if (!st->waiting)
                begin_wait(s, stage);
            break;
        }
        if (st->waiting)
            end_wait(s, stage);
        do_act(s, stage);
    }
}

/* ---- all of it ---- */

/* Wires of one result as a chain. */
static void join_results(ap_sim_state *s)
{
    const ap_wire *wire = s->in->w->wire;
    for (uint32_t i = 0; i < s->in->w->nwires; i++) {
        uint32_t last = AP_NONE;
        for (uint32_t j = 0; j < i; j++)
            if (wire[j].from == wire[i].from && wire[j].result == wire[i].result)
                last = j;
        s->wire[i].source = last == AP_NONE ? i : s->wire[last].source;
        s->wire[i].next = AP_NONE;
        if (last != AP_NONE)
            s->wire[last].next = i;
    }
}

static void open_sim(ap_sim_state *s)
{
    const ap_wiring *w = s->in->w;
    uint32_t nactors = w->nstages + w->nwires;
    s->stage = AP_NEW_ARRAY(s->arena, ap_sim_stage_state, w->nstages);
    s->wire = AP_NEW_ARRAY(s->arena, ap_sim_wire_state, w->nwires);
    s->moving = AP_NEW_ARRAY(s->arena, bool, w->nwires);
    s->speed = AP_NEW_ARRAY(s->arena, double, w->nwires);
    s->fair = AP_NEW_ARRAY(s->arena, double, w->nwires);
    s->ports = ap_sim_ports_create(s->arena, s->in->wire, w->nwires, s->in->nports);
    s->heap.actor = AP_NEW_ARRAY(s->arena, uint32_t, nactors);
    s->heap.place = AP_NEW_ARRAY(s->arena, uint32_t, nactors);
    s->heap.ps = AP_NEW_ARRAY(s->arena, int64_t, nactors);
    s->out->stage = AP_NEW_ARRAY(s->arena, ap_sim_share, w->nstages);
    join_results(s);
    for (uint32_t i = 0; i < w->nstages; i++) {
        s->stage[i].walk.list = &s->in->lists[i];
        add_bytes(s, i, s->in->stage[i].resident_bytes);
    }
}

static void step(ap_sim_state *s)
{
    const ap_wiring *w = s->in->w;
    uint32_t actor = heap_pop(&s->heap);
    s->now = s->heap.ps[actor];
    if (actor < w->nstages) {
        end_run(s, actor);
        if (!s->record && actor + 1 == w->nstages)
            ap_sim_skip_ahead(s);
        advance(s, actor);
        return;
    }
    uint32_t i = actor - w->nstages;
    if (s->wire[i].phase == AP_SIM_LATENT) {
        move_wire(s, i);
        return;
    }
    end_wire(s, i);
    advance(s, w->wire[i].to);
    advance(s, w->wire[i].from);
}

/* What is left of the time when a stage has done everything is a bubble. */
static void sum_up(ap_sim_state *s)
{
    const ap_wiring *w = s->in->w;
    ap_sim_result *r = s->out;
    double ranks = 0, bubble = 0, exposed = 0;
    r->ps = s->now;
    for (uint32_t i = 0; i < w->nstages; i++) {
        ap_sim_share *x = &r->stage[i];
        double n = s->in->stage[i].nranks;
        x->bubble_ps = r->ps - x->compute_ps - x->exchange_ps - x->transfer_ps;
        ranks += n;
        bubble += n * (double)x->bubble_ps;
        exposed += n * ((double)x->exchange_ps + (double)x->transfer_ps);
    }
    r->bubble = r->ps > 0 && ranks > 0 ? bubble / ranks / (double)r->ps : 0;
    r->exposed_ps = ranks > 0 ? (int64_t)(exposed / ranks) : 0;
}

ap_status ap_simulate(const ap_sim *in, ap_arena *arena, bool record, ap_sim_result *out)
{
    *out = (ap_sim_result){0};
    ap_sim_state s = {.in = in, .arena = arena, .record = record, .out = out};
    open_sim(&s);
    for (uint32_t i = 0; i < in->w->nstages; i++)
        advance(&s, i);
    while (s.heap.n)
        step(&s);
    for (uint32_t i = 0; i < in->w->nstages; i++)
        if (!s.stage[i].done)
            return ap_fail(in->w->ctx, AP_ERR_BUG, 0, "simulator: stage @%s does not come to its end",
                           ap_name_str(in->w->ctx, in->w->stage[i]));
    sum_up(&s);
    return AP_OK;
}
