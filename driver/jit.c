#include "driver/jit.h"

#ifdef AP_HAS_LLVM
#include "backend/llvm/llvm.h"

#include <autopar_rt.h>
#include <fcntl.h>
#include <unistd.h>

bool ap_jit_is_there(void)
{
    return true;
}

/* Standard output goes nowhere while it runs. */
static int run_quietly(int argc, char **argv, const aprt_program *program, const aprt_options *options)
{
    fflush(stdout);
    int kept = dup(STDOUT_FILENO), nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0)
        dup2(nowhere, STDOUT_FILENO);
    int code = aprt_main_with(argc, argv, program, options);
    fflush(stdout);
    if (kept >= 0)
        dup2(kept, STDOUT_FILENO);
    close(kept);
    close(nowhere);
    return code;
}

ap_status ap_jit_run(ap_ctx *ctx, const ap_options *opt, const ap_program *p, const char *name, int argc,
                     const char *const *argv, bool quiet)
{
    ap_llvm_jit *jit;
    AP_TRY(ap_llvm_jit_open(ctx, p, name, opt->march, &jit));
    ap_arena_reset(&ctx->scratch);
    aprt_options options = {0};
    options.source = ap_llvm_jit_weights(jit, &options.nsources);
    char **args = (char **)(uintptr_t)argv;
    const aprt_program *program = ap_llvm_jit_program(jit);
    int code = quiet ? run_quietly(argc, args, program, &options) : aprt_main_with(argc, args, program, &options);
    ap_llvm_jit_close(jit);
    return (ap_status)code; /* the program has told why */
}

ap_status ap_jit_emit(ap_ctx *ctx, const ap_options *opt, const ap_program *p, const ap_backend_options *backend)
{
    return ap_backend_llvm_emit(ctx, p, backend, opt->march);
}

#else

bool ap_jit_is_there(void)
{
    return false;
}

static ap_status is_missing(ap_ctx *ctx)
{
    return ap_fail(ctx, AP_ERR_USAGE, 0, "--codegen: this build has no LLVM; 'c' is there");
}

ap_status ap_jit_run(ap_ctx *ctx, const ap_options *opt, const ap_program *p, const char *name, int argc,
                     const char *const *argv, bool quiet)
{
    (void)opt;
    (void)p;
    (void)name;
    (void)argc;
    (void)argv;
    (void)quiet;
    return is_missing(ctx);
}

ap_status ap_jit_emit(ap_ctx *ctx, const ap_options *opt, const ap_program *p, const ap_backend_options *backend)
{
    (void)opt;
    (void)p;
    (void)backend;
    return is_missing(ctx);
}

#endif
