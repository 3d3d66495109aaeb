/* Writes a solution into the module: every type gets its sharding, and a `reshard` stands wherever two
 * variables chose differently:
 *
 *     %o = contract ... : @m[..] sum(tp)      as made
 *     %r = reshard %o : @m[tp,..]             as kept, if different; read by all uses
 *     %g = reshard %r : @m[-,..]              as one node reads it, just before that node */
#include "passes/plan_problem.h"

typedef struct writer {
    ap_planning *p;
    const uint32_t *choice;
    ap_value *current; /* per old value: the value that holds it as kept */
    AP_VEC(ap_node) order;
} writer;

static void set_sharding(ap_module *m, ap_value v, ap_sharding s)
{
    ap_type_info t = ap_type_get(m->ctx, ap_value_type(m, v));
    ap_value_at(m, v)->type = ap_type_make(m->ctx, t.dtype, t.shape, s);
}

static ap_value add_reshard(writer *w, ap_value v, ap_sharding to, ap_loc loc)
{
    ap_module *m = w->p->m;
    ap_node n = ap_module_add_node(m, ap_reshard_op(), 1, &v, 1, loc);
    ap_value out = ap_node_at(m, n)->out[0];
    ap_value_at(m, out)->type = ap_value_type(m, v);
    set_sharding(m, out, to);
    ap_vec_push(w->p->arena, &w->order, n);
    return out;
}

static ap_sharding kept_of(const writer *w, ap_value v)
{
    const ap_plan_holder *h = &w->p->holders.at[w->p->holder_of[v]];
    return h->kept[w->choice[h->var]];
}

/* Operands of one node: kept values, or private reshards of them, one for each sharding wanted. */
static void write_operands(writer *w, const ap_plan_step *s)
{
    ap_module *m = w->p->m;
    uint32_t nin = ap_node_at(m, s->node)->nin;
    ap_loc loc = ap_node_at(m, s->node)->loc;
    ap_value *old = AP_NEW_ARRAY(w->p->arena, ap_value, nin), *now = AP_NEW_ARRAY(w->p->arena, ap_value, nin);
    for (uint32_t i = 0; i < nin; i++) {
        old[i] = ap_node_at(m, s->node)->in[i];
        now[i] = w->current[old[i]];
        ap_sharding kept = kept_of(w, old[i]);
        ap_sharding want = s->var == AP_NONE ? kept : s->strategy[w->choice[s->var]].operand[i];
        if (want == kept)
            continue;
        ap_value copy = AP_NONE;
        for (uint32_t j = 0; j < i && copy == AP_NONE; j++)
            if (old[j] == old[i] && s->strategy[w->choice[s->var]].operand[j] == want)
                copy = now[j];
        now[i] = copy != AP_NONE ? copy : add_reshard(w, now[i], want, loc);
    }
    ap_node_info *node = ap_node_at(m, s->node);
    for (uint32_t i = 0; i < nin; i++) {
        node->in[i] = now[i];
        if (node->body != AP_NONE && old[i] != now[i])
            ap_block_replace_uses(m, node->body, old[i], now[i]);
    }
}

static void write_results(writer *w, const ap_plan_step *s)
{
    ap_module *m = w->p->m;
    uint32_t nout = ap_node_at(m, s->node)->nout;
    ap_loc loc = ap_node_at(m, s->node)->loc;
    for (uint32_t j = 0; j < nout; j++) {
        ap_value v = ap_node_at(m, s->node)->out[j];
        ap_sharding kept = kept_of(w, v);
        ap_sharding made = s->var == AP_NONE ? kept : s->strategy[w->choice[s->var]].result[j];
        set_sharding(m, v, made);
        if (made != kept)
            w->current[v] = add_reshard(w, v, kept, loc);
    }
}

/* After the operands' types: the body is read against them. */
static ap_status write_body(writer *w, const ap_plan_step *s)
{
    ap_module *m = w->p->m;
    if (ap_node_at(m, s->node)->body == AP_NONE)
        return AP_OK;
    ap_rule_body body;
    uint32_t chosen = s->var == AP_NONE
                          ? w->choice[w->p->holders.at[w->p->holder_of[ap_node_at(m, s->node)->out[0]]].var]
                          : w->choice[s->var];
    if (!ap_rule_apply_body(m, s->node, w->p->mesh, &s->assign[chosen], w->p->arena, &body))
        return ap_fail(m->ctx, AP_ERR_BUG, ap_node_at(m, s->node)->loc,
                       "a strategy of a composite does not fit its body");
    ap_rule_write_body(m, s->node, &body);
    return AP_OK;
}

static void write_function(ap_planning *p)
{
    ap_module *m = p->m;
    ap_func_info *f = &m->funcs.at[p->func];
    const ap_block_info *b = ap_block_at(m, p->block);
    const ap_node_info *ret = ap_node_at(m, b->nodes.at[b->nodes.len - 1]);
    for (uint32_t i = 0; i < f->nresults; i++)
        f->result[i] = ap_value_type(m, ret->in[i]);
    f->name = ap_name_format(m->ctx, "stage%u.fwd", p->opt->stage);
    m->state = AP_STATE_PLANNED;
}

ap_status ap_planning_apply(ap_planning *p, const uint32_t *choice)
{
    ap_module *m = p->m;
    writer w = {.p = p, .choice = choice, .current = AP_NEW_ARRAY(p->arena, ap_value, m->values.len)};
    for (uint32_t v = 0; v < m->values.len; v++)
        w.current[v] = v;
    for (uint32_t i = 0; i < p->holders.len; i++) {
        const ap_plan_holder *h = &p->holders.at[i];
        if (h->step == AP_NONE)
            set_sharding(m, h->value, h->kept[choice[h->var]]);
    }
    for (uint32_t k = 0; k < p->steps.len; k++) {
        const ap_plan_step *s = &p->steps.at[k];
        write_operands(&w, s);
        ap_vec_push(p->arena, &w.order, s->node);
        AP_TRY(write_body(&w, s));
        write_results(&w, s);
    }
    ap_block_at(m, p->block)->nodes.len = 0;
    for (uint32_t i = 0; i < w.order.len; i++)
        ap_block_append(m, p->block, w.order.at[i]);
    write_function(p);
    return AP_OK;
}
