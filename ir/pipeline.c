/* Pipelines: building, looking up, evaluating. */
#include "ir/pipeline.h"

#include "ir/eval.h"

ap_pipeline *ap_pipeline_create(ap_ctx *ctx, ap_name name)
{
    ap_pipeline *p = AP_NEW(&ctx->arena, ap_pipeline);
    p->ctx = ctx;
    p->name = name;
    p->microbatches = 1;
    return p;
}

ap_port ap_port_of(const ap_module *m, ap_name name, ap_type type)
{
    ap_port port = {.name = name, .dtype = ap_type_dtype(m->ctx, type)};
    port.rank = (uint8_t)ap_shape_dims(ap_type_shape(m->ctx, type), port.dim);
    return port;
}

static ap_port argument_port(const ap_module *m, uint32_t i)
{
    const ap_value_info *v = ap_value_at(m, m->funcs.at[0].argument[i]);
    return ap_port_of(m, v->name, v->type);
}

static ap_port result_port(const ap_module *m, uint32_t i)
{
    return ap_port_of(m, m->funcs.at[0].result_name[i], m->funcs.at[0].result[i]);
}

ap_pipeline *ap_pipeline_of_module(ap_module *m, ap_name name)
{
    ap_ctx *ctx = m->ctx;
    ap_pipeline *p = ap_pipeline_create(ctx, name);
    const ap_func_info *f = &m->funcs.at[0];
    const ap_mesh_info *mesh = &m->meshes.at[0];
    for (uint32_t i = 0; i < f->narguments; i++)
        ap_vec_push(&ctx->arena, &p->inputs, argument_port(m, i));
    for (uint32_t i = 0; i < f->nresults; i++)
        ap_vec_push(&ctx->arena, &p->outputs, result_port(m, i));
    p->nranks = mesh->first_rank + ap_mesh_ranks(mesh);
    p->microbatches = ap_mesh_microbatches(mesh);
    ap_vec_push(&ctx->arena, &p->stages, (ap_stage){.name = ap_name_make(ctx, "stage0"), .m = m});
    ap_list list = {0};
    ap_vec_push(&ctx->arena, &list.acts, (ap_act){.kind = AP_ACT_LOOP, .turns = p->microbatches, .body = 1});
    ap_vec_push(&ctx->arena, &list.acts, (ap_act){.kind = AP_ACT_RUN});
    ap_vec_push(&ctx->arena, &p->lists, list);
    return p;
}

ap_pipeline *ap_pipeline_clone(const ap_pipeline *p)
{
    ap_arena *a = &p->ctx->arena;
    ap_pipeline *c = ap_pipeline_create(p->ctx, p->name);
    c->nranks = p->nranks;
    c->microbatches = p->microbatches;
    for (uint32_t i = 0; i < p->inputs.len; i++)
        ap_vec_push(a, &c->inputs, p->inputs.at[i]);
    for (uint32_t i = 0; i < p->outputs.len; i++)
        ap_vec_push(a, &c->outputs, p->outputs.at[i]);
    for (uint32_t i = 0; i < p->stages.len; i++) {
        ap_stage s = p->stages.at[i];
        s.m = ap_module_clone(s.m);
        ap_vec_push(a, &c->stages, s);
    }
    for (uint32_t i = 0; i < p->links.len; i++)
        ap_vec_push(a, &c->links, p->links.at[i]);
    for (uint32_t i = 0; i < p->lists.len; i++) {
        ap_list list = {0};
        for (uint32_t k = 0; k < p->lists.at[i].acts.len; k++)
            ap_vec_push(a, &list.acts, p->lists.at[i].acts.at[k]);
        ap_vec_push(a, &c->lists, list);
    }
    return c;
}

ap_state ap_pipeline_state(const ap_pipeline *p)
{
    return p->stages.at[0].m->state;
}

ap_wiring ap_pipeline_wiring(const ap_pipeline *p, ap_arena *arena)
{
    ap_name *stage = AP_NEW_ARRAY(arena, ap_name, p->stages.len);
    for (uint32_t i = 0; i < p->stages.len; i++)
        stage[i] = p->stages.at[i].name;
    return (ap_wiring){.ctx = p->ctx,
                       .microbatches = p->microbatches,
                       .nstages = p->stages.len,
                       .stage = stage,
                       .nwires = p->links.len,
                       .wire = p->links.at};
}

/* ---- what signatures mean ---- */

static bool same_port(const ap_port *a, const ap_port *b)
{
    bool same = a->name == b->name && a->dtype == b->dtype && a->rank == b->rank;
    for (int d = 0; same && d < a->rank; d++)
        same = a->dim[d] == b->dim[d];
    return same;
}

bool ap_pipeline_is_plain(const ap_pipeline *p)
{
    if (p->stages.len != 1 || p->links.len || p->stages.at[0].m->funcs.len != 1 || p->stages.at[0].m->meshes.len != 1)
        return false;
    const ap_module *m = p->stages.at[0].m;
    const ap_func_info *f = &m->funcs.at[0];
    const ap_mesh_info *mesh = &m->meshes.at[0];
    bool plain = f->narguments == p->inputs.len && f->nresults == p->outputs.len &&
                 p->nranks == mesh->first_rank + ap_mesh_ranks(mesh) && p->microbatches == ap_mesh_microbatches(mesh);
    for (uint32_t i = 0; plain && i < f->narguments; i++) {
        ap_port port = argument_port(m, i);
        plain = !f->argument_slot[i] && same_port(&port, &p->inputs.at[i]);
    }
    for (uint32_t i = 0; plain && i < f->nresults; i++) {
        ap_port port = result_port(m, i);
        plain = !f->result_slot[i] && same_port(&port, &p->outputs.at[i]);
    }
    return plain;
}

static uint32_t find_port(uint32_t n, const ap_port *port, ap_name name)
{
    for (uint32_t i = 0; i < n; i++)
        if (port[i].name == name)
            return i;
    return AP_NONE;
}

uint32_t ap_pipeline_input(const ap_pipeline *p, uint32_t stage, uint32_t argument)
{
    const ap_module *m = p->stages.at[stage].m;
    if (m->funcs.at[0].argument_slot[argument])
        return AP_NONE;
    if (p->stages.len == 1 && m->funcs.at[0].narguments == p->inputs.len)
        return argument;
    return find_port(p->inputs.len, p->inputs.at, ap_value_at(m, m->funcs.at[0].argument[argument])->name);
}

uint32_t ap_pipeline_output(const ap_pipeline *p, uint32_t stage, uint32_t result)
{
    const ap_func_info *f = &p->stages.at[stage].m->funcs.at[0];
    if (f->result_slot[result])
        return AP_NONE;
    return p->stages.len == 1 ? result : find_port(p->outputs.len, p->outputs.at, f->result_name[result]);
}

uint32_t ap_pipeline_link(const ap_pipeline *p, uint32_t stage, uint32_t argument)
{
    for (uint32_t i = 0; i < p->links.len; i++)
        if (p->links.at[i].to == stage && p->links.at[i].argument == argument)
            return i;
    return AP_NONE;
}

/* ---- evaluation ---- */

ap_status ap_pipeline_eval(ap_pipeline *p, ap_arena *arena, const ap_tensor *inputs, ap_tensor *outputs)
{
    ap_tensor **made = AP_NEW_ARRAY(arena, ap_tensor *, p->stages.len);
    for (uint32_t s = 0; s < p->stages.len; s++) {
        ap_module *m = p->stages.at[s].m;
        const ap_func_info *f = &m->funcs.at[0];
        ap_tensor *in = AP_NEW_ARRAY(arena, ap_tensor, f->narguments);
        for (uint32_t i = 0; i < f->narguments; i++) {
            const ap_wire *link = f->argument_slot[i] ? &p->links.at[ap_pipeline_link(p, s, i)] : NULL;
            in[i] = link ? made[link->from][link->result] : inputs[ap_pipeline_input(p, s, i)];
        }
        made[s] = AP_NEW_ARRAY(arena, ap_tensor, f->nresults);
        AP_TRY(ap_eval_func(m, 0, arena, in, made[s]));
        for (uint32_t i = 0; i < f->nresults; i++)
            if (!f->result_slot[i])
                outputs[ap_pipeline_output(p, s, i)] = made[s][i];
    }
    return AP_OK;
}
