/* planned -> normal: a module without its plan, so that two modules can be compared by what they compute: reshards,
 * shardings, padding and the mesh go, everything else stays.
 *
 * needs: state planned, one function   keeps: nodes, names, order   gives: state normal */
#include "passes/plan.h"

static ap_type bare_type(ap_ctx *ctx, ap_type t)
{
    ap_type_info i = ap_type_get(ctx, t);
    ap_shape_info s = *ap_shape_get(ctx, i.shape);
    for (int f = 0; f < s.nfactors; f++)
        s.physical[f] = s.logical[f];
    return t ? ap_type_make(ctx, i.dtype, ap_shape_intern(ctx, &s), 0) : 0;
}

void ap_module_erase_plan(ap_module *m, ap_name func_name)
{
    ap_func_info *f = &m->funcs.at[0];
    ap_block_drop_reshards(m, f->body);
    for (ap_value v = 0; v < m->values.len; v++)
        ap_value_at(m, v)->type = bare_type(m->ctx, ap_value_type(m, v));
    for (uint32_t i = 0; i < f->nresults; i++)
        f->result[i] = bare_type(m->ctx, f->result[i]);
    f->name = func_name;
    m->meshes.len = 0;
    m->state = AP_STATE_NORMAL;
}
