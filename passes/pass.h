/* The passes: IR to IR, one file and one function each; passes/pipeline.c puts them in order.
 * Each header comment of a pass states what it needs, keeps and breaks. */
#ifndef AP_PASSES_PASS_H
#define AP_PASSES_PASS_H

#include "ir/local.h"
#include "ir/module.h"

typedef ap_status ap_pass_fn(ap_ctx *ctx, ap_module *m);

/* imported -> imported: nodes whose operands are all constants, small ones only, become constants; identities and
 * views of views vanish; equal nodes are shared (common subexpressions); dead nodes go. */
ap_pass_fn ap_pass_fold;
/* imported -> imported: softmax, layernorm, gelu and the like, as exporters decompose them, become composites. */
ap_pass_fn ap_pass_match;
/* imported -> normal: cuts factors so that reshapes become views (DESIGN §5). */
ap_pass_fn ap_pass_refine;
/* planned -> explicit: reshards become elementary steps. */
ap_pass_fn ap_pass_explicit;

/* explicit -> local. */
ap_status ap_lower_local(ap_ctx *ctx, ap_module *m, const char *name, ap_local **out);

/* Called after every pass; used by test builds to verify and evaluate (passes/check.c). */
typedef struct ap_pass_hook {
    ap_status (*after)(void *user, ap_ctx *ctx, const char *pass, ap_module *m);
    void *user;
} ap_pass_hook;
/* Runs "fold,match,refine" or the like; unknown names are AP_ERR_USAGE. */
ap_status ap_passes_run(ap_ctx *ctx, ap_module *m, const char *list, const ap_pass_hook *hook);

#endif
