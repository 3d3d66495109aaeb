/* Loop nests as they grow, and what happens when one is done: loops are ordered so that memory is walked in its own
 * order, neighbours that no operand can tell from one loop are joined, and the kernel is looked up or made. */
#include "passes/local.h"

#include "ir/local_text.h"

#include <assert.h>
#include <string.h>

void ap_low_nest_init(ap_low *low, ap_low_nest *n)
{
    memset(n, 0, sizeof *n);
    n->low = low;
}

uint8_t ap_low_nest_loop(ap_low_nest *n, int64_t extent, const ap_int *count, bool inner)
{
    assert(n->nloops < AP_MAX_LOOPS);
    n->extent[n->nloops] = extent;
    n->inner[n->nloops] = inner;
    n->count[n->nloops] = *count;
    return n->nloops++;
}

static bool section_is_empty(const ap_low_nest *n)
{
    return n->nsections && (!n->sops.len || n->sops.at[n->sops.len - 1].section + 1 < n->nsections);
}

void ap_low_nest_section(ap_low_nest *n, bool inner)
{
    if (section_is_empty(n))
        n->nsections--;
    assert(n->nsections < 16);
    n->section_inner[n->nsections++] = inner;
}

uint32_t ap_low_nest_operand(ap_low_nest *n, const ap_ref *ref, ap_dtype dtype, bool written, const int64_t *stride)
{
    for (uint32_t i = 0; i < n->operands.len; i++) {
        const ap_low_operand *o = &n->operands.at[i];
        if (!memcmp(&o->ref, ref, sizeof *ref) && o->dtype == dtype && o->written == written &&
            !memcmp(o->stride, stride, sizeof o->stride))
            return i;
    }
    ap_low_operand o = {.ref = *ref, .dtype = dtype, .written = written};
    memcpy(o.stride, stride, sizeof o.stride);
    ap_vec_push(n->low->scratch, &n->operands, o);
    assert(n->operands.len < 256);
    return n->operands.len - 1;
}

static uint32_t add_int(ap_low_nest *n, const ap_int *a)
{
    for (uint32_t i = 0; i < n->ints.len; i++) {
        if (!memcmp(&n->ints.at[i], a, sizeof *a))
            return i;
    }
    ap_vec_push(n->low->scratch, &n->ints, *a);
    return n->ints.len - 1;
}

uint32_t ap_low_nest_int(ap_low_nest *n, const ap_affine *a)
{
    ap_int plain = ap_int_plain(a);
    return add_int(n, &plain);
}

static bool sop_equal(const ap_sop *a, const ap_sop *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->operand == b->operand && a->reduce == b->reduce &&
           a->pw == b->pw && a->arg[0] == b->arg[0] && a->arg[1] == b->arg[1] && a->arg[2] == b->arg[2] &&
           a->imm.i == b->imm.i && a->stride == b->stride && a->extent == b->extent && a->limit == b->limit &&
           !memcmp(a->loop_stride, b->loop_stride, sizeof a->loop_stride);
}

uint32_t ap_low_nest_add(ap_low_nest *n, ap_sop sop)
{
    assert(n->nsections);
    sop.section = (uint8_t)(n->nsections - 1);
    for (uint32_t i = 0; i < n->sops.len && ap_sop_has_value(&sop); i++) {
        if (n->sops.at[i].section == sop.section && sop_equal(&n->sops.at[i], &sop))
            return i;
    }
    ap_vec_push(n->low->scratch, &n->sops, sop);
    return n->sops.len - 1;
}

uint32_t ap_low_nest_load(ap_low_nest *n, const ap_ref *ref, ap_dtype dtype, const int64_t *stride)
{
    uint8_t o = (uint8_t)ap_low_nest_operand(n, ref, dtype, false, stride);
    return ap_low_nest_add(n, (ap_sop){.kind = AP_SOP_LOAD, .dtype = dtype, .operand = o});
}

void ap_low_nest_store(ap_low_nest *n, const ap_ref *ref, ap_dtype dtype, const int64_t *stride, uint32_t value)
{
    uint8_t o = (uint8_t)ap_low_nest_operand(n, ref, dtype, true, stride);
    ap_low_nest_add(n, (ap_sop){.kind = AP_SOP_STORE, .dtype = dtype, .operand = o, .arg = {value}});
}

uint32_t ap_low_nest_const(ap_low_nest *n, ap_dtype dtype, ap_scalar x)
{
    return ap_low_nest_add(n, (ap_sop){.kind = AP_SOP_CONST, .dtype = dtype, .imm = x});
}

uint32_t ap_low_nest_pointwise(ap_low_nest *n, ap_pointwise pw, ap_dtype dtype, int nin, const uint32_t *arg)
{
    ap_sop s = {.kind = AP_SOP_POINTWISE, .dtype = dtype, .pw = (uint16_t)pw};
    for (int i = 0; i < nin; i++)
        s.arg[i] = arg[i];
    return ap_low_nest_add(n, s);
}

uint32_t ap_low_nest_check(ap_low_nest *n, uint32_t arg, int64_t limit)
{
    ap_sop s = {.kind = AP_SOP_CHECK, .dtype = n->sops.at[arg].dtype, .limit = limit, .arg = {arg}};
    return ap_low_nest_add(n, s);
}

uint32_t ap_low_nest_iota(ap_low_nest *n, ap_value root, const int8_t *loops)
{
    ap_low *low = n->low;
    const ap_node_info *node = ap_node_at(low->m, low->value[root].iota);
    ap_type_info t = ap_type_get(low->ctx, ap_value_type(low->m, root));
    const ap_shape_info *s = ap_shape_get(low->ctx, t.shape);
    ap_sop sop = {.kind = AP_SOP_INDEX, .dtype = AP_I64, .imm.i = -1};
    ap_affine first = {0};
    int64_t stride = 1;
    for (int f = s->first[node->u.iota.dim + 1] - 1; f >= s->first[node->u.iota.dim]; f--) {
        if (loops[f] >= 0)
            sop.loop_stride[loops[f]] += stride;
        if (t.sharding) {
            ap_affine start;
            ap_low_shard_start(low, ap_sharding_get(low->ctx, t.sharding), low->value[root].extent, f, &start);
            ap_low_affine_add(&first, &start, stride);
        }
        stride *= s->logical[f];
    }
    const ap_affine zero = {0};
    if (memcmp(&first, &zero, sizeof first) != 0)
        sop.imm.i = (int64_t)ap_low_nest_int(n, &first);
    uint32_t index = ap_low_nest_add(n, sop);
    if (t.dtype == AP_I64)
        return index;
    return ap_low_nest_pointwise(n, AP_PW_CAST, t.dtype, 1, &index);
}

/* ---- finishing ---- */

/* Drops loop l. */
static void remove_loop(ap_low_nest *n, int l)
{
    size_t rest = (size_t)(AP_MAX_LOOPS - 1 - l);
    memmove(n->extent + l, n->extent + l + 1, rest * sizeof n->extent[0]);
    memmove(n->inner + l, n->inner + l + 1, rest * sizeof n->inner[0]);
    memmove(n->count + l, n->count + l + 1, rest * sizeof n->count[0]);
    for (uint32_t i = 0; i < n->operands.len; i++) {
        int64_t *s = n->operands.at[i].stride;
        memmove(s + l, s + l + 1, rest * sizeof *s);
        s[AP_MAX_LOOPS - 1] = 0;
    }
    for (uint32_t i = 0; i < n->sops.len; i++) {
        int64_t *s = n->sops.at[i].loop_stride;
        memmove(s + l, s + l + 1, rest * sizeof *s);
        s[AP_MAX_LOOPS - 1] = 0;
    }
    n->nloops--;
}

#define SWAP(T, a, b)                                                                                                  \
    do {                                                                                                               \
        T swapped = (a);                                                                                               \
        (a) = (b);                                                                                                     \
        (b) = swapped;                                                                                                 \
    } while (0)

static void swap_loops(ap_low_nest *n, int a, int b)
{
    SWAP(int64_t, n->extent[a], n->extent[b]);
    SWAP(bool, n->inner[a], n->inner[b]);
    SWAP(ap_int, n->count[a], n->count[b]);
    for (uint32_t i = 0; i < n->operands.len; i++)
        SWAP(int64_t, n->operands.at[i].stride[a], n->operands.at[i].stride[b]);
    for (uint32_t i = 0; i < n->sops.len; i++)
        SWAP(int64_t, n->sops.at[i].loop_stride[a], n->sops.at[i].loop_stride[b]);
}

/* The operand that decides the order of the outer (inner) loops: it moves along most of them; written ones first. */
static const ap_low_operand *leading_operand(const ap_low_nest *n, bool inner)
{
    const ap_low_operand *best = NULL;
    int best_score = -1;
    for (uint32_t i = 0; i < n->operands.len; i++) {
        const ap_low_operand *o = &n->operands.at[i];
        int score = o->written;
        for (int l = 0; l < n->nloops; l++)
            score += 2 * (n->inner[l] == inner && o->stride[l] != 0);
        if (score > best_score) {
            best = o;
            best_score = score;
        }
    }
    return best;
}

static int64_t magnitude(int64_t x)
{
    return x < 0 ? -x : x;
}

/* Outer loops first; within a kind by falling stride of the leading operand. Bubble sort: stable. */
static void order_loops(ap_low_nest *n)
{
    if (n->ordered)
        return;
    for (int pass = 0; pass < n->nloops; pass++) {
        for (int l = 0; l + 1 < n->nloops; l++) {
            bool wrong = n->inner[l] && !n->inner[l + 1];
            if (n->inner[l] == n->inner[l + 1]) {
                const ap_low_operand *lead = leading_operand(n, n->inner[l]);
                wrong = lead && magnitude(lead->stride[l]) < magnitude(lead->stride[l + 1]);
            }
            if (wrong)
                swap_loops(n, l, l + 1);
        }
    }
}

static bool joins(int64_t outer, int64_t inner, int64_t extent)
{
    int64_t step;
    return ap_mul_i64(inner, extent, &step) && outer == step;
}

/* Loops l and l+1 walk every operand and index as one loop would. */
static bool can_join(const ap_low_nest *n, int l)
{
    if (n->inner[l] != n->inner[l + 1] || ap_low_varies(&n->count[l + 1]))
        return false;
    for (uint32_t i = 0; i < n->operands.len; i++) {
        if (!joins(n->operands.at[i].stride[l], n->operands.at[i].stride[l + 1], n->extent[l + 1]))
            return false;
    }
    for (uint32_t i = 0; i < n->sops.len; i++) {
        const ap_sop *s = &n->sops.at[i];
        if (s->kind == AP_SOP_INDEX && !joins(s->loop_stride[l], s->loop_stride[l + 1], n->extent[l + 1]))
            return false;
    }
    return true;
}

static void join_loops(ap_low_nest *n)
{
    for (int l = n->nloops - 2; l >= 0 && !n->unjoined; l--) {
        if (!can_join(n, l))
            continue;
        n->count[l + 1] = ap_low_count_times(&n->count[l], n->extent[l + 1]);
        n->extent[l + 1] *= n->extent[l];
        remove_loop(n, l);
    }
}

static int count_inner(const ap_low_nest *n)
{
    int count = 0;
    for (int l = 0; l < n->nloops; l++)
        count += n->inner[l];
    return count;
}

static bool is_unit(const ap_low_nest *n, int l)
{
    return n->extent[l] == 1 && !ap_low_varies(&n->count[l]);
}

/* Loops of one turn go; a nest with an inner section keeps one inner loop. */
static void drop_unit_loops(ap_low_nest *n)
{
    bool has_section = false;
    for (int s = 0; s < n->nsections; s++)
        has_section = has_section || n->section_inner[s];
    for (int l = n->nloops - 1; l >= 0; l--) {
        if (is_unit(n, l) && (!n->inner[l] || count_inner(n) > 1 || !has_section))
            remove_loop(n, l);
    }
    if (has_section && count_inner(n) == 0)
        ap_low_nest_loop(n, 1, &(ap_int){0}, true);
    for (int l = 0; l < n->nloops; l++) {
        for (uint32_t i = 0; is_unit(n, l) && i < n->operands.len; i++)
            n->operands.at[i].stride[l] = 0;
        for (uint32_t i = 0; is_unit(n, l) && i < n->sops.len; i++)
            n->sops.at[i].loop_stride[l] = 0;
    }
}

static void fill_kernel(ap_low_nest *n, ap_kernel *k)
{
    ap_arena *arena = &n->low->ctx->arena;
    memset(k, 0, sizeof *k);
    k->kind = AP_KERNEL_NEST;
    k->noperands = n->operands.len;
    k->operand = AP_NEW_ARRAY(arena, ap_kernel_operand, n->operands.len);
    for (uint32_t i = 0; i < n->operands.len; i++) {
        k->operand[i].dtype = n->operands.at[i].dtype;
        k->operand[i].written = n->operands.at[i].written;
        memcpy(k->operand[i].stride, n->operands.at[i].stride, sizeof k->operand[i].stride);
    }
    ap_nest *nest = &k->nest;
    for (int l = 0; l < n->nloops; l++)
        nest->turns[l] = ap_low_varies(&n->count[l]) ? add_int(n, &n->count[l]) + 1 : 0;
    k->nints = n->ints.len;
    nest->ninner = (uint8_t)count_inner(n);
    nest->nouter = (uint8_t)(n->nloops - nest->ninner);
    memcpy(nest->extent, n->extent, (size_t)n->nloops * sizeof n->extent[0]);
    nest->nsections = n->nsections;
    memcpy(nest->inner, n->section_inner, sizeof nest->inner);
    nest->ntemps = n->ntemps;
    memcpy(nest->temp_dtype, n->temp_dtype, sizeof nest->temp_dtype);
    if (n->topk) {
        k->kind = AP_KERNEL_TOPK;
        k->topk = *n->topk;
    }
    nest->nsops = n->sops.len;
    nest->sop = ap_arena_memdup(arena, n->sops.at, n->sops.len * sizeof *n->sops.at);
}

ap_status ap_low_nest_finish(ap_low_nest *n, const ap_low_call *call)
{
    for (int l = 0; l < n->nloops; l++) {
        if (!n->inner[l] && n->extent[l] == 0)
            return AP_OK;
    }
    if (section_is_empty(n))
        n->nsections--;
    drop_unit_loops(n);
    order_loops(n);
    join_loops(n);
    ap_kernel k;
    uint32_t kernel;
    fill_kernel(n, &k);
    AP_TRY(ap_low_kernel(n->low, &k, call, &kernel));
    ap_ref *ref = AP_NEW_ARRAY(n->low->scratch, ap_ref, n->operands.len);
    for (uint32_t i = 0; i < n->operands.len; i++)
        ref[i] = n->operands.at[i].ref;
    ap_low_call_append(n->low, kernel, call, n->operands.len, ref, n->ints.len, n->ints.at);
    return AP_OK;
}

/* ---- small nests ---- */

static void open_loops(ap_low *low, ap_low_nest *nest, int n, const int64_t *extent, const ap_int *count)
{
    ap_low_nest_init(low, nest);
    for (int f = 0; f < n; f++)
        ap_low_nest_loop(nest, extent[f], &count[f], false);
    ap_low_nest_section(nest, false);
}

ap_status ap_low_copy(ap_low *low, ap_dtype dtype, int n, const int64_t *extent, const ap_int *count,
                      const ap_low_place *src, const ap_low_place *dst, const ap_low_call *call)
{
    ap_low_nest nest;
    open_loops(low, &nest, n, extent, count);
    uint32_t x = ap_low_nest_load(&nest, &src->ref, dtype, src->stride);
    ap_low_nest_store(&nest, &dst->ref, dtype, dst->stride, x);
    return ap_low_nest_finish(&nest, call);
}

ap_status ap_low_fill(ap_low *low, ap_value v, int n, const int64_t *extent, const ap_int *count,
                      const ap_low_place *dst, const ap_low_call *call)
{
    const ap_low_value *root = &low->value[ap_low_root(low, v)];
    ap_dtype dtype = ap_type_dtype(low->ctx, ap_value_type(low->m, v));
    const int64_t still[AP_MAX_LOOPS] = {0};
    ap_low_place src;
    if (root->source != AP_LOW_SPLAT)
        AP_TRY(ap_low_place_of(low, v, &src));
    ap_low_nest nest;
    open_loops(low, &nest, n, extent, count);
    uint32_t x = root->source == AP_LOW_SPLAT ? ap_low_nest_const(&nest, dtype, root->splat)
                                              : ap_low_nest_load(&nest, &src.ref, dtype, still);
    ap_low_nest_store(&nest, &dst->ref, dtype, dst->stride, x);
    return ap_low_nest_finish(&nest, call);
}

ap_status ap_low_iota(ap_low *low, ap_value root, const ap_low_place *dst, const ap_low_call *call)
{
    const ap_low_value *lv = &low->value[root];
    int8_t loops[AP_MAX_FACTORS];
    ap_low_nest nest;
    open_loops(low, &nest, lv->nfactors, lv->extent, lv->count);
    for (int f = 0; f < AP_MAX_FACTORS; f++)
        loops[f] = (int8_t)f;
    uint32_t x = ap_low_nest_iota(&nest, root, loops);
    ap_low_nest_store(&nest, &dst->ref, ap_type_dtype(low->ctx, ap_value_type(low->m, root)), dst->stride, x);
    return ap_low_nest_finish(&nest, call);
}
