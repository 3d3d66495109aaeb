/* Loop nests as C: what backend/nest.h says of them, in words. */
#include "backend/emit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

typedef struct nest {
    const ap_emit *e;
    ap_text *t;
    const ap_kernel *k;
    const ap_nest *n;
    int depth; /* of indentation */
    ap_nest_facts f;
} nest;

static void indent(nest *w)
{
    for (int i = 0; i < w->depth; i++)
        ap_text_add(w->t, "    ");
}

/* ---- expressions ---- */

static void print_loop_name(const nest *w, int l)
{
    ap_text_addf(w->t, l < w->n->nouter ? "i%d" : "j%d", l < w->n->nouter ? l : l - w->n->nouter);
}

/* stride . loops; true when something was written */
static bool print_strides(const nest *w, const int64_t *stride, int loops)
{
    bool any = false;
    for (int l = 0; l < loops; l++) {
        int64_t s = stride[l];
        if (s == 0)
            continue;
        ap_text_add(w->t, !any ? (s < 0 ? "-" : "") : s < 0 ? " - " : " + ");
        if (s != 1 && s != -1)
            ap_text_addf(w->t, "%" PRId64 "*", s < 0 ? -s : s);
        print_loop_name(w, l);
        any = true;
    }
    return any;
}

static void print_inner_index(const nest *w)
{
    int64_t stride[AP_MAX_LOOPS];
    ap_nest_inner_strides(w->n, stride);
    if (!print_strides(w, stride, w->n->nouter + w->n->ninner))
        ap_text_add(w->t, "0");
}

/* A sop as an operand: constants are written out where they are used. */
static ap_expr value_of(const nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    if (s->kind == AP_SOP_CONST)
        return ap_emit_literal(w->e->ctx, s->dtype, s->imm);
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_text_addf(&t, "v%u", id);
    return (ap_expr){ap_text_str(&t), 3};
}

/* The element of operand `o`, converted to what registers hold; the index follows from begin to end. */
static void begin_load(const nest *w, uint8_t o)
{
    ap_dtype t = w->k->operand[o].dtype;
    if (t == AP_F16 || t == AP_BF16)
        ap_text_addf(w->t, "aprt_%s_to_f32(", ap_dtype_str(t));
    ap_emit_operand(w->t, w->k, o);
    ap_text_add(w->t, "[");
}

static void end_load(const nest *w, uint8_t o)
{
    ap_dtype t = w->k->operand[o].dtype;
    ap_text_add(w->t, t == AP_BOOL ? "] != 0" : "]");
    if (t == AP_F16 || t == AP_BF16)
        ap_text_add(w->t, ")");
}

/* A register's contents as memory holds them, to the end of the line. */
static void print_stored(const nest *w, ap_dtype t, const char *x)
{
    if (t == AP_F16 || t == AP_BF16)
        ap_text_addf(w->t, "aprt_f32_to_%s(%s);\n", ap_dtype_str(t), x);
    else
        ap_text_addf(w->t, "%s%s;\n", t == AP_BOOL ? "(uint8_t)" : "", x);
}

static void print_store(const nest *w, const ap_sop *s)
{
    ap_dtype t = w->k->operand[s->operand].dtype;
    const char *x = value_of(w, s->arg[0]).text;
    ap_emit_operand(w->t, w->k, s->operand);
    ap_text_add(w->t, "[");
    if (!print_strides(w, w->k->operand[s->operand].stride, ap_nest_section_loops(w->n, s->section)))
        ap_text_add(w->t, "0");
    ap_text_add(w->t, "] = ");
    print_stored(w, t, x);
}

/* Leaves the kernel when x is not in [first, limit). */
static void print_range(nest *w, const char *x, int64_t first, int64_t limit)
{
    indent(w);
    ap_text_addf(w->t, "if (%s < %" PRId64 " || %s >= %" PRId64 ") {\n", x, first, x, limit);
    w->depth++;
    indent(w);
    ap_text_addf(w->t, "*bad = (aprt_bad){%s, %" PRId64 ", %" PRId64 "};\n", x, limit, first);
    indent(w);
    ap_text_add(w->t, "return 1;\n");
    w->depth--;
    indent(w);
    ap_text_add(w->t, "}\n");
}

/* The value of a sop as an i64. */
static const char *index_text(const nest *w, uint32_t id)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_text_addf(&t, "%s%s", w->n->sop[id].dtype == AP_I64 ? "" : "(int64_t)", value_of(w, id).text);
    return ap_text_str(&t);
}

/* The index is checked against the whole range and turned into a row of this rank's part; what lies elsewhere reads as
 * zero (of row 0, which is there on most ranks, so that the load needs no condition). */
static void print_check(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *x = index_text(w, ap_sop_row_index(s));
    if (!ap_nest_is_checked(&w->f, s))
        print_range(w, x, 0, s->limit);
    if (s->extent <= 0)
        return;
    indent(w);
    ap_text_addf(w->t, "const int64_t r%u = %s", id, x);
    if (ap_nest_has_start(w->k, s))
        ap_text_addf(w->t, " - n%" PRId64, s->imm.i);
    ap_text_add(w->t, ";\n");
    if (ap_nest_holds_all(&w->f, s))
        return;
    indent(w);
    ap_text_addf(w->t, "const int here%u = r%u >= 0 && r%u < %" PRId64 ";\n", id, id, id, s->extent);
    if (s->kind == AP_SOP_UPDATE)
        return;
    indent(w);
    ap_text_addf(w->t, "const int64_t row%u = here%u ? r%u : 0;\n", id, id, id);
}

/* Negative ones count from the end. */
static void print_index(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *x = value_of(w, s->arg[0]).text, *type = ap_emit_register(s->dtype);
    ap_text_addf(w->t, "const %s v%u = %s < 0 ? (%s)(%s + %" PRId64 ") : %s;\n", type, id, x, type, x, s->limit, x);
}

/* y[...] = y[...] + x, where the row is here. */
static void print_update(nest *w, uint32_t id)
{
    static const ap_pointwise op[AP_SCATTER_KIND_COUNT] = {[AP_SCATTER_ADD] = AP_PW_ADD,
                                                           [AP_SCATTER_MUL] = AP_PW_MUL,
                                                           [AP_SCATTER_MAX] = AP_PW_MAX,
                                                           [AP_SCATTER_MIN] = AP_PW_MIN};
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->k->operand[s->operand].dtype;
    ap_text at, *line = w->t;
    ap_text_init(&at, &w->e->ctx->scratch);
    w->t = &at;
    bool any = print_strides(w, w->k->operand[s->operand].stride, ap_nest_section_loops(w->n, s->section));
    if (ap_sop_has_row(s))
        ap_text_addf(&at, "%s%" PRId64 "*r%u", any ? " + " : "", s->stride, id);
    else if (!any)
        ap_text_add(&at, "0");
    const char *index = ap_text_str(&at);
    ap_expr x[2] = {{"", 3}, value_of(w, s->arg[0])};
    ap_text load;
    ap_text_init(&load, &w->e->ctx->scratch);
    w->t = &load;
    begin_load(w, s->operand);
    ap_text_add(&load, index);
    end_load(w, s->operand);
    x[0].text = ap_text_str(&load);
    w->t = line;
    if (s->reduce != AP_SCATTER_SET)
        x[1] = ap_emit_pointwise(w->e->ctx, op[s->reduce], t, t, x);
    if (ap_sop_has_row(s) && s->extent <= 0) {
        ap_text_add(w->t, ";\n");
        return;
    }
    if (ap_sop_has_row(s) && !ap_nest_holds_all(&w->f, s))
        ap_text_addf(w->t, "if (here%u) ", id);
    ap_emit_operand(w->t, w->k, s->operand);
    ap_text_addf(w->t, "[%s] = ", index);
    print_stored(w, t, x[1].text);
}

static void print_gather(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    bool all = ap_nest_holds_all(&w->f, s);
    if (s->extent <= 0) {
        ap_text_addf(w->t, "const %s v%u = 0;\n", type, id);
        return;
    }
    ap_text_addf(w->t, "const %s %c%u = ", type, all ? 'v' : 'e', id);
    if (!all && ap_nest_may_hold_none(&w->f, s))
        ap_text_addf(w->t, "!here%u ? 0 : ", id);
    begin_load(w, s->operand);
    if (print_strides(w, w->k->operand[s->operand].stride, ap_nest_section_loops(w->n, s->section)))
        ap_text_add(w->t, " + ");
    ap_text_addf(w->t, "%" PRId64 "*%s%u", s->stride, all ? "r" : "row", id);
    end_load(w, s->operand);
    ap_text_add(w->t, ";\n");
    if (all)
        return;
    indent(w);
    ap_text_addf(w->t, "const %s v%u = here%u ? e%u : 0;\n", type, id, id, id);
}

/* ---- reductions ---- */

/* Type in which the fold runs. */
static const char *fold_type(const nest *w, const ap_sop *s)
{
    switch (ap_nest_fold_type(w->n, s, w->f.inner_count, AP_NEST_LONG_SUM)) {
    case AP_FOLD_DOUBLE:
        return "double";
    case AP_FOLD_U64:
        return "uint64_t";
    default:
        return ap_emit_register(w->n->sop[s->arg[0]].dtype);
    }
}

static const char *fold_start(const nest *w, const ap_sop *s)
{
    if (ap_sop_is_sum(s))
        return s->reduce == AP_REDUCE_SUM ? "0" : "1";
    return ap_emit_literal(w->e->ctx, w->n->sop[s->arg[0]].dtype, ap_nest_fold_start(w->n, s)).text;
}

static void print_fold_start(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    indent(w);
    ap_text_addf(w->t, "%s s%u = %s;\n", fold_type(w, s), id, fold_start(w, s));
    if (ap_sop_is_argument_index(s)) {
        indent(w);
        ap_text_addf(w->t, "int64_t at%u = -1;\n", id);
    }
}

static void print_fold(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    const char *x = value_of(w, s->arg[0]).text;
    bool is_float = ap_dtype_is_float(t), max = ap_sop_is_largest(s);
    if (ap_sop_is_sum(s)) {
        ap_text_addf(w->t, "s%u %s %s%s;\n", id, s->reduce == AP_REDUCE_SUM ? "+=" : "*=", is_float ? "" : "(uint64_t)",
                     x);
    } else if (!ap_sop_is_argument_index(s)) {
        if (is_float)
            ap_text_addf(w->t, "s%u = aprt_%s_%s(s%u, %s);\n", id, max ? "max" : "min", t == AP_F64 ? "f64" : "f32", id,
                         x);
        else
            ap_text_addf(w->t, "s%u = %s %s s%u ? %s : s%u;\n", id, x, max ? ">" : "<", id, x, id);
    } else {
        ap_text_addf(w->t, "if (at%u < 0 || %s %s s%u", id, x, max ? ">" : "<", id);
        if (is_float)
            ap_text_addf(w->t, " || (%s != %s && s%u == s%u)", x, x, id, id); /* the first NaN wins */
        ap_text_add(w->t, ") {\n");
        w->depth++;
        indent(w);
        ap_text_addf(w->t, "s%u = %s;\n", id, x);
        indent(w);
        ap_text_addf(w->t, "at%u = ", id);
        print_inner_index(w);
        ap_text_add(w->t, ";\n");
        w->depth--;
        indent(w);
        ap_text_add(w->t, "}\n");
    }
}

static void print_fold_end(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    indent(w);
    if (ap_sop_is_argument_index(s))
        ap_text_addf(w->t, "const %s v%u = at%u < 0 ? 0 : at%u;\n", type, id, id, id);
    else if (s->dtype == AP_F16 || s->dtype == AP_BF16)
        ap_text_addf(w->t, "const float v%u = aprt_round_%s((float)s%u);\n", id, ap_dtype_str(s->dtype), id);
    else if (strcmp(fold_type(w, s), type) == 0)
        ap_text_addf(w->t, "const %s v%u = s%u;\n", type, id, id);
    else
        ap_text_addf(w->t, "const %s v%u = (%s)s%u;\n", type, id, type, id);
}

/* What is folded so far, as a value of the sop's type. */
static void print_running(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    if (s->dtype == AP_F16 || s->dtype == AP_BF16)
        ap_text_addf(w->t, "const float v%u = aprt_round_%s((float)s%u);\n", id, ap_dtype_str(s->dtype), id);
    else
        ap_text_addf(w->t, "const %s v%u = (%s)s%u;\n", type, id, type, id);
}

static void print_scan(nest *w, uint32_t id)
{
    bool exclusive = w->n->sop[id].imm.i != 0;
    if (exclusive)
        print_running(w, id);
    else
        print_fold(w, id);
    indent(w);
    if (exclusive)
        print_fold(w, id);
    else
        print_running(w, id);
}

/* ---- statements ---- */

static void print_value(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    ap_expr x[3];
    switch (s->kind) {
    case AP_SOP_LOAD:
        ap_text_addf(w->t, "const %s v%u = ", type, id);
        begin_load(w, s->operand);
        if (!print_strides(w, w->k->operand[s->operand].stride, ap_nest_section_loops(w->n, s->section)))
            ap_text_add(w->t, "0");
        end_load(w, s->operand);
        ap_text_add(w->t, ";\n");
        break;
    case AP_SOP_GATHER:
        print_gather(w, id);
        break;
    case AP_SOP_CHECK:
        print_index(w, id);
        break;
    case AP_SOP_SCAN:
        print_scan(w, id);
        break;
    case AP_SOP_UPDATE:
        print_update(w, id);
        break;
    case AP_SOP_INDEX:
        ap_text_addf(w->t, "const %s v%u = ", type, id);
        bool any = print_strides(w, s->loop_stride, ap_nest_section_loops(w->n, s->section));
        if (ap_nest_has_start(w->k, s))
            ap_text_addf(w->t, "%sn%" PRId64, any ? " + " : "", s->imm.i);
        else if (!any)
            ap_text_add(w->t, "0");
        ap_text_add(w->t, ";\n");
        break;
    case AP_SOP_POINTWISE:
        for (int i = 0; i < ap_sop_argument_count(s); i++)
            x[i] = value_of(w, s->arg[i]);
        ap_dtype operands = w->n->sop[s->arg[s->pw == AP_PW_SELECT]].dtype;
        ap_text_addf(w->t, "const %s v%u = %s;\n", type, id,
                     ap_emit_pointwise(w->e->ctx, (ap_pointwise)s->pw, operands, s->dtype, x).text);
        break;
    case AP_SOP_TEMP_LOAD:
        ap_text_addf(w->t, "const %s v%u = t%" PRId64 "[", type, id, s->imm.i);
        print_inner_index(w);
        ap_text_add(w->t, "];\n");
        break;
    case AP_SOP_TEMP_STORE:
        ap_text_addf(w->t, "t%" PRId64 "[", s->imm.i);
        print_inner_index(w);
        ap_text_addf(w->t, "] = %s;\n", value_of(w, s->arg[0]).text);
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
}

/* Everything that becomes known at this level; section < 0: of all sections. */
static void print_level(nest *w, int level, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        ap_nest_due due = ap_nest_due_at(&w->f, i, level, section);
        if (due.range && s->kind == AP_SOP_CHECK)
            print_range(w, index_text(w, s->arg[0]), -s->limit, s->limit);
        else if (due.range)
            print_check(w, i);
        if (!due.value)
            continue;
        indent(w);
        print_value(w, i);
    }
}

static void open_loop(nest *w, int l)
{
    indent(w);
    ap_text_add(w->t, "for (int64_t ");
    print_loop_name(w, l);
    ap_text_add(w->t, " = 0; ");
    print_loop_name(w, l);
    if (w->n->turns[l])
        ap_text_addf(w->t, " < n%" PRIu32 "; ", w->n->turns[l] - 1);
    else
        ap_text_addf(w->t, " < %" PRId64 "; ", w->n->extent[l]);
    print_loop_name(w, l);
    ap_text_add(w->t, "++) {\n");
    w->depth++;
}

static void close_loop(nest *w)
{
    w->depth--;
    indent(w);
    ap_text_add(w->t, "}\n");
}

static void print_pragma(nest *w, int section)
{
    indent(w);
    ap_text_add(w->t, "#pragma omp simd");
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->kind != AP_SOP_REDUCE || !w->f.live[i] || (section >= 0 && s->section != section))
            continue;
        bool is_float = ap_dtype_is_float(w->n->sop[s->arg[0]].dtype);
        const char *op = s->reduce == AP_REDUCE_SUM    ? "+"
                         : s->reduce == AP_REDUCE_PROD ? "*"
                         : s->reduce == AP_REDUCE_MAX  ? (is_float ? "aprt_max" : "max")
                                                       : (is_float ? "aprt_min" : "min");
        ap_text_addf(w->t, " reduction(%s:s%u)", op, i);
    }
    ap_text_add(w->t, "\n");
}

static void print_section(nest *w, int section)
{
    int outer = w->n->nouter, loops = ap_nest_section_loops(w->n, section);
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if ((w->n->sop[i].kind == AP_SOP_REDUCE || w->n->sop[i].kind == AP_SOP_SCAN) && w->f.live[i] &&
            w->n->sop[i].section == section)
            print_fold_start(w, i);
    print_level(w, outer, section);
    for (int l = outer; l < loops; l++) {
        if (l == loops - 1 && ap_nest_is_parallel(&w->f, section, l))
            print_pragma(w, section);
        open_loop(w, l);
        print_level(w, l + 1, section);
    }
    for (int l = outer; l < loops; l++)
        close_loop(w);
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (w->n->sop[i].kind == AP_SOP_REDUCE && w->f.live[i] && w->n->sop[i].section == section)
            print_fold_end(w, i);
}

/* ---- row temporaries ---- */

static void print_temps(nest *w)
{
    bool scratch = ap_emit_nest_scratch(w->k) > 0;
    int64_t at = 0, count = w->f.inner_count > 0 ? w->f.inner_count : 1;
    for (int i = 0; i < w->n->ntemps; i++) {
        const char *type = ap_emit_register(w->n->temp_dtype[i]);
        indent(w);
        if (scratch)
            ap_text_addf(w->t, "%s *const restrict t%d = (%s *)(scratch + %" PRId64 ");\n", type, i, type, at);
        else
            ap_text_addf(w->t, "_Alignas(64) %s t%d[%" PRId64 "];\n", type, i, count);
        at += ap_nest_temp_bytes(w->n, i);
    }
}

void ap_emit_nest(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    nest w = {.e = e, .t = t, .k = k, .n = n, .depth = 1};
    if (ap_emit_has_lanes(k)) {
        ap_emit_lanes(e, t, k);
        return;
    }
    w.f = ap_nest_find(&e->ctx->scratch, e->program, k);
    print_temps(&w);
    for (int l = 0; l < n->nouter; l++) {
        print_level(&w, l, -1);
        if (l == n->nouter - 1 && !w.f.has_inner && ap_nest_is_parallel(&w.f, -1, l))
            print_pragma(&w, -1);
        open_loop(&w, l);
    }
    for (int s = 0; s < n->nsections; s++)
        print_section(&w, s);
    for (int l = 0; l < n->nouter; l++)
        close_loop(&w);
    if (ap_emit_nest_checks(k))
        ap_text_add(t, "    return 0;\n");
}

void ap_emit_tile(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    nest w = {.e = e, .t = t, .k = k, .n = n, .depth = 1};
    w.f = ap_nest_find(&e->ctx->scratch, e->program, k);
    for (int l = 0; l < n->nouter; l++) {
        const char *from = l == n->nouter - 2 ? "row" : "column";
        print_level(&w, l, -1);
        if (l < n->nouter - 2)
            continue;
        if (l == n->nouter - 1 && ap_nest_is_parallel(&w.f, -1, l))
            print_pragma(&w, -1);
        indent(&w);
        ap_text_addf(t, "for (int64_t i%d = %s0; i%d < %s1; i%d++) {\n", l, from, l, from, l);
        w.depth++;
    }
    print_section(&w, 0);
    for (int l = 0; l < 2; l++)
        close_loop(&w);
}
