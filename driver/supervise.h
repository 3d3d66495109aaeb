/* Work that makes a folder is done by a child process, so that whatever ends it (an interrupt, a crash, the kernel's
 * hunt for memory) leaves somebody who removes what is half done. */
#ifndef AP_DRIVER_SUPERVISE_H
#define AP_DRIVER_SUPERVISE_H

#include "ir/base/ctx.h"

typedef struct ap_half_done {
    const char *part;      /* the folder that must not stay */
    const char *dir, *old; /* or NULL: `dir` was moved to `old` to make place; goes back if `dir` is not there */
} ap_half_done;

/* Returns twice: in the worker with *out_worker true, which then does the work and ends by main's way; and, when it
 * has ended, in the process that was started, with the worker's status and everything half done removed. The worker
 * and what it starts are a process group; SIGINT, SIGTERM and SIGHUP end that group, then the process itself. */
ap_status ap_supervise(ap_ctx *ctx, const ap_half_done *half_done, bool *out_worker);

#endif
