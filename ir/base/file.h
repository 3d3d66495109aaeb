/* Files: mapped for reading, written beside their final name and renamed. */
#ifndef AP_IR_BASE_FILE_H
#define AP_IR_BASE_FILE_H

#include "ir/base/ctx.h"

typedef struct ap_file_record ap_file_record;

typedef struct ap_file {
    const uint8_t *data; /* mapped read-only; not NULL, even when size is 0 */
    uint64_t size;
    ap_file_record *record;
} ap_file;

/* AP_ERR_ENV with a diagnostic that names the path when it cannot be opened or mapped, or is no regular file.
 * Closed by ap_file_unmap, or with the context. */
ap_status ap_file_map(ap_ctx *ctx, const char *path, ap_file *out);
void ap_file_unmap(ap_file *f);
/* Whole pages of a mapped file are given back; they are read again when they are looked at again. */
void ap_file_release_pages(const void *from, uint64_t size);

/* Write whole contents: temporary name in the same folder, flush, rename. */
ap_status ap_file_write(ap_ctx *ctx, const char *path, const void *data, size_t size);

/* mkdir -p; remove a tree (used for folders that we made ourselves). */
ap_status ap_dir_make(ap_ctx *ctx, const char *path);
ap_status ap_dir_remove(ap_ctx *ctx, const char *path);

/* A folder that must not outlive the context: while `path` is not NULL the context's end removes the tree, also when
 * memory ran out on the way. */
typedef struct ap_dir_hold {
    const char *path;
} ap_dir_hold;
ap_dir_hold *ap_dir_hold_make(ap_ctx *ctx);

#endif
