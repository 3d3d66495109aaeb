/* Ports of the machine: each device has one for each kind of link and direction; the devices of an island share what
 * leads to other islands of the host, those of a host what leads to other hosts. A piece occupies the ports at both its
 * ends for as long as its bytes take at their rates. */
#include "passes/pipe/sim_model.h"

#include "ir/op.h"
#include "passes/pipe/transfer.h"

enum { OUT, IN, DIRECTIONS };
enum { MAX_NOTED = 20000 }; /* times in the source of a program */

/* ---- loads of a wire ---- */

typedef struct machine {
    const ap_cluster *c;
    ap_arena *arena;
    int32_t nranks, nislands, nhosts;
    int32_t *host, *island; /* of a rank */
    uint32_t nports;
    double *ps;        /* of each port, for the wire at hand */
    uint32_t *touched; /* ports with ps > 0 */
    uint32_t ntouched;
} machine;

static machine machine_make(const ap_cluster *c, int32_t nranks, ap_arena *arena)
{
    machine m = {.c = c, .arena = arena, .nranks = nranks};
    m.host = AP_NEW_ARRAY(arena, int32_t, nranks);
    m.island = AP_NEW_ARRAY(arena, int32_t, nranks);
    for (int32_t r = 0; r < nranks; r++) {
        m.host[r] = ap_cluster_host(c, r);
        m.island[r] = ap_cluster_island(c, r);
        m.nhosts = m.host[r] + 1;
        m.nislands = m.island[r] + 1;
    }
    m.nports = DIRECTIONS * ((uint32_t)nranks * AP_LEVEL_COUNT + (uint32_t)m.nislands + (uint32_t)m.nhosts);
    m.ps = AP_NEW_ARRAY(arena, double, m.nports);
    m.touched = AP_NEW_ARRAY(arena, uint32_t, m.nports);
    return m;
}

static void load_port(machine *m, uint32_t port, double bytes, int64_t bytes_per_second)
{
    if (bytes_per_second <= 0 || bytes <= 0)
        return;
    if (m->ps[port] <= 0)
        m->touched[m->ntouched++] = port;
    m->ps[port] += bytes * 1e12 / (double)bytes_per_second;
}

static uint32_t device_port(int32_t rank, int level, int direction)
{
    return ((uint32_t)rank * AP_LEVEL_COUNT + (uint32_t)level) * DIRECTIONS + (uint32_t)direction;
}

static uint32_t shared_port(const machine *m, int level, int32_t rank, int direction)
{
    uint32_t first = (uint32_t)m->nranks * AP_LEVEL_COUNT;
    uint32_t unit = level == AP_LEVEL_ACROSS ? (uint32_t)m->island[rank] : (uint32_t)(m->nislands + m->host[rank]);
    return (first + unit) * DIRECTIONS + (uint32_t)direction;
}

static void load_piece(machine *m, const ap_piece *p, int64_t element_bytes, int64_t *latency, int64_t *moved)
{
    int64_t size = element_bytes;
    if (p->src_rank == p->dst_rank)
        return;
    for (int d = 0; d < p->ndims; d++)
        size = ap_sat_mul(size, p->extent[d]);
    double bytes = (double)size;
    *moved = ap_sat_add(*moved, size);
    int level = m->host[p->src_rank] != m->host[p->dst_rank]       ? AP_LEVEL_BETWEEN
                : m->island[p->src_rank] != m->island[p->dst_rank] ? AP_LEVEL_ACROSS
                                                                   : AP_LEVEL_INSIDE;
    ap_level l = ap_cluster_level(m->c, p->src_rank, p->dst_rank);
    *latency = ap_max_i64(*latency, l.latency_ps);
    load_port(m, device_port(p->src_rank, level, OUT), bytes, l.bytes_per_second);
    load_port(m, device_port(p->dst_rank, level, IN), bytes, l.bytes_per_second);
    if (level != AP_LEVEL_INSIDE) {
        load_port(m, shared_port(m, level, p->src_rank, OUT), bytes, l.shared_bytes_per_second);
        load_port(m, shared_port(m, level, p->dst_rank, IN), bytes, l.shared_bytes_per_second);
    }
}

/* `to`: the stage that receives. */
static ap_sim_wire make_wire(machine *m, uint32_t npieces, const ap_piece *piece, int64_t element_bytes, int32_t to,
                             int64_t *moved)
{
    ap_sim_wire w = {.by_receiver = ap_cluster_at(m->c, to)->transfers_wait};
    m->ntouched = 0;
    for (uint32_t i = 0; i < npieces; i++)
        load_piece(m, &piece[i], element_bytes, &w.latency_ps, moved);
    ap_sim_load *load = AP_NEW_ARRAY(m->arena, ap_sim_load, m->ntouched);
    for (uint32_t i = 0; i < m->ntouched; i++) {
        load[i] = (ap_sim_load){m->touched[i], m->ps[m->touched[i]]};
        m->ps[m->touched[i]] = 0;
    }
    w.nloads = m->ntouched;
    w.load = load;
    return w;
}

/* ---- models ---- */

/* With arrays to be filled: `stage` and `wire` are those of in. */
static ap_sim_model *model_create(ap_arena *arena, uint32_t nstages, uint32_t nwires, ap_sim_stage **stage,
                                  ap_sim_wire **wire)
{
    ap_sim_model *x = AP_NEW(arena, ap_sim_model);
    *stage = AP_NEW_ARRAY(arena, ap_sim_stage, nstages);
    *wire = AP_NEW_ARRAY(arena, ap_sim_wire, nwires);
    x->in = (ap_sim){.w = &x->w, .stage = *stage, .wire = *wire};
    x->first_rank = AP_NEW_ARRAY(arena, int32_t, nstages);
    x->reserved_bytes = AP_NEW_ARRAY(arena, int64_t, nstages);
    x->moved_bytes = AP_NEW_ARRAY(arena, int64_t, nwires);
    return x;
}

/* ---- programs ---- */

static bool does_instr(const ap_local *l, const ap_instr *i, int32_t rank)
{
    if (i->when == AP_WHEN_ALWAYS)
        return true;
    bool zero = true;
    for (int a = l->ntime; a < l->naxes; a++)
        if (i->when_mask >> a & 1)
            zero = zero && rank / l->axis_stride[a] % l->axis_size[a] == 0;
    return zero == (i->when == AP_WHEN_ZERO);
}

static ap_sim_stage stage_of_local(const ap_local *l)
{
    ap_sim_stage s = {.nranks = l->nranks,
                      .resident_bytes = ap_local_kept_bytes(l),
                      .working_bytes = l->live_bytes ? l->live_bytes : l->arena_bytes};
    for (uint32_t i = 0; i < l->instrs.len; i++)
        if (l->instrs.at[i].kind == AP_INSTR_EXCHANGE)
            s.exchange_ps = ap_sat_add(s.exchange_ps, l->instrs.at[i].picoseconds);
    for (int32_t r = 0; r < l->nranks; r++) {
        int64_t ps = 0;
        for (uint32_t i = 0; i < l->instrs.len; i++)
            if (l->instrs.at[i].kind == AP_INSTR_CALL && does_instr(l, &l->instrs.at[i], r))
                ps = ap_sat_add(ps, l->instrs.at[i].picoseconds);
        s.compute_ps = ap_max_i64(s.compute_ps, ps);
    }
    return s;
}

/* One microbatch on the rank that has most to do. */
static ap_sim_run run_at(const ap_local *l, const ap_cluster *c, int32_t microbatch)
{
    ap_sim_run most = {0};
    for (int32_t r = 0; r < l->nranks; r++) {
        ap_sim_run run = {0};
        ap_local_price_at(l, c, microbatch, r, &run.compute_ps, &run.exchange_ps);
        if (run.compute_ps + run.exchange_ps >= most.compute_ps + most.exchange_ps)
            most = run;
    }
    return most;
}

/* Microbatches at the end that have less than the first: fewer rows, or none. */
static void find_shorter(const ap_local *l, const ap_cluster *c, ap_arena *arena, ap_sim_stage *s)
{
    int32_t B = ap_local_microbatches(l);
    ap_cluster part;
    ap_cluster_part(c, l->first_rank, l->nranks, &part);
    while (s->nshort < B && ap_local_is_short(l, B - 1 - s->nshort))
        s->nshort++;
    ap_sim_run *run = AP_NEW_ARRAY(arena, ap_sim_run, s->nshort + 1);
    for (int32_t i = 0; i < s->nshort; i++)
        run[i] = run_at(l, &part, B - s->nshort + i);
    s->shorter = run;
}

static ap_sim_steps steps_of_local(const ap_local *l, ap_arena *arena)
{
    static const char *const names[AP_EXCHANGE_KIND_COUNT] = {"all_gather", "reduce_scatter", "all_reduce",
                                                              "all_to_all"};
    ap_sim_steps out = {0};
    for (uint32_t i = 0; i < l->instrs.len; i++) {
        const ap_instr *n = &l->instrs.at[i];
        bool exchange = n->kind == AP_INSTR_EXCHANGE;
        ap_name name = exchange ? ap_name_make(l->ctx, names[n->exchange.kind]) : l->kernels.at[n->kernel].name;
        ap_vec_push(arena, &out.steps, (ap_sim_step){name, n->loc, exchange, n->picoseconds});
    }
    return out;
}

ap_sim_model *ap_sim_of_program(const ap_program *p, const ap_cluster *c, ap_arena *arena)
{
    ap_sim_stage *stage;
    ap_sim_wire *wire;
    ap_sim_model *x = model_create(arena, p->stages.len, p->channels.len, &stage, &wire);
    machine m = machine_make(c, p->nranks, arena);
    x->run = AP_NEW_ARRAY(arena, ap_sim_steps, p->stages.len);
    for (uint32_t s = 0; s < p->stages.len; s++) {
        const ap_local *l = p->stages.at[s];
        stage[s] = stage_of_local(l);
        find_shorter(l, c, arena, &stage[s]);
        x->first_rank[s] = l->first_rank;
        x->reserved_bytes[s] = ap_sat_add(stage[s].resident_bytes, ap_program_arena_bytes(p, s));
        x->run[s] = steps_of_local(l, arena);
    }
    for (uint32_t i = 0; i < p->channels.len; i++) {
        const ap_channel *h = &p->channels.at[i];
        wire[i] = make_wire(&m, h->npieces, h->piece, ap_dtype_bytes(h->dtype), x->first_rank[h->dst_stage],
                            &x->moved_bytes[i]);
        wire[i].from_bytes = h->src_bytes;
        wire[i].to_bytes = h->dst_bytes;
    }
    x->w = ap_program_wiring(p, arena);
    x->nranks = p->nranks;
    x->in.lists = p->lists.at;
    x->in.nports = m.nports;
    return x;
}

void ap_sim_note(ap_program *p, const ap_sim_result *r, ap_arena *arena)
{
    const int64_t B = p->microbatches;
    if (p->stages.len < 2 || B * (p->stages.len + 2 * (int64_t)p->channels.len) > MAX_NOTED)
        return;
    int64_t *run = AP_NEW_ARRAY(arena, int64_t, B * p->stages.len);
    int64_t *move = AP_NEW_ARRAY(arena, int64_t, 2 * B * p->channels.len);
    for (uint32_t i = 0; i < r->events.len; i++) {
        const ap_sim_event *e = &r->events.at[i];
        if (e->kind == AP_SIM_RUN)
            run[e->stage * B + e->microbatch] = e->start_ps;
        if (e->kind == AP_SIM_TRANSFER) {
            move[2 * (e->wire * B + e->microbatch)] = e->start_ps;
            move[2 * (e->wire * B + e->microbatch) + 1] = e->end_ps;
        }
    }
    p->run_ps = run;
    p->move_ps = move;
}

/* ---- pipelines ---- */

static ap_transfer_side side_of(const ap_stage *s, ap_type t)
{
    ap_type_info info = ap_type_get(s->m->ctx, t);
    return (ap_transfer_side){ap_stage_mesh(s), ap_shape_get(s->m->ctx, info.shape),
                              ap_sharding_get(s->m->ctx, info.sharding)};
}

static ap_status wire_of_link(machine *m, const ap_pipeline *p, const ap_wire *w, ap_sim_wire *out, int64_t *moved)
{
    const ap_stage *from = &p->stages.at[w->from], *to = &p->stages.at[w->to];
    ap_type sent = from->m->funcs.at[0].result[w->result];
    ap_transfer_side a = side_of(from, sent);
    ap_transfer_side b = side_of(to, ap_value_type(to->m, to->m->funcs.at[0].argument[w->argument]));
    int64_t bytes = ap_dtype_bytes(ap_type_dtype(p->ctx, sent));
    ap_transfer t;
    AP_TRY(ap_transfer_find(p->ctx, m->arena, m->c, &a, &b, &t));
    *out = make_wire(m, t.npieces, t.piece, bytes, ap_stage_mesh(to)->first_rank, moved);
    out->from_bytes = ap_align_bytes(ap_sat_mul(t.src_count, bytes));
    out->to_bytes = ap_align_bytes(ap_sat_mul(t.dst_count, bytes));
    return AP_OK;
}

/* A node of the plan, as a step. */
typedef struct watcher {
    const ap_module *m;
    ap_arena *arena;
    ap_sim_steps *steps;
} watcher;

static void see_node(void *user, ap_node n, int64_t compute_ps, int64_t communication_ps)
{
    watcher *w = user;
    const ap_node_info *node = ap_node_at(w->m, n);
    const ap_op_info *op = ap_op_get(node->op);
    ap_name name = op->has_body ? node->u.composite : ap_name_make(w->m->ctx, op->name);
    if (compute_ps)
        ap_vec_push(w->arena, &w->steps->steps, (ap_sim_step){name, node->loc, false, compute_ps});
    if (communication_ps)
        ap_vec_push(w->arena, &w->steps->steps, (ap_sim_step){name, node->loc, true, communication_ps});
}

static ap_status stage_of_module(const ap_stage *of, const ap_cluster *c, const ap_plan_result *result,
                                 const ap_plan_watch *watch, ap_sim_stage *out)
{
    const ap_mesh_info *mesh = ap_stage_mesh(of);
    ap_plan_result r;
    if (result) {
        r = *result;
    } else {
        ap_cluster part;
        ap_cluster_part(c, mesh->first_rank, ap_mesh_ranks(mesh), &part);
        AP_TRY(ap_plan_evaluate_nodes(of->m->ctx, of->m, &part, &(ap_plan_slots){0}, watch, &r));
    }
    *out = (ap_sim_stage){.nranks = ap_mesh_ranks(mesh),
                          .compute_ps = r.compute_ps,
                          .exchange_ps = r.communication_ps,
                          .resident_bytes = r.param_bytes,
                          .working_bytes = r.peak_bytes - r.param_bytes - r.slot_bytes};
    return AP_OK;
}

/* All slots at both ends of all wires; those of one result serve all that leave it. */
static void reserve_slots(ap_sim_model *x)
{
    const ap_wire *wire = x->w.wire;
    for (uint32_t i = 0; i < x->w.nwires; i++) {
        const ap_sim_wire *of = &x->in.wire[i];
        int64_t *from = &x->reserved_bytes[wire[i].from], *to = &x->reserved_bytes[wire[i].to];
        bool counted = false;
        for (uint32_t j = 0; j < i; j++)
            counted = counted || (wire[j].from == wire[i].from && wire[j].result == wire[i].result);
        *to = ap_sat_add(*to, ap_sat_mul(of->to_bytes, wire[i].to_depth));
        *from = counted ? *from : ap_sat_add(*from, ap_sat_mul(of->from_bytes, wire[i].from_depth));
    }
}

ap_status ap_sim_of_pipeline(const ap_pipeline *p, const ap_cluster *c, const ap_pipe_result *result, ap_arena *arena,
                             ap_sim_model **out)
{
    ap_sim_stage *stage;
    ap_sim_wire *wire;
    ap_sim_model *x = model_create(arena, p->stages.len, p->links.len, &stage, &wire);
    machine m = machine_make(c, p->nranks, arena);
    if (p->lists.len != p->stages.len)
        return ap_fail(p->ctx, AP_ERR_BUG, 0, "a pipeline without instruction lists cannot be simulated");
    x->run = result ? NULL : AP_NEW_ARRAY(arena, ap_sim_steps, p->stages.len);
    for (uint32_t s = 0; s < p->stages.len; s++) {
        const ap_stage *of = &p->stages.at[s];
        watcher w = {.m = of->m, .arena = arena, .steps = x->run ? &x->run[s] : NULL};
        AP_TRY(
            stage_of_module(of, c, result ? &result->stage[s].plan : NULL, &(ap_plan_watch){see_node, &w}, &stage[s]));
        x->first_rank[s] = ap_stage_mesh(of)->first_rank;
        x->reserved_bytes[s] = ap_sat_add(stage[s].resident_bytes, stage[s].working_bytes);
    }
    for (uint32_t i = 0; i < p->links.len; i++)
        AP_TRY(wire_of_link(&m, p, &p->links.at[i], &wire[i], &x->moved_bytes[i]));
    x->w = ap_pipeline_wiring(p, arena);
    x->nranks = p->nranks;
    x->in.lists = p->lists.at;
    x->in.nports = m.nports;
    reserve_slots(x);
    *out = x;
    return AP_OK;
}
