/* The weights of a program, in one of three forms (runtime/weights_file.c reads them).
 *
 * copy: weights.safetensors holds the logical tensors of all parameters, streamed from where they lie; names are
 * `param/N`, as in checkpoints.
 *
 * reference: weights.json says where the model keeps each tensor; weights.safetensors holds those that lie in no file
 * as they are: repeated numbers, what was computed, typed fields.
 *
 * sliced: weights.R.safetensors holds what rank R needs and nothing else: of parameter I of its stage its box, which
 * begins at element E of the logical tensor, row-major, as a tensor of one dimension `param/N@I+E`.
 *
 * Parameters of all stages are numbered through (first_param in emit.h). A tensor that several stages have is written
 * once. */
#include "backend/safetensors.h"
#include "ir/base/file.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The parameter of that number, and whose it is. */
static const ap_local_param *param_at(const ap_emit *e, uint32_t i, const ap_local **out_stage)
{
    uint32_t s = 0;
    while (i >= e->first_param[s + 1])
        s++;
    if (out_stage)
        *out_stage = e->program->stages.at[s];
    return &e->program->stages.at[s]->params.at[i - e->first_param[s]];
}

static uint32_t count_params(const ap_emit *e)
{
    return e->first_param[e->program->stages.len];
}

static bool same_data(const ap_data *a, const ap_data *b)
{
    bool inside = a->kind == AP_DATA_INLINE || a->kind == AP_DATA_SPLAT;
    return a->kind == b->kind && a->dtype == b->dtype && a->file == b->file && a->offset == b->offset &&
           a->size == b->size && (a->bytes == b->bytes || (inside && !memcmp(a->bytes, b->bytes, (size_t)a->size)));
}

static bool same_port(const ap_port *a, const ap_port *b)
{
    return a->name == b->name && a->dtype == b->dtype && a->rank == b->rank &&
           !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim);
}

/* Parameters that are parts of one tensor share its name; same[i] is the first of them. Different tensors of one name
 * are told apart by a number. */
static void name_tensors(ap_emit *e, uint32_t *same)
{
    uint32_t n = count_params(e);
    ap_name most = 0;
    for (uint32_t i = 0; i < n; i++)
        most = param_at(e, i, NULL)->port.name > most ? param_at(e, i, NULL)->port.name : most;
    uint32_t *first = AP_NEW_ARRAY(&e->ctx->scratch, uint32_t, (size_t)most + 1); /* by name: 1 + a parameter, or 0 */
    uint32_t *next = AP_NEW_ARRAY(&e->ctx->scratch, uint32_t, n);                 /* 1 + the next of its name */
    e->weight = AP_NEW_ARRAY(&e->ctx->scratch, const char *, n);
    for (uint32_t i = 0; i < n; i++) {
        const ap_local_param *q = param_at(e, i, NULL);
        uint32_t clashes = 0, *link = &first[q->port.name];
        ap_text t;
        same[i] = i;
        for (; *link; link = &next[*link - 1]) {
            uint32_t j = *link - 1;
            if (same[i] != i)
                continue;
            const ap_local_param *o = param_at(e, j, NULL);
            if (same_port(&o->port, &q->port) && same_data(&o->data, &q->data))
                same[i] = same[j];
            else if (same[j] == j)
                clashes++;
        }
        *link = i + 1;
        if (same[i] != i) {
            e->weight[i] = e->weight[same[i]];
            continue;
        }
        ap_text_init(&t, &e->ctx->scratch);
        ap_text_addf(&t, "param/%s", ap_name_str(e->ctx, q->port.name));
        if (clashes)
            ap_text_addf(&t, "#%u", clashes);
        e->weight[i] = ap_text_str(&t);
    }
}

/* ---- whole tensors ---- */

static bool write_splat(FILE *f, const void *element, size_t size, int64_t count)
{
    char block[4096];
    size_t per = sizeof block / size;
    for (size_t i = 0; i < per; i++)
        memcpy(block + i * size, element, size);
    for (int64_t i = 0; i < count; i += (int64_t)per) {
        size_t n = count - i < (int64_t)per ? (size_t)(count - i) : per;
        if (fwrite(block, size, n, f) != n)
            return false;
    }
    return true;
}

/* All bytes of the logical tensor; of a splat one element. */
static ap_status tensor_bytes(const ap_emit *e, uint32_t param, const char **out)
{
    const ap_local *p;
    const ap_local_param *q = param_at(e, param, &p);
    int64_t bytes = ap_dtype_bytes(q->port.dtype);
    const void *at;
    for (int d = 0; d < q->port.rank; d++)
        bytes = ap_sat_mul(bytes, q->port.dim[d]);
    AP_TRY(ap_data_bytes(p->m, &q->data, q->loc, &at));
    if (q->data.kind != AP_DATA_SPLAT && q->data.size != (uint64_t)bytes)
        return ap_fail(e->ctx, AP_ERR_MODEL, q->loc, "parameter \"%s\" has %" PRIu64 " bytes, its shape %" PRId64,
                       ap_name_str(e->ctx, q->port.name), q->data.size, bytes);
    *out = at;
    return AP_OK;
}

static ap_status write_tensor(const ap_emit *e, FILE *f, const ap_st_tensor *t, const void *user, bool *out_good)
{
    const ap_local_param *q = param_at(e, t->param, NULL);
    size_t size = (size_t)ap_dtype_bytes(t->dtype);
    int64_t count = ap_st_count(t);
    const char *bytes;
    (void)user;
    *out_good = true;
    if (count == 0)
        return AP_OK;
    AP_TRY(tensor_bytes(e, t->param, &bytes));
    if (q->data.kind == AP_DATA_SPLAT) {
        *out_good = write_splat(f, bytes, size, count);
        return AP_OK;
    }
    *out_good = fwrite(bytes, size, (size_t)count, f) == (size_t)count;
    if (q->data.kind == AP_DATA_FILE)
        ap_file_release_pages(bytes, q->data.size);
    return AP_OK;
}

/* The tensors of which `wanted` says yes (NULL: all), each once. */
static uint32_t list_tensors(const ap_emit *e, const uint32_t *same, const bool *wanted, ap_st_tensor *out)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < count_params(e); i++) {
        const ap_port *port = &param_at(e, i, NULL)->port;
        if (same[i] != i || (wanted && !wanted[i]))
            continue;
        out[n] = (ap_st_tensor){.name = e->weight[i], .dtype = port->dtype, .rank = port->rank, .param = i};
        memcpy(out[n++].dim, port->dim, sizeof port->dim);
    }
    return n;
}

/* ---- references ---- */

/* One member of weights.json. The file must have at least the bytes that are referred to. */
static ap_status print_reference(const ap_emit *e, ap_text *t, uint32_t i)
{
    const ap_local *p;
    const ap_local_param *q = param_at(e, i, &p);
    const char *bytes, *path;
    uint64_t file_size;
    AP_TRY(tensor_bytes(e, i, &bytes));
    AP_TRY(ap_data_where(p->m, &q->data, &path, &file_size));
    char *absolute = realpath(path, NULL);
    ap_text_add(t, "    ");
    ap_json_string(t, e->weight[i]);
    ap_text_addf(t, ": {\"dtype\": \"%s\", \"shape\": [", ap_st_dtype(q->port.dtype));
    for (int d = 0; d < q->port.rank; d++)
        ap_text_addf(t, "%s%" PRId64, d ? ", " : "", q->port.dim[d]);
    ap_text_add(t, "], \"file\": ");
    ap_json_string(t, absolute ? absolute : path);
    ap_text_addf(t, ", \"offset\": %" PRIu64 ", \"size\": %" PRIu64 ", \"file_size\": %" PRIu64 "}", q->data.offset,
                 q->data.size, file_size);
    free(absolute);
    return AP_OK;
}

static ap_status write_references(const ap_emit *e, const uint32_t *same)
{
    uint32_t n = count_params(e), some = 0;
    ap_st_tensor *tensor = AP_NEW_ARRAY(&e->ctx->scratch, ap_st_tensor, n);
    bool *inside = AP_NEW_ARRAY(&e->ctx->scratch, bool, n);
    ap_text t;
    ap_text_init(&t, &e->ctx->scratch);
    ap_text_add(&t, "{\n  \"format\": \"autopar-reference\",\n  \"tensors\": {");
    for (uint32_t i = 0; i < n; i++) {
        inside[i] = param_at(e, i, NULL)->data.kind != AP_DATA_FILE;
        if (same[i] != i || inside[i])
            continue;
        ap_text_add(&t, some++ ? ",\n" : "\n");
        AP_TRY(print_reference(e, &t, i));
    }
    ap_text_add(&t, "\n  }\n}\n");
    AP_TRY(ap_emit_file(e, "weights.json", &t));
    n = list_tensors(e, same, inside, tensor);
    return ap_safetensors_write(e, "weights.safetensors", ",\"reference\":\"weights.json\"", n, tensor, write_tensor,
                                NULL);
}

/* ---- slices ---- */

typedef struct slice_job {
    const int32_t *coords;
} slice_job;

static void slice_extents(const ap_local_param *q, const int32_t *coords, int64_t *extent)
{
    for (int d = 0; d < q->nfactors; d++)
        extent[d] = ap_counts_at(q->ncounts, q->count, d, q->extent[d], coords, 0);
}

/* Elements of the box from factor d on, of which the last ones that are adjacent go at once. */
static bool write_box(FILE *f, const ap_local_param *q, const int64_t *extent, int d, const char *at, size_t size)
{
    int64_t run = 1;
    int e = q->nfactors;
    while (e > d && (q->stride[e - 1] == run || extent[e - 1] == 1))
        run *= extent[--e];
    if (e == d)
        return fwrite(at, size, (size_t)run, f) == (size_t)run;
    for (int64_t i = 0; i < extent[d]; i++)
        if (!write_box(f, q, extent, d + 1, at + i * q->stride[d] * (int64_t)size, size))
            return false;
    return true;
}

static ap_status write_slice(const ap_emit *e, FILE *f, const ap_st_tensor *t, const void *user, bool *out_good)
{
    const slice_job *job = user;
    const ap_local_param *q = param_at(e, t->param, NULL);
    size_t size = (size_t)ap_dtype_bytes(t->dtype);
    int64_t extent[AP_MAX_FACTORS];
    const char *bytes;
    *out_good = true;
    if (t->dim[0] == 0)
        return AP_OK;
    AP_TRY(tensor_bytes(e, t->param, &bytes));
    if (q->data.kind == AP_DATA_SPLAT) {
        *out_good = write_splat(f, bytes, size, t->dim[0]);
        return AP_OK;
    }
    slice_extents(q, job->coords, extent);
    *out_good = write_box(f, q, extent, 0, bytes + ap_affine_at(&q->offset, job->coords) * (int64_t)size, size);
    if (q->data.kind == AP_DATA_FILE)
        ap_file_release_pages(bytes, q->data.size);
    return AP_OK;
}

/* The parameters of a rank's stage, as its table has them. */
static ap_status write_rank(const ap_emit *e, uint32_t stage, int32_t place, ap_st_tensor *tensor)
{
    const ap_local *p = e->program->stages.at[stage];
    int32_t coords[AP_MAX_AXES] = {0};
    for (int a = 0; a < p->naxes; a++)
        coords[a] = place / p->axis_stride[a] % p->axis_size[a];
    for (uint32_t i = 0; i < p->params.len; i++) {
        const ap_local_param *q = &p->params.at[i];
        const char *weight = e->weight[e->first_param[stage] + i];
        int64_t extent[AP_MAX_FACTORS], count = 1;
        slice_extents(q, coords, extent);
        for (int d = 0; d < q->nfactors; d++)
            count = ap_sat_mul(count, extent[d]);
        tensor[i] = (ap_st_tensor){
            .name = ap_name_str(e->ctx,
                                ap_name_format(e->ctx, "%s@%u+%" PRId64, weight, i, ap_affine_at(&q->offset, coords))),
            .dtype = q->port.dtype,
            .rank = 1,
            .dim = {count},
            .param = e->first_param[stage] + i,
        };
    }
    slice_job job = {coords};
    const char *file = ap_name_str(e->ctx, ap_name_format(e->ctx, "weights.%d.safetensors", p->first_rank + place));
    return ap_safetensors_write(e, file, "", p->params.len, tensor, write_slice, &job);
}

static ap_status write_slices(const ap_emit *e)
{
    ap_st_tensor *tensor = AP_NEW_ARRAY(&e->ctx->scratch, ap_st_tensor, count_params(e));
    for (uint32_t s = 0; s < e->program->stages.len; s++)
        for (int32_t r = 0; r < e->program->stages.at[s]->nranks; r++)
            AP_TRY(write_rank(e, s, r, tensor));
    const char *metadata = ap_name_str(e->ctx, ap_name_format(e->ctx, ",\"devices\":\"%d\"", e->program->nranks));
    return ap_safetensors_write(e, "weights.safetensors", metadata, 0, tensor, write_slice, NULL);
}

/* Numbers the parameters of all stages through and names them; which are parts of the same tensor. */
static uint32_t *number_tensors(ap_emit *e)
{
    uint32_t nstages = e->program->stages.len;
    e->first_param = AP_NEW_ARRAY(&e->ctx->scratch, uint32_t, (size_t)nstages + 1);
    for (uint32_t s = 0; s < nstages; s++)
        e->first_param[s + 1] = e->first_param[s] + e->program->stages.at[s]->params.len;
    uint32_t *same = AP_NEW_ARRAY(&e->ctx->scratch, uint32_t, count_params(e));
    name_tensors(e, same);
    return same;
}

/* A tensor whole in memory: where it lies, or a copy of repeated numbers in `arena`. */
static ap_status hold_tensor(const ap_emit *e, ap_arena *arena, uint32_t i, ap_emit_tensor *out)
{
    const ap_local_param *q = param_at(e, i, NULL);
    int64_t size = ap_dtype_bytes(q->port.dtype), bytes = size;
    for (int d = 0; d < q->port.rank; d++)
        bytes = ap_sat_mul(bytes, q->port.dim[d]);
    *out = (ap_emit_tensor){.name = ap_arena_strdup(arena, e->weight[i]), .size = bytes};
    if (bytes == 0)
        return AP_OK;
    AP_TRY(tensor_bytes(e, i, &out->bytes));
    out->mapped = q->data.kind == AP_DATA_FILE;
    if (q->data.kind != AP_DATA_SPLAT)
        return AP_OK;
    char *copy = ap_arena_alloc(arena, (size_t)bytes);
    for (int64_t at = 0; at < bytes; at += size)
        memcpy(copy + at, out->bytes, (size_t)size);
    out->bytes = copy;
    return AP_OK;
}

ap_status ap_emit_hold_weights(ap_emit *e, ap_arena *arena, uint32_t *out_count, ap_emit_tensor **out)
{
    const uint32_t *same = number_tensors(e);
    *out = AP_NEW_ARRAY(arena, ap_emit_tensor, count_params(e) + 1);
    *out_count = 0;
    for (uint32_t i = 0; i < count_params(e); i++)
        if (same[i] == i)
            AP_TRY(hold_tensor(e, arena, i, &(*out)[(*out_count)++]));
    return AP_OK;
}

ap_status ap_emit_weights(ap_emit *e)
{
    const uint32_t *same = number_tensors(e);
    ap_st_tensor *tensor = AP_NEW_ARRAY(&e->ctx->scratch, ap_st_tensor, count_params(e));
    switch (e->opt->weights) {
    case AP_WEIGHTS_REFERENCE:
        return write_references(e, same);
    case AP_WEIGHTS_SLICED:
        return write_slices(e);
    case AP_WEIGHTS_COPY:
        break;
    }
    uint32_t n = list_tensors(e, same, NULL, tensor);
    return ap_safetensors_write(e, "weights.safetensors", "", n, tensor, write_tensor, NULL);
}
