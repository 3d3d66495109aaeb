/* The problem's variables and prices (DESIGN §7). One variable per holder and per step, one edge wherever a
 * sharding may have to change:
 *
 *     step -> holder   made -> kept, paid once however often the value is read
 *     holder -> step   kept -> read; 0 when equal or a local slice; the same sharding wanted by two operands of
 *                      one node is made once
 *     holder -> view   a view reads in place whenever it can read the sharding kept, so that where its buffer
 *                      lies depends on one label alone; only otherwise it reads a reshard
 *
 * A value never becomes a slice of what was made when it could be kept as made: its uses slice for nothing. */
#include "passes/plan_problem.h"

#include "passes/inner.h"

#include <assert.h>
#include <string.h>

const ap_reshard_path *ap_planning_path(ap_planning *p, ap_value v, ap_sharding from, ap_sharding to)
{
    ap_type_info t = ap_type_get(p->ctx, ap_value_type(p->m, v));
    const ap_reshard_path *path;
    return ap_reshard_find(p->resharder, t.dtype, t.shape, from, to, &path) ? path : NULL;
}

const char *ap_planning_name(const ap_planning *p, ap_value v)
{
    const ap_value_info *info = ap_value_at(p->m, v);
    if (info->name)
        return ap_name_str(p->ctx, info->name);
    if (info->kind == AP_VALUE_RESULT) {
        const ap_node_info *node = ap_node_at(p->m, info->def);
        ap_name name = ap_loc_get(p->ctx, node->loc).node;
        return name ? ap_name_str(p->ctx, name) : ap_op_get(node->op)->name;
    }
    if (info->kind == AP_VALUE_SYMBOL)
        return ap_name_str(p->ctx, p->m->symbols.at[info->def].name);
    return "argument";
}

static uint32_t add_var(ap_planning *p, uint32_t n, const int64_t *cost)
{
    ap_vec_push(p->arena, &p->var_n, n);
    ap_vec_push(p->arena, &p->var_cost, cost);
    return p->var_n.len - 1;
}

static void price_holder(ap_planning *p, ap_plan_holder *h)
{
    ap_type_info t = ap_type_get(p->ctx, ap_value_type(p->m, h->value));
    h->bytes = AP_NEW_ARRAY(p->arena, int64_t, h->n);
    for (uint32_t l = 0; l < h->n; l++)
        h->bytes[l] = ap_align_bytes(ap_local_bytes(p->m, t.dtype, t.shape, h->kept[l]));
    /* of a view the strategies are the labels, and its step has the variable */
    int64_t *cost = h->view ? p->steps.at[h->step].cost : AP_NEW_ARRAY(p->arena, int64_t, h->n);
    ap_slot_price slots;
    for (uint32_t l = 0; l < h->n && ap_planning_slots(p, h->value, h->kept[l], &slots); l++)
        cost[l] = ap_sat_add(cost[l], slots.ps);
    if (h->view)
        return;
    bool symbol = ap_value_at(p->m, h->value)->kind == AP_VALUE_SYMBOL;
    for (uint32_t l = 0; l < h->n && symbol; l++)
        if (ap_sharding_split_mask(ap_sharding_get(p->ctx, h->kept[l])) == 0)
            cost[l] = ap_cost_replicated(&p->opt->cluster, &p->m->meshes.at[p->mesh]);
    h->var = add_var(p, h->n, cost);
}

static bool is_cut(const ap_plan_step *s, uint32_t strategy)
{
    for (int a = 0; a < AP_MAX_AXES; a++) {
        int8_t l = s->assign[strategy].axis[a].letter;
        if (l != AP_RULE_NONE && s->rule.kind[l] == AP_LETTER_INNER)
            return true;
    }
    return false;
}

static void add_inner_bytes(ap_planning *p, ap_plan_step *s, uint32_t strategy, int64_t bytes)
{
    if (bytes && !s->inner_bytes)
        s->inner_bytes = AP_NEW_ARRAY(p->arena, int64_t, s->n);
    if (bytes)
        s->inner_bytes[strategy] = ap_sat_add(s->inner_bytes[strategy], bytes);
}

/* What a composite holds that is not cut. */
static void find_held(ap_planning *p, ap_plan_step *s, uint32_t strategy)
{
    ap_rule_body body;
    bool ok = ap_rule_apply_body(p->m, s->node, p->mesh, &s->assign[strategy], p->arena, &body);
    assert(ok); /* as the rule does */
    if (ok)
        add_inner_bytes(p, s, strategy, ap_inner_held_bytes(p->m, s->node, &body));
}

/* Collectives inside a composite: launches of the pieces, exchanges, memory. */
static void price_inner(ap_planning *p, ap_plan_step *s, uint32_t strategy)
{
    ap_rule_body body;
    ap_inner_price price;
    if (!is_cut(s, strategy))
        return;
    bool ok = ap_rule_apply_body(p->m, s->node, p->mesh, &s->assign[strategy], p->arena, &body) &&
              ap_inner_price_get(p->resharder, p->arena, p->m, s->node, &body, &price);
    assert(ok); /* the rule allows it, and a partial value can always be completed */
    if (!ok)
        return;
    add_inner_bytes(p, s, strategy, price.bytes);
    int64_t launches = ap_sat_mul(body.ninner, p->opt->cluster.launch_ps);
    s->cost[strategy] = ap_sat_add(s->cost[strategy], ap_sat_add(launches, price.communication_ps));
}

/* Variables in text order: symbols, arguments, then each node followed by its results. */
static void add_variables(ap_planning *p)
{
    uint32_t h = 0;
    for (; h < p->holders.len && p->holders.at[h].step == AP_NONE; h++)
        price_holder(p, &p->holders.at[h]);
    for (uint32_t k = 0; k < p->steps.len; k++) {
        ap_plan_step *s = &p->steps.at[k];
        const ap_node_info *node = ap_node_at(p->m, s->node);
        if (s->n > 0 && (node->nin > 0 || node->nout != 1)) {
            s->cost = AP_NEW_ARRAY(p->arena, int64_t, s->n);
            bool holds = ap_inner_may_hold(p->m, s->node);
            for (uint32_t i = 0; i < s->n; i++) {
                s->cost[i] = ap_cost_node(&p->opt->cluster, p->m, s->node, &s->strategy[i]);
                /* copies that a convolution may ask for, whatever its operands are read from */
                add_inner_bytes(p, s, i, ap_room_bytes(&p->rooms, p->m, s->node, &s->strategy[i]));
                if (holds)
                    find_held(p, s, i);
                price_inner(p, s, i);
            }
            s->var = add_var(p, s->n, s->cost);
            p->nstrategies += s->n;
        }
        for (; h < p->holders.len && p->holders.at[h].step == k; h++) {
            price_holder(p, &p->holders.at[h]);
            if (p->holders.at[h].view)
                p->holders.at[h].var = s->var;
        }
    }
}

static int64_t *add_edge(ap_planning *p, ap_plan_edge e, uint32_t u, uint32_t v)
{
    int64_t *cost = AP_NEW_ARRAY(p->arena, int64_t, (size_t)p->var_n.at[u] * p->var_n.at[v]);
    ap_vec_push(p->arena, &p->edges, e);
    ap_vec_push(p->arena, &p->problem_edges, (ap_problem_edge){.u = u, .v = v, .cost = cost});
    return cost;
}

static bool holds_label(const ap_plan_holder *h, ap_sharding s)
{
    for (uint32_t l = 0; l < h->n; l++)
        if (h->kept[l] == s)
            return true;
    return false;
}

ap_plan_kinds ap_planning_kinds(ap_planning *p, const ap_plan_step *s, bool result, uint32_t slot)
{
    ap_plan_kinds k = {.at = AP_NEW_ARRAY(p->arena, ap_sharding, s->n), .of = AP_NEW_ARRAY(p->arena, uint32_t, s->n)};
    for (uint32_t i = 0; i < s->n; i++) {
        ap_sharding x = result ? s->strategy[i].result[slot] : s->strategy[i].operand[slot];
        uint32_t at = 0;
        while (at < k.n && k.at[at] != x)
            at++;
        k.of[i] = at;
        if (at == k.n)
            k.at[k.n++] = x;
    }
    return k;
}

const ap_reshard_path **ap_planning_paths(ap_planning *p, ap_value v, uint32_t nfrom, const ap_sharding *from,
                                          uint32_t nto, const ap_sharding *to)
{
    const ap_reshard_path **path = AP_NEW_ARRAY(p->arena, const ap_reshard_path *, (size_t)nfrom *nto);
    for (uint32_t i = 0; i < nfrom; i++)
        for (uint32_t k = 0; k < nto; k++)
            path[(size_t)i * nto + k] = ap_planning_path(p, v, from[i], to[k]);
    return path;
}

static int64_t keep_cost(const ap_plan_holder *h, ap_sharding made, const ap_reshard_path *path)
{
    if (!path)
        return AP_FORBIDDEN;
    if (path->nsteps == 0)
        return 0;
    const ap_step *last = &path->step[path->nsteps - 1];
    ap_sharding before = path->nsteps > 1 ? path->step[path->nsteps - 2].to : made;
    if (last->kind == AP_STEP_ALL_SLICE && holds_label(h, before))
        return AP_FORBIDDEN;
    return path->cost;
}

static void add_making_edge(ap_planning *p, uint32_t step, uint32_t slot)
{
    const ap_plan_step *s = &p->steps.at[step];
    uint32_t hi = p->holder_of[ap_node_at(p->m, s->node)->out[slot]];
    const ap_plan_holder *h = &p->holders.at[hi];
    ap_plan_edge e = {.holder = hi, .step = step, .makes = true, .slot = slot};
    e.kinds = ap_planning_kinds(p, s, true, slot);
    e.path = ap_planning_paths(p, h->value, e.kinds.n, e.kinds.at, h->n, h->kept);
    int64_t *of_kind = AP_NEW_ARRAY(p->arena, int64_t, (size_t)e.kinds.n * h->n);
    for (uint32_t k = 0; k < e.kinds.n; k++)
        for (uint32_t l = 0; l < h->n; l++)
            of_kind[k * h->n + l] = keep_cost(h, e.kinds.at[k], e.path[k * h->n + l]);
    int64_t *cost = add_edge(p, e, s->var, h->var);
    for (uint32_t i = 0; i < s->n; i++)
        memcpy(cost + (size_t)i * h->n, of_kind + (size_t)e.kinds.of[i] * h->n, h->n * sizeof *cost);
}

/* All reshards that one strategy needs of one kept value. */
static int64_t read_cost(ap_planning *p, const ap_plan_step *s, const ap_plan_holder *h, uint32_t strategy,
                         ap_sharding kept)
{
    const ap_node_info *node = ap_node_at(p->m, s->node);
    const ap_sharding *want = s->strategy[strategy].operand;
    int64_t sum = 0;
    for (uint32_t i = 0; i < node->nin; i++) {
        bool paid = node->in[i] != h->value || want[i] == kept;
        for (uint32_t j = 0; j < i && !paid; j++)
            paid = node->in[j] == h->value && want[j] == want[i];
        if (paid)
            continue;
        const ap_reshard_path *path = ap_planning_path(p, h->value, kept, want[i]);
        if (!path)
            return AP_FORBIDDEN;
        sum = ap_sat_add(sum, path->cost);
    }
    return sum;
}

uint32_t ap_plan_view_in_place(const ap_plan_step *view, ap_sharding kept)
{
    for (uint32_t i = 0; i < view->n; i++)
        if (view->strategy[i].operand[0] == kept)
            return i;
    return AP_NONE;
}

static bool reads_once(const ap_planning *p, const ap_plan_step *s, ap_value v)
{
    const ap_node_info *node = ap_node_at(p->m, s->node);
    uint32_t n = 0;
    for (uint32_t i = 0; i < node->nin; i++)
        n += node->in[i] == v;
    return n == 1;
}

static void add_reading_edge(ap_planning *p, uint32_t step, uint32_t slot)
{
    const ap_plan_step *s = &p->steps.at[step];
    uint32_t hi = p->holder_of[ap_node_at(p->m, s->node)->in[slot]];
    const ap_plan_holder *h = &p->holders.at[hi];
    ap_plan_edge e = {.holder = hi, .step = step, .slot = slot, .kinds = ap_planning_kinds(p, s, false, slot)};
    e.path = ap_planning_paths(p, h->value, h->n, h->kept, e.kinds.n, e.kinds.at);
    int64_t *cost = add_edge(p, e, h->var, s->var);
    bool once = reads_once(p, s, h->value);
    for (uint32_t l = 0; l < h->n; l++) {
        uint32_t in_place = s->view ? ap_plan_view_in_place(s, h->kept[l]) : AP_NONE;
        for (uint32_t i = 0; i < s->n; i++) {
            const ap_reshard_path *path = e.path[l * e.kinds.n + e.kinds.of[i]];
            int64_t *c = &cost[l * s->n + i];
            if (in_place != AP_NONE)
                *c = i == in_place ? 0 : AP_FORBIDDEN;
            else if (once)
                *c = path ? path->cost : AP_FORBIDDEN;
            else
                *c = read_cost(p, s, h, i, h->kept[l]);
        }
    }
}

static void add_edges(ap_planning *p)
{
    for (uint32_t k = 0; k < p->steps.len; k++) {
        const ap_plan_step *s = &p->steps.at[k];
        if (s->var == AP_NONE)
            continue;
        const ap_node_info *node = ap_node_at(p->m, s->node);
        for (uint32_t i = 0; i < node->nin; i++) {
            bool first = true;
            for (uint32_t j = 0; j < i; j++)
                first = first && node->in[j] != node->in[i];
            if (first)
                add_reading_edge(p, k, i);
        }
        for (uint32_t j = 0; j < node->nout && !s->view; j++)
            add_making_edge(p, k, j);
    }
}

void ap_planning_price(ap_planning *p)
{
    add_variables(p);
    add_edges(p);
}

ap_status ap_planning_build(ap_ctx *ctx, ap_arena *arena, ap_module *m, ap_mesh mesh, const ap_batch *batch,
                            const ap_plan_options *opt, ap_planning *out)
{
    *out = (ap_planning){.ctx = ctx, .arena = arena, .m = m, .opt = opt, .mesh = mesh, .batch = batch};
    out->block = m->funcs.at[out->func].body;
    out->resharder = ap_resharder_create(arena, m, &opt->cluster);
    AP_TRY(ap_rooms_find(ctx, m, &out->rooms));
    out->filled = ap_filled_find(m, arena);
    AP_TRY(ap_planning_list(out));
    ap_planning_price(out);
    ap_planning_demand(out);
    out->problem = (ap_problem){
        .nnodes = out->var_n.len,
        .nstrategies = out->var_n.at,
        .cost = out->var_cost.at,
        .nedges = out->problem_edges.len,
        .edge = out->problem_edges.at,
        .ndemands = out->demands.len,
        .demand = out->demands.at,
        .npair_demands = out->pair_demands.len,
        .pair_demand = out->pair_demands.at,
        .limit = opt->memory > 0 ? opt->memory : opt->cluster.memory_bytes,
    };
    return AP_OK;
}
