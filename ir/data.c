/* The bytes behind constants and parameters. Files are mapped on first use and stay mapped until the
 * context goes; each path is mapped once per context. */
#include "ir/base/file.h"
#include "ir/base/text.h"
#include "ir/module.h"

#include <assert.h>
#include <string.h>

typedef struct mapped_file {
    struct mapped_file *next;
    ap_name path;
    ap_file file;
} mapped_file;

static void unmap(void *user)
{
    ap_file_unmap(&((mapped_file *)user)->file);
}

/* The context's clean-up list doubles as the list of open files. */
static mapped_file *find_mapped(ap_ctx *ctx, ap_name path)
{
    for (ap_cleanup *c = ctx->cleanups; c; c = c->next)
        if (c->run == unmap && ((mapped_file *)c->user)->path == path)
            return c->user;
    return NULL;
}

static ap_name resolve(ap_module *m, ap_name file)
{
    const char *s = ap_name_str(m->ctx, file);
    const char *folder = ap_name_str(m->ctx, m->folder);
    return *s == '/' || !*folder ? file : ap_name_format(m->ctx, "%s/%s", folder, s);
}

/* The file of FILE data. */
static ap_status map_data(ap_module *m, const ap_data *d, mapped_file **out)
{
    ap_ctx *ctx = m->ctx;
    ap_name path = resolve(m, d->file);
    *out = find_mapped(ctx, path);
    if (!*out) {
        mapped_file *f = AP_NEW(&ctx->arena, mapped_file);
        f->path = path;
        AP_TRY(ap_file_map(ctx, ap_name_str(ctx, path), &f->file)); /* closed with the context */
        ap_ctx_on_release(ctx, unmap, f);
        *out = f;
    }
    return AP_OK;
}

ap_status ap_data_where(ap_module *m, const ap_data *d, const char **out_path, uint64_t *out_size)
{
    mapped_file *f;
    assert(d->kind == AP_DATA_FILE);
    AP_TRY(map_data(m, d, &f));
    *out_path = ap_name_str(m->ctx, f->path);
    *out_size = f->file.size;
    return AP_OK;
}

ap_status ap_data_bytes(ap_module *m, const ap_data *d, ap_loc loc, const void **out)
{
    ap_ctx *ctx = m->ctx;
    mapped_file *f;
    if (d->kind == AP_DATA_NONE)
        return ap_fail(ctx, AP_ERR_ENV, loc, "the data of this tensor is absent");
    if (d->kind != AP_DATA_FILE) {
        *out = d->bytes;
        return AP_OK;
    }
    AP_TRY(map_data(m, d, &f));
    if (d->offset > f->file.size || d->size > f->file.size - d->offset)
        return ap_fail(ctx, AP_ERR_ENV, loc, "%s: %llu bytes at offset %llu are wanted, the file has %llu",
                       ap_name_str(ctx, f->path), (unsigned long long)d->size, (unsigned long long)d->offset,
                       (unsigned long long)f->file.size);
    *out = f->file.data + d->offset;
    return AP_OK;
}

int64_t ap_data_size(const ap_ctx *ctx, const ap_data *d, ap_type t)
{
    if (d->kind == AP_DATA_SPLAT)
        return ap_dtype_bytes(ap_type_dtype(ctx, t));
    if (!d->part)
        return ap_type_bytes(ctx, t);
    const ap_shape_info *s = ap_type_shape(ctx, t);
    int64_t bytes = ap_dtype_bytes(ap_type_dtype(ctx, t));
    if (d->kind != AP_DATA_FILE || d->part->rank != s->rank || !ap_dims_fit(s->rank, d->part->dim))
        return -1;
    for (int i = 0; i < s->rank; i++) {
        int64_t extent = ap_shape_dim(s, i), whole = d->part->dim[i], start = d->part->start[i];
        if (start < 0 || extent > whole || start > whole - extent)
            return -1;
        bytes = ap_sat_mul(bytes, whole);
    }
    return bytes;
}
