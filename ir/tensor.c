/* Tensors in the compiler's own memory: making, cutting into shards, putting together, comparing.
 *
 * Tensors are row-major over the logical extents of their factors: what is padded elsewhere is not padded here, and the
 * shard of a rank has the elements that are there, which may be none. */
#include "ir/tensor.h"

#include "ir/op/columns.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#define MAX_ELEMENTS ((int64_t)1 << 31)

static bool count_elements(const int64_t *extent, int n, int64_t *out)
{
    int64_t count = 1;
    for (int f = 0; f < n; f++) {
        if (extent[f] == 0) {
            *out = 0;
            return true;
        }
    }
    for (int f = 0; f < n; f++) {
        if (!ap_mul_i64(count, extent[f], &count) || count > MAX_ELEMENTS)
            return false;
    }
    *out = count;
    return true;
}

bool ap_tensor_make(ap_arena *arena, ap_dtype dtype, const ap_shape_info *shape, ap_tensor *out)
{
    memset(out, 0, sizeof *out);
    out->dtype = dtype;
    out->shape = *shape;
    memcpy(out->shape.physical, shape->logical, sizeof out->shape.physical);
    if (!count_elements(shape->logical, shape->nfactors, &out->count))
        return false;
    out->at = AP_NEW_ARRAY(arena, ap_scalar, out->count);
    return true;
}

void ap_tensor_from_bytes(ap_tensor *t, const void *bytes)
{
    size_t size = (size_t)ap_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < t->count; i++)
        t->at[i] = ap_scalar_load(t->dtype, (const char *)bytes + (size_t)i * size);
}

void ap_tensor_to_bytes(const ap_tensor *t, void *bytes)
{
    size_t size = (size_t)ap_dtype_bytes(t->dtype);
    for (int64_t i = 0; i < t->count; i++)
        ap_scalar_store(t->dtype, (char *)bytes + (size_t)i * size, t->at[i]);
}

/* ---- boxes ---- */

static void row_major(const int64_t *extent, int n, int64_t *stride)
{
    int64_t s = 1;
    for (int f = n - 1; f >= 0; f--) {
        stride[f] = s;
        s *= extent[f];
    }
}

void ap_tensor_strides(const ap_shape_info *s, int64_t stride[AP_MAX_FACTORS])
{
    row_major(s->logical, s->nfactors, stride);
}

void ap_tensor_copy_box(ap_scalar *dst, const int64_t *dst_stride, const ap_scalar *src, const int64_t *src_stride,
                        int n, const int64_t *extent)
{
    int64_t index[AP_MAX_FACTORS] = {0};
    assert(n <= AP_MAX_FACTORS);
    for (int f = 0; f < n; f++) {
        if (extent[f] == 0)
            return;
    }
    int64_t inner = n ? extent[n - 1] : 1, ds = n ? dst_stride[n - 1] : 0, ss = n ? src_stride[n - 1] : 0;
    for (;;) {
        for (int64_t i = 0; i < inner; i++)
            dst[i * ds] = src[i * ss];
        int f = n - 2;
        for (; f >= 0; f--) {
            dst += dst_stride[f], src += src_stride[f];
            if (++index[f] < extent[f])
                break;
            dst -= index[f] * dst_stride[f], src -= index[f] * src_stride[f];
            index[f] = 0;
        }
        if (f < 0)
            return;
    }
}

/* ---- logical and whole ---- */

bool ap_tensor_from_logical(ap_arena *arena, const ap_tensor *logical, const ap_shape_info *shape, ap_tensor *out)
{
    if (!ap_tensor_make(arena, logical->dtype, shape, out))
        return false;
    memcpy(out->at, logical->at, (size_t)out->count * sizeof *out->at);
    return true;
}

bool ap_tensor_to_logical(ap_ctx *ctx, ap_arena *arena, const ap_tensor *whole, ap_tensor *out)
{
    int64_t dims[AP_MAX_RANK];
    int rank = ap_shape_dims(&whole->shape, dims);
    if (!ap_tensor_make(arena, whole->dtype, ap_shape_get(ctx, ap_shape_of_dims(ctx, rank, dims)), out))
        return false;
    memcpy(out->at, whole->at, (size_t)out->count * sizeof *out->at);
    return true;
}

/* The elements of a box of a larger tensor; dimensions may be cut into factors here, there they are whole. */
static void tensor_from_part(ap_tensor *t, const ap_data *d, const void *bytes)
{
    const ap_data_part *p = d->part;
    int64_t size = ap_dtype_bytes(t->dtype), index[AP_MAX_RANK] = {0}, dim[AP_MAX_RANK];
    int rank = ap_shape_dims(&t->shape, dim);
    for (int64_t i = 0; i < t->count; i++) {
        int64_t at = 0;
        for (int k = 0; k < rank; k++)
            at = at * p->dim[k] + p->start[k] + index[k];
        t->at[i] = ap_scalar_load(t->dtype, (const char *)bytes + at * size);
        for (int k = rank - 1; k >= 0 && ++index[k] == dim[k]; k--)
            index[k] = 0;
    }
}

ap_status ap_tensor_from_data(ap_module *m, ap_arena *arena, const ap_data *d, ap_type type, ap_loc loc, ap_tensor *out)
{
    ap_type_info t = ap_type_get(m->ctx, type);
    const ap_shape_info *shape = ap_shape_get(m->ctx, t.shape);
    const void *bytes;
    if (d->kind == AP_DATA_NONE)
        return ap_fail(m->ctx, AP_ERR_ENV, loc, "no data for this value");
    AP_TRY(ap_data_bytes(m, d, loc, &bytes));
    if (!ap_tensor_make(arena, t.dtype, shape, out))
        return ap_error(m->ctx, loc, "too large to evaluate");
    if (d->dtype != t.dtype)
        return ap_fail(m->ctx, AP_ERR_BUG, loc, "data of %s in a value of %s", ap_dtype_str(d->dtype),
                       ap_dtype_str(t.dtype));
    if (d->kind == AP_DATA_SPLAT) {
        ap_scalar x = ap_scalar_load(t.dtype, bytes);
        for (int64_t i = 0; i < out->count; i++)
            out->at[i] = x;
        return AP_OK;
    }
    int64_t want = ap_data_size(m->ctx, d, type);
    if (want < 0 || d->size != (uint64_t)want)
        return ap_error(m->ctx, loc, "data of another size than its shape says");
    if (d->part)
        tensor_from_part(out, d, bytes);
    else
        ap_tensor_from_bytes(out, bytes);
    return AP_OK;
}

/* ---- shards ---- */

bool ap_tensor_shard(ap_arena *arena, const ap_tensor *whole, const ap_mesh_info *mesh, const ap_shape_info *shape,
                     const ap_sharding_info *sharding, const int32_t *coords, ap_tensor *out)
{
    ap_shape_info local;
    int64_t start[AP_MAX_FACTORS], from[AP_MAX_FACTORS], to[AP_MAX_FACTORS], offset = 0;
    if (!ap_mesh_shard(mesh, shape, sharding, coords, &local, start) ||
        !ap_tensor_make(arena, whole->dtype, &local, out))
        return false;
    if (out->count == 0)
        return true;
    ap_tensor_strides(&whole->shape, from);
    ap_tensor_strides(&local, to);
    for (int f = 0; f < local.nfactors; f++)
        offset += start[f] * from[f];
    ap_tensor_copy_box(out->at, to, whole->at + offset, from, local.nfactors, local.logical);
    return true;
}

void ap_eval_starts(const ap_eval *e, ap_value v, int64_t start[AP_MAX_FACTORS])
{
    ap_type_info t = ap_type_get(e->m->ctx, ap_value_type(e->m, v));
    const ap_shape_info *shape = ap_shape_get(e->m->ctx, t.shape);
    memset(start, 0, AP_MAX_FACTORS * sizeof *start);
    if (!t.sharding)
        return;
    const ap_sharding_info *s = ap_sharding_get(e->m->ctx, t.sharding);
    const ap_mesh_info *mesh = &e->m->meshes.at[s->mesh];
    int32_t coords[AP_MAX_AXES];
    ap_shape_info local;
    ap_mesh_coords(mesh, e->rank, coords);
    if (!ap_mesh_shard(mesh, shape, s, coords, &local, start))
        memset(start, 0, AP_MAX_FACTORS * sizeof *start);
}

static ap_scalar neutral(ap_dtype t, ap_partial kind)
{
    ap_scalar x = {0};
    if (kind == AP_PARTIAL_SUM)
        return x;
    bool max = kind == AP_PARTIAL_MAX;
    if (ap_dtype_is_float(t)) {
        x.f = max ? -INFINITY : INFINITY;
        return x;
    }
    ap_scalar inf = {.f = max ? -INFINITY : INFINITY}; /* saturates to the least or largest integer */
    return ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &inf);
}

ap_status ap_tensor_scatter(ap_ctx *ctx, ap_arena *arena, const ap_mesh_info *mesh, ap_type type, ap_tensor *whole,
                            int32_t nranks, ap_loc loc, ap_tensor **out)
{
    ap_type_info t = ap_type_get(ctx, type);
    const ap_sharding_info *s = ap_sharding_get(ctx, t.sharding);
    bool copies = !t.sharding || (ap_sharding_split_mask(s) | ap_sharding_partial_mask(s)) == 0;
    for (int32_t r = 0; r < nranks; r++) {
        if (copies) {
            out[r] = whole;
            continue;
        }
        int32_t coords[AP_MAX_AXES];
        ap_mesh_coords(mesh, r, coords);
        out[r] = AP_NEW(arena, ap_tensor);
        if (!ap_tensor_shard(arena, whole, mesh, ap_shape_get(ctx, t.shape), s, coords, out[r]))
            return ap_fail(ctx, AP_ERR_BUG, loc, "a sharding does not divide its value");
        for (int k = 0; k < AP_PARTIAL_COUNT; k++) {
            for (int a = 0; a < mesh->naxes; a++) {
                if (!(s->partial[k] >> a & 1u) || coords[a] == 0)
                    continue;
                ap_scalar x = neutral(t.dtype, (ap_partial)k);
                for (int64_t i = 0; i < out[r]->count; i++)
                    out[r]->at[i] = x;
            }
        }
    }
    return AP_OK;
}

static bool same_element(ap_dtype t, ap_scalar a, ap_scalar b)
{
    if (ap_dtype_is_float(t))
        return a.f == b.f || (isnan(a.f) && isnan(b.f));
    return a.i == b.i;
}

static ap_scalar fold(ap_dtype t, ap_partial kind, ap_scalar a, ap_scalar b)
{
    static const ap_pointwise op[AP_PARTIAL_COUNT] = {
        [AP_PARTIAL_SUM] = AP_PW_ADD, [AP_PARTIAL_MAX] = AP_PW_MAX, [AP_PARTIAL_MIN] = AP_PW_MIN};
    ap_scalar x[2] = {a, b};
    ap_dtype wide = ap_dtype_is_float(t) ? AP_F64 : t;
    return ap_pointwise_eval(op[kind], wide, wide, x);
}

/* Folds one shard into the whole, or stores it when it is the first of its box. */
static void merge_shard(ap_tensor *whole, const ap_tensor *shard, const int64_t *start, int kind)
{
    int64_t stride[AP_MAX_FACTORS], index[AP_MAX_FACTORS] = {0};
    const ap_shape_info *s = &shard->shape;
    ap_tensor_strides(&whole->shape, stride);
    for (int64_t i = 0; i < shard->count; i++) {
        int64_t at = 0;
        for (int f = 0; f < s->nfactors; f++)
            at += (start[f] + index[f]) * stride[f];
        whole->at[at] = kind < 0 ? shard->at[i] : fold(whole->dtype, (ap_partial)kind, whole->at[at], shard->at[i]);
        for (int f = s->nfactors - 1; f >= 0 && ++index[f] == s->logical[f]; f--)
            index[f] = 0;
    }
}

/* Of the axes in `mask`, those where the rank's coordinate is not 0. */
static uint8_t nonzero_axes(const ap_mesh_info *mesh, const int32_t *coords, uint8_t mask)
{
    uint8_t r = 0;
    for (int a = 0; a < mesh->naxes; a++) {
        if ((mask >> a & 1u) && coords[a] != 0)
            r |= (uint8_t)(1u << a);
    }
    return r;
}

/* The rank that agrees with `coords` on the axes of `mask` and is 0 elsewhere. */
static int32_t rank_within(const ap_mesh_info *mesh, const int32_t *coords, uint8_t mask)
{
    int32_t r = 0;
    for (int a = 0; a < mesh->naxes; a++)
        r = r * mesh->axis_size[a] + (mask >> a & 1u ? coords[a] : 0);
    return r;
}

static bool same_tensors(const ap_tensor *a, const ap_tensor *b)
{
    if (a->at == b->at)
        return true;
    if (a->count != b->count)
        return false;
    for (int64_t i = 0; i < a->count; i++) {
        if (!same_element(a->dtype, a->at[i], b->at[i]))
            return false;
    }
    return true;
}

ap_status ap_tensor_assemble(ap_ctx *ctx, ap_arena *arena, const ap_mesh_info *mesh, ap_type type,
                             ap_tensor *const *shard, ap_loc loc, ap_tensor *out)
{
    ap_type_info t = ap_type_get(ctx, type);
    const ap_sharding_info *s = ap_sharding_get(ctx, t.sharding);
    if (!t.sharding) {
        *out = *shard[0];
        return AP_OK;
    }
    if (!ap_tensor_make(arena, t.dtype, ap_shape_get(ctx, t.shape), out))
        return ap_error(ctx, loc, "too large to evaluate");
    uint8_t split = ap_sharding_split_mask(s), partial = ap_sharding_partial_mask(s);
    int32_t nranks = ap_mesh_size(mesh), coords[AP_MAX_AXES];
    for (int32_t r = 0; r < nranks; r++) {
        int64_t start[AP_MAX_FACTORS];
        ap_shape_info local;
        ap_mesh_coords(mesh, r, coords);
        int32_t original = rank_within(mesh, coords, split | partial);
        if (original != r) { /* a replica */
            if (!same_tensors(shard[r], shard[original]))
                return ap_fail(ctx, AP_ERR_BUG, loc, "ranks %d and %d hold different replicas", original, r);
            continue;
        }
        int kind = -1;
        uint8_t folded = nonzero_axes(mesh, coords, partial);
        for (int k = 0; k < AP_PARTIAL_COUNT && folded; k++) {
            if (s->partial[k] & folded)
                kind = k;
        }
        if (!ap_mesh_shard(mesh, ap_shape_get(ctx, t.shape), s, coords, &local, start))
            return ap_fail(ctx, AP_ERR_BUG, loc, "a sharding does not divide its value");
        merge_shard(out, shard[r], start, kind);
    }
    for (int64_t i = 0; partial && i < out->count; i++)
        out->at[i] = ap_scalar_round(t.dtype, out->at[i]);
    return AP_OK;
}

/* ---- comparing ---- */

static double element(const ap_tensor *t, int64_t i)
{
    if (ap_dtype_is_float(t->dtype))
        return t->at[i].f;
    return t->dtype == AP_U64 ? (double)(uint64_t)t->at[i].i : (double)t->at[i].i;
}

void ap_tensor_compare(const ap_tensor *a, const ap_tensor *b, double *out_abs, double *out_scale)
{
    *out_abs = *out_scale = 0;
    if (a->count != b->count) {
        *out_abs = INFINITY;
        return;
    }
    for (int64_t i = 0; i < a->count; i++) {
        double x = element(a, i), y = element(b, i);
        bool exact = !ap_dtype_is_float(a->dtype) && a->dtype == b->dtype && a->at[i].i != b->at[i].i;
        double d = exact && x == y ? 1 : fabs(x - y);
        if (x == y && !exact)
            d = 0; /* infinities too */
        else if (isnan(x) && isnan(y))
            d = 0;
        else if (isnan(d))
            d = INFINITY;
        if (d > *out_abs)
            *out_abs = d;
        if (fabs(y) > *out_scale)
            *out_scale = fabs(y);
    }
}
