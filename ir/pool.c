/* Arithmetic and text of windows, and what one of them folds to. */
#include "ir/pool.h"

#include "ir/base/text.h"
#include "ir/lex.h"

#include <inttypes.h>
#include <math.h>

const char *const ap_pool_text[AP_POOL_KIND_COUNT] = {"max", "sum", "avg", "avg_pads", "argmax"};

/* a / b rounded up, b > 0 */
static int64_t ceil_div(int64_t a, int64_t b)
{
    return a >= 0 ? (a + b - 1) / b : -(-a / b);
}

int64_t ap_window_count(const ap_window *w, int64_t extent, bool ceil)
{
    int64_t room = extent + w->lo + w->hi - (w->kernel - 1) * w->dilation - 1;
    if (ceil)
        room += w->stride - 1;
    if (room < 0)
        return 0;
    int64_t count = room / w->stride + 1;
    if (ceil && (count - 1) * w->stride >= extent + w->lo)
        count--;
    return count;
}

void ap_window_taps(const ap_window *w, int64_t extent, int64_t at, int64_t *begin, int64_t *end)
{
    int64_t first = at * w->stride - w->lo;
    *begin = ap_min_i64(w->kernel, ap_max_i64(0, ceil_div(-first, w->dilation)));
    *end = ap_max_i64(*begin, ap_min_i64(w->kernel, ceil_div(extent - first, w->dilation)));
}

int64_t ap_window_padded_taps(const ap_window *w, int64_t extent, int64_t at)
{
    int64_t first = at * w->stride - w->lo;
    return ap_max_i64(0, ap_min_i64(w->kernel, ceil_div(extent + w->hi - first, w->dilation)));
}

/* ---- folding ---- */

typedef struct fold {
    ap_pool_kind kind;
    ap_dtype dtype;
    int n;
    const ap_pool_dim *dim;
    const int64_t *at;
    ap_pool_load *load;
    void *user;
    ap_scalar best; /* or the sum */
    int64_t index, taps;
} fold;

static bool is_less(const fold *f, ap_scalar a, ap_scalar b)
{
    if (ap_dtype_is_float(f->dtype))
        return a.f < b.f || (b.f != b.f && a.f == a.f);
    return f->dtype == AP_U64 ? (uint64_t)a.i < (uint64_t)b.i : a.i < b.i;
}

static void take(fold *f, ap_scalar x, int64_t index)
{
    bool first = f->taps++ == 0;
    if (f->kind != AP_POOL_MAX && f->kind != AP_POOL_ARGMAX) {
        if (ap_dtype_is_float(f->dtype))
            f->best.f += x.f;
        else
            f->best.i = (int64_t)((uint64_t)f->best.i + (uint64_t)x.i);
    } else if (first || is_less(f, f->best, x)) {
        f->best = x;
        f->index = index;
    }
}

static void walk(fold *f, int d, int64_t offset, int64_t index)
{
    if (d == f->n) {
        take(f, f->load(f->user, offset), index);
        return;
    }
    const ap_pool_dim *p = &f->dim[d];
    int64_t begin, end;
    ap_window_taps(&p->window, p->extent, f->at[d], &begin, &end);
    for (int64_t t = begin; t < end; t++) {
        int64_t i = f->at[d] * p->window.stride - p->window.lo + t * p->window.dilation;
        walk(f, d + 1, offset + i * p->from, index * p->extent + i);
    }
}

static ap_scalar nothing(const fold *f)
{
    ap_scalar x = {.f = -INFINITY};
    if (f->kind != AP_POOL_MAX)
        return (ap_scalar){0};
    return ap_dtype_is_float(f->dtype) ? x : ap_pointwise_eval(AP_PW_CAST, AP_F64, f->dtype, &x);
}

ap_scalar ap_pool_fold(ap_pool_kind kind, ap_dtype dtype, int n, const ap_pool_dim *dim, const int64_t *at,
                       ap_pool_load *load, void *user)
{
    fold f = {.kind = kind, .dtype = dtype, .n = n, .dim = dim, .at = at, .load = load, .user = user};
    walk(&f, 0, 0, 0);
    if (f.taps == 0)
        return nothing(&f);
    if (kind == AP_POOL_ARGMAX)
        return (ap_scalar){.i = f.index};
    if (kind == AP_POOL_AVG)
        f.best.f /= (double)f.taps;
    if (kind == AP_POOL_AVG_PADS) {
        double count = 1;
        for (int d = 0; d < n; d++)
            count *= (double)ap_window_padded_taps(&dim[d].window, dim[d].extent, at[d]);
        f.best.f /= count;
    }
    return f.best;
}

/* ---- text ---- */

void ap_window_print(const ap_window *w, ap_text *out)
{
    if (!w->kernel) {
        ap_text_add(out, "-");
        return;
    }
    ap_text_addf(out, "%" PRId64, w->kernel);
    if (w->stride != 1)
        ap_text_addf(out, "/%" PRId64, w->stride);
    if (w->dilation != 1)
        ap_text_addf(out, "~%" PRId64, w->dilation);
    if (w->lo || w->hi)
        ap_text_addf(out, "+%" PRId64 ":%" PRId64, w->lo, w->hi);
}

ap_status ap_window_parse(ap_lex *l, ap_window *out)
{
    *out = (ap_window){0};
    if (ap_lex_accept(l, "-"))
        return AP_OK;
    out->stride = out->dilation = 1;
    AP_TRY(ap_lex_range(l, "a window", 1, AP_WINDOW_MAX, &out->kernel));
    if (ap_lex_accept(l, "/"))
        AP_TRY(ap_lex_range(l, "a stride", 1, AP_WINDOW_MAX, &out->stride));
    if (ap_lex_accept(l, "~"))
        AP_TRY(ap_lex_range(l, "a dilation", 1, AP_WINDOW_MAX, &out->dilation));
    if (!ap_lex_accept(l, "+"))
        return AP_OK;
    AP_TRY(ap_lex_range(l, "a padding", 0, AP_WINDOW_MAX, &out->lo));
    AP_TRY(ap_lex_expect(l, ":"));
    return ap_lex_range(l, "a padding", 0, AP_WINDOW_MAX, &out->hi);
}
