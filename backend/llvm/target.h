/* From a module to machine code. */
#ifndef AP_BACKEND_LLVM_TARGET_H
#define AP_BACKEND_LLVM_TARGET_H

#include "backend/llvm/build.h"

#include <llvm-c/TargetMachine.h>

/* For `march` (NULL: this processor). AP_ERR_USAGE: it is not known. */
ap_status ap_ll_machine(ap_ctx *ctx, const char *march, LLVMTargetMachineRef *out);
/* A module for that machine, with nothing in it yet. */
void ap_ll_begin(ap_ll *b, const ap_emit *e, const char *name, LLVMTargetMachineRef machine);
/* Turns an LLVM message into ours and frees it. */
ap_status ap_ll_fail(ap_ctx *ctx, ap_status status, const char *what, char *message);

/* A module that becomes an object. Modules of unlike contexts may be compiled at the same time, each with a machine of
 * its own: nothing else is touched. */
typedef struct ap_ll_unit {
    ap_ll b; /* released when it is compiled */
    LLVMTargetMachineRef machine;
    LLVMMemoryBufferRef object; /* what comes of it, to be disposed of; NULL: it failed, or was not compiled */
    const char *what;           /* NULL, or what went wrong, in words; `message` to be disposed of */
    char *message;
} ap_ll_unit;
/* Optimises what is in the module and makes machine code of it. */
void ap_ll_compile(ap_ll_unit *u);
/* All of them, on as many threads as there are processors. */
void ap_ll_compile_all(ap_ll_unit *unit, uint32_t n);
/* AP_OK, or what went wrong. */
ap_status ap_ll_unit_status(ap_ctx *ctx, ap_ll_unit *u);

#endif
