/* SPDX-License-Identifier: MIT
 *
 * Our matrix product, B as it is and in panels, beside oneDNN's and, when it was found, OpenBLAS's, one thread each, in
 * turn: for each size the median over rounds of CPU time, as GF/s. `bench_gemm avx2` takes our AVX2 variant; compare
 * that with oneDNN and OpenBLAS under DNNL_MAX_CPU_ISA=AVX2 OPENBLAS_CORETYPE=Haswell. `bench_gemm avx2 row` takes the
 * kinds of sizes with that word in their names. */
#include "gemm_internal.h"

#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#ifdef AP_BENCH_OPENBLAS
#include <cblas.h>
#endif

typedef struct size {
    const char *what;
    int64_t m, n, k;
    bool turned; /* B is stored as n rows of k */
    int64_t pad; /* added to every leading dimension */
} size;

static const size sizes[] = {
    {"square", 8, 8, 8, false, 0},
    {"square", 16, 16, 16, false, 0},
    {"square", 32, 32, 32, false, 0},
    {"square", 64, 64, 64, false, 0},
    {"square", 128, 128, 128, false, 0},
    {"square", 256, 256, 256, false, 0},
    {"square", 512, 512, 512, false, 0},
    {"square", 1024, 1024, 1024, false, 0},
    {"square", 2048, 2048, 2048, false, 0},
    {"projection", 64, 768, 64, false, 0},
    {"projection", 64, 256, 256, false, 0},
    {"projection", 64, 768, 768, false, 0},
    {"projection", 128, 768, 768, false, 0},
    {"projection", 128, 3072, 768, false, 0},
    {"projection", 128, 768, 3072, false, 0},
    {"projection", 128, 768, 768, true, 0},
    {"projection", 197, 2304, 768, false, 0},
    {"projection", 512, 768, 768, false, 0},
    {"projection", 512, 3072, 768, false, 0},
    {"projection", 512, 768, 3072, false, 0},
    {"scores", 64, 64, 32, true, 224},
    {"scores", 128, 128, 64, true, 704},
    {"context", 64, 32, 64, false, 224},
    {"context", 128, 64, 128, false, 704},
    {"few rows", 8, 3072, 768, false, 0},
    {"few rows", 8, 256, 256, false, 0},
    {"few rows", 14, 768, 768, false, 0},
    {"few rows", 4, 3072, 768, false, 0},
    {"one row", 1, 3072, 768, false, 0},
    {"one row", 1, 768, 3072, false, 0},
    {"one row", 1, 768, 768, false, 0},
    {"one row", 1, 3072, 768, true, 0},
    {"one row", 1, 768, 768, true, 0},
    {"one row", 1, 50000, 768, true, 0},
    {"one row", 1, 50000, 768, false, 0},
    {"one row", 1, 256, 256, false, 0},
    {"one row", 1, 256, 256, true, 0},
    {"one row", 1, 64, 64, true, 0},
    {"few rows", 4, 3072, 768, true, 0},
    {"one column", 512, 1, 768, false, 0},
    {"odd", 77, 1000, 333, false, 0},
    {"odd", 20, 100, 100, false, 0},
};

typedef struct operands {
    const size *z;
    int64_t lda, ldb, ldc;
    float *a, *b, *c;
    const aprt_gemm_variant *ours;
} operands;

static void run_ours(const operands *o)
{
    const size *z = o->z;
    o->ours->f32(z->m, z->n, z->k, o->a, o->lda, 1, o->b, z->turned ? 1 : o->ldb, z->turned ? o->ldb : 1, 0, o->c,
                 o->ldc, NULL, NULL);
}

/* The same numbers taken as panels: what is in them takes no time. */
static void run_panels(const operands *o)
{
    const size *z = o->z;
    o->ours->panels_f32(z->m, z->n, z->k, o->a, o->lda, 1, o->b, 0, o->c, o->ldc, NULL, NULL);
}

static void run_dnnl(const operands *o)
{
    const size *z = o->z;
    dnnl_sgemm('N', z->turned ? 'T' : 'N', z->m, z->n, z->k, 1, o->a, o->lda, o->b, o->ldb, 0, o->c, o->ldc);
}

#ifdef AP_BENCH_OPENBLAS
static void run_blas(const operands *o)
{
    const size *z = o->z;
    cblas_sgemm(CblasRowMajor, CblasNoTrans, z->turned ? CblasTrans : CblasNoTrans, (int)z->m, (int)z->n, (int)z->k, 1,
                o->a, (int)o->lda, o->b, (int)o->ldb, 0, o->c, (int)o->ldc);
}
#endif

static void (*const peers[])(const operands *) = {
    run_ours,
    run_dnnl,
    run_panels,
#ifdef AP_BENCH_OPENBLAS
    run_blas,
#endif
};
enum { PEERS = sizeof peers / sizeof *peers, ROUNDS = 15 };

static double cpu_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static double time_calls(int peer, const operands *o, int64_t calls)
{
    double start = cpu_seconds();
    for (int64_t i = 0; i < calls; i++)
        peers[peer](o);
    return (cpu_seconds() - start) / (double)calls;
}

static int by_value(const void *x, const void *y)
{
    double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static float *numbers(int64_t count)
{
    float *p = malloc((size_t)count * sizeof *p);
    if (!p)
        exit(4);
    for (int64_t i = 0; i < count; i++)
        p[i] = (float)(i * 7919 % 1009) / 1009 - 0.5f;
    return p;
}

static void measure(const size *z, const aprt_gemm_variant *ours)
{
    operands o = {.z = z, .lda = z->k + z->pad, .ldb = (z->turned ? z->k : z->n) + z->pad, .ldc = z->n + z->pad};
    double seconds[PEERS][ROUNDS], flops = 2.0 * (double)z->m * (double)z->n * (double)z->k;
    o.ours = ours;
    o.a = numbers(z->m * o.lda);
    o.b = numbers((z->turned ? z->n : z->k) * o.ldb);
    o.c = numbers(z->m * o.ldc);
    int64_t calls = 1 + (int64_t)(3e8 / flops);
    for (int round = -1; round < ROUNDS; round++)
        for (int p = 0; p < PEERS; p++) {
            double t = time_calls(p, &o, calls);
            if (round >= 0)
                seconds[p][round] = t;
        }
    printf("%-11s %5lld x %5lld x %5lld%s", z->what, (long long)z->m, (long long)z->n, (long long)z->k,
           z->turned ? " T" : "  ");
    for (int p = 0; p < PEERS; p++) {
        qsort(seconds[p], ROUNDS, sizeof(double), by_value);
        printf("%10.1f", flops / seconds[p][ROUNDS / 2] * 1e-9);
    }
    for (int p = 0; p < 4 && p < PEERS; p += 2)
        printf("%10.2f", seconds[1][ROUNDS / 2] / seconds[p][ROUNDS / 2]);
    printf("\n");
    free(o.a);
    free(o.b);
    free(o.c);
}

int main(int argc, char **argv)
{
    int isa = APRT_GEMM_ISAS - 1;
    while (isa > 0 && (argc > 1 ? strcmp(argv[1], aprt_gemm_get(isa)->name) != 0 : !aprt_gemm_has(isa)))
        isa--;
    if (!aprt_gemm_has(isa)) {
        fprintf(stderr, "bench_gemm: this processor has no %s\n", aprt_gemm_get(isa)->name);
        return 4;
    }
    omp_set_num_threads(1);
#ifdef AP_BENCH_OPENBLAS
    openblas_set_num_threads(1);
    printf("OpenBLAS: %s\n", openblas_get_config());
#endif
    printf("GF/s per CPU second%17s%10s%10s%10s%s%10s%10s\n", "", aprt_gemm_get(isa)->name, "oneDNN", "in panels",
           PEERS > 3 ? "  OpenBLAS" : "", "to oneDNN", "panels");
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        if (argc < 3 || strstr(sizes[i].what, argv[2]))
            measure(&sizes[i], aprt_gemm_get(isa));
    return 0;
}
