/* Windows and first elements of rows as CUDA: a thread or a warp for each window, a block for each row. */
#include "backend/cuda/cuda.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
    BLOCK = 256,
    LONG_SUM = 4096,
    LARGE_WINDOW = 64,     /* from so many places on a warp shares a window, */
    FEW_WINDOWS = 1 << 15, /* unless there are threads enough */
    SORTED_AT_ONCE = 2048, /* elements of a row; longer ones are searched k times, or, for more than */
    SEARCHED = 24,         /* elements, sorted piece by piece */
};

typedef struct writer {
    const ap_emit *e;
    ap_text *t;
    const ap_kernel *k;
    int depth;
    bool shares; /* a warp has a window */
} writer;

#define line(w, ...) ap_emit_line((w)->e, (w)->t, (w)->depth, __VA_ARGS__)

static void open_block(writer *w, const char *head)
{
    line(w, "%s {", head);
    w->depth++;
}

static void close_block(writer *w)
{
    w->depth--;
    line(w, "}");
}

static const char *turns_text(const writer *w, int64_t extent, uint32_t turns)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    if (turns)
        ap_text_addf(&t, "n%" PRIu32, turns - 1);
    else
        ap_text_addf(&t, "INT64_C(%" PRId64 ")", extent);
    return ap_text_str(&t);
}

static void add_term(ap_text *t, int64_t factor, const char *name, int number)
{
    if (factor)
        ap_text_addf(t, "%s%" PRId64 "*%s%d", t->len ? " + " : "", factor, name, number);
}

static const char *loaded(ap_dtype t)
{
    return t == AP_F16 ? "aprt_f16_to_f32" : t == AP_BF16 ? "aprt_bf16_to_f32" : "";
}

static const char *stored(ap_dtype t)
{
    return t == AP_F16 ? "aprt_f32_to_f16((float)" : t == AP_BF16 ? "aprt_f32_to_bf16((float)" : "(";
}

/* ---- windows ---- */

static bool is_max(const ap_pooling *p)
{
    return p->kind == AP_POOL_MAX || p->kind == AP_POOL_ARGMAX;
}

static int64_t places_of(const ap_pooling *p)
{
    int64_t places = 1;
    for (int d = 0; d < p->ndims; d++)
        places = ap_sat_mul(places, p->dim[d].window.kernel);
    return places;
}

static bool is_shared(const ap_pooling *p)
{
    int64_t places = places_of(p), windows = 1;
    for (int l = 0; l < p->nloops; l++)
        windows = ap_sat_mul(windows, p->extent[l]);
    for (int d = 0; d < p->ndims; d++)
        windows = ap_sat_mul(windows, p->dim[d].count);
    return places >= LARGE_WINDOW && places <= INT32_MAX / 2 && windows < FEW_WINDOWS;
}

static const char *fold_type(const ap_kernel *k)
{
    ap_dtype t = k->operand[0].dtype;
    int64_t places = places_of(&k->pool);
    if (is_max(&k->pool) || (ap_dtype_is_float(t) && places <= LONG_SUM))
        return ap_emit_register(t);
    return ap_dtype_is_float(t) ? "double" : "uint64_t";
}

/* Loops and windows of this thread, out of `rest`: the fastest is the one along which the result lies by ones. */
static void print_indices(writer *w)
{
    const ap_pooling *p = &w->k->pool;
    int n = p->nloops + p->ndims, first = 0, left = n;
    int64_t best = INT64_MAX;
    for (int i = 0; i < n; i++) {
        int64_t s = i < p->nloops ? p->to[i] : p->dim[i - p->nloops].to;
        int64_t count = i < p->nloops ? p->extent[i] : p->dim[i - p->nloops].count;
        if (count > 1 && llabs(s) <= best) {
            best = llabs(s);
            first = i;
        }
    }
    for (int round = -1; round < n; round++) {
        int i = round < 0 ? first : n - 1 - round;
        if (i == first && round >= 0)
            continue;
        bool loop = i < p->nloops;
        const char *turns =
            loop ? turns_text(w, p->extent[i], p->turns[i]) : turns_text(w, p->dim[i - p->nloops].count, 0);
        bool last = --left == 0;
        if (last)
            line(w, "const int64_t %s%d = rest;", loop ? "i" : "o", loop ? i : i - p->nloops);
        else
            line(w, "const int64_t %s%d = rest %% %s;", loop ? "i" : "o", loop ? i : i - p->nloops, turns);
        if (!last)
            line(w, "rest /= %s;", turns);
    }
}

static const char *rows_text(const writer *w)
{
    const ap_pooling *p = &w->k->pool;
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int l = 0; l < p->nloops; l++)
        ap_text_addf(&t, "%s%s", t.len ? " * " : "", turns_text(w, p->extent[l], p->turns[l]));
    for (int d = 0; d < p->ndims; d++)
        ap_text_addf(&t, "%s%s", t.len ? " * " : "", turns_text(w, p->dim[d].count, 0));
    return t.len ? ap_text_str(&t) : "INT64_C(1)";
}

static void open_window(writer *w, int d)
{
    const ap_pool_dim *m = &w->k->pool.dim[d];
    char head[128];
    line(w, "const int64_t f%d = %" PRId64 "*o%d - %" PRId64 ";", d, m->window.stride, d, m->window.lo);
    snprintf(head, sizeof head, "for (int t%d = 0; t%d < %" PRId64 "; t%d++)", d, d, m->window.kernel, d);
    open_block(w, head);
    line(w, "const int64_t e%d = f%d + %" PRId64 "*t%d;", d, d, m->window.dilation, d);
    line(w, "if (e%d < 0 || e%d >= %" PRId64 ")", d, d, m->extent);
    line(w, "    continue;");
}

static void open_windows(writer *w)
{
    const ap_pooling *p = &w->k->pool;
    int64_t step = places_of(p);
    char head[128];
    for (int d = 0; d < p->ndims && !w->shares; d++)
        open_window(w, d);
    if (!w->shares)
        return;
    for (int d = 0; d < p->ndims; d++)
        line(w, "const int64_t f%d = %" PRId64 "*o%d - %" PRId64 ";", d, p->dim[d].window.stride, d,
             p->dim[d].window.lo);
    snprintf(head, sizeof head, "for (int tap = lane; tap < %" PRId64 "; tap += 32)", step);
    open_block(w, head);
    for (int d = 0; d < p->ndims; d++) {
        const ap_window *m = &p->dim[d].window;
        step /= m->kernel;
        line(w, "const int64_t e%d = f%d + %" PRId64 "*(tap / %" PRId64 " %% %" PRId64 ");", d, d, m->dilation, step,
             m->kernel);
        line(w, "if (e%d < 0 || e%d >= %" PRId64 ")", d, d, p->dim[d].extent);
        line(w, "    continue;");
    }
}

/* What the threads of a warp have of a window, together. */
static void join_window(writer *w)
{
    const ap_pooling *p = &w->k->pool;
    const char *type = fold_type(w->k);
    if (p->kind == AP_POOL_ARGMAX) {
        line(w, "at = aprt_fold_row<32, aprt_first_most<%s>>(aprt_place<%s>{acc, at}, nullptr).at;", type, type);
        return;
    }
    line(w, "acc = aprt_fold_row<32, aprt_%s<%s>>(acc, nullptr);", is_max(p) ? "most" : "sum", type);
    if (p->kind == AP_POOL_AVG)
        line(w, "places = aprt_fold_row<32, aprt_sum<int64_t>>(places, nullptr);");
}

static const char *place_text(const writer *w)
{
    const ap_pooling *p = &w->k->pool;
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int l = 0; l < p->nloops; l++)
        add_term(&t, p->from[l], "i", l);
    for (int d = 0; d < p->ndims; d++)
        add_term(&t, p->dim[d].from, "e", d);
    return t.len ? ap_text_str(&t) : "0";
}

/* Row-major over the windowed dimensions of the operand. */
static const char *position_text(const writer *w)
{
    const ap_pooling *p = &w->k->pool;
    int64_t step = 1;
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int d = p->ndims - 1; d >= 0; d--) {
        add_term(&t, step, "e", d);
        step *= p->dim[d].extent;
    }
    return t.len ? ap_text_str(&t) : "0";
}

static void print_take(writer *w)
{
    const ap_pooling *p = &w->k->pool;
    ap_dtype t = w->k->operand[0].dtype;
    const char *type = fold_type(w->k);
    line(w, "const %s x = (%s)%s(x0[%s]);", type, type, loaded(t), place_text(w));
    if (p->kind == AP_POOL_ARGMAX) {
        open_block(w, ap_dtype_is_float(t) ? "if (at < 0 || x > acc || (x != x && acc == acc))"
                                           : "if (at < 0 || x > acc)");
        line(w, "acc = x;");
        line(w, "at = %s;", position_text(w));
        close_block(w);
    } else if (p->kind == AP_POOL_MAX) {
        line(w, "acc = aprt_most<%s>()(acc, x);", type);
    } else {
        line(w, "acc += x;");
    }
    if (p->kind == AP_POOL_AVG)
        line(w, "places++;");
}

/* Elements and padding of a window, as an average counts them. */
static void count_padded(writer *w)
{
    const ap_pooling *p = &w->k->pool;
    for (int d = 0; d < p->ndims; d++) {
        const ap_pool_dim *m = &p->dim[d];
        line(w, "const int64_t r%d = (%" PRId64 " - %" PRId64 "*o%d) / %" PRId64 ";", d,
             m->extent + m->window.lo + m->window.hi + m->window.dilation - 1, m->window.stride, d, m->window.dilation);
        line(w, "places *= r%d < 0 ? 0 : r%d < %" PRId64 " ? r%d : %" PRId64 ";", d, d, m->window.kernel, d,
             m->window.kernel);
    }
}

static void print_window(writer *w)
{
    const ap_pooling *p = &w->k->pool;
    ap_dtype t = w->k->operand[0].dtype, to = w->k->operand[1].dtype;
    ap_scalar x = {.f = -INFINITY};
    ap_text y;
    bool averages = p->kind == AP_POOL_AVG || p->kind == AP_POOL_AVG_PADS;
    if (!ap_dtype_is_float(t))
        x = ap_pointwise_eval(AP_PW_CAST, AP_F64, t, &x);
    line(w, "%s acc = %s;", fold_type(w->k), is_max(p) ? ap_emit_literal(w->e->ctx, t, x).text : "0");
    if (p->kind == AP_POOL_ARGMAX)
        line(w, "int64_t at = -1;");
    if (averages)
        line(w, "int64_t places = %d;", p->kind == AP_POOL_AVG_PADS);
    open_windows(w);
    print_take(w);
    for (int d = 0; d < (w->shares ? 1 : p->ndims); d++)
        close_block(w);
    if (w->shares)
        join_window(w);
    if (p->kind == AP_POOL_AVG_PADS)
        count_padded(w);
    ap_text_init(&y, &w->e->ctx->scratch);
    for (int l = 0; l < p->nloops; l++)
        add_term(&y, p->to[l], "i", l);
    for (int d = 0; d < p->ndims; d++)
        add_term(&y, p->dim[d].to, "o", d);
    const char *value = p->kind == AP_POOL_ARGMAX          ? "at < 0 ? 0 : at"
                        : !averages                        ? "acc"
                        : strcmp(fold_type(w->k), "float") ? "places > 0 ? acc / (double)places : acc"
                                                           : "places > 0 ? acc / (float)places : acc";
    line(w, "%sy0[%s] = (%s)%s%s);", w->shares ? "if (lane == 0) " : "", y.len ? ap_text_str(&y) : "0", ap_dtype_c(to),
         stored(to), value);
}

static void print_header(const ap_emit *e, uint32_t index, ap_text *t, int block)
{
    const ap_kernel *k = e->kernel[index];
    ap_text_addf(t, "static __global__ void __launch_bounds__(%d) %s_g_%s(", block, e->opt->name,
                 ap_name_str(e->ctx, k->name));
    ap_cuda_parameters(e, t, index, e->apart[index]);
    ap_text_add(t, ")\n{\n");
}

static void print_launch(const ap_emit *e, uint32_t index, ap_text *t, const char *rows, int block, int per_block)
{
    ap_text_addf(t, "    const int64_t rows = %s;\n    if (rows == 0)\n        return;\n", rows);
    ap_text_addf(t, "    APRT_LAUNCH(%s_g_%s, aprt_cuda_grid(d, (rows + %d) / %d), %d, 0, aprt_cuda_stream(d)",
                 e->opt->name, ap_name_str(e->ctx, e->kernel[index]->name), per_block - 1, per_block, block);
    ap_cuda_arguments(e, t, index);
    ap_text_add(t, ");\n");
}

static bool has_none(int n, const int64_t *extent)
{
    for (int i = 0; i < n; i++)
        if (extent[i] <= 0)
            return true;
    return false;
}

void ap_cuda_pool(const ap_emit *e, uint32_t index, ap_text *kernel, ap_text *launch)
{
    writer w = {.e = e, .t = kernel, .k = e->kernel[index], .depth = 1};
    bool none = has_none(w.k->pool.nloops, w.k->pool.extent);
    w.shares = is_shared(&w.k->pool);
    int per_block = w.shares ? BLOCK / 32 : BLOCK;
    for (int d = 0; d < w.k->pool.ndims; d++)
        none = none || w.k->pool.dim[d].count <= 0;
    if (none)
        return;
    print_header(e, index, kernel, BLOCK);
    line(&w, "const int64_t rows = %s;", rows_text(&w));
    if (w.shares)
        line(&w, "const int lane = threadIdx.x %% 32;");
    char head[160];
    snprintf(head, sizeof head,
             "for (int64_t row = (int64_t)blockIdx.x * %d + threadIdx.x%s; row < rows; row += (int64_t)gridDim.x * %d)",
             per_block, w.shares ? " / 32" : "", per_block);
    open_block(&w, head);
    line(&w, "int64_t rest = row;");
    print_indices(&w);
    print_window(&w);
    close_block(&w);
    ap_text_add(kernel, "}\n");
    print_launch(e, index, launch, rows_text(&w), BLOCK, per_block);
}

/* ---- the first k of rows ---- */

static const char *row_start(const writer *w, uint32_t i)
{
    const ap_nest *n = &w->k->nest;
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int l = 0; l < n->nouter; l++)
        add_term(&t, w->k->operand[i].stride[l], "i", l);
    return t.len ? ap_text_str(&t) : "0";
}

static void store_first(writer *w, const char *x, const char *j)
{
    const ap_topk *k = &w->k->topk;
    ap_dtype t = w->k->operand[1].dtype;
    line(w, "y0[to + %" PRId64 "*%s] = %s%s.x);", k->stride[1], j, stored(t), x);
    line(w, "y1[at + %" PRId64 "*%s] = %s.at;", k->stride[2], j, x);
}

/* The first k of the sorted row, by all threads of the block. */
static void store_sorted(writer *w, int block)
{
    ap_text head;
    ap_text_init(&head, &w->e->ctx->scratch);
    ap_text_addf(&head, "for (int j = threadIdx.x; j < %" PRId64 "; j += %d)", w->k->topk.k, block);
    open_block(w, ap_text_str(&head));
    store_first(w, "row[j]", "j");
    close_block(w);
    line(w, "__syncthreads();");
}

/* Short rows are put in order in shared memory. */
static void sort_row(writer *w, int size, int block, const char *type)
{
    const ap_topk *k = &w->k->topk;
    const char *load = loaded(w->k->operand[0].dtype);
    ap_text head;
    ap_text_init(&head, &w->e->ctx->scratch);
    ap_text_addf(&head, "for (int j = threadIdx.x; j < %d; j += %d)", size, block);
    open_block(w, ap_text_str(&head));
    line(w, "const bool there = j < %" PRId64 ";", k->n);
    line(w, "row[j].x = there ? %s(x0[from + %" PRId64 "*j]) : (%s)0;", load, k->stride[0], type);
    line(w, "row[j].at = there ? j : -1;");
    close_block(w);
    line(w, "__syncthreads();");
    line(w, "aprt_sort<%s, %d, %d>(row);", k->largest ? "true" : "false", block, size);
    store_sorted(w, block);
}

/* Of long ones the next one is looked for k times: the first of those behind the last one. */
static void search_row(writer *w, int block, const char *type)
{
    const ap_topk *k = &w->k->topk;
    const char *largest = k->largest ? "true" : "false", *load = loaded(w->k->operand[0].dtype);
    ap_text head;
    line(w, "aprt_place<%s> last = {(%s)0, -1};", type, type);
    ap_text_init(&head, &w->e->ctx->scratch);
    ap_text_addf(&head, "for (int64_t j = 0; j < %" PRId64 "; j++)", k->k);
    open_block(w, ap_text_str(&head));
    line(w, "aprt_place<%s> best = {(%s)0, -1};", type, type);
    ap_text_init(&head, &w->e->ctx->scratch);
    ap_text_addf(&head, "for (int64_t i = threadIdx.x; i < %" PRId64 "; i += %d)", k->n, block);
    open_block(w, ap_text_str(&head));
    line(w, "const aprt_place<%s> x = {%s(x0[from + %" PRId64 "*i]), i};", type, load, k->stride[0]);
    line(w, "if ((j == 0 || aprt_before<%s>(last, x)) && aprt_before<%s>(x, best))", largest, largest);
    line(w, "    best = x;");
    close_block(w);
    line(w, "last = aprt_fold_row<%d, aprt_earlier<%s, %s>>(best, shared);", block, largest, type);
    open_block(w, "if (threadIdx.x == 0)");
    store_first(w, "last", "j");
    close_block(w);
    close_block(w);
}

/* Of long ones whose first elements are many: what is best so far, k of them, and the next ones behind, sorted together
 * until none is left. */
static void merge_row(writer *w, int block, const char *type)
{
    const ap_topk *k = &w->k->topk;
    const char *largest = k->largest ? "true" : "false", *load = loaded(w->k->operand[0].dtype);
    int64_t step = SORTED_AT_ONCE - k->k;
    ap_text head;
    ap_text_init(&head, &w->e->ctx->scratch);
    ap_text_addf(&head, "for (int64_t begin = 0; begin < %" PRId64 "; begin += begin ? %" PRId64 " : %d)", k->n, step,
                 SORTED_AT_ONCE);
    open_block(w, ap_text_str(&head));
    line(w, "const int kept = begin ? (int)%" PRId64 " : 0;", k->k);
    ap_text_init(&head, &w->e->ctx->scratch);
    ap_text_addf(&head, "for (int j = kept + (int)threadIdx.x; j < %d; j += %d)", SORTED_AT_ONCE, block);
    open_block(w, ap_text_str(&head));
    line(w, "const int64_t i = begin + (j - kept);");
    line(w, "const bool there = i < %" PRId64 ";", k->n);
    line(w, "row[j].x = there ? %s(x0[from + %" PRId64 "*i]) : (%s)0;", load, k->stride[0], type);
    line(w, "row[j].at = there ? i : -1;");
    close_block(w);
    line(w, "__syncthreads();");
    line(w, "aprt_sort<%s, %d, %d>(row);", largest, block, SORTED_AT_ONCE);
    close_block(w);
    store_sorted(w, block);
}

static const char *topk_rows(const writer *w)
{
    ap_text t;
    ap_text_init(&t, &w->e->ctx->scratch);
    for (int l = 0; l < w->k->nest.nouter; l++)
        ap_text_addf(&t, "%s%s", t.len ? " * " : "", turns_text(w, w->k->nest.extent[l], w->k->nest.turns[l]));
    return t.len ? ap_text_str(&t) : "INT64_C(1)";
}

void ap_cuda_topk(const ap_emit *e, uint32_t index, ap_text *kernel, ap_text *launch)
{
    writer w = {.e = e, .t = kernel, .k = e->kernel[index], .depth = 1};
    const ap_nest *n = &w.k->nest;
    const char *type = ap_emit_register(w.k->operand[0].dtype);
    if (has_none(n->nouter, n->extent))
        return;
    bool sorts = w.k->topk.n <= SORTED_AT_ONCE;
    bool merges = !sorts && w.k->topk.k > SEARCHED && w.k->topk.k <= SORTED_AT_ONCE / 2;
    int size = 64, block;
    while (size < w.k->topk.n && size < SORTED_AT_ONCE)
        size *= 2;
    block = sorts ? (size / 2 < 256 ? size / 2 : 256) : 1024;
    if (merges)
        block = 512;
    print_header(e, index, kernel, block);
    if (sorts || merges)
        line(&w, "__shared__ aprt_place<%s> row[%d];", type, size);
    else
        line(&w, "alignas(16) __shared__ unsigned char shared[APRT_FOLD_BYTES];");
    line(&w, "const int64_t rows = %s;", topk_rows(&w));
    open_block(&w, "for (int64_t r = blockIdx.x; r < rows; r += gridDim.x)");
    if (n->nouter)
        line(&w, "int64_t rest = r;");
    for (int l = n->nouter - 1; l >= 0; l--) {
        const char *turns = turns_text(&w, n->extent[l], n->turns[l]);
        if (l)
            line(&w, "const int64_t i%d = rest %% %s;", l, turns);
        else
            line(&w, "const int64_t i0 = rest;");
        if (l)
            line(&w, "rest /= %s;", turns);
    }
    line(&w, "const int64_t from = %s, to = %s, at = %s;", row_start(&w, 0), row_start(&w, 1), row_start(&w, 2));
    if (sorts)
        sort_row(&w, size, block, type);
    else if (merges)
        merge_row(&w, block, type);
    else
        search_row(&w, block, type);
    close_block(&w);
    ap_text_add(kernel, "}\n");
    print_launch(e, index, launch, topk_rows(&w), block, 1);
}
