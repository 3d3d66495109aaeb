/* plan.txt: what was chosen, for people. One line a tensor, one a node; stable and diffable. Of several stages first
 * how they fit together, then one after the other. */
#include "driver/plan_file.h"

#include "ir/op.h"
#include "ir/text_form.h"
#include "passes/reshard.h"

#include <inttypes.h>
#include <string.h>

typedef struct report {
    ap_ctx *ctx;
    const ap_pipeline *p;
    const ap_pipe_result *result;
    const ap_cluster *cluster; /* the whole */
    ap_module *m;              /* of the stage that is being told */
    ap_resharder *resharder;
    ap_text *t;
    int64_t steps[AP_OP_COUNT], step_ps[AP_OP_COUNT];
} report;

static const char *value_label(report *r, ap_value v)
{
    const ap_value_info *info = ap_value_at(r->m, v);
    if (info->name)
        return ap_name_str(r->ctx, info->name);
    if (info->kind == AP_VALUE_RESULT) {
        ap_loc_info l = ap_loc_get(r->ctx, ap_node_at(r->m, info->def)->loc);
        if (l.node)
            return ap_name_str(r->ctx, l.node);
    }
    return ap_name_str(r->ctx, ap_name_format(r->ctx, "%%%u", v));
}

static const char *local_shape(report *r, ap_type t)
{
    ap_type_info i = ap_type_get(r->ctx, t);
    ap_shape_info local;
    ap_text s;
    ap_text_init(&s, &r->ctx->scratch);
    if (ap_mesh_local_shape(&r->m->meshes.at[0], ap_shape_get(r->ctx, i.shape), ap_sharding_get(r->ctx, i.sharding),
                            &local))
        ap_shape_print(&local, &s);
    return ap_text_str(&s);
}

static void add_tensor(report *r, const char *what, ap_value v)
{
    ap_text type;
    ap_text_init(&type, &r->ctx->scratch);
    ap_type_print(r->m, ap_value_type(r->m, v), &type);
    ap_type_info i = ap_type_get(r->ctx, ap_value_type(r->m, v));
    ap_text_addf(r->t, "  %-8s %-44s %-44s local %-20s %12" PRId64 " bytes\n", what, value_label(r, v),
                 ap_text_str(&type), local_shape(r, ap_value_type(r->m, v)),
                 ap_local_bytes(r->m, i.dtype, i.shape, i.sharding));
}

static void add_reshard(report *r, const ap_node_info *n)
{
    ap_type_info from = ap_type_get(r->ctx, ap_value_type(r->m, n->in[0]));
    ap_type_info to = ap_type_get(r->ctx, ap_value_type(r->m, n->out[0]));
    const ap_reshard_path *path;
    if (!ap_reshard_find(r->resharder, from.dtype, from.shape, from.sharding, to.sharding, &path))
        return;
    ap_text_addf(r->t, "  reshard  %-44s ", value_label(r, n->in[0]));
    ap_sharding_print(r->m, from.shape, from.sharding, r->t);
    ap_text_add(r->t, " -> ");
    ap_sharding_print(r->m, to.shape, to.sharding, r->t);
    ap_text_addf(r->t, "  %.3f us:", (double)path->cost * 1e-6);
    for (int s = 0; s < path->nsteps; s++) {
        ap_op op = path->step[s].op;
        ap_text_addf(r->t, "%s %s", s ? "," : "", ap_op_get(op)->name);
        r->steps[op]++;
        r->step_ps[op] += path->step[s].cost;
    }
    ap_text_add(r->t, "\n");
}

/* Values that a composite completes inside. */
static void add_inner(report *r, ap_block body)
{
    const ap_block_info *b = ap_block_at(r->m, body);
    for (uint32_t i = 0; i < b->nodes.len; i++) {
        const ap_node_info *n = ap_node_at(r->m, b->nodes.at[i]);
        if (n->body != AP_NONE)
            add_inner(r, n->body);
        if (ap_op_get(n->op)->planned)
            add_reshard(r, n);
    }
}

static void add_node(report *r, ap_node id)
{
    const ap_node_info *n = ap_node_at(r->m, id);
    const ap_op_info *op = ap_op_get(n->op);
    if (op->terminator)
        return;
    if (op->planned) {
        add_reshard(r, n);
        return;
    }
    ap_text type;
    ap_text_init(&type, &r->ctx->scratch);
    for (uint32_t i = 0; i < n->nout; i++)
        ap_type_print(r->m, ap_value_type(r->m, n->out[i]), &type);
    const char *name = op->has_body ? ap_name_str(r->ctx, n->u.composite) : op->name;
    ap_text_addf(r->t, "  %-8.24s %-44s %s\n", name, value_label(r, n->out[0]), ap_text_str(&type));
    if (n->body != AP_NONE)
        add_inner(r, n->body);
}

/* A plan over unlike hosts is priced by what is slowest of each: all devices do the same work at the same time. */
static void add_machine(report *r)
{
    const ap_cluster *c = r->cluster;
    if (c->ngroups == 0) {
        ap_text_addf(r->t, "%s: %d host(s) of %d device(s)\n", c->name, c->hosts, c->devices_per_host);
        return;
    }
    ap_text_addf(r->t, "%s: ", c->name);
    for (int32_t g = 0; g < c->ngroups; g++)
        ap_text_addf(r->t, "%s%d host(s) of %d device(s)", g ? ", " : "", c->group[g].hosts,
                     c->group[g].devices_per_host);
    ap_text_add(r->t, ", of several kinds; a stage on several is priced by the slowest device and link\n");
}

static double ms(int64_t ps)
{
    return (double)ps * 1e-9;
}

/* "[x=2, y=4]" */
static void add_axes(report *r, const ap_mesh_info *mesh)
{
    ap_text_add(r->t, "[");
    for (int a = mesh->ntime; a < mesh->naxes; a++)
        ap_text_addf(r->t, "%s%s=%d", a > mesh->ntime ? ", " : "", ap_name_str(r->ctx, mesh->axis_name[a]),
                     mesh->axis_size[a]);
    ap_text_add(r->t, "]");
}

static void add_times(report *r)
{
    const ap_plan_result *total = &r->result->total, *one = &r->result->stage[0].plan;
    int32_t microbatches = r->p->microbatches;
    ap_text_addf(r->t, "predicted %.6f ms: ", ms(total->cost_ps));
    if (r->p->stages.len > 1) {
        ap_text_addf(r->t, "%d microbatch(es) through %u stages\n", microbatches, r->p->stages.len);
        return;
    }
    if (microbatches > 1)
        ap_text_addf(r->t, "%d microbatch(es) of %.6f ms: ", microbatches, ms(one->cost_ps));
    ap_text_addf(r->t, "compute %.6f, communication %.6f\n", ms(one->compute_ps), ms(one->communication_ps));
}

static void add_header(report *r, const char *model, const char *digest)
{
    const ap_plan_result *p = &r->result->total;
    ap_text_addf(r->t, "plan of %s (digest %s)\nmachine ", model, digest);
    add_machine(r);
    int64_t idle = ap_idle_devices(r->p, r->cluster), all = ap_cluster_devices(r->cluster);
    if (idle > 0)
        ap_text_addf(r->t, "idle: %" PRId64 " of %" PRId64 " devices have no work\n", idle, all);
    if (r->p->stages.len == 1) {
        ap_text_addf(r->t, "mesh @%s = ", ap_name_str(r->ctx, ap_stage_mesh(&r->p->stages.at[0])->name));
        add_axes(r, ap_stage_mesh(&r->p->stages.at[0]));
        ap_text_add(r->t, "\n");
    }
    add_times(r);
    ap_text_addf(r->t, "solver: bound %.6f ms, gap %g, proven by %s; %u variables, %u strategies, %u edges\n",
                 ms(p->bound_ps), p->cost_ps > 0 ? (double)(p->cost_ps - p->bound_ps) / (double)p->cost_ps : 0.0,
                 p->proof && *p->proof ? p->proof : "nobody", p->variables, p->strategies, p->edges);
    ap_text_addf(r->t, "memory per device: %" PRId64 " bytes at the peak, of which %" PRId64 " parameters\n",
                 p->peak_bytes, p->param_bytes);
    ap_text_addf(r->t, "sharded part of the contraction FLOPs: %.4f\n", p->sharded_flops_fraction);
}

/* ---- how stages fit together ---- */

static void add_stages(report *r)
{
    ap_text_addf(r->t, "\nstages, per microbatch\n  %-10s %-12s %8s %14s %14s %14s %14s %14s %14s  %s\n", "", "ranks",
                 "nodes", "compute ms", "exchange ms", "arrival ms", "peak bytes", "parameters", "slots", "mesh");
    for (uint32_t s = 0; s < r->p->stages.len; s++) {
        const ap_stage_result *x = &r->result->stage[s];
        const ap_mesh_info *mesh = ap_stage_mesh(&r->p->stages.at[s]);
        char ranks[32];
        snprintf(ranks, sizeof ranks, "%d..%d", mesh->first_rank, mesh->first_rank + ap_mesh_ranks(mesh) - 1);
        ap_text_addf(r->t, "  %-10s %-12s %8u %14.6f %14.6f %14.6f %14" PRId64 " %14" PRId64 " %14" PRId64 "  ",
                     ap_name_str(r->ctx, r->p->stages.at[s].name), ranks, x->nodes, ms(x->plan.compute_ps),
                     ms(x->plan.communication_ps), ms(x->arrival_ps), x->plan.peak_bytes, x->plan.param_bytes,
                     x->plan.slot_bytes);
        add_axes(r, mesh);
        ap_text_add(r->t, "\n");
    }
}

static void add_links(report *r)
{
    ap_text_add(r->t, "\nlinks\n");
    for (uint32_t i = 0; i < r->p->links.len; i++) {
        const ap_wire *w = &r->p->links.at[i];
        const ap_stage *from = &r->p->stages.at[w->from], *to = &r->p->stages.at[w->to];
        ap_text_addf(r->t, "  %-44s %s -> %s  ", ap_name_str(r->ctx, w->slot), ap_name_str(r->ctx, from->name),
                     ap_name_str(r->ctx, to->name));
        ap_type_print(from->m, from->m->funcs.at[0].result[w->result], r->t);
        ap_type_info t = ap_type_get(r->ctx, ap_value_type(to->m, to->m->funcs.at[0].argument[w->argument]));
        ap_text_add(r->t, " -> ");
        ap_sharding_print(to->m, t.shape, t.sharding, r->t);
        ap_text_addf(r->t, "  depth %d,%d\n", w->from_depth, w->to_depth);
    }
}

/* ---- one stage ---- */

static void add_collectives(report *r)
{
    ap_text_add(r->t, "\nresharding steps\n");
    bool any = false;
    for (int op = 0; op < AP_OP_COUNT; op++)
        if (r->steps[op]) {
            any = true;
            ap_text_addf(r->t, "  %-16s %6" PRId64 " times %16.3f us\n", ap_op_get((ap_op)op)->name, r->steps[op],
                         (double)r->step_ps[op] * 1e-6);
        }
    if (!any)
        ap_text_add(r->t, "  none\n");
}

static void add_stage(report *r, uint32_t stage)
{
    ap_module *m = r->m = r->p->stages.at[stage].m;
    const ap_func_info *f = &m->funcs.at[0];
    const ap_mesh_info *mesh = &m->meshes.at[0];
    const ap_block_info *body = ap_block_at(m, f->body);
    const ap_node_info *ret = ap_node_at(m, body->nodes.at[body->nodes.len - 1]);
    ap_cluster part;
    ap_cluster_part(r->cluster, mesh->first_rank, ap_mesh_ranks(mesh), &part);
    r->resharder = ap_resharder_create(&r->ctx->scratch, m, &part);
    memset(r->steps, 0, sizeof r->steps);
    memset(r->step_ps, 0, sizeof r->step_ps);
    ap_text_add(r->t, "\ntensors");
    if (r->p->stages.len > 1)
        ap_text_addf(r->t, " of @%s", ap_name_str(r->ctx, r->p->stages.at[stage].name));
    ap_text_add(r->t, "\n");
    for (uint32_t i = 0; i < f->narguments; i++)
        add_tensor(r, f->argument_slot[i] ? "slot" : "input", f->argument[i]);
    for (ap_symbol s = 0; s < m->symbols.len; s++)
        if (m->symbols.at[s].kind != AP_SYMBOL_KIND_COUNT)
            add_tensor(r, "param", m->symbols.at[s].value);
    for (uint32_t i = 0; i < ret->nin; i++)
        add_tensor(r, f->result_slot[i] ? "slot" : "output", ret->in[i]);
    ap_text_addf(r->t, "\nnodes of @%s\n", ap_name_str(r->ctx, f->name));
    for (uint32_t i = 0; i < body->nodes.len; i++)
        add_node(r, body->nodes.at[i]);
    add_collectives(r);
}

ap_status ap_plan_report(ap_ctx *ctx, const ap_pipeline *p, const ap_cluster *c, const ap_pipe_result *result,
                         const char *model, const char *digest, const char **out)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    report r = {.ctx = ctx, .p = p, .result = result, .cluster = c, .t = &t};
    add_header(&r, model, digest);
    if (p->stages.len > 1) {
        add_stages(&r);
        add_links(&r);
    }
    for (uint32_t s = 0; s < p->stages.len; s++)
        add_stage(&r, s);
    *out = ap_text_str(&t);
    return AP_OK;
}

ap_status ap_job_report(ap_job *job, const char **out)
{
    const char *slash = strrchr(job->opt->subject, '/');
    return ap_plan_report(job->ctx, job->p, &job->request.plan.cluster, &job->result,
                          slash ? slash + 1 : job->opt->subject, job->digest, out);
}
