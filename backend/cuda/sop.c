/* The operations of a loop nest as CUDA: what one thread does at one turn of the loops. */
#include "backend/cuda/cuda.h"

#include <inttypes.h>
#include <stdarg.h>
#include <string.h>

#define line(...) ap_cuda_line(__VA_ARGS__)
#define text(...) ap_cuda_text(__VA_ARGS__)

const char *ap_cuda_text(const ap_cuda_writer *w, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *s = ap_arena_alloc(&w->e->ctx->scratch, (size_t)n + 1);
    vsnprintf(s, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return s;
}

/* ---- loops and offsets ---- */

const char *ap_cuda_int(const ap_cuda_writer *w)
{
    return w->p.wide ? "int64_t" : "int";
}

const char *ap_cuda_unsigned(const ap_cuda_writer *w)
{
    return w->p.wide ? "uint64_t" : "unsigned int";
}

const char *ap_cuda_loop(const ap_cuda_writer *w, int l)
{
    if (w->at_pack && l == w->p.vector_loop)
        return l >= w->n->nouter && w->n->ninner > 1 ? "c" : "b";
    return l < w->n->nouter ? text(w, "i%d", l) : w->n->ninner == 1 ? "j" : text(w, "j%d", l - w->n->nouter);
}

const char *ap_cuda_turns(const ap_cuda_writer *w, int l)
{
    if (w->n->turns[l])
        return text(w, w->p.wide ? "n%" PRIu32 : "(int)n%" PRIu32, w->n->turns[l] - 1);
    return text(w, "%" PRId64, w->n->extent[l]);
}

/* stride . loops; "" when there is nothing. */
static const char *sum_of(const ap_cuda_writer *w, const int64_t *stride, int loops, const char *cast)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int l = 0; l < loops; l++) {
        int64_t s = stride[l];
        if (s == 0 || (w->n->extent[l] == 1 && !w->n->turns[l]))
            continue;
        ap_text_add(&t, !t.len ? (s < 0 ? "-" : "") : s < 0 ? " - " : " + ");
        if (s != 1 && s != -1)
            ap_text_addf(&t, "%" PRId64 "*", s < 0 ? -s : s);
        ap_text_addf(&t, "%s%s", cast, ap_cuda_loop(w, l));
    }
    return ap_text_str(&t);
}

const char *ap_cuda_strides(const ap_cuda_writer *w, const int64_t *stride, int loops)
{
    const char *s = sum_of(w, stride, loops, "");
    return *s ? s : "0";
}

static int loops_of(const ap_cuda_writer *w, const ap_sop *s)
{
    return ap_nest_section_loops(w->n, s->section);
}

static const char *operand_name(const ap_cuda_writer *w, uint32_t i)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    ap_emit_operand(&t, w->k, i);
    return ap_text_str(&t);
}

/* Elements from the beginning of the operand, and of the row found by an index. */
static const char *offset_of(const ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *at = sum_of(w, w->k->operand[s->operand].stride, loops_of(w, s), "");
    if (!ap_sop_has_row(s))
        return *at ? at : "0";
    return text(w, "%s%s%" PRId64 "*r%u", at, *at ? " + " : "", s->stride, id);
}

static ap_expr value_of(const ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    if (s->kind == AP_SOP_CONST)
        return ap_emit_literal(w->e->ctx, s->dtype, s->imm);
    return (ap_expr){text(w, "v%u", id), 3};
}

/* The value of a sop as an i64. */
static const char *index_text(const ap_cuda_writer *w, uint32_t id)
{
    return text(w, "%s%s", w->n->sop[id].dtype == AP_I64 ? "" : "(int64_t)", value_of(w, id).text);
}

/* ---- memory ---- */

/* An element in memory as a register holds it. */
static const char *loaded(const ap_cuda_writer *w, ap_dtype t, const char *x)
{
    if (t == AP_F16 || t == AP_BF16)
        return text(w, "aprt_%s_to_f32(%s)", ap_dtype_str(t), x);
    return t == AP_BOOL ? text(w, "%s != 0", x) : x;
}

static const char *stored(const ap_cuda_writer *w, ap_dtype t, const char *x)
{
    if (t == AP_F16 || t == AP_BF16)
        return text(w, "aprt_f32_to_%s(%s)", ap_dtype_str(t), x);
    return t == AP_BOOL ? text(w, "(uint8_t)(%s)", x) : x;
}

bool ap_cuda_is_packed(const ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    bool access = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE || s->kind == AP_SOP_GATHER;
    bool over = w->p.vector_loop < w->n->nouter || w->n->inner[s->section];
    bool kept = w->p.keeps && ap_cuda_kept_by(&w->f, id) != AP_NONE;
    return w->p.vector > 1 && w->f.live[id] && access && over && w->p.packed[s->operand] && !kept;
}

static const char *element(const ap_cuda_writer *w, uint32_t id)
{
    if (ap_cuda_is_packed(w, id))
        return text(w, "q%u.at[v]", id);
    return text(w, "%s[%s]", operand_name(w, w->n->sop[id].operand), offset_of(w, id));
}

static bool guards_row(const ap_cuda_writer *w, const ap_sop *s)
{
    bool owned = s->kind == AP_SOP_UPDATE && w->p.owners > 1;
    return owned || !(ap_nest_is_checked(&w->f, s) && ap_nest_holds_all(&w->f, s) && s->limit > 0);
}

bool ap_cuda_is_keeper(const ap_cuda_writer *w, uint32_t id)
{
    for (uint32_t i = id + 1; i < w->n->nsops && w->p.keeps; i++)
        if (w->f.live[i] && ap_cuda_kept_by(&w->f, i) == id)
            return true;
    return false;
}

void ap_cuda_pack_loads(ap_cuda_writer *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        const char *type = ap_dtype_c(w->k->operand[s->operand].dtype);
        if (s->section != section || !ap_cuda_is_packed(w, i) || s->kind == AP_SOP_STORE)
            continue;
        w->at_pack = true;
        const char *from =
            text(w, "aprt_load_pack<%d>(%s + %s)", w->p.vector, operand_name(w, s->operand), offset_of(w, i));
        w->at_pack = false;
        if (s->kind == AP_SOP_GATHER && guards_row(w, s)) {
            line(w, "aprt_pack<%d, %s> q%u = {};", w->p.vector, type, i);
            line(w, "if (here%u)", i);
            line(w, "    q%u = %s;", i, from);
        } else {
            line(w, "const aprt_pack<%d, %s> q%u = %s;", w->p.vector, type, i, from);
        }
    }
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->section == section && ap_cuda_is_packed(w, i) && s->kind == AP_SOP_STORE)
            line(w, "aprt_pack<%d, %s> q%u;", w->p.vector, ap_dtype_c(w->k->operand[s->operand].dtype), i);
    }
}

void ap_cuda_pack_stores(ap_cuda_writer *w, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (s->section != section || !ap_cuda_is_packed(w, i) || s->kind != AP_SOP_STORE)
            continue;
        w->at_pack = true;
        line(w, "aprt_store_pack(%s + %s, q%u);", operand_name(w, s->operand), offset_of(w, i), i);
        w->at_pack = false;
    }
}

/* ---- indices ---- */

/* Row-major position of the turn, among all that the record has. */
static const char *position(const ap_cuda_writer *w, int level)
{
    int64_t stride[AP_MAX_LOOPS], step = 1;
    bool inner = level > w->n->nouter;
    for (int l = w->n->nouter + w->n->ninner; l-- > 0;) {
        stride[l] = inner || l < w->n->nouter ? step : 0;
        step = ap_sat_mul(step, ap_max_i64(1, w->n->extent[l]));
    }
    const char *s = sum_of(w, stride, w->n->nouter + w->n->ninner, "(int64_t)");
    return *s ? text(w, "key + (unsigned long long)(%s)", s) : "key";
}

static void print_range(ap_cuda_writer *w, const char *x, int64_t first, int64_t limit, int level)
{
    line(w, "if (%s < %" PRId64 " || %s >= %" PRId64 ")", x, first, x, limit);
    w->at_pack = w->phase == AP_CUDA_BEFORE;
    line(w, "    aprt_cuda_report(bad, %s, %s, %" PRId64 ", %" PRId64 ");", position(w, level), x, first, limit);
    w->at_pack = false;
}

/* The row of this rank's part that the index means; here: it is one. A kernel that met a bad index goes on without. */
static void print_row(ap_cuda_writer *w, uint32_t id, int level)
{
    const ap_sop *s = &w->n->sop[id];
    const char *x = index_text(w, ap_sop_row_index(s)), *type = ap_cuda_int(w);
    bool checked = ap_nest_is_checked(&w->f, s), all = ap_nest_holds_all(&w->f, s);
    if (!checked)
        print_range(w, x, 0, s->limit, level);
    if (s->extent <= 0)
        return;
    const char *row = ap_nest_has_start(w->k, s) ? text(w, "%s - n%" PRId64, x, s->imm.i) : x;
    if (!guards_row(w, s)) {
        line(w, "const %s r%u = (%s)(%s);", type, id, type, row);
        return;
    }
    const char *mine =
        s->kind == AP_SOP_UPDATE && w->p.owners > 1 ? text(w, " && ((%s) & %d) == owner", row, w->p.owners - 1) : "";
    if (checked && s->limit > 0)
        line(w, "const bool here%u = %s >= 0 && %s < %" PRId64 "%s;", id, row, row, s->extent, mine);
    else if (all)
        line(w, "const bool here%u = %s >= 0 && %s < %" PRId64 "%s;", id, x, x, s->limit, mine);
    else
        line(w, "const bool here%u = %s >= 0 && %s < %" PRId64 " && %s >= 0 && %s < %" PRId64 "%s;", id, x, x, s->limit,
             row, row, s->extent, mine);
    line(w, "const %s r%u = here%u ? (%s)(%s) : 0;", type, id, id, type, row);
}

static void print_gather(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    if (s->extent <= 0)
        line(w, "const %s v%u = 0;", type, id);
    else if (ap_cuda_is_packed(w, id) || !guards_row(w, s))
        line(w, "const %s v%u = %s;", type, id, loaded(w, w->k->operand[s->operand].dtype, element(w, id)));
    else
        line(w, "const %s v%u = here%u ? %s : %s;", type, id, id,
             text(w, "(%s)", loaded(w, w->k->operand[s->operand].dtype, element(w, id))),
             strcmp(type, "float") == 0 ? "0.0f" : text(w, "(%s)0", type));
}

/* Negative ones count from the end; a bad one becomes the first. */
static void print_index(ap_cuda_writer *w, uint32_t id, int level)
{
    const ap_sop *s = &w->n->sop[id];
    const char *x = index_text(w, s->arg[0]), *type = ap_emit_register(s->dtype);
    print_range(w, x, -s->limit, s->limit, level);
    line(w, "const %s v%u = (%s)(%s < %" PRId64 " || %s >= %" PRId64 " ? 0 : %s < 0 ? %s + %" PRId64 " : %s);", type,
         id, type, x, -s->limit, x, s->limit, x, x, s->limit, x);
}

/* y[...] = y[...] + x, where the row is here. */
static void print_update(ap_cuda_writer *w, uint32_t id)
{
    static const ap_pointwise op[AP_SCATTER_KIND_COUNT] = {[AP_SCATTER_ADD] = AP_PW_ADD,
                                                           [AP_SCATTER_MUL] = AP_PW_MUL,
                                                           [AP_SCATTER_MAX] = AP_PW_MAX,
                                                           [AP_SCATTER_MIN] = AP_PW_MIN};
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->k->operand[s->operand].dtype;
    if (ap_sop_has_row(s) && s->extent <= 0)
        return;
    const char *to = element(w, id);
    ap_expr x[2] = {{loaded(w, t, to), t == AP_BOOL ? 1 : 3}, value_of(w, s->arg[0])};
    if (s->reduce != AP_SCATTER_SET)
        x[1] = ap_emit_pointwise(w->e->ctx, op[s->reduce], t, t, x);
    if (ap_sop_has_row(s) && guards_row(w, s))
        line(w, "if (here%u) %s = %s;", id, to, stored(w, t, x[1].text));
    else
        line(w, "%s = %s;", to, stored(w, t, x[1].text));
}

/* ---- folds ---- */

/* Where the threads of a warp walk together, the last ones may have nothing left to do. */
static const char *if_inside(const ap_cuda_writer *w)
{
    return w->walks_together ? "if (inside) " : "";
}

const char *ap_cuda_fold_type(const ap_cuda_writer *w, const ap_sop *s)
{
    ap_fold_type t = ap_nest_fold_type(w->n, s, w->f.inner_count, AP_NEST_LONG_SUM);
    return t == AP_FOLD_DOUBLE ? "double"
           : t == AP_FOLD_U64  ? "uint64_t"
                               : ap_emit_register(w->n->sop[s->arg[0]].dtype);
}

const char *ap_cuda_fold_name(const ap_sop *s)
{
    if (ap_sop_is_argument_index(s))
        return ap_sop_is_largest(s) ? "aprt_first_most" : "aprt_first_least";
    if (ap_sop_is_sum(s))
        return s->reduce == AP_REDUCE_SUM ? "aprt_sum" : "aprt_prod";
    return ap_sop_is_largest(s) ? "aprt_most" : "aprt_least";
}

void ap_cuda_fold_start(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_scalar x = ap_nest_fold_start(w->n, s);
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    const char *start =
        ap_sop_is_sum(s) ? (s->reduce == AP_REDUCE_PROD ? "1" : "0") : ap_emit_literal(w->e->ctx, t, x).text;
    line(w, "%s s%u = %s;", ap_cuda_fold_type(w, s), id, start);
    if (ap_sop_is_argument_index(s))
        line(w, "int64_t at%u = -1;", id);
}

/* Where an element stands within its row. */
static const char *inner_position(const ap_cuda_writer *w)
{
    int64_t stride[AP_MAX_LOOPS] = {0};
    if (w->flat)
        return w->n->ninner == 1 ? "j" : w->p.vector > 1 ? "(b + v)" : "b";
    ap_nest_inner_strides(w->n, stride);
    return ap_cuda_strides(w, stride, w->n->nouter + w->n->ninner);
}

static void print_fold(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->n->sop[s->arg[0]].dtype;
    const char *x = value_of(w, s->arg[0]).text;
    bool is_float = ap_dtype_is_float(t), max = ap_sop_is_largest(s);
    if (ap_sop_is_sum(s)) {
        line(w, "%ss%u %s %s%s;", if_inside(w), id,
             s->reduce == AP_REDUCE_SUM ? "+=" : "*=", is_float ? "" : "(uint64_t)", x);
    } else if (!ap_sop_is_argument_index(s)) {
        line(w, "%ss%u = %s<%s>()(s%u, %s);", if_inside(w), id, ap_cuda_fold_name(s), ap_emit_register(t), id, x);
    } else {
        const char *nan = text(w, " || (%s != %s && s%u == s%u)", x, x, id, id); /* the first NaN wins */
        line(w, "if (%s(at%u < 0 || %s %s s%u%s)) {", w->walks_together ? "inside && " : "", id, x, max ? ">" : "<", id,
             is_float ? nan : "");
        line(w, "    s%u = %s;", id, x);
        line(w, "    at%u = %s;", id, inner_position(w));
        line(w, "}");
    }
}

void ap_cuda_fold_end(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype);
    if (ap_sop_is_argument_index(s))
        line(w, "const %s v%u = at%u < 0 ? 0 : at%u;", type, id, id, id);
    else if (s->dtype == AP_F16 || s->dtype == AP_BF16)
        line(w, "const float v%u = aprt_round_%s((float)s%u);", id, ap_dtype_str(s->dtype), id);
    else
        line(w, "const %s v%u = (%s)s%u;", type, id, type, id);
}

/* The running fold: of one thread alone, or of a warp with what came before in s. */
static void print_scan(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_cuda_fold_type(w, s), *fold = ap_cuda_fold_name(s), *x = value_of(w, s->arg[0]).text;
    const char *reg = ap_emit_register(s->dtype), *now = text(w, "s%u", id);
    if (w->p.way == AP_CUDA_THREADS) {
        if (!s->imm.i)
            print_fold(w, id);
        else
            now = text(w, "p%u", id), line(w, "const %s p%u = s%u;", type, id, id);
    } else {
        line(w, "const %s w%u = aprt_running<%s<%s>>(inside ? (%s)%s : %s);", type, id, fold, type, type, x,
             ap_sop_is_sum(s)
                 ? (s->reduce == AP_REDUCE_PROD ? "1" : "0")
                 : ap_emit_literal(w->e->ctx, w->n->sop[s->arg[0]].dtype, ap_nest_fold_start(w->n, s)).text);
        if (s->imm.i) {
            line(w, "const %s u%u = (%s)__shfl_up_sync(APRT_EVERYONE, w%u, 1);", type, id, type, id);
            line(w, "const %s p%u = t == 0 ? s%u : %s<%s>()(s%u, u%u);", type, id, id, fold, type, id, id);
        } else {
            line(w, "const %s p%u = %s<%s>()(s%u, w%u);", type, id, fold, type, id, id);
        }
        line(w, "s%u = %s<%s>()(s%u, (%s)__shfl_sync(APRT_EVERYONE, w%u, 31));", id, fold, type, id, type, id);
        now = text(w, "p%u", id);
    }
    if (s->dtype == AP_F16 || s->dtype == AP_BF16)
        line(w, "const float v%u = aprt_round_%s((float)%s);", id, ap_dtype_str(s->dtype), now);
    else
        line(w, "const %s v%u = (%s)%s;", reg, id, reg, now);
    if (w->p.way == AP_CUDA_THREADS && s->imm.i)
        print_fold(w, id);
}

/* ---- row temporaries ---- */

static const char *temporary(const ap_cuda_writer *w, int64_t i)
{
    const char *at = inner_position(w);
    if (w->p.way == AP_CUDA_THREADS)
        return w->p.room == AP_CUDA_REGISTERS ? text(w, "t%" PRId64 "[%s]", i, at)
                                              : text(w, "t%" PRId64 "[threads * (%s)]", i, at);
    if (w->p.room == AP_CUDA_REGISTERS)
        return w->p.vector > 1 ? text(w, "t%" PRId64 "[%d*q + v]", i, w->p.vector) : text(w, "t%" PRId64 "[q]", i);
    return w->p.way == AP_CUDA_COLUMNS ? text(w, "t%" PRId64 "[32 * %s]", i, at) : text(w, "t%" PRId64 "[%s]", i, at);
}

/* ---- statements ---- */

static const char *kept_element(const ap_cuda_writer *w, uint32_t id)
{
    return w->p.vector > 1 ? text(w, "k%u[%d*q + v]", id, w->p.vector) : text(w, "k%u[q]", id);
}

static void print_load(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    uint32_t by = w->p.keeps ? ap_cuda_kept_by(&w->f, id) : AP_NONE;
    const char *type = ap_emit_register(s->dtype);
    if (by != AP_NONE) {
        line(w, "const %s v%u = %s;", type, id, kept_element(w, by));
        return;
    }
    line(w, "const %s v%u = %s;", type, id, loaded(w, w->k->operand[s->operand].dtype, element(w, id)));
    if (ap_cuda_is_keeper(w, id))
        line(w, "%s = v%u;", kept_element(w, id), id);
}

/* One store for the row, not one from each of the threads that share it. */
static void print_store(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    const char *x = stored(w, w->k->operand[s->operand].dtype, value_of(w, s->arg[0]).text);
    bool alone = w->p.way == AP_CUDA_THREADS || w->n->inner[s->section];
    line(w, "%s%s = %s;", alone ? if_inside(w) : "if (first) ", element(w, id), x);
}

static void print_pointwise(ap_cuda_writer *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    ap_expr x[3];
    for (int i = 0; i < ap_sop_argument_count(s); i++)
        x[i] = value_of(w, s->arg[i]);
    ap_dtype operands = w->n->sop[s->arg[s->pw == AP_PW_SELECT]].dtype;
    line(w, "const %s v%u = %s;", ap_emit_register(s->dtype), id,
         ap_emit_pointwise(w->e->ctx, (ap_pointwise)s->pw, operands, s->dtype, x).text);
}

static void print_value(ap_cuda_writer *w, uint32_t id, int level)
{
    const ap_sop *s = &w->n->sop[id];
    const char *type = ap_emit_register(s->dtype), *sum;
    switch (s->kind) {
    case AP_SOP_LOAD:
        print_load(w, id);
        break;
    case AP_SOP_GATHER:
        print_gather(w, id);
        break;
    case AP_SOP_CHECK:
        print_index(w, id, level);
        break;
    case AP_SOP_INDEX:
        sum = sum_of(w, s->loop_stride, loops_of(w, s), "(int64_t)");
        line(w, "const %s v%u = %s%s%s;", type, id, sum, *sum && ap_nest_has_start(w->k, s) ? " + " : "",
             ap_nest_has_start(w->k, s) ? text(w, "n%" PRId64, s->imm.i)
             : *sum                     ? ""
                                        : "0");
        break;
    case AP_SOP_POINTWISE:
        print_pointwise(w, id);
        break;
    case AP_SOP_REDUCE:
        print_fold(w, id);
        break;
    case AP_SOP_SCAN:
        print_scan(w, id);
        break;
    case AP_SOP_STORE:
        print_store(w, id);
        break;
    case AP_SOP_UPDATE:
        print_update(w, id);
        break;
    case AP_SOP_TEMP_STORE:
        line(w, "%s%s = %s;", if_inside(w), temporary(w, s->imm.i), value_of(w, s->arg[0]).text);
        break;
    case AP_SOP_TEMP_LOAD:
        line(w, "const %s v%u = %s;", type, id, temporary(w, s->imm.i));
        break;
    case AP_SOP_CONST:
    case AP_SOP_KIND_COUNT:
        break;
    }
}

/* Loops of the nest that must be open: all outer ones are; inner ones are one loop, or are opened one by one. */
static int level_of(const ap_cuda_writer *w, uint32_t id, int section)
{
    int level = w->f.level[id], outer = w->n->nouter;
    if (w->n->sop[id].kind == AP_SOP_REDUCE)
        level = ap_nest_section_loops(w->n, section);
    if (level <= outer)
        return outer;
    return w->flat ? outer + w->n->ninner : level;
}

/* Of accesses of several elements: is the sop done before them, or for each element? */
static bool is_in_phase(const ap_cuda_writer *w, uint32_t id)
{
    return w->phase == AP_CUDA_WHOLE || w->varies[id] == (w->phase == AP_CUDA_ELEMENT);
}

/* One of several threads that share the rows of an update: first where the update goes, then, if the row is its own,
 * the rest. */
static void statements_of_owner(ap_cuda_writer *w, int level)
{
    uint32_t update = 0;
    while (w->n->sop[update].kind != AP_SOP_UPDATE)
        update++;
    bool *needed = ap_cuda_find_needed(w->e, w->n, ap_sop_row_index(&w->n->sop[update]));
    for (int rest = 0; rest < 2; rest++) {
        for (uint32_t i = 0; i < w->n->nsops; i++) {
            if (!w->f.live[i] || w->n->sop[i].kind == AP_SOP_CONST || needed[i] == (rest != 0))
                continue;
            if (ap_sop_has_row(&w->n->sop[i]) && i != update)
                print_row(w, i, level);
            print_value(w, i, level);
        }
        if (rest == 0) {
            print_row(w, update, level);
            line(w, "if (!here%u)", update);
            line(w, "    continue;");
        }
    }
}

void ap_cuda_statements(ap_cuda_writer *w, int section, int level)
{
    if (w->p.owners > 1) {
        statements_of_owner(w, level);
        return;
    }
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        if (!w->f.live[i] || s->kind == AP_SOP_CONST || s->section != section)
            continue;
        if (ap_sop_has_row(s)) {
            uint32_t row = ap_sop_row_index(s);
            if (level_of(w, row, section) == level && is_in_phase(w, row))
                print_row(w, i, level);
        }
        if (level_of(w, i, section) == level && is_in_phase(w, i))
            print_value(w, i, level);
    }
}

bool *ap_cuda_find_varying(const ap_cuda_writer *w)
{
    bool *varies = AP_NEW_ARRAY(&w->e->ctx->scratch, bool, w->n->nsops);
    int loop = w->p.vector_loop;
    for (uint32_t i = 0; i < w->n->nsops && loop != AP_CUDA_NO_LOOP; i++) {
        const ap_sop *s = &w->n->sop[i];
        bool over = loop < w->n->nouter || w->n->inner[s->section];
        bool access = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_GATHER;
        bool kept = w->p.keeps && (ap_cuda_kept_by(&w->f, i) != AP_NONE || ap_cuda_is_keeper(w, i));
        varies[i] = s->kind == AP_SOP_STORE || s->kind == AP_SOP_REDUCE || s->kind == AP_SOP_TEMP_STORE ||
                    s->kind == AP_SOP_TEMP_LOAD || kept || (access && w->k->operand[s->operand].stride[loop] != 0) ||
                    (s->kind == AP_SOP_INDEX && s->loop_stride[loop] != 0);
        for (int a = 0; a < ap_sop_argument_count(s); a++)
            varies[i] |= varies[s->arg[a]];
        varies[i] &= over;
    }
    return varies;
}
