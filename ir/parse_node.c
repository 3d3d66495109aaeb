/* Reading the lines of a function: `%a, %b = op operands attributes : types  loc(...)`. */
#include "ir/parse.h"

#include "ir/op.h"
#include "ir/print.h"

#include <inttypes.h>
#include <string.h>

/* One line while it is read. */
typedef struct line {
    size_t mark; /* of its operator, where errors about the whole line point */
    AP_VEC(ap_parse_binding) label;
    AP_VEC(ap_value) in;
    ap_op op;
    ap_raw_data raw; /* constant */
    ap_node_info attr;
    ap_node node;
} line;

static ap_status parse_labels(ap_parser *p, line *n)
{
    ap_lex *l = &p->lex;
    if (ap_lex_peek(l) != '%')
        return AP_OK;
    do {
        ap_name name;
        bool digits;
        AP_TRY(ap_lex_expect(l, "%"));
        AP_TRY(ap_lex_name(l, "a value name", &name, &digits));
        ap_parse_binding b = {digits ? AP_PARSE_NUMBER : AP_PARSE_VALUE, name};
        ap_vec_push(&l->ctx->scratch, &n->label, b);
    } while (ap_lex_accept(l, ","));
    return ap_lex_expect(l, "=");
}

static ap_status parse_op(ap_parser *p, line *n)
{
    ap_lex *l = &p->lex;
    const char *word;
    ap_lex_skip(l);
    n->mark = l->mark;
    AP_TRY(ap_lex_word(l, "an operator", &word));
    if (!ap_op_from_str(word, &n->op))
        return ap_lex_error(l, "'%s' is no operator", word);
    int kind;
    if (ap_op_attr(n->op) == AP_ATTR_REDUCE) {
        AP_TRY(ap_parse_choice(l, "a reduction", ap_reduce_text, AP_REDUCE_KIND_COUNT, &kind));
        n->attr.u.reduce.kind = (ap_reduce_kind)kind;
    } else if (ap_op_attr(n->op) == AP_ATTR_CUMULATE) {
        AP_TRY(ap_parse_choice(l, "a reduction", ap_reduce_text, AP_REDUCE_ARGMAX, &kind));
        n->attr.u.cumulate.kind = (ap_reduce_kind)kind;
    } else if (ap_op_attr(n->op) == AP_ATTR_SCATTER) {
        AP_TRY(ap_parse_choice(l, "what updates do", ap_scatter_text, AP_SCATTER_KIND_COUNT, &kind));
        n->attr.u.scatter.kind = (ap_scatter_kind)kind;
    } else if (ap_op_attr(n->op) == AP_ATTR_POOL) {
        AP_TRY(ap_parse_choice(l, "a kind of pooling", ap_pool_text, AP_POOL_KIND_COUNT, &kind));
        n->attr.u.pool = AP_NEW(&l->ctx->arena, ap_pool_attr);
        n->attr.u.pool->kind = (ap_pool_kind)kind;
    }
    if (ap_op_attr(n->op) == AP_ATTR_COMPOSITE)
        AP_TRY(ap_lex_name(l, "the composite's name", &n->attr.u.composite, NULL));
    return AP_OK;
}

static ap_status parse_operands(ap_parser *p, line *n)
{
    ap_lex *l = &p->lex;
    bool parens = ap_op_attr(n->op) == AP_ATTR_COMPOSITE;
    if (parens)
        AP_TRY(ap_lex_expect(l, "("));
    int c = ap_lex_peek(l);
    if (c == '%' || c == '@') {
        do {
            ap_value v;
            AP_TRY(ap_parse_operand(p, &v));
            ap_vec_push(&l->ctx->scratch, &n->in, v);
        } while (ap_lex_accept(l, ","));
    }
    return parens ? ap_lex_expect(l, ")") : AP_OK;
}

static ap_status check_arity(ap_parser *p, line *n)
{
    const ap_op_info *op = ap_op_get(n->op);
    p->lex.mark = n->mark;
    uint32_t nin = n->in.len, nout = n->label.len;
    if (op->nin >= 0 && nin != (uint32_t)op->nin)
        return ap_lex_error(&p->lex, "%s has %d operand%s, not %" PRIu32, op->name, op->nin, op->nin == 1 ? "" : "s",
                            nin);
    if (op->nout >= 0 && nout != (uint32_t)op->nout)
        return ap_lex_error(&p->lex, "%s has %d result%s, not %" PRIu32, op->name, op->nout, op->nout == 1 ? "" : "s",
                            nout);
    if (!op->terminator && nin == 0 && ap_op_attr(n->op) == AP_ATTR_CONCAT)
        return ap_lex_error(&p->lex, "%s needs an operand", op->name);
    if (!op->terminator && nout == 0 && op->nout < 0)
        return ap_lex_error(&p->lex, "%s needs a result", op->name);
    return AP_OK;
}

/* ---- attributes ---- */

static ap_status parse_spec(ap_parser *p, line *n, ap_spec **out)
{
    ap_lex *l = &p->lex;
    const char *why;
    AP_TRY(ap_lex_expect(l, "{"));
    const char *s = l->text + l->pos, *end = memchr(s, '}', l->size - l->pos);
    if (!end)
        return ap_lex_error(l, "the letters are not closed by '}'");
    *out = AP_NEW(&l->ctx->arena, ap_spec);
    if (!ap_spec_parse(s, (size_t)(end - s), *out, &why))
        return ap_lex_error(l, "letters: %s", why);
    if ((*out)->noperands != n->in.len)
        return ap_lex_error(l, "letters for %d operands, the node has %" PRIu32, (*out)->noperands, n->in.len);
    l->pos += (size_t)(end - s) + 1;
    return AP_OK;
}

/* start:stop or start:stop:step, where stop lies a whole number of steps behind start */
static ap_status parse_range(ap_lex *l, ap_range *r)
{
    int64_t stop, span;
    if (ap_lex_accept(l, "-")) {
        r->whole = true;
        return AP_OK;
    }
    ap_lex_skip(l);
    size_t mark = l->mark;
    r->step = 1;
    AP_TRY(ap_lex_range(l, "a start", 0, INT64_MAX, &r->start));
    AP_TRY(ap_lex_expect(l, ":"));
    AP_TRY(ap_lex_i64(l, "a stop", &stop));
    if (ap_lex_accept(l, ":"))
        AP_TRY(ap_lex_range(l, "a step", -INT64_MAX, INT64_MAX, &r->step));
    l->mark = mark;
    if (r->step == 0 || __builtin_sub_overflow(stop, r->start, &span) || span % r->step != 0 || span / r->step < 0)
        return ap_lex_error(l, "the stop must be a whole number of steps behind the start");
    r->count = span / r->step;
    return AP_OK;
}

static ap_status parse_slice_dim(ap_lex *l, const ap_shape_info *shape, int d, ap_slice_attr *a)
{
    int first = shape->first[d], count = shape->first[d + 1] - first, given = 0;
    bool all_whole = true;
    ap_lex_skip(l);
    size_t mark = l->mark;
    do {
        ap_range r = {0};
        AP_TRY(parse_range(l, &r));
        if (given < count)
            a->range[first + given] = r;
        all_whole = all_whole && r.whole;
        given++;
    } while (ap_lex_accept(l, "."));
    l->mark = mark;
    if (given == 1 && all_whole) {
        for (int f = 0; f < count; f++)
            a->range[first + f] = (ap_range){.whole = true};
        return AP_OK;
    }
    if (given != count)
        return ap_lex_error(l, "dimension %d has %d factor%s, not %d", d, count, count == 1 ? "" : "s", given);
    return AP_OK;
}

static ap_status parse_pad_dim(ap_lex *l, int d, ap_pad_attr *a)
{
    if (ap_lex_accept(l, "-"))
        return AP_OK;
    AP_TRY(ap_lex_range(l, "a padding", 0, INT64_MAX, &a->lo[d]));
    AP_TRY(ap_lex_expect(l, ":"));
    return ap_lex_range(l, "a padding", 0, INT64_MAX, &a->hi[d]);
}

/* "[a,b,...]", one entry per dimension of the first operand */
static ap_status parse_per_dim(ap_parser *p, line *n)
{
    ap_lex *l = &p->lex;
    const ap_shape_info *shape = ap_value_shape(p->m, n->in.at[0]);
    bool slice = ap_op_attr(n->op) == AP_ATTR_SLICE;
    if (slice)
        n->attr.u.slice = AP_NEW(&l->ctx->arena, ap_slice_attr);
    else
        n->attr.u.pad = AP_NEW(&l->ctx->arena, ap_pad_attr);
    AP_TRY(ap_lex_expect(l, "["));
    for (int d = 0; d < shape->rank; d++) {
        if (d)
            AP_TRY(ap_lex_expect(l, ","));
        if (slice)
            AP_TRY(parse_slice_dim(l, shape, d, n->attr.u.slice));
        else
            AP_TRY(parse_pad_dim(l, d, n->attr.u.pad));
    }
    return ap_lex_expect(l, "]");
}

/* "[-,3/2+1:1]", then `ceil` or nothing */
static ap_status parse_windows(ap_parser *p, line *n)
{
    ap_lex *l = &p->lex;
    const ap_shape_info *shape = ap_value_shape(p->m, n->in.at[0]);
    AP_TRY(ap_lex_expect(l, "["));
    for (int d = 0; d < shape->rank; d++) {
        if (d)
            AP_TRY(ap_lex_expect(l, ","));
        AP_TRY(ap_window_parse(l, &n->attr.u.pool->window[d]));
    }
    AP_TRY(ap_lex_expect(l, "]"));
    n->attr.u.pool->ceil = ap_lex_accept_word(l, "ceil");
    return AP_OK;
}

static ap_status parse_dim_number(ap_lex *l, uint8_t *out)
{
    int64_t d;
    AP_TRY(ap_lex_expect_word(l, "dim"));
    AP_TRY(ap_lex_range(l, "a dimension", 0, AP_MAX_RANK - 1, &d));
    *out = (uint8_t)d;
    return AP_OK;
}

/* `dim 1 largest 4` */
static ap_status parse_topk(ap_lex *l, line *n)
{
    AP_TRY(parse_dim_number(l, &n->attr.u.topk.dim));
    n->attr.u.topk.largest = ap_lex_accept_word(l, "largest");
    if (!n->attr.u.topk.largest)
        AP_TRY(ap_lex_expect_word(l, "smallest"));
    return ap_lex_range(l, "a number of elements", 1, INT64_MAX, &n->attr.u.topk.k);
}

/* `dim 1 exclusive reverse` */
static ap_status parse_cumulate(ap_lex *l, line *n)
{
    AP_TRY(parse_dim_number(l, &n->attr.u.cumulate.dim));
    n->attr.u.cumulate.exclusive = ap_lex_accept_word(l, "exclusive");
    n->attr.u.cumulate.reverse = ap_lex_accept_word(l, "reverse");
    return AP_OK;
}

static ap_status parse_over(ap_parser *p, line *n)
{
    ap_sharding s = ap_type_get(p->m->ctx, ap_value_type(p->m, n->in.at[0])).sharding;
    AP_TRY(ap_lex_expect_word(&p->lex, "over"));
    if (!s)
        return ap_lex_error(&p->lex, "the operand has no sharding");
    const ap_mesh_info *mesh = &p->m->meshes.at[ap_sharding_get(p->m->ctx, s)->mesh];
    return ap_parse_axes_mask(&p->lex, mesh, &n->attr.u.axes.mask);
}

static ap_status parse_attr(ap_parser *p, line *n)
{
    switch (ap_op_attr(n->op)) {
    case AP_ATTR_SPEC:
        return parse_spec(p, n, &n->attr.u.spec);
    case AP_ATTR_REDUCE:
        return parse_spec(p, n, &n->attr.u.reduce.spec);
    case AP_ATTR_SCATTER:
        return parse_spec(p, n, &n->attr.u.scatter.spec);
    case AP_ATTR_INDEX:
        AP_TRY(ap_lex_expect_word(&p->lex, "of"));
        return ap_lex_range(&p->lex, "a number of entries", 1, INT64_MAX, &n->attr.u.index.limit);
    case AP_ATTR_TOPK:
        return parse_topk(&p->lex, n);
    case AP_ATTR_CUMULATE:
        return parse_cumulate(&p->lex, n);
    case AP_ATTR_SLICE:
    case AP_ATTR_PAD:
        return parse_per_dim(p, n);
    case AP_ATTR_CONV:
        n->attr.u.conv = AP_NEW(&p->lex.ctx->arena, ap_conv_attr);
        return ap_parse_conv(&p->lex, ap_value_shape(p->m, n->in.at[0])->rank, n->attr.u.conv);
    case AP_ATTR_POOL:
        return parse_windows(p, n);
    case AP_ATTR_CONCAT:
        return parse_dim_number(&p->lex, &n->attr.u.concat.dim);
    case AP_ATTR_IOTA:
        return parse_dim_number(&p->lex, &n->attr.u.iota.dim);
    case AP_ATTR_CONSTANT:
        return ap_parse_data(&p->lex, &n->raw);
    case AP_ATTR_AXES:
        return parse_over(p, n);
    case AP_ATTR_COMPOSITE:
    case AP_ATTR_NONE:
        break;
    }
    return AP_OK;
}

/* ---- lines ---- */

/* ": T1, T2", one per result */
static ap_status parse_result_types(ap_parser *p, line *n)
{
    for (uint32_t i = 0; i < n->label.len; i++) {
        ap_type type;
        AP_TRY(ap_lex_expect(&p->lex, i ? "," : ":"));
        AP_TRY(ap_parse_type(&p->lex, p->m, &type));
        ap_value_at(p->m, ap_node_at(p->m, n->node)->out[i])->type = type;
    }
    return AP_OK;
}

static ap_status finish_constant(ap_parser *p, line *n)
{
    ap_ctx *ctx = p->m->ctx;
    ap_node_info *node = ap_node_at(p->m, n->node);
    ap_type type = ap_value_type(p->m, node->out[0]);
    node->u.constant = AP_NEW(&ctx->arena, ap_data);
    return ap_parse_data_finish(&p->lex, &n->raw, ap_type_dtype(ctx, type), ap_shape_count(ap_type_shape(ctx, type)),
                                node->u.constant);
}

static ap_status parse_body(ap_parser *p, line *n, int depth)
{
    uint32_t outer = p->bound.len;
    AP_TRY(ap_lex_expect(&p->lex, "{"));
    if (depth >= AP_PARSE_MAX_DEPTH)
        return ap_lex_error(&p->lex, "composites are nested more than %d deep", AP_PARSE_MAX_DEPTH);
    ap_block body = ap_module_add_block(p->m, p->func, n->node);
    ap_node_at(p->m, n->node)->body = body;
    AP_TRY(ap_parse_block(p, body, depth + 1));
    while (p->bound.len > outer) {
        ap_parse_binding b = p->bound.at[--p->bound.len];
        p->id[b.sort].at[b.name] = 0;
    }
    return AP_OK;
}

static ap_status bind_results(ap_parser *p, line *n)
{
    p->lex.mark = n->mark;
    for (uint32_t i = 0; i < n->label.len; i++) {
        ap_value v = ap_node_at(p->m, n->node)->out[i];
        ap_value_at(p->m, v)->name = n->label.at[i].sort == AP_PARSE_VALUE ? n->label.at[i].name : 0;
        AP_TRY(ap_parse_bind(p, n->label.at[i].sort, n->label.at[i].name, v));
    }
    return AP_OK;
}

static ap_status parse_line(ap_parser *p, ap_block block, int depth, bool *out_terminator)
{
    line n = {.node = AP_NONE};
    AP_TRY(parse_labels(p, &n));
    AP_TRY(parse_op(p, &n));
    AP_TRY(parse_operands(p, &n));
    AP_TRY(check_arity(p, &n));
    AP_TRY(parse_attr(p, &n));
    n.node = ap_module_add_node(p->m, n.op, n.in.len, n.in.at, n.label.len, 0);
    ap_node_at(p->m, n.node)->u = n.attr.u;
    AP_TRY(parse_result_types(p, &n));
    AP_TRY(ap_lex_loc(&p->lex, &ap_node_at(p->m, n.node)->loc));
    if (ap_op_attr(n.op) == AP_ATTR_CONSTANT)
        AP_TRY(finish_constant(p, &n));
    ap_block_append(p->m, block, n.node);
    if (ap_op_attr(n.op) == AP_ATTR_COMPOSITE)
        AP_TRY(parse_body(p, &n, depth));
    *out_terminator = ap_op_get(n.op)->terminator;
    return bind_results(p, &n);
}

ap_status ap_parse_block(ap_parser *p, ap_block block, int depth)
{
    bool closed = false;
    while (!closed && ap_lex_peek(&p->lex) != '}') {
        if (ap_lex_at_end(&p->lex))
            return ap_lex_error(&p->lex, "the block is not closed by '}'");
        AP_TRY(parse_line(p, block, depth, &closed));
    }
    return ap_lex_expect(&p->lex, "}");
}
