/* Carving: a first walk over the nodes of the part finds what it reads, a second one copies. Side tables over the whole
 * are made once; a stamp tells their entries of this call from older ones. */
#include "passes/pipe/carve.h"

#include "ir/op.h"

#include <stdlib.h>
#include <string.h>

/* OF_SMALL: light work on constants and small symbols, all of it small. */
typedef enum free_kind { NOT_FREE, OF_CONSTANTS, OF_SMALL, OF_SYMBOL } free_kind;
enum { SMALL_BYTES = 1 << 20 };

struct ap_carver {
    const ap_module *m;
    const ap_func_info *func;
    const ap_block_info *block;
    const ap_node_info *ret;
    uint32_t nnodes;
    uint32_t *position;    /* per node of the block */
    uint32_t *last_reader; /* per value: position of the last node that reads it, ret and free ones not counted */
    uint8_t *free;         /* per value: free_kind */
    ap_name *slot_name;    /* per value */
    uint32_t *stamp, call; /* per value: call that looked at it last */
    ap_value *map;         /* per value: what it is in the part, AP_NONE until it is made; entries of this call */
};

/* ---- the whole ---- */

static bool is_light(const ap_node_info *node)
{
    const ap_op_info *op = ap_op_get(node->op);
    return op->lower != AP_LOWER_CONTRACT && op->lower != AP_LOWER_CONV;
}

static bool is_small(const ap_carver *c, ap_value v)
{
    return ap_type_bytes(c->m->ctx, ap_value_type(c->m, v)) <= SMALL_BYTES;
}

/* A symbol itself is as free as what is made of it. */
static free_kind kind_of_value(const ap_carver *c, ap_value v)
{
    if (ap_value_at(c->m, v)->kind == AP_VALUE_SYMBOL)
        return is_small(c, v) ? OF_SMALL : OF_SYMBOL;
    return (free_kind)c->free[v];
}

static free_kind kind_of_node(const ap_carver *c, const ap_node_info *node)
{
    bool constants = is_light(node), small = constants;
    for (uint32_t i = 0; i < node->nin; i++) {
        free_kind kind = kind_of_value(c, node->in[i]);
        constants = constants && kind == OF_CONSTANTS;
        small = small && (kind == OF_CONSTANTS || kind == OF_SMALL) && is_small(c, node->in[i]);
    }
    for (uint32_t j = 0; j < node->nout; j++)
        small = small && is_small(c, node->out[j]);
    if (constants || small)
        return constants ? OF_CONSTANTS : OF_SMALL;
    bool view = ap_op_get(node->op)->shares_buffer;
    free_kind kind = view ? kind_of_value(c, node->in[0]) : NOT_FREE;
    return kind == OF_SMALL || kind == OF_SYMBOL ? kind : NOT_FREE;
}

static void look_at_node(ap_carver *c, uint32_t at)
{
    ap_node n = c->block->nodes.at[at];
    const ap_node_info *node = ap_node_at(c->m, n);
    free_kind kind = kind_of_node(c, node);
    c->position[n] = at;
    for (uint32_t i = 0; i < node->nin && kind == NOT_FREE; i++)
        c->last_reader[node->in[i]] = at;
    for (uint32_t j = 0; j < node->nout; j++)
        c->free[node->out[j]] = (uint8_t)kind;
}

/* Unnamed values are called after their number, with as many marks as it takes to be alone. */
static void name_slots(ap_carver *c, ap_arena *arena)
{
    const ap_module *m = c->m;
    ap_name last = 0;
    for (ap_value v = 0; v < m->values.len; v++)
        last = m->values.at[v].name > last ? m->values.at[v].name : last;
    bool *used = AP_NEW_ARRAY(arena, bool, (size_t)last + 1);
    for (ap_value v = 0; v < m->values.len; v++)
        used[m->values.at[v].name] = true;
    for (uint32_t at = 0; at < c->nnodes; at++) {
        const ap_node_info *node = ap_node_at(m, c->block->nodes.at[at]);
        for (uint32_t j = 0; j < node->nout; j++) {
            ap_name name = ap_value_at(m, node->out[j])->name;
            for (const char *mark = "t"; !name; mark = ap_name_str(m->ctx, ap_name_format(m->ctx, "%s_", mark))) {
                name = ap_name_format(m->ctx, "%s%u", mark, node->out[j]);
                name = name <= last && used[name] ? 0 : name;
            }
            c->slot_name[node->out[j]] = name;
        }
    }
}

ap_carver *ap_carver_create(ap_arena *arena, const ap_module *m)
{
    ap_carver *c = AP_NEW(arena, ap_carver);
    uint32_t n = m->values.len;
    c->m = m;
    c->func = &m->funcs.at[0];
    c->block = ap_block_at(m, c->func->body);
    c->nnodes = c->block->nodes.len - 1;
    c->ret = ap_node_at(m, c->block->nodes.at[c->nnodes]);
    c->position = AP_NEW_ARRAY(arena, uint32_t, m->nodes.len);
    c->last_reader = AP_NEW_ARRAY(arena, uint32_t, n);
    c->free = AP_NEW_ARRAY(arena, uint8_t, n);
    c->slot_name = AP_NEW_ARRAY(arena, ap_name, n);
    c->stamp = AP_NEW_ARRAY(arena, uint32_t, n);
    c->map = AP_NEW_ARRAY(arena, ap_value, n);
    for (uint32_t at = 0; at < c->nnodes; at++)
        look_at_node(c, at);
    name_slots(c, arena);
    return c;
}

uint32_t ap_carver_nnodes(const ap_carver *c)
{
    return c->nnodes;
}

bool ap_carver_is_free(const ap_carver *c, uint32_t position)
{
    const ap_node_info *node = ap_node_at(c->m, c->block->nodes.at[position]);
    return node->nout > 0 && c->free[node->out[0]] != NOT_FREE;
}

ap_name ap_carver_slot_name(const ap_carver *c, ap_value v)
{
    return c->slot_name[v];
}

/* ---- one part ---- */

typedef AP_VEC(ap_value) values;

typedef struct part {
    ap_carver *c;
    ap_arena *arena;
    ap_module *m;
    uint32_t first, last;
    values argument, slot, symbol;     /* of the whole */
    values result, result_slot, *into; /* of the whole */
    bool *returned;                    /* per result of the whole: by this part */
} part;

/* The first look in this call? */
static bool is_new(ap_carver *c, ap_value v)
{
    if (c->stamp[v] == c->call)
        return false;
    c->stamp[v] = c->call;
    c->map[v] = AP_NONE;
    return true;
}

static uint32_t position_of(const ap_carver *c, ap_value v)
{
    const ap_value_info *info = ap_value_at(c->m, v);
    return info->kind == AP_VALUE_RESULT ? c->position[info->def] : AP_NONE;
}

/* A value that a node of the part, or what it needs of free nodes, reads. */
static void want(part *p, ap_value v)
{
    ap_carver *c = p->c;
    const ap_value_info *info = ap_value_at(c->m, v);
    if (!is_new(c, v))
        return;
    if (info->kind == AP_VALUE_SYMBOL) {
        ap_vec_push(p->arena, &p->symbol, v);
    } else if (info->kind == AP_VALUE_ARGUMENT) {
        ap_vec_push(p->arena, &p->argument, v);
    } else if (c->free[v] != NOT_FREE) {
        const ap_node_info *node = ap_node_at(c->m, info->def);
        for (uint32_t j = 0; j < node->nout; j++)
            is_new(c, node->out[j]);
        for (uint32_t i = 0; i < node->nin; i++)
            want(p, node->in[i]);
    } else if (c->position[info->def] < p->first) {
        ap_vec_push(p->arena, &p->slot, v);
    }
}

static int by_id(const void *a, const void *b)
{
    ap_value x = *(const ap_value *)a, y = *(const ap_value *)b;
    return x < y ? -1 : x > y;
}

typedef struct placed {
    uint32_t position, index;
    ap_value v;
} placed;

static int by_place(const void *a, const void *b)
{
    const placed *x = a, *y = b;
    if (x->position != y->position)
        return x->position < y->position ? -1 : 1;
    return x->index < y->index ? -1 : x->index > y->index;
}

/* In the order in which they are made. */
static void sort_slots(part *p, values *slots)
{
    placed *order = AP_NEW_ARRAY(p->arena, placed, slots->len);
    for (uint32_t i = 0; i < slots->len; i++)
        order[i] = (placed){position_of(p->c, slots->at[i]), ap_value_at(p->c->m, slots->at[i])->index, slots->at[i]};
    if (slots->len > 1)
        qsort(order, slots->len, sizeof *order, by_place);
    for (uint32_t i = 0; i < slots->len; i++)
        slots->at[i] = order[i].v;
}

static void find_results(part *p)
{
    ap_carver *c = p->c;
    for (uint32_t i = 0; i < c->ret->nin; i++) {
        uint32_t at = position_of(c, c->ret->in[i]);
        p->returned[i] = at == AP_NONE ? p->first == 0 : p->first <= at && at < p->last;
        if (!p->returned[i])
            continue;
        want(p, c->ret->in[i]);
        ap_vec_push(p->arena, &p->result, c->ret->in[i]);
    }
    for (uint32_t at = p->first; at < p->last; at++) {
        const ap_node_info *node = ap_node_at(c->m, c->block->nodes.at[at]);
        for (uint32_t j = 0; j < node->nout; j++)
            if (c->free[node->out[j]] == NOT_FREE && c->last_reader[node->out[j]] >= p->last)
                ap_vec_push(p->arena, &p->result_slot, node->out[j]);
    }
}

static void find_operands(part *p)
{
    ap_carver *c = p->c;
    for (uint32_t at = p->first; at < p->last; at++) {
        const ap_node_info *node = ap_node_at(c->m, c->block->nodes.at[at]);
        if (node->nout > 0 && c->free[node->out[0]] != NOT_FREE)
            continue;
        for (uint32_t i = 0; i < node->nin; i++)
            want(p, node->in[i]);
        for (uint32_t j = 0; j < node->nout; j++)
            is_new(c, node->out[j]);
    }
    find_results(p);
    if (p->symbol.len > 1)
        qsort(p->symbol.at, p->symbol.len, sizeof *p->symbol.at, by_id);
    if (p->argument.len > 1)
        qsort(p->argument.at, p->argument.len, sizeof *p->argument.at, by_id);
    sort_slots(p, &p->slot);
}

static void add_signature(part *p)
{
    ap_carver *c = p->c;
    ap_func f = ap_module_add_func(p->m, c->func->name);
    for (uint32_t i = 0; i < p->symbol.len; i++) {
        const ap_symbol_info *s = &c->m->symbols.at[ap_value_at(c->m, p->symbol.at[i])->def];
        ap_symbol id = ap_module_add_symbol(p->m, s->kind, s->name, ap_value_type(c->m, s->value), s->data, s->loc);
        c->map[p->symbol.at[i]] = p->m->symbols.at[id].value;
    }
    for (uint32_t i = 0; i < p->argument.len; i++) {
        const ap_value_info *v = ap_value_at(c->m, p->argument.at[i]);
        c->map[p->argument.at[i]] = ap_func_add_argument(p->m, f, v->name, v->type);
    }
    for (uint32_t i = 0; i < p->slot.len; i++) {
        ap_value v = p->slot.at[i];
        c->map[v] = ap_func_add_slot(p->m, f, c->slot_name[v], ap_value_type(c->m, v));
    }
}

/* The node that makes `v`, behind what it needs of free nodes. */
static void copy_node(part *p, ap_node n)
{
    ap_carver *c = p->c;
    const ap_node_info *node = ap_node_at(c->m, n);
    for (uint32_t i = 0; i < node->nin; i++)
        if (c->map[node->in[i]] == AP_NONE)
            copy_node(p, ap_value_at(c->m, node->in[i])->def);
    ap_module_import_node(p->m, p->m->funcs.at[0].body, c->m, n, c->map);
}

static bool is_wanted(const ap_carver *c, const ap_node_info *node)
{
    bool wanted = node->nout == 0 || c->free[node->out[0]] == NOT_FREE;
    for (uint32_t j = 0; j < node->nout; j++)
        wanted = wanted || c->stamp[node->out[j]] == c->call;
    return wanted && (node->nout == 0 || c->map[node->out[0]] == AP_NONE);
}

static void copy_nodes(part *p)
{
    ap_carver *c = p->c;
    for (uint32_t at = p->first; at < p->last; at++)
        if (is_wanted(c, ap_node_at(c->m, c->block->nodes.at[at])))
            copy_node(p, c->block->nodes.at[at]);
}

static void add_return(part *p, ap_carved *out)
{
    ap_carver *c = p->c;
    uint32_t n = p->result.len + p->result_slot.len, filled = 0;
    ap_value *in = AP_NEW_ARRAY(p->arena, ap_value, n), *whole = AP_NEW_ARRAY(p->arena, ap_value, n);
    ap_type *type = AP_NEW_ARRAY(p->arena, ap_type, n);
    ap_name *name = AP_NEW_ARRAY(p->arena, ap_name, n);
    for (uint32_t i = 0; i < c->ret->nin; i++)
        if (p->returned[i]) {
            name[filled] = c->func->result_name[i];
            whole[filled++] = c->ret->in[i];
        }
    for (uint32_t i = 0; i < p->result_slot.len; i++) {
        ap_value v = p->result_slot.at[i];
        name[filled] = c->slot_name[v];
        ap_value_at(p->m, c->map[v])->name = c->slot_name[v];
        whole[filled++] = v;
    }
    for (uint32_t i = 0; i < n; i++) {
        in[i] = c->map[whole[i]];
        type[i] = ap_value_type(c->m, whole[i]);
    }
    ap_func_set_results(p->m, 0, n, type, name);
    for (uint32_t i = p->result.len; i < n; i++)
        p->m->funcs.at[0].result_slot[i] = true;
    ap_node ret = ap_module_add_node(p->m, c->ret->op, n, in, 0, c->ret->loc);
    ap_block_append(p->m, p->m->funcs.at[0].body, ret);
    out->result = whole;
}

void ap_carve(ap_carver *c, ap_arena *arena, uint32_t first, uint32_t last, ap_carved *out)
{
    part p = {.c = c, .arena = arena, .first = first, .last = last};
    c->call++;
    p.m = AP_NEW(arena, ap_module);
    p.m->ctx = c->m->ctx;
    p.m->arena = arena;
    p.m->state = c->m->state;
    p.m->folder = c->m->folder;
    p.returned = AP_NEW_ARRAY(arena, bool, c->ret->nin);
    find_operands(&p);
    add_signature(&p);
    copy_nodes(&p);
    add_return(&p, out);
    values arguments = p.argument;
    for (uint32_t i = 0; i < p.slot.len; i++)
        ap_vec_push(arena, &arguments, p.slot.at[i]);
    out->m = p.m;
    out->argument = arguments.at;
}
