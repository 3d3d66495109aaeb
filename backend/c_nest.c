/* Loop nests as C.
 *
 *     outer loops {
 *         section 0: statements once, or inner loops { statements }
 *         section 1: ...
 *     }
 *
 * Each operation has a *level*: how many of the loops around it must be open for its value to be known. What needs
 * fewer outer loops than there are is printed further out, and so is the check of an index that does not change in the
 * loop that the compiler is to turn into vector code. */
#include "backend/emit.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { STACK_BYTES = 16384, LONG_SUM = 4096 };

typedef struct nest {
    const ap_emit *e;
    ap_text *t;
    const ap_kernel *k;
    const ap_nest *n;
    int depth;      /* of indentation */
    bool *live;     /* per sop: something depends on it */
    uint8_t *level; /* per sop */
    int64_t inner_count;
    bool has_inner;
} nest;

static void indent(nest *w)
{
    for (int i = 0; i < w->depth; i++)
        ap_text_add(w->t, "    ");
}

/* ---- what is needed, and where ---- */

static int last_loop(const int64_t *stride, int loops)
{
    int level = 0;
    for (int l = 0; l < loops; l++)
        if (stride[l] != 0)
            level = l + 1;
    return level;
}

static int section_loops(const ap_nest *n, int section)
{
    return n->inner[section] ? n->nouter + n->ninner : n->nouter;
}

static int argument_count(const ap_sop *s)
{
    switch (s->kind) {
    case AP_SOP_GATHER:
    case AP_SOP_CHECK:
    case AP_SOP_REDUCE:
    case AP_SOP_SCAN:
    case AP_SOP_STORE:
    case AP_SOP_TEMP_STORE:
        return 1;
    case AP_SOP_UPDATE:
        return s->imm.i >= 0 ? 2 : 1;
    case AP_SOP_POINTWISE:
        return ap_pointwise_nin((ap_pointwise)s->pw);
    default:
        return 0;
    }
}

/* Finds its element by an index that must be in range. */
static bool has_row(const ap_sop *s)
{
    return s->kind == AP_SOP_GATHER || (s->kind == AP_SOP_UPDATE && s->imm.i >= 0);
}

static uint32_t row_index(const ap_sop *s)
{
    return s->arg[s->kind == AP_SOP_UPDATE];
}

/* Has another operation checked the index already? */
static bool is_checked(const nest *w, const ap_sop *s)
{
    const ap_sop *index = &w->n->sop[row_index(s)];
    return index->kind == AP_SOP_CHECK && index->limit <= s->limit;
}

static int level_of(const nest *w, const ap_sop *s)
{
    const ap_nest *n = w->n;
    int loops = section_loops(n, s->section), level = 0;
    bool empty = n->inner[s->section] && w->inner_count == 0;
    switch (s->kind) {
    case AP_SOP_LOAD:
    case AP_SOP_GATHER:
        level = last_loop(w->k->operand[s->operand].stride, loops);
        break;
    case AP_SOP_INDEX:
        level = last_loop(s->loop_stride, loops);
        break;
    case AP_SOP_REDUCE:
        return n->nouter;
    case AP_SOP_SCAN:
    case AP_SOP_STORE:
    case AP_SOP_UPDATE:
    case AP_SOP_TEMP_STORE:
    case AP_SOP_TEMP_LOAD:
        return loops;
    default:
        break;
    }
    for (int i = 0; i < argument_count(s); i++)
        if (w->level[s->arg[i]] > level)
            level = w->level[s->arg[i]];
    return empty && s->kind != AP_SOP_CONST ? loops : level;
}

static void analyse(nest *w)
{
    const ap_nest *n = w->n;
    w->live = AP_NEW_ARRAY(&w->e->ctx->scratch, bool, n->nsops);
    w->level = AP_NEW_ARRAY(&w->e->ctx->scratch, uint8_t, n->nsops);
    for (uint32_t i = 0; i < n->nsops; i++)
        w->level[i] = (uint8_t)level_of(w, &n->sop[i]);
    for (uint32_t i = n->nsops; i-- > 0;) {
        const ap_sop *s = &n->sop[i];
        w->live[i] |= s->kind == AP_SOP_STORE || s->kind == AP_SOP_TEMP_STORE || s->kind == AP_SOP_GATHER ||
                      s->kind == AP_SOP_UPDATE || s->kind == AP_SOP_CHECK;
        for (int a = 0; w->live[i] && a < argument_count(s); a++)
            w->live[s->arg[a]] = true;
    }
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
    int64_t stride[AP_MAX_LOOPS] = {0}, step = 1;
    for (int l = w->n->nouter + w->n->ninner; l-- > w->n->nouter;) {
        stride[l] = step;
        step *= w->n->extent[l];
    }
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
    if (!print_strides(w, w->k->operand[s->operand].stride, section_loops(w->n, s->section)))
        ap_text_add(w->t, "0");
    ap_text_add(w->t, "] = ");
    print_stored(w, t, x);
}

static bool has_start(const nest *w, const ap_sop *s)
{
    return s->imm.i >= 0 && (uint64_t)s->imm.i < w->k->nints;
}

/* Walks the calls of the kernel in all stages. */
typedef struct calls {
    const ap_emit *e;
    ap_name kernel;
    uint32_t stage, next;
    const ap_local *p; /* of `in` */
    const ap_instr *in;
} calls;

static bool next_call(calls *c)
{
    for (; c->stage < c->e->program->stages.len; c->stage++, c->next = 0) {
        c->p = c->e->program->stages.at[c->stage];
        while (c->next < c->p->instrs.len) {
            c->in = &c->p->instrs.at[c->next++];
            if (c->in->kind == AP_INSTR_CALL && c->p->kernels.at[c->in->kernel].name == c->kernel)
                return true;
        }
    }
    return false;
}

static bool int_is_zero(const nest *w, uint32_t number)
{
    for (calls c = {.e = w->e, .kernel = w->k->name}; next_call(&c);) {
        const ap_affine *a = &c.in->ints[number].value;
        for (int x = 0; x < c.p->naxes; x++)
            if (a->step[x] != 0)
                return false;
        if (a->base != 0)
            return false;
    }
    return true;
}

/* Does every rank hold all rows, so that a checked index is a row of its part? */
static bool holds_all(const nest *w, const ap_sop *s)
{
    return s->extent >= s->limit && (!has_start(w, s) || int_is_zero(w, (uint32_t)s->imm.i));
}

/* Does some rank hold no row at all? */
static bool may_hold_none(const nest *w, const ap_sop *s)
{
    for (calls c = {.e = w->e, .kernel = w->k->name}; has_start(w, s) && next_call(&c);) {
        int32_t points = c.p->nranks * ap_local_microbatches(c.p);
        for (int32_t r = 0; r < points; r++) {
            int32_t coordinate[AP_MAX_AXES] = {0};
            for (int a = 0; a < c.p->naxes; a++)
                coordinate[a] = r / c.p->axis_stride[a] % c.p->axis_size[a];
            if (ap_int_at(&c.in->ints[s->imm.i], coordinate) >= s->limit)
                return true;
        }
    }
    return false;
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
    const char *x = index_text(w, row_index(s));
    if (!is_checked(w, s))
        print_range(w, x, 0, s->limit);
    if (s->extent <= 0)
        return;
    indent(w);
    ap_text_addf(w->t, "const int64_t r%u = %s", id, x);
    if (has_start(w, s))
        ap_text_addf(w->t, " - n%" PRId64, s->imm.i);
    ap_text_add(w->t, ";\n");
    if (holds_all(w, s))
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
    bool any = print_strides(w, w->k->operand[s->operand].stride, section_loops(w->n, s->section));
    if (has_row(s))
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
    if (has_row(s) && s->extent <= 0) {
        ap_text_add(w->t, ";\n");
        return;
    }
    if (has_row(s) && !holds_all(w, s))
        ap_text_addf(w->t, "if (here%u) ", id);
    ap_emit_operand(w->t, w->k, s->operand);
    ap_text_addf(w->t, "[%s] = ", index);
    print_stored(w, t, x[1].text);
}

static void print_gather(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    bool all = holds_all(w, s);
    if (s->extent <= 0) {
        ap_text_addf(w->t, "const %s v%u = 0;\n", type, id);
        return;
    }
    ap_text_addf(w->t, "const %s %c%u = ", type, all ? 'v' : 'e', id);
    if (!all && may_hold_none(w, s))
        ap_text_addf(w->t, "!here%u ? 0 : ", id);
    begin_load(w, s->operand);
    if (print_strides(w, w->k->operand[s->operand].stride, section_loops(w->n, s->section)))
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

static bool is_argument_index(const ap_sop *s)
{
    return s->reduce == AP_REDUCE_ARGMAX || s->reduce == AP_REDUCE_ARGMIN;
}

/* Type in which the fold runs: integers wrap in 64 bits, long float sums go in double. */
static const char *fold_type(const nest *w, const ap_sop *s)
{
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    bool sums = s->reduce == AP_REDUCE_SUM || s->reduce == AP_REDUCE_PROD;
    if (ap_dtype_is_float(t))
        return sums && w->inner_count > LONG_SUM ? "double" : ap_emit_register(t);
    return sums ? "uint64_t" : ap_emit_register(t);
}

static const char *fold_start(const nest *w, const ap_sop *s)
{
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    bool max = s->reduce == AP_REDUCE_MAX || s->reduce == AP_REDUCE_ARGMAX;
    ap_scalar x = {.f = max ? -INFINITY : INFINITY};
    if (s->reduce == AP_REDUCE_SUM)
        return "0";
    if (s->reduce == AP_REDUCE_PROD)
        return "1";
    if (!ap_dtype_is_float(t))
        x = t == AP_BOOL ? (ap_scalar){.i = !max} : ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &x);
    return ap_emit_literal(w->e->ctx, t, x).text;
}

static void print_fold_start(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    indent(w);
    ap_text_addf(w->t, "%s s%u = %s;\n", fold_type(w, s), id, fold_start(w, s));
    if (is_argument_index(s)) {
        indent(w);
        ap_text_addf(w->t, "int64_t at%u = -1;\n", id);
    }
}

static void print_fold(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    const char *x = value_of(w, s->arg[0]).text;
    bool is_float = ap_dtype_is_float(t), max = s->reduce == AP_REDUCE_MAX || s->reduce == AP_REDUCE_ARGMAX;
    if (s->reduce == AP_REDUCE_SUM || s->reduce == AP_REDUCE_PROD) {
        ap_text_addf(w->t, "s%u %s %s%s;\n", id, s->reduce == AP_REDUCE_SUM ? "+=" : "*=", is_float ? "" : "(uint64_t)",
                     x);
    } else if (!is_argument_index(s)) {
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
    if (is_argument_index(s))
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
        if (!print_strides(w, w->k->operand[s->operand].stride, section_loops(w->n, s->section)))
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
        bool any = print_strides(w, s->loop_stride, section_loops(w->n, s->section));
        if (has_start(w, s))
            ap_text_addf(w->t, "%sn%" PRId64, any ? " + " : "", s->imm.i);
        else if (!any)
            ap_text_add(w->t, "0");
        ap_text_add(w->t, ";\n");
        break;
    case AP_SOP_POINTWISE:
        for (int i = 0; i < argument_count(s); i++)
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
        bool at_end = s->kind == AP_SOP_REDUCE && section >= 0 && level == section_loops(w->n, section);
        if (!w->live[i] || s->kind == AP_SOP_CONST || (section >= 0 && s->section != section))
            continue;
        if (s->kind == AP_SOP_REDUCE ? !at_end : w->level[i] != level && !has_row(s))
            continue;
        if (has_row(s)) { /* the check as soon as the index is known, the element where it is used */
            if (w->level[row_index(s)] == level)
                print_check(w, i);
            if (w->level[i] != level)
                continue;
        }
        if (s->kind == AP_SOP_CHECK)
            print_range(w, index_text(w, s->arg[0]), -s->limit, s->limit);
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

/* May the iterations of loop l run side by side? Not when one may leave, or all store to one place. */
static bool is_parallel(const nest *w, int section, int l)
{
    if (w->n->extent[l] < 2)
        return false;
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (!w->live[i] || (section >= 0 && s->section != section))
            continue;
        if (has_row(s) && w->level[row_index(s)] == l + 1 && (s->kind == AP_SOP_UPDATE || !is_checked(w, s)))
            return false;
        if (s->kind == AP_SOP_SCAN || (s->kind == AP_SOP_CHECK && w->level[i] == l + 1))
            return false;
        if ((s->kind == AP_SOP_STORE || s->kind == AP_SOP_UPDATE) && w->k->operand[s->operand].stride[l] == 0)
            return false;
        if (s->kind == AP_SOP_REDUCE && is_argument_index(s))
            return false;
    }
    return true;
}

static void print_pragma(nest *w, int section)
{
    indent(w);
    ap_text_add(w->t, "#pragma omp simd");
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->kind != AP_SOP_REDUCE || !w->live[i] || (section >= 0 && s->section != section))
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
    int outer = w->n->nouter, loops = section_loops(w->n, section);
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if ((w->n->sop[i].kind == AP_SOP_REDUCE || w->n->sop[i].kind == AP_SOP_SCAN) && w->live[i] &&
            w->n->sop[i].section == section)
            print_fold_start(w, i);
    print_level(w, outer, section);
    for (int l = outer; l < loops; l++) {
        if (l == loops - 1 && is_parallel(w, section, l))
            print_pragma(w, section);
        open_loop(w, l);
        print_level(w, l + 1, section);
    }
    for (int l = outer; l < loops; l++)
        close_loop(w);
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (w->n->sop[i].kind == AP_SOP_REDUCE && w->live[i] && w->n->sop[i].section == section)
            print_fold_end(w, i);
}

/* ---- row temporaries ---- */

static int64_t inner_count(const ap_nest *n)
{
    int64_t count = 1;
    for (int l = 0; l < n->ninner; l++)
        count *= n->extent[n->nouter + l];
    return count;
}

static int register_bytes(ap_dtype t)
{
    return t == AP_F16 || t == AP_BF16 || t == AP_BOOL ? 4 : ap_dtype_bytes(t);
}

static int64_t temp_bytes(const ap_nest *n, int i)
{
    return (inner_count(n) * register_bytes(n->temp_dtype[i]) + 63) / 64 * 64;
}

static int64_t all_temp_bytes(const ap_nest *n)
{
    int64_t bytes = 0;
    for (int i = 0; i < n->ntemps; i++)
        bytes += temp_bytes(n, i);
    return bytes;
}

int64_t ap_emit_nest_scratch(const ap_kernel *k)
{
    int64_t bytes = k->kind == AP_KERNEL_NEST ? all_temp_bytes(&k->nest) : 0;
    if (ap_emit_has_lanes(k))
        return ap_emit_lanes_scratch(k);
    return bytes > STACK_BYTES ? bytes : 0;
}

bool ap_emit_nest_checks(const ap_kernel *k)
{
    for (uint32_t i = 0; k->kind == AP_KERNEL_NEST && i < k->nest.nsops; i++)
        if (has_row(&k->nest.sop[i]) || k->nest.sop[i].kind == AP_SOP_CHECK)
            return true;
    return false;
}

static void print_temps(nest *w)
{
    bool scratch = ap_emit_nest_scratch(w->k) > 0;
    int64_t at = 0, count = w->inner_count > 0 ? w->inner_count : 1;
    for (int i = 0; i < w->n->ntemps; i++) {
        const char *type = ap_emit_register(w->n->temp_dtype[i]);
        indent(w);
        if (scratch)
            ap_text_addf(w->t, "%s *const restrict t%d = (%s *)(scratch + %" PRId64 ");\n", type, i, type, at);
        else
            ap_text_addf(w->t, "_Alignas(64) %s t%d[%" PRId64 "];\n", type, i, count);
        at += temp_bytes(w->n, i);
    }
}

void ap_emit_nest(const ap_emit *e, ap_text *t, const ap_kernel *k)
{
    const ap_nest *n = &k->nest;
    nest w = {.e = e, .t = t, .k = k, .n = n, .depth = 1, .inner_count = inner_count(n)};
    if (ap_emit_has_lanes(k)) {
        ap_emit_lanes(e, t, k);
        return;
    }
    for (int s = 0; s < n->nsections; s++)
        w.has_inner |= n->inner[s];
    analyse(&w);
    print_temps(&w);
    for (int l = 0; l < n->nouter; l++) {
        print_level(&w, l, -1);
        if (l == n->nouter - 1 && !w.has_inner && is_parallel(&w, -1, l))
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
    nest w = {.e = e, .t = t, .k = k, .n = n, .depth = 1, .inner_count = 1};
    analyse(&w);
    for (int l = 0; l < n->nouter; l++) {
        const char *from = l == n->nouter - 2 ? "row" : "column";
        print_level(&w, l, -1);
        if (l < n->nouter - 2)
            continue;
        if (l == n->nouter - 1 && is_parallel(&w, -1, l))
            print_pragma(&w, -1);
        indent(&w);
        ap_text_addf(t, "for (int64_t i%d = %s0; i%d < %s1; i%d++) {\n", l, from, l, from, l);
        w.depth++;
    }
    print_section(&w, 0);
    for (int l = 0; l < 2; l++)
        close_loop(&w);
}
