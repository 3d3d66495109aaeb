/* normal -> normal: pointwise and row-reduction nodes that work on the same rows become one composite, which the
 * planner prices as one kernel and the back end builds as one (DESIGN §4, clustered composites).
 *
 *     rows: the space D of the largest member; R: the dimensions of it that members reduce (and keep as 1)
 *     member: a pointwise node whose result has the dimensions of D, or of D with R as 1;
 *             a reduction (sum, max, min) of R over D
 *
 * A cluster grows from its last node backwards, over nodes all of whose uses are inside, so it has one
 * result and no cycle can arise. The first joint add after a contraction or gather stays outside, so that a
 * partial sum can pass through it before it is completed.
 *
 * needs: types   keeps: types, values used elsewhere   breaks: nothing */
#include "ir/op.h"
#include "passes/pass.h"

#include <string.h>

#define MAX_OPERANDS 16
#define MAX_MEMBERS 64
#define MAX_HEIGHT 6 /* reductions one behind the other: what one loop nest can do (local_rows.c) */

/* A node that reads a value, and the next one that does. */
typedef struct row_user {
    ap_node node;
    uint32_t next;
} row_user;

typedef struct rows {
    ap_module *m;
    ap_block block;
    uint32_t *position; /* [node] of the block: where it stands; AP_NONE for others */
    uint32_t *uses;     /* [value] */
    uint32_t *users;    /* [value]: the first of its list, or AP_NONE */
    AP_VEC(row_user) user;
    uint32_t *uses_here; /* [value]: by members of the growing cluster */
    bool *excluded;      /* [node] */
    bool *member;        /* [node] of the growing cluster */
    uint8_t *height;     /* [node] of it: reductions on the longest way to its end, this one included */
    ap_shape space;      /* D */
    uint32_t reduced;    /* R: bit per dimension */
    uint32_t nmembers;
    ap_node list[MAX_MEMBERS]; /* of members; by position once the cluster is complete */
} rows;

static const ap_node_info *producer(const rows *r, ap_value v, ap_node *out)
{
    const ap_value_info *value = ap_value_at(r->m, v);
    if (value->kind != AP_VALUE_RESULT)
        return NULL;
    *out = value->def;
    return ap_node_at(r->m, value->def);
}

static ap_shape shape_id(const rows *r, ap_value v)
{
    return ap_type_get(r->m->ctx, ap_value_type(r->m, v)).shape;
}

/* D with the dimensions of R as 1. */
static ap_shape row_shape(const rows *r)
{
    const ap_shape_info *d = ap_shape_get(r->m->ctx, r->space);
    ap_shape_info s = {.rank = d->rank};
    for (int i = 0; i < d->rank; i++) {
        s.first[i] = s.nfactors;
        for (int f = d->first[i]; f < d->first[i + 1] && !(r->reduced >> i & 1); f++) {
            s.logical[s.nfactors] = d->logical[f];
            s.physical[s.nfactors++] = d->physical[f];
        }
    }
    s.first[s.rank] = s.nfactors;
    return ap_shape_intern(r->m->ctx, &s);
}

/* Dimensions that a reduction removes, if it keeps them as 1 and everything else in place; 0 otherwise. */
static uint32_t reduced_dims(const ap_node_info *n)
{
    const ap_spec_side *a = &n->u.reduce.spec->operand[0], *b = &n->u.reduce.spec->result;
    uint32_t dims = 0;
    if (a->rank != b->rank || n->u.reduce.kind == AP_REDUCE_PROD || n->u.reduce.kind > AP_REDUCE_MIN)
        return 0;
    for (int d = 0; d < a->rank; d++) {
        int na = a->first[d + 1] - a->first[d], nb = b->first[d + 1] - b->first[d];
        if (nb == 0 && na > 0)
            dims |= 1u << d;
        else if (na != nb || memcmp(a->letter + a->first[d], b->letter + b->first[d], (size_t)na) != 0)
            return 0;
    }
    return dims;
}

/* A value that is D with its last dimensions as 1 settles R before any reduction is met. */
static bool settle_rows(rows *r, ap_shape s)
{
    const ap_shape_info *d = ap_shape_get(r->m->ctx, r->space), *row = ap_shape_get(r->m->ctx, s);
    if (row->rank != d->rank || row->nfactors == d->nfactors)
        return false;
    uint32_t dims = 0;
    for (int i = d->rank - 1; i >= 0 && row->first[i] == row->first[i + 1]; i--)
        dims |= (uint32_t)(d->first[i] < d->first[i + 1]) << i;
    r->reduced = dims;
    if (dims && row_shape(r) == s)
        return true;
    r->reduced = 0;
    return false;
}

/* Whether `n` fits the rows; may settle D and R. */
static bool fits(rows *r, const ap_node_info *n)
{
    if (n->op == AP_OP_REDUCE) {
        uint32_t dims = reduced_dims(n);
        ap_shape operand = shape_id(r, n->in[0]), result = shape_id(r, n->out[0]);
        if (!dims || (r->reduced && (dims != r->reduced || operand != r->space)))
            return false;
        if (!r->reduced && operand != r->space && result != r->space)
            return false;
        r->space = operand;
        r->reduced = dims;
        return true;
    }
    if (!ap_op_is_pointwise(n->op))
        return false;
    ap_shape s = shape_id(r, n->out[0]);
    if (s == r->space || (r->reduced && s == row_shape(r)))
        return true;
    return !r->reduced && settle_rows(r, s);
}

/* All that read the result are members. */
static uint8_t height_of(const rows *r, const ap_node_info *n)
{
    uint8_t most = 0;
    for (uint32_t u = r->users[n->out[0]]; u != AP_NONE; u = r->user.at[u].next)
        if (r->member[r->user.at[u].node] && r->height[r->user.at[u].node] > most)
            most = r->height[r->user.at[u].node];
    return most + (n->op == AP_OP_REDUCE);
}

static void add_member(rows *r, ap_node id)
{
    const ap_node_info *n = ap_node_at(r->m, id);
    r->height[id] = height_of(r, n);
    r->member[id] = true;
    r->list[r->nmembers++] = id;
    for (uint32_t i = 0; i < n->nin; i++)
        r->uses_here[n->in[i]]++;
}

/* The last node before position `end` that makes an operand of a member and is none itself; or AP_NONE. */
static uint32_t find_candidate(const rows *r, uint32_t end)
{
    uint32_t best = AP_NONE;
    for (uint32_t i = 0; i < r->nmembers; i++) {
        const ap_node_info *n = ap_node_at(r->m, r->list[i]);
        for (uint32_t k = 0; k < n->nin; k++) {
            ap_node id;
            if (!producer(r, n->in[k], &id) || r->member[id] || r->position[id] >= end)
                continue;
            if (best == AP_NONE || r->position[id] > best)
                best = r->position[id];
        }
    }
    return best;
}

/* One round over the block, backwards; true if the cluster grew. */
static bool grow(rows *r, uint32_t last)
{
    const ap_block_info *block = ap_block_at(r->m, r->block);
    bool grew = false;
    for (uint32_t i = last; r->nmembers < MAX_MEMBERS && (i = find_candidate(r, i)) != AP_NONE;) {
        ap_node id = block->nodes.at[i];
        const ap_node_info *n = ap_node_at(r->m, id);
        ap_value v = n->out[0];
        if (r->excluded[id] || n->nout != 1 || r->uses_here[v] != r->uses[v] || height_of(r, n) > MAX_HEIGHT ||
            !fits(r, n))
            continue;
        add_member(r, id);
        grew = true;
    }
    return grew;
}

static void sort_members(rows *r)
{
    for (uint32_t i = 1; i < r->nmembers; i++) {
        ap_node id = r->list[i];
        uint32_t j = i;
        for (; j > 0 && r->position[r->list[j - 1]] > r->position[id]; j--)
            r->list[j] = r->list[j - 1];
        r->list[j] = id;
    }
}

/* ---- which nodes stay outside ---- */

static bool is_splat(const rows *r, ap_value v)
{
    ap_node id;
    const ap_node_info *n = producer(r, v, &id);
    return n && n->op == AP_OP_CONSTANT && ap_value_shape(r->m, v)->nfactors == 0;
}

/* Whether `v` is computed from `from`, looking back a few nodes. */
static bool derives(const rows *r, ap_value v, ap_value from, int depth)
{
    ap_node id;
    const ap_node_info *n = producer(r, v, &id);
    if (v == from || !n || depth == 0)
        return v == from;
    for (uint32_t i = 0; i < n->nin; i++)
        if (derives(r, n->in[i], from, depth - 1))
            return true;
    return false;
}

/* A node that takes the carried operand and something made from it joins nothing: x - max(x). */
static bool joins_itself(const rows *r, const ap_node_info *n, uint32_t carried)
{
    for (uint32_t a = 0; a < n->nin; a++)
        for (uint32_t b = 0; (carried >> a & 1) && b < n->nin; b++)
            if (a != b && n->in[b] != n->in[a] && derives(r, n->in[b], n->in[a], 4))
                return true;
    return false;
}

/* The operands of `n` that carry a partial sum, and whether it joins others or passes alone. */
typedef struct carrying {
    uint32_t carried; /* bit per operand */
    bool joint, alone;
} carrying;

static carrying look_at(const rows *r, const ap_node_info *n, const bool *carries)
{
    carrying c = {0};
    uint32_t others = 0;
    for (uint32_t k = 0; k < n->nin && k < 32; k++) {
        c.carried |= (uint32_t)carries[n->in[k]] << k;
        others += !carries[n->in[k]] && !is_splat(r, n->in[k]);
    }
    const ap_op_info *info = ap_op_get(n->op);
    bool several = (info->linear[0] & (info->linear[0] - 1)) != 0;
    c.joint = several && (info->linear[0] & c.carried) && !joins_itself(r, n, c.carried);
    c.alone = !several && (info->linear[0] == c.carried || info->linear[1] == c.carried) && others == 0;
    return c;
}

/* The joint and the linear nodes that lead to it stay outside. */
static void exclude_chain(rows *r, ap_node id, const bool *carries)
{
    const ap_node_info *n = ap_node_at(r->m, id);
    if (!ap_op_is_pointwise(n->op) || r->excluded[id])
        return;
    r->excluded[id] = true;
    for (uint32_t k = 0; k < n->nin; k++) {
        ap_node from;
        if (carries[n->in[k]] && producer(r, n->in[k], &from))
            exclude_chain(r, from, carries);
    }
}

/* From contractions and gathers along linear single-operand nodes to the first node that joins another value. */
static void exclude_first_joints(rows *r)
{
    const ap_block_info *block = ap_block_at(r->m, r->block);
    bool *carries = AP_NEW_ARRAY(&r->m->ctx->scratch, bool, r->m->values.len);
    for (uint32_t i = 0; i < block->nodes.len; i++) {
        ap_node id = block->nodes.at[i];
        const ap_node_info *n = ap_node_at(r->m, id);
        if (n->nout != 1)
            continue;
        if (n->op == AP_OP_CONTRACT || n->op == AP_OP_GATHER || n->op == AP_OP_COMPOSITE) {
            carries[n->out[0]] = true;
            continue;
        }
        carrying c = look_at(r, n, carries);
        if (!c.carried)
            continue;
        if (c.joint)
            exclude_chain(r, id, carries);
        carries[n->out[0]] = (ap_op_is_pointwise(n->op) && c.alone) || n->op == AP_OP_VIEW;
    }
}

/* ---- making the composite ---- */

static const char *name_of(const rows *r)
{
    bool has[AP_OP_COUNT] = {false};
    for (uint32_t i = 0; i < r->nmembers; i++)
        has[ap_node_at(r->m, r->list[i])->op] = true;
    bool reduces = has[AP_OP_REDUCE];
    if (reduces && has[AP_OP_EXP] && has[AP_OP_DIV])
        return "softmax";
    if (reduces && (has[AP_OP_SQRT] || has[AP_OP_RSQRT]))
        return has[AP_OP_SUB] ? "layernorm" : "rmsnorm";
    if (has[AP_OP_ERF] || (has[AP_OP_TANH] && r->nmembers >= 6))
        return "gelu";
    if (has[AP_OP_SIGMOID])
        return "silu";
    return reduces ? "rows" : "fused";
}

/* Operands: what members read from outside, first use first; scalar constants move in. */
static uint32_t list_operands(const rows *r, ap_value out[MAX_OPERANDS])
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < r->nmembers; i++) {
        const ap_node_info *node = ap_node_at(r->m, r->list[i]);
        for (uint32_t k = 0; k < node->nin; k++) {
            ap_node id = AP_NONE;
            ap_value v = node->in[k];
            bool inside = producer(r, v, &id) && r->member[id];
            for (uint32_t j = 0; j < n && !inside; j++)
                inside = out[j] == v;
            if (inside || is_splat(r, v))
                continue;
            if (n == MAX_OPERANDS)
                return MAX_OPERANDS + 1;
            out[n++] = v;
        }
    }
    return n;
}

/* A copy of each scalar constant that a member reads, at the head of the body. */
static void move_constants(rows *r, ap_node member, ap_block body)
{
    ap_module *m = r->m;
    for (uint32_t k = 0; k < ap_node_at(m, member)->nin; k++) {
        ap_value v = ap_node_at(m, member)->in[k];
        if (!is_splat(r, v))
            continue;
        ap_node old = ap_value_at(m, v)->def;
        ap_node copy = ap_module_add_node(m, AP_OP_CONSTANT, 0, NULL, 1, ap_node_at(m, old)->loc);
        ap_node_at(m, copy)->u = ap_node_at(m, old)->u;
        ap_value_at(m, ap_node_at(m, copy)->out[0])->type = ap_value_type(m, v);
        ap_block_append(m, body, copy);
        ap_node_at(m, member)->in[k] = ap_node_at(m, copy)->out[0];
        r->position[copy] = AP_NONE;
        r->uses[v]--;
        r->uses[ap_node_at(m, copy)->out[0]] = 1;
    }
}

static void add_user(rows *r, ap_value v, ap_node id)
{
    row_user u = {.node = id, .next = r->users[v]};
    r->users[v] = r->user.len;
    ap_vec_push(&r->m->ctx->scratch, &r->user, u);
}

/* Who read `from` reads `to`. */
static void replace_uses(rows *r, ap_value from, ap_value to)
{
    for (uint32_t u = r->users[from]; u != AP_NONE; u = r->user.at[u].next) {
        ap_node_info *n = ap_node_at(r->m, r->user.at[u].node);
        for (uint32_t k = 0; k < n->nin; k++)
            if (n->in[k] == from)
                n->in[k] = to;
    }
    r->users[to] = r->users[from];
    r->users[from] = AP_NONE;
    r->uses[to] = r->uses[from];
    r->uses[from] = 0;
}

static void forget_members(rows *r)
{
    for (uint32_t i = 0; i < r->nmembers; i++) {
        const ap_node_info *n = ap_node_at(r->m, r->list[i]);
        r->member[r->list[i]] = false;
        for (uint32_t k = 0; k < n->nin; k++)
            r->uses_here[n->in[k]] = 0;
    }
}

/* The members leave the block for the body; the composite stands where the last of them stood. */
static void fill_body(rows *r, uint32_t last, ap_node comp, ap_value inner)
{
    ap_module *m = r->m;
    ap_block body = ap_module_add_block(m, ap_block_at(m, r->block)->func, comp);
    ap_node_at(m, comp)->body = body;
    ap_node_at(m, comp)->block = r->block;
    for (uint32_t i = 0; i < r->nmembers; i++) {
        ap_node id = r->list[i];
        move_constants(r, id, body);
        ap_block_append(m, body, id);
        ap_block_at(m, r->block)->nodes.at[r->position[id]] = AP_NONE;
        r->position[id] = AP_NONE;
    }
    ap_block_at(m, r->block)->nodes.at[last] = comp;
    r->position[comp] = last;
    ap_node yield = ap_module_add_node(m, AP_OP_YIELD, 1, &inner, 0, 0);
    ap_block_append(m, body, yield);
    r->position[yield] = AP_NONE;
    r->uses[inner] = 1;
}

static void make_composite(rows *r, uint32_t last, uint32_t nin, const ap_value *operand)
{
    ap_module *m = r->m;
    ap_node tail = ap_block_at(m, r->block)->nodes.at[last];
    ap_value inner = ap_node_at(m, tail)->out[0];
    ap_node comp = ap_module_add_node(m, AP_OP_COMPOSITE, nin, operand, 1, ap_node_at(m, tail)->loc);
    ap_value outer = ap_node_at(m, comp)->out[0];
    ap_node_at(m, comp)->u.composite = ap_name_make(m->ctx, name_of(r));
    replace_uses(r, inner, outer); /* no member reads the tail */
    ap_value_at(m, outer)->type = ap_value_type(m, inner);
    ap_value_at(m, outer)->name = ap_value_at(m, inner)->name;
    ap_value_at(m, inner)->name = 0;
    for (uint32_t k = 0; k < nin; k++) {
        add_user(r, operand[k], comp);
        r->uses[operand[k]]++;
    }
    forget_members(r);
    fill_body(r, last, comp, inner);
}

/* Grows a cluster that ends at position `last`, and makes it a composite where that is worth it. */
static void try_cluster(rows *r, uint32_t last)
{
    ap_node id = ap_block_at(r->m, r->block)->nodes.at[last];
    const ap_node_info *n = ap_node_at(r->m, id);
    if (r->excluded[id] || n->nout != 1)
        return;
    r->reduced = 0;
    r->space = shape_id(r, n->out[0]);
    if (!fits(r, n))
        return;
    add_member(r, id);
    while (grow(r, last))
        continue;
    ap_value operand[MAX_OPERANDS];
    sort_members(r);
    uint32_t nin = r->nmembers >= 2 ? list_operands(r, operand) : MAX_OPERANDS + 1;
    if (nin <= MAX_OPERANDS)
        make_composite(r, last, nin, operand);
    else
        forget_members(r);
    r->nmembers = 0;
}

/* Side tables by id, with places for what composites add: of each one itself, its yield, and copies of constants. */
static void make_tables(rows *r)
{
    const ap_module *m = r->m;
    ap_arena *scratch = &m->ctx->scratch;
    const ap_block_info *block = ap_block_at(m, r->block);
    size_t more = 2 * (size_t)block->nodes.len;
    for (ap_node n = 0; n < m->nodes.len; n++)
        more += m->nodes.at[n].nin;
    size_t nodes = m->nodes.len + more, values = m->values.len + more;
    r->excluded = AP_NEW_ARRAY(scratch, bool, nodes);
    r->member = AP_NEW_ARRAY(scratch, bool, nodes);
    r->height = AP_NEW_ARRAY(scratch, uint8_t, nodes);
    r->position = AP_NEW_ARRAY(scratch, uint32_t, nodes);
    r->uses = AP_NEW_ARRAY(scratch, uint32_t, values);
    r->uses_here = AP_NEW_ARRAY(scratch, uint32_t, values);
    r->users = AP_NEW_ARRAY(scratch, uint32_t, values);
    memset(r->position, 0xff, nodes * sizeof *r->position);
    memset(r->users, 0xff, values * sizeof *r->users);
    for (ap_node n = 0; n < m->nodes.len; n++)
        for (uint32_t k = 0; m->nodes.at[n].block != AP_NONE && k < m->nodes.at[n].nin; k++) {
            r->uses[m->nodes.at[n].in[k]]++;
            add_user(r, m->nodes.at[n].in[k], n);
        }
    for (uint32_t i = 0; i < block->nodes.len; i++)
        r->position[block->nodes.at[i]] = i;
}

static void visit_block(rows *r)
{
    make_tables(r);
    exclude_first_joints(r);
    for (uint32_t last = ap_block_at(r->m, r->block)->nodes.len; last-- > 0;) {
        ap_node id = ap_block_at(r->m, r->block)->nodes.at[last];
        if (id == AP_NONE)
            continue;
        ap_op op = ap_node_at(r->m, id)->op;
        if (op == AP_OP_REDUCE || ap_op_is_pointwise(op))
            try_cluster(r, last);
    }
    ap_block_info *block = ap_block_at(r->m, r->block);
    uint32_t kept = 0;
    for (uint32_t i = 0; i < block->nodes.len; i++)
        if (block->nodes.at[i] != AP_NONE)
            block->nodes.at[kept++] = block->nodes.at[i];
    block->nodes.len = kept;
}

ap_status ap_pass_rows(ap_ctx *ctx, ap_module *m)
{
    (void)ctx;
    for (ap_func f = 0; f < m->funcs.len; f++)
        visit_block(&(rows){.m = m, .block = m->funcs.at[f].body});
    ap_module_remove_dead(m);
    return AP_OK;
}
