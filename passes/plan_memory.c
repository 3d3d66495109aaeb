/* Memory of the problem: what each choice holds, and from which point to which. Exact where it can be, for
 * pairs of choices too; where it cannot (a reshard of a view's result just before its last use) it errs on
 * the safe side, by one node.
 *
 *     x made ----.                         step's own, execution .. reshard to kept
 *                `-- x kept ------------.  holder's, .. last use
 *                         `-- copy --.     pair's (kept, strategy): private reshard .. execution
 *
 * The last use reads the kept buffer either at the private reshard of its operand or, without one, at its
 * execution: the points between belong to the pair. A view in place extends its operand's life to its own. */
#include "passes/plan_problem.h"

static uint32_t point_operand(const ap_planning *p, uint32_t step, uint32_t slot)
{
    return p->steps.at[step].first_point + slot;
}

static uint32_t point_execute(const ap_planning *p, uint32_t step)
{
    const ap_plan_step *s = &p->steps.at[step];
    return s->first_point + ap_node_at(p->m, s->node)->nin;
}

static uint32_t point_result(const ap_planning *p, uint32_t step, uint32_t slot)
{
    return point_execute(p, step) + 1 + slot;
}

static uint32_t later(uint32_t a, uint32_t b)
{
    return a > b ? a : b;
}

static uint32_t slot_of(const ap_planning *p, const ap_plan_holder *h)
{
    return ap_value_at(p->m, h->value)->index;
}

/* ---- ends ---- */

/* Where the view's result lies in the kept buffer, that lives as long as the result. */
static uint32_t view_end(ap_planning *p, uint32_t step, ap_value v, ap_sharding kept)
{
    const ap_plan_step *s = &p->steps.at[step];
    const ap_plan_holder *result = &p->holders.at[p->holder_of[ap_node_at(p->m, s->node)->out[0]]];
    uint32_t in_place = ap_plan_view_in_place(s, kept);
    if (in_place != AP_NONE)
        return result->end[in_place];
    uint32_t end = point_operand(p, step, 0) + 1;
    for (uint32_t i = 0; i < s->n; i++) {
        const ap_reshard_path *path = ap_planning_path(p, v, kept, s->strategy[i].operand[0]);
        if (path && path->view)
            end = later(end, result->end[i]);
    }
    return end;
}

static uint32_t use_end(ap_planning *p, const ap_plan_holder *h, const ap_plan_use *u, ap_sharding kept)
{
    const ap_plan_step *s = &p->steps.at[u->step];
    if (s->view)
        return view_end(p, u->step, h->value, kept);
    if (s->var == AP_NONE || h->view)
        return point_execute(p, u->step) + 1;
    return point_operand(p, u->step, u->slot) + 1;
}

/* Uses come later than definitions, so results of views have their ends when their operands ask. */
static void find_ends(ap_planning *p)
{
    for (uint32_t i = p->holders.len; i-- > 0;) {
        ap_plan_holder *h = &p->holders.at[i];
        h->end = AP_NEW_ARRAY(p->arena, uint32_t, h->n);
        uint32_t born = h->step == AP_NONE ? 0 : point_execute(p, h->step) + 1;
        if (h->step != AP_NONE && !h->view)
            born = point_result(p, h->step, slot_of(p, h)) + 1;
        for (uint32_t l = 0; l < h->n; l++) {
            h->end[l] = born;
            for (uint32_t u = 0; u < h->nuses; u++)
                h->end[l] = later(h->end[l], use_end(p, h, &h->use[u], h->kept[l]));
        }
    }
}

/* ---- demands ---- */

static void add_demand(ap_planning *p, uint32_t var, uint32_t lo, uint32_t hi, const int64_t *usage)
{
    bool any = false;
    for (uint32_t i = 0; i < p->var_n.at[var]; i++)
        any = any || usage[i] > 0;
    if (any && lo < hi)
        ap_vec_push(p->arena, &p->demands, (ap_demand){.node = var, .lo = lo, .hi = hi, .usage = usage});
}

static void add_pair_demand(ap_planning *p, uint32_t edge, uint32_t lo, uint32_t hi, const int64_t *usage)
{
    const ap_problem_edge *e = &p->problem_edges.at[edge];
    uint32_t n = p->var_n.at[e->u] * p->var_n.at[e->v];
    bool any = false;
    for (uint32_t i = 0; i < n; i++)
        any = any || usage[i] > 0;
    if (any && lo < hi)
        ap_vec_push(p->arena, &p->pair_demands, (ap_pair_demand){.edge = edge, .lo = lo, .hi = hi, .usage = usage});
}

/* Smallest entry above `floor`, or `floor` when there is none. */
static uint32_t next_end(const uint32_t *end, uint32_t n, uint32_t floor)
{
    uint32_t best = floor;
    for (uint32_t i = 0; i < n; i++)
        if (end[i] > floor && (best == floor || end[i] < best))
            best = end[i];
    return best;
}

/* usage[i] from lo to end[i], as demands over common intervals; `edge` AP_NONE: of a variable. */
static void add_until(ap_planning *p, uint32_t var, uint32_t edge, uint32_t n, uint32_t lo, const uint32_t *end,
                      const int64_t *usage)
{
    for (uint32_t hi; (hi = next_end(end, n, lo)) > lo; lo = hi) {
        int64_t *part = AP_NEW_ARRAY(p->arena, int64_t, n);
        for (uint32_t i = 0; i < n; i++)
            part[i] = end[i] >= hi ? usage[i] : 0;
        if (edge == AP_NONE)
            add_demand(p, var, lo, hi, part);
        else
            add_pair_demand(p, edge, lo, hi, part);
    }
}

static void demand_holder(ap_planning *p, const ap_plan_holder *h)
{
    if (h->foreign || h->view)
        return;
    if (h->resident) {
        add_demand(p, h->var, 0, p->npoints, h->bytes);
        return;
    }
    bool source = p->steps.at[h->step].var == AP_NONE;
    uint32_t lo = source ? point_execute(p, h->step) : point_result(p, h->step, slot_of(p, h));
    add_until(p, h->var, AP_NONE, h->n, lo, h->end, h->bytes);
}

/* The last point at which any node that reads the value directly runs, or `end` if later. */
static uint32_t latest_end(const ap_planning *p, const ap_plan_holder *h, uint32_t end)
{
    for (uint32_t u = 0; u < h->nuses; u++)
        end = later(end, point_execute(p, h->use[u].step) + 1);
    return end;
}

/* A slice that convolutions read may have to be copied for them. */
static int64_t sliced(const ap_planning *p, ap_value v, int64_t bytes)
{
    return p->rooms.tidy && p->rooms.tidy[v] ? bytes : 0;
}

/* Results as made, until they are kept (or as long as that, where kept is a slice of made); and what the reshard to
 * kept takes. */
static void demand_made(ap_planning *p, uint32_t edge)
{
    const ap_plan_edge *e = &p->edges.at[edge];
    const ap_plan_step *s = &p->steps.at[e->step];
    const ap_plan_holder *h = &p->holders.at[e->holder];
    ap_type_info t = ap_type_get(p->ctx, ap_value_type(p->m, h->value));
    uint32_t at = point_result(p, e->step, e->slot), n = s->n * h->n;
    int64_t *made = AP_NEW_ARRAY(p->arena, int64_t, s->n);
    int64_t *now = AP_NEW_ARRAY(p->arena, int64_t, n), *after = AP_NEW_ARRAY(p->arena, int64_t, n);
    uint32_t *end = AP_NEW_ARRAY(p->arena, uint32_t, n);
    for (uint32_t i = 0; i < s->n; i++) {
        ap_sharding from = s->strategy[i].result[e->slot];
        made[i] = ap_align_bytes(ap_local_bytes(p->m, t.dtype, t.shape, from));
        for (uint32_t l = 0; l < h->n; l++) {
            uint32_t il = i * h->n + l;
            end[il] = latest_end(p, h, h->end[l]);
            if (from == h->kept[l] || p->problem_edges.at[edge].cost[il] == AP_FORBIDDEN)
                continue;
            const ap_reshard_path *path = e->path[e->kinds.of[i] * h->n + l];
            now[il] = made[i] + (path->view ? 0 : path->transient) - h->bytes[l];
            after[il] = (path->view ? made[i] + sliced(p, h->value, h->bytes[l]) : path->held) - h->bytes[l];
        }
    }
    add_demand(p, s->var, point_execute(p, e->step), at, made);
    add_pair_demand(p, edge, at, at + 1, now);
    add_until(p, 0, edge, n, at + 1, end, after);
}

/* How strategy i reads operand `slot` of a value that is kept under label l. */
static const ap_reshard_path *read_path(ap_planning *p, const ap_plan_edge *e, uint32_t slot, uint32_t l, uint32_t i)
{
    const ap_plan_holder *h = &p->holders.at[e->holder];
    if (slot == e->slot)
        return e->path[l * e->kinds.n + e->kinds.of[i]];
    return ap_planning_path(p, h->value, h->kept[l], p->steps.at[e->step].strategy[i].operand[slot]);
}

/* One operand's private copies: the reshard's own point, then until `end` per pair. */
static void demand_copy(ap_planning *p, uint32_t edge, uint32_t slot, const uint32_t *end)
{
    const ap_plan_edge *e = &p->edges.at[edge];
    const ap_plan_step *s = &p->steps.at[e->step];
    const ap_plan_holder *h = &p->holders.at[e->holder];
    const ap_node_info *node = ap_node_at(p->m, s->node);
    uint32_t at = point_operand(p, e->step, slot), n = s->n * h->n;
    int64_t *now = AP_NEW_ARRAY(p->arena, int64_t, n), *after = AP_NEW_ARRAY(p->arena, int64_t, n);
    int64_t *executing = AP_NEW_ARRAY(p->arena, int64_t, n);
    const ap_plan_holder *result = s->view ? &p->holders.at[p->holder_of[node->out[0]]] : NULL;
    for (uint32_t l = 0; l < h->n; l++)
        for (uint32_t i = 0; i < s->n; i++) {
            const ap_sharding *want = s->strategy[i].operand;
            bool made = want[slot] == h->kept[l] || p->problem_edges.at[edge].cost[l * s->n + i] == AP_FORBIDDEN;
            for (uint32_t j = 0; j < slot && !made; j++)
                made = node->in[j] == h->value && want[j] == want[slot];
            if (made)
                continue;
            const ap_reshard_path *path = read_path(p, e, slot, l, i);
            now[l * s->n + i] = path->transient;
            after[l * s->n + i] = path->held;
            if (path->view && s->view)
                after[l * s->n + i] = sliced(p, result->value, result->bytes[i]);
            else if (path->view)
                executing[l * s->n + i] = ap_room_slice_bytes(&p->rooms, p->m, s->node, slot, h->kept[l], want[slot]);
        }
    add_pair_demand(p, edge, at, at + 1, now);
    add_until(p, 0, edge, n, at + 1, end, after);
    add_pair_demand(p, edge, point_execute(p, e->step), point_execute(p, e->step) + 1, executing);
}

/* Does the execution of this strategy still read the kept buffer? */
static bool reads_kept(ap_planning *p, const ap_plan_edge *e, uint32_t label, uint32_t strategy)
{
    const ap_plan_step *s = &p->steps.at[e->step];
    const ap_plan_holder *h = &p->holders.at[e->holder];
    const ap_node_info *node = ap_node_at(p->m, s->node);
    for (uint32_t i = 0; i < node->nin; i++) {
        if (node->in[i] != h->value)
            continue;
        const ap_reshard_path *path = read_path(p, e, i, label, strategy);
        if (path && path->view)
            return true;
    }
    return false;
}

/* Between the sure end of a kept buffer and the execution of its last reader. */
static void demand_last_use(ap_planning *p, uint32_t edge)
{
    const ap_plan_edge *e = &p->edges.at[edge];
    const ap_plan_step *s = &p->steps.at[e->step];
    const ap_plan_holder *h = &p->holders.at[e->holder];
    if (h->view || h->foreign || h->resident)
        return;
    uint32_t hi = point_execute(p, e->step) + 1;
    for (uint32_t lo = 0; (lo = next_end(h->end, h->n, lo)) > 0 && lo < hi;) {
        uint32_t up = next_end(h->end, h->n, lo);
        up = up > lo && up < hi ? up : hi;
        int64_t *usage = AP_NEW_ARRAY(p->arena, int64_t, (size_t)h->n * s->n);
        for (uint32_t l = 0; l < h->n; l++)
            for (uint32_t i = 0; i < s->n; i++)
                if (h->end[l] <= lo && reads_kept(p, e, l, i))
                    usage[l * s->n + i] = h->bytes[l];
        add_pair_demand(p, edge, lo, up, usage);
        if (up == hi)
            break;
    }
}

static void demand_read(ap_planning *p, uint32_t edge)
{
    const ap_plan_edge *e = &p->edges.at[edge];
    const ap_plan_step *s = &p->steps.at[e->step];
    const ap_plan_holder *h = &p->holders.at[e->holder];
    const ap_node_info *node = ap_node_at(p->m, s->node);
    uint32_t n = s->n * h->n;
    uint32_t *end = AP_NEW_ARRAY(p->arena, uint32_t, n);
    for (uint32_t i = 0; i < n; i++)
        end[i] = point_execute(p, e->step) + 1;
    if (s->view) {
        /* The copy is the view's buffer. */
        const ap_plan_holder *result = &p->holders.at[p->holder_of[node->out[0]]];
        for (uint32_t i = 0; i < n; i++)
            end[i] = result->end[i % s->n];
        demand_copy(p, edge, 0, end);
        return;
    }
    for (uint32_t i = 0; i < node->nin; i++)
        if (node->in[i] == h->value)
            demand_copy(p, edge, i, end);
    uint32_t last = h->nuses ? h->use[h->nuses - 1].step : AP_NONE;
    for (uint32_t u = h->nuses; u-- > 0 && p->steps.at[last].view;)
        last = h->use[u].step;
    if (last == e->step)
        demand_last_use(p, edge);
}

/* Slots are there all the time. */
static void demand_slots(ap_planning *p, const ap_plan_holder *h)
{
    ap_slot_price slots;
    if (h->n == 0 || !ap_planning_slots(p, h->value, h->kept[0], &slots))
        return;
    int64_t *bytes = AP_NEW_ARRAY(p->arena, int64_t, h->n);
    for (uint32_t l = 0; l < h->n; l++) {
        ap_planning_slots(p, h->value, h->kept[l], &slots);
        bytes[l] = slots.bytes;
    }
    add_demand(p, h->var, 0, p->npoints, bytes);
}

void ap_planning_demand(ap_planning *p)
{
    find_ends(p);
    for (uint32_t h = 0; h < p->holders.len; h++) {
        demand_holder(p, &p->holders.at[h]);
        demand_slots(p, &p->holders.at[h]);
    }
    for (uint32_t k = 0; k < p->steps.len; k++) {
        const ap_plan_step *s = &p->steps.at[k];
        if (s->inner_bytes)
            add_demand(p, s->var, point_execute(p, k), point_execute(p, k) + 1, s->inner_bytes);
    }
    for (uint32_t e = 0; e < p->edges.len; e++) {
        if (p->edges.at[e].makes)
            demand_made(p, e);
        else
            demand_read(p, e);
    }
}
