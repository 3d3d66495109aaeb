/* Rules of programs: what ap_local_verify does not see of a stage, because it concerns several. */
#include "ir/program.h"

#include "ir/local_text.h"
#include "ir/local_written.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_WORDS ((int64_t)1 << 31) /* of bits, one for each element of the slots of a channel at the destination */

typedef struct verifier {
    ap_program *p;
    bool bad;
} verifier;

static void complain(verifier *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void complain(verifier *v, const char *fmt, ...)
{
    ap_ctx *ctx = v->p->ctx;
    ap_name what = ap_name_format(ctx, "program @%s", ap_name_str(ctx, v->p->name));
    va_list args;
    va_start(args, fmt);
    ap_error_of(ctx, 0, ap_name_str(ctx, what), fmt, args);
    va_end(args);
    v->bad = true;
}

static const char *name(const verifier *v, ap_name n)
{
    return ap_name_str(v->p->ctx, n);
}

/* ---- stages ---- */

static void check_ranks(verifier *v)
{
    int64_t at = 0;
    uint8_t *seen = AP_NEW_ARRAY(&v->p->ctx->scratch, uint8_t, v->p->nranks);
    for (uint32_t s = 0; s < v->p->stages.len; s++) {
        const ap_local *l = v->p->stages.at[s];
        at += l->nranks;
        if (ap_local_microbatches(l) != v->p->microbatches)
            complain(v, "stage @%s has %" PRId32 " microbatches, not %" PRId32, name(v, l->name),
                     ap_local_microbatches(l), v->p->microbatches);
        for (int64_t r = l->first_rank; r < (int64_t)l->first_rank + l->nranks; r++) {
            if (r < 0 || r >= v->p->nranks || seen[r]++) {
                complain(v, "rank %" PRId64 " of stage @%s is that of another one, or none", r, name(v, l->name));
                break;
            }
        }
    }
    if (at != v->p->nranks)
        complain(v, "the stages have %" PRId64 " ranks of %" PRId32, at, v->p->nranks);
}

static bool same_port(const ap_port *a, const ap_port *b)
{
    return a->dtype == b->dtype && a->rank == b->rank && !memcmp(a->dim, b->dim, a->rank * sizeof *a->dim);
}

/* Ports of a stage that are no slots are those of the program. Counts who writes an output. */
static void check_ports(verifier *v, uint32_t s, bool output, uint32_t *written)
{
    const ap_local *l = v->p->stages.at[s];
    uint32_t n = output ? l->outputs.len : l->inputs.len;
    for (uint32_t i = 0; i < n; i++) {
        const ap_port *port = output ? &l->outputs.at[i] : &l->inputs.at[i];
        uint32_t of = ap_program_port(v->p, s, output, i);
        if (port->slot && port->rank != 1)
            complain(v, "stage @%s: slot \"%s\" is not of rank 1", name(v, l->name), name(v, port->name));
        if (port->slot)
            continue;
        if (of == AP_NONE || !same_port(port, output ? &v->p->outputs.at[of] : &v->p->inputs.at[of]))
            complain(v, "stage @%s: \"%s\" is no %s of the program", name(v, l->name), name(v, port->name),
                     output ? "output" : "input");
        else if (output)
            written[of]++;
    }
}

static void check_stages(verifier *v)
{
    uint32_t *written = AP_NEW_ARRAY(&v->p->ctx->scratch, uint32_t, v->p->outputs.len);
    for (uint32_t s = 0; s < v->p->stages.len; s++) {
        v->bad |= ap_local_verify(v->p->stages.at[s]) != AP_OK;
        check_ports(v, s, false, written);
        check_ports(v, s, true, written);
    }
    for (uint32_t i = 0; i < v->p->outputs.len; i++)
        if (written[i] != 1)
            complain(v, "output \"%s\" is written by %" PRIu32 " stages", name(v, v->p->outputs.at[i].name),
                     written[i]);
}

/* ---- kernels of one name ---- */

typedef struct named {
    ap_name name;
    const ap_kernel *kernel;
    uint32_t place;
} named;

static int by_name(const void *a, const void *b)
{
    const named *x = a, *y = b;
    if (x->name != y->name)
        return x->name < y->name ? -1 : 1;
    return x->place < y->place ? -1 : x->place > y->place;
}

static const char *kernel_text(const verifier *v, const ap_kernel *k)
{
    ap_text t;
    ap_text_init(&t, &v->p->ctx->scratch);
    ap_local_print_kernel(v->p->ctx, k, &t);
    return ap_text_str(&t);
}

static void check_kernels(verifier *v)
{
    AP_VEC(named) all = {0};
    for (uint32_t s = 0; s < v->p->stages.len && v->p->stages.len > 1; s++)
        for (uint32_t i = 0; i < v->p->stages.at[s]->kernels.len; i++) {
            const ap_kernel *k = &v->p->stages.at[s]->kernels.at[i];
            ap_vec_push(&v->p->ctx->scratch, &all, (named){k->name, k, all.len});
        }
    if (all.len)
        qsort(all.at, all.len, sizeof *all.at, by_name);
    for (uint32_t i = 0; i + 1 < all.len; i++)
        if (all.at[i].name == all.at[i + 1].name &&
            strcmp(kernel_text(v, all.at[i].kernel), kernel_text(v, all.at[i + 1].kernel)) != 0)
            complain(v, "two kernels are called @%s", name(v, all.at[i].name));
}

/* ---- channels ---- */

static const ap_port *end_port(const verifier *v, const ap_channel *c, bool source)
{
    uint32_t stage = source ? c->src_stage : c->dst_stage, port = source ? c->src_output : c->dst_input;
    if (stage >= v->p->stages.len)
        return NULL;
    const ap_local *l = v->p->stages.at[stage];
    if (port >= (source ? l->outputs.len : l->inputs.len))
        return NULL;
    return source ? &l->outputs.at[port] : &l->inputs.at[port];
}

static bool check_end(verifier *v, const ap_channel *c, bool source)
{
    const ap_port *port = end_port(v, c, source);
    const char *what = source ? "source" : "destination";
    int64_t at = source ? c->src_at : c->dst_at, bytes = source ? c->src_bytes : c->dst_bytes, need, size;
    if (!port || !port->slot || port->dtype != c->dtype || port->name != c->name) {
        complain(v, "channel %%%s: its %s is no slot of that name", name(v, c->name), what);
        return false;
    }
    const ap_local *l = v->p->stages.at[source ? c->src_stage : c->dst_stage];
    bool fits = ap_mul_i64(port->dim[0], ap_dtype_bytes(c->dtype), &need) && need <= bytes &&
                ap_mul_i64(bytes, source ? c->src_depth : c->dst_depth, &size) && ap_add_i64(at, size, &size);
    if (!fits || at % AP_LOCAL_ALIGN || bytes % AP_LOCAL_ALIGN || at < l->arena_bytes)
        complain(v,
                 "channel %%%s: slots at the %s, from byte %" PRId64 " of the arena, %" PRId64
                 " bytes each, are too small, not aligned, or in the values",
                 name(v, c->name), what, at, bytes);
    return fits;
}

/* First and last element of a box; false on overflow or when it has none. */
static bool box_range(const ap_piece *x, int64_t offset, const int64_t *stride, int64_t *lo, int64_t *hi)
{
    *lo = *hi = offset;
    for (int d = 0; d < x->ndims; d++) {
        int64_t way;
        if (x->extent[d] < 1 || !ap_mul_i64(x->extent[d] - 1, stride[d], &way) ||
            !ap_add_i64(way < 0 ? *lo : *hi, way, way < 0 ? lo : hi))
            return false;
    }
    return true;
}

static bool check_piece(verifier *v, const ap_channel *c, const ap_piece *x)
{
    const ap_local *from = v->p->stages.at[c->src_stage], *to = v->p->stages.at[c->dst_stage];
    int64_t lo, hi;
    bool ranks = x->src_rank >= from->first_rank && x->src_rank < from->first_rank + from->nranks &&
                 x->dst_rank >= to->first_rank && x->dst_rank < to->first_rank + to->nranks;
    if (!ranks || !box_range(x, x->src_offset, x->src_stride, &lo, &hi) || lo < 0 ||
        hi >= end_port(v, c, true)->dim[0] || !box_range(x, x->dst_offset, x->dst_stride, &lo, &hi) || lo < 0 ||
        hi >= end_port(v, c, false)->dim[0]) {
        complain(v, "channel %%%s: a piece from rank %" PRId32 " to %" PRId32 " is not between the slots",
                 name(v, c->name), x->src_rank, x->dst_rank);
        return false;
    }
    return true;
}

/* Sets bits at ... at + n - 1, word by word; how many were set before. */
static int64_t set_bits(uint64_t *bits, int64_t at, int64_t n)
{
    int64_t before = 0;
    while (n > 0) {
        int64_t low = at % 64, take = ap_min_i64(64 - low, n);
        uint64_t mask = (take == 64 ? ~(uint64_t)0 : ((uint64_t)1 << take) - 1) << low;
        before += __builtin_popcountll(bits[at / 64] & mask);
        bits[at / 64] |= mask;
        at += take;
        n -= take;
    }
    return before;
}

static int64_t mark(const ap_piece *x, uint64_t *filled)
{
    int64_t index[AP_MAX_LOOPS] = {0}, twice = 0;
    int loops = x->ndims && x->dst_stride[x->ndims - 1] == 1 ? x->ndims - 1 : x->ndims;
    int64_t run = loops < x->ndims ? x->extent[loops] : 1;
    for (;;) {
        int64_t at = x->dst_offset;
        for (int d = 0; d < loops; d++)
            at += index[d] * x->dst_stride[d];
        twice += set_bits(filled, at, run);
        int d = loops - 1;
        while (d >= 0 && ++index[d] == x->extent[d])
            index[d--] = 0;
        if (d < 0)
            return twice;
    }
}

/* Every element of a rank's slot is filled once, one bit each. Pieces stand in order of destination ranks or not. */
static void check_cover(verifier *v, const ap_channel *c, int32_t rank, uint64_t *filled, int64_t words)
{
    int64_t twice = 0, count = 0;
    memset(filled, 0, (size_t)words * sizeof *filled);
    for (uint32_t i = 0; i < c->npieces; i++)
        if (c->piece[i].dst_rank == rank)
            twice += mark(&c->piece[i], filled);
    for (int64_t w = 0; w < words; w++)
        count += __builtin_popcountll(filled[w]);
    if (twice)
        complain(v, "channel %%%s: on rank %" PRId32 " %" PRId64 " elements arrive twice", name(v, c->name), rank,
                 twice);
    else if (!c->padded && count != end_port(v, c, false)->dim[0])
        complain(v, "channel %%%s: on rank %" PRId32 " %" PRId64 " of %" PRId64 " elements arrive", name(v, c->name),
                 rank, count, end_port(v, c, false)->dim[0]);
}

static void check_channel(verifier *v, const ap_channel *c)
{
    bool good = check_end(v, c, true), good_too = check_end(v, c, false);
    if (!good || !good_too)
        return;
    for (uint32_t i = 0; i < c->npieces; i++)
        if (!check_piece(v, c, &c->piece[i]))
            return;
    const ap_local *to = v->p->stages.at[c->dst_stage];
    int64_t words = end_port(v, c, false)->dim[0] / 64 + 1;
    if (words > MAX_WORDS / to->nranks) {
        complain(v, "channel %%%s: slots of %" PRId64 " elements on %" PRId32 " ranks are too large to be checked",
                 name(v, c->name), end_port(v, c, false)->dim[0], to->nranks);
        return;
    }
    uint64_t *filled = AP_NEW_ARRAY(&v->p->ctx->scratch, uint64_t, words);
    for (int32_t r = 0; r < to->nranks; r++)
        check_cover(v, c, to->first_rank + r, filled, words);
}

/* Every slot of a stage has its channel: an argument one, a result one or more. */
static void check_joined(verifier *v, uint32_t s)
{
    const ap_local *l = v->p->stages.at[s];
    for (uint32_t i = 0; i < l->inputs.len + l->outputs.len; i++) {
        bool input = i < l->inputs.len;
        uint32_t port = input ? i : i - l->inputs.len, n = 0;
        const ap_port *at = input ? &l->inputs.at[port] : &l->outputs.at[port];
        for (uint32_t k = 0; k < v->p->channels.len; k++) {
            const ap_channel *c = &v->p->channels.at[k];
            n += input ? c->dst_stage == s && c->dst_input == port : c->src_stage == s && c->src_output == port;
        }
        if (at->slot && (input ? n != 1 : n == 0))
            complain(v, "stage @%s: slot %%%s has %" PRIu32 " channels", name(v, l->name), name(v, at->name), n);
    }
}

/* ---- outputs ---- */

/* Marks the box as the rank with these coordinates writes it; false when it leaves the output. */
static bool mark_box(const ap_written *w, const int32_t *coords, int64_t count, uint64_t *bits)
{
    ap_piece x = {.ndims = w->ndims, .dst_offset = ap_affine_at(&w->offset, coords)};
    int64_t lo, hi;
    for (int d = 0; d < w->ndims; d++) {
        x.extent[d] = ap_counts_at(w->ncounts, w->count, d, w->extent[d], coords, 0);
        x.dst_stride[d] = w->stride[d];
        if (x.extent[d] == 0)
            return true;
    }
    if (!box_range(&x, x.dst_offset, x.dst_stride, &lo, &hi) || lo < 0 || hi >= count)
        return false;
    mark(&x, bits);
    return true;
}

/* All that a rank of the stage writes to the output in all microbatches. */
static bool mark_rank(const ap_local *l, const ap_written_list *all, uint32_t port, int32_t place, int64_t count,
                      uint64_t *bits)
{
    for (int32_t mb = 0; mb < ap_local_microbatches(l); mb++) {
        int32_t coords[AP_MAX_AXES] = {0};
        for (int a = 0; a < l->naxes; a++)
            coords[a] = (mb * l->nranks + place) / l->axis_stride[a] % l->axis_size[a];
        for (uint32_t i = 0; i < all->len; i++) {
            bool here = all->at[i].output == port;
            for (int a = 0; a < l->naxes; a++)
                here = here && (!(all->at[i].when_mask >> a & 1) || coords[a] == 0);
            if (here && !mark_box(&all->at[i], coords, count, bits))
                return false;
        }
    }
    return true;
}

/* Every element of an output is written, by one rank: where memory is not shared, boxes are brought together. */
static void check_output(verifier *v, uint32_t s, uint32_t port)
{
    const ap_local *l = v->p->stages.at[s];
    const ap_port *of = &l->outputs.at[port];
    ap_written_list written;
    int64_t count = 1, there = 0, twice = 0;
    for (int d = 0; d < of->rank; d++)
        count = ap_sat_mul(count, of->dim[d]);
    if (of->slot || count > MAX_WORDS)
        return;
    if (ap_local_written(l, &v->p->ctx->scratch, &written) != AP_OK) {
        v->bad = true;
        return;
    }
    int64_t words = count / 64 + 1;
    uint64_t *bits = AP_NEW_ARRAY(&v->p->ctx->scratch, uint64_t, 2 * words), *all = bits + words;
    for (int32_t r = 0; r < l->nranks; r++) {
        memset(bits, 0, (size_t)words * sizeof *bits);
        if (!mark_rank(l, &written, port, r, count, bits)) {
            complain(v, "stage @%s leaves output \"%s\"", name(v, l->name), name(v, of->name));
            return;
        }
        for (int64_t w = 0; w < words; w++) {
            twice += __builtin_popcountll(all[w] & bits[w]);
            all[w] |= bits[w];
        }
    }
    for (int64_t w = 0; w < words; w++)
        there += __builtin_popcountll(all[w]);
    if (twice || there != count)
        complain(v, "output \"%s\": of %" PRId64 " elements %" PRId64 " are written, %" PRId64 " by several ranks",
                 name(v, of->name), count, there, twice);
}

/* ---- slots apart ---- */

typedef struct range {
    uint32_t stage, port;
    bool output;
    int64_t lo, hi;
} range;

static range slots_of(const ap_channel *c, bool source)
{
    if (source)
        return (range){c->src_stage, c->src_output, true, c->src_at, c->src_at + c->src_bytes * c->src_depth};
    return (range){c->dst_stage, c->dst_input, false, c->dst_at, c->dst_at + c->dst_bytes * c->dst_depth};
}

/* Slots of one stage do not overlap, but those of one result are the same for all its channels. */
static void check_apart(verifier *v)
{
    for (uint32_t i = 0; i < 2 * v->p->channels.len; i++)
        for (uint32_t j = 0; j < i; j++) {
            const ap_channel *a = &v->p->channels.at[i / 2];
            range x = slots_of(a, i % 2), y = slots_of(&v->p->channels.at[j / 2], j % 2);
            if (x.stage != y.stage)
                continue;
            bool one = x.output && y.output && x.port == y.port;
            const ap_channel *b = &v->p->channels.at[j / 2];
            bool same = a->src_at == b->src_at && a->src_bytes == b->src_bytes && a->src_depth == b->src_depth;
            if (one ? !same : x.lo < y.hi && y.lo < x.hi)
                complain(v, "slots of %%%s and %%%s on stage @%s overlap, or differ where they are one",
                         name(v, a->name), name(v, b->name), name(v, v->p->stages.at[x.stage]->name));
        }
}

ap_status ap_program_verify(ap_program *p)
{
    verifier v = {.p = p};
    check_ranks(&v);
    check_stages(&v);
    check_kernels(&v);
    for (uint32_t i = 0; i < p->channels.len; i++)
        check_channel(&v, &p->channels.at[i]);
    for (uint32_t s = 0; s < p->stages.len; s++)
        check_joined(&v, s);
    for (uint32_t s = 0; s < p->stages.len && !v.bad; s++)
        for (uint32_t i = 0; i < p->stages.at[s]->outputs.len; i++)
            check_output(&v, s, i);
    if (!v.bad)
        check_apart(&v);
    if (p->lists.len != p->stages.len)
        complain(&v, "%" PRIu32 " lists for %" PRIu32 " stages", p->lists.len, p->stages.len);
    if (v.bad)
        return AP_ERR_MODEL;
    ap_wiring w = ap_program_wiring(p, &p->ctx->scratch);
    return ap_lists_check(&w, p->lists.at);
}
