/* Files: mapped for reading, written beside their final name and renamed. */
#ifndef AP_IR_BASE_FILE_H
#define AP_IR_BASE_FILE_H

#include "ir/base/ctx.h"

typedef struct ap_file {
    const uint8_t *data; /* mapped read-only; NULL when size is 0 */
    uint64_t size;
    int fd;
} ap_file;

/* AP_ERR_ENV with a diagnostic that names the path when it cannot be opened or mapped, or is no regular file. */
ap_status ap_file_map(ap_ctx *ctx, const char *path, ap_file *out);
void ap_file_unmap(ap_file *f);

/* Write whole contents: temporary name in the same folder, flush, rename. */
ap_status ap_file_write(ap_ctx *ctx, const char *path, const void *data, size_t size);

/* mkdir -p; remove a tree (used for folders that we made ourselves). */
ap_status ap_dir_make(ap_ctx *ctx, const char *path);
ap_status ap_dir_remove(ap_ctx *ctx, const char *path);

#endif
