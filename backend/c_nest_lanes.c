/* Loop nests whose rows lie across memory, as C: reductions over leading dimensions, statistics of channels-last
 * values.
 *
 * An outer loop along which memory is walked by ones becomes the innermost one of every section, the *lane*. It is cut
 * into blocks, and what is one number per row elsewhere is an array of a block here:
 *
 *     other outer loops, for blocks of the lane {
 *         row section       for lane { statements }
 *         inner section     for inner loops { for lane { statements; s[lane] += ... } }
 *     }
 */
#include "backend/emit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { STACK_BYTES = 16384, SCRATCH_BYTES = 1 << 19, LONG_SUM = 1024, WIDEST = 256, NARROWEST = 16, FEW = 4 };

typedef struct lanes {
    const ap_emit *e;
    ap_text *t;
    const ap_kernel *k;
    const ap_nest *n;
    int depth;
    int loop;          /* which one is the lane */
    int64_t width;     /* of a block */
    bool *live, *kept; /* per sop: something depends on it; a later section reads it */
} lanes;

#define line(w, ...) ap_emit_line((w)->e, (w)->t, (w)->depth, __VA_ARGS__)

/* ---- whether, which and how wide ---- */

static bool is_argument_index(const ap_sop *s)
{
    return s->reduce == AP_REDUCE_ARGMAX || s->reduce == AP_REDUCE_ARGMIN;
}

static int argument_count(const ap_sop *s)
{
    switch (s->kind) {
    case AP_SOP_REDUCE:
    case AP_SOP_STORE:
    case AP_SOP_TEMP_STORE:
        return 1;
    case AP_SOP_POINTWISE:
        return ap_pointwise_nin((ap_pointwise)s->pw);
    default:
        return 0;
    }
}

static bool is_plain(const ap_sop *s)
{
    switch (s->kind) {
    case AP_SOP_LOAD:
    case AP_SOP_CONST:
    case AP_SOP_INDEX:
    case AP_SOP_POINTWISE:
    case AP_SOP_REDUCE:
    case AP_SOP_STORE:
    case AP_SOP_TEMP_STORE:
    case AP_SOP_TEMP_LOAD:
        return true;
    default:
        return false;
    }
}

/* How well loop l suits the innermost place: accesses of inner sections that it walks by ones, less those that it makes
 * jump. */
static int suits(const ap_kernel *k, int l)
{
    int score = 0;
    for (uint32_t i = 0; i < k->nest.nsops; i++) {
        const ap_sop *s = &k->nest.sop[i];
        if ((s->kind != AP_SOP_LOAD && s->kind != AP_SOP_STORE) || !k->nest.inner[s->section])
            continue;
        int64_t stride = k->operand[s->operand].stride[l];
        score += stride == 1 ? 1 : stride == 0 || k->nest.extent[l] == 1 ? 0 : -1;
    }
    return score;
}

static int64_t inner_count(const ap_nest *n)
{
    int64_t count = 1;
    for (int l = 0; l < n->ninner; l++)
        count = ap_sat_mul(count, n->extent[n->nouter + l]);
    return count;
}

static int register_bytes(ap_dtype t)
{
    return t == AP_F16 || t == AP_BF16 || t == AP_BOOL ? 4 : ap_dtype_bytes(t);
}

static int64_t temp_bytes_per_lane(const ap_nest *n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n->ntemps; i++)
        bytes = ap_sat_add(bytes, ap_sat_mul(inner_count(n), register_bytes(n->temp_dtype[i])));
    return bytes;
}

/* Bytes of a lane: 16 for what a reduction folds into, 8 for what a row keeps. */
static int64_t bytes_per_lane(const ap_nest *n)
{
    int64_t bytes = temp_bytes_per_lane(n);
    for (uint32_t i = 0; i < n->nsops; i++)
        bytes = ap_sat_add(bytes, n->sop[i].kind == AP_SOP_REDUCE ? 16 : n->inner[n->sop[i].section] ? 0 : 8);
    return bytes;
}

static bool find_lane(const ap_kernel *k, int *out_loop, int64_t *out_width)
{
    const ap_nest *n = &k->nest;
    bool has_inner = false;
    int best = -1, best_score;
    if (k->kind != AP_KERNEL_NEST || n->ninner == 0)
        return false;
    for (int s = 0; s < n->nsections; s++)
        has_inner = has_inner || n->inner[s];
    for (uint32_t i = 0; i < n->nsops; i++)
        if (!is_plain(&n->sop[i]))
            return false;
    best_score = suits(k, n->nouter + n->ninner - 1);
    for (int l = 0; l < n->nouter; l++) {
        int score = n->extent[l] < FEW ? best_score : suits(k, l);
        if (score <= best_score)
            continue;
        best = l;
        best_score = score;
    }
    if (!has_inner || best < 0 || ap_sat_mul(temp_bytes_per_lane(n), NARROWEST) > SCRATCH_BYTES)
        return false;
    *out_loop = best;
    *out_width = WIDEST;
    while (*out_width > NARROWEST &&
           (*out_width / 2 >= n->extent[best] || ap_sat_mul(bytes_per_lane(n), *out_width) > STACK_BYTES))
        *out_width /= 2;
    return true;
}

bool ap_emit_has_lanes(const ap_kernel *k)
{
    int loop;
    int64_t width;
    return find_lane(k, &loop, &width);
}

int64_t ap_emit_lanes_scratch(const ap_kernel *k)
{
    int loop;
    int64_t width, bytes = temp_bytes_per_lane(&k->nest);
    if (!find_lane(k, &loop, &width) || ap_sat_mul(bytes, width) <= STACK_BYTES)
        return 0;
    return bytes * width + 64 * k->nest.ntemps;
}

static void analyse(lanes *w)
{
    const ap_nest *n = w->n;
    w->live = AP_NEW_ARRAY(&w->e->ctx->scratch, bool, n->nsops);
    w->kept = AP_NEW_ARRAY(&w->e->ctx->scratch, bool, n->nsops);
    for (uint32_t i = n->nsops; i-- > 0;) {
        const ap_sop *s = &n->sop[i];
        w->live[i] |= s->kind == AP_SOP_STORE || s->kind == AP_SOP_TEMP_STORE;
        for (int a = 0; w->live[i] && a < argument_count(s); a++) {
            w->live[s->arg[a]] = true;
            w->kept[s->arg[a]] |= n->sop[s->arg[a]].section != s->section;
        }
    }
}

/* ---- expressions ---- */

static const char *loop_name(const lanes *w, int l)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_text_addf(&t, l < w->n->nouter ? "i%d" : "j%d", l < w->n->nouter ? l : l - w->n->nouter);
    return ap_text_str(&t);
}

/* stride . loops */
static const char *strides_text(const lanes *w, const int64_t *stride, int loops)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int l = 0; l < loops; l++) {
        if (stride[l] == 0)
            continue;
        ap_text_add(&t, t.len ? " + " : "");
        if (stride[l] != 1)
            ap_text_addf(&t, "%" PRId64 "*", stride[l]);
        ap_text_add(&t, loop_name(w, l));
    }
    return t.len ? ap_text_str(&t) : "0";
}

static const char *inner_index(const lanes *w)
{
    int64_t stride[AP_MAX_LOOPS] = {0}, step = 1;
    for (int l = w->n->nouter + w->n->ninner; l-- > w->n->nouter;) {
        stride[l] = step;
        step *= w->n->extent[l];
    }
    return strides_text(w, stride, w->n->nouter + w->n->ninner);
}

static int section_loops(const ap_nest *n, int section)
{
    return n->inner[section] ? n->nouter + n->ninner : n->nouter;
}

static const char *place_text(const lanes *w, const ap_sop *s)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_emit_operand(&t, w->k, s->operand);
    ap_text_addf(&t, "[%s]", strides_text(w, w->k->operand[s->operand].stride, section_loops(w->n, s->section)));
    return ap_text_str(&t);
}

static ap_expr value_of(const lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    if (s->kind == AP_SOP_CONST)
        return ap_emit_literal(w->e->ctx, s->dtype, s->imm);
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_text_addf(&t, "v%u", id);
    return (ap_expr){ap_text_str(&t), 3};
}

/* ---- reductions ---- */

static bool is_sum(const ap_sop *s)
{
    return s->reduce == AP_REDUCE_SUM || s->reduce == AP_REDUCE_PROD;
}

static bool is_largest(const ap_sop *s)
{
    return s->reduce == AP_REDUCE_MAX || s->reduce == AP_REDUCE_ARGMAX;
}

/* Integers wrap in 64 bits; sums of many floats go in double. */
static const char *fold_type(const lanes *w, const ap_sop *s)
{
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    if (!is_sum(s))
        return ap_emit_register(t);
    if (!ap_dtype_is_float(t))
        return "uint64_t";
    return inner_count(w->n) > LONG_SUM ? "double" : ap_emit_register(t);
}

static const char *fold_start(const lanes *w, const ap_sop *s)
{
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    ap_scalar x = {.f = is_largest(s) ? -INFINITY : INFINITY};
    if (is_sum(s))
        return s->reduce == AP_REDUCE_SUM ? "0" : "1";
    if (!ap_dtype_is_float(t))
        x = t == AP_BOOL ? (ap_scalar){.i = !is_largest(s)} : ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &x);
    return ap_emit_literal(w->e->ctx, t, x).text;
}

static void print_fold(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    const char *x = value_of(w, s->arg[0]).text, *than = is_largest(s) ? ">" : "<";
    bool is_float = ap_dtype_is_float(t);
    if (is_sum(s)) {
        line(w, "s%u[l] %s %s%s;", id, s->reduce == AP_REDUCE_SUM ? "+=" : "*=", is_float ? "" : "(uint64_t)", x);
    } else if (is_argument_index(s)) {
        if (is_float) /* the first NaN wins */
            line(w, "const int take%u = (at%u[l] < 0) | (%s %s s%u[l]) | ((%s != %s) & (s%u[l] == s%u[l]));", id, id, x,
                 than, id, x, x, id, id);
        else
            line(w, "const int take%u = (at%u[l] < 0) | (%s %s s%u[l]);", id, id, x, than, id);
        line(w, "s%u[l] = take%u ? %s : s%u[l];", id, id, x, id);
        line(w, "at%u[l] = take%u ? %s : at%u[l];", id, id, inner_index(w), id);
    } else if (is_float) {
        line(w, "s%u[l] = aprt_%s_%s(s%u[l], %s);", id, is_largest(s) ? "max" : "min", t == AP_F64 ? "f64" : "f32", id,
             x);
    } else {
        line(w, "s%u[l] = %s %s s%u[l] ? %s : s%u[l];", id, x, than, id, x, id);
    }
}

/* The finished number as `v`. */
static void print_finished(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    if (is_argument_index(s))
        line(w, "const %s v%u = at%u[l] < 0 ? 0 : at%u[l];", type, id, id, id);
    else if (s->dtype == AP_F16 || s->dtype == AP_BF16)
        line(w, "const float v%u = aprt_round_%s((float)s%u[l]);", id, ap_dtype_str(s->dtype), id);
    else
        line(w, "const %s v%u = (%s)s%u[l];", type, id, type, id);
}

/* ---- statements ---- */

static void print_load(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->k->operand[s->operand].dtype;
    const char *type = ap_emit_register(s->dtype), *x = place_text(w, s);
    if (t == AP_F16 || t == AP_BF16)
        line(w, "const %s v%u = aprt_%s_to_f32(%s);", type, id, ap_dtype_str(t), x);
    else
        line(w, "const %s v%u = %s%s;", type, id, x, t == AP_BOOL ? " != 0" : "");
}

static void print_store(lanes *w, const ap_sop *s)
{
    ap_dtype t = w->k->operand[s->operand].dtype;
    const char *x = value_of(w, s->arg[0]).text, *to = place_text(w, s);
    if (t == AP_F16 || t == AP_BF16)
        line(w, "%s = aprt_f32_to_%s(%s);", to, ap_dtype_str(t), x);
    else
        line(w, "%s = %s%s;", to, t == AP_BOOL ? "(uint8_t)" : "", x);
}

static void print_sop(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    ap_expr x[3];
    switch (s->kind) {
    case AP_SOP_LOAD:
        print_load(w, id);
        break;
    case AP_SOP_INDEX:
        ap_text_addf(w->t, "%*sconst %s v%u = %s", 4 * w->depth, "", type, id,
                     strides_text(w, s->loop_stride, section_loops(w->n, s->section)));
        if (s->imm.i >= 0)
            ap_text_addf(w->t, " + n%" PRId64, s->imm.i);
        ap_text_add(w->t, ";\n");
        break;
    case AP_SOP_POINTWISE:
        for (int i = 0; i < argument_count(s); i++)
            x[i] = value_of(w, s->arg[i]);
        ap_dtype operands = w->n->sop[s->arg[s->pw == AP_PW_SELECT]].dtype;
        line(w, "const %s v%u = %s;", type, id,
             ap_emit_pointwise(w->e->ctx, (ap_pointwise)s->pw, operands, s->dtype, x).text);
        break;
    case AP_SOP_TEMP_LOAD:
        line(w, "const %s v%u = t%" PRId64 "[%" PRId64 "*(%s) + l];", type, id, s->imm.i, w->width, inner_index(w));
        break;
    case AP_SOP_TEMP_STORE:
        line(w, "t%" PRId64 "[%" PRId64 "*(%s) + l] = %s;", s->imm.i, w->width, inner_index(w),
             value_of(w, s->arg[0]).text);
        break;
    case AP_SOP_STORE:
        print_store(w, s);
        break;
    case AP_SOP_REDUCE:
        print_fold(w, id);
        break;
    default:
        break;
    }
    if (w->kept[id] && s->kind != AP_SOP_REDUCE)
        line(w, "r%u[l] = v%u;", id, id);
}

/* Numbers of rows that the section reads and another one has made. */
static void print_arrivals(lanes *w, int section)
{
    const ap_nest *n = w->n;
    for (uint32_t i = 0; i < n->nsops; i++) {
        bool read = false;
        if (!w->kept[i] || n->sop[i].section >= section || n->sop[i].kind == AP_SOP_CONST)
            continue;
        for (uint32_t j = i + 1; j < n->nsops && !read; j++)
            for (int a = 0; n->sop[j].section == section && w->live[j] && a < argument_count(&n->sop[j]); a++)
                read = read || n->sop[j].arg[a] == i;
        if (read && n->sop[i].kind == AP_SOP_REDUCE)
            print_finished(w, i);
        else if (read)
            line(w, "const %s v%u = r%u[l];", ap_emit_register(n->sop[i].dtype), i, i);
    }
}

static bool moves_along(const lanes *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->section != section || !w->live[i])
            continue;
        if ((s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE) && w->k->operand[s->operand].stride[w->loop])
            return true;
        if (s->kind == AP_SOP_INDEX && s->loop_stride[w->loop])
            return true;
    }
    return false;
}

static void open_lane(lanes *w, int section)
{
    line(w, "#pragma omp simd");
    line(w, "for (int64_t l = 0; l < m; l++) {");
    w->depth++;
    if (moves_along(w, section))
        line(w, "const int64_t i%d = b + l;", w->loop);
}

static void close_block(lanes *w)
{
    w->depth--;
    line(w, "}");
}

static void open_loop(lanes *w, int l)
{
    const char *i = loop_name(w, l);
    if (w->n->turns[l])
        line(w, "for (int64_t %s = 0; %s < n%" PRIu32 "; %s++) {", i, i, w->n->turns[l] - 1, i);
    else
        line(w, "for (int64_t %s = 0; %s < %" PRId64 "; %s++) {", i, i, w->n->extent[l], i);
    w->depth++;
}

static bool is_empty(const lanes *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (w->n->sop[i].section == section && w->live[i] && w->n->sop[i].kind != AP_SOP_CONST)
            return false;
    return true;
}

static void start_folds(lanes *w, int section)
{
    bool any = false;
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->kind != AP_SOP_REDUCE || s->section != section || !w->live[i])
            continue;
        if (!any)
            line(w, "for (int64_t l = 0; l < m; l++) {");
        w->depth += !any;
        any = true;
        line(w, "s%u[l] = %s;", i, fold_start(w, s));
        if (is_argument_index(s))
            line(w, "at%u[l] = -1;", i);
    }
    if (any)
        close_block(w);
}

static void print_section(lanes *w, int section)
{
    const ap_nest *n = w->n;
    int opened = 1;
    if (is_empty(w, section))
        return;
    start_folds(w, section);
    for (int l = n->nouter; l < section_loops(n, section); l++, opened++)
        open_loop(w, l);
    open_lane(w, section);
    print_arrivals(w, section);
    for (uint32_t i = 0; i < n->nsops; i++)
        if (n->sop[i].section == section && w->live[i] && n->sop[i].kind != AP_SOP_CONST)
            print_sop(w, i);
    while (opened-- > 0)
        close_block(w);
}

/* ---- arrays ---- */

static void declare_arrays(lanes *w)
{
    const ap_nest *n = w->n;
    int64_t at = 0;
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        if (s->kind == AP_SOP_REDUCE && w->live[i]) {
            line(w, "_Alignas(64) %s s%u[%" PRId64 "];", fold_type(w, s), i, w->width);
            if (is_argument_index(s))
                line(w, "_Alignas(64) int64_t at%u[%" PRId64 "];", i, w->width);
        } else if (w->kept[i] && s->kind != AP_SOP_CONST) {
            line(w, "_Alignas(64) %s r%u[%" PRId64 "];", ap_emit_register(s->dtype), i, w->width);
        }
    }
    for (int i = 0; i < n->ntemps; i++) {
        const char *type = ap_emit_register(n->temp_dtype[i]);
        int64_t count = ap_max_i64(1, inner_count(n) * w->width);
        if (ap_emit_lanes_scratch(w->k))
            line(w, "%s *const restrict t%d = (%s *)(scratch + %" PRId64 ");", type, i, type, at);
        else
            line(w, "_Alignas(64) %s t%d[%" PRId64 "];", type, i, count);
        at += (count * register_bytes(n->temp_dtype[i]) + 63) / 64 * 64;
    }
}

void ap_emit_lanes(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    lanes w = {.e = e, .t = t, .k = k, .n = n, .depth = 1};
    int opened = 0;
    char end[32];
    find_lane(k, &w.loop, &w.width);
    analyse(&w);
    declare_arrays(&w);
    for (int l = 0; l < n->nouter; l++) {
        if (l == w.loop)
            continue;
        open_loop(&w, l);
        opened++;
    }
    if (n->turns[w.loop])
        snprintf(end, sizeof end, "n%" PRIu32, n->turns[w.loop] - 1);
    else
        snprintf(end, sizeof end, "%" PRId64, n->extent[w.loop]);
    line(&w, "for (int64_t b = 0; b < %s; b += %" PRId64 ") {", end, w.width);
    w.depth++;
    int64_t extent = n->extent[w.loop];
    if (!n->turns[w.loop] && (extent <= w.width || extent % w.width == 0))
        line(&w, "const int64_t m = %" PRId64 ";", ap_min_i64(extent, w.width));
    else
        line(&w, "const int64_t m = %s - b < %" PRId64 " ? %s - b : %" PRId64 ";", end, w.width, end, w.width);
    for (int s = 0; s < n->nsections; s++)
        print_section(&w, s);
    for (opened++; opened > 0; opened--)
        close_block(&w);
}
