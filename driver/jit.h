/* Models that run in this process, compiled by LLVM; only where it is built in (AP_HAS_LLVM). */
#ifndef AP_DRIVER_JIT_H
#define AP_DRIVER_JIT_H

#include "driver/job.h"

/* Is it built in? */
bool ap_jit_is_there(void);
/* The program as machine code of this process; `march`: NULL is this processor. As long as the context is there. */
typedef struct ap_llvm_jit ap_jit; /* of backend/llvm/llvm.h, which is not there everywhere */
ap_status ap_jit_open(ap_ctx *ctx, const char *march, const ap_program *p, const char *name, ap_jit **out);
/* Runs it with the arguments that DIR/model takes, any number of times; `quiet`: what it prints on standard output is
 * dropped. The program has told why when it fails. */
ap_status ap_jit_run(const ap_jit *jit, int argc, const char *const *argv, bool quiet);
void ap_jit_close(ap_jit *jit);
/* --codegen llvm of compile: ap_backend_llvm_emit. */
ap_status ap_jit_emit(ap_ctx *ctx, const ap_options *opt, const ap_program *p, const ap_backend_options *backend);

#endif
