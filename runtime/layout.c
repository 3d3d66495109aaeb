/* SPDX-License-Identifier: MIT
 *
 * The tables of a program, checked, and what communicators look up in them. Nothing later looks whether a rank or an
 * offset of a table is inside of what it refers to. */
#include "comm.h"
#include "target.h"

#include <stdlib.h>

static int no_memory(aprt_failure *why)
{
    return aprt_fail(why, APRT_ERR_ENV, "out of memory");
}

/* ---- stages and groups ---- */

static int check_stage(const aprt_program *p, uint32_t index, aprt_failure *why)
{
    const aprt_stage *s = &p->stage[index];
    const int64_t most = PTRDIFF_MAX - 64;
    if (s->nranks < 1 || s->first_rank < 0 || s->first_rank > p->nranks - s->nranks)
        return aprt_fail(why, APRT_ERR_BUG, "stage %u has ranks outside of the program", index);
    if (s->naxes < 0 || s->naxes > APRT_MAX_AXES)
        return aprt_fail(why, APRT_ERR_BUG, "stage %u has %d axes; at most %d", index, s->naxes, APRT_MAX_AXES);
    if (s->arena_bytes < 0 || s->arena_bytes > most || s->param_bytes < 0 || s->param_bytes > most ||
        s->scratch_bytes < 0 || s->scratch_bytes > most || s->workspace_bytes < 0 || s->workspace_bytes > most)
        return aprt_fail(why, APRT_ERR_BUG, "the program asks for impossible amounts of memory");
    if (s->target && s->target->abi != APRT_ABI)
        return aprt_fail(why, APRT_ERR_ENV, "the library for %s is of another version of the runtime", s->target->name);
    for (int32_t a = 0; a < s->naxes; a++)
        if (s->axis_size[a] < 1 || s->axis_stride[a] < 1)
            return aprt_fail(why, APRT_ERR_BUG, "axis %d of the program is empty", a);
    for (uint32_t i = 0; i < s->ninputs + s->noutputs; i++) {
        bool in = i < s->ninputs;
        int32_t port = in ? s->input[i] : s->output[i - s->ninputs];
        if (port >= 0 ? (uint32_t)port >= (in ? p->ninputs : p->noutputs) : (uint32_t)(-1 - port) >= p->nchannels)
            return aprt_fail(why, APRT_ERR_BUG, "stage %u: an input or output that is not there", index);
    }
    return s->run && s->list ? APRT_OK : aprt_fail(why, APRT_ERR_BUG, "stage %u has no instructions", index);
}

static int check_program(const aprt_program *p, aprt_failure *why)
{
    if (p->abi != APRT_ABI)
        return aprt_fail(why, APRT_ERR_ENV, "the program was made for runtime ABI %u, this one is %u", p->abi,
                         APRT_ABI);
    if (p->nranks < 1 || p->nranks > APRT_MAX_RANKS || p->nstages < 1 || p->nstages > (uint32_t)p->nranks)
        return aprt_fail(why, APRT_ERR_BUG, "a program of %d devices and %u stages; at most %d devices", p->nranks,
                         p->nstages, APRT_MAX_RANKS);
    if (p->microbatches < 1)
        return aprt_fail(why, APRT_ERR_BUG, "a program of %lld microbatches", (long long)p->microbatches);
    for (uint32_t s = 0; s < p->nstages; s++) {
        int status = check_stage(p, s, why);
        if (status != APRT_OK)
            return status;
    }
    return APRT_OK;
}

static int place_ranks(aprt_layout *l, aprt_failure *why)
{
    const aprt_program *p = l->program;
    l->stage_of = malloc((size_t)p->nranks * sizeof *l->stage_of);
    if (!l->stage_of)
        return no_memory(why);
    for (int32_t r = 0; r < p->nranks; r++)
        l->stage_of[r] = -1;
    for (uint32_t s = 0; s < p->nstages; s++)
        for (int32_t r = p->stage[s].first_rank; r < p->stage[s].first_rank + p->stage[s].nranks; r++) {
            if (l->stage_of[r] >= 0)
                return aprt_fail(why, APRT_ERR_BUG, "rank %d is in two stages", r);
            l->stage_of[r] = (int32_t)s;
        }
    for (int32_t r = 0; r < p->nranks; r++)
        if (l->stage_of[r] < 0)
            return aprt_fail(why, APRT_ERR_BUG, "rank %d is in no stage", r);
    return APRT_OK;
}

/* Where each rank of a stage stands in each of its groups. */
static int place_in_groups(const aprt_stage *s, int32_t **out, aprt_failure *why)
{
    int32_t *all = *out = malloc(((size_t)s->ngroups * (size_t)s->nranks + 1) * sizeof *all);
    if (!all)
        return no_memory(why);
    for (uint32_t g = 0; g < s->ngroups; g++) {
        const aprt_group *group = &s->group[g];
        int32_t *place = all + (size_t)g * (size_t)s->nranks;
        bool good = group->count >= 1 && group->size >= 1 && (int64_t)group->count * group->size == s->nranks;
        for (int32_t r = 0; r < s->nranks; r++)
            place[r] = -1;
        for (int32_t i = 0; good && i < s->nranks; i++) {
            int32_t r = group->rank[i] - s->first_rank;
            good = r >= 0 && r < s->nranks && place[r] < 0;
            if (good)
                place[r] = i;
        }
        if (!good)
            return aprt_fail(why, APRT_ERR_BUG, "group %u does not list every rank once", g);
    }
    return APRT_OK;
}

/* ---- channels ---- */

static bool slots_fit(int64_t at, int64_t bytes, int32_t depth, int64_t arena)
{
    int64_t all;
    return at >= 0 && bytes >= 0 && depth >= 1 && aprt_mul(bytes, depth, &all) && at <= arena && all <= arena - at;
}

/* Every element of the box, from `offset` on, is in a slot of `bytes`. */
static bool box_in_slot(int32_t ndims, const int64_t *extent, int64_t offset, const int64_t *stride, int64_t size,
                        int64_t bytes)
{
    int64_t last = offset, reach;
    for (int32_t d = 0; d < ndims; d++) {
        if (extent[d] < 1)
            return false;
        if (!aprt_mul(extent[d] - 1, stride[d], &reach) || __builtin_add_overflow(last, reach, &last))
            return false;
    }
    return offset >= 0 && last < bytes / size;
}

static bool in_stage(const aprt_stage *s, int32_t rank)
{
    return rank >= s->first_rank && rank < s->first_rank + s->nranks;
}

static int check_channel(const aprt_program *p, uint32_t index, aprt_failure *why)
{
    const aprt_channel *c = &p->channel[index];
    if (c->src_stage < 0 || c->dst_stage < 0 || (uint32_t)c->src_stage >= p->nstages ||
        (uint32_t)c->dst_stage >= p->nstages || c->src_stage == c->dst_stage)
        return aprt_fail(why, APRT_ERR_BUG, "channel %u does not lead from one stage to another", index);
    const aprt_stage *src = &p->stage[c->src_stage], *dst = &p->stage[c->dst_stage];
    int64_t size = aprt_dtype_bytes(c->dtype);
    if (!size || c->src_output < 0 || (uint32_t)c->src_output >= src->noutputs || c->dst_input < 0 ||
        (uint32_t)c->dst_input >= dst->ninputs || c->npieces < 0 ||
        !slots_fit(c->src_at, c->src_bytes, c->src_depth, src->arena_bytes) ||
        !slots_fit(c->dst_at, c->dst_bytes, c->dst_depth, dst->arena_bytes))
        return aprt_fail(why, APRT_ERR_BUG, "channel %u (%s): its slots are not in the stages", index, c->name);
    for (int32_t i = 0; i < c->npieces; i++) {
        const aprt_piece *q = &c->piece[i];
        if (!in_stage(src, q->src_rank) || !in_stage(dst, q->dst_rank) || q->ndims < 0 || q->ndims > APRT_MAX_LOOPS ||
            !box_in_slot(q->ndims, q->extent, q->src_offset, q->src_stride, size, c->src_bytes) ||
            !box_in_slot(q->ndims, q->extent, q->dst_offset, q->dst_stride, size, c->dst_bytes))
            return aprt_fail(why, APRT_ERR_BUG, "channel %u (%s): piece %d is outside of its slots", index, c->name, i);
    }
    return APRT_OK;
}

/* Pieces in the order of destination and source, those between the same ranks as in the table. */
typedef struct sorted_piece {
    const aprt_piece *piece;
} sorted_piece;

static int by_destination(const void *a, const void *b)
{
    const aprt_piece *x = ((const sorted_piece *)a)->piece, *y = ((const sorted_piece *)b)->piece;
    if (x->dst_rank != y->dst_rank)
        return x->dst_rank < y->dst_rank ? -1 : 1;
    if (x->src_rank != y->src_rank)
        return x->src_rank < y->src_rank ? -1 : 1;
    return x < y ? -1 : x > y;
}

static void add_piece(aprt_layout *l, uint32_t channel, const aprt_piece *q, int64_t at)
{
    aprt_route *last = l->nroutes ? &l->route[l->nroutes - 1] : NULL;
    aprt_move *m = &l->move[at];
    aprt_box_make(&m->box, q->ndims, q->extent, q->src_stride, q->dst_stride);
    m->src = q->src_offset;
    m->dst = q->dst_offset;
    if (!last || last->channel != channel || last->src_rank != q->src_rank || last->dst_rank != q->dst_rank) {
        last = &l->route[l->nroutes++];
        *last = (aprt_route){channel, q->src_rank, q->dst_rank, at, 0, 0};
    }
    last->count++;
    last->bytes += aprt_box_count(&m->box) * aprt_dtype_bytes(l->program->channel[channel].dtype);
}

static int add_routes(aprt_layout *l, aprt_failure *why)
{
    const aprt_program *p = l->program;
    int64_t pieces = 0, at = 0;
    for (uint32_t c = 0; c < p->nchannels; c++)
        pieces += p->channel[c].npieces;
    sorted_piece *sorted = malloc(((size_t)pieces + 1) * sizeof *sorted);
    l->move = malloc(((size_t)pieces + 1) * sizeof *l->move);
    l->route = malloc(((size_t)pieces + 1) * sizeof *l->route);
    bool good = sorted && l->move && l->route;
    for (uint32_t c = 0; good && c < p->nchannels; c++) {
        int32_t n = p->channel[c].npieces;
        for (int32_t i = 0; i < n; i++)
            sorted[i].piece = &p->channel[c].piece[i];
        qsort(sorted, (size_t)n, sizeof *sorted, by_destination);
        for (int32_t i = 0; i < n; i++)
            add_piece(l, c, sorted[i].piece, at++);
    }
    free(sorted);
    return good ? APRT_OK : no_memory(why);
}

/* [channel, rank] -> where its routes begin; a stable counting sort for the order by source. */
static int index_routes(aprt_layout *l, aprt_failure *why)
{
    const size_t width = (size_t)l->program->nranks + 1, n = width * l->program->nchannels;
    l->in_first = calloc(n + 1, sizeof *l->in_first);
    l->out_first = calloc(n + 1, sizeof *l->out_first);
    l->outgoing = malloc(((size_t)l->nroutes + 1) * sizeof *l->outgoing);
    uint32_t *next = malloc((n + 1) * sizeof *next);
    if (!l->in_first || !l->out_first || !l->outgoing || !next) {
        free(next);
        return no_memory(why);
    }
    for (uint32_t i = 0; i < l->nroutes; i++) {
        l->in_first[l->route[i].channel * width + (size_t)l->route[i].dst_rank + 1]++;
        l->out_first[l->route[i].channel * width + (size_t)l->route[i].src_rank + 1]++;
    }
    for (size_t i = 1; i <= n; i++) {
        l->in_first[i] += l->in_first[i - 1];
        l->out_first[i] += l->out_first[i - 1];
    }
    memcpy(next, l->out_first, (n + 1) * sizeof *next);
    for (uint32_t i = 0; i < l->nroutes; i++)
        l->outgoing[next[l->route[i].channel * width + (size_t)l->route[i].src_rank]++] = i;
    free(next);
    return APRT_OK;
}

/* ---- all of it ---- */

int aprt_layout_make(const aprt_program *p, aprt_layout *out, aprt_failure *why)
{
    *out = (aprt_layout){0};
    int status = check_program(p, why);
    if (status != APRT_OK)
        return status;
    out->program = p;
    out->place = calloc(p->nstages, sizeof *out->place);
    status = out->place ? place_ranks(out, why) : no_memory(why);
    for (uint32_t s = 0; s < p->nstages && status == APRT_OK; s++)
        status = place_in_groups(&p->stage[s], &out->place[s], why);
    for (uint32_t c = 0; c < p->nchannels && status == APRT_OK; c++)
        status = check_channel(p, c, why);
    if (status == APRT_OK)
        status = add_routes(out, why);
    return status == APRT_OK ? index_routes(out, why) : status;
}

void aprt_layout_deinit(aprt_layout *l)
{
    for (uint32_t s = 0; l->place && s < l->program->nstages; s++)
        free(l->place[s]);
    free(l->place);
    free(l->stage_of);
    free(l->move);
    free(l->route);
    free(l->outgoing);
    free(l->in_first);
    free(l->out_first);
}

void aprt_layout_incoming(const aprt_layout *l, uint32_t channel, int32_t rank, uint32_t *begin, uint32_t *end)
{
    const uint32_t *first = l->in_first + channel * ((size_t)l->program->nranks + 1) + rank;
    *begin = first[0];
    *end = first[1];
}

void aprt_layout_outgoing(const aprt_layout *l, uint32_t channel, int32_t rank, uint32_t *begin, uint32_t *end)
{
    const uint32_t *first = l->out_first + channel * ((size_t)l->program->nranks + 1) + rank;
    *begin = first[0];
    *end = first[1];
}

void aprt_layout_coordinate(const aprt_layout *l, int32_t rank, int64_t mb, int64_t coordinate[APRT_MAX_AXES])
{
    const aprt_stage *s = aprt_layout_stage(l, rank);
    int64_t point = mb * s->nranks + rank - s->first_rank;
    memset(coordinate, 0, APRT_MAX_AXES * sizeof *coordinate);
    for (int32_t a = 0; a < s->naxes; a++)
        coordinate[a] = point / s->axis_stride[a] % s->axis_size[a];
}

void aprt_layout_meeting(const aprt_layout *l, const aprt_device *d, uint32_t group, aprt_meeting *out)
{
    const aprt_group *g = &d->stage->group[group];
    int32_t at = l->place[l->stage_of[d->rank]][(int64_t)group * d->stage->nranks + d->place];
    out->list = at / g->size;
    out->me = at % g->size;
    out->size = g->size;
    out->rank = g->rank + (int64_t)out->list * g->size;
}

void aprt_exchange_box(const aprt_layout *l, const aprt_exchange *x, int32_t rank, int64_t mb, int32_t p,
                       const int64_t *a, const int64_t *b, aprt_box *out)
{
    int64_t extent[APRT_MAX_LOOPS], coordinate[APRT_MAX_AXES];
    memcpy(extent, x->extent, (size_t)x->ndims * sizeof *extent);
    if (x->ncounts) {
        aprt_layout_coordinate(l, rank, mb, coordinate);
        aprt_counts_apply(x->ncounts, x->count, coordinate, p, extent);
    }
    aprt_box_make(out, x->ndims, extent, a, b);
}

void aprt_exchange_part(int64_t count, int32_t n, int32_t i, int64_t *first, int64_t *last)
{
    int64_t each = count / n + (count % n != 0);
    *first = each * i < count ? each * i : count;
    *last = *first + each < count ? *first + each : count;
}

bool aprt_written_box(const aprt_layout *l, int32_t rank, int64_t mb, const aprt_written *w, aprt_box *out,
                      int64_t *offset)
{
    int64_t extent[APRT_MAX_LOOPS], compact[APRT_MAX_LOOPS], at[APRT_MAX_AXES], n = 1;
    aprt_layout_coordinate(l, rank, mb, at);
    *offset = w->offset.base;
    for (int a = 0; a < APRT_MAX_AXES; a++) {
        if ((w->when_mask >> a & 1) && at[a] != 0)
            return false;
        *offset += w->offset.step[a] * at[a];
    }
    memcpy(extent, w->extent, (size_t)w->ndims * sizeof *extent);
    aprt_counts_apply(w->ncounts, w->count, at, 0, extent);
    for (int32_t d = w->ndims; d-- > 0; n *= extent[d])
        compact[d] = n;
    aprt_box_make(out, w->ndims, extent, w->stride, compact);
    return n > 0;
}
