/* Writing the cuts into the module: types by the leaves of their atoms, letters split in step, ranges of slices by
 * factor, reshapes that only regroup factors as views. */
#include "ir/op.h"
#include "passes/refine.h"

#include <assert.h>
#include <string.h>

static ap_atom_seq leaves_of_dim(const ap_refine *r, ap_value v, int d)
{
    ap_atom_seq s = {0};
    bool ok = r->dim[v][d] == AP_NONE || ap_atoms_leaves(&r->atoms, r->dim[v][d], &s);
    assert(ok);
    (void)ok;
    return s;
}

static void apply_type(ap_refine *r, ap_value v)
{
    ap_ctx *ctx = r->m->ctx;
    ap_type_info t = ap_type_get(ctx, ap_value_type(r->m, v));
    const ap_shape_info *old = ap_shape_get(ctx, t.shape);
    ap_shape_info s = {.rank = old->rank};
    for (int d = 0; d < old->rank; d++) {
        ap_atom_seq l = leaves_of_dim(r, v, d);
        s.first[d] = s.nfactors;
        for (int i = 0; i < l.n; i++)
            s.logical[s.nfactors + i] = s.physical[s.nfactors + i] = ap_atoms_extent(&r->atoms, l.at[i]);
        s.nfactors = (uint8_t)(s.nfactors + l.n);
    }
    s.first[s.rank] = s.nfactors;
    ap_value_at(r->m, v)->type = ap_type_make(ctx, t.dtype, ap_shape_intern(ctx, &s), t.sharding);
}

/* Old letters stand for whole dimensions; each becomes one letter per leaf, the first keeping the old one. */
typedef struct letter_map {
    int n;
    char from[AP_MAX_FACTORS * 3];
    char to[AP_MAX_FACTORS * 3][AP_MAX_DIM_FACTORS];
} letter_map;

static int find_letter(const letter_map *map, char c)
{
    for (int i = 0; i < map->n; i++)
        if (map->from[i] == c)
            return i;
    return -1;
}

static char fresh_letter(bool used[128])
{
    for (const char *c = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"; *c; c++)
        if (!used[(int)*c]) {
            used[(int)*c] = true;
            return *c;
        }
    assert(!"more factors than letters");
    return 'a';
}

/* The usual letters of a fused projection, (thd): which of q k v, head, inside the head. */
static void name_leaves(char to[AP_MAX_DIM_FACTORS], char old, int n, bool used[128])
{
    static const char usual[] = "gthd";
    to[0] = old;
    if (n == 1)
        return;
    for (int i = 0; i < n; i++) {
        char c = usual[4 - n + i];
        to[i] = used[(int)c] && c != old ? fresh_letter(used) : c;
        used[(int)to[i]] = true;
    }
}

static ap_spec_side map_side(const ap_refine *r, ap_value v, const ap_spec_side *old, letter_map *map, bool used[128])
{
    ap_spec_side s;
    ap_spec_side_init(&s);
    for (int d = 0; d < old->rank; d++) {
        ap_spec_side_dim(&s);
        ap_atom_seq l = leaves_of_dim(r, v, d);
        if (l.n == 0)
            continue;
        char c = old->letter[old->first[d]];
        int k = find_letter(map, c);
        if (k < 0) {
            k = map->n++;
            map->from[k] = c;
            name_leaves(map->to[k], c, l.n, used);
        }
        for (int i = 0; i < l.n; i++)
            ap_spec_side_letter(&s, map->to[k][i]);
    }
    return s;
}

static void mark_used(const ap_spec_side *s, bool used[128])
{
    for (int i = 0; i < s->nletters; i++)
        used[(int)s->letter[i]] = true;
}

static void apply_spec(const ap_refine *r, const ap_node_info *n, ap_spec *spec)
{
    letter_map map = {0};
    bool used[128] = {false};
    for (int i = 0; i < spec->noperands; i++)
        mark_used(&spec->operand[i], used);
    mark_used(&spec->result, used);
    for (int i = 0; i < spec->noperands; i++)
        spec->operand[i] = map_side(r, n->in[i], &spec->operand[i], &map, used);
    spec->result = map_side(r, n->out[0], &spec->result, &map, used);
}

/* A range over a dimension as ranges over its factors: `start` of the leading ones, whole below. */
static void apply_slice(const ap_refine *r, ap_node_info *n, const ap_shape_info *old)
{
    ap_slice_attr *a = AP_NEW(r->m->arena, ap_slice_attr);
    int f = 0;
    for (int d = 0; d < old->rank; d++) {
        ap_atom_seq l = leaves_of_dim(r, n->in[0], d);
        ap_range g = {.whole = true};
        if (l.n > 0)
            g = n->u.slice->range[old->first[d]];
        if (l.n <= 1 || g.whole) {
            for (int i = 0; i < l.n; i++)
                a->range[f++] = l.n == 1 ? g : (ap_range){.whole = true};
            continue;
        }
        int64_t below = 1; /* extent of the factors after the i-th */
        for (int i = l.n - 1; i >= 0; i--) {
            int64_t extent = ap_atoms_extent(&r->atoms, l.at[i]);
            bool whole = below < g.count;
            a->range[f + i] = whole ? (ap_range){.whole = true}
                                    : (ap_range){.start = g.start / below % extent, .count = 1, .step = 1};
            below *= extent;
        }
        f += l.n;
    }
    n->u.slice = a;
}

static void apply_reshape(const ap_refine *r, ap_node_info *n)
{
    ap_value v[2] = {n->in[0], n->out[0]};
    ap_spec *spec = AP_NEW(r->m->arena, ap_spec);
    ap_spec_side *side[2] = {&spec->operand[0], &spec->result};
    spec->noperands = 1;
    for (int k = 0; k < 2; k++) {
        bool used[128] = {false};
        ap_spec_side_init(side[k]);
        for (int d = 0; d < ap_value_shape(r->m, v[k])->rank; d++) {
            ap_spec_side_dim(side[k]);
            ap_atom_seq l = leaves_of_dim(r, v[k], d);
            for (int i = 0; i < l.n; i++)
                ap_spec_side_letter(side[k], fresh_letter(used));
        }
    }
    n->op = AP_OP_VIEW;
    n->u.spec = spec;
}

static void apply_node(const ap_refine *r, ap_node id, const ap_shape_info *old_operand)
{
    ap_node_info *n = ap_node_at(r->m, id);
    if (n->op == AP_OP_CONTRACT || n->op == AP_OP_VIEW || n->op == AP_OP_GATHER)
        apply_spec(r, n, n->u.spec);
    else if (n->op == AP_OP_REDUCE)
        apply_spec(r, n, n->u.reduce.spec);
    else if (n->op == AP_OP_SCATTER)
        apply_spec(r, n, n->u.scatter.spec);
    else if (n->op == AP_OP_SLICE)
        apply_slice(r, n, old_operand);
    else if (n->op == AP_OP_RESHAPE && !r->whole[id])
        apply_reshape(r, n);
}

void ap_refine_apply(ap_refine *r)
{
    ap_module *m = r->m;
    const ap_shape_info **old = AP_NEW_ARRAY(r->arena, const ap_shape_info *, m->values.len);
    for (ap_value v = 0; v < m->values.len; v++)
        if (r->dim[v]) {
            old[v] = ap_value_shape(m, v);
            apply_type(r, v);
        }
    for (uint32_t i = 0; i < r->order.len; i++) {
        const ap_node_info *n = ap_node_at(m, r->order.at[i]);
        apply_node(r, r->order.at[i], n->nin ? old[n->in[0]] : NULL);
    }
    for (ap_func f = 0; f < m->funcs.len; f++) {
        const ap_block_info *body = ap_block_at(m, m->funcs.at[f].body);
        const ap_node_info *ret = ap_node_at(m, body->nodes.at[body->nodes.len - 1]);
        for (uint32_t i = 0; i < m->funcs.at[f].nresults; i++)
            m->funcs.at[f].result[i] = ap_value_type(m, ret->in[i]);
    }
}
