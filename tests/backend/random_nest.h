/* Random loop nests as the text of a local program, for printers to be compared with the evaluator: element by element,
 * rows with one or two folds and temporaries, running folds, lookups, updates; all layouts, element types and extents
 * at which printers change their ways. */
#ifndef AP_TESTS_BACKEND_RANDOM_NEST_H
#define AP_TESTS_BACKEND_RANDOM_NEST_H

#include "tests/backend/harness.h"

#include "ir/base/text.h"

typedef struct random_nests {
    uint32_t *seed;
    ap_text head, kernels, calls;
    int inputs, outputs;
} random_nests;

typedef struct random_nest {
    random_nests *all;
    int nouter, ninner, extent[6];
    const char *type;
    bool is_float;
    ap_text operands, sops, call;
    int noperands, nsops;
} random_nest;

static inline int nest_draw(random_nests *t, int n)
{
    return (int)(next_random(t->seed) % (uint32_t)n);
}

/* Loops of the operand in a random order, some of them left out (it is the same along these), with room between rows.
 * Appends the strides; the number of elements. */
static inline int64_t nest_strides(random_nest *r, ap_text *t, bool may_leave_out, int loops, int nall)
{
    int order[6], n = 0;
    int64_t stride[6] = {0}, count = 1;
    bool natural = nest_draw(r->all, 3) > 0;
    for (int l = 0; l < loops; l++)
        if (!may_leave_out || nest_draw(r->all, 5))
            order[n++] = l;
    for (int i = n - 1; i > 0 && !natural; i--) {
        int k = nest_draw(r->all, i + 1), was = order[i];
        order[i] = order[k];
        order[k] = was;
    }
    for (int i = n - 1; i >= 0; i--) {
        stride[order[i]] = count;
        count *= r->extent[order[i]];
        if (may_leave_out && i == n - 1 && nest_draw(r->all, 4) == 0)
            count += 3;
    }
    ap_text_add(t, " [");
    for (int l = 0; l < nall; l++)
        ap_text_addf(t, "%s%lld", l ? "," : "", (long long)stride[l]);
    ap_text_add(t, "]\n");
    return count;
}

static inline int nest_read(random_nest *r, const char *type, int loops)
{
    ap_text_addf(&r->operands, "  read %s", type);
    int64_t n = nest_strides(r, &r->operands, true, loops, r->nouter + r->ninner);
    ap_text_addf(&r->all->head, "input \"i%d\" %s[%lld]\n", r->all->inputs, type, (long long)n);
    ap_text_addf(&r->call, "%sinput(%d)", r->noperands ? ", " : "", r->all->inputs++);
    return r->noperands++;
}

static inline int nest_write(random_nest *r, const char *type, int loops)
{
    ap_text_addf(&r->operands, "  write %s", type);
    int64_t n = nest_strides(r, &r->operands, false, loops, r->nouter + r->ninner);
    ap_text_addf(&r->all->head, "output \"o%d\" %s[%lld]\n", r->all->outputs, type, (long long)n);
    ap_text_addf(&r->call, "%soutput(%d)", r->noperands ? ", " : "", r->all->outputs++);
    return r->noperands++;
}

static inline int nest_sop(random_nest *r, const char *type, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
static inline int nest_sop(random_nest *r, const char *type, const char *fmt, ...)
{
    char text[256];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    if (strncmp(text, "store", 5) && strncmp(text, "temp_store", 10) && strncmp(text, "update", 6))
        ap_text_addf(&r->sops, "    %%%d = %s : %s\n", r->nsops, text, type);
    else
        ap_text_addf(&r->sops, "    %s : %s\n", text, type);
    return r->nsops++;
}

/* x, after a few operators. */
static inline int nest_work(random_nest *r, int x, int y)
{
    static const char *const binary[] = {"add", "sub", "mul", "max", "min"};
    static const char *const unary[] = {"neg", "abs", "relu", "sign"};
    for (int i = nest_draw(r->all, 3); i >= 0; i--) {
        if (y >= 0 && nest_draw(r->all, 2))
            x = nest_sop(r, r->type, "%s %%%d, %%%d", binary[nest_draw(r->all, 5)], x, y);
        else
            x = nest_sop(r, r->type, "%s %%%d", unary[nest_draw(r->all, 4)], x);
    }
    return x;
}

static inline void nest_elements(random_nest *r, int loops, const char *section)
{
    int a = nest_read(r, r->type, loops), b = nest_read(r, r->type, loops), c = nest_read(r, "bool", loops);
    int to = nest_write(r, r->type, loops);
    ap_text_addf(&r->sops, "  %s:\n", section);
    int x = nest_sop(r, r->type, "load %d", a), y = nest_sop(r, r->type, "load %d", b);
    int z = nest_work(r, x, y);
    if (nest_draw(r->all, 2)) {
        int pick = nest_sop(r, "bool", "load %d", c);
        z = nest_sop(r, r->type, "select %%%d, %%%d, %%%d", pick, z, y);
    }
    nest_sop(r, r->type, "store %d, %%%d", to, z);
}

/* A fold, what is made of it for the row, and perhaps every element seen in its light. */
static inline void nest_rows(random_nest *r, bool temporary)
{
    static const char *const kinds[] = {"sum", "max", "min", "argmax", "argmin"};
    int loops = r->nouter + r->ninner, a = nest_read(r, r->type, loops), b = nest_read(r, r->type, loops);
    int kind = nest_draw(r->all, 5), more = nest_draw(r->all, 3);
    const char *type = kind < 3 ? r->type : "i64";
    int row = nest_write(r, type, r->nouter), all = nest_write(r, r->type, loops);
    ap_text_add(&r->sops, "  inner:\n");
    int x = nest_work(r, nest_sop(r, r->type, "load %d", a), nest_sop(r, r->type, "load %d", b));
    if (temporary)
        nest_sop(r, r->type, "temp_store 0, %%%d", x);
    int fold = nest_sop(r, type, "reduce %s %%%d", kinds[kind], x), largest = -1;
    if (more)
        largest = nest_sop(r, r->type, "reduce max %%%d", x);
    ap_text_add(&r->sops, "  row:\n");
    nest_sop(r, type, "store %d, %%%d", row, fold);
    ap_text_add(&r->sops, "  inner:\n");
    int y = temporary ? nest_sop(r, r->type, "temp_load 0") : nest_sop(r, r->type, "load %d", a);
    if (kind < 3)
        y = nest_sop(r, r->type, "sub %%%d, %%%d", y, fold);
    if (more)
        y = nest_sop(r, r->type, "min %%%d, %%%d", y, largest);
    nest_sop(r, r->type, "store %d, %%%d", all, y);
}

static inline void nest_folds_only(random_nest *r)
{
    static const char *const kinds[] = {"sum", "max", "min", "argmax", "argmin"};
    int loops = r->nouter + r->ninner, a = nest_read(r, r->type, loops), kind = nest_draw(r->all, 5);
    const char *type = kind < 3 ? r->type : "i64";
    int row = nest_write(r, type, r->nouter);
    ap_text_add(&r->sops, "  inner:\n");
    int fold = nest_sop(r, type, "reduce %s %%%d", kinds[kind], nest_sop(r, r->type, "load %d", a));
    ap_text_add(&r->sops, "  row:\n");
    nest_sop(r, type, "store %d, %%%d", row, fold);
}

static inline void nest_scan(random_nest *r)
{
    static const char *const kinds[] = {"sum", "max", "min"};
    int loops = r->nouter + r->ninner, a = nest_read(r, r->type, loops), to = nest_write(r, r->type, loops);
    ap_text_add(&r->sops, "  inner:\n");
    int x = nest_sop(r, r->type, "load %d", a);
    int y = nest_sop(r, r->type, "scan %s %%%d%s", kinds[nest_draw(r->all, 3)], x,
                     nest_draw(r->all, 2) ? " exclusive" : "");
    nest_sop(r, r->type, "store %d, %%%d", to, y);
}

/* Rows of a table of six; the index changes with some of the loops. */
static inline void nest_gather(random_nest *r)
{
    int loops = r->nouter, i = nest_read(r, "i64", loops), last = r->extent[loops - 1];
    int table = r->noperands++, to;
    ap_text_addf(&r->operands, "  read %s [", r->type);
    for (int l = 0; l < loops; l++)
        ap_text_addf(&r->operands, "%s%d", l ? "," : "", l == loops - 1);
    ap_text_add(&r->operands, "]\n");
    ap_text_addf(&r->all->head, "input \"i%d\" %s[6,%d]\n", r->all->inputs, r->type, last);
    ap_text_addf(&r->call, ", input(%d)", r->all->inputs++);
    to = nest_write(r, r->type, loops);
    ap_text_add(&r->sops, "  row:\n");
    int k = nest_sop(r, "i64", "load %d", i);
    int x = nest_sop(r, r->type, "gather %d at %%%d - int 0 stride %d extent 6 limit 6", table, k, last);
    nest_sop(r, r->type, "store %d, %%%d", to, nest_work(r, x, -1));
}

/* Six rows, which another kernel has filled, are updated in the order of the loops; indices come again. */
static inline void nest_update(random_nest *r, int number)
{
    static const char *const kinds[] = {"set", "add", "max", "min"};
    int loops = r->nouter, last = r->extent[loops - 1], out = r->all->outputs++;
    int i = nest_read(r, "i64", loops - 1), from = nest_read(r, r->type, loops), to = r->noperands++;
    ap_text_addf(&r->operands, "  write %s [", r->type);
    for (int l = 0; l < loops; l++)
        ap_text_addf(&r->operands, "%s%d", l ? "," : "", l == loops - 1);
    ap_text_add(&r->operands, "]\n");
    ap_text_addf(&r->all->head, "output \"o%d\" %s[6,%d]\n", out, r->type, last);
    ap_text_addf(&r->call, ", output(%d)", out);
    ap_text_addf(&r->all->kernels,
                 "kernel nest @one%d {\n  write %s [1]\n  outer [%d] inner []\n  row:\n    %%0 = const 1 : %s\n"
                 "    store 0, %%0 : %s\n}\n",
                 number, r->type, 6 * last, r->type, r->type);
    ap_text_addf(&r->all->calls, "call @one%d(output(%d))\n", number, out);
    ap_text_add(&r->sops, "  row:\n");
    int k = nest_sop(r, "i64", "load %d", i), x = nest_sop(r, r->type, "load %d", from);
    nest_sop(r, r->type, "update %s %d, %%%d at %%%d - int 0 stride %d extent 6 limit 6", kinds[nest_draw(r->all, 4)],
             to, x, k, last);
}

static inline void random_nest_add(random_nests *all, int number)
{
    static const char *const types[] = {"f32", "f32", "f32", "f64", "f16", "bf16", "i8", "u8", "i32", "i64", "u32"};
    static const int outer[] = {1, 2, 3, 4, 5, 8, 16, 33, 64}, inner[] = {1, 4, 7, 8, 16, 32, 100, 128, 300, 768, 1100};
    random_nest r = {.all = all, .nouter = 1 + nest_draw(all, 3)};
    int kind = nest_draw(all, 7), type = nest_draw(all, 11);
    int64_t total = 1;
    r.type = types[type];
    r.is_float = type < 6;
    r.ninner = kind >= 1 && kind <= 3 ? 1 + (nest_draw(all, 3) == 0) : kind == 4;
    for (int l = r.nouter + r.ninner - 1; l >= 0; l--) {
        r.extent[l] = l < r.nouter ? outer[nest_draw(all, 9)] : inner[nest_draw(all, 11)];
        if (kind == 3 && r.nouter == 1 && l == r.ninner + r.nouter - 1 && nest_draw(all, 2))
            r.extent[l] = 20000 + 8 * nest_draw(all, 50);
        if (total * r.extent[l] > 30000)
            r.extent[l] = 1 + (int)(30000 / total) / 4;
        total *= r.extent[l];
    }
    ap_text_init(&r.operands, all->head.arena);
    ap_text_init(&r.sops, all->head.arena);
    ap_text_init(&r.call, all->head.arena);
    switch (kind) {
    case 0:
        nest_elements(&r, r.nouter, "row");
        break;
    case 1:
    case 2:
        nest_rows(&r, kind == 2);
        break;
    case 3:
        nest_folds_only(&r);
        break;
    case 4:
        nest_scan(&r);
        break;
    case 5:
        nest_gather(&r);
        break;
    default:
        nest_update(&r, number);
        break;
    }
    ap_text_addf(&all->kernels, "kernel nest @k%d {\n%s%s  outer [", number, ap_text_str(&r.operands),
                 kind >= 5 ? "  ints 1\n" : "");
    for (int l = 0; l < r.nouter; l++)
        ap_text_addf(&all->kernels, "%s%d", l ? "," : "", r.extent[l]);
    ap_text_add(&all->kernels, "] inner [");
    for (int l = 0; l < r.ninner; l++)
        ap_text_addf(&all->kernels, "%s%d", l ? "," : "", r.extent[r.nouter + l]);
    ap_text_addf(&all->kernels, "]\n%s%s%s%s}\n", kind == 2 ? "  temp " : "", kind == 2 ? r.type : "",
                 kind == 2 ? "\n" : "", ap_text_str(&r.sops));
    ap_text_addf(&all->calls, "call @k%d(%s)%s\n", number, ap_text_str(&r.call), kind >= 5 ? " ints(0)" : "");
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

/* Among the numbers of every fourth program: NaN, infinities, denormals. */
static inline void random_nests_spoil(built *b, uint32_t *seed)
{
    static const double odd[] = {NAN, INFINITY, -INFINITY, 1e-40, -0.0, 6e4};
    for (uint32_t i = 0; i < b->program->inputs.len; i++) {
        ap_tensor *t = &b->want_in[i];
        for (int k = 0; k < 3 && ap_dtype_is_float(t->dtype) && t->count > 0; k++) {
            int64_t at = next_random(seed) % t->count;
            t->at[at].f = odd[next_random(seed) % 6];
            t->at[at] = ap_scalar_round(t->dtype, t->at[at]);
        }
        ap_tensor_to_bytes(t, b->in[i]);
    }
}

#endif
