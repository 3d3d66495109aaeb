/* Physical extents from logical ones, and from there all types of a module. */
#include "ir/physical.h"

/* The least multiple of `parts` that is not below `x`; x itself when that overflows. */
static int64_t round_up(int64_t x, int64_t parts)
{
    int64_t more = x % parts ? parts - x % parts : 0, sum;
    return ap_add_i64(x, more, &sum) ? sum : x;
}

/* So many equal microbatches of `physical` entries together: does the last have one that is real? */
static bool fills(int64_t physical, int64_t times, int64_t logical)
{
    return physical / times * (times - 1) < logical;
}

/* Of the products of some axes (not of time), the largest whose least multiple, of `times` parts each, leaves none of
 * these without an entry of its own, and wastes at most an eighth of `least`, or anything with `force`; 1 when there is
 * none. */
static int64_t best_product(const ap_mesh_info *mesh, int64_t logical, int64_t times, int64_t least, bool force)
{
    int64_t best = 1;
    for (uint32_t axes = 1; axes < 1u << mesh->naxes; axes++) {
        int64_t parts = 1;
        for (int a = mesh->ntime; a < mesh->naxes; a++)
            parts *= axes >> a & 1 ? mesh->axis_size[a] : 1;
        int64_t physical = round_up(logical, parts * times);
        if (parts > best && fills(physical, times, logical) && (force || physical - least <= least / 8))
            best = parts;
    }
    return best;
}

int64_t ap_physical_extent(const ap_mesh_info *mesh, int64_t logical, bool force)
{
    int64_t largest = ap_mesh_ranks(mesh);
    if (logical < 2 || largest < 2)
        return logical;
    if (force)
        return round_up(logical, largest);
    int64_t best = best_product(mesh, logical, 1, logical, false);
    return round_up(logical, best > 1 ? best : largest);
}

int64_t ap_physical_batch(const ap_mesh_info *mesh, int64_t logical, bool force)
{
    int64_t times = ap_mesh_microbatches(mesh);
    return round_up(logical, times * best_product(mesh, logical, times, round_up(logical, times), force));
}

int32_t ap_microbatches_filled(int64_t batch, int32_t microbatches)
{
    int64_t each = round_up(batch, microbatches) / microbatches;
    return each > 0 ? (int32_t)(round_up(batch, each) / each) : microbatches;
}

/* A set of extents: those that a slice takes one element of, or that a concat of equal parts makes; later, those that
 * are split. */
typedef struct taken {
    ap_arena *arena;
    AP_VEC(int64_t) extent;
} taken;

static bool is_taken(const taken *t, int64_t extent)
{
    for (uint32_t i = 0; i < t->extent.len; i++)
        if (t->extent.at[i] == extent)
            return true;
    return false;
}

static void find_taken(const ap_module *m, taken *t)
{
    for (ap_node n = 0; n < m->nodes.len; n++) {
        const ap_node_info *node = ap_node_at(m, n);
        if (node->block == AP_NONE || node->nin == 0)
            continue;
        const ap_shape_info *s = ap_value_shape(m, node->in[0]);
        for (int f = 0; node->op == AP_OP_SLICE && f < s->nfactors; f++)
            if (!node->u.slice->range[f].whole && node->u.slice->range[f].count == 1 && !is_taken(t, s->logical[f]))
                ap_vec_push(t->arena, &t->extent, s->logical[f]);
        if (node->op == AP_OP_CONCAT && !is_taken(t, node->nin))
            ap_vec_push(t->arena, &t->extent, (int64_t)node->nin);
    }
}

typedef struct padding {
    ap_module *m;
    const ap_mesh_info *mesh;
    bool force;
    int64_t batch_extent;
    taken taken;
} padding;

static ap_type padded(const padding *p, ap_type type, uint32_t batch)
{
    ap_type_info t = ap_type_get(p->m->ctx, type);
    ap_shape_info s = *ap_shape_get(p->m->ctx, t.shape);
    for (int f = 0; f < s.nfactors; f++) {
        s.physical[f] = s.logical[f];
        if (batch >> f & 1)
            s.physical[f] = p->batch_extent ? p->batch_extent : ap_physical_batch(p->mesh, s.logical[f], p->force);
        else if (p->force || s.logical[f] >= 2 * (int64_t)ap_mesh_ranks(p->mesh) || !is_taken(&p->taken, s.logical[f]))
            s.physical[f] = ap_physical_extent(p->mesh, s.logical[f], p->force);
    }
    return ap_type_make(p->m->ctx, t.dtype, ap_shape_intern(p->m->ctx, &s), t.sharding);
}

void ap_module_set_physical(ap_module *m, const ap_mesh_info *mesh, bool force, const uint16_t *batch,
                            int64_t batch_extent)
{
    padding p = {.m = m, .mesh = mesh, .force = force, .batch_extent = batch_extent};
    p.taken.arena = &m->ctx->scratch;
    find_taken(m, &p.taken);
    for (ap_value v = 0; v < m->values.len; v++)
        if (m->values.at[v].type)
            m->values.at[v].type = padded(&p, m->values.at[v].type, batch ? batch[v] : 0);
    for (ap_func f = 0; f < m->funcs.len; f++) {
        const ap_block_info *b = ap_block_at(m, m->funcs.at[f].body);
        const ap_node_info *ret = b->nodes.len ? ap_node_at(m, b->nodes.at[b->nodes.len - 1]) : NULL;
        for (uint32_t i = 0; ret && i < m->funcs.at[f].nresults && i < ret->nin; i++)
            m->funcs.at[f].result[i] = ap_value_type(m, ret->in[i]);
    }
}

/* ---- after planning ---- */

static void find_split(const ap_module *m, taken *split)
{
    for (ap_value v = 0; v < m->values.len; v++) {
        ap_type_info t = ap_type_get(m->ctx, m->values.at[v].type);
        const ap_shape_info *s = ap_shape_get(m->ctx, t.shape);
        const ap_sharding_info *sharding = ap_sharding_get(m->ctx, t.sharding);
        for (int f = 0; f < s->nfactors && f < sharding->nfactors; f++)
            if (sharding->axes[f] && s->physical[f] != s->logical[f] && !is_taken(split, s->logical[f]))
                ap_vec_push(split->arena, &split->extent, s->logical[f]);
    }
}

static ap_type trimmed(ap_module *m, ap_type type, const taken *split)
{
    ap_type_info t = ap_type_get(m->ctx, type);
    ap_shape_info s = *ap_shape_get(m->ctx, t.shape);
    for (int f = 0; f < s.nfactors; f++)
        if (!is_taken(split, s.logical[f]))
            s.physical[f] = s.logical[f];
    return type ? ap_type_make(m->ctx, t.dtype, ap_shape_intern(m->ctx, &s), t.sharding) : 0;
}

void ap_module_trim_physical(ap_module *m)
{
    taken split = {.arena = &m->ctx->scratch};
    find_split(m, &split);
    for (ap_value v = 0; v < m->values.len; v++)
        m->values.at[v].type = trimmed(m, m->values.at[v].type, &split);
    for (ap_func f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.at[f].nresults; i++)
            m->funcs.at[f].result[i] = trimmed(m, m->funcs.at[f].result[i], &split);
}

ap_type *ap_module_types(const ap_module *m, ap_arena *arena)
{
    uint32_t n = m->values.len;
    for (ap_func f = 0; f < m->funcs.len; f++)
        n += m->funcs.at[f].nresults;
    ap_type *types = AP_NEW_ARRAY(arena, ap_type, n), *at = types;
    for (ap_value v = 0; v < m->values.len; v++)
        *at++ = m->values.at[v].type;
    for (ap_func f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.at[f].nresults; i++)
            *at++ = m->funcs.at[f].result[i];
    return types;
}

void ap_module_set_types(ap_module *m, const ap_type *types)
{
    for (ap_value v = 0; v < m->values.len; v++)
        m->values.at[v].type = *types++;
    for (ap_func f = 0; f < m->funcs.len; f++)
        for (uint32_t i = 0; i < m->funcs.at[f].nresults; i++)
            m->funcs.at[f].result[i] = *types++;
}
