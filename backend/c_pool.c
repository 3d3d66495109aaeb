/* Pools as C: what backend/pool.h says of them, in words. */
#include "backend/emit.h"
#include "backend/pool.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct pool {
    const ap_emit *e;
    ap_text *t;
    const ap_kernel *k;
    const ap_pooling *p;
    int depth;
    ap_pool_lane lane;
    const char *acc; /* type of what is folded into */
} pool;

#define line(w, ...) ap_emit_line((w)->e, (w)->t, (w)->depth, __VA_ARGS__)

static void open_block(pool *w, const char *head)
{
    line(w, "%s {", head);
    w->depth++;
}

static void close_block(pool *w)
{
    w->depth--;
    line(w, "}");
}

static bool is_max(const pool *w)
{
    return ap_pool_is_max(w->p);
}

static const char *acc_type(const pool *w)
{
    switch (ap_pool_fold_type(w->p, w->k->operand[0].dtype)) {
    case AP_FOLD_DOUBLE:
        return "double";
    case AP_FOLD_U64:
        return "uint64_t";
    default:
        return ap_emit_register(w->k->operand[0].dtype);
    }
}

/* ---- expressions ---- */

static void add_term(ap_text *t, int64_t factor, char name, int number)
{
    if (factor == 1)
        ap_text_addf(t, " + %c%d", name, number);
    else if (factor)
        ap_text_addf(t, " + %" PRId64 "*%c%d", factor, name, number);
}

/* factor*name, factor > 0 */
static const char *scaled(const pool *w, int64_t factor, char name, int number)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    add_term(&t, factor, name, number);
    return ap_text_str(&t) + 3;
}

static const char *strides_text(const pool *w, bool result)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int l = 0; l < w->p->nloops; l++)
        if (l != w->lane.loop)
            add_term(&t, result ? w->p->to[l] : w->p->from[l], 'i', l);
    int64_t start = 0;
    for (int d = 0; d < w->p->ndims; d++) {
        const ap_pool_dim *m = &w->p->dim[d];
        if (d != w->lane.dim)
            add_term(&t, result ? m->to : m->window.stride * m->from, 'o', d);
        start -= m->window.lo * m->from;
    }
    if (!result && start)
        ap_text_addf(&t, " - %" PRId64, -start);
    return !t.len ? "0" : ap_text_str(&t)[1] == '-' ? ap_text_str(&t) + 1 : ap_text_str(&t) + 3;
}

/* An element of x in a register. */
static const char *loaded(const pool *w, const char *index)
{
    ap_dtype t = w->k->operand[0].dtype;
    ap_text out;
    ap_text_init(&out, &w->e->ctx->scratch);
    if (!is_max(w) && !ap_dtype_is_float(t))
        ap_text_add(&out, "(uint64_t)");
    if (t == AP_F16 || t == AP_BF16)
        ap_text_addf(&out, "aprt_%s_to_f32(x0[%s])", ap_dtype_str(t), index);
    else
        ap_text_addf(&out, "x0[%s]", index);
    return ap_text_str(&out);
}

static const char *start_value(const pool *w)
{
    ap_dtype t = w->k->operand[0].dtype;
    ap_scalar x = {.f = -INFINITY};
    if (!is_max(w))
        return "0";
    if (!ap_dtype_is_float(t))
        x = ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &x);
    return ap_emit_literal(w->e->ctx, t, x).text;
}

/* acc = acc and x together */
static void print_fold(pool *w, const char *acc, const char *x)
{
    ap_dtype t = w->k->operand[0].dtype;
    if (!is_max(w))
        line(w, "%s += %s;", acc, x);
    else if (ap_dtype_is_float(t))
        line(w, "%s = aprt_max_%s(%s, %s);", acc, t == AP_F64 ? "f64" : "f32", acc, x);
    else
        line(w, "%s = %s > %s ? %s : %s;", acc, x, acc, x, acc);
}

static void print_store(pool *w, const char *index, const char *acc, const char *scale)
{
    ap_dtype t = w->k->operand[1].dtype;
    char value[128];
    snprintf(value, sizeof value, "%s%s%s", acc, *scale ? " * " : "", scale);
    if (t == AP_F16 || t == AP_BF16)
        line(w, "y0[%s] = aprt_f32_to_%s((float)(%s));", index, ap_dtype_str(t), value);
    else
        line(w, "y0[%s] = (%s)(%s);", index, ap_dtype_c(t), value);
}

/* ---- how many elements a window has ---- */

/* `const int64_t b1 = ..., e1 = ...;`: the places of window o of dimension d that are elements. */
static void print_cut(pool *w, int d)
{
    const ap_pool_dim *m = &w->p->dim[d];
    const ap_window *v = &m->window;
    if (ap_pool_is_never_cut(m)) {
        line(w, "const int64_t b%d = 0, e%d = %" PRId64 ";", d, d, v->kernel);
        return;
    }
    char first[64], begin[96], rest[96];
    int64_t far = (m->count - 1) * v->stride - v->lo, reach = (v->kernel - 1) * v->dilation;
    bool misses = far >= m->extent || v->lo > reach; /* some window has no element at all */
    snprintf(first, sizeof first, "%s - %" PRId64, scaled(w, v->stride, 'o', d), v->lo);
    line(w, "const int64_t f%d = %s;", d, first);
    if (v->dilation == 1)
        snprintf(begin, sizeof begin, "-f%d", d);
    else
        snprintf(begin, sizeof begin, "(%" PRId64 " - f%d) / %" PRId64, v->dilation - 1, d, v->dilation);
    if (v->dilation == 1)
        snprintf(rest, sizeof rest, "%" PRId64 " - f%d", m->extent, d);
    else
        snprintf(rest, sizeof rest, "(%" PRId64 " - f%d) / %" PRId64, m->extent + v->dilation - 1, d, v->dilation);
    if (!misses) {
        line(w, "const int64_t b%d = f%d < 0 ? %s : 0;", d, d, begin);
        line(w, "const int64_t e%d = f%d < %" PRId64 " ? %" PRId64 " : %s;", d, d, m->extent - reach, v->kernel, rest);
        return;
    }
    line(w, "const int64_t b%d = f%d < %" PRId64 " ? %" PRId64 " : f%d < 0 ? %s : 0;", d, d, -reach, v->kernel, d,
         begin);
    line(w, "const int64_t z%d = f%d < %" PRId64 " ? %" PRId64 " : f%d < %" PRId64 " ? %s : 0;", d, d,
         m->extent - reach, v->kernel, d, m->extent, rest);
    line(w, "const int64_t e%d = z%d > b%d ? z%d : b%d;", d, d, d, d, d);
}

/* Places of dimension d that an average divides by: a constant, or text that depends on o. */
static bool count_text(const pool *w, int d, bool whole, int64_t *constant, char *text, size_t size)
{
    const ap_pool_dim *m = &w->p->dim[d];
    const ap_window *v = &m->window;
    bool pads = w->p->kind == AP_POOL_AVG_PADS;
    bool full = (m->count - 1) * v->stride + (v->kernel - 1) * v->dilation < m->extent + v->lo + v->hi;
    *constant = v->kernel;
    if (whole || (pads ? full : ap_pool_is_never_cut(m)))
        return true;
    int64_t end = m->extent + v->lo + v->hi + v->dilation - 1;
    if (!pads)
        snprintf(text, size, "(e%d - b%d)", d, d);
    else
        snprintf(text, size,
                 "((%" PRId64 " - %" PRId64 "*o%d) / %" PRId64 " < %" PRId64 " ? (%" PRId64 " - %" PRId64
                 "*o%d) / %" PRId64 " : %" PRId64 ")",
                 end, v->stride, d, v->dilation, v->kernel, end, v->stride, d, v->dilation, v->kernel);
    return false;
}

/* Declares `scale` if averages need one; `whole`: of no dimension is the window cut. `lane` and its places are as
 * given when it is walked. */
static const char *print_scale(pool *w, bool whole, bool walks_lane)
{
    if (w->p->kind != AP_POOL_AVG && w->p->kind != AP_POOL_AVG_PADS)
        return "";
    const char *type = strcmp(w->acc, "double") == 0 ? "double" : "float";
    int64_t all = 1;
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int d = 0; d < w->p->ndims; d++) {
        int64_t constant;
        char text[192];
        if (count_text(w, d, whole || (walks_lane && d == w->lane.dim), &constant, text, sizeof text))
            all = ap_sat_mul(all, constant);
        else
            ap_text_addf(&t, "%s%s", t.len ? "*" : "", text);
    }
    if (!t.len) {
        line(w, "const %s scale = (%s)(1.0 / %" PRId64 ");", type, type, all);
        return "scale";
    }
    ap_text_addf(&t, "*%" PRId64, all);
    ap_text_addf(w->t, "%*sconst int64_t places = %s;\n", 4 * w->depth, "", ap_text_str(&t));
    line(w, "const %s scale = (%s)(1.0 / (double)(places > 0 ? places : 1));", type, type);
    return "scale";
}

/* ---- one window at a time ---- */

static void open_places(pool *w, bool skip_lane)
{
    for (int d = 0; d < w->p->ndims; d++) {
        bool lane = skip_lane && d == w->lane.dim;
        char head[128];
        if (lane)
            snprintf(head, sizeof head, "for (int64_t t%d = 0; t%d < %" PRId64 "; t%d++)", d, d,
                     w->p->dim[d].window.kernel, d);
        else
            snprintf(head, sizeof head, "for (int64_t t%d = b%d; t%d < e%d; t%d++)", d, d, d, d, d);
        open_block(w, head);
    }
}

static void close_places(pool *w)
{
    for (int d = 0; d < w->p->ndims; d++)
        close_block(w);
}

static const char *place_text(const pool *w, const char *first)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_text_add(&t, first);
    for (int d = 0; d < w->p->ndims; d++)
        add_term(&t, w->p->dim[d].window.dilation * w->p->dim[d].from, 't', d);
    return ap_text_str(&t);
}

static const char *position_text(const pool *w)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    int64_t step = 1, start = 0;
    for (int d = w->p->ndims - 1; d >= 0; d--) {
        const ap_window *v = &w->p->dim[d].window;
        add_term(&t, step * v->stride, 'o', d);
        add_term(&t, step * v->dilation, 't', d);
        start += step * v->lo;
        step *= w->p->dim[d].extent;
    }
    if (start)
        ap_text_addf(&t, " - %" PRId64, start);
    return t.len ? ap_text_str(&t) + 3 : "0";
}

/* The window with the numbers o..., cut where it must be. */
static void print_one(pool *w)
{
    bool arg = w->p->kind == AP_POOL_ARGMAX;
    for (int d = 0; d < w->p->ndims; d++)
        print_cut(w, d);
    line(w, "%s acc = %s;", w->acc, start_value(w));
    if (arg)
        line(w, "int64_t at = -1;");
    open_places(w, false);
    ap_text lane;
    ap_text_init(&lane, &w->e->ctx->scratch);
    ap_text_add(&lane, "xb");
    if (w->lane.dim != AP_POOL_NO_LANE)
        add_term(&lane, w->p->dim[w->lane.dim].window.stride * w->p->dim[w->lane.dim].from, 'o', w->lane.dim);
    const char *x = loaded(w, place_text(w, ap_text_str(&lane)));
    if (arg) {
        line(w, "const %s v = %s;", w->acc, x);
        open_block(w, ap_dtype_is_float(w->k->operand[0].dtype) ? "if (at < 0 || v > acc || (v != v && acc == acc))"
                                                                : "if (at < 0 || v > acc)");
        line(w, "acc = v;");
        line(w, "at = %s;", position_text(w));
        close_block(w);
    } else {
        print_fold(w, "acc", x);
    }
    close_places(w);
    const char *scale = arg ? "" : print_scale(w, false, false);
    ap_text y;
    ap_text_init(&y, &w->e->ctx->scratch);
    ap_text_add(&y, "yb");
    if (w->lane.dim != AP_POOL_NO_LANE)
        add_term(&y, w->p->dim[w->lane.dim].to, 'o', w->lane.dim);
    print_store(w, ap_text_str(&y), arg ? "at < 0 ? 0 : at" : "acc", scale);
}

/* ---- along the lane ---- */

typedef struct lane {
    char first[24], end[24]; /* of what it counts */
    int64_t from, to;        /* strides */
} lane;

static const char *lane_index(const pool *w, const char *base, const char *counter, int64_t stride)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_text_addf(&t, "%s + ", base);
    if (stride != 1)
        ap_text_addf(&t, "%" PRId64 "*", stride);
    ap_text_add(&t, counter);
    return ap_text_str(&t);
}

/* All places of a whole window, written out. */
static void print_whole(pool *w, const lane *n)
{
    int64_t at[AP_MAX_RANK] = {0};
    const char *scale = print_scale(w, true, true);
    line(w, "#pragma omp simd");
    char head[128];
    snprintf(head, sizeof head, "for (int64_t l = %s; l < %s; l++)", n->first, n->end);
    open_block(w, head);
    line(w, "%s acc = %s;", w->acc, loaded(w, lane_index(w, "xb", "l", n->from)));
    for (int64_t i = 1; i < ap_pool_places(w->p); i++) {
        int64_t offset = 0;
        for (int d = w->p->ndims - 1; d >= 0 && ++at[d] == w->p->dim[d].window.kernel; d--)
            at[d] = 0;
        for (int d = 0; d < w->p->ndims; d++)
            offset += at[d] * w->p->dim[d].window.dilation * w->p->dim[d].from;
        ap_text t;
        ap_text_init(&t, &w->e->ctx->scratch);
        ap_text_addf(&t, "%s + %" PRId64, lane_index(w, "xb", "l", n->from), offset);
        print_fold(w, "acc", loaded(w, ap_text_str(&t)));
    }
    print_store(w, lane_index(w, "yb", "l", n->to), "acc", scale);
    close_block(w);
}

/* Windows that are cut, or too large to be written out: a block of results is folded in memory. */
static void print_blocks(pool *w, const lane *n)
{
    char head[160];
    const char *scale = print_scale(w, false, true);
    snprintf(head, sizeof head, "for (int64_t a = %s; a < %s; a += %d)", n->first, n->end, AP_POOL_BLOCK);
    open_block(w, head);
    line(w, "const int64_t m = %s - a < %d ? %s - a : %d;", n->end, AP_POOL_BLOCK, n->end, AP_POOL_BLOCK);
    line(w, "%s acc[%d];", w->acc, AP_POOL_BLOCK);
    line(w, "for (int64_t l = 0; l < m; l++)");
    line(w, "    acc[l] = %s;", start_value(w));
    open_places(w, true);
    line(w, "#pragma omp simd");
    open_block(w, "for (int64_t l = 0; l < m; l++)");
    print_fold(w, "acc[l]", loaded(w, place_text(w, lane_index(w, "xb", "(a + l)", n->from))));
    close_block(w);
    close_places(w);
    line(w, "#pragma omp simd");
    open_block(w, "for (int64_t l = 0; l < m; l++)");
    print_store(w, lane_index(w, "yb", "(a + l)", n->to), "acc[l]", scale);
    close_block(w);
    close_block(w);
}

static void print_lane(pool *w, const lane *n)
{
    bool cut = false, few = ap_pool_places(w->p) <= AP_POOL_MOST_PLACES;
    for (int d = 0; d < w->p->ndims; d++)
        cut = cut || (d != w->lane.dim && !ap_pool_is_never_cut(&w->p->dim[d]));
    if (few && !cut) {
        print_whole(w, n);
        return;
    }
    for (int d = 0; d < w->p->ndims; d++)
        if (d != w->lane.dim)
            print_cut(w, d);
    if (!few) {
        print_blocks(w, n);
        return;
    }
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int d = 0; d < w->p->ndims; d++)
        if (d != w->lane.dim && !ap_pool_is_never_cut(&w->p->dim[d]))
            ap_text_addf(&t, "%se%d - b%d == %" PRId64, t.len ? " && " : "if (", d, d, w->p->dim[d].window.kernel);
    ap_text_add(&t, ")");
    open_block(w, ap_text_str(&t));
    print_whole(w, n);
    w->depth--;
    open_block(w, "} else");
    print_blocks(w, n);
    close_block(w);
}

/* The windows at one end of the lane. */
static void print_end(pool *w, int64_t first, int64_t end)
{
    char head[128];
    int d = w->lane.dim;
    if (first >= end)
        return;
    snprintf(head, sizeof head, "for (int64_t o%d = %" PRId64 "; o%d < %" PRId64 "; o%d++)", d, first, d, end, d);
    open_block(w, head);
    print_one(w);
    close_block(w);
}

static void print_windows(pool *w)
{
    lane n = {0};
    if (w->lane.loop == AP_POOL_NO_LANE && w->lane.dim == AP_POOL_NO_LANE) {
        print_one(w);
        return;
    }
    if (w->lane.loop != AP_POOL_NO_LANE) {
        int l = w->lane.loop;
        n = (lane){.first = "0", .from = w->p->from[l], .to = w->p->to[l]};
        if (w->p->turns[l])
            snprintf(n.end, sizeof n.end, "n%" PRIu32, w->p->turns[l] - 1);
        else
            snprintf(n.end, sizeof n.end, "%" PRId64, w->p->extent[l]);
        print_lane(w, &n);
        return;
    }
    const ap_pool_dim *m = &w->p->dim[w->lane.dim];
    int64_t first, end;
    ap_pool_whole_windows(m, &first, &end);
    print_end(w, 0, first);
    print_end(w, end, m->count);
    if (first == end)
        return;
    n = (lane){.from = m->window.stride * m->from, .to = m->to};
    snprintf(n.first, sizeof n.first, "%" PRId64, first);
    snprintf(n.end, sizeof n.end, "%" PRId64, end);
    line(w, "{");
    w->depth++; /* names of the places are its own */
    print_lane(w, &n);
    close_block(w);
}

void ap_emit_pool(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    pool w = {.e = e, .t = t, .k = k, .p = &k->pool, .depth = 1};
    const ap_pooling *p = w.p;
    int opened = 0;
    char head[128];
    w.lane = ap_pool_find_lane(p);
    w.acc = acc_type(&w);
    for (int l = 0; l < p->nloops; l++) {
        if (l == w.lane.loop)
            continue;
        if (p->turns[l])
            snprintf(head, sizeof head, "for (int64_t i%d = 0; i%d < n%" PRIu32 "; i%d++)", l, l, p->turns[l] - 1, l);
        else
            snprintf(head, sizeof head, "for (int64_t i%d = 0; i%d < %" PRId64 "; i%d++)", l, l, p->extent[l], l);
        open_block(&w, head);
        opened++;
    }
    for (int d = 0; d < p->ndims; d++) {
        if (d == w.lane.dim)
            continue;
        snprintf(head, sizeof head, "for (int64_t o%d = 0; o%d < %" PRId64 "; o%d++)", d, d, p->dim[d].count, d);
        open_block(&w, head);
        opened++;
    }
    ap_text_addf(t, "%*sconst int64_t xb = %s;\n", 4 * w.depth, "", strides_text(&w, false));
    ap_text_addf(t, "%*sconst int64_t yb = %s;\n", 4 * w.depth, "", strides_text(&w, true));
    print_windows(&w);
    while (opened-- > 0)
        close_block(&w);
}
