/* What may be chosen: per node the strategies that its rule accepts, per value the shardings in which it can
 * be kept. The lists are complete but for choices that cannot matter:
 *
 *   a linear group passes partials through only where one of its operands can be partial by itself
 *   a value can be kept partial only where its producer can make it partial
 *
 * and both lists try "nothing" first on every axis, so that among equals the plainest comes first. */
#include "passes/plan_problem.h"

#include <string.h>

/* ---- strategies of a node ---- */

static bool same_strategy(const ap_strategy *a, const ap_strategy *b, uint32_t nin, uint32_t nout)
{
    return memcmp(a->operand, b->operand, nin * sizeof *a->operand) == 0 &&
           memcmp(a->result, b->result, nout * sizeof *a->result) == 0;
}

/* A body names the operand's value, not its position: used twice it must be sharded alike. */
static bool body_can_read(const ap_node_info *node, const ap_strategy *s)
{
    if (node->body == AP_NONE)
        return true;
    for (uint32_t i = 0; i < node->nin; i++)
        for (uint32_t j = 0; j < i; j++)
            if (node->in[i] == node->in[j] && s->operand[i] != s->operand[j])
                return false;
    return true;
}

/* Nodes without a rule know one strategy: everything replicated. */
static void list_replicated(const ap_module *m, ap_node n, ap_mesh mesh, ap_arena *arena, ap_assign **assign,
                            ap_strategy **strategy)
{
    const ap_node_info *node = ap_node_at(m, n);
    *assign = AP_NEW(arena, ap_assign);
    for (int a = 0; a < AP_MAX_AXES; a++)
        (*assign)->axis[a] = (ap_choice){.letter = AP_RULE_NONE, .group = AP_RULE_NONE};
    ap_strategy *s = AP_NEW(arena, ap_strategy);
    s->operand = AP_NEW_ARRAY(arena, ap_sharding, node->nin);
    s->result = AP_NEW_ARRAY(arena, ap_sharding, node->nout);
    for (uint32_t i = 0; i < node->nin; i++)
        s->operand[i] = ap_sharding_replicated(m->ctx, mesh, ap_value_shape(m, node->in[i])->nfactors);
    for (uint32_t i = 0; i < node->nout; i++)
        s->result[i] = ap_sharding_replicated(m->ctx, mesh, ap_value_shape(m, node->out[i])->nfactors);
    *strategy = s;
}

/* What each axis may do at the node; how many choices each has. */
static void list_choices(const ap_module *m, ap_node n, const ap_mesh_info *mesh, const ap_batch *batch,
                         const ap_rule *rule, ap_choice choices[][AP_MAX_CHOICES], int *count)
{
    for (int a = 0; a < mesh->naxes; a++) {
        choices[a][0] = (ap_choice){.letter = AP_RULE_NONE, .group = AP_RULE_NONE};
        count[a] = 1;
        if (a < mesh->ntime)
            choices[a][0].letter = batch ? ap_batch_letter(batch, m, n, rule) : AP_RULE_NONE;
        else if (mesh->axis_size[a] > 1)
            count[a] = ap_rule_choices(rule, mesh->axis_size[a], choices[a]);
    }
}

uint32_t ap_strategies_list(const ap_module *m, ap_node n, ap_mesh mesh, const ap_batch *batch, ap_arena *arena,
                            ap_rule *rule, ap_assign **assign, ap_strategy **strategy)
{
    const ap_node_info *node = ap_node_at(m, n);
    ap_rule_get(m, n, arena, rule);
    if (rule->noperands != node->nin || rule->nresults != node->nout) {
        list_replicated(m, n, mesh, arena, assign, strategy);
        return 1;
    }
    const ap_mesh_info *mi = &m->meshes.at[mesh];
    const ap_choice nothing = {.letter = AP_RULE_NONE, .group = AP_RULE_NONE};
    ap_choice choices[AP_MAX_AXES][AP_MAX_CHOICES];
    int count[AP_MAX_AXES], at[AP_MAX_AXES] = {0};
    list_choices(m, n, mi, batch, rule, choices, count);
    AP_VEC(ap_assign) assigns = {0};
    AP_VEC(ap_strategy) strategies = {0};
    for (;;) {
        ap_assign as;
        for (int a = 0; a < AP_MAX_AXES; a++)
            as.axis[a] = a < mi->naxes ? choices[a][at[a]] : nothing;
        ap_strategy s;
        if (ap_rule_apply(m, rule, mesh, &as, arena, &s) && body_can_read(node, &s)) {
            bool known = false;
            for (uint32_t i = 0; i < strategies.len && !known; i++)
                known = same_strategy(&strategies.at[i], &s, node->nin, node->nout);
            if (!known) {
                ap_vec_push(arena, &assigns, as);
                ap_vec_push(arena, &strategies, s);
            }
        }
        int a = mi->naxes - 1;
        for (; a >= 0 && ++at[a] == count[a]; a--)
            at[a] = 0;
        if (a < 0)
            break;
    }
    *assign = assigns.at;
    *strategy = strategies.at;
    return strategies.len;
}

/* Can the value be kept partial (sum) over the axis? */
static bool may_be_partial(const ap_planning *p, ap_value v, int axis)
{
    if (p->holder_of[v] == AP_NONE)
        return false;
    const ap_plan_holder *h = &p->holders.at[p->holder_of[v]];
    for (uint32_t i = 0; i < h->n; i++)
        if (ap_sharding_get(p->ctx, h->kept[i])->partial[AP_PARTIAL_SUM] >> axis & 1)
            return true;
    return false;
}

static bool passes_something(const ap_planning *p, const ap_plan_step *s, const ap_assign *as)
{
    const ap_node_info *node = ap_node_at(p->m, s->node);
    for (int a = 0; a < p->m->meshes.at[p->mesh].naxes; a++) {
        int g = as->axis[a].group;
        if (g == AP_RULE_NONE)
            continue;
        bool any = false;
        for (uint32_t i = 0; i < node->nin && i < 32; i++)
            any = any || ((s->rule.group[g] >> i & 1) && may_be_partial(p, node->in[i], a));
        if (!any)
            return false;
    }
    return true;
}

/* Is there a strategy like `as` but with a letter on the axis? */
static bool could_split(const ap_plan_step *s, const ap_assign *as, int naxes, int axis)
{
    for (uint32_t i = 0; i < s->n; i++) {
        const ap_assign *other = &s->assign[i];
        bool others_equal = other->axis[axis].letter != AP_RULE_NONE;
        for (int b = 0; b < naxes && others_equal; b++)
            if (b != axis)
                others_equal = other->axis[b].letter == as->axis[b].letter && other->axis[b].group == as->axis[b].group;
        if (others_equal)
            return true;
    }
    return false;
}

static void keep_strategies(ap_plan_step *s, const bool *keep)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < s->n; i++) {
        if (!keep[i])
            continue;
        s->assign[n] = s->assign[i];
        s->strategy[n++] = s->strategy[i];
    }
    s->n = n;
}

static void list_strategies(ap_planning *p, ap_plan_step *s)
{
    int naxes = p->m->meshes.at[p->mesh].naxes;
    s->n = ap_strategies_list(p->m, s->node, p->mesh, p->batch, p->arena, &s->rule, &s->assign, &s->strategy);
    bool *keep = AP_NEW_ARRAY(p->arena, bool, s->n);
    for (uint32_t i = 0; i < s->n; i++)
        keep[i] = passes_something(p, s, &s->assign[i]);
    keep_strategies(s, keep);
    if (!p->opt->split_force || s->view)
        return;
    for (uint32_t i = 0; i < s->n; i++) {
        keep[i] = true;
        for (int a = 0; a < naxes && keep[i]; a++)
            keep[i] = s->assign[i].axis[a].letter != AP_RULE_NONE || !could_split(s, &s->assign[i], naxes, a);
    }
    keep_strategies(s, keep);
}

/* ---- labels of a value ---- */

typedef struct labels {
    AP_VEC(ap_sharding) at;
} labels;

/* All shardings of a value with at most one choice per axis: nothing, a factor, or a partial kind that `kinds` allows
 * (per axis a bit mask of kinds). Time is on the batch, or nowhere. */
static void list_shardings(ap_planning *p, ap_value v, const uint8_t *kinds, labels *out)
{
    const ap_mesh_info *mesh = &p->m->meshes.at[p->mesh];
    const ap_shape_info *shape = ap_value_shape(p->m, v);
    int options = 1 + shape->nfactors + AP_PARTIAL_COUNT;
    int at[AP_MAX_AXES] = {0};
    if (mesh->ntime && p->batch)
        at[0] = p->batch->factor[v] + 1;
    for (;;) {
        ap_sharding_info s = {.mesh = p->mesh, .nfactors = shape->nfactors};
        bool ok = true;
        for (int a = 0; a < mesh->naxes && ok; a++) {
            int f = at[a] - 1, k = f - shape->nfactors;
            if (f < 0)
                continue;
            if (mesh->axis_size[a] == 1 && a >= mesh->ntime)
                ok = false;
            else if (k >= 0) {
                ok = kinds[a] >> k & 1;
                s.partial[k] |= (uint8_t)(1u << a);
            } else {
                s.axes[f] = ap_axes_append(s.axes[f], a);
                ok = shape->physical[f] % ap_mesh_axes_size(mesh, s.axes[f]) == 0;
            }
        }
        if (ok)
            ap_vec_push(p->arena, &out->at, ap_sharding_intern(p->ctx, &s));
        int a = mesh->naxes - 1;
        for (; a >= mesh->ntime && ++at[a] == options; a--)
            at[a] = 0;
        if (a < mesh->ntime)
            break;
    }
}

static ap_status refuse(ap_planning *p, ap_value v, const char *why)
{
    return ap_fail(p->ctx, AP_ERR_USAGE, 0, "value \"%s\": %s", ap_planning_name(p, v), why);
}

static bool is_returned(const ap_planning *p, ap_value v)
{
    const ap_block_info *b = ap_block_at(p->m, p->block);
    const ap_node_info *ret = ap_node_at(p->m, b->nodes.at[b->nodes.len - 1]);
    for (uint32_t i = 0; i < ret->nin; i++)
        if (ret->in[i] == v)
            return true;
    return false;
}

/* Which of the labels may stand: outputs end complete; pins. */
static ap_status filter_labels(ap_planning *p, ap_plan_holder *h, uint32_t n, const ap_sharding *at, bool *keep,
                               bool *matched)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < n; i++) {
        ap_slot_price slots;
        keep[i] = !h->returned || !ap_sharding_partial_mask(ap_sharding_get(p->ctx, at[i]));
        if (keep[i] && ap_planning_slots(p, h->value, at[i], &slots))
            keep[i] = slots.ps != AP_FORBIDDEN;
        left += keep[i];
    }
    if (left == 0)
        return refuse(p, h->value, "an output cannot be complete under any sharding of its node");
    return ap_pins_filter(p, h->value, n, at, keep, &h->pinned, matched);
}

static ap_plan_holder *add_holder(ap_planning *p, ap_value v, uint32_t step)
{
    p->holder_of[v] = p->holders.len;
    ap_vec_push(p->arena, &p->holders, (ap_plan_holder){.value = v, .step = step, .var = AP_NONE});
    ap_plan_holder *h = &p->holders.at[p->holders.len - 1];
    h->returned = is_returned(p, v);
    return h;
}

static ap_status set_labels(ap_planning *p, ap_plan_holder *h, const labels *all, bool *matched)
{
    bool *keep = AP_NEW_ARRAY(p->arena, bool, all->at.len);
    AP_TRY(filter_labels(p, h, all->at.len, all->at.at, keep, matched));
    h->kept = AP_NEW_ARRAY(p->arena, ap_sharding, all->at.len);
    for (uint32_t i = 0; i < all->at.len; i++)
        if (keep[i])
            h->kept[h->n++] = all->at.at[i];
    return AP_OK;
}

static ap_status add_free_holder(ap_planning *p, ap_value v, bool *matched)
{
    const uint8_t kinds[AP_MAX_AXES] = {0};
    labels all = {0};
    list_shardings(p, v, kinds, &all);
    return set_labels(p, add_holder(p, v, AP_NONE), &all, matched);
}

/* Results of an ordinary node: any complete sharding, and the partial kinds that it can make. */
static ap_status add_result_holder(ap_planning *p, uint32_t step, uint32_t slot, bool *matched)
{
    const ap_plan_step *s = &p->steps.at[step];
    ap_value v = ap_node_at(p->m, s->node)->out[slot];
    uint8_t kinds[AP_MAX_AXES] = {0};
    for (uint32_t i = 0; i < s->n; i++) {
        const ap_sharding_info *made = ap_sharding_get(p->ctx, s->strategy[i].result[slot]);
        for (int k = 0; k < AP_PARTIAL_COUNT; k++)
            for (int a = 0; a < AP_MAX_AXES; a++)
                if (made->partial[k] >> a & 1)
                    kinds[a] |= (uint8_t)(1u << k);
    }
    labels all = {0};
    list_shardings(p, v, kinds, &all);
    return set_labels(p, add_holder(p, v, step), &all, matched);
}

/* A view, or a node without operands: its label is its strategy. */
static ap_status add_strategy_holder(ap_planning *p, uint32_t step, bool *matched)
{
    ap_plan_step *s = &p->steps.at[step];
    ap_plan_holder *h = add_holder(p, ap_node_at(p->m, s->node)->out[0], step);
    h->view = s->view;
    h->resident = ap_node_holding(p->m, s->node) == AP_HELD_AS_PARAM;
    h->foreign = ap_node_holding(p->m, s->node) == AP_HELD_NOWHERE && !p->filled[h->value];
    labels all = {0};
    for (uint32_t i = 0; i < s->n; i++)
        ap_vec_push(p->arena, &all.at, s->strategy[i].result[0]);
    bool *keep = AP_NEW_ARRAY(p->arena, bool, s->n);
    AP_TRY(filter_labels(p, h, s->n, all.at.at, keep, matched));
    keep_strategies(s, keep);
    h->n = s->n;
    h->kept = AP_NEW_ARRAY(p->arena, ap_sharding, s->n);
    for (uint32_t i = 0; i < s->n; i++)
        h->kept[i] = s->strategy[i].result[0];
    return AP_OK;
}

static void count_uses(ap_planning *p)
{
    for (uint32_t k = 0; k < p->steps.len; k++) {
        const ap_node_info *node = ap_node_at(p->m, p->steps.at[k].node);
        for (uint32_t i = 0; i < node->nin; i++)
            p->holders.at[p->holder_of[node->in[i]]].nuses++;
    }
    for (uint32_t h = 0; h < p->holders.len; h++) {
        p->holders.at[h].use = AP_NEW_ARRAY(p->arena, ap_plan_use, p->holders.at[h].nuses);
        p->holders.at[h].nuses = 0;
    }
    for (uint32_t k = 0; k < p->steps.len; k++) {
        const ap_node_info *node = ap_node_at(p->m, p->steps.at[k].node);
        for (uint32_t i = 0; i < node->nin; i++) {
            ap_plan_holder *h = &p->holders.at[p->holder_of[node->in[i]]];
            h->use[h->nuses++] = (ap_plan_use){k, i};
        }
    }
}

static ap_status list_nodes(ap_planning *p, bool *matched)
{
    const ap_block_info *block = ap_block_at(p->m, p->block);
    for (uint32_t k = 0; k < block->nodes.len; k++) {
        ap_plan_step s = {.node = block->nodes.at[k], .var = AP_NONE, .first_point = p->npoints};
        const ap_node_info *node = ap_node_at(p->m, s.node);
        const ap_op_info *op = ap_op_get(node->op);
        s.view = op->shares_buffer;
        p->npoints += node->nin + 1 + node->nout;
        if (!op->terminator)
            list_strategies(p, &s);
        ap_vec_push(p->arena, &p->steps, s);
        if (s.view || (node->nin == 0 && node->nout == 1)) {
            AP_TRY(add_strategy_holder(p, k, matched));
            continue;
        }
        for (uint32_t j = 0; j < node->nout; j++)
            AP_TRY(add_result_holder(p, k, j, matched));
    }
    return AP_OK;
}

ap_status ap_planning_list(ap_planning *p)
{
    ap_module *m = p->m;
    bool *matched = AP_NEW_ARRAY(p->arena, bool, p->opt->npins);
    p->holder_of = AP_NEW_ARRAY(p->arena, uint32_t, m->values.len);
    for (uint32_t v = 0; v < m->values.len; v++)
        p->holder_of[v] = AP_NONE;
    for (uint32_t s = 0; s < m->symbols.len; s++) {
        if (m->symbols.at[s].kind == AP_SYMBOL_KIND_COUNT)
            continue;
        AP_TRY(add_free_holder(p, m->symbols.at[s].value, matched));
        p->holders.at[p->holders.len - 1].resident = true;
    }
    const ap_func_info *f = &m->funcs.at[p->func];
    for (uint32_t i = 0; i < f->narguments; i++) {
        AP_TRY(add_free_holder(p, f->argument[i], matched));
        p->holders.at[p->holders.len - 1].foreign = true;
    }
    AP_TRY(list_nodes(p, matched));
    count_uses(p);
    for (uint32_t i = 0; i < p->opt->npins; i++)
        if (p->opt->pin_matched)
            p->opt->pin_matched[i] = p->opt->pin_matched[i] || matched[i];
        else if (!matched[i])
            return ap_fail(p->ctx, AP_ERR_USAGE, 0, "%s:%d: no value matches \"%s\"", p->opt->pin_file,
                           p->opt->pin[i].line, p->opt->pin[i].pattern);
    return AP_OK;
}
