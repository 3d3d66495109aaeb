/* Resharding as a shortest path. A state is a sharding (which axes split which factor, in order, and over
 * which the value is partial); an elementary step changes one axis:
 *
 *     all_slice       unused axis a          -> appended at the minor end of a factor        free
 *                     (time too, but at the major end, and no other step moves it)
 *     all_gather      a at a minor end       -> unused
 *     all_to_all      a at a minor end       -> at the minor end of another factor
 *     reduce_scatter  partial over a         -> appended at the minor end of a factor
 *     all_reduce      partial over a         -> unused
 *     mask            unused a               -> partial sum over a (kept where the coordinate is 0)
 *
 * One Dijkstra tree per (dtype, shape, source) answers all targets; trees, the steps out of each state and paths are
 * kept. */
#include "passes/reshard.h"

#include <assert.h>

typedef struct reached {
    ap_sharding at;
    int64_t cost, bytes;
    int32_t steps, from; /* index of the state before; -1 for the source */
    ap_step_kind kind;
    uint8_t axes;
    int64_t step_cost;
    bool settled;
} reached;

/* A step out of a state. */
typedef struct hop {
    ap_sharding to;
    ap_step_kind kind;
    uint8_t axes;
    int64_t cost, bytes;
} hop;

/* Many ask for paths: what they need of a state stands together. */
typedef struct state_slot {
    ap_sharding at;
    uint32_t state;              /* index + 1; 0: free */
    const ap_reshard_path *path; /* NULL until asked for */
} state_slot;

typedef struct tree {
    ap_dtype dtype;
    ap_shape shape;
    ap_sharding from;
    bool listed, grown; /* hops; states */
    AP_VEC(hop) hops;   /* out of `from` */
    AP_VEC(reached) states;
    state_slot *slot; /* open addressing over states, by sharding */
    uint32_t nslots;
} tree;

/* In the heap of open states. */
typedef struct entry {
    int64_t cost, bytes;
    int32_t steps;
    uint32_t state;
} entry;

struct ap_resharder {
    ap_arena *arena;
    const ap_module *m;
    const ap_cluster *c;
    ap_mesh mesh; /* that spans are of */
    ap_span span[AP_MAX_AXES];
    ap_op op[AP_STEP_KIND_COUNT];
    AP_VEC(tree *) trees;
    uint32_t *slot; /* open addressing over trees: index + 1 */
    uint32_t nslots;
    tree *last; /* asked for */
    AP_VEC(entry) heap;
};

static ap_op step_op(ap_step_kind kind)
{
    static const char *const name[AP_STEP_KIND_COUNT] = {
        [AP_STEP_ALL_SLICE] = "all_slice",   [AP_STEP_ALL_GATHER] = "all_gather",
        [AP_STEP_ALL_TO_ALL] = "all_to_all", [AP_STEP_REDUCE_SCATTER] = "reduce_scatter",
        [AP_STEP_ALL_REDUCE] = "all_reduce", [AP_STEP_MASK] = "mask",
    };
    ap_op op = AP_OP_COUNT;
    bool known = ap_op_from_str(name[kind], &op);
    assert(known);
    (void)known;
    return op;
}

ap_resharder *ap_resharder_create(ap_arena *arena, const ap_module *m, const ap_cluster *c)
{
    ap_resharder *r = AP_NEW(arena, ap_resharder);
    r->arena = arena;
    r->m = m;
    r->c = c;
    r->mesh = AP_NONE;
    for (int k = 0; k < AP_STEP_KIND_COUNT; k++)
        r->op[k] = step_op((ap_step_kind)k);
    r->nslots = 256;
    r->slot = AP_NEW_ARRAY(arena, uint32_t, r->nslots);
    return r;
}

/* ---- steps ---- */

/* How the groups of an axis lie in the cluster, found once per mesh. */
static const ap_span *span_of(ap_resharder *r, ap_mesh mesh, int axis)
{
    const ap_mesh_info *info = &r->m->meshes.at[mesh];
    for (int a = info->ntime; r->mesh != mesh && a < info->naxes; a++)
        ap_cluster_span(r->c, info, a, &r->span[a]);
    r->mesh = mesh;
    return &r->span[axis];
}

typedef struct search {
    ap_resharder *r;
    tree *t;
    const ap_shape_info *shape;
    const ap_mesh_info *mesh;
    ap_sharding_info here; /* a copy of t->from */
    int64_t wire;          /* bytes of the shard there */
} search;

static ap_axes axes_drop_last(ap_axes a)
{
    return a & ~((ap_axes)15 << (4 * (ap_axes_count(a) - 1)));
}

static bool can_append(const search *s, int f, int axis)
{
    int64_t parts = ap_mesh_axes_size(s->mesh, s->here.axes[f]);
    return s->shape->physical[f] % (parts * s->mesh->axis_size[axis]) == 0;
}

static bool is_better(const reached *a, const reached *b)
{
    if (a->cost != b->cost)
        return a->cost < b->cost;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes;
    return a->steps < b->steps;
}

/* ---- the states of a tree, by sharding ---- */

/* The slot of a state, or the free one where it would stand. */
static state_slot *slot_of(const tree *t, ap_sharding s)
{
    uint32_t h = s * 2654435761u;
    for (h = (h ^ h >> 15) & (t->nslots - 1); t->slot[h].state && t->slot[h].at != s;)
        h = (h + 1) & (t->nslots - 1);
    return &t->slot[h];
}

static void add_state(ap_arena *arena, tree *t, const reached *state)
{
    ap_vec_push(arena, &t->states, *state);
    if (2 * t->states.len > t->nslots) {
        t->nslots = t->nslots ? 2 * t->nslots : 64;
        t->slot = AP_NEW_ARRAY(arena, state_slot, t->nslots);
        for (uint32_t i = 0; i + 1 < t->states.len; i++)
            *slot_of(t, t->states.at[i].at) = (state_slot){.at = t->states.at[i].at, .state = i + 1};
    }
    *slot_of(t, state->at) = (state_slot){.at = state->at, .state = t->states.len};
}

static void offer(search *s, ap_step_kind kind, int axis, const ap_sharding_info *to, int64_t cost, int64_t bytes)
{
    ap_vec_push(s->r->arena, &s->t->hops,
                (hop){.to = ap_sharding_intern(s->r->m->ctx, to),
                      .kind = kind,
                      .axes = (uint8_t)(1u << axis),
                      .cost = cost,
                      .bytes = bytes});
}

static void offer_unused(search *s, int a)
{
    for (int f = 0; f < s->here.nfactors; f++) {
        if (!can_append(s, f, a))
            continue;
        ap_sharding_info to = s->here;
        to.axes[f] = ap_axes_append(to.axes[f], a);
        offer(s, AP_STEP_ALL_SLICE, a, &to, 0, 0);
    }
    ap_sharding_info to = s->here;
    to.partial[AP_PARTIAL_SUM] |= (uint8_t)(1u << a);
    ap_sharding id = ap_sharding_intern(s->r->m->ctx, &to);
    int64_t bytes = ap_local_bytes(s->r->m, s->t->dtype, s->t->shape, id);
    offer(s, AP_STEP_MASK, a, &to, ap_cost_memory(s->r->c, ap_sat_mul(2, bytes)), 0);
}

/* A value that is the same all the time, read one microbatch at a time: the only step that moves time. */
static void offer_time(search *s)
{
    for (int f = 0; f < s->here.nfactors; f++) {
        if (s->here.axes[f] || !can_append(s, f, 0))
            continue;
        ap_sharding_info to = s->here;
        to.axes[f] = ap_axes_append(0, 0);
        offer(s, AP_STEP_ALL_SLICE, 0, &to, 0, 0);
    }
}

static void offer_partial(search *s, int a, ap_partial kind)
{
    const ap_span *l = span_of(s->r, s->here.mesh, a);
    int32_t p = s->mesh->axis_size[a];
    int64_t crossing = ap_sat_mul(s->wire, p - 1) / p;
    ap_sharding_info whole = s->here;
    whole.partial[kind] &= (uint8_t) ~(1u << a);
    for (int f = 0; f < s->here.nfactors; f++) {
        if (!can_append(s, f, a))
            continue;
        ap_sharding_info to = whole;
        to.axes[f] = ap_axes_append(to.axes[f], a);
        offer(s, AP_STEP_REDUCE_SCATTER, a, &to, ap_cost_span(s->r->c, l, AP_COLLECTIVE_REDUCE_SCATTER, s->wire),
              crossing);
    }
    offer(s, AP_STEP_ALL_REDUCE, a, &whole, ap_cost_span(s->r->c, l, AP_COLLECTIVE_ALL_REDUCE, s->wire),
          ap_sat_mul(2, crossing));
}

/* a stands at the minor end of factor f */
static void offer_split(search *s, int f, int a)
{
    const ap_span *l = span_of(s->r, s->here.mesh, a);
    int32_t p = s->mesh->axis_size[a];
    int64_t whole = ap_sat_mul(s->wire, p);
    ap_sharding_info without = s->here;
    without.axes[f] = axes_drop_last(without.axes[f]);
    offer(s, AP_STEP_ALL_GATHER, a, &without, ap_cost_span(s->r->c, l, AP_COLLECTIVE_ALL_GATHER, whole),
          ap_sat_mul(s->wire, p - 1));
    for (int g = 0; g < s->here.nfactors; g++) {
        if (g == f || !can_append(s, g, a))
            continue;
        ap_sharding_info to = without;
        to.axes[g] = ap_axes_append(to.axes[g], a);
        offer(s, AP_STEP_ALL_TO_ALL, a, &to, ap_cost_span(s->r->c, l, AP_COLLECTIVE_ALL_TO_ALL, whole),
              ap_sat_mul(s->wire, p - 1) / p);
    }
}

static void list_hops(ap_resharder *r, tree *t)
{
    ap_ctx *ctx = r->m->ctx;
    search s = {.r = r, .t = t, .shape = ap_shape_get(ctx, t->shape), .here = *ap_sharding_get(ctx, t->from)};
    s.mesh = &r->m->meshes.at[s.here.mesh];
    s.wire = ap_wire_bytes(r->m, t->dtype, t->shape, t->from);
    uint8_t used = ap_sharding_split_mask(&s.here) | ap_sharding_partial_mask(&s.here);
    t->listed = true;
    if (s.mesh->ntime && !(used & 1))
        offer_time(&s);
    for (int a = s.mesh->ntime; a < s.mesh->naxes; a++) {
        if (!(used >> a & 1))
            offer_unused(&s, a);
        for (int k = 0; k < AP_PARTIAL_COUNT; k++)
            if (s.here.partial[k] >> a & 1)
                offer_partial(&s, a, (ap_partial)k);
    }
    for (int f = 0; f < s.here.nfactors; f++)
        if (ap_axes_mask(s.here.axes[f]) & ~ap_mesh_time_mask(s.mesh))
            offer_split(&s, f, ap_axes_get(s.here.axes[f], ap_axes_count(s.here.axes[f]) - 1));
}

/* ---- trees ---- */

static uint32_t hash(ap_dtype dtype, ap_shape shape, ap_sharding from)
{
    uint32_t h = (uint32_t)dtype * 2654435761u ^ shape * 2246822519u ^ from * 3266489917u;
    return h ^ h >> 15;
}

static void rehash(ap_resharder *r)
{
    r->nslots *= 2;
    r->slot = AP_NEW_ARRAY(r->arena, uint32_t, r->nslots);
    for (uint32_t i = 0; i < r->trees.len; i++) {
        const tree *t = r->trees.at[i];
        uint32_t h = hash(t->dtype, t->shape, t->from) & (r->nslots - 1);
        while (r->slot[h])
            h = (h + 1) & (r->nslots - 1);
        r->slot[h] = i + 1;
    }
}

static bool is_of(const tree *t, ap_dtype dtype, ap_shape shape, ap_sharding from)
{
    return t->from == from && t->shape == shape && t->dtype == dtype;
}

static tree *find_tree(ap_resharder *r, ap_dtype dtype, ap_shape shape, ap_sharding from)
{
    uint32_t h = hash(dtype, shape, from) & (r->nslots - 1);
    for (; r->slot[h]; h = (h + 1) & (r->nslots - 1)) {
        tree *t = r->trees.at[r->slot[h] - 1];
        if (is_of(t, dtype, shape, from))
            return t;
    }
    tree *t = AP_NEW(r->arena, tree);
    t->dtype = dtype;
    t->shape = shape;
    t->from = from;
    ap_vec_push(r->arena, &r->trees, t);
    r->slot[h] = r->trees.len;
    if (2 * r->trees.len > r->nslots)
        rehash(r);
    return t;
}

/* ---- the open states: a heap of what each was when it was entered; what has become better since is entered again ----
 */

/* Cheaper first, then fewer bytes, fewer steps, found earlier. */
static bool comes_first(const entry *a, const entry *b)
{
    if (a->cost != b->cost)
        return a->cost < b->cost;
    if (a->bytes != b->bytes)
        return a->bytes < b->bytes;
    return a->steps != b->steps ? a->steps < b->steps : a->state < b->state;
}

static void push(ap_resharder *r, const tree *t, uint32_t state)
{
    const reached *s = &t->states.at[state];
    entry e = {s->cost, s->bytes, s->steps, state};
    ap_vec_push(r->arena, &r->heap, e);
    uint32_t i = r->heap.len - 1;
    for (; i > 0 && comes_first(&e, &r->heap.at[(i - 1) / 2]); i = (i - 1) / 2)
        r->heap.at[i] = r->heap.at[(i - 1) / 2];
    r->heap.at[i] = e;
}

/* The state that comes first; AP_NONE when all are settled. */
static uint32_t pop(ap_resharder *r, const tree *t)
{
    while (r->heap.len > 0) {
        uint32_t state = r->heap.at[0].state, i = 0, n = --r->heap.len;
        entry e = r->heap.at[n];
        for (uint32_t c; (c = 2 * i + 1) < n; i = c) {
            c += c + 1 < n && comes_first(&r->heap.at[c + 1], &r->heap.at[c]);
            if (!comes_first(&r->heap.at[c], &e))
                break;
            r->heap.at[i] = r->heap.at[c];
        }
        r->heap.at[i] = e;
        if (!t->states.at[state].settled)
            return state;
    }
    return AP_NONE;
}

/* Goes on from a settled state; ties keep the step found first. */
static void relax(ap_resharder *r, tree *t, uint32_t current, const hop *h)
{
    const reached *before = &t->states.at[current];
    reached next = {.at = h->to,
                    .cost = ap_sat_add(before->cost, h->cost),
                    .bytes = ap_sat_add(before->bytes, h->bytes),
                    .steps = before->steps + 1,
                    .from = (int32_t)current,
                    .kind = h->kind,
                    .axes = h->axes,
                    .step_cost = h->cost};
    if (next.steps > AP_MAX_STEPS)
        return;
    uint32_t known = slot_of(t, next.at)->state;
    if (!known) {
        add_state(r->arena, t, &next);
        push(r, t, t->states.len - 1);
        return;
    }
    reached *old = &t->states.at[known - 1];
    if (old->settled || !is_better(&next, old))
        return;
    *old = next;
    push(r, t, known - 1);
}

static void grow_tree(ap_resharder *r, tree *t)
{
    t->grown = true;
    add_state(r->arena, t, &(reached){.at = t->from, .from = -1});
    push(r, t, 0);
    for (uint32_t best; (best = pop(r, t)) != AP_NONE;) {
        t->states.at[best].settled = true;
        tree *here = find_tree(r, t->dtype, t->shape, t->states.at[best].at);
        if (!here->listed)
            list_hops(r, here);
        for (uint32_t i = 0; i < here->hops.len; i++)
            relax(r, t, best, &here->hops.at[i]);
    }
}

/* What the path holds in memory: a slice lies in the buffer that it is taken from. */
static void measure(const ap_resharder *r, const tree *t, ap_reshard_path *p)
{
    p->view = true;
    for (int i = 0; i < p->nsteps; i++) {
        if (p->step[i].kind == AP_STEP_ALL_SLICE)
            continue;
        int64_t out = ap_align_bytes(ap_local_bytes(r->m, t->dtype, t->shape, p->step[i].to));
        p->transient = ap_max_i64(p->transient, ap_sat_add(p->held, out));
        p->held = out;
        p->view = false;
    }
}

ap_op ap_reshard_op(void)
{
    ap_op op = (ap_op)0;
    while (!ap_op_get(op)->planned)
        op = (ap_op)(op + 1);
    return op;
}

static const ap_reshard_path *make_path(ap_resharder *r, const tree *t, const reached *target)
{
    ap_reshard_path *p = AP_NEW(r->arena, ap_reshard_path);
    p->nsteps = target->steps;
    p->cost = target->cost;
    const reached *s = target;
    for (int i = p->nsteps - 1; i >= 0; i--) {
        p->step[i] =
            (ap_step){.kind = s->kind, .op = r->op[s->kind], .axes = s->axes, .to = s->at, .cost = s->step_cost};
        s = &t->states.at[s->from];
    }
    measure(r, t, p);
    return p;
}

bool ap_reshard_find(ap_resharder *r, ap_dtype dtype, ap_shape shape, ap_sharding from, ap_sharding to,
                     const ap_reshard_path **out)
{
    tree *t = r->last && is_of(r->last, dtype, shape, from) ? r->last : find_tree(r, dtype, shape, from);
    if (!t->grown)
        grow_tree(r, t);
    r->last = t;
    state_slot *s = slot_of(t, to);
    if (!s->state)
        return false;
    if (!s->path)
        s->path = make_path(r, t, &t->states.at[s->state - 1]);
    *out = s->path;
    return true;
}
