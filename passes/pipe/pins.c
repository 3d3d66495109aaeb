/* Which nodes the user has put into which stages. */
#include "passes/pipe/pins.h"

#include "ir/op.h"
#include "passes/pipe/carve.h"

#include <fnmatch.h>
#include <inttypes.h>

/* The pins of a node: one of them, and one that contradicts it; AP_NONE. */
typedef struct pinned {
    uint32_t pin, other;
} pinned;

/* Where a pin, by the name of a result, yields to one by the name of the node. */
typedef struct beaten {
    ap_loc loc;
    uint32_t pin;
} beaten;

typedef struct finder {
    const ap_module *m;
    const ap_pins *pins;
    uint32_t n; /* nodes of the block without `ret` */
    const ap_node *node;
    const bool *data; /* per value: does it depend on an input? */
    bool *used;       /* per pin: it has matched */
    beaten *beaten;   /* per pin */
    pinned *at;       /* per position; {AP_NONE, AP_NONE} for free ones */
    bool *is_free;    /* per position */
} finder;

static const pinned NOWHERE = {AP_NONE, AP_NONE};

/* ---- matching ---- */

static bool name_matches(const ap_ctx *ctx, const char *pattern, ap_name name)
{
    return name && fnmatch(pattern, ap_name_str(ctx, name), 0) == 0;
}

static bool result_matches(const finder *f, uint32_t pin, const ap_node_info *node)
{
    bool any = false;
    for (uint32_t j = 0; j < node->nout && !any; j++)
        any = name_matches(f->m->ctx, f->pins->node[pin].pattern, ap_value_at(f->m, node->out[j])->name);
    return any;
}

static pinned both(const finder *f, pinned a, pinned b)
{
    if (a.other != AP_NONE || b.pin == AP_NONE)
        return a;
    if (a.pin == AP_NONE || b.other != AP_NONE)
        return b;
    if (f->pins->node[a.pin].stage != f->pins->node[b.pin].stage)
        a.other = b.pin;
    return a;
}

/* A result's name may be that of an equal node which this one stands for: it yields to that of the node. */
static pinned match_one(const finder *f, const ap_node_info *node)
{
    const ap_node_pin *pin = f->pins->node;
    pinned by_node = NOWHERE, by_value = NOWHERE;
    ap_name name = ap_loc_get(f->m->ctx, node->loc).node;
    for (uint32_t i = 0; i < f->pins->nnodes; i++) {
        if (name_matches(f->m->ctx, pin[i].pattern, name))
            by_node = both(f, by_node, (pinned){i, AP_NONE});
        else if (result_matches(f, i, node))
            by_value = both(f, by_value, (pinned){i, AP_NONE});
    }
    bool value = by_node.pin == AP_NONE;
    for (uint32_t i = 0; i < f->pins->nnodes; i++) {
        bool itself = name_matches(f->m->ctx, pin[i].pattern, name);
        if (!itself && !result_matches(f, i, node))
            continue;
        if (itself || value || pin[i].stage == pin[by_node.pin].stage)
            f->used[i] = true;
        else
            f->beaten[i] = (beaten){node->loc, by_node.pin};
    }
    return value ? by_value : by_node;
}

static bool is_part(const finder *f, const ap_node_info *node)
{
    bool data = false;
    for (uint32_t i = 0; i < node->nin; i++)
        data = data || f->data[node->in[i]];
    return data && !ap_op_get(node->op)->terminator;
}

static pinned match(const finder *f, ap_node n)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    const ap_block_info *body = node->body == AP_NONE ? NULL : ap_block_at(f->m, node->body);
    pinned all = match_one(f, node);
    for (uint32_t i = 0; body && i < body->nodes.len; i++)
        if (is_part(f, ap_node_at(f->m, body->nodes.at[i])))
            all = both(f, all, match(f, body->nodes.at[i]));
    return all;
}

static void find_data(const ap_module *m, const ap_block_info *b, bool *data)
{
    for (uint32_t k = 0; k < b->nodes.len; k++) {
        const ap_node_info *node = ap_node_at(m, b->nodes.at[k]);
        bool any = false;
        for (uint32_t i = 0; i < node->nin; i++)
            any = any || data[node->in[i]];
        if (node->body != AP_NONE)
            find_data(m, ap_block_at(m, node->body), data);
        for (uint32_t j = 0; j < node->nout; j++)
            data[node->out[j]] = any;
    }
}

static finder find(ap_arena *arena, const ap_module *m, const ap_pins *pins)
{
    const ap_func_info *func = &m->funcs.at[0];
    const ap_block_info *b = ap_block_at(m, func->body);
    finder f = {.m = m, .pins = pins, .n = b->nodes.len - 1, .node = b->nodes.at};
    const ap_carver *carver = ap_carver_create(arena, m);
    bool *data = AP_NEW_ARRAY(arena, bool, m->values.len);
    for (uint32_t i = 0; i < func->narguments; i++)
        data[func->argument[i]] = true;
    find_data(m, b, data);
    f.data = data;
    f.used = AP_NEW_ARRAY(arena, bool, pins->nnodes);
    f.beaten = AP_NEW_ARRAY(arena, beaten, pins->nnodes);
    f.at = AP_NEW_ARRAY(arena, pinned, f.n);
    f.is_free = AP_NEW_ARRAY(arena, bool, f.n);
    for (uint32_t k = 0; k < f.n; k++) {
        pinned p = match(&f, f.node[k]);
        f.is_free[k] = ap_carver_is_free(carver, k);
        f.at[k] = f.is_free[k] ? NOWHERE : p;
    }
    return f;
}

/* ---- is there a node for every stage? ---- */

/* The pinned nodes at positions `last` and `next` (AP_NONE: at the ends) that are too near to each other, if `missing`
 * is not AP_NONE; it is the stage without a node, or that of `next` when it comes before that of `last`. */
typedef struct gap {
    uint32_t last, next, missing;
} gap;

static uint32_t stage_at(const finder *f, uint32_t k)
{
    return f->at[k].pin == AP_NONE ? AP_NONE : f->pins->node[f->at[k].pin].stage;
}

/* Stages up to `stage` need as many nodes, of which `room` are there behind the pinned one at g.last. */
static bool has_room(const finder *f, gap *g, uint32_t room, uint32_t next, uint32_t stage)
{
    uint32_t begin = g->last == AP_NONE ? 0 : stage_at(f, g->last) + 1;
    g->next = next;
    if (g->last != AP_NONE && stage < begin - 1)
        g->missing = stage;
    else if (stage > begin && stage - begin > room)
        g->missing = begin + room;
    return g->missing == AP_NONE;
}

static gap find_gap(const finder *f, uint32_t nstages)
{
    gap g = {AP_NONE, AP_NONE, AP_NONE};
    uint32_t room = 0;
    for (uint32_t k = 0; k < f->n; k++) {
        uint32_t stage = stage_at(f, k);
        if (stage == AP_NONE) {
            room += !f->is_free[k];
            continue;
        }
        if (!has_room(f, &g, room, k, stage))
            return g;
        g.last = k;
        room = 0;
    }
    if (nstages > 0)
        has_room(f, &g, room, AP_NONE, nstages);
    return g;
}

static ap_status tell_gap(const finder *f, gap g, const char *file)
{
    ap_ctx *ctx = f->m->ctx;
    uint32_t k = g.next == AP_NONE ? g.last : g.next;
    const ap_node_pin *pin = &f->pins->node[f->at[k].pin];
    ap_loc loc = ap_node_at(f->m, f->node[k])->loc;
    if (g.next != AP_NONE && g.last != AP_NONE && g.missing == pin->stage)
        return ap_fail(ctx, AP_ERR_USAGE, loc,
                       "%s:%d: it is pinned to stage %" PRIu32 ", but line %d pins a node before it to stage %" PRIu32,
                       file, pin->line, pin->stage, f->pins->node[f->at[g.last].pin].line, stage_at(f, g.last));
    return ap_fail(ctx, AP_ERR_USAGE, loc,
                   "%s:%d: it is pinned to stage %" PRIu32 ", and no node is left for stage %" PRIu32
                   ": nodes are in stages in the order of the model",
                   file, pin->line, pin->stage, g.missing);
}

/* ---- all of it ---- */

static ap_status tell_two(const finder *f, ap_loc loc, uint32_t a, uint32_t b, const char *file)
{
    const ap_node_pin *x = &f->pins->node[a], *y = &f->pins->node[b];
    return ap_fail(f->m->ctx, AP_ERR_USAGE, loc,
                   "%s:%d: it is pinned to stage %" PRIu32 ", by line %d to stage %" PRIu32, file, y->line, y->stage,
                   x->line, x->stage);
}

static bool is_from(const finder *f, const ap_node_pin *pin, const ap_origin *o)
{
    const ap_ctx *ctx = f->m->ctx;
    return name_matches(ctx, pin->pattern, o->value) || name_matches(ctx, pin->pattern, ap_loc_get(ctx, o->loc).node);
}

/* Nothing that is left matches. What was computed on import is in no stage, so pins of it say nothing; what went into
 * other nodes is in theirs, and these are to be pinned. */
static ap_status tell_unmatched(const finder *f, const ap_node_pin *pin, const char *file)
{
    ap_ctx *ctx = f->m->ctx;
    bool constant = false;
    for (uint32_t i = 0; i < f->pins->norigins; i++) {
        const ap_origin *o = &f->pins->origin[i];
        if (!is_from(f, pin, o))
            continue;
        constant = constant || o->constant;
        if (!o->constant)
            return ap_fail(ctx, AP_ERR_USAGE, o->loc,
                           "%s:%d: no node that is left matches \"%s\": \"%s\", which it makes, went into other nodes",
                           file, pin->line, pin->pattern, ap_name_str(ctx, o->value));
    }
    return constant ? AP_OK
                    : ap_fail(ctx, AP_ERR_USAGE, 0, "%s:%d: no node matches \"%s\"", file, pin->line, pin->pattern);
}

static ap_status check_used(const finder *f, const char *file)
{
    for (uint32_t i = 0; i < f->pins->nnodes; i++) {
        if (f->used[i])
            continue;
        if (f->beaten[i].loc)
            return tell_two(f, f->beaten[i].loc, f->beaten[i].pin, i, file);
        AP_TRY(tell_unmatched(f, &f->pins->node[i], file));
    }
    return AP_OK;
}

ap_status ap_pipe_pins_find(ap_arena *arena, const ap_module *m, const ap_pins *pins, uint32_t nstages,
                            const char *file, const uint32_t **out)
{
    *out = NULL;
    if (pins->nnodes == 0)
        return AP_OK;
    finder f = find(arena, m, pins);
    uint32_t *stage = AP_NEW_ARRAY(arena, uint32_t, f.n + 1);
    AP_TRY(check_used(&f, file));
    for (uint32_t k = 0; k < f.n; k++) {
        if (f.at[k].other != AP_NONE)
            return tell_two(&f, ap_node_at(m, f.node[k])->loc, f.at[k].pin, f.at[k].other, file);
        stage[k] = stage_at(&f, k);
    }
    stage[f.n] = AP_NONE;
    gap g = find_gap(&f, nstages);
    *out = stage;
    return g.missing == AP_NONE || (g.last == AP_NONE && g.next == AP_NONE) ? AP_OK : tell_gap(&f, g, file);
}

/* Do parts of a composite come from several nodes of the model? */
static bool is_of_several(const finder *f, ap_node n)
{
    const ap_node_info *node = ap_node_at(f->m, n);
    const ap_block_info *body = node->body == AP_NONE ? NULL : ap_block_at(f->m, node->body);
    ap_name name = ap_loc_get(f->m->ctx, node->loc).node;
    for (uint32_t i = 0; body && i < body->nodes.len; i++) {
        const ap_node_info *part = ap_node_at(f->m, body->nodes.at[i]);
        if (is_part(f, part) && ap_loc_get(f->m->ctx, part->loc).node != name)
            return true;
    }
    return false;
}

uint32_t ap_pipe_pins_hindrances(ap_arena *arena, const ap_module *m, const ap_pins *pins, uint32_t nstages, bool **out)
{
    finder f = find(arena, m, pins);
    uint32_t n = 0;
    *out = AP_NEW_ARRAY(arena, bool, f.n);
    for (uint32_t k = 0; k < f.n; k++) {
        (*out)[k] = f.at[k].other != AP_NONE && is_of_several(&f, f.node[k]);
        n += (*out)[k];
    }
    if (n > 0 || find_gap(&f, nstages).missing == AP_NONE)
        return n;
    for (uint32_t k = 0; k < f.n; k++) {
        (*out)[k] = is_of_several(&f, f.node[k]);
        n += (*out)[k];
    }
    return n;
}
