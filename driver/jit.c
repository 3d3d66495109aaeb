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

ap_status ap_jit_open(ap_ctx *ctx, const char *march, const ap_program *p, const char *name, ap_jit **out)
{
    return ap_llvm_jit_open(ctx, p, name, march, out);
}

ap_status ap_jit_run(const ap_jit *jit, int argc, const char *const *argv, bool quiet)
{
    aprt_options options = {0};
    options.source = ap_llvm_jit_weights(jit, &options.nsources);
    char **args = (char **)(uintptr_t)argv;
    const aprt_program *program = ap_llvm_jit_program(jit);
    return (ap_status)(quiet ? run_quietly(argc, args, program, &options)
                             : aprt_main_with(argc, args, program, &options));
}

void ap_jit_close(ap_jit *jit)
{
    ap_llvm_jit_close(jit);
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

ap_status ap_jit_open(ap_ctx *ctx, const char *march, const ap_program *p, const char *name, ap_jit **out)
{
    (void)march;
    (void)p;
    (void)name;
    *out = NULL;
    return is_missing(ctx);
}

/* Without one that is open nothing calls these. */
ap_status ap_jit_run(const ap_jit *jit, int argc, const char *const *argv, bool quiet)
{
    (void)jit;
    (void)argc;
    (void)argv;
    (void)quiet;
    return AP_ERR_BUG;
}

void ap_jit_close(ap_jit *jit)
{
    (void)jit;
}

ap_status ap_jit_emit(ap_ctx *ctx, const ap_options *opt, const ap_program *p, const ap_backend_options *backend)
{
    (void)opt;
    (void)p;
    (void)backend;
    return is_missing(ctx);
}

#endif
