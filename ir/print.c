/* A module as text: docs/ir.md gives the syntax. Everything prints, also what the verifier would refuse
 * (as `?`), because a dump is most wanted when something is wrong. */
#include "ir/print.h"

#include "ir/lex.h"
#include "ir/op.h"
#include "ir/text_form.h"

#include <inttypes.h>
#include <string.h>

#define AP_PRINT_MAX_DEPTH 64

typedef struct printer {
    const ap_module *m;
    ap_text *out;
    uint32_t *number; /* per value: number of an unnamed one, AP_NONE: none yet */
    uint32_t next;
} printer;

static ap_value_info *value_or_null(const ap_module *m, ap_value v)
{
    return v < m->values.len ? ap_value_at(m, v) : NULL;
}

static void print_value(printer *p, ap_value v)
{
    const ap_value_info *info = value_or_null(p->m, v);
    if (!info) {
        ap_text_add(p->out, "%?");
        return;
    }
    ap_text_add(p->out, info->kind == AP_VALUE_SYMBOL ? "@" : "%");
    if (info->name) {
        ap_print_name(p->m->ctx, info->name, p->out);
    } else {
        if (p->number[v] == AP_NONE)
            p->number[v] = p->next++;
        ap_text_addf(p->out, "%" PRIu32, p->number[v]);
    }
}

static void print_values(printer *p, uint32_t n, const ap_value *v)
{
    for (uint32_t i = 0; i < n; i++) {
        ap_text_add(p->out, i ? ", " : "");
        print_value(p, v[i]);
    }
}

/* The mesh whose axes a mask of `n` counts. */
static const ap_mesh_info *node_mesh(const ap_module *m, const ap_node_info *n)
{
    ap_mesh mesh = m->meshes.len ? 0 : AP_NONE;
    for (uint32_t i = n->nin + n->nout; i-- > 0;) {
        const ap_value_info *v = value_or_null(m, i < n->nin ? n->in[i] : n->out[i - n->nin]);
        ap_sharding s = v ? ap_type_get(m->ctx, v->type).sharding : 0;
        if (s)
            mesh = ap_sharding_get(m->ctx, s)->mesh;
    }
    return mesh < m->meshes.len ? &m->meshes.at[mesh] : NULL;
}

static void print_axes_mask(const ap_ctx *ctx, const ap_mesh_info *mesh, uint8_t mask, ap_text *out)
{
    const char *comma = "";
    for (int a = 0; a < 8; a++) {
        if (!(mask >> a & 1))
            continue;
        ap_text_add(out, comma);
        if (mesh && a < mesh->naxes)
            ap_print_axis(ctx, mesh->axis_name[a], out);
        else
            ap_text_add(out, "?");
        comma = ",";
    }
}

static void print_spec(const ap_spec *s, ap_text *out)
{
    char buf[AP_SPEC_STR_MAX];
    if (s)
        ap_spec_str(s, buf);
    ap_text_addf(out, " {%s}", s ? buf : "?");
}

static void print_range(const ap_range *r, ap_text *out)
{
    if (r->whole) {
        ap_text_add(out, "-");
        return;
    }
    int64_t stop = 0;
    if (!ap_mul_i64(r->count, r->step, &stop) || !ap_add_i64(stop, r->start, &stop)) {
        ap_text_add(out, "?");
        return;
    }
    ap_text_addf(out, "%" PRId64 ":%" PRId64, r->start, stop);
    if (r->step != 1)
        ap_text_addf(out, ":%" PRId64, r->step);
}

static void print_slice(const ap_shape_info *shape, const ap_slice_attr *a, ap_text *out)
{
    ap_text_add(out, " [");
    for (int d = 0; a && shape && d < shape->rank; d++) {
        bool whole = true;
        for (int f = shape->first[d]; f < shape->first[d + 1]; f++)
            whole = whole && a->range[f].whole;
        ap_text_add(out, d ? "," : "");
        if (whole)
            ap_text_add(out, "-");
        for (int f = shape->first[d]; f < shape->first[d + 1] && !whole; f++) {
            ap_text_add(out, f > shape->first[d] ? "." : "");
            print_range(&a->range[f], out);
        }
    }
    ap_text_add(out, "]");
}

static void print_pad(const ap_shape_info *shape, const ap_pad_attr *a, ap_text *out)
{
    ap_text_add(out, " [");
    for (int d = 0; a && shape && d < shape->rank; d++) {
        ap_text_add(out, d ? "," : "");
        if (a->lo[d] || a->hi[d])
            ap_text_addf(out, "%" PRId64 ":%" PRId64, a->lo[d], a->hi[d]);
        else
            ap_text_add(out, "-");
    }
    ap_text_add(out, "]");
}

static void print_windows(const ap_shape_info *shape, const ap_pool_attr *a, ap_text *out)
{
    ap_text_add(out, " [");
    for (int d = 0; a && shape && d < shape->rank; d++) {
        ap_text_add(out, d ? "," : "");
        ap_window_print(&a->window[d], out);
    }
    ap_text_add(out, a && a->ceil ? "] ceil" : "]");
}

/* sum, add: what stands behind the name of the operator */
static const char *kind_text(const ap_node_info *n, ap_attr_kind attr)
{
    if (attr == AP_ATTR_REDUCE)
        return n->u.reduce.kind < AP_REDUCE_KIND_COUNT ? ap_reduce_text[n->u.reduce.kind] : "?";
    if (attr == AP_ATTR_CUMULATE)
        return n->u.cumulate.kind < AP_REDUCE_KIND_COUNT ? ap_reduce_text[n->u.cumulate.kind] : "?";
    if (attr == AP_ATTR_SCATTER)
        return n->u.scatter.kind < AP_SCATTER_KIND_COUNT ? ap_scatter_text[n->u.scatter.kind] : "?";
    return NULL;
}

/* From the operator's name to the colon. */
static void print_call(printer *p, const ap_node_info *n)
{
    const ap_module *m = p->m;
    ap_text *out = p->out;
    ap_attr_kind attr = ap_op_attr(n->op);
    const ap_value_info *first = n->nin ? value_or_null(m, n->in[0]) : NULL;
    const ap_shape_info *shape = first ? ap_type_shape(m->ctx, first->type) : NULL;

    ap_text_add(out, n->op < AP_OP_COUNT ? ap_op_get(n->op)->name : "?");
    if (kind_text(n, attr))
        ap_text_addf(out, " %s", kind_text(n, attr));
    if (attr == AP_ATTR_POOL)
        ap_text_addf(out, " %s",
                     n->u.pool && n->u.pool->kind < AP_POOL_KIND_COUNT ? ap_pool_text[n->u.pool->kind] : "?");
    if (attr == AP_ATTR_COMPOSITE) {
        ap_text_add(out, " ");
        ap_print_name(m->ctx, n->u.composite, out);
    }
    ap_text_add(out, attr == AP_ATTR_COMPOSITE ? "(" : n->nin ? " " : "");
    print_values(p, n->nin, n->in);
    if (attr == AP_ATTR_COMPOSITE)
        ap_text_add(out, ")");
    if (attr == AP_ATTR_SPEC)
        print_spec(n->u.spec, out);
    else if (attr == AP_ATTR_REDUCE)
        print_spec(n->u.reduce.spec, out);
    else if (attr == AP_ATTR_SCATTER)
        print_spec(n->u.scatter.spec, out);
    else if (attr == AP_ATTR_INDEX)
        ap_text_addf(out, " of %" PRId64, n->u.index.limit);
    else if (attr == AP_ATTR_TOPK)
        ap_text_addf(out, " dim %d %s %" PRId64, n->u.topk.dim, n->u.topk.largest ? "largest" : "smallest",
                     n->u.topk.k);
    else if (attr == AP_ATTR_CUMULATE)
        ap_text_addf(out, " dim %d%s%s", n->u.cumulate.dim, n->u.cumulate.exclusive ? " exclusive" : "",
                     n->u.cumulate.reverse ? " reverse" : "");
    else if (attr == AP_ATTR_SLICE)
        print_slice(shape, n->u.slice, out);
    else if (attr == AP_ATTR_PAD)
        print_pad(shape, n->u.pad, out);
    else if (attr == AP_ATTR_CONV)
        ap_print_conv(shape, n->u.conv, out);
    else if (attr == AP_ATTR_POOL)
        print_windows(shape, n->u.pool, out);
    else if (attr == AP_ATTR_CONCAT)
        ap_text_addf(out, " dim %d", n->u.concat.dim);
    else if (attr == AP_ATTR_IOTA)
        ap_text_addf(out, " dim %d", n->u.iota.dim);
    else if (attr == AP_ATTR_AXES) {
        ap_text_add(out, " over ");
        print_axes_mask(m->ctx, node_mesh(m, n), n->u.axes.mask, out);
    } else if (attr == AP_ATTR_CONSTANT) {
        ap_text_add(out, " ");
        ap_print_data(m->ctx, n->u.constant, out);
    }
}

static void print_block(printer *p, ap_block b, int depth);

static void print_indent(ap_text *out, int depth)
{
    for (int i = 0; i < depth; i++)
        ap_text_add(out, "  ");
}

static void print_node(printer *p, ap_node id, int depth)
{
    const ap_node_info *n = ap_node_at(p->m, id);
    print_indent(p->out, depth);
    print_values(p, n->nout, n->out);
    ap_text_add(p->out, n->nout ? " = " : "");
    print_call(p, n);
    for (uint32_t i = 0; i < n->nout; i++) {
        const ap_value_info *v = value_or_null(p->m, n->out[i]);
        ap_text_add(p->out, i ? ", " : " : ");
        ap_type_print(p->m, v ? v->type : 0, p->out);
    }
    ap_print_loc(p->m->ctx, n->loc, p->out);
    if (ap_op_attr(n->op) == AP_ATTR_COMPOSITE) {
        ap_text_add(p->out, " {\n");
        if (n->body < p->m->blocks.len && ap_block_at(p->m, n->body)->parent == id)
            print_block(p, n->body, depth + 1);
        ap_text_add(p->out, " }");
    }
}

/* Ends without a newline: the closing brace stands behind the last line. */
static void print_block(printer *p, ap_block b, int depth)
{
    if (b >= p->m->blocks.len || depth > AP_PRINT_MAX_DEPTH)
        return;
    const ap_block_info *block = ap_block_at(p->m, b);
    for (uint32_t i = 0; i < block->nodes.len; i++) {
        ap_text_add(p->out, i ? "\n" : "");
        if (block->nodes.at[i] < p->m->nodes.len)
            print_node(p, block->nodes.at[i], depth);
        else
            ap_text_addf(p->out, "%*s; no node %u", 2 * depth, "", block->nodes.at[i]);
    }
}

static void print_func(printer *p, const ap_func_info *f)
{
    const ap_module *m = p->m;
    p->next = 0;
    ap_text_add(p->out, "func @");
    ap_print_name(m->ctx, f->name, p->out);
    ap_text_add(p->out, "(");
    for (uint32_t i = 0; i < f->narguments; i++) {
        ap_text_add(p->out, i ? ", " : "");
        ap_text_add(p->out, f->argument_slot && f->argument_slot[i] ? "slot " : "");
        print_value(p, f->argument[i]);
        ap_text_add(p->out, ": ");
        ap_type_print(m, ap_value_type(m, f->argument[i]), p->out);
    }
    ap_text_add(p->out, ")");
    for (uint32_t i = 0; i < f->nresults; i++) {
        ap_text_add(p->out, i ? ", " : " -> ");
        ap_text_add(p->out, f->result_slot && f->result_slot[i] ? "slot " : "");
        if (f->result_name && f->result_name[i]) {
            ap_text_add_quoted(p->out, ap_name_str(m->ctx, f->result_name[i]));
            ap_text_add(p->out, " ");
        }
        ap_type_print(m, f->result[i], p->out);
    }
    ap_text_add(p->out, " {\n");
    print_block(p, f->body, 1);
    ap_text_add(p->out, " }\n");
}

static void print_mesh(const ap_module *m, const ap_mesh_info *mesh, ap_text *out)
{
    ap_text_add(out, "mesh @");
    ap_print_name(m->ctx, mesh->name, out);
    ap_text_add(out, " = [");
    for (int a = mesh->ntime; a < mesh->naxes; a++) {
        ap_text_add(out, a > mesh->ntime ? ", " : "");
        ap_print_axis(m->ctx, mesh->axis_name[a], out);
        ap_text_addf(out, "=%" PRId32, mesh->axis_size[a]);
    }
    int64_t last = (int64_t)mesh->first_rank + ap_mesh_ranks(mesh) - 1;
    ap_text_addf(out, "] ranks %" PRId32 "..%" PRId64 "\n", mesh->first_rank, last);
}

static void print_symbol(const ap_module *m, const ap_symbol_info *s, ap_text *out)
{
    ap_text_addf(out, "%s @", ap_symbol_kind_text[s->kind]);
    ap_print_name(m->ctx, s->name, out);
    ap_text_add(out, " : ");
    ap_type_print(m, ap_value_type(m, s->value), out);
    if (s->data.kind != AP_DATA_NONE) {
        ap_text_add(out, " ");
        ap_print_data_in_parens(m->ctx, &s->data, out);
    }
    ap_print_loc(m->ctx, s->loc, out);
    ap_text_add(out, "\n");
}

void ap_module_print(const ap_module *m, ap_text *out)
{
    printer p = {.m = m, .out = out};
    p.number = AP_NEW_ARRAY(&m->ctx->scratch, uint32_t, m->values.len);
    memset(p.number, 0xff, m->values.len * sizeof *p.number);
    if (m->state < AP_STATE_COUNT && m->state != (m->meshes.len ? AP_STATE_PLANNED : AP_STATE_IMPORTED))
        ap_text_addf(out, "state %s\n", ap_state_text[m->state]);
    if (m->meshes.len && m->meshes.at[0].ntime)
        ap_text_addf(out, "time " AP_TIME_AXIS "=%" PRId32 "\n", m->meshes.at[0].axis_size[0]);
    for (ap_mesh i = 0; i < m->meshes.len; i++)
        print_mesh(m, &m->meshes.at[i], out);
    for (ap_symbol i = 0; i < m->symbols.len; i++)
        if (m->symbols.at[i].kind < AP_SYMBOL_KIND_COUNT)
            print_symbol(m, &m->symbols.at[i], out);
    for (ap_func i = 0; i < m->funcs.len; i++)
        print_func(&p, &m->funcs.at[i]);
}
