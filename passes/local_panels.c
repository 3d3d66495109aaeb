/* Parameters that only products read, as their B, are stored as the products want them: in panels (ir/local.h), made
 * once when the program is opened. A parameter with another use (a tied embedding, a transposed reader with other
 * columns, a row of padding) stays as it is.
 *
 * The products' strides in the compact box say which factors are loops, k and n; the box is put into that order:
 *
 *     box [12,64,768], b [1,768], k 768, n 768   ->   box [768,12,64], panels [768,768] */
#include "passes/local.h"

#include <string.h>

/* How the products read a parameter: its factors in the order loops, k, n, and how many turns the loops make. */
typedef struct reading {
    bool used, refused;
    int64_t k, n;
    uint8_t nloops, nfactors;
    int64_t loop_stride[AP_MAX_LOOPS]; /* of loops that move through it, in the compact box */
    int64_t loop_extent[AP_MAX_LOOPS];
    uint8_t order[AP_MAX_FACTORS];
} reading;

/* Appends the factors that make a dimension of this extent and stride, outer ones first. */
static bool add_factors(const ap_local_param *w, const int64_t *compact, int64_t extent, int64_t stride, reading *r)
{
    uint8_t found[AP_MAX_FACTORS];
    int n = 0;
    while (extent > 1) {
        int f = 0;
        while (f < w->nfactors && (w->extent[f] == 1 || compact[f] != stride))
            f++;
        if (f == w->nfactors || extent % w->extent[f] || r->nfactors + n == AP_MAX_FACTORS)
            return false;
        found[n++] = (uint8_t)f;
        extent /= w->extent[f];
        stride *= w->extent[f];
    }
    while (n > 0)
        r->order[r->nfactors++] = found[--n];
    return true;
}

/* Every factor of more than one element, once. */
static bool is_permutation(const ap_local_param *w, const reading *r)
{
    int seen[AP_MAX_FACTORS] = {0};
    for (int i = 0; i < r->nfactors; i++)
        seen[r->order[i]]++;
    for (int f = 0; f < w->nfactors; f++)
        if (seen[f] != (w->extent[f] != 1))
            return false;
    return true;
}

static bool read_kernel(const ap_local_param *w, const ap_kernel *k, reading *r)
{
    const ap_gemm *g = &k->gemm;
    int64_t compact[AP_MAX_FACTORS], count;
    memset(r, 0, sizeof *r);
    if (k->kind != AP_KERNEL_GEMM || g->turns_n || g->turns_k || w->ncounts || g->k < 1 || g->n < 1)
        return false;
    if (!ap_low_compact(w->nfactors, w->extent, compact, &count))
        return false;
    r->used = true;
    r->k = g->k;
    r->n = g->n;
    for (int l = 0; l < g->nloops; l++) {
        if (g->stride_b[l] == 0 || (g->extent[l] == 1 && !g->turns[l]))
            continue;
        r->loop_extent[r->nloops] = g->extent[l];
        r->loop_stride[r->nloops++] = g->stride_b[l];
        if (!add_factors(w, compact, g->extent[l], g->stride_b[l], r))
            return false;
    }
    return add_factors(w, compact, g->k, g->rsb, r) && add_factors(w, compact, g->n, g->csb, r) && is_permutation(w, r);
}

static bool is_same(const reading *a, const reading *b)
{
    if (a->k != b->k || a->n != b->n || a->nloops != b->nloops || a->nfactors != b->nfactors)
        return false;
    for (int l = 0; l < a->nloops; l++)
        if (a->loop_stride[l] != b->loop_stride[l] || a->loop_extent[l] != b->loop_extent[l])
            return false;
    return memcmp(a->order, b->order, a->nfactors * sizeof *a->order) == 0;
}

static bool starts_at_zero(const ap_affine *a)
{
    static const ap_affine zero;
    return !memcmp(a, &zero, sizeof zero);
}

static void look_at_call(ap_low *low, const ap_instr *in, reading *all)
{
    for (uint32_t i = 0; i < in->nrefs; i++) {
        reading one = {0};
        if (in->ref[i].space != AP_SPACE_PARAM)
            continue;
        reading *r = &all[in->ref[i].index];
        if (r->refused)
            continue;
        const ap_local_param *w = &low->p->params.at[in->ref[i].index];
        bool good = in->kind == AP_INSTR_CALL && i == 1 && starts_at_zero(&in->ref[i].offset) &&
                    read_kernel(w, &low->p->kernels.at[in->kernel], &one);
        if (good && !r->used)
            *r = one;
        r->refused = !good || !is_same(r, &one);
    }
}

/* The box in the order of the reading: factors of one element are left out. */
static void store_in_panels(ap_local_param *w, const reading *r)
{
    ap_local_param old = *w;
    for (int i = 0; i < r->nfactors; i++) {
        w->extent[i] = old.extent[r->order[i]];
        w->stride[i] = old.stride[r->order[i]];
    }
    w->nfactors = r->nfactors;
    w->store = (ap_store){AP_STORE_PANELS, r->k, r->n};
}

/* The kernel for a B in panels: its loops walk whole matrices. */
static ap_kernel panel_kernel(const ap_kernel *k)
{
    ap_kernel out = *k;
    ap_gemm *g = &out.gemm;
    int64_t step = g->k * g->n;
    g->panels = true;
    g->rsb = g->n;
    g->csb = 1;
    for (int l = g->nloops - 1; l >= 0; l--) {
        if (g->stride_b[l] == 0)
            continue;
        bool moves = g->extent[l] != 1 || g->turns[l];
        g->stride_b[l] = moves ? step : 0;
        step *= g->extent[l];
    }
    return out;
}

/* Kernels that still have calls, in their order; a kernel of which some calls have panels gets a copy behind it. */
static ap_status renumber(ap_low *low, const reading *all)
{
    ap_local *p = low->p;
    uint32_t count = p->kernels.len, *to = AP_NEW_ARRAY(low->scratch, uint32_t, 2 * (size_t)count);
    ap_kernel *old = ap_arena_memdup(low->scratch, p->kernels.at, count * sizeof *old);
    for (uint32_t i = 0; i < 2 * count; i++)
        to[i] = AP_NONE;
    p->kernels.len = low->kernel_hash.len = low->kernel_key.len = low->kernel_key_size.len = 0;
    for (uint32_t i = 0; i < p->instrs.len; i++) {
        ap_instr *in = &p->instrs.at[i];
        if (in->kind != AP_INSTR_CALL)
            continue;
        const ap_kernel *k = &old[in->kernel];
        bool panels = k->kind == AP_KERNEL_GEMM && in->ref[1].space == AP_SPACE_PARAM && !all[in->ref[1].index].refused;
        uint32_t *new = &to[2 * in->kernel + panels];
        if (*new == AP_NONE) {
            ap_kernel made = panels ? panel_kernel(k) : *k;
            ap_low_call call = {.name = ap_name_str(low->ctx, k->name), .about = k->about};
            AP_TRY(ap_low_kernel(low, &made, &call, new));
        }
        in->kernel = *new;
    }
    return AP_OK;
}

ap_status ap_low_panels(ap_low *low)
{
    ap_local *p = low->p;
    reading *all = AP_NEW_ARRAY(low->scratch, reading, p->params.len);
    bool any = false;
    for (uint32_t i = 0; i < p->instrs.len; i++)
        look_at_call(low, &p->instrs.at[i], all);
    for (uint32_t i = 0; i < p->params.len; i++) {
        all[i].refused |= !all[i].used;
        if (!all[i].refused)
            store_in_panels(&p->params.at[i], &all[i]);
        any |= !all[i].refused;
    }
    return any ? renumber(low, all) : AP_OK;
}
