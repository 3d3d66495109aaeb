/* A local program -> files of a folder (DESIGN §2, DIR). Reads ir/local.h only. */
#ifndef AP_BACKEND_BACKEND_H
#define AP_BACKEND_BACKEND_H

#include "ir/local.h"

typedef struct ap_backend_options {
    const char *dir;    /* an existing folder to write into */
    const char *name;   /* NAME: a C identifier, prefix of the API */
    const char *header; /* text for the comment at the top: model, options, version */
} ap_backend_options;

/* Writes NAME.h, program.c, kernels.c, main.c, weights.safetensors, CMakeLists.txt, NAME.pc. */
ap_status ap_backend_c_emit(ap_ctx *ctx, const ap_local *p, const ap_backend_options *opt);

#endif
