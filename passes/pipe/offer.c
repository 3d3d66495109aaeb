/* Sub-meshes, views, prices of memory; and the problem that the DP over stages gets. */
#include "passes/pipe/offer.h"

#include "ir/base/text.h"
#include "passes/batch.h"

#include <string.h>

enum {
    SHAPES = 256,
    VIEWS = 64, /* of one shape */
};

/* ---- groups, shapes, views ---- */

static uint32_t group_count(const ap_cluster *c)
{
    return c->ngroups ? (uint32_t)c->ngroups : 1;
}

static const ap_cluster *group_at(const ap_cluster *c, uint32_t g)
{
    return c->ngroups ? &c->group[g] : c;
}

static void list_groups(ap_offer *o)
{
    const ap_cluster *c = &o->in->opt->cluster;
    uint32_t n = group_count(c);
    ap_stages_group *group = AP_NEW_ARRAY(o->arena, ap_stages_group, n);
    o->first_rank = AP_NEW_ARRAY(o->arena, int32_t, n + 1);
    for (uint32_t g = 0; g < n; g++) {
        const ap_cluster *x = group_at(c, g);
        int64_t memory = o->in->opt->memory > 0 ? o->in->opt->memory : x->memory_bytes;
        group[g] = (ap_stages_group){x->hosts, x->devices_per_host, memory};
        o->first_rank[g + 1] = o->first_rank[g] + x->hosts * x->devices_per_host;
    }
    o->problem.ngroups = n;
    o->problem.group = group;
}

/* Several hosts: powers of two of them, or all. */
static bool is_worth(const ap_stages_shape *s, int32_t hosts)
{
    return s->hosts == hosts || (s->hosts & (s->hosts - 1)) == 0;
}

/* A given mesh is the only view of shapes with so many devices. */
static bool is_asked(const ap_mesh_info *mesh, const ap_pipe_view *v)
{
    if (!mesh)
        return true;
    int64_t sizes[AP_MAX_AXES];
    int n = 0;
    for (int a = 0; a < mesh->naxes; a++)
        if (mesh->axis_size[a] > 1)
            sizes[n++] = mesh->axis_size[a];
    if (n != v->naxes)
        return false;
    for (int a = 0; a < n; a++)
        if (sizes[a] != v->size[a])
            return false;
    return true;
}

static ap_pipe_view view_of_shape(ap_stages_view v, int32_t first_rank, int32_t microbatches)
{
    ap_pipe_view out = {.first_rank = first_rank, .microbatches = microbatches};
    if (v.rows > 1)
        out.size[out.naxes++] = v.rows;
    if (v.columns > 1)
        out.size[out.naxes++] = v.columns;
    return out;
}

/* Views of two axes: inside one host all; of several, rows are hosts or halves of them. */
static bool is_fine_view(ap_stages_shape s, ap_stages_view v)
{
    return s.hosts == 1 || v.rows == s.hosts || v.rows == 2 * s.hosts;
}

static void add_shape(ap_offer *o, uint32_t group, ap_stages_shape s, bool fine)
{
    ap_stages_view views[VIEWS];
    const ap_mesh_info *mesh = o->in->search->mesh;
    uint32_t n = ap_stages_views(s, true, views, VIEWS);
    n = n < VIEWS ? n : VIEWS;
    bool flat = false;
    for (uint32_t i = 0; i < n; i++) {
        ap_pipe_view v = view_of_shape(views[i], o->first_rank[group], o->microbatches);
        bool two = v.naxes == 2;
        if (!is_asked(mesh, &v) || (!two && flat) || (two && !mesh && (!fine || !is_fine_view(s, views[i]))))
            continue;
        flat = flat || !two;
        o->view[o->nviews] = (ap_offer_view){.view = v, .group = group, .shape = s, .number = o->nviews};
        o->nviews++;
    }
    if (!flat && s.hosts > 1 && !mesh) { /* one axis over hosts, too */
        ap_pipe_view v = view_of_shape((ap_stages_view){1, s.hosts * s.devices}, o->first_rank[group], o->microbatches);
        o->view[o->nviews] = (ap_offer_view){.view = v, .group = group, .shape = s, .number = o->nviews};
        o->nviews++;
    }
}

static void list_views(ap_offer *o, bool fine)
{
    const ap_cluster *c = &o->in->opt->cluster;
    o->view = AP_NEW_ARRAY(o->arena, ap_offer_view, (size_t)group_count(c) * SHAPES * 4);
    for (uint32_t g = 0; g < group_count(c); g++) {
        ap_stages_shape shapes[SHAPES];
        const ap_cluster *x = group_at(c, g);
        uint32_t n = ap_stages_shapes(x->hosts, x->devices_per_host, shapes, SHAPES);
        for (uint32_t i = 0; i < n && i < SHAPES && o->nviews + VIEWS < group_count(c) * SHAPES * 4; i++)
            if (is_worth(&shapes[i], x->hosts))
                add_shape(o, g, shapes[i], fine);
    }
}

/* ---- tables ---- */

static uint32_t batch_factor(const ap_offer *o, ap_value v)
{
    if (!o->in->batch)
        return 0; /* a guess that orders labels, no more */
    return o->in->batch->factor[v] == AP_NO_BATCH ? AP_NONE : (uint32_t)o->in->batch->factor[v];
}

static void list_labels(ap_offer *o, ap_offer_view *v)
{
    const ap_layers *l = o->in->l;
    v->nlabels = AP_NEW_ARRAY(o->arena, uint32_t, l->n + 1);
    v->label = AP_NEW_ARRAY(o->arena, ap_label, (size_t)(l->n + 1) * AP_LABELS_MAX);
    for (uint32_t b = 0; b <= l->n; b++) {
        ap_value x = l->largest[b];
        const ap_shape_info *shape = x == AP_NONE ? NULL : ap_value_shape(o->in->m, x);
        uint32_t batch = x == AP_NONE ? AP_NONE : batch_factor(o, x);
        v->nlabels[b] = ap_labels_list(&v->view, shape, batch, &v->label[(size_t)b * AP_LABELS_MAX]);
    }
}

/* What it takes to bring a MiB over the slowest link of the sub-mesh, and a few times that: from "split what is as fast
 * split" to "split all that can be". */
static uint32_t list_prices(const ap_offer *o, const ap_offer_view *v, bool fine, int64_t *out)
{
    int32_t n = ap_pipe_view_ranks(&v->view);
    out[0] = 0;
    if (n == 1)
        return 1;
    ap_level level = ap_cluster_level(&o->in->opt->cluster, v->view.first_rank, v->view.first_rank + n - 1);
    int64_t rate = ap_max_i64(ap_level_rate(&level, v->shape.devices), 1);
    int64_t mib = (int64_t)((__int128)1000000000000 * (1 << 20) / rate);
    out[1] = ap_max_i64(16 * ap_min_i64(mib, INT64_MAX >> 16), 1);
    if (!fine)
        return 2;
    out[2] = out[1];
    out[1] = ap_max_i64(mib / 8, 1);
    return 3;
}

static ap_status fill_tables(ap_ctx *ctx, ap_offer *o, bool fine)
{
    uint32_t nforms = o->in->forms->n;
    ap_layer_task *task = AP_NEW_ARRAY(o->arena, ap_layer_task, (size_t)o->nviews * nforms);
    for (uint32_t k = 0; k < o->nviews; k++) {
        ap_offer_view *v = &o->view[k];
        list_labels(o, v);
        int64_t *price = AP_NEW_ARRAY(o->arena, int64_t, AP_PRICES_MAX);
        v->nprices = list_prices(o, v, fine, price);
        v->task = &task[(size_t)k * nforms];
        for (uint32_t f = 0; f < nforms; f++) {
            uint32_t b = o->in->forms->at[f].layer;
            v->task[f] = (ap_layer_task){.form = &o->in->forms->at[f],
                                         .cluster = &o->in->opt->cluster,
                                         .view = v->view,
                                         .nin = v->nlabels[b],
                                         .nout = v->nlabels[b + 1],
                                         .in = &v->label[(size_t)b * AP_LABELS_MAX],
                                         .out = &v->label[(size_t)(b + 1) * AP_LABELS_MAX],
                                         .nprices = v->nprices,
                                         .price = price};
            ap_layer_task_make(o->arena, &v->task[f]);
        }
    }
    o->ntables = o->nviews * nforms;
    AP_TRY(ap_layer_tasks_run(ctx, task, o->ntables, o->in->opt->threads));
    for (uint32_t k = 0; k < o->nviews; k++)
        for (uint32_t f = 0; f < nforms; f++)
            o->view[k].out = o->view[k].out || o->view[k].task[f].wide;
    return AP_OK;
}

/* Do all tables of a view say the same for two prices? */
static bool same_tables(const ap_offer *o, const ap_offer_view *v, uint32_t a, uint32_t b)
{
    for (uint32_t f = 0; f < o->in->forms->n; f++) {
        const ap_layer_task *t = &v->task[f];
        size_t n = (size_t)t->nin * t->nout, bytes = n * sizeof(int64_t);
        if (memcmp(t->time + a * n, t->time + b * n, bytes) != 0 ||
            memcmp(t->resident + a * n, t->resident + b * n, bytes) != 0 ||
            memcmp(t->peak + a * n, t->peak + b * n, bytes) != 0)
            return false;
    }
    return true;
}

/* ---- the problem ---- */

typedef struct choices {
    AP_VEC(ap_stages_choice) at;
    AP_VEC(const ap_offer_view *) view;
    AP_VEC(uint32_t) price;
} choices;

static void list_choices(ap_offer *o, choices *c)
{
    for (uint32_t k = 0; k < o->nviews; k++) {
        const ap_offer_view *v = &o->view[k];
        for (uint32_t p = 0; p < v->nprices && !v->out; p++) {
            if (p > 0 && same_tables(o, v, p, p - 1))
                continue;
            ap_vec_push(o->arena, &c->at,
                        (ap_stages_choice){v->group, v->shape.hosts, v->shape.devices, v->task[0].price[p]});
            ap_vec_push(o->arena, &c->view, v);
            ap_vec_push(o->arena, &c->price, p);
        }
    }
}

static void set_problem(ap_offer *o, const choices *c)
{
    const ap_layers *l = o->in->l;
    uint32_t n = c->at.len;
    uint32_t *nlabels = AP_NEW_ARRAY(o->arena, uint32_t, (size_t)(l->n + 1) * n);
    ap_stages_table *table = AP_NEW_ARRAY(o->arena, ap_stages_table, (size_t)l->n * n);
    const int64_t **slot = AP_NEW_ARRAY(o->arena, const int64_t *, (size_t)(l->n + 1) * n);
    for (uint32_t b = 0; b <= l->n; b++)
        for (uint32_t i = 0; i < n; i++) {
            const ap_offer_view *v = c->view.at[i];
            nlabels[(size_t)b * n + i] = v->nlabels[b];
            slot[(size_t)b * n + i] = v->slot[b];
            if (b == l->n)
                continue;
            const ap_layer_task *t = &v->task[o->in->forms->of[b]];
            size_t at = (size_t)c->price.at[i] * t->nin * t->nout;
            table[(size_t)b * n + i] = (ap_stages_table){t->time + at, t->resident + at, t->peak + at};
        }
    int32_t depth = o->microbatches > 1 ? 2 : 1;
    o->view_of = c->view.at;
    o->problem.nlayers = l->n;
    o->problem.nchoices = n;
    o->problem.choice = c->at.at;
    o->problem.nlabels = nlabels;
    o->problem.table = table;
    o->problem.slot = slot;
    o->problem.in_depth = o->problem.out_depth = depth;
    /* With one microbatch all cuts take the same time; stages that were asked for are made even, as if a second one
     * followed. */
    bool even = o->microbatches == 1 && o->in->search->nstages > 1 && !o->in->search->latency;
    o->problem.microbatches = even ? 2 : o->microbatches;
    o->problem.nstages = o->in->search->nstages;
    o->problem.stage_of = o->in->stage_of;
}

/* ---- when there is nothing ---- */

static ap_status no_view(ap_ctx *ctx, const ap_offer_input *in)
{
    const ap_cluster *c = &in->opt->cluster;
    const ap_mesh_info *mesh = in->search->mesh;
    ap_text shape;
    ap_text_init(&shape, &ctx->scratch);
    for (int a = 0; mesh && a < mesh->naxes; a++)
        ap_text_addf(&shape, "%s%d", a ? "x" : "", mesh->axis_size[a]);
    return ap_fail(ctx, AP_ERR_USAGE, 0,
                   "--mesh %s: no part of cluster %s (%d hosts of %d devices) is such a mesh: a stage has a part of a "
                   "host, or whole hosts of one kind, and one or two axes",
                   ap_text_str(&shape), c->name, c->hosts, c->devices_per_host);
}

/* Where the first layer begins that is too wide for some view. */
static ap_loc widest(const ap_offer *o)
{
    for (uint32_t f = 0; f < o->in->forms->n; f++)
        for (uint32_t k = 0; k < o->nviews; k++)
            if (o->view[k].task[f].wide)
                return o->in->forms->at[f].loc;
    return 0;
}

/* ---- all of it ---- */

ap_status ap_offer_make(ap_ctx *ctx, ap_arena *arena, const ap_offer_input *in, int32_t microbatches, bool fine,
                        ap_offer *out)
{
    *out = (ap_offer){.in = in, .arena = arena, .microbatches = microbatches};
    list_groups(out);
    list_views(out, fine);
    if (out->nviews == 0)
        return no_view(ctx, in);
    AP_TRY(fill_tables(ctx, out, fine));
    ap_offer_transfers(out);
    choices c = {0};
    list_choices(out, &c);
    if (c.at.len == 0)
        return ap_fail(ctx, AP_ERR_NO_PLAN, widest(out),
                       "no plan: too many strategies of the layer that begins here depend on each other on every "
                       "part of cluster %s; one stage (--stages 1 --mesh N) is planned without tables",
                       in->opt->cluster.name);
    set_problem(out, &c);
    return AP_OK;
}
