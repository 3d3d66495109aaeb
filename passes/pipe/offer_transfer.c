/* Boundaries between stages: what one slot holds under each label, and what it takes to send a microbatch from one
 * sub-mesh to another. All values that cross are taken to be sharded like the largest one. */
#include "passes/batch.h"
#include "passes/pipe/offer.h"
#include "passes/pipe/transfer.h"

#include <string.h>

enum { LISTED = 64 }; /* pairs of ranks */

static ap_value largest_at(const ap_offer *o, uint32_t b)
{
    return o->in->l->largest[b];
}

/* Of all values that cross, whole. */
static int64_t all_bytes(const ap_offer *o, uint32_t b)
{
    return ap_max_i64(o->in->l->bytes[b], 1);
}

/* The value of one microbatch under a label: extents, padded to whole parts. */
static ap_shape_info shape_of(const ap_offer *o, const ap_offer_view *v, uint32_t b, const ap_label *l)
{
    ap_value x = largest_at(o, b);
    ap_shape_info s = *ap_value_shape(o->in->m, x);
    for (int f = 0; f < s.nfactors; f++) {
        bool batch = o->microbatches > 1 && o->in->batch->factor[x] == f;
        if (batch)
            s.logical[f] = (s.logical[f] + o->microbatches - 1) / o->microbatches;
        int64_t parts = 1;
        for (int i = 0; i < ap_axes_count(l->axes[f]); i++)
            parts *= v->view.size[ap_axes_get(l->axes[f], i)];
        s.physical[f] = ap_sat_mul((s.logical[f] + parts - 1) / parts, parts);
    }
    return s;
}

static int64_t element_bytes(const ap_offer *o, uint32_t b)
{
    return ap_dtype_bytes(ap_type_dtype(o->in->m->ctx, ap_value_type(o->in->m, largest_at(o, b))));
}

/* ---- slots ---- */

static int64_t scaled(int64_t x, int64_t by, int64_t of)
{
    __int128 r = ((__int128)x * by + of - 1) / of;
    return r > INT64_MAX / 4 ? INT64_MAX / 4 : (int64_t)r;
}

static void find_slots(ap_offer *o, ap_offer_view *v)
{
    const ap_layers *l = o->in->l;
    v->slot = AP_NEW_ARRAY(o->arena, int64_t *, l->n + 1);
    for (uint32_t b = 0; b <= l->n; b++) {
        if (largest_at(o, b) == AP_NONE)
            continue;
        int64_t whole = ap_type_bytes(o->in->m->ctx, ap_value_type(o->in->m, largest_at(o, b)));
        v->slot[b] = AP_NEW_ARRAY(o->arena, int64_t, v->nlabels[b]);
        for (uint32_t i = 0; i < v->nlabels[b]; i++) {
            const ap_label *label = &v->label[(size_t)b * AP_LABELS_MAX + i];
            ap_shape_info s = shape_of(o, v, b, label);
            int64_t count = 1;
            for (int f = 0; f < s.nfactors; f++)
                count = ap_sat_mul(count, s.physical[f]);
            int64_t bytes = ap_sat_mul(count / ap_label_parts(&v->view, label), element_bytes(o, b));
            v->slot[b][i] = ap_align_bytes(scaled(bytes, all_bytes(o, b), ap_max_i64(whole, 1)));
        }
    }
}

/* ---- transfers ---- */

static bool same_boundary(const ap_offer *o, uint32_t a, uint32_t b)
{
    ap_value x = largest_at(o, a), y = largest_at(o, b);
    if (x == AP_NONE || y == AP_NONE)
        return x == y;
    const ap_batch *batch = o->in->batch;
    return ap_value_type(o->in->m, x) == ap_value_type(o->in->m, y) && all_bytes(o, a) == all_bytes(o, b) &&
           (!batch || batch->factor[x] == batch->factor[y]);
}

static void find_classes(ap_offer *o)
{
    uint32_t n = o->in->l->n + 1, *first = AP_NEW_ARRAY(o->arena, uint32_t, n);
    o->boundary_class = AP_NEW_ARRAY(o->arena, uint32_t, n);
    for (uint32_t b = 0; b < n; b++) {
        uint32_t c = 0;
        while (c < o->nclasses && !same_boundary(o, first[c], b))
            c++;
        if (c == o->nclasses)
            first[o->nclasses++] = b;
        o->boundary_class[b] = c;
    }
}

/* Where the later of two stages begins when the earlier one has the first ranks of its group; -1: they do not fit. */
static int32_t place(const ap_offer *o, const ap_offer_view *from, const ap_offer_view *to, ap_near near)
{
    const ap_stages_group *g = &o->problem.group[from->group];
    int32_t n = ap_pipe_view_ranks(&from->view), m = ap_pipe_view_ranks(&to->view);
    if (near == AP_NEAR_GROUPS)
        return o->first_rank[to->group];
    if (near == AP_NEAR_HOST)
        return from->shape.hosts == 1 && n + m <= g->devices ? o->first_rank[from->group] + n : -1;
    bool fits = from->shape.hosts + to->shape.hosts <= g->hosts;
    return fits ? o->first_rank[from->group] + from->shape.hosts * g->devices : -1;
}

static ap_sharding_info sharding_of(const ap_label *l)
{
    ap_sharding_info s = {.mesh = 0, .nfactors = l->nfactors};
    memcpy(s.axes, l->axes, sizeof s.axes);
    return s;
}

static bool is_in_one_island(const ap_cluster *c, const ap_mesh_info *a, const ap_mesh_info *b)
{
    int32_t last = b->first_rank + ap_mesh_ranks(b) - 1; /* the later one */
    return ap_cluster_host(c, a->first_rank) == ap_cluster_host(c, last) &&
           ap_cluster_island(c, a->first_rank) == ap_cluster_island(c, last);
}

/* Pieces between large sub-meshes are many, and there are many such pairs; inside an island they need not be listed. */
static int64_t price_sides(const ap_offer *o, const ap_transfer_side *from, const ap_transfer_side *to, int64_t bytes)
{
    const ap_cluster *c = &o->in->opt->cluster;
    ap_ctx *ctx = o->in->m->ctx;
    bool large = ap_mesh_ranks(from->mesh) > LISTED / ap_mesh_ranks(to->mesh);
    if (large && is_in_one_island(c, from->mesh, to->mesh))
        return ap_transfer_estimate(c, from, to, bytes);
    ap_arena scratch;
    ap_arena_init(&scratch, ctx->scratch.out_of_memory, ctx->scratch.user);
    int64_t ps = ap_transfer_cost(c, &scratch, from, to, bytes);
    ap_arena_deinit(&scratch);
    return ps;
}

static int64_t price(ap_offer *o, uint32_t b, const ap_offer_view *from, uint32_t out, const ap_offer_view *to,
                     uint32_t in, ap_near near)
{
    ap_ctx *ctx = o->in->m->ctx;
    int32_t at = place(o, from, to, near);
    if (at < 0)
        return AP_STAGES_NONE;
    if (largest_at(o, b) == AP_NONE)
        return 0; /* nothing crosses */
    const ap_label *a = &from->label[(size_t)b * AP_LABELS_MAX + out];
    const ap_label *z = &to->label[(size_t)b * AP_LABELS_MAX + in];
    ap_pipe_view va = from->view, vz = to->view;
    va.microbatches = vz.microbatches = 1;
    vz.first_rank = at;
    ap_mesh_info ma = ap_pipe_view_mesh(ctx, &va), mz = ap_pipe_view_mesh(ctx, &vz);
    ap_shape_info sa = shape_of(o, from, b, a), sz = shape_of(o, to, b, z);
    ap_sharding_info ha = sharding_of(a), hz = sharding_of(z);
    int64_t ps =
        price_sides(o, &(ap_transfer_side){&ma, &sa, &ha}, &(ap_transfer_side){&mz, &sz, &hz}, element_bytes(o, b));
    int64_t whole = ap_type_bytes(ctx, ap_value_type(o->in->m, largest_at(o, b)));
    return ps == INT64_MAX ? AP_STAGES_NONE : scaled(ps, all_bytes(o, b), ap_max_i64(whole, 1));
}

static int64_t transfer(void *user, uint32_t boundary, uint32_t from, uint32_t out, uint32_t to, uint32_t in,
                        ap_near near)
{
    ap_offer *o = user;
    const ap_offer_view *a = o->view_of[from], *z = o->view_of[to];
    size_t at = o->boundary_class[boundary];
    at = (at * o->nviews + a->number) * AP_LABELS_MAX + out;
    at = (at * o->nviews + z->number) * AP_LABELS_MAX + in;
    at = at * AP_NEAR_COUNT + near;
    if (o->transfer[at] == 0) {
        int64_t ps = price(o, boundary, a, out, z, in, near);
        o->transfer[at] = ps == AP_STAGES_NONE ? ps : ps + 1;
    }
    return o->transfer[at] == AP_STAGES_NONE ? AP_STAGES_NONE : o->transfer[at] - 1;
}

void ap_offer_transfers(ap_offer *o)
{
    find_classes(o);
    for (uint32_t k = 0; k < o->nviews; k++)
        find_slots(o, &o->view[k]);
    size_t side = (size_t)o->nviews * AP_LABELS_MAX;
    o->transfer = AP_NEW_ARRAY(o->arena, int64_t, o->nclasses * side * side * AP_NEAR_COUNT);
    o->problem.transfer = transfer;
    o->problem.user = o;
    o->problem.boundary_class = o->boundary_class;
}
