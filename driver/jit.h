/* Models that run in this process, compiled by LLVM; only where it is built in (AP_HAS_LLVM). */
#ifndef AP_DRIVER_JIT_H
#define AP_DRIVER_JIT_H

#include "driver/job.h"

/* Is it built in? */
bool ap_jit_is_there(void);
/* Runs the program with the arguments that DIR/model takes; `quiet`: what it prints on standard output is dropped. */
ap_status ap_jit_run(ap_ctx *ctx, const ap_options *opt, const ap_program *p, const char *name, int argc,
                     const char *const *argv, bool quiet);
/* --codegen llvm of compile: ap_backend_llvm_emit. */
ap_status ap_jit_emit(ap_ctx *ctx, const ap_options *opt, const ap_program *p, const ap_backend_options *backend);

#endif
