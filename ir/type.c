/* Interned shapes, shardings and types: one table of records by kind, open addressing by content. */
#include "ir/type.h"

#include "ir/base/name_table.h"

#include <assert.h>
#include <string.h>

typedef struct record_table {
    size_t size; /* of one record */
    AP_VEC(void *) record;
    uint32_t *slot; /* id + 1 */
    uint32_t nslots;
} record_table;

struct ap_type_table {
    record_table shape, sharding, type;
};

static uint32_t *find_slot(const record_table *t, const void *r)
{
    uint32_t i = (uint32_t)ap_hash_bytes(r, t->size) & (t->nslots - 1);
    while (t->slot[i] && memcmp(t->record.at[t->slot[i] - 1], r, t->size) != 0)
        i = (i + 1) & (t->nslots - 1);
    return &t->slot[i];
}

/* `r` must have no undefined padding: callers copy field by field into zeroed records. */
static uint32_t intern(ap_arena *arena, record_table *t, const void *r)
{
    if (t->record.len * 2 >= t->nslots) {
        t->nslots = t->nslots ? t->nslots * 2 : 256;
        t->slot = AP_NEW_ARRAY(arena, uint32_t, t->nslots);
        for (uint32_t id = 0; id < t->record.len; id++)
            *find_slot(t, t->record.at[id]) = id + 1;
    }
    uint32_t *slot = find_slot(t, r);
    if (!*slot) {
        void *copy = ap_arena_memdup(arena, r, t->size);
        ap_vec_push(arena, &t->record, copy);
        *slot = t->record.len;
    }
    return *slot - 1;
}

static ap_type_table *table(ap_ctx *ctx)
{
    if (ctx->types)
        return ctx->types;
    ap_type_table *t = AP_NEW(&ctx->arena, ap_type_table);
    t->shape.size = sizeof(ap_shape_info);
    t->sharding.size = sizeof(ap_sharding_info);
    t->type.size = sizeof(ap_type_info);
    ap_shape_info rank0;
    ap_sharding_info none;
    ap_type_info no_type;
    memset(&rank0, 0, sizeof rank0);
    memset(&none, 0, sizeof none);
    memset(&no_type, 0, sizeof no_type);
    none.mesh = AP_NONE;
    intern(&ctx->arena, &t->shape, &rank0);
    intern(&ctx->arena, &t->sharding, &none);
    intern(&ctx->arena, &t->type, &no_type);
    ctx->types = t;
    return t;
}

ap_shape ap_shape_intern(ap_ctx *ctx, const ap_shape_info *info)
{
    ap_shape_info r;
    memset(&r, 0, sizeof r);
    r.rank = info->rank;
    r.nfactors = info->nfactors;
    for (int d = 0; d <= info->rank; d++)
        r.first[d] = info->first[d];
    for (int f = 0; f < info->nfactors; f++) {
        r.logical[f] = info->logical[f];
        r.physical[f] = info->physical[f];
    }
    return intern(&ctx->arena, &table(ctx)->shape, &r);
}

ap_shape ap_shape_of_dims(ap_ctx *ctx, int rank, const int64_t *dims)
{
    assert(rank >= 0 && rank <= AP_MAX_RANK);
    ap_shape_info s;
    memset(&s, 0, sizeof s);
    s.rank = (uint8_t)rank;
    for (int d = 0; d < rank; d++) {
        s.first[d] = s.nfactors;
        if (dims[d] != 1) {
            s.logical[s.nfactors] = s.physical[s.nfactors] = dims[d];
            s.nfactors++;
        }
    }
    s.first[rank] = s.nfactors;
    return ap_shape_intern(ctx, &s);
}

const ap_shape_info *ap_shape_get(const ap_ctx *ctx, ap_shape s)
{
    static const ap_shape_info rank0;
    return ctx->types ? ctx->types->shape.record.at[s] : &rank0;
}

int64_t ap_shape_dim(const ap_shape_info *s, int d)
{
    int64_t n = 1;
    for (int f = s->first[d]; f < s->first[d + 1]; f++)
        n = ap_sat_mul(n, s->logical[f]);
    return n;
}

int64_t ap_shape_count(const ap_shape_info *s)
{
    int64_t n = 1;
    for (int f = 0; f < s->nfactors; f++)
        if (s->logical[f] == 0)
            return 0;
    for (int f = 0; f < s->nfactors; f++)
        n = ap_sat_mul(n, s->logical[f]);
    return n;
}

bool ap_dims_fit(int rank, const int64_t *dim)
{
    int64_t n = 1;
    for (int d = 0; d < rank; d++)
        n = ap_sat_mul(n, ap_max_i64(dim[d], 1));
    return n <= AP_MAX_ELEMENTS;
}

bool ap_shape_fits(const ap_shape_info *s)
{
    return ap_dims_fit(s->nfactors, s->physical);
}

int ap_shape_dims(const ap_shape_info *s, int64_t out[AP_MAX_RANK])
{
    for (int d = 0; d < s->rank; d++)
        out[d] = ap_shape_dim(s, d);
    return s->rank;
}

bool ap_shape_same_dims(const ap_shape_info *a, const ap_shape_info *b)
{
    if (a->rank != b->rank)
        return false;
    for (int d = 0; d < a->rank; d++)
        if (ap_shape_dim(a, d) != ap_shape_dim(b, d))
            return false;
    return true;
}

ap_sharding ap_sharding_intern(ap_ctx *ctx, const ap_sharding_info *info)
{
    ap_sharding_info r;
    memset(&r, 0, sizeof r);
    r.mesh = info->mesh;
    r.nfactors = info->nfactors;
    memcpy(r.partial, info->partial, sizeof r.partial);
    for (int f = 0; f < info->nfactors; f++)
        r.axes[f] = info->axes[f];
    return intern(&ctx->arena, &table(ctx)->sharding, &r);
}

const ap_sharding_info *ap_sharding_get(const ap_ctx *ctx, ap_sharding s)
{
    static const ap_sharding_info none = {.mesh = AP_NONE};
    return ctx->types ? ctx->types->sharding.record.at[s] : &none;
}

ap_sharding ap_sharding_replicated(ap_ctx *ctx, ap_mesh mesh, int nfactors)
{
    return ap_sharding_intern(ctx, &(ap_sharding_info){.mesh = mesh, .nfactors = (uint8_t)nfactors});
}

uint8_t ap_sharding_split_mask(const ap_sharding_info *s)
{
    uint8_t mask = 0;
    for (int f = 0; f < s->nfactors; f++)
        mask |= ap_axes_mask(s->axes[f]);
    return mask;
}

uint8_t ap_sharding_partial_mask(const ap_sharding_info *s)
{
    uint8_t mask = 0;
    for (int k = 0; k < AP_PARTIAL_COUNT; k++)
        mask |= s->partial[k];
    return mask;
}

ap_type ap_type_make(ap_ctx *ctx, ap_dtype dtype, ap_shape shape, ap_sharding sharding)
{
    ap_type_info r;
    memset(&r, 0, sizeof r);
    r.dtype = dtype;
    r.shape = shape;
    r.sharding = sharding;
    return intern(&ctx->arena, &table(ctx)->type, &r);
}

ap_type_info ap_type_get(const ap_ctx *ctx, ap_type t)
{
    return ctx->types ? *(const ap_type_info *)ctx->types->type.record.at[t] : (ap_type_info){0};
}

int64_t ap_type_bytes(const ap_ctx *ctx, ap_type t)
{
    ap_type_info i = ap_type_get(ctx, t);
    return ap_sat_mul(ap_shape_count(ap_shape_get(ctx, i.shape)), ap_dtype_bytes(i.dtype));
}
