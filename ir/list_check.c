/* Instruction lists are right: proven by replaying them once.
 *
 * The replay has the laziest transport there may be: a microbatch crosses when its receiver stands at recv for it. What
 * a faster one does (a copy engine, a network card) lets others go on earlier, never later, so what comes to its end
 * here does so with any.
 *
 * And one replay is a proof for every interleaving. A stage goes on by itself except at recv and claim, and what these
 * wait for is that a count has grown: of sends, of receives. Counts never fall, so what may happen stays possible until
 * it happens, and the order of independent steps changes nothing that comes later: all maximal replays do the same
 * steps, and stop in the same deadlock or none. Which slot an instruction may touch depends on the counts of its own
 * list only, so those rules hold in all orders or in none.
 *
 * Stages stand for their ranks. A rank does the acts of its stage's list in order, waits for some of the transfers that
 * the stage waits for, and in `run` meets the other ranks of its stage at the same act; every step of a rank so needs
 * only steps of ranks whose steps the stages need too, and what has no cycle there has none here. */
#include "ir/list.h"

#include <inttypes.h>

/* Microbatches of a wire that have come so far. */
typedef struct wire_count {
    int32_t claimed, sent, received, freed;
} wire_count;

typedef struct stage_state {
    ap_list_walk walk;
    bool pending; /* walk.act has not been done yet */
    bool done;
    int32_t ran;
    uint32_t first, nends; /* of `ends` in the replay */
} stage_state;

typedef struct replay {
    const ap_wiring *w;
    const ap_list *lists;
    wire_count *count;
    stage_state *stage;
    uint32_t *ends; /* wires at each stage, stage by stage */
} replay;

static ap_status complain(const replay *r, uint32_t s, const char *text)
{
    const ap_wiring *w = r->w;
    const stage_state *st = &r->stage[s];
    ap_text act;
    ap_text_init(&act, &w->ctx->scratch);
    ap_act_print(w, st->walk.act, st->walk.loop, &act);
    return ap_error(w->ctx, 0, "instruction lists: stage @%s, instruction %td (%s) at microbatch %" PRId32 ": %s",
                    ap_name_str(w->ctx, w->stage[s]), st->walk.act - r->lists[s].acts.at + 1, ap_text_str(&act),
                    st->walk.microbatch, text);
}

static ap_status complain_end(const replay *r, uint32_t s, const char *what, uint32_t wire, int32_t count)
{
    const ap_ctx *ctx = r->w->ctx;
    const char *stage = ap_name_str(ctx, r->w->stage[s]);
    if (wire == AP_NONE)
        return ap_error(r->w->ctx, 0,
                        "instruction lists: stage @%s, at the end: %" PRId32 " of %" PRId32 " microbatches %s", stage,
                        count, r->w->microbatches, what);
    return ap_error(r->w->ctx, 0,
                    "instruction lists: stage @%s, at the end: %" PRId32 " of %" PRId32
                    " microbatches of slot %%%s (@%s to @%s) %s",
                    stage, count, r->w->microbatches, ap_name_str(ctx, r->w->wire[wire].slot),
                    ap_name_str(ctx, r->w->stage[r->w->wire[wire].from]),
                    ap_name_str(ctx, r->w->stage[r->w->wire[wire].to]), what);
}

/* ---- form ---- */

static const char *act_fault(const ap_wiring *w, uint32_t s, const ap_act *a)
{
    if (a->kind >= AP_ACT_LOOP)
        return a->kind == AP_ACT_LOOP ? "loops do not nest" : "no such instruction";
    if (a->shift < -AP_MAX_MICROBATCHES || a->shift > AP_MAX_MICROBATCHES)
        return "no such microbatch";
    if (!ap_act_has_wire(a->kind))
        return NULL;
    if (a->wire >= w->nwires)
        return "no such slot";
    if ((ap_act_is_of_sender(a->kind) ? w->wire[a->wire].from : w->wire[a->wire].to) != s)
        return "an instruction for a slot of other stages, or for its other end";
    return NULL;
}

/* `turns` grows by the instructions of the list, loops unrolled. */
static const char *list_fault(const ap_wiring *w, uint32_t s, const ap_list *list, int64_t *turns)
{
    uint32_t end = 0; /* of the loop that we are in */
    int32_t n = 1;
    if (list->acts.len > AP_LIST_MAX_ACTS)
        return "too many instructions";
    for (uint32_t i = 0; i < list->acts.len; i++) {
        const ap_act *a = &list->acts.at[i];
        if (i >= end && a->kind == AP_ACT_LOOP) {
            if (a->turns < 1 || a->turns > AP_MAX_MICROBATCHES || !a->body || a->body > list->acts.len - 1 - i)
                return "a loop without turns or body";
            end = i + 1 + a->body;
            n = a->turns;
            continue;
        }
        const char *fault = act_fault(w, s, a);
        if (fault)
            return fault;
        *turns += i < end ? n : 1;
    }
    return NULL;
}

static const char *wire_fault(const ap_wiring *w, const ap_wire *x)
{
    if (x->from >= w->nstages || x->to >= w->nstages || x->from == x->to)
        return "leads nowhere";
    if (x->from_depth < 1 || x->to_depth < 1)
        return "has no slots at one end";
    for (uint32_t i = 0; i < w->nwires && &w->wire[i] != x; i++) {
        if (w->wire[i].to == x->to && w->wire[i].slot == x->slot)
            return "is received twice by one stage";
        if (w->wire[i].from == x->from && w->wire[i].result == x->result && w->wire[i].from_depth != x->from_depth)
            return "shares its slots with another one that counts them differently";
    }
    return NULL;
}

static ap_status check_form(const ap_wiring *w, const ap_list *lists)
{
    int64_t turns = 0;
    if (w->microbatches < 1 || w->microbatches > AP_MAX_MICROBATCHES)
        return ap_error(w->ctx, 0, "instruction lists: %" PRId32 " microbatches", w->microbatches);
    for (uint32_t i = 0; i < w->nwires; i++) {
        const char *fault = wire_fault(w, &w->wire[i]);
        if (fault)
            return ap_error(w->ctx, 0, "instruction lists: slot %%%s %s", ap_name_str(w->ctx, w->wire[i].slot), fault);
    }
    for (uint32_t s = 0; s < w->nstages; s++) {
        const char *fault = list_fault(w, s, &lists[s], &turns);
        if (!fault && turns > AP_LISTS_MAX_TURNS)
            fault = "the lists are too long together";
        if (fault)
            return ap_error(w->ctx, 0, "instruction lists: stage @%s: %s", ap_name_str(w->ctx, w->stage[s]), fault);
    }
    return AP_OK;
}

/* ---- replay ---- */

static replay replay_make(const ap_wiring *w, const ap_list *lists)
{
    ap_arena *arena = &w->ctx->scratch;
    replay r = {.w = w,
                .lists = lists,
                .count = AP_NEW_ARRAY(arena, wire_count, w->nwires),
                .stage = AP_NEW_ARRAY(arena, stage_state, w->nstages),
                .ends = AP_NEW_ARRAY(arena, uint32_t, 2 * (size_t)w->nwires)};
    for (uint32_t i = 0; i < w->nwires; i++) {
        r.stage[w->wire[i].from].nends++;
        r.stage[w->wire[i].to].nends++;
    }
    for (uint32_t s = 0, at = 0; s < w->nstages; s++) {
        r.stage[s].walk.list = &lists[s];
        r.stage[s].first = at;
        at += r.stage[s].nends;
        r.stage[s].nends = 0;
    }
    for (uint32_t i = 0; i < w->nwires; i++) {
        stage_state *from = &r.stage[w->wire[i].from], *to = &r.stage[w->wire[i].to];
        r.ends[from->first + from->nends++] = i;
        r.ends[to->first + to->nends++] = i;
    }
    return r;
}

/* What a run needs of its slots. */
static const char *run_fault(const replay *r, uint32_t s, int32_t k)
{
    const stage_state *st = &r->stage[s];
    if (k != st->ran)
        return "microbatches are run one after the other, each once";
    for (uint32_t i = 0; i < st->nends; i++) {
        uint32_t wire = r->ends[st->first + i];
        const wire_count *c = &r->count[wire];
        if (r->w->wire[wire].to == s) {
            if (c->received <= k)
                return "reads a slot before it was received";
            if (c->freed > k)
                return "reads a slot that was freed";
        } else if (c->claimed <= k) {
            return "writes a slot that was not claimed";
        }
    }
    return NULL;
}

/* What is wrong with the act that stage s comes to, wherever the others are. */
static const char *step_fault(const replay *r, uint32_t s)
{
    const stage_state *st = &r->stage[s];
    const ap_act *a = st->walk.act;
    int32_t k = st->walk.microbatch;
    if (k < 0 || k >= r->w->microbatches)
        return "no such microbatch";
    if (a->kind == AP_ACT_RUN)
        return run_fault(r, s, k);
    const wire_count *c = &r->count[a->wire];
    switch (a->kind) {
    case AP_ACT_RECV:
        if (k != c->received)
            return "microbatches are received one after the other, each once";
        return k - c->freed >= r->w->wire[a->wire].to_depth ? "its slot was not freed" : NULL;
    case AP_ACT_CLAIM:
        return k != c->claimed ? "slots are claimed one after the other, each once" : NULL;
    case AP_ACT_FREE:
        if (k != c->freed)
            return "slots are freed one after the other, each once";
        return c->received <= k ? "freed before it was received" : st->ran <= k ? "freed before it was read" : NULL;
    default:
        if (k != c->sent)
            return "microbatches are sent one after the other, each once";
        return st->ran <= k ? "sent before it was written" : NULL;
    }
}

/* Does the act have to wait? */
static bool must_wait(const replay *r, const stage_state *st)
{
    const ap_act *a = st->walk.act;
    int32_t k = st->walk.microbatch;
    if (a->kind == AP_ACT_RECV)
        return r->count[a->wire].sent <= k;
    return a->kind == AP_ACT_CLAIM && r->count[a->wire].received <= k - r->w->wire[a->wire].from_depth;
}

static void do_act(replay *r, stage_state *st)
{
    const ap_act *a = st->walk.act;
    if (a->kind == AP_ACT_RUN) {
        st->ran++;
        return;
    }
    wire_count *c = &r->count[a->wire];
    int32_t *n = a->kind == AP_ACT_RECV    ? &c->received
                 : a->kind == AP_ACT_CLAIM ? &c->claimed
                 : a->kind == AP_ACT_FREE  ? &c->freed
                                           : &c->sent;
    ++*n;
}

/* Stage s goes on until it waits or ends. */
static ap_status advance(replay *r, uint32_t s, bool *moved)
{
    stage_state *st = &r->stage[s];
    while (!st->done) {
        if (!st->pending) {
            st->done = !ap_list_next(&st->walk);
            if (st->done)
                break;
            st->pending = true;
            const char *fault = step_fault(r, s);
            if (fault)
                return complain(r, s, fault);
        }
        if (must_wait(r, st))
            break;
        do_act(r, st);
        st->pending = false;
        *moved = true;
    }
    return AP_OK;
}

/* Nobody can go on: who waits for what. */
static ap_status report_deadlock(const replay *r)
{
    for (uint32_t s = 0, n = 0; s < r->w->nstages && n < 8; s++) {
        const stage_state *st = &r->stage[s];
        if (st->done)
            continue;
        n++;
        complain(r, s,
                 st->walk.act->kind == AP_ACT_CLAIM ? "deadlock: what is in the slot is never received"
                                                    : "deadlock: it is never sent");
    }
    return AP_ERR_MODEL;
}

static ap_status check_end(const replay *r)
{
    int32_t n = r->w->microbatches;
    for (uint32_t s = 0; s < r->w->nstages; s++)
        if (r->stage[s].ran != n)
            return complain_end(r, s, "have run", AP_NONE, r->stage[s].ran);
    for (uint32_t i = 0; i < r->w->nwires; i++) {
        const wire_count *c = &r->count[i];
        const ap_wire *x = &r->w->wire[i];
        if (c->sent != n)
            return complain_end(r, x->from, "were sent", i, c->sent);
        if (c->received != n)
            return complain_end(r, x->to, "were received", i, c->received);
        if (c->freed != n)
            return complain_end(r, x->to, "were freed", i, c->freed);
    }
    return AP_OK;
}

ap_status ap_lists_check(const ap_wiring *w, const ap_list *lists)
{
    AP_TRY(check_form(w, lists));
    replay r = replay_make(w, lists);
    for (bool moved = true; moved;) {
        moved = false;
        for (uint32_t s = 0; s < w->nstages; s++)
            AP_TRY(advance(&r, s, &moved));
    }
    for (uint32_t s = 0; s < w->nstages; s++)
        if (!r.stage[s].done)
            return report_deadlock(&r);
    return check_end(&r);
}
