/* What test builds do after every pass: verify, and evaluate on the same inputs as before. */
#ifndef AP_PASSES_CHECK_H
#define AP_PASSES_CHECK_H

#include "ir/pipeline.h"
#include "ir/program.h"
#include "ir/tensor.h"
#include "passes/pass.h"

typedef struct ap_check {
    ap_arena arena;    /* of inputs and reference outputs */
    ap_tensor *input;  /* of the module's only function */
    ap_tensor *output; /* before the first pass */
    uint32_t ninputs, noutputs;
    double tolerance; /* largest |a-b| over the output's scale */
} ap_check;

/* Draws inputs for the function (floats normal with a fixed seed; integers 0 or 1, so that they can index any table;
 * all 0 where an index may not be 1) and evaluates it. `input` may be given by the caller instead (NULL: draw). */
ap_status ap_check_init(ap_ctx *ctx, ap_module *m, const ap_tensor *input, ap_check *out);
void ap_check_deinit(ap_check *c);

/* ap_pass_hook.after with an ap_check as user: AP_ERR_BUG naming the pass when the module does not verify or its
 * outputs moved. */
ap_status ap_check_after(void *user, ap_ctx *ctx, const char *pass, ap_module *m);
ap_status ap_check_local(ap_check *c, ap_ctx *ctx, ap_local *p);
/* The same of pipelines and programs with the module's inputs and outputs. */
ap_status ap_check_pipeline(ap_check *c, ap_ctx *ctx, const char *pass, ap_pipeline *p);
ap_status ap_check_program(ap_check *c, ap_ctx *ctx, ap_program *p);

#endif
