/* The arena should hold no more than was planned. The planner sees one step after the other; a kernel that takes in
 * several of them stands where the last one stood, and until then holds what the first one reads:
 *
 *     p = a + b       a, b end here               planned: p lives from here ...
 *     ...                                         fused:   a and b live on to q instead of p
 *     q = p * c       p ends here
 *
 * So joins are taken to account, item by item, and those are refused that put more into the arena than its limit where
 * it would not hold that much without them. What is computed in place of its operand counts twice, as for the planner.
 * Lowering does this only where the program with everything fused has turned out larger than its limit. */
#include "passes/cluster.h"
#include "passes/local.h"

/* What becomes of a buffer. */
typedef struct move {
    ap_value value;
    uint32_t first, last;
    int64_t bytes;
} move;

typedef struct account {
    ap_low *low;
    uint32_t p, c;
    uint32_t at; /* where both will stand */
    AP_VEC(move) moves;
} account;

static uint32_t position(const ap_low *low, uint32_t group)
{
    const ap_low_group *g = &low->groups.at[group];
    return g->members.at[g->members.len - 1].item;
}

/* The value whose buffer v lies in. */
static ap_value owner(const ap_low *low, ap_value v)
{
    for (;;) {
        ap_value root = ap_low_root(low, v);
        uint32_t item = low->value[root].item;
        if (item == AP_NONE || (low->items.at[item].kind != AP_LOW_PART && low->items.at[item].kind != AP_LOW_RESHAPE))
            return root;
        v = ap_node_at(low->m, low->items.at[item].node)->in[0];
    }
}

/* ---- at first ---- */

static int64_t buffer_bytes(const ap_low *low, ap_value root)
{
    const ap_low_value *v = &low->value[root];
    int64_t stride[AP_MAX_FACTORS], count;
    if (v->nuses == 0 || !ap_low_compact(v->nfactors, v->extent, stride, &count))
        return 0;
    return ap_align_bytes(ap_sat_mul(count, ap_dtype_bytes(ap_type_dtype(low->ctx, ap_value_type(low->m, root)))));
}

void ap_low_thrift_open(ap_low *low)
{
    ap_low_thrift *t = low->thrift;
    uint32_t nvalues = low->m->values.len, nitems = low->items.len;
    t->live = AP_NEW_ARRAY(low->scratch, int64_t, nitems + 1);
    t->bytes = AP_NEW_ARRAY(low->scratch, int64_t, nvalues);
    t->first = AP_NEW_ARRAY(low->scratch, uint32_t, nvalues);
    t->last = AP_NEW_ARRAY(low->scratch, uint32_t, nvalues);
    for (uint32_t i = 0; i < nitems; i++) {
        const ap_node_info *n = ap_node_at(low->m, low->items.at[i].node);
        for (uint32_t k = 0; k < n->nin; k++)
            t->last[owner(low, n->in[k])] = i;
        for (uint32_t k = 0; k < n->nout; k++) {
            if (owner(low, n->out[k]) != n->out[k])
                continue;
            t->bytes[n->out[k]] = buffer_bytes(low, n->out[k]);
            t->first[n->out[k]] = t->last[n->out[k]] = i;
        }
    }
    for (ap_value v = 0; v < nvalues; v++) {
        t->live[t->bytes[v] ? t->first[v] : nitems] += t->bytes[v];
        t->live[t->bytes[v] ? t->last[v] + 1 : nitems] -= t->bytes[v];
    }
    for (uint32_t i = 1; i < nitems; i++)
        t->live[i] += t->live[i - 1];
}

/* ---- a join ---- */

static move *move_of(account *a, ap_value v)
{
    const ap_low_thrift *t = a->low->thrift;
    for (uint32_t i = 0; i < a->moves.len; i++)
        if (a->moves.at[i].value == v)
            return &a->moves.at[i];
    ap_vec_push(a->low->scratch, &a->moves, (move){v, t->first[v], t->last[v], t->bytes[v]});
    return &a->moves.at[a->moves.len - 1];
}

/* A result of either group; false where somebody needs it before they would compute it. */
static bool move_result(account *a, ap_value v)
{
    const ap_low_value *lv = &a->low->value[v];
    bool inside = true, in_time = true;
    for (uint32_t i = 0; i < lv->nuses; i++) {
        ap_low_use u = a->low->use[lv->first_use + i];
        uint32_t reader = ap_low_group_of(a->low, u.item);
        bool here = reader == a->p || reader == a->c;
        inside = inside && here && ap_low_use_is_element(&a->low->items.at[u.item], u.operand);
        in_time = in_time && (here || position(a->low, reader) >= a->at);
    }
    move *m = move_of(a, v);
    m->first = a->at;
    m->last = m->last > a->at ? m->last : a->at;
    if (inside)
        m->bytes = 0;
    return in_time;
}

static bool move_group(account *a, uint32_t group)
{
    const ap_low_group *g = &a->low->groups.at[group];
    bool in_time = true;
    for (uint32_t i = 0; i < g->members.len; i++) {
        const ap_node_info *n = ap_node_at(a->low->m, a->low->items.at[g->members.at[i].item].node);
        for (uint32_t k = 0; k < n->nin; k++) {
            ap_value v = owner(a->low, n->in[k]);
            if (a->low->thrift->bytes[v] && move_of(a, v)->last < a->at)
                move_of(a, v)->last = a->at;
        }
        for (uint32_t k = 0; k < n->nout; k++)
            in_time = (!a->low->thrift->bytes[n->out[k]] || move_result(a, n->out[k])) && in_time;
    }
    return in_time;
}

/* The change of `live` from item `from` on, over n + 1 items. */
static int64_t *changes(const account *a, uint32_t *out_from, uint32_t *out_n)
{
    const ap_low_thrift *t = a->low->thrift;
    uint32_t from = a->at, to = a->at;
    for (uint32_t i = 0; i < a->moves.len; i++) {
        const move *m = &a->moves.at[i];
        from = t->first[m->value] < from ? t->first[m->value] : from;
        to = m->last > to ? m->last : to;
    }
    int64_t *by = AP_NEW_ARRAY(a->low->scratch, int64_t, to - from + 2);
    for (uint32_t i = 0; i < a->moves.len; i++) {
        const move *m = &a->moves.at[i];
        by[t->first[m->value] - from] -= t->bytes[m->value];
        by[t->last[m->value] + 1 - from] += t->bytes[m->value];
        by[m->first - from] += m->bytes;
        by[m->last + 1 - from] -= m->bytes;
    }
    for (uint32_t i = 1; i <= to - from; i++)
        by[i] += by[i - 1];
    *out_from = from;
    *out_n = to - from + 1;
    return by;
}

bool ap_low_thrift_join(ap_low *low, uint32_t p, uint32_t c, bool anyway)
{
    ap_low_thrift *t = low->thrift;
    if (!t)
        return true;
    account a = {.low = low, .p = p, .c = c, .at = position(low, p)};
    a.at = a.at > position(low, c) ? a.at : position(low, c);
    bool good = move_group(&a, p);
    good = move_group(&a, c) && good;
    uint32_t from, n;
    const int64_t *by = changes(&a, &from, &n);
    for (uint32_t i = 0; i < n; i++)
        good = good && (by[i] <= 0 || t->live[from + i] + by[i] <= low->options.limit);
    if (!good && !anyway)
        return false;
    for (uint32_t i = 0; i < n; i++)
        t->live[from + i] += by[i];
    for (uint32_t i = 0; i < a.moves.len; i++) {
        const move *m = &a.moves.at[i];
        t->first[m->value] = m->first;
        t->last[m->value] = m->last;
        t->bytes[m->value] = m->bytes;
    }
    return true;
}
