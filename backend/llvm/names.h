/* Names of what code and tables share. */
#ifndef AP_BACKEND_LLVM_NAMES_H
#define AP_BACKEND_LLVM_NAMES_H

#include "backend/emit.h"

/* "NAME_k_softmax": a function; of a convolution its table */
const char *ap_ll_kernel_name(const ap_emit *e, const ap_kernel *k);
enum { AP_LL_RUN, AP_LL_LIST, AP_LL_PREPARE, AP_LL_FUNCTIONS };
/* "NAME_do_stage0_run" ... of the stage that e has turned to, and "NAME_stage0_exchanges", the table of them */
const char *ap_ll_stage_function(const ap_emit *e, int which);
const char *ap_ll_exchanges(const ap_emit *e);

#endif
