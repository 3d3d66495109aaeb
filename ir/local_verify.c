/* Rules of local programs: no kernel or exchange ever leaves its buffer on any rank, nothing writes into
 * parameters or inputs, groups partition the ranks. Numbers are computed as the generated code does, point by
 * point (rank by rank, and microbatch by microbatch) where they depend on it, with overflow counted as leaving. */
#include "ir/local_text.h"

#include "ir/print.h"

#include <inttypes.h>
#include <string.h>

enum { MAX_COUNTED = 1024 }; /* members of a group whose pairs are looked at one by one */

typedef struct verifier {
    const ap_local *p;
    ap_status status;
    const char *what; /* "call @softmax_2", for messages */
    ap_loc loc;
    bool *kernel_ok;
} verifier;

static void complain(verifier *v, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static void complain(verifier *v, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    v->status = ap_error_of(v->p->ctx, v->loc, v->what, fmt, args);
    va_end(args);
}

static const char *name_of(const ap_local *p, const char *prefix, ap_name n)
{
    ap_text t;
    ap_text_init(&t, &p->ctx->arena);
    ap_text_add(&t, prefix);
    ap_print_name(p->ctx, n, &t);
    return ap_text_str(&t);
}

/* ---- numbers that depend on rank and microbatch ---- */

static int32_t coordinate(const ap_local *p, int32_t point, int axis)
{
    return point / p->axis_stride[axis] % p->axis_size[axis];
}

static int32_t microbatches(const ap_local *p)
{
    return p->ntime ? p->axis_size[0] : 1;
}

static int32_t count_points(const ap_local *p)
{
    return p->nranks * microbatches(p);
}

/* "rank 3", "rank 3, microbatch 1" */
static const char *point_text(const ap_local *p, int32_t point)
{
    ap_text t;
    ap_text_init(&t, &p->ctx->arena);
    ap_text_addf(&t, "rank %" PRId32, point % p->nranks);
    if (p->ntime)
        ap_text_addf(&t, ", microbatch %" PRId32, point / p->nranks);
    return ap_text_str(&t);
}

static bool affine_at(const ap_local *p, const ap_affine *a, int32_t point, int64_t *out)
{
    *out = a->base;
    for (int i = 0; i < p->naxes; i++) {
        int64_t x;
        if (!ap_mul_i64(a->step[i], coordinate(p, point, i), &x) || !ap_add_i64(*out, x, out))
            return false;
    }
    return true;
}

static bool affine_is_plain(const ap_affine *a)
{
    for (int i = 0; i < AP_MAX_AXES; i++)
        if (a->step[i])
            return false;
    return true;
}

static bool affine_in_axes(const ap_local *p, const ap_affine *a)
{
    for (int i = p->naxes; i < AP_MAX_AXES; i++)
        if (a->step[i])
            return false;
    return true;
}

static bool runs_on(const ap_local *p, const ap_instr *in, int32_t point)
{
    bool zero = true;
    for (int a = 0; a < p->naxes; a++)
        if (in->when_mask >> a & 1)
            zero = zero && coordinate(p, point, a) == 0;
    return in->when == AP_WHEN_ALWAYS || zero == (in->when == AP_WHEN_ZERO);
}

/* ---- places ---- */

static int64_t port_count(const ap_port *port)
{
    int64_t n = 1;
    for (int d = 0; d < port->rank; d++)
        n = ap_sat_mul(n, port->dim[d]);
    return n;
}

/* Bytes at a place, and its element type (NONE: any). */
static bool place_of(const ap_local *p, const ap_ref *r, int64_t *out_bytes, ap_dtype *out_dtype)
{
    const ap_port *port = NULL;
    *out_dtype = AP_DTYPE_NONE;
    switch (r->space) {
    case AP_SPACE_ARENA:
        *out_bytes = p->arena_bytes;
        return true;
    case AP_SPACE_PARAM:
        if (r->index >= p->params.len)
            return false;
        *out_bytes = p->params.at[r->index].bytes;
        *out_dtype = p->params.at[r->index].port.dtype;
        return true;
    case AP_SPACE_INPUT:
        port = r->index < p->inputs.len ? &p->inputs.at[r->index] : NULL;
        break;
    case AP_SPACE_OUTPUT:
        port = r->index < p->outputs.len ? &p->outputs.at[r->index] : NULL;
        break;
    default:
        break;
    }
    if (!port)
        return false;
    *out_bytes = ap_sat_mul(port_count(port), ap_dtype_bytes(port->dtype));
    *out_dtype = port->dtype;
    return true;
}

/* First byte and the one behind the last, from the beginning of the space (or of the caller's tensor). */
static bool byte_range(const ap_local *p, const ap_ref *r, const ap_reach *reach, int esize, int32_t point, int64_t *lo,
                       int64_t *hi)
{
    int64_t offset, base = r->space == AP_SPACE_ARENA ? r->byte_offset : 0;
    return affine_at(p, &r->offset, point, &offset) && ap_add_i64(offset, reach->lo, lo) &&
           ap_add_i64(offset, reach->hi, hi) && ap_add_i64(*hi, 1, hi) && ap_mul_i64(*lo, esize, lo) &&
           ap_mul_i64(*hi, esize, hi) && ap_add_i64(*lo, base, lo) && ap_add_i64(*hi, base, hi);
}

static bool check_place(verifier *v, const ap_ref *r, const char *what, uint32_t i, ap_dtype dtype, bool written,
                        int64_t *out_bytes)
{
    ap_dtype has;
    if (!place_of(v->p, r, out_bytes, &has)) {
        complain(v, "%s %" PRIu32 " is at no place", what, i);
        return false;
    }
    if (has != AP_DTYPE_NONE && has != dtype)
        complain(v, "%s %" PRIu32 " has another element type than its place", what, i);
    if (written && (r->space == AP_SPACE_PARAM || r->space == AP_SPACE_INPUT))
        complain(v, "%s %" PRIu32 " is written, but lies in a parameter or an input", what, i);
    if (r->space == AP_SPACE_ARENA && (r->byte_offset < 0 || r->byte_offset % AP_LOCAL_ALIGN))
        complain(v, "%s %" PRIu32 " lies at byte %" PRId64 " of the arena, which is no multiple of %d", what, i,
                 r->byte_offset, AP_LOCAL_ALIGN);
    if (!affine_in_axes(v->p, &r->offset)) {
        complain(v, "%s %" PRIu32 " depends on an axis that does not exist", what, i);
        return false;
    }
    return true;
}

static bool check_bytes(verifier *v, const ap_ref *r, uint32_t i, ap_dtype dtype, const ap_reach *reach, int32_t point,
                        int64_t bytes)
{
    int64_t lo, hi;
    if (!reach->any)
        return true;
    if (byte_range(v->p, r, reach, ap_dtype_bytes(dtype), point, &lo, &hi) && lo >= 0 && hi <= bytes)
        return true;
    complain(v, "operand %" PRIu32 " leaves the %s on %s: bytes %" PRId64 " to %" PRId64 " of %" PRId64, i,
             ap_space_text[r->space], point_text(v->p, point), lo, hi, bytes);
    return false;
}

/* Every rank that runs the instruction stays inside. */
static void check_ref(verifier *v, const ap_instr *in, uint32_t i, ap_dtype dtype, bool written, const ap_reach *reach)
{
    const ap_local *p = v->p;
    const ap_ref *r = &in->ref[i];
    int64_t bytes;
    if (!check_place(v, r, "operand", i, dtype, written, &bytes) || !reach->any)
        return;
    int32_t ranks = affine_is_plain(&r->offset) ? 1 : count_points(p);
    for (int32_t point = 0; point < ranks; point++) {
        if (ranks > 1 && !runs_on(p, in, point))
            continue;
        if (!check_bytes(v, r, i, dtype, reach, point, bytes))
            return;
    }
}

/* ---- instructions ---- */

static void check_when(verifier *v, const ap_instr *in)
{
    if (in->when > AP_WHEN_NOT_ZERO)
        complain(v, "its condition is of no kind");
    else if (in->when != AP_WHEN_ALWAYS && (in->when_mask == 0 || in->when_mask >> v->p->naxes))
        complain(v, "its condition names no axis");
    if (in->picoseconds < 0)
        complain(v, "its predicted time is negative");
}

/* Bytes from operand a of the call to operand b; false: on overflow. */
static bool distance(const ap_local *p, const ap_instr *in, const ap_kernel *k, uint32_t a, uint32_t b, int32_t point,
                     int64_t *out)
{
    const ap_reach start = {.any = true};
    int64_t at[2], end;
    return byte_range(p, &in->ref[a], &start, ap_dtype_bytes(k->operand[a].dtype), point, &at[0], &end) &&
           byte_range(p, &in->ref[b], &start, ap_dtype_bytes(k->operand[b].dtype), point, &at[1], &end) &&
           ap_add_i64(at[1], at[0] == INT64_MIN ? INT64_MAX : -at[0], out);
}

/* What a call writes on the rank lies apart from its other operands, or takes their place element by element. */
static bool check_sharing(verifier *v, const ap_instr *in, const ap_kernel *k, const int64_t *ints, int32_t point)
{
    for (uint32_t w = 0; w < in->nrefs; w++) {
        for (uint32_t i = 0; i < in->nrefs; i++) {
            bool arena = in->ref[w].space == AP_SPACE_ARENA && in->ref[i].space == AP_SPACE_ARENA;
            bool seen = k->operand[i].written && i <= w;
            int64_t delta;
            if (!arena || !k->operand[w].written || seen || !distance(v->p, in, k, w, i, point, &delta) ||
                ap_local_may_share(k, ints, w, i, delta))
                continue;
            complain(v, "operand %" PRIu32 " overwrites operand %" PRIu32 " on %s", w, i, point_text(v->p, point));
            return false;
        }
    }
    return true;
}

/* A call whose loops or rows depend on the rank. */
static void check_call_by_rank(verifier *v, const ap_instr *in, const ap_kernel *k)
{
    const ap_local *p = v->p;
    int64_t *ints = AP_NEW_ARRAY(&p->ctx->scratch, int64_t, in->nints), bytes;
    for (int32_t point = 0; point < count_points(p); point++) {
        if (!runs_on(p, in, point))
            continue;
        for (uint32_t i = 0; i < in->nints; i++) {
            if (!affine_at(p, &in->ints[i].value, point, &ints[i])) {
                complain(v, "int %" PRIu32 " is too large on %s", i, point_text(p, point));
                return;
            }
            ints[i] = ap_max_i64(in->ints[i].lo, ap_min_i64(ints[i], in->ints[i].hi));
        }
        if (!ap_local_turns_fit(k, ints)) {
            complain(v, "a loop has more turns than its extent, or fewer than none, on %s", point_text(p, point));
            return;
        }
        for (uint32_t i = 0; i < in->nrefs; i++) {
            ap_reach reach;
            if (!ap_local_kernel_reach(k, ints, i, &reach)) {
                complain(v, "operand %" PRIu32 " reaches further than numbers go", i);
                return;
            }
            if (!check_place(v, &in->ref[i], "operand", i, k->operand[i].dtype, k->operand[i].written, &bytes) ||
                !check_bytes(v, &in->ref[i], i, k->operand[i].dtype, &reach, point, bytes))
                return;
        }
        if (!check_sharing(v, in, k, ints, point))
            return;
    }
}

/* Is the distance between any two operands the same on all ranks? */
static bool moves_as_one(const ap_instr *in, const ap_kernel *k)
{
    for (uint32_t i = 1; i < in->nrefs; i++)
        if (memcmp(in->ref[i].offset.step, in->ref[0].offset.step, sizeof in->ref[0].offset.step) != 0 ||
            ap_dtype_bytes(k->operand[i].dtype) != ap_dtype_bytes(k->operand[0].dtype))
            return false;
    return true;
}

int64_t ap_local_kept_bytes(const ap_local *p)
{
    int64_t kept = p->param_bytes;
    for (uint32_t i = 0; i < p->params.len; i++) {
        if (p->params.at[i].store.kind == AP_STORE_PREPARED && p->params.at[i].byte_offset < kept)
            kept = p->params.at[i].byte_offset;
    }
    return kept;
}

/* A parameter that is prepared is read as the weights of convolutions, from its beginning. */
static bool prepared_match(const ap_local *p, const ap_instr *in, const ap_kernel *k)
{
    for (uint32_t i = 0; i < in->nrefs; i++) {
        const ap_ref *r = &in->ref[i];
        if (r->space != AP_SPACE_PARAM || r->index >= p->params.len ||
            p->params.at[r->index].store.kind != AP_STORE_PREPARED)
            continue;
        if (!k || k->kind != AP_KERNEL_CONV || i != 1 || !affine_is_plain(&r->offset) || r->offset.base != 0)
            return false;
    }
    return true;
}

/* A parameter in panels is read as B of products that take panels of its size, and these read nothing else. */
static bool panels_match(const ap_local *p, const ap_instr *in, const ap_kernel *k)
{
    for (uint32_t i = 0; i < in->nrefs; i++) {
        const ap_ref *r = &in->ref[i];
        bool wanted = k && k->kind == AP_KERNEL_GEMM && k->gemm.panels && i == 1;
        const ap_local_param *w =
            r->space == AP_SPACE_PARAM && r->index < p->params.len ? &p->params.at[r->index] : NULL;
        if (wanted != (w && w->store.kind == AP_STORE_PANELS))
            return false;
        if (!wanted)
            continue;
        int64_t size = ap_sat_mul(w->store.k, w->store.n);
        bool whole = affine_is_plain(&r->offset) && (size ? r->offset.base % size == 0 : r->offset.base == 0);
        if (!whole || w->store.k != k->gemm.k || w->store.n != k->gemm.n)
            return false;
    }
    return true;
}

static void check_call(verifier *v, const ap_instr *in)
{
    const ap_local *p = v->p;
    if (in->kernel >= p->kernels.len) {
        complain(v, "it names no kernel");
        return;
    }
    const ap_kernel *k = &p->kernels.at[in->kernel];
    v->what = name_of(p, "call @", k->name);
    if (!v->kernel_ok[in->kernel])
        return;
    if (in->nrefs != k->noperands || in->nints != k->nints) {
        complain(v, "%" PRIu32 " operands and %" PRIu32 " ints for a kernel with %" PRIu32 " and %" PRIu32, in->nrefs,
                 in->nints, k->noperands, k->nints);
        return;
    }
    if (!panels_match(p, in, k)) {
        complain(v, "a parameter in panels is no operand for this kernel, or another one is none");
        return;
    }
    if (!prepared_match(p, in, k)) {
        complain(v, "a parameter that is prepared is there for the weights of a convolution only, from its beginning");
        return;
    }
    for (uint32_t i = 0; i < in->nints; i++)
        if (!affine_in_axes(p, &in->ints[i].value)) {
            complain(v, "int %" PRIu32 " depends on an axis that does not exist", i);
            return;
        }
    if (in->nints) {
        check_call_by_rank(v, in, k);
        return;
    }
    for (uint32_t i = 0; i < in->nrefs; i++) {
        ap_reach reach;
        if (ap_local_kernel_reach(k, NULL, i, &reach))
            check_ref(v, in, i, k->operand[i].dtype, k->operand[i].written, &reach);
        else
            complain(v, "operand %" PRIu32 " reaches further than numbers go", i);
    }
    int32_t ranks = moves_as_one(in, k) ? 1 : count_points(p);
    for (int32_t point = 0; v->status == AP_OK && point < ranks; point++)
        if ((ranks == 1 || runs_on(p, in, point)) && !check_sharing(v, in, k, NULL, point))
            return;
}

/* All turns of the box, at every position in the group. */
static bool exchange_reach(const ap_exchange *x, const int64_t *stride, int32_t size, int64_t per_position,
                           ap_reach *out)
{
    *out = (ap_reach){.any = true};
    for (int d = 0; d < x->ndims; d++)
        if (!ap_reach_loop(out, x->extent[d], stride[d]))
            return false;
    return ap_reach_loop(out, size, per_position);
}

/* Elements of dimension `dim` that rank `rank` sees of the box of peer p. */
static bool count_at(const ap_local *p, uint8_t n, const ap_count *count, int dim, int32_t point, int32_t peer,
                     int64_t *extent)
{
    for (uint8_t i = 0; i < n; i++) {
        int64_t left, less;
        if (count[i].dim != dim)
            continue;
        if (!affine_at(p, &count[i].value, point, &left) || !ap_mul_i64(count[i].per_peer, -(int64_t)peer, &less) ||
            !ap_add_i64(left, less, &left))
            return false;
        *extent = ap_max_i64(0, ap_min_i64(*extent, left));
    }
    return true;
}

/* Widens by the box that the rank gets from position `peer`, at `offset`. */
static bool add_box(const ap_local *p, const ap_exchange *x, const int64_t *stride, int32_t point, int32_t peer,
                    int64_t per_position, int32_t position, ap_reach *all)
{
    ap_reach r = {.any = true};
    int64_t at;
    for (int d = 0; d < x->ndims; d++) {
        int64_t extent = x->extent[d];
        if (!count_at(p, x->ncounts, x->count, d, point, peer, &extent) || !ap_reach_loop(&r, extent, stride[d]))
            return false;
    }
    if (!ap_mul_i64(per_position, position, &at) || !ap_add_i64(r.lo, at, &r.lo) || !ap_add_i64(r.hi, at, &r.hi))
        return false;
    if (!r.any)
        return true;
    all->lo = all->any ? ap_min_i64(all->lo, r.lo) : r.lo;
    all->hi = all->any ? ap_max_i64(all->hi, r.hi) : r.hi;
    all->any = true;
    return true;
}

/* An exchange whose boxes depend on the ranks: what each of them gives, and where it receives. */
static void check_exchange_by_rank(verifier *v, const ap_instr *in)
{
    const ap_local *p = v->p;
    const ap_exchange *x = &in->exchange;
    const ap_group *g = &p->groups.at[x->group];
    int64_t me = ap_exchange_has_me(x->kind) ? x->src_me : 0, peer = ap_exchange_has_peer(x->kind) ? x->dst_peer : 0;
    int64_t src_bytes, dst_bytes;
    if (!check_place(v, &in->ref[0], "operand", 0, x->dtype, false, &src_bytes) ||
        !check_place(v, &in->ref[1], "operand", 1, x->dtype, true, &dst_bytes))
        return;
    for (int32_t i = 0; i < count_points(p); i++) {
        int32_t now = i / p->nranks * p->nranks, at = i % p->nranks, point = now + g->rank[at];
        const int32_t *list = g->rank + at / g->size * g->size;
        ap_reach src = {0}, dst = {0};
        int64_t lo[2], hi[2];
        bool ok = true;
        for (int32_t q = 0; ok && q < g->size; q++)
            ok = add_box(p, x, x->src_stride, now + list[q], at % g->size, me, q, &src) &&
                 add_box(p, x, x->dst_stride, point, q, peer, q, &dst);
        if (!ok) {
            complain(v, "it reaches further than numbers go");
            return;
        }
        if (!check_bytes(v, &in->ref[0], 0, x->dtype, &src, point, src_bytes) ||
            !check_bytes(v, &in->ref[1], 1, x->dtype, &dst, point, dst_bytes))
            return;
        bool both = src.any && dst.any && in->ref[0].space == AP_SPACE_ARENA && in->ref[1].space == AP_SPACE_ARENA;
        if (both && byte_range(p, &in->ref[0], &src, ap_dtype_bytes(x->dtype), point, &lo[0], &hi[0]) &&
            byte_range(p, &in->ref[1], &dst, ap_dtype_bytes(x->dtype), point, &lo[1], &hi[1]) && lo[0] < hi[1] &&
            lo[1] < hi[0]) {
            complain(v, "source and destination overlap on %s", point_text(p, point));
            return;
        }
    }
}

/* Counts are of dimensions that exist, over axes that exist. */
static bool counts_fit(const ap_local *p, uint8_t n, const ap_count *count, int ndims)
{
    for (uint8_t i = 0; i < n; i++)
        if (count[i].dim >= ndims || !affine_in_axes(p, &count[i].value))
            return false;
    return true;
}

static void check_overlap(verifier *v, const ap_instr *in, const ap_reach *src, const ap_reach *dst)
{
    const ap_local *p = v->p;
    int esize = ap_dtype_bytes(in->exchange.dtype);
    if (in->ref[0].space != AP_SPACE_ARENA || in->ref[1].space != AP_SPACE_ARENA || !src->any || !dst->any)
        return;
    if (ap_exchange_in_place(&in->exchange) && in->ref[0].byte_offset == in->ref[1].byte_offset &&
        !memcmp(&in->ref[0].offset, &in->ref[1].offset, sizeof in->ref[0].offset))
        return;
    for (int32_t point = 0; point < count_points(p); point++) {
        int64_t lo0, hi0, lo1, hi1;
        if (!byte_range(p, &in->ref[0], src, esize, point, &lo0, &hi0) ||
            !byte_range(p, &in->ref[1], dst, esize, point, &lo1, &hi1))
            return; /* reported already */
        if (lo0 < hi1 && lo1 < hi0) {
            complain(v, "source and destination overlap on %s", point_text(p, point));
            return;
        }
    }
}

static void check_exchange(verifier *v, const ap_instr *in)
{
    const ap_exchange *x = &in->exchange;
    ap_reach src, dst;
    v->what = x->kind < AP_EXCHANGE_KIND_COUNT ? ap_exchange_text[x->kind] : "exchange";
    if (x->kind >= AP_EXCHANGE_KIND_COUNT || in->nrefs != 2 || x->dtype <= AP_DTYPE_NONE ||
        x->dtype >= AP_DTYPE_COUNT || x->ndims > AP_MAX_LOOPS || x->group >= v->p->groups.len) {
        complain(v, "it has no kind, element type, group or places");
        return;
    }
    if (ap_exchange_folds(x->kind) && x->fold >= AP_PARTIAL_COUNT)
        complain(v, "it folds in no known way");
    if (in->when != AP_WHEN_ALWAYS)
        complain(v, "an exchange runs on every rank, without condition");
    for (int d = 0; d < x->ndims; d++)
        if (x->extent[d] < 0)
            complain(v, "its box has a negative extent");
    if (!counts_fit(v->p, x->ncounts, x->count, x->ndims)) {
        complain(v, "a count is of no dimension or over no axis");
        return;
    }
    if (!panels_match(v->p, in, NULL) || !prepared_match(v->p, in, NULL)) {
        complain(v, "it reads a parameter that is stored in panels or prepared");
        return;
    }
    int32_t size = v->p->groups.at[x->group].size;
    if (x->ncounts && size > MAX_COUNTED) {
        complain(v, "counts in a group of more than %d ranks", MAX_COUNTED);
        return;
    }
    if (x->ncounts) {
        check_exchange_by_rank(v, in);
        return;
    }
    if (!exchange_reach(x, x->src_stride, size, ap_exchange_has_me(x->kind) ? x->src_me : 0, &src) ||
        !exchange_reach(x, x->dst_stride, size, ap_exchange_has_peer(x->kind) ? x->dst_peer : 0, &dst)) {
        complain(v, "it reaches further than numbers go");
        return;
    }
    ap_status before = v->status;
    v->status = AP_OK;
    check_ref(v, in, 0, x->dtype, false, &src);
    check_ref(v, in, 1, x->dtype, true, &dst);
    if (v->status == AP_OK)
        check_overlap(v, in, &src, &dst);
    v->status = v->status == AP_OK ? before : v->status;
}

static void check_instr(verifier *v, uint32_t i)
{
    const ap_instr *in = &v->p->instrs.at[i];
    v->loc = in->loc;
    v->what = ap_name_str(v->p->ctx, ap_name_format(v->p->ctx, "instruction %" PRIu32, i));
    check_when(v, in);
    if (in->kind == AP_INSTR_CALL)
        check_call(v, in);
    else if (in->kind == AP_INSTR_EXCHANGE)
        check_exchange(v, in);
    else
        complain(v, "it is of no kind");
}

/* ---- the rest of the record ---- */

static bool check_head(verifier *v)
{
    const ap_local *p = v->p;
    int64_t ranks = 1;
    v->what = "program";
    if (p->nranks < 1 || p->nranks > AP_LOCAL_MAX_RANKS || p->naxes > AP_MAX_AXES) {
        complain(v, "%" PRId32 " ranks and %d axes; at most %d and %d are possible", p->nranks, p->naxes,
                 AP_LOCAL_MAX_RANKS, AP_MAX_AXES);
        return false;
    }
    for (int a = 0; a < p->naxes; a++) {
        if (p->axis_size[a] < 1 || p->axis_stride[a] < 1) {
            complain(v, "axis %d has no size or stride", a);
            return false;
        }
        ranks = a < p->ntime ? ranks : ap_sat_mul(ranks, p->axis_size[a]);
    }
    if (ranks != p->nranks)
        complain(v, "the axes make %" PRId64 " ranks, not %" PRId32, ranks, p->nranks);
    if (p->ntime > p->naxes || p->ntime > 1 || (p->ntime && p->axis_stride[0] != p->nranks))
        complain(v, "time is not the first axis, around the ranks");
    else if (ap_sat_mul(ranks, microbatches(p)) > AP_LOCAL_MAX_POINTS)
        complain(v, "%" PRId64 " ranks times %" PRId32 " microbatches; at most %d are possible", ranks, microbatches(p),
                 AP_LOCAL_MAX_POINTS);
    if (p->first_rank < 0)
        complain(v, "its first rank is negative");
    if (p->arena_bytes < 0 || p->param_bytes < 0)
        complain(v, "the arena or the parameter space has a negative size");
    if (p->live_bytes < 0 || p->live_bytes > p->arena_bytes)
        complain(v, "the arena holds more than its size");
    return v->status == AP_OK;
}

static bool check_port(verifier *v, const ap_port *port)
{
    bool ok = port->dtype > AP_DTYPE_NONE && port->dtype < AP_DTYPE_COUNT && port->rank <= AP_MAX_RANK;
    for (int d = 0; ok && d < port->rank; d++)
        ok = port->dim[d] >= 0;
    if (!ok)
        complain(v, "it has no element type, or a negative extent");
    return ok;
}

static void check_param_data(verifier *v, const ap_local_param *w)
{
    int64_t esize = ap_dtype_bytes(w->port.dtype);
    int64_t want = w->data.kind == AP_DATA_SPLAT ? esize : ap_sat_mul(port_count(&w->port), esize);
    if (w->data.kind == AP_DATA_NONE)
        return;
    if (w->data.dtype != w->port.dtype)
        complain(v, "its data has another element type");
    else if (w->data.size != (uint64_t)want)
        complain(v, "it has %" PRIu64 " bytes of data, its shape needs %" PRId64, w->data.size, want);
}

/* The last factors of the box make n columns, those before them k rows. */
static bool store_fits(const ap_local_param *w)
{
    const int64_t want[2] = {w->store.n, w->store.k};
    int f = w->nfactors;
    if (w->store.kind != AP_STORE_PANELS)
        return w->store.kind == AP_STORE_PLAIN || w->store.kind == AP_STORE_PREPARED;
    for (int i = 0; i < 2; i++) {
        int64_t have = 1;
        while (f > 0 && have != want[i])
            have = ap_sat_mul(have, w->extent[--f]);
        if (have != want[i])
            return false;
    }
    return w->ncounts == 0;
}

/* A parameter is loaded once, for all microbatches. */
static bool is_timeless(const ap_local *p, const ap_local_param *w)
{
    bool ok = !p->ntime || w->offset.step[0] == 0;
    for (int i = 0; i < w->ncounts; i++)
        ok = ok && (!p->ntime || w->count[i].value.step[0] == 0);
    return ok;
}

/* The box that a rank reads lies in the logical tensor; its copy lies in the parameter space, by itself. */
static void check_param(verifier *v, uint32_t id)
{
    const ap_local *p = v->p;
    const ap_local_param *w = &p->params.at[id];
    ap_reach box = {.any = true};
    int64_t bytes, end;
    v->loc = w->loc;
    v->what = ap_name_str(p->ctx, ap_name_format(p->ctx, "param %" PRIu32, id));
    if (!check_port(v, &w->port))
        return;
    check_param_data(v, w);
    bytes = ap_dtype_bytes(w->port.dtype);
    bool ok = w->nfactors <= AP_MAX_FACTORS && affine_in_axes(p, &w->offset) &&
              counts_fit(p, w->ncounts, w->count, w->nfactors) && is_timeless(p, w);
    for (int f = 0; ok && f < w->nfactors; f++)
        ok = w->extent[f] >= 0 && ap_reach_loop(&box, w->extent[f], w->stride[f]) &&
             ap_mul_i64(bytes, w->extent[f], &bytes);
    if (!ok || bytes != w->bytes) {
        complain(v, "its box is not of %" PRId64 " bytes", w->bytes);
        return;
    }
    if (!store_fits(w))
        complain(v, "its box does not end in a matrix of %" PRId64 " x %" PRId64, w->store.k, w->store.n);
    for (int32_t rank = 0; rank < p->nranks && box.any; rank++) {
        int64_t first, last;
        ap_reach here = {.any = true};
        for (int f = 0; ok && w->ncounts && f < w->nfactors; f++) {
            int64_t extent = w->extent[f];
            ok = count_at(p, w->ncounts, w->count, f, rank, 0, &extent) && ap_reach_loop(&here, extent, w->stride[f]);
        }
        if (ok && w->ncounts && !here.any)
            continue;
        box = w->ncounts ? here : box;
        if (!ok || !affine_at(p, &w->offset, rank, &first) || !ap_add_i64(first, box.hi, &last) ||
            !ap_add_i64(first, box.lo, &first) || first < 0 || last >= port_count(&w->port)) {
            complain(v, "its box leaves the tensor on rank %" PRId32, rank);
            break;
        }
    }
    if (w->byte_offset < 0 || w->byte_offset % AP_LOCAL_ALIGN || !ap_add_i64(w->byte_offset, w->bytes, &end) ||
        end > p->param_bytes)
        complain(v, "it lies at byte %" PRId64 ", which is no multiple of %d or too far in %" PRId64 " bytes",
                 w->byte_offset, AP_LOCAL_ALIGN, p->param_bytes);
    if (w->store.kind != AP_STORE_PREPARED && w->byte_offset >= ap_local_kept_bytes(p) && w->bytes)
        complain(v, "it lies behind parameters that are not kept");
    for (uint32_t i = 0; i < id; i++) {
        const ap_local_param *o = &p->params.at[i];
        if (w->byte_offset < ap_sat_add(o->byte_offset, o->bytes) && o->byte_offset < ap_sat_add(w->byte_offset, bytes))
            complain(v, "it overlaps param %" PRIu32, i);
    }
}

static void check_group(verifier *v, uint32_t id)
{
    const ap_local *p = v->p;
    const ap_group *g = &p->groups.at[id];
    bool *seen = AP_NEW_ARRAY(&p->ctx->scratch, bool, p->nranks);
    v->what = ap_name_str(p->ctx, ap_name_format(p->ctx, "group %" PRIu32, id));
    if (g->count < 1 || g->size < 1 || (int64_t)g->count * g->size != p->nranks) {
        complain(v, "%" PRId32 " lists of %" PRId32 " ranks where there are %" PRId32, g->count, g->size, p->nranks);
        return;
    }
    for (int32_t i = 0; i < p->nranks; i++) {
        int32_t r = g->rank[i];
        if (r < 0 || r >= p->nranks || seen[r]) {
            complain(v, "rank %" PRId32 " occurs twice, or does not exist", r);
            return;
        }
        seen[r] = true;
    }
}

static void check_kernel(verifier *v, uint32_t id)
{
    const ap_local *p = v->p;
    const ap_kernel *k = &p->kernels.at[id];
    uint32_t sop;
    const char *fault;
    v->what = name_of(p, "kernel @", k->name);
    if (!ap_name_is_word(ap_name_str(p->ctx, k->name)))
        complain(v, "its name is no C identifier");
    for (uint32_t i = 0; i < id; i++)
        if (p->kernels.at[i].name == k->name)
            complain(v, "another kernel has the same name");
    fault = ap_local_kernel_fault(k, &sop);
    v->kernel_ok[id] = !fault;
    if (fault && sop != AP_NONE)
        complain(v, "operation %%%" PRIu32 ": %s", sop, fault);
    else if (fault)
        complain(v, "%s", fault);
}

ap_status ap_local_verify(const ap_local *p)
{
    verifier v = {.p = p};
    if (!check_head(&v))
        return v.status;
    v.kernel_ok = AP_NEW_ARRAY(&p->ctx->scratch, bool, p->kernels.len);
    for (uint32_t i = 0; i < p->inputs.len + p->outputs.len; i++) {
        bool input = i < p->inputs.len;
        const ap_port *port = input ? &p->inputs.at[i] : &p->outputs.at[i - p->inputs.len];
        v.what = name_of(p, input ? "input " : "output ", port->name);
        check_port(&v, port);
    }
    for (uint32_t i = 0; i < p->params.len; i++)
        check_param(&v, i);
    v.loc = 0;
    for (uint32_t i = 0; i < p->groups.len; i++)
        check_group(&v, i);
    for (uint32_t i = 0; i < p->kernels.len; i++)
        check_kernel(&v, i);
    if (v.status != AP_OK)
        return v.status;
    for (uint32_t i = 0; i < p->instrs.len; i++)
        check_instr(&v, i);
    return v.status;
}
