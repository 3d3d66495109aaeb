/* Operators that only move elements. Where a dimension keeps its elements together it is a view; see
 * ap_emit_reshape for what is left to `reshape`. */
#include "frontend/legalise.h"

#include <inttypes.h>

/* A list that is an attribute in old opsets and an input in new ones. -1: not given. */
static int ints_of(ap_legal *l, uint32_t input, const char *name, int64_t *out)
{
    if (ap_has_in(l, input))
        return ap_known_ints(l, ap_in(l, input), name, out, AP_MAX_RANK);
    return ap_attr_ints(l, name, out, AP_MAX_RANK);
}

static void resolve_reshape(ap_legal *l, const ap_dims *s, ap_dims *d)
{
    bool allow_zero = ap_attr_int(l, "allowzero", 0) != 0, zero = false;
    int64_t rest = 1;
    int infer = -1;
    for (int i = 0; i < d->rank && !l->status; i++) {
        if (d->at[i] == 0 && !allow_zero && i >= s->rank)
            ap_refuse(l, "entry %d of the shape copies a dimension that %s does not have", i, ap_dims_str(l, s));
        else if (d->at[i] == 0 && !allow_zero)
            d->at[i] = s->at[i];
        else if (d->at[i] == -1 && infer < 0)
            infer = i;
        else if (d->at[i] < 0)
            ap_refuse(l, "%s is no shape", ap_dims_str(l, d));
        else
            zero = zero || d->at[i] == 0;
        if (i != infer && !l->status)
            rest = ap_sat_mul(rest, d->at[i]);
    }
    if (infer < 0 || l->status)
        return;
    if (allow_zero && zero)
        ap_refuse(l, "with allowzero, a shape cannot hold both 0 and -1");
    else if (rest == 0 || ap_dims_count(s) % rest)
        ap_refuse(l, "the -1 of the shape %s cannot be found for %s", ap_dims_str(l, d), ap_dims_str(l, s));
    else
        d->at[infer] = ap_dims_count(s) / rest;
}

void ap_lower_reshape(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), d = {0};
    d.rank = ints_of(l, 1, "shape", d.at);
    if (d.rank < 0) {
        ap_refuse(l, "the shape is not given");
        return;
    }
    resolve_reshape(l, &s, &d);
    ap_set_out(l, 0, ap_emit_reshape(l, x, &d));
}

void ap_lower_transpose(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int64_t given[AP_MAX_RANK];
    int n = ap_attr_ints(l, "perm", given, AP_MAX_RANK), perm[AP_MAX_RANK];
    if (l->status)
        return;
    if (n >= 0 && n != s.rank) {
        ap_refuse(l, "perm has %d entries, the operand %d dimensions", n, s.rank);
        return;
    }
    if (n >= 0)
        ap_axes_mask_of(l, given, n, s.rank);
    for (int i = 0; i < s.rank && !l->status; i++)
        perm[i] = n < 0 ? s.rank - 1 - i : ap_axis(l, given[i], s.rank);
    ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_transpose(l, x, perm));
}

void ap_lower_squeeze(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), d = {0};
    int64_t axes[AP_MAX_RANK];
    int n = ints_of(l, 1, "axes", axes);
    uint32_t mask = n >= 0 ? ap_axes_mask_of(l, axes, n, s.rank) : 0;
    for (int i = 0; i < s.rank; i++) {
        bool drop = n >= 0 ? mask >> i & 1 : s.at[i] == 1;
        if (drop && s.at[i] != 1)
            ap_refuse(l, "axis %d of %s is not 1", i, ap_dims_str(l, &s));
        if (!drop)
            d.at[d.rank++] = s.at[i];
    }
    ap_set_out(l, 0, ap_emit_reshape(l, x, &d));
}

void ap_lower_unsqueeze(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), d = {0};
    int64_t axes[AP_MAX_RANK];
    int n = ints_of(l, 1, "axes", axes);
    if (!l->status && (n < 0 || s.rank + n > AP_MAX_RANK))
        ap_refuse(l, "axes are missing, or the result has more than %d dimensions", AP_MAX_RANK);
    if (l->status)
        return;
    uint32_t mask = ap_axes_mask_of(l, axes, n, s.rank + n);
    d.rank = s.rank + n;
    for (int i = 0, from = 0; i < d.rank && !l->status; i++)
        d.at[i] = mask >> i & 1 ? 1 : s.at[from++];
    ap_set_out(l, 0, ap_emit_reshape(l, x, &d));
}

void ap_lower_flatten(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x), d = {.rank = 2, .at = {1, 1}};
    int64_t axis = ap_attr_int(l, "axis", 1);
    if (axis != s.rank)
        axis = ap_axis(l, axis, s.rank);
    for (int i = 0; i < s.rank; i++)
        d.at[i >= axis] = ap_sat_mul(d.at[i >= axis], s.at[i]);
    ap_set_out(l, 0, ap_emit_reshape(l, x, &d));
}

void ap_lower_expand(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims d = {0};
    d.rank = ap_known_ints(l, ap_in(l, 1), "the shape", d.at, AP_MAX_RANK);
    for (int i = 0; i < d.rank; i++)
        if (d.at[i] < 0)
            ap_refuse(l, "%s is no shape", ap_dims_str(l, &d));
    ap_set_out(l, 0, ap_emit_expand(l, x, &d));
}

/* A repeated dimension [n] is [1,n] expanded to [r,n] and joined again. */
static ap_value tile_dim(ap_legal *l, ap_value x, int dim, int64_t repeats)
{
    ap_dims s = ap_dims_of(l, x), d = s;
    if (l->status || repeats == 1)
        return x;
    if (s.at[dim] == 1) {
        d.at[dim] = repeats;
        return ap_emit_expand(l, x, &d);
    }
    if (!ap_mul_i64(s.at[dim], repeats, &d.at[dim])) {
        ap_refuse(l, "a repeated dimension overflows");
        return AP_NONE;
    }
    if (ap_dims_count(&d) == 0)
        return ap_emit_splat(l, ap_dtype_of(l, x), &d, (ap_scalar){0});
    if (s.rank == AP_MAX_RANK) {
        ap_refuse(l, "a value of %d dimensions cannot be repeated", s.rank);
        return AP_NONE;
    }
    ap_dims wide = {.rank = s.rank + 1};
    int from[AP_MAX_RANK];
    for (int i = 0; i < wide.rank; i++) {
        from[i] = i == dim ? -1 : i - (i > dim);
        wide.at[i] = i == dim ? repeats : s.at[from[i]];
    }
    return ap_emit_reshape(l, ap_emit_view(l, x, &wide, from), &d);
}

void ap_lower_tile(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int64_t repeats[AP_MAX_RANK];
    int n = ap_known_ints(l, ap_in(l, 1), "repeats", repeats, AP_MAX_RANK);
    if (!l->status && n != s.rank)
        ap_refuse(l, "%d repeats for %d dimensions", n, s.rank);
    for (int i = 0; i < n && !l->status; i++) {
        if (repeats[i] < 0)
            ap_refuse(l, "%" PRId64 " repeats", repeats[i]);
        x = tile_dim(l, x, i, repeats[i]);
    }
    ap_set_out(l, 0, x);
}

void ap_lower_concat(ap_legal *l)
{
    uint32_t n = l->node->nin;
    ap_value *x = AP_NEW_ARRAY(&l->ctx->scratch, ap_value, n);
    for (uint32_t i = 0; i < n; i++) {
        x[i] = ap_in(l, i);
        if (x[i] == AP_NONE && !l->status)
            ap_refuse(l, "operand %u is left out", i);
    }
    if (l->status)
        return;
    int axis = ap_axis(l, ap_attr_int(l, "axis", 1), ap_dims_of(l, x[0]).rank);
    ap_set_out(l, 0, ap_emit_concat(l, (int)n, x, axis));
}

void ap_lower_split(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int axis = ap_axis(l, ap_attr_int(l, "axis", 0), s.rank);
    int64_t nout = l->node->nout, n = l->status ? 0 : s.at[axis], sum = 0;
    int64_t *size = AP_NEW_ARRAY(&l->ctx->scratch, int64_t, nout);
    int given = -1;
    if (ap_has_in(l, 1))
        given = ap_known_ints(l, ap_in(l, 1), "the sizes", size, (int)nout);
    else if (ap_has_attr(l, "split"))
        given = ap_attr_ints(l, "split", size, (int)nout);
    if (l->status)
        return;
    if (given >= 0 && given != nout)
        ap_refuse(l, "%d sizes for %" PRId64 " outputs", given, nout);
    if (ap_attr_int(l, "num_outputs", nout) != nout)
        ap_refuse(l, "num_outputs is not the number of outputs");
    int64_t each = (n + nout - 1) / nout;
    if (given < 0 && (each * (nout - 1) > n || (n % nout && ap_opset(l) < 18)))
        ap_refuse(l, "%" PRId64 " entries do not split into %" PRId64 " parts", n, nout);
    for (int64_t i = 0; i < nout; i++) {
        if (given < 0)
            size[i] = i + 1 < nout ? each : n - sum;
        if (size[i] < 0 || !ap_add_i64(sum, size[i], &sum))
            ap_refuse(l, "a part has %" PRId64 " entries", size[i]);
    }
    if (!l->status && sum != n)
        ap_refuse(l, "the parts have %" PRId64 " entries together, the axis has %" PRId64, sum, n);
    for (int64_t i = 0, at = 0; i < nout && !l->status; at += size[i++])
        if (ap_wants_out(l, (uint32_t)i))
            ap_set_out(l, (uint32_t)i, ap_emit_part(l, x, axis, at, size[i]));
}

/* Python's slice along one axis of n entries. */
static void clamp_range(int64_t n, int64_t start, int64_t end, int64_t step, int64_t *out_start, int64_t *out_count)
{
    int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? n : n - 1;
    if (start < 0)
        start = start < -n ? lo : start + n;
    if (end < 0)
        end = end < -n ? lo : end + n;
    start = ap_max_i64(step > 0 ? 0 : ap_min_i64(0, hi), ap_min_i64(start, hi));
    end = ap_max_i64(lo, ap_min_i64(end, hi));
    __int128 span = (__int128)end - start, count = 0;
    if (step > 0 && span > 0)
        count = (span + step - 1) / step;
    else if (step < 0 && span < 0)
        count = (span + step + 1) / step;
    *out_start = start;
    *out_count = n == 0 ? 0 : (int64_t)count;
}

void ap_lower_slice(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int64_t starts[AP_MAX_RANK], ends[AP_MAX_RANK], axes[AP_MAX_RANK], steps[AP_MAX_RANK];
    int n = ints_of(l, 1, "starts", starts), m = ints_of(l, 2, "ends", ends);
    int naxes = ints_of(l, 3, "axes", axes);
    int nsteps = ap_has_in(l, 4) ? ap_known_ints(l, ap_in(l, 4), "steps", steps, AP_MAX_RANK) : -1;
    if (!l->status && (n < 0 || n != m || (naxes >= 0 && naxes != n) || (nsteps >= 0 && nsteps != n) || n > s.rank))
        ap_refuse(l, "starts, ends, axes and steps do not go together");
    if (l->status)
        return;
    int64_t start[AP_MAX_RANK] = {0}, count[AP_MAX_RANK], step[AP_MAX_RANK];
    for (int i = 0; i < s.rank; i++) {
        count[i] = s.at[i];
        step[i] = 1;
    }
    if (naxes >= 0)
        ap_axes_mask_of(l, axes, naxes, s.rank);
    for (int i = 0; i < n && !l->status; i++) {
        int d = naxes >= 0 ? ap_axis(l, axes[i], s.rank) : i;
        step[d] = nsteps >= 0 ? steps[i] : 1;
        if (step[d] == 0)
            ap_refuse(l, "a step is zero");
        else
            clamp_range(s.at[d], starts[i], ends[i], step[d], &start[d], &count[d]);
    }
    ap_set_out(l, 0, l->status ? AP_NONE : ap_emit_slice(l, x, start, count, step));
}

/* ---- Pad ---- */

/* Entry of the unpadded axis that stands at position i, which may lie outside. */
static int64_t padded_from(int mode, int64_t i, int64_t n)
{
    if (mode == 'e')
        return ap_max_i64(0, ap_min_i64(i, n - 1));
    if (mode == 'w')
        return (i % n + n) % n;
    int64_t period = n > 1 ? 2 * (n - 1) : 1;
    i = (i % period + period) % period;
    return i < n ? i : period - i;
}

static ap_value pad_by_index(ap_legal *l, ap_value x, int mode, int dim, int64_t lo, int64_t hi)
{
    ap_dims s = ap_dims_of(l, x);
    int64_t n = s.at[dim], size = n;
    if (l->status || (lo == 0 && hi == 0))
        return x;
    if (lo < 0 || hi < 0) { /* of what is left, or of what there was? Nobody says */
        ap_refuse(l, "negative pads in mode %s are not supported",
                  mode == 'e'   ? "edge"
                  : mode == 'w' ? "wrap"
                                : "reflect");
        return AP_NONE;
    }
    bool fits = ap_add_i64(size, lo, &size) && ap_add_i64(size, hi, &size) && size >= 0 && size <= INT32_MAX;
    if (!fits || n == 0 || (mode == 'r' && (lo >= n || hi >= n))) {
        ap_refuse(l, "padding by %" PRId64 " and %" PRId64 " of %" PRId64 " entries is not possible in this mode", lo,
                  hi, n);
        return AP_NONE;
    }
    int64_t *index = AP_NEW_ARRAY(&l->ctx->scratch, int64_t, size);
    for (int64_t i = 0; i < size; i++)
        index[i] = padded_from(mode, i - lo, n);
    return ap_emit_gather(l, x, ap_emit_ints(l, (int)size, index), dim);
}

static ap_value pad_by_value(ap_legal *l, ap_value x, int64_t *lo, int64_t *hi, ap_value fill)
{
    ap_dims s = ap_dims_of(l, x);
    int64_t start[AP_MAX_RANK], count[AP_MAX_RANK], step[AP_MAX_RANK];
    for (int i = 0; i < s.rank; i++) { /* negative pads cut */
        start[i] = lo[i] < 0 ? -lo[i] : 0;
        count[i] = s.at[i] - start[i] + (hi[i] < 0 ? hi[i] : 0);
        step[i] = 1;
        if (lo[i] < -s.at[i] || hi[i] < -s.at[i] || count[i] < 0) {
            ap_refuse(l, "negative pads of axis %d cut more than there is", i);
            return AP_NONE;
        }
        lo[i] = ap_max_i64(lo[i], 0);
        hi[i] = ap_max_i64(hi[i], 0);
    }
    return ap_emit_pad(l, ap_emit_slice(l, x, start, count, step), lo, hi, fill);
}

void ap_lower_pad(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    const char *mode = ap_attr_str(l, "mode", "constant");
    int64_t pads[2 * AP_MAX_RANK], axes[AP_MAX_RANK], lo[AP_MAX_RANK] = {0}, hi[AP_MAX_RANK] = {0};
    int n = ap_has_in(l, 1) ? ap_known_ints(l, ap_in(l, 1), "pads", pads, 2 * AP_MAX_RANK)
                            : ap_attr_ints(l, "pads", pads, 2 * AP_MAX_RANK);
    int naxes = ap_has_in(l, 3) ? ap_known_ints(l, ap_in(l, 3), "axes", axes, AP_MAX_RANK) : s.rank;
    if (!l->status && n != 2 * naxes)
        ap_refuse(l, "%d pads for %d axes", n, naxes);
    if (!l->status && ap_has_in(l, 3))
        ap_axes_mask_of(l, axes, naxes, s.rank);
    for (int i = 0; i < naxes && !l->status; i++) {
        int d = ap_has_in(l, 3) ? ap_axis(l, axes[i], s.rank) : i;
        lo[d] = pads[i];
        hi[d] = pads[naxes + i];
    }
    if (l->status)
        return;
    ap_value v = x;
    if (mode[0] == 'c') {
        ap_dtype t = ap_dtype_of(l, x);
        ap_value fill = ap_has_in(l, 2) ? ap_emit_reshape(l, ap_in(l, 2), &(ap_dims){0})
                                        : ap_emit_number(l, t, ap_attr_float(l, "value", 0));
        v = pad_by_value(l, x, lo, hi, fill);
    } else if (mode[0] == 'e' || mode[0] == 'r' || mode[0] == 'w') {
        for (int d = 0; d < s.rank; d++)
            v = pad_by_index(l, v, mode[0], d, lo[d], hi[d]);
    } else {
        ap_refuse(l, "padding mode \"%.40s\" is not known", mode);
    }
    ap_set_out(l, 0, v);
}

/* ---- DepthToSpace and SpaceToDepth ---- */

void ap_lower_space_depth(ap_legal *l)
{
    ap_value x = ap_in(l, 0);
    ap_dims s = ap_dims_of(l, x);
    int64_t b = ap_attr_int(l, "blocksize", 0);
    bool to_depth = l->node->op->variant == 1, crd = ap_attr_str(l, "mode", "DCR")[0] == 'C';
    if (!l->status &&
        (s.rank != 4 || b < 1 || b > 1 << 15 || (to_depth ? s.at[2] % b || s.at[3] % b : s.at[1] % (b * b))))
        ap_refuse(l, "%s and blocks of %" PRId64 " do not go together", ap_dims_str(l, &s), b);
    if (l->status)
        return;
    int64_t n = s.at[0], c = s.at[1], h = s.at[2], w = s.at[3];
    if (to_depth) {
        ap_dims wide = {6, {n, c, h / b, b, w / b, b}}, d = {4, {n, c * b * b, h / b, w / b}};
        ap_value v = ap_emit_transpose(l, ap_emit_reshape(l, x, &wide), (int[]){0, 3, 5, 1, 2, 4});
        ap_set_out(l, 0, ap_emit_reshape(l, v, &d));
        return;
    }
    c /= b * b;
    ap_dims dcr = {6, {n, b, b, c, h, w}}, as_crd = {6, {n, c, b, b, h, w}}, d = {4, {n, c, h * b, w * b}};
    ap_value v = ap_emit_reshape(l, x, crd ? &as_crd : &dcr);
    v = ap_emit_transpose(l, v, crd ? (int[]){0, 1, 4, 2, 5, 3} : (int[]){0, 3, 4, 1, 5, 2});
    ap_set_out(l, 0, ap_emit_reshape(l, v, &d));
}
