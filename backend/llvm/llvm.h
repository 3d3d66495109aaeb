/* A program through LLVM: machine code in this process, or object files, without a C compiler (DESIGN §10). Built where
 * LLVM 19.1 is found. */
#ifndef AP_BACKEND_LLVM_LLVM_H
#define AP_BACKEND_LLVM_LLVM_H

#include "backend/backend.h"

struct aprt_program;

/* The program as machine code for this processor, or for `march` (NULL: this one). It needs neither `p` nor the
 * context's scratch memory when it is there. AP_ERR_USAGE: LLVM does not know the processor. */
typedef struct ap_llvm_jit ap_llvm_jit;
ap_status ap_llvm_jit_open(ap_ctx *ctx, const ap_program *p, const char *name, const char *march, ap_llvm_jit **out);
const struct aprt_program *ap_llvm_jit_program(const ap_llvm_jit *jit);
void ap_llvm_jit_close(ap_llvm_jit *jit); /* NULL is ignored */

#endif
