/* The passes: IR to IR, one file and one function each; passes/pipeline.c puts them in order.
 * Each header comment of a pass states what it needs, keeps and breaks. */
#ifndef AP_PASSES_PASS_H
#define AP_PASSES_PASS_H

#include "ir/local.h"
#include "ir/module.h"

typedef ap_status ap_pass_fn(ap_ctx *ctx, ap_module *m);

/* imported -> imported: identities vanish, equal nodes are shared, dead nodes go. */
ap_pass_fn ap_pass_fold;
/* imported -> imported: products that are cut into unequal parts become one product per part, on a part of the
 * parameter. */
ap_pass_fn ap_pass_slices;
/* imported -> normal: cuts factors so that reshapes become views (DESIGN §5). */
ap_pass_fn ap_pass_refine;
/* normal -> normal: views of views become one; contractions read and write through views. */
ap_pass_fn ap_pass_views;
/* normal -> normal: sums over what was looked up become one composite with the lookup. */
ap_pass_fn ap_pass_embed;
/* normal -> normal: pointwise and row-reduction nodes become composites: softmax, layernorm, gelu, ... */
ap_pass_fn ap_pass_rows;
/* planned -> explicit: reshards become elementary steps. */
ap_pass_fn ap_pass_explicit;

/* What the kernels of a target take: the ways in which local programs differ by target, all of them. */
typedef struct ap_lower_options {
    bool panels;       /* parameters of products lie in panels (AP_STORE_PANELS) */
    bool prepared;     /* weights of convolutions are gone when all is prepared (AP_STORE_PREPARED) */
    uint32_t products; /* of which types matrix products are made by a library: bit 1 << ap_dtype. Other types, and
                          16-bit floats where loops around the product are summed too, are loop nests */
    bool limited;      /* the arena should hold no more than: */
    int64_t limit;     /* what was planned. Where fused kernels need more, less is fused (local_thrift.c) */
} ap_lower_options;
static inline ap_lower_options ap_lower_cpu(void)
{
    return (ap_lower_options){.panels = true, .prepared = true, .products = 1u << AP_F32 | 1u << AP_F64};
}
/* cuBLASLt reads weights as they are, cuDNN wants an order of its own; 16-bit floats are multiplied with sums in f32.
 */
static inline ap_lower_options ap_lower_cuda(void)
{
    return (ap_lower_options){.prepared = true, .products = 1u << AP_F32 | 1u << AP_F64 | 1u << AP_F16 | 1u << AP_BF16};
}

/* explicit -> local. */
ap_status ap_lower_local_for(ap_ctx *ctx, ap_module *m, const char *name, const ap_lower_options *opt, ap_local **out);
ap_status ap_lower_local(ap_ctx *ctx, ap_module *m, const char *name, ap_local **out); /* for the CPU */

/* Called after every pass; used by test builds to verify and evaluate (passes/check.c). */
typedef struct ap_pass_hook {
    ap_status (*after)(void *user, ap_ctx *ctx, const char *pass, ap_module *m);
    void *user;
} ap_pass_hook;
/* What `compile` and `plan` run between import and planning. */
#define AP_PASSES_NORMAL "fold,slices,refine,views,embed,rows"
/* Runs "fold,refine" or the like; unknown names are AP_ERR_USAGE. */
ap_status ap_passes_run(ap_ctx *ctx, ap_module *m, const char *list, const ap_pass_hook *hook);

#endif
