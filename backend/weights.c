/* weights.safetensors: the logical tensors of all parameters, streamed from where they lie. Names are `param/N`, as in
 * checkpoints. The format allows no gaps, so tensors stand by falling element size: each is then aligned to its own. */
#include "backend/emit.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char *const dtype_name[AP_DTYPE_COUNT] = {
    [AP_F32] = "F32", [AP_U8] = "U8",   [AP_I8] = "I8",     [AP_U16] = "U16", [AP_I16] = "I16",
    [AP_I32] = "I32", [AP_I64] = "I64", [AP_BOOL] = "BOOL", [AP_F16] = "F16", [AP_F64] = "F64",
    [AP_U32] = "U32", [AP_U64] = "U64", [AP_BF16] = "BF16",
};

static bool same_data(const ap_data *a, const ap_data *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->bytes == b->bytes && a->file == b->file &&
           a->offset == b->offset && a->size == b->size;
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
    const ap_local *p = e->p;
    e->weight = AP_NEW_ARRAY(&e->ctx->scratch, const char *, p->params.len);
    for (uint32_t i = 0; i < p->params.len; i++) {
        const ap_local_param *q = &p->params.at[i];
        uint32_t clashes = 0;
        ap_text t;
        same[i] = i;
        for (uint32_t j = 0; j < i && same[i] == i; j++) {
            const ap_local_param *o = &p->params.at[j];
            if (same_port(&o->port, &q->port) && same_data(&o->data, &q->data))
                same[i] = same[j];
            else if (o->port.name == q->port.name && same[j] == j)
                clashes++;
        }
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

static void add_json_string(ap_text *t, const char *s)
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

static int64_t tensor_count(const ap_port *port)
{
    int64_t n = 1;
    for (int d = 0; d < port->rank; d++)
        n = ap_sat_mul(n, port->dim[d]);
    return n;
}

static void print_header(const ap_emit *e, ap_text *t, uint32_t n, const uint32_t *order)
{
    int64_t at = 0;
    ap_text_add(t, "{\"__metadata__\":{\"format\":\"autopar\"}");
    for (uint32_t i = 0; i < n; i++) {
        const ap_port *port = &e->p->params.at[order[i]].port;
        int64_t bytes = tensor_count(port) * ap_dtype_bytes(port->dtype);
        ap_text_add(t, ",");
        add_json_string(t, e->weight[order[i]]);
        ap_text_addf(t, ":{\"dtype\":\"%s\",\"shape\":[", dtype_name[port->dtype]);
        for (int d = 0; d < port->rank; d++)
            ap_text_addf(t, "%s%" PRId64, d ? "," : "", port->dim[d]);
        ap_text_addf(t, "],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}", at, at + bytes);
        at += bytes;
    }
    ap_text_add(t, "}");
    while ((t->len + 8) % 64)
        ap_text_add(t, " ");
}

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

static ap_status write_tensor(const ap_emit *e, FILE *f, const ap_local_param *q, bool *out_good)
{
    const void *bytes;
    size_t size = (size_t)ap_dtype_bytes(q->port.dtype);
    int64_t count = tensor_count(&q->port);
    *out_good = true;
    if (count == 0)
        return AP_OK;
    AP_TRY(ap_data_bytes(e->p->m, &q->data, q->loc, &bytes));
    if (q->data.kind == AP_DATA_SPLAT) {
        *out_good = write_splat(f, bytes, size, count);
        return AP_OK;
    }
    if (q->data.size != (uint64_t)count * size)
        return ap_fail(e->ctx, AP_ERR_MODEL, q->loc, "parameter \"%s\" has %" PRIu64 " bytes, its shape %" PRId64,
                       ap_name_str(e->ctx, q->port.name), q->data.size, count * (int64_t)size);
    *out_good = fwrite(bytes, size, (size_t)count, f) == (size_t)count;
    return AP_OK;
}

static ap_status write_all(const ap_emit *e, FILE *f, uint32_t n, const uint32_t *order, bool *out_good)
{
    ap_text t;
    unsigned char length[8];
    ap_text_init(&t, &e->ctx->scratch);
    print_header(e, &t, n, order);
    for (int i = 0; i < 8; i++)
        length[i] = (unsigned char)((uint64_t)t.len >> 8 * i);
    *out_good = fwrite(length, 1, 8, f) == 8 && fwrite(ap_text_str(&t), 1, t.len, f) == t.len;
    for (uint32_t i = 0; i < n && *out_good; i++)
        AP_TRY(write_tensor(e, f, &e->p->params.at[order[i]], out_good));
    return AP_OK;
}

ap_status ap_emit_weights(ap_emit *e)
{
    const ap_local *p = e->p;
    uint32_t *same = AP_NEW_ARRAY(&e->ctx->scratch, uint32_t, p->params.len);
    uint32_t *order = AP_NEW_ARRAY(&e->ctx->scratch, uint32_t, p->params.len), n = 0;
    name_tensors(e, same);
    for (int size = 8; size > 0; size /= 2)
        for (uint32_t i = 0; i < p->params.len; i++)
            if (same[i] == i && ap_dtype_bytes(p->params.at[i].port.dtype) == size)
                order[n++] = i;
    ap_text path, part;
    ap_text_init(&path, &e->ctx->scratch);
    ap_text_init(&part, &e->ctx->scratch);
    ap_text_addf(&path, "%s/weights.safetensors", e->opt->dir);
    ap_text_addf(&part, "%s.part", ap_text_str(&path));
    FILE *f = fopen(ap_text_str(&part), "wb");
    if (!f)
        return ap_fail(e->ctx, AP_ERR_ENV, 0, "%s: cannot create: %s", ap_text_str(&path), strerror(errno));
    bool good = false;
    ap_status status = write_all(e, f, n, order, &good);
    if (fclose(f) != 0)
        good = false;
    if (status == AP_OK && good && rename(ap_text_str(&part), ap_text_str(&path)) == 0)
        return AP_OK;
    int error = errno;
    unlink(ap_text_str(&part));
    return status != AP_OK
               ? status
               : ap_fail(e->ctx, AP_ERR_ENV, 0, "%s: cannot write: %s", ap_text_str(&path), strerror(error));
}
