/* autopar: arguments in, exit code out. Every diagnostic is printed here and nowhere else. */
#include "driver/commands.h"

#include "driver/json.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef AP_HAS_MPI
#define AP_MPI_TEXT ", mpi"
#else
#define AP_MPI_TEXT ""
#endif

#ifdef AP_HAS_LLVM
#define AP_LLVM_TEXT ", llvm"
#define AP_LLVM_LIBRARY ", LLVM"
#else
#define AP_LLVM_TEXT ""
#define AP_LLVM_LIBRARY ""
#endif

#ifdef AP_HAS_CUDA
#define AP_CUDA_TEXT ", cuda"
#define AP_NCCL_TEXT ", nccl"
#else
#define AP_CUDA_TEXT ""
#define AP_NCCL_TEXT ""
#endif

static void print_version(void)
{
    printf("autopar %s\ntargets: cpu" AP_CUDA_TEXT "; code generators: c" AP_LLVM_TEXT
           "; communicators: local" AP_MPI_TEXT AP_NCCL_TEXT "\nlibraries: protobuf-c, GLPK, "
           "cJSON, xxHash, libyaml, zlib" AP_LLVM_LIBRARY "\n",
           AP_VERSION);
}

static ap_status run(ap_ctx *ctx, int argc, char **argv)
{
    static ap_status (*const commands[AP_CMD_COUNT])(ap_ctx *, const ap_options *) = {
        [AP_CMD_COMPILE] = ap_cmd_compile,   [AP_CMD_PLAN] = ap_cmd_plan,       [AP_CMD_RUN] = ap_cmd_run,
        [AP_CMD_CHECK] = ap_cmd_check,       [AP_CMD_DUMP] = ap_cmd_dump,       [AP_CMD_INFO] = ap_cmd_info,
        [AP_CMD_OPS] = ap_cmd_ops,           [AP_CMD_SOLVE] = ap_cmd_solve,     [AP_CMD_HELP] = ap_cmd_help,
        [AP_CMD_SIMULATE] = ap_cmd_simulate, [AP_CMD_PROFILE] = ap_cmd_profile,
    };
    ap_options opt;
    AP_TRY(ap_options_parse(ctx, argc, argv, &opt));
    if (opt.version) {
        print_version();
        return AP_OK;
    }
    if (opt.help) {
        ap_help_print(stdout, argc > 1 && argv[1][0] == '-' ? AP_CMD_COUNT : opt.command);
        return AP_OK;
    }
    return commands[opt.command](ctx, &opt);
}

/* Apart from main, so that no local of the caller of setjmp changes after it. */
static ap_status run_guarded(ap_ctx *ctx, int argc, char **argv)
{
    jmp_buf out_of_memory;
    if (setjmp(*ap_ctx_guard(ctx, &out_of_memory)) != 0) {
        fputs("autopar: out of memory\n", stderr);
        return AP_ERR_ENV;
    }
    ap_json_use(ctx);
    ap_status s = run(ctx, argc, argv);
    for (uint32_t i = 0; i < ctx->diags.len; i++)
        fprintf(stderr, "autopar: %s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
    return s;
}

/* A standard stream that was closed would be the number of the first file that is opened. What stands in for standard
 * output cannot be written, so that output does not vanish. */
static void hold_standard_streams(void)
{
    for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
        if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", fd == STDERR_FILENO ? O_WRONLY : O_RDONLY) < 0)
            return;
}

int main(int argc, char **argv)
{
    hold_standard_streams();
    signal(SIGXFSZ, SIG_IGN); /* a file that may grow no further is an error of write like a full disk */
    ap_ctx *ctx = ap_ctx_create();
    if (!ctx) {
        fputs("autopar: out of memory\n", stderr);
        return AP_ERR_ENV;
    }
    ap_status s = run_guarded(ctx, argc, argv);
    ctx->on_oom = NULL;
    ap_json_use(NULL);
    bool lost = fflush(stdout) != 0 || ferror(stdout); /* the last write may be well when an earlier one was not */
    if (lost && s == AP_OK) {
        fputs("autopar: cannot write to standard output\n", stderr);
        s = AP_ERR_ENV;
    }
    ap_ctx_release(ctx);
    return (int)s;
}
