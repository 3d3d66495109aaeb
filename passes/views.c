/* normal -> normal: correspondences meet correspondences. A view of a view becomes one view; a contraction reads
 * through a transposing view of its operand and writes through one of its result:
 *
 *     %t = view %k {bthd->bhtd}
 *     %s = contract %q, %t {bhsd,bhtd->bhst}          contract %q, %k {bhsd,bthd->bhst}
 *
 * The planner then has fewer nodes, and no sharding is lost: a view's rule is the letters themselves.
 *
 * needs: types   keeps: types of surviving values   breaks: nothing */
#include "ir/op.h"
#include "passes/pass.h"

typedef struct views {
    ap_module *m;
    uint32_t *uses; /* [value] */
} views;

/* The view that makes `v` in the same block, or NULL. `expands`: whether views with result-only letters count. */
static const ap_node_info *view_of(const views *w, ap_value v, ap_block block, bool expands)
{
    const ap_value_info *value = ap_value_at(w->m, v);
    if (value->kind != AP_VALUE_RESULT)
        return NULL;
    const ap_node_info *n = ap_node_at(w->m, value->def);
    if (n->op != AP_OP_VIEW || n->block != block)
        return NULL;
    if (!expands && n->u.spec->result.nletters != n->u.spec->operand[0].nletters)
        return NULL;
    return n;
}

/* `side` in the letters of `here`, which has the same factors as `there`; false when a letter of `side` is not in
 * `there`. */
static bool translate(ap_spec_side *side, const ap_spec_side *there, const ap_spec_side *here)
{
    for (int i = 0; i < side->nletters; i++) {
        int k = ap_spec_side_find(there, side->letter[i]);
        if (k < 0 || k >= here->nletters)
            return false;
        side->letter[i] = here->letter[k];
    }
    return true;
}

/* n reads v = view(x): make it read x. */
static bool read_through(views *w, ap_node_info *n, uint32_t i, const ap_node_info *view)
{
    ap_spec_side side = view->u.spec->operand[0];
    if (!translate(&side, &view->u.spec->result, &n->u.spec->operand[i]))
        return false;
    n->u.spec->operand[i] = side;
    w->uses[n->in[i]]--;
    n->in[i] = view->in[0];
    w->uses[n->in[i]]++;
    return true;
}

/* view = view(result of the contraction n), its only use: make n write view's result. */
static bool write_through(views *w, ap_node_info *n, ap_node_info *view)
{
    ap_spec_side side = view->u.spec->result;
    if (!translate(&side, &view->u.spec->operand[0], &n->u.spec->result))
        return false;
    n->u.spec->result = side;
    ap_value old = n->out[0], made = view->out[0];
    n->out[0] = made;
    view->out[0] = old;
    view->nin = 0; /* now dead: nothing reads `old` */
    ap_value_at(w->m, made)->def = (uint32_t)(n - w->m->nodes.at);
    ap_value_at(w->m, old)->def = (uint32_t)(view - w->m->nodes.at);
    w->uses[old] = 0;
    return true;
}

static void visit_block(views *w, ap_block b)
{
    const ap_block_info *block = ap_block_at(w->m, b);
    for (uint32_t k = 0; k < block->nodes.len; k++) {
        ap_node_info *n = ap_node_at(w->m, block->nodes.at[k]);
        if (n->body != AP_NONE)
            visit_block(w, n->body);
        if (n->op != AP_OP_VIEW && n->op != AP_OP_CONTRACT)
            continue;
        for (uint32_t i = 0; i < n->nin; i++) {
            const ap_node_info *view;
            while ((view = view_of(w, n->in[i], b, n->op == AP_OP_VIEW)) && read_through(w, n, i, view))
                continue;
        }
        if (n->op != AP_OP_VIEW || ap_value_at(w->m, n->in[0])->kind != AP_VALUE_RESULT)
            continue;
        ap_node_info *source = ap_node_at(w->m, ap_value_at(w->m, n->in[0])->def);
        if (source->op == AP_OP_CONTRACT && source->block == b && w->uses[n->in[0]] == 1 &&
            n->u.spec->result.nletters == n->u.spec->operand[0].nletters)
            write_through(w, source, n);
    }
}

ap_status ap_pass_views(ap_ctx *ctx, ap_module *m)
{
    views w = {.m = m, .uses = ap_module_count_uses(m, &ctx->scratch)};
    for (ap_func f = 0; f < m->funcs.len; f++)
        visit_block(&w, m->funcs.at[f].body);
    ap_module_remove_dead(m);
    return ap_pass_fold(ctx, m);
}
