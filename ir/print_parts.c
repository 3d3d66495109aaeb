/* The parts of the text form that stand by themselves: names, shapes, shardings, types, data, locations. */
#include "ir/print.h"

#include "ir/lex.h"
#include "ir/op.h"
#include "ir/text_form.h"

#include <inttypes.h>
#include <string.h>

const char *const ap_symbol_kind_text[AP_SYMBOL_KIND_COUNT] = {"param", "state", "accum"};
const char *const ap_state_text[AP_STATE_COUNT] = {"imported", "normal", "planned", "explicit"};
const char *const ap_reduce_text[AP_REDUCE_KIND_COUNT] = {"sum", "prod", "max", "min", "argmax", "argmin"};
const char *const ap_scatter_text[AP_SCATTER_KIND_COUNT] = {"set", "add", "mul", "max", "min"};
const char *const ap_partial_text[AP_PARTIAL_COUNT] = {"sum", "max", "min"};

ap_attr_kind ap_op_attr(ap_op op)
{
    switch (op) {
    case AP_OP_CONTRACT:
    case AP_OP_VIEW:
    case AP_OP_GATHER:
        return AP_ATTR_SPEC;
    case AP_OP_REDUCE:
        return AP_ATTR_REDUCE;
    case AP_OP_SCATTER:
        return AP_ATTR_SCATTER;
    case AP_OP_INDEX:
        return AP_ATTR_INDEX;
    case AP_OP_TOPK:
        return AP_ATTR_TOPK;
    case AP_OP_CUMULATE:
        return AP_ATTR_CUMULATE;
    case AP_OP_SLICE:
        return AP_ATTR_SLICE;
    case AP_OP_PAD:
        return AP_ATTR_PAD;
    case AP_OP_CONV:
        return AP_ATTR_CONV;
    case AP_OP_POOL:
        return AP_ATTR_POOL;
    case AP_OP_CONCAT:
        return AP_ATTR_CONCAT;
    case AP_OP_IOTA:
        return AP_ATTR_IOTA;
    case AP_OP_CONSTANT:
        return AP_ATTR_CONSTANT;
    case AP_OP_COMPOSITE:
        return AP_ATTR_COMPOSITE;
    default:
        break;
    }
    if (op >= AP_OP_COUNT)
        return AP_ATTR_NONE;
    return ap_op_get(op)->collective || ap_op_get(op)->step ? AP_ATTR_AXES : AP_ATTR_NONE;
}

void ap_print_name(const ap_ctx *ctx, ap_name n, ap_text *out)
{
    const char *s = ap_name_str(ctx, n);
    if (ap_name_is_bare(s))
        ap_text_add(out, s);
    else
        ap_text_add_quoted(out, s);
}

void ap_print_axis(const ap_ctx *ctx, ap_name n, ap_text *out)
{
    const char *s = ap_name_str(ctx, n);
    if (ap_name_is_word(s))
        ap_text_add(out, s);
    else
        ap_text_add_quoted(out, s);
}

void ap_print_loc(const ap_ctx *ctx, ap_loc loc, ap_text *out)
{
    ap_loc_info l = ap_loc_get(ctx, loc);
    if (!l.node && !l.op)
        return;
    ap_text_add(out, "  loc(");
    ap_text_add_quoted(out, ap_name_str(ctx, l.node));
    if (l.op) {
        ap_text_add(out, ", ");
        ap_text_add_quoted(out, ap_name_str(ctx, l.op));
    }
    ap_text_add(out, ")");
}

/* ---- shapes, shardings, types ---- */

void ap_shape_print(const ap_shape_info *s, ap_text *out)
{
    ap_text_add(out, "[");
    for (int d = 0; d < s->rank; d++) {
        ap_text_add(out, d ? "," : "");
        if (s->first[d] == s->first[d + 1])
            ap_text_add(out, "1");
        for (int f = s->first[d]; f < s->first[d + 1]; f++) {
            ap_text_addf(out, "%s%" PRId64, f > s->first[d] ? "." : "", s->logical[f]);
            if (s->physical[f] != s->logical[f])
                ap_text_addf(out, "^%" PRId64, s->physical[f]);
        }
    }
    ap_text_add(out, "]");
}

static void print_axis_number(const ap_ctx *ctx, const ap_mesh_info *mesh, int a, ap_text *out)
{
    if (mesh && a >= 0 && a < mesh->naxes)
        ap_print_axis(ctx, mesh->axis_name[a], out);
    else
        ap_text_add(out, "?");
}

static void print_axes(const ap_ctx *ctx, const ap_mesh_info *mesh, ap_axes axes, ap_text *out)
{
    if (!axes)
        ap_text_add(out, "-");
    for (int i = 0; i < ap_axes_count(axes); i++) {
        ap_text_add(out, i ? "*" : "");
        print_axis_number(ctx, mesh, ap_axes_get(axes, i), out);
    }
}

void ap_sharding_print(const ap_module *m, ap_shape shape, ap_sharding sharding, ap_text *out)
{
    const ap_shape_info *s = ap_shape_get(m->ctx, shape);
    const ap_sharding_info *h = ap_sharding_get(m->ctx, sharding);
    const ap_mesh_info *mesh = h->mesh < m->meshes.len ? &m->meshes.at[h->mesh] : NULL;
    ap_text_add(out, "@");
    if (mesh)
        ap_print_name(m->ctx, mesh->name, out);
    else
        ap_text_add(out, "?");
    ap_text_add(out, "[");
    for (int d = 0; d < s->rank; d++) {
        bool split = false;
        for (int f = s->first[d]; f < s->first[d + 1]; f++)
            split = split || (f < h->nfactors && h->axes[f]);
        ap_text_add(out, d ? "," : "");
        if (!split)
            ap_text_add(out, "-");
        for (int f = s->first[d]; f < s->first[d + 1] && split; f++) {
            ap_text_add(out, f > s->first[d] ? "." : "");
            print_axes(m->ctx, mesh, f < h->nfactors ? h->axes[f] : 0, out);
        }
    }
    ap_text_add(out, "]");
    for (int k = 0; k < AP_PARTIAL_COUNT; k++) {
        if (!h->partial[k])
            continue;
        ap_text_addf(out, " %s(", ap_partial_text[k]);
        const char *comma = "";
        for (int a = 0; a < 8; a++) {
            if (!(h->partial[k] >> a & 1))
                continue;
            ap_text_add(out, comma);
            print_axis_number(m->ctx, mesh, a, out);
            comma = ",";
        }
        ap_text_add(out, ")");
    }
}

void ap_type_print(const ap_module *m, ap_type t, ap_text *out)
{
    ap_type_info info = ap_type_get(m->ctx, t);
    if (info.dtype == AP_DTYPE_NONE || info.dtype >= AP_DTYPE_COUNT) {
        ap_text_add(out, "?");
        return;
    }
    ap_text_add(out, ap_dtype_str(info.dtype));
    ap_shape_print(ap_shape_get(m->ctx, info.shape), out);
    if (info.sharding) {
        ap_text_add(out, " ");
        ap_sharding_print(m, info.shape, info.sharding, out);
    }
}

/* ---- data ---- */

void ap_print_scalar(ap_dtype dtype, ap_scalar x, ap_text *out)
{
    if (ap_dtype_is_float(dtype))
        ap_text_add_hexfloat(out, x.f);
    else if (dtype == AP_U64)
        ap_text_addf(out, "%" PRIu64, (uint64_t)x.i);
    else
        ap_text_addf(out, "%" PRId64, x.i);
}

/* Whether writing the numbers of `d` and reading them gives the same bytes (not so for NaNs with a payload, or
 * booleans other than 0 and 1). */
static bool numbers_are_exact(const ap_data *d, uint64_t count, int bytes)
{
    for (uint64_t i = 0; i < count; i++) {
        const char *p = (const char *)d->bytes + i * (uint64_t)bytes;
        char back[8];
        ap_scalar x = ap_scalar_load(d->dtype, p);
        if (ap_dtype_is_float(d->dtype) && x.f != x.f)
            x.f = __builtin_nan("");
        ap_scalar_store(d->dtype, back, x);
        if (memcmp(back, p, (size_t)bytes) != 0 || (d->dtype == AP_BOOL && (uint8_t)*p > 1))
            return false;
    }
    return true;
}

static void print_inline(const ap_data *d, ap_text *out)
{
    int bytes = ap_dtype_bytes(d->dtype);
    uint64_t count = bytes ? d->size / (uint64_t)bytes : 0;
    if (count <= AP_PRINT_LIST_MAX && count * (uint64_t)bytes == d->size && numbers_are_exact(d, count, bytes)) {
        ap_text_add(out, "[");
        for (uint64_t i = 0; i < count; i++) {
            ap_text_add(out, i ? "," : "");
            ap_print_scalar(d->dtype, ap_scalar_load(d->dtype, (const char *)d->bytes + i * (uint64_t)bytes), out);
        }
        ap_text_add(out, "]");
        return;
    }
    ap_text_add(out, "hex\"");
    for (uint64_t i = 0; i < d->size; i++) {
        static const char digit[] = "0123456789abcdef";
        unsigned char c = ((const unsigned char *)d->bytes)[i];
        char two[2] = {digit[c >> 4], digit[c & 15]};
        ap_text_add_n(out, two, 2);
    }
    ap_text_add(out, "\"");
}

static void print_file(const ap_ctx *ctx, const ap_data *d, ap_text *out)
{
    ap_text_add_quoted(out, ap_name_str(ctx, d->file));
    ap_text_addf(out, ", %" PRIu64 ", %" PRIu64, d->offset, d->size);
}

static void print_extents(const ap_data_part *p, const int64_t *x, ap_text *out)
{
    for (int i = 0; i < p->rank; i++)
        ap_text_addf(out, "%s%" PRId64, i ? "," : "[", x[i]);
    ap_text_add(out, p->rank ? "]" : "[]");
}

/* " part @w[64,768] at [0,512]" */
static void print_part(const ap_ctx *ctx, const ap_data *d, ap_text *out)
{
    if (!d || !d->part)
        return;
    ap_text_add(out, " part @");
    ap_print_name(ctx, d->part->of, out);
    print_extents(d->part, d->part->dim, out);
    ap_text_add(out, " at ");
    print_extents(d->part, d->part->start, out);
}

void ap_print_data(const ap_ctx *ctx, const ap_data *d, ap_text *out)
{
    bool file = d && d->kind == AP_DATA_FILE;
    ap_text_add(out, file ? "data(" : "");
    if (!d || d->kind == AP_DATA_NONE) {
        ap_text_add(out, "?");
    } else if (d->kind == AP_DATA_SPLAT) {
        ap_text_add(out, "splat ");
        ap_print_scalar(d->dtype, ap_scalar_load(d->dtype, d->bytes), out);
    } else if (d->kind == AP_DATA_INLINE) {
        print_inline(d, out);
    } else {
        print_file(ctx, d, out);
    }
    ap_text_add(out, file ? ")" : "");
    print_part(ctx, d, out);
}

void ap_print_data_in_parens(const ap_ctx *ctx, const ap_data *d, ap_text *out)
{
    bool file = d->kind == AP_DATA_FILE;
    ap_text_add(out, file ? "" : "data(");
    ap_print_data(ctx, d, out);
    ap_text_add(out, file ? "" : ")");
}
