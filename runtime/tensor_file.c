/* SPDX-License-Identifier: MIT
 *
 * Whole tensors in files: reading by content, writing beside the final name. */
#include "internal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

int aprt_file_read(const char *path, uint8_t **out, size_t *size, aprt_failure *why)
{
    struct stat st;
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK); /* a pipe nobody writes to is no reason to wait */
    *out = NULL;
    *size = 0;
    if (fd < 0)
        return aprt_fail(why, APRT_ERR_ENV, "%s: %s", path, strerror(errno));
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
        close(fd);
        return aprt_fail(why, APRT_ERR_ENV, "%s: not a regular file", path);
    }
    uint8_t *bytes = malloc((size_t)st.st_size + 1);
    if (!bytes) {
        close(fd);
        return aprt_fail(why, APRT_ERR_ENV, "%s: no memory for %lld bytes", path, (long long)st.st_size);
    }
    size_t at = 0;
    while (at < (size_t)st.st_size) {
        ssize_t n = read(fd, bytes + at, (size_t)st.st_size - at);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            break;
        at += (size_t)n;
    }
    close(fd);
    if (at < (size_t)st.st_size) {
        free(bytes);
        return aprt_fail(why, APRT_ERR_ENV, "%s: cannot be read to its end", path);
    }
    *out = bytes;
    *size = at;
    return APRT_OK;
}

static bool write_all(int fd, const char *bytes, size_t size)
{
    while (size > 0) {
        ssize_t n = write(fd, bytes, size);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        bytes += n;
        size -= (size_t)n;
    }
    return true;
}

/* A device or a pipe is written as it is: no file takes its place. */
static bool is_special(const char *path)
{
    struct stat s;
    return stat(path, &s) == 0 && !S_ISREG(s.st_mode);
}

static int cannot_write(const char *path, int error, aprt_failure *why)
{
    return aprt_fail(why, APRT_ERR_ENV, "%s: cannot be written: %s", path, strerror(error));
}

int aprt_file_write(const char *path, const void *head, size_t head_size, const void *data, size_t size,
                    aprt_failure *why)
{
    char aside[4096];
    bool special = is_special(path);
    int n = special ? snprintf(aside, sizeof aside, "%s", path)
                    : snprintf(aside, sizeof aside, "%s.%ld.tmp", path, (long)getpid());
    if (n < 0 || (size_t)n >= sizeof aside)
        return aprt_fail(why, APRT_ERR_ENV, "the path %.200s... is too long", path);
    int fd = open(aside, O_WRONLY | O_CLOEXEC | (special ? 0 : O_CREAT | O_TRUNC), 0666);
    if (fd < 0)
        return aprt_fail(why, APRT_ERR_ENV, "%s: %s", aside, strerror(errno));
    bool good = write_all(fd, head, head_size) && write_all(fd, data, size);
    int error = errno;
    if (close(fd) != 0 && good) {
        good = false;
        error = errno;
    }
    if (special)
        return good ? APRT_OK : cannot_write(path, error, why);
    if (good && rename(aside, path) == 0)
        return APRT_OK;
    error = good ? errno : error;
    unlink(aside);
    return cannot_write(path, error, why);
}

int aprt_tensor_make(int32_t dtype, int32_t rank, const int64_t *dim, aprt_tensor *out, aprt_failure *why)
{
    memset(out, 0, sizeof *out);
    out->dtype = dtype;
    out->rank = rank;
    if (aprt_dtype_bytes(dtype) == 0)
        return aprt_fail(why, APRT_ERR_DATA, "element type %d is not supported", dtype);
    if (!aprt_tensor_bytes(dtype, rank, dim, &out->bytes))
        return aprt_fail(why, APRT_ERR_DATA, "a tensor of impossible shape or of more than %d dimensions",
                         APRT_MAX_RANK);
    memcpy(out->dim, dim, (size_t)rank * sizeof *dim);
    out->data = calloc(1, out->bytes ? (size_t)out->bytes : 1);
    if (!out->data)
        return aprt_fail(why, APRT_ERR_ENV, "no memory for a tensor of %lld bytes", (long long)out->bytes);
    return APRT_OK;
}

void aprt_tensor_free(aprt_tensor *t)
{
    free(t->data);
    t->data = NULL;
}

int aprt_tensor_parse(const void *bytes, size_t size, aprt_tensor *out, aprt_failure *why)
{
    memset(out, 0, sizeof *out);
    int status = size >= 6 && memcmp(bytes, "\x93NUMPY", 6) == 0 ? aprt_npy_parse(bytes, size, out, why)
                                                                 : aprt_proto_parse(bytes, size, out, why);
    /* BOOL is 0 or 1, whatever the file says. */
    for (int64_t i = 0; status == APRT_OK && out->dtype == APRT_BOOL && i < out->bytes; i++)
        ((uint8_t *)out->data)[i] = ((uint8_t *)out->data)[i] != 0;
    if (status != APRT_OK)
        aprt_tensor_free(out);
    return status;
}

int aprt_tensor_read(const char *path, aprt_tensor *out, aprt_failure *why)
{
    uint8_t *bytes;
    size_t size;
    aprt_failure inner;
    memset(out, 0, sizeof *out);
    int status = aprt_file_read(path, &bytes, &size, why);
    if (status != APRT_OK)
        return status;
    status = aprt_tensor_parse(bytes, size, out, &inner);
    free(bytes);
    return status == APRT_OK ? APRT_OK : aprt_fail(why, status, "%s: %.300s", path, inner.text);
}
