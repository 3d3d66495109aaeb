/* Files and folders. */
#include "ir/base/file.h"

#include "ir/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* The context knows every mapped file, so that none stays open when memory runs out between mapping and unmapping. */
struct ap_file_record {
    void *map;
    size_t size;
};

static void close_record(void *user)
{
    ap_file_record *r = user;
    if (r->map)
        munmap(r->map, r->size);
    r->map = NULL;
}

/* Why it failed, or NULL. Allocates nothing: the descriptor is open. */
static const char *map_open(int fd, ap_file *out)
{
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode))
        return "not a regular file";
    out->data = (const uint8_t *)"";
    if (st.st_size == 0)
        return NULL;
    void *p = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
    if (p == MAP_FAILED)
        return errno == ENOMEM ? "cannot map: no memory" : "cannot map";
    out->record->map = p;
    out->record->size = (size_t)st.st_size;
    out->data = p;
    out->size = (uint64_t)st.st_size;
    return NULL;
}

ap_status ap_file_map(ap_ctx *ctx, const char *path, ap_file *out)
{
    *out = (ap_file){.record = AP_NEW(&ctx->arena, ap_file_record)};
    ap_ctx_on_release(ctx, close_record, out->record);
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe nobody writes to is no reason to wait */
    if (fd < 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot open: %s", path, strerror(errno));
    const char *why = map_open(fd, out);
    close(fd); /* the mapping stays */
    return why ? ap_fail(ctx, AP_ERR_ENV, 0, "%s: %s", path, why) : AP_OK;
}

void ap_file_unmap(ap_file *f)
{
    if (f->record)
        close_record(f->record);
    *f = (ap_file){0};
}

void ap_file_release_pages(const void *from, uint64_t size)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), a = (uintptr_t)from, b = a + (uintptr_t)size;
    a = (a + page - 1) / page * page;
    b = b / page * page;
    if (a < b)
        madvise((void *)a, b - a, MADV_DONTNEED);
}

static bool write_all(int fd, const char *p, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, p, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        p += n;
        size -= (size_t)n;
    }
    return true;
}

/* A device or a pipe is written to, not replaced. */
static ap_status write_special(ap_ctx *ctx, const char *path, const void *data, size_t size)
{
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    bool ok = fd >= 0 && write_all(fd, data, size);
    int e = errno;
    if (fd >= 0 && close(fd) != 0 && ok) {
        ok = false;
        e = errno;
    }
    return ok ? AP_OK : ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot write: %s", path, strerror(e));
}

/* Signals that end the process wait meanwhile: the temporary file must not be left behind. */
static void hold_signals(sigset_t *before)
{
    sigset_t ends;
    sigemptyset(&ends);
    sigaddset(&ends, SIGHUP);
    sigaddset(&ends, SIGINT);
    sigaddset(&ends, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &ends, before);
}

/* Writes and renames; errno otherwise. */
static bool write_beside(const char *part, const char *path, int fd, const void *data, size_t size)
{
    bool ok = write_all(fd, data, size);
    int e = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        e = errno;
    }
    if (ok && rename(part, path) == 0)
        return true;
    e = ok ? errno : e;
    unlink(part);
    errno = e;
    return false;
}

ap_status ap_file_write(ap_ctx *ctx, const char *path, const void *data, size_t size)
{
    struct stat st;
    if (stat(path, &st) == 0 && !S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return write_special(ctx, path, data, size);
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "%s.part%ld", path, (long)getpid());
    const char *part = ap_text_str(&t);
    sigset_t before;
    hold_signals(&before);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    bool ok = fd >= 0 && write_beside(part, path, fd, data, size);
    int e = errno;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (fd < 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot create: %s", path, strerror(e));
    return ok ? AP_OK : ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot write: %s", path, strerror(e));
}

ap_status ap_dir_make(ap_ctx *ctx, const char *path)
{
    char *copy = ap_arena_strdup(&ctx->arena, path);
    for (char *p = copy + 1; *copy; p++) {
        if (*p != '/' && *p != 0)
            continue;
        char c = *p;
        *p = 0;
        if (mkdir(copy, 0777) != 0 && errno != EEXIST)
            return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot make the folder: %s", copy, strerror(errno));
        *p = c;
        if (!c)
            break;
    }
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: not a folder", path);
    return AP_OK;
}

static int remove_entry(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st;
    (void)flag;
    (void)ftw;
    return remove(path);
}

static void remove_held(void *user)
{
    const ap_dir_hold *hold = user;
    if (hold->path)
        nftw(hold->path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

ap_dir_hold *ap_dir_hold_make(ap_ctx *ctx)
{
    ap_dir_hold *hold = AP_NEW(&ctx->arena, ap_dir_hold);
    ap_ctx_on_release(ctx, remove_held, hold);
    return hold;
}

ap_status ap_dir_remove(ap_ctx *ctx, const char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot remove: %s", path, strerror(errno));
    return AP_OK;
}
