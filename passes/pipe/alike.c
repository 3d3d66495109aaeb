/* Stages that are the same problem are solved once: told by a text that has all that a plan depends on, and given the
 * plan of the first one under their own names. Carving numbers nodes and values of equal parts alike, and planning only
 * adds to them, so a plan is carried over by number. */
#include "ir/op.h"
#include "ir/text_form.h"
#include "passes/pipe/parts.h"

#include <inttypes.h>

/* ---- keys ---- */

/* Names and contents go; what a constant is held as stays. */
static ap_module *bare_copy(const ap_module *m, ap_arena *arena)
{
    ap_module *c = ap_module_clone_in(m, arena);
    for (ap_value v = 0; v < c->values.len; v++)
        if (c->values.at[v].kind != AP_VALUE_SYMBOL)
            c->values.at[v].name = 0;
    for (ap_symbol s = 0; s < c->symbols.len; s++) {
        ap_symbol_info *x = &c->symbols.at[s];
        x->name = ap_value_at(c, x->value)->name = ap_name_format(c->ctx, "p%" PRIu32, s);
        x->data = (ap_data){0};
        x->loc = 0;
    }
    for (ap_node n = 0; n < c->nodes.len; n++) {
        ap_node_info *node = &c->nodes.at[n];
        node->loc = 0;
        if (node->block != AP_NONE && ap_op_get(node->op)->lower == AP_LOWER_CONSTANT &&
            node->u.constant->kind != AP_DATA_SPLAT)
            *node->u.constant = (ap_data){
                .kind = AP_DATA_FILE, .dtype = node->u.constant->dtype, .file = 0, .size = node->u.constant->size};
    }
    ap_func_info *f = &c->funcs.at[0];
    for (uint32_t i = 0; i < f->nresults; i++)
        f->result_name[i] = 0;
    f->name = ap_name_make(c->ctx, "f");
    return c;
}

/* Which nodes come from one place of the model: plans name reshards after the nodes that they are for. */
static void add_places(const ap_module *m, ap_arena *arena, ap_text *out)
{
    uint32_t *number = AP_NEW_ARRAY(arena, uint32_t, m->ctx->locs.len + 1), next = 0;
    for (ap_node n = 0; n < m->nodes.len; n++) {
        ap_loc loc = m->nodes.at[n].loc;
        if (!number[loc])
            number[loc] = ++next;
        ap_text_addf(out, " %" PRIu32, number[loc]);
    }
}

static void add_mesh(const ap_mesh_info *mesh, int32_t first, ap_text *out)
{
    ap_text_addf(out, "\nmesh %d at %" PRId32 ":", mesh->ntime, mesh->first_rank - first);
    for (int a = 0; a < mesh->naxes; a++)
        ap_text_addf(out, " %" PRIu32 "=%" PRId32, mesh->axis_name[a], mesh->axis_size[a]);
}

static void add_pins(const ap_pipe_stage *choice, const ap_wire *w, bool result, ap_text *out)
{
    for (uint32_t i = 0; i < choice->npins; i++) {
        const ap_pipe_pin *pin = &choice->pin[i];
        if (pin->slot != w->slot || pin->result != result)
            continue;
        ap_text_addf(out, " pin");
        for (int f = 0; f < pin->nfactors; f++)
            ap_text_addf(out, " %" PRIu32, pin->axes[f]);
    }
}

const char *ap_part_key(ap_arena *arena, const ap_pipeline *p, uint32_t stage, const ap_pipe_stage *choice,
                        const ap_plan_options *o)
{
    const ap_module *m = p->stages.at[stage].m;
    ap_text t;
    ap_text_init(&t, arena);
    ap_module_print(bare_copy(m, arena), &t);
    add_places(m, arena, &t);
    add_mesh(&o->mesh, o->mesh.first_rank, &t);
    for (uint32_t i = 0; o->batch && i < m->funcs.at[0].narguments; i++)
        ap_text_addf(&t, " %d", o->batch[i]);
    for (uint32_t i = 0; i < p->links.len; i++) {
        const ap_wire *w = &p->links.at[i];
        const ap_module *from = p->stages.at[w->from].m;
        if (w->from == stage) {
            ap_text_addf(&t, "\nsends %" PRIu32 " depth %" PRId32, w->result, w->from_depth);
            add_pins(choice, w, true, &t);
        } else if (w->to == stage) {
            ap_text_addf(&t, "\ngets %" PRIu32 " depth %" PRId32 " as ", w->argument, w->to_depth);
            ap_type_print(from, from->funcs.at[0].result[w->result], &t);
            add_mesh(&from->meshes.at[0], o->mesh.first_rank, &t);
            add_pins(choice, w, false, &t);
        }
    }
    return ap_text_str(&t);
}

/* ---- places ---- */

/* Ranks from the first one to the last one that a stage or a stage it reads from has. */
static void reach_of(const ap_pipeline *p, const ap_mesh_info *mesh, uint32_t stage, int32_t *lo, int32_t *hi)
{
    *lo = mesh->first_rank;
    *hi = *lo + ap_mesh_ranks(mesh);
    for (uint32_t i = 0; i < p->links.len; i++) {
        if (p->links.at[i].to != stage)
            continue;
        const ap_mesh_info *from = &p->stages.at[p->links.at[i].from].m->meshes.at[0];
        int32_t end = from->first_rank + ap_mesh_ranks(from);
        *lo = from->first_rank < *lo ? from->first_rank : *lo;
        *hi = end > *hi ? end : *hi;
    }
}

bool ap_part_same_place(const ap_cluster *whole, const ap_pipeline *p, uint32_t a, const ap_mesh_info *mesh_a,
                        uint32_t b, const ap_mesh_info *mesh_b)
{
    int32_t lo_a, hi_a, lo_b, hi_b;
    reach_of(p, mesh_a, a, &lo_a, &hi_a);
    reach_of(p, mesh_b, b, &lo_b, &hi_b);
    return hi_a - lo_a == hi_b - lo_b && ap_cluster_part_equal(whole, lo_a, lo_b, hi_a - lo_a);
}

/* ---- carrying over ---- */

ap_module *ap_part_copy_plan(const ap_module *planned, const ap_module *normal, const ap_plan_options *o)
{
    ap_ctx *ctx = normal->ctx;
    ap_module *c = ap_module_clone(planned);
    ap_loc *loc = AP_NEW_ARRAY(&ctx->scratch, ap_loc, ctx->locs.len + 1);
    for (ap_node n = 0; n < normal->nodes.len; n++) {
        ap_node_info *node = &c->nodes.at[n];
        loc[node->loc] = normal->nodes.at[n].loc;
        if (node->block != AP_NONE && ap_op_get(node->op)->lower == AP_LOWER_CONSTANT)
            *node->u.constant = *normal->nodes.at[n].u.constant;
    }
    for (ap_node n = 0; n < c->nodes.len; n++)
        c->nodes.at[n].loc = loc[c->nodes.at[n].loc];
    for (ap_value v = 0; v < normal->values.len; v++)
        c->values.at[v].name = normal->values.at[v].name;
    for (ap_symbol s = 0; s < normal->symbols.len; s++) {
        c->symbols.at[s].name = normal->symbols.at[s].name;
        c->symbols.at[s].data = normal->symbols.at[s].data;
        c->symbols.at[s].loc = normal->symbols.at[s].loc;
    }
    ap_func_info *f = &c->funcs.at[0];
    for (uint32_t i = 0; i < f->nresults; i++)
        f->result_name[i] = normal->funcs.at[0].result_name[i];
    f->name = ap_name_format(ctx, "stage%" PRIu32 ".fwd", o->stage);
    c->meshes.at[0].first_rank = o->mesh.first_rank;
    return c;
}
