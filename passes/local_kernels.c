/* Kernels, one per signature: two calls share a kernel when it is the same to the last stride, so twelve equal layers
 * emit one. Also the text above a kernel and the calls themselves. */
#include "passes/local.h"

#include "ir/local_text.h"
#include "ir/text_form.h"

#include <ctype.h>
#include <string.h>

/* ---- signatures ---- */

static void put(ap_text *t, const void *p, size_t n)
{
    ap_text_add_n(t, p, n);
}

static void put_int(ap_text *t, int64_t x)
{
    put(t, &x, sizeof x);
}

static void put_ints(ap_text *t, const int64_t *x, size_t n)
{
    put(t, x, n * sizeof *x);
}

static void put_nest(ap_text *t, const ap_nest *n)
{
    put_int(t, n->nouter);
    put_int(t, n->ninner);
    put_ints(t, n->extent, AP_MAX_LOOPS);
    put(t, n->turns, sizeof n->turns);
    put_int(t, n->nsections);
    for (int i = 0; i < n->nsections; i++)
        put_int(t, n->inner[i]);
    put_int(t, n->ntemps);
    for (int i = 0; i < n->ntemps; i++)
        put_int(t, n->temp_dtype[i]);
    for (uint32_t i = 0; i < n->nsops; i++) {
        const ap_sop *s = &n->sop[i];
        const int64_t head[] = {s->kind,   s->dtype,  s->section, s->operand, s->reduce, s->pw,   s->arg[0],
                                s->arg[1], s->arg[2], s->imm.i,   s->stride,  s->extent, s->limit};
        put_ints(t, head, sizeof head / sizeof head[0]);
        put_ints(t, s->loop_stride, AP_MAX_LOOPS);
    }
}

static void put_gemm(ap_text *t, const ap_gemm *g)
{
    put_int(t, g->dtype);
    put_int(t, g->panels);
    put_int(t, g->nloops);
    for (int l = 0; l < g->nloops; l++) {
        const int64_t loop[] = {g->extent[l], g->turns[l], g->stride_a[l], g->stride_b[l], g->stride_c[l], g->sum[l]};
        put_ints(t, loop, sizeof loop / sizeof loop[0]);
    }
    const int64_t tail[] = {g->m,   g->n,   g->k,   g->turns_m, g->turns_n, g->turns_k,
                            g->rsa, g->csa, g->rsb, g->csb,     g->rsc,     g->csc};
    put_ints(t, tail, sizeof tail / sizeof tail[0]);
}

static void put_pool(ap_text *t, const ap_pooling *p)
{
    put_int(t, p->kind);
    put_int(t, p->nloops);
    for (int l = 0; l < p->nloops; l++) {
        const int64_t loop[] = {p->extent[l], p->turns[l], p->from[l], p->to[l]};
        put_ints(t, loop, sizeof loop / sizeof loop[0]);
    }
    for (int d = 0; d < p->ndims; d++) {
        const ap_pool_dim *m = &p->dim[d];
        const int64_t dim[] = {m->extent,        m->count,           m->from,      m->to,       m->window.kernel,
                               m->window.stride, m->window.dilation, m->window.lo, m->window.hi};
        put_ints(t, dim, sizeof dim / sizeof dim[0]);
    }
}

static void put_topk(ap_text *t, const ap_topk *k)
{
    const int64_t all[] = {k->largest, k->n, k->k, k->stride[0], k->stride[1], k->stride[2]};
    put_ints(t, all, sizeof all / sizeof all[0]);
}

static void put_conv(ap_text *t, const ap_conv *c)
{
    const int64_t head[] = {c->dtype, c->nspatial, c->nsteps,  c->n,       c->g,      c->m,
                            c->c,     c->turns_n,  c->turns_g, c->turns_m, c->turns_c};
    put_ints(t, head, sizeof head / sizeof head[0]);
    put_ints(t, c->in, AP_MAX_SPATIAL);
    put_ints(t, c->kernel, AP_MAX_SPATIAL);
    for (int d = 0; d < c->nspatial; d++) {
        const ap_conv_dim *w = &c->dim[d];
        const int64_t dim[] = {w->lo, w->hi, w->stride, w->dilate, w->hole, w->flip};
        put_ints(t, dim, sizeof dim / sizeof dim[0]);
    }
    put_ints(t, c->x, AP_MAX_RANK);
    put_ints(t, c->w, AP_MAX_RANK);
    put_ints(t, c->y, AP_MAX_RANK);
    for (int i = 0; i < c->nsteps; i++) {
        const ap_conv_step *s = &c->step[i];
        const int64_t step[] = {s->pw, s->other, s->imm.i, s->operand};
        put_ints(t, step, sizeof step / sizeof step[0]);
        put_ints(t, s->stride, AP_MAX_RANK);
    }
}

static void put_kernel(ap_text *t, const ap_kernel *k)
{
    put_int(t, k->kind);
    put_int(t, k->nints);
    put_int(t, k->noperands);
    for (uint32_t i = 0; i < k->noperands; i++) {
        put_int(t, k->operand[i].dtype);
        put_int(t, k->operand[i].written);
        put_ints(t, k->operand[i].stride, AP_MAX_LOOPS);
    }
    if (ap_kernel_has_loops(k) || ap_kernel_has_epilogue(k))
        put_nest(t, &k->nest);
    if (k->kind == AP_KERNEL_TOPK)
        put_topk(t, &k->topk);
    else if (k->kind == AP_KERNEL_CONV)
        put_conv(t, &k->conv);
    else if (k->kind == AP_KERNEL_POOL)
        put_pool(t, &k->pool);
    else if (k->kind == AP_KERNEL_GEMM)
        put_gemm(t, &k->gemm);
}

static uint64_t hash_bytes(const char *s, size_t n)
{
    uint64_t h = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < n; i++)
        h = (h ^ (uint8_t)s[i]) * 1099511628211u;
    return h;
}

/* ---- names ---- */

static bool name_is_taken(const ap_low *low, ap_name name)
{
    for (uint32_t i = 0; i < low->p->kernels.len; i++) {
        if (low->p->kernels.at[i].name == name)
            return true;
    }
    return false;
}

/* A C identifier: `name`, or `name_2`, `name_3`, ... in order of first use. */
static ap_name fresh_name(ap_low *low, const char *name)
{
    ap_text t;
    ap_text_init(&t, low->scratch);
    if (!isalpha((unsigned char)name[0]))
        ap_text_add(&t, "k_");
    for (const char *s = name; *s; s++)
        ap_text_add_n(&t, isalnum((unsigned char)*s) ? s : "_", 1);
    ap_name n = ap_name_make(low->ctx, ap_text_str(&t));
    for (int i = 2; name_is_taken(low, n); i++)
        n = ap_name_format(low->ctx, "%s_%d", ap_text_str(&t), i);
    return n;
}

/* What stands above the kernel: the first node that uses it, then what it does. */
static const char *about_text(ap_low *low, const ap_low_call *call)
{
    ap_loc_info l = ap_loc_get(low->ctx, call->loc);
    ap_text t;
    ap_text_init(&t, &low->ctx->arena);
    if (l.node)
        ap_text_addf(&t, "%s", ap_name_str(low->ctx, l.node));
    if (l.node && l.op)
        ap_text_addf(&t, " (%s)", ap_name_str(low->ctx, l.op));
    ap_text_addf(&t, "%s%s", l.node ? ": " : "", call->about);
    return ap_text_str(&t);
}

ap_status ap_low_kernel(ap_low *low, const ap_kernel *k, const ap_low_call *call, uint32_t *out)
{
    ap_text key;
    ap_text_init(&key, low->scratch);
    put_kernel(&key, k);
    uint64_t hash = hash_bytes(key.s, key.len);
    for (uint32_t i = 0; i < low->p->kernels.len; i++) {
        if (low->kernel_hash.at[i] == hash && low->kernel_key_size.at[i] == key.len &&
            !memcmp(low->kernel_key.at[i], key.s, key.len)) {
            *out = i;
            return AP_OK;
        }
    }
    ap_kernel made = *k;
    made.name = fresh_name(low, call->name);
    made.about = about_text(low, call);
    ap_vec_push(low->scratch, &low->kernel_hash, hash);
    ap_vec_push(low->scratch, &low->kernel_key, key.s);
    ap_vec_push(low->scratch, &low->kernel_key_size, key.len);
    ap_vec_push(&low->ctx->arena, &low->p->kernels, made);
    *out = low->p->kernels.len - 1;
    return AP_OK;
}

/* ---- several stages ---- */

typedef struct shared {
    uint64_t hash;
    const char *key;
    size_t size;
    ap_name name;
    const char *about;
} shared;

typedef AP_VEC(shared) shared_list;

static bool shared_name_is_taken(const shared_list *all, ap_name name)
{
    for (uint32_t i = 0; i < all->len; i++)
        if (all->at[i].name == name)
            return true;
    return false;
}

/* The name without the number that told it apart in its own stage, and another one. */
static ap_name shared_name(ap_ctx *ctx, const shared_list *all, ap_name name)
{
    const char *s = ap_name_str(ctx, name);
    size_t n = strlen(s);
    while (n > 0 && isdigit((unsigned char)s[n - 1]))
        n--;
    if (n == 0 || n == strlen(s) || s[n - 1] != '_' || n == 1)
        n = strlen(s) + 1;
    ap_name free = name;
    for (int i = 2; shared_name_is_taken(all, free); i++)
        free = ap_name_format(ctx, "%.*s_%d", (int)(n - 1), s, i);
    return free;
}

void ap_low_share_kernels(ap_ctx *ctx, uint32_t nstages, ap_local *const *stage)
{
    shared_list all = {0};
    for (uint32_t s = 0; s < nstages; s++)
        for (uint32_t k = 0; k < stage[s]->kernels.len; k++) {
            ap_kernel *kernel = &stage[s]->kernels.at[k];
            ap_text key;
            ap_text_init(&key, &ctx->scratch);
            put_kernel(&key, kernel);
            shared made = {.hash = hash_bytes(key.s, key.len), .key = key.s, .size = key.len};
            uint32_t i = 0;
            while (i < all.len && (all.at[i].hash != made.hash || all.at[i].size != made.size ||
                                   memcmp(all.at[i].key, made.key, made.size) != 0))
                i++;
            if (i == all.len) {
                made.name = shared_name(ctx, &all, kernel->name);
                made.about = kernel->about;
                ap_vec_push(&ctx->scratch, &all, made);
            }
            kernel->name = all.at[i].name;
            kernel->about = all.at[i].about;
        }
}

void ap_low_call_append(ap_low *low, uint32_t kernel, const ap_low_call *call, uint32_t nrefs, const ap_ref *ref,
                        uint32_t nints, const ap_int *ints)
{
    ap_arena *arena = &low->ctx->arena;
    ap_instr in = {.kind = AP_INSTR_CALL, .when = call->when, .when_mask = call->when_mask, .loc = call->loc};
    in.kernel = kernel;
    in.nrefs = nrefs;
    in.ref = ap_arena_memdup(arena, ref, nrefs * sizeof *ref);
    in.nints = nints;
    in.ints = nints ? ap_arena_memdup(arena, ints, nints * sizeof *ints) : NULL;
    ap_vec_push(arena, &low->p->instrs, in);
}

const char *ap_low_about(ap_low *low, const ap_low_item *it)
{
    const ap_node_info *n = ap_node_at(low->m, it->node);
    ap_text t;
    ap_text_init(&t, low->scratch);
    ap_text_add(&t, ap_op_get(n->op)->name);
    if (it->kind == AP_LOW_CONTRACT) {
        char spec[AP_SPEC_STR_MAX];
        ap_spec_str(n->u.spec, spec);
        ap_text_addf(&t, " {%s}", spec);
    }
    for (uint32_t k = 0; k < n->nin; k++) {
        ap_text_add(&t, k ? ", " : ": ");
        ap_type_print(low->m, ap_value_type(low->m, n->in[k]), &t);
    }
    ap_text_add(&t, " -> ");
    ap_type_print(low->m, ap_value_type(low->m, n->out[0]), &t);
    return ap_text_str(&t);
}
