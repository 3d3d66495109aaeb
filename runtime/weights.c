/* SPDX-License-Identifier: MIT
 *
 * Reading parameters from a safetensors file: eight bytes with the length of a JSON header, the header, the data. The
 * file is mapped; nothing in it is believed before it is checked. Each device copies the box that is its part, and the
 * pages are given back at once, so that a model needs its parameters once in memory and not twice. */
#include "gemm_internal.h"
#include "internal.h"

#include <cJSON.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

enum { HEADER_MAX = 100 << 20 };

typedef struct entry {
    const char *name;
    const cJSON *json;
    int64_t begin, end;
} entry;

struct aprt_weights {
    char *path;
    const uint8_t *map;
    int64_t size, data; /* of the file; where tensors start */
    cJSON *header;
    entry *entry; /* sorted by name */
    int64_t nentries;
};

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

/* A whole number that a double holds exactly. */
static bool whole(const cJSON *j, int64_t *out)
{
    if (!cJSON_IsNumber(j) || !(j->valuedouble >= 0 && j->valuedouble <= 0x1p53) ||
        j->valuedouble != (double)(int64_t)j->valuedouble)
        return false;
    *out = (int64_t)j->valuedouble;
    return true;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const entry *)a)->name, ((const entry *)b)->name);
}

static int read_entry(aprt_weights *w, const cJSON *json, entry *out, aprt_failure *why)
{
    const cJSON *offsets = cJSON_GetObjectItemCaseSensitive(json, "data_offsets");
    out->name = json->string;
    out->json = json;
    if (!cJSON_IsObject(json) || !cJSON_IsArray(offsets) || cJSON_GetArraySize(offsets) != 2 ||
        !whole(cJSON_GetArrayItem(offsets, 0), &out->begin) || !whole(cJSON_GetArrayItem(offsets, 1), &out->end))
        return aprt_fail(why, APRT_ERR_DATA, "%s: tensor \"%.100s\": data_offsets are not two whole numbers", w->path,
                         json->string);
    if (out->begin > out->end || out->end > w->size - w->data)
        return aprt_fail(why, APRT_ERR_DATA, "%s: tensor \"%.100s\": bytes %lld to %lld are outside the %lld of data",
                         w->path, json->string, (long long)out->begin, (long long)out->end,
                         (long long)(w->size - w->data));
    return APRT_OK;
}

static int read_header(aprt_weights *w, aprt_failure *why)
{
    uint64_t length = 0;
    if (w->size < 8)
        return aprt_fail(why, APRT_ERR_DATA, "%s: not a safetensors file: %lld bytes", w->path, (long long)w->size);
    for (int i = 7; i >= 0; i--)
        length = length << 8 | w->map[i];
    if (length > HEADER_MAX || length > (uint64_t)w->size - 8)
        return aprt_fail(why, APRT_ERR_DATA, "%s: not a safetensors file, or cut short: header of %llu bytes", w->path,
                         (unsigned long long)length);
    w->data = 8 + (int64_t)length;
    w->header = cJSON_ParseWithLength((const char *)w->map + 8, (size_t)length);
    if (!cJSON_IsObject(w->header))
        return aprt_fail(why, APRT_ERR_DATA, "%s: the header is no JSON object", w->path);
    int64_t count = cJSON_GetArraySize(w->header);
    w->entry = calloc((size_t)count + 1, sizeof *w->entry);
    if (!w->entry)
        return aprt_fail(why, APRT_ERR_ENV, "out of memory for the header of %s", w->path);
    const cJSON *json;
    cJSON_ArrayForEach(json, w->header)
    {
        if (strcmp(json->string, "__metadata__") == 0)
            continue;
        int status = read_entry(w, json, &w->entry[w->nentries], why);
        if (status != APRT_OK)
            return status;
        w->nentries++;
    }
    qsort(w->entry, (size_t)w->nentries, sizeof *w->entry, by_name);
    for (int64_t i = 1; i < w->nentries; i++)
        if (by_name(&w->entry[i - 1], &w->entry[i]) == 0)
            return aprt_fail(why, APRT_ERR_DATA, "%s: tensor \"%.100s\" is there twice", w->path, w->entry[i].name);
    return APRT_OK;
}

static int map_file(aprt_weights *w, aprt_failure *why)
{
    int fd = open(w->path, O_RDONLY | O_CLOEXEC);
    struct stat st;
    if (fd < 0)
        return aprt_fail(why, APRT_ERR_ENV, "%s: %s", w->path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return aprt_fail(why, APRT_ERR_ENV, "%s: not a regular file", w->path);
    }
    w->size = st.st_size;
    if (w->size > 0) {
        void *map = mmap(NULL, (size_t)w->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (map == MAP_FAILED) {
            close(fd);
            return aprt_fail(why, APRT_ERR_ENV, "%s: cannot be mapped: %s", w->path, strerror(errno));
        }
        w->map = map;
    }
    close(fd);
    return APRT_OK;
}

int aprt_weights_open(const char *path, aprt_weights **out, aprt_failure *why)
{
    aprt_weights *w = calloc(1, sizeof *w);
    *out = NULL;
    if (!w || !(w->path = strdup(path))) {
        free(w);
        return aprt_fail(why, APRT_ERR_ENV, "out of memory");
    }
    int status = map_file(w, why);
    if (status == APRT_OK)
        status = read_header(w, why);
    if (status != APRT_OK) {
        aprt_weights_close(w);
        return status;
    }
    *out = w;
    return APRT_OK;
}

void aprt_weights_close(aprt_weights *w)
{
    if (!w)
        return;
    if (w->map)
        munmap((void *)(uintptr_t)w->map, (size_t)w->size);
    cJSON_Delete(w->header);
    free(w->entry);
    free(w->path);
    free(w);
}

/* Does the entry hold the tensor that the program wants? */
static int check_entry(const aprt_weights *w, const entry *e, const aprt_port *want, aprt_failure *why)
{
    const cJSON *dtype = cJSON_GetObjectItemCaseSensitive(e->json, "dtype");
    const cJSON *shape = cJSON_GetObjectItemCaseSensitive(e->json, "shape");
    int64_t dim[APRT_MAX_RANK] = {0}, bytes;
    int rank = cJSON_IsArray(shape) ? cJSON_GetArraySize(shape) : -1, d = 0;
    if (!cJSON_IsString(dtype) || rank < 0 || rank > APRT_MAX_RANK)
        return aprt_fail(why, APRT_ERR_DATA, "%s: tensor \"%.100s\" has no dtype or no shape", w->path, e->name);
    const cJSON *j;
    cJSON_ArrayForEach(j, shape)
    {
        if (!whole(j, &dim[d++]))
            return aprt_fail(why, APRT_ERR_DATA, "%s: tensor \"%.100s\" has a strange shape", w->path, e->name);
    }
    if (dtype_of(dtype->valuestring) != want->dtype || rank != want->rank ||
        memcmp(dim, want->dim, (size_t)rank * sizeof *dim) != 0) {
        char is[128], should[128];
        aprt_shape_text(dtype_of(dtype->valuestring), rank, dim, is, sizeof is);
        aprt_shape_text(want->dtype, want->rank, want->dim, should, sizeof should);
        return aprt_fail(why, APRT_ERR_DATA, "%s: tensor \"%.100s\" is %s, the program needs %s", w->path, e->name, is,
                         should);
    }
    if (!aprt_tensor_bytes(want->dtype, rank, dim, &bytes) || bytes != e->end - e->begin)
        return aprt_fail(why, APRT_ERR_DATA, "%s: tensor \"%.100s\" has %lld bytes, not those of its shape", w->path,
                         e->name, (long long)(e->end - e->begin));
    return APRT_OK;
}

/* Is the box inside the tensor, and its copy inside the device's memory? */
static bool box_fits(const aprt_param *p, const int64_t *extent, int64_t offset, int64_t elements, int64_t param_bytes)
{
    int64_t last = offset, bytes = aprt_dtype_bytes(p->port.dtype), reach;
    if (offset < 0 || p->byte_offset < 0 || p->bytes < 0 || p->byte_offset > param_bytes ||
        p->bytes > param_bytes - p->byte_offset)
        return false;
    for (int32_t d = 0; d < p->ndims; d++) {
        if (extent[d] == 0)
            return true;
        if (!aprt_mul(bytes, p->extent[d], &bytes) || !aprt_mul(extent[d] - 1, p->stride[d], &reach) ||
            __builtin_add_overflow(last, reach, &last))
            return false;
    }
    return last < elements && bytes <= p->bytes;
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

int aprt_weights_load(const aprt_weights *w, const aprt_param *p, const int64_t *coordinate, char *param,
                      int64_t param_bytes, aprt_failure *why)
{
    entry key = {.name = p->port.name};
    const entry *e = w->nentries ? bsearch(&key, w->entry, (size_t)w->nentries, sizeof key, by_name) : NULL;
    if (!e)
        return aprt_fail(why, APRT_ERR_DATA, "%s: tensor \"%.100s\" is missing", w->path, p->port.name);
    int status = check_entry(w, e, &p->port, why);
    if (status != APRT_OK)
        return status;
    int32_t size = aprt_dtype_bytes(p->port.dtype);
    int64_t offset = p->offset.base, compact[APRT_MAX_LOOPS], extent[APRT_MAX_LOOPS], stride = 1;
    for (int a = 0; a < APRT_MAX_AXES; a++)
        offset += p->offset.step[a] * coordinate[a];
    for (int32_t d = 0; d < p->ndims; d++)
        extent[d] = p->extent[d];
    aprt_counts_apply(p->ncounts, p->count, coordinate, 0, extent);
    int64_t count = 1;
    for (int32_t d = 0; d < p->ndims; d++)
        count *= extent[d];
    if (!box_fits(p, extent, offset, (e->end - e->begin) / size, param_bytes) ||
        (p->store == APRT_PANELS && !panels_fit(p, count)))
        return aprt_fail(why, APRT_ERR_BUG, "tensor \"%.100s\": a part is outside the whole", p->port.name);
    for (int32_t d = p->ndims; d-- > 0;) {
        compact[d] = stride;
        stride *= p->extent[d];
    }
    aprt_box box;
    aprt_box_make(&box, p->ndims, extent, p->stride, compact);
    const uint8_t *data = w->map + w->data + e->begin;
    panel_job job = {(const char *)data + offset * size, param + p->byte_offset, p->n, p->k, 0, size};
    if (p->store == APRT_PANELS) {
        job.width = aprt_gemm_panel(p->port.dtype);
        aprt_box_walk(&box, 0, aprt_box_count(&box), to_panels, &job);
    } else {
        aprt_box_copy(&box, 0, aprt_box_count(&box), size, job.src, job.dst);
    }
    drop_pages(data, e->end - e->begin);
    return APRT_OK;
}
