/* plan.txt: what was chosen, for people. One line a tensor, one a node; stable and diffable. */
#include "driver/plan_file.h"

#include "ir/op.h"
#include "ir/text_form.h"
#include "passes/reshard.h"

#include <inttypes.h>
#include <string.h>

typedef struct report {
    ap_ctx *ctx;
    ap_module *m;
    const ap_cluster *cluster;
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

static void add_header(report *r, const ap_plan_result *p, const char *model, const char *digest)
{
    const ap_mesh_info *mesh = &r->m->meshes.at[0];
    ap_text_addf(r->t, "plan of %s (digest %s)\nmachine ", model, digest);
    add_machine(r);
    ap_text_addf(r->t, "mesh @%s = [", ap_name_str(r->ctx, mesh->name));
    for (int a = mesh->ntime; a < mesh->naxes; a++)
        ap_text_addf(r->t, "%s%s=%d", a > mesh->ntime ? ", " : "", ap_name_str(r->ctx, mesh->axis_name[a]),
                     mesh->axis_size[a]);
    ap_text_add(r->t, "]\npredicted ");
    if (mesh->ntime)
        ap_text_addf(r->t, "%.6f ms: %d microbatch(es) of ", (double)ap_plan_run_ps(r->m, p->cost_ps) * 1e-9,
                     ap_mesh_microbatches(mesh));
    ap_text_addf(r->t, "%.6f ms: compute %.6f, communication %.6f\n", (double)p->cost_ps * 1e-9,
                 (double)p->compute_ps * 1e-9, (double)p->communication_ps * 1e-9);
    ap_text_addf(r->t, "solver: bound %.6f ms, gap %g, proven by %s; %u variables, %u strategies, %u edges\n",
                 (double)p->bound_ps * 1e-9,
                 p->cost_ps > 0 ? (double)(p->cost_ps - p->bound_ps) / (double)p->cost_ps : 0.0,
                 p->proof && *p->proof ? p->proof : "nobody", p->variables, p->strategies, p->edges);
    ap_text_addf(r->t, "memory per device: %" PRId64 " bytes at the peak, of which %" PRId64 " parameters\n",
                 p->peak_bytes, p->param_bytes);
    ap_text_addf(r->t, "sharded part of the contraction FLOPs: %.4f\n", p->sharded_flops_fraction);
}

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

ap_status ap_plan_report(ap_ctx *ctx, ap_module *m, const ap_cluster *c, const ap_plan_result *p, const char *model,
                         const char *digest, const char **out)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    report r = {.ctx = ctx, .m = m, .cluster = c, .t = &t};
    r.resharder = ap_resharder_create(&ctx->scratch, m, c);
    add_header(&r, p, model, digest);
    ap_text_add(&t, "\ntensors\n");
    for (ap_func f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.at[f].narguments; i++)
            add_tensor(&r, "input", m->funcs.at[f].argument[i]);
    for (ap_symbol s = 0; s < m->symbols.len; s++)
        if (m->symbols.at[s].kind != AP_SYMBOL_KIND_COUNT)
            add_tensor(&r, "param", m->symbols.at[s].value);
    for (ap_func f = 0; f < m->funcs.len; f++) {
        const ap_block_info *body = ap_block_at(m, m->funcs.at[f].body);
        const ap_node_info *ret = ap_node_at(m, body->nodes.at[body->nodes.len - 1]);
        for (uint32_t i = 0; i < ret->nin; i++)
            add_tensor(&r, "output", ret->in[i]);
        ap_text_addf(&t, "\nnodes of @%s\n", ap_name_str(ctx, m->funcs.at[f].name));
        for (uint32_t i = 0; i < body->nodes.len; i++)
            add_node(&r, body->nodes.at[i]);
    }
    add_collectives(&r);
    *out = ap_text_str(&t);
    return AP_OK;
}
