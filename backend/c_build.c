/* Compiling emitted code: the compiler is run directly, never through a shell. The files are compiled side by side. */
#include "backend/backend.h"
#include "backend/c_flags.h"
#include "ir/base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { LOG_SHOWN = 4000 };

typedef AP_VEC(char *) arguments;

typedef struct build {
    ap_ctx *ctx;
    const char *dir, *name;
    const ap_backend_toolchain *tools;
    const char *log;       /* what the compiler says, only shown when it fails */
    const char *cuda_home; /* NULL: no stages on GPUs */
} build;

static char *text(build *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
static char *text(build *b, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    int n = vsnprintf(NULL, 0, fmt, args);
    va_end(args);
    char *s = ap_arena_alloc(&b->ctx->scratch, (size_t)n + 1);
    va_start(args, fmt);
    vsnprintf(s, (size_t)n + 1, fmt, args);
    va_end(args);
    return s;
}

static void add(build *b, arguments *a, char *s)
{
    ap_vec_push(&b->ctx->scratch, a, s);
}

/* $NAME or the default, split at spaces: CC="ccache gcc" */
static void add_command(build *b, arguments *a, const char *variable, const char *otherwise)
{
    const char *value = getenv(variable), *s = value && *value ? value : otherwise;
    while (*s) {
        size_t n = strcspn(s, " \t");
        if (n)
            add(b, a, ap_arena_strndup(&b->ctx->scratch, s, n));
        s += n;
        s += *s != 0;
    }
}

static void add_flags(build *b, arguments *a)
{
#define X(flag) add(b, a, text(b, "%s", flag));
    AP_C_FLAGS(X)
#undef X
    add(b, a, text(b, "-march=%s", b->tools->march ? b->tools->march : "native"));
    add(b, a, text(b, "-I%s", b->tools->include_dir));
}

/* A build of autopar under sanitizers has a runtime that needs them. */
static void add_sanitizers(build *b, arguments *a)
{
#ifdef AP_SANITIZE_FLAGS
    add_command(b, a, "", AP_SANITIZE_FLAGS);
#else
    (void)b;
    (void)a;
#endif
}

/* The folder of the toolkit that this nvcc belongs to, or NULL. */
static const char *home_of(ap_ctx *ctx, const char *dir, size_t length, const char *below)
{
    ap_text t;
    ap_text_init(&t, &ctx->scratch);
    ap_text_add_n(&t, dir, length);
    ap_text_addf(&t, "%s/nvcc", below);
    char *real = length ? realpath(ap_text_str(&t), NULL) : NULL;
    const char *home = NULL;
    if (real && access(real, X_OK) == 0) {
        char *slash = strrchr(real, '/');
        *slash = 0;
        slash = strrchr(real, '/');
        home = ap_arena_strndup(&ctx->arena, real, slash ? (size_t)(slash - real) : 0);
    }
    free(real);
    return home;
}

const char *ap_backend_cuda_home(ap_ctx *ctx)
{
    static const char usual[] = "/usr/local/cuda";
    static const char *const named[] = {"CUDA_HOME", "CUDA_PATH"};
    const char *home = NULL;
    for (size_t i = 0; i < 2 && !home; i++) {
        const char *value = getenv(named[i]);
        home = value ? home_of(ctx, value, strlen(value), "/bin") : NULL;
    }
    for (const char *path = getenv("PATH"); path && *path && !home; path += path[0] == ':') {
        const size_t n = strcspn(path, ":");
        home = home_of(ctx, path, n, "");
        path += n;
    }
    return home ? home : home_of(ctx, usual, strlen(usual), "/bin");
}

static ap_status start(build *b, arguments *a, pid_t *out)
{
    posix_spawn_file_actions_t actions;
    add(b, a, NULL);
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_addopen(&actions, 1, b->log, O_WRONLY | O_CREAT | O_APPEND, 0666);
    posix_spawn_file_actions_adddup2(&actions, 1, 2);
    int error = posix_spawnp(out, a->at[0], &actions, NULL, a->at, environ);
    posix_spawn_file_actions_destroy(&actions);
    if (error)
        return ap_fail(b->ctx, AP_ERR_ENV, 0, "cannot run %s: %s", a->at[0], strerror(error));
    return AP_OK;
}

static const char *read_log(build *b)
{
    char *s = ap_arena_alloc(&b->ctx->arena, LOG_SHOWN + 1);
    int fd = open(b->log, O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? 0 : read(fd, s, LOG_SHOWN);
    if (fd >= 0)
        close(fd);
    n = n < 0 ? 0 : n;
    while (n > 0 && s[n - 1] == '\n')
        n--;
    s[n] = 0;
    return s;
}

static ap_status finish(build *b, pid_t pid, const char *what)
{
    int status;
    while (waitpid(pid, &status, 0) < 0)
        if (errno != EINTR)
            return ap_fail(b->ctx, AP_ERR_ENV, 0, "%s: lost the process: %s", what, strerror(errno));
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0)
        return AP_OK;
    return ap_fail_more(b->ctx, AP_ERR_ENV, read_log(b), "%s failed (%s %d):", what,
                        WIFEXITED(status) ? "exit code" : "signal",
                        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

static ap_status start_compile(build *b, const char *stem, pid_t *out)
{
    arguments a = {0};
    add_command(b, &a, "CC", "cc");
    add_flags(b, &a);
    add_sanitizers(b, &a);
    add(b, &a, text(b, "-c"));
    add(b, &a, text(b, "%s/%s.c", b->dir, stem));
    add(b, &a, text(b, "-o"));
    add(b, &a, text(b, "%s/%s.o", b->dir, stem));
    return start(b, &a, out);
}

static ap_status start_nvcc(build *b, pid_t *out)
{
    arguments a = {0};
    add(b, &a, text(b, "%s/bin/nvcc", b->cuda_home));
#define X(flag) add(b, &a, text(b, "%s", flag));
    AP_CUDA_FLAGS(X)
    if (b->tools->gpu) {
        add(b, &a, text(b, "-arch=%s", b->tools->gpu));
    } else {
        AP_CUDA_CODE(X)
    }
#undef X
    add(b, &a, text(b, "-I%s", b->tools->include_dir));
    add(b, &a, text(b, "-c"));
    add(b, &a, text(b, "%s/kernels.cu", b->dir));
    add(b, &a, text(b, "-o"));
    add(b, &a, text(b, "%s/kernels_cuda.o", b->dir));
    return start(b, &a, out);
}

static bool is_built(const build *b, int file)
{
    return file == 0 ? !b->tools->cuda_only : file == 3 ? b->cuda_home != NULL : true;
}

static ap_status compile_all(build *b)
{
    static const char *const files[] = {"kernels", "program", "main", "kernels.cu"};
    enum { N = sizeof files / sizeof *files };
    pid_t pid[N] = {0};
    ap_status status = AP_OK;
    for (int i = 0; i < N && status == AP_OK; i++)
        if (is_built(b, i)) {
            status = i == 3 ? start_nvcc(b, &pid[i]) : start_compile(b, files[i], &pid[i]);
            pid[i] = status == AP_OK ? pid[i] : 0;
        }
    for (int i = 0; i < N; i++) {
        if (pid[i] == 0)
            continue;
        ap_status s = finish(b, pid[i], text(b, "compiling %s%s", files[i], i == 3 ? "" : ".c"));
        status = status == AP_OK ? s : status;
    }
    return status;
}

static ap_status archive(build *b)
{
    arguments a = {0};
    pid_t pid;
    char *library = text(b, "%s/lib%s.a", b->dir, b->name);
    if (unlink(library) != 0 && errno != ENOENT)
        return ap_fail(b->ctx, AP_ERR_ENV, 0, "%s: %s", library, strerror(errno));
    add_command(b, &a, "AR", "ar");
    add(b, &a, text(b, "rcsD")); /* D: no times, same bytes */
    add(b, &a, library);
    add(b, &a, text(b, "%s/program.o", b->dir));
    if (is_built(b, 0))
        add(b, &a, text(b, "%s/kernels.o", b->dir));
    if (is_built(b, 3))
        add(b, &a, text(b, "%s/kernels_cuda.o", b->dir));
    AP_TRY(start(b, &a, &pid));
    return finish(b, pid, "making the library");
}

static ap_status link_model(build *b)
{
    arguments a = {0};
    pid_t pid;
    add_command(b, &a, "CC", "cc");
    add_sanitizers(b, &a);
    add(b, &a, text(b, "%s/main.o", b->dir));
    add(b, &a, text(b, "%s/lib%s.a", b->dir, b->name));
    add(b, &a, text(b, "-L%s", b->tools->lib_dir));
    /* where the runtime finds its plugin for MPI, when it is asked for */
    add(b, &a, text(b, "-Wl,-rpath,%s", b->tools->lib_dir));
#define X(library) add(b, &a, text(b, "%s", library));
    if (b->tools->convolutions) {
        AP_C_CONV_LIBRARIES(X)
    }
    if (b->cuda_home) {
        add(b, &a, text(b, "-L%s/lib64", b->cuda_home));
        add(b, &a, text(b, "-Wl,-rpath,%s/lib64", b->cuda_home));
        AP_CUDA_LIBRARIES(X)
    }
    AP_C_LIBRARIES(X)
#undef X
    add(b, &a, text(b, "-o"));
    add(b, &a, text(b, "%s/model", b->dir));
    AP_TRY(start(b, &a, &pid));
    return finish(b, pid, "linking the model");
}

ap_status ap_backend_c_build(ap_ctx *ctx, const char *dir, const char *name, const ap_backend_toolchain *tools)
{
    build b = {.ctx = ctx, .dir = dir, .name = name, .tools = tools};
    if (tools->cuda && !(b.cuda_home = ap_backend_cuda_home(ctx)))
        return ap_fail(ctx, AP_ERR_ENV, 0, "there is no nvcc in $CUDA_HOME, $CUDA_PATH, $PATH, /usr/local/cuda");
    b.log = text(&b, "%s/build.log", dir);
    unlink(b.log);
    ap_status status = tools->objects ? AP_OK : compile_all(&b);
    if (status == AP_OK)
        status = archive(&b);
    if (status == AP_OK)
        status = link_model(&b);
    unlink(b.log);
    if (tools->objects) /* they are what it was made from */
        return status;
    unlink(text(&b, "%s/kernels.o", dir));
    unlink(text(&b, "%s/kernels_cuda.o", dir));
    unlink(text(&b, "%s/program.o", dir));
    unlink(text(&b, "%s/main.o", dir));
    return status;
}
