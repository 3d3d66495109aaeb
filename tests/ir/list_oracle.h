/* Two independent judges of instruction lists, for tests.
 *
 *   rules      orders inside each list, by position, and a graph of what must come before what that has no cycle
 *   explorer   every interleaving of ranks and transfers on slots with contents, once with transfers that happen at
 *              any time, once with such as happen when they are waited for; tiny cases only
 */
#ifndef AP_TESTS_IR_LIST_ORACLE_H
#define AP_TESTS_IR_LIST_ORACLE_H

#include "text_util.h"

#include "ir/list.h"

typedef enum verdict { GOOD, FAULT, TOO_MANY } verdict;

typedef struct step {
    ap_act_kind kind;
    uint32_t wire;
    int32_t k;
} step;
typedef struct steps {
    uint32_t n;
    step *at;
} steps;

/* Loops unrolled, by its own reading of the records. */
static inline steps unroll(ap_arena *arena, const ap_list *l)
{
    AP_VEC(step) out = {0};
    for (uint32_t i = 0; i < l->acts.len; i++) {
        const ap_act *a = &l->acts.at[i];
        if (a->kind != AP_ACT_LOOP) {
            ap_vec_push(arena, &out, (step){a->kind, a->wire, a->shift});
            continue;
        }
        for (int32_t turn = 0; turn < a->turns; turn++)
            for (uint32_t j = 1; j <= a->body; j++)
                ap_vec_push(arena, &out, (step){a[j].kind, a[j].wire, a[j].shift + turn});
        i += a->body;
    }
    return (steps){out.len, out.at};
}

/* ---- rules ---- */

typedef struct judge {
    const ap_wiring *w;
    ap_arena *arena;
    steps *list;
    uint32_t *base; /* of the nodes of each stage; arrivals come behind: base[nstages] + wire * B + k */
    uint32_t nnodes;
    AP_VEC(uint32_t) edge_from;
    AP_VEC(uint32_t) edge_to;
} judge;

/* Position of the only (kind, wire, k) in the list of stage s; AP_NONE: none or several. */
static inline uint32_t place_of(const judge *j, uint32_t s, ap_act_kind kind, uint32_t wire, int32_t k)
{
    uint32_t found = AP_NONE;
    for (uint32_t i = 0; i < j->list[s].n; i++) {
        const step *x = &j->list[s].at[i];
        if (x->kind != kind || x->k != k || (kind != AP_ACT_RUN && x->wire != wire))
            continue;
        if (found != AP_NONE)
            return AP_NONE;
        found = i;
    }
    return found;
}

static inline void edge(judge *j, uint32_t from, uint32_t to)
{
    ap_vec_push(j->arena, &j->edge_from, from);
    ap_vec_push(j->arena, &j->edge_to, to);
}

/* a, b: places of stage s, in order? */
static inline bool in_order(const judge *j, uint32_t s, ap_act_kind a, int32_t ka, ap_act_kind b, int32_t kb,
                            uint32_t wire)
{
    uint32_t x = place_of(j, s, a, wire, ka), y = place_of(j, s, b, wire, kb);
    return x != AP_NONE && y != AP_NONE && x < y;
}

static inline bool wire_is_ordered(judge *j, uint32_t i)
{
    const ap_wire *x = &j->w->wire[i];
    int32_t B = j->w->microbatches;
    for (int32_t k = 0; k < B; k++) {
        if (!in_order(j, x->from, AP_ACT_CLAIM, k, AP_ACT_RUN, k, i) ||
            !in_order(j, x->from, AP_ACT_RUN, k, AP_ACT_SEND, k, i) ||
            !in_order(j, x->to, AP_ACT_RECV, k, AP_ACT_RUN, k, i) ||
            !in_order(j, x->to, AP_ACT_RUN, k, AP_ACT_FREE, k, i))
            return false;
        if (k + 1 < B && (!in_order(j, x->from, AP_ACT_CLAIM, k, AP_ACT_CLAIM, k + 1, i) ||
                          !in_order(j, x->from, AP_ACT_SEND, k, AP_ACT_SEND, k + 1, i) ||
                          !in_order(j, x->to, AP_ACT_RECV, k, AP_ACT_RECV, k + 1, i) ||
                          !in_order(j, x->to, AP_ACT_FREE, k, AP_ACT_FREE, k + 1, i)))
            return false;
    }
    return true;
}

/* What each arrival waits for, and who waits for it. */
static inline void wire_edges(judge *j, uint32_t i)
{
    const ap_wire *x = &j->w->wire[i];
    int32_t B = j->w->microbatches;
    uint32_t at = j->base[j->w->nstages] + i * (uint32_t)B;
    for (int32_t k = 0; k < B; k++) {
        uint32_t arrival = at + (uint32_t)k;
        edge(j, j->base[x->from] + place_of(j, x->from, AP_ACT_SEND, i, k), arrival);
        edge(j, arrival, j->base[x->to] + place_of(j, x->to, AP_ACT_RECV, i, k));
        if (k > 0)
            edge(j, arrival - 1, arrival);
        if (place_of(j, x->to, AP_ACT_RECV, i, k) > 0) /* the laziest transport moves it then */
            edge(j, j->base[x->to] + place_of(j, x->to, AP_ACT_RECV, i, k) - 1, arrival);
        if (k >= x->to_depth)
            edge(j, j->base[x->to] + place_of(j, x->to, AP_ACT_FREE, i, k - x->to_depth), arrival);
        if (k >= x->from_depth)
            edge(j, arrival - (uint32_t)x->from_depth, j->base[x->from] + place_of(j, x->from, AP_ACT_CLAIM, i, k));
    }
}

static inline bool has_no_cycle(const judge *j)
{
    uint32_t *wanting = AP_NEW_ARRAY(j->arena, uint32_t, j->nnodes),
             *head = AP_NEW_ARRAY(j->arena, uint32_t, j->nnodes);
    uint32_t *next = AP_NEW_ARRAY(j->arena, uint32_t, j->edge_to.len),
             *stack = AP_NEW_ARRAY(j->arena, uint32_t, j->nnodes);
    uint32_t n = 0, done = 0;
    for (uint32_t e = 0; e < j->edge_to.len; e++) {
        wanting[j->edge_to.at[e]]++;
        next[e] = head[j->edge_from.at[e]];
        head[j->edge_from.at[e]] = e + 1;
    }
    for (uint32_t i = 0; i < j->nnodes; i++)
        if (!wanting[i])
            stack[n++] = i;
    while (n) {
        uint32_t i = stack[--n];
        done++;
        for (uint32_t e = head[i]; e; e = next[e - 1])
            if (--wanting[j->edge_to.at[e - 1]] == 0)
                stack[n++] = j->edge_to.at[e - 1];
    }
    return done == j->nnodes;
}

static inline verdict judge_by_rules(const ap_wiring *w, const ap_list *lists)
{
    ap_arena arena;
    ap_arena_init(&arena, NULL, NULL);
    judge j = {.w = w, .arena = &arena, .list = AP_NEW_ARRAY(&arena, steps, w->nstages)};
    j.base = AP_NEW_ARRAY(&arena, uint32_t, w->nstages + 1);
    bool good = true;
    uint32_t B = (uint32_t)w->microbatches;
    for (uint32_t s = 0; s < w->nstages; s++) {
        j.list[s] = unroll(&arena, &lists[s]);
        j.base[s + 1] = j.base[s] + j.list[s].n;
        uint32_t ends = 0;
        for (uint32_t i = 0; i < w->nwires; i++)
            ends += (w->wire[i].from == s) + (w->wire[i].to == s);
        good = good && j.list[s].n == B * (1 + 2 * ends);
        for (uint32_t i = 0; i < j.list[s].n && good; i++) {
            const step *x = &j.list[s].at[i];
            good = x->kind == AP_ACT_RUN || x->wire < w->nwires;
            if (good && x->kind != AP_ACT_RUN)
                good = (x->kind == AP_ACT_CLAIM || x->kind == AP_ACT_SEND ? w->wire[x->wire].from
                                                                          : w->wire[x->wire].to) == s;
            if (good && i)
                edge(&j, j.base[s] + i - 1, j.base[s] + i);
        }
        for (int32_t k = 0; k < w->microbatches && good; k++)
            good = place_of(&j, s, AP_ACT_RUN, 0, k) != AP_NONE &&
                   (k == 0 || in_order(&j, s, AP_ACT_RUN, k - 1, AP_ACT_RUN, k, 0));
    }
    j.nnodes = j.base[w->nstages] + w->nwires * B;
    for (uint32_t i = 0; i < w->nwires && good; i++)
        good = wire_is_ordered(&j, i);
    for (uint32_t i = 0; i < w->nwires && good; i++)
        wire_edges(&j, i);
    good = good && has_no_cycle(&j);
    ap_arena_deinit(&arena);
    return good ? GOOD : FAULT;
}

/* ---- explorer ---- */

enum { MAX_STAGES = 4, MAX_WIRES = 5, MAX_DEPTH = 4, MAX_STATES = 1 << 15 };
enum { EMPTY, CLAIMED, WRITTEN, HELD }; /* of a slot; far ends: EMPTY, CLAIMED while it fills, WRITTEN, HELD */

typedef struct cell {
    uint8_t what, k;
} cell;

/* Everything that the future depends on. A wire has slots of its own at its near end, although others may leave the
 * same result: they are claimed and sent one by one, so it is the same. */
typedef struct world {
    uint8_t at[MAX_STAGES], ran[MAX_STAGES];
    uint8_t sent[MAX_WIRES], begun[MAX_WIRES], arrived[MAX_WIRES], flying[MAX_WIRES];
    uint8_t order[MAX_WIRES][8]; /* microbatches in the order in which they were sent */
    cell near[MAX_WIRES][MAX_DEPTH], far[MAX_WIRES][MAX_DEPTH];
} world;

typedef struct explorer {
    const ap_wiring *w;
    bool lazy; /* transfers begin when the receiver waits for them */
    steps list[MAX_STAGES];
    world *seen, *stack;
    uint32_t *table; /* 1 + index in seen */
    uint32_t nseen, nstack;
} explorer;

static inline bool meet(explorer *e, const world *x)
{
    uint64_t h = 1469598103934665603u;
    for (size_t i = 0; i < sizeof *x; i++)
        h = (h ^ ((const uint8_t *)x)[i]) * 1099511628211u;
    for (uint64_t i = h ^ (h >> 29);; i++) {
        uint32_t *t = &e->table[i % (2 * MAX_STATES)];
        if (*t && memcmp(&e->seen[*t - 1], x, sizeof *x) == 0)
            return true;
        if (*t)
            continue;
        if (e->nseen == MAX_STATES)
            return false;
        e->seen[e->nseen] = *x;
        *t = ++e->nseen;
        e->stack[e->nstack++] = *x;
        return true;
    }
}

/* 1: done, 0: must wait, -1: a fault. */
static inline int run_step(const explorer *e, world *x, uint32_t s, const step *a)
{
    for (uint32_t i = 0; i < e->w->nwires; i++) {
        const ap_wire *v = &e->w->wire[i];
        cell *near = &x->near[i][a->k % v->from_depth], *far = &x->far[i][a->k % v->to_depth];
        if (v->to == s && (far->what != HELD || far->k != a->k))
            return -1;
        if (v->from == s && (near->what != CLAIMED || near->k != a->k))
            return -1;
        if (v->from == s)
            near->what = WRITTEN;
    }
    return x->ran[s]++ == a->k ? 1 : -1;
}

static inline int do_step(const explorer *e, world *x, uint32_t s, const step *a)
{
    if (a->k < 0 || a->k >= e->w->microbatches)
        return -1;
    if (a->kind == AP_ACT_RUN)
        return run_step(e, x, s, a);
    const ap_wire *v = &e->w->wire[a->wire];
    cell *near = &x->near[a->wire][a->k % v->from_depth], *far = &x->far[a->wire][a->k % v->to_depth];
    uint8_t k = (uint8_t)a->k;
    switch (a->kind) {
    case AP_ACT_CLAIM:
        if (near->what != EMPTY)
            return near->what == WRITTEN && near->k < k ? 0 : -1;
        *near = (cell){CLAIMED, k};
        return 1;
    case AP_ACT_SEND:
        if (near->what != WRITTEN || near->k != k || x->sent[a->wire] == 8)
            return -1;
        for (int i = 0; i < x->sent[a->wire]; i++)
            if (x->order[a->wire][i] == k)
                return -1;
        x->order[a->wire][x->sent[a->wire]++] = k;
        return 1;
    case AP_ACT_RECV:
        if (far->what == EMPTY || far->what == CLAIMED)
            return 0;
        if (far->what == HELD)
            return far->k < k ? 0 : -1;
        if (far->k != k)
            return -1;
        far->what = HELD;
        return 1;
    default:
        if (far->what != HELD || far->k != k || x->ran[s] <= k)
            return -1;
        *far = (cell){0};
        return 1;
    }
}

/* A transfer begins when its slot is there, and ends at any time after that. */
static inline int move_wire(const explorer *e, world *x, uint32_t i)
{
    const ap_wire *v = &e->w->wire[i];
    if (x->flying[i]) {
        uint8_t k = x->order[i][x->arrived[i]];
        cell *near = &x->near[i][k % v->from_depth];
        x->far[i][x->arrived[i] % v->to_depth] = (cell){WRITTEN, k};
        x->arrived[i]++;
        x->flying[i] = 0;
        if (near->what != WRITTEN || near->k != k)
            return -1;
        *near = (cell){0};
        return 1;
    }
    cell *far = &x->far[i][x->begun[i] % v->to_depth];
    const steps *to = &e->list[v->to];
    const step *at = x->at[v->to] < to->n ? &to->at[x->at[v->to]] : NULL;
    bool awaited = at && at->kind == AP_ACT_RECV && at->wire == i;
    if (x->begun[i] == x->sent[i] || far->what != EMPTY || (e->lazy && !awaited))
        return 0;
    far->what = CLAIMED;
    x->begun[i]++;
    x->flying[i] = 1;
    return 1;
}

static inline bool at_rest(const explorer *e, const world *x)
{
    for (uint32_t s = 0; s < e->w->nstages; s++)
        if (x->at[s] != e->list[s].n || x->ran[s] != e->w->microbatches)
            return false;
    for (uint32_t i = 0; i < e->w->nwires; i++) {
        if (x->arrived[i] != e->w->microbatches)
            return false;
        for (int d = 0; d < MAX_DEPTH; d++)
            if (x->near[i][d].what != EMPTY || x->far[i][d].what != EMPTY)
                return false;
    }
    return true;
}

static inline verdict explore_from(explorer *e)
{
    meet(e, &(world){0});
    while (e->nstack) {
        world now = e->stack[--e->nstack];
        bool any = false;
        for (uint32_t m = 0; m < e->w->nstages + e->w->nwires; m++) {
            world x = now;
            bool rank = m < e->w->nstages;
            if (rank && x.at[m] == e->list[m].n)
                continue;
            int done = rank ? do_step(e, &x, m, &e->list[m].at[x.at[m]]) : move_wire(e, &x, m - e->w->nstages);
            if (done < 0)
                return FAULT;
            if (!done)
                continue;
            any = true;
            if (rank)
                x.at[m]++;
            if (!meet(e, &x))
                return TOO_MANY;
        }
        if (!any && !at_rest(e, &now))
            return FAULT;
    }
    return GOOD;
}

/* For at most MAX_STAGES stages, MAX_WIRES wires, MAX_DEPTH slots, 8 microbatches; each act of the right stage. */
static inline verdict judge_by_exploring(const ap_wiring *w, const ap_list *lists)
{
    ap_arena arena;
    ap_arena_init(&arena, NULL, NULL);
    explorer *e = AP_NEW(&arena, explorer);
    e->w = w;
    e->seen = malloc(MAX_STATES * sizeof *e->seen);
    e->stack = malloc(MAX_STATES * sizeof *e->stack);
    e->table = calloc((size_t)2 * MAX_STATES, sizeof *e->table);
    for (uint32_t s = 0; s < w->nstages; s++)
        e->list[s] = unroll(&arena, &lists[s]);
    verdict v = explore_from(e);
    if (v == GOOD) {
        memset(e->table, 0, (size_t)2 * MAX_STATES * sizeof *e->table);
        e->nseen = e->nstack = 0;
        e->lazy = true;
        v = explore_from(e);
    }
    free(e->seen);
    free(e->stack);
    free(e->table);
    ap_arena_deinit(&arena);
    return v;
}

#endif
