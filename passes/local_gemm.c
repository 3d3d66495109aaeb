/* contract -> matrix product inside loops.
 *
 * Letters are of four classes: batch (in A, B and C), m (A and C), n (B and C), k (A and B). Inside a class, letters
 * that lie behind each other in every operand that has them form a *chain*, which is one dimension to BLAS. One chain
 * each becomes m, n and k: the choice with the largest product among those whose strides BLAS takes. The rest are
 * loops, summed ones last. Where C is contiguous along m, A and B change roles. What BLAS cannot do well (other
 * dtypes, outer products, dots) is a loop nest. */
#include "passes/local.h"

#include "ir/local_text.h"

#include <string.h>

#define MAX_LETTERS (2 * AP_MAX_FACTORS)
#define SMALL 64 /* products smaller than this are not worth a call */

typedef struct letter {
    ap_int count;
    int64_t extent, a, b, c; /* strides, 0 where absent */
    bool in_a, in_b, in_c;
    int fa, fb, fc; /* factors, -1: absent */
} letter;

typedef struct chain {
    int64_t extent, a, b, c;
    char kind; /* 'b', 'm', 'n', 'k' */
    ap_int count;
    uint8_t nletters, letter[MAX_LETTERS]; /* outer ones first */
} chain;

typedef struct product {
    ap_low *low;
    const ap_low_item *it;
    ap_dtype dtype;
    int nletters;
    letter letter[MAX_LETTERS];
    ap_low_place place[3]; /* A, B, C */
    int nchains;
    chain chain[MAX_LETTERS];
} product;

typedef struct choice {
    int64_t score; /* m*n*k, 0: none */
    int m, n, k;   /* chains, -1: extent 1 */
    bool swapped;  /* m comes from B */
    ap_gemm gemm;
    int loop[AP_MAX_LOOPS]; /* chains of its loops */
} choice;

/* ---- letters and chains ---- */

static void read_letters(product *pr)
{
    const ap_node_info *n = ap_node_at(pr->low->m, pr->it->node);
    const ap_spec *s = n->u.spec;
    const ap_spec_side *side[3] = {&s->operand[0], &s->operand[1], &s->result};
    const ap_value value[3] = {n->in[0], n->in[1], n->out[0]};
    const int order[3] = {2, 0, 1}; /* letters of the result first, in its order */
    for (int i = 0; i < 3; i++) {
        for (int f = 0; f < side[order[i]]->nletters; f++) {
            char name = side[order[i]]->letter[f];
            int at[3];
            for (int j = 0; j < 3; j++)
                at[j] = ap_spec_side_find(side[j], name);
            if ((i > 0 && at[2] >= 0) || (i == 2 && at[0] >= 0))
                continue;
            letter l = {.fa = at[0], .fb = at[1], .fc = at[2]};
            l.extent = pr->low->value[value[order[i]]].extent[f];
            l.count = pr->low->value[value[order[i]]].count[f];
            l.in_a = l.fa >= 0;
            l.in_b = l.fb >= 0;
            l.in_c = l.fc >= 0;
            pr->letter[pr->nletters++] = l;
        }
    }
}

static void read_strides(product *pr)
{
    for (int i = 0; i < pr->nletters; i++) {
        letter *l = &pr->letter[i];
        l->a = l->in_a ? pr->place[0].stride[l->fa] : 0;
        l->b = l->in_b ? pr->place[1].stride[l->fb] : 0;
        l->c = l->in_c ? pr->place[2].stride[l->fc] : 0;
    }
}

static char class_of(const letter *l)
{
    if (!l->in_c)
        return 'k';
    return l->in_a ? (l->in_b ? 'b' : 'm') : 'n';
}

static bool follows(const chain *outer, const chain *inner)
{
    return !ap_low_varies(&inner->count) && outer->kind == inner->kind && outer->a == inner->a * inner->extent &&
           outer->b == inner->b * inner->extent && outer->c == inner->c * inner->extent;
}

/* Joins any two chains of which one continues the other, until none do. */
static void make_chains(product *pr)
{
    pr->nchains = 0;
    for (int i = 0; i < pr->nletters; i++) {
        const letter *l = &pr->letter[i];
        if (l->extent != 1 || ap_low_varies(&l->count))
            pr->chain[pr->nchains++] = (chain){l->extent, l->a, l->b, l->c, class_of(l), l->count, 1, {(uint8_t)i}};
    }
    for (int i = 0; i < pr->nchains; i++) {
        for (int j = 0; j < pr->nchains; j++) {
            if (i == j || !follows(&pr->chain[i], &pr->chain[j]))
                continue;
            pr->chain[i].count = ap_low_count_times(&pr->chain[i].count, pr->chain[j].extent);
            pr->chain[i].extent *= pr->chain[j].extent;
            pr->chain[i].a = pr->chain[j].a;
            pr->chain[i].b = pr->chain[j].b;
            pr->chain[i].c = pr->chain[j].c;
            for (int k = 0; k < pr->chain[j].nletters; k++)
                pr->chain[i].letter[pr->chain[i].nletters++] = pr->chain[j].letter[k];
            memmove(&pr->chain[j], &pr->chain[j + 1], (size_t)(pr->nchains - j - 1) * sizeof pr->chain[0]);
            pr->nchains--;
            i = -1;
            break;
        }
    }
}

/* ---- what BLAS takes ---- */

/* A matrix of r x c: one stride 1, the other a leading dimension. Strides along extent 1 are free and set. */
static bool fit_matrix(int64_t r, int64_t c, int64_t *rs, int64_t *cs)
{
    if (c == 1)
        *cs = 1;
    if (r == 1)
        *rs = *cs == 1 ? c : 1;
    if (c == 1 && r == 1)
        *rs = 1;
    bool by_rows = *cs == 1 && *rs >= c, by_columns = *rs == 1 && *cs >= r;
    return (by_rows || by_columns) && *rs <= INT32_MAX && *cs <= INT32_MAX;
}

static bool try_gemm(const product *pr, int mi, int ni, int ki, bool swapped, choice *out)
{
    const chain none = {.extent = 1};
    const chain *m = mi < 0 ? &none : &pr->chain[mi], *n = ni < 0 ? &none : &pr->chain[ni];
    const chain *k = ki < 0 ? &none : &pr->chain[ki];
    ap_gemm g = {.dtype = pr->dtype, .m = m->extent, .n = n->extent, .k = k->extent};
    g.rsa = swapped ? m->b : m->a;
    g.csa = swapped ? k->b : k->a;
    g.rsb = swapped ? k->a : k->b;
    g.csb = swapped ? n->a : n->b;
    g.rsc = m->c;
    g.csc = n->c;
    if (g.m > INT32_MAX || g.n > INT32_MAX || g.k > INT32_MAX || !fit_matrix(g.m, g.k, &g.rsa, &g.csa) ||
        !fit_matrix(g.k, g.n, &g.rsb, &g.csb))
        return false;
    if (g.n == 1)
        g.csc = 1;
    if (g.m == 1)
        g.rsc = g.n;
    if (g.csc != 1 || g.rsc < g.n || g.rsc > INT32_MAX)
        return false;
    int64_t score = ap_sat_mul(ap_sat_mul(g.m, g.n), g.k);
    if (score <= out->score)
        return false;
    *out = (choice){.score = score, .m = mi, .n = ni, .k = ki, .swapped = swapped, .gemm = g};
    return true;
}

static void choose(const product *pr, choice *best)
{
    memset(best, 0, sizeof *best);
    for (int swapped = 0; swapped < 2; swapped++) {
        char m_kind = swapped ? 'n' : 'm', n_kind = swapped ? 'm' : 'n';
        for (int m = -1; m < pr->nchains; m++) {
            for (int n = -1; n < pr->nchains; n++) {
                for (int k = -1; k < pr->nchains; k++) {
                    if ((m < 0 || pr->chain[m].kind == m_kind) && (n < 0 || pr->chain[n].kind == n_kind) &&
                        (k < 0 || pr->chain[k].kind == 'k'))
                        try_gemm(pr, m, n, k, swapped, best);
                }
            }
        }
    }
}

/* ---- as a nest ---- */

static uint32_t widened(ap_low_nest *nest, uint32_t x, ap_dtype from, ap_dtype to)
{
    return from == to ? x : ap_low_nest_pointwise(nest, AP_PW_CAST, to, 1, &x);
}

/* Outer loops over the result, inner ones over k: mul and sum, 16-bit floats in f32. */
static ap_status emit_as_nest(product *pr, ap_low_call *call)
{
    ap_low_nest nest;
    int64_t stride[3][AP_MAX_LOOPS] = {{0}};
    bool reduces = false;
    ap_low_nest_init(pr->low, &nest);
    for (int i = 0; i < pr->nletters; i++) {
        const letter *l = &pr->letter[i];
        if (l->extent == 1 && !ap_low_varies(&l->count))
            continue;
        if (nest.nloops == AP_MAX_LOOPS)
            return ap_error(pr->low->ctx, pr->it->loc, "product over more than %d dimensions", AP_MAX_LOOPS);
        int at = ap_low_nest_loop(&nest, l->extent, &l->count, !l->in_c);
        reduces = reduces || !l->in_c;
        stride[0][at] = l->a;
        stride[1][at] = l->b;
        stride[2][at] = l->c;
    }
    ap_dtype wide = pr->dtype == AP_F16 || pr->dtype == AP_BF16 ? AP_F32 : pr->dtype;
    ap_low_nest_section(&nest, reduces);
    uint32_t arg[2];
    for (int i = 0; i < 2; i++)
        arg[i] = widened(&nest, ap_low_nest_load(&nest, &pr->place[i].ref, pr->dtype, stride[i]), pr->dtype, wide);
    uint32_t x = ap_low_nest_pointwise(&nest, AP_PW_MUL, wide, 2, arg);
    if (reduces) {
        ap_sop sum = {.kind = AP_SOP_REDUCE, .dtype = wide, .reduce = AP_REDUCE_SUM};
        sum.arg[0] = x;
        x = ap_low_nest_add(&nest, sum);
        ap_low_nest_section(&nest, false);
    }
    x = widened(&nest, x, wide, pr->dtype);
    ap_low_nest_store(&nest, &pr->place[2].ref, pr->dtype, stride[2], x);
    return ap_low_nest_finish(&nest, call);
}

/* ---- as a matrix product ---- */

/* The ints of a call: those of what follows, then one for each count. */
#define MAX_NEST_INTS 16
typedef struct counts {
    uint32_t n;
    ap_int at[AP_MAX_LOOPS + 3 + MAX_NEST_INTS];
} counts;

static uint32_t add_count(counts *all, const ap_int *count)
{
    if (!ap_low_varies(count))
        return 0;
    for (uint32_t i = 0; i < all->n; i++)
        if (!memcmp(&all->at[i], count, sizeof *count))
            return i + 1;
    all->at[all->n++] = *count;
    return all->n;
}

static void add_loop(ap_gemm *g, const chain *c, bool swapped, counts *all)
{
    int64_t a = swapped ? c->b : c->a, b = swapped ? c->a : c->b;
    int l = g->nloops++;
    g->extent[l] = c->extent;
    g->turns[l] = add_count(all, &c->count);
    g->stride_a[l] = a;
    g->stride_b[l] = b;
    g->stride_c[l] = c->c;
    g->sum[l] = c->kind == 'k';
}

/* Fills the loops of ch->gemm; the ints of its counts come behind those that are there. */
static ap_status finish_gemm(product *pr, choice *ch, counts *all)
{
    ap_gemm *g = &ch->gemm;
    g->turns_m = ch->m < 0 ? 0 : add_count(all, &pr->chain[ch->m].count);
    g->turns_n = ch->n < 0 ? 0 : add_count(all, &pr->chain[ch->n].count);
    g->turns_k = ch->k < 0 ? 0 : add_count(all, &pr->chain[ch->k].count);
    for (int summed = 0; summed < 2; summed++) {
        for (int i = 0; i < pr->nchains; i++) {
            if (i == ch->m || i == ch->n || i == ch->k || (pr->chain[i].kind == 'k') != summed)
                continue;
            if (g->nloops == AP_MAX_LOOPS)
                return ap_error(pr->low->ctx, pr->it->loc, "product over more than %d dimensions", AP_MAX_LOOPS);
            ch->loop[g->nloops] = i;
            add_loop(g, &pr->chain[i], ch->swapped, all);
        }
    }
    return AP_OK;
}

static void operand_refs(const product *pr, const choice *ch, ap_ref ref[3])
{
    ref[0] = pr->place[ch->swapped ? 1 : 0].ref;
    ref[1] = pr->place[ch->swapped ? 0 : 1].ref;
    ref[2] = pr->place[2].ref;
}

static ap_status emit_as_gemm(product *pr, choice *ch, ap_low_call *call)
{
    counts all = {0};
    AP_TRY(finish_gemm(pr, ch, &all));
    ap_kernel k = {.kind = AP_KERNEL_GEMM, .noperands = 3, .nints = all.n, .gemm = ch->gemm};
    k.operand = AP_NEW_ARRAY(&pr->low->ctx->arena, ap_kernel_operand, 3);
    for (int i = 0; i < 3; i++)
        k.operand[i] = (ap_kernel_operand){.dtype = pr->dtype, .written = i == 2};
    uint32_t kernel;
    ap_ref ref[3];
    AP_TRY(ap_low_kernel(pr->low, &k, call, &kernel));
    operand_refs(pr, ch, ref);
    ap_low_call_append(pr->low, kernel, call, 3, ref, all.n, all.at);
    return AP_OK;
}

/* ---- with what follows ---- */

/* The stride along a chain, given those of the nest's loops; false when its letters do not walk as one. */
static bool chain_stride(const product *pr, int c, const int8_t *loop, const int64_t *stride, int64_t *out)
{
    const chain *ch = c < 0 ? NULL : &pr->chain[c];
    int64_t step = 0;
    *out = 0;
    for (int i = ch ? ch->nletters - 1 : -1; i >= 0; i--) {
        const letter *l = &pr->letter[ch->letter[i]];
        int64_t s = stride[loop[l->fc]];
        if (i == ch->nletters - 1)
            *out = s;
        else if (s != step)
            return false;
        if (!ap_mul_i64(s, l->extent, &step))
            return false;
    }
    return true;
}

/* Strides over the product's loops, m and n. */
static bool tile_strides(const product *pr, const choice *ch, const int8_t *loop, const int64_t *stride,
                         int64_t out[AP_MAX_LOOPS])
{
    int nloops = ch->gemm.nloops;
    memset(out, 0, AP_MAX_LOOPS * sizeof *out);
    for (int l = 0; l < nloops; l++)
        if (!chain_stride(pr, ch->loop[l], loop, stride, &out[l]))
            return false;
    return chain_stride(pr, ch->m, loop, stride, &out[nloops]) &&
           chain_stride(pr, ch->n, loop, stride, &out[nloops + 1]);
}

/* The nest's operands behind A, B and C; to[i]: where the nest's operand i is now. What lies in C is C itself. */
static bool add_operands(const product *pr, const choice *ch, const int8_t *loop, const ap_low_nest *nest, ap_kernel *k,
                         ap_ref *ref, uint8_t *to)
{
    for (uint32_t i = 0; i < nest->operands.len; i++) {
        const ap_low_operand *o = &nest->operands.at[i];
        ap_kernel_operand *made = &k->operand[k->noperands];
        *made = (ap_kernel_operand){.dtype = o->dtype, .written = o->written};
        if (!tile_strides(pr, ch, loop, o->stride, made->stride))
            return false;
        bool in_c = o->ref.space == ref[2].space && o->ref.index == ref[2].index;
        if (in_c && (memcmp(&o->ref, &ref[2], sizeof o->ref) != 0 || o->dtype != pr->dtype ||
                     memcmp(made->stride, k->operand[2].stride, sizeof made->stride) != 0))
            return false;
        to[i] = (uint8_t)(in_c ? 2 : k->noperands);
        if (in_c)
            continue;
        ref[k->noperands++] = o->ref;
    }
    return true;
}

static bool add_sops(const product *pr, const choice *ch, const int8_t *loop, const ap_low_nest *nest,
                     const uint8_t *to, ap_nest *out)
{
    out->nsections = 1;
    out->nsops = nest->sops.len;
    out->sop = ap_arena_memdup(&pr->low->ctx->arena, nest->sops.at, nest->sops.len * sizeof *out->sop);
    for (uint32_t i = 0; i < out->nsops; i++) {
        ap_sop *s = &out->sop[i];
        if (s->kind == AP_SOP_LOAD || s->kind == AP_SOP_STORE)
            s->operand = to[s->operand];
        if (s->kind == AP_SOP_INDEX && !tile_strides(pr, ch, loop, nest->sops.at[i].loop_stride, s->loop_stride))
            return false;
        if (s->section != 0)
            return false;
    }
    return true;
}

/* A kernel with what follows: false where the nest cannot be walked by tiles. */
static bool make_followed(const product *pr, const choice *ch, const int8_t *loop, const ap_low_nest *nest,
                          ap_kernel *k, ap_ref *ref)
{
    uint8_t *to = AP_NEW_ARRAY(pr->low->scratch, uint8_t, nest->operands.len);
    for (int l = 0; l < ch->gemm.nloops; l++)
        if (ch->gemm.sum[l])
            return false;
    k->kind = AP_KERNEL_GEMM;
    k->gemm = ch->gemm;
    k->noperands = 3;
    for (int i = 0; i < 3; i++)
        k->operand[i] = (ap_kernel_operand){.dtype = pr->dtype, .written = i == 2};
    operand_refs(pr, ch, ref);
    ap_local_epilogue_loops(k);
    return add_operands(pr, ch, loop, nest, k, ref, to) && add_sops(pr, ch, loop, nest, to, &k->nest);
}

/* ---- operands and result in other layouts ---- */

/* Strides of operand `which` (0 A, 1 B, 2 C) as a fresh buffer: batch, then m and k (k and n; m and n). */
static int64_t packed_strides(const product *pr, int which, int64_t stride[AP_MAX_FACTORS], int64_t *extent)
{
    static const char order[3][4] = {"bmk", "bkn", "bmn"};
    int64_t count = 1;
    for (int o = 2; o >= 0; o--) {
        for (int i = pr->nletters - 1; i >= 0; i--) {
            const letter *l = &pr->letter[i];
            int f = which == 0 ? l->fa : which == 1 ? l->fb : l->fc;
            if (f < 0 || class_of(l) != order[which][o])
                continue;
            stride[f] = count;
            extent[f] = l->extent;
            count *= l->extent;
        }
    }
    return count;
}

static ap_status pack(product *pr, int which)
{
    ap_low_place to;
    int64_t extent[AP_MAX_FACTORS] = {0};
    memset(&to, 0, sizeof to);
    int64_t count = packed_strides(pr, which, to.stride, extent);
    to.ref.space = AP_SPACE_ARENA;
    AP_TRY(ap_low_new_buffer(pr->low, pr->dtype, count, pr->it->loc, &to.ref.index));
    ap_low_call call = {
        .name = "pack", .about = "operand of a product, in an order that BLAS takes", .loc = pr->it->loc};
    const ap_node_info *n = ap_node_at(pr->low->m, pr->it->node);
    const ap_low_value *v = &pr->low->value[n->in[which]];
    AP_TRY(ap_low_copy(pr->low, pr->dtype, v->nfactors, extent, v->count, &pr->place[which], &to, &call));
    pr->place[which] = to;
    return AP_OK;
}

/* The best choice when the operands of `packed` (bits) were packed. */
static void choose_packed(const product *pr, int packed, choice *out)
{
    product trial = *pr;
    int64_t unused[AP_MAX_FACTORS];
    for (int which = 0; which < 3; which++) {
        if (packed >> which & 1)
            packed_strides(pr, which, trial.place[which].stride, unused);
    }
    read_strides(&trial);
    make_chains(&trial);
    choose(&trial, out);
}

/* Which operands to pack: none unless it makes the inner product much larger. */
static int find_packing(const product *pr)
{
    static const int order[8] = {0, 1, 2, 4, 3, 5, 6, 7};
    choice best, trial;
    int packed = 0;
    choose_packed(pr, 0, &best);
    for (int i = 1; i < 8; i++) {
        choose_packed(pr, order[i], &trial);
        if (trial.score > ap_sat_mul(best.score, 16)) {
            best = trial;
            packed = order[i];
        }
    }
    return packed;
}

static bool suits_blas(const product *pr)
{
    int64_t k = 1, all = 1;
    if (!(pr->low->options.products >> pr->dtype & 1))
        return false;
    for (int i = 0; i < pr->nletters; i++) {
        if (!pr->letter[i].in_c)
            k = ap_sat_mul(k, pr->letter[i].extent);
        all = ap_sat_mul(all, pr->letter[i].extent);
    }
    return k > 1 && all >= SMALL;
}

/* C in a packed buffer of its own, which becomes the place of the result or is copied there. */
static ap_status emit_packed_result(product *pr, ap_value root, ap_low_call *call, choice *ch)
{
    ap_low_value *rv = &pr->low->value[root];
    ap_low_place final = pr->place[2], packed;
    int64_t extent[AP_MAX_FACTORS];
    memset(&packed, 0, sizeof packed);
    int64_t count = packed_strides(pr, 2, packed.stride, extent);
    packed.ref.space = AP_SPACE_ARENA;
    AP_TRY(ap_low_new_buffer(pr->low, pr->dtype, count, pr->it->loc, &packed.ref.index));
    pr->place[2] = packed;
    read_strides(pr);
    make_chains(pr);
    choose(pr, ch);
    AP_TRY(emit_as_gemm(pr, ch, call));
    if (rv->owned) {
        rv->place = packed;
        return AP_OK;
    }
    ap_low_call copy = *call;
    copy.name = "unpack";
    copy.about = "result of a product, from the order in which BLAS made it";
    return ap_low_copy(pr->low, pr->dtype, rv->nfactors, rv->extent, rv->count, &packed, &final, &copy);
}

/* Sums over loops around the product pass through C, which 16-bit floats would round each time. */
static bool is_summed_narrow(const product *pr, const choice *ch)
{
    bool narrow = pr->dtype == AP_F16 || pr->dtype == AP_BF16;
    for (int i = 0; narrow && i < pr->nchains; i++)
        if (pr->chain[i].kind == 'k' && i != ch->k)
            return true;
    return false;
}

static bool is_for_library(const product *pr, const choice *ch)
{
    return suits_blas(pr) && !is_summed_narrow(pr, ch) && ch->score >= SMALL && !(ch->gemm.m == 1 && ch->gemm.n == 1);
}

ap_status ap_low_emit_product_with(ap_low *low, const ap_low_item *it, const ap_low_place *c, const int8_t *loop,
                                   ap_low_nest *nest, const ap_low_call *call, bool *out_done)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    product pr = {.low = low, .it = it, .dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, n->out[0]))};
    pr.place[2] = *c;
    *out_done = false;
    for (int i = 0; i < 2; i++)
        AP_TRY(ap_low_place_of(low, n->in[i], &pr.place[i]));
    read_letters(&pr);
    read_strides(&pr);
    make_chains(&pr);
    choice ch;
    choose(&pr, &ch);
    counts all = {.n = nest->ints.len};
    if (!is_for_library(&pr, &ch) || find_packing(&pr) != 0 || all.n > MAX_NEST_INTS || pr.nchains > AP_MAX_LOOPS - 2)
        return AP_OK;
    for (uint32_t i = 0; i < all.n; i++)
        all.at[i] = nest->ints.at[i];
    AP_TRY(finish_gemm(&pr, &ch, &all));
    ap_kernel k = {.nints = all.n};
    uint32_t kernel, most = 3 + nest->operands.len;
    k.operand = AP_NEW_ARRAY(&low->ctx->arena, ap_kernel_operand, most);
    ap_ref *ref = AP_NEW_ARRAY(low->scratch, ap_ref, most);
    if (!make_followed(&pr, &ch, loop, nest, &k, ref))
        return AP_OK;
    AP_TRY(ap_low_kernel(low, &k, call, &kernel));
    ap_low_call_append(low, kernel, call, k.noperands, ref, all.n, all.at);
    *out_done = true;
    return AP_OK;
}

ap_status ap_low_emit_contract(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    ap_value root = n->out[0];
    product pr = {.low = low, .it = it, .dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, root))};
    ap_low_call call = {.name = it->label ? ap_name_str(low->ctx, it->label) : "contract", .loc = it->loc};
    call.about = ap_low_about(low, it);
    for (int i = 0; i < 2; i++)
        AP_TRY(ap_low_place_of(low, n->in[i], &pr.place[i]));
    AP_TRY(ap_low_destination(low, root, &pr.place[2]));
    if (low->value[root].direct && low->value[root].replicated) {
        call.when_mask = low->value[root].replicated;
        call.when = AP_WHEN_ZERO;
    }
    read_letters(&pr);
    int packed = suits_blas(&pr) && !low->unpacked ? find_packing(&pr) : 0;
    for (int which = 0; which < 2; which++) {
        if (packed >> which & 1)
            AP_TRY(pack(&pr, which));
    }
    read_strides(&pr);
    make_chains(&pr);
    choice ch;
    if (packed & 4)
        return emit_packed_result(&pr, root, &call, &ch);
    choose(&pr, &ch);
    if (!is_for_library(&pr, &ch))
        return emit_as_nest(&pr, &call);
    return emit_as_gemm(&pr, &ch, &call);
}
