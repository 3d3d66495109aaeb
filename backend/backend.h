/* A program -> files of a folder (DESIGN §2, DIR). Reads ir/program.h and ir/local.h only. */
#ifndef AP_BACKEND_BACKEND_H
#define AP_BACKEND_BACKEND_H

#include "ir/program.h"

enum { AP_PROGRAM_MAX_DEVICES = 256 }; /* as the runtime has it: APRT_MAX_RANKS */

/* Where a program finds its parameters (backend/weights.c). */
typedef enum ap_weights_form { AP_WEIGHTS_COPY, AP_WEIGHTS_REFERENCE, AP_WEIGHTS_SLICED } ap_weights_form;

/* What the devices of a stage are. */
typedef enum ap_target { AP_TARGET_CPU, AP_TARGET_CUDA, AP_TARGET_COUNT } ap_target;

typedef struct ap_backend_options {
    const char *dir;    /* an existing folder to write into */
    const char *name;   /* NAME: a C identifier, prefix of the API */
    const char *header; /* text for the comment at the top: model, options, version */
    ap_weights_form weights;
    const ap_target *target; /* per stage; NULL: CPUs. Kernels of stages for unlike targets have unlike names */
} ap_backend_options;

/* Writes NAME.h, program.c, kernels.h, kernels.c (stages on GPUs: kernels.cu; if both are there, kernels_cuda.h),
 * main.c, weights.safetensors and what belongs to it, CMakeLists.txt, NAME.pc. */
ap_status ap_backend_c_emit(ap_ctx *ctx, const ap_program *p, const ap_backend_options *opt);

typedef struct ap_backend_toolchain {
    const char *include_dir; /* of autopar_rt.h */
    const char *lib_dir;     /* of libautopar_rt.a */
    const char *march;       /* NULL: native */
    const char *gpu;         /* sm_90, ...: machine code for this GPU alone; NULL: for all that are usual */
    bool convolutions;       /* of the program: ap_backend_has_conv */
    bool objects;            /* kernels.o, program.o and main.o are in the folder: they are only linked, and stay */
    bool cuda, cuda_only;    /* of the program: has stages on GPUs, and no others */
} ap_backend_toolchain;

/* Whether the program is linked with the library for convolutions on CPUs; whether it has stages for a target. */
bool ap_backend_has_conv(const ap_program *p, const ap_target *target);
bool ap_backend_has_target(const ap_program *p, const ap_target *target, ap_target t);
/* Folder of the toolkit of CUDA: $CUDA_HOME, $CUDA_PATH, where nvcc lies in $PATH, /usr/local/cuda; NULL if there is no
 * nvcc in any. */
const char *ap_backend_cuda_home(ap_ctx *ctx);

/* Compiles what ap_backend_c_emit wrote: DIR/model and DIR/libNAME.a. The compiler is $CC or cc, the archiver $AR or
 * ar; $CC may hold several words. Its messages are shown only when it fails: AP_ERR_ENV. */
ap_status ap_backend_c_build(ap_ctx *ctx, const char *dir, const char *name, const ap_backend_toolchain *tools);

#endif
