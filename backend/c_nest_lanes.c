/* Loop nests in lanes as C (backend/nest.h). */
#include "backend/emit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct lanes {
    const ap_emit *e;
    ap_text *t;
    const ap_kernel *k;
    const ap_nest *n;
    int depth;
    ap_lanes f;
} lanes;

#define line(w, ...) ap_emit_line((w)->e, (w)->t, (w)->depth, __VA_ARGS__)

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
    int64_t stride[AP_MAX_LOOPS];
    ap_nest_inner_strides(w->n, stride);
    return strides_text(w, stride, w->n->nouter + w->n->ninner);
}

static const char *place_text(const lanes *w, const ap_sop *s)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_emit_operand(&t, w->k, s->operand);
    ap_text_addf(&t, "[%s]",
                 strides_text(w, w->k->operand[s->operand].stride, ap_nest_section_loops(w->n, s->section)));
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

static const char *fold_type(const lanes *w, const ap_sop *s)
{
    switch (ap_nest_fold_type(w->n, s, ap_nest_inner_count(w->n), AP_LANES_LONG_SUM)) {
    case AP_FOLD_DOUBLE:
        return "double";
    case AP_FOLD_U64:
        return "uint64_t";
    default:
        return ap_emit_register(w->n->sop[s->arg[0]].dtype);
    }
}

static const char *fold_start(const lanes *w, const ap_sop *s)
{
    if (ap_sop_is_sum(s))
        return s->reduce == AP_REDUCE_SUM ? "0" : "1";
    return ap_emit_literal(w->e->ctx, w->n->sop[s->arg[0]].dtype, ap_nest_fold_start(w->n, s)).text;
}

static void print_fold(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    const char *x = value_of(w, s->arg[0]).text, *than = ap_sop_is_largest(s) ? ">" : "<";
    bool is_float = ap_dtype_is_float(t);
    if (ap_sop_is_sum(s)) {
        line(w, "s%u[l] %s %s%s;", id, s->reduce == AP_REDUCE_SUM ? "+=" : "*=", is_float ? "" : "(uint64_t)", x);
    } else if (ap_sop_is_argument_index(s)) {
        if (is_float) /* the first NaN wins */
            line(w, "const int take%u = (at%u[l] < 0) | (%s %s s%u[l]) | ((%s != %s) & (s%u[l] == s%u[l]));", id, id, x,
                 than, id, x, x, id, id);
        else
            line(w, "const int take%u = (at%u[l] < 0) | (%s %s s%u[l]);", id, id, x, than, id);
        line(w, "s%u[l] = take%u ? %s : s%u[l];", id, id, x, id);
        line(w, "at%u[l] = take%u ? %s : at%u[l];", id, id, inner_index(w), id);
    } else if (is_float) {
        line(w, "s%u[l] = aprt_%s_%s(s%u[l], %s);", id, ap_sop_is_largest(s) ? "max" : "min",
             t == AP_F64 ? "f64" : "f32", id, x);
    } else {
        line(w, "s%u[l] = %s %s s%u[l] ? %s : s%u[l];", id, x, than, id, x, id);
    }
}

/* The finished number as `v`. */
static void print_finished(lanes *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    if (ap_sop_is_argument_index(s))
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
                     strides_text(w, s->loop_stride, ap_nest_section_loops(w->n, s->section)));
        if (s->imm.i >= 0)
            ap_text_addf(w->t, " + n%" PRId64, s->imm.i);
        ap_text_add(w->t, ";\n");
        break;
    case AP_SOP_POINTWISE:
        for (int i = 0; i < ap_sop_argument_count(s); i++)
            x[i] = value_of(w, s->arg[i]);
        ap_dtype operands = w->n->sop[s->arg[s->pw == AP_PW_SELECT]].dtype;
        line(w, "const %s v%u = %s;", type, id,
             ap_emit_pointwise(w->e->ctx, (ap_pointwise)s->pw, operands, s->dtype, x).text);
        break;
    case AP_SOP_TEMP_LOAD:
        line(w, "const %s v%u = t%" PRId64 "[%" PRId64 "*(%s) + l];", type, id, s->imm.i, w->f.width, inner_index(w));
        break;
    case AP_SOP_TEMP_STORE:
        line(w, "t%" PRId64 "[%" PRId64 "*(%s) + l] = %s;", s->imm.i, w->f.width, inner_index(w),
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
    if (w->f.kept[id] && s->kind != AP_SOP_REDUCE)
        line(w, "r%u[l] = v%u;", id, id);
}

/* Numbers of rows that the section reads and another one has made. */
static void print_arrivals(lanes *w, int section)
{
    const ap_nest *n = w->n;
    for (uint32_t i = 0; i < n->nsops; i++) {
        if (!ap_lanes_arrives(&w->f, n, i, section))
            continue;
        if (n->sop[i].kind == AP_SOP_REDUCE)
            print_finished(w, i);
        else
            line(w, "const %s v%u = r%u[l];", ap_emit_register(n->sop[i].dtype), i, i);
    }
}

static bool moves_along(const lanes *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->section != section || !w->f.live[i])
            continue;
        if ((s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE) && w->k->operand[s->operand].stride[w->f.loop])
            return true;
        if (s->kind == AP_SOP_INDEX && s->loop_stride[w->f.loop])
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
        line(w, "const int64_t i%d = b + l;", w->f.loop);
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

static void start_folds(lanes *w, int section)
{
    bool any = false;
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->kind != AP_SOP_REDUCE || s->section != section || !w->f.live[i])
            continue;
        if (!any)
            line(w, "for (int64_t l = 0; l < m; l++) {");
        w->depth += !any;
        any = true;
        line(w, "s%u[l] = %s;", i, fold_start(w, s));
        if (ap_sop_is_argument_index(s))
            line(w, "at%u[l] = -1;", i);
    }
    if (any)
        close_block(w);
}

static void print_section(lanes *w, int section)
{
    const ap_nest *n = w->n;
    int opened = 1;
    if (ap_lanes_is_empty(&w->f, n, section))
        return;
    start_folds(w, section);
    for (int l = n->nouter; l < ap_nest_section_loops(n, section); l++, opened++)
        open_loop(w, l);
    open_lane(w, section);
    print_arrivals(w, section);
    for (uint32_t i = 0; i < n->nsops; i++)
        if (n->sop[i].section == section && w->f.live[i] && n->sop[i].kind != AP_SOP_CONST)
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
        if (s->kind == AP_SOP_REDUCE && w->f.live[i]) {
            line(w, "_Alignas(64) %s s%u[%" PRId64 "];", fold_type(w, s), i, w->f.width);
            if (ap_sop_is_argument_index(s))
                line(w, "_Alignas(64) int64_t at%u[%" PRId64 "];", i, w->f.width);
        } else if (w->f.kept[i] && s->kind != AP_SOP_CONST) {
            line(w, "_Alignas(64) %s r%u[%" PRId64 "];", ap_emit_register(s->dtype), i, w->f.width);
        }
    }
    for (int i = 0; i < n->ntemps; i++) {
        const char *type = ap_emit_register(n->temp_dtype[i]);
        int64_t count = ap_max_i64(1, ap_nest_inner_count(n) * w->f.width);
        if (ap_emit_lanes_scratch(w->k))
            line(w, "%s *const restrict t%d = (%s *)(scratch + %" PRId64 ");", type, i, type, at);
        else
            line(w, "_Alignas(64) %s t%d[%" PRId64 "];", type, i, count);
        at += (count * ap_nest_register_bytes(n->temp_dtype[i]) + 63) / 64 * 64;
    }
}

void ap_emit_lanes(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    lanes w = {.e = e, .t = t, .k = k, .n = n, .depth = 1};
    int opened = 0;
    char end[32];
    w.f = ap_lanes_facts(&e->ctx->scratch, k);
    declare_arrays(&w);
    for (int l = 0; l < n->nouter; l++) {
        if (l == w.f.loop)
            continue;
        open_loop(&w, l);
        opened++;
    }
    if (n->turns[w.f.loop])
        snprintf(end, sizeof end, "n%" PRIu32, n->turns[w.f.loop] - 1);
    else
        snprintf(end, sizeof end, "%" PRId64, n->extent[w.f.loop]);
    line(&w, "for (int64_t b = 0; b < %s; b += %" PRId64 ") {", end, w.f.width);
    w.depth++;
    int64_t extent = n->extent[w.f.loop];
    if (!n->turns[w.f.loop] && (extent <= w.f.width || extent % w.f.width == 0))
        line(&w, "const int64_t m = %" PRId64 ";", ap_min_i64(extent, w.f.width));
    else
        line(&w, "const int64_t m = %s - b < %" PRId64 " ? %s - b : %" PRId64 ";", end, w.f.width, end, w.f.width);
    for (int s = 0; s < n->nsections; s++)
        print_section(&w, s);
    for (opened++; opened > 0; opened--)
        close_block(&w);
}
