/* Which operands of a kernel may share memory, against an enumeration of every element that every turn reads and
 * writes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "ir/local_text.h"

#include <string.h>

enum { SPACE = 4096, MIDDLE = 2048 };

typedef struct draw {
    uint64_t state;
} draw;

static int64_t below(draw *d, int64_t n)
{
    d->state = d->state * 6364136223846793005u + 1442695040888963407u;
    return (int64_t)((d->state >> 33) % (uint64_t)n);
}

/* Operand 0 is read, operand 1 written; loads and stores in one section, or the store in a later one. */
static void make_kernel(draw *d, ap_kernel *k, ap_kernel_operand operand[2], ap_sop sop[4])
{
    static const int64_t strides[] = {-9, -4, -2, -1, 0, 1, 1, 2, 3, 4, 6, 8, 12, 24};
    bool same = below(d, 2), split = below(d, 3) == 0;
    memset(k, 0, sizeof *k);
    memset(operand, 0, 2 * sizeof *operand);
    memset(sop, 0, 4 * sizeof *sop);
    k->noperands = 2;
    k->operand = operand;
    operand[0].dtype = operand[1].dtype = AP_F32;
    operand[1].written = true;
    k->nest.nouter = (uint8_t)below(d, 3);
    k->nest.ninner = (uint8_t)below(d, 3);
    for (int l = 0; l < k->nest.nouter + k->nest.ninner; l++) {
        k->nest.extent[l] = 1 + below(d, 4);
        operand[0].stride[l] = strides[below(d, 14)];
        operand[1].stride[l] = same || below(d, 4) ? operand[0].stride[l] : strides[below(d, 14)];
    }
    k->nest.sop = sop;
    k->nest.nsections = split ? 2 : 1;
    k->nest.inner[0] = below(d, 4) != 0;
    k->nest.inner[1] = below(d, 4) != 0;
    uint32_t n = 0;
    sop[n++] = (ap_sop){.kind = AP_SOP_LOAD, .dtype = AP_F32};
    sop[n++] = (ap_sop){.kind = AP_SOP_STORE, .dtype = AP_F32, .operand = 1, .section = split};
    if (below(d, 4) == 0)
        sop[n++] = (ap_sop){.kind = AP_SOP_LOAD, .dtype = AP_F32, .section = split};
    k->nest.nsops = n;
}

typedef struct trace {
    bool read[SPACE], written[SPACE]; /* elements */
    bool late;                        /* something is read after it was written */
} trace;

static bool next(int64_t *index, const int64_t *extent, int from, int to)
{
    for (int l = to; l-- > from;) {
        if (++index[l] < extent[l])
            return true;
        index[l] = 0;
    }
    return false;
}

/* The nest as it runs; operand 1 begins `delta` elements behind operand 0. */
static void run(const ap_kernel *k, int64_t delta, trace *t)
{
    const ap_nest *n = &k->nest;
    int64_t index[AP_MAX_LOOPS] = {0};
    memset(t, 0, sizeof *t);
    do {
        for (int s = 0; s < n->nsections; s++) {
            int loops = n->inner[s] ? n->nouter + n->ninner : n->nouter;
            memset(index + n->nouter, 0, n->ninner * sizeof *index);
            do {
                for (uint32_t i = 0; i < n->nsops; i++) {
                    int64_t at = MIDDLE + (n->sop[i].operand ? delta : 0);
                    for (int l = 0; l < loops; l++)
                        at += index[l] * k->operand[n->sop[i].operand].stride[l];
                    if (n->sop[i].section != s)
                        continue;
                    assert_true(at >= 0 && at < SPACE);
                    if (n->sop[i].kind == AP_SOP_STORE)
                        t->written[at] = true;
                    else
                        t->read[at] = true;
                    t->late = t->late || (n->sop[i].kind == AP_SOP_LOAD && t->written[at]);
                }
            } while (loops > n->nouter && next(index, n->extent, n->nouter, loops));
        }
        memset(index + n->nouter, 0, n->ninner * sizeof *index);
    } while (next(index, n->extent, 0, n->nouter));
}

static bool meets(const trace *t)
{
    for (int i = 0; i < SPACE; i++)
        if (t->read[i] && t->written[i])
            return true;
    return false;
}

/* Operand 1 is written one turn of an ordered loop ahead of operand 0, which is read. */
static bool runs_ahead(const ap_kernel *k, int64_t delta)
{
    int ordered = k->nest.ninner ? k->nest.nouter : k->nest.nouter - 1;
    for (int l = 0; l < ordered; l++)
        if (k->nest.extent[l] > 1 && k->operand[1].stride[l] == delta && k->operand[0].stride[l] == delta)
            return true;
    return false;
}

static void nests_agree_with_enumeration(void **state)
{
    uint32_t in_place = 0, apart = 0, follows = 0, interleaved = 0, refused = 0;
    (void)state;
    for (uint64_t seed = 1; seed <= 20000; seed++) {
        draw d = {seed};
        ap_kernel k;
        ap_kernel_operand operand[2];
        ap_sop sop[4];
        trace t;
        make_kernel(&d, &k, operand, sop);
        int64_t delta = below(&d, 3) ? below(&d, 60) - 30 : 0;
        if (below(&d, 6) == 0)
            delta = operand[1].stride[0];
        run(&k, delta, &t);
        bool shares = ap_local_may_share(&k, NULL, 1, 0, -4 * delta);
        if (delta == 0 && ap_kernel_in_place(&k, 0, 1)) {
            assert_false(t.late);
            assert_true(shares);
            in_place += meets(&t);
        } else if (shares && meets(&t)) {
            assert_true(runs_ahead(&k, delta));
            follows++;
        } else if (shares) {
            ap_reach r, w;
            assert_true(ap_local_kernel_reach(&k, NULL, 0, &r) && ap_local_kernel_reach(&k, NULL, 1, &w));
            apart++;
            interleaved += r.lo <= w.hi + delta && w.lo + delta <= r.hi;
        } else {
            refused++;
        }
    }
    assert_true(in_place > 500 && follows > 50 && apart > 500 && interleaved > 100 && refused > 500);
}

/* Columns of one matrix: A in the left four of six, C in the right two. */
static void columns_of_a_matrix_are_apart(void **state)
{
    ap_kernel_operand operand[3] = {{.dtype = AP_F32}, {.dtype = AP_F32}, {.dtype = AP_F32, .written = true}};
    ap_kernel k = {.kind = AP_KERNEL_GEMM, .noperands = 3, .operand = operand};
    (void)state;
    k.gemm =
        (ap_gemm){.dtype = AP_F32, .m = 5, .n = 2, .k = 4, .rsa = 6, .csa = 1, .rsb = 2, .csb = 1, .rsc = 6, .csc = 1};
    assert_true(ap_local_may_share(&k, NULL, 2, 0, -16));
    assert_false(ap_local_may_share(&k, NULL, 2, 0, -12));
    assert_true(ap_local_may_share(&k, NULL, 2, 0, 8));
    assert_false(ap_local_may_share(&k, NULL, 2, 0, 0));
    assert_false(ap_local_may_share(&k, NULL, 2, 1, 0));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(nests_agree_with_enumeration),
                                       cmocka_unit_test(columns_of_a_matrix_are_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
