/* Rule of a composite, composed from its body.
 *
 * Factors of all values in the body that correspond by the body nodes' own rules form a class (union-find); a class is
 * a letter of the composite. What splitting it means is found by walking the body once with that class split: each
 * value is then replicated, split, or partial. Where a partial value meets a node that is not linear in it, a value
 * on the way there is completed (cuts.c) and the walk begins anew. The same walk with partial operands, and without
 * completing anything, finds the linear groups, and, for a given assignment, the choice of every node of the body. */
#include "ir/op/body.h"

#include <string.h>

static uint32_t find(const body *b, uint32_t i)
{
    while (b->parent[i] != i)
        i = b->parent[i] = b->parent[b->parent[i]];
    return i;
}

static void unite(body *b, uint32_t i, uint32_t j)
{
    i = find(b, i), j = find(b, j);
    b->parent[ap_max_i64(i, j)] = (uint32_t)ap_min_i64(i, j);
    b->whole[ap_min_i64(i, j)] = b->whole[i] || b->whole[j];
}

static uint32_t dense_number(const body *b, ap_value v)
{
    for (uint32_t i = 0; i < b->nnames; i++) {
        if (b->name[i] == v)
            return b->number[i];
    }
    return AP_NONE;
}

static uint32_t add_name(body *b, ap_value v, uint32_t number)
{
    b->name[b->nnames] = v;
    b->number[b->nnames++] = number;
    return number;
}

static uint32_t add_value(body *b, ap_value v, uint32_t maker)
{
    uint32_t i = dense_number(b, v);
    if (i != AP_NONE) /* an operand listed twice */
        return i;
    const ap_shape_info *s = ap_value_shape(b->m, v);
    i = b->nvalues++;
    b->first[i + 1] = b->first[i] + s->nfactors;
    b->bytes[i] = ap_sat_mul(ap_shape_count(s), ap_dtype_bytes(ap_type_dtype(b->m->ctx, ap_value_type(b->m, v))));
    b->maker[i] = maker;
    return add_name(b, v, i);
}

static void mark_whole(body *b, uint32_t v)
{
    for (uint32_t f = v == AP_NONE ? 0 : b->first[v]; v != AP_NONE && f < b->first[v + 1]; f++)
        b->whole[find(b, f)] = true;
}

/* All factors that a node's rule gives one letter are one class. */
static void unite_node(body *b, const body_node *bn)
{
    const ap_rule *r = &bn->rule;
    uint32_t seen[AP_MAX_LETTERS];
    memset(seen, 0xff, sizeof seen);
    if (r->noperands + r->nresults == 0) { /* no rule */
        for (uint32_t i = 0; i < bn->nin; i++)
            mark_whole(b, bn->in[i]);
        for (uint32_t i = 0; i < bn->nout; i++)
            mark_whole(b, bn->out[i]);
    }
    for (uint32_t i = 0; i < r->noperands + r->nresults; i++) {
        bool is_result = i >= r->noperands;
        uint32_t v = is_result ? bn->out[i - r->noperands] : bn->in[i];
        const int8_t *letter = is_result ? r->result[i - r->noperands] : r->operand[i];
        int nf = is_result ? r->result_factors[i - r->noperands] : r->operand_factors[i];
        for (int f = 0; f < nf && v != AP_NONE; f++) {
            uint32_t at = b->first[v] + (uint32_t)f;
            if (letter[f] == AP_RULE_NONE)
                b->whole[find(b, at)] = true;
            else if (seen[letter[f]] == NO_CLASS)
                seen[letter[f]] = at;
            else
                unite(b, seen[letter[f]], at);
        }
    }
    for (uint32_t i = 0; i < r->noperands; i++) { /* what comes from outside unlisted is not split */
        for (int f = 0; f < r->operand_factors[i] && bn->in[i] == AP_NONE; f++) {
            if (r->operand[i][f] != AP_RULE_NONE && seen[r->operand[i][f]] != NO_CLASS)
                b->whole[find(b, seen[r->operand[i][f]])] = true;
        }
    }
}

static uint32_t letter_root(const body *b, const body_node *bn, int l)
{
    const ap_rule *r = &bn->rule;
    for (uint32_t i = 0; i < r->noperands + r->nresults; i++) {
        bool is_result = i >= r->noperands;
        uint32_t v = is_result ? bn->out[i - r->noperands] : bn->in[i];
        const int8_t *letter = is_result ? r->result[i - r->noperands] : r->operand[i];
        int nf = is_result ? r->result_factors[i - r->noperands] : r->operand_factors[i];
        for (int f = 0; f < nf && v != AP_NONE; f++) {
            if (letter[f] == l)
                return find(b, b->first[v] + (uint32_t)f);
        }
    }
    return NO_CLASS;
}

static void collect_nodes(body *b, const ap_block_info *block)
{
    const ap_module *m = b->m;
    for (uint32_t i = 0; i + 1 < block->nodes.len; i++) {
        const ap_node_info *node = ap_node_at(m, block->nodes.at[i]);
        if (ap_op_get(node->op)->planned) { /* what it completes is found again */
            add_name(b, node->out[0], dense_number(b, node->in[0]));
            continue;
        }
        body_node *bn = &b->node[b->nnodes++];
        bn->node = block->nodes.at[i];
        ap_rule_get(m, bn->node, &b->arena, &bn->rule);
        bn->nin = node->nin, bn->nout = node->nout;
        bn->in = AP_NEW_ARRAY(&b->arena, uint32_t, node->nin);
        bn->out = AP_NEW_ARRAY(&b->arena, uint32_t, node->nout);
        for (uint32_t k = 0; k < node->nin; k++)
            bn->in[k] = dense_number(b, node->in[k]);
        for (uint32_t k = 0; k < node->nout; k++)
            bn->out[k] = add_value(b, node->out[k], b->nnodes - 1);
    }
    const ap_node_info *yield = ap_node_at(m, block->nodes.at[block->nodes.len - 1]);
    b->nyields = yield->nin;
    b->yield = AP_NEW_ARRAY(&b->arena, uint32_t, yield->nin);
    for (uint32_t k = 0; k < yield->nin; k++)
        b->yield[k] = dense_number(b, yield->in[k]);
}

static void body_init(body *b, const ap_module *m, ap_node n)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_block_info *block = ap_block_at(m, node->body);
    memset(b, 0, sizeof *b);
    b->m = m;
    ap_arena_init(&b->arena, m->ctx->scratch.out_of_memory, m->ctx->scratch.user);
    uint32_t most = node->nin;
    for (uint32_t i = 0; i < block->nodes.len; i++)
        most += ap_node_at(m, block->nodes.at[i])->nout;
    b->name = AP_NEW_ARRAY(&b->arena, ap_value, most);
    b->number = AP_NEW_ARRAY(&b->arena, uint32_t, most);
    b->bytes = AP_NEW_ARRAY(&b->arena, int64_t, most);
    b->maker = AP_NEW_ARRAY(&b->arena, uint32_t, most);
    b->first = AP_NEW_ARRAY(&b->arena, uint32_t, most + 1);
    b->node = AP_NEW_ARRAY(&b->arena, body_node, block->nodes.len);
    b->operand = AP_NEW_ARRAY(&b->arena, uint32_t, node->nin);
    for (uint32_t i = 0; i < node->nin; i++)
        b->operand[i] = add_value(b, node->in[i], AP_NONE);
    collect_nodes(b, block);
    uint32_t nfactors = b->first[b->nvalues];
    b->flow = AP_NEW_ARRAY(&b->arena, uint8_t, b->nvalues);
    b->cut = AP_NEW_ARRAY(&b->arena, bool, b->nvalues);
    b->choice = AP_NEW_ARRAY(&b->arena, ap_choice, b->nnodes);
    b->whole = AP_NEW_ARRAY(&b->arena, bool, nfactors);
    b->parent = AP_NEW_ARRAY(&b->arena, uint32_t, nfactors);
    for (uint32_t i = 0; i < nfactors; i++)
        b->parent[i] = i;
    for (uint32_t i = 0; i < b->nnodes; i++)
        unite_node(b, &b->node[i]);
    for (uint32_t i = 0; i < b->nnodes; i++) {
        for (int l = 0; l < b->node[i].rule.nletters; l++)
            b->node[i].letter_class[l] = letter_root(b, &b->node[i], l);
    }
}

static void body_deinit(body *b)
{
    ap_arena_deinit(&b->arena);
}

/* ---- the walk ---- */

static int count_in_value(const body *b, uint32_t v, uint32_t class)
{
    int count = 0;
    for (uint32_t f = b->first[v]; f < b->first[v + 1]; f++)
        count += find(b, f) == class;
    return count;
}

/* No value has the class twice, no node has two letters of it. */
static bool class_is_simple(const body *b, uint32_t class)
{
    for (uint32_t v = 0; v < b->nvalues; v++) {
        if (count_in_value(b, v, class) > 1)
            return false;
    }
    for (uint32_t i = 0; i < b->nnodes; i++) {
        int count = 0;
        for (int l = 0; l < b->node[i].rule.nletters; l++)
            count += b->node[i].letter_class[l] == class;
        if (count > 1)
            return false;
    }
    return true;
}

static int8_t find_group(const ap_rule *r, uint32_t mask)
{
    for (int g = 0; g < r->ngroups; g++) {
        if (r->group[g] == mask)
            return (int8_t)g;
    }
    return AP_RULE_NONE;
}

static uint8_t result_flow(const ap_rule *r, uint32_t k, const ap_choice *c)
{
    ap_partial kind;
    if (c->group != AP_RULE_NONE)
        return FLOW_PARTIAL + AP_PARTIAL_SUM;
    if (c->letter == AP_RULE_NONE)
        return FLOW_NONE;
    if (ap_rule_partial(r, c->letter, k, &kind))
        return (uint8_t)(FLOW_PARTIAL + kind);
    for (int f = 0; f < r->result_factors[k]; f++) {
        if (r->result[k][f] == c->letter)
            return FLOW_SPLIT;
    }
    return FLOW_NONE;
}

/* Sets the node's choice and what its results are; false when an operand is partial that must not be. */
static bool walk_node(body *b, const body_node *bn, uint32_t class, ap_choice *out)
{
    uint32_t partial = 0;
    bool sums = true;
    *out = (ap_choice){.letter = AP_RULE_NONE, .group = AP_RULE_NONE, .partial = AP_PARTIAL_SUM};
    for (uint32_t i = 0; i < bn->nin; i++) {
        uint8_t flow = ap_body_flow(b, bn->in[i]);
        if (flow < FLOW_PARTIAL)
            continue;
        sums = sums && i < 32 && flow == FLOW_PARTIAL + AP_PARTIAL_SUM;
        partial |= i < 32 ? 1u << i : 0;
    }
    for (int l = 0; l < bn->rule.nletters && class != NO_CLASS; l++) {
        if (bn->letter_class[l] == class)
            out->letter = (int8_t)l;
    }
    if (!sums || (out->letter != AP_RULE_NONE && partial))
        return false;
    if (partial)
        out->group = find_group(&bn->rule, partial);
    if (partial && out->group == AP_RULE_NONE)
        return false;
    for (uint32_t k = 0; k < bn->nout; k++)
        b->flow[bn->out[k]] = result_flow(&bn->rule, k, out);
    return true;
}

/* Walks the body as it is cut; AP_NONE, or the first node that cannot read one of its operands. */
static uint32_t walk_once(body *b, uint32_t noperands, uint32_t class, uint32_t group)
{
    memset(b->flow, FLOW_NONE, b->nvalues);
    for (uint32_t i = 0; i < noperands; i++) {
        uint32_t v = b->operand[i];
        if (class != NO_CLASS && count_in_value(b, v, class))
            b->flow[v] = FLOW_SPLIT;
        if (i < 32 && (group >> i & 1u))
            b->flow[v] = FLOW_PARTIAL + AP_PARTIAL_SUM;
    }
    for (uint32_t i = 0; i < b->nnodes; i++) {
        if (!walk_node(b, &b->node[i], class, &b->choice[i]))
            return i;
    }
    return AP_NONE;
}

static bool class_is_splittable(const body *b, uint32_t class)
{
    if (b->whole[class] || !class_is_simple(b, class))
        return false;
    for (uint32_t i = 0; i < b->nnodes; i++) {
        for (int l = 0; l < b->node[i].rule.nletters; l++) {
            if (b->node[i].letter_class[l] == class && b->node[i].rule.kind[l] == AP_LETTER_WHOLE)
                return false;
        }
    }
    return true;
}

/* Splits a class, completing inside what must be, or makes the operands in `group` partial sums. b->choice then says
 * what each node does, b->flow and b->cut what becomes of each value. */
static bool walk(body *b, uint32_t noperands, uint32_t class, uint32_t group)
{
    if (class != NO_CLASS && !class_is_splittable(b, class))
        return false;
    memset(b->cut, 0, b->nvalues * sizeof *b->cut);
    for (uint32_t at; (at = walk_once(b, noperands, class, group)) != AP_NONE;) {
        if (class == NO_CLASS)
            return false;
        ap_body_cut(b, &b->node[at], b->choice[at].letter == AP_RULE_NONE);
    }
    return true;
}

static bool cuts_anything(const body *b)
{
    for (uint32_t v = 0; v < b->nvalues; v++) {
        if (b->cut[v] && b->flow[v] >= FLOW_PARTIAL)
            return true;
    }
    return false;
}

/* What splitting the class of letter l means: its kind, and for kind INNER what each result is. */
static void set_kind(body *b, const ap_node_info *node, uint32_t class, int l, ap_rule *out)
{
    static const ap_letter_kind of_partial[AP_PARTIAL_COUNT] = {
        [AP_PARTIAL_SUM] = AP_LETTER_SUM, [AP_PARTIAL_MAX] = AP_LETTER_MAX, [AP_PARTIAL_MIN] = AP_LETTER_MIN};
    uint32_t count[FLOW_PARTIAL + AP_PARTIAL_COUNT] = {0};
    out->kind[l] = AP_LETTER_WHOLE;
    if (b->nyields == 0 || !walk(b, node->nin, class, 0))
        return;
    for (uint32_t k = 0; k < b->nyields; k++) {
        uint8_t flow = ap_body_flow(b, b->yield[k]);
        count[flow]++;
        out->result_partial[k][l] = flow < FLOW_PARTIAL ? AP_RULE_NONE : (int8_t)(flow - FLOW_PARTIAL);
    }
    bool cut = cuts_anything(b);
    /* Results without the letter are computed alike everywhere. */
    if (!cut && count[FLOW_SPLIT] + count[FLOW_NONE] == b->nyields) {
        out->kind[l] = count[FLOW_SPLIT] ? AP_LETTER_PARALLEL : AP_LETTER_WHOLE;
        return;
    }
    for (int p = 0; p < AP_PARTIAL_COUNT && !cut; p++) {
        if (count[FLOW_PARTIAL + p] == b->nyields) {
            out->kind[l] = of_partial[p];
            return;
        }
    }
    if (node->nin > 0)
        out->kind[l] = AP_LETTER_INNER;
}

static bool group_passes(body *b, uint32_t noperands, uint32_t group)
{
    if (!walk(b, noperands, NO_CLASS, group))
        return false;
    for (uint32_t k = 0; k < b->nyields; k++) {
        if (b->yield[k] == AP_NONE || b->flow[b->yield[k]] != FLOW_PARTIAL + AP_PARTIAL_SUM)
            return false;
    }
    return b->nyields > 0;
}

/* ---- the rule ---- */

/* Letters in order of the operands' factors, then of the results'. root[l]: the class of letter l. */
static void number_letters(body *b, const ap_node_info *node, ap_rule *out, uint32_t root[AP_MAX_LETTERS])
{
    const ap_module *m = b->m;
    for (uint32_t i = 0; i < node->nin + node->nout; i++) {
        bool is_result = i >= node->nin;
        uint32_t k = is_result ? i - node->nin : i;
        uint32_t v = is_result ? b->yield[k] : b->operand[k];
        const ap_shape_info *s = ap_value_shape(m, is_result ? node->out[k] : node->in[k]);
        for (int f = 0; f < s->nfactors && v != AP_NONE; f++) {
            uint32_t class = find(b, b->first[v] + (uint32_t)f);
            int l = 0;
            while (l < out->nletters && root[l] != class)
                l++;
            if (l == AP_MAX_LETTERS)
                continue; /* stays whole */
            if (l == out->nletters) {
                root[l] = class;
                out->logical[l] = s->logical[f];
                out->physical[l] = s->physical[f];
                out->nletters++;
            }
            (is_result ? out->result : out->operand)[k][f] = (int8_t)l;
        }
    }
}

void rule_composite(const ap_module *m, ap_node n, ap_rule *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    uint32_t root[AP_MAX_LETTERS];
    body b;
    body_init(&b, m, n);
    number_letters(&b, node, out, root);
    for (int l = 0; l < out->nletters; l++)
        set_kind(&b, node, root[l], l, out);
    for (uint32_t i = 0; i < node->nin && i < 32 && out->ngroups < 4; i++) {
        if (group_passes(&b, node->nin, 1u << i))
            out->group[out->ngroups++] = 1u << i;
    }
    uint32_t all = node->nin >= 32 ? UINT32_MAX : (1u << node->nin) - 1;
    if (node->nin > 1 && node->nin <= 32 && out->ngroups < 4 && group_passes(&b, node->nin, all))
        out->group[out->ngroups++] = all;
    body_deinit(&b);
}

/* ---- shardings inside the body ---- */

typedef struct placement {
    AP_VEC(ap_value) value;
    AP_VEC(ap_sharding) sharding;
    AP_VEC(ap_inner) inner;
} placement;

/* What every node of the body does on every axis, and which values are completed there. */
typedef struct walked {
    ap_choice *choice;  /* [axis * nnodes + node] */
    uint8_t *completed; /* [value]: bit per axis */
} walked;

static bool place_body(const ap_module *m, ap_node n, ap_mesh mesh, const ap_assign *assign, ap_arena *arena,
                       placement *out);

static ap_sharding completed_sharding(const ap_module *m, ap_sharding s, uint8_t axes)
{
    ap_sharding_info info = *ap_sharding_get(m->ctx, s);
    for (int k = 0; k < AP_PARTIAL_COUNT; k++)
        info.partial[k] &= (uint8_t)~axes;
    return ap_sharding_intern(m->ctx, &info);
}

static bool place_node(const ap_module *m, const body_node *bn, ap_mesh mesh, const ap_assign *assign,
                       const uint8_t *completed, ap_arena *arena, placement *out)
{
    ap_strategy s;
    if (!ap_rule_apply(m, &bn->rule, mesh, assign, arena, &s))
        return false;
    const ap_node_info *node = ap_node_at(m, bn->node);
    if (node->body != AP_NONE && !place_body(m, bn->node, mesh, assign, arena, out))
        return false;
    for (uint32_t k = 0; k < node->nout; k++) {
        ap_vec_push(arena, &out->value, node->out[k]);
        ap_vec_push(arena, &out->sharding, s.result[k]);
        uint8_t axes = completed[bn->out[k]];
        if (axes)
            ap_vec_push(arena, &out->inner,
                        (ap_inner){node->out[k], s.result[k], completed_sharding(m, s.result[k], axes)});
    }
    return true;
}

static bool walk_axes(body *b, const ap_node_info *node, const ap_mesh_info *mesh, const ap_assign *assign,
                      const ap_rule *rule, const uint32_t *root, walked *out)
{
    out->choice = AP_NEW_ARRAY(&b->arena, ap_choice, (size_t)mesh->naxes * b->nnodes);
    out->completed = AP_NEW_ARRAY(&b->arena, uint8_t, b->nvalues);
    for (int a = 0; a < mesh->naxes; a++) {
        const ap_choice *c = &assign->axis[a];
        uint32_t class = c->letter == AP_RULE_NONE ? NO_CLASS : root[c->letter];
        uint32_t group = c->group == AP_RULE_NONE ? 0 : rule->group[c->group];
        if (!walk(b, node->nin, class, group))
            return false;
        for (uint32_t i = 0; i < b->nnodes; i++)
            out->choice[(size_t)a * b->nnodes + i] = b->choice[i];
        for (uint32_t v = 0; v < b->nvalues; v++) {
            if (b->cut[v] && b->flow[v] >= FLOW_PARTIAL)
                out->completed[v] |= (uint8_t)(1u << a);
        }
    }
    return true;
}

static bool place_body(const ap_module *m, ap_node n, ap_mesh mesh, const ap_assign *assign, ap_arena *arena,
                       placement *out)
{
    const ap_node_info *node = ap_node_at(m, n);
    const ap_mesh_info *mi = &m->meshes.at[mesh];
    uint32_t root[AP_MAX_LETTERS] = {0};
    ap_rule rule;
    ap_strategy unused;
    walked w;
    body b;
    body_init(&b, m, n);
    ap_rule_get(m, n, &b.arena, &rule);
    ap_rule again = rule; /* the same numbering once more, for the roots */
    again.nletters = 0;
    number_letters(&b, node, &again, root);
    bool ok =
        ap_rule_apply(m, &rule, mesh, assign, &b.arena, &unused) && walk_axes(&b, node, mi, assign, &rule, root, &w);
    for (uint32_t i = 0; i < b.nnodes && ok; i++) {
        ap_assign inner;
        memset(&inner, 0, sizeof inner);
        for (int a = 0; a < mi->naxes; a++)
            inner.axis[a] = w.choice[(size_t)a * b.nnodes + i];
        ok = place_node(m, &b.node[i], mesh, &inner, w.completed, arena, out);
    }
    body_deinit(&b);
    return ok;
}

bool ap_rule_apply_body(const ap_module *m, ap_node n, ap_mesh mesh, const ap_assign *assign, ap_arena *arena,
                        ap_rule_body *out)
{
    placement p;
    memset(&p, 0, sizeof p);
    bool ok = place_body(m, n, mesh, assign, arena, &p);
    *out = (ap_rule_body){.nvalues = p.value.len,
                          .ninner = p.inner.len,
                          .value = p.value.at,
                          .sharding = p.sharding.at,
                          .inner = p.inner.at};
    return ok;
}
