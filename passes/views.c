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

#include <string.h>

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

/* A side with every letter replaced: letter at position i of `from` by that at position i of `to`; other letters by
 * fresh ones, remembered in `fresh`. */
typedef struct renaming {
    char to[128];
    bool used[128];
} renaming;

static bool rename_side(ap_spec_side *s, renaming *r)
{
    for (int i = 0; i < s->nletters; i++) {
        char *to = &r->to[(int)s->letter[i]];
        for (const char *c = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"; !*to && *c; c++)
            if (!r->used[(int)*c])
                *to = *c;
        if (!*to)
            return false;
        r->used[(int)*to] = true;
        s->letter[i] = *to;
    }
    return true;
}

/* `spec` reads (or writes) a side that another correspondence maps: its letters are renamed to `other`'s letters of the
 * side `joint`, which has the same factors. */
static bool rename_to(ap_spec *spec, const ap_spec_side *joint_here, const ap_spec_side *joint_there,
                      const ap_spec_side *also_used)
{
    if (joint_here->nletters != joint_there->nletters)
        return false;
    renaming r = {0};
    for (int i = 0; i < joint_there->nletters; i++)
        r.used[(int)joint_there->letter[i]] = true;
    for (int i = 0; i < also_used->nletters; i++)
        r.used[(int)also_used->letter[i]] = true;
    for (int i = 0; i < joint_here->nletters; i++)
        r.to[(int)joint_here->letter[i]] = joint_there->letter[i];
    for (int i = 0; i < spec->noperands; i++)
        if (!rename_side(&spec->operand[i], &r))
            return false;
    return rename_side(&spec->result, &r);
}

/* n reads v = view(x): make it read x. */
static bool read_through(views *w, ap_node_info *n, uint32_t i, const ap_node_info *view)
{
    ap_spec s = *n->u.spec;
    if (!rename_to(&s, &n->u.spec->operand[i], &view->u.spec->result, &view->u.spec->operand[0]))
        return false;
    s.operand[i] = view->u.spec->operand[0];
    *n->u.spec = s;
    w->uses[n->in[i]]--;
    n->in[i] = view->in[0];
    w->uses[n->in[i]]++;
    return true;
}

/* view = view(result of the contraction n), its only use: make n write view's result. */
static bool write_through(views *w, ap_node_info *n, ap_node_info *view)
{
    ap_spec s = *n->u.spec;
    if (!rename_to(&s, &n->u.spec->result, &view->u.spec->operand[0], &view->u.spec->result))
        return false;
    s.result = view->u.spec->result;
    *n->u.spec = s;
    ap_value old = n->out[0], made = view->out[0];
    n->out[0] = made;
    view->out[0] = old;
    view->in[0] = made; /* now dead: nothing reads `old` */
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
