/* Loop nests (backend/nest.h) as instructions. */
#include "backend/llvm/build.h"

typedef struct nest {
    ap_ll_rows r;
    ap_ll_kernel *w;
    ap_ll *b;
    const ap_nest *n;
    ap_nest_facts f;
    ap_ll_value *row, *here; /* per sop that looks for a row: which one; is it this rank's? (NULL: always) */
} nest;

static ap_ll_value zero(const nest *w)
{
    return ap_ll_int(w->b, 0);
}

static ap_ll_value as_index(nest *w, uint32_t id)
{
    ap_dtype t = w->n->sop[id].dtype;
    bool is_signed = t == AP_I8 || t == AP_I16 || t == AP_I32 || t == AP_I64;
    return LLVMBuildIntCast2(w->b->builder, ap_ll_value_of(&w->r, id), w->b->i64, is_signed, "");
}

/* ---- indices ---- */

/* The index is checked against the whole range and turned into a row of this rank's part; what lies elsewhere reads as
 * zero (of row 0, which is there on most ranks, so that the load needs no condition). */
static void find_row(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    LLVMBuilderRef at = w->b->builder;
    ap_ll_value x = as_index(w, ap_sop_row_index(s));
    if (!ap_nest_is_checked(&w->f, s))
        ap_ll_check_range(w->w, x, 0, s->limit);
    if (s->extent <= 0)
        return;
    if (ap_nest_has_start(w->w->k, s))
        x = LLVMBuildSub(at, x, w->w->number[s->imm.i], "");
    w->row[id] = x;
    w->here[id] = NULL;
    if (ap_nest_holds_all(&w->f, s))
        return;
    w->here[id] = LLVMBuildICmp(at, LLVMIntULT, x, ap_ll_int(w->b, s->extent), "");
    if (s->kind == AP_SOP_GATHER)
        w->row[id] = LLVMBuildSelect(at, w->here[id], x, zero(w), "");
}

static ap_ll_value row_place(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    return ap_ll_add(w->b, ap_ll_place_of(&w->r, s), ap_ll_scale(w->b, w->row[id], s->stride));
}

static ap_ll_value gather(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    LLVMTypeRef type = ap_ll_register(w->b, s->dtype);
    ap_dtype t = w->w->k->operand[s->operand].dtype;
    ap_ll_value nothing = LLVMConstNull(type), base = w->w->operand[s->operand];
    if (s->extent <= 0)
        return nothing;
    if (!w->here[id])
        return ap_ll_load(w->b, t, base, row_place(w, id));
    if (!ap_nest_may_hold_none(&w->f, s))
        return LLVMBuildSelect(w->b->builder, w->here[id], ap_ll_load(w->b, t, base, row_place(w, id)), nothing, "");
    LLVMBasicBlockRef before = LLVMGetInsertBlock(w->b->builder), after = ap_ll_open_if(w->b, w->here[id]);
    ap_ll_value x = ap_ll_load(w->b, t, base, row_place(w, id));
    LLVMBasicBlockRef then = LLVMGetInsertBlock(w->b->builder);
    ap_ll_close_if(w->b, after);
    ap_ll_value phi = LLVMBuildPhi(w->b->builder, type, "");
    LLVMAddIncoming(phi, &nothing, &before, 1);
    LLVMAddIncoming(phi, &x, &then, 1);
    return phi;
}

/* y[...] = y[...] + x, where the row is here. */
static void update(nest *w, uint32_t id)
{
    static const ap_pointwise op[AP_SCATTER_KIND_COUNT] = {[AP_SCATTER_ADD] = AP_PW_ADD,
                                                           [AP_SCATTER_MUL] = AP_PW_MUL,
                                                           [AP_SCATTER_MAX] = AP_PW_MAX,
                                                           [AP_SCATTER_MIN] = AP_PW_MIN};
    const ap_sop *s = &w->n->sop[id];
    ap_dtype t = w->w->k->operand[s->operand].dtype;
    bool row = ap_sop_has_row(s);
    LLVMBasicBlockRef after = NULL;
    if (row && s->extent <= 0)
        return;
    if (row && w->here[id])
        after = ap_ll_open_if(w->b, w->here[id]);
    ap_ll_value base = w->w->operand[s->operand], at = row ? row_place(w, id) : ap_ll_place_of(&w->r, s);
    ap_ll_value x[2] = {NULL, ap_ll_value_of(&w->r, s->arg[0])};
    if (s->reduce != AP_SCATTER_SET) {
        x[0] = ap_ll_load(w->b, t, base, at);
        x[1] = ap_ll_pointwise(w->b, op[s->reduce], t, t, x);
    }
    ap_ll_store(w->b, t, base, at, x[1]);
    if (after)
        ap_ll_close_if(w->b, after);
}

/* Negative ones count from the end. */
static ap_ll_value from_end(nest *w, uint32_t id)
{
    const ap_sop *s = &w->n->sop[id];
    LLVMTypeRef type = ap_ll_register(w->b, s->dtype);
    ap_ll_value x = ap_ll_value_of(&w->r, s->arg[0]);
    bool is_signed = s->dtype == AP_I8 || s->dtype == AP_I16 || s->dtype == AP_I32 || s->dtype == AP_I64;
    if (!is_signed)
        return x;
    ap_ll_value negative = LLVMBuildICmp(w->b->builder, LLVMIntSLT, x, LLVMConstNull(type), "");
    ap_ll_value limit = LLVMConstInt(type, (unsigned long long)s->limit, true);
    return LLVMBuildSelect(w->b->builder, negative, LLVMBuildAdd(w->b->builder, x, limit, ""), x, "");
}

/* ---- folds ---- */

static void scan(nest *w, uint32_t id)
{
    bool exclusive = w->n->sop[id].imm.i != 0;
    if (!exclusive)
        ap_ll_rows_fold(&w->r, id);
    w->r.value[id] = ap_ll_rows_folded(&w->r, id);
    if (exclusive)
        ap_ll_rows_fold(&w->r, id);
}

/* ---- statements ---- */

static void make_value(nest *w, uint32_t id)
{
    switch (w->n->sop[id].kind) {
    case AP_SOP_GATHER:
        w->r.value[id] = gather(w, id);
        break;
    case AP_SOP_CHECK:
        w->r.value[id] = from_end(w, id);
        break;
    case AP_SOP_SCAN:
        scan(w, id);
        break;
    case AP_SOP_UPDATE:
        update(w, id);
        break;
    default:
        ap_ll_rows_make(&w->r, id);
        break;
    }
}

/* Everything that becomes known at this level; section < 0: of all sections. */
static void make_level(nest *w, int level, int section)
{
    for (uint32_t i = 0; i < w->n->nsops; i++) {
        const ap_sop *s = &w->n->sop[i];
        ap_nest_due due = ap_nest_due_at(&w->f, i, level, section);
        if (due.range && s->kind == AP_SOP_CHECK)
            ap_ll_check_range(w->w, as_index(w, s->arg[0]), -s->limit, s->limit);
        else if (due.range)
            find_row(w, i);
        if (due.value)
            make_value(w, i);
    }
}

static ap_ll_loop open_loop(nest *w, int l, bool parallel)
{
    ap_ll_value end = ap_ll_turns(w->w, w->n->extent[l], w->n->turns[l]);
    ap_ll_loop loop = ap_ll_open_loop(w->b, zero(w), end, 1, parallel);
    w->r.loop[l] = loop.i;
    return loop;
}

static bool is_fold_of(const nest *w, uint32_t i, int section)
{
    const ap_sop *s = &w->n->sop[i];
    return (s->kind == AP_SOP_REDUCE || s->kind == AP_SOP_SCAN) && w->f.live[i] && s->section == section;
}

static void make_section(nest *w, int section)
{
    int outer = w->n->nouter, loops = ap_nest_section_loops(w->n, section);
    ap_ll_loop loop[AP_MAX_LOOPS];
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (is_fold_of(w, i, section)) {
            ap_ll_rows_hold(&w->r, i);
            ap_ll_rows_fold_start(&w->r, i);
        }
    make_level(w, outer, section);
    for (int l = outer; l < loops; l++) {
        loop[l] = open_loop(w, l, l == loops - 1 && ap_nest_is_parallel(&w->f, section, l));
        make_level(w, l + 1, section);
    }
    for (int l = loops; l-- > outer;)
        ap_ll_close_loop(w->b, &loop[l]);
    for (uint32_t i = 0; i < w->n->nsops; i++)
        if (is_fold_of(w, i, section) && w->n->sop[i].kind == AP_SOP_REDUCE)
            w->r.value[i] = ap_ll_rows_folded(&w->r, i);
}

static nest start(ap_ll_kernel *k)
{
    ap_arena *arena = &k->b->e->ctx->scratch;
    nest w = {.r = ap_ll_rows_start(k, 1, AP_NEST_LONG_SUM), .w = k, .b = k->b, .n = &k->k->nest};
    w.f = ap_nest_find(arena, k->b->e->program, k->k);
    w.row = AP_NEW_ARRAY(arena, ap_ll_value, w.n->nsops);
    w.here = AP_NEW_ARRAY(arena, ap_ll_value, w.n->nsops);
    return w;
}

void ap_ll_nest(ap_ll_kernel *k)
{
    nest w = start(k);
    const ap_nest *n = w.n;
    ap_ll_loop loop[AP_MAX_LOOPS];
    ap_ll_rows_temps(&w.r);
    for (int l = 0; l < n->nouter; l++) {
        make_level(&w, l, -1);
        loop[l] = open_loop(&w, l, l == n->nouter - 1 && !w.f.has_inner && ap_nest_is_parallel(&w.f, -1, l));
    }
    for (int s = 0; s < n->nsections; s++)
        make_section(&w, s);
    for (int l = n->nouter; l-- > 0;)
        ap_ll_close_loop(w.b, &loop[l]);
}

void ap_ll_tile(ap_ll_kernel *k, const ap_ll_value *given, const ap_ll_value row[2], const ap_ll_value column[2])
{
    nest w = start(k);
    const ap_nest *n = w.n;
    ap_ll_loop loop[2];
    for (int l = 0; l < n->nouter; l++) {
        int inside = l - (n->nouter - 2);
        make_level(&w, l, -1);
        if (inside < 0) {
            w.r.loop[l] = given[l];
            continue;
        }
        const ap_ll_value *range = inside ? column : row;
        loop[inside] = ap_ll_open_loop(w.b, range[0], range[1], 1, inside == 1 && ap_nest_is_parallel(&w.f, -1, l));
        w.r.loop[l] = loop[inside].i;
    }
    make_section(&w, 0);
    for (int l = 2; l-- > 0;)
        ap_ll_close_loop(w.b, &loop[l]);
}
