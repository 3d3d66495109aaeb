/* One safetensors file: header, then the tensors as they come. */
#include "backend/safetensors.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>
#include <unistd.h>

static const char *const dtype_name[AP_DTYPE_COUNT] = {
    [AP_F32] = "F32", [AP_U8] = "U8",   [AP_I8] = "I8",     [AP_U16] = "U16", [AP_I16] = "I16",
    [AP_I32] = "I32", [AP_I64] = "I64", [AP_BOOL] = "BOOL", [AP_F16] = "F16", [AP_F64] = "F64",
    [AP_U32] = "U32", [AP_U64] = "U64", [AP_BF16] = "BF16",
};

const char *ap_st_dtype(ap_dtype t)
{
    return dtype_name[t];
}

void ap_json_string(ap_text *t, const char *s)
{
    ap_text_add(t, "\"");
    for (; *s; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '"' || c == '\\')
            ap_text_addf(t, "\\%c", c);
        else if (c < ' ')
            ap_text_addf(t, "\\u%04x", c);
        else
            ap_text_add_n(t, s, 1);
    }
    ap_text_add(t, "\"");
}

int64_t ap_st_count(const ap_st_tensor *t)
{
    int64_t n = 1;
    for (int d = 0; d < t->rank; d++)
        n = ap_sat_mul(n, t->dim[d]);
    return n;
}

static void print_header(ap_text *t, const char *metadata, uint32_t n, const ap_st_tensor *const *order)
{
    int64_t at = 0;
    ap_text_addf(t, "{\"__metadata__\":{\"format\":\"autopar\"%s}", metadata);
    for (uint32_t i = 0; i < n; i++) {
        const ap_st_tensor *x = order[i];
        int64_t bytes = ap_st_count(x) * ap_dtype_bytes(x->dtype);
        ap_text_add(t, ",");
        ap_json_string(t, x->name);
        ap_text_addf(t, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name[x->dtype]);
        for (int d = 0; d < x->rank; d++)
            ap_text_addf(t, "%s%" PRId64, d ? "," : "", x->dim[d]);
        ap_text_addf(t, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + bytes);
        at += bytes;
    }
    ap_text_add(t, "}");
    while ((t->len + 8) % 64)
        ap_text_add(t, " ");
}

static bool write_header(const ap_emit *e, FILE *f, const char *metadata, uint32_t n, const ap_st_tensor *const *order)
{
    ap_text t;
    unsigned char length[8];
    ap_text_init(&t, &e->ctx->scratch);
    print_header(&t, metadata, n, order);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)t.len >> 8 * i);
    return fwrite(length, 1, 8, f) == 8 && fwrite(ap_text_str(&t), 1, t.len, f) == t.len;
}

ap_status ap_safetensors_write(const ap_emit *e, const char *file, const char *metadata, uint32_t n,
                               const ap_st_tensor *tensor, ap_st_body *body, const void *user)
{
    const ap_st_tensor **order = AP_NEW_ARRAY(&e->ctx->scratch, const ap_st_tensor *, n);
    uint32_t at = 0;
    for (int size = 8; size > 0; size /= 2)
        for (uint32_t i = 0; i < n; i++)
            if (ap_dtype_bytes(tensor[i].dtype) == size)
                order[at++] = &tensor[i];
    const char *path = ap_name_str(e->ctx, ap_name_format(e->ctx, "%s/%s", e->opt->dir, file));
    const char *part = ap_name_str(e->ctx, ap_name_format(e->ctx, "%s.part", path));
    FILE *f = fopen(part, "wb");
    if (!f)
        return ap_fail(e->ctx, AP_ERR_ENV, 0, "%s: cannot create: %s", path, strerror(errno));
    bool good = write_header(e, f, metadata, n, order);
    ap_status status = AP_OK;
    for (uint32_t i = 0; i < n && good && status == AP_OK; i++)
        status = body(e, f, order[i], user, &good);
    if (fclose(f) != 0)
        good = false;
    if (status == AP_OK && good && rename(part, path) == 0)
        return AP_OK;
    int error = errno;
    unlink(part);
    return status != AP_OK ? status : ap_fail(e->ctx, AP_ERR_ENV, 0, "%s: cannot write: %s", path, strerror(error));
}
