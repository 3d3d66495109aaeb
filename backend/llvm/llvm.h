/* A program through LLVM: machine code in this process, or object files, without a C compiler (DESIGN §10). Built where
 * LLVM 19.1 is found. */
#ifndef AP_BACKEND_LLVM_LLVM_H
#define AP_BACKEND_LLVM_LLVM_H

#include "backend/backend.h"

struct aprt_program;
struct aprt_tensor_source;

/* The program as machine code for this processor, or for `march` (NULL: this one). It needs neither `p` nor the
 * context's scratch memory when it is there. AP_ERR_USAGE: LLVM does not know the processor. */
typedef struct ap_llvm_jit ap_llvm_jit;
ap_status ap_llvm_jit_open(ap_ctx *ctx, const ap_program *p, const char *name, const char *march, ap_llvm_jit **out);
const struct aprt_program *ap_llvm_jit_program(const ap_llvm_jit *jit);
/* The weights where they lie, for aprt_options; as long as the context is there. */
const struct aprt_tensor_source *ap_llvm_jit_weights(const ap_llvm_jit *jit, uint32_t *out_count);
void ap_llvm_jit_close(ap_llvm_jit *jit); /* NULL is ignored */

/* Writes NAME.h, kernels.o, program.o, main.o, weights, CMakeLists.txt, NAME.pc; ap_backend_c_build links them. */
ap_status ap_backend_llvm_emit(ap_ctx *ctx, const ap_program *p, const ap_backend_options *opt, const char *march);

#endif
