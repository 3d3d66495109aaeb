/* The price of a planned module, from its types alone. This shares nothing with the problem's construction
 * but the cost functions, and is what a plan's figures are taken from: it walks the nodes in order, prices
 * kernels by their types and reshards by their paths, and keeps account of the buffers that are alive.
 *
 *     buffer    a node's result has one of its own; a view's, and a reshard's that only slices, lies in the
 *               operand's; arguments lie in the caller's memory; symbols, constants and slots are held all the time
 *     alive     from the node that fills it to the last node that reads it, both included */
#include "ir/op.h"
#include "passes/inner.h"
#include "passes/plan.h"
#include "passes/reshard.h"
#include "passes/room.h"

typedef struct account {
    ap_ctx *ctx;
    ap_module *m;
    const ap_cluster *c;
    ap_resharder *resharder;
    ap_rooms rooms;
    const bool *filled; /* [value]: ap_filled_find */
    const ap_block_info *block;
    ap_value *buffer;   /* per value: the value that owns its buffer; AP_NONE: none to count */
    int64_t *bytes;     /* per value: of the buffer it owns */
    uint32_t *last;     /* per value: position of the last node that reads its buffer */
    int64_t *transient; /* per position: held only while that node runs, beyond its result */
    double flops, split_flops;
    ap_plan_result *out;
} account;

static int64_t buffer_bytes(const account *a, ap_value v)
{
    ap_type_info t = ap_type_get(a->ctx, ap_value_type(a->m, v));
    return ap_align_bytes(ap_local_bytes(a->m, t.dtype, t.shape, t.sharding));
}

static ap_strategy read_strategy(const account *a, ap_node n)
{
    const ap_node_info *node = ap_node_at(a->m, n);
    ap_strategy s = {AP_NEW_ARRAY(&a->ctx->scratch, ap_sharding, node->nin),
                     AP_NEW_ARRAY(&a->ctx->scratch, ap_sharding, node->nout)};
    for (uint32_t i = 0; i < node->nin; i++)
        s.operand[i] = ap_type_get(a->ctx, ap_value_type(a->m, node->in[i])).sharding;
    for (uint32_t i = 0; i < node->nout; i++)
        s.result[i] = ap_type_get(a->ctx, ap_value_type(a->m, node->out[i])).sharding;
    return s;
}

/* How much of the matrix products is divided by all devices; bodies included. */
static void count_split(account *a, ap_node n)
{
    const ap_node_info *node = ap_node_at(a->m, n);
    if (node->body != AP_NONE) {
        const ap_block_info *body = ap_block_at(a->m, node->body);
        for (uint32_t i = 0; i < body->nodes.len; i++)
            count_split(a, body->nodes.at[i]);
        return;
    }
    if (!ap_node_is_product(a->m, n))
        return;
    ap_strategy s = read_strategy(a, n);
    double flops = (double)ap_node_flops(a->m, n);
    a->flops += flops;
    if (ap_strategy_splits_all(a->m, n, &s))
        a->split_flops += flops;
}

static ap_status price_reshard(account *a, uint32_t at, const ap_node_info *node)
{
    ap_type_info from = ap_type_get(a->ctx, ap_value_type(a->m, node->in[0]));
    ap_type_info to = ap_type_get(a->ctx, ap_value_type(a->m, node->out[0]));
    const ap_reshard_path *path;
    if (!ap_reshard_find(a->resharder, from.dtype, from.shape, from.sharding, to.sharding, &path))
        return ap_fail(a->ctx, AP_ERR_BUG, node->loc, "a reshard has no path");
    a->out->communication_ps = ap_sat_add(a->out->communication_ps, path->cost);
    ap_value r = node->out[0];
    if (path->view) {
        a->buffer[r] = a->buffer[node->in[0]];
        return AP_OK;
    }
    a->buffer[r] = r;
    a->bytes[r] = path->held;
    a->transient[at] = path->transient - path->held;
    return AP_OK;
}

/* The reshards inside a composite, which are its cuts. */
static void list_inner(const account *a, ap_block block, uint32_t *n, ap_inner *out)
{
    const ap_block_info *b = ap_block_at(a->m, block);
    for (uint32_t i = 0; i < b->nodes.len; i++) {
        const ap_node_info *node = ap_node_at(a->m, b->nodes.at[i]);
        if (node->body != AP_NONE)
            list_inner(a, node->body, n, out);
        if (!ap_op_get(node->op)->planned)
            continue;
        if (out)
            out[*n] = (ap_inner){node->in[0], ap_type_get(a->ctx, ap_value_type(a->m, node->in[0])).sharding,
                                 ap_type_get(a->ctx, ap_value_type(a->m, node->out[0])).sharding};
        (*n)++;
    }
}

static ap_status price_body(account *a, uint32_t at, ap_node n)
{
    ap_rule_body body = {0};
    ap_inner_price price;
    uint32_t filled = 0;
    if (ap_inner_may_hold(a->m, n))
        a->transient[at] = ap_inner_held_bytes(a->m, n, &body);
    list_inner(a, ap_node_at(a->m, n)->body, &body.ninner, NULL);
    if (body.ninner == 0)
        return AP_OK;
    body.inner = AP_NEW_ARRAY(&a->ctx->scratch, ap_inner, body.ninner);
    list_inner(a, ap_node_at(a->m, n)->body, &filled, body.inner);
    if (!ap_inner_price_get(a->resharder, &a->ctx->scratch, a->m, n, &body, &price))
        return ap_fail(a->ctx, AP_ERR_BUG, ap_node_at(a->m, n)->loc, "a reshard inside a composite has no path");
    a->out->compute_ps = ap_sat_add(a->out->compute_ps, ap_sat_mul(body.ninner, a->c->launch_ps));
    a->out->communication_ps = ap_sat_add(a->out->communication_ps, price.communication_ps);
    a->transient[at] = ap_sat_add(a->transient[at], price.bytes);
    return AP_OK;
}

/* What the node would have to copy if the operand is read as a slice, itself or by a view of it. */
static int64_t sliced_bytes(const account *a, ap_node n, uint32_t slot)
{
    ap_value v = ap_node_at(a->m, n)->in[slot];
    for (bool direct = true; ap_value_at(a->m, v)->kind == AP_VALUE_RESULT; direct = false) {
        const ap_node_info *def = ap_node_at(a->m, ap_value_at(a->m, v)->def);
        ap_value from = def->nin ? def->in[0] : AP_NONE;
        if (ap_op_get(def->op)->planned) {
            if (a->buffer[v] != a->buffer[from])
                return 0;
            ap_sharding to = ap_type_get(a->ctx, ap_value_type(a->m, v)).sharding;
            ap_sharding was = ap_type_get(a->ctx, ap_value_type(a->m, from)).sharding;
            return direct ? ap_room_slice_bytes(&a->rooms, a->m, n, slot, was, to)
                          : buffer_bytes(a, ap_node_at(a->m, n)->in[slot]);
        }
        if (ap_op_get(def->op)->lower != AP_LOWER_VIEW)
            return 0;
        v = from;
    }
    return 0;
}

/* Copies that a convolution and what follows it may ask for. */
static void price_room(account *a, uint32_t at, ap_node n, const ap_strategy *s)
{
    if (!a->rooms.room)
        return;
    int64_t bytes = ap_room_bytes(&a->rooms, a->m, n, s);
    for (uint32_t i = 0; i < ap_node_at(a->m, n)->nin && i < 32; i++) {
        if (a->rooms.slots[n] >> i & 1)
            bytes = ap_sat_add(bytes, sliced_bytes(a, n, i));
    }
    a->transient[at] = ap_sat_add(a->transient[at], bytes);
}

static ap_status price_node(account *a, uint32_t at, ap_node n)
{
    const ap_node_info *node = ap_node_at(a->m, n);
    const ap_op_info *op = ap_op_get(node->op);
    if (op->planned)
        return price_reshard(a, at, node);
    if (op->terminator)
        return AP_OK;
    ap_rule rule;
    ap_assign assign;
    ap_rule_get(a->m, n, &a->ctx->scratch, &rule);
    if (!ap_rule_read(a->m, n, &rule, 0, &assign))
        return ap_fail(a->ctx, AP_ERR_BUG, node->loc, "the types of a %s satisfy no strategy of its rule", op->name);
    ap_strategy s = read_strategy(a, n);
    a->out->compute_ps = ap_sat_add(a->out->compute_ps, ap_cost_node(a->c, a->m, n, &s));
    count_split(a, n);
    if (node->body != AP_NONE)
        AP_TRY(price_body(a, at, n));
    price_room(a, at, n, &s);
    for (uint32_t j = 0; j < node->nout; j++) {
        ap_value r = node->out[j];
        a->buffer[r] = op->shares_buffer ? a->buffer[node->in[0]] : r;
        if (op->shares_buffer)
            continue;
        a->bytes[r] = buffer_bytes(a, r);
        ap_holding holding = ap_node_holding(a->m, n);
        if (holding == AP_HELD_IN_BUFFER || (holding == AP_HELD_NOWHERE && a->filled[r]))
            continue;
        a->buffer[r] = AP_NONE;
        if (holding == AP_HELD_AS_PARAM)
            a->out->param_bytes = ap_sat_add(a->out->param_bytes, a->bytes[r]);
    }
    return AP_OK;
}

static void read_buffers(account *a, uint32_t at, ap_node n)
{
    const ap_node_info *node = ap_node_at(a->m, n);
    for (uint32_t i = 0; i < node->nin; i++)
        if (a->buffer[node->in[i]] != AP_NONE)
            a->last[a->buffer[node->in[i]]] = at;
    for (uint32_t j = 0; j < node->nout; j++)
        if (a->buffer[node->out[j]] == node->out[j])
            a->last[node->out[j]] = at;
}

static void find_peak(account *a)
{
    int64_t alive = ap_sat_add(a->out->param_bytes, a->out->slot_bytes);
    a->out->peak_bytes = alive;
    for (uint32_t at = 0; at < a->block->nodes.len; at++) {
        const ap_node_info *node = ap_node_at(a->m, a->block->nodes.at[at]);
        for (uint32_t j = 0; j < node->nout; j++)
            if (a->buffer[node->out[j]] == node->out[j])
                alive = ap_sat_add(alive, a->bytes[node->out[j]]);
        a->out->peak_bytes = ap_max_i64(a->out->peak_bytes, ap_sat_add(alive, a->transient[at]));
        /* Buffers that end here: those of operands and results whose last reader this is, each once. */
        for (uint32_t i = 0; i < node->nin + node->nout; i++) {
            ap_value b = a->buffer[i < node->nin ? node->in[i] : node->out[i - node->nin]];
            if (b == AP_NONE || a->last[b] != at)
                continue;
            alive -= a->bytes[b];
            a->last[b] = AP_NONE;
        }
    }
}

static account open_account(ap_ctx *ctx, ap_module *m, const ap_cluster *c, ap_plan_result *out)
{
    ap_arena *arena = &ctx->scratch;
    uint32_t n = m->values.len;
    account a = {.ctx = ctx, .m = m, .c = c, .out = out, .resharder = ap_resharder_create(arena, m, c)};
    a.block = ap_block_at(m, m->funcs.at[0].body);
    a.buffer = AP_NEW_ARRAY(arena, ap_value, n);
    a.bytes = AP_NEW_ARRAY(arena, int64_t, n);
    a.last = AP_NEW_ARRAY(arena, uint32_t, n);
    a.transient = AP_NEW_ARRAY(arena, int64_t, a.block->nodes.len);
    for (uint32_t v = 0; v < n; v++)
        a.buffer[v] = AP_NONE;
    return a;
}

static void add_symbol(account *a, ap_value v)
{
    ap_sharding s = ap_type_get(a->ctx, ap_value_type(a->m, v)).sharding;
    a->out->param_bytes = ap_sat_add(a->out->param_bytes, buffer_bytes(a, v));
    if (ap_sharding_split_mask(ap_sharding_get(a->ctx, s)) == 0)
        a->out->communication_ps = ap_sat_add(a->out->communication_ps, ap_cost_replicated(a->c, &a->m->meshes.at[0]));
}

static void add_slots(account *a, const ap_plan_slots *slots)
{
    const ap_func_info *f = &a->m->funcs.at[0];
    ap_slot_price sum = {0};
    for (uint32_t i = 0; i < f->narguments; i++) {
        const ap_value_info *v = ap_value_at(a->m, f->argument[i]);
        if (f->argument_slot[i])
            ap_slot_price_add(slots, a->m, v->name, false, v->type, &sum);
    }
    for (uint32_t i = 0; i < f->nresults; i++)
        if (f->result_slot[i])
            ap_slot_price_add(slots, a->m, f->result_name[i], true, f->result[i], &sum);
    a->out->slot_bytes = sum.bytes;
    a->out->transfer_ps = sum.ps;
}

ap_status ap_plan_evaluate(ap_ctx *ctx, ap_module *m, const ap_cluster *c, ap_plan_result *out)
{
    return ap_plan_evaluate_slots(ctx, m, c, &(ap_plan_slots){0}, out);
}

ap_status ap_plan_evaluate_slots(ap_ctx *ctx, ap_module *m, const ap_cluster *c, const ap_plan_slots *slots,
                                 ap_plan_result *out)
{
    return ap_plan_evaluate_nodes(ctx, m, c, slots, NULL, out);
}

ap_status ap_plan_evaluate_nodes(ap_ctx *ctx, ap_module *m, const ap_cluster *c, const ap_plan_slots *slots,
                                 const ap_plan_watch *watch, ap_plan_result *out)
{
    *out = (ap_plan_result){.proof = "none"};
    account a = open_account(ctx, m, c, out);
    AP_TRY(ap_rooms_find(ctx, m, &a.rooms));
    a.filled = ap_filled_find(m, &ctx->scratch);
    for (uint32_t s = 0; s < m->symbols.len; s++)
        if (m->symbols.at[s].kind != AP_SYMBOL_KIND_COUNT)
            add_symbol(&a, m->symbols.at[s].value);
    for (uint32_t at = 0; at < a.block->nodes.len; at++) {
        int64_t compute = out->compute_ps, communication = out->communication_ps;
        AP_TRY(price_node(&a, at, a.block->nodes.at[at]));
        if (watch)
            watch->see(watch->user, a.block->nodes.at[at], out->compute_ps - compute,
                       out->communication_ps - communication);
        read_buffers(&a, at, a.block->nodes.at[at]);
    }
    add_slots(&a, slots);
    find_peak(&a);
    out->cost_ps = ap_sat_add(ap_sat_add(out->compute_ps, out->communication_ps), out->transfer_ps);
    out->flops = a.flops;
    out->sharded_flops_fraction = a.flops > 0 ? a.split_flops / a.flops : 1.0;
    return AP_OK;
}
