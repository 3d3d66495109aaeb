/* Contexts, messages and files of the fuzz targets. */
#include "fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define LIMIT ((size_t)256 << 20)

static char folder[64], path[128];

_Noreturn void fuzz_stop(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    abort();
}

static void check_messages(ap_ctx *ctx, ap_status s)
{
    if (s != AP_OK && s != AP_ERR_MODEL && s != AP_ERR_USAGE && s != AP_ERR_NO_PLAN && s != AP_ERR_ENV) {
        for (uint32_t i = 0; i < ctx->diags.len; i++)
            fprintf(stderr, "%s\n", ap_diag_str(ctx, &ctx->diags.at[i]));
        fuzz_stop(__FILE__, __LINE__, "a bug of ours is reported");
    }
    fuzz_check(s == AP_OK || ctx->diags.len > 0, "a failure without a message");
    for (uint32_t i = 0; i < ctx->diags.len; i++) {
        const char *line = ap_diag_str(ctx, &ctx->diags.at[i]);
        fuzz_check(*line && !strchr(line, '\n'), "a message that is not one line");
    }
}

static void run_guarded(ap_ctx *ctx, fuzz_body *body, const uint8_t *data, size_t size)
{
    jmp_buf out_of_memory;
    if (setjmp(*ap_ctx_guard(ctx, &out_of_memory)) != 0)
        fuzz_stop(__FILE__, __LINE__, "more than 256 MB are wanted");
    check_messages(ctx, body(ctx, data, size));
    ctx->on_oom = NULL;
}

int fuzz_run(fuzz_body *body, const uint8_t *data, size_t size)
{
    ap_ctx *ctx = ap_ctx_create();
    fuzz_check(ctx, "no context");
    ctx->root.limit = LIMIT;
    run_guarded(ctx, body, data, size);
    ap_ctx_release(ctx);
    return 0;
}

static void remove_folder(void)
{
    unlink(path);
    rmdir(folder);
}

const char *fuzz_file(const char *name, const uint8_t *data, size_t size)
{
    if (!*folder) {
        bool shm = access("/dev/shm", W_OK) == 0;
        snprintf(folder, sizeof folder, "%s/autopar-fuzz-XXXXXX", shm ? "/dev/shm" : "/tmp");
        fuzz_check(mkdtemp(folder), "no folder for files");
        snprintf(path, sizeof path, "%s/%s", folder, name);
        atexit(remove_folder);
    }
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    fuzz_check(fd >= 0 && write(fd, data, size) == (ssize_t)size, "the file cannot be written");
    close(fd);
    return path;
}
