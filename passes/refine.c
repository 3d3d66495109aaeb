/* imported -> normal: dimensions are cut into factors, so that reshapes, equal splits and equal concats become
 * correspondences of whole factors, which sharding passes through (DESIGN §5, Refinement).
 *
 * Letters and pointwise operands unify first; then, in node order, reshapes, slices and concats ask for cuts.
 * What cannot be cut (extents do not divide, a dimension would exceed 4 factors, a factor is indexed) stays
 * whole at that node. When a slice or concat turns out to need a dimension whole that others cut, that
 * dimension is frozen and the work starts over; each round freezes at least one more node.
 *
 * needs: types   keeps: values, names, order   breaks: nothing; state becomes normal */
#include "passes/refine.h"
#include "ir/op.h"
#include "passes/pass.h"

#include <assert.h>
#include <string.h>

static ap_atom_seq dim_seq(const ap_refine *r, ap_value v, int d)
{
    ap_atom_seq s = {0};
    ap_atom x = r->dim[v][d];
    if (x != AP_NONE)
        s.at[s.n++] = x;
    return s;
}

static void append(ap_atom_seq *s, ap_atom_seq more)
{
    for (int i = 0; i < more.n; i++)
        s->at[s->n++] = more.at[i];
}

static int64_t dim_extent(const ap_refine *r, ap_value v, int d)
{
    return r->dim[v][d] == AP_NONE ? 1 : ap_atoms_extent(&r->atoms, r->dim[v][d]);
}

/* Before any cut: two dimensions are the same. */
static void same_dim(ap_refine *r, ap_value a, int da, ap_value b, int db)
{
    ap_atom_seq x = dim_seq(r, a, da), y = dim_seq(r, b, db);
    bool ok = x.n == 0 || y.n == 0 || ap_atoms_unify(&r->atoms, &x, &y);
    assert(ok);
    (void)ok;
}

static void freeze_dim(ap_refine *r, ap_value v, int d)
{
    if (r->dim[v][d] != AP_NONE)
        ap_atoms_freeze(&r->atoms, r->dim[v][d]);
}

/* Dimension of a side that holds the letter; before refinement each dimension has one letter at most. */
static int dim_of_letter(const ap_spec_side *s, char letter)
{
    for (int d = 0; d < s->rank; d++)
        for (int i = s->first[d]; i < s->first[d + 1]; i++)
            if (s->letter[i] == letter)
                return d;
    return -1;
}

static void unify_spec(ap_refine *r, const ap_node_info *n, const ap_spec *spec)
{
    for (int i = 0; i < spec->noperands; i++)
        for (int k = 0; k < spec->operand[i].nletters; k++) {
            char c = spec->operand[i].letter[k];
            int d = dim_of_letter(&spec->operand[i], c);
            int dr = dim_of_letter(&spec->result, c);
            if (dr >= 0)
                same_dim(r, n->in[i], d, n->out[0], dr);
            for (int j = i + 1; j < spec->noperands; j++) {
                int dj = dim_of_letter(&spec->operand[j], c);
                if (dj >= 0)
                    same_dim(r, n->in[i], d, n->in[j], dj);
            }
        }
}

static void unify_pointwise(ap_refine *r, const ap_node_info *n)
{
    int rank = ap_value_shape(r->m, n->out[0])->rank;
    for (uint32_t i = 0; i < n->nin; i++) {
        int ri = ap_value_shape(r->m, n->in[i])->rank;
        for (int d = 0; d < ri; d++)
            same_dim(r, n->in[i], d, n->out[0], d + rank - ri);
    }
}

static void unify_other_dims(ap_refine *r, const ap_node_info *n, ap_value operand, int except)
{
    int rank = ap_value_shape(r->m, operand)->rank;
    for (int d = 0; d < rank; d++)
        if (d != except)
            same_dim(r, operand, d, n->out[0], d);
}

/* In state imported each dimension has one factor at most, so ranges are by dimension. */
static ap_range range_of_dim(const ap_refine *r, const ap_node_info *n, int d)
{
    const ap_shape_info *s = ap_value_shape(r->m, n->in[0]);
    if (s->first[d] == s->first[d + 1])
        return (ap_range){.whole = true};
    return n->u.slice->range[s->first[d]];
}

static bool slice_is_even(ap_range g, int64_t extent)
{
    return g.count >= 1 && (g.step == 1 || g.count == 1) && extent % g.count == 0 && g.start % g.count == 0;
}

static bool concat_is_even(const ap_refine *r, const ap_node_info *n)
{
    int d = n->u.concat.dim;
    for (uint32_t i = 1; i < n->nin; i++)
        if (dim_extent(r, n->in[i], d) != dim_extent(r, n->in[0], d))
            return false;
    return n->nin >= 2 && dim_extent(r, n->in[0], d) >= 1;
}

static void unify_slice(ap_refine *r, ap_node id)
{
    const ap_node_info *n = ap_node_at(r->m, id);
    int rank = ap_value_shape(r->m, n->in[0])->rank;
    for (int d = 0; d < rank; d++) {
        ap_range g = range_of_dim(r, n, d);
        if (g.whole) {
            same_dim(r, n->in[0], d, n->out[0], d);
        } else if (r->whole[id] || !slice_is_even(g, dim_extent(r, n->in[0], d))) {
            freeze_dim(r, n->in[0], d);
            freeze_dim(r, n->out[0], d);
        }
    }
}

static void unify_concat(ap_refine *r, ap_node id)
{
    const ap_node_info *n = ap_node_at(r->m, id);
    int d = n->u.concat.dim;
    for (uint32_t i = 0; i < n->nin; i++)
        unify_other_dims(r, n, n->in[i], d);
    if (!r->whole[id] && concat_is_even(r, n))
        return;
    for (uint32_t i = 0; i < n->nin; i++)
        freeze_dim(r, n->in[i], d);
    freeze_dim(r, n->out[0], d);
}

static void unify_pad(ap_refine *r, const ap_node_info *n)
{
    int rank = ap_value_shape(r->m, n->in[0])->rank;
    for (int d = 0; d < rank; d++) {
        if (n->u.pad->lo[d] == 0 && n->u.pad->hi[d] == 0) {
            same_dim(r, n->in[0], d, n->out[0], d);
        } else {
            freeze_dim(r, n->in[0], d);
            freeze_dim(r, n->out[0], d);
        }
    }
}

/* [n,g,c,...] and [g,m,c,...] -> [n,g,m,...]; spatial dimensions and those of the kernel stay whole. */
static void unify_conv(ap_refine *r, const ap_node_info *n)
{
    ap_value x = n->in[0], w = n->in[1], y = n->out[0];
    same_dim(r, x, 0, y, 0);
    same_dim(r, x, 1, w, 0);
    same_dim(r, x, 1, y, 1);
    same_dim(r, x, 2, w, 2);
    same_dim(r, w, 1, y, 2);
    for (int d = 3; d < ap_value_shape(r->m, x)->rank; d++) {
        freeze_dim(r, x, d);
        freeze_dim(r, w, d);
        freeze_dim(r, y, d);
    }
}

static void unify_pool(ap_refine *r, const ap_node_info *n)
{
    int rank = ap_value_shape(r->m, n->in[0])->rank;
    for (int d = 0; d < rank; d++) {
        if (!n->u.pool->window[d].kernel) {
            same_dim(r, n->in[0], d, n->out[0], d);
        } else {
            freeze_dim(r, n->in[0], d);
            freeze_dim(r, n->out[0], d);
        }
    }
}

static void freeze_letters_of_one_side(ap_refine *r, const ap_node_info *n, const ap_spec *spec)
{
    for (int k = 0; k < spec->operand[0].nletters; k++) {
        char c = spec->operand[0].letter[k];
        bool kept = dim_of_letter(&spec->result, c) >= 0;
        if (!kept && (spec->noperands < 2 || dim_of_letter(&spec->operand[1], c) < 0))
            freeze_dim(r, n->in[0], dim_of_letter(&spec->operand[0], c));
    }
}

/* The letter that neither indices nor updates have. */
static void freeze_indexed(ap_refine *r, const ap_node_info *n, const ap_spec *spec)
{
    for (int k = 0; k < spec->operand[0].nletters; k++) {
        char c = spec->operand[0].letter[k];
        if (dim_of_letter(&spec->operand[1], c) < 0 && dim_of_letter(&spec->operand[2], c) < 0)
            freeze_dim(r, n->in[0], dim_of_letter(&spec->operand[0], c));
    }
}

/* Equal dimensions but for one, which stays whole in operand and result. */
static void unify_along(ap_refine *r, const ap_node_info *n, ap_value out, int dim)
{
    int rank = ap_value_shape(r->m, out)->rank;
    for (int d = 0; d < rank; d++)
        if (d != dim)
            same_dim(r, n->in[0], d, out, d);
    freeze_dim(r, n->in[0], dim);
    freeze_dim(r, out, dim);
}

static void unify_composite(ap_refine *r, const ap_node_info *n)
{
    const ap_block_info *body = ap_block_at(r->m, n->body);
    const ap_node_info *yield = ap_node_at(r->m, body->nodes.at[body->nodes.len - 1]);
    for (uint32_t i = 0; i < n->nout; i++)
        for (int d = 0; d < ap_value_shape(r->m, n->out[i])->rank; d++)
            same_dim(r, yield->in[i], d, n->out[i], d);
}

/* First round: what must be equal, and what must stay whole. */
static void unify_node(ap_refine *r, ap_node id)
{
    const ap_node_info *n = ap_node_at(r->m, id);
    switch (n->op) {
    case AP_OP_CONTRACT:
    case AP_OP_VIEW:
        unify_spec(r, n, n->u.spec);
        break;
    case AP_OP_GATHER:
        unify_spec(r, n, n->u.spec);
        freeze_letters_of_one_side(r, n, n->u.spec);
        break;
    case AP_OP_REDUCE:
        unify_spec(r, n, n->u.reduce.spec);
        if (n->u.reduce.kind == AP_REDUCE_ARGMAX || n->u.reduce.kind == AP_REDUCE_ARGMIN)
            freeze_letters_of_one_side(r, n, n->u.reduce.spec);
        break;
    case AP_OP_SCATTER: /* rows may be split, but not cut: an index addresses all of them */
        unify_spec(r, n, n->u.scatter.spec);
        freeze_indexed(r, n, n->u.scatter.spec);
        break;
    case AP_OP_TOPK:
        for (uint32_t i = 0; i < n->nout; i++)
            unify_along(r, n, n->out[i], n->u.topk.dim);
        break;
    case AP_OP_CUMULATE:
        unify_along(r, n, n->out[0], n->u.cumulate.dim);
        break;
    case AP_OP_INDEX:
        unify_pointwise(r, n);
        break;
    case AP_OP_IOTA:
        freeze_dim(r, n->out[0], n->u.iota.dim);
        break;
    case AP_OP_SLICE:
        unify_slice(r, id);
        break;
    case AP_OP_CONCAT:
        unify_concat(r, id);
        break;
    case AP_OP_PAD:
        unify_pad(r, n);
        break;
    case AP_OP_CONV:
        unify_conv(r, n);
        break;
    case AP_OP_POOL:
        unify_pool(r, n);
        break;
    case AP_OP_COMPOSITE:
        unify_composite(r, n);
        break;
    default:
        if (ap_op_is_pointwise(n->op))
            unify_pointwise(r, n);
    }
}

/* ---- second round: requests for cuts ---- */

static bool try_slice(ap_refine *r, const ap_node_info *n)
{
    int rank = ap_value_shape(r->m, n->in[0])->rank;
    for (int d = 0; d < rank; d++) {
        ap_range g = range_of_dim(r, n, d);
        if (g.whole || !slice_is_even(g, dim_extent(r, n->in[0], d)))
            continue;
        ap_atom_seq x = dim_seq(r, n->in[0], d), y = dim_seq(r, n->out[0], d), major, minor;
        if (!ap_atoms_cut_at(&r->atoms, &x, g.count, &major, &minor) || !ap_atoms_unify(&r->atoms, &minor, &y))
            return false;
    }
    return true;
}

static bool try_concat(ap_refine *r, const ap_node_info *n)
{
    int d = n->u.concat.dim;
    if (!concat_is_even(r, n))
        return true;
    ap_atom_seq x = dim_seq(r, n->out[0], d), major, minor;
    if (!ap_atoms_cut_at(&r->atoms, &x, dim_extent(r, n->in[0], d), &major, &minor))
        return false;
    if (major.n != 1)
        return false;
    ap_atoms_freeze(&r->atoms, major.at[0]);
    for (uint32_t i = 0; i < n->nin; i++) {
        ap_atom_seq y = dim_seq(r, n->in[i], d);
        if (!ap_atoms_unify(&r->atoms, &minor, &y))
            return false;
    }
    return true;
}

static bool value_fits(const ap_refine *r, ap_value v)
{
    int total = 0, rank = ap_value_shape(r->m, v)->rank;
    for (int d = 0; d < rank; d++) {
        ap_atom_seq s = {0};
        if (r->dim[v][d] != AP_NONE && !ap_atoms_leaves(&r->atoms, r->dim[v][d], &s))
            return false;
        total += s.n;
        if (s.n > AP_MAX_DIM_FACTORS || total > AP_MAX_FACTORS)
            return false;
    }
    return true;
}

/* The values that have this atom, or one that it is a part of. */
static bool class_fits(const ap_refine *r, ap_atom x)
{
    ap_atom i = x;
    do {
        const ap_atom_info *a = &r->atoms.at.at[i];
        if (a->parent != AP_NONE ? !class_fits(r, a->parent) : !value_fits(r, r->owner.at[i]))
            return false;
        i = a->next;
    } while (i != x);
    return true;
}

/* Have the values whose dimensions were cut since `mark` few enough factors? */
static bool within_limits(const ap_refine *r, uint32_t mark)
{
    for (uint32_t i = mark; i < r->atoms.log.len; i++) {
        const ap_atom_undo *u = &r->atoms.log.at[i];
        bool cut = u->before.child[0] == AP_NONE && r->atoms.at.at[u->atom].child[0] != AP_NONE;
        if (cut && !class_fits(r, u->atom))
            return false;
    }
    return true;
}

/* A run of dimensions on both sides, as short as equal products allow. */
typedef struct run {
    int x, y; /* its first dimensions */
    ap_atom_seq a, b;
} run;

/* The next run from dimensions *i and *j on; false when there is none. */
static bool next_run(ap_refine *r, const ap_node_info *n, int *i, int *j, run *out)
{
    ap_value x = n->in[0], y = n->out[0];
    int rx = ap_value_shape(r->m, x)->rank, ry = ap_value_shape(r->m, y)->rank;
    int64_t pa = 1, pb = 1;
    *out = (run){.x = *i, .y = *j};
    do {
        if (*j >= ry || (*i < rx && pa <= pb)) {
            if (*i >= rx)
                return false;
            pa = ap_sat_mul(pa, dim_extent(r, x, *i));
            append(&out->a, dim_seq(r, x, (*i)++));
        } else {
            pb = ap_sat_mul(pb, dim_extent(r, y, *j));
            append(&out->b, dim_seq(r, y, (*j)++));
        }
    } while (pa != pb);
    return pa >= 1;
}

static bool more_runs(const ap_refine *r, const ap_node_info *n, int i, int j)
{
    return i < ap_value_shape(r->m, n->in[0])->rank || j < ap_value_shape(r->m, n->out[0])->rank;
}

/* Shortest runs of equal product, from the left: [B,S,H] and [B*S,h,d] are the runs B S ~ BS and H ~ h d. */
static bool try_reshape(ap_refine *r, const ap_node_info *n)
{
    int i = 0, j = 0;
    run at;
    while (more_runs(r, n, i, j))
        if (!next_run(r, n, &i, &j, &at) || !ap_atoms_unify(&r->atoms, &at.a, &at.b))
            return false;
    return true;
}

/* [64,1024] and [32,2048], where 2048 must stay whole: 64 is cut into 32.2, and the 32 are the same on both sides. */
static bool share_major(ap_refine *r, const ap_node_info *n, const run *at)
{
    int64_t dx = dim_extent(r, n->in[0], at->x), dy = dim_extent(r, n->out[0], at->y);
    bool x_larger = dx > dy;
    int64_t large = x_larger ? dx : dy, small = x_larger ? dy : dx;
    ap_atom_seq from = x_larger ? dim_seq(r, n->in[0], at->x) : dim_seq(r, n->out[0], at->y), major, minor;
    ap_atom_seq to = x_larger ? dim_seq(r, n->out[0], at->y) : dim_seq(r, n->in[0], at->x);
    return small > 1 && large % small == 0 && ap_atoms_cut_at(&r->atoms, &from, large / small, &major, &minor) &&
           ap_atoms_unify(&r->atoms, &major, &to);
}

/* A reshape that becomes no view still has runs that do, and others that begin alike. */
static void share_reshape(ap_refine *r, const ap_node_info *n)
{
    int i = 0, j = 0;
    run at;
    while (more_runs(r, n, i, j) && next_run(r, n, &i, &j, &at)) {
        for (int whole = 1; whole >= 0; whole--) {
            uint32_t mark = ap_atoms_mark(&r->atoms);
            bool ok = whole ? ap_atoms_unify(&r->atoms, &at.a, &at.b) : share_major(r, n, &at);
            if (ok && within_limits(r, mark))
                break;
            ap_atoms_rollback(&r->atoms, mark);
        }
    }
}

/* False when the whole work must start over with `id` whole. */
static bool request_cuts(ap_refine *r, ap_node id)
{
    const ap_node_info *n = ap_node_at(r->m, id);
    bool ask = n->op == AP_OP_RESHAPE || n->op == AP_OP_SLICE || n->op == AP_OP_CONCAT;
    if (ask && r->whole[id] && n->op == AP_OP_RESHAPE)
        share_reshape(r, n); /* the work started over */
    if (!ask || r->whole[id])
        return true;
    uint32_t mark = ap_atoms_mark(&r->atoms);
    bool ok = n->op == AP_OP_RESHAPE ? try_reshape(r, n) : n->op == AP_OP_SLICE ? try_slice(r, n) : try_concat(r, n);
    if (ok && (ap_atoms_mark(&r->atoms) == mark || within_limits(r, mark)))
        return true;
    ap_atoms_rollback(&r->atoms, mark);
    r->whole[id] = true;
    if (n->op != AP_OP_RESHAPE)
        return false;
    share_reshape(r, n);
    return true;
}

/* ---- the driver ---- */

static void list_nodes(ap_refine *r, ap_block b)
{
    const ap_block_info *block = ap_block_at(r->m, b);
    for (uint32_t i = 0; i < block->nodes.len; i++) {
        ap_node n = block->nodes.at[i];
        ap_vec_push(r->arena, &r->order, n);
        if (ap_node_at(r->m, n)->body != AP_NONE)
            list_nodes(r, ap_node_at(r->m, n)->body);
    }
}

static void start_over(ap_refine *r)
{
    r->atoms = (ap_atoms){.arena = r->arena};
    r->owner.len = 0;
    for (ap_value v = 0; v < r->m->values.len; v++) {
        const ap_shape_info *s = ap_value_shape(r->m, v);
        if (!ap_value_type(r->m, v))
            continue;
        r->dim[v] = AP_NEW_ARRAY(r->arena, ap_atom, s->rank + 1);
        for (int d = 0; d < s->rank; d++) {
            r->dim[v][d] = AP_NONE;
            if (s->first[d] == s->first[d + 1])
                continue;
            r->dim[v][d] = ap_atoms_make(&r->atoms, s->logical[s->first[d]]);
            ap_vec_push(r->arena, &r->owner, v);
        }
    }
    for (uint32_t i = 0; i < r->order.len; i++)
        unify_node(r, r->order.at[i]);
}

ap_status ap_pass_refine(ap_ctx *ctx, ap_module *m)
{
    ap_refine r = {.m = m, .arena = &ctx->scratch};
    r.whole = AP_NEW_ARRAY(r.arena, bool, m->nodes.len);
    r.dim = AP_NEW_ARRAY(r.arena, ap_atom *, m->values.len);
    for (ap_func f = 0; f < m->funcs.len; f++)
        list_nodes(&r, m->funcs.at[f].body);
    bool again = true;
    while (again) {
        start_over(&r);
        again = false;
        for (uint32_t i = 0; i < r.order.len && !again; i++)
            again = !request_cuts(&r, r.order.at[i]);
    }
    ap_refine_apply(&r);
    m->state = AP_STATE_NORMAL;
    for (uint32_t i = 0; i < r.order.len; i++)
        if (!ap_op_get(ap_node_at(m, r.order.at[i])->op)->terminator)
            AP_TRY(ap_node_infer(m, r.order.at[i]));
    return AP_OK;
}
