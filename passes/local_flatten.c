/* A function's block as a list of items: composites are inlined, views become renamings of their root, constants and
 * iotas become sources, and every other node is an item that uses roots. */
#include "passes/local.h"

#include <string.h>

typedef struct walk {
    ap_low *low;
    ap_name label; /* of the innermost composite */
    ap_loc loc;    /* of the outermost composite */
    ap_node unit;  /* the outermost composite, or AP_NONE */
} walk;

bool ap_low_use_is_element(const ap_low_item *it, uint32_t k)
{
    return it->kind <= AP_LOW_MASK && !(it->kind == AP_LOW_GATHER && k == 0);
}

static void make_root(ap_low *low, ap_value v)
{
    ap_low_value *lv = &low->value[v];
    lv->root = v;
    lv->item = AP_NONE;
    for (int f = 0; f < AP_MAX_FACTORS; f++)
        lv->map[f] = (int8_t)f;
}

/* `to` names what `from` names, factor by factor. */
static void make_same(ap_low *low, ap_value to, ap_value from)
{
    low->value[to].root = low->value[from].root;
    memcpy(low->value[to].map, low->value[from].map, sizeof low->value[to].map);
}

static void make_view(ap_low *low, const ap_node_info *n)
{
    const ap_spec *s = n->u.spec;
    const ap_low_value *from = &low->value[n->in[0]];
    ap_low_value *to = &low->value[n->out[0]];
    to->root = from->root;
    for (int f = 0; f < low->value[from->root].nfactors; f++)
        to->map[f] = (int8_t)ap_spec_side_find(&s->result, s->operand[0].letter[from->map[f]]);
}

/* A reduce over dimensions of extent 1 only: false when there is something to reduce. */
static bool make_trivial_reduce(ap_low *low, const ap_node_info *n)
{
    const ap_spec *s = n->u.reduce.spec;
    ap_low_value *to = &low->value[n->out[0]];
    if (s->operand[0].nletters != s->result.nletters)
        return false;
    const ap_low_value *from = &low->value[n->in[0]];
    to->root = from->root;
    for (int f = 0; f < low->value[from->root].nfactors; f++)
        to->map[f] = (int8_t)ap_spec_side_find(&s->result, s->operand[0].letter[from->map[f]]);
    return true;
}

static void make_splat(ap_low *low, ap_value v, ap_scalar x)
{
    low->value[v].source = AP_LOW_SPLAT;
    low->value[v].splat = x;
}

static ap_status make_constant(ap_low *low, const ap_node_info *n)
{
    const ap_data *d = n->u.constant;
    ap_value v = n->out[0];
    bool one = ap_shape_count(ap_value_shape(low->m, v)) == 1;
    if (d->kind == AP_DATA_SPLAT || (d->kind == AP_DATA_INLINE && one))
        make_splat(low, v, ap_scalar_load(ap_type_dtype(low->ctx, ap_value_type(low->m, v)), d->bytes));
    else if (d->kind == AP_DATA_NONE)
        return ap_low_bug(low, n->loc, "constant without data");
    return AP_OK;
}

static ap_status add_item(walk *w, ap_low_class kind, ap_node id)
{
    ap_low *low = w->low;
    const ap_node_info *n = ap_node_at(low->m, id);
    ap_low_item it = {.kind = kind, .node = id, .label = w->label, .loc = w->loc ? w->loc : n->loc};
    it.unit = w->unit;
    it.group = AP_NONE;
    if (w->loc && n->loc)
        it.loc = n->loc;
    for (uint32_t i = 0; i < n->nout; i++)
        low->value[n->out[i]].item = low->items.len;
    ap_vec_push(low->scratch, &low->items, it);
    return AP_OK;
}

/* A part or another shape of a splat is a splat. */
static ap_status add_part(walk *w, ap_low_class kind, ap_node id)
{
    const ap_node_info *n = ap_node_at(w->low->m, id);
    const ap_low_value *root = &w->low->value[ap_low_root(w->low, n->in[0])];
    if (root->source == AP_LOW_SPLAT) {
        make_splat(w->low, n->out[0], root->splat);
        return AP_OK;
    }
    return add_item(w, kind, id);
}

static ap_status add_step(walk *w, ap_node id)
{
    const ap_node_info *n = ap_node_at(w->low->m, id);
    ap_low_step step;
    AP_TRY(ap_low_step_kind(w->low, id, &step));
    switch (step) {
    case AP_LOW_STEP_NONE:
        make_same(w->low, n->out[0], n->in[0]);
        return AP_OK;
    case AP_LOW_STEP_SLICE:
        return add_part(w, AP_LOW_PART, id);
    case AP_LOW_STEP_MASK:
        return add_item(w, AP_LOW_MASK, id);
    default:
        return add_item(w, AP_LOW_EXCHANGE, id);
    }
}

/* The operands of a pointwise node, aligned at the last dimension, have the result's factors or none. */
static bool factors_agree(const ap_low *low, const ap_node_info *n)
{
    const ap_shape_info *rs = ap_value_shape(low->m, n->out[0]);
    for (uint32_t k = 0; k < n->nin; k++) {
        const ap_shape_info *os = ap_value_shape(low->m, n->in[k]);
        const ap_low_value *ov = &low->value[n->in[k]], *rv = &low->value[n->out[0]];
        for (int d = 0; d < os->rank; d++) {
            int r = d + rs->rank - os->rank, nf = os->first[d + 1] - os->first[d];
            if (r < 0 || (nf && nf != rs->first[r + 1] - rs->first[r]))
                return false;
            for (int j = 0; j < nf; j++) {
                if (ov->extent[os->first[d] + j] != rv->extent[rs->first[r] + j] ||
                    memcmp(&ov->count[os->first[d] + j], &rv->count[rs->first[r] + j], sizeof rv->count[0]) != 0)
                    return false;
            }
        }
    }
    return true;
}

static ap_status walk_block(walk *w, ap_block b);

static ap_status add_body(walk *w, ap_node id)
{
    const ap_node_info *n = ap_node_at(w->low->m, id);
    walk inner = {.low = w->low, .label = n->u.composite, .loc = w->loc ? w->loc : n->loc};
    inner.unit = w->unit == AP_NONE ? id : w->unit;
    AP_TRY(walk_block(&inner, n->body));
    const ap_block_info *b = ap_block_at(w->low->m, n->body);
    const ap_node_info *yield = ap_node_at(w->low->m, b->nodes.at[b->nodes.len - 1]);
    for (uint32_t i = 0; i < n->nout; i++)
        make_same(w->low, n->out[i], yield->in[i]);
    return AP_OK;
}

static ap_status add_node(walk *w, ap_node id)
{
    ap_low *low = w->low;
    const ap_node_info *n = ap_node_at(low->m, id);
    if (low->early && ap_op_get(n->op)->planned) {
        make_same(low, n->out[0], n->in[0]);
        return AP_OK;
    }
    if (ap_op_is_pointwise(n->op)) {
        if (!factors_agree(low, n))
            return ap_low_bug(low, n->loc, "pointwise operands do not have the factors of the result");
        return add_item(w, AP_LOW_POINTWISE, id);
    }
    switch (ap_op_get(n->op)->lower) {
    case AP_LOWER_CONSTANT:
        return make_constant(low, n);
    case AP_LOWER_IOTA:
        low->value[n->out[0]].source = AP_LOW_IOTA;
        low->value[n->out[0]].iota = id;
        return AP_OK;
    case AP_LOWER_VIEW:
        make_view(low, n);
        return AP_OK;
    case AP_LOWER_BODY:
        return add_body(w, id);
    case AP_LOWER_STEP:
        return add_step(w, id);
    case AP_LOWER_SLICE:
        return add_part(w, AP_LOW_PART, id);
    case AP_LOWER_RESHAPE:
        return add_part(w, AP_LOW_RESHAPE, id);
    case AP_LOWER_REDUCE:
        if (make_trivial_reduce(low, n))
            return AP_OK;
        return add_item(w, AP_LOW_REDUCE, id);
    case AP_LOWER_GATHER:
        return add_item(w, AP_LOW_GATHER, id);
    case AP_LOWER_INDEX:
        return add_item(w, AP_LOW_INDEX, id);
    case AP_LOWER_SCATTER:
        return add_item(w, AP_LOW_SCATTER, id);
    case AP_LOWER_TOPK:
        return add_item(w, AP_LOW_TOPK, id);
    case AP_LOWER_CUMULATE:
        return add_item(w, AP_LOW_CUMULATE, id);
    case AP_LOWER_CONTRACT:
        return add_item(w, AP_LOW_CONTRACT, id);
    case AP_LOWER_CONCAT:
        return add_item(w, AP_LOW_CONCAT, id);
    case AP_LOWER_PAD:
        return add_item(w, AP_LOW_PAD, id);
    case AP_LOWER_POOL:
        return add_item(w, AP_LOW_POOL, id);
    case AP_LOWER_CONV:
        return add_item(w, AP_LOW_CONV, id);
    case AP_LOWER_NONE:
        break;
    }
    return ap_low_bug(low, n->loc, "operator does not stand in an explicit module");
}

static ap_status walk_block(walk *w, ap_block b)
{
    for (uint32_t i = 0; i + 1 < ap_block_at(w->low->m, b)->nodes.len; i++)
        AP_TRY(add_node(w, ap_block_at(w->low->m, b)->nodes.at[i]));
    return AP_OK;
}

/* use[]: the users of each root, by item. */
static void collect_uses(ap_low *low)
{
    uint32_t total = 0;
    for (uint32_t i = 0; i < low->items.len; i++) {
        const ap_node_info *n = ap_node_at(low->m, low->items.at[i].node);
        total += n->nin;
        for (uint32_t k = 0; k < n->nin; k++)
            low->value[ap_low_root(low, n->in[k])].nuses++;
    }
    low->use = AP_NEW_ARRAY(low->scratch, ap_low_use, total);
    uint32_t at = 0;
    for (ap_value v = 0; v < low->m->values.len; v++) {
        low->value[v].first_use = at;
        at += low->value[v].nuses;
        low->value[v].nuses = 0;
    }
    for (uint32_t i = 0; i < low->items.len; i++) {
        const ap_node_info *n = ap_node_at(low->m, low->items.at[i].node);
        for (uint32_t k = 0; k < n->nin; k++) {
            ap_low_value *lv = &low->value[ap_low_root(low, n->in[k])];
            low->use[lv->first_use + lv->nuses++] = (ap_low_use){.item = i, .operand = k};
        }
    }
}

static ap_status measure_values(ap_low *low, ap_block b)
{
    const ap_block_info *bi = ap_block_at(low->m, b);
    for (uint32_t i = 0; i < bi->nodes.len; i++) {
        const ap_node_info *n = ap_node_at(low->m, bi->nodes.at[i]);
        for (uint32_t k = 0; k < n->nin + n->nout; k++) {
            ap_value v = k < n->nin ? n->in[k] : n->out[k - n->nin];
            low->value[v].nfactors = ap_value_shape(low->m, v)->nfactors;
            if (low->early)
                memcpy(low->value[v].extent, ap_value_shape(low->m, v)->logical, sizeof low->value[v].extent);
            else if (!ap_low_extents(low, ap_value_type(low->m, v), low->value[v].extent, low->value[v].count))
                return ap_low_bug(low, n->loc, "the devices do not divide a size of this node");
        }
        if (n->body != AP_NONE)
            AP_TRY(measure_values(low, n->body));
    }
    return AP_OK;
}

ap_status ap_low_flatten(ap_low *low)
{
    walk w = {.low = low, .unit = AP_NONE};
    ap_block body = low->m->funcs.at[low->func].body;
    low->value = AP_NEW_ARRAY(low->scratch, ap_low_value, low->m->values.len);
    for (ap_value v = 0; v < low->m->values.len; v++)
        make_root(low, v);
    AP_TRY(measure_values(low, body));
    AP_TRY(walk_block(&w, body));
    const ap_block_info *b = ap_block_at(low->m, body);
    AP_TRY(add_item(&w, AP_LOW_RETURN, b->nodes.at[b->nodes.len - 1]));
    collect_uses(low);
    return AP_OK;
}
