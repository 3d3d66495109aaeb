/* Which turns of the outer loops of a nest may run side by side on a GPU, and which accesses may be of several
 * elements.
 *
 * Turns may run side by side when they never meet in an element that one of them writes. Loops along which something is
 * written to one place, loops that the index of an update depends on, and loops of which one turn reads what the one
 * before wrote are left to one thread, which walks them in order: so results do not depend on who comes first. */
#include "backend/cuda/cuda.h"

static int64_t magnitude(int64_t x)
{
    return x < 0 ? (x == INT64_MIN ? INT64_MAX : -x) : x;
}

/* ---- elements written ---- */

typedef struct strides {
    int n;
    int64_t extent[AP_MAX_LOOPS + 2], stride[AP_MAX_LOOPS + 2];
} strides;

static void add_loop(strides *s, int64_t extent, int64_t stride)
{
    if (extent <= 1 || stride == 0)
        return;
    s->extent[s->n] = extent;
    s->stride[s->n++] = magnitude(stride);
}

/* Do different turns reach different elements? From the smallest stride up, each must be larger than all that the ones
 * below reach together. */
static bool is_one_to_one(const strides *s)
{
    bool done[AP_MAX_LOOPS + 2] = {false};
    int64_t reach = 0;
    for (int round = 0; round < s->n; round++) {
        int best = -1;
        for (int l = 0; l < s->n; l++)
            if (!done[l] && (best < 0 || s->stride[l] < s->stride[best]))
                best = l;
        if (s->stride[best] <= reach)
            return false;
        reach = ap_sat_add(reach, ap_sat_mul(s->extent[best] - 1, s->stride[best]));
        done[best] = true;
    }
    return true;
}

static bool writes(const ap_sop *s)
{
    return s->kind == AP_SOP_STORE || s->kind == AP_SOP_UPDATE;
}

/* Parallel loops must move what is written; all turns together must then reach different elements, a row found by an
 * index being any of them. */
static void leave_meetings(const ap_nest_facts *f, bool serial[AP_MAX_LOOPS])
{
    const ap_nest *n = f->n;
    for (uint32_t i = 0; i < n->nsops; i++)
        for (int l = 0; l < n->nouter && writes(&n->sop[i]); l++)
            if (n->extent[l] > 1 && f->k->operand[n->sop[i].operand].stride[l] == 0)
                serial[l] = true;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        strides all = {0};
        if (!writes(s))
            continue;
        for (int l = 0; l < ap_nest_section_loops(n, s->section); l++)
            add_loop(&all, n->extent[l], f->k->operand[s->operand].stride[l]);
        if (ap_sop_has_row(s))
            add_loop(&all, s->extent, s->stride);
        if (is_one_to_one(&all))
            continue;
        for (int l = 0; l < n->nouter; l++)
            serial[l] = true;
    }
}

/* ---- elements that one turn writes and another one reads ---- */

/* Operand j of a call begins so many elements behind operand i; false: it depends on the rank, or cannot be said. */
static bool distance(const ap_local *p, const ap_kernel *k, const ap_instr *in, uint32_t i, uint32_t j, int64_t *out)
{
    const ap_ref *a = &in->ref[i], *b = &in->ref[j];
    int64_t size = ap_dtype_bytes(k->operand[i].dtype), bytes;
    int64_t from = a->space == AP_SPACE_PARAM ? p->params.at[a->index].byte_offset : a->byte_offset;
    int64_t to = b->space == AP_SPACE_PARAM ? p->params.at[b->index].byte_offset : b->byte_offset;
    for (int x = 0; x < AP_MAX_AXES; x++)
        if (a->offset.step[x] != b->offset.step[x])
            return false;
    if (ap_dtype_bytes(k->operand[j].dtype) != size || !ap_mul_i64(b->offset.base - a->offset.base, size, &bytes) ||
        (to - from) % size)
        return false;
    *out = b->offset.base - a->offset.base + (to - from) / size;
    return true;
}

static void add_reach(const ap_kernel *k, uint32_t i, int64_t *low, int64_t *high)
{
    const ap_nest *n = &k->nest;
    for (int l = 0; l < n->nouter + n->ninner; l++) {
        int64_t s = k->operand[i].stride[l], span = ap_sat_mul(ap_max_i64(n->extent[l] - 1, 0), magnitude(s));
        if (s < 0)
            *low = ap_sat_add(*low, -span);
        else
            *high = ap_sat_add(*high, span);
    }
    for (uint32_t q = 0; q < n->nsops; q++)
        if (ap_sop_has_row(&n->sop[q]) && n->sop[q].operand == i)
            *high = ap_sat_add(*high, ap_sat_mul(n->sop[q].extent, magnitude(n->sop[q].stride)));
}

static bool same_memory(const ap_ref *a, const ap_ref *b)
{
    if (a->space != b->space)
        return false;
    return a->space == AP_SPACE_ARENA || a->space == AP_SPACE_PARAM || a->index == b->index;
}

/* How far loops go that step no further than loop l: with it, and the others together with d. */
typedef struct span {
    int64_t step, all, others;
} span;

static span span_of(const ap_nest *n, const int64_t *stride, int l, int64_t d)
{
    span r = {.step = magnitude(stride[l]), .others = magnitude(d)};
    for (int m = 0; m < n->nouter + n->ninner; m++) {
        int64_t s = magnitude(stride[m]), far = ap_sat_mul(ap_max_i64(n->extent[m] - 1, 0), s);
        if (s > r.step)
            continue;
        r.all = ap_sat_add(r.all, far);
        r.others = ap_sat_add(r.others, m != l ? far : 0);
    }
    return r;
}

/* Loop l and all that step further are further apart than d and what is below them: no two turns of it meet. */
static bool is_beyond(const ap_nest *n, const int64_t *stride, int l, int64_t d)
{
    for (int m = 0; m < n->nouter + n->ninner; m++) {
        span s = span_of(n, stride, m, d);
        if (n->extent[m] > 1 && (m == l || s.step > magnitude(stride[l])) && s.step <= s.others)
            return false;
    }
    return true;
}

/* d and all steps above are multiples of a distance that loop l, with those below it, never makes: nor do its turns
 * meet. */
static bool is_below(const ap_nest *n, const int64_t *stride, int l, int64_t d)
{
    int64_t step = magnitude(stride[l]), next = magnitude(d);
    for (int m = 0; m < n->nouter + n->ninner; m++)
        if (n->extent[m] > 1 && magnitude(stride[m]) > step)
            next = ap_min_i64(next, magnitude(stride[m]));
    if (next == 0 || magnitude(d) % next || span_of(n, stride, l, d).all >= next)
        return false;
    for (int m = 0; m < n->nouter + n->ninner; m++)
        if (n->extent[m] > 1 && magnitude(stride[m]) > step && magnitude(stride[m]) % next)
            return false;
    return true;
}

/* Turns that meet lie `d` elements apart. Where the loop cannot be shown to have the same turn on both sides it is
 * walked in order. */
static void leave_carried(const ap_nest_facts *f, uint32_t i, int64_t d, bool serial[AP_MAX_LOOPS])
{
    const int64_t *stride = f->k->operand[i].stride;
    for (int l = 0; l < f->n->nouter; l++)
        if (f->n->extent[l] > 1 && !is_beyond(f->n, stride, l, d) && !is_below(f->n, stride, l, d))
            serial[l] = true;
}

/* First byte of operand i at a point, and the bytes that it reaches from there. */
static int64_t start_of(const ap_local *p, const ap_kernel *k, const ap_instr *in, uint32_t i, const int32_t *coords)
{
    const ap_ref *r = &in->ref[i];
    int64_t at = r->space == AP_SPACE_PARAM ? p->params.at[r->index].byte_offset : r->byte_offset;
    return ap_sat_add(at, ap_sat_mul(ap_affine_at(&r->offset, coords), ap_dtype_bytes(k->operand[i].dtype)));
}

/* Do operands i and j of the call have bytes in common, on any rank, in any microbatch? */
static bool overlap(const ap_local *p, const ap_kernel *k, const ap_instr *in, uint32_t i, uint32_t j)
{
    int64_t low[2] = {0}, high[2] = {0}, size[2] = {ap_dtype_bytes(k->operand[i].dtype), 0};
    size[1] = ap_dtype_bytes(k->operand[j].dtype);
    add_reach(k, i, &low[0], &high[0]);
    add_reach(k, j, &low[1], &high[1]);
    for (int32_t point = 0; point < p->nranks * ap_local_microbatches(p); point++) {
        int32_t coords[AP_MAX_AXES] = {0};
        for (int a = 0; a < p->naxes; a++)
            coords[a] = point / p->axis_stride[a] % p->axis_size[a];
        int64_t a = start_of(p, k, in, i, coords), b = start_of(p, k, in, j, coords);
        if (ap_sat_add(a, ap_sat_mul(low[0], size[0])) < ap_sat_add(b, ap_sat_mul(high[1] + 1, size[1])) &&
            ap_sat_add(b, ap_sat_mul(low[1], size[1])) < ap_sat_add(a, ap_sat_mul(high[0] + 1, size[0])))
            return true;
    }
    return false;
}

static void look_at_call(const ap_local *p, const ap_nest_facts *f, const ap_instr *in, bool serial[AP_MAX_LOOPS])
{
    const ap_kernel *k = f->k;
    for (uint32_t i = 0; i < k->noperands; i++)
        for (uint32_t j = 0; j < k->noperands && k->operand[i].written; j++) {
            int64_t d = 0;
            if (i == j || !same_memory(&in->ref[i], &in->ref[j]) || !overlap(p, k, in, i, j))
                continue;
            bool known = distance(p, k, in, i, j, &d), alike = true;
            if (known && d == 0)
                continue;
            for (int l = 0; l < f->n->nouter + f->n->ninner; l++)
                alike = alike && k->operand[i].stride[l] == k->operand[j].stride[l];
            if (known && alike)
                leave_carried(f, i, d, serial);
            for (int l = 0; l < f->n->nouter && !(known && alike); l++)
                serial[l] = true;
        }
}

void ap_cuda_find_serial(const ap_emit *e, uint32_t index, const ap_nest_facts *f, bool serial[AP_MAX_LOOPS])
{
    leave_meetings(f, serial);
    if (e->apart[index])
        return;
    for (uint32_t s = 0; s < e->program->stages.len; s++) {
        const ap_local *p = e->program->stages.at[s];
        for (uint32_t i = 0; i < p->instrs.len; i++) {
            const ap_instr *in = &p->instrs.at[i];
            if (in->kind == AP_INSTR_CALL && e->kernel_of[s][in->kernel] == index)
                look_at_call(p, f, in, serial);
        }
    }
}

/* ---- updates that several threads share ---- */

bool *ap_cuda_find_needed(const ap_emit *e, const ap_nest *n, uint32_t id)
{
    bool *needed = AP_NEW_ARRAY(&e->ctx->scratch, bool, n->nsops);
    needed[id] = true;
    for (uint32_t i = id + 1; i-- > 0;)
        for (int a = 0; a < ap_sop_argument_count(&n->sop[i]) && needed[i]; a++)
            needed[n->sop[i].arg[a]] = true;
    return needed;
}

/* The nest is one update and what it needs, and what is updated is not read; else AP_NONE. */
static uint32_t find_update(const ap_nest_facts *f)
{
    const ap_nest *n = f->n;
    uint32_t found = AP_NONE;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        bool reads = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_GATHER;
        if (s->kind == AP_SOP_STORE || (s->kind == AP_SOP_UPDATE && (found != AP_NONE || !ap_sop_has_row(s))) ||
            (reads && f->live[i] && f->k->operand[s->operand].written))
            return AP_NONE;
        if (s->kind == AP_SOP_UPDATE)
            found = i;
    }
    return n->nsections == 1 && !f->has_inner ? found : AP_NONE;
}

int ap_cuda_find_owners(const ap_emit *e, uint32_t index, const ap_nest_facts *f, const bool serial[AP_MAX_LOOPS],
                        int64_t most)
{
    enum { MOST = 1024, TURNS = 16 /* that an owner does of those it walks, at least, if rows come equally often */ };
    const ap_nest *n = f->n;
    uint32_t update = find_update(f);
    int64_t turns = 1;
    int owners = 1;
    if (update == AP_NONE || !e->apart[index])
        return 1;
    const ap_sop *s = &n->sop[update];
    bool *needed = ap_cuda_find_needed(e, n, ap_sop_row_index(s));
    for (uint32_t i = 0; i < n->nsops; i++) /* bad indices are seen by an owner alone, and by all who look for rows */
        if (f->live[i] && !needed[i] && (n->sop[i].kind == AP_SOP_CHECK || n->sop[i].kind == AP_SOP_GATHER))
            return 1;
    for (int l = 0; l < n->nouter; l++) {
        if (serial[l] && n->extent[l] > 1 && f->k->operand[s->operand].stride[l] != 0)
            return 1;
        if (serial[l])
            turns = ap_sat_mul(turns, n->extent[l]);
    }
    most = ap_min_i64(ap_min_i64(most, MOST), ap_min_i64(s->extent, turns / TURNS));
    while (2 * (int64_t)owners <= most)
        owners *= 2;
    return owners;
}

/* ---- alignment ---- */

static bool is_multiple(const ap_affine *a, int64_t size, int64_t bytes)
{
    bool yes = a->base % bytes * size % bytes == 0;
    for (int x = 0; x < AP_MAX_AXES; x++)
        yes = yes && a->step[x] % bytes * size % bytes == 0;
    return yes;
}

/* Tensors of the caller are copied into memory of their own; slots lie in the arena. */
static bool slots_are_aligned(const ap_program *g, int64_t bytes)
{
    bool yes = true;
    for (uint32_t c = 0; c < g->channels.len; c++) {
        const ap_channel *ch = &g->channels.at[c];
        yes = yes && ch->src_at % bytes == 0 && ch->dst_at % bytes == 0 && ch->src_bytes % bytes == 0 &&
              ch->dst_bytes % bytes == 0;
    }
    return yes;
}

bool ap_cuda_is_aligned(const ap_emit *e, uint32_t index, uint32_t i, int64_t bytes)
{
    for (uint32_t s = 0; s < e->program->stages.len; s++) {
        const ap_local *p = e->program->stages.at[s];
        for (uint32_t q = 0; q < p->instrs.len; q++) {
            const ap_instr *in = &p->instrs.at[q];
            if (in->kind != AP_INSTR_CALL || e->kernel_of[s][in->kernel] != index)
                continue;
            const ap_ref *r = &in->ref[i];
            int64_t start = r->space == AP_SPACE_ARENA   ? r->byte_offset
                            : r->space == AP_SPACE_PARAM ? p->params.at[r->index].byte_offset
                                                         : 0;
            bool port = r->space == AP_SPACE_INPUT || r->space == AP_SPACE_OUTPUT;
            if (start % bytes || !is_multiple(&r->offset, ap_dtype_bytes(e->kernel[index]->operand[i].dtype), bytes) ||
                (port && !slots_are_aligned(e->program, bytes)))
                return false;
        }
    }
    return true;
}
