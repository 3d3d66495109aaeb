/* Which items become one loop nest.
 *
 * Every element-by-element item starts as a group of its own, whose loops are the factors of its result (of its
 * operand for a reduce). Then, in order, each item tries to take in the groups that compute its operands. Two groups
 * join when
 *   - the values that flow between them fix how their loops correspond (loads of one value from both help),
 *   - both then run over the same loops, or one of them over just the outer loops of a group that reduces,
 *   - no path leads from one to the other through a third.
 * So nothing is ever computed more often than before, and values used only inside never touch memory. What a composite
 * holds joins first: it was planned as one kernel, and nobody outside should take a part of it. */
#include "passes/local.h"

#include <string.h>

#define MAX_MEMBERS 48 /* more only where a composite alone has them (rows.c) */

uint32_t ap_low_group_of(const ap_low *low, uint32_t item)
{
    uint32_t g = low->items.at[item].group;
    while (low->groups.at[g].into != AP_NONE)
        g = low->groups.at[g].into;
    return g;
}

/* ---- loops of operands and results ---- */

static void pointwise_loops(const ap_low *low, const ap_node_info *n, const int8_t *loop, uint32_t k, int8_t *out)
{
    const ap_shape_info *rs = ap_value_shape(low->m, n->out[0]), *os = ap_value_shape(low->m, n->in[k]);
    for (int d = 0; d < os->rank; d++) {
        for (int f = os->first[d]; f < os->first[d + 1]; f++)
            out[f] = loop[rs->first[d + rs->rank - os->rank] + f - os->first[d]];
    }
}

void ap_low_operand_loops(const ap_low *low, const ap_low_member *mb, uint32_t k, int8_t out[AP_MAX_FACTORS])
{
    const ap_low_item *it = &low->items.at[mb->item];
    const ap_node_info *n = ap_node_at(low->m, it->node);
    const ap_low_value *v = &low->value[n->in[k]];
    int8_t loops[AP_MAX_FACTORS];
    memset(loops, -1, sizeof loops);
    if (it->kind == AP_LOW_POINTWISE) {
        pointwise_loops(low, n, mb->loop, k, loops);
    } else if (it->kind == AP_LOW_GATHER) {
        const ap_spec_side *from = &n->u.spec->operand[k];
        for (int f = 0; f < v->nfactors; f++) {
            int r = ap_spec_side_find(&n->u.spec->result, from->letter[f]);
            loops[f] = r < 0 ? -1 : mb->loop[r];
        }
    } else {
        memcpy(loops, mb->loop, sizeof loops);
    }
    memset(out, -1, AP_MAX_FACTORS);
    for (int f = 0; f < low->value[v->root].nfactors; f++)
        out[f] = loops[v->map[f]];
}

void ap_low_result_loops(const ap_low *low, const ap_low_member *mb, int8_t out[AP_MAX_FACTORS])
{
    const ap_low_item *it = &low->items.at[mb->item];
    memcpy(out, mb->loop, AP_MAX_FACTORS);
    if (it->kind != AP_LOW_REDUCE)
        return;
    const ap_spec *s = ap_node_at(low->m, it->node)->u.reduce.spec;
    memset(out, -1, AP_MAX_FACTORS);
    for (int f = 0; f < s->result.nletters; f++)
        out[f] = mb->loop[ap_spec_side_find(&s->operand[0], s->result.letter[f])];
}

bool ap_low_group_needs_store(const ap_low *low, uint32_t group, ap_value root)
{
    const ap_low_value *lv = &low->value[root];
    for (uint32_t i = 0; i < lv->nuses; i++) {
        ap_low_use u = low->use[lv->first_use + i];
        if (ap_low_group_of(low, u.item) != group || !ap_low_use_is_element(&low->items.at[u.item], u.operand))
            return true;
    }
    return false;
}

/* ---- groups of one item ---- */

/* A sum over other than trailing factors can be added up in its place, row by row, while its terms are looked up: they
 * are never in memory. Long sums of floats are not, which are folded in double precision, nor those of short floats. */
static bool can_fold(const ap_low *low, const ap_low_group *g, const ap_node_info *n)
{
    ap_dtype t = ap_type_dtype(low->ctx, ap_value_type(low->m, n->out[0]));
    int64_t terms = 1;
    for (int l = 0; l < g->nloops; l++)
        terms = g->inner[l] ? ap_sat_mul(terms, g->extent[l]) : terms;
    return n->u.reduce.kind <= AP_REDUCE_MIN && terms <= AP_LOW_MAX_TERMS &&
           (t == AP_F32 || t == AP_F64 || ap_dtype_is_int(t));
}

static void single_nest(ap_low *low, ap_low_group *g, uint32_t item)
{
    const ap_low_item *it = &low->items.at[item];
    const ap_node_info *n = ap_node_at(low->m, it->node);
    bool reduce = it->kind == AP_LOW_REDUCE;
    const ap_low_value *space = &low->value[reduce ? n->in[0] : n->out[0]];
    ap_low_member mb = {.item = item};
    memset(mb.loop, -1, sizeof mb.loop);
    g->nest = true;
    g->nloops = space->nfactors;
    for (int f = 0; f < space->nfactors; f++) {
        mb.loop[f] = (int8_t)f;
        g->extent[f] = space->extent[f];
        g->count[f] = space->count[f];
        if (reduce && ap_spec_side_find(&n->u.reduce.spec->result, n->u.reduce.spec->operand[0].letter[f]) < 0)
            g->inner[f] = g->has_inner = true;
    }
    g->across = reduce && g->nloops && !g->inner[g->nloops - 1];
    g->folds = g->across && can_fold(low, g, n);
    ap_vec_push(low->scratch, &g->members, mb);
}

static void make_groups(ap_low *low)
{
    for (uint32_t i = 0; i < low->items.len; i++) {
        ap_low_group g = {.into = AP_NONE};
        if (low->items.at[i].kind <= AP_LOW_MASK)
            single_nest(low, &g, i);
        else
            ap_vec_push(low->scratch, &g.members, (ap_low_member){.item = i});
        low->items.at[i].group = i;
        ap_vec_push(low->scratch, &low->groups, g);
    }
    if (low->thrift)
        ap_low_thrift_open(low);
    for (uint32_t i = 0; i < low->items.len; i++)
        if (low->items.at[i].kind == AP_LOW_CONV)
            ap_low_absorb_steps(low, i, &low->groups.at[i]);
}

/* ---- how the loops of two groups correspond ---- */

typedef struct pairing {
    int8_t p_of_c[AP_MAX_LOOPS], c_of_p[AP_MAX_LOOPS];
} pairing;

static bool same_turns(const ap_low_group *p, const ap_low_group *c, int lp, int lc)
{
    return p->extent[lp] == c->extent[lc] && !memcmp(&p->count[lp], &c->count[lc], sizeof p->count[lp]);
}

static bool pair_loops(pairing *pr, const ap_low_group *p, const ap_low_group *c, int8_t lp, int8_t lc)
{
    if (lp < 0 || lc < 0)
        return lp == lc;
    if (pr->p_of_c[lc] < 0 && pr->c_of_p[lp] < 0 && same_turns(p, c, lp, lc)) {
        pr->p_of_c[lc] = lp;
        pr->c_of_p[lp] = lc;
    }
    return pr->p_of_c[lc] == lp;
}

static bool pair_factors(pairing *pr, const ap_low_group *p, const ap_low_group *c, int n, const int8_t *lp,
                         const int8_t *lc)
{
    pairing was = *pr;
    for (int f = 0; f < n; f++) {
        if (!pair_loops(pr, p, c, lp[f], lc[f])) {
            *pr = was;
            return false;
        }
    }
    return true;
}

static const ap_low_member *find_member(const ap_low *low, const ap_low_group *g, ap_value root)
{
    uint32_t item = low->value[root].item;
    for (uint32_t i = 0; i < g->members.len; i++) {
        if (g->members.at[i].item == item)
            return &g->members.at[i];
    }
    return NULL;
}

/* Values made in `p` and read in `c`; `swapped`: the pairing is the other way round. */
static bool pair_flow(const ap_low *low, pairing *pr, const ap_low_group *p, const ap_low_group *c, bool swapped)
{
    for (uint32_t i = 0; i < c->members.len; i++) {
        const ap_low_member *mb = &c->members.at[i];
        const ap_low_item *it = &low->items.at[mb->item];
        const ap_node_info *n = ap_node_at(low->m, it->node);
        for (uint32_t k = 0; k < n->nin; k++) {
            ap_value root = ap_low_root(low, n->in[k]);
            const ap_low_member *made = find_member(low, p, root);
            if (!made)
                continue;
            int8_t lp[AP_MAX_FACTORS], lc[AP_MAX_FACTORS];
            if (!ap_low_use_is_element(it, k))
                return false;
            ap_low_result_loops(low, made, lp);
            ap_low_operand_loops(low, mb, k, lc);
            if (swapped ? !pair_factors(pr, c, p, low->value[root].nfactors, lc, lp)
                        : !pair_factors(pr, p, c, low->value[root].nfactors, lp, lc))
                return false;
        }
    }
    return true;
}

/* The same value loaded in both: a hint, dropped where it contradicts. */
static void pair_load(const ap_low *low, pairing *pr, const ap_low_group *p, const ap_low_group *c, ap_value root,
                      const int8_t *lc)
{
    for (uint32_t i = 0; i < p->members.len; i++) {
        const ap_low_member *mb = &p->members.at[i];
        const ap_low_item *it = &low->items.at[mb->item];
        const ap_node_info *n = ap_node_at(low->m, it->node);
        for (uint32_t k = 0; k < n->nin; k++) {
            if (ap_low_root(low, n->in[k]) != root || !ap_low_use_is_element(it, k))
                continue;
            int8_t lp[AP_MAX_FACTORS];
            ap_low_operand_loops(low, mb, k, lp);
            if (pair_factors(pr, p, c, low->value[root].nfactors, lp, lc))
                return;
        }
    }
}

static void pair_loads(const ap_low *low, pairing *pr, const ap_low_group *p, const ap_low_group *c)
{
    for (uint32_t i = 0; i < c->members.len; i++) {
        const ap_low_item *it = &low->items.at[c->members.at[i].item];
        const ap_node_info *n = ap_node_at(low->m, it->node);
        for (uint32_t k = 0; k < n->nin; k++) {
            ap_value root = ap_low_root(low, n->in[k]);
            if (!ap_low_use_is_element(it, k) || low->value[root].source == AP_LOW_SPLAT)
                continue;
            int8_t lc[AP_MAX_FACTORS];
            ap_low_operand_loops(low, &c->members.at[i], k, lc);
            pair_load(low, pr, p, c, root, lc);
        }
    }
}

/* What is still free pairs up in order; loops without values in common may correspond in any way. */
static void pair_rest(pairing *pr, const ap_low_group *p, const ap_low_group *c)
{
    int lp = 0, lc = 0;
    for (;;) {
        while (lp < p->nloops && pr->c_of_p[lp] >= 0)
            lp++;
        while (lc < c->nloops && pr->p_of_c[lc] >= 0)
            lc++;
        if (lp == p->nloops || lc == c->nloops || !same_turns(p, c, lp, lc))
            return;
        pr->p_of_c[lc] = (int8_t)lp;
        pr->c_of_p[lp] = (int8_t)lc;
    }
}

/* True when the loops of `part` are just the outer loops of `whole` and it has no inner ones. */
static bool is_row_part(const ap_low_group *whole, const int8_t *part_of_whole, const ap_low_group *part,
                        const int8_t *whole_of_part)
{
    if (!whole->has_inner || part->has_inner)
        return false;
    for (int l = 0; l < whole->nloops; l++) {
        if (whole->inner[l] != (part_of_whole[l] < 0))
            return false;
    }
    for (int l = 0; l < part->nloops; l++) {
        if (whole_of_part[l] < 0)
            return false;
    }
    return true;
}

static bool is_same_space(const ap_low_group *p, const ap_low_group *c, const pairing *pr)
{
    if (p->nloops != c->nloops)
        return false;
    for (int l = 0; l < p->nloops; l++) {
        if (pr->c_of_p[l] < 0)
            return false;
        if (p->has_inner && c->has_inner && p->inner[l] != c->inner[pr->c_of_p[l]])
            return false;
    }
    return true;
}

static bool find_pairing(const ap_low *low, const ap_low_group *p, const ap_low_group *c, pairing *pr)
{
    memset(pr, -1, sizeof *pr);
    if (!pair_flow(low, pr, p, c, false) || !pair_flow(low, pr, c, p, true))
        return false;
    if (p->nloops != c->nloops && is_row_part(p, pr->c_of_p, c, pr->p_of_c))
        return true;
    pair_loads(low, pr, p, c);
    if (p->nloops == c->nloops)
        pair_rest(pr, p, c);
    return is_same_space(p, c, pr) || is_row_part(p, pr->c_of_p, c, pr->p_of_c) ||
           is_row_part(c, pr->p_of_c, p, pr->c_of_p);
}

/* ---- paths through third groups ---- */

typedef struct search {
    ap_low *low;
    uint32_t from, to, first; /* no member of `from` stands before item `first` */
} search;

static bool reaches(const search *s, uint32_t group, bool direct);

/* True when the group, by a path that starts at one of its operands, depends on s->from. */
static bool depends(const search *s, uint32_t group)
{
    ap_low_group *g = &s->low->groups.at[group];
    for (uint32_t i = 0; i < g->members.len; i++) {
        const ap_node_info *n = ap_node_at(s->low->m, s->low->items.at[g->members.at[i].item].node);
        for (uint32_t k = 0; k < n->nin; k++) {
            uint32_t item = s->low->value[ap_low_root(s->low, n->in[k])].item;
            if (item != AP_NONE && reaches(s, ap_low_group_of(s->low, item), group == s->to))
                return true;
        }
    }
    return false;
}

static bool reaches(const search *s, uint32_t group, bool direct)
{
    ap_low_group *g = &s->low->groups.at[group];
    if (group == s->from)
        return !direct;
    if (group == s->to || g->stamp == s->low->stamp)
        return false;
    g->stamp = s->low->stamp;
    return g->members.at[g->members.len - 1].item > s->first && depends(s, group);
}

static bool has_path(ap_low *low, uint32_t from, uint32_t to)
{
    search s = {.low = low, .from = from, .to = to, .first = low->groups.at[from].members.at[0].item};
    low->stamp++;
    return depends(&s, to);
}

/* ---- joining ---- */

/* Members of both by item, with the loops of `p`; loops that only `c` has come last. */
static ap_low_group joined(ap_low *low, const ap_low_group *p, const ap_low_group *c, pairing *pr)
{
    ap_low_group g = *p;
    g.across = p->across || c->across;
    for (int l = 0; l < c->nloops; l++) {
        if (pr->p_of_c[l] < 0) {
            g.extent[g.nloops] = c->extent[l];
            g.count[g.nloops] = c->count[l];
            pr->p_of_c[l] = (int8_t)g.nloops++;
        }
        if (c->has_inner && c->inner[l])
            g.inner[pr->p_of_c[l]] = g.has_inner = true;
    }
    memset(&g.members, 0, sizeof g.members);
    for (uint32_t i = 0, j = 0; i < p->members.len || j < c->members.len;) {
        if (j == c->members.len || (i < p->members.len && p->members.at[i].item < c->members.at[j].item)) {
            ap_vec_push(low->scratch, &g.members, p->members.at[i++]);
            continue;
        }
        ap_low_member mb = c->members.at[j++];
        for (int f = 0; f < AP_MAX_FACTORS; f++) {
            if (mb.loop[f] >= 0)
                mb.loop[f] = pr->p_of_c[mb.loop[f]];
        }
        ap_vec_push(low->scratch, &g.members, mb);
    }
    return g;
}

/* The location of the group's lookups, which a call reports when an index is out of range; 0 without any. */
static ap_loc gather_loc(const ap_low *low, const ap_low_group *g)
{
    for (uint32_t i = 0; i < g->members.len; i++) {
        const ap_low_item *it = &low->items.at[g->members.at[i].item];
        if (it->kind == AP_LOW_GATHER || it->kind == AP_LOW_INDEX)
            return it->loc;
    }
    return 0;
}

bool ap_low_has_lookup(const ap_low *low, const ap_low_group *g)
{
    for (uint32_t i = 0; i < g->members.len; i++) {
        ap_low_class kind = low->items.at[g->members.at[i].item].kind;
        if (kind == AP_LOW_GATHER || kind == AP_LOW_INDEX)
            return true;
    }
    return false;
}

/* `inside`: both are of one composite. */
static bool try_join(ap_low *low, uint32_t pi, uint32_t ci, bool inside)
{
    ap_low_group *p = &low->groups.at[pi], *c = &low->groups.at[ci];
    pairing pr;
    if (!p->nest || !c->nest || (!inside && p->members.len + c->members.len > MAX_MEMBERS))
        return false;
    bool lookup = (p->across || c->across) && (ap_low_has_lookup(low, p) || ap_low_has_lookup(low, c));
    if (lookup && (p->across || !c->folds))
        return false;
    if (gather_loc(low, p) && gather_loc(low, c) && gather_loc(low, p) != gather_loc(low, c))
        return false;
    if (!find_pairing(low, p, c, &pr) || has_path(low, pi, ci) || has_path(low, ci, pi))
        return false;
    bool folds = c->folds && !p->has_inner && p->nloops == c->nloops && is_same_space(p, c, &pr);
    if (lookup && !folds)
        return false;
    ap_low_group g = joined(low, p, c, &pr);
    g.folds = folds;
    if (!ap_low_stages_fit(low, &g) || !ap_low_thrift_join(low, pi, ci, inside))
        return false;
    p->into = ci;
    *c = g;
    return true;
}

/* The item takes in those who compute its operands; `inside`: of its own composite only. True if any came. */
static bool join_makers(ap_low *low, uint32_t i, bool inside)
{
    const ap_low_item *it = &low->items.at[i];
    const ap_node_info *n = ap_node_at(low->m, it->node);
    bool any = false;
    for (uint32_t k = 0; it->kind <= AP_LOW_MASK && k < n->nin; k++) {
        uint32_t made = low->value[ap_low_root(low, n->in[k])].item;
        if (made == AP_NONE || !ap_low_use_is_element(it, k) || (inside && low->items.at[made].unit != it->unit))
            continue;
        uint32_t p = ap_low_group_of(low, made), c = ap_low_group_of(low, i);
        any = (p != c && try_join(low, p, c, inside)) || any;
    }
    return any;
}

/* What belongs to one composite, until nothing joins: a row value fits once something is reduced. */
static void join_units(ap_low *low)
{
    for (uint32_t i = 0, end; i < low->items.len; i = end) {
        ap_node unit = low->items.at[i].unit;
        for (end = i + 1; end < low->items.len && low->items.at[end].unit == unit;)
            end++;
        for (bool again = unit != AP_NONE; again;) {
            again = false;
            for (uint32_t k = i; k < end; k++)
                again = join_makers(low, k, true) || again;
        }
    }
}

ap_status ap_low_fuse(ap_low *low)
{
    make_groups(low);
    join_units(low);
    for (uint32_t i = 0; i < low->items.len; i++)
        join_makers(low, i, false);
    return AP_OK;
}
