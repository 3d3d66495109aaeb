/* What follows a matrix product, element by element: the record `nest` of a kernel of class GEMM. Its loops are those
 * of the product, then m and n; operand 2, the product's C, holds the sums when it begins. */
#include "ir/local_text.h"

#include <string.h>

void ap_local_epilogue_loops(ap_kernel *k)
{
    const ap_gemm *g = &k->gemm;
    ap_nest *n = &k->nest;
    int64_t *c = k->operand[2].stride;
    memcpy(n->extent, g->extent, g->nloops * sizeof *n->extent);
    memcpy(n->turns, g->turns, g->nloops * sizeof *n->turns);
    memcpy(c, g->stride_c, g->nloops * sizeof *c);
    n->nouter = (uint8_t)(g->nloops + 2);
    n->extent[g->nloops] = g->m;
    n->turns[g->nloops] = g->turns_m;
    c[g->nloops] = g->rsc;
    n->extent[g->nloops + 1] = g->n;
    n->turns[g->nloops + 1] = g->turns_n;
    c[g->nloops + 1] = g->csc;
}

static bool is_plain(const ap_sop *s)
{
    return s->kind == AP_SOP_LOAD || s->kind == AP_SOP_CONST || s->kind == AP_SOP_INDEX ||
           s->kind == AP_SOP_POINTWISE || s->kind == AP_SOP_STORE;
}

const char *ap_local_epilogue_fault(const ap_kernel *k)
{
    const ap_gemm *g = &k->gemm;
    const ap_nest *n = &k->nest;
    if (g->nloops + 2 > AP_MAX_LOOPS || n->nouter != g->nloops + 2 || n->ninner || n->ntemps || n->nsections != 1 ||
        n->inner[0])
        return "what follows the product runs over other loops";
    ap_kernel want = *k;
    ap_kernel_operand operand[3];
    memcpy(operand, k->operand, sizeof operand);
    want.operand = operand;
    ap_local_epilogue_loops(&want);
    if (memcmp(want.nest.extent, n->extent, n->nouter * sizeof *n->extent) != 0 ||
        memcmp(want.nest.turns, n->turns, n->nouter * sizeof *n->turns) != 0 ||
        memcmp(operand[2].stride, k->operand[2].stride, n->nouter * sizeof *operand[2].stride) != 0)
        return "what follows the product runs over other loops";
    for (int l = 0; l < g->nloops; l++)
        if (g->sum[l])
            return "something follows a product before all of it is summed";
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        bool memory = s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE;
        if (!is_plain(s) || (memory && s->operand < 2))
            return "what follows a product is not element by element";
        if (s->kind == AP_SOP_LOAD && s->operand > 2 && s->operand < k->noperands && k->operand[s->operand].written)
            return "what follows a product reads what it writes";
    }
    return NULL;
}
