/* Text -> local program, line by line; kernels in local_parse_kernel.c. What can be out of bounds is left to
 * ap_local_verify, but every index that the record itself needs is checked. */
#include "ir/local_text.h"

#include "ir/parse.h"
#include "ir/print.h"

#include <inttypes.h>
#include <string.h>

typedef struct local_parser {
    ap_lex lex;
    ap_local *p;
} local_parser;

ap_status ap_local_parse_list(ap_lex *l, const char *what, int max, int64_t *out, uint8_t *out_n)
{
    int n = 0;
    AP_TRY(ap_lex_expect(l, "["));
    if (!ap_lex_accept(l, "]")) {
        do {
            if (n == max)
                return ap_lex_error(l, "more than %d numbers in %s", max, what);
            AP_TRY(ap_lex_i64(l, what, &out[n++]));
        } while (ap_lex_accept(l, ","));
        AP_TRY(ap_lex_expect(l, "]"));
    }
    *out_n = (uint8_t)n;
    return AP_OK;
}

/* A list that must have exactly n numbers. */
static ap_status parse_exact_list(ap_lex *l, const char *what, int n, int64_t *out)
{
    uint8_t given;
    ap_lex_skip(l);
    size_t mark = l->mark;
    AP_TRY(ap_local_parse_list(l, what, n, out, &given));
    l->mark = mark;
    return given == n ? AP_OK : ap_lex_error(l, "%d numbers in %s, not %d", given, what, n);
}

/* `key NUMBER` with a number >= 0 */
static ap_status parse_count(ap_lex *l, const char *key, int64_t *out)
{
    AP_TRY(ap_lex_expect_word(l, key));
    return ap_lex_range(l, key, 0, INT64_MAX, out);
}

/* The running number that stands before params and groups. */
static ap_status parse_index(ap_lex *l, const char *what, uint32_t want)
{
    int64_t i;
    AP_TRY(ap_lex_range(l, what, 0, UINT32_MAX, &i));
    return i == want ? AP_OK : ap_lex_error(l, "%s %" PRId64 " where %" PRIu32 " comes next", what, i, want);
}

static ap_status parse_axis(local_parser *lp, int *out)
{
    ap_name name;
    AP_TRY(ap_lex_axis(&lp->lex, &name));
    for (*out = 0; *out < lp->p->naxes; (*out)++)
        if (lp->p->axis_name[*out] == name)
            return AP_OK;
    return ap_lex_error(&lp->lex, "there is no axis '%s'", ap_name_str(lp->p->ctx, name));
}

/* Terms with signs between them: `128*tp+3`. `tail`: none is needed, and the first one has a sign as well. */
static ap_status parse_affine(local_parser *lp, bool tail, ap_affine *out)
{
    ap_lex *l = &lp->lex;
    memset(out, 0, sizeof *out);
    for (bool first = !tail; first || ap_lex_peek(l) == '+' || ap_lex_peek(l) == '-'; first = false) {
        int64_t x;
        int axis;
        if (!first)
            ap_lex_accept(l, "+");
        AP_TRY(ap_lex_i64(l, "a number", &x));
        int64_t *to = &out->base;
        if (ap_lex_accept(l, "*")) {
            AP_TRY(parse_axis(lp, &axis));
            to = &out->step[axis];
        }
        if (!ap_add_i64(*to, x, to))
            return ap_lex_error(l, "the number is too large");
    }
    return AP_OK;
}

/* `count 1 of 7 peer 2`, any number of them */
static ap_status parse_counts(local_parser *lp, int ndims, uint8_t *out_n, ap_count **out)
{
    ap_lex *l = &lp->lex;
    AP_VEC(ap_count) counts = {0};
    while (ap_lex_accept_word(l, "count")) {
        ap_count c = {0};
        int64_t dim;
        AP_TRY(ap_lex_range(l, "a dimension of the box", 0, ndims - 1, &dim));
        c.dim = (uint8_t)dim;
        for (uint32_t i = 0; i < counts.len; i++)
            if (counts.at[i].dim == c.dim)
                return ap_lex_error(l, "two counts for one dimension");
        AP_TRY(ap_lex_expect_word(l, "of"));
        AP_TRY(parse_affine(lp, false, &c.value));
        if (ap_lex_accept_word(l, "peer"))
            AP_TRY(ap_lex_i64(l, "a distance", &c.per_peer));
        ap_vec_push(&l->ctx->arena, &counts, c);
    }
    *out_n = (uint8_t)counts.len;
    *out = counts.at;
    return AP_OK;
}

/* `128*tp+3`, or `clamp(12-4*tp, 0, 4)` */
static ap_status parse_int(local_parser *lp, ap_int *out)
{
    ap_lex *l = &lp->lex;
    ap_affine a;
    bool clamp = ap_lex_accept_word(l, "clamp");
    if (clamp)
        AP_TRY(ap_lex_expect(l, "("));
    AP_TRY(parse_affine(lp, false, &a));
    *out = ap_int_plain(&a);
    if (!clamp)
        return AP_OK;
    AP_TRY(ap_lex_expect(l, ","));
    AP_TRY(ap_lex_i64(l, "a limit", &out->lo));
    AP_TRY(ap_lex_expect(l, ","));
    AP_TRY(ap_lex_range(l, "a limit", out->lo, INT64_MAX, &out->hi));
    return ap_lex_expect(l, ")");
}

static ap_status parse_ref(local_parser *lp, ap_ref *out)
{
    ap_lex *l = &lp->lex;
    int space;
    int64_t x;
    *out = (ap_ref){0};
    AP_TRY(ap_parse_choice(l, "a space", ap_space_text, AP_SPACE_COUNT, &space));
    out->space = (ap_space)space;
    AP_TRY(ap_lex_expect(l, "("));
    AP_TRY(ap_lex_range(l, "a place", 0, out->space == AP_SPACE_ARENA ? INT64_MAX : UINT32_MAX - 1, &x));
    if (out->space == AP_SPACE_ARENA)
        out->byte_offset = x;
    else
        out->index = (uint32_t)x;
    AP_TRY(ap_lex_expect(l, ")"));
    return parse_affine(lp, true, &out->offset);
}

ap_status ap_port_parse(ap_lex *l, ap_port *out)
{
    *out = (ap_port){0};
    AP_TRY(ap_lex_quoted_name(l, "a tensor name", &out->name));
    AP_TRY(ap_parse_dtype(l, &out->dtype));
    size_t mark = l->mark;
    AP_TRY(ap_local_parse_list(l, "a shape", AP_MAX_RANK, out->dim, &out->rank));
    l->mark = mark;
    int64_t n = ap_dtype_bytes(out->dtype);
    for (int d = 0; d < out->rank; d++) {
        if (out->dim[d] < 0)
            return ap_lex_error(l, "an extent is negative");
        n = ap_sat_mul(n, ap_max_i64(out->dim[d], 1));
    }
    return n == INT64_MAX ? ap_lex_error(l, "the shape has too many elements") : AP_OK;
}

static int64_t port_count(const ap_port *p)
{
    int64_t n = 1;
    for (int d = 0; d < p->rank; d++)
        n *= p->dim[d];
    return n;
}

static ap_status parse_param(local_parser *lp)
{
    ap_lex *l = &lp->lex;
    ap_local_param w = {0};
    ap_raw_data raw;
    AP_TRY(parse_index(l, "param", lp->p->params.len));
    AP_TRY(ap_port_parse(l, &w.port));
    AP_TRY(ap_lex_expect_word(l, "box"));
    AP_TRY(ap_local_parse_list(l, "a box", AP_MAX_FACTORS, w.extent, &w.nfactors));
    AP_TRY(parse_counts(lp, w.nfactors, &w.ncounts, &w.count));
    AP_TRY(ap_lex_expect_word(l, "strides"));
    AP_TRY(parse_exact_list(l, "strides", w.nfactors, w.stride));
    AP_TRY(ap_lex_expect_word(l, "from"));
    AP_TRY(parse_affine(lp, false, &w.offset));
    AP_TRY(parse_count(l, "at", &w.byte_offset));
    AP_TRY(parse_count(l, "bytes", &w.bytes));
    if (ap_lex_accept_word(l, "panels")) {
        int64_t kn[2];
        AP_TRY(parse_exact_list(l, "extents", 2, kn));
        w.store = (ap_store){AP_STORE_PANELS, kn[0], kn[1]};
    }
    if (ap_lex_accept_word(l, "prepared"))
        w.store.kind = AP_STORE_PREPARED;
    if (ap_lex_accept_word(l, "data")) {
        AP_TRY(ap_parse_data_in_parens(l, &raw));
        AP_TRY(ap_parse_data_finish(l, &raw, w.port.dtype, port_count(&w.port), &w.data));
    }
    AP_TRY(ap_lex_loc(l, &w.loc));
    ap_vec_push(&lp->p->ctx->arena, &lp->p->params, w);
    return AP_OK;
}

static ap_status parse_group(local_parser *lp)
{
    ap_lex *l = &lp->lex;
    AP_VEC(int32_t) ranks = {0};
    ap_group g = {0};
    AP_TRY(parse_index(l, "group", lp->p->groups.len));
    while (ap_lex_accept(l, "[")) {
        uint32_t before = ranks.len;
        do {
            int64_t r;
            AP_TRY(ap_lex_range(l, "a rank", 0, AP_LOCAL_MAX_RANKS - 1, &r));
            ap_vec_push(&lp->p->ctx->arena, &ranks, (int32_t)r);
            if (ranks.len > AP_LOCAL_MAX_RANKS)
                return ap_lex_error(l, "more than %d ranks in a group", AP_LOCAL_MAX_RANKS);
        } while (ap_lex_accept(l, ","));
        AP_TRY(ap_lex_expect(l, "]"));
        int32_t size = (int32_t)(ranks.len - before);
        if (g.count && size != g.size)
            return ap_lex_error(l, "the lists of a group have different lengths");
        g.size = size;
        g.count++;
    }
    if (!g.count)
        return ap_lex_expect(l, "[");
    g.rank = ranks.at;
    ap_vec_push(&lp->p->ctx->arena, &lp->p->groups, g);
    return AP_OK;
}

static ap_status parse_kernel(local_parser *lp)
{
    ap_kernel k;
    ap_lex *l = &lp->lex;
    ap_lex_skip(l);
    size_t mark = l->mark;
    AP_TRY(ap_local_parse_kernel(l, &k));
    l->mark = mark;
    for (uint32_t i = 0; i < lp->p->kernels.len; i++)
        if (lp->p->kernels.at[i].name == k.name)
            return ap_lex_error(l, "kernel @%s is defined twice", ap_name_str(l->ctx, k.name));
    ap_vec_push(&l->ctx->arena, &lp->p->kernels, k);
    return AP_OK;
}

/* ---- instructions ---- */

static ap_status parse_when(local_parser *lp, ap_instr *in)
{
    ap_lex *l = &lp->lex;
    in->when = ap_lex_accept_word(l, "zero") ? AP_WHEN_ZERO : AP_WHEN_NOT_ZERO;
    if (in->when == AP_WHEN_NOT_ZERO)
        AP_TRY(ap_lex_expect_word(l, "nonzero"));
    AP_TRY(ap_lex_expect(l, "("));
    do {
        int axis;
        AP_TRY(parse_axis(lp, &axis));
        in->when_mask |= (uint8_t)(1u << axis);
    } while (ap_lex_accept(l, ","));
    return ap_lex_expect(l, ")");
}

static ap_status parse_tail(local_parser *lp, ap_instr *in)
{
    ap_lex *l = &lp->lex;
    if (ap_lex_accept_word(l, "when"))
        AP_TRY(parse_when(lp, in));
    if (ap_lex_accept_word(l, "ps"))
        AP_TRY(ap_lex_range(l, "a time", 0, INT64_MAX, &in->picoseconds));
    AP_TRY(ap_lex_loc(l, &in->loc));
    ap_vec_push(&l->ctx->arena, &lp->p->instrs, *in);
    return AP_OK;
}

static ap_status parse_call(local_parser *lp)
{
    ap_lex *l = &lp->lex;
    ap_instr in = {.kind = AP_INSTR_CALL};
    ap_name name;
    AP_VEC(ap_ref) refs = {0};
    AP_VEC(ap_int) ints = {0};
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "a kernel name", &name, NULL));
    while (in.kernel < lp->p->kernels.len && lp->p->kernels.at[in.kernel].name != name)
        in.kernel++;
    if (in.kernel == lp->p->kernels.len)
        return ap_lex_error(l, "kernel @%s is not defined", ap_name_str(l->ctx, name));
    AP_TRY(ap_lex_expect(l, "("));
    if (!ap_lex_accept(l, ")")) {
        do {
            ap_ref r;
            AP_TRY(parse_ref(lp, &r));
            ap_vec_push(&l->ctx->arena, &refs, r);
        } while (ap_lex_accept(l, ","));
        AP_TRY(ap_lex_expect(l, ")"));
    }
    if (ap_lex_accept_word(l, "ints")) {
        AP_TRY(ap_lex_expect(l, "("));
        do {
            ap_int a;
            AP_TRY(parse_int(lp, &a));
            ap_vec_push(&l->ctx->arena, &ints, a);
        } while (ap_lex_accept(l, ","));
        AP_TRY(ap_lex_expect(l, ")"));
    }
    in.nrefs = refs.len;
    in.ref = refs.at;
    in.nints = ints.len;
    in.ints = ints.at;
    return parse_tail(lp, &in);
}

static ap_status parse_exchange(local_parser *lp, ap_exchange_kind kind)
{
    ap_lex *l = &lp->lex;
    ap_instr in = {.kind = AP_INSTR_EXCHANGE, .nrefs = 2, .exchange = {.kind = kind}};
    ap_exchange *x = &in.exchange;
    int fold = 0;
    int64_t group;
    in.ref = AP_NEW_ARRAY(&l->ctx->arena, ap_ref, 2);
    if (ap_exchange_folds(kind))
        AP_TRY(ap_parse_choice(l, "a fold", ap_partial_text, AP_PARTIAL_COUNT, &fold));
    x->fold = (ap_partial)fold;
    AP_TRY(ap_parse_dtype(l, &x->dtype));
    AP_TRY(ap_lex_expect_word(l, "group"));
    AP_TRY(ap_lex_range(l, "a group", 0, UINT32_MAX - 1, &group));
    x->group = (uint32_t)group;
    AP_TRY(ap_lex_expect_word(l, "box"));
    AP_TRY(ap_local_parse_list(l, "a box", AP_MAX_LOOPS, x->extent, &x->ndims));
    AP_TRY(parse_counts(lp, x->ndims, &x->ncounts, &x->count));
    AP_TRY(ap_lex_expect_word(l, "from"));
    AP_TRY(parse_ref(lp, &in.ref[0]));
    AP_TRY(parse_exact_list(l, "strides", x->ndims, x->src_stride));
    if (ap_exchange_has_me(kind)) {
        AP_TRY(ap_lex_expect_word(l, "me"));
        AP_TRY(ap_lex_i64(l, "a distance", &x->src_me));
    }
    AP_TRY(ap_lex_expect_word(l, "to"));
    AP_TRY(parse_ref(lp, &in.ref[1]));
    AP_TRY(parse_exact_list(l, "strides", x->ndims, x->dst_stride));
    if (ap_exchange_has_peer(kind)) {
        AP_TRY(ap_lex_expect_word(l, "peer"));
        AP_TRY(ap_lex_i64(l, "a distance", &x->dst_peer));
    }
    return parse_tail(lp, &in);
}

/* ---- the program ---- */

static ap_status parse_head_axes(local_parser *lp)
{
    ap_lex *l = &lp->lex;
    ap_local *p = lp->p;
    AP_TRY(ap_lex_expect(l, "["));
    if (ap_lex_accept(l, "]"))
        return AP_OK;
    do {
        int64_t size, stride;
        if (p->naxes == AP_MAX_AXES)
            return ap_lex_error(l, "more than %d axes", AP_MAX_AXES);
        AP_TRY(ap_lex_axis(l, &p->axis_name[p->naxes]));
        for (int a = 0; a < p->naxes; a++)
            if (p->axis_name[a] == p->axis_name[p->naxes])
                return ap_lex_error(l, "an axis occurs twice");
        AP_TRY(ap_lex_expect(l, "="));
        AP_TRY(ap_lex_range(l, "an axis size", 1, AP_LOCAL_MAX_RANKS, &size));
        AP_TRY(ap_lex_expect_word(l, "stride"));
        AP_TRY(ap_lex_range(l, "a stride", 1, AP_LOCAL_MAX_RANKS, &stride));
        p->axis_size[p->naxes] = (int32_t)size;
        p->axis_stride[p->naxes++] = (int32_t)stride;
    } while (ap_lex_accept(l, ","));
    return ap_lex_expect(l, "]");
}

/* Axis 0, whose stride is the number of ranks. */
static ap_status parse_head_time(local_parser *lp)
{
    ap_local *p = lp->p;
    AP_TRY(ap_parse_time(&lp->lex, &p->axis_size[0]));
    p->ntime = p->naxes = 1;
    p->axis_name[0] = ap_name_make(p->ctx, AP_TIME_AXIS);
    p->axis_stride[0] = p->nranks;
    return AP_OK;
}

static ap_status parse_head(local_parser *lp)
{
    ap_lex *l = &lp->lex;
    int64_t ranks, first;
    AP_TRY(ap_lex_expect_word(l, "local"));
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "the program's name", &lp->p->name, NULL));
    AP_TRY(ap_lex_expect_word(l, "ranks"));
    AP_TRY(ap_lex_range(l, "the number of ranks", 1, AP_LOCAL_MAX_RANKS, &ranks));
    lp->p->nranks = (int32_t)ranks;
    if (ap_lex_accept_word(l, "from")) {
        AP_TRY(ap_lex_range(l, "the first rank", 0, INT32_MAX - AP_LOCAL_MAX_RANKS, &first));
        lp->p->first_rank = (int32_t)first;
    }
    if (ap_lex_accept_word(l, "time"))
        AP_TRY(parse_head_time(lp));
    AP_TRY(ap_lex_expect_word(l, "axes"));
    AP_TRY(parse_head_axes(lp));
    AP_TRY(parse_count(l, "arena", &lp->p->arena_bytes));
    if (ap_lex_accept_word(l, "live"))
        AP_TRY(ap_lex_range(l, "live", 0, INT64_MAX, &lp->p->live_bytes));
    return parse_count(l, "params", &lp->p->param_bytes);
}

static ap_status parse_line(local_parser *lp)
{
    ap_lex *l = &lp->lex;
    ap_port port;
    bool input = ap_lex_accept_word(l, "input");
    if (input || ap_lex_accept_word(l, "output")) {
        bool slot = ap_lex_accept_word(l, "slot");
        AP_TRY(ap_port_parse(l, &port));
        port.slot = slot;
        if (input)
            ap_vec_push(&l->ctx->arena, &lp->p->inputs, port);
        else
            ap_vec_push(&l->ctx->arena, &lp->p->outputs, port);
        return AP_OK;
    }
    if (ap_lex_accept_word(l, "param"))
        return parse_param(lp);
    if (ap_lex_accept_word(l, "group"))
        return parse_group(lp);
    if (ap_lex_accept_word(l, "kernel"))
        return parse_kernel(lp);
    if (ap_lex_accept_word(l, "call"))
        return parse_call(lp);
    for (int k = 0; k < AP_EXCHANGE_KIND_COUNT; k++)
        if (ap_lex_accept_word(l, ap_exchange_text[k]))
            return parse_exchange(lp, (ap_exchange_kind)k);
    return ap_lex_error(l, "expected input, output, param, group, kernel, call or an exchange");
}

ap_status ap_local_parse_lines(ap_lex *l, ap_local **out)
{
    local_parser lp = {.lex = *l, .p = AP_NEW(&l->ctx->arena, ap_local)};
    lp.p->ctx = l->ctx;
    lp.p->m = ap_module_create(l->ctx);
    ap_status status = parse_head(&lp);
    while (status == AP_OK && !ap_lex_at_end(&lp.lex) && ap_lex_peek(&lp.lex) != '}')
        status = parse_line(&lp);
    *l = lp.lex;
    *out = lp.p;
    return status;
}

ap_status ap_local_parse(ap_ctx *ctx, const char *name, const char *text, size_t size, ap_local **out)
{
    ap_lex l;
    ap_lex_init(&l, ctx, name, text, size);
    AP_TRY(ap_local_parse_lines(&l, out));
    return ap_lex_at_end(&l) ? AP_OK
                             : ap_lex_error(&l, "expected input, output, param, group, kernel, call or an exchange");
}
