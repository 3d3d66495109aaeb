/* Reading a kernel of a local program. */
#include "ir/local_text.h"

#include "ir/parse.h"
#include "ir/print.h"

#include <inttypes.h>
#include <string.h>

/* `%3`, an earlier operation that makes a value */
static ap_status parse_arg(ap_lex *l, const ap_sop *sop, uint32_t nsops, uint32_t *out)
{
    int64_t id;
    AP_TRY(ap_lex_expect(l, "%"));
    AP_TRY(ap_lex_range(l, "an operation", 0, UINT32_MAX - 1, &id));
    if (id >= nsops || !ap_sop_has_value(&sop[id]))
        return ap_lex_error(l, "%%%" PRId64 " is no value made before", id);
    *out = (uint32_t)id;
    return AP_OK;
}

static ap_status parse_int_ref(ap_lex *l, const char *sign, ap_sop *s)
{
    s->imm.i = -1;
    if (!ap_lex_accept(l, sign))
        return AP_OK;
    AP_TRY(ap_lex_expect_word(l, "int"));
    return ap_lex_range(l, "the number of an int", 0, UINT32_MAX - 1, &s->imm.i);
}

static ap_status parse_u8(ap_lex *l, const char *what, int64_t max, uint8_t *out)
{
    int64_t x;
    AP_TRY(ap_lex_range(l, what, 0, max, &x));
    *out = (uint8_t)x;
    return AP_OK;
}

/* `stride 4 extent 8 limit 8` */
static ap_status parse_rows(ap_lex *l, ap_sop *s)
{
    AP_TRY(ap_lex_expect_word(l, "stride"));
    AP_TRY(ap_lex_i64(l, "a stride", &s->stride));
    AP_TRY(ap_lex_expect_word(l, "extent"));
    AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, &s->extent));
    AP_TRY(ap_lex_expect_word(l, "limit"));
    return ap_lex_range(l, "a limit", 0, INT64_MAX, &s->limit);
}

static ap_status parse_gather(ap_lex *l, const ap_sop *sop, uint32_t id, ap_sop *s)
{
    AP_TRY(parse_u8(l, "an operand", AP_LOCAL_MAX_OPERANDS - 1, &s->operand));
    AP_TRY(ap_lex_expect_word(l, "at"));
    AP_TRY(parse_arg(l, sop, id, &s->arg[0]));
    AP_TRY(parse_int_ref(l, "-", s));
    return parse_rows(l, s);
}

static ap_status parse_update(ap_lex *l, const ap_sop *sop, uint32_t id, ap_sop *s)
{
    int kind;
    AP_TRY(ap_parse_choice(l, "what updates do", ap_scatter_text, AP_SCATTER_KIND_COUNT, &kind));
    s->reduce = (uint8_t)kind;
    s->imm.i = -1;
    AP_TRY(parse_u8(l, "an operand", AP_LOCAL_MAX_OPERANDS - 1, &s->operand));
    AP_TRY(ap_lex_expect(l, ","));
    AP_TRY(parse_arg(l, sop, id, &s->arg[0]));
    if (!ap_lex_accept_word(l, "at"))
        return AP_OK;
    AP_TRY(parse_arg(l, sop, id, &s->arg[1]));
    AP_TRY(parse_int_ref(l, "-", s));
    if (s->imm.i < 0)
        return ap_lex_error(l, "expected - int");
    return parse_rows(l, s);
}

/* What stands between the operation's name and the colon, except a constant's number. */
static ap_status parse_operands(ap_lex *l, const ap_nest *n, const ap_sop *sop, uint32_t id, ap_sop *s)
{
    uint8_t given;
    int kind, nloops = n->nouter + n->ninner;
    switch (s->kind) {
    case AP_SOP_LOAD:
        return parse_u8(l, "an operand", AP_LOCAL_MAX_OPERANDS - 1, &s->operand);
    case AP_SOP_GATHER:
        return parse_gather(l, sop, id, s);
    case AP_SOP_INDEX:
        AP_TRY(ap_local_parse_list(l, "loop strides", nloops, s->loop_stride, &given));
        if (given != nloops)
            return ap_lex_error(l, "%d loop strides for %d loops", given, nloops);
        return parse_int_ref(l, "+", s);
    case AP_SOP_POINTWISE:
        for (int i = 0; i < ap_sop_nargs(s); i++) {
            if (i)
                AP_TRY(ap_lex_expect(l, ","));
            AP_TRY(parse_arg(l, sop, id, &s->arg[i]));
        }
        return AP_OK;
    case AP_SOP_CHECK:
        AP_TRY(parse_arg(l, sop, id, &s->arg[0]));
        AP_TRY(ap_lex_expect_word(l, "limit"));
        return ap_lex_range(l, "a limit", 1, INT64_MAX, &s->limit);
    case AP_SOP_UPDATE:
        return parse_update(l, sop, id, s);
    case AP_SOP_REDUCE:
    case AP_SOP_SCAN:
        AP_TRY(ap_parse_choice(l, "a reduction", ap_reduce_text, AP_REDUCE_KIND_COUNT, &kind));
        s->reduce = (uint8_t)kind;
        AP_TRY(parse_arg(l, sop, id, &s->arg[0]));
        s->imm.i = s->kind == AP_SOP_SCAN && ap_lex_accept_word(l, "exclusive");
        return AP_OK;
    case AP_SOP_STORE:
        AP_TRY(parse_u8(l, "an operand", AP_LOCAL_MAX_OPERANDS - 1, &s->operand));
        break;
    case AP_SOP_TEMP_STORE:
    case AP_SOP_TEMP_LOAD:
        AP_TRY(ap_lex_range(l, "a temporary", 0, AP_LOCAL_MAX_TEMPS - 1, &s->imm.i));
        break;
    default:
        break;
    }
    if (s->kind == AP_SOP_TEMP_LOAD)
        return AP_OK;
    AP_TRY(ap_lex_expect(l, ","));
    return parse_arg(l, sop, id, &s->arg[0]);
}

static ap_status parse_sop_kind(ap_lex *l, ap_sop *s)
{
    const char *word;
    ap_pointwise pw;
    for (int k = 0; k < AP_SOP_KIND_COUNT; k++) {
        if (ap_sop_text[k] && ap_lex_accept_word(l, ap_sop_text[k])) {
            s->kind = (ap_sop_kind)k;
            return AP_OK;
        }
    }
    AP_TRY(ap_lex_word(l, "an operation", &word));
    if (!ap_pointwise_from_str(word, &pw))
        return ap_lex_error(l, "'%s' is no operation of a kernel", word);
    s->kind = AP_SOP_POINTWISE;
    s->pw = (uint16_t)pw;
    return AP_OK;
}

/* `%3 = exp %2 : f32` or `store 1, %3 : f32` */
static ap_status parse_sop(ap_lex *l, const ap_nest *n, const ap_sop *sop, uint32_t id, ap_sop *s)
{
    ap_lex_number number;
    bool labelled = ap_lex_accept(l, "%");
    *s = (ap_sop){0};
    if (labelled) {
        int64_t label;
        AP_TRY(ap_lex_range(l, "the number of an operation", 0, UINT32_MAX, &label));
        if (label != id)
            return ap_lex_error(l, "operation %%%" PRId64 " where %%%" PRIu32 " comes next", label, id);
        AP_TRY(ap_lex_expect(l, "="));
    }
    AP_TRY(parse_sop_kind(l, s));
    if (labelled != ap_sop_has_value(s))
        return ap_lex_error(l, labelled ? "this operation makes no value" : "the value has no number");
    if (s->kind == AP_SOP_CONST) {
        ap_lex at = *l; /* the number's type stands behind it */
        AP_TRY(ap_lex_num(l, &number));
        AP_TRY(ap_lex_expect(l, ":"));
        AP_TRY(ap_parse_dtype(l, &s->dtype));
        return ap_parse_scalar(&at, s->dtype, &s->imm);
    }
    AP_TRY(parse_operands(l, n, sop, id, s));
    AP_TRY(ap_lex_expect(l, ":"));
    return ap_parse_dtype(l, &s->dtype);
}

/* `int 2`, or nothing */
ap_status ap_local_parse_turns(ap_lex *l, uint32_t *out)
{
    int64_t i;
    *out = 0;
    if (!ap_lex_accept_word(l, "int"))
        return AP_OK;
    AP_TRY(ap_lex_range(l, "the number of an int", 0, UINT32_MAX - 2, &i));
    *out = (uint32_t)i + 1;
    return AP_OK;
}

static ap_status parse_loops(ap_lex *l, ap_nest *n)
{
    uint8_t k;
    AP_TRY(ap_lex_expect_word(l, "outer"));
    AP_TRY(ap_local_parse_list(l, "outer loops", AP_MAX_LOOPS, n->extent, &n->nouter));
    AP_TRY(ap_lex_expect_word(l, "inner"));
    AP_TRY(ap_local_parse_list(l, "loops", AP_MAX_LOOPS - n->nouter, n->extent + n->nouter, &k));
    n->ninner = k;
    while (ap_lex_accept_word(l, "turns")) {
        int64_t loop;
        AP_TRY(ap_lex_range(l, "a loop", 0, n->nouter + n->ninner - 1, &loop));
        AP_TRY(ap_local_parse_turns(l, &n->turns[loop]));
        if (!n->turns[loop])
            return ap_lex_error(l, "expected int");
    }
    while (ap_lex_accept_word(l, "temp")) {
        if (n->ntemps == AP_LOCAL_MAX_TEMPS)
            return ap_lex_error(l, "more than %d temporaries", AP_LOCAL_MAX_TEMPS);
        AP_TRY(ap_parse_dtype(l, &n->temp_dtype[n->ntemps++]));
    }
    return AP_OK;
}

static ap_status parse_nest(ap_lex *l, ap_nest *n)
{
    AP_VEC(ap_sop) sops = {0};
    while (!ap_lex_accept(l, "}")) {
        ap_sop s;
        bool inner = ap_lex_accept_word(l, "inner");
        if (inner || ap_lex_accept_word(l, "row")) {
            if (n->nsections == AP_LOCAL_MAX_SECTIONS)
                return ap_lex_error(l, "more than %d sections", AP_LOCAL_MAX_SECTIONS);
            n->inner[n->nsections++] = inner;
            AP_TRY(ap_lex_expect(l, ":"));
            continue;
        }
        if (n->nsections == 0)
            return ap_lex_error(l, "expected a section: row or inner");
        AP_TRY(parse_sop(l, n, sops.at, sops.len, &s));
        s.section = (uint8_t)(n->nsections - 1);
        ap_vec_push(&l->ctx->arena, &sops, s);
    }
    n->nsops = sops.len;
    n->sop = sops.at;
    return AP_OK;
}

static ap_status parse_key(ap_lex *l, const char *key, int64_t lo, int64_t *out)
{
    AP_TRY(ap_lex_expect_word(l, key));
    return ap_lex_range(l, key, lo, INT64_MAX, out);
}

/* `a [rows,columns]` */
static ap_status parse_two(ap_lex *l, int64_t *rs, int64_t *cs)
{
    int64_t two[2];
    uint8_t n;
    AP_TRY(ap_local_parse_list(l, "strides", 2, two, &n));
    if (n != 2)
        return ap_lex_error(l, "a matrix has two strides");
    *rs = two[0];
    *cs = two[1];
    return AP_OK;
}

static ap_status parse_strides(ap_lex *l, const char *key, int64_t *rs, int64_t *cs)
{
    AP_TRY(ap_lex_expect_word(l, key));
    return parse_two(l, rs, cs);
}

/* `b [rows,columns]` or `b panels` */
static ap_status parse_b(ap_lex *l, ap_gemm *g)
{
    AP_TRY(ap_lex_expect_word(l, "b"));
    g->panels = ap_lex_accept_word(l, "panels");
    if (!g->panels)
        return parse_two(l, &g->rsb, &g->csb);
    g->rsb = g->n;
    g->csb = 1;
    return AP_OK;
}

/* Sections behind the product are what follows it. */
static ap_status parse_gemm(ap_lex *l, ap_kernel *k)
{
    ap_gemm *g = &k->gemm;
    AP_TRY(ap_parse_dtype(l, &g->dtype));
    AP_TRY(parse_key(l, "m", 0, &g->m));
    AP_TRY(ap_local_parse_turns(l, &g->turns_m));
    AP_TRY(parse_key(l, "n", 0, &g->n));
    AP_TRY(ap_local_parse_turns(l, &g->turns_n));
    AP_TRY(parse_key(l, "k", 0, &g->k));
    AP_TRY(ap_local_parse_turns(l, &g->turns_k));
    AP_TRY(parse_strides(l, "a", &g->rsa, &g->csa));
    AP_TRY(parse_b(l, g));
    AP_TRY(parse_strides(l, "c", &g->rsc, &g->csc));
    while (ap_lex_accept_word(l, "loop")) {
        int i = g->nloops;
        if (i == AP_MAX_LOOPS)
            return ap_lex_error(l, "more than %d loops", AP_MAX_LOOPS);
        AP_TRY(ap_lex_range(l, "an extent", 0, INT64_MAX, &g->extent[i]));
        AP_TRY(ap_local_parse_turns(l, &g->turns[i]));
        AP_TRY(parse_key(l, "a", INT64_MIN, &g->stride_a[i]));
        AP_TRY(parse_key(l, "b", INT64_MIN, &g->stride_b[i]));
        AP_TRY(parse_key(l, "c", INT64_MIN, &g->stride_c[i]));
        g->sum[i] = ap_lex_accept_word(l, "sum");
        g->nloops++;
    }
    if (k->noperands < 3 || g->nloops + 2 > AP_MAX_LOOPS)
        return ap_lex_expect(l, "}");
    ap_local_epilogue_loops(k);
    AP_TRY(parse_nest(l, &k->nest));
    if (!k->nest.nsops) {
        memset(&k->nest, 0, sizeof k->nest);
        memset(k->operand[2].stride, 0, sizeof k->operand[2].stride);
    }
    return AP_OK;
}

/* `read f32 [128,1]` lines; how many strides there must be is known only behind them */
static ap_status parse_kernel_operands(ap_lex *l, ap_kernel *k, int *out_strides, size_t *out_mark)
{
    AP_VEC(ap_kernel_operand) operands = {0};
    *out_strides = -1;
    *out_mark = l->pos;
    while (true) {
        ap_kernel_operand o = {0};
        uint8_t n;
        o.written = ap_lex_accept_word(l, "write");
        if (!o.written && !ap_lex_accept_word(l, "read"))
            break;
        size_t mark = l->mark;
        if (operands.len == AP_LOCAL_MAX_OPERANDS)
            return ap_lex_error(l, "more than %d operands", AP_LOCAL_MAX_OPERANDS);
        AP_TRY(ap_parse_dtype(l, &o.dtype));
        if (ap_kernel_has_loops(k) || (k->kind == AP_KERNEL_GEMM && operands.len > 2)) {
            AP_TRY(ap_local_parse_list(l, "strides", AP_MAX_LOOPS, o.stride, &n));
            l->mark = *out_mark = mark;
            if (*out_strides >= 0 && *out_strides != n)
                return ap_lex_error(l, "operands have different numbers of strides");
            *out_strides = n;
        }
        ap_vec_push(&l->ctx->arena, &operands, o);
    }
    k->noperands = operands.len;
    k->operand = operands.at;
    return AP_OK;
}

ap_status ap_local_parse_kernel(ap_lex *l, ap_kernel *k)
{
    int strides;
    size_t mark, about_size;
    *k = (ap_kernel){.kind = AP_KERNEL_NEST};
    int kind;
    AP_TRY(ap_parse_choice(l, "a class of kernels", ap_kernel_text, AP_KERNEL_COUNT, &kind));
    k->kind = (ap_kernel_class)kind;
    AP_TRY(ap_lex_expect(l, "@"));
    AP_TRY(ap_lex_name(l, "a kernel name", &k->name, NULL));
    if (ap_lex_peek(l) == '"')
        AP_TRY(ap_lex_quoted(l, "a comment", &k->about, &about_size));
    AP_TRY(ap_lex_expect(l, "{"));
    AP_TRY(parse_kernel_operands(l, k, &strides, &mark));
    if (ap_lex_accept_word(l, "ints")) {
        int64_t n;
        AP_TRY(ap_lex_range(l, "the number of ints", 0, UINT32_MAX - 1, &n));
        k->nints = (uint32_t)n;
    }
    if (k->kind == AP_KERNEL_GEMM) {
        AP_TRY(parse_gemm(l, k));
        if (strides < 0 || strides == k->nest.nouter)
            return AP_OK;
        l->mark = mark;
        return ap_lex_error(l, "%d strides for %d loops", strides, k->nest.nouter);
    }
    if (k->kind == AP_KERNEL_CONV)
        return ap_local_parse_conv(l, &k->conv);
    if (k->kind == AP_KERNEL_POOL)
        return ap_local_parse_pool(l, &k->pool);
    AP_TRY(parse_loops(l, &k->nest));
    AP_TRY(k->kind == AP_KERNEL_TOPK ? ap_local_parse_topk(l, &k->topk) : parse_nest(l, &k->nest));
    l->mark = mark;
    if (strides >= 0 && strides != k->nest.nouter + k->nest.ninner)
        return ap_lex_error(l, "%d strides for %d loops", strides, k->nest.nouter + k->nest.ninner);
    return AP_OK;
}
