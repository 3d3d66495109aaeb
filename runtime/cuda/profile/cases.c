/* SPDX-License-Identifier: MIT
 *
 * What is measured: shapes of transformers and convolution networks, each type that cuBLASLt has tensor cores for, and
 * passes over memory and exchanges of many sizes. The left operand and the result of a product stay where they are, as
 * activations do; its right operands are taken from a pool in turns, as weights are that come again when all others
 * have been read. */
#include "profile.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#define MIB ((int64_t)1 << 20)

const char *profile_kind_name(profile_kind kind)
{
    static const char *const names[PROFILE_KINDS] = {
        [PROFILE_LAUNCH] = "launch",   [PROFILE_MEMORY] = "memory",    [PROFILE_ROWS] = "rows",
        [PROFILE_PRODUCT] = "product", [PROFILE_CONV] = "convolution", [PROFILE_EXCHANGE] = "exchange",
        [PROFILE_UPLOAD] = "upload",   [PROFILE_DOWNLOAD] = "download"};
    return names[kind];
}

typedef struct maker {
    const profile_options *opt;
    profile_cases *out;
    bool failed; /* out of memory */
} maker;

static int64_t aligned(int64_t bytes)
{
    return (bytes + 255) / 256 * 256;
}

/* One more row of a table that grows; NULL when memory is out. */
static void *grown(maker *m, void *table, uint32_t n, size_t size)
{
    if (n & (n - 1)) /* between powers of two there is room */
        return table;
    void *more = realloc(table, (n ? 2 * (size_t)n : 1) * size);
    m->failed = m->failed || !more;
    return more ? more : table;
}

static void add(maker *m, profile_case k, int64_t operand, int64_t weights, int64_t result)
{
    profile_cases *c = m->out;
    const int64_t limit = m->opt->limit;
    if (limit > 0 && (k.flops > limit || k.simple + k.functions > limit || k.bytes > limit))
        return;
    k.what = k.what ? k.what : "";
    c->at = grown(m, c->at, c->n, sizeof *c->at);
    if (m->failed)
        return;
    k.a = 0;
    k.b = aligned(operand);
    k.c = k.b + weights;
    c->at[c->n++] = k;
    const int64_t end = k.c + aligned(result);
    c->arena_bytes = end > c->arena_bytes ? end : c->arena_bytes;
}

/* ---- launches, memory, rows ---- */

static void add_launches(maker *m)
{
    for (int i = 0; i < (m->opt->quick ? 2 : 8); i++) {
        const profile_case k = {
            .kind = PROFILE_LAUNCH, .dtype = APRT_F32, .name = "launch", .bytes = 128, .extent = {16}};
        add(m, k, 64, 0, 64);
    }
}

static void add_memory(maker *m)
{
    const int64_t most = m->opt->quick ? 16 * MIB : 128 * MIB; /* elements */
    for (int64_t n = 1024; n <= most; n *= 2) {
        profile_case k = {.kind = PROFILE_MEMORY, .dtype = APRT_F32, .simple = n, .bytes = 8 * n, .extent = {n}};
        snprintf(k.name, sizeof k.name, "%" PRId64 " kB read and written", n * 4 / 1024);
        add(m, k, 4 * n, 0, 4 * n);
    }
}

/* FLOPs as ir/op/pointwise.def counts them, those that have their own instructions by half: exp 8, erf 12, division 2,
 * rsqrt 2. */
static void add_row(maker *m, profile_rows what, int64_t rows, int64_t columns)
{
    static const struct {
        const char *name;
        int64_t simple, functions, of_row; /* of an element; functions once a row */
    } of[] = {[PROFILE_POLYNOMIAL] = {"polynomial", 16, 0, 0},
              [PROFILE_SOFTMAX] = {"softmax", 3, 10, 0},
              [PROFILE_GELU] = {"gelu", 2, 12, 0},
              [PROFILE_NORM] = {"norm", 5, 0, 2}};
    const int64_t n = rows * columns;
    profile_case k = {.kind = PROFILE_ROWS,
                      .dtype = APRT_F32,
                      .simple = n * of[what].simple,
                      .functions = n * of[what].functions + rows * of[what].of_row,
                      .row = columns,
                      .bytes = 8 * n,
                      .rows = what,
                      .extent = {rows, columns}};
    snprintf(k.name, sizeof k.name, "%s %" PRId64 "x%" PRId64, of[what].name, rows, columns);
    add(m, k, 4 * n, 0, 4 * n);
}

static void add_rows(maker *m)
{
    static const int64_t all[][2] = {{128, 128},   {128, 768},   {1024, 1024}, {512, 3072},
                                     {4096, 4096}, {8192, 1024}, {65536, 128}, {16, 384}};
    for (int i = 0; i < (m->opt->quick ? 3 : (int)(sizeof all / sizeof *all)); i++)
        for (int what = PROFILE_POLYNOMIAL; what <= PROFILE_NORM; what++)
            add_row(m, (profile_rows)what, all[i][0], all[i][1]);
}

/* ---- products ---- */

static void add_product(maker *out, int32_t dtype, int64_t batch, int64_t m, int64_t k, int64_t n)
{
    const int64_t size = aprt_dtype_bytes(dtype), pool = out->opt->quick ? 64 * MIB : 512 * MIB;
    const int64_t step = aligned(batch * k * n * size), weights = step > pool ? 1 : pool / step;
    profile_case p = {.kind = PROFILE_PRODUCT,
                      .dtype = dtype,
                      .what = "matrix",
                      .each = 2 * m * n * k,
                      .columns = n,
                      .depth = k,
                      .flops = 2 * batch * m * n * k,
                      .bytes = batch * (m * k + k * n + m * n) * size,
                      .step = step,
                      .weights = weights > 64 ? 64 : weights};
    p.product =
        (aprt_cuda_product){.dtype = dtype, .m = m, .n = n, .k = k, .rsa = k, .csa = 1, .rsb = n, .csb = 1, .rsc = n};
    if (batch > 1) {
        p.product.nloops = 1;
        p.product.extent[0] = batch;
        p.product.stride_a[0] = m * k;
        p.product.stride_b[0] = k * n;
        p.product.stride_c[0] = m * n;
        snprintf(p.name, sizeof p.name, "%" PRId64 " x [%" PRId64 ",%" PRId64 "]x[%" PRId64 ",%" PRId64 "]", batch, m,
                 k, k, n);
    } else {
        snprintf(p.name, sizeof p.name, "[%" PRId64 ",%" PRId64 "]x[%" PRId64 ",%" PRId64 "]", m, k, k, n);
    }
    add(out, p, batch * m * k * size, step * p.weights, batch * m * n * size);
}

static void add_matrices(maker *m, int32_t dtype)
{
    static const int64_t matrix[][2] = {{64, 64},    {256, 256},   {768, 768},   {768, 3072},
                                        {3072, 768}, {1024, 1024}, {1024, 4096}, {4096, 1024},
                                        {512, 512},  {2048, 2048}, {4096, 4096}, {4096, 16384}};
    static const int64_t rows[] = {128, 16, 1024, 1, 8, 32, 64, 256, 512, 2048, 4096, 8192};
    const bool all = !m->opt->quick;
    const int nrows = all ? (int)(sizeof rows / sizeof *rows) : 3;
    const int nmatrices = all ? (int)(sizeof matrix / sizeof *matrix) : 6;
    for (int r = 0; r < nrows; r++)
        for (int i = 0; i < nmatrices; i++)
            add_product(m, dtype, 1, rows[r], matrix[i][0], matrix[i][1]);
}

/* As in attention. */
static void add_batched(maker *m, int32_t dtype)
{
    static const int64_t all[][4] = {{12, 128, 64, 128},   {12, 128, 128, 64},    {96, 128, 64, 128},
                                     {96, 128, 128, 64},   {128, 32, 64, 32},     {16, 1024, 64, 1024},
                                     {16, 1024, 1024, 64}, {32, 2048, 128, 2048}, {32, 2048, 2048, 128}};
    for (int i = 0; i < (m->opt->quick ? 2 : (int)(sizeof all / sizeof *all)); i++)
        add_product(m, dtype, all[i][0], all[i][1], all[i][2], all[i][3]);
}

static void add_products(maker *m)
{
    static const int32_t types[] = {APRT_F32, APRT_BF16, APRT_F16};
    for (int t = 0; t < (m->opt->tf32 ? 1 : (int)(sizeof types / sizeof *types)); t++) {
        add_matrices(m, types[t]);
        add_batched(m, types[t]);
    }
    for (int64_t n = 256; n <= 4096 && !m->opt->tf32 && !m->opt->quick;
         n *= 2) /* for what scientists keep in doubles */
        add_product(m, APRT_F64, 1, n, n, n);
}

/* ---- convolutions: planes are square, in the order of ONNX ---- */

typedef struct shape {
    int64_t batch, groups, in, out, size, kernel, stride; /* channels of one group */
} shape;

static void set_strides(int64_t *stride, int64_t groups, int64_t channels, int64_t size)
{
    stride[4] = 1;
    stride[3] = size;
    stride[2] = size * size;
    stride[1] = channels * stride[2];
    stride[0] = groups * stride[1];
}

static void add_conv(maker *m, int32_t dtype, const shape *s)
{
    const int64_t pad = s->kernel / 2, to = (s->size + 2 * pad - s->kernel) / s->stride + 1;
    const int64_t x = s->batch * s->groups * s->in * s->size * s->size, y = s->batch * s->groups * s->out * to * to;
    const int64_t depth = s->in * s->kernel * s->kernel, w = s->groups * s->out * depth,
                  bytes = aprt_dtype_bytes(dtype);
    profile_case k = {.kind = PROFILE_CONV,
                      .dtype = dtype,
                      .what = s->groups > 1 && s->in == 1 && s->out == 1 ? "depthwise"
                              : s->kernel > 1                            ? "spatial"
                                                                         : "pointwise",
                      .each = 2 * y * depth,
                      .flops = 2 * y * depth,
                      .columns = s->out,
                      .depth = depth,
                      .bytes = (x + w + y) * bytes,
                      .number = m->out->nslots};
    aprt_conv *c = &k.conv;
    *c = (aprt_conv){.dtype = dtype, .n = s->batch, .g = s->groups, .m = s->out, .c = s->in, .nspatial = 2};
    for (int i = 0; i < 2; i++)
        c->dim[i] = (aprt_conv_dim){
            .in = s->size, .kernel = s->kernel, .out = to, .lo = pad, .stride = s->stride, .dilate = 1, .hole = 1};
    set_strides(c->x, s->groups, s->in, s->size);
    set_strides(c->y, s->groups, s->out, to);
    c->w[4] = 1;
    c->w[3] = s->kernel;
    c->w[2] = s->kernel * s->kernel;
    c->w[1] = depth;
    c->w[0] = s->out * depth;
    snprintf(k.name, sizeof k.name, "%" PRId64 "x%" PRId64 " on %" PRId64 "x%" PRId64 "x%" PRId64 "x%" PRId64 "%s",
             s->kernel, s->kernel, s->batch, s->groups * s->in, s->size, s->size, s->groups > 1 ? " depthwise" : "");
    const uint32_t before = m->out->n;
    add(m, k, x * bytes, 0, y * bytes);
    m->out->nslots += m->out->n > before;
}

static void add_convs(maker *m)
{
    static const shape all[] = {{1, 1, 16, 16, 32, 3, 1},    {1, 1, 64, 64, 28, 1, 1},    {1, 32, 1, 1, 28, 3, 1},
                                {1, 1, 64, 64, 56, 3, 1},    {1, 1, 128, 128, 28, 3, 1},  {1, 1, 256, 256, 14, 3, 1},
                                {1, 1, 3, 64, 224, 7, 2},    {32, 1, 3, 64, 224, 7, 2},   {32, 1, 64, 64, 56, 3, 1},
                                {32, 1, 64, 256, 56, 1, 1},  {32, 1, 256, 64, 56, 1, 1},  {32, 1, 128, 128, 28, 3, 1},
                                {32, 1, 256, 256, 14, 3, 1}, {32, 1, 512, 2048, 7, 1, 1}, {32, 1, 512, 512, 7, 3, 1},
                                {32, 128, 1, 1, 56, 3, 1}};
    static const int32_t types[] = {APRT_F32, APRT_BF16, APRT_F16};
    for (int t = 0; t < (m->opt->tf32 ? 1 : (int)(sizeof types / sizeof *types)); t++)
        for (int i = 0; i < (m->opt->quick ? 3 : (int)(sizeof all / sizeof *all)); i++)
            add_conv(m, types[t], &all[i]);
}

/* ---- exchanges ---- */

static void add_exchange(maker *m, aprt_exchange_kind kind, uint32_t group, int64_t whole)
{
    static const char *const names[] = {[APRT_ALL_GATHER] = "all_gather",
                                        [APRT_REDUCE_SCATTER] = "reduce_scatter",
                                        [APRT_ALL_REDUCE] = "all_reduce",
                                        [APRT_ALL_TO_ALL] = "all_to_all"};
    profile_cases *c = m->out;
    const int64_t p = c->group[group].size, n = kind == APRT_ALL_REDUCE ? whole / 4 : whole / 4 / p;
    const bool reads_all = kind == APRT_REDUCE_SCATTER || kind == APRT_ALL_TO_ALL;
    const bool writes_all = kind == APRT_ALL_GATHER || kind == APRT_ALL_TO_ALL;
    const int64_t twice = kind == APRT_ALL_REDUCE ? 2 : 1, bytes = 4 * n * (kind == APRT_ALL_REDUCE ? 1 : p);
    profile_case k = {.kind = PROFILE_EXCHANGE,
                      .dtype = APRT_F32,
                      .bytes = twice * (bytes - bytes / p),
                      .steps = twice * (p - 1),
                      .number = c->nexchanges};
    snprintf(k.name, sizeof k.name, "%s %" PRId64 " kB over %" PRId64, names[kind], bytes / 1024, p);
    const uint32_t before = c->n;
    add(m, k, 4 * n * (reads_all ? p : 1), 0, 4 * n * (writes_all ? p : 1));
    if (c->n == before)
        return;
    c->exchange = grown(m, c->exchange, c->nexchanges, sizeof *c->exchange);
    if (m->failed)
        return;
    c->exchange[c->nexchanges++] = (aprt_exchange){.kind = kind,
                                                   .fold = APRT_FOLD_SUM,
                                                   .dtype = APRT_F32,
                                                   .group = group,
                                                   .ndims = 1,
                                                   .extent = {n},
                                                   .src_stride = {1},
                                                   .dst_stride = {1},
                                                   .src_me = reads_all ? n : 0,
                                                   .dst_peer = writes_all ? n : 0};
}

/* All ranks in lists of neighbours, for each size that divides their number: all lists exchange at once. */
static bool make_groups(maker *m)
{
    profile_cases *c = m->out;
    const int32_t n = m->opt->devices;
    c->rank = malloc((size_t)n * sizeof *c->rank);
    for (int32_t r = 0; c->rank && r < n; r++)
        c->rank[r] = r;
    for (int32_t p = 2; p <= n && c->rank; p++) {
        if (n % p)
            continue;
        c->group = grown(m, c->group, c->ngroups, sizeof *c->group);
        if (m->failed)
            return false;
        c->group[c->ngroups++] = (aprt_group){.count = n / p, .size = p, .rank = c->rank};
    }
    return c->rank != NULL;
}

static void add_exchanges(maker *m)
{
    const int64_t most = m->opt->quick ? 4 * MIB : 64 * MIB;
    for (uint32_t g = 0; g < m->out->ngroups; g++)
        for (int64_t bytes = 1024; bytes <= most; bytes *= 4)
            for (int kind = APRT_ALL_GATHER; kind <= APRT_ALL_TO_ALL; kind++)
                add_exchange(m, (aprt_exchange_kind)kind, g, bytes);
}

static void add_copies(maker *m)
{
    const int64_t most = m->opt->quick ? 4 * MIB : 64 * MIB;
    for (int64_t bytes = 4096; bytes <= most; bytes *= 4)
        for (int kind = PROFILE_UPLOAD; kind <= PROFILE_DOWNLOAD; kind++) {
            profile_case k = {.kind = (profile_kind)kind, .dtype = APRT_F32, .bytes = bytes, .steps = 1};
            snprintf(k.name, sizeof k.name, "%s of %" PRId64 " kB", profile_kind_name(k.kind), bytes / 1024);
            add(m, k, bytes, 0, 0);
        }
}

bool profile_cases_make(const profile_options *options, profile_cases *out)
{
    maker m = {.opt = options, .out = out};
    *out = (profile_cases){0};
    if (!make_groups(&m))
        return false;
    if (!options->tf32) {
        add_launches(&m);
        add_memory(&m);
        add_rows(&m);
    }
    add_products(&m);
    add_convs(&m);
    if (!options->tf32) {
        add_exchanges(&m);
        add_copies(&m);
    }
    return !m.failed;
}

void profile_cases_free(profile_cases *c)
{
    free(c->at);
    free(c->exchange);
    free(c->group);
    free(c->rank);
    *c = (profile_cases){0};
}
