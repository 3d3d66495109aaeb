/* Reading the contents of constants and parameters. The element type stands behind them in the line, so
 * numbers are kept as read until it is known. */
#include "ir/parse.h"

#include <inttypes.h>

/* Whether an integer of this type can hold it. */
static bool integer_fits(ap_dtype t, const ap_lex_number *x, int64_t *out)
{
    bool is_unsigned = t == AP_U8 || t == AP_U16 || t == AP_U32 || t == AP_U64 || t == AP_BOOL;
    int bits = t == AP_BOOL ? 1 : 8 * ap_dtype_bytes(t);
    uint64_t max = is_unsigned ? UINT64_MAX >> (64 - bits) : (uint64_t)INT64_MAX >> (64 - bits);
    if (!x->integer || x->magnitude > max + (x->negative && !is_unsigned))
        return false;
    if (x->negative && is_unsigned && x->magnitude != 0)
        return false;
    *out = (int64_t)(x->negative ? 0 - x->magnitude : x->magnitude);
    return true;
}

static ap_status convert(ap_lex *l, const ap_lex_number *x, ap_dtype dtype, ap_scalar *out)
{
    if (ap_dtype_is_float(dtype)) {
        out->f = x->f;
        return AP_OK;
    }
    if (!integer_fits(dtype, x, &out->i))
        return ap_lex_error(l, "the number is no value of type %s", ap_dtype_str(dtype));
    return AP_OK;
}

ap_status ap_parse_scalar(ap_lex *l, ap_dtype dtype, ap_scalar *out)
{
    ap_lex_number x;
    AP_TRY(ap_lex_num(l, &x));
    return convert(l, &x, dtype, out);
}

static ap_status parse_numbers(ap_lex *l, ap_raw_data *out)
{
    ap_lex_number x;
    if (ap_lex_accept(l, "]"))
        return AP_OK;
    do {
        AP_TRY(ap_lex_num(l, &x));
        ap_vec_push(&l->ctx->arena, &out->number, x);
    } while (ap_lex_accept(l, ","));
    return ap_lex_expect(l, "]");
}

static ap_status parse_file(ap_lex *l, ap_raw_data *out)
{
    out->kind = AP_DATA_FILE;
    AP_TRY(ap_lex_quoted_name(l, "a file name", &out->file));
    AP_TRY(ap_lex_expect(l, ","));
    AP_TRY(ap_lex_u64(l, "an offset", &out->offset));
    AP_TRY(ap_lex_expect(l, ","));
    return ap_lex_u64(l, "a size", &out->size);
}

/* splat X | [X,...] | hex"..." */
static ap_status parse_inline(ap_lex *l, ap_raw_data *out)
{
    ap_lex_number x;
    out->kind = AP_DATA_INLINE;
    if (ap_lex_accept_word(l, "splat")) {
        out->kind = AP_DATA_SPLAT;
        AP_TRY(ap_lex_num(l, &x));
        ap_vec_push(&l->ctx->arena, &out->number, x);
        return AP_OK;
    }
    if (ap_lex_accept_word(l, "hex")) {
        out->hex = true;
        return ap_lex_hex(l, &out->bytes, &out->nbytes);
    }
    if (ap_lex_accept(l, "["))
        return parse_numbers(l, out);
    return ap_lex_error(l, "expected data: splat, [numbers], hex\"...\" or a file");
}

/* part @w[64,768] at [0,512], if it is there */
static ap_status parse_part(ap_lex *l, ap_raw_data *out)
{
    ap_shape_info whole;
    if (!ap_lex_accept_word(l, "part"))
        return AP_OK;
    ap_data_part *p = AP_NEW(&l->ctx->arena, ap_data_part);
    out->part = p;
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "the name of a tensor", &p->of, NULL));
    AP_TRY(ap_parse_shape(l, &whole));
    p->rank = (uint8_t)ap_shape_dims(&whole, p->dim);
    AP_TRY(ap_lex_expect_word(l, "at"));
    AP_TRY(ap_lex_expect(l, "["));
    for (int i = 0; i < p->rank; i++) {
        if (i)
            AP_TRY(ap_lex_expect(l, ","));
        AP_TRY(ap_lex_range(l, "where the part starts", 0, p->dim[i], &p->start[i]));
    }
    return ap_lex_expect(l, "]");
}

ap_status ap_parse_data(ap_lex *l, ap_raw_data *out)
{
    ap_lex_skip(l);
    *out = (ap_raw_data){.mark = l->mark};
    if (!ap_lex_accept_word(l, "data"))
        return parse_inline(l, out);
    AP_TRY(ap_lex_expect(l, "("));
    AP_TRY(parse_file(l, out));
    AP_TRY(ap_lex_expect(l, ")"));
    return parse_part(l, out);
}

ap_status ap_parse_data_in_parens(ap_lex *l, ap_raw_data *out)
{
    AP_TRY(ap_lex_expect(l, "("));
    ap_lex_skip(l);
    *out = (ap_raw_data){.mark = l->mark};
    if (ap_lex_peek(l) == '"')
        AP_TRY(parse_file(l, out));
    else
        AP_TRY(parse_inline(l, out));
    AP_TRY(ap_lex_expect(l, ")"));
    return out->kind == AP_DATA_FILE ? parse_part(l, out) : AP_OK;
}

ap_status ap_parse_data_finish(ap_lex *l, const ap_raw_data *raw, ap_dtype dtype, int64_t count, ap_data *out)
{
    size_t bytes = (size_t)ap_dtype_bytes(dtype);
    size_t given = raw->hex ? raw->nbytes / bytes : raw->number.len;
    *out = (ap_data){.kind = raw->kind, .dtype = dtype, .file = raw->file, .offset = raw->offset, .size = raw->size};
    out->part = raw->part;
    l->mark = raw->mark;
    if (raw->kind == AP_DATA_FILE)
        return AP_OK;
    if (raw->kind == AP_DATA_INLINE && ((uint64_t)count != given || (raw->hex && raw->nbytes % bytes)))
        return ap_lex_error(l, "data of %zu bytes for %" PRId64 " elements of %zu bytes",
                            raw->hex ? raw->nbytes : given * bytes, count, bytes);
    out->size = given * bytes;
    out->bytes = raw->bytes;
    if (raw->hex)
        return AP_OK;
    char *to = ap_arena_alloc(&l->ctx->arena, given * bytes);
    out->bytes = to;
    for (size_t i = 0; i < given; i++) {
        ap_scalar x;
        AP_TRY(convert(l, &raw->number.at[i], dtype, &x));
        ap_scalar_store(dtype, to + i * bytes, x);
    }
    return AP_OK;
}
