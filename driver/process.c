/* Child processes, installed files, temporary folders. */
#include "driver/process.h"

#include "ir/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* In the child: `path` takes the place of a stream; NULL: it stays. */
static void redirect(const char *path, int stream)
{
    int fd = path ? open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666) : -1;
    if (fd >= 0)
        dup2(fd, stream);
}

static void child(const char *const *argv, const char *out, const char *err)
{
    redirect(out, STDOUT_FILENO);
    redirect(err, STDERR_FILENO);
    execv(argv[0], (char *const *)(uintptr_t)argv);
    _exit(127);
}

ap_status ap_process_run(ap_ctx *ctx, const char *const *argv, bool quiet, int *out_code)
{
    return ap_process_run_to(ctx, argv, quiet ? "/dev/null" : NULL, NULL, out_code);
}

ap_status ap_process_run_to(ap_ctx *ctx, const char *const *argv, const char *out, const char *err, int *out_code)
{
    if (access(argv[0], X_OK) != 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot be run: %s", argv[0], strerror(errno));
    fflush(stdout);
    fflush(stderr);
    pid_t pid = fork();
    if (pid < 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "cannot start a process: %s", strerror(errno));
    if (pid == 0)
        child(argv, out, err);
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return ap_fail(ctx, AP_ERR_ENV, 0, "waiting for %s: %s", argv[0], strerror(errno));
    *out_code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    return AP_OK;
}

ap_status ap_find_runtime(ap_ctx *ctx, const char **out_include, const char **out_lib)
{
    char path[4096];
    ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    if (n <= 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "cannot find where autopar itself is: %s", strerror(errno));
    path[n] = 0;
    for (int up = 0; up < 2; up++) { /* .../bin/autopar -> ... */
        char *slash = strrchr(path, '/');
        if (slash)
            *slash = 0;
    }
    static const char *const libs[] = {"lib", AP_LIBDIR};
    *out_include = ap_name_str(ctx, ap_name_format(ctx, "%s/include", path));
    const char *header = ap_name_str(ctx, ap_name_format(ctx, "%s/autopar_rt.h", *out_include));
    for (size_t i = 0; i < sizeof libs / sizeof *libs; i++) {
        *out_lib = ap_name_str(ctx, ap_name_format(ctx, "%s/%s", path, libs[i]));
        const char *archive = ap_name_str(ctx, ap_name_format(ctx, "%s/libautopar_rt.a", *out_lib));
        if (access(header, R_OK) == 0 && access(archive, R_OK) == 0)
            return AP_OK;
    }
    return ap_fail(ctx, AP_ERR_ENV, 0, "the runtime (include/autopar_rt.h, lib/libautopar_rt.a) is not in %s", path);
}

ap_status ap_temp_dir(ap_ctx *ctx, const char **out)
{
    const char *tmp = getenv("TMPDIR");
    char *path = ap_arena_strdup(
        &ctx->arena, ap_name_str(ctx, ap_name_format(ctx, "%s/autopar-XXXXXX", tmp && *tmp ? tmp : "/tmp")));
    ap_dir_hold *hold = ap_dir_hold_make(ctx);
    if (!mkdtemp(path))
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot make a temporary folder: %s", path, strerror(errno));
    *out = hold->path = path;
    return AP_OK;
}
