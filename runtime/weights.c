/* SPDX-License-Identifier: MIT
 *
 * Loading parameters: each device copies the box that is its part, and the pages are given back at once, so that a
 * model needs its parameters once in memory and not twice. weights_file.c knows where tensors lie. */
#include "gemm_internal.h"
#include "weights_internal.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const struct {
    int32_t dtype;
    const char *name;
} names[] = {
    {APRT_F32, "F32"}, {APRT_U8, "U8"},     {APRT_I8, "I8"},     {APRT_U16, "U16"}, {APRT_I16, "I16"},
    {APRT_I32, "I32"}, {APRT_I64, "I64"},   {APRT_F16, "F16"},   {APRT_F64, "F64"}, {APRT_U32, "U32"},
    {APRT_U64, "U64"}, {APRT_BOOL, "BOOL"}, {APRT_BF16, "BF16"},
};

static int32_t dtype_of(const char *name)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(names[i].name, name) == 0)
            return names[i].dtype;
    return 0;
}

/* Does the entry hold the tensor that the program wants? */
static int check_entry(const aprt_entry *e, int32_t want, int32_t want_rank, const int64_t *want_dim, aprt_failure *why)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(e->json, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(e->json, "shape");
    int64_t dim[APRT_MAX_RANK] = {0}, bytes;
    if (!e->json)
        return aprt_tensor_bytes(want, want_rank, want_dim, &bytes) && bytes == e->size
                   ? APRT_OK
                   : aprt_fail(why, APRT_ERR_BUG, "tensor \"%.100s\" has %lld bytes, not those of its shape", e->name,
                               (long long)e->size);
    int rank = cJSON_IsArray(shape) ? cJSON_GetArraySize(shape) : -1, d = 0;
    if (!cJSON_IsString(dtype) || rank < 0 || rank > APRT_MAX_RANK)
        return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\" has no dtype or no shape", e->path, e->name);
    const cJSON *j;
    cJSON_ArrayForEach(j, shape)
    {
        if (!aprt_json_whole(j, &dim[d++]))
            return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\" has a strange shape", e->path, e->name);
    }
    if (dtype_of(dtype->valuestring) != want || rank != want_rank ||
        memcmp(dim, want_dim, (size_t)rank * sizeof *dim) != 0) {
        char is[128], should[128];
        aprt_shape_text(dtype_of(dtype->valuestring), rank, dim, is, sizeof is);
        aprt_shape_text(want, want_rank, want_dim, should, sizeof should);
        return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\" is %s, the program needs %s", e->path, e->name, is,
                         should);
    }
    if (!aprt_tensor_bytes(want, rank, dim, &bytes) || bytes != e->size)
        return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\" has %lld bytes, not those of its shape", e->path,
                         e->name, (long long)e->size);
    return APRT_OK;
}

/* The part of `p` as it lies in a file. */
typedef struct source {
    const aprt_entry *entry;
    int64_t offset, stride[APRT_MAX_LOOPS];
} source;

/* Is the box inside the tensor, and its copy inside the device's memory? */
static bool box_fits(const aprt_param *p, const int64_t *extent, const source *from, int64_t size, int64_t param_bytes)
{
    int64_t last = from->offset, bytes = size, reach;
    if (from->offset < 0 || p->byte_offset < 0 || p->bytes < 0 || p->byte_offset > param_bytes ||
        p->bytes > param_bytes - p->byte_offset)
        return false;
    for (int32_t d = 0; d < p->ndims; d++) {
        if (extent[d] == 0)
            return true;
        if (!aprt_mul(bytes, p->extent[d], &bytes) || !aprt_mul(extent[d] - 1, from->stride[d], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    }
    return last < from->entry->size / size && bytes <= p->bytes;
}

/* ---- panels ---- */

typedef struct panel_job {
    const char *src;
    char *dst;
    int64_t n, k, width;
    int32_t size;
} panel_job;

/* Elements b, b+1, ... of the matrices, row-major, from src[a], src[a + sa], ... to the panels of their columns. */
static void to_panels(void *user, int64_t a, int64_t b, int64_t sa, int64_t sb, int64_t count)
{
    const panel_job *job = user;
    (void)sb;
    while (count > 0) {
        int64_t row = b / job->n, j = b % job->n, first = j / job->width * job->width;
        int64_t width = job->n - first < job->width ? job->n - first : job->width;
        int64_t some = first + width - j < count ? first + width - j : count;
        int64_t to = row / job->k * job->k * job->n + first * job->k + row % job->k * width + j - first;
        const char *src = job->src + a * job->size;
        char *dst = job->dst + to * job->size;
        if (sa == 1)
            memcpy(dst, src, (size_t)(some * job->size));
        else if (job->size == 4)
            for (int64_t i = 0; i < some; i++)
                memcpy(dst + 4 * i, src + 4 * i * sa, 4);
        else
            for (int64_t i = 0; i < some; i++)
                memcpy(dst + 8 * i, src + 8 * i * sa, 8);
        a += some * sa;
        b += some;
        count -= some;
    }
}

/* Where columns are not adjacent (a transposed matrix), panel by panel: a few long runs instead of many short ones. */
static void store_panels(const aprt_box *box, const panel_job *job)
{
    const int64_t count = aprt_box_count(box), rows = job->n ? count / job->n : 0;
    if (box->a[box->ndims - 1] == 1) {
        aprt_box_walk(box, 0, count, to_panels, (void *)(uintptr_t)job);
        return;
    }
    for (int64_t first = 0; first < rows; first += job->k)
        for (int64_t j = 0; j < job->n; j += job->width)
            for (int64_t row = first; row < first + job->k; row++)
                aprt_box_walk(box, row * job->n + j, row * job->n + (job->n - j < job->width ? job->n : j + job->width),
                              to_panels, (void *)(uintptr_t)job);
}

/* Panels of products' own element types, f32 and f64, that fill the box. */
static bool panels_fit(const aprt_param *p, int64_t count)
{
    int64_t size;
    return (p->port.dtype == APRT_F32 || p->port.dtype == APRT_F64) && p->ncounts == 0 && p->k >= 0 && p->n >= 0 &&
           aprt_mul(p->k, p->n, &size) && (size ? count % size == 0 : count == 0);
}

static void drop_pages(const void *from, int64_t bytes)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), a = (uintptr_t)from, b = a + (uintptr_t)bytes;
    a = (a + page - 1) / page * page;
    b = b / page * page;
    if (a < b)
        madvise((void *)a, b - a, MADV_DONTNEED);
}

static int64_t box_start(const aprt_param *p, const int64_t *coordinate)
{
    int64_t at = p->offset.base;
    for (int a = 0; a < APRT_MAX_AXES; a++)
        at += p->offset.step[a] * coordinate[a];
    return at;
}

/* In whole tensors the part is a box; what was cut for one device is the box's elements in order, those that are there.
 */
static int find_whole(const aprt_weights *w, const aprt_param *p, const int64_t *coordinate, source *out,
                      aprt_failure *why)
{
    out->entry = aprt_weights_find(w, p->port.name);
    out->offset = box_start(p, coordinate);
    memcpy(out->stride, p->stride, sizeof out->stride);
    if (!out->entry)
        return aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\" is missing", aprt_weights_path(w), p->port.name);
    return check_entry(out->entry, p->port.dtype, p->port.rank, p->port.dim, why);
}

static int find_slice(const aprt_weights *w, const aprt_param *p, uint32_t index, const int64_t *coordinate,
                      const int64_t *extent, source *out, aprt_failure *why)
{
    size_t size = strlen(p->port.name) + 48;
    char *name = malloc(size);
    int64_t count = 1;
    if (!name)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory for the name of a tensor");
    /* the number of the parameter and where the box begins: files of another device or plan have other names */
    snprintf(name, size, "%s@%u+%lld", p->port.name, index, (long long)box_start(p, coordinate));
    out->entry = aprt_weights_find(w, name);
    out->offset = 0;
    for (int32_t d = p->ndims; d-- > 0;) {
        out->stride[d] = count;
        count *= extent[d];
    }
    int status = out->entry
                     ? check_entry(out->entry, p->port.dtype, 1, &count, why)
                     : aprt_fail(why, APRT_ERR_ENV, "%s: tensor \"%.100s\" is missing", aprt_weights_path(w), name);
    free(name);
    return status;
}

int aprt_weights_load(const aprt_weights *w, const aprt_param *p, uint32_t index, const int64_t *coordinate,
                      char *param, int64_t param_bytes, aprt_failure *why)
{
    source from;
    int32_t size = aprt_dtype_bytes(p->port.dtype);
    int64_t compact[APRT_MAX_LOOPS], extent[APRT_MAX_LOOPS], stride = 1, count = 1;
    for (int32_t d = 0; d < p->ndims; d++)
        extent[d] = p->extent[d];
    aprt_counts_apply(p->ncounts, p->count, coordinate, 0, extent);
    for (int32_t d = 0; d < p->ndims; d++)
        count *= extent[d];
    int status = aprt_weights_sliced(w) ? find_slice(w, p, index, coordinate, extent, &from, why)
                                        : find_whole(w, p, coordinate, &from, why);
    if (status != APRT_OK)
        return status;
    if (!box_fits(p, extent, &from, size, param_bytes) || (p->store == APRT_PANELS && !panels_fit(p, count)))
        return aprt_fail(why, APRT_ERR_BUG, "tensor \"%.100s\": a part is outside the whole", p->port.name);
    for (int32_t d = p->ndims; d-- > 0;) {
        compact[d] = stride;
        stride *= p->extent[d];
    }
    aprt_box box;
    aprt_box_make(&box, p->ndims, extent, from.stride, compact);
    panel_job job = {(const char *)from.entry->bytes + from.offset * size, param + p->byte_offset, p->n, p->k, 0, size};
    if (p->store == APRT_PANELS) {
        job.width = aprt_gemm_panel(p->port.dtype);
        store_panels(&box, &job);
    } else {
        aprt_box_copy(&box, 0, aprt_box_count(&box), size, job.src, job.dst);
    }
    if (!from.entry->kept)
        drop_pages(from.entry->bytes, from.entry->size);
    return APRT_OK;
}
