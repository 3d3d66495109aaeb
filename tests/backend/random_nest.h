/* Random kernels as the text of a local program, for printers to be compared with the evaluator and with each other.
 * The same seed gives the same kernels to each:
 *
 *     elements      with casts, choices by position, over what is read (in place)
 *     rows          one or two folds (sum, prod, max, min, argmax, argmin), with a row temporary or without, in place;
 *                   softmax and LayerNorm; folds alone, of rows up to 20,000
 *     running folds both kinds
 *     lookups       of rows and of elements, in whole tables and in parts of them, with indices from the end
 *     updates       of rows and of elements found by an index, which come again, and of what loops leave in one place
 *     products      of f32 and f64, RANDOM_NEST_NARROW: of f16 and bf16 too, with batch and summed loops, transposed,
 *                   and what follows: bias, relu, GELU by tanh, residuals, second results
 *     windows       max, argmax, sum, averages; padded, strided, dilated
 *     first k       of rows up to 5,000
 *
 * in all element types that a kernel takes, layouts (left out, permuted, backwards, apart, from any element on),
 * extents at which printers change their ways, 0 and 1 among them, and loops whose turns the call says. Exchanges,
 * parameters, convolutions and ranks are not in it. */
#ifndef AP_TESTS_BACKEND_RANDOM_NEST_H
#define AP_TESTS_BACKEND_RANDOM_NEST_H

#include "tests/backend/random_layout.h"
#include "tests/backend/random_product.h"

#ifdef RANDOM_NEST_NARROW
#define RANDOM_NEST_PRODUCTS 6
#else
#define RANDOM_NEST_PRODUCTS 4
#endif

/* ---- element by element ---- */

/* In another type; where a value has two ways there, by f32 or not, by f32. */
static inline const char *nest_cast(random_nest *r, int *x)
{
    static const char *const to[] = {"f32", "f64", "f16", "bf16", "i8", "i32", "i64", "u8"};
    const char *type = to[nest_draw(r->all, 8)];
    bool narrow = type == to[2] || type == to[3];
    if (r->is_bool || (narrow && (strchr(r->type, '6') || strchr(r->type, '3')) && strcmp(r->type, "f32")))
        return r->type;
    *x = nest_sop(r, type, "cast %%%d", *x);
    return type;
}

static inline void nest_elements(random_nest *r, const char *section)
{
    int loops = nest_loops(r), a, b = -1, c = -1, to = -1, stored;
    const char *type = r->type;
    bool over = nest_chance(r->all, 4), picks = nest_chance(r->all, 3), by_place = nest_chance(r->all, 4);
    if (over)
        to = nest_write_over(r, &a);
    else
        a = nest_read(r, r->type, loops);
    b = nest_read(r, r->type, loops);
    if (picks)
        c = nest_read(r, "bool", loops);
    ap_text_addf(&r->sops, "  %s:\n", section);
    int x = nest_sop(r, r->type, "load %d", a), y = nest_sop(r, r->type, "load %d", b), z = nest_work(r, x, y);
    if (picks)
        z = nest_sop(r, r->type, "select %%%d, %%%d, %%%d", nest_sop(r, "bool", "load %d", c), z, y);
    if (by_place) {
        ap_text_addf(&r->sops, "    %%%d = index [", r->nsops++);
        for (int l = 0; l < loops; l++)
            ap_text_addf(&r->sops, "%s%d", l ? "," : "", nest_draw(r->all, 4) - 1);
        ap_text_addf(&r->sops, "] + int %d : i64\n", nest_int(r, nest_draw(r->all, 9)));
        int place = r->nsops - 1, limit = nest_sop(r, "i64", "const %d", nest_draw(r->all, 20));
        z = nest_sop(r, r->type, "select %%%d, %%%d, %%%d", nest_sop(r, "bool", "lt %%%d, %%%d", place, limit), z, x);
    }
    if (!over) {
        stored = z;
        type = nest_chance(r->all, 3) ? nest_cast(r, &stored) : r->type;
        z = stored;
        to = nest_write(r, type, loops);
    }
    nest_sop(r, type, "store %d, %%%d", to, z);
}

/* ---- rows ---- */

/* Products only of short rows: partial ones of long rows leave the range of f32 at places that depend on the order. */
static inline const char *nest_fold(random_nest *r, const char **type)
{
    static const char *const kinds[] = {"sum", "max", "min", "argmax", "argmin", "prod"};
    int64_t count = 1;
    for (int l = r->nouter; l < nest_loops(r); l++)
        count *= r->extent[l];
    int kind = r->is_bool ? 1 + nest_draw(r->all, 2) : nest_draw(r->all, count <= 16 ? 6 : 5);
    *type = kind == 3 || kind == 4 ? "i64" : r->type;
    return kinds[kind];
}

/* A fold, what is made of it for the row, and perhaps every element seen in its light. */
static inline void nest_rows(random_nest *r, bool temporary)
{
    const char *type, *kind = nest_fold(r, &type);
    int loops = nest_loops(r), a, all, more = nest_draw(r->all, 3);
    bool same = type == r->type && !r->is_bool;
    if (nest_chance(r->all, 4)) {
        all = nest_write_over(r, &a);
    } else {
        a = nest_read(r, r->type, loops);
        all = nest_write(r, r->type, loops);
    }
    int b = nest_read(r, r->type, loops), row = nest_write(r, type, r->nouter);
    ap_text_add(&r->sops, "  inner:\n");
    int x = nest_sop(r, r->type, "load %d", a), y = nest_sop(r, r->type, "load %d", b);
    x = nest_work(r, x, y);
    if (temporary)
        nest_sop(r, r->type, "temp_store 0, %%%d", x);
    int fold = nest_sop(r, type, "reduce %s %%%d", kind, x), largest = -1;
    if (more)
        largest = nest_sop(r, r->type, "reduce max %%%d", x);
    ap_text_add(&r->sops, "  row:\n");
    nest_sop(r, type, "store %d, %%%d", row, fold);
    ap_text_add(&r->sops, "  inner:\n");
    y = temporary ? nest_sop(r, r->type, "temp_load 0") : nest_sop(r, r->type, "load %d", a);
    if (same && strcmp(kind, "prod"))
        y = nest_sop(r, r->type, "sub %%%d, %%%d", y, fold);
    if (more)
        y = nest_sop(r, r->type, r->is_bool ? "and %%%d, %%%d" : "min %%%d, %%%d", y, largest);
    nest_sop(r, r->type, "store %d, %%%d", all, y);
}

/* exp(x - max) over its sum. */
static inline void nest_softmax(random_nest *r)
{
    int loops = nest_loops(r), a = nest_read(r, r->type, loops), to = nest_write(r, r->type, loops);
    ap_text_add(&r->sops, "  inner:\n");
    int most = nest_sop(r, r->type, "reduce max %%%d", nest_sop(r, r->type, "load %d", a));
    ap_text_add(&r->sops, "  inner:\n");
    int x = nest_sop(r, r->type, "sub %%%d, %%%d", nest_sop(r, r->type, "load %d", a), most);
    x = nest_sop(r, r->type, "exp %%%d", x);
    nest_sop(r, r->type, "temp_store 0, %%%d", x);
    int sum = nest_sop(r, r->type, "reduce sum %%%d", x);
    ap_text_add(&r->sops, "  inner:\n");
    x = nest_sop(r, r->type, "div %%%d, %%%d", nest_sop(r, r->type, "temp_load 0"), sum);
    nest_sop(r, r->type, "store %d, %%%d", to, x);
}

/* Less the mean, over the deviation, plus a vector: times one that is infinite would tell whether what is left of equal
 * elements is nothing or, where products are fused, a rounding. Three sections read the row. */
static inline void nest_layernorm(random_nest *r)
{
    int loops = nest_loops(r), a = nest_read(r, r->type, loops), g = nest_read(r, r->type, loops);
    int to = nest_write(r, r->type, loops), last = loops - 1;
    double n = 1;
    for (int l = r->nouter; l <= last; l++)
        n *= r->extent[l] ? r->extent[l] : 1;
    ap_text_add(&r->sops, "  inner:\n");
    int sum = nest_sop(r, r->type, "reduce sum %%%d", nest_sop(r, r->type, "load %d", a));
    ap_text_add(&r->sops, "  row:\n");
    int mean = nest_sop(r, r->type, "mul %%%d, %%%d", sum, nest_sop(r, r->type, "const %.9g", 1 / n));
    ap_text_add(&r->sops, "  inner:\n");
    int x = nest_sop(r, r->type, "sub %%%d, %%%d", nest_sop(r, r->type, "load %d", a), mean);
    int squares = nest_sop(r, r->type, "reduce sum %%%d", nest_sop(r, r->type, "mul %%%d, %%%d", x, x));
    ap_text_add(&r->sops, "  row:\n");
    int var = nest_sop(r, r->type, "mul %%%d, %%%d", squares, nest_sop(r, r->type, "const %.9g", 1 / n));
    var = nest_sop(r, r->type, "add %%%d, %%%d", var, nest_sop(r, r->type, "const 0.25"));
    int scale = nest_sop(r, r->type, "rsqrt %%%d", var);
    ap_text_add(&r->sops, "  inner:\n");
    x = nest_sop(r, r->type, "sub %%%d, %%%d", nest_sop(r, r->type, "load %d", a), mean);
    x = nest_sop(r, r->type, "mul %%%d, %%%d", x, scale);
    x = nest_sop(r, r->type, "add %%%d, %%%d", x, nest_sop(r, r->type, "load %d", g));
    nest_sop(r, r->type, "store %d, %%%d", to, x);
}

static inline void nest_folds_only(random_nest *r)
{
    const char *type, *kind = nest_fold(r, &type);
    int a = nest_read(r, r->type, nest_loops(r)), row = nest_write(r, type, r->nouter);
    ap_text_add(&r->sops, "  inner:\n");
    int fold = nest_sop(r, type, "reduce %s %%%d", kind, nest_sop(r, r->type, "load %d", a));
    ap_text_add(&r->sops, "  row:\n");
    nest_sop(r, type, "store %d, %%%d", row, fold);
}

static inline void nest_scan(random_nest *r)
{
    static const char *const kinds[] = {"sum", "max", "min", "prod"};
    int loops = nest_loops(r), a = nest_read(r, r->type, loops), to = nest_write(r, r->type, loops);
    int kind = nest_draw(r->all, r->extent[loops - 1] <= 16 ? 4 : 3);
    ap_text_add(&r->sops, "  inner:\n");
    int x = nest_sop(r, r->type, "load %d", a);
    int y = nest_sop(r, r->type, "scan %s %%%d%s", kinds[kind], x, nest_draw(r->all, 2) ? " exclusive" : "");
    nest_sop(r, r->type, "store %d, %%%d", to, y);
}

/* ---- by index ---- */

/* The index into six entries, which changes with the first `loops` loops: i64 or i32, from the end or not. Its input is
 * called "at", so that it stays an index whatever becomes of other numbers. */
static inline int nest_index(random_nest *r, int loops)
{
    bool narrow = nest_chance(r->all, 3);
    const char *type = narrow ? "i32" : "i64";
    nest_place p = nest_layout(r, loops, r->extent, true);
    ap_text_addf(&r->operands, "  read %s", type);
    nest_add_strides(r, p.stride, nest_loops(r));
    nest_add_place(r, "input", nest_add_input(r->all, "at", type, p.size), p.at);
    int x = nest_sop(r, type, "load %d", r->noperands++);
    if (nest_chance(r->all, 3)) {
        x = nest_sop(r, type, "sub %%%d, %%%d", x, nest_sop(r, type, "const 6"));
        x = nest_sop(r, type, "check %%%d limit 6", x);
    }
    return narrow ? nest_sop(r, "i64", "cast %%%d", x) : x;
}

/* Where rows or elements found by an index lie: the whole of six or some of them, `element`: along the last loop. */
typedef struct nest_table {
    int64_t stride[8], row, size;
    int start, extent;
} nest_table;

static inline nest_table nest_make_table(random_nest *r, bool element)
{
    int loops = r->nouter, last = r->extent[loops - 1];
    nest_table t = {.row = element ? 1 : last + (nest_chance(r->all, 3) ? nest_draw(r->all, 4) : 0), .extent = 6};
    if (nest_chance(r->all, 3)) {
        t.start = nest_draw(r->all, 6);
        t.extent = nest_draw(r->all, 7 - t.start);
    }
    t.size = element ? 6 : 6 * t.row;
    for (int l = loops - 2; l >= 0 && element; l--) {
        t.stride[l] = t.size;
        t.size *= r->extent[l];
    }
    if (!element)
        t.stride[loops - 1] = 1;
    return t;
}

static inline void nest_gather(random_nest *r)
{
    bool element = nest_chance(r->all, 3);
    int loops = r->nouter;
    ap_text_add(&r->sops, "  row:\n");
    int k = nest_index(r, element || nest_chance(r->all, 4) ? loops : loops - 1);
    nest_table t = nest_make_table(r, element);
    nest_place p = {.size = t.size};
    memcpy(p.stride, t.stride, sizeof p.stride);
    int table = nest_operand(r, r->type, true, &p, loops), to = nest_write(r, r->type, loops);
    int x = nest_sop(r, r->type, "gather %d at %%%d - int %d stride %lld extent %d limit 6", table, k,
                     nest_int(r, t.start), (long long)t.row, t.extent);
    nest_sop(r, r->type, "store %d, %%%d", to, nest_work(r, x, -1));
}

/* What another kernel has filled is updated in the order of the loops; indices come again. */
static inline void nest_update(random_nest *r)
{
    static const char *const kinds[] = {"set", "add", "max", "min", "mul"};
    bool element = nest_chance(r->all, 3), found = nest_draw(r->all, 4) > 0;
    int loops = r->nouter, kind = r->is_bool ? 0 : nest_draw(r->all, 4), k = -1;
    ap_text_add(&r->sops, "  row:\n");
    if (found)
        k = nest_index(r, element || nest_chance(r->all, 5) ? loops : loops - 1);
    int from = nest_read(r, r->type, loops);
    nest_table t = nest_make_table(r, element);
    nest_place p = {.size = t.size};
    memcpy(p.stride, t.stride, sizeof p.stride);
    r->fills = true;
    int to = nest_operand(r, r->type, false, &p, loops), x = nest_sop(r, r->type, "load %d", from);
    if (found)
        nest_sop(r, r->type, "update %s %d, %%%d at %%%d - int %d stride %lld extent %d limit 6", kinds[kind], to, x, k,
                 nest_int(r, t.start), (long long)t.row, t.extent);
    else
        nest_sop(r, r->type, "update %s %d, %%%d", kinds[kind], to, x);
}

/* ---- programs ---- */

enum { NEST_ELEMENTS, NEST_ROWS, NEST_TEMPORARY, NEST_SOFTMAX, NEST_LAYERNORM, NEST_FOLDS, NEST_SCAN, NEST_GATHER };
enum { NEST_UPDATE = NEST_GATHER + 1, NEST_PRODUCT, NEST_POOL, NEST_TOPK, NEST_KINDS };

static inline void nest_choose_type(random_nest *r, int kind)
{
    static const char *const types[] = {"f32", "f32", "f64", "f16", "bf16", "f32",  "i8",
                                        "u8",  "i32", "i64", "u32", "i16",  "bool", "u64"};
    static const char *const of_products[] = {"f32", "f32", "f64", "f32", "f16", "bf16"};
    int floats = 6, bools = 12;
    int type = kind == NEST_SOFTMAX || kind == NEST_LAYERNORM ? nest_draw(r->all, floats) : nest_draw(r->all, 14);
    if (type == bools && kind != NEST_ELEMENTS && kind != NEST_GATHER && kind != NEST_UPDATE)
        type = 0;
    r->type = types[type];
    r->is_float = type < floats;
    r->is_bool = type == bools;
    if (kind == NEST_PRODUCT) { /* the series goes on alike with narrow ones and without */
        type = nest_draw(r->all, 6);
        r->type = of_products[type < RANDOM_NEST_PRODUCTS ? type : 0];
        r->is_float = true;
        r->is_bool = false;
    }
}

/* About 30,000 turns in all. */
static inline void nest_choose_extents(random_nest *r, int kind)
{
    static const int outer[] = {1, 2, 3, 4, 5, 8, 16, 33, 64, 0},
                     inner[] = {1, 4, 7, 8, 9, 16, 32, 100, 128, 300, 1100};
    random_nests *t = r->all;
    int64_t total = 1;
    r->nouter = 1 + nest_draw(t, 3);
    r->ninner = kind >= NEST_ROWS && kind <= NEST_FOLDS ? 1 + nest_chance(t, 3) : kind == NEST_SCAN;
    for (int l = nest_loops(r) - 1; l >= 0; l--) {
        r->extent[l] = l < r->nouter ? outer[nest_draw(t, nest_chance(t, 12) ? 10 : 9)] : inner[nest_draw(t, 11)];
        if (kind == NEST_FOLDS && r->nouter == 1 && l == nest_loops(r) - 1 && nest_chance(t, 2))
            r->extent[l] = 20000 + 8 * nest_draw(t, 50);
        if (total * r->extent[l] > 30000)
            r->extent[l] = 1 + (int)(30000 / total) / 4;
        total *= r->extent[l] ? r->extent[l] : 1;
    }
}

/* Of every sixth kernel one loop has as many turns as the call says; of inner ones the first, since the record leaves
 * open whether positions within a row count by extents or by turns. */
static inline void nest_choose_turns(random_nest *r)
{
    if (!r->fills)
        return;
    int l = nest_draw(r->all, r->nouter + (r->ninner > 0));
    ap_text_addf(&r->turns, "  turns %d int %d\n", l, nest_int(r, nest_draw(r->all, r->extent[l] + 1)));
}

static inline void nest_add_nest(random_nest *r, int kind)
{
    ap_text body;
    nest_choose_extents(r, kind);
    nest_choose_turns(r);
    switch (kind) {
    case NEST_ELEMENTS:
        nest_elements(r, "row");
        break;
    case NEST_SOFTMAX:
        nest_softmax(r);
        break;
    case NEST_LAYERNORM:
        nest_layernorm(r);
        break;
    case NEST_FOLDS:
        nest_folds_only(r);
        break;
    case NEST_SCAN:
        nest_scan(r);
        break;
    case NEST_GATHER:
        nest_gather(r);
        break;
    case NEST_UPDATE:
        nest_update(r);
        break;
    default:
        nest_rows(r, kind == NEST_TEMPORARY);
        break;
    }
    ap_text_init(&body, r->all->head.arena);
    ap_text_add(&body, "  outer ");
    nest_add_extents(&body, r->extent, r->nouter);
    ap_text_add(&body, " inner ");
    nest_add_extents(&body, r->extent + r->nouter, r->ninner);
    ap_text_addf(&body, "\n%s", ap_text_str(&r->turns));
    if (kind == NEST_TEMPORARY || kind == NEST_SOFTMAX)
        ap_text_addf(&body, "  temp %s\n", r->type);
    nest_finish(r, "nest", ap_text_str(&body));
}

static inline void random_nest_add(random_nests *all, int number)
{
    random_nest r = {.all = all, .number = number, .fills = nest_chance(all, 6)};
    int kind = nest_draw(all, NEST_KINDS);
    ap_text *texts[] = {&r.operands, &r.sops, &r.call, &r.ints, &r.turns};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        ap_text_init(texts[i], all->head.arena);
    nest_choose_type(&r, kind);
    if (kind == NEST_PRODUCT)
        random_product_add(&r);
    else if (kind == NEST_POOL)
        random_pool_add(&r);
    else if (kind == NEST_TOPK)
        random_topk_add(&r);
    else
        nest_add_nest(&r, kind);
}

/* A program of `count` kernels of the series that *seed is at. */
static inline const char *random_nests_text(ap_ctx *ctx, uint32_t *seed, int count)
{
    random_nests all = {.seed = seed};
    ap_text t;
    ap_text_init(&all.head, &ctx->arena);
    ap_text_init(&all.kernels, &ctx->arena);
    ap_text_init(&all.calls, &ctx->arena);
    ap_text_init(&t, &ctx->arena);
    for (int i = 0; i < count; i++)
        random_nest_add(&all, i);
    ap_text_addf(&t, "local @t ranks 1 axes [] arena 0 params 0\n%s%s%s", ap_text_str(&all.head),
                 ap_text_str(&all.kernels), ap_text_str(&all.calls));
    return ap_text_str(&t);
}

/* Among the numbers: NaN, infinities, denormals; of integers the least and the largest. Not among indices. */
static inline void random_nests_spoil(built *b, uint32_t *seed)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e-40, -0.0, 6e4, -3e-41, 1e-310};
    static const int64_t whole[] = {INT64_MIN, INT64_MAX, -1, INT32_MIN, 255, 127, -128, 65535};
    for (uint32_t i = 0; i < b->program->inputs.len; i++) {
        ap_tensor *t = &b->want_in[i];
        const char *name = ap_name_str(b->ctx, b->program->inputs.at[i].name);
        for (int k = 0; k < 3 && t->count > 0 && t->dtype != AP_BOOL && name[0] != 'a'; k++) {
            int64_t at = next_random(seed) % t->count;
            int which = (int)(next_random(seed) >> 8) % 8;
            if (ap_dtype_is_float(t->dtype))
                t->at[at].f = odd[which];
            else
                t->at[at].i = whole[which];
            t->at[at] = ap_scalar_round(t->dtype, t->at[at]);
        }
        ap_tensor_to_bytes(t, b->in[i]);
    }
}

/* ---- comparing ---- */

static inline bool random_nests_sums(const ap_kernel *k)
{
    if (k->kind == AP_KERNEL_GEMM ||
        (k->kind == AP_KERNEL_POOL && k->pool.kind != AP_POOL_MAX && k->pool.kind != AP_POOL_ARGMAX))
        return true;
    for (uint32_t i = 0; i < k->nest.nsops; i++) {
        const ap_sop *s = &k->nest.sop[i];
        bool folds = s->kind == AP_SOP_REDUCE || s->kind == AP_SOP_SCAN;
        if (folds && (s->reduce == AP_REDUCE_SUM || s->reduce == AP_REDUCE_PROD))
            return true;
        if (s->kind == AP_SOP_UPDATE && (s->reduce == AP_SCATTER_ADD || s->reduce == AP_SCATTER_MUL))
            return true;
    }
    return false;
}

static inline double random_nests_largest(const ap_tensor *t)
{
    double most = 0;
    for (int64_t i = 0; i < t->count && ap_dtype_is_float(t->dtype); i++)
        if (isfinite(t->at[i].f) && fabs(t->at[i].f) > most)
            most = fabs(t->at[i].f);
    return most;
}

/* Numbers of sums as far as their type goes, relative to the largest of output and operands; all else as exactly as
 * `fused` allows: products that are added without being rounded before. NaN and infinities stand where they should. */
static inline void random_nests_compare(built *b, uint32_t output, bool fused)
{
    const ap_port *port = &b->program->outputs.at[output];
    const ap_tensor *want = &b->want[output];
    bool sums = false;
    const char *by = "";
    double tolerance = 0, scale = 1;
    ap_tensor got = port_tensor(b->ctx, port);
    ap_tensor_from_bytes(&got, b->out[output]);
    for (uint32_t i = 0; i < b->p->instrs.len; i++)
        for (uint32_t r = 0; r < b->p->instrs.at[i].nrefs; r++) {
            const ap_kernel *k = &b->p->kernels.at[b->p->instrs.at[i].kernel];
            if (b->p->instrs.at[i].ref[r].space != AP_SPACE_OUTPUT || b->p->instrs.at[i].ref[r].index != output)
                continue;
            sums = sums || random_nests_sums(k);
            for (uint32_t o = 0; o < b->p->instrs.at[i].nrefs && random_nests_sums(k); o++)
                if (b->p->instrs.at[i].ref[o].space == AP_SPACE_INPUT)
                    scale = fmax(scale, random_nests_largest(&b->want_in[b->p->instrs.at[i].ref[o].index]));
            by = ap_name_str(b->ctx, k->name);
        }
    if (sums)
        tolerance = port->dtype == AP_F16    ? 4e-3
                    : port->dtype == AP_BF16 ? 3e-2
                    : port->dtype == AP_F32  ? 3e-5
                    : port->dtype == AP_F64  ? 1e-11
                                             : 0;
    else if (fused && ap_dtype_is_float(port->dtype))
        tolerance = port->dtype == AP_F16 ? 2e-3 : port->dtype == AP_BF16 ? 1e-2 : 1e-6;
    scale = fmax(scale, random_nests_largest(want));
    for (int64_t i = 0; i < want->count; i++) {
        bool real = ap_dtype_is_float(port->dtype);
        double x = got.at[i].f, y = want->at[i].f;
        bool same =
            real ? x == y || (isnan(x) && isnan(y)) || fabs(x - y) <= tolerance * scale : got.at[i].i == want->at[i].i;
        if (!same)
            fprintf(stderr, "%s of %s, element %lld: %.9g instead of %.9g\n", ap_name_str(b->ctx, port->name), by,
                    (long long)i, real ? x : (double)got.at[i].i, real ? y : (double)want->at[i].i);
        assert_true(same);
    }
}

#endif
