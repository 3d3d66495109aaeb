/* Files and folders. */
#include "ir/base/file.h"

#include "ir/base/text.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

ap_status ap_file_map(ap_ctx *ctx, const char *path, ap_file *out)
{
    *out = (ap_file){.fd = -1};
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot open: %s", path, strerror(errno));
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: not a regular file", path);
    }
    out->size = (uint64_t)st.st_size;
    if (out->size) {
        void *p = mmap(NULL, (size_t)out->size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (p == MAP_FAILED) {
            int e = errno;
            close(fd);
            return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot map: %s", path, strerror(e));
        }
        out->data = p;
    }
    out->fd = fd;
    return AP_OK;
}

void ap_file_unmap(ap_file *f)
{
    if (f->data)
        munmap((void *)(uintptr_t)f->data, (size_t)f->size);
    if (f->fd >= 0)
        close(f->fd);
    *f = (ap_file){.fd = -1};
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

ap_status ap_file_write(ap_ctx *ctx, const char *path, const void *data, size_t size)
{
    ap_text t;
    ap_text_init(&t, &ctx->arena);
    ap_text_addf(&t, "%s.part%ld", path, (long)getpid());
    const char *part = ap_text_str(&t);
    int fd = open(part, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    if (fd < 0)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot create: %s", path, strerror(errno));
    bool ok = write_all(fd, data, size);
    int e = errno;
    if (close(fd) != 0 && ok) {
        ok = false;
        e = errno;
    }
    if (ok && rename(part, path) != 0) {
        ok = false;
        e = errno;
    }
    if (ok)
        return AP_OK;
    unlink(part);
    return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot write: %s", path, strerror(e));
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

ap_status ap_dir_remove(ap_ctx *ctx, const char *path)
{
    if (nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS) != 0 && errno != ENOENT)
        return ap_fail(ctx, AP_ERR_ENV, 0, "%s: cannot remove: %s", path, strerror(errno));
    return AP_OK;
}
