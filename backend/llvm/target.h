/* From a module to machine code. */
#ifndef AP_BACKEND_LLVM_TARGET_H
#define AP_BACKEND_LLVM_TARGET_H

#include "backend/llvm/build.h"

#include <llvm-c/TargetMachine.h>

/* For `march` (NULL: this processor). AP_ERR_USAGE: it is not known. */
ap_status ap_ll_machine(ap_ctx *ctx, const char *march, LLVMTargetMachineRef *out);
/* A module for that machine, with nothing in it yet. */
void ap_ll_begin(ap_ll *b, const ap_emit *e, const char *name, LLVMTargetMachineRef machine);
/* Optimises what is in the module. */
ap_status ap_ll_optimise(ap_ll *b, LLVMTargetMachineRef machine);
/* Turns an LLVM message into ours and frees it. */
ap_status ap_ll_fail(ap_ctx *ctx, ap_status status, const char *what, char *message);

#endif
