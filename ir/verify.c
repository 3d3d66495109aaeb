/* The rules of the IR that need no mesh: names, definitions before uses, blocks and their ends, which
 * operators a state may hold, attributes and types as inference gives them. */
#include "ir/verify.h"

#include "ir/base/text.h"
#include "ir/op.h"
#include "ir/print.h"
#include "ir/text_form.h"

#include <inttypes.h>
#include <string.h>

static const char *func_name(const ap_verifier *v)
{
    return ap_name_str(v->m->ctx, v->m->funcs.at[v->func].name);
}

/* The number that an unnamed value has in print: unnamed ones before it, in order of appearance. */
static bool count_unnamed(const ap_module *m, ap_block b, ap_value stop, uint32_t *count, int depth)
{
    const ap_block_info *block = b < m->blocks.len && depth < 64 ? ap_block_at(m, b) : NULL;
    for (uint32_t i = 0; block && i < block->nodes.len; i++) {
        const ap_node_info *n = block->nodes.at[i] < m->nodes.len ? ap_node_at(m, block->nodes.at[i]) : NULL;
        for (uint32_t k = 0; n && k < n->nout; k++) {
            if (n->out[k] == stop)
                return true;
            *count += n->out[k] < m->values.len && ap_value_at(m, n->out[k])->name == 0;
        }
        bool own = n && n->body < m->blocks.len && ap_block_at(m, n->body)->parent == block->nodes.at[i];
        if (own && count_unnamed(m, n->body, stop, count, depth + 1))
            return true;
    }
    return false;
}

static uint32_t print_number(const ap_verifier *v, ap_value value)
{
    const ap_func_info *f = &v->m->funcs.at[v->func];
    uint32_t count = 0;
    for (uint32_t i = 0; i < f->narguments; i++)
        count += f->argument[i] < v->m->values.len && ap_value_at(v->m, f->argument[i])->name == 0;
    count_unnamed(v->m, f->body, value, &count, 0);
    return count;
}

/* "@main: %y = add" or "@main: ret" */
static const char *node_text(const ap_verifier *v, ap_node n)
{
    const ap_module *m = v->m;
    const ap_node_info *node = ap_node_at(m, n);
    ap_text t;
    ap_text_init(&t, &m->ctx->arena);
    ap_text_addf(&t, "@%s: ", func_name(v));
    for (uint32_t i = 0; i < node->nout; i++) {
        ap_name name = node->out[i] < m->values.len ? ap_value_at(m, node->out[i])->name : 0;
        ap_text_add(&t, i ? ", %" : "%");
        if (name)
            ap_print_name(m->ctx, name, &t);
        else
            ap_text_addf(&t, "%" PRIu32, print_number(v, node->out[i]));
    }
    ap_text_addf(&t, "%s%s", node->nout ? " = " : "", node->op < AP_OP_COUNT ? ap_op_get(node->op)->name : "?");
    return ap_text_str(&t);
}

static const char *format(ap_verifier *v, const char *fmt, va_list ap)
{
    char buf[1024];
    vsnprintf(buf, sizeof buf, fmt, ap);
    return ap_arena_strdup(&v->m->ctx->arena, buf);
}

void ap_verify_node_error(ap_verifier *v, ap_node n, const char *fmt, ...)
{
    ap_loc loc = ap_node_at(v->m, n)->loc;
    va_list ap;
    va_start(ap, fmt);
    const char *text = format(v, fmt, ap);
    va_end(ap);
    if (ap_loc_get(v->m->ctx, loc).node)
        v->status = ap_error(v->m->ctx, loc, "%s", text);
    else
        v->status = ap_error(v->m->ctx, loc, "%s: %s", node_text(v, n), text);
}

void ap_verify_error(ap_verifier *v, ap_loc loc, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    v->status = ap_error(v->m->ctx, loc, "%s", format(v, fmt, ap));
    va_end(ap);
}

static const char *type_text(const ap_module *m, ap_type t)
{
    ap_text out;
    ap_text_init(&out, &m->ctx->arena);
    ap_type_print(m, t, &out);
    return ap_text_str(&out);
}

/* ---- meshes, symbols ---- */

static void check_mesh(ap_verifier *v, ap_mesh id)
{
    const ap_mesh_info *mesh = &v->m->meshes.at[id];
    const char *name = ap_name_str(v->m->ctx, mesh->name);
    if (!mesh->name)
        ap_verify_error(v, 0, "mesh %" PRIu32 " has no name", id);
    for (ap_mesh i = 0; i < id; i++)
        if (v->m->meshes.at[i].name == mesh->name)
            ap_verify_error(v, 0, "mesh @%s is defined twice", name);
    if (mesh->naxes > AP_MAX_AXES) {
        ap_verify_error(v, 0, "mesh @%s has %d axes, at most %d are possible", name, mesh->naxes, AP_MAX_AXES);
        return;
    }
    if (mesh->ntime > 1 ||
        (mesh->ntime && (mesh->naxes == 0 || mesh->axis_name[0] != ap_name_make(v->m->ctx, AP_TIME_AXIS))))
        ap_verify_error(v, 0, "mesh @%s: time is its first axis, " AP_TIME_AXIS, name);
    const ap_mesh_info *first = &v->m->meshes.at[0];
    if (first->ntime != mesh->ntime || (first->ntime && first->axis_size[0] != mesh->axis_size[0]))
        ap_verify_error(v, 0, "mesh @%s: all meshes have the same time", name);
    for (int a = 0; a < mesh->naxes; a++) {
        if (!mesh->axis_name[a] || mesh->axis_size[a] < 1)
            ap_verify_error(v, 0, "mesh @%s: axis %d has no name or no size", name, a);
        for (int b = 0; b < a; b++)
            if (mesh->axis_name[a] == mesh->axis_name[b])
                ap_verify_error(v, 0, "mesh @%s has two axes '%s'", name, ap_name_str(v->m->ctx, mesh->axis_name[a]));
    }
}

/* Contents against the type that they are for. */
static void check_symbol_data(ap_verifier *v, const ap_symbol_info *s, const char *name)
{
    const ap_data *d = &s->data;
    ap_type type = ap_value_type(v->m, s->value);
    ap_dtype dtype = ap_type_dtype(v->m->ctx, type);
    if (d->kind == AP_DATA_NONE)
        return;
    if (d->dtype != dtype) {
        ap_verify_error(v, s->loc, "@%s has data of another element type", name);
        return;
    }
    int64_t want = ap_data_size(v->m->ctx, d, type);
    if (want < 0)
        ap_verify_error(v, s->loc, "@%s is not inside the tensor that it is a part of", name);
    else if (d->size != (uint64_t)want)
        ap_verify_error(v, s->loc, "@%s has %" PRIu64 " bytes of data, its type needs %" PRId64, name, d->size, want);
}

static void check_symbols(ap_verifier *v)
{
    for (ap_symbol i = 0; i < v->m->symbols.len; i++) {
        const ap_symbol_info *s = &v->m->symbols.at[i];
        const char *name = ap_name_str(v->m->ctx, s->name);
        if (s->kind == AP_SYMBOL_KIND_COUNT)
            continue;
        const ap_value_info *value = s->value < v->m->values.len ? ap_value_at(v->m, s->value) : NULL;
        if (!value || value->kind != AP_VALUE_SYMBOL || value->def != i || value->type == 0 || !s->name ||
            s->kind > AP_SYMBOL_KIND_COUNT) {
            ap_verify_error(v, s->loc, "symbol @%s has no name, no type or no value of its own", name);
            continue;
        }
        if (v->holder[s->name] != AP_NONE)
            ap_verify_error(v, s->loc, "symbol @%s is defined twice", name);
        v->holder[s->name] = s->value;
        check_symbol_data(v, s, name);
    }
}

/* ---- names and definitions ---- */

static void define(ap_verifier *v, ap_block b, ap_value id)
{
    const ap_value_info *value = ap_value_at(v->m, id);
    if (v->home[id] != AP_NONE)
        ap_verify_error(v, 0, "@%s: value %" PRIu32 " is defined twice", func_name(v), id);
    v->home[id] = b;
    if (!value->name)
        return;
    if (v->holder[value->name] != AP_NONE)
        ap_verify_error(v, 0, "@%s: two values are named %%%s", func_name(v), ap_name_str(v->m->ctx, value->name));
    v->holder[value->name] = id;
}

/* The end of a body: its names may be used again. */
static void forget_names(ap_verifier *v, ap_block b)
{
    const ap_block_info *block = ap_block_at(v->m, b);
    for (uint32_t i = 0; i < block->nodes.len; i++) {
        if (block->nodes.at[i] >= v->m->nodes.len)
            continue; /* reported where it stands */
        const ap_node_info *n = ap_node_at(v->m, block->nodes.at[i]);
        for (uint32_t k = 0; k < n->nout; k++) {
            ap_name name = n->out[k] < v->m->values.len ? ap_value_at(v->m, n->out[k])->name : 0;
            if (name && v->holder[name] == n->out[k])
                v->holder[name] = AP_NONE;
        }
    }
}

static bool is_operand_of(const ap_module *m, ap_node n, ap_value value)
{
    for (uint32_t i = 0; i < ap_node_at(m, n)->nin; i++)
        if (ap_node_at(m, n)->in[i] == value)
            return true;
    return false;
}

/* A value may be used in the block that defines it, behind its definition; a body also uses the operands of its
 * composite, and a function's body any symbol. */
static bool check_use(ap_verifier *v, ap_block b, ap_node n, uint32_t i)
{
    const ap_module *m = v->m;
    ap_value id = ap_node_at(m, n)->in[i];
    if (id >= m->values.len || ap_value_type(m, id) == 0) {
        ap_verify_node_error(v, n, "operand %" PRIu32 " is no value, or one without a type", i);
        return false;
    }
    const ap_value_info *value = ap_value_at(m, id);
    ap_node parent = ap_block_at(m, b)->parent;
    if (v->home[id] == b || (parent != AP_NONE && is_operand_of(m, parent, id)))
        return true;
    bool symbol = value->kind == AP_VALUE_SYMBOL;
    if (symbol && (value->def >= m->symbols.len || m->symbols.at[value->def].kind >= AP_SYMBOL_KIND_COUNT)) {
        ap_verify_node_error(v, n, "operand %" PRIu32 " is a symbol that was removed", i);
        return false;
    }
    if (symbol && parent == AP_NONE)
        return true;
    ap_name name = value->name ? value->name : ap_name_format(m->ctx, "%" PRIu32, print_number(v, id));
    ap_verify_node_error(v, n, "operand %" PRIu32 " (%c%s) %s", i, symbol ? '@' : '%', ap_name_str(m->ctx, name),
                         parent == AP_NONE ? "is not defined before its use"
                                           : "is neither defined in this body nor an operand of its composite");
    return false;
}

/* ---- nodes ---- */

static bool check_arity(ap_verifier *v, ap_node n)
{
    const ap_node_info *node = ap_node_at(v->m, n);
    const ap_op_info *op = ap_op_get(node->op);
    bool ok = true;
    if (op->nin >= 0 && node->nin != (uint32_t)op->nin) {
        ap_verify_node_error(v, n, "%s takes %d operands, here are %" PRIu32, op->name, op->nin, node->nin);
        ok = false;
    }
    if (op->nout >= 0 && node->nout != (uint32_t)op->nout) {
        ap_verify_node_error(v, n, "%s has %d results, here are %" PRIu32, op->name, op->nout, node->nout);
        ok = false;
    }
    return ok;
}

static bool check_attr(ap_verifier *v, ap_node n)
{
    const ap_node_info *node = ap_node_at(v->m, n);
    bool present = true;
    switch (ap_op_attr(node->op)) {
    case AP_ATTR_SPEC:
        present = node->u.spec && node->u.spec->noperands == node->nin;
        break;
    case AP_ATTR_REDUCE:
        present = node->u.reduce.spec && node->u.reduce.spec->noperands == node->nin &&
                  node->u.reduce.kind < AP_REDUCE_KIND_COUNT;
        break;
    case AP_ATTR_SCATTER:
        present = node->u.scatter.spec && node->u.scatter.spec->noperands == node->nin &&
                  node->u.scatter.kind < AP_SCATTER_KIND_COUNT;
        break;
    case AP_ATTR_SLICE:
        present = node->u.slice != NULL;
        break;
    case AP_ATTR_PAD:
        present = node->u.pad != NULL;
        break;
    case AP_ATTR_CONV:
        present = node->u.conv != NULL;
        break;
    case AP_ATTR_POOL:
        present = node->u.pool != NULL && node->u.pool->kind < AP_POOL_KIND_COUNT;
        break;
    case AP_ATTR_CONSTANT:
        present = node->u.constant != NULL;
        break;
    case AP_ATTR_COMPOSITE:
        present = node->u.composite != 0 && node->nout > 0;
        break;
    case AP_ATTR_AXES:
        present = node->u.axes.mask != 0;
        break;
    default:
        break;
    }
    if (!present)
        ap_verify_node_error(v, n, "an attribute is missing");
    return present;
}

static void check_state(ap_verifier *v, ap_node n)
{
    const ap_op_info *op = ap_op_get(ap_node_at(v->m, n)->op);
    ap_state state = v->m->state;
    if (op->planned && state != AP_STATE_PLANNED)
        ap_verify_node_error(v, n, "%s may stand in state planned only, not in %s", op->name, ap_state_text[state]);
    if ((op->collective || op->step) && state != AP_STATE_EXPLICIT)
        ap_verify_node_error(v, n, "%s may stand in state explicit only, not in %s", op->name, ap_state_text[state]);
}

static bool check_results(ap_verifier *v, ap_block b, ap_node n)
{
    const ap_node_info *node = ap_node_at(v->m, n);
    bool ok = true;
    for (uint32_t i = 0; i < node->nout; i++) {
        ap_value id = node->out[i];
        const ap_value_info *value = id < v->m->values.len ? ap_value_at(v->m, id) : NULL;
        if (!value || value->kind != AP_VALUE_RESULT || value->def != n || value->index != i || value->type == 0) {
            ap_verify_node_error(v, n, "result %" PRIu32 " is no value of this node, or has no type", i);
            ok = false;
            continue;
        }
        define(v, b, id);
    }
    return ok;
}

/* Infers into types that are set, which compares; what it reports is given a place if it has none. */
static void check_types(ap_verifier *v, ap_node n)
{
    ap_ctx *ctx = v->m->ctx;
    uint32_t first = ctx->diags.len;
    ap_status s = ap_node_infer(v->m, n);
    if (s == AP_OK)
        return;
    v->status = s;
    for (uint32_t i = first; i < ctx->diags.len; i++) {
        ap_diag *d = &ctx->diags.at[i];
        ap_text t;
        if (ap_loc_get(ctx, d->loc).node)
            continue;
        ap_text_init(&t, &ctx->arena);
        ap_text_addf(&t, "%s: %s", node_text(v, n), d->text);
        d->text = ap_text_str(&t);
    }
}

/* ret gives the function's results, yield the composite's: same number, same types. */
static void check_terminator(ap_verifier *v, ap_block b, ap_node n)
{
    const ap_module *m = v->m;
    const ap_node_info *node = ap_node_at(m, n);
    ap_node parent = ap_block_at(m, b)->parent;
    ap_op want = parent == AP_NONE ? AP_OP_RET : AP_OP_YIELD;
    const ap_func_info *f = &m->funcs.at[v->func];
    uint32_t count = parent == AP_NONE ? f->nresults : ap_node_at(m, parent)->nout;
    if (node->op != want) {
        ap_verify_node_error(v, n, "%s closes a %s, not %s", ap_op_get(want)->name,
                             parent == AP_NONE ? "function" : "body", ap_op_get(node->op)->name);
        return;
    }
    if (node->nin != count) {
        ap_verify_node_error(v, n, "%" PRIu32 " values where %" PRIu32 " results are declared", node->nin, count);
        return;
    }
    for (uint32_t i = 0; i < count; i++) {
        ap_type declared = parent == AP_NONE ? f->result[i] : ap_value_type(m, ap_node_at(m, parent)->out[i]);
        ap_type given = ap_value_type(m, node->in[i]);
        if (declared != given)
            ap_verify_node_error(v, n, "result %" PRIu32 " is declared as %s but is %s", i, type_text(m, declared),
                                 type_text(m, given));
    }
}

static void check_block(ap_verifier *v, ap_block b, int depth);

static bool check_body(ap_verifier *v, ap_node n, int depth)
{
    const ap_node_info *node = ap_node_at(v->m, n);
    bool has_body = ap_op_get(node->op)->has_body;
    if (!has_body && node->body == AP_NONE)
        return true;
    if (!has_body || node->body >= v->m->blocks.len || ap_block_at(v->m, node->body)->parent != n || depth > 64) {
        ap_verify_node_error(v, n, has_body ? "it has no body of its own" : "it must not have a body");
        return false;
    }
    ap_status before = v->status;
    v->status = AP_OK;
    check_block(v, node->body, depth + 1);
    forget_names(v, node->body);
    bool ok = v->status == AP_OK;
    v->status = ok ? before : v->status;
    return ok;
}

static void check_node(ap_verifier *v, ap_block b, ap_node n, bool last, int depth)
{
    const ap_node_info *node = ap_node_at(v->m, n);
    if (node->op >= AP_OP_COUNT || node->block != b) {
        ap_verify_error(v, node->loc, "@%s: node %" PRIu32 " is of no operator or of another block", func_name(v), n);
        return;
    }
    bool ok = check_arity(v, n);
    ok = check_attr(v, n) && ok;
    check_state(v, n);
    for (uint32_t i = 0; i < node->nin; i++)
        ok = check_use(v, b, n, i) && ok;
    ok = check_body(v, n, depth) && ok;
    ok = check_results(v, b, n) && ok;
    if (ap_op_get(node->op)->terminator != last)
        ap_verify_node_error(v, n,
                             last ? "the block does not end here: a terminator is missing"
                                  : "a terminator in the middle of a block");
    else if (ok && last)
        check_terminator(v, b, n);
    else if (ok)
        check_types(v, n);
}

static void check_block(ap_verifier *v, ap_block b, int depth)
{
    const ap_block_info *block = ap_block_at(v->m, b);
    if (block->func != v->func)
        ap_verify_error(v, 0, "func @%s holds a block of another function", func_name(v));
    if (block->nodes.len == 0)
        ap_verify_error(v, 0, "func @%s holds an empty block", func_name(v));
    for (uint32_t i = 0; i < block->nodes.len; i++) {
        ap_node n = block->nodes.at[i];
        if (n >= v->m->nodes.len)
            ap_verify_error(v, 0, "func @%s holds a node that does not exist", func_name(v));
        else
            check_node(v, b, n, i + 1 == block->nodes.len, depth);
    }
}

/* Names of results: outputs and slots apart. */
static void check_result_names(ap_verifier *v, const ap_func_info *f)
{
    for (uint32_t i = 0; i < f->nresults; i++) {
        if (f->result_slot[i] && !f->result_name[i])
            ap_verify_error(v, 0, "@%s: result %" PRIu32 " is a slot without a name", func_name(v), i);
        for (uint32_t k = 0; k < i && f->result_name[i]; k++)
            if (f->result_name[k] == f->result_name[i] && f->result_slot[k] == f->result_slot[i])
                ap_verify_error(v, 0, "@%s: two %s are named \"%s\"", func_name(v),
                                f->result_slot[i] ? "slots" : "results", ap_name_str(v->m->ctx, f->result_name[i]));
    }
}

static void check_func(ap_verifier *v, ap_func id)
{
    const ap_module *m = v->m;
    const ap_func_info *f = &m->funcs.at[id];
    v->func = id;
    if (!f->name)
        ap_verify_error(v, 0, "function %" PRIu32 " has no name", id);
    for (ap_func i = 0; i < id; i++)
        if (m->funcs.at[i].name == f->name)
            ap_verify_error(v, 0, "function @%s is defined twice", func_name(v));
    if (f->body >= m->blocks.len || ap_block_at(m, f->body)->parent != AP_NONE) {
        ap_verify_error(v, 0, "func @%s has no body of its own", func_name(v));
        return;
    }
    for (uint32_t i = 0; i < f->narguments; i++) {
        ap_value a = f->argument[i];
        const ap_value_info *value = a < m->values.len ? ap_value_at(m, a) : NULL;
        if (!value || value->kind != AP_VALUE_ARGUMENT || value->def != id || value->index != i || value->type == 0)
            ap_verify_error(v, 0, "@%s: argument %" PRIu32 " is no value of its own, or has no type", func_name(v), i);
        else
            define(v, f->body, a);
        if (value && f->argument_slot[i] && !value->name)
            ap_verify_error(v, 0, "@%s: argument %" PRIu32 " is a slot without a name", func_name(v), i);
    }
    check_result_names(v, f);
    check_block(v, f->body, 0);
    for (uint32_t i = 0; i < f->narguments; i++) {
        ap_name name = f->argument[i] < m->values.len ? ap_value_at(m, f->argument[i])->name : 0;
        v->holder[name] = AP_NONE;
    }
    forget_names(v, f->body);
}

static ap_value *all_none(ap_ctx *ctx, size_t n)
{
    ap_value *a = AP_NEW_ARRAY(&ctx->scratch, ap_value, n);
    memset(a, 0xff, n * sizeof *a);
    return a;
}

ap_status ap_module_verify(ap_module *m)
{
    ap_verifier v = {.m = m};
    ap_name last = 0;
    for (ap_value i = 0; i < m->values.len; i++)
        last = m->values.at[i].name > last ? m->values.at[i].name : last;
    for (ap_symbol i = 0; i < m->symbols.len; i++)
        last = m->symbols.at[i].name > last ? m->symbols.at[i].name : last;
    v.home = all_none(m->ctx, m->values.len);
    v.holder = all_none(m->ctx, (size_t)last + 1);
    if (m->state >= AP_STATE_COUNT)
        return ap_error(m->ctx, 0, "the module is in no known state");
    for (ap_mesh i = 0; i < m->meshes.len; i++)
        check_mesh(&v, i);
    check_symbols(&v);
    v.holder = all_none(m->ctx, (size_t)last + 1); /* %x and @x may share a name */
    for (ap_func i = 0; i < m->funcs.len; i++)
        check_func(&v, i);
    if (v.status == AP_OK)
        ap_verify_shardings(&v);
    return v.status;
}
